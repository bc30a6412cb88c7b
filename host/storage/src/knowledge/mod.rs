//! Knowledge: collections of documents, cut into passages that are found by their words or by their vectors.
//!
//! What is found changes in one small transaction: a document's passages are staged in batches that nobody finds, so
//! that SQLite's one writer is never held for long, and then [`Store::publish_document`] makes them visible. What was
//! replaced or deleted is invisible at once and removed in batches later ([`Store::remove_gone_passages`]).
//!
//! Memory is kept beside them: `facts`, which belong to one owner and are never shared.
//!
//! A collection belongs to the owner of a key, who may share it (`shares`). Functions that take ids take the reader's name, too, and
//! find nothing that it may not read; those that take a [`Collection`] rely on it having been found that way.

mod access;
mod attached;
mod bm25;
mod collections;
mod documents;
mod facts;
mod find;
mod owners;
mod passages;
mod removal;
mod rewording;
mod shares;
mod staging;

pub use access::{Access, Membership, MembershipState, SharedWith};
pub use attached::attached_name;
#[cfg(test)]
pub(crate) use attached::left_statement;
pub use bm25::{QuestionWord, WordWeights};
pub use collections::{Collection, CollectionCreation, Vectors};
pub use documents::{CollectionDocument, NewDocument};
pub(crate) use facts::delete_facts_of_session;
pub use facts::{Fact, FactQuota, FactScope, ForgetExtent, ForgottenFacts, MemoryError, NewFact};
pub use find::{FoundPassage, WordQuestion};
pub use owners::{CollectionKind, OwnedSums};
pub use passages::{Passage, VectorRow};
pub use removal::RemovedPassages;
#[cfg(test)]
pub(crate) use removal::{EMPTY, GONE};
pub use rewording::PassageWords;
pub use shares::{
    MAX_ACCEPTED_SHARES, MAX_KEYS_OF_COLLECTION, MAX_OFFERS_OF_OWNER, MAX_OFFERS_TO_KEY, ShareError,
};
pub use staging::{
    Begun, NewPassage, PublishError, Quota, QuotaHolder, Quotas, StagedDocument, StagingError,
};
