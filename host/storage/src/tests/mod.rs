//! Tests that run on both databases. PostgreSQL is used where `TOOLHOLD_TEST_DATABASE_URL` names a server on
//! which databases may be made; `.ci/run` starts one.

mod alike;
mod audit;
mod audit_expiry;
mod audit_texts;
mod blobs;
mod cancelled;
mod copy;
mod facts;
mod interrupted;
mod keys;
mod knowledge;
mod leases;
mod migrations;
mod plans;
mod prune;
mod queries;
mod redaction;
mod redaction_composed;
mod reply_parts;
mod result_blobs;
mod shared_texts;
mod shares;
mod space;

use crate::*;
use serde_json::json;
use sqlx::Connection as _;
use std::slice::from_ref;
use std::time::Duration;
use toolhold_needs::{Need, leave_out};
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::context::Message;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::event::Seal;
use toolhold_protocol::event::sub_run;
use toolhold_protocol::event::{Event, EventKind, Journal as _, SharedWithPrevious, StopReason};
use toolhold_protocol::image::Image;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{Annotations, Tool};
use url::Url;
use uuid::Uuid;

/// The outage timeout of the tests' stores.
pub const OUTAGE_TIMEOUT: Duration = Duration::from_secs(30);

const SERVER: &str = "TOOLHOLD_TEST_DATABASE_URL";

/// An empty database.
pub struct TestDatabase {
    pub location: Location,
    _folder: Option<tempfile::TempDir>,
}

/// One of each kind.
pub async fn databases() -> Vec<TestDatabase> {
    let folder = tempfile::tempdir().unwrap();
    let mut databases = vec![TestDatabase {
        location: Location::File(folder.path().join("a folder/toolhold.db")),
        _folder: Some(folder),
    }];
    let Ok(server) = std::env::var(SERVER) else {
        leave_out(
            Need::PostgreSql,
            format_args!("{SERVER} names no PostgreSQL server; tested with SQLite only"),
        );
        return databases;
    };
    let name = format!("toolhold_{}", Uuid::now_v7().simple());
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(&server).await.unwrap();
    let make = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::query(make).execute(&mut connection).await.unwrap();
    let mut url: Url = server.parse().unwrap();
    url.set_path(&name);
    databases.push(TestDatabase {
        location: Location::Postgres(url.to_string().into()),
        _folder: None,
    });
    databases
}

/// The store of a process.
pub async fn opened(database: &TestDatabase) -> Store {
    Store::open(&database.location, OUTAGE_TIMEOUT)
        .await
        .unwrap()
}

/// The stores of two processes.
pub async fn two_stores(database: &TestDatabase) -> [Store; 2] {
    [opened(database).await, opened(database).await]
}

/// Events of a run, one after the other.
#[derive(Clone)]
pub struct EventScript {
    pub run: Uuid,
    next: u64,
    seal: Seal,
}

impl EventScript {
    pub fn new() -> Self {
        Self {
            run: Uuid::now_v7(),
            next: 0,
            seal: Seal::default(),
        }
    }

    pub fn event(&mut self, kind: EventKind) -> Event {
        let event = Event {
            run: self.run,
            seq: self.next,
            at_ms: 1_000 + self.next,
            kind,
            removed: None,
            seal: Seal::default(),
        };
        let event = event.sealed(&self.seal).unwrap();
        self.next += 1;
        self.seal = event.seal.clone();
        event
    }

    pub fn begin(&mut self, task: &str) -> Event {
        self.event(EventKind::Run {
            format: toolhold_protocol::event::FORMAT,
            prompts: toolhold_protocol::event::PROMPTS,
            task: task.into(),
            model: "m".into(),
            request: Box::new(RunRequest::new(Uuid::now_v7(), task)),
            tools: BoundTools::default(),
            host: String::new(),
        })
    }

    pub fn notice(&mut self) -> Event {
        let message = format!("number {} \0 \u{1F980}", self.next);
        self.event(EventKind::Notice { step: 1, message })
    }

    pub fn done(&mut self) -> Event {
        self.event(EventKind::Done {
            reason: StopReason::MaxSteps,
            output: json!(null),
            error: None,
            steps: 3,
            calls: 4,
            tokens: 5,
            cost_nano: None,
            duration_ms: 6,
        })
    }
}

