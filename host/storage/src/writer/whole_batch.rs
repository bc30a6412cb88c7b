//! A batch of the writer as one statement, for PostgreSQL: each statement of a transaction is a round trip to the server,
//! during which the transaction keeps its locks.

use super::entry::WriteEntry;
use crate::audit_rows::{AuditChain, BegunCall};
use crate::change::Change;
use crate::statements::SqlValue;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The statement. Its parameters are what [`WholeBatch::values`] returns.
pub const WRITE: &str = include_str!("whole_batch.postgres.sql");

/// Bytes of the texts of one statement. The statement is one message to the server, which has it in memory several times and
/// drops the connection when a message has a gigabyte. A larger batch is written with several statements.
const MAX_BYTES: usize = 8 << 20;

/// The changes of a batch, by the rows that they change.
#[derive(Default)]
pub struct WholeBatch<'a> {
    begun: BTreeMap<Uuid, Value>,
    /// Sessions of the turns that begin.
    sessions: BTreeSet<Uuid>,
    /// Runs among `begun` that were promised to a request with an idempotency key.
    promised: i64,
    appended: BTreeMap<Uuid, AppendedEvents<'a>>,
    /// Texts that events name, by run and number of the event.
    named: BTreeMap<(Uuid, i64), Value>,
    ended: BTreeMap<Uuid, Value>,
    released: BTreeMap<Uuid, &'a str>,
    /// Calls that wait, by their run, the run within it, and their id.
    waiting: BTreeMap<(Uuid, Uuid, &'a str), Value>,
    settled: BTreeSet<(Uuid, Uuid, &'a str)>,
    /// The reply that each run is writing; `None` removes it.
    parts: BTreeMap<Uuid, Option<Value>>,
    calls_begun: BTreeMap<&'a str, &'a BegunCall>,
    calls_ended: BTreeSet<&'a str>,
    /// Bytes of the texts that may be long.
    bytes: usize,
}

/// Consecutive events of a run.
#[derive(Serialize)]
struct AppendedEvents<'a> {
    run: Uuid,
    seq: i64,
    holder: &'a str,
    fence: i64,
    /// True if the run begins in the same batch.
    is_new: bool,
    begin_calls: bool,
    lines: &'a [String],
}

impl<'a> WholeBatch<'a> {
    /// The changes of `entries`. `None` if one statement cannot make them: two of them concern one row, they are too large
    /// together, or they are rare ones that the statement does not have.
    pub fn of(entries: &'a [WriteEntry]) -> Option<Self> {
        let mut batch = Self::default();
        for change in entries.iter().flat_map(|entry| &entry.changes) {
            if !batch.takes(change) || batch.bytes > MAX_BYTES {
                return None;
            }
        }
        for (run, events) in &mut batch.appended {
            events.is_new = batch.begun.contains_key(run);
        }
        batch.has_no_clash().then_some(batch)
    }

