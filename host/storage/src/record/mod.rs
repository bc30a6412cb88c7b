//! Reads a run's record: its sealed events.

mod exported;
pub mod privacy;

use crate::blobs;
use crate::column::signed;
use crate::database::InTime as _;
use crate::error::{RecordError, StoreError};
use crate::redacted_lines::RedactedLine;
use crate::shared_texts::{self, StoredLine};
use crate::store::Store;
use std::path::PathBuf;
use std::sync::LazyLock;
use toolhold_protocol::context::SummaryMessage;
use toolhold_protocol::event::{Event, EventKind, Seal};
use uuid::Uuid;

/// The place of a record.
#[derive(Debug, Clone)]
pub enum Source {
    /// A run of the database.
    Run(Uuid),
    /// JSON lines, as `toolhold runs export` writes them.
    File(PathBuf),
}

/// A run's events, and whether their seals match.
#[derive(Debug, Default)]
pub struct Record {
    /// All events, in order.
    pub events: Vec<Event>,
    /// The first line that differs from what was written, from 1 on.
    pub changed: Option<usize>,
}

/// Bounds of one query's events.
#[derive(Debug, Clone, Copy)]
pub struct PageBounds {
    pub events: u64,
    /// All together. A longer event is read alone.
    pub bytes: u64,
    /// The longest that is read.
    pub longest: u64,
}

/// A page of a record whose lines are read by someone that needs them soon.
const PAGE: PageBounds = PageBounds {
    events: 512,
    bytes: 4 << 20,
    longest: u64::MAX,
};

/// Events that were read in one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordPage {
    /// In order; none: there are no more.
    Lines(Vec<RecordLine>),
    /// The length in bytes of the next event, which is more than may be read.
    TooLong(u64),
}

/// An event as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordLine {
    run: Uuid,
    seq: i64,
    text: String,
}

impl RecordLine {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// # Errors
    /// It cannot be read.
    pub fn event(&self) -> Result<Event, RecordError> {
        event(self.run, (self.seq, &self.text))
    }
}

impl Store {
    /// The events of a record.
    ///
    /// # Errors
    /// It cannot be read, or a seal does not match.
    pub async fn read(&self, source: &Source) -> Result<Vec<Event>, RecordError> {
        let record = self.record(source).await?;
        record.unchanged(source)
    }

    /// The events of a record, even if seals do not match.
    pub async fn record(&self, source: &Source) -> Result<Record, RecordError> {
        let mut record = self.without_images(source).await?;
        if let Source::Run(run) = source {
            blobs::restore(&self.pool, &self.database, *run, &mut record.events).await?;
        }
        Ok(record)
    }

    /// Reads a record like [`Store::record`]. Images have their digests and sizes alone.
    pub(crate) async fn without_images(&self, source: &Source) -> Result<Record, RecordError> {
        let mut events = Vec::new();
        let changed = self.scan(source, |event| events.push(event)).await?;
        Ok(Record { events, changed })
    }

    /// Reads a record event by event, in bounded memory. Returns the first line that differs from what was written.
    pub async fn scan(
        &self,
        source: &Source,
        mut each: impl FnMut(Event),
    ) -> Result<Option<usize>, RecordError> {
        let run = match source {
            Source::Run(run) => run,
            Source::File(path) => {
                let mut lines = exported::scan(path, each)?;
                self.check_redacted(&mut lines).await?;
                return Ok(lines.changed);
            }
        };
        let mut lines = Lines::new(source.to_string());
        lines.run = Some(*run);
        let mut next = 0;
        loop {
            let page = self.lines(*run, next).await?;
            for (seq, line) in &page {
                each(lines.event(line)?);
                next = seq + 1;
            }
            self.check_redacted(&mut lines).await?;
            if page.is_empty() {
                return Ok(lines.changed);
            }
        }
    }

    /// Holds lines from which texts were taken against the audit log.
    async fn check_redacted(&self, lines: &mut Lines) -> Result<(), StoreError> {
        let redacted = std::mem::take(&mut lines.redacted);
        let untold = self.untold(&redacted).await?;
        // Lines are counted from 1 on.
        let first = untold
            .first()
            .map(|seq| usize::try_from(*seq).unwrap_or(usize::MAX - 1) + 1);
        lines.changed = [lines.changed, first].into_iter().flatten().min();
        Ok(())
    }

    /// A page of a run's events, from number `from` on; empty if there are no more.
    pub async fn events(&self, run: Uuid, from: u64) -> Result<Vec<Event>, RecordError> {
        let page = self.lines(run, signed(from)).await?;
        let read = |(seq, line): &(i64, String)| event(run, (*seq, line));
        page.iter().map(read).collect()
    }

