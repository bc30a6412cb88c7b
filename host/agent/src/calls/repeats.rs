//! The guard against repetition: weak models make the same call again and again. The third
//! identical call with an identical result is refused with this reason (docs/security.md, row 28).
//!
//! After a call that may have changed something, all other calls may have other results: their counts begin anew.
//! A call changes nothing if its tool says that it only reads, and if the tools that it called say so too.
//! An open world changes by itself, so calls about it are not counted.
//! A call that may change something may also ask whether something is ready: each third one is held back for the step, and is
//! made when the model makes it again in a later one. So is a call that reads while another one may change something in the
//! background. Such a call begins the counts anew when it begins and when it ends, and not while it runs.
//!
//! A call that was refused, and is made again in the same way, is remembered with its reason: a run does not go on with
//! it without end (docs/protocol.md, 7.8).
//!
//! Of arguments only a digest is kept: a reply may hold many calls, and each may be long.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Annotations;

/// Number of times a call is made with the same result before it is intercepted.
pub(super) const MAX_IDENTICAL_CALLS: u32 = 2;

/// The calls of one run and their results.
#[derive(Debug, Default)]
pub struct Repeats {
    /// In records before format 5, calls of tools that may have effects keep their counts until the end of the run.
    rules: ReadingRules,
    seen: HashMap<CallKey, SeenCall>,
}

#[derive(Debug)]
struct SeenCall {
    text: String,
    times: u32,
    /// True if the call changed nothing, as its tool says, and the tools that it called.
    reads_only: bool,
    /// The step in which it is held back. The first call of a later one is made.
    held_in: Option<u32>,
}

/// The moment at which a call is judged, or has ended.
#[derive(Debug, Clone, Copy)]
pub struct CallMoment {
    pub step: u32,
    /// True if a call that runs may change something while others end.
    pub may_change: bool,
}

/// A call that was made often enough already, with the same result each time.
#[derive(Debug, PartialEq, Eq)]
pub struct Repetition<'a> {
    /// The text that the model was given for the last of them.
    pub earlier: &'a str,
    /// True if no call that may have changed something was made since the first of them, these calls included.
    pub reads_only: bool,
}

impl Repeats {
    /// No calls yet, of a run under these rules.
    pub fn under(rules: ReadingRules) -> Self {
        Self {
            rules,
            seen: HashMap::new(),
        }
    }

