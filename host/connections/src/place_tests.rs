//! Connections while all places are taken: which are served, and the answers to the others.

use crate::server::serve;
use crate::settings::Settings;
use axum::{Router, routing};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest wait for what a server does; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server with a path that never answers.
struct BusyServer {
    address: SocketAddr,
    /// Gets a message for each request of that path, as soon as it is under way.
    begun: UnboundedReceiver<()>,
}

impl BusyServer {
    async fn start(settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (begins, begun) = mpsc::unbounded_channel();
        let never = move || {
            let _ = begins.send(());
            std::future::pending::<&str>()
        };
        let router = Router::new()
            .route("/", routing::get(async || "page"))
            .route("/healthz", routing::get(async || "ok"))
            .route("/never", routing::get(never));
        tokio::spawn(serve(listener, router, settings, CancellationToken::new()));
        Self { address, begun }
    }

    /// A client whose request is under way, and has a place, until it is dropped.
    async fn occupied(&mut self) -> TcpStream {
        let client = ask(self.address, "/never").await;
        let begun = timeout(PATIENCE, self.begun.recv()).await;
        begun.expect("in time").expect("a server");
        client
    }

    /// Begins this number of requests that are never answered.
    async fn all_occupied(&mut self, count: usize) -> Vec<TcpStream> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(self.occupied().await);
        }
        clients
    }
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    client
}

async fn answer(mut client: TcpStream) -> String {
    let mut answer = String::new();
    let read = client.read_to_string(&mut answer);
    let read = timeout(PATIENCE, read).await;
    read.expect("an answer").unwrap();
    answer
}

fn few_connections() -> Settings {
    Settings {
        reserve: 2,
        is_reserved: |path| path == "/healthz",
        ..Settings::new(4)
    }
}

#[tokio::test]
async fn connections_without_a_request_keep_nobody_out() {
    let address = BusyServer::start(few_connections()).await.address;
    let mut silent = Vec::new();
    for n in 0..300 {
        let mut client = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            // Whether it is closed already depends on the others.
            let _ = client.write_all(b"GET / HTTP/1.1\r\nhos").await;
        }
        silent.push(client);
    }
    for path in ["/", "/healthz"] {
        let answer = answer(ask(address, path).await).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn health_is_answered_while_all_others_are_busy() {
    let mut server = BusyServer::start(few_connections()).await;
    let address = server.address;
    let mut busy = server.all_occupied(4).await;
    let waiting = ask(address, "/").await;
    // Nothing outside tells that it waits in the reserve.
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..3 {
        let health = answer(ask(address, "/healthz").await).await;
        assert!(health.ends_with("ok"), "{health}");
    }
    // It waited meanwhile, and is served as soon as there is room.
    drop(busy.pop());
    let page = answer(waiting).await;
    assert!(page.ends_with("page"), "{page}");

    busy.push(server.occupied().await);
    let mut kept_out = Vec::new();
    for _ in 0..3 {
        kept_out.push(ask(address, "/").await);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let refused = answer(kept_out.remove(0)).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("connection: close"), "{refused}");
    assert!(refused.ends_with("try again in a while\"}}"), "{refused}");
    let health = answer(ask(address, "/healthz").await).await;
    assert!(health.ends_with("ok"), "{health}");
}

#[tokio::test]
async fn a_connection_that_loses_its_place_before_its_request_is_answered() {
    let address = BusyServer::start(Settings::new(1)).await.address;
    let first = TcpStream::connect(address).await.unwrap();
    let page = answer(ask(address, "/").await).await;
    assert!(page.ends_with("page"), "{page}");
    let refused = answer(first).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
}

#[tokio::test]
async fn a_request_without_a_place_is_answered_after_a_time() {
    let settings = Settings {
        place_timeout: Duration::from_millis(300),
        ..few_connections()
    };
    let mut server = BusyServer::start(settings).await;
    let address = server.address;
    let _busy = server.all_occupied(4).await;
    let refused = answer(ask(address, "/").await).await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
}

#[tokio::test]
async fn a_connection_without_a_place_is_answered_before_its_request() {
    // The reserve is busy, too.
    let settings = Settings {
        reserve: 2,
        is_reserved: |path| path == "/never",
        ..Settings::new(4)
    };
    let mut server = BusyServer::start(settings).await;
    let address = server.address;
    let mut busy = server.all_occupied(6).await;
    for path in ["/", "/never"] {
        let refused = answer(ask(address, path).await).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{path}: {refused}");
        assert!(refused.contains("retry-after: 5"), "{path}: {refused}");
    }
    // As soon as there is a place, all is as before.
    drop(busy.remove(0));
    let begun = Instant::now();
    loop {
        let page = answer(ask(address, "/").await).await;
        if page.ends_with("page") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{page}");
    }
}
