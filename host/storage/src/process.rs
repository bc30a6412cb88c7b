//! Which process goes on with a run, and whether it lives. What a process holds is free again as soon as
//! it is gone, however it went: nothing has to time out.

use crate::storage::database::Database;
use crate::storage::error::StoreError;
use crate::storage::health::{Health, Trouble};
use sqlx::{AnyConnection, AnyPool, Connection as _};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// This process, as it is named in `runs.holder`.
#[derive(Debug)]
pub struct Process {
    name: String,
    presence: Presence,
}

/// What is there for as long as the process is.
#[derive(Debug)]
enum Presence {
    /// A locked file in a folder beside the database.
    File {
        folder: PathBuf,
        path: PathBuf,
        _lock: File,
    },
    /// An advisory lock of the server, held by a connection of its own.
    Advisory {
        _held: AbortOnDropHandle<()>,
        /// It was gone for a while, in which others may have taken this process for dead.
        was_lost: Arc<AtomicBool>,
        database: Database,
    },
}

impl Process {
    pub fn of_file(folder: PathBuf) -> Result<Self, StoreError> {
        let name = Uuid::now_v7().to_string();
        let made = || {
            std::fs::create_dir_all(&folder)?;
            sweep(&folder);
            // Locked before it has its name, so that nobody takes it for what a dead process left.
            let beginning = folder.join(&name);
            let lock = File::create_new(&beginning)?;
            lock.try_lock().map_err(io::Error::from)?;
            let path = lock_file(&folder, &name);
            std::fs::rename(&beginning, &path)?;
            Ok((path, lock))
        };
        let (path, lock) = made().map_err(|source| StoreError::Folder {
            path: folder.clone(),
            source,
        })?;
        let presence = Presence::File {
            folder,
            path,
            _lock: lock,
        };
        Ok(Self { name, presence })
    }

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
                presence: Presence::Advisory {
                    _held: held,
                    was_lost,
                    database: database.clone(),
                },
            }),
            Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
        }
    }

    /// Whether another process may have taken over what this one goes on with.
    pub fn was_lost(&self) -> bool {
        match &self.presence {
            Presence::File { .. } => false,
            Presence::Advisory { was_lost, .. } => was_lost.load(Ordering::Relaxed),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the process of that name is there.
    pub async fn is_alive(&self, name: &str, pool: &AnyPool) -> Result<bool, StoreError> {
        if name == self.name {
            return Ok(true);
        }
        match &self.presence {
            Presence::File { folder, .. } => Ok(is_locked(&lock_file(folder, name))),
            Presence::Advisory { database, .. } => {
                // For the length of this statement only.
                let look = sqlx::query_scalar(
                    "SELECT CASE WHEN pg_try_advisory_xact_lock_shared($1) THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END",
                )
                .bind(key(name))
                .fetch_one(pool);
                let free: i64 = database.within(look).await?;
                Ok(free == 0)
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Presence::File { path, .. } = &self.presence {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn lock_file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.lock"))
}

fn is_locked(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        // One that nobody here may look at is another user's, and nothing says that it is gone.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes what processes left that were killed.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "lock")
            && !is_locked(&path)
        {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// The random half of the name.
fn key(name: &str) -> i64 {
    let id = Uuid::parse_str(name).unwrap_or_default();
    id.as_u64_pair().1.cast_signed()
}

/// Between two looks whether the connection that holds the lock is still there.
const LOOKS: Duration = Duration::from_secs(1);
const RETRIES: Duration = Duration::from_millis(500);
/// For an answer to such a look.
const ANSWER: Duration = Duration::from_secs(10);
/// For another connection when that one is gone, before the server is taken for away.
const SOON: Duration = Duration::from_secs(1);

/// Of the server, for as long as the connection that took it.
struct Lock {
    database: Database,
    pool: AnyPool,
    key: i64,
    health: Health,
    was_lost: Arc<AtomicBool>,
}

impl Lock {
    /// Holds it, and takes it again when the server was gone.
    async fn hold(self, ready: oneshot::Sender<Result<(), sqlx::Error>>) {
        let mut ready = Some(ready);
        loop {
            let patience = if ready.is_some() { Duration::MAX } else { SOON };
            match self.take(patience).await {
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
                    if let Some(trouble) = Trouble::of(&error) {
                        self.health.failed(trouble, &error);
                    }
                }
            }
            tokio::time::sleep(RETRIES).await;
        }
    }

    /// Waits for a connection of ours that the server takes for alive: until then others do so, too. The server
    /// ends a session whose other end is gone before this gives up.
    async fn take(&self, patience: Duration) -> Result<AnyConnection, sqlx::Error> {
        let acquired = tokio::time::timeout(patience, self.pool.acquire()).await;
        let mut connection = acquired.unwrap_or(Err(sqlx::Error::PoolTimedOut))?.detach();
        let locked = sqlx::query("SELECT CAST(1 AS BIGINT) FROM pg_advisory_lock($1)")
            .bind(self.key)
            .fetch_one(&mut connection);
        self.database.within(locked).await?;
        Ok(connection)
    }
}

/// Waits until the connection is gone, and why.
async fn watch(mut connection: AnyConnection) -> sqlx::Error {
    loop {
        match tokio::time::timeout(ANSWER, connection.ping()).await {
            Ok(Ok(())) => tokio::time::sleep(LOOKS).await,
            Ok(Err(error)) => return error,
            Err(_) => return io::Error::from(io::ErrorKind::TimedOut).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_locks_is_of_a_dead_process() {
        let folder = tempfile::tempdir().unwrap();
        let living = Process::of_file(folder.path().to_owned()).unwrap();
        assert!(is_locked(&lock_file(folder.path(), living.name())));
        let dead = lock_file(folder.path(), "dead");
        std::fs::write(&dead, "").unwrap();
        assert!(!is_locked(&dead));
        let unseen = lock_file(&dead, "unseen");
        assert!(is_locked(&unseen), "it cannot be looked at");
        let other = Process::of_file(folder.path().to_owned()).unwrap();
        assert!(!dead.exists(), "swept");
        let path = lock_file(folder.path(), living.name());
        assert!(path.exists(), "and the living left alone");
        drop((living, other));
        assert!(!path.exists());
    }
}
