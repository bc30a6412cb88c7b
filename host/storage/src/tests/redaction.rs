//! Texts of deleted documents and forgotten facts in records of runs, the same for both databases.

use super::audit::{all, faults};
use super::knowledge::{add, collection};
use super::{EventScript, TestDatabase, databases, opened, pending};
use crate::*;
use serde_json::{Value, json};
use std::slice::from_ref;
use toolhold_protocol::event::{Event, EventKind, Journal as _, RemovedSource, Seal};
use uuid::Uuid;

const FACT: &str = "Ann lives in Trier";

pub(super) async fn passages_of(store: &Store, document: Uuid) -> Vec<i64> {
    sqlx::query_scalar("SELECT id FROM passages WHERE document = $1 ORDER BY number")
        .bind(document.to_string())
        .fetch_all(&store.pool)
        .await
        .unwrap()
}

pub(super) async fn keep(store: &Store) -> Uuid {
    let new = NewFact {
        scope: &FactScope::User,
        text: FACT,
        source: "call c1",
        confidence: 1.0,
        supersedes: None,
    };
    let kept = store.remember("", new, FactQuota::default()).await;
    kept.unwrap().id
}

pub(super) fn kind(value: Value) -> EventKind {
    serde_json::from_value(value).unwrap()
}

fn retrieved(passage: i64, text: &str) -> EventKind {
    kind(
        json!({"event": "retrieved", "step": 0, "duration_ms": 1, "passages": [
            {"id": "k1", "passage": passage, "source": "a", "title": text, "heading": text, "text": text},
            {"id": "k2", "source": "b", "text": "another text"},
        ]}),
    )
}

pub(super) fn request(step: u32, text: &str) -> EventKind {
    kind(
        json!({"event": "request", "step": step, "body": {"model": "m", "messages": [{"role": "user", "content": text}]}}),
    )
}

fn reply(step: u32, arguments: &Value) -> EventKind {
    kind(
        json!({"event": "reply", "step": step, "completion": {"content": "", "tool_calls": [
            {"id": "x", "type": "function", "function": {"name": "remember", "arguments": arguments.to_string()}},
        ]}}),
    )
}

pub(super) fn started(step: u32, id: &str, tool: &str, arguments: &Value) -> EventKind {
    kind(
        json!({"event": "tool_start", "step": step, "id": id, "tool": tool, "arguments": arguments, "reason": "It was said"}),
    )
}

pub(super) fn ended(step: u32, id: &str, tool: &str, output: &Value) -> EventKind {
    kind(
        json!({"event": "tool_result", "step": step, "id": id, "tool": tool, "output": output, "usage": {}}),
    )
}

/// Events of a run that is shown a passage and recalls and remembers a fact. Its tools have other names than usual.
fn events_with(passage: i64, text: &str, fact: Uuid) -> Vec<EventKind> {
    let arguments = json!({"text": FACT});
    let mut waits = pending("c3", arguments.clone());
    waits.call.tool = "knowledge.remember".into();
    waits.call.arguments = arguments.clone();
    let found = json!({"passages": [{"id": passage.to_string(), "under": text, "text": text}]});
    vec![
        retrieved(passage, text),
        request(1, text),
        started(
            1,
            "c1",
            "knowledge@1.0.search",
            &json!({"question": "what"}),
        ),
        EventKind::Sub {
            call: "c1".into(),
            what: Box::new(ended(1, "c1.1", "knowledge.search", &found)),
        },
        ended(1, "c1", "knowledge@1.0.search", &found),
        ended(
            1,
            "c2",
            "knowledge.recall",
            &json!({"facts": [{"id": fact, "text": FACT}]}),
        ),
        request(2, FACT),
        kind(json!({"event": "delta", "step": 2, "content": FACT})),
        kind(
            json!({"event": "written", "step": 2, "pieces": [{"content": FACT}, {"reasoning": FACT}]}),
        ),
        reply(2, &arguments),
        EventKind::Approval {
            step: 2,
            pending: waits,
        },
        started(2, "c3", "knowledge.remember", &arguments),
        ended(2, "c3", "knowledge.remember", &json!({"id": fact})),
        request(3, FACT),
        kind(json!({"event": "reply", "step": 3, "completion": {"content": "done"}})),
    ]
}

