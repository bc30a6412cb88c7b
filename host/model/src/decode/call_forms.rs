//! The places of calls in a delta or a message, and the forms of their lists: a list, one call, or the JSON of them as text.

use crate::call_arguments::ARGUMENT_MEMBERS;
use crate::tool_calls::ToolCalls;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use toolhold_intake::json::parse;

/// Members with calls. The first one that has some counts: others repeat it.
pub(super) const LISTS: [&str; 4] = [
    "tool_calls",
    "tool_call",
    "tool_call_chunks",
    "function_call",
];
/// Types of the parts of a content that are calls, or pieces of their arguments.
const PARTS: [&str; 2] = ["tool_use", "input_json_delta"];
/// The member of a call that has its name and its arguments.
const FUNCTION: &str = "function";

/// A place of calls in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPlace {
    /// This member of a delta or a message.
    Member(&'static str),
    /// The parts of a content.
    Part,
    /// A choice, beside its delta or its message.
    Choice,
    /// A chunk, beside its choices.
    Chunk,
}

/// The calls in a delta or a message, each as an object, and their place. `so_far`: those that came before.
pub(super) fn calls_in<'a>(
    delta: &'a Value,
    so_far: &ToolCalls,
) -> (CallPlace, Vec<Cow<'a, Value>>) {
    let [first, ..] = LISTS;
    let found = LISTS.into_iter().find_map(|name| {
        let calls = listed(delta.get(name)?, so_far);
        (!calls.is_empty()).then_some((CallPlace::Member(name), calls))
    });
    found.unwrap_or((CallPlace::Member(first), Vec::new()))
}

/// Removes the calls of a message.
pub(super) fn remove(message: &mut Map<String, Value>) {
    for name in LISTS {
        message.shift_remove(name);
    }
    if let Some(Value::Array(parts)) = message.get_mut("content") {
        parts.retain(|part| !is_tool_use(part));
    }
}

/// The parts of a delta's content that are calls.
pub(super) fn tool_uses(delta: &Value) -> impl Iterator<Item = &Value> {
    let parts = delta.get("content").and_then(Value::as_array);
    parts.into_iter().flatten().filter(|part| is_tool_use(part))
}

fn is_tool_use(part: &Value) -> bool {
    let kind = part.get("type").and_then(Value::as_str);
    kind.is_some_and(|kind| PARTS.contains(&kind))
}

/// The arguments in a part of the content, or a piece of them.
pub(super) fn input_of(part: &Value) -> Option<&Value> {
    let names = ["partial_json", "input", "arguments"];
    names.into_iter().find_map(|name| part.get(name))
}

/// The name in a call.
pub(super) fn name_of(call: &Value) -> Option<&str> {
    let function = call.get(FUNCTION).filter(|inner| inner.is_object());
    let name = function.unwrap_or(call).get("name")?.as_str()?;
    (!name.is_empty()).then_some(name)
}

/// The calls of a list, each as an object. `so_far`: those that came before.
pub(super) fn listed<'a>(calls: &'a Value, so_far: &ToolCalls) -> Vec<Cow<'a, Value>> {
    let says_something = |call: &&Value| call.as_str().is_none_or(|text| may_be(text, so_far));
    match calls {
        Value::Array(calls) => {
            let calls = calls.iter().filter(says_something);
            calls.map(call_of).collect()
        }
        Value::Object(_) => vec![call_of(calls)],
        Value::String(text) if may_be(text, so_far) => match parse(text) {
            Ok(Value::Array(calls)) => {
                let calls = calls.iter().filter(says_something).map(call_of);
                calls.map(|call| Cow::Owned(call.into_owned())).collect()
            }
            _ => vec![Cow::Owned(of_text(text))],
        },
        _ => Vec::new(),
    }
}

/// Whether a text in the place of a call may be one, or a piece of the arguments of the latest. Some servers write a word
/// there where there is none (`null`, `none`, `auto`).
fn may_be(text: &str, so_far: &ToolCalls) -> bool {
    let is_around = |c: char| c == '"' || c.is_whitespace();
    let inner = text.trim_matches(is_around);
    let is_word = || !inner.is_empty() && inner.chars().all(|c| c.is_alphabetic() || c == '_');
    if text.trim().is_empty() {
        return false;
    }
    inner.starts_with(['{', '['])
        || so_far.is_last_within()
        || (so_far.is_last_open() && !is_word())
}

fn call_of(call: &Value) -> Cow<'_, Value> {
    match call {
        Value::String(text) => Cow::Owned(of_text(text)),
        Value::Object(members) => match members.get(FUNCTION) {
            Some(Value::String(function)) => Cow::Owned(with_text(members, function)),
            Some(Value::Array(functions)) => Cow::Owned(with_list(members, functions)),
            _ => Cow::Borrowed(call),
        },
        _ => Cow::Borrowed(call),
    }
}

