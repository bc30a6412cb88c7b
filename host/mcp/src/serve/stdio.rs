//! One client over standard input and output, one message a line.
//!
//! Two threads read and write: the runtime's own standard streams take a thread pool's turn for every read,
//! and a client that does not read must not block others.

use super::client_sender::ClientSender;
use super::in_flight::InFlightRequests;
use super::revision::{self, HERE, not_initialized};
use super::service::Service;
use super::session::ClientSession;
use super::unread::{Outgoing, RequestMemory};
use super::work::{Batch, RequestOutcome, RequestTask};
use crate::rpc::{
    self, INTERNAL_ERROR, INVALID_REQUEST, Id, InvalidMessage, Message, RpcError, RpcRequest,
    Transmission,
};
use bytes::Bytes;
use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use toolhold_json::bounded;
use uuid::Uuid;

/// Messages that the client has not read yet. Beyond this, notifications are dropped and replies wait.
const MAX_UNREAD_MESSAGES: usize = 256;
/// Most requests of one client without a reply.
const MAX_OPEN_REQUESTS: usize = 256;
/// Bytes of one write, and of one read.
const WRITE_BUFFER_BYTES: usize = 64 << 10;
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Time for calls to finish after the end of the input: the client may still read their results.
const END_OF_INPUT_GRACE: Duration = Duration::from_secs(1);
/// Time for the reader to take written output.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The client of the process.
#[derive(Debug)]
struct StdioClient {
    service: Arc<Service>,
    sender: ClientSender,
    in_flight: Arc<InFlightRequests>,
    /// Permits of requests without a reply, or with an unread one.
    unanswered: Arc<Semaphore>,
    session: OnceLock<Arc<ClientSession>>,
    /// Sends change notifications to the session.
    teller: OnceLock<AbortHandle>,
    /// Session whose scratch files modules see.
    id: Arc<str>,
    runtime: Handle,
}

/// Serves until the input ends or the output is closed.
pub async fn serve(service: Arc<Service>) {
    let most = service.settings().message_bytes;
    let (client_sender, written) = ClientSender::new(MAX_UNREAD_MESSAGES, &service.answers);
    let (written_all, mut unread) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = write(written, &mut io::stdout());
        drop(written_all);
    });
    let client = Arc::new(StdioClient {
        service,
        sender: client_sender,
        in_flight: Arc::default(),
        unanswered: Arc::new(Semaphore::new(MAX_OPEN_REQUESTS)),
        session: OnceLock::new(),
        teller: OnceLock::new(),
        id: Uuid::now_v7().to_string().into(),
        runtime: Handle::current(),
    });
    // Also when dropped because the process stops: cancelled calls are recorded.
    let served = client.in_flight.until_dropped();
    let (said_all, mut ended) = oneshot::channel::<()>();
    let reader = client.clone();
    std::thread::spawn(move || {
        read(
            BufReader::with_capacity(READ_BUFFER_BYTES, io::stdin()),
            most,
            |line| reader.receive(line),
        );
        drop(reader);
        drop(said_all);
    });
    tokio::select! {
        _ = &mut ended => {
            let _ = timeout(END_OF_INPUT_GRACE, client.in_flight.empty()).await;
        }
        _ = &mut unread => return,
    }
    drop(served);
    if let Some(teller) = client.teller.get() {
        teller.abort();
    }
    drop(client);
    let _ = timeout(DRAIN_TIME, unread).await;
}

/// A line, or one that was too long.
enum InputLine<'a> {
    Whole(&'a [u8]),
    TooLong(usize),
}

impl StdioClient {
    /// Handles one line. Returns whether to read on.
    fn receive(self: &Arc<Self>, line: InputLine<'_>) -> bool {
        let reply = match line {
            InputLine::Whole(line) if line.trim_ascii().is_empty() => return true,
            InputLine::Whole(line) => self.message(line),
            InputLine::TooLong(most) => {
                let reason =
                    format!("a message has at most {most} bytes (mcp_server.message_bytes)");
                let error = Err(RpcError::new(INVALID_REQUEST, reason));
                Some(rpc::reply(None, &error).into())
            }
        };
        reply.is_none_or(|reply| self.sender.send_blocking(reply).is_ok())
    }

    /// Handles a line. Returns replies that are known at once.
    fn message(self: &Arc<Self>, line: &[u8]) -> Option<Outgoing> {
        let takes = |tool: &str, bytes| self.service.takes(tool, bytes);
        let weight = bounded::weigh(line);
        let memory = match self.service.answers.reserve(weight) {
            Ok(memory) => memory,
            Err(error) => return Some(rpc::reply(rpc::id_of(line).as_ref(), &Err(error)).into()),
        };
        match rpc::parse_weighed(line, weight, &takes) {
            Ok(Transmission::One(message)) => self.one(message, memory).map(Outgoing::from),
            Ok(Transmission::Batch(messages)) => self.batch(messages, &memory),
            Err(malformed) => {
                self.note_refused(&malformed);
                Some(malformed.reply().into())
            }
        }
    }

