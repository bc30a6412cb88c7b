//! A server as a process: one message a line on its stdin and stdout.

use crate::error::Failure;
use crate::settings::Settings;
use crate::wire::rpc::{self, Incoming};
use crate::wire::stderr::Stderr;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// What every program needs to find its own parts. Nothing else of our environment is passed on.
const INHERITED: [&str; 2] = ["PATH", "HOME"];
/// Messages on their way to a server that is slow to read.
const QUEUE: usize = 64;
/// Lines between two answers that are none: notifications, log lines of servers that print where they
/// must not. More is no server any more.
const MAX_UNASKED: usize = 10_000;
/// How long a server may take to end by itself once its stdin is closed.
const GRACE: Duration = Duration::from_millis(500);
/// How long its exit status is waited for after its stdout was closed.
const STATUS: Duration = Duration::from_millis(200);

/// A running server. Dropped, it is killed with everything that it started.
#[derive(Debug)]
pub struct Process {
    group: Arc<Mutex<Group>>,
    shared: Arc<Shared>,
    queue: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    complaints: JoinHandle<()>,
}

/// What the reader and the requests share.
#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    tools_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: BTreeMap<u64, oneshot::Sender<Result<Value, Failure>>>,
    /// Why there will be no answers any more.
    ended: Option<Failure>,
}

/// A process and its children.
#[derive(Debug)]
struct Group(Child);

impl Process {
    pub fn start(
        settings: &Settings,
        command: &[String],
        env: &BTreeMap<String, String>,
        secrets: &[(String, SecretString)],
        stderr: Arc<Stderr>,
    ) -> Result<Self, Failure> {
        let [program, arguments @ ..] = command else {
            return Err(Failure::Settings("its command is empty".into()));
        };
        let inherited = INHERITED
            .iter()
            .filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let secrets = secrets
            .iter()
            .map(|(name, value)| (name, value.expose_secret()));
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(inherited)
            .envs(env)
            .envs(secrets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C at the terminal is the run's to handle, and its children can be killed with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::Start(format!("{program:?}: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Arc::new(Mutex::new(Group(child)));
        let (Some(stdin), Some(stdout), Some(complaints)) = pipes else {
            return Err(Failure::Start("a pipe to it is missing".into()));
        };
        let shared = Arc::new(Shared::default());
        let (queue, messages) = mpsc::channel(QUEUE);
        let reader = Reader {
            group: group.clone(),
            shared: shared.clone(),
            queue: queue.clone(),
            message_bytes: settings.message_bytes(),
            result_bytes: settings.max_result_bytes,
        };
        Ok(Self {
            group,
            shared,
            queue,
            next: AtomicU64::new(1),
            writer: tokio::spawn(write(stdin, messages)),
            reader: tokio::spawn(reader.run(stdout)),
            complaints: tokio::spawn(collect(complaints, stderr)),
        })
    }

    /// Sends a request and waits for the answer. Dropping the future cancels the request at the server.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.shared.waiting();
            if let Some(failure) = &waiting.ended {
                return Err(failure.clone());
            }
            waiting.requests.insert(id, sender);
        }
        let mut guard = Asked {
            id,
            shared: &self.shared,
            queue: &self.queue,
            is_sent: false,
        };
        self.send(rpc::message(Some(id), method, Some(params)))
            .await?;
        // The protocol forbids to cancel this one.
        guard.is_sent = method != "initialize";
        answer
            .await
            .unwrap_or_else(|_| Err(Failure::Ended(String::new())))
    }

    pub async fn notify(&self, method: &str) -> Result<(), Failure> {
        self.send(rpc::message(None, method, None)).await
    }

    async fn send(&self, message: Vec<u8>) -> Result<(), Failure> {
        let sent = self.queue.send(message).await;
        sent.map_err(|_| {
            let ended = self.shared.waiting().ended.clone();
            ended.unwrap_or_else(|| Failure::Ended(": it takes no input any more".into()))
        })
    }

    pub fn is_open(&self) -> bool {
        self.shared.waiting().ended.is_none() && !self.writer.is_finished()
    }

    /// Whether it said so since it was last asked.
    pub fn tools_changed(&self) -> bool {
        self.shared.tools_changed.swap(false, Ordering::Relaxed)
    }

    /// Kills it at once; open requests fail.
    pub fn kill(&self) {
        locked(&self.group).kill();
    }

    /// Closes its stdin, which ends a server that is in order, and kills what is left.
    pub async fn close(&mut self) {
        self.writer.abort();
        let _ = tokio::time::timeout(GRACE, &mut self.reader).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for task in [&self.writer, &self.reader, &self.complaints] {
            task.abort();
        }
        self.kill();
    }
}

