//! One request of a guest: checked, sent, its redirects followed if that was granted, its response
//! handed back cleaned.

use super::Egress;
use super::body::{RequestBody, ResponseBody, ResponseTimes};
use super::headers::{header_bytes, holds_any, without_secrets};
use super::meter::{HttpMeter, RunningRequest};
use super::redirect::{self, RedirectAction};
use super::resolve::{LookupError, is_reachable};
use crate::denial_log::RefusedRequest;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use toolhold_policy::HttpLimit;
use toolhold_policy::egress::HttpGrant;
use toolhold_policy::egress::literal;
use url::Url;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

/// Longer than any server reads.
const MAX_URL_BYTES: usize = 16 << 10;

/// A request on its way, and everything that it answers to.
pub(super) struct OutboundRequest {
    pub egress: Arc<Egress>,
    pub meter: Arc<HttpMeter>,
    pub options: RequestOptions,
}

/// What is sent in one hop.
pub(super) struct OutboundHop {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Payload,
}

pub(super) enum Payload {
    Empty,
    /// Kept whole, because a redirect may want it once more.
    Whole(Bytes),
    Stream(WasiBody),
}

impl OutboundRequest {
    pub async fn send(self, request: Request<WasiBody>) -> Result<Response<WasiBody>, Error> {
        let (parts, body) = request.into_parts();
        let mut hop = OutboundHop {
            url: target(&parts.uri)?,
            method: parts.method,
            headers: parts.headers,
            body: if body.is_end_stream() {
                Payload::Empty
            } else {
                Payload::Stream(body)
            },
        };
        let mut grant = self.granted(&hop)?;
        let running = self.meter.start()?;
        let patience = self.patience();
        let follows = grant.redirects();
        if follows > 0
            && let Payload::Stream(body) = hop.body
        {
            let body = RequestBody::new(body, &hop.headers, self.meter.clone());
            let whole = timeout_at(patience.until, body.collect()).await;
            hop.body = Payload::Whole(whole.map_err(|_| self.late())??.to_bytes());
            hop.headers.remove(header::CONTENT_LENGTH);
        }
        for followed in 0.. {
            self.meter.request()?;
            let answered = self.once(grant, &mut hop, patience).await;
            if let Err(Error::DestinationIpProhibited) = answered {
                self.denied(&hop, grant);
            }
            let (response, injected) = answered?;
            self.meter.receive(header_bytes(response.headers()))?;
            if holds_any(response.headers(), self.egress.refused()) {
                return Err(self.meter.reflected());
            }
            if followed_by_host(follows, &response) {
                match redirect::next(&mut hop, &response, self.egress.redactor())? {
                    RedirectAction::Stay => {}
                    RedirectAction::Go if followed == follows => return Err(Error::LoopDetected),
                    RedirectAction::Go => {
                        grant = self.granted(&hop)?;
                        continue;
                    }
                }
            }
            return self.received(response, injected, running, patience);
        }
        Err(Error::LoopDetected)
    }

    /// The grant that lets this hop through, its address checked if the URL names one.
    fn granted(&self, hop: &OutboundHop) -> Result<&HttpGrant, Error> {
        let Some(grant) = self.egress.grant(&hop.method, &hop.url) else {
            let refused = RefusedRequest::NotGranted;
            self.meter.denials.request(&hop.method, &hop.url, refused);
            return Err(Error::HttpRequestDenied);
        };
        // The client connects to an address in a URL without asking its resolver.
        match hop.url.host().as_ref().and_then(literal) {
            Some(address) if !is_reachable(address, grant.is_private()) => {
                self.denied(hop, grant);
                Err(Error::DestinationIpProhibited)
            }
            _ => Ok(grant),
        }
    }

    /// Notes that the address of this hop is out of the reach of its grant.
    fn denied(&self, hop: &OutboundHop, grant: &HttpGrant) {
        let refused = RefusedRequest::Address {
            is_private: grant.is_private(),
        };
        self.meter.denials.request(&hop.method, &hop.url, refused);
    }

