//! Calls as Python writes them: `[weather.now(city="Rome", days=[1, 2]), news.top()]`, or one a line.

use super::body::{CallableNames, is_one_word};
use super::{Leak, LeakedCalls, MAX_CALLS};
use serde_json::{Map, Value};
use toolhold_json::repair::RepairKind;
use toolhold_json::repair::{TextEnd, repair_under};
use toolhold_json::rules::ReadingRules;

/// Where Gemini's prompts keep tools, which Gemma imitates.
pub(super) const PACKAGE: &str = "default_api.";

/// Calls in a list, or one after the other, with arguments by name and literals as values. Nothing if
/// anything else is there, or a name is not offered.
pub(super) fn calls(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let text = text.trim();
    let (inner, is_list) = match text.strip_prefix('[') {
        Some(inner) => (inner.strip_suffix(']')?, true),
        None => (text, false),
    };
    let mut leaked = LeakedCalls::default();
    let mut rest = inner.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('(')?;
        let (inner, after) = after.split_at(closing(after)?);
        let after = after.strip_prefix(')')?;
        leaked.calls.push(match call(name, inner, offer) {
            Some(call) => call,
            // The printed expression is itself a call.
            None if name == "print" && !is_list => printed(inner, offer)?,
            None => return None,
        });
        if leaked.calls.len() > MAX_CALLS {
            return None;
        }
        let next = after.trim_start();
        rest = match next.strip_prefix(',') {
            Some(more) if !more.trim().is_empty() => more.trim_start(),
            Some(_) if is_list && offer.rules().are_from_4() => "",
            Some(_) => return None,
            None if next.is_empty() => next,
            None if is_list => return None,
            None => match next.strip_prefix(';') {
                Some(more) => more.trim_start(),
                None if after[..after.len() - next.len()].contains('\n') => next,
                None => return None,
            },
        };
    }
    (!leaked.calls.is_empty()).then_some(leaked)
}

/// The tool of the first call, where the text is calls of offered tools alone, or a list of them. Arguments are not read.
pub(super) fn named(text: &str, offer: &CallableNames) -> Option<String> {
    let text = text.trim();
    let listed = text
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'));
    let mut rest = listed.unwrap_or(text).trim();
    let mut found = None;
    for _ in 0..=MAX_CALLS {
        if rest.is_empty() {
            return found;
        }
        let (name, after) = rest.split_at_checked(rest.find('(')?)?;
        let (arguments, after) = bracketed(after)?;
        let name = name.trim();
        let tool = |name: &str| offer.identifier(name.strip_prefix(PACKAGE).unwrap_or(name));
        let printed = || {
            let (inner, _) = arguments.strip_prefix('(')?.split_once('(')?;
            tool(inner.trim()).filter(|_| name == "print")
        };
        let called = tool(name).or_else(printed)?;
        found = found.or(Some(called));
        rest = after.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';'));
    }
    None
}

fn printed(text: &str, offer: &CallableNames) -> Option<Leak> {
    let (name, after) = text.trim().split_once('(')?;
    let (inner, after) = after.split_at(closing(after)?);
    if after != ")" {
        return None;
    }
    call(name, inner, offer)
}

fn call(name: &str, inner: &str, offer: &CallableNames) -> Option<Leak> {
    let name = name.trim();
    if !is_one_word(offer.rules(), name) {
        return None;
    }
    let tool = offer.identifier(name.strip_prefix(PACKAGE).unwrap_or(name))?;
    let is_current = offer.rules().are_from_4();
    let parts = parts(inner);
    let mut arguments = Map::new();
    for part in &parts {
        let (key, value) = match keyword(part) {
            Some(keyword) => keyword,
            // Where there is one parameter, it needs no name.
            None if is_current && parts.len() == 1 => (offer.only_parameter(&tool)?, *part),
            None => return None,
        };
        let literal = || text_literal(value).filter(|_| is_current).map(Value::from);
        let value = json_literal(value, offer.rules()).or_else(literal)?;
        if arguments.insert(key.to_owned(), value).is_some() {
            return None;
        }
    }
    Some(Leak::new(tool, arguments))
}

