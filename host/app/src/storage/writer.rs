//! What is written to the database, by one task: events of many runs that come at the same time are one
//! transaction, and so one wait for the disk.

use crate::storage::audit::{self, Head};
use crate::storage::change::Change;
use crate::storage::database::Database;
use crate::storage::health::{FIRST_SQLSTATE, Health, Trouble};
use sqlx::AnyConnection;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};

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

/// How long what nobody waits for waits for more of its kind.
const GATHER: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<Entry>,
    /// Told when somebody waits.
    urgent: Arc<Notify>,
}

/// One thing that a run has to say, with all that follows from it.
#[derive(Debug)]
struct Entry {
    changes: Vec<Change>,
    /// Whether it must survive the machine, and not only the process.
    lasts: bool,
    /// None: nobody waits.
    done: Option<oneshot::Sender<Result<(), Arc<sqlx::Error>>>>,
}

impl Entry {
    fn unwaited(change: Change) -> Self {
        Self {
            changes: vec![change],
            lasts: false,
            done: None,
        }
    }

    /// What always changes something in the database.
    fn is_written(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| matches!(change, Change::Events { .. } | Change::Audit(_)))
    }

    /// A row of the audit log whose result was given out.
    fn is_due(&self) -> bool {
        self.done.is_none() && self.is_written()
    }
}

impl Writer {
    /// For `patience`, a database that cannot be used is tried; after that a run that cannot be recorded stops,
    /// and can be resumed.
    pub fn start(database: Database, patience: Duration, health: Health) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        let urgent = Arc::<Notify>::default();
        let batches = Batches {
            database,
            line: None,
            patience,
            health,
            unflushed: Vec::new(),
            due: Vec::new(),
            urgent: urgent.clone(),
            next_look: tokio::time::Instant::now(),
        };
        tokio::spawn(write(batches, entries));
        Self { queue, urgent }
    }

    /// When this returns, it is written.
    pub async fn write(&self, changes: Vec<Change>, lasts: bool) -> io::Result<()> {
        let (done, is_done) = oneshot::channel();
        let entry = Entry {
            changes,
            lasts,
            done: Some(done),
        };
        self.queue.send(entry).await.map_err(|_| gone())?;
        self.urgent.notify_one();
        match is_done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(gone()),
        }
    }

    /// When this returns, it is in the queue. What becomes of it there is told to nobody but the log.
    pub async fn queue(&self, change: Change) -> io::Result<()> {
        let entry = Entry::unwaited(change);
        self.queue.send(entry).await.map_err(|_| gone())
    }

    /// For whoever cannot wait: it is lost if too much is being written.
    pub fn note(&self, change: Change) {
        if self.queue.try_send(Entry::unwaited(change)).is_ok() {
            self.urgent.notify_one();
        }
    }

    /// When this returns, all that was written before is in the database, though that may have crashed since.
    pub async fn catch_up(&self) -> io::Result<()> {
        self.write(Vec::new(), true).await
    }
}

fn gone() -> io::Error {
    io::Error::other("the task that writes to the database is gone")
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
                        Err(error) => batches.refuse(&mut one, error),
                    }
                }
            }
            Err(error) => batches.refuse(&mut batch, error),
        }
    }
    for entry in batches.due {
        lost(&entry, &"the process ends");
    }
}

fn lost(entry: &Entry, why: &dyn std::fmt::Display) {
    tracing::error!(changes = ?entry.changes, "lost, for it was not written: {why}");
}

/// A connection.
struct Line {
    connection: AnyConnection,
    /// Something was committed on it.
    works: bool,
    /// SQLite: whether what is committed must survive the machine.
    lasts: Option<bool>,
}

impl Line {
    async fn to(database: &Database) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: database.connect().await?,
            works: false,
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
    /// Rows of the audit log whose results were given out, until the database is back.
    due: Vec<Entry>,
    urgent: Arc<Notify>,
    /// When a database that failed is looked at again.
    next_look: tokio::time::Instant,
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
            if !is_troubled && !self.due.is_empty() {
                batch.extend(self.due.drain(..self.due.len().min(BATCH)));
                return ControlFlow::Continue(());
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(self.next_look), if is_troubled => self.probe().await,
                received = entries.recv_many(batch, BATCH) => {
                    if received == 0 {
                        return ControlFlow::Break(());
                    }
                    self.gather(entries, batch).await;
                    return ControlFlow::Continue(());
                }
                () = self.health.breaks(), if !is_troubled => {}
            }
        }
    }

    async fn gather(&mut self, entries: &mut mpsc::Receiver<Entry>, batch: &mut Vec<Entry>) {
        let room = BATCH.saturating_sub(batch.len());
        if batch.iter().any(|entry| entry.done.is_some()) || room == 0 {
            return;
        }
        if entries.len() < room {
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = self.urgent.notified() => {}
            }
        }
        if !entries.is_empty() {
            entries.recv_many(batch, room).await;
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
        self.next_look = tokio::time::Instant::now() + LOOKS;
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
            if let Some(done) = entry.done {
                let _ = done.send(Ok(()));
            }
        }
    }

    fn refuse(&mut self, batch: &mut Vec<Entry>, error: sqlx::Error) {
        let may_pass = is_of_database(&error);
        let error = Arc::new(error);
        for mut entry in batch.drain(..) {
            match entry.done.take() {
                Some(done) => drop(done.send(Err(error.clone()))),
                None if may_pass && entry.is_due() && self.due.len() < QUEUE + BATCH => {
                    self.due.push(entry);
                }
                None => lost(&entry, &error),
            }
        }
    }

    async fn commit(&mut self, entries: &[Entry]) -> Result<bool, sqlx::Error> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut tried = None;
        loop {
            let database = self.database.clone();
            let once = self.commit_once(entries, &mut tried);
            let error = match database.within(once).await {
                Ok(lasts) => {
                    // What changed nothing was not written.
                    if entries.iter().any(Entry::is_written) {
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

    /// `tried`: what the audit log would end with after an attempt that had no answer.
    async fn commit_once(
        &mut self,
        entries: &[Entry],
        tried: &mut Option<Head>,
    ) -> Result<bool, sqlx::Error> {
        let mut line = match self.line.take() {
            Some(line) => line,
            None => Line::to(&self.database).await?,
        };
        // The server may have crashed since the connection before.
        let is_again = !line.works && !self.unflushed.is_empty();
        let lasts = self.database.is_file() || is_again || self.must_last(entries);
        let written = self.write_all(&mut line, entries, is_again, tried).await;
        line.works |= written.is_ok();
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
        tried: &mut Option<Head>,
    ) -> Result<(), sqlx::Error> {
        if let Some(head) = tried {
            if audit::has(&mut line.connection, head).await? {
                return Ok(());
            }
            *tried = None;
        }
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
        *tried = audit::append(&mut transaction, &drafts).await?;
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
