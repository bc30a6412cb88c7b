//! The writer's connection to a PostgreSQL server.

use super::entry::WriteEntry;
use super::transaction::write;
use super::transient::is_of_database;
use super::whole_batch::{WRITE, WholeBatch};
use crate::audit_rows::{self, AuditChain, Draft, LogHead};
use crate::change::Change;
use crate::database::Database;
use crate::error::WriteError;
use crate::statements::OpenTransaction;
use sqlx::{AnyConnection, Connection as _};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Time for which a connection is careful after another process has moved the head of the audit log. A batch that is chained
/// to a former head is written in vain, and the server has the whole statement in its log as one that failed: that must stay
/// rare.
const CAREFUL_TIME: Duration = Duration::from_secs(10);

/// Most digests of shared texts that a connection remembers, of 64 bytes each. Then it forgets all of them, and keeps each
/// text once more.
const MAX_KNOWN_TEXTS: usize = 4_096;

/// Has the server look rows up by their keys. A plan stays for as long as the connection, and one that was made while a
/// table was small would read all of the table later.
const PLANS: &str = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// A connection that nothing else uses.
pub struct ServerConnection {
    connection: AnyConnection,
    /// The last row of the audit log when this connection saw it last. Another process may have added rows since.
    last_head: Option<LogHead>,
    /// Until then the head is read before each batch: another process moves it, too.
    shared_until: Option<Instant>,
    /// Until then batches with rows for the log lock its head first: it was moved between a reading and the batch.
    contended_until: Option<Instant>,
    /// Digests of shared texts that this connection has kept. A batch that names another one has statements of its own: a
    /// single one would find no such text, and be in the log of the server as one that failed.
    known_texts: HashSet<String>,
}

impl ServerConnection {
    pub async fn open(database: &Database) -> Result<Self, sqlx::Error> {
        let mut connection = database.connect().await?;
        sqlx::raw_sql(PLANS).execute(&mut connection).await?;
        Ok(Self {
            connection,
            last_head: None,
            shared_until: None,
            contended_until: None,
            known_texts: HashSet::new(),
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
        if self.known_texts.len() >= MAX_KNOWN_TEXTS {
            self.known_texts.clear();
        }
        let kept = named_texts(entries).map(str::to_owned);
        self.known_texts.extend(kept);
        Ok(())
    }

    /// Commits `entries` with one statement. Returns false if nothing was written, because the entries need statements of
    /// their own, other processes write to the audit log all the time, or the statement found what the others tell apart: a
    /// lost lease, a cancelled run, rows that are there already, or another head of the audit log.
    async fn commit_whole(
        &mut self,
        durable: bool,
        entries: &mut [WriteEntry],
    ) -> Result<bool, WriteError> {
        // The reply to an earlier attempt was lost: the log may have the rows.
        if entries.iter().any(|entry| entry.expected_head.is_some()) {
            return Ok(false);
        }
        if named_texts(entries).any(|digest| !self.known_texts.contains(digest)) {
            return Ok(false);
        }
        let Some(batch) = WholeBatch::of(entries) else {
            return Ok(false);
        };
        let drafts: Vec<&Draft> = entries.iter().flat_map(WriteEntry::drafts).collect();
        if !drafts.is_empty() && lasts(self.contended_until) {
            return Ok(false);
        }
        let is_shared = lasts(self.shared_until);
        let head = if drafts.is_empty() {
            LogHead::default()
        } else {
            self.head(is_shared).await?
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
                    self.was_in_vain(is_shared);
                }
                Ok(false)
            }
        }
    }

    /// The last row of the audit log, after which another process may add rows at any time.
    async fn head(&mut self, is_shared: bool) -> Result<LogHead, sqlx::Error> {
        if let (Some(head), false) = (&self.last_head, is_shared) {
            return Ok(head.clone());
        }
        let head = audit_rows::last_row(OpenTransaction::from(&mut self.connection)).await?;
        if self.last_head.as_ref().is_some_and(|last| *last != head) {
            self.shared_until = Some(Instant::now() + CAREFUL_TIME);
        }
        Ok(head)
    }

    /// Notes that a batch with rows for the audit log was not written. `is_shared`: the head was read just before.
    fn was_in_vain(&mut self, is_shared: bool) {
        let end = Instant::now() + CAREFUL_TIME;
        if is_shared {
            self.contended_until = Some(end);
            self.shared_until = Some(end + CAREFUL_TIME);
        } else {
            self.shared_until = Some(end);
        }
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

/// Digests of the shared texts that events of `entries` name.
fn named_texts(entries: &[WriteEntry]) -> impl Iterator<Item = &str> {
    let changes = entries.iter().flat_map(|entry| &entry.changes);
    changes.filter_map(|change| match change {
        Change::SharedText { text, .. } => text.digest(),
        _ => None,
    })
}

fn lasts(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            assert!(lasts(one.shared_until) && !lasts(one.contended_until));
            one.shared_until = None;
            assert!(one.commit_whole(true, &mut row("4")).await.unwrap());
            // Statements one by one take the head with its lock.
            two.commit(true, &mut row("5")).await.unwrap();
            assert!(two.commit_whole(true, &mut row("6")).await.unwrap());
            // As if the head had been moved after it was read: the lock is taken first for a while.
            two.was_in_vain(true);
            assert!(!two.commit_whole(true, &mut row("7")).await.unwrap());
            two.commit(true, &mut row("7")).await.unwrap();
            let call = "c".into();
            let mut without_rows = [WriteEntry::unawaited(Change::CallEnded { call })];
            assert!(two.commit_whole(true, &mut without_rows).await.unwrap());
            two.contended_until = None;
            assert!(two.commit_whole(true, &mut row("8")).await.unwrap());
            let verified = store.verify_audit(None).await.unwrap();
            assert_eq!(verified.faults, []);
            assert_eq!(verified.entries, 8);
        }
    }
}
