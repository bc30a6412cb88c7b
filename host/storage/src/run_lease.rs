//! Leases of runs: the process that works on a run holds its lease, and a run whose holder died can be taken.

use crate::audit_rows::RunAudit;
use crate::change::Change;
use crate::claims::RunLease;
use crate::column::{id, signed};
use crate::database::InTime as _;
use crate::error::{RecordError, StoreError};
use crate::journal::RunJournal;
use crate::label::{Label, Origin};
use crate::process_lease::{ProcessLease, key};
use crate::record::Source;
use crate::runs::{LISTED, RunRow};
use crate::statements::SqlValue;
use crate::store::Store;
use crate::time::now_ms;
use sqlx::Row as _;
use toolhold_protocol::event::Event;
use uuid::Uuid;

/// Takes the lease of a run if its holder is still the one that a look found.
const TAKE: &str = "UPDATE runs SET holder = $2, fence = fence + 1 WHERE id = $1 \
     AND (holder = $3 OR (holder IS NULL AND $3 IS NULL)) AND ended_ms IS NULL RETURNING owner, fence";
/// Takes a run from a process that has no lock, or whose deadline has passed: one that is alive is neither. The row
/// of its lease is locked meanwhile, so that the process renews it before, and keeps the run, or after, and finds that
/// its lease had ended.
const TAKE_FROM_RENEWING: &str = "WITH clock AS (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now_ms), \
     lease AS (SELECT deadline_ms FROM process_leases WHERE process = $3 FOR UPDATE) \
     UPDATE runs SET holder = $2, fence = fence + 1 WHERE id = $1 AND holder = $3 AND ended_ms IS NULL \
     AND (pg_try_advisory_xact_lock_shared($4) OR EXISTS (SELECT 1 FROM lease, clock WHERE deadline_ms <= now_ms)) \
     RETURNING owner, fence";

/// The state of a run's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// A process works on the run whose own lease holds.
    Held,
    /// The run has not ended, and no process works on it, or a frozen one.
    Free,
    /// The run has ended, or does not exist.
    Ended,
}

impl Store {
    /// The journal of a new run, whose lease this process gets with the first event.
    pub fn journal(&self, run: Uuid, label: Label) -> RunJournal {
        let (claim, fence) = (self.claimed.claim(run), 0);
        if let Some(claim) = &claim {
            claim.set_fence(fence);
        }
        RunJournal::begin(
            run,
            label,
            self.writer.clone(),
            RunLease {
                holder: self.process.name().to_owned(),
                fence,
            },
            claim,
            self.content.clone(),
            self.promised.contains(run),
        )
    }

