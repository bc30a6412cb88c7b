//! The rows of the audit log and the chain of hashes that seals them: each row's hash covers the row before.
//!
//! The chain shows accidental damage, and changes by a person who does not know how it is made. It does not stop a
//! person with write access to the database who seals everything anew; against that, keep the head elsewhere:
//! `toolhold audit verify` prints it, and checks a head that it is given.

mod call;
mod draft;
mod expiry;
mod records;
mod run;
mod texts;

pub use call::{AuditContent, BegunCall, CallRecord};
pub(crate) use draft::CollectionName;
pub use draft::{Draft, PrunedBy};
pub use expiry::{ExpiredRange, expired_until};
pub(crate) use records::RECORD_REDACTED;
pub use records::{line_digest, redacted_lines, redacted_run};
pub use run::RunAudit;
pub use texts::{MEMORY_TOOLS, is_tombstone, sealed, tombstone, tombstone_digest};

use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Database as _, Sqlite};
use std::collections::HashSet;
use toolhold_policy::Digest;

/// The last row of the log: its number, and its hash, which covers all rows.
pub type LogHead = (i64, String);

/// Whether the log has this row.
pub async fn contains(connection: &mut AnyConnection, head: &LogHead) -> Result<bool, sqlx::Error> {
    let row: Option<i64> =
        sqlx::query_scalar("SELECT number FROM audit WHERE number = $1 AND hash = $2")
            .bind(head.0)
            .bind(&head.1)
            .fetch_optional(connection)
            .await?;
    Ok(row.is_some())
}

/// Adds rows to the log. No other transaction can add rows until this one ends.
pub async fn append(connection: &mut AnyConnection, drafts: &[&Draft]) -> Result<(), sqlx::Error> {
    let head = lock_head(connection).await?;
    append_after(connection, head, drafts).await?;
    Ok(())
}

/// Locks the log until the transaction ends, and returns its last row.
pub async fn lock_head(connection: &mut AnyConnection) -> Result<LogHead, sqlx::Error> {
    // An update that changes nothing locks the row.
    sqlx::query_as("UPDATE audit_head SET number = number RETURNING number, hash")
        .fetch_one(connection)
        .await
}

/// Adds rows after `head`, which [`lock_head`] returned. Returns the new head if a row was added.
pub async fn append_after(
    connection: &mut AnyConnection,
    (mut number, mut hash): LogHead,
    drafts: &[&Draft],
) -> Result<Option<LogHead>, sqlx::Error> {
    let is_file = connection.backend_name() == Sqlite::NAME;
    let mut known = known_sources(connection, drafts, is_file).await?;
    let mut rows = Vec::with_capacity(drafts.len());
    let mut salts = Vec::new();
    for draft in drafts {
        let source = draft.source.map(|(run, seq)| (run.to_string(), seq));
        if source.clone().is_some_and(|source| !known.insert(source)) {
            continue;
        }
        number += 1;
        let entry = draft.entry(number).map_err(encoding)?;
        hash = link(&hash, &entry);
        let (run, seq) = source.unzip();
        if let (Some(run), Some(salt)) = (&run, &draft.salt) {
            salts.push((number, run.clone(), salt));
        }
        rows.push(AuditRow {
            number,
            at_ms: draft.at_ms,
            owner: &draft.owner,
            action: &draft.action,
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
    sqlx::query(if is_file {
        INSERT_SQLITE
    } else {
        INSERT_POSTGRES
    })
    .bind(serde_json::to_string(&rows).map_err(encoding)?)
    .execute(&mut *connection)
    .await?;
    sqlx::query("UPDATE audit_head SET number = $1, hash = $2")
        .bind(number)
        .bind(&hash)
        .execute(&mut *connection)
        .await?;
    for (row, run, salt) in salts {
        sqlx::query(INSERT_SALT)
            .bind(row)
            .bind(run)
            .bind(salt)
            .execute(&mut *connection)
            .await?;
    }
    Ok(Some((number, hash)))
}

/// The salt of a row, if its run is recorded: it is deleted with the run.
const INSERT_SALT: &str = "INSERT INTO audit_salts (number, run, salt) \
     SELECT CAST($1 AS BIGINT), id, CAST($3 AS TEXT) FROM runs WHERE id = $2";

fn encoding(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// A row as the insert statement takes it.
#[derive(Serialize)]
struct AuditRow<'a> {
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

/// Inserts all rows at once, because a further statement costs more than a further row.
const INSERT_POSTGRES: &str = "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM json_to_recordset($1::json) AS added \
     (number BIGINT, at_ms BIGINT, owner TEXT, action TEXT, run TEXT, seq BIGINT, tool TEXT, entry TEXT, hash TEXT)";
/// Materialized, because SQLite would otherwise serialize a row's JSON anew for each of its columns.
const INSERT_SQLITE: &str = "WITH added (row) AS MATERIALIZED (SELECT value FROM json_each($1)) \
     INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT row ->> 'number', row ->> 'at_ms', row ->> 'owner', row ->> 'action', row ->> 'run', row ->> 'seq', \
     row ->> 'tool', row ->> 'entry', row ->> 'hash' FROM added";

/// Returns the events of the drafts that the log has already, from an earlier commit whose reply was lost.
async fn known_sources(
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
    let known: Vec<(String, i64)> = sqlx::query_as(if is_file {
        KNOWN_SQLITE
    } else {
        KNOWN_POSTGRES
    })
    .bind(Value::from(sources).to_string())
    .fetch_all(connection)
    .await?;
    Ok(known.into_iter().collect())
}

const KNOWN_POSTGRES: &str = "SELECT audit.run, audit.seq FROM json_to_recordset($1::json) AS source (run TEXT, seq BIGINT) \
     JOIN audit ON audit.run = source.run AND audit.seq = source.seq";
const KNOWN_SQLITE: &str = "SELECT audit.run, audit.seq FROM json_each($1) \
     JOIN audit ON audit.run = value ->> 'run' AND audit.seq = value ->> 'seq'";

/// The hash of an entry that follows the entry with the hash `before`.
pub fn link(before: &str, entry: &str) -> String {
    digest(format!("{before}\n{entry}").as_bytes())
}

/// SHA-256 in hex.
fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}
