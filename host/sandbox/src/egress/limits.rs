//! What one call may use of HTTP, and the meter that counts it.

use crate::limits::Limits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use wasmtime_wasi_http::Error;

/// The limits of outbound HTTP. All but `timeout_ms` are for one tool call as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpLimits {
    /// Requests a call may send, each followed redirect counted.
    pub requests: u32,
    /// Bytes of all request bodies together.
    pub request_bytes: u64,
    /// Bytes of all responses together, headers and trailers counted, as they came over the wire:
    /// nothing is decompressed here.
    pub response_bytes: u64,
    /// Milliseconds for one request, from the lookup of the name to the last byte of the response.
    pub timeout_ms: u64,
    /// Requests under way at a time, until the response was read or dropped.
    pub concurrent: u32,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            // A tool that needs more per call is crawling.
            requests: 32,
            request_bytes: 1 << 20,
            // Twice what a call may return: most of a page is thrown away.
            response_bytes: 8 << 20,
            timeout_ms: 10_000,
            // What browsers open to one host, and some.
            concurrent: 8,
        }
    }
}

impl From<&Limits> for HttpLimits {
    fn from(limits: &Limits) -> Self {
        let count = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        Self {
            requests: count(limits.http_requests),
            request_bytes: limits.http_request_bytes,
            response_bytes: limits.http_response_bytes,
            timeout_ms: limits.http_timeout_ms,
            concurrent: count(limits.http_concurrent),
        }
    }
}

/// A limit of HTTP that fired, and its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpLimit {
    Requests(u32),
    RequestBytes(u64),
    ResponseBytes(u64),
    Time(Duration),
    Concurrent(u32),
}

impl HttpLimit {
    /// What the guest is told.
    fn code(self) -> Error {
        match self {
            Self::Requests(_) | Self::Concurrent(_) => Error::ConnectionLimitReached,
            Self::RequestBytes(limit) => Error::HttpRequestBodySize(Some(limit)),
            Self::ResponseBytes(limit) => Error::HttpResponseBodySize(Some(limit)),
            Self::Time(_) => Error::HttpResponseTimeout,
        }
    }
}

impl fmt::Display for HttpLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(limit) => write!(f, "{limit} HTTP requests"),
            Self::RequestBytes(limit) => write!(f, "{limit} bytes in HTTP request bodies"),
            Self::ResponseBytes(limit) => write!(f, "{limit} bytes of HTTP responses"),
            Self::Time(limit) => write!(f, "{} ms for one HTTP request", limit.as_millis()),
            Self::Concurrent(limit) => write!(f, "{limit} HTTP requests at a time"),
        }
    }
}

/// Counts one call's use of HTTP. Shared by the call's requests, which run side by side.
#[derive(Debug)]
pub(super) struct Meter {
    pub limits: HttpLimits,
    requests: AtomicU32,
    running: AtomicU32,
    sent: AtomicU64,
    received: AtomicU64,
    redactions: AtomicU64,
    /// The first limit that fired: later ones are its consequences.
    fired: OnceLock<HttpLimit>,
}

impl Meter {
    pub fn new(limits: HttpLimits) -> Self {
        Self {
            limits,
            requests: AtomicU32::new(0),
            running: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            redactions: AtomicU64::new(0),
            fired: OnceLock::new(),
        }
    }

    pub fn fired(&self) -> Option<HttpLimit> {
        self.fired.get().copied()
    }

    pub fn redactions(&self) -> u64 {
        self.redactions.load(Relaxed)
    }

    pub fn redacted(&self, count: u64) {
        self.redactions.fetch_add(count, Relaxed);
    }

    /// Notes that `limit` fired; the answer is what the guest is told.
    pub fn fire(&self, limit: HttpLimit) -> Error {
        let _ = self.fired.set(limit);
        limit.code()
    }

    /// A place among the concurrent requests, held until it is dropped.
    pub fn start(self: &Arc<Self>) -> Result<Running, Error> {
        let running = Running(self.clone());
        if self.running.fetch_add(1, Relaxed) >= self.limits.concurrent {
            return Err(self.fire(HttpLimit::Concurrent(self.limits.concurrent)));
        }
        Ok(running)
    }

    /// One more request goes out.
    pub fn request(&self) -> Result<(), Error> {
        if self.requests.fetch_add(1, Relaxed) >= self.limits.requests {
            return Err(self.fire(HttpLimit::Requests(self.limits.requests)));
        }
        Ok(())
    }

    /// `bytes` more of request bodies.
    pub fn send(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.limits.request_bytes;
        let before = self.sent.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > limit {
            return Err(self.fire(HttpLimit::RequestBytes(limit)));
        }
        Ok(())
    }

    /// `bytes` more of responses.
    pub fn receive(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.limits.response_bytes;
        let before = self.received.fetch_add(bytes, Relaxed);
        if before.saturating_add(bytes) > limit {
            return Err(self.fire(HttpLimit::ResponseBytes(limit)));
        }
        Ok(())
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Running(Arc<Meter>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_fires_at_its_bound_and_the_first_is_remembered() {
        let meter = Arc::new(Meter::new(HttpLimits {
            requests: 2,
            request_bytes: 10,
            response_bytes: 10,
            concurrent: 1,
            ..HttpLimits::default()
        }));
        let running = meter.start().unwrap();
        assert!(meter.request().is_ok() && meter.request().is_ok());
        assert!(meter.send(10).is_ok() && meter.receive(10).is_ok());
        assert_eq!(meter.fired(), None);
        assert!(matches!(
            meter.receive(1),
            Err(Error::HttpResponseBodySize(Some(10)))
        ));
        assert!(matches!(
            meter.send(1),
            Err(Error::HttpRequestBodySize(Some(10)))
        ));
        assert!(meter.start().is_err() && meter.request().is_err());
        assert_eq!(meter.fired(), Some(HttpLimit::ResponseBytes(10)));
        drop(running);
        assert!(meter.start().is_ok());
    }
}
