//! What is written to the database, by one task: events of many runs that come at the same time are one
//! transaction, and so one wait for the disk.

use crate::storage::audit::{self, Draft, Head};
use crate::storage::change::Change;
use crate::storage::database::Database;
use crate::storage::health::{FIRST_SQLSTATE, Health, Trouble};
use sqlx::AnyConnection;
use std::any::Any;
use std::collections::VecDeque;
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
/// Between two looks whether a database that failed works again.
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
    #[expect(dead_code, reason = "dropped with it, when it is written or lost")]
    held: Option<Held>,
    /// Where the audit log ends if an attempt to write this succeeded whose answer was lost.
    tried: Option<Head>,
}

/// What somebody keeps for as long as something is to be written.
pub type Held = Box<dyn Any + Send + Sync>;

impl Entry {
    fn unwaited(change: Change) -> Self {
        Self {
            changes: vec![change],
            lasts: false,
            done: None,
            held: None,
            tried: None,
        }
    }

    fn drafts(&self) -> impl Iterator<Item = &Draft> {
        self.changes.iter().filter_map(|change| match change {
            Change::Audit(draft) => Some(&**draft),
            _ => None,
        })
    }

    /// What always changes something in the database.
    fn is_written(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| matches!(change, Change::Events { .. } | Change::Audit(_)))
    }

    /// A row of the audit log whose result was given out.
    fn is_due(&self) -> bool {
        self.done.is_none() && self.drafts().next().is_some()
    }
}

