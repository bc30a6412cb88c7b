//! Requests made in addition to the run's own: to a shield's model for a verdict, to the router's model for a
//! class, and hedged requests that lost the race. They cost money, so they are recorded.

use crate::completion::Usage;
use crate::cost::Amount;
use serde::{Deserialize, Serialize};

/// The usage of one side request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideRequest {
    pub role: SideRole,
    /// Name of the endpoint or pool in the configuration.
    pub endpoint: String,
    pub model: String,
    /// Absent if the endpoint did not count, or was not heard to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    pub duration_ms: u64,
    /// Absent without a price, or without the counts that the price needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano: Option<Amount>,
}

/// The purpose of a side request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideRole {
    /// A shield's verdict.
    Shield,
    /// The class of the run's task.
    Router,
    /// The summary of a conversation.
    Summary,
    /// The same answer, which came first from elsewhere: this one was cancelled.
    Hedge,
}

impl SideRole {
    /// Whether the answer was read to its end; otherwise its usage is unknown.
    pub fn is_complete(self) -> bool {
        self != Self::Hedge
    }
}
