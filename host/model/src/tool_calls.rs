//! Puts tool calls together from the fragments that servers stream.
//!
//! The rules, and who needs them:
//! - a fragment belongs to the call of its `index`; without one (some proxies) to that of its `id`,
//!   and with neither to the latest;
//! - a repeated `id` or `name` is the same call (several servers repeat both in every fragment), and
//!   so is a new `id` without a name (servers that invent an id per chunk);
//! - another name, or a new `id` together with a name, is another call even if the index says
//!   otherwise (Ollama sends whole calls, all of index 0);
//! - arguments may be an object instead of text, and then are whole.

use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::OnceLock;

use crate::error::ModelError;
use toolhold_json::scan::{JsonLexer, JsonToken};
use toolhold_protocol::completion::{ChatToolCall, Delta};

/// More calls than this in one answer are a model gone astray; each would become work.
const MAX_CALLS: usize = 256;

/// The calls of one completion.
#[derive(Debug, Default)]
pub(crate) struct ToolCalls {
    calls: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// The server's index, which need not be the call's place here.
    index: Option<u64>,
    call: ChatToolCall,
    written: Written,
    /// Whether the arguments are JSON. It is read once, when all brackets are closed: blanks behind them change nothing.
    is_json: OnceLock<bool>,
}

/// How far the arguments of a call are written. Each character is looked at once, however small the pieces.
#[derive(Debug, Default)]
struct Written {
    lexer: JsonLexer,
    /// Brackets that are open.
    depth: usize,
    /// All brackets that were opened are closed again.
    is_closed: bool,
    /// Something came after that, so it is no JSON and will never be.
    is_broken: bool,
}

/// One element of a `tool_calls` array.
struct Fragment<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
    name: Option<&'a str>,
    arguments: String,
}

impl ToolCalls {
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes one element of a `tool_calls` array (or an old `function_call` object), and returns
    /// what is new in it.
    pub(crate) fn push(&mut self, value: &Value) -> Result<Option<Delta>, ModelError> {
        let fragment = Fragment::read(value);
        let place = match self.place_of(&fragment) {
            Some(place) => place,
            None if self.calls.len() == MAX_CALLS => {
                return Err(ModelError::TooLarge {
                    limit: MAX_CALLS,
                    unit: "tool calls",
                });
            }
            None => {
                self.calls.push(Slot {
                    index: fragment.index,
                    ..Slot::default()
                });
                self.calls.len() - 1
            }
        };
        let Slot { call, written, .. } = &mut self.calls[place];
        written.push(&fragment.arguments);
        let id = fill(&mut call.id, fragment.id);
        let name = fill(&mut call.name, fragment.name);
        call.arguments.push_str(&fragment.arguments);
        let is_news = id.is_some() || name.is_some() || !fragment.arguments.is_empty();
        Ok(is_news.then_some(Delta::ToolCall {
            index: place,
            id,
            name,
            arguments: fragment.arguments,
        }))
    }

    /// The calls as far as they came. A call without an id gets `call_N` by its place, and one
    /// without arguments `{}`: chat templates fail on the empty text when it is sent back.
    pub(crate) fn finish(self) -> Vec<ChatToolCall> {
        let calls = self.calls.into_iter().enumerate();
        calls
            .map(|(place, Slot { mut call, .. })| {
                if call.id.is_empty() {
                    call.id = format!("call_{place}");
                }
                if call.arguments.trim().is_empty() {
                    call.arguments = "{}".into();
                }
                call
            })
            .collect()
    }

    fn place_of(&self, fragment: &Fragment<'_>) -> Option<usize> {
        // From the back: where an index was used twice, the later call is the one that grows.
        let by_index = || {
            let index = fragment.index?;
            self.calls
                .iter()
                .rposition(|slot| slot.index == Some(index))
        };
        let by_id = || {
            let id = fragment.id?;
            self.calls.iter().rposition(|slot| slot.call.id == id)
        };
        let latest = || match fragment.index {
            Some(_) => None,
            None => self.calls.len().checked_sub(1),
        };
        let place = by_index().or_else(by_id).or_else(latest)?;
        fragment.continues(&self.calls[place]).then_some(place)
    }
}

impl<'a> Fragment<'a> {
    fn read(value: &'a Value) -> Self {
        // An old `function_call`, and some proxies, have no inner object.
        let function = value.get("function").unwrap_or(value);
        let text =
            |value: Option<&'a Value>| value.and_then(Value::as_str).filter(|t| !t.is_empty());
        Self {
            index: value.get("index").and_then(Value::as_u64),
            id: text(value.get("id")),
            name: text(function.get("name")),
            arguments: match function.get("arguments") {
                Some(Value::String(piece)) => piece.clone(),
                None | Some(Value::Null) => String::new(),
                Some(whole) => whole.to_string(),
            },
        }
    }

    fn continues(&self, slot: &Slot) -> bool {
        let call = &slot.call;
        let Some(name) = self.name else {
            return true;
        };
        match self.id {
            Some(id) if id == call.id => true,
            Some(_) if !call.id.is_empty() => false,
            _ if call.name.is_empty() => true,
            // The name again and more arguments: only a call that is not whole yet can take them.
            _ => name == call.name && (self.arguments.is_empty() || !slot.is_whole()),
        }
    }
}

/// Fills an empty field once, and says what was filled in.
fn fill(field: &mut String, value: Option<&str>) -> Option<String> {
    let value = value.filter(|_| field.is_empty())?;
    value.clone_into(field);
    Some(value.to_owned())
}

