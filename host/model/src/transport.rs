//! The interface between the client and the source of responses: a server or a recording.

use std::fmt::{self, Debug};
use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use toolhold_intake::encoding::EncodingError;

/// Carries requests to one endpoint.
///
/// Both the returned future and the body must be cancel-safe: dropping either closes the
/// connection, so that the endpoint stops generating.
pub trait Transport: Send + Sync + Debug {
    /// Where requests go, for messages. Holds no credentials.
    fn target(&self) -> &str;

    /// Sends one request and returns once the response head arrived; the body streams. The caller
    /// bounds the time of both: a transport bounds only that of connecting.
    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>>;
}

/// An HTTP method that the API uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    Post,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "GET",
            Self::Post => "POST",
        })
    }
}

/// A request, relative to the endpoint's base URL.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    pub method: Method,
    /// Relative to the base URL: `chat/completions`, or `../health` for what lies beside `/v1`.
    pub path: String,
    /// Sent as JSON.
    pub body: Option<Value>,
}

impl HttpRequest {
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::Get,
            path: path.to_owned(),
            body: None,
        }
    }

    pub fn post(path: &str, body: Value) -> Self {
        Self {
            method: Method::Post,
            path: path.to_owned(),
            body: Some(body),
        }
    }
}

/// The head of an answer, and its body to come.
pub struct HttpResponse {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: BoxStream<'static, Result<Bytes, TransportError>>,
}

impl HttpResponse {
    /// The first header of this (lower case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// How long the server asks to wait, given in seconds, as a date, or in milliseconds by the
    /// vendor's own header. A date in the past means not at all.
    pub fn retry_after(&self) -> Option<Duration> {
        let number = |name| self.header(name)?.trim().parse::<f64>().ok();
        if let Some(ms) = number("retry-after-ms") {
            return Duration::try_from_secs_f64(ms / 1000.0).ok();
        }
        if let Some(seconds) = number("retry-after") {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        let date = httpdate::parse_http_date(self.header("retry-after")?).ok()?;
        Some(date.duration_since(SystemTime::now()).unwrap_or_default())
    }
}

impl Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// Why there is no answer, or only a part of it.
#[derive(Debug, Error)]
pub enum TransportError {
    /// No connection could be opened.
    #[error("{reason}")]
    Connect {
        url: String,
        /// The root cause, in the system's words.
        reason: String,
    },
    /// No connection was opened in time.
    #[error("no connection to {url} within {after:?}")]
    ConnectTimeout { url: String, after: Duration },
    /// The connection failed while it was in use.
    #[error("the connection broke: {reason}")]
    Broken { url: String, reason: String },
    /// The body is compressed, although nothing asked for it, and cannot be expanded.
    #[error("{source}")]
    Encoding { url: String, source: EncodingError },
    /// A replay was asked for something that was never recorded.
    #[error("{explanation}")]
    Unrecorded {
        /// The request, and its differences from the nearest recording.
        explanation: String,
    },
    /// An exchange could not be written to its recording.
    #[error("the exchange could not be written to its recording ({source}): is the disk full?")]
    Recording { source: io::Error },
    /// The endpoint's configuration cannot work.
    #[error("{message}")]
    Config { message: String },
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};

    use super::*;

    fn retry_after(name: &str, value: &str) -> Option<Duration> {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let body = stream::empty().boxed();
        HttpResponse {
            status: 429,
            headers,
            body,
        }
        .retry_after()
    }

    #[test]
    fn retry_after_comes_in_seconds_milliseconds_and_dates() {
        assert_eq!(
            retry_after("retry-after", "7"),
            Some(Duration::from_secs(7))
        );
        assert_eq!(
            retry_after("retry-after", " 0.5 "),
            Some(Duration::from_millis(500))
        );
        assert_eq!(
            retry_after("retry-after-ms", "250"),
            Some(Duration::from_millis(250))
        );
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_mins(1));
        let wait = retry_after("retry-after", &soon).unwrap();
        assert!((50..=60).contains(&wait.as_secs()), "{wait:?}");
        let past = retry_after("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(past, Some(Duration::ZERO));
        for nonsense in ["soon", "-1", "NaN", "inf", "", "1e300"] {
            assert_eq!(retry_after("retry-after", nonsense), None, "{nonsense}");
        }
    }
}
