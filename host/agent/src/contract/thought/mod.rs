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
//! Granite says in words where its thoughts begin and where its response does; both must be there. Behind a thought the answer
//! may stand between marks of its own (`<answer>…</answer>`), which are no part of it.
//!
//! The messages of Harmony (`harmony`) are taken apart the same way: what precedes the last one, or the
//! first call, is thought, and the last one is the answer without its marks. Where a server dropped the marks,
//! `analysis…assistantfinal` is the thought.

mod filter;
#[cfg(test)]
mod tests;

pub use filter::{Filter, ReplyText};

use super::harmony::{self, Channel, Header, HeaderMatch, UnmarkedThought};

/// What begins a thought and what ends it.
const MARKS: [(&str, &str); 13] = [
    ("<think>", "</think>"),
    ("<THINK>", "</THINK>"),
    ("<Think>", "</Think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    // Gemma 4.
    ("<|channel>thought", "<channel|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    // LongCat, Apertus and Command.
    ("<longcat_think>", "</longcat_think>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
];
/// Bytes of the longest mark that ends a thought.
const MAX_MARK: usize = 16;
/// Words before a thought of Granite, at the beginning of the reply.
const SPOKEN_BEGINS: [&str; 2] = ["Here is my thought process:", "Here's my thought process:"];
/// Words before its response, at the beginning of a line.
const SPOKEN_ENDS: [&str; 2] = ["\nHere is my response:", "\nHere's my response:"];
/// Bytes of the longest of them.
const MAX_SPOKEN_END: usize = 21;
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
    split_from(text, &mut |_| false)
}

/// [`split`], where some marks are no marks, because the model only repeats them.
pub(super) fn split_from<'t>(
    text: &'t str,
    is_quoted: &mut dyn FnMut(EndMark<'_>) -> bool,
) -> ThoughtAndAnswer<'t> {
    let mut rest = text;
    let mut has_thought = false;
    while let Some(next) = past_thought(rest, is_quoted) {
        rest = next;
        has_thought = true;
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

/// Finds the response in a reply whose thought has words as marks. `from`: the byte to begin at.
fn spoken_end(text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    let ends = SPOKEN_ENDS.iter();
    let first = ends.filter_map(|end| Some((rest.find(end)?, end.len())));
    let (at, bytes) = first.min()?;
    Some(from + at + bytes)
}

fn is_spoken(start: &str) -> bool {
    SPOKEN_BEGINS.iter().any(|begin| start.starts_with(begin))
}

/// What follows the thought that `text` begins with.
fn past_thought<'t>(
    text: &'t str,
    is_quoted: &mut dyn FnMut(EndMark<'_>) -> bool,
) -> Option<&'t str> {
    let start = text.trim_start();
    if let HeaderMatch::With(header) = harmony::begins(start) {
        return past_message(&header);
    }
    for (open, close) in MARKS {
        if let Some(thought) = start.strip_prefix(open) {
            let mut ends = thought.match_indices(close).take(MAX_ENDS);
            let end = ends.find_map(|(at, mark)| {
                let after = thought.get(at + mark.len()..)?;
                let mark = EndMark {
                    before: thought.get(..at)?,
                    mark,
                    after,
                };
                (!is_quoted(mark)).then_some(after)
            });
            return Some(end.unwrap_or_default());
        }
    }
    if is_spoken(start)
        && let Some(end) = spoken_end(start, 0)
    {
        return start.get(end..);
    }
    // The prompt held all of a thought that is empty.
    if let Some(rest) = MARKS
        .iter()
        .find_map(|(_, close)| start.strip_prefix(close))
    {
        return Some(rest);
    }
    if start.starts_with(ANSWERS) {
        return None;
    }
    let mut watch = ClosingMarkFinder::default();
    let mut from = 0;
    for _ in 0..MAX_ENDS {
        from += watch.find(start.get(from..)?)?;
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
            return Some(after);
        }
    }
    None
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
    /// The line so far, as long as it may be a mark.
    line: Option<String>,
    in_code: bool,
    unmarked: UnmarkedThought,
}

impl Default for ClosingMarkFinder {
    fn default() -> Self {
        Self {
            line: Some(String::new()),
            in_code: false,
            unmarked: UnmarkedThought::default(),
        }
    }
}

impl ClosingMarkFinder {
    /// The end of the mark, in bytes of `text`.
    fn find(&mut self, text: &str) -> Option<usize> {
        for (at, c) in text.char_indices() {
            if self.unmarked.ends_with(c) {
                return Some(at + c.len_utf8());
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
            } else if !self.in_code && MARKS.iter().any(|(_, close)| line == close) {
                return Some(at + c.len_utf8());
            } else if line.len() > MAX_MARK {
                self.line = None;
            }
        }
        None
    }
}
