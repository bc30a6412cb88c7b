//! A server of this host in a process of its own, a client of it that says any bytes, and the other end of what it
//! sends: a model endpoint, or whoever should hear nothing.

use crate::command::CommandFolder;
use crate::fault::{AttackFailure, ensure};
use crate::process::{self, WorkClock};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to say where it serves, or to answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// More than any answer that an attack looks at.
const MOST: u64 = 1 << 20;

/// A server that runs until it is dropped.
pub struct Served {
    child: Child,
    address: SocketAddr,
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Served {
    /// # Errors
    /// It ended, or did not say where it serves.
    pub fn start(folder: &CommandFolder, arguments: &[&str]) -> Result<Self, AttackFailure> {
        let said = folder.path().join("said");
        // A server before this one in the folder goes on writing to the file that it has.
        let _ = fs::remove_file(&said);
        let child = folder
            .command(arguments)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&said)?)
            .spawn()?;
        let mut served = Self {
            child,
            address: ([127, 0, 0, 1], 0).into(),
        };
        let started = Instant::now();
        loop {
            let text = fs::read_to_string(&said)?;
            if let Some(address) = address(&text) {
                served.address = address;
                return Ok(served);
            }
            let ended = served.child.try_wait()?;
            ensure(ended.is_none() && started.elapsed() < PATIENCE, || {
                let last = text.lines().last().unwrap_or_default();
                format!("a server that must start did not: {last:.300}")
            })?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request on a connection of its own, in the HTTP that knows no chunks.
    ///
    /// # Errors
    /// There is no answer.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answered, AttackFailure> {
        let stream = self.send(method, path, headers, body)?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer)?;
        Answered::read(&String::from_utf8_lossy(&answer))
            .ok_or_else(|| AttackFailure::Broke(format!("{method} {path}: the answer is no HTTP")))
    }

    /// A clock of its work from now on.
    pub fn work(&self) -> WorkClock {
        WorkClock::of(self.child.id())
    }

    /// Sends a request, and leaves its answer on the connection.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<TcpStream, AttackFailure> {
        let mut request = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            // Writing to a text does not fail.
            let _ = write!(request, "{name}: {value}\r\n");
        }
        request += "\r\n";
        request += body;
        self.open(request.as_bytes())
    }

    /// Runs a task to its end, once the server is ready: its modules are loaded, and its endpoint has answered.
    ///
    /// # Errors
    /// The server does not become ready, or refuses the task.
    pub fn run_task(&self, body: &str) -> Result<Answered, AttackFailure> {
        let started = Instant::now();
        loop {
            let ready = self.ask("GET", "/readyz", &[], "")?;
            if ready.status == 200 {
                break;
            }
            ensure(started.elapsed() < PATIENCE, || {
                format!("a server that must be ready is not: {:.300}", ready.body)
            })?;
            std::thread::sleep(Duration::from_millis(20));
        }
        let answered = self.ask("POST", "/v1/agent", &[], body)?;
        ensure(answered.status == 200, || {
            format!("a run that must begin did not: {:.300}", answered.body)
        })?;
        Ok(answered)
    }

    /// Opens a connection and sends these bytes on it, which may be no HTTP.
    pub fn open(&self, bytes: &[u8]) -> Result<TcpStream, AttackFailure> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        Ok(stream)
    }

    /// The answer to these bytes, which ask for no further one on the connection. `None`: it was closed without one.
    pub fn say(&self, bytes: &[u8]) -> Result<Option<Answered>, AttackFailure> {
        let mut answer = Vec::new();
        // A connection that is reset after the answer has the answer all the same.
        let _ = self.open(bytes)?.take(MOST).read_to_end(&mut answer);
        Ok(Answered::read(&String::from_utf8_lossy(&answer)))
    }

    /// The most memory that was resident in it, in bytes. `None` where the system does not report it.
    pub fn peak(&self) -> Option<u64> {
        process::peak_of(self.child.id())
    }

    /// The memory that is resident in it, in bytes. `None` where the system does not report it.
    pub fn resident(&self) -> Option<u64> {
        process::resident_of(self.child.id())
    }

    /// Kills it while another thread still asks it.
    pub fn kill_now(&self) {
        self.signal("-KILL");
    }

    /// Sends it a signal, such as `-STOP`.
    pub fn signal(&self, signal: &str) {
        // Its own number: the child was not waited for.
        let _ = std::process::Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
    }

    /// Kills it as the system does that has no memory left.
    pub fn kill(&mut self) -> Result<(), AttackFailure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl Answered {
    fn read(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some(Self {
            status: head.split(' ').nth(1)?.parse().ok()?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }
}

/// A server that hears whatever is sent to it, and gives one answer to everything. It ends with this process, which
/// every attack has for itself.
pub struct Answering {
    pub port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

/// What a model endpoint says of itself.
pub const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;

impl Answering {
    pub fn start(status: u16, body: &str) -> std::io::Result<Self> {
        let length = body.len();
        Self::saying(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ))
    }

    /// A server that redirects every request to `to`.
    pub fn redirecting(to: &str) -> std::io::Result<Self> {
        Self::saying(format!(
            "HTTP/1.1 307 X\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        ))
    }

    fn saying(answer: String) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let hears = heard.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = [0; 8 << 10];
                let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                let read = stream.read(&mut head).unwrap_or(0);
                let text = String::from_utf8_lossy(&head[..read]).into_owned();
                hears
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(text);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Ok(Self { port, heard })
    }

    /// What it heard since it was asked last.
    pub fn heard(&self) -> Vec<String> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard)
    }
}

/// Where it says that it serves, once the line is whole.
fn address(said: &str) -> Option<SocketAddr> {
    let (_, rest) = said.split_once("http://")?;
    let (address, _) = rest.split_once('/')?;
    address.parse().ok()
}
