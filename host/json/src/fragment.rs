//! Reads JSON that begins or ends in the middle, or is surrounded by prose: a result that was cut, or one
//! page of it. Only complete values are taken.

use crate::depth::MAX_DEPTH;
use crate::string::{StringDecoder, StringPart};
use serde_json::{Map, Value};
use std::mem;

/// The end of a member name inside a text that holds an object.
const NAME_END: &str = "\":";
/// Factor of members found after unescaping above which a text counts as escaped; a text with only
/// a quote in it stays below.
const MIN_ESCAPED_RATIO: usize = 2;
/// Maximum nesting of cut texts. Each level costs the sender a few bytes and makes the reader read everything
/// again.
const MAX_NESTED_TEXTS: usize = 3;
/// Marks omitted text.
const ELLIPSIS: &str = "…";

/// The JSON found in a text.
#[derive(Debug, Default, PartialEq)]
pub struct Fragments {
    /// In the order of the text; the members of an object whose beginning is not there are one, too.
    pub values: Vec<Value>,
    /// The text around the values.
    pub rest: String,
    /// Members of all objects.
    members: usize,
}

/// Nothing if there is no JSON in the text.
pub fn read(text: &str) -> Option<Fragments> {
    read_within(text, MAX_NESTED_TEXTS)
}

fn read_within(text: &str, levels: usize) -> Option<Fragments> {
    let begun = text.trim_start();
    if let Some(whole) = begun.strip_prefix('"') {
        // A text that was cut.
        let (inner, end) = literal(whole);
        if matches!(end, QuotedEnd::Cut) {
            let told = partial(inner).unwrap_or_default();
            let within = levels
                .checked_sub(1)
                .and_then(|levels| read_within(&told, levels));
            return Some(within.unwrap_or(Fragments {
                rest: told,
                ..Fragments::default()
            }));
        }
    }
    let mut found = scan(text);
    if text.contains("\\\"") {
        // The middle of a text within JSON, whose quotes are escaped.
        let inner = scan(&text.replace("\\\"", "\"").replace("\\\\", "\\"));
        if inner.members > found.members.saturating_mul(MIN_ESCAPED_RATIO) {
            found = inner;
        }
    }
    let is_json = begun.starts_with(['{', '[']);
    (is_json || found.members > 0).then_some(found)
}

fn scan(text: &str) -> Fragments {
    let mut scanner = Scanner {
        rest: text,
        members: 0,
        no_name: None,
        no_value: None,
    };
    let mut found = Fragments::default();
    let mut loose = Map::new();
    loop {
        if scanner.space() {
            found.rest.push(' ');
        }
        let Some(next) = scanner.peek() else {
            break;
        };
        match next {
            '{' | '[' => {
                flush(&mut loose, &mut found);
                let value = scanner.value(0).filter(|value| !is_empty(value));
                found.values.extend(value);
            }
            '"' => match scanner.quoted() {
                Some(name) if scanner.takes(':') => {
                    if let Some(value) = scanner.value(0) {
                        if loose.contains_key(&name) {
                            flush(&mut loose, &mut found);
                        }
                        scanner.members += 1;
                        loose.insert(name, value);
                    }
                }
                Some(words) => {
                    found.rest.push_str(&words);
                    found.rest.push(' ');
                }
                // The quote opens nothing: the text began inside a string.
                None => scanner.skip(),
            },
            '}' | ']' => {
                flush(&mut loose, &mut found);
                scanner.skip();
                found.rest.push(' ');
            }
            '\\' => {
                // The escaped character opens nothing either.
                scanner.skip();
                scanner.skip();
            }
            other => {
                found.rest.push(other);
                scanner.skip();
            }
        }
    }
    flush(&mut loose, &mut found);
    found.members = scanner.members;
    found
}

