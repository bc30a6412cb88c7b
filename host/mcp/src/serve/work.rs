//! Requests in progress, each in a task of its own, and batches of them.

use super::in_flight::RequestEnd;
use super::unread::{Outgoing, UnreadAnswers};
use super::{revision, session::ClientSession};
use crate::rpc::{self, INTERNAL_ERROR, INVALID_REQUEST, Id, InvalidMessage, RpcError, RpcRequest};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// The result of a request; `None` if it was cancelled.
pub type RequestOutcome = Option<Result<Value, RpcError>>;

/// The work on one request. It runs in a task, so that a client that does not read cannot block a call.
/// Dropping it aborts the work.
#[derive(Debug)]
pub struct RequestTask {
    work: JoinSet<RequestOutcome>,
    /// The end that the calls of the work ask about.
    end: Option<Arc<RequestEnd>>,
}

/// The replies to a batch, in its order (JSON-RPC 2.0, 6). Dropping it aborts the work on its requests.
#[derive(Debug, Default)]
pub struct Batch {
    waits: VecDeque<BatchReply>,
    /// Replies that come before the awaited ones.
    known: Vec<Outgoing>,
}

#[derive(Debug)]
enum BatchReply {
    Known(Bytes),
    Awaited(Id, RequestTask),
}

impl RequestTask {
    pub fn spawn(on: &Handle, work: impl Future<Output = RequestOutcome> + Send + 'static) -> Self {
        let mut task = JoinSet::new();
        task.spawn_on(work, on);
        Self {
            work: task,
            end: None,
        }
    }

    /// Adds the end that the calls of the work ask about: a batch notes the ends of all before it aborts the first.
    pub fn ended_by(mut self, end: Arc<RequestEnd>) -> Self {
        self.end = Some(end);
        self
    }

    /// The result, once. Cancel-safe.
    pub async fn outcome(&mut self) -> RequestOutcome {
        match self.work.join_next().await? {
            Ok(outcome) => outcome,
            Err(_) => Some(Err(RpcError::new(INTERNAL_ERROR, "the request broke off"))),
        }
    }
}

impl Batch {
    /// Whether the protocol version of `session` has batches.
    ///
    /// # Errors
    /// The error for the client.
    pub fn may_come(session: Option<&ClientSession>) -> Result<(), RpcError> {
        if session.is_some_and(ClientSession::has_batches) {
            return Ok(());
        }
        let versions = revision::BATCHED.join(" and ");
        let reason =
            format!("only sessions of {versions} have batches; send one message at a time");
        Err(RpcError::new(INVALID_REQUEST, reason))
    }

    /// Whether a request may be in the batch with the requests before it.
    ///
    /// # Errors
    /// The request must stand alone, or its id is not unique in the batch.
    pub fn may_hold(&self, request: &RpcRequest) -> Result<(), RpcError> {
        let mut waits = self.waits.iter();
        let reason = if request.method == "initialize" {
            "\"initialize\" is no part of a batch"
        } else if revision::requested_version(request).is_some() {
            "a request that names its revision is no part of a batch"
        } else if waits
            .any(|reply| matches!(reply, BatchReply::Awaited(id, _) if *id == request.id))
        {
            "another request of this batch has this id"
        } else {
            return Ok(());
        };
        Err(RpcError::new(INVALID_REQUEST, reason))
    }

    pub fn begun(&mut self, id: Id, work: Result<RequestTask, RpcError>) {
        self.waits.push_back(match work {
            Ok(task) => BatchReply::Awaited(id, task),
            Err(error) => BatchReply::Known(rpc::reply(Some(&id), &Err(error))),
        });
    }

    pub fn refused(&mut self, malformed: InvalidMessage) {
        self.waits.push_back(BatchReply::Known(malformed.reply()));
    }

    /// Whether a request of it is in progress.
    pub fn is_worked_on(&self) -> bool {
        let mut waits = self.waits.iter();
        waits.any(|reply| matches!(reply, BatchReply::Awaited(..)))
    }

    /// The replies as one message, once all are known; `None` if there are none. Cancel-safe.
    pub async fn replies(&mut self, answers: &UnreadAnswers) -> Option<Outgoing> {
        while let Some(next) = self.waits.front_mut() {
            let reply = match next {
                BatchReply::Known(reply) => Some(reply.clone().into()),
                BatchReply::Awaited(id, task) => {
                    let outcome = task.outcome().await;
                    outcome.map(|outcome| answers.reply(id, &outcome))
                }
            };
            self.waits.pop_front();
            self.known.extend(reply);
        }
        Outgoing::batch(std::mem::take(&mut self.known))
    }
}

impl Drop for Batch {
    /// First: the place of a call that runs begins none that waits.
    fn drop(&mut self) {
        for reply in &self.waits {
            if let BatchReply::Awaited(_, RequestTask { end: Some(end), .. }) = reply {
                end.note();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::{sleep, timeout};
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::BeginCheck as _;

    fn id(n: i64) -> Id {
        Id::Number(n.into())
    }

    fn after(ms: u64, outcome: RequestOutcome) -> RequestTask {
        RequestTask::spawn(&Handle::current(), async move {
            sleep(Duration::from_millis(ms)).await;
            outcome
        })
    }

    #[tokio::test]
    async fn replies_are_in_the_order_of_the_requests_and_waited_for_once() {
        let mut batch = Batch::default();
        batch.begun(id(1), Ok(after(60, Some(Ok(json!({}))))));
        batch.begun(id(2), Err(RpcError::new(-1, "no")));
        batch.begun(id(3), Ok(after(0, None)));
        batch.begun(
            id(4),
            Ok(RequestTask::spawn(&Handle::current(), async {
                panic!("it breaks off")
            })),
        );
        assert!(batch.is_worked_on());
        let answers = UnreadAnswers::new(&MemoryCeiling::new(1 << 20));
        assert!(
            timeout(Duration::from_millis(1), batch.replies(&answers))
                .await
                .is_err()
        );
        let replies = batch.replies(&answers).await.unwrap();
        let replies: Value = serde_json::from_slice(&replies).unwrap();
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
        assert!(Batch::default().replies(&answers).await.is_none());
    }

    #[tokio::test]
    async fn a_batch_that_is_dropped_notes_the_ends_of_its_requests() {
        let ends = [(); 3].map(|()| Arc::<RequestEnd>::default());
        let mut batch = Batch::default();
        for (n, end) in (0..).zip(&ends) {
            let ms = if n == 0 { 0 } else { 60_000 };
            let task = after(ms, Some(Ok(json!({})))).ended_by(end.clone());
            batch.begun(id(n), Ok(task));
        }
        let answers = UnreadAnswers::new(&MemoryCeiling::new(1 << 20));
        let first = timeout(Duration::from_millis(50), batch.replies(&answers));
        assert!(first.await.is_err());
        let begin = || ends.each_ref().map(|end| end.may_begin());
        assert_eq!(begin(), [true; 3]);
        drop(batch);
        assert_eq!(begin()[1..], [false; 2]);
    }
}
