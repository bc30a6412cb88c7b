//! Further attempts of calls that failed for now (docs/protocol.md, 7.8).

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// How often a call is made again that failed for now, and after which waits. It holds for tools that only read or
/// may be repeated, and for calls that never began; any other call is made once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolRetryPolicy {
    /// Attempts of one call in all, the first included. 1: no retry.
    pub attempts: u32,
    /// The wait after the first attempt, which doubles with each. Half of it is random, so that calls that failed
    /// together are not made again together.
    pub backoff: Duration,
    /// The longest wait between two attempts.
    pub max_backoff: Duration,
    /// All waits of one call together.
    pub total_wait: Duration,
}

impl Default for ToolRetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 3,
            backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(5),
            total_wait: Duration::from_secs(10),
        }
    }
}

/// An attempt of a call failed for now, and the call is made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRetry {
    /// Of the call.
    pub id: String,
    pub tool: String,
    /// Which attempt failed: 1, 2, 3…
    pub attempt: u32,
    /// The wait before the next one.
    pub wait_ms: u64,
    /// The kind of the failure. Its message is not here: shields have not seen it.
    pub error: String,
}

/// For people, in one line.
impl Display for ToolRetry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            tool,
            attempt,
            wait_ms,
            error,
            ..
        } = self;
        write!(
            f,
            "{tool}: attempt {attempt} failed for now ({error}), again in {wait_ms} ms"
        )
    }
}
