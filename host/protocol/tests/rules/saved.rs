//! Section 6: saved Requests.

use serde_json::{Value, json};
use toolhold_protocol::saved::SavedRequest;

#[test]
fn a_saved_request_is_read_as_strictly() {
    for (rule, saved, says) in [
        ("6.1", json!({}), "missing field `context`"),
        (
            "6.1",
            json!({"context": [], "scheme": {}}),
            "unknown field `scheme`",
        ),
        (
            "6.1",
            json!({"context": [], "schema": {"type": "x"}}),
            "/schema: this schema cannot be used: it is no JSON Schema",
        ),
        (
            "6.1",
            json!({"context": [{"type": "data"}]}),
            "message 1 of the context at /data",
        ),
    ] {
        let error = SavedRequest::parse(&saved).unwrap_err();
        assert!(error.contains(says), "{rule}: {saved}: {error}");
    }
}

/// What it is as a tool: its own description, input and output.
#[test]
fn a_saved_request_with_an_input_can_be_used_as_a_tool() {
    let input =
        json!({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]});
    let saved = |input: &Value| {
        let file = json!({
            "description": "Answers.", "schema": {"type": "integer"},
            "context": [{"type": "input", "schema": input}],
        });
        SavedRequest::parse(&file).unwrap()
    };
    let tool = saved(&input).tool("ask");
    for (rule, got, meant) in [
        ("2.3", json!(tool.parameters), input.clone()),
        ("6.7", json!(tool.output), json!({"type": "integer"})),
        ("6.1", json!(tool.execution), json!({"module": "ask"})),
    ] {
        assert_eq!(got, meant, "{rule}");
    }
    for (rule, given, fits) in [
        ("6.6", json!({"q": "why"}), true),
        ("6.6", json!({"q": 7}), false),
        ("6.6", json!({}), false),
    ] {
        let saved = saved(&input);
        assert_eq!(
            saved.with_input(given.clone()).is_ok(),
            fits,
            "{rule}: {given}"
        );
        // Resolved at execution: the model is told what does not fit, and makes do with it.
        let bridged = json!(saved.with_any_input(given.clone()).unwrap()).to_string();
        assert_eq!(
            bridged.contains("words for it differ"),
            !fits,
            "{rule}: {bridged}"
        );
    }
}
