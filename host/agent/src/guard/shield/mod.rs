//! Shields (docs/protocol.md, 7.10): what screens the user's input, each tool's input and output, and the
//! final output. A shield answers pass, redact or block, with a reason.
//!
//! A shield takes away and adds nothing: what it calls redacted is held against what it was shown, so that
//! one that is mistaken, or hostile, cannot put words into a call or an answer. A failure or a timeout is no
//! verdict; the operator decides what happens then, and it is recorded.

mod domains;
mod guard_model;
mod personal;
mod policy;
mod redaction;

#[cfg(test)]
mod tests;

pub use domains::Domains;
pub use guard_model::{Category, GuardModel};
pub use personal::PersonalData;
pub use policy::{OnFailure, ShieldBinding, Shields};

use futures_util::future::BoxFuture;
use serde_json::Value;
use std::fmt::Debug;
use toolhold_model::CompletionObserver;
use toolhold_protocol::shield::ShieldPlace;

/// The input of a shield.
#[derive(Debug, Clone, PartialEq)]
pub struct Screening {
    /// The call's id; empty where there is no call.
    pub call: String,
    /// How many calls wait for the verdict, while they hold what a shield may need: those that the call is nested in.
    pub depth: u8,
    pub place: ShieldPlace,
    /// The tool, by the name of what runs it.
    pub tool: Option<String>,
    /// By its place: the contents of the context's messages in their order, a call's arguments, what it
    /// returned (or the message of its failure), or the final output.
    pub value: Value,
    /// The parts of the context that a call sees, by path. It can be reason to block a call, and is
    /// not redacted.
    pub context: Vec<(String, Value)>,
}

impl Screening {
    /// The call whose arguments or result it is about, if it is about a call.
    pub fn call_id(&self) -> Option<String> {
        (!self.call.is_empty()).then(|| self.call.clone())
    }
}

/// The verdict of a shield.
#[derive(Debug, Clone, PartialEq)]
pub enum ShieldVerdict {
    Pass,
    /// The value with pieces of its texts replaced by `[redacted]` or `[redacted: WHAT]`.
    Redact {
        value: Value,
        reason: String,
    },
    Block {
        reason: String,
    },
}

/// A shield. The caller sets its timeout and drops the future after that.
pub trait Shield: Send + Sync + Debug {
    /// `watch` receives the requests to models that it makes.
    ///
    /// # Errors
    /// Why it has no verdict.
    fn screen<'a>(
        &'a self,
        screening: &'a Screening,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<ShieldVerdict, String>>;
}
