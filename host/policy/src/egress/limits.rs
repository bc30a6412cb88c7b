//! The limits of outbound HTTP for one call.

use crate::limits::Limits;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;

/// The limits of outbound HTTP. All but `timeout_ms` hold for one tool call as a whole.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HttpLimit {
    #[error("{0} HTTP requests")]
    Requests(u32),
    #[error("{0} bytes in HTTP request bodies")]
    RequestBytes(u64),
    #[error("{0} bytes of HTTP responses")]
    ResponseBytes(u64),
    #[error("{} ms for one HTTP request", .0.as_millis())]
    Time(Duration),
    #[error("{0} HTTP requests at a time")]
    Concurrent(u32),
    #[error("{0} bytes in the fields of one HTTP message")]
    FieldBytes(u64),
    #[error("{0} fields in one HTTP message")]
    Fields(u64),
}
