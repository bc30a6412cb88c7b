//! The window: what each Request takes of it, what is dropped when it is nearly full, and the tools by
//! which the model reads what it was not shown (docs/protocol.md, 7.11).

use super::completion_limit::ReplyRoom;
use super::composed::Composed;
use super::history::MIN_STORED_RESULT_BYTES;
use super::results::SettledResult;
use super::retrieval;
use super::tools::ShowingLimits;
use super::window_tokens::ALL;
use super::{Action, Effects, Machine};
use crate::context::stored;
use toolhold_model::chat::ChatRequest;
use toolhold_policy::ErrorClass;
use toolhold_protocol::completion::{ContextOverflow, reasoning_text};
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::{Role, Turn};
use toolhold_protocol::window::{Counted, Part};

/// The tools may take 1/3 of the window; beyond that only a part of them is shown.
const TOOLS_WINDOW_DIVISOR: u64 = 3;
/// The summary of dropped history may take 1/4 of the window, and so may that of the conversation before the task.
pub(super) const SUMMARY_WINDOW_DIVISOR: u64 = 4;
/// Percent of the window that is filled after history was dropped. Dropping changes the prompt's prefix, so
/// the server reads the whole prompt again: better once in many steps than in each.
pub(super) const KEPT_WINDOW_PERCENT: u64 = 70;

impl Machine {
    /// Bounds which tools the model is shown, by the task as it is now.
    pub(super) fn limit_tools(&mut self) {
        let window = self.window.window();
        let texts = self.request.context.iter();
        let said: Vec<&str> = texts
            .filter_map(|message| match message {
                Message::Text(text) => Some(text.text.as_str()),
                _ => None,
            })
            .collect();
        self.tools.limit(ShowingLimits {
            task: said.join("\n"),
            max: self.request.settings.window.max_tools,
            max_tokens: window.map(|tokens| tokens / TOOLS_WINDOW_DIVISOR),
            clients_first: self.request.settings.must_call,
        });
    }

    /// Answers a call of one of the loop's own tools.
    pub(super) fn answer_own(
        &mut self,
        index: usize,
        call: Call,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let answer = if call.tool == stored::READ_RESULT {
            // Half of what is shown of a result: what is read is never cut again.
            let max = self.request.settings.result_chars / 2;
            // All of it as the model is shown it: half of something would not be known for what it is.
            let arguments = self.privacy.hide_value(&call.arguments);
            let hide = |text: &str| self.privacy.hide(text);
            let read = self.history.read_stored(&arguments, max, hide);
            read.map_err(|reason| ToolFailure::correctable("arguments", reason))?
        } else {
            self.tools.answer_find(&call.arguments)
        };
        effects.events.push(EventKind::ToolStart {
            step: self.steps,
            call,
            filled: None,
            may_be_repeated: false,
        });
        self.settle(index, SettledResult::answered(answer), effects);
        Ok(())
    }

    /// Keeps a result that is not shown whole, or that may leave the history.
    pub(super) fn store(&mut self, id: &str, text: &str, is_cut: bool) {
        let may_leave = self.window.window().is_some() && text.len() > MIN_STORED_RESULT_BYTES;
        if !(is_cut || may_leave) || !self.tools.can_read_results() {
            return;
        }
        self.history.store(id, text.to_owned());
        if is_cut {
            self.offer_reading();
        }
    }

    fn offer_reading(&mut self) {
        if self.history.has_stored() && !self.is_lazy() {
            self.tools.offer_reading();
        }
    }

    /// A Request, measured; `turns` are those in it, as the model is shown them.
    pub(super) fn measured(&mut self, request: ChatRequest, turns: &[Turn]) -> Composed {
        let known = self.known(turns);
        self.window.measured(request, known, self.is_counted())
    }

