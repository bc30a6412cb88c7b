//! HTTP over `wasi:http`: one request, from its parts to the last byte of the response (feature `http`).
//!
//! A module reaches only the origins that it was granted, and never holds a secret: the host puts granted secrets into
//! the requests to their origins. Redirects are followed by the host, as far as the grant allows.
//!
//! ```ignore
//! let response = Request::get("https://api.example.com/items").send(1 << 20)?;
//! let items: Vec<Item> = serde_json::from_slice(&response.body)?;
//! ```

use std::time::Duration;

use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme, http_error_code,
};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::StreamError;

use crate::Error;

/// Bytes that are asked for at a time.
const CHUNK: u64 = 64 << 10;
/// Most bytes that `blocking-write-and-flush` takes at a time, by its definition.
const WRITE: usize = 4096;
/// How much later than the module the host ends a request, so that the module's own words come first.
const HOST_SLACK: Duration = Duration::from_millis(50);

/// A request that has not been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Absolute, `http` or `https`.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
    /// For all of it, from the lookup of the host's name to the last byte; without it, what the host allows.
    pub timeout: Option<Duration>,
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// In the server's order; names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the server has more of the body than was read.
    pub is_cut: bool,
}

impl Request {
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            timeout: None,
        }
    }

    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request and reads at most `most` bytes of the response's body. A response of any status is `Ok`.
    ///
    /// # Errors
    /// Correctable for what is wrong with the request, retryable where the server or the network did not answer, and
    /// fatal where the request is not granted or reached a limit of the call.
    pub fn send(&self, most: u64) -> Result<Response, Error> {
        let target = Target::of(&self.url)?;
        let mut headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
            .collect();
        // Without it the body is sent in chunks, which some servers do not read.
        let has_length = |(name, _): &(String, String)| name.eq_ignore_ascii_case("content-length");
        if let Some(body) = &self.body
            && !self.headers.iter().any(has_length)
        {
            headers.push((
                "content-length".to_owned(),
                body.len().to_string().into_bytes(),
            ));
        }
        let headers = Fields::from_list(&headers)
            .map_err(|error| Error::correctable(format!("a header cannot be sent: {error}")))?;
        let outgoing = OutgoingRequest::new(headers);
        let is_taken = outgoing.set_method(&method(&self.method)).is_ok()
            && outgoing.set_scheme(Some(&target.scheme)).is_ok()
            && outgoing.set_authority(Some(target.authority)).is_ok()
            && outgoing.set_path_with_query(Some(&target.path)).is_ok();
        if !is_taken {
            let message = format!(
                "{} {} is no request that can be sent",
                self.method, self.url
            );
            return Err(Error::correctable(message));
        }
        let body = match &self.body {
            Some(bytes) => Some((outgoing.body().map_err(|()| lost("request"))?, bytes)),
            None => None,
        };
        let deadline = self
            .timeout
            .map(|timeout| subscribe_duration(nanoseconds(timeout)));
        let options = self.timeout.map(|timeout| {
            let options = RequestOptions::new();
            // While it sends a body, a module waits for nothing but the host.
            let _ = options
                .set_first_byte_timeout(Some(nanoseconds(timeout.saturating_add(HOST_SLACK))));
            options
        });
        let pending = handle(outgoing, options).map_err(|code| self.failed(&code))?;
        if let Some((body, bytes)) = body {
            // Why it was refused comes in the response's place.
            let _ = write(body, bytes);
        }
        let deadline = deadline.as_ref();
        self.wait(&pending.subscribe(), deadline)?;
        match pending.get() {
            Some(Ok(Ok(response))) => self.read(&response, most, deadline),
            Some(Ok(Err(code))) => Err(self.ended(&code, deadline)),
            Some(Err(())) | None => Err(lost("response")),
        }
    }

    /// Waits until `ready` is; an error where the request's time is over before.
    fn wait(&self, ready: &Pollable, deadline: Option<&Pollable>) -> Result<(), Error> {
        let Some(deadline) = deadline else {
            ready.block();
            return Ok(());
        };
        while !ready.ready() {
            if deadline.ready() {
                return Err(self.late());
            }
            poll(&[ready, deadline]);
        }
        Ok(())
    }

    fn late(&self) -> Error {
        let given = self.timeout.unwrap_or_default().as_millis();
        self.broke_off(&format!(
            "it took longer than the {given} ms that the module gave it"
        ))
    }

    /// An error of the host, unless the request's own time is over, which is why it failed then.
    fn ended(&self, code: &ErrorCode, deadline: Option<&Pollable>) -> Error {
        if deadline.is_some_and(Pollable::ready) {
            self.late()
        } else {
            self.failed(code)
        }
    }

    fn read(
        &self,
        response: &IncomingResponse,
        most: u64,
        deadline: Option<&Pollable>,
    ) -> Result<Response, Error> {
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        let headers = response.headers().entries();
        let mut read = Response {
            status: response.status(),
            headers: headers
                .into_iter()
                .map(|(name, value)| (name.to_lowercase(), text(value)))
                .collect(),
            body: Vec::new(),
            is_cut: false,
        };
        let body = response.consume().map_err(|()| lost("body"))?;
        let stream = body.stream().map_err(|()| lost("body"))?;
        let readable = stream.subscribe();
        loop {
            let room = most - read.body.len() as u64;
            self.wait(&readable, deadline)?;
            match stream.read(next_read(room)) {
                Ok(chunk) if chunk.len() as u64 > room => {
                    read.body.extend_from_slice(&chunk[..room as usize]);
                    read.is_cut = true;
                    break;
                }
                Ok(chunk) => read.body.extend_from_slice(&chunk),
                Err(StreamError::Closed) => break,
                Err(StreamError::LastOperationFailed(error)) => {
                    return Err(match http_error_code(&error) {
                        Some(code) => self.ended(&code, deadline),
                        None => self.broke_off(&error.to_debug_string()),
                    });
                }
            }
        }
        drop(readable);
        drop(stream);
        drop(IncomingBody::finish(body));
        Ok(read)
    }

    /// The server had the request, or a part of it.
    fn broke_off(&self, why: &str) -> Error {
        let Self { method, url, .. } = self;
        if is_repeatable(method) {
            Error::retryable(format!("{method} {url} broke off: {why}"))
        } else {
            Error::fatal(format!(
                "{method} {url} broke off: {why}. The server may have carried it out: look before it is sent again"
            ))
        }
    }

    /// What to say of an error of the host, and whose move it is (docs/modules.md, "HTTP").
    fn failed(&self, code: &ErrorCode) -> Error {
        let Self { method, url, .. } = self;
        let unreachable = |why| Error::correctable(format!("{url} cannot be reached: {why}"));
        let silent = |why| Error::retryable(format!("{url} did not answer: {why}"));
        match code {
            ErrorCode::HttpRequestDenied => Error::fatal(format!(
                "{method} {url} was not granted to this module, or redirects to what was not; an operator can: \
                 toolhold modules grant MODULE --with-http {} (toolhold modules call names what was refused)",
                origin(url)
            )),
            ErrorCode::DestinationIpProhibited => Error::fatal(format!(
                "{url} is on a private network, or redirects to one, which the grant does not include; an operator can: \
                 toolhold modules grant MODULE --with-http {} --private",
                origin(url)
            )),
            ErrorCode::LoopDetected => Error::correctable(format!(
                "{url} redirects more often than the grant allows; ask for the address that it leads to"
            )),
            ErrorCode::ConnectionLimitReached => Error::fatal(format!(
                "{method} {url} was not sent: this call reached its limit of requests (`http_requests`) or of requests \
                 at once (`http_concurrent`)"
            )),
            ErrorCode::HttpRequestBodySize(_) => Error::fatal(format!(
                "{method} {url} was not sent: its body is more than this call may send (`http_request_bytes`), or has \
                 another length than its header says"
            )),
            ErrorCode::HttpResponseBodySize(_) => Error::fatal(format!(
                "what {url} answered is more than this call may receive (`http_response_bytes`)"
            )),
            ErrorCode::DnsError(_) => unreachable("DNS-error"),
            ErrorCode::DestinationNotFound => unreachable("destination-not-found"),
            ErrorCode::HttpRequestUriInvalid => unreachable("HTTP-request-URI-invalid"),
            ErrorCode::HttpRequestUriTooLong => unreachable("HTTP-request-URI-too-long"),
            ErrorCode::HttpRequestMethodInvalid => unreachable("HTTP-request-method-invalid"),
            ErrorCode::DnsTimeout => silent("DNS-timeout"),
            ErrorCode::DestinationUnavailable => silent("destination-unavailable"),
            ErrorCode::ConnectionRefused => silent("connection-refused"),
            ErrorCode::ConnectionTimeout => silent("connection-timeout"),
            ErrorCode::ConnectionTerminated => self.broke_off("connection-terminated"),
            ErrorCode::ConnectionReadTimeout => self.broke_off("connection-read-timeout"),
            ErrorCode::ConnectionWriteTimeout => self.broke_off("connection-write-timeout"),
            ErrorCode::HttpResponseIncomplete => self.broke_off("HTTP-response-incomplete"),
            ErrorCode::HttpResponseTimeout => self.broke_off("HTTP-response-timeout"),
            ErrorCode::InternalError(Some(said)) => {
                Error::fatal(format!("{method} {url} failed: {said}"))
            }
            other => Error::fatal(format!("{method} {url} failed: {other}")),
        }
    }
}

