//! Answers of the API and what of them is not sent: it is counted by key (`serve.unsent_bytes`), so that clients that
//! ask and read nothing have the server keep a bounded amount.
//!
//! - What is made of a run's record ([`Counted`]) is reserved before it is made, while the record is read.
//! - Streams of events reserve what they read of a record ([`Watcher`](crate::runs::Watcher)).
//! - All other answers pass [`count`], which refuses them where there is no room for a while.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use crate::http::party::{KeyName, party};
use crate::runs::weight;
use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Extensions, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::time::Duration;
use toolhold_admission::MemoryFull;
use toolhold_connections::{Connection, UnsentBytes};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::{Event, EventKind, ShownText};
use toolhold_storage::{PageBounds, RecordLine, RecordPage, Store};
use uuid::Uuid;

/// How long an answer waits for its client to read others.
pub const ROOM_TIME: Duration = Duration::from_secs(20);
/// Smaller answers are always given, among them errors. Their number is bounded by connections.
const SMALL_BYTES: u64 = 16 << 10;
/// Bytes that are reserved before the size of an answer is known.
const FIRST_BYTES: u64 = 256 << 10;
/// Events and bytes of a record that are read at a time.
const PAGE_EVENTS: u64 = 512;
const PAGE_BYTES: u64 = 256 << 10;
/// How long an answer that is there waits for others to be read, if it is not larger than this.
const GRACE: Duration = Duration::from_secs(5);
const WAITING_BYTES: u64 = 256 << 10;

/// A value made of a run's record, and the memory that it and its text take.
#[derive(Debug)]
pub struct Counted<T> {
    value: T,
    unsent: UnsentBytes,
}

/// The mark of a response whose body counts already.
#[derive(Debug, Clone, Copy)]
struct IsCounted;

impl<T> Counted<T> {
    /// A value that was made within this memory.
    pub fn new(value: T, unsent: UnsentBytes) -> Self {
        Self { value, unsent }
    }

    /// The value, and its memory: it counts as long as the second is kept.
    pub fn into_parts(self) -> (T, UnsentBytes) {
        (self.value, self.unsent)
    }

    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Counted<U> {
        Counted {
            value: of(self.value),
            unsent: self.unsent,
        }
    }

    /// # Errors
    /// Those of `of`.
    pub fn try_map<U, E>(self, of: impl FnOnce(T) -> Result<U, E>) -> Result<Counted<U>, E> {
        Ok(Counted {
            value: of(self.value)?,
            unsent: self.unsent,
        })
    }
}

impl<T: Serialize> IntoResponse for Counted<T> {
    /// The value as JSON, which counts until it was sent.
    fn into_response(self) -> Response {
        let Self { value, mut unsent } = self;
        let text = match serde_json::to_vec(&value) {
            Ok(text) => text,
            Err(error) => return ApiError::internal(&error).into_response(),
        };
        drop(value);
        // It was counted with more than it has. Where that is not so, it is there, and counted as far as there is room.
        let _ = unsent.grow_to(text.len() as u64);
        // Without the room that a text that grows has at its end.
        let mut response = Response::new(unsent.body(text.into_boxed_slice().into()));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response.extensions_mut().insert(IsCounted);
        response
    }
}

impl Client {
    /// Memory for what is made of a text of this size: values of it, and an answer with it.
    ///
    /// # Errors
    /// The client does not read the answers that it has.
    pub async fn room(&self, text_bytes: u64) -> Result<UnsentBytes, ApiError> {
        let bytes = 3 * text_bytes;
        let room = self.unsent.wait_at_most(ROOM_TIME, bytes).await;
        self.right.check()?;
        room.map_err(|full| no_room(Some(full), None))
    }
}

/// A value that is made of the events of a run.
pub trait FromRecord: Sized + Send {
    /// The value before the first event, and how many bytes it takes.
    fn begin(
        store: &Store,
        run: Uuid,
    ) -> impl Future<Output = Result<(Self, u64), ApiError>> + Send;

    /// Takes the run's next event. Before a reply come its pieces.
    fn take(&mut self, event: &Event);
}

/// The subject of an answer, which the error names where there is no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathering {
    /// The outcome of a run that this request began: it is not to be sent again.
    Outcome,
    /// The record of a run: it may be asked for again.
    Record,
}

impl App {
    /// A value made of the recorded events of a run.
    ///
    /// # Errors
    /// The record cannot be read, or the client does not read the answers that it has.
    pub async fn gather<T: FromRecord>(
        &self,
        client: &Client,
        run: Uuid,
        what: Gathering,
    ) -> Result<Counted<T>, ApiError> {
        let mut bytes = FIRST_BYTES;
        loop {
            let unsent = client.unsent.wait_at_most(ROOM_TIME, bytes).await;
            client.right.check()?;
            let over = (what == Gathering::Outcome).then_some(run);
            let unsent = unsent.map_err(|full| no_room(Some(full), over))?;
            let mut reader = RecordReader {
                store: self.dispatcher.store(),
                run,
                next: 0,
                needed: FIRST_BYTES,
                unsent,
            };
            if let Some(value) = reader.read().await? {
                let unsent = reader.unsent;
                return Ok(Counted { value, unsent });
            }
            // Again, with all its memory: who waits for more keeps nothing meanwhile.
            bytes = reader.needed + reader.needed / 4;
        }
    }
}

