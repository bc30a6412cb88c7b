//! One write of a caller.

use crate::audit_rows::{Draft, LogHead};
use crate::calls_file::CallsFile;
use crate::change::Change;
use crate::error::WriteError;
use std::any::Any;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A value that the writer drops once the entry is written or lost, such as a permit that bounds what is queued.
pub type Attachment = Box<dyn Any + Send + Sync>;

/// One write: changes that are committed together.
#[derive(Debug)]
pub struct WriteEntry {
    pub changes: Vec<Change>,
    /// The commit must survive a crash of the machine, and not only of the process.
    pub durable: bool,
    /// Where the caller waits for the result; absent for an entry that no caller awaits.
    pub done: Option<oneshot::Sender<Result<(), Arc<WriteError>>>>,
    #[expect(
        dead_code,
        reason = "dropped with the entry, when it is written or lost"
    )]
    pub attachment: Option<Attachment>,
    /// Expected log head if the commit succeeded but its reply was lost.
    pub expected_head: Option<LogHead>,
}

impl WriteEntry {
    pub fn unawaited(change: Change) -> Self {
        Self {
            changes: vec![change],
            durable: false,
            done: None,
            attachment: None,
            expected_head: None,
        }
    }

    /// Its rows for the audit log.
    pub fn drafts(&self) -> impl Iterator<Item = &Draft> {
        self.changes.iter().filter_map(|change| match change {
            Change::Audit(draft) => Some(&**draft),
            _ => None,
        })
    }

    /// The call of no run that has ended with this entry, and its row.
    pub fn ended_call(&self) -> Option<(&str, &Draft)> {
        let call = self.changes.iter().find_map(|change| match change {
            Change::CallEnded { call } => Some(call.as_str()),
            _ => None,
        })?;
        Some((call, self.drafts().next()?))
    }

    /// Notes the calls that have ended, now that it is committed.
    pub fn note_ends(&self, calls: &CallsFile) {
        if let Some((number, _)) = &self.expected_head {
            calls.note_row(*number);
        }
        for change in &self.changes {
            if let Change::CallEnded { call } = change {
                calls.ended(call);
            }
        }
    }

    /// Whether committing it always changes the database.
    pub fn is_a_write(&self) -> bool {
        let mut changes = self.changes.iter();
        changes.any(|change| {
            matches!(
                change,
                Change::Events { .. } | Change::Audit(_) | Change::CallBegan(_)
            )
        })
    }

    /// Whether it is an audit row of a result that was already given out: such a row must not be lost.
    pub fn is_owed(&self) -> bool {
        self.done.is_none() && self.drafts().next().is_some()
    }
}
