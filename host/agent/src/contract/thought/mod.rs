//! Separates a model's thoughts from its answer, for servers without a parser for them, or with the
//! parser of another model.
//!
//! A thought stands before the answer, between marks: `<think>…</think>` and its like. Three things
//! happen to it. The mark that opens it is missing, because the chat template wrote it into the prompt:
//! then everything up to a closing mark that begins a line is thought, unless the reply begins like a call
//! (`{`, `[`, `<`) or with code. The mark that closes it is missing: then the rest is thought, and the
//! answer is empty. And inside of a thought anything may be quoted: a thought is never an answer, and
//! counts as a call only as `leak` says.
//!
//! Granite and Apriel say in words where their thoughts begin and where their response does; both must be there. So do answers of
//! ReAct (`Thought:`, `Final Answer:`, outside of code), unless an action stands between: then it is what the reply does.
//! Behind a thought the answer may stand between marks of its own (`<answer>…</answer>`), which are no part of it.
//!
//! The messages of Harmony (`harmony`) are taken apart the same way: what precedes the last one, or the
//! first call, is thought, and the last one is the answer without its marks. Where a server dropped the marks,
//! `analysis…assistantfinal` is the thought.

mod filter;
#[cfg(test)]
mod tests;

pub use filter::{Filter, ReplyText};

use super::harmony::{self, Channel, Header, HeaderMatch, UnmarkedThought};
use toolhold_json::rules::ReadingRules;
use toolhold_model::thought_marks::{PANGU_END, THOUGHT_MARKS as MARKS};

/// How many of the marks of thoughts the rules before format 5 know.
const MARKS_BEFORE_5: usize = 13;
/// Bytes of the longest mark that ends a thought.
const MAX_MARK: usize = 16;
/// Words around a thought.
#[derive(Debug)]
struct SpokenMarks {
    /// At the beginning of the reply.
    begins: &'static [&'static str],
    /// At the beginning of a line, before the response.
    ends: &'static [&'static str],
    /// At the beginning of a line: before it nothing is a thought.
    stop: Option<&'static str>,
    /// Whether lines in a fence are not looked at: code has such words, too.
    skips_fences: bool,
}

/// The rules before format 5 know the first.
static SPOKEN: [SpokenMarks; 3] = [
    // Granite.
    SpokenMarks {
        begins: &["Here is my thought process:", "Here's my thought process:"],
        ends: &["Here is my response:", "Here's my response:"],
        stop: None,
        skips_fences: false,
    },
    // Apriel.
    SpokenMarks {
        begins: &["Here are my reasoning steps:"],
        ends: &[APRIEL_END],
        stop: None,
        skips_fences: false,
    },
    // ReAct.
    SpokenMarks {
        begins: &["Thought:"],
        ends: &["Final Answer:"],
        stop: Some("Action:"),
        skips_fences: true,
    },
];
const APRIEL_END: &str = "[BEGIN FINAL RESPONSE]";

/// The end of a thought that has words around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpokenEnd {
    /// Not there so far.
    Open,
    /// At this byte of the text. The mark that ends the answer, if one does.
    At(usize, Option<&'static str>),
    /// There is none.
    Stopped,
}

/// How far a reply was looked through for the words before its response.
#[derive(Debug, Clone, Copy, Default)]
struct SpokenPlace {
    /// The byte at which the last line begins.
    line: usize,
    /// The byte up to which its end was looked for.
    searched: usize,
    in_fence: bool,
}

impl SpokenMarks {
    /// Finds the response in a reply that such words begin. `place`: how far it was looked through, when it was shorter.
    fn end(&self, text: &str, place: &mut SpokenPlace) -> SpokenEnd {
        loop {
            let line = text.get(place.line..).unwrap_or_default();
            let is_looked_at = place.line > 0 && !place.in_fence;
            let begins = |words: &str| is_looked_at && line.starts_with(words);
            if let Some(end) = self.ends.iter().find(|end| begins(end)) {
                return SpokenEnd::At(place.line + end.len(), answer_end(end));
            }
            if self.stop.is_some_and(begins) {
                return SpokenEnd::Stopped;
            }
            let rest = text.get(place.searched..).unwrap_or_default();
            let Some(at) = rest.find('\n') else {
                place.searched = text.len();
                return SpokenEnd::Open;
            };
            let is_fence = line.trim_start_matches([' ', '\t']).starts_with(FENCE);
            place.in_fence ^= is_fence && self.skips_fences;
            place.line = place.searched + at + 1;
            place.searched = place.line;
        }
    }
}

