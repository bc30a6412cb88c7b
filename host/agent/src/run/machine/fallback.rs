//! A call that the run's own model keeps getting wrong is made by another one, in a copy of the history
//! and with the tool forced; and so is a reply, with nothing forced (docs/protocol.md, 7.9).

use super::fallbacks::{CallOutcome, Cause, Due};
use super::reply_counts::UnusedReply;
use super::results::WRITE;
use super::{Effects, Machine};
use serde_json::Value;
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::Price;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::fallback::{Candidate, Stage};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::Turn;
use toolhold_text::cut;

/// Maximum characters of an error that is kept to be shown to another model, or to a person.
pub(super) const MAX_ERROR_CHARS: usize = 1_000;

/// Maximum characters of a reply in the message that ends a run.
const MAX_QUOTED_CHARS: usize = 200;

/// Maximum characters of a tool's name, which the model may have made up.
const MAX_NAME_CHARS: usize = 64;

impl Machine {
    /// Counts how a call ended; `ran` tells whether a tool was called. Decisions of a person or a limit are not
    /// counted against the model.
    pub(super) fn count_outcome(
        &mut self,
        call: &Call,
        result: &Result<Value, ToolFailure>,
        ran: bool,
    ) {
        if self.tools.find(&call.tool).is_none() {
            return;
        }
        let privacy = &self.privacy;
        let outcome = CallOutcome {
            result,
            // The model chose the place that a result could not be written to.
            is_tools_own: ran && !matches!(result, Err(failure) if failure.kind == WRITE),
        };
        let settings = &self.request.settings.fallback;
        self.fallbacks
            .count(settings, call, outcome, self.steps, |message| {
                cut(message, privacy.clear(message, MAX_ERROR_CHARS))
            });
    }

    /// Counts a reply of the run's own model of which nothing could be used.
    pub(super) fn count_unused(&mut self, reply: &str, reason: &str) {
        self.count_reply(reason);
        self.replies.unused(reason, cut(reply, MAX_QUOTED_CHARS));
    }

    /// Counts a reply of which only calls could be used. One whose calls name no tool that exists was of no use; a
    /// candidate's is judged by its call.
    pub(super) fn count_partly_used(&mut self, reply: &str, reason: &str, effects: &mut Effects) {
        match (self.is_aside(), self.calls_no_tool()) {
            // A candidate that was asked for a reply did its part with them.
            (true, false) if self.forced().is_none() => self.reply_used(effects),
            (true, _) => {}
            (false, true) => self.count_unused(reply, reason),
            (false, false) => {
                self.count_reply(reason);
                self.replies.partly_used();
            }
        }
    }

    fn count_reply(&mut self, reason: &str) {
        let privacy = &self.privacy;
        let shortened = || cut(reason, privacy.clear(reason, MAX_ERROR_CHARS));
        self.fallbacks.count_reply(self.steps, shortened);
    }

    /// A reply could be used. Where a candidate gave it, what it did belongs to the run from here on.
    pub(super) fn reply_used(&mut self, effects: &mut Effects) {
        self.replies.usable();
        self.fallbacks.reply_used();
        if self.fallbacks.cause() == Some(&Cause::Reply) {
            self.managed(effects);
        }
    }

    /// Whether a candidate is asked, for a call or for a whole reply.
    pub(super) fn is_aside(&self) -> bool {
        self.fallbacks.is_on()
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
            .map_or(self.request.settings.forcing, |candidate| candidate.forcing)
    }

    /// Whether the model that is asked next is shown schemas as their authors wrote them.
    pub(super) fn has_authored_schemas(&self) -> bool {
        self.candidate()
            .map_or(self.request.settings.authored_schemas, |candidate| {
                candidate.authored_schemas
            })
    }

    /// Adds to the history, or to its copy.
    pub(super) fn remember(&mut self, turn: Turn) {
        self.history.extend(self.fallbacks.keep(turn));
    }

    /// The next Request: to a candidate if a tool failed too often, and else to the run's own model.
    pub(super) fn next(&mut self, effects: &mut Effects) {
        while let Some(due) = self.due_fallback() {
            let stage = Stage::Begun {
                failures: due.failures,
                first_error: due.first.clone(),
            };
            self.tell(&due.cause, stage, effects);
            self.fallbacks.begin(due);
            if self.ask_candidate(effects) {
                return;
            }
        }
        if let Some(message) = self.unusable() {
            let message = self.with_original_error(message);
            let failure = RunFailure {
                lacks_call: !self.step.demanded.is_empty(),
                ..RunFailure::new(ErrorClass::Correctable, message)
            };
            return self.finish(StopReason::Unusable, Value::Null, Some(failure), effects);
        }
        self.ask(effects);
    }

    /// Whether the run ends because too many replies in a row could not be used, and no other model is asked.
    pub(super) fn ends_unusable(&self) -> bool {
        self.too_many_unusable().is_some() && self.due_fallback().is_none()
    }

    /// Whether one more reply that cannot be used is too many.
    pub(super) fn is_last_attempt(&self) -> bool {
        self.fallbacks.unusable_replies() + 1 >= self.request.settings.max_unusable
    }

    /// How many replies in a row could not be used, where these are too many and nothing of the last could be.
    fn too_many_unusable(&self) -> Option<(u32, &UnusedReply)> {
        let (count, last) = (
            self.fallbacks.unusable_replies(),
            self.replies.last_unused()?,
        );
        (count >= self.request.settings.max_unusable).then_some((count, last))
    }

