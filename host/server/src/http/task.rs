//! The task of `POST /v1/agent` and of a session's turn.

use crate::http::agent::{Prepared, limit, limit_replies};
use crate::http::attached::TaskDocument;
use crate::http::client_tools::{ClientTool, DefinedTools, PlacedTool};
use crate::http::error::ApiError;
use crate::http::messages::{
    ChatMessage, ClientCall, conversation, has_all_results, language_of_context,
};
use crate::http::sampling::SamplingParams;
use crate::http::tool_choice::ChosenTools;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_agent::language;
use toolhold_protocol::context::Message;
use utoipa::ToSchema;

/// A task for an agent.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"messages": [{"role": "user", "content": "What is 2^61 - 1?"}], "stream": true}))]
pub struct Task {
    /// Name of the agent; default: `default`.
    pub agent: Option<String>,
    messages: Vec<ChatMessage>,
    /// Another name of `messages`.
    input_messages: Vec<ChatMessage>,
    /// Context messages (data, state, tools, advisors, a plan…) that come before `messages`.
    #[schema(value_type = Option<Vec<Object>>)]
    context: Option<Value>,
    /// Replaces the agent's own.
    instructions: Option<String>,
    /// All tools that may be called: names of the agent's tools, or of modules for all of their tools; and
    /// definitions. A definition with the name of one of the agent's tools is that tool, as the agent has it. Any
    /// other the client runs itself: the run ends with its calls (`tool_calls` in `choices`), and the next request
    /// brings their results in messages of the role `tool`. Absent: the agent's tools.
    tools: Option<Vec<TaskTool>>,
    /// JSON Schema of the output, in the place of the agent's own.
    #[schema(value_type = Option<Object>)]
    output_schema: Option<Value>,
    /// The most tokens of one reply of the model; cannot exceed the agent's limit.
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    /// The most Requests to the model; cannot exceed the agent's limit.
    #[schema(minimum = 1)]
    max_steps: Option<u32>,
    /// The most tokens of the prompt of each Request to the model. What is too long is summed up, which
    /// `notices` of the answer tells; what is too long after that is not sent, and the run ends with `token_budget`.
    #[schema(minimum = 1)]
    max_context_tokens: Option<u64>,
    /// The most tokens of the whole turn, prompts and replies together; cannot exceed the agent's limit.
    #[schema(minimum = 1)]
    max_turn_tokens: Option<u64>,
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f64>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    sampling_params: Option<SamplingParams>,
    /// Language of the task, as a BCP 47 tag (`de`, `pt-BR`), in which the model is asked to answer. Absent: the
    /// language of the last message of the user in `messages` or else `context`, where it can be told.
    language: Option<String>,
    /// Documents of which passages are found before the model is asked, and shown to it as data. In a session, its later
    /// turns find them, too. At most 32.
    pub documents: Vec<TaskDocument>,
    /// Stream events as they happen instead of returning one answer.
    pub stream: bool,
}

/// A tool that may be called.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected the name of a tool, or a definition: {\"type\": \"function\", \"name\": …}"
)]
enum TaskTool {
    Name(String),
    Definition(Box<ClientTool>),
}

/// Longest tag of a language, in characters: of those that RFC 5646 asks everyone to take.
const MAX_LANGUAGE: usize = 35;

impl Task {
    /// Merges the client's fields into the agent's request. `before`: the calls that the turn before ended with.
    ///
    /// # Errors
    /// A field has an invalid value, or the result of a call is missing.
    pub async fn put(
        &self,
        before: &[ClientCall],
        prepared: &mut Prepared,
    ) -> Result<(), ApiError> {
        let defined = self.take_tools(prepared).await?;
        let request = &mut prepared.request;
        if let Some(context) = &self.context {
            let context = Message::parse_all(context);
            request.context = context.map_err(|error| {
                let place = format!("context[{}]", error.index);
                ApiError::invalid(error.to_string()).of(&place)
            })?;
        }
        if let Some(instructions) = &self.instructions {
            request.instructions.clone_from(instructions);
        }
        let (place, messages) = self.messages()?;
        if !before.is_empty() {
            has_all_results(place, "message of the role tool", before, messages)?;
        }
        if !messages.is_empty() || self.context.is_none() {
            let mut said = conversation(place, before, messages, &defined.names())?;
            if self.instructions.is_some() {
                said.instructions = None;
            }
            if self.language.is_some() {
                said.language = None;
            }
            said.put_instructions(request);
            request.context.extend(said.context);
        }
        if let Some(tag) = &self.language {
            check_language(tag)?;
            language::keep(request, tag, true);
        } else if self.context.is_some()
            && request.language.is_none()
            && let Some(tag) = language_of_context(&request.context)
        {
            language::keep(request, tag, false);
        }
        if self.output_schema.is_some() {
            request.output_schema.clone_from(&self.output_schema);
            prepared.output_schema_at = Some("output_schema");
        }
        let settings = &mut request.settings;
        let sampling = self.sampling_params.clone().unwrap_or_default();
        let sampling = sampling.with(self.temperature, self.top_p)?;
        sampling.put(settings)?;
        limit_replies(settings, "max_tokens", self.max_tokens)?;
        limit(&mut settings.max_steps, "max_steps", self.max_steps)?;
        if let Some(most) = at_least_one("max_context_tokens", self.max_context_tokens)? {
            settings.limit_prompt(most);
        }
        if let Some(most) = at_least_one("max_turn_tokens", self.max_turn_tokens)? {
            let allowed = settings.token_budget.unwrap_or(u64::MAX);
            settings.token_budget = Some(most.min(allowed));
        }
        defined.offer(prepared, &ChosenTools::Auto).await
    }

