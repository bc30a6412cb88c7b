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
use serde_json::{Map, Value};
use sqlx::AnyConnection;
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
    for draft in drafts {
        if is_told(connection, draft).await? {
            continue;
        }
        number += 1;
        let entry = draft.entry(number);
        hash = link(&hash, &entry);
        sqlx::query(
            "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(number)
        .bind(draft.at_ms)
        .bind(&draft.owner)
        .bind(draft.action)
        .bind(draft.source.map(|(run, _)| run.to_string()))
        .bind(draft.source.map(|(_, seq)| seq))
        .bind(draft.tool.as_deref())
        .bind(&entry)
        .bind(&hash)
        .execute(&mut *connection)
        .await?;
    }
    sqlx::query("UPDATE audit_head SET number = $1, hash = $2")
        .bind(number)
        .bind(&hash)
        .execute(connection)
        .await?;
    Ok(())
}

/// Of a commit whose answer was lost, the same event comes again.
async fn is_told(connection: &mut AnyConnection, draft: &Draft) -> Result<bool, sqlx::Error> {
    let Some((run, seq)) = draft.source else {
        return Ok(false);
    };
    let told: Option<i64> =
        sqlx::query_scalar("SELECT number FROM audit WHERE run = $1 AND seq = $2")
            .bind(run.to_string())
            .bind(seq)
            .fetch_optional(connection)
            .await?;
    Ok(told.is_some())
}

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
