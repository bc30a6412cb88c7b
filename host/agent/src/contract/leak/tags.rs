//! Arguments as pairs of tags. Their values are texts, unless the tag says that one is JSON: what type one
//! has, the tool's schema says later (`guard::coerce`).

use super::body::{self, CallableNames};
use super::{Leak, LeakedCalls, MAX_CALLS, MAX_CLOSES};
use serde_json::{Map, Value};
use toolhold_json::repair::TextEnd;
use toolhold_json::rules::ReadingRules;
use toolhold_json::strict;

/// More than any tool has.
pub(super) const MAX_PARAMETERS: usize = 256;

/// How the tags are called.
#[derive(Debug)]
struct Family {
    /// With the tool's name behind it.
    open: &'static str,
    close: &'static str,
    /// With the parameter's name behind it.
    parameter: &'static str,
    parameter_close: &'static str,
}

impl Family {
    /// Whether a value has one of the marks: it quotes a call, or a part of the call itself.
    fn is_in(&self, value: &str) -> bool {
        [self.open, self.close, self.parameter, self.parameter_close]
            .iter()
            .any(|mark| value.contains(mark))
    }

    /// Whether a value ends within a call that it quotes.
    fn is_open_in(&self, value: &str) -> bool {
        value.matches(self.open).count() > value.matches(self.close).count()
    }
}

const PLAIN: Family = Family {
    open: "<invoke name=",
    close: "</invoke>",
    parameter: "<parameter",
    parameter_close: "</parameter>",
};

static FAMILIES: [Family; 4] = [
    PLAIN,
    Family {
        open: "<function=",
        close: "</function>",
        ..PLAIN
    },
    Family {
        open: "<｜DSML｜invoke name=",
        close: "</｜DSML｜invoke>",
        parameter: "<｜DSML｜parameter",
        parameter_close: "</｜DSML｜parameter>",
    },
    Family {
        open: "<|DSML|invoke name=",
        close: "</|DSML|invoke>",
        parameter: "<|DSML|parameter",
        parameter_close: "</|DSML|parameter>",
    },
];

/// Unknown to the rules of format 3.
static LATER_FAMILY: Family = Family {
    open: "<steptml:invoke name=",
    close: "</steptml:invoke>",
    parameter: "<steptml:parameter",
    parameter_close: "</steptml:parameter>",
};

/// How pairs of a key and a value are called.
#[derive(Debug)]
struct PairFamily {
    key: (&'static str, &'static str),
    value: (&'static str, &'static str),
}

static PAIRS: PairFamily = PairFamily {
    key: ("<arg_key>", "</arg_key>"),
    value: ("<arg_value>", "</arg_value>"),
};

/// Unknown to the rules of format 3.
static LATER_PAIRS: PairFamily = PairFamily {
    key: ("<longcat_arg_key>", "</longcat_arg_key>"),
    value: ("<longcat_arg_value>", "</longcat_arg_value>"),
};

/// Whether a text begins with the tag of a call.
pub(super) fn begin(rules: ReadingRules, text: &str) -> bool {
    family(rules, text).is_some()
}

/// Beginnings of the tags of calls, with the tool's name behind them.
pub(super) fn openings(rules: ReadingRules) -> impl Iterator<Item = &'static str> {
    families(rules).map(|family| family.open)
}

fn family(rules: ReadingRules, text: &str) -> Option<&'static Family> {
    families(rules).find(|family| text.starts_with(family.open))
}

fn families(rules: ReadingRules) -> impl Iterator<Item = &'static Family> {
    let later = rules.are_from_4().then_some(&LATER_FAMILY);
    FAMILIES.iter().chain(later)
}

