//! The guard against repetition: weak models make the same call again and again. The third
//! identical call with an identical result is not made, and the model receives the earlier result
//! (docs/security.md, row 28). A call that was refused, and is made again in the same way, is remembered with
//! its reason: a run does not go on with it without end (docs/protocol.md, 7.8).

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

/// The refused calls of one run.
#[derive(Debug, Default)]
pub struct Refusals {
    refused: HashMap<String, Refusal>,
}

/// A call that was refused, and how often for the same reason.
#[derive(Debug)]
pub struct Refusal {
    pub message: String,
    pub times: u32,
    /// The last step that was counted.
    step: u32,
}

impl Refusals {
    /// Remembers a refused call, and tells whether a step before had refused it for the same reason. Another
    /// reason starts a new count; the same call of the same step is counted once.
    pub fn record(&mut self, call: &Call, message: &str, step: u32) -> bool {
        let refusal = self
            .refused
            .entry(key(call, &call.arguments))
            .or_insert_with(|| Refusal {
                message: String::new(),
                times: 0,
                step,
            });
        if refusal.message != message {
            message.clone_into(&mut refusal.message);
            refusal.times = 0;
        }
        if refusal.times == 0 || refusal.step != step {
            refusal.step = step;
            refusal.times += 1;
        }
        refusal.times > 1
    }

    /// How often a call was refused, if it was.
    pub fn of(&self, call: &Call) -> Option<&Refusal> {
        self.refused.get(&key(call, &call.arguments))
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

    #[test]
    fn a_refused_call_is_counted_once_a_step_and_reason() {
        let mut refusals = Refusals::default();
        let other = Call {
            arguments: json!({"a": 1}),
            ..call()
        };
        assert!(refusals.of(&call()).is_none());
        for (message, step, is_again, times) in [
            ("no", 1, false, 1),
            ("no", 1, false, 1),
            ("no", 2, true, 2),
            ("something else", 3, false, 1),
            ("something else", 5, true, 2),
        ] {
            assert_eq!(refusals.record(&call(), message, step), is_again);
            assert_eq!(refusals.of(&call()).unwrap().times, times);
        }
        assert!(!refusals.record(&other, "no", 5));
    }
}
