//! Whose move it is after a failure, and why a call has no result.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whose move it is after a failure (PROTOCOL.md, 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Timeout, overload, transport: the same may work later.
    Retryable,
    /// The model should change what it asked for.
    Correctable,
    /// Configuration or authorisation: neither time nor the model helps.
    Fatal,
}

impl ErrorClass {
    /// As the record has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Retryable => "retryable",
            Self::Correctable => "correctable",
            Self::Fatal => "fatal",
        }
    }
}

/// Why a call has no result, as the model is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFailure {
    /// Short and stable: `fuel`, `deadline`, `arguments`, `unknown_tool`, …
    pub kind: String,
    pub class: ErrorClass,
    /// What went wrong and what to do about it.
    pub message: String,
}

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
