//! Deletes old entries from the begin of the log.

use super::verify::AuditFault;
use crate::audit_rows::{self, Draft, ExpiredRange, PrunedBy, RECORD_REDACTED};
use crate::column::signed;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use serde_json::Value;
use std::time::Duration;
use thiserror::Error;

/// Entries of one transaction, which each have a row in the log.
const BATCH_ROWS: i64 = 5_000;
/// Entries that are read at once.
const PAGE_ROWS: i64 = 200;
/// Wait between two transactions, in which other writers can write.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// Why entries were not deleted.
#[derive(Debug, Error)]
pub enum ExpireError {
    /// Deletion would put the fault out of sight.
    #[error(
        "the audit log is not genuine ({fault}), so nothing is deleted from it; `toolhold audit verify` names all faults"
    )]
    NotGenuine { fault: AuditFault },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// The number of entries that [`Self::expire_audit`] would delete.
    pub async fn audit_entries_before(&self, ms: u64) -> Result<u64, StoreError> {
        let Some((first, last)) = self.expiring(ms).await? else {
            return Ok(0);
        };
        Ok(last.abs_diff(first) + 1)
    }

    /// Deletes the entries before the first one that was written at `ms` (milliseconds since 1970) or later. Each
    /// transaction adds a row that tells of them, so the log stays genuine. Returns their number.
    ///
    /// # Errors
    /// The log has a fault, or the database fails. What was deleted by then is.
    pub async fn expire_audit(&self, ms: u64, by: PrunedBy) -> Result<u64, ExpireError> {
        // While the log has the rows by which their ends are found.
        self.audit_left_in_files().await?;
        let Some((_, last)) = self.expiring(ms).await? else {
            return Ok(0);
        };
        let verified = self.verify_audit(None).await?;
        if let Some(fault) = verified.faults.into_iter().next() {
            return Err(ExpireError::NotGenuine { fault });
        }
        let mut gone = 0;
        loop {
            let batch = self.expire_some(last, ms, by).await?;
            if batch == 0 {
                return Ok(gone);
            }
            gone += batch;
            tokio::time::sleep(BATCH_DELAY).await;
        }
    }

    /// The first and the last entry that are to be deleted.
    async fn expiring(&self, ms: u64) -> Result<Option<(i64, i64)>, StoreError> {
        let (first, newest): (Option<i64>, Option<i64>) =
            sqlx::query_as("SELECT MIN(number), MAX(number) FROM audit")
                .fetch_one(&self.pool)
                .in_time(&self.database)
                .await?;
        let kept: Option<i64> =
            sqlx::query_scalar("SELECT MIN(number) FROM audit WHERE at_ms >= $1")
                .bind(signed(ms))
                .fetch_one(&self.pool)
                .in_time(&self.database)
                .await?;
        let mut last = kept.map(|kept| kept - 1).or(newest);
        if let Some(end) = last
            && let Some(needed) = self.first_needed(end).await?
        {
            // Its own hash is of the entry before it.
            last = Some(end.min(needed - 2));
        }
        Ok(first.zip(last).filter(|(first, last)| first <= last))
    }

    /// The first entry, of those up to `last`, without which the record of a run would count as changed: texts were taken
    /// out of it, and the run was not deleted.
    async fn first_needed(&self, last: i64) -> Result<Option<i64>, StoreError> {
        let mut after = 0;
        loop {
            let page: Vec<(i64, String)> = sqlx::query_as(
                "SELECT number, entry FROM audit WHERE action = $1 AND number > $2 AND number <= $3 \
                 ORDER BY number LIMIT $4",
            )
            .bind(RECORD_REDACTED)
            .bind(after)
            .bind(last)
            .bind(PAGE_ROWS)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
            for (number, entry) in &page {
                let entry: Value = serde_json::from_str(entry).unwrap_or_default();
                if let Some(run) = audit_rows::redacted_run(&entry)
                    && self.run(run).await?.is_some()
                {
                    return Ok(Some(*number));
                }
            }
            match page.last() {
                Some((number, _)) if page.len() == PAGE_ROWS as usize => after = *number,
                _ => return Ok(None),
            }
        }
    }

    /// Deletes the oldest entries up to the entry `last`. Returns their number.
    async fn expire_some(
        &self,
        last: i64,
        before_ms: u64,
        by: PrunedBy,
    ) -> Result<u64, StoreError> {
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                // The lock keeps two processes from telling of the same entries.
                let head = audit_rows::lock_head(&mut transaction).await?;
                let first: Option<(Option<i64>,)> = transaction
                    .row("SELECT MIN(number) FROM audit", &[])
                    .await?;
                let first = first.and_then(|(first,)| first);
                let Some(first) = first.filter(|first| *first <= last) else {
                    return Ok(0);
                };
                let end = last.min(first.saturating_add(BATCH_ROWS - 1));
                let newest: Option<(i64, String)> = transaction.row(NEWEST, &[end.into()]).await?;
                let (until, hash) = newest.ok_or(sqlx::Error::RowNotFound)?;
                for statement in [
                    "DELETE FROM audit WHERE number <= $1",
                    "DELETE FROM audit_salts WHERE number <= $1",
                ] {
                    transaction.execute(statement, &[until.into()]).await?;
                }
                let range = ExpiredRange {
                    from: first,
                    until,
                    hash: &hash,
                    before_ms,
                };
                let row = Draft::entries_expired(by, range);
                audit_rows::append_after(transaction, head, &[&row]).await?;
                Ok(until.abs_diff(first) + 1)
            })
        });
        work.await
    }
}

/// The newest entry up to $1.
const NEWEST: &str =
    "SELECT number, hash FROM audit WHERE number <= $1 ORDER BY number DESC LIMIT 1";