impl Group {
    /// Until the leader was waited for, its process id is not given to another process.
    fn kill(&mut self) {
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // What is dead already cannot be killed, and that is all that can go wrong.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        locked(&self.waiting)
    }

    /// The end of every request that waits, and of those that would come.
    fn end(&self, failure: &Failure) {
        let mut waiting = self.waiting();
        waiting.ended.get_or_insert_with(|| failure.clone());
        for (_, request) in std::mem::take(&mut waiting.requests) {
            let _ = request.send(Err(failure.clone()));
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request with a waiting caller.
struct Asked<'a> {
    id: u64,
    shared: &'a Shared,
    queue: &'a mpsc::Sender<Vec<u8>>,
    is_sent: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let waited = self.shared.waiting().requests.remove(&self.id).is_some();
        if waited && self.is_sent {
            // A server that does not even read what it is asked need not be told.
            let _ = self.queue.try_send(rpc::cancelled(self.id));
        }
    }
}

struct Reader {
    group: Arc<Mutex<Group>>,
    shared: Arc<Shared>,
    queue: mpsc::Sender<Vec<u8>>,
    message_bytes: usize,
    result_bytes: usize,
}

impl Reader {
    async fn run(self, stdout: ChildStdout) {
        let failure = self.read(BufReader::new(stdout)).await;
        locked(&self.group).kill();
        let failure = match failure {
            Some(failure) => failure,
            None => Failure::Ended(self.status().await),
        };
        self.shared.end(&failure);
    }

    /// Reads until there is nothing more, or nothing more is wanted.
    async fn read(&self, mut stdout: impl AsyncBufRead + Unpin) -> Option<Failure> {
        let mut unasked = 0;
        loop {
            let line = match line(&mut stdout, self.message_bytes).await {
                Ok(Some(line)) => line,
                Ok(None) => return Some(Failure::TooLarge(self.result_bytes)),
                Err(_) => return None,
            };
            let is_answer = match rpc::parse(&line) {
                Ok(Incoming::Answer { id, outcome }) => {
                    let request = self.shared.waiting().requests.remove(&id);
                    request.is_some_and(|request| request.send(outcome).is_ok())
                }
                Ok(Incoming::Asked(reply)) => {
                    let _ = self.queue.try_send(reply.to_string().into_bytes());
                    false
                }
                Ok(Incoming::ToolsChanged) => {
                    self.shared.tools_changed.store(true, Ordering::Relaxed);
                    false
                }
                Ok(Incoming::Notice) | Err(_) => false,
            };
            unasked = if is_answer { 0 } else { unasked + 1 };
            if unasked > MAX_UNASKED {
                let reason = format!("it sent {MAX_UNASKED} lines that answer nothing");
                return Some(Failure::Protocol(reason));
            }
        }
    }

    /// How it ended, if that is known soon.
    async fn status(&self) -> String {
        let until = tokio::time::Instant::now() + STATUS;
        loop {
            if let Ok(Some(status)) = locked(&self.group).0.try_wait() {
                return format!(" ({status})");
            }
            if tokio::time::Instant::now() >= until {
                return String::new();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The next line without its end; `None` if it has more than `max` bytes. The end of the stream is an
/// error.
async fn line(
    source: &mut (impl AsyncBufRead + Unpin),
    max: usize,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let chunk = source.fill_buf().await?;
        if chunk.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = &chunk[..end.unwrap_or(chunk.len())];
        if line.len() + taken.len() > max {
            return Ok(None);
        }
        line.extend_from_slice(taken);
        let consumed = taken.len() + usize::from(end.is_some());
        source.consume(consumed);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

async fn write(mut stdin: ChildStdin, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut message) = messages.recv().await {
        message.push(b'\n');
        if stdin.write_all(&message).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn collect(mut complaints: ChildStderr, stderr: Arc<Stderr>) {
    let mut buffer = vec![0; 4 << 10];
    while let Ok(length @ 1..) = complaints.read(&mut buffer).await {
        stderr.write(buffer.get(..length).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_to_their_end_and_no_further_than_allowed() {
        let mut source: &[u8] = b"one\n\ntwo two\nfar too long\nend";
        let mut next = async || line(&mut source, 8).await;
        assert_eq!(next().await.unwrap(), Some(b"one".to_vec()));
        assert_eq!(next().await.unwrap(), Some(Vec::new()));
        assert_eq!(next().await.unwrap(), Some(b"two two".to_vec()));
        assert_eq!(next().await.unwrap(), None);
        let mut cut: &[u8] = b"no end";
        assert!(line(&mut cut, 8).await.is_err());
    }
}
