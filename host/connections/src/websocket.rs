//! WebSockets on which only the server sends. A WebSocket is a connection like any other: it is counted, and it
//! ends when its client is gone and when the server ends.
//!
//! Long texts are sent in several frames (RFC 6455, 5.4), which clients and proxies read with small buffers.

use crate::server::Connection;
use axum::extract::FromRequestParts;
use axum::http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::SinkExt as _;
use futures_util::stream::{Stream, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1_smol::Sha1;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_websockets::{Config, Error, Limits, Message, ServerBuilder, WebSocketStream};

/// Bytes of a client's message. Its content is ignored.
const MESSAGE_BYTES: usize = 4 << 10;
/// Bytes of a frame to a client.
const FRAME_BYTES: usize = 64 << 10;
/// Most messages of a client between two pings of ours. One that sends more ends its socket.
const MAX_MESSAGES: usize = 1_000;
/// A proxy typically closes a connection after 60 s of silence; three unanswered pings end ours.
const PULSE: KeepAlive = KeepAlive {
    every: Duration::from_secs(15),
    patience: Duration::from_secs(45),
};

/// Maximum bytes of the reason in a close frame (RFC 6455, 5.5).
const REASON_BYTES: usize = 123;
/// Time for a close frame to be sent and answered; a client that does neither is not waited for longer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of a client's key, before they are encoded (RFC 6455, 4.1).
const KEY_BYTES: usize = 16;
/// Suffix of a client's key, before a server hashes both (RFC 6455, 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Reason in the close frame of a socket. Codes that must not be sent are no variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseCode {
    /// All was sent.
    Normal,
    /// The server stops.
    Away,
    /// The client may not go on.
    Policy,
    /// The server failed.
    Error,
    /// There is nothing now, and may be later.
    Again,
}

impl CloseCode {
    fn sent(self) -> tokio_websockets::CloseCode {
        match self {
            Self::Normal => tokio_websockets::CloseCode::NORMAL_CLOSURE,
            Self::Away => tokio_websockets::CloseCode::GOING_AWAY,
            Self::Policy => tokio_websockets::CloseCode::POLICY_VIOLATION,
            Self::Error => tokio_websockets::CloseCode::INTERNAL_SERVER_ERROR,
            // 1013, which IANA's registry calls "Try Again Later".
            Self::Again => tokio_websockets::CloseCode::SERVICE_OVERLOAD,
        }
    }
}

/// A part of what a socket sends.
#[derive(Debug)]
pub enum SocketItem {
    /// A message.
    Text(String),
    /// The end of the socket. What follows is not sent.
    Close {
        code: CloseCode,
        /// Shown to people; cut to the size of a close frame.
        reason: String,
        /// A last message, for clients that are not told codes.
        last: Option<String>,
    },
}

/// How the server notices a client that vanished without closing.
#[derive(Debug, Clone, Copy)]
struct KeepAlive {
    /// Time between two pings.
    every: Duration,
    /// Longest silence of the client.
    patience: Duration,
}

/// A request to go on as a WebSocket.
#[derive(Debug)]
pub struct WebSocketUpgrade {
    /// The response that agrees.
    agreed: Response,
    on_upgrade: OnUpgrade,
}

/// Why a request cannot go on as a WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketRefusal {
    #[error("this path is a WebSocket: {0}")]
    NoRequest(&'static str),
    #[error("this path is a WebSocket, which this connection cannot become")]
    NoUpgrade,
}

impl IntoResponse for WebSocketRefusal {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, self.to_string()).into_response()
    }
}

impl<S: Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = WebSocketRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, WebSocketRefusal> {
        let agreed = agreed(parts).map_err(WebSocketRefusal::NoRequest)?;
        let on_upgrade = parts.extensions.remove::<OnUpgrade>();
        let on_upgrade = on_upgrade.ok_or(WebSocketRefusal::NoUpgrade)?;
        Ok(Self { agreed, on_upgrade })
    }
}

