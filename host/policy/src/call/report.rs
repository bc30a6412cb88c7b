//! The report of a call: its result and its usage.

use super::{Denials, JobState};
use crate::digest::Digest;
use crate::error::CallError;
use crate::log::{Captured, LogLine};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// The value that a tool returned.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    Value(Value),
    /// A data message that names its own output path (`docs/protocol.md`, section 5).
    Message(Value),
}

impl Output {
    /// The JSON of either kind.
    pub fn into_value(self) -> Value {
        let (Self::Value(value) | Self::Message(value)) = self;
        value
    }
}

/// The usage of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallUsage {
    /// From the request to the answer, queueing included, without the time in which a person was asked about calls
    /// that it made.
    #[serde(serialize_with = "micros", rename = "duration_us")]
    pub duration: Duration,
    /// Of that, waiting for a permit.
    #[serde(serialize_with = "micros", rename = "queued_us")]
    pub queued: Duration,
    /// Instructions, roughly. 0 if none ran, or if the module's are not counted (`fuel = 0`); then absent in JSON, where
    /// it would read as a measurement.
    #[serde(skip_serializing_if = "is_zero")]
    pub fuel: u64,
    /// The most linear memory the component held, all memories together.
    pub memory_bytes: u64,
    /// What host calls moved: files, streams, keys and values.
    pub host_bytes: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn micros<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

/// Everything known about a call that was made, whether it worked or not.
#[derive(Debug)]
pub struct CallReport {
    pub result: Result<Output, CallError>,
    /// Present if the tool continues as a job: then `result` is not the call's result yet.
    pub job: Option<JobState>,
    /// The module that ran, if the tool's name means one.
    pub module: Option<Digest>,
    pub usage: CallUsage,
    pub stdout: Captured,
    pub stderr: Captured,
    pub logs: Vec<LogLine>,
    /// Log lines that came after the limit.
    pub dropped_logs: u64,
    /// How many times a secret was taken out of a response, or out of this report.
    pub redactions: u64,
    /// What the call asked for and was not given. For people who may see the module's grants, and for no caller.
    pub denials: Denials,
}

impl CallReport {
    /// A call that failed before any code of its module ran.
    pub fn refused(error: CallError) -> Self {
        Self {
            result: Err(error),
            job: None,
            module: None,
            usage: CallUsage::default(),
            stdout: Captured::default(),
            stderr: Captured::default(),
            logs: Vec::new(),
            dropped_logs: 0,
            redactions: 0,
            denials: Denials::default(),
        }
    }
}
