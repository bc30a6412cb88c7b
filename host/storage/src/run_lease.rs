//! Who goes on with a run: which process has it, which run nobody has, and who takes it.

use crate::storage::audit::Drafts;
use crate::storage::change::Change;
use crate::storage::database::InTime as _;
use crate::storage::error::{RecordError, StoreError};
use crate::storage::record::Source;
use crate::storage::runs::{LISTED, Label, Origin, RunRow, id};
use crate::storage::sessions::{now_ms, signed};
use crate::storage::{RunJournal, Store};
use toolhold_agent::Event;
use uuid::Uuid;

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoingOn {
    /// In a process.
    Held,
    /// It is not over, and no process goes on with it.
    Left,
    /// It is over, or not there.
    Over,
}

impl Store {
    /// A new run's journal.
    pub fn journal(&self, run: Uuid, label: Label) -> RunJournal {
        RunJournal::begin(
            run,
            label,
            self.writer.clone(),
            self.process.name(),
            self.mine.hold(run),
            self.redaction.clone(),
        )
    }

    /// Takes a run that nobody goes on with: its events, and where the next ones are appended.
    ///
    /// # Errors
    /// [`RecordError::Held`] if somebody does, [`RecordError::Over`] if there is nothing to go on with.
    pub async fn reopen(&self, run: Uuid) -> Result<(RunJournal, Vec<Event>), RecordError> {
        let Some(hold) = self.mine.hold(run) else {
            return Err(RecordError::Held);
        };
        // What this process wrote of it and the database lost.
        self.writer.catch_up().await.map_err(sqlx::Error::Io)?;
        let before = self.holder(run).await?;
        if self.lives_elsewhere(before.as_deref()).await? {
            return Err(RecordError::Held);
        }
        // Only if it is still so: another process may take it at the same time.
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
                // The answer may be all that was lost, and nobody here goes on with it.
                let holder = self.process.name().to_owned();
                self.writer.note(Change::Released { run: hold, holder });
                return Err(error.into());
            }
        };
        let events = self.read(&Source::Run(run)).await;
        let known = events.as_deref().unwrap_or_default();
        // Made in any case: dropping it lets go of the run.
        let audit = Drafts::new(run, &owner, self.redaction.clone());
        let journal = RunJournal::after(
            run,
            known,
            self.writer.clone(),
            self.process.name(),
            Some(hold),
            audit,
        );
        Ok((journal, events?))
    }

    pub async fn going_on(&self, run: Uuid) -> Result<GoingOn, StoreError> {
        let holder: Option<Option<String>> =
            sqlx::query_scalar("SELECT holder FROM runs WHERE id = $1 AND ended_ms IS NULL")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        let Some(holder) = holder else {
            return Ok(GoingOn::Over);
        };
        let is_held = match holder.as_deref() {
            Some(name) if name == self.process.name() => self.mine.has(run),
            holder => self.lives_elsewhere(holder).await?,
        };
        Ok(if is_held {
            GoingOn::Held
        } else {
            GoingOn::Left
        })
    }

    /// Whether a process goes on with this run just now.
    pub async fn is_held(&self, run: Uuid) -> Result<bool, StoreError> {
        Ok(self.going_on(run).await? == GoingOn::Held)
    }

    /// Runs of the server that are not over and that no process goes on with, the oldest first.
    pub async fn left_behind(&self) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows(
            "origin = $1 AND ended_ms IS NULL ORDER BY id",
            Origin::Serve.name(),
        );
        Ok(rows.await?.into_iter().filter(|run| !run.is_held).collect())
    }

    /// Those of them that this process let go of, because the database could not be written.
    pub async fn left_behind_here(&self) -> Result<Vec<RunRow>, StoreError> {
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

    /// Those of `runs` that go on here and that another process has taken over, which took this one for dead.
    pub async fn taken_over(&self, runs: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let mut taken = Vec::new();
        if !self.process.was_lost() {
            return Ok(taken);
        }
        for run in runs {
            let is_anothers: Option<i64> = sqlx::query_scalar(
                "SELECT CAST(1 AS BIGINT) FROM runs WHERE id = $1 AND holder <> $2 AND ended_ms IS NULL",
            )
            .bind(run.to_string())
            .bind(self.process.name())
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
            if is_anothers.is_some() {
                taken.push(*run);
            }
        }
        Ok(taken)
    }

    /// Leaves word that a run is to be stopped, for whichever process goes on with it.
    pub async fn ask_to_cancel(&self, run: Uuid) -> Result<(), StoreError> {
        sqlx::query("UPDATE runs SET cancel_ms = $2 WHERE id = $1 AND ended_ms IS NULL")
            .bind(run.to_string())
            .bind(signed(now_ms()))
            .execute(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(())
    }

    /// Runs of this process that somebody wants stopped.
    pub async fn to_cancel(&self) -> Result<Vec<Uuid>, StoreError> {
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

    async fn lives_elsewhere(&self, holder: Option<&str>) -> Result<bool, StoreError> {
        match holder {
            Some(name) if name != self.process.name() => {
                self.process.is_alive(name, &self.pool).await
            }
            _ => Ok(false),
        }
    }

    pub(super) async fn holder(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let holder: Option<Option<String>> =
            sqlx::query_scalar("SELECT holder FROM runs WHERE id = $1")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        Ok(holder.flatten())
    }
}
