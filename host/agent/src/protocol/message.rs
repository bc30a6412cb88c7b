//! The context: an ordered list of messages that every Request is built from anew.

use crate::protocol::Call;
use serde::{Deserialize, Serialize};

/// One element of the context.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Shown to the model as it is.
    Text { role: Role, text: String },
    /// Calls of one step with what came of them.
    Exchange(Exchange),
    /// A reply that could not be used, and why: the model sees both and tries again.
    Rejected { reply: String, reason: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
}

/// The calls of one solution and their results, in the order the model asked for them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Exchange {
    pub calls: Vec<Answered>,
}

/// A call and the text that the model is given for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answered {
    pub call: Call,
    /// Marks where the tool's text begins and ends. Neither the tool nor the model knows it
    /// beforehand, so no result can pretend to be another's or the host's.
    pub fence: String,
    /// The result as JSON text, or the reason why there is none, already cut to the limit.
    pub text: String,
    pub failed: bool,
}
