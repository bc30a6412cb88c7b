//! Passages of collections for a run, as its owner may read them.

use crate::knowledge::ConfiguredKnowledge;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::HashSet;
use std::sync::Arc;
use toolhold_agent::retrieval::{RetrievalQuestion, Retriever};
use toolhold_knowledge::{CollectionPath, FoundPassage, SearchQuery};
use toolhold_protocol::knowledge::{Retrieval, Retrieved, RetrievedPassage};
use toolhold_storage::{Collection, CollectionDocument, Passage, Store, StoreError};
use uuid::Uuid;

/// Characters of a token, in the estimate of what passages take: texts of most languages have more.
const CHARACTERS_PER_TOKEN: usize = 3;
/// Documents that came with a run and are shown from their beginnings, at most.
const MAX_SHOWN_DOCUMENTS: u32 = 32;

/// Searches collections on behalf of a run's owner.
#[derive(Debug, Clone)]
pub struct StoredRetriever {
    knowledge: Arc<ConfiguredKnowledge>,
    store: Store,
    owner: String,
}

impl StoredRetriever {
    pub fn new(
        knowledge: Arc<ConfiguredKnowledge>,
        store: Store,
        owner: impl Into<String>,
    ) -> Self {
        Self {
            knowledge,
            store,
            owner: owner.into(),
        }
    }

    /// The collections that the owner may read, by the names under which the run has them. The others are noted.
    async fn collections(
        &self,
        retrieval: &Retrieval,
        notes: &mut Vec<String>,
    ) -> Result<Vec<(String, Collection)>, StoreError> {
        let mut found: Vec<(String, Collection)> = Vec::new();
        let attached = retrieval.attached.as_ref();
        for name in attached.into_iter().chain(&retrieval.collections) {
            let path = CollectionPath::read(&self.owner, name);
            let collection = self.store.collection(&self.owner, &path.owner, &path.name);
            match collection.await? {
                Some((collection, _)) if found.iter().any(|(_, it)| it.id == collection.id) => {}
                Some((collection, _)) => found.push((name.clone(), collection)),
                None => notes.push(format!(
                    "there is no collection {name:?}, or this run's owner may not read it"
                )),
            }
        }
        Ok(found)
    }

    async fn find(
        &self,
        question: &RetrievalQuestion,
        notes: &mut Vec<String>,
    ) -> Result<Vec<RetrievedPassage>, String> {
        let retrieval = &question.retrieval;
        let named = self.collections(retrieval, notes).await;
        let named = named.map_err(|error| error.to_string())?;
        let collections: Vec<Collection> = named.iter().map(|(_, it)| it.clone()).collect();
        let most = usize::try_from(retrieval.passages).unwrap_or(usize::MAX);
        let tokens = usize::try_from(retrieval.tokens).unwrap_or(usize::MAX);
        let mut chosen = ChosenPassages {
            named: &named,
            most,
            room: tokens.saturating_mul(CHARACTERS_PER_TOKEN),
            ids: HashSet::new(),
            passages: Vec::new(),
        };
        if !question.texts.is_empty() && !collections.is_empty() {
            let query = SearchQuery {
                texts: question.texts.clone(),
                most,
                most_characters: Some(chosen.room),
                ..SearchQuery::default()
            };
            let knowledge = &self.knowledge.knowledge;
            let found = knowledge.search(&self.owner, &collections, &query).await;
            for FoundPassage { passage, document } in
                found.map_err(|error| error.to_string())?.passages
            {
                chosen.take(passage, &document);
            }
        }
        if let Some(attached) = &retrieval.attached
            && let Some((_, collection)) = named.iter().find(|(name, _)| name == attached)
        {
            let shown = self.show_beginnings(collection, &mut chosen).await;
            shown.map_err(|error| error.to_string())?;
        }
        Ok(chosen.passages)
    }

    /// Fills the room that is left with the documents that came with the run, from their beginnings: "sum this up" names
    /// nothing that could be found in them.
    async fn show_beginnings(
        &self,
        collection: &Collection,
        chosen: &mut ChosenPassages<'_>,
    ) -> Result<(), StoreError> {
        let documents = self
            .store
            .visible_documents(&self.owner, collection.id, Uuid::nil(), MAX_SHOWN_DOCUMENTS)
            .await?;
        // The last ones came with this turn.
        for id in documents.into_iter().rev() {
            if chosen.is_full() {
                return Ok(());
            }
            let Some(document) = self.store.document(collection, id).await? else {
                continue;
            };
            let most = u32::try_from(chosen.most).unwrap_or(u32::MAX);
            let passages = self.store.passages_of(&self.owner, &document, 0, most);
            for passage in passages.await? {
                chosen.take(passage, &document);
            }
        }
        Ok(())
    }
}

impl Retriever for StoredRetriever {
    fn retrieve<'a>(&'a self, question: &'a RetrievalQuestion) -> BoxFuture<'a, Retrieved> {
        async move {
            let mut notes = Vec::new();
            let found = self.find(question, &mut notes).await;
            let passages = found.unwrap_or_else(|reason| {
                notes.push(format!("the collections could not be searched: {reason}"));
                Vec::new()
            });
            Retrieved {
                passages,
                notes,
                duration_ms: 0,
            }
        }
        .boxed()
    }
}

/// Passages that are shown, within their bounds.
struct ChosenPassages<'a> {
    named: &'a [(String, Collection)],
    most: usize,
    /// Characters that are left.
    room: usize,
    ids: HashSet<i64>,
    passages: Vec<RetrievedPassage>,
}

impl ChosenPassages<'_> {
    fn is_full(&self) -> bool {
        self.passages.len() >= self.most || self.room == 0
    }

    /// Adds a passage that fits and is not there yet.
    fn take(&mut self, passage: Passage, document: &CollectionDocument) {
        let characters = passage.text.chars().count();
        if self.is_full() || characters > self.room || !self.ids.insert(passage.id) {
            return;
        }
        self.room -= characters;
        let mut named = self.named.iter();
        let collection = named.find(|(_, it)| it.id == document.collection);
        self.passages.push(RetrievedPassage {
            passage: Some(passage.id),
            collection: collection.map_or_else(String::new, |(name, _)| name.clone()),
            source: document.source.clone(),
            title: document.title.clone(),
            heading: passage.heading,
            text: passage.text,
            ..RetrievedPassage::default()
        });
    }
}
