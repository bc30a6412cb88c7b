//! What is decided between a request and the endpoint that answers it. It is told to whoever watches, so
//! that a run's record says why an answer came late, or from somewhere else.

use serde::{Deserialize, Serialize};
use std::fmt;

/// One decision on the way to an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub enum Routing {
    /// An attempt failed, and the same is tried again.
    Retry {
        endpoint: String,
        /// Of the attempt that failed: 1, 2, 3…
        attempt: u32,
        wait_ms: u64,
        reason: String,
    },
}

impl fmt::Display for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry {
                endpoint,
                attempt,
                wait_ms,
                reason,
            } => write!(
                f,
                "attempt {attempt} at {endpoint} failed and is made again in {wait_ms} ms: {reason}"
            ),
        }
    }
}
