//! A collection as lines of JSON, which are read into another: each document is a line that describes it, followed by a
//! line for each of its passages. A line is short, so that neither side holds a whole document.
//!
//! Passages are read as they were cut, so that the same are found; words and vectors are made anew.

use crate::add::{BATCH, Cut, check_description};
use crate::error::AddError;
use crate::knowledge::Knowledge;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toolhold_storage::{
    Begun, Collection, CollectionDocument, NewDocument, Passage, StagedDocument, StoreError,
};
use uuid::Uuid;

/// Bytes of a line. A passage has a few thousand.
pub const MAX_LINE_BYTES: usize = 256 << 10;
/// Passages, and documents, of one query.
const PAGE: u32 = 200;
/// Bytes of an imported passage, and of its headings.
const MAX_PASSAGE_BYTES: usize = 32 << 10;
const MAX_HEADING_BYTES: usize = 4 << 10;
/// How the passages of imported documents were cut.
const RECIPE: &str = "imported 1";

/// A line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Document(DocumentLine),
    Passage(PassageLine),
}

/// Fields that a later version adds are passed over.
#[derive(Debug, Serialize, Deserialize)]
struct DocumentLine {
    source: String,
    title: String,
    media_type: String,
    /// SHA-256 of the bytes that its text was taken from, in hex.
    digest: String,
    labels: BTreeMap<String, String>,
    bytes: u64,
    /// Lines of passages that follow.
    passages: u64,
    /// When it was added. Of an imported document it is when it was imported.
    #[serde(default)]
    created_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct PassageLine {
    heading: String,
    text: String,
    starts: u64,
    ends: u64,
}

/// Reads a collection as lines, the oldest document first.
#[derive(Debug)]
pub struct ExportReader {
    store: toolhold_storage::Store,
    reader: String,
    collection: Collection,
    /// Documents that come next, the first one last.
    documents: Vec<Uuid>,
    last: Uuid,
    /// The document whose passages are read, and how many of them were.
    open: Option<(CollectionDocument, u64)>,
}

impl Knowledge {
    /// What `collection` holds, for a reader that may read it.
    pub fn export(&self, reader: &str, collection: &Collection) -> ExportReader {
        ExportReader {
            store: self.store.clone(),
            reader: reader.to_owned(),
            collection: collection.clone(),
            documents: Vec::new(),
            last: Uuid::nil(),
            open: None,
        }
    }
}

impl ExportReader {
    /// The next lines, each with its line break; `None` at the end. A document that is deleted meanwhile has fewer
    /// passages than its line says, and is not imported.
    ///
    /// # Errors
    /// The database failed.
    pub async fn next(&mut self) -> Result<Option<String>, StoreError> {
        loop {
            if let Some((document, read)) = &mut self.open {
                let page = self.store.passages_of(&self.reader, document, *read, PAGE);
                let page = page.await?;
                *read += page.len() as u64;
                if page.is_empty() || *read >= document.passages {
                    self.open = None;
                }
                if page.is_empty() {
                    continue;
                }
                let lines: Result<String, _> =
                    page.into_iter().map(|it| line(&passage(it))).collect();
                return lines.map(Some);
            }
            let Some(next) = self.documents.pop() else {
                let reader = &self.reader;
                let page =
                    self.store
                        .visible_documents(reader, self.collection.id, self.last, PAGE);
                self.documents = page.await?;
                let Some(last) = self.documents.last() else {
                    return Ok(None);
                };
                self.last = *last;
                self.documents.reverse();
                continue;
            };
            if let Some(document) = self.store.document(&self.collection, next).await? {
                let described = line(&describing(&document))?;
                self.open = Some((document, 0));
                return Ok(Some(described));
            }
        }
    }
}

fn describing(document: &CollectionDocument) -> Line {
    Line::Document(DocumentLine {
        source: document.source.clone(),
        title: document.title.clone(),
        media_type: document.media_type.clone(),
        digest: document.digest.clone(),
        labels: document.labels.clone(),
        bytes: document.bytes,
        passages: document.passages,
        created_ms: document.created_ms,
    })
}

fn passage(passage: Passage) -> Line {
    Line::Passage(PassageLine {
        heading: passage.heading,
        text: passage.text,
        starts: passage.starts,
        ends: passage.ends,
    })
}

fn line(line: &Line) -> Result<String, StoreError> {
    let text = serde_json::to_string(line);
    let text = text.map_err(|error| StoreError::Failed {
        source: std::io::Error::other(error).into(),
    })?;
    Ok(text + "\n")
}

/// A line was not imported. Documents before it are visible.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is no line of an export.
    #[error("line {line}: {reason}")]
    Line { line: u64, reason: String },
    /// A document cannot be added.
    #[error("line {line}: {document} is not added: {error}")]
    Add {
        line: u64,
        document: String,
        #[source]
        error: Box<AddError>,
    },
}

