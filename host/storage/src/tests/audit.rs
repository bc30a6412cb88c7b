//! The audit log, the same for both databases.

use super::{EventScript, OUTAGE_TIMEOUT, TestDatabase, databases, pending};
use crate::audit_log::{AuditFault, Entry, Filter, PageStart};
use crate::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::slice::from_ref;
use std::time::Duration;
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::decision::{Decision, Verdict};
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::event::sub_run;
use toolhold_protocol::event::{Event, EventKind, Journal as _, SharedWithPrevious};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolUsage;
use uuid::Uuid;

const EMAIL: &str = "canary@example.org";
const SECRET: &str = "correct-horse-battery";

pub fn started(call: &str, arguments: Value) -> EventKind {
    EventKind::ToolStart {
        step: 1,
        call: toolhold_protocol::solution::Call {
            id: call.into(),
            tool: "files.write".into(),
            arguments,
            ..Default::default()
        },
        filled: None,
        may_be_repeated: false,
    }
}

pub fn ended(call: &str, outcome: ToolOutcome) -> EventKind {
    EventKind::ToolResult {
        step: 1,
        id: call.into(),
        tool: "files.write".into(),
        outcome,
        written: Vec::new(),
        usage: ToolUsage {
            duration_us: 7,
            ..ToolUsage::default()
        },
        printed: Vec::new(),
        module: Some("ab12".into()),
        by_host: false,
        cached: None,
    }
}

/// A run of one call, whose events are in the database.
async fn one_call(store: &Store, owner: &str) -> (EventScript, RunJournal, Vec<Event>) {
    let mut script = EventScript::new();
    let label = Label {
        owner: owner.into(),
        ..Label::default()
    };
    let mut journal = store.journal(script.run, label);
    let events = vec![
        script.begin("t"),
        script.event(started("c1", json!({"to": EMAIL, "key": SECRET}))),
        script.event(ended("c1", ToolOutcome::Output(json!({"from": EMAIL})))),
    ];
    for event in &events {
        journal.append(from_ref(event)).await.unwrap();
    }
    (script, journal, events)
}

pub async fn all(store: &Store) -> Vec<Value> {
    let filter = Filter::default();
    let entries = store.audited(&filter, PageStart::After(0), 1_000);
    let entries = entries.await.unwrap();
    let read = entries.iter().map(|it| serde_json::from_str(&it.text));
    read.collect::<Result<_, _>>().unwrap()
}

pub async fn faults(store: &Store) -> Vec<String> {
    let verified = store.verify_audit(None).await.unwrap();
    verified.faults.iter().map(AuditFault::to_string).collect()
}

