//! What a search and an ingestion need.

use crate::embed::Embedder;
use crate::renewed::Renewed;
use crate::split::PassageSize;
use crate::tables::VectorTables;
use crate::words::{Language, WordSplitter};
use std::sync::Arc;
use std::time::Duration;
use toolhold_storage::{Collection, Quota, Quotas, Store};

/// What the operator settled.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The language by whose rules endings are taken off words.
    pub language: Language,
    pub passage: PassageSize,
    /// Bytes of a document's text.
    pub document_bytes: u64,
    /// Bounds of each collection, and of all collections of an owner together.
    pub quotas: Quotas,
    /// Bytes of vectors that are kept in memory between searches.
    pub vector_bytes: usize,
    /// How long a search may take.
    pub search_time: Duration,
    /// How long adding a document may take.
    pub add_time: Duration,
}

impl Settings {
    /// The settings of a server: all collections of a key together hold what one collection may.
    pub fn served() -> Self {
        let settings = Self::default();
        let owner = Some(settings.quotas.collection);
        Self {
            quotas: Quotas {
                owner,
                ..settings.quotas
            },
            ..settings
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            language: Language::default(),
            passage: PassageSize::default(),
            document_bytes: 16 << 20,
            quotas: Quotas {
                collection: Quota {
                    documents: 100_000,
                    passages: 1_000_000,
                    bytes: 4 << 30,
                },
                owner: None,
            },
            vector_bytes: 256 << 20,
            search_time: Duration::from_secs(10),
            add_time: Duration::from_mins(10),
        }
    }
}

/// Adds documents to collections and finds passages in them.
pub struct Knowledge {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) splitter: WordSplitter,
    pub(crate) tables: VectorTables,
    /// Collections whose passages all have words of this version.
    pub(crate) renewed: Renewed,
    /// What makes vectors; without it passages are found by their words alone.
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
}

impl Knowledge {
    pub fn new(store: Store, settings: Settings, embedder: Option<Arc<dyn Embedder>>) -> Self {
        Self {
            splitter: WordSplitter::new(settings.language),
            tables: VectorTables::new(settings.vector_bytes),
            renewed: Renewed::default(),
            store,
            settings,
            embedder,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The embedder of a collection's vectors, if this process has it.
    pub(crate) fn embedder_of(&self, collection: &Collection) -> Option<CollectionEmbedder<'_>> {
        let vectors = collection.vectors.as_ref()?;
        let embedder = self.embedder.as_deref()?;
        let dimensions = usize::try_from(vectors.dimensions).ok()?;
        (embedder.model() == vectors.model).then_some(CollectionEmbedder {
            embedder,
            dimensions,
        })
    }
}

/// What makes the vectors of a collection.
#[derive(Clone, Copy)]
pub(crate) struct CollectionEmbedder<'a> {
    pub embedder: &'a dyn Embedder,
    /// Numbers of each vector.
    pub dimensions: usize,
}

impl std::fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Knowledge")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
