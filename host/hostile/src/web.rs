//! The other end of outbound HTTP: a server on loopback that does what servers on the internet do and
//! what they should not, and a resolver that lies. Rows 13 to 16 are tried with them, and so is what
//! the integration tests say of egress.
//!
//! On bare sockets, because it is about bytes on the wire: what a server library would tidy up is what
//! has to be seen.

use crate::encodings::{forms, odd_forms};
use crate::fault::{AttackFailure, ensure};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use toolhold_admission::WorkParty;
use toolhold_policy::HttpGrant;
use toolhold_sandbox::Resolve;

/// 16 KiB of gzip that would be 16 MiB.
pub const BOMB: &[u8] = include_bytes!("../bomb.gz");

/// A server on 127.0.0.1, gone when dropped. Its paths:
///
/// * `/echo`: the request as it came; then `Authorization` and the query's last value in every
///   encoding, which are in headers and trailers, too. All of it in crumbs
/// * `/odd/NUMBER/PIECE`: the credential in one of the odd forms of this server, in pieces of so many bytes
/// * `/redirect/STATUS?URL`: there
/// * `/endless`: a byte every few milliseconds, for ever
/// * `/silent`: nothing, ever
/// * `/gigabyte`: 1 GiB of zeros
/// * `/gzip`: [`BOMB`]
/// * `/cut`: half of what was announced
/// * `/last`: `hello`, as the last on its connection
/// * all else: `hello`
#[derive(Debug)]
pub struct AttackServer {
    address: SocketAddr,
    shared: Arc<ServerCounters>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct ServerCounters {
    requests: Mutex<Vec<ReceivedRequest>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    written: AtomicU64,
}

/// A request as it came over the wire.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Request line and headers.
    pub head: String,
    pub body: String,
}

impl ReceivedRequest {
    /// All values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1);
        lines
            .filter_map(|line| line.split_once(':'))
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// The path and the query.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

impl AttackServer {
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::<ServerCounters>::default();
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Ok(Self {
            address,
            shared,
            serving,
        })
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

    /// Everything at this server.
    pub fn granted(&self) -> Result<HttpGrant, AttackFailure> {
        let methods = ["GET", "HEAD", "POST"];
        grant(json!({"origin": self.origin(), "methods": methods, "private": true}))
    }

    /// The requests that arrived, in their order.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.requests).clone()
    }

    /// Connections that were ever accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// Bytes of `/gigabyte` that the other side took, or that lie in socket buffers.
    pub fn written(&self) -> u64 {
        self.shared.written.load(SeqCst)
    }

    /// The other side closes all connections within `patience`.
    pub async fn ensure_left_alone(&self, patience: Duration) -> Result<(), AttackFailure> {
        let since = Instant::now();
        while self.shared.open.load(SeqCst) > 0 {
            ensure(since.elapsed() < patience, || {
                "the host is still connected after the call".into()
            })?;
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for AttackServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A grant as an operator writes it.
pub fn grant(fields: Value) -> Result<HttpGrant, AttackFailure> {
    serde_json::from_value(fields)
        .map_err(|error| AttackFailure::Broke(format!("no such grant: {error}")))
}

async fn serve(listener: TcpListener, shared: Arc<ServerCounters>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        shared.accepted.fetch_add(1, SeqCst);
        shared.open.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            // A client that breaks off is what most attacks end with.
            drop(converse(stream, &shared).await);
            shared.open.fetch_sub(1, SeqCst);
        });
    }
}

/// The first byte of a client that speaks TLS.
const TLS_HANDSHAKE: u8 = 22;

