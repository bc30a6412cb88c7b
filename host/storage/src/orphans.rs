//! Runs of servers that died.

use crate::column::id;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::label::Origin;
use crate::store::Store;
use uuid::Uuid;

/// A run of a server that has not ended and whose holder is dead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Orphan {
    /// The run.
    pub run: Uuid,
    /// The last holder of its lease; absent if it released the lease.
    pub holder: Option<String>,
}

/// Orphans returned for each dead process. The next call finds the rest, once these have been taken.
const ORPHANS_PER_PROCESS: i64 = 1_000;

impl Store {
    /// The runs of dead servers, oldest first for each. The cost grows with the number of processes, and not with the
    /// number of open runs.
    pub async fn orphans(&self) -> Result<Vec<Orphan>, StoreError> {
        let holders: Vec<Option<String>> = sqlx::query_scalar(
            "SELECT DISTINCT holder FROM runs WHERE origin = $1 AND ended_ms IS NULL",
        )
        .bind(Origin::Serve.name())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let mut orphans = Vec::new();
        for holder in holders {
            // Runs of living processes are worked on, or will be resumed after an outage.
            let lives = match &holder {
                Some(name) => self.process.is_alive(name, &self.pool).await?,
                None => false,
            };
            if !lives {
                orphans.extend(self.left_by(holder).await?);
            }
        }
        Ok(orphans)
    }

    async fn left_by(&self, holder: Option<String>) -> Result<Vec<Orphan>, StoreError> {
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
            Ok(Orphan { run, holder })
        };
        let orphans: Result<_, sqlx::Error> = rows.iter().map(orphan).collect();
        Ok(orphans?)
    }
}
