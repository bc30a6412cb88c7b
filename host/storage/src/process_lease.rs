//! The lease of a process on PostgreSQL: a row with a deadline in the clock of the database, and an advisory lock on
//! the connection that renews the row.
//!
//! Each shows another way to fail. The database server frees the lock at once when the process dies and its connection
//! with it. A process that is frozen, or whose machine lost power or network, keeps its connection and the lock for
//! long, but renews nothing, so its deadline passes. Versions without the deadline look at the lock, so that both may
//! share a database during an upgrade.

use crate::database::Database;
use crate::health::{Health, Outage};
use sqlx::{AnyConnection, AnyPool, Row as _};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// Time from a renewal to the deadline. Another server takes over the runs of a frozen one within 15 s
/// (docs/operations.md, "Leases on PostgreSQL"), of which its looks take 2 s and the begin of the runs the rest.
const LEASE: Duration = Duration::from_secs(9);
/// Time between two renewals. A lease has room for several that fail.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(2);
/// Longest wait for the reply to a renewal. The next one goes over another connection, before the deadline.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Wait before the next attempt to connect, or to take the lock. Constant: a server that comes back must see the
/// process at once.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Wait before each of the first attempts to take the lock over another connection. PostgreSQL frees the lock of a
/// closed connection within milliseconds, and other servers wait only for some seconds.
const LOCK_DELAY: Duration = Duration::from_millis(50);
/// Number of attempts to take the lock that wait for [`LOCK_DELAY`].
const QUICK_LOCK_ATTEMPTS: u32 = 10;
/// Longest wait for another connection after the first was lost, before that counts as an outage. The attempt continues.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time of one attempt to connect: a slow link needs seconds for TCP, TLS and SCRAM, and an attempt at an
/// address that does not answer would hold up the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Age of a deadline from which a row is deleted, unless an open run names its process or its lock is held.
const OLD_ROW: Duration = Duration::from_hours(24);
/// Most such rows that are deleted when a process begins.
const MAX_OLD_ROWS: i64 = 16;
/// Time from a deadline until a process that has no lock either counts as dead for good. A process that only lost its
/// connection, such as one on a laptop that wakes, has the lock again by then.
const DEAD_AFTER: Duration = Duration::from_mins(1);

/// Sets a new deadline, and returns 1 if the old one had not passed, else 0.
const RENEW: &str = "WITH clock AS (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms), \
     before AS (SELECT deadline_ms FROM process_leases WHERE process = $1), \
     renewed AS (INSERT INTO process_leases (process, deadline_ms) SELECT $1, now_ms + $2 FROM clock \
     ON CONFLICT (process) DO UPDATE SET deadline_ms = excluded.deadline_ms) \
     SELECT CAST(CASE WHEN before.deadline_ms > now_ms THEN 1 ELSE 0 END AS BIGINT) \
     FROM clock LEFT JOIN before ON true";
const TRY_LOCK: &str =
    "SELECT CAST(CASE WHEN pg_try_advisory_lock($1) THEN 1 ELSE 0 END AS BIGINT)";
/// Returns the fields of [`LeaseLook`]. The lock is held for this statement only.
const LOOK: &str = "SELECT CAST(CASE WHEN pg_try_advisory_xact_lock_shared($1) THEN 1 ELSE 0 END AS BIGINT) AS is_free, \
     (SELECT deadline_ms FROM process_leases WHERE process = $2) AS deadline_ms, \
     CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms";
const OLD_ROWS: &str = "SELECT process FROM process_leases WHERE deadline_ms < \
     CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - $1 \
     AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.holder = process_leases.process AND runs.ended_ms IS NULL) \
     ORDER BY deadline_ms LIMIT $2";
/// A process without a row counts as alive while it has its lock, so the row of a frozen one stays.
const DELETE_OLD: &str = "DELETE FROM process_leases WHERE process = $1 AND deadline_ms < \
     CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - $2 AND pg_try_advisory_xact_lock_shared($3)";

/// State of a process, as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// Lives, and its lease holds.
    Alive,
    /// Is connected, and its lease has ended: frozen, cut off, or on a machine without power. It may go on at any time.
    Silent,
    /// Died, or lost its connection.
    Gone,
}

/// The lease and the lock of a process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseLook {
    /// True if no connection has the lock.
    is_free: bool,
    /// In the clock of the database; absent for a process without a row, such as one of an older version.
    pub deadline_ms: Option<i64>,
    /// The clock of the database.
    now_ms: i64,
}

