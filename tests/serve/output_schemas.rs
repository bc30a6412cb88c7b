//! Schemas of answers, as clients write them.

use super::{answers, ask, host, scripted, serve};
use serde_json::{Value, json};

/// The schema in the form of each API.
fn requests(schema: &Value) -> [(&'static str, Value); 3] {
    let mut chat = ask("t");
    chat["model"] = "default".into();
    chat["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": true}});
    let format = json!({"type": "json_schema", "name": "x", "schema": schema, "strict": true});
    let response = json!({"model": "default", "input": "t", "text": {"format": format}});
    let mut task = ask("t");
    task["output_schema"] = schema.clone();
    [
        ("/v1/chat/completions", chat),
        ("/v1/responses", response),
        ("/v1/agent", task),
    ]
}

/// A keyword that cannot be checked is left out and told, as in schemas of tools. Pydantic writes such a pattern for
/// `Decimal`.
#[test]
fn a_keyword_that_cannot_be_checked_is_left_out_and_told() {
    let decimal = json!({"anyOf": [
        {"type": "number"},
        {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"},
    ]});
    for (price, place) in [
        (decimal, "/properties/price/anyOf/1/pattern"),
        (json!({"$ref": "#/$defs/Gone"}), "/properties/price/$ref"),
    ] {
        let schema = json!({
            "type": "object", "properties": {"price": price}, "required": ["price"], "additionalProperties": false,
        });
        let host = host("");
        // What is left of the schema is checked.
        let replies = || [answers(json!({})), answers(json!({"price": "1.5"}))];
        let endpoint = scripted((0..3).flat_map(|_| replies()));
        let server = serve(&host, &endpoint);
        for (path, request) in requests(&schema) {
            let answer = server.post(path, &request).good();
            let notices = match path {
                "/v1/agent" => &answer["notices"],
                _ => &answer["toolhold"]["notices"],
            };
            let told = notices.to_string();
            assert!(
                told.contains("of the output schema") && told.contains(place),
                "{path}: {answer}"
            );
            assert!(answer.to_string().contains("1.5"), "{path}: {answer}");
        }
        assert_eq!(endpoint.replies_left(), 0);
    }
}
