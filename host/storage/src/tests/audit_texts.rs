//! Texts of memory in the audit log, the same for both databases.

use super::audit::{all, faults};
use super::interrupted::calls_file;
use super::{EventScript, OUTAGE_TIMEOUT, TestDatabase, databases, pending};
use crate::audit_rows::{self, RunAudit, link};
use crate::*;
use serde_json::{Map, Value, json};
use std::slice::from_ref;
use toolhold_policy::Digest;
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::event::{EventKind, Journal as _, ToolOutcome};
use toolhold_protocol::result::ToolUsage;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Tool;

const FACT: &str = "Ann lives in Trier";

fn remembers(id: &str) -> Call {
    Call {
        id: id.into(),
        tool: "knowledge.remember".into(),
        arguments: json!({"text": FACT, "confidence": 1.0}),
        reason: Some(format!("She said: {FACT}")),
        ..Default::default()
    }
}

fn ended(id: &str) -> EventKind {
    EventKind::ToolResult {
        step: 1,
        id: id.into(),
        tool: "knowledge.remember".into(),
        outcome: ToolOutcome::Output(json!({"kept": FACT})),
        written: Vec::new(),
        usage: ToolUsage::default(),
        printed: Vec::new(),
        module: None,
        by_host: false,
        cached: None,
    }
}

/// A run that remembers a fact twice, the second time after a person was asked. Its record has ended.
async fn remembering_run(store: &Store) -> EventScript {
    let mut script = EventScript::new();
    let mut journal = store.journal(script.run, Label::default());
    let waits = Pending {
        call: remembers("c2"),
        ..pending("c2", remembers("c2").arguments)
    };
    let digest = waits.digest.clone();
    let started = |id| EventKind::ToolStart {
        step: 1,
        call: remembers(id),
        filled: None,
        may_be_repeated: false,
    };
    let mut events = vec![script.begin("t")];
    for kind in [
        started("c1"),
        ended("c1"),
        EventKind::Approval {
            step: 1,
            pending: waits,
        },
        EventKind::Decided {
            step: 1,
            id: "c2".into(),
            decision: Decision {
                digest,
                verdict: Verdict::Approve,
                by: Some("key bob".into()),
            },
        },
        started("c2"),
        ended("c2"),
    ] {
        events.push(script.event(kind));
    }
    events.push(script.done());
    for event in &events {
        journal.append(from_ref(event)).await.unwrap();
    }
    script
}

async fn salt_of(store: &Store, number: &Value) -> Option<String> {
    sqlx::query_scalar("SELECT salt FROM audit_salts WHERE number = $1")
        .bind(number.as_i64().unwrap())
        .fetch_optional(&store.pool)
        .await
        .unwrap()
}

fn salted(salt: &str, text: &str) -> Value {
    json!(Digest::of(format!("{salt}\n{text}").as_bytes()).to_string())
}

#[tokio::test]
async fn calls_of_memory_have_salted_digests_until_their_run_is_deleted() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let store = store.keeping(AuditContent {
            results: true,
            ..AuditContent::default()
        });
        let script = remembering_run(&store).await;
        let told = all(&store).await;
        let text = json!(told).to_string();
        assert!(!text.contains("Trier"), "{text}");
        let [first, decided, second] = <[Value; 3]>::try_from(told).unwrap();
        assert_ne!(first["arguments"], second["arguments"]);
        let unsalted = pending("c2", remembers("c2").arguments).digest;
        assert_ne!(decided["digest"], json!(unsalted));
        // Who has the record and the salt can show that the row is of these arguments.
        let salt = salt_of(&store, &first["number"]).await.unwrap();
        let mut given = remembers("c1").arguments;
        given.sort_all_objects();
        assert_eq!(first["arguments"], salted(&salt, &given.to_string()));
        let result = Digest::of(json!({"kept": FACT}).to_string().as_bytes());
        assert_eq!(first["result_digest"], salted(&salt, &result.to_string()));

        assert!(store.delete_run("", script.run).await.unwrap());
        for row in [&first, &decided, &second] {
            assert_eq!(salt_of(&store, &row["number"]).await, None);
        }
        assert_eq!(faults(&store).await, Vec::<String>::new());
    }
}