    /// A page of a run's events within `bounds`, from number `from` on.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn page(
        &self,
        run: Uuid,
        from: u64,
        bounds: PageBounds,
    ) -> Result<RecordPage, StoreError> {
        let rows = self.sized_lines(run, signed(from), bounds).await?;
        if let [(_, None, bytes), ..] = rows.as_slice() {
            return Ok(RecordPage::TooLong(
                u64::try_from(*bytes).unwrap_or_default(),
            ));
        }
        let lines = rows.into_iter().map_while(|(seq, text, _)| {
            let text = text?;
            Some(RecordLine { run, seq, text })
        });
        Ok(RecordPage::Lines(lines.collect()))
    }

    /// The event of a run with this number; `None` if there is none, or none that can be read.
    pub(crate) async fn event_at(&self, run: Uuid, seq: i64) -> Result<Option<Event>, StoreError> {
        let line: Option<StoredLine> = sqlx::query_as(shared_texts::LINE.as_str())
            .bind(run.to_string())
            .bind(seq)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        let line = line.map(|line| shared_texts::whole(run, seq, line));
        Ok(line.and_then(|line| serde_json::from_str(&line).ok()))
    }

    /// A page of a run's events as JSON lines with their numbers, from `from` on; empty if there are no more.
    pub async fn sealed(&self, run: Uuid, from: i64) -> Result<Vec<(i64, String)>, StoreError> {
        Ok(self.lines(run, from).await?)
    }

    /// The first event of a run, and the last so far, which may be the same. Images have no bytes:
    /// [`restore_images`](Self::restore_images) reads those.
    ///
    /// # Errors
    /// They cannot be read, or there are none.
    pub async fn ends(&self, run: Uuid) -> Result<(Event, Event), RecordError> {
        let rows: Vec<(i64, String, Option<String>, Option<String>)> =
            sqlx::query_as(ENDS.as_str())
                .bind(run.to_string())
                .fetch_all(&self.pool)
                .in_time(&self.database)
                .await?;
        let whole = |(seq, line, digest, text)| {
            let line = shared_texts::whole(run, seq, (line, digest, text));
            (seq, line)
        };
        let lines: Vec<(i64, String)> = rows.into_iter().map(whole).collect();
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
            return Err(RecordError::Unknown {
                name: run.to_string(),
            });
        };
        Ok((
            event(run, (first.0, &first.1))?,
            event(run, (last.0, &last.1))?,
        ))
    }

    /// The summary of its conversation that a run made last, with the number of messages of its context that the summary
    /// stands for; `None` if it made none.
    ///
    /// # Errors
    /// The record cannot be read.
    pub async fn summed_up(
        &self,
        run: Uuid,
    ) -> Result<Option<(usize, SummaryMessage)>, RecordError> {
        let mut before = i64::MAX;
        // Another event may quote one.
        loop {
            let row: Option<(i64, String, Option<String>, Option<String>)> =
                sqlx::query_as(SUMMARIES.as_str())
                    .bind(run.to_string())
                    .bind(SUMMARY_PATTERN)
                    .bind(SUB_PATTERN)
                    .bind(before)
                    .fetch_optional(&self.pool)
                    .in_time(&self.database)
                    .await?;
            let Some((seq, line, digest, text)) = row else {
                return Ok(None);
            };
            let line = shared_texts::whole(run, seq, (line, digest, text));
            let kind = event(run, (seq, &line))?.kind;
            if let EventKind::ConversationSummarized { count, summary, .. } = kind {
                return Ok(Some((count, *summary)));
            }
            before = seq;
        }
    }

    /// Whether a run has an event with number `from` or a later one.
    pub async fn has_events(&self, run: Uuid, from: u64) -> Result<bool, StoreError> {
        let some: Option<i64> =
            sqlx::query_scalar("SELECT seq FROM events WHERE run = $1 AND seq >= $2 LIMIT 1")
                .bind(run.to_string())
                .bind(signed(from))
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        Ok(some.is_some())
    }

    async fn lines(&self, run: Uuid, from: i64) -> Result<Vec<(i64, String)>, sqlx::Error> {
        let rows = self.sized_lines(run, from, PAGE).await?;
        let lines = rows.into_iter().map(|(seq, line, _)| Some((seq, line?)));
        Ok(lines.flatten().collect())
    }

    /// Numbers, texts unless they are too long, and lengths in bytes.
    async fn sized_lines(
        &self,
        run: Uuid,
        from: i64,
        bounds: PageBounds,
    ) -> Result<Vec<(i64, Option<String>, i64)>, sqlx::Error> {
        let rows: Vec<SizedRow> = sqlx::query_as(LINES.as_str())
            .bind(run.to_string())
            .bind(from)
            .bind(signed(bounds.events))
            .bind(signed(bounds.bytes))
            .bind(signed(bounds.longest))
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let whole = |(seq, line, bytes, digest, text): SizedRow| {
            let line = line.map(|line| shared_texts::whole(run, seq, (line, digest, text)));
            (seq, line, bytes)
        };
        Ok(rows.into_iter().map(whole).collect())
    }
}

/// Number, line unless it is too long, length in bytes of the whole line, digest and text of what it names.
type SizedRow = (i64, Option<String>, i64, Option<String>, Option<String>);

