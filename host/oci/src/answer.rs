//! Reads bodies of answers up to a bound, and turns failures into errors.

use crate::auth::url_authority;
use crate::error::FetchError;
use crate::settings::Network;
use reqwest::header::HeaderMap;
use reqwest::{Response, Url};
use serde::Deserialize;
use std::error::Error as _;
use std::time::{Duration, SystemTime};

/// Bytes read of an error's body.
const MAX_ERROR_BYTES: u64 = 16 << 10;
/// Characters of it that a message shows.
const MAX_SAID_CHARS: usize = 200;

/// A whole body of at most `limit` bytes.
pub async fn body(
    network: &Network,
    mut response: Response,
    limit: u64,
    what: &str,
) -> Result<Vec<u8>, FetchError> {
    let too_large = |size: String| FetchError::TooLarge {
        what: what.to_owned(),
        size,
        limit,
        advice: "",
    };
    if let Some(length) = response.content_length().filter(|n| *n > limit) {
        return Err(too_large(length.to_string()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(network, &mut response).await? {
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(too_large(format!("more than {limit}")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The next piece of a body.
pub async fn chunk(
    network: &Network,
    response: &mut Response,
) -> Result<Option<bytes::Bytes>, FetchError> {
    let chunk = response.chunk().await;
    chunk.map_err(|error| transport_error(network, response.url(), error))
}

/// The first error of the specification's error body, cut short; empty if there is none.
pub async fn error_text(network: &Network, response: Response) -> String {
    #[derive(Deserialize)]
    struct ErrorBody {
        errors: Vec<ErrorEntry>,
    }
    #[derive(Deserialize)]
    struct ErrorEntry {
        code: String,
        #[serde(default)]
        message: String,
    }
    let Ok(bytes) = body(network, response, MAX_ERROR_BYTES, "an error").await else {
        return String::new();
    };
    let body: Option<ErrorBody> = serde_json::from_slice(&bytes).ok();
    match body.as_ref().and_then(|body| body.errors.first()) {
        Some(ErrorEntry { code, message }) => {
            let text = format!(" ({code}: {message})");
            text.chars().take(MAX_SAID_CHARS).collect()
        }
        None => String::new(),
    }
}

/// The error for a failed request. It shows the host only: addresses of registry storage hold signatures
/// that grant access.
pub fn transport_error(network: &Network, url: &Url, error: reqwest::Error) -> FetchError {
    let host = url_authority(url);
    if error.is_timeout() && !error.is_connect() {
        return FetchError::Idle {
            host,
            limit: network.idle_timeout,
        };
    }
    let is_connect = error.is_connect();
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        reason = deeper.to_string();
        cause = deeper.source();
    }
    if is_connect {
        FetchError::Connect { host, reason }
    } else {
        FetchError::Broken { host, reason }
    }
}

pub fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The value of `Retry-After`: seconds, or a date.
pub fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_seconds_or_as_a_date() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        let past = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after(past), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
        assert_eq!(retry_after("-1"), None);
    }
}
