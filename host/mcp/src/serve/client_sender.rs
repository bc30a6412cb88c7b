//! Messages of a request before its reply: progress of the call, and log lines of the module.

use super::mask::Mask;
use super::revision::{RequestMetadata, level_name};
use super::unread::{Outgoing, UnreadAnswers};
use crate::rpc::{self, RpcError};
use bytes::Bytes;
use serde_json::{Value, json};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use toolhold_policy::{Listener, LogLevel, LogLine, Progress, visible};

/// Most log lines of a call in the queue. Further lines are dropped: the guest does not wait for a reader.
const LOG_BACKLOG: usize = 64;
/// Shortest time between two progress notifications; the last of faster ones is sent.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);
/// Most characters of a guest's progress note, and of a log line.
const MAX_NOTE_CHARS: usize = 500;
const MAX_LINE_CHARS: usize = 8_000;

/// Sends whole messages to a client.
#[derive(Debug, Clone)]
pub struct ClientSender {
    queue: mpsc::Sender<Outgoing>,
    answers: UnreadAnswers,
}

/// The receiver is closed, or there is no room for the message.
#[derive(Debug)]
pub struct ClientGone;

impl ClientSender {
    /// A sender with a queue of `messages`, which count among `answers` until they are read.
    pub fn new(messages: usize, answers: &UnreadAnswers) -> (Self, mpsc::Receiver<Outgoing>) {
        let (queue, receiver) = mpsc::channel(messages);
        let answers = answers.clone();
        (Self { queue, answers }, receiver)
    }

    /// Waits until work on a request of the client may begin.
    ///
    /// # Errors
    /// The client does not read.
    pub async fn room(&self) -> Result<(), RpcError> {
        self.answers.room().await
    }

    /// Sends a message that no request waits for; waits for room in the queue.
    pub async fn send(&self, message: Bytes) -> Result<(), ClientGone> {
        let message = self.answers.message(message).ok_or(ClientGone)?;
        self.reply(message).await
    }

    /// Sends a reply; waits for room in the queue.
    pub async fn reply(&self, reply: Outgoing) -> Result<(), ClientGone> {
        self.queue.send(reply).await.map_err(|_| ClientGone)
    }

    /// Sends a message from a blocking thread.
    pub fn send_blocking(&self, message: Outgoing) -> Result<(), ClientGone> {
        self.queue.blocking_send(message).map_err(|_| ClientGone)
    }

    /// Sends a message, or drops it if there is no room for it.
    pub fn note(&self, message: Bytes) {
        if let Some(message) = self.answers.message(message) {
            let _ = self.queue.try_send(message);
        }
    }
}

/// The receiving ends of a guest's log lines and progress.
#[derive(Debug)]
pub struct GuestNotes {
    lines: mpsc::Receiver<LogLine>,
    progress: watch::Receiver<Option<Progress>>,
}

/// The sending ends, for the guest.
#[derive(Debug)]
struct GuestLogSink {
    least: Option<LogLevel>,
    lines: mpsc::Sender<LogLine>,
    progress: watch::Sender<Option<Progress>>,
}

impl Listener for GuestLogSink {
    fn logged(&self, line: LogLine) {
        if self.least.is_some_and(|least| line.level >= least) {
            let _ = self.lines.try_send(line);
        }
    }

    fn progressed(&self, progress: Progress) {
        self.progress.send_replace(Some(progress));
    }
}

/// The log sink of a call, if its client wants log lines or progress.
pub fn guest_listener(metadata: &RequestMetadata) -> Option<(Arc<dyn Listener>, GuestNotes)> {
    if metadata.least.is_none() && metadata.progress.is_none() {
        return None;
    }
    let (lines, heard_lines) = mpsc::channel(LOG_BACKLOG);
    let (progress, heard_progress) = watch::channel(None);
    let ear = GuestLogSink {
        least: metadata.least,
        lines,
        progress,
    };
    let heard = GuestNotes {
        lines: heard_lines,
        progress: heard_progress,
    };
    Some((Arc::new(ear), heard))
}

/// Runs `call`, and forwards its log lines and progress to the client meanwhile.
pub async fn forward_notes<T>(
    call: impl Future<Output = T>,
    mut heard: GuestNotes,
    tool: &str,
    metadata: &RequestMetadata,
    mask: &Mask,
    client_sender: &ClientSender,
) -> T {
    let mut call = pin!(call);
    let mut teller = ProgressSender {
        tool,
        token: metadata.progress.as_ref(),
        mask,
        client_sender,
        last: None,
        due: Instant::now(),
    };
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut call => break outcome,
            Some(line) = heard.lines.recv() => teller.line(&line),
            () = changed(&mut heard.progress, teller.due) => teller.progress(&mut heard.progress),
        }
    };
    while let Ok(line) = heard.lines.try_recv() {
        teller.line(&line);
    }
    teller.progress(&mut heard.progress);
    outcome
}

/// Waits for progress, and until `due`. Never completes after the guest's end has been dropped.
async fn changed(progress: &mut watch::Receiver<Option<Progress>>, due: Instant) {
    if progress.changed().await.is_err() {
        return std::future::pending().await;
    }
    progress.mark_changed();
    tokio::time::sleep_until(due).await;
}

