//! Characters that servers cut into two events, half a surrogate pair in each (a token that ends inside an emoji).
//!
//! The first half is held until the next piece of the same text, and both become one character again.

use serde_json::{Error, Value, json};
use std::collections::BTreeMap;
use std::mem;

use crate::call_arguments::{ARGUMENT_MEMBERS, index_of};
use toolhold_intake::json;

/// The first halves of pairs that wait for the second one, by the text that they end.
#[derive(Debug, Default)]
pub(crate) struct CutPairs {
    held: BTreeMap<TextPlace, char>,
}

/// A text of the answer that comes in pieces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TextPlace {
    /// A member of the delta.
    Member(&'static str),
    /// A part of its content, by the member that has its text.
    Part(&'static str),
    /// Arguments of the call with this index.
    Arguments(Option<u64>),
    /// Arguments of an old `function_call`.
    Function,
}

/// Members of a delta that have text. The content may be a list of parts.
const MEMBERS: [&str; 5] = [
    CONTENT,
    "refusal",
    "reasoning",
    "reasoning_content",
    "thinking",
];
const CONTENT: &str = "content";
/// Members of parts that have text.
const PARTS: [&str; 4] = ["text", "refusal", "thinking", "reasoning"];
/// Maximum halves that are held at once: one for each text of an answer.
const MAX_HELD: usize = 256;
/// Stands for half a pair that stays alone.
const ALONE: &str = "\u{fffd}";

impl CutPairs {
    /// Parses one chunk of an answer, with the halves that were held before its texts.
    ///
    /// # Errors
    /// It is no JSON.
    pub(crate) fn parse(&mut self, text: &str) -> Result<Value, Error> {
        let (mut chunk, has_halves) = json::parse_piece(text)?;
        if has_halves || !self.held.is_empty() {
            self.join_chunk(&mut chunk, has_halves);
        }
        if has_halves {
            json::replace_halves(&mut chunk);
        }
        Ok(chunk)
    }

    /// Gives up the halves that are held, as deltas of the texts that they end.
    pub(crate) fn release(&mut self) -> Vec<Value> {
        let held = mem::take(&mut self.held);
        held.into_keys().map(TextPlace::alone).collect()
    }

    /// `has_halves`: halves of pairs are marked in the chunk.
    fn join_chunk(&mut self, chunk: &mut Value, has_halves: bool) {
        let choices = chunk.get_mut("choices").and_then(Value::as_array_mut);
        let first = choices.into_iter().flatten().find(|choice| {
            let index = choice.get("index").and_then(Value::as_u64);
            index.unwrap_or_default() == 0
        });
        let Some(choice) = first else {
            return;
        };
        let has_delta = choice.get("delta").is_some_and(Value::is_object);
        if let Some(delta) = choice.get_mut(if has_delta { "delta" } else { "message" }) {
            self.join_delta(delta, has_halves);
        }
        if let Some(Value::String(text)) = choice.get_mut("text") {
            self.join_text(TextPlace::Member(CONTENT), text, has_halves);
        }
    }

    fn join_delta(&mut self, delta: &mut Value, has_halves: bool) {
        for name in MEMBERS {
            match delta.get_mut(name) {
                Some(Value::String(text)) => {
                    self.join_text(TextPlace::Member(name), text, has_halves);
                }
                Some(Value::Array(parts)) => {
                    for part in parts {
                        self.join_part(part, has_halves);
                    }
                }
                _ => {}
            }
        }
        match delta.get_mut("tool_calls") {
            Some(Value::Array(calls)) => {
                for call in calls {
                    self.join_call(None, call, has_halves);
                }
            }
            Some(call) => self.join_call(None, call, has_halves),
            None => {}
        }
        if let Some(call) = delta.get_mut("function_call") {
            self.join_call(Some(TextPlace::Function), call, has_halves);
        }
    }

    fn join_part(&mut self, part: &mut Value, has_halves: bool) {
        for name in PARTS {
            match part.get_mut(name) {
                Some(Value::String(text)) => {
                    self.join_text(TextPlace::Part(name), text, has_halves);
                }
                // The thoughts of Mistral's models are parts themselves.
                Some(Value::Array(inner)) => {
                    for part in inner {
                        if let Some(Value::String(text)) = part.get_mut("text") {
                            self.join_text(TextPlace::Part(name), text, has_halves);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn join_call(&mut self, place: Option<TextPlace>, call: &mut Value, has_halves: bool) {
        let index = call.get("index").and_then(index_of);
        let place = place.unwrap_or(TextPlace::Arguments(index));
        let has_inner = call.get("function").is_some_and(Value::is_object);
        let function = if has_inner {
            call.get_mut("function")
        } else {
            Some(call)
        };
        let Some(function) = function else {
            return;
        };
        for name in ARGUMENT_MEMBERS {
            if let Some(Value::String(text)) = function.get_mut(name) {
                self.join_text(place.clone(), text, has_halves);
            }
        }
    }

    fn join_text(&mut self, place: TextPlace, text: &mut String, has_halves: bool) {
        if text.is_empty() {
            return;
        }
        if let Some(first) = self.held.remove(&place) {
            let mut chars = text.chars();
            let second = chars.next().filter(|_| has_halves);
            let whole = second.and_then(|second| json::joined(first, second));
            *text = match whole {
                Some(whole) => format!("{whole}{}", chars.as_str()),
                None => format!("{ALONE}{text}"),
            };
        }
        let last = text.chars().next_back().filter(|_| has_halves);
        if let Some(first) = last.filter(|c| json::is_first_half(*c))
            && self.held.len() < MAX_HELD
        {
            text.pop();
            self.held.insert(place, first);
        }
    }
}

impl TextPlace {
    /// The delta in which half a character ends this text.
    fn alone(self) -> Value {
        let arguments = json!({"arguments": ALONE});
        match self {
            Self::Member(name) => json!({name: ALONE}),
            Self::Part(name) => json!({"content": [{name: ALONE}]}),
            Self::Arguments(None) => json!({"tool_calls": [{"function": arguments}]}),
            Self::Arguments(Some(index)) => {
                json!({"tool_calls": [{"index": index, "function": arguments}]})
            }
            Self::Function => json!({"function_call": arguments}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &mut CutPairs, delta: &str) -> Value {
        let chunk = format!("{{\"choices\":[{{\"delta\":{delta}}}]}}");
        let mut chunk = pairs.parse(&chunk).unwrap();
        chunk["choices"][0]["delta"].take()
    }

    #[test]
    fn a_pair_in_two_pieces_is_one_character() {
        for (first, between, last, expected) in [
            (
                r#"{"content":"a\ud83d"}"#,
                r#"{"content":"","reasoning":"x"}"#,
                r#"{"content":"\ude00b"}"#,
                json!({"content": "😀b"}),
            ),
            (
                r#"{"reasoning_content":"\ud83d"}"#,
                r#"{"content":null}"#,
                r#"{"reasoning_content":"\ude00"}"#,
                json!({"reasoning_content": "😀"}),
            ),
            (
                r#"{"content":[{"type":"text","text":"\ud83d"}]}"#,
                "{}",
                r#"{"content":[{"type":"text","text":"\ude00"}]}"#,
                json!({"content": [{"type": "text", "text": "😀"}]}),
            ),
            (
                r#"{"tool_calls":[{"index":1,"function":{"name":"f","arguments":"\ud83d"}}]}"#,
                r#"{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}"#,
                r#"{"tool_calls":[{"index":1,"function":{"arguments":"\ude00\""}}]}"#,
                json!({"tool_calls": [{"index": 1, "function": {"arguments": "😀\""}}]}),
            ),
        ] {
            let mut pairs = CutPairs::default();
            parsed(&mut pairs, first);
            parsed(&mut pairs, between);
            assert_eq!(parsed(&mut pairs, last), expected, "{first}");
            assert!(pairs.release().is_empty(), "{first}");
        }
    }

    #[test]
    fn half_a_pair_that_stays_alone_is_replaced() {
        let mut pairs = CutPairs::default();
        let first = parsed(&mut pairs, r#"{"content":"a\ud83d","role":"\ud83d"}"#);
        assert_eq!(first, json!({"content": "a", "role": "\u{fffd}"}));
        let next = parsed(&mut pairs, r#"{"content":"b"}"#);
        assert_eq!(next, json!({"content": "\u{fffd}b"}));
        let halves = parsed(&mut pairs, r#"{"content":"\ude00\ud83dx\ud83d"}"#);
        assert_eq!(halves, json!({"content": "\u{fffd}\u{fffd}x"}));
        assert_eq!(pairs.release(), [json!({"content": "\u{fffd}"})]);
        // A character that stands for a half elsewhere.
        let own = parsed(&mut pairs, "{\"content\":\"\u{10fc00}\"}");
        assert_eq!(own, json!({"content": "\u{10fc00}"}));
    }
}
