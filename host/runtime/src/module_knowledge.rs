//! The knowledge that modules reach: implements the sandbox's [`KnowledgeAccess`] over the collections and facts in the
//! store of runs.
//!
//! The store and the model are opened when the first module asks, once in a process.

use crate::config::Configuration;
use crate::knowledge::{self, ConfiguredKnowledge};
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};
use toolhold_admission::own_work;
use toolhold_knowledge::{By, CollectionPath, SearchError, SearchQuery, Settings};
use toolhold_policy::call::{
    FactQuery, FactToRemember, FoundPassages, KnowledgeAccess, KnowledgeCall, KnowledgeDocument,
    KnowledgeError, KnowledgePassage, KnowledgeResult, PassageQuery, ReadPlace, RememberedFact,
    SearchBy,
};
use toolhold_policy::{CollectionRight, MemoryRight, MemoryScope};
use toolhold_storage::{
    Collection, CollectionDocument, Fact, FactQuota, FactScope, ForgetExtent, MembershipState,
    MemoryError, NewFact, Passage, Store, StoreError,
};
use uuid::Uuid;

/// Questions that are answered at a time, of all calls: each takes a thread and connections of the database. Others wait
/// in the order in which they came, for as long as their calls do.
const PARALLEL_QUESTIONS: usize = 4;
/// Collections of a caller, of which a grant gives some.
const MAX_COLLECTIONS: u32 = 1_000;
/// Maximum number of collections of one search: a key's own, and as many that it accepted.
const MAX_SEARCHED: usize = 200;

/// Opens the store of runs. Called on a thread that waits for it alone.
pub type OpenStore = for<'a> fn(&'a Configuration) -> LocalBoxFuture<'a, anyhow::Result<Store>>;

/// What modules of a process may ask.
#[derive(Debug)]
pub struct ModuleKnowledge {
    config: Configuration,
    open_store: OpenStore,
    opened: OnceCell<Arc<Opened>>,
    questions: Semaphore,
}

#[derive(Debug)]
struct Opened {
    store: Store,
    configured: ConfiguredKnowledge,
}

impl ModuleKnowledge {
    /// Opens nothing yet.
    pub fn new(config: &Configuration, open_store: OpenStore) -> Self {
        Self {
            config: config.clone(),
            open_store,
            opened: OnceCell::new(),
            questions: Semaphore::new(PARALLEL_QUESTIONS),
        }
    }

    async fn opened(&self) -> Result<Arc<Opened>, KnowledgeError> {
        let opened = self.opened.get_or_try_init(|| {
            let (config, open_store) = (self.config.clone(), self.open_store);
            let runtime = Handle::current();
            // On a thread of its own: the future of sqlx's migrations cannot go from one to another.
            let opening = own_work(move || runtime.block_on(open(&config, open_store)));
            async { opening.await? }
        });
        let opened: anyhow::Result<&Arc<Opened>> = opened.await;
        opened.cloned().map_err(|error| {
            // Paths of this machine are none of the guest's business.
            tracing::warn!(error = format!("{error:#}"), "modules reach no knowledge");
            KnowledgeError::Unavailable("the host's documents and facts cannot be opened".into())
        })
    }

    /// Waits until a question may be answered; its turn ends when the permit is dropped.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, KnowledgeError> {
        let turn = self.questions.acquire().await;
        turn.map_err(|_| KnowledgeError::Unavailable("the host stops".into()))
    }
}

async fn open(config: &Configuration, open_store: OpenStore) -> anyhow::Result<Arc<Opened>> {
    let store = open_store(config).await?;
    let configured = knowledge::open(config, store.clone(), Settings::default()).await?;
    Ok(Arc::new(Opened { store, configured }))
}

impl KnowledgeAccess for ModuleKnowledge {
    fn search(
        self: Arc<Self>,
        call: KnowledgeCall,
        query: PassageQuery,
    ) -> KnowledgeResult<FoundPassages> {
        Box::pin(async move {
            let _turn = self.turn().await?;
            self.opened().await?.search(call, query).await
        })
    }

