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

use crate::statements::{OpenTransaction, SqlValue};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use toolhold_policy::Digest;

/// The last row of the log: its number, and its hash, which covers all rows.
pub type LogHead = (i64, String);

/// Whether the log has this row.
pub async fn contains(
    transaction: &mut OpenTransaction<'_>,
    (number, hash): &LogHead,
) -> Result<bool, sqlx::Error> {
    let row: Option<(i64,)> = transaction
        .row(
            "SELECT number FROM audit WHERE number = $1 AND hash = $2",
            &[(*number).into(), hash.into()],
        )
        .await?;
    Ok(row.is_some())
}

/// Adds rows to the log. No other transaction can add rows until this one ends.
pub async fn append<'c>(
    transaction: impl Into<OpenTransaction<'c>>,
    drafts: &[&Draft],
) -> Result<(), sqlx::Error> {
    let mut transaction = transaction.into();
    let head = lock_head(&mut transaction).await?;
    append_after(&mut transaction, head, drafts).await?;
    Ok(())
}

/// Locks the log until the transaction ends, and returns its last row.
pub async fn lock_head<'c>(
    transaction: impl Into<OpenTransaction<'c>>,
) -> Result<LogHead, sqlx::Error> {
    let mut transaction = transaction.into();
    let statement = match &mut transaction {
        OpenTransaction::Native(connection) => {
            if let Some(head) = connection.last_head.take() {
                return Ok(head);
            }
            // The transaction locks the file.
            HEAD
        }
        // An update that changes nothing locks the row.
        OpenTransaction::Driver(_) => {
            "UPDATE audit_head SET number = number RETURNING number, hash"
        }
    };
    let head = transaction.row(statement, &[]).await?;
    head.ok_or(sqlx::Error::RowNotFound)
}

/// Like [`lock_head`], for a transaction that uses the number of the row that it adds: another process may have added rows
/// since the last commit of this one.
pub async fn lock_numbered_head(
    transaction: &mut OpenTransaction<'_>,
) -> Result<LogHead, sqlx::Error> {
    if let OpenTransaction::Native(connection) = transaction {
        connection.last_head = None;
    }
    lock_head(transaction).await
}

const HEAD: &str = "SELECT number, hash FROM audit_head";

/// Returns the last row of the log, after which other transactions may add rows at any time.
pub async fn last_row(mut transaction: OpenTransaction<'_>) -> Result<LogHead, sqlx::Error> {
    let head = transaction.row(HEAD, &[]).await?;
    head.ok_or(sqlx::Error::RowNotFound)
}

/// Adds rows after `head`, which [`lock_head`] returned. Returns the new head if a row was added.
pub async fn append_after<'c>(
    transaction: impl Into<OpenTransaction<'c>>,
    head: LogHead,
    drafts: &[&Draft],
) -> Result<Option<LogHead>, sqlx::Error> {
    let mut transaction = transaction.into();
    let known = known_sources(&mut transaction, drafts).await?;
    let mut chained = ChainedRows::after(head.clone(), drafts, &known)?;
    if chained.rows.is_empty() {
        return Ok(None);
    }
    if !move_head(&mut transaction, &head, &chained.head).await? {
        // The writer goes by the head of its last commit, and another process has added rows since.
        let head = lock_head(&mut transaction).await?;
        chained = ChainedRows::after(head.clone(), drafts, &known)?;
        if !move_head(&mut transaction, &head, &chained.head).await? {
            return Err(sqlx::Error::RowNotFound);
        }
    }
    let ChainedRows { rows, salts, head } = chained;
    insert(&mut transaction, &rows).await?;
    for (row, run, salt) in salts {
        transaction
            .execute(INSERT_SALT, &[row.into(), run.into(), salt.into()])
            .await?;
    }
    if let OpenTransaction::Native(connection) = transaction {
        connection.last_head = Some(head.clone());
    }
    Ok(Some(head))
}

/// Makes `to` the head of the log. Returns false if the head is not `from`.
async fn move_head(
    transaction: &mut OpenTransaction<'_>,
    from: &LogHead,
    to: &LogHead,
) -> Result<bool, sqlx::Error> {
    let values = [
        SqlValue::from(to.0),
        (&to.1).into(),
        from.0.into(),
        (&from.1).into(),
    ];
    Ok(transaction.execute(MOVE_HEAD, &values).await? > 0)
}

const MOVE_HEAD: &str =
    "UPDATE audit_head SET number = $1, hash = $2 WHERE number = $3 AND hash = $4";

