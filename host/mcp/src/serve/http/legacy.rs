//! Sessions over HTTP, in revisions up to 2025-11-25.

use super::reply::{self, RequestWork};
use super::sessions::{HeldSession, SessionRefusal};
use super::{HttpEndpoint, HttpRejection, OWNER, SESSION, VERSION, accepts, remote};
use crate::rpc;
use crate::rpc::{INTERNAL_ERROR, InvalidMessage, Message, RpcError, RpcRequest};
use crate::serve::client_sender::ClientSender;
use crate::serve::in_flight::InFlightRequest;
use crate::serve::revision::{LEGACY, RequestMetadata};
use crate::serve::service::Service;
use crate::serve::unread::{RequestMemory, UnreadAnswers};
use crate::serve::work::{Batch, RequestOutcome, RequestTask};
use axum::body::{Body, Bytes};
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use tokio::runtime::Handle;
use toolhold_connections::source;

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// The first revision whose clients accept an event without a message.
const PRIMED: &str = "2025-11-25";

pub async fn post(
    endpoint: &Arc<HttpEndpoint>,
    head: &Parts,
    message: Message,
    memory: RequestMemory,
    answers: &UnreadAnswers,
) -> Response {
    if let Message::Request(request) = &message
        && request.method == "initialize"
    {
        return initialize(endpoint, head, request);
    }
    let held = match held(endpoint, &head.headers) {
        Ok(held) => held,
        Err(refused) => return refused.into_response(),
    };
    match message {
        Message::Request(request) => {
            request_of(endpoint, &held, head, request, memory, answers).await
        }
        Message::Notification { method, params } => {
            notified(&held, &method, params);
            StatusCode::ACCEPTED.into_response()
        }
        Message::Answer { id, outcome } => {
            held.session.answer(&id, outcome.ok());
            StatusCode::ACCEPTED.into_response()
        }
    }
}

