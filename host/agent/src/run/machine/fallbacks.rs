//! How often each tool, and replies as a whole, failed in a row, and the fallback that is going on. A state of
//! its own: it makes no events and asks nothing, `fallback` does both.

use serde_json::Value;
use std::collections::BTreeMap;
use toolhold_policy::ErrorClass;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::fallback::{Candidate, Fallback};
use toolhold_protocol::settings::Settings;
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

/// What fails: the calls of a tool, or replies of which nothing can be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Call(Key),
    Reply,
}

/// The failure counts of a run, and the fallback in progress.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    failures: BTreeMap<Cause, Failures>,
    episode: Option<Episode>,
    /// Requests that fallbacks took: they are not the run's own steps.
    pub(super) requests: u32,
}

#[derive(Debug, Default)]
struct Failures {
    /// The last step that was counted.
    step: Option<u32>,
    count: u32,
    /// The message of the first one.
    first: String,
    /// No candidate managed it either; no other is asked before there was a success.
    is_spent: bool,
}

impl Failures {
    fn count(&mut self, step: u32) {
        // Calls of one reply are one attempt: the model has not seen yet what went wrong.
        if self.step != Some(step) {
            self.step = Some(step);
            self.count += 1;
        }
    }
}

/// Candidates are asked, one after the other.
#[derive(Debug)]
struct Episode {
    cause: Cause,
    first: String,
    /// Its index among the candidates.
    candidate: usize,
    attempt: u32,
    /// Whether the call of this attempt was made.
    is_made: bool,
    /// What came of this candidate's attempts, behind the history of the run.
    turns: Vec<Turn>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallOutcome<'a> {
    pub(super) result: &'a Result<Value, ToolFailure>,
    /// Whether the failure is the tool's own: the call passed every check, and failed at run time.
    pub(super) is_tools_own: bool,
}

/// What failed often enough for another model to be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) cause: Cause,
    pub(super) failures: u32,
    pub(super) first: String,
}

impl Fallbacks {
    /// Counts how a call ended: one of the run's own model, or the one that a candidate was asked for.
    /// `shortened` cuts a message for the record.
    pub(super) fn count(
        &mut self,
        settings: &Fallback,
        call: &Call,
        outcome: CallOutcome<'_>,
        step: u32,
        shortened: impl FnOnce(&str) -> String,
    ) {
        let cause = Cause::Call((call.tool.clone(), call.instance.clone()));
        let is_excused = outcome.is_tools_own && !settings.tool_errors;
        if let Some(episode) = &mut self.episode {
            episode.is_made |= episode.cause == cause && (outcome.result.is_ok() || is_excused);
            return;
        }
        let Err(failure) = outcome.result else {
            self.failures.remove(&cause);
            return;
        };
        if is_excused
            || failure.class == ErrorClass::Fatal
            || NOT_THE_MODELS.contains(&failure.kind.as_str())
        {
            return;
        }
        let failures = self.failures.entry(cause).or_insert_with(|| Failures {
            first: shortened(&failure.message),
            ..Failures::default()
        });
        failures.count(step);
    }

    /// Counts a reply of the run's own model of which nothing could be used.
    pub(super) fn count_reply(&mut self, step: u32, reason: impl FnOnce() -> String) {
        let failures = self.failures.entry(Cause::Reply);
        let failures = failures.or_insert_with(|| Failures {
            first: reason(),
            ..Failures::default()
        });
        failures.count(step);
    }

    /// A reply of the run's own model could be used.
    pub(super) fn reply_used(&mut self) {
        self.failures.remove(&Cause::Reply);
    }

    /// What no candidate managed, and its first error.
    pub(super) fn spent(&self) -> Option<(&Cause, &str)> {
        let mut spent = self.failures.iter().filter(|(_, it)| it.is_spent);
        spent
            .next()
            .map(|(cause, failures)| (cause, failures.first.as_str()))
    }

    /// Why the first of the replies in a row could not be used.
    pub(super) fn first_of_replies(&self) -> Option<&str> {
        let failures = self.failures.get(&Cause::Reply)?;
        Some(failures.first.as_str())
    }

    /// Whether a candidate is being asked.
    pub(super) fn is_on(&self) -> bool {
        self.episode.is_some()
    }

    /// The tool, and its instance, that a candidate is being asked to call; none if it is asked for a whole reply.
    pub(super) fn key(&self) -> Option<&Key> {
        match self.cause()? {
            Cause::Call(key) => Some(key),
            Cause::Reply => None,
        }
    }

    /// What a candidate is being asked for.
    pub(super) fn cause(&self) -> Option<&Cause> {
        self.episode.as_ref().map(|episode| &episode.cause)
    }

