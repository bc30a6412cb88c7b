//! How often each tool, and replies as a whole, failed in a row, and the fallback that is going on. A state of
//! its own: it makes no events and asks nothing, `fallback` does both.

use super::council::HELD;
use serde_json::Value;
use std::collections::BTreeMap;
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::failure::{INTERRUPTED, ToolFailure};
use toolhold_protocol::fallback::{Candidate, Fallback};
use toolhold_protocol::settings::Settings;
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Turn;

/// Failures that say nothing about the model: a person or a limit decided them, or another call of the
/// same or an earlier reply is what is wrong.
const NOT_THE_MODELS: [&str; 8] = [
    HELD,
    "refused",
    INTERRUPTED,
    "depth",
    "shield",
    "calls",
    "repeated",
    "blocked",
];

/// A tool, in one instance or in what belongs to all.
pub(super) type CallTarget = (String, Option<String>);

/// What fails: the calls of a tool, or replies of which nothing can be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Call(CallTarget),
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
    /// The step of the first one.
    since: u32,
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
            since: step,
            first: shortened(&failure.message),
            ..Failures::default()
        });
        failures.count(step);
    }

    /// Counts a reply of the run's own model that could not be used as a whole.
    pub(super) fn count_reply(&mut self, step: u32, reason: impl FnOnce() -> String) {
        let failures = self.failures.entry(Cause::Reply);
        let failures = failures.or_insert_with(|| Failures {
            since: step,
            first: reason(),
            ..Failures::default()
        });
        failures.count(step);
    }

    /// A reply of the run's own model could be used.
    pub(super) fn reply_used(&mut self) {
        self.failures.remove(&Cause::Reply);
    }

    /// What no candidate managed, and its first error; of several, the one that failed first.
    pub(super) fn spent(&self) -> Option<(&Cause, &str)> {
        let spent = self.failures.iter().filter(|(_, it)| it.is_spent);
        let (cause, failures) = spent.min_by_key(|(_, failures)| failures.since)?;
        Some((cause, failures.first.as_str()))
    }

    /// How many replies of the run's own model in a row could not be used as a whole.
    pub(super) fn unusable_replies(&self) -> u32 {
        let failures = self.failures.get(&Cause::Reply);
        failures.map_or(0, |failures| failures.count)
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
    pub(super) fn key(&self) -> Option<&CallTarget> {
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
                let mut text = PromptText::from("The call of ");
                text.line(tool);
                if let Some(instance) = instance {
                    text.words(" for the instance ").line(instance);
                }
                text.words(" failed several times, first with: ")
                    .line(&episode.first)
                    .words(
                        "\nMake exactly this call now, with arguments that its parameters allow and that do what the \
                         task needs. Make no other call and give no answer.",
                    )
                    .take()
            }
            Cause::Reply => PromptText::from("Several replies could not be used, the first because: ")
                .line(&episode.first)
                .words(
                    "\nReply now in the form that is asked for: call tools by the names that they have, or give the \
                     answer.",
                )
                .take(),
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
    /// own model. `was_unused`: nothing of its last reply could be used.
    pub(super) fn due(&self, settings: &Settings, own_steps: u32, was_unused: bool) -> Option<Due> {
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
                    was_unused
                        && failures.count >= of_call.min(settings.max_unusable)
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
#[path = "fallbacks_tests.rs"]
mod tests;
