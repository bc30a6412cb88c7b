//! What is written to the database, by one task: events of many runs that come at the same time are one
//! transaction, and so one wait for the disk.

use crate::storage::audit;
use crate::storage::change::Change;
use crate::storage::health::{Health, Trouble};
use sqlx::{AnyConnection, AnyPool};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Whoever has more to write waits.
const QUEUE: usize = 1_024;
/// In one transaction.
const BATCH: usize = 256;
/// Of what PostgreSQL need not put on its disk at once. It does so by itself within a second.
const UNFLUSHED: usize = 4_096;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// For how long another process may keep SQLite's file to itself.
const BUSY: Duration = Duration::from_secs(30);
/// For an answer of PostgreSQL. A connection whose other end is gone without a word says nothing at all.
const ANSWER: Duration = Duration::from_secs(30);
/// Between two looks whether a database that failed works again, where nobody has anything to write.
const LOOKS: Duration = Duration::from_secs(1);

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

impl Entry {
    fn has_events(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| matches!(change, Change::Event { .. }))
    }
}

impl Writer {
    /// `is_file`: of one file, whose durability is a setting of the connection. For `patience`, a database
    /// that cannot be used is tried; after that a run that cannot be recorded stops, and can be resumed.
    pub fn start(pool: AnyPool, is_file: bool, patience: Duration, health: Health) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        let batches = Batches {
            pool,
            is_file,
            patience,
            health,
            unflushed: Vec::new(),
        };
        tokio::spawn(write(batches, entries));
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

async fn write(mut batches: Batches, mut entries: mpsc::Receiver<Entry>) {
    let mut batch = Vec::with_capacity(BATCH);
    while batches.next(&mut entries, &mut batch).await.is_continue() {
        match batches.commit(&batch).await {
            Ok(()) => batches.answer(&mut batch),
            // One that cannot be written keeps no other from it.
            Err(error) if batch.len() > 1 && Trouble::of(&error).is_none() => {
                for entry in batch.drain(..) {
                    let mut one = vec![entry];
                    match batches.commit(&one).await {
                        Ok(()) => batches.answer(&mut one),
                        Err(error) => refuse(&mut one, error),
                    }
                }
            }
            Err(error) => refuse(&mut batch, error),
        }
    }
}

fn refuse(batch: &mut Vec<Entry>, error: sqlx::Error) {
    let error = Arc::new(error);
    for entry in batch.drain(..) {
        let _ = entry.done.send(Err(error.clone()));
    }
}

struct Batches {
    pool: AnyPool,
    is_file: bool,
    patience: Duration,
    health: Health,
    /// Events that PostgreSQL took and may lose if it crashes while this process goes on: written again then.
    unflushed: Vec<Change>,
}

impl Batches {
    /// Waits for what is to be written, and meanwhile for the end of what keeps it from being written.
    async fn next(
        &self,
        entries: &mut mpsc::Receiver<Entry>,
        batch: &mut Vec<Entry>,
    ) -> ControlFlow<()> {
        loop {
            let is_troubled = self.health.trouble().is_some();
            tokio::select! {
                biased;
                received = entries.recv_many(batch, BATCH) => return match received {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                },
                () = tokio::time::sleep(LOOKS), if is_troubled => self.probe().await,
                () = self.health.breaks(), if !is_troubled => {}
            }
        }
    }

    /// Writes something that changes nothing.
    async fn probe(&self) {
        match self.within(self.probe_once()).await {
            Ok(()) => self.health.works(),
            Err(error) => {
                if let Some(trouble) = Trouble::of(&error) {
                    self.health.failed(trouble, &error);
                }
            }
        }
    }

