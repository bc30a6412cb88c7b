//! Events of a run as its watchers in this process hear of them.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};
use toolhold_json::bounded;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::{Event, EventKind, ReplySoFar};

/// An event that has just been shown. A channel keeps some of them for watchers that are behind, so what is larger than
/// its room is left in the database, from which each watcher reads it when its client has room.
#[derive(Debug, Clone)]
pub enum LiveEvent {
    Small(Arc<Event>),
    /// A larger one, such as the begin of a run and its Requests, with its place in the room of the run.
    Large(Arc<Event>, Arc<LivePlace>),
    /// The event of this number.
    Recorded(u64),
    /// A piece of a reply, which is in no database. A watcher that misses it finds the text in [`SharedReply`].
    Piece(Arc<Event>),
    /// A piece of the run's own reply behind the event of this number. It is large, and [`SharedReply`] has its text.
    LargePiece(u64),
}

/// Counts the watchers of a run that show pieces of replies. Pieces are not sent while there is none. Clones share the
/// count.
#[derive(Debug, Clone, Default)]
pub struct PieceReaders(Arc<AtomicUsize>);

/// The count of one watcher, until it is dropped.
#[derive(Debug)]
struct PieceReader(PieceReaders);

/// Events of a run for one watcher, from the moment on in which it was made.
#[derive(Debug)]
pub struct LiveEvents {
    events: Receiver<LiveEvent>,
    /// Absent for a watcher that shows no pieces of replies.
    pieces: Option<PieceReader>,
}

