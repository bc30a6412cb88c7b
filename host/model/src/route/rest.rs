//! The rest that an endpoint asked for (Retry-After): no request is sent meanwhile, within a bound, and then one is.
//!
//! A wrong or careless header must not take an endpoint out of service. So a rest that is longer than the bound is cut to
//! it. Then one request probes the endpoint: with the first piece of its answer the rest is over for all. If the endpoint
//! refuses it as well, the next rest begins. Without a probe the rest ends when the endpoint said.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::later;

/// The rest of one endpoint, shared by all runs.
#[derive(Debug)]
pub(super) struct Rests {
    /// Longest time without a probe.
    bound: Duration,
    state: Mutex<Option<Rest>>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    /// Time before which no request is sent.
    until: Instant,
    /// The end that the endpoint asked for.
    asked_until: Instant,
    /// Whether a request probes the endpoint.
    is_probed: bool,
}

/// A rest that began: as long as the endpoint asked, and as long as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RestBegin {
    pub asked: Duration,
    pub rest: Duration,
}

/// The right to make one request. Dropped by a probe without [`Self::is_served`], it lets the next request probe.
#[derive(Debug)]
pub(super) struct RestPermit<'a> {
    rests: &'a Rests,
    pub is_probe: bool,
}

impl Rests {
    pub fn new(bound: Duration) -> Self {
        Self {
            bound,
            state: Mutex::default(),
        }
    }

    /// Whether a request would be let through.
    ///
    /// # Errors
    /// How long the endpoint still rests; zero while a request probes it.
    pub fn check(&self) -> Result<(), Duration> {
        match *self.lock() {
            Some(rest) => rest.check(Instant::now()),
            None => Ok(()),
        }
    }

    /// Lets a request through.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn pass(&self) -> Result<RestPermit<'_>, Duration> {
        let mut state = self.lock();
        let now = Instant::now();
        let mut is_probe = false;
        if let Some(rest) = &mut *state {
            rest.check(now)?;
            if now < rest.asked_until {
                rest.is_probed = true;
                is_probe = true;
            } else {
                *state = None;
            }
        }
        Ok(RestPermit {
            rests: self,
            is_probe,
        })
    }

    /// The endpoint asks to be left alone for `asked`. A rest that ends later holds on.
    pub fn begin(&self, asked: Duration) -> Option<RestBegin> {
        if asked.is_zero() {
            return None;
        }
        let rest = asked.min(self.bound);
        let (until, asked_until) = (later(rest), later(asked));
        let mut state = self.lock();
        let before = state.take();
        *state = Some(Rest {
            until: before.map_or(until, |before| before.until.max(until)),
            asked_until: before.map_or(asked_until, |before| before.asked_until.max(asked_until)),
            is_probed: before.is_some_and(|before| before.is_probed),
        });
        Some(RestBegin { asked, rest })
    }

    /// How long the endpoint rests, and how long it asked to; `None` if it does not rest. The first is zero while it is
    /// probed, or waits for a request that does.
    pub fn left(&self) -> Option<(Duration, Duration)> {
        let now = Instant::now();
        let rest = (*self.lock())?;
        let asked = rest.asked_until.saturating_duration_since(now);
        let rests = rest.until.saturating_duration_since(now);
        (!asked.is_zero()).then_some((rests, asked))
    }

    /// Ends the rest. Returns whether there was one.
    pub fn clear(&self) -> bool {
        let was_resting = self.left().is_some();
        *self.lock() = None;
        was_resting
    }

    fn lock(&self) -> MutexGuard<'_, Option<Rest>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rest {
    fn check(&self, now: Instant) -> Result<(), Duration> {
        if now < self.until {
            return Err(self.until.saturating_duration_since(now));
        }
        if self.is_probed && now < self.asked_until {
            return Err(Duration::ZERO);
        }
        Ok(())
    }
}

impl RestPermit<'_> {
    /// The endpoint answers the request. Returns whether that ends a rest.
    pub fn is_served(&mut self) -> bool {
        if !self.is_probe {
            return false;
        }
        self.is_probe = false;
        self.rests.lock().take().is_some()
    }
}

impl Drop for RestPermit<'_> {
    fn drop(&mut self) {
        if self.is_probe
            && let Some(rest) = &mut *self.rests.lock()
        {
            rest.is_probed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);
    const FIVE_MINUTES: Duration = Duration::from_mins(5);

    #[tokio::test(start_paused = true)]
    async fn a_long_rest_is_cut_and_one_request_probes() {
        let rests = Rests::new(MINUTE);
        assert!(rests.left().is_none() && !rests.pass().unwrap().is_probe);
        let begun = rests.begin(FIVE_MINUTES).unwrap();
        assert_eq!((begun.asked, begun.rest), (FIVE_MINUTES, MINUTE));
        assert_eq!(rests.left(), Some((MINUTE, FIVE_MINUTES)));
        advance(MINUTE / 2).await;
        assert_eq!(rests.pass().unwrap_err(), MINUTE / 2);
        advance(MINUTE / 2).await;
        let probe = rests.pass().unwrap();
        assert!(probe.is_probe);
        assert_eq!(rests.pass().unwrap_err(), Duration::ZERO);
        // It was cancelled: the next one probes.
        drop(probe);
        let mut probe = rests.pass().unwrap();
        assert!(probe.is_served());
        assert!(!probe.is_served(), "once");
        assert!(rests.left().is_none());
        assert!(!rests.pass().unwrap().is_probe);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_refused_begins_the_next_rest() {
        let rests = Rests::new(MINUTE);
        rests.begin(FIVE_MINUTES).unwrap();
        advance(MINUTE).await;
        let probe = rests.pass().unwrap();
        rests.begin(FIVE_MINUTES).unwrap();
        drop(probe);
        assert_eq!(rests.pass().unwrap_err(), MINUTE);
        advance(MINUTE).await;
        assert!(rests.pass().unwrap().is_probe);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_within_the_bound_ends_for_all_when_the_endpoint_said() {
        let rests = Rests::new(MINUTE);
        rests.begin(MINUTE / 2).unwrap();
        // A shorter one changes nothing.
        rests.begin(MINUTE / 4).unwrap();
        assert_eq!(rests.check().unwrap_err(), MINUTE / 2);
        advance(MINUTE / 2).await;
        let all = [rests.pass().unwrap(), rests.pass().unwrap()];
        assert!(all.iter().all(|it| !it.is_probe));
        assert_eq!(rests.begin(Duration::ZERO), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_can_be_cleared() {
        let rests = Rests::new(MINUTE);
        assert!(!rests.clear());
        rests.begin(FIVE_MINUTES).unwrap();
        assert!(rests.clear());
        assert!(rests.check().is_ok() && rests.left().is_none());
    }
}