#[tokio::test]
async fn a_call_is_logged_once_and_without_private_data() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let redaction = Redaction::new([("crm".to_owned(), SECRET.to_owned())]);
        let store = store.keeping(AuditContent {
            redaction,
            results: false,
        });
        let (mut script, mut journal, events) = one_call(&store, "alice").await;
        // The answer to the last commit was lost on the way.
        journal
            .append(from_ref(events.last().unwrap()))
            .await
            .unwrap();
        let told = all(&store).await;
        assert_eq!(told.len(), 1, "{told:?}");
        let digest = toolhold_policy::Digest::of(json!({"from": EMAIL}).to_string().as_bytes());
        assert_eq!(
            told[0],
            json!({
                "number": 1, "at_ms": 1_002, "owner": "alice", "action": "call", "run": script.run, "seq": 2,
                "call": "c1", "tool": "files.write", "arguments": {"to": "<email>", "key": "[secret crm]"},
                "module_digest": "ab12", "status": "ok", "result_digest": digest.to_string(), "duration_us": 7,
                "policy": "", "by_host": false,
            })
        );

        let refused = script.event(started("c2", json!({})));
        journal.append(from_ref(&refused)).await.unwrap();
        let failure = ToolFailure::correctable("refused", format!("no {EMAIL}"));
        let failed = script.event(ended("c2", ToolOutcome::Error(failure)));
        journal.append(from_ref(&failed)).await.unwrap();
        let waits = pending("c3", json!({"mail": EMAIL}));
        let asked = EventKind::Approval {
            step: 1,
            pending: waits.clone(),
        };
        journal.append(&[script.event(asked)]).await.unwrap();
        let decided = EventKind::Decided {
            step: 1,
            id: "c3".into(),
            decision: Decision {
                digest: waits.digest.clone(),
                verdict: Verdict::Approve,
                by: Some("key bob".into()),
            },
        };
        journal.append(&[script.event(decided)]).await.unwrap();
        let taken = async |call: &str, digest: &str| {
            let taken = store
                .decision_taken(script.run, call, digest)
                .await
                .unwrap();
            taken.and_then(|decision| decision.by)
        };
        assert_eq!(taken("c3", &waits.digest).await.as_deref(), Some("key bob"));
        assert_eq!(taken("c3", "another").await, None);
        assert_eq!(taken("c2", &waits.digest).await, None);
        // Another process resumes the run, under another policy, in the middle of a sub-agent's call.
        drop(journal);
        let (mut journal, _) = loop {
            match store.reopen(script.run).await {
                Err(RecordError::Held) => tokio::time::sleep(Duration::from_millis(20)).await,
                other => break other.unwrap(),
            }
        };
        journal.under("p2");
        journal
            .append(&[script.event(ended("c3", ToolOutcome::Output(json!(1))))])
            .await
            .unwrap();
        let deep = |what| EventKind::Sub {
            call: "c4".into(),
            what: Box::new(what),
        };
        for kind in [
            started("d", json!([EMAIL])),
            ended("d", ToolOutcome::Output(json!(2))),
        ] {
            journal.append(&[script.event(deep(kind))]).await.unwrap();
        }
        let told = all(&store).await;
        let seen: Vec<_> = told
            .iter()
            .map(|it| (it["action"].as_str().unwrap(), it["call"].as_str().unwrap()))
            .collect();
        assert_eq!(
            seen,
            [
                ("call", "c1"),
                ("call", "c2"),
                ("approval_decided", "c3"),
                ("call", "c3"),
                ("call", "d")
            ]
        );
        assert_eq!(told[1]["error"], "refused");
        assert_eq!(told[2]["by"], "key bob");
        assert_eq!(told[3]["arguments"], json!({"mail": "<email>"}));
        assert_eq!(told[3]["policy"], "p2");
        assert_eq!(told[4]["within"], json!(sub_run(script.run, "c4")));
        let text = json!(told).to_string();
        assert!(!text.contains(EMAIL) && !text.contains(SECRET), "{text}");
        assert!(faults(&store).await.is_empty());
    }
}

#[tokio::test]
async fn keys_and_modules_are_told_of() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        assert!(
            store
                .add_key("ada", "h1", &Permits::default(), None)
                .await
                .unwrap()
        );
        assert!(
            !store
                .add_key("ada", "h2", &Permits::default(), None)
                .await
                .unwrap()
        );
        store
            .audit(Draft::module_approved("ada", "text", "ab"))
            .await
            .unwrap();
        assert!(store.revoke_key("ada").await.unwrap());
        assert!(!store.revoke_key("ada").await.unwrap());
        let told = all(&store).await;
        let actions: Vec<_> = told
            .iter()
            .map(|it| it["action"].as_str().unwrap())
            .collect();
        assert_eq!(actions, ["key_created", "module_approved", "key_revoked"]);
        assert!(told[0]["owner"].as_str().unwrap().starts_with("uid:"));
        assert_eq!(told[1]["owner"], "ada");
        assert!(
            !json!(told).to_string().contains("h1"),
            "nor the key's hash"
        );
        assert!(faults(&store).await.is_empty());
    }
}

