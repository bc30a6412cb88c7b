//! Members of a reply outside of its calls that were not read, and may hold the arguments of one.

use super::call_forms::{LISTS, name_of};
use crate::call_arguments::{ARGUMENT_MEMBERS, UnreadMembers, is_schema};
use crate::tool_calls::ToolCalls;
use serde_json::Value;
use std::collections::BTreeSet;
use toolhold_intake::json::parse;

/// Members of a delta with a piece of the arguments of the latest call.
pub(super) const STREAMED: [&str; 4] = ["arguments", "args", "input", "partial_json"];
/// Names that are remembered of one reply.
const MAX_NAMES: usize = 64;
/// Levels of a member of a chunk in which a call is looked for.
const CALL_LEVELS: usize = 4;
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
    /// Looks at the members of a delta, a message or a choice that are not `known`. `calls`: those that have begun.
    pub(super) fn look(
        &mut self,
        object: &Value,
        known: &[&str],
        calls: &ToolCalls,
    ) -> UnreadMembers {
        let members = self.unknown(object, known, calls);
        let kinds = members.into_iter().map(|(name, _)| kind_of(name));
        kinds.max().unwrap_or_default()
    }

    /// Looks at those of a chunk. What servers and proxies tell of the request and of themselves stands there, under any
    /// name, so only a call says that arguments may be elsewhere.
    pub(super) fn look_at_chunk(
        &mut self,
        chunk: &Value,
        known: &[&str],
        calls: &ToolCalls,
    ) -> UnreadMembers {
        let members = self.unknown(chunk, known, calls);
        let kinds = members.into_iter().map(|(name, value)| {
            if LISTS.contains(&name) {
                UnreadMembers::Arguments
            } else if holds_call(value, calls, CALL_LEVELS) {
                UnreadMembers::Unknown
            } else {
                UnreadMembers::None
            }
        });
        kinds.max().unwrap_or_default()
    }

    /// Members that may hold arguments of a call. Names that come before any call are remembered, and are none of these.
    fn unknown<'a>(
        &mut self,
        object: &'a Value,
        known: &[&str],
        calls: &ToolCalls,
    ) -> Vec<(&'a str, &'a Value)> {
        let members = object.as_object().into_iter().flatten();
        let members = members.map(|(name, value)| (name.as_str(), value));
        let members = members.filter(|(name, value)| {
            !known.contains(name) && !HARMLESS.contains(name) && may_hold(value)
        });
        if calls.is_empty() {
            for (name, _) in members {
                if self.before.len() < MAX_NAMES {
                    self.before.insert(name.to_owned());
                }
            }
            return Vec::new();
        }
        members
            .filter(|(name, _)| !self.before.contains(*name))
            .collect()
    }
}

/// Whether a value is a call, or has one in its first `levels`.
fn holds_call(value: &Value, calls: &ToolCalls, levels: usize) -> bool {
    let inner = |value: &Value| levels > 0 && holds_call(value, calls, levels.saturating_sub(1));
    if is_call(value, calls) {
        return true;
    }
    match value {
        Value::Array(items) => items.iter().any(inner),
        Value::Object(members) => members.values().any(inner),
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            parse(text).is_ok_and(|value| inner(&value))
        }
        _ => false,
    }
}

/// Whether a value has the name of a function and arguments, or a name that the request offers. The definition of a function
/// has that, too, and its schema.
fn is_call(value: &Value, calls: &ToolCalls) -> bool {
    let Some(name) = name_of(value) else {
        return false;
    };
    let inner = value.get("function").filter(|inner| inner.is_object());
    let function = inner.unwrap_or(value);
    let schemas = ["parameters", "input_schema"].map(|name| function.get(name));
    let is_definition = schemas.into_iter().flatten().any(is_schema);
    function.get("arguments").is_some() || (calls.offers(name) && !is_definition)
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
    use crate::offered::OfferedFunction;
    use serde_json::json;

    /// An answer that has a call of the function that the request offers.
    fn one_call() -> ToolCalls {
        let schema = json!({"properties": {"text": {}}});
        let mut calls = ToolCalls::offering(vec![OfferedFunction::new("echo", &schema)]);
        let call = json!({"name": "echo", "arguments": ""});
        calls.push(&call, &mut |_| {}).unwrap();
        calls
    }

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
            let found = StrayMembers::default().look(&members, &[], &one_call());
            assert_eq!(found, expected, "{members}");
        }
    }

    #[test]
    fn a_name_that_came_before_any_call_is_no_place_of_arguments() {
        let mut strays = StrayMembers::default();
        let (none, one) = (ToolCalls::default(), one_call());
        let delta = json!({"vendor": {"latency": 7}});
        assert_eq!(strays.look(&delta, &[], &none), UnreadMembers::None);
        assert_eq!(strays.look(&delta, &[], &one), UnreadMembers::None);
        let other = json!({"vendor": {}, "own": {"latency": 7}});
        assert_eq!(strays.look(&other, &[], &one), UnreadMembers::Unknown);
    }

    #[test]
    fn a_member_of_a_chunk_bars_only_where_it_has_a_call() {
        use UnreadMembers::{Arguments, None, Unknown};
        let text = json!({"name": "echo", "arguments": "{}"}).to_string();
        let definition =
            json!({"name": "echo", "parameters": {"type": "object", "properties": {}}});
        for (members, expected) in [
            (json!({"parameters": {"temperature": 1}}), None),
            (json!({"input": [{"role": "user", "content": "go"}]}), None),
            (json!({"hook_results": {"before": [{"x": 1}]}}), None),
            (json!({"model_info": {"name": "m", "arch": "q"}}), None),
            (
                json!({"tools": [{"type": "function", "function": definition}]}),
                None,
            ),
            (
                json!({"vendor": {"calls": [{"name": "other", "arguments": {}}]}}),
                Unknown,
            ),
            (
                json!({"vendor": {"call": {"function": {"name": "echo", "payload": {}}}}}),
                Unknown,
            ),
            (json!({"vendor": text}), Unknown),
            (
                json!({"a": {"b": {"c": {"d": {"e": {"f": {"name": "echo"}}}}}}}),
                None,
            ),
            (
                json!({"function_call": {"arguments": "{\"a\":1}"}}),
                Arguments,
            ),
        ] {
            let found = StrayMembers::default().look_at_chunk(&members, &[], &one_call());
            assert_eq!(found, expected, "{members}");
        }
    }
}
