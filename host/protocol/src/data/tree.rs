//! The value of one (kind, instance), kept up to date by every write.

use super::holes::Holes;
use super::missing::{NameList, noun};
use super::{Method, Refusal, Write};
use crate::reference::{MAX_INDEX, Path, Segment};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    value: Value,
    holes: Holes,
    /// The entry of the log that began it.
    first: usize,
}

/// Whether `tree`, or nothing, can take `write`; the nulls that a list on the way is padded with.
///
/// Everything that can be refused is refused here, so that [`Tree::apply`] cannot stop half-way.
pub fn check(tree: Option<&Tree>, write: &Write) -> Result<usize, Refusal> {
    let mut here = tree.map(|tree| &tree.value);
    let mut padding = 0;
    for (depth, segment) in write.path.segments.iter().enumerate() {
        let above = || Path {
            kind: write.path.kind.clone(),
            segments: write.path.segments[..depth].to_vec(),
        };
        here = match (here, segment) {
            (_, Segment::Index(index)) if *index > MAX_INDEX => return Err(Refusal::Index(*index)),
            (Some(Value::Object(fields)), Segment::Key(key)) => fields.get(key),
            (Some(Value::Array(items)), Segment::Index(index)) => {
                padding += index.saturating_sub(items.len());
                items.get(*index)
            }
            (Some(Value::Object(fields)), Segment::Index(_)) if !fields.is_empty() => {
                return Err(Refusal::IndexOfObject {
                    object: above(),
                    fields: NameList::new(fields.keys()),
                });
            }
            (Some(Value::Array(items)), Segment::Key(_)) if !items.is_empty() => {
                return Err(Refusal::NameOfList {
                    list: above(),
                    elements: items.len(),
                });
            }
            (_, Segment::Index(index)) => {
                padding += index;
                None
            }
            (_, Segment::Key(_)) => None,
        };
    }
    joins(here.unwrap_or(&Value::Null), write.method, &write.value)?;
    Ok(padding)
}

fn joins(there: &Value, method: Method, value: &Value) -> Result<(), Refusal> {
    match (method, there, value) {
        (Method::Set | Method::Merge | Method::Assign, ..)
        | (Method::Push, Value::Null | Value::Array(_), _)
        | (Method::Concat, Value::Null | Value::Array(_), Value::Array(_))
        | (Method::Concat, Value::Null | Value::String(_), Value::String(_)) => Ok(()),
        (Method::Push, ..) => Err(Refusal::PushTo(noun(there))),
        (Method::Concat, _, Value::Array(_) | Value::String(_)) => Err(Refusal::ConcatTo {
            there: noun(there),
            value: noun(value),
        }),
        (Method::Concat, ..) => Err(Refusal::ConcatOf(noun(value))),
    }
}

impl Tree {
    /// Nothing yet, which is null to the write that follows.
    pub fn new(first: usize) -> Self {
        Self {
            value: Value::Null,
            holes: Holes::default(),
            first,
        }
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    pub fn first(&self) -> usize {
        self.first
    }

    /// Whether the null at `path` was never written.
    pub fn is_hole(&self, path: &[Segment]) -> bool {
        self.holes.contains(path)
    }

    /// Takes a write that [`check`] let pass.
    pub fn apply(&mut self, write: &Write) {
        let path = &write.path.segments;
        self.holes.close(path, write.method, &write.value);
        let mut here = &mut self.value;
        for (depth, segment) in path.iter().enumerate() {
            here = match segment {
                Segment::Key(key) => fields(here).entry(key.clone()).or_insert(Value::Null),
                Segment::Index(index) => {
                    let items = items(here);
                    if items.len() <= *index {
                        self.holes.dig(&path[..depth], items.len()..*index);
                        items.resize(index + 1, Value::Null);
                    }
                    &mut items[*index]
                }
            };
        }
        join(here, write.method, &write.value);
    }
}

fn join(there: &mut Value, method: Method, value: &Value) {
    match (method, there, value) {
        (Method::Merge, there, value) => merge(there, value),
        (Method::Assign, Value::Object(fields), Value::Object(more)) => {
            fields.extend(more.iter().map(|(key, field)| (key.clone(), field.clone())));
        }
        (Method::Push, there, value) => items(there).push(value.clone()),
        (Method::Concat, Value::String(text), Value::String(more)) => text.push_str(more),
        (Method::Concat, Value::Array(items), Value::Array(more)) => {
            items.extend(more.iter().cloned());
        }
        (Method::Set | Method::Assign | Method::Concat, there, value) => *there = value.clone(),
    }
}

/// Objects are merged, all else is replaced.
pub fn merge(there: &mut Value, value: &Value) {
    match (there, value) {
        (Value::Object(fields), Value::Object(more)) => {
            for (key, field) in more {
                match fields.get_mut(key) {
                    Some(there) => merge(there, field),
                    None => {
                        fields.insert(key.clone(), field.clone());
                    }
                }
            }
        }
        (there, value) => *there = value.clone(),
    }
}

/// The object's fields; any other value is replaced by an empty object.
fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("it was made an object"),
    }
}

/// The list's items; any other value is replaced by an empty list.
fn items(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("it was made a list"),
    }
}
