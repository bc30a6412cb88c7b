//! Who decides about calls that wait for a person.

use futures_util::future::BoxFuture;
use std::fmt::Debug;
use toolhold_protocol::approval::{Decision, Pending, Verdict};
use uuid::Uuid;

/// A person, or whoever stands in for one.
pub trait Approver: Send + Sync + Debug {
    /// Waits for a decision about a call. Dropped when the run ends without one.
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision>;
}

/// Refuses: a host without an approver has nobody to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Approver for Nobody {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        let decision = Decision {
            digest: pending.digest.clone(),
            verdict: Verdict::Refuse {
                reason: "nobody is there to approve it".into(),
            },
            by: None,
        };
        Box::pin(std::future::ready(decision))
    }
}
