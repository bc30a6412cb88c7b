//! The runs: found, listed, read, and gone on with.

use crate::storage::audit::Drafts;
use crate::storage::error::{RecordError, StoreError};
use crate::storage::sessions::{now_ms, signed};
use crate::storage::{RunJournal, Store, exported};
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use toolhold_agent::event::Seal;
use toolhold_agent::{Event, StopReason};
use uuid::Uuid;

/// Whose a run is, and what it was started as.
#[derive(Debug, Clone, Default)]
pub struct Label {
    /// The API key's name; empty for whoever has this machine's terminal.
    pub owner: String,
    /// The configured agent; empty for none.
    pub agent: String,
    pub origin: Origin,
    /// The session of which it is a turn, and the how manieth.
    pub turn: Option<(Uuid, u32)>,
    /// The run's span as `traceparent`; absent if nobody traces it.
    pub trace: Option<String>,
}

/// What began a run, and goes on with it after a crash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// A person, with `toolhold resume`.
    #[default]
    Cli,
    /// The server, by itself.
    Serve,
}

impl Origin {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Serve => "serve",
        }
    }
}

/// A run, as a list shows it.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: Uuid,
    pub owner: String,
    pub agent: String,
    pub turn: Option<(Uuid, u32)>,
    pub task: String,
    pub model: String,
    pub began_ms: u64,
    /// Absent: it is not over.
    pub ended: Option<Ended>,
    /// A process goes on with it just now.
    pub is_held: bool,
    /// A call of it waits for a person.
    pub waits: bool,
}

#[derive(Debug, Clone)]
pub struct Ended {
    pub at_ms: u64,
    pub reason: StopReason,
    pub steps: u64,
    pub calls: u64,
    pub tokens: u64,
}

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoingOn {
    /// In a process.
    Held,
    /// It is not over, and no process goes on with it.
    Left,
    /// It is over, or not there.
    Over,
}

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

/// What a list needs of a run.
const LISTED: &str = "SELECT id, owner, agent, session, turn, task, model, began_ms, ended_ms, reason, steps, \
     calls, tokens, holder, (SELECT COUNT(*) FROM approvals WHERE approvals.run = runs.id) AS waiting FROM runs";

/// Events that are read at once.
const PAGE: i64 = 512;
/// Of their lines. One that is longer is read alone.
const PAGE_BYTES: i64 = 4 << 20;

impl Store {
    /// A new run's journal.
    pub fn journal(&self, run: Uuid, label: Label) -> RunJournal {
        RunJournal::begin(
            run,
            label,
            self.writer.clone(),
            self.process.name(),
            self.mine.hold(run),
            self.redaction.clone(),
        )
    }

    /// What `name` means: a run's id or the beginning of one, `last`, or a file that a run was exported to.
    pub async fn find(&self, name: &str) -> Result<Source, RecordError> {
        let path = Path::new(name);
        if path.extension().is_some_and(|it| it == "jsonl") && path.is_file() {
            return Ok(Source::File(path.to_owned()));
        }
        if name == "last" {
            let last = sqlx::query("SELECT id FROM runs ORDER BY id DESC LIMIT 1");
            let row = last.fetch_optional(&self.pool).await?;
            return match row {
                Some(row) => Ok(Source::Run(id(&row, "id")?)),
                None => Err(RecordError::None),
            };
        }
        let is_id = |c: char| c.is_ascii_hexdigit() || c == '-';
        let unknown = || RecordError::Unknown { name: name.into() };
        if name.is_empty() || !name.chars().all(is_id) {
            return Err(unknown());
        }
        let rows = sqlx::query("SELECT id FROM runs WHERE id LIKE $1 ORDER BY id")
            .bind(format!("{}%", name.to_ascii_lowercase()))
            .fetch_all(&self.pool)
            .await?;
        match rows.as_slice() {
            [] => Err(unknown()),
            [only] => Ok(Source::Run(id(only, "id")?)),
            several => {
                let names = several.iter().map(|row| Ok(id(row, "id")?.to_string()));
                Err(RecordError::Ambiguous {
                    name: name.into(),
                    names: names.collect::<Result<_, sqlx::Error>>()?,
                })
            }
        }
    }

