//! Search for calls in the text of a reply while it is written, for readers who are shown it meanwhile.
//!
//! What [`places`](super::places) finds in a complete text is found here while the text grows, and a mark is left out where it
//! opens no call: in code, within a sentence, and before a text with which no call begins ([`BodyOpening`]). So a text that
//! quotes a mark is held no longer than until that is known.

use super::SENTENCE_ENDS;
use super::bare_opening::OfferedNames;
use super::body_opening::{BodyKind, BodyOpening};
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
    /// The tools that the reply may call. Without any, each word may be one.
    names: OfferedNames,
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
    /// The mark of a call that the text begins with which was not passed.
    opened: Option<OpenedCall>,
}

/// The beginning of a text that is no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProseLength {
    pub bytes: usize,
    /// True if the mark of a call, or one around calls, stands behind it, with the beginning of a call. Whether it is a call, the
    /// complete reply shows. False where more text has to come to tell.
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

/// A mark at which a call may begin, and the text behind it, of which there is too little to tell.
#[derive(Debug, Clone)]
struct OpenedCall {
    /// Bytes of the mark, and of those around calls before it. Without a call, these are prose.
    length: usize,
    /// Bytes that were read: up to the end of the text so far.
    read: usize,
    body: BodyOpening,
}

impl CallSearch {
    /// The search in a reply that may call these tools.
    pub fn of(names: OfferedNames) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    /// Passes the beginning of `text` up to where a call may begin. What is not passed is the beginning of the next `text`.
    pub fn pass(&mut self, text: &str) -> ProseLength {
        self.pass_in(text, false)
    }

    /// Returns the length of prose as [`Self::pass`] does, in a reply whose answer is JSON. Any mark outside of code may open
    /// a call there, also within a sentence, and of any name: an object behind it is arguments, and no answer. A brace
    /// behind a mark always decides.
    pub fn pass_before_json(&mut self, text: &str) -> ProseLength {
        self.pass_in(text, true)
    }

    /// True if the text that was not passed begins with the mark of a call. Where the reply ends there, it may be one.
    pub fn is_at_call(&self) -> bool {
        self.opened.is_some()
    }

