//! A bound for lines of a log about what may happen very often.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Counts occasions, and lets the first one of each period be logged. A client that causes thousands of them a second
/// fills no log.
#[derive(Debug)]
pub struct Seldom {
    period: Duration,
    state: Mutex<SeldomState>,
}

#[derive(Debug, Default)]
struct SeldomState {
    told: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Lets one occasion of each `period` be logged.
    pub fn every(period: Duration) -> Self {
        Self {
            period,
            state: Mutex::default(),
        }
    }

    /// Counts an occasion. Returns the number since the last logged one, this one included, if this one is to be logged.
    pub fn occurs(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.untold = state.untold.saturating_add(1);
        let now = Instant::now();
        let is_due = state
            .told
            .is_none_or(|told| now.duration_since(told) >= self.period);
        is_due.then(|| {
            state.told = Some(now);
            std::mem::take(&mut state.untold)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn one_of_a_period_is_told_with_the_number_of_those_before_it() {
        let seldom = Seldom::every(Duration::from_secs(10));
        assert_eq!(seldom.occurs(), Some(1));
        for _ in 0..5 {
            assert_eq!(seldom.occurs(), None);
        }
        advance(Duration::from_secs(9)).await;
        assert_eq!(seldom.occurs(), None);
        advance(Duration::from_secs(1)).await;
        assert_eq!(seldom.occurs(), Some(7));
        assert_eq!(seldom.occurs(), None);
    }
}
