//! Extracts the facts of a value, verbatim: one line for each object in it, so that an identifier stays
//! beside its values; of prose, the words that look like identifiers.

use serde_json::{Map, Value};
use std::borrow::Cow;
use toolhold_json::fragment;
use toolhold_policy::text::readable_line;

/// Maximum characters of a text that is kept as it is; longer ones are treated as prose or as one
/// word.
const MAX_VALUE_CHARS: usize = 120;
/// Characters of one word that is kept as it is: the address of a page, a signed link, a token.
const MAX_WORD_CHARS: usize = 2_000;
/// Maximum bytes of a line. Whole lines are left out when room is short.
const MAX_LINE_BYTES: usize = 1_000;
const MAX_DEPTH: usize = 32;
/// Bytes of a name, and of the place of an object: every line begins with one.
const MAX_PLACE_BYTES: usize = 200;
/// Maximum bytes of all lines of one value. Lines repeat places, so they can exceed the value
/// itself.
const MAX_FACTS_BYTES: usize = 64 << 10;
/// Maximum nesting of texts that are read as JSON. Each level costs the sender a few bytes and makes the
/// reader read everything again.
const MAX_NESTED_TEXTS: usize = 4;
/// Marks omitted text.
const ELLIPSIS: &str = "…";

/// What is kept of a value, and how many values there was no room for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SelectedFacts {
    pub(super) facts: Vec<Fact>,
    pub(super) left: usize,
}

/// One line, without line breaks in it, and the number of values in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) line: String,
    pub(super) values: usize,
}

impl Fact {
    fn new(at: &str, what: &str, values: usize) -> Self {
        let line = if at.is_empty() {
            readable_line(what)
        } else {
            format!("{}: {}", readable_line(at), readable_line(what))
        };
        Self { line, values }
    }
}

/// Of a value, with the place of each object in it.
pub(super) fn of_value(value: &Value) -> SelectedFacts {
    let mut collector = Collector::default();
    collector.collect("", value, 0);
    collector.told
}

/// Of a text: of the JSON in it, whole or not, and of its words.
pub(super) fn of_text(text: &str) -> SelectedFacts {
    let mut collector = Collector::default();
    collector.text("", text, 0);
    collector.told
}

#[derive(Default)]
struct Collector {
    told: SelectedFacts,
    bytes: usize,
    /// From here on values are only counted.
    is_full: bool,
    /// Texts around the one that is being read.
    within: usize,
}

impl Collector {
    fn push(&mut self, at: &str, what: &str, values: usize) {
        let fact = Fact::new(at, what, values);
        self.bytes = self.bytes.saturating_add(fact.line.len());
        self.is_full |= self.bytes > MAX_FACTS_BYTES;
        if self.is_full {
            self.told.left += values;
        } else {
            self.told.facts.push(fact);
        }
    }

    fn collect(&mut self, at: &str, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            _ if self.is_full => self.told.left += leaves(value),
            Value::Object(fields) => self.object(at, fields, depth),
            Value::Array(items) => {
                self.lines(at, items.iter().filter_map(verbatim));
                for (index, item) in items.iter().enumerate() {
                    if is_verbatim(item) {
                        continue;
                    }
                    // Its place is not needed then.
                    let place = if self.is_full {
                        String::new()
                    } else {
                        tail(format!("{at}[{index}]"))
                    };
                    self.collect(&place, item, depth + 1);
                }
            }
            other => match (verbatim(other), other) {
                (Some(value), _) => self.push(at, &value, 1),
                (None, Value::String(text)) => self.text(at, text, depth),
                (None, _) => {}
            },
        }
    }

    fn object(&mut self, at: &str, fields: &Map<String, Value>, depth: usize) {
        let plain = fields.iter().filter_map(|(key, value)| {
            let value = verbatim(value)?;
            Some(Cow::Owned(format!("{}={value}", name(key))))
        });
        self.lines(at, plain);
        for (key, value) in fields {
            if is_verbatim(value) {
                continue;
            }
            let key = name(key);
            let place = if at.is_empty() {
                key.into_owned()
            } else {
                format!("{at}.{key}")
            };
            self.collect(&tail(place), value, depth + 1);
        }
    }

    /// Values that stand together.
    fn lines<'v>(&mut self, at: &str, plain: impl Iterator<Item = Cow<'v, str>>) {
        let mut line = String::new();
        let mut values = 0;
        for value in plain {
            if self.is_full {
                self.told.left += 1;
                continue;
            }
            let is_full = line.len() + value.len() > MAX_LINE_BYTES;
            if is_full && values > 0 {
                self.push(at, &line, values);
                line.clear();
                values = 0;
            }
            if values > 0 {
                line.push_str(", ");
            }
            line.push_str(&value);
            values += 1;
        }
        if values > 0 {
            self.push(at, &line, values);
        }
    }

    fn text(&mut self, at: &str, text: &str, depth: usize) {
        if self.within >= MAX_NESTED_TEXTS {
            return self.words(at, text);
        }
        let Some(found) = fragment::read(text) else {
            return self.words(at, text);
        };
        // JSON in the text of JSON in a text: each is less than the one around it.
        self.within += 1;
        for value in &found.values {
            self.collect(at, value, depth + 1);
        }
        self.within -= 1;
        self.words(at, &found.rest);
    }

    fn words(&mut self, at: &str, text: &str) {
        identifiers(text, |found| self.push(at, found, 1));
    }
}

