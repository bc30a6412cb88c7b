//! Memory: finds facts by their words.
//!
//! An owner has at most some thousand facts, so they have no index: all of the scopes are read and ranked by BM25, as
//! passages are. How rare a word is counts in these scopes, and nowhere else.

use crate::error::SearchError;
use crate::knowledge::Knowledge;
use std::collections::{HashMap, HashSet};
use toolhold_storage::{Fact, FactScope, QuestionWord, WordWeights};

/// Facts of one query: between two of them others get their turn.
const PAGE_FACTS: u32 = 200;
/// Facts that one recall gives, at most.
const MAX_RECALLED: usize = 100;
/// Bytes of what is asked for.
const MAX_QUESTION_BYTES: usize = 16 << 10;

/// A fact that has words of the question.
struct Candidate {
    fact: Fact,
    /// Its words, of which those that the question has not are empty: they count for its length.
    words: String,
}

impl Knowledge {
    /// The facts of `owner` in `scopes` that have any of the question's words, best first; for an empty question the
    /// newest ones.
    ///
    /// # Errors
    /// The question is too long, the database failed, or the time of a search passed.
    pub async fn recall(
        &self,
        owner: &str,
        scopes: &[FactScope],
        question: &str,
        most: usize,
    ) -> Result<Vec<Fact>, SearchError> {
        if question.len() > MAX_QUESTION_BYTES {
            return Err(SearchError::Question {
                what: "bytes",
                has: question.len(),
                most: MAX_QUESTION_BYTES,
            });
        }
        let time = self.settings.search_time;
        let most = most.min(MAX_RECALLED);
        let recalled = async {
            if question.trim().is_empty() {
                self.newest(owner, scopes, most).await
            } else {
                let words = self.splitter.query(question);
                self.recall_words(owner, scopes, &words, most).await
            }
        };
        let late = |_| SearchError::Late {
            seconds: time.as_secs(),
        };
        tokio::time::timeout(time, recalled).await.map_err(late)?
    }

    async fn newest(
        &self,
        owner: &str,
        scopes: &[FactScope],
        most: usize,
    ) -> Result<Vec<Fact>, SearchError> {
        let count = u32::try_from(most).unwrap_or(u32::MAX);
        let mut newest = Vec::new();
        for scope in scopes {
            newest.extend(self.store.facts(owner, Some(scope), None, count).await?);
        }
        newest.sort_by_key(|fact| std::cmp::Reverse(fact.id));
        newest.truncate(most);
        Ok(newest)
    }

