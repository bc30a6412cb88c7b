//! Adds documents: text becomes passages with words and vectors, which are staged and then made visible.

use crate::embed::{Embedder, normalize};
use crate::error::AddError;
use crate::knowledge::{CollectionEmbedder, Knowledge};
use crate::split::{self, Structure, TextPassage, passages};
use crate::vectors::{WrongDimensions, encode};
use crate::words;
use std::collections::BTreeMap;
use toolhold_admission::WorkKind;
use toolhold_json::hex::sha256;
use toolhold_storage::{
    Begun, Collection, CollectionDocument, NewDocument, NewPassage, PublishError, StagedDocument,
};

/// Begins the part of a recipe that says how words were made.
pub(crate) const WORDS_PART: &str = ", words ";

/// Passages of one transaction, and of one request for vectors.
pub(crate) const BATCH: usize = 32;

/// Texts that are cut into passages.
const CUTS: WorkKind = WorkKind::new("passages of documents", 16);

/// Bytes of a document's source: PostgreSQL's index of sources takes rows of 2,704 bytes.
const MAX_SOURCE_BYTES: usize = 2_000;
const MAX_TITLE_BYTES: usize = 500;
const MAX_MEDIA_TYPE_BYTES: usize = 200;
/// Bytes of all labels of a document, their names included.
const MAX_LABEL_BYTES: usize = 2_000;

/// A document whose text is known.
#[derive(Debug, Clone)]
pub struct TextDocument {
    /// A path, a URL or a name: what takes its place later has the same.
    pub source: String,
    pub title: String,
    pub media_type: String,
    pub structure: Structure,
    /// SHA-256 of the bytes that the text was taken from, in hex.
    pub digest: String,
    /// What took the text out of them, with its version; absent where they are the text.
    pub extractor: Option<String>,
    pub text: String,
    pub labels: BTreeMap<String, String>,
}

/// What is known of a document before its text is taken out.
#[derive(Debug, Clone, Copy)]
pub struct UnreadDocument<'a> {
    pub source: &'a str,
    /// As [`TextDocument::digest`].
    pub digest: &'a str,
    /// As [`TextDocument::extractor`].
    pub extractor: &'a str,
    /// Of the text that the extractor makes.
    pub structure: Structure,
    pub labels: &'a BTreeMap<String, String>,
}

/// What became of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// It is visible.
    New { passages: u64 },
    /// It was visible already, made of the same bytes in the same way.
    Unchanged(CollectionDocument),
    /// The same, and it has the labels now.
    Labelled(CollectionDocument),
}

/// Whether what describes a document is within its bounds.
pub(crate) fn check_description(
    source: &str,
    title: &str,
    media_type: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), AddError> {
    let labels = labels.iter();
    let labels: Vec<&str> = labels.flat_map(|(name, value)| [&**name, value]).collect();
    for (what, texts, most) in [
        ("source", &[source][..], MAX_SOURCE_BYTES),
        ("title", &[title], MAX_TITLE_BYTES),
        ("media type", &[media_type], MAX_MEDIA_TYPE_BYTES),
        ("labels", &labels, MAX_LABEL_BYTES),
    ] {
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        if bytes > most || texts.iter().any(|text| text.contains('\0')) {
            return Err(AddError::Description { what, most });
        }
    }
    Ok(())
}

/// The digest of bytes, as [`TextDocument::digest`] has it.
pub fn digest(bytes: &[u8]) -> String {
    sha256(bytes)
}