    /// Whether the candidate made the call that it was asked for.
    pub(super) fn is_made(&self) -> bool {
        self.episode.as_ref().is_some_and(|episode| episode.is_made)
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
        let mut turns = episode.turns.clone();
        turns.push(Turn::user(match &episode.cause {
            Cause::Call((tool, instance)) => {
                let of = instance.as_ref().map_or(String::new(), |instance| {
                    format!(" for the instance {instance}")
                });
                format!(
                    "The call of {tool}{of} failed several times, first with: {}\nMake exactly this call now, with \
                     arguments that its parameters allow and that do what the task needs. Make no other call and give \
                     no answer.",
                    episode.first
                )
            }
            Cause::Reply => format!(
                "Several replies could not be used, the first because: {}\nReply now in the form that is asked for: \
                 call tools by the names that they have, or give the answer.",
                episode.first
            ),
        }));
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

    /// What another model should be asked for, while there may be Requests: `own_steps` are those of the run's
    /// own model.
    pub(super) fn due(&self, settings: &Settings, own_steps: u32) -> Option<Due> {
        let (fallback, max_steps) = (&settings.fallback, settings.max_steps);
        let most = max_steps.saturating_mul(fallback.attempts);
        if !fallback.is_on || own_steps >= max_steps || self.requests >= most {
            return None;
        }
        let of_call = fallback.max_tool_failures.max(1);
        let mut failures = self.failures.iter();
        let (cause, failures) = failures.find(|(cause, failures)| {
            let is_too_often = match cause {
                Cause::Call(_) => failures.count >= of_call,
                // The run ends with the last reply that it allows, unless another model gives one. A model that
                // has no other is told each time what was wrong, so there is nothing more to tell it.
                Cause::Reply => {
                    failures.count >= of_call.min(settings.max_unusable)
                        && !fallback.candidates.is_empty()
                }
            };
            is_too_often && !failures.is_spent
        })?;
        Some(Due {
            cause: cause.clone(),
            failures: failures.count,
            first: failures.first.clone(),
        })
    }

    /// The first candidate is next.
    pub(super) fn begin(&mut self, due: Due) {
        self.episode = Some(Episode {
            cause: due.cause,
            first: due.first,
            candidate: 0,
            attempt: 1,
            is_made: false,
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

    /// The candidate's attempt came to nothing: what it was for, and the number of the attempt. After
    /// `most` attempts, or where more are hopeless, the next candidate is asked.
    pub(super) fn attempt_failed(&mut self, is_hopeless: bool, most: u32) -> Option<(Cause, u32)> {
        let episode = self.episode.as_mut()?;
        let failed = (episode.cause.clone(), episode.attempt);
        episode.attempt += 1;
        if is_hopeless || failed.1 >= most {
            self.turn_to_next();
        }
        Some(failed)
    }

    /// The candidate made the call, or the reply: what it did belongs to the history of the run.
    pub(super) fn succeeded(&mut self) -> Option<(Cause, Vec<Turn>)> {
        let episode = self.episode.take()?;
        self.failures.remove(&episode.cause);
        Some((episode.cause, episode.turns))
    }

    /// Every candidate failed: at what, and the message of the run's own model's first failure.
    pub(super) fn exhausted(&mut self) -> Option<(Cause, String)> {
        let episode = self.episode.take()?;
        if let Some(failures) = self.failures.get_mut(&episode.cause) {
            failures.is_spent = true;
        }
        Some((episode.cause, episode.first))
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

    fn settings() -> Settings {
        Settings {
            max_steps: 12,
            fallback: Fallback {
                candidates: vec![Candidate::default(), Candidate::default()],
                ..Fallback::default()
            },
            ..Settings::default()
        }
    }

    fn end_at(
        fallbacks: &mut Fallbacks,
        call: &Call,
        result: &Result<Value, ToolFailure>,
        step: u32,
    ) {
        let outcome = CallOutcome {
            result,
            is_tools_own: false,
        };
        fallbacks.count(&settings().fallback, call, outcome, step, str::to_owned);
    }

    fn fail_in(fallbacks: &mut Fallbacks, call: &Call, kind: &str, steps: std::ops::Range<u32>) {
        for step in steps {
            end_at(fallbacks, call, &failed(kind), step);
        }
    }

    #[test]
    fn calls_of_one_reply_are_one_attempt_and_a_success_forgets_them() {
        let add = call("add", None);
        let due = |fallbacks: &Fallbacks| fallbacks.due(&settings(), 5);
        let mut fallbacks = Fallbacks::default();
        for _ in 0..5 {
            fail_in(&mut fallbacks, &add, "arguments", 1..2);
        }
        assert_eq!(due(&fallbacks), None);
        fail_in(&mut fallbacks, &add, "deadline", 2..4);
        assert_eq!(
            due(&fallbacks),
            Some(Due {
                cause: Cause::Call(("add".into(), None)),
                failures: 3,
                first: "arguments is wrong".into()
            })
        );
        end_at(&mut fallbacks, &add, &Ok(Value::Null), 4);
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
            end_at(&mut fallbacks, &add, &Err(fatal.clone()), step);
        }
        // Each instance fails for itself.
        fail_in(&mut fallbacks, &call("add", Some("a")), "arguments", 0..2);
        fail_in(&mut fallbacks, &call("add", Some("b")), "arguments", 2..4);
        assert_eq!(fallbacks.due(&settings(), 0), None);
    }

    #[test]
    fn no_candidate_is_asked_beyond_what_the_run_may() {
        let mut fallbacks = Fallbacks::default();
        fail_in(&mut fallbacks, &call("add", None), "arguments", 0..3);
        assert!(fallbacks.due(&settings(), 11).is_some());
        assert_eq!(fallbacks.due(&settings(), 12), None);
        let mut off = settings();
        off.fallback.is_on = false;
        assert_eq!(fallbacks.due(&off, 0), None);
        fallbacks.requests = 12 * off.fallback.attempts;
        assert_eq!(fallbacks.due(&settings(), 0), None);
    }

    #[test]
    fn candidates_take_turns_and_are_not_asked_again_when_all_failed() {
        let (mut fallbacks, settings) = (Fallbacks::default(), settings());
        let add = call("add", Some("a"));
        assert!(fallbacks.keep(Turn::user("the run's")).is_some());
        fail_in(&mut fallbacks, &add, "arguments", 0..3);
        let due = fallbacks.due(&settings, 3).unwrap();
        fallbacks.begin(due);
        assert!(fallbacks.check(&add).is_ok());
        for other in [call("add", None), call("sub", Some("a"))] {
            assert_eq!(fallbacks.check(&other).unwrap_err().kind, "forced");
        }
        assert!(fallbacks.keep(Turn::user("its own")).is_none());
        assert_eq!(fallbacks.aside().len(), 2);
        for (attempt, is_hopeless) in [(1, false), (2, false), (3, false), (1, true)] {
            assert!(fallbacks.candidate(&settings.fallback.candidates).is_some());
            let (_, made) = fallbacks
                .attempt_failed(is_hopeless, settings.fallback.attempts)
                .unwrap();
            assert_eq!(made, attempt);
        }
        assert_eq!(fallbacks.aside().len(), 1, "nothing of the one before");
        assert_eq!(fallbacks.candidate(&settings.fallback.candidates), None);
        let failed_at = Cause::Call(("add".into(), Some("a".into())));
        assert_eq!(
            fallbacks.exhausted().unwrap(),
            (failed_at.clone(), "arguments is wrong".to_owned())
        );
        assert_eq!(
            fallbacks.spent(),
            Some((&failed_at, "arguments is wrong")),
            "kept for the end of the run"
        );
        fail_in(&mut fallbacks, &add, "arguments", 4..9);
        assert_eq!(fallbacks.due(&settings, 3), None);
        end_at(&mut fallbacks, &add, &Ok(Value::Null), 9);
        fail_in(&mut fallbacks, &add, "arguments", 10..13);
        assert!(fallbacks.due(&settings, 3).is_some());
    }

    #[test]
    fn work_of_a_successful_candidate_belongs_to_the_run() {
        let mut fallbacks = Fallbacks::default();
        fail_in(&mut fallbacks, &call("add", None), "arguments", 0..3);
        let due = fallbacks.due(&settings(), 3).unwrap();
        fallbacks.begin(due);
        fallbacks.keep(Turn::user("the call"));
        let (_, turns) = fallbacks.succeeded().unwrap();
        assert_eq!(turns.len(), 1);
        assert!(!fallbacks.is_on());
        assert_eq!(fallbacks.due(&settings(), 3), None);
    }

    #[test]
    fn errors_of_the_tool_itself_are_counted_only_where_that_is_wanted() {
        let add = call("add", None);
        for (tool_errors, expected) in [(false, false), (true, true)] {
            let mut settings = settings();
            settings.fallback.tool_errors = tool_errors;
            let mut fallbacks = Fallbacks::default();
            for step in 0..3 {
                let outcome = CallOutcome {
                    result: &failed("wrong"),
                    is_tools_own: true,
                };
                fallbacks.count(&settings.fallback, &add, outcome, step, str::to_owned);
            }
            assert_eq!(fallbacks.due(&settings, 3).is_some(), expected);
        }
    }

    #[test]
    fn replies_are_counted_as_long_as_there_is_another_model() {
        let mut fallbacks = Fallbacks::default();
        for step in 0..3 {
            assert_eq!(fallbacks.due(&settings(), step), None);
            fallbacks.count_reply(step, || format!("reason {step}"));
        }
        let due = fallbacks.due(&settings(), 3).unwrap();
        assert_eq!((due.cause, due.first), (Cause::Reply, "reason 0".into()));
        let mut alone = settings();
        alone.fallback.candidates.clear();
        assert_eq!(fallbacks.due(&alone, 3), None);
        let mut strict = settings();
        strict.max_unusable = 2;
        fallbacks.reply_used();
        for step in 4..6 {
            fallbacks.count_reply(step, || format!("reason {step}"));
        }
        assert_eq!(fallbacks.due(&settings(), 6), None);
        assert!(fallbacks.due(&strict, 6).is_some(), "before the run ends");
    }
}
