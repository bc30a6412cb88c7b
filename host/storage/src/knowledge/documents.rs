//! Documents of collections.

use super::Collection;
use crate::audit_rows::{self, Draft};
use crate::column::{id, is_storable, parsed_id, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::shown_texts;
use crate::statements::OpenTransaction;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A document that is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionDocument {
    /// A UUIDv7.
    pub id: Uuid,
    pub collection: Uuid,
    /// A path, a URL or a name; unique among the visible documents of the collection.
    pub source: String,
    /// Shown to people and models; may be empty.
    pub title: String,
    pub media_type: String,
    /// SHA-256 of its bytes, in hex.
    pub digest: String,
    /// What made passages and vectors of it.
    pub recipe: String,
    pub labels: BTreeMap<String, String>,
    pub bytes: u64,
    pub passages: u64,
    /// Milliseconds since 1970 (UTC).
    pub created_ms: u64,
}

/// A document that is to be staged.
#[derive(Debug, Clone)]
pub struct NewDocument<'a> {
    pub source: &'a str,
    pub title: &'a str,
    pub media_type: &'a str,
    /// SHA-256 of its bytes, in hex.
    pub digest: &'a str,
    /// What makes passages and vectors of it, with versions.
    pub recipe: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub bytes: u64,
}

pub(super) const COLUMNS: &str = "id, collection, source, title, media_type, digest, recipe, labels, bytes, passages, created_ms";

impl Store {
    /// A visible document.
    pub async fn document(
        &self,
        collection: &Collection,
        document: Uuid,
    ) -> Result<Option<CollectionDocument>, StoreError> {
        self.document_where(collection, "id = $2", &document.to_string())
            .await
    }

    /// The visible document of a source.
    pub async fn document_of(
        &self,
        collection: &Collection,
        source: &str,
    ) -> Result<Option<CollectionDocument>, StoreError> {
        self.document_where(collection, "source = $2", source).await
    }

    async fn document_where(
        &self,
        collection: &Collection,
        condition: &'static str,
        value: &str,
    ) -> Result<Option<CollectionDocument>, StoreError> {
        if !is_storable(value) {
            return Ok(None);
        }
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM documents WHERE collection = $1 AND state = 'visible' AND {condition}"
        )))
        .bind(collection.id.to_string())
        .bind(value)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(row.as_ref().map(document).transpose()?)
    }

    /// Visible documents that are older than `before`, newest first.
    pub async fn documents(
        &self,
        collection: &Collection,
        before: Option<Uuid>,
        most: u32,
    ) -> Result<Vec<CollectionDocument>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM documents WHERE collection = $1 AND state = 'visible' AND id < $2 \
             ORDER BY id DESC LIMIT $3"
        )))
        .bind(collection.id.to_string())
        .bind(before.unwrap_or(Uuid::max()).to_string())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let documents: Result<_, sqlx::Error> = rows.iter().map(document).collect();
        Ok(documents?)
    }

    /// Gives a visible document other labels, on behalf of `actor`. Returns whether there was one.
    pub async fn label_document(
        &self,
        actor: &str,
        collection: &Collection,
        document: Uuid,
        labels: &BTreeMap<String, String>,
    ) -> Result<bool, StoreError> {
        let text =
            serde_json::to_string(labels).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let (actor, collection) = (actor.to_owned(), collection.clone());
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                // First, as in `delete_document`.
                lock_collection(&mut transaction, collection.id).await?;
                let values = [document.into(), collection.id.into(), text.into()];
                let labelled: Option<(String,)> = transaction.row(LABEL, &values).await?;
                let Some((source,)) = labelled else {
                    return Ok(false);
                };
                count_version(&mut transaction, collection.id).await?;
                let draft =
                    Draft::document_labelled(&actor, collection.logged_name(), document, &source);
                audit_rows::append(transaction, &[&draft]).await?;
                Ok(true)
            })
        });
        work.await
    }

    /// Deletes a visible document on behalf of `actor`: it is found no more, and its passages are removed by
    /// [`Self::remove_gone_passages`]. Returns whether there was one.
    pub async fn delete_document(
        &self,
        actor: &str,
        collection: &Collection,
        document: Uuid,
    ) -> Result<bool, StoreError> {
        let (actor, of) = (actor.to_owned(), collection.clone());
        self.take_away(collection.id, document, move |source| {
            Draft::document_deleted(&actor, of.logged_name(), document, source)
        })
        .await
    }

    /// Hides a visible document, and logs why. Returns whether there was one.
    pub(super) async fn take_away(
        &self,
        collection: Uuid,
        document: Uuid,
        draft: impl FnOnce(&str) -> Draft + Send + 'static,
    ) -> Result<bool, StoreError> {
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                // First, as publishing does: two transactions that take the same locks in one order do not deadlock.
                lock_collection(&mut transaction, collection).await?;
                let document = document.to_string();
                let hidden = hide(&mut transaction, collection, HIDE_BY_ID, &document).await?;
                let Some(hidden) = hidden else {
                    return Ok(false);
                };
                count_version(&mut transaction, collection).await?;
                shown_texts::document_deleted(&mut transaction, hidden.document).await?;
                audit_rows::append(transaction, &[&draft(&hidden.source)]).await?;
                Ok(true)
            })
        });
        work.await
    }
}

