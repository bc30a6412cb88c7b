//! A rate per minute that several keys share.

use crate::debt::{Debt, Debts, MINUTE, interval, nanos_since};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Keys that are told apart; all others together count as one.
const MAX_KEYS: usize = 1_024;
/// Time between two looks for keys that may be forgotten.
const FORGET_INTERVAL: u64 = 1_000_000_000;

/// Something that may happen so many times a minute, for all keys together: a bucket that holds a minute's worth and
/// refills steadily, as that of [`KeyedRate`](crate::KeyedRate).
///
/// - **Share.** With `n` keys in use, the share of each is one of `n + 1` parts of a minute's worth: one part is for
///   the next key. A key is in use until what it took is made up for by its share of the refill.
/// - **Floor.** The last eighth of the bucket is only for keys that took less than their share, or nothing. Others are
///   refused there, and so a key within its share finds something however much another one asks for.
/// - A lone key may take seven eighths at once, and all that is refilled. A rate below 8 a minute keeps nothing back.
/// - 1 024 keys are told apart. While as many are in use, further ones share one place; no key in use is forgotten.
pub struct FairRate<K> {
    /// Absent: not limited.
    limit: Option<Limit>,
    start: Instant,
    state: Mutex<FairRateState<K>>,
}

#[derive(Debug, Clone, Copy)]
struct Limit {
    /// In which one is refilled.
    interval: u64,
    /// The part of the bucket that is for keys below their share.
    reserve: u64,
}

#[derive(Debug)]
struct FairRateState<K> {
    all: Debt,
    keys: Debts<K>,
}

impl<K: Eq + Hash> FairRate<K> {
    /// A full bucket of `count`, refilled with `count` a minute. 0: not limited.
    pub fn per_minute(count: u64) -> Self {
        let limit = interval(count).map(|interval| Limit {
            interval,
            reserve: (count / 8).saturating_mul(interval).min(MINUTE / 8),
        });
        Self {
            limit,
            start: Instant::now(),
            state: Mutex::new(FairRateState {
                all: Debt::default(),
                keys: Debts::new(MAX_KEYS),
            }),
        }
    }

    /// Takes one for the key.
    ///
    /// # Errors
    /// The time until the bucket may hold one for it.
    pub fn take<Q>(&self, key: &Q) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        self.lock().take(limit, key, nanos_since(self.start))
    }
}

impl<K> FairRate<K> {
    fn lock(&self) -> MutexGuard<'_, FairRateState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> FairRateState<K> {
    fn take<Q>(&mut self, limit: Limit, key: &Q, now: u64) -> Result<(), Duration>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let keys = &mut self.keys;
        keys.forget_idle(now, FORGET_INTERVAL, keys.len() as u64);
        let parts = (keys.len() + usize::from(!keys.knows(key))) as u64;
        let own = keys.of(key).now(now, parts);
        let with_one = own + limit.interval;
        let is_below_share = own == 0 || with_one <= MINUTE / (parts + 1);
        let room = if is_below_share {
            MINUTE
        } else {
            MINUTE - limit.reserve
        };
        self.all = self.all.with_one(now, limit.interval, room)?;
        // More is not held against it: it may have taken what others left.
        keys.set(key, Debt::new(with_one.min(MINUTE), now));
        Ok(())
    }
}

