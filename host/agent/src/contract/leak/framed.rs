//! Answers that are nothing but offered tools with arguments, and short marks around them that no table has: `-> NAME({…})`,
//! `{{NAME(KEY=VALUE)}}`, `Tool: NAME` and an object. They are no answers. Whether they are meant is not known, so they go
//! back to the model and no call is made of them.
//!
//! Marks are signs, and words of a short list that stand before a sign or at the end of a line. With any other word the
//! answer is prose. Text between backticks is shown.

use super::bare::is_compound;
use super::body::CallableNames;
use super::pythonic::bracketed;
use super::{MAX_CALLS, trim_around};

/// Maximum bytes of the marks on each side of a call.
const MAX_MARKS: usize = 64;
/// Words of marks before a call, or behind it.
const WORDS: [&str; 22] = [
    "action",
    "api",
    "assistant",
    "await",
    "bot_end",
    "call",
    "calls",
    "command",
    "end",
    "func",
    "function",
    "function_call",
    "invoke",
    "json",
    "name",
    "plugin",
    "return",
    "tool",
    "tool_call",
    "tool_calls",
    "tool_use",
    "tools",
];
/// Words before a call on its own line, without a sign.
const PREFIXES: [&str; 2] = ["await", "return"];
/// Words between the name of a tool and its arguments.
const ARGUMENT_WORDS: [&str; 9] = [
    "args",
    "arguments",
    "input",
    "inputs",
    "json",
    "kwargs",
    "parameters",
    "params",
    "with",
];
const FENCE: &str = "```";

/// Whether the answer is such calls and nothing else.
pub(super) fn is_call(answer: &str, offer: &CallableNames) -> bool {
    if !offer.rules().are_from_5() {
        return false;
    }
    let mut rest = trim_around(offer.rules(), answer.trim());
    if let Some(inner) = super::unfenced(rest) {
        rest = inner;
    } else if rest.starts_with('`') {
        return false;
    }
    for place in 0..MAX_CALLS {
        let Some(after) = one(rest, place == 0, offer) else {
            return false;
        };
        rest = after;
        if rest.is_empty() {
            return true;
        }
    }
    false
}

/// The text behind a call with its marks. The first one must have some before it: other forms are read elsewhere.
fn one<'t>(text: &'t str, is_first: bool, offer: &CallableNames) -> Option<&'t str> {
    let (start, has_word) = past_marks(text, &WORDS, offer)?;
    if is_first && start.len() == text.len() {
        return None;
    }
    let (name, after) = word(start);
    offer.identifier(name)?;
    let is_certain = has_word || is_compound(name);
    let (arguments, after) = if after.starts_with('(') {
        bracketed(after)?
    } else if is_certain {
        let (object, _) = past_marks(after, &ARGUMENT_WORDS, offer)?;
        if !object.starts_with('{') {
            return lines(after).then_some("");
        }
        bracketed(object)?
    } else {
        return None;
    };
    if !are_arguments(arguments) {
        return None;
    }
    let behind = past_marks(after, &WORDS, offer);
    Some(behind.map_or(after, |(rest, _)| rest))
}

/// The text behind signs and words, and whether there was a word. Nothing where they are too long. Brackets and braces of
/// arguments, names of tools and other words end them.
fn past_marks<'t>(text: &'t str, words: &[&str], offer: &CallableNames) -> Option<(&'t str, bool)> {
    let mut rest = text;
    let mut has_word = false;
    loop {
        if text.len() - rest.len() > MAX_MARKS {
            return None;
        }
        let start = rest.trim_start();
        if let Some(after) = start.strip_prefix(FENCE) {
            let (_, after) = word(after);
            rest = after;
            continue;
        }
        let (name, after) = word(start);
        if name.is_empty() {
            let mut chars = start.chars();
            match chars.next() {
                None => return Some(("", has_word)),
                Some('"' | '\'' | '`') => return Some((start, has_word)),
                Some('{') if is_object(start) => return Some((start, has_word)),
                Some(_) => rest = chars.as_str(),
            }
            continue;
        }
        let is_known = |name: &str| words.iter().any(|own| own.eq_ignore_ascii_case(name));
        if !is_known(name) || offer.exact(name).is_some() {
            return Some((start, has_word));
        }
        // `Tool call:` has two words. `Call weather_now(…)` is a sentence.
        let is_prefix = PREFIXES.contains(&name);
        let line = after.trim_start_matches([' ', '\t']);
        let is_ended = line.len() == after.len() || line.starts_with('\n') || line.is_empty();
        if !is_prefix && !is_ended && !is_known(word(line).0) {
            return Some((start, has_word));
        }
        has_word = true;
        rest = after;
    }
}

/// The word that a text begins with, and the text behind it. Dots and slashes within a word are part of it.
fn word(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let head = text.get(..end).unwrap_or_default();
    if !head.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        return ("", text);
    }
    let name = head.trim_end_matches(['-', '.', '/']);
    text.split_at_checked(name.len()).unwrap_or(("", text))
}

/// Whether a text begins with the object of a call, rather than with a brace of a mark.
fn is_object(text: &str) -> bool {
    let inner = text.trim_start_matches('{');
    let is_one = text.len() - inner.len() == 1;
    is_one && inner.trim_start().starts_with(['"', '\'', '}'])
}

/// Whether the text between brackets may be arguments: nothing, a value, or a name with one. The signature of a function has
/// types in the place of values.
fn are_arguments(text: &str) -> bool {
    let inner = text.get(1..text.len().saturating_sub(1));
    let inner = inner.unwrap_or_default().trim();
    let (_, after) = word(inner);
    let value = after.trim_start().strip_prefix(['=', ':']);
    inner.is_empty() || is_value(inner) || value.is_some_and(is_value)
}

fn is_value(text: &str) -> bool {
    const NAMED: [&str; 6] = ["true", "false", "null", "True", "False", "None"];
    let text = text.trim_start();
    text.starts_with(|c: char| "{[\"'-".contains(c) || c.is_ascii_digit())
        || NAMED.contains(&word(text).0)
}

/// Whether a text is arguments as lines: `args:` and a line for each parameter.
fn lines(text: &str) -> bool {
    let mut lines = text.trim().lines();
    let head = lines.next().unwrap_or_default().trim();
    let is_head = head
        .strip_suffix(':')
        .is_some_and(|name| ARGUMENT_WORDS.contains(&name));
    let mut has_line = false;
    let is_pair = lines.all(|line| {
        has_line = true;
        line.starts_with([' ', '\t']) && line.contains(':')
    });
    is_head && is_pair && has_line
}
