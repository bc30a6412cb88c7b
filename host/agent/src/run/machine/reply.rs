//! Processes the model's reply, while it streams and when it is complete.

use super::{Action, Effects, Machine, millis};
use crate::contract::{self, ReplyPart, RequestView};
use crate::run::RunUsage;
use serde_json::Value;
use std::time::Duration;
use toolhold_json::validate::cut;
use toolhold_policy::ErrorClass;
use toolhold_protocol::advisor;
use toolhold_protocol::advisor::{Attendance, Council};
use toolhold_protocol::completion::{Completion, Delta, Usage};
use toolhold_protocol::event::{EventKind, RunFailure, StopReason, UnusableReply};
use toolhold_protocol::meta;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::turn::Turn;

impl Machine {
    /// A piece of the reply: calls that it completes are made at once (7.2).
    pub(super) fn wrote(&mut self, delta: Delta, effects: &mut Effects) {
        self.step.has_begun = true;
        let pieces = self.step.reader.as_mut().map(|reader| reader.push(&delta));
        effects.events.push(EventKind::Delta {
            step: self.steps,
            delta,
        });
        self.take_pieces(pieces.unwrap_or_default(), effects);
    }

    /// Calls are taken as long as nothing speaks against the reply; from then on it is judged as a
    /// whole.
    fn take_pieces(&mut self, pieces: Vec<ReplyPart>, effects: &mut Effects) {
        for piece in pieces {
            let is_fine = match piece {
                // No call is made for a reply that may not stand: its meta comes before them (2).
                ReplyPart::Call { .. } if self.needed_meta().is_some() && !self.step.has_meta => {
                    false
                }
                ReplyPart::Call { call, .. } => match Call::read(call) {
                    Ok(call) => {
                        self.accept(call, effects);
                        true
                    }
                    Err(_) => false,
                },
                ReplyPart::Field { name, value } if name == "meta" => {
                    self.step.has_meta = self.check_meta(&value).is_ok();
                    self.step.has_meta || value.is_null()
                }
                ReplyPart::Field { .. } => true,
            };
            if !is_fine {
                self.step.reader = None;
                return;
            }
        }
    }

    pub(super) fn replied(&mut self, completion: Completion, effects: &mut Effects) {
        self.step.has_reply = true;
        self.broken = 0;
        self.fitted();
        let usage = completion.usage.as_ref();
        if let Some(usage) = usage {
            self.counted(usage.prompt_tokens);
        }
        let cost = self
            .price()
            .and_then(|price| price.of(usage, completion.duration));
        let has_to_be_known = self.counts_money();
        self.spent = self.spent.plus(RunUsage {
            tokens: usage.map_or(0, Usage::total),
            cost: cost.unwrap_or_default(),
            unpriced: u32::from(cost.is_none() && has_to_be_known),
            calls: 0,
        });
        let tokens = EventKind::Tokens {
            step: self.steps,
            prompt: usage.map(|usage| usage.prompt_tokens),
            completion: usage.map(|usage| usage.completion_tokens),
            total: self.spent.tokens,
            first_token_ms: completion.time_to_first_token.map(millis),
            duration_ms: millis(completion.duration),
            cost_nano: cost,
        };
        effects.events.push(EventKind::Reply {
            step: self.steps,
            completion: completion.clone(),
        });
        effects.events.push(tokens);
        if let Some(mut reader) = self.step.reader.take() {
            let pieces = reader.finish();
            self.take_pieces(pieces, effects);
            self.step.reader = None;
        }
        let turns = Vec::new();
        // As the Request was sent.
        let settings = Settings {
            max_tokens: self.sent_reply_tokens(),
            ..self.request.settings.clone()
        };
        let view = RequestView {
            settings: &settings,
            ..self.view(&turns, None)
        };
        let read = contract::read(self.contract(), &completion, &view);
        let usable = read.and_then(|solution| self.check(&solution).map(|()| solution));
        match usable {
            Ok(solution) => self.solved(solution, &completion, effects),
            Err(reason) if self.has_acted() => {
                let notice = self.unusable_reply(true, &reason);
                effects.events.push(notice);
                self.unusable += 1;
                self.step.notes.push(format!(
                    "Of that reply only the calls above were made, because {reason}."
                ));
                self.note_ignored(effects);
                self.step.is_over = true;
                self.proceed(effects);
            }
            Err(reason) => {
                if contract::is_cut_in_thought(&completion)
                    && let Some(tokens) = self.raise_reply()
                {
                    effects.events.push(EventKind::Notice {
                        step: self.steps,
                        message: format!(
                            "the reply was cut while the model thought: from here on a reply may take up to {tokens} \
                             tokens, because no limit was chosen (run.max_tokens)"
                        ),
                    });
                }
                self.reject(&completion.content, reason, effects);
            }
        }
    }