/// Tools of a module, of some hundred bytes each.
pub fn offering(module: &str, tools: usize) -> BoundTools {
    let bound = |number: usize| {
        let name = format!("{module}.t{number}");
        let tool = Tool {
            description: "a \"tool\" ".repeat(20),
            ..Tool::new(name.as_str())
        };
        Bound {
            tool: tool.into(),
            runner: Runner::Module(name),
        }
    };
    (0..tools).map(bound).collect()
}

/// The begin of a run, or of a sub-agent, with these tools.
pub fn begin_with(tools: &BoundTools) -> EventKind {
    EventKind::Run {
        format: toolhold_protocol::event::FORMAT,
        prompts: toolhold_protocol::event::PROMPTS,
        task: "t".into(),
        model: "m".into(),
        request: Box::new(RunRequest::new(Uuid::now_v7(), "t")),
        tools: tools.clone(),
        host: String::new(),
    }
}

/// A Request with these instructions and messages of the user.
pub fn asks_with(system: &str, said: &[&str]) -> EventKind {
    let said = said
        .iter()
        .map(|text| json!({"role": "user", "content": text}));
    let messages: Vec<_> = [json!({"role": "system", "content": system})]
        .into_iter()
        .chain(said)
        .collect();
    EventKind::Request {
        step: 1,
        same: SharedWithPrevious::default(),
        body: json!({"model": "m", "messages": messages}),
    }
}

pub fn pending(call: &str, arguments: serde_json::Value) -> Pending {
    let call = toolhold_protocol::solution::Call {
        id: call.into(),
        tool: "files.write".into(),
        ..Default::default()
    };
    Pending::new(call, arguments, Annotations::default())
}

#[tokio::test]
async fn appended_entries_are_read_again() {
    for database in databases().await {
        let store = opened(&database).await;
        assert!(matches!(store.find("last").await, Err(RecordError::None)));
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        assert!(store.runs_since(0).await.unwrap().is_empty(), "not yet");
        let mut events = vec![script.begin("a task \0 with a zero")];
        // More than a page; one by one, and then many at a time.
        events.extend((0..1_200).map(|_| script.notice()));
        events.push(script.done());
        let (single, many) = events.split_at(60);
        for event in single {
            journal.append(from_ref(event)).await.unwrap();
        }
        for together in many.chunks(60) {
            journal.append(together).await.unwrap();
        }
        let id = script.run.to_string();
        for name in ["last", &id, &id[..20], &id.to_uppercase()] {
            let source = store.find(name).await.unwrap();
            let read = store.read(&source).await.unwrap();
            assert_eq!(json!(read), json!(events), "{name}");
        }
        for name in ["", "%", "zz", "last.jsonl", "0'; DROP TABLE runs"] {
            let found = store.find(name).await;
            assert!(matches!(found, Err(RecordError::Unknown { .. })), "{name}");
        }
        let listed = store.runs_since(0).await.unwrap().remove(0);
        assert_eq!(listed.id, script.run);
        assert_eq!(listed.task, "a task  with a zero");
        let ended = listed.ended.unwrap();
        assert_eq!(
            (ended.reason, ended.steps, ended.calls),
            (StopReason::MaxSteps, 3, 4)
        );
        assert!(!listed.is_held);
        assert!(store.runs_since(1_001).await.unwrap().is_empty());
    }
}

