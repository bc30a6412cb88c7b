//! The memory of a request: its body, images and documents that are fetched for it, and images of earlier runs that are
//! read again. All of it counts in the share of its client (`modules.kept_bytes`) as one, so that a refusal says what the
//! request needs in all.

use crate::http::error::ApiError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_admission::{MemoryFull, MemoryReservation, MemoryShare};
use toolhold_connections::no_memory;

/// The memory that is kept until the request is handled. Clones share it.
#[derive(Debug, Clone)]
pub struct RequestMemory {
    share: MemoryShare,
    kept: Arc<Mutex<MemoryReservation>>,
}

impl RequestMemory {
    /// # Errors
    /// Never: nothing is kept yet.
    pub fn new(share: MemoryShare) -> Result<Self, ApiError> {
        let kept = share.reserve(0).map_err(no_room)?;
        Ok(Self {
            share,
            kept: Arc::new(Mutex::new(kept)),
        })
    }

    /// Reserves bytes until the request is handled, before they are kept.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn keep(&self, bytes: u64) -> Result<(), ApiError> {
        self.kept().grow(bytes).map_err(no_room)
    }

    fn kept(&self) -> MutexGuard<'_, MemoryReservation> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what was reserved for the body.
    pub fn take_over(&self, mut body: MemoryReservation) {
        self.kept().join(&mut body);
    }

    /// An empty reservation in the same share, for bytes that are kept for a shorter time.
    ///
    /// # Errors
    /// Never: nothing is kept in it yet.
    pub fn for_a_while(&self) -> Result<MemoryReservation, ApiError> {
        self.share.reserve(0).map_err(no_room)
    }
}

/// The error of an image or a document without memory for it.
pub fn no_room(full: MemoryFull) -> ApiError {
    let message = format!(
        "images or documents of the request were not read: {}",
        no_memory(full)
    );
    if full.is_for_ever() {
        ApiError::payload_too_large(message)
    } else {
        ApiError::unavailable(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_admission::MemoryCeiling;

    #[test]
    fn a_refusal_says_what_the_whole_request_needs() {
        let ceiling = MemoryCeiling::new(8_000);
        let memory = RequestMemory::new(ceiling.of("ada")).unwrap();
        memory.take_over(ceiling.of("ada").reserve(4_000).unwrap());
        memory.keep(1_000).unwrap();
        assert_eq!(ceiling.taken(), 5_000);
        let refused = memory.keep(2_500).unwrap_err();
        // One key may have 7000 bytes.
        assert!(
            refused.message().contains("it needs 7500 bytes"),
            "{refused:?}"
        );
        let mut fetched = memory.for_a_while().unwrap();
        fetched.grow(2_000).unwrap();
        assert_eq!(ceiling.taken(), 7_000);
        assert!(fetched.grow(1_000).is_err());
        drop(fetched);
        let copy = memory.clone();
        drop(memory);
        assert_eq!(ceiling.taken(), 5_000);
        drop(copy);
        assert_eq!(ceiling.taken(), 0);
    }
}
