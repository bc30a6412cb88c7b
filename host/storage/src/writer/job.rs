//! Transactions of callers that are no part of a run's journal, such as those of keys and sessions.
//!
//! Short ones are committed together, too, but not tried again after an error: a person or a client waits for the answer.

use crate::statements::{NativeConnection, OpenTransaction, copied, undone};
use futures_util::future::BoxFuture;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Jobs of one transaction at most.
const GROUP_JOBS: usize = 64;
/// Time after which a transaction takes no further job: journals of runs wait for its end.
const GROUP_TIME: Duration = Duration::from_millis(50);

/// The transaction of a caller.
pub trait WriteJob: Send {
    /// Runs the statements.
    fn run(self: Box<Self>, transaction: OpenTransaction<'_>) -> BoxFuture<'_, JobOutcome>;

    fn size(&self) -> JobSize;

    /// Answers the caller without having run.
    fn refuse(self: Box<Self>, error: &sqlx::Error);
}

/// How long the statements of a job take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSize {
    /// Milliseconds: such jobs are committed together.
    Short,
    /// A time that depends on the number of rows. Such a job has a transaction of its own, so that no other caller waits
    /// for it or loses its work with it.
    Long,
}

/// The end of a job's statements, before the commit.
pub struct JobOutcome {
    /// False if the statements failed, and are to be undone.
    is_kept: bool,
    answer: JobAnswer,
}

/// Answers a caller: as the job ended, or with the error of the commit. A job that failed may have read what the others
/// of its transaction wrote, so its caller has no answer before the commit either.
type JobAnswer = Box<dyn FnOnce(Result<(), &sqlx::Error>) + Send>;

/// A job of a caller that waits for `done`.
pub struct CallerJob<W, T, E> {
    pub work: W,
    pub size: JobSize,
    pub done: oneshot::Sender<Result<T, E>>,
}

impl<W, T, E> WriteJob for CallerJob<W, T, E>
where
    W: for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    fn run(self: Box<Self>, transaction: OpenTransaction<'_>) -> BoxFuture<'_, JobOutcome> {
        let Self { work, done, .. } = *self;
        Box::pin(async move {
            let result = work(transaction).await;
            let is_kept = result.is_ok();
            let answer = move |committed: Result<(), &sqlx::Error>| {
                let committed = committed.map_err(|error| E::from(copied(error)));
                drop(done.send(committed.and(result)));
            };
            let answer: JobAnswer = Box::new(answer);
            JobOutcome { is_kept, answer }
        })
    }

    fn size(&self) -> JobSize {
        self.size
    }

    fn refuse(self: Box<Self>, error: &sqlx::Error) {
        drop(self.done.send(Err(copied(error).into())));
    }
}

/// Jobs that wait, in the order in which they came.
pub struct JobQueue {
    received: mpsc::Receiver<Box<dyn WriteJob>>,
    /// The first one, if it was taken from the channel before its turn.
    first: Option<Box<dyn WriteJob>>,
}

impl JobQueue {
    pub fn new(received: mpsc::Receiver<Box<dyn WriteJob>>) -> Self {
        Self {
            received,
            first: None,
        }
    }

    /// Waits for the next job. Returns `None` when the last handle is dropped. Loses no job if it is cancelled.
    pub async fn recv(&mut self) -> Option<Box<dyn WriteJob>> {
        match self.first.take() {
            Some(job) => Some(job),
            None => self.received.recv().await,
        }
    }

    /// Returns the next job if one waits.
    pub fn try_recv(&mut self) -> Option<Box<dyn WriteJob>> {
        self.first.take().or_else(|| self.received.try_recv().ok())
    }

    /// Returns the next job if one waits and is short.
    fn try_recv_short(&mut self) -> Option<Box<dyn WriteJob>> {
        let job = self.try_recv()?;
        match job.size() {
            JobSize::Short => Some(job),
            JobSize::Long => {
                self.first = Some(job);
                None
            }
        }
    }

