//! The answer of a run as an API returns it, built from the run's events.

mod steps;

pub use steps::{
    AnswerInference, AnswerPassage, AnswerStep, AnswerVerdict, CachedResult, Call, CallStatus,
};

use crate::secret_mask::SecretMask;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use toolhold_agent::user_text::UserText;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::citation::Citation;
use toolhold_protocol::completion::{ReplyCut, Usage as TokenUsage};
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::event::{RunFailure, ToolOutcome};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_protocol::turn::Role;
use utoipa::ToSchema;
use uuid::Uuid;

/// The answer to a task, with the steps that led to it.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Answer {
    /// The run's id. `GET /v1/runs/ID` returns the whole run.
    pub id: Uuid,
    /// The output, which satisfies the output schema: a text without a schema, null if the run was stopped or ended with
    /// calls of the client's tools.
    #[schema(value_type = Value)]
    pub output: Value,
    /// Why the run ended: `output`, or what stopped it (`max_steps`, `timeout`, `cancelled`, `model`, …).
    /// Null while the run is not over.
    #[schema(value_type = Option<String>)]
    pub reason: Option<StopReason>,
    /// The error, if the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Language of the task, a BCP 47 tag, if it was given or can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// What the run was asked: the texts of its context since the last answer before it.
    pub input_messages: Vec<InputMessage>,
    /// What the reader of the answer should know of how it came about, such as that history was summed up. At most
    /// 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    pub steps: Vec<AnswerStep>,
    /// The passages that the output names, and whether what it quotes is in them. Only of runs that were shown some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<AnswerCitation>,
    pub usage: Usage,
    pub duration_ms: u64,
    /// Names of the tools that the client runs itself.
    #[serde(skip)]
    pub clients: BTreeSet<String>,
    /// Token limit of a reply, as the run began.
    #[serde(skip)]
    max_tokens: u64,
    /// The lowest limit that a notice tells.
    #[serde(skip)]
    told_max_tokens: Option<u64>,
    /// The text about the run's own calls, if the run ended with calls of the client's tools.
    #[serde(skip)]
    pub own_calls: String,
    /// Arguments of calls that a reply asked for and that have neither begun nor ended, by their ids.
    #[serde(skip)]
    requested: BTreeMap<String, Value>,
    #[serde(skip)]
    secrets: SecretMask,
    /// True if shields screen the run's output.
    #[serde(skip)]
    is_screened: bool,
    /// True if an answer is the text of a reply, and not a part of its JSON.
    #[serde(skip)]
    has_text_replies: bool,
    /// Why the text of the last reply is not whole.
    #[serde(skip)]
    cut: Option<ReplyCut>,
    /// Whether steps and input are left out: streams tell them as they happen, and may be many.
    #[serde(skip)]
    is_brief: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InputMessage {
    /// `user` or `system`.
    #[schema(value_type = String)]
    role: Role,
    content: String,
}

/// Most notices of an answer: beyond that, more tell nobody more.
const MAX_NOTICES: usize = 100;

/// A place of the output that names a passage.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerCitation {
    /// The passage's: `k1`.
    pub id: String,
    /// Source of its document; absent where no such passage was shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What the output quotes before it, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Whether there is such a passage, and what is quoted is in it.
    pub holds: bool,
}

impl From<&Citation> for AnswerCitation {
    fn from(citation: &Citation) -> Self {
        Self {
            id: citation.id.clone(),
            source: citation.source.clone(),
            quote: citation.quote.clone(),
            holds: citation.holds,
        }
    }
}

/// Tokens of the run's own replies and of those of its sub-agents, as the endpoints count them; the cost in billionths of
/// run.currency.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// The sum of the two.
    pub total_tokens: u64,
    /// Tokens of models that were asked beside: by shields, by the router, and hedged requests. Their cost is in that of
    /// the run.
    #[serde(skip_serializing_if = "is_zero")]
    pub side_tokens: u64,
    /// Absent if the cost is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nano: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    /// Adds the tokens of an event, of the run or of a sub-agent.
    fn take(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Tokens {
                prompt, completion, ..
            } => {
                self.prompt_tokens += prompt.unwrap_or(0);
                self.completion_tokens += completion.unwrap_or(0);
                self.total_tokens = self.prompt_tokens + self.completion_tokens;
            }
            EventKind::SideRequest(request) => {
                self.side_tokens += request.usage.as_ref().map_or(0, TokenUsage::total);
            }
            EventKind::Sub { what, .. } => self.take(what),
            _ => {}
        }
    }
}

