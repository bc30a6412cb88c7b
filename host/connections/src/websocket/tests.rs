use super::*;
use crate::server::serve;
use crate::settings::Settings;
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
    let socket = async move |upgrade: WebSocketUpgrade,
                             Extension(connection): Extension<Connection>| {
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

/// A frame of a client, masked with zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match u8::try_from(payload.len()) {
        Ok(bytes @ ..126) => frame.push(0x80 | bytes),
        _ => {
            frame.push(0x80 | 0x7e);
            let bytes = u16::try_from(payload.len()).unwrap();
            frame.extend(bytes.to_be_bytes());
        }
    }
    frame.extend([0_u8; 4]);
    frame.extend(payload);
    frame
}

/// Fragments that are no message until the last of them.
#[tokio::test]
async fn empty_fragments_without_end_end_their_socket() {
    let (address, _stop, _serving) = server(1, NEVER).await;
    let mut client = socket(address).await;
    client.write_all(&frame(0x01, b"")).await.unwrap();
    let empty = frame(0x00, b"");
    let all = empty.repeat(MAX_READ_BYTES / empty.len() + 1);
    client.write_all(&all).await.unwrap();
    let told = "more than 1048576 bytes in 3600 s, and none is read here";
    until(&mut client, told).await;
    assert!(is_closed(&mut client).await);
    // A client that does not stop is not read for ever, either.
    let mut client = socket(address).await;
    client.write_all(&frame(0x01, b"")).await.unwrap();
    let flood = async {
        for _ in 0..10_000 {
            if client.write_all(&all).await.is_err() {
                return;
            }
        }
        panic!("ten gigabytes of fragments were taken");
    };
    timeout(TIMEOUT, flood).await.unwrap();
}

#[tokio::test]
async fn fragments_in_time_are_read_on() {
    let pulse = KeepAlive {
        every: Duration::from_millis(50),
        patience: Duration::from_mins(1),
    };
    let (address, _stop, _serving) = server(1, pulse).await;
    let mut client = socket(address).await;
    client.write_all(&frame(0x01, b"")).await.unwrap();
    let third = frame(0x00, b"").repeat(MAX_READ_BYTES / 18);
    for _ in 0..4 {
        client.write_all(&third).await.unwrap();
        // The end of an empty ping. The next third comes after one that was sent meanwhile.
        until(&mut client, "\0").await;
        until(&mut client, "\0").await;
    }
    client.write_all(&frame(0x88, b"")).await.unwrap();
    let mut rest = Vec::new();
    let read = timeout(TIMEOUT, client.read_to_end(&mut rest)).await;
    read.unwrap().unwrap();
    assert!(rest.ends_with(&[0x88, 0]), "{rest:?}");
}

#[tokio::test]
async fn a_close_and_every_fault_of_a_client_is_answered() {
    let (address, _stop, _serving) = server(1, NEVER).await;
    let long = [b'x'; MESSAGE_BYTES + 1];
    let fragments = [frame(0x01, &long[1..]), frame(0x80, b"x")].concat();
    for (sent, code, reason) in [
        (frame(0x88, &1_000_u16.to_be_bytes()), 1_000_u16, ""),
        (
            frame(0x88, &[&1_001_u16.to_be_bytes()[..], b"bye"].concat()),
            1_001,
            "",
        ),
        (frame(0xf1, b""), 1_002, "invalid extension"),
        (frame(0x80, b""), 1_002, "invalid opcode"),
        (vec![0x81, 1, b'x'], 1_002, "unexpected unmasked frame"),
        (frame(0x81, b"\xff"), 1_007, "invalid utf8"),
        (frame(0x82, &long), 1_009, "max length: 4096"),
        (fragments, 1_008, "a message of more than 4096 bytes"),
    ] {
        let mut client = socket(address).await;
        client.write_all(&sent).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(TIMEOUT, client.read_to_end(&mut answer)).await;
        read.unwrap().unwrap();
        let payload = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
        let bytes = u8::try_from(payload.len()).unwrap();
        let close = [vec![0x88, bytes], payload].concat();
        assert_eq!(answer, close, "{code} {reason}");
    }
}

#[tokio::test]
async fn long_texts_come_as_one_message_each_and_a_close_code_ends_them() {
    let socket = async |upgrade: WebSocketUpgrade, Extension(connection): Extension<Connection>| {
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
