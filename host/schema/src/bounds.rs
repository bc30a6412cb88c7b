//! How large a schema may be and what it may cost, and the words for one that is larger.

use crate::pattern::PatternFault;
use thiserror::Error;

/// Maximum bytes of a schema: names, texts and one for each value.
pub const MAX_BYTES: usize = 256 << 10;
/// Maximum values in a schema, keywords included.
pub const MAX_VALUES: usize = 100_000;
/// Maximum nesting of a schema as JSON.
pub const MAX_DEPTH: usize = 64;
/// Maximum bytes of the JSON pointers to all values of a schema: the compiled schema holds several copies of each.
pub const MAX_POINTER_BYTES: u64 = 4 << 20;
/// Maximum entries that apply to one value in place, with all references followed.
pub const MAX_IN_PLACE: u64 = 16_384;
/// Maximum references and keywords that apply in place within each other.
pub const MAX_IN_PLACE_DEPTH: usize = 64;
/// Maximum of the same over all schemas with `unevaluatedProperties` or `unevaluatedItems`, which are built apart.
pub const MAX_TRACKED: u64 = 32_768;
/// Maximum values in all subschemas of `not`, each counted as often as it is in one.
pub const MAX_NEGATED: u64 = 100_000;
/// Maximum values in a schema, times the orders in which its inner schemas with an `$id` may be entered: each order
/// is built apart.
pub const MAX_ENTERED: u64 = 100_000;
/// Maximum different patterns of a schema.
pub const MAX_PATTERNS: usize = 256;
/// Maximum bytes of all compiled patterns of a schema.
pub const MAX_PATTERN_BYTES: u64 = 12 << 20;

/// A schema is refused because of the work that it would cause, or could cause.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SchemaTooCostly {
    #[error("it has more than {MAX_BYTES} bytes; split it, or shorten its texts")]
    Bytes,
    #[error("it has more than {MAX_VALUES} values; split it")]
    Values,
    #[error("it is nested more than {MAX_DEPTH} levels deep; move inner schemas to \"$defs\"")]
    Depth,
    #[error("its long names stand above too many schemas; move the inner schemas to \"$defs\"")]
    Pointers,
    #[error(
        "{place}: with all references followed, more than {MAX_IN_PLACE} entries apply to one value; refer to \
         fewer schemas in allOf, anyOf and oneOf"
    )]
    Expanded { place: String },
    #[error(
        "{place}: more than {MAX_IN_PLACE_DEPTH} references and combinations lead to one value; shorten the chain"
    )]
    Chain { place: String },
    #[error(
        "{place}: it applies itself to the same value without end; a schema may refer to itself only below \
             properties or items"
    )]
    Endless { place: String },
    #[error(
        "unevaluatedProperties and unevaluatedItems apply to too many schemas; use additionalProperties or \
             items in some of them"
    )]
    Tracked,
    #[error("its subschemas of \"not\" are too large; move what they hold to \"$defs\"")]
    Negated,
    #[error(
        "it holds too many schemas with an \"$id\" of their own for its size; give them names in \"$defs\" only"
    )]
    Resources,
    #[error(
        "{place}: {reference} is not within this schema, and nothing is fetched; put it into \"$defs\""
    )]
    Elsewhere { place: String, reference: String },
    #[error("{place}: {fault}")]
    Pattern { place: String, fault: PatternFault },
    #[error(
        "it has more than {MAX_PATTERNS} patterns, or patterns that are too large together; use fewer"
    )]
    Patterns,
}

/// Whether a value fits was not found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "it could not be checked: with this schema the check takes more work than one check may take; \
     give a smaller value, or use a schema with fewer alternatives, references and patterns"
)]
pub struct CheckTooCostly;
