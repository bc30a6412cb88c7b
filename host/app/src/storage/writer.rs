//! What is written to the database, by one task: events of many runs that come at the same time are one
//! transaction, and so one wait for the disk.

use crate::storage::audit::{self, Draft};
use crate::storage::runs::Label;
use sqlx::{AnyConnection, AnyPool};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use toolhold_agent::run::approval::Pending;
use uuid::Uuid;

/// Whoever has more to write waits.
const QUEUE: usize = 1_024;
/// In one transaction.
const BATCH: usize = 256;
/// For how long a database that cannot be reached is tried. After that a run that cannot be recorded
/// ends here; it can be resumed.
const PATIENCE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<Entry>,
}

/// One thing that a run has to say, with all that follows from it.
#[derive(Debug)]
struct Entry {
    changes: Vec<Change>,
    /// Whether it must survive the machine, and not only the process.
    lasts: bool,
    done: oneshot::Sender<Result<(), Arc<sqlx::Error>>>,
}

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
    Event {
        run: Uuid,
        seq: i64,
        line: String,
    },
    /// A call waits for a person.
    Waits {
        run: Uuid,
        within: Uuid,
        pending: Box<Pending>,
        at_ms: i64,
    },
    /// It does no longer, for this reason.
    Settled {
        run: Uuid,
        within: Uuid,
        call: String,
        because: Settled,
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
    Released {
        run: Uuid,
        holder: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Its run took up what was decided, or ended.
    Done,
    /// Its run is taken up again, and will ask again; what was decided meanwhile holds.
    AskedAgain,
}

impl Writer {
    /// `is_file`: of one file, whose durability is a setting of the connection.
    pub fn start(pool: AnyPool, is_file: bool) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        tokio::spawn(write(Batches { pool, is_file }, entries));
        Self { queue }
    }

    /// When this returns, it is written.
    pub async fn write(&self, changes: Vec<Change>, lasts: bool) -> io::Result<()> {
        let (done, is_done) = oneshot::channel();
        let entry = Entry {
            changes,
            lasts,
            done,
        };
        let gone = || io::Error::other("the task that writes to the database is gone");
        self.queue.send(entry).await.map_err(|_| gone())?;
        match is_done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(gone()),
        }
    }

    /// For whoever cannot wait: it is lost if too much is being written.
    pub fn note(&self, change: Change) {
        let entry = Entry {
            changes: vec![change],
            lasts: false,
            done: oneshot::channel().0,
        };
        let _ = self.queue.try_send(entry);
    }
}

async fn write(batches: Batches, mut entries: mpsc::Receiver<Entry>) {
    let mut batch = Vec::with_capacity(BATCH);
    while entries.recv_many(&mut batch, BATCH).await > 0 {
        match batches.commit(&batch).await {
            Ok(()) => {
                for entry in batch.drain(..) {
                    let _ = entry.done.send(Ok(()));
                }
            }
            // One that cannot be written keeps no other from it.
            Err(_) if batch.len() > 1 => {
                for entry in batch.drain(..) {
                    let result = batches.commit(std::slice::from_ref(&entry)).await;
                    let _ = entry.done.send(result.map_err(Arc::new));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for entry in batch.drain(..) {
                    let _ = entry.done.send(Err(error.clone()));
                }
            }
        }
    }
}

struct Batches {
    pool: AnyPool,
    is_file: bool,
}

impl Batches {
    async fn commit(&self, entries: &[Entry]) -> Result<(), sqlx::Error> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            match self.commit_once(entries).await {
                Err(error) if is_away(&error) && started.elapsed() < PATIENCE => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
                result => return result,
            }
        }
    }

    async fn commit_once(&self, entries: &[Entry]) -> Result<(), sqlx::Error> {
        let lasts = entries.iter().any(|entry| entry.lasts);
        let mut connection = self.pool.acquire().await?;
        if self.is_file {
            // Either way a killed process loses nothing.
            let level = if lasts {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            };
            sqlx::query(level).execute(&mut *connection).await?;
        }
        let mut transaction = sqlx::Connection::begin(&mut *connection).await?;
        if !self.is_file && !lasts {
            sqlx::query("SET LOCAL synchronous_commit = off")
                .execute(&mut *transaction)
                .await?;
        }
        let mut drafts = Vec::new();
        for change in entries.iter().flat_map(|entry| &entry.changes) {
            match change {
                Change::Audit(draft) => drafts.push(draft.as_ref()),
                change => change.write(&mut transaction).await?,
            }
        }
        // Last: from here on nobody else can add to the log until this is committed.
        audit::append(&mut transaction, &drafts).await?;
        transaction.commit().await
    }
}

/// Whether the database may answer the same later.
fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        // PostgreSQL: connection exceptions, and a server that starts or stops. SQLite: busy, locked.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            code.starts_with("08") || code.starts_with("57P") || code == "5" || code == "6"
        }),
        _ => false,
    }
}

impl Change {
    async fn write(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        match self {
            Self::Began {
                run,
                label,
                task,
                model,
                at_ms,
                holder,
            } => {
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
            Self::Event { run, seq, line } => event(connection, *run, *seq, line).await?,
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
            Self::Settled {
                run,
                within,
                call,
                because,
            } => {
                let statement = match because {
                    Settled::Done => {
                        "DELETE FROM approvals WHERE run = $1 AND within = $2 AND call = $3"
                    }
                    Settled::AskedAgain => {
                        "DELETE FROM approvals WHERE run = $1 AND within = $2 AND call = $3 AND decision IS NULL"
                    }
                };
                sqlx::query(statement)
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

/// Once: of a commit whose answer was lost, the same event comes again.
async fn event(
    connection: &mut AnyConnection,
    run: Uuid,
    seq: i64,
    line: &str,
) -> Result<(), sqlx::Error> {
    let run = run.to_string();
    let written = sqlx::query(
        "INSERT INTO events (run, seq, line) VALUES ($1, $2, $3) ON CONFLICT (run, seq) DO NOTHING",
    )
    .bind(&run)
    .bind(seq)
    .bind(line)
    .execute(&mut *connection)
    .await?;
    if written.rows_affected() == 1 {
        return Ok(());
    }
    let known: String = sqlx::query_scalar("SELECT line FROM events WHERE run = $1 AND seq = $2")
        .bind(&run)
        .bind(seq)
        .fetch_one(connection)
        .await?;
    if known == line {
        return Ok(());
    }
    Err(sqlx::Error::Protocol(format!(
        "another process goes on with run {run}: event {seq} is there already, and another one"
    )))
}
