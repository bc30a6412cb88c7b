//! The result of a call: a value or a failure, and its usage.

use crate::cost::Amount;
use crate::failure::ToolFailure;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_policy::JobState;
use uuid::Uuid;

/// How a line of [`ToolResult::printed`] begins that names what the call was refused, and one that names what its
/// module asks for and was not granted. They are the host's: what a tool writes stands after its source.
pub const DENIED: &str = "denied: ";
pub const NOT_GRANTED: &str = "not granted: ";

/// Whether a line of [`ToolResult::printed`] names what the call was not given. It is bounded.
pub fn is_denial(line: &str) -> bool {
    line.starts_with(DENIED) || line.starts_with(NOT_GRANTED)
}

/// The result of a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToolResult {
    pub outcome: Result<ToolOutput, ToolFailure>,
    pub usage: ToolUsage,
    /// What the call was not given, and output and log lines of the tool, for people. The model sees only the outcome.
    pub printed: Vec<String>,
    /// SHA-256 of the module that ran, in hex, if one did: for the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The earlier call whose result this is, where the tool was not called again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Cached>,
}

/// The call whose result another call is given (docs/protocol.md, 7.8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cached {
    /// Its run.
    pub run: Uuid,
    /// Its id.
    pub call: String,
    /// Milliseconds since it ended.
    pub age_ms: u64,
}

impl ToolResult {
    pub fn failed(failure: ToolFailure) -> Self {
        Self {
            outcome: Err(failure),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
        }
    }
}

/// The value that a tool returned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    pub value: Value,
    /// Which of the call's output paths it picked, by returning a message instead of a value.
    pub output_path: Option<String>,
    /// Whether this is only the name of its message: a result whose name is no place that is allowed is still a result.
    pub is_named: bool,
    /// Present if the tool continues as a job: then `value` is empty, and the call has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobState>,
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        Self {
            value,
            output_path: None,
            is_named: false,
            job: None,
        }
    }
}

/// The usage of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolUsage {
    pub duration_us: u64,
    /// Instructions, roughly. Absent if none ran or if they are not counted.
    #[serde(skip_serializing_if = "is_nothing")]
    pub fuel: u64,
    pub memory_bytes: u64,
    /// Tokens of a sub-agent's model.
    #[serde(skip_serializing_if = "is_nothing")]
    pub tokens: u64,
    /// Cost of these tokens, as far as it is known.
    #[serde(skip_serializing_if = "is_nothing")]
    pub cost_nano: Amount,
    /// Replies of a sub-agent's model whose cost is unknown.
    #[serde(skip_serializing_if = "is_nothing")]
    pub unpriced: u32,
    /// Calls that a sub-agent made, and further attempts of this one.
    #[serde(skip_serializing_if = "is_nothing")]
    pub calls: u32,
    /// Further attempts of this call after one that failed for now. The other amounts are those of all attempts.
    #[serde(skip_serializing_if = "is_nothing")]
    pub retries: u32,
    /// The call found no place, and its tool never began. For who decides about a further attempt; no record has it.
    #[serde(skip)]
    pub never_began: bool,
}

fn is_nothing<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
}
