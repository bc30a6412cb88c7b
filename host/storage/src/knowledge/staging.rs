//! Staging: a document's passages are written in batches before the document is visible.

use super::documents::{CollectionDocument, NewDocument, count_version, hide};
use super::{Collection, documents, owners};
use crate::audit_rows::{self, Draft};
use crate::column::{id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::shown_texts;
use crate::store::Store;
use crate::time::now_ms;
use sqlx::{AnyConnection, Row as _};
use uuid::Uuid;

/// What [`Store::stage_document`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// The same bytes are visible under this source, by the same recipe: there is nothing to do.
    Unchanged(CollectionDocument),
    /// The same but for its labels, which [`Store::label_document`] changes.
    OtherLabels(CollectionDocument),
    /// Passages are to be staged, from the number [`StagedDocument::passages`] on.
    Staged(StagedDocument),
}

/// A document whose passages this process writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedDocument {
    pub id: Uuid,
    pub collection: Uuid,
    /// Passages that are stored: more than 0 where an earlier attempt got so far.
    pub passages: u64,
}

/// A passage of a document that is being staged.
#[derive(Debug, Clone)]
pub struct NewPassage {
    /// Headings that it stands under, outermost first, each on a line.
    pub heading: String,
    pub text: String,
    /// Where it begins and ends in the document's text, in bytes of UTF-8.
    pub range: std::ops::Range<u64>,
    /// The words by which it is found: letters and digits only, separated by single spaces.
    pub words: String,
    /// Numbers of 16 bits (IEEE 754), little-endian; absent in a collection without vectors.
    pub vector: Option<Vec<u8>>,
}

/// Maximum numbers of documents, of passages, and of bytes of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub documents: u64,
    pub passages: u64,
    pub bytes: u64,
}

/// The quotas that a new document must fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    /// Bounds of the collection itself.
    pub collection: Quota,
    /// Bounds of all collections of the same [kind](super::CollectionKind) and owner together; absent: none.
    pub owner: Option<Quota>,
}

/// The holder of documents that a quota bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaHolder {
    Collection,
    /// All collections of an owner together.
    Owner,
}

impl std::fmt::Display for QuotaHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Collection => "the collection",
            Self::Owner => "the collections of this owner",
        })
    }
}

impl Quota {
    /// Compares the sums that `holder` would have with this quota.
    fn check(self, holder: QuotaHolder, would: Self) -> Result<(), PublishError> {
        for (what, would, most) in [
            ("documents", would.documents, self.documents),
            ("passages", would.passages, self.passages),
            ("bytes", would.bytes, self.bytes),
        ] {
            if would > most {
                return Err(PublishError::Quota {
                    holder,
                    what,
                    would,
                    most,
                });
            }
        }
        Ok(())
    }
}