/// `KEY=VALUE`
fn keyword(part: &str) -> Option<(&str, &str)> {
    let (key, value) = part.split_once('=')?;
    let key = key.trim();
    let is_name = key.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then_some((key, value))
}

/// A value as JSON, repaired, makes it of a list of it.
fn json_literal(value: &str, rules: ReadingRules) -> Option<Value> {
    let repaired = repair_under(rules, &format!("[{}]", value.trim()), TextEnd::Own)?;
    let [value] = <[_; 1]>::try_from(repaired.value.as_array()?.clone()).ok()?;
    let is_plain = repaired.repairs.iter().all(|kind| {
        matches!(
            kind,
            RepairKind::SingleQuotes
                | RepairKind::EscapedSingleQuote
                | RepairKind::PythonLiteral
                | RepairKind::LineBreakInText
                | RepairKind::OddSpace
        )
    });
    is_plain.then_some(value)
}

/// A text with escapes of Python, perhaps in three quotes.
fn text_literal(value: &str) -> Option<String> {
    let value = value.trim();
    let quotes = ["\"\"\"", "'''", "\"", "'"];
    let quote = quotes.into_iter().find(|quote| value.starts_with(quote))?;
    let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut text = String::new();
    let mut rest = inner;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with(quote) {
            return None;
        }
        rest = rest.get(c.len_utf8()..)?;
        if c != '\\' {
            text.push(c);
            continue;
        }
        let escaped = rest.chars().next()?;
        rest = rest.get(escaped.len_utf8()..)?;
        let digits = match escaped {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        text.push(match escaped {
            '\n' => continue,
            '\\' | '\'' | '"' => escaped,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            _ if digits > 0 => {
                let (code, after) = rest.split_at_checked(digits)?;
                rest = after;
                let is_hex = code.bytes().all(|byte| byte.is_ascii_hexdigit());
                let code = u32::from_str_radix(code, 16).ok().filter(|_| is_hex)?;
                char::from_u32(code)?
            }
            _ => return None,
        });
    }
    Some(text)
}

/// Where the bracket that is open before `text` is closed.
fn closing(text: &str) -> Option<usize> {
    let mut walk = Walk::default();
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == ')' && walk.is_outermost();
        walk.step(c);
        is_end.then_some(at)
    })
}

/// The text from its first bracket to the one that closes it, and what follows.
pub(super) fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut walk = Walk::default();
    let end = text.char_indices().find_map(|(at, c)| {
        walk.step(c);
        let is_end = matches!(c, ')' | ']' | '}') && walk.is_outermost();
        is_end.then_some(at + 1)
    })?;
    text.split_at_checked(end)
}

/// What commas part, outside of quotes and brackets.
fn parts(text: &str) -> Vec<&str> {
    let mut walk = Walk::default();
    let mut parts: Vec<&str> = text
        .split(|c| {
            let is_end = c == ',' && walk.is_outermost();
            walk.step(c);
            is_end
        })
        .collect();
    if parts.last().is_some_and(|part| part.trim().is_empty()) {
        parts.pop();
    }
    parts
}

/// Where a character stands.
#[derive(Debug, Default)]
struct Walk {
    quote: Option<char>,
    is_escaped: bool,
    depth: usize,
}

impl Walk {
    fn is_outermost(&self) -> bool {
        self.quote.is_none() && self.depth == 0
    }

    fn step(&mut self, c: char) {
        match (self.quote, c) {
            (Some(_), _) if self.is_escaped => self.is_escaped = false,
            (Some(_), '\\') => self.is_escaped = true,
            (Some(quote), c) if c == quote => self.quote = None,
            (None, '"' | '\'') => self.quote = Some(c),
            (None, '(' | '[' | '{') => self.depth += 1,
            (None, ')' | ']' | '}') => self.depth = self.depth.saturating_sub(1),
            (Some(_) | None, _) => {}
        }
    }
}
