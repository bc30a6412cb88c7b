//! Takes texts of deleted documents and forgotten facts out of the records of runs that have ended.
//!
//! The records are found by `shown_texts`. A run that has not ended keeps what it has, because it is resumed from it; its
//! end brings it here. Each transaction exchanges the lines of one page, and adds a row to the audit log with their
//! digests: an event that lacks texts is genuine if the log tells of it. An event that was changed before loses its
//! texts as well, and the log does not tell of it, so that the fault stays in sight.

mod emptied;
mod plan;

use crate::audit_rows::{self, Draft, line_digest};
use crate::column::{id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::prune::NamedByRecords;
use crate::record::is_sealed;
use crate::redacted_lines::RedactedLine;
use crate::responses;
use crate::shared_texts;
use crate::statements::OpenTransaction;
use crate::store::Store;
use crate::time::now_ms;
use plan::{DeletedTexts, RedactionPlan};
use sqlx::Row as _;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;
use toolhold_protocol::event::{Event, MAX_NAMED, RemovedTexts, Seal};
use uuid::Uuid;

/// Texts whose runs are looked at in one round.
const ROUND: i64 = 20;
/// Texts that are forgotten in one transaction.
const FORGOTTEN_ROWS: i64 = 200;
/// Wait between two transactions, in which other writers can write.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// How long it is kept that something was deleted, of which no record has a text: a call that found it before may write
/// its result after.
const KEEP_DELETED_MS: u64 = 24 * 60 * 60 * 1_000;

/// Ended runs whose records have deleted texts, once for each text. The cross joins keep SQLite from reading all runs first.
pub(crate) const RUNS: &str = "SELECT shown_texts.run AS id FROM deleted_texts CROSS JOIN shown_texts \
     CROSS JOIN runs WHERE shown_texts.source = deleted_texts.source AND runs.id = shown_texts.run \
     AND runs.ended_ms IS NOT NULL LIMIT $1";
/// Deleted documents and facts of which no record has a text, and that were deleted before $1.
const DONE: &str = "SELECT source FROM deleted_texts WHERE deleted_ms < $1 AND source <> '' \
     AND NOT EXISTS (SELECT 1 FROM shown_texts WHERE shown_texts.source = deleted_texts.source)";

/// At most $2 of [`DONE`].
static SOME_DONE: LazyLock<String> = LazyLock::new(|| format!("{DONE} LIMIT $2"));
/// Forgets as many.
static FORGET_TEXTS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM deleted_texts WHERE source IN ({}) RETURNING source",
        SOME_DONE.as_str()
    )
});
const FORGET_REPLACED: &str = "DELETE FROM replaced_documents WHERE document = $1";

/// Why no line was exchanged.
enum ExchangeError {
    /// Another process was faster, or the run was deleted.
    Changed,
    Failed(sqlx::Error),
}

impl From<sqlx::Error> for ExchangeError {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(error)
    }
}

/// The result of a redaction of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedactedRecords {
    /// Runs whose records lack texts now.
    pub records: u64,
    /// Whether SQLite's write-ahead log still has the texts: it cannot be emptied while a process reads an older state.
    pub is_in_log: bool,
}

impl Store {
    /// Takes texts of what was deleted or forgotten out of the records of all runs that have ended.
    ///
    /// # Errors
    /// The database fails. A later call does the rest.
    pub async fn redact_records(&self) -> Result<RedactedRecords, StoreError> {
        let records = self.redact_all_records().await?;
        Ok(RedactedRecords {
            records,
            is_in_log: records > 0 && self.database.is_file() && !self.empty_log().await?,
        })
    }

    /// Redacts as [`Self::redact_records`] does, and leaves the write-ahead log. Returns the number of records.
    pub(crate) async fn redact_all_records(&self) -> Result<u64, StoreError> {
        let mut records = 0;
        loop {
            let rows = sqlx::query(RUNS)
                .bind(ROUND)
                .fetch_all(&self.pool)
                .in_time(&self.database)
                .await?;
            let runs: Result<BTreeSet<Uuid>, sqlx::Error> =
                rows.iter().map(|row| id(row, "id")).collect();
            for run in runs? {
                records += u64::from(Box::pin(self.redact_record(run)).await?);
            }
            if rows.len() < usize::try_from(ROUND).unwrap_or_default() {
                break;
            }
        }
        if records > 0 {
            tracing::info!(
                records,
                "took what was deleted or forgotten out of records of runs"
            );
        }
        self.forget_deleted().await?;
        Ok(records)
    }