    /// Takes the lease of a run: returns its journal and its events so far. Images have no bytes:
    /// [`restore_record`](Self::restore_record) reads those.
    ///
    /// # Errors
    /// [`RecordError::Held`] if a process works on the run, [`RecordError::Over`] if the run has ended.
    pub async fn reopen(&self, run: Uuid) -> Result<(RunJournal, Vec<Event>), RecordError> {
        let Some(claim) = self.claimed.claim(run) else {
            return Err(RecordError::Held);
        };
        // Writes of the run whose caller left may still wait in this process' queue.
        self.writer.catch_up().await.map_err(sqlx::Error::Io)?;
        let before = self.holder(run).await?;
        if self.lives_elsewhere(before.as_deref()).await? {
            return Err(RecordError::Held);
        }
        let (owner, fence) = match self.take(run, before.as_deref()).await {
            Ok(Some(taken)) => taken,
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
        claim.set_fence(fence);
        let source = Source::Run(run);
        let record = self.without_images(&source).await;
        let events = record.and_then(|record| record.unchanged(&source));
        let known = events.as_deref().unwrap_or_default();
        // Created even if reading failed: dropping it releases the lease.
        let audit = RunAudit::new(run, &owner, self.content.clone());
        let mut journal = RunJournal::after(
            run,
            known,
            self.writer.clone(),
            RunLease {
                holder: self.process.name().to_owned(),
                fence,
            },
            Some(claim),
            audit,
        );
        if journal.has_begun_calls() {
            // After the lease was taken: who writes such rows looks at the lease in the same transaction.
            let logged = self.logged_events(run).await?;
            journal.note_logged(&logged);
        }
        // After the lease was taken: a request that comes later finds the run at work.
        if self.is_to_be_cancelled(run).await? {
            journal.note_cancelled();
        }
        Ok((journal, events?))
    }

    /// Takes the lease of a run that `before` held when it was looked at, and whose process kept it no more. Returns the
    /// owner and the new fence; `None` if that is so no longer: the run has ended, another process took it, or, on
    /// PostgreSQL, the process renewed its own lease meanwhile.
    pub(crate) async fn take(
        &self,
        run: Uuid,
        before: Option<&str>,
    ) -> Result<Option<(String, i64)>, StoreError> {
        // On SQLite a process whose lock is free has ended for good, so its name says enough.
        let renews = before.filter(|name| *name != self.process.name());
        let renews = renews.filter(|_| self.process.lease().is_some());
        let mut values = vec![
            SqlValue::from(run),
            self.process.name().to_owned().into(),
            before.map(str::to_owned).into(),
        ];
        values.extend(renews.map(|name| SqlValue::from(key(name))));
        let statement = renews.map_or(TAKE, |_| TAKE_FROM_RENEWING);
        self.row(statement, values).await
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

    /// Runs of servers that have not ended and that a server may take at once, oldest first: those whose holder released
    /// them, and with SQLite those whose holder died. With PostgreSQL, a holder without its lock or with a lease that
    /// has ended may be a living server that has yet to connect again after an outage: [`Self::orphans`] finds its runs.
    pub async fn resumable(&self) -> Result<Vec<RunRow>, StoreError> {
        let released = match self.process.lease() {
            Some(_) => "AND holder IS NULL ",
            None => "",
        };
        let statement =
            format!("{LISTED} WHERE origin = $1 AND ended_ms IS NULL {released}ORDER BY id");
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(Origin::Serve.name())
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let rows = self.listed(&rows).await?;
        Ok(rows.into_iter().filter(|run| !run.is_held).collect())
    }

    /// Open runs of servers on which no living process works, oldest first. With PostgreSQL, one of them may belong to a
    /// living server that has yet to connect again.
    pub async fn left_by_servers(&self) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows(
            "origin = $1 AND ended_ms IS NULL ORDER BY id",
            Origin::Serve.name(),
        );
        Ok(rows.await?.into_iter().filter(|run| !run.is_held).collect())
    }

    /// The runs of servers that this process gave up during an outage, or another one released, oldest first.
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
        let was_lost = self.process.lease().is_some_and(ProcessLease::was_lost);
        if !was_lost || runs.is_empty() {
            return Ok(Vec::new());
        }
        let own = self.claimed.fences(runs);
        let fences = serde_json::to_string(&own).map_err(|e| sqlx::Error::Encode(e.into()))?;
        // PostgreSQL alone has process leases. Versions without fences change the holder only.
        let rows = sqlx::query(
            "SELECT id FROM runs JOIN json_to_recordset($1::json) AS own (run TEXT, fence BIGINT) \
             ON runs.id = own.run WHERE runs.fence <> own.fence \
             OR (runs.ended_ms IS NULL AND runs.holder IS DISTINCT FROM $2)",
        )
        .bind(fences)
        .bind(self.process.name())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let taken: Result<Vec<Uuid>, sqlx::Error> = rows.iter().map(|row| id(row, "id")).collect();
        let mut taken = taken?;
        // This process may have taken a run back since it looked.
        let now = self.claimed.fences(&taken);
        taken.retain(|run| now.iter().any(|it| it.run == *run && own.contains(it)));
        Ok(taken)
    }

    /// True if another process has taken a run that this process works on, or worked on until now. Reads the database:
    /// a process that was frozen does not know yet that its lease has ended.
    pub async fn was_taken(&self, run: Uuid) -> Result<bool, StoreError> {
        let own = self.claimed.fences(&[run]).pop();
        let row = sqlx::query("SELECT holder, fence FROM runs WHERE id = $1 AND ended_ms IS NULL")
            .bind(run.to_string())
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        let Some(row) = row else {
            return Ok(false);
        };
        let (holder, fence): (Option<String>, i64) =
            (row.try_get("holder")?, row.try_get("fence")?);
        let is_others = holder.is_some_and(|name| name != self.process.name());
        Ok(is_others || own.is_some_and(|own| own.fence != fence))
    }

    /// Completes when this process finds that its own lease had ended, so that others may have taken its runs over.
    /// Never on SQLite.
    pub async fn lease_lost(&self) {
        match self.process.lease() {
            Some(lease) => lease.ends().await,
            None => std::future::pending().await,
        }
    }

    /// Asks the process that works on a run to cancel it. When this returns, no call of the run begins any more, whichever
    /// process has or takes it: the begin of a call is not recorded any more.
    pub async fn request_cancellation(&self, run: Uuid) -> Result<(), StoreError> {
        self.execute(
            "UPDATE runs SET cancel_ms = $2 WHERE id = $1 AND ended_ms IS NULL",
            vec![run.into(), signed(now_ms()).into()],
        )
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

    /// True if the run has not ended, and its cancellation was requested.
    async fn is_to_be_cancelled(&self, run: Uuid) -> Result<bool, StoreError> {
        let requested: Option<Option<i64>> =
            sqlx::query_scalar("SELECT cancel_ms FROM runs WHERE id = $1 AND ended_ms IS NULL")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        Ok(requested.flatten().is_some())
    }

    /// True if `holder` is another process that keeps its leases.
    async fn lives_elsewhere(&self, holder: Option<&str>) -> Result<bool, StoreError> {
        match holder {
            Some(name) if name != self.process.name() => {
                self.process.keeps_leases(name, &self.pool).await
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
