//! Processes that hold leases of runs, and whether they live. Each process holds a lock that the operating system or
//! the database server frees when the process dies, so its leases are free at once. On PostgreSQL it has a lease with a
//! deadline, too, because a lock alone does not show that a process on another machine is frozen.

use crate::calls_file::CallsFile;
use crate::database::Database;
use crate::error::StoreError;
use crate::health::Health;
use crate::process_lease::{ProcessLease, ProcessState};
use sqlx::AnyPool;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toolhold_files::{LivenessFile, lives};
use uuid::Uuid;

/// This process, under the name that `runs.holder` has for it.
#[derive(Debug)]
pub struct Process {
    name: String,
    presence: Presence,
}

/// Shows other processes that this one lives.
#[derive(Debug)]
enum Presence {
    /// A locked file in a folder beside the database: SQLite.
    File {
        folder: PathBuf,
        calls: Arc<CallsFile>,
        _own: LivenessFile,
    },
    /// A lease in the database: PostgreSQL.
    Lease(ProcessLease),
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
        let presence = Presence::File {
            calls: Arc::new(CallsFile::of(&folder, &name)),
            folder,
            _own: own,
        };
        Ok(Self { name, presence })
    }

    /// A process that works on a PostgreSQL database.
    pub async fn of_server(database: &Database, health: Health) -> Result<Self, StoreError> {
        let name = Uuid::now_v7().to_string();
        let lease = ProcessLease::take(&name, database, health).await?;
        let presence = Presence::Lease(lease);
        Ok(Self { name, presence })
    }

    /// The lease in the database; `None` for SQLite.
    pub fn lease(&self) -> Option<&ProcessLease> {
        match &self.presence {
            Presence::File { .. } => None,
            Presence::Lease(lease) => Some(lease),
        }
    }

    /// The calls of no run that this process has begun; `None` for PostgreSQL, which has them in a table.
    pub fn calls(&self) -> Option<&Arc<CallsFile>> {
        match &self.presence {
            Presence::File { calls, .. } => Some(calls),
            Presence::Lease(_) => None,
        }
    }

    /// The folder with the files of processes; `None` for PostgreSQL.
    pub fn folder(&self) -> Option<&Path> {
        match &self.presence {
            Presence::File { folder, .. } => Some(folder),
            Presence::Lease(_) => None,
        }
    }

    /// Unique among all processes of all time.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// State of the process of that name.
    pub async fn state(&self, name: &str, pool: &AnyPool) -> Result<ProcessState, StoreError> {
        if name == self.name {
            return Ok(ProcessState::Alive);
        }
        match &self.presence {
            Presence::File { folder, .. } if lives(folder, name) => Ok(ProcessState::Alive),
            Presence::File { .. } => Ok(ProcessState::Gone),
            Presence::Lease(lease) => Ok(lease.look(name, pool).await?.state()),
        }
    }

    /// True if the process of that name keeps what it leased, such as runs. False for one that is frozen: its writes to
    /// what another process takes are refused.
    pub async fn keeps_leases(&self, name: &str, pool: &AnyPool) -> Result<bool, StoreError> {
        Ok(self.state(name, pool).await? == ProcessState::Alive)
    }

    /// State of the process of that name, and the deadline of its lease where it has one.
    pub async fn state_and_deadline(
        &self,
        name: &str,
        pool: &AnyPool,
    ) -> Result<(ProcessState, Option<i64>), StoreError> {
        match &self.presence {
            Presence::Lease(lease) if name != self.name => {
                let look = lease.look(name, pool).await?;
                Ok((look.state(), look.deadline_ms))
            }
            _ => Ok((self.state(name, pool).await?, None)),
        }
    }

    /// True if the process of that name has ended. False for one that is frozen, or lost its connection a short time
    /// ago: it may still end what it began.
    pub async fn is_dead(&self, name: &str, pool: &AnyPool) -> Result<bool, StoreError> {
        match &self.presence {
            Presence::Lease(lease) if name != self.name => {
                Ok(lease.look(name, pool).await?.is_dead())
            }
            _ => Ok(self.state(name, pool).await? == ProcessState::Gone),
        }
    }
}
