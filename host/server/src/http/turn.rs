//! One turn of an agent for a client of OpenAI's APIs, which may bring tools of its own.
//!
//! The host runs the agent's tools. The client runs the tools that it brings: the run ends with their calls,
//! as at OpenAI, and the next request brings their results.

use crate::answer::Answer;
use crate::http::beside_calls::TextBesideCalls;
use crate::http::endpoint_failure::EndpointFailure;
use crate::http::error::ApiError;
use crate::http::messages::{ClientCall, ClientFunction};
use crate::http::reply_thoughts::{ReplyThoughts, text_bytes};
use crate::http::run_status::{Api, status};
use crate::http::unsent::{FromRecord, ROOM_TIME, no_room};
use crate::runs::Watcher;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::time::timeout;
use toolhold_agent::user_text::UserText;
use toolhold_connections::UnsentBytes;
use toolhold_json::bounded;
use toolhold_protocol::completion::ReplyCut;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_storage::Store;
use utoipa::ToSchema;
use uuid::Uuid;

/// The outcome of a turn, which is a run.
#[derive(Debug)]
pub struct Turn {
    pub answer: Answer,
    /// Calls of the client's tools.
    pub calls: Vec<ClientCall>,
    /// Prompt tokens from the endpoint's cache.
    pub cached_tokens: u64,
    /// Milliseconds since 1970 at which the run ended.
    pub ended_at_ms: Option<u64>,
    contract: Contract,
    thoughts: ReplyThoughts,
    beside: TextBesideCalls,
    last: LastReply,
    /// How the endpoint failed, if it ended the run.
    endpoint: EndpointFailure,
}

/// Text of the model's last reply.
#[derive(Debug, Default)]
struct LastReply {
    /// Why the last reply is not whole.
    cut: Option<ReplyCut>,
    is_text: bool,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// It has not ended: the run continues, or no process drives it.
    Open,
    Answered,
    /// The client has to run its tools.
    Called,
    /// The token limit of a reply or of the whole run was reached before the answer was complete.
    OutOfTokens,
    /// The endpoint's content filter cut the answer.
    Filtered,
    /// Another limit of the run was reached before there was an answer.
    Limited,
    /// A shield blocked the input or the output.
    Blocked,
    Cancelled,
    /// The endpoint failed, or its reply could not be used.
    Failed,
}

/// The fields that OpenAI's APIs do not have.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolholdFields {
    /// `GET /v1/runs/{run}` returns its steps.
    run: Uuid,
    /// Why the run ended.
    #[schema(value_type = Option<String>)]
    reason: Option<StopReason>,
    /// Why there is no answer, or not all of it, where the run knows a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Language of the task, a BCP 47 tag, if it can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<String>,
    /// Notices about how the answer came about, such as parts of a tool's schema that are not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

/// Seconds since 1970 at which a run began: however often its answer is given, they are the same.
pub fn began_at(run: Uuid) -> u64 {
    run.get_timestamp().map_or(0, |at| at.to_unix().0)
}

impl Turn {
    pub fn new(run: Uuid) -> Self {
        Self::with(Answer::of(run))
    }

    /// A turn without steps and input.
    fn brief(run: Uuid) -> Self {
        Self::with(Answer::brief(run))
    }

    fn with(answer: Answer) -> Self {
        Self {
            answer,
            calls: Vec::new(),
            cached_tokens: 0,
            ended_at_ms: None,
            contract: Contract::default(),
            thoughts: ReplyThoughts::default(),
            beside: TextBesideCalls::default(),
            last: LastReply::default(),
            endpoint: EndpointFailure::default(),
        }
    }

