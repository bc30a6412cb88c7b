//! Calls that have begun and have no row in the audit log yet, and those among them whose process died.
//!
//! The begin of a call is written before its tool is called: of a run's call as an event of the run, of any other call
//! as a row of `open_calls`, which is deleted in the transaction that writes the call's row of the log. So a killed
//! process leaves what it was doing, and whoever opens the database next writes that into the log.

use super::Durability;
use crate::audit_rows::{self, CallRecord, Draft, RunAudit};
use crate::change::Change;
use crate::column::id;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::label::Origin;
use crate::record::Source;
use crate::statements::SqlValue;
use crate::store::Store;
use sqlx::Row as _;
use std::io;
use uuid::Uuid;

/// Runs of one look that are read for calls that were interrupted, the newest first.
const MAX_RUNS: i64 = 256;

const TAKE_CALLS: &str = "DELETE FROM open_calls WHERE holder = $1 RETURNING draft";
/// A parked run: no process has its lease.
const PARKED: &str =
    "SELECT owner, fence FROM runs WHERE id = $1 AND holder IS NULL AND ended_ms IS NULL";
/// Releases a run and locks its row. Changes nothing if a process has taken the run since a look at its holder and fence.
const RELEASE: &str = "UPDATE runs SET holder = NULL WHERE id = $1 \
     AND (holder = $2 OR (holder IS NULL AND $2 IS NULL)) AND fence = $3 AND ended_ms IS NULL";
const LOGGED: &str = "SELECT seq FROM audit WHERE run = $1 AND seq IS NOT NULL";

impl Store {
    /// Writes that a call of no run is about to be made, and returns when that survives a crash of this process. It is
    /// not waited for the disk: the machine's crash is waited for at the call's end. With [`Durability::Queued`]
    /// nothing is written, because that mode does not promise to keep what a killed process did.
    ///
    /// # Errors
    /// The database cannot be written to.
    pub async fn audit_begin(&self, record: &CallRecord, durability: Durability) -> io::Result<()> {
        if durability == Durability::Queued {
            return Ok(());
        }
        let begun = record.begun(self.process.name())?;
        let change = Change::CallBegan(Box::new(begun));
        self.writer.write(vec![change], false).await
    }

    /// Writes the calls of dead processes into the log: those that had begun and had not ended.
    ///
    /// # Errors
    /// The database cannot be read or written to.
    pub async fn audit_interrupted(&self) -> Result<(), StoreError> {
        let holders: Vec<String> = sqlx::query_scalar("SELECT DISTINCT holder FROM open_calls")
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        for holder in holders {
            if self.process.is_dead(&holder, &self.pool).await? {
                self.audit_left_by(&holder).await?;
            }
        }
        for abandoned in self.abandoned_runs().await? {
            self.audit_begun_by(&abandoned).await?;
        }
        Ok(())
    }

