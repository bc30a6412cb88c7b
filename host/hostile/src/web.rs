//! The other end of rows 13 to 16: a server on loopback that does what servers should not, a
//! resolver that lies, and the guest that is sent there.

use crate::attack::{Fault, ensure};
use crate::components;
use crate::lab::{Arena, Lab, kind};
use crate::secrets;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use toolhold_sandbox::{CallReport, Grant, HttpGrant, Limits, ModulePolicy, Resolve, SecretGrant};

/// 16 KiB of gzip that would be 16 MiB.
pub const BOMB: &[u8] = include_bytes!("../../../tests/fixtures/bomb.gz");

/// A server on 127.0.0.1, gone when dropped. Its paths:
///
/// * `/echo`: `Authorization` and the query, in every encoding, in headers and in a body of crumbs
/// * `/redirect?URL`: there
/// * `/endless`: a byte every few milliseconds, for ever
/// * `/silent`: nothing, ever
/// * `/gigabyte`: 1 GiB of zeros
/// * `/gzip`: [`BOMB`]
/// * all else: `hello`
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

/// What a server saw.
#[derive(Debug, Default)]
struct Seen {
    /// Request lines and headers.
    heads: Mutex<Vec<String>>,
    accepted: AtomicUsize,
    open: AtomicUsize,
    written: AtomicU64,
}

impl Web {
    pub async fn start() -> Result<Self, Fault> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::<Seen>::default();
        let serving = tokio::spawn(serve(listener, seen.clone()));
        Ok(Self {
            address,
            seen,
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
    pub fn granted(&self) -> Result<HttpGrant, Fault> {
        grant(json!({"origin": self.origin(), "methods": ["GET", "POST"], "private": true}))
    }

    /// Heads of the requests that arrived, in their order.
    pub fn heads(&self) -> Vec<String> {
        lock(&self.seen.heads).clone()
    }

    /// Connections that were ever accepted.
    pub fn accepted(&self) -> usize {
        self.seen.accepted.load(SeqCst)
    }

    /// Bytes of `/gigabyte` that the other side took, or that lie in socket buffers.
    pub fn written(&self) -> u64 {
        self.seen.written.load(SeqCst)
    }

    /// All connections were closed by the other side, within a second.
    pub async fn ensure_left_alone(&self) -> Result<(), Fault> {
        let since = Instant::now();
        while self.seen.open.load(SeqCst) > 0 {
            ensure(since.elapsed() < Duration::from_secs(1), || {
                "the host is still connected after the call".into()
            })?;
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        let seen = seen.clone();
        seen.accepted.fetch_add(1, SeqCst);
        seen.open.fetch_add(1, SeqCst);
        tokio::spawn(async move {
            // A client that breaks off is what most attacks end with.
            drop(converse(stream, &seen).await);
            seen.open.fetch_sub(1, SeqCst);
        });
    }
}

/// One request a connection. Bodies of requests are not looked at.
async fn converse(mut stream: TcpStream, seen: &Seen) -> io::Result<()> {
    let mut buffer = Vec::new();
    while !buffer.windows(4).any(|w| w == b"\r\n\r\n") {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&buffer).into_owned();
    lock(&seen.heads).push(head.clone());
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/echo" => echo(&mut stream, &head, query).await,
        "/redirect" => {
            plain(
                &mut stream,
                "302 Found",
                &format!("location: {query}\r\n"),
                b"",
            )
            .await
        }
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
                seen.written.fetch_add(zeros.len() as u64, SeqCst);
            }
            Ok(())
        }
        "/gzip" => plain(&mut stream, "200 OK", "content-encoding: gzip\r\n", BOMB).await,
        _ => plain(&mut stream, "200 OK", "", b"hello").await,
    }
}

async fn plain(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await
}

/// What was sent, in every encoding, wherever a response has room for text.
async fn echo(stream: &mut TcpStream, head: &str, query: &str) -> io::Result<()> {
    let credential = header(head, "authorization").concat();
    let credential = credential.trim_start_matches("Bearer ");
    let query = query.strip_prefix("key=").unwrap_or(query);
    let mut forms = secrets::forms(credential);
    forms.extend(secrets::forms(query));
    let mut answer = String::from(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\ntrailer: x-late\r\n",
    );
    for (at, form) in forms.iter().enumerate() {
        let _ = write!(answer, "x-echo-{at}: {form}\r\n");
    }
    stream.write_all(format!("{answer}\r\n").as_bytes()).await?;
    // In pieces that no form fits into.
    for piece in forms.join("\n").as_bytes().chunks(7) {
        let size = format!("{:x}\r\n", piece.len());
        let chunk = [size.as_bytes(), piece, b"\r\n"].concat();
        stream.write_all(&chunk).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    let end = format!("0\r\nx-late: {credential}{query}\r\n\r\n");
    stream.write_all(end.as_bytes()).await
}

/// All values of a header.
pub fn header<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
        .collect()
}

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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A grant as an operator writes it.
pub fn grant(fields: Value) -> Result<HttpGrant, Fault> {
    serde_json::from_value(fields).map_err(|error| Fault::Broke(format!("no such grant: {error}")))
}

/// What the fetcher is given.
#[derive(Debug, Default)]
pub struct Given {
    pub http: Vec<HttpGrant>,
    pub secrets: Vec<SecretGrant>,
    /// The system's own, if there is none.
    pub resolver: Option<Arc<Answers>>,
}

impl Given {
    pub fn http(grants: impl IntoIterator<Item = HttpGrant>) -> Self {
        Self {
            http: grants.into_iter().collect(),
            ..Self::default()
        }
    }

    pub fn resolved_by(self, answers: &Arc<Answers>) -> Self {
        Self {
            resolver: Some(answers.clone()),
            ..self
        }
    }

    /// An arena with the benign module, and `component`, named `bad`, that is given this.
    pub async fn arena(
        self,
        component: &[u8],
        lab: &Lab,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Arena, Fault> {
        let mut arena = lab.arena(|policy| {
            change(&mut policy.limits);
            if let Some(resolver) = self.resolver {
                policy.resolver = resolver;
            }
            let module = ModulePolicy {
                grant: Grant {
                    http: self.http,
                    secrets: self.secrets,
                    ..Grant::default()
                },
                ..ModulePolicy::default()
            };
            policy.modules.insert("bad".into(), module);
        })?;
        arena.benign().await?;
        arena.load("bad", component.to_vec()).await?;
        Ok(arena)
    }

    /// As [`Self::arena`], for the guest that fetches.
    pub async fn fetcher(
        self,
        lab: &Lab,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Arena, Fault> {
        self.arena(components::FETCHER, lab, change).await
    }
}

/// One request by the guest that fetches.
pub async fn request(arena: &Arena, method: &str, url: &str, headers: Value) -> CallReport {
    let arguments = json!({"method": method, "url": url, "headers": headers, "body": null});
    arena.call("bad.fetch", arguments).await
}

pub async fn get(arena: &Arena, url: &str) -> CallReport {
    request(arena, "GET", url, json!([])).await
}

/// The request was refused, and the guest was told with `code`, if one is given.
pub fn ensure_refused(report: &CallReport, what: &str, code: &str) -> Result<(), Fault> {
    let said = match &report.result {
        Err(error) => error.to_string(),
        Ok(output) => format!("{output:?}"),
    };
    ensure(kind(report) == "tool" && said.contains(code), || {
        format!("{what:.200} was not refused with {code:?}: {said:.200}")
    })
}