/// The scheme and the authority of a URL.
fn origin(url: &str) -> &str {
    let begin = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(begin..).unwrap_or_default();
    let end = begin + rest.find(['/', '?', '#']).unwrap_or(rest.len());
    url.get(..end).unwrap_or(url)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How much is read at a time where `room` bytes are left: one byte more says whether there is more.
fn next_read(room: u64) -> u64 {
    room.saturating_add(1).min(CHUNK)
}

/// Methods whose requests may be sent again (RFC 9110, 9.2.2).
fn is_repeatable(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
}

impl Response {
    /// The first header of this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The parts of a URL as `wasi:http` takes them.
struct Target<'a> {
    scheme: Scheme,
    authority: &'a str,
    path: String,
}

impl<'a> Target<'a> {
    fn of(url: &'a str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::correctable(format!("{url:?} {why}"));
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| wrong("is no absolute URL: write it with https://"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(wrong("is neither http nor https")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return Err(wrong("names no host"));
        }
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Ok(Self {
            scheme,
            authority,
            path,
        })
    }
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.into()),
    }
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), StreamError> {
    if let Ok(stream) = body.write() {
        for chunk in bytes.chunks(WRITE) {
            stream.blocking_write_and_flush(chunk)?;
        }
    }
    let _ = OutgoingBody::finish(body, None);
    Ok(())
}

