//! Where runs are kept: SQLite, one file in the state folder, or a PostgreSQL that several hosts share.

mod approvals;
mod audit;
mod change;
mod database;
mod dialects;
mod error;
mod exported;
mod health;
mod holding;
mod journal;
mod keys;
mod orphans;
mod process;
mod prune;
mod record;
mod repeats;
mod responses;
mod runs;
mod schema;
mod sessions;
mod waiting;
mod writer;

#[cfg(test)]
mod audit_tests;
#[cfg(test)]
mod prune_tests;
#[cfg(test)]
mod queries_tests;
#[cfg(test)]
mod tests;

pub use approvals::Waiting;
pub use audit::{
    CallRecord, Draft, Entry as AuditEntry, Filter as AuditFilter, Order as AuditOrder, Until,
};
pub use database::Location;
pub use dialects::{Dialects, Probed};
pub use error::{RecordError, StoreError};
pub use health::{Health, Trouble};
pub use holding::GoingOn;
pub use journal::RunJournal;
pub use keys::{Permits, Scope};
pub use orphans::Orphan;
pub use prune::{By, Over};
pub use record::Source;
pub use repeats::Repeat;
pub use runs::{Label, Origin, RunRow};
pub use sessions::{Session, now_ms};

use crate::redaction::Redaction;
use crate::storage::database::Database;
use crate::storage::process::Process;
use crate::storage::writer::Writer;
use sqlx::migrate::MigrateError;
use sqlx::{AnyConnection, AnyPool, Connection as _};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use uuid::Uuid;

/// The database. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    pool: AnyPool,
    writer: Writer,
    process: Arc<Process>,
    health: Health,
    /// Runs that this process goes on with.
    mine: Mine,
    /// Runs that this process has promised to begin.
    promised: Mine,
    /// Told when a call was decided about here.
    decided: Arc<Notify>,
    /// For what is copied from runs into the audit log.
    redaction: Redaction,
}

/// Which runs have a journal in this process: a row that names it may be of one that could not be released.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mine(Arc<Mutex<HashSet<Uuid>>>);

impl Mine {
    fn has(&self, run: Uuid) -> bool {
        self.runs().contains(&run)
    }

    /// Unless somebody in this process has it.
    fn hold(&self, run: Uuid) -> Option<Hold> {
        let is_free = self.runs().insert(run);
        is_free.then(|| Hold {
            mine: self.clone(),
            run,
        })
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, HashSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of this process, until this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    mine: Mine,
    run: Uuid,
}

impl Hold {
    fn id(&self) -> Uuid {
        self.run
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.mine.runs().remove(&self.run);
    }
}

/// Readers at the same time.
const CONNECTIONS: u32 = 8;

impl Store {
    /// Opens the database, and brings its tables up to date. A run whose events cannot be written for
    /// `patience` stops, and can be resumed.
    ///
    /// # Errors
    /// There is no way to it, or another version of Toolhold wrote it.
    pub async fn open(location: &Location, patience: Duration) -> Result<Self, StoreError> {
        let what = location.to_string();
        let failed = |source| StoreError::Open {
            what: what.clone(),
            source,
        };
        let database = Database::of(location).map_err(failed)?;
        let readers = database.pool(CONNECTIONS);
        let health = Health::default();
        let process = match location {
            Location::File(path) => {
                let lock = prepare(path).await?;
                migrate(database.connect().await.map_err(failed)?, &what).await?;
                drop(lock);
                Process::of_file(path.with_extension("processes"))?
            }
            Location::Postgres(_) => {
                migrate(database.connect().await.map_err(failed)?, &what).await?;
                Process::of_server(&database, &readers, health.clone()).await?
            }
        };
        Ok(Self {
            pool: readers,
            writer: Writer::start(database.clone(), patience, health.clone()),
            database,
            process: Arc::new(process),
            health,
            mine: Mine::default(),
            promised: Mine::default(),
            decided: Arc::default(),
            redaction: Redaction::default(),
        })
    }

    pub fn health(&self) -> &Health {
        &self.health
    }

    /// # Errors
    /// Nothing can be read just now, as is known without trying.
    pub fn readable(&self) -> Result<(), StoreError> {
        match self.health.trouble() {
            Some(Trouble::Away) => Err(StoreError::Trouble(Trouble::Away)),
            Some(Trouble::Full) | None => Ok(()),
        }
    }

    /// # Errors
    /// Nothing can be written just now, as is known without trying.
    pub fn writable(&self) -> Result<(), StoreError> {
        let trouble = self.health.trouble();
        trouble.map_or(Ok(()), |trouble| Err(StoreError::Trouble(trouble)))
    }

    /// Nothing of what this takes out gets into the audit log.
    pub fn redacting(mut self, redaction: Redaction) -> Self {
        self.redaction = redaction;
        self
    }

    /// What is taken out of the audit log.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }
}

/// The folder and the file, readable by their owner alone: they hold everything that was said. SQLite gives
/// the files that it makes beside it the same mode. The lock that is returned keeps two processes that start
/// at the same time from making the same tables.
async fn prepare(path: &Path) -> Result<File, StoreError> {
    let path = path.to_owned();
    let made = {
        let path = path.clone();
        move || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut options = File::options();
            options.create(true).append(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            options.open(&path)?;
            let lock = options.open(path.with_extension("lock"))?;
            lock.lock()?;
            Ok(lock)
        }
    };
    let lock = tokio::task::spawn_blocking(made)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    lock.map_err(|source| StoreError::Folder { path, source })
}

async fn migrate(mut connection: AnyConnection, what: &str) -> Result<(), StoreError> {
    let migrated = schema::migrator().run(&mut connection).await;
    let closed = connection.close().await;
    migrated
        .and(closed.map_err(MigrateError::Execute))
        .map_err(|error| match error {
            MigrateError::Execute(source) => StoreError::Open {
                what: what.to_owned(),
                source,
            },
            source => StoreError::Version {
                what: what.to_owned(),
                source,
            },
        })
}
