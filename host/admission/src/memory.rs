//! The memory that a process keeps for others: one ceiling, and reservations under it that keys and modules share.
//!
//! Memory that is kept cannot be taken back, and nobody waits for it: who waits may keep what others wait for. So a
//! floor is all that makes it fair. A party that keeps a lot is refused while there is still room for the others.

use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of memory that may be kept at a time, or so many of anything else that is kept and cannot be taken back. Clones
/// share them.
///
/// - **Share.** A lone key may keep seven eighths. What is left of the ceiling is for parties that keep little: a key
///   may have as much of it as it leaves free, with all that it keeps already counted. So however many keys have come
///   before, the next one finds something, and no key keeps the floor from it.
/// - **Modules.** One key's modules share what it keeps. So in the first half of that eighth the same holds for a
///   module: one of which little is kept goes on although its key keeps a lot. The last half is by keys alone.
#[derive(Clone)]
pub struct MemoryCeiling(Arc<Shared>);

/// A key's memory under a [`MemoryCeiling`], or that of a module which it calls. Clones share it.
#[derive(Debug, Clone)]
pub struct MemoryShare {
    ceiling: MemoryCeiling,
    party: MemoryParty,
}

/// For whom memory is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemoryParty {
    key: Arc<str>,
    /// Absent: kept for the key itself, such as a request of it.
    module: Option<u64>,
}

struct Shared {
    ceiling: u64,
    kept: Mutex<Kept>,
}

/// Parties of which nothing is kept are forgotten, so that there are no more of them than reservations.
#[derive(Debug, Default)]
struct Kept {
    all: u64,
    by_key: HashMap<Arc<str>, u64, RandomState>,
    by_module: HashMap<u64, u64, RandomState>,
}

/// Bytes that are kept. Dropping it returns them.
pub struct MemoryReservation {
    share: MemoryShare,
    bytes: u64,
}

/// All that may be kept is taken, or all but what is left for other parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFull {
    pub ceiling: u64,
    /// What the reservation would have had with what was refused.
    pub needed: u64,
}

impl MemoryFull {
    /// What one key may have if nothing else is kept.
    pub fn most_of_one(&self) -> u64 {
        most_of_one(self.ceiling)
    }

    /// Whether it would be refused also if nothing else were kept.
    pub fn is_for_ever(&self) -> bool {
        self.needed > self.most_of_one()
    }
}

fn most_of_one(ceiling: u64) -> u64 {
    ceiling - ceiling / 8
}

impl MemoryCeiling {
    pub fn new(ceiling: u64) -> Self {
        Self(Arc::new(Shared {
            ceiling,
            kept: Mutex::default(),
        }))
    }

    /// The memory of a key: an owner of runs, or an address where there is no key.
    pub fn of(&self, key: impl Into<Arc<str>>) -> MemoryShare {
        MemoryShare {
            ceiling: self.clone(),
            party: MemoryParty {
                key: key.into(),
                module: None,
            },
        }
    }

    /// Bytes that are kept now.
    pub fn taken(&self) -> u64 {
        self.0.lock().all
    }

    /// The most bytes that may be kept.
    pub fn ceiling(&self) -> u64 {
        self.0.ceiling
    }

    /// The most bytes that one key may have, if nothing else is kept.
    pub fn most_of_one(&self) -> u64 {
        most_of_one(self.0.ceiling)
    }
}

impl MemoryShare {
    /// The same key's memory for calls of a module.
    pub fn for_module(mut self, module: u64) -> Self {
        self.party.module = Some(module);
        self
    }

    /// # Errors
    /// There is not so much left for this party.
    pub fn reserve(&self, bytes: u64) -> Result<MemoryReservation, MemoryFull> {
        self.ceiling.0.take(&self.party, bytes)?;
        Ok(MemoryReservation {
            share: self.clone(),
            bytes,
        })
    }

    /// Whether the key keeps no more than it leaves free: for work that should wait while it does.
    pub fn leaves_room(&self) -> bool {
        let shared = &self.ceiling.0;
        let kept = shared.lock();
        of(&kept.by_key, &self.party.key) <= shared.ceiling.saturating_sub(kept.all)
    }

