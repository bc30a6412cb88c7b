//! One transaction of the writer.

use super::entry::WriteEntry;
use crate::audit_rows::{self, Draft};
use crate::change::{Change, write_calls};
use crate::database::Database;
use crate::error::WriteError;
use sqlx::AnyConnection;

/// The writer's connection.
pub struct WriterConnection {
    pub connection: AnyConnection,
    /// Whether a transaction was committed on it.
    pub has_committed: bool,
    /// SQLite: whether commits survive a crash of the machine, as set last.
    durable: Option<bool>,
}

impl WriterConnection {
    pub async fn open(database: &Database) -> Result<Self, sqlx::Error> {
        Ok(Self {
            connection: database.connect().await?,
            has_committed: false,
            durable: None,
        })
    }

    /// Commits `changes` and then `entries`, all or nothing; if the reply to the commit is lost, it is unknown which.
    /// `again`: changes of an earlier commit that the database may have lost.
    pub async fn commit(
        &mut self,
        is_file: bool,
        durable: bool,
        again: &[Change],
        entries: &mut [WriteEntry],
    ) -> Result<(), WriteError> {
        if is_file {
            self.set_durable(durable).await?;
        }
        let changes = || entries.iter().flat_map(|entry| &entry.changes);
        // One statement, which is a transaction of its own: each further one costs as much as it does.
        if is_file && again.is_empty() && changes().all(|it| matches!(it, Change::CallBegan(_))) {
            return Ok(write_calls(&mut self.connection, is_file, changes()).await?);
        }
        let mut transaction = sqlx::Connection::begin(&mut self.connection).await?;
        if !is_file && !durable {
            sqlx::query("SET LOCAL synchronous_commit = off")
                .execute(&mut *transaction)
                .await?;
        }
        for change in again {
            // Another error says that another process has taken the run over. It refuses our later events, too.
            if let Err(WriteError::Database(error)) = change.write(&mut transaction, is_file).await
            {
                return Err(error.into());
            }
        }
        for change in changes() {
            change.write(&mut transaction, is_file).await?;
        }
        write_calls(&mut transaction, is_file, changes()).await?;
        // Last, because the audit log is locked from here until the commit.
        append_audit(&mut transaction, entries).await?;
        Ok(transaction.commit().await?)
    }

    /// SQLite: a killed process loses nothing at either level, a crashed machine may lose what was not durable.
    async fn set_durable(&mut self, durable: bool) -> Result<(), sqlx::Error> {
        if self.durable != Some(durable) {
            let level = if durable {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            };
            sqlx::query(level).execute(&mut self.connection).await?;
            self.durable = Some(durable);
        }
        Ok(())
    }
}

/// Adds the audit rows of `entries`, less those that the log holds because the reply to an earlier commit was lost.
async fn append_audit(
    connection: &mut AnyConnection,
    entries: &mut [WriteEntry],
) -> Result<(), sqlx::Error> {
    if entries.iter().all(|entry| entry.drafts().next().is_none()) {
        return Ok(());
    }
    // An earlier attempt of ours has succeeded or failed by now: it would still hold this lock.
    let head = audit_rows::lock_head(connection).await?;
    let mut failed = None;
    for entry in &mut *entries {
        let Some(expected) = &entry.expected_head else {
            continue;
        };
        if failed.as_ref() == Some(expected) || !audit_rows::contains(connection, expected).await? {
            failed = entry.expected_head.take();
        }
    }
    let is_new = |entry: &&mut WriteEntry| entry.expected_head.is_none();
    let new: Vec<&mut WriteEntry> = entries.iter_mut().filter(is_new).collect();
    let drafts: Vec<&Draft> = new.iter().flat_map(|entry| entry.drafts()).collect();
    let end = audit_rows::append_after(connection, head, &drafts).await?;
    for entry in new {
        entry.expected_head.clone_from(&end);
    }
    Ok(())
}

/// Tests whether the database can be written, with a write that changes nothing.
pub async fn probe(database: &Database) -> Result<(), sqlx::Error> {
    let mut connection = database.connect().await?;
    let mut transaction = sqlx::Connection::begin(&mut connection).await?;
    // SQLite skips an update that leaves a row as it is, so the row is changed and changed back.
    for statement in [
        "UPDATE audit_head SET number = number + 1",
        "UPDATE audit_head SET number = number - 1",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
