//! The changes of runs to the database, and their SQL statements.

use crate::audit_rows::{BegunCall, Draft};
use crate::blob_quota::BlobBound;
use crate::blobs::{self, Blob};
use crate::claims::{RunClaim, RunLease};
use crate::error::WriteError;
use crate::label::Label;
use crate::reply_parts::{self, ReplyPart};
use crate::shared_texts::{self, SharedText};
use crate::shown_texts::{self, TextIds};
use crate::statements::{OpenTransaction, SqlValue};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use toolhold_protocol::decision::Pending;
use uuid::Uuid;

/// A change that a run, or a call outside of one, makes.
#[derive(Debug)]
pub enum Change {
    /// A run began.
    Began {
        run: Uuid,
        label: Box<Label>,
        task: String,
        model: String,
        at_ms: i64,
        lease: RunLease,
        /// True if this process has promised the run to a request with an idempotency key.
        is_promised: bool,
    },
    /// Images that the run, or one inside of it, began with, or bytes of its results; by their digests.
    Blobs {
        run: Uuid,
        blobs: BTreeMap<String, Blob>,
        /// Present for a run that begins, or has a result, within a quota.
        bound: Option<BlobBound>,
    },
    /// Texts of documents and facts that the run's record has.
    Shown {
        run: Uuid,
        /// Earlier runs whose records had the texts before.
        before: Vec<Uuid>,
        texts: TextIds,
    },
    /// Consecutive events. They are written only while the run has this lease, and with them the other changes of their
    /// transaction, such as calls that begin or end and decisions that were read. Those with which calls begin are not
    /// written once the run was cancelled.
    Events {
        run: Uuid,
        /// Number of the first event.
        seq: i64,
        lines: Vec<String>,
        lease: RunLease,
        /// True if calls begin with them, and the run does not end.
        begin_calls: bool,
    },
    /// A text that an event of the run names by its digest.
    SharedText {
        run: Uuid,
        /// Number of the event.
        seq: i64,
        text: SharedText,
    },
    /// A call waits for a person's decision.
    Waits {
        run: Uuid,
        within: Uuid,
        pending: Box<Pending>,
        at_ms: i64,
    },
    /// A call no longer waits: its run has read the decision, or ended.
    Settled {
        run: Uuid,
        within: Uuid,
        call: String,
    },
    /// A run ended.
    Ended {
        run: Uuid,
        at_ms: i64,
        reason: String,
        steps: i64,
        calls: i64,
        tokens: i64,
    },
    /// The reply that the run's model is writing. It is not written if the run has another lease.
    ReplyPart {
        run: Uuid,
        part: ReplyPart,
        lease: RunLease,
    },
    /// The reply that was being written is recorded, or there is none any more.
    ReplyOver { run: Uuid },
    /// A row for the audit log.
    Audit(Box<Draft>),
    /// A call of no run is about to be made: PostgreSQL. For a SQLite file, the process has it in a file of its own.
    CallBegan(Box<BegunCall>),
    /// A call of no run has ended.
    CallEnded { call: String },
    /// The process gives up the lease of a run that has not ended. The claim is dropped once this is written, so no
    /// other task of the process takes the run before.
    Released { run: RunClaim, holder: String },
}

