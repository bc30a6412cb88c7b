//! Whether the items of a list are unique, in time linear in their size.
//!
//! jsonschema's own hashes let an author choose items that collide: nested empty lists all have one hash, and
//! so have integers that share their nearest fraction.

use jsonschema::json::cmp::equal;
use serde_json::{Number, Value};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};

pub(crate) fn is_unique(items: &[Value]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| seen.insert(Item(item)))
}

struct Item<'a>(&'a Value);

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        equal(self.0, other.0)
    }
}

impl Eq for Item<'_> {}

impl Hash for Item<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self.0).hash(state);
        match self.0 {
            Value::Null => {}
            Value::Bool(value) => value.hash(state),
            Value::Number(number) => hash_number(number, state),
            Value::String(text) => text.hash(state),
            Value::Array(items) => {
                items.len().hash(state);
                for item in items {
                    Item(item).hash(state);
                }
            }
            // Equal whatever the order.
            Value::Object(fields) => {
                let mut names: Vec<_> = fields.iter().collect();
                names.sort_unstable_by_key(|(name, _)| *name);
                names.len().hash(state);
                for (name, value) in names {
                    name.hash(state);
                    Item(value).hash(state);
                }
            }
        }
    }
}

/// `1` and `1.0` are equal.
fn hash_number<H: Hasher>(number: &Number, state: &mut H) {
    if let Some(whole) = number.as_i128() {
        whole.hash(state);
        return;
    }
    let fraction = number.as_f64().unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what does not fit becomes a bound, which is as good a hash"
    )]
    if fraction.fract() == 0.0 {
        (fraction as i128).hash(state);
    } else {
        fraction.to_bits().hash(state);
    }
}