#[tokio::test]
async fn tampering_with_the_log_is_found_and_named() {
    // Each begins with entries 1 to 5.
    let damages: [(&[&str], &[&str]); 9] = [
        (
            &[
                "UPDATE audit SET entry = REPLACE(entry, '\"duration_us\":7', '\"duration_us\":8') WHERE number = 3",
            ],
            &["entry 3 was changed"],
        ),
        (
            &["UPDATE audit SET owner = 'mallory' WHERE number = 2"],
            &["entry 2 was changed"],
        ),
        (
            &["UPDATE audit SET tool = NULL WHERE number = 4"],
            &["entry 4 was changed"],
        ),
        (
            &["DELETE FROM audit WHERE number = 2"],
            &["entries 2 to 2 are missing"],
        ),
        (
            &["DELETE FROM audit WHERE number = 1"],
            &["entries 1 to 1 are missing"],
        ),
        (
            &["DELETE FROM audit WHERE number >= 4"],
            &["entries 4 to 5 are missing"],
        ),
        (
            &[
                "UPDATE audit SET number = 100 WHERE number = 2",
                "UPDATE audit SET number = 2 WHERE number = 3",
                "UPDATE audit SET number = 3 WHERE number = 100",
            ],
            &[
                "entry 2 holds what was written as entry 3",
                "entry 3 holds what was written as entry 2",
            ],
        ),
        (
            &[
                "INSERT INTO audit (number, at_ms, owner, action, entry, hash) VALUES (6, 1, 'a', 'call', \
                 '{\"action\":\"call\",\"at_ms\":1,\"number\":6,\"owner\":\"a\"}', 'ff')",
            ],
            &["entry 6 was inserted"],
        ),
        (&["DELETE FROM audit_head"], &["the log's head is gone"]),
    ];
    for (statements, expected) in damages {
        for TestDatabase { location, .. } in databases().await {
            let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
            for _ in 0..5 {
                one_call(&store, "alice").await;
            }
            assert!(faults(&store).await.is_empty());
            for statement in statements {
                sqlx::query(*statement).execute(&store.pool).await.unwrap();
            }
            let found = faults(&store).await;
            for (fault, expected) in found.iter().zip(expected) {
                assert!(fault.starts_with(expected), "{statements:?}: {found:?}");
            }
            assert_eq!(found.len(), expected.len(), "{statements:?}: {found:?}");
        }
    }
}

fn refused(id: &str) -> EventKind {
    let failure = ToolFailure::correctable("arguments", "they do not fit");
    EventKind::ToolResult {
        step: 1,
        id: id.into(),
        tool: "files.write".into(),
        outcome: ToolOutcome::Error(failure),
        written: Vec::new(),
        usage: ToolUsage::default(),
        printed: Vec::new(),
        module: None,
        cached: None,
        by_host: true,
    }
}

