//! Replies that models are writing, for readers in other processes than the one that drives the run.

use crate::claims::RunLease;
use crate::error::WriteError;
use crate::statements::{OpenTransaction, SqlValue};
use uuid::Uuid;

/// Sets the part $2 of the run $1, if the run has this lease and has not ended.
const SET: &str = "INSERT INTO reply_parts (run, part) SELECT id, $2 FROM runs \
     WHERE id = $1 AND holder = $3 AND fence = $4 AND ended_ms IS NULL \
     ON CONFLICT (run) DO UPDATE SET part = excluded.part";

/// Writes a part, for the process that has the lease.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    part: &str,
    lease: &RunLease,
) -> Result<(), WriteError> {
    let values = [
        SqlValue::from(run),
        part.into(),
        (&lease.holder).into(),
        lease.fence.into(),
    ];
    transaction.execute(SET, &values).await?;
    Ok(())
}

/// Takes the part of a run away.
pub async fn remove(transaction: &mut OpenTransaction<'_>, run: Uuid) -> Result<(), WriteError> {
    transaction
        .execute("DELETE FROM reply_parts WHERE run = $1", &[run.into()])
        .await?;
    Ok(())
}
