//! Calls whose process was killed, the same for both databases.

use super::audit::{all, ended, faults, started};
use super::{EventScript, OUTAGE_TIMEOUT, TestDatabase, databases};
use crate::audit_log::AbandonedRun;
use crate::*;
use serde_json::{Map, json};
use std::path::PathBuf;
use toolhold_protocol::event::{EventKind, Journal as _, ToolOutcome};
use toolhold_protocol::failure::{INTERRUPTED, ToolFailure};
use toolhold_protocol::result::ToolUsage;

fn record(id: &str) -> CallRecord {
    CallRecord {
        id: id.into(),
        tool: "files.write".into(),
        arguments: json!({"path": id}),
        policy: "p".into(),
        owner: "mcp:http".into(),
        way: Map::from_iter([("via".to_owned(), "mcp".into())]),
    }
}

/// As if the process had been killed: nothing of it ends what it began.
async fn belongs_to_a_dead_process(store: &Store) {
    for table in ["open_calls", "runs"] {
        let statement = sqlx::AssertSqlSafe(format!("UPDATE {table} SET holder = $1"));
        let dead = uuid::Uuid::now_v7().to_string();
        let update = sqlx::query(statement).bind(dead);
        update.execute(&store.pool).await.unwrap();
    }
    if let Some(file) = calls_file(store) {
        let dead = file.with_file_name(format!("{}.calls", uuid::Uuid::now_v7()));
        std::fs::rename(file, dead).unwrap();
    }
}

/// The file with the calls of no run that the process of `store` has begun.
pub fn calls_file(store: &Store) -> Option<PathBuf> {
    let file = store.process.folder()?.join(store.process.name());
    Some(file.with_extension("calls")).filter(|file| file.exists())
}

#[tokio::test]
async fn a_call_whose_process_was_killed_is_in_the_log_as_interrupted() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        for (id, durability) in [
            ("one", Durability::OnDisk),
            ("two", Durability::Written),
            ("not kept", Durability::Queued),
        ] {
            store.audit_begin(&record(id), durability).await.unwrap();
        }
        store.audit_interrupted().await.unwrap();
        assert_eq!(all(&store).await.len(), 0, "they run");

        let outcome = json!(1);
        let ended = record("two").ended(
            &AuditContent::default(),
            Ok(&outcome),
            &ToolUsage::default(),
            None,
            false,
        );
        let until = Durability::Written;
        store
            .audit_call("two", ended, until, Box::new(()))
            .await
            .unwrap();
        belongs_to_a_dead_process(&store).await;
        // Twice, as by two processes that look.
        for _ in 0..2 {
            store.audit_interrupted().await.unwrap();
        }
        let told = all(&store).await;
        let told: Vec<_> = told
            .iter()
            .map(|it| (it["call"].as_str().unwrap(), it["status"].as_str().unwrap()))
            .collect();
        assert_eq!(told, [("two", "ok"), ("one", "interrupted")]);
        let one = &all(&store).await[1];
        assert_eq!(
            (&one["arguments"], &one["via"], &one["owner"], &one["tool"]),
            (
                &json!({"path": "one"}),
                &json!("mcp"),
                &json!("mcp:http"),
                &json!("files.write")
            )
        );
        assert!(faults(&store).await.is_empty());
    }
}

