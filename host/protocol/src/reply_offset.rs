//! Places in a reply, and in the stream of a run's events: how much of each text of the reply a reader has.

use crate::completion::{ChatToolCall, Completion, Delta};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use thiserror::Error;

/// Length of each text of a reply up to a place in it, in bytes of UTF-8. The texts are counted apart, because models
/// write them in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplyOffset {
    #[serde(skip_serializing_if = "is_zero")]
    pub content: usize,
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: usize,
    /// Arguments of each call that has begun.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<usize>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(length: &usize) -> bool {
    *length == 0
}

/// Largest number of a call that counts: a piece of a later one moves nothing. The client's limit of calls in a reply is
/// lower.
const MAX_CALLS: usize = 1 << 12;

impl ReplyOffset {
    /// True at the beginning of the reply.
    pub fn is_beginning(&self) -> bool {
        *self == Self::default()
    }

    /// Moves the place behind the next piece of the reply. A place that a client sent may be anywhere.
    pub fn pass(&mut self, piece: &Delta) {
        match piece {
            Delta::Content(text) => self.content = self.content.saturating_add(text.len()),
            Delta::Reasoning(text) => self.reasoning = self.reasoning.saturating_add(text.len()),
            Delta::ToolCall {
                index, arguments, ..
            } => {
                if *index >= MAX_CALLS {
                    return;
                }
                if self.calls.len() <= *index {
                    self.calls.resize(*index + 1, 0);
                }
                if let Some(length) = self.calls.get_mut(*index) {
                    *length = length.saturating_add(arguments.len());
                }
            }
        }
    }

    /// The text of `reply` behind this place, one piece for each of its texts. A place inside of a character is taken
    /// for the end of that character.
    pub fn rest(&self, reply: &Completion) -> Vec<Delta> {
        let mut rest = Vec::new();
        if let Some(text) = behind(&reply.reasoning, self.reasoning) {
            rest.push(Delta::Reasoning(text));
        }
        if let Some(text) = behind(&reply.content, self.content) {
            rest.push(Delta::Content(text));
        }
        for (index, call) in reply.tool_calls.iter().enumerate() {
            match self.calls.get(index) {
                None => rest.push(Delta::ToolCall {
                    index,
                    id: Some(call.id.clone()),
                    name: Some(call.name.clone()),
                    arguments: call.arguments.clone(),
                }),
                Some(length) => {
                    if let Some(arguments) = behind(&call.arguments, *length) {
                        rest.push(Delta::ToolCall {
                            index,
                            id: None,
                            name: None,
                            arguments,
                        });
                    }
                }
            }
        }
        rest
    }

    /// The part of a piece that begins at `from` and that is behind this place. `None`: there is none, or text is missing
    /// between the two.
    pub fn rest_of(&self, piece: &Delta, from: &Self) -> Option<Delta> {
        match piece {
            Delta::Content(text) => {
                let known = self.content.checked_sub(from.content)?;
                behind(text, known).map(Delta::Content)
            }
            Delta::Reasoning(text) => {
                let known = self.reasoning.checked_sub(from.reasoning)?;
                behind(text, known).map(Delta::Reasoning)
            }
            Delta::ToolCall {
                index,
                id,
                name,
                arguments,
            } => {
                let begun = from.calls.get(*index).copied();
                let Some(length) = self.calls.get(*index) else {
                    // With its name, if this is its first piece.
                    return begun.is_none().then(|| piece.clone());
                };
                let known = length.checked_sub(begun.unwrap_or_default())?;
                // An endpoint may name a call after it has begun.
                if known == 0 && begun.is_some() && (id.is_some() || name.is_some()) {
                    return Some(piece.clone());
                }
                let arguments = behind(arguments, known)?;
                Some(Delta::ToolCall {
                    index: *index,
                    id: None,
                    name: None,
                    arguments,
                })
            }
        }
    }

