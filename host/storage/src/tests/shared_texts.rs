//! Long texts that are kept once for all records that have them.

use super::{
    EventScript, OUTAGE_TIMEOUT, TestDatabase, asks_with, begin_with, databases, offering,
};
use crate::record::{PageBounds, RecordPage};
use crate::statements::OpenTransaction;
use crate::*;
use serde_json::json;
use std::fs::File;
use std::slice::from_ref;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::event::{Event, EventKind, Journal as _};
use uuid::Uuid;

async fn opened(database: &TestDatabase) -> Store {
    Store::open(&database.location, OUTAGE_TIMEOUT)
        .await
        .unwrap()
}

/// Writes the record of a run that ended: its begin, that of a sub-agent with the same tools, and the end.
async fn ended(store: &Store, tools: &BoundTools, turn: Option<(Uuid, u32)>) -> Vec<Event> {
    let mut script = EventScript::new();
    let label = Label {
        owner: "ann".into(),
        turn,
        ..Label::default()
    };
    let mut journal = store.journal(script.run, label);
    let nested = EventKind::Sub {
        call: "c".into(),
        what: Box::new(begin_with(tools)),
    };
    let events = [
        script.event(begin_with(tools)),
        script.event(nested),
        script.done(),
    ];
    for event in &events {
        journal.append(from_ref(event)).await.unwrap();
    }
    events.into()
}

fn lines_of(events: &[Event]) -> Vec<String> {
    let line = |event| serde_json::to_string(event).unwrap();
    events.iter().map(line).collect()
}

/// The record as it is exported.
async fn exported(store: &Store, run: Uuid) -> Vec<String> {
    let lines = store.sealed(run, 0).await.unwrap();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Numbers of texts that are kept, and of events that name one.
async fn kept(store: &Store) -> (i64, i64) {
    let count = async |statement: &'static str| -> i64 {
        sqlx::query_scalar(statement)
            .fetch_one(&store.pool)
            .await
            .unwrap()
    };
    (
        count("SELECT COUNT(*) FROM shared_texts").await,
        count("SELECT COUNT(*) FROM event_texts").await,
    )
}

#[tokio::test]
async fn a_list_is_kept_once_and_in_every_record() {
    for database in databases().await {
        let store = opened(&database).await;
        let tools = offering("many", 60);
        let mut records = Vec::new();
        for _ in 0..2 {
            records.push(ended(&store, &tools, None).await);
        }
        // Equal tools that another process of the same version has.
        records.push(ended(&store, &offering("many", 60), None).await);
        records.push(ended(&store, &offering("few", 2), None).await);
        // A short list is in one text with the settings.
        assert_eq!(kept(&store).await, (2, 8));
        let bytes: i64 =
            sqlx::query_scalar("SELECT CAST(MAX(OCTET_LENGTH(line)) AS BIGINT) FROM events")
                .fetch_one(&store.pool)
                .await
                .unwrap();
        let list = tools.json().unwrap().len();
        assert!(bytes.unsigned_abs() < list as u64 / 2, "{bytes} of {list}");
        for events in &records {
            let run = events[0].run;
            assert_eq!(exported(&store, run).await, lines_of(events));
            let read = store.read(&Source::Run(run)).await.unwrap();
            assert_eq!(json!(read), json!(events));
            let paged = store.events(run, 0).await.unwrap();
            assert_eq!(json!(paged), json!(events));
            let (first, last) = store.ends(run).await.unwrap();
            assert_eq!(json!([first, last]), json!([events[0], events[2]]));
            let nested = store.event_at(run, 1).await.unwrap();
            assert_eq!(json!(nested), json!(events[1]));
        }
        // An exported record is whole and sealed by itself.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let lines = exported(&store, records[0][0].run).await;
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let read = store.read(&Source::File(path)).await.unwrap();
        assert_eq!(json!(read), json!(records[0]));
    }
}

#[tokio::test]
async fn a_list_goes_with_the_last_record_that_names_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let (old, new) = (offering("old", 60), offering("new", 60));
        let first = ended(&store, &old, None).await;
        let second = ended(&store, &old, None).await;
        assert!(store.delete_run("ann", first[0].run).await.unwrap());
        assert_eq!(kept(&store).await, (1, 2));
        assert_eq!(exported(&store, second[0].run).await, lines_of(&second));
        assert!(store.delete_run("ann", second[0].run).await.unwrap());
        assert_eq!(kept(&store).await, (0, 0));

        let session = store.create_session("ann", "default", "").await.unwrap();
        ended(&store, &new, Some((session.id, 0))).await;
        assert_eq!(kept(&store).await, (1, 2));
        assert!(store.delete_session("ann", session.id).await.unwrap());
        assert_eq!(kept(&store).await, (0, 0));

        // Events of the script end about a second after 1970.
        let pruned = ended(&store, &old, None).await;
        let mut left = ended(&store, &new, None).await;
        sqlx::query("UPDATE runs SET ended_ms = 9000 WHERE id = $1")
            .bind(left[0].run.to_string())
            .execute(&store.pool)
            .await
            .unwrap();
        assert_eq!(kept(&store).await, (2, 4));
        let counts = store.prune(5_000, PrunedBy::Person).await.unwrap();
        assert_eq!(counts.runs, 1);
        assert_eq!(kept(&store).await, (1, 2));
        assert!(exported(&store, pruned[0].run).await.is_empty());
        assert_eq!(exported(&store, left[0].run).await, lines_of(&left));
        // The list is kept again for the next run that has it.
        left = ended(&store, &old, None).await;
        assert_eq!(kept(&store).await, (2, 4));
        assert_eq!(exported(&store, left[0].run).await, lines_of(&left));
    }
}

