//! The search for passages: by words (BM25), by vectors (cosine), and by both, whose lists are fused.

use crate::embed::{EmbedError, normalize};
use crate::error::SearchError;
use crate::knowledge::Knowledge;
use crate::rank::{ScoredBy, ScoredList, fuse};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;
use toolhold_admission::WorkKind;
use toolhold_storage::{Collection, CollectionDocument, Passage, WordQuestion};
use uuid::Uuid;

/// Passages of one list before the lists are fused, for each that is asked for; what labels and diversity leave out
/// must not make the answer short.
const LIST_FACTOR: usize = 5;
const MIN_LIST: usize = 200;
const MAX_LIST: usize = 1_000;

/// Ways to put a question, each of which is a search of its own.
const MAX_TEXTS: usize = 8;
/// Bytes of all of them.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Scans of vectors, of which each search needs one for each collection.
const SCANS: WorkKind = WorkKind::new("scans of vectors", 16);

/// By what passages are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    Words,
    Vectors,
    /// Both, where there are vectors.
    #[default]
    Both,
}

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// One question, or several ways to put it.
    pub texts: Vec<String>,
    pub by: By,
    /// Labels that a document must have.
    pub labels: BTreeMap<String, String>,
    /// Passages at most.
    pub most: usize,
    /// Characters of their texts together, at most.
    pub most_characters: Option<usize>,
    /// Passages of one document, at most.
    pub most_of_document: Option<usize>,
}

impl SearchQuery {
    /// Whether it is within its bounds.
    fn check(&self) -> Result<(), SearchError> {
        let bytes = self.texts.iter().map(String::len).sum();
        for (what, has, most) in [
            ("texts", self.texts.len(), MAX_TEXTS),
            ("bytes", bytes, MAX_TEXT_BYTES),
        ] {
            if has > most {
                return Err(SearchError::Question { what, has, most });
            }
        }
        Ok(())
    }
}

/// The passages that were found, best first.
#[derive(Debug, Clone)]
pub struct Found {
    pub passages: Vec<FoundPassage>,
    /// Why the vectors of some collections did not count.
    pub without_vectors: Option<WithoutVectors>,
}

/// A passage with its document.
#[derive(Debug, Clone)]
pub struct FoundPassage {
    pub passage: Passage,
    pub document: Arc<CollectionDocument>,
}

/// Why passages were found by their words alone.
#[derive(Debug, Clone)]
pub enum WithoutVectors {
    /// The collection has none, or they are of a model that this process does not have.
    None,
    /// The model made no vector of the question.
    Failed(EmbedError),
}

impl Knowledge {
    /// Finds passages in those of `collections` that `reader` may read.
    ///
    /// # Errors
    /// The question is too long, the database failed, or the time of a search passed. An embedder that fails is no
    /// error: the words count alone, and [`Found::without_vectors`] says so.
    pub async fn search(
        &self,
        reader: &str,
        collections: &[Collection],
        question: &SearchQuery,
    ) -> Result<Found, SearchError> {
        question.check()?;
        let time = self.settings.search_time;
        let late = |_| SearchError::Late {
            seconds: time.as_secs(),
        };
        tokio::time::timeout(time, self.search_at_once(reader, collections, question))
            .await
            .map_err(late)?
    }

    async fn search_at_once(
        &self,
        reader: &str,
        collections: &[Collection],
        question: &SearchQuery,
    ) -> Result<Found, SearchError> {
        let ids: Vec<Uuid> = collections.iter().map(|collection| collection.id).collect();
        let length = question
            .most
            .saturating_mul(LIST_FACTOR)
            .clamp(MIN_LIST, MAX_LIST);
        let mut lists = Vec::new();
        if question.by != By::Vectors {
            if let Err(error) = self.renew_words(reader, collections).await {
                tracing::warn!(%error, "words of an older version were not made anew, and are not found");
            }
            for text in &question.texts {
                let question = WordQuestion {
                    words: &self.splitter.query(text),
                    labels: &question.labels,
                    most: u32::try_from(length).unwrap_or(u32::MAX),
                };
                let found = self.store.find_words(reader, &ids, question).await?;
                lists.push(ScoredList {
                    by: ScoredBy::Words,
                    passages: found.iter().map(|it| (it.passage, it.score)).collect(),
                });
            }
        }
        let mut without_vectors = None;
        if question.by != By::Words {
            match self
                .by_vectors(reader, collections, question, length)
                .await?
            {
                Ok(found) => lists.extend(found),
                Err(why) => without_vectors = Some(why),
            }
        }
        Ok(Found {
            passages: self.chosen(reader, &ids, fuse(&lists), question).await?,
            without_vectors,
        })
    }

