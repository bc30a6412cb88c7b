//! Calls as Python writes them: `[weather.now(city="Rome", days=[1, 2]), news.top()]`, or one a line.

use super::body::CallableNames;
use super::{Leak, LeakedCalls, MAX_CALLS};
use serde_json::Map;
use toolhold_json::repair::RepairKind;
use toolhold_json::repair::{TextEnd, repair_under};

/// Where Gemini's prompts keep tools, which Gemma imitates.
const PACKAGE: &str = "default_api.";

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
    let tool = offer.identifier(name.strip_prefix(PACKAGE).unwrap_or(name))?;
    let mut arguments = Map::new();
    for part in parts(inner) {
        let (key, value) = part.split_once('=')?;
        let key = key.trim();
        let is_name = key.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && key.chars().all(|c| c.is_alphanumeric() || c == '_');
        // A value is what JSON, repaired, makes of a list of it.
        let repaired = repair_under(offer.rules(), &format!("[{}]", value.trim()), TextEnd::Own)?;
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
        if !is_name || !is_plain || arguments.insert(key.to_owned(), value).is_some() {
            return None;
        }
    }
    Some(Leak::new(tool, arguments))
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