#[tokio::test]
async fn all_lists_without_a_record_are_deleted() {
    for database in databases().await {
        let store = opened(&database).await;
        let events = ended(&store, &offering("named", 60), None).await;
        // Lists of more than one transaction, before and after the one that is named.
        sqlx::query(
            "INSERT INTO shared_texts (digest, content) WITH RECURSIVE numbers (i) AS \
             (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 50) \
             SELECT CASE WHEN i < 25 THEN ' ' ELSE 'z' END || CAST(i AS TEXT), '[]' FROM numbers",
        )
        .execute(&store.pool)
        .await
        .unwrap();
        assert_eq!(kept(&store).await, (51, 2));
        store.prune(0, PrunedBy::Person).await.unwrap();
        assert_eq!(kept(&store).await, (1, 2));
        assert_eq!(exported(&store, events[0].run).await, lines_of(&events));
    }
}

/// Two stores of one database, as two servers have it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_begins_while_its_list_is_deleted_has_it() {
    for database in databases().await {
        let (one, other) = (opened(&database).await, opened(&database).await);
        let begins_and_deletes = async |store: &Store| {
            let tools = offering("same", 60);
            for _ in 0..25 {
                let events = ended(store, &tools, None).await;
                let run = events[0].run;
                assert_eq!(exported(store, run).await, lines_of(&events));
                assert!(store.delete_run("ann", run).await.unwrap());
            }
        };
        tokio::join!(begins_and_deletes(&one), begins_and_deletes(&other));
        one.prune(0, PrunedBy::Person).await.unwrap();
        assert_eq!(kept(&one).await, (0, 0));
    }
}

/// Another server names the text, and does not come to its commit.
#[tokio::test]
async fn a_text_that_is_locked_while_its_record_is_deleted_goes_later() {
    for database in databases().await {
        if matches!(database.location, Location::File(_)) {
            continue;
        }
        let store = opened(&database).await;
        let events = ended(&store, &offering("many", 60), None).await;
        let run = events[0].run;
        let mut other = store.pool.begin().await.unwrap();
        sqlx::query("SELECT id FROM shared_texts FOR SHARE")
            .fetch_all(&mut *other)
            .await
            .unwrap();
        let is_undone = async {
            while !exported(&store, run).await.is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(kept(&store).await, (1, 0));
            other.rollback().await.unwrap();
        };
        let (is_gone, ()) = tokio::join!(store.delete_run("ann", run), is_undone);
        assert!(is_gone.unwrap());
        assert_eq!(kept(&store).await, (0, 0));
    }
}

#[tokio::test]
async fn records_of_older_versions_have_their_tools_in_their_lines() {
    for database in databases().await {
        let store = opened(&database).await;
        let events = ended(&store, &offering("many", 60), None).await;
        let run = events[0].run;
        for (event, line) in events.iter().zip(lines_of(&events)) {
            sqlx::query("UPDATE events SET line = $1 WHERE run = $2 AND seq = $3")
                .bind(line)
                .bind(run.to_string())
                .bind(event.seq.cast_signed())
                .execute(&store.pool)
                .await
                .unwrap();
        }
        for statement in ["DELETE FROM event_texts", "DELETE FROM shared_texts"] {
            sqlx::query(statement).execute(&store.pool).await.unwrap();
        }
        assert_eq!(exported(&store, run).await, lines_of(&events));
        let read = store.read(&Source::Run(run)).await.unwrap();
        assert_eq!(json!(read), json!(events));
    }
}

#[tokio::test]
async fn a_list_that_was_changed_or_lost_is_found() {
    for database in databases().await {
        let store = opened(&database).await;
        let tools = offering("many", 60);
        let events = ended(&store, &tools, None).await;
        let source = Source::Run(events[0].run);
        sqlx::query("UPDATE shared_texts SET content = REPLACE(content, 'many.t7', 'many.t8')")
            .execute(&store.pool)
            .await
            .unwrap();
        assert_eq!(store.record(&source).await.unwrap().changed, Some(1));
        // The next run has the text that is kept under the digest: it is found there, too.
        let next = ended(&store, &tools, None).await;
        let next = store.record(&Source::Run(next[0].run)).await.unwrap();
        assert_eq!(next.changed, Some(1));
        sqlx::query("DELETE FROM event_texts")
            .execute(&store.pool)
            .await
            .unwrap();
        assert!(matches!(
            store.read(&source).await,
            Err(RecordError::Line { line: 1, .. })
        ));
    }
}

