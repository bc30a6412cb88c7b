//! The lease of a process on PostgreSQL: a row with a deadline in the clock of the database, and an advisory lock on
//! the connection that renews the row.
//!
//! Each shows another way to fail. The database server frees the lock at once when the process dies and its connection
//! with it. A process that is frozen, or whose machine lost power or network, keeps its connection and the lock for
//! long, but renews nothing, so its deadline passes. Versions without the deadline look at the lock, so that both may
//! share a database during an upgrade.

use crate::database::Database;
use crate::health::{Health, Outage};
use sqlx::{AnyConnection, AnyPool};
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
/// Longest wait for another connection after the first was lost, before that counts as an outage.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Age of a deadline from which a row is deleted, unless an open run names its process.
const OLD_ROW: Duration = Duration::from_hours(24);

/// Sets a new deadline, and returns 1 if the old one had not passed, else 0.
const RENEW: &str = "WITH clock AS (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms), \
     before AS (SELECT deadline_ms FROM process_leases WHERE process = $1), \
     renewed AS (INSERT INTO process_leases (process, deadline_ms) SELECT $1, now_ms + $2 FROM clock \
     ON CONFLICT (process) DO UPDATE SET deadline_ms = excluded.deadline_ms) \
     SELECT CAST(CASE WHEN before.deadline_ms > now_ms THEN 1 ELSE 0 END AS BIGINT) \
     FROM clock LEFT JOIN before ON true";
const TRY_LOCK: &str =
    "SELECT CAST(CASE WHEN pg_try_advisory_lock($1) THEN 1 ELSE 0 END AS BIGINT)";
/// Returns a number of [`ProcessState`]. The lock is held for this statement only.
const STATE: &str = "SELECT CAST(CASE WHEN pg_try_advisory_xact_lock_shared($1) THEN 2 \
     WHEN EXISTS (SELECT 1 FROM process_leases WHERE process = $2 \
     AND deadline_ms <= CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)) THEN 1 ELSE 0 END AS BIGINT)";
const DELETE_OLD: &str = "DELETE FROM process_leases WHERE deadline_ms < \
     CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - $1 \
     AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.holder = process_leases.process AND runs.ended_ms IS NULL)";

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

    /// State of the process `name`.
    pub async fn state(&self, name: &str, pool: &AnyPool) -> Result<ProcessState, sqlx::Error> {
        let query = sqlx::query_scalar(STATE)
            .bind(key(name))
            .bind(name)
            .fetch_one(pool);
        let state: i64 = self.database.within(query).await?;
        Ok(match state {
            0 => ProcessState::Alive,
            1 => ProcessState::Silent,
            _ => ProcessState::Gone,
        })
    }
}

/// Key of the advisory lock of a process: the random half of its name.
fn key(name: &str) -> i64 {
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
            match tokio::time::timeout(RECONNECT_TIMEOUT, self.connected()).await {
                Ok(Ok(connection)) => self.renew_until_lost(connection).await,
                Ok(Err(error)) => self.failed(&error),
                Err(_) => self.failed(&sqlx::Error::PoolTimedOut),
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
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
        let deleted = sqlx::query(DELETE_OLD)
            .bind(millis(OLD_ROW))
            .execute(&mut connection.connection);
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

    /// Renews the lease over this connection until the connection is lost.
    async fn renew_until_lost(&self, mut connection: LeaseConnection) {
        loop {
            let renewed = self.renew(&mut connection);
            let renewed = tokio::time::timeout(RENEWAL_TIMEOUT, renewed).await;
            let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
            match renewed.unwrap_or_else(|_| late()) {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(
                        "the lease of this process had ended: other servers may have taken its runs over"
                    );
                    self.loss.note();
                }
                Err(error) if Outage::of(&error) == Some(Outage::ReadOnly) => self.failed(&error),
                Err(lost) => {
                    tracing::warn!(%lost, "the connection by which others know that this process lives was lost");
                    self.loss.note();
                    return;
                }
            }
            tokio::time::sleep(if connection.is_locked {
                RENEWAL_INTERVAL
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

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