/// Passages cannot be staged.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// Another process took the document over, or its collection was deleted.
    #[error(
        "the document is staged no more: its collection was deleted, or another process adds it"
    )]
    Lost,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A document cannot be made visible. It stays staged.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The sums would be over a quota.
    #[error("{holder} would hold {what}: {would} of at most {most}; delete some")]
    Quota {
        holder: QuotaHolder,
        /// `documents`, `passages` or `bytes`.
        what: &'static str,
        would: u64,
        most: u64,
    },
    /// As [`StagingError::Lost`].
    #[error(
        "the document is staged no more: its collection was deleted, or another process adds it"
    )]
    Lost,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for StagingError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<sqlx::Error> for PublishError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// Begins to add a document, or goes on where a process that died or gave up left it. Nobody finds it before
    /// [`Self::publish_document`].
    pub async fn stage_document(
        &self,
        collection: &Collection,
        new: &NewDocument<'_>,
    ) -> Result<Begun, StoreError> {
        if let Some(visible) = self.document_of(collection, new.source).await?
            && visible.digest == new.digest
            && visible.recipe == new.recipe
        {
            return Ok(if visible.labels == *new.labels {
                Begun::Unchanged(visible)
            } else {
                Begun::OtherLabels(visible)
            });
        }
        if let Some(left) = self.take_over(collection, new).await? {
            return Ok(Begun::Staged(left));
        }
        let labels =
            serde_json::to_string(new.labels).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let document = Uuid::now_v7();
        sqlx::query(
            "INSERT INTO documents (id, collection, source, title, media_type, digest, recipe, labels, bytes, \
             passages, words, state, holder, created_ms) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 'staged', $10, $11)",
        )
        .bind(document.to_string())
        .bind(collection.id.to_string())
        .bind(new.source)
        .bind(new.title)
        .bind(new.media_type)
        .bind(new.digest)
        .bind(new.recipe)
        .bind(labels)
        .bind(signed(new.bytes))
        .bind(self.process.name())
        .bind(signed(now_ms()))
        .execute(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(Begun::Staged(StagedDocument {
            id: document,
            collection: collection.id,
            passages: 0,
        }))
    }

    /// An equal document that was left staged, which is this process' from now on.
    async fn take_over(
        &self,
        collection: &Collection,
        new: &NewDocument<'_>,
    ) -> Result<Option<StagedDocument>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, holder, labels FROM documents WHERE collection = $1 AND state = 'staged' AND source = $2 \
             AND digest = $3 AND recipe = $4 ORDER BY passages DESC LIMIT 10",
        )
        .bind(collection.id.to_string())
        .bind(new.source)
        .bind(new.digest)
        .bind(new.recipe)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        for row in &rows {
            if documents::labels(row)? != *new.labels {
                continue;
            }
            let holder: Option<String> = row.try_get("holder")?;
            if let Some(holder) = &holder
                && self.process.keeps_leases(holder, &self.pool).await?
            {
                continue;
            }
            let taken = sqlx::query(
                "UPDATE documents SET holder = $1 WHERE id = $2 AND state = 'staged' \
                 AND (holder = $3 OR (holder IS NULL AND $3 IS NULL)) RETURNING id, passages",
            )
            .bind(self.process.name())
            .bind(id(row, "id")?.to_string())
            .bind(holder)
            .fetch_optional(&self.pool)
            .in_time(&self.database)
            .await?;
            if let Some(taken) = taken {
                return Ok(Some(StagedDocument {
                    id: id(&taken, "id")?,
                    collection: collection.id,
                    passages: unsigned(&taken, "passages")?,
                }));
            }
        }
        Ok(None)
    }

    /// Stores the next passages of a document that this process stages, in one transaction. On success
    /// [`StagedDocument::passages`] counts them.
    ///
    /// # Errors
    /// [`StagingError::Lost`]; or the database failed, and nothing was stored.
    pub async fn stage_passages(
        &self,
        staged: &mut StagedDocument,
        passages: &[NewPassage],
    ) -> Result<(), StagingError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            let words: u64 = passages.iter().map(NewPassage::word_count).sum();
            let counted = sqlx::query(
                "UPDATE documents SET passages = passages + $1, words = words + $2 \
                 WHERE id = $3 AND state = 'staged' AND holder = $4 AND passages = $5",
            )
            .bind(signed(passages.len() as u64))
            .bind(signed(words))
            .bind(staged.id.to_string())
            .bind(self.process.name())
            .bind(signed(staged.passages))
            .execute(&mut *transaction)
            .await?;
            if counted.rows_affected() == 0 {
                return Err(StagingError::Lost);
            }
            for (passage, number) in passages.iter().zip(staged.passages..) {
                insert(&mut transaction, staged, number, passage).await?;
            }
            Ok(transaction.commit().await?)
        };
        self.database.within(work).await?;
        staged.passages += passages.len() as u64;
        Ok(())
    }

    /// Whether a collection has room for a document of `source` with so many passages and bytes, in the place of the
    /// one that it has of this source. [`Self::publish_document`] asks again, because others add meanwhile.
    ///
    /// # Errors
    /// It has not, or was deleted; or the database failed.
    pub async fn check_room(
        &self,
        collection: &Collection,
        source: &str,
        (passages, bytes): (u64, u64),
        quotas: Quotas,
    ) -> Result<(), PublishError> {
        let row = sqlx::query(
            "SELECT collections.documents AS documents, collections.passages AS passages, \
             collections.bytes AS bytes, replaced.passages AS replaced_passages, replaced.bytes AS replaced_bytes \
             FROM collections LEFT JOIN documents AS replaced ON replaced.collection = collections.id \
             AND replaced.source = $2 AND replaced.state = 'visible' \
             WHERE collections.id = $1 AND collections.deleted_ms IS NULL",
        )
        .bind(collection.id.to_string())
        .bind(source)
        .fetch_optional(&self.pool)
        .in_time(&self.database)
        .await?;
        let row = row.ok_or(PublishError::Lost)?;
        let replaced = |column| row.try_get::<Option<i64>, _>(column);
        let (old_passages, old_bytes) =
            (replaced("replaced_passages")?, replaced("replaced_bytes")?);
        let with = |has: u64, old: Option<i64>, new: u64| {
            let old = old.unwrap_or_default().try_into().unwrap_or_default();
            has.saturating_sub(old).saturating_add(new)
        };
        let would = Quota {
            documents: unsigned(&row, "documents")? + u64::from(old_passages.is_none()),
            passages: with(unsigned(&row, "passages")?, old_passages, passages),
            bytes: with(unsigned(&row, "bytes")?, old_bytes, bytes),
        };
        quotas.collection.check(QuotaHolder::Collection, would)
    }

    /// Gives a document up that nobody will finish: [`Self::remove_gone_passages`] removes it.
    pub async fn discard_document(&self, staged: &StagedDocument) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE documents SET state = 'gone', holder = NULL \
             WHERE id = $1 AND state = 'staged' AND holder = $2",
        )
        .bind(staged.id.to_string())
        .bind(self.process.name())
        .execute(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(())
    }

    /// Gives a document up that cannot be finished now: whoever adds the same one next goes on where this stopped.
    pub async fn release_document(&self, staged: &StagedDocument) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE documents SET holder = NULL WHERE id = $1 AND state = 'staged' AND holder = $2",
        )
        .bind(staged.id.to_string())
        .bind(self.process.name())
        .execute(&self.pool)
        .in_time(&self.database)
        .await?;
        Ok(())
    }

    /// Makes a staged document visible in the place of the one that had its source.
    ///
    /// # Errors
    /// A quota is exceeded, the document is not staged by this process any more, or the database failed. It is not
    /// visible then, unless the reply to the commit was lost.
    pub async fn publish_document(
        &self,
        actor: &str,
        collection: &Collection,
        staged: &StagedDocument,
        quotas: Quotas,
    ) -> Result<(), PublishError> {
        let work = async {
            let mut transaction = self.pool.begin().await?;
            if !count_version(&mut transaction, collection.id).await? {
                return Err(PublishError::Lost);
            }
            let row = sqlx::query(
                "SELECT source, digest, bytes, passages, words FROM documents WHERE id = $1 AND state = 'staged' \
                 AND holder = $2 AND passages = $3",
            )
            .bind(staged.id.to_string())
            .bind(self.process.name())
            .bind(signed(staged.passages))
            .fetch_optional(&mut *transaction)
            .await?;
            let row = row.ok_or(PublishError::Lost)?;
            let source: String = row.try_get("source")?;
            if let Some(older) = hide(&mut transaction, collection.id, "source", &source).await? {
                shown_texts::document_replaced(&mut transaction, older.document, staged.id).await?;
            }
            sqlx::query("UPDATE documents SET state = 'visible', holder = NULL WHERE id = $1")
                .bind(staged.id.to_string())
                .execute(&mut *transaction)
                .await?;
            let sums = sqlx::query(
                "UPDATE collections SET documents = documents + 1, bytes = bytes + $2, passages = passages + $3, \
                 words = words + $4 WHERE id = $1 RETURNING documents, passages, bytes",
            )
            .bind(collection.id.to_string())
            .bind(row.try_get::<i64, _>("bytes")?)
            .bind(row.try_get::<i64, _>("passages")?)
            .bind(row.try_get::<i64, _>("words")?)
            .fetch_one(&mut *transaction)
            .await?;
            let would = Quota {
                documents: unsigned(&sums, "documents")?,
                passages: unsigned(&sums, "passages")?,
                bytes: unsigned(&sums, "bytes")?,
            };
            quotas.collection.check(QuotaHolder::Collection, would)?;
            let head = audit_rows::lock_head(&mut transaction).await?;
            if let Some(quota) = quotas.owner {
                check_owner(&mut transaction, collection, quota).await?;
            }
            let digest: String = row.try_get("digest")?;
            let draft =
                Draft::document_added(actor, collection.logged_name(), staged.id, &source, &digest);
            audit_rows::append_after(&mut transaction, head, &[&draft]).await?;
            Ok(transaction.commit().await?)
        };
        self.database.within(work).await
    }
}

