//! Decides which text of a model's replies is the answer, while it is streamed. Every API that shows text before a run is
//! over shows what [`AnswerStream`] gives, and nothing else. So does a terminal.
//!
//! The answer is the string `output` of a JSON object in the schema contract, the string `final_answer` in
//! the simple contract, and the text itself in the tools contract. In all of them it comes without the thoughts before it,
//! and text is given out when it is certain to be a part of the answer:
//!
//! - A text that begins like a call of one of the run's tools, and what follows the mark of a call, is held: whether it is
//!   one, the complete reply shows (docs/protocol.md, 4.10). A call without a mark is all of a reply, so of this the
//!   beginning decides. In a contract whose answer is JSON, only marks of calls begin one, wherever they stand
//!   before an object.
//! - A mark in code or within a sentence is a quotation, and holds nothing.
//! - White space that may be the end of the answer, which has none, is held.
//! - Of a run whose output is checked before it counts (against a schema, for citations, by advisors), and of replies that
//!   have to call a tool, all is held.
//!
//! Not everything can be known ahead. A model may say something beside a call of one of the run's own tools, or in a reply
//! that goes back to it because it cannot be used, or a thought whose opening mark its template wrote: these stay, and the
//! answer follows. And a reply may break off: of the next one, the part is given that goes beyond the text so far.
//! If it does not begin with this text, the client cannot be given the answer in this stream
//! ([`AnswerRest::Contradiction`]).

mod reply_answer;
#[cfg(test)]
mod tests;

use self::reply_answer::ReplyAnswer;
use crate::stop_texts::StopTexts;
use std::mem;
use toolhold_agent::contract::{OfferedNames, ReplyText, ThoughtFilter};
use toolhold_protocol::bound::{BoundTools, Runner};
use toolhold_protocol::completion::Delta;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::fallback::Stage;
use toolhold_protocol::knowledge::CitationRule;
use toolhold_protocol::settings::RunRequest;

/// Follows the replies of one run, in order.
#[derive(Debug, Default)]
pub struct AnswerStream {
    contract: Contract,
    /// True if the run's output counts only when something has looked at the whole of it.
    is_checked: bool,
    /// True if the text of a reply is no answer yet, because a call has to be made before.
    awaits_call: bool,
    /// True if that call is one of the client's, with which the run ends.
    awaits_client: bool,
    /// True once such a call was made.
    is_called: bool,
    /// True while another model is asked for one call.
    is_aside: bool,
    /// The step of the reply that is under way.
    step: u32,
    /// True if calls of this step were made or refused, or its reply goes back to the model: its text is no answer of the run.
    is_no_answer: bool,
    /// True if the reply of this step broke off. The next one continues its text.
    is_broken_off: bool,
    /// The tools that replies may call, in forms without marks, too.
    names: OfferedNames,
    thoughts: ThoughtFilter,
    reply: ReplyAnswer,
    /// Texts before which the answer ends.
    stops: StopTexts,
    /// Text that was given out, of this reply, or of one that broke off before it.
    said: String,
    /// Bytes of it with which this reply begins as well.
    repeated: usize,
    /// True if this reply has another text.
    is_other: bool,
    /// True if the text that was given out was a thought whose opening mark the endpoint's template wrote.
    was_thought: bool,
}

/// The effect of an event of a run on its answer.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerNews {
    Nothing,
    /// The next part of the answer.
    Text(String),
    /// The text so far was said beside calls, or in a reply that went back to the model. It is complete, and the answer is
    /// another one.
    Aside,
}