    /// Sends one hop and waits for the head of its response. Says whether a secret went along.
    async fn once(
        &self,
        grant: &HttpGrant,
        hop: &mut OutboundHop,
        patience: ResponseTimes,
    ) -> Result<(reqwest::Response, bool), Error> {
        let client = self.egress.client(grant).ok_or(Error::ConfigurationError)?;
        let (mut url, mut headers) = (hop.url.clone(), hop.headers.clone());
        let mut injected = false;
        for secret in self.egress.secrets() {
            injected |= secret.inject(&mut url, &mut headers);
        }
        if injected {
            // So that what comes back can be read for secrets, from its beginning.
            headers.insert(
                header::ACCEPT_ENCODING,
                header::HeaderValue::from_static("identity"),
            );
            headers.remove(header::RANGE);
            headers.remove(header::IF_RANGE);
        }
        let mut request = reqwest::Request::new(hop.method.clone(), url);
        *request.body_mut() = match std::mem::replace(&mut hop.body, Payload::Empty) {
            Payload::Empty => None,
            Payload::Whole(bytes) => {
                hop.body = Payload::Whole(bytes.clone());
                Some(bytes.into())
            }
            Payload::Stream(body) => {
                let body = RequestBody::new(body, &headers, self.meter.clone());
                Some(reqwest::Body::wrap(body))
            }
        };
        *request.headers_mut() = headers;
        let head = self
            .head_deadline()
            .map_or(patience.until, |head| head.min(patience.until));
        let is_tls = request.url().scheme() == "https";
        match timeout_at(head, client.execute(request)).await {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Error::HttpUpgradeFailed)
            }
            Ok(Ok(response)) => Ok((response, injected)),
            Ok(Err(error)) => Err(code(&error, is_tls)),
            Err(_) if head < patience.until => Err(Error::HttpResponseTimeout),
            Err(_) => Err(self.late()),
        }
    }

    /// The response as the guest may see it.
    fn received(
        &self,
        response: reqwest::Response,
        injected: bool,
        running: RunningRequest,
        patience: ResponseTimes,
    ) -> Result<Response<WasiBody>, Error> {
        let redactor = self.egress.redactor();
        let is_tls = response.url().scheme() == "https";
        let (mut parts, body) = Response::<reqwest::Body>::from(response).into_parts();
        if injected {
            readable(&parts.headers)?;
        }
        if !redactor.is_empty() {
            // A replacement has another length than the secret.
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        let headers = without_secrets(parts.headers, redactor, &self.meter);
        let redactors = (redactor, self.egress.refused());
        let body = ResponseBody::new(
            body,
            running,
            self.meter.clone(),
            redactors,
            patience,
            is_tls,
        );
        let mut clean = Response::new(body.boxed_unsync());
        *clean.status_mut() = parts.status;
        *clean.headers_mut() = headers;
        Ok(clean)
    }

    fn patience(&self) -> ResponseTimes {
        let limit = Duration::from_millis(self.meter.limits.timeout_ms);
        ResponseTimes {
            until: Instant::now() + limit,
            limit,
            between: self.options.between_bytes_timeout,
        }
    }

    /// When the guest itself wants the head of the response to be there.
    fn head_deadline(&self) -> Option<Instant> {
        let waits = [
            self.options.connect_timeout,
            self.options.first_byte_timeout,
        ];
        let wait = waits
            .into_iter()
            .flatten()
            .reduce(Duration::saturating_add)?;
        Instant::now().checked_add(wait)
    }

    fn late(&self) -> Error {
        let limit = Duration::from_millis(self.meter.limits.timeout_ms);
        self.meter.fire(HttpLimit::Time(limit))
    }
}

/// What the guest asked for, in the one spelling that is compared and sent.
fn target(uri: &http::Uri) -> Result<Url, Error> {
    let text = uri.to_string();
    if text.len() > MAX_URL_BYTES {
        return Err(Error::HttpRequestUriTooLong);
    }
    // `user@host` hides the host behind what looks like one, even where the user is empty.
    if uri
        .authority()
        .is_none_or(|authority| authority.as_str().contains('@'))
    {
        return Err(Error::HttpRequestUriInvalid);
    }
    Url::parse(&text).map_err(|_| Error::HttpRequestUriInvalid)
}

/// Where the host would go for this request under this one grant, if it goes anywhere: the checks of
/// [`OutboundRequest::granted`] without a client. For `host/fuzz`.
pub(crate) fn admitted(grant: &HttpGrant, method: &Method, uri: &http::Uri) -> Option<Url> {
    let url = target(uri).ok()?;
    let is_reachable = match url.host().as_ref().and_then(literal) {
        Some(address) => is_reachable(address, grant.is_private()),
        None => true,
    };
    (is_reachable && grant.allows(method, &url)).then_some(url)
}

fn followed_by_host(follows: u8, response: &reqwest::Response) -> bool {
    follows > 0 && matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Refuses a body in which secrets could not be found.
fn readable(headers: &HeaderMap) -> Result<(), Error> {
    let other = |name, plain: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter(|value| {
                !value
                    .as_bytes()
                    .trim_ascii()
                    .eq_ignore_ascii_case(plain.as_bytes())
            })
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .next()
    };
    // What it was is the server's text, and may have a secret in it.
    if other(header::CONTENT_ENCODING, "identity").is_some() {
        return Err(Error::HttpResponseContentCoding(None));
    }
    if other(header::TRANSFER_ENCODING, "chunked").is_some() {
        return Err(Error::HttpResponseTransferCoding(None));
    }
    Ok(())
}