impl<K> fmt::Debug for FairRate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairRate")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::time::advance;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[tokio::test(start_paused = true)]
    async fn the_bucket_empties_and_refills() {
        let rate = FairRate::per_minute(3);
        for _ in 0..3 {
            rate.take(&"a").unwrap();
        }
        assert_eq!(rate.take(&"a"), Err(seconds(20)));
        advance(seconds(21)).await;
        rate.take(&"a").unwrap();
        assert_eq!(rate.take(&"a"), Err(seconds(19)));
        // Rest does not save up more than a minute's worth.
        advance(Duration::from_hours(24)).await;
        for _ in 0..3 {
            rate.take(&"a").unwrap();
        }
        assert!(rate.take(&"a").is_err());
        let unlimited = FairRate::per_minute(0);
        assert!((0..1_000).all(|_| unlimited.take(&"a").is_ok()));
    }

    /// What a key took beyond its share while others left it is forgiven in a few minutes.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_took_what_was_left_is_soon_below_its_share_again() {
        let rate = FairRate::per_minute(6_000);
        for _ in 0..600 {
            drain(&rate, 1);
            rate.take(&2).unwrap();
            advance(seconds(1)).await;
        }
        advance(seconds(90)).await;
        assert!(drain(&rate, 2) > 5_000, "it takes all that it may");
        assert!(rate.take(&1).is_ok());
    }

    /// Takes what there is for the key; how many it got.
    fn drain(rate: &FairRate<u32>, key: u32) -> usize {
        (0..10_000).take_while(|_| rate.take(&key).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_takes_all_leaves_a_floor_to_others() {
        let rate = FairRate::per_minute(64);
        assert_eq!(drain(&rate, 1), 56);
        // The next key is below its share, which is a third of 64, until it has taken all that is kept.
        assert_eq!(drain(&rate, 2), 8);
        assert_eq!(drain(&rate, 3), 0);
        // Of what is refilled the greedy one gets nothing before the others have theirs.
        advance(seconds(5)).await;
        assert_eq!(drain(&rate, 1), 0);
        assert_eq!(drain(&rate, 3), 5);
        // Alone again, it gets all that is refilled.
        advance(seconds(60)).await;
        advance(seconds(180)).await;
        assert_eq!(drain(&rate, 1), 56);
        advance(seconds(30)).await;
        assert_eq!(drain(&rate, 1), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_bounded_and_none_in_use_is_forgotten() {
        let rate = FairRate::per_minute(1_000_000);
        for key in 0..5_000 {
            rate.take(&key).unwrap();
            rate.take(&key).unwrap();
            advance(Duration::from_nanos(1)).await;
        }
        assert_eq!(rate.lock().keys.len(), MAX_KEYS);
        assert!(rate.lock().keys.knows(&0));
        advance(seconds(60)).await;
        rate.take(&9_999).unwrap();
        assert_eq!(rate.lock().keys.len(), 1, "idle ones are forgotten");
    }

    fn state() -> FairRateState<u8> {
        FairRate::per_minute(1).state.into_inner().unwrap()
    }

    proptest! {
        /// Whatever keys ask when, no more is given than a minute's worth and what is refilled.
        #[test]
        fn no_more_is_given_than_the_rate(
            count in 1_u64..500,
            asked in prop::collection::vec((0_u8..5, 0_u64..2_000), 1..600),
        ) {
            let limit = FairRate::<u8>::per_minute(count).limit.unwrap();
            let (mut state, mut now, mut given) = (state(), 0, 0);
            for (key, millis) in asked {
                now += millis * 1_000_000;
                given += u64::from(state.take(limit, &key, now).is_ok());
                prop_assert!(given <= count + now / limit.interval + 1);
            }
        }

        /// A key that asks for no more than its share is never refused, however much others ask for.
        #[test]
        fn within_its_share_no_key_is_refused(
            count in 64_u64..2_000,
            polite in 1_u64..5,
            alone in 0_u64..300,
            greed in 1_u64..20,
        ) {
            let limit = FairRate::<u8>::per_minute(count).limit.unwrap();
            let mut state = state();
            let mut refused = 0;
            for step in 0..2_000_u64 {
                let now = step * limit.interval / 4;
                for _ in 0..greed {
                    refused += u64::from(state.take(limit, &0, now).is_err());
                }
                // Each takes one in the time in which a part of it for each key, the next one's and one more is refilled.
                let period = 4 * (polite + 3);
                for key in 1..=polite {
                    if step >= alone && (step + key) % period == 0 {
                        let key = u8::try_from(key).unwrap();
                        prop_assert_eq!(state.take(limit, &key, now), Ok(()), "{} at {}", key, step);
                    }
                }
            }
            prop_assert!(refused > 0 || count > 1_000, "the greedy key was greedy");
        }
    }
}
