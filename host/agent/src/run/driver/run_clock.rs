//! The time that a run has worked, over all of its processes.

use std::time::{Duration, Instant};

/// The time for which a run was worked on.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunClock {
    /// In processes before this one.
    before: Duration,
    started: Instant,
}

impl RunClock {
    /// Starts the clock of a run after this time.
    pub fn after(before: Duration) -> Self {
        Self {
            before,
            started: Instant::now(),
        }
    }

    pub fn elapsed(self) -> Duration {
        self.before + self.started.elapsed()
    }
}
