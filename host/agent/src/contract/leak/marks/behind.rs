//! The text behind a call: ends of turns, beginnings of other turns, and prose.

use super::{Mark, around, is_begun, marks, opening};
use toolhold_json::rules::ReadingRules;

/// Marks behind calls that mean nothing, beside special tokens and what stands around calls anywhere.
static BEHIND: [&str; 14] = [
    "<end_of_utterance>",
    "<end_of_text>",
    "<end_of_message>",
    "<endoftext>",
    "<eot>",
    "<eom>",
    "<eod>",
    "<EOT>",
    "<pad>",
    "<unk>",
    "<s>",
    "<sep>",
    "<0x0A>",
    "[/INST]",
];

/// Pangu's, unknown to the rules before format 5.
static BEHIND_FROM_5: [&str; 1] = ["[unused10]"];

/// Marks with which another turn begins, beside special tokens. What stands behind is no reply.
static TURNS: [&str; 6] = [
    "[INST]",
    "[TOOL_RESULTS]",
    "<start_of_turn>",
    "<|turn>",
    "<tool_response>",
    "<tool_output>",
];

/// Parts of the names of special tokens with which another turn begins.
const TURN_NAMES: [&str; 12] = [
    "user",
    "assistant",
    "system",
    "observation",
    "environment",
    "ipython",
    "im_start",
    "start_header",
    "start_of_role",
    "start_of_turn",
    "tool_response",
    "tool_output",
];

/// Special tokens that stand within calls.
const WITHIN: [&str; 6] = [
    "<|message|>",
    "<|constrain|>",
    "<|tool_call_argument_begin|>",
    "<｜tool▁sep｜>",
    "<|tool▁sep|>",
    "<｜tool_sep｜>",
];

/// The ends of special tokens.
const FRAMES: [(&str, &str); 3] = [("<|", "|>"), ("[|", "|]"), ("<｜", "｜>")];
/// Maximum bytes of the name of a special token.
const MAX_NAME: usize = 64;
/// The role that follows the token with which a turn begins.
const ROLE: &str = "assistant";

/// The marks behind calls that mean nothing, under these rules.
pub(super) fn behind(rules: ReadingRules) -> impl Iterator<Item = &'static str> + Clone {
    let last = BEHIND_FROM_5.iter().filter(move |_| rules.are_from_5());
    BEHIND.iter().chain(last).copied()
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '▁')
}

/// The bytes of a text that may be the name of a special token.
fn name_length(text: &str) -> usize {
    let head = text.get(..text.floor_char_boundary(MAX_NAME + 1));
    let head = head.unwrap_or(text);
    head.find(|c| !is_of_name(c)).unwrap_or(head.len())
}

/// The special token that a text begins with, of any model.
fn token(text: &str) -> Option<&str> {
    let (open, close) = FRAMES.iter().find(|(open, _)| text.starts_with(open))?;
    let inner = text.strip_prefix(open)?;
    let length = name_length(inner);
    let is_whole = (1..=MAX_NAME).contains(&length) && inner.get(length..)?.starts_with(close);
    is_whole.then(|| text.get(..open.len() + length + close.len()))?
}

/// Whether more text may make a special token of it.
fn is_begun_token(text: &str) -> bool {
    FRAMES.iter().any(|(open, close)| {
        if open.starts_with(text) {
            return true;
        }
        let Some(inner) = text.strip_prefix(open) else {
            return false;
        };
        let length = name_length(inner);
        let rest = inner.get(length..).unwrap_or_default();
        length <= MAX_NAME && rest.len() < close.len() && close.starts_with(rest)
    })
}

/// Whether a special token is part of a call, or may begin one.
fn is_of_call(rules: ReadingRules, token: &str) -> bool {
    WITHIN.contains(&token) || marks(rules).any(|mark| mark.open.starts_with(token))
}

/// Whether another turn begins with a special token.
fn is_of_turn(token: &str) -> bool {
    let name = token.to_lowercase().replace('▁', "_");
    !name.contains("end") && TURN_NAMES.iter().any(|part| name.contains(part))
}

/// The text behind the mark that means nothing, with which `text`, behind a call, begins.
fn past_one(rules: ReadingRules, text: &str) -> Option<&str> {
    let known = around(rules).find_map(|around| text.strip_prefix(around));
    if known.is_some() || !rules.are_from_4() {
        return known;
    }
    let own = behind(rules).find_map(|mark| text.strip_prefix(mark));
    own.or_else(|| {
        let token = token(text)?;
        let is_other = is_of_call(rules, token) || is_of_turn(token);
        text.strip_prefix(token).filter(|_| !is_other)
    })
}

