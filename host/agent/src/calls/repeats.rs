//! The guard against repetition: weak models make the same call again and again. The third
//! identical call with an identical result is not made, and the model receives the earlier result
//! (docs/security.md, row 28).

use serde_json::{Value, json};
use std::collections::HashMap;
use toolhold_protocol::solution::Call;

/// Number of times a call is made with the same result before it is intercepted.
const MAX_IDENTICAL_CALLS: u32 = 2;

/// The calls of one run and their results.
#[derive(Debug, Default)]
pub struct Repeats {
    seen: HashMap<String, SeenCall>,
}

#[derive(Debug)]
struct SeenCall {
    text: String,
    times: u32,
}

impl Repeats {
    /// The earlier result if this call was made often enough already.
    pub fn intercept(&self, call: &Call, arguments: &Value) -> Option<&str> {
        let seen = self.seen.get(&key(call, arguments))?;
        (seen.times >= MAX_IDENTICAL_CALLS).then_some(seen.text.as_str())
    }

    /// Remembers the text the model was given for a call. A different result starts a new count.
    pub fn record(&mut self, call: &Call, arguments: &Value, text: &str) {
        let seen = self
            .seen
            .entry(key(call, arguments))
            .or_insert_with(|| SeenCall {
                text: text.to_owned(),
                times: 0,
            });
        if seen.text != text {
            *seen = SeenCall {
                text: text.to_owned(),
                times: 0,
            };
        }
        seen.times += 1;
    }
}

/// Keys sorted: `{"a":1,"b":2}` and `{"b":2,"a":1}` are the same call. For another instance, or for
/// another place of its result, it is another call.
fn key(call: &Call, arguments: &Value) -> String {
    let mut key = json!([call.tool, call.instance, call.output_path, arguments]);
    key.sort_all_objects();
    key.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call {
            tool: "t".into(),
            ..Call::default()
        }
    }

    #[test]
    fn the_third_identical_call_is_intercepted() {
        let mut repeats = Repeats::default();
        repeats.record(&call(), &json!({"a": 1, "b": 2}), "7");
        assert_eq!(repeats.intercept(&call(), &json!({"a": 1, "b": 2})), None);
        repeats.record(&call(), &json!({"b": 2, "a": 1}), "7");
        assert_eq!(
            repeats.intercept(&call(), &json!({"a": 1, "b": 2})),
            Some("7")
        );
        assert_eq!(repeats.intercept(&call(), &json!({"a": 1})), None);
    }

    #[test]
    fn for_another_instance_or_place_it_is_another_call() {
        let mut repeats = Repeats::default();
        for _ in 0..2 {
            repeats.record(&call(), &json!({}), "7");
        }
        let elsewhere = [
            Call {
                instance: Some("i".into()),
                ..call()
            },
            Call {
                output_path: Some("†state.x".into()),
                ..call()
            },
        ];
        for other in elsewhere {
            assert_eq!(repeats.intercept(&other, &json!({})), None, "{other:?}");
        }
        assert!(repeats.intercept(&call(), &json!({})).is_some());
    }

    #[test]
    fn a_changing_result_is_polling_and_allowed() {
        let mut repeats = Repeats::default();
        for text in ["1", "2", "3", "4"] {
            repeats.record(&call(), &json!({}), text);
            assert_eq!(repeats.intercept(&call(), &json!({})), None);
        }
    }
}
