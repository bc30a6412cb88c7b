//! What is found, and that it is found without reading everything.

use super::{EventScript, TestDatabase, begin_with, databases, opened, pending, until};
use crate::audit_log::{Filter, PageStart, statement};
use crate::record::privacy::begins_statement;
use crate::record::{PageBounds, RecordPage};
use crate::*;
use serde_json::json;
use std::collections::BTreeMap;
use toolhold_policy::pii::Kind;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::decision::{Decision, Verdict};
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::event::sub_run;
use toolhold_protocol::event::{Event, EventKind, Journal as _};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::result::ToolUsage;
use uuid::Uuid;

/// SQLite's, one step a line.
pub(super) async fn plan(store: &Store, statement: String) -> String {
    let statement = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(statement)
        .fetch_all(&store.pool)
        .await
        .unwrap();
    let steps: Vec<_> = steps.into_iter().map(|(.., step)| step).collect();
    steps.join("\n")
}

fn is_file(database: &TestDatabase) -> bool {
    matches!(database.location, Location::File(_))
}

fn of(owner: &str) -> Label {
    Label {
        owner: owner.into(),
        ..Label::default()
    }
}

fn asks(script: &mut EventScript, call: &str) -> Event {
    script.event(EventKind::Approval {
        step: 1,
        pending: pending(call, json!({})),
    })
}

#[tokio::test]
async fn runs_are_listed_by_owner() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut runs = Vec::new();
        for owner in ["ann", "bob", "ann"] {
            let mut script = EventScript::new();
            let mut journal = store.journal(script.run, of(owner));
            journal.append(&[script.begin("t")]).await.unwrap();
            runs.insert(0, script.run);
        }
        for (owner, before, most, expected) in [
            (None, None, 9, vec![runs[0], runs[1], runs[2]]),
            (None, Some(runs[0]), 1, vec![runs[1]]),
            (Some("ann"), None, 9, vec![runs[0], runs[2]]),
            (Some("ann"), Some(runs[0]), 9, vec![runs[2]]),
            (Some(""), None, 9, vec![]),
        ] {
            let found = store.runs_before(owner, before, most).await.unwrap();
            let found: Vec<_> = found.into_iter().map(|row| row.id).collect();
            assert_eq!(found, expected, "{owner:?} {before:?}");
        }
        let open: Vec<_> = store.open_runs_of("ann").await.unwrap();
        let open: Vec<_> = open.into_iter().map(|row| row.id).collect();
        assert_eq!(open, [runs[2], runs[0]]);
        if is_file(&database) {
            let plan = plan(&store, runs::before_statement(true)).await;
            assert!(plan.contains("runs_by_owner"), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

#[tokio::test]
async fn privacy_of_many_runs_is_read_in_queries_of_bounded_bytes() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut expected = BTreeMap::new();
        for kinds in [vec![], vec![Kind::ApiKey], vec![Kind::Email, Kind::Jwt]] {
            let mut script = EventScript::new();
            let hidden = Privacy {
                hide: kinds.into_iter().collect(),
                ..Privacy::default()
            };
            let mut begin = begin_with(&BoundTools::default());
            if let EventKind::Run { request, .. } = &mut begin {
                request.settings.privacy = hidden.clone();
            }
            let mut journal = store.journal(script.run, Label::default());
            let events = [script.event(begin), script.notice()];
            journal.append(&events).await.unwrap();
            expected.insert(script.run, hidden);
        }
        let unknown = Uuid::now_v7();
        let runs: Vec<_> = expected.keys().copied().chain([unknown]).collect();
        // With 0, each event is read alone.
        for bytes in [0, 2_000, u64::MAX] {
            let found = store.privacy_within(&runs, bytes).await.unwrap();
            assert_eq!(found, expected, "{bytes}");
        }
        // A first event that cannot be read hides nothing of the others.
        sqlx::query("UPDATE events SET line = 'none' WHERE run = $1 AND seq = 0")
            .bind(runs[1].to_string())
            .execute(&store.pool)
            .await
            .unwrap();
        expected.remove(&runs[1]);
        assert_eq!(store.privacy_of(&runs).await.unwrap(), expected);
        assert!(store.privacy_of(&[]).await.unwrap().is_empty());
        if is_file(&database) {
            let plan = plan(&store, begins_statement(true).to_owned()).await;
            assert!(!plan.contains("SCAN events"), "{plan}");
        }
    }
}

