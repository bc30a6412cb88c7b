//! A call that the run's own model keeps getting wrong is made by another one, in a copy of the history
//! and with the tool forced (PROTOCOL.md, 7).

use super::{Effects, Machine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_json::validate::cut;
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::Price;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ErrorClass;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::fallback::{Candidate, Stage};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::Turn;

/// Characters of an error that another model, or a person, is told.
const MAX_ERROR: usize = 1_000;

/// A tool, in one instance or in what belongs to all.
type Key = (String, Option<String>);

/// What is counted in a run, and the fallback that is going on.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    failures: BTreeMap<Key, Failures>,
    episode: Option<Episode>,
    /// Requests that fallbacks took: they are not the run's own steps.
    pub(super) requests: u32,
}

#[derive(Debug)]
struct Failures {
    /// The last that was counted.
    step: Option<u32>,
    count: u32,
    first: String,
    /// No candidate managed it either; nobody is asked again before there was a success.
    is_spent: bool,
}

/// Candidates are asked, one after the other.
#[derive(Debug)]
struct Episode {
    key: Key,
    first: String,
    /// Its place among the candidates.
    candidate: usize,
    attempt: u32,
    /// What came of this candidate's attempts, behind the history of the run.
    turns: Vec<Turn>,
}

impl Machine {
    /// Counts how a call ended. What a person or a limit decided says nothing about the model.
    pub(super) fn count_outcome(&mut self, call: &Call, outcome: &Result<Value, ToolFailure>) {
        const NOT_THE_MODELS: [&str; 7] = [
            "refused",
            "interrupted",
            "depth",
            "shield",
            "calls",
            // Another call of the same reply, or an earlier one, is what is wrong.
            "repeated",
            "blocked",
        ];
        if self.fallbacks.episode.is_some() || self.tool(&call.tool).is_none() {
            return;
        }
        let key = (call.tool.clone(), call.instance.clone());
        let Err(failure) = outcome else {
            self.fallbacks.failures.remove(&key);
            return;
        };
        if failure.class == ErrorClass::Fatal || NOT_THE_MODELS.contains(&failure.kind.as_str()) {
            return;
        }
        let most = self.vault.clear(&failure.message, MAX_ERROR);
        let failures = self
            .fallbacks
            .failures
            .entry(key)
            .or_insert_with(|| Failures {
                step: None,
                count: 0,
                first: cut(&failure.message, most),
                is_spent: false,
            });
        // Calls of one reply are one attempt: the model has not seen yet what went wrong.
        if failures.step != Some(self.steps) {
            failures.step = Some(self.steps);
            failures.count += 1;
        }
    }

    /// The tool that a candidate is being asked to call.
    pub(super) fn forced(&self) -> Option<&str> {
        let episode = self.fallbacks.episode.as_ref()?;
        Some(&episode.key.0)
    }

    fn candidate(&self) -> Option<&Candidate> {
        let episode = self.fallbacks.episode.as_ref()?;
        let candidates = &self.request.settings.fallback.candidates;
        candidates.get(episode.candidate)
    }

    /// Who is asked next, as the driver knows them; nobody in particular is the run's own model.
    pub(super) fn addressee(&self) -> Option<&str> {
        self.candidate().map(|candidate| candidate.name.as_str())
    }

    /// What a reply of the one who was asked costs.
    pub(super) fn price(&self) -> Option<Price> {
        self.candidate()
            .map_or(self.request.settings.price, |candidate| candidate.price)
    }

    /// What the one who is asked next is called by its endpoint.
    pub(super) fn model(&self) -> &str {
        self.candidate()
            .map_or(&self.model, |candidate| &candidate.model)
    }

    pub(super) fn contract(&self) -> Contract {
        self.candidate()
            .map_or(self.request.settings.contract, |candidate| {
                candidate.contract
            })
    }

    pub(super) fn forcing(&self) -> Forcing {
        self.candidate()
            .map_or_else(Forcing::default, |candidate| candidate.forcing)
    }

    /// Adds to the history, or to its copy.
    pub(super) fn remember(&mut self, turn: Turn) {
        match &mut self.fallbacks.episode {
            Some(episode) => episode.turns.push(turn),
            None => self.history.push(turn),
        }
    }

