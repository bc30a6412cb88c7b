//! What is kept of a value, verbatim: a line for each object in it, so that an identifier stays with what
//! belongs to it, and of prose the words that look like identifiers.

use super::Habits;
use super::fragment;
use serde_json::{Map, Value};

/// Characters of a text that is kept as it is; longer ones are prose, or one word.
const MAX_VALUE: usize = 120;
/// Characters of one word that is kept as it is: the address of a page, a signed link, a token.
const MAX_WORD: usize = 2_000;
/// Bytes of a line. What is left out for want of room is left out by lines.
const MAX_LINE: usize = 1_000;
const MAX_DEPTH: usize = 32;

/// One line, and how many values it tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) line: String,
    pub(super) values: usize,
}

impl Fact {
    fn new(at: &str, what: &str, values: usize) -> Self {
        let line = if at.is_empty() {
            what.to_owned()
        } else {
            format!("{at}: {what}")
        };
        Self { line, values }
    }
}

/// Of a value, with the place of each object in it.
pub(super) fn of_value(value: &Value, habits: Habits) -> Vec<Fact> {
    let mut collector = Collector {
        habits,
        facts: Vec::new(),
    };
    collector.collect("", value, 0);
    collector.facts
}

/// Of a text: of the JSON in it, whole or not, and of its words.
pub(super) fn of_text(text: &str, habits: Habits) -> Vec<Fact> {
    let mut collector = Collector {
        habits,
        facts: Vec::new(),
    };
    collector.text("", text, 0);
    collector.facts
}

struct Collector {
    habits: Habits,
    facts: Vec<Fact>,
}

impl Collector {
    fn collect(&mut self, at: &str, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(fields) => self.object(at, fields, depth),
            Value::Array(items) => {
                let plain = items.iter().filter_map(|item| self.verbatim(item));
                let plain: Vec<String> = plain.collect();
                self.lines(at, plain);
                for (index, item) in items.iter().enumerate() {
                    if self.verbatim(item).is_none() {
                        self.collect(&format!("{at}[{index}]"), item, depth + 1);
                    }
                }
            }
            other => match (self.verbatim(other), other) {
                (Some(value), _) => self.facts.push(Fact::new(at, &value, 1)),
                (None, Value::String(text)) => self.text(at, text, depth),
                (None, _) => {}
            },
        }
    }

    fn object(&mut self, at: &str, fields: &Map<String, Value>, depth: usize) {
        let plain = fields
            .iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", self.verbatim(value)?)));
        let plain: Vec<String> = plain.collect();
        self.lines(at, plain);
        for (key, value) in fields {
            if self.verbatim(value).is_none() {
                let place = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                self.collect(&place, value, depth + 1);
            }
        }
    }

    /// Values that stand together.
    fn lines(&mut self, at: &str, plain: Vec<String>) {
        let mut line = String::new();
        let mut values = 0;
        for value in plain {
            let is_full = line.len() + value.len() > MAX_LINE && !self.habits.is_first();
            if is_full && values > 0 {
                self.facts.push(Fact::new(at, &line, values));
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
            self.facts.push(Fact::new(at, &line, values));
        }
    }

    fn text(&mut self, at: &str, text: &str, depth: usize) {
        if self.habits.is_first() {
            return self.words(at, text);
        }
        let Some(found) = fragment::read(text) else {
            return self.words(at, text);
        };
        // JSON in the text of JSON in a text: each is less than the one around it.
        for value in &found.values {
            self.collect(at, value, depth + 1);
        }
        self.words(at, &found.rest);
    }

    fn words(&mut self, at: &str, text: &str) {
        for found in identifiers(text, self.habits) {
            self.facts.push(Fact::new(at, &found, 1));
        }
    }

    /// A value as it is, if it is one that can be an identifier or belong to one.
    fn verbatim(&self, value: &Value) -> Option<String> {
        match value {
            Value::String(text) if self.is_verbatim(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Null => Some("null".into()),
            _ => None,
        }
    }

    fn is_verbatim(&self, text: &str) -> bool {
        let is_longer_than = |most: usize| text.chars().nth(most).is_some();
        let is_word = || {
            !text.contains(char::is_whitespace)
                && !text.starts_with(['{', '['])
                && !text.contains("\":")
                && !is_longer_than(MAX_WORD)
        };
        !is_longer_than(MAX_VALUE) || (!self.habits.is_first() && is_word())
    }
}

/// The words of a text that look like identifiers, quantities or addresses, each with the word before it:
/// `order A-17`.
fn identifiers(text: &str, habits: Habits) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = "";
    for word in text.split_whitespace() {
        let is_link = !habits.is_first() && word.contains("://");
        let (bare, most) = if is_link {
            // An address may end with a sign of its own.
            (word.trim_matches(is_around), MAX_WORD)
        } else {
            (word.trim_matches(|c: char| !c.is_alphanumeric()), MAX_VALUE)
        };
        if is_identifier(bare) && bare.chars().nth(most).is_none() {
            found.push(if before.is_empty() {
                bare.to_owned()
            } else {
                format!("{before} {bare}")
            });
            before = "";
        } else {
            let is_name = habits.is_first() || bare.chars().nth(MAX_VALUE).is_none();
            before = if is_name { bare } else { "" };
        }
    }
    found
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

    fn lines(facts: Vec<Fact>) -> Vec<String> {
        facts.into_iter().map(|fact| fact.line).collect()
    }

    #[test]
    fn a_long_word_is_kept_and_long_prose_is_not() {
        let link = format!("https://shop.example/o?sig={}==", "aB3".repeat(200));
        let value = json!({"id": "A-17", "link": link, "note": "word ".repeat(60), "blob": "x".repeat(9_000)});
        let kept = [format!("id=A-17, link={link}")];
        assert_eq!(lines(of_value(&value, Habits::Second)), kept);
        assert_eq!(lines(of_value(&value, Habits::First))[0], "id=A-17");

        let prose = format!("{} See ({link}), order 7.", "word ".repeat(60));
        let kept = [format!("See {link}"), "order 7".to_owned()];
        assert_eq!(lines(of_text(&prose, Habits::Second)), kept);
    }

    /// Before, all of an array or of an object was one line, and one line was left out or not.
    #[test]
    fn many_values_are_many_lines() {
        let fields: Map<String, Value> = (0..400).map(|n| (format!("A-{n}"), json!(n))).collect();
        let ids: Vec<String> = (0..400).map(|n| format!("B-{n}")).collect();
        let facts = of_value(&json!({"prices": fields, "ids": ids}), Habits::Second);
        assert!(facts.len() > 6, "{facts:?}");
        assert!(facts.iter().all(|fact| fact.line.len() < MAX_LINE + 20));
        assert_eq!(facts.iter().map(|fact| fact.values).sum::<usize>(), 800);
        let all = lines(facts).join("\n");
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
        let facts = lines(of_value(
            &json!({"status": 200, "body": body}),
            Habits::Second,
        ));
        assert_eq!(facts.first().map(String::as_str), Some("status=200"));
        for n in 0..40 {
            let line = format!("body.orders[{n}]: id=A-{n}, total={}", n * 17);
            assert!(facts.contains(&line), "{line}: {facts:?}");
        }
    }
}
