//! The store: opens the database and holds what all queries need.

use crate::audit_rows::AuditContent;
use crate::claims::ClaimedRuns;
use crate::database::{Database, InTime as _, Location};
use crate::error::StoreError;
use crate::health::{Health, Outage};
use crate::pages;
use crate::process::Process;
use crate::schema;
use crate::writer::{AuditLosses, Writer};
use sqlx::migrate::MigrateError;
use sqlx::{AnyPool, Connection as _};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;
use toolhold_admission::{SharedRead, own_work};
use toolhold_policy::redaction::Redaction;

/// The database, and this process' part in it. Clones share both.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) database: Database,
    /// Connections for queries; on PostgreSQL for transactions, too. On SQLite the writer runs these.
    pub(crate) pool: AnyPool,
    pub(crate) writer: Writer,
    pub(crate) process: Arc<Process>,
    pub(crate) health: Health,
    /// Runs with a journal in this process.
    pub(crate) claimed: ClaimedRuns,
    /// Runs that this process has promised to start for a request.
    pub(crate) promised: ClaimedRuns,
    /// Notified when this process records a decision about a call.
    pub(crate) decided: Arc<Notify>,
    /// What is copied from runs and calls into the audit log.
    pub(crate) content: AuditContent,
    /// The query whether there is a key; `None` if it failed.
    pub(crate) any_key: Arc<SharedRead<Option<bool>>>,
}

/// Connections of the pool: queries that run at the same time.
const POOL_CONNECTIONS: u32 = 8;
/// Attempts to migrate the schema beside servers that hold locks of its tables.
const MIGRATION_ATTEMPTS: u32 = 5;
const MIGRATION_RETRY_DELAY: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the database and migrates its schema. During an outage, writes are retried for `outage_timeout`; a run
    /// whose events cannot be written for that long stops, and can be resumed.
    ///
    /// # Errors
    /// The database cannot be reached, a newer version of Toolhold wrote it, or its encoding is not UTF-8.
    pub async fn open(location: &Location, outage_timeout: Duration) -> Result<Self, StoreError> {
        let what = location.to_string();
        let failed = |source| StoreError::Open {
            what: what.clone(),
            source,
        };
        let database = Database::of(location).map_err(failed)?;
        let readers = database.pool(POOL_CONNECTIONS);
        let health = Health::default();
        let process = match location {
            Location::File(path) => {
                let lock = prepare(path).await?;
                migrate(&database, &what).await?;
                drop(lock);
                Process::of_file(path.with_extension("processes"))?
            }
            Location::Postgres(_) => {
                migrate(&database, &what).await?;
                Process::of_server(&database, health.clone()).await?
            }
        };
        let calls = process.calls().cloned();
        let writer = Writer::start(database.clone(), outage_timeout, health.clone(), calls);
        let store = Self {
            pool: readers,
            writer: writer.map_err(|error| failed(error.into()))?,
            database,
            process: Arc::new(process),
            health,
            claimed: ClaimedRuns::default(),
            promised: ClaimedRuns::default(),
            decided: Arc::default(),
            content: AuditContent::default(),
            any_key: Arc::default(),
        };
        match store.redact_older_rows().await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "texts of memory were redacted in the audit log"),
            // The next store that opens goes on with it.
            Err(error) => {
                tracing::warn!(%error, "the audit log may still have texts of memory");
            }
        }
        if let Err(error) = store.audit_left_in_files().await {
            // Who reads the log tries it again.
            tracing::warn!(%error, "calls that were interrupted may be missing in the audit log");
        }
        Ok(store)
    }

    /// Asks the database for a row, to see whether it answers. Returns false if it was not asked, because others have all
    /// connections: that is no outage. Whether the database answers them is seen by the lease of the process on PostgreSQL,
    /// which has a connection of its own.
    ///
    /// # Errors
    /// The database failed, or did not answer within `longest`.
    pub async fn probe(&self, longest: Duration) -> Result<bool, StoreError> {
        let silent = || StoreError::Outage(Outage::Unreachable);
        let mut connection = match timeout(longest, self.pool.acquire()).await {
            Ok(acquired) => acquired?,
            Err(_) if self.is_busy() => return Ok(false),
            Err(_) => return Err(silent()),
        };
        let asked = sqlx::query("SELECT name FROM keys LIMIT 1").fetch_optional(&mut *connection);
        let answered = timeout(longest, asked).await;
        answered.map_err(|_| silent())??;
        Ok(true)
    }

    /// Whether queries have all connections of the pool.
    fn is_busy(&self) -> bool {
        self.pool.size() >= POOL_CONNECTIONS && self.pool.num_idle() == 0
    }

    /// Whether the database works at present.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Fails fast during an outage, without a query.
    ///
    /// # Errors
    /// The last use of the database found that it cannot be read.
    pub fn readable(&self) -> Result<(), StoreError> {
        match self.health.outage() {
            Some(Outage::Unreachable) => Err(StoreError::Outage(Outage::Unreachable)),
            Some(Outage::ReadOnly) | None => Ok(()),
        }
    }

    /// Fails fast during an outage, without a query.
    ///
    /// # Errors
    /// The last use of the database found that it cannot be written.
    pub fn writable(&self) -> Result<(), StoreError> {
        let outage = self.health.outage();
        outage.map_or(Ok(()), |outage| Err(StoreError::Outage(outage)))
    }

    /// What the audit log keeps of calls, redacted.
    pub fn keeping(mut self, content: AuditContent) -> Self {
        self.content = content;
        self
    }

    /// What the audit log keeps of calls.
    pub fn content(&self) -> &AuditContent {
        &self.content
    }

    /// Audit rows of this process that could not be written so far.
    pub fn audit_losses(&self) -> AuditLosses {
        self.writer.audit_losses()
    }

    /// The redaction of the audit log.
    pub fn redaction(&self) -> &Redaction {
        &self.content.redaction
    }
}