    /// Adds a change. Returns false if the batch cannot be one statement with it.
    fn takes(&mut self, change: &'a Change) -> bool {
        match change {
            Change::Began {
                run,
                label,
                task,
                model,
                at_ms,
                lease,
                is_promised,
            } => {
                let session = label.turn.map(|(session, _)| session);
                self.sessions.extend(session);
                self.promised += i64::from(*is_promised);
                let row = json!({
                    "id": run,
                    "owner": label.owner,
                    "agent": label.agent,
                    "origin": label.origin.name(),
                    "session": session,
                    "turn": label.turn.map(|(_, turn)| turn),
                    "task": task,
                    "model": model,
                    "began_ms": at_ms,
                    "holder": lease.holder,
                    "trace": label.trace,
                    "fence": lease.fence,
                    "is_promised": is_promised,
                    "asked": label.asked,
                });
                self.begun.insert(*run, row).is_none()
            }
            Change::Events {
                run,
                seq,
                lines,
                lease,
                begin_calls,
            } => {
                let events = AppendedEvents {
                    run: *run,
                    seq: *seq,
                    holder: &lease.holder,
                    fence: lease.fence,
                    is_new: false,
                    begin_calls: *begin_calls,
                    lines,
                };
                self.bytes += lines.iter().map(String::len).sum::<usize>();
                self.appended.insert(*run, events).is_none()
            }
            Change::SharedText { run, seq, text } => {
                let (Some(digest), Some(added)) = (text.digest(), text.added()) else {
                    return false;
                };
                let row = json!({"run": run, "seq": seq, "digest": digest, "added": added});
                self.named.insert((*run, *seq), row).is_none()
            }
            Change::Waits {
                run,
                within,
                pending,
                at_ms,
            } => {
                let Ok(text) = serde_json::to_string(pending) else {
                    return false;
                };
                self.bytes += text.len();
                let call = pending.call.id.as_str();
                let row = json!({
                    "run": run,
                    "within": within,
                    "call": call,
                    "digest": pending.digest,
                    "pending": text,
                    "asked_ms": at_ms,
                });
                self.waiting.insert((*run, *within, call), row).is_none()
            }
            Change::Settled { run, within, call } => {
                self.settled.insert((*run, *within, call.as_str()));
                true
            }
            Change::Ended {
                run,
                at_ms,
                reason,
                steps,
                calls,
                tokens,
            } => {
                let row = json!({
                    "run": run,
                    "at_ms": at_ms,
                    "reason": reason,
                    "steps": steps,
                    "calls": calls,
                    "tokens": tokens,
                });
                self.parts.insert(*run, None);
                self.ended.insert(*run, row).is_none()
            }
            Change::ReplyPart { run, part, lease } => {
                self.bytes += part.text().len();
                let row = json!({
                    "run": run,
                    "part": part.text(),
                    "holder": lease.holder,
                    "fence": lease.fence,
                });
                if !self.ended.contains_key(run) {
                    self.parts.insert(*run, Some(row));
                }
                true
            }
            Change::ReplyOver { run } => {
                self.parts.insert(*run, None);
                true
            }
            Change::CallBegan(call) => {
                self.bytes += call.draft.len();
                self.calls_begun.insert(&call.call, call).is_none()
            }
            Change::CallEnded { call } => {
                self.calls_ended.insert(call);
                true
            }
            Change::Released { run, holder } => self.released.insert(run.id(), holder).is_none(),
            // Its rows are numbered when the head of the log is known.
            Change::Audit(_) => true,
            // Rare, and large.
            Change::Blobs { .. } | Change::Shown { .. } => false,
        }
    }

    /// True if no row is changed twice: parts of a statement do not see what the others change.
    fn has_no_clash(&self) -> bool {
        let is_begun = |run: &Uuid| self.begun.contains_key(run);
        let written = self.parts.iter().filter(|(_, part)| part.is_some());
        let mut changed = written
            .map(|(run, _)| run)
            .chain(self.ended.keys())
            .chain(self.released.keys());
        let mut new = self.appended.values().filter(|events| events.is_new);
        let mut waiting = self.waiting.keys();
        !changed.any(is_begun)
            && new.all(|events| events.seq == 0)
            && !self.ended.keys().any(|run| self.released.contains_key(run))
            && !waiting.any(|key| self.settled.contains(key) || self.ended.contains_key(&key.0))
            && !self
                .calls_begun
                .keys()
                .any(|call| self.calls_ended.contains(call))
    }