/// Reads a record within the memory that is counted for it.
struct RecordReader<'a> {
    store: &'a Store,
    run: Uuid,
    next: u64,
    /// Bytes of what was made of it.
    needed: u64,
    unsent: UnsentBytes,
}

impl RecordReader<'_> {
    /// The value after all events. `None` if there is no room for so much now.
    async fn read<T: FromRecord>(&mut self) -> Result<Option<T>, ApiError> {
        let (mut value, bytes) = T::begin(self.store, self.run).await?;
        let mut shown = ShownText::default();
        if !self.keeps(bytes) {
            return Ok(None);
        }
        loop {
            let bounds = PageBounds {
                events: PAGE_EVENTS,
                bytes: PAGE_BYTES,
                longest: self.unsent.bytes(),
            };
            let lines = match self.store.page(self.run, self.next, bounds).await? {
                RecordPage::Lines(lines) if lines.is_empty() => return Ok(Some(value)),
                RecordPage::Lines(lines) => lines,
                RecordPage::TooLong(bytes) => {
                    let with_it = self.needed + bytes;
                    if self.unsent.grow_to(with_it).is_err() {
                        self.needed = with_it;
                        return Ok(None);
                    }
                    continue;
                }
            };
            let mut is_over = false;
            for line in &lines {
                let event = line.event()?;
                for event in shown.before(&event).iter().chain([&event]) {
                    if !self.keeps(kept_of(&event.kind, line)) {
                        return Ok(None);
                    }
                    value.take(event);
                }
                self.next = event.seq + 1;
                is_over = matches!(event.kind, EventKind::Done { .. });
            }
            // Nothing comes after the end of the run, so that is not asked for.
            if is_over {
                return Ok(Some(value));
            }
        }
    }

    /// Whether there is room for so much more.
    fn keeps(&mut self, bytes: u64) -> bool {
        self.needed += bytes;
        self.needed <= self.unsent.bytes() || self.unsent.grow_to(self.needed).is_ok()
    }
}

/// Bytes that an answer keeps of an event at most.
fn kept_of(kind: &EventKind, line: &RecordLine) -> u64 {
    match kind {
        EventKind::Run { .. }
        | EventKind::Notice { .. }
        | EventKind::Resumed { .. }
        | EventKind::Routing(_)
        | EventKind::Summarized { .. }
        | EventKind::Reply { .. }
        | EventKind::Shield(_)
        | EventKind::ConversationSummarized { .. }
        | EventKind::Retrieved { .. }
        | EventKind::Cited { .. }
        | EventKind::ToolStart { .. }
        | EventKind::Plan { .. }
        | EventKind::ToolResult { .. }
        | EventKind::Done { .. } => weight(line.text()),
        // Of a response that was streamed: in an item, and in the text that was said.
        EventKind::Delta {
            delta: Delta::Content(text),
            ..
        } => 3 * text.len() as u64,
        _ => 0,
    }
}

/// `over`: the run that this request began, and that is over.
pub fn no_room(full: Option<MemoryFull>, over: Option<Uuid>) -> ApiError {
    let rule = format!(
        "all keys may leave {} bytes unread (serve.unsent_bytes), and one key seven eighths of them",
        full.map_or(0, |full| full.ceiling)
    );
    match over {
        None => ApiError::unavailable(format!(
            "the answer is not given, because this key has not read others that it asked for: {rule}; read them, or end \
             their connections, and ask again"
        )),
        Some(run) => ApiError::unavailable(format!(
            "run {run} is over, and its answer is not given, because this key has not read others: {rule}; read them, \
             and ask for GET /v1/runs/{run}"
        ))
        .of_a_run(),
    }
}

/// Counts the response to a request until it was sent.
pub async fn count(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // Of the operator's probes, which bound themselves.
    let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics");
    let mut known = Extensions::new();
    let key = request.extensions_mut().get_or_insert_default::<KeyName>();
    known.insert(key.clone());
    if let Some(connection) = request.extensions().get::<Connection>() {
        known.insert(connection.clone());
    }
    let response = next.run(request).await;
    let (mut parts, body) = response.into_parts();
    let bytes = body.size_hint().exact().unwrap_or(0);
    if is_probe || bytes <= SMALL_BYTES || parts.extensions.remove::<IsCounted>().is_some() {
        return Response::from_parts(parts, body);
    }
    let share = app.unsent.of(party(&known));
    // Large ones do not wait: they are there already.
    let grace = if bytes <= WAITING_BYTES {
        GRACE
    } else {
        Duration::ZERO
    };
    match share.wait_at_most(grace, bytes).await {
        Ok(unsent) => Response::from_parts(parts, unsent.around(body)),
        Err(full) => {
            let why = format!(
                "an answer of {bytes} bytes is not given, because this key has not read others: all keys may leave {} \
                 bytes unread (serve.unsent_bytes)",
                full.ceiling
            );
            let refused = if method.is_safe() {
                ApiError::unavailable(format!("{why}; read them, and ask again"))
            } else if parts.status.is_success() {
                ApiError::unavailable(format!("the request was worked on, and {why}")).of_a_run()
            } else {
                ApiError::unavailable(format!("the request was refused, and {why}"))
            };
            refused.into_response()
        }
    }
}
