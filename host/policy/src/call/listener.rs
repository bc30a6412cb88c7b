//! Following what a guest says while its call still runs.

use crate::log::LogLine;
use std::fmt::Debug;

/// Receives what a guest logs and reports as its progress, as it happens, with secrets taken out. The guest
/// waits for each method, and the amount it sends is its own choice: methods must return at once, and keep no
/// more than they have room for.
pub trait Listener: Send + Sync + Debug {
    /// A line that the call's report contains, too.
    fn logged(&self, line: LogLine);

    /// The guest reported its progress.
    fn progressed(&self, progress: Progress);
}

/// How far a call has come, in a unit of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    /// Absent: unknown.
    pub total: Option<u64>,
    /// Guest text: escape it before showing it.
    pub note: String,
}
