//! The changes of runs to the database, and their SQL statements.

use crate::audit_rows::{BegunCall, Draft};
use crate::claims::{RunClaim, RunLease};
use crate::error::WriteError;
use crate::images;
use crate::label::Label;
use crate::reply_parts;
use crate::shown_texts::{self, TextIds};
use sqlx::AnyConnection;
use std::collections::BTreeMap;
use std::sync::Arc;
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
    /// Images that the run, or one inside of it, began with: digest and base64.
    Images {
        run: Uuid,
        images: BTreeMap<String, Arc<str>>,
    },
    /// Texts of documents and facts that the run's record has.
    Shown {
        run: Uuid,
        /// The run whose record it has them from, if it does not have them itself.
        before: Option<Uuid>,
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
    /// The reply that the run's model is writing, as JSON. It is not written if the run has another lease.
    ReplyPart {
        run: Uuid,
        part: String,
        lease: RunLease,
    },
    /// The reply that was being written is recorded, or there is none any more.
    ReplyOver { run: Uuid },
    /// A row for the audit log.
    Audit(Box<Draft>),
    /// A call of no run is about to be made.
    CallBegan(Box<BegunCall>),
    /// A call of no run has ended.
    CallEnded { call: String },
    /// The process gives up the lease of a run that has not ended. The claim is dropped once this is written, so no
    /// other task of the process takes the run before.
    Released { run: RunClaim, holder: String },
}

