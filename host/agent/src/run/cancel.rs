//! Cancelling a run from outside, with the reason that its last event gives.

use std::sync::{Arc, OnceLock};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Cancels a run, which still ends with the event `done`. Clones cancel the same run.
#[derive(Debug, Clone, Default)]
pub struct RunCancel {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

impl RunCancel {
    /// Cancels the run without a reason: a person asked for it.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Cancels the run for a reason that its readers are shown. The first reason holds.
    pub fn cancel_because(&self, reason: impl Into<String>) {
        if !self.token.is_cancelled() {
            // Another reason that came first holds.
            let _ = self.reason.set(reason.into());
        }
        self.token.cancel();
    }

    /// True after the first call of `cancel` or `cancel_because`.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Cancels the run when the guard is dropped.
    pub fn drop_guard(self) -> DropGuard {
        self.token.drop_guard()
    }

    /// Waits until the run is cancelled. Returns the reason, if there is one.
    pub(in crate::run) async fn cancelled(&self) -> Option<String> {
        self.token.cancelled().await;
        self.reason.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_of_a_cancellation_holds() {
        let cancel = RunCancel::default();
        cancel.cancel_because("the key was revoked");
        cancel.cancel_because("the key has expired");
        cancel.cancel();
        assert_eq!(
            cancel.cancelled().await.as_deref(),
            Some("the key was revoked")
        );
        let asked = RunCancel::default();
        asked.cancel();
        asked.cancel_because("the key has expired");
        assert_eq!(asked.cancelled().await, None, "a person asked for it first");
    }
}