    /// The calls of no run of a dead process.
    async fn audit_left_by(&self, holder: &str) -> Result<(), StoreError> {
        let holder = holder.to_owned();
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                // The lock keeps two processes from writing the same calls.
                let head = audit_rows::lock_head(&mut transaction).await?;
                let rows: Vec<(String,)> = transaction.rows(TAKE_CALLS, &[holder.into()]).await?;
                let drafts = rows.iter().filter_map(|(row,)| {
                    let read: Result<Draft, _> = serde_json::from_str(row);
                    read.inspect_err(|error| tracing::error!(%error, row, "a call that was interrupted cannot be read"))
                        .ok()
                });
                // An older version may have written their texts.
                let mut drafts: Vec<Draft> = drafts.map(Draft::without_texts).collect();
                drafts.sort_by_key(Draft::at_ms);
                let refs: Vec<&Draft> = drafts.iter().collect();
                audit_rows::append_after(transaction, head, &refs).await?;
                Ok(())
            })
        });
        work.await
    }

    /// Runs of the terminal that have not ended and whose process died with the lease. Runs of servers are resumed, and
    /// their calls get rows then.
    async fn abandoned_runs(&self) -> Result<Vec<AbandonedRun>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, owner, holder, fence FROM runs WHERE origin = $1 AND ended_ms IS NULL AND holder IS NOT NULL \
             ORDER BY id DESC LIMIT $2",
        )
        .bind(Origin::Cli.name())
        .bind(MAX_RUNS)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let mut abandoned = Vec::new();
        for row in &rows {
            let holder: String = row.try_get("holder")?;
            if self.process.is_dead(&holder, &self.pool).await? {
                abandoned.push(AbandonedRun {
                    run: id(row, "id")?,
                    owner: row.try_get("owner")?,
                    fence: row.try_get("fence")?,
                    holder: Some(holder),
                });
            }
        }
        Ok(abandoned)
    }

    /// Writes the open calls of a run that this process has parked, unless another process works on it by now. Their unknown
    /// ends get no second row when the run is resumed.
    ///
    /// # Errors
    /// The database cannot be read or written to.
    pub async fn audit_parked(&self, run: Uuid) -> Result<(), StoreError> {
        // The lease is released by a write that nobody waits for.
        self.writer.catch_up().await.map_err(sqlx::Error::Io)?;
        match self.parked_run(run).await? {
            Some(parked) => self.audit_begun_by(&parked).await,
            None => Ok(()),
        }
    }

    /// The run, if it has not ended and no process works on it.
    pub(crate) async fn parked_run(&self, run: Uuid) -> Result<Option<AbandonedRun>, StoreError> {
        let found: Option<(String, i64)> = self.row(PARKED, vec![run.into()]).await?;
        Ok(found.map(|(owner, fence)| AbandonedRun {
            run,
            owner,
            fence,
            holder: None,
        }))
    }

    /// The events of a run that have rows in the log, by their numbers.
    pub(crate) async fn logged_events(&self, run: Uuid) -> Result<Vec<i64>, StoreError> {
        let rows: Vec<i64> = sqlx::query_scalar(LOGGED)
            .bind(run.to_string())
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        Ok(rows)
    }

    /// Rows for the calls that a run has begun and not ended. None if its record cannot be read, which is logged.
    async fn begun_calls(&self, run: Uuid, owner: &str) -> Option<Vec<Draft>> {
        let mut audit = RunAudit::new(run, owner, self.content.clone());
        let source = Source::Run(run);
        let read = self.scan(&source, |event| drop(audit.take(&event)));
        if let Err(error) = read.await {
            tracing::warn!(%run, %error, "the calls that a stopped run was making are not in the audit log");
            return None;
        }
        Some(audit.interrupted())
    }

    /// Writes the calls that a run has begun and not ended, and releases the dead process' lease, so that the run is
    /// read for this once. Writes nothing if a process has taken the run since the look, because these calls may have
    /// ended by now. Each call has one such row at most, by the event of its begin.
    pub(crate) async fn audit_begun_by(&self, abandoned: &AbandonedRun) -> Result<(), StoreError> {
        let AbandonedRun {
            run,
            owner,
            holder,
            fence,
        } = abandoned;
        let Some(drafts) = self.begun_calls(*run, owner).await else {
            return Ok(());
        };
        if drafts.is_empty() && holder.is_none() {
            return Ok(());
        }
        let values = [SqlValue::from(*run), holder.clone().into(), (*fence).into()];
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                let is_free = transaction.execute(RELEASE, &values).await? > 0;
                if is_free && !drafts.is_empty() {
                    let refs: Vec<&Draft> = drafts.iter().collect();
                    audit_rows::append(&mut transaction, &refs).await?;
                }
                Ok(())
            })
        });
        work.await
    }
}

/// A run that has not ended and that no process works on, as a look found it.
#[derive(Debug)]
pub struct AbandonedRun {
    pub run: Uuid,
    pub owner: String,
    /// The dead process that has its lease. `None`: it was parked.
    pub holder: Option<String>,
    /// Another one than this by now: a process has taken the run since.
    pub fence: i64,
}
