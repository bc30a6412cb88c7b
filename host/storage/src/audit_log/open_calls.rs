//! Calls that have begun and have no row in the audit log yet, and those among them whose process died.
//!
//! The begin of a call is written before its tool is called: of a run's call as an event of the run. The begins of other
//! calls are in PostgreSQL's table `open_calls`, or in a file of the process beside a SQLite file (`calls_file`). They are
//! removed with the calls' rows of the log. What a killed process left of them is written into the log by the next process
//! that reads it.

use super::Durability;
use crate::audit_rows::{self, BegunCall, CallRecord, Draft, LogHead, RunAudit};
use crate::calls_file::{LeftCall, left_calls, left_files, remove_left};
use crate::change::Change;
use crate::column::id;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::health::Outage;
use crate::label::Origin;
use crate::record::Source;
use crate::statements::{OpenTransaction, SqlValue};
use crate::store::Store;
use sqlx::Row as _;
use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use toolhold_admission::own_work;
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
/// The calls of no run, among those of the list $2, that have rows after row $1: SQLite.
const ENDED: &str = "SELECT CASE WHEN json_valid(entry) THEN entry ->> 'call' END AS call FROM audit \
     WHERE number > $1 AND number <= $2 AND run IS NULL AND action = 'call' AND call IN (SELECT value FROM json_each($3))";
/// The calls of no run, among those of the list $2, that have rows of the times of the list $1: an earlier look wrote these
/// rows. Their numbers do not show that where a machine that failed has lost rows before them.
const INTERRUPTED: &str = "SELECT CASE WHEN json_valid(entry) THEN entry ->> 'call' END AS call FROM audit \
     WHERE at_ms IN (SELECT value FROM json_each($1)) AND run IS NULL AND action = 'call' \
     AND call IN (SELECT value FROM json_each($2))";
/// Rows that are read at once.
const ROWS_AT_ONCE: i64 = 20_000;
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
        let draft = record.begun();
        let Some(calls) = self.process.calls() else {
            let begun = BegunCall {
                call: record.id.clone(),
                holder: self.process.name().to_owned(),
                draft: serde_json::to_string(&draft)?,
            };
            let change = Change::CallBegan(Box::new(begun));
            return self.writer.write(vec![change], false).await;
        };
        let after = match calls.newest_row() {
            Some(number) => number,
            None => {
                let (number, _) = self.last_audit_row().await.map_err(io::Error::other)?;
                calls.note_row(number);
                number
            }
        };
        let begun = calls.begin(&record.id, after, &draft);
        if let Err(error) = &begun {
            // The writer tries the database from now on, and notes when it can be written.
            self.health.failed(Outage::ReadOnly, error);
        }
        begun
    }

    /// The last row of the log, after which other processes may add rows at any time.
    async fn last_audit_row(&self) -> Result<LogHead, StoreError> {
        let read = async {
            let mut connection = self.pool.acquire().await?;
            audit_rows::last_row(OpenTransaction::from(&mut *connection)).await
        };
        Ok(self.database.within(read).await?)
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
        let of_files = self.audit_left_in_files().await;
        for abandoned in self.abandoned_runs().await? {
            self.audit_begun_by(&abandoned).await?;
        }
        of_files
    }

    /// The calls of no run of dead processes that worked on this SQLite file.
    pub(crate) async fn audit_left_in_files(&self) -> Result<(), StoreError> {
        let Some(folder) = self.process.folder().map(ToOwned::to_owned) else {
            return Ok(());
        };
        for file in on_files(move || left_files(&folder)).await? {
            if let Err(error) = self.audit_left_in(file.clone()).await {
                // Those of other processes are written all the same.
                tracing::error!(%error, path = %file.display(), "calls that were interrupted are not in the audit log");
            }
        }
        Ok(())
    }

    /// The calls of one of these files, which is then removed.
    async fn audit_left_in(&self, file: PathBuf) -> Result<(), StoreError> {
        let reading = file.clone();
        let left = on_files(move || left_calls(&reading)).await?;
        if !left.is_empty() {
            // The log has the rows of those whose ends were not written, and of all if another process was here. Most rows
            // are read before the transaction, in which nobody else can write.
            let (seen, _) = self.last_audit_row().await?;
            let mut ended = self.ended_calls(&left, seen).await?;
            let work = self.transact_long(move |mut transaction| {
                Box::pin(async move {
                    ended.extend(calls_with_rows(&mut transaction, &left, seen, i64::MAX).await?);
                    ended.extend(interrupted_calls(&mut transaction, &left).await?);
                    let head = audit_rows::lock_head(&mut transaction).await?;
                    let left = left.into_iter().filter(|it| !ended.contains(&it.call));
                    let mut drafts: Vec<Draft> = left.map(|it| it.draft).collect();
                    drafts.sort_by_key(Draft::at_ms);
                    let refs: Vec<&Draft> = drafts.iter().collect();
                    audit_rows::append_after(transaction, head, &refs).await?;
                    Ok::<_, StoreError>(())
                })
            });
            work.await?;
        }
        on_files(move || remove_left(&file)).await
    }

    /// The ids of the calls of `left` that have rows up to the row `seen`.
    async fn ended_calls(
        &self,
        left: &[LeftCall],
        seen: i64,
    ) -> Result<HashSet<String>, StoreError> {
        let mut ended = HashSet::new();
        let mut after = left.iter().map(|it| it.after).min().unwrap_or(seen);
        while after < seen {
            let last = seen.min(after.saturating_add(ROWS_AT_ONCE));
            let read = async {
                let mut connection = self.pool.acquire().await?;
                let mut reading = OpenTransaction::from(&mut *connection);
                calls_with_rows(&mut reading, left, after, last).await
            };
            ended.extend(self.database.within(read).await?);
            after = last;
        }
        Ok(ended)
    }

    /// The calls of no run that `open_calls` has of a dead process: PostgreSQL, and an older version with a SQLite file.
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

/// The ids of the calls of `left` that have rows after the row `after` up to the row `last`.
async fn calls_with_rows(
    transaction: &mut OpenTransaction<'_>,
    left: &[LeftCall],
    after: i64,
    last: i64,
) -> Result<Vec<String>, sqlx::Error> {
    let values = [after.into(), last.into(), ids(left)?.into()];
    let ended: Vec<(String,)> = transaction.rows(ENDED, &values).await?;
    Ok(ended.into_iter().map(|(call,)| call).collect())
}

/// The ids of the calls of `left` that the log has as interrupted.
async fn interrupted_calls(
    transaction: &mut OpenTransaction<'_>,
    left: &[LeftCall],
) -> Result<Vec<String>, sqlx::Error> {
    let times: Vec<_> = left.iter().map(|it| it.draft.at_ms()).collect();
    let values = [list(&times)?.into(), ids(left)?.into()];
    let interrupted: Vec<(String,)> = transaction.rows(INTERRUPTED, &values).await?;
    Ok(interrupted.into_iter().map(|(call,)| call).collect())
}

fn ids(left: &[LeftCall]) -> Result<String, sqlx::Error> {
    let calls: Vec<&str> = left.iter().map(|it| it.call.as_str()).collect();
    list(&calls)
}

fn list<T: serde::Serialize>(values: &[T]) -> Result<String, sqlx::Error> {
    serde_json::to_string(values).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Works with files on a thread that may block.
async fn on_files<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let done = own_work(work).await.map_err(io::Error::from);
    Ok(done.flatten().map_err(sqlx::Error::Io)?)
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
