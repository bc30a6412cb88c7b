//! Calls between marks of a form that is not known: of a model that came after this program.
//!
//! A *mark* is a short text in angle brackets that is no element of HTML, or one of a few frames like it. An answer that
//! begins with one is read as marks and calls, one after the other, to its end: JSON with a name and arguments,
//! `NAME(KEY=VALUE)`, a name with an object behind it, or elements of which one names the tool and others its parameters.
//! Other text there makes no call of it. Where such an answer names an offered tool all the same, it is no answer either
//! ([`is_call`]), and goes back to the model.
//!
//! Marks of calls are special tokens (`<|…|>`) and those whose name says so (`tool`, `call`, …). Between other marks,
//! such as `<answer>`, nothing is read but JSON, and the name of a tool counts only if it is made of several words.

mod frames;
mod opening;
#[cfg(test)]
mod tests;

pub use opening::ReplyOpening;
pub(super) use opening::{MAX_UNDECIDED, opening_of};

use super::body::{self, CallableNames, argument_members, names};
use super::marks::{opening, past_around};
use super::pythonic::{self, bracketed};
use super::tags::{MAX_PARAMETERS, lines, one, put};
use super::{Leak, LeakedCalls, MAX_CALLS, MAX_CLOSES};
use frames::{
    AnyMark, PARAMETER_KEYS, TOOL_KEYS, any_mark, has_call_word, mark, without_namespace,
};
use serde_json::{Map, Value};
use toolhold_json::repair::TextEnd;
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;

/// Bytes of an object or a list in which the name of a tool is looked for.
const HEAD: usize = 512;
/// Marks of one answer. For each, the offered tools are looked through.
const MAX_MARKS: usize = 4096;
/// Maximum bytes of a word that stands between marks and means nothing, such as an id.
const MAX_WORD: usize = 64;

/// Whether an answer begins with a mark, and not with one of a known form. Under the rules of format 3 none does.
fn is_unknown(rules: ReadingRules, text: &str) -> bool {
    let is_known = || opening(rules, past_around(rules, text)).is_some();
    rules.are_from_4() && !is_known() && mark(rules, &without_namespace(text)).is_some()
}

/// The text behind the fence that it begins with, and the language there.
fn past_fence(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("```")?;
    Some(rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

/// The name that a text begins with, which may be empty, and the text behind it.
fn word(text: &str) -> (&str, &str) {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

/// A word between marks that is no tool's name, such as an id or `function`: the text behind it.
fn past_word<'t>(text: &'t str, offer: &CallableNames) -> Option<&'t str> {
    let (name, rest) = word(text);
    let is_idle = !name.is_empty() && name.len() <= MAX_WORD && offer.identifier(name).is_none();
    (is_idle && mark(offer.rules(), rest).is_some()).then_some(rest)
}

/// The calls of an answer that is nothing else.
pub(super) fn calls(answer: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let text = answer.trim();
    // More may have been to come.
    if end == TextEnd::Cut || !is_unknown(offer.rules(), text) {
        return None;
    }
    let plain = without_namespace(text);
    let mut reader = UnknownReader::new(offer);
    let mut leaked = LeakedCalls::default();
    let mut rest = reader.past_marks(&plain);
    let mut from = 0;
    while !rest.is_empty() {
        let (call, after) = reader.call(rest)?;
        // Each with its own text: of two calls, one may be copied.
        let end = plain.len() - after.len();
        leaked.take(call.written_as(plain.get(from..end)?));
        from = end;
        if leaked.calls.len() > MAX_CALLS {
            return None;
        }
        rest = reader.past_marks(after);
    }
    (!leaked.calls.is_empty()).then_some(leaked)
}

/// Reads marks and calls, each byte once, and the text of a parameter once for each of [`MAX_CLOSES`] marks.
#[derive(Debug)]
struct UnknownReader<'o> {
    offer: &'o CallableNames,
    /// Whether a mark before said that calls follow.
    is_of_calls: bool,
    /// Marks that were passed.
    marks: usize,
}

impl<'o> UnknownReader<'o> {
    fn new(offer: &'o CallableNames) -> Self {
        Self {
            offer,
            is_of_calls: false,
            marks: 0,
        }
    }