    /// The messages whose images and files are to be read, with the name under which the client gave them.
    pub fn messages_mut(&mut self) -> (&'static str, &mut [ChatMessage]) {
        if self.messages.is_empty() {
            ("input_messages", self.input_messages.as_mut_slice())
        } else {
            ("messages", self.messages.as_mut_slice())
        }
    }

    /// The messages, with the name under which the client gave them.
    fn messages(&self) -> Result<(&'static str, &[ChatMessage]), ApiError> {
        match (self.messages.as_slice(), self.input_messages.as_slice()) {
            (messages, []) => Ok(("messages", messages)),
            ([], messages) => Ok(("input_messages", messages)),
            _ => {
                let message =
                    "messages and input_messages are two names of the same; leave one away";
                Err(ApiError::invalid(message).of("input_messages"))
            }
        }
    }

    /// Narrows the agent's tools to those that are named, and returns those that are defined.
    async fn take_tools(&self, prepared: &mut Prepared) -> Result<DefinedTools, ApiError> {
        let Some(tools) = &self.tools else {
            return Ok(DefinedTools::default());
        };
        let (mut names, mut definitions) = (Vec::new(), Vec::new());
        for (index, tool) in tools.iter().enumerate() {
            match tool {
                TaskTool::Name(name) => names.push(name.clone()),
                TaskTool::Definition(tool) => definitions.push(PlacedTool {
                    place: format!("tools[{index}]"),
                    inner: "",
                    tool: tool.as_ref().clone(),
                }),
            }
        }
        let mut defined = DefinedTools::of(&definitions, prepared).await?;
        names.append(&mut defined.registered);
        prepared.behalf.narrow(Some(names));
        prepared.request.allowed = prepared.agent.allowed(&prepared.behalf);
        Ok(defined)
    }
}

fn check_language(tag: &str) -> Result<(), ApiError> {
    let is_part = |part: &str| {
        (1..=8).contains(&part.len()) && part.chars().all(|it| it.is_ascii_alphanumeric())
    };
    let first = tag.split('-').next().unwrap_or_default();
    let is_language = first.len() >= 2 && first.chars().all(|it| it.is_ascii_alphabetic());
    if tag.len() > MAX_LANGUAGE || !is_language || !tag.split('-').all(is_part) {
        return Err(ApiError::member(
            "language",
            "expected a BCP 47 tag, such as de or pt-BR",
        ));
    }
    Ok(())
}

fn at_least_one(name: &str, asked: Option<u64>) -> Result<Option<u64>, ApiError> {
    match asked {
        Some(0) => Err(ApiError::invalid(format!("{name} must be at least 1")).of(name)),
        asked => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_language_is_a_tag() {
        for tag in ["de", "pt-BR", "zh-Hant-TW", "gsw-CH-1996"] {
            check_language(tag).unwrap();
        }
        for tag in [
            "",
            "d",
            "Deutsch bitte",
            "de-",
            "de_CH",
            "12",
            "de\n",
            &"a-".repeat(40),
        ] {
            assert!(check_language(tag).is_err(), "{tag:?}");
        }
    }

    #[test]
    fn a_tool_is_a_name_or_a_definition() {
        let read = |tools: Value| serde_json::from_value::<Task>(json!({"tools": tools}));
        let task = read(json!(["text", {"type": "function", "name": "weather"}])).unwrap();
        let tools = task.tools.unwrap();
        assert!(matches!(
            &tools[..],
            [TaskTool::Name(_), TaskTool::Definition(_)]
        ));
        let refused = read(json!([3])).unwrap_err().to_string();
        assert!(refused.contains("expected the name of a tool"), "{refused}");
    }
}
