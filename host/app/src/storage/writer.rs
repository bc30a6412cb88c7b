//! What is written to the database, by one task: events of many runs that come at the same time are one
//! transaction, and so one wait for the disk.

use crate::storage::audit;
use crate::storage::change::Change;
use crate::storage::database::Database;
use crate::storage::health::{FIRST_SQLSTATE, Health, Trouble};
use sqlx::AnyConnection;
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
const UNFLUSHED: usize = 512;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// For how long another process may keep SQLite's file to itself.
const BUSY: Duration = Duration::from_secs(30);
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
        changes.any(|change| matches!(change, Change::Events { .. }))
    }
}

impl Writer {
    /// For `patience`, a database that cannot be used is tried; after that a run that cannot be recorded stops,
    /// and can be resumed.
    pub fn start(database: Database, patience: Duration, health: Health) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        let batches = Batches {
            database,
            line: None,
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
            Ok(lasts) => batches.answer(&mut batch, lasts),
            // One that cannot be written keeps no other from it.
            Err(error) if batch.len() > 1 && !is_of_database(&error) => {
                for entry in batch.drain(..) {
                    let mut one = vec![entry];
                    match batches.commit(&one).await {
                        Ok(lasts) => batches.answer(&mut one, lasts),
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

/// A connection.
struct Line {
    connection: AnyConnection,
    /// SQLite: whether what is committed must survive the machine.
    lasts: Option<bool>,
}

impl Line {
    async fn to(database: &Database) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: database.connect().await?,
            lasts: None,
        })
    }

    /// SQLite: either way a killed process loses nothing.
    async fn make_last(&mut self, lasts: bool) -> Result<(), sqlx::Error> {
        if self.lasts != Some(lasts) {
            let level = if lasts {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            };
            sqlx::query(level).execute(&mut self.connection).await?;
            self.lasts = Some(lasts);
        }
        Ok(())
    }
}

struct Batches {
    database: Database,
    /// None after a fault.
    line: Option<Line>,
    patience: Duration,
    health: Health,
    /// Events that PostgreSQL took and may lose if it crashes while this process goes on: written again then.
    unflushed: Vec<Change>,
}

impl Batches {
    /// Waits for what is to be written, and meanwhile for the end of what keeps it from being written.
    async fn next(
        &mut self,
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

    async fn probe(&mut self) {
        match self.database.within(probe(&self.database)).await {
            Ok(()) => self.health.works(),
            Err(error) => {
                if let Some(trouble) = Trouble::of(&error) {
                    self.health.failed(trouble, &error);
                }
            }
        }
    }

    /// Of a batch that was committed, and whether all that was committed survives the machine.
    fn answer(&mut self, batch: &mut Vec<Entry>, lasts: bool) {
        if lasts {
            self.unflushed.clear();
        }
        for entry in batch.drain(..) {
            if !lasts {
                let events = entry.changes.into_iter();
                let events = events.filter(|change| matches!(change, Change::Events { .. }));
                self.unflushed.extend(events);
            }
            let _ = entry.done.send(Ok(()));
        }
    }

    async fn commit(&mut self, entries: &[Entry]) -> Result<bool, sqlx::Error> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let database = self.database.clone();
            let error = match database.within(self.commit_once(entries)).await {
                Ok(lasts) => {
                    // What changed nothing was not written.
                    if entries.iter().any(Entry::has_events) {
                        self.health.works();
                    }
                    return Ok(lasts);
                }
                Err(error) => error,
            };
            let is_late = started.elapsed() >= BUSY;
            let trouble = match Trouble::of(&error) {
                None if is_passing(&error) && is_late => Some(Trouble::Away),
                trouble => trouble,
            };
            let is_over = match trouble {
                Some(trouble) => {
                    self.health.failed(trouble, &error);
                    // Who comes late need not wait for what others waited for already.
                    let since = self.health.since().unwrap_or(started);
                    since.elapsed() >= self.patience
                }
                None => !is_passing(&error),
            };
            if is_over {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn commit_once(&mut self, entries: &[Entry]) -> Result<bool, sqlx::Error> {
        let (mut line, is_new) = match self.line.take() {
            Some(line) => (line, false),
            None => (Line::to(&self.database).await?, true),
        };
        // The server may have crashed since the connection before.
        let is_again = is_new && !self.unflushed.is_empty();
        let lasts = self.database.is_file() || is_again || self.must_last(entries);
        let written = self.write_all(&mut line, entries, is_again).await;
        // SQLite ends a transaction by itself if something is wrong with the file.
        if !written.as_ref().is_err_and(is_of_database) {
            self.line = Some(line);
        }
        written.map(|()| lasts)
    }

    fn must_last(&self, entries: &[Entry]) -> bool {
        entries.iter().any(|entry| entry.lasts) || self.unflushed.len() >= UNFLUSHED
    }

    async fn write_all(
        &mut self,
        line: &mut Line,
        entries: &[Entry],
        is_again: bool,
    ) -> Result<(), sqlx::Error> {
        let lasts = is_again || self.must_last(entries);
        let is_file = self.database.is_file();
        if is_file {
            line.make_last(lasts).await?;
        }
        let mut transaction = sqlx::Connection::begin(&mut line.connection).await?;
        if !is_file && !lasts {
            sqlx::query("SET LOCAL synchronous_commit = off")
                .execute(&mut *transaction)
                .await?;
        }
        for change in self.unflushed.iter().filter(|_| is_again) {
            match change.write(&mut transaction, is_file).await {
                // Another process' run by now; what comes after is refused.
                Ok(()) | Err(sqlx::Error::Protocol(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut drafts = Vec::new();
        for change in entries.iter().flat_map(|entry| &entry.changes) {
            match change {
                Change::Audit(draft) => drafts.push(draft.as_ref()),
                change => change.write(&mut transaction, is_file).await?,
            }
        }
        // Last: from here on nobody else can add to the log until this is committed.
        audit::append(&mut transaction, &drafts).await?;
        transaction.commit().await
    }
}

/// Writes something that changes nothing.
async fn probe(database: &Database) -> Result<(), sqlx::Error> {
    let mut connection = database.connect().await?;
    let mut transaction = sqlx::Connection::begin(&mut connection).await?;
    // SQLite does not write what is as it was before; there and back is a change to it.
    for statement in [
        "UPDATE audit_head SET number = number + 1",
        "UPDATE audit_head SET number = number - 1",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Whether it says more about the database than about what was to be written.
fn is_of_database(error: &sqlx::Error) -> bool {
    Trouble::of(error).is_some() || is_passing(error)
}

/// What others do at the same time, and what can be tried again: another process is writing to SQLite's file,
/// or was while this one began to; PostgreSQL's serialization failures, deadlocks, locks that are not there in
/// time, cancelled statements, and resources that it has too little of.
fn is_passing(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let Some(code) = error.code() else {
        return false;
    };
    match code.parse::<u32>() {
        // SQLITE_BUSY, SQLITE_LOCKED and their extended codes.
        Ok(code) if code < FIRST_SQLSTATE => matches!(code & 0xff, 5 | 6),
        _ => matches!(&*code, "40001" | "40P01" | "55P03" | "57014") || code.starts_with("53"),
    }
}
