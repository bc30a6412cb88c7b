//! Processes the model's reply, while it streams and when it is complete.

use super::council::HeldDecision;
use super::{Action, Effects, Machine, millis};
use crate::contract::{self, ReplyPart, RequestView};
use serde_json::Value;
use std::time::Duration;
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor;
use toolhold_protocol::advisor::Attendance;
use toolhold_protocol::completion::{Completion, Delta, REASONING_BYTES, end_of};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::decision::Pending;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason, UnusableReply};
use toolhold_protocol::meta;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::turn::{CarriedReasoning, Turn};
use toolhold_text::cut;

impl Machine {
    /// A piece of the reply. If it completes a call, the text so far is recorded, and the call is made at once (7.2).
    pub(super) fn wrote(&mut self, delta: Delta, effects: &mut Effects) {
        let provenance = &self.material.provenance;
        let step = &mut self.step;
        effects.events.push(EventKind::Delta {
            step: self.steps,
            delta: delta.clone(),
            from: Some(step.shown.clone()),
        });
        step.shown.pass(&delta);
        if step.ahead.is_none() {
            step.ahead.clone_from(&step.reader);
        }
        let ahead = step.ahead.as_mut();
        let parts = ahead.map(|reader| reader.push_from(&delta, provenance));
        let acts = parts.iter().flatten().any(ReplyPart::is_acted_on);
        // The record has consecutive pieces of one text as one: where the endpoint cut them says nothing of the reply.
        let apart = match step.unrecorded.last_mut() {
            Some(last) => last.append(delta).err(),
            None => Some(delta),
        };
        step.unrecorded.extend(apart);
        if acts {
            self.keep_written(effects);
        }
    }

    /// Records what was shown of the reply and is not recorded yet.
    pub(super) fn keep_written(&mut self, effects: &mut Effects) {
        let pieces = std::mem::take(&mut self.step.unrecorded);
        if !pieces.is_empty() {
            self.written(pieces, effects);
        }
    }

    /// Takes the next recorded text of the reply. The text is read when it is recorded, so that a replay reads the same:
    /// another input may have come since it was shown.
    pub(super) fn written(&mut self, pieces: Vec<Delta>, effects: &mut Effects) {
        let from = self.step.recorded.clone();
        effects.events.push(EventKind::Written {
            step: self.steps,
            from,
            pieces: pieces.clone(),
        });
        for piece in &pieces {
            self.read(piece, effects);
        }
    }

    /// A piece that is an event of the record of an older version.
    pub(super) fn recorded(&mut self, delta: Delta, effects: &mut Effects) {
        self.step.has_deltas = true;
        effects.events.push(EventKind::Delta {
            step: self.steps,
            delta: delta.clone(),
            from: None,
        });
        self.read(&delta, effects);
    }

    fn read(&mut self, piece: &Delta, effects: &mut Effects) {
        self.step.has_begun = true;
        self.step.ahead = None;
        self.step.recorded.pass(piece);
        if let Delta::Reasoning(text) = piece {
            self.step.thought.push_str(text);
            let end = end_of(&self.step.thought, REASONING_BYTES);
            let excess = self.step.thought.len().saturating_sub(end.len());
            // Not with each piece.
            if excess > REASONING_BYTES {
                self.step.thought.drain(..excess);
            }
        }
        let provenance = &self.material.provenance;
        let reader = self.step.reader.as_mut();
        let read = reader.map(|reader| (reader.push_from(piece, provenance), reader.is_prose()));
        let (parts, is_prose) = read.unwrap_or_default();
        self.take_pieces(parts, is_prose, effects);
    }

