//! Requests that are worked on, each in a task of its own, and batches of them.

use super::rpc::{self, Error, INTERNAL_ERROR, INVALID_REQUEST, Id, Malformed, Request};
use super::{revision, session::Session};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// What a request came to; nothing if it was cancelled.
pub type Outcome = Option<Result<Value, Error>>;

/// Work on one request: a client that does not read must not keep a call from ending. Dropped, it is aborted.
#[derive(Debug)]
pub struct Task(JoinSet<Outcome>);

/// What is answered to messages that came at a time, in their order (JSON-RPC 2.0, 6).
#[derive(Debug, Default)]
pub struct Batch {
    waits: VecDeque<Reply>,
    /// Before what waits.
    known: Vec<Bytes>,
}

#[derive(Debug)]
enum Reply {
    Known(Bytes),
    Awaited(Id, Task),
}

impl Task {
    pub fn spawn(on: &Handle, work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        let mut task = JoinSet::new();
        task.spawn_on(work, on);
        Self(task)
    }

    /// What it came to, once. May be dropped and waited for again.
    pub async fn outcome(&mut self) -> Outcome {
        match self.0.join_next().await? {
            Ok(outcome) => outcome,
            Err(_) => Some(Err(Error::new(INTERNAL_ERROR, "the request broke off"))),
        }
    }
}

impl Batch {
    /// Whether `session` may send batches.
    ///
    /// # Errors
    /// What it is told instead.
    pub fn may_come(session: Option<&Session>) -> Result<(), Error> {
        if session.is_some_and(Session::has_batches) {
            return Ok(());
        }
        let versions = revision::BATCHED.join(" and ");
        let reason =
            format!("only sessions of {versions} have batches; send one message at a time");
        Err(Error::new(INVALID_REQUEST, reason))
    }

    /// Whether a request may be in the batch, with those before it.
    ///
    /// # Errors
    /// It stands for itself, or its id does not tell it from another.
    pub fn may_hold(&self, request: &Request) -> Result<(), Error> {
        let mut waits = self.waits.iter();
        let reason = if request.method == "initialize" {
            "\"initialize\" is no part of a batch"
        } else if revision::named(request).is_some() {
            "a request that names its revision is no part of a batch"
        } else if waits.any(|reply| matches!(reply, Reply::Awaited(id, _) if *id == request.id)) {
            "another request of this batch has this id"
        } else {
            return Ok(());
        };
        Err(Error::new(INVALID_REQUEST, reason))
    }

    pub fn begun(&mut self, id: Id, work: Result<Task, Error>) {
        self.waits.push_back(match work {
            Ok(task) => Reply::Awaited(id, task),
            Err(error) => Reply::Known(rpc::reply(Some(&id), &Err(error))),
        });
    }

    pub fn refused(&mut self, malformed: Malformed) {
        self.waits.push_back(Reply::Known(malformed.reply()));
    }

    /// Whether something of it is being worked on.
    pub fn is_worked_on(&self) -> bool {
        let mut waits = self.waits.iter();
        waits.any(|reply| matches!(reply, Reply::Awaited(..)))
    }

    /// The replies as one, as soon as there are all; `None` if nothing is replied to. May be dropped and
    /// waited for again.
    pub async fn replies(&mut self) -> Option<Bytes> {
        while let Some(next) = self.waits.front_mut() {
            let reply = match next {
                Reply::Known(reply) => Some(reply.clone()),
                Reply::Awaited(id, task) => {
                    let outcome = task.outcome().await;
                    outcome.map(|outcome| rpc::reply(Some(id), &outcome))
                }
            };
            self.waits.pop_front();
            self.known.extend(reply);
        }
        rpc::batch(&self.known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};

    fn id(n: i64) -> Id {
        Id::Number(n.into())
    }

    fn after(ms: u64, outcome: Outcome) -> Task {
        Task::spawn(&Handle::current(), async move {
            sleep(Duration::from_millis(ms)).await;
            outcome
        })
    }

    #[tokio::test]
    async fn replies_are_in_the_order_of_the_requests_and_waited_for_once() {
        let mut batch = Batch::default();
        batch.begun(id(1), Ok(after(60, Some(Ok(json!({}))))));
        batch.begun(id(2), Err(Error::new(-1, "no")));
        batch.begun(id(3), Ok(after(0, None)));
        batch.begun(
            id(4),
            Ok(Task::spawn(&Handle::current(), async {
                panic!("it breaks off")
            })),
        );
        assert!(batch.is_worked_on());
        assert!(
            timeout(Duration::from_millis(1), batch.replies())
                .await
                .is_err()
        );
        let replies: Value = serde_json::from_slice(&batch.replies().await.unwrap()).unwrap();
        let seen: Vec<_> = replies
            .as_array()
            .unwrap()
            .iter()
            .map(|reply| (reply["id"].as_i64(), reply["error"]["code"].as_i64()))
            .collect();
        assert_eq!(
            seen,
            [
                (Some(1), None),
                (Some(2), Some(-1)),
                (Some(4), Some(INTERNAL_ERROR))
            ]
        );
        assert_eq!(Batch::default().replies().await, None);
    }
}