    /// The parameters of [`WRITE`], with the rows of the audit log.
    pub fn values(
        self,
        audit: AuditChain,
        durable: bool,
    ) -> Result<Vec<SqlValue<'static>>, sqlx::Error> {
        let old_runs = self.appended.values().filter(|events| !events.is_new);
        let (old_runs, sessions) = (counted(old_runs.count()), counted(self.sessions.len()));
        let released = self.released.iter();
        let released: Vec<Value> = released
            .map(|(run, holder)| json!({"run": run, "holder": holder}))
            .collect();
        let settled = self.settled.iter();
        let settled: Vec<Value> = settled
            .map(|(run, within, call)| json!({"run": run, "within": within, "call": call}))
            .chain(self.ended.keys().map(|run| json!({"run": run})))
            .collect();
        let removed = self.parts.iter().filter(|(_, part)| part.is_none());
        let removed: Vec<&Uuid> = removed.map(|(run, _)| run).collect();
        let written: Vec<&Value> = self.parts.values().flatten().collect();
        Ok(vec![
            text(&list(self.begun.values()))?,
            text(&list(self.appended.values()))?,
            text(&list(self.ended.values()))?,
            text(&released)?,
            text(&list(self.waiting.values()))?,
            text(&settled)?,
            text(&written)?,
            text(&removed)?,
            text(&list(self.calls_begun.values()))?,
            text(&self.calls_ended)?,
            audit.rows.into(),
            audit.salts.into(),
            audit.end.0.into(),
            audit.end.1.into(),
            audit.head.0.into(),
            audit.head.1.into(),
            i64::from(durable).into(),
            sessions.into(),
            old_runs.into(),
            self.promised.into(),
            text(&list(self.named.values()))?,
            counted(self.named.len()).into(),
        ])
    }
}

fn list<T>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.collect()
}

fn counted(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

fn text(rows: &impl Serialize) -> Result<SqlValue<'static>, sqlx::Error> {
    let text = serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::RunLease;
    use crate::database::Location;
    use crate::label::Label;
    use crate::store::Store;
    use crate::tests::{EventScript, OUTAGE_TIMEOUT, databases};
    use toolhold_protocol::event::Journal as _;

    fn began(call: &str) -> WriteEntry {
        let begun = BegunCall {
            call: call.into(),
            holder: "p".into(),
            draft: "{}".into(),
        };
        WriteEntry::unawaited(Change::CallBegan(Box::new(begun)))
    }

    fn ended(call: &str) -> WriteEntry {
        WriteEntry::unawaited(Change::CallEnded { call: call.into() })
    }

    #[test]
    fn a_batch_that_changes_a_row_twice_is_no_single_statement() {
        for (entries, expected) in [
            (vec![began("1"), began("2"), ended("3")], true),
            (vec![began("1"), ended("1")], false),
            (vec![began("1"), began("1")], false),
        ] {
            assert_eq!(WholeBatch::of(&entries).is_some(), expected, "{entries:?}");
        }
    }

    fn appended(bytes: usize) -> WriteEntry {
        WriteEntry::unawaited(Change::Events {
            run: Uuid::now_v7(),
            seq: 0,
            lines: vec!["x".repeat(bytes)],
            lease: RunLease {
                holder: "p".into(),
                fence: 1,
            },
            begin_calls: false,
        })
    }

    #[test]
    fn a_batch_of_many_bytes_is_no_single_statement() {
        let half = MAX_BYTES / 2;
        for (last, expected) in [(half, true), (half + 1, false)] {
            let entries = [appended(half), appended(last)];
            assert_eq!(WholeBatch::of(&entries).is_some(), expected, "{last}");
        }
    }

    #[tokio::test]
    async fn writes_of_a_run_are_one_statement_each_on_a_server() {
        for database in databases().await {
            let location = &database.location;
            if matches!(location, Location::File(_)) {
                continue;
            }
            let store = Store::open(location, OUTAGE_TIMEOUT).await.unwrap();
            // The first run has statements of its own, which keep its settings for all that begin with the same ones.
            let mut first = EventScript::new();
            let mut before = store.journal(first.run, Label::default());
            before.append(&[first.begin("t")]).await.unwrap();
            let mut script = EventScript::new();
            let mut journal = store.journal(script.run, Label::default());
            for events in [
                vec![script.begin("t"), script.notice()],
                vec![script.notice()],
                vec![script.notice(), script.done()],
            ] {
                journal.append(&events).await.unwrap();
                // The last statement of the writer's connection: a transaction of several ends with COMMIT.
                let last: i64 = sqlx::query_scalar(
                    "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                     AND query LIKE '-- One batch of the writer%'",
                )
                .fetch_one(&store.pool)
                .await
                .unwrap();
                assert_eq!(last, 1);
            }
            assert_eq!(store.sealed(script.run, 0).await.unwrap().len(), 5);
            let run = store.run(script.run).await.unwrap().unwrap();
            assert!(run.ended.is_some());
        }
    }
}