/// The process knows what came of the call, and its caller has the error.
#[tokio::test]
async fn a_call_whose_row_was_refused_is_in_the_log_as_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("toolhold.db"));
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    let until = Durability::OnDisk;
    for id in ["open", "refused"] {
        store.audit_begin(&record(id), until).await.unwrap();
    }
    let trigger =
        "CREATE TRIGGER refusal BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no row'); END";
    sqlx::query(trigger).execute(&store.pool).await.unwrap();
    let (content, usage) = (AuditContent::default(), ToolUsage::default());
    let row = record("refused").ended(&content, Ok(&json!(1)), &usage, None, false);
    let written = store.audit_call("refused", row, until, Box::new(())).await;
    assert!(written.is_err());
    let allows = sqlx::query("DROP TRIGGER refusal").execute(&store.pool);
    allows.await.unwrap();
    belongs_to_a_dead_process(&store).await;
    for _ in 0..2 {
        store.audit_interrupted().await.unwrap();
    }
    let rows = all(&store).await;
    let ends: Vec<_> = rows
        .iter()
        .map(|it| (it["call"].as_str().unwrap(), it["status"].as_str().unwrap()))
        .collect();
    assert_eq!(ends, [("open", "interrupted"), ("refused", "ok")]);
    assert!(rows[1]["result_digest"].is_string(), "{rows:?}");
    assert!(faults(&store).await.is_empty());
}

/// A process that looks may be killed as well, after it wrote the rows and before it removed the file.
#[tokio::test]
async fn calls_that_a_killed_process_left_are_written_once_by_those_who_look() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("toolhold.db"));
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    let until = Durability::OnDisk;
    let end = async |id: &str| {
        let (content, usage) = (AuditContent::default(), ToolUsage::default());
        let row = record(id).ended(&content, Ok(&json!(1)), &usage, None, false);
        store
            .audit_call(id, row, until, Box::new(()))
            .await
            .unwrap();
    };
    // A row before the begins, and rows after them of which the file does not say that these calls have ended.
    store.audit_begin(&record("first"), until).await.unwrap();
    end("first").await;
    for id in ["ended", "open", "open too"] {
        store.audit_begin(&record(id), until).await.unwrap();
    }
    end("ended").await;
    let kept = std::fs::read(calls_file(&store).unwrap()).unwrap();
    let other = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    belongs_to_a_dead_process(&store).await;
    let (one, two) = tokio::join!(store.audit_interrupted(), other.audit_interrupted());
    one.and(two).unwrap();
    let expected = [
        "first ok",
        "ended ok",
        "open interrupted",
        "open too interrupted",
    ];
    let told = async || {
        let told = all(&other).await;
        let told = told.iter().map(|it| (&it["call"], &it["status"]));
        let told =
            told.map(|(call, status)| [call, status].map(|it| it.as_str().unwrap()).join(" "));
        told.collect::<Vec<_>>()
    };
    assert_eq!(told().await, expected);
    let files = || std::fs::read_dir(other.process.folder().unwrap()).unwrap();
    let is_of_calls = |path: &PathBuf| path.extension().is_some_and(|it| it == "calls");
    assert!(!files().any(|file| is_of_calls(&file.unwrap().path())));
    let again = other.process.folder().unwrap().join("killed.calls");
    std::fs::write(&again, kept).unwrap();
    other.audit_interrupted().await.unwrap();
    assert_eq!(told().await, expected);
    assert!(!again.exists());
    assert!(faults(&other).await.is_empty());
}

/// A version before this one wrote the begins into a table. One that cannot be read does not keep the others from the log.
#[tokio::test]
async fn calls_that_an_older_version_began_are_in_the_log_as_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("toolhold.db"));
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    let draft = serde_json::to_string(&record("older").begun()).unwrap();
    sqlx::query("INSERT INTO open_calls (call, holder, draft) VALUES ('older', 'gone', $1), ('none', 'gone', '{')")
        .bind(draft)
        .execute(&store.pool)
        .await
        .unwrap();
    let folder = store.process.folder().unwrap();
    std::fs::create_dir(folder.join("a folder.calls")).unwrap();
    store
        .audit_begin(&record("one"), Durability::Written)
        .await
        .unwrap();
    belongs_to_a_dead_process(&store).await;
    for _ in 0..2 {
        store.audit_interrupted().await.unwrap();
        let told = all(&store).await;
        let told: Vec<_> = told.iter().map(|it| (&it["call"], &it["status"])).collect();
        let status = &json!("interrupted");
        assert_eq!(told, [(&json!("older"), status), (&json!("one"), status)]);
    }
}