/// The mark that ends an answer behind a thought with this end.
fn answer_end(thought_end: &str) -> Option<&'static str> {
    match thought_end {
        PANGU_END => Some("[unused10]"),
        APRIEL_END => Some("[END FINAL RESPONSE]"),
        _ => None,
    }
}

/// The marks of thoughts under these rules.
fn marks(rules: ReadingRules) -> &'static [(&'static str, &'static str)] {
    if rules.are_from_5() {
        &MARKS
    } else {
        MARKS.get(..MARKS_BEFORE_5).unwrap_or(&MARKS)
    }
}

/// The words around thoughts under these rules.
fn all_spoken(rules: ReadingRules) -> impl Iterator<Item = &'static SpokenMarks> {
    let known = if rules.are_from_5() { SPOKEN.len() } else { 1 };
    SPOKEN.iter().take(known)
}

/// The words with which a reply begins.
fn spoken(rules: ReadingRules, start: &str) -> Option<&'static SpokenMarks> {
    let mut all = all_spoken(rules);
    all.find(|words| words.begins.iter().any(|begin| start.starts_with(begin)))
}

/// Marks around an answer that stands behind a thought.
const ANSWER_MARKS: [(&str, &str); 2] = [
    // Hunyuan and Command.
    ("<answer>", "</answer>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
];
const FENCE: &str = "```";
/// Most marks that are looked at for the end of one thought, where some are only repeated.
const MAX_ENDS: usize = 64;
/// First characters of replies that are no thought without an opening mark.
const ANSWERS: [char; 4] = ['{', '[', '<', '`'];

/// A complete reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThoughtAndAnswer<'t> {
    /// With its marks, and those that open the answer; empty if there is none.
    pub(super) thought: &'t str,
    pub(super) answer: &'t str,
}

/// A mark that ends a thought: the text before it, itself, and the text behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndMark<'t> {
    pub(super) before: &'t str,
    pub(super) mark: &'t str,
    pub(super) after: &'t str,
}

/// Whether a text begins with a mark that opens a thought.
pub(super) fn is_opened(text: &str) -> bool {
    MARKS.iter().any(|(open, _)| text.starts_with(open))
}

pub(super) fn split(text: &str) -> ThoughtAndAnswer<'_> {
    split_under(ReadingRules::Current, text)
}

/// [`split`], under these rules instead of the current ones.
pub(super) fn split_under(rules: ReadingRules, text: &str) -> ThoughtAndAnswer<'_> {
    split_from(rules, text, &mut |_| false)
}

/// [`split_under`], where some marks are no marks, because the model only repeats them.
pub(super) fn split_from<'t>(
    rules: ReadingRules,
    text: &'t str,
    is_quoted: &mut dyn FnMut(EndMark<'_>) -> bool,
) -> ThoughtAndAnswer<'t> {
    let mut rest = text;
    let mut has_thought = false;
    let mut close = None;
    while close.is_none()
        && let Some((next, end)) = past_thought(rules, rest, is_quoted)
    {
        rest = next;
        close = end;
        has_thought = true;
    }
    if let Some(close) = close {
        let end = harmony::ending_with(rest, &[close]);
        return ThoughtAndAnswer {
            thought: &text[..text.len() - rest.len()],
            answer: &rest[..end.unwrap_or(rest.len())],
        };
    }
    let last = match harmony::begins(rest.trim_start()) {
        HeaderMatch::With(Header {
            recipient: None,
            content,
            ..
        }) => Some(content),
        _ => None,
    };
    let enclosed = enclosed(rest.trim_start()).filter(|_| has_thought);
    let (content, end) = match (last, enclosed) {
        (Some(last), _) => (last, harmony::ending(last)),
        (None, Some((content, close))) => (content, harmony::ending_with(content, &[close])),
        (None, None) => (rest, None),
    };
    let end = end.unwrap_or(content.len());
    ThoughtAndAnswer {
        thought: &text[..text.len() - content.len()],
        answer: &content[..end],
    }
}

/// The text behind a mark that opens the answer, and the mark that ends it.
fn enclosed(start: &str) -> Option<(&str, &'static str)> {
    let mut marks = ANSWER_MARKS.iter();
    marks.find_map(|(open, close)| Some((start.strip_prefix(open)?, *close)))
}

