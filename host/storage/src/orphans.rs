//! Runs of servers that died or are frozen.

use crate::column::id;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::label::Origin;
use crate::process_lease::ProcessState;
use crate::store::Store;
use std::collections::HashSet;
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
    /// The runs of dead and of frozen servers, oldest first for each. The cost grows with the number of processes, and
    /// not with the number of open runs.
    pub async fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        let holders = self.holders().await?;
        let mut orphans = Vec::new();
        for holder in holders {
            // Runs of living processes are worked on, or will be resumed after an outage.
            let state = match &holder {
                Some(name) => self.process.state(name, &self.pool).await?,
                None => ProcessState::Gone,
            };
            let loss = match state {
                ProcessState::Alive => continue,
                ProcessState::Silent => HolderLoss::Silent,
                ProcessState::Gone => HolderLoss::Gone,
            };
            orphans.extend(self.left_by(holder, loss).await?);
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

    /// The servers among the holders of open runs whose lease has ended and that are still connected.
    pub(crate) async fn silent_holders(&self) -> Result<HashSet<String>, StoreError> {
        let mut silent = HashSet::new();
        for name in self.holders().await?.into_iter().flatten() {
            if self.process.state(&name, &self.pool).await? == ProcessState::Silent {
                silent.insert(name);
            }
        }
        Ok(silent)
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
