//! One turn of an agent on behalf of a client that knows OpenAI's APIs and may have tools of its own.
//!
//! The agent's own tools are called here. Tools that the client brings are the client's to call: the turn
//! ends with them, as it does at OpenAI's, and the next request brings their results.

use crate::serve::answer::Answer;
use crate::serve::http::error::ApiError;
use crate::serve::http::messages::{ClientCall, ClientFunction};
use crate::serve::{Dispatcher, Watcher};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_agent::{Event, EventKind, StopReason};
use utoipa::ToSchema;
use uuid::Uuid;

/// What became of a turn: of a run up to its end, or up to a step with calls of the client's tools.
#[derive(Debug)]
pub struct Turn {
    pub answer: Answer,
    /// Of the client's tools.
    pub calls: Vec<ClientCall>,
    /// Of the prompt tokens, those that the endpoint had read before.
    pub cached_tokens: u64,
    /// The client's tools.
    names: BTreeSet<String>,
    /// Calls that have to be over before the turn is, once the step's reply is complete.
    open: Option<BTreeSet<String>>,
    settled: BTreeSet<String>,
    is_over: bool,
}

/// How a turn is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is not: it goes on, or its process is gone.
    Open,
    Answered,
    /// The client is to call its tools.
    Called,
    /// A limit of the run was reached before there was an answer.
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
    pub fn new(run: Uuid, names: BTreeSet<String>) -> Self {
        Self {
            answer: Answer::of(run),
            calls: Vec::new(),
            cached_tokens: 0,
            names,
            open: None,
            settled: BTreeSet::new(),
            is_over: false,
        }
    }

    /// Takes the run's next event. What comes after the turn is over belongs to nobody.
    pub fn take(&mut self, event: &Event) {
        if self.is_over {
            return;
        }
        self.answer.take(event);
        match &event.kind {
            EventKind::Request { .. } => {
                self.open = None;
                self.settled.clear();
            }
            EventKind::Reply { completion, .. } => {
                let usage = completion.usage.as_ref();
                let cached = usage.and_then(|usage| usage.cached_prompt_tokens);
                self.cached_tokens += cached.unwrap_or(0);
            }
            EventKind::Plan { calls, .. } => {
                self.open = Some(calls.iter().map(|call| call.id.clone()).collect());
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
                self.settled.insert(call.id.clone());
            }
            EventKind::ToolResult { id, .. } => {
                self.settled.insert(id.clone());
            }
            EventKind::Done { .. } => self.is_over = true,
            _ => {}
        }
        let waits = self
            .open
            .as_ref()
            .is_none_or(|open| !open.is_subset(&self.settled));
        self.is_over |= !self.calls.is_empty() && !waits;
    }

    pub fn end(&self) -> End {
        if !self.is_over {
            return End::Open;
        }
        if !self.calls.is_empty() {
            return End::Called;
        }
        match self.answer.reason {
            None => End::Open,
            Some(StopReason::Output | StopReason::Planned | StopReason::Incomplete) => {
                End::Answered
            }
            Some(
                StopReason::MaxSteps
                | StopReason::TokenBudget
                | StopReason::MaxCost
                | StopReason::MaxToolCalls
                | StopReason::Timeout,
            ) => End::Limited,
            Some(StopReason::Blocked) => End::Blocked,
            Some(StopReason::Cancelled) => End::Cancelled,
            Some(StopReason::Model | StopReason::Unusable) => End::Failed,
        }
    }

    /// The answer; beside calls of the client's tools, what our own said: the client sends it back.
    pub fn content(&self) -> String {
        if self.calls.is_empty() {
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
        match self.end() {
            End::Failed => Some(ApiError::upstream(self.failure())),
            End::Cancelled => Some(ApiError::conflict(format!("run {run} was cancelled"))),
            End::Open => Some(ApiError::unavailable(format!(
                "the server stops; run {run} goes on when it is back: GET /v1/runs/{run}"
            ))),
            End::Answered | End::Called | End::Limited | End::Blocked => None,
        }
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
    dispatcher: Dispatcher,
    /// No process goes on with the run.
    is_left: bool,
}

impl Drop for Live {
    /// Nobody is left to make the client's calls.
    fn drop(&mut self) {
        let is_over = self.turn.is_over || self.is_left;
        if !self.turn.names.is_empty() && !is_over {
            self.dispatcher.cancel(self.watcher.run);
        }
    }
}

impl Live {
    /// `names` are those of the client's tools.
    pub fn new(watcher: Watcher, dispatcher: Dispatcher, names: BTreeSet<String>) -> Self {
        Self {
            turn: Turn::new(watcher.run, names),
            watcher,
            dispatcher,
            is_left: false,
        }
    }

    /// The next event of the run; none when the turn is over.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, ApiError> {
        if self.turn.is_over || self.is_left {
            return Ok(None);
        }
        let Some(event) = self.watcher.next().await? else {
            self.is_left = true;
            return Ok(None);
        };
        self.turn.take(&event);
        if self.turn.end() == End::Called {
            // The client goes on with it, in a run of its own.
            self.dispatcher.cancel(self.watcher.run);
        }
        Ok(Some(event))
    }
}