impl Change {
    /// Runs the change's statements.
    pub async fn write(&self, transaction: &mut OpenTransaction<'_>) -> Result<(), WriteError> {
        match self {
            Self::Began {
                run,
                label,
                task,
                model,
                at_ms,
                lease,
                is_promised,
            } => {
                if let Some((session, _)) = label.turn {
                    lock_session(transaction, session).await?;
                }
                let values = [
                    SqlValue::from(*run),
                    (&label.owner).into(),
                    (&label.agent).into(),
                    label.origin.name().into(),
                    label.turn.map(|(session, _)| session.to_string()).into(),
                    label.turn.map(|(_, turn)| i64::from(turn)).into(),
                    task.into(),
                    model.into(),
                    (*at_ms).into(),
                    (&lease.holder).into(),
                    label.trace.as_deref().into(),
                    lease.fence.into(),
                ];
                let added = transaction.execute(ADD_RUN, &values).await?;
                // Not again if the run is there already, because the reply to an earlier commit was lost.
                if *is_promised && added > 0 {
                    keep_promise(transaction, *run, &lease.holder).await?;
                }
                if let Some(asked) = &label.asked {
                    transaction
                        .execute(
                            "INSERT INTO responses (run, asked) VALUES ($1, $2) ON CONFLICT (run) DO NOTHING",
                            &[(*run).into(), asked.into()],
                        )
                        .await?;
                }
            }
            Self::Blobs {
                run,
                blobs: added,
                bound,
            } => blobs::write(transaction, *run, added, bound.as_ref()).await?,
            Self::Shown { run, before, texts } => {
                shown_texts::write(transaction, *run, before, texts).await?;
            }
            Self::Events {
                run,
                seq,
                lines,
                lease,
                begin_calls,
            } => {
                let events = Events {
                    run: *run,
                    seq: *seq,
                    lines,
                    lease,
                    begin_calls: *begin_calls,
                };
                events.write(transaction).await?;
            }
            Self::SharedText { run, seq, text } => {
                shared_texts::write(transaction, *run, *seq, text).await?;
            }
            Self::Waits {
                run,
                within,
                pending,
                at_ms,
            } => {
                let text =
                    serde_json::to_string(pending).map_err(|e| sqlx::Error::Encode(e.into()))?;
                let values = [
                    SqlValue::from(*run),
                    (*within).into(),
                    (&pending.call.id).into(),
                    (&pending.digest).into(),
                    text.into(),
                    (*at_ms).into(),
                ];
                transaction.execute(ADD_WAITING, &values).await?;
            }
            Self::Settled { run, within, call } => {
                transaction
                    .execute(
                        "DELETE FROM approvals WHERE run = $1 AND within = $2 AND call = $3",
                        &[(*run).into(), (*within).into(), call.into()],
                    )
                    .await?;
            }
            Self::Ended {
                run,
                at_ms,
                reason,
                steps,
                calls,
                tokens,
            } => {
                let values = [
                    SqlValue::from(*run),
                    (*at_ms).into(),
                    reason.into(),
                    (*steps).into(),
                    (*calls).into(),
                    (*tokens).into(),
                ];
                transaction.execute(END_RUN, &values).await?;
                transaction
                    .execute("DELETE FROM approvals WHERE run = $1", &[(*run).into()])
                    .await?;
                reply_parts::remove(transaction, *run).await?;
            }
            Self::ReplyPart { run, part, lease } => {
                reply_parts::write(transaction, *run, part, lease).await?;
            }
            Self::ReplyOver { run } => reply_parts::remove(transaction, *run).await?,
            // The writer adds audit rows after all other changes of its batch, and the calls of a batch together.
            Self::Audit(_) | Self::CallBegan(_) | Self::CallEnded { .. } => {}
            Self::Released { run, holder } => {
                transaction
                    .execute(
                        "UPDATE runs SET holder = NULL WHERE id = $1 AND holder = $2",
                        &[run.id().into(), holder.into()],
                    )
                    .await?;
            }
        }
        Ok(())
    }
}

const ADD_RUN: &str = "INSERT INTO runs (id, owner, agent, origin, session, turn, task, model, began_ms, holder, trace, \
     fence) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING";
const ADD_WAITING: &str = "INSERT INTO approvals (run, within, call, digest, pending, asked_ms) \
     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (run, within, call) DO UPDATE SET \
     pending = excluded.pending, asked_ms = excluded.asked_ms, digest = excluded.digest, \
     decision = CASE WHEN approvals.digest = excluded.digest THEN approvals.decision END";
const END_RUN: &str = "UPDATE runs SET holder = NULL, ended_ms = $2, reason = $3, steps = $4, calls = $5, tokens = $6 \
     WHERE id = $1";