    /// Answers the callers that wait now with an error.
    pub fn refuse_waiting(&mut self, error: &sqlx::Error) {
        let waiting = self.received.len() + usize::from(self.first.is_some());
        for _ in 0..waiting {
            if let Some(job) = self.try_recv() {
                job.refuse(error);
            }
        }
    }
}

/// Runs `first` in a transaction; after a short one, short ones that wait, too. A job that fails is undone alone.
///
/// # Errors
/// The transaction could not begin, and all that waited were refused, or it could not be committed. The callers have
/// been answered.
pub async fn serve(
    connection: &mut NativeConnection,
    first: Box<dyn WriteJob>,
    jobs: &mut JobQueue,
) -> Result<(), sqlx::Error> {
    if let Err(error) = connection.begin(true) {
        first.refuse(&error);
        jobs.refuse_waiting(&error);
        return Err(error);
    }
    let began = Instant::now();
    let size = first.size();
    // Without a savepoint: nothing else is in the transaction yet.
    let outcome = first.run(OpenTransaction::Native(connection)).await;
    if !outcome.is_kept {
        connection.roll_back();
        (outcome.answer)(Ok(()));
        return Ok(());
    }
    let mut answers = vec![outcome.answer];
    while size == JobSize::Short
        && answers.len() < GROUP_JOBS
        && began.elapsed() < GROUP_TIME
        && !connection.has_no_transaction()
        && let Some(job) = jobs.try_recv_short()
    {
        let answer = run_with_others(connection, job).await;
        answers.extend(answer);
    }
    let committed = commit(connection);
    for answer in answers {
        answer(committed.as_ref().copied());
    }
    committed
}

/// Runs a job in a transaction with the work of others. Returns what answers its caller after the commit, or `None` if
/// the caller has its answer.
async fn run_with_others(
    connection: &mut NativeConnection,
    job: Box<dyn WriteJob>,
) -> Option<JobAnswer> {
    if let Err(error) = connection.execute("SAVEPOINT job", &[]) {
        job.refuse(&error);
        return None;
    }
    let outcome = job.run(OpenTransaction::Native(connection)).await;
    if connection.has_no_transaction() {
        if outcome.is_kept {
            return Some(outcome.answer);
        }
        // The error for which SQLite undid the transaction says more than the one of the commit.
        (outcome.answer)(Ok(()));
        return None;
    }
    let ended = if outcome.is_kept {
        connection.execute("RELEASE job", &[]).map(drop)
    } else {
        connection.last_head = None;
        connection.run("ROLLBACK TO job; RELEASE job")
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "a transaction could not be undone alone, and is undone with others");
        connection.roll_back();
    }
    Some(outcome.answer)
}

