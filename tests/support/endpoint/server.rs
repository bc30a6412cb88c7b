//! The HTTP side of the scripted endpoint.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::connections::{CountedConnection, CountedListener, Gauge};
use super::scenario::{ErrorReply, Reply, ReplyOrder, Scenario, TokenForm};
use super::wire;

/// What the server and the test see of each other.
#[derive(Debug)]
pub(super) struct EndpointState {
    scenario: Scenario,
    seen: Mutex<SeenRequests>,
    pub(super) open_streams: Gauge,
    pub(super) open_connections: Gauge,
    /// Answers that were given to their end.
    finished: AtomicUsize,
}

#[derive(Debug, Default)]
struct SeenRequests {
    requests: Vec<Value>,
    authorizations: Vec<Option<String>>,
    others: Vec<(String, Value)>,
    mismatches: Vec<String>,
    /// The reply that comes next.
    next: usize,
}

impl EndpointState {
    pub(super) fn new(scenario: Scenario) -> Self {
        Self {
            scenario,
            seen: Mutex::default(),
            open_streams: Gauge::default(),
            open_connections: Gauge::default(),
            finished: AtomicUsize::new(0),
        }
    }

    pub(super) fn requests(&self) -> Vec<Value> {
        self.seen().requests.clone()
    }

    pub(super) fn authorizations(&self) -> Vec<Option<String>> {
        self.seen().authorizations.clone()
    }

    pub(super) fn others(&self) -> Vec<(String, Value)> {
        self.seen().others.clone()
    }

    pub(super) fn mismatches(&self) -> Vec<String> {
        self.seen().mismatches.clone()
    }

    pub(super) fn replies_left(&self) -> usize {
        self.scenario.replies.len().saturating_sub(self.seen().next)
    }

    pub(super) fn disconnects(&self) -> usize {
        let open = self.open_streams.count();
        let ended = self.open_streams.total().saturating_sub(open);
        ended.saturating_sub(self.finished.load(Ordering::SeqCst))
    }

    fn seen(&self) -> MutexGuard<'_, SeenRequests> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model(&self) -> &str {
        self.scenario
            .models
            .first()
            .map_or("scripted", String::as_str)
    }

    /// The reply for a request, or the refusal of it.
    fn choose(&self, request: &Value) -> Result<Reply, Refusal> {
        let replies = &self.scenario.replies;
        let mut seen = self.seen();
        let number = seen.requests.len();
        let reply = match self.scenario.order {
            ReplyOrder::Once => replies.get(seen.next),
            ReplyOrder::Repeat => replies.get(seen.next % replies.len().max(1)),
            ReplyOrder::FirstMatch => replies.iter().find(|reply| {
                let expect = reply.expect.as_ref();
                expect.is_none_or(|expect| expect.mismatches(request).is_empty())
            }),
        };
        seen.next += 1;
        let Some(reply) = reply else {
            let message = format!(
                "the scenario has {} replies, and none is left for request {number}",
                replies.len()
            );
            return Err(Refusal {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                code: "scenario_exhausted",
                message,
            });
        };
        let expect = reply.expect.as_ref();
        let found = expect
            .map(|expect| expect.mismatches(request))
            .unwrap_or_default();
        if found.is_empty() {
            return Ok(reply.clone());
        }
        let message = format!("request {number} is not as expected: {}", found.join("; "));
        seen.mismatches.push(message.clone());
        Err(Refusal {
            status: StatusCode::BAD_REQUEST,
            code: "unexpected_request",
            message,
        })
    }
}

/// Serves until told to stop, and then drops every connection.
pub(super) fn run(
    shared: Arc<EndpointState>,
    at: &str,
    ready: &mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime for the endpoint: {error}"));
    runtime.block_on(async {
        let listener = TcpListener::bind(at).await;
        let listener = listener.unwrap_or_else(|error| panic!("no port for the endpoint: {error}"));
        if let Ok(address) = listener.local_addr() {
            let _ = ready.send(address);
        }
        let open = shared.open_connections.clone();
        let listener = CountedListener {
            inner: listener,
            open,
        };
        let app = Router::new()
            .route(
                "/health",
                get(|| async { axum::Json(json!({"status": "ok"})) }),
            )
            .route("/v1/models", get(models))
            .route("/v1/chat/completions", post(chat))
            .fallback(other)
            // Images of several requests are larger than the default of 2 MB.
            .layer(DefaultBodyLimit::disable())
            .with_state(shared);
        tokio::select! {
            _ = axum::serve(listener, app) => {}
            _ = stopped => {}
        }
    });
    // Connections are tasks of their own; they go with the runtime.
    runtime.shutdown_background();
}

