//! Documents and facts of the caller, as far as the module was granted them.
//!
//! What is asked for is held against the grant and its bounds here; what answers it gives no more than the grant, too.
//! While it does, room for the largest answer is counted as kept for the call.

use crate::bindings::knowledge;
use crate::call::CallState;
use knowledge::KnowledgeError as Refusal;
use std::sync::Arc;
use toolhold_policy::call::{
    FactQuery, FactToRemember, KnowledgeCall, KnowledgeError, KnowledgePassage, KnowledgeResult,
    PassageQuery, ReadPlace, RememberedFact, SearchBy,
};
use toolhold_policy::{CollectionRight, KnowledgeAccess, KnowledgeGrant, MemoryRight, MemoryScope};

/// Room for an answer: 50 passages of 1,200 characters with their documents have half as much.
const ANSWER_BYTES: u64 = 1 << 20;
/// Passages of one answer, and facts.
const MAX_ANSWERS: u32 = 50;
/// Bytes of a question, with the names in it.
const MAX_QUESTION_BYTES: usize = 16 << 10;
/// Ways to put it.
const MAX_TEXTS: usize = 8;
/// Collections, and labels, of a search.
const MAX_NAMES: usize = 100;
/// Bytes of a fact, more than any memory takes: it says the right number itself.
const MAX_FACT_BYTES: usize = 16 << 10;
/// Bytes of an id.
const MAX_ID_BYTES: usize = 100;
/// What a passage or a fact takes besides its texts.
const ENTRY_BYTES: usize = 256;

impl knowledge::Host for CallState {
    async fn search(
        &mut self,
        query: knowledge::SearchQuery,
    ) -> Result<knowledge::SearchResult, Refusal> {
        let grant = self.granted_collections(CollectionRight::Search)?;
        let bytes = check_query(&query)?;
        for name in &query.collections {
            if !grant.allows(name, CollectionRight::Search) {
                let asked = format!("to search the collection {name:?}");
                let words = format!("{name}:search");
                self.denials.knowledge(asked, "--with-collection", &words);
                return Err(denied(format!(
                    "this module may not search the collection {name:?}"
                )));
            }
        }
        let labels = query.labels.into_iter().map(|it| (it.name, it.value));
        let query = PassageQuery {
            texts: query.texts,
            collections: query.collections,
            labels: labels.collect(),
            by: match query.by {
                knowledge::SearchBy::Best => SearchBy::Best,
                knowledge::SearchBy::Words => SearchBy::Words,
                knowledge::SearchBy::Vectors => SearchBy::Vectors,
            },
            most: size(query.most),
            most_of_document: query.most_of_document.map(size),
            most_characters: query.most_characters.map(size),
        };
        let found = self.ask(
            bytes,
            |access, call| access.search(call, query),
            |found| found.passages.iter().map(weight).sum(),
        );
        let found = found.await?;
        Ok(knowledge::SearchResult {
            passages: found.passages.into_iter().map(passage).collect(),
            by_vectors: found.by_vectors,
        })
    }

    async fn read(&mut self, what: knowledge::Reading) -> Result<Vec<knowledge::Passage>, Refusal> {
        self.granted_collections(CollectionRight::Read)?;
        let place = match what.place {
            knowledge::Place::Passage(id) => ReadPlace::Passage(checked_id(id)?),
            knowledge::Place::Document((id, first)) => ReadPlace::Document(checked_id(id)?, first),
        };
        let most = u64::from(MAX_ANSWERS);
        let (before, after) = (u64::from(what.before), u64::from(what.after));
        if before + after >= most {
            return Err(invalid(format!(
                "at most {most} passages are read at a time, the first one among them"
            )));
        }
        let passages = self.ask(
            MAX_ID_BYTES,
            |access, call| access.read(call, place, before, after),
            |passages| passages.iter().map(weight).sum(),
        );
        Ok(passages.await?.into_iter().map(passage).collect())
    }

    async fn remember(&mut self, fact: knowledge::NewFact) -> Result<knowledge::Fact, Refusal> {
        let scope = scope_of(fact.scope);
        self.granted_scopes(MemoryRight::Remember, &[scope])?;
        if fact.text.len() > MAX_FACT_BYTES {
            return Err(invalid(format!(
                "a fact has at most 2048 bytes, and this one has {}",
                fact.text.len()
            )));
        }
        if !(0.0..=1.0).contains(&fact.confidence) {
            return Err(invalid("a confidence is between 0 and 1".into()));
        }
        let bytes = fact.text.len();
        let fact = FactToRemember {
            text: fact.text,
            scope,
            confidence: fact.confidence,
            supersedes: fact.supersedes.map(checked_id).transpose()?,
        };
        let kept = self.ask(
            bytes,
            |access, call| access.remember(call, fact),
            fact_bytes,
        );
        Ok(told(kept.await?))
    }

