//! The tokens of a run and of all its sub-agents: several run at the same time, each with what was left
//! when it began, and together they must not take it several times.

use crate::event::EventKind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what a run and its sub-agents take.
#[derive(Debug, Default)]
pub(super) struct Purse {
    budget: Option<u64>,
    spent: AtomicU64,
}

impl Purse {
    pub fn new(budget: Option<u64>, spent: u64) -> Self {
        Self {
            budget,
            spent: AtomicU64::new(spent),
        }
    }

    /// Notes what an event of the run itself, or of one of its sub-agents, says about tokens. Each is
    /// to be noted once, where it happened.
    pub fn note(&self, event: &EventKind) {
        if let EventKind::Tokens {
            prompt, completion, ..
        } = event
        {
            let tokens = prompt.unwrap_or(0).saturating_add(completion.unwrap_or(0));
            self.spent.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.budget
            .is_some_and(|budget| self.spent.load(Ordering::Relaxed) >= budget)
    }
}