    /// Whether both count for the same party, under the same ceiling.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ceiling.0, &other.ceiling.0) && self.party == other.party
    }

    /// The ceiling that it is a share of.
    pub fn ceiling(&self) -> &MemoryCeiling {
        &self.ceiling
    }
}

impl MemoryReservation {
    /// Reserves more, and keeps what it has if there is not so much left.
    ///
    /// # Errors
    /// As [`MemoryShare::reserve`].
    pub fn grow(&mut self, bytes: u64) -> Result<(), MemoryFull> {
        let taken = self.share.ceiling.0.take(&self.share.party, bytes);
        taken.map_err(|full| MemoryFull {
            needed: full.needed.saturating_add(self.bytes),
            ..full
        })?;
        self.bytes += bytes;
        Ok(())
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is more than `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let spare = self.bytes.saturating_sub(bytes);
        self.bytes -= spare;
        self.share.ceiling.0.give_back(&self.share.party, spare);
    }

    /// Takes over what `other` reserved for the same party, under the same ceiling. Another party's stays its own.
    pub fn join(&mut self, other: &mut Self) {
        if self.share.is(&other.share) {
            self.bytes += std::mem::take(&mut other.bytes);
        }
    }
}

impl Shared {
    fn take(&self, party: &MemoryParty, bytes: u64) -> Result<(), MemoryFull> {
        let mut kept = self.lock();
        if !kept.may_take(self.ceiling, party, bytes) {
            return Err(MemoryFull {
                ceiling: self.ceiling,
                needed: bytes,
            });
        }
        kept.all += bytes;
        add(&mut kept.by_key, &party.key, bytes);
        if let Some(module) = &party.module {
            add(&mut kept.by_module, module, bytes);
        }
        Ok(())
    }

    fn give_back(&self, party: &MemoryParty, bytes: u64) {
        let mut kept = self.lock();
        kept.all -= bytes;
        remove(&mut kept.by_key, &party.key, bytes);
        if let Some(module) = &party.module {
            remove(&mut kept.by_module, module, bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn may_take(&self, ceiling: u64, party: &MemoryParty, bytes: u64) -> bool {
        let after = self.all.saturating_add(bytes);
        let leaves = |own: u64, most: u64| {
            let free = most.checked_sub(after);
            free.is_some_and(|free| own.saturating_add(bytes) <= free)
        };
        let reserve = ceiling / 8;
        bytes == 0
            || after <= most_of_one(ceiling)
            || leaves(of(&self.by_key, &party.key), ceiling)
            || party
                .module
                .is_some_and(|module| leaves(of(&self.by_module, &module), ceiling - reserve / 2))
    }
}

fn of<K: Eq + Hash>(kept: &HashMap<K, u64, RandomState>, party: &K) -> u64 {
    kept.get(party).copied().unwrap_or_default()
}

fn add<K: Clone + Eq + Hash>(kept: &mut HashMap<K, u64, RandomState>, party: &K, bytes: u64) {
    if bytes == 0 {
        return;
    }
    match kept.get_mut(party) {
        Some(own) => *own += bytes,
        None => {
            kept.insert(party.clone(), bytes);
        }
    }
}

fn remove<K: Eq + Hash>(kept: &mut HashMap<K, u64, RandomState>, party: &K, bytes: u64) {
    if let Some(own) = kept.get_mut(party) {
        *own -= bytes;
        if *own == 0 {
            kept.remove(party);
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.share
                .ceiling
                .0
                .give_back(&self.share.party, self.bytes);
        }
    }
}

impl fmt::Debug for MemoryCeiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCeiling")
            .field("ceiling", &self.0.ceiling)
            .field("taken", &self.taken())
            .finish()
    }
}

impl fmt::Debug for MemoryReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryReservation")
            .field("party", &self.share.party)
            .field("bytes", &self.bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_dropped_is_free_and_a_refusal_takes_nothing() {
        let memory = MemoryCeiling::new(160);
        let mut first = memory.of("a").reserve(40).unwrap();
        first.grow(20).unwrap();
        let full = MemoryFull {
            ceiling: 160,
            needed: 161,
        };
        assert_eq!(first.grow(101), Err(full));
        assert!(full.is_for_ever() && full.most_of_one() == 140);
        assert!(memory.clone().of("b").reserve(101).is_err());
        assert_eq!(memory.taken(), 60);
        let mut second = memory.of("a").reserve(80).unwrap();
        assert_eq!(memory.taken(), 140);
        first.join(&mut second);
        drop(second);
        assert_eq!(memory.taken(), 140);
        // Another party's bytes are not taken over.
        let mut others = memory.of("b").reserve(5).unwrap();
        first.join(&mut others);
        drop(first);
        assert_eq!(memory.taken(), 5);
        others.shrink_to(9);
        assert_eq!((memory.taken(), others.bytes()), (5, 5));
        others.shrink_to(2);
        assert_eq!((memory.taken(), others.bytes()), (2, 2));
        drop(others);
        assert_eq!(memory.taken(), 0);
        let kept = memory.0.lock();
        assert!(kept.by_key.is_empty() && kept.by_module.is_empty());
        drop(kept);
        assert!(memory.of("a").reserve(u64::MAX).is_err());
        assert!(memory.of("a").reserve(140).is_ok());
    }

    /// Reserves one after another until it is refused, and returns how many it got.
    fn fill(share: &MemoryShare, kept: &mut Vec<MemoryReservation>) -> usize {
        let before = kept.len();
        kept.extend(std::iter::from_fn(|| share.reserve(1).ok()));
        kept.len() - before
    }

    #[test]
    fn a_key_that_keeps_all_it_may_leaves_a_floor_to_others() {
        let memory = MemoryCeiling::new(1_600);
        let mut kept = Vec::new();
        assert_eq!(fill(&memory.of("greedy"), &mut kept), 1_400);
        assert!(!memory.of("greedy").leaves_room());
        assert!(memory.of("next").leaves_room());
        // Each newcomer gets half of what is free, and the greedy one nothing of it.
        assert_eq!(fill(&memory.of("next"), &mut kept), 100);
        assert_eq!(fill(&memory.of("greedy"), &mut kept), 0);
        assert_eq!(fill(&memory.of("third"), &mut kept), 50);
        assert_eq!(fill(&memory.of("next"), &mut kept), 0);
        drop(kept);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn a_module_that_keeps_all_it_may_leaves_some_to_others_of_its_key_and_more_to_other_keys() {
        let memory = MemoryCeiling::new(1_600);
        let of = |key: &str, module| memory.of(key).for_module(module);
        let mut kept = Vec::new();
        assert_eq!(fill(&of("a", 1), &mut kept), 1_400);
        assert_eq!(fill(&of("a", 2), &mut kept), 50);
        // However many modules a key has, half of the floor is for other keys, whatever they call.
        for module in 3..100 {
            fill(&of("a", module), &mut kept);
        }
        assert!(memory.taken() <= 1_500);
        assert!(fill(&of("b", 1), &mut kept) >= 50);
    }

    proptest! {
        /// Whatever is kept and given back, no more is kept than may be, and a key of which nothing is kept gets up to
        /// half of what is free, which is never nothing.
        #[test]
        fn there_is_room_for_another_key(
            ceiling in 64_u64..10_000,
            steps in prop::collection::vec((0_u8..6, prop::option::of(0_u64..4), 1_u64..2_000, any::<bool>()), 1..200),
        ) {
            let memory = MemoryCeiling::new(ceiling);
            let mut kept: Vec<MemoryReservation> = Vec::new();
            for (key, module, bytes, gives_back) in steps {
                if gives_back && !kept.is_empty() {
                    let at = usize::try_from(bytes).unwrap() % kept.len();
                    kept.swap_remove(at);
                } else {
                    let mut share = memory.of(key.to_string());
                    if let Some(module) = module {
                        share = share.for_module(module);
                    }
                    kept.extend(share.reserve(bytes.min(ceiling)));
                }
                let sum: u64 = kept.iter().map(|it| it.bytes).sum();
                prop_assert_eq!(memory.taken(), sum);
                prop_assert!(sum <= ceiling);
                let free = ceiling - sum;
                prop_assert!(memory.of("newcomer").reserve(free / 2).is_ok());
            }
            drop(kept);
            let left = memory.0.lock();
            prop_assert!(left.all == 0 && left.by_key.is_empty() && left.by_module.is_empty());
        }
    }
}