/// The text behind the thought that `text` begins with, and the mark that ends the answer there, if one does.
fn past_thought<'t>(
    rules: ReadingRules,
    text: &'t str,
    is_quoted: &mut dyn FnMut(EndMark<'_>) -> bool,
) -> Option<(&'t str, Option<&'static str>)> {
    let start = text.trim_start();
    if let HeaderMatch::With(header) = harmony::begins(start) {
        return Some((past_message(&header)?, None));
    }
    for (open, close) in marks(rules) {
        if let Some(thought) = start.strip_prefix(*open) {
            let mut ends = thought.match_indices(*close).take(MAX_ENDS);
            let end = ends.find_map(|(at, mark)| {
                let after = thought.get(at + mark.len()..)?;
                let mark = EndMark {
                    before: thought.get(..at)?,
                    mark,
                    after,
                };
                (!is_quoted(mark)).then_some(after)
            });
            return Some(match end {
                Some(after) => (after, answer_end(close)),
                None => ("", None),
            });
        }
    }
    if let Some(words) = spoken(rules, start)
        && let SpokenEnd::At(end, close) = words.end(start, &mut SpokenPlace::default())
    {
        return Some((start.get(end..)?, close));
    }
    // The prompt held all of a thought that is empty.
    if let Some(rest) = past_end(rules, start) {
        return Some(rest);
    }
    if start.starts_with(ANSWERS) {
        return None;
    }
    let mut watch = ClosingMarkFinder::under(rules);
    let mut from = 0;
    for _ in 0..MAX_ENDS {
        let end = watch.find(start.get(from..)?)?;
        from += end.at;
        let (before, after) = start.split_at_checked(from)?;
        let mark = before
            .rfind(['\n', '<', '[', '◁'])
            .map_or(before, |at| &before[at..]);
        let mark = EndMark {
            before: before.strip_suffix(mark).unwrap_or(before),
            mark,
            after,
        };
        if !is_quoted(mark) {
            return Some((after, end.answer_end));
        }
    }
    None
}

/// The text behind the mark that ends a thought, with which `start` begins, and the mark that ends the answer there.
fn past_end(rules: ReadingRules, start: &str) -> Option<(&str, Option<&'static str>)> {
    let mut marks = marks(rules).iter();
    marks.find_map(|(_, close)| Some((start.strip_prefix(*close)?, answer_end(close))))
}

/// What follows a message of Harmony that is no answer.
fn past_message<'t>(header: &Header<'t>) -> Option<&'t str> {
    let content = header.content;
    match (header.channel, header.recipient) {
        (Channel::Analysis, None) => {
            let end = content.find(harmony::END).map(|at| at + harmony::END.len());
            content.get(end.unwrap_or(content.len())..)
        }
        (Channel::Commentary, None) => content.get(harmony::next_message(content, 0)?..),
        _ => None,
    }
}

/// Looks for a closing mark that begins a line and does not stand in code, and for the answer behind a
/// thought that lost its marks.
#[derive(Debug, Clone)]
struct ClosingMarkFinder {
    rules: ReadingRules,
    /// The line so far, as long as it may be a mark.
    line: Option<String>,
    in_code: bool,
    unmarked: UnmarkedThought,
}

/// The end of a mark that was found.
#[derive(Debug, Clone, Copy)]
struct FoundEnd {
    /// In bytes of the text.
    at: usize,
    /// The mark that ends the answer behind it.
    answer_end: Option<&'static str>,
}

impl ClosingMarkFinder {
    fn under(rules: ReadingRules) -> Self {
        Self {
            rules,
            line: Some(String::new()),
            in_code: false,
            unmarked: UnmarkedThought::default(),
        }
    }

    /// The end of the mark in `text`.
    fn find(&mut self, text: &str) -> Option<FoundEnd> {
        for (at, c) in text.char_indices() {
            let at = at + c.len_utf8();
            if self.unmarked.ends_with(c) {
                return Some(FoundEnd {
                    at,
                    answer_end: None,
                });
            }
            if c == '\n' {
                self.line = Some(String::new());
                continue;
            }
            let Some(line) = &mut self.line else {
                continue;
            };
            if line.is_empty() && c.is_whitespace() {
                continue;
            }
            line.push(c);
            if line == FENCE {
                self.in_code = !self.in_code;
                self.line = None;
            } else if !self.in_code
                && let Some((_, close)) = marks(self.rules).iter().find(|(_, close)| line == close)
            {
                return Some(FoundEnd {
                    at,
                    answer_end: answer_end(close),
                });
            } else if line.len() > MAX_MARK {
                self.line = None;
            }
        }
        None
    }
}