impl Answer {
    pub fn of(run: Uuid) -> Self {
        Self {
            id: run,
            ..Self::default()
        }
    }

    /// An answer without steps and input.
    pub fn brief(run: Uuid) -> Self {
        Self {
            is_brief: true,
            ..Self::of(run)
        }
    }

    /// Members of a message or of a call that the endpoint gave, as the client may see them: none where shields screen the
    /// output, and without secrets. A signed member that has one is left out.
    pub fn shown_members(&self, members: &Map<String, Value>) -> Map<String, Value> {
        if self.is_screened {
            return Map::new();
        }
        let mut secrets = self.secrets.clone();
        let shown = members.iter().filter_map(|(name, value)| {
            let shown = secrets.value(value.clone());
            let is_whole = value.is_string() || shown == *value;
            is_whole.then(|| (name.clone(), shown))
        });
        shown.collect()
    }

    /// Something of the run's input, without the secrets that the run hides.
    pub fn shown_input(&self, input: Value) -> Value {
        self.secrets.clone().value(input)
    }

    /// A text that the model wrote beside its calls, as the client may see it.
    pub fn shown_text(&self, text: &str) -> String {
        if self.is_screened {
            return String::new();
        }
        self.secrets.clone().text(text)
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) {
        self.usage.take(&event.kind);
        self.take_cut(&event.kind);
        match &event.kind {
            EventKind::Request { .. }
            | EventKind::Reply { .. }
            | EventKind::Tokens { .. }
            | EventKind::Shield(_)
            | EventKind::Retrieved { .. }
            | EventKind::ToolStart { .. }
            | EventKind::Plan { .. }
            | EventKind::ToolResult { .. }
                if self.is_brief => {}
            EventKind::Run { request, tools, .. } => {
                let clients = tools.iter().filter(|bound| bound.runner == Runner::Client);
                self.secrets = SecretMask::of(&request.settings.privacy);
                self.clients = clients.map(|bound| bound.tool.name.clone()).collect();
                self.language.clone_from(&request.language);
                self.is_screened = request.policy.screens.contains(&ShieldPlace::Output);
                self.max_tokens = request.settings.max_tokens.into();
                if let Some(asked) = request.settings.requested_max_tokens {
                    self.notice(&format!(
                        "a reply of the model has at most {} tokens here, although {asked} were asked for",
                        request.settings.max_tokens
                    ));
                }
                if !self.is_brief {
                    self.input_messages = asked(&request.context);
                }
                for message in &mut self.input_messages {
                    message.content = self.secrets.text(&message.content);
                }
            }
            EventKind::Notice { message, .. } => self.notice(message),
            EventKind::Resumed { notes, .. } => {
                // Each process that goes on with the run tells of them.
                for note in notes {
                    self.notice_once(note);
                }
            }
            EventKind::Routing(left_out @ Routing::ImagesLeftOut { .. }) => {
                // Each Request of the run leaves them out.
                self.notice_once(&left_out.to_string());
            }
            EventKind::Summarized {
                turns,
                tokens_before,
                tokens_after,
                ..
            } => self.notice(&format!(
                "the context was too long, so {turns} of its oldest turns are a summary from here on: {tokens_after} \
                 tokens in the place of {tokens_before}"
            )),
            EventKind::ConversationSummarized {
                messages,
                tokens_before,
                tokens_after,
                ..
            } => self.notice(&format!(
                "the conversation was too long, so {messages} of its oldest messages are a summary from here on: \
                 {tokens_after} tokens in the place of {tokens_before}"
            )),
            EventKind::Budget { step, reply, .. } => self.tell_reply_limit(*step, *reply),
            EventKind::Request { step, .. } => self.in_step(*step, |_| ()),
            EventKind::Reply { step, completion } => {
                let mut inference = AnswerInference {
                    model: completion.model.clone(),
                    finish_reason: completion.finish_reason.clone(),
                    ..AnswerInference::default()
                };
                if !self.is_screened {
                    inference.take_texts(completion, |text| self.secrets.text(text));
                }
                self.in_step(*step, |own| own.inference = Some(inference));
            }
            EventKind::Shield(judgement) => {
                let mut verdict = AnswerVerdict::from(judgement);
                verdict.reason = verdict.reason.map(|reason| self.secrets.text(&reason));
                let last = self.steps.last().map_or(0, |step| step.step);
                self.in_step(last, |own| own.shields.push(verdict));
            }
            EventKind::Retrieved {
                step,
                passages,
                notes,
                ..
            } => {
                for note in notes {
                    self.notice(note);
                }
                let secrets = &mut self.secrets;
                let passages = passages.iter().map(|passage| AnswerPassage {
                    source: secrets.text(&passage.source),
                    heading: secrets.text(&passage.heading),
                    text: secrets.text(&passage.text),
                    ..AnswerPassage::from(passage)
                });
                let passages: Vec<AnswerPassage> = passages.collect();
                self.in_step(*step, |own| own.retrieved = Some(passages));
            }
            EventKind::Cited { citations, .. } => {
                let secrets = &mut self.secrets;
                let citations = citations.iter().map(|citation| AnswerCitation {
                    source: citation.source.as_deref().map(|source| secrets.text(source)),
                    ..AnswerCitation::from(citation)
                });
                self.citations = citations.collect();
            }
            EventKind::ToolStart { call, filled, .. } => {
                let arguments = if self.awaits_shields(&call.tool) {
                    Value::Null
                } else {
                    let arguments = filled.as_ref().unwrap_or(&call.arguments).clone();
                    self.secrets.value(arguments)
                };
                let is_clients = self.clients.contains(&call.tool);
                self.update(&call.id, &call.tool, |made| {
                    made.arguments = arguments;
                    made.is_begun = true;
                    if is_clients {
                        made.status = CallStatus::Client;
                    }
                });
            }
            // Calls that were refused while the model wrote have no arguments yet.
            EventKind::Plan { calls, .. } => {
                for call in calls {
                    if self.awaits_shields(&call.tool) {
                        continue;
                    }
                    let arguments = self.secrets.value(call.arguments.clone());
                    match self.known(&call.id) {
                        Some(known) if known.arguments.is_null() => known.arguments = arguments,
                        Some(_) => {}
                        // It has not begun, and may end without: a shield or a person is asked.
                        None => {
                            self.requested.insert(call.id.clone(), arguments);
                        }
                    }
                }
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                by_host,
                cached,
                ..
            } => {
                let outcome = match outcome {
                    ToolOutcome::Output(value) => ToolOutcome::Output(self.secrets.value(value.clone())),
                    ToolOutcome::Error(failure) => ToolOutcome::Error(ToolFailure {
                        message: self.secrets.text(&failure.message),
                        ..failure.clone()
                    }),
                };
                self.update(id, tool, |call| {
                    call.duration_ms = usage.duration_us as f64 / 1_000.0;
                    call.status = CallStatus::of(&outcome, *by_host, call.is_begun);
                    call.cached = cached.as_ref().map(|cached| CachedResult {
                        call: cached.call.clone(),
                        run: cached.run,
                        age_ms: cached.age_ms,
                    });
                    match outcome {
                        ToolOutcome::Output(value) => call.result = value,
                        ToolOutcome::Error(failure) => call.error = Some(failure.message),
                    }
                });
            }
            EventKind::Tokens {
                step,
                prompt,
                completion,
                first_token_ms,
                duration_ms,
                ..
            } => self.in_step(*step, |own| {
                let inference = own.inference.get_or_insert_default();
                inference.prompt_tokens = *prompt;
                inference.completion_tokens = *completion;
                inference.first_token_ms = *first_token_ms;
                inference.duration_ms = *duration_ms;
            }),
            EventKind::Done {
                reason,
                output,
                error,
                cost_nano,
                duration_ms,
                ..
            } => {
                self.reason = Some(*reason);
                let calls = self.steps.iter_mut().flat_map(|step| &mut step.calls);
                for call in calls.filter(|call| call.status == CallStatus::Running) {
                    call.status = CallStatus::Cancelled;
                }
                if *reason == StopReason::ToolCalls {
                    let told = output["told"].as_str();
                    told.unwrap_or_default().clone_into(&mut self.own_calls);
                    self.take_handed_over(output);
                } else {
                    self.output.clone_from(output);
                }
                self.error = error
                    .as_ref()
                    .map(|error: &RunFailure| self.secrets.text(&error.message));
                self.usage.cost_nano = cost_nano.map(Amount::nano);
                self.duration_ms = *duration_ms;
            }
            _ => {}
        }
    }

