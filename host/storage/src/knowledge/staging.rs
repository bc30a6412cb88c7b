//! Staging: a document's passages are written in batches before the document is visible.

use super::documents::{CollectionDocument, HIDE_BY_SOURCE, NewDocument, count_version, hide};
use super::{Collection, documents, owners};
use crate::audit_rows::{self, Draft};
use crate::column::{id, parsed_id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::shown_texts;
use crate::statements::{OpenTransaction, SqlValue};
use crate::store::Store;
use crate::time::now_ms;
use sqlx::Row as _;
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
        let values = vec![
            document.into(),
            collection.id.into(),
            new.source.to_owned().into(),
            new.title.to_owned().into(),
            new.media_type.to_owned().into(),
            new.digest.to_owned().into(),
            new.recipe.to_owned().into(),
            labels.into(),
            signed(new.bytes).into(),
            self.process.name().to_owned().into(),
            signed(now_ms()).into(),
        ];
        self.execute(STAGE, values).await?;
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
            let values = vec![
                self.process.name().to_owned().into(),
                id(row, "id")?.into(),
                holder.into(),
            ];
            let taken: Option<(String, i64)> = self.row(TAKE_OVER, values).await?;
            if let Some((document, passages)) = taken {
                return Ok(Some(StagedDocument {
                    id: parsed_id(&document)?,
                    collection: collection.id,
                    passages: u64::try_from(passages).unwrap_or_default(),
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
        let words: u64 = passages.iter().map(NewPassage::word_count).sum();
        let counts = [
            SqlValue::from(signed(passages.len() as u64)),
            signed(words).into(),
            staged.id.into(),
            self.process.name().to_owned().into(),
            signed(staged.passages).into(),
        ];
        let rows = passages.iter().zip(staged.passages..);
        let rows: Vec<[SqlValue<'static>; 9]> = rows
            .map(|(passage, number)| passage.values(staged, number))
            .collect();
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                if transaction.execute(COUNT_STAGED, &counts).await? == 0 {
                    return Err(StagingError::Lost);
                }
                for row in &rows {
                    transaction.execute(INSERT, row).await?;
                }
                Ok(())
            })
        });
        work.await?;
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
        self.execute(DISCARD, self.staged_here(staged)).await?;
        Ok(())
    }

    /// Gives a document up that cannot be finished now: whoever adds the same one next goes on where this stopped.
    pub async fn release_document(&self, staged: &StagedDocument) -> Result<(), StoreError> {
        self.execute(RELEASE, self.staged_here(staged)).await?;
        Ok(())
    }

    /// The document and this process, as the parameters of a statement.
    fn staged_here(&self, staged: &StagedDocument) -> Vec<SqlValue<'static>> {
        vec![staged.id.into(), self.process.name().to_owned().into()]
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
        let (actor, collection) = (actor.to_owned(), collection.clone());
        let (holder, document) = (self.process.name().to_owned(), staged.id);
        let staged_passages = signed(staged.passages);
        let work = self.transact(move |mut transaction| {
            Box::pin(async move {
                if !count_version(&mut transaction, collection.id).await? {
                    return Err(PublishError::Lost);
                }
                let values = [document.into(), (&holder).into(), staged_passages.into()];
                let row: Option<(String, String, i64, i64, i64)> =
                    transaction.row(STAGED, &values).await?;
                let (source, digest, bytes, passages, words) = row.ok_or(PublishError::Lost)?;
                let older = hide(&mut transaction, collection.id, HIDE_BY_SOURCE, &source).await?;
                if let Some(older) = older {
                    shown_texts::document_replaced(&mut transaction, older.document, document)
                        .await?;
                }
                transaction.execute(SHOW, &[document.into()]).await?;
                let values = [
                    collection.id.into(),
                    bytes.into(),
                    passages.into(),
                    words.into(),
                ];
                let sums: Option<(i64, i64, i64)> = transaction.row(MORE, &values).await?;
                let sums = sums.ok_or(PublishError::Lost)?;
                let would = Quota {
                    documents: u64::try_from(sums.0).unwrap_or_default(),
                    passages: u64::try_from(sums.1).unwrap_or_default(),
                    bytes: u64::try_from(sums.2).unwrap_or_default(),
                };
                quotas.collection.check(QuotaHolder::Collection, would)?;
                let head = audit_rows::lock_head(&mut transaction).await?;
                if let Some(quota) = quotas.owner {
                    check_owner(&mut transaction, &collection, quota).await?;
                }
                let named = collection.logged_name();
                let draft = Draft::document_added(&actor, named, document, &source, &digest);
                audit_rows::append_after(transaction, head, &[&draft]).await?;
                Ok(())
            })
        });
        work.await
    }
}

const STAGE: &str = "INSERT INTO documents (id, collection, source, title, media_type, digest, recipe, labels, bytes, \
     passages, words, state, holder, created_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 'staged', $10, $11)";
const TAKE_OVER: &str = "UPDATE documents SET holder = $1 WHERE id = $2 AND state = 'staged' \
     AND (holder = $3 OR (holder IS NULL AND $3 IS NULL)) RETURNING id, passages";
const COUNT_STAGED: &str = "UPDATE documents SET passages = passages + $1, words = words + $2 \
     WHERE id = $3 AND state = 'staged' AND holder = $4 AND passages = $5";
const DISCARD: &str = "UPDATE documents SET state = 'gone', holder = NULL WHERE id = $1 AND state = 'staged' AND holder = $2";
const RELEASE: &str =
    "UPDATE documents SET holder = NULL WHERE id = $1 AND state = 'staged' AND holder = $2";
const STAGED: &str = "SELECT source, digest, bytes, passages, words FROM documents WHERE id = $1 AND state = 'staged' \
     AND holder = $2 AND passages = $3";
const SHOW: &str = "UPDATE documents SET state = 'visible', holder = NULL WHERE id = $1";
const MORE: &str = "UPDATE collections SET documents = documents + 1, bytes = bytes + $2, passages = passages + $3, \
     words = words + $4 WHERE id = $1 RETURNING documents, passages, bytes";
const INSERT: &str = "INSERT INTO passages (document, collection, number, heading, text, starts, ends, words, vector) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Compares what the owner of `collection` holds in all collections of its kind with `quota`, in a transaction that holds
/// the lock of the audit log.
async fn check_owner(
    transaction: &mut OpenTransaction<'_>,
    collection: &Collection,
    quota: Quota,
) -> Result<(), PublishError> {
    let sums = owners::sums(transaction, &collection.owner, collection.kind()).await?;
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

    /// The parameters of [`INSERT`], as the passage `number` of a document.
    fn values(&self, staged: &StagedDocument, number: u64) -> [SqlValue<'static>; 9] {
        [
            staged.id.into(),
            staged.collection.simple().to_string().into(),
            signed(number).into(),
            // PostgreSQL's text type refuses NUL characters.
            self.heading.replace('\0', "").into(),
            self.text.replace('\0', " ").into(),
            signed(self.range.start).into(),
            signed(self.range.end).into(),
            self.words.clone().into(),
            self.vector.clone().into(),
        ]
    }
}
