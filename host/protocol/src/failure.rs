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

/// The kind of the failure of a call whose process ended while it ran, in a run that went on in another process. It is not
/// known whether it took effect.
pub const INTERRUPTED: &str = "interrupted";

impl ToolFailure {
    /// True if the call had begun and its end is not known: its run, its caller or its process was over before it.
    pub fn is_of_unknown_end(&self) -> bool {
        [UNFINISHED, INTERRUPTED].contains(&self.kind.as_str())
    }

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
