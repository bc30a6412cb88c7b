//! One reader's view: its instance's data over the global data. Another instance's trees are not
//! within its reach.

use super::Kinds;
use super::missing::{DeepestFound, MissingPath, NameList, noun};
use super::tree::{self, Tree};
use crate::reference::{Path, Segment};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy)]
pub struct DataView<'a> {
    pub own: Option<&'a Kinds>,
    pub shared: &'a Kinds,
}

impl<'a> DataView<'a> {
    pub fn read(self, path: &Path) -> Option<Cow<'a, Value>> {
        self.at(&path.kind, &path.segments).value()
    }

    pub fn contains(self, path: &Path) -> bool {
        self.at(&path.kind, &path.segments).is_something()
    }

    pub fn kind(self, kind: &str) -> Option<Cow<'a, Value>> {
        self.at(kind, &[]).value()
    }

    /// Every kind, in the order of first appearance in what this reader sees: the whole log's order
    /// would tell of other instances.
    pub fn kinds(self) -> Vec<&'a str> {
        let mut first: HashMap<&str, usize> = HashMap::new();
        for (kind, tree) in self.own.into_iter().flatten().chain(self.shared) {
            let entry = first.entry(kind).or_insert(tree.first());
            *entry = tree.first().min(*entry);
        }
        let mut kinds: Vec<_> = first.into_iter().collect();
        kinds.sort_unstable_by_key(|(_, first)| *first);
        kinds.into_iter().map(|(kind, _)| kind).collect()
    }

    /// Why `path` does not exist: how far it does, and what is there.
    pub fn absent(self, path: &Path) -> MissingPath {
        let found = (0..path.segments.len())
            .rev()
            .map(|depth| (depth, self.at(&path.kind, &path.segments[..depth])))
            .find(|(_, layers)| layers.is_something())
            .map_or_else(
                || DeepestFound::Kinds(NameList::new(self.kinds())),
                |(depth, layers)| {
                    let above = Path {
                        kind: path.kind.clone(),
                        segments: path.segments[..depth].to_vec(),
                    };
                    layers.found(above, &path.segments[depth])
                },
            );
        MissingPath {
            path: path.clone(),
            found,
        }
    }

    fn at(self, kind: &str, path: &[Segment]) -> Layers<'a> {
        let own = self.own.and_then(|kinds| kinds.get(kind));
        let shared = self.shared.get(kind);
        let mut layers = Layers {
            own: own.map(Tree::value),
            shared: shared.map(Tree::value),
        }
        .settled();
        for segment in path {
            layers = Layers {
                own: layers.own.and_then(|value| child(value, segment)),
                shared: layers.shared.and_then(|value| child(value, segment)),
            }
            .settled();
        }
        let written = |tree: Option<&Tree>| tree.is_some_and(|tree| !tree.is_hole(path));
        Layers {
            own: layers.own.filter(|_| written(own)),
            shared: layers.shared.filter(|_| written(shared)),
        }
    }
}

fn child<'a>(value: &'a Value, segment: &Segment) -> Option<&'a Value> {
    match (value, segment) {
        (Value::Object(fields), Segment::Key(key)) => fields.get(key),
        (Value::Array(items), Segment::Index(index)) => items.get(*index),
        _ => None,
    }
}

/// What stands at one path.
#[derive(Debug, Clone, Copy)]
struct Layers<'a> {
    own: Option<&'a Value>,
    shared: Option<&'a Value>,
}

impl<'a> Layers<'a> {
    /// The instance's value hides the global one unless both are objects.
    fn settled(self) -> Self {
        match (self.own, self.shared) {
            (Some(Value::Object(_)), Some(Value::Object(_))) | (None, _) => self,
            (Some(_), _) => Self {
                shared: None,
                ..self
            },
        }
    }

    fn is_something(self) -> bool {
        self.own.or(self.shared).is_some()
    }

    fn value(self) -> Option<Cow<'a, Value>> {
        match (self.own, self.shared) {
            (Some(own), Some(shared)) => {
                let mut both = shared.clone();
                tree::merge(&mut both, own);
                Some(Cow::Owned(both))
            }
            (own, shared) => own.or(shared).map(Cow::Borrowed),
        }
    }

    /// Why `wanted` is not in this value, which stands at `path`.
    fn found(self, mut path: Path, wanted: &Segment) -> DeepestFound {
        match (self.own.or(self.shared), wanted) {
            (Some(Value::Array(items)), Segment::Index(index)) if *index < items.len() => {
                path.segments.push(wanted.clone());
                DeepestFound::Hole(path)
            }
            (Some(Value::Array(items)), _) => DeepestFound::Elements {
                path,
                elements: items.len(),
            },
            (Some(Value::Object(fields)), _) => DeepestFound::Fields {
                path,
                fields: match self.shared.and_then(Value::as_object) {
                    Some(shared) if self.own.is_some() => {
                        let more = fields.keys().filter(|key| !shared.contains_key(*key));
                        NameList::new(shared.keys().chain(more))
                    }
                    _ => NameList::new(fields.keys()),
                },
            },
            (value, _) => DeepestFound::Other {
                path,
                noun: noun(value.unwrap_or(&Value::Null)),
            },
        }
    }
}