    /// Blocks this thread, which is none of the runtime's: the row is written before the reply.
    fn note_refused(&self, message: &InvalidMessage) {
        let noted = self.service.note_refused(message, HERE, "", &self.id);
        self.runtime.block_on(noted);
    }

    /// Handles a message. Returns replies that are known at once.
    fn one(self: &Arc<Self>, message: Message, memory: RequestMemory) -> Option<Bytes> {
        match message {
            Message::Request(request) => self.request(request, memory),
            Message::Notification { method, params } => {
                self.notified(&method, params);
                None
            }
            Message::Answer { id, outcome } => {
                self.answered(&id, outcome.ok());
                None
            }
        }
    }

    /// Handles a batch, whose replies are sent together.
    fn batch(
        self: &Arc<Self>,
        messages: Vec<Result<Message, InvalidMessage>>,
        memory: &RequestMemory,
    ) -> Option<Outgoing> {
        let session = self.session.get();
        if let Err(error) = Batch::may_come(session.map(Arc::as_ref)) {
            return Some(rpc::reply(None, &Err(error)).into());
        }
        let mut batch = Batch::default();
        let mut unanswered = Vec::new();
        for message in messages {
            match message {
                Ok(Message::Request(request)) => {
                    let id = request.id.clone();
                    let work = batch.may_hold(&request).and_then(|()| {
                        let (work, permit) = self.begun(request, memory.clone())?;
                        unanswered.push(permit);
                        Ok(RequestTask::spawn(&self.runtime, work))
                    });
                    batch.begun(id, work);
                }
                Ok(Message::Notification { method, params }) => self.notified(&method, params),
                Ok(Message::Answer { id, outcome }) => self.answered(&id, outcome.ok()),
                Err(malformed) => {
                    self.note_refused(&malformed);
                    batch.refused(malformed);
                }
            }
        }
        if !batch.is_worked_on() {
            let replies = batch.replies(&self.service.answers).now_or_never();
            return replies.flatten();
        }
        let (client_sender, answers) = (self.sender.clone(), self.service.answers.clone());
        self.runtime.spawn(async move {
            if let Some(replies) = batch.replies(&answers).await {
                let _ = client_sender.reply(replies).await;
            }
            drop(unanswered);
        });
        None
    }

    /// Begins the work on a request, or replies at once.
    fn request(self: &Arc<Self>, request: RpcRequest, memory: RequestMemory) -> Option<Bytes> {
        let id = request.id.clone();
        if request.method == "initialize" {
            return Some(rpc::reply(Some(&id), &self.initialize(&request)));
        }
        let (work, unanswered) = match self.begun(request, memory) {
            Ok(begun) => begun,
            Err(error) => return Some(rpc::reply(Some(&id), &Err(error))),
        };
        let (client_sender, answers) = (self.sender.clone(), self.service.answers.clone());
        self.runtime.spawn(async move {
            // The request ends before its reply is sent, because the client may use the id again after the
            // reply.
            if let Some(outcome) = work.await {
                let reply = answers.reply(&id, &outcome);
                drop(outcome);
                let _ = client_sender.reply(reply).await;
            }
            drop(unanswered);
        });
        None
    }

    /// The work on a request, and its permit.
    fn begun(
        self: &Arc<Self>,
        request: RpcRequest,
        memory: RequestMemory,
    ) -> Result<
        (
            impl Future<Output = RequestOutcome> + use<>,
            OwnedSemaphorePermit,
        ),
        RpcError,
    > {
        let (mut metadata, session) = if revision::requested_version(&request).is_some() {
            (revision::modern(&request, self.id.clone())?, None)
        } else {
            let session = self.session.get().ok_or_else(not_initialized)?;
            (session.metadata(&request.params), Some(session.clone()))
        };
        let unanswered = self.unanswered.clone().try_acquire_owned();
        let unanswered = unanswered.map_err(|_| {
            let reason =
                format!("{MAX_OPEN_REQUESTS} requests are not answered yet; read some answers");
            RpcError::new(INTERNAL_ERROR, reason)
        })?;
        let flight = self.in_flight.begin(&request.id)?;
        metadata.begin = Some(flight.end());
        let client = self.clone();
        let work = async move {
            let answer = client
                .service
                .answer(request, metadata, session.as_ref(), &client.sender);
            let outcome = flight.run(answer).await;
            drop(memory);
            outcome
        };
        Ok((work, unanswered))
    }

