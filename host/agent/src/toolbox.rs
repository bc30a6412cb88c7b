//! The seam between the loop and whatever runs tools.

use crate::error::ErrorClass;
use crate::protocol::Tool;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Debug;
use std::time::Duration;

/// Runs tool calls. The loop has already checked that the tool exists and the arguments fit.
pub trait Toolbox: Send + Sync + Debug {
    /// What there is to call. Asked once, when a run starts: a run sees one set of tools.
    fn tools(&self) -> Vec<Tool>;

    /// Runs one call. Must return within `call.timeout`; must stop working when dropped. Called
    /// concurrently.
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult>;
}

/// A call that passed every check.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub id: String,
    pub tool: String,
    pub arguments: Value,
    pub timeout: Duration,
}

/// What came of a call.
#[derive(Debug, Clone)]
pub struct ToolResult {
    pub outcome: Result<Value, ToolFailure>,
    pub usage: ToolUsage,
    /// What the tool printed and logged, for people. The model sees only the outcome.
    pub printed: Vec<String>,
}

/// Why a call has no result, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolFailure {
    /// Short and stable: `fuel`, `deadline`, `arguments`, `unknown_tool`, …
    pub kind: String,
    pub class: ErrorClass,
    /// What went wrong and what to do about it.
    pub message: String,
}

/// What a call cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolUsage {
    pub duration_us: u64,
    pub fuel: u64,
    pub memory_bytes: u64,
}
