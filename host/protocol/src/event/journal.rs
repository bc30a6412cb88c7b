//! Journals, which record events before any reader sees them.

use super::record::Event;
use futures_util::future::BoxFuture;
use std::fmt::Debug;
use std::io;
use thiserror::Error;

/// Stores events before any reader sees them. Pieces of replies are no events of the record.
pub trait Journal: Send + Debug {
    /// Appends events, each the next after the one before: all of them, or none. When this returns, they
    /// survive the process.
    ///
    /// # Errors
    /// They cannot be recorded; or calls would begin with them and the run was cancelled: [`CancelRequested`]. Then they can
    /// be appended together with the end of the run.
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>>;

    /// Appends events as [`Self::append`] does. `lines` are their JSON texts, so that a journal of texts need not make them
    /// again.
    ///
    /// # Errors
    /// As [`Self::append`].
    fn append_with_lines<'a>(
        &'a mut self,
        events: &'a [Event],
        _lines: Vec<String>,
    ) -> BoxFuture<'a, io::Result<()>> {
        self.append(events)
    }

    /// Hears of a piece of a reply of the run itself, which is shown and not recorded
    /// ([`EventKind::is_shown_only`](super::EventKind::is_shown_only)). It must not wait.
    fn shown(&mut self, _piece: &Event) {}

    /// Returns true if a cancellation of the run was requested before this journal was opened. A resumed run does not go on
    /// then.
    fn was_cancelled(&self) -> bool {
        false
    }
}

/// Why a [`Journal`] does not record that calls begin: the run was cancelled, maybe by another process. So no call begins
/// after a cancellation that was acknowledged.
#[derive(Debug, Error)]
#[error("the run was cancelled before its next call began")]
pub struct CancelRequested;

impl CancelRequested {
    /// Whether a journal failed for this reason.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error
            .get_ref()
            .is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// Keeps nothing: for embedding and tests.
#[derive(Debug, Default)]
pub struct NoJournal;

impl Journal for NoJournal {
    fn append<'a>(&'a mut self, _: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
