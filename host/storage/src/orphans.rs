//! Runs of servers that are gone.

use crate::storage::database::InTime as _;
use crate::storage::error::StoreError;
use crate::storage::{Origin, Store, runs};
use uuid::Uuid;

/// A run of a server that is not over and that no process goes on with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Orphan {
    pub run: Uuid,
    /// Who went on with it last; absent if that one let go of it.
    pub holder: Option<String>,
}

/// Of each process that is gone, at a time. The others are found when these are over.
const MOST: i64 = 1_000;

impl Store {
    /// The runs of servers that are gone, the oldest of each first. What costs is the number of processes, and
    /// not of the runs that go on.
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
            // What a process holds that is here goes on, or is gone on with when the database recovers.
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
        .bind(MOST)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let orphan = |row| {
            let run = runs::id(row, "id")?;
            let holder = holder.clone();
            Ok(Orphan { run, holder })
        };
        let orphans: Result<_, sqlx::Error> = rows.iter().map(orphan).collect();
        Ok(orphans?)
    }
}
