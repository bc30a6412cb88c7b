//! Runs that wait for a person and hold no place. Their number is bounded, and the bound is shared as the
//! queue for places is: one owner may park as many runs as it leaves free for others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_admission::Lane;

/// Number of parked runs by owner.
#[derive(Debug)]
pub struct ParkedRuns {
    most: usize,
    lanes: Mutex<HashMap<Lane<String>, usize>>,
}

/// The right of one run to be parked; returned when dropped.
#[derive(Debug)]
pub struct ParkPermit {
    parked: Arc<ParkedRuns>,
    lane: Lane<String>,
}

impl ParkedRuns {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            lanes: Mutex::default(),
        })
    }

    /// Parked runs of all owners.
    pub fn count(&self) -> usize {
        self.lock().values().sum()
    }

    /// Parks a run, unless its owner, or all owners together, have parked too many.
    pub fn park(self: &Arc<Self>, lane: Lane<String>) -> Option<ParkPermit> {
        let mut lanes = self.lock();
        let all: usize = lanes.values().sum();
        let own = lanes.get(&lane).copied().unwrap_or(0);
        if own >= self.most.saturating_sub(all) {
            return None;
        }
        lanes.insert(lane.clone(), own + 1);
        Some(ParkPermit {
            parked: self.clone(),
            lane,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Lane<String>, usize>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ParkPermit {
    fn drop(&mut self) {
        let mut lanes = self.parked.lock();
        if let Some(own) = lanes.get_mut(&self.lane) {
            *own -= 1;
            if *own == 0 {
                lanes.remove(&self.lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(owner: u64) -> Lane<String> {
        Lane::of(owner.to_string())
    }

    #[test]
    fn one_owner_cannot_take_all_places() {
        let parked = ParkedRuns::new(8);
        let mut permits = Vec::new();
        for (owner, room) in [(1, 4), (2, 2), (3, 1), (4, 1)] {
            for _ in 0..room {
                permits.push(parked.park(lane(owner)).unwrap());
            }
            assert!(parked.park(lane(owner)).is_none(), "{owner}");
        }
        assert_eq!(parked.count(), 8);
        assert!(parked.park(lane(5)).is_none(), "no more at all");
        permits.pop();
        assert_eq!(parked.count(), 7);
        permits.push(parked.park(lane(5)).unwrap());
        drop(permits);
        assert_eq!(parked.count(), 0);
        assert!(parked.lock().is_empty(), "and nothing is kept of them");
    }

    #[test]
    fn a_single_place_is_granted_once() {
        let parked = ParkedRuns::new(1);
        let park = parked.park(lane(1));
        assert!(park.is_some() && parked.park(lane(1)).is_none());
        drop(park);
        assert!(parked.park(lane(2)).is_some());
        assert!(ParkedRuns::new(0).park(lane(1)).is_none());
    }
}
