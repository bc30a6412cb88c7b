//! `[tool_retry]`: further attempts of calls that failed for now.

use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::time::Duration;
use toolhold_protocol::tool_retry::ToolRetryPolicy;

/// Maximum attempts of one call: what each prints is kept in the one result.
const MAX_ATTEMPTS: u32 = 10;

#[derive(Debug, Clone, Deserialize)]
pub struct ToolRetryTable {
    attempts: u32,
    backoff_ms: u64,
}

impl ToolRetryTable {
    /// # Errors
    /// The first key with a wrong value.
    pub fn check(&self) -> Result<(), ConfigFault> {
        at_least_one([("attempts", self.attempts == 0)])?;
        if self.attempts > MAX_ATTEMPTS {
            let reason = format!("must be at most {MAX_ATTEMPTS}; 1 is no retry");
            return Err(ConfigFault::new("attempts", reason));
        }
        Ok(())
    }

    pub fn policy(&self) -> ToolRetryPolicy {
        ToolRetryPolicy {
            attempts: self.attempts,
            backoff: Duration::from_millis(self.backoff_ms),
            ..ToolRetryPolicy::default()
        }
    }
}
