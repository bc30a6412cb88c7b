//! Errors of SQLite's library, as the errors that sqlx has for them: the rest of the crate tells outages, conflicts and
//! faults of a statement apart by sqlx's type and SQLite's code.

use sqlx::error::{DatabaseError, ErrorKind};
use std::borrow::Cow;
use std::error::Error as StdError;
use std::io;
use thiserror::Error;

/// An error that SQLite returned.
#[derive(Debug, Error)]
#[error("(code: {code}) {message}")]
struct SqliteFailure {
    /// The extended result code.
    code: i32,
    message: String,
}

/// SQLite's code of an input or output error.
const IO_ERROR: i32 = 10;

/// The error of a transaction that SQLite undid, because another caller's statement in it could not be written.
pub fn undone() -> sqlx::Error {
    let message = "the transaction was undone, because the file could not be written".to_owned();
    let code = IO_ERROR;
    sqlx::Error::Database(Box::new(SqliteFailure { code, message }))
}

/// A copy of an error, for each of several callers. Errors of SQLite keep their codes.
pub fn copied(error: &sqlx::Error) -> sqlx::Error {
    let known = error.as_database_error();
    match known.and_then(|known| known.try_downcast_ref::<SqliteFailure>()) {
        Some(SqliteFailure { code, message }) => {
            let (code, message) = (*code, message.clone());
            sqlx::Error::Database(Box::new(SqliteFailure { code, message }))
        }
        None => sqlx::Error::Io(io::Error::other(error.to_string())),
    }
}

/// Converts an error of the library.
pub fn converted(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            let message = message.unwrap_or_else(|| failure.to_string());
            let code = failure.extended_code;
            sqlx::Error::Database(Box::new(SqliteFailure { code, message }))
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => {
            let (code, message) = (error.extended_code, msg);
            sqlx::Error::Database(Box::new(SqliteFailure { code, message }))
        }
        other => sqlx::Error::Decode(other.into()),
    }
}

impl DatabaseError for SqliteFailure {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.to_string().into())
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        match self.code {
            // SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE.
            1_555 | 2_067 => ErrorKind::UniqueViolation,
            // SQLITE_CONSTRAINT_FOREIGNKEY.
            787 => ErrorKind::ForeignKeyViolation,
            // SQLITE_CONSTRAINT_NOTNULL.
            1_299 => ErrorKind::NotNullViolation,
            // SQLITE_CONSTRAINT_CHECK.
            275 => ErrorKind::CheckViolation,
            _ => ErrorKind::Other,
        }
    }
}
