//! `toolhold serve` as a client sees it.

use crate::PATIENCE;
use crate::host::{self, Host};
use futures_util::StreamExt as _;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: String,
    client: Client,
    runtime: tokio::runtime::Runtime,
    said: Arc<Mutex<String>>,
    key: Option<String>,
}

/// What a request came to.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

/// One server-sent event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    pub event: String,
    pub id: String,
    pub data: String,
}

/// Whether an event is in the run's record: all but pieces of replies are.
pub fn is_recorded(event: &Value) -> bool {
    match event["event"].as_str() {
        Some("sub") => is_recorded(&event["what"]),
        Some("delta") => event["from"].is_null(),
        _ => true,
    }
}

/// The numbers of recorded events.
///
/// # Panics
/// If an event has none.
pub fn recorded_numbers(events: &[ServerSentEvent]) -> Vec<u64> {
    let recorded = events.iter().filter(|sent| sent.is_recorded());
    let numbers = recorded.map(|sent| sent.json()["seq"].as_u64().expect("a number"));
    numbers.collect()
}

impl Answered {
    /// # Panics
    /// If it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// # Panics
    /// If it is no success.
    pub fn good(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }

    /// Its server-sent events.
    pub fn events(&self) -> Vec<ServerSentEvent> {
        self.text
            .split("\n\n")
            .filter_map(ServerSentEvent::read)
            .collect()
    }
}

impl ServerSentEvent {
    /// Whether it is in the run's record: all but pieces of replies are.
    pub fn is_recorded(&self) -> bool {
        is_recorded(&self.json())
    }

    fn read(text: &str) -> Option<Self> {
        let mut sent = Self::default();
        for line in text.lines() {
            match line.split_once(": ").or_else(|| line.split_once(':')) {
                Some(("event", value)) => value.clone_into(&mut sent.event),
                Some(("id", value)) => value.clone_into(&mut sent.id),
                Some(("data", value)) => sent.data.push_str(value),
                _ => {}
            }
        }
        (!sent.data.is_empty()).then_some(sent)
    }

    /// # Panics
    /// If its data is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Server {
    /// Starts on a free port, with these arguments besides.
    ///
    /// # Panics
    /// If it does not say where it serves.
    pub fn start(host: &Host, arguments: &[&str]) -> Self {
        Self::start_with(host, arguments, &[])
    }