/// Each call changes few pages, and its begin none.
#[tokio::test]
async fn a_call_of_no_run_changes_few_pages() {
    const CALLS: u64 = 50;
    const MOST_FRAMES: u64 = 7;
    // A page, and what the log of SQLite has before it.
    const FRAME: u64 = 4_096 + 24;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toolhold.db");
    let location = Location::File(path.clone());
    let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
    let until = Durability::OnDisk;
    // Empty, so that nothing of it is written over.
    store.empty_log().await.unwrap();
    let frames = || {
        path.with_extension("db-wal")
            .metadata()
            .map_or(0, |it| it.len() / FRAME)
    };
    let before = frames();
    for number in 0..CALLS {
        let id = uuid::Uuid::now_v7().to_string();
        let begun = frames();
        store.audit_begin(&record(&id), until).await.unwrap();
        assert_eq!(frames(), begun, "{number}");
        let (content, usage) = (AuditContent::default(), ToolUsage::default());
        let row = record(&id).ended(&content, Ok(&json!(1)), &usage, None, false);
        let written = store.audit_call(&id, row, until, Box::new(()));
        written.await.unwrap();
    }
    let frames = frames() - before;
    assert!(frames > CALLS && frames <= CALLS * MOST_FRAMES, "{frames}");
}

/// On PostgreSQL, a process without its lock has a minute after its lease to find another connection.
#[tokio::test]
async fn a_call_of_a_process_that_lost_its_lock_is_not_interrupted_at_once() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        if store.process.lease().is_none() {
            continue;
        }
        let until = Durability::Written;
        store.audit_begin(&record("one"), until).await.unwrap();
        belongs_to_a_dead_process(&store).await;
        for (seconds_ago, rows) in [(-5_i64, 0), (30, 0), (61, 1)] {
            sqlx::query(
                "DELETE FROM process_leases WHERE process IN (SELECT holder FROM open_calls)",
            )
            .execute(&store.pool)
            .await
            .unwrap();
            sqlx::query(
                "INSERT INTO process_leases (process, deadline_ms) SELECT holder, \
                 CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - $1 FROM open_calls",
            )
            .bind(seconds_ago * 1_000)
            .execute(&store.pool)
            .await
            .unwrap();
            store.audit_interrupted().await.unwrap();
            assert_eq!(all(&store).await.len(), rows, "{seconds_ago}");
        }
    }
}

#[tokio::test]
async fn a_call_of_a_killed_run_is_in_the_log_once() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let of_server = Label {
            origin: Origin::Serve,
            ..Label::default()
        };
        let mut journals = Vec::new();
        for label in [Label::default(), of_server] {
            let mut script = EventScript::new();
            let mut journal = store.journal(script.run, label);
            let inner = EventKind::Sub {
                call: "outer".into(),
                what: Box::new(started("inner", json!({"a": 2}))),
            };
            for event in [
                script.begin("t"),
                script.event(started("c1", json!({"a": 1}))),
                script.event(inner),
            ] {
                journal.append(&[event]).await.unwrap();
            }
            journals.push((journal, script));
        }
        store.audit_interrupted().await.unwrap();
        assert_eq!(all(&store).await.len(), 0, "they run");

        belongs_to_a_dead_process(&store).await;
        for _ in 0..2 {
            store.audit_interrupted().await.unwrap();
        }
        let told = all(&store).await;
        let seen: Vec<_> = told
            .iter()
            .map(|it| (&it["call"], &it["status"], &it["seq"], &it["run"]))
            .collect();
        let (status, run) = (json!("interrupted"), json!(journals[0].1.run));
        assert_eq!(
            seen,
            [
                (&json!("c1"), &status, &json!(1), &run),
                (&json!("inner"), &status, &json!(2), &run)
            ],
            "a server resumes its own runs"
        );
        // The run is read for its calls once.
        assert_eq!(store.holder(journals[0].1.run).await.unwrap(), None);
        assert!(store.holder(journals[1].1.run).await.unwrap().is_some());
        assert!(faults(&store).await.is_empty());

        // When the run goes on, the unknown ends of these calls get no second rows.
        let (journal, mut script) = journals.remove(0);
        drop(journal);
        store.writer.catch_up().await.unwrap();
        let (mut journal, _) = store.reopen(script.run).await.unwrap();
        let inner = EventKind::Sub {
            call: "outer".into(),
            what: Box::new(unknown_end("inner")),
        };
        for event in [
            script.event(inner),
            script.event(unknown_end("c1")),
            script.event(started("c2", json!({}))),
            script.event(unknown_end("c2")),
        ] {
            journal.append(&[event]).await.unwrap();
        }
        let told = all(&store).await;
        let seen: Vec<_> = told.iter().map(|it| (&it["call"], &it["status"])).collect();
        let calls = ["c1", "inner", "c2"].map(|call| json!(call));
        assert_eq!(seen, [0, 1, 2].map(|at: usize| (&calls[at], &status)));
        assert!(faults(&store).await.is_empty());
    }
}

