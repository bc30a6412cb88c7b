//! What the candidates of fallbacks managed and cost, in the file `fallback.json` of the state folder: with
//! `fallback.order = "measured"`, those that do better are asked first.

use crate::config::{Configuration, FallbackOrder};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use toolhold_admission::{detach, start_own};
use toolhold_agent::run::{CandidateAttempt, CandidateOutcomes};
use toolhold_files::{FileReaders, FolderLock, Links, UnfinishedFile};
use toolhold_protocol::fallback::Candidate;

/// Maximum bytes of the file. A model has about a hundred.
const MAX_BYTES: u64 = 1 << 20;

/// Models in the file at most. More are those that no configuration names any more.
const MAX_MODELS: usize = 1_000;

/// Attempts after which all counts of a model are halved: what it did lately counts more.
const MAX_ATTEMPTS: u32 = 64;

/// Seconds after which what a model did counts no more: an outage is over, and it is asked again.
const MAX_AGE_S: u64 = 24 * 60 * 60;

/// How long a run waits for the file. Without it, the order is that of what this process saw, else the configured one.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Attempts that wait to be written at most. More are lost: the state folder hangs.
const MAX_UNSAVED: usize = 1_000;

/// What one model did. A missing count is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct CandidateScore {
    attempts: u32,
    successes: u32,
    /// Attempts whose cost is known, and what they cost together.
    priced: u32,
    cost_nano: u64,
    /// When it was last asked, in seconds since 1970.
    at: u64,
}

impl CandidateScore {
    fn add(&mut self, attempt: &CandidateAttempt, now: u64) {
        if self.is_old(now) {
            *self = Self::default();
        }
        let CandidateAttempt { worked, cost, .. } = *attempt;
        self.at = now;
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

    /// What an attempt costs, if that is known.
    fn cost(&self) -> Option<u64> {
        self.cost_nano.checked_div(self.priced.into())
    }

    /// A clock that was set back makes it old as well.
    fn is_old(&self, now: u64) -> bool {
        now.abs_diff(self.at) > MAX_AGE_S
    }
}

/// The scores of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScoreBook(Arc<Mutex<BookState>>);

#[derive(Debug, Default)]
struct BookState {
    /// By model.
    known: BTreeMap<String, CandidateScore>,
    /// Attempts that the file lacks, by model.
    unsaved: Vec<(String, CandidateAttempt)>,
    is_saving: bool,
    /// A thread reads the file, or hangs in it.
    is_reading: bool,
}

impl ScoreBook {
    fn state(&self) -> MutexGuard<'_, BookState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what `read` gives. The state folder may hang: no run waits longer than `most`, and at most one thread does.
    /// What comes later is added when it comes.
    async fn add_read(
        &self,
        read: impl FnOnce() -> BTreeMap<String, CandidateScore> + Send + 'static,
        most: Duration,
    ) {
        if std::mem::replace(&mut self.state().is_reading, true) {
            return;
        }
        let book = self.clone();
        // Also if the run ends meanwhile: while `is_reading` is set, nothing else reads.
        let adding = start_own(move || {
            let read = read();
            let mut state = book.state();
            for (key, score) in read {
                state.known.entry(key).or_insert(score);
            }
            state.is_reading = false;
        });
        let mut adding = adding.even_if_left();
        if tokio::time::timeout(most, adding.done()).await.is_err() {
            tracing::warn!(
                "what the candidates of the fallback managed was not read in time; their order is the configured one"
            );
        }
    }

