//! Removes what nobody finds any more: replaced and deleted documents, deleted collections, and documents that were
//! left staged. Texts of what was deleted are taken out of the records of runs, too (`redaction`).

use super::attached;
use super::collections::{COLUMNS, Collection, collection};
use crate::audit_rows::Draft;
use crate::column::{id, signed};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::shown_texts;
use crate::store::Store;
use sqlx::any::AnyRow;
use sqlx::{Connection as _, Row as _};
use std::time::Duration;
use uuid::Uuid;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Passages of one transaction.
const BATCH_ROWS: u64 = 200;
/// Wait after so many passages, in which other writers can write.
const BATCH_DELAY: Duration = Duration::from_millis(20);
/// Documents that are looked at in one round.
const ROUND: i64 = 100;
/// Emptying SQLite's write-ahead log waits so long for those who read, and lets nobody write meanwhile.
const EMPTYING: &str = "PRAGMA busy_timeout = 1000";

/// Documents to be removed. SQLite uses the index of documents that are not visible only where the query says so, too.
pub(crate) const GONE: &str = "SELECT id FROM documents WHERE state = 'gone' AND state <> 'visible' \
     UNION ALL SELECT documents.id FROM collections CROSS JOIN documents \
     WHERE documents.collection = collections.id AND collections.deleted_ms IS NOT NULL LIMIT $1";
/// Removes passages of one transaction.
const REMOVE_PASSAGES: &str = "DELETE FROM passages WHERE id IN \
     (SELECT id FROM passages WHERE document = $1 ORDER BY number LIMIT $2)";
/// Deleted collections whose documents are all removed.
pub(crate) const EMPTY: &str = "DELETE FROM collections WHERE deleted_ms IS NOT NULL \
     AND NOT EXISTS (SELECT 1 FROM documents WHERE documents.collection = collections.id)";

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedPassages {
    pub passages: u64,
    /// Records of runs that texts were taken out of.
    pub records: u64,
    /// Whether SQLite's write-ahead log still holds it, because somebody reads an older state of the database. The
    /// next removal that finds no such reader empties it. Always `false` for PostgreSQL, whose log is the server's.
    pub is_in_log: bool,
}

impl Store {
    /// Removes the passages of documents that were replaced or deleted, and of those that were staged before
    /// `staged_before_ms` by a process that lives no more. Takes what was deleted out of the records of ended runs.
    pub async fn remove_gone_passages(
        &self,
        staged_before_ms: u64,
    ) -> Result<RemovedPassages, StoreError> {
        let (mut removed, mut since_wait) = (0, 0);
        self.give_up_staged(staged_before_ms).await?;
        loop {
            let documents = self.gone_documents().await?;
            for document in &documents {
                let passages = self.remove_document(document).await?;
                removed += passages;
                since_wait += passages;
                if since_wait >= BATCH_ROWS {
                    since_wait = 0;
                    tokio::time::sleep(BATCH_DELAY).await;
                }
            }
            if documents.len() < usize::try_from(ROUND).unwrap_or_default() {
                break;
            }
        }
        self.remove_empty_collections().await?;
        let records = self.redact_all_records().await?;
        Ok(RemovedPassages {
            passages: removed,
            records,
            is_in_log: self.database.is_file() && !self.empty_log().await?,
        })
    }

    /// Writes SQLite's write-ahead log back and empties it: it holds what was removed, also what an earlier removal
    /// could not empty. Returns whether it is empty.
    pub(crate) async fn empty_log(&self) -> Result<bool, StoreError> {
        // One of its own, because of its patience.
        let mut connection = self.database.connect().await?;
        let emptied = async {
            sqlx::raw_sql(EMPTYING).execute(&mut connection).await?;
            let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
                .fetch_one(&mut connection)
                .await?;
            row.try_get::<i64, _>("busy")
        };
        let emptied = emptied.await;
        connection.close().await?;
        Ok(emptied? == 0)
    }