/// What an import did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportCounts {
    pub added: u64,
    pub passages: u64,
    /// They were there already.
    pub unchanged: u64,
}

/// Adds what lines say to a collection.
#[derive(Debug)]
pub struct Importer<'a> {
    knowledge: &'a Knowledge,
    actor: &'a str,
    collection: &'a Collection,
    lines: u64,
    counts: ImportCounts,
    open: Option<OpenDocument>,
}

/// The document whose passages are being read.
#[derive(Debug)]
struct OpenDocument {
    described: DocumentLine,
    /// Absent: it is there already, and its passages are passed over.
    staged: Option<StagedDocument>,
    batch: Vec<Cut>,
    /// Passages that were read.
    read: u64,
    /// Bytes of their texts.
    bytes: u64,
    /// Where the last one begins and ends.
    last: Option<(u64, u64)>,
}

impl Knowledge {
    /// Reads lines into a collection that `actor` may write.
    pub fn import<'a>(&'a self, actor: &'a str, collection: &'a Collection) -> Importer<'a> {
        Importer {
            knowledge: self,
            actor,
            collection,
            lines: 0,
            counts: ImportCounts::default(),
            open: None,
        }
    }
}

impl Importer<'_> {
    /// Reads the next line.
    ///
    /// # Errors
    /// The line is none of an export, or its document cannot be added. Nothing more can be imported.
    pub async fn line(&mut self, text: &str) -> Result<(), ImportError> {
        self.lines += 1;
        if text.trim().is_empty() {
            return Ok(());
        }
        let read: Line = match serde_json::from_str(text) {
            Ok(read) => read,
            Err(error) => return self.fail(error.to_string()).await,
        };
        match read {
            Line::Document(described) => {
                self.close().await?;
                self.begin(described).await
            }
            Line::Passage(passage) => self.passage(passage).await,
        }
    }

    /// Ends the last document.
    ///
    /// # Errors
    /// It has not all of its passages, or cannot be made visible.
    pub async fn finish(mut self) -> Result<ImportCounts, ImportError> {
        self.close().await?;
        Ok(self.counts)
    }

    /// Gives up the document whose passages were being read: the lines end before it does.
    pub async fn give_up(mut self) {
        self.release().await;
    }

    async fn begin(&mut self, described: DocumentLine) -> Result<(), ImportError> {
        let begun = self.stage(&described).await;
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => return Err(self.not_added(described.source, error)),
        };
        let staged = match begun {
            Begun::Unchanged(_) => None,
            Begun::OtherLabels(document) => {
                let (actor, labels) = (self.actor, &described.labels);
                let labelled = self
                    .knowledge
                    .label(actor, self.collection, document, labels);
                if let Err(error) = labelled.await {
                    return Err(self.not_added(described.source, error));
                }
                None
            }
            Begun::Staged(staged) => Some(staged),
        };
        self.counts.unchanged += u64::from(staged.is_none());
        self.open = Some(OpenDocument {
            described,
            staged,
            batch: Vec::with_capacity(BATCH),
            read: 0,
            bytes: 0,
            last: None,
        });
        Ok(())
    }

    async fn stage(&self, described: &DocumentLine) -> Result<Begun, AddError> {
        let knowledge = self.knowledge;
        let (bytes, most) = (described.bytes, knowledge.settings.document_bytes);
        if bytes > most {
            return Err(AddError::TooLong { bytes, most });
        }
        if described.passages == 0 {
            return Err(AddError::Empty);
        }
        check_description(
            &described.source,
            &described.title,
            &described.media_type,
            &described.labels,
        )?;
        let is_digest = described.digest.len() == 64
            && described
                .digest
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit());
        if !is_digest {
            return Err(AddError::Description {
                what: "digest",
                most: 64,
            });
        }
        let embedder = knowledge.embedder_for(self.collection)?;
        let recipe = knowledge.recipe_of(RECIPE, embedder.map(|it| it.embedder));
        let (source, quotas) = (&described.source, knowledge.settings.quotas);
        let needed = (described.passages, bytes);
        let store = &knowledge.store;
        store
            .check_room(self.collection, source, needed, quotas)
            .await?;
        let new = NewDocument {
            source,
            title: &described.title,
            media_type: &described.media_type,
            digest: &described.digest,
            recipe: &recipe,
            labels: &described.labels,
            bytes,
        };
        Ok(store.stage_document(self.collection, &new).await?)
    }

    async fn passage(&mut self, passage: PassageLine) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return self
                .fail("a passage has no document before it".to_owned())
                .await;
        };
        if let Err(reason) = open.take(passage) {
            return self.fail(reason).await;
        }
        if open.batch.len() >= BATCH {
            return self.store_batch().await;
        }
        Ok(())
    }

    async fn store_batch(&mut self) -> Result<(), ImportError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let batch = std::mem::take(&mut open.batch);
        let Some(staged) = &mut open.staged else {
            return Ok(());
        };
        let stored = match self.knowledge.embedder_for(self.collection) {
            Ok(embedder) => self.knowledge.stage_batch(staged, embedder, &batch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = stored {
            let source = open.described.source.clone();
            self.release().await;
            return Err(self.not_added(source, error));
        }
        Ok(())
    }

    /// Makes the open document visible.
    async fn close(&mut self) -> Result<(), ImportError> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        if open.read != open.described.passages {
            let reason = format!(
                "{} has {} of its {} passages: it was deleted while it was exported, or the file was cut off",
                open.described.source, open.read, open.described.passages
            );
            return self.fail(reason).await;
        }
        self.store_batch().await?;
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let Some(staged) = open.staged else {
            return Ok(());
        };
        let published = self
            .knowledge
            .publish(self.actor, self.collection, &staged, Ok(()));
        if let Err(error) = published.await {
            return Err(self.not_added(open.described.source, error));
        }
        self.counts.added += 1;
        self.counts.passages += open.read;
        Ok(())
    }

    async fn fail(&mut self, reason: String) -> Result<(), ImportError> {
        self.release().await;
        Err(ImportError::Line {
            line: self.lines,
            reason,
        })
    }

    async fn release(&mut self) {
        let staged = self.open.take().and_then(|open| open.staged);
        if let Some(staged) = staged
            && let Err(error) = self.knowledge.store.discard_document(&staged).await
        {
            tracing::warn!(%error, "a staged document was not given up; it is when this process ends");
        }
    }

    fn not_added(&self, source: String, error: AddError) -> ImportError {
        ImportError::Add {
            line: self.lines,
            document: source,
            error: Box::new(error),
        }
    }
}