    /// The span that a run began with, as `traceparent`.
    pub async fn trace(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let trace: Option<Option<String>> =
            sqlx::query_scalar("SELECT trace FROM runs WHERE id = $1")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .await?;
        Ok(trace.flatten())
    }

    /// The runs that began at or after that time, in milliseconds since 1970, the oldest first.
    pub async fn runs_since(&self, from_ms: u64) -> Result<Vec<RunRow>, StoreError> {
        let from_ms = i64::try_from(from_ms).unwrap_or(i64::MAX);
        self.rows("began_ms >= $1 ORDER BY id", from_ms).await
    }

    /// A run, as a list shows it.
    pub async fn run(&self, run: Uuid) -> Result<Option<RunRow>, StoreError> {
        let rows = self.rows("id = $1", run.to_string()).await?;
        Ok(rows.into_iter().next())
    }

    /// The runs of `owner`, or of all, that are older than `before`, the newest first.
    pub async fn runs_before(
        &self,
        owner: Option<&str>,
        before: Option<Uuid>,
        most: u32,
    ) -> Result<Vec<RunRow>, StoreError> {
        // Two statements: of one for both, neither database would use its index.
        let statement = sqlx::AssertSqlSafe(before_statement(owner.is_some()));
        let query = sqlx::query(statement)
            .bind(before.unwrap_or(Uuid::max()).to_string())
            .bind(i64::from(most));
        let query = match owner {
            Some(owner) => query.bind(owner),
            None => query,
        };
        let rows = query.fetch_all(&self.pool).await?;
        self.listed(&rows).await
    }

