//! How often each tool failed in a row, and the fallback that is going on. A state of its own: it makes
//! no events and asks nothing, `fallback` does both.

use serde_json::Value;
use std::collections::BTreeMap;
use toolhold_policy::ErrorClass;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::fallback::{Candidate, Fallback};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Turn;

/// Failures that say nothing about the model: a person or a limit decided them, or another call of the
/// same or an earlier reply is what is wrong.
const NOT_THE_MODELS: [&str; 7] = [
    "refused",
    "interrupted",
    "depth",
    "shield",
    "calls",
    "repeated",
    "blocked",
];

/// A tool, in one instance or in what belongs to all.
pub(super) type Key = (String, Option<String>);

/// The failure counts of a run, and the fallback in progress.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    failures: BTreeMap<Key, Failures>,
    episode: Option<Episode>,
    /// Requests that fallbacks took: they are not the run's own steps.
    pub(super) requests: u32,
}

#[derive(Debug)]
struct Failures {
    /// The last step that was counted.
    step: Option<u32>,
    count: u32,
    /// The message of the first one.
    first: String,
    /// No candidate managed it either; no other is asked before there was a success.
    is_spent: bool,
}

/// Candidates are asked, one after the other.
#[derive(Debug)]
struct Episode {
    key: Key,
    first: String,
    /// Its index among the candidates.
    candidate: usize,
    attempt: u32,
    /// What came of this candidate's attempts, behind the history of the run.
    turns: Vec<Turn>,
}

/// A tool that failed often enough for another model to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) key: Key,
    pub(super) failures: u32,
    pub(super) first: String,
}

impl Fallbacks {
    /// Counts how a call of the run's own model ended. `shortened` cuts a message for the record.
    pub(super) fn count(
        &mut self,
        call: &Call,
        outcome: &Result<Value, ToolFailure>,
        step: u32,
        shortened: impl FnOnce(&str) -> String,
    ) {
        if self.is_on() {
            return;
        }
        let key = (call.tool.clone(), call.instance.clone());
        let Err(failure) = outcome else {
            self.failures.remove(&key);
            return;
        };
        if failure.class == ErrorClass::Fatal || NOT_THE_MODELS.contains(&failure.kind.as_str()) {
            return;
        }
        let failures = self.failures.entry(key).or_insert_with(|| Failures {
            step: None,
            count: 0,
            first: shortened(&failure.message),
            is_spent: false,
        });
        // Calls of one reply are one attempt: the model has not seen yet what went wrong.
        if failures.step != Some(step) {
            failures.step = Some(step);
            failures.count += 1;
        }
    }

    /// Whether a candidate is being asked.
    pub(super) fn is_on(&self) -> bool {
        self.episode.is_some()
    }

    /// The tool, and its instance, that a candidate is being asked to call.
    pub(super) fn key(&self) -> Option<&Key> {
        self.episode.as_ref().map(|episode| &episode.key)
    }

