//! Writes the reply of a run while it streams, and reads it in another process.

use crate::change::Change;
use crate::claims::RunLease;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::Writer;
use std::time::{Duration, Instant};
use toolhold_protocol::event::{Event, EventKind, ReplySoFar};
use uuid::Uuid;

/// Shortest time between two writes of one run.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Bytes of a reply, as JSON, from which no more of it is written: readers in other processes get the rest when it is
/// recorded. Each write has the whole text.
const MAX_PART: usize = 256 << 10;

/// Writes the reply of a run while it streams. A write is lost if the database is busy; the next one has all of it.
#[derive(Debug, Default)]
pub struct ReplyPartWriter {
    reply: ReplySoFar,
    /// When the reply was written last.
    written: Option<Instant>,
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
        if ends {
            self.written = None;
        }
        ends && std::mem::take(&mut self.has_part)
    }

    /// Takes a piece of the reply that is shown.
    pub fn show(&mut self, piece: &Event, lease: &RunLease, writer: &Writer) {
        self.reply.take(piece);
        let is_due = self
            .written
            .is_none_or(|written| written.elapsed() >= WRITE_INTERVAL);
        if !is_due {
            return;
        }
        self.written = Some(Instant::now());
        let part = serde_json::to_string(&self.reply).unwrap_or_default();
        if part.is_empty() || part.len() > MAX_PART {
            return;
        }
        self.has_part = true;
        writer.note(Change::ReplyPart {
            run: piece.run,
            part,
            lease: lease.clone(),
        });
    }
}

impl Store {
    /// The reply that the model of a run is writing, as of half a second ago at most while pieces come. `None` if none is
    /// being written.
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
