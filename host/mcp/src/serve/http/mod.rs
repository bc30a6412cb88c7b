//! Streamable HTTP: one endpoint, `/mcp`.
//!
//! A request is answered with JSON in one write, or with a stream of events if messages come before the
//! reply. A client that closes the connection cancels its request, in both eras: the stream of a request
//! cannot be resumed, so no client would get the result.

mod connections;
mod guard;
mod legacy;
mod modern;
mod reply;
mod sessions;

pub use connections::{Bound, serve};

use super::revision::RequestMetadata;
use super::service::Service;
use super::unread::{UnreadAnswers, no_memory};
use crate::rpc::{self, INVALID_REQUEST, RpcError, Transmission};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use guard::HttpGuard;
use opentelemetry::trace::TraceContextExt as _;
use sessions::Sessions;
use std::sync::Arc;
use toolhold_connections::{KeptBody, KeptBodyError, source};
use toolhold_json::bounded;
use toolhold_telemetry as telemetry;

/// The process is alive. It needs no token and tells nothing else.
pub const HEALTH: &str = "/healthz";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Owner of all calls over HTTP. Names of keys contain no colon, so it is never a key.
const OWNER: &str = "mcp:http";

/// State that all connections share.
#[derive(Debug)]
struct HttpEndpoint {
    service: Arc<Service>,
    guard: HttpGuard,
    sessions: Sessions,
    /// Session for scratch files of calls outside of sessions.
    id: Arc<str>,
}

impl HttpEndpoint {
    /// The answers to the clients of a request's address.
    fn answers(&self, head: &Parts) -> UnreadAnswers {
        self.service.answers.of(source(&head.extensions))
    }
}

fn router(endpoint: Arc<HttpEndpoint>) -> Router {
    Router::new()
        .route("/mcp", any(answer))
        .route(HEALTH, get(async || "ok"))
        .fallback(|| async { HttpRejection::new(StatusCode::NOT_FOUND, "MCP is served at /mcp") })
        .with_state(endpoint)
}

async fn answer(State(endpoint): State<Arc<HttpEndpoint>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let headers = &head.headers;
    if let Err(refused) = endpoint.guard.check(&head) {
        return refused.into_response();
    }
    match head.method {
        Method::POST => {
            let answers = endpoint.answers(&head);
            match read(&endpoint, headers, body, &answers).await {
                Ok(body) => post(&endpoint, &head, &body.bytes, &answers).await,
                Err(refused) => refused.into_response(),
            }
        }
        Method::GET => legacy::stream(&endpoint, headers).into_response(),
        Method::DELETE => legacy::end(&endpoint, headers).into_response(),
        _ => {
            let reason = "POST, GET and DELETE are served";
            HttpRejection::new(StatusCode::METHOD_NOT_ALLOWED, reason).into_response()
        }
    }
}

/// The body of a message, if it has an accepted type and size.
async fn read(
    endpoint: &HttpEndpoint,
    headers: &HeaderMap,
    body: Body,
    answers: &UnreadAnswers,
) -> Result<KeptBody, HttpRejection> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    if !kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
        let reason = "the content type of a message is application/json";
        return Err(HttpRejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            reason,
        ));
    }
    if !accepts(headers, "application/json") {
        let reason = "a client accepts application/json and text/event-stream";
        return Err(HttpRejection::new(StatusCode::NOT_ACCEPTABLE, reason));
    }
    let most = endpoint.service.settings().message_bytes;
    let too_long = || {
        let reason = format!("a message has at most {most} bytes (mcp_server.message_bytes)");
        HttpRejection::new(StatusCode::PAYLOAD_TOO_LARGE, reason)
    };
    let bytes = u64::try_from(most).unwrap_or(u64::MAX);
    let read = KeptBody::read(body, bytes, answers.kept()).await;
    read.map_err(|error| match error {
        KeptBodyError::TooSlow => {
            let reason = "the message came too slowly";
            HttpRejection::new(StatusCode::REQUEST_TIMEOUT, reason)
        }
        KeptBodyError::Full(full) => {
            let status = if full.is_for_ever() {
                StatusCode::PAYLOAD_TOO_LARGE
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            HttpRejection::new(status, no_memory(full))
        }
        // The client does not read the reply to one that broke off.
        KeptBodyError::TooLong { .. } | KeptBodyError::BrokeOff(_) => too_long(),
    })
}