/// A call may be refused before its reply is over, and before an event tells its arguments: its row waits for them.
#[tokio::test]
async fn a_refused_call_is_logged_with_its_arguments_and_its_reason() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let store = store.keeping(AuditContent {
            results: true,
            ..AuditContent::default()
        });
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let began = script.begin("t");
        journal.append(from_ref(&began)).await.unwrap();
        let call = |id: &str| toolhold_protocol::solution::Call {
            id: id.into(),
            tool: "files.write".into(),
            arguments: json!({"to": EMAIL}),
            reason: Some(format!("{EMAIL} asked {}", "x".repeat(5_000))),
            ..Default::default()
        };
        let nested = |what| EventKind::Sub {
            call: "c1".into(),
            what: Box::new(what),
        };
        let of_module = EventKind::Plan {
            step: 0,
            calls: vec![call("n1")],
        };
        let long = json!({"a": "y".repeat(50_000)});
        let completion = toolhold_protocol::completion::Completion {
            model: Some("m-2026".into()),
            extra: serde_json::Map::from_iter([("system_fingerprint".to_owned(), "fp_1".into())]),
            ..Default::default()
        };
        for kind in [
            refused("c1"),
            EventKind::Reply {
                step: 1,
                completion,
            },
            EventKind::Plan {
                step: 1,
                calls: vec![call("c1"), call("c2")],
            },
            started("c2", json!({})),
            ended("c2", ToolOutcome::Output(long)),
            // A call that a module makes.
            nested(of_module),
            nested(refused("n1")),
            refused("c3"),
            ended("c1", ToolOutcome::Output(json!({"from": EMAIL}))),
        ] {
            let event = script.event(kind);
            journal.append(from_ref(&event)).await.unwrap();
        }
        let told = all(&store).await;
        let row = |id: &str| told.iter().find(|row| row["call"] == id).unwrap();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(row("c1")["arguments"], json!({"to": "<email>"}));
        assert_eq!(row("c1")["message"], "they do not fit");
        assert_eq!(
            (&row("c1")["model"], &row("c1")["model_revision"]),
            (&json!("m-2026"), &json!("fp_1"))
        );
        let reason = row("c1")["reason"].as_str().unwrap();
        assert!(
            reason.starts_with("<email> asked x") && reason.len() < 2_100,
            "{reason}"
        );
        assert_eq!(
            (row("c2")["status"].as_str(), row("c2").get("reason")),
            (Some("ok"), None)
        );
        let result = row("c2")["result"].as_str().unwrap();
        assert!(
            result.len() < 17_000 && result.ends_with("cut off, of 50008 bytes"),
            "{result:.100}"
        );
        assert_eq!(row("n1")["arguments"], json!({"to": "<email>"}));
        // Its reply is not over.
        assert!(!told.iter().any(|row| row["call"] == "c3"), "{told:?}");
    }
}

/// A module makes calls that are refused as often as its time allows: each has its row at once.
#[test]
fn refused_calls_of_a_module_do_not_pile_up() {
    let mut script = EventScript::new();
    let mut audit = crate::audit_rows::RunAudit::new(script.run, "ann", AuditContent::default());
    audit.take(&script.begin("t"));
    audit.take(&script.event(started("c1", json!({}))));
    for number in 0..1_000 {
        let id = format!("c1.{number}");
        let call = toolhold_protocol::solution::Call {
            id: id.clone(),
            tool: "files.write".into(),
            arguments: json!({"number": number}),
            ..Default::default()
        };
        let told = EventKind::Plan {
            step: 0,
            calls: vec![call],
        };
        let [told, refused] = [told, refused(&id)].map(|what| {
            script.event(EventKind::Sub {
                call: "c1".into(),
                what: Box::new(what),
            })
        });
        assert!(audit.take(&told).is_empty());
        assert_eq!(audit.take(&refused).len(), 1, "{number}");
    }
}

