//! The writer's loop: gathers entries into batches, retries what an outage keeps from being written, and answers.

use super::entry::WriteEntry;
use super::gaps::WriteGaps;
use super::job::{self, JobQueue, WriteJob};
use super::tally::AuditTally;
use super::transaction::WriterConnection;
use super::transient::{is_of_database, is_transient};
use crate::calls_file::CallsFile;
use crate::database::Database;
use crate::error::WriteError;
use crate::health::{Health, Outage};
use std::collections::VecDeque;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use toolhold_admission::Backoff;

/// Entries of one transaction.
const BATCH_ENTRIES: usize = 256;
/// Batching delay of writes that no caller awaits.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Waits between attempts to commit one batch.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// Entries of the backlog beyond which no row of an ended call is kept whose caller has the error. At most this number of
/// calls run or wait for their rows when an outage begins, and no other call begins in it.
const MAX_REFUSED_ROWS: usize = 4_096;
/// How long another process may lock SQLite's file before that counts as an outage.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two probes whether an outage is over.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Runs until the last handle is dropped.
pub async fn run(mut batches: BatchWriter, mut entries: mpsc::Receiver<WriteEntry>) {
    let _watch = PanicWatch(batches.health.clone());
    let mut batch = Vec::with_capacity(BATCH_ENTRIES);
    while batches.next(&mut entries, &mut batch).await.is_continue() {
        match batches.commit(&mut batch).await {
            Ok(()) => batches.answer(&mut batch),
            // One entry that cannot be written must not fail the others.
            Err(error) if batch.len() > 1 && !is_of_database(&error) => {
                for entry in batch.drain(..) {
                    let mut one = vec![entry];
                    match batches.commit(&mut one).await {
                        Ok(()) => batches.answer(&mut one),
                        Err(error) => batches.refuse(&mut one, error),
                    }
                }
            }
            Err(error) => batches.refuse(&mut batch, error),
        }
        // One transaction: callers who come as fast as they are served must not hold up the journals of runs.
        if let Some(job) = batches.jobs.try_recv() {
            batches.serve(job).await;
        }
    }
    while let Some(job) = batches.jobs.try_recv() {
        batches.serve(job).await;
    }
    for entry in std::mem::take(&mut batches.backlog) {
        batches.lose(&entry, &"the process ends");
    }
}

/// Notes an outage when it is dropped by a panic: nothing is written any more until the process is started again.
struct PanicWatch(Health);

impl Drop for PanicWatch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "the task that writes to the database has failed: restart this process";
            self.0.failed(Outage::ReadOnly, &reason);
        }
    }
}

/// What the task keeps between batches.
pub struct BatchWriter {
    database: Database,
    /// Absent after an error of the connection.
    connection: Option<WriterConnection>,
    /// Longest time for which a batch is retried during an outage.
    outage_timeout: Duration,
    health: Health,
    /// Audit rows of results that were given out, and of ended calls whose caller has the error of the write, until the
    /// database takes them. While there are any, the database counts as out of order.
    backlog: VecDeque<WriteEntry>,
    /// Entries of the backlog for one transaction: fewer if a disk is nearly full.
    backlog_batch: usize,
    /// Notified when a caller waits for a write.
    urgent: Arc<Notify>,
    /// Transactions of callers: SQLite.
    jobs: JobQueue,
    gaps: WriteGaps,
    /// The calls of no run of this process: SQLite.
    calls: Option<Arc<CallsFile>>,
    /// When the next probe of an outage is due.
    next_probe: tokio::time::Instant,
    pub(super) tally: AuditTally,
}

impl BatchWriter {
    pub fn new(
        database: Database,
        outage_timeout: Duration,
        health: Health,
        urgent: Arc<Notify>,
        jobs: mpsc::Receiver<Box<dyn WriteJob>>,
        calls: Option<Arc<CallsFile>>,
    ) -> Self {
        Self {
            database,
            connection: None,
            outage_timeout,
            health,
            backlog: VecDeque::new(),
            backlog_batch: BATCH_ENTRIES,
            urgent,
            jobs: JobQueue::new(jobs),
            gaps: WriteGaps::new(),
            calls,
            next_probe: tokio::time::Instant::now(),
            tally: AuditTally::default(),
        }
    }

    /// Tells the callers of a committed batch, and notes which calls have their rows.
    fn answer(&self, batch: &mut Vec<WriteEntry>) {
        for entry in batch.drain(..) {
            if let Some(calls) = &self.calls {
                entry.note_ends(calls);
            }
            if let Some(done) = entry.done {
                let _ = done.send(Ok(()));
            }
        }
    }

