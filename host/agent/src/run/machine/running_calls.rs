//! The calls that run: those of the step, and those in the background, without whose results the run goes
//! on.

use super::Work;
use std::collections::BTreeMap;
use toolhold_protocol::solution::Call;

/// The calls of one run that are under way.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    /// Of the step and in the background.
    count: usize,
    /// By id.
    background: BTreeMap<String, Background>,
}

/// A call in the background.
#[derive(Debug)]
pub(super) struct Background {
    pub call: Call,
    pub work: Work,
}

impl RunningCalls {
    /// Whether another one may begin, where `most` may run at the same time.
    pub fn has_room(&self, most: usize) -> bool {
        self.count < most.max(1)
    }

    pub fn begin(&mut self) {
        self.count += 1;
    }

    pub fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// The process that ran them ended, and so many were begun again.
    pub fn restart(&mut self, count: usize) {
        self.count = count;
    }

    /// The run goes on without the result of a call that was begun.
    pub fn detach(&mut self, call: Call, work: Work) {
        let id = call.id.clone();
        self.background.insert(id, Background { call, work });
    }

    /// A call in the background that is over.
    pub fn take(&mut self, id: &str) -> Option<Background> {
        self.background.remove(id)
    }

    pub fn background(&self) -> impl Iterator<Item = &Background> {
        self.background.values()
    }

    pub fn has_background(&self) -> bool {
        !self.background.is_empty()
    }
}
