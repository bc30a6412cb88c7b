//! Runs that wait for a person without a place. They are bounded, and the bound is shared as the queue for places
//! is: those of one owner may be as many as they leave free for others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_admission::Lane;

/// How many are without a place.
#[derive(Debug)]
pub struct Away {
    most: usize,
    lanes: Mutex<HashMap<Lane<String>, usize>>,
}

/// The right of one run to be without a place; given back when dropped.
#[derive(Debug)]
pub struct Leave {
    away: Arc<Away>,
    lane: Lane<String>,
}

impl Away {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            lanes: Mutex::default(),
        })
    }

    /// Of all lanes.
    pub fn count(&self) -> usize {
        self.lock().values().sum()
    }

    /// Unless too many are away already, of the lane or at all.
    pub fn leave(self: &Arc<Self>, lane: Lane<String>) -> Option<Leave> {
        let mut lanes = self.lock();
        let all: usize = lanes.values().sum();
        let own = lanes.get(&lane).copied().unwrap_or(0);
        if own >= self.most.saturating_sub(all) {
            return None;
        }
        lanes.insert(lane.clone(), own + 1);
        Some(Leave {
            away: self.clone(),
            lane,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Lane<String>, usize>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut lanes = self.away.lock();
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
    fn nobody_takes_all_of_it() {
        let away = Away::new(8);
        let mut gone = Vec::new();
        for (owner, room) in [(1, 4), (2, 2), (3, 1), (4, 1)] {
            for _ in 0..room {
                gone.push(away.leave(lane(owner)).unwrap());
            }
            assert!(away.leave(lane(owner)).is_none(), "{owner}");
        }
        assert_eq!(away.count(), 8);
        assert!(away.leave(lane(5)).is_none(), "no more at all");
        gone.pop();
        assert_eq!(away.count(), 7);
        gone.push(away.leave(lane(5)).unwrap());
        drop(gone);
        assert_eq!(away.count(), 0);
        assert!(away.lock().is_empty(), "and nothing is kept of them");
    }

    #[test]
    fn one_of_one_and_none_of_none() {
        let away = Away::new(1);
        let leave = away.leave(lane(1));
        assert!(leave.is_some() && away.leave(lane(1)).is_none());
        drop(leave);
        assert!(away.leave(lane(2)).is_some());
        assert!(Away::new(0).leave(lane(1)).is_none());
    }
}
