//! Parts of the body of a Request that it shares with the Request before it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(super) const MESSAGES: &str = "messages";

/// The part of a Request's body that the Request before it in the same run has, too. On the wire
/// `{"messages": 4, "fields": ["model", "tools"]}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedWithPrevious {
    /// Number of shared messages, from the first on.
    pub messages: usize,
    /// Members beside the messages.
    pub fields: Vec<String>,
}

impl SharedWithPrevious {
    /// True if the body is recorded whole.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Divides `body` into the part that is in `before`, too, and the rest.
    pub fn split(before: Option<&Value>, body: &Value) -> (Self, Value) {
        let (Some(Value::Object(before)), Value::Object(all)) = (before, body) else {
            return (Self::default(), body.clone());
        };
        if !goes_on(before, all) {
            return (Self::default(), body.clone());
        }
        let messages = messages(before).iter().zip(messages(all));
        let same = Self {
            messages: messages.take_while(|(a, b)| a == b).count(),
            fields: all
                .iter()
                .filter(|(name, value)| *name != MESSAGES && before.get(*name) == Some(value))
                .map(|(name, _)| name.clone())
                .collect(),
        };
        let rest = all.iter().filter(|(name, _)| !same.fields.contains(name));
        let rest = rest.map(|(name, value)| match value {
            Value::Array(all) if name == MESSAGES => {
                let new = all.iter().skip(same.messages).cloned().collect();
                (name.clone(), Value::Array(new))
            }
            value => (name.clone(), value.clone()),
        });
        let rest = rest.collect::<Map<_, _>>().into();
        (same, rest)
    }

    /// The whole of a body of which this is shared with the one `before` and `rest` is not. `None` if
    /// there is less to share.
    pub(super) fn join(&self, before: Option<Value>, rest: &Value) -> Option<Value> {
        if self.is_nothing() {
            return Some(rest.clone());
        }
        let (Some(Value::Object(before)), Value::Object(rest)) = (before, rest) else {
            return None;
        };
        if messages(&before).len() < self.messages
            || !self.fields.iter().all(|name| before.contains_key(name))
        {
            return None;
        }
        let mut whole = Map::new();
        for (name, mut value) in before {
            match (rest.get(&name), &mut value) {
                (Some(Value::Array(new)), Value::Array(old)) if name == MESSAGES => {
                    old.truncate(self.messages);
                    old.extend(new.iter().cloned());
                }
                (Some(new), _) => value = new.clone(),
                (None, _) if self.fields.contains(&name) => {}
                (None, _) => continue,
            }
            whole.insert(name, value);
        }
        for (name, value) in rest {
            whole.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Some(whole.into())
    }
}

/// Whether the members of a body stand in the order of the one before it, new ones last: only then it is
/// found again, byte for byte.
fn goes_on(before: &Map<String, Value>, body: &Map<String, Value>) -> bool {
    let known = before.keys().filter(|name| body.contains_key(*name));
    let new = body.keys().filter(|name| !before.contains_key(*name));
    known.chain(new).eq(body.keys())
}

fn messages(body: &Map<String, Value>) -> &[Value] {
    match body.get(MESSAGES) {
        Some(Value::Array(messages)) => messages,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parts_shared_with_the_previous_body_are_stored_once() {
        let first = json!({"model": "m", "tools": [1], "messages": ["a", "b"]});
        let next = json!({"model": "m", "tools": [1], "messages": ["a", "c", "d"]});
        let (same, rest) = SharedWithPrevious::split(Some(&first), &next);
        assert_eq!(
            json!(same),
            json!({"messages": 1, "fields": ["model", "tools"]})
        );
        assert_eq!(rest, json!({"messages": ["c", "d"]}));
    }
}