/// A batch of messages, which only some revisions have.
pub async fn batch(
    endpoint: &Arc<HttpEndpoint>,
    head: &Parts,
    messages: Vec<Result<Message, InvalidMessage>>,
    memory: &RequestMemory,
    answers: &UnreadAnswers,
) -> Response {
    let headers = &head.headers;
    let held = match held(endpoint, headers) {
        Ok(held) => held,
        Err(refused) => return refused.into_response(),
    };
    if let Err(error) = Batch::may_come(Some(&held.session)) {
        return reply::error(StatusCode::BAD_REQUEST, None, error);
    }
    let (client_sender, said) = reply::message_channel(answers);
    let mut batch = Batch::default();
    for message in messages {
        match message {
            Ok(Message::Request(request)) => {
                let id = request.id.clone();
                let work = batch.may_hold(&request).and_then(|()| {
                    let begun =
                        StartedRequest::new(endpoint, &held, head, request, memory.clone())?;
                    let (client_sender, end) = (client_sender.clone(), begun.flight.end());
                    let task = RequestTask::spawn(&Handle::current(), begun.work(client_sender));
                    Ok(task.ended_by(end))
                });
                batch.begun(id, work);
            }
            Ok(Message::Notification { method, params }) => notified(&held, &method, params),
            Ok(Message::Answer { id, outcome }) => held.session.answer(&id, outcome.ok()),
            Err(malformed) => {
                let (source, session) = (source(&head.extensions), &held.session.id);
                let noted = endpoint
                    .service
                    .note_refused(&malformed, source, OWNER, session);
                noted.await;
                batch.refused(malformed);
            }
        }
    }
    if batch.is_worked_on() {
        let streams = accepts(headers, "text/event-stream");
        return RequestWork::batch(batch, answers, said, streams)
            .answer()
            .await;
    }
    match batch.replies(answers).await {
        Some(errors) => reply::json(StatusCode::BAD_REQUEST, errors),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

fn initialize(endpoint: &HttpEndpoint, head: &Parts, request: &RpcRequest) -> Response {
    let held = match endpoint.sessions.begin(request, source(&head.extensions)) {
        Ok(held) => held,
        Err(SessionRefusal::Request(error)) => {
            return reply::error(StatusCode::BAD_REQUEST, Some(&request.id), error);
        }
        Err(SessionRefusal::Full { retry_after }) => {
            let seconds = retry_after.as_secs() + 1;
            let reason = format!(
                "every session that this server has room for is in use (mcp_server.sessions); end one with DELETE, or \
                 try again in {seconds} s"
            );
            let error = RpcError::new(INTERNAL_ERROR, reason);
            let mut refused =
                reply::error(StatusCode::SERVICE_UNAVAILABLE, Some(&request.id), error);
            let headers = refused.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            return refused;
        }
    };
    let welcome = rpc::reply(Some(&request.id), &Ok(held.session.welcome()));
    let id = held.session.id.to_string();
    ([(SESSION, id)], reply::json(StatusCode::OK, welcome)).into_response()
}

async fn request_of(
    endpoint: &HttpEndpoint,
    held: &Arc<HeldSession>,
    head: &Parts,
    request: RpcRequest,
    memory: RequestMemory,
    answers: &UnreadAnswers,
) -> Response {
    let id = request.id.clone();
    let begun = match StartedRequest::new(endpoint, held, head, request, memory) {
        Ok(begun) => begun,
        Err(error) => return reply::error(StatusCode::OK, Some(&id), error),
    };
    let streams = accepts(&head.headers, "text/event-stream");
    let work = RequestWork::begin(id, answers, streams, false, |client_sender| {
        begun.work(client_sender)
    });
    work.answer().await
}

/// A request of a session, with its context.
struct StartedRequest {
    service: Arc<Service>,
    held: Arc<HeldSession>,
    request: RpcRequest,
    metadata: RequestMetadata,
    flight: InFlightRequest,
    memory: RequestMemory,
}

impl StartedRequest {
    /// # Errors
    /// As [`InFlightRequests::begin`](crate::serve::in_flight::InFlightRequests::begin).
    fn new(
        endpoint: &HttpEndpoint,
        held: &Arc<HeldSession>,
        head: &Parts,
        request: RpcRequest,
        memory: RequestMemory,
    ) -> Result<Self, RpcError> {
        held.uses();
        let flight = held.session.in_flight.begin(&request.id)?;
        let mut metadata = held.session.metadata(&request.params);
        metadata.begin = Some(flight.end());
        remote(&mut metadata, head);
        // A client that takes no streams cannot be asked questions.
        metadata.elicits &= accepts(&head.headers, "text/event-stream");
        Ok(Self {
            service: endpoint.service.clone(),
            held: held.clone(),
            request,
            metadata,
            flight,
            memory,
        })
    }

    async fn work(self, client_sender: ClientSender) -> RequestOutcome {
        let session = &self.held.session;
        let answer =
            self.service
                .answer(self.request, self.metadata, Some(session), &client_sender);
        let outcome = self.flight.run(answer).await;
        drop(self.memory);
        self.held.touch();
        outcome
    }
}

fn notified(held: &HeldSession, method: &str, mut params: Map<String, Value>) {
    let cancelled = (method == "notifications/cancelled")
        .then(|| params.remove("requestId").and_then(rpc::read_id))
        .flatten();
    if let Some(id) = cancelled {
        held.session.in_flight.cancel(&id);
    }
}

/// The session's own stream of change notifications. An event's id is the version of the tool list, so that a
/// client that reconnects learns whether it missed a change.
pub fn stream(endpoint: &HttpEndpoint, headers: &HeaderMap) -> Result<Response, HttpRejection> {
    if !accepts(headers, "text/event-stream") {
        let reason = "a GET is answered with text/event-stream";
        return Err(HttpRejection::new(StatusCode::NOT_ACCEPTABLE, reason));
    }
    let held = held(endpoint, headers)?;
    let mut changes = endpoint.service.changes();
    let now = changes.borrow_and_update().generation;
    let seen = headers.get(LAST_EVENT).and_then(|id| id.to_str().ok());
    let seen: Option<u64> = seen.and_then(|id| id.parse().ok());
    let mut first = Vec::new();
    if seen.is_some_and(|seen| seen != now) {
        first.extend(changed(now));
    } else if held.session.version == PRIMED {
        first.extend_from_slice(format!("id: {now}\ndata: \n\n").as_bytes());
    } else {
        first.extend_from_slice(b":\n\n");
    }
    held.uses();
    // Only the newest stream of a session gets notifications.
    held.streams.send_modify(|streams| *streams += 1);
    let streams = held.streams.subscribe();
    let state = (held, changes, streams, Some(Bytes::from(first)));
    let events = stream::unfold(
        state,
        |(held, mut changes, mut streams, first)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(first), (held, changes, streams, None)));
            }
            let event = tokio::select! {
                biased;
                _ = streams.changed() => return None,
                changed = changes.changed() => {
                    changed.ok()?;
                    let now = changes.borrow_and_update().generation;
                    self::changed(now)
                }
                () = reply::alive() => Bytes::from_static(b":\n\n"),
            };
            held.touch();
            Some((Ok(event), (held, changes, streams, None)))
        },
    );
    Ok(reply::events(Body::from_stream(events)))
}

fn changed(generation: u64) -> Bytes {
    let message = rpc::notification("notifications/tools/list_changed", json!({}));
    reply::event(Some(generation), &message)
}

pub fn end(endpoint: &HttpEndpoint, headers: &HeaderMap) -> Result<StatusCode, HttpRejection> {
    if endpoint.sessions.end(session_id(headers)?) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(gone())
    }
}

/// The session that a message belongs to.
fn held(endpoint: &HttpEndpoint, headers: &HeaderMap) -> Result<Arc<HeldSession>, HttpRejection> {
    let version = headers.get(VERSION);
    if version.is_some_and(|version| !LEGACY.iter().any(|own| version == own)) {
        let reason = format!("sessions speak one of {}", LEGACY.join(", "));
        return Err(HttpRejection::new(StatusCode::BAD_REQUEST, reason));
    }
    endpoint
        .sessions
        .find(session_id(headers)?)
        .ok_or_else(gone)
}

fn session_id(headers: &HeaderMap) -> Result<&str, HttpRejection> {
    let id = headers.get(SESSION).and_then(|id| id.to_str().ok());
    id.ok_or_else(|| {
        let reason =
            "there is no Mcp-Session-Id; begin with \"initialize\", or speak revision 2026-07-28";
        HttpRejection::new(StatusCode::BAD_REQUEST, reason)
    })
}

fn gone() -> HttpRejection {
    let reason = "there is no such session; begin with \"initialize\"";
    HttpRejection::new(StatusCode::NOT_FOUND, reason)
}
