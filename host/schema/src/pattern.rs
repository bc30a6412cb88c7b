//! Patterns that are matched in time linear in the text: no lookaround, no backreferences.

use jsonschema::{PatternOptions, Regex};
use serde_json::{Value, json};
use std::sync::LazyLock;
use thiserror::Error;

/// Maximum bytes of a pattern as it is written.
const MAX_LENGTH: usize = 4 << 10;
/// Maximum bytes of a compiled pattern.
const MAX_BYTES: u64 = 8 << 20;
/// Limits that are tried, to find out how many bytes a compiled pattern has. From small to large, so that all
/// attempts together take little longer than the last.
const SIZES: [u64; 9] = [
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    MAX_BYTES,
];
/// Maximum bytes of a small pattern as it is written: those of dates have fewer than 200.
const MAX_SMALL_LENGTH: usize = 512;
/// Maximum bytes of a small pattern once it is compiled. Compiling one takes less than a millisecond.
const MAX_SMALL_BYTES: u64 = 64 << 10;
/// Maximum bytes of a text that is checked to be a regular expression.
const MAX_REGEX: usize = 4 << 10;
/// Maximum bytes that one thread keeps for the matches of one pattern.
const MAX_CACHE: usize = 256 << 10;
/// Bytes of a compiled pattern for one step of 32 bytes of text: each state may be visited at each byte.
const BYTES_A_STEP: u64 = 4;

/// A pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternFault {
    #[error(
        "lookaround such as (?=…) and backreferences such as \\1 are not supported, because matching them can take \
         time without end; write the pattern without them, or check this in the tool"
    )]
    Backtracking,
    #[error(
        "the pattern is too large once its repetitions are written out; repeat less, or use maxLength"
    )]
    TooLarge,
    #[error("the pattern has more than {MAX_LENGTH} bytes; shorten it")]
    TooLong,
}

/// A pattern that takes few bytes once it is compiled, to find out which texts match.
#[derive(Debug)]
pub struct SmallPattern(jsonschema::Validator);

impl SmallPattern {
    /// `None` if it is no pattern, or a large one.
    pub fn new(pattern: &str) -> Option<Self> {
        if pattern.len() > MAX_SMALL_LENGTH {
            return None;
        }
        let options = jsonschema::options().with_pattern_options(limited(MAX_SMALL_BYTES));
        options.build(&json!({"pattern": pattern})).ok().map(Self)
    }

    /// True if `text` matches the pattern, as a check of a value would find.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_valid(&Value::from(text))
    }
}

/// The options under which every pattern is compiled.
pub(crate) fn options() -> PatternOptions<Regex> {
    limited(MAX_BYTES)
}

fn limited(bytes: u64) -> PatternOptions<Regex> {
    PatternOptions::regex()
        .size_limit(usize::try_from(bytes).unwrap_or(usize::MAX))
        .dfa_size_limit(MAX_CACHE)
}

/// How many bytes `pattern` has once it is compiled, rounded up to a limit. What is no pattern at all is said when it is.
pub(crate) fn bytes(pattern: &str) -> Result<u64, PatternFault> {
    if pattern.len() > MAX_LENGTH {
        return Err(PatternFault::TooLong);
    }
    let schema = json!({"pattern": pattern});
    let compiles = |options| {
        jsonschema::options()
            .with_pattern_options(options)
            .build(&schema)
            .is_ok()
    };
    if let Some(size) = SIZES.iter().find(|size| compiles(limited(**size))) {
        return Ok(*size);
    }
    if needs_backtracking(pattern) {
        Err(PatternFault::Backtracking)
    } else if is_regex(pattern) {
        Err(PatternFault::TooLarge)
    } else {
        Ok(0)
    }
}

/// Whether `text` is a pattern, also one that cannot be used here.
pub(crate) fn is_pattern(text: &str) -> bool {
    bytes(text) != Ok(0)
}

/// Whether `text` is a regular expression. jsonschema compares each name of a group with all others.
pub(crate) fn is_regex(text: &str) -> bool {
    static REGEX: LazyLock<Option<jsonschema::Validator>> = LazyLock::new(|| {
        let options = jsonschema::options().should_validate_formats(true);
        options.build(&json!({"format": "regex"})).ok()
    });
    text.len() <= MAX_REGEX
        && REGEX
            .as_ref()
            .is_some_and(|regex| regex.is_valid(&Value::from(text)))
}

/// Whether a pattern that cannot be compiled has what only backtracking matches.
fn needs_backtracking(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some(at) = rest.find(['\\', '(']) {
        let (_, found) = rest.split_at(at);
        if ["(?=", "(?!", "(?<=", "(?<!", "\\k"]
            .iter()
            .any(|start| found.starts_with(start))
        {
            return true;
        }
        let mut characters = found.chars();
        if characters.next() == Some('\\')
            && characters
                .next()
                .is_some_and(|next| ('1'..='9').contains(&next))
        {
            return true;
        }
        // An escape takes the next character with it.
        let taken = if found.starts_with('\\') { 2 } else { 1 };
        rest = found
            .char_indices()
            .nth(taken)
            .map_or("", |(end, _)| &found[end..]);
    }
    false
}

/// Steps to match 32 bytes of text with a pattern of `bytes`.
pub(crate) fn weight(bytes: u64) -> u64 {
    1 + bytes / BYTES_A_STEP
}
