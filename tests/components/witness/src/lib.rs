//! Says what the host told it, and answers in each of the ways that a module can.

use bindings::Guest;
use bindings::types::{Annotations, ErrorClass, Invocation, Output, Tool, ToolError};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "tool-module",
    });
    pub use exports::toolhold::module::tools::Guest;
    pub use toolhold::module::types;
}

struct Witness;

bindings::export!(Witness with_types_in bindings);

/// Calls that this instance has seen: 1, if every call has an instance of its own.
static CALLS: AtomicU32 = AtomicU32::new(0);

impl Guest for Witness {
    fn list_tools() -> Vec<Tool> {
        let any = json!({"type": "object"});
        let answer = json!({
            "type": "object",
            "properties": {
                "value": {},
                "path": {"type": "string"},
                "class": {"enum": ["correctable", "retryable", "fatal"]},
            },
            "additionalProperties": false,
        });
        vec![
            tool("tell", "Returns what it was called with.", &any, Annotations::READ_ONLY),
            tool("answer", "Returns a value, a message with a path, or an error of a class.", &answer, Annotations::empty()),
        ]
    }

    fn call(invocation: Invocation) -> Result<Output, ToolError> {
        let arguments = json(&invocation.arguments)?;
        if invocation.tool == "tell" {
            let context: Result<Vec<Value>, ToolError> = invocation
                .context
                .iter()
                .map(|scoped| Ok(json!([scoped.path, json(&scoped.value)?])))
                .collect();
            let told = json!({
                "arguments": arguments,
                "context": context?,
                "calls": CALLS.fetch_add(1, Ordering::Relaxed) + 1,
            });
            return Ok(Output::Value(told.to_string()));
        }
        let value = arguments.get("value").cloned().unwrap_or_default();
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        if let Some(class) = text("class") {
            return Err(ToolError {
                class: match class {
                    "retryable" => ErrorClass::Retryable,
                    "fatal" => ErrorClass::Fatal,
                    _ => ErrorClass::Correctable,
                },
                message: format!("as you wish: {class}"),
                data: None,
            });
        }
        Ok(match text("path") {
            None => Output::Value(value.to_string()),
            Some(path) => {
                let message = json!({"type": "data", "data": value, "_outputPath": path});
                Output::Message(message.to_string())
            }
        })
    }
}

fn tool(name: &str, description: &str, schema: &Value, annotations: Annotations) -> Tool {
    Tool {
        name: name.into(),
        title: None,
        description: description.into(),
        input_schema: schema.to_string(),
        output_schema: None,
        annotations,
        examples: Vec::new(),
    }
}

fn json(text: &str) -> Result<Value, ToolError> {
    text.parse().map_err(|error| ToolError {
        class: ErrorClass::Fatal,
        message: format!("the host sent what is no JSON: {error}"),
        data: None,
    })
}