/// The number of values in a value; a text counts as one.
fn leaves(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.values().map(leaves).sum(),
        Value::Array(items) => items.iter().map(leaves).sum(),
        _ => 1,
    }
}

/// A name as it stands in a line: its end says the least.
fn name(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_PLACE_BYTES {
        return Cow::Borrowed(key);
    }
    let most = MAX_PLACE_BYTES.saturating_sub(ELLIPSIS.len());
    let end = (0..=most).rev().find(|end| key.is_char_boundary(*end));
    let kept = end.and_then(|end| key.get(..end)).unwrap_or_default();
    Cow::Owned(format!("{kept}{ELLIPSIS}"))
}

/// A place as it stands in a line: its end tells it from the ones beside it.
fn tail(place: String) -> String {
    if place.len() <= MAX_PLACE_BYTES {
        return place;
    }
    let least = (place.len() + ELLIPSIS.len()).saturating_sub(MAX_PLACE_BYTES);
    let from = (least..place.len()).find(|from| place.is_char_boundary(*from));
    let kept = from.and_then(|from| place.get(from..)).unwrap_or_default();
    format!("{ELLIPSIS}{kept}")
}

/// A value as it is, if it is one that can be an identifier or belong to one.
fn verbatim(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if is_short(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Owned(flag.to_string())),
        Value::Null => Some(Cow::Borrowed("null")),
        _ => None,
    }
}

