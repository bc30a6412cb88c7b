//! Whether the database can be worked with just now, as whoever used it last found out.

use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// What keeps the database from being used, and passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing can be read or written.
    Away,
    /// What is there can be read, and nothing can be added.
    Full,
}

/// What is known of it. Clones are of the same database.
#[derive(Debug, Clone)]
pub struct Health {
    found: Arc<watch::Sender<Option<Found>>>,
}

#[derive(Debug, Clone, Copy)]
struct Found {
    trouble: Trouble,
    since: Instant,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            found: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl Health {
    pub fn trouble(&self) -> Option<Trouble> {
        self.found.borrow().map(|found| found.trouble)
    }

    /// Since when nothing can be written.
    pub fn since(&self) -> Option<Instant> {
        self.found.borrow().map(|found| found.since)
    }

    /// Something could not be done, for this reason.
    pub(super) fn failed(&self, trouble: Trouble, reason: &dyn std::fmt::Display) {
        let is_new = self.found.send_if_modified(|found| {
            let known = found.map(|found| found.trouble);
            let since = found.map_or_else(Instant::now, |found| found.since);
            *found = Some(Found { trouble, since });
            known != Some(trouble)
        });
        if is_new {
            tracing::error!(%reason, "{trouble}");
        }
    }

    /// Something was written.
    pub(super) fn works(&self) {
        if self.found.send_if_modified(|found| found.take().is_some()) {
            tracing::warn!("the database can be written again");
        }
    }

    /// Waits until there is trouble.
    pub async fn breaks(&self) {
        let mut found = self.found.subscribe();
        let _ = found.wait_for(Option::is_some).await;
    }

    /// Waits until there is none.
    pub async fn recovers(&self) {
        let mut found = self.found.subscribe();
        let _ = found.wait_for(Option::is_none).await;
    }
}

impl Trouble {
    /// What an error says about the database itself, if it may not say so later.
    pub(super) fn of(error: &sqlx::Error) -> Option<Self> {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
                Some(Self::Away)
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

    /// By <https://www.sqlite.org/rescode.html>: of an extended code the last byte is the code.
    fn of_sqlite(code: u32) -> Option<Self> {
        match code & 0xff {
            // SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN.
            8 | 10 | 13 | 14 => Some(Self::Full),
            _ => None,
        }
    }

    fn of_postgres(state: &str) -> Option<Self> {
        match state {
            // disk_full, read_only_sql_transaction (a standby, or an operator's wish), io_error.
            "53100" | "25006" | "58030" => Some(Self::Full),
            // too_many_connections.
            "53300" => Some(Self::Away),
            // Connection exceptions, and a server that starts or stops.
            state if state.starts_with("08") || state.starts_with("57P") => Some(Self::Away),
            _ => None,
        }
    }
}

/// SQLSTATEs have five characters, and SQLite's codes, which are numbers, at most four.
pub(super) const FIRST_SQLSTATE: u32 = 10_000;

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Away => "the database cannot be reached",
            Self::Full => "nothing can be written to the database; its disk may be full",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases() {
        for (code, expected) in [
            (13, Some(Trouble::Full)),
            // SQLITE_IOERR_WRITE.
            (778, Some(Trouble::Full)),
            // SQLITE_BUSY, SQLITE_CONSTRAINT_UNIQUE.
            (5, None),
            (2_067, None),
        ] {
            assert_eq!(Trouble::of_sqlite(code), expected, "{code}");
        }
        for (state, expected) in [
            ("53100", Some(Trouble::Full)),
            ("57P01", Some(Trouble::Away)),
            ("08006", Some(Trouble::Away)),
            ("23505", None),
        ] {
            assert_eq!(Trouble::of_postgres(state), expected, "{state}");
        }
    }

    #[tokio::test]
    async fn trouble_lasts_until_something_is_written() {
        let health = Health::default();
        let seen = health.clone();
        health.failed(Trouble::Full, &"no room");
        let since = health.since();
        seen.breaks().await;
        health.failed(Trouble::Away, &"gone");
        assert_eq!(seen.trouble(), Some(Trouble::Away));
        assert_eq!(seen.since(), since, "it is one trouble");
        health.works();
        seen.recovers().await;
        assert_eq!(seen.trouble(), None);
    }
}
