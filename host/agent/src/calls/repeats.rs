//! The guard against repetition: weak models make the same call again and again. The third
//! identical call with an identical result is not made, and the model receives the earlier result
//! (docs/security.md, row 28). After a call that may have changed something, calls that only read may have other results,
//! so their counts begin anew; and what lies outside (open world) changes by itself, so calls about it are not counted.
//! A call that was refused, and is made again in the same way, is remembered with its reason: a run does not go on with
//! it without end (docs/protocol.md, 7.8).
//!
//! Of arguments only a digest is kept: a reply may hold many calls, and each may be long.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Annotations;

/// Number of times a call is made with the same result before it is intercepted.
const MAX_IDENTICAL_CALLS: u32 = 2;

/// The calls of one run and their results.
#[derive(Debug, Default)]
pub struct Repeats {
    seen: HashMap<CallKey, SeenCall>,
}

#[derive(Debug)]
struct SeenCall {
    text: String,
    times: u32,
    reads_only: bool,
}

impl Repeats {
    /// The earlier result if this call was made often enough already.
    pub fn intercept(&self, call: &Call, arguments: &Value) -> Option<&str> {
        let seen = self.seen.get(&key(call, arguments))?;
        (seen.times >= MAX_IDENTICAL_CALLS).then_some(seen.text.as_str())
    }

    /// Remembers the text the model was given for a call of a tool with these annotations. A different result starts a new
    /// count.
    pub fn record(&mut self, call: &Call, arguments: &Value, text: &str, of_tool: Annotations) {
        if !of_tool.read_only {
            self.forget_reads();
        }
        if of_tool.open_world {
            return;
        }
        let new = || SeenCall {
            text: text.to_owned(),
            times: 0,
            reads_only: of_tool.read_only,
        };
        let seen = self.seen.entry(key(call, arguments)).or_insert_with(new);
        if seen.text != text {
            *seen = new();
        }
        seen.times += 1;
    }

    /// Something may have changed: what was read may be something else now.
    pub fn forget_reads(&mut self) {
        self.seen.retain(|_, seen| !seen.reads_only);
    }
}

/// The refused calls of one run.
#[derive(Debug, Default)]
pub struct Refusals {
    refused: HashMap<CallKey, Refusal>,
    /// How many calls were of use.
    useful: u64,
}

/// A call that was refused.
#[derive(Debug)]
pub struct Refusal {
    /// As it was recorded.
    pub message: String,
    /// The replies in which it was refused for this reason, since a call was of use.
    pub in_row: u32,
    /// The last step that was counted.
    step: u32,
    /// How many calls were of use until then.
    useful: u64,
}

impl Refusals {
    /// Remembers a refused call, and tells whether a step before had refused it for the same reason. Another
    /// reason starts a new count, and so does a call that was of use; the same call of the same step is counted once.
    pub fn record(&mut self, call: &Call, message: String, step: u32) -> bool {
        let new = Refusal {
            message,
            in_row: 1,
            step,
            useful: self.useful,
        };
        let refusal = match self.refused.entry(key(call, &call.arguments)) {
            Entry::Vacant(vacant) => {
                vacant.insert(new);
                return false;
            }
            Entry::Occupied(known) => known.into_mut(),
        };
        if refusal.message != new.message {
            *refusal = new;
            return false;
        }
        if refusal.step == step {
            return refusal.in_row > 1;
        }
        let in_row = if refusal.useful == new.useful {
            refusal.in_row.saturating_add(1)
        } else {
            1
        };
        *refusal = Refusal { in_row, ..new };
        true
    }

    /// A call was of use: the model makes progress, and this call is no longer one that is refused.
    pub fn was_useful(&mut self, call: &Call) {
        self.useful += 1;
        self.refused.remove(&key(call, &call.arguments));
    }

    /// How often a call was refused, if it was.
    pub fn of(&self, call: &Call) -> Option<&Refusal> {
        self.refused.get(&key(call, &call.arguments))
    }
}

/// The digest of what a call is.
type CallKey = [u8; 32];

/// Keys sorted: `{"a":1,"b":2}` and `{"b":2,"a":1}` are the same call. For another instance, or for
/// another place of its result, it is another call.
fn key(call: &Call, arguments: &Value) -> CallKey {
    let mut key = json!([call.tool, call.instance, call.output_path, arguments]);
    key.sort_all_objects();
    Sha256::digest(key.to_string()).into()
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

    const READS: Annotations = Annotations {
        read_only: true,
        idempotent: true,
        destructive: false,
        open_world: false,
        fire_and_forget: false,
    };
    const CHANGES: Annotations = Annotations {
        read_only: false,
        ..READS
    };

    #[test]
    fn the_third_identical_call_is_intercepted() {
        let mut repeats = Repeats::default();
        repeats.record(&call(), &json!({"a": 1, "b": 2}), "7", READS);
        assert_eq!(repeats.intercept(&call(), &json!({"a": 1, "b": 2})), None);
        repeats.record(&call(), &json!({"b": 2, "a": 1}), "7", READS);
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
            repeats.record(&call(), &json!({}), "7", READS);
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
    fn after_a_change_and_in_an_open_world_nothing_is_known() {
        let mut repeats = Repeats::default();
        let write = Call {
            tool: "write".into(),
            ..call()
        };
        for _ in 0..2 {
            repeats.record(&call(), &json!({}), "7", READS);
        }
        repeats.record(&write, &json!({}), "done", CHANGES);
        assert_eq!(repeats.intercept(&call(), &json!({})), None);
        // A change that is made again and again in the same way is a repetition itself.
        repeats.record(&call(), &json!({}), "7", READS);
        repeats.record(&write, &json!({}), "done", CHANGES);
        assert_eq!(repeats.intercept(&write, &json!({})), Some("done"));
        let open = Annotations {
            open_world: true,
            ..READS
        };
        for _ in 0..9 {
            repeats.record(&call(), &json!({"page": 1}), "busy", open);
            assert_eq!(repeats.intercept(&call(), &json!({"page": 1})), None);
        }
    }

    #[test]
    fn a_changing_result_is_polling_and_allowed() {
        let mut repeats = Repeats::default();
        for text in ["1", "2", "3", "4"] {
            repeats.record(&call(), &json!({}), text, READS);
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
        for (message, step, is_again, in_row) in [
            ("no", 1, false, 1),
            ("no", 1, false, 1),
            ("no", 2, true, 2),
            ("no", 2, true, 2),
            ("something else", 3, false, 1),
            ("something else", 5, true, 2),
        ] {
            assert_eq!(refusals.record(&call(), message.into(), step), is_again);
            assert_eq!(refusals.of(&call()).unwrap().in_row, in_row);
        }
        assert!(!refusals.record(&other, "no".into(), 5));
        // Progress begins the count anew, and the call is known to be refused all the same.
        refusals.was_useful(&other);
        assert!(refusals.of(&other).is_none());
        assert!(refusals.record(&call(), "something else".into(), 6));
        assert_eq!(refusals.of(&call()).unwrap().in_row, 1);
    }
}