/// One call after the other.
pub(super) fn all(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let mut leaked = LeakedCalls::default();
    let mut rest = text;
    while !rest.is_empty() {
        let family = family(offer.rules(), rest)?;
        let close = family.close;
        let mut from = 0;
        let mut found = None;
        for _ in 0..MAX_CLOSES {
            let Some(at) = rest[from..].find(close).map(|at| from + at + close.len()) else {
                break;
            };
            found = named(family, &rest[..at], offer, TextEnd::Own).map(|call| (call, &rest[at..]));
            if found.is_some() {
                break;
            }
            from = at;
        }
        let (call, after) = match found {
            Some(found) => found,
            None => (named(family, rest, offer, end)?, ""),
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
fn named(family: &Family, text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    let (name, rest) = text.strip_prefix(family.open)?.split_once('>')?;
    if !body::is_one_word(offer.rules(), name) {
        return None;
    }
    let name = if family.open.ends_with("name=") {
        unquoted(name)?
    } else {
        name
    };
    let rest = rest.trim();
    let (written, is_closed) = match rest.strip_suffix(family.close) {
        Some(inner) => (inner, true),
        None => (rest, false),
    };
    let inner = written.trim();
    // Without its closing tag a parameter may be missing, if the reply was cut.
    if !is_closed && end == TextEnd::Cut {
        return None;
    }
    if !inner.starts_with(family.parameter) {
        return body::named(name, inner, offer, end);
    }
    let tool = offer.tool(name)?;
    let is_current = offer.rules().are_from_4();
    // The last parameter may lack its tag where the tag of the call begins a line: within one, a value may quote it.
    let begins_line = written.trim_end_matches([' ', '\t']).ends_with('\n');
    let may_lack = is_closed && (begins_line || !is_current);
    let mut arguments = Map::new();
    let mut rest = inner;
    let (mut is_before_open, mut lacks_tags, mut has_marks) = (false, false, false);
    for _ in 0..MAX_PARAMETERS {
        if rest.is_empty() {
            break;
        }
        let (head, after) = rest.strip_prefix(family.parameter)?.split_once('>')?;
        let (key, ty) = match head.strip_prefix('=') {
            Some(key) => (key.trim(), Type::Unsaid),
            None => attributes(head)?,
        };
        // It may be part of a call that the value before quotes.
        if is_current && is_before_open && !offer.takes(&tool, key) {
            return None;
        }
        let ParameterText {
            text,
            rest: next,
            is_ended,
        } = value(family, after, may_lack)?;
        if is_current && (family.is_open_in(text) || offer.loses_digits(&tool, key, text)) {
            return None;
        }
        is_before_open = !is_ended;
        lacks_tags |= !is_ended;
        has_marks |= family.is_in(text);
        let value = match ty {
            Type::Unsaid => lines(text).into(),
            Type::Text => text.into(),
            Type::Json => strict::parse_under(offer.rules(), text.trim()).ok()?,
        };
        put(&mut arguments, key, value)?;
        rest = next;
    }
    // Where tags are missing, nobody knows which ones a value quotes.
    let is_unclear = is_current && lacks_tags && has_marks;
    (rest.is_empty() && !is_unclear).then(|| one(tool, arguments))
}

/// The type of a parameter's value, as its tag declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Unsaid,
    /// Every character of it.
    Text,
    Json,
}

/// `name="KEY"`, and perhaps `string="true"`.
fn attributes(head: &str) -> Option<(&str, Type)> {
    let name = head.trim().strip_prefix("name=")?;
    let (name, ty) = match name.split_once(" string=") {
        Some((name, ty)) => (name, Some(ty)),
        None => (name, None),
    };
    let ty = match ty.map(unquoted) {
        None => Type::Unsaid,
        Some(Some("true")) => Type::Text,
        Some(Some("false")) => Type::Json,
        Some(_) => return None,
    };
    Some((unquoted(name)?, ty))
}

/// The value of a parameter.
#[derive(Debug)]
struct ParameterText<'t> {
    text: &'t str,
    /// The text behind it and its tag.
    rest: &'t str,
    /// Whether its own tag ends it.
    is_ended: bool,
}

/// Up to the tag that ends it, and what follows. Models forget that tag in long conversations: then the
/// next parameter ends it, or what ends the call. A value may quote the tag where something else than a
/// parameter follows it. `may_lack`: the last parameter may lack it.
fn value<'t>(family: &Family, text: &'t str, may_lack: bool) -> Option<ParameterText<'t>> {
    let close = family.parameter_close;
    let mut next = text.match_indices(family.parameter).map(|(at, _)| at);
    let next = next.find_map(|at| text[..at].ends_with('\n').then(|| at - 1));
    let next = next.unwrap_or(text.len());
    let mut from = 0;
    while let Some(at) = text[from..next].find(close).map(|at| from + at) {
        let after = text[at + close.len()..].trim_start();
        if after.is_empty() || after.starts_with(family.parameter) {
            return Some(ParameterText {
                text: &text[..at],
                rest: after,
                is_ended: true,
            });
        }
        from = at + close.len();
    }
    // What follows the last one is nothing that may.
    if from > 0 || (next == text.len() && !may_lack) {
        return None;
    }
    Some(ParameterText {
        text: &text[..next],
        rest: text[next..].trim_start(),
        is_ended: false,
    })
}

