//! Replies that models are writing, for readers in other processes than the one that drives the run.

use crate::claims::RunLease;
use crate::error::WriteError;
use crate::statements::{OpenTransaction, SqlValue};
use std::fmt::{self, Formatter};
use std::sync::{Arc, Weak};
use uuid::Uuid;

/// Sets the part $2 of the run $1, if the run has this lease and has not ended. On PostgreSQL, `FOR SHARE` makes a process
/// that takes the run over wait for this transaction, or this transaction for it. PostgreSQL, SQLite.
const SET: [&str; 2] = [
    "INSERT INTO reply_parts (run, part) SELECT $1, $2 \
     WHERE EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $3 AND fence = $4 AND ended_ms IS NULL FOR SHARE) \
     ON CONFLICT (run) DO UPDATE SET part = excluded.part",
    "INSERT INTO reply_parts (run, part) SELECT $1, $2 \
     WHERE EXISTS (SELECT 1 FROM runs WHERE id = $1 AND holder = $3 AND fence = $4 AND ended_ms IS NULL) \
     ON CONFLICT (run) DO UPDATE SET part = excluded.part",
];

/// A reply so far, as JSON, on its way to the database.
pub struct ReplyPart {
    text: String,
    /// Dropped with the part, once it is written or lost.
    _queued: Arc<()>,
}

impl ReplyPart {
    /// A part, and a sign that is gone once the part is.
    pub fn new(text: String) -> (Self, Weak<()>) {
        let queued = Arc::new(());
        let sign = Arc::downgrade(&queued);
        let part = Self {
            text,
            _queued: queued,
        };
        (part, sign)
    }

    /// The reply, as JSON.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Without the text, because changes that were not written are logged.
impl fmt::Debug for ReplyPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyPart")
            .field("bytes", &self.text.len())
            .finish_non_exhaustive()
    }
}

/// Writes a part, for the process that has the lease.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    part: &ReplyPart,
    lease: &RunLease,
) -> Result<(), WriteError> {
    let values = [
        SqlValue::from(run),
        part.text.as_str().into(),
        (&lease.holder).into(),
        lease.fence.into(),
    ];
    let statement = transaction.choose(SET);
    transaction.execute(statement, &values).await?;
    Ok(())
}

/// Takes the part of a run away.
pub async fn remove(transaction: &mut OpenTransaction<'_>, run: Uuid) -> Result<(), WriteError> {
    transaction
        .execute("DELETE FROM reply_parts WHERE run = $1", &[run.into()])
        .await?;
    Ok(())
}
