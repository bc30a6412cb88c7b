//! Reads passages and vectors of visible documents.

use super::access::READABLE;
use super::documents::{self, CollectionDocument};
use crate::column::{id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// A passage of a visible document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    pub id: i64,
    /// From 0 on within the document.
    pub number: u64,
    /// Headings that it stands under, outermost first, each on a line.
    pub heading: String,
    pub text: String,
    /// Where it begins and ends in the document's text, in bytes of UTF-8.
    pub starts: u64,
    pub ends: u64,
    pub document: Uuid,
}

/// The vector of a visible passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorRow {
    pub passage: i64,
    /// The passage's number within its document.
    pub number: u64,
    /// Numbers of 16 bits (IEEE 754), little-endian.
    pub vector: Vec<u8>,
}

/// Passages whose ids stand in one statement.
const IDS: usize = 200;

impl Store {
    /// Passages of visible documents of those `collections` that `reader` may read, in the order of `ids`; those that
    /// are not found are left out. With them, their documents.
    pub async fn passages(
        &self,
        reader: &str,
        collections: &[Uuid],
        ids: &[i64],
    ) -> Result<(Vec<Passage>, BTreeMap<Uuid, CollectionDocument>), StoreError> {
        let mut found = HashMap::new();
        let mut of = BTreeMap::new();
        for ids in ids.chunks(IDS) {
            let list: Vec<String> = ids.iter().map(i64::to_string).collect();
            // Numbers only.
            let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
                "SELECT passages.id AS passage, number, heading, text, starts, ends, {} FROM passages \
                 JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
                 JOIN collections ON collections.id = documents.collection AND {READABLE} \
                 WHERE passages.id IN ({})",
                document_columns(),
                list.join(", "),
            )))
            .bind(reader)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
            for row in &rows {
                let document = documents::document(row)?;
                if collections.contains(&document.collection) {
                    let passage = passage(row, document.id)?;
                    found.insert(passage.id, passage);
                    of.insert(document.id, document);
                }
            }
        }
        let passages = ids.iter().filter_map(|id| found.remove(id)).collect();
        Ok((passages, of))
    }

    /// A visible document that `reader` may read, of whatever collection.
    pub async fn readable_document(
        &self,
        reader: &str,
        document: Uuid,
    ) -> Result<Option<CollectionDocument>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {} FROM documents \
             JOIN collections ON collections.id = documents.collection AND {READABLE} \
             WHERE documents.id = $2 AND documents.state = 'visible'",
            document_columns(),
        )))
        .bind(reader)
        .bind(document.to_string())
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(row.as_ref().map(documents::document).transpose()?)
    }

    /// Bytes of the texts of a page of a document's passages.
    pub async fn passages_bytes(
        &self,
        document: &CollectionDocument,
        first: u64,
        most: u32,
    ) -> Result<u64, StoreError> {
        let bytes: i64 = sqlx::query_scalar(
            "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM (SELECT OCTET_LENGTH(text) + OCTET_LENGTH(heading) AS bytes \
             FROM passages WHERE document = $1 AND number >= $2 ORDER BY number LIMIT $3) AS page",
        )
        .bind(document.id.to_string())
        .bind(signed(first))
        .bind(i64::from(most))
        .fetch_one(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// Passages of a visible document that `reader` may read, from the number `first` on.
    pub async fn passages_of(
        &self,
        reader: &str,
        document: &CollectionDocument,
        first: u64,
        most: u32,
    ) -> Result<Vec<Passage>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT passages.id AS passage, number, heading, text, starts, ends FROM passages \
             JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
             JOIN collections ON collections.id = documents.collection AND {READABLE} \
             WHERE passages.document = $2 AND number >= $3 ORDER BY number LIMIT $4",
        )))
        .bind(reader)
        .bind(document.id.to_string())
        .bind(signed(first))
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let passages: Result<_, sqlx::Error> =
            rows.iter().map(|row| passage(row, document.id)).collect();
        Ok(passages?)
    }

    /// The ids of the visible documents of a collection that `reader` may read, oldest first, after `after`.
    pub async fn visible_documents(
        &self,
        reader: &str,
        collection: Uuid,
        after: Uuid,
        most: u32,
    ) -> Result<Vec<Uuid>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT documents.id AS id FROM documents \
             JOIN collections ON collections.id = documents.collection AND {READABLE} \
             WHERE collection = $2 AND state = 'visible' AND documents.id > $3 ORDER BY documents.id LIMIT $4",
        )))
        .bind(reader)
        .bind(collection.to_string())
        .bind(after.to_string())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let documents: Result<_, sqlx::Error> = rows.iter().map(|row| id(row, "id")).collect();
        Ok(documents?)
    }

    /// Vectors of the passages of a visible document that `reader` may read, from the number `first` on.
    pub async fn vectors(
        &self,
        reader: &str,
        document: Uuid,
        first: u64,
        most: u32,
    ) -> Result<Vec<VectorRow>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT passages.id AS passage, number, vector FROM passages \
             JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
             JOIN collections ON collections.id = documents.collection AND {READABLE} \
             WHERE passages.document = $2 AND number >= $3 AND vector IS NOT NULL ORDER BY number LIMIT $4",
        )))
        .bind(reader)
        .bind(document.to_string())
        .bind(signed(first))
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let vectors = rows.iter().map(|row| {
            Ok(VectorRow {
                passage: row.try_get("passage")?,
                number: unsigned(row, "number")?,
                vector: row.try_get("vector")?,
            })
        });
        let vectors: Result<_, sqlx::Error> = vectors.collect();
        Ok(vectors?)
    }
}

fn document_columns() -> String {
    let columns = documents::COLUMNS.split(", ");
    let columns: Vec<String> = columns
        .map(|column| format!("documents.{column} AS {column}"))
        .collect();
    columns.join(", ")
}

fn passage(row: &AnyRow, document: Uuid) -> Result<Passage, sqlx::Error> {
    Ok(Passage {
        id: row.try_get("passage")?,
        number: unsigned(row, "number")?,
        heading: row.try_get("heading")?,
        text: row.try_get("text")?,
        starts: unsigned(row, "starts")?,
        ends: unsigned(row, "ends")?,
        document,
    })
}
