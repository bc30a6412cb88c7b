//! Masking of texts, and of the texts in JSON values.

use crate::pii::{Kind, find};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// Replaces parts of texts; [`Self::masked_value`] applies it to all texts of a JSON value.
pub trait Masking {
    /// Depth of nested arrays and objects; deeper values are replaced.
    const DEEPEST: usize;

    /// The masked text; borrowed if there is nothing to mask.
    fn masked<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// The replacement for a member's whole value, if its name or value asks for one.
    fn instead(&self, _name: &str, _value: &Value) -> Option<Value> {
        None
    }

    /// `value` with all texts masked; names of members and numbers are masked like texts.
    fn masked_value(&self, value: Value) -> Value {
        self.masked_at(value, 0)
    }

    /// Masks a value at a depth.
    fn masked_at(&self, value: Value, depth: usize) -> Value {
        if depth > Self::DEEPEST {
            return "<too deep>".into();
        }
        match value {
            Value::Null | Value::Bool(_) => value,
            // A card number may be a JSON number.
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

/// Replaces each finding of an `unwanted` kind by its name: a mail address by `<email>`.
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

/// A name that is free among `members`: two names that are equal after masking stay two members. `alike` holds the
/// last number given to each name, so that many equal names cost linear time.
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

    #[test]
    fn a_hundred_thousand_names_that_are_masked_alike_stay_distinct() {
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