/// The error code for what the client met, over TLS or not. Its own words stay here: they hold the URL, and the URL may
/// hold a secret.
pub(super) fn code(error: &reqwest::Error, is_tls: bool) -> Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(lookup) = error.downcast_ref::<LookupError>() {
            return match lookup {
                LookupError::Timeout => Error::DnsTimeout,
                LookupError::NotFound => Error::DnsError {
                    rcode: Some("address not available".into()),
                    info_code: None,
                },
                LookupError::Prohibited => Error::DestinationIpProhibited,
            };
        }
        // Our own verdict on the request's body.
        if let Some(Error::HttpRequestBodySize(size)) = error.downcast_ref() {
            return Error::HttpRequestBodySize(*size);
        }
        // HTTP has no I/O error for a connection that ends between two messages, or before the head of an answer.
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_canceled() || error.is_closed())
        {
            return Error::ConnectionTerminated;
        }
        if let Some(error) = error.downcast_ref::<io::Error>()
            && let Some(code) = io_code(error, is_tls)
        {
            return code;
        }
        cause = error.source();
    }
    if error.is_timeout() {
        Error::ConnectionTimeout
    } else if error.is_connect() {
        Error::DestinationUnavailable
    } else if error.is_body() || error.is_decode() {
        Error::HttpResponseIncomplete
    } else {
        Error::HttpProtocolError
    }
}

fn io_code(error: &io::Error, is_tls: bool) -> Option<Error> {
    use io::ErrorKind as Kind;
    Some(match error.kind() {
        Kind::ConnectionRefused => Error::ConnectionRefused,
        Kind::TimedOut => Error::ConnectionTimeout,
        Kind::HostUnreachable | Kind::NetworkUnreachable => Error::DestinationUnavailable,
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::UnexpectedEof => Error::ConnectionTerminated,
        // HTTP's own framing, over TLS or not.
        Kind::InvalidData if !is_tls || error.to_string().contains("chunk") => {
            Error::HttpProtocolError
        }
        // What TLS fails with; it has no type of its own here.
        Kind::InvalidData if error.to_string().contains("certificate") => {
            Error::TlsCertificateError
        }
        Kind::InvalidData => Error::TlsProtocolError,
        // TLS errors come wrapped, and `source` would skip the one inside.
        _ => {
            let inner = error.get_ref()?.downcast_ref()?;
            return io_code(inner, is_tls);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[tokio::test]
    async fn broken_framing_over_plain_http_is_no_fault_of_tls() {
        for body in ["5;a\nb\r\nhello", "f0000000000000003\r\n"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1_024]).unwrap();
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(format!("{head}{body}").as_bytes())
            });
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let response = client.get(url).send().await.unwrap();
            let error = response.bytes().await.unwrap_err();
            let code = code(&error, false);
            assert!(
                matches!(code, Error::HttpProtocolError),
                "{body:?}: {code:?}"
            );
            server.join().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_the_head_of_the_answer_is_terminated() {
        for head in ["", "HTTP/1.1 200 OK\r\ncontent-"] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1_024]).unwrap();
                stream.write_all(head.as_bytes())
            });
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let error = client.get(url).send().await.unwrap_err();
            let code = code(&error, false);
            assert!(
                matches!(code, Error::ConnectionTerminated),
                "{head:?}: {code:?}"
            );
            server.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_target_has_a_host_and_no_user() {
        for uri in ["https://a.example/x?y", "http://[::1]:80/"] {
            assert!(target(&uri.parse().unwrap()).is_ok(), "{uri}");
        }
        for uri in [
            "https://user@a.example/",
            "https://@a.example/",
            "https://u:p@a.example/",
            "/x",
            "https://a..b:99999999/",
        ] {
            assert!(
                uri.parse().map_or(true, |uri| target(&uri).is_err()),
                "{uri}"
            );
        }
        let long = format!("https://a.example/{}", "x".repeat(MAX_URL_BYTES));
        assert!(matches!(
            target(&long.parse().unwrap()),
            Err(Error::HttpRequestUriTooLong)
        ));
    }

    #[test]
    fn a_body_must_be_readable_where_a_secret_went_along() {
        let check = |name, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            readable(&headers).is_ok()
        };
        assert!(check(header::CONTENT_ENCODING, "Identity"));
        assert!(check(header::TRANSFER_ENCODING, "chunked"));
        for coding in ["gzip", "br", "identity, gzip", "x"] {
            assert!(!check(header::CONTENT_ENCODING, coding), "{coding}");
        }
        assert!(!check(header::TRANSFER_ENCODING, "gzip, chunked"));
    }
}
