//! Reasoning that is signed or comes in parts (`reasoning_details`, `thinking_blocks`, `extra_content`), as it goes back with
//! the calls that it led to.

use crate::delta_text::text_of;
use serde_json::{Map, Value, json};
use toolhold_protocol::completion::{CALL_MEMBERS, REASONING_DETAILS_BYTES};

/// Parts of one answer's reasoning: one for each thought between two calls.
const MAX_PARTS: usize = 256;
/// Maximum values in the parts of one answer, nested ones included. Small values take many times the memory of their text,
/// and a run keeps the parts of each of its replies.
const MAX_VALUES: usize = 8 << 10;
/// Members of a part whose text comes in pieces.
const TEXTS: [&str; 3] = ["text", "summary", "thinking"];
/// The type of a block of `thinking_blocks` that has a text, of a part of the content that is a thought, and the member with
/// their text.
const THINKING: &str = "thinking";

/// The parts of one answer. Pieces of one part, which have its `index` and `type`, are put together.
#[derive(Debug, Default)]
pub(crate) struct ReasoningDetails {
    parts: Vec<Value>,
    size: KeptSize,
    /// There is more than is kept. Parts are signed, so none of them is of use then.
    is_full: bool,
}

/// Size of the signed values of one kind that were kept of an answer, those that others replaced included.
#[derive(Debug, Default)]
pub(crate) struct KeptSize {
    bytes: usize,
    values: usize,
}

impl KeptSize {
    /// Counts more. False: it is too much now.
    fn grow(&mut self, bytes: usize, values: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.values = self.values.saturating_add(values);
        self.bytes <= REASONING_DETAILS_BYTES && self.values <= MAX_VALUES
    }

    /// Counts one more value. False: it is too much now.
    fn take(&mut self, value: &Value) -> bool {
        self.grow(value.to_string().len(), values_in(value))
    }
}

/// Keeps the signed members of a call that are in a piece of it. One that comes again replaces what it was, and of those
/// that are too large together nothing more is kept.
pub(crate) fn keep_call_members(
    piece: &Value,
    members: &mut Map<String, Value>,
    size: &mut KeptSize,
) {
    for name in CALL_MEMBERS {
        if let Some(value) = piece.get(name) {
            keep_signed(name, value, members, size);
        }
    }
}

/// Keeps a signed member that comes as a whole. One without a text has no signature, such as Gemini's mark of a thought.
pub(crate) fn keep_signed(
    name: &str,
    value: &Value,
    members: &mut Map<String, Value>,
    size: &mut KeptSize,
) {
    if !has_text(value) || members.get(name) == Some(value) {
        return;
    }
    if size.take(value) {
        members.insert(name.to_owned(), value.clone());
    } else {
        members.shift_remove(name);
    }
}

fn has_text(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(has_text),
        Value::Object(fields) => fields.values().any(has_text),
        _ => false,
    }
}

impl ReasoningDetails {
    /// Takes the parts of one chunk.
    pub(crate) fn take(&mut self, details: &Value) {
        for part in details.as_array().into_iter().flatten() {
            if self.is_full {
                return;
            }
            let begun = self.parts.iter().rposition(|begun| is_same(begun, part));
            match begun.and_then(|place| self.parts.get_mut(place)) {
                Some(begun) => {
                    let (bytes, values) = go_on(begun, part);
                    self.count(bytes, values);
                }
                // Counted first: it may be large.
                None => {
                    self.count(part.to_string().len(), values_in(part));
                    if !self.is_full {
                        self.parts.push(part.clone());
                    }
                }
            }
            if self.is_full || self.parts.len() > MAX_PARTS {
                self.is_full = true;
                self.parts = Vec::new();
            }
        }
    }