    /// Logs and counts an entry that is never written, and that no caller waits for.
    fn lose(&self, entry: &WriteEntry, reason: &dyn Display) {
        if entry.is_owed() {
            self.tally.lost(entry.drafts().count());
            tracing::error!(changes = ?entry.changes, "is not in the audit log: {reason}");
        } else {
            tracing::debug!(changes = ?entry.changes, "was not written: {reason}");
        }
    }

    /// Waits for the next entries, and probes the database meanwhile if it is out of order.
    async fn next(
        &mut self,
        entries: &mut mpsc::Receiver<WriteEntry>,
        batch: &mut Vec<WriteEntry>,
    ) -> ControlFlow<()> {
        loop {
            let is_out = self.health.outage().is_some();
            tokio::select! {
                biased;
                received = entries.recv_many(batch, BATCH_ENTRIES) => {
                    if received == 0 {
                        return ControlFlow::Break(());
                    }
                    self.gather(entries, batch).await;
                    return ControlFlow::Continue(());
                }
                () = tokio::time::sleep_until(self.next_probe), if is_out => self.probe().await,
                Some(job) = self.jobs.recv() => self.serve(job).await,
                () = self.health.breaks(), if !is_out => {}
            }
        }
    }

    /// Waits for more entries, if no caller awaits those in `batch`.
    async fn gather(
        &mut self,
        entries: &mut mpsc::Receiver<WriteEntry>,
        batch: &mut Vec<WriteEntry>,
    ) {
        let room = BATCH_ENTRIES.saturating_sub(batch.len());
        if batch.iter().any(|entry| entry.done.is_some()) || room == 0 {
            return;
        }
        if entries.len() < room {
            tokio::select! {
                () = tokio::time::sleep(BATCH_DELAY) => {}
                () = self.urgent.notified() => {}
            }
        }
        if !entries.is_empty() {
            entries.recv_many(batch, room).await;
        }
    }

    /// Notes a successful write. A constant stream of writes leaves no time for probes, so the backlog is retried
    /// here, too.
    async fn wrote(&mut self) {
        if self.backlog.is_empty() {
            self.health.works();
        } else if tokio::time::Instant::now() >= self.next_probe {
            self.probe().await;
        }
    }

    /// Tries to write the backlog, or a probe without one, and notes the result.
    async fn probe(&mut self) {
        let probed = if self.backlog.is_empty() {
            let database = &self.database;
            let probe = async { WriterConnection::open(database).await?.probe().await };
            database.within(probe).await
        } else {
            let written = self.write_backlog().await;
            self.tally.waiting(self.backlog.len());
            written
        };
        match probed {
            Ok(()) => self.health.works(),
            Err(error) => {
                if let Some(outage) = Outage::of(&error) {
                    self.health.failed(outage, &error);
                }
            }
        }
        self.next_probe = tokio::time::Instant::now() + PROBE_INTERVAL;
    }