/// The events have their digests; what goes on from the run has their bytes.
#[tokio::test]
async fn images_are_kept_beside_the_events() {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(100_000, 7);
    let shown = Image::new("a.png", &bytes).unwrap();
    let inner = Image::new("b.gif", b"GIF89a").unwrap();
    let run = |image: &Image| {
        let mut request = RunRequest::new(Uuid::now_v7(), "what is it?");
        request.context.push(Message::Image(image.clone()));
        EventKind::Run {
            format: toolhold_protocol::event::FORMAT,
            prompts: toolhold_protocol::event::PROMPTS,
            task: "what is it?".into(),
            model: "m".into(),
            request: Box::new(request),
            tools: BoundTools::default(),
            host: String::new(),
        }
    };
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let events = [
            script.event(run(&shown)),
            script.event(EventKind::Sub {
                call: "c".into(),
                what: Box::new(run(&inner)),
            }),
        ];
        let mut journal = store.journal(script.run, Label::default());
        journal.append(&events).await.unwrap();
        drop(journal);
        let lines = store.sealed(script.run, 0).await.unwrap();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|(_, line)| line.len() < 10_000));
        let url = |event: &Event| {
            let kind = match &event.kind {
                EventKind::Sub { what, .. } => what.as_ref(),
                kind => kind,
            };
            match kind {
                EventKind::Run { request, .. } => match request.context.last() {
                    Some(Message::Image(image)) => image.url(),
                    _ => None,
                },
                _ => None,
            }
        };
        // A server's database frees a dropped journal's lock in the background.
        let (_journal, mut reopened) = until(async || store.reopen(script.run).await.ok()).await;
        assert_eq!(url(&reopened[0]), None, "its bytes are read on demand");
        store
            .restore_record(script.run, &mut reopened)
            .await
            .unwrap();
        let urls: Vec<_> = reopened.iter().map(url).collect();
        assert_eq!(urls, [shown.url(), inner.url()]);
        let read = store.read(&Source::Run(script.run)).await.unwrap();
        assert_eq!(url(&read[0]), shown.url());
    }
}

#[tokio::test]
async fn a_run_is_of_one_process_and_free_when_that_is_gone() {
    for database in databases().await {
        let [first, second] = two_stores(&database).await;
        let mut script = EventScript::new();
        let mut journal = first.journal(script.run, Label::default());
        let began = script.begin("t");
        journal.append(from_ref(&began)).await.unwrap();
        assert!(second.is_held(script.run).await.unwrap());
        let refused = second.reopen(script.run).await;
        assert!(matches!(refused, Err(RecordError::Held)));
        // As a process does that is killed: without a word.
        std::mem::forget(journal);
        drop(first);
        let reopened = until(async || second.reopen(script.run).await.ok()).await;
        let (mut journal, events) = reopened;
        assert_eq!(json!(events), json!([began]));
        journal.append(&[script.notice()]).await.unwrap();
        assert!(second.is_held(script.run).await.unwrap());
        drop(journal);
        until(async || (!second.is_held(script.run).await.unwrap()).then_some(())).await;
    }
}

pub async fn until<T>(look: impl AsyncFn() -> Option<T>) -> T {
    // Far longer than anything takes on a busy machine.
    for _ in 0..6_000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came");
}

#[tokio::test]
async fn requested_records_are_kept_as_long_as_the_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let label = Label {
            asked: Some("a response".into()),
            ..Label::default()
        };
        let mut journal = store.journal(run, label);
        journal.append(&[script.begin("t")]).await.unwrap();
        let kept = store.response(run).await.unwrap();
        assert_eq!(kept.as_deref(), Some("a response"));
        assert!(
            !store.delete_run("ann", run).await.unwrap(),
            "it is not over"
        );
        journal.append(&[script.done()]).await.unwrap();
        assert!(store.delete_run("ann", run).await.unwrap());
        assert_eq!(store.response(run).await.unwrap(), None);
        assert!(store.run(run).await.unwrap().is_none());
        assert!(!store.delete_run("ann", run).await.unwrap());
    }
}

#[tokio::test]
async fn one_event_has_one_place() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        let event = script.notice();
        journal.append(from_ref(&event)).await.unwrap();
        // The answer to the first was lost on the way.
        journal.append(from_ref(&event)).await.unwrap();
        let other = Event {
            at_ms: 7,
            ..event.clone()
        };
        let refused = journal
            .append(from_ref(&other))
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("another process goes on"), "{refused}");
        let source = Source::Run(script.run);
        assert_eq!(store.read(&source).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn events_that_came_together_are_written_together() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        let first = [script.begin("t"), script.notice(), script.notice()];
        journal.append(&first).await.unwrap();
        let next = [script.notice(), script.notice()];
        journal.append(&next).await.unwrap();
        // The answer to the last was lost on the way.
        journal.append(&next).await.unwrap();
        let mut changed = next.clone();
        changed[1].at_ms = 7;
        let refused = journal.append(&changed).await.unwrap_err().to_string();
        assert!(refused.contains("another process goes on"), "{refused}");
        let over = [script.notice(), script.done()];
        journal.append(&over).await.unwrap();
        let kept = store.read(&Source::Run(script.run)).await.unwrap();
        let all = [&first[..], &next, &over].concat();
        assert_eq!(json!(kept), json!(all));
        let row = store.run(script.run).await.unwrap().unwrap();
        assert!(row.ended.is_some());
    }
}