/// How a partly streamed answer is completed.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerRest<'a> {
    /// The part that follows the text so far.
    More(&'a str),
    /// The whole answer: the text so far was said beside calls or in a reply that went back to the model, or was a thought that
    /// had no opening mark.
    Apart(&'a str),
    /// The text so far is not the beginning of the answer, and cannot be taken back.
    Contradiction,
}

impl AnswerStream {
    pub fn new(contract: Contract) -> Self {
        Self {
            contract,
            ..Self::default()
        }
    }

    /// The stream of a run of this request with these tools.
    pub fn of(request: &RunRequest, tools: &BoundTools) -> Self {
        let mut runners = tools.iter().map(|bound| &bound.runner);
        let retrieval = request.retrieval.as_ref();
        let mut context = request.context.iter();
        Self {
            is_checked: request.output_schema.is_some()
                || retrieval.is_some_and(|it| it.citations == CitationRule::Require)
                || context.any(|message| matches!(message, Message::Advisor(_))),
            awaits_call: request.settings.must_call,
            awaits_client: runners.any(|runner| *runner == Runner::Client),
            ..Self::new(request.settings.contract).offering(tools)
        }
    }

    /// Holds text that may be a call of one of these tools.
    #[must_use]
    pub fn offering(mut self, tools: &BoundTools) -> Self {
        self.names = OfferedNames::of(tools.iter().map(|bound| bound.tool.name.as_str()));
        self.reply = ReplyAnswer::new(self.names.clone());
        self
    }

    /// Ends the answer before the first of these texts.
    #[must_use]
    pub fn stopping(mut self, stops: StopTexts) -> Self {
        self.stops = stops;
        self
    }

    /// A stream of the text of one reply, for readers of what stands beside its calls: text that may be a call is held, and
    /// nothing else.
    #[must_use]
    pub fn unchecked(&self) -> Self {
        Self {
            names: self.names.clone(),
            reply: ReplyAnswer::new(self.names.clone()),
            ..Self::new(self.contract)
        }
    }

    /// Forgets the text that was given out, before the next reply, for readers who are shown each reply by itself.
    pub fn forget(&mut self) {
        self.said.clear();
        self.repeated = 0;
        self.is_other = false;
        self.was_thought = false;
    }

    /// The text that was given out.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &EventKind) -> AnswerNews {
        match event {
            EventKind::Run { request, tools, .. } => {
                let stops = mem::take(&mut self.stops);
                *self = Self::of(request, tools).stopping(stops);
            }
            EventKind::Request { step, .. } => {
                let was_aside = self.is_beside_answer() && !self.said.is_empty();
                self.begin(*step);
                if was_aside {
                    return AnswerNews::Aside;
                }
            }
            EventKind::Fallback { tool, stage, .. } => {
                let is_asked = matches!(stage, Stage::Asked { .. } | Stage::Failed { .. });
                self.is_aside = is_asked && tool.is_some();
                // The reply of another model that was asked for one was refused. It is told as no other one is.
                let is_failed = matches!(stage, Stage::Failed { .. }) && tool.is_none();
                self.is_no_answer |= is_failed && !self.is_broken_off;
            }
            EventKind::ModelFailed { step, .. } => self.is_broken_off |= *step == self.step,
            // Calls of earlier steps may begin while the model writes.
            EventKind::Plan { step, .. } => self.is_no_answer |= *step == self.step,
            EventKind::ToolStart { step, .. } => {
                self.is_no_answer |= *step == self.step;
                self.is_called = !self.awaits_client;
            }
            // The model is told why, and writes another reply.
            EventKind::UnusableReply(reply) => self.is_no_answer |= reply.step == self.step,
            EventKind::Delta {
                delta: Delta::Content(text),
                ..
            } => {
                let text = self.push(text);
                if !text.is_empty() {
                    return AnswerNews::Text(text);
                }
            }
            _ => {}
        }
        AnswerNews::Nothing
    }

    /// Begins the next reply. The text of one that called tools or was refused was its own; that of another one is still to be
    /// completed.
    fn begin(&mut self, step: u32) {
        if self.is_beside_answer() {
            self.said.clear();
        }
        self.was_thought = false;
        self.step = step;
        self.is_no_answer = false;
        self.is_broken_off = false;
        self.awaits_call &= !self.is_called;
        self.is_called = false;
        self.thoughts = ThoughtFilter::default();
        self.begin_again();
    }

    /// True if the text that was given out is of this reply, and no part of the answer.
    fn is_beside_answer(&self) -> bool {
        let is_own = !self.is_other && self.repeated == self.said.len();
        self.was_thought || (self.is_no_answer && is_own)
    }

    /// Begins the answer of this reply, of which there is nothing so far.
    fn begin_again(&mut self) {
        self.reply = ReplyAnswer::new(self.names.clone());
        self.stops = self.stops.anew();
        self.repeated = 0;
        self.is_other = false;
    }

    /// Takes the next piece of a reply, and returns its part of the answer.
    pub fn push(&mut self, text: &str) -> String {
        if self.awaits_call || self.is_checked || self.is_aside {
            return String::new();
        }
        let mut answer = String::new();
        for part in self.thoughts.push(text) {
            match part {
                ReplyText::Answer(text) => self.reply.push(self.contract, &text, &mut answer),
                ReplyText::Restart => {
                    answer.clear();
                    self.was_thought |= self.repeated > 0 && self.repeated == self.said.len();
                    self.begin_again();
                }
            }
        }
        let answer = self.stops.push(answer);
        self.say(answer)
    }

    /// The reply has ended: what may have been the beginning of a mark is a part of its text.
    pub fn finish(&mut self) -> String {
        let mut answer = String::new();
        if let Some(text) = self.thoughts.finish() {
            self.reply.push(self.contract, &text, &mut answer);
        }
        self.reply.finish(self.contract, &mut answer);
        let answer = self.stops.push(answer);
        self.say(answer)
    }

    /// True if the text of this reply ends at what may be a call.
    pub fn ends_at_call(&self) -> bool {
        self.reply.ends_at_call()
    }

    /// The part of `text`, the next one of this reply's answer, that goes beyond what was given out.
    fn say(&mut self, text: String) -> String {
        if self.is_other || self.was_thought {
            return String::new();
        }
        let known = self.said.get(self.repeated..).unwrap_or_default();
        let new = match text.strip_prefix(known) {
            Some("") | None if known.starts_with(&text) => {
                self.repeated += text.len();
                return String::new();
            }
            Some(new) => new.to_owned(),
            None => {
                self.is_other = true;
                return String::new();
            }
        };
        self.said.push_str(&new);
        self.repeated = self.said.len();
        new
    }

    /// The part of the final answer that was not given out yet. `is_whole`: the run came to it by itself, and was not stopped
    /// before. Of a run that was stopped, nothing follows a text that broke off.
    pub fn rest<'a>(&self, answer: &'a str, is_whole: bool) -> AnswerRest<'a> {
        match answer.strip_prefix(self.said.as_str()) {
            Some(rest) if !self.was_thought => AnswerRest::More(rest),
            _ if self.is_beside_answer() => AnswerRest::Apart(answer),
            _ if is_whole => AnswerRest::Contradiction,
            _ => AnswerRest::More(""),
        }
    }
}