    /// Leaves word that a run is to be stopped, for whichever process goes on with it.
    pub async fn ask_to_cancel(&self, run: Uuid) -> Result<(), StoreError> {
        sqlx::query("UPDATE runs SET cancel_ms = $2 WHERE id = $1 AND ended_ms IS NULL")
            .bind(run.to_string())
            .bind(signed(now_ms()))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Runs of this process that somebody wants stopped.
    pub async fn to_cancel(&self) -> Result<Vec<Uuid>, StoreError> {
        let rows = sqlx::query(
            "SELECT id FROM runs WHERE holder = $1 AND cancel_ms IS NOT NULL AND ended_ms IS NULL",
        )
        .bind(self.process.name())
        .fetch_all(&self.pool)
        .await?;
        let runs: Result<_, sqlx::Error> = rows.iter().map(|row| id(row, "id")).collect();
        Ok(runs?)
    }

    /// Runs of the server that are not over and that no process goes on with, the oldest first.
    pub async fn left_behind(&self) -> Result<Vec<RunRow>, StoreError> {
        let rows = self.rows(
            "origin = $1 AND ended_ms IS NULL ORDER BY id",
            Origin::Serve.name(),
        );
        Ok(rows.await?.into_iter().filter(|run| !run.is_held).collect())
    }

    /// Those of them that this process let go of, because the database could not be written.
    pub async fn left_behind_here(&self) -> Result<Vec<RunRow>, StoreError> {
        let statement = format!(
            "{LISTED} WHERE origin = $1 AND ended_ms IS NULL AND (holder IS NULL OR holder = $2) ORDER BY id"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(Origin::Serve.name())
            .bind(self.process.name())
            .fetch_all(&self.pool)
            .await?;
        let rows = self.listed(&rows).await?;
        Ok(rows.into_iter().filter(|run| !run.is_held).collect())
    }

    /// Those of `runs` that go on here and that another process has taken over, which took this one for dead.
    pub async fn taken_over(&self, runs: &[Uuid]) -> Result<Vec<Uuid>, StoreError> {
        let mut taken = Vec::new();
        if !self.process.was_lost() {
            return Ok(taken);
        }
        for run in runs {
            let is_anothers: Option<i64> = sqlx::query_scalar(
                "SELECT CAST(1 AS BIGINT) FROM runs WHERE id = $1 AND holder <> $2 AND ended_ms IS NULL",
            )
            .bind(run.to_string())
            .bind(self.process.name())
            .fetch_optional(&self.pool)
            .await?;
            if is_anothers.is_some() {
                taken.push(*run);
            }
        }
        Ok(taken)
    }

    pub(super) async fn rows<'q, T>(
        &self,
        which: &'static str,
        value: T,
    ) -> Result<Vec<RunRow>, StoreError>
    where
        T: sqlx::Encode<'q, sqlx::Any> + sqlx::Type<sqlx::Any> + Send + 'q,
    {
        let statement = format!("{LISTED} WHERE {which}");
        // Made of what is in this program only.
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(value)
            .fetch_all(&self.pool)
            .await?;
        self.listed(&rows).await
    }

    async fn listed(&self, rows: &[AnyRow]) -> Result<Vec<RunRow>, StoreError> {
        let mut runs = Vec::with_capacity(rows.len());
        // Of hundreds of runs most are over, and the rest is of a few processes.
        let mut living: HashMap<String, bool> = HashMap::new();
        for row in rows {
            let holder: Option<String> = row.try_get("holder")?;
            let is_held = match holder {
                None => false,
                Some(name) if name == self.process.name() => self.mine.has(id(row, "id")?),
                Some(name) => match living.get(&name) {
                    Some(known) => *known,
                    None => {
                        let lives = self.process.is_alive(&name, &self.pool).await?;
                        living.insert(name, lives);
                        lives
                    }
                },
            };
            runs.push(run_row(row, is_held)?);
        }
        Ok(runs)
    }

    /// Whether a process goes on with this run just now.
    pub async fn is_held(&self, run: Uuid) -> Result<bool, StoreError> {
        match self.holder(run).await?.as_deref() {
            Some(name) if name == self.process.name() => Ok(self.mine.has(run)),
            holder => self.lives_elsewhere(holder).await,
        }
    }

    pub async fn going_on(&self, run: Uuid) -> Result<GoingOn, StoreError> {
        let holder: Option<Option<String>> =
            sqlx::query_scalar("SELECT holder FROM runs WHERE id = $1 AND ended_ms IS NULL")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .await?;
        let Some(holder) = holder else {
            return Ok(GoingOn::Over);
        };
        let is_held = match holder.as_deref() {
            Some(name) if name == self.process.name() => self.mine.has(run),
            holder => self.lives_elsewhere(holder).await?,
        };
        Ok(if is_held {
            GoingOn::Held
        } else {
            GoingOn::Left
        })
    }

    /// Whether a run has an event of that number, or a later one.
    pub async fn has_events(&self, run: Uuid, from: u64) -> Result<bool, StoreError> {
        let some: Option<i64> =
            sqlx::query_scalar("SELECT seq FROM events WHERE run = $1 AND seq >= $2 LIMIT 1")
                .bind(run.to_string())
                .bind(signed(from))
                .fetch_optional(&self.pool)
                .await?;
        Ok(some.is_some())
    }

    async fn lives_elsewhere(&self, holder: Option<&str>) -> Result<bool, StoreError> {
        match holder {
            Some(name) if name != self.process.name() => {
                self.process.is_alive(name, &self.pool).await
            }
            _ => Ok(false),
        }
    }

    pub(super) async fn holder(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let holder: Option<Option<String>> =
            sqlx::query_scalar("SELECT holder FROM runs WHERE id = $1")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .await?;
        Ok(holder.flatten())
    }

    /// Takes a run that nobody goes on with: its events, and where the next ones are appended.
    ///
    /// # Errors
    /// [`RecordError::Held`] if somebody does, [`RecordError::Over`] if there is nothing to go on with.
    pub async fn reopen(&self, run: Uuid) -> Result<(RunJournal, Vec<Event>), RecordError> {
        let Some(hold) = self.mine.hold(run) else {
            return Err(RecordError::Held);
        };
        // What this process wrote of it and the database lost.
        self.writer.catch_up().await.map_err(sqlx::Error::Io)?;
        let before = self.holder(run).await?;
        if self.lives_elsewhere(before.as_deref()).await? {
            return Err(RecordError::Held);
        }
        // Only if it is still so: another process may take it at the same time.
        let taken: Option<String> = sqlx::query_scalar(
            "UPDATE runs SET holder = $2 WHERE id = $1 AND (holder = $3 OR (holder IS NULL AND $3 IS NULL)) \
             AND ended_ms IS NULL RETURNING owner",
        )
        .bind(run.to_string())
        .bind(self.process.name())
        .bind(before)
        .fetch_optional(&self.pool)
        .await?;
        let Some(owner) = taken else {
            let row = self.run(run).await?;
            return Err(match row.and_then(|row| row.ended) {
                Some(_) => RecordError::Over { run },
                None => RecordError::Held,
            });
        };
        let events = self.read(&Source::Run(run)).await;
        let known = events.as_deref().unwrap_or_default();
        // Made in any case: dropping it lets go of the run.
        let audit = Drafts::new(run, &owner, self.redaction.clone());
        let journal = RunJournal::after(
            run,
            known,
            self.writer.clone(),
            self.process.name(),
            Some(hold),
            audit,
        );
        Ok((journal, events?))
    }

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
        .await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Err(RecordError::Unknown {
                name: run.to_string(),
            });
        };
        Ok((event(run, first)?, event(run, last)?))
    }

    async fn lines(&self, run: Uuid, from: i64) -> Result<Vec<(i64, String)>, sqlx::Error> {
        sqlx::query_as(LINES)
            .bind(run.to_string())
            .bind(from)
            .bind(PAGE)
            .bind(PAGE_BYTES)
            .fetch_all(&self.pool)
            .await
    }
}

