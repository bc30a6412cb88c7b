//! Arguments with their references replaced by what they refer to.

use super::missing::{listed, place};
use super::size::{self, SizeLimit};
use super::{Data, MAX_BYTES, MAX_LEVELS, MissingPaths};
use crate::reference::{Argument, Path, ReferenceError, Source};
use serde_json::Value;
use std::fmt::Write as _;
use thiserror::Error;

/// Maximum faults reported; a model does not repair more at once.
const MAX_REPORTED_FAULTS: usize = 8;

/// Arguments that cannot be filled, with everything that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", listed(.0, MAX_REPORTED_FAULTS))]
pub struct UnfillableArguments(pub Vec<FillFault>);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {cause}", owner(at))]
pub struct FillFault {
    /// JSON pointer of the string; the whole is "".
    pub at: String,
    pub cause: FillFaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FillFaultKind {
    /// It begins like a reference and is none.
    #[error("{0}; write a literal dagger as ††")]
    Reference(ReferenceError),
    #[error("{0}")]
    Missing(MissingPaths),
    /// The reference, or its value, is nested too deep.
    #[error(
        "with what it refers to it is nested deeper than {MAX_LEVELS} levels; refer to a part of it"
    )]
    Levels,
    /// The values of this reference and those before it are too large.
    #[error("the references together stand for more than {} MiB; refer to the parts that are needed", MAX_BYTES >> 20)]
    Size,
}

pub fn fill(
    data: &Data,
    arguments: &Value,
    instance: Option<&str>,
) -> Result<Value, UnfillableArguments> {
    let mut filling = ArgumentFiller {
        data,
        instance,
        left: MAX_BYTES,
        pointer: String::new(),
        faults: Vec::new(),
    };
    let filled = filling.value(arguments, MAX_LEVELS);
    if filling.faults.is_empty() {
        Ok(filled)
    } else {
        Err(UnfillableArguments(filling.faults))
    }
}

struct ArgumentFiller<'a> {
    data: &'a Data,
    instance: Option<&'a str>,
    /// Bytes that the values of references may still take: many short references to one large value
    /// would exhaust memory.
    left: usize,
    pointer: String,
    faults: Vec<FillFault>,
}

impl ArgumentFiller<'_> {
    /// Returns null for a faulty reference; the caller then discards the result.
    fn value(&mut self, value: &Value, levels: usize) -> Value {
        match value {
            Value::String(text) => match Argument::parse(text) {
                Ok(Argument::Literal(text)) => Value::String(text),
                Ok(Argument::Reference(source)) => self.reference(&source, levels),
                Err(error) => self.fault(FillFaultKind::Reference(error)),
            },
            Value::Array(_) | Value::Object(_) if levels == 0 => self.fault(FillFaultKind::Levels),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| self.below(&index.to_string(), item, levels))
                    .collect()
            }
            Value::Object(fields) => {
                let fields = fields.iter();
                fields
                    .map(|(key, field)| {
                        let token = key.replace('~', "~0").replace('/', "~1");
                        (key.clone(), self.below(&token, field, levels))
                    })
                    .collect()
            }
            _ => value.clone(),
        }
    }

    fn below(&mut self, token: &str, value: &Value, levels: usize) -> Value {
        let length = self.pointer.len();
        let _ = write!(self.pointer, "/{token}");
        let filled = self.value(value, levels - 1);
        self.pointer.truncate(length);
        filled
    }

    fn reference(&mut self, source: &Source, levels: usize) -> Value {
        if self.left == 0 {
            return self.fault(FillFaultKind::Size);
        }
        let value = match self.data.resolve(source, self.instance) {
            Ok(value) => value,
            Err(missing) => return self.fault(FillFaultKind::Missing(missing)),
        };
        match size::of(&value, levels, self.left) {
            Ok(bytes) => {
                self.left -= bytes;
                value.into_owned()
            }
            Err(SizeLimit::Levels) => self.fault(FillFaultKind::Levels),
            Err(SizeLimit::Bytes) => {
                // Nothing more is read: each further reference would cost as much again.
                self.left = 0;
                self.fault(FillFaultKind::Size)
            }
        }
    }

    fn fault(&mut self, cause: FillFaultKind) -> Value {
        self.faults.push(FillFault {
            at: self.pointer.clone(),
            cause,
        });
        Value::Null
    }
}

impl UnfillableArguments {
    /// Every path that must exist first; empty where waiting does not help.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let waits = self
            .0
            .iter()
            .all(|fault| matches!(fault.cause, FillFaultKind::Missing(_)));
        let faults = if waits { self.0.as_slice() } else { &[] };
        faults
            .iter()
            .flat_map(|fault| match &fault.cause {
                FillFaultKind::Missing(missing) => missing.0.as_slice(),
                _ => &[],
            })
            .map(|absent| &absent.path)
    }
}

/// What the string at a pointer is called.
fn owner(at: &str) -> String {
    match at {
        "" => "the arguments".into(),
        at => place(at),
    }
}
