//! Knowledge that a running module reaches: passages of documents, and facts.
//!
//! The sandbox checks what only it knows (that the grant names what is asked for at all, the bounds of one call) and
//! hands everything else to [`KnowledgeAccess`], which gives no more than the grant that comes with each question.

use super::OwnedCaller;
use crate::grant::{KnowledgeGrant, MemoryScope};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// A call that asks.
#[derive(Debug, Clone)]
pub struct KnowledgeCall {
    /// The call's id.
    pub id: String,
    /// The full name of the tool.
    pub tool: String,
    pub caller: OwnedCaller,
    /// The agent whose run makes the call; empty if no agent does.
    pub agent: String,
    /// What of the grant is left to this call. An implementation gives nothing else.
    pub grant: Arc<KnowledgeGrant>,
}

/// By what passages are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchBy {
    /// By words and by vectors, where there are vectors.
    #[default]
    Best,
    Words,
    Vectors,
}

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct PassageQuery {
    pub texts: Vec<String>,
    /// `name`, or `owner/name`. Empty: all that the grant gives.
    pub collections: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub by: SearchBy,
    pub most: usize,
    pub most_of_document: Option<usize>,
    pub most_characters: Option<usize>,
}

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadPlace {
    /// The passage of this id, with those around it.
    Passage(String),
    /// The document of this id, from the passage of this number on.
    Document(String, u64),
}

/// A document of a collection that the caller may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnowledgeDocument {
    pub id: String,
    /// `name`, or `owner/name`.
    pub collection: String,
    pub source: String,
    pub title: String,
    pub media_type: String,
    pub labels: BTreeMap<String, String>,
    pub passages: u64,
}

/// A passage of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnowledgePassage {
    pub id: String,
    pub document: Arc<KnowledgeDocument>,
    pub number: u64,
    /// Outermost first.
    pub headings: Vec<String>,
    pub text: String,
    /// In bytes of the document's text.
    pub starts: u64,
    pub ends: u64,
}

/// What a search found, best first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPassages {
    pub passages: Vec<KnowledgePassage>,
    /// Whether vectors counted.
    pub by_vectors: bool,
}

/// A fact that is to be kept.
#[derive(Debug, Clone)]
pub struct FactToRemember {
    pub text: String,
    pub scope: MemoryScope,
    /// 0 to 1.
    pub confidence: f64,
    /// The id of the fact whose place it takes.
    pub supersedes: Option<String>,
}

/// What is recalled.
#[derive(Debug, Clone, Default)]
pub struct FactQuery {
    /// Empty: the newest.
    pub text: String,
    pub scopes: Vec<MemoryScope>,
    pub most: usize,
}

/// A fact.
#[derive(Debug, Clone, PartialEq)]
pub struct RememberedFact {
    pub id: String,
    pub scope: MemoryScope,
    pub text: String,
    pub source: String,
    pub confidence: f64,
    /// Milliseconds since 1970 (UTC).
    pub created_ms: u64,
}

/// Why a module did not get what it asked for; each with words for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnowledgeError {
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Quota(String),
    #[error("{0}")]
    Unavailable(String),
}

/// What comes of a question.
pub type KnowledgeResult<T> = BoxFuture<'static, Result<T, KnowledgeError>>;

/// Answers what modules ask of the knowledge of their callers.
///
/// The sandbox polls the futures inside the calling call and **drops** them when that call ends first: dropping must stop
/// what they do, but for a write that was handed to the database as a whole. An implementation bounds how many questions
/// it answers at a time.
pub trait KnowledgeAccess: Debug + Send + Sync {
    /// Finds passages.
    fn search(
        self: Arc<Self>,
        call: KnowledgeCall,
        query: PassageQuery,
    ) -> KnowledgeResult<FoundPassages>;

    /// Reads a passage with at most so many before and after it, or such a part of a document.
    fn read(
        self: Arc<Self>,
        call: KnowledgeCall,
        place: ReadPlace,
        before: u64,
        after: u64,
    ) -> KnowledgeResult<Vec<KnowledgePassage>>;

    /// Keeps a fact.
    fn remember(
        self: Arc<Self>,
        call: KnowledgeCall,
        fact: FactToRemember,
    ) -> KnowledgeResult<RememberedFact>;

    /// Finds facts.
    fn recall(
        self: Arc<Self>,
        call: KnowledgeCall,
        query: FactQuery,
    ) -> KnowledgeResult<Vec<RememberedFact>>;

    /// Deletes the text of a fact, or of all of its versions, and returns how many were deleted.
    fn forget(
        self: Arc<Self>,
        call: KnowledgeCall,
        fact: String,
        all_versions: bool,
    ) -> KnowledgeResult<u32>;
}