impl Knowledge {
    /// Adds a document to a collection that `actor` may write, in the place of the one of the same source. `progress`
    /// is told how many passages are staged, of how many.
    ///
    /// # Errors
    /// The document is not visible then. Where a later attempt can go on, it stays staged: [`AddError::Embed`] and
    /// errors of the database. Where the collection has no room, what was staged is given up.
    pub async fn add(
        &self,
        actor: &str,
        collection: &Collection,
        document: &TextDocument,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Added, AddError> {
        let bytes = document.text.len() as u64;
        let most = self.settings.document_bytes;
        if bytes > most {
            return Err(AddError::TooLong { bytes, most });
        }
        check_description(
            &document.source,
            &document.title,
            &document.media_type,
            &document.labels,
        )?;
        let embedder = self.embedder_for(collection)?;
        let extractor = document.extractor.as_deref();
        let recipe = self.recipe(
            document.structure,
            extractor,
            embedder.map(|it| it.embedder),
        );
        let new = NewDocument {
            source: &document.source,
            title: &document.title,
            media_type: &document.media_type,
            digest: &document.digest,
            recipe: &recipe,
            labels: &document.labels,
            bytes,
        };
        let mut staged = match self.store.stage_document(collection, &new).await? {
            Begun::Unchanged(document) => return Ok(Added::Unchanged(document)),
            Begun::OtherLabels(document) => {
                return self.label(actor, collection, document, new.labels).await;
            }
            Begun::Staged(staged) => staged,
        };
        let time = self.settings.add_time;
        let stage = self.stage(&mut staged, collection, document, embedder, progress);
        let done = tokio::time::timeout(time, stage).await;
        let done = done.unwrap_or(Err(AddError::Late {
            seconds: time.as_secs(),
        }));
        let done = self.publish(actor, collection, &staged, done).await;
        done.map(|()| Added::New {
            passages: staged.passages,
        })
    }

    /// Makes a document visible whose passages were all staged, or gives it up.
    pub(crate) async fn publish(
        &self,
        actor: &str,
        collection: &Collection,
        staged: &StagedDocument,
        done: Result<(), AddError>,
    ) -> Result<(), AddError> {
        let done = match done {
            Ok(()) => self
                .store
                .publish_document(actor, collection, staged, self.settings.quotas)
                .await
                .map_err(AddError::from),
            Err(error) => Err(error),
        };
        let given_up = match &done {
            Ok(()) => Ok(()),
            Err(AddError::Publish(PublishError::Quota { .. })) => {
                self.store.discard_document(staged).await
            }
            Err(_) => self.store.release_document(staged).await,
        };
        if let Err(error) = given_up {
            tracing::warn!(%error, "a staged document was not given up; it is when this process ends");
        }
        done
    }

    /// Adds a document again whose bytes are visible already, made by the same extractor in the same way: its text need
    /// not be taken out once more. Absent: it must be.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub async fn add_again(
        &self,
        actor: &str,
        collection: &Collection,
        document: UnreadDocument<'_>,
    ) -> Result<Option<Added>, AddError> {
        let embedder = self.embedder_for(collection)?;
        let Some(visible) = self.store.document_of(collection, document.source).await? else {
            return Ok(None);
        };
        let recipe = self.recipe(
            document.structure,
            Some(document.extractor),
            embedder.map(|it| it.embedder),
        );
        if visible.digest != document.digest || visible.recipe != recipe {
            return Ok(None);
        }
        if visible.labels == *document.labels {
            return Ok(Some(Added::Unchanged(visible)));
        }
        let labelled = self
            .label(actor, collection, visible, document.labels)
            .await;
        labelled.map(Some)
    }

    pub(crate) async fn label(
        &self,
        actor: &str,
        collection: &Collection,
        mut document: CollectionDocument,
        labels: &BTreeMap<String, String>,
    ) -> Result<Added, AddError> {
        let store = &self.store;
        if !store
            .label_document(actor, collection, document.id, labels)
            .await?
        {
            return Err(AddError::Publish(PublishError::Lost));
        }
        document.labels.clone_from(labels);
        Ok(Added::Labelled(document))
    }

    pub(crate) fn embedder_for(
        &self,
        collection: &Collection,
    ) -> Result<Option<CollectionEmbedder<'_>>, AddError> {
        let Some(vectors) = &collection.vectors else {
            return Ok(None);
        };
        self.embedder_of(collection)
            .map(Some)
            .ok_or_else(|| AddError::OtherModel {
                expected: vectors.model.clone(),
                model: match &self.embedder {
                    Some(embedder) => embedder.model().to_owned(),
                    None => "no model".to_owned(),
                },
            })
    }

    /// Everything that the passages depend on but the bytes.
    fn recipe(
        &self,
        structure: Structure,
        extractor: Option<&str>,
        embedder: Option<&dyn Embedder>,
    ) -> String {
        let size = self.settings.passage;
        let extracted = extractor.map_or(String::new(), |name| format!("extract {name}, "));
        let cut = format!(
            "{extracted}split {} {structure:?} {} {}",
            split::VERSION,
            size.characters,
            size.overlap
        );
        self.recipe_of(&cut, embedder)
    }

    /// The same where `cut` says how the passages were cut.
    pub(crate) fn recipe_of(&self, cut: &str, embedder: Option<&dyn Embedder>) -> String {
        format!(
            "{cut}{}vectors {}",
            self.words_recipe(),
            embedder.map_or("none", Embedder::model),
        )
    }

    /// The part of a recipe that says how words were made, between its neighbours.
    pub(crate) fn words_recipe(&self) -> String {
        format!(
            "{WORDS_PART}{} {:?}, ",
            words::VERSION,
            self.settings.language
        )
    }

    async fn stage(
        &self,
        staged: &mut StagedDocument,
        collection: &Collection,
        document: &TextDocument,
        embedder: Option<CollectionEmbedder<'_>>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(), AddError> {
        // Cutting a long text takes a while: not on a thread that serves others.
        let (text, structure, size) = (
            document.text.clone(),
            document.structure,
            self.settings.passage,
        );
        let cut = CUTS.run(Some(&collection.owner), move || {
            let passages = passages(&text, structure, size)?;
            Ok::<_, text_splitter::ChunkConfigError>(passages.map(Cut::from).collect::<Vec<_>>())
        });
        let cut = cut.await.map_err(|error| AddError::Cut(error.into()))?;
        let cut = cut.map_err(|error| AddError::Cut(error.into()))?;
        if cut.is_empty() {
            return Err(AddError::Empty);
        }
        let all = cut.len() as u64;
        // Before all of it is written, and not only when it is made visible.
        let (source, bytes) = (&document.source, document.text.len() as u64);
        self.store
            .check_room(collection, source, (all, bytes), self.settings.quotas)
            .await?;
        let first = usize::try_from(staged.passages).unwrap_or(usize::MAX);
        for batch in cut.get(first..).unwrap_or_default().chunks(BATCH) {
            self.stage_batch(staged, embedder, batch).await?;
            progress(staged.passages, all);
        }
        Ok(())
    }

    /// Stores at most [`BATCH`] passages with their words and vectors.
    pub(crate) async fn stage_batch(
        &self,
        staged: &mut StagedDocument,
        embedder: Option<CollectionEmbedder<'_>>,
        batch: &[Cut],
    ) -> Result<(), AddError> {
        let vectors = match embedder {
            Some(embedder) => embed(embedder, batch).await?,
            None => vec![None; batch.len()],
        };
        let batch = batch.iter().zip(vectors);
        let batch: Vec<NewPassage> = batch
            .map(|(cut, vector)| NewPassage {
                heading: cut.heading.clone(),
                text: cut.text.clone(),
                range: cut.range.clone(),
                words: self.splitter.words(&cut.whole()),
                vector,
            })
            .collect();
        Ok(self.store.stage_passages(staged, &batch).await?)
    }
}