/// The era of a message is in its header or in its `_meta`.
async fn post(
    endpoint: &Arc<HttpEndpoint>,
    head: &Parts,
    body: &[u8],
    answers: &UnreadAnswers,
) -> Response {
    let takes = |tool: &str, bytes| endpoint.service.takes(tool, bytes);
    let weight = bounded::weigh(body);
    let memory = match answers.reserve(weight) {
        Ok(memory) => memory,
        Err(error) => {
            let id = rpc::id_of(body);
            return reply::error(StatusCode::SERVICE_UNAVAILABLE, id.as_ref(), error);
        }
    };
    let message = match rpc::parse_weighed(body, weight, &takes) {
        Ok(Transmission::One(message)) => message,
        Ok(Transmission::Batch(messages)) => {
            return legacy::batch(endpoint, head, messages, &memory, answers).await;
        }
        Err(malformed) => {
            // The header alone may say anything: the log has a session that there is, or none.
            let named = head.headers.get(SESSION).and_then(|id| id.to_str().ok());
            let held = named.and_then(|id| endpoint.sessions.find(id));
            let session = held
                .as_deref()
                .map_or(&endpoint.id, |held| &held.session.id);
            let source = source(&head.extensions);
            let noted = endpoint
                .service
                .note_refused(&malformed, source, OWNER, session);
            noted.await;
            return reply::json(StatusCode::BAD_REQUEST, malformed.reply());
        }
    };
    if modern::is_modern(&head.headers, &message) {
        modern::post(endpoint, head, message, memory, answers).await
    } else {
        legacy::post(endpoint, head, message, memory, answers).await
    }
}

/// Facts about the sender of a request over HTTP that the body does not hold.
fn remote(metadata: &mut RequestMetadata, head: &Parts) {
    metadata.owner = OWNER;
    metadata.source = source(&head.extensions);
    if !metadata.trace.has_active_span() {
        metadata.trace = telemetry::client_context(&head.headers);
    }
}

/// Whether the client accepts `kind`. A client without an Accept header accepts everything.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let mut any = false;
    for accept in headers.get_all(ACCEPT) {
        any = true;
        let whole = kind.split('/').next().unwrap_or_default();
        let fits = |range: &str| {
            let range = range.split(';').next().unwrap_or_default().trim();
            range.eq_ignore_ascii_case(kind)
                || range == "*/*"
                || range.strip_suffix("/*").is_some_and(|own| own == whole)
        };
        if accept
            .to_str()
            .is_ok_and(|accept| accept.split(',').any(fits))
        {
            return true;
        }
    }
    !any
}

/// Why a message is rejected before its method is looked at.
#[derive(Debug)]
struct HttpRejection {
    status: StatusCode,
    reason: String,
}

impl HttpRejection {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { status, reason }
    }
}

impl IntoResponse for HttpRejection {
    fn into_response(self) -> Response {
        let error = RpcError::new(INVALID_REQUEST, self.reason);
        let mut response = reply::error(self.status, None, error);
        let header = match self.status {
            StatusCode::UNAUTHORIZED => (WWW_AUTHENTICATE, "Bearer"),
            StatusCode::METHOD_NOT_ALLOWED => (ALLOW, "POST, GET, DELETE"),
            _ => return response,
        };
        let headers = response.headers_mut();
        headers.insert(header.0, HeaderValue::from_static(header.1));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_selects_json_or_stream() {
        for (accept, json, stream) in [
            (None, true, true),
            (Some("application/json, text/event-stream"), true, true),
            (Some("application/json"), true, false),
            (Some("text/event-stream;q=0.9, */*;q=0.1"), true, true),
            (Some("text/*"), false, true),
            (Some("text/html"), false, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(accepts(&headers, "application/json"), json, "{accept:?}");
            assert_eq!(accepts(&headers, "text/event-stream"), stream, "{accept:?}");
        }
    }
}