/// At most $3 lines of the run $1 from $2 on, and none after $4 bytes of them. A line's length is known without
/// reading it, where nothing else of it is asked for.
const LINES: &str = "SELECT seq, line FROM events WHERE run = $1 AND seq >= $2 AND seq <= (SELECT MAX(seq) FROM \
     (SELECT seq, SUM(bytes) OVER (ORDER BY seq) - bytes AS sooner FROM \
     (SELECT seq, OCTET_LENGTH(line) AS bytes FROM events WHERE run = $1 AND seq >= $2 ORDER BY seq LIMIT $3) AS sized) \
     AS summed WHERE sooner < $4) ORDER BY seq";

pub(super) fn before_statement(is_of_one: bool) -> String {
    let whose = if is_of_one { "AND owner = $3 " } else { "" };
    format!("{LISTED} WHERE id < $1 {whose}ORDER BY id DESC LIMIT $2")
}

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

fn run_row(row: &AnyRow, is_held: bool) -> Result<RunRow, sqlx::Error> {
    let reason: Option<String> = row.try_get("reason")?;
    let ended = reason.map(|reason| {
        Ok::<_, sqlx::Error>(Ended {
            at_ms: unsigned(row, "ended_ms")?,
            reason: serde_json::from_value(reason.into())
                .map_err(|error| sqlx::Error::Decode(error.into()))?,
            steps: unsigned(row, "steps")?,
            calls: unsigned(row, "calls")?,
            tokens: unsigned(row, "tokens")?,
        })
    });
    let session: Option<String> = row.try_get("session")?;
    let turn = match session {
        Some(_) => Some((id(row, "session")?, unsigned(row, "turn")? as u32)),
        None => None,
    };
    Ok(RunRow {
        id: id(row, "id")?,
        owner: row.try_get("owner")?,
        agent: row.try_get("agent")?,
        turn,
        task: row.try_get("task")?,
        model: row.try_get("model")?,
        began_ms: unsigned(row, "began_ms")?,
        ended: ended.transpose()?,
        is_held,
        waits: unsigned(row, "waiting")? > 0,
    })
}

pub(super) fn id(row: &AnyRow, column: &str) -> Result<Uuid, sqlx::Error> {
    let text: String = row.try_get(column)?;
    Uuid::parse_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
}

pub(super) fn unsigned(row: &AnyRow, column: &str) -> Result<u64, sqlx::Error> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or_default())
}
