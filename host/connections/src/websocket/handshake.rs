//! The opening handshake of a WebSocket (RFC 6455, 4.2).

use axum::extract::FromRequestParts;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::OnUpgrade;
use sha1_smol::Sha1;

/// The version of the protocol.
const VERSION: &str = "13";
/// Bytes of a client's key, before they are encoded (RFC 6455, 4.1).
const KEY_BYTES: usize = 16;
/// Suffix of a client's key, before a server hashes both (RFC 6455, 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A request to go on as a WebSocket.
#[derive(Debug)]
pub struct WebSocketUpgrade {
    /// The response that agrees.
    pub(super) agreed: Response,
    pub(super) on_upgrade: OnUpgrade,
}

/// Why a request cannot go on as a WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketRefusal {
    #[error("this path is a WebSocket: {0}")]
    NoRequest(&'static str),
    #[error("this path is a WebSocket: the header `Sec-WebSocket-Version: {VERSION}` is missing")]
    OtherVersion,
    #[error("this path is a WebSocket, which this connection cannot become")]
    NoUpgrade,
}

impl WebSocketRefusal {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoRequest(_) | Self::NoUpgrade => StatusCode::BAD_REQUEST,
            Self::OtherVersion => StatusCode::UPGRADE_REQUIRED,
        }
    }

    /// Headers that name the supported version (RFC 6455, 4.4).
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if matches!(self, Self::OtherVersion) {
            for (name, value) in [
                (SEC_WEBSOCKET_VERSION, VERSION),
                (CONNECTION, "Upgrade"),
                (UPGRADE, "websocket"),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        headers
    }
}

