//! Waits between attempts of something that failed.

use std::time::Duration;

/// Waits that double after each failure, up to a longest one.
///
/// It is a table of waits without a clock: the caller counts failures and sleeps.
///
/// ```
/// use std::time::Duration;
/// use toolhold_admission::Backoff;
///
/// let backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(150));
/// let waits = [1, 2, 3, 4].map(|failures| backoff.after(failures).as_millis());
/// assert_eq!(waits, [50, 100, 150, 150]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Waits from `first` to `longest`. A `first` above `longest` is cut to it.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The wait after the `failures`th failure in a row (1, 2, 3…).
    pub fn after(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// The same with jitter: half of the wait is fixed, `chance` (0 to 1) chooses from the other half, so that
    /// callers that failed together do not return together.
    pub fn jittered(&self, failures: u32, chance: f64) -> Duration {
        self.after(failures)
            .mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));

    #[test]
    fn waits_double_up_to_the_longest() {
        let millis = |failures| BACKOFF.after(failures).as_millis();
        assert_eq!([0, 1, 2, 3, 4].map(millis), [100, 100, 200, 400, 800]);
        assert_eq!([5, 40, u32::MAX].map(millis), [1_000; 3]);
        let short = Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(short.after(1), Duration::from_secs(1));
    }

    #[test]
    fn jitter_takes_away_at_most_half() {
        let millis = |chance| BACKOFF.jittered(2, chance).as_millis();
        assert_eq!(
            [-1.0, 0.0, 0.5, 1.0, 7.0].map(millis),
            [100, 100, 150, 200, 200]
        );
        let all = Backoff::new(Duration::from_secs(1), Duration::MAX);
        assert!(all.jittered(u32::MAX, 1.0) >= Duration::from_secs(u64::from(u32::MAX)));
    }
}