async fn models(State(shared): State<Arc<EndpointState>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = authorize(&shared, &headers) {
        return refusal.into_response();
    }
    if let Some(answer) = shared.scenario.routes.get("/v1/models") {
        return axum::Json(answer.clone()).into_response();
    }
    let names = if shared.scenario.models.is_empty() {
        vec![shared.model().to_owned()]
    } else {
        shared.scenario.models.clone()
    };
    let data: Vec<Value> = names
        .iter()
        .map(|name| json!({"id": name, "object": "model", "created": 1, "owned_by": "tests"}))
        .collect();
    axum::Json(json!({"object": "list", "data": data})).into_response()
}

/// Whatever is not a chat: what the scenario says for the path, and what servers have beside it.
async fn other(
    State(shared): State<Arc<EndpointState>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refusal) = authorize(&shared, &headers) {
        return refusal.into_response();
    }
    let path = uri.path().to_owned();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    shared.seen().others.push((path.clone(), request.clone()));
    let counted = || {
        let others = &shared.seen().others;
        others
            .iter()
            .filter(|(path, _)| path == "/tokenize")
            .count()
    };
    if let ("/tokenize", Some(most)) = (path.as_str(), shared.scenario.tokenize_most)
        && counted() > most
    {
        return Refusal {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "tokenizer",
            message: "the tokenizer is gone".into(),
        }
        .into_response();
    }
    let answer = match (path.as_str(), shared.scenario.tokenize) {
        (path, _) if shared.scenario.routes.contains_key(path) => {
            shared.scenario.routes[path].clone()
        }
        ("/tokenize", Some(form)) => tokenized(form, &request),
        ("/v1/embeddings", _) if shared.scenario.embeds => embedded(&request),
        _ => {
            return Refusal {
                status: StatusCode::NOT_FOUND,
                code: "not_found",
                message: format!("there is no {path}"),
            }
            .into_response();
        }
    };
    axum::Json(answer).into_response()
}

/// A word a token, in the shape that goes with the form.
fn tokenized(form: TokenForm, request: &Value) -> Value {
    let words = |field: &str| {
        let text = request[field].as_str().unwrap_or_default();
        (0..text.split_whitespace().count()).collect::<Vec<_>>()
    };
    match form {
        TokenForm::Prompt => {
            let tokens = words("prompt");
            json!({"count": tokens.len(), "max_model_len": 4096, "tokens": tokens})
        }
        // No error for a form that it does not know: an empty text.
        TokenForm::Content => json!({"tokens": words("content")}),
        TokenForm::Inputs => json!(words("inputs")),
    }
}

/// The last text first, as the standard allows.
fn embedded(request: &Value) -> Value {
    let texts = request["input"].as_array().cloned().unwrap_or_default();
    let data = texts.iter().enumerate().rev().map(|(index, text)| {
        let text = text.as_str().unwrap_or_default();
        let vector = [text.chars().count(), text.split_whitespace().count()];
        json!({"object": "embedding", "index": index, "embedding": vector})
    });
    let data: Vec<Value> = data.collect();
    json!({"object": "list", "data": data, "usage": {"prompt_tokens": texts.len(), "total_tokens": texts.len()}})
}

async fn chat(
    State(shared): State<Arc<EndpointState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // From here on a real server would be working on the answer.
    let stream = OpenStream {
        _place: shared.open_streams.enter(),
        shared: Arc::clone(&shared),
        is_finished: false,
    };
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        let refusal = Refusal {
            status: StatusCode::BAD_REQUEST,
            code: "invalid_json",
            message: "the body is no JSON".into(),
        };
        return stream.end(refusal.into_response());
    };
    {
        let mut seen = shared.seen();
        let authorization = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        seen.authorizations.push(authorization.map(str::to_owned));
        seen.requests.push(request.clone());
    }
    if let Err(refusal) = authorize(&shared, &headers) {
        return stream.end(refusal.into_response());
    }
    let mut reply = match shared.choose(&request) {
        Ok(reply) => reply,
        Err(refusal) => return stream.end(refusal.into_response()),
    };
    if reply.obeys {
        reply.solution = Some(wire::instance(
            &request["response_format"]["json_schema"]["schema"],
        ));
    }
    if reply.never {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(reply.delay_ms)).await;
    if let Some(refusal) = &reply.error {
        return stream.end(error_reply(refusal));
    }
    if reply.html {
        let page = "<!doctype html>\n<html><head><title>Welcome</title></head><body>It works!</body></html>";
        return stream.end(axum::response::Html(page).into_response());
    }
    let model = request["model"].as_str().filter(|name| !name.is_empty());
    let model = model.unwrap_or_else(|| shared.model()).to_owned();
    let is_streaming = request["stream"] == json!(true);
    if !is_streaming && reply.raw.is_none() && !reply.endless {
        return stream.end(axum::Json(wire::answer(&reply, &model)).into_response());
    }
    streamed(stream, &reply, &model)
}