fn commit(connection: &mut NativeConnection) -> Result<(), sqlx::Error> {
    let committed = if connection.has_no_transaction() {
        Err(undone())
    } else {
        connection.commit()
    };
    if committed.is_err() {
        connection.roll_back();
    }
    committed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Outage;

    type Answer = oneshot::Receiver<Result<u64, sqlx::Error>>;
    /// An answer, with the outage that its error shows.
    type ShownAnswer = Result<u64, Option<Outage>>;

    fn job(
        size: JobSize,
        work: impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<u64, sqlx::Error>>
        + Send
        + 'static,
    ) -> (Box<dyn WriteJob>, Answer) {
        let (done, answer) = oneshot::channel();
        (Box::new(CallerJob { work, size, done }), answer)
    }

    /// A job that adds a row.
    fn insert(size: JobSize, text: String) -> (Box<dyn WriteJob>, Answer) {
        job(size, move |mut transaction| {
            Box::pin(async move {
                let values = [text.into()];
                transaction
                    .execute("INSERT INTO kept (text) VALUES ($1)", &values)
                    .await
            })
        })
    }

    /// A job that adds a row and then fails.
    fn failing() -> (Box<dyn WriteJob>, Answer) {
        job(JobSize::Short, |mut transaction| {
            Box::pin(async move {
                transaction
                    .execute("INSERT INTO kept (text) VALUES ('failed')", &[])
                    .await?;
                Err(sqlx::Error::RowNotFound)
            })
        })
    }

    /// A file that has room for a few short texts.
    fn small_file() -> (tempfile::TempDir, NativeConnection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "").unwrap();
        let connection = NativeConnection::open(&path, "PRAGMA journal_mode = WAL").unwrap();
        connection.run("CREATE TABLE kept (text TEXT)").unwrap();
        connection.run("PRAGMA max_page_count = 8").unwrap();
        (folder, connection)
    }

    /// A text that has no room in the file.
    fn large() -> String {
        "x".repeat(1 << 20)
    }

    /// Serves all jobs. Returns the answers, and the texts that are kept.
    async fn served(
        connection: &mut NativeConnection,
        jobs: Vec<(Box<dyn WriteJob>, Answer)>,
    ) -> (Vec<ShownAnswer>, Vec<String>) {
        let (send, received) = mpsc::channel(jobs.len());
        let mut queue = JobQueue::new(received);
        let mut answers = Vec::new();
        for (job, answer) in jobs {
            assert!(send.try_send(job).is_ok());
            answers.push(answer);
        }
        while let Some(first) = queue.try_recv() {
            // The callers have its error.
            drop(serve(connection, first, &mut queue).await);
        }
        let mut outages = Vec::new();
        for answer in answers {
            outages.push(answer.await.unwrap().map_err(|error| Outage::of(&error)));
        }
        let kept = connection.rows::<(String,)>("SELECT text FROM kept ORDER BY text", &[]);
        let kept = kept.unwrap().into_iter().map(|(text,)| text).collect();
        (outages, kept)
    }

    const FULL: ShownAnswer = Err(Some(Outage::ReadOnly));
    const FAILED: ShownAnswer = Err(None);

    #[tokio::test]
    async fn a_transaction_that_a_full_disk_undoes_is_an_error_of_all_its_callers() {
        let (_folder, mut connection) = small_file();
        let jobs = vec![
            insert(JobSize::Short, "a".to_owned()),
            // It may have failed because of what it read of the first.
            failing(),
            insert(JobSize::Short, large()),
            insert(JobSize::Short, "b".to_owned()),
        ];
        let (answers, kept) = served(&mut connection, jobs).await;
        assert_eq!(answers, [FULL, FULL, FULL, Ok(1)]);
        assert_eq!(kept, ["b"]);
    }

    #[tokio::test]
    async fn a_long_job_has_a_transaction_of_its_own() {
        let (_folder, mut connection) = small_file();
        let jobs = vec![
            insert(JobSize::Short, "a".to_owned()),
            insert(JobSize::Long, large()),
            insert(JobSize::Long, "b".to_owned()),
            insert(JobSize::Short, "c".to_owned()),
            insert(JobSize::Short, large()),
        ];
        let (answers, kept) = served(&mut connection, jobs).await;
        assert_eq!(answers, [Ok(1), FULL, Ok(1), FULL, FULL]);
        assert_eq!(kept, ["a", "b"]);
    }

    #[tokio::test]
    async fn a_job_that_fails_is_undone_alone() {
        let (_folder, mut connection) = small_file();
        let jobs = vec![
            failing(),
            insert(JobSize::Short, "a".to_owned()),
            failing(),
            insert(JobSize::Short, "b".to_owned()),
        ];
        let (answers, kept) = served(&mut connection, jobs).await;
        assert_eq!(answers, [FAILED, Ok(1), FAILED, Ok(1)]);
        assert_eq!(kept, ["a", "b"]);
        assert!(connection.has_no_transaction());
    }
}
