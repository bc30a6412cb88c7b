//! Texts that were taken out of a recorded event after its run had ended, because a document was deleted or a fact
//! forgotten.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use uuid::Uuid;

/// Stands in an event from which texts were taken. Such an event keeps its [`Seal`](super::Seal), which is of what it
/// was before: a row of the audit log has the digest of what it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedTexts {
    /// Number of the audit log's row that has the digest of the event.
    pub entry: i64,
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// The documents and facts of the texts, at most [`MAX_NAMED`].
    pub of: Vec<RemovedSource>,
}

/// Documents and facts that an event names, whose texts were taken out of it.
pub const MAX_NAMED: usize = 20;

/// A document or a fact that is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovedSource {
    Document {
        /// Absent: it was gone before the record had its passage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Uuid>,
        /// SHA-256 of its bytes, in hex, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<String>,
        /// When it was deleted.
        deleted_ms: u64,
    },
    Fact {
        id: Uuid,
        /// When it was forgotten.
        deleted_ms: u64,
    },
}

/// For people.
impl Display for RemovedSource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document { id: Some(id), .. } => write!(f, "document {id}"),
            Self::Document { id: None, .. } => f.write_str("a document"),
            Self::Fact { id, .. } => write!(f, "fact {id}"),
        }
    }
}