    /// What a candidate is shown beyond the history.
    pub(super) fn aside(&self) -> Vec<Turn> {
        let Some(episode) = &self.fallbacks.episode else {
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

    /// Why a call is not the one that a candidate was asked for.
    pub(super) fn check_forced(&self, call: &Call) -> Result<(), ToolFailure> {
        match &self.fallbacks.episode {
            Some(Episode { key, .. }) if *key != (call.tool.clone(), call.instance.clone()) => {
                Err(ToolFailure::correctable(
                    "forced",
                    format!("only a call of {} is asked for now", key.0),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The next Request: to a candidate if a tool failed too often, and else to the run's own model.
    pub(super) fn next(&mut self, effects: &mut Effects, elapsed: Duration) {
        while let Some((key, failures, first)) = self.failed_too_often() {
            let stage = Stage::Begun {
                failures,
                first_error: first.clone(),
            };
            self.tell(&key, stage, effects);
            self.fallbacks.episode = Some(Episode {
                key,
                first,
                candidate: 0,
                attempt: 1,
                turns: Vec::new(),
            });
            if self.ask_candidate(effects, elapsed) {
                return;
            }
        }
        self.ask(effects, elapsed);
    }

    /// What a candidate should do, while there may be Requests.
    fn failed_too_often(&self) -> Option<(Key, u32, String)> {
        let settings = &self.request.settings;
        let fallback = &settings.fallback;
        let most = settings.max_steps.saturating_mul(fallback.attempts);
        let may_ask = self.own_steps() < settings.max_steps && self.fallbacks.requests < most;
        let mut failures = self.fallbacks.failures.iter();
        let (key, failures) = failures.find(|(_, failures)| {
            !failures.is_spent && failures.count >= fallback.max_tool_failures.max(1)
        })?;
        let found = (key.clone(), failures.count, failures.first.clone());
        (fallback.is_on && may_ask).then_some(found)
    }

    /// Asks the candidate whose turn it is, or the first after it that can be asked. Whether the run goes
    /// on with that, or ended; if not, everybody failed.
    fn ask_candidate(&mut self, effects: &mut Effects, elapsed: Duration) -> bool {
        loop {
            let Some(episode) = &self.fallbacks.episode else {
                return false;
            };
            let (key, attempt) = (episode.key.clone(), episode.attempt);
            let Some(candidate) = self.candidate().cloned() else {
                self.give_up(effects);
                return false;
            };
            if let Some(reason) = candidate.missing {
                let stage = Stage::Skipped {
                    candidate: candidate.name,
                    reason,
                };
                self.tell(&key, stage, effects);
                self.next_candidate();
                continue;
            }
            if let Some((reason, message)) = self.overdrawn() {
                self.fallbacks.episode = None;
                self.fail(reason, ErrorClass::Correctable, message, effects, elapsed);
                return true;
            }
            let stage = Stage::Asked {
                candidate: candidate.name,
                attempt,
            };
            self.tell(&key, stage, effects);
            self.steps += 1;
            self.fallbacks.requests += 1;
            self.send(effects);
            return true;
        }
    }

    fn next_candidate(&mut self) {
        if let Some(episode) = &mut self.fallbacks.episode {
            episode.candidate += 1;
            episode.attempt = 1;
            episode.turns.clear();
        }
    }

    /// A candidate's reply was carried out: `calls` are what came of it.
    pub(super) fn attempted(
        &mut self,
        calls: &[Answered],
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        let Some(episode) = &self.fallbacks.episode else {
            return;
        };
        let key = episode.key.clone();
        let mut of_tool = calls.iter().filter(|answered| answered.call.tool == key.0);
        if of_tool.clone().any(|answered| !answered.failed) {
            let candidate = self.addressee().unwrap_or_default().to_owned();
            if let Some(episode) = self.fallbacks.episode.take() {
                self.history.extend(episode.turns);
            }
            self.fallbacks.failures.remove(&key);
            self.tell(&key, Stage::Succeeded { candidate }, effects);
            return self.next(effects, elapsed);
        }
        let reason = of_tool.next_back().map_or_else(
            || "the reply holds no call of the tool".to_owned(),
            |answered| answered.text.clone(),
        );
        self.attempt_failed(&reason, false, effects, elapsed);
    }

    /// An attempt came to nothing: the candidate tries again while it may, and then the next one.
    pub(super) fn attempt_failed(
        &mut self,
        reason: &str,
        is_hopeless: bool,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        let candidate = self.addressee().unwrap_or_default().to_owned();
        let most = self.request.settings.fallback.attempts;
        let Some(episode) = &mut self.fallbacks.episode else {
            return;
        };
        let (key, attempt) = (episode.key.clone(), episode.attempt);
        episode.attempt += 1;
        let stage = Stage::Failed {
            candidate,
            attempt,
            reason: cut(reason, MAX_ERROR),
        };
        self.tell(&key, stage, effects);
        if is_hopeless || attempt >= most {
            self.next_candidate();
        }
        if !self.ask_candidate(effects, elapsed) {
            self.next(effects, elapsed);
        }
    }

    /// Everybody failed: what the run's own model is told is the first error.
    fn give_up(&mut self, effects: &mut Effects) {
        let Some(Episode { key, first, .. }) = self.fallbacks.episode.take() else {
            return;
        };
        if let Some(failures) = self.fallbacks.failures.get_mut(&key) {
            failures.is_spent = true;
        }
        self.history.push(Turn::user(format!(
            "{} failed too often and is not worth another attempt of the same kind. The first error was: {first}\nDo \
             without it, or end and say what is missing.",
            key.0
        )));
        self.tell(&key, Stage::Exhausted { first_error: first }, effects);
    }

    fn tell(&self, (tool, instance): &Key, stage: Stage, effects: &mut Effects) {
        effects.events.push(EventKind::Fallback {
            step: self.steps,
            tool: tool.clone(),
            instance: instance.clone(),
            stage,
        });
    }
}