impl PieceReaders {
    /// True if a watcher shows pieces. To be asked after [`SharedReply`] took the piece: a watcher that is counted later
    /// finds it there.
    pub fn are_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for PieceReader {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LiveEvents {
    /// The events that are sent through `live` from now on, and pieces of replies among them.
    pub fn of(live: &Sender<LiveEvent>, readers: &PieceReaders) -> Self {
        readers.0.fetch_add(1, Ordering::Relaxed);
        let pieces = Some(PieceReader(readers.clone()));
        let events = live.subscribe();
        Self { events, pieces }
    }

    /// The next event.
    ///
    /// # Errors
    /// The run works no more in this process, or events were dropped because the watcher is behind.
    pub async fn recv(&mut self) -> Result<LiveEvent, RecvError> {
        self.events.recv().await
    }

    /// Needs no pieces from now on. Some may come for other watchers of the run.
    pub fn without_pieces(&mut self) {
        self.pieces = None;
    }
}

/// The reply that the model of a run is writing, for watchers that come in the middle of it or are behind.
#[derive(Debug, Clone, Default)]
pub struct SharedReply(Arc<Mutex<ReplySoFar>>);

impl SharedReply {
    /// Takes the next event of the run, before watchers hear of it.
    pub fn take(&self, event: &Event) {
        self.lock().take(event);
    }

    /// A copy of the reply, if its texts have no more than `room` bytes.
    ///
    /// # Errors
    /// They have this number of bytes.
    pub fn copy(&self, room: u64) -> Result<ReplySoFar, u64> {
        let reply = self.lock();
        let bytes = reply.text.text_bytes() as u64;
        if bytes > room {
            return Err(bytes);
        }
        Ok(reply.clone())
    }

    fn lock(&self) -> MutexGuard<'_, ReplySoFar> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most bytes of an event that is kept for watchers without a place, as text and as a value. What the first event of a run
/// has of images is not counted: it is the only one that has any. Of its tools the text counts, which is made for each
/// follower: a client may send megabytes of them. The run has their values in memory itself.
const SMALL_BYTES: u64 = 16 << 10;
/// Most bytes of an event that is kept with a place.
const LARGE_BYTES: u64 = 64 << 10;
/// Most bytes of the text of such an event. Its value takes several times as many.
const LARGE_TEXT_BYTES: usize = 32 << 10;
/// Bytes of all events of a run that are kept with a place, in its channel and by watchers whose clients are sent them.
/// Watchers that keep up with a run leave none of them there.
const ROOM_BYTES: u64 = 128 << 10;

/// The room of a run for its larger events.
#[derive(Debug, Clone, Default)]
pub struct LiveRoom(Arc<AtomicU64>);

/// The part of a [`LiveRoom`] that an event takes until it is dropped.
#[derive(Debug)]
pub struct LivePlace {
    room: LiveRoom,
    bytes: u64,
}

impl LiveRoom {
    /// Takes a place for an event of `bytes`; `None` if it is too large, or the room is full.
    fn place(&self, bytes: u64) -> Option<LivePlace> {
        if bytes > LARGE_BYTES {
            return None;
        }
        let more = |taken: u64| Some(taken + bytes).filter(|all| *all <= ROOM_BYTES);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok()?;
        Some(LivePlace {
            room: self.clone(),
            bytes,
        })
    }
}

impl Drop for LivePlace {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl LiveEvent {
    /// The event as watchers hear of it. `room` is that of its run.
    pub fn of(event: Event, room: &LiveRoom) -> Self {
        if event.kind.is_shown_only() {
            return match &event.kind {
                EventKind::Delta { delta, .. } if text_bytes(delta) > SMALL_BYTES => {
                    Self::LargePiece(event.seq)
                }
                _ => Self::Piece(Arc::new(event)),
            };
        }
        let Some(bytes) = weight(&event) else {
            return Self::Recorded(event.seq);
        };
        if bytes <= SMALL_BYTES {
            return Self::Small(Arc::new(event));
        }
        match room.place(bytes) {
            Some(place) => Self::Large(Arc::new(event), Arc::new(place)),
            None => Self::Recorded(event.seq),
        }
    }

    /// The number of the event, or of the one before a piece.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Small(event) | Self::Large(event, _) | Self::Piece(event) => event.seq,
            Self::Recorded(seq) | Self::LargePiece(seq) => *seq,
        }
    }
}

/// Bytes of the texts of a piece.
fn text_bytes(piece: &Delta) -> u64 {
    let bytes = match piece {
        Delta::Content(text) | Delta::Reasoning(text) => text.len(),
        Delta::ToolCall {
            id,
            name,
            arguments,
            ..
        } => {
            let named = [id, name].into_iter().flatten();
            named.map(String::len).sum::<usize>() + arguments.len()
        }
    };
    bytes as u64
}

/// Bytes that an event takes as text and as a value; `None` of one whose text is too long to be kept.
fn weight(event: &Event) -> Option<u64> {
    let mut kind = &event.kind;
    while let EventKind::Sub { what, .. } = kind {
        kind = what;
    }
    let mut text = BoundedText(Vec::new());
    let (written, listed) = match kind {
        EventKind::Run {
            task,
            request,
            tools,
            ..
        } => {
            let listed = tools.json().map_or(0, str::len) as u64;
            (serde_json::to_writer(&mut text, &(task, request)), listed)
        }
        _ => (serde_json::to_writer(&mut text, event), 0),
    };
    written.ok()?;
    let value = bounded::weigh(&text.0).ok()?;
    Some(value.saturating_add(listed))
}

/// A text that takes no more than [`LARGE_TEXT_BYTES`].
struct BoundedText(Vec<u8>);

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGE_TEXT_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use toolhold_protocol::bound::{Bound, BoundTools, Runner};
    use toolhold_protocol::event::{FORMAT, PROMPTS, Seal};
    use toolhold_protocol::reply_offset::ReplyOffset;
    use toolhold_protocol::settings::RunRequest;
    use toolhold_protocol::tool::Tool;
    use uuid::Uuid;

    fn result(output: Value) -> Event {
        let kind = json!({"event": "tool_result", "step": 1, "id": "c", "tool": "m.t", "output": output, "usage": {}});
        Event {
            run: Uuid::nil(),
            seq: 3,
            at_ms: 0,
            kind: serde_json::from_value(kind).unwrap(),
            removed: None,
            seal: Seal::default(),
        }
    }

    fn is_small(output: Value) -> bool {
        let live = LiveEvent::of(result(output), &LiveRoom::default());
        matches!(live, LiveEvent::Small(_))
    }

    fn piece(delta: Delta) -> Event {
        Event {
            run: Uuid::nil(),
            seq: 3,
            at_ms: 0,
            kind: EventKind::Delta {
                step: 1,
                delta,
                from: Some(ReplyOffset::default()),
            },
            removed: None,
            seal: Seal::default(),
        }
    }

    #[tokio::test]
    async fn pieces_are_sent_while_a_watcher_shows_them() {
        let (live, _) = tokio::sync::broadcast::channel(4);
        let readers = PieceReaders::default();
        let mut answers = LiveEvents::of(&live, &readers);
        let shows = LiveEvents::of(&live, &readers);
        answers.without_pieces();
        answers.without_pieces();
        assert!(readers.are_any());
        drop(shows);
        assert!(!readers.are_any());
        live.send(LiveEvent::Recorded(1)).unwrap();
        assert_eq!(answers.recv().await.unwrap().seq(), 1);
    }

    #[test]
    fn large_pieces_are_left_in_the_reply() {
        let small = piece(Delta::Content("x".repeat(16 << 10)));
        let room = LiveRoom::default();
        assert!(matches!(LiveEvent::of(small, &room), LiveEvent::Piece(_)));
        let large = piece(Delta::ToolCall {
            index: 0,
            id: Some("i".into()),
            name: None,
            arguments: "x".repeat(16 << 10),
        });
        let reply = SharedReply::default();
        reply.take(&large);
        assert!(matches!(
            LiveEvent::of(large, &room),
            LiveEvent::LargePiece(3)
        ));
        assert_eq!(reply.copy(1_000).unwrap_err(), 16 << 10);
        let copied = reply.copy(16 << 10).unwrap();
        assert_eq!(copied.text.tool_calls[0].arguments.len(), 16 << 10);
    }

    #[test]
    fn larger_events_have_a_place_each_while_the_room_of_their_run_is_not_full() {
        let room = LiveRoom::default();
        // With what its value takes besides its text, each of the first has some 30 000 bytes.
        let of = |length: usize| LiveEvent::of(result(json!("x".repeat(length))), &room);
        let kept = [of(26_000), of(26_000), of(26_000), of(26_000)];
        for event in &kept {
            assert!(matches!(event, LiveEvent::Large(..)), "{event:?}");
            assert_eq!(event.seq(), 3);
        }
        assert!(matches!(of(20_000), LiveEvent::Recorded(3)));
        // One that is small needs no place.
        assert!(matches!(of(5), LiveEvent::Small(_)));
        drop(kept);
        assert!(matches!(of(20_000), LiveEvent::Large(..)));
        assert!(matches!(of(40_000), LiveEvent::Recorded(3)));
    }

    #[test]
    fn the_tools_of_a_begin_count_with_their_text() {
        let room = LiveRoom::default();
        let begin = |description: usize| {
            let tool = Tool {
                description: "x".repeat(description),
                ..Tool::new("m.t")
            };
            let bound = Bound {
                tool: tool.into(),
                runner: Runner::Client,
            };
            let kind = EventKind::Run {
                format: FORMAT,
                prompts: PROMPTS,
                task: "t".into(),
                model: "m".into(),
                request: Box::new(RunRequest::new(Uuid::nil(), "t")),
                tools: BoundTools::from([bound]),
                host: String::new(),
            };
            let what = Box::new(kind.clone());
            let call = "c".to_owned();
            [kind, EventKind::Sub { call, what }].map(|kind| {
                let event = Event {
                    kind,
                    ..result(json!(1))
                };
                LiveEvent::of(event, &room)
            })
        };
        for event in begin(20 << 10) {
            assert!(matches!(event, LiveEvent::Large(..)), "{event:?}");
        }
        for event in begin(64 << 10) {
            assert!(matches!(event, LiveEvent::Recorded(3)), "{event:?}");
        }
    }

    #[test]
    fn large_events_are_left_in_the_database() {
        assert!(is_small(json!("x".repeat(5_000))));
        assert!(!is_small(json!("x".repeat(17_000))));
        // Its text is small, and its value is not.
        assert!(!is_small(json!(vec![1; 100])));
        assert!(is_small(json!([1, 2, 3])));
    }
}