    /// The calls before this one, if there were enough of them already.
    pub fn intercept(
        &self,
        call: &Call,
        arguments: &Value,
        at: CallMoment,
    ) -> Option<Repetition<'_>> {
        let seen = self.seen.get(&key(call, arguments))?;
        let is_held = match seen.held_in {
            Some(step) => step == at.step,
            None => seen.times >= MAX_IDENTICAL_CALLS,
        };
        is_held.then_some(Repetition {
            earlier: &seen.text,
            reads_only: seen.reads_only && !at.may_change,
        })
    }

    /// Notes that the call was intercepted. If something may change, by this call or by another one, it is made again in a
    /// later step: it may be one that asks until something is ready.
    pub fn held_back(&mut self, call: &Call, arguments: &Value, at: CallMoment) {
        if self.rules.are_from_5()
            && let Some(seen) = self.seen.get_mut(&key(call, arguments))
            && (!seen.reads_only || at.may_change)
        {
            seen.held_in = Some(at.step);
        }
    }

    /// Remembers the text the model was given for a call of a tool with these annotations. A different result starts a new
    /// count, and so does a call that was held back in an earlier step. `calls_change`: a call that it made may have changed
    /// something.
    pub fn record(
        &mut self,
        call: &Call,
        arguments: &Value,
        text: &str,
        of_tool: Annotations,
        calls_change: bool,
        at: CallMoment,
    ) {
        let own = key(call, arguments);
        let reads_only = of_tool.read_only && !calls_change;
        if !reads_only {
            if self.rules.are_from_5() {
                self.seen.retain(|other, _| *other == own);
            } else {
                self.seen.retain(|_, seen| !seen.reads_only);
            }
        }
        if of_tool.open_world {
            return;
        }
        let new = || SeenCall {
            text: text.to_owned(),
            times: 0,
            reads_only,
            held_in: None,
        };
        let seen = self.seen.entry(own).or_insert_with(new);
        if seen.text != text {
            *seen = new();
        }
        if seen.held_in.take_if(|step| *step != at.step).is_some() {
            seen.times = 0;
        }
        seen.times += 1;
        seen.reads_only &= reads_only;
    }

    /// Something may have changed: each call may have another result now.
    pub fn forget(&mut self) {
        if self.rules.are_from_5() {
            self.seen.clear();
        } else {
            self.seen.retain(|_, seen| !seen.reads_only);
        }
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

    fn of(tool: &str) -> Call {
        Call {
            tool: tool.into(),
            ..call()
        }
    }

    fn step(step: u32) -> CallMoment {
        CallMoment {
            step,
            may_change: false,
        }
    }

    /// Records `times` calls of a tool without arguments, in the first step.
    fn made(repeats: &mut Repeats, call: &Call, times: u32, text: &str, tool: Annotations) {
        for _ in 0..times {
            repeats.record(call, &json!({}), text, tool, false, step(1));
        }
    }

    fn is_intercepted(repeats: &Repeats, call: &Call) -> bool {
        repeats.intercept(call, &json!({}), step(1)).is_some()
    }

    #[test]
    fn the_third_identical_call_is_intercepted() {
        let mut repeats = Repeats::default();
        let (one, other) = (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}));
        repeats.record(&call(), &one, "7", READS, false, step(1));
        assert_eq!(repeats.intercept(&call(), &one, step(1)), None);
        repeats.record(&call(), &other, "7", READS, false, step(1));
        let expected = Repetition {
            earlier: "7",
            reads_only: true,
        };
        assert_eq!(repeats.intercept(&call(), &one, step(1)), Some(expected));
        let another = json!({"a": 1});
        assert_eq!(repeats.intercept(&call(), &another, step(1)), None);
    }

    #[test]
    fn for_another_instance_or_place_it_is_another_call() {
        let mut repeats = Repeats::default();
        made(&mut repeats, &call(), 2, "7", READS);
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
            assert!(!is_intercepted(&repeats, &other), "{other:?}");
        }
        assert!(is_intercepted(&repeats, &call()));
    }

    #[test]
    fn after_a_change_and_in_an_open_world_nothing_is_known() {
        for read in [READS, CHANGES] {
            let mut repeats = Repeats::default();
            made(&mut repeats, &of("read"), 2, "7", read);
            made(&mut repeats, &of("write"), 1, "done", CHANGES);
            assert!(!is_intercepted(&repeats, &of("read")));
            // A change that is made again and again in the same way is a repetition itself.
            made(&mut repeats, &of("write"), 1, "done", CHANGES);
            assert!(is_intercepted(&repeats, &of("write")));
        }
        let mut repeats = Repeats::default();
        let open = Annotations {
            open_world: true,
            ..READS
        };
        for _ in 0..9 {
            made(&mut repeats, &call(), 1, "busy", open);
            assert!(!is_intercepted(&repeats, &call()));
        }
    }

    #[test]
    fn a_call_that_may_have_effects_is_held_back_for_a_step_and_made_again() {
        let none = json!({});
        for (tool, may_change) in [(CHANGES, false), (READS, true), (READS, false)] {
            let at = |step: u32| CallMoment { step, may_change };
            let mut repeats = Repeats::default();
            made(&mut repeats, &call(), 2, "busy", tool);
            repeats.held_back(&call(), &none, at(3));
            // All of them in that step.
            assert!(repeats.intercept(&call(), &none, at(3)).is_some());
            let is_held = repeats.intercept(&call(), &none, at(4)).is_some();
            assert_eq!(is_held, tool.read_only && !may_change);
            if is_held {
                continue;
            }
            // One that ran in the step of the held one was made before it.
            repeats.record(&call(), &none, "busy", tool, false, at(3));
            assert!(repeats.intercept(&call(), &none, at(3)).is_some());
            // The count begins anew in a later step.
            for made in 1..=2 {
                assert!(repeats.intercept(&call(), &none, at(4)).is_none(), "{made}");
                repeats.record(&call(), &none, "busy", tool, false, at(4));
            }
            let repetition = repeats.intercept(&call(), &none, at(4));
            assert!(repetition.is_some_and(|it| !it.reads_only));
        }
    }

    #[test]
    fn calls_of_a_call_that_change_something_are_its_own_changes() {
        let mut repeats = Repeats::default();
        made(&mut repeats, &of("read"), 2, "7", READS);
        repeats.record(&of("asks"), &json!({}), "done", READS, true, step(1));
        assert!(!is_intercepted(&repeats, &of("read")));
        repeats.record(&of("asks"), &json!({}), "done", READS, false, step(1));
        let repetition = repeats.intercept(&of("asks"), &json!({}), step(1));
        assert!(repetition.is_some_and(|it| !it.reads_only));
        repeats.forget();
        assert!(!is_intercepted(&repeats, &of("asks")));
    }

    #[test]
    fn records_before_format_5_keep_the_counts_of_calls_that_may_have_effects() {
        for rules in [ReadingRules::Format3, ReadingRules::Format4] {
            let mut repeats = Repeats::under(rules);
            made(&mut repeats, &of("recall"), 2, "one", CHANGES);
            made(&mut repeats, &of("read"), 2, "7", READS);
            made(&mut repeats, &of("remember"), 1, "done", CHANGES);
            repeats.held_back(&of("recall"), &json!({}), step(1));
            let recalled = repeats.intercept(&of("recall"), &json!({}), step(2));
            assert!(recalled.is_some());
            assert!(!is_intercepted(&repeats, &of("read")));
        }
    }

    #[test]
    fn a_changing_result_is_polling_and_allowed() {
        let mut repeats = Repeats::default();
        for text in ["1", "2", "3", "4"] {
            made(&mut repeats, &call(), 1, text, READS);
            assert!(!is_intercepted(&repeats, &call()));
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
