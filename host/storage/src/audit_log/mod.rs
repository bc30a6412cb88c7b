//! The audit log: who did what with which tool, in rows each of which seals the one before.
//!
//! It shows damage, careless hands, and whoever does not know how it is sealed. Against somebody who may
//! write to the database and seals everything anew, keep the head elsewhere: `toolhold audit verify` prints
//! it, and checks one that it is given.

mod drafts;
mod search;
mod verify;

pub use drafts::{CallRecord, Draft, Drafts};
#[cfg(test)]
pub(super) use search::statement;
pub use search::{Entry, Filter, Order};
#[cfg(test)]
pub use verify::Fault;

use crate::storage::Store;
use crate::storage::change::Change;
use crate::storage::error::StoreError;
use crate::storage::writer::Held;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Database as _, Sqlite};
use std::collections::HashSet;
use std::io;
use toolhold_sandbox::module::Digest;

impl Store {
    /// Writes what follows from no event of a run.
    pub async fn audit(&self, draft: Draft) -> Result<(), StoreError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            append(&mut transaction, &[&draft]).await?;
            Ok(transaction.commit().await?)
        };
        self.database.within(work).await
    }

    /// Writes a call that belongs to no run, with whatever else is written at this time. What is `held` is
    /// dropped when it is written, or lost.
    ///
    /// # Errors
    /// The database cannot be written to.
    pub async fn audit_call(&self, draft: Draft, until: Until, held: Held) -> io::Result<()> {
        let change = Change::Audit(Box::new(draft));
        match until {
            Until::Queued => self.writer.queue(change, held).await,
            Until::Written => self.writer.write(vec![change], false).await,
            Until::OnDisk => self.writer.write(vec![change], true).await,
        }
    }
}

/// What whoever writes waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Room in the queue. What is there outlasts a database that is away, and not the process.
    Queued,
    /// It survives the process.
    Written,
    /// It survives the machine.
    OnDisk,
}

/// Where the log ends: a row's number, and its hash, which covers all before.
pub type Head = (i64, String);

/// Whether the log has this row.
pub async fn has(connection: &mut AnyConnection, head: &Head) -> Result<bool, sqlx::Error> {
    let row: Option<i64> =
        sqlx::query_scalar("SELECT number FROM audit WHERE number = $1 AND hash = $2")
            .bind(head.0)
            .bind(&head.1)
            .fetch_optional(connection)
            .await?;
    Ok(row.is_some())
}

/// Adds to the log, after whatever any process added before. Nobody else can until the transaction ends.
pub async fn append(connection: &mut AnyConnection, drafts: &[&Draft]) -> Result<(), sqlx::Error> {
    let head = take(connection).await?;
    add(connection, head, drafts).await?;
    Ok(())
}

/// Where the log ends. Until the transaction ends, it ends there for all others.
pub async fn take(connection: &mut AnyConnection) -> Result<Head, sqlx::Error> {
    // Changing nothing takes the row.
    sqlx::query_as("UPDATE audit_head SET number = number RETURNING number, hash")
        .fetch_one(connection)
        .await
}

/// Adds to the log, whose head was taken. Returns where it ends then, if something was added.
pub async fn add(
    connection: &mut AnyConnection,
    (mut number, mut hash): Head,
    drafts: &[&Draft],
) -> Result<Option<Head>, sqlx::Error> {
    let is_file = connection.backend_name() == Sqlite::NAME;
    let mut told = told(connection, drafts, is_file).await?;
    let mut rows = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let source = draft.source.map(|(run, seq)| (run.to_string(), seq));
        if source.clone().is_some_and(|source| !told.insert(source)) {
            continue;
        }
        number += 1;
        let entry = draft.entry(number).map_err(encoding)?;
        hash = link(&hash, &entry);
        let (run, seq) = source.unzip();
        rows.push(Row {
            number,
            at_ms: draft.at_ms,
            owner: &draft.owner,
            action: draft.action,
            run,
            seq,
            tool: draft.tool.as_deref(),
            entry,
            hash: hash.clone(),
        });
    }
    if rows.is_empty() {
        return Ok(None);
    }
    sqlx::query(if is_file { ADD_IN_FILE } else { ADD })
        .bind(serde_json::to_string(&rows).map_err(encoding)?)
        .execute(&mut *connection)
        .await?;
    sqlx::query("UPDATE audit_head SET number = $1, hash = $2")
        .bind(number)
        .bind(&hash)
        .execute(connection)
        .await?;
    Ok(Some((number, hash)))
}

fn encoding(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// What is added.
#[derive(Serialize)]
struct Row<'a> {
    number: i64,
    at_ms: i64,
    owner: &'a str,
    action: &'a str,
    run: Option<String>,
    seq: Option<i64>,
    tool: Option<&'a str>,
    entry: String,
    hash: String,
}

/// All rows at once: a statement more takes longer than a row more.
const ADD: &str = "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM json_to_recordset($1::json) AS added \
     (number BIGINT, at_ms BIGINT, owner TEXT, action TEXT, run TEXT, seq BIGINT, tool TEXT, entry TEXT, hash TEXT)";
/// Materialized: SQLite would write each row's JSON text anew for each of its columns.
const ADD_IN_FILE: &str = "WITH added (row) AS MATERIALIZED (SELECT value FROM json_each($1)) \
     INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT row ->> 'number', row ->> 'at_ms', row ->> 'owner', row ->> 'action', row ->> 'run', row ->> 'seq', \
     row ->> 'tool', row ->> 'entry', row ->> 'hash' FROM added";

/// Those of the events that are in the log: of a commit whose answer was lost, the same come again.
async fn told(
    connection: &mut AnyConnection,
    drafts: &[&Draft],
    is_file: bool,
) -> Result<HashSet<(String, i64)>, sqlx::Error> {
    let sources = drafts.iter().filter_map(|draft| draft.source);
    let sources: Vec<Value> = sources
        .map(|(run, seq)| json!({"run": run.to_string(), "seq": seq}))
        .collect();
    if sources.is_empty() {
        return Ok(HashSet::new());
    }
    let told: Vec<(String, i64)> = sqlx::query_as(if is_file { TOLD_IN_FILE } else { TOLD })
        .bind(Value::from(sources).to_string())
        .fetch_all(connection)
        .await?;
    Ok(told.into_iter().collect())
}

const TOLD: &str = "SELECT audit.run, audit.seq FROM json_to_recordset($1::json) AS source (run TEXT, seq BIGINT) \
     JOIN audit ON audit.run = source.run AND audit.seq = source.seq";
const TOLD_IN_FILE: &str = "SELECT audit.run, audit.seq FROM json_each($1) \
     JOIN audit ON audit.run = value ->> 'run' AND audit.seq = value ->> 'seq'";

/// The seal of an entry after the one that has the hash `before`.
fn link(before: &str, entry: &str) -> String {
    digest(format!("{before}\n{entry}").as_bytes())
}

/// SHA-256 in hex.
fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}
