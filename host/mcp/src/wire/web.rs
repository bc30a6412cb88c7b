//! A server over streamable HTTP: each message is a POST, answered with JSON or an event stream.

use crate::error::{Failure, one_line};
use crate::rpc;
use crate::settings::ServerSettings;
use crate::wire::process::unasked;
use crate::wire::rpc::{Incoming, cancelled, parse, reported};
use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use reqwest::{Client, Response, StatusCode, Url, redirect};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use toolhold_intake::body::{BodyEnd, BodyFault, BodyReader};
use toolhold_intake::encoding::{EncodingError, Expander, expanded};
use toolhold_intake::sse::SseEvent;
use toolhold_policy::ErrorClass;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Longest session id: the same bound as for request ids.
const MAX_SESSION: usize = 1_024;
/// Timeout of requests without a waiting caller: cancelling a request, ending a session.
const UNAWAITED_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes of a refusal that are read for its error: a message and its envelope.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Maximum time for reading them. The status is known already, and a call must not wait for words alone.
const ERROR_TIMEOUT: Duration = Duration::from_secs(2);

/// A session with a server over HTTP.
#[derive(Debug)]
pub struct HttpSession {
    line: Arc<HttpLine>,
    next: AtomicU64,
    tools_changed: AtomicBool,
    message_bytes: usize,
    result_bytes: usize,
}

/// The HTTP connection of a session.
#[derive(Debug)]
struct HttpLine {
    client: Client,
    url: Url,
    /// Headers with the session id and version, after `initialize`.
    agreed: Mutex<HeaderMap>,
    is_open: AtomicBool,
}

impl HttpSession {
    pub fn new(
        settings: &ServerSettings,
        url: &str,
        secrets: &[(String, SecretString)],
    ) -> Result<Self, Failure> {
        let mut headers = HeaderMap::new();
        for (name, token) in secrets {
            let value = format!("Bearer {}", token.expose_secret());
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                Failure::Settings(format!(
                    "the variable {name} holds characters that no header may carry"
                ))
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("toolhold/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.timeout)
            // A redirect would send the token to another host.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| Failure::Settings(error.to_string()))?;
        Ok(Self {
            line: Arc::new(HttpLine {
                client,
                url: address(url).map_err(Failure::Settings)?,
                agreed: Mutex::default(),
                is_open: AtomicBool::new(true),
            }),
            next: AtomicU64::new(1),
            tools_changed: AtomicBool::new(false),
            message_bytes: settings.message_bytes(),
            result_bytes: settings.max_result_bytes,
        })
    }

    /// Sends a request and waits for the answer. Dropping the future cancels the request at the server.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let guard = PostedRequest {
            // The protocol forbids cancelling `initialize`.
            line: (method != "initialize").then(|| self.line.clone()),
            id,
        };
        let response = self.line.post(rpc::request(id, method, params)).await;
        let answer = match response {
            Ok(response) => {
                self.line.keep_session(&response)?;
                self.answer(id, response).await
            }
            Err(failure) => Err(failure),
        };
        guard.done();
        answer
    }

    pub async fn notify(&self, method: &str) -> Result<(), Failure> {
        self.line
            .post(rpc::notification(method, None))
            .await
            .map(drop)
    }

    /// Sets the version header of all later messages.
    pub fn agree(&self, version: &str) {
        if let Ok(value) = HeaderValue::from_str(version) {
            self.line.agreed.lock().insert(VERSION, value);
        }
    }

    pub fn is_open(&self) -> bool {
        self.line.is_open.load(Ordering::Relaxed)
    }

