//! Members of a reply outside of its calls that were not read, and may hold the arguments of one.

use super::call_forms::LISTS;
use crate::call_arguments::{ARGUMENT_MEMBERS, UnreadMembers};
use serde_json::Value;
use std::collections::BTreeSet;

/// Members of a delta with a piece of the arguments of the latest call.
pub(super) const STREAMED: [&str; 4] = ["arguments", "args", "input", "partial_json"];
/// Names that are remembered of one reply.
const MAX_NAMES: usize = 64;
/// Members that say nothing of a call, although their values are objects or lists.
const HARMLESS: &[&str] = &[
    "__verbose",
    "annotations",
    "audio",
    "citations",
    "content_filter_offsets",
    "content_filter_raw",
    "content_filter_result",
    "content_filter_results",
    "debug_output",
    "executed_tools",
    "extra_fields",
    "finish_details",
    "grounding_metadata",
    "groundingMetadata",
    "guardrails",
    "hidden_states",
    "images",
    "kv_transfer_params",
    "logprobs",
    "meta",
    "metadata",
    "metrics",
    "moderation",
    "nvext",
    "perf_metrics",
    "prompt_annotations",
    "prompt_filter_results",
    "prompt_logprobs",
    "prompt_token_ids",
    "provider_metadata",
    "provider_specific_fields",
    "related_questions",
    "safety_ratings",
    "search_info",
    "search_results",
    "sglext",
    "stats",
    "time_info",
    "timings",
    "token_ids",
    "tool_results",
    "trace",
    "usage_breakdown",
    "usage_metadata",
    "warnings",
    "web_search",
    "x_groq",
];

/// The members of one reply that were not read.
#[derive(Debug, Default)]
pub(super) struct StrayMembers {
    /// Names that came before any call, and so have no arguments.
    before: BTreeSet<String>,
}

impl StrayMembers {
    /// Looks at the members of an object that are not `known`. `has_call`: a call has begun.
    pub(super) fn look(&mut self, object: &Value, known: &[&str], has_call: bool) -> UnreadMembers {
        let members = object.as_object().into_iter().flatten();
        let members = members.filter(|(name, value)| {
            let name = name.as_str();
            !known.contains(&name) && !HARMLESS.contains(&name) && may_hold(value)
        });
        let mut unread = UnreadMembers::None;
        for (name, _) in members {
            if !has_call {
                if self.before.len() < MAX_NAMES {
                    self.before.insert(name.clone());
                }
            } else if !self.before.contains(name) {
                unread = unread.max(kind_of(name));
            }
        }
        unread
    }
}

fn kind_of(name: &str) -> UnreadMembers {
    if [LISTS, ARGUMENT_MEMBERS].as_flattened().contains(&name) {
        UnreadMembers::Arguments
    } else {
        UnreadMembers::Unknown
    }
}

/// Whether a value may hold arguments: an object, or JSON as text.
fn may_hold(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => items.iter().any(may_hold),
        Value::String(text) => text.trim_start().starts_with('{'),
        _ => false,
    }
}

/// Looks at a choice that is not the answer. No other one was asked for, so a call in it may be a piece of the answer's.
pub(super) fn in_other_choice(choice: &Value) -> UnreadMembers {
    let parts = [Some(choice), choice.get("delta"), choice.get("message")];
    let members = parts.into_iter().flatten().filter_map(Value::as_object);
    let has_call = members
        .flatten()
        .any(|(name, value)| kind_of(name) == UnreadMembers::Arguments && may_hold(value));
    if has_call {
        UnreadMembers::Arguments
    } else {
        UnreadMembers::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_servers_are_known_to_send_say_nothing() {
        use UnreadMembers::{Arguments, None, Unknown};
        for (members, expected) in [
            (
                json!({"x_groq": {"id": "a"}, "system_fingerprint": "f"}),
                None,
            ),
            (
                json!({"latency": 7, "note": "words", "ids": [1, 2], "of": {}, "is": true}),
                None,
            ),
            (
                json!({"timings": {"predicted_n": 7}, "content_filter_results": {"hate": {}}}),
                None,
            ),
            (json!({"payload": {"a": 1}}), Unknown),
            (json!({"payload": "{\"a\":1}"}), Unknown),
            (json!({"payloads": ["{\"a\":1}"]}), Unknown),
            (json!({"arguments": "{\"a\":1}"}), Arguments),
        ] {
            let found = StrayMembers::default().look(&members, &[], true);
            assert_eq!(found, expected, "{members}");
        }
    }

    #[test]
    fn a_name_that_came_before_any_call_is_no_place_of_arguments() {
        let mut strays = StrayMembers::default();
        let chunk = json!({"vendor": {"latency": 7}});
        assert_eq!(strays.look(&chunk, &[], false), UnreadMembers::None);
        assert_eq!(strays.look(&chunk, &[], true), UnreadMembers::None);
        let other = json!({"vendor": {}, "own": {"latency": 7}});
        assert_eq!(strays.look(&other, &[], true), UnreadMembers::Unknown);
    }
}