    /// Returns whether something was taken out.
    async fn redact_record(&self, run: Uuid) -> Result<bool, StoreError> {
        let deleted = self.deleted_of(run).await?;
        let mut plan = RedactionPlan::new(run, deleted);
        let mut next = 0;
        loop {
            let page = self.sealed(run, next).await?;
            let Some((last, _)) = page.last() else {
                break;
            };
            next = last + 1;
            for (_, line) in &page {
                if let Ok(event) = serde_json::from_str::<Event>(line) {
                    plan.note(&event);
                }
            }
        }
        let mut is_redacted = false;
        if let Some(begin) = plan.begin() {
            is_redacted = self.redact_from(&plan, signed(begin)).await?;
        }
        self.forget_shown(&plan).await?;
        Ok(is_redacted)
    }

    /// Redacts the events from number `begin` on, page by page.
    async fn redact_from(&self, plan: &RedactionPlan, begin: i64) -> Result<bool, StoreError> {
        // Before the first event it is the seal before all others.
        let last = self.event_at(plan.run, begin - 1).await?;
        let mut before = last.map(|event| event.seal).unwrap_or_default();
        let (mut next, mut is_redacted) = (begin, false);
        loop {
            let page = self.sealed(plan.run, next).await?;
            let Some((last, _)) = page.last() else {
                return Ok(is_redacted);
            };
            let lines = self.lines_to_change(plan, &page, &before).await?;
            if !lines.changes.is_empty() {
                if !self.exchange_lines(plan, lines.changes).await? {
                    // Another process was faster, or the run was deleted: what is there now is looked at again.
                    continue;
                }
                is_redacted = true;
                tokio::time::sleep(BATCH_DELAY).await;
            }
            next = last + 1;
            before = lines.seal;
        }
    }

    /// The lines of a page that have deleted texts. The page follows the event with the seal `before`.
    async fn lines_to_change(
        &self,
        plan: &RedactionPlan,
        page: &[(i64, String)],
        before: &Seal,
    ) -> Result<ChangedPage, StoreError> {
        let (mut changes, mut earlier) = (Vec::new(), Vec::new());
        let mut seal = before.clone();
        for (seq, line) in page {
            let Ok(mut event) = serde_json::from_str::<Event>(line) else {
                // What a newer version wrote, or damage: nothing is known of it.
                tracing::warn!(run = %plan.run, seq, "an event cannot be read, and is not redacted");
                continue;
            };
            let was = RedactedLine::of(&event, line);
            let is_genuine = was.is_some() || is_sealed(&event, line, &seal);
            seal = event.seal.clone();
            if plan.redact(&mut event) {
                earlier.extend(was);
                changes.push(LineChange {
                    seq: *seq,
                    line: line.clone(),
                    event,
                    is_genuine,
                });
            }
        }
        let untold = self.untold(&earlier).await?;
        for change in &mut changes {
            change.is_genuine &= !untold.contains(&change.event.seq);
        }
        Ok(ChangedPage { changes, seal })
    }