    /// Texts of the Request whose part is known; `turns` as the model is shown them. Those of the user
    /// and the passages are within the data that the Request opens with.
    fn known(&mut self, turns: &[Turn]) -> Vec<(Part, String)> {
        let mut known = vec![(Part::System, self.privacy.hide(&self.instructions))];
        for message in &self.context.messages {
            if let Message::Text(text) = message
                && text.role != Role::System
            {
                known.push((Part::User, self.privacy.hide(&text.text)));
            }
            if let Message::Knowledge(message) = message {
                let max = self.request.settings.result_chars;
                let block = retrieval::block(&message.passages, &self.fence, max);
                known.push((Part::Retrieved, self.privacy.hide(block.as_str())));
            }
        }
        let happened = self.opening.len() + self.history.shown_len();
        for (at, turn) in turns.iter().enumerate() {
            match turn {
                Turn::Text { role, text } => {
                    let is_data = at < self.opening.len() || at >= happened;
                    let part = match role {
                        Role::System if is_data => Part::Policy,
                        _ if is_data => Part::Data,
                        _ => Part::History,
                    };
                    known.push((part, text.clone()));
                }
                // Its size is no text's.
                Turn::Image(_) | Turn::ResultImage(_) => {}
                Turn::Exchange(exchange) => {
                    let thoughts = reasoning_text(&exchange.reasoning.members);
                    known.extend(thoughts.map(|text| (Part::History, text.into_owned())));
                    for answered in &exchange.calls {
                        known.push((Part::Results, answered.text.clone()));
                        known.push((Part::History, answered.call.tool.clone()));
                        known.push((Part::History, answered.call.arguments.to_string()));
                    }
                }
                Turn::Summary(text) | Turn::Conversation(text) => {
                    known.push((Part::Summary, text.clone()));
                }
                Turn::Rejected { reply, reason } => {
                    known.push((Part::History, reply.clone()));
                    known.push((Part::History, reason.clone()));
                }
            }
        }
        known
    }

    /// Whether the endpoint that is asked next counts. A candidate of the fallback is another one.
    fn is_counted(&self) -> bool {
        self.request.settings.window.counted && !self.is_aside()
    }

    /// Requests the counts of texts that have none yet, if the endpoint can count.
    fn counts(&mut self, composed: &Composed, effects: &mut Effects) -> bool {
        let lacking = self.window.lacking(composed, &mut self.step.fitting);
        let is_counting = lacking.is_some();
        effects.actions.extend(lacking.map(Action::Count));
        is_counting
    }

    /// The endpoint counted what it was asked to, or as much of it as it could.
    pub(super) fn tokens_counted(&mut self, counted: Counted, effects: &mut Effects) {
        let Some(asked) = self.step.fitting.take_asked() else {
            return;
        };
        self.window.counted(&asked, &counted);
        let failure = counted.failure.clone();
        effects.events.push(EventKind::Counted {
            step: self.steps,
            counted,
        });
        if let Some(reason) = failure {
            self.notice(format!(
                    "the endpoint failed to count tokens, so from here on they are estimated: {reason}"
                ), effects);
        }
        self.send_fitting(effects);
    }

    /// Drops the oldest history until the Request fits, if it does not and the window is known. Nothing
    /// where texts of it are counted first: [`Machine::tokens_counted`] goes on then.
    pub(super) fn fit(&mut self, effects: &mut Effects) -> Option<ChatRequest> {
        let mut composed = self.compose(effects);
        if !self.step.fitting.has_counted_once() && self.counts(&composed, effects) {
            return None;
        }
        let tokens = self.window.prompt(&composed);
        let before = *self.step.fitting.before.get_or_insert(tokens);
        // The window is the own model's; a candidate is shown a copy of its history. Of a Request that
        // fits with a shorter reply nothing is dropped.
        if !self.is_aside() && self.reply_limit.left(self.steps).is_none() {
            composed = self.drop_conversation(composed, effects);
            composed = self.drop_history(composed, effects);
            composed = self.drop_newest_turn(composed, effects);
        }
        if self.has_summary_written(effects) {
            return None;
        }
        if self.counts(&composed, effects) {
            return None;
        }
        let after = self.window.prompt(&composed);
        let summarized = self.conversation_summarized(before, after);
        effects.events.extend(summarized);
        let dropped = self.step.fitting.dropped;
        if dropped > 0 {
            effects.events.push(EventKind::Summarized {
                step: self.steps,
                turns: dropped,
                tokens_before: before,
                tokens_after: after,
            });
        }
        if let Some(message) = self.too_long(&composed) {
            self.fail(
                StopReason::TokenBudget,
                ErrorClass::Correctable,
                message,
                effects,
            );
            return None;
        }
        let reply = self.reply_tokens(&composed);
        composed.request.max_tokens = Some(reply);
        if !self.is_aside() {
            self.window.sent(&composed);
            self.reply_limit.sent(reply);
        }
        let (parts, exact) = self.window.parts(&composed);
        effects.events.push(EventKind::Budget {
            step: self.steps,
            window: self.window.window(),
            reply: u64::from(reply),
            parts,
            exact,
        });
        Some(composed.request)
    }