struct ProgressSender<'a> {
    tool: &'a str,
    token: Option<&'a Value>,
    mask: &'a Mask,
    client_sender: &'a ClientSender,
    /// The last progress sent: the protocol requires values to increase.
    last: Option<u64>,
    due: Instant,
}

impl ProgressSender<'_> {
    fn line(&self, line: &LogLine) {
        let params = json!({
            "level": level_name(line.level),
            "logger": self.tool,
            "data": visible(&self.mask.text(&line.message), MAX_LINE_CHARS),
        });
        self.client_sender
            .note(rpc::notification("notifications/message", params));
    }

    fn progress(&mut self, heard: &mut watch::Receiver<Option<Progress>>) {
        let Some(Progress { done, total, note }) = heard.borrow_and_update().clone() else {
            return;
        };
        let (Some(token), true) = (self.token, self.last.is_none_or(|last| done > last)) else {
            return;
        };
        let mut params = json!({"progressToken": token, "progress": done});
        if let Some(total) = total {
            params["total"] = total.into();
        }
        if !note.is_empty() {
            params["message"] = visible(&self.mask.text(&note), MAX_NOTE_CHARS).into();
        }
        self.last = Some(done);
        self.due = Instant::now() + PROGRESS_INTERVAL;
        self.client_sender
            .note(rpc::notification("notifications/progress", params));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::revision::ProtocolEra;
    use toolhold_admission::MemoryCeiling;

    fn metadata(least: Option<LogLevel>, progress: Option<Value>) -> RequestMetadata {
        RequestMetadata {
            era: ProtocolEra::Modern,
            elicits: false,
            least,
            progress,
            session: "".into(),
            source: crate::serve::revision::HERE,
            owner: "",
            client: None,
            trace: opentelemetry::Context::default(),
            begin: None,
        }
    }

    fn progress(done: u64) -> Progress {
        Progress {
            done,
            total: Some(9),
            note: "a\u{202e}b".into(),
        }
    }

    async fn told(metadata: RequestMetadata, say: impl Fn(&dyn Listener)) -> Vec<Value> {
        let (client_sender, mut told) =
            ClientSender::new(1_000, &UnreadAnswers::new(&MemoryCeiling::new(1 << 20)));
        let (ear, heard) = guest_listener(&metadata).unwrap();
        let mask = Mask::default();
        forward_notes(
            async { say(&*ear) },
            heard,
            "m.f",
            &metadata,
            &mask,
            &client_sender,
        )
        .await;
        drop(client_sender);
        let mut messages = Vec::new();
        while let Some(message) = told.recv().await {
            messages.push(serde_json::from_slice(&message).unwrap());
        }
        messages
    }

    #[tokio::test]
    async fn a_client_hears_what_it_asked_for() {
        let messages = told(metadata(Some(LogLevel::Warn), Some(json!("t"))), |ear| {
            for level in [LogLevel::Info, LogLevel::Error] {
                let message = "said".into();
                ear.logged(LogLine { level, message });
            }
            ear.progressed(progress(3));
        })
        .await;
        assert_eq!(
            messages,
            [
                json!({"jsonrpc": "2.0", "method": "notifications/message",
                    "params": {"level": "error", "logger": "m.f", "data": "said"}}),
                json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": "t", "progress": 3, "total": 9, "message": "ab"}}),
            ]
        );
    }

    #[tokio::test]
    async fn a_flood_is_cut_and_the_last_progress_is_told() {
        let messages = told(metadata(Some(LogLevel::Trace), Some(json!(1))), |ear| {
            for n in 0..10_000 {
                ear.progressed(progress(n));
                let message = n.to_string();
                ear.logged(LogLine {
                    level: LogLevel::Info,
                    message,
                });
            }
        })
        .await;
        assert_eq!(messages.len(), LOG_BACKLOG + 1);
        assert_eq!(messages[LOG_BACKLOG]["params"]["progress"], 9_999);
    }

    #[tokio::test]
    async fn progress_that_does_not_grow_is_not_told() {
        let (client_sender, mut told) =
            ClientSender::new(1_000, &UnreadAnswers::new(&MemoryCeiling::new(1 << 20)));
        let metadata = metadata(None, Some(json!(1)));
        let (ear, heard) = guest_listener(&metadata).unwrap();
        let call = async {
            for done in [2, 1, 2, 5] {
                ear.progressed(progress(done));
                tokio::time::sleep(2 * PROGRESS_INTERVAL).await;
            }
        };
        forward_notes(
            call,
            heard,
            "m.f",
            &metadata,
            &Mask::default(),
            &client_sender,
        )
        .await;
        let mut seen = Vec::new();
        while let Ok(message) = told.try_recv() {
            let message: Value = serde_json::from_slice(&message).unwrap();
            seen.push(message["params"]["progress"].clone());
        }
        assert_eq!(seen, [2, 5]);
    }

    #[test]
    fn a_client_that_asked_for_nothing_gets_nothing() {
        assert!(guest_listener(&metadata(None, None)).is_none());
    }
}