    fn pass_in(&mut self, text: &str, is_json: bool) -> ProseLength {
        let mut bytes = 0;
        while let Some(rest) = text.get(bytes..)
            && let Some(c) = rest.chars().next()
        {
            let kind = match self.opened.take() {
                Some(opened) => self.follow(opened, rest),
                None => self.kind(rest, c, is_json),
            };
            match kind {
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
    fn kind(&mut self, rest: &str, c: char, is_json: bool) -> PlaceKind {
        if c == '`' && !self.has_text {
            return self.fence(rest, is_json);
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
            Some(mark) if self.may_open(mark, around, is_json) => {
                self.open(mark, around.len(), rest, is_json)
            }
            // Each of the marks around is read once.
            _ => PlaceKind::Prose(around.len().max(c.len_utf8())),
        }
    }

    /// Returns what backticks may be that begin a line.
    fn fence(&mut self, rest: &str, is_json: bool) -> PlaceKind {
        let is_short = rest.len() < FENCE.len() && FENCE.starts_with(rest);
        if is_short || (!self.is_in_fence && is_begun(RULES, rest)) {
            return PlaceKind::Undecided;
        }
        match opening(RULES, rest) {
            Some(mark) if !self.is_in_fence => self.open(mark, 0, rest, is_json),
            _ => PlaceKind::Prose(1),
        }
    }

    /// Returns what `mark` is, which stands in `rest` behind `around` bytes of marks around calls.
    fn open(&mut self, mark: &Mark, around: usize, rest: &str, is_json: bool) -> PlaceKind {
        let names = if is_json {
            OfferedNames::default()
        } else {
            self.names.clone()
        };
        let length = around + mark.open.len();
        let opened = OpenedCall {
            length,
            // A mark that holds the name of the tool is part of the call.
            read: if mark.is_named { around } else { length },
            body: BodyOpening::of(mark, names),
        };
        self.follow(opened, rest)
    }

    /// Reads on behind a mark, and returns what it is. A text that does not tell within [`MAX_UNDECIDED`] bytes counts as a call.
    fn follow(&mut self, mut opened: OpenedCall, rest: &str) -> PlaceKind {
        for c in rest.get(opened.read..).unwrap_or_default().chars() {
            opened.read += c.len_utf8();
            match opened.body.push(c) {
                BodyKind::Other => return PlaceKind::Prose(opened.length),
                BodyKind::Undecided if opened.read <= MAX_UNDECIDED => {}
                BodyKind::Undecided | BodyKind::Call => return PlaceKind::Call,
            }
        }
        self.opened = Some(opened);
        PlaceKind::Undecided
    }

    /// Whether a call may begin with `mark` behind the text so far and the marks `around` it: at the begin of a line, behind a
    /// sentence, and with special tokens and before JSON anywhere.
    fn may_open(&self, mark: &Mark, around: &str, is_json: bool) -> bool {
        let last_line = around.rsplit_once('\n').map(|(_, line)| line);
        // A fence has its line for itself.
        if mark.open.starts_with(FENCE) {
            return last_line.is_some_and(|line| line.trim().is_empty());
        }
        let begins_line = !self.has_text || last_line.is_some();
        is_json || mark.is_token || begins_line || self.is_behind_sentence()
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
    use crate::contract::leak::body::CallableNames;
    use crate::contract::leak::closing::ClosingMark;
    use crate::contract::leak::marks::marks;
    use crate::contract::leak::{MarkPlace, front_only, places};
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::iter;
    use std::sync::Arc;
    use toolhold_json::repair::TextEnd;
    use toolhold_protocol::function_names::ToolNames;
    use toolhold_protocol::tool::Tool;

    const TOOLS: [&str; 2] = ["weather.now", "news"];

    /// The prose of a text that comes in these pieces, and whether a call may stand behind it.
    fn prose(pieces: &[&str]) -> (String, bool) {
        searched(CallSearch::default(), pieces, CallSearch::pass)
    }

    /// [`prose`], where the tools are known.
    fn prose_of_tools(pieces: &[&str]) -> (String, bool) {
        let search = CallSearch::of(OfferedNames::of(TOOLS));
        searched(search, pieces, CallSearch::pass)
    }

    fn searched(
        mut search: CallSearch,
        pieces: &[&str],
        pass: fn(&mut CallSearch, &str) -> ProseLength,
    ) -> (String, bool) {
        let (mut passed, mut held) = (String::new(), String::new());
        for piece in pieces {
            held.push_str(piece);
            let length = pass(&mut search, &held);
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

    #[test]
    fn prose_behind_a_mark_is_passed_before_the_reply_ends() {
        for mark in marks(RULES) {
            let more = "And so it is. ".repeat(25);
            let text = format!("It is so.\n{} is the mark of a call. {more}", mark.open);
            assert_eq!(prose_of_tools(&[&text]), (text.clone(), false));
            for (at, _) in text.char_indices().take(80) {
                let (head, tail) = text.split_at(at);
                let found = prose_of_tools(&[head, tail]);
                assert_eq!(found, (text.clone(), false), "{text} at {at}");
            }
        }
    }

    #[test]
    fn a_call_behind_a_quoted_mark_ends_the_prose() {
        let quoted = "<tool_call> and </tool_call> enclose a call.\n";
        for call in [
            "<tool_call>{\"name\": \"news\"}",
            "<tool_call>news</tool_call>",
            "<function=news>",
            "[TOOL_CALLS]news[ARGS]{}",
        ] {
            let before = format!("It is so.\n{quoted}");
            let found = prose_of_tools(&[&before, call]);
            assert_eq!(found, (before.clone(), true), "{call}");
            let letters: Vec<String> = call.chars().map(String::from).collect();
            let mut pieces = vec![before.as_str()];
            pieces.extend(letters.iter().map(String::as_str));
            assert_eq!(prose_of_tools(&pieces), (before.clone(), true), "{call}");
        }
    }

    /// The end of the reply shows whether a call without arguments stands there.
    #[test]
    fn a_name_at_the_end_is_held() {
        let mut search = CallSearch::of(OfferedNames::of(TOOLS));
        for (text, bytes, is_at_call) in [
            ("It is so.\n<tool_call>", 10, true),
            ("<tool_call>news", 0, true),
            ("<tool_call>news ", 0, true),
            ("<tool_call>news are", 19, false),
        ] {
            let length = search.pass(text);
            assert_eq!((length.bytes, search.is_at_call()), (bytes, is_at_call));
            assert!(!length.is_before_call, "{text}");
        }
    }

    #[test]
    fn a_long_word_behind_a_mark_counts_as_a_call() {
        let word = "a".repeat(MAX_UNDECIDED);
        let text = format!("It is so.\n<tool_call>{word} b");
        assert_eq!(prose_of_tools(&[&text]), ("It is so.\n".to_owned(), true));
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(prose_of_tools(&pieces), ("It is so.\n".to_owned(), true));
    }

    #[test]
    fn a_mark_within_a_sentence_opens_a_call_before_json() {
        let search = || CallSearch::of(OfferedNames::of(TOOLS));
        for (before, call) in [
            ("I convert it: ", "<function=other>{"),
            ("I convert it with ", "<tool_call>other\n{"),
            ("Hermes writes ", "<tool_call>{"),
        ] {
            let text = before.to_owned() + call;
            let found = searched(search(), &[&text], CallSearch::pass_before_json);
            assert_eq!(found, (before.to_owned(), true), "{text}");
            assert_eq!(prose_of_tools(&[&text]), (text.clone(), false), "{text}");
        }
        for text in [
            "Hermes writes `<tool_call>{`, then {",
            "Hermes writes <tool_call> and then: {",
        ] {
            let found = searched(search(), &[text], CallSearch::pass_before_json);
            assert_eq!(found, (text.to_owned(), false));
        }
    }

    /// Whether the readers of complete replies may find a call at a place.
    fn is_call(text: &str, place: &MarkPlace, offer: &CallableNames) -> bool {
        let (before, start) = text.split_at(place.at);
        let is_last = || front_only(start, offer, TextEnd::Own).is_some();
        let is_whole = || ClosingMark::of(place.mark).find(start, offer).is_some();
        let is_behind_sentence = trim_around(RULES, before).ends_with(SENTENCE_ENDS);
        ((place.mark.is_token || place.begins_line) && is_last())
            || (is_behind_sentence && is_whole())
    }

    proptest! {
        /// No part of a call of the complete text is passed, whether the names are known or not, and a cut changes nothing.
        #[test]
        fn a_call_that_is_found_in_the_complete_text_is_not_passed(
            parts in prop::collection::vec(select(vec![
                "I look", ". ", "! ", ": ", " ", "\n", "`", "```", "```tool_code", "<tool_call>", "<tools>", "</tool_call>",
                "</s>", "<|x|>", "<|im_end|>", "[TOOL_CALLS]", "<", "[", "|", "a", "é", "\n<tool_call>", "\n<tool_calls>",
                "</tool_calls>", "{\"name\": \"news\", \"arguments\": {}}", "[{\"name\": \"news\"}]", "{}", "news", "news()",
                "weather-now", "to=news(", ")", "[ARGS]", "<function=news>", "</function>", "\n<invoke name=\"news\">",
                "</invoke>", "<arg_key>q</arg_key>", "<arg_value>1</arg_value>", "<|tool_call>", "call:news{}", "<tool_call|>",
                "<|channel|>commentary", "<|start|>assistant", " to=functions.news", "<|message|>", "<|call|>", "is ", "Then ",
                "\n<tool_call>{\"name\": \"news\"}</tool_call>", "\n<tool_call> is one.\n", "\n```tool_code\nnews()\n```",
            ]), 0..12),
        ) {
            let text = format!("It {}", parts.concat());
            let tools = TOOLS.map(|name| Arc::new(Tool::new(name)));
            let names = Arc::new(ToolNames::new(&tools, &[]));
            let offer = CallableNames::of(&tools).named(Some(&names));
            let places = places(RULES, &text);
            let first = places.iter().find(|place| is_call(&text, place, &offer));
            for prose in [prose, prose_of_tools] {
                let found = prose(&[&text]);
                let end = first.map_or(text.len(), |place| place.at);
                prop_assert!(found.0.len() <= end, "{:?} passes {:?}", text, found.0);
                for (at, _) in text.char_indices() {
                    let (head, tail) = text.split_at(at);
                    prop_assert_eq!(prose(&[head, tail]), found.clone(), "{:?} at {}", text, at);
                }
            }
        }
    }
}
