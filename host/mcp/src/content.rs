//! Reads a result of `tools/call` as the loop's results.

use crate::error::{Failure, one_line};
use crate::offer::{Checks, is_at_most};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use toolhold_schema::CheckError;

/// Depth of nested arrays and objects: the same limit as for modules.
const MAX_DEPTH: usize = 64;
/// Parts of one result.
const MAX_PARTS: usize = 1_000;

/// Reads the result of `tools/call`.
///
/// A text becomes a string, several parts a list, no part null. Other content becomes an object:
/// `{"mime", "base64"}` for bytes, `{"uri", "mime", "text"}` for a resource, `{"uri", "name", "mime"}`
/// for a link to a resource, which is not followed.
///
/// # Errors
/// The tool reported a failure, or its result cannot be used.
pub fn read(result: &Value, checks: &Checks, max_bytes: usize) -> Result<Value, Failure> {
    if result.get("isError").and_then(Value::as_bool) == Some(true) {
        return Err(Failure::Tool(complaint(result)));
    }
    let value = match (result.get("structuredContent"), &checks.output) {
        (Some(structured), output) => {
            if let Some(schema) = output {
                schema.check(structured).map_err(|error| match error {
                    CheckError::Misfit(reason) => Failure::OutputSchema(one_line(&reason)),
                    CheckError::TooCostly(unknown) => Failure::CheckCost(unknown),
                })?;
            }
            structured.clone()
        }
        (None, Some(_)) => {
            let missing = "there is no structuredContent";
            return Err(Failure::OutputSchema(missing.into()));
        }
        (None, None) => parts(result)?,
    };
    if !is_at_most(&value, MAX_DEPTH) {
        return Err(Failure::Output(format!(
            "it is more than {MAX_DEPTH} levels deep"
        )));
    }
    if value.to_string().len() > max_bytes {
        return Err(Failure::TooLarge(max_bytes));
    }
    Ok(value)
}

fn parts(result: &Value) -> Result<Value, Failure> {
    let content = match result.get("content") {
        Some(Value::Array(content)) if content.len() <= MAX_PARTS => content,
        Some(Value::Array(_)) => {
            return Err(Failure::Output(format!(
                "it has more than {MAX_PARTS} parts"
            )));
        }
        _ => return Err(Failure::Output("it has no content".into())),
    };
    let mut parts = content.iter().map(part).collect::<Result<Vec<_>, _>>()?;
    Ok(match parts.len() {
        0 => Value::Null,
        1 => parts.remove(0),
        _ => Value::Array(parts),
    })
}

fn part(part: &Value) -> Result<Value, Failure> {
    let text = |key: &str| part.get(key).and_then(Value::as_str);
    let kind = text("type").unwrap_or_default();
    let missing = || {
        Failure::Output(format!(
            "a part of the type {:?} is incomplete",
            one_line(kind)
        ))
    };
    match kind {
        "text" => Ok(text("text").ok_or_else(missing)?.into()),
        "image" | "audio" => bytes(text("mimeType"), text("data").ok_or_else(missing)?),
        "resource" => {
            let resource = part.get("resource").ok_or_else(missing)?;
            let field = |key: &str| resource.get(key).and_then(Value::as_str);
            match (field("text"), field("blob")) {
                (Some(text), _) => Ok(object([
                    ("uri", field("uri")),
                    ("mime", field("mimeType")),
                    ("text", Some(text)),
                ])),
                (None, Some(blob)) => bytes(field("mimeType"), blob),
                (None, None) => Err(missing()),
            }
        }
        "resource_link" => Ok(object([
            ("uri", Some(text("uri").ok_or_else(missing)?)),
            ("name", text("name")),
            ("mime", text("mimeType")),
        ])),
        other => Err(Failure::Output(format!(
            "it has a part of the unknown type {:?}",
            one_line(other)
        ))),
    }
}

fn bytes(mime: Option<&str>, base64: &str) -> Result<Value, Failure> {
    if STANDARD.decode(base64).is_err() {
        return Err(Failure::Output("a part of it is not base64".into()));
    }
    let mime = mime.unwrap_or("application/octet-stream");
    Ok(json!({"mime": mime, "base64": base64}))
}