impl Writer {
    /// For `patience`, a database that cannot be used is tried; after that a run that cannot be recorded stops,
    /// and can be resumed.
    pub fn start(database: Database, patience: Duration, health: Health) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE);
        let urgent = Arc::<Notify>::default();
        let batches = Batches::of(database, patience, health, urgent.clone());
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
            held: None,
            tried: None,
        };
        self.queue.send(entry).await.map_err(|_| gone())?;
        self.urgent.notify_one();
        match is_done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(gone()),
        }
    }

    /// When this returns, it is in the queue. Of the audit log, what is there outlasts a database that cannot be
    /// written, so whoever queues bounds how much it is by what is `held`.
    pub async fn queue(&self, change: Change, held: Held) -> io::Result<()> {
        let entry = Entry {
            held: Some(held),
            ..Entry::unwaited(change)
        };
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
        match batches.commit(&mut batch).await {
            Ok(lasts) => batches.answer(&mut batch, lasts),
            // One that cannot be written keeps no other from it.
            Err(error) if batch.len() > 1 && !is_of_database(&error) => {
                for entry in batch.drain(..) {
                    let mut one = vec![entry];
                    match batches.commit(&mut one).await {
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
    if entry.is_due() {
        tracing::error!(changes = ?entry.changes, "is not in the audit log: {why}");
    } else {
        // Others do without it.
        tracing::debug!(changes = ?entry.changes, "was not written: {why}");
    }
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
    /// Rows of the audit log whose results were given out, until the database takes them. For as long as there
    /// are some, it is in trouble.
    due: VecDeque<Entry>,
    /// How many are tried in one transaction: fewer where a disk is nearly full.
    due_at_once: usize,
    urgent: Arc<Notify>,
    /// When a database that failed is looked at again.
    next_look: tokio::time::Instant,
}

impl Batches {
    fn of(database: Database, patience: Duration, health: Health, urgent: Arc<Notify>) -> Self {
        Self {
            database,
            line: None,
            patience,
            health,
            unflushed: Vec::new(),
            due: VecDeque::new(),
            due_at_once: BATCH,
            urgent,
            next_look: tokio::time::Instant::now(),
        }
    }

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
                received = entries.recv_many(batch, BATCH) => {
                    if received == 0 {
                        return ControlFlow::Break(());
                    }
                    self.gather(entries, batch).await;
                    return ControlFlow::Continue(());
                }
                () = tokio::time::sleep_until(self.next_look), if is_troubled => self.look().await,
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

    /// Something was written. What is due is tried then, too: whoever always has more to write leaves no other
    /// time for it.
    async fn worked(&mut self) {
        if self.due.is_empty() {
            self.health.works();
        } else if tokio::time::Instant::now() >= self.next_look {
            self.look().await;
        }
    }

    /// Whether the database can be written again; if so, what is due is.
    async fn look(&mut self) {
        let looked = if self.due.is_empty() {
            self.database.within(probe(&self.database)).await
        } else {
            self.write_due().await
        };
        match looked {
            Ok(()) => self.health.works(),
            Err(error) => {
                if let Some(trouble) = Trouble::of(&error) {
                    self.health.failed(trouble, &error);
                }
            }
        }
        self.next_look = tokio::time::Instant::now() + LOOKS;
    }

    async fn write_due(&mut self) -> Result<(), sqlx::Error> {
        while !self.due.is_empty() {
            let many = self.due_at_once.min(self.due.len());
            let mut batch: Vec<Entry> = self.due.drain(..many).collect();
            match self.attempt(&mut batch).await {
                Ok(lasts) => {
                    self.answer(&mut batch, lasts);
                    self.due_at_once = BATCH.min(many * 2);
                }
                Err(error) if many == 1 && !is_of_database(&error) => lost(&batch[0], &error),
                Err(error) => {
                    for entry in batch.into_iter().rev() {
                        self.due.push_front(entry);
                    }
                    self.due_at_once = (many / 2).max(1);
                    if is_of_database(&error) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
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
                None if may_pass && entry.is_due() => self.due.push_back(entry),
                None => lost(&entry, &error),
            }
        }
    }

    async fn commit(&mut self, entries: &mut [Entry]) -> Result<bool, sqlx::Error> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let error = match self.attempt(entries).await {
                Ok(lasts) => {
                    // What changed nothing was not written.
                    if entries.iter().any(Entry::is_written) {
                        self.worked().await;
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

    /// Commits in one transaction, or not at all; or, where no answer comes, nobody knows which. Whether what was
    /// committed survives the machine.
    async fn attempt(&mut self, entries: &mut [Entry]) -> Result<bool, sqlx::Error> {
        let database = self.database.clone();
        database.within(self.commit_once(entries)).await
    }

    async fn commit_once(&mut self, entries: &mut [Entry]) -> Result<bool, sqlx::Error> {
        let mut line = match self.line.take() {
            Some(line) => line,
            None => Line::to(&self.database).await?,
        };
        // The server may have crashed since the connection before.
        let is_again = !line.works && !self.unflushed.is_empty();
        let lasts = self.database.is_file() || is_again || self.must_last(entries);
        let written = self.write_all(&mut line, entries, is_again).await;
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
        entries: &mut [Entry],
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
        let changes = entries.iter().flat_map(|entry| &entry.changes);
        for change in changes.filter(|change| !matches!(change, Change::Audit(_))) {
            change.write(&mut transaction, is_file).await?;
        }
        // Last: from here on nobody else can add to the log until this is committed.
        audit_all(&mut transaction, entries).await?;
        transaction.commit().await
    }
}

/// Adds what is not in the audit log already, by an attempt whose answer was lost.
async fn audit_all(
    connection: &mut AnyConnection,
    entries: &mut [Entry],
) -> Result<(), sqlx::Error> {
    if entries.iter().all(|entry| entry.drafts().next().is_none()) {
        return Ok(());
    }
    // Whoever tried has succeeded or failed by now: until then he had the head of the log.
    let head = audit::take(connection).await?;
    let mut failed = None;
    for entry in &mut *entries {
        let Some(tried) = &entry.tried else { continue };
        if failed.as_ref() == Some(tried) || !audit::has(connection, tried).await? {
            failed = entry.tried.take();
        }
    }
    let is_new = |entry: &&mut Entry| entry.tried.is_none();
    let new: Vec<&mut Entry> = entries.iter_mut().filter(is_new).collect();
    let drafts: Vec<&Draft> = new.iter().flat_map(|entry| entry.drafts()).collect();
    let end = audit::add(connection, head, &drafts).await?;
    for entry in new {
        entry.tried.clone_from(&end);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::tests::{Database as Place, databases};
    use crate::storage::{Location, Store};

    fn rows(numbers: std::ops::Range<u32>) -> Vec<Entry> {
        let row = |number| {
            let draft = Draft::module_approved("ann", "m", &u32::to_string(&number));
            Entry::unwaited(Change::Audit(Box::new(draft)))
        };
        numbers.map(row).collect()
    }

    async fn batches(location: &Location) -> (Store, Batches) {
        let patience = Duration::from_millis(10);
        let store = Store::open(location, patience).await.unwrap();
        let database = Database::of(location).unwrap();
        let batches = Batches::of(database, patience, Health::default(), Arc::default());
        (store, batches)
    }

    async fn written(store: &Store) -> u64 {
        let verified = store.verify_audit(None).await.unwrap();
        assert_eq!(verified.faults, []);
        verified.entries
    }

    #[tokio::test]
    async fn what_was_written_though_nobody_heard_of_it_is_not_written_again() {
        for Place { location, .. } in databases().await {
            let (store, mut batches) = batches(&location).await;
            let mut entries = rows(0..3);
            batches.attempt(&mut entries).await.unwrap();
            // As if no answer had come: at once, and among others; and later, as what is due.
            entries.extend(rows(3..4));
            batches.attempt(&mut entries).await.unwrap();
            assert_eq!(written(&store).await, 4);
            let late = io::Error::from(io::ErrorKind::TimedOut);
            batches.refuse(&mut entries, sqlx::Error::Io(late));
            assert_eq!(batches.due.len(), 4);
            batches.look().await;
            assert_eq!((batches.due.len(), written(&store).await), (0, 4));
            // One that failed was not written.
            let mut failed = rows(4..5);
            failed[0].tried = Some((5, "a hash that nothing has".into()));
            batches.attempt(&mut failed).await.unwrap();
            assert_eq!(written(&store).await, 5);
        }
    }

    /// What else is to be written does not wait for it.
    #[tokio::test]
    async fn what_is_due_waits_for_room() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let (store, mut batches) = batches(&location).await;
        let full = sqlx::Error::Io(io::Error::from(io::ErrorKind::StorageFull));
        batches.refuse(&mut rows(0..600), full);
        let mut line = Line::to(&batches.database).await.unwrap();
        // Less than it is already: it cannot grow.
        sqlx::query("PRAGMA max_page_count = 1")
            .execute(&mut line.connection)
            .await
            .unwrap();
        batches.line = Some(line);
        batches.look().await;
        assert_eq!(batches.health.trouble(), Some(Trouble::Full));
        assert_eq!((batches.due.len(), batches.due_at_once), (600, BATCH / 2));
        let mut other = rows(600..601);
        batches.commit(&mut other).await.unwrap();
        assert_eq!(written(&store).await, 1);
        assert!(batches.health.trouble().is_some(), "rows are due");
        batches.look().await;
        assert_eq!((batches.due.len(), batches.due_at_once), (0, BATCH));
        assert_eq!(batches.health.trouble(), None);
        assert_eq!(written(&store).await, 601);
    }
}
