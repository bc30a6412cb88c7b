//! Calls that continue as jobs after their tool answered (docs/protocol.md, 7.13).

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// Maximum number of events with the progress of one job, its begin included: a job reports as often as it is asked.
pub const MAX_JOB_EVENTS: u32 = 100;

/// How long a call may continue as a job, and how often the host asks about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPolicy {
    /// Maximum time of one job, waits included. The time in which no process had the run is not counted.
    pub timeout: Duration,
    /// The wait before the first question, which doubles with each. Half of it is random.
    pub backoff: Duration,
    /// The longest wait between two questions.
    pub max_backoff: Duration,
    /// Maximum number of questions about one job.
    pub questions: u32,
}

impl JobPolicy {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for JobPolicy {
    fn default() -> Self {
        Self {
            timeout: Duration::from_hours(1),
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(30),
            // A week of questions at the longest wait, with room for jitter.
            questions: 50_000,
        }
    }
}

/// How far the job of a call is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Id of the call.
    pub id: String,
    pub tool: String,
    /// The module's own name for the job ([`toolhold_policy::is_job_id`]). Empty where it was taken out for a client: who
    /// knows it may reach the job where the module does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Digest of the component that began the job, which alone is asked about it. Absent: no component began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// In a unit of the module's own. Its note is not here: shields have not seen it.
    pub done: u64,
    /// Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How long the call was waited for as a job until now.
    pub waited_ms: u64,
}

/// For people, in one line.
impl Display for JobProgress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            tool, done, total, ..
        } = self;
        write!(f, "{tool}: continues as a job")?;
        match (total, done) {
            (Some(total), _) => write!(f, ", {done} of {total}"),
            (None, 0) => Ok(()),
            (None, _) => write!(f, ", {done} so far"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_as_far_as_it_is_known() {
        for (done, total, text) in [
            (3, Some(9), "video.render: continues as a job, 3 of 9"),
            (0, None, "video.render: continues as a job"),
            (3, None, "video.render: continues as a job, 3 so far"),
        ] {
            let progress = JobProgress {
                id: "call_1".into(),
                tool: "video.render".into(),
                job: "j-7".into(),
                module: None,
                done,
                total,
                waited_ms: 0,
            };
            assert_eq!(progress.to_string(), text);
        }
    }
}
