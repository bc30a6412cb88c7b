//! WebSockets on which only the server sends. A WebSocket is a connection like any other: it is counted, and it
//! ends when its client is gone and when the server ends.

use crate::server::Connection;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::{Stream, StreamExt as _};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Bytes of a client's message. Its content is ignored.
const MESSAGE_BYTES: usize = 4 << 10;
/// A proxy typically closes a connection after 60 s of silence; three unanswered pings end ours.
const PULSE: KeepAlive = KeepAlive {
    every: Duration::from_secs(15),
    patience: Duration::from_secs(45),
};

/// How the server notices a client that vanished without closing.
#[derive(Debug, Clone, Copy)]
struct KeepAlive {
    /// Time between two pings.
    every: Duration,
    /// Longest silence of the client.
    patience: Duration,
}

/// Upgrades the request, sends each text as a message, then closes the socket.
pub fn send(
    upgrade: WebSocketUpgrade,
    connection: Connection,
    texts: impl Stream<Item = String> + Send + 'static,
) -> Response {
    upgrade_with(upgrade, connection, texts, PULSE)
}

fn upgrade_with(
    upgrade: WebSocketUpgrade,
    connection: Connection,
    texts: impl Stream<Item = String> + Send + 'static,
    pulse: KeepAlive,
) -> Response {
    upgrade
        .max_message_size(MESSAGE_BYTES)
        .max_frame_size(MESSAGE_BYTES)
        .on_upgrade(async move |socket| {
            tokio::select! {
                () = connection.closed() => {}
                () = send_all(socket, texts, pulse) => {}
            }
        })
}

async fn send_all(mut socket: WebSocket, texts: impl Stream<Item = String>, pulse: KeepAlive) {
    let mut texts = pin!(texts);
    let mut heard = Instant::now();
    let mut beat = interval_at(heard + pulse.every, pulse.every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            // A message that has arrived counts before the timeout.
            biased;
            said = socket.recv() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {
                    heard = Instant::now();
                    continue;
                }
            },
            _ = beat.tick() => {
                if heard.elapsed() >= pulse.patience {
                    return;
                }
                Message::Ping(Bytes::new())
            }
            text = texts.next() => match text {
                Some(text) => Message::text(text),
                None => break,
            },
        };
        if socket.send(message).await.is_err() {
            return;
        }
    }
    // The client may be gone; there is nothing more to do for it.
    let _ = socket.send(Message::Close(None)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::serve;
    use crate::settings::Settings;
    use axum::{Extension, Router, routing};
    use futures_util::stream;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

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
                let said = stream::iter(["hello".to_owned()]).chain(stream::pending());
                upgrade_with(upgrade, connection, said, pulse)
            };
        let router = Router::new()
            .route("/socket", routing::get(socket))
            .route("/", routing::get(async || "page"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(serve(listener, router, Settings::new(most), stop.clone()));
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
}