/// Compares what the owner of `collection` holds in all collections of its kind with `quota`, in a transaction that holds
/// the lock of the audit log.
async fn check_owner(
    connection: &mut AnyConnection,
    collection: &Collection,
    quota: Quota,
) -> Result<(), PublishError> {
    let sums = owners::sums(connection, &collection.owner, collection.kind()).await?;
    let would = Quota {
        documents: sums.documents,
        passages: sums.passages,
        bytes: sums.bytes,
    };
    quota.check(QuotaHolder::Owner, would)
}

impl NewPassage {
    fn word_count(&self) -> u64 {
        self.words
            .split(' ')
            .filter(|word| !word.is_empty())
            .count() as u64
    }
}

async fn insert(
    connection: &mut AnyConnection,
    staged: &StagedDocument,
    number: u64,
    passage: &NewPassage,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO passages (document, collection, number, heading, text, starts, ends, words, vector) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(staged.id.to_string())
    .bind(staged.collection.simple().to_string())
    .bind(signed(number))
    // PostgreSQL's text type refuses NUL characters.
    .bind(passage.heading.replace('\0', ""))
    .bind(passage.text.replace('\0', " "))
    .bind(signed(passage.range.start))
    .bind(signed(passage.range.end))
    .bind(&passage.words)
    .bind(passage.vector.clone())
    .execute(connection)
    .await?;
    Ok(())
}
