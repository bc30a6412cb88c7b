//! Why a call has no result.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use toolhold_policy::ErrorClass;

/// Why a call has no result, as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFailure {
    /// Short and stable: `fuel`, `deadline`, `arguments`, `unknown_tool`, …
    pub kind: String,
    pub class: ErrorClass,
    /// What went wrong and what to do about it.
    pub message: String,
}

/// The kind of the failure of a call that was stopped with what had made it: its run was cancelled or out of time, or the
/// call that made it was over. It had begun, and it is not known whether it took effect.
pub const UNFINISHED: &str = "unfinished";

/// The kind of the failure of a call that was not made: its run ended before the begin of the call was recorded. The record
/// alone has it, of calls that the host ended (`by_host`).
pub const NOT_MADE: &str = "not_made";

impl ToolFailure {
    pub fn correctable(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            class: ErrorClass::Correctable,
            message: message.into(),
        }
    }

    pub fn deadline(limit: Duration) -> Self {
        Self {
            kind: "deadline".into(),
            class: ErrorClass::Retryable,
            message: format!(
                "the call did not finish within its deadline of {} ms; ask for less work in one call",
                limit.as_millis()
            ),
        }
    }
}
