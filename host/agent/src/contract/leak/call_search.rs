//! Search for calls in the text of a reply while it is written, for readers who are shown it meanwhile.
//!
//! What [`places`](super::places) finds in a complete text is found here while the text grows, and a mark is left out where it
//! opens no call: in code, and within a sentence. So a text that quotes a mark there is not held.

use super::SENTENCE_ENDS;
use super::framed::FENCE;
use super::marks::{Mark, is_begun, opening, past_around, trim_around};
use super::unknown::MAX_UNDECIDED;
use toolhold_json::rules::ReadingRules;

/// The rules by which a reply that is written now is read.
const RULES: ReadingRules = ReadingRules::Current;
/// Bytes of the text before a mark in which the end of a sentence is looked for. Special tokens may stand between; behind more
/// of them a mark counts as a call.
const MAX_BEFORE: usize = 256;

/// Follows the text of one reply, which begins with no call.
#[derive(Debug, Clone, Default)]
pub struct CallSearch {
    /// The end of the text that was passed.
    before: String,
    /// True if something else than white space stands on the line so far.
    has_text: bool,
    /// Backticks on the line so far.
    ticks: usize,
    /// True inside of a fence.
    is_in_fence: bool,
    /// True on the line with the mark of a fence.
    is_fence_line: bool,
}

/// The beginning of a text that is no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProseLength {
    pub bytes: usize,
    /// True if the mark of a call, or one around calls, stands behind it. Whether it is a call, the complete reply shows. False
    /// where more text has to come to tell.
    pub is_before_call: bool,
}

/// Kind of a place in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    /// Number of bytes that are no call.
    Prose(usize),
    Undecided,
    Call,
}

impl CallSearch {
    /// Passes the beginning of `text` up to where a call may begin. What is not passed is the beginning of the next `text`.
    pub fn pass(&mut self, text: &str) -> ProseLength {
        let mut bytes = 0;
        while let Some(rest) = text.get(bytes..)
            && let Some(c) = rest.chars().next()
        {
            match self.kind(rest, c) {
                PlaceKind::Prose(length) => {
                    let passed = rest.char_indices().take_while(|(at, _)| *at < length);
                    for (at, c) in passed {
                        self.note(rest.get(at..).unwrap_or_default(), c);
                    }
                    bytes += length;
                }
                kind => {
                    return ProseLength {
                        bytes,
                        is_before_call: kind == PlaceKind::Call,
                    };
                }
            }
        }
        ProseLength {
            bytes,
            is_before_call: false,
        }
    }

    /// Returns what may begin at `rest`, whose first character is `c`.
    fn kind(&self, rest: &str, c: char) -> PlaceKind {
        if c == '`' && !self.has_text {
            return self.fence(rest);
        }
        let is_code = self.is_in_fence || self.is_fence_line || self.ticks % 2 == 1;
        if is_code || !matches!(c, '<' | '[') {
            return PlaceKind::Prose(c.len_utf8());
        }
        let start = past_around(RULES, rest);
        let around = rest.get(..rest.len() - start.len()).unwrap_or_default();
        if start.is_empty() || is_begun(RULES, start) {
            let marks = around.trim_end().len();
            // Behind so many marks around calls a call may begin, and none behind so many blanks.
            return if marks > MAX_UNDECIDED {
                PlaceKind::Call
            } else if around.len() > MAX_UNDECIDED {
                PlaceKind::Prose(marks.max(c.len_utf8()))
            } else {
                PlaceKind::Undecided
            };
        }
        match opening(RULES, start) {
            Some(mark) if self.may_open(mark, around) => PlaceKind::Call,
            // Each of the marks around is read once.
            _ => PlaceKind::Prose(around.len().max(c.len_utf8())),
        }
    }

    /// Returns what backticks may be that begin a line.
    fn fence(&self, rest: &str) -> PlaceKind {
        let is_short = rest.len() < FENCE.len() && FENCE.starts_with(rest);
        if is_short || (!self.is_in_fence && is_begun(RULES, rest)) {
            PlaceKind::Undecided
        } else if !self.is_in_fence && opening(RULES, rest).is_some() {
            PlaceKind::Call
        } else {
            PlaceKind::Prose(1)
        }
    }

    /// Whether a call may begin with `mark` behind the text so far and the marks `around` it: at the begin of a line, behind a
    /// sentence, and with special tokens anywhere.
    fn may_open(&self, mark: &Mark, around: &str) -> bool {
        let last_line = around.rsplit_once('\n').map(|(_, line)| line);
        // A fence has its line for itself.
        if mark.open.starts_with(FENCE) {
            return last_line.is_some_and(|line| line.trim().is_empty());
        }
        let begins_line = !self.has_text || last_line.is_some();
        mark.is_token || begins_line || self.is_behind_sentence()
    }

    fn is_behind_sentence(&self) -> bool {
        let before = trim_around(RULES, &self.before);
        before.is_empty() || before.ends_with(SENTENCE_ENDS)
    }