const LABEL: &str = "UPDATE documents SET labels = $3 WHERE id = $1 AND collection = $2 AND state = 'visible' RETURNING source";

/// Locks the collection until the transaction ends. Returns whether it exists.
pub(super) async fn lock_collection(
    transaction: &mut OpenTransaction<'_>,
    collection: Uuid,
) -> Result<bool, sqlx::Error> {
    // An update that changes nothing locks the row.
    let locked = transaction
        .execute(
            "UPDATE collections SET version = version WHERE id = $1 AND deleted_ms IS NULL",
            &[collection.into()],
        )
        .await?;
    Ok(locked > 0)
}

/// Counts a change of what can be found in the collection, and locks it until the transaction ends. Returns whether it
/// exists.
pub(super) async fn count_version(
    transaction: &mut OpenTransaction<'_>,
    collection: Uuid,
) -> Result<bool, sqlx::Error> {
    let counted = transaction
        .execute(
            "UPDATE collections SET version = version + 1 WHERE id = $1 AND deleted_ms IS NULL",
            &[collection.into()],
        )
        .await?;
    Ok(counted > 0)
}

/// A document that was taken out of its collection.
pub(super) struct HiddenDocument {
    pub document: Uuid,
    pub source: String,
}

/// The statements of [`hide`], by what is known of the document.
pub(super) const HIDE_BY_ID: &str = "UPDATE documents SET state = 'gone' WHERE collection = $1 AND state = 'visible' AND id = $2 \
     RETURNING id, source, bytes, passages, words";
pub(super) const HIDE_BY_SOURCE: &str = "UPDATE documents SET state = 'gone' WHERE collection = $1 AND state = 'visible' \
     AND source = $2 RETURNING id, source, bytes, passages, words";

/// Takes a visible document out of its collection: the one that `statement` finds by `value`.
pub(super) async fn hide(
    transaction: &mut OpenTransaction<'_>,
    collection: Uuid,
    statement: &'static str,
    value: &str,
) -> Result<Option<HiddenDocument>, sqlx::Error> {
    let values = [collection.into(), value.into()];
    let hidden: Option<(String, String, i64, i64, i64)> =
        transaction.row(statement, &values).await?;
    let Some((document, source, bytes, passages, words)) = hidden else {
        return Ok(None);
    };
    let values = [
        collection.into(),
        bytes.into(),
        passages.into(),
        words.into(),
    ];
    transaction.execute(LESS, &values).await?;
    Ok(Some(HiddenDocument {
        document: parsed_id(&document)?,
        source,
    }))
}

const LESS: &str = "UPDATE collections SET documents = documents - 1, bytes = bytes - $2, passages = passages - $3, \
     words = words - $4 WHERE id = $1";

pub(super) fn document(row: &AnyRow) -> Result<CollectionDocument, sqlx::Error> {
    Ok(CollectionDocument {
        id: id(row, "id")?,
        collection: id(row, "collection")?,
        source: row.try_get("source")?,
        title: row.try_get("title")?,
        media_type: row.try_get("media_type")?,
        digest: row.try_get("digest")?,
        recipe: row.try_get("recipe")?,
        labels: labels(row)?,
        bytes: unsigned(row, "bytes")?,
        passages: unsigned(row, "passages")?,
        created_ms: unsigned(row, "created_ms")?,
    })
}

pub(super) fn labels(row: &AnyRow) -> Result<BTreeMap<String, String>, sqlx::Error> {
    let labels: String = row.try_get("labels")?;
    serde_json::from_str(&labels).map_err(|error| sqlx::Error::Decode(error.into()))
}
