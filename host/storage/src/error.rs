//! Errors of the store.

use crate::blob_quota::BlobsFull;
use crate::health::Outage;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;
use uuid::Uuid;

/// The database cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("the folder {path} for the database cannot be used: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{what} cannot be opened: {source}")]
    Open { what: String, source: sqlx::Error },
    #[error(
        "{what} was written by another version of toolhold, and this one cannot read it: {source}"
    )]
    Version {
        what: String,
        source: sqlx::migrate::MigrateError,
    },
    #[error(
        "{what} was written by a newer version of toolhold: it has migration {migration}, and this version knows those \
         up to {known}. Start that version or a later one; to go back to this version, restore the backup that was made \
         before the upgrade (docs/backup.md)"
    )]
    Newer {
        what: String,
        migration: i64,
        known: i64,
    },
    /// A file that is no whole database.
    #[error("{what} is damaged: {fault}")]
    Damaged { what: String, fault: String },
    /// Not every text can be kept in it.
    #[error(
        "{what} has the encoding {encoding}, in which not every text can be written; create it with ENCODING 'UTF8' and \
         TEMPLATE template0"
    )]
    Encoding { what: String, encoding: String },
    #[error("the database failed: {source}")]
    Failed {
        #[from]
        source: sqlx::Error,
    },
    /// Whether entries are missing is not known, because their number changes.
    #[error(
        "old entries of the audit log are being deleted, so it cannot be verified now; try again when that is over"
    )]
    AuditMoves,
    /// Known from an earlier use: no query was tried.
    #[error("{0}")]
    Outage(Outage),
}

impl StoreError {
    /// The outage of the database that caused the error, if one did.
    pub fn outage(&self) -> Option<Outage> {
        match self {
            Self::Outage(outage) => Some(*outage),
            Self::Failed { source } | Self::Open { source, .. } => Outage::of(source),
            Self::Folder { .. }
            | Self::Version { .. }
            | Self::Newer { .. }
            | Self::Damaged { .. }
            | Self::Encoding { .. }
            | Self::AuditMoves => None,
        }
    }
}

/// A run's record cannot be read, or the run cannot be resumed.
#[derive(Debug, Error)]
pub enum RecordError {
    #[error("there is no run {name:?}; `toolhold runs` lists them")]
    Unknown { name: String },
    #[error("there are no runs yet: `toolhold run`, `request run` and `plan run` make them")]
    None,
    #[error("{name:?} begins the names of several runs: {}", listed(names))]
    Ambiguous { name: String, names: Vec<String> },
    #[error("line {line} of {what} is no event: {source}")]
    Line {
        what: String,
        line: usize,
        source: serde_json::Error,
    },
    #[error(
        "line {line} of {what} is not what was written there: it was changed, or lines before it were lost or added"
    )]
    Changed { what: String, line: usize },
    #[error("{what} cannot be read: {source}")]
    Read { what: String, source: io::Error },
    #[error("the run is still going on in another process")]
    Held,
    #[error("this run is over; `toolhold show {run}` prints it")]
    Over { run: Uuid },
    #[error("{what} is a file: only a run of the database can be gone on with")]
    NotKept { what: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A write of a run cannot be committed.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The run's lease is another process' by now, or the events before were deleted.
    #[error(
        "another process goes on with run {run}, or part of its record is gone: event {seq} and later ones cannot be \
         written here"
    )]
    LeaseLost { run: Uuid, seq: i64 },
    /// Calls were to begin in a run that was cancelled.
    #[error("run {run} was cancelled: no call of it begins any more")]
    Cancelled { run: Uuid },
    /// The process was taken for dead after it had promised the run, and the key of the request was given free.
    #[error(
        "run {run} was to begin for a request with an Idempotency-Key, which means another run by now, or none: repeat \
         the request to get that one"
    )]
    PromiseLost { run: Uuid },
    #[error("there is no session {session} any more: a turn of it cannot begin")]
    SessionGone { session: Uuid },
    /// Images that were written meanwhile have taken the room that was left.
    #[error(transparent)]
    ImagesFull(#[from] BlobsFull),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl WriteError {
    /// The cause of an error of a run's journal, if a write was refused.
    pub fn cause_of(error: &io::Error) -> Option<&Self> {
        let cause = error.get_ref()?.downcast_ref::<Arc<Self>>()?;
        Some(&**cause)
    }
}

impl From<sqlx::Error> for RecordError {
    fn from(source: sqlx::Error) -> Self {
        Self::Store(StoreError::Failed { source })
    }
}

/// Names that a message lists.
pub(crate) const MAX_SHOWN_NAMES: usize = 8;

fn listed(names: &[String]) -> String {
    let shown = names.iter().rev().take(MAX_SHOWN_NAMES);
    let mut text = shown.cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_SHOWN_NAMES {
        text.push_str(" and older ones");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_open_that_found_nobody_is_an_outage() {
        let open = |source| StoreError::Open {
            what: "it".into(),
            source,
        };
        let away = sqlx::Error::Io(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(open(away).outage(), Some(Outage::Unreachable));
        let wrong = sqlx::Error::Configuration("no URL".into());
        assert_eq!(open(wrong).outage(), None);
    }
}
