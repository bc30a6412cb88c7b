//! Processes that hold leases of runs, and whether they live. Each process holds a lock that the operating system or
//! the database server frees when the process dies, so its leases are free at once and need no timeout.

use crate::database::Database;
use crate::error::StoreError;
use crate::health::{Health, Outage};
use sqlx::{AnyConnection, AnyPool, Connection as _};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use toolhold_files::{LivenessFile, lives};
use uuid::Uuid;

/// This process, under the name that `runs.holder` has for it.
#[derive(Debug)]
pub struct Process {
    name: String,
    presence: LivenessLock,
}

/// The lock that shows that the process lives.
#[derive(Debug)]
enum LivenessLock {
    /// SQLite: a locked file in a folder beside the database.
    File { folder: PathBuf, _own: LivenessFile },
    /// PostgreSQL: an advisory lock, held by a connection of its own.
    Advisory {
        _held: AbortOnDropHandle<()>,
        /// The connection was lost at some time: other processes may have taken this one for dead.
        was_lost: Arc<AtomicBool>,
        database: Database,
    },
}

impl Process {
    /// A process that works on a SQLite file; `folder` holds the lock files.
    pub fn of_file(folder: PathBuf) -> Result<Self, StoreError> {
        let name = Uuid::now_v7().to_string();
        let made = LivenessFile::create(&folder, &name);
        let own = made.map_err(|source| StoreError::Folder {
            path: folder.clone(),
            source,
        })?;
        let presence = LivenessLock::File { folder, _own: own };
        Ok(Self { name, presence })
    }

    /// A process that works on a PostgreSQL database.
    pub async fn of_server(
        database: &Database,
        pool: &AnyPool,
        health: Health,
    ) -> Result<Self, StoreError> {
        let name = Uuid::now_v7().to_string();
        let (ready, is_ready) = oneshot::channel();
        let was_lost = Arc::<AtomicBool>::default();
        let lock = Lock {
            database: database.clone(),
            pool: pool.clone(),
            key: key(&name),
            health,
            was_lost: was_lost.clone(),
        };
        let held = AbortOnDropHandle::new(tokio::spawn(lock.hold(ready)));
        match is_ready.await {
            Ok(Err(source)) => Err(source.into()),
            Ok(Ok(())) => Ok(Self {
                name,
                presence: LivenessLock::Advisory {
                    _held: held,
                    was_lost,
                    database: database.clone(),
                },
            }),
            Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
        }
    }

    /// Whether other processes may have taken over runs of this one.
    pub fn was_lost(&self) -> bool {
        match &self.presence {
            LivenessLock::File { .. } => false,
            LivenessLock::Advisory { was_lost, .. } => was_lost.load(Ordering::Relaxed),
        }
    }

    /// Unique among all processes of all time.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the process of that name lives.
    pub async fn is_alive(&self, name: &str, pool: &AnyPool) -> Result<bool, StoreError> {
        if name == self.name {
            return Ok(true);
        }
        match &self.presence {
            LivenessLock::File { folder, .. } => Ok(lives(folder, name)),
            LivenessLock::Advisory { database, .. } => {
                // The lock is held for this statement only.
                let query = sqlx::query_scalar(
                    "SELECT CASE WHEN pg_try_advisory_xact_lock_shared($1) THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END",
                )
                .bind(key(name))
                .fetch_one(pool);
                let free: i64 = database.within(query).await?;
                Ok(free == 0)
            }
        }
    }
}

/// The key of the advisory lock: the random half of the name.
fn key(name: &str) -> i64 {
    let id = Uuid::parse_str(name).unwrap_or_default();
    id.as_u64_pair().1.cast_signed()
}

/// Time between two pings of the connection that holds the lock.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the reply to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before the next attempt to take the lock again. Constant: a server that comes back must see us at once.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Longest wait for another connection after the first was lost, before that counts as an outage.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The process' advisory lock. The server frees it with the connection that took it.
struct Lock {
    database: Database,
    pool: AnyPool,
    key: i64,
    health: Health,
    was_lost: Arc<AtomicBool>,
}

impl Lock {
    /// Holds the lock, and takes it again after the connection was lost. `ready` gets the result of the first attempt.
    async fn hold(self, ready: oneshot::Sender<Result<(), sqlx::Error>>) {
        let mut ready = Some(ready);
        loop {
            let timeout = if ready.is_some() {
                Duration::MAX
            } else {
                RECONNECT_TIMEOUT
            };
            match self.take(timeout).await {
                Ok(connection) => {
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Ok(()));
                    }
                    let lost = watch(connection).await;
                    self.was_lost.store(true, Ordering::Relaxed);
                    tracing::warn!(%lost, "the connection by which others know that this process lives was lost");
                    continue;
                }
                Err(error) => {
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Err(error));
                        return;
                    }
                    if let Some(outage) = Outage::of(&error) {
                        self.health.failed(outage, &error);
                    }
                }
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Takes the lock on a new connection. While the server still takes the lost connection for alive, this waits, and
    /// other processes still see us alive. The server ends such a connection before this gives up (see
    /// `tcp_keepalives_*` in `database.rs`).
    async fn take(&self, timeout: Duration) -> Result<AnyConnection, sqlx::Error> {
        let acquired = tokio::time::timeout(timeout, self.pool.acquire()).await;
        let mut connection = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))?.detach();
        let locked = sqlx::query("SELECT CAST(1 AS BIGINT) FROM pg_advisory_lock($1)")
            .bind(self.key)
            .fetch_one(&mut connection);
        self.database.within(locked).await?;
        Ok(connection)
    }
}

/// Waits until the connection is lost, and returns why.
async fn watch(mut connection: AnyConnection) -> sqlx::Error {
    loop {
        match tokio::time::timeout(PING_TIMEOUT, connection.ping()).await {
            Ok(Ok(())) => tokio::time::sleep(PING_INTERVAL).await,
            Ok(Err(error)) => return error,
            Err(_) => return io::Error::from(io::ErrorKind::TimedOut).into(),
        }
    }
}
