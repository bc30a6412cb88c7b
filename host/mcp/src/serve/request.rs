//! Saved Requests as tools: their list entries, and the inputs that calls give them.

use super::schema::{ObjectSchema, of_object};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use toolhold_policy::{Annotations, DocsSource, ToolSpec};
use toolhold_protocol::saved::SavedRequest;

/// Prefix of a Request's tool name. Names of modules cannot contain `-`, so it never collides with a module's
/// tool.
const PREFIX: &str = "request-";
/// The property for an input that is not an object, or is optional.
const INPUT: &str = "input";
/// Most characters of a name: all clients accept 64.
const MAX_NAME: usize = 64 - PREFIX.len();

/// A saved Request that clients may call.
#[derive(Debug, Clone)]
pub struct OfferedRequest {
    pub name: String,
    pub saved: Arc<SavedRequest>,
    takes: InputForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputForm {
    Nothing,
    /// The arguments are the input.
    All,
    /// The property [`INPUT`] is the input.
    Property,
}

/// The tool name of a Request.
pub fn tool_name(request: &str) -> String {
    format!("{PREFIX}{request}")
}

impl OfferedRequest {
    /// Reads the Request, and makes its list entry.
    ///
    /// # Errors
    /// Why it cannot be a tool.
    pub fn new(name: &str, saved: Arc<SavedRequest>) -> Result<(Self, ToolSpec), String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_part) {
            return Err(format!(
                "a tool's name has letters of ASCII, digits, _ and - only, and {MAX_NAME} of them at most"
            ));
        }
        let (takes, input_schema) = match saved.input_schema() {
            None => (
                InputForm::Nothing,
                json!({"type": "object", "additionalProperties": false}),
            ),
            Some(schema) => match of_object(schema, INPUT, !saved.has_input()) {
                ObjectSchema::Same(schema) => (InputForm::All, schema),
                ObjectSchema::Wrapped(schema) => (InputForm::Property, schema),
                ObjectSchema::Nothing => {
                    return Err("its input schema refers to itself, and is not of an object".into());
                }
            },
        };
        let description = match saved.description.trim() {
            "" => format!("Runs the saved Request {name}."),
            said => said.to_owned(),
        };
        let spec = ToolSpec {
            name: tool_name(name),
            title: None,
            description: description.into(),
            input_schema,
            output_schema: saved.schema.clone(),
            // Unknown: its model chooses the calls.
            annotations: Annotations {
                destructive: true,
                open_world: true,
                ..Annotations::default()
            },
            examples: Vec::new(),
            docs_source: DocsSource::Module,
        };
        let name = name.to_owned();
        Ok((Self { name, saved, takes }, spec))
    }

    /// The input that a call gives; `None` uses the file's own.
    pub fn input(&self, arguments: Value) -> Option<Value> {
        match (self.takes, arguments) {
            (InputForm::All, arguments) => Some(arguments),
            (InputForm::Property, Value::Object(mut properties)) => properties.shift_remove(INPUT),
            (InputForm::Nothing | InputForm::Property, _) => None,
        }
    }
}

/// Key of the run's id in a result; not part of the protocol.
pub fn note_run(result: &mut Value, run: &str) {
    const RUN_KEY: &str = "io.toolhold/run";
    if let Some(fields) = result.as_object_mut() {
        let meta = fields.entry("_meta").or_insert_with(|| Map::new().into());
        meta[RUN_KEY] = run.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input: Value) -> Result<(OfferedRequest, ToolSpec), String> {
        let saved = SavedRequest::parse(&json!({"context": [input]}))?;
        OfferedRequest::new("r", Arc::new(saved))
    }

    #[test]
    fn arguments_become_the_input() {
        let object = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let text = json!({"type": "string"});
        let wrapped = |inner: &Value, required: bool| {
            let mut schema = json!({"type": "object", "properties": {"input": inner}});
            if required {
                schema["required"] = json!(["input"]);
            }
            schema
        };
        for (message, told, arguments, input) in [
            (
                json!({"type": "input", "schema": object}),
                object.clone(),
                json!({"a": 1}),
                Some(json!({"a": 1})),
            ),
            (
                json!({"type": "input", "schema": text}),
                wrapped(&text, true),
                json!({"input": "x"}),
                Some(json!("x")),
            ),
            // The file holds an input, which a call may replace.
            (
                json!({"type": "input", "schema": object, "input": {"a": 1}}),
                wrapped(&object, false),
                json!({}),
                None,
            ),
            (
                json!({"type": "input", "schema": object, "input": {"a": 1}}),
                wrapped(&object, false),
                json!({"input": {"a": 2}}),
                Some(json!({"a": 2})),
            ),
        ] {
            let (request, spec) = request(message.clone()).unwrap();
            assert_eq!(spec.input_schema, told, "{message}");
            assert_eq!(request.input(arguments), input, "{message}");
        }
        let saved = Arc::new(SavedRequest::parse(&json!({"context": []})).unwrap());
        let (request, spec) = OfferedRequest::new("none", saved.clone()).unwrap();
        assert_eq!(spec.name, "request-none");
        assert_eq!(request.input(json!({})), None);
        for name in ["", "a b", "ä", "a.b", "../a", &"x".repeat(57)] {
            assert!(OfferedRequest::new(name, saved.clone()).is_err(), "{name}");
        }
        assert!(OfferedRequest::new(&"x".repeat(56), saved).is_ok());
    }
}