    /// A list for each text of the question.
    async fn by_vectors(
        &self,
        reader: &str,
        collections: &[Collection],
        question: &SearchQuery,
        length: usize,
    ) -> Result<Result<Vec<ScoredList>, WithoutVectors>, SearchError> {
        let with_vectors = collections
            .iter()
            .filter_map(|it| Some((it, self.embedder_of(it)?)));
        let with_vectors: Vec<_> = with_vectors.collect();
        let Some((_, first)) = with_vectors.first() else {
            return Ok(Err(WithoutVectors::None));
        };
        let mut queries = match first.embedder.embed(&question.texts).await {
            Ok(queries) => queries,
            Err(error) => return Ok(Err(WithoutVectors::Failed(error))),
        };
        for query in &mut queries {
            normalize(query);
        }
        let queries = Arc::new(queries);
        let mut near: Vec<Vec<(i64, f32)>> = vec![Vec::new(); queries.len()];
        for (collection, of) in with_vectors {
            let table = self
                .tables
                .of(&self.store, collection, of.dimensions)
                .await?;
            let ends = Instant::now() + self.settings.search_time;
            let queries = queries.clone();
            // Tens of milliseconds for a large collection: not on a thread that serves others.
            let scan = SCANS.run(Some(reader), move || {
                let goes_on = || Instant::now() < ends;
                let found = queries
                    .iter()
                    .map(|query| table.nearest(query, length, &goes_on));
                found.collect::<Result<Vec<_>, _>>()
            });
            let found = scan.await.map_err(|error| {
                SearchError::Store(toolhold_storage::StoreError::Failed {
                    source: std::io::Error::from(error).into(),
                })
            })??;
            for (all, found) in near.iter_mut().zip(found) {
                all.extend(found);
            }
        }
        let lists = near.into_iter().map(|mut list| {
            list.sort_by(|(a, left), (b, right)| right.total_cmp(left).then(a.cmp(b)));
            list.truncate(length);
            let passages = list.into_iter();
            ScoredList {
                by: ScoredBy::Vectors,
                passages: passages.map(|(id, score)| (id, f64::from(score))).collect(),
            }
        });
        Ok(Ok(lists.collect()))
    }

    /// The first of `ranked` that have the labels, are unlike those before them, and fit.
    async fn chosen(
        &self,
        reader: &str,
        collections: &[Uuid],
        ranked: Vec<i64>,
        question: &SearchQuery,
    ) -> Result<Vec<FoundPassage>, SearchError> {
        let mut chosen: Vec<FoundPassage> = Vec::new();
        let (mut texts, mut of_document) = (HashSet::new(), HashMap::<Uuid, usize>::new());
        let mut room = question.most_characters.unwrap_or(usize::MAX);
        for page in ranked.chunks(question.most.clamp(10, MAX_LIST)) {
            let (passages, documents) = self.store.passages(reader, collections, page).await?;
            let documents: BTreeMap<Uuid, Arc<CollectionDocument>> = documents
                .into_iter()
                .map(|(id, document)| (id, Arc::new(document)))
                .collect();
            for passage in passages {
                if chosen.len() >= question.most {
                    return Ok(chosen);
                }
                let Some(document) = documents.get(&passage.document) else {
                    continue;
                };
                let has =
                    |(name, value): (&String, &String)| document.labels.get(name) == Some(value);
                if !question.labels.iter().all(has) {
                    continue;
                }
                let count = of_document.entry(document.id).or_default();
                if question.most_of_document.is_some_and(|most| *count >= most) {
                    continue;
                }
                let characters = passage.text.chars().count();
                // The same text under another source says nothing more.
                if characters > room || !texts.insert(self.splitter.words(&passage.text)) {
                    continue;
                }
                room -= characters;
                *count += 1;
                chosen.push(FoundPassage {
                    document: document.clone(),
                    passage,
                });
            }
        }
        Ok(chosen)
    }
}