    /// Writes what the file lacks. Only one thread of the process does so at a time.
    fn save(&self, file: &Path) {
        loop {
            let mut state = self.state();
            let unsaved = std::mem::take(&mut state.unsaved);
            state.is_saving = !unsaved.is_empty();
            drop(state);
            if unsaved.is_empty() {
                return;
            }
            if let Err(error) = keep(file, &unsaved) {
                tracing::warn!(%error, "what a candidate of the fallback managed is not recorded");
            }
        }
    }
}

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
    /// `candidates`: their names.
    pub async fn load(
        config: &Configuration,
        candidates: Vec<String>,
        book: &ScoreBook,
    ) -> Option<Arc<Self>> {
        if config.fallback_order() != FallbackOrder::Measured {
            return None;
        }
        let models = candidates.into_iter().filter_map(|name| {
            let named = config.candidate(&name)?;
            let key = format!("{} {}", named.endpoint.base_url, named.model);
            Some((name, key))
        });
        let scores = Self {
            file: config.state_folder().join("fallback.json"),
            models: models.collect(),
            book: book.clone(),
        };
        let file = scores.file.clone();
        book.add_read(move || read(&file), READ_TIMEOUT).await;
        Some(Arc::new(scores))
    }

    /// Puts those first that managed more, and of those that managed about the same the cheaper ones, if the cost of
    /// each of them is known. Others keep their order.
    pub fn order(&self, candidates: &mut [Candidate]) {
        let (state, now) = (self.book.state(), now());
        let none = CandidateScore::default();
        let score = |candidate: &Candidate| {
            let key = self.models.get(&candidate.name);
            let score = key.and_then(|key| state.known.get(key));
            score.filter(|score| !score.is_old(now)).unwrap_or(&none)
        };
        candidates.sort_by_key(|candidate| Reverse(score(candidate).tenths()));
        let equals =
            |one: &Candidate, other: &Candidate| score(one).tenths() == score(other).tenths();
        for equal in candidates.chunk_by_mut(equals) {
            if equal
                .iter()
                .all(|candidate| score(candidate).cost().is_some())
            {
                equal.sort_by_key(|candidate| score(candidate).cost());
            }
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl CandidateOutcomes for CandidateScores {
    /// Counts at once; the file is written by a thread that no run waits for.
    fn attempted(&self, attempt: &CandidateAttempt) {
        let Some(key) = self.models.get(&attempt.candidate).cloned() else {
            return;
        };
        let mut state = self.book.state();
        let score = state.known.entry(key.clone()).or_default();
        score.add(attempt, now());
        if state.unsaved.len() < MAX_UNSAVED {
            state.unsaved.push((key, attempt.clone()));
        }
        if std::mem::replace(&mut state.is_saving, true) {
            return;
        }
        drop(state);
        let (book, file) = (self.book.clone(), self.file.clone());
        detach(move || book.save(&file));
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

/// Adds to the file, to which other processes add as well.
fn keep(file: &Path, attempts: &[(String, CandidateAttempt)]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let lock = FolderLock::take(folder)?;
    let mut scores = read(file);
    for (key, attempt) in attempts {
        if scores.len() >= MAX_MODELS && !scores.contains_key(key) {
            scores.clear();
        }
        scores.entry(key.clone()).or_default().add(attempt, now());
    }
    let mut text = serde_json::to_vec_pretty(&scores)?;
    text.push(b'\n');
    let unfinished = UnfinishedFile::write(folder, &text, FileReaders::Owner)?;
    lock.put_in_place(unfinished, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use toolhold_protocol::cost::Amount;

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

    fn attempt(candidate: &str, worked: bool, cost: Option<u64>) -> CandidateAttempt {
        CandidateAttempt {
            candidate: candidate.to_owned(),
            worked,
            cost: cost.map(nano),
        }
    }

    fn ordered(scores: &CandidateScores) -> Vec<String> {
        let mut all = candidates(&["fails", "new", "works", "cheap"]);
        scores.order(&mut all);
        all.into_iter().map(|candidate| candidate.name).collect()
    }

    /// Waits until the file has all that was told.
    async fn saved(scores: &CandidateScores) {
        let is_saved = async {
            while scores.book.state().is_saving {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let most = std::time::Duration::from_secs(20);
        tokio::time::timeout(most, is_saved).await.unwrap();
    }

    #[tokio::test]
    async fn what_worked_and_cost_less_is_asked_first() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("deeper/fallback.json");
        let told = scores(&file);
        assert_eq!(
            ordered(&told),
            ["fails", "new", "works", "cheap"],
            "nothing is known"
        );
        for (name, worked, cost) in [
            ("fails", false, 1),
            ("fails", false, 1),
            ("works", true, 900),
            ("works", true, 900),
            ("cheap", true, 20),
            ("cheap", true, 20),
            ("no candidate", true, 1),
        ] {
            told.attempted(&attempt(name, worked, Some(cost)));
        }
        let expected = ["cheap", "works", "new", "fails"];
        assert_eq!(ordered(&told), expected);
        saved(&told).await;
        // Another process finds it in the file.
        let other = scores(&file);
        other.book.state().known.extend(read(&file));
        assert_eq!(ordered(&other), expected);
        // What was a day ago counts no more.
        for score in other.book.state().known.values_mut() {
            score.at -= MAX_AGE_S + 1;
        }
        assert_eq!(ordered(&other), ["fails", "new", "works", "cheap"]);
        std::fs::write(&file, "{damaged").unwrap();
        assert!(read(&file).is_empty());
        told.attempted(&attempt("new", true, None));
        saved(&told).await;
        assert_eq!(read(&file).len(), 1);
    }

    /// A state folder that hangs delays a run by a bounded time, and takes one thread.
    #[tokio::test]
    async fn a_file_that_hangs_is_not_waited_for() {
        let book = ScoreBook::default();
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let score = || BTreeMap::from([("m".to_owned(), CandidateScore::default())]);
        let hanging = move || {
            let _ = hangs.recv();
            score()
        };
        let most = Duration::from_millis(20);
        let is_second_read = Arc::new(AtomicBool::new(false));
        let second = {
            let is_read = is_second_read.clone();
            move || {
                is_read.store(true, Ordering::Relaxed);
                BTreeMap::new()
            }
        };
        tokio::time::timeout(Duration::from_secs(10), async {
            book.add_read(hanging, most).await;
            book.add_read(second, most).await;
        })
        .await
        .expect("nobody waits for it");
        assert!(book.state().known.is_empty() && book.state().is_reading);
        assert!(
            !is_second_read.load(Ordering::Relaxed),
            "one thread at most"
        );
        drop(release);
        // What was read late counts from then on, and the file may be read again.
        tokio::time::timeout(Duration::from_secs(10), async {
            while book.state().is_reading {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .expect("it was read");
        assert_eq!(book.state().known, score());
        book.add_read(BTreeMap::new, Duration::from_secs(10)).await;
        assert!(!book.state().is_reading);
    }

    /// A model without a price, which is the usual one of one's own, is not taken for the most expensive.
    #[tokio::test]
    async fn costs_count_only_where_all_are_known() {
        let state = tempfile::tempdir().unwrap();
        let told = scores(&state.path().join("fallback.json"));
        told.attempted(&attempt("works", true, None));
        told.attempted(&attempt("cheap", true, Some(1)));
        assert_eq!(ordered(&told), ["works", "cheap", "fails", "new"]);
        saved(&told).await;
    }

    /// The lock is of an open folder, so threads exclude each other as processes do.
    #[test]
    fn attempts_of_parallel_writers_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fallback.json");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| keep(&file, &[("m".to_owned(), attempt("m", true, None))]).unwrap());
            }
        });
        assert_eq!(read(&file)["m"].attempts, 8);
    }

    #[test]
    fn counts_are_bounded_and_the_latest_count_more() {
        let mut score = CandidateScore::default();
        for n in 0..10_000 {
            score.add(&attempt("", n < 5_000, Some(7)), 1);
        }
        assert!(score.attempts < MAX_ATTEMPTS, "{score:?}");
        assert_eq!(score.tenths(), 0);
        assert!((Some(6)..=Some(8)).contains(&score.cost()), "{score:?}");
        for _ in 0..200 {
            score.add(&attempt("", true, None), 1);
        }
        assert!(score.tenths() >= 9, "{score:?}");
        score.add(&attempt("", false, None), MAX_AGE_S + 2);
        assert_eq!(score.attempts, 1, "what is old is forgotten");
    }
}
