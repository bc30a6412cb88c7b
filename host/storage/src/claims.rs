//! The runs that this process works on, and their leases.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use uuid::Uuid;

/// Runs with a journal in this process, and the fences of their leases where these are known. The database alone does
/// not tell: a row may name this process because its release could not be written.
#[derive(Debug, Clone, Default)]
pub struct ClaimedRuns(Arc<Mutex<HashMap<Uuid, Option<i64>>>>);

/// The fence under which this process has a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OwnFence {
    pub run: Uuid,
    pub fence: i64,
}

impl ClaimedRuns {
    /// Whether the run is among them.
    pub fn contains(&self, run: Uuid) -> bool {
        self.0.lock().contains_key(&run)
    }

    /// Claims a run; `None` if this process has claimed it already.
    pub fn claim(&self, run: Uuid) -> Option<RunClaim> {
        match self.0.lock().entry(run) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                free.insert(None);
                Some(RunClaim {
                    claimed: self.clone(),
                    run,
                })
            }
        }
    }

    /// Adds a run without a claim.
    pub fn insert(&self, run: Uuid) {
        self.0.lock().insert(run, None);
    }

    /// The fences of those of `runs` that are claimed and whose fence is known.
    pub fn fences(&self, runs: &[Uuid]) -> Vec<OwnFence> {
        let claimed = self.0.lock();
        let fences = runs.iter().filter_map(|run| {
            let fence = (*claimed.get(run)?)?;
            Some(OwnFence { run: *run, fence })
        });
        fences.collect()
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

    /// Notes the fence under which this process has the run.
    pub fn set_fence(&self, fence: i64) {
        self.claimed.0.lock().insert(self.run, Some(fence));
    }
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        self.claimed.release(self.run);
    }
}

/// The lease of a run that a journal of this process has. Every write of the journal names it. When another process
/// takes the lease, the fence of the run grows, and writes under the former one are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLease {
    /// Name of the process.
    pub holder: String,
    /// Grows by one each time that a process takes the run; 0 for the one that began it.
    pub fence: i64,
}
