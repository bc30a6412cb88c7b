//! Saved Requests: a context and a schema in a file, run again on other inputs, by people and as
//! sub-agents (docs/protocol.md, 1 and 6).

use crate::context::{Context, ContextError, Input, Message};
use crate::tool::{Execution, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_schema::Validator;

/// `{context, schema}`, and what else the file says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedRequest {
    /// Its purpose; the description when it is used as a tool.
    #[serde(default)]
    pub description: String,
    /// Instructions for the model, instead of the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(deserialize_with = "messages")]
    pub context: Vec<Message>,
    /// JSON Schema of the output; plain text if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Maximum Requests, if lower than the caller's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
}

impl SavedRequest {
    /// Reads a saved Request.
    ///
    /// # Errors
    /// The fault and its place.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let saved = Self::deserialize(value).map_err(|error| {
            format!("this is no saved Request {{\"context\": […], \"schema\": {{…}}}}: {error}")
        })?;
        Context::new(saved.context.clone()).map_err(|error| error.to_string())?;
        if let Some(schema) = &saved.schema {
            Validator::new(schema)
                .map_err(|reason| format!("/schema: this schema cannot be used: {reason}"))?;
        }
        if saved.max_steps == Some(0) {
            return Err("/max_steps: a Request needs at least 1".into());
        }
        Ok(saved)
    }

    /// The schema of what it is given, if it takes anything.
    pub fn input_schema(&self) -> Option<&Value> {
        self.input().map(|input| &input.schema)
    }

    /// Whether the file itself holds an input.
    pub fn has_input(&self) -> bool {
        self.input().is_some_and(|input| !input.input.is_null())
    }

    /// The context with `input` in the place of what the file holds.
    ///
    /// # Errors
    /// The input does not satisfy its schema, or there is no place for one.
    pub fn with_input(&self, input: Value) -> Result<Vec<Message>, ContextError> {
        let mut messages = self.context.clone();
        let place = messages.iter_mut().find_map(|message| match message {
            Message::Input(own) if own.instance.is_none() => Some(own),
            _ => None,
        });
        match place {
            Some(own) => own.input = input,
            None if input.is_null() => {}
            None => messages.push(Message::Input(Input {
                input,
                schema: Value::Bool(true),
                description: None,
                instance: None,
            })),
        }
        Context::new(messages).map(|context| context.messages)
    }

    /// The context with `input`, for a model that must work with any input: an input that does not fit the
    /// schema is not refused; the context then states the fault and the schema (docs/protocol.md, 6).
    ///
    /// # Errors
    /// The context cannot be used for another reason.
    pub fn with_any_input(&self, input: Value) -> Result<Vec<Message>, ContextError> {
        let is_nothing = input.as_object().is_some_and(serde_json::Map::is_empty);
        if is_nothing && (self.has_input() || self.input().is_none()) {
            return Ok(self.context.clone());
        }
        let misfit = match (self.with_input(input.clone()), self.input()) {
            (Err(misfit), Some(own)) => (misfit, own.schema.clone()),
            (outcome, _) => return outcome,
        };
        let (misfit, schema) = misfit;
        let mut loose = self.clone();
        let own = loose.context.iter_mut().find_map(|message| match message {
            Message::Input(own) if own.instance.is_none() => Some(own),
            _ => None,
        });
        if let Some(own) = own {
            let before = own.description.take().unwrap_or_default();
            let note = format!(
                "{before}\nThe caller's words for it differ ({}). Take from them what this schema asks for: {schema}",
                misfit.reason
            );
            own.description = Some(note.trim_start().to_owned());
            own.schema = Value::Bool(true);
        }
        loose.with_input(input)
    }

    /// The tool that it is used as, under `name`.
    pub fn tool(&self, name: &str) -> Tool {
        let none = Tool::new(name);
        Tool {
            description: self.description.clone(),
            parameters: self
                .input_schema()
                .cloned()
                .unwrap_or(none.parameters.clone()),
            output: self.schema.clone(),
            execution: Execution::Module(name.to_owned()),
            ..none
        }
    }

    fn input(&self) -> Option<&Input> {
        self.context.iter().find_map(|message| match message {
            Message::Input(input) if input.instance.is_none() => Some(input),
            _ => None,
        })
    }
}

fn messages<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Message>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Message::parse_all(&value).map_err(serde::de::Error::custom)
}