/// Marks the promise of a run that begins as kept. The row is changed, so that a process that takes the holder for
/// dead, and gives the key free at the same time, waits for this transaction and then finds another holder.
async fn keep_promise(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    holder: &str,
) -> Result<(), WriteError> {
    let kept = transaction
        .execute(
            "UPDATE idempotency SET holder = NULL WHERE run = $1 AND holder = $2",
            &[run.into(), holder.into()],
        )
        .await?;
    if kept == 0 {
        return Err(WriteError::PromiseLost { run });
    }
    Ok(())
}

/// Adds calls that have begun.
const BEGUN_CALLS: &str = "INSERT INTO open_calls (call, holder, draft) SELECT call, holder, draft \
     FROM json_to_recordset($1::json) AS begun (call TEXT, holder TEXT, draft TEXT) WHERE true \
     ON CONFLICT (call) DO NOTHING";
/// Removes calls that have ended.
const ENDED_CALLS: &str =
    "DELETE FROM open_calls WHERE call IN (SELECT json_array_elements_text($1::json))";

/// Writes which calls of no run have begun and ended: PostgreSQL. For a SQLite file the process has these in a file of its
/// own (`calls_file`).
pub async fn write_calls<'a>(
    transaction: &mut OpenTransaction<'_>,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<(), sqlx::Error> {
    if transaction.is_file() {
        return Ok(());
    }
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::CallBegan(call) => begun.push(call),
            Change::CallEnded { call } => ended.push(call),
            _ => {}
        }
    }
    let encoding = |error: serde_json::Error| sqlx::Error::Encode(error.into());
    if !begun.is_empty() {
        let list = serde_json::to_string(&begun).map_err(encoding)?;
        transaction.execute(BEGUN_CALLS, &[list.into()]).await?;
    }
    if !ended.is_empty() {
        let list = serde_json::to_string(&ended).map_err(encoding)?;
        transaction.execute(ENDED_CALLS, &[list.into()]).await?;
    }
    Ok(())
}

/// Locks the session of a turn that begins, which must exist. On PostgreSQL the session cannot be deleted until the
/// transaction ends; later it cannot be deleted because it has an open turn.
async fn lock_session(
    transaction: &mut OpenTransaction<'_>,
    session: Uuid,
) -> Result<(), WriteError> {
    let statement = transaction.choose([
        "SELECT created_ms FROM sessions WHERE id = $1 FOR SHARE",
        "SELECT created_ms FROM sessions WHERE id = $1",
    ]);
    let held: Option<(i64,)> = transaction.row(statement, &[session.into()]).await?;
    held.map(drop).ok_or(WriteError::SessionGone { session })
}

/// Consecutive events of a run.
struct Events<'a> {
    run: Uuid,
    seq: i64,
    lines: &'a [String],
    lease: &'a RunLease,
    begin_calls: bool,
}

/// Inserts events after the one before, for a run that has this lease and, where calls begin with them ($6), was not
/// cancelled. On PostgreSQL, `FOR SHARE` makes a process that takes the run over, or cancels it, wait for this transaction,
/// or this transaction for it. PostgreSQL, SQLite.
const ADD: [&str; 2] = [
    "INSERT INTO events (run, seq, line) \
     SELECT $1, $2 + place - 1, line FROM json_array_elements_text($3::json) WITH ORDINALITY AS added (line, place) \
     WHERE ($2 = 0 OR EXISTS (SELECT 1 FROM events WHERE run = $1 AND seq = $2 - 1)) \
     AND EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $4 AND fence = $5 \
     AND ($6 = 0 OR cancel_ms IS NULL) FOR SHARE) ON CONFLICT (run, seq) DO NOTHING",
    "INSERT INTO events (run, seq, line) SELECT $1, $2 + key, value FROM json_each($3) \
     WHERE ($2 = 0 OR EXISTS (SELECT 1 FROM events WHERE run = $1 AND seq = $2 - 1)) \
     AND EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $4 AND fence = $5 \
     AND ($6 = 0 OR cancel_ms IS NULL)) ON CONFLICT (run, seq) DO NOTHING",
];

/// Most lines that a statement for SQLite has as values of their own.
const MAX_VALUES: usize = 8;

