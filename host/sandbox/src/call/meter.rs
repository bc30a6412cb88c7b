//! The usage of a running call, and the limit that refused more.

use super::capture::Printed;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use toolhold_admission::{MemoryFull, MemoryReservation, MemoryShare};
use toolhold_policy::CallError;
use toolhold_policy::limits::Limits;

/// A limit that refuses something to a guest without ending it: the guest gets an error that its
/// language knows (a failed allocation, a full disk) and may cope. If it does not, this is what the
/// call died of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedResource {
    Memory,
    Table,
    Quota,
    HostBytes,
    KeptBytes { limit: u64 },
    HostFull { ceiling: u64 },
    Descriptors,
}

/// What host calls have moved for one call, what the host keeps for it, and what it printed. Clones share all of it.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<GaugeInner>);

#[derive(Debug)]
struct GaugeInner {
    limit: u64,
    moved: AtomicU64,
    kept_limit: u64,
    kept: AtomicU64,
    /// Of what all calls may keep together.
    share: MemoryShare,
    refused: Mutex<Option<RefusedResource>>,
    /// Here, so that a call allocates once for all that it shares.
    printed: Printed,
}

/// The call moved more bytes through host calls than it may. Ends the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("host calls moved more than {limit} bytes")]
pub struct TooManyBytes {
    limit: u64,
}

/// Bytes of the host's memory that are kept for a call. Dropping it says that they are free.
#[derive(Debug)]
pub struct KeptBytes {
    gauge: Gauge,
    reservation: MemoryReservation,
    bytes: u64,
}

/// Arguments that are not counted.
const SMALL_ARGUMENT_BYTES: u64 = 16 << 10;

/// Most random bytes of one host call: the host makes them all before the guest gets one.
pub const MAX_RANDOM_BYTES: u64 = 1 << 20;

/// The guest asked for more than [`MAX_RANDOM_BYTES`]. Ends it: the interface has no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_RANDOM_BYTES} random bytes were asked for at once")]
pub struct TooMuchRandomness;

/// The host may not keep so much more. Ends the guest, unless the host call has an error that says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeptTooMuch {
    #[error("the host keeps more than {limit} bytes for the call")]
    Call { limit: u64 },
    #[error("the host keeps all that it may for this caller, of {ceiling} bytes for all")]
    Host { ceiling: u64 },
    #[error(
        "the arguments take {needed} bytes or more as the tool's types, and one caller may have {most} (modules.kept_bytes)"
    )]
    Arguments { needed: u64, most: u64 },
}

impl From<KeptTooMuch> for CallError {
    fn from(kept: KeptTooMuch) -> Self {
        match kept {
            KeptTooMuch::Call { limit } => Self::KeptBytes { limit },
            KeptTooMuch::Host { ceiling } => Self::HostFull { ceiling },
            KeptTooMuch::Arguments { .. } => Self::Arguments {
                reason: kept.to_string(),
            },
        }
    }
}

impl Gauge {
    /// For a call that may move `limits.host_bytes` and keep `limits.kept_bytes`, the latter of its caller's and
    /// module's `share` of what all calls may keep.
    pub fn new(limits: &Limits, share: MemoryShare) -> Self {
        Self(Arc::new(GaugeInner {
            limit: limits.host_bytes,
            moved: AtomicU64::new(0),
            kept_limit: limits.kept_bytes,
            kept: AtomicU64::new(0),
            share,
            refused: Mutex::default(),
            printed: Printed::new(limits.capture_bytes),
        }))
    }

    /// Counts memory of the host, until the answer is dropped.
    ///
    /// # Errors
    /// The host may not keep so much more, for this call or for all.
    pub fn keep(&self, bytes: u64) -> Result<KeptBytes, KeptTooMuch> {
        self.take(bytes)?;
        let reservation = self.0.share.reserve(bytes).map_err(|full| {
            self.0.kept.fetch_sub(bytes, Ordering::Relaxed);
            self.full(full)
        })?;
        Ok(KeptBytes {
            gauge: self.clone(),
            reservation,
            bytes,
        })
    }

    /// Counts the arguments of the call in the form that the guest takes, of what all calls may keep. Their size is
    /// bounded by `argument_bytes`, so they do not count in what the call may keep. Small ones are not counted: no more
    /// calls run than there are places.
    ///
    /// # Errors
    /// The host may not keep so much more, now or ever.
    pub fn keep_arguments(&self, bytes: u64) -> Result<Option<MemoryReservation>, KeptTooMuch> {
        if bytes <= SMALL_ARGUMENT_BYTES {
            return Ok(None);
        }
        let reserved = self.0.share.reserve(bytes);
        reserved.map(Some).map_err(|full| {
            if full.is_for_ever() {
                let (needed, most) = (full.needed, full.most_of_one());
                return KeptTooMuch::Arguments { needed, most };
            }
            self.full(full)
        })
    }

