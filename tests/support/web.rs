//! Web servers on loopback that do what servers on the internet do, and what they should not:
//! redirect, echo secrets in every encoding, never end, send a gigabyte, stay silent. And a resolver
//! that lies.
//!
//! Written on bare sockets, because the tests are about bytes on the wire: what a server library
//! would tidy up is what has to be seen.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use toolhold_sandbox::Resolve;

use super::encodings;

/// A server on 127.0.0.1, gone when dropped. Its paths:
///
/// * `/echo`: the request as it came, whole
/// * `/echo/all`: the value of `Authorization` and the query in every encoding: in headers, in a
///   body of tiny chunks, and in trailers
/// * `/redirect/STATUS?URL`: there
/// * `/endless`: a byte every few milliseconds, for ever
/// * `/gigabyte`: 1 GiB of zeros
/// * `/gzip`: 16 KiB that would be 16 MiB
/// * `/silent`: nothing, ever
/// * `/cut`: half of what was announced
/// * all else: `hello`
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: Mutex<Vec<Seen>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    written: AtomicU64,
}

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Request line and headers.
    pub head: String,
    pub body: String,
}

impl Seen {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// The path and the query.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

impl Web {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::<Shared>::default();
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Self {
            address,
            shared,
            serving,
        }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Seen> {
        lock(&self.shared.requests).clone()
    }

    /// Connections that were ever accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// Bytes that the client's side took, or that lie in socket buffers.
    pub fn written(&self) -> u64 {
        self.shared.written.load(SeqCst)
    }

    /// Whether all connections were closed by the other side within `patience`.
    pub async fn is_left_alone(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while self.shared.open.load(SeqCst) > 0 {
            if Instant::now() >= until {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
        true
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        shared.accepted.fetch_add(1, SeqCst);
        shared.open.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            // What a client does to its connection is for the test to judge.
            let _ = converse(stream, &shared).await;
            shared.open.fetch_sub(1, SeqCst);
        });
    }
}

/// The first byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 22;

async fn converse(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = Vec::new();
    stream.read_buf(&mut buffer).await?;
    if buffer.first() == Some(&TLS_HANDSHAKE) {
        return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    }
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        lock(&shared.requests).push(request.clone());
        answer(&mut stream, shared, &request).await?;
    }
    Ok(())
}

/// The next request, or nothing if the client is done.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Seen>> {
    let end = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).position(|w| w == mark);
    let head = loop {
        if let Some(at) = end(buffer, b"\r\n\r\n") {
            break buffer.drain(..at + 4).collect::<Vec<_>>();
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let mut seen = Seen {
        head: String::from_utf8_lossy(&head).into_owned(),
        body: String::new(),
    };
    let announced = seen
        .header("content-length")
        .first()
        .and_then(|n| n.parse::<usize>().ok());
    let chunked = !seen.header("transfer-encoding").is_empty();
    let length = loop {
        let whole = if chunked {
            end(buffer, b"0\r\n\r\n").map(|at| at + 5)
        } else {
            announced
                .or(Some(0))
                .filter(|length| buffer.len() >= *length)
        };
        match whole {
            Some(length) => break length,
            None if stream.read_buf(buffer).await? == 0 => return Ok(None),
            None => {}
        }
    };
    seen.body = String::from_utf8_lossy(&buffer.drain(..length).collect::<Vec<_>>()).into_owned();
    Ok(Some(seen))
}

async fn answer(stream: &mut TcpStream, shared: &Shared, request: &Seen) -> io::Result<()> {
    let (path, query) = request
        .target()
        .split_once('?')
        .unwrap_or((request.target(), ""));
    match path {
        "/echo" => {
            let text = format!("{}{}", request.head, request.body);
            plain(
                stream,
                "200 OK",
                "content-type: text/plain\r\n",
                text.as_bytes(),
            )
            .await
        }
        "/echo/all" => echo_all(stream, request, query).await,
        "/endless" => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await?;
            loop {
                stream.write_all(b"1\r\nx\r\n").await?;
                sleep(Duration::from_millis(5)).await;
            }
        }
        "/gigabyte" => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1 << 30);
            stream.write_all(head.as_bytes()).await?;
            let zeros = vec![0; 64 << 10];
            for _ in 0..(1 << 30) / zeros.len() {
                stream.write_all(&zeros).await?;
                shared.written.fetch_add(zeros.len() as u64, SeqCst);
            }
            Ok(())
        }
        "/gzip" => {
            let bomb = include_bytes!("../fixtures/bomb.gz");
            plain(stream, "200 OK", "content-encoding: gzip\r\n", bomb).await
        }
        "/silent" => loop {
            // Sees the client go.
            if stream.read(&mut [0; 64]).await? == 0 {
                return Ok(());
            }
        },
        "/cut" => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello")
                .await?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        _ => match path.strip_prefix("/redirect/") {
            Some(status) => {
                let headers = format!("location: {query}\r\n");
                plain(
                    stream,
                    &format!("{status} Elsewhere"),
                    &headers,
                    b"over there",
                )
                .await
            }
            None if request.head.starts_with("HEAD ") => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
                    .await
            }
            None => plain(stream, "200 OK", "", b"hello").await,
        },
    }
}

async fn plain(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await
}

/// What was sent, in every encoding, wherever a response has room for text.
async fn echo_all(stream: &mut TcpStream, request: &Seen, query: &str) -> io::Result<()> {
    let credential = request.header("authorization").concat();
    let sent = format!("{credential}{query}");
    let mut head =
        String::from("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-late\r\n");
    let mut body = String::new();
    for (at, text) in encodings::all(&sent).into_iter().enumerate() {
        let _ = write!(head, "x-echo-{at}: {text}\r\n");
        let _ = writeln!(body, "{text}");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    for chunk in body.as_bytes().chunks(7) {
        let head = format!("{:x}\r\n", chunk.len());
        stream
            .write_all(&[head.as_bytes(), chunk, b"\r\n"].concat())
            .await?;
        // So that the client reads them apart.
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    stream
        .write_all(format!("0\r\nx-late: {sent}\r\n\r\n").as_bytes())
        .await
}

/// A resolver that gives each answer once, in turn, and the last one for ever.
#[derive(Debug)]
pub struct Answers {
    left: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Answers {
    pub fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |text: &&str| text.parse().expect("an address");
        let left = answers
            .iter()
            .map(|answer| answer.iter().map(parse).collect());
        Arc::new(Self {
            left: Mutex::new(left.collect()),
            asked: AtomicUsize::new(0),
        })
    }

    /// How many times it was asked.
    pub fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

impl Resolve for Answers {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, SeqCst);
        let mut left = lock(&self.left);
        let answer = if left.len() > 1 {
            left.pop_front()
        } else {
            left.front().cloned()
        };
        Box::pin(async move { Ok(answer.unwrap_or_default()) })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
