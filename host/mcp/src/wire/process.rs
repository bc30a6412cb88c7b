//! A server as a process: one message a line on its stdin and stdout.

use crate::error::Failure;
use crate::rpc;
use crate::settings::ServerSettings;
use crate::wire::rpc::{Incoming, cancelled, parse};
use crate::wire::stderr::Stderr;
use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, FramedRead};

/// Variables that programs need to find their own parts. No other variable of our environment is passed on.
const INHERITED: [&str; 2] = ["PATH", "HOME"];
/// Queue of messages to a server that reads slowly.
const QUEUE_CAPACITY: usize = 64;
/// Most consecutive messages of a server that answer nothing: notifications, its own requests, and log lines of servers
/// that print to stdout. After more, the server counts as broken.
const MAX_UNASKED: usize = 10_000;
/// Time for a server to end by itself after its stdin was closed.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// Time to wait for the exit status after stdout was closed.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_millis(200);

/// A running server. Dropping it kills the process and its children.
#[derive(Debug)]
pub struct Process {
    group: Arc<Mutex<Group>>,
    shared: Arc<ProcessState>,
    queue: mpsc::Sender<Bytes>,
    next: AtomicU64,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    complaints: JoinHandle<()>,
}

/// State shared by the reader and the requests.
#[derive(Debug, Default)]
struct ProcessState {
    waiting: Mutex<PendingReplies>,
    tools_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct PendingReplies {
    requests: BTreeMap<u64, oneshot::Sender<Result<Value, Failure>>>,
    /// Why no replies will come.
    ended: Option<Failure>,
}

/// A process and its children.
#[derive(Debug)]
struct Group(Child);

impl Process {
    pub fn start(
        settings: &ServerSettings,
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
            // The run handles Ctrl-C; a process group of its own also allows to kill the children.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::Start(format!("{program:?}: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let group = Arc::new(Mutex::new(Group(child)));
        let (Some(stdin), Some(stdout), Some(complaints)) = pipes else {
            return Err(Failure::Start("a pipe to it is missing".into()));
        };
        let shared = Arc::new(ProcessState::default());
        let (queue, messages) = mpsc::channel(QUEUE_CAPACITY);
        let reader = StdoutReader {
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
            let mut waiting = self.shared.waiting.lock();
            if let Some(failure) = &waiting.ended {
                return Err(failure.clone());
            }
            waiting.requests.insert(id, sender);
        }
        let mut guard = SentRequest {
            id,
            shared: &self.shared,
            queue: &self.queue,
            is_sent: false,
        };
        self.send(rpc::request(id, method, params)).await?;
        // The protocol forbids cancelling `initialize`.
        guard.is_sent = method != "initialize";
        answer
            .await
            .unwrap_or_else(|_| Err(Failure::Ended(String::new())))
    }

    pub async fn notify(&self, method: &str) -> Result<(), Failure> {
        self.send(rpc::notification(method, None)).await
    }

    async fn send(&self, message: Bytes) -> Result<(), Failure> {
        let sent = self.queue.send(message).await;
        sent.map_err(|_| {
            let ended = self.shared.waiting.lock().ended.clone();
            ended.unwrap_or_else(|| Failure::Ended(": it takes no input any more".into()))
        })
    }

    pub fn is_open(&self) -> bool {
        self.shared.waiting.lock().ended.is_none() && !self.writer.is_finished()
    }

    /// Whether the server announced a change of its tools since the previous call.
    pub fn tools_changed(&self) -> bool {
        self.shared.tools_changed.swap(false, Ordering::Relaxed)
    }

    /// Kills the process at once; open requests fail.
    pub fn kill(&self) {
        self.group.lock().kill();
    }

