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
use serde_json::{Map, Value, json};
use sqlx::{AnyConnection, Database as _, Sqlite};
use std::collections::HashSet;
use std::io;
use toolhold_sandbox::module::Digest;

impl Store {
    /// Writes what follows from no event of a run.
    pub async fn audit(&self, draft: Draft) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        append(&mut transaction, &[&draft]).await?;
        Ok(transaction.commit().await?)
    }

    /// Writes a call that belongs to no run, with whatever else is written at this time. When this returns,
    /// it survives the process; if it `lasts`, the machine, too.
    ///
    /// # Errors
    /// The database cannot be written to.
    pub async fn audit_call(&self, draft: Draft, lasts: bool) -> io::Result<()> {
        let change = Change::Audit(Box::new(draft));
        self.writer.write(vec![change], lasts).await
    }
}

/// Adds to the log, after whatever any process added before. Nobody else can until the transaction ends.
pub async fn append(connection: &mut AnyConnection, drafts: &[&Draft]) -> Result<(), sqlx::Error> {
    if drafts.is_empty() {
        return Ok(());
    }
    // Changing nothing takes the row.
    let (mut number, mut hash): (i64, String) =
        sqlx::query_as("UPDATE audit_head SET number = number RETURNING number, hash")
            .fetch_one(&mut *connection)
            .await?;
    let is_file = connection.backend_name() == Sqlite::NAME;
    let mut told = told(connection, drafts, is_file).await?;
    let mut rows = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let source = draft.source.map(|(run, seq)| (run.to_string(), seq));
        if source.clone().is_some_and(|source| !told.insert(source)) {
            continue;
        }
        number += 1;
        let entry = draft.entry(number);
        hash = link(&hash, &entry);
        let (run, seq) = source.unzip();
        rows.push(json!({
            "number": number, "at_ms": draft.at_ms, "owner": draft.owner, "action": draft.action, "run": run,
            "seq": seq, "tool": draft.tool, "entry": entry, "hash": hash,
        }));
    }
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query(if is_file { ADD_IN_FILE } else { ADD })
        .bind(Value::from(rows).to_string())
        .execute(&mut *connection)
        .await?;
    sqlx::query("UPDATE audit_head SET number = $1, hash = $2")
        .bind(number)
        .bind(&hash)
        .execute(connection)
        .await?;
    Ok(())
}

/// All rows at once: a statement more takes longer than a row more.
const ADD: &str = "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM json_to_recordset($1::json) AS added \
     (number BIGINT, at_ms BIGINT, owner TEXT, action TEXT, run TEXT, seq BIGINT, tool TEXT, entry TEXT, hash TEXT)";
const ADD_IN_FILE: &str = "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT value ->> 'number', value ->> 'at_ms', value ->> 'owner', value ->> 'action', value ->> 'run', \
     value ->> 'seq', value ->> 'tool', value ->> 'entry', value ->> 'hash' FROM json_each($1)";

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

/// The same text for the same data, whoever wrote it.
fn canonical(members: Map<String, Value>) -> String {
    let mut value = Value::Object(members);
    value.sort_all_objects();
    value.to_string()
}
