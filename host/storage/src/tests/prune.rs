//! What is deleted and what is kept, the same for both databases.

use super::{EventScript, databases, opened};
use crate::audit_log::{Filter, PageStart};
use crate::*;
use serde_json::Value;
use std::collections::HashSet;
use std::slice::from_ref;
use std::time::Duration;
use toolhold_protocol::event::{Event, Journal as _};
use uuid::Uuid;

/// A run that began, and ended then if it did.
async fn run(store: &Store, turn: Option<(Uuid, u32)>, ended_ms: Option<u64>) -> Uuid {
    let mut script = EventScript::new();
    let label = Label {
        turn,
        ..Label::default()
    };
    let mut journal = store.journal(script.run, label);
    journal.append(&[script.begin("t")]).await.unwrap();
    if let Some(at_ms) = ended_ms {
        let done = Event {
            at_ms,
            ..script.done()
        };
        journal.append(from_ref(&done)).await.unwrap();
    } else {
        // The run stays open: dropping its journal would release the lease.
        std::mem::forget(journal);
    }
    script.run
}

async fn session(store: &Store, created_ms: u64) -> Uuid {
    let session = store.create_session("ann", "default", "t").await.unwrap();
    sqlx::query("UPDATE sessions SET created_ms = $2 WHERE id = $1")
        .bind(session.id.to_string())
        .bind(created_ms.cast_signed())
        .execute(&store.pool)
        .await
        .unwrap();
    session.id
}

async fn pruned(store: &Store) -> Vec<Value> {
    let all = PageStart::After(0);
    let entries = store.audited(&Filter::default(), all, 1_000).await.unwrap();
    let entries = entries
        .iter()
        .map(|it| serde_json::from_str(&it.text).unwrap());
    entries
        .filter(|entry: &Value| entry["action"] == "pruned")
        .collect()
}

#[tokio::test]
async fn only_records_that_ended_long_ago_are_deleted() {
    for database in databases().await {
        let store = opened(&database).await;
        // More than one transaction deletes.
        let mut gone = Vec::new();
        for number in 0..45 {
            gone.push(run(&store, None, Some(1_000 + number)).await);
        }
        let kept = [
            run(&store, None, Some(5_000)).await,
            run(&store, None, None).await,
        ];
        let old = session(&store, 100).await;
        gone.push(run(&store, Some((old, 0)), Some(1_000)).await);
        gone.push(run(&store, Some((old, 1)), Some(2_000)).await);
        let empty = session(&store, 100).await;
        let lively = session(&store, 100).await;
        let turns = [
            run(&store, Some((lively, 0)), Some(1_000)).await,
            run(&store, Some((lively, 1)), Some(5_000)).await,
        ];
        let open = session(&store, 100).await;
        let open_turns = [
            run(&store, Some((open, 0)), Some(1_000)).await,
            run(&store, Some((open, 1)), None).await,
        ];
        let new = session(&store, 5_000).await;
        // An earlier version let a session be deleted while a turn of it began.
        let lost = session(&store, 100).await;
        gone.push(run(&store, Some((lost, 0)), Some(1_000)).await);
        sqlx::query("DELETE FROM sessions WHERE id = $1")
            .bind(lost.to_string())
            .execute(&store.pool)
            .await
            .unwrap();

        let over = PrunedCounts {
            runs: 48,
            sessions: 2,
        };
        assert_eq!(store.over_before(5_000).await.unwrap(), over);
        let by = PrunedBy::Retention { days: 30 };
        assert_eq!(store.prune(5_000, by).await.unwrap(), over);
        assert_eq!(
            store.over_before(5_000).await.unwrap(),
            PrunedCounts::default()
        );
        for run in &gone {
            assert!(store.run(*run).await.unwrap().is_none());
            assert!(store.events(*run, 0).await.unwrap().is_empty());
        }
        for run in kept.iter().chain(&turns).chain(&open_turns) {
            assert!(store.run(*run).await.unwrap().is_some());
        }
        let left = store.sessions("ann", None, 99).await.unwrap();
        let left: HashSet<Uuid> = left.iter().map(|it| it.id).collect();
        assert_eq!(left, HashSet::from([lively, open, new]));

        let told = pruned(&store).await;
        assert!(told.len() > 1, "{told:?}");
        let names = |what: &str| -> HashSet<String> {
            let lists = told.iter().filter_map(|entry| entry[what].as_array());
            let names = lists.flatten().filter_map(Value::as_str);
            names.map(str::to_owned).collect()
        };
        assert_eq!(names("runs"), gone.iter().map(Uuid::to_string).collect());
        assert_eq!(
            names("sessions"),
            [old, empty].iter().map(Uuid::to_string).collect()
        );
        assert!(
            told.iter()
                .all(|it| it["by"] == "retention" && it["keep_days"] == 30)
        );
        assert!(store.verify_audit(None).await.unwrap().faults.is_empty());
        store.prune(9_000, PrunedBy::Person).await.unwrap();
        let told = pruned(&store).await;
        assert_eq!(told.last().unwrap()["by"], "person");
    }
}