    /// True if text of the reply is missing between this place and the one where `piece` begins.
    pub fn lacks_before(&self, piece: &Delta, from: &Self) -> bool {
        match piece {
            Delta::Content(_) => self.content < from.content,
            Delta::Reasoning(_) => self.reasoning < from.reasoning,
            Delta::ToolCall { index, .. } => self.calls.get(*index) < from.calls.get(*index),
        }
    }
}

/// The text from `length` bytes on; `None` if that is nothing.
fn behind(text: &str, length: usize) -> Option<String> {
    let mut from = length;
    while from < text.len() && !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = text.get(from..)?;
    (!rest.is_empty()).then(|| rest.to_owned())
}

impl Completion {
    /// Length of its texts together, in bytes.
    pub fn text_bytes(&self) -> usize {
        let calls = self.tool_calls.iter();
        let arguments: usize = calls.map(|call| call.arguments.len()).sum();
        self.content.len() + self.reasoning.len() + arguments
    }

    /// Adds the next piece to a reply that is being written.
    pub fn add(&mut self, piece: &Delta) {
        match piece {
            Delta::Content(text) => self.content.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::ToolCall {
                index,
                id,
                name,
                arguments,
            } => {
                if *index >= MAX_CALLS {
                    return;
                }
                if self.tool_calls.len() <= *index {
                    self.tool_calls.resize(*index + 1, ChatToolCall::default());
                }
                if let Some(call) = self.tool_calls.get_mut(*index) {
                    if let Some(id) = id {
                        call.id.clone_from(id);
                    }
                    if let Some(name) = name {
                        call.name.clone_from(name);
                    }
                    call.arguments.push_str(arguments);
                }
            }
        }
    }
}

/// Place in the stream of a run's events: an event, and how much of the reply after it was shown. As text, which is the id
/// of a server-sent event: `SEQ`, or in the middle of a reply `SEQ.CONTENT.REASONING` and the length of each call's arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamPosition {
    /// Number of the last recorded event.
    pub seq: u64,
    pub offset: ReplyOffset,
}

impl Display for StreamPosition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { seq, offset } = self;
        write!(f, "{seq}")?;
        if offset.is_beginning() {
            return Ok(());
        }
        write!(f, ".{}.{}", offset.content, offset.reasoning)?;
        offset
            .calls
            .iter()
            .try_for_each(|call| write!(f, ".{call}"))
    }
}

/// A text is no place in a stream of events.
#[derive(Debug, Clone, Copy, Error)]
#[error("no id of an event of this stream")]
pub struct NoStreamPosition;

