//! One turn of an agent on behalf of a client that knows OpenAI's APIs and may have tools of its own.
//!
//! The agent's own tools are called here. Tools that the client brings are the client's to call: the run
//! ends with them, as it does at OpenAI's, and the next request brings their results.

use crate::answer::Answer;
use crate::http::error::ApiError;
use crate::http::messages::{ClientCall, ClientFunction};
use crate::runs::Watcher;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use utoipa::ToSchema;
use uuid::Uuid;

/// What became of a turn, which is a run.
#[derive(Debug)]
pub struct Turn {
    pub answer: Answer,
    /// Of the client's tools.
    pub calls: Vec<ClientCall>,
    /// Of the prompt tokens, those that the endpoint had read before.
    pub cached_tokens: u64,
    /// The client's tools.
    names: BTreeSet<String>,
    contract: Contract,
    last: LastReply,
}

/// What the model wrote last.
#[derive(Debug, Default)]
struct LastReply {
    /// It was as long as a reply may be.
    is_cut: bool,
    is_text: bool,
}

/// How a turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is not: it goes on, or its process is gone.
    Open,
    Answered,
    /// The client is to call its tools.
    Called,
    /// The tokens of a reply or of the whole run were used up before there was an answer, or all of one.
    OutOfTokens,
    /// Another limit of the run was reached before there was an answer.
    Limited,
    /// A shield blocked the input or the output.
    Blocked,
    Cancelled,
    /// The endpoint failed, or what it wrote could not be used.
    Failed,
}

/// What OpenAI's APIs have no place for.
#[derive(Debug, Serialize, ToSchema)]
pub struct Extra {
    /// `/v1/runs/{run}` has the way to the answer.
    run: Uuid,
    /// Why the run ended.
    #[schema(value_type = Option<String>)]
    reason: Option<StopReason>,
}

impl Turn {
    pub fn new(run: Uuid) -> Self {
        Self {
            answer: Answer::of(run),
            calls: Vec::new(),
            cached_tokens: 0,
            names: BTreeSet::new(),
            contract: Contract::default(),
            last: LastReply::default(),
        }
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) {
        self.answer.take(event);
        match &event.kind {
            EventKind::Run { request, tools, .. } => {
                let clients = tools.iter().filter(|bound| bound.runner == Runner::Client);
                self.names = clients.map(|bound| bound.tool.name.clone()).collect();
                self.contract = request.settings.contract;
            }
            EventKind::Reply { completion, .. } => {
                let usage = completion.usage.as_ref();
                let cached = usage.and_then(|usage| usage.cached_prompt_tokens);
                self.cached_tokens += cached.unwrap_or(0);
                self.last = LastReply {
                    is_cut: completion.finish_reason.as_deref() == Some("length"),
                    is_text: completion.tool_calls.is_empty(),
                };
            }
            EventKind::ToolStart { call, filled, .. } if self.names.contains(&call.tool) => {
                let arguments = filled.as_ref().unwrap_or(&call.arguments);
                self.calls.push(ClientCall {
                    id: call.id.clone(),
                    function: ClientFunction {
                        name: call.tool.clone(),
                        arguments: arguments.to_string(),
                    },
                });
            }
            // They are not the client's to make any more.
            EventKind::Done { reason, .. } if *reason != StopReason::ToolCalls => {
                self.calls.clear();
            }
            _ => {}
        }
    }

    pub fn end(&self) -> End {
        let Some(reason) = self.answer.reason else {
            return End::Open;
        };
        match reason {
            // Whatever else ends too early is no JSON, and no answer.
            StopReason::Output
                if self.last.is_cut && self.last.is_text && self.contract == Contract::Tools =>
            {
                End::OutOfTokens
            }
            StopReason::Output | StopReason::Planned | StopReason::Incomplete => End::Answered,
            StopReason::ToolCalls => End::Called,
            StopReason::TokenBudget => End::OutOfTokens,
            StopReason::Unusable if self.last.is_cut => End::OutOfTokens,
            StopReason::MaxSteps
            | StopReason::MaxCost
            | StopReason::MaxToolCalls
            | StopReason::Timeout => End::Limited,
            StopReason::Blocked => End::Blocked,
            StopReason::Cancelled => End::Cancelled,
            StopReason::Model | StopReason::Unusable => End::Failed,
        }
    }

    /// The answer; beside calls of the client's tools, what our own said: the client sends it back.
    pub fn content(&self) -> String {
        if self.end() != End::Called {
            return self.answer.text();
        }
        let own = self.answer.steps.iter().flat_map(|step| &step.calls);
        let own = own.filter(|call| !self.names.contains(&call.tool));
        let lines = own.map(|call| match &call.error {
            None => format!("{} {} returned {}", call.tool, call.arguments, call.result),
            Some(error) => format!("{} {} failed: {error}", call.tool, call.arguments),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Why there is no answer.
    pub fn failure(&self) -> String {
        let why = self.answer.error.as_deref().unwrap_or("it gave no reason");
        format!("run {}: {why}", self.answer.id)
    }

    /// What the client is told in the place of an answer that nobody can give.
    pub fn fault(&self) -> Option<ApiError> {
        let run = self.answer.id;
        let fault = match self.end() {
            End::Failed => ApiError::upstream(self.failure()),
            End::Cancelled => ApiError::conflict(format!("run {run} was cancelled")),
            End::Open => ApiError::unavailable(format!(
                "the server stops; run {run} goes on when it is back: GET /v1/runs/{run}"
            )),
            End::Answered | End::Called | End::OutOfTokens | End::Limited | End::Blocked => {
                return None;
            }
        };
        Some(fault.of_a_run())
    }

    pub fn extra(&self) -> Extra {
        Extra {
            run: self.answer.id,
            reason: self.answer.reason,
        }
    }
}

/// A turn that a client waits for.
#[derive(Debug)]
pub struct Live {
    pub turn: Turn,
    watcher: Watcher,
}

impl Live {
    pub fn new(watcher: Watcher) -> Self {
        Self {
            turn: Turn::new(watcher.run),
            watcher,
        }
    }

    /// The next event of the run; none when it is over, or when no process goes on with it.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, ApiError> {
        let event = self.watcher.next().await?;
        if let Some(event) = &event {
            self.turn.take(event);
        }
        Ok(event)
    }
}