    /// Calls are taken as long as nothing speaks against the reply; from then on it is judged as a
    /// whole. `is_prose`: they were read out of it.
    fn take_pieces(&mut self, pieces: Vec<ReplyPart>, is_prose: bool, effects: &mut Effects) {
        for piece in pieces {
            let is_fine = match piece {
                // No call is made for a reply that may not stand: its meta comes before them (2).
                ReplyPart::Call { .. } if self.needed_meta().is_some() && !self.step.has_meta => {
                    false
                }
                ReplyPart::Call { call, .. } => match Call::read(call) {
                    Ok(call) => {
                        self.accept(Call { is_prose, ..call }, effects);
                        true
                    }
                    Err(_) => false,
                },
                ReplyPart::Field { name, value } if name == "meta" => {
                    self.step.has_meta = self.check_meta(&value).is_ok();
                    self.step.has_meta || value.is_null()
                }
                ReplyPart::Field { name, value } => {
                    if name == "advisors" {
                        self.advised(&value, effects);
                    }
                    true
                }
            };
            if !is_fine {
                self.step.reader = None;
                return;
            }
        }
    }

    pub(super) fn replied(&mut self, completion: Completion, effects: &mut Effects) {
        self.step.has_reply = true;
        self.replies.complete();
        self.window.fitted();
        let usage = completion.usage.as_ref();
        if let Some(usage) = usage.filter(|_| !self.is_aside()) {
            self.window.observe(usage.prompt_tokens);
        }
        let cost = self
            .price()
            .and_then(|price| price.of(usage, completion.duration));
        self.usage.replied(usage, cost);
        let tokens = EventKind::Tokens {
            step: self.steps,
            prompt: usage.map(|usage| usage.prompt_tokens),
            completion: usage.map(|usage| usage.completion_tokens),
            total: self.usage.spent().tokens,
            first_token_ms: completion.time_to_first_token.map(millis),
            duration_ms: millis(completion.duration),
            cost_nano: cost,
        };
        effects.events.push(EventKind::Reply {
            step: self.steps,
            completion: completion.clone(),
        });
        effects.events.push(tokens);
        self.step.unrecorded.clear();
        self.step.ahead = None;
        self.step.reasoning = CarriedReasoning {
            members: completion.carried_reasoning(),
            calls: completion.call_members(),
            candidate: self.addressee().map(str::to_owned),
        };
        if let Some(mut reader) = self.step.reader.take() {
            let provenance = &self.material.provenance;
            // The record has it in the reply alone.
            let rest = if self.step.has_deltas {
                Vec::new()
            } else {
                self.step.recorded.rest(&completion)
            };
            let rest = rest.iter();
            let mut pieces: Vec<_> = rest
                .flat_map(|piece| reader.push_from(piece, provenance))
                .collect();
            pieces.append(&mut reader.finish_of(&completion, provenance));
            self.take_pieces(pieces, reader.is_prose(), effects);
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
        let provenance = &self.material.provenance;
        let read = contract::read_from(self.contract(), &completion, &view, provenance);
        let is_native = self.contract() == Contract::Tools && !completion.tool_calls.is_empty();
        if is_native && read.is_ok() {
            let endpoint = self.addressee().map(str::to_owned);
            self.material
                .provenance
                .had_native_call(endpoint.as_deref());
        }
        let usable = read.and_then(|solution| self.check(&solution).map(|()| solution));
        match usable {
            Ok(solution) => self.solved(solution, &completion, effects),
            Err(reason) if self.has_acted() => {
                let notice = self.unusable_reply(true, &reason);
                effects.events.push(notice);
                self.hear_part(effects);
                self.count_partly_used(&completion.content, &reason, effects);
                let mut note =
                    PromptText::from("Of that reply only the calls above were made, because ");
                self.step.notes.push(note.line(&reason).words(".").take());
                self.note_ignored(effects);
                self.step.is_over = true;
                self.proceed(effects);
            }
            Err(reason) => {
                if contract::is_cut_in_thought(self.rules.reading(), &completion)
                    && !self.is_aside()
                    && let Some(tokens) = self.reply_limit.raise()
                {
                    self.notice(format!(
                            "the reply was cut while the model thought: from here on a reply may take up to {tokens} \
                             tokens, because no limit was chosen (run.max_tokens)"
                        ), effects);
                }
                self.reject(&completion.content, reason, effects);
            }
        }
    }

    /// There is no reply, or it broke off. Calls that were already made are not made again.
    pub(super) fn model_failed(&mut self, failure: RunFailure, effects: &mut Effects) {
        self.keep_written(effects);
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
            && !self.is_aside()
            && !self.has_acted()
            && let Some(message) = self.shorten_for(overflow)
        {
            self.notice(message, effects);
            return self.send(effects);
        }
        if self.is_aside() && self.calls_no_tool() {
            let is_hopeless = failure.class != ErrorClass::Retryable;
            return self.attempt_failed(&failure.message, is_hopeless, effects);
        }
        let may_ask_again = self.step.has_begun && failure.class == ErrorClass::Retryable;
        if may_ask_again && !self.has_acted() && self.replies.may_break_off() {
            if let Some((reason, message)) = self.usage.overdrawn().filter(|_| is_paid) {
                return self.fail(reason, ErrorClass::Correctable, message, effects);
            }
            self.replies.broke_off();
            self.notice(
                "the reply broke off before anything was done, asking again",
                effects,
            );
            return self.send(effects);
        }
        // A candidate's reply is not one of those that are counted.
        let is_last = !self.is_aside() && self.is_last_attempt();
        if !self.has_acted() || (is_last && !self.step.calls.hands_over()) {
            let failure = self.with_longest_message(failure);
            return self.finish(StopReason::Model, Value::Null, Some(failure), effects);
        }
        self.hear_part(effects);
        self.step.reasoning = self.broken_reasoning();
        let calls = self.step.calls.calls();
        let called: Vec<&str> = calls.map(|call| call.tool.as_str()).collect();
        let called = format!("calls of {}", called.join(", "));
        self.count_partly_used(&called, &failure.message, effects);
        let mut note = PromptText::from("Your reply broke off after these calls (");
        note.line(&cut(&failure.message, 200))
            .words("). Go on from here.");
        self.step.notes.push(note);
        self.note_ignored(effects);
        self.step.is_over = true;
        self.proceed(effects);
    }

    /// Returns the reasoning of a reply that broke off, under the names that earlier replies had it.
    fn broken_reasoning(&self) -> CarriedReasoning {
        let candidate = self.addressee().map(str::to_owned);
        let text = end_of(&self.step.thought, REASONING_BYTES);
        let mut turns = self.history.turns().iter().rev();
        let known = turns.find_map(|turn| match turn {
            Turn::Exchange(exchange) => Some(&exchange.reasoning)
                .filter(|known| known.candidate == candidate && known.names().next().is_some()),
            _ => None,
        });
        let names = known.into_iter().flat_map(CarriedReasoning::names);
        let names = names.filter(|_| !text.is_empty());
        CarriedReasoning {
            members: names
                .map(|name| (name.to_owned(), Value::from(text)))
                .collect(),
            calls: Vec::new(),
            candidate,
        }
    }

    /// What was written of a reply that broke off was paid for, but has no count. Whether it is counted here: where
    /// the host's own code failed, the time is not known.
    fn pay_for_broken(&mut self, took_ms: Option<u64>, effects: &mut Effects) -> bool {
        let is_paid = self.step.has_begun && self.usage.counts_money();
        let Some(duration_ms) = took_ms.filter(|_| is_paid) else {
            return false;
        };
        let took = Duration::from_millis(duration_ms);
        let cost = self.price().and_then(|price| price.of(None, took));
        self.usage.replied(None, cost);
        effects.events.push(EventKind::Tokens {
            step: self.steps,
            prompt: None,
            completion: None,
            total: self.usage.spent().tokens,
            first_token_ms: None,
            duration_ms,
            cost_nano: cost,
        });
        true
    }

    /// Whether calls of this reply were made or wait to be.
    fn has_acted(&self) -> bool {
        !self.step.calls.is_empty()
    }

    /// Whether every call of this reply names a tool that does not exist.
    pub(super) fn calls_no_tool(&self) -> bool {
        let mut calls = self.step.calls.calls();
        calls.all(|call| {
            !self.tools.is_own(&call.tool) && self.tools.checks.of(&call.tool).is_none()
        })
    }

    /// What makes a reply as a whole unusable.
    fn check(&self, solution: &Solution) -> Result<(), String> {
        if self.needed_meta().is_some() {
            let meta = solution.meta.as_ref().ok_or("the reply lacks \"meta\"")?;
            self.check_meta(meta)?;
        }
        match self.lacks_demanded_call() {
            Some(reason) if solution.calls.is_empty() => Err(reason),
            _ => Ok(()),
        }
    }

    fn check_meta(&self, after: &Value) -> Result<meta::Meta, String> {
        match &self.context.meta {
            // As it is meant: its domain and path may be hidden.
            Some(before) => meta::check(before, &self.privacy.meant_value(after))
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
        if self.is_aside() {
            self.remember(Turn::Rejected {
                reply: reply.to_owned(),
                reason: reason.clone(),
            });
            return self.attempt_failed(&reason, false, effects);
        }
        self.count_unused(reply, &reason);
        if !self.ends_unusable() {
            effects.events.push(self.unusable_reply(false, &reason));
            self.history.push(Turn::Rejected {
                reply: reply.to_owned(),
                reason,
            });
        }
        self.next(effects);
    }

    fn solved(&mut self, mut solution: Solution, completion: &Completion, effects: &mut Effects) {
        if self.step.is_vote {
            return self.voted(&completion.content, solution, effects);
        }
        let meant = |output: &Value| self.privacy.meant_value(output);
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
            let mut note = PromptText::from("Your output was not accepted: ");
            self.step.notes.push(note.line(&reason).words(".").take());
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
        let taken = self.step.taken() + self.step.ignored;
        let is_prose = solution.is_prose;
        for call in solution.calls.drain(..).skip(taken) {
            self.accept(Call { is_prose, ..call }, effects);
        }
        self.note_ignored(effects);
        let held = self.hear(solution.advisors.as_ref(), effects);
        self.step.output = solution.output.filter(|_| self.forced().is_none());
        match held {
            HeldDecision::Plan(reason) => {
                return self.hold_plan(&completion.content, &reason, effects);
            }
            HeldDecision::Votes(reason) => {
                return self.reject(&completion.content, reason, effects);
            }
            HeldDecision::Calls if self.step.output.is_some() => {
                self.step.output = None;
                let note = "Your output was not accepted, because calls beside it are held.";
                self.step.notes.push(note.into());
            }
            HeldDecision::Calls | HeldDecision::Nothing => {}
        }
        if !self.step.planned.is_empty() {
            return self.planned(&completion.content, effects);
        }
        self.judge_names(completion, effects);
        if !self.step.calls.is_empty() {
            effects.events.push(EventKind::Plan {
                step: self.steps,
                calls: self.step.calls.calls().cloned().collect(),
            });
        }
        self.step.is_over = true;
        self.proceed(effects);
    }

    /// Counts the reply: one that only calls tools that do not exist is as little use as one that cannot be read.
    fn judge_names(&mut self, completion: &Completion, effects: &mut Effects) {
        let first = self.step.calls.calls().next();
        let unknown = first.filter(|_| self.step.output.is_none() && self.calls_no_tool());
        match unknown.and_then(|call| self.tools.checks.known(&call.tool).err()) {
            // A candidate is judged by its call, or tries again.
            Some(_) if self.is_aside() => {}
            Some(failure) => self.count_unused(&completion.content, &failure.message),
            None => self.reply_used(effects),
        }
    }

    /// Calls beyond the most that are made are not lost without a word.
    fn note_ignored(&mut self, effects: &mut Effects) {
        if self.step.ignored > 0 {
            let (max, all) = (self.max_calls(), self.max_calls() + self.step.ignored);
            let message = format!("of {all} calls only the first {max} are made (run.max_calls)");
            let mut note = PromptText::from("Of your ");
            note.count(all)
                .words(" calls only the first ")
                .count(max)
                .words(" were made; make the others now.");
            self.step.notes.push(note);
            self.notice(message, effects);
        }
    }

    /// The model gave its output: the end, unless advisors wait for exactly this moment.
    pub(super) fn conclude(&mut self, output: Value, effects: &mut Effects) {
        if self.asks_for_citations(&output, effects) {
            return;
        }
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
            self.notice(
                format!("{} could not be heard: {limit}", waiting.join(", ")),
                effects,
            );
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
    pub(super) fn decide(&self, pending: Pending, effects: &mut Effects) {
        let pending = Pending {
            agents: self.request.agents.clone(),
            ..pending
        };
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