    async fn recall(
        &mut self,
        query: knowledge::RecallQuery,
    ) -> Result<Vec<knowledge::Fact>, Refusal> {
        if query.scopes.len() > MAX_NAMES {
            return Err(invalid("there are three scopes".into()));
        }
        let mut scopes: Vec<MemoryScope> = query.scopes.into_iter().map(scope_of).collect();
        scopes.sort_unstable();
        scopes.dedup();
        let granted = self.granted_scopes(MemoryRight::Recall, &scopes)?;
        if scopes.is_empty() {
            scopes = granted;
        }
        let bytes = query.text.len();
        if bytes > MAX_QUESTION_BYTES {
            return Err(too_long(bytes));
        }
        let query = FactQuery {
            text: query.text,
            scopes,
            most: size(checked_most(query.most)?),
        };
        let facts = self.ask(
            bytes,
            |access, call| access.recall(call, query),
            |facts| facts.iter().map(fact_bytes).sum(),
        );
        Ok(facts.await?.into_iter().map(told).collect())
    }

    async fn forget(&mut self, id: String, all_versions: bool) -> Result<u32, Refusal> {
        self.granted_scopes(MemoryRight::Forget, &[])?;
        let id = checked_id(id)?;
        self.ask(
            MAX_ID_BYTES,
            |access, call| access.forget(call, id, all_versions),
            |_| 0,
        )
        .await
    }
}

impl CallState {
    /// The grant, which gives `right` on some collection.
    fn granted_collections(&self, right: CollectionRight) -> Result<Arc<KnowledgeGrant>, Refusal> {
        let grant = self.knowledge.grant();
        grant.filter(|grant| grant.has(right)).ok_or_else(|| {
            let right = right.name();
            let asked = format!("to {right} collections");
            self.denials
                .knowledge(asked, "--with-collection", &format!("NAME:{right}"));
            denied(format!("this module may {right} no collection"))
        })
    }

    /// The scopes in which `right` was given. All of `scopes` are among them; without any, there is one.
    fn granted_scopes(
        &self,
        right: MemoryRight,
        scopes: &[MemoryScope],
    ) -> Result<Vec<MemoryScope>, Refusal> {
        let grant = self.knowledge.grant();
        let granted = grant.map_or(Vec::new(), |grant| grant.memory.scopes(right));
        let missing = scopes.iter().find(|scope| !granted.contains(scope));
        let missing = match missing {
            Some(scope) => *scope,
            None if granted.is_empty() => MemoryScope::User,
            None => return Ok(granted),
        };
        let (right, scope) = (right.name(), missing.name());
        let asked = format!("to {right} facts of the {scope}");
        self.denials
            .knowledge(asked, "--with-memory", &format!("{scope}:{right}"));
        Err(denied(format!(
            "this module may not {right} facts of the {scope}"
        )))
    }

    /// Has a question of so many bytes answered; `weigh` says how many bytes the answer has.
    async fn ask<T>(
        &mut self,
        bytes: usize,
        question: impl FnOnce(Arc<dyn KnowledgeAccess>, KnowledgeCall) -> KnowledgeResult<T>,
        weigh: impl FnOnce(&T) -> usize,
    ) -> Result<T, Refusal> {
        let revoked = |error: crate::revocation::Revoked| denied(error.to_string());
        self.revocation.check().map_err(revoked)?;
        let (access, call) = self.knowledge.question().map_err(refusal)?;
        self.moved(bytes)?;
        let full = |error: crate::call::meter::KeptTooMuch| Refusal::Quota(error.to_string());
        let mut kept = self.gauge.keep(ANSWER_BYTES).map_err(full)?;
        let answer = question(access, call).await.map_err(refusal)?;
        // What was granted may have been taken back meanwhile.
        self.revocation.check().map_err(revoked)?;
        let bytes = weigh(&answer);
        self.moved(bytes)?;
        let more = (bytes as u64).saturating_sub(ANSWER_BYTES);
        kept.grow(more).map_err(full)?;
        self.answers(kept);
        Ok(answer)
    }