async fn converse(mut stream: TcpStream, shared: &ServerCounters) -> io::Result<()> {
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
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<ReceivedRequest>> {
    let end = |bytes: &[u8], mark: &[u8]| {
        let at = bytes.windows(mark.len()).position(|w| w == mark);
        at.map(|at| at + mark.len())
    };
    let head = loop {
        if let Some(length) = end(buffer, b"\r\n\r\n") {
            break text(buffer, length);
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let mut seen = ReceivedRequest {
        head,
        body: String::new(),
    };
    let is_chunked = !seen.header("transfer-encoding").is_empty();
    let announced = seen.header("content-length").first().map(|n| n.parse());
    let announced = announced.and_then(Result::ok).unwrap_or(0);
    let length = loop {
        let whole = if is_chunked {
            end(buffer, b"0\r\n\r\n")
        } else {
            Some(announced).filter(|length| buffer.len() >= *length)
        };
        match whole {
            Some(length) => break length,
            None if stream.read_buf(buffer).await? == 0 => return Ok(None),
            None => {}
        }
    };
    seen.body = text(buffer, length);
    Ok(Some(seen))
}

/// Takes the first `length` bytes away.
fn text(buffer: &mut Vec<u8>, length: usize) -> String {
    let bytes: Vec<u8> = buffer.drain(..length).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn answer(
    stream: &mut TcpStream,
    shared: &ServerCounters,
    request: &ReceivedRequest,
) -> io::Result<()> {
    let target = request.target();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/echo" => echo(stream, request, query).await,
        "/endless" => {
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await?;
            loop {
                stream.write_all(b"1\r\nx\r\n").await?;
                sleep(Duration::from_millis(5)).await;
            }
        }
        "/silent" => {
            // Sees the client go.
            while stream.read(&mut [0; 64]).await? > 0 {}
            Ok(())
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
        "/gzip" => plain(stream, "200 OK", "content-encoding: gzip\r\n", BOMB).await,
        "/last" => plain(stream, "200 OK", "connection: close\r\n", b"hello").await,
        "/cut" => {
            let half = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
            stream.write_all(half).await?;
            Err(io::ErrorKind::ConnectionAborted.into())
        }
        _ if request.head.starts_with("HEAD ") => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
            stream.write_all(head).await
        }
        _ if path.starts_with("/odd/") => odd(stream, request, path).await,
        _ => match path.strip_prefix("/redirect/") {
            Some(status) => {
                let location = format!("location: {query}\r\n");
                plain(
                    stream,
                    &format!("{status} Elsewhere"),
                    &location,
                    b"over there",
                )
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

/// What was sent, as it was and in every encoding, wherever a response has room for text.
async fn echo(stream: &mut TcpStream, request: &ReceivedRequest, query: &str) -> io::Result<()> {
    let authorization = request.header("authorization").concat();
    let credential = authorization.trim_start_matches("Bearer ");
    let value = query.rsplit('=').next().unwrap_or_default();
    let forms = [forms(credential), forms(value)].concat();
    let mut head = String::from(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\ntrailer: x-late\r\n",
    );
    let mut body = format!("{}{}", request.head, request.body);
    for (at, form) in forms.iter().enumerate() {
        let _ = write!(head, "x-echo-{at}: {form}\r\n");
        let _ = write!(body, "\n{form}");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    // In pieces that no form fits into.
    for piece in body.as_bytes().chunks(7) {
        let size = format!("{:x}\r\n", piece.len());
        let chunk = [size.as_bytes(), piece, b"\r\n"].concat();
        stream.write_all(&chunk).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    let end = format!("0\r\nx-late: {authorization}{value}\r\n\r\n");
    stream.write_all(end.as_bytes()).await
}

/// One odd form of what was sent, in a body, in pieces.
async fn odd(stream: &mut TcpStream, request: &ReceivedRequest, path: &str) -> io::Result<()> {
    let authorization = request.header("authorization").concat();
    let forms = odd_forms(authorization.trim_start_matches("Bearer "));
    let mut numbers = path.split('/').skip(2).map(|n| n.parse().unwrap_or(0));
    let (number, piece) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let form = forms.get(number).map_or("none", String::as_str);
    let body = format!("{{\"before\": \"{form}\", \"after\": 1}}");
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for piece in body.as_bytes().chunks(piece.max(1)) {
        let size = format!("{:x}\r\n", piece.len());
        let chunk = [size.as_bytes(), piece, b"\r\n"].concat();
        stream.write_all(&chunk).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// This machine.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The cloud's metadata service.
pub const METADATA: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254));

/// A resolver that gives each answer once, in turn, and the last one for ever.
#[derive(Debug)]
pub struct Answers {
    left: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Answers {
    pub fn new(answers: &[&[IpAddr]]) -> Arc<Self> {
        let left = answers.iter().map(|answer| answer.to_vec()).collect();
        Arc::new(Self {
            left: Mutex::new(left),
            asked: AtomicUsize::new(0),
        })
    }

    /// How many times it was asked.
    pub fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

impl Resolve for Answers {
    fn resolve<'a>(
        &'a self,
        _: &'a WorkParty,
        _: &'a str,
    ) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