    fn read(
        self: Arc<Self>,
        call: KnowledgeCall,
        place: ReadPlace,
        before: u64,
        after: u64,
    ) -> KnowledgeResult<Vec<KnowledgePassage>> {
        Box::pin(async move {
            let _turn = self.turn().await?;
            self.opened().await?.read(call, place, before, after).await
        })
    }

    fn remember(
        self: Arc<Self>,
        call: KnowledgeCall,
        fact: FactToRemember,
    ) -> KnowledgeResult<RememberedFact> {
        Box::pin(async move {
            let _turn = self.turn().await?;
            self.opened().await?.remember(call, fact).await
        })
    }

    fn recall(
        self: Arc<Self>,
        call: KnowledgeCall,
        query: FactQuery,
    ) -> KnowledgeResult<Vec<RememberedFact>> {
        Box::pin(async move {
            let _turn = self.turn().await?;
            self.opened().await?.recall(call, query).await
        })
    }

    fn forget(
        self: Arc<Self>,
        call: KnowledgeCall,
        fact: String,
        all_versions: bool,
    ) -> KnowledgeResult<u32> {
        Box::pin(async move {
            let _turn = self.turn().await?;
            self.opened().await?.forget(call, fact, all_versions).await
        })
    }
}

/// A collection with the name by which its reader knows it.
#[derive(Debug)]
struct NamedCollection {
    name: String,
    collection: Collection,
    state: MembershipState,
}

impl Opened {
    /// The collections of the caller, and those shared with it, on which the grant gives `right`.
    async fn granted(
        &self,
        call: &KnowledgeCall,
        right: CollectionRight,
    ) -> Result<Vec<NamedCollection>, KnowledgeError> {
        let reader = &call.caller.tenant;
        let all = self.store.collections(reader, MAX_COLLECTIONS).await;
        let all = all.map_err(unavailable)?.into_iter();
        let named = all.map(|(collection, membership)| NamedCollection {
            name: CollectionPath::of(reader, &collection),
            collection,
            state: membership.state,
        });
        Ok(named
            .filter(|it| call.grant.allows(&it.name, right))
            .collect())
    }

    async fn search(
        self: Arc<Self>,
        call: KnowledgeCall,
        query: PassageQuery,
    ) -> Result<FoundPassages, KnowledgeError> {
        let mut searched = self.granted(&call, CollectionRight::Search).await?;
        if query.collections.is_empty() {
            // An offer that nobody accepted is searched only where the grant or the call names it.
            searched.retain(|it| {
                it.state != MembershipState::Offered
                    || call.grant.names(&it.name, CollectionRight::Search)
            });
        } else {
            for name in &query.collections {
                if !searched.iter().any(|it| it.name == *name) {
                    let known: Vec<&str> = searched.iter().map(|it| it.name.as_str()).collect();
                    return Err(KnowledgeError::Invalid(format!(
                        "there is no collection {name:?}; there are: {}",
                        shortened(&known)
                    )));
                }
            }
            searched.retain(|it| query.collections.contains(&it.name));
        }
        if searched.len() > MAX_SEARCHED {
            return Err(KnowledgeError::Invalid(format!(
                "at most {MAX_SEARCHED} collections are searched at a time, and these are {}: name some",
                searched.len()
            )));
        }
        let (names, collections): (BTreeMap<Uuid, String>, Vec<Collection>) = searched
            .into_iter()
            .map(|it| ((it.collection.id, it.name), it.collection))
            .unzip();
        let question = SearchQuery {
            texts: query.texts,
            by: match query.by {
                SearchBy::Best => By::Both,
                SearchBy::Words => By::Words,
                SearchBy::Vectors => By::Vectors,
            },
            labels: query.labels,
            most: query.most,
            most_characters: query.most_characters,
            most_of_document: query.most_of_document,
        };
        let knowledge = &self.configured.knowledge;
        let found = knowledge.search(&call.caller.tenant, &collections, &question);
        let found = found.await.map_err(search_failed)?;
        let mut documents = BTreeMap::new();
        let passages = found.passages.into_iter().map(|found| {
            let document = documents
                .entry(found.document.id)
                .or_insert_with(|| Arc::new(told(&found.document, &names)));
            passage(found.passage, document)
        });
        Ok(FoundPassages {
            passages: passages.collect(),
            by_vectors: query.by != SearchBy::Words && found.without_vectors.is_none(),
        })
    }

