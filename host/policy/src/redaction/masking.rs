//! Texts, and data with texts in them, without what is to leave this place.

use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use toolhold_agent::guard::pii::{Kind, find};

/// What takes something out of texts.
pub trait Masking {
    /// How many arrays and objects may lie within each other; what is deeper is left out.
    const DEEPEST: usize;

    /// Borrowed: there is nothing to take out.
    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// What stands in the place of a member's value, whatever that is.
    fn instead(&self, _name: &str, _value: &Value) -> Option<Value> {
        None
    }

    /// Every text of `value` masked, and names and numbers as texts are.
    fn masked_value(&self, value: Value) -> Value {
        self.masked_at(value, 0)
    }

    fn masked_at(&self, value: Value, depth: usize) -> Value {
        if depth > Self::DEEPEST {
            return "<too deep>".into();
        }
        match value {
            Value::Null | Value::Bool(_) => value,
            // A card's number is one without quotes, too.
            Value::Number(number) => match self.masked(&number.to_string()) {
                Cow::Borrowed(_) => Value::Number(number),
                Cow::Owned(masked) => Value::String(masked),
            },
            Value::String(text) => match self.masked(&text) {
                Cow::Borrowed(_) => Value::String(text),
                Cow::Owned(masked) => Value::String(masked),
            },
            Value::Array(items) => {
                let items = items.into_iter();
                items.map(|item| self.masked_at(item, depth + 1)).collect()
            }
            Value::Object(members) => {
                let mut masked = Map::with_capacity(members.len());
                let mut alike = HashMap::new();
                for (name, value) in members {
                    let instead = self.instead(&name, &value);
                    let value = instead.unwrap_or_else(|| self.masked_at(value, depth + 1));
                    let name = match self.masked(&name) {
                        Cow::Borrowed(_) => name,
                        Cow::Owned(masked) => masked,
                    };
                    masked.insert(free(&masked, &mut alike, name), value);
                }
                Value::Object(masked)
            }
        }
    }
}

/// A text with `<email>` in the place of each address, and so on for each kind of data that is `unwanted`.
pub fn without(text: &str, unwanted: impl Fn(Kind) -> bool) -> Cow<'_, str> {
    let found = find(text, unwanted);
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    let mut from = 0;
    for finding in found {
        masked.push_str(text.get(from..finding.start).unwrap_or_default());
        masked.extend(["<", finding.kind.name(), ">"]);
        from = finding.end;
    }
    masked.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(masked)
}

/// Two names of which something was taken out are still two. `alike`: the last number that each name was given,
/// for there may be as many as somebody likes to send.
fn free(members: &Map<String, Value>, alike: &mut HashMap<String, usize>, name: String) -> String {
    if !members.contains_key(&name) {
        return name;
    }
    let number = alike.entry(name.clone()).or_insert(1);
    loop {
        *number += 1;
        let numbered = format!("{name} {number}");
        if !members.contains_key(&numbered) {
            return numbered;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct All;

    impl Masking for All {
        const DEEPEST: usize = 8;

        fn masked<'a>(&self, text: &'a str) -> Cow<'a, str> {
            without(text, |_| true)
        }
    }

    /// Each of them looked for from the first number on would take hours.
    #[test]
    fn a_hundred_thousand_names_that_are_masked_alike_are_as_many_still() {
        const NAMES: usize = 100_000;
        let taken = ("<email> 3".to_owned(), Value::Null);
        let names = (0..NAMES).map(|n| (format!("a{n}@example.org"), Value::from(n)));
        let members: Map<String, Value> = [taken].into_iter().chain(names).collect();
        let masked = All.masked_value(Value::Object(members));
        let members = masked.as_object().unwrap();
        assert_eq!(members.len(), NAMES + 1);
        assert_eq!(members["<email>"], 0);
        assert_eq!(
            (&members["<email> 2"], &members["<email> 4"]),
            (&1.into(), &2.into())
        );
        assert!(!masked.to_string().contains('@'));
    }
}