impl FromStr for StreamPosition {
    type Err = NoStreamPosition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        fn number<T: FromStr>(text: &str) -> Result<T, NoStreamPosition> {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_number);
            number.ok_or(NoStreamPosition)
        }
        let mut parts = text.split('.');
        let seq = number(parts.next().unwrap_or_default())?;
        let lengths: Vec<usize> = parts
            .take(MAX_CALLS)
            .map(number)
            .collect::<Result<_, _>>()?;
        let offset = match lengths.as_slice() {
            [] => ReplyOffset::default(),
            [content, reasoning, calls @ ..] => ReplyOffset {
                content: *content,
                reasoning: *reasoning,
                calls: calls.to_vec(),
            },
            [_] => return Err(NoStreamPosition),
        };
        Ok(Self { seq, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(index: usize, name: Option<&str>, arguments: &str) -> Delta {
        Delta::ToolCall {
            index,
            id: name.map(str::to_owned),
            name: name.map(str::to_owned),
            arguments: arguments.into(),
        }
    }

    fn pieces() -> impl Strategy<Value = Vec<Delta>> {
        let text = "[a-z é🦀]{0,6}";
        let piece = prop_oneof![
            text.prop_map(Delta::Content),
            text.prop_map(Delta::Reasoning),
            (0..3_usize, text).prop_map(|(index, text)| call(index, None, &text)),
        ];
        prop::collection::vec(piece, 0..20).prop_map(|mut pieces| {
            let begins = (0..3).map(|index| call(index, Some("f"), ""));
            pieces.splice(0..0, begins);
            pieces
        })
    }

    proptest! {
        #[test]
        fn the_rest_of_a_reply_completes_what_was_read(pieces in pieces(), cut in 0..24_usize) {
            let (mut whole, mut read, mut place) = <(Completion, Completion, ReplyOffset)>::default();
            for (at, piece) in pieces.iter().enumerate() {
                whole.add(piece);
                if at < cut {
                    read.add(piece);
                    place.pass(piece);
                }
            }
            let text = StreamPosition { seq: 7, offset: place.clone() };
            prop_assert_eq!(text.to_string().parse::<StreamPosition>().unwrap(), text);
            for piece in place.rest(&whole) {
                read.add(&piece);
                place.pass(&piece);
            }
            prop_assert_eq!(&read, &whole);
            prop_assert!(place.rest(&whole).is_empty());
        }

        #[test]
        fn a_piece_is_read_once(pieces in pieces(), known in 0..24_usize) {
            let (mut whole, mut read) = <(Completion, Completion)>::default();
            let (mut place, mut at) = <(ReplyOffset, ReplyOffset)>::default();
            for piece in pieces.iter().take(known) {
                read.add(piece);
                place.pass(piece);
            }
            for piece in &pieces {
                whole.add(piece);
                prop_assert!(!place.lacks_before(piece, &at));
                if let Some(rest) = place.rest_of(piece, &at) {
                    read.add(&rest);
                    place.pass(&rest);
                }
                at.pass(piece);
            }
            prop_assert_eq!(read, whole);
        }
    }

    #[test]
    fn a_place_inside_of_a_character_is_behind_it() {
        let reply = Completion {
            content: "aé🦀z".into(),
            ..Completion::default()
        };
        for (content, rest) in [(0, "aé🦀z"), (2, "🦀z"), (3, "🦀z"), (5, "z")] {
            let place = ReplyOffset {
                content,
                ..ReplyOffset::default()
            };
            assert_eq!(
                place.rest(&reply),
                [Delta::Content(rest.into())],
                "{content}"
            );
        }
    }

    #[test]
    fn a_name_that_comes_late_is_shown() {
        for late in ["", "{"] {
            let pieces = [
                call(0, None, ""),
                call(0, Some("f"), late),
                call(0, None, "}"),
            ];
            let (mut read, mut whole) = <(Completion, Completion)>::default();
            let mut place = ReplyOffset::default();
            for piece in &pieces {
                whole.add(piece);
                let rest = place.rest_of(piece, &place).unwrap();
                read.add(&rest);
                place.pass(&rest);
            }
            assert_eq!(read, whole);
            assert_eq!(read.tool_calls[0].name, "f");
        }
    }

    #[test]
    fn a_place_that_no_reply_has_goes_no_further() {
        let largest = usize::MAX;
        let id = format!("0.{largest}.{largest}.{largest}");
        let mut place = id.parse::<StreamPosition>().unwrap().offset;
        let before = place.clone();
        for piece in [
            Delta::Content("a".into()),
            Delta::Reasoning("a".into()),
            call(0, None, "a"),
        ] {
            place.pass(&piece);
        }
        assert_eq!(place, before);
    }

    #[test]
    fn a_gap_before_a_piece_is_noticed() {
        let mut from = ReplyOffset::default();
        from.pass(&Delta::Content("ab".into()));
        let piece = Delta::Content("c".into());
        let place = ReplyOffset::default();
        assert!(place.lacks_before(&piece, &from));
        assert_eq!(place.rest_of(&piece, &from), None);
        assert!(!place.lacks_before(&Delta::Reasoning("c".into()), &from));
    }

    #[test]
    fn ids_of_events_are_read_strictly() {
        for text in ["", "a", "+1", "1.", "1.2", "1.2.x", "-1", "1.2.3.", "1 "] {
            assert!(text.parse::<StreamPosition>().is_err(), "{text}");
        }
        assert_eq!("12".parse::<StreamPosition>().unwrap().seq, 12);
    }
}