/// A passage with a text of its own.
#[derive(Debug)]
pub(crate) struct Cut {
    pub heading: String,
    /// As [`TextPassage::begins_with_heading`].
    pub begins_with_heading: bool,
    pub text: String,
    pub range: std::ops::Range<u64>,
}

impl Cut {
    /// A passage that was cut before.
    pub(crate) fn stored(heading: String, text: String, range: std::ops::Range<u64>) -> Self {
        let begins_with_heading = heading.lines().last().is_some_and(|last| {
            text.trim_start_matches('#').trim_start().starts_with(last) && text.starts_with('#')
        });
        Self {
            heading,
            begins_with_heading,
            text,
            range,
        }
    }

    /// By what it is found: a passage does not repeat what the headings above it say.
    pub(crate) fn whole(&self) -> String {
        let above = if self.begins_with_heading {
            self.heading
                .rsplit_once('\n')
                .map_or("", |(above, _)| above)
        } else {
            self.heading.as_str()
        };
        format!("{above}\n{}", self.text)
    }
}

impl From<TextPassage<'_>> for Cut {
    fn from(passage: TextPassage<'_>) -> Self {
        Self {
            heading: passage.heading,
            begins_with_heading: passage.begins_with_heading,
            text: passage.text.to_owned(),
            range: passage.range.start as u64..passage.range.end as u64,
        }
    }
}

async fn embed(
    CollectionEmbedder {
        embedder,
        dimensions,
    }: CollectionEmbedder<'_>,
    batch: &[Cut],
) -> Result<Vec<Option<Vec<u8>>>, AddError> {
    let texts: Vec<String> = batch.iter().map(Cut::whole).collect();
    let vectors = embedder.embed(&texts).await?;
    if vectors.len() != texts.len() {
        return Err(AddError::Count {
            model: embedder.model().to_owned(),
            vectors: vectors.len(),
            texts: texts.len(),
        });
    }
    let encoded = vectors.into_iter().map(|mut vector| {
        if vector.len() != dimensions {
            return Err(WrongDimensions {
                has: vector.len(),
                expected: dimensions,
            });
        }
        normalize(&mut vector);
        Ok(Some(encode(&vector)))
    });
    Ok(encoded.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::PassageSize;

    #[test]
    fn a_passage_is_found_by_each_heading_once() {
        let text = "# Fees\n\n## Cards\n\nA card costs five euro.\n\nAnother card costs as much as the first.\n";
        let size = PassageSize {
            characters: 50,
            overlap: 0,
        };
        let cut = passages(text, Structure::Markdown, size).unwrap();
        let cut: Vec<Cut> = cut.map(Cut::from).collect();
        assert!(cut.len() > 1);
        for cut in &cut {
            let whole = cut.whole();
            assert_eq!(whole.matches("Fees").count(), 1, "{whole:?}");
            assert!(whole.matches("Cards").count() <= 1, "{whole:?}");
        }
        let last = cut.last().unwrap().whole();
        assert!(last.starts_with("Fees\nCards\n"), "{last:?}");
    }
}
