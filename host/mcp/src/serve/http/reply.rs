//! The HTTP response of a request: JSON, or a stream of events that ends with the reply.

use crate::rpc;
use crate::rpc::{
    HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, Id, METHOD_NOT_FOUND, MISSING_CAPABILITY,
    PARSE_ERROR, RpcError, UNSUPPORTED_VERSION,
};
use crate::serve::client_sender::ClientSender;
use crate::serve::unread::{Outgoing, UnreadAnswers};
use crate::serve::work::{Batch, RequestOutcome, RequestTask};
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Most unread messages of one request.
const MAX_UNREAD_MESSAGES: usize = 64;
/// Interval of comments in a silent stream, so that proxies do not close it.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
const UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The channel for messages before a reply.
pub fn message_channel(answers: &UnreadAnswers) -> (ClientSender, mpsc::Receiver<Outgoing>) {
    ClientSender::new(MAX_UNREAD_MESSAGES, answers)
}

/// The work on a request. Dropping it aborts the work.
pub struct RequestWork {
    asked: PendingWork,
    /// Messages before the reply.
    said: mpsc::Receiver<Outgoing>,
    answers: UnreadAnswers,
    /// Whether the client accepts streams.
    streams: bool,
}

enum PendingWork {
    One {
        id: Id,
        task: RequestTask,
        /// Whether a protocol error sets the HTTP status, too.
        has_status: bool,
    },
    Batch(Batch),
}

impl RequestWork {
    /// Begins the work that `outcome` creates for a sender to the client.
    pub fn begin<F: Future<Output = RequestOutcome> + Send + 'static>(
        id: Id,
        answers: &UnreadAnswers,
        streams: bool,
        has_status: bool,
        outcome: impl FnOnce(ClientSender) -> F,
    ) -> Self {
        let (client_sender, said) = message_channel(answers);
        let task = RequestTask::spawn(&Handle::current(), outcome(client_sender));
        let asked = PendingWork::One {
            id,
            task,
            has_status,
        };
        Self {
            asked,
            said,
            answers: answers.clone(),
            streams,
        }
    }

    /// The work on several requests, whose messages arrive in `said`.
    pub fn batch(
        batch: Batch,
        answers: &UnreadAnswers,
        said: mpsc::Receiver<Outgoing>,
        streams: bool,
    ) -> Self {
        Self {
            asked: PendingWork::Batch(batch),
            said,
            answers: answers.clone(),
            streams,
        }
    }

    /// Responds when the form of the response is known. Dropping the response aborts the work.
    pub async fn answer(mut self) -> Response {
        if !self.streams {
            return whole(self.asked.reply(&self.answers).await);
        }
        tokio::select! {
            biased;
            Some(first) = self.said.recv() => events(self.rest(vec![first])),
            reply = self.asked.reply(&self.answers) => {
                // Messages that arrived with the reply are sent before it.
                let mut messages = Vec::new();
                while let Ok(message) = self.said.try_recv() {
                    messages.push(message);
                }
                if messages.is_empty() && reply.is_some() {
                    return whole(reply);
                }
                messages.extend(reply.map(|(_, reply)| reply));
                events(self.rest(messages))
            }
            () = sleep(KEEP_ALIVE_INTERVAL) => events(self.rest(Vec::new())),
        }
    }

    fn rest(self, first: Vec<Outgoing>) -> Body {
        let mut queue: VecDeque<_> = first.into_iter().map(as_event).collect();
        if queue.is_empty() {
            queue.push_back(COMMENT.into());
        }
        let state = EventQueue {
            work: Some(self),
            queue,
            sending: None,
        };
        Body::from_stream(stream::unfold(state, EventQueue::next))
    }
}

/// The events of a response that are to be sent, and the work that others come from.
struct EventQueue {
    work: Option<RequestWork>,
    queue: VecDeque<Outgoing>,
    /// The event that the connection was given last. It counts as unread until the connection asks for the next.
    sending: Option<Outgoing>,
}

impl EventQueue {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        self.sending = None;
        loop {
            if let Some(event) = self.queue.pop_front() {
                let bytes = event.bytes();
                self.sending = Some(event);
                return Some((Ok(bytes), self));
            }
            let work = self.work.as_mut()?;
            tokio::select! {
                biased;
                Some(message) = work.said.recv() => self.queue.push_back(as_event(message)),
                reply = work.asked.reply(&work.answers) => {
                    while let Ok(message) = work.said.try_recv() {
                        self.queue.push_back(as_event(message));
                    }
                    self.queue.extend(reply.map(|(_, reply)| as_event(reply)));
                    self.work = None;
                }
                () = sleep(KEEP_ALIVE_INTERVAL) => self.queue.push_back(COMMENT.into()),
            }
        }
    }
}

impl PendingWork {
    /// The reply with its status; `None` if the whole work was cancelled. Cancel-safe.
    async fn reply(&mut self, answers: &UnreadAnswers) -> Option<(StatusCode, Outgoing)> {
        match self {
            Self::One {
                id,
                task,
                has_status,
            } => {
                let outcome = task.outcome().await?;
                let status = match &outcome {
                    Err(error) if *has_status => status(error),
                    _ => StatusCode::OK,
                };
                Some((status, answers.reply(id, &outcome)))
            }
            Self::Batch(batch) => Some((StatusCode::OK, batch.replies(answers).await?)),
        }
    }
}

/// The reply as one body; empty if the request was cancelled.
fn whole(reply: Option<(StatusCode, Outgoing)>) -> Response {
    match reply {
        Some((status, reply)) => json(status, reply),
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

/// An error response.
pub fn error(status: StatusCode, id: Option<&Id>, error: RpcError) -> Response {
    json(status, rpc::reply(id, &Err(error)))
}

pub fn json(status: StatusCode, body: impl Into<Outgoing>) -> Response {
    let body = body.into().into_body();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The HTTP status of an error in revision 2026-07-28.
pub fn status(error: &RpcError) -> StatusCode {
    match error.code {
        PARSE_ERROR | INVALID_REQUEST | INVALID_PARAMS | HEADER_MISMATCH | MISSING_CAPABILITY
        | UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

pub fn events(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache, no-transform"),
        (UNBUFFERED, "no"),
    ];
    (headers, body).into_response()
}

fn as_event(message: Outgoing) -> Outgoing {
    message.map(|message| event(None, message))
}

/// One event; messages contain no line breaks.
pub fn event(id: Option<u64>, message: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(message.len() + 48);
    if let Some(id) = id {
        event.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    event.extend_from_slice(b"event: message\ndata: ");
    event.extend_from_slice(message);
    event.extend_from_slice(b"\n\n");
    event.into()
}

/// Longest silence of a stream.
pub fn alive() -> impl Future<Output = ()> {
    sleep(KEEP_ALIVE_INTERVAL)
}