    fn count(&mut self, bytes: usize, values: usize) {
        self.is_full |= !self.size.grow(bytes, values);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn finish(self) -> Vec<Value> {
        self.parts
    }
}

/// Thoughts among the parts of the content.
#[derive(Debug, Default)]
pub(crate) struct ContentThoughts {
    /// Each with its text alone.
    parts: ReasoningDetails,
    /// The text came as a list of parts.
    is_list: bool,
}

impl ContentThoughts {
    /// Takes those of one chunk.
    pub(crate) fn take(&mut self, content: &Value) {
        for part in content.as_array().into_iter().flatten() {
            let is_thought = part.get("type").is_some_and(|kind| kind == THINKING);
            let Some(thought) = part.get(THINKING).filter(|_| is_thought) else {
                continue;
            };
            self.is_list |= thought.is_array();
            let mut piece = part.clone();
            piece[THINKING] = text_of(thought).into();
            self.parts.take(&Value::Array(vec![piece]));
        }
    }

    pub(crate) fn finish(self) -> Vec<Value> {
        let mut parts = self.parts.finish();
        if self.is_list {
            for part in &mut parts {
                let text = part[THINKING].take();
                part[THINKING] = json!([{"type": "text", "text": text}]);
            }
        }
        parts
    }
}

/// The text in parts, for those who read along.
pub(crate) fn details_text(details: &Value) -> String {
    let parts = details.as_array().into_iter().flatten();
    parts
        .flat_map(|part| {
            TEXTS
                .into_iter()
                .filter_map(move |name| part.get(name)?.as_str())
        })
        .collect()
}

/// True if `piece` is the next piece of a part.
fn is_same(part: &Value, piece: &Value) -> bool {
    if piece.get("index").is_none() {
        return is_open_block(part, piece);
    }
    let has_same = |name: &str| part.get(name) == piece.get(name);
    let is_open = piece.get("index").is_some_and(Value::is_number);
    let id = piece.get("id").filter(|id| !id.is_null());
    let is_same_id = id.is_none() || has_same("id") || part.get("id").is_none_or(Value::is_null);
    // What is encrypted comes as a whole.
    is_open && has_same("index") && has_same("type") && is_same_id && piece.get("data").is_none()
}

/// True for a piece of a block of `thinking_blocks`, which have no index. Its signature ends a block.
fn is_open_block(block: &Value, piece: &Value) -> bool {
    let is_thinking = |it: &Value| it.get("type").is_some_and(|kind| kind == THINKING);
    let signature = block.get("signature").and_then(Value::as_str);
    is_thinking(block) && is_thinking(piece) && signature.is_none_or(str::is_empty)
}

/// Adds a piece to its part. Returns how many bytes were added, and how many values.
fn go_on(part: &mut Value, piece: &Value) -> (usize, usize) {
    let (Value::Object(part), Value::Object(piece)) = (part, piece) else {
        return (0, 0);
    };
    let (mut bytes, mut values) = (0, 0);
    for (name, value) in piece.iter().filter(|(_, value)| !value.is_null()) {
        let is_text = TEXTS.contains(&name.as_str());
        if let (true, Some(Value::String(text)), Value::String(more)) =
            (is_text, part.get_mut(name), value)
        {
            text.push_str(more);
            bytes += more.len();
        } else if part.get(name) != Some(value) {
            part.insert(name.clone(), value.clone());
            bytes += name.len() + value.to_string().len();
            values += values_in(value);
        }
    }
    (bytes, values)
}

/// The number of values in a value, itself included. JSON that was read has a bounded depth.
fn values_in(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(items) => items.iter().map(values_in).sum(),
        Value::Object(members) => members.values().map(values_in).sum(),
        _ => 0,
    };
    inner + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn taken(chunks: &[Value]) -> Vec<Value> {
        let mut details = ReasoningDetails::default();
        for chunk in chunks {
            details.take(chunk);
        }
        details.finish()
    }