    /// The most bytes of arguments that [`Self::keep_arguments`] may ever take: more need not be counted exactly.
    pub fn most_of_arguments(&self) -> u64 {
        let most = self.0.share.ceiling().most_of_one();
        most.max(SMALL_ARGUMENT_BYTES)
    }

    fn take(&self, bytes: u64) -> Result<(), KeptTooMuch> {
        let before = self.0.kept.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.0.kept_limit {
            self.0.kept.fetch_sub(bytes, Ordering::Relaxed);
            let limit = self.0.kept_limit;
            self.refuse(RefusedResource::KeptBytes { limit });
            return Err(KeptTooMuch::Call { limit });
        }
        Ok(())
    }

    fn full(&self, full: MemoryFull) -> KeptTooMuch {
        let ceiling = full.ceiling;
        self.refuse(RefusedResource::HostFull { ceiling });
        KeptTooMuch::Host { ceiling }
    }

    /// Counts bytes that a host call moves.
    ///
    /// # Errors
    /// When the call has moved too many.
    pub fn moved(&self, bytes: u64) -> Result<(), TooManyBytes> {
        let before = self.0.moved.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.0.limit {
            self.refuse(RefusedResource::HostBytes);
            return Err(TooManyBytes {
                limit: self.0.limit,
            });
        }
        Ok(())
    }

    pub fn total(&self) -> u64 {
        self.0.moved.load(Ordering::Relaxed)
    }

    pub fn printed(&self) -> &Printed {
        &self.0.printed
    }

    /// Remembers that a limit said no; the last one counts.
    pub fn refuse(&self, what: RefusedResource) {
        *self.0.refused.lock() = Some(what);
    }

    pub fn refused(&self) -> Option<RefusedResource> {
        *self.0.refused.lock()
    }
}

impl KeptBytes {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts what `other` did, of the same call.
    pub fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.reservation.join(&mut other.reservation);
    }

    /// Counts more.
    ///
    /// # Errors
    /// As [`Gauge::keep`]; what was kept stays counted.
    pub fn grow(&mut self, bytes: u64) -> Result<(), KeptTooMuch> {
        self.gauge.take(bytes)?;
        if let Err(full) = self.reservation.grow(bytes) {
            self.gauge.0.kept.fetch_sub(bytes, Ordering::Relaxed);
            return Err(self.gauge.full(full));
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.gauge.0.kept.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_admission::MemoryCeiling;

    fn limits(kept_bytes: u64) -> Limits {
        Limits {
            kept_bytes,
            ..Limits::default()
        }
    }

    #[test]
    fn a_call_keeps_what_it_may_and_all_calls_what_they_may() {
        // Of 168 bytes, a caller that keeps much is left seven eighths.
        let ceiling = MemoryCeiling::new(168);
        let first = Gauge::new(&limits(100), ceiling.of("a"));
        let mut kept = first.keep(60).unwrap();
        kept.grow(30).unwrap();
        assert_eq!(kept.grow(11), Err(KeptTooMuch::Call { limit: 100 }));
        let refused = RefusedResource::KeptBytes { limit: 100 };
        assert_eq!(first.refused(), Some(refused));
        let second = Gauge::new(&limits(100), ceiling.of("a"));
        let mut other = second.keep(57).unwrap();
        let full = KeptTooMuch::Host { ceiling: 168 };
        assert_eq!(other.grow(1), Err(full));
        assert_eq!(second.keep(1).unwrap_err(), full);
        let refused = RefusedResource::HostFull { ceiling: 168 };
        assert_eq!(second.refused(), Some(refused));
        assert_eq!(
            (kept.bytes(), other.bytes(), ceiling.taken()),
            (90, 57, 147)
        );
        // Another caller's call goes on meanwhile.
        let third = Gauge::new(&limits(100), ceiling.of("b"));
        assert!(third.keep(10).is_ok());
        drop(kept);
        other.grow(43).unwrap();
        assert_eq!(ceiling.taken(), 100);
        drop(other);
        assert_eq!(ceiling.taken(), 0);
        assert!(first.keep(100).is_ok());
    }
}