fn object<const N: usize>(fields: [(&str, Option<&str>); N]) -> Value {
    let present = fields
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.into())));
    Value::Object(present.collect::<Map<_, _>>())
}

/// The tool's own text about the failure.
fn complaint(result: &Value) -> String {
    let texts = result.get("content").and_then(Value::as_array);
    let texts: Vec<_> = texts
        .into_iter()
        .flatten()
        .take(MAX_PARTS)
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    match one_line(&texts.join("\n")) {
        nothing if nothing.is_empty() => "it failed, and does not say why".into(),
        complaint => complaint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_schema::Validator;

    fn checks(output: Option<Value>) -> Checks {
        Checks {
            arguments: Validator::new(&json!({})).unwrap(),
            output: output.map(|schema| Validator::new(&schema).unwrap()),
        }
    }

    #[test]
    fn every_kind_of_content_has_a_shape() {
        let text = |text: &str| json!({"type": "text", "text": text});
        for (content, expect) in [
            (json!([]), Value::Null),
            (json!([text("a")]), json!("a")),
            (json!([text("a"), text("b")]), json!(["a", "b"])),
            (
                json!([{"type": "image", "mimeType": "image/png", "data": "AAAA"}]),
                json!({"mime": "image/png", "base64": "AAAA"}),
            ),
            (
                json!([{"type": "resource", "resource": {"uri": "file:///a", "text": "t"}}]),
                json!({"uri": "file:///a", "text": "t"}),
            ),
            (
                json!([{"type": "resource", "resource": {"uri": "file:///a", "blob": "AA=="}}]),
                json!({"mime": "application/octet-stream", "base64": "AA=="}),
            ),
            (
                json!([{"type": "resource_link", "uri": "file:///a", "name": "a"}]),
                json!({"uri": "file:///a", "name": "a"}),
            ),
        ] {
            let result = json!({"content": content});
            assert_eq!(read(&result, &checks(None), 1_000), Ok(expect), "{content}");
        }
    }

    #[test]
    fn structured_content_is_held_to_its_schema() {
        let schema = || Some(json!({"type": "object", "required": ["n"]}));
        let with = |n: &str| json!({"content": [], "structuredContent": {n: 1}});
        assert_eq!(
            read(&with("n"), &checks(schema()), 100),
            Ok(json!({"n": 1}))
        );
        assert_eq!(read(&with("m"), &checks(None), 100), Ok(json!({"m": 1})));
        for wrong in [
            with("m"),
            json!({"content": [{"type": "text", "text": "{\"n\": 1}"}]}),
        ] {
            let failure = read(&wrong, &checks(schema()), 100).unwrap_err();
            assert_eq!(failure.kind(), "output_schema");
        }
    }

    #[test]
    fn unusable_result_is_refused_with_the_reason() {
        let mut deep = json!(1);
        for _ in 0..70 {
            deep = json!([deep]);
        }
        for (result, kind, part) in [
            (
                json!({"isError": true, "content": [{"type": "text", "text": "no such\u{202e}\ncity"}]}),
                "tool",
                "no such city",
            ),
            (json!({"isError": true}), "tool", "does not say why"),
            (json!({}), "output", "no content"),
            (
                json!({"content": [{"type": "video"}]}),
                "output",
                "\"video\"",
            ),
            (
                json!({"content": [{"type": "text"}]}),
                "output",
                "incomplete",
            ),
            (
                json!({"content": [{"type": "image", "data": "?"}]}),
                "output",
                "base64",
            ),
            (
                json!({"content": [{"type": "text", "text": "x".repeat(200)}]}),
                "output",
                "100 bytes",
            ),
            (
                json!({"structuredContent": {"x": deep}}),
                "output",
                "64 levels",
            ),
            (
                json!({"content": vec![json!({}); 2_000]}),
                "output",
                "1000 parts",
            ),
        ] {
            let failure = read(&result, &checks(None), 100).unwrap_err();
            assert_eq!(failure.kind(), kind, "{failure}");
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
