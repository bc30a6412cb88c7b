//! `[pools.NAME]`: endpoints that can replace each other.

use crate::config::endpoint::hedge_after;
use crate::config::surroundings::{ConfigFault, at_least_one};
use serde::Deserialize;
use std::time::Duration;
use toolhold_model::route::{PoolPolicy, Relief, RetryPolicy};

/// Endpoints that can replace each other.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PoolTable {
    pub(super) members: Vec<String>,
    attempts: Option<u32>,
    backoff_ms: Option<u64>,
    retry_wait_ms: Option<u64>,
    refused_wait_ms: Option<u64>,
    hedge_after_ms: u64,
    left_out_ms: Option<u64>,
    overload: Vec<Relief>,
    fewer_tokens: Option<u32>,
    /// An endpoint or a pool.
    pub smaller: Option<String>,
}

/// The keys of `[pools.NAME]`.
pub const POOL_KEYS: [&str; 10] = [
    "members",
    "attempts",
    "backoff_ms",
    "retry_wait_ms",
    "refused_wait_ms",
    "hedge_after_ms",
    "left_out_ms",
    "overload",
    "fewer_tokens",
    "smaller",
];

impl PoolTable {
    /// The pool without its smaller model, which is built later.
    pub fn policy(&self) -> PoolPolicy {
        let default = PoolPolicy::default();
        let retry = default.retry;
        let time = |ms: Option<u64>, default| ms.map_or(default, Duration::from_millis);
        PoolPolicy {
            retry: RetryPolicy {
                attempts: self.attempts.unwrap_or(retry.attempts),
                backoff: time(self.backoff_ms, retry.backoff),
                total_wait: time(self.retry_wait_ms, retry.total_wait),
                unreached_wait: time(self.refused_wait_ms, retry.unreached_wait),
                ..retry
            },
            left_out: time(self.left_out_ms, default.left_out),
            overload: self.overload.clone(),
            fewer_tokens: self.fewer_tokens.unwrap_or(default.fewer_tokens),
            hedge_after: hedge_after(self.hedge_after_ms),
            smaller: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        at_least_one([
            ("attempts", self.attempts == Some(0)),
            ("fewer_tokens", self.fewer_tokens == Some(0)),
        ])?;
        let asks_smaller = self.overload.contains(&Relief::SmallerModel);
        if asks_smaller && self.smaller.is_none() {
            let reason =
                "\"smaller-model\" needs `smaller`, the endpoint or pool that is asked then";
            return Err(ConfigFault::new("overload", reason));
        }
        if !asks_smaller && self.smaller.is_some() {
            let reason = "is asked only if `overload` has \"smaller-model\"";
            return Err(ConfigFault::new("smaller", reason));
        }
        Ok(())
    }
}
