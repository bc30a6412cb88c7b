//! The literal definition of reading (docs/protocol.md, 5 and 9), by searching the log: what `Data` is
//! held to by a test, and measured against by a benchmark, which has this file as a module of its own.
//!
//! It shares no code with the index: a value is the flat set of its leaves, each under its path, so
//! that an element that was never written is simply not there.

use super::{Method, Path, Segment, Write};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::ops::Bound;

/// The value at `path` of what a reader in `instance` sees.
pub fn read(log: &[Write], path: &Path, instance: Option<&str>) -> Option<Value> {
    let shared = |path: &Path| read_one(log, path, None);
    let Some(instance) = instance else {
        return shared(path);
    };
    let own = |path: &Path| read_one(log, path, Some(instance));
    for depth in 0..path.segments.len() {
        let above = Path {
            kind: path.kind.clone(),
            segments: path.segments[..depth].to_vec(),
        };
        match (own(&above), shared(&above)) {
            (Some(Value::Object(_)), Some(Value::Object(_))) => {}
            (Some(_), _) => return own(path),
            (None, _) => return shared(path),
        }
    }
    match (own(path), shared(path)) {
        (Some(own), Some(shared)) => Some(over(own, shared)),
        (own, shared) => own.or(shared),
    }
}

/// The instance's object over the global one.
fn over(own: Value, shared: Value) -> Value {
    match (own, shared) {
        (Value::Object(own), Value::Object(mut both)) => {
            for (key, value) in own {
                let value = match both.remove(&key) {
                    Some(shared) => over(value, shared),
                    None => value,
                };
                both.insert(key, value);
            }
            Value::Object(both)
        }
        (own, _) => own,
    }
}

/// The value at `path` of one (kind, instance).
fn read_one(log: &[Write], path: &Path, instance: Option<&str>) -> Option<Value> {
    let mut collected = Vec::new();
    for write in log.iter().rev() {
        if write.instance.as_deref() != instance || !touches(&write.path, path) {
            continue;
        }
        collected.push(write);
        if write.method == Method::Set && path.segments.starts_with(&write.path.segments) {
            break;
        }
    }
    let mut leaves = Leaves::default();
    for write in collected.into_iter().rev() {
        leaves.apply(write);
    }
    leaves.value(&path.segments)
}

/// Whether writing one changes what the other reads. Only different fields of one object leave each
/// other alone: elements of a list share its length, and with it what `push` and `concat` do.
fn touches(one: &Path, other: &Path) -> bool {
    one.kind == other.kind
        && one
            .segments
            .iter()
            .zip(&other.segments)
            .find_map(|pair| match pair {
                (Segment::Key(one), Segment::Key(other)) => (one != other).then_some(false),
                _ => Some(true),
            })
            .unwrap_or(true)
}

/// Scalars and empty containers by their paths.
#[derive(Debug, Default)]
struct Leaves(BTreeMap<Vec<Segment>, Value>);

impl Leaves {
    fn apply(
        &mut self,
        Write {
            path,
            method,
            value,
            ..
        }: &Write,
    ) {
        let path = &path.segments;
        match (method, value) {
            (Method::Merge, _) => self.merge(path, value),
            (Method::Assign, Value::Object(fields)) if self.is_object(path) => {
                for (key, field) in fields {
                    self.set(&below(path, Segment::Key(key.clone())), field);
                }
            }
            (Method::Set | Method::Assign, _) => self.set(path, value),
            (Method::Push, _) => self.push(path, value),
            (Method::Concat, Value::Array(items)) => {
                if self.elements(path) == 0 {
                    self.set(path, &Value::Array(Vec::new()));
                }
                for item in items {
                    self.push(path, item);
                }
            }
            (Method::Concat, _) => {
                let text = self.0.get(path).and_then(Value::as_str).unwrap_or_default();
                let text = text.to_owned() + value.as_str().unwrap_or_default();
                self.set(path, &Value::String(text));
            }
        }
    }

    fn set(&mut self, path: &[Segment], value: &Value) {
        let there: Vec<_> = self.below(path).map(|(leaf, _)| leaf.clone()).collect();
        for leaf in there {
            self.0.remove(&leaf);
        }
        // Leaves on the way become containers.
        for depth in 0..path.len() {
            self.0.remove(&path[..depth]);
        }
        match value {
            Value::Array(items) if !items.is_empty() => {
                for (index, item) in items.iter().enumerate() {
                    self.set(&below(path, Segment::Index(index)), item);
                }
            }
            Value::Object(fields) if !fields.is_empty() => {
                for (key, field) in fields {
                    self.set(&below(path, Segment::Key(key.clone())), field);
                }
            }
            leaf => {
                self.0.insert(path.to_vec(), leaf.clone());
            }
        }
    }

    fn merge(&mut self, path: &[Segment], value: &Value) {
        match value {
            Value::Object(fields) if self.is_object(path) => {
                for (key, field) in fields {
                    self.merge(&below(path, Segment::Key(key.clone())), field);
                }
            }
            _ => self.set(path, value),
        }
    }

    fn push(&mut self, path: &[Segment], value: &Value) {
        let next = Segment::Index(self.elements(path));
        self.set(&below(path, next), value);
    }

    fn is_object(&self, path: &[Segment]) -> bool {
        self.below(path)
            .next()
            .is_some_and(|(leaf, value)| match leaf.get(path.len()) {
                Some(segment) => matches!(segment, Segment::Key(_)),
                None => value.is_object(),
            })
    }

    fn elements(&self, path: &[Segment]) -> usize {
        match self.below(path).next_back() {
            Some((leaf, _)) => match leaf.get(path.len()) {
                Some(Segment::Index(last)) => last + 1,
                _ => 0,
            },
            None => 0,
        }
    }

    fn value(&self, path: &[Segment]) -> Option<Value> {
        let (leaf, value) = self.below(path).next()?;
        Some(match leaf.get(path.len()) {
            None => value.clone(),
            Some(Segment::Index(_)) => (0..self.elements(path))
                .map(|index| self.value(&below(path, Segment::Index(index))))
                .map(Option::unwrap_or_default)
                .collect(),
            Some(Segment::Key(_)) => {
                let mut fields = Map::new();
                for (leaf, _) in self.below(path) {
                    if let Some(Segment::Key(key)) = leaf.get(path.len())
                        && !fields.contains_key(key)
                    {
                        let field = self.value(&below(path, Segment::Key(key.clone())));
                        fields.insert(key.clone(), field.unwrap_or_default());
                    }
                }
                Value::Object(fields)
            }
        })
    }

    /// The leaf at `path`, or those below it: paths that begin alike are neighbours.
    fn below(&self, path: &[Segment]) -> Range<'_, Vec<Segment>, Value> {
        let last = below(path, Segment::Index(usize::MAX));
        let bounds = (Bound::Included(path), Bound::Included(last.as_slice()));
        self.0.range::<[Segment], _>(bounds)
    }
}

fn below(path: &[Segment], segment: Segment) -> Vec<Segment> {
    [path, &[segment]].concat()
}