fn flush(loose: &mut Map<String, Value>, found: &mut Fragments) {
    if !loose.is_empty() {
        found.values.push(Value::Object(mem::take(loose)));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

struct Scanner<'t> {
    rest: &'t str,
    members: usize,
    /// How much was left where no name, and no value, was found: every level around would read as much to
    /// find none again.
    no_name: Option<usize>,
    no_value: Option<usize>,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self) {
        let mut chars = self.rest.chars();
        chars.next();
        self.rest = chars.as_str();
    }

    /// Whether there was any.
    fn space(&mut self) -> bool {
        let before = self.rest.len();
        self.rest = self.rest.trim_start();
        self.rest.len() < before
    }

    fn takes(&mut self, sign: char) -> bool {
        self.space();
        let is_there = self.peek() == Some(sign);
        if is_there {
            self.skip();
        }
        is_there
    }

    /// The complete part of the value that begins here. Consumes nothing if there is none.
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        let before = self.rest.len();
        let value = match self.peek()? {
            // A level further out it may be taken.
            '{' | '[' if depth >= MAX_DEPTH => return None,
            '{' => Some(Value::Object(self.object(depth))),
            '[' => Some(Value::Array(self.list(depth))),
            _ if self.no_value == Some(before) => return None,
            '"' => self.text(),
            _ => self.plain(),
        };
        if value.is_none() {
            self.no_value = Some(before);
        }
        value
    }

    fn object(&mut self, depth: usize) -> Map<String, Value> {
        self.skip();
        let mut fields = Map::new();
        loop {
            self.space();
            match self.peek() {
                Some('}') => {
                    self.skip();
                    return fields;
                }
                Some(',') => self.skip(),
                Some('"') if self.no_name != Some(self.rest.len()) => {
                    let before = self.rest;
                    let Some(name) = self.quoted() else {
                        self.no_name = Some(before.len());
                        return fields;
                    };
                    if !self.takes(':') {
                        self.no_name = Some(before.len());
                        if !self.rest.is_empty() {
                            self.rest = before;
                        }
                        return fields;
                    }
                    let Some(value) = self.value(depth + 1) else {
                        return fields;
                    };
                    self.members += 1;
                    fields.insert(name, value);
                }
                _ => return fields,
            }
        }
    }

    fn list(&mut self, depth: usize) -> Vec<Value> {
        self.skip();
        let mut items = Vec::new();
        loop {
            self.space();
            match self.peek() {
                Some(']') => {
                    self.skip();
                    return items;
                }
                Some(',') => self.skip(),
                _ => match self.value(depth + 1) {
                    Some(value) => items.push(value),
                    None => return items,
                },
            }
        }
    }

    /// A text between quotes behind which JSON goes on, or ends. Nothing is taken where there is none.
    fn quoted(&mut self) -> Option<String> {
        let (text, end) = literal(self.rest.strip_prefix('"')?);
        let behind = match end {
            QuotedEnd::Closed(behind) => behind,
            QuotedEnd::Cut if !text.contains(char::is_whitespace) => {
                // Half of a member name, which is useless.
                self.rest = "";
                return None;
            }
            QuotedEnd::Cut | QuotedEnd::Broken => return None,
        };
        let next = behind.trim_start().chars().next();
        if !matches!(next, None | Some(':' | ',' | '}' | ']')) {
            return None;
        }
        self.rest = behind;
        Some(text)
    }

    /// The same as a value, of which something may be missing.
    fn text(&mut self) -> Option<Value> {
        let (text, end) = literal(self.rest.strip_prefix('"')?);
        if matches!(end, QuotedEnd::Cut) {
            self.rest = "";
            return partial(text).map(Value::String);
        }
        self.quoted().map(Value::String)
    }

    /// A number, `true`, `false` or `null`. At the end of the text there may have been more of it.
    fn plain(&mut self) -> Option<Value> {
        let belongs = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let Some(end) = self.rest.find(|c| !belongs(c)) else {
            self.rest = "";
            return None;
        };
        let (written, behind) = self.rest.split_at_checked(end)?;
        let value = serde_json::from_str(written).ok()?;
        self.rest = behind;
        Some(value)
    }
}

