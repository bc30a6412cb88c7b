//! Rates per minute: token buckets that hold a minute's worth and refill steadily.
//!
//! The algorithm is `governor`'s (the generic cell rate algorithm). Its own clocks read the system's monotonic
//! clock, which tokio's paused time does not move; [`TokioClock`] reads tokio's.

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::{HashMapStateStore, ShrinkableKeyedStateStore as _};
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{NotUntil, Quota, RateLimiter};
use std::fmt;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time since the rate was made, by tokio's clock. Outside a runtime that is the system's monotonic clock.
#[derive(Debug, Clone)]
struct TokioClock {
    start: Instant,
}

impl Clock for TokioClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl TokioClock {
    fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    fn wait(&self, until: &NotUntil<Duration>) -> Duration {
        until.wait_time_from(self.now())
    }
}

/// `None`: not limited.
fn quota(per_minute: u64) -> Option<Quota> {
    let count = u32::try_from(per_minute).unwrap_or(u32::MAX);
    NonZeroU32::new(count).map(Quota::per_minute)
}

/// Something that may happen so many times a minute.
pub struct Rate {
    /// Absent: not limited.
    limiter: Option<RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Duration>>>,
    clock: TokioClock,
}

impl Rate {
    /// A full bucket of `count`, refilled with `count` a minute. 0: not limited.
    pub fn per_minute(count: u64) -> Self {
        let clock = TokioClock::new();
        let limiter = |quota| RateLimiter::direct_with_clock(quota, clock.clone());
        Self {
            limiter: quota(count).map(limiter),
            clock,
        }
    }

    /// Takes one from the bucket.
    ///
    /// # Errors
    /// The time until the bucket holds one.
    pub fn take(&self) -> Result<(), Duration> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        let taken = limiter.check();
        taken.map_err(|until| self.clock.wait(&until))
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_limited = self.limiter.is_some();
        f.debug_struct("Rate")
            .field("is_limited", &is_limited)
            .finish_non_exhaustive()
    }
}

/// Something that may happen so many times a minute for each key, such as requests of an API key or failed
/// attempts of an address.
///
/// Keys are kept until [`Self::forget_idle`]: a caller whose keys come from outside calls it, and bounds them.
pub struct KeyedRate<K: Clone + Eq + Hash> {
    /// Absent: not limited.
    limiters: Option<Limiters<K>>,
    clock: TokioClock,
}

/// Two views of the same buckets: one takes, the other only looks.
struct Limiters<K: Clone + Eq + Hash> {
    taking: RateLimiter<K, Buckets<K>, TokioClock, NoOpMiddleware<Duration>>,
    looking: RateLimiter<K, ReadOnlyBuckets<K>, TokioClock, NoOpMiddleware<Duration>>,
    buckets: Buckets<K>,
}

impl<K: Clone + Eq + Hash> KeyedRate<K> {
    /// A full bucket of `count` for each key, refilled with `count` a minute. 0: not limited.
    pub fn per_minute(count: u64) -> Self {
        let clock = TokioClock::new();
        let limiters = |quota| {
            let buckets = Buckets(Arc::new(HashMapStateStore::default()));
            Limiters {
                taking: RateLimiter::new(quota, buckets.clone(), clock.clone()),
                looking: RateLimiter::new(quota, ReadOnlyBuckets(buckets.clone()), clock.clone()),
                buckets,
            }
        };
        Self {
            limiters: quota(count).map(limiters),
            clock,
        }
    }

    /// Takes one from the key's bucket.
    ///
    /// # Errors
    /// The time until the bucket holds one.
    pub fn take(&self, key: &K) -> Result<(), Duration> {
        let Some(limiters) = &self.limiters else {
            return Ok(());
        };
        let taken = limiters.taking.check_key(key);
        taken.map_err(|until| self.clock.wait(&until))
    }

    /// Whether the key's bucket holds one; nothing is taken, and a new key is not remembered.
    ///
    /// # Errors
    /// The time until the bucket holds one.
    pub fn check(&self, key: &K) -> Result<(), Duration> {
        let Some(limiters) = &self.limiters else {
            return Ok(());
        };
        let checked = limiters.looking.check_key(key);
        checked.map_err(|until| self.clock.wait(&until))
    }

