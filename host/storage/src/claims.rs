//! The runs that this process works on.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;

/// Runs with a journal in this process. The database alone does not tell: a row may name this process because its
/// release could not be written.
#[derive(Debug, Clone, Default)]
pub struct ClaimedRuns(Arc<Mutex<HashSet<Uuid>>>);

impl ClaimedRuns {
    /// Whether the run is among them.
    pub fn contains(&self, run: Uuid) -> bool {
        self.0.lock().contains(&run)
    }

    /// Claims a run; `None` if this process has claimed it already.
    pub fn claim(&self, run: Uuid) -> Option<RunClaim> {
        let is_free = self.0.lock().insert(run);
        is_free.then(|| RunClaim {
            claimed: self.clone(),
            run,
        })
    }

    /// Adds a run without a claim.
    pub fn insert(&self, run: Uuid) {
        self.0.lock().insert(run);
    }

    /// Removes a run.
    pub fn release(&self, run: Uuid) {
        self.0.lock().remove(&run);
    }
}

/// A claim on a run; dropping it gives the run free.
#[derive(Debug)]
pub struct RunClaim {
    claimed: ClaimedRuns,
    run: Uuid,
}

impl RunClaim {
    /// The claimed run.
    pub fn id(&self) -> Uuid {
        self.run
    }
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        self.claimed.release(self.run);
    }
}