    /// The text behind marks, fences and words that mean nothing; at most [`MAX_MARKS`] in all.
    fn past_marks<'t>(&mut self, text: &'t str) -> &'t str {
        let mut rest = text.trim_start();
        loop {
            let after = if let Some((mark, after)) = mark(self.offer.rules(), rest) {
                self.marks += 1;
                self.is_of_calls |= mark.is_of_calls();
                let is_call = !mark.is_close && self.tool(&mark).is_some();
                if is_call || self.marks > MAX_MARKS {
                    return rest;
                }
                after
            } else if let Some(after) = past_fence(rest) {
                after
            } else {
                match past_word(rest, self.offer).filter(|_| self.is_of_calls) {
                    Some(after) => after,
                    None => return rest,
                }
            };
            rest = after.trim_start();
        }
    }

    /// The tool that an element calls, which it names, or is named like.
    fn tool(&self, mark: &AnyMark<'_>) -> Option<String> {
        let said = mark.said(&TOOL_KEYS);
        let tool = said.and_then(|name| self.offer.identifier(name));
        tool.or_else(|| {
            let is_call = self.is_of_calls && mark.is_bare() && !mark.is_token;
            self.offer.identifier(mark.name).filter(|_| is_call)
        })
    }

    /// The calls that a text begins with, and the text behind them.
    fn call<'t>(&self, text: &'t str) -> Option<(LeakedCalls, &'t str)> {
        if let Some((mark, after)) = mark(self.offer.rules(), text) {
            return self.element(&mark, after);
        }
        if text.starts_with(['{', '[']) {
            let (value, after) = bracketed(text)?;
            let found = body::json(value, self.offer, TextEnd::Own, !self.is_of_calls);
            let found = found.or_else(|| {
                let is_list = self.is_of_calls && value.starts_with('[');
                is_list.then(|| pythonic::calls(value, self.offer))?
            });
            return Some((found?, after));
        }
        if !self.is_of_calls {
            return None;
        }
        let (name, after) = word(text);
        if after.starts_with('(') {
            let (arguments, after) = bracketed(after)?;
            let call = text.get(..name.len() + arguments.len())?;
            return Some((pythonic::calls(call, self.offer)?, after));
        }
        let tool = self.offer.identifier(name)?;
        self.arguments(tool, past_separators(self.offer.rules(), after))
    }

    /// `<ANY name="NAME">…</ANY>`, `<ANY=NAME>…</ANY>` or `<NAME>…</NAME>`, which may lack its end.
    fn element<'t>(&self, mark: &AnyMark<'_>, after: &'t str) -> Option<(LeakedCalls, &'t str)> {
        let tool = self.tool(mark).filter(|_| self.is_of_calls)?;
        if let Some(after) = after.trim_start().strip_prefix(&*mark.close()) {
            return Some((one(tool, Map::new()), after));
        }
        self.arguments(tool, past_separators(self.offer.rules(), after))
    }

    /// An object, or elements that are parameters; at least one.
    fn arguments<'t>(&self, tool: String, text: &'t str) -> Option<(LeakedCalls, &'t str)> {
        if text.starts_with('{') {
            let (object, after) = bracketed(text)?;
            return Some((body::named(&tool, object, self.offer, TextEnd::Own)?, after));
        }
        let (arguments, after) = parameters(text, self.offer)?;
        (!arguments.is_empty()).then(|| (one(tool, arguments), after))
    }
}

/// The text behind what may stand between a tool's name and its arguments.
fn past_separators(rules: ReadingRules, text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let after = match any_mark(rules, rest) {
            Some((mark, after))
                if mark.is_close || mark.is_around_parameters() || mark.is_separator() =>
            {
                after
            }
            _ => match past_fence(rest) {
                Some(after) => after,
                None => return rest,
            },
        };
        rest = after.trim_start();
    }
}

/// `<ANY name="KEY">VALUE</ANY>`, `<ANY=KEY>VALUE</ANY>`, `<KEY>VALUE</KEY>` and `<…key>KEY</…key><…value>VALUE</…value>`,
/// as many as there are. Nothing if one of them is not complete.
fn parameters<'t>(text: &'t str, offer: &CallableNames) -> Option<(Map<String, Value>, &'t str)> {
    let mut arguments = Map::new();
    let mut rest = text.trim_start();
    while let Some((mark, after)) = any_mark(offer.rules(), rest) {
        if mark.is_close || arguments.len() > MAX_PARAMETERS {
            break;
        }
        let (key, mark, after) = if let Some(key) = mark.said(&PARAMETER_KEYS) {
            // It may be the next call.
            if offer.identifier(key).is_some() {
                return None;
            }
            (key.trim(), mark, after)
        } else if !mark.is_bare() {
            return None;
        } else if is_of_key(mark.name) {
            let (key, after) = after.split_once(&*mark.close())?;
            let (value, after) = any_mark(offer.rules(), after.trim_start())?;
            (key.trim(), value, after)
        } else if mark.is_token || mark.name.contains(':') || has_call_word(mark.name) {
            // The next call.
            break;
        } else {
            (mark.name, mark, after)
        };
        if mark.is_close {
            return None;
        }
        let (value, after) = value(offer.rules(), after, &mark)?;
        if quotes_call(value, offer) {
            return None;
        }
        put(&mut arguments, key, value.into())?;
        rest = after;
    }
    (arguments.len() <= MAX_PARAMETERS).then_some((arguments, rest))
}

/// Whether an element holds the name of a parameter: `arg_key`, `longcat_arg_key`, `arg_key:opensource`.
fn is_of_key(name: &str) -> bool {
    let name = name.split(':').next().unwrap_or(name);
    name.to_ascii_lowercase().ends_with("arg_key") || name == "key"
}

/// Whether a value holds the beginning of an element that names a tool, and not its end: it quotes a call and was cut
/// within it.
fn quotes_call(value: &str, offer: &CallableNames) -> bool {
    let mut begins = value.match_indices('<').take(MAX_CLOSES);
    begins.any(|(at, _)| {
        let start = value.get(at..);
        let Some((mark, after)) = start.and_then(|start| any_mark(offer.rules(), start)) else {
            return false;
        };
        let tool = mark
            .said(&TOOL_KEYS)
            .and_then(|name| offer.identifier(name));
        !mark.is_close && tool.is_some() && !after.contains(&mark.close())
    })
}