/// Writes a run with these events, which has not ended. Its journal is returned, so that it keeps its lease.
async fn begun(store: &Store, events: Vec<EventKind>) -> (EventScript, RunJournal) {
    let mut script = EventScript::new();
    let mut journal = store.journal(script.run, Label::default());
    let mut all = vec![script.begin("t")];
    all.extend(events.into_iter().map(|kind| script.event(kind)));
    for event in &all {
        journal.append(from_ref(event)).await.unwrap();
    }
    (script, journal)
}

async fn end(script: &mut EventScript, journal: &mut RunJournal) {
    journal.append(&[script.done()]).await.unwrap();
}

async fn ended_run(store: &Store, events: Vec<EventKind>) -> Uuid {
    let (mut script, mut journal) = begun(store, events).await;
    end(&mut script, &mut journal).await;
    script.run
}

pub(super) async fn text_of(store: &Store, run: Uuid) -> String {
    let lines = store.sealed(run, 0).await.unwrap();
    lines.into_iter().map(|(_, line)| line + "\n").collect()
}

pub(super) async fn changed(store: &Store, run: Uuid) -> Option<usize> {
    store.record(&Source::Run(run)).await.unwrap().changed
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_and_forgotten_texts_go_out_of_records_when_their_runs_have_ended() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d1", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let fact = keep(&store).await;
        let events = || events_with(passage, "marmalade", fact);
        let over = ended_run(&store, events()).await;
        let (mut open, mut journal) = begun(&store, events()).await;
        let kept = add(&store, &tales, "b", "d2", &["jam"]).await;
        let kept = passages_of(&store, kept).await[0];
        let other = ended_run(&store, vec![retrieved(kept, "marmalade")]).await;

        assert!(store.delete_document("k", &tales, document).await.unwrap());
        let removed = store.remove_gone_passages(0).await.unwrap();
        assert_eq!((removed.passages, removed.records), (1, 1));
        let forgotten = store.forget("", fact, ForgetExtent::Fact, "person").await;
        assert_eq!(forgotten.unwrap().unwrap().facts, [fact]);
        assert_eq!(store.redact_records().await.unwrap().records, 1);

        let text = text_of(&store, over).await;
        assert!(
            !text.contains("marmalade") && !text.contains(FACT),
            "{text}"
        );
        for kept in [
            "another text",
            "\"source\":\"a\"",
            "\"model\":\"m\"",
            "done",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
        // It is what it is said to be, and says what is gone.
        let events = store.read(&Source::Run(over)).await.unwrap();
        let of = |seq: usize| events[seq].removed.clone().unwrap().of;
        assert!(
            matches!(&of(1)[..], [RemovedSource::Document { id: Some(id), digest: Some(digest), .. }]
                if *id == document && digest == "d1")
        );
        assert_eq!(of(2), of(1), "the request that showed the passage");
        assert!(matches!(&of(6)[..], [RemovedSource::Fact { id, .. }] if *id == fact));
        assert_eq!(faults(&store).await, Vec::<String>::new());
        let rows = all(&store).await;
        let told = rows.iter().filter(|row| row["action"] == "record_redacted");
        assert!(
            told.clone().count() == 2 && told.clone().all(|row| row["run"] == json!(over)),
            "{rows:?}"
        );
        assert!(!json!(rows).to_string().contains("marmalade"));

        let salts = |run: Uuid| {
            let salts = sqlx::query_scalar("SELECT COUNT(*) FROM audit_salts WHERE run = $1");
            salts.bind(run.to_string()).fetch_one(&store.pool)
        };
        // No guess of the fact can be checked against the log.
        let (gone, kept): (i64, i64) = (salts(over).await.unwrap(), salts(open.run).await.unwrap());
        assert!(gone == 0 && kept > 0, "{gone} {kept}");
        // The others are as they were: one has not ended, one was shown something else.
        assert!(text_of(&store, open.run).await.contains(FACT));
        assert!(text_of(&store, other).await.contains("marmalade"));
        assert_eq!(store.redact_records().await.unwrap().records, 0);
        end(&mut open, &mut journal).await;
        assert_eq!(store.redact_records().await.unwrap().records, 1);
        let text = text_of(&store, open.run).await;
        assert!(
            !text.contains("marmalade") && !text.contains(FACT),
            "{text}"
        );
        assert_eq!(changed(&store, open.run).await, None);
        assert_eq!(changed(&store, other).await, None);
        assert!(store.delete_run("", other).await.unwrap());
        store.remove_gone_passages(0).await.unwrap();
        for needle in ["marmalade", FACT] {
            assert!(!is_in_a_table(&store, needle).await, "{needle}");
            assert!(!is_in_the_file(&database, needle), "{needle}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_names_all_that_was_taken_out_of_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let (mut documents, mut found) = (Vec::new(), Vec::new());
        for (source, text) in [("a", "marmalade"), ("b", "honey"), ("c", "jam")] {
            let document = add(&store, &tales, source, source, &[text]).await;
            let passage = passages_of(&store, document).await[0];
            documents.push(document);
            found.push(json!({"id": passage.to_string(), "text": text}));
        }
        let found = ended(1, "c1", "knowledge.search", &json!({"passages": found}));
        let run = ended_run(&store, vec![found]).await;
        for (removed, document) in (1..).zip(&documents[..2]) {
            assert!(store.delete_document("k", &tales, *document).await.unwrap());
            assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 1);
            let events = store.read(&Source::Run(run)).await.unwrap();
            assert_eq!(events[1].removed.clone().unwrap().of.len(), removed);
        }
        let text = text_of(&store, run).await;
        assert!(
            text.contains("jam") && !text.contains("honey") && !text.contains("marmalade"),
            "{text}"
        );
    }
}

/// Whether any row of any table of a SQLite file has a text.
async fn is_in_a_table(store: &Store, needle: &str) -> bool {
    if !store.database.is_file() {
        return false;
    }
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'",
    )
    .fetch_all(&store.pool)
    .await
    .unwrap();
    assert!(tables.iter().any(|name| name == "events"), "{tables:?}");
    for table in tables {
        let columns: Vec<String> = sqlx::query_scalar("SELECT name FROM pragma_table_info($1)")
            .bind(&table)
            .fetch_all(&store.pool)
            .await
            .unwrap();
        for column in columns {
            let statement = format!(
                "SELECT COUNT(*) FROM \"{table}\" WHERE INSTR(CAST(\"{column}\" AS TEXT), $1) > 0"
            );
            let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(statement))
                .bind(needle)
                .fetch_one(&store.pool)
                .await
                .unwrap();
            if found > 0 {
                return true;
            }
        }
    }
    false
}