#[tokio::test]
async fn calls_that_wait_are_found_by_owner_by_run_and_by_id() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut runs = Vec::new();
        let mut journals = Vec::new();
        for owner in ["ann", "bob"] {
            let mut script = EventScript::new();
            let mut journal = store.journal(script.run, of(owner));
            journal.append(&[script.begin("t")]).await.unwrap();
            for call in ["same", owner] {
                journal.append(&[asks(&mut script, call)]).await.unwrap();
            }
            runs.push(script.run);
            journals.push(journal);
        }
        let ids = |waiting: Result<Vec<WaitingDecision>, StoreError>| -> Vec<_> {
            let waiting = waiting.unwrap().into_iter();
            waiting.map(|it| (it.run, it.pending.call.id)).collect()
        };
        let all = ids(store.waiting(None, None, 9).await);
        assert_eq!(all.len(), 4);
        // By pages there are the same.
        let (mut paged, mut place) = (Vec::new(), None);
        loop {
            let bytes = store.waiting_bytes(None, place.as_ref(), 3).await.unwrap();
            let page = store.waiting(None, place.as_ref(), 3).await.unwrap();
            assert_eq!(bytes == 0, page.is_empty());
            let Some(last) = page.last() else {
                break;
            };
            place = Some(last.place.to_string().parse().unwrap());
            assert_eq!(place.as_ref(), Some(&last.place));
            paged.extend(ids(Ok(page)));
        }
        assert_eq!(paged, all);
        for wrong in ["", "1", "1.2.c", "x.00000000-0000-0000-0000-000000000000.c"] {
            assert_eq!(
                wrong.parse::<WaitingPlace>(),
                Err(NoWaitingPlace),
                "{wrong}"
            );
        }
        let bobs = ids(store.waiting(Some("bob"), None, 9).await);
        assert_eq!(bobs, [(runs[1], "same".into()), (runs[1], "bob".into())]);
        assert!(ids(store.waiting(Some(""), None, 9).await).is_empty());
        let same = ids(store.waiting_as("same", None).await);
        assert_eq!(same, [(runs[0], "same".into()), (runs[1], "same".into())]);
        let anns = ids(store.waiting_as("same", Some(runs[0])).await);
        assert_eq!(anns, [(runs[0], "same".into())]);
        assert!(ids(store.waiting_as("bob", Some(runs[0])).await).is_empty());
        if is_file(&database) {
            let plan = plan(&store, decisions::page_statement(true)).await;
            let first = plan.lines().next().unwrap();
            assert!(
                first.contains("approvals USING INDEX approvals_by_time"),
                "{plan}"
            );
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}

/// A person decides between the two transactions in which a run is taken up and asks again.
#[tokio::test]
async fn a_call_waits_until_it_is_asked_again() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let inner = sub_run(run, "outer");
        let within = |what: EventKind| EventKind::Sub {
            call: "outer".into(),
            what: Box::new(what),
        };
        let asked = within(EventKind::Approval {
            step: 1,
            pending: pending("deep", json!({})),
        });
        let resumed = EventKind::Resumed {
            step: 1,
            active_ms: 1,
            notes: Vec::new(),
        };
        let mut events = vec![script.begin("t"), script.event(asked.clone())];
        {
            let mut journal = store.journal(run, Label::default());
            for event in &events {
                journal.append(std::slice::from_ref(event)).await.unwrap();
            }
            for kind in [resumed.clone(), within(resumed.clone())] {
                events.push(script.event(kind));
                journal.append(&events[events.len() - 1..]).await.unwrap();
            }
        }
        // What a dropped journal holds is freed in the background.
        let (mut journal, _) = until(async || store.reopen(run).await.ok()).await;
        journal.append(&[script.event(resumed)]).await.unwrap();
        let waiting = store.waiting_as("deep", None).await.unwrap();
        let [waiting] = <[WaitingDecision; 1]>::try_from(waiting).expect("it waits");
        assert_eq!(waiting.within, inner);
        let decision = Decision {
            digest: waiting.pending.digest.clone(),
            verdict: Verdict::Approve,
            by: None,
        };
        let stored = store.decide(inner, "deep", &decision).await.unwrap();
        assert_eq!(stored, DecideOutcome::Stored);
        journal.append(&[script.event(asked)]).await.unwrap();
        let found = store.decision(inner, "deep").await.unwrap();
        assert_eq!(found.as_ref(), Some(&decision));
        // The call of the sub-agent was not resumed.
        let lost = EventKind::ToolResult {
            step: 1,
            id: "outer".into(),
            tool: "asks".into(),
            outcome: ToolOutcome::Output(json!(1)),
            written: Vec::new(),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
            by_host: true,
        };
        journal.append(&[script.event(lost)]).await.unwrap();
        assert!(store.waiting(None, None, 9).await.unwrap().is_empty());
        let stored = store.decide(inner, "deep", &decision).await.unwrap();
        assert_eq!(stored, DecideOutcome::Gone);
    }
}