/// Creates the folder and the file, readable by their owner alone (0600): they hold all conversations. SQLite gives
/// the files that it creates beside it the same mode. The returned lock keeps two processes that start at the same
/// time from creating the same tables.
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
    let lock = own_work(made).await.map_err(io::Error::from);
    lock.flatten()
        .map_err(|source| StoreError::Folder { path, source })
}

async fn migrate(database: &Database, what: &str) -> Result<(), StoreError> {
    let failed = |source| StoreError::Open {
        what: what.to_owned(),
        source,
    };
    let mut connection = database.connect().await.map_err(failed)?;
    if !database.is_file() {
        let encoding: String = sqlx::query_scalar("SELECT current_setting('server_encoding')")
            .fetch_one(&mut connection)
            .in_time(database)
            .await
            .map_err(failed)?;
        if encoding != "UTF8" {
            return Err(StoreError::Encoding {
                what: what.to_owned(),
                encoding,
            });
        }
    }
    if database.is_file() {
        pages::prepare_new(&mut connection).await.map_err(failed)?;
    }
    let migrator = schema::migrator(database.is_file());
    let mut attempts = 1;
    loop {
        let migrated = migrator.run(&mut connection).await;
        // Also after an error: the lock of a migrator that failed is one of its connection.
        let closed = connection.close().await;
        match migrated.and(closed.map_err(MigrateError::Execute)) {
            Ok(()) => return Ok(()),
            Err(MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) => {
                if attempts >= MIGRATION_ATTEMPTS || !is_lock_conflict(&source) {
                    return Err(failed(source));
                }
                tracing::warn!(error = %source, "the schema cannot be migrated yet");
            }
            Err(source) => {
                if let MigrateError::VersionMissing(migration) = source {
                    schema::refuse_newer(what, migration)?;
                }
                return Err(StoreError::Version {
                    what: what.to_owned(),
                    source,
                });
            }
        }
        attempts += 1;
        tokio::time::sleep(MIGRATION_RETRY_DELAY).await;
        connection = database.connect().await.map_err(failed)?;
    }
}

/// True for an error of PostgreSQL that says that a lock was not had because of another transaction, such as one of a
/// running server: `deadlock_detected` and `lock_not_available`.
fn is_lock_conflict(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| is_lock_state(&code))
}

fn is_lock_state(code: &str) -> bool {
    matches!(code, "40P01" | "55P03")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_pool_is_no_outage() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let long = Duration::from_secs(30);
        let store = Store::open(&location, long).await.unwrap();
        assert!(store.probe(long).await.unwrap());
        let mut taken = Vec::new();
        for _ in 0..POOL_CONNECTIONS {
            taken.push(store.pool.acquire().await.unwrap());
        }
        assert!(!store.probe(Duration::from_millis(50)).await.unwrap());
        drop(taken);
        assert!(store.probe(long).await.unwrap());
        sqlx::query("DROP TABLE keys")
            .execute(&store.pool)
            .await
            .unwrap();
        let failed = store.probe(long).await.unwrap_err();
        assert_eq!(failed.outage(), None, "{failed}");
    }

    #[test]
    fn a_migration_is_tried_again_after_a_conflict_of_locks() {
        for (code, expected) in [
            ("40P01", true),
            ("55P03", true),
            ("42P07", false),
            ("57P01", false),
            ("5", false),
        ] {
            assert_eq!(is_lock_state(code), expected, "{code}");
        }
        assert!(!is_lock_conflict(&sqlx::Error::PoolTimedOut));
    }
}
