//! JSON Schema validation with messages that a model can act on, in bounded time and memory.
//!
//! Schemas and values come from modules, MCP servers, clients and models, so both are bounded
//! (docs/security.md, "Work that schemas cause"): a schema when it is accepted, by `cost`, and a
//! validation while it runs, by counting what it reads (`metered`).

#![forbid(unsafe_code)]

mod bounds;
mod cost;
mod loosen;
mod metered;
mod pattern;
mod tree;
mod unique;
mod weights;
mod well_formed;

use cost::SchemaCost;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use metered::{Metered, Read, within};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write as _};
use thiserror::Error;
use toolhold_text::cut;
use weights::Weights;

pub use bounds::{CheckTooCostly, SchemaTooCostly};
pub use loosen::{LooseSchema, loosened};
pub use metered::{allowance, briefly, size, spend};
pub use pattern::{PatternFault, SmallPattern};

/// A compiled schema.
#[derive(Debug)]
pub struct Validator {
    inner: jsonschema::Validator<Metered>,
    weights: Weights,
    price: u64,
    pattern_bytes: u64,
}

/// A schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaFault {
    /// It would cause too much work, or work without a bound.
    #[error("{0}")]
    TooCostly(#[from] SchemaTooCostly),
    /// It is no JSON Schema.
    #[error("it is no JSON Schema: {0}")]
    Invalid(String),
}

/// A value was not found valid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckError {
    /// The first faults, each with its JSON path.
    #[error("{0}")]
    Misfit(String),
    #[error(transparent)]
    TooCostly(#[from] CheckTooCostly),
}

/// Steps of one check, each an addition and a comparison beside the read that it counts.
const STEPS: u64 = 16_000_000;
/// Steps to find all faults of a value that does not fit, or the first one.
const FAULT_STEPS: u64 = 2 * STEPS;
/// Maximum faults shown to a model: it fixes the first ones, and more only cost tokens.
const MAX_FAULTS_FOR_MODEL: usize = 3;
/// Maximum faults shown to a person: as many as fit a screen.
const MAX_FAULTS_FOR_PERSON: usize = 16;
/// The last of the faults, where not all are told.
const MORE: &str = "and more";
/// The only fault, where none could be told.
const SOMEWHERE: &str =
    "it does not fit the schema, and to find out where takes more work than one check may take";
/// Maximum characters of one fault, which may quote the value.
const MAX_FAULT_CHARS: usize = 300;
/// Maximum bytes of the place of one fault: the names in it may be the caller's.
const MAX_PLACE_BYTES: usize = 200;

/// One thing that is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to what is wrong; empty means the whole value.
    pub pointer: String,
    pub reason: String,
}

impl Validator {
    /// # Errors
    /// The fault in the schema, or why it is refused. References to other documents are errors: nothing
    /// is fetched.
    pub fn new(schema: &Value) -> Result<Self, SchemaFault> {
        let SchemaCost {
            weights,
            entries: price,
            pattern_bytes,
        } = cost::weigh(schema)?;
        jsonschema::options_for::<Metered>()
            .offline()
            .with_pattern_options(pattern::options())
            .with_format("regex", pattern::is_regex)
            .build(schema)
            .map(|inner| Self {
                inner,
                weights,
                price,
                pattern_bytes,
            })
            .map_err(|error| SchemaFault::Invalid(bounded(&error).unwrap_or_else(|short| short)))
    }

    /// An estimate of the steps of a check, for each step of the value's [`size`]: the most keywords and entries that
    /// apply to one value, with references followed.
    pub fn price(&self) -> u64 {
        self.price
    }

    /// The bytes of the compiled patterns, which may be thousands of times the text of the schema.
    pub fn pattern_bytes(&self) -> u64 {
        self.pattern_bytes
    }

    /// # Errors
    /// The first faults, each with its JSON path; or that the check took too much work.
    pub fn check(&self, value: &Value) -> Result<(), CheckError> {
        let faults = self.first(MAX_FAULTS_FOR_MODEL + 1, value, &BTreeSet::new())?;
        let mut faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        if faults.is_empty() {
            return Ok(());
        }
        if faults.len() > MAX_FAULTS_FOR_MODEL {
            faults.truncate(MAX_FAULTS_FOR_MODEL);
            faults.push(MORE.into());
        }
        Err(CheckError::Misfit(faults.join("; ")))
    }

