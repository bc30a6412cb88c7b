//! What a run changes in the database, and the statements that do.

use crate::storage::audit::Draft;
use crate::storage::runs::Label;
use sqlx::AnyConnection;
use toolhold_agent::run::approval::Pending;
use uuid::Uuid;

#[derive(Debug)]
pub enum Change {
    /// A run is there.
    Began {
        run: Uuid,
        label: Box<Label>,
        task: String,
        model: String,
        at_ms: i64,
        holder: String,
    },
    /// Written only while the run is this process' own.
    Event {
        run: Uuid,
        seq: i64,
        line: String,
        holder: String,
    },
    /// A call waits for a person.
    Waits {
        run: Uuid,
        within: Uuid,
        pending: Box<Pending>,
        at_ms: i64,
    },
    /// It does no longer: its run took up what was decided, or ended.
    Settled {
        run: Uuid,
        within: Uuid,
        call: String,
    },
    Ended {
        run: Uuid,
        at_ms: i64,
        reason: String,
        steps: i64,
        calls: i64,
        tokens: i64,
    },
    /// Goes into the audit log.
    Audit(Box<Draft>),
    /// The process stopped without ending it.
    Released { run: Uuid, holder: String },
}

impl Change {
    /// Part of a transaction. `is_file`: of SQLite.
    pub async fn write(
        &self,
        connection: &mut AnyConnection,
        is_file: bool,
    ) -> Result<(), sqlx::Error> {
        match self {
            Self::Began {
                run,
                label,
                task,
                model,
                at_ms,
                holder,
            } => {
                if let Some((session, _)) = label.turn {
                    hold_session(connection, is_file, session).await?;
                }
                sqlx::query(
                    "INSERT INTO runs (id, owner, agent, origin, session, turn, task, model, began_ms, holder, trace) \
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (id) DO NOTHING",
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
                .bind(holder)
                .bind(label.trace.as_deref())
                .execute(connection)
                .await?;
            }
            Self::Event {
                run,
                seq,
                line,
                holder,
            } => {
                let row = EventRow {
                    run: run.to_string(),
                    seq: *seq,
                    line,
                    holder,
                };
                row.write(connection, is_file).await?;
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
            // After everything else of its batch, where the batch is written.
            Self::Audit(_) => {}
            Self::Released { run, holder } => {
                sqlx::query("UPDATE runs SET holder = NULL WHERE id = $1 AND holder = $2")
                    .bind(run.to_string())
                    .bind(holder)
                    .execute(connection)
                    .await?;
            }
        }
        Ok(())
    }
}

/// A session's turn begins only while the session is there, which on PostgreSQL cannot be deleted until the
/// turn is: it is not deleted while one goes on.
async fn hold_session(
    connection: &mut AnyConnection,
    is_file: bool,
    session: Uuid,
) -> Result<(), sqlx::Error> {
    let statement = if is_file {
        "SELECT created_ms FROM sessions WHERE id = $1"
    } else {
        "SELECT created_ms FROM sessions WHERE id = $1 FOR SHARE"
    };
    let held: Option<i64> = sqlx::query_scalar(statement)
        .bind(session.to_string())
        .fetch_optional(connection)
        .await?;
    held.map(drop).ok_or_else(|| {
        sqlx::Error::Protocol(format!(
            "there is no session {session} any more: a turn of it cannot begin"
        ))
    })
}

struct EventRow<'a> {
    run: String,
    seq: i64,
    line: &'a str,
    holder: &'a str,
}

/// Only after the event before, and for a run that is held. On PostgreSQL whoever takes the run over waits for
/// us, or we for them.
const ADD: [&str; 2] = [
    "INSERT INTO events (run, seq, line) SELECT $1, $2, $3 \
     WHERE ($2 = 0 OR EXISTS (SELECT 1 FROM events WHERE run = $1 AND seq = $2 - 1)) \
     AND EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $4 FOR SHARE) ON CONFLICT (run, seq) DO NOTHING",
    "INSERT INTO events (run, seq, line) SELECT $1, $2, $3 \
     WHERE ($2 = 0 OR EXISTS (SELECT 1 FROM events WHERE run = $1 AND seq = $2 - 1)) \
     AND EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $4) ON CONFLICT (run, seq) DO NOTHING",
];

impl EventRow<'_> {
    async fn write(
        &self,
        connection: &mut AnyConnection,
        is_file: bool,
    ) -> Result<(), sqlx::Error> {
        let [on_server, in_file] = ADD;
        let written = sqlx::query(if is_file { in_file } else { on_server })
            .bind(&self.run)
            .bind(self.seq)
            .bind(self.line)
            .bind(self.holder)
            .execute(&mut *connection)
            .await?;
        if written.rows_affected() == 1 || self.is_written(connection).await? {
            return Ok(());
        }
        Err(sqlx::Error::Protocol(format!(
            "another process goes on with run {}, or some of it is gone: its event {} cannot be written here",
            self.run, self.seq
        )))
    }

    /// Of a commit whose answer was lost, the same event comes again.
    async fn is_written(&self, connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
        let known: Option<String> = sqlx::query_scalar(
            "SELECT line FROM events JOIN runs ON runs.id = events.run WHERE run = $1 AND seq = $2 \
             AND (holder = $3 OR ended_ms IS NOT NULL)",
        )
        .bind(&self.run)
        .bind(self.seq)
        .bind(self.holder)
        .fetch_optional(connection)
        .await?;
        Ok(known.is_some_and(|known| known == self.line))
    }
}