/// At most $3 lines of the run $1 from $2 on, of at most $4 bytes together, or one; of lines with more than $5 bytes the
/// length alone. The inner query reads only lengths, which the databases know without reading the lines. A line has the
/// length that it has as it was sealed.
static LINES: LazyLock<String> = LazyLock::new(|| {
    let (bytes, events) = (shared_texts::BYTES, shared_texts::EVENTS);
    format!(
        "SELECT events.seq, CASE WHEN {bytes} <= $5 THEN line END AS line, CAST({bytes} AS BIGINT) AS bytes, \
         digest, CASE WHEN {bytes} <= $5 THEN content END AS content FROM {events} \
         WHERE events.run = $1 AND events.seq >= $2 AND events.seq <= (SELECT MAX(seq) FROM \
         (SELECT seq, bytes, CAST(SUM(bytes) OVER (ORDER BY seq) AS BIGINT) - bytes AS sooner FROM \
         (SELECT events.seq AS seq, {bytes} AS bytes FROM events LEFT JOIN event_texts \
         ON event_texts.run = events.run AND event_texts.seq = events.seq \
         WHERE events.run = $1 AND events.seq >= $2 ORDER BY events.seq LIMIT $3) AS sized) \
         AS summed WHERE sooner = 0 OR sooner + bytes <= $4) ORDER BY events.seq"
    )
});

/// The newest event of a run before the event $4 that may tell of a summary. Those of a sub-agent, which are many, are not
/// of this run's context.
static SUMMARIES: LazyLock<String> = LazyLock::new(|| {
    let events = shared_texts::EVENTS;
    format!(
        "SELECT events.seq, line, digest, content FROM {events} WHERE events.run = $1 AND line LIKE $2 \
         AND line NOT LIKE $3 AND events.seq < $4 ORDER BY events.seq DESC LIMIT 1"
    )
});
const SUMMARY_PATTERN: &str = "%\"event\":\"conversation_summarized\"%";
const SUB_PATTERN: &str = "%\"event\":\"sub\"%";

/// The first line of the run $1, and the last.
static ENDS: LazyLock<String> = LazyLock::new(|| {
    let events = shared_texts::EVENTS;
    format!(
        "SELECT events.seq, line, digest, content FROM {events} WHERE events.run = $1 AND events.seq IN \
         (SELECT MIN(seq) FROM events WHERE run = $1 UNION SELECT MAX(seq) FROM events WHERE run = $1) \
         ORDER BY events.seq"
    )
});

fn event(run: Uuid, (seq, line): (i64, &str)) -> Result<Event, RecordError> {
    serde_json::from_str(line).map_err(|source| RecordError::Line {
        what: Source::Run(run).to_string(),
        line: seq as usize + 1,
        source,
    })
}

/// Decodes a record's lines in order, and checks their seals.
#[derive(Debug)]
struct Lines {
    what: String,
    /// Number of the last line that was checked, from 1 on. Pieces of replies in a file are not counted.
    number: usize,
    seal: Seal,
    changed: Option<usize>,
    /// The run that all lines are of.
    run: Option<Uuid>,
    /// Lines from which texts were taken, and that were not held against the audit log yet.
    redacted: Vec<RedactedLine>,
}

impl Lines {
    fn new(what: String) -> Self {
        Self {
            what,
            number: 0,
            seal: Seal::default(),
            changed: None,
            run: None,
            redacted: Vec::new(),
        }
    }

    fn event(&mut self, line: &str) -> Result<Event, RecordError> {
        let event = self.decode(line)?;
        self.check(&event, line);
        Ok(event)
    }

    /// Decodes the next line.
    fn decode(&self, line: &str) -> Result<Event, RecordError> {
        serde_json::from_str(line).map_err(|source| RecordError::Line {
            what: self.what.clone(),
            line: self.number + 1,
            source,
        })
    }

    /// Checks the event of the next line.
    fn check(&mut self, event: &Event, line: &str) {
        self.number += 1;
        let run = *self.run.get_or_insert(event.run);
        let is_genuine = match RedactedLine::of(event, line) {
            // Its seal is of what it was. So that no line of another place stands here, its place is compared.
            Some(redacted) => {
                let number = event.seq.saturating_add(1);
                let is_here = event.run == run && u64::try_from(self.number) == Ok(number);
                self.redacted.push(redacted);
                is_here
            }
            None => is_sealed(event, line, &self.seal),
        };
        if !is_genuine {
            self.changed.get_or_insert(self.number);
        }
        self.seal = event.seal.clone();
    }
}

/// Whether an event is what was written after the event with the seal `before`.
pub(crate) fn is_sealed(event: &Event, line: &str, before: &Seal) -> bool {
    Seal::of(line, before).as_ref() == Some(&event.seal)
}

impl Record {
    /// The events.
    ///
    /// # Errors
    /// A seal does not match.
    pub fn unchanged(self, source: &Source) -> Result<Vec<Event>, RecordError> {
        match self.changed {
            None => Ok(self.events),
            Some(line) => Err(RecordError::Changed {
                what: source.to_string(),
                line,
            }),
        }
    }
}

impl Source {
    /// The run's id.
    ///
    /// # Errors
    /// The source is a file.
    pub fn run(&self) -> Result<Uuid, RecordError> {
        match self {
            Self::Run(run) => Ok(*run),
            Self::File(path) => Err(RecordError::NotKept {
                what: path.display().to_string(),
            }),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(run) => write!(f, "run {run}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}