/// The value stands on lines of its own, whose breaks are not part of it.
pub(super) fn lines(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…`
pub(super) fn pairs(text: &str, offer: &CallableNames, end: TextEnd) -> Option<LeakedCalls> {
    // Another pair may be missing.
    if end == TextEnd::Cut {
        return None;
    }
    pairs_of(&PAIRS, text, offer).or_else(|| {
        let later = offer.rules().are_from_4().then_some(&LATER_PAIRS)?;
        pairs_of(later, text, offer)
    })
}

fn pairs_of(family: &PairFamily, text: &str, offer: &CallableNames) -> Option<LeakedCalls> {
    let PairFamily { key, value } = family;
    let (name, rest) = text.split_once(key.0)?;
    let name = before_separator(offer.rules(), name);
    if !body::is_one_word(offer.rules(), name) {
        return None;
    }
    let tool = offer.tool(name)?;
    let mut arguments = Map::new();
    let mut rest = Some(rest);
    while let Some(text) = rest {
        let (name, after) = text.split_once(key.1)?;
        let after = after.trim_start().strip_prefix(value.0)?;
        let (text, after) = after.split_once(value.1)?;
        // A value that quotes a call ends at a mark of that.
        let quotes = text.contains(key.0) || text.contains(value.0);
        let is_current = offer.rules().are_from_4();
        if is_current && (quotes || offer.loses_digits(&tool, name.trim(), text)) {
            return None;
        }
        put(&mut arguments, name.trim(), text.into())?;
        rest = match after.trim_start() {
            "" => None,
            more => Some(more.strip_prefix(key.0)?),
        };
    }
    Some(one(tool, arguments))
}

/// A name, perhaps with the mark behind it that Hunyuan writes there, which the rules of format 3 do not know.
fn before_separator(rules: ReadingRules, name: &str) -> &str {
    match name.find('<').filter(|_| rules.are_from_4()) {
        Some(at)
            if body::strip_separator(rules, &name[at..])
                .is_some_and(|rest| rest.trim().is_empty()) =>
        {
            &name[..at]
        }
        _ => name,
    }
}

pub(super) fn one(tool: String, arguments: Map<String, Value>) -> LeakedCalls {
    LeakedCalls {
        calls: vec![Leak::new(tool, arguments)],
        repairs: Vec::new(),
    }
}

pub(super) fn put(arguments: &mut Map<String, Value>, key: &str, value: Value) -> Option<()> {
    // Two different values for one key are ambiguous.
    let is_one = arguments.get(key).is_none_or(|known| *known == value);
    arguments.insert(key.to_owned(), value);
    (!key.is_empty() && is_one).then_some(())
}

pub(super) fn unquoted(text: &str) -> Option<&str> {
    let text = text.trim();
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\''))
}