impl IntoResponse for WebSocketRefusal {
    fn into_response(self) -> Response {
        (self.status(), self.headers(), self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = WebSocketRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, WebSocketRefusal> {
        let agreed = agreed(parts)?;
        let on_upgrade = parts.extensions.remove::<OnUpgrade>();
        let on_upgrade = on_upgrade.ok_or(WebSocketRefusal::NoUpgrade)?;
        Ok(Self { agreed, on_upgrade })
    }
}

/// The response that agrees to a client's opening handshake (RFC 6455, 4.2), or what the request lacks. The library does
/// it only on connections that it reads the request from.
fn agreed(parts: &Parts) -> Result<Response, WebSocketRefusal> {
    let lacks = |what| Err(WebSocketRefusal::NoRequest(what));
    // One that stands there twice is none: whoever forwards the request may have read the other.
    let only = |name: HeaderName| {
        let mut values = parts.headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        value.and_then(|value| value.to_str().ok())
    };
    let names = |name: HeaderName, wanted: &str| {
        let values = parts.headers.get_all(name).iter();
        let mut named = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split([',', ' ', '\t']));
        named.any(|named| named.eq_ignore_ascii_case(wanted))
    };
    if parts.method != Method::GET {
        return lacks("send a GET");
    }
    if parts.version < Version::HTTP_11 {
        return lacks("send the request in HTTP/1.1");
    }
    // Its bytes would be read as frames.
    let has_body = match parts.headers.get(CONTENT_LENGTH) {
        Some(bytes) => bytes != "0",
        None => parts.headers.contains_key(TRANSFER_ENCODING),
    };
    if has_body {
        return lacks("send the request without a body");
    }
    if !names(CONNECTION, "upgrade") {
        return lacks("the header `Connection: Upgrade` is missing");
    }
    if !names(UPGRADE, "websocket") {
        return lacks("the header `Upgrade: websocket` is missing");
    }
    if only(SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        return Err(WebSocketRefusal::OtherVersion);
    }
    let is_key = |key: &&str| {
        let decoded = STANDARD.decode(key);
        decoded.is_ok_and(|bytes| bytes.len() == KEY_BYTES)
    };
    let Some(key) = only(SEC_WEBSOCKET_KEY).filter(is_key) else {
        return lacks(
            "the header `Sec-WebSocket-Key` is missing, is there twice, or is no base64 of 16 bytes",
        );
    };
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(KEY_SUFFIX.as_bytes());
    let headers = [
        (CONNECTION, "Upgrade".to_owned()),
        (UPGRADE, "websocket".to_owned()),
        (SEC_WEBSOCKET_ACCEPT, STANDARD.encode(hash.digest().bytes())),
    ];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    /// The example of RFC 6455, 1.3, and what may be wrong with it.
    #[test]
    fn a_handshake_is_agreed_to_as_the_rfc_says() {
        let answer = |name: &str, value: &str, method: &str, version: Version| {
            let mut request = Request::builder()
                .method(method)
                .version(version)
                .header("connection", "keep-alive, Upgrade")
                .header("upgrade", "WebSocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .body(())
                .unwrap();
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
            agreed(&request.into_parts().0).map_err(|refusal| refusal.to_string())
        };
        let good = answer("x", "y", "GET", Version::HTTP_11).unwrap();
        assert_eq!(good.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(
            good.headers()[SEC_WEBSOCKET_ACCEPT],
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
        assert_eq!(good.headers()[CONNECTION], "Upgrade");
        assert_eq!(good.headers()[UPGRADE], "websocket");
        for (name, value, told) in [
            ("connection", "close", "`Connection: Upgrade`"),
            ("connection", "upgraded", "`Connection: Upgrade`"),
            ("upgrade", "h2c", "`Upgrade: websocket`"),
            ("sec-websocket-version", "8", "`Sec-WebSocket-Version: 13`"),
            ("sec-websocket-version", "", "`Sec-WebSocket-Version: 13`"),
            ("content-length", "1", "without a body"),
            ("transfer-encoding", "chunked", "without a body"),
            ("sec-websocket-key", "", "`Sec-WebSocket-Key`"),
            (
                "sec-websocket-key",
                "dGhlIHNhbXBsZQ==",
                "`Sec-WebSocket-Key`",
            ),
            (
                "sec-websocket-key",
                "dGhlIHNhbXBsZSBub25jZQ=",
                "`Sec-WebSocket-Key`",
            ),
        ] {
            let lacks = answer(name, value, "GET", Version::HTTP_11).unwrap_err();
            assert!(lacks.contains(told), "{name}: {value}: {lacks}");
        }
        let lacks = answer("x", "y", "POST", Version::HTTP_11).unwrap_err();
        assert!(lacks.contains("GET"), "{lacks}");
        let lacks = answer("x", "y", "GET", Version::HTTP_10).unwrap_err();
        assert!(lacks.contains("HTTP/1.1"), "{lacks}");
    }

    #[test]
    fn another_version_is_told_which_one_is_spoken() {
        let refusal = WebSocketRefusal::OtherVersion.into_response();
        assert_eq!(refusal.status(), StatusCode::UPGRADE_REQUIRED);
        assert_eq!(refusal.headers()[SEC_WEBSOCKET_VERSION], "13");
        assert_eq!(refusal.headers()[UPGRADE], "websocket");
        let refusal = WebSocketRefusal::NoRequest("send a GET").into_response();
        assert_eq!(refusal.status(), StatusCode::BAD_REQUEST);
        assert!(!refusal.headers().contains_key(SEC_WEBSOCKET_VERSION));
    }

    #[test]
    fn lines_of_one_header_count_together_and_a_key_counts_once() {
        let answer = |lines: &[(&str, &str)]| {
            let mut request = Request::builder()
                .header("upgrade", "websocket")
                .header("content-length", "0");
            for (name, value) in lines {
                request = request.header(*name, *value);
            }
            agreed(&request.body(()).unwrap().into_parts().0)
        };
        let version = ("sec-websocket-version", "13");
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let (kept, upgrade) = (("connection", "keep-alive"), ("connection", "upgrade"));
        for connection in [[kept, upgrade], [upgrade, kept]] {
            let lines = [&connection[..], &[version, key]].concat();
            assert!(answer(&lines).is_ok(), "{lines:?}");
        }
        let refusal = answer(&[upgrade, version, key, key]).unwrap_err();
        assert!(refusal.to_string().contains("twice"), "{refusal}");
        let refusal = answer(&[upgrade, version, version, key]).unwrap_err();
        assert!(
            matches!(refusal, WebSocketRefusal::OtherVersion),
            "{refusal}"
        );
    }
}
