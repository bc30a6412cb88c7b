//! What can go wrong with the record of runs.

use crate::storage::health::Trouble;
use std::io;
use std::path::PathBuf;
use thiserror::Error;
use uuid::Uuid;

/// Why the database cannot be used.
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
    #[error("the database failed: {source}")]
    Failed {
        #[from]
        source: sqlx::Error,
    },
    /// Known before anything was tried.
    #[error("{0}")]
    Trouble(Trouble),
}

impl StoreError {
    /// What is wrong with the database itself, if it may pass.
    pub fn trouble(&self) -> Option<Trouble> {
        match self {
            Self::Trouble(trouble) => Some(*trouble),
            Self::Failed { source } => Trouble::of(source),
            Self::Folder { .. } | Self::Open { .. } | Self::Version { .. } => None,
        }
    }
}

/// Why a run's record cannot be had.
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

impl From<sqlx::Error> for RecordError {
    fn from(source: sqlx::Error) -> Self {
        Self::Store(StoreError::Failed { source })
    }
}

/// Names that an error lists.
const SHOWN: usize = 8;

fn listed(names: &[String]) -> String {
    let shown = names.iter().rev().take(SHOWN);
    let mut text = shown.cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(" and older ones");
    }
    text
}
