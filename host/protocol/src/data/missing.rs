//! Missing paths, in words that a model can act on: how far the path exists, and what its deepest part holds.

use crate::reference::Path;
use serde_json::Value;
use std::fmt::{self, Display, Formatter};
use thiserror::Error;

/// Maximum names listed: enough to see a typing error, too few to fill a context.
const MAX_NAMES: usize = 8;
/// Maximum characters of one name; tools can return keys of any length.
const MAX_NAME_CHARS: usize = 40;
/// Maximum characters of one path.
const MAX_PATH_CHARS: usize = 200;
/// Maximum paths of one expression that are explained in full.
const MAX_EXPLAINED_PATHS: usize = 4;

/// Paths that must exist first, and do not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", listed(.0, MAX_EXPLAINED_PATHS))]
pub struct MissingPaths(pub Vec<MissingPath>);

/// One path that does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingPath {
    pub path: Path,
    pub found: DeepestFound,
}

/// What the deepest existing part of the path holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeepestFound {
    /// Not even the kind: these are there.
    Kinds(NameList),
    Fields {
        path: Path,
        fields: NameList,
    },
    Elements {
        path: Path,
        elements: usize,
    },
    /// It stands in its list only because a later element was written.
    Hole(Path),
    /// A scalar.
    Other {
        path: Path,
        noun: &'static str,
    },
}

/// The first few of many names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList {
    shown: Vec<String>,
    more: usize,
}

impl MissingPaths {
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|absent| &absent.path)
    }
}

impl Display for MissingPath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let DeepestFound::Kinds(kinds) = &self.found {
            let kind = clipped(&self.path.kind, MAX_NAME_CHARS);
            write!(f, "there is no data of the kind {kind}; ")?;
            return match kinds.len() {
                0 => f.write_str("there is none of any kind yet"),
                1 => write!(f, "there is only {kinds}"),
                _ => write!(f, "there are {kinds}"),
            };
        }
        write!(f, "{} does not exist: ", shown(&self.path))?;
        match &self.found {
            DeepestFound::Fields { path, fields } if fields.len() == 0 => {
                write!(f, "{} is an object without fields", shown(path))
            }
            DeepestFound::Fields { path, fields } => write!(f, "{} has {fields}", shown(path)),
            DeepestFound::Elements { path, elements } => {
                write!(f, "{} has {}", shown(path), counted(*elements))
            }
            DeepestFound::Other { path, noun } => write!(f, "{} is {noun}", shown(path)),
            DeepestFound::Hole(path) => write!(
                f,
                "{} is not written yet, only elements after it are",
                shown(path)
            ),
            DeepestFound::Kinds(_) => Ok(()),
        }
    }
}

impl NameList {
    pub(super) fn new<'a, T: AsRef<str> + ?Sized + 'a>(
        names: impl IntoIterator<Item = &'a T>,
    ) -> Self {
        let mut names = names.into_iter();
        let shown = names.by_ref().take(MAX_NAMES);
        Self {
            shown: shown
                .map(|name| clipped(name.as_ref(), MAX_NAME_CHARS))
                .collect(),
            more: names.count(),
        }
    }

    fn len(&self) -> usize {
        self.shown.len() + self.more
    }

    pub(super) fn first(&self) -> Option<&str> {
        self.shown.first().map(String::as_str)
    }
}

impl Display for NameList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let last = match self.more {
            0 => self.shown.len().saturating_sub(1),
            _ => self.shown.len(),
        };
        for (index, name) in self.shown.iter().enumerate() {
            f.write_str(match index {
                0 => "",
                _ if index == last => " and ",
                _ => ", ",
            })?;
            f.write_str(name)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// A path in a message: the model wrote it, at any length.
/// The first `most` of these, and how many more there are.
pub(super) fn listed(all: &[impl Display], most: usize) -> String {
    let mut list: Vec<_> = all.iter().take(most).map(ToString::to_string).collect();
    if all.len() > most {
        list.push(format!("and {} more", all.len() - most));
    }
    list.join("; ")
}

pub(super) fn shown(path: &Path) -> String {
    place(&path.to_string())
}

pub(super) fn place(text: &str) -> String {
    clipped(text, MAX_PATH_CHARS)
}

pub(super) fn counted(elements: usize) -> String {
    match elements {
        0 => "no elements".to_owned(),
        1 => "1 element".to_owned(),
        _ => format!("{elements} elements"),
    }
}

/// The type of a value, as a noun phrase.
pub(super) fn noun(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn clipped(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