    /// Takes the character that `rest` begins with as text.
    fn note(&mut self, rest: &str, c: char) {
        if c == '\n' {
            self.has_text = false;
            self.ticks = 0;
            self.is_fence_line = false;
        } else {
            if c == '`' && !self.has_text && rest.starts_with(FENCE) {
                self.is_in_fence = !self.is_in_fence;
                self.is_fence_line = true;
            }
            self.ticks += usize::from(c == '`');
            self.has_text |= !c.is_whitespace();
        }
        self.before.push(c);
        if self.before.len() > 2 * MAX_BEFORE {
            let from = self.before.len() - MAX_BEFORE;
            self.before.drain(..self.before.ceil_char_boundary(from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::leak::places;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::iter;

    /// The prose of a text that comes in these pieces, and whether a call may stand behind it.
    fn prose(pieces: &[&str]) -> (String, bool) {
        let mut search = CallSearch::default();
        let (mut passed, mut held) = (String::new(), String::new());
        for piece in pieces {
            held.push_str(piece);
            let length = search.pass(&held);
            passed.extend(held.drain(..length.bytes));
            if length.is_before_call {
                return (passed, true);
            }
        }
        (passed, false)
    }

    #[test]
    fn a_mark_that_is_quoted_opens_no_call() {
        for text in [
            "Hermes writes `<tool_call>` and waits.",
            "Hermes writes <tool_call> and waits.",
            "It is <tool_call>{\"name\": \"news\"}</tool_call>, as you see.",
            "The form:\n```\n<tool_call>{\"name\": \"news\"}</tool_call>\n```\nThat is all.",
            "The form:\n```xml\n[TOOL_CALLS][]\n```\nThat is all.",
            "A turn ends with </s> here.",
            "`[TOOL_CALLS]` is Mistral's.",
            "Both `a` and `<|python_tag|>` are.",
            "a < b [c] ``d`` <e>",
        ] {
            assert_eq!(prose(&[text]), (text.to_owned(), false));
        }
    }

    #[test]
    fn a_mark_at_which_a_call_may_begin_ends_the_prose() {
        for (before, call) in [
            ("I look.\n", "<tool_call>{"),
            ("I look.\n", "</s>\n<tool_call>{"),
            ("I look. ", "</s> <tool_call>{"),
            ("Sure! ", "<tool_call>{"),
            ("Sure!<|sep|> ", "<tool_call>{"),
            ("I look: ", "[TOOL_CALLS][{"),
            ("I look:\n", "```tool_code\nnews()"),
            ("In a `line`:\n", "<tool_call>{"),
            ("```\ncode\n```\n", "<tool_call>{"),
            ("An open `tick\n", "<tool_call>{"),
        ] {
            let found = prose(&[before, call]);
            assert_eq!(found, (before.to_owned(), true), "{before}{call}");
        }
    }

    /// Their cost is measured by `replies_that_are_shown_while_they_come` of host/fuzz.
    #[test]
    fn marks_around_calls_are_held_up_to_a_bound() {
        let marks = "</s>".repeat(MAX_UNDECIDED);
        assert_eq!(prose(&[&marks]), (String::new(), true));
        let pieces = vec!["</s>"; MAX_UNDECIDED];
        assert_eq!(prose(&pieces), (String::new(), true));
        // A word ends what is held, so the search goes on.
        let pieces = ["</s>", " a"].repeat(MAX_UNDECIDED);
        assert_eq!(prose(&pieces), (pieces.concat(), false));
    }

    #[test]
    fn many_blanks_behind_a_mark_around_calls_open_no_call() {
        let mut pieces = vec!["It is 4.", "</s>"];
        pieces.extend(iter::repeat_n(" ", 2 * MAX_UNDECIDED));
        let blank = pieces.concat();
        assert_eq!(prose(&[&blank]), (blank.clone(), false));
        pieces.push("a");
        let text = pieces.concat();
        assert_eq!(prose(&[&text]), (text.clone(), false));
        assert_eq!(prose(&pieces), (text, false));
    }

    proptest! {
        /// The first mark of a complete text that may open a call ends the prose, and a cut changes nothing.
        #[test]
        fn the_search_finds_what_is_found_in_the_complete_text(
            parts in prop::collection::vec(select(vec![
                "I look", ". ", "! ", ": ", " ", "\n", "`", "```", "```tool_code", "<tool_call>", "<tools>", "</tool_call>",
                "</s>", "<|x|>", "<|im_end|>", "[TOOL_CALLS]", "<", "[", "|", "a", "é",
            ]), 0..12),
        ) {
            let text = format!("It {}", parts.concat());
            let opens = |at: usize, mark: &Mark| {
                let before = trim_around(RULES, text.get(..at).unwrap_or_default());
                mark.is_token || before.ends_with(SENTENCE_ENDS)
            };
            let mut places = places(RULES, &text).into_iter();
            let first = places.find(|place| place.begins_line || opens(place.at, place.mark));
            let (passed, is_before_call) = prose(&[&text]);
            match first {
                Some(place) => {
                    prop_assert!(is_before_call, "{:?}", text);
                    let held = text.get(passed.len()..).unwrap_or_default();
                    let call = text.get(place.at..).unwrap_or_default();
                    prop_assert_eq!(past_around(RULES, held), call, "{:?}", text);
                }
                None => prop_assert!(!is_before_call, "{:?}", text),
            }
            for (at, _) in text.char_indices() {
                let (head, tail) = text.split_at(at);
                prop_assert_eq!(prose(&[head, tail]), (passed.clone(), is_before_call), "{:?} at {}", text, at);
            }
        }
    }
}