    async fn probe_once(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        connection.close_on_drop();
        let mut transaction = sqlx::Connection::begin(&mut *connection).await?;
        // SQLite does not write what is as it was before; there and back is a change to it.
        for statement in [
            "UPDATE audit_head SET number = number + 1",
            "UPDATE audit_head SET number = number - 1",
        ] {
            sqlx::query(statement).execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }

    /// Of a batch that was committed.
    fn answer(&mut self, batch: &mut Vec<Entry>) {
        let lasts = self.is_file || self.lasts(batch);
        if lasts {
            self.unflushed.clear();
        }
        for entry in batch.drain(..) {
            if !lasts {
                let events = entry.changes.into_iter();
                let events = events.filter(|change| matches!(change, Change::Event { .. }));
                self.unflushed.extend(events);
            }
            let _ = entry.done.send(Ok(()));
        }
    }

    fn lasts(&self, entries: &[Entry]) -> bool {
        entries.iter().any(|entry| entry.lasts) || self.unflushed.len() >= UNFLUSHED
    }

    async fn commit(&mut self, entries: &[Entry]) -> Result<(), sqlx::Error> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut is_again = false;
        loop {
            let error = match self.within(self.commit_once(entries, is_again)).await {
                Ok(()) => {
                    // What changed nothing was not written.
                    if entries.iter().any(Entry::has_events) {
                        self.health.works();
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            let trouble = Trouble::of(&error);
            if !self.unflushed.is_empty() {
                if !is_again {
                    is_again = true;
                    continue;
                }
                if trouble.is_none() {
                    // Some of it is not ours any more. Whose beginning is lost is refused what comes after.
                    self.unflushed.clear();
                    continue;
                }
            }
            let is_over = match trouble {
                Some(trouble) => {
                    self.health.failed(trouble, &error);
                    // Who comes late need not wait for what others waited for already.
                    let since = self.health.since().unwrap_or(started);
                    since.elapsed() >= self.patience
                }
                None => !is_busy(&error) || started.elapsed() >= BUSY,
            };
            if is_over {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// SQLite's file may be slow, and never without an answer.
    async fn within(
        &self,
        work: impl Future<Output = Result<(), sqlx::Error>>,
    ) -> Result<(), sqlx::Error> {
        if self.is_file {
            return work.await;
        }
        let done = tokio::time::timeout(ANSWER, work).await;
        done.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    async fn commit_once(&self, entries: &[Entry], is_again: bool) -> Result<(), sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let written = self.write_all(&mut connection, entries, is_again).await;
        if written
            .as_ref()
            .is_err_and(|error| Trouble::of(error).is_some())
        {
            // SQLite has ended the transaction by itself, which the pool's connection does not know.
            connection.close_on_drop();
        }
        written
    }

    async fn write_all(
        &self,
        connection: &mut AnyConnection,
        entries: &[Entry],
        is_again: bool,
    ) -> Result<(), sqlx::Error> {
        let lasts = is_again || self.lasts(entries);
        if self.is_file {
            // Either way a killed process loses nothing.
            let level = if lasts {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            };
            sqlx::query(level).execute(&mut *connection).await?;
        }
        let mut transaction = sqlx::Connection::begin(connection).await?;
        if !self.is_file && !lasts {
            sqlx::query("SET LOCAL synchronous_commit = off")
                .execute(&mut *transaction)
                .await?;
        }
        let mut drafts = Vec::new();
        let before = self.unflushed.iter().filter(|_| is_again);
        let new = entries.iter().flat_map(|entry| &entry.changes);
        for change in before.chain(new) {
            match change {
                Change::Audit(draft) => drafts.push(draft.as_ref()),
                change => change.write(&mut transaction, self.is_file).await?,
            }
        }
        // Last: from here on nobody else can add to the log until this is committed.
        audit::append(&mut transaction, &drafts).await?;
        transaction.commit().await
    }
}

/// SQLite: another process is writing, or was while this one began to.
fn is_busy(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let code = error.code().and_then(|code| code.parse::<u32>().ok());
    // SQLITE_BUSY, SQLITE_LOCKED and their extended codes; PostgreSQL's have five digits.
    code.is_some_and(|code| code < 10_000 && matches!(code & 0xff, 5 | 6))
}
