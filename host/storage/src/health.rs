//! Whether the database works, as its last use showed.

use std::sync::Arc;
use std::time::Instant;
use thiserror::Error;
use tokio::sync::watch;

/// A state of the database that keeps it from being used, and may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Outage {
    /// It can be neither read nor written.
    #[error("the database cannot be reached")]
    Unreachable,
    /// It can be read, but not written; often because its disk is full.
    #[error("nothing can be written to the database; its disk may be full")]
    ReadOnly,
}

/// The known state of a database. Clones share it.
#[derive(Debug, Clone)]
pub struct Health {
    current: Arc<watch::Sender<Option<CurrentOutage>>>,
}

#[derive(Debug, Clone, Copy)]
struct CurrentOutage {
    outage: Outage,
    /// When the outage began, whatever its kind was then.
    since: Instant,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            current: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl Health {
    /// The present outage, if there is one.
    pub fn outage(&self) -> Option<Outage> {
        self.current.borrow().map(|current| current.outage)
    }

    /// When the present outage began.
    pub fn since(&self) -> Option<Instant> {
        self.current.borrow().map(|current| current.since)
    }

    /// Notes that the database failed, and logs the begin of an outage.
    pub(crate) fn failed(&self, outage: Outage, reason: &dyn std::fmt::Display) {
        let is_new = self.current.send_if_modified(|current| {
            let known = current.map(|current| current.outage);
            let since = current.map_or_else(Instant::now, |current| current.since);
            *current = Some(CurrentOutage { outage, since });
            known != Some(outage)
        });
        if is_new {
            tracing::error!(%reason, "{outage}");
        }
    }

    /// Notes that something was written, which ends an outage.
    pub(crate) fn works(&self) {
        if self
            .current
            .send_if_modified(|current| current.take().is_some())
        {
            tracing::warn!("the database can be written again");
        }
    }

    /// Waits until there is an outage.
    pub async fn breaks(&self) {
        let mut current = self.current.subscribe();
        let _ = current.wait_for(Option::is_some).await;
    }

    /// Waits until there is no outage.
    pub async fn recovers(&self) {
        let mut current = self.current.subscribe();
        let _ = current.wait_for(Option::is_none).await;
    }
}

impl Outage {
    /// The outage that an error shows; `None` if the error concerns the statement.
    pub(crate) fn of(error: &sqlx::Error) -> Option<Self> {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
                Some(Self::Unreachable)
            }
            sqlx::Error::Database(error) => {
                let code = error.code()?;
                match code.parse() {
                    Ok(code) if code < FIRST_SQLSTATE => Self::of_sqlite(code),
                    _ => Self::of_postgres(&code),
                }
            }
            _ => None,
        }
    }

    /// See <https://www.sqlite.org/rescode.html>: the last byte of an extended code is the code.
    fn of_sqlite(code: u32) -> Option<Self> {
        match code & 0xff {
            // SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN.
            8 | 10 | 13 | 14 => Some(Self::ReadOnly),
            _ => None,
        }
    }

    fn of_postgres(state: &str) -> Option<Self> {
        match state {
            // disk_full, read_only_sql_transaction (a standby, or set by an operator), io_error.
            "53100" | "25006" | "58030" => Some(Self::ReadOnly),
            // too_many_connections.
            "53300" => Some(Self::Unreachable),
            // Connection exceptions, and a server that is starting or stopping.
            state if state.starts_with("08") || state.starts_with("57P") => Some(Self::Unreachable),
            _ => None,
        }
    }
}

/// Least number of a SQLSTATE that reads as one. SQLSTATEs have five characters; SQLite's codes are numbers with at
/// most four digits.
pub(crate) const FIRST_SQLSTATE: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases() {
        for (code, expected) in [
            (13, Some(Outage::ReadOnly)),
            // SQLITE_IOERR_WRITE.
            (778, Some(Outage::ReadOnly)),
            // SQLITE_BUSY, SQLITE_CONSTRAINT_UNIQUE.
            (5, None),
            (2_067, None),
        ] {
            assert_eq!(Outage::of_sqlite(code), expected, "{code}");
        }
        for (state, expected) in [
            ("53100", Some(Outage::ReadOnly)),
            ("57P01", Some(Outage::Unreachable)),
            ("08006", Some(Outage::Unreachable)),
            ("23505", None),
        ] {
            assert_eq!(Outage::of_postgres(state), expected, "{state}");
        }
    }

    #[tokio::test]
    async fn an_outage_lasts_until_something_is_written() {
        let health = Health::default();
        let seen = health.clone();
        health.failed(Outage::ReadOnly, &"no room");
        let since = health.since();
        seen.breaks().await;
        health.failed(Outage::Unreachable, &"gone");
        assert_eq!(seen.outage(), Some(Outage::Unreachable));
        assert_eq!(seen.since(), since, "it is one outage");
        health.works();
        seen.recovers().await;
        assert_eq!(seen.outage(), None);
    }
}
