//! The end of a run, about which its calls ask before they begin.

use crate::run::cancel::RunCancel;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use toolhold_policy::BeginCheck;

/// The end of a run, for its calls and for the runs inside of it.
#[derive(Debug)]
pub(super) struct RunEnd {
    is_noted: AtomicBool,
    cancel: RunCancel,
    /// The run around this one, or the right of its key.
    outer: Option<Arc<dyn BeginCheck>>,
}

impl RunEnd {
    pub fn new(cancel: RunCancel, outer: Option<Arc<dyn BeginCheck>>) -> Self {
        Self {
            is_noted: AtomicBool::new(false),
            cancel,
            outer,
        }
    }

    /// Notes that the run has ended, or is stopped.
    pub fn note(&self) {
        self.is_noted.store(true, Ordering::Release);
    }
}

impl BeginCheck for RunEnd {
    fn may_begin(&self) -> bool {
        !self.is_noted.load(Ordering::Acquire)
            && !self.cancel.is_cancelled()
            && self.outer.as_ref().is_none_or(|outer| outer.may_begin())
    }
}