    /// Why the Request is not sent, if its prompt is longer than the client allows although all history is summed
    /// up. A candidate of the fallback is shown a copy of what was sent.
    fn too_long(&self, composed: &Composed) -> Option<String> {
        let most = self.request.settings.window.max_prompt?;
        let prompt = composed.size.most(self.window.prompt(composed));
        (prompt > most && !self.is_aside()).then(|| {
            let message = format!(
                "the context takes about {prompt} tokens, of which at most {most} are allowed (max_context_tokens), and \
                 nothing more of it can be summed up; give a shorter task, fewer tools or a higher maximum"
            );
            match self.longest_message() {
                Some(longest) => format!("{message}; {longest}"),
                None => message,
            }
        })
    }

    /// The token limit of the reply to this Request.
    fn reply_tokens(&self, composed: &Composed) -> u32 {
        if self.is_aside() {
            return self.reply_limit.base();
        }
        let budget = self.request.settings.token_budget.map(|budget| {
            let prompt = self.window.prompt(composed);
            budget.saturating_sub(self.usage.spent().tokens.saturating_add(prompt))
        });
        let room = ReplyRoom {
            window: self.window.room(composed),
            budget,
            is_short: self.is_beyond(ALL, composed) && self.window.is_measured(composed),
        };
        self.reply_limit.of(self.steps, room)
    }

    /// The token limit of the reply to the last Request.
    pub(super) fn sent_reply_tokens(&self) -> u32 {
        if self.is_aside() {
            self.reply_limit.base()
        } else {
            self.reply_limit.last()
        }
    }

    pub(super) fn is_beyond(&self, percent: u64, composed: &Composed) -> bool {
        let reply = self.reply_limit.base();
        self.window.is_beyond(percent, composed, reply)
    }

    /// Drops nothing from what fits, and otherwise enough for the next steps: as much as frees a part of the
    /// window or, where what cannot be dropped takes that, half of the history.
    fn drop_history(&mut self, mut composed: Composed, effects: &mut Effects) -> Composed {
        let half = self.history.droppable().div_ceil(2);
        let mut dropped = 0;
        loop {
            let is_worth_it =
                (1..half).contains(&dropped) && self.is_beyond(KEPT_WINDOW_PERCENT, &composed);
            let is_due = is_worth_it || self.is_beyond(ALL, &composed);
            if !is_due || !self.drop_oldest() {
                return composed;
            }
            self.sum_up();
            dropped += 1;
            self.step.fitting.dropped += 1;
            composed = self.compose(effects);
        }
    }

    /// Moves the oldest turn of the history into the summary, which is to be made anew after that.
    fn drop_oldest(&mut self) -> bool {
        let Some(turn) = self.history.oldest().cloned() else {
            return false;
        };
        let shown = self.hidden(turn);
        let hide = |text: &str| self.privacy.hide(text);
        let wholes = self.history.drop_oldest(&shown, hide);
        self.note_wholes(&wholes);
        self.offer_reading();
        true
    }

    fn sum_up(&mut self) {
        let most = self.window.bytes_of_share(SUMMARY_WINDOW_DIVISOR);
        let mark = self.derive("summary", 0);
        self.history
            .sum_up(most.max(MIN_STORED_RESULT_BYTES), &mark);
    }

    /// The endpoint refused a Request for its length. What is sent in its place, in words, if anything is.
    pub(super) fn shorten_for(&mut self, overflow: ContextOverflow) -> Option<String> {
        if let Some(tokens) = overflow.prompt_tokens {
            self.window.observe(tokens);
        }
        let window = self
            .window
            .refused(overflow.window, self.reply_limit.base());
        let prompt = overflow
            .prompt_tokens
            .unwrap_or_else(|| self.window.most_sent());
        let room = overflow.window.and(window.checked_sub(prompt));
        if let Some(left) = self.reply_limit.refused(self.steps, room) {
            return Some(format!(
                "the endpoint refused the request for its length; it is sent again with {left} tokens for the reply"
            ));
        }
        let is_shorter = self.window.may_be_shorter(overflow.window.is_some())
            && (self.shorten_conversation()
                || self.drop_oldest()
                || self.history.is_summed_up()
                || self.shorten_newest_turn());
        // A summary is shorter where the window is, though nothing was dropped.
        self.sum_up();
        is_shorter.then(|| {
            "the endpoint refused the request for its length; a shorter one is sent".into()
        })
    }
}