/// A call has the model that asked for it, whatever answered before and after.
#[tokio::test]
async fn a_call_is_logged_with_the_model_that_asked_for_it() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let began = script.begin("t");
        journal.append(from_ref(&began)).await.unwrap();
        let call = |id: &str| toolhold_protocol::solution::Call {
            id: id.into(),
            tool: "files.write".into(),
            ..Default::default()
        };
        let request = |step| EventKind::Request {
            step,
            same: SharedWithPrevious::default(),
            body: json!({}),
        };
        let reply = |step, model: &str| EventKind::Reply {
            step,
            completion: toolhold_protocol::completion::Completion {
                model: Some(model.into()),
                ..Default::default()
            },
        };
        let plan = |step, ids: &[&str]| EventKind::Plan {
            step,
            calls: ids.iter().map(|id| call(id)).collect(),
        };
        let done = || ToolOutcome::Output(json!(1));
        for kind in [
            request(1),
            // Calls begin while their reply streams, and may end meanwhile.
            started("quick", json!({})),
            started("slow", json!({})),
            ended("quick", done()),
            reply(1, "one"),
            plan(1, &["quick", "slow"]),
            request(2),
            started("late", json!({})),
            reply(2, "two"),
            plan(2, &["late"]),
            ended("late", done()),
            ended("slow", done()),
            request(3),
            started("broken", json!({})),
            ended("broken", done()),
            EventKind::ModelFailed {
                step: 3,
                failure: toolhold_protocol::event::RunFailure::new(
                    toolhold_policy::ErrorClass::Retryable,
                    "gone",
                ),
            },
        ] {
            let event = script.event(kind);
            journal.append(from_ref(&event)).await.unwrap();
        }
        let told = all(&store).await;
        let models: std::collections::BTreeMap<&str, &Value> = told
            .iter()
            .map(|row| (row["call"].as_str().unwrap(), &row["model"]))
            .collect();
        let (one, two) = (json!("one"), json!("two"));
        let expected = [
            ("quick", &one),
            ("slow", &one),
            ("late", &two),
            ("broken", &Value::Null),
        ];
        assert_eq!(models, expected.into(), "{told:?}");
    }
}

/// Of calls that belong to no run many are written at once, each sealed by the next.
#[tokio::test]
async fn calls_of_no_run_are_in_the_same_log() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        one_call(&store, "alice").await;
        let work = (0..50).map(|number: u64| {
            let store = store.clone();
            tokio::spawn(async move {
                let waits = [Durability::Queued, Durability::Written, Durability::OnDisk];
                let record = CallRecord {
                    id: number.to_string(),
                    tool: "m.f".into(),
                    arguments: store.content().kept(&json!({"to": EMAIL})),
                    policy: "p".into(),
                    owner: "mcp:http".into(),
                    way: serde_json::Map::from_iter([("via".to_owned(), "mcp".into())]),
                };
                let is_good = number.is_multiple_of(2);
                let outcome = if is_good {
                    Ok(json!(number))
                } else {
                    Err(ToolFailure::correctable("cancelled", "gone"))
                };
                let module = is_good.then_some("ab12");
                let (content, usage) = (store.content(), ToolUsage::default());
                let draft = record.ended(content, outcome.as_ref(), &usage, module, !is_good);
                let until = waits[number as usize % waits.len()];
                let call = number.to_string();
                store
                    .audit_call(&call, draft, until, Box::new(()))
                    .await
                    .unwrap();
            })
        });
        for done in futures_util::future::join_all(work).await {
            done.unwrap();
        }
        store.writer.catch_up().await.unwrap();
        assert!(faults(&store).await.is_empty());
        let told = all(&store).await;
        assert_eq!(told.len(), 51);
        let one = told.iter().find(|entry| entry["call"] == "1").unwrap();
        assert_eq!(one["arguments"], json!({"to": "<email>"}));
        assert_eq!(
            (
                &one["error"],
                &one["by_host"],
                &one["owner"],
                one.get("run")
            ),
            (&json!("cancelled"), &json!(true), &json!("mcp:http"), None)
        );
    }
}

/// A model makes up whatever name it likes.
#[tokio::test]
async fn a_name_that_no_tool_has_is_in_the_log_as_far_as_it_can_be() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let (mut script, mut journal, _) = one_call(&store, "alice").await;
        // Nothing that could be compressed.
        let name: String = (0..200_u32)
            .map(|n| toolhold_policy::Digest::of(n.to_string().as_bytes()).to_string())
            .collect();
        let mut kind = ended("c2", ToolOutcome::Output(json!(1)));
        if let EventKind::ToolResult { tool, .. } = &mut kind {
            tool.clone_from(&name);
        }
        journal.append(&[script.event(kind)]).await.unwrap();
        let told = all(&store).await;
        let tool = told.last().unwrap()["tool"].as_str().unwrap();
        assert_eq!((tool.len(), name.starts_with(tool)), (128, true));
    }
}