/// Whether the bytes of a SQLite file, or of its write-ahead log, have a text.
fn is_in_the_file(database: &TestDatabase, needle: &str) -> bool {
    let Location::File(path) = &database.location else {
        return false;
    };
    let files = [path.clone(), path.with_extension("db-wal")];
    files.iter().any(|file| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes
            .windows(needle.len())
            .any(|it| it == needle.as_bytes())
    })
}

/// Exchanges the line of an event, as a forger with access to the database does.
async fn exchange(store: &Store, run: Uuid, seq: i64, line: &str) {
    let exchanged = sqlx::query("UPDATE events SET line = $1 WHERE run = $2 AND seq = $3")
        .bind(line)
        .bind(run.to_string())
        .bind(seq)
        .execute(&store.pool)
        .await
        .unwrap();
    assert_eq!(exchanged.rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_does_not_pass_for_a_redaction() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let events = || vec![retrieved(passage, "marmalade")];
        let (one, two) = (
            ended_run(&store, events()).await,
            ended_run(&store, events()).await,
        );
        let kept = add(&store, &tales, "b", "d2", &["jam"]).await;
        let kept = passages_of(&store, kept).await[0];
        let untouched = ended_run(&store, vec![retrieved(kept, "marmalade")]).await;
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 2);
        let genuine = store.sealed(one, 0).await.unwrap()[1].1.clone();
        let other = store.sealed(two, 0).await.unwrap()[1].1.clone();
        let untouched_line = store.sealed(untouched, 0).await.unwrap()[1].1.clone();
        assert_eq!(changed(&store, one).await, None);

        let edited = genuine.replace("another text", "my text");
        // As if texts were taken out of it, by the number of a row that tells of another.
        let forged = |sealed_anew: bool| {
            let mut event: Event = serde_json::from_str(&untouched_line).unwrap();
            let told: Event = serde_json::from_str(&genuine).unwrap();
            event.removed = told.removed;
            if sealed_anew {
                event = event.sealed(&Seal::default()).unwrap();
            }
            serde_json::to_string(&event).unwrap()
        };
        for (run, line) in [
            (one, &edited),
            // A genuine one of another run.
            (one, &other),
            (untouched, &forged(false)),
            (untouched, &forged(true)),
        ] {
            let was = store.sealed(run, 0).await.unwrap()[1].1.clone();
            exchange(&store, run, 1, line).await;
            assert_eq!(changed(&store, run).await, Some(2), "{line}");
            assert!(store.read(&Source::Run(run)).await.is_err());
            exchange(&store, run, 1, &was).await;
            assert_eq!(changed(&store, run).await, None);
        }
        // A row of the log that tells of it, and that the log's chain does not have.
        exchange(&store, one, 1, &edited).await;
        let entry = sqlx::query_scalar(
            "SELECT entry FROM audit WHERE action = 'record_redacted' AND number = $1",
        )
        .bind(
            serde_json::from_str::<Event>(&genuine)
                .unwrap()
                .removed
                .unwrap()
                .entry,
        )
        .fetch_one(&store.pool)
        .await;
        let entry: String = entry.unwrap();
        let digest = |line: &str| crate::audit_rows::line_digest(line);
        let telling = entry.replace(&digest(&genuine), &digest(&edited));
        assert_ne!(entry, telling);
        sqlx::query("UPDATE audit SET entry = $1 WHERE entry = $2")
            .bind(&telling)
            .bind(&entry)
            .execute(&store.pool)
            .await
            .unwrap();
        assert_eq!(changed(&store, one).await, Some(2));
        assert_eq!(faults(&store).await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_event_loses_its_texts_and_keeps_its_fault() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let run = ended_run(
            &store,
            vec![retrieved(passage, "marmalade"), request(1, "x")],
        )
        .await;
        let line = store.sealed(run, 0).await.unwrap()[1].1.clone();
        exchange(&store, run, 1, &line.replace("another text", "my text")).await;
        assert_eq!(changed(&store, run).await, Some(2));
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 1);
        assert!(!text_of(&store, run).await.contains("marmalade"));
        assert_eq!(changed(&store, run).await, Some(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_versions_of_a_document_go_when_it_is_deleted_and_not_when_it_is_replaced() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let first = add(&store, &tales, "a", "d1", &["marmalade"]).await;
        let passage = passages_of(&store, first).await[0];
        let run = ended_run(&store, vec![retrieved(passage, "marmalade")]).await;
        // The second was shown to no run.
        add(&store, &tales, "a", "d2", &["jam"]).await;
        let last = add(&store, &tales, "a", "d3", &["honey"]).await;
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 0);
        assert!(text_of(&store, run).await.contains("marmalade"));
        assert!(store.delete_document("k", &tales, last).await.unwrap());
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 1);
        assert!(!text_of(&store, run).await.contains("marmalade"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_collection_goes_out_of_records_and_what_came_with_a_task_does_not() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut runs = Vec::new();
        for name in ["tales", &attached_name(Uuid::now_v7())] {
            let of = collection(&store, "k", name).await;
            let document = add(&store, &of, "a", "d", &["marmalade"]).await;
            let passage = passages_of(&store, document).await[0];
            runs.push(ended_run(&store, vec![retrieved(passage, "marmalade")]).await);
            assert!(store.delete_collection("k", &of).await.unwrap());
        }
        assert_eq!(store.remove_gone_passages(0).await.unwrap().records, 1);
        assert!(!text_of(&store, runs[0]).await.contains("marmalade"));
        assert!(text_of(&store, runs[1]).await.contains("marmalade"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passage_that_was_gone_before_the_record_had_it_goes_at_the_end_of_its_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        store.remove_gone_passages(0).await.unwrap();
        // The search was answered before that.
        let (mut script, mut journal) = begun(&store, vec![retrieved(passage, "marmalade")]).await;
        assert_eq!(store.redact_records().await.unwrap().records, 0);
        end(&mut script, &mut journal).await;
        assert_eq!(store.redact_records().await.unwrap().records, 1);
        assert!(!text_of(&store, script.run).await.contains("marmalade"));
    }
}

#[tokio::test]
async fn entries_that_a_record_needs_stay_in_the_log() {
    for database in databases().await {
        let store = opened(&database).await;
        let tales = collection(&store, "k", "tales").await;
        let document = add(&store, &tales, "a", "d1", &["marmalade"]).await;
        let passage = passages_of(&store, document).await[0];
        let run = ended_run(&store, vec![retrieved(passage, "marmalade")]).await;
        assert!(store.delete_document("k", &tales, document).await.unwrap());
        let removed = store.remove_gone_passages(0).await.unwrap();
        assert_eq!(removed.records, 1);
        let draft = || Draft::module_approved("ada", "m", "ab");
        store.audit(draft()).await.unwrap();
        let later = now_ms() + 60_000;
        store.expire_audit(later, PrunedBy::Person).await.unwrap();
        assert_eq!(changed(&store, run).await, None);
        let needed = all(&store).await;
        assert!(needed.iter().any(|row| row["action"] == "record_redacted"));
        // With the run they go.
        sqlx::query("DELETE FROM runs")
            .execute(&store.pool)
            .await
            .unwrap();
        store.expire_audit(later, PrunedBy::Person).await.unwrap();
        let left = all(&store).await;
        assert!(
            left.iter().all(|row| row["action"] == "audit_expired"),
            "{left:?}"
        );
        assert_eq!(faults(&store).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn all_that_no_record_has_is_forgotten() {
    for database in databases().await {
        let store = opened(&database).await;
        // More than one transaction takes.
        for statement in [
            "INSERT INTO deleted_texts (source, digest, deleted_ms) WITH RECURSIVE numbers (i) AS \
             (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 450) \
             SELECT 'd' || CAST(i AS TEXT), '', 1 FROM numbers",
            "INSERT INTO replaced_documents (document, successor) WITH RECURSIVE numbers (i) AS \
             (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 500) \
             SELECT 'd' || CAST(i AS TEXT), 'new' FROM numbers",
        ] {
            sqlx::query(statement).execute(&store.pool).await.unwrap();
        }
        store.redact_records().await.unwrap();
        // What was gone before a record had it stays, and versions of what was not deleted.
        for (statement, expected) in [
            ("SELECT COUNT(*) FROM deleted_texts", 1),
            ("SELECT COUNT(*) FROM replaced_documents", 50),
        ] {
            let left: i64 = sqlx::query_scalar(statement)
                .fetch_one(&store.pool)
                .await
                .unwrap();
            assert_eq!(left, expected, "{statement}");
        }
    }
}