/// How a text between quotes ends.
enum QuotedEnd<'t> {
    /// With a quote, and this is behind it.
    Closed(&'t str),
    /// With the end of all.
    Cut,
    /// With a character that no string may hold: the quote before it did not open a string.
    Broken,
}

/// The text behind a quote that opens it.
fn literal(behind: &str) -> (String, QuotedEnd<'_>) {
    let mut text = String::new();
    let mut decoder = StringDecoder::default();
    let mut rest = behind;
    while let Some(part) = decoder.next(&mut rest) {
        #[cfg(test)]
        tests::step();
        let c = match part {
            StringPart::Plain('"') => return (text, QuotedEnd::Closed(rest)),
            StringPart::Plain('\0'..' ') | StringPart::CutUnit => return (text, QuotedEnd::Broken),
            StringPart::Plain(c) | StringPart::Escaped(c) | StringPart::Stray(c) => c,
            StringPart::HalfPair(_) => char::REPLACEMENT_CHARACTER,
        };
        text.push(c);
    }
    (text, QuotedEnd::Cut)
}

/// The usable part of a text whose end is missing: all but its last, incomplete word; all of it if it is JSON
/// itself, since only complete values are taken from that.
fn partial(mut text: String) -> Option<String> {
    if !text.contains(NAME_END) {
        let end = text.rfind(char::is_whitespace)?;
        text.truncate(end);
        text.push(' ');
    }
    text.push_str(ELLIPSIS);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    /// A character of a text between quotes was read.
    pub(super) fn step() {
        STEPS.with(|steps| steps.set(steps.get() + 1));
    }

    fn values(text: &str) -> Vec<Value> {
        read(text).map(|found| found.values).unwrap_or_default()
    }

    #[test]
    fn complete_values_of_a_fragment_are_taken() {
        for (text, expected) in [
            (
                r#"{"orders":[{"id":"A-1","total":17},{"id":"A-2","total":3"#,
                vec![json!({"orders": [{"id": "A-1", "total": 17}, {"id": "A-2"}]})],
            ),
            (
                r#"tal":17},{"id":"A-2","total":34},{"id":"A-3","to"#,
                vec![json!({"id": "A-2", "total": 34}), json!({"id": "A-3"})],
            ),
            (
                r#""A-1","total":17,"tags":["x","y"]},{"id":"A-2"}],"page":1,"of":2}"#,
                vec![
                    json!({"total": 17, "tags": ["x", "y"]}),
                    json!({"id": "A-2"}),
                    json!({"page": 1, "of": 2}),
                ],
            ),
            (
                r#"{"note":"the parcel JD-0042 left on 2026-1"#,
                vec![json!({"note": "the parcel JD-0042 left on …"})],
            ),
            (r#"{"link":"https://a.example/x?y"#, Vec::new()),
            ("[17, 18, 19, 2", vec![json!([17, 18, 19])]),
            (
                r#"It answered {"id": "A-1", "ok": true} and no more."#,
                vec![json!({"id": "A-1", "ok": true})],
            ),
            (
                r#"\"id\":\"A-1\",\"total\":3},{\"id\":\"A-2\"}]}","status":200}"#,
                vec![
                    json!({"id": "A-1", "total": 3}),
                    json!({"id": "A-2"}),
                    json!({"status": 200}),
                ],
            ),
            (
                r#"{"a":"\u00e4\ud83d\ude00\n"}"#,
                vec![json!({"a": "ä😀\n"})],
            ),
        ] {
            assert_eq!(values(text), expected, "{text}");
        }
    }

    #[test]
    fn prose_is_left_alone() {
        for text in [
            "The parcel JD-0042 of order A-17 left.",
            r#"He said "order A-17", and left; see [1] and {x}."#,
            r#"a 5" disk"#,
            "",
            "\"",
        ] {
            let found = read(text);
            let is_left = found.as_ref().is_none_or(|found| found.members == 0);
            assert!(is_left, "{text}: {found:?}");
        }
    }

    #[test]
    fn a_text_that_was_cut_is_told_without_its_last_word() {
        let found = read(r#""The parcel JD-0042\nof order A-1"#).unwrap();
        assert_eq!(found.rest, "The parcel JD-0042\nof order …");
        let within = r#""{\"id\":\"A-1\",\"total\":17,\"of\":\"A-"#;
        assert_eq!(values(within), [json!({"id": "A-1", "total": 17})]);
    }

    /// Before, every level read again what none of them could use.
    #[test]
    fn a_text_that_is_made_to_be_read_again_and_again_is_not() {
        const LONG: usize = 1 << 20;
        let long = "a b ".repeat(LONG / 4);
        let mut texts = Vec::new();
        for open in ["{\"a\":", "[", "[{\"a\":"] {
            let open = open.repeat(100);
            texts.extend([
                format!("{open}\"{long}\" x"),
                format!("{open}{{\"{long}\", x"),
                format!("{open}{{\"{long}"),
                format!("{open}\"{long}\n"),
                format!("{open}{}!", "1".repeat(LONG)),
            ]);
        }
        // A cut text in a cut text, and so on: one more costs five bytes of the one around it.
        let quotes = (0..400).map(|level| ["\\", &"u005c".repeat(level), "u0022"].concat());
        let quotes: String = quotes.collect();
        texts.push(format!("\"{quotes}{long}"));

        for text in texts {
            STEPS.with(|steps| steps.set(0));
            let begun = Instant::now();
            read(&text);
            let steps = STEPS.with(Cell::get);
            let shown: String = text.chars().take(20).collect();
            assert!(steps < 10 * text.len(), "{steps}: {shown}");
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(10), "{took:?}: {shown}");
        }
    }

    #[test]
    fn text_that_an_outer_level_can_use_is_left_to_it() {
        for (text, expected) in [
            (r#"[{"a", 5]"#, vec![json!([{}, "a", 5])]),
            (r#"[{"b":1, "a b"#, vec![json!([{"b": 1}, "a …"])]),
            (r#"[{"b":1 7, 8]"#, vec![json!([{"b": 1}, 7, 8])]),
        ] {
            assert_eq!(values(text), expected, "{text}");
        }
    }

    proptest! {
        /// Wherever it begins and ends, an object that is there as a whole is found.
        #[test]
        fn no_whole_object_is_lost(
            ids in prop::collection::vec("[A-Za-z0-9 ,:\\[\\]{}\"\\\\-]{1,12}", 4..12),
            from in 0..60_usize,
            less in 0..60_usize,
        ) {
            let items: Vec<Value> = ids.iter().enumerate().map(|(n, id)| json!({"n": n, "id": id})).collect();
            let text = json!(items).to_string();
            // The first half is what it may begin in, the last what it may end in.
            let texts: Vec<String> = items.iter().map(Value::to_string).collect();
            let first = texts[0].chars().count() + 2;
            let last = texts[texts.len() - 1].chars().count() + 1;
            let all = text.chars().count();
            let from = from % first;
            let part: String = text.chars().skip(from).take(all - from - less % last).collect();
            let found = read(&part).map(|found| found.values).unwrap_or_default();
            let told = found.iter().flat_map(|value| match value {
                Value::Array(items) => items.clone(),
                other => vec![other.clone()],
            });
            let told: Vec<Value> = told.collect();
            for item in &items[2..items.len() - 1] {
                prop_assert!(told.contains(item), "{item}: {part}");
            }
        }

        #[test]
        fn any_text_is_read(text in ".{0,200}", signs in "[{}\\[\\]\",:\\\\ a1]{0,200}") {
            read(&text);
            read(&signs);
        }
    }
}
