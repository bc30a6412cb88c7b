//! Arguments as pairs of tags. Their values are texts: what type one has, the tool's schema says later
//! (`guard::coerce`).

use super::body::{self, Offer};
use super::{Leak, Leaked, MAX_CALLS, MAX_CLOSES};
use crate::guard::mend::End;
use serde_json::{Map, Value};

/// More than any tool has.
const MAX_PARAMETERS: usize = 256;

/// One call after the other.
pub(super) fn all(text: &str, offer: &Offer, end: End) -> Option<Leaked> {
    let mut leaked = Leaked::default();
    let mut rest = text;
    while !rest.is_empty() {
        let close = if rest.starts_with("<function=") {
            "</function>"
        } else {
            "</invoke>"
        };
        let mut from = 0;
        let mut found = None;
        for _ in 0..MAX_CLOSES {
            let Some(at) = rest[from..].find(close).map(|at| from + at + close.len()) else {
                break;
            };
            found = named(&rest[..at], offer, End::Own).map(|call| (call, &rest[at..]));
            if found.is_some() {
                break;
            }
            from = at;
        }
        let (call, after) = match found {
            Some(found) => found,
            None => (named(rest, offer, end)?, ""),
        };
        leaked.take(call);
        rest = after.trim_start();
        if leaked.calls.len() > MAX_CALLS {
            return None;
        }
    }
    Some(leaked)
}

/// `<function=NAME>…</function>` and `<invoke name="NAME">…</invoke>`, with parameters as tags or as JSON.
fn named(text: &str, offer: &Offer, end: End) -> Option<Leaked> {
    let (name, rest, close) = match text.strip_prefix("<function=") {
        Some(rest) => {
            let (name, rest) = rest.split_once('>')?;
            (name, rest, "</function>")
        }
        None => {
            let (name, rest) = text.strip_prefix("<invoke name=")?.split_once('>')?;
            (unquoted(name)?, rest, "</invoke>")
        }
    };
    let rest = rest.trim();
    let (inner, is_closed) = match rest.strip_suffix(close) {
        Some(inner) => (inner.trim(), true),
        None => (rest, false),
    };
    // Without its closing tag a parameter may be missing, if the reply was cut.
    if !is_closed && end == End::Cut {
        return None;
    }
    if !inner.starts_with("<parameter") {
        return body::named(name, inner, offer, end);
    }
    let tool = offer.tool(name)?;
    let mut arguments = Map::new();
    let mut rest = inner;
    for _ in 0..MAX_PARAMETERS {
        if rest.is_empty() {
            break;
        }
        let (head, after) = rest.strip_prefix("<parameter")?.split_once('>')?;
        let key = match head.strip_prefix('=') {
            Some(key) => key.trim(),
            None => unquoted(head.trim_start().strip_prefix("name=")?)?,
        };
        let (value, next) = value(after, is_closed)?;
        put(&mut arguments, key, value)?;
        rest = next;
    }
    rest.is_empty().then(|| one(tool, arguments))
}

/// Up to the tag that ends it, and what follows. Models forget that tag in long conversations: then the
/// next parameter ends it, or what ends the call. A value may quote the tag where something else than a
/// parameter follows it.
fn value(text: &str, is_closed: bool) -> Option<(&str, &str)> {
    const CLOSE: &str = "</parameter>";
    let next = text.find("\n<parameter").unwrap_or(text.len());
    let mut from = 0;
    while let Some(at) = text[from..next].find(CLOSE).map(|at| from + at) {
        let after = text[at + CLOSE.len()..].trim_start();
        if after.is_empty() || after.starts_with("<parameter") {
            return Some((lines(&text[..at]), after));
        }
        from = at + CLOSE.len();
    }
    // What follows the last one is nothing that may.
    if from > 0 || (next == text.len() && !is_closed) {
        return None;
    }
    Some((lines(&text[..next]), text[next..].trim_start()))
}

/// The value stands on lines of its own, whose breaks are not part of it.
fn lines(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…`
pub(super) fn pairs(text: &str, offer: &Offer, end: End) -> Option<Leaked> {
    // Another pair may be missing.
    if end == End::Cut {
        return None;
    }
    let (name, rest) = text.split_once("<arg_key>")?;
    let tool = offer.tool(name)?;
    let mut arguments = Map::new();
    let mut rest = Some(rest);
    while let Some(text) = rest {
        let (key, after) = text.split_once("</arg_key>")?;
        let after = after.trim_start().strip_prefix("<arg_value>")?;
        let (value, after) = after.split_once("</arg_value>")?;
        put(&mut arguments, key.trim(), value)?;
        rest = match after.trim_start() {
            "" => None,
            more => Some(more.strip_prefix("<arg_key>")?),
        };
    }
    Some(one(tool, arguments))
}

fn one(tool: String, arguments: Map<String, Value>) -> Leaked {
    Leaked {
        calls: vec![Leak { tool, arguments }],
        repairs: Vec::new(),
    }
}

fn put(arguments: &mut Map<String, Value>, key: &str, value: &str) -> Option<()> {
    let known = arguments.insert(key.to_owned(), value.into());
    // Of two values for one key neither is the right one.
    (!key.is_empty() && known.is_none_or(|known| known == value)).then_some(())
}

fn unquoted(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\''))
}
