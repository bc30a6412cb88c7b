//! The fallback: other models make a call, or give a reply, that the run's own model keeps getting wrong
//! (docs/protocol.md, 7).

use crate::compose::Forcing;
use crate::contract::Contract;
use crate::cost::Price;
use serde::{Deserialize, Serialize};
use strum::Display;

/// When other models are asked, and which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fallback {
    pub is_on: bool,
    /// Consecutive failures of one tool, in one instance, that the run's own model may correct
    /// itself.
    pub max_tool_failures: u32,
    /// Attempts of each candidate.
    pub attempts: u32,
    /// Whether a tool's own errors at run time are failures of the model that called it.
    pub tool_errors: bool,
    /// In the order in which they are asked.
    pub candidates: Vec<Candidate>,
}

impl Default for Fallback {
    fn default() -> Self {
        Self {
            is_on: true,
            max_tool_failures: 3,
            attempts: 3,
            tool_errors: false,
            candidates: Vec::new(),
        }
    }
}

/// A model that may be asked to make a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Candidate {
    /// As the driver knows it, and as it is shown.
    pub name: String,
    /// What its endpoint calls it.
    pub model: String,
    /// How its endpoint is asked.
    pub contract: Contract,
    /// And for the call that it is to make.
    #[serde(skip_serializing_if = "Forcing::is_default")]
    pub forcing: Forcing,
    /// True if it has no grammar: functions have the schemas that the authors of tools wrote.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub authored_schemas: bool,
    /// The price of its endpoint, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Why it cannot be asked: credentials that are not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// What happens in a fallback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// The run's own model failed too often.
    #[strum(to_string = "failed {failures} times in a row, first with: {first_error}")]
    Begun { failures: u32, first_error: String },
    #[strum(to_string = "{candidate} is not asked: {reason}")]
    Skipped { candidate: String, reason: String },
    #[strum(to_string = "{candidate} is asked instead (attempt {attempt})")]
    Asked { candidate: String, attempt: u32 },
    #[strum(to_string = "attempt {attempt} of {candidate} failed: {reason}")]
    Failed {
        candidate: String,
        attempt: u32,
        reason: String,
    },
    /// The call or the reply was made, and the run's own model goes on.
    #[strum(to_string = "{candidate} managed it")]
    Succeeded { candidate: String },
    /// All candidates failed. The model gets the first error.
    #[strum(to_string = "no other model managed it; the first error was: {first_error}")]
    Exhausted { first_error: String },
}