/// What the interface promises and did not keep.
fn lost(what: &str) -> Error {
    Error::fatal(format!("the host gave no {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_carried_out_is_not_to_be_sent_again() {
        for (method, is_final) in [
            ("GET", false),
            ("PUT", false),
            ("POST", true),
            ("PATCH", true),
        ] {
            let error = Request::new(method, "https://a.example").broke_off("a reset");
            let message = error.message().to_owned();
            assert_eq!(error == Error::fatal(&*message), is_final, "{message}");
            assert_eq!(
                message.contains("may have carried it out"),
                is_final,
                "{message}"
            );
        }
    }

    #[test]
    fn what_a_grant_names_is_the_origin() {
        for (url, expected) in [
            ("https://a.example/b?c", "https://a.example"),
            ("http://[::1]:9?c", "http://[::1]:9"),
            ("https://a.example", "https://a.example"),
        ] {
            assert_eq!(origin(url), expected);
        }
    }

    /// A read of no bytes never ends.
    #[test]
    fn every_read_takes_something() {
        for (room, expected) in [(0, 1), (9, 10), (CHUNK, CHUNK), (u64::MAX, CHUNK)] {
            assert_eq!(next_read(room), expected, "{room}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        for (url, authority, path) in [
            ("https://a.example", "a.example", "/"),
            (
                "HTTP://a.example:8080/b/c?d=e#f",
                "a.example:8080",
                "/b/c?d=e",
            ),
            ("https://a.example?q=1", "a.example", "/?q=1"),
            ("http://[::1]:9/x", "[::1]:9", "/x"),
        ] {
            let target = Target::of(url).unwrap();
            assert_eq!(
                (target.authority, target.path.as_str()),
                (authority, path),
                "{url}"
            );
        }
        for (url, why) in [
            ("a.example/b", "no absolute URL"),
            ("ftp://a.example", "neither http nor https"),
            ("https:///b", "names no host"),
        ] {
            let error = Target::of(url).err().unwrap();
            assert!(
                error.is_correctable() && error.message().contains(why),
                "{url}: {}",
                error.message()
            );
        }
    }
}
