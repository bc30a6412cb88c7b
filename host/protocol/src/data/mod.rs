//! The context's data: a log of writes, and what every path reads as (docs/protocol.md, 2, 5 and 9).
//!
//! The log is authoritative. Reading a path goes through it from newest to oldest: a `set` at the
//! path or above it ends the search, everything else that touches the path is collected and then
//! applied from oldest to newest. `tests/naive.rs` does exactly that. [`Data`] keeps the value of every
//! (kind, instance) beside the log instead, so that a write costs what is written and a read costs
//! the path; a property test holds the two equal.
//!
//! What the protocol leaves open, and how it is decided here:
//! - Only two objects can be merged or assigned. Anything else replaces what is there, at the top
//!   as inside.
//! - Writing through a scalar, null or an empty container makes it the container that the path
//!   needs. A name into a list that has elements and an index into an object that has fields are
//!   errors.
//! - Writing beyond the end of a list pads it with null, because parallel calls finish in any order. The list
//!   reads with these nulls, but a path to one of them does not exist until it is written: a call that waits
//!   for element 0 is not released by element 2.
//! - `push` and `concat` to nothing or null begin a list; `concat` also continues a text.
//! - A write in an instance is applied to what this instance has written, not to a copy of the
//!   global value: pushing to a list that is global begins the instance's own, which then hides it.

mod fill;
mod holes;
mod missing;
mod refusal;
mod size;
mod tree;
mod view;

#[cfg(test)]
mod tests;

pub use fill::{FillFault, FillFaultKind, UnfillableArguments};
pub use missing::{DeepestFound, MissingPath, MissingPaths, NameList};
pub use refusal::{Refusal, WriteError};

use super::reference::{Path, Source};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use tree::Tree;
use view::DataView;

/// Maximum bytes of all writes, as they lie in memory, padding included. The log keeps replaced values and
/// the trees hold copies, so a run's context takes twice this; a gigabyte carries several runs.
pub const MAX_BYTES: usize = 64 << 20;
/// Maximum levels of nesting, counted from the kind.
pub const MAX_LEVELS: usize = toolhold_json::depth::MAX_DEPTH;

/// How a value joins what its path already has (docs/protocol.md, 3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Method {
    /// Replaces it.
    #[default]
    Set,
    /// Field by field, and the fields of both likewise.
    Merge,
    /// Field by field.
    Assign,
    /// One more element of a list.
    Push,
    /// More elements of a list, or more of a text.
    Concat,
}

/// One entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    pub path: Path,
    /// None is the global data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    #[serde(default)]
    pub method: Method,
    pub value: Value,
}

/// All data of a context. A reader sees its own instance over the global data, and never another
/// instance: where both have an object their fields are one, where not, the instance's value wins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Data {
    log: Vec<Write>,
    global: Kinds,
    instances: HashMap<String, Kinds>,
    /// Bytes of the log, never more than [`MAX_BYTES`].
    bytes: usize,
}

type Kinds = HashMap<String, Tree>;

/// The parts of the context that an allow-list names.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope<'a> {
    /// In the order of the list.
    pub values: Vec<(Path, Cow<'a, Value>)>,
    /// Paths of the list that the context lacks.
    pub missing: Option<MissingPaths>,
}

impl Data {
    /// Appends to the log.
    ///
    /// # Errors
    /// What stands at the path cannot take the value this way, or a limit would be passed. Nothing
    /// has changed then.
    pub fn write(&mut self, write: Write) -> Result<(), WriteError> {
        let bytes = self.admit(&write).map_err(|refusal| WriteError {
            path: write.path.clone(),
            refusal: Box::new(refusal),
        })?;
        let kinds = match &write.instance {
            Some(instance) => self.instances.entry(instance.clone()).or_default(),
            None => &mut self.global,
        };
        kinds
            .entry(write.path.kind.clone())
            .or_insert_with(|| Tree::new(self.log.len()))
            .apply(&write);
        self.bytes += bytes;
        self.log.push(write);
        Ok(())
    }