/// [`ADD`] for SQLite with 1, 2, 3… lines as values. A list of lines is JSON in JSON, which is written and read once more.
static ADD_VALUES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let add = |lines: usize| {
        let rows: Vec<String> = (0..lines)
            .map(|place| format!("({place}, ${})", place + 6))
            .collect();
        format!(
            "INSERT INTO events (run, seq, line) SELECT $1, $2 + column1, column2 FROM (VALUES {}) \
             WHERE ($2 = 0 OR EXISTS (SELECT 1 FROM events WHERE run = $1 AND seq = $2 - 1)) \
             AND EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $3 AND fence = $4 \
             AND ($5 = 0 OR cancel_ms IS NULL)) ON CONFLICT (run, seq) DO NOTHING",
            rows.join(", ")
        )
    };
    (1..=MAX_VALUES).map(add).collect()
});

const CANCELLED: &str = "SELECT cancel_ms FROM runs WHERE id = $1 AND holder = $2 AND fence = $3 AND cancel_ms IS NOT NULL";
const WRITTEN: &str = "SELECT line FROM events JOIN runs ON runs.id = events.run \
     WHERE run = $1 AND seq >= $2 AND seq < $2 + $3 \
     AND ((holder = $4 AND fence = $5) OR ended_ms IS NOT NULL) ORDER BY seq";

impl Events<'_> {
    async fn write(&self, transaction: &mut OpenTransaction<'_>) -> Result<(), WriteError> {
        let written = self.add(transaction).await?;
        let are_all = usize::try_from(written) == Ok(self.lines.len());
        if are_all || self.are_written(transaction).await? {
            return Ok(());
        }
        if self.begin_calls && self.is_cancelled(transaction).await? {
            return Err(WriteError::Cancelled { run: self.run });
        }
        Err(WriteError::LeaseLost {
            run: self.run,
            seq: self.seq,
        })
    }

    /// Adds the lines, if they may be written. Returns the number of those that were.
    async fn add(&self, transaction: &mut OpenTransaction<'_>) -> Result<u64, sqlx::Error> {
        let few = self.lines.len().checked_sub(1);
        let few = few.and_then(|last| ADD_VALUES.get(last));
        if let Some(statement) = few.filter(|_| transaction.is_file()) {
            let mut values = vec![
                SqlValue::from(self.run),
                self.seq.into(),
                (&self.lease.holder).into(),
                self.lease.fence.into(),
                i64::from(self.begin_calls).into(),
            ];
            values.extend(self.lines.iter().map(SqlValue::from));
            return transaction.execute(statement, &values).await;
        }
        let lines = serde_json::to_string(self.lines).map_err(|e| sqlx::Error::Encode(e.into()))?;
        let values = [
            SqlValue::from(self.run),
            self.seq.into(),
            lines.into(),
            (&self.lease.holder).into(),
            self.lease.fence.into(),
            i64::from(self.begin_calls).into(),
        ];
        let statement = transaction.choose(ADD);
        transaction.execute(statement, &values).await
    }

    /// Whether the run has this lease and was cancelled.
    async fn is_cancelled(
        &self,
        transaction: &mut OpenTransaction<'_>,
    ) -> Result<bool, sqlx::Error> {
        let values = [
            SqlValue::from(self.run),
            (&self.lease.holder).into(),
            self.lease.fence.into(),
        ];
        let cancelled: Option<(i64,)> = transaction.row(CANCELLED, &values).await?;
        Ok(cancelled.is_some())
    }

    /// Whether the database holds exactly these events, from an earlier commit whose reply was lost.
    async fn are_written(
        &self,
        transaction: &mut OpenTransaction<'_>,
    ) -> Result<bool, sqlx::Error> {
        let values = [
            SqlValue::from(self.run),
            self.seq.into(),
            i64::try_from(self.lines.len()).unwrap_or(i64::MAX).into(),
            (&self.lease.holder).into(),
            self.lease.fence.into(),
        ];
        let known: Vec<(String,)> = transaction.rows(WRITTEN, &values).await?;
        Ok(known.iter().map(|(line,)| line).eq(self.lines))
    }
}