fn record(id: &str) -> CallRecord {
    CallRecord {
        id: id.into(),
        tool: "knowledge.remember".into(),
        arguments: json!({"text": FACT}),
        policy: "p".into(),
        owner: "mcp:http".into(),
        way: Map::from_iter([("via".to_owned(), "mcp".into())]),
    }
}

#[tokio::test]
async fn calls_of_memory_of_no_run_leave_no_text() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let until = Durability::Written;
        for id in ["ended", "killed"] {
            store.audit_begin(&record(id), until).await.unwrap();
        }
        let begun = if let Some(file) = calls_file(&store) {
            std::fs::read_to_string(file).unwrap()
        } else {
            let begun: Vec<String> = sqlx::query_scalar("SELECT draft FROM open_calls")
                .fetch_all(&store.pool)
                .await
                .unwrap();
            begun.concat()
        };
        assert!(
            begun.matches("interrupted").count() == 2 && !begun.contains(FACT),
            "{begun}"
        );
        let usage = ToolUsage::default();
        let row = record("ended").ended(store.content(), Ok(&json!(FACT)), &usage, None, false);
        store
            .audit_call("ended", row, until, Box::new(()))
            .await
            .unwrap();
        // As an older version wrote the begin of the call that was killed.
        sqlx::query("DELETE FROM open_calls")
            .execute(&store.pool)
            .await
            .unwrap();
        sqlx::query("INSERT INTO open_calls (call, holder, draft) VALUES ('killed', $1, $2)")
            .bind(uuid::Uuid::now_v7().to_string())
            .bind(
                json!({
                    "at_ms": 1, "owner": "ann", "action": "call", "source": null, "tool": "knowledge.remember",
                    "details": {"call": "killed", "arguments": {"text": FACT}, "status": "interrupted"},
                })
                .to_string(),
            )
            .execute(&store.pool)
            .await
            .unwrap();
        store.audit_interrupted().await.unwrap();
        let told = all(&store).await;
        let calls: Vec<&Value> = told.iter().map(|row| &row["call"]).collect();
        assert_eq!(calls, ["ended", "killed"]);
        assert!(!json!(told).to_string().contains(FACT), "{told:?}");
        assert!(faults(&store).await.is_empty());
    }
}

/// Adds rows as older versions did. Returns the log's head.
async fn add_older_rows(store: &Store, tool: &str, rows: u64) -> String {
    let mut transaction = store.pool.begin().await.unwrap();
    let (mut number, mut hash) = audit_rows::lock_head(&mut transaction).await.unwrap();
    for call in 0..rows {
        number += 1;
        let mut entry = json!({
            "action": "call", "arguments": {"text": FACT, "texts": "salted"}, "at_ms": 7, "call": call.to_string(),
            "message": FACT, "number": number, "owner": "ann", "reason": FACT, "result_digest": "ab", "status": "error",
            "tool": tool,
        });
        entry.sort_all_objects();
        let entry = entry.to_string();
        hash = link(&hash, &entry);
        sqlx::query(
            "INSERT INTO audit (number, at_ms, owner, action, tool, entry, hash) \
             VALUES ($1, 7, 'ann', 'call', $2, $3, $4)",
        )
        .bind(number)
        .bind(tool)
        .bind(entry)
        .bind(&hash)
        .execute(&mut *transaction)
        .await
        .unwrap();
    }
    sqlx::query("UPDATE audit_head SET number = $1, hash = $2")
        .bind(number)
        .bind(&hash)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    hash
}

async fn execute(store: &Store, statement: &'static str) {
    sqlx::query(statement).execute(&store.pool).await.unwrap();
}

