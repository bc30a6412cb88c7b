//! Redacts rows of older versions, which kept the texts of memory.
//!
//! A row is redacted once, when a store opens that finds it. Its text becomes a tombstone and its hash stays, so that the
//! hashes of later rows and heads that were kept elsewhere hold. In the same transaction the log gets a row with the
//! digests of the tombstones.

use crate::audit_rows::{self, Draft, MEMORY_TOOLS, link, tombstone, tombstone_digest};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use std::sync::LazyLock;
use std::time::Duration;

/// Rows of one transaction.
const BATCH_ROWS: i64 = 200;
/// Wait between two transactions, in which other writers can write.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// Rows of this version: their members are sorted, so the tool follows. It spares reading them one by one.
const SALTED: &str = "%\"texts\":\"salted\",\"tool\":\"knowledge.%";

/// Rows of a tool that were not looked at yet. Both databases find them by the index of tools.
const UNSEEN: &str = "tool = $1 AND number > \
     COALESCE((SELECT number FROM audit_redactions WHERE tool = $1), CAST(0 AS BIGINT))";

impl Store {
    /// Redacts what rows of older versions hold of memory. Returns the number of those rows.
    ///
    /// # Errors
    /// The database fails. A later call redacts the rest.
    pub(crate) async fn redact_older_rows(&self) -> Result<u64, StoreError> {
        let mut redacted = 0;
        for tool in MEMORY_TOOLS {
            while let Some(until) = self.newest_unseen(tool).await? {
                let batch = self.redact_some(tool, until).await?;
                redacted += batch.redacted;
                if batch.is_last {
                    break;
                }
                tokio::time::sleep(BATCH_DELAY).await;
            }
        }
        // SQLite's write-ahead log may have the texts, too.
        if redacted > 0 && self.database.is_file() && !self.empty_log().await? {
            tracing::warn!(
                "SQLite's write-ahead log still has texts that were redacted, because another process reads the \
                 database; the next removal of a document or a fact empties it"
            );
        }
        Ok(redacted)
    }

    /// The newest row that was not looked at yet. A store that finds none writes nothing.
    async fn newest_unseen(&self, tool: &str) -> Result<Option<i64>, sqlx::Error> {
        let statement =
            format!("SELECT number FROM audit WHERE {UNSEEN} ORDER BY number DESC LIMIT 1");
        // The statement consists of constants.
        sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
            .bind(tool)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await
    }

    /// Redacts the oldest unseen rows up to the row `until`.
    async fn redact_some(
        &self,
        tool: &'static str,
        until: i64,
    ) -> Result<RedactedBatch, StoreError> {
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                // The lock keeps two processes from redacting the same rows.
                let head = audit_rows::lock_head(&mut transaction).await?;
                let values = [tool.into(), until.into(), SALTED.into(), BATCH_ROWS.into()];
                let rows: Vec<(i64, String, String, String)> =
                    transaction.rows(OLDEST_UNSEEN.as_str(), &values).await?;
                let is_last = rows.len() < usize::try_from(BATCH_ROWS).unwrap_or_default();
                let (mut tombstones, mut seen) = (Vec::new(), until);
                for (number, entry, hash, before) in &rows {
                    let number = *number;
                    if !is_last {
                        seen = number;
                    }
                    let Some(text) = tombstone(entry) else {
                        continue;
                    };
                    if link(before, entry) != *hash {
                        // A tombstone would hide that somebody changed it.
                        tracing::warn!(
                            number,
                            "an entry of the audit log was changed, and is not redacted"
                        );
                        continue;
                    }
                    let digest = tombstone_digest(hash, &text);
                    let values = [text.into(), number.into()];
                    transaction.execute(EXCHANGE, &values).await?;
                    tombstones.push((number, digest));
                }
                if !tombstones.is_empty() {
                    let seal = Draft::texts_redacted(&tombstones);
                    audit_rows::append_after(&mut transaction, head, &[&seal]).await?;
                }
                // Another process may have come further meanwhile.
                transaction
                    .execute(LOOKED_AT, &[tool.into(), seen.into()])
                    .await?;
                Ok(RedactedBatch {
                    redacted: tombstones.len() as u64,
                    is_last,
                })
            })
        });
        work.await
    }
}

static OLDEST_UNSEEN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT number, entry, hash, COALESCE((SELECT older.hash FROM audit AS older \
         WHERE older.number = audit.number - 1), '') AS older_hash FROM audit WHERE {UNSEEN} \
         AND number <= $2 AND entry NOT LIKE $3 ORDER BY number LIMIT $4"
    )
});
const EXCHANGE: &str = "UPDATE audit SET entry = $1 WHERE number = $2";
const LOOKED_AT: &str = "INSERT INTO audit_redactions (tool, number) VALUES ($1, $2) ON CONFLICT (tool) DO UPDATE \
     SET number = excluded.number WHERE audit_redactions.number < excluded.number";

/// The work of one transaction.
struct RedactedBatch {
    redacted: u64,
    is_last: bool,
}
