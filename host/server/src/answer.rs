//! The answer of a run as an API returns it, built from the run's events.

use crate::secret_mask::SecretMask;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::citation::Citation;
use toolhold_protocol::context::Message;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::event::{RunFailure, ToolOutcome};
use toolhold_protocol::failure::{NOT_MADE, ToolFailure, UNFINISHED};
use toolhold_protocol::knowledge::RetrievedPassage;
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
    /// The text about the run's own calls, if the run ended with calls of the client's tools.
    #[serde(skip)]
    pub own_calls: String,
    #[serde(skip)]
    secrets: SecretMask,
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

/// One Request to the model, and the calls that its reply asked for. Step 0 is what was done before the model was asked.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct AnswerStep {
    pub step: u32,
    pub calls: Vec<Call>,
    /// Passages of documents that were found, if some were looked for in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retrieved: Option<Vec<AnswerPassage>>,
}

/// A passage of a document that the model was shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AnswerPassage {
    /// What the output cites it by: `k1`.
    pub id: String,
    /// Name of its collection.
    pub collection: String,
    /// Path, URL or name of its document.
    pub source: String,
    /// The headings that it stands under, one a line, the outermost first.
    pub heading: String,
    pub text: String,
}

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

impl From<&RetrievedPassage> for AnswerPassage {
    fn from(passage: &RetrievedPassage) -> Self {
        Self {
            id: passage.id.clone(),
            collection: passage.collection.clone(),
            source: passage.source.clone(),
            heading: passage.heading.clone(),
            text: passage.text.clone(),
        }
    }
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

#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Call {
    pub id: String,
    pub tool: String,
    pub status: CallStatus,
    /// Arguments after references were replaced; as the model wrote them, if the call was refused. Null if its reply
    /// broke off.
    #[schema(value_type = Value)]
    pub arguments: Value,
    /// Null unless the call is done.
    #[schema(value_type = Value)]
    pub result: Value,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub duration_ms: f64,
    /// The tool was not called: this is the result of an equal call before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<CachedResult>,
    /// Whether its tool was called.
    #[serde(skip)]
    pub is_begun: bool,
}

/// The call whose result another call was given.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CachedResult {
    /// The id of that call.
    pub call: String,
    /// Its run.
    pub run: Uuid,
    /// How old the result is.
    pub age_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    #[default]
    Running,
    Done,
    /// The tool failed, or what it returned cannot be used.
    Failed,
    /// The call was not made: the tool is unknown, the arguments do not fit, a person refused it, …
    Refused,
    /// A shield blocked its arguments, so that it was not made, or its result.
    Shielded,
    /// The server was stopped while the call ran, and it may not be made again: it is not known whether it took effect.
    Unknown,
    /// The run ended while the call ran, or right before it.
    Cancelled,
    /// The call is the client's to make.
    Client,
}

/// The kind of a failure that is a shield's (docs/protocol.md, 7.10).
const SHIELD: &str = "shield";

/// The kind of a failure of a call during which the process ended.
const INTERRUPTED: &str = "interrupted";

impl CallStatus {
    fn of(outcome: &ToolOutcome, by_host: bool, is_begun: bool) -> Self {
        match outcome {
            ToolOutcome::Output(_) => Self::Done,
            ToolOutcome::Error(failure) if failure.kind == SHIELD => Self::Shielded,
            ToolOutcome::Error(failure) if is_begun && failure.kind == INTERRUPTED => Self::Unknown,
            ToolOutcome::Error(failure)
                if [UNFINISHED, NOT_MADE].contains(&failure.kind.as_str()) =>
            {
                Self::Cancelled
            }
            ToolOutcome::Error(_) if by_host && !is_begun => Self::Refused,
            ToolOutcome::Error(_) => Self::Failed,
        }
    }
}

/// Tokens as the endpoint counts them; the cost in billionths of run.currency.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    /// Absent if the cost is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nano: Option<u64>,
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

    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Request { .. }
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
                if !self.is_brief {
                    self.input_messages = asked(&request.context);
                }
                for message in &mut self.input_messages {
                    message.content = self.secrets.text(&message.content);
                }
            }
            EventKind::Notice { message, .. } => self.notice(message.clone()),
            EventKind::Summarized {
                turns,
                tokens_before,
                tokens_after,
                ..
            } => self.notice(format!(
                "the context was too long, so {turns} of its oldest turns are a summary from here on: {tokens_after} \
                 tokens in the place of {tokens_before}"
            )),
            EventKind::ConversationSummarized {
                messages,
                tokens_before,
                tokens_after,
                ..
            } => self.notice(format!(
                "the conversation was too long, so {messages} of its oldest messages are a summary from here on: \
                 {tokens_after} tokens in the place of {tokens_before}"
            )),
            EventKind::Request { step, .. } => self.steps.push(AnswerStep {
                step: *step,
                ..AnswerStep::default()
            }),
            EventKind::Retrieved {
                step,
                passages,
                notes,
                ..
            } => {
                for note in notes {
                    self.notice(note.clone());
                }
                let secrets = &mut self.secrets;
                let passages = passages.iter().map(|passage| AnswerPassage {
                    source: secrets.text(&passage.source),
                    heading: secrets.text(&passage.heading),
                    text: secrets.text(&passage.text),
                    ..AnswerPassage::from(passage)
                });
                let passages = passages.collect();
                self.steps.push(AnswerStep {
                    step: *step,
                    calls: Vec::new(),
                    retrieved: Some(passages),
                });
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
                let arguments = filled.as_ref().unwrap_or(&call.arguments).clone();
                let arguments = self.secrets.value(arguments);
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
                    let arguments = self.secrets.value(call.arguments.clone());
                    if let Some(known) = self.known(&call.id).filter(|it| it.arguments.is_null()) {
                        known.arguments = arguments;
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
                prompt,
                completion,
                total,
                ..
            } => {
                self.usage.prompt_tokens += prompt.unwrap_or(0);
                self.usage.completion_tokens += completion.unwrap_or(0);
                self.usage.total_tokens = *total;
            }
            EventKind::Done {
                reason,
                output,
                error,
                tokens,
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
                } else {
                    self.output.clone_from(output);
                }
                self.error = error
                    .as_ref()
                    .map(|error: &RunFailure| error.message.clone());
                self.usage.total_tokens = *tokens;
                self.usage.cost_nano = cost_nano.map(Amount::nano);
                self.duration_ms = *duration_ms;
            }
            _ => {}
        }
    }

    fn notice(&mut self, message: String) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(message);
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