/// Rows with their numbers and hashes.
struct ChainedRows<'a> {
    rows: Vec<AuditRow<'a>>,
    /// The number, run and salt of each row that has a salt.
    salts: Vec<(i64, String, &'a str)>,
    /// The last row.
    head: LogHead,
}

impl<'a> ChainedRows<'a> {
    /// Chains the drafts to the row `head`, less those that are `known`.
    fn after(
        (mut number, mut hash): LogHead,
        drafts: &[&'a Draft],
        known: &HashSet<(String, i64)>,
    ) -> Result<Self, sqlx::Error> {
        let mut known = known.clone();
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
                salts.push((number, run.clone(), salt.as_str()));
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
        let head = (number, hash);
        Ok(Self { rows, salts, head })
    }
}

/// Rows for the log and their salts, as JSON for a statement that adds them.
pub struct AuditChain {
    /// The row before them.
    pub head: LogHead,
    /// The last of them; `head` if there are none.
    pub end: LogHead,
    pub rows: String,
    pub salts: String,
}

impl AuditChain {
    /// Chains the drafts to the row `head`.
    pub fn after(head: LogHead, drafts: &[&Draft]) -> Result<Self, sqlx::Error> {
        let chained = ChainedRows::after(head.clone(), drafts, &HashSet::new())?;
        let salts = chained.salts.iter();
        let salts: Vec<Value> = salts
            .map(|(number, run, salt)| json!({"number": number, "run": run, "salt": salt}))
            .collect();
        Ok(Self {
            head,
            rows: serde_json::to_string(&chained.rows).map_err(encoding)?,
            salts: Value::from(salts).to_string(),
            end: chained.head,
        })
    }
}

/// The salt of a row, if its run is recorded: it is deleted with the run.
const INSERT_SALT: &str = "INSERT INTO audit_salts (number, run, salt) \
     SELECT CAST($1 AS BIGINT), id, CAST($3 AS TEXT) FROM runs WHERE id = $2";

fn encoding(error: serde_json::Error) -> sqlx::Error {
    sqlx::Error::Encode(error.into())
}

/// A row as the insert statements take it.
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

impl AuditRow<'_> {
    /// The values of [`INSERT_SQLITE`].
    fn values(&self) -> [SqlValue<'_>; 9] {
        [
            self.number.into(),
            self.at_ms.into(),
            self.owner.into(),
            self.action.into(),
            self.run.as_deref().into(),
            self.seq.into(),
            self.tool.into(),
            (&self.entry).into(),
            (&self.hash).into(),
        ]
    }
}

/// Inserts rows: on PostgreSQL all at once, because a further statement is a further round trip. SQLite takes them one by
/// one, because a list would be JSON in JSON, which is written and read once more: that costs more than the statements.
async fn insert(
    transaction: &mut OpenTransaction<'_>,
    rows: &[AuditRow<'_>],
) -> Result<(), sqlx::Error> {
    if transaction.is_file() {
        for row in rows {
            transaction.execute(INSERT_SQLITE, &row.values()).await?;
        }
    } else {
        let list = serde_json::to_string(rows).map_err(encoding)?;
        transaction.execute(INSERT_POSTGRES, &[list.into()]).await?;
    }
    Ok(())
}

const INSERT_POSTGRES: &str = "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     SELECT number, at_ms, owner, action, run, seq, tool, entry, hash FROM json_to_recordset($1::json) AS added \
     (number BIGINT, at_ms BIGINT, owner TEXT, action TEXT, run TEXT, seq BIGINT, tool TEXT, entry TEXT, hash TEXT)";
const INSERT_SQLITE: &str = "INSERT INTO audit (number, at_ms, owner, action, run, seq, tool, entry, hash) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Returns the events of the drafts that the log has already, from an earlier commit whose reply was lost.
async fn known_sources(
    transaction: &mut OpenTransaction<'_>,
    drafts: &[&Draft],
) -> Result<HashSet<(String, i64)>, sqlx::Error> {
    let sources = drafts.iter().filter_map(|draft| draft.source);
    let sources: Vec<Value> = sources
        .map(|(run, seq)| json!({"run": run.to_string(), "seq": seq}))
        .collect();
    if sources.is_empty() {
        return Ok(HashSet::new());
    }
    let sources = Value::from(sources).to_string();
    let statement = transaction.choose([KNOWN_POSTGRES, KNOWN_SQLITE]);
    let known: Vec<(String, i64)> = transaction.rows(statement, &[sources.into()]).await?;
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