impl Change {
    /// Runs the change's statements in a transaction. `is_file`: the database is SQLite.
    pub async fn write(
        &self,
        connection: &mut AnyConnection,
        is_file: bool,
    ) -> Result<(), WriteError> {
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
                    lock_session(connection, is_file, session).await?;
                }
                let added = sqlx::query(
                    "INSERT INTO runs (id, owner, agent, origin, session, turn, task, model, began_ms, holder, trace, \
                     fence) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING",
                )
                .bind(run.to_string())
                .bind(&label.owner)
                .bind(&label.agent)
                .bind(label.origin.name())
                .bind(label.turn.map(|(session, _)| session.to_string()))
                .bind(label.turn.map(|(_, turn)| i64::from(turn)))
                .bind(task)
                .bind(model)
                .bind(at_ms)
                .bind(&lease.holder)
                .bind(label.trace.as_deref())
                .bind(lease.fence)
                .execute(&mut *connection)
                .await?;
                // Not again if the run is there already, because the reply to an earlier commit was lost.
                if *is_promised && added.rows_affected() > 0 {
                    keep_promise(connection, *run, &lease.holder).await?;
                }
                if let Some(asked) = &label.asked {
                    sqlx::query(
                        "INSERT INTO responses (run, asked) VALUES ($1, $2) ON CONFLICT (run) DO NOTHING",
                    )
                    .bind(run.to_string())
                    .bind(asked)
                    .execute(connection)
                    .await?;
                }
            }
            Self::Images { run, images: added } => images::write(connection, *run, added).await?,
            Self::Shown { run, before, texts } => {
                shown_texts::write(connection, is_file, *run, *before, texts).await?;
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
                events.write(connection, is_file).await?;
            }
            Self::Waits {
                run,
                within,
                pending,
                at_ms,
            } => {
                let text =
                    serde_json::to_string(pending).map_err(|e| sqlx::Error::Encode(e.into()))?;
                sqlx::query(
                    "INSERT INTO approvals (run, within, call, digest, pending, asked_ms) \
                     VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (run, within, call) DO UPDATE SET \
                     pending = excluded.pending, asked_ms = excluded.asked_ms, digest = excluded.digest, \
                     decision = CASE WHEN approvals.digest = excluded.digest THEN approvals.decision END",
                )
                .bind(run.to_string())
                .bind(within.to_string())
                .bind(&pending.call.id)
                .bind(&pending.digest)
                .bind(text)
                .bind(at_ms)
                .execute(connection)
                .await?;
            }
            Self::Settled { run, within, call } => {
                sqlx::query("DELETE FROM approvals WHERE run = $1 AND within = $2 AND call = $3")
                    .bind(run.to_string())
                    .bind(within.to_string())
                    .bind(call)
                    .execute(connection)
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
                sqlx::query(
                    "UPDATE runs SET holder = NULL, ended_ms = $2, reason = $3, steps = $4, calls = $5, tokens = $6 \
                     WHERE id = $1",
                )
                .bind(run.to_string())
                .bind(at_ms)
                .bind(reason)
                .bind(steps)
                .bind(calls)
                .bind(tokens)
                .execute(&mut *connection)
                .await?;
                sqlx::query("DELETE FROM approvals WHERE run = $1")
                    .bind(run.to_string())
                    .execute(connection)
                    .await?;
            }
            Self::ReplyPart { run, part, lease } => {
                reply_parts::write(connection, *run, part, lease).await?;
            }
            Self::ReplyOver { run } => reply_parts::remove(connection, *run).await?,
            // The writer adds audit rows after all other changes of its batch, and the calls of a batch together.
            Self::Audit(_) | Self::CallBegan(_) | Self::CallEnded { .. } => {}
            Self::Released { run, holder } => {
                sqlx::query("UPDATE runs SET holder = NULL WHERE id = $1 AND holder = $2")
                    .bind(run.id().to_string())
                    .bind(holder)
                    .execute(connection)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Marks the promise of a run that begins as kept. The row is changed, so that a process that takes the holder for
/// dead, and gives the key free at the same time, waits for this transaction and then finds another holder.
async fn keep_promise(
    connection: &mut AnyConnection,
    run: Uuid,
    holder: &str,
) -> Result<(), WriteError> {
    let kept = sqlx::query("UPDATE idempotency SET holder = NULL WHERE run = $1 AND holder = $2")
        .bind(run.to_string())
        .bind(holder)
        .execute(connection)
        .await?;
    if kept.rows_affected() == 0 {
        return Err(WriteError::PromiseLost { run });
    }
    Ok(())
}

/// A further statement costs more than a further row. PostgreSQL, SQLite.
const BEGUN: [&str; 2] = [
    "INSERT INTO open_calls (call, holder, draft) SELECT call, holder, draft FROM json_to_recordset($1::json) AS begun \
     (call TEXT, holder TEXT, draft TEXT) WHERE true ON CONFLICT (call) DO NOTHING",
    "INSERT INTO open_calls (call, holder, draft) SELECT value ->> 'call', value ->> 'holder', value ->> 'draft' \
     FROM json_each($1) WHERE true ON CONFLICT (call) DO NOTHING",
];
const ENDED: [&str; 2] = [
    "DELETE FROM open_calls WHERE call IN (SELECT json_array_elements_text($1::json))",
    "DELETE FROM open_calls WHERE call IN (SELECT value FROM json_each($1))",
];

/// Writes which calls of no run have begun and ended.
pub async fn write_calls<'a>(
    connection: &mut AnyConnection,
    is_file: bool,
    changes: impl Iterator<Item = &'a Change>,
) -> Result<(), sqlx::Error> {
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            Change::CallBegan(call) => begun.push(call),
            Change::CallEnded { call } => ended.push(call),
            _ => {}
        }
    }
    let texts = [
        (
            BEGUN,
            (!begun.is_empty()).then(|| serde_json::to_string(&begun)),
        ),
        (
            ENDED,
            (!ended.is_empty()).then(|| serde_json::to_string(&ended)),
        ),
    ];
    for ([on_server, in_file], text) in texts {
        if let Some(text) = text {
            sqlx::query(if is_file { in_file } else { on_server })
                .bind(text.map_err(|error| sqlx::Error::Encode(error.into()))?)
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

/// Locks the session of a turn that begins, which must exist. On PostgreSQL the session cannot be deleted until the
/// transaction ends; later it cannot be deleted because it has an open turn.
async fn lock_session(
    connection: &mut AnyConnection,
    is_file: bool,
    session: Uuid,
) -> Result<(), WriteError> {
    let statement = if is_file {
        "SELECT created_ms FROM sessions WHERE id = $1"
    } else {
        "SELECT created_ms FROM sessions WHERE id = $1 FOR SHARE"
    };
    let held: Option<i64> = sqlx::query_scalar(statement)
        .bind(session.to_string())
        .fetch_optional(connection)
        .await?;
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

impl Events<'_> {
    async fn write(&self, connection: &mut AnyConnection, is_file: bool) -> Result<(), WriteError> {
        let [on_server, in_file] = ADD;
        let lines = serde_json::to_string(self.lines).map_err(|e| sqlx::Error::Encode(e.into()))?;
        let written = sqlx::query(if is_file { in_file } else { on_server })
            .bind(self.run.to_string())
            .bind(self.seq)
            .bind(lines)
            .bind(&self.lease.holder)
            .bind(self.lease.fence)
            .bind(i64::from(self.begin_calls))
            .execute(&mut *connection)
            .await?;
        let are_all = usize::try_from(written.rows_affected()) == Ok(self.lines.len());
        if are_all || self.are_written(connection).await? {
            return Ok(());
        }
        if self.begin_calls && self.is_cancelled(connection).await? {
            return Err(WriteError::Cancelled { run: self.run });
        }
        Err(WriteError::LeaseLost {
            run: self.run,
            seq: self.seq,
        })
    }

    /// Whether the run has this lease and was cancelled.
    async fn is_cancelled(&self, connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
        let cancelled: Option<i64> = sqlx::query_scalar(
            "SELECT cancel_ms FROM runs WHERE id = $1 AND holder = $2 AND fence = $3 AND cancel_ms IS NOT NULL",
        )
        .bind(self.run.to_string())
        .bind(&self.lease.holder)
        .bind(self.lease.fence)
        .fetch_optional(connection)
        .await?;
        Ok(cancelled.is_some())
    }

    /// Whether the database holds exactly these events, from an earlier commit whose reply was lost.
    async fn are_written(&self, connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
        let known: Vec<String> = sqlx::query_scalar(
            "SELECT line FROM events JOIN runs ON runs.id = events.run \
             WHERE run = $1 AND seq >= $2 AND seq < $2 + $3 \
             AND ((holder = $4 AND fence = $5) OR ended_ms IS NOT NULL) ORDER BY seq",
        )
        .bind(self.run.to_string())
        .bind(self.seq)
        .bind(i64::try_from(self.lines.len()).unwrap_or(i64::MAX))
        .bind(&self.lease.holder)
        .bind(self.lease.fence)
        .fetch_all(connection)
        .await?;
        Ok(known == self.lines)
    }
}