    /// Closes stdin, which ends a correct server, then kills what remains.
    pub async fn close(&mut self) {
        self.writer.abort();
        let _ = tokio::time::timeout(EXIT_GRACE, &mut self.reader).await;
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
    /// The process id is not reused until the leader was waited for.
    fn kill(&mut self) {
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // Fails only if the process has ended already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl ProcessState {
    /// Fails all open and later requests.
    fn end(&self, failure: &Failure) {
        let mut waiting = self.waiting.lock();
        waiting.ended.get_or_insert_with(|| failure.clone());
        for (_, request) in std::mem::take(&mut waiting.requests) {
            let _ = request.send(Err(failure.clone()));
        }
    }
}

/// A request with a waiting caller.
struct SentRequest<'a> {
    id: u64,
    shared: &'a ProcessState,
    queue: &'a mpsc::Sender<Bytes>,
    is_sent: bool,
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        let waited = self
            .shared
            .waiting
            .lock()
            .requests
            .remove(&self.id)
            .is_some();
        if waited && self.is_sent {
            // A server that does not read its input cannot be told.
            let _ = self.queue.try_send(cancelled(self.id));
        }
    }
}

struct StdoutReader {
    group: Arc<Mutex<Group>>,
    shared: Arc<ProcessState>,
    queue: mpsc::Sender<Bytes>,
    message_bytes: usize,
    result_bytes: usize,
}

impl StdoutReader {
    async fn run(self, stdout: ChildStdout) {
        let failure = self.read(stdout).await;
        self.group.lock().kill();
        let failure = match failure {
            Some(failure) => failure,
            None => Failure::Ended(self.status().await),
        };
        self.shared.end(&failure);
    }

    /// Reads until the stream ends or the session does.
    async fn read(&self, stdout: impl AsyncRead + Unpin) -> Option<Failure> {
        let mut lines = lines(stdout, self.message_bytes);
        let mut unanswering = 0;
        loop {
            let line = match lines.next().await {
                Some(Ok(line)) => line,
                Some(Err(AnyDelimiterCodecError::MaxChunkLengthExceeded)) => {
                    return Some(Failure::TooLarge(self.result_bytes));
                }
                Some(Err(AnyDelimiterCodecError::Io(_))) | None => return None,
            };
            let is_answer = match parse(&line) {
                Ok(Incoming::Answer { id, outcome }) => {
                    let request = self.shared.waiting.lock().requests.remove(&id);
                    request.is_some_and(|request| request.send(outcome).is_ok())
                }
                Ok(Incoming::Asked(reply)) => {
                    let _ = self.queue.try_send(reply);
                    false
                }
                Ok(Incoming::ToolsChanged) => {
                    self.shared.tools_changed.store(true, Ordering::Relaxed);
                    false
                }
                Ok(Incoming::Notice) | Err(_) => false,
            };
            if is_answer {
                unanswering = 0;
            } else if let Err(failure) = unasked(&mut unanswering) {
                return Some(failure);
            }
        }
    }

    /// The exit status, if it is known within a short time.
    async fn status(&self) -> String {
        let until = tokio::time::Instant::now() + EXIT_STATUS_TIMEOUT;
        loop {
            if let Ok(Some(status)) = self.group.lock().0.try_wait() {
                return format!(" ({status})");
            }
            if tokio::time::Instant::now() >= until {
                return String::new();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Counts a message that answers nothing.
///
/// # Errors
/// There were too many one after another.
pub(super) fn unasked(count: &mut usize) -> Result<(), Failure> {
    *count += 1;
    if *count > MAX_UNASKED {
        let reason = format!("it sent {MAX_UNASKED} messages that answer nothing");
        return Err(Failure::Protocol(reason));
    }
    Ok(())
}

/// The lines of a stream without their line breaks; one of more than `most` bytes is an error.
fn lines<S: AsyncRead>(source: S, most: usize) -> FramedRead<S, AnyDelimiterCodec> {
    let codec = AnyDelimiterCodec::new_with_max_length(b"\n".into(), Vec::new(), most);
    FramedRead::new(source, codec)
}

async fn write(mut stdin: ChildStdin, mut messages: mpsc::Receiver<Bytes>) {
    while let Some(message) = messages.recv().await {
        let mut line = message.chain(&b"\n"[..]);
        if stdin.write_all_buf(&mut line).await.is_err() || stdin.flush().await.is_err() {
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
        let source: &[u8] = b"one\n\ntwo two\nno end";
        let read: Vec<_> = lines(source, 8).map(Result::unwrap).collect().await;
        assert_eq!(read, ["one", "", "two two", "no end"]);
        let long: &[u8] = b"one\nfar too long\nend";
        let mut long = lines(long, 8);
        assert_eq!(long.next().await.unwrap().unwrap(), "one");
        let refused = long.next().await.unwrap();
        let is_too_long = |error| matches!(error, AnyDelimiterCodecError::MaxChunkLengthExceeded);
        assert!(refused.is_err_and(is_too_long));
    }
}
