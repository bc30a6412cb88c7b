//! The memory that a process keeps for others: one ceiling, and reservations under it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of memory that may be kept at a time. Clones share them.
#[derive(Clone)]
pub struct MemoryCeiling(Arc<Shared>);

struct Shared {
    ceiling: u64,
    taken: AtomicU64,
}

/// Bytes that are kept. Dropping it returns them.
pub struct MemoryReservation {
    shared: Arc<Shared>,
    bytes: u64,
}

/// All that may be kept is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFull {
    pub ceiling: u64,
}

impl MemoryCeiling {
    pub fn new(ceiling: u64) -> Self {
        Self(Arc::new(Shared {
            ceiling,
            taken: AtomicU64::new(0),
        }))
    }

    /// # Errors
    /// There is not so much left. Nothing waits for memory: who waits may keep what others wait for.
    pub fn reserve(&self, bytes: u64) -> Result<MemoryReservation, MemoryFull> {
        self.0.take(bytes)?;
        Ok(MemoryReservation {
            shared: self.0.clone(),
            bytes,
        })
    }

    /// Bytes that are kept now.
    pub fn taken(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }
}

impl MemoryReservation {
    /// Reserves more, and keeps what it has if there is not so much left.
    ///
    /// # Errors
    /// As [`MemoryCeiling::reserve`].
    pub fn grow(&mut self, bytes: u64) -> Result<(), MemoryFull> {
        self.shared.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Takes over what `other` reserved under the same ceiling.
    pub fn join(&mut self, other: &mut Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Shared {
    fn take(&self, bytes: u64) -> Result<(), MemoryFull> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if taken.saturating_add(bytes) > self.ceiling {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            return Err(MemoryFull {
                ceiling: self.ceiling,
            });
        }
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.shared.taken.fetch_sub(self.bytes, Ordering::Relaxed);
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
        f.debug_tuple("MemoryReservation")
            .field(&self.bytes)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_free_and_a_refusal_takes_nothing() {
        let memory = MemoryCeiling::new(100);
        let mut first = memory.reserve(40).unwrap();
        first.grow(20).unwrap();
        assert_eq!(first.grow(41), Err(MemoryFull { ceiling: 100 }));
        assert!(memory.clone().reserve(41).is_err());
        assert_eq!(memory.taken(), 60);
        let second = memory.reserve(40).unwrap();
        assert_eq!(memory.taken(), 100);
        drop((first, second));
        assert_eq!(memory.taken(), 0);
        assert!(memory.reserve(u64::MAX).is_err());
        assert!(memory.reserve(100).is_ok());
    }
}