    /// Whether the server announced a change of its tools since the previous call.
    pub fn tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::Relaxed)
    }

    /// Ends the session; does not wait for a server that does not respond.
    pub async fn close(&self) {
        let headers = self.line.agreed.lock().clone();
        if headers.contains_key(SESSION) {
            let request = self.line.client.delete(self.line.url.clone());
            let _ =
                tokio::time::timeout(UNAWAITED_REQUEST_TIMEOUT, request.headers(headers).send())
                    .await;
        }
    }

    async fn answer(&self, id: u64, response: Response) -> Result<Value, Failure> {
        let text = |name: HeaderName| {
            let value = response.headers().get(name)?;
            value.to_str().ok()
        };
        let content_type = text(CONTENT_TYPE).unwrap_or_default().to_owned();
        let expander = Expander::new(text(CONTENT_ENCODING));
        let expander = expander.map_err(compressed)?;
        let mut body = BodyReader::new(self.message_bytes, Some(&content_type));
        let unread = |fault: BodyFault| match fault {
            BodyFault::TooLarge => Failure::TooLarge(self.result_bytes),
            BodyFault::Foreign(head) => Failure::Protocol(format!(
                "it answered with the content type {:?}, and it begins: {:?}",
                one_line(&content_type),
                one_line(&String::from_utf8_lossy(&head))
            )),
        };
        let chunks = response.bytes_stream();
        let chunks = chunks.map(|chunk| chunk.map_err(unreachable));
        let mut chunks = expanded(chunks.boxed(), expander, compressed).boxed();
        let mut passed = PassedMessages::default();
        while let Some(chunk) = chunks.next().await {
            let events = body.push(&chunk?).map_err(unread)?;
            if let Some(outcome) = self.among(id, events, &mut passed).await? {
                return outcome;
            }
        }
        match body.finish().map_err(unread)? {
            BodyEnd::Empty => Err(Failure::Unreachable("its answer is empty".into())),
            BodyEnd::Json(message) => match self.take(id, &message).await {
                Ok(Some(outcome)) => outcome,
                Ok(None) => Err(Failure::Protocol(
                    "it answered another request than ours".into(),
                )),
                Err(reason) => Err(Failure::Protocol(reason)),
            },
            BodyEnd::Events(last) => match self.among(id, last, &mut passed).await? {
                Some(outcome) => outcome,
                None => Err(passed.ended()),
            },
        }
    }

    /// The outcome of the request `id`, if its response is among the events. Other events are passed over: messages of
    /// another kind, and signs of life that are no messages.
    async fn among(
        &self,
        id: u64,
        events: Vec<SseEvent>,
        passed: &mut PassedMessages,
    ) -> Result<Option<Result<Value, Failure>>, Failure> {
        for event in events {
            match self.take(id, event.data.as_bytes()).await {
                Ok(Some(outcome)) => return Ok(Some(outcome)),
                Ok(None) => {}
                Err(reason) => passed.unread = Some(reason),
            }
            unasked(&mut passed.count)?;
        }
        Ok(None)
    }

    /// The outcome of the request `id`, if the message is its response.
    ///
    /// # Errors
    /// Why it is no message.
    async fn take(
        &self,
        id: u64,
        message: &[u8],
    ) -> Result<Option<Result<Value, Failure>>, String> {
        if message.is_empty() {
            return Ok(None);
        }
        match parse(message)? {
            Incoming::Answer { id: other, outcome } if other == id => return Ok(Some(outcome)),
            Incoming::Asked(reply) => {
                let posted = self.line.post(reply);
                let _ = tokio::time::timeout(UNAWAITED_REQUEST_TIMEOUT, posted).await;
            }
            Incoming::ToolsChanged => self.tools_changed.store(true, Ordering::Relaxed),
            Incoming::Answer { .. } | Incoming::Notice => {}
        }
        Ok(None)
    }
}

/// Events of one stream that did not answer its request.
#[derive(Debug, Default)]
struct PassedMessages {
    count: usize,
    /// Why the last one that was no message could not be read.
    unread: Option<String>,
}

impl PassedMessages {
    /// The stream ended, and none of them was the answer.
    fn ended(self) -> Failure {
        let ended = "its stream ended without an answer";
        Failure::Unreachable(match self.unread {
            Some(reason) => format!("{ended}; an event of it is no message: {reason}"),
            None => ended.into(),
        })
    }
}

fn compressed(error: EncodingError) -> Failure {
    Failure::Protocol(format!("its answer cannot be read: {error}"))
}

impl HttpLine {
    async fn post(&self, message: Bytes) -> Result<Response, Failure> {
        let headers = self.agreed.lock().clone();
        let in_session = headers.contains_key(SESSION);
        let response = self
            .client
            .post(self.url.clone())
            .headers(headers)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(message)
            .send()
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            self.is_open.store(false, Ordering::Relaxed);
            let reason = ": it does not know our session any more";
            return Err(Failure::Ended(reason.into()));
        }
        if status.is_redirection() {
            return Err(Failure::Settings(format!(
                "it redirects us (status {status}); write the address where it is"
            )));
        }
        let error = tokio::time::timeout(ERROR_TIMEOUT, error_in(response)).await;
        Err(refusal(status, error.ok().flatten()))
    }

    fn keep_session(&self, response: &Response) -> Result<(), Failure> {
        let Some(session) = response.headers().get(SESSION) else {
            return Ok(());
        };
        if session.len() > MAX_SESSION {
            return Err(Failure::Protocol(
                "the id of its session is too long".into(),
            ));
        }
        self.agreed.lock().entry(SESSION).or_insert(session.clone());
        Ok(())
    }
}

