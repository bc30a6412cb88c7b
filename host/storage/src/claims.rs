//! The runs that this process works on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

/// Runs with a journal in this process. The database alone does not tell: a row may name this process because its
/// release could not be written.
#[derive(Debug, Clone, Default)]
pub struct ClaimedRuns(Arc<Mutex<HashSet<Uuid>>>);

impl ClaimedRuns {
    /// Whether the run is among them.
    pub fn contains(&self, run: Uuid) -> bool {
        self.runs().contains(&run)
    }

    /// Claims a run; `None` if this process has claimed it already.
    pub fn claim(&self, run: Uuid) -> Option<RunClaim> {
        let is_free = self.runs().insert(run);
        is_free.then(|| RunClaim {
            claimed: self.clone(),
            run,
        })
    }

    /// Adds a run without a claim.
    pub fn insert(&self, run: Uuid) {
        self.runs().insert(run);
    }

    /// Removes a run.
    pub fn release(&self, run: Uuid) {
        self.runs().remove(&run);
    }

    fn runs(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