    pub fn end(&self) -> TurnEnd {
        let Some(reason) = self.answer.reason else {
            return TurnEnd::Open;
        };
        match reason {
            // Any other reply that ends early is incomplete JSON and no answer.
            StopReason::Output if self.last.is_text && self.contract == Contract::Tools => {
                match self.last.cut {
                    Some(ReplyCut::Length) => TurnEnd::OutOfTokens,
                    Some(ReplyCut::Filter) => TurnEnd::Filtered,
                    None => TurnEnd::Answered,
                }
            }
            StopReason::Output | StopReason::Planned | StopReason::Incomplete => TurnEnd::Answered,
            StopReason::ToolCalls => TurnEnd::Called,
            StopReason::TokenBudget => TurnEnd::OutOfTokens,
            StopReason::Unusable if self.last.cut == Some(ReplyCut::Length) => TurnEnd::OutOfTokens,
            StopReason::MaxSteps
            | StopReason::MaxCost
            | StopReason::MaxToolCalls
            | StopReason::Timeout => TurnEnd::Limited,
            StopReason::Blocked => TurnEnd::Blocked,
            StopReason::Cancelled => TurnEnd::Cancelled,
            StopReason::Model | StopReason::Unusable => TurnEnd::Failed,
        }
    }

    /// True if the turn came to its end by itself, and was not stopped before.
    pub fn is_whole(&self) -> bool {
        matches!(self.end(), TurnEnd::Answered | TurnEnd::Called)
    }

    /// The text of the answer. Of a turn that ends with calls of the client's tools: what the model says beside them, and
    /// what the run tells of its own calls, because the client sends this text back.
    pub fn content(&self) -> String {
        match self.end() {
            TurnEnd::Called => {
                let told = &self.answer.own_calls;
                let mut text = self.answer.shown_text(self.beside.text());
                if !text.is_empty() && !told.is_empty() {
                    text.push_str("\n\n");
                }
                text + told
            }
            _ => self.answer.text(),
        }
    }

    /// The text that clients show to people: the answer, or in the place of none a text of the host in the language of the
    /// task, which asks back. Data that calls wrote are no answer, so they stand before it. The error of the run is for
    /// developers.
    pub fn shown(&self) -> String {
        let mut text = self.content();
        let instead = match self.end() {
            TurnEnd::Limited => UserText::Unfinished,
            TurnEnd::OutOfTokens => UserText::OutOfTokens,
            TurnEnd::Blocked => UserText::Blocked,
            TurnEnd::Open
            | TurnEnd::Answered
            | TurnEnd::Filtered
            | TurnEnd::Called
            | TurnEnd::Cancelled
            | TurnEnd::Failed => return text,
        };
        let is_answer = self.answer.output.is_string();
        // An empty answer without an error is an answer, too.
        if self.answer.error.is_some() && (text.is_empty() || !is_answer) {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(instead.in_language(self.answer.language.as_deref()));
        }
        text
    }

    /// Bytes of the texts that the turn ends with: its answer, and the calls of the client's tools.
    pub fn end_bytes(&self) -> u64 {
        let calls = self.calls.iter();
        let calls = calls.map(|call| call.function.name.len() + call.function.arguments.len());
        let members = self.calls.iter();
        let members = members.flat_map(|call| [&call.members, &call.reasoning]);
        (self.content().len() + calls.sum::<usize>()) as u64 + members.map(text_bytes).sum::<u64>()
    }

    /// Members of the message with the reasoning before the calls of the client's tools, as the client may see them.
    pub fn thoughts(&self) -> Map<String, Value> {
        let first = self.calls.first();
        first.map_or_else(Map::new, |call| self.answer.shown_members(&call.reasoning))
    }

    /// Signed members of one of these calls, as the client may see them.
    pub fn call_members(&self, call: &ClientCall) -> Map<String, Value> {
        self.answer.shown_members(&call.members)
    }

    /// Why there is no answer.
    pub fn failure(&self) -> String {
        let why = self.answer.error.as_deref().unwrap_or("it gave no reason");
        self.told_to_user(format!("run {}: {why}", self.answer.id))
    }