    /// The same with variables in its environment.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_with(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_until(host, arguments, variables, "serving")
    }

    /// Starts it while its database is away, for which it waits.
    ///
    /// # Panics
    /// If it does not say where it waits.
    pub fn start_waiting(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_until(host, arguments, variables, "waiting")
    }

    /// Starts it, and reads what it says until a line with this mark and an address.
    fn start_until(
        host: &Host,
        arguments: &[&str],
        variables: &[(&str, &str)],
        mark: &str,
    ) -> Self {
        let all = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = host
            .command(&all)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr"));
        let said = Arc::new(Mutex::new(String::new()));
        let mut line = String::new();
        let address = loop {
            line.clear();
            let read = lines.read_line(&mut line).expect("text");
            let so_far = {
                let mut said = said.lock().expect("no panic");
                said.push_str(&line);
                said.clone()
            };
            assert!(read > 0, "it ended: {so_far}");
            // Other lines may name endpoints.
            let is_start = line.contains(mark);
            if let Some((_, rest)) = line.split_once("http://").filter(|_| is_start) {
                let end = rest.find("/v1").expect("a URL");
                break format!("http://{}", &rest[..end]);
            }
        };
        let heard = Arc::clone(&said);
        // An unread pipe would stop the server.
        thread::spawn(move || {
            let mut rest = [0; 4_096];
            while let Ok(length @ 1..) = lines.read(&mut rest) {
                let text = String::from_utf8_lossy(&rest[..length]).into_owned();
                heard.lock().expect("no panic").push_str(&text);
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        Self {
            child,
            address,
            client: Client::builder().no_proxy().build().expect("a client"),
            runtime: runtime.expect("a runtime"),
            said,
            key: None,
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `http://HOST:PORT`
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it has said on stderr.
    pub fn said(&self) -> String {
        self.said.lock().expect("no panic").clone()
    }

    /// From now on, each request has a connection of its own: of one that was used before, a server whose clock jumps may take
    /// leave at the very moment of the next request.
    ///
    /// # Panics
    /// If there can be no client.
    pub fn connect_anew(&mut self) {
        let client = Client::builder().no_proxy().pool_max_idle_per_host(0);
        self.client = client.build().expect("a client");
    }

    /// The key that requests are made with.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// From now on, requests are made with this key.
    pub fn use_key(&mut self, key: &str) {
        self.key = Some(key.trim().to_owned());
    }

    pub fn get(&self, path: &str) -> Answered {
        self.ask(Method::GET, path, None, &[])
    }

    pub fn post(&self, path: &str, body: &Value) -> Answered {
        self.ask(Method::POST, path, Some(body), &[])
    }

    /// Any request, with headers.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answered {
        self.answered(self.request(method, path, body, headers))
    }

    fn answered(&self, request: RequestBuilder) -> Answered {
        self.runtime.block_on(async {
            let response = request.send().await.expect("an answer");
            Answered {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                text: response.text().await.expect("text"),
            }
        })
    }

    /// Any bytes.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn send(&self, path: &str, kind: &str, bytes: &[u8], headers: &[(&str, &str)]) -> Answered {
        let headers = [&[("content-type", kind)], headers].concat();
        let request = self.request(Method::POST, path, None, &headers);
        self.answered(request.body(bytes.to_vec()))
    }

    /// The first `most` events of a stream, whose connection is closed then.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn first_events(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        most: usize,
    ) -> Vec<ServerSentEvent> {
        self.first_events_with(method, path, body, &[], most)
    }

    /// The same, asked for with headers.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn first_events_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
        most: usize,
    ) -> Vec<ServerSentEvent> {
        let request = self.request(method, path, body, headers);
        self.runtime.block_on(async {
            let response = request.send().await.expect("an answer");
            // A piece may end within a character.
            let (mut stream, mut bytes, mut sent) =
                (response.bytes_stream(), Vec::new(), Vec::new());
            while let Some(piece) = stream.next().await {
                bytes.extend_from_slice(&piece.expect("a piece"));
                while let Some(end) = bytes.windows(2).position(|two| two == b"\n\n") {
                    let event: Vec<u8> = bytes.drain(..end + 2).collect();
                    sent.extend(ServerSentEvent::read(
                        std::str::from_utf8(&event).expect("UTF-8"),
                    ));
                }
                if sent.len() >= most {
                    break;
                }
            }
            sent.truncate(most);
            sent
        })
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> RequestBuilder {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.address))
            .timeout(PATIENCE);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        if let Some(body) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    /// As `kill -9` does.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it ends");
    }

    /// Files and connections that it has open.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).expect("a process").count()
    }

    /// Connections that it has open, and the sockets that it listens at.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn open_sockets(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        let open = std::fs::read_dir(folder).expect("a process").flatten();
        // One may be closed meanwhile.
        let files = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        files
            .filter(|file| file.to_string_lossy().starts_with("socket:"))
            .count()
    }

    /// Calls [`limit_descriptors`] for this process.
    pub fn limit_descriptors(&self, more: u64) {
        limit_descriptors(&self.child, more);
    }

    /// Bytes of memory that it has.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.expect("a size") << 10
    }

    /// As [`limit_files`].
    pub fn limit_files(&self, bytes: Option<u64>) {
        limit_files(&self.child, bytes);
    }

    /// As [`host::handles`].
    pub fn handles(&self, signals: &[u32]) -> bool {
        host::handles(self.child.id(), signals)
    }

    /// Sends it a signal, such as `STOP`.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn signal(&self, name: &str) {
        host::signal(self.child.id(), name);
    }

    /// As a service manager stops it. Returns its exit code.
    ///
    /// # Panics
    /// If it does not end.
    pub fn terminate(&mut self) -> Option<i32> {
        self.signal("TERM");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "it does not end: {}",
                self.said()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Why a test that failed waited in vain is often in it.
        if std::thread::panicking()
            && let Ok(said) = self.said.lock()
        {
            let _ = writeln!(std::io::stderr(), "the server said:\n{said}");
        }
    }
}

/// No file that a process writes gets larger than so many bytes, as if the disk were full; none: there is room
/// again.
///
/// # Panics
/// If the system does not do that.
pub fn limit_files(process: &Child, bytes: Option<u64>) {
    let most = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &process.id().to_string()])
        .arg(format!("--fsize={most}:unlimited"))
        .status();
    assert!(limited.expect("prlimit").success());
}

/// Limits a process to `more` descriptors above the highest one that it has open now. It can open those again that it closes
/// below that.
///
/// # Panics
/// If the system does not do that.
pub fn limit_descriptors(process: &Child, more: u64) {
    let folder = format!("/proc/{}/fd", process.id());
    let open = std::fs::read_dir(folder).expect("a process").flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    let most = numbers.max().expect("a descriptor") + 1 + more;
    // The soft limit alone.
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &process.id().to_string()])
        .arg(format!("--nofile={most}:"))
        .status();
    assert!(limited.expect("prlimit").success());
}

/// The answers to requests for the path of a server's health, each on a connection of its own that stays open, until one
/// is answered with 503. Returns the open connections, and that answer.
///
/// # Panics
/// If a client is not answered, or each one is served.
pub fn health_until_refused(address: &str) -> (Vec<TcpStream>, String) {
    // More than the numbers of descriptors that a process has closed while it started.
    const MOST: usize = 4_000;
    let mut served = Vec::new();
    for _ in 0..MOST {
        let mut client = TcpStream::connect(address).expect("a connection");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n");
        // One that was refused may be closed.
        let _ = client.write_all(head.as_bytes());
        let mut status = [0; 12];
        client.read_exact(&mut status).expect("an answer");
        if status == *b"HTTP/1.1 200" {
            served.push(client);
            continue;
        }
        let mut answer = status.to_vec();
        let _ = client.read_to_end(&mut answer);
        return (served, String::from_utf8_lossy(&answer).into_owned());
    }
    panic!("{MOST} clients are served");
}
