//! How a run ends: for which reason, and with which failure.

use crate::completion::ContextOverflow;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};
use toolhold_policy::ErrorClass;

/// Why a run is over (docs/protocol.md, 7.5).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StopReason {
    /// The model gave its final output.
    Output,
    /// A lazy plan was made and checked, and nothing was to be run.
    Planned,
    /// A saved plan was run, and some of its calls failed.
    Incomplete,
    /// The remaining calls are for the client to make.
    ToolCalls,
    MaxSteps,
    TokenBudget,
    MaxCost,
    MaxToolCalls,
    Timeout,
    Cancelled,
    /// The endpoint failed.
    Model,
    /// The model kept giving replies that could not be used, or kept making a call that was refused.
    Unusable,
    /// A shield blocked the input or the output.
    Blocked,
}

impl StopReason {
    /// Every reason.
    pub fn all() -> &'static [Self] {
        Self::VARIANTS
    }

    /// The name in the record.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the host composed the output of a run that ended so: no model wrote it. `has_plan`: the run carried out a
    /// saved plan.
    pub fn is_of_host(self, has_plan: bool) -> bool {
        has_plan || !matches!(self, Self::Output | Self::Planned)
    }
}

/// The failure that ended a run without output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunFailure {
    pub class: ErrorClass,
    pub message: String,
    /// Set when the Request did not fit the model's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<ContextOverflow>,
    /// How long the model was waited for. What a reply cost that broke off can be known by nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The endpoint's own wish, or the time until it is asked again, after which the same may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// True if the run had to call a tool, and its model made no such call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_call: bool,
    /// HTTP status with which the endpoint answered, or to which an error inside of its answer amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The endpoint's own code of its error, where it is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The parameter that the endpoint's error is about, where it is a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
}

impl RunFailure {
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            overflow: None,
            took_ms: None,
            retry_after_ms: None,
            lacks_call: false,
            status: None,
            code: None,
            param: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_those_of_the_record() {
        for reason in StopReason::all() {
            assert_eq!(json!(reason), reason.name());
        }
        for class in [
            ErrorClass::Retryable,
            ErrorClass::Correctable,
            ErrorClass::Fatal,
        ] {
            assert_eq!(json!(class), class.name());
        }
    }
}
