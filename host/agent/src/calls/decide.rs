//! What a person's decision means for the call that it is about (docs/protocol.md).
//!
//! A decision is bound to the digest of exactly what was shown, which is what would run: shields screen the
//! call before a person is asked.

use crate::calls::ToolCheck;
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::failure::ToolFailure;

/// What a decision does to a call.
#[derive(Debug)]
pub enum DecisionEffect {
    /// It is made with the arguments that were shown.
    Make(Value),
    /// It is made with these, once the shields let them pass.
    Edited(Value),
    /// It is not made; this is its result.
    Replaced(Value),
    /// It is not made.
    Refused(ToolFailure),
    /// The decision cannot be carried out, for this reason; the call waits for another one.
    Void(String),
}

/// Reads a decision about a call. `fits` validates edited arguments; `check` validates a result that replaces
/// the call.
pub fn apply_decision(
    pending: Pending,
    decision: Decision,
    fits: impl FnOnce(&Value) -> Result<(), ToolFailure>,
    check: Option<&ToolCheck>,
) -> DecisionEffect {
    let id = &pending.call.id;
    if decision.digest != pending.digest {
        return DecisionEffect::Void(format!(
            "the decision about {id} was made for other arguments and does not count"
        ));
    }
    let void = |failure: ToolFailure| {
        let reason = failure.message;
        DecisionEffect::Void(format!(
            "what was decided about {id} cannot be done: {reason}"
        ))
    };
    match decision.verdict {
        Verdict::Approve => DecisionEffect::Make(pending.arguments),
        Verdict::Edit { arguments } => match fits(&arguments) {
            Ok(()) => DecisionEffect::Edited(arguments),
            Err(failure) => void(failure),
        },
        Verdict::Replace { result } => match check.map_or(Ok(()), |check| check.result(&result)) {
            Ok(()) => DecisionEffect::Replaced(result),
            Err(failure) => void(failure),
        },
        Verdict::Refuse { reason } => DecisionEffect::Refused(ToolFailure::correctable(
            "refused",
            format!(
                "a person refused this call: {reason}. Do not make it again; find another way, or end and say so"
            ),
        )),
    }
}

/// Why there is no decision about a call.
#[derive(Debug)]
pub enum NoDecision {
    /// The question went back to the caller, who makes the call again with the answer.
    HandedBack,
    /// The call is not made.
    Refused(ToolFailure),
}

/// Asks a person about calls that are made outside of a run's machine.
pub trait CallDecider: Send + Sync + Debug {
    /// Waits for a decision. Dropped when the call is cancelled.
    fn decide<'a>(&'a self, pending: &'a Pending) -> BoxFuture<'a, Result<Decision, NoDecision>>;

    /// Where a sub-agent makes the call that this one is nested in: [`Pending::agents`].
    fn agents(&self) -> &[String] {
        &[]
    }

    /// Asks about the calls that the call `id` makes.
    fn within(&self, id: &str) -> Arc<dyn CallDecider>;
}
