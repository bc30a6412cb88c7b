//! Jobs: work that continues after the call that began it. The host asks about it in further instances of the same module.

use serde::{Deserialize, Serialize};

/// Maximum bytes of a job's id.
pub const MAX_JOB_ID: usize = 256;

/// A job as the host asks about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunJob {
    /// The module's own name for it: see [`is_job_id`].
    pub id: String,
    /// Digest of the component that began it, which alone is asked about it: another one that took its name must not answer for
    /// it, nor hear its id. Absent: no component began it.
    pub module: Option<String>,
}

/// A question about a job, in the place of a call of its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobQuestion {
    /// Asks for the state of this job.
    State(BegunJob),
    /// Tells this job to stop: nothing waits for its result any more.
    Cancel(BegunJob),
}

impl JobQuestion {
    /// The job that is asked about.
    pub fn job(&self) -> &BegunJob {
        match self {
            Self::State(job) | Self::Cancel(job) => job,
        }
    }
}

/// State of a job that is not over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// The module's own name for it: see [`is_job_id`].
    pub id: String,
    /// The part that is done, in a unit of the module's own.
    pub done: u64,
    /// The whole, in the same unit. Absent: unknown.
    pub total: Option<u64>,
    /// Guest text: escape it before showing it.
    pub note: String,
}

/// True if a text may be a job's id: 1 to [`MAX_JOB_ID`] visible characters of ASCII. Ids go into records and to terminals,
/// so they have no spaces, no control characters and nothing of other scripts.
pub fn is_job_id(text: &str) -> bool {
    (1..=MAX_JOB_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_is_short_and_visible() {
        for text in ["1", "https://queue.example/jobs/7?x=%20", &"a".repeat(256)] {
            assert!(is_job_id(text), "{text}");
        }
        for text in [
            "",
            "a b",
            "a\n",
            "\u{1b}[2J",
            "é",
            "a\u{202e}",
            &"a".repeat(257),
        ] {
            assert!(!is_job_id(text), "{text:?}");
        }
    }
}
