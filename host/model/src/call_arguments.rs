//! The place of the arguments in a piece of a call. Some servers have them beside `function`, or under a name of their own.

use serde_json::Value;
use std::ptr;

use toolhold_protocol::completion::CALL_MEMBERS;

/// The member of a function that has its arguments.
const ARGUMENTS: &str = "arguments";
/// Members that have them, of the function or beside it.
pub(crate) const ARGUMENT_MEMBERS: [&str; 4] = [ARGUMENTS, "parameters", "input", "args"];
/// Members that never have arguments.
const NO_ARGUMENTS: [&str; 6] = ["id", "index", "type", "name", "function", "description"];

/// The arguments in one piece of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CallArguments {
    pub(crate) text: String,
    pub(crate) unread: UnreadMembers,
}

/// Members of a piece that may be arguments and were not read as such.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnreadMembers {
    #[default]
    None,
    /// Members with names that are not known.
    Unknown,
    /// Members that are called as arguments are.
    Arguments,
}

/// The index of a call. Some servers write it as a text.
pub(crate) fn index_of(index: &Value) -> Option<u64> {
    let text = || index.as_str()?.trim().parse().ok();
    index.as_u64().or_else(text)
}

impl CallArguments {
    /// Reads one element of `tool_calls`, or a `function_call`. Arguments under another name are read if they are the only
    /// ones.
    pub(crate) fn read(call: &Value) -> Self {
        // An old `function_call`, and some proxies, have no inner object.
        let inner = call.get("function").filter(|inner| !inner.is_null());
        let function = inner.unwrap_or(call);
        let own = function.get(ARGUMENTS);
        let beside = inner.map(|_| call);
        let members = [Some(function), beside].into_iter().flatten();
        let members = members.filter_map(Value::as_object).flatten();
        let is_own = |value: &Value| own.is_some_and(|own| ptr::eq(own, value));
        let others: Vec<(&str, &Value)> = members
            .map(|(name, value)| (name.as_str(), value))
            .filter(|(name, value)| !is_own(value) && may_be_arguments(name, value))
            .collect();
        let text = own.map(text_of).unwrap_or_default();
        let is_named =
            |name: &str, value: &Value| ARGUMENT_MEMBERS.contains(&name) && !is_schema(value);
        let mut named = others.iter().filter(|(name, value)| is_named(name, value));
        if !text.trim().is_empty() {
            let is_other = named.any(|(_, value)| text_of(value) != text);
            let unread = if is_other {
                UnreadMembers::Arguments
            } else {
                UnreadMembers::None
            };
            return Self { text, unread };
        }
        match (named.next(), others.as_slice()) {
            (Some((_, only)), [_]) => Self {
                text: text_of(only),
                unread: UnreadMembers::None,
            },
            (Some(_), _) => Self {
                text,
                unread: UnreadMembers::Arguments,
            },
            (None, []) => Self {
                text,
                unread: UnreadMembers::None,
            },
            (None, _) => Self {
                text,
                unread: UnreadMembers::Unknown,
            },
        }
    }
}

/// Arguments as JSON text, of which this may be a piece.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(piece) => piece.clone(),
        Value::Null => String::new(),
        whole => whole.to_string(),
    }
}

fn may_be_arguments(name: &str, value: &Value) -> bool {
    if NO_ARGUMENTS.contains(&name) || CALL_MEMBERS.contains(&name) {
        return false;
    }
    let is_named = ARGUMENT_MEMBERS.contains(&name);
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => is_named && !items.is_empty(),
        Value::String(text) if is_named => !text.trim().is_empty(),
        Value::String(text) => text.trim_start().starts_with('{'),
        _ => false,
    }
}

/// True for the schema of a function, which some servers repeat in its call.
pub(crate) fn is_schema(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "object") && value.get("properties").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_under_another_name_are_read_if_they_are_the_only_ones() {
        use UnreadMembers::{Arguments, None, Unknown};
        for (call, text, unread) in [
            (
                json!({"function": {"name": "f", "arguments": "{"}}),
                "{",
                None,
            ),
            (
                json!({"name": "f", "arguments": {"a": 1}}),
                "{\"a\":1}",
                None,
            ),
            (
                json!({"function": {"name": "f"}, "arguments": "{\"a\":1}"}),
                "{\"a\":1}",
                None,
            ),
            (
                json!({"function": {"name": "f", "parameters": {"a": 1}}}),
                "{\"a\":1}",
                None,
            ),
            (
                json!({"function": {"name": "f", "arguments": null, "input": {"a": 1}}}),
                "{\"a\":1}",
                None,
            ),
            (
                json!({"function": {"name": "f", "arguments": ""}, "id": "x", "extra_content": {"a": 1}}),
                "",
                None,
            ),
            (
                json!({"function": {"name": "f", "args": {}}, "index": 0}),
                "",
                None,
            ),
            (
                json!({"function": null, "name": "f", "input": "{"}),
                "{",
                None,
            ),
            // Two of them, or one beside others.
            (
                json!({"function": {"name": "f", "parameters": {"a": 1}, "input": {"a": 2}}}),
                "",
                Arguments,
            ),
            (
                json!({"function": {"name": "f", "arguments": "{}", "input": {"a": 1}}}),
                "{}",
                Arguments,
            ),
            (
                json!({"function": {"name": "f", "arguments": "{\"a\":1}", "input": {"a": 1}}}),
                "{\"a\":1}",
                None,
            ),
            // Under a name that is not known.
            (
                json!({"function": {"name": "f", "payload": {"a": 1}}}),
                "",
                Unknown,
            ),
            (
                json!({"function": {"name": "f"}, "payload": "{\"a\":1}"}),
                "",
                Unknown,
            ),
            (
                json!({"function": {"name": "f", "arguments": "{}", "payload": {"a": 1}}}),
                "{}",
                None,
            ),
            (
                json!({"function": {"name": "f", "note": "words"}}),
                "",
                None,
            ),
            (
                json!({"function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}),
                "",
                Unknown,
            ),
        ] {
            let text = text.to_owned();
            assert_eq!(
                CallArguments::read(&call),
                CallArguments { text, unread },
                "{call}"
            );
        }
    }
}
