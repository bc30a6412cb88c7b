//! Transactions of callers that are no part of a run's journal, such as those of keys and sessions.
//!
//! They are committed together, too, but not tried again: their callers know what to do.

use crate::statements::{OpenTransaction, copied};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

/// The transaction of a caller.
pub trait Job: Send {
    /// Runs the statements. Returns what answers the caller after the commit, or `None` if the transaction is to be
    /// undone; then the caller has its answer.
    fn run<'t>(
        self: Box<Self>,
        transaction: OpenTransaction<'t>,
    ) -> BoxFuture<'t, Option<JobAnswer>>;

    /// Answers the caller without having run.
    fn refuse(self: Box<Self>, error: &sqlx::Error);
}

/// Answers a caller after the commit, which may have failed.
pub type JobAnswer = Box<dyn FnOnce(Result<(), &sqlx::Error>) + Send>;

/// Statements of a transaction, and the value that they lead to.
pub trait Work<T, E>:
    for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static
{
}

impl<W, T, E> Work<T, E> for W where
    W: for<'t> FnOnce(OpenTransaction<'t>) -> BoxFuture<'t, Result<T, E>> + Send + 'static
{
}

/// A job of a caller that waits for `done`.
pub struct CallerJob<W, T, E> {
    pub work: W,
    pub done: oneshot::Sender<Result<T, E>>,
}

impl<W, T, E> Job for CallerJob<W, T, E>
where
    W: Work<T, E>,
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    fn run<'t>(
        self: Box<Self>,
        transaction: OpenTransaction<'t>,
    ) -> BoxFuture<'t, Option<JobAnswer>> {
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