/// Text behind a call, without white space and the marks that mean nothing there.
pub(in crate::contract::leak) fn past_behind(rules: ReadingRules, text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some(rest) = past_one(rules, text) {
        text = rest.trim_start();
    }
    text
}

/// Whether another turn begins here, behind a call.
pub(in crate::contract::leak) fn starts_turn(rules: ReadingRules, text: &str) -> bool {
    let is_token =
        || token(text).is_some_and(|token| is_of_turn(token) && !is_of_call(rules, token));
    rules.are_from_4() && (TURNS.iter().any(|mark| text.starts_with(mark)) || is_token())
}

/// Whether nothing of the reply stands in this text behind a call.
pub(in crate::contract::leak) fn is_over(rules: ReadingRules, text: &str) -> bool {
    let rest = past_behind(rules, text);
    rest.is_empty() || starts_turn(rules, rest)
}

/// Whether more text may make a mark of this one behind a call.
pub(in crate::contract::leak) fn is_begun_behind(rules: ReadingRules, text: &str) -> bool {
    let is_own = || {
        let mut own = behind(rules).chain(TURNS.iter().copied());
        own.any(|mark| mark.len() > text.len() && mark.starts_with(text))
    };
    is_begun(rules, text) || (rules.are_from_4() && (is_own() || is_begun_token(text)))
}

/// Text without white space and what stands around calls at its end.
pub(in crate::contract::leak) fn trim_around(rules: ReadingRules, text: &str) -> &str {
    let mut text = text.trim_end();
    while let Some(rest) = before_last(rules, text) {
        text = rest.trim_end();
    }
    text
}

/// The text before the mark that means nothing, with which it ends.
fn before_last(rules: ReadingRules, text: &str) -> Option<&str> {
    let known = around(rules).find_map(|around| text.strip_suffix(around));
    if known.is_some() || !rules.are_from_4() {
        return known;
    }
    let mut own = behind(rules).chain(TURNS.iter().copied());
    own.find_map(|mark| text.strip_suffix(mark))
        .or_else(|| before_token(rules, text))
        .or_else(|| {
            let rest = text.strip_suffix(ROLE)?.trim_end();
            before_token(rules, rest)
        })
}

/// The text before the special token at its end.
fn before_token(rules: ReadingRules, text: &str) -> Option<&str> {
    let (open, _) = FRAMES.iter().find(|(_, close)| text.ends_with(close))?;
    let (before, last) = text.split_at_checked(text.rfind(open)?)?;
    let is_around = token(last) == Some(last) && !is_of_call(rules, last);
    is_around.then_some(before)
}

/// Text on the line of a call, behind the call and the marks around calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::contract::leak) enum AfterCall {
    /// So far.
    Nothing,
    /// A mark that is not complete.
    Begun,
    /// Another one, the end of the line, or another turn.
    Calls,
    Prose,
}

/// The text behind the blanks and the marks that it begins with, in one line. When more text comes, these need not be
/// read again: no mark is the beginning of another one.
pub(in crate::contract::leak) fn along_line(rules: ReadingRules, text: &str) -> &str {
    let blank = |c: char| c.is_whitespace() && c != '\n';
    let mut text = text.trim_start_matches(blank);
    while let Some(rest) = past_one(rules, text) {
        text = rest.trim_start_matches(blank);
    }
    text
}

/// Whether a text begins like a sentence of its own, rather than like the rest of one. Its first character decides.
pub(in crate::contract::leak) fn begins_sentence(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() && !c.is_lowercase())
}

/// The kind of the text behind a call with this mark, without the marks that [`along_line`] takes away. A sentence behind
/// a call that ends with a special token is not about it: LFM2 writes what it does there.
pub(in crate::contract::leak) fn follows(
    rules: ReadingRules,
    mark: &Mark,
    rest: &str,
) -> AfterCall {
    let is_sentence = || rules.are_from_4() && mark.is_ended_by_token() && begins_sentence(rest);
    if rest.is_empty() {
        AfterCall::Nothing
    } else if rest.starts_with('\n') || opening(rules, rest).is_some() || starts_turn(rules, rest) {
        AfterCall::Calls
    } else if is_begun_behind(rules, rest) {
        AfterCall::Begun
    } else if is_sentence() {
        AfterCall::Calls
    } else {
        AfterCall::Prose
    }
}