/// Whether there is a [`verbatim`] of it.
fn is_verbatim(value: &Value) -> bool {
    match value {
        Value::String(text) => is_short(text),
        Value::Number(_) | Value::Bool(_) | Value::Null => true,
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn is_short(text: &str) -> bool {
    let is_longer_than = |most: usize| text.chars().nth(most).is_some();
    let is_word = || {
        !text.contains(char::is_whitespace)
            && !text.starts_with(['{', '['])
            && !text.contains("\":")
            && !is_longer_than(MAX_WORD_CHARS)
    };
    !is_longer_than(MAX_VALUE_CHARS) || is_word()
}

/// The words of a text that look like identifiers, quantities or addresses, each with the word before it:
/// `order A-17`.
fn identifiers(text: &str, mut keep: impl FnMut(&str)) {
    let mut before = "";
    for word in text.split_whitespace() {
        let is_link = word.contains("://");
        let (bare, most) = if is_link {
            // An address may end with a sign of its own.
            (word.trim_matches(is_around), MAX_WORD_CHARS)
        } else {
            (bare(word), MAX_VALUE_CHARS)
        };
        if is_identifier(bare) && bare.chars().nth(most).is_none() {
            if before.is_empty() {
                keep(bare);
            } else {
                keep(&format!("{before} {bare}"));
            }
            before = "";
        } else {
            let is_name = bare.chars().nth(MAX_VALUE_CHARS).is_none();
            before = if is_name { bare } else { "" };
        }
    }
}

/// A word without the signs around it. Those of a placeholder, such as `<email_1>`, are a part of it.
fn bare(word: &str) -> &str {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
    let around = word.split_once(inner).filter(|_| inner.contains('_'));
    let (before, after) = around.unwrap_or_default();
    let is_placeholder = before.ends_with('<') && after.starts_with('>');
    let end = before.len() + inner.len() + 1;
    let marked = before.len().checked_sub(1).filter(|_| is_placeholder);
    marked
        .and_then(|begin| word.get(begin..end))
        .unwrap_or(inner)
}

fn is_identifier(word: &str) -> bool {
    word.chars().any(|c| c.is_ascii_digit()) || word.contains('@') || word.contains("://")
}

/// What stands around a link in prose.
fn is_around(c: char) -> bool {
    matches!(
        c,
        '(' | ')'
            | '['
            | ']'
            | '<'
            | '>'
            | '"'
            | '\''
            | '`'
            | '“'
            | '”'
            | '‘'
            | '’'
            | ','
            | ';'
            | ':'
            | '.'
            | '!'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(told: SelectedFacts) -> Vec<String> {
        told.facts.into_iter().map(|fact| fact.line).collect()
    }

    #[test]
    fn a_long_word_is_kept_and_long_prose_is_not() {
        let link = format!("https://shop.example/o?sig={}==", "aB3".repeat(200));
        let value = json!({"id": "A-17", "link": link, "note": "word ".repeat(60), "blob": "x".repeat(9_000)});
        let kept = [format!("id=A-17, link={link}")];
        assert_eq!(lines(of_value(&value)), kept);

        let prose = format!("{} See ({link}), order 7.", "word ".repeat(60));
        let kept = [format!("See {link}"), "order 7".to_owned()];
        assert_eq!(lines(of_text(&prose)), kept);
    }

    /// What is left out is left out by lines, so one line never holds all of a large array or object.
    #[test]
    fn many_values_are_many_lines() {
        let fields: Map<String, Value> = (0..400).map(|n| (format!("A-{n}"), json!(n))).collect();
        let ids: Vec<String> = (0..400).map(|n| format!("B-{n}")).collect();
        let told = of_value(&json!({"prices": fields, "ids": ids}));
        assert_eq!(told.left, 0);
        let facts = &told.facts;
        assert!(facts.len() > 6, "{facts:?}");
        assert!(
            facts
                .iter()
                .all(|fact| fact.line.len() < MAX_LINE_BYTES + 20)
        );
        assert_eq!(facts.iter().map(|fact| fact.values).sum::<usize>(), 800);
        let all = lines(told).join("\n");
        for n in 0..400 {
            assert!(all.contains(&format!("A-{n}={n}")), "{n}: {all}");
        }
    }

    #[test]
    fn json_in_a_text_is_read_where_it_stands() {
        let orders: Vec<Value> = (0..40)
            .map(|n| json!({"id": format!("A-{n}"), "total": n * 17}))
            .collect();
        let body = json!({"orders": orders}).to_string();
        let facts = lines(of_value(&json!({"status": 200, "body": body})));
        assert_eq!(facts.first().map(String::as_str), Some("status=200"));
        for n in 0..40 {
            let line = format!("body.orders[{n}]: id=A-{n}, total={}", n * 17);
            assert!(facts.contains(&line), "{line}: {facts:?}");
        }
    }

    fn bytes(told: &SelectedFacts) -> usize {
        told.facts.iter().map(|fact| fact.line.len()).sum()
    }

    fn values(told: &SelectedFacts) -> usize {
        told.facts.iter().map(|fact| fact.values).sum()
    }

    /// It would be written as often as there are objects under it.
    #[test]
    fn a_long_name_is_not_written_over_and_over() {
        let items: Vec<Value> = (0..50_000).map(|n| json!({"a": n})).collect();
        for long in ["k".repeat(1 << 21), "ä€😀".repeat(1 << 18)] {
            let told = of_value(&json!({ &long: items, "b": 1 }));
            assert!(bytes(&told) <= MAX_FACTS_BYTES, "{}", bytes(&told));
            assert_eq!(values(&told) + told.left, 50_001);
            assert!(told.left > 40_000, "{}", told.left);
            let item = told
                .facts
                .iter()
                .find(|fact| fact.line.ends_with("[7]: a=7"));
            let item = item.map_or(0, |fact| fact.line.len());
            assert!((100..MAX_PLACE_BYTES + 10).contains(&item), "{item}");
        }
        // Names within one another.
        let mut value = json!({"id": "A-17"});
        for _ in 0..30 {
            value = json!({ "n".repeat(150): value });
        }
        let kept = lines(of_value(&value));
        assert_eq!(kept.len(), 1);
        assert!(kept[0].len() < MAX_PLACE_BYTES + 20 && kept[0].ends_with("nnn: id=A-17"));
    }

    #[test]
    fn a_line_exceeds_its_limit_by_at_most_a_word() {
        let wide = |count: usize| "😀".repeat(count);
        let value = json!({ wide(900): [{ wide(500): wide(MAX_WORD_CHARS), "a": wide(MAX_VALUE_CHARS) }, wide(MAX_WORD_CHARS), "b", "c"] });
        let told = of_value(&value);
        assert_eq!((values(&told), told.left), (5, 0));
        for fact in &told.facts {
            assert!(fact.line.len() <= MAX_LINE_BYTES + 4 * MAX_WORD_CHARS);
        }
    }

    #[test]
    fn facts_beyond_the_bound_are_counted() {
        let numbers: Vec<usize> = (0..200_000).collect();
        let told = of_value(&json!({"a": numbers, "b": {"c": [1, 2]}}));
        assert!(bytes(&told) <= MAX_FACTS_BYTES);
        assert_eq!(values(&told) + told.left, 200_002);
        let words = "order A-17 and ".repeat(20_000);
        let told = of_text(&words);
        assert!(bytes(&told) <= MAX_FACTS_BYTES);
        assert_eq!(values(&told) + told.left, 20_000);
    }
}
