//! What became of a module's calls, counted.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use toolhold_policy::CallReport;

/// Totals since the module was loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub calls: u64,
    /// Failed calls by [`toolhold_policy::CallError::kind`]: each limit has its own.
    pub errors: BTreeMap<&'static str, u64>,
    /// Instructions, roughly. Absent in JSON if none ran or if they are not counted.
    #[serde(skip_serializing_if = "is_uncounted")]
    pub fuel: u64,
    pub host_bytes: u64,
    /// Microseconds that calls took, and waited of that.
    pub duration_us: u64,
    pub queued_us: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_uncounted(fuel: &u64) -> bool {
    *fuel == 0
}

/// [`Counters`] that calls add to.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters(Mutex<Counters>);

impl SharedCounters {
    pub fn add(&self, report: &CallReport) {
        let mut counters = self.0.lock();
        counters.calls += 1;
        counters.fuel = counters.fuel.saturating_add(report.usage.fuel);
        counters.host_bytes += report.usage.host_bytes;
        let micros = |duration: std::time::Duration| u64::try_from(duration.as_micros());
        counters.duration_us += micros(report.usage.duration).unwrap_or_default();
        counters.queued_us += micros(report.usage.queued).unwrap_or_default();
        if let Err(error) = &report.result {
            *counters.errors.entry(error.kind()).or_default() += 1;
        }
    }

    pub fn read(&self) -> Counters {
        self.0.lock().clone()
    }
}
