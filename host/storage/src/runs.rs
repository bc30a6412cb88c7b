//! The runs: found and listed.

use crate::storage::Store;
use crate::storage::database::InTime as _;
use crate::storage::error::{RecordError, StoreError};
use crate::storage::record::Source;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::HashMap;
use std::path::Path;
use toolhold_agent::StopReason;
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
    /// What it was asked for as a response of OpenAI's API, where its events do not say it: JSON, kept as long
    /// as its record.
    pub asked: Option<String>,
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

/// What a list needs of a run.
pub(super) const LISTED: &str = "SELECT id, owner, agent, session, turn, task, model, began_ms, ended_ms, reason, steps, \
     calls, tokens, holder, (SELECT COUNT(*) FROM approvals WHERE approvals.run = runs.id) AS waiting FROM runs";

impl Store {
    /// What `name` means: a run's id or the beginning of one, `last`, or a file that a run was exported to.
    pub async fn find(&self, name: &str) -> Result<Source, RecordError> {
        let path = Path::new(name);
        if path.extension().is_some_and(|it| it == "jsonl") && path.is_file() {
            return Ok(Source::File(path.to_owned()));
        }
        if name == "last" {
            let last = sqlx::query("SELECT id FROM runs ORDER BY id DESC LIMIT 1");
            let row = last
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
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
            .in_time(&self.database)
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
                .in_time(&self.database)
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
        let rows = query.fetch_all(&self.pool).in_time(&self.database).await?;
        self.listed(&rows).await
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
            .in_time(&self.database)
            .await?;
        self.listed(&rows).await
    }

    pub(super) async fn listed(&self, rows: &[AnyRow]) -> Result<Vec<RunRow>, StoreError> {
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
}

pub(super) fn before_statement(is_of_one: bool) -> String {
    let whose = if is_of_one { "AND owner = $3 " } else { "" };
    format!("{LISTED} WHERE id < $1 {whose}ORDER BY id DESC LIMIT $2")
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