impl LeaseLook {
    /// State of the process.
    pub fn state(&self) -> ProcessState {
        match self.deadline_ms {
            _ if self.is_free => ProcessState::Gone,
            Some(deadline) if deadline <= self.now_ms => ProcessState::Silent,
            _ => ProcessState::Alive,
        }
    }

    /// True if the process lost its lock and cannot have it again: its deadline passed some time ago, or it has no
    /// lease.
    pub fn is_dead(&self) -> bool {
        let is_past = |deadline| self.now_ms.saturating_sub(deadline) >= millis(DEAD_AFTER);
        self.is_free && self.deadline_ms.is_none_or(is_past)
    }
}

/// The lease of this process. Dropping it ends the connection, and with it the lock.
#[derive(Debug)]
pub struct ProcessLease {
    _kept: AbortOnDropHandle<()>,
    loss: Arc<LeaseLoss>,
    database: Database,
}

/// True once the lease has ended at some time: other processes may have taken this one for dead.
#[derive(Debug, Default)]
struct LeaseLoss {
    has_happened: AtomicBool,
    happens: Notify,
}

impl LeaseLoss {
    fn note(&self) {
        self.has_happened.store(true, Ordering::Relaxed);
        self.happens.notify_waiters();
    }
}

impl ProcessLease {
    /// Takes the lease of the process `name`, and renews it until it is dropped.
    pub async fn take(
        name: &str,
        database: &Database,
        health: Health,
    ) -> Result<Self, sqlx::Error> {
        let (ready, is_ready) = oneshot::channel();
        let loss = Arc::<LeaseLoss>::default();
        let keeper = LeaseKeeper {
            name: name.to_owned(),
            database: database.clone(),
            health,
            loss: loss.clone(),
        };
        let kept = AbortOnDropHandle::new(tokio::spawn(keeper.keep(ready)));
        is_ready.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))?;
        Ok(Self {
            _kept: kept,
            loss,
            database: database.clone(),
        })
    }

    /// True once other processes may have taken over runs of this one.
    pub fn was_lost(&self) -> bool {
        self.loss.has_happened.load(Ordering::Relaxed)
    }

    /// Completes when this process finds that its lease has ended.
    pub fn ends(&self) -> Notified<'_> {
        self.loss.happens.notified()
    }

    /// The lease and the lock of the process `name`.
    pub async fn look(&self, name: &str, pool: &AnyPool) -> Result<LeaseLook, sqlx::Error> {
        let query = sqlx::query(LOOK).bind(key(name)).bind(name).fetch_one(pool);
        let row = self.database.within(query).await?;
        Ok(LeaseLook {
            is_free: row.try_get::<i64, _>("is_free")? == 1,
            deadline_ms: row.try_get("deadline_ms")?,
            now_ms: row.try_get("now_ms")?,
        })
    }
}

/// Key of the advisory lock of a process: the random half of its name.
pub fn key(name: &str) -> i64 {
    let id = Uuid::parse_str(name).unwrap_or_default();
    id.as_u64_pair().1.cast_signed()
}

/// Task that renews the lease of this process.
struct LeaseKeeper {
    name: String,
    database: Database,
    health: Health,
    loss: Arc<LeaseLoss>,
}

/// Connection that renews the lease and has the lock.
struct LeaseConnection {
    connection: AnyConnection,
    /// False while the database server still takes the connection before for alive, which has the lock then.
    is_locked: bool,
}

