//! Collections: what is searched together, shared together and has vectors of one kind.

use super::owners::{self, CollectionKind};
use crate::audit_rows::{self, CollectionName, Draft};
use crate::column::{id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::statements::SqlValue;
use crate::store::Store;
use crate::time::now_ms;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::num::NonZeroU32;
use uuid::Uuid;

/// A collection of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub id: Uuid,
    /// Name of the API key; empty for the user of this machine's terminal.
    pub owner: String,
    /// Unique among the owner's.
    pub name: String,
    /// Absent: its passages have no vectors, and are found by their words alone.
    pub vectors: Option<Vectors>,
    /// Counts the changes of what can be found.
    pub version: u64,
    /// Visible documents, their passages, the words of these, and the documents' bytes.
    pub documents: u64,
    pub passages: u64,
    pub words: u64,
    pub bytes: u64,
    /// Documents that were added longer ago are deleted. Absent: none is.
    pub keep_days: Option<NonZeroU32>,
    /// Milliseconds since 1970 (UTC).
    pub created_ms: u64,
}

/// The outcome of [`Store::create_collection`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectionCreation {
    Created,
    /// The owner has a collection of this name.
    NameTaken,
    /// The owner has as many collections of this kind as it may have.
    Full,
}

/// What makes the vectors of a collection. Vectors of different models cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vectors {
    /// The model, as its embedder names it.
    pub model: String,
    /// Numbers of a vector.
    pub dimensions: u32,
}

impl Collection {
    /// The kind, which its name tells.
    pub fn kind(&self) -> CollectionKind {
        CollectionKind::of_name(&self.name)
    }

    pub(super) fn logged_name(&self) -> CollectionName<'_> {
        CollectionName {
            owner: &self.owner,
            name: &self.name,
        }
    }
}

pub(super) const COLUMNS: &str = "id, owner, name, embedding, dimensions, version, documents, passages, words, bytes, \
     keep_days, created_ms";

impl Store {
    /// Creates an empty collection, unless `owner` has `most` of its [kind](CollectionKind) already; `None`: there is no
    /// bound.
    pub async fn create_collection(
        &self,
        owner: &str,
        name: &str,
        vectors: Option<&Vectors>,
        most: Option<u32>,
    ) -> Result<CollectionCreation, StoreError> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        let id = Uuid::now_v7();
        let values = [
            SqlValue::from(id),
            owner.clone().into(),
            name.clone().into(),
            vectors.map(|vectors| vectors.model.clone()).into(),
            vectors.map(|vectors| i64::from(vectors.dimensions)).into(),
            signed(now_ms()).into(),
        ];
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                // Before the lock: it waits for transactions that change a collection of this name, which take the lock
                // later.
                if transaction.execute(CREATE, &values).await? == 0 {
                    return Ok(CollectionCreation::NameTaken);
                }
                let head = audit_rows::lock_head(&mut transaction).await?;
                if let Some(most) = most {
                    let kind = CollectionKind::of_name(&name);
                    let sums = owners::sums(&mut transaction, &owner, kind).await?;
                    if sums.collections > u64::from(most) {
                        transaction
                            .execute("DELETE FROM collections WHERE id = $1", &[id.into()])
                            .await?;
                        return Ok(CollectionCreation::Full);
                    }
                }
                let draft = Draft::collection_created(&owner, &name);
                audit_rows::append_after(transaction, head, &[&draft]).await?;
                Ok(CollectionCreation::Created)
            })
        });
        work.await
    }

    /// Deletes documents of a collection from now on when they are older than `days`, on behalf of `actor`; `None`
    /// keeps them. Returns whether the collection exists.
    pub async fn keep_documents_for(
        &self,
        actor: &str,
        collection: &Collection,
        days: Option<NonZeroU32>,
    ) -> Result<bool, StoreError> {
        let (actor, collection) = (actor.to_owned(), collection.clone());
        let values = [
            SqlValue::from(collection.id),
            days.map(|days| i64::from(days.get())).into(),
        ];
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                if transaction.execute(KEEP, &values).await? == 0 {
                    return Ok(false);
                }
                let draft = Draft::collection_retention(&actor, collection.logged_name(), days);
                audit_rows::append(transaction, &[&draft]).await?;
                Ok(true)
            })
        });
        work.await
    }

    /// The version of a collection; `None` when it was deleted.
    pub async fn collection_version(&self, collection: Uuid) -> Result<Option<u64>, StoreError> {
        let row =
            sqlx::query("SELECT version FROM collections WHERE id = $1 AND deleted_ms IS NULL")
                .bind(collection.to_string())
                .fetch_optional(&self.pool)
                .in_time(&self.database)
                .await?;
        Ok(row
            .as_ref()
            .map(|row| unsigned(row, "version"))
            .transpose()?)
    }

    /// Deletes a collection with its documents. It is found no more at once; [`Self::remove_gone_passages`] removes
    /// what it held. Returns whether it still existed.
    pub async fn delete_collection(
        &self,
        actor: &str,
        collection: &Collection,
    ) -> Result<bool, StoreError> {
        let (actor, collection) = (actor.to_owned(), collection.clone());
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                let values = [collection.id.into(), signed(now_ms()).into()];
                if transaction.execute(DELETE, &values).await? == 0 {
                    return Ok(false);
                }
                let draft = Draft::collection_deleted(&actor, collection.logged_name());
                audit_rows::append(transaction, &[&draft]).await?;
                Ok(true)
            })
        });
        work.await
    }
}

const CREATE: &str = "INSERT INTO collections (id, owner, name, embedding, dimensions, version, documents, passages, \
     words, bytes, created_ms) VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 0, 0, $6) \
     ON CONFLICT (owner, name) WHERE deleted_ms IS NULL DO NOTHING";
const KEEP: &str = "UPDATE collections SET keep_days = $2 WHERE id = $1 AND deleted_ms IS NULL";
const DELETE: &str = "UPDATE collections SET deleted_ms = $2, version = version + 1 WHERE id = $1 AND deleted_ms IS NULL";

pub(super) fn collection(row: &AnyRow) -> Result<Collection, sqlx::Error> {
    let model: Option<String> = row.try_get("embedding")?;
    let dimensions: Option<i64> = row.try_get("dimensions")?;
    let vectors = model.zip(dimensions).map(|(model, dimensions)| Vectors {
        model,
        dimensions: u32::try_from(dimensions).unwrap_or_default(),
    });
    let days: Option<i64> = row.try_get("keep_days")?;
    Ok(Collection {
        id: id(row, "id")?,
        owner: row.try_get("owner")?,
        name: row.try_get("name")?,
        vectors,
        version: unsigned(row, "version")?,
        documents: unsigned(row, "documents")?,
        passages: unsigned(row, "passages")?,
        words: unsigned(row, "words")?,
        bytes: unsigned(row, "bytes")?,
        keep_days: days.and_then(|days| NonZeroU32::new(u32::try_from(days).ok()?)),
        created_ms: unsigned(row, "created_ms")?,
    })
}
