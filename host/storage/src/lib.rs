//! Storage of runs: one SQLite file in the state folder, or a PostgreSQL database that several hosts share.
//!
//! The crate promises that an event that `Journal::append` accepted is in the
//! database, that at most one process works on a run at a time (its lease), that the lease of a dead process is free
//! at once and on PostgreSQL that of a frozen one after seconds, and that the audit log shows any later change to it.
//! Short outages of the database are waited out; longer ones stop runs in a way that they can be resumed.
//!
//! Read `store` first: it opens the `database` and migrates the `schema`. Every write of a run goes through
//! `writer`, which commits the writes of many runs in one transaction; for a SQLite file it has a thread of its own.
//! `change` holds the statements, and `statements` runs them on SQLite's own library or through sqlx. `health` is what
//! is known about an outage. `process` and `process_lease` tell living processes from dead and frozen ones,
//! `run_lease` gives runs to them, and `journal` is a run's journal. `calls_file` has the calls of no run that a process on a
//! SQLite file has begun. `blobs` and `shared_texts` keep beside the events what is large in them. The other rooms are queries: `runs`, `record` (events), `sessions`,
//! `decisions`, `keys`, `idempotency`, `orphans`, `prune`, `space` (what was deleted makes the file smaller), `responses`; `copy` makes and checks copies for backups; `knowledge` has the
//! collections of documents, and the facts of memory, `shown_texts` which records have texts of them, and `redaction`
//! takes deleted ones out of the records of ended runs. The audit log is `audit_rows` (rows and their chain of hashes) and `audit_log` (search, redaction,
//! verification and deletion of old rows).
//!
//! ```no_run
//! use std::time::Duration;
//! use toolhold_storage::{Location, Store};
//!
//! # async fn open() -> Result<(), toolhold_storage::StoreError> {
//! let location = Location::File("state/toolhold.db".into());
//! let store = Store::open(&location, Duration::from_secs(30)).await?;
//! for run in store.runs_since(0).await? {
//!     println!("{} {}", run.id, run.task);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod audit_log;
mod audit_rows;
mod blob_quota;
mod blobs;
mod calls_file;
mod change;
mod claims;
mod column;
mod copy;
mod database;
mod decisions;
mod error;
mod health;
mod idempotency;
mod journal;
mod kept_images;
mod keys;
mod knowledge;
mod label;
mod orphans;
mod pages;
mod pending_decisions;
mod process;
mod process_lease;
mod prune;
mod record;
mod redacted_lines;
mod redaction;
mod reply_parts;
mod reply_so_far;
mod responses;
mod result_blobs;
mod run_lease;
mod runs;
mod schema;
mod sessions;
mod shared_texts;
mod shown_texts;
mod space;
mod statements;
mod store;
mod time;
mod transact;
mod writer;

#[cfg(test)]
mod tests;

pub use audit_log::{
    AuditFault, Durability, Entry as AuditEntry, ExpireError, Filter as AuditFilter,
    PageStart as AuditOrder, Verified,
};
pub use audit_rows::{AuditContent, CallRecord, Draft, PrunedBy};
pub use blob_quota::{BlobQuota, BlobSums, BlobsFull};
pub use copy::{check_database, copy_database};
pub use database::Location;
pub use decisions::{DecideOutcome, NoWaitingPlace, WaitingDecision, WaitingPlace};
pub use error::{RecordError, StoreError, WriteError};
pub use health::{Health, Outage};
pub use idempotency::{KeyUse, PendingStart};
pub use journal::RunJournal;
pub use keys::{
    KeyRotation, KeyStanding, KeyState, NewSecret, Permits, RotationAnswer, Scope, StoredKey,
};
pub use knowledge::{
    Access, Begun, Collection, CollectionCreation, CollectionDocument, CollectionKind, Fact,
    FactQuota, FactScope, ForgetExtent, ForgottenFacts, FoundPassage, MAX_ACCEPTED_SHARES,
    MAX_KEYS_OF_COLLECTION, MAX_OFFERS_OF_OWNER, MAX_OFFERS_TO_KEY, Membership, MembershipState,
    MemoryError, NewDocument, NewFact, NewPassage, OwnedSums, Passage, PassageWords, PublishError,
    QuestionWord, Quota, QuotaHolder, Quotas, RemovedPassages, ShareError, SharedWith,
    StagedDocument, StagingError, VectorRow, Vectors, WordQuestion, WordWeights, attached_name,
};
pub use label::{Label, Origin};
pub use orphans::{HolderLoss, Orphan, Orphans};
pub use prune::PrunedCounts;
pub use record::{PageBounds, Record, RecordLine, RecordPage, Source};
pub use redaction::RedactedRecords;
pub use result_blobs::ResultBlobs;
pub use run_lease::LeaseState;
pub use runs::{RunEnd, RunRow};
pub use sessions::Session;
pub use store::Store;
pub use time::now_ms;
pub use writer::{Attachment, AuditLosses, StartedWrite};