#[tokio::test]
async fn requests_go_with_their_runs() {
    for database in databases().await {
        let store = opened(&database).await;
        let (over, open) = (
            run(&store, None, Some(1_000)).await,
            run(&store, None, None).await,
        );
        for (key, run) in [("over", over), ("open", open)] {
            let repeat = store.first_or_repeat("ann", key, "d", run).await.unwrap();
            assert_eq!(repeat, KeyUse::First);
        }
        let later = now_ms() + 1_000;
        store.prune(later, PrunedBy::Person).await.unwrap();
        assert_eq!(store.run_of_request("ann", "over").await.unwrap(), None);
        assert!(store.run_of_request("ann", "open").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_deleted_session_is_in_the_log() {
    for database in databases().await {
        let store = opened(&database).await;
        let session = session(&store, 100).await;
        let turn = run(&store, Some((session, 0)), Some(1_000)).await;
        assert!(!store.delete_session("bob", session).await.unwrap());
        assert!(store.delete_session("ann", session).await.unwrap());
        let all = PageStart::After(0);
        let entries = store.audited(&Filter::default(), all, 9).await.unwrap();
        let [entry] = entries.as_slice() else {
            panic!("{entries:?}");
        };
        let entry: Value = serde_json::from_str(&entry.text).unwrap();
        assert_eq!(entry["action"], "session_deleted");
        assert_eq!(entry["owner"], "ann");
        assert_eq!(entry["session"], session.to_string());
        assert_eq!(entry["runs"], serde_json::json!([turn]));
    }
}

/// A turn that begins while sessions are looked through.
#[tokio::test]
async fn a_session_that_somebody_comes_back_to_is_kept() {
    for database in databases().await {
        let store = opened(&database).await;
        let (kept, gone) = (session(&store, 100).await, session(&store, 100).await);
        for session in [kept, gone] {
            run(&store, Some((session, 0)), Some(200)).await;
        }
        // As a turn begins: the session is held, and the run is there when that is committed.
        let mut beginning = store.pool.begin().await.unwrap();
        sqlx::query(
            "INSERT INTO runs (id, owner, agent, origin, session, turn, task, model, began_ms, holder) \
             VALUES ($2, '', '', 'serve', $1, 1, 't', 'm', 300, 'somebody')",
        )
        .bind(kept.to_string())
        .bind(Uuid::now_v7().to_string())
        .execute(&mut *beginning)
        .await
        .unwrap();
        if matches!(database.location, Location::Postgres(_)) {
            sqlx::query("SELECT id FROM sessions WHERE id = $1 FOR SHARE")
                .bind(kept.to_string())
                .execute(&mut *beginning)
                .await
                .unwrap();
        }
        let pruning = {
            let store = store.clone();
            tokio::spawn(async move { store.prune(1_000, PrunedBy::Person).await })
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!pruning.is_finished(), "it waits for the turn");
        beginning.commit().await.unwrap();
        let over = pruning.await.unwrap().unwrap();
        assert_eq!((over.sessions, over.runs), (1, 1));
        assert!(store.session("ann", kept).await.unwrap().is_some());
        assert_eq!(store.turns(kept, 0..9).await.unwrap().len(), 2);
        assert!(store.session("ann", gone).await.unwrap().is_none());
    }
}

/// Pages that become free, and rows that move, keep no bytes of what was deleted.
#[tokio::test]
async fn what_is_pruned_is_in_the_file_no_more() {
    let database = databases().await.swap_remove(0);
    let Location::File(path) = &database.location else {
        unreachable!("the first is SQLite");
    };
    let store = opened(&database).await;
    for (number, task) in (0..60).map(|n| (n, ["marmalade", "peppermint"][n % 2])) {
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let begin = script.begin(&format!("{task} {number} {}", "of it ".repeat(100)));
        journal.append(&[begin]).await.unwrap();
        let done = Event {
            at_ms: if task == "marmalade" { 1_000 } else { 9_000 },
            ..script.done()
        };
        journal.append(from_ref(&done)).await.unwrap();
    }
    let by = PrunedBy::Retention { days: 30 };
    assert_eq!(store.prune(5_000, by).await.unwrap().runs, 30);
    // What writing back the log does sooner or later.
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .fetch_all(&store.pool)
        .await
        .unwrap();
    let bytes = std::fs::read(path).unwrap();
    let count = |needle: &str| {
        let found = bytes.windows(needle.len());
        found.filter(|it| *it == needle.as_bytes()).count()
    };
    assert_eq!(count("marmalade"), 0);
    assert!(count("peppermint") >= 30);
}