/// The response that agrees to a client's opening handshake (RFC 6455, 4.2), or what the request lacks. The library does
/// it only on connections that it reads the request from.
fn agreed(parts: &Parts) -> Result<Response, &'static str> {
    let field = |name: HeaderName| {
        let value = parts.headers.get(name);
        value.and_then(|value| value.to_str().ok())
    };
    let names = |name: HeaderName, wanted: &str| {
        let named = field(name).unwrap_or_default();
        let mut named = named.split([',', ' ']);
        named.any(|named| named.eq_ignore_ascii_case(wanted))
    };
    if parts.method != Method::GET {
        return Err("send a GET");
    }
    if parts.version < Version::HTTP_11 {
        return Err("send the request in HTTP/1.1");
    }
    if !names(CONNECTION, "upgrade") {
        return Err("the header `Connection: Upgrade` is missing");
    }
    if !names(UPGRADE, "websocket") {
        return Err("the header `Upgrade: websocket` is missing");
    }
    if field(SEC_WEBSOCKET_VERSION) != Some("13") {
        return Err("the header `Sec-WebSocket-Version: 13` is missing");
    }
    let is_key = |key: &&str| {
        let decoded = STANDARD.decode(key);
        decoded.is_ok_and(|bytes| bytes.len() == KEY_BYTES)
    };
    let Some(key) = field(SEC_WEBSOCKET_KEY).filter(is_key) else {
        return Err("the header `Sec-WebSocket-Key` is missing, or is no base64 of 16 bytes");
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

/// Upgrades the request, sends each text as a message, then closes the socket with a code that tells why.
pub fn send(
    upgrade: WebSocketUpgrade,
    connection: Connection,
    items: impl Stream<Item = SocketItem> + Send + 'static,
) -> Response {
    upgrade_with(upgrade, connection, items, PULSE)
}

fn upgrade_with(
    upgrade: WebSocketUpgrade,
    connection: Connection,
    items: impl Stream<Item = SocketItem> + Send + 'static,
    pulse: KeepAlive,
) -> Response {
    let WebSocketUpgrade { agreed, on_upgrade } = upgrade;
    tokio::spawn(async move {
        let upgraded = match on_upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => {
                tracing::debug!(%error, "a connection did not become a WebSocket");
                return;
            }
        };
        let mut socket = ServerBuilder::new()
            .config(Config::default().frame_size(FRAME_BYTES))
            .limits(Limits::default().max_payload_len(Some(MESSAGE_BYTES)))
            .serve(upgraded);
        let end = tokio::select! {
            () = connection.closed() => {
                Some((CloseCode::Away, "the server stops; connect again".to_owned()))
            }
            end = send_all(&mut socket, items, pulse) => end,
        };
        let Some((code, reason)) = end else {
            return;
        };
        let reason = &reason[..reason.floor_char_boundary(REASON_BYTES)];
        let close = Message::close(Some(code.sent()), reason);
        let closing = async {
            // The client may be gone; there is nothing more to do for it.
            if socket.send(close).await.is_ok() {
                // A connection that ends with unread bytes is reset, and the client may not get the frame.
                while let Some(Ok(_)) = socket.next().await {}
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    });
    agreed
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Sends all items. Returns the code and the reason to close the socket with; `None` if the client is gone.
async fn send_all(
    socket: &mut Socket,
    items: impl Stream<Item = SocketItem>,
    pulse: KeepAlive,
) -> Option<(CloseCode, String)> {
    let mut items = pin!(items);
    let mut heard = Instant::now();
    let mut messages = 0;
    let mut beat = interval_at(heard + pulse.every, pulse.every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let sent: Result<(), Error> = tokio::select! {
            // A message that has arrived counts before the timeout.
            biased;
            said = socket.next() => match said {
                Some(Err(_)) | None => return None,
                Some(Ok(message)) if message.is_close() => return None,
                Some(Ok(message)) if messages < MAX_MESSAGES => {
                    messages += 1;
                    heard = Instant::now();
                    if !message.is_ping() {
                        continue;
                    }
                    // The library has queued a pong, and bounds no queue: nothing else is read until it has left.
                    socket.flush().await
                }
                Some(Ok(_)) => {
                    let reason = format!(
                        "more than {MAX_MESSAGES} messages in {} s, and none is read here",
                        pulse.every.as_secs()
                    );
                    return Some((CloseCode::Policy, reason));
                }
            },
            _ = beat.tick() => {
                messages = 0;
                if heard.elapsed() >= pulse.patience {
                    return Some((CloseCode::Policy, "no ping was answered".to_owned()));
                }
                socket.send(Message::ping("")).await
            }
            item = items.next() => match item {
                Some(SocketItem::Text(text)) => socket.send(Message::text(text)).await,
                Some(SocketItem::Close { code, reason, last }) => {
                    if let Some(text) = last {
                        socket.send(Message::text(text)).await.ok()?;
                    }
                    return Some((code, reason));
                }
                None => return Some((CloseCode::Normal, String::new())),
            },
        };
        sent.ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::serve;
    use crate::settings::Settings;
    use axum::http::Request;
    use axum::{Extension, Router, routing};
    use futures_util::stream;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio_tungstenite::tungstenite;
    use tokio_util::sync::CancellationToken;

    const LONG_BYTES: usize = 3 * FRAME_BYTES + 17;

    const TIMEOUT: Duration = Duration::from_secs(20);
    const NEVER: KeepAlive = KeepAlive {
        every: Duration::from_hours(1),
        patience: Duration::from_hours(1),
    };

    type Serving = JoinHandle<()>;

    /// A server for at most `most` connections whose sockets send one message.
    async fn server(most: usize, pulse: KeepAlive) -> (SocketAddr, CancellationToken, Serving) {
        let socket =
            async move |upgrade: WebSocketUpgrade, Extension(connection): Extension<Connection>| {
                let hello = SocketItem::Text("hello".to_owned());
                let items = stream::iter([hello]).chain(stream::pending());
                upgrade_with(upgrade, connection, items, pulse)
            };
        let router = Router::new()
            .route("/socket", routing::get(socket))
            .route("/", routing::get(async || "page"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let settings = Settings {
            reserve: 1,
            ..Settings::new(most)
        };
        let serving = tokio::spawn(serve(listener, router, settings, stop.clone()));
        (address, stop, serving)
    }

    /// A socket that has received the first message.
    async fn socket(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = "GET /socket HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        until(&mut client, "hello").await;
        client
    }

    async fn until(client: &mut TcpStream, end: &str) {
        let mut text = String::new();
        let mut piece = [0; 1_024];
        // A ping may come right behind it.
        while !text.contains(end) {
            let read = timeout(TIMEOUT, client.read(&mut piece)).await;
            let read = read.expect(&text).unwrap();
            assert!(read > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    }

    async fn is_closed(client: &mut TcpStream) -> bool {
        let ended = timeout(TIMEOUT, client.read_to_end(&mut Vec::new())).await;
        ended.is_ok()
    }

    #[tokio::test]
    async fn a_socket_has_a_place_until_it_ends() {
        let (address, _stop, _serving) = server(1, NEVER).await;
        let first = socket(address).await;
        let mut second = TcpStream::connect(address).await.unwrap();
        let head = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        second.write_all(head.as_bytes()).await.unwrap();
        let kept_out = timeout(Duration::from_millis(300), second.read_u8()).await;
        assert!(kept_out.is_err(), "{kept_out:?}");
        drop(first);
        until(&mut second, "page").await;
    }

    #[tokio::test]
    async fn sockets_end_with_their_server() {
        let (address, stop, serving) = server(2, NEVER).await;
        let mut client = socket(address).await;
        stop.cancel();
        let waited = timeout(Duration::from_millis(300), client.read_u8()).await;
        assert!(waited.is_err(), "an open socket outlives the stop");
        assert!(!serving.is_finished());
        serving.abort();
        assert!(is_closed(&mut client).await);
    }

    #[tokio::test]
    async fn a_client_that_answers_no_ping_is_gone() {
        let pulse = KeepAlive {
            every: Duration::from_millis(50),
            patience: Duration::from_secs(3),
        };
        let (address, _stop, _serving) = server(1, pulse).await;
        let mut silent = socket(address).await;
        assert!(is_closed(&mut silent).await);
        // A client that answers is kept: an empty pong, masked with zeros.
        let mut alive = socket(address).await;
        let end = Instant::now() + pulse.patience + Duration::from_secs(1);
        while Instant::now() < end {
            tokio::time::sleep(pulse.every).await;
            alive.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).await.unwrap();
        }
        let mut pings = vec![0; 1_024];
        let read = alive.read(&mut pings).await.unwrap();
        assert_eq!(&pings[..2], [0x89, 0], "{:?}", &pings[..read]);
        alive.write_all(&[0x8a, 0x80, 0, 0, 0, 0]).await.unwrap();
    }

    /// Each ping is answered; a client that reads none of the pongs would have the server keep them.
    #[tokio::test]
    async fn a_client_that_only_sends_ends_its_socket() {
        let (address, _stop, _serving) = server(1, NEVER).await;
        let mut client = socket(address).await;
        // Of 125 bytes, masked with zeros.
        let mut ping = vec![0x89, 0xfd, 0, 0, 0, 0];
        ping.extend([b'x'; 125]);
        let pings = ping.repeat(100);
        let flood = async {
            for _ in 0..100_000 {
                if client.write_all(&pings).await.is_err() {
                    return;
                }
            }
            panic!("a gigabyte of pings was taken");
        };
        timeout(TIMEOUT, flood).await.unwrap();
    }

    #[tokio::test]
    async fn long_texts_come_as_one_message_each_and_a_close_code_ends_them() {
        let socket = async |upgrade: WebSocketUpgrade,
                            Extension(connection): Extension<Connection>| {
            let texts = [
                "x".repeat(LONG_BYTES),
                String::new(),
                "y".repeat(FRAME_BYTES),
            ];
            let end = SocketItem::Close {
                code: CloseCode::Policy,
                reason: "é".repeat(REASON_BYTES),
                last: Some("why".to_owned()),
            };
            let items = texts.into_iter().map(SocketItem::Text).chain([end]);
            let never = SocketItem::Text("not sent".to_owned());
            let items = stream::iter(items.chain([never]));
            upgrade_with(upgrade, connection, items, NEVER)
        };
        let router = Router::new().route("/socket", routing::get(socket));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (settings, stop) = (Settings::new(1), CancellationToken::new());
        let _serving = tokio::spawn(serve(listener, router, settings, stop.clone()));
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/socket");
        let (mut client, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        for (bytes, letter) in [(LONG_BYTES, "x"), (0, ""), (FRAME_BYTES, "y"), (1, "why")] {
            let message = timeout(TIMEOUT, client.next()).await.unwrap();
            let text = message.unwrap().unwrap().into_text().unwrap();
            assert_eq!(text.as_str(), letter.repeat(bytes));
        }
        let closed = timeout(TIMEOUT, client.next()).await.unwrap();
        let Some(Ok(tungstenite::Message::Close(Some(frame)))) = closed else {
            panic!("{closed:?}");
        };
        assert_eq!(u16::from(frame.code), 1_008);
        assert_eq!(frame.reason.as_str(), "é".repeat(REASON_BYTES / 2));
    }

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
            agreed(&request.into_parts().0)
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

    /// The numbers are those of IANA's registry of close codes.
    #[test]
    fn codes_are_those_of_the_registry_and_may_be_sent() {
        for (code, number) in [
            (CloseCode::Normal, 1_000),
            (CloseCode::Away, 1_001),
            (CloseCode::Policy, 1_008),
            (CloseCode::Error, 1_011),
            (CloseCode::Again, 1_013),
        ] {
            assert_eq!(u16::from(code.sent()), number, "{code:?}");
            assert!(!code.sent().is_reserved(), "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_request_that_asks_for_no_socket_is_told_so() {
        let (address, _stop, _serving) = server(1, NEVER).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = "GET /socket HTTP/1.1\r\nhost: h\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        until(&mut client, "this path is a WebSocket: ").await;
    }
}
