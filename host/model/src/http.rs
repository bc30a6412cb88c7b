//! The transport that talks to a real endpoint over HTTP.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url, redirect};

use crate::transport::{HttpRequest, HttpResponse, Method, Transport, TransportError};
use toolhold_intake::encoding::{Expander, expanded};

/// How long an unused connection is kept, in seconds. Under the keep-alive of common servers (uvicorn
/// closes after 5 s), so that a request is not written into a connection that is just being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// An API key. Neither `Debug` nor any error ever shows it.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Surrounding white space is dropped: keys read from files end in a newline.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Talks to one endpoint over HTTP/1.1 or HTTP/2, with TLS where the URL says so.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    client: Client,
    /// Path ends in a slash, so that joining appends.
    base: Url,
    /// The base URL as it is shown.
    target: String,
    connect_timeout: Duration,
}

impl HttpTransport {
    /// Checks where the endpoint is; opens no connection yet. `base_url` ends where the API begins, usually in
    /// `/v1`; a query is kept and sent with every request. The key is sent as a bearer token. `connect_timeout`
    /// bounds name look-up, TCP and TLS together.
    ///
    /// No proxy of the environment (`HTTP_PROXY`, …) is used: most endpoints are on this machine or in this
    /// network, where a proxy only breaks streaming.
    ///
    /// # Errors
    /// A URL or a key that cannot be one.
    pub fn new(
        base_url: &str,
        api_key: Option<String>,
        connect_timeout: Duration,
    ) -> Result<Self, TransportError> {
        let base = parse_base_url(base_url)?;
        let mut headers = HeaderMap::new();
        if let Some(ApiKey(key)) = api_key.map(ApiKey::new) {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
                config("the API key holds characters that no HTTP header may carry".into())
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("toolhold/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            // Small writes both ways: Nagle's algorithm with delayed ACKs costs 40 ms a piece.
            .tcp_nodelay(true)
            // A redirected POST loses its body, and the key would go wherever the answer says.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| config(format!("cannot set up HTTP: {}", root_cause(&error))))?;
        let mut target = base.clone();
        target.set_query(None);
        Ok(Self {
            client,
            target: target.as_str().trim_end_matches('/').to_owned(),
            base,
            connect_timeout,
        })
    }

    fn url(&self, path: &str) -> Result<Url, TransportError> {
        let mut url = self
            .base
            .join(path)
            .map_err(|error| config(format!("{path:?} does not fit the base URL: {error}")))?;
        url.set_query(self.base.query());
        Ok(url)
    }

    fn broken(target: &str, error: reqwest::Error) -> TransportError {
        TransportError::Broken {
            url: target.to_owned(),
            reason: root_cause(&error),
        }
    }

    fn classify(&self, error: reqwest::Error) -> TransportError {
        let url = self.target.clone();
        if error.is_connect() && error.is_timeout() {
            TransportError::ConnectTimeout {
                url,
                after: self.connect_timeout,
            }
        } else if error.is_connect() {
            TransportError::Connect {
                url,
                reason: root_cause(&error),
            }
        } else {
            Self::broken(&self.target, error)
        }
    }
}

impl Transport for HttpTransport {
    fn target(&self) -> &str {
        &self.target
    }

    fn send(&self, request: HttpRequest) -> BoxFuture<'_, Result<HttpResponse, TransportError>> {
        async move {
            let url = self.url(&request.path)?;
            let body = request
                .body
                .as_ref()
                .map(|body| Bytes::from(body.to_string()));
            let attempt = || {
                let builder = match request.method {
                    Method::Get => self.client.get(url.clone()),
                    Method::Post => self.client.post(url.clone()),
                };
                let builder = match &body {
                    Some(body) => builder
                        .header(CONTENT_TYPE, "application/json")
                        .body(body.clone()),
                    None => builder,
                };
                builder.send()
            };
            let response = match attempt().await {
                // The server closed a kept connection just as the request was written. No answer had
                // begun, and asking twice changes nothing there.
                Err(error) if was_closed(&error) => {
                    tracing::debug!(
                        path = request.path,
                        "the connection was closed under a request, which is sent again"
                    );
                    attempt().await
                }
                response => response,
            };
            let response = response.map_err(|error| self.classify(error))?;
            let headers = response.headers().iter().map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.as_str().to_owned(), value)
            });
            let mut headers: Vec<_> = headers.collect();
            let encoding = headers.iter().find(|(name, _)| name == "content-encoding");
            let expander = Expander::new(encoding.map(|(_, value)| value.as_str()));
            if expander.is_ok() {
                // They are those of the body as it was sent.
                headers.retain(|(name, _)| name != "content-encoding" && name != "content-length");
            }
            let (target, url) = (self.target.clone(), self.target.clone());
            let status = response.status().as_u16();
            let body = response
                .bytes_stream()
                .map(move |chunk| chunk.map_err(|error| Self::broken(&target, error)));
            // A body that cannot be expanded keeps its header, by which its reader says so.
            let expander = expander.unwrap_or_else(|_| Expander::plain());
            let body = expanded(body.boxed(), expander, move |source| {
                TransportError::Encoding {
                    url: url.clone(),
                    source,
                }
            });
            Ok(HttpResponse {
                status,
                headers,
                body: body.boxed(),
            })
        }
        .boxed()
    }
}

