//! Deletes old records: in small transactions, so that other writers wait only briefly, each with its row in the
//! audit log.

use crate::audit_rows::{self, Draft, PrunedBy};
use crate::blobs;
use crate::column::{ids, signed};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::knowledge::delete_facts_of_session;
use crate::shared_texts;
use crate::statements::OpenTransaction;
use crate::store::Store;
use std::sync::LazyLock;
use std::time::Duration;
use uuid::Uuid;

/// Numbers of records that were deleted, or would be. A session's turns count among the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrunedCounts {
    pub runs: u64,
    pub sessions: u64,
}

/// Runs of one transaction; as many sessions, idempotency keys, shared texts and blobs.
const BATCH_ROWS: i64 = 20;
/// Wait between two transactions, in which other writers can write.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// Contents that records name by their digests, and that go with the last record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NamedByRecords {
    Texts,
    Blobs,
}

impl NamedByRecords {
    /// Returns the statement that finds those that no record names.
    fn unnamed(self) -> &'static str {
        match self {
            Self::Texts => shared_texts::UNNAMED,
            Self::Blobs => blobs::UNNAMED,
        }
    }
}

/// Runs that ended before $1 and are turns of no existing session.
const RUNS: &str = "ended_ms < $1 AND (session IS NULL OR NOT EXISTS \
     (SELECT 1 FROM sessions WHERE sessions.id = runs.session))";
/// Sessions that began before $1 and all of whose turns ended before it.
const SESSIONS: &str = "created_ms < $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.session = sessions.id \
     AND (runs.ended_ms IS NULL OR runs.ended_ms >= $1))";
/// Idempotency keys from before $1 whose run is not open: such a request is not repeated any more.
const REQUESTS: &str = "created_ms < $1 AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = idempotency.run \
     AND runs.ended_ms IS NULL)";

/// Sessions of one transaction, the oldest first.
pub(crate) fn idle_statement() -> String {
    format!("SELECT id FROM sessions WHERE {SESSIONS} ORDER BY created_ms, id LIMIT $2")
}

/// Deletes runs of one transaction.
static DELETE_RUNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE {RUNS} ORDER BY ended_ms LIMIT $2) RETURNING id"
    )
});
/// An update that changes nothing locks the sessions: a turn that begins waits, or we wait for it.
static LOCK_IDLE: LazyLock<String> = LazyLock::new(|| {
    let idle = idle_statement();
    format!("UPDATE sessions SET created_ms = created_ms WHERE id IN ({idle}) RETURNING id")
});
/// Deletes a session if it still matches [`SESSIONS`].
static DELETE_IDLE: LazyLock<String> =
    LazyLock::new(|| format!("DELETE FROM sessions WHERE id = $2 AND {SESSIONS}"));
static FORGET_REQUESTS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM idempotency WHERE (owner, key) IN (SELECT owner, key FROM idempotency WHERE {REQUESTS} LIMIT $2)"
    )
});

