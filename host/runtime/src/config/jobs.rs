//! `[jobs]`: calls that continue as jobs.

use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::time::Duration;
use toolhold_protocol::job::JobPolicy;

/// Maximum time of one job in milliseconds, a week: what takes longer is no call that a run waits for.
const MAX_TIMEOUT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// Minimum wait before the first question in milliseconds: each question is an instance of the module.
const MIN_BACKOFF_MS: u64 = 10;

#[derive(Debug, Clone, Deserialize)]
pub struct JobsTable {
    timeout_ms: u64,
    backoff_ms: u64,
}

impl JobsTable {
    /// # Errors
    /// The first key with a wrong value.
    pub fn check(&self) -> Result<(), ConfigFault> {
        at_least_one([("timeout_ms", self.timeout_ms == 0)])?;
        if self.timeout_ms > MAX_TIMEOUT_MS {
            let reason = format!("must be at most {MAX_TIMEOUT_MS}, a week");
            return Err(ConfigFault::new("timeout_ms", reason));
        }
        if self.backoff_ms < MIN_BACKOFF_MS {
            let reason = format!("must be at least {MIN_BACKOFF_MS}");
            return Err(ConfigFault::new("backoff_ms", reason));
        }
        Ok(())
    }

    pub fn policy(&self) -> JobPolicy {
        JobPolicy {
            timeout: Duration::from_millis(self.timeout_ms),
            backoff: Duration::from_millis(self.backoff_ms),
            ..JobPolicy::default()
        }
    }
}