#[tokio::test]
async fn the_length_of_a_line_counts_its_tools() {
    for database in databases().await {
        let store = opened(&database).await;
        let events = ended(&store, &offering("many", 60), None).await;
        let run = events[0].run;
        let lengths: Vec<u64> = lines_of(&events)
            .iter()
            .map(|line| line.len() as u64)
            .collect();
        let page = async |bytes, longest| {
            let bounds = PageBounds {
                events: 9,
                bytes,
                longest,
            };
            match store.page(run, 0, bounds).await.unwrap() {
                RecordPage::Lines(lines) => Ok(lines.len()),
                RecordPage::TooLong(bytes) => Err(bytes),
            }
        };
        let all: u64 = lengths.iter().sum();
        assert_eq!(page(all, all).await, Ok(3));
        assert_eq!(page(all - 1, all).await, Ok(2));
        assert_eq!(page(lengths[0], all).await, Ok(1));
        assert_eq!(page(all, lengths[0] - 1).await, Err(lengths[0]));
    }
}

#[tokio::test]
async fn a_line_that_is_exchanged_still_names_its_tools() {
    for database in databases().await {
        let store = opened(&database).await;
        let events = ended(&store, &offering("many", 60), None).await;
        let run = events[0].run;
        let old = serde_json::to_string(&events[0]).unwrap();
        let mut event = events[0].clone();
        if let EventKind::Run { task, .. } = &mut event.kind {
            task.clear();
        }
        let new = serde_json::to_string(&event).unwrap();
        let mut connection = store.pool.acquire().await.unwrap();
        let mut transaction = OpenTransaction::from(&mut *connection);
        let mut exchange = async |old: &str, new: &str| {
            let work = crate::shared_texts::exchange_line(&mut transaction, run, 0, old, new);
            work.await.unwrap().is_some()
        };
        assert!(!exchange(&new, &old).await, "it is another line");
        assert!(exchange(&old, &new).await);
        assert_eq!(kept(&store).await, (1, 2));
        assert_eq!(exported(&store, run).await[0], new);
        // Other tools are in the line itself.
        if let EventKind::Run { tools, .. } = &mut event.kind {
            *tools = offering("other", 60);
        }
        let other = serde_json::to_string(&event).unwrap();
        assert!(exchange(&new, &other).await);
        assert_eq!(kept(&store).await, (1, 1));
        assert_eq!(exported(&store, run).await[0], other);
    }
}

/// A client's schema may have what events of a summary have.
#[tokio::test]
async fn a_begin_that_looks_like_a_summary_is_read_with_its_tools() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut begin = begin_with(&offering("many", 60));
        if let EventKind::Run { request, .. } = &mut begin {
            request.output_schema = Some(json!({"event": "conversation_summarized"}));
        }
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let events = [script.event(begin), script.done()];
        journal.append(&events).await.unwrap();
        assert_eq!(kept(&store).await, (1, 1));
        assert!(store.summed_up(script.run).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_copy_of_the_database_has_the_lists() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let at = |path: &std::path::Path| Location::File(path.to_owned());
    let store = Store::open(&at(&path), OUTAGE_TIMEOUT).await.unwrap();
    let events = ended(&store, &offering("many", 60), None).await;
    File::create_new(&copy).unwrap();
    copy_database(&path, &copy).await.unwrap();
    let copied = Store::open(&at(&copy), OUTAGE_TIMEOUT).await.unwrap();
    assert_eq!(kept(&copied).await, (1, 2));
    assert_eq!(exported(&copied, events[0].run).await, lines_of(&events));
}

/// A text of a Request is gone when the last line that has it loses it, as a line does from which texts are taken.
#[tokio::test]
async fn a_text_goes_with_the_last_line_that_names_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let system = "Say what you find. ".repeat(60);
        let mut records = Vec::new();
        for question in ["What is it?", "Who is it?"] {
            let mut script = EventScript::new();
            let mut journal = store.journal(script.run, Label::default());
            let events = [
                script.begin("t"),
                script.event(asks_with(&system, &[question])),
                script.done(),
            ];
            for event in &events {
                journal.append(from_ref(event)).await.unwrap();
            }
            assert_eq!(exported(&store, script.run).await, lines_of(&events));
            records.push(events);
        }
        // Settings and instructions, of two runs each.
        assert_eq!(kept(&store).await, (2, 4));
        let mut connection = store.pool.acquire().await.unwrap();
        for (events, left) in records.iter().zip([(2, 3), (1, 2)]) {
            let old = serde_json::to_string(&events[1]).unwrap();
            let mut event = events[1].clone();
            event.kind = asks_with("", &["What is it?"]);
            let new = serde_json::to_string(&event).unwrap();
            let mut transaction = OpenTransaction::from(&mut *connection);
            let run = event.run;
            let work = crate::shared_texts::exchange_line(&mut transaction, run, 1, &old, &new);
            assert_eq!(work.await.unwrap(), Some(Vec::new()));
            assert_eq!(kept(&store).await, left);
            assert_eq!(exported(&store, run).await[1], new);
        }
    }
}
