//! Writing to, searching, verifying and shortening the audit log.

mod expire;
mod open_calls;
mod redact;
mod search;
mod verify;

pub use expire::ExpireError;
#[cfg(test)]
pub use open_calls::AbandonedRun;
#[cfg(test)]
pub use search::statement;
pub use search::{Entry, Filter, PageStart};
pub use verify::{AuditFault, Verified};

use crate::audit_rows::{self, Draft};
use crate::change::Change;
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Attachment, StartedWrite};

/// How safe a row is when the write of [`Store::audit_call`] ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// In the writer's queue: the row outlasts an outage of the database, but not the process.
    Queued,
    /// Written: the row survives a crash of the process.
    Written,
    /// On disk: the row survives a crash of the machine.
    OnDisk,
}

impl Store {
    /// Writes a row that follows from no event of a run, and returns when it is committed.
    pub async fn audit(&self, draft: Draft) -> Result<(), StoreError> {
        let work = self.transact(move |transaction| {
            Box::pin(async move { Ok(audit_rows::append(transaction, &[&draft]).await?) })
        });
        work.await
    }

    /// Begins to write the row of the call `call`, which belongs to no run, in one transaction with other writes of that
    /// moment, and to forget that it has begun. The `attachment` is dropped when the row is written or lost.
    pub fn audit_call(
        &self,
        call: &str,
        draft: Draft,
        durability: Durability,
        attachment: Attachment,
    ) -> StartedWrite {
        let row = Change::Audit(Box::new(draft));
        let ended = || Change::CallEnded { call: call.into() };
        match durability {
            // Its begin was not written.
            Durability::Queued => self.writer.queue(row, attachment),
            Durability::Written => {
                let changes = vec![ended(), row];
                self.writer.begin_write(changes, false, attachment)
            }
            Durability::OnDisk => {
                let changes = vec![ended(), row];
                self.writer.begin_write(changes, true, attachment)
            }
        }
    }
}
