//! Transactions of callers that are no part of a run's journal, such as those of keys and sessions.
//!
//! They are committed together, too, but not tried again after an error: a person or a client waits for the answer.

use crate::statements::{NativeConnection, OpenTransaction, copied, undone};
use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// The transaction of a caller.
pub trait Job: Send {
    /// Runs the statements. Returns what answers the caller after the commit, or `None` if the transaction is to be
    /// undone; then the caller has its answer.
    fn run(self: Box<Self>, transaction: OpenTransaction<'_>) -> BoxFuture<'_, Option<JobAnswer>>;

    /// Answers the caller without having run.
    fn refuse(self: Box<Self>, error: &sqlx::Error);
}

/// Answers a caller after the commit, which may have failed.
pub type JobAnswer = Box<dyn FnOnce(Result<(), &sqlx::Error>) + Send>;

/// A job of a caller that waits for `done`.
pub struct CallerJob<W, T, E> {
    pub work: W,
    pub done: oneshot::Sender<Result<T, E>>,
}

impl<W, T, E> Job for CallerJob<W, T, E>
where
    W: for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    fn run(self: Box<Self>, transaction: OpenTransaction<'_>) -> BoxFuture<'_, Option<JobAnswer>> {
        let Self { work, done } = *self;
        Box::pin(async move {
            match work(transaction).await {
                Ok(value) => {
                    let answer = move |committed: Result<(), &sqlx::Error>| {
                        let committed = committed.map_err(|error| E::from(copied(error)));
                        drop(done.send(committed.map(|()| value)));
                    };
                    Some(Box::new(answer) as JobAnswer)
                }
                Err(error) => {
                    drop(done.send(Err(error)));
                    None
                }
            }
        })
    }

    fn refuse(self: Box<Self>, error: &sqlx::Error) {
        drop(self.done.send(Err(copied(error).into())));
    }
}

/// Runs jobs and commits them together. One that fails is undone alone.
///
/// # Errors
/// A commit failed. All callers have been answered.
pub async fn serve(
    connection: &mut NativeConnection,
    mut jobs: VecDeque<Box<dyn Job>>,
) -> Result<(), sqlx::Error> {
    let mut served = Ok(());
    while !jobs.is_empty() {
        if let Err(error) = connection.begin(true) {
            for job in jobs {
                job.refuse(&error);
            }
            return Err(error);
        }
        let answers = run_some(connection, &mut jobs).await;
        let committed = if answers.is_empty() {
            connection.roll_back();
            Ok(())
        } else {
            commit(connection)
        };
        for answer in answers {
            answer(committed.as_ref().copied());
        }
        if committed.is_err() {
            served = committed;
        }
    }
    served
}

/// Runs jobs until all are run, or SQLite undoes the transaction. Returns the answers of those that are to be committed.
async fn run_some(
    connection: &mut NativeConnection,
    jobs: &mut VecDeque<Box<dyn Job>>,
) -> Vec<JobAnswer> {
    let mut answers = Vec::new();
    while !connection.has_no_transaction()
        && let Some(job) = jobs.pop_front()
    {
        if let Err(error) = connection.execute("SAVEPOINT job", &[]) {
            job.refuse(&error);
            continue;
        }
        let answer = job.run(OpenTransaction::Native(connection)).await;
        let is_undone = answer.is_none();
        answers.extend(answer);
        if is_undone && !connection.has_no_transaction() {
            connection.last_head = None;
            if let Err(error) = connection.run("ROLLBACK TO job") {
                tracing::warn!(%error, "a transaction could not be undone alone, and is undone with others");
                connection.roll_back();
            }
        }
    }
    answers
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

    fn adding(
        text: String,
    ) -> impl for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<u64, sqlx::Error>> + Send
    {
        move |mut transaction| {
            Box::pin(async move {
                let values = [text.into()];
                transaction
                    .execute("INSERT INTO kept (text) VALUES ($1)", &values)
                    .await
            })
        }
    }

    fn insert(text: String) -> (Box<dyn Job>, Answer) {
        let (done, answer) = oneshot::channel();
        (
            Box::new(CallerJob {
                work: adding(text),
                done,
            }),
            answer,
        )
    }

    #[tokio::test]
    async fn what_a_full_disk_undoes_is_an_error_of_all_callers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        std::fs::write(&path, "").unwrap();
        let mut connection = NativeConnection::open(&path, "PRAGMA journal_mode = WAL").unwrap();
        connection.run("CREATE TABLE kept (text TEXT)").unwrap();
        connection.run("PRAGMA max_page_count = 8").unwrap();
        let large = "x".repeat(1 << 20);
        let (jobs, answers): (VecDeque<_>, Vec<_>) = ["a".to_owned(), large, "b".to_owned()]
            .into_iter()
            .map(insert)
            .unzip();
        serve(&mut connection, jobs).await.unwrap_err();
        let mut outages = Vec::new();
        for answer in answers {
            outages.push(answer.await.unwrap().map_err(|error| Outage::of(&error)));
        }
        let full = Err(Some(Outage::ReadOnly));
        assert_eq!(outages, [full, full, Ok(1)]);
        let kept = connection.rows::<(String,)>("SELECT text FROM kept", &[]);
        assert_eq!(kept.unwrap(), [("b".to_owned(),)]);
    }
}
