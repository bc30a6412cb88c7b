//! Whether a reply begins like a call, for readers who are shown its text while it is written.

use super::frames::{BARS, FRAMES, FrameKind, MAX_MARK, NAMESPACE, mark, without_namespace};
use super::word;
use crate::contract::leak::marks::{is_begun, opening, past_around};
use crate::contract::thought;
use toolhold_json::rules::ReadingRules;

/// Maximum bytes of a reply that is not known to be text. A longer beginning counts as marks.
pub(in crate::contract::leak) const MAX_UNDECIDED: usize = 1024;

/// The kind of text that a reply begins with, for readers who are shown it while it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReplyOpening {
    /// There is too little of it to tell.
    #[default]
    Undecided,
    /// Perhaps a call, which the complete reply shows.
    Marks,
    Text,
}

impl ReplyOpening {
    /// The kind of `text`, the beginning of a reply that is JSON or calls. There JSON is a call only between marks of calls:
    /// between other ones (`<answer>`) it is the answer.
    pub fn before_json(text: &str) -> Self {
        bounded(kind(text, true), text)
    }
}

/// The kind of `text`, the beginning of a reply that is text or calls.
pub(in crate::contract::leak) fn opening_of(text: &str) -> ReplyOpening {
    bounded(kind(text, false), text)
}

/// Marks, where too long a text does not tell.
fn bounded(kind: ReplyOpening, text: &str) -> ReplyOpening {
    match kind {
        ReplyOpening::Undecided if text.len() > MAX_UNDECIDED => ReplyOpening::Marks,
        kind => kind,
    }
}

/// `is_json`: what stands behind other marks than those of calls is no call.
fn kind(text: &str, is_json: bool) -> ReplyOpening {
    let rules = ReadingRules::Current;
    let begun = past_around(rules, text);
    if opening(rules, begun).is_some() {
        return ReplyOpening::Marks;
    }
    let start = text.trim_start();
    if thought::is_opened(start) {
        return ReplyOpening::Text;
    }
    if begun.is_empty() || is_begun(rules, begun) || NAMESPACE.starts_with(start) {
        return ReplyOpening::Undecided;
    }
    let plain = without_namespace(start);
    let mut rest = plain.trim_start();
    let mut has_mark = false;
    while let Some((mark, after)) = mark(rules, rest) {
        if mark.is_of_calls() {
            return ReplyOpening::Marks;
        }
        has_mark = true;
        rest = after.trim_start();
    }
    if is_open_mark(rest) {
        return ReplyOpening::Undecided;
    }
    if !has_mark || (is_json && !rest.is_empty()) {
        return ReplyOpening::Text;
    }
    // Behind other marks, what follows decides.
    let (name, after) = word(rest);
    if rest.is_empty() || after.is_empty() {
        ReplyOpening::Undecided
    } else if rest.starts_with(['{', '[', '<', '`']) || is_compound(name) {
        ReplyOpening::Marks
    } else {
        ReplyOpening::Text
    }
}

/// Whether it may be the name of a tool, which other words are not taken for.
fn is_compound(name: &str) -> bool {
    name.starts_with(char::is_alphabetic) && name.contains(['.', '-', '_'])
}

/// Whether more text may make a mark of it.
fn is_open_mark(text: &str) -> bool {
    FRAMES.iter().any(|frame| {
        if frame.open.starts_with(text) && !text.is_empty() {
            return true;
        }
        let Some(inner) = text.strip_prefix(frame.open) else {
            return false;
        };
        let name = inner.trim_start_matches(BARS).trim_start_matches('/');
        let begins = match frame.kind {
            FrameKind::Square => name.chars().all(|c| c.is_ascii_uppercase() || c == '_'),
            _ => name.is_empty() || name.starts_with(|c: char| c.is_alphabetic() || c == '_'),
        };
        begins
            && inner.len() < MAX_MARK
            && !inner.contains(['<', '\n'])
            && !inner.contains(frame.close)
    })
}
