//! The places of calls in a delta or a message, and the forms of their lists: a list, one call, or the JSON of them as text.

use crate::call_arguments::ARGUMENT_MEMBERS;
use serde::de::IgnoredAny;
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

/// Whether a delta has a member with calls.
pub(super) fn has_calls(delta: &Value) -> bool {
    !calls_in(delta).is_empty()
}

/// The calls in a delta or a message, each as an object.
pub(super) fn calls_in(delta: &Value) -> Vec<Cow<'_, Value>> {
    let places = LISTS.iter().filter_map(|name| delta.get(name));
    let mut lists = places.map(listed).filter(|calls| !calls.is_empty());
    lists.next().unwrap_or_default()
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

/// Whether a text is one JSON object.
pub(super) fn is_object(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('{') && text.ends_with('}') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The calls of a list, each as an object.
pub(super) fn listed(calls: &Value) -> Vec<Cow<'_, Value>> {
    match calls {
        Value::Array(calls) => calls.iter().map(call_of).collect(),
        Value::Object(_) => vec![call_of(calls)],
        Value::String(text) if !text.trim().is_empty() => match parse(text) {
            Ok(Value::Array(calls)) => {
                let calls = calls.iter().map(call_of);
                calls.map(|call| Cow::Owned(call.into_owned())).collect()
            }
            _ => vec![Cow::Owned(of_text(text))],
        },
        _ => Vec::new(),
    }
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
        ] {
            let found = calls_in(&delta);
            let found: Vec<&Value> = found.iter().map(|call| &**call).collect();
            assert_eq!(found, expected, "{delta}");
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