/// How often a value opens the element of this mark.
fn openings(value: &str, open: &str) -> usize {
    let is_whole = |at: usize| {
        let rest = value.get(at + open.len()..).unwrap_or_default();
        !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'))
    };
    let all = value.match_indices(open);
    all.filter(|(at, _)| is_whole(*at)).count()
}

/// The text up to the mark that closes it, behind which nothing but a mark may stand, and the text behind that. Elements of
/// the same name within it have their own ends.
fn value<'t>(rules: ReadingRules, text: &'t str, mark: &AnyMark<'_>) -> Option<(&'t str, &'t str)> {
    let (open, close) = (mark.open(), mark.close());
    let close = close.as_str();
    let mut from = 0;
    for _ in 0..MAX_CLOSES {
        let at = from + text.get(from..)?.find(close)?;
        let rest = text.get(at + close.len()..)?.trim_start();
        let inner = text.get(..at)?;
        let is_own = openings(inner, &open) <= inner.matches(close).count();
        if is_own && (rest.is_empty() || any_mark(rules, rest).is_some()) {
            let value = lines(inner);
            let quoted = value
                .strip_prefix("<![CDATA[")
                .and_then(|inner| inner.strip_suffix("]]>"));
            return Some((quoted.unwrap_or(value), rest));
        }
        from = at + close.len();
    }
    None
}

/// Whether the answer is marks of a form that is not known around the name of an offered tool, or around an object that
/// has a name and arguments, and nothing else stands behind it.
pub(super) fn is_call(answer: &str, offer: &CallableNames) -> bool {
    let text = answer.trim();
    let rules = offer.rules();
    let is_ended = text.ends_with(['>', ']', '}', ')', '▷', '`'])
        || (rules.are_from_5() && text.ends_with('⟧'));
    if !is_unknown(rules, text) || !is_ended {
        return false;
    }
    if calls(text, offer, TextEnd::Own).is_some() {
        return true;
    }
    let plain = without_namespace(text);
    let mut reader = UnknownReader::new(offer);
    let is_tool = |name: &str, is_of_calls: bool| {
        (is_of_calls || name.contains(['.', '-', '_'])) && offer.identifier(name).is_some()
    };
    let mut rest = plain.trim_start();
    while let Some((mark, after)) = mark(rules, rest).filter(|_| reader.marks <= MAX_MARKS) {
        reader.marks += 1;
        reader.is_of_calls |= mark.is_of_calls();
        let said = mark.said(&TOOL_KEYS);
        if [Some(mark.name), said]
            .into_iter()
            .flatten()
            .any(|name| is_tool(name, reader.is_of_calls))
        {
            return true;
        }
        rest = after.trim_start();
    }
    let rest = reader.past_marks(rest);
    let is_of_calls = reader.is_of_calls;
    if rest.starts_with(['{', '[']) {
        let head = rest.get(..rest.floor_char_boundary(HEAD)).unwrap_or(rest);
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        return head
            .split(|c| !is_part(c))
            .any(|name| is_tool(name, is_of_calls))
            || (is_of_calls && is_call_object(rules, rest));
    }
    if mark(rules, rest).is_some() {
        // An element that names a tool.
        return true;
    }
    let (name, after) = word(rest);
    let after = after.trim_start();
    let is_called = after.starts_with(['(', '{', '[', '`']);
    is_tool(name, is_of_calls)
        && if is_of_calls {
            // `<tool_report>news of today</tool_report>` is a text.
            is_called
                || is_tool(name, false)
                || after.is_empty()
                || any_mark(rules, after).is_some()
        } else {
            is_called
                || (any_mark(rules, after).is_some() && !past_separators(rules, after).is_empty())
        }
}

/// The first offered tool in the head of an answer that begins with a mark of a form that is not known.
pub(super) fn named(answer: &str, offer: &CallableNames) -> Option<Leak> {
    let text = answer.trim();
    if !is_unknown(offer.rules(), text) {
        return None;
    }
    let head = text.get(..text.floor_char_boundary(HEAD)).unwrap_or(text);
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut names = head.split(|c| !is_part(c)).filter(|name| !name.is_empty());
    let tool = names.find_map(|name| offer.identifier(name))?;
    Some(Leak::without_arguments(tool, text))
}

/// Whether a text begins with an object, or a list of them, that has a member for a name and one for arguments.
fn is_call_object(rules: ReadingRules, text: &str) -> bool {
    let value = bracketed(text).and_then(|(value, _)| strict::parse(value).ok());
    let object = match &value {
        Some(Value::Array(items)) => items.first().and_then(Value::as_object),
        Some(value) => value.as_object(),
        None => None,
    };
    object.is_some_and(|object| {
        let has = |keys: &[&str]| keys.iter().any(|key| object.contains_key(*key));
        has(names(rules)) && has(argument_members(rules))
    })
}
