//! Why a value cannot be written, and what to write instead.

use super::missing::{NameList, counted, shown};
use super::{MAX_BYTES, MAX_LEVELS};
use crate::reference::{MAX_INDEX, Path, Segment};
use std::error::Error;
use std::fmt::{self, Display, Formatter};

/// A write that was refused; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteError {
    pub path: Path,
    pub refusal: Box<Refusal>,
}

/// The reason of the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NameOfList {
        list: Path,
        elements: usize,
    },
    IndexOfObject {
        object: Path,
        fields: NameList,
    },
    /// Type of the existing value.
    PushTo(&'static str),
    ConcatTo {
        there: &'static str,
        value: &'static str,
    },
    /// Type of the written value.
    ConcatOf(&'static str),
    Index(usize),
    Levels,
    Size,
}

impl Error for WriteError {}

impl Display for WriteError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let path = shown(&self.path);
        write!(f, "{path} cannot be written: {}", self.refusal)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameOfList { list, elements } => {
                let next = shown(&below(list, Segment::Index(*elements)));
                let list = shown(list);
                write!(
                    f,
                    "{list} is a list and has {}; write an element, such as {next}, or set {list} to \
                     an object first",
                    counted(*elements)
                )
            }
            Self::IndexOfObject { object, fields } => {
                let field = Segment::Key(fields.first().unwrap_or("name").to_owned());
                let field = shown(&below(object, field));
                let object = shown(object);
                write!(
                    f,
                    "{object} is an object and has {fields}; write a field, such as {field}, or set \
                     {object} to a list first"
                )
            }
            Self::PushTo(there) => write!(
                f,
                "push appends to a list, and {there} is there; set it to a list first, or write to \
                 another path"
            ),
            Self::ConcatTo { there, value } => write!(
                f,
                "concat cannot append {value} to {there}, only a list to a list and a text to a \
                 text; use push to append one element to a list, or set to replace what is there"
            ),
            Self::ConcatOf(value) => write!(
                f,
                "concat appends a list or a text, and the value is {value}; use push to append it \
                 as one element, or merge to add fields"
            ),
            Self::Index(index) => write!(
                f,
                "[{index}] is too high, {MAX_INDEX} is the highest index; use push to append"
            ),
            Self::Levels => write!(
                f,
                "the value would be nested deeper than {MAX_LEVELS} levels; write a flatter one, or \
                 deep parts as text"
            ),
            Self::Size => write!(
                f,
                "the context's data would take more than {} MiB; write less of it: a summary, or \
                 the part that is needed",
                MAX_BYTES >> 20
            ),
        }
    }
}

fn below(path: &Path, segment: Segment) -> Path {
    let mut path = path.clone();
    path.segments.push(segment);
    path
}
