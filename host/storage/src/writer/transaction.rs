//! One transaction of the writer.

use super::entry::WriteEntry;
use super::server::ServerConnection;
use crate::audit_rows::{self, Draft, LogHead};
use crate::change::write_calls;
use crate::database::Database;
use crate::error::WriteError;
use crate::statements::{NativeConnection, OpenTransaction};

/// The writer's connection.
pub enum WriterConnection {
    /// A SQLite file: statements run in the thread of the writer.
    File(NativeConnection),
    /// A PostgreSQL server.
    Server(ServerConnection),
}

impl WriterConnection {
    pub async fn open(database: &Database) -> Result<Self, sqlx::Error> {
        Ok(match database.native() {
            Some(opened) => Self::File(opened?),
            None => Self::Server(ServerConnection::open(database).await?),
        })
    }

    /// True if no transaction is open. sqlx undoes one that was dropped before the next statement.
    pub fn has_no_transaction(&self) -> bool {
        match self {
            Self::File(connection) => connection.has_no_transaction(),
            Self::Server(_) => true,
        }
    }

    /// Commits `entries`, all or nothing; if the reply to the commit is lost, it is unknown which. `durable`: the commit
    /// survives a crash of the machine.
    pub async fn commit(
        &mut self,
        durable: bool,
        entries: &mut [WriteEntry],
    ) -> Result<(), WriteError> {
        // A caller that only waits for what was queued before. A database that cannot be written has no lock for writes.
        if entries.iter().all(|entry| entry.changes.is_empty()) {
            return Ok(());
        }
        match self {
            Self::File(connection) => {
                connection.begin(durable)?;
                let mut transaction = OpenTransaction::Native(connection);
                let mut written = write(&mut transaction, entries).await.map(drop);
                if written.is_ok() {
                    written = connection.commit().map_err(WriteError::from);
                }
                if written.is_err() {
                    connection.roll_back();
                }
                written
            }
            Self::Server(connection) => connection.commit(durable, entries).await,
        }
    }

    /// Tests whether the database can be written, with a write that changes nothing.
    pub async fn probe(&mut self) -> Result<(), sqlx::Error> {
        // SQLite skips an update that leaves a row as it is, so the row is changed and changed back.
        let statements = [
            "UPDATE audit_head SET number = number + 1",
            "UPDATE audit_head SET number = number - 1",
        ];
        match self {
            Self::File(connection) => {
                connection.begin(true)?;
                let probed = statements
                    .into_iter()
                    .try_for_each(|statement| connection.execute(statement, &[]).map(drop));
                let probed = probed.and_then(|()| connection.commit());
                if probed.is_err() {
                    connection.roll_back();
                }
                probed
            }
            Self::Server(connection) => connection.run(&statements).await,
        }
    }
}

/// Runs the statements of `entries`. Returns the new head of the audit log if rows were added to it.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    entries: &mut [WriteEntry],
) -> Result<Option<LogHead>, WriteError> {
    let changes = || entries.iter().flat_map(|entry| &entry.changes);
    for change in changes() {
        change.write(transaction).await?;
    }
    write_calls(transaction, changes()).await?;
    // Last, because the audit log is locked from here until the commit.
    Ok(append_audit(transaction, entries).await?)
}

/// Adds the audit rows of `entries`, less those that the log holds because the reply to an earlier commit was lost.
/// Returns the new head if rows were added.
async fn append_audit(
    transaction: &mut OpenTransaction<'_>,
    entries: &mut [WriteEntry],
) -> Result<Option<LogHead>, sqlx::Error> {
    if entries.iter().all(|entry| entry.drafts().next().is_none()) {
        return Ok(None);
    }
    // An earlier attempt of ours has succeeded or failed by now: it would still hold this lock.
    let head = audit_rows::lock_head(&mut *transaction).await?;
    let mut failed = None;
    for entry in &mut *entries {
        let Some(expected) = &entry.expected_head else {
            continue;
        };
        if failed.as_ref() == Some(expected) || !audit_rows::contains(transaction, expected).await?
        {
            failed = entry.expected_head.take();
        }
    }
    let is_new = |entry: &&mut WriteEntry| entry.expected_head.is_none();
    let new: Vec<&mut WriteEntry> = entries.iter_mut().filter(is_new).collect();
    let drafts: Vec<&Draft> = new.iter().flat_map(|entry| entry.drafts()).collect();
    let end = audit_rows::append_after(&mut *transaction, head, &drafts).await?;
    for entry in new {
        entry.expected_head.clone_from(&end);
    }
    Ok(end)
}