    async fn recall_words(
        &self,
        owner: &str,
        scopes: &[FactScope],
        question: &[QuestionWord],
        most: usize,
    ) -> Result<Vec<Fact>, SearchError> {
        let mut holding: HashMap<String, u64> = question
            .iter()
            .map(|asked| (asked.word.clone(), 0))
            .collect();
        let (mut facts, mut all_words) = (0, 0);
        let mut candidates = Vec::new();
        for scope in scopes {
            let mut before = None;
            loop {
                let page = self
                    .store
                    .facts(owner, Some(scope), before, PAGE_FACTS)
                    .await?;
                let Some(last) = page.last() else { break };
                before = Some(last.id);
                for fact in page {
                    let words = self.splitter.words(&fact.text);
                    facts += 1;
                    all_words += words.split(' ').count() as u64;
                    if let Some(words) = asked_for(&words, &mut holding) {
                        candidates.push(Candidate { fact, words });
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        let counted: Vec<(&QuestionWord, u64)> = question
            .iter()
            .map(|asked| (asked, holding.get(&asked.word).copied().unwrap_or(0)))
            .collect();
        let weights = WordWeights::new(&counted, facts, all_words);
        let mut scored: Vec<(f64, Fact)> = candidates
            .into_iter()
            .map(|it| (weights.score(&it.words), it.fact))
            .collect();
        // Of equal ones the newer.
        scored.sort_by(|(left, one), (right, other)| {
            right.total_cmp(left).then(other.id.cmp(&one.id))
        });
        scored.truncate(most);
        Ok(scored.into_iter().map(|(_, fact)| fact).collect())
    }
}

/// The words with empty ones in the place of those that are not asked for; `None` if none is. Counts in `holding` that
/// one more fact holds them.
fn asked_for(words: &str, holding: &mut HashMap<String, u64>) -> Option<String> {
    let mut kept: Vec<&str> = Vec::new();
    let mut found = HashSet::new();
    for word in words.split(' ') {
        let Some(count) = holding.get_mut(word) else {
            kept.push("");
            continue;
        };
        kept.push(word);
        if found.insert(word) {
            *count += 1;
        }
    }
    (!found.is_empty()).then(|| kept.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::Settings;
    use std::time::Duration;
    use toolhold_storage::{FactQuota, Location, NewFact, Store};

    async fn open(folder: &std::path::Path) -> (Store, Knowledge) {
        let location = Location::File(folder.join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(30))
            .await
            .unwrap();
        let knowledge = Knowledge::new(store.clone(), Settings::default(), None);
        (store, knowledge)
    }

    async fn keep(store: &Store, owner: &str, scope: &FactScope, text: &str) {
        let new = NewFact {
            scope,
            text,
            source: "test",
            confidence: 1.0,
            supersedes: None,
        };
        let kept = store.remember(owner, new, FactQuota::default()).await;
        kept.unwrap();
    }

    #[tokio::test]
    async fn facts_are_found_by_their_words_best_first() {
        let folder = tempfile::tempdir().unwrap();
        let (store, knowledge) = open(folder.path()).await;
        let agent = FactScope::Agent("bank".into());
        for text in [
            "Ann likes green tea",
            "Ann works on Mondays",
            "Ann asked about the fees of a card and about tea once",
        ] {
            keep(&store, "ann", &FactScope::User, text).await;
        }
        keep(&store, "ann", &agent, "Fees are told with a source").await;
        keep(&store, "bob", &FactScope::User, "Bob likes tea").await;
        let recall = async |owner: &str, scopes: &[FactScope], text: &str, most| {
            let found = knowledge.recall(owner, scopes, text, most).await.unwrap();
            let texts = found.into_iter().map(|fact| fact.text);
            texts.collect::<Vec<_>>()
        };
        let user = [FactScope::User];
        assert_eq!(
            recall("ann", &user, "which TEAS does she like?", 5).await,
            [
                "Ann likes green tea",
                "Ann asked about the fees of a card and about tea once"
            ]
        );
        assert_eq!(
            recall("ann", &[FactScope::User, agent], "fee", 5).await,
            [
                "Fees are told with a source",
                "Ann asked about the fees of a card and about tea once"
            ]
        );
        assert_eq!(
            recall("ann", &user, "", 1).await,
            ["Ann asked about the fees of a card and about tea once"]
        );
        assert!(recall("ann", &user, "zebra", 5).await.is_empty());
        assert!(recall("ann", &[], "tea", 5).await.is_empty());
        assert_eq!(recall("bob", &user, "tea", 5).await, ["Bob likes tea"]);
        let long = "x".repeat(MAX_QUESTION_BYTES + 1);
        let refused = knowledge.recall("ann", &user, &long, 1).await;
        assert!(matches!(refused, Err(SearchError::Question { .. })));
    }

    #[tokio::test]
    async fn an_old_fact_is_found_among_many() {
        let folder = tempfile::tempdir().unwrap();
        let (store, knowledge) = open(folder.path()).await;
        keep(&store, "", &FactScope::User, "the needle is here").await;
        for n in 0..PAGE_FACTS {
            keep(&store, "", &FactScope::User, &format!("hay {n}")).await;
        }
        let found = knowledge.recall("", &[FactScope::User], "needle hay", 1);
        assert_eq!(found.await.unwrap()[0].text, "the needle is here");
    }
}
