//! WebSockets on which only the server has something to say. One is a connection as any other: it is counted, it
//! ends with a client that is gone, and with the server.

use super::Connection;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::{Stream, StreamExt as _};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Of what a client says, which has no meaning.
const MESSAGE_BYTES: usize = 4 << 10;
const PULSE: Pulse = Pulse {
    every: Duration::from_secs(15),
    patience: Duration::from_secs(45),
};

/// How it is found out that a client is gone which does not say so.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    /// It is asked.
    every: Duration,
    /// It may be silent.
    patience: Duration,
}

/// Sends each text as a message, then closes.
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
    pulse: Pulse,
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

async fn send_all(mut socket: WebSocket, texts: impl Stream<Item = String>, pulse: Pulse) {
    let mut texts = pin!(texts);
    let mut heard = Instant::now();
    let mut beat = interval_at(heard + pulse.every, pulse.every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            // What it has said counts before how long it was silent.
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
    // Who is gone need not be told.
    let _ = socket.send(Message::Close(None)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::serve;
    use axum::{Extension, Router, routing};
    use futures_util::stream;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use tokio_util::sync::CancellationToken;

    const SOON: Duration = Duration::from_secs(20);
    const NEVER: Pulse = Pulse {
        every: Duration::from_hours(1),
        patience: Duration::from_hours(1),
    };

    type Serving = JoinHandle<anyhow::Result<()>>;

    /// A server with room for so many, whose sockets say one thing.
    async fn server(most: usize, pulse: Pulse) -> (SocketAddr, CancellationToken, Serving) {
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
        let serving = tokio::spawn(serve(listener, router, most, stop.clone()));
        (address, stop, serving)
    }

    /// One on which the first message came.
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
            let read = timeout(SOON, client.read(&mut piece)).await;
            let read = read.expect(&text).unwrap();
            assert!(read > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
    }

    async fn is_closed(client: &mut TcpStream) -> bool {
        let ended = timeout(SOON, client.read_to_end(&mut Vec::new())).await;
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
        assert!(waited.is_err(), "what was begun is ended in peace");
        assert!(!serving.is_finished());
        serving.abort();
        assert!(is_closed(&mut client).await);
    }

    #[tokio::test]
    async fn a_client_that_answers_no_ping_is_gone() {
        let pulse = Pulse {
            every: Duration::from_millis(50),
            patience: Duration::from_secs(3),
        };
        let (address, _stop, _serving) = server(1, pulse).await;
        let mut silent = socket(address).await;
        assert!(is_closed(&mut silent).await);
        // Whoever answers is kept: an empty pong, masked with zeros.
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