#[tokio::test]
async fn a_turn_begins_in_a_session_that_is_there() {
    for database in databases().await {
        let store = opened(&database).await;
        let session = store.create_session("ann", "a", "").await.unwrap().id;
        let turn = async |number| {
            let mut script = EventScript::new();
            let label = Label {
                turn: Some((session, number)),
                ..of("ann")
            };
            let mut journal = store.journal(script.run, label);
            let begun = journal.append(&[script.begin("t")]).await;
            begun.map(|()| (script, journal))
        };
        assert_eq!(store.next_turn(session).await.unwrap(), Some(0));
        let (mut script, mut journal) = turn(0).await.unwrap();
        assert_eq!(store.next_turn(session).await.unwrap(), Some(1));
        assert!(turn(0).await.is_err(), "it is taken");
        assert!(!store.delete_session("ann", session).await.unwrap());
        journal.append(&[script.done()]).await.unwrap();
        assert!(store.delete_session("ann", session).await.unwrap());
        assert_eq!(store.next_turn(session).await.unwrap(), None);
        let refused = turn(1).await.err().unwrap().to_string();
        assert!(refused.contains("there is no session"), "{refused}");
        let left = store.runs_since(0).await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Lines of a megabyte: each page has few of them, and all lines are returned.
#[tokio::test]
async fn a_page_of_a_record_has_a_size() {
    const MIB: usize = 1 << 20;
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let mut events = vec![script.begin("t")];
        for mib in [1, 1, 1, 1, 1, 9, 1, 0, 0] {
            events.push(script.event(EventKind::Notice {
                step: 1,
                message: "\u{e4}".repeat(mib * MIB / 2),
            }));
        }
        for event in &events {
            journal.append(std::slice::from_ref(event)).await.unwrap();
        }
        let (mut next, mut pages) = (0, Vec::new());
        loop {
            let page = store.events(script.run, next).await.unwrap();
            let Some(last) = page.last() else {
                break;
            };
            next = last.seq + 1;
            pages.push(page.len());
        }
        assert_eq!(pages, [4, 2, 1, 3], "4 MiB at most, or one line");
        let bounds = |longest| PageBounds {
            events: 3,
            bytes: 4 * MIB as u64,
            longest,
        };
        let page = store.page(script.run, 6, bounds(8 * MIB as u64)).await;
        let RecordPage::TooLong(bytes) = page.unwrap() else {
            panic!("it has nine MiB");
        };
        assert!(
            (9 * MIB as u64..10 * MIB as u64).contains(&bytes),
            "{bytes}"
        );
        for (from, lines) in [(6, 1), (7, 3), (10, 0)] {
            let page = store.page(script.run, from, bounds(bytes)).await;
            let RecordPage::Lines(read) = page.unwrap() else {
                panic!("it may be read");
            };
            assert_eq!(read.len(), lines, "from {from}");
            for line in read {
                assert!(line.event().is_ok());
            }
        }
        let read = store.read(&Source::Run(script.run)).await.unwrap();
        assert_eq!(read.len(), events.len());
        let (first, last) = store.ends(script.run).await.unwrap();
        assert_eq!((first.seq, last.seq), (0, events.len() as u64 - 1));
    }
}

#[tokio::test]
async fn the_audit_log_is_searched_by_its_indexes() {
    let databases = databases().await;
    let database = &databases[0];
    let store = opened(database).await;
    for (filter, index) in [
        (
            Filter {
                tool: Some("text.count".into()),
                text: Some("a".into()),
                ..Filter::default()
            },
            "audit_of_tool",
        ),
        (
            Filter {
                owner: Some("ann".into()),
                since_ms: Some(1),
                ..Filter::default()
            },
            "audit_of_owner",
        ),
        (
            Filter {
                run: Some(Uuid::nil()),
                ..Filter::default()
            },
            "audit_of_event",
        ),
        (
            Filter {
                since_ms: Some(1),
                ..Filter::default()
            },
            "COVERING INDEX audit_of_time",
        ),
        (
            Filter {
                since_ms: Some(1),
                until_ms: Some(2),
                ..Filter::default()
            },
            "COVERING INDEX audit_of_time",
        ),
    ] {
        for order in [PageStart::After(0), PageStart::Before(i64::MAX)] {
            let plan = plan(&store, statement(&filter, order, true).0).await;
            assert!(plan.contains(index), "{plan}");
        }
    }
}