    fn answered(&self, id: &Id, result: Option<Value>) {
        if let Some(session) = self.session.get() {
            session.answer(id, result);
        }
    }

    fn initialize(self: &Arc<Self>, request: &RpcRequest) -> Result<Value, RpcError> {
        let session = ClientSession::new(self.id.clone(), request, self.in_flight.clone())?;
        let session = Arc::new(session);
        let welcome = session.welcome();
        if self.session.set(session).is_err() {
            let reason = "this client has begun already; a process serves one session";
            return Err(RpcError::new(INVALID_REQUEST, reason));
        }
        Ok(welcome)
    }

    fn notified(self: &Arc<Self>, method: &str, mut params: Map<String, Value>) {
        match method {
            "notifications/cancelled" => {
                let id = params.remove("requestId").and_then(rpc::read_id);
                if let Some(id) = id {
                    self.in_flight.cancel(&id);
                }
            }
            "notifications/initialized" if self.session.get().is_some() => {
                let (mut changes, client_sender) = (self.service.changes(), self.sender.clone());
                let tell = async move {
                    while changes.changed().await.is_ok() {
                        let changed =
                            rpc::notification("notifications/tools/list_changed", json!({}));
                        if client_sender.send(changed).await.is_err() {
                            return;
                        }
                    }
                };
                self.teller
                    .get_or_init(|| self.runtime.spawn(tell).abort_handle());
            }
            _ => {}
        }
    }
}

/// Passes every line to `take` until the input ends or `take` returns `false`.
fn read(mut input: impl BufRead, most: usize, mut take: impl FnMut(InputLine<'_>) -> bool) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
        let read = (&mut input).take(limit).read_until(b'\n', &mut line);
        match read {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let wants_more = if line.last() == Some(&b'\n') || line.len() <= most {
            take(InputLine::Whole(&line))
        } else {
            if skip_line(&mut input).is_err() {
                return;
            }
            take(InputLine::TooLong(most))
        };
        if !wants_more {
            return;
        }
    }
}

/// Skips the rest of a line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let chunk = input.fill_buf()?;
        if chunk.is_empty() {
            return Ok(());
        }
        match chunk.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                input.consume(end + 1);
                return Ok(());
            }
            None => {
                let whole = chunk.len();
                input.consume(whole);
            }
        }
    }
}

/// Writes each message as a line; queued messages share one write.
fn write(mut messages: mpsc::Receiver<Outgoing>, output: &mut impl Write) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(WRITE_BUFFER_BYTES);
    while let Some(first) = messages.blocking_recv() {
        let mut next = Some(first);
        while let Some(message) = next {
            buffer.extend_from_slice(&message);
            buffer.push(b'\n');
            next = if buffer.len() < WRITE_BUFFER_BYTES {
                messages.try_recv().ok()
            } else {
                None
            };
        }
        output.write_all(&buffer)?;
        output.flush()?;
        buffer.clear();
        buffer.shrink_to(WRITE_BUFFER_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::unread::UnreadAnswers;
    use toolhold_admission::MemoryCeiling;

    fn lines(input: &str, most: usize) -> Vec<String> {
        let mut lines = Vec::new();
        read(
            BufReader::with_capacity(3, input.as_bytes()),
            most,
            |line| {
                lines.push(match line {
                    InputLine::Whole(line) => String::from_utf8_lossy(line).trim_end().to_owned(),
                    InputLine::TooLong(most) => format!("more than {most}"),
                });
                true
            },
        );
        lines
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        assert_eq!(lines("ab\ncd", 10), ["ab", "cd"]);
        assert_eq!(lines("abcd\nabcde\nx\n", 4), ["abcd", "more than 4", "x"]);
        assert_eq!(lines("abcdefgh", 4), ["more than 4"]);
        assert_eq!(lines("abcd", 4), ["abcd"]);
        assert!(lines("", 4).is_empty());
    }

    #[test]
    fn waiting_answers_are_written_together() {
        #[derive(Default)]
        struct Writes(Vec<Vec<u8>>);
        impl Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let answers = UnreadAnswers::new(&MemoryCeiling::new(1 << 20));
        let (client_sender, messages) = ClientSender::new(8, &answers);
        for message in ["a", "b", "c"] {
            client_sender.note(Bytes::from(message));
        }
        drop(client_sender);
        let mut writes = Writes::default();
        write(messages, &mut writes).unwrap();
        assert_eq!(writes.0, [b"a\nb\nc\n"]);
    }
}