    /// There is no reply, or it broke off. Calls that were already made are not made again.
    pub(super) fn model_failed(&mut self, failure: RunFailure, effects: &mut Effects) {
        effects.events.push(EventKind::ModelFailed {
            step: self.steps,
            failure: failure.clone(),
        });
        self.step.reader = None;
        let is_paid = self.pay_for_broken(failure.took_ms, effects);
        let failure = RunFailure {
            took_ms: None,
            ..failure
        };
        if let Some(overflow) = failure.overflow
            && self.forced().is_none()
            && !self.has_acted()
            && let Some(message) = self.shorten_for(overflow)
        {
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message,
            });
            return self.send(effects);
        }
        if self.forced().is_some() && !self.has_acted() {
            let is_hopeless = failure.class != ErrorClass::Retryable;
            return self.attempt_failed(&failure.message, is_hopeless, effects);
        }
        let may_ask_again = self.step.has_begun && failure.class == ErrorClass::Retryable;
        if may_ask_again
            && !self.has_acted()
            && self.broken < self.request.settings.max_broken_replies
        {
            if let Some((reason, message)) = self.overdrawn().filter(|_| is_paid) {
                return self.fail(reason, ErrorClass::Correctable, message, effects);
            }
            self.broken += 1;
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message: "the reply broke off before anything was done, asking again".into(),
            });
            return self.send(effects);
        }
        let is_last = self.unusable + 1 >= self.request.settings.max_unusable;
        if !self.has_acted() || (is_last && !self.hands_over()) {
            return self.finish(StopReason::Model, Value::Null, Some(failure), effects);
        }
        self.unusable += 1;
        self.step.notes.push(format!(
            "Your reply broke off after these calls ({}). Go on from here.",
            cut(&failure.message, 200)
        ));
        self.note_ignored(effects);
        self.step.is_over = true;
        self.proceed(effects);
    }

    /// What was written of a reply that broke off was paid for, but has no count. Whether it is counted here:
    /// records from before it was lack the time, and are replayed without.
    fn pay_for_broken(&mut self, took_ms: Option<u64>, effects: &mut Effects) -> bool {
        let is_paid = self.step.has_begun && self.counts_money();
        let Some(duration_ms) = took_ms.filter(|_| is_paid) else {
            return false;
        };
        let took = Duration::from_millis(duration_ms);
        let cost = self.price().and_then(|price| price.of(None, took));
        self.spent = self.spent.plus(RunUsage {
            cost: cost.unwrap_or_default(),
            unpriced: u32::from(cost.is_none()),
            ..RunUsage::default()
        });
        effects.events.push(EventKind::Tokens {
            step: self.steps,
            prompt: None,
            completion: None,
            total: self.spent.tokens,
            first_token_ms: None,
            duration_ms,
            cost_nano: cost,
        });
        true
    }

    /// Whether calls of this reply were made or wait to be.
    fn has_acted(&self) -> bool {
        !self.step.open.is_empty()
    }

    /// What makes a reply as a whole unusable.
    fn check(&self, solution: &Solution) -> Result<(), String> {
        if self.needed_meta().is_some() {
            let meta = solution.meta.as_ref().ok_or("the reply lacks \"meta\"")?;
            self.check_meta(meta)?;
        }
        Ok(())
    }

    fn check_meta(&self, after: &Value) -> Result<meta::Meta, String> {
        match &self.context.meta {
            // As it is meant: its domain and path may be hidden.
            Some(before) => meta::check(before, &self.vault.reveal_all(after))
                .map_err(|error| format!("its meta cannot be accepted: {error}")),
            None => Err("the reply has \"meta\", which was not requested".into()),
        }
    }

    fn unusable_reply(&self, calls_made: bool, reason: &str) -> EventKind {
        EventKind::UnusableReply(UnusableReply {
            step: self.steps,
            calls_made,
            reason: reason.to_owned(),
        })
    }

    /// A reply that cannot be used goes back to the model with the reason, a few times.
    pub(super) fn reject(&mut self, reply: &str, reason: String, effects: &mut Effects) {
        if self.forced().is_some() {
            self.remember(Turn::Rejected {
                reply: reply.to_owned(),
                reason: reason.clone(),
            });
            return self.attempt_failed(&reason, false, effects);
        }
        self.unusable += 1;
        if self.unusable >= self.request.settings.max_unusable {
            // Both quote what no shield saw.
            let why = if self.withholds() {
                "; what it wrote is for the run's record alone, because shields stand on its output"
                    .to_owned()
            } else {
                format!(
                    ", the last because {reason}; it wrote {:?}",
                    cut(reply, 200)
                )
            };
            let message = format!(
                "the model gave {} replies in a row that could not be used{why}. Try the other contract (--contract), \
                 a larger --max-tokens, or another model",
                self.unusable,
            );
            return self.fail(
                StopReason::Unusable,
                ErrorClass::Correctable,
                message,
                effects,
            );
        }
        effects.events.push(self.unusable_reply(false, &reason));
        self.history.push(Turn::Rejected {
            reply: reply.to_owned(),
            reason,
        });
        self.ask(effects);
    }

    fn solved(&mut self, mut solution: Solution, completion: &Completion, effects: &mut Effects) {
        let meant = |output: &Value| self.vault.reveal_all(output);
        solution.output = solution.output.as_ref().map(meant);
        if !solution.repairs.is_empty() {
            effects.events.push(EventKind::Repaired {
                step: self.steps,
                call: None,
                tool: None,
                repairs: solution.repairs.iter().map(|kind| kind.whole()).collect(),
            });
        }
        if let (Some(output), Some(validator)) = (&solution.output, &self.output)
            && let Err(reason) = validator.check(output)
        {
            let reason = format!("the output does not fit its schema: {reason}");
            if solution.calls.is_empty() && !self.has_acted() {
                return self.reject(&completion.content, reason, effects);
            }
            self.step
                .notes
                .push(format!("Your output was not accepted: {reason}."));
            solution.output = None;
        }
        if self.request.settings.shape == toolhold_protocol::compose::Shape::Exclusive
            && !solution.calls.is_empty()
            && solution.output.take().is_some()
        {
            // Made up before the calls had results (4).
            self.step.notes.push(
                "Your output was not accepted, because a reply holds calls or an output and not both: read the \
                 results first, then answer."
                    .into(),
            );
        }
        if let Some(after) = &solution.meta
            && let Ok(meta) = self.check_meta(after)
        {
            effects.events.push(EventKind::Meta {
                step: self.steps,
                meta: Box::new(meta.clone()),
            });
            self.context.meta = Some(meta);
        }
        let taken = self.step.open.len() + self.step.planned.len() + self.step.ignored;
        for call in solution.calls.drain(..).skip(taken) {
            self.accept(call, effects);
        }
        self.note_ignored(effects);
        self.hear(solution.advisors.as_ref(), effects);
        self.step.output = solution.output.filter(|_| self.forced().is_none());
        if !self.step.planned.is_empty() {
            return self.planned(&completion.content, effects);
        }
        self.unusable = 0;
        self.solutions += 1;
        if !self.step.open.is_empty() {
            effects.events.push(EventKind::Plan {
                step: self.steps,
                calls: self
                    .step
                    .open
                    .iter()
                    .map(|open| open.call.clone())
                    .collect(),
            });
        }
        self.step.is_over = true;
        self.proceed(effects);
    }

    /// Calls beyond the most that are made are not lost without a word.
    fn note_ignored(&mut self, effects: &mut Effects) {
        if self.step.ignored > 0 {
            let (max, all) = (self.max_calls(), self.max_calls() + self.step.ignored);
            let message = format!("of {all} calls only the first {max} are made (run.max_calls)");
            self.step.notes.push(format!(
                "Of your {all} calls only the first {max} were made; make the others now."
            ));
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message,
            });
        }
    }

    /// Counts what the advisors said and holds the decision against it (10).
    fn hear(&mut self, said: Option<&Value>, effects: &mut Effects) {
        if self.step.advisors.is_none() {
            return;
        }
        let asked = advisor::taking_part(&self.context.advisors, self.step.moment);
        let seats = advisor::seats(&asked, &self.context.instances);
        let tools: Vec<&str> = self.offered.iter().map(|tool| tool.name.as_str()).collect();
        let said = said.map(|said| self.advised(said)).unwrap_or_default();
        let council = Council::read(&said, &seats, &tools);
        let calls = self.step.open.iter().map(|open| &open.call);
        let chosen: Vec<(&str, Option<&str>)> = calls
            .chain(&self.step.planned)
            .map(|call| (call.tool.as_str(), call.instance.as_deref()))
            .collect();
        let dissent = council.dissent(&chosen);
        if let Some(dissent) = &dissent {
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message: dissent.sentence.clone(),
            });
        }
        for fault in &council.faults {
            self.step.notes.push(format!("Of the advisors: {fault}."));
        }
        effects.events.push(EventKind::Council {
            step: self.steps,
            tallies: council.tallies(),
            council: Box::new(council),
            dissent,
        });
    }

    /// The model gave its output: the end, unless advisors wait for exactly this moment.
    pub(super) fn conclude(&mut self, output: Value, effects: &mut Effects) {
        // Those who speak in every iteration have spoken in this one.
        let waiting: Vec<&str> = advisor::latest(&self.context.advisors)
            .into_iter()
            .filter(|advisor| advisor.on == Some(Attendance::Finish))
            .map(|advisor| advisor.id.as_str())
            .collect();
        if self.finishing || waiting.is_empty() {
            return self.deliver(StopReason::Output, output, None, effects);
        }
        if let Some((_, limit)) = self.exhausted() {
            // An output without advice is better than none.
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message: format!("{} could not be heard: {limit}", waiting.join(", ")),
            });
            return self.deliver(StopReason::Output, output, None, effects);
        }
        self.finishing = true;
        self.history.push(Turn::assistant(text_of(&output)));
        self.history.push(Turn::user(
            "Before this ends, the advisors say what they think of it. Let them speak first; then give the \
             output again, changed if they convinced you, or make the calls that are still needed.",
        ));
        self.ask(effects);
    }

    /// Has a person decide about a call.
    pub(super) fn decide(
        &self,
        pending: toolhold_protocol::approval::Pending,
        effects: &mut Effects,
    ) {
        effects.events.push(EventKind::Approval {
            step: self.steps,
            pending: pending.clone(),
        });
        effects.actions.push(Action::Decide(Box::new(pending)));
    }
}

/// A plain string as it is, anything else as JSON.
pub(super) fn text_of(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
