//! Results of calls in MCP's form.

use super::catalog::{ListedTool, RESULT};
use super::revision::ProtocolEra;
use serde_json::{Map, Value, json};
use toolhold_protocol::failure::ToolFailure;

/// Key of machine-readable details of a failure; not part of the protocol.
const FAILURE_KEY: &str = "io.toolhold/failure";

/// The result of a successful `tools/call`: as text, and as structured content where the client supports it.
pub fn complete(era: ProtocolEra, offered: &ListedTool, value: Value) -> Value {
    let is_wrapped = era == ProtocolEra::Legacy && offered.is_wrapped;
    let is_structured = match era {
        ProtocolEra::Legacy => is_wrapped || value.is_object(),
        ProtocolEra::Modern => offered.callable.bound.tool.output.is_some() || !value.is_string(),
    };
    let (text, structured) = match value {
        Value::String(text) if !is_structured => (text, None),
        Value::String(text) => (text.clone(), Some(Value::String(text))),
        other => (other.to_string(), is_structured.then_some(other)),
    };
    // The result is moved to its place: `json!` would copy it, and it may have megabytes.
    let mut result = json!({"content": [{"type": "text"}], "isError": false});
    result["content"][0]["text"] = text.into();
    match structured {
        Some(value) if is_wrapped => {
            let wrapped = Map::from_iter([(RESULT.to_owned(), value)]);
            result["structuredContent"] = Value::Object(wrapped);
        }
        Some(value) => result["structuredContent"] = value,
        None => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::catalog::Catalog;
    use crate::serve::mask::Mask;
    use toolhold_policy::{Annotations, DocsSource, ToolSpec};

    fn catalog(output_schema: Option<Value>) -> Catalog {
        let spec = ToolSpec {
            name: "m.f".into(),
            title: None,
            description: "Does it.".into(),
            input_schema: json!({"type": "object"}),
            output_schema,
            annotations: Annotations::default(),
            examples: Vec::new(),
            docs_source: DocsSource::Module,
        };
        Catalog::new(vec![spec], &[], None, &Mask::default(), 0)
    }

    #[test]
    fn results_are_texts_and_structured_where_the_era_has_it() {
        let (legacy, modern) = (ProtocolEra::Legacy, ProtocolEra::Modern);
        let text = Some(json!({"type": "string"}));
        let (object, wrapped) = (json!({"n": 1}), json!({"result": "a"}));
        for (era, schema, value, shown, structured) in [
            (legacy, None, json!("a"), "a", None),
            (legacy, None, json!([1]), "[1]", None),
            (legacy, None, object.clone(), r#"{"n":1}"#, Some(object)),
            (legacy, text.clone(), json!("a"), "a", Some(wrapped)),
            (modern, None, json!("a"), "a", None),
            (modern, None, json!([1]), "[1]", Some(json!([1]))),
            (modern, text, json!("a"), "a", Some(json!("a"))),
        ] {
            let mut expected =
                json!({"content": [{"type": "text", "text": shown}], "isError": false});
            if let Some(structured) = structured {
                expected["structuredContent"] = structured;
            }
            let catalog = catalog(schema);
            let result = complete(era, catalog.find("m.f").unwrap(), value);
            // Also the members are in this order.
            assert_eq!(result.to_string(), expected.to_string());
        }
    }
}
