//! A client of bytes: it says what a test says, and nothing else.

use crate::mcp_server::{initialize, modern, request};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Stdio as Pipe};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use support::host::Host;
use toolhold_hostile::processor_time_of;

/// Far longer than anything should take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// `toolhold mcp` as a client's child.
pub struct Stdio {
    pub child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Notifications and requests that came while a reply was waited for.
    pub heard: Vec<Value>,
}

impl Stdio {
    pub fn start(host: &Host, arguments: &[&str]) -> Self {
        let mut child = host
            .command(&[&["mcp"], arguments].concat())
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::null())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            lines,
            heard: Vec::new(),
        }
    }

    /// With a session that has begun.
    pub fn session(host: &Host, arguments: &[&str], capabilities: Value) -> Self {
        let mut client = Self::start(host, arguments);
        let welcome = client.ask(initialize("2025-11-25", capabilities));
        assert_eq!(welcome["result"]["protocolVersion"], "2025-11-25");
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    pub fn send(&mut self, message: Value) {
        self.send_line(message.to_string().as_bytes());
    }

    pub fn send_line(&mut self, line: &[u8]) {
        let input = self.input.as_mut().expect("it is open");
        let line = [line, b"\n"].concat();
        input.write_all(&line).expect("it reads");
    }

    pub fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a message");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Whether nothing comes for a while.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        self.lines.recv_timeout(time).is_err()
    }

    /// The reply to `id`; what comes before is kept.
    pub fn reply(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        loop {
            let message = self.next();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub fn ask(&mut self, request: Value) -> Value {
        let id = request["id"].clone();
        self.send(request);
        self.reply(id)
    }

    /// Waits for a notification or request of this method.
    pub fn hear(&mut self, method: &str) -> Value {
        if let Some(place) = self
            .heard
            .iter()
            .position(|heard| heard["method"] == method)
        {
            return self.heard.remove(place);
        }
        loop {
            let message = self.next();
            if message["method"] == method {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// Closes the input, and returns the exit code.
    pub fn close(&mut self) -> Option<i32> {
        self.input = None;
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(started.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `toolhold mcp --http`.
pub struct HttpMcpServer {
    child: Child,
    pub address: String,
}

/// An answer, as far as it was read.
#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    head: String,
    pub body: String,
}

impl HttpMcpServer {
    pub fn start(host: &Host, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = host
            .command(&[&["mcp", "--http", "127.0.0.1:0"], arguments].concat())
            .envs(environment.iter().copied())
            .stderr(Pipe::piped())
            .spawn()
            .expect("it starts");
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0, "it did not start");
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.split('/').next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut errors, &mut std::io::sink());
        });
        Self { child, address }
    }

    /// Id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process at once, like `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("it ends");
    }

    pub fn handles(&self, signals: &[u32]) -> bool {
        support::host::handles(self.child.id(), signals)
    }

    /// Calls [`support::server::limit_descriptors`] for this process.
    pub fn limit_descriptors(&self, more: u64) {
        support::server::limit_descriptors(&self.child, more);
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Sends a request and returns the connection. HTTP/1.0: what comes back is not in chunks, and ends
    /// with the connection.
    pub fn open(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("{method} /mcp HTTP/1.0\r\n");
        let given = |name: &str| {
            headers
                .iter()
                .any(|(own, _)| own.eq_ignore_ascii_case(name))
        };
        let length = body.len().to_string();
        let defaults = [
            ("host", self.address.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("content-length", &length),
        ];
        for (name, value) in defaults
            .iter()
            .filter(|(name, _)| !given(name))
            .chain(headers)
        {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head += "\r\n";
        // What refuses a body need not read it.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        stream
    }

    pub fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpReply {
        let mut stream = self.open(method, headers, body);
        let mut whole = Vec::new();
        let _ = stream.read_to_end(&mut whole);
        let whole = String::from_utf8_lossy(&whole);
        let (head, body) = whole.split_once("\r\n\r\n").expect("an answer");
        HttpReply {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub fn post(&self, headers: &[(&str, &str)], message: &Value) -> HttpReply {
        self.send("POST", headers, message.to_string().as_bytes())
    }

    /// A message of the modern era, with the headers that it needs.
    pub fn modern(&self, message: &Value) -> HttpReply {
        self.modern_with(message, &[])
    }

    pub fn modern_with(&self, message: &Value, more: &[(&str, &str)]) -> HttpReply {
        let pairs = modern_headers(message);
        let mut headers: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        headers.extend(more);
        self.post(&headers, message)
    }

    /// A call that never ends, on a connection of its own, once its guest has said that it runs. What comes
    /// after that, until it is dropped.
    pub fn toiling(&self, id: i64) -> impl Iterator<Item = Value> + use<> {
        let params = json!({"name": "probe.toil", "_meta": {"progressToken": id}});
        let message = modern(id, "tools/call", params, json!({}));
        let pairs = modern_headers(&message);
        let headers: Vec<(&str, &str)> = pairs
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let mut told = events(self.open("POST", &headers, message.to_string().as_bytes()));
        assert_eq!(told.next().expect("progress")["params"]["progress"], 1);
        told
    }

    /// Waits until the server computes: nothing but a guest does, once it serves.
    pub fn until_it_computes(&self) {
        let before = self.computed();
        let started = Instant::now();
        while self.computed() < before + Duration::from_millis(50) {
            assert!(started.elapsed() < PATIENCE, "no guest runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn computed(&self) -> Duration {
        processor_time_of(self.child.id()).expect("it lives")
    }

    /// Begins a session, and returns its id.
    pub fn session(&self, capabilities: Value) -> String {
        let welcome = self.post(&[], &initialize("2025-11-25", capabilities));
        assert_eq!(welcome.status, 200, "{welcome:?}");
        welcome.header("mcp-session-id").expect("an id").to_owned()
    }
}

/// The headers that say what a message of the modern era says.
pub fn modern_headers(message: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &message["params"]["_meta"];
    let mut headers = vec![
        (
            "mcp-protocol-version",
            text(&meta["io.modelcontextprotocol/protocolVersion"]),
        ),
        ("mcp-method", text(&message["method"])),
    ];
    if let Some(name) = message["params"]["name"].as_str() {
        headers.push(("mcp-name", name.to_owned()));
    }
    headers
}

impl HttpReply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The messages of a stream.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(
            self.header("content-type"),
            Some("text/event-stream"),
            "{self:?}"
        );
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| !data.trim().is_empty())
            .map(|data| serde_json::from_str(data).expect("a message"))
            .collect()
    }
}

impl Drop for HttpMcpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The messages of a stream, as they come.
pub fn events(stream: TcpStream) -> impl Iterator<Item = Value> {
    BufReader::new(stream)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
}

/// `ping`, which every session answers.
pub fn ping(id: impl Into<Value>) -> Value {
    request(id, "ping", json!({}))
}