fn unknown_end(call: &str) -> EventKind {
    let failure = ToolFailure::correctable(INTERRUPTED, "its process ended");
    ended(call, ToolOutcome::Error(failure))
}

/// A parked run may never be resumed; a resumed one finds the rows of its calls.
#[tokio::test]
async fn the_calls_of_a_parked_run_are_in_the_log_once() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        for event in [
            script.begin("t"),
            script.event(started("c1", json!({"a": 1}))),
        ] {
            journal.append(&[event]).await.unwrap();
        }
        store.audit_parked(script.run).await.unwrap();
        assert_eq!(all(&store).await.len(), 0, "it is at work");

        drop(journal);
        for _ in 0..2 {
            store.audit_parked(script.run).await.unwrap();
        }
        let (mut journal, _) = store.reopen(script.run).await.unwrap();
        let end = script.event(unknown_end("c1"));
        journal.append(&[end, script.done()]).await.unwrap();
        let told = all(&store).await;
        let seen: Vec<_> = told
            .iter()
            .map(|it| (&it["call"], &it["status"], &it["by_host"]))
            .collect();
        let expected = [json!("c1"), json!("interrupted"), json!(false)];
        assert_eq!(seen, [(&expected[0], &expected[1], &expected[2])]);
        assert!(faults(&store).await.is_empty());
    }
}

/// Between the look at a run and the rows of its calls, another process may take the run, end these calls and give it back.
#[tokio::test]
async fn calls_of_a_run_that_was_taken_since_the_look_get_no_rows() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let begin = script.begin("t");
        let call = script.event(started("c1", json!({"a": 1})));
        journal.append(&[begin, call]).await.unwrap();
        // As if the look had found that a dead process has it, and another one took it since.
        let row = store.run(script.run).await.unwrap().unwrap();
        let dead = AbandonedRun {
            run: script.run,
            owner: row.owner,
            holder: Some(uuid::Uuid::now_v7().to_string()),
            fence: 0,
        };
        store.audit_begun_by(&dead).await.unwrap();
        assert_eq!(all(&store).await.len(), 0, "a process works on it");
        assert!(store.holder(script.run).await.unwrap().is_some());
        assert!(store.parked_run(script.run).await.unwrap().is_none());

        drop(journal);
        store.writer.catch_up().await.unwrap();
        let look = store.parked_run(script.run).await.unwrap().unwrap();
        let (journal, _) = store.reopen(script.run).await.unwrap();
        drop(journal);
        store.writer.catch_up().await.unwrap();
        store.audit_begun_by(&look).await.unwrap();
        assert_eq!(all(&store).await.len(), 0, "it was taken meanwhile");
        store.audit_parked(script.run).await.unwrap();
        assert_eq!(all(&store).await.len(), 1);
        assert!(faults(&store).await.is_empty());
    }
}
