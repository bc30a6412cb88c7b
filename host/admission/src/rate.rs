//! Rates per minute of many keys, each of its own: token buckets that hold a minute's worth and refill steadily.

use crate::debt::{Debt, Debts, MINUTE, interval, nanos_since};
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Keys that are told apart; all others together count as one.
const MAX_KEYS: usize = 8_192;
/// Time between two looks for keys that may be forgotten.
const FORGET_INTERVAL: u64 = 10_000_000_000;

/// Something that may happen so many times a minute for each key, such as requests of an API key or failed
/// attempts of an address.
///
/// 8 192 keys are told apart. While as many buckets are not full, all further keys share one bucket; no such key is
/// forgotten for another.
pub struct KeyedRate<K> {
    /// In which one is refilled. Absent: not limited.
    interval: Option<u64>,
    start: Instant,
    keys: Mutex<Debts<K>>,
}

impl<K: Clone + Eq + Hash> KeyedRate<K> {
    /// A full bucket of `count` for each key, refilled with `count` a minute. 0: not limited.
    pub fn per_minute(count: u64) -> Self {
        Self {
            interval: interval(count),
            start: Instant::now(),
            keys: Mutex::new(Debts::new(MAX_KEYS)),
        }
    }

    /// Takes one from the key's bucket.
    ///
    /// # Errors
    /// The time until the bucket holds one.
    pub fn take(&self, key: &K) -> Result<(), Duration> {
        self.with_one(key, |keys, debt| keys.set(key, debt))
    }

    /// Whether the key's bucket holds one; nothing is taken, and a new key is not remembered.
    ///
    /// # Errors
    /// The time until the bucket holds one.
    pub fn check(&self, key: &K) -> Result<(), Duration> {
        self.with_one(key, |_, _| ())
    }

    fn with_one(&self, key: &K, then: impl FnOnce(&mut Debts<K>, Debt)) -> Result<(), Duration> {
        let Some(interval) = self.interval else {
            return Ok(());
        };
        let now = nanos_since(self.start);
        let mut keys = self.lock();
        if keys.is_full() && !keys.knows(key) {
            keys.forget_idle(now, FORGET_INTERVAL, 1);
        }
        let debt = keys.of(key).with_one(now, interval, MINUTE)?;
        then(&mut keys, debt);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Debts<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> fmt::Debug for KeyedRate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedRate")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn each_key_has_a_bucket_and_looking_takes_nothing() {
        let rate = KeyedRate::per_minute(2);
        for _ in 0..10 {
            rate.check(&"a").unwrap();
        }
        assert_eq!(rate.lock().len(), 0, "looking remembers no key");
        rate.take(&"a").unwrap();
        rate.check(&"a").unwrap();
        rate.take(&"a").unwrap();
        assert_eq!(rate.check(&"a"), Err(Duration::from_secs(30)));
        assert_eq!(rate.take(&"a"), Err(Duration::from_secs(30)));
        rate.take(&"b").unwrap();
        assert_eq!(rate.lock().len(), 2);
        advance(Duration::from_secs(30)).await;
        rate.check(&"a").unwrap();
        rate.take(&"a").unwrap();
        assert!(KeyedRate::per_minute(0).take(&"a").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_bounded_and_none_in_use_is_forgotten() {
        let rate = KeyedRate::per_minute(60);
        for _ in 0..60 {
            rate.take(&0).unwrap();
        }
        for key in 1..MAX_KEYS {
            rate.take(&key).unwrap();
        }
        assert_eq!(rate.lock().len(), MAX_KEYS);
        // No place is left: those that come later share one bucket.
        for key in 0..60 {
            rate.take(&(MAX_KEYS + key)).unwrap();
        }
        assert!(rate.check(&(3 * MAX_KEYS)).is_err());
        assert_eq!(rate.take(&0), Err(Duration::from_secs(1)));
        assert_eq!(rate.lock().len(), MAX_KEYS);
        // The idle ones make room, and a busy one is not forgotten.
        advance(Duration::from_secs(10)).await;
        rate.take(&(3 * MAX_KEYS)).unwrap();
        assert_eq!(rate.lock().len(), 2);
        for _ in 0..10 {
            rate.take(&0).unwrap();
        }
        assert_eq!(rate.take(&0), Err(Duration::from_secs(1)));
    }
}