    /// Why the run ends, if too many replies in a row could not be used.
    fn unusable(&self) -> Option<String> {
        let (count, last) = self.too_many_unusable()?;
        // All quote what no shield saw.
        let why = if self.withholds() {
            "; what it wrote is for the run's record alone, because shields stand on its output"
                .to_owned()
        } else {
            let first = self.fallbacks.first_of_replies();
            let first = first.filter(|first| *first != last.reason);
            let first = first.map_or(String::new(), |first| {
                format!(", the first because {first}")
            });
            format!(
                "{first}, the last because {}; it wrote {:?}",
                last.reason, last.reply
            )
        };
        Some(format!(
            "the model gave {count} replies in a row that could not be used{why}. Try the other contract (--contract), \
             a larger --max-tokens, or another model",
        ))
    }

    /// The message of a run that ends without an output, with what no other model managed either, unless the message
    /// quotes that.
    pub(super) fn with_original_error(&self, message: String) -> String {
        let spent = self.fallbacks.spent().filter(|_| !self.withholds());
        let Some((cause, first)) = spent.filter(|(_, first)| !message.contains(first)) else {
            return message;
        };
        let what = match cause {
            Cause::Call((tool, _)) => format!("{tool} failed too often"),
            Cause::Reply => "replies could not be used".to_owned(),
        };
        format!("{message}; {what}, first with: {first}")
    }

    /// Why the run ends, if the model goes on with a call that was refused too often in the same way, and nothing
    /// else came of its reply.
    pub(super) fn insists(&self, calls: &[Answered]) -> Option<String> {
        if calls.iter().any(|answered| !answered.failed) {
            return None;
        }
        let most = self.request.settings.fallback.max_tool_failures.max(1);
        let mut refused = calls
            .iter()
            .filter_map(|answered| Some((answered, self.tools.checks.refused(&answered.call)?)));
        let (answered, refusal) = refused.find(|(_, refusal)| refusal.in_row > most)?;
        let tool = cut(&answered.call.tool, MAX_NAME_CHARS);
        let why = if self.withholds() {
            "the reason is in the run's record alone, because shields stand on its output"
                .to_owned()
        } else {
            refusal.message.clone()
        };
        Some(format!(
            "the model made the same call of {tool} {} times, and each was refused: {why}",
            refusal.in_row
        ))
    }

    fn due_fallback(&self) -> Option<Due> {
        let settings = &self.request.settings;
        let was_unused = self.replies.last_unused().is_some();
        self.fallbacks.due(settings, self.own_steps(), was_unused)
    }

    /// Asks the candidate whose turn it is, or the first after it that can be asked. Returns whether the run
    /// goes on with that or ended; `false` if all candidates failed.
    fn ask_candidate(&mut self, effects: &mut Effects) -> bool {
        loop {
            let (Some(cause), Some(attempt)) =
                (self.fallbacks.cause().cloned(), self.fallbacks.attempt())
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
                self.tell(&cause, stage, effects);
                self.fallbacks.turn_to_next();
                continue;
            }
            if let Some((reason, message)) = self.usage.overdrawn() {
                self.fallbacks.abandon();
                self.fail(reason, ErrorClass::Correctable, message, effects);
                return true;
            }
            let stage = Stage::Asked {
                candidate: candidate.name,
                attempt,
            };
            self.tell(&cause, stage, effects);
            self.steps += 1;
            self.fallbacks.requests += 1;
            self.send(effects);
            return true;
        }
    }

    /// A candidate's reply was carried out; `calls` are its calls with their results.
    pub(super) fn attempted(&mut self, calls: &[Answered], effects: &mut Effects) {
        let tool = self.fallbacks.key().map(|(tool, _)| tool.as_str());
        let mut of_tool = calls
            .iter()
            .filter(|answered| tool.is_none_or(|tool| answered.call.tool == tool));
        // A call in the background has no outcome yet.
        if self.fallbacks.is_made() || of_tool.clone().any(|answered| !answered.failed) {
            self.managed(effects);
            return self.next(effects);
        }
        let reason = of_tool.next_back().map_or_else(
            || "the reply holds no call of the tool".to_owned(),
            |answered| answered.text.clone(),
        );
        self.attempt_failed(&reason, false, effects);
    }

    /// The candidate managed what it was asked for.
    fn managed(&mut self, effects: &mut Effects) {
        let candidate = self.addressee().unwrap_or_default().to_owned();
        if let Some((cause, turns)) = self.fallbacks.succeeded() {
            self.tools.checks.forgive();
            self.history.extend(turns);
            self.tell(&cause, Stage::Succeeded { candidate }, effects);
        }
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
        let Some((cause, attempt)) = self.fallbacks.attempt_failed(is_hopeless, most) else {
            return;
        };
        let stage = Stage::Failed {
            candidate,
            attempt,
            reason: cut(reason, MAX_ERROR_CHARS),
        };
        self.tell(&cause, stage, effects);
        if !self.ask_candidate(effects) {
            self.next(effects);
        }
    }

    /// All candidates failed: the run's own model gets the first error.
    fn give_up(&mut self, effects: &mut Effects) {
        let Some((cause, first)) = self.fallbacks.exhausted() else {
            return;
        };
        // A reply that could not be used is in the history with its reason.
        if let Cause::Call((tool, _)) = &cause {
            let mut text = PromptText::default();
            text.line(tool)
                .words(
                    " failed too often and is not worth another attempt of the same kind. The first error was: ",
                )
                .line(&first)
                .words("\nDo without it, or end and say what is missing.");
            self.history.push(Turn::user(text));
        }
        self.tell(&cause, Stage::Exhausted { first_error: first }, effects);
    }

    fn tell(&self, cause: &Cause, stage: Stage, effects: &mut Effects) {
        let (tool, instance) = match cause {
            Cause::Call((tool, instance)) => (Some(tool.clone()), instance.clone()),
            Cause::Reply => (None, None),
        };
        effects.events.push(EventKind::Fallback {
            step: self.steps,
            tool,
            instance,
            stage,
        });
    }
}
