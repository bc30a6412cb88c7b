//! Leases of runs: the process that works on a run holds its lease, and a run whose holder died can be taken.

use crate::audit_rows::RunAudit;
use crate::change::Change;
use crate::column::{id, signed};
use crate::database::InTime as _;
use crate::error::{RecordError, StoreError};
use crate::journal::RunJournal;
use crate::label::{Label, Origin};
use crate::record::Source;
use crate::runs::{LISTED, RunRow};
use crate::store::Store;
use crate::time::now_ms;
use toolhold_protocol::event::Event;
use uuid::Uuid;

/// The state of a run's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// A living process works on the run.
    Held,
    /// The run has not ended, and no process works on it.
    Free,
    /// The run has ended, or does not exist.
    Ended,
}

impl Store {
    /// The journal of a new run, whose lease this process gets with the first event.
    pub fn journal(&self, run: Uuid, label: Label) -> RunJournal {
        RunJournal::begin(
            run,
            label,
            self.writer.clone(),
            self.process.name(),
            self.claimed.claim(run),
            self.content.clone(),
        )
    }

    /// Takes the lease of a run: returns its journal and its events so far.
    ///
    /// # Errors
    /// [`RecordError::Held`] if a process works on the run, [`RecordError::Over`] if the run has ended.
    pub async fn reopen(&self, run: Uuid) -> Result<(RunJournal, Vec<Event>), RecordError> {
        let Some(claim) = self.claimed.claim(run) else {
            return Err(RecordError::Held);
        };
        // Events of the run that this process wrote and the database lost in a crash.
        self.writer.catch_up().await.map_err(sqlx::Error::Io)?;
        let before = self.holder(run).await?;
        if self.lives_elsewhere(before.as_deref()).await? {
            return Err(RecordError::Held);
        }
        // Conditional on the old holder, because another process may take the run at the same time.
        let taken: Result<Option<String>, sqlx::Error> = sqlx::query_scalar(
            "UPDATE runs SET holder = $2 WHERE id = $1 AND (holder = $3 OR (holder IS NULL AND $3 IS NULL)) \
             AND ended_ms IS NULL RETURNING owner",
        )
        .bind(run.to_string())
        .bind(self.process.name())
        .bind(before)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await;
        let owner = match taken {
            Ok(Some(owner)) => owner,
            Ok(None) => {
                let row = self.run(run).await?;
                return Err(match row.and_then(|row| row.ended) {
                    Some(_) => RecordError::Over { run },
                    None => RecordError::Held,
                });
            }
            Err(error) => {
                // If only the reply was lost, we hold the lease and must give it back.
                let holder = self.process.name().to_owned();
                self.writer.note(Change::Released { run: claim, holder });
                return Err(error.into());
            }
        };
        let events = self.read(&Source::Run(run)).await;
        let known = events.as_deref().unwrap_or_default();
        // Created even if reading failed: dropping it releases the lease.
        let audit = RunAudit::new(run, &owner, self.content.clone());
        let journal = RunJournal::after(
            run,
            known,
            self.writer.clone(),
            self.process.name(),
            Some(claim),
            audit,
        );
        Ok((journal, events?))
    }

    /// The state of a run's lease.
    pub async fn lease_state(&self, run: Uuid) -> Result<LeaseState, StoreError> {
        let holder: Option<Option<String>> =
            sqlx::query_scalar("SELECT holder FROM runs WHERE id = $1 AND ended_ms IS NULL")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        let Some(holder) = holder else {
            return Ok(LeaseState::Ended);
        };
        let is_held = match holder.as_deref() {
            Some(name) if name == self.process.name() => self.claimed.contains(run),
            holder => self.lives_elsewhere(holder).await?,
        };
        Ok(if is_held {
            LeaseState::Held
        } else {
            LeaseState::Free
        })
    }

    /// Whether a living process works on the run.
    pub async fn is_held(&self, run: Uuid) -> Result<bool, StoreError> {
        Ok(self.lease_state(run).await? == LeaseState::Held)
    }

    /// Runs of servers that have not ended and whose lease is free, oldest first.
    pub async fn resumable(&self) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows(
            "origin = $1 AND ended_ms IS NULL ORDER BY id",
            Origin::Serve.name(),
        );
        Ok(rows.await?.into_iter().filter(|run| !run.is_held).collect())
    }

    /// Those runs of [`Self::resumable`] that this process gave up during an outage.
    pub async fn resumable_here(&self) -> Result<Vec<RunRow>, StoreError> {
        let statement = format!(
            "{LISTED} WHERE origin = $1 AND ended_ms IS NULL AND (holder IS NULL OR holder = $2) ORDER BY id"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(Origin::Serve.name())
            .bind(self.process.name())
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let rows = self.listed(&rows).await?;
        Ok(rows.into_iter().filter(|run| !run.is_held).collect())
    }

    /// Those of `runs`, which this process works on, whose lease another process has taken because it took this process
    /// for dead.
    pub async fn taken_over(&self, runs: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let mut taken = Vec::new();
        if !self.process.was_lost() {
            return Ok(taken);
        }
        for run in runs {
            let is_taken: Option<i64> = sqlx::query_scalar(
                "SELECT CAST(1 AS BIGINT) FROM runs WHERE id = $1 AND holder <> $2 AND ended_ms IS NULL",
            )
            .bind(run.to_string())
            .bind(self.process.name())
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
            if is_taken.is_some() {
                taken.push(*run);
            }
        }
        Ok(taken)
    }

    /// Asks the process that works on a run to cancel it.
    pub async fn request_cancellation(&self, run: Uuid) -> Result<(), StoreError> {
        sqlx::query("UPDATE runs SET cancel_ms = $2 WHERE id = $1 AND ended_ms IS NULL")
            .bind(run.to_string())
            .bind(signed(now_ms()))
            .execute(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(())
    }

    /// Runs of this process that were asked to be cancelled.
    pub async fn requested_cancellations(&self) -> Result<Vec<Uuid>, StoreError> {
        let rows = sqlx::query(
            "SELECT id FROM runs WHERE holder = $1 AND cancel_ms IS NOT NULL AND ended_ms IS NULL",
        )
        .bind(self.process.name())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let runs: Result<_, sqlx::Error> = rows.iter().map(|row| id(row, "id")).collect();
        Ok(runs?)
    }

    /// Whether `holder` is another process that lives.
    async fn lives_elsewhere(&self, holder: Option<&str>) -> Result<bool, StoreError> {
        match holder {
            Some(name) if name != self.process.name() => {
                self.process.is_alive(name, &self.pool).await
            }
            _ => Ok(false),
        }
    }

    /// The process that holds the lease, alive or not.
    pub(crate) async fn holder(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let holder: Option<Option<String>> =
            sqlx::query_scalar("SELECT holder FROM runs WHERE id = $1")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        Ok(holder.flatten())
    }
}