    /// The number of keys that are remembered.
    pub fn len(&self) -> usize {
        let limiters = self.limiters.as_ref();
        limiters.map_or(0, |limiters| limiters.buckets.0.len())
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the key is remembered.
    pub fn contains(&self, key: &K) -> bool {
        let limiters = self.limiters.as_ref();
        limiters.is_some_and(|limiters| limiters.buckets.contains(key))
    }

    /// Forgets the keys whose buckets are full again: a forgotten key and a new one are treated alike.
    pub fn forget_idle(&self) {
        if let Some(limiters) = &self.limiters {
            limiters.taking.retain_recent();
        }
    }
}

impl<K: Clone + Eq + Hash> fmt::Debug for KeyedRate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRate")
            .field("is_limited", &self.limiters.is_some())
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}

/// The state of all keys; clones share it.
#[derive(Debug)]
struct Buckets<K: Clone + Eq + Hash>(Arc<HashMapStateStore<K>>);

/// The same, for a decision that changes nothing.
#[derive(Debug)]
struct ReadOnlyBuckets<K: Clone + Eq + Hash>(Buckets<K>);

impl<K: Clone + Eq + Hash> Buckets<K> {
    fn contains(&self, key: &K) -> bool {
        self.0.lock().contains_key(key)
    }
}

impl<K: Clone + Eq + Hash> Clone for Buckets<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash> StateStore for Buckets<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, decide)
    }
}

impl<K: Clone + Eq + Hash> governor::state::keyed::ShrinkableKeyedStateStore<K> for Buckets<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.retain_recent(drop_below);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Clone + Eq + Hash> StateStore for ReadOnlyBuckets<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let decision = |state: Option<Nanos>| decide(state).map(|(outcome, _)| outcome);
        if !self.0.contains(key) {
            return decision(None);
        }
        // An error leaves the state as it is, whatever the decision.
        let looked: Result<(), _> =
            (self.0.0).measure_and_replace(key, |state| Err(decision(state)));
        match looked {
            Err(decision) => decision,
            // The closure never succeeds.
            Ok(()) => decision(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn the_bucket_empties_and_refills() {
        let rate = Rate::per_minute(3);
        for _ in 0..3 {
            rate.take().unwrap();
        }
        assert_eq!(rate.take(), Err(Duration::from_secs(20)));
        advance(Duration::from_secs(21)).await;
        rate.take().unwrap();
        assert_eq!(rate.take(), Err(Duration::from_secs(19)));
        // Rest does not save up more than a minute's worth.
        advance(Duration::from_hours(24)).await;
        for _ in 0..3 {
            rate.take().unwrap();
        }
        assert!(rate.take().is_err());
        let unlimited = Rate::per_minute(0);
        assert!((0..1_000).all(|_| unlimited.take().is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn each_key_has_a_bucket_and_looking_takes_nothing() {
        let rate = KeyedRate::per_minute(2);
        for _ in 0..10 {
            rate.check(&"a").unwrap();
        }
        assert!(rate.is_empty(), "looking remembers no key");
        rate.take(&"a").unwrap();
        rate.check(&"a").unwrap();
        rate.take(&"a").unwrap();
        assert_eq!(rate.check(&"a"), Err(Duration::from_secs(30)));
        assert_eq!(rate.take(&"a"), Err(Duration::from_secs(30)));
        rate.take(&"b").unwrap();
        assert_eq!(rate.len(), 2);
        advance(Duration::from_secs(30)).await;
        rate.check(&"a").unwrap();
        rate.take(&"a").unwrap();
        assert!(KeyedRate::per_minute(0).take(&"a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_are_forgotten_and_others_are_not() {
        let rate = KeyedRate::per_minute(60);
        for _ in 0..60 {
            rate.take(&"busy").unwrap();
        }
        rate.take(&"idle").unwrap();
        advance(Duration::from_secs(10)).await;
        rate.forget_idle();
        assert!(rate.contains(&"busy") && !rate.contains(&"idle"));
        for _ in 0..10 {
            rate.take(&"busy").unwrap();
        }
        assert_eq!(rate.take(&"busy"), Err(Duration::from_secs(1)));
    }
}
