//! Events of a run as its watchers in this process hear of them.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_json::bounded;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::{Event, EventKind, ReplySoFar};

/// An event that has just been shown. A channel keeps some of them for watchers that are behind, so larger ones are
/// left in the database, from which each watcher reads them when its client has room.
#[derive(Debug, Clone)]
pub enum LiveEvent {
    Small(Arc<Event>),
    /// The event of this number.
    Recorded(u64),
    /// A piece of a reply, which is in no database. A watcher that misses it finds the text in [`SharedReply`].
    Piece(Arc<Event>),
    /// A piece of the run's own reply behind the event of this number. It is large, and [`SharedReply`] has its text.
    LargePiece(u64),
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

/// Most bytes of an event that is kept for watchers, as text and as a value. What the first event of a run has of images
/// is not counted; it is the only one that has any.
const SMALL_BYTES: u64 = 16 << 10;

impl LiveEvent {
    pub fn of(event: Event) -> Self {
        if event.kind.is_shown_only() {
            return match &event.kind {
                EventKind::Delta { delta, .. } if text_bytes(delta) > SMALL_BYTES => {
                    Self::LargePiece(event.seq)
                }
                _ => Self::Piece(Arc::new(event)),
            };
        }
        let mut text = SmallText(Vec::new());
        let is_small = serde_json::to_writer(&mut text, &event).is_ok()
            && bounded::weigh(&text.0).is_ok_and(|weight| weight <= SMALL_BYTES);
        if is_small {
            Self::Small(Arc::new(event))
        } else {
            Self::Recorded(event.seq)
        }
    }

    /// The number of the event, or of the one before a piece.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Small(event) | Self::Piece(event) => event.seq,
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

/// A text that takes no more than [`SMALL_BYTES`].
struct SmallText(Vec<u8>);

impl io::Write for SmallText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > SMALL_BYTES {
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
    use toolhold_protocol::event::Seal;
    use toolhold_protocol::reply_offset::ReplyOffset;
    use uuid::Uuid;

    fn is_small(output: Value) -> bool {
        let kind = json!({"event": "tool_result", "step": 1, "id": "c", "tool": "m.t", "output": output, "usage": {}});
        let event = Event {
            run: Uuid::nil(),
            seq: 3,
            at_ms: 0,
            kind: serde_json::from_value(kind).unwrap(),
            removed: None,
            seal: Seal::default(),
        };
        matches!(LiveEvent::of(event), LiveEvent::Small(_))
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

    #[test]
    fn large_pieces_are_left_in_the_reply() {
        let small = piece(Delta::Content("x".repeat(16 << 10)));
        assert!(matches!(LiveEvent::of(small), LiveEvent::Piece(_)));
        let large = piece(Delta::ToolCall {
            index: 0,
            id: Some("i".into()),
            name: None,
            arguments: "x".repeat(16 << 10),
        });
        let reply = SharedReply::default();
        reply.take(&large);
        assert!(matches!(LiveEvent::of(large), LiveEvent::LargePiece(3)));
        assert_eq!(reply.copy(1_000).unwrap_err(), 16 << 10);
        let copied = reply.copy(16 << 10).unwrap();
        assert_eq!(copied.text.tool_calls[0].arguments.len(), 16 << 10);
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
