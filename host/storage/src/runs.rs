//! Finds and lists runs.

use crate::column::{id, unsigned};
use crate::database::InTime as _;
use crate::error::{MAX_SHOWN_NAMES, RecordError, StoreError};
use crate::record::Source;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::HashMap;
use std::path::Path;
use toolhold_protocol::event::StopReason;
use uuid::Uuid;

/// A run as lists show it.
#[derive(Debug, Clone)]
pub struct RunRow {
    /// A UUIDv7.
    pub id: Uuid,
    /// Name of the API key; empty for the user of this machine's terminal.
    pub owner: String,
    /// The configured agent; empty for none.
    pub agent: String,
    /// The session that the run is a turn of, and the turn's number.
    pub turn: Option<(Uuid, u32)>,
    /// The begin of the task.
    pub task: String,
    /// The model's name.
    pub model: String,
    /// Milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// Absent while the run has not ended.
    pub ended: Option<RunEnd>,
    /// A process works on it whose lease holds.
    pub is_held: bool,
    /// One of its calls waits for a person.
    pub waits: bool,
}

impl RunRow {
    /// Name of its API key, as the log has it; absent for the user of this machine's terminal.
    pub fn key(&self) -> Option<&str> {
        (!self.owner.is_empty()).then_some(self.owner.as_str())
    }
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct RunEnd {
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    /// Why it ended.
    pub reason: StopReason,
    /// Steps that it took.
    pub steps: u64,
    /// Tool calls that it made.
    pub calls: u64,
    /// Tokens that it used.
    pub tokens: u64,
}

/// The columns of a [`RunRow`].
pub(crate) const LISTED: &str = "SELECT id, owner, agent, session, turn, task, model, began_ms, ended_ms, reason, steps, \
     calls, tokens, holder, (SELECT COUNT(*) FROM approvals WHERE approvals.run = runs.id) AS waiting FROM runs";

/// The condition of [`Store::runs_since`].
pub(crate) const SINCE: &str = "began_ms >= $1 ORDER BY began_ms, id";

impl Store {
    /// Resolves a name that a user gave: a run's id, an unambiguous prefix of one, `last`, or an exported file.
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
        // The newest, and one more than a message lists.
        let rows = sqlx::query("SELECT id FROM runs WHERE id LIKE $1 ORDER BY id DESC LIMIT $2")
            .bind(format!("{}%", name.to_ascii_lowercase()))
            .bind(i64::try_from(MAX_SHOWN_NAMES + 1).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        match rows.as_slice() {
            [] => Err(unknown()),
            [only] => Ok(Source::Run(id(only, "id")?)),
            several => {
                let names = several
                    .iter()
                    .rev()
                    .map(|row| Ok(id(row, "id")?.to_string()));
                Err(RecordError::Ambiguous {
                    name: name.into(),
                    names: names.collect::<Result<_, sqlx::Error>>()?,
                })
            }
        }
    }

    /// The span that a run began with, as `traceparent`; `None` if it was not traced.
    pub async fn trace(&self, run: Uuid) -> Result<Option<String>, StoreError> {
        let trace: Option<Option<String>> =
            sqlx::query_scalar("SELECT trace FROM runs WHERE id = $1")
                .bind(run.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        Ok(trace.flatten())
    }

    /// The runs that began at or after `from_ms` (milliseconds since 1970), oldest first.
    pub async fn runs_since(&self, from_ms: u64) -> Result<Vec<RunRow>, StoreError> {
        let from_ms = i64::try_from(from_ms).unwrap_or(i64::MAX);
        self.rows(SINCE, from_ms).await
    }

    /// A run as lists show it; `None` if there is none.
    pub async fn run(&self, run: Uuid) -> Result<Option<RunRow>, StoreError> {
        let rows = self.rows("id = $1", run.to_string()).await?;
        Ok(rows.into_iter().next())
    }

    /// The runs of `owner`, or of all owners, that are older than `before`, newest first.
    pub async fn runs_before(
        &self,
        owner: Option<&str>,
        before: Option<Uuid>,
        most: u32,
    ) -> Result<Vec<RunRow>, StoreError> {
        // Two statements, because neither database would use its index for one that serves both cases.
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

    /// The runs of `owner` that have not ended, the oldest first.
    pub async fn open_runs_of(&self, owner: &str) -> Result<Vec<RunRow>, StoreError> {
        self.rows(
            "owner = $1 AND ended_ms IS NULL ORDER BY id",
            owner.to_owned(),
        )
        .await
    }

    /// The runs that match a condition with one value.
    pub(crate) async fn rows<'q, T>(
        &self,
        which: &'static str,
        value: T,
    ) -> Result<Vec<RunRow>, StoreError>
    where
        T: sqlx::Encode<'q, sqlx::Any> + sqlx::Type<sqlx::Any> + Send + 'q,
    {
        let statement = format!("{LISTED} WHERE {which}");
        // The statement consists of constants.
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(value)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        self.listed(&rows).await
    }

    /// Decodes rows of [`LISTED`].
    pub(crate) async fn listed(&self, rows: &[AnyRow]) -> Result<Vec<RunRow>, StoreError> {
        let mut runs = Vec::with_capacity(rows.len());
        // Most runs have ended, and the others belong to few processes: each is asked once.
        let mut living: HashMap<String, bool> = HashMap::new();
        for row in rows {
            let holder: Option<String> = row.try_get("holder")?;
            let is_held = match holder {
                None => false,
                Some(name) if name == self.process.name() => self.claimed.contains(id(row, "id")?),
                Some(name) => match living.get(&name) {
                    Some(known) => *known,
                    None => {
                        let lives = self.process.keeps_leases(&name, &self.pool).await?;
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

/// The statement of [`Store::runs_before`].
pub(crate) fn before_statement(is_of_one: bool) -> String {
    let whose = if is_of_one { "AND owner = $3 " } else { "" };
    format!("{LISTED} WHERE id < $1 {whose}ORDER BY id DESC LIMIT $2")
}

fn run_row(row: &AnyRow, is_held: bool) -> Result<RunRow, sqlx::Error> {
    let reason: Option<String> = row.try_get("reason")?;
    let ended = reason.map(|reason| {
        Ok::<_, sqlx::Error>(RunEnd {
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
