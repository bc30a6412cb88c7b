//! What happens in a run, as one ordered stream with many readers: terminal, page, journal, replay.
//! There is no second logging path.

use crate::error::ErrorClass;
use crate::protocol::Call;
use crate::toolbox::{ToolFailure, ToolUsage};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Debug;
use std::io;
use uuid::Uuid;

/// One thing that happened.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    pub run: Uuid,
    /// 0, 1, 2… without gaps.
    pub seq: u64,
    /// Milliseconds since 1970 (UTC).
    pub at_ms: u64,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// On the wire: `{"event": "tool_start", …}`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The run begins: what it was asked and what it may use.
    Run {
        task: String,
        model: String,
        contract: &'static str,
        tools: Vec<String>,
        host: &'static str,
    },
    /// A Request goes to the model: the chat completion body, so that it can be sent again.
    Request { step: u32, body: Value },
    /// The model wrote something: content, or its thinking.
    Delta {
        step: u32,
        text: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        reasoning: bool,
    },
    /// The reply is complete: what the model wants done.
    Plan { step: u32, calls: Vec<Call> },
    ToolStart {
        step: u32,
        #[serde(flatten)]
        call: Call,
    },
    ToolResult {
        step: u32,
        id: String,
        tool: String,
        #[serde(flatten)]
        outcome: ToolOutcome,
        usage: ToolUsage,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        printed: Vec<String>,
    },
    /// What the step's reply cost, as the endpoint counted; absent if it did not count.
    Tokens {
        step: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        completion: Option<u64>,
        /// Of the whole run so far.
        total: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_token_ms: Option<u64>,
        duration_ms: u64,
    },
    /// Something a person should know: a reply that could not be used, a call that was intercepted.
    Notice { step: u32, message: String },
    /// The run is over.
    Done {
        reason: StopReason,
        output: Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<RunFailure>,
        steps: u32,
        calls: u32,
        tokens: u64,
        duration_ms: u64,
    },
}

/// The result of a call, or why there is none.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    Output(Value),
    Error(ToolFailure),
}

/// Why a run is over (PROTOCOL.md, 7.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model gave its final output.
    Output,
    MaxSteps,
    TokenBudget,
    Timeout,
    Cancelled,
    /// The endpoint failed.
    Model,
    /// The model kept giving replies that could not be used.
    Unusable,
}

/// What ended a run that has no output.
#[derive(Debug, Clone, Serialize)]
pub struct RunFailure {
    pub class: ErrorClass,
    pub message: String,
}

/// Where events are kept before anyone sees them.
pub trait Journal: Send + Debug {
    /// Appends one event. When this returns, the event survives the process.
    fn append<'a>(&'a mut self, event: &'a Event) -> BoxFuture<'a, io::Result<()>>;
}

/// Keeps nothing: for embedding and tests.
#[derive(Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn append<'a>(&'a mut self, _: &'a Event) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
