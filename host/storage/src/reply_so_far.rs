//! Writes the reply of a run while it streams, and reads it in another process.

use crate::change::Change;
use crate::claims::RunLease;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::reply_parts::ReplyPart;
use crate::store::Store;
use crate::writer::Writer;
use std::sync::Weak;
use std::time::{Duration, Instant};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::{Event, EventKind, ReplySoFar};
use uuid::Uuid;

/// Shortest time between two writes of one run.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of a reply from which no more of it is written: readers in other processes get the rest when it is recorded. Each
/// write has the whole text.
const MAX_PART: usize = 256 << 10;

/// Writes the reply of a run while it streams. One write waits at a time, so a database that is out of order leaves room in
/// the writer's queue. A write may be lost; the next one has all of the text.
#[derive(Debug, Default)]
pub struct ReplyPartWriter {
    /// Without its text if that is too long.
    reply: ReplySoFar,
    /// True if the reply is too long to be written.
    is_long: bool,
    /// When the reply was written last.
    written: Option<Instant>,
    /// Gone once the part that was written last is in the database, or lost.
    queued: Weak<()>,
    /// True if the database may have a part.
    has_part: bool,
}

impl ReplyPartWriter {
    /// For a run that is resumed: the process before may have left a part.
    pub fn of_resumed() -> Self {
        Self {
            has_part: true,
            ..Self::default()
        }
    }

    /// Takes an event that is about to be recorded. Returns whether the part goes with it.
    pub fn take(&mut self, event: &Event) -> bool {
        self.reply.take(event);
        let ends = matches!(
            event.kind,
            EventKind::Reply { .. }
                | EventKind::ModelFailed { .. }
                | EventKind::Resumed { .. }
                | EventKind::Done { .. }
        );
        if ends || matches!(event.kind, EventKind::Request { .. }) {
            self.is_long = false;
        }
        ends && std::mem::take(&mut self.has_part)
    }

    /// True if the database may have a part.
    pub fn has_part(&self) -> bool {
        self.has_part
    }

    /// Notes that the part was not taken away, because the events were refused.
    pub fn keep_part(&mut self) {
        self.has_part = true;
    }

    /// Takes a piece of the reply that is shown.
    pub fn show(&mut self, piece: &Event, lease: &RunLease, writer: &Writer) {
        // Replies of sub-agents are not kept.
        if self.is_long || !matches!(piece.kind, EventKind::Delta { .. }) {
            return;
        }
        self.reply.take(piece);
        if self.reply.text.text_bytes() > MAX_PART {
            self.leave_text();
            return;
        }
        let is_due = self
            .written
            .is_none_or(|written| written.elapsed() >= WRITE_INTERVAL);
        if !is_due || self.queued.strong_count() > 0 {
            return;
        }
        self.written = Some(Instant::now());
        let part = serde_json::to_string(&self.reply).unwrap_or_default();
        if part.is_empty() || part.len() > MAX_PART {
            self.leave_text();
            return;
        }
        self.has_part = true;
        let (part, queued) = ReplyPart::new(part);
        self.queued = queued;
        writer.note(Change::ReplyPart {
            run: piece.run,
            part,
            lease: lease.clone(),
        });
    }

    /// Writes no more of this reply.
    fn leave_text(&mut self) {
        self.is_long = true;
        self.reply.text = Completion::default();
    }
}

impl Store {
    /// The reply that the model of a run is writing. `None` if none is being written. The text lacks what came within half a
    /// second of the last write, until the next piece comes or the reply is recorded.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn reply_so_far(&self, run: Uuid) -> Result<Option<ReplySoFar>, StoreError> {
        let part: Option<String> =
            sqlx::query_scalar("SELECT part FROM reply_parts WHERE run = $1")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        // One of a newer version is left out: the reply comes when it is recorded.
        Ok(part.and_then(|part| serde_json::from_str(&part).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{Database, Location};
    use serde_json::json;
    use toolhold_protocol::completion::Delta;
    use toolhold_protocol::event::Seal;
    use toolhold_protocol::reply_offset::ReplyOffset;

    fn event(kind: EventKind) -> Event {
        Event {
            run: Uuid::nil(),
            seq: 1,
            at_ms: 5,
            kind,
            removed: None,
            seal: Seal::default(),
        }
    }

    fn piece(text: &str) -> Event {
        event(EventKind::Delta {
            step: 1,
            delta: Delta::Content(text.into()),
            from: Some(ReplyOffset::default()),
        })
    }

    fn lease() -> RunLease {
        RunLease {
            holder: "h".into(),
            fence: 1,
        }
    }

    /// A store, and a connection of another process to its file.
    async fn open(folder: &tempfile::TempDir) -> (Store, Database) {
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_mins(1)).await;
        (store.unwrap(), Database::of(&location).unwrap())
    }

    #[tokio::test]
    async fn one_part_waits_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (store, database) = open(&folder).await;
        let mut other = database.native().unwrap().unwrap();
        other.begin(true).unwrap();
        let mut parts = ReplyPartWriter::default();
        parts.show(&piece("a"), &lease(), &store.writer);
        let first = parts.queued.clone();
        assert_eq!(first.strong_count(), 1);
        parts.written = None;
        parts.show(&piece("b"), &lease(), &store.writer);
        assert!(parts.queued.ptr_eq(&first));
        other.roll_back();
        store.writer.catch_up().await.unwrap();
        assert_eq!(first.strong_count(), 0);
        parts.show(&piece("c"), &lease(), &store.writer);
        assert!(!parts.queued.ptr_eq(&first));
        assert_eq!(parts.reply.text.content, "abc");
    }

    #[tokio::test]
    async fn a_long_reply_is_neither_kept_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _database) = open(&folder).await;
        let request = json!({"event": "request", "step": 2, "body": {}});
        let request = event(serde_json::from_value(request).unwrap());
        let mut parts = ReplyPartWriter::default();
        for text in [MAX_PART, MAX_PART + 1].map(|length| "x".repeat(length)) {
            for piece in [piece(&text), piece("y")] {
                parts.show(&piece, &lease(), &store.writer);
                assert_eq!(parts.reply.text, Completion::default());
                assert!(!parts.has_part());
                parts.written = None;
            }
            assert!(!parts.take(&request));
        }
        parts.show(&piece("z"), &lease(), &store.writer);
        assert!(parts.has_part());
    }

    #[test]
    fn changes_that_are_logged_have_no_text_of_a_reply() {
        let (part, _) = ReplyPart::new("a secret".into());
        let change = Change::ReplyPart {
            run: Uuid::nil(),
            part,
            lease: lease(),
        };
        let logged = format!("{change:?}");
        assert!(logged.contains("bytes: 8"), "{logged}");
        assert!(!logged.contains("secret"), "{logged}");
    }
}