/// Within one process, too.
#[tokio::test]
async fn a_run_is_taken_once() {
    for database in databases().await {
        let store = opened(&database).await;
        for _ in 0..20 {
            let mut script = EventScript::new();
            let mut journal = store.journal(script.run, Label::default());
            journal.append(&[script.begin("t")]).await.unwrap();
            drop(journal);
            // The release may be written after another task takes the run.
            let mut journal = until(async || {
                let (one, other) = tokio::join!(store.reopen(script.run), store.reopen(script.run));
                match (one, other) {
                    (Ok((journal, _)), Err(RecordError::Held))
                    | (Err(RecordError::Held), Ok((journal, _))) => Some(journal),
                    (Err(RecordError::Held), Err(RecordError::Held)) => None,
                    other => panic!("{other:?}"),
                }
            })
            .await;
            journal.append(&[script.notice()]).await.unwrap();
            assert!(store.is_held(script.run).await.unwrap());
            journal.append(&[script.done()]).await.unwrap();
        }
    }
}

/// Another process that took this one for dead has the run: this one writes nothing more to it.
#[tokio::test]
async fn a_run_that_was_taken_over_is_not_written_to() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        sqlx::query("UPDATE runs SET holder = 'another'")
            .execute(&store.pool)
            .await
            .unwrap();
        for event in [script.notice(), script.done()] {
            let refused = journal
                .append(from_ref(&event))
                .await
                .unwrap_err()
                .to_string();
            assert!(refused.contains("another process goes on"), "{refused}");
        }
        drop(journal);
        let row = store.run(script.run).await.unwrap().unwrap();
        assert!(row.ended.is_none());
        let source = Source::Run(script.run);
        assert_eq!(store.read(&source).await.unwrap().len(), 1);
        let holder = store.holder(script.run).await.unwrap();
        assert_eq!(holder.as_deref(), Some("another"), "nor let go of");
    }
}

#[tokio::test]
async fn no_event_comes_after_one_that_is_missing() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let mut journal = store.journal(script.run, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        script.notice();
        let refused = journal.append(&[script.notice()]).await.unwrap_err();
        assert!(refused.to_string().contains("is gone"), "{refused}");
    }
}

/// A promise that is kept, one that is broken, and one whose process is gone.
#[tokio::test]
async fn an_idempotency_key_is_released_when_its_run_never_begins() {
    for database in databases().await {
        let [first, second] = two_stores(&database).await;
        let run = Uuid::now_v7();
        let asked = async |store: &Store, run| {
            let asked = store.first_or_repeat("ann", "key", "d", run).await;
            asked.unwrap()
        };
        let forgotten = async |store: &Store| {
            let forgotten = store.forget_broken("ann", "key", run).await;
            forgotten.unwrap()
        };
        let promise = first.promise(run);
        assert_eq!(asked(&first, run).await, KeyUse::First);
        assert_eq!(asked(&second, Uuid::now_v7()).await, KeyUse::Same(run));
        assert!(!forgotten(&first).await && !forgotten(&second).await);
        drop(promise);
        assert!(
            !forgotten(&second).await,
            "the other process may still begin it"
        );
        assert!(forgotten(&first).await);
        assert_eq!(asked(&first, run).await, KeyUse::First);
        drop(first);
        until(async || forgotten(&second).await.then_some(())).await;
        assert_eq!(asked(&second, run).await, KeyUse::First);
    }
}

