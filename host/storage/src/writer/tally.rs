//! Counts of audit rows that could not be written, for the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that could not be written since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditLosses {
    /// Rows of actions that were done. They are never written.
    pub lost: u64,
    /// Rows of actions that were refused, because the row could not be written.
    pub refused: u64,
    /// Writes with rows that wait until the database works.
    pub backlog: u64,
}

/// The counts of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct AuditTally(Arc<AuditCounts>);

#[derive(Debug, Default)]
struct AuditCounts {
    lost: AtomicU64,
    refused: AtomicU64,
    backlog: AtomicU64,
}

impl AuditTally {
    /// Adds lost rows.
    pub fn lost(&self, rows: usize) {
        self.0.lost.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Adds rows whose caller was given the error.
    pub fn refused(&self, rows: usize) {
        self.0.refused.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Sets the number of writes that wait.
    pub fn waiting(&self, writes: usize) {
        self.0.backlog.store(writes as u64, Ordering::Relaxed);
    }

    pub fn now(&self) -> AuditLosses {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        AuditLosses {
            lost: count(&self.0.lost),
            refused: count(&self.0.refused),
            backlog: count(&self.0.backlog),
        }
    }
}