/// The failure of a request that was answered with this status and, in the body, this JSON-RPC error.
fn refusal(status: StatusCode, error: Option<(i64, String)>) -> Failure {
    let words = match &error {
        Some((code, message)) => format!("{status} and the error {code}: {message}"),
        None => status.to_string(),
    };
    let may_pass = status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
    match error {
        _ if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Failure::Forbidden(words)
        }
        _ if may_pass => Failure::Unreachable(format!("it answered with status {words}")),
        Some((code, message)) => match Failure::of_rpc(code, &message) {
            // The status says that the request is at fault: the same one again would not help.
            failure if failure.class() == ErrorClass::Retryable => {
                Failure::Protocol(format!("it answered with status {words}"))
            }
            failure => failure,
        },
        None => Failure::Protocol(format!("it answered with status {words}")),
    }
}

/// The JSON-RPC error in the body of a refusal; `None` if the body is none, or too large.
async fn error_in(response: Response) -> Option<(i64, String)> {
    let text = |name: HeaderName| {
        let value = response.headers().get(name)?;
        value.to_str().ok()
    };
    let mut body = BodyReader::new(MAX_ERROR_BYTES, text(CONTENT_TYPE));
    let expander = Expander::new(text(CONTENT_ENCODING)).ok()?;
    let chunks = response.bytes_stream();
    let chunks = chunks.map(|chunk| chunk.map_err(unreachable));
    let mut chunks = expanded(chunks.boxed(), expander, compressed).boxed();
    let mut events = Vec::new();
    while let Some(chunk) = chunks.next().await {
        events.extend(body.push(&chunk.ok()?).ok()?);
    }
    match body.finish().ok()? {
        BodyEnd::Empty => None,
        BodyEnd::Json(message) => reported(&message),
        BodyEnd::Events(last) => {
            let mut events = events.iter().chain(&last);
            events.find_map(|event| reported(event.data.as_bytes()))
        }
    }
}

/// A request with a waiting caller.
struct PostedRequest {
    line: Option<Arc<HttpLine>>,
    id: u64,
}

impl PostedRequest {
    fn done(mut self) {
        self.line = None;
    }
}

impl Drop for PostedRequest {
    fn drop(&mut self) {
        // Closing the connection does not cancel a request: the server needs a notification.
        if let (Some(line), Ok(runtime)) = (self.line.take(), tokio::runtime::Handle::try_current())
        {
            let message = cancelled(self.id);
            runtime.spawn(async move {
                let _ = tokio::time::timeout(UNAWAITED_REQUEST_TIMEOUT, line.post(message)).await;
            });
        }
    }
}

/// Parses a server's address. Plain HTTP is allowed for loopback only: elsewhere others could read the token
/// and change results.
///
/// # Errors
/// What is wrong with the address.
pub fn address(text: &str) -> Result<Url, String> {
    let url =
        Url::parse(text.trim()).map_err(|error| format!("its url cannot be read: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("its url holds a user name or password; use token_env".into());
    }
    let is_local = url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback());
        host == "localhost" || loopback
    });
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_local => Ok(url),
        "http" => Err("its url must begin with https://; http:// is for this machine alone".into()),
        other => Err(format!("its url has the scheme {other:?}; write https://")),
    }
}

/// The innermost cause of an error.
fn unreachable(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Failure::Unreachable(one_line(&cause.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine() {
        for (text, expect) in [
            ("https://tools.example.com/mcp", ""),
            ("http://localhost:8080/mcp", ""),
            ("http://127.0.0.1/mcp", ""),
            ("http://[::1]:1/mcp", ""),
            ("http://tools.example.com/mcp", "https://"),
            ("http://localhost.example.com/", "https://"),
            ("ftp://localhost/", "scheme"),
            ("https://me:secret@host/", "token_env"),
            ("tools.example.com", "cannot be read"),
        ] {
            match address(text) {
                Ok(_) => assert_eq!(expect, "", "{text}"),
                Err(reason) => {
                    assert!(
                        !expect.is_empty() && reason.contains(expect),
                        "{text}: {reason}"
                    );
                    assert!(!reason.contains("secret"), "{reason}");
                }
            }
        }
    }
}