/// A request is refused, and by then its key means another run, or its run is there in spite of it.
#[tokio::test]
async fn a_request_is_not_forgotten_that_began_a_run() {
    for database in databases().await {
        let store = opened(&database).await;
        let (refused, mut script) = (Uuid::now_v7(), EventScript::new());
        let began = script.run;
        let asked = async |run| store.first_or_repeat("ann", "key", "d", run).await.unwrap();
        let forgotten = async |run| store.forget_unbegun("ann", "key", run).await.unwrap();
        assert_eq!(asked(refused).await, KeyUse::First);
        assert!(forgotten(refused).await);
        assert_eq!(asked(began).await, KeyUse::First);
        assert!(!forgotten(refused).await, "the key is another run's");
        assert_eq!(asked(refused).await, KeyUse::Same(began));
        let mut journal = store.journal(began, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        assert!(!forgotten(began).await, "the run is there");
        assert_eq!(asked(refused).await, KeyUse::Same(began));
    }
}

#[tokio::test]
async fn a_decision_is_there_until_the_run_has_it() {
    for database in databases().await {
        let store = opened(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let inner = sub_run(run, "outer");
        let mut journal = store.journal(run, Label::default());
        journal.append(&[script.begin("t")]).await.unwrap();
        let own = pending("own", json!({"a": 1}));
        let asked = EventKind::Approval {
            step: 1,
            pending: own.clone(),
        };
        journal
            .append(&[script.event(asked.clone())])
            .await
            .unwrap();
        let deep = EventKind::Sub {
            call: "outer".into(),
            what: Box::new(EventKind::Approval {
                step: 1,
                pending: pending("deep", json!({})),
            }),
        };
        journal.append(&[script.event(deep.clone())]).await.unwrap();
        let waiting = store.waiting(None, None, 9).await.unwrap();
        let seen: Vec<_> = waiting
            .iter()
            .map(|it| (it.run, it.within, &*it.pending.call.id, it.is_decided))
            .collect();
        assert_eq!(
            seen,
            [(run, run, "own", false), (run, inner, "deep", false)]
        );
        assert!(store.runs_since(0).await.unwrap()[0].waits);

        let decision = Decision {
            digest: own.digest.clone(),
            verdict: Verdict::Approve,
            by: Some("test".into()),
        };
        let deep_waits = &waiting[1];
        let decide = async |within, call: &str, decision: &Decision| {
            store.decide(within, call, decision).await.unwrap()
        };
        assert_eq!(
            decide(inner, "deep", &decision).await,
            DecideOutcome::Gone,
            "it is about another call"
        );
        assert_eq!(decide(run, "own", &decision).await, DecideOutcome::Stored);
        // The first decision holds; one that is sent again is the same.
        let later = Decision {
            verdict: Verdict::Refuse {
                reason: "no".into(),
            },
            ..decision.clone()
        };
        assert_eq!(
            decide(run, "own", &later).await,
            DecideOutcome::Already(decision.clone())
        );
        assert_eq!(decide(run, "own", &decision).await, DecideOutcome::Stored);
        let deep_decision = Decision {
            digest: deep_waits.pending.digest.clone(),
            ..decision.clone()
        };
        let stored = decide(inner, "deep", &deep_decision).await;
        assert_eq!(stored, DecideOutcome::Stored);
        assert_eq!(
            store.decision(run, "own").await.unwrap().as_ref(),
            Some(&decision)
        );

        // The process is killed. What was decided meanwhile holds when the calls wait again.
        let resumed = EventKind::Resumed {
            step: 1,
            active_ms: 1,
            notes: Vec::new(),
        };
        journal.append(&[script.event(resumed)]).await.unwrap();
        journal.append(&[script.event(deep)]).await.unwrap();
        assert!(store.decision(inner, "deep").await.unwrap().is_some());
        // With other arguments it is another call.
        let other = EventKind::Approval {
            step: 1,
            pending: pending("own", json!({"a": 2})),
        };
        journal.append(&[script.event(other)]).await.unwrap();
        assert_eq!(store.decision(run, "own").await.unwrap(), None);

        let decided = EventKind::Decided {
            step: 1,
            id: "own".into(),
            decision,
        };
        journal.append(&[script.event(decided)]).await.unwrap();
        let left = store.waiting(None, None, 9).await.unwrap();
        assert_eq!(left.len(), 1);
        assert!(left[0].is_decided);
        journal.append(&[script.done()]).await.unwrap();
        assert!(store.waiting(None, None, 9).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn many_runs_write_at_the_same_time() {
    const RUNS: usize = 60;
    for database in databases().await {
        let store = opened(&database).await;
        let work = (0..RUNS).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut script = EventScript::new();
                let mut journal = store.journal(script.run, Label::default());
                journal.append(&[script.begin("t")]).await.unwrap();
                for _ in 0..number {
                    journal.append(&[script.notice()]).await.unwrap();
                }
                if number % 2 == 0 {
                    journal.append(&[script.done()]).await.unwrap();
                }
                (script.run, script.next)
            })
        });
        for run in futures_util::future::join_all(work).await {
            let (run, events) = run.unwrap();
            let read = store.read(&Source::Run(run)).await.unwrap();
            assert_eq!(read.len() as u64, events);
        }
        let runs = store.runs_since(0).await.unwrap();
        assert_eq!(
            runs.iter().filter(|run| run.ended.is_some()).count(),
            RUNS / 2
        );
    }
}

#[tokio::test]
async fn a_run_keeps_the_trace_that_it_began_in() {
    for database in databases().await {
        let store = opened(&database).await;
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for label in [Some(trace.to_owned()), None].map(|trace| Label {
            trace,
            ..Label::default()
        }) {
            let mut script = EventScript::new();
            let expected = label.trace.clone();
            let mut journal = store.journal(script.run, label);
            journal.append(&[script.begin("t")]).await.unwrap();
            assert_eq!(store.trace(script.run).await.unwrap(), expected);
        }
        assert_eq!(store.trace(Uuid::now_v7()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn processes_may_start_at_the_same_time() {
    for database in databases().await {
        let opened = (0..6).map(|_| Store::open(&database.location, OUTAGE_TIMEOUT));
        for store in futures_util::future::join_all(opened).await {
            assert!(store.unwrap().runs_since(0).await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn invalid_database_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x".repeat(5_000)).unwrap();
    for (location, expect) in [
        (Location::File(file.clone()), "file is not a database"),
        (
            Location::File(file.join("below.db")),
            "for the database cannot be used",
        ),
        (
            Location::Postgres("mysql://u:secret@h/d".to_owned().into()),
            "no postgres:// URL",
        ),
        (
            Location::Postgres("secret".to_owned().into()),
            "no postgres:// URL",
        ),
    ] {
        let error = Store::open(&location, OUTAGE_TIMEOUT).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expect), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

/// It was asked to take a run, and what was done about that broke off.
#[tokio::test]
async fn a_run_that_a_process_has_by_name_only_goes_on_nowhere() {
    for database in databases().await {
        let [store, other] = two_stores(&database).await;
        let mut script = EventScript::new();
        let run = script.run;
        let label = Label {
            origin: Origin::Serve,
            ..Label::default()
        };
        let mut journal = store.journal(run, label);
        journal.append(&[script.begin("t")]).await.unwrap();
        drop(journal);
        until(async || store.holder(run).await.unwrap().is_none().then_some(())).await;
        sqlx::query("UPDATE runs SET holder = $1")
            .bind(store.process.name())
            .execute(&store.pool)
            .await
            .unwrap();
        until(async || (store.lease_state(run).await.unwrap() == LeaseState::Free).then_some(()))
            .await;
        assert!(other.is_held(run).await.unwrap(), "as far as others know");
        other.request_cancellation(run).await.unwrap();
        assert_eq!(store.requested_cancellations().await.unwrap(), [run]);
        assert!(other.requested_cancellations().await.unwrap().is_empty());
        let here = store.resumable_here().await.unwrap();
        assert_eq!(here.iter().map(|row| row.id).collect::<Vec<_>>(), [run]);
        assert!(other.resumable_here().await.unwrap().is_empty());
        let (journal, _) = store.reopen(run).await.unwrap();
        assert_eq!(store.lease_state(run).await.unwrap(), LeaseState::Held);
        drop(journal);
    }
}

#[tokio::test]
async fn a_session_has_an_open_turn_until_that_is_over() {
    for database in databases().await {
        let store = opened(&database).await;
        let session = store.create_session("ann", "a", "").await.unwrap().id;
        assert!(!store.has_open_turn(session).await.unwrap());
        for number in 0..2 {
            let mut script = EventScript::new();
            let label = Label {
                owner: "ann".into(),
                turn: Some((session, number)),
                ..Label::default()
            };
            let mut journal = store.journal(script.run, label);
            journal.append(&[script.begin("t")]).await.unwrap();
            assert!(store.has_open_turn(session).await.unwrap());
            journal.append(&[script.done()]).await.unwrap();
            assert!(!store.has_open_turn(session).await.unwrap());
        }
    }
}