    async fn read(
        self: Arc<Self>,
        call: KnowledgeCall,
        place: ReadPlace,
        before: u64,
        after: u64,
    ) -> Result<Vec<KnowledgePassage>, KnowledgeError> {
        let reader = &call.caller.tenant;
        let readable = self.granted(&call, CollectionRight::Read).await?;
        let names: BTreeMap<Uuid, String> = readable
            .into_iter()
            .map(|it| (it.collection.id, it.name))
            .collect();
        let unknown = |what: &str, id: &str| {
            KnowledgeError::Invalid(format!(
                "there is no {what} {id:?} that may be read: ids are those of a search"
            ))
        };
        let (document, first, most) = match &place {
            ReadPlace::Passage(id) => {
                let number: i64 = id.parse().map_err(|_| unknown("passage", id))?;
                let collections: Vec<Uuid> = names.keys().copied().collect();
                let found = self.store.passages(reader, &collections, &[number]).await;
                let (passages, mut documents) = found.map_err(unavailable)?;
                let found = passages.first();
                let document = found.and_then(|found| documents.remove(&found.document));
                let (Some(found), Some(document)) = (found, document) else {
                    return Err(unknown("passage", id));
                };
                let first = found.number.saturating_sub(before);
                (document, first, found.number - first + after + 1)
            }
            ReadPlace::Document(id, first) => {
                let number: Uuid = id.parse().map_err(|_| unknown("document", id))?;
                let found = self.store.readable_document(reader, number).await;
                let found = found.map_err(unavailable)?;
                let Some(document) = found.filter(|it| names.contains_key(&it.collection)) else {
                    return Err(unknown("document", id));
                };
                let start = first.saturating_sub(before);
                (document, start, first - start + after + 1)
            }
        };
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let passages = self.store.passages_of(reader, &document, first, most);
        let passages = passages.await.map_err(unavailable)?;
        let document = Arc::new(told(&document, &names));
        let passages = passages.into_iter().map(|it| passage(it, &document));
        Ok(passages.collect())
    }

    async fn remember(
        self: Arc<Self>,
        call: KnowledgeCall,
        fact: FactToRemember,
    ) -> Result<RememberedFact, KnowledgeError> {
        let scope = scope(&call, fact.scope)?;
        let supersedes = match &fact.supersedes {
            Some(id) => Some(fact_id(id)?),
            None => None,
        };
        let source = format!("{} in call {}", call.tool, call.id);
        let new = NewFact {
            scope: &scope,
            text: &fact.text,
            source: &source,
            confidence: fact.confidence,
            supersedes,
        };
        let kept = self
            .store
            .remember(&call.caller.tenant, new, FactQuota::default())
            .await;
        match kept {
            Ok(kept) => Ok(remembered(kept)),
            Err(MemoryError::Store(error)) => Err(unavailable(error)),
            Err(full @ MemoryError::Full { .. }) => Err(KnowledgeError::Quota(full.to_string())),
            Err(wrong) => Err(KnowledgeError::Invalid(wrong.to_string())),
        }
    }

    async fn recall(
        self: Arc<Self>,
        call: KnowledgeCall,
        query: FactQuery,
    ) -> Result<Vec<RememberedFact>, KnowledgeError> {
        // A call of no session or agent has none of theirs.
        let scopes = query.scopes.iter().filter_map(|it| scope(&call, *it).ok());
        let scopes: Vec<FactScope> = scopes.collect();
        let knowledge = &self.configured.knowledge;
        let found = knowledge.recall(&call.caller.tenant, &scopes, &query.text, query.most);
        let found = found.await.map_err(search_failed)?;
        Ok(found.into_iter().map(remembered).collect())
    }