impl OpenDocument {
    /// Takes a passage that may be the next one of the document.
    fn take(&mut self, passage: PassageLine) -> Result<(), String> {
        let PassageLine {
            heading,
            text,
            starts,
            ends,
        } = passage;
        if text.len() > MAX_PASSAGE_BYTES || heading.len() > MAX_HEADING_BYTES {
            return Err(format!(
                "a passage may have {MAX_PASSAGE_BYTES} bytes, and {MAX_HEADING_BYTES} of headings"
            ));
        }
        let is_next = self
            .last
            .is_none_or(|last| starts > last.0 && ends > last.1);
        let is_within =
            ends <= self.described.bytes && ends.checked_sub(starts) == Some(text.len() as u64);
        self.bytes += text.len() as u64;
        // Neighbours share a part of their texts, and less than half.
        let is_too_much = self.bytes > self.described.bytes.saturating_mul(2);
        if !is_next || !is_within || is_too_much || self.read >= self.described.passages {
            return Err(format!(
                "the passage at bytes {starts} to {ends} is not the next one of {}",
                self.described.source
            ));
        }
        self.last = Some((starts, ends));
        // What an attempt before stored is there.
        let held = self.batch.len() as u64;
        let is_needed = |staged: &StagedDocument| self.read >= staged.passages + held;
        if self.staged.as_ref().is_some_and(is_needed) {
            self.batch.push(Cut::stored(heading, text, starts..ends));
        }
        self.read += 1;
        Ok(())
    }
}
