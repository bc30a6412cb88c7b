//! Answers that are nothing but offered tools with arguments, and short marks around them that no table has: `-> NAME({…})`,
//! `{{NAME(KEY=VALUE)}}`, `Tool: NAME` and an object. They are no answers. Whether they are meant is not known, so they go
//! back to the model and no call is made of them.
//!
//! Marks are signs, and words of a short list that stand before a sign or at the end of a line. With any other word the
//! answer is prose. Text between backticks is shown. Signs that format a text (`**NAME(…)**`, `> NAME(…)`, `$NAME(…)$`, bullets,
//! emoji) make no call of code by themselves.

use super::bare::is_compound;
use super::body::CallableNames;
use super::pythonic::bracketed;
use super::{Leak, MAX_CALLS, alone};

/// Maximum bytes of the marks on each side of a call.
pub(super) const MAX_MARKS: usize = 64;
/// Words of marks before a call, or behind it.
pub(super) const WORDS: [&str; 22] = [
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
/// Signs before a call that format no text.
const SIGNS: [&str; 10] = ["->", "=>", "→", "⇒", "<<", "[[", "{{", "⟦", "⟨", "◁"];
/// Words between the name of a tool and its arguments.
pub(super) const ARGUMENT_WORDS: [&str; 9] = [
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
pub(super) const FENCE: &str = "```";

/// The first call of an answer that is such calls and nothing else. Its arguments are not given. At least one of the calls
/// is *meant*: a word of calls stands beside it, or a sign that formats no text, or an object behind its name. In a fence
/// such a word is needed, other than those of programs.
pub(super) fn call(answer: &str, offer: &CallableNames) -> Option<Leak> {
    if !offer.rules().are_from_5() {
        return None;
    }
    let text = alone(offer.rules(), answer);
    let inner = super::unfenced(text);
    if inner.is_none() && text.starts_with('`') {
        return None;
    }
    let body = inner.unwrap_or(text);
    let mut rest = body;
    let mut first = None;
    let mut is_meant = false;
    for _ in 0..MAX_CALLS {
        let call = one(rest, first.is_none(), offer)?;
        is_meant |= call.has_call_word || (call.has_sign && inner.is_none());
        rest = call.rest;
        let tool = first.get_or_insert(call.tool);
        if rest.is_empty() {
            return is_meant.then(|| Leak::without_arguments(tool.clone(), body));
        }
    }
    None
}

/// A call with its marks, and the text behind them.
#[derive(Debug)]
struct FramedCall<'t> {
    tool: String,
    /// Whether a word of calls stands beside it that no program has.
    has_call_word: bool,
    /// Whether something else says that it is a call.
    has_sign: bool,
    rest: &'t str,
}

/// The call that a text begins with. The first one must have marks before it: other forms are read elsewhere.
fn one<'t>(text: &'t str, is_first: bool, offer: &CallableNames) -> Option<FramedCall<'t>> {
    let before = past_marks(text, &WORDS, offer)?;
    if is_first && before.rest.len() == text.len() {
        return None;
    }
    let (name, after) = word(before.rest);
    let tool = offer.identifier(name)?;
    let is_certain = before.has_word || is_compound(name);
    let mut has_sign = before.has_word || before.has_sign;
    let (arguments, after) = if after.starts_with('(') {
        bracketed(after)?
    } else if is_certain {
        has_sign = true;
        let object = past_marks(after, &ARGUMENT_WORDS, offer)?.rest;
        if !object.starts_with('{') {
            return lines(after).then_some(FramedCall {
                tool,
                has_call_word: before.has_call_word,
                has_sign,
                rest: "",
            });
        }
        bracketed(object)?
    } else {
        return None;
    };
    if !are_arguments(arguments) {
        return None;
    }
    let mut call = FramedCall {
        tool,
        has_call_word: before.has_call_word,
        has_sign,
        rest: after,
    };
    if let Some(behind) = past_marks(after, &WORDS, offer) {
        call.has_call_word |= behind.has_call_word;
        // Those before the next call.
        call.has_sign |= behind.has_word || (behind.has_sign && !behind.rest.is_empty());
        call.rest = behind.rest;
    }
    Some(call)
}

/// Signs and words that were passed, and the text behind them.
#[derive(Debug)]
struct PassedMarks<'t> {
    rest: &'t str,
    has_word: bool,
    /// Whether one of the words stands in no program.
    has_call_word: bool,
    /// Whether one of the signs is of [`SIGNS`].
    has_sign: bool,
}

/// The text behind signs and words. Nothing where they are too long. Brackets and braces of arguments, names of tools and
/// other words end them.
fn past_marks<'t>(text: &'t str, words: &[&str], offer: &CallableNames) -> Option<PassedMarks<'t>> {
    let mut passed = PassedMarks {
        rest: text,
        has_word: false,
        has_call_word: false,
        has_sign: false,
    };
    loop {
        if text.len() - passed.rest.len() > MAX_MARKS {
            return None;
        }
        let start = passed.rest.trim_start();
        if let Some(after) = start.strip_prefix(FENCE) {
            let (_, after) = word(after);
            passed.rest = after;
            continue;
        }
        let (name, after) = word(start);
        if name.is_empty() {
            let mut chars = start.chars();
            let is_end = match chars.next() {
                None | Some('"' | '\'' | '`') => true,
                Some('{') => is_object(start),
                Some(_) => false,
            };
            if is_end {
                passed.rest = start;
                return Some(passed);
            }
            passed.has_sign |= SIGNS.iter().any(|sign| start.starts_with(sign));
            passed.rest = chars.as_str();
            continue;
        }
        let is_known = |name: &str| words.iter().any(|own| own.eq_ignore_ascii_case(name));
        // `Tool call:` has two words. `Call weather_now(…)` is a sentence.
        let is_prefix = PREFIXES.contains(&name);
        let line = after.trim_start_matches([' ', '\t']);
        let is_ended = line.len() == after.len() || line.starts_with('\n') || line.is_empty();
        let is_mark = is_known(name)
            && offer.exact(name).is_none()
            && (is_prefix || is_ended || is_known(word(line).0));
        if !is_mark {
            passed.rest = start;
            return Some(passed);
        }
        passed.has_word = true;
        passed.has_call_word |= !is_prefix;
        passed.rest = after;
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
pub(super) fn is_object(text: &str) -> bool {
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