    #[test]
    fn pieces_of_a_part_are_put_together_and_others_stay_as_they_are() {
        let parts = taken(&[
            json!([{"type": "reasoning.text", "index": 0, "format": "f", "text": "I ", "signature": null}]),
            json!([{"type": "reasoning.text", "index": 0, "text": "multiply."}]),
            json!([{"type": "reasoning.text", "index": 0, "signature": "s"}]),
            json!([{"type": "reasoning.encrypted", "index": 1, "data": "AA"}]),
            json!([{"type": "reasoning.encrypted", "index": 1, "data": "BB"}]),
            json!([{"type": "reasoning.summary", "summary": "a"}, {"type": "reasoning.summary", "summary": "b"}]),
        ]);
        assert_eq!(
            json!(parts),
            json!([
                {"type": "reasoning.text", "index": 0, "format": "f", "text": "I multiply.", "signature": "s"},
                {"type": "reasoning.encrypted", "index": 1, "data": "AA"},
                {"type": "reasoning.encrypted", "index": 1, "data": "BB"},
                {"type": "reasoning.summary", "summary": "a"},
                {"type": "reasoning.summary", "summary": "b"},
            ])
        );
        assert_eq!(
            taken(&[json!("text"), json!(null), json!([])]),
            Vec::<Value>::new()
        );
    }

    #[test]
    fn a_signature_ends_a_block_of_thinking() {
        let piece = |text: &str, signature: Value| json!([{"type": "thinking", "thinking": text, "signature": signature}]);
        let blocks = taken(&[
            piece("I ", Value::Null),
            piece("multiply.", json!("")),
            piece("", json!("s")),
            json!([{"type": "redacted_thinking", "data": "AA"}]),
            json!([{"type": "redacted_thinking", "data": "BB"}]),
            piece("And", Value::Null),
            piece(" add.", json!("t")),
        ]);
        assert_eq!(
            json!(blocks),
            json!([
                {"type": "thinking", "thinking": "I multiply.", "signature": "s"},
                {"type": "redacted_thinking", "data": "AA"},
                {"type": "redacted_thinking", "data": "BB"},
                {"type": "thinking", "thinking": "And add.", "signature": "t"},
            ])
        );
        assert_eq!(details_text(&json!(blocks)), "I multiply.And add.");
    }

    #[test]
    fn signed_members_of_calls_are_kept_whole_and_bounded() {
        let (mut members, mut size) = (Map::new(), KeptSize::default());
        let signed = |text: &str| json!({"google": {"thought_signature": text}});
        for piece in [
            json!({"index": 0, "extra_content": null, "function": {"name": "f"}}),
            json!({"extra_content": signed("AA"), "other": "x"}),
            // A mark of a thought, and no signature.
            json!({"extra_content": {"google": {"thought": true}}}),
            json!({"provider_specific_fields": {"thought_signature": "BB"}}),
        ] {
            keep_call_members(&piece, &mut members, &mut size);
        }
        assert_eq!(
            json!(members),
            json!({"extra_content": signed("AA"), "provider_specific_fields": {"thought_signature": "BB"}})
        );
        let large = json!({"extra_content": signed(&"A".repeat(REASONING_DETAILS_BYTES))});
        keep_call_members(&large, &mut members, &mut size);
        assert!(!members.contains_key("extra_content"), "{members:?}");
    }

    #[test]
    fn the_text_is_that_of_all_parts() {
        let details = json!([{"text": "a"}, {"data": "AA"}, {"summary": "b"}, 7]);
        assert_eq!(details_text(&details), "ab");
    }

    #[test]
    fn long_reasoning_in_small_pieces_is_kept() {
        let piece = json!([{"type": "reasoning.text", "format": "f", "index": 0, "text": "word "}]);
        let chunks = vec![piece; 20_000];
        assert_eq!(taken(&chunks)[0]["text"].as_str().unwrap().len(), 100_000);
    }

    #[test]
    fn too_much_is_nothing() {
        let large =
            json!([{"type": "reasoning.encrypted", "data": "A".repeat(REASONING_DETAILS_BYTES)}]);
        let small = json!([{"type": "reasoning.encrypted", "data": "A"}]);
        assert!(taken(&[small.clone(), large, small.clone()]).is_empty());
        let many: Vec<Value> = (0..=MAX_PARTS).map(|n| json!({"data": n})).collect();
        assert!(taken(&[json!(many)]).is_empty());
        // Less text than may be kept, and much memory.
        let tiny = json!([{"type": "t", "data": vec![json!([]); MAX_VALUES]}]);
        assert!(tiny.to_string().len() < REASONING_DETAILS_BYTES);
        assert!(taken(&[tiny, small]).is_empty());
    }
}