    /// Appends all of `writes`, or none of them.
    ///
    /// # Errors
    /// As [`Data::write`].
    pub fn write_all(&mut self, writes: Vec<Write>) -> Result<(), WriteError> {
        let before = self.log.len();
        for write in writes {
            if let Err(error) = self.write(write) {
                self.go_back_to(before);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Forgets the entries of the log from `entries` on. It rebuilds everything, which is
    /// acceptable because it is rare.
    fn go_back_to(&mut self, entries: usize) {
        if entries == self.log.len() {
            return;
        }
        let mut log = std::mem::take(self).log;
        log.truncate(entries);
        for write in log {
            // It was taken before, in the same order.
            let _ = self.write(write);
        }
    }

    /// Everything that was written, oldest first.
    pub fn log(&self) -> &[Write] {
        &self.log
    }

    /// The value at `path`; copied only where an instance's object lies over a global one.
    ///
    /// # Errors
    /// It does not exist. Null exists.
    pub fn read(
        &self,
        path: &Path,
        instance: Option<&str>,
    ) -> Result<Cow<'_, Value>, MissingPaths> {
        let view = self.view(instance);
        view.read(path)
            .ok_or_else(|| MissingPaths(vec![view.absent(path)]))
    }

    /// Whether `path` can be read, without copying anything.
    pub fn contains(&self, path: &Path, instance: Option<&str>) -> bool {
        self.view(instance).contains(path)
    }

    /// The value of an input expression (docs/protocol.md, 5).
    ///
    /// # Errors
    /// The paths that must exist first: any one of them for `||`, every one for `&&`.
    pub fn resolve(
        &self,
        source: &Source,
        instance: Option<&str>,
    ) -> Result<Cow<'_, Value>, MissingPaths> {
        let view = self.view(instance);
        let chosen = match source {
            Source::First(paths) => paths.iter().find(|path| view.contains(path)),
            Source::All(paths) => paths
                .last()
                .filter(|_| paths.iter().all(|path| view.contains(path))),
        };
        chosen.and_then(|path| view.read(path)).ok_or_else(|| {
            let absent = source.paths().iter().filter(|path| !view.contains(path));
            MissingPaths(absent.map(|path| view.absent(path)).collect())
        })
    }

    /// `arguments` with every reference replaced by its value and `††` at the beginning of a text read as `†`. Give it a call's
    /// parameters only: an output expression also begins with a dagger.
    ///
    /// # Errors
    /// Every string that is no reference, or refers to nothing, with its JSON pointer.
    pub fn fill(
        &self,
        arguments: &Value,
        instance: Option<&str>,
    ) -> Result<Value, UnfillableArguments> {
        fill::fill(self, arguments, instance)
    }

    /// Every kind with its value, in the order in which the reader's data first had it.
    pub fn kinds(&self, instance: Option<&str>) -> Vec<(&str, Cow<'_, Value>)> {
        let view = self.view(instance);
        let names = view.kinds().into_iter();
        names
            .filter_map(|kind| Some((kind, view.kind(kind)?)))
            .collect()
    }

    /// The value of one kind in one instance alone, or of the global data alone.
    pub fn own(&self, kind: &str, instance: Option<&str>) -> Option<&Value> {
        let kinds = match instance {
            Some(instance) => self.instances.get(instance)?,
            None => &self.global,
        };
        kinds.get(kind).map(Tree::value)
    }

    /// What `paths` let a call see (docs/protocol.md, 3.6, `_scopes`).
    pub fn scoped(&self, paths: &[Path], instance: Option<&str>) -> Scope<'_> {
        let view = self.view(instance);
        let mut values = Vec::new();
        let mut absent = Vec::new();
        for path in paths {
            match view.read(path) {
                Some(value) => values.push((path.clone(), value)),
                None => absent.push(view.absent(path)),
            }
        }
        let missing = (!absent.is_empty()).then_some(MissingPaths(absent));
        Scope { values, missing }
    }

    /// The instances that have data of their own, in the order of their first write.
    pub fn instances(&self) -> Vec<&str> {
        let mut instances: Vec<_> = self
            .instances
            .iter()
            .map(|(instance, kinds)| (kinds.values().map(Tree::first).min(), instance.as_str()))
            .collect();
        instances.sort_unstable();
        instances.into_iter().map(|(_, name)| name).collect()
    }

    fn view(&self, instance: Option<&str>) -> DataView<'_> {
        DataView {
            own: instance.and_then(|instance| self.instances.get(instance)),
            shared: &self.global,
        }
    }

    /// What `write` adds to `bytes`.
    fn admit(&self, write: &Write) -> Result<usize, Refusal> {
        let kinds = match &write.instance {
            Some(instance) => self.instances.get(instance),
            None => Some(&self.global),
        };
        let tree = kinds.and_then(|kinds| kinds.get(&write.path.kind));
        let padding = tree::check(tree, write)?;
        let left = MAX_BYTES - self.bytes;
        let bytes = size::entry(write, left)? + padding * size_of::<Value>();
        if bytes > left {
            return Err(Refusal::Size);
        }
        Ok(bytes)
    }
}