    /// Tells that an answer is not whole.
    fn take_cut(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Run { request, .. } => {
                self.has_text_replies = request.settings.contract == Contract::Tools;
            }
            EventKind::Reply { completion, .. } => self.cut = completion.text_cut(),
            EventKind::Done {
                reason: StopReason::Output,
                ..
            } if self.has_text_replies => {
                if let Some(cut) = self.cut {
                    let text = UserText::from(cut).in_language(self.language.as_deref());
                    self.notice(text);
                }
            }
            _ => {}
        }
    }

    /// Tells that the window leaves a reply less than its limit: at the first time, and again at each half of that.
    fn tell_reply_limit(&mut self, step: u32, limit: u64) {
        let is_news = self.told_max_tokens.is_none_or(|told| limit <= told / 2);
        if limit < self.max_tokens && is_news {
            self.told_max_tokens = Some(limit);
            self.notice(&format!(
                "the context leaves the reply of step {step} at most {limit} tokens, in the place of {}",
                self.max_tokens
            ));
        }
    }

    /// Adds a notice that the answer does not have yet.
    fn notice_once(&mut self, message: &str) {
        let is_there = self.notices.contains(&self.secrets.text(message));
        if !is_there {
            self.notice(message);
        }
    }

    fn notice(&mut self, message: &str) {
        if self.notices.len() < MAX_NOTICES {
            let message = self.secrets.text(message);
            self.notices.push(message);
        }
    }

    /// Whether the arguments of a call of this tool are kept back: the shields on the output have to see them before the
    /// client does, which makes the call.
    fn awaits_shields(&self, tool: &str) -> bool {
        self.is_screened && self.clients.contains(tool)
    }

    /// Takes the arguments of the client's calls that were kept back, as the shields on the output left them.
    fn take_handed_over(&mut self, output: &Value) {
        if !self.is_screened {
            return;
        }
        for call in output["calls"].as_array().into_iter().flatten() {
            let arguments = self.secrets.value(call["arguments"].clone());
            let id = call["id"].as_str().unwrap_or_default();
            if let Some(known) = self.known(id) {
                known.arguments = arguments;
            }
        }
    }

    /// Changes the step of this number, which is a new one if there is none.
    fn in_step(&mut self, number: u32, change: impl FnOnce(&mut AnswerStep)) {
        if !self.steps.iter().rev().any(|step| step.step == number) {
            self.steps.push(AnswerStep {
                step: number,
                ..AnswerStep::default()
            });
        }
        let mut latest = self.steps.iter_mut().rev();
        if let Some(step) = latest.find(|step| step.step == number) {
            change(step);
        }
    }

    fn known(&mut self, id: &str) -> Option<&mut Call> {
        let mut calls = self.steps.iter_mut().flat_map(|step| &mut step.calls);
        calls.find(|call| call.id == id)
    }

    /// Changes the call `id`, which is one of the last step if it is new.
    fn update(&mut self, id: &str, tool: &str, change: impl FnOnce(&mut Call)) {
        if let Some(known) = self.known(id) {
            return change(known);
        }
        let mut call = Call {
            id: id.to_owned(),
            tool: tool.to_owned(),
            arguments: self.requested.remove(id).unwrap_or_default(),
            ..Call::default()
        };
        change(&mut call);
        // The calls of a saved plan belong to no Request.
        if self.steps.is_empty() {
            self.steps.push(AnswerStep::default());
        }
        if let Some(step) = self.steps.last_mut() {
            step.calls.push(call);
        }
    }

    /// The output as text; other values as JSON.
    pub fn text(&self) -> String {
        match &self.output {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }
}

/// The texts after the last one of the assistant: what was asked since the last answer.
fn asked(context: &[Message]) -> Vec<InputMessage> {
    let mut asked = Vec::new();
    for message in context {
        match message {
            Message::Text(text) if text.role == Role::Assistant => asked.clear(),
            Message::Text(text) => asked.push(InputMessage {
                role: text.role,
                content: text.text.clone(),
            }),
            _ => {}
        }
    }
    asked
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::event::Seal;

    #[test]
    fn notes_of_several_processes_that_resume_a_run_are_one_notice() {
        let note = "MCP server away: its tools are left out";
        let resumed = |seq| Event {
            run: Uuid::nil(),
            seq,
            at_ms: 0,
            kind: EventKind::Resumed {
                step: 1,
                active_ms: 1,
                notes: vec![note.to_owned()],
            },
            seal: Seal::default(),
            removed: None,
        };
        let mut answer = Answer::default();
        for seq in 1..3 {
            answer.take(&resumed(seq));
        }
        assert_eq!(answer.notices, [note]);
    }
}