#[tokio::test]
async fn rows_of_older_versions_are_redacted_once_and_the_log_stays_genuine() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        add_older_rows(&store, "files.write", 1).await;
        // More than one batch.
        add_older_rows(&store, "knowledge.remember", 201).await;
        let head = add_older_rows(&store, "knowledge.recall", 1).await;
        for _ in 0..2 {
            let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
            let verified = store.verify_audit(Some(&head)).await.unwrap();
            assert_eq!(verified.faults, []);
            // Two seals of the one tool, and one of the other.
            assert_eq!((verified.entries, verified.redacted), (203 + 3, 202));
        }
        let told = all(&store).await;
        let with_text = told.iter().filter(|row| row.to_string().contains(FACT));
        let tools: Vec<&Value> = with_text.map(|row| &row["tool"]).collect();
        assert_eq!(tools, ["files.write"]);
        assert_eq!(
            told[1],
            json!({
                "action": "call", "at_ms": 7, "call": "0", "number": 2, "owner": "ann", "status": "error",
                "texts": "redacted", "tool": "knowledge.remember",
            })
        );
        // A server of the older version still ran.
        add_older_rows(&store, "knowledge.remember", 1).await;
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let verified = store.verify_audit(Some(&head)).await.unwrap();
        assert_eq!((verified.redacted, verified.faults), (203, Vec::new()));
    }
}

#[tokio::test]
async fn a_tombstone_that_no_entry_tells_of_is_named() {
    // The log has rows 1 (another tool), 2 and 3 (tombstones), and 4 (their seal).
    let forged: [(&'static str, &str); 4] = [
        (
            "UPDATE audit SET entry = REPLACE(entry, '\"status\":\"error\"', '\"status\":\"ok\"') WHERE number = 2",
            "entry 2 has lost its texts",
        ),
        (
            "UPDATE audit SET hash = 'ff' WHERE number = 2",
            "entry 2 has lost its texts",
        ),
        (
            "UPDATE audit SET entry = REPLACE(entry, '\"number\":2', '\"number\":3') WHERE number = 2",
            "entry 2 holds what was written as entry 3",
        ),
        (
            "UPDATE audit SET entry = '{\"action\":\"call\",\"at_ms\":7,\"number\":1,\"owner\":\"ann\",\
             \"texts\":\"redacted\",\"tool\":\"files.write\"}' WHERE number = 1",
            "entry 1 was changed",
        ),
    ];
    for (statement, expected) in forged {
        for TestDatabase { location, .. } in databases().await {
            let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
            add_older_rows(&store, "files.write", 1).await;
            add_older_rows(&store, "knowledge.forget", 2).await;
            let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
            assert!(faults(&store).await.is_empty());
            execute(&store, statement).await;
            let found = faults(&store).await;
            assert!(
                found.iter().any(|fault| fault.starts_with(expected)),
                "{statement}: {found:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_row_that_somebody_changed_is_not_hidden_by_a_tombstone() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        add_older_rows(&store, "knowledge.remember", 2).await;
        execute(
            &store,
            "UPDATE audit SET entry = REPLACE(entry, 'Trier', 'Bonn') WHERE number = 1",
        )
        .await;
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let verified = store.verify_audit(None).await.unwrap();
        assert_eq!(verified.faults, [AuditFault::Changed { number: 1 }]);
        assert_eq!(verified.redacted, 1);
    }
}

/// A saved Request gives a tool of memory a name of its own.
#[test]
fn a_tool_of_memory_is_known_under_another_name() {
    let mut script = EventScript::new();
    let mut audit = RunAudit::new(script.run, "ann", AuditContent::default());
    let mut began = script.begin("t");
    let EventKind::Run { tools, .. } = &mut began.kind else {
        panic!("it is the begin");
    };
    *tools = BoundTools::from([Bound {
        tool: Tool::new("note").into(),
        runner: Runner::Module("knowledge.remember".into()),
    }]);
    assert!(audit.take(&began).is_empty());
    let call = Call {
        tool: "note".into(),
        ..remembers("c1")
    };
    let started = EventKind::ToolStart {
        step: 1,
        call,
        filled: None,
        may_be_repeated: false,
    };
    assert!(audit.take(&script.event(started)).is_empty());
    let mut over = ended("c1");
    if let EventKind::ToolResult { tool, .. } = &mut over {
        *tool = "note".into();
    }
    let rows = audit.take(&script.event(over));
    let row = json!(rows).to_string();
    assert!(row.contains("\"note\"") && !row.contains(FACT), "{row}");
}
