//! What keys took of a rate and is not refilled yet: a token bucket as one number (the generic cell rate algorithm).
//!
//! Amounts are times: that in which the bucket refills so much. A bucket holds a minute's worth and refills steadily,
//! so a debt of a minute is an empty bucket. All times are in nanoseconds by tokio's clock, so that tests with a paused
//! clock see refusals and waits exactly.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const MINUTE: u64 = 60_000_000_000;

/// The time in which one is refilled. 0 a minute: `None`, not limited.
pub(crate) fn interval(per_minute: u64) -> Option<u64> {
    MINUTE
        .checked_div(per_minute)
        .map(|interval| interval.max(1))
}

pub(crate) fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Debt {
    amount: u64,
    /// When it was so much.
    at: u64,
}

impl Debt {
    pub fn new(amount: u64, now: u64) -> Self {
        Self { amount, at: now }
    }

    /// What is left of it when `parts` divide the refill.
    pub fn now(self, now: u64, parts: u64) -> u64 {
        let passed = now.saturating_sub(self.at);
        self.amount.saturating_sub(passed / parts.max(1))
    }

    /// What is left of it with one more, if it is at most `room` then.
    ///
    /// # Errors
    /// The time until it is.
    pub fn with_one(self, now: u64, interval: u64, room: u64) -> Result<Self, Duration> {
        let amount = self.now(now, 1).saturating_add(interval);
        if amount > room {
            return Err(Duration::from_nanos(amount - room));
        }
        Ok(Self::new(amount, now))
    }
}

/// The debts of a bounded number of keys. While there are as many, all further keys share one; no key that has a debt
/// is forgotten for another.
#[derive(Debug)]
pub(crate) struct Debts<K> {
    most: usize,
    keys: HashMap<K, Debt>,
    others: Debt,
    /// When keys were last forgotten.
    forgotten: u64,
}

impl<K: Eq + Hash> Debts<K> {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            keys: HashMap::new(),
            others: Debt::default(),
            forgotten: 0,
        }
    }

    /// Keys that have a debt, or had one lately.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_full(&self) -> bool {
        self.keys.len() >= self.most
    }

    pub fn knows<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.keys.contains_key(key)
    }

    /// The debt of the key, or of all that have none of their own.
    pub fn of<Q>(&self, key: &Q) -> Debt
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self.keys.get(key) {
            Some(debt) => *debt,
            None if self.is_full() => self.others,
            None => Debt::default(),
        }
    }

    pub fn set<Q>(&mut self, key: &Q, debt: Debt)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let is_full = self.is_full();
        if let Some(known) = self.keys.get_mut(key) {
            *known = debt;
        } else if is_full {
            self.others = debt;
        } else {
            self.keys.insert(key.to_owned(), debt);
        }
    }

    /// Forgets the keys without a debt, at most once in `interval`, because it goes through all. A forgotten key and a
    /// new one are treated alike.
    pub fn forget_idle(&mut self, now: u64, interval: u64, parts: u64) {
        if now.saturating_sub(self.forgotten) >= interval {
            self.forgotten = now;
            self.keys.retain(|_, debt| debt.now(now, parts) > 0);
        }
    }
}
