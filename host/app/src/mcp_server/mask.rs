//! What `[shields]` hide from models, taken out of what a client is told.
//!
//! A run hides data behind placeholders and knows what each stands for. A client's calls have nothing in
//! common that could know it, and the same placeholder in two results would be taken for the same person. So
//! what is hidden here is gone: an address is `<email>`, whosever it is.

use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use toolhold_agent::ToolFailure;
use toolhold_agent::guard::pii::{Kind, Privacy, find};

/// Kinds of data that no client is told.
#[derive(Debug, Clone, Default)]
pub struct Mask {
    hide: BTreeSet<Kind>,
}

/// Deeper results are none: every module's `json_depth` is far below.
const MAX_DEPTH: usize = 256;

impl Mask {
    pub fn of(privacy: &Privacy) -> Self {
        Self {
            hide: privacy.hide.clone(),
        }
    }

    pub fn is_off(&self) -> bool {
        self.hide.is_empty()
    }

    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.is_off() {
            return Cow::Borrowed(text);
        }
        let found = find(text, |kind| self.hide.contains(&kind));
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

    /// Whether anything of `text` is hidden.
    pub fn hides(&self, text: &str) -> bool {
        matches!(self.text(text), Cow::Owned(_))
    }

    pub fn hides_in(&self, value: &Value) -> bool {
        !self.is_off() && self.at(value.clone(), 0) != *value
    }

    pub fn failure(&self, failure: ToolFailure) -> ToolFailure {
        ToolFailure {
            message: self.text(&failure.message).into_owned(),
            ..failure
        }
    }

    pub fn value(&self, value: Value) -> Value {
        if self.is_off() {
            value
        } else {
            self.at(value, 0)
        }
    }

    fn at(&self, value: Value, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::String("<too deep>".into());
        }
        match value {
            Value::Null | Value::Bool(_) => value,
            // A card's number is one without quotes, too.
            Value::Number(number) => {
                let text = number.to_string();
                match self.text(&text) {
                    Cow::Borrowed(_) => Value::Number(number),
                    Cow::Owned(masked) => Value::String(masked),
                }
            }
            Value::String(text) => match self.text(&text) {
                Cow::Borrowed(_) => Value::String(text),
                Cow::Owned(masked) => Value::String(masked),
            },
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.at(item, depth + 1))
                .collect(),
            Value::Object(members) => {
                let mut masked = Map::with_capacity(members.len());
                for (name, value) in members {
                    let value = self.at(value, depth + 1);
                    let name = free(&masked, self.text(&name).into_owned());
                    masked.insert(name, value);
                }
                Value::Object(masked)
            }
        }
    }
}

/// Two names that were hidden are still two.
fn free(members: &Map<String, Value>, name: String) -> String {
    if !members.contains_key(&name) {
        return name;
    }
    let numbered = (2..).map(|number: u64| format!("{name} {number}"));
    let mut free = numbered.filter(|name| !members.contains_key(name));
    free.next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_hidden_is_gone_and_the_rest_is_as_it_was() {
        let mask = Mask {
            hide: [Kind::Email, Kind::Card].into(),
        };
        for (before, after) in [
            (json!("to ada@example.org, soon"), json!("to <email>, soon")),
            (json!(4_111_111_111_111_111_u64), json!("<card>")),
            (
                json!({"ada@example.org": 1, "bob@example.org": 2, "n": [3.5, null, true]}),
                json!({"<email>": 1, "<email> 2": 2, "n": [3.5, null, true]}),
            ),
            (json!("call +49 30 901820"), json!("call +49 30 901820")),
        ] {
            assert_eq!(mask.value(before), after);
        }
        let open = json!({"ada@example.org": "ada@example.org"});
        assert_eq!(Mask::default().value(open.clone()), open);
    }
}