    /// Which of `values` is the first that does not fit. All of them are checked in a `share` of the steps of one check:
    /// a half for 2.
    ///
    /// # Errors
    /// The check took too much work.
    pub fn first_misfit<'a>(
        &self,
        values: impl IntoIterator<Item = &'a Value>,
        share: usize,
    ) -> Result<Option<usize>, CheckTooCostly> {
        let is_misfit = |value| !self.inner.is_valid(Read(value));
        let steps = STEPS / u64::try_from(share).unwrap_or(u64::MAX).max(1);
        within(steps, self.weights, || {
            values.into_iter().position(is_misfit)
        })
    }

    /// The faults of `value`. The parts at `open` (JSON pointers) stand for values that are not
    /// known yet: faults in them, or that depend on them, are left out.
    ///
    /// # Errors
    /// The check took too much work.
    pub fn faults(&self, value: &Value, open: &[&str]) -> Result<Vec<Violation>, CheckTooCostly> {
        let open = open.iter().copied().collect();
        self.first(MAX_FAULTS_FOR_PERSON, value, &open)
    }

    fn first(
        &self,
        most: usize,
        value: &Value,
        open: &BTreeSet<&str>,
    ) -> Result<Vec<Violation>, CheckTooCostly> {
        let is_valid = || self.inner.is_valid(Read(value));
        if within(STEPS, self.weights, is_valid)? {
            return Ok(Vec::new());
        }
        let all = || {
            let faults = self.inner.iter_errors(Read(value));
            let faults = faults.filter(|error| !depends_on(error, open)).take(most);
            faults.map(|error| Violation::of(&error)).collect()
        };
        let weights = self.weights.writing();
        match within(FAULT_STEPS, weights, all) {
            Ok(faults) => Ok(faults),
            Err(spent) if !open.is_empty() => Err(spent),
            // There are too many to write down.
            Err(CheckTooCostly) => {
                let one = || {
                    self.inner
                        .validate(Read(value))
                        .err()
                        .map(|error| Violation::of(&error))
                };
                let one = within(FAULT_STEPS, weights, one).ok().flatten();
                let more = if one.is_some() { MORE } else { SOMEWHERE };
                let more = Violation {
                    pointer: String::new(),
                    reason: more.into(),
                };
                Ok(one.into_iter().chain([more]).collect())
            }
        }
    }
}

/// For lists of faults: that the check was not made is one of the whole value.
impl From<CheckTooCostly> for Violation {
    fn from(unknown: CheckTooCostly) -> Self {
        Self {
            pointer: String::new(),
            reason: unknown.to_string(),
        }
    }
}

impl Violation {
    fn of(error: &ValidationError<'_>) -> Self {
        Self {
            pointer: error.instance_path().to_string(),
            reason: reason(error),
        }
    }
}

/// The reason in words. A long value is not quoted: half of a cut secret could not be recognised and hidden.
fn reason(error: &ValidationError<'_>) -> String {
    bounded(error).unwrap_or_else(|_| match bounded(&error.masked()) {
        Ok(reason) | Err(reason) => reason,
    })
}

/// The text of `what`, or its beginning where it is long; no more than that is made.
fn bounded(what: &impl Display) -> Result<String, String> {
    let mut text = Bounded(String::new());
    let whole = write!(text, "{what}");
    let Bounded(text) = text;
    if whole.is_ok() && text.chars().count() <= MAX_FAULT_CHARS {
        Ok(text)
    } else {
        Err(cut(&text, MAX_FAULT_CHARS))
    }
}

/// A text that takes no more once it has enough bytes for [`MAX_FAULT_CHARS`].
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (4 * (MAX_FAULT_CHARS + 1)).saturating_sub(self.0.len());
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Err(fmt::Error)
    }
}

/// Whether `error` may vanish once the values at `open` are known.
fn depends_on(error: &ValidationError<'_>, open: &BTreeSet<&str>) -> bool {
    use ValidationErrorKind as Kind;
    if open.is_empty() {
        return false;
    }
    let place = error.instance_path().as_str();
    if open.contains(place) {
        return true;
    }
    match error.kind() {
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => context
            .iter()
            .any(|branch| branch.iter().all(|error| depends_on(error, open))),
        Kind::Constant { .. }
        | Kind::Contains
        | Kind::Enum { .. }
        | Kind::Not { .. }
        | Kind::OneOfMultipleValid { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::UnevaluatedProperties { .. }
        | Kind::UniqueItems => {
            let inside = format!("{place}/");
            let next = open.range(inside.as_str()..).next();
            next.is_some_and(|next| next.starts_with(&inside))
        }
        // The condition may depend on an open value.
        _ => {
            let mut keywords = error.schema_path().as_str().split('/');
            keywords.any(|keyword| matches!(keyword, "then" | "else"))
        }
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", short_place(&self.pointer), self.reason)
        }
    }
}

/// A JSON pointer for a message: as many names as there is room for. A long name is not quoted: half of a cut secret could
/// not be recognised and hidden.
pub fn short_place(pointer: &str) -> String {
    if pointer.len() <= MAX_PLACE_BYTES {
        return pointer.to_owned();
    }
    let (mut text, mut left) = (String::new(), MAX_PLACE_BYTES);
    for name in pointer.split('/').skip(1) {
        let Some(room) = left.checked_sub(name.len() + 1) else {
            text.push_str("/…");
            break;
        };
        left = room;
        text.push('/');
        text.push_str(name);
    }
    text
}
