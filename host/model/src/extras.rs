//! Fields of an answer that this client has no meaning for, kept for callers that have one.

use serde_json::{Map, Value};

/// Fields that are kept of one answer: vendors add a handful.
const MAX_FIELDS: usize = 32;
/// Bytes of one field as JSON. Counts and ids fit; token by token probabilities of a long answer would
/// multiply its size in every record.
const MAX_FIELD_BYTES: usize = 4 << 10;

/// The extras of one answer. A field that comes again replaces what it was.
#[derive(Debug, Default)]
pub(crate) struct Extras(Map<String, Value>);

impl Extras {
    /// Keeps the fields of `object` that are not `known`. `null` and what is empty say nothing.
    pub(crate) fn keep(&mut self, object: &Value, known: &[&str]) {
        let fields = object.as_object().into_iter().flatten();
        for (name, value) in fields.filter(|(name, _)| !known.contains(&name.as_str())) {
            let is_kept = self.0.get(name);
            let is_full = is_kept.is_none() && self.0.len() == MAX_FIELDS;
            if is_full || says_nothing(value) || is_kept == Some(value) {
                continue;
            }
            if name.len() + value.to_string().len() <= MAX_FIELD_BYTES {
                self.0.insert(name.clone(), value.clone());
            }
        }
    }

    pub(crate) fn finish(self) -> Map<String, Value> {
        self.0
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_kept_with_their_last_value() {
        let mut extras = Extras::default();
        extras.keep(
            &json!({"id": "a", "fingerprint": "f1", "empty": null}),
            &["id"],
        );
        extras.keep(
            &json!({"fingerprint": "f2", "stop_reason": 7, "none": []}),
            &[],
        );
        let expected = json!({"fingerprint": "f2", "stop_reason": 7});
        assert_eq!(Value::Object(extras.finish()), expected);
    }

    #[test]
    fn neither_their_number_nor_their_size_is_unbounded() {
        let mut extras = Extras::default();
        for n in 0..1000 {
            extras.keep(&json!({format!("f{n}"): n}), &[]);
        }
        extras.keep(&json!({"f1": "x".repeat(10_000)}), &[]);
        let kept = extras.finish();
        assert_eq!(kept.len(), MAX_FIELDS);
        assert_eq!(kept["f1"], 1);
    }
}