    /// The candidate whose turn it is; none if all had theirs.
    pub(super) fn candidate<'c>(&self, candidates: &'c [Candidate]) -> Option<&'c Candidate> {
        candidates.get(self.episode.as_ref()?.candidate)
    }

    /// The number of the candidate's attempt that is next, or that is being made: 1, 2, 3…
    pub(super) fn attempt(&self) -> Option<u32> {
        self.episode.as_ref().map(|episode| episode.attempt)
    }

    /// Keeps a turn with the candidate's attempts. Without a fallback it is handed back: it belongs to the
    /// history of the run.
    pub(super) fn keep(&mut self, turn: Turn) -> Option<Turn> {
        let Some(episode) = &mut self.episode else {
            return Some(turn);
        };
        episode.turns.push(turn);
        None
    }

    /// Turns that a candidate is shown in addition to the history.
    pub(super) fn aside(&self) -> Vec<Turn> {
        let Some(episode) = &self.episode else {
            return Vec::new();
        };
        let (tool, instance) = &episode.key;
        let of = instance.as_ref().map_or(String::new(), |instance| {
            format!(" for the instance {instance}")
        });
        let mut turns = episode.turns.clone();
        turns.push(Turn::user(format!(
            "The call of {tool}{of} failed several times, first with: {}\nMake exactly this call now, with arguments \
             that its parameters allow and that do what the task needs. Make no other call and give no answer.",
            episode.first
        )));
        turns
    }

    /// # Errors
    /// A call that is not the one that a candidate was asked for.
    pub(super) fn check(&self, call: &Call) -> Result<(), ToolFailure> {
        match self.key() {
            Some(key) if *key != (call.tool.clone(), call.instance.clone()) => {
                Err(ToolFailure::correctable(
                    "forced",
                    format!("only a call of {} is asked for now", key.0),
                ))
            }
            _ => Ok(()),
        }
    }

    /// A tool that another model should be asked to call, while there may be Requests: `own_steps` are
    /// those of the run's own model.
    pub(super) fn due(&self, settings: &Fallback, own_steps: u32, max_steps: u32) -> Option<Due> {
        let most = max_steps.saturating_mul(settings.attempts);
        if !settings.is_on || own_steps >= max_steps || self.requests >= most {
            return None;
        }
        let mut failures = self.failures.iter();
        let (key, failures) = failures.find(|(_, failures)| {
            !failures.is_spent && failures.count >= settings.max_tool_failures.max(1)
        })?;
        Some(Due {
            key: key.clone(),
            failures: failures.count,
            first: failures.first.clone(),
        })
    }

    /// The first candidate is next.
    pub(super) fn begin(&mut self, due: Due) {
        self.episode = Some(Episode {
            key: due.key,
            first: due.first,
            candidate: 0,
            attempt: 1,
            turns: Vec::new(),
        });
    }

    /// The next candidate begins with the history of the run alone.
    pub(super) fn turn_to_next(&mut self) {
        if let Some(episode) = &mut self.episode {
            episode.candidate += 1;
            episode.attempt = 1;
            episode.turns.clear();
        }
    }

    /// The candidate's attempt came to nothing: which call it was for, and the number of the attempt. After
    /// `most` attempts, or where more are hopeless, the next candidate is asked.
    pub(super) fn attempt_failed(&mut self, is_hopeless: bool, most: u32) -> Option<(Key, u32)> {
        let episode = self.episode.as_mut()?;
        let failed = (episode.key.clone(), episode.attempt);
        episode.attempt += 1;
        if is_hopeless || failed.1 >= most {
            self.turn_to_next();
        }
        Some(failed)
    }

    /// The candidate made the call: what it did belongs to the history of the run.
    pub(super) fn succeeded(&mut self) -> Option<(Key, Vec<Turn>)> {
        let episode = self.episode.take()?;
        self.failures.remove(&episode.key);
        Some((episode.key, episode.turns))
    }

    /// Every candidate failed: the call, and the message of the run's own model's first failure.
    pub(super) fn exhausted(&mut self) -> Option<(Key, String)> {
        let episode = self.episode.take()?;
        if let Some(failures) = self.failures.get_mut(&episode.key) {
            failures.is_spent = true;
        }
        Some((episode.key, episode.first))
    }

    /// The run ends in the middle of it.
    pub(super) fn abandon(&mut self) {
        self.episode = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, instance: Option<&str>) -> Call {
        Call {
            tool: tool.into(),
            instance: instance.map(str::to_owned),
            ..Call::default()
        }
    }

    fn failed(kind: &str) -> Result<Value, ToolFailure> {
        Err(ToolFailure::correctable(kind, format!("{kind} is wrong")))
    }

    fn settings() -> Fallback {
        Fallback {
            candidates: vec![Candidate::default(), Candidate::default()],
            ..Fallback::default()
        }
    }

    fn fail_in(fallbacks: &mut Fallbacks, call: &Call, kind: &str, steps: std::ops::Range<u32>) {
        for step in steps {
            fallbacks.count(call, &failed(kind), step, str::to_owned);
        }
    }

    #[test]
    fn calls_of_one_reply_are_one_attempt_and_a_success_forgets_them() {
        let add = call("add", None);
        let due = |fallbacks: &Fallbacks| fallbacks.due(&settings(), 5, 12);
        let mut fallbacks = Fallbacks::default();
        for _ in 0..5 {
            fail_in(&mut fallbacks, &add, "arguments", 1..2);
        }
        assert_eq!(due(&fallbacks), None);
        fail_in(&mut fallbacks, &add, "deadline", 2..4);
        assert_eq!(
            due(&fallbacks),
            Some(Due {
                key: ("add".into(), None),
                failures: 3,
                first: "arguments is wrong".into()
            })
        );
        fallbacks.count(&add, &Ok(Value::Null), 4, str::to_owned);
        assert_eq!(due(&fallbacks), None);
    }

    #[test]
    fn faults_of_others_are_not_counted_against_the_model() {
        let mut fallbacks = Fallbacks::default();
        let add = call("add", None);
        for kind in NOT_THE_MODELS {
            fail_in(&mut fallbacks, &add, kind, 0..9);
        }
        let fatal = ToolFailure {
            class: ErrorClass::Fatal,
            ..ToolFailure::correctable("denied", "no")
        };
        for step in 0..9 {
            fallbacks.count(&add, &Err(fatal.clone()), step, str::to_owned);
        }
        // Each instance fails for itself.
        fail_in(&mut fallbacks, &call("add", Some("a")), "arguments", 0..2);
        fail_in(&mut fallbacks, &call("add", Some("b")), "arguments", 2..4);
        assert_eq!(fallbacks.due(&settings(), 0, 12), None);
    }

    #[test]
    fn no_candidate_is_asked_beyond_what_the_run_may() {
        let mut fallbacks = Fallbacks::default();
        fail_in(&mut fallbacks, &call("add", None), "arguments", 0..3);
        assert!(fallbacks.due(&settings(), 11, 12).is_some());
        assert_eq!(fallbacks.due(&settings(), 12, 12), None);
        let off = Fallback {
            is_on: false,
            ..settings()
        };
        assert_eq!(fallbacks.due(&off, 0, 12), None);
        fallbacks.requests = 24;
        assert_eq!(fallbacks.due(&settings(), 0, 12), None);
    }

    #[test]
    fn candidates_take_turns_and_are_not_asked_again_when_all_failed() {
        let (mut fallbacks, settings) = (Fallbacks::default(), settings());
        let add = call("add", Some("a"));
        assert!(fallbacks.keep(Turn::user("the run's")).is_some());
        fail_in(&mut fallbacks, &add, "arguments", 0..3);
        let due = fallbacks.due(&settings, 3, 12).unwrap();
        fallbacks.begin(due);
        assert!(fallbacks.check(&add).is_ok());
        for other in [call("add", None), call("sub", Some("a"))] {
            assert_eq!(fallbacks.check(&other).unwrap_err().kind, "forced");
        }
        assert!(fallbacks.keep(Turn::user("its own")).is_none());
        assert_eq!(fallbacks.aside().len(), 2);
        for (attempt, is_hopeless) in [(1, false), (2, false), (1, true)] {
            assert!(fallbacks.candidate(&settings.candidates).is_some());
            let (_, made) = fallbacks
                .attempt_failed(is_hopeless, settings.attempts)
                .unwrap();
            assert_eq!(made, attempt);
        }
        assert_eq!(fallbacks.aside().len(), 1, "nothing of the one before");
        assert_eq!(fallbacks.candidate(&settings.candidates), None);
        let (key, first) = fallbacks.exhausted().unwrap();
        assert_eq!(
            (key.0.as_str(), first.as_str()),
            ("add", "arguments is wrong")
        );
        fail_in(&mut fallbacks, &add, "arguments", 4..9);
        assert_eq!(fallbacks.due(&settings, 3, 12), None);
        fallbacks.count(&add, &Ok(Value::Null), 9, str::to_owned);
        fail_in(&mut fallbacks, &add, "arguments", 10..13);
        assert!(fallbacks.due(&settings, 3, 12).is_some());
    }

    #[test]
    fn work_of_a_successful_candidate_belongs_to_the_run() {
        let mut fallbacks = Fallbacks::default();
        fail_in(&mut fallbacks, &call("add", None), "arguments", 0..3);
        let due = fallbacks.due(&settings(), 3, 12).unwrap();
        fallbacks.begin(due);
        fallbacks.keep(Turn::user("the call"));
        let (_, turns) = fallbacks.succeeded().unwrap();
        assert_eq!(turns.len(), 1);
        assert!(!fallbacks.is_on());
        assert_eq!(fallbacks.due(&settings(), 3, 12), None);
    }
}
