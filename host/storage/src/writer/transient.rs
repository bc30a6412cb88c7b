//! Which errors concern the database, and not the data that was to be written.

use crate::error::WriteError;
use crate::health::{FIRST_SQLSTATE, Outage};

/// Whether the error concerns the database itself: an outage, or a conflict that passes.
pub fn is_of_database(error: &WriteError) -> bool {
    match error {
        WriteError::Database(error) => Outage::of(error).is_some() || is_transient(error),
        WriteError::LeaseLost { .. }
        | WriteError::Cancelled { .. }
        | WriteError::PromiseLost { .. }
        | WriteError::SessionGone { .. }
        | WriteError::ImagesFull(_) => false,
    }
}

/// Conflicts with concurrent transactions, which a retry resolves. SQLite: another process is writing to the file, or
/// was while this transaction began. PostgreSQL: serialization failures, deadlocks, locks that were not available in
/// time, cancelled statements, transactions that were ended because this process was frozen in the middle, and lack of
/// resources.
pub fn is_transient(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let Some(code) = error.code() else {
        return false;
    };
    match code.parse::<u32>() {
        // SQLITE_BUSY, SQLITE_LOCKED and their extended codes.
        Ok(code) if code < FIRST_SQLSTATE => matches!(code & 0xff, 5 | 6),
        _ => {
            matches!(&*code, "25P03" | "40001" | "40P01" | "55P03" | "57014")
                || code.starts_with("53")
        }
    }
}