    async fn write_backlog(&mut self) -> Result<(), sqlx::Error> {
        while !self.backlog.is_empty() {
            let many = self.backlog_batch.min(self.backlog.len());
            let mut batch: Vec<WriteEntry> = self.backlog.drain(..many).collect();
            match self.attempt(&mut batch).await {
                Ok(()) => {
                    self.answer(&mut batch);
                    self.backlog_batch = BATCH_ENTRIES.min(many * 2);
                }
                Err(error) if many == 1 && !is_of_database(&error) => {
                    self.lose(&batch[0], &error);
                }
                Err(error) => {
                    let may_pass = is_of_database(&error);
                    for entry in batch.into_iter().rev() {
                        self.backlog.push_front(entry);
                    }
                    self.backlog_batch = (many / 2).max(1);
                    if let (true, WriteError::Database(error)) = (may_pass, error) {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Tells the callers of a failed batch, and keeps the audit rows that must not be lost.
    fn refuse(&mut self, batch: &mut Vec<WriteEntry>, error: WriteError) {
        let may_pass = is_of_database(&error);
        // A run that another server has writes nothing here any more, and its rows there; a call of a cancelled run is not
        // made.
        let is_failure = matches!(error, WriteError::Database(_));
        let error = Arc::new(error);
        for mut entry in batch.drain(..) {
            if let (true, Some(calls)) = (is_failure, &self.calls)
                && let Some((call, row)) = entry.ended_call()
            {
                // The process may end before the log takes the row.
                calls.refused(call, row);
            }
            match entry.done.take() {
                // The begin of the call stays until the log has its row: without the row, the call would look interrupted.
                Some(done)
                    if may_pass
                        && entry.ended_call().is_some()
                        && self.backlog.len() < MAX_REFUSED_ROWS =>
                {
                    let _ = done.send(Err(error.clone()));
                    // Without its attachment: the caller and what bounds it wait no longer.
                    self.backlog.push_back(WriteEntry {
                        attachment: None,
                        ..entry
                    });
                }
                Some(done) => {
                    if is_failure {
                        self.tally.refused(entry.drafts().count());
                    }
                    let has_left = done.send(Err(error.clone())).is_err();
                    // Without the other changes: the events of a run have all of its texts.
                    let rows: Vec<_> = entry.drafts().collect();
                    if has_left && !rows.is_empty() {
                        tracing::error!(
                            ?rows,
                            "is not in the audit log, and its caller has left: {error}"
                        );
                    }
                }
                None if may_pass && entry.is_owed() => self.backlog.push_back(entry),
                None => self.lose(&entry, &error),
            }
        }
        self.tally.waiting(self.backlog.len());
    }

    /// Commits a batch, and retries through conflicts and outages.
    async fn commit(&mut self, entries: &mut [WriteEntry]) -> Result<(), WriteError> {
        let started = Instant::now();
        let mut failures = 0;
        loop {
            let error = match self.attempt(entries).await {
                Ok(()) => {
                    // A batch that changed nothing does not show that the database can be written.
                    if entries.iter().any(WriteEntry::is_a_write) {
                        self.wrote().await;
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            if self.is_over(&error, started) {
                return Err(error);
            }
            failures += 1;
            self.pause(RETRY.after(failures)).await;
        }
    }

    /// Waits, and serves callers meanwhile: they do not wait for the end of an outage.
    async fn pause(&mut self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                Some(job) = self.jobs.recv() => self.serve(job).await,
            }
        }
    }

    /// Runs the transaction of a caller, and short ones of others that wait.
    async fn serve(&mut self, first: Box<dyn WriteJob>) {
        let opened = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => WriterConnection::open(&self.database).await,
        };
        let refused = match opened {
            Ok(WriterConnection::File(mut file)) => {
                self.gaps.before_begin().await;
                let served = job::serve(&mut file, first, &mut self.jobs).await;
                self.gaps.after_end();
                if served.is_ok() && file.has_no_transaction() {
                    self.connection = Some(WriterConnection::File(file));
                }
                return;
            }
            // Never: the store runs these transactions on its pool.
            Ok(WriterConnection::Server(_)) => sqlx::Error::WorkerCrashed,
            Err(error) => error,
        };
        first.refuse(&refused);
        self.jobs.refuse_waiting(&refused);
    }

    /// Whether a batch that failed is given up.
    fn is_over(&self, error: &WriteError, started: Instant) -> bool {
        let WriteError::Database(error) = error else {
            return true;
        };
        let is_late = started.elapsed() >= BUSY_TIMEOUT;
        let outage = match Outage::of(error) {
            None if is_transient(error) && is_late => Some(Outage::Unreachable),
            outage => outage,
        };
        match outage {
            Some(outage) => {
                self.health.failed(outage, error);
                // The wait counts from the begin of the outage: a later batch does not start it again.
                let since = self.health.since().unwrap_or(started);
                since.elapsed() >= self.outage_timeout
            }
            None => !is_transient(error),
        }
    }

    /// Tries once to commit `entries`. If the reply is lost, it is unknown whether it succeeded.
    async fn attempt(&mut self, entries: &mut [WriteEntry]) -> Result<(), WriteError> {
        let database = self.database.clone();
        database.within(self.commit_once(entries)).await
    }

    async fn commit_once(&mut self, entries: &mut [WriteEntry]) -> Result<(), WriteError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => WriterConnection::open(&self.database).await?,
        };
        let durable = entries.iter().any(|entry| entry.durable);
        if self.database.is_file() {
            self.gaps.before_begin().await;
        }
        let written = connection.commit(durable, entries).await;
        self.gaps.after_end();
        // SQLite ends a transaction by itself if something is wrong with the file. On a connection whose transaction
        // could not be undone, none begins any more.
        if !written.as_ref().is_err_and(is_of_database) && connection.has_no_transaction() {
            self.connection = Some(connection);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::AuditLosses;
    use super::*;
    use crate::audit_rows::Draft;
    use crate::change::Change;
    use crate::database::Location;
    use crate::store::Store;
    use crate::tests::{TestDatabase, databases};
    use std::io;

    fn rows(numbers: std::ops::Range<u32>) -> Vec<WriteEntry> {
        let row = |number| {
            let draft = Draft::module_approved("ann", "m", &u32::to_string(&number));
            WriteEntry::unawaited(Change::Audit(Box::new(draft)))
        };
        numbers.map(row).collect()
    }

    async fn batches(location: &Location) -> (Store, BatchWriter) {
        let outage_timeout = Duration::from_millis(10);
        let store = Store::open(location, outage_timeout).await.unwrap();
        let database = Database::of(location).unwrap();
        let (_, jobs) = mpsc::channel(1);
        let (health, urgent) = (Health::default(), Arc::default());
        let calls = store.process.calls().cloned();
        let batches = BatchWriter::new(database, outage_timeout, health, urgent, jobs, calls);
        (store, batches)
    }

    async fn written(store: &Store) -> u64 {
        let verified = store.verify_audit(None).await.unwrap();
        assert_eq!(verified.faults, []);
        verified.entries
    }

    #[tokio::test]
    async fn a_commit_whose_reply_was_lost_is_not_repeated() {
        for TestDatabase { location, .. } in databases().await {
            let (store, mut batches) = batches(&location).await;
            let mut entries = rows(0..3);
            batches.attempt(&mut entries).await.unwrap();
            // As if no reply had come: retried at once with another entry, and later from the backlog.
            entries.extend(rows(3..4));
            batches.attempt(&mut entries).await.unwrap();
            assert_eq!(written(&store).await, 4);
            let late = io::Error::from(io::ErrorKind::TimedOut);
            batches.refuse(&mut entries, sqlx::Error::Io(late).into());
            assert_eq!(batches.backlog.len(), 4);
            let owed = AuditLosses {
                backlog: 4,
                ..AuditLosses::default()
            };
            assert_eq!(batches.tally.now(), owed);
            batches.probe().await;
            assert_eq!((batches.backlog.len(), written(&store).await), (0, 4));
            assert_eq!(batches.tally.now(), AuditLosses::default());
            // An attempt that failed was not written.
            let mut failed = rows(4..5);
            failed[0].expected_head = Some((5, "a hash that nothing has".into()));
            batches.attempt(&mut failed).await.unwrap();
            assert_eq!(written(&store).await, 5);
        }
    }

    #[tokio::test]
    async fn rows_that_are_never_written_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let (_store, mut batches) = batches(&location).await;
        let wrong = || WriteError::Database(sqlx::Error::RowNotFound);
        batches.refuse(&mut rows(0..2), wrong());
        let mut awaited = rows(2..3);
        let (done, is_done) = tokio::sync::oneshot::channel();
        awaited[0].done = Some(done);
        batches.refuse(&mut awaited, wrong());
        assert!(is_done.await.unwrap().is_err());
        let counted = AuditLosses {
            lost: 2,
            refused: 1,
            backlog: 0,
        };
        assert_eq!(batches.tally.now(), counted);
    }

    /// Its caller has the error, and its process goes on: nothing else would write the row.
    #[tokio::test]
    async fn the_refused_row_of_an_ended_call_is_written_after_the_outage() {
        for TestDatabase { location, .. } in databases().await {
            let (store, mut batches) = batches(&location).await;
            let (done, is_done) = tokio::sync::oneshot::channel();
            let mut ended = rows(0..1);
            let end = Change::CallEnded { call: "c".into() };
            ended[0].changes.insert(0, end);
            ended[0].done = Some(done);
            let late = io::Error::from(io::ErrorKind::TimedOut);
            batches.refuse(&mut ended, sqlx::Error::Io(late).into());
            assert!(is_done.await.unwrap().is_err());
            let waiting = AuditLosses {
                backlog: 1,
                ..AuditLosses::default()
            };
            assert_eq!(batches.tally.now(), waiting);
            batches.probe().await;
            assert_eq!((batches.backlog.len(), written(&store).await), (0, 1));
            assert_eq!(batches.tally.now(), AuditLosses::default());
        }
    }

    /// The backlog does not hold up other entries.
    #[tokio::test]
    async fn the_backlog_waits_for_room_on_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let (store, mut batches) = batches(&location).await;
        let full = sqlx::Error::Io(io::Error::from(io::ErrorKind::StorageFull));
        batches.refuse(&mut rows(0..600), full.into());
        let connection = WriterConnection::open(&batches.database).await.unwrap();
        // Fewer pages than the file has: it cannot grow.
        let WriterConnection::File(file) = &connection else {
            unreachable!("it is a file");
        };
        file.run("PRAGMA max_page_count = 1").unwrap();
        batches.connection = Some(connection);
        batches.probe().await;
        assert_eq!(batches.health.outage(), Some(Outage::ReadOnly));
        assert_eq!(
            (batches.backlog.len(), batches.backlog_batch),
            (600, BATCH_ENTRIES / 2)
        );
        let mut other = rows(600..601);
        batches.commit(&mut other).await.unwrap();
        assert_eq!(written(&store).await, 1);
        assert!(
            batches.health.outage().is_some(),
            "the backlog is not empty"
        );
        batches.probe().await;
        assert_eq!(
            (batches.backlog.len(), batches.backlog_batch),
            (0, BATCH_ENTRIES)
        );
        assert_eq!(batches.health.outage(), None);
        assert_eq!(written(&store).await, 601);
    }
}
