//! The decider of calls that need a person's decision.

use futures_util::future::BoxFuture;
use std::fmt::Debug;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use uuid::Uuid;

/// Decides about calls that need a decision: a person or a policy.
pub trait Decider: Send + Sync + Debug {
    /// Waits for a decision about a call. Dropped when the run ends without one.
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision>;
}

/// Refuses every call, for a host without a decider.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDecider;

impl Decider for NoDecider {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        let decision = Decision {
            digest: pending.digest.clone(),
            verdict: Verdict::Refuse {
                reason: "nobody can be asked on this host".into(),
            },
            by: None,
        };
        Box::pin(std::future::ready(decision))
    }
}
