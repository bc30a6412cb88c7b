//! Calls in a minute.
//!
//! The generic cell rate algorithm in one number: the time at which the bucket will be full again. A
//! crate for it would bring eight others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_mins(1);

/// A bucket that holds a minute's worth of calls and refills steadily.
#[derive(Debug)]
pub(crate) struct Rate {
    /// Time that one call costs. Absent: no limit.
    cost: Option<Duration>,
    full_at: Mutex<Instant>,
}

impl Rate {
    /// 0: no limit.
    pub fn per_minute(calls: u64) -> Self {
        let nanos = u64::try_from(MINUTE.as_nanos()).unwrap_or(u64::MAX);
        Self {
            cost: nanos.checked_div(calls).map(Duration::from_nanos),
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Takes one call from the bucket.
    ///
    /// # Errors
    /// How long until there is one.
    pub fn take(&self) -> Result<(), Duration> {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> Result<(), Duration> {
        let Some(cost) = self.cost else {
            return Ok(());
        };
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let then = (*full_at).max(now) + cost;
        // The bucket is empty when it takes more than a minute to fill.
        let missing = then.saturating_duration_since(now + MINUTE);
        if !missing.is_zero() {
            return Err(missing);
        }
        *full_at = then;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_empties_and_refills() {
        let rate = Rate::per_minute(3);
        let start = Instant::now() + Duration::from_secs(1);
        for _ in 0..3 {
            rate.take_at(start).unwrap();
        }
        assert_eq!(rate.take_at(start), Err(Duration::from_secs(20)));
        let later = start + Duration::from_secs(21);
        rate.take_at(later).unwrap();
        assert_eq!(rate.take_at(later), Err(Duration::from_secs(19)));
        // Rest does not save up more than a minute's worth.
        let next_day = start + Duration::from_hours(24);
        for _ in 0..3 {
            rate.take_at(next_day).unwrap();
        }
        assert!(rate.take_at(next_day).is_err());
        assert!(Rate::per_minute(0).take().is_ok());
    }
}
