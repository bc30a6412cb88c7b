//! A call that the run's own model keeps getting wrong is made by another one, in a copy of the history
//! and with the tool forced (docs/protocol.md, 7.9).

use super::fallbacks::{Due, Key};
use super::{Effects, Machine};
use serde_json::Value;
use toolhold_json::validate::cut;
use toolhold_policy::ErrorClass;
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::Price;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::fallback::{Candidate, Stage};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::Turn;

/// Maximum characters of an error shown to another model, or to a person.
const MAX_ERROR_CHARS: usize = 1_000;

impl Machine {
    /// Counts how a call ended. Decisions of a person or a limit are not counted against the model.
    pub(super) fn count_outcome(&mut self, call: &Call, outcome: &Result<Value, ToolFailure>) {
        if self.tool(&call.tool).is_none() {
            return;
        }
        let vault = &self.vault;
        self.fallbacks.count(call, outcome, self.steps, |message| {
            cut(message, vault.clear(message, MAX_ERROR_CHARS))
        });
    }

    /// The tool that a candidate is being asked to call.
    pub(super) fn forced(&self) -> Option<&str> {
        self.fallbacks.key().map(|(tool, _)| tool.as_str())
    }

    fn candidate(&self) -> Option<&Candidate> {
        self.fallbacks
            .candidate(&self.request.settings.fallback.candidates)
    }

    /// The candidate that is asked next, by the driver's name for it; `None` is the run's own
    /// model.
    pub(super) fn addressee(&self) -> Option<&str> {
        self.candidate().map(|candidate| candidate.name.as_str())
    }

    /// The price of a reply of the model that was asked.
    pub(super) fn price(&self) -> Option<Price> {
        self.candidate()
            .map_or(self.request.settings.price, |candidate| candidate.price)
    }

    /// The endpoint's name of the model that is asked next.
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
        self.history.extend(self.fallbacks.keep(turn));
    }

    /// Turns that a candidate is shown in addition to the history.
    pub(super) fn aside(&self) -> Vec<Turn> {
        self.fallbacks.aside()
    }

    /// Why a call is not the one that a candidate was asked for.
    pub(super) fn check_forced(&self, call: &Call) -> Result<(), ToolFailure> {
        self.fallbacks.check(call)
    }

    /// The next Request: to a candidate if a tool failed too often, and else to the run's own model.
    pub(super) fn next(&mut self, effects: &mut Effects) {
        while let Some(due) = self.due_fallback() {
            let stage = Stage::Begun {
                failures: due.failures,
                first_error: due.first.clone(),
            };
            self.tell(&due.key, stage, effects);
            self.fallbacks.begin(due);
            if self.ask_candidate(effects) {
                return;
            }
        }
        self.ask(effects);
    }

    fn due_fallback(&self) -> Option<Due> {
        let settings = &self.request.settings;
        self.fallbacks
            .due(&settings.fallback, self.own_steps(), settings.max_steps)
    }

    /// Asks the candidate whose turn it is, or the first after it that can be asked. Returns whether the run
    /// goes on with that or ended; `false` if all candidates failed.
    fn ask_candidate(&mut self, effects: &mut Effects) -> bool {
        loop {
            let (Some(key), Some(attempt)) =
                (self.fallbacks.key().cloned(), self.fallbacks.attempt())
            else {
                return false;
            };
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
                self.fallbacks.turn_to_next();
                continue;
            }
            if let Some((reason, message)) = self.overdrawn() {
                self.fallbacks.abandon();
                self.fail(reason, ErrorClass::Correctable, message, effects);
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

    /// A candidate's reply was carried out; `calls` are its calls with their results.
    pub(super) fn attempted(&mut self, calls: &[Answered], effects: &mut Effects) {
        let Some(key) = self.fallbacks.key() else {
            return;
        };
        let mut of_tool = calls.iter().filter(|answered| answered.call.tool == key.0);
        if of_tool.clone().any(|answered| !answered.failed) {
            let candidate = self.addressee().unwrap_or_default().to_owned();
            if let Some((key, turns)) = self.fallbacks.succeeded() {
                self.history.extend(turns);
                self.tell(&key, Stage::Succeeded { candidate }, effects);
            }
            return self.next(effects);
        }
        let reason = of_tool.next_back().map_or_else(
            || "the reply holds no call of the tool".to_owned(),
            |answered| answered.text.clone(),
        );
        self.attempt_failed(&reason, false, effects);
    }

    /// An attempt came to nothing: the candidate tries again while it may, and then the next one.
    pub(super) fn attempt_failed(
        &mut self,
        reason: &str,
        is_hopeless: bool,
        effects: &mut Effects,
    ) {
        let candidate = self.addressee().unwrap_or_default().to_owned();
        let most = self.request.settings.fallback.attempts;
        let Some((key, attempt)) = self.fallbacks.attempt_failed(is_hopeless, most) else {
            return;
        };
        let stage = Stage::Failed {
            candidate,
            attempt,
            reason: cut(reason, MAX_ERROR_CHARS),
        };
        self.tell(&key, stage, effects);
        if !self.ask_candidate(effects) {
            self.next(effects);
        }
    }

    /// All candidates failed: the run's own model gets the first error.
    fn give_up(&mut self, effects: &mut Effects) {
        let Some((key, first)) = self.fallbacks.exhausted() else {
            return;
        };
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