fn streamed(stream: OpenStream, reply: &Reply, model: &str) -> Response {
    let content_type = reply.content_type.as_deref().unwrap_or("text/event-stream");
    let headers = [(CONTENT_TYPE, content_type.to_owned())];
    let script = ScriptedBody {
        events: match &reply.raw {
            Some(body) => vec![body.clone().into_bytes()],
            None if reply.endless => vec![wire::endless_event(model)],
            None => wire::events(reply, model),
        },
        next: 0,
        endless: reply.endless,
        between: Duration::from_millis(reply.between_ms),
        bytes_left: reply.truncate_after,
        stream,
    };
    let body = stream::unfold(Some(script), |script| async {
        let mut script = script?;
        match script.next_event().await {
            NextChunk::Event(bytes) => Some((Ok(bytes), Some(script))),
            NextChunk::End => {
                script.stream.is_finished = true;
                None
            }
            NextChunk::Break => {
                script.stream.is_finished = true;
                Some((Err(io::Error::other("broken on purpose")), None))
            }
        }
    });
    (headers, Body::from_stream(body)).into_response()
}

/// Counts as an open stream until dropped: at the end of the body, or when the client has left.
struct OpenStream {
    _place: CountedConnection,
    shared: Arc<EndpointState>,
    is_finished: bool,
}

impl OpenStream {
    /// An answer that is given at once.
    fn end(mut self, response: Response) -> Response {
        self.is_finished = true;
        response
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if self.is_finished {
            self.shared.finished.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A body as it is being sent.
struct ScriptedBody {
    events: Vec<Vec<u8>>,
    next: usize,
    endless: bool,
    between: Duration,
    /// Until the connection is broken.
    bytes_left: Option<usize>,
    stream: OpenStream,
}

enum NextChunk {
    Event(Bytes),
    End,
    Break,
}

impl ScriptedBody {
    async fn next_event(&mut self) -> NextChunk {
        if self.bytes_left == Some(0) {
            // What was written is flushed only while the body makes the connection wait.
            tokio::time::sleep(Duration::from_millis(10)).await;
            return NextChunk::Break;
        }
        if self.next > 0 {
            tokio::time::sleep(self.between).await;
        }
        // Leaves other tasks their turn: an endless stream into a fast reader never waits.
        tokio::task::yield_now().await;
        let place = if self.endless { 0 } else { self.next };
        let Some(event) = self.events.get(place) else {
            return NextChunk::End;
        };
        self.next += 1;
        let mut bytes = Bytes::copy_from_slice(event);
        if let Some(left) = &mut self.bytes_left {
            bytes.truncate(*left);
            *left -= bytes.len();
        }
        NextChunk::Event(bytes)
    }
}

fn authorize(shared: &EndpointState, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(key) = &shared.scenario.key else {
        return Ok(());
    };
    let expected = format!("Bearer {key}");
    match headers.get(AUTHORIZATION) {
        Some(value) if value.as_bytes() == expected.as_bytes() => Ok(()),
        _ => Err(Refusal {
            status: StatusCode::UNAUTHORIZED,
            code: "invalid_api_key",
            message: "Incorrect API key provided".into(),
        }),
    }
}

/// An error of the endpoint's own, in the shape of the OpenAI API.
struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = json!({"message": self.message, "type": "scripted_error", "code": self.code});
        (self.status, axum::Json(json!({ "error": error }))).into_response()
    }
}

fn error_reply(reply: &ErrorReply) -> Response {
    let mut response = match &reply.body {
        Value::String(text) => text.clone().into_response(),
        body => axum::Json(body.clone()).into_response(),
    };
    *response.status_mut() = status_code(reply.status);
    for (name, value) in &reply.headers {
        let header = name
            .parse::<axum::http::HeaderName>()
            .ok()
            .zip(value.parse().ok());
        let (name, value) = header.unwrap_or_else(|| panic!("no header: {name}: {value}"));
        response.headers_mut().insert(name, value);
    }
    response
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or_else(|_| panic!("no HTTP status: {status}"))
}