impl Slot {
    fn is_whole(&self) -> bool {
        // The cheap look first: this is asked for every fragment of servers that repeat the name.
        self.written.is_closed
            && !self.written.is_broken
            && *self.is_json.get_or_init(|| {
                let arguments = &self.call.arguments;
                arguments.trim_end().ends_with('}')
                    && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
            })
    }
}

impl Written {
    fn push(&mut self, mut piece: &str) {
        while let Some(token) = self.lexer.next(&mut piece) {
            match token {
                JsonToken::Between(c) if c.is_ascii_whitespace() => {}
                _ if self.is_closed => self.is_broken = true,
                JsonToken::Between('{' | '[') => self.depth += 1,
                JsonToken::Between('}' | ']') => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_closed = self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assemble(fragments: &Value) -> Vec<(String, String, String)> {
        let mut calls = ToolCalls::default();
        for fragment in fragments.as_array().unwrap() {
            calls.push(fragment).unwrap();
        }
        let calls = calls.finish().into_iter();
        calls
            .map(|call| (call.id, call.name, call.arguments))
            .collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.into(), name.into(), arguments.into())
    }

    #[test]
    fn fragments_find_their_call() {
        let add = || call("a", "add", "{\"x\":1}");
        let mul = || call("b", "mul", "{}");
        let cases = [
            (
                "as specified",
                json!([
                    {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}},
                    {"index": 0, "function": {"arguments": "{\"x\""}},
                    {"index": 0, "function": {"arguments": ":1}"}},
                    {"index": 1, "id": "b", "function": {"name": "mul", "arguments": "{}"}}]),
                vec![add(), mul()],
            ),
            (
                "interleaved",
                json!([
                    {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{"}},
                    {"index": 1, "id": "b", "function": {"name": "mul", "arguments": "{"}},
                    {"index": 0, "function": {"arguments": "\"x\":1}"}},
                    {"index": 1, "function": {"arguments": "}"}}]),
                vec![add(), mul()],
            ),
            (
                "id and name repeated",
                json!([
                    {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{\"x\""}},
                    {"index": 0, "id": "a", "function": {"name": "add", "arguments": ":1}"}},
                    {"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}}]),
                vec![add()],
            ),
            (
                "a new id in every fragment",
                json!([
                    {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{\"x\""}},
                    {"index": 0, "id": "z", "function": {"name": null, "arguments": ":1}"}}]),
                vec![add()],
            ),
            (
                "no index, ids",
                json!([
                    {"id": "a", "function": {"name": "add", "arguments": "{\"x\""}},
                    {"id": "b", "function": {"name": "mul"}},
                    {"id": "a", "function": {"arguments": ":1}"}}]),
                vec![add(), mul()],
            ),
            (
                "no index, no id",
                json!([
                    {"function": {"name": "add", "arguments": "{\"x\""}},
                    {"function": {"arguments": ":1}"}},
                    {"function": {"name": "mul", "arguments": "{}"}}]),
                vec![
                    call("call_0", "add", "{\"x\":1}"),
                    call("call_1", "mul", "{}"),
                ],
            ),
            (
                "whole calls, all of index 0",
                json!([
                    {"index": 0, "id": "a", "function": {"name": "add", "arguments": {"x": 1}}},
                    {"index": 0, "id": "b", "function": {"name": "mul", "arguments": {}}}]),
                vec![add(), mul()],
            ),
            (
                "whole calls of one name, index 0, no id",
                json!([
                    {"index": 0, "function": {"name": "add", "arguments": "{\"x\":1}"}},
                    {"index": 0, "function": {"name": "add", "arguments": "{\"x\":2}"}}]),
                vec![
                    call("call_0", "add", "{\"x\":1}"),
                    call("call_1", "add", "{\"x\":2}"),
                ],
            ),
            (
                "name after the id, in its own fragment",
                json!([
                    {"index": 0, "id": "a", "function": {}},
                    {"index": 0, "function": {"name": "add"}},
                    {"index": 0, "function": {"arguments": "{\"x\":1}"}}]),
                vec![add()],
            ),
            (
                "indexes that start at 1 and skip",
                json!([
                    {"index": 1, "id": "a", "function": {"name": "add", "arguments": "{\"x\":1}"}},
                    {"index": 4_000_000_000_u64, "id": "b", "function": {"name": "mul"}}]),
                vec![add(), mul()],
            ),
            (
                "no inner object",
                json!([{"name": "add", "id": "a", "arguments": "{\"x\":1}"}]),
                vec![add()],
            ),
            (
                "nonsense",
                json!([{}, 7, null]),
                vec![call("call_0", "", "{}")],
            ),
        ];
        for (what, fragments, expected) in cases {
            assert_eq!(assemble(&fragments), expected, "{what}");
        }
    }

    #[test]
    fn id_and_name_are_told_once() {
        let mut calls = ToolCalls::default();
        let fragment =
            json!({"index": 0, "id": "a", "function": {"name": "add", "arguments": "{"}});
        let delta = |id: Option<&str>, name: Option<&str>| {
            Some(Delta::ToolCall {
                index: 0,
                id: id.map(Into::into),
                name: name.map(Into::into),
                arguments: "{".into(),
            })
        };
        assert_eq!(
            calls.push(&fragment).unwrap(),
            delta(Some("a"), Some("add"))
        );
        assert_eq!(calls.push(&fragment).unwrap(), delta(None, None));
        assert_eq!(calls.push(&json!({"index": 0})).unwrap(), None);
    }

    #[test]
    fn calls_are_bounded() {
        let mut calls = ToolCalls::default();
        let result = (0..=MAX_CALLS).try_for_each(|i| calls.push(&json!({"index": i})).map(drop));
        assert!(matches!(
            result,
            Err(ModelError::TooLarge {
                limit: MAX_CALLS,
                ..
            })
        ));
    }
}