    async fn forget(
        self: Arc<Self>,
        call: KnowledgeCall,
        fact: String,
        all_versions: bool,
    ) -> Result<u32, KnowledgeError> {
        let owner = &call.caller.tenant;
        let unknown = || {
            KnowledgeError::Invalid(format!(
                "there is no fact {fact:?} that may be forgotten: ids are those of recalled facts"
            ))
        };
        let id = fact_id(&fact)?;
        let known = self.store.fact(owner, id).await.map_err(unavailable)?;
        if !known.is_some_and(|known| may_forget(&call, &known.scope)) {
            return Err(unknown());
        }
        let extent = if all_versions {
            ForgetExtent::Chain
        } else {
            ForgetExtent::Fact
        };
        let by = format!("{} in call {}", call.tool, call.id);
        let forgotten = self.store.forget(owner, id, extent, &by).await;
        let forgotten = forgotten.map_err(unavailable)?.ok_or_else(unknown)?;
        Ok(u32::try_from(forgotten.facts.len()).unwrap_or(u32::MAX))
    }
}

/// Whether the call may forget facts of this scope.
fn may_forget(call: &KnowledgeCall, of: &FactScope) -> bool {
    let granted = call.grant.memory.scopes(MemoryRight::Forget);
    let mut granted = granted.into_iter().filter_map(|it| scope(call, it).ok());
    granted.any(|it| it == *of)
}

/// The scope as the store has it, for this call.
fn scope(call: &KnowledgeCall, scope: MemoryScope) -> Result<FactScope, KnowledgeError> {
    let of = |name: &str, what: &str| {
        if name.is_empty() {
            return Err(KnowledgeError::Invalid(format!(
                "this call is of no {what}: keep the fact for the user"
            )));
        }
        Ok(name.to_owned())
    };
    match scope {
        MemoryScope::Session => of(&call.caller.session, "session").map(FactScope::Session),
        MemoryScope::User => Ok(FactScope::User),
        MemoryScope::Agent => of(&call.agent, "agent").map(FactScope::Agent),
    }
}

fn fact_id(text: &str) -> Result<Uuid, KnowledgeError> {
    text.parse().map_err(|_| {
        KnowledgeError::Invalid(format!(
            "{text:?} is no id of a fact: ids are those of recalled facts"
        ))
    })
}

fn told(document: &CollectionDocument, names: &BTreeMap<Uuid, String>) -> KnowledgeDocument {
    KnowledgeDocument {
        id: document.id.to_string(),
        collection: names.get(&document.collection).cloned().unwrap_or_default(),
        source: document.source.clone(),
        title: document.title.clone(),
        media_type: document.media_type.clone(),
        labels: document.labels.clone(),
        passages: document.passages,
    }
}

fn passage(found: Passage, document: &Arc<KnowledgeDocument>) -> KnowledgePassage {
    KnowledgePassage {
        id: found.id.to_string(),
        document: document.clone(),
        number: found.number,
        headings: found.heading.lines().map(str::to_owned).collect(),
        text: found.text,
        starts: found.starts,
        ends: found.ends,
    }
}

fn remembered(fact: Fact) -> RememberedFact {
    RememberedFact {
        id: fact.id.to_string(),
        scope: match fact.scope {
            FactScope::Session(_) => MemoryScope::Session,
            FactScope::User => MemoryScope::User,
            FactScope::Agent(_) => MemoryScope::Agent,
        },
        text: fact.text,
        source: fact.source,
        confidence: fact.confidence,
        created_ms: fact.created_ms,
    }
}

fn shortened(names: &[&str]) -> String {
    const MOST: usize = 20;
    let listed = names.iter().take(MOST).copied();
    let mut listed = listed.collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        listed.push_str(", …");
    }
    if listed.is_empty() {
        listed.push_str("none");
    }
    listed
}

fn search_failed(error: SearchError) -> KnowledgeError {
    match error {
        SearchError::Question { .. } => KnowledgeError::Invalid(error.to_string()),
        SearchError::Late { .. } => KnowledgeError::Unavailable(error.to_string()),
        SearchError::Store(error) => unavailable(error),
        SearchError::Dimensions(error) => {
            tracing::warn!(%error, "a module's search failed");
            KnowledgeError::Unavailable("the vectors of a collection cannot be used".into())
        }
    }
}

fn unavailable(error: StoreError) -> KnowledgeError {
    tracing::warn!(%error, "a module's question failed");
    KnowledgeError::Unavailable("the host's database failed; try again later".into())
}