#[tokio::test]
async fn a_log_that_was_written_anew_lacks_the_hash_that_was_kept_elsewhere() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        one_call(&store, "alice").await;
        let kept = store.verify_audit(None).await.unwrap().head;
        one_call(&store, "alice").await;
        let verified = store.verify_audit(Some(&kept)).await.unwrap();
        assert!(verified.faults.is_empty());
        assert_eq!(verified.entries, 2);
        for statement in [
            "DELETE FROM audit",
            "UPDATE audit_head SET number = 0, hash = ''",
        ] {
            sqlx::query(statement).execute(&store.pool).await.unwrap();
        }
        one_call(&store, "alice").await;
        assert!(faults(&store).await.is_empty());
        let verified = store.verify_audit(Some(&kept)).await.unwrap();
        assert_eq!(verified.faults, [AuditFault::NotExpected]);
    }
}

#[tokio::test]
async fn calls_of_many_runs_and_processes_keep_one_chain() {
    const CALLS: usize = 200;
    const PROCESSES: usize = 4;
    for TestDatabase { location, .. } in databases().await {
        let opened = (0..PROCESSES).map(|_| Store::open(&location, OUTAGE_TIMEOUT));
        let stores: Vec<_> = futures_util::future::try_join_all(opened).await.unwrap();
        let calls = (0..CALLS).map(|number| {
            let store = stores[number % PROCESSES].clone();
            tokio::spawn(async move { one_call(&store, "alice").await.0.run })
        });
        let runs: BTreeSet<Uuid> = futures_util::future::join_all(calls)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let verified = stores[0].verify_audit(None).await.unwrap();
        assert_eq!(
            (verified.entries, verified.faults),
            (CALLS as u64, Vec::new())
        );
        let told = all(&stores[0]).await;
        let told: BTreeSet<Uuid> = told
            .iter()
            .map(|it| it["run"].as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(told, runs);
    }
}

#[tokio::test]
async fn entries_are_found() {
    for TestDatabase { location, .. } in databases().await {
        let store = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap();
        let (script, ..) = one_call(&store, "alice").await;
        one_call(&store, "bob").await;
        store
            .audit(Draft::module_approved("ada", "100%_odd\"!", "ab"))
            .await
            .unwrap();
        store
            .audit(Draft::module_approved("ada", "\u{c4}RGER", "ab"))
            .await
            .unwrap();
        let text = |text: &str| Filter {
            text: Some(text.into()),
            ..Filter::default()
        };
        for (filter, expected) in [
            (Filter::default(), vec![1, 2, 3, 4]),
            (
                Filter {
                    owner: Some("bob".into()),
                    ..Filter::default()
                },
                vec![2],
            ),
            (
                Filter {
                    tool: Some("files.write".into()),
                    run: Some(script.run),
                    ..Filter::default()
                },
                vec![1],
            ),
            (
                Filter {
                    until_ms: Some(1_002),
                    ..Filter::default()
                },
                vec![1, 2],
            ),
            (
                Filter {
                    since_ms: Some(1_003),
                    ..Filter::default()
                },
                vec![3, 4],
            ),
            (text("MODULE_approved"), vec![3, 4]),
            (text("\u{c4}rger"), vec![4]),
            (text("100%_odd\"!"), vec![3]),
            (text("module%approved"), vec![]),
        ] {
            let numbers = |entries: Vec<Entry>| -> Vec<i64> {
                entries.iter().map(|entry| entry.number).collect()
            };
            let found = store
                .audited(&filter, PageStart::After(0), 10)
                .await
                .unwrap();
            assert_eq!(numbers(found), expected, "{filter:?}");
            let found = store.audited(&filter, PageStart::Before(i64::MAX), 1).await;
            let last: Vec<_> = expected.last().copied().into_iter().collect();
            assert_eq!(numbers(found.unwrap()), last, "{filter:?}");
        }
    }
}