/// Whether the connection was closed before an answer began.
fn was_closed(error: &reqwest::Error) -> bool {
    if error.is_connect() {
        return false;
    }
    let mut cause: &dyn Error = error;
    loop {
        if let Some(error) = cause.downcast_ref::<io::Error>()
            && matches!(
                error.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
            )
        {
            return true;
        }
        match cause.source() {
            Some(next) => cause = next,
            // HTTP's own error for it has no public type here.
            None => return cause.to_string() == "connection closed before message completed",
        }
    }
}

fn parse_base_url(text: &str) -> Result<Url, TransportError> {
    // The text itself is not shown before it is known to hold no password.
    let mut url = Url::parse(text.trim()).map_err(|error| {
        config(format!(
            "the base URL cannot be read ({error}): it should look like http://HOST:PORT/v1"
        ))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(config(format!(
            "the base URL has the scheme `{}`: use http or https",
            url.scheme()
        )));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(config(
            "the base URL holds a user name or password, which ends up in logs: take it out and put \
             the key into an environment variable"
                .into(),
        ));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    if let Some(shorter) = path.strip_suffix("/chat/completions") {
        return Err(config(format!(
            "the base URL must end before `/chat/completions`: use one with the path {shorter:?}"
        )));
    }
    url.set_fragment(None);
    url.set_path(&format!("{path}/"));
    Ok(url)
}

fn config(message: String) -> TransportError {
    TransportError::Config { message }
}

/// The innermost cause, in the system's words; the layers above it only repeat "error".
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport(base_url: &str) -> Result<HttpTransport, TransportError> {
        HttpTransport::new(base_url, None, Duration::from_secs(1))
    }

    #[test]
    fn paths_are_joined_to_any_base() {
        for (base, path, url) in [
            (
                "http://h:1/v1",
                "chat/completions",
                "http://h:1/v1/chat/completions",
            ),
            ("http://h:1/v1/", "models", "http://h:1/v1/models"),
            ("http://h:1", "models", "http://h:1/models"),
            ("http://h:1/v1", "../health", "http://h:1/health"),
            ("http://h:1", "../health", "http://h:1/health"),
            (
                "https://h/a/v1?api-version=2",
                "models",
                "https://h/a/v1/models?api-version=2",
            ),
        ] {
            assert_eq!(transport(base).unwrap().url(path).unwrap().as_str(), url);
        }
    }

    #[test]
    fn urls_that_cannot_work_are_refused_with_the_reason_and_without_secrets() {
        for (base, word) in [
            ("http://me:secret@h/v1", "environment variable"),
            ("ftp://h/v1", "http or https"),
            ("h:8080/v1", "http or https"),
            ("/v1", "http://HOST"),
            ("http://h/v1/chat/completions", "\"/v1\""),
        ] {
            let message = transport(base).unwrap_err().to_string();
            assert!(message.contains(word), "{base}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn debug_output_never_holds_the_key() {
        let with = |key: &str| {
            HttpTransport::new("http://h/v1", Some(key.to_owned()), Duration::from_secs(1))
        };
        let text = format!("{:?}", with("sk-very-secret\n").unwrap());
        assert!(!text.contains("very-secret"), "{text}");
        let error = with("sk-bad\nkey").unwrap_err();
        assert!(!error.to_string().contains("sk-bad"), "{error}");
    }
}
