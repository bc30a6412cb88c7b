//! Web sockets on which only the server sends. Such a socket is a connection like any other: it is counted, and it
//! ends when its client is gone and when the server ends.
//!
//! Long texts are sent in several frames (RFC 6455, 5.4), which clients and proxies read with small buffers.

mod handshake;
mod metered;
#[cfg(test)]
mod tests;

pub use handshake::{WebSocketRefusal, WebSocketUpgrade};

use crate::server::Connection;
use axum::response::Response;
use futures_util::SinkExt as _;
use futures_util::stream::{Stream, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use metered::Metered;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_websockets::{Config, Error, Limits, Message, ServerBuilder, WebSocketStream};

/// Bytes of a client's message. Its content is ignored.
const MESSAGE_BYTES: usize = 4 << 10;
/// Bytes of a frame to a client.
const FRAME_BYTES: usize = 64 << 10;
/// Most messages of a client between two pings of ours. One that sends more ends its socket.
const MAX_MESSAGES: usize = 1_000;
/// Most bytes of a client between two pings of ours. The library joins fragments before they are a message, and empty ones
/// without end are none.
const MAX_READ_BYTES: usize = 1 << 20;
/// A proxy typically closes a connection after 60 s of silence; three unanswered pings end ours.
const PULSE: KeepAlive = KeepAlive {
    every: Duration::from_secs(15),
    patience: Duration::from_secs(45),
};

/// Maximum bytes of the reason in a close frame (RFC 6455, 5.5).
const REASON_BYTES: usize = 123;
/// Time for a close frame to be sent and answered; a client that does neither is not waited for longer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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
            Ok(upgraded) => Metered::new(TokioIo::new(upgraded), MAX_READ_BYTES),
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
        // For the rest of what the client has sent, up to its own close frame.
        socket.get_mut().refill();
        let closing = async {
            if let Some((code, reason)) = end {
                let reason = &reason[..reason.floor_char_boundary(REASON_BYTES)];
                // The client may be gone, and then there is nothing more to do for it; the library may have told it already.
                let _ = socket.send(Message::close(Some(code.sent()), reason)).await;
            }
            // It sends what is queued, as the library's answers to a close frame and to what is no WebSocket. It reads on
            // until the client ends: a connection that ends with unread bytes is reset, and the client may not get the frame.
            let _ = socket.close().await;
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    });
    agreed
}

type Socket = WebSocketStream<Metered<TokioIo<Upgraded>>>;

/// A message, or the end, of a client.
enum Heard {
    Message(Message),
    /// More than a client may send, with the reason for it.
    TooMuch(String),
    /// Its close frame, its end, or what is no WebSocket. The library has queued the answer.
    End,
}

fn poll_heard(socket: &mut Socket, context: &mut Context<'_>, every: Duration) -> Poll<Heard> {
    let heard = match socket.poll_next_unpin(context) {
        Poll::Ready(Some(Ok(message))) if message.is_close() => Heard::End,
        Poll::Ready(Some(Ok(message))) => Heard::Message(message),
        // The library answers one frame that is too long, and does not answer fragments that are too long together.
        Poll::Ready(Some(Err(Error::PayloadTooLong { max_len, .. }))) => {
            Heard::TooMuch(format!("a message of more than {max_len} bytes"))
        }
        Poll::Ready(Some(Err(_)) | None) => Heard::End,
        Poll::Pending if socket.get_ref().is_spent() => Heard::TooMuch(format!(
            "more than {MAX_READ_BYTES} bytes in {} s, and none is read here",
            every.as_secs()
        )),
        Poll::Pending => return Poll::Pending,
    };
    Poll::Ready(heard)
}

/// Sends all items. Returns the code and the reason to close the socket with; `None` if the client is gone, or if the
/// library tells it.
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
            said = poll_fn(|context| poll_heard(socket, context, pulse.every)) => match said {
                Heard::End => return None,
                Heard::TooMuch(reason) => return Some((CloseCode::Policy, reason)),
                Heard::Message(message) if messages < MAX_MESSAGES => {
                    messages += 1;
                    heard = Instant::now();
                    if !message.is_ping() {
                        continue;
                    }
                    // The library has queued a pong, and bounds no queue: nothing else is read until it has left.
                    socket.flush().await
                }
                Heard::Message(_) => {
                    let reason = format!(
                        "more than {MAX_MESSAGES} messages in {} s, and none is read here",
                        pulse.every.as_secs()
                    );
                    return Some((CloseCode::Policy, reason));
                }
            },
            _ = beat.tick() => {
                messages = 0;
                socket.get_mut().refill();
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
