//! The one task of a process that writes to the database. It commits events of many runs that arrive at the same
//! time in one transaction, which costs one wait for the disk. For a SQLite file it has a thread of its own, so that a
//! write of many statements is handed over once.

mod entry;
mod gaps;
mod job;
mod server;
mod started;
mod tally;
mod task;
mod thread;
mod transaction;
mod transient;
mod whole_batch;

#[cfg(test)]
mod tests;

pub use entry::Attachment;
pub use job::JobSize;
pub use started::StartedWrite;
pub use tally::AuditLosses;
#[cfg(test)]
pub use transient::is_transient;

use crate::calls_file::CallsFile;
use crate::change::Change;
use crate::database::Database;
use crate::error::WriteError;
use crate::health::Health;
use crate::statements::OpenTransaction;
use entry::WriteEntry;
use futures_util::future::BoxFuture;
use job::{CallerJob, WriteJob};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tally::AuditTally;
use task::BatchWriter;
use thread::WriterThread;
use tokio::sync::{Notify, mpsc, oneshot};

/// Entries that wait to be written. When the queue is full, callers of [`Writer::write`] and [`Writer::queue`] wait,
/// and [`Writer::note`] drops its entry.
const QUEUE_CAPACITY: usize = 1_024;
/// Transactions of callers that wait for the thread of a SQLite file. More callers wait for a place.
const JOB_CAPACITY: usize = 64;

/// The queue of transactions of callers.
#[derive(Clone)]
struct JobSender(mpsc::Sender<Box<dyn WriteJob>>);

impl std::fmt::Debug for JobSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSender").finish_non_exhaustive()
    }
}

/// A handle of the task. Clones share the task, which ends when the last handle is dropped and it has written what was
/// queued.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::Sender<WriteEntry>,
    jobs: JobSender,
    /// Notified when a caller waits for a write, so that the task does not wait for more entries.
    urgent: Arc<Notify>,
    tally: AuditTally,
    /// Absent for PostgreSQL. After `queue`, because the thread ends when all of these are dropped.
    _thread: Option<Arc<WriterThread>>,
}

impl Writer {
    /// Starts the task. During an outage it retries a write for `outage_timeout`; then the write fails, which stops
    /// its run in a way that the run can be resumed. `calls`: where the ends of calls of no run are noted that have not
    /// begun in the database.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(
        database: Database,
        outage_timeout: Duration,
        health: Health,
        calls: Option<Arc<CallsFile>>,
    ) -> io::Result<Self> {
        let is_file = database.is_file();
        let (queue, entries) = mpsc::channel(QUEUE_CAPACITY);
        let urgent = Arc::<Notify>::default();
        let (send_job, jobs) = mpsc::channel(JOB_CAPACITY);
        let urgency = urgent.clone();
        let batches = BatchWriter::new(database, outage_timeout, health, urgency, jobs, calls);
        let tally = batches.tally.clone();
        let work = task::run(batches, entries);
        let thread = if is_file {
            Some(Arc::new(WriterThread::start(work)?))
        } else {
            tokio::spawn(work);
            None
        };
        Ok(Self {
            queue,
            jobs: JobSender(send_job),
            urgent,
            tally,
            _thread: thread,
        })
    }

    /// Audit rows of this process that could not be written so far.
    pub fn audit_losses(&self) -> AuditLosses {
        self.tally.now()
    }

    /// Writes `changes` in one transaction and returns when it is committed. `durable`: the commit must survive a
    /// crash of the machine, and not only of the process.
    pub async fn write(&self, changes: Vec<Change>, durable: bool) -> io::Result<()> {
        let (done, is_done) = oneshot::channel();
        let entry = WriteEntry {
            changes,
            durable,
            done: Some(done),
            attachment: None,
            expected_head: None,
        };
        self.queue.send(entry).await.map_err(|_| gone())?;
        self.urgent.notify_one();
        committed(is_done).await
    }

    /// Runs `work` in a transaction of a SQLite file, and commits it if it succeeds. It is not tried again. A caller that
    /// leaves does not stop it.
    pub async fn transact<T, E>(
        &self,
        size: JobSize,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<sqlx::Error> + Send + 'static,
    {
        let (done, is_done) = oneshot::channel();
        let job = Box::new(CallerJob { work, size, done });
        if self.jobs.0.send(job).await.is_err() {
            return Err(sqlx::Error::WorkerCrashed.into());
        }
        self.urgent.notify_one();
        let answer = is_done.await;
        answer.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
    }

    /// Queues a change without waiting, for example from `drop`. The change is lost if the queue is full.
    pub fn note(&self, change: Change) {
        if self.queue.try_send(WriteEntry::unawaited(change)).is_ok() {
            self.urgent.notify_one();
        }
    }

    /// Returns when everything that was queued before is committed.
    pub async fn catch_up(&self) -> io::Result<()> {
        self.write(Vec::new(), true).await
    }
}

/// Waits for the commit of an entry.
async fn committed(is_done: oneshot::Receiver<Result<(), Arc<WriteError>>>) -> io::Result<()> {
    match is_done.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(gone()),
    }
}

fn gone() -> io::Error {
    io::Error::other("the task that writes to the database is gone")
}