    /// Deletes documents that are older than their collections keep them, in the collections of all owners. Returns
    /// their number.
    pub async fn expire_all_documents(&self, now_ms: u64) -> Result<u64, StoreError> {
        let (mut expired, mut last) = (0, Uuid::nil());
        loop {
            let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
                "SELECT {COLUMNS} FROM collections WHERE keep_days IS NOT NULL AND deleted_ms IS NULL AND id > $1 \
                 ORDER BY id LIMIT $2"
            )))
            .bind(last.to_string())
            .bind(ROUND)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
            let Some(row) = rows.last() else {
                return Ok(expired);
            };
            last = id(row, "id")?;
            for row in &rows {
                expired += self.expire_documents(&collection(row)?, now_ms).await?;
            }
        }
    }

    /// Deletes the visible documents of a collection that are older than it keeps them. Returns their number.
    pub async fn expire_documents(
        &self,
        collection: &Collection,
        now_ms: u64,
    ) -> Result<u64, StoreError> {
        let Some(days) = collection.keep_days else {
            return Ok(0);
        };
        let ms = now_ms.saturating_sub(u64::from(days.get()).saturating_mul(DAY_MS));
        let mut expired = 0;
        loop {
            let rows = sqlx::query(
                "SELECT id FROM documents WHERE collection = $1 AND state = 'visible' AND created_ms < $2 \
                 ORDER BY id LIMIT $3",
            )
            .bind(collection.id.to_string())
            .bind(signed(ms))
            .bind(ROUND)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
            if rows.is_empty() {
                return Ok(expired);
            }
            for row in &rows {
                let document = id(row, "id")?;
                let of = collection.clone();
                let draft = move |source: &str| {
                    Draft::document_expired(of.logged_name(), document, source, days)
                };
                let taken = self.take_away(collection.id, document, draft);
                expired += u64::from(taken.await?);
            }
            tokio::time::sleep(BATCH_DELAY).await;
        }
    }

    async fn give_up_staged(&self, before_ms: u64) -> Result<(), StoreError> {
        let mut last = Uuid::nil();
        loop {
            let rows = sqlx::query(
                "SELECT id, holder FROM documents WHERE state = 'staged' AND state <> 'visible' AND created_ms < $1 \
                 AND id > $2 ORDER BY id LIMIT $3",
            )
            .bind(signed(before_ms))
            .bind(last.to_string())
            .bind(ROUND)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
            let Some(row) = rows.last() else {
                return Ok(());
            };
            last = id(row, "id")?;
            self.give_up(&rows).await?;
        }
    }

    async fn give_up(&self, rows: &[AnyRow]) -> Result<(), StoreError> {
        for row in rows {
            let holder: Option<String> = row.try_get("holder")?;
            if let Some(holder) = &holder
                && self.process.keeps_leases(holder, &self.pool).await?
            {
                continue;
            }
            self.execute(
                "UPDATE documents SET state = 'gone' WHERE id = $1 AND state = 'staged' \
                 AND (holder = $2 OR (holder IS NULL AND $2 IS NULL))",
                vec![id(row, "id")?.into(), holder.into()],
            )
            .await?;
        }
        Ok(())
    }

    async fn gone_documents(&self) -> Result<Vec<Uuid>, StoreError> {
        let rows = sqlx::query(GONE)
            .bind(ROUND)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let documents: Result<_, sqlx::Error> = rows.iter().map(|row| id(row, "id")).collect();
        Ok(documents?)
    }

    /// Removes a document in transactions of [`BATCH_ROWS`] passages, and then its row.
    async fn remove_document(&self, document: &Uuid) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let values = [(*document).into(), signed(BATCH_ROWS).into()];
            let gone = self.transact_long(move |mut transaction| {
                Box::pin(async move { transaction.execute(REMOVE_PASSAGES, &values).await })
            });
            let gone = gone.await?;
            removed += gone;
            if gone < BATCH_ROWS {
                break;
            }
            tokio::time::sleep(BATCH_DELAY).await;
        }
        self.note_gone_with_its_collection(document).await?;
        // In a deleted collection another process may still stage passages of it: the next removal finds it then.
        self.execute(
            "DELETE FROM documents WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM passages WHERE document = $1)",
            vec![(*document).into()],
        )
        .await?;
        Ok(removed)
    }

    /// Notes that a document was deleted that is still visible: its collection was. Documents that came with a task are
    /// deleted after the run's end, and the record of the run keeps what it was shown of them.
    async fn note_gone_with_its_collection(&self, document: &Uuid) -> Result<(), StoreError> {
        let statement = format!(
            "SELECT documents.id AS id FROM documents JOIN collections ON collections.id = documents.collection \
             WHERE documents.id = $1 AND documents.state = 'visible' AND collections.deleted_ms IS NOT NULL \
             AND collections.name NOT LIKE '{}%'",
            attached::PREFIX
        );
        // The statement consists of constants.
        let visible = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(document.to_string())
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
        if visible.is_some() {
            let document = *document;
            let work = self.transact(move |mut transaction| {
                Box::pin(
                    async move { shown_texts::document_deleted(&mut transaction, document).await },
                )
            });
            work.await?;
        }
        Ok(())
    }

    async fn remove_empty_collections(&self) -> Result<(), StoreError> {
        self.execute(EMPTY, Vec::new()).await?;
        Ok(())
    }
}
