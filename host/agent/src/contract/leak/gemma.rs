//! Calls as FunctionGemma and Gemma 4 write them: `call:NAME{city:<escape>Rome<escape>,days:[1,2]}`. Texts
//! stand between two marks of their own, keys are bare, and what else there is are literals of JSON.

use super::body::CallableNames;
use super::tags::{one, put};
use super::{LeakedCalls, MAX_CALLS};
use serde_json::{Map, Value};
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;

/// Beginning of each call.
pub(super) const CALL: &str = "call:";
/// The quotation marks of texts: FunctionGemma's and Gemma 4's.
const QUOTES: [&str; 2] = ["<escape>", "<|\"|>"];
/// Maximum depth of values; no tool takes deeper ones.
const MAX_DEPTH: usize = 32;

/// Whether a text begins with such a call.
pub(super) fn begin(text: &str) -> bool {
    text.starts_with(CALL)
}

/// One call after the other, whole. Where one is cut its last value may be another.
pub(super) fn calls(text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let mut leaked = LeakedCalls::default();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, inner) = rest.strip_prefix(CALL)?.split_once('{')?;
        let (arguments, after) = members(offer.rules(), inner, 0)?;
        leaked.take(one(offer.identifier(name)?, arguments));
        if leaked.calls.len() > MAX_CALLS {
            return None;
        }
        rest = after.trim_start();
    }
    (!leaked.calls.is_empty()).then_some(leaked)
}

/// What stands in an object that is open, and what follows it.
fn members(rules: ReadingRules, text: &str, depth: usize) -> Option<(Map<String, Value>, &str)> {
    let mut members = Map::new();
    let mut rest = text.trim_start();
    if let Some(after) = rest.strip_prefix('}') {
        return Some((members, after));
    }
    loop {
        let (key, after) = key(rest)?;
        let (value, after) = value(rules, after, depth)?;
        put(&mut members, &key, value)?;
        rest = match after.strip_prefix(',') {
            Some(more) => more.trim_start(),
            None => return Some((members, after.strip_prefix('}')?)),
        };
    }
}

fn key(text: &str) -> Option<(String, &str)> {
    if let Some((key, rest)) = quoted(text) {
        return Some((key, rest.trim_start().strip_prefix(':')?));
    }
    let (key, rest) = text.split_once(':')?;
    let key = key.trim();
    let is_bare = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    key.chars().all(is_bare).then(|| (key.to_owned(), rest))
}

/// A value, and what follows it and white space.
fn value(rules: ReadingRules, text: &str, depth: usize) -> Option<(Value, &str)> {
    if depth > MAX_DEPTH {
        return None;
    }
    let text = text.trim_start();
    let (value, rest) = if let Some((text, rest)) = quoted(text) {
        (text.into(), rest)
    } else if let Some(inner) = text.strip_prefix('{') {
        let (members, rest) = members(rules, inner, depth + 1)?;
        (members.into(), rest)
    } else if let Some(inner) = text.strip_prefix('[') {
        let (items, rest) = items(rules, inner, depth + 1)?;
        (items.into(), rest)
    } else {
        let end = text.find([',', '}', ']'])?;
        let literal = strict::parse_under(rules, text[..end].trim()).ok()?;
        (literal, &text[end..])
    };
    Some((value, rest.trim_start()))
}

fn items(rules: ReadingRules, text: &str, depth: usize) -> Option<(Vec<Value>, &str)> {
    let mut items = Vec::new();
    let mut rest = text.trim_start();
    if let Some(after) = rest.strip_prefix(']') {
        return Some((items, after));
    }
    loop {
        let (item, after) = value(rules, rest, depth)?;
        items.push(item);
        rest = match after.strip_prefix(',') {
            Some(more) => more,
            None => return Some((items, after.strip_prefix(']')?)),
        };
    }
}

/// A text between marks, or as JSON has it.
fn quoted(text: &str) -> Option<(String, &str)> {
    for quote in QUOTES {
        if let Some(inner) = text.strip_prefix(quote) {
            let (inner, rest) = inner.split_once(quote)?;
            return Some((inner.to_owned(), rest));
        }
    }
    if !text.starts_with('"') {
        return None;
    }
    let mut texts = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let quoted = texts.next()?.ok()?;
    Some((quoted, text.get(texts.byte_offset()..)?))
}
