//! Weak models make the same call again and again. The third identical call with an identical
//! result is not made: the model is told what it already knows (THREATS.md, row 28).

use serde_json::Value;
use std::collections::HashMap;

/// A call is made this often with the same result before it is intercepted.
const ALLOWED: u32 = 2;

/// What was called with which result, in one run.
#[derive(Debug, Default)]
pub struct Repeats {
    seen: HashMap<String, Seen>,
}

#[derive(Debug)]
struct Seen {
    text: String,
    times: u32,
}

impl Repeats {
    /// The earlier result if this call was made often enough already.
    pub fn intercept(&self, tool: &str, instance: Option<&str>, arguments: &Value) -> Option<&str> {
        let seen = self.seen.get(&key(tool, instance, arguments))?;
        (seen.times >= ALLOWED).then_some(seen.text.as_str())
    }

    /// Remembers the text the model was given for a call. A different result starts a new count.
    pub fn record(&mut self, tool: &str, instance: Option<&str>, arguments: &Value, text: &str) {
        let seen = self
            .seen
            .entry(key(tool, instance, arguments))
            .or_insert_with(|| Seen {
                text: text.to_owned(),
                times: 0,
            });
        if seen.text != text {
            *seen = Seen {
                text: text.to_owned(),
                times: 0,
            };
        }
        seen.times += 1;
    }
}

/// Keys sorted: `{"a":1,"b":2}` and `{"b":2,"a":1}` are the same call. Equal calls of two instances
/// are not: neither is told what the other's came to (PROTOCOL.md, 9).
fn key(tool: &str, instance: Option<&str>, arguments: &Value) -> String {
    let mut sorted = serde_json::json!([tool, instance, arguments]);
    sorted.sort_all_objects();
    sorted.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_third_identical_call_is_intercepted() {
        let mut repeats = Repeats::default();
        repeats.record("t", None, &json!({"a": 1, "b": 2}), "7");
        assert_eq!(repeats.intercept("t", None, &json!({"a": 1, "b": 2})), None);
        repeats.record("t", None, &json!({"b": 2, "a": 1}), "7");
        assert_eq!(
            repeats.intercept("t", None, &json!({"a": 1, "b": 2})),
            Some("7")
        );
        assert_eq!(repeats.intercept("t", None, &json!({"a": 1})), None);
    }

    #[test]
    fn equal_calls_of_two_instances_are_two_calls() {
        let mut repeats = Repeats::default();
        for _ in 0..2 {
            repeats.record("t", Some("a"), &json!({}), "secret of a");
        }
        assert_eq!(
            repeats.intercept("t", Some("a"), &json!({})),
            Some("secret of a")
        );
        assert_eq!(repeats.intercept("t", Some("b"), &json!({})), None);
        assert_eq!(repeats.intercept("t", None, &json!({})), None);
    }

    #[test]
    fn a_changing_result_is_polling_and_allowed() {
        let mut repeats = Repeats::default();
        for text in ["1", "2", "3", "4"] {
            repeats.record("t", None, &json!({}), text);
            assert_eq!(repeats.intercept("t", None, &json!({})), None);
        }
    }
}
