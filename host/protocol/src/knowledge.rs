//! What is looked for in documents before a run's model is asked, and the passages that are found (docs/protocol.md,
//! 13).

use serde::{Deserialize, Serialize};

/// What a run looks for before its model is asked for the first time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retrieval {
    /// Collections that are searched: `NAME` of the run's owner, or `OWNER/NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<String>,
    /// The collection of the documents that came with the task. Where little of them is found by what is asked, they
    /// are shown from their beginnings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<String>,
    /// Passages at most.
    pub passages: u32,
    /// Tokens of their texts together at most, estimated.
    pub tokens: u32,
    pub when: RetrievedWhen,
    pub citations: CitationRule,
}

/// Most passages of one search: the ids of those of a conversation's turns are this far apart.
pub const MAX_RETRIEVED: u32 = 100;

/// Before which turns of a conversation the collections are searched. Documents that came with a turn are searched
/// before it anyway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetrievedWhen {
    #[default]
    Always,
    /// Before the first answer.
    First,
}

/// What becomes of an answer that does not cite what it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CitationRule {
    /// Citations are checked, and the result is reported with the answer.
    #[default]
    Report,
    /// An answer without a citation, or with one that does not hold, goes back to the model once.
    Require,
}

/// A passage of a document that was found for a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetrievedPassage {
    /// What an answer cites it by: `k1`.
    pub id: String,
    /// Its number in the storage, if it is of a collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passage: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub collection: String,
    /// Path, URL or name of its document.
    pub source: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The headings that it stands under, one a line, the outermost first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub heading: String,
    pub text: String,
}

/// What was found, best first. The passages have no ids yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retrieved {
    pub passages: Vec<RetrievedPassage>,
    /// What the run's readers should know, such as a collection that does not exist.
    pub notes: Vec<String>,
    /// How long the search took, in milliseconds.
    pub duration_ms: u64,
}