    /// A message for developers behind the text for users about how the run failed, if there is one: clients show the messages
    /// of errors to people. Other texts for users are in the place of the answer.
    fn told_to_user(&self, message: String) -> String {
        let text = self.answer.reason.and_then(UserText::of);
        match text.filter(|text| text.is_of_failure()) {
            Some(text) => {
                let text = text.in_language(self.answer.language.as_deref());
                format!("{text} [{message}]")
            }
            None => message,
        }
    }

    /// The error that an API answers with in place of a turn that has no answer.
    pub fn fault(&self, api: Api) -> Option<ApiError> {
        let run = self.answer.id;
        let Some(reason) = self.answer.reason else {
            let text =
                format!("the server stops; run {run} goes on when it is back: GET /v1/runs/{run}");
            return Some(ApiError::unavailable(text).of_a_run());
        };
        // A reply that was cut is an answer as far as it goes.
        if status(reason, api) == StatusCode::OK || self.end() == TurnEnd::OutOfTokens {
            return None;
        }
        let fault = match reason {
            StopReason::Cancelled => {
                let message = match &self.answer.error {
                    Some(reason) => format!("run {run} was cancelled: {reason}"),
                    None => format!("run {run} was cancelled"),
                };
                ApiError::conflict(self.told_to_user(message)).of_a_run()
            }
            _ => self.endpoint.fault(self.failure()),
        };
        Some(fault)
    }

    /// The error of a stream whose text is not the beginning of the answer: a client cannot take back what it was sent.
    pub fn contradiction(&self) -> ApiError {
        let run = self.answer.id;
        ApiError::upstream(format!(
            "the text that was streamed is not the beginning of the answer, because a reply broke off or was not used and \
             the next one is another; the answer is in run {run}: GET /v1/runs/{run}"
        ))
        .coded("answer_changed")
        .of_a_run()
    }

    pub fn extra(&self) -> ToolholdFields {
        ToolholdFields {
            run: self.answer.id,
            reason: self.answer.reason,
            error: self.answer.error.clone(),
            language: self.answer.language.clone(),
            notices: self.answer.notices.clone(),
        }
    }
}

impl FromRecord for Turn {
    async fn begin(_: &Store, run: Uuid) -> Result<(Self, u64), ApiError> {
        Ok((Self::new(run), 0))
    }

