//! What the candidates of fallbacks managed and cost, in the file `fallback.json` of the state folder: with
//! `fallback.order = "measured"`, those that do better are asked first.

use crate::config::{Configuration, FallbackOrder};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use toolhold_agent::run::CandidateOutcomes;
use toolhold_files::Links;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::fallback::Candidate;

/// Maximum bytes of the file. A model has about a hundred.
const MAX_BYTES: u64 = 1 << 20;

/// Models in the file at most. More are those that no configuration names any more.
const MAX_MODELS: usize = 1_000;

/// Attempts after which all counts of a model are halved: what it did lately counts more.
const MAX_ATTEMPTS: u32 = 64;

/// What one model did. A missing count is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct CandidateScore {
    attempts: u32,
    successes: u32,
    /// Attempts whose cost is known, and what they cost together.
    priced: u32,
    cost_nano: u64,
}

impl CandidateScore {
    fn add(&mut self, worked: bool, cost: Option<Amount>) {
        self.attempts = self.attempts.saturating_add(1);
        self.successes = self.successes.saturating_add(worked.into());
        if let Some(cost) = cost {
            self.priced = self.priced.saturating_add(1);
            self.cost_nano = self.cost_nano.saturating_add(cost.nano());
        }
        if self.attempts >= MAX_ATTEMPTS {
            self.attempts /= 2;
            self.successes /= 2;
            self.priced /= 2;
            self.cost_nano /= 2;
        }
    }

    /// Tenths of its attempts that a model is expected to manage: 5 for one that was never asked, which is so asked
    /// before those that mostly fail.
    fn tenths(&self) -> u32 {
        let (attempts, successes) = (self.attempts, self.successes.min(self.attempts));
        successes.saturating_add(1).saturating_mul(10) / attempts.saturating_add(2)
    }

    /// What an attempt costs. One whose cost is not known is taken for the most expensive.
    fn cost(&self) -> u64 {
        let mean = self.cost_nano.checked_div(self.priced.into());
        mean.unwrap_or(u64::MAX)
    }
}

/// The scores of a process, by model.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScoreBook(Arc<Mutex<BTreeMap<String, CandidateScore>>>);

/// The scores of the candidates of one configuration.
#[derive(Debug)]
pub(crate) struct CandidateScores {
    file: PathBuf,
    book: ScoreBook,
    /// The key of each candidate's model.
    models: BTreeMap<String, String>,
}

impl CandidateScores {
    /// The recorded scores, added to those of `book`; absent if the configuration has another order.
    pub fn load(config: &Configuration, book: &ScoreBook) -> Option<Arc<Self>> {
        if config.fallback_order() != FallbackOrder::Measured {
            return None;
        }
        let models = config.candidates().into_iter().filter_map(|name| {
            let named = config.candidate(&name)?;
            let key = format!("{} {}", named.endpoint.base_url, named.model);
            Some((name, key))
        });
        let scores = Self {
            file: config.state_folder().join("fallback.json"),
            models: models.collect(),
            book: book.clone(),
        };
        let mut known = scores.known();
        for (key, score) in read(&scores.file) {
            known.entry(key).or_insert(score);
        }
        drop(known);
        Some(Arc::new(scores))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, CandidateScore>> {
        self.book.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts those first that managed more, and of those that managed about the same the cheaper ones. Others keep their
    /// order.
    pub fn order(&self, candidates: &mut [Candidate]) {
        let known = self.known();
        let none = CandidateScore::default();
        candidates.sort_by_key(|candidate| {
            let key = self.models.get(&candidate.name);
            let score = key.and_then(|key| known.get(key)).unwrap_or(&none);
            (Reverse(score.tenths()), score.cost())
        });
    }
}

impl CandidateOutcomes for CandidateScores {
    fn attempted<'a>(
        &'a self,
        candidate: &'a str,
        worked: bool,
        cost: Option<Amount>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(key) = self.models.get(candidate).cloned() else {
                return;
            };
            self.known()
                .entry(key.clone())
                .or_default()
                .add(worked, cost);
            let file = self.file.clone();
            let kept = tokio::task::spawn_blocking(move || keep(&file, key, worked, cost)).await;
            if let Err(error) = kept.map_err(io::Error::other).flatten() {
                tracing::warn!(%error, "what a candidate of the fallback managed is not recorded");
            }
        })
    }
}

/// A file that cannot be read counts as empty: it is no more than experience.
fn read(file: &Path) -> BTreeMap<String, CandidateScore> {
    let text = toolhold_files::read(file, MAX_BYTES, Links::Refuse);
    let scores = text
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    scores.unwrap_or_default()
}

/// Adds to the file what other processes may have added to as well. Of two that write at once, one attempt may be lost.
fn keep(file: &Path, key: String, worked: bool, cost: Option<Amount>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut scores = read(file);
    if scores.len() >= MAX_MODELS && !scores.contains_key(&key) {
        scores.clear();
    }
    scores.entry(key).or_default().add(worked, cost);
    let mut written = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut written, &scores)?;
    written.write_all(b"\n")?;
    written.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(names: &[&str]) -> Vec<Candidate> {
        let named = names.iter().map(|&name| Candidate {
            name: name.to_owned(),
            ..Candidate::default()
        });
        named.collect()
    }

    fn nano(amount: u64) -> Amount {
        serde_json::from_value(amount.into()).unwrap()
    }

    fn scores(file: &Path) -> CandidateScores {
        CandidateScores {
            file: file.to_owned(),
            book: ScoreBook::default(),
            models: ["new", "fails", "works", "cheap"]
                .map(|name| (name.to_owned(), format!("http://h/v1 {name}")))
                .into(),
        }
    }

    #[tokio::test]
    async fn what_worked_and_cost_less_is_asked_first() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("deeper/fallback.json");
        let told = scores(&file);
        let listed = ["fails", "new", "works", "cheap"];
        let ordered = |scores: &CandidateScores| -> Vec<String> {
            let mut all = candidates(&listed);
            scores.order(&mut all);
            all.into_iter().map(|candidate| candidate.name).collect()
        };
        assert_eq!(ordered(&told), listed, "nothing is known");
        for (name, worked, cost) in [
            ("fails", false, 1),
            ("fails", false, 1),
            ("works", true, 900),
            ("works", true, 900),
            ("cheap", true, 20),
            ("cheap", true, 20),
            ("no candidate", true, 1),
        ] {
            told.attempted(name, worked, Some(nano(cost))).await;
        }
        let expected = ["cheap", "works", "new", "fails"];
        assert_eq!(ordered(&told), expected);
        // Another process finds it in the file.
        let other = scores(&file);
        other.known().extend(read(&file));
        assert_eq!(ordered(&other), expected);
        std::fs::write(&file, "{damaged").unwrap();
        assert!(read(&file).is_empty());
        told.attempted("new", true, None).await;
        assert_eq!(read(&file).len(), 1);
    }

    #[test]
    fn counts_are_bounded_and_the_latest_count_more() {
        let mut score = CandidateScore::default();
        for n in 0..10_000 {
            score.add(n < 5_000, Some(nano(7)));
        }
        assert!(score.attempts < MAX_ATTEMPTS, "{score:?}");
        assert_eq!(score.tenths(), 0);
        assert!((6..=8).contains(&score.cost()), "{}", score.cost());
        for _ in 0..200 {
            score.add(true, None);
        }
        assert!(score.tenths() >= 9, "{score:?}");
    }
}
