//! Results of calls in MCP's form.

use super::catalog::{ListedTool, RESULT};
use super::revision::ProtocolEra;
use serde_json::{Value, json};
use toolhold_protocol::failure::ToolFailure;

/// Key of machine-readable details of a failure; not part of the protocol.
const FAILURE_KEY: &str = "io.toolhold/failure";

/// The result of a successful `tools/call`: as text, and as structured content where the client supports it.
pub fn complete(era: ProtocolEra, offered: &ListedTool, value: Value) -> Value {
    let text = match &value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let structured = match era {
        ProtocolEra::Legacy if offered.is_wrapped => Some(json!({RESULT: value})),
        ProtocolEra::Legacy if value.is_object() => Some(value),
        ProtocolEra::Legacy => None,
        ProtocolEra::Modern
            if offered.callable.bound.tool.output.is_none() && value.is_string() =>
        {
            None
        }
        ProtocolEra::Modern => Some(value),
    };
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": false});
    if let Some(structured) = structured {
        result["structuredContent"] = structured;
    }
    result
}

/// The result of a failed call, in words that a model can act on.
pub fn failed(failure: &ToolFailure) -> Value {
    json!({
        "content": [{"type": "text", "text": failure.message}],
        "isError": true,
        "_meta": {FAILURE_KEY: {"kind": failure.kind, "class": failure.class.name()}},
    })
}
