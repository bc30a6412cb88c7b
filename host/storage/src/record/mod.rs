//! What was recorded of a run, read and checked.

use crate::storage::database::InTime as _;
use crate::storage::error::{RecordError, StoreError};
use crate::storage::sessions::signed;
use crate::storage::{Store, exported};
use std::path::PathBuf;
use toolhold_agent::Event;
use toolhold_agent::event::Seal;
use uuid::Uuid;

/// Where a record is read from.
#[derive(Debug, Clone)]
pub enum Source {
    Run(Uuid),
    /// JSON lines, as `toolhold runs export` writes them.
    File(PathBuf),
}

/// A run's events, and whether they are as they were written.
#[derive(Debug, Default)]
pub struct Record {
    pub events: Vec<Event>,
    /// The first line that is not as it was written.
    pub changed: Option<usize>,
}

/// Events that are read at once.
const PAGE: i64 = 512;
/// Of their lines. One that is longer is read alone.
const PAGE_BYTES: i64 = 4 << 20;

impl Store {
    /// The events of a record.
    ///
    /// # Errors
    /// It cannot be read, or is not as it was written.
    pub async fn read(&self, source: &Source) -> Result<Vec<Event>, RecordError> {
        let record = self.record(source).await?;
        record.unchanged(source)
    }

    /// The events of a record, whatever became of it.
    pub async fn record(&self, source: &Source) -> Result<Record, RecordError> {
        let mut events = Vec::new();
        let changed = self.scan(source, |event| events.push(event)).await?;
        Ok(Record { events, changed })
    }

    /// Reads a record event by event, and keeps none of them. Returns the first line that is not as it
    /// was written.
    pub async fn scan(
        &self,
        source: &Source,
        mut each: impl FnMut(Event),
    ) -> Result<Option<usize>, RecordError> {
        let run = match source {
            Source::Run(run) => run,
            Source::File(path) => return exported::scan(path, each),
        };
        let mut lines = Lines::new(source.to_string());
        let mut next = 0;
        loop {
            let page = self.lines(*run, next).await?;
            for (seq, line) in &page {
                each(lines.event(line)?);
                next = seq + 1;
            }
            if page.is_empty() {
                return Ok(lines.changed);
            }
        }
    }

    /// Some events of a run, from that number on; none if there are no more.
    pub async fn events(&self, run: Uuid, from: u64) -> Result<Vec<Event>, RecordError> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        let page = self.lines(run, from).await?;
        page.iter().map(|line| event(run, line)).collect()
    }

    /// Some lines of a run's record with their numbers, from that one on; none if there are no more.
    pub async fn sealed(&self, run: Uuid, from: i64) -> Result<Vec<(i64, String)>, StoreError> {
        Ok(self.lines(run, from).await?)
    }

    /// The first event of a run, and the last so far; they may be the same.
    ///
    /// # Errors
    /// They cannot be read, or there are none.
    pub async fn ends(&self, run: Uuid) -> Result<(Event, Event), RecordError> {
        let rows: Vec<(i64, String)> = sqlx::query_as(
            "SELECT seq, line FROM events WHERE run = $1 AND seq IN \
             (SELECT MIN(seq) FROM events WHERE run = $1 UNION SELECT MAX(seq) FROM events WHERE run = $1) \
             ORDER BY seq",
        )
        .bind(run.to_string())
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Err(RecordError::Unknown {
                name: run.to_string(),
            });
        };
        Ok((event(run, first)?, event(run, last)?))
    }

    /// Whether a run has an event of that number, or a later one.
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
        sqlx::query_as(LINES)
            .bind(run.to_string())
            .bind(from)
            .bind(PAGE)
            .bind(PAGE_BYTES)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await
    }
}

/// At most $3 lines of the run $1 from $2 on, and none after $4 bytes of them. A line's length is known without
/// reading it, where nothing else of it is asked for.
const LINES: &str = "SELECT seq, line FROM events WHERE run = $1 AND seq >= $2 AND seq <= (SELECT MAX(seq) FROM \
     (SELECT seq, SUM(bytes) OVER (ORDER BY seq) - bytes AS sooner FROM \
     (SELECT seq, OCTET_LENGTH(line) AS bytes FROM events WHERE run = $1 AND seq >= $2 ORDER BY seq LIMIT $3) AS sized) \
     AS summed WHERE sooner < $4) ORDER BY seq";

fn event(run: Uuid, (seq, line): &(i64, String)) -> Result<Event, RecordError> {
    serde_json::from_str(line).map_err(|source| RecordError::Line {
        what: Source::Run(run).to_string(),
        line: *seq as usize + 1,
        source,
    })
}

/// A record's lines, one after the other: what was sealed when, and where that does not fit.
#[derive(Debug)]
pub(super) struct Lines {
    what: String,
    number: usize,
    seal: Seal,
    pub changed: Option<usize>,
}

impl Lines {
    pub fn new(what: String) -> Self {
        Self {
            what,
            number: 0,
            seal: Seal::default(),
            changed: None,
        }
    }

    pub fn event(&mut self, line: &str) -> Result<Event, RecordError> {
        self.number += 1;
        let event: Event = serde_json::from_str(line).map_err(|source| RecordError::Line {
            what: self.what.clone(),
            line: self.number,
            source,
        })?;
        if Seal::of(line, &self.seal).as_ref() != Some(&event.seal) {
            self.changed.get_or_insert(self.number);
        }
        self.seal = event.seal.clone();
        Ok(event)
    }
}

impl Record {
    /// # Errors
    /// It is not as it was written.
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
    /// The run, if it is one of the database.
    ///
    /// # Errors
    /// It is a file.
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
