//! Why a value cannot be written, and what to write instead.

use super::missing::{NameList, counted, shown};
use super::{MAX_BYTES, MAX_LEVELS};
use crate::reference::{MAX_INDEX, Path, Segment};
use thiserror::Error;

/// A write that was refused; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} cannot be written: {refusal}", shown(path))]
pub struct WriteError {
    pub path: Path,
    pub refusal: Box<Refusal>,
}

/// The reason of the refusal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("{} is a list and has {}; write an element, such as {}, or set {} to an object first", shown(list), counted(*elements), shown(&below(list, Segment::Index(*elements))), shown(list))]
    NameOfList { list: Path, elements: usize },
    #[error("{} is an object and has {fields}; write a field, such as {}, or set {} to a list first", shown(object), shown(&field_of(object, fields)), shown(object))]
    IndexOfObject { object: Path, fields: NameList },
    /// Type of the existing value.
    #[error(
        "push appends to a list, and {0} is there; set it to a list first, or write to another path"
    )]
    PushTo(&'static str),
    #[error(
        "concat cannot append {value} to {there}, only a list to a list and a text to a text; use push to append one element to a list, or set to replace what is there"
    )]
    ConcatTo {
        there: &'static str,
        value: &'static str,
    },
    /// Type of the written value.
    #[error(
        "concat appends a list or a text, and the value is {0}; use push to append it as one element, or merge to add fields"
    )]
    ConcatOf(&'static str),
    #[error("[{0}] is too high, {MAX_INDEX} is the highest index; use push to append")]
    Index(usize),
    #[error(
        "the value would be nested deeper than {MAX_LEVELS} levels; write a flatter one, or deep parts as text"
    )]
    Levels,
    #[error("the context's data would take more than {} MiB; write less of it: a summary, or the part that is needed", MAX_BYTES >> 20)]
    Size,
}

/// A field that the object has, or could have.
fn field_of(object: &Path, fields: &NameList) -> Path {
    let name = fields.first().unwrap_or("name");
    below(object, Segment::Key(name.to_owned()))
}

fn below(path: &Path, segment: Segment) -> Path {
    let mut path = path.clone();
    path.segments.push(segment);
    path
}
