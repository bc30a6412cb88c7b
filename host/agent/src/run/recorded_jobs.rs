//! Jobs of a run's own calls, as its record tells of them.

use crate::calls::RecordedJob;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::job::JobProgress;

/// The jobs of calls that have no result yet, by the call.
#[derive(Debug, Default)]
pub(super) struct RecordedJobs(BTreeMap<String, LastProgress>);

#[derive(Debug)]
struct LastProgress {
    job: RecordedJob,
    /// How long the run had been worked on when the event was recorded.
    at: Duration,
}

impl RecordedJobs {
    /// Takes the next event of the record, at which the run had been worked on for `elapsed`.
    pub fn take(&mut self, event: &EventKind, elapsed: Duration) {
        match event {
            EventKind::Job { job, .. } => {
                let before = self.0.get(&job.id).map_or(0, |last| last.job.events);
                let job = RecordedJob {
                    progress: job.clone(),
                    events: before.saturating_add(1),
                };
                let id = job.progress.id.clone();
                self.0.insert(id, LastProgress { job, at: elapsed });
            }
            EventKind::ToolResult { id, .. } => {
                self.0.remove(id);
            }
            _ => {}
        }
    }

    /// The jobs at the end of the record, at which the run had been worked on for `elapsed`. A job without progress has few
    /// events, so the time since its last one counts too: a process that ends often must not give it its whole time again.
    pub fn open(self, elapsed: Duration) -> BTreeMap<String, RecordedJob> {
        let jobs = self.0.into_iter().map(|(call, LastProgress { job, at })| {
            let since = elapsed.saturating_sub(at).as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX);
            let progress = JobProgress {
                waited_ms: job.progress.waited_ms.saturating_add(since),
                ..job.progress
            };
            (call, RecordedJob { progress, ..job })
        });
        jobs.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(waited_ms: u64) -> EventKind {
        EventKind::Job {
            step: 1,
            job: JobProgress {
                id: "c".into(),
                tool: "m.a".into(),
                job: "7".into(),
                module: None,
                done: 0,
                total: None,
                waited_ms,
            },
        }
    }

    #[test]
    fn time_without_progress_counts_and_so_does_each_event() {
        let mut jobs = RecordedJobs::default();
        let seconds = Duration::from_secs;
        jobs.take(&told(100), seconds(1));
        jobs.take(&told(2_000), seconds(3));
        let open = jobs.open(seconds(60));
        let job = &open["c"];
        assert_eq!((job.events, job.progress.waited_ms), (2, 59_000));
    }
}
