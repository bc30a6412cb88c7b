//! Where runs are kept: SQLite, one file in the state folder, or a PostgreSQL that several hosts share.

mod approvals;
mod audit;
mod change;
mod dialects;
mod error;
mod exported;
mod health;
mod journal;
mod keys;
mod process;
mod prune;
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
    CallRecord, Draft, Entry as AuditEntry, Filter as AuditFilter, Order as AuditOrder,
};
pub use dialects::{Dialects, Probed};
pub use error::{RecordError, StoreError};
pub use health::{Health, Trouble};
pub use journal::RunJournal;
pub use keys::{Permits, Scope};
pub use prune::{By, Over};
pub use repeats::Repeat;
pub use runs::{GoingOn, Label, Origin, RunRow, Source};
pub use sessions::{Session, now_ms};

use crate::redaction::Redaction;
use crate::storage::process::Process;
use crate::storage::writer::Writer;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::MigrateError;
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::log::LevelFilter;
use url::Url;
use uuid::Uuid;

/// Which database.
#[derive(Debug, Clone)]
pub enum Location {
    /// A SQLite file, made when there is none.
    File(PathBuf),
    /// `postgres://…`, with a password in it as like as not.
    Postgres(SecretString),
}

/// The database. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Store {
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

    fn runs(&self) -> std::sync::MutexGuard<'_, HashSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readers at the same time.
const CONNECTIONS: u32 = 8;
const ACQUIRE: Duration = Duration::from_secs(10);

/// Write-ahead logging lets readers read while one writes, in other processes, too.
const PRAGMAS: &str = "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA foreign_keys = ON;";

/// What a process holds that hangs is free again after a while.
const SESSION: &str = "SET idle_in_transaction_session_timeout = 60000";

impl Store {
    /// Opens the database, and brings its tables up to date. A run whose events cannot be written for
    /// `patience` stops, and can be resumed.
    ///
    /// # Errors
    /// There is no way to it, or another version of Toolhold wrote it.
    pub async fn open(location: &Location, patience: Duration) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let what = location.to_string();
        let failed = |source| StoreError::Open {
            what: what.clone(),
            source,
        };
        let is_file = matches!(location, Location::File(_));
        let options = location.options().map_err(failed)?;
        let pool = |connections| {
            AnyPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE)
                .after_connect(move |connection, _| {
                    Box::pin(async move {
                        let settings = if is_file { PRAGMAS } else { SESSION };
                        sqlx::raw_sql(settings).execute(connection).await?;
                        Ok(())
                    })
                })
                .connect_lazy_with(options.clone())
        };
        let (readers, writing) = (pool(CONNECTIONS), pool(1));
        let health = Health::default();
        // A pool would try again and again what cannot succeed.
        let first = async || -> Result<_, sqlx::Error> {
            let mut connection = AnyConnection::connect_with(&options).await?;
            if is_file {
                sqlx::raw_sql(PRAGMAS).execute(&mut connection).await?;
            }
            Ok(connection)
        };
        let process = match location {
            Location::File(path) => {
                let lock = prepare(path).await?;
                migrate(first().await.map_err(failed)?, &what).await?;
                drop(lock);
                Process::of_file(path.with_extension("processes"))?
            }
            Location::Postgres(_) => {
                migrate(first().await.map_err(failed)?, &what).await?;
                Process::of_server(&readers, health.clone()).await?
            }
        };
        Ok(Self {
            pool: readers,
            writer: Writer::start(writing, is_file, patience, health.clone()),
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

impl Location {
    fn options(&self) -> Result<AnyConnectOptions, sqlx::Error> {
        let wrong = |why: &str| sqlx::Error::Configuration(why.into());
        let url: Url = match self {
            Self::File(path) => {
                let path = std::path::absolute(path)?;
                let path = Url::from_file_path(path).map_err(|()| wrong("it is no path"))?;
                format!("sqlite://{}", path.path()).parse()
            }
            Self::Postgres(url) => {
                let url = url.expose_secret();
                if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
                    return Err(wrong("it is no postgres:// URL"));
                }
                url.parse()
            }
        }
        .map_err(|error: url::ParseError| sqlx::Error::Configuration(error.into()))?;
        // Statements hold what was said; nobody wants that in a log.
        Ok(AnyConnectOptions::from_url(&url)?
            .log_statements(LevelFilter::Off)
            .log_slow_statements(LevelFilter::Off, Duration::MAX))
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "the database {}", path.display()),
            Self::Postgres(url) => match Url::parse(url.expose_secret()) {
                Ok(url) => write!(
                    f,
                    "the database {} at {}",
                    url.path().trim_start_matches('/'),
                    url.host_str().unwrap_or("this machine")
                ),
                Err(_) => f.write_str("the database"),
            },
        }
    }
}