    fn moved(&self, bytes: usize) -> Result<(), Refusal> {
        let moved = self.gauge.moved(bytes as u64);
        moved.map_err(|error| Refusal::Quota(error.to_string()))
    }
}

/// The bytes of a question that is within its bounds.
fn check_query(query: &knowledge::SearchQuery) -> Result<usize, Refusal> {
    checked_most(query.most)?;
    if query.texts.is_empty() || query.texts.len() > MAX_TEXTS {
        return Err(invalid(format!("a search has 1 to {MAX_TEXTS} texts")));
    }
    if query.collections.len() > MAX_NAMES || query.labels.len() > MAX_NAMES {
        return Err(invalid(format!(
            "a search has at most {MAX_NAMES} collections and {MAX_NAMES} labels"
        )));
    }
    let labels = query.labels.iter();
    let labels: usize = labels.map(|it| it.name.len() + it.value.len()).sum();
    let texts = query.texts.iter().chain(&query.collections);
    let bytes = texts.map(String::len).sum::<usize>() + labels;
    if bytes > MAX_QUESTION_BYTES {
        return Err(too_long(bytes));
    }
    Ok(bytes)
}

fn checked_most(most: u32) -> Result<u32, Refusal> {
    if (1..=MAX_ANSWERS).contains(&most) {
        Ok(most)
    } else {
        Err(invalid(format!("most is between 1 and {MAX_ANSWERS}")))
    }
}

fn checked_id(id: String) -> Result<String, Refusal> {
    if id.len() > MAX_ID_BYTES {
        return Err(invalid("no id is so long".into()));
    }
    Ok(id)
}

fn too_long(bytes: usize) -> Refusal {
    invalid(format!(
        "a question has at most {MAX_QUESTION_BYTES} bytes with its names, and this one has {bytes}"
    ))
}

fn denied(reason: String) -> Refusal {
    Refusal::Denied(reason)
}

fn invalid(reason: String) -> Refusal {
    Refusal::Invalid(reason)
}

fn refusal(error: KnowledgeError) -> Refusal {
    match error {
        KnowledgeError::Denied(reason) => Refusal::Denied(reason),
        KnowledgeError::Invalid(reason) => Refusal::Invalid(reason),
        KnowledgeError::Quota(reason) => Refusal::Quota(reason),
        KnowledgeError::Unavailable(reason) => Refusal::Unavailable(reason),
    }
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn weight(passage: &KnowledgePassage) -> usize {
    let document = &passage.document;
    let labels = document.labels.iter();
    let labels: usize = labels.map(|(name, value)| name.len() + value.len()).sum();
    ENTRY_BYTES
        + passage.text.len()
        + passage.headings.iter().map(String::len).sum::<usize>()
        + labels
        + document.source.len()
        + document.title.len()
        + document.collection.len()
}

fn fact_bytes(fact: &RememberedFact) -> usize {
    ENTRY_BYTES + fact.text.len() + fact.source.len()
}

fn passage(found: KnowledgePassage) -> knowledge::Passage {
    let document = &found.document;
    let labels = document
        .labels
        .iter()
        .map(|(name, value)| knowledge::Label {
            name: name.clone(),
            value: value.clone(),
        });
    knowledge::Passage {
        document: knowledge::Document {
            id: document.id.clone(),
            collection: document.collection.clone(),
            source: document.source.clone(),
            title: document.title.clone(),
            media_type: document.media_type.clone(),
            labels: labels.collect(),
            passages: document.passages,
        },
        id: found.id,
        number: found.number,
        headings: found.headings,
        text: found.text,
        starts: found.starts,
        ends: found.ends,
    }
}

fn told(fact: RememberedFact) -> knowledge::Fact {
    knowledge::Fact {
        id: fact.id,
        scope: match fact.scope {
            MemoryScope::Session => knowledge::MemoryScope::Session,
            MemoryScope::User => knowledge::MemoryScope::User,
            MemoryScope::Agent => knowledge::MemoryScope::Agent,
        },
        text: fact.text,
        source: fact.source,
        confidence: fact.confidence,
        created_ms: fact.created_ms,
    }
}

fn scope_of(scope: knowledge::MemoryScope) -> MemoryScope {
    match scope {
        knowledge::MemoryScope::Session => MemoryScope::Session,
        knowledge::MemoryScope::User => MemoryScope::User,
        knowledge::MemoryScope::Agent => MemoryScope::Agent,
    }
}