impl Store {
    /// Counts what [`Self::prune`] would delete: runs that ended before `ms` (milliseconds since 1970), and sessions all
    /// of whose turns did.
    pub async fn over_before(&self, ms: u64) -> Result<PrunedCounts, StoreError> {
        let count = async |what: String| -> Result<u64, StoreError> {
            // The statement consists of constants.
            let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(what))
                .bind(signed(ms))
                .fetch_one(&self.pool)
                .in_time(&self.database)
                .await?;
            Ok(count.unsigned_abs())
        };
        let alone = count(format!("SELECT COUNT(*) FROM runs WHERE {RUNS}")).await?;
        let turns = count(format!(
            "SELECT COUNT(*) FROM runs WHERE session IN (SELECT id FROM sessions WHERE {SESSIONS})"
        ));
        Ok(PrunedCounts {
            runs: alone + turns.await?,
            sessions: count(format!("SELECT COUNT(*) FROM sessions WHERE {SESSIONS}")).await?,
        })
    }

    /// Deletes runs that ended before `ms`, and sessions all of whose turns did.
    pub async fn prune(&self, ms: u64, by: PrunedBy) -> Result<PrunedCounts, StoreError> {
        let mut all = PrunedCounts::default();
        loop {
            let gone = self.prune_some(ms, by).await?;
            all.runs += gone.runs;
            all.sessions += gone.sessions;
            if gone == PrunedCounts::default() {
                break;
            }
            tokio::time::sleep(BATCH_DELAY).await;
        }
        while self.forget_some(ms).await? > 0 {
            tokio::time::sleep(BATCH_DELAY).await;
        }
        self.delete_unnamed(NamedByRecords::Texts).await?;
        self.delete_unnamed(NamedByRecords::Blobs).await?;
        Ok(all)
    }

    /// Deletes what no record names any more. It is looked for without a lock for writes, because there may be much else.
    async fn delete_unnamed(&self, kind: NamedByRecords) -> Result<(), StoreError> {
        let mut last = String::new();
        loop {
            let rows: Vec<(String,)> = sqlx::query_as(kind.unnamed())
                .bind(last.as_str())
                .bind(BATCH_ROWS)
                .fetch_all(&self.pool)
                .in_time(&self.database)
                .await?;
            let digests: Vec<String> = rows.into_iter().map(|(digest,)| digest).collect();
            let Some(newest) = digests.last() else {
                return Ok(());
            };
            last.clone_from(newest);
            let work = self.transact_long(move |mut transaction| {
                Box::pin(async move {
                    let locked = match kind {
                        NamedByRecords::Texts => {
                            shared_texts::delete_unnamed(&mut transaction, &digests).await?
                        }
                        NamedByRecords::Blobs => {
                            blobs::delete_unnamed(&mut transaction, &digests).await?
                        }
                    };
                    Ok::<_, StoreError>(locked)
                })
            });
            let locked = work.await?;
            self.delete_locked(kind, locked).await;
            tokio::time::sleep(BATCH_DELAY).await;
        }
    }

    /// Deletes contents that other transactions had locked when their last record was deleted, unless a record names them
    /// now. Each has a transaction of its own, which waits for the others.
    pub(crate) async fn delete_locked(&self, kind: NamedByRecords, digests: Vec<String>) {
        for digest in digests {
            let work = self.transact(move |mut transaction| {
                Box::pin(async move {
                    match kind {
                        NamedByRecords::Texts => {
                            shared_texts::delete_unlocked(&mut transaction, &digest).await?;
                        }
                        NamedByRecords::Blobs => {
                            blobs::delete_unlocked(&mut transaction, &digest).await?;
                        }
                    }
                    Ok::<_, StoreError>(())
                })
            });
            if let Err(error) = work.await {
                tracing::warn!(%error, "a part of a deleted record is left until old records are deleted");
            }
        }
    }

    async fn prune_some(&self, ms: u64, by: PrunedBy) -> Result<PrunedCounts, StoreError> {
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                let mut gone = batch(&mut transaction, DELETE_RUNS.as_str(), ms).await?;
                let mut sessions = Vec::new();
                // Only a later statement sees a turn that began meanwhile.
                for session in batch(&mut transaction, LOCK_IDLE.as_str(), ms).await? {
                    let values = [signed(ms).into(), session.into()];
                    if transaction.execute(DELETE_IDLE.as_str(), &values).await? > 0 {
                        gone.extend(delete_turns(&mut transaction, session).await?);
                        sessions.push(session);
                    }
                }
                if !(gone.is_empty() && sessions.is_empty()) {
                    let draft = Draft::pruned(by, ms, &gone, &sessions);
                    audit_rows::append(&mut transaction, &[&draft]).await?;
                }
                Ok(PrunedCounts {
                    runs: gone.len() as u64,
                    sessions: sessions.len() as u64,
                })
            })
        });
        work.await
    }

    async fn forget_some(&self, ms: u64) -> Result<u64, StoreError> {
        let values = vec![signed(ms).into(), BATCH_ROWS.into()];
        self.execute(FORGET_REQUESTS.as_str(), values).await
    }
}

impl Store {
    /// Deletes the record of a run that has ended and is no turn of a session, on behalf of `owner`. Returns whether
    /// there was one.
    pub async fn delete_run(&self, owner: &str, run: Uuid) -> Result<bool, StoreError> {
        let draft = Draft::run_deleted(owner, run);
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                let texts = shared_texts::of_run(&mut transaction, run).await?;
                let blobs = blobs::of_run(&mut transaction, run).await?;
                let gone = transaction.execute(DELETE_ENDED, &[run.into()]).await?;
                let mut locked = (Vec::new(), Vec::new());
                if gone > 0 {
                    locked.0 = shared_texts::delete_unnamed(&mut transaction, &texts).await?;
                    locked.1 = blobs::delete_unnamed(&mut transaction, &blobs).await?;
                    audit_rows::append(transaction, &[&draft]).await?;
                }
                Ok::<_, StoreError>((gone > 0, locked))
            })
        });
        let (is_gone, locked) = work.await?;
        self.delete_locked(NamedByRecords::Texts, locked.0).await;
        self.delete_locked(NamedByRecords::Blobs, locked.1).await;
        Ok(is_gone)
    }
}

const DELETE_ENDED: &str =
    "DELETE FROM runs WHERE id = $1 AND ended_ms IS NOT NULL AND session IS NULL";

/// Deletes the runs of a session and the facts that were kept for it, and returns the runs' ids.
pub(crate) async fn delete_turns<'c>(
    transaction: impl Into<OpenTransaction<'c>>,
    session: Uuid,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut transaction = transaction.into();
    delete_facts_of_session(&mut transaction, session).await?;
    let rows: Vec<(String,)> = transaction
        .rows(
            "DELETE FROM runs WHERE session = $1 RETURNING id",
            &[session.into()],
        )
        .await?;
    ids(&rows)
}

/// Runs a statement for one batch, and returns the ids of its rows.
async fn batch(
    transaction: &mut OpenTransaction<'_>,
    statement: &'static str,
    ms: u64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    let values = [signed(ms).into(), BATCH_ROWS.into()];
    let rows: Vec<(String,)> = transaction.rows(statement, &values).await?;
    ids(&rows)
}