    /// Exchanges lines, and tells of those that were genuine. Returns whether all of them were as they were read.
    async fn exchange_lines(
        &self,
        plan: &RedactionPlan,
        changes: Vec<LineChange>,
    ) -> Result<bool, StoreError> {
        let at_ms = now_ms();
        let (run, sources) = (plan.run, plan.sources().to_vec());
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                if !lock_run(&mut transaction, run).await? {
                    return Err(ExchangeError::Changed);
                }
                // Locked until the commit, so the number of the row is known.
                let head = audit_rows::lock_numbered_head(&mut transaction).await?;
                let (mut told, mut locked) = (Vec::new(), Vec::new());
                for change in &changes {
                    let mut event = change.event.clone();
                    let mut of = sources.clone();
                    of.extend(event.removed.take().into_iter().flat_map(|it| it.of));
                    of.sort();
                    of.dedup();
                    of.truncate(MAX_NAMED);
                    event.removed = Some(RemovedTexts {
                        entry: head.0 + 1,
                        at_ms,
                        of,
                    });
                    let line = serde_json::to_string(&event)
                        .map_err(|error| sqlx::Error::Encode(error.into()))?;
                    let exchanged = shared_texts::exchange_line(
                        &mut transaction,
                        run,
                        change.seq,
                        &change.line,
                        &line,
                    );
                    let Some(left) = exchanged.await? else {
                        return Err(ExchangeError::Changed);
                    };
                    locked.extend(left);
                    if change.is_genuine {
                        told.push((event.seq, line_digest(&line)));
                    } else {
                        tracing::warn!(
                            %run,
                            seq = change.seq,
                            "an event of a record was changed before texts were taken out of it"
                        );
                    }
                }
                if !told.is_empty() {
                    let mut of = sources;
                    of.truncate(MAX_NAMED);
                    let draft = Draft::record_redacted(run, &of, &told);
                    audit_rows::append_after(transaction, head, &[&draft]).await?;
                }
                Ok(locked)
            })
        });
        match work.await {
            Ok(locked) => {
                self.delete_locked(NamedByRecords::Texts, locked).await;
                Ok(true)
            }
            Err(ExchangeError::Changed) => Ok(false),
            Err(ExchangeError::Failed(error)) => Err(error.into()),
        }
    }

    /// The deleted documents and facts of which the record of a run has texts.
    async fn deleted_of(&self, run: Uuid) -> Result<DeletedTexts, StoreError> {
        let rows = sqlx::query(
            "SELECT shown_texts.source AS source, passage, digest, deleted_ms FROM shown_texts \
             JOIN deleted_texts ON deleted_texts.source = shown_texts.source WHERE run = $1",
        )
        .bind(run.to_string())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let mut deleted = DeletedTexts::default();
        for row in &rows {
            let source: String = row.try_get("source")?;
            let digest: Option<String> = row.try_get("digest")?;
            let deleted_ms = unsigned(row, "deleted_ms")?;
            deleted.add(source, row.try_get("passage")?, digest, deleted_ms);
        }
        Ok(deleted)
    }

    /// The record has these texts no more. The salts of the audit log's rows for calls of memory go with a fact: who
    /// guesses its text could check it against the digest of the call. The items of the responses before go with the
    /// messages that were made of them.
    async fn forget_shown(&self, plan: &RedactionPlan) -> Result<(), StoreError> {
        let (run, has_facts, has_carried) = (plan.run, plan.has_facts(), plan.has_carried());
        let sources: Vec<String> = plan.keys().map(str::to_owned).collect();
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                if !lock_run(&mut transaction, run).await? {
                    return Ok(());
                }
                if has_facts {
                    transaction
                        .execute("DELETE FROM audit_salts WHERE run = $1", &[run.into()])
                        .await?;
                }
                if has_carried {
                    responses::forget_input(&mut transaction, run).await?;
                }
                for source in &sources {
                    transaction
                        .execute(
                            "DELETE FROM shown_texts WHERE source = $1 AND run = $2",
                            &[source.into(), run.into()],
                        )
                        .await?;
                }
                Ok(())
            })
        });
        work.await
    }

    /// Forgets what was deleted of which no record has a text any more.
    async fn forget_deleted(&self) -> Result<(), StoreError> {
        let before = signed(now_ms().saturating_sub(KEEP_DELETED_MS));
        loop {
            // A store that finds none writes nothing.
            let some: Option<String> = sqlx::query_scalar(SOME_DONE.as_str())
                .bind(before)
                .bind(1_i64)
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
            if some.is_none() {
                return Ok(());
            }
            self.forget_some_deleted(before).await?;
            tokio::time::sleep(BATCH_DELAY).await;
        }
    }

    async fn forget_some_deleted(&self, before: i64) -> Result<(), StoreError> {
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                let values = [before.into(), FORGOTTEN_ROWS.into()];
                let forgotten: Vec<(String,)> =
                    transaction.rows(FORGET_TEXTS.as_str(), &values).await?;
                for (source,) in &forgotten {
                    transaction
                        .execute(FORGET_REPLACED, &[source.into()])
                        .await?;
                }
                Ok(())
            })
        });
        work.await
    }
}

/// Locks the row of a run until the transaction ends, before the audit log: who deletes a run takes the same locks in
/// this order. Returns whether the run is there.
async fn lock_run(transaction: &mut OpenTransaction<'_>, run: Uuid) -> Result<bool, sqlx::Error> {
    // An update that changes nothing locks the row.
    let locked = transaction
        .execute("UPDATE runs SET owner = owner WHERE id = $1", &[run.into()])
        .await?;
    Ok(locked > 0)
}

/// The lines of a page that have deleted texts.
struct ChangedPage {
    changes: Vec<LineChange>,
    /// The seal of the page's last event.
    seal: Seal,
}

/// An event without the texts, and the line that it had.
struct LineChange {
    seq: i64,
    line: String,
    event: Event,
    /// Whether the line was what was written there.
    is_genuine: bool,
}
