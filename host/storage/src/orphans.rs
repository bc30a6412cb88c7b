//! Runs of servers that died or are frozen.

use crate::column::id;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::label::Origin;
use crate::process_lease::ProcessState;
use crate::store::Store;
use std::collections::HashMap;
use uuid::Uuid;

/// A run of a server that has not ended and whose holder does not work on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Orphan {
    /// The run.
    pub run: Uuid,
    /// The last holder of its lease; absent if it released the lease.
    pub holder: Option<String>,
    /// How the holder lost the run.
    pub loss: HolderLoss,
}

/// The result of one look for runs of dead and of frozen servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphans {
    /// The runs, oldest first for each server.
    pub runs: Vec<Orphan>,
    /// Deadlines of the leases of servers that hold open runs, in milliseconds of the clock of the database.
    /// A deadline that stays the same shows a server that renews its lease no more. Empty with SQLite.
    pub deadlines: HashMap<String, i64>,
}

/// How a server lost a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HolderLoss {
    /// The server died, lost its connection to the database, or released the run.
    Gone,
    /// The server is still connected and its lease has ended: it is frozen, or its machine without power.
    Silent,
}

/// Orphans returned for each such process. The next call finds the rest, once these have been taken.
const ORPHANS_PER_PROCESS: i64 = 1_000;

impl Store {
    /// The runs of dead and of frozen servers. The cost grows with the number of processes, and not with the number of
    /// open runs.
    pub async fn orphans(&self) -> Result<Orphans, StoreError> {
        let holders = self.holders().await?;
        let mut orphans = Orphans::default();
        for holder in holders {
            // Runs of living processes are worked on, or will be resumed after an outage.
            let state = match &holder {
                Some(name) => {
                    let looked = self.process.state_and_deadline(name, &self.pool).await?;
                    let (state, deadline) = looked;
                    if let Some(deadline) = deadline {
                        orphans.deadlines.insert(name.clone(), deadline);
                    }
                    state
                }
                None => ProcessState::Gone,
            };
            let loss = match state {
                ProcessState::Alive => continue,
                ProcessState::Silent => HolderLoss::Silent,
                ProcessState::Gone => HolderLoss::Gone,
            };
            orphans.runs.extend(self.left_by(holder, loss).await?);
        }
        Ok(orphans)
    }

    /// The servers that hold open runs, or did when the servers failed.
    async fn holders(&self) -> Result<Vec<Option<String>>, StoreError> {
        let holders = sqlx::query_scalar(
            "SELECT DISTINCT holder FROM runs WHERE origin = $1 AND ended_ms IS NULL",
        )
        .bind(Origin::Serve.name())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(holders)
    }

    async fn left_by(
        &self,
        holder: Option<String>,
        loss: HolderLoss,
    ) -> Result<Vec<Orphan>, StoreError> {
        let rows = sqlx::query(
            "SELECT id FROM runs WHERE origin = $1 AND ended_ms IS NULL \
             AND (holder = $2 OR (holder IS NULL AND $2 IS NULL)) ORDER BY id LIMIT $3",
        )
        .bind(Origin::Serve.name())
        .bind(holder.as_deref())
        .bind(ORPHANS_PER_PROCESS)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let orphan = |row| {
            let run = id(row, "id")?;
            let holder = holder.clone();
            Ok(Orphan { run, holder, loss })
        };
        let orphans: Result<_, sqlx::Error> = rows.iter().map(orphan).collect();
        Ok(orphans?)
    }
}
