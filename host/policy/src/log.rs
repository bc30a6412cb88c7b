//! Output and log lines of a guest, as a call's report holds them.

use serde::{Deserialize, Serialize};

/// The kept part of what a guest wrote to stdout or stderr.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Captured {
    /// The kept part, invalid UTF-8 replaced. Guest text: escape it before showing it.
    pub text: String,
    /// Bytes that came after the limit and were dropped.
    pub dropped_bytes: u64,
}

impl Captured {
    /// Whether the guest wrote nothing.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.dropped_bytes == 0
    }
}

/// The severity of a log line, least first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Trace,
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

/// A line that a guest sent through `toolhold:module/log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogLine {
    pub level: LogLevel,
    pub message: String,
}