impl LeaseKeeper {
    /// Keeps the lease, over another connection when one is lost. `ready` gets the result of the first attempt.
    async fn keep(self, ready: oneshot::Sender<Result<(), sqlx::Error>>) {
        match self.begin().await {
            Ok(connection) => {
                if ready.send(Ok(())).is_err() {
                    return;
                }
                self.renew_until_lost(connection).await;
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        }
        loop {
            match self.reconnected().await {
                Ok(connection) => {
                    if self.renew_until_lost(connection).await {
                        continue;
                    }
                }
                Err(error) => self.failed(&error),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Another connection. An attempt that takes long is reported and continues: on a slow link, a new one would take as
    /// long.
    async fn reconnected(&self) -> Result<LeaseConnection, sqlx::Error> {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.connected());
        tokio::pin!(connecting);
        let soon = tokio::time::timeout(RECONNECT_TIMEOUT, &mut connecting).await;
        let connected = if let Ok(connected) = soon {
            connected
        } else {
            self.failed(&sqlx::Error::PoolTimedOut);
            connecting.await
        };
        connected.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    /// The first connection, with the lease and the lock.
    async fn begin(&self) -> Result<LeaseConnection, sqlx::Error> {
        let mut connection = self.connected().await?;
        let renewed = self.renew(&mut connection);
        match self.database.within(renewed).await {
            Ok(_) => {}
            // Reads must work while the disk of the database is full; the lock alone shows this process meanwhile.
            Err(error) if Outage::of(&error) == Some(Outage::ReadOnly) => return Ok(connection),
            Err(error) => return Err(error),
        }
        let deleted = delete_old(&mut connection.connection);
        self.database.within(deleted).await?;
        Ok(connection)
    }

    async fn connected(&self) -> Result<LeaseConnection, sqlx::Error> {
        // Not of the pool, where busy queries would delay it.
        let mut connection = self.database.connect().await?;
        // A deadline that a crash of the database server takes back is one of less than a second ago.
        let set = sqlx::query("SET synchronous_commit = off").execute(&mut connection);
        self.database.within(set).await?;
        Ok(LeaseConnection {
            connection,
            is_locked: false,
        })
    }

    /// Renews the lease over this connection until the connection is lost. Returns whether it was renewed at all.
    async fn renew_until_lost(&self, mut connection: LeaseConnection) -> bool {
        let mut attempts = 0_u32;
        let mut is_renewed = false;
        loop {
            let renewed = self.renew(&mut connection);
            let renewed = tokio::time::timeout(RENEWAL_TIMEOUT, renewed).await;
            let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
            match renewed.unwrap_or_else(|_| late()) {
                Ok(true) => is_renewed = true,
                Ok(false) => {
                    is_renewed = true;
                    tracing::warn!(
                        "the lease of this process had ended: other servers may have taken its runs over"
                    );
                    self.loss.note();
                }
                Err(error) if Outage::of(&error) == Some(Outage::ReadOnly) => self.failed(&error),
                Err(lost) => {
                    tracing::warn!(%lost, "the connection by which others know that this process lives was lost");
                    self.loss.note();
                    return is_renewed;
                }
            }
            attempts = attempts.saturating_add(1);
            tokio::time::sleep(if connection.is_locked {
                RENEWAL_INTERVAL
            } else if attempts <= QUICK_LOCK_ATTEMPTS {
                LOCK_DELAY
            } else {
                RETRY_DELAY
            })
            .await;
        }
    }

    /// Takes the lock if another connection had it, and renews the lease. Returns false if the lease had ended.
    async fn renew(&self, connection: &mut LeaseConnection) -> Result<bool, sqlx::Error> {
        if !connection.is_locked {
            let locked: i64 = sqlx::query_scalar(TRY_LOCK)
                .bind(key(&self.name))
                .fetch_one(&mut connection.connection)
                .await?;
            connection.is_locked = locked == 1;
        }
        let held: i64 = sqlx::query_scalar(RENEW)
            .bind(&self.name)
            .bind(millis(LEASE))
            .fetch_one(&mut connection.connection)
            .await?;
        Ok(held == 1)
    }

    fn failed(&self, error: &sqlx::Error) {
        if let Some(outage) = Outage::of(error) {
            self.health.failed(outage, error);
        }
    }
}

/// Deletes rows of processes that ended long ago.
async fn delete_old(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let old: Vec<String> = sqlx::query_scalar(OLD_ROWS)
        .bind(millis(OLD_ROW))
        .bind(MAX_OLD_ROWS)
        .fetch_all(&mut *connection)
        .await?;
    for name in old {
        let lock = key(&name);
        sqlx::query(DELETE_OLD)
            .bind(name)
            .bind(millis(OLD_ROW))
            .bind(lock)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(is_free: bool, deadline_ms: Option<i64>) -> LeaseLook {
        LeaseLook {
            is_free,
            deadline_ms,
            now_ms: 1_000_000,
        }
    }

    #[test]
    fn a_process_is_dead_once_its_lock_is_free_and_its_deadline_long_past() {
        for (look, state, is_dead) in [
            (look(false, Some(1_000_001)), ProcessState::Alive, false),
            (look(false, Some(1_000_000)), ProcessState::Silent, false),
            (look(false, Some(0)), ProcessState::Silent, false),
            // A version without leases.
            (look(false, None), ProcessState::Alive, false),
            (look(true, None), ProcessState::Gone, true),
            // Its connection was lost: it may have another one soon.
            (look(true, Some(1_009_000)), ProcessState::Gone, false),
            (look(true, Some(940_001)), ProcessState::Gone, false),
            (look(true, Some(940_000)), ProcessState::Gone, true),
            (look(true, Some(i64::MIN)), ProcessState::Gone, true),
        ] {
            assert_eq!((look.state(), look.is_dead()), (state, is_dead), "{look:?}");
        }
    }
}