    fn take(&mut self, event: &Event) {
        self.answer.take(event);
        if matches!(event.kind, EventKind::Done { .. }) {
            self.ended_at_ms = Some(event.at_ms);
        }
        // Of a run without tools of its client no call goes into another run.
        if !self.answer.clients.is_empty() {
            self.thoughts.take(&event.kind);
            if self.contract == Contract::Tools {
                self.beside.take(&event.kind);
            }
        }
        match &event.kind {
            EventKind::Run { request, .. } => self.contract = request.settings.contract,
            EventKind::Reply { completion, .. } => {
                let usage = completion.usage.as_ref();
                let cached = usage.and_then(|usage| usage.cached_prompt_tokens);
                self.cached_tokens += cached.unwrap_or(0);
                self.last = LastReply {
                    cut: completion.cut(),
                    is_text: completion.tool_calls.is_empty(),
                };
            }
            EventKind::ToolStart { call, filled, .. }
                if self.answer.clients.contains(&call.tool) =>
            {
                let arguments = filled.as_ref().unwrap_or(&call.arguments);
                self.calls.push(ClientCall {
                    id: call.id.clone(),
                    function: ClientFunction {
                        name: call.tool.clone(),
                        arguments: arguments.to_string(),
                    },
                    ..ClientCall::default()
                });
            }
            // As the shields on the output left them.
            EventKind::Done {
                reason: StopReason::ToolCalls,
                output,
                ..
            } => {
                if let Some(calls) = output["calls"].as_array() {
                    self.calls = calls.iter().map(handed_over).collect();
                }
                self.thoughts.put(&mut self.calls);
            }
            // The run has answered these calls, so the client must not run them.
            EventKind::Done { error, .. } => {
                self.calls.clear();
                let failure = error.as_ref();
                self.endpoint = failure.map(EndpointFailure::of).unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// A call of a client's tool, of those that the end of a run tells.
fn handed_over(call: &Value) -> ClientCall {
    let text = |name: &str| call[name].as_str().unwrap_or_default().to_owned();
    ClientCall {
        id: text("id"),
        function: ClientFunction {
            name: text("tool"),
            arguments: call["arguments"].to_string(),
        },
        ..ClientCall::default()
    }
}

/// A turn that a client waits for.
#[derive(Debug)]
pub struct LiveTurn {
    pub turn: Turn,
    watcher: Watcher,
    /// The memory of what the turn keeps of long events.
    memory: Option<UnsentBytes>,
}

/// An event of which a turn keeps more is counted.
const SMALL_BYTES: u64 = 16 << 10;

/// Bytes that a turn without steps keeps after an event, of `before` that it had: the calls of its `clients` tools, and the
/// end of the run, which takes the place of the calls that it tells again.
fn kept_after(kind: &EventKind, clients: &BTreeSet<String>, before: u64) -> u64 {
    match kind {
        EventKind::ToolStart { call, filled, .. } if clients.contains(&call.tool) => {
            before + bounded::text_bytes(filled.as_ref().unwrap_or(&call.arguments))
        }
        EventKind::Done { output, .. } => before.max(bounded::text_bytes(output)),
        _ => before,
    }
}

impl LiveTurn {
    pub fn new(watcher: Watcher) -> Self {
        Self {
            turn: Turn::brief(watcher.run),
            watcher,
            memory: None,
        }
    }

    /// Waits for memory of what is made of the turn for its client.
    pub async fn room(&self, bytes: u64) -> UnsentBytes {
        self.watcher.share().wait(bytes).await
    }

    /// Waits until `unsent` has grown to `bytes`.
    ///
    /// # Errors
    /// The client has not read enough for a while.
    pub async fn grow(&self, unsent: &mut UnsentBytes, bytes: u64) -> Result<(), ApiError> {
        let mut full = None;
        let grown = self.watcher.share().when(|| match unsent.grow_to(bytes) {
            Ok(()) => Some(()),
            Err(why) => {
                full = Some(why);
                None
            }
        });
        match timeout(ROOM_TIME, grown).await {
            Ok(()) => Ok(()),
            Err(_) => Err(no_room(full, None)),
        }
    }

    /// Counts `bytes` of the turn from now on.
    async fn keep(&mut self, bytes: u64) -> Result<(), ApiError> {
        let mut memory = match self.memory.take() {
            Some(memory) => memory,
            None => self.room(0).await,
        };
        let grown = self.grow(&mut memory, bytes).await;
        self.memory = Some(memory);
        grown
    }

    /// The next event of the run; `None` when it is over, or when no process drives it.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, ApiError> {
        let event = self.watcher.next().await?;
        if let Some(event) = &event {
            // Before it is taken: until then the event counts as it was read.
            let before = self.memory.as_ref().map_or(0, UnsentBytes::bytes);
            let texts = match &event.kind {
                EventKind::Reply { completion, .. } if !self.turn.answer.clients.is_empty() => {
                    let beside = match self.turn.contract {
                        Contract::Tools => self.turn.beside.more_bytes(completion),
                        Contract::Schema | Contract::Simple => 0,
                    };
                    self.turn.thoughts.more_bytes(completion) + beside
                }
                _ => 0,
            };
            let after = kept_after(&event.kind, &self.turn.answer.clients, before) + texts;
            if after > before + SMALL_BYTES {
                self.keep(after).await?;
            }
            self.turn.take(event);
        }
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::CallStatus;
    use serde_json::json;
    use toolhold_protocol::event::Seal;

    fn event(kind: Value) -> Event {
        Event {
            run: Uuid::nil(),
            seq: 0,
            at_ms: 0,
            kind: serde_json::from_value(kind).unwrap(),
            removed: None,
            seal: Seal::default(),
        }
    }

    #[test]
    fn a_stream_counts_calls_that_its_client_makes_and_no_others() {
        let long = json!({"event": "tool_start", "step": 1, "id": "a", "tool": "m.write",
            "arguments": {"of": "x".repeat(100_000)}});
        let done = json!({"event": "done", "reason": "output", "output": "y".repeat(30_000), "steps": 1, "calls": 1,
            "tokens": 1, "duration_ms": 1});
        let (long, done) = (event(long).kind, event(done).kind);
        let (own, clients) = (BTreeSet::new(), BTreeSet::from(["m.write".to_owned()]));
        assert_eq!(kept_after(&long, &own, 7), 7);
        assert!(kept_after(&long, &clients, 7) > 100_007);
        assert_eq!(kept_after(&done, &own, 7), 30_002);
        assert_eq!(kept_after(&done, &clients, 100_000), 100_000);
    }

    fn started(id: &str) -> Value {
        json!({"event": "tool_start", "step": 1, "id": id, "tool": "m.write", "arguments": {"of": id}})
    }

    fn failed(id: &str, kind: &str, by_host: bool) -> Value {
        json!({"event": "tool_result", "step": 1, "id": id, "tool": "m.write", "usage": {}, "by_host": by_host,
            "error": {"kind": kind, "class": "correctable", "message": kind}})
    }

    fn done(reason: &str) -> Value {
        json!({"event": "done", "reason": reason, "output": null, "steps": 1, "calls": 1, "tokens": 1, "duration_ms": 1})
    }

    /// What may have taken effect is not told as a call that was not made.
    #[test]
    fn a_call_is_refused_only_if_it_was_not_made() {
        let mut turn = Turn::new(Uuid::nil());
        for kind in [
            started("interrupted"),
            started("shielded"),
            started("written"),
            started("open"),
            failed("interrupted", "interrupted", true),
            failed("shielded", "shield", false),
            failed("kept", "shield", true),
            failed("refused", "arguments", true),
            failed("written", "write", true),
            done("tool_calls"),
        ] {
            turn.take(&event(kind));
        }
        let calls = &turn.answer.steps[0].calls;
        let status: Vec<_> = calls
            .iter()
            .map(|call| (call.id.as_str(), call.status))
            .collect();
        assert_eq!(
            status,
            [
                ("interrupted", CallStatus::Unknown),
                ("shielded", CallStatus::Shielded),
                ("written", CallStatus::Failed),
                ("open", CallStatus::Cancelled),
                ("kept", CallStatus::Shielded),
                ("refused", CallStatus::Refused),
            ]
        );
    }

    #[test]
    fn a_call_of_a_run_that_ended_runs_no_more() {
        for reason in ["timeout", "cancelled", "max_cost"] {
            let mut answer = Answer::of(Uuid::nil());
            answer.take(&event(started("c")));
            assert_eq!(answer.steps[0].calls[0].status, CallStatus::Running);
            answer.take(&event(done(reason)));
            assert_eq!(
                answer.steps[0].calls[0].status,
                CallStatus::Cancelled,
                "{reason}"
            );
        }
    }

    #[test]
    fn an_earlier_result_is_told_as_one() {
        let mut answer = Answer::of(Uuid::nil());
        answer.take(&event(started("c2")));
        answer.take(&event(json!({
            "event": "tool_result", "step": 1, "id": "c2", "tool": "m.write", "usage": {}, "output": 7,
            "cached": {"run": Uuid::nil(), "call": "c1", "age_ms": 12},
        })));
        let told = serde_json::to_value(&answer).unwrap();
        let call = &told["steps"][0]["calls"][0];
        assert_eq!(
            (&call["status"], &call["result"]),
            (&json!("done"), &json!(7))
        );
        assert_eq!(
            call["cached"],
            json!({"run": Uuid::nil(), "call": "c1", "age_ms": 12})
        );
    }
}
