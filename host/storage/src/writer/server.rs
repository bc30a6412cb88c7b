//! The writer's connection to a PostgreSQL server.

use super::entry::WriteEntry;
use super::transaction::write;
use super::transient::is_of_database;
use super::whole_batch::{WRITE, WholeBatch};
use crate::audit_rows::{self, AuditChain, Draft, LogHead};
use crate::database::Database;
use crate::error::WriteError;
use crate::statements::OpenTransaction;
use sqlx::{AnyConnection, Connection as _};

/// Batches for which the head of the audit log is read first, after another process has moved it: a batch that is
/// chained to a former head is written in vain.
const SHARED_BATCHES: u32 = 16;

/// Has the server look rows up by their keys. A plan stays for as long as the connection, and one that was made while a
/// table was small would read all of the table later.
const PLANS: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// A connection that nothing else uses.
pub struct ServerConnection {
    connection: AnyConnection,
    /// The last row of the audit log when this connection saw it last. Another process may have added rows since.
    last_head: Option<LogHead>,
    /// Batches of [`SHARED_BATCHES`] that are left.
    shared_batches: u32,
}

impl ServerConnection {
    pub async fn open(database: &Database) -> Result<Self, sqlx::Error> {
        let mut connection = database.connect().await?;
        sqlx::raw_sql(PLANS).execute(&mut connection).await?;
        Ok(Self {
            connection,
            last_head: None,
            shared_batches: 0,
        })
    }

    /// Commits `entries`, all or nothing; if the reply is lost, it is unknown which. `durable`: the commit survives a
    /// crash of the machine.
    pub async fn commit(
        &mut self,
        durable: bool,
        entries: &mut [WriteEntry],
    ) -> Result<(), WriteError> {
        if self.commit_whole(durable, entries).await? {
            return Ok(());
        }
        let begin = if durable {
            "BEGIN"
        } else {
            "BEGIN; SET LOCAL synchronous_commit = off"
        };
        let mut transaction = self.connection.begin_with(begin).await?;
        let head = write(&mut OpenTransaction::from(&mut transaction), entries).await?;
        transaction.commit().await?;
        if head.is_some() {
            self.last_head = head;
        }
        Ok(())
    }

    /// Commits `entries` with one statement. Returns false if nothing was written, because the entries need statements of
    /// their own, or the statement found what they tell apart: a lost lease, a cancelled run, rows that are there already,
    /// or another head of the audit log.
    async fn commit_whole(
        &mut self,
        durable: bool,
        entries: &mut [WriteEntry],
    ) -> Result<bool, WriteError> {
        // The reply to an earlier attempt was lost: the log may have the rows.
        if entries.iter().any(|entry| entry.expected_head.is_some()) {
            return Ok(false);
        }
        let Some(batch) = WholeBatch::of(entries) else {
            return Ok(false);
        };
        let drafts: Vec<&Draft> = entries.iter().flat_map(WriteEntry::drafts).collect();
        let head = if drafts.is_empty() {
            LogHead::default()
        } else {
            self.head().await?
        };
        let audit = AuditChain::after(head, &drafts)?;
        let end = (audit.end != audit.head).then(|| audit.end.clone());
        let values = batch.values(audit, durable)?;
        for entry in &mut *entries {
            entry.expected_head.clone_from(&end);
        }
        let mut single = OpenTransaction::from(&mut self.connection);
        match single
            .execute(WRITE, &values)
            .await
            .map_err(WriteError::from)
        {
            Ok(_) => {
                if end.is_some() {
                    self.last_head = end;
                }
                Ok(true)
            }
            Err(error) if is_of_database(&error) => Err(error),
            Err(error) => {
                tracing::debug!(%error, "a batch is written with several statements");
                for entry in entries {
                    entry.expected_head = None;
                }
                if end.is_some() {
                    self.shared_batches = SHARED_BATCHES;
                }
                Ok(false)
            }
        }
    }

    /// The last row of the audit log, after which another process may add rows at any time.
    async fn head(&mut self) -> Result<LogHead, sqlx::Error> {
        if let (Some(head), 0) = (&self.last_head, self.shared_batches) {
            return Ok(head.clone());
        }
        let head = audit_rows::last_row(OpenTransaction::from(&mut self.connection)).await?;
        if self.last_head.as_ref() == Some(&head) {
            self.shared_batches = self.shared_batches.saturating_sub(1);
        }
        Ok(head)
    }

    /// Runs statements in a transaction.
    pub async fn run(&mut self, statements: &[&'static str]) -> Result<(), sqlx::Error> {
        let mut transaction = self.connection.begin().await?;
        for statement in statements {
            sqlx::query(*statement).execute(&mut *transaction).await?;
        }
        transaction.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::database::Location;
    use crate::store::Store;
    use crate::tests::{OUTAGE_TIMEOUT, databases};

    fn row(text: &str) -> [WriteEntry; 1] {
        let draft = Draft::module_approved("ann", "m", text);
        [WriteEntry::unawaited(Change::Audit(Box::new(draft)))]
    }

    #[tokio::test]
    async fn a_batch_that_follows_a_former_head_is_not_written() {
        for database in databases().await {
            let location = &database.location;
            if matches!(location, Location::File(_)) {
                continue;
            }
            let store = Store::open(location, OUTAGE_TIMEOUT).await.unwrap();
            let opened = Database::of(location).unwrap();
            let mut one = ServerConnection::open(&opened).await.unwrap();
            let mut two = ServerConnection::open(&opened).await.unwrap();
            assert!(one.commit_whole(true, &mut row("1")).await.unwrap());
            assert!(two.commit_whole(false, &mut row("2")).await.unwrap());
            let mut late = row("3");
            assert!(!one.commit_whole(true, &mut late).await.unwrap());
            assert_eq!(late[0].expected_head, None);
            // The head is read first from now on, until no other connection has moved it for a while.
            assert!(one.commit_whole(true, &mut late).await.unwrap());
            for _ in 0..SHARED_BATCHES {
                assert!(one.commit_whole(true, &mut row("4")).await.unwrap());
            }
            assert_eq!(one.shared_batches, 0);
            // Statements one by one take the head with its lock.
            two.commit(true, &mut row("5")).await.unwrap();
            assert!(two.commit_whole(true, &mut row("6")).await.unwrap());
            let verified = store.verify_audit(None).await.unwrap();
            assert_eq!(verified.faults, []);
            assert_eq!(verified.entries, 5 + u64::from(SHARED_BATCHES));
        }
    }
}