/// A call that is a text: all of it, or a piece of its arguments.
fn of_text(text: &str) -> Value {
    match parse(text) {
        Ok(call) if call.get(FUNCTION).is_some() || is_function(&call) => call,
        _ => json!({"function": {"arguments": text}}),
    }
}

/// Whether an object has the members of a function, and is not its arguments alone.
fn is_function(value: &Value) -> bool {
    let has = |name: &str| value.get(name).is_some();
    has("arguments") || (has("name") && ARGUMENT_MEMBERS.iter().any(|name| has(name)))
}

/// A call whose function is a text: its name, all of it, or a piece of its arguments.
fn with_text(call: &Map<String, Value>, function: &str) -> Value {
    let mut call = call.clone();
    let is_of_name = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    if function.chars().all(is_of_name) {
        call.shift_remove(FUNCTION);
        if !call.contains_key("name") {
            call.insert("name".to_owned(), function.into());
        }
        return Value::Object(call);
    }
    let function = match parse(function) {
        Ok(inner) if is_function(&inner) => inner,
        _ => json!({"arguments": function}),
    };
    call.insert(FUNCTION.to_owned(), function);
    Value::Object(call)
}

/// A call with a list of functions. Several are arguments that are refused: it is not known which one is meant.
fn with_list(call: &Map<String, Value>, functions: &[Value]) -> Value {
    let mut call = call.clone();
    let function = match functions {
        [only @ Value::Object(_)] => only.clone(),
        [] => Value::Null,
        several => json!({"arguments": several}),
    };
    call.insert(FUNCTION.to_owned(), function);
    Value::Object(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_calls_have_several_forms() {
        let so_far = ToolCalls::default();
        let call = json!({"index": 0, "function": {"name": "f", "arguments": "{}"}});
        let arguments = json!({"function": {"arguments": "{\"a\":1}"}});
        for (delta, expected) in [
            (json!({"tool_calls": [call]}), vec![&call]),
            (json!({"tool_calls": call}), vec![&call]),
            (
                json!({"tool_calls": json!([call]).to_string()}),
                vec![&call],
            ),
            (json!({"tool_calls": [call.to_string()]}), vec![&call]),
            (json!({"tool_calls": [], "tool_call": call}), vec![&call]),
            (json!({"tool_calls": "{\"a\":1}"}), vec![&arguments]),
            (json!({"tool_calls": ["{\"a\":1}"]}), vec![&arguments]),
            (json!({"tool_calls": null, "content": "a"}), vec![]),
            (json!({"tool_calls": "null"}), vec![]),
            (json!({"tool_calls": ["none"]}), vec![]),
            (json!({"tool_calls": "[\"none\"]"}), vec![]),
            (json!({"tool_calls": "[]"}), vec![]),
            (json!({"function_call": "auto"}), vec![]),
            (
                json!({"tool_calls": "None", "tool_call": call}),
                vec![&call],
            ),
        ] {
            let (_, found) = calls_in(&delta, &so_far);
            let found: Vec<&Value> = found.iter().map(|call| &**call).collect();
            assert_eq!(found, expected, "{delta}");
        }
    }

    #[test]
    fn a_text_that_begins_no_call_is_a_piece_where_arguments_have_begun() {
        for (arguments, text, expected) in [
            ("", "{\"a\":1}", true),
            ("", "\"{", true),
            ("", "12", true),
            ("", "null", false),
            ("", "\"none\"", false),
            ("{\"a\":", "null", true),
            ("{\"a\":", " ", false),
            ("{}", "none", false),
            ("{\"a\":1}", "12", false),
        ] {
            let mut so_far = ToolCalls::default();
            let call = json!({"name": "f", "arguments": arguments});
            so_far.push(&call, &mut |_| {}).unwrap();
            assert_eq!(may_be(text, &so_far), expected, "{arguments} {text}");
        }
    }

    #[test]
    fn a_function_may_be_a_text_or_a_list() {
        for (function, expected) in [
            (json!("f"), json!({"id": "a", "name": "f"})),
            (
                json!("{\"a\":1}"),
                json!({"id": "a", "function": {"arguments": "{\"a\":1}"}}),
            ),
            (
                json!("{\"name\":\"f\",\"arguments\":{}}"),
                json!({"id": "a", "function": {"name": "f", "arguments": {}}}),
            ),
            (
                json!([{"arguments": "{}"}]),
                json!({"id": "a", "function": {"arguments": "{}"}}),
            ),
            (
                json!([{"x": 1}, {"x": 2}]),
                json!({"id": "a", "function": {"arguments": [{"x": 1}, {"x": 2}]}}),
            ),
        ] {
            let call = json!({"id": "a", "function": function});
            assert_eq!(*call_of(&call), expected, "{call}");
        }
    }
}
