//! Tells running calls that what they run under was taken back.

use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;
use tokio::sync::Notify;

/// Whether what a call began under still holds. Taken back once, it never holds again: what is approved anew
/// has another one.
#[derive(Debug, Default)]
pub(crate) struct Revocation {
    is_revoked: AtomicBool,
    told: Notify,
}

/// What a host call fails with after the revocation. Ends the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("what the call may use was taken back")]
pub(crate) struct Revoked;

impl Revocation {
    /// Ends the calls that run under it.
    pub fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    /// Whether it still holds: the first thing that a host call asks which reaches something.
    ///
    /// # Errors
    /// It does not.
    pub fn check(&self) -> Result<(), Revoked> {
        if self.is_revoked.load(Ordering::Acquire) {
            return Err(Revoked);
        }
        Ok(())
    }

    /// Completes when it is revoked.
    pub async fn revoked(&self) {
        // Made before the look, so that no revocation is missed.
        let told = self.told.notified();
        if self.check().is_ok() {
            told.await;
        }
    }
}
