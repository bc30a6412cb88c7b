//! Section 11: a run that another process cancelled, as its journal says when a call is to begin.

use super::support::{
    Echo, Reply, Script, driver, end, holds, json_of, lines, place, plain_tools, request, rest,
    results, starts, tools, watched,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex};
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_policy::BeginCheck;
use toolhold_protocol::event::{CancelRequested, Event, EventKind, Journal, NoJournal};
use toolhold_protocol::failure::NOT_MADE;
use toolhold_protocol::settings::RunRequest;

/// A journal of a run that another process cancels as soon as it has a certain event.
#[derive(Debug, Clone)]
struct CancelledRecord {
    events: Arc<Mutex<Vec<Event>>>,
    /// The last events that were refused.
    refused: Arc<Mutex<Vec<Event>>>,
    cancels: fn(&EventKind) -> bool,
}

impl CancelledRecord {
    fn new(events: Vec<Event>, cancels: fn(&EventKind) -> bool) -> Self {
        Self {
            events: Arc::new(Mutex::new(events)),
            refused: Arc::default(),
            cancels,
        }
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

impl Journal for CancelledRecord {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        let mut recorded = self.events.lock().unwrap();
        let is_cancelled = recorded.iter().any(|event| (self.cancels)(&event.kind));
        let ends = |event: &Event| matches!(event.kind, EventKind::Done { .. });
        let is_refused = is_cancelled
            && events.iter().any(|event| event.kind.begins_calls())
            && !events.iter().any(ends);
        let appended = if is_refused {
            *self.refused.lock().unwrap() = events.to_vec();
            Err(io::Error::other(CancelRequested))
        } else {
            recorded.extend_from_slice(events);
            Ok(())
        };
        Box::pin(std::future::ready(appended))
    }
}

/// The journal of a run that was cancelled before the journal was opened.
#[derive(Debug)]
struct OpenedCancelled(CancelledRecord);

impl Journal for OpenedCancelled {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        self.0.append(events)
    }

    fn was_cancelled(&self) -> bool {
        true
    }
}

/// A run that calls a tool in each of two steps.
fn two_calls(echo: &Echo) -> (Arc<Script>, Driver, RunRequest) {
    let call = |of: u32| Reply::calls(&[json!({"_tool": "echo", "of": of})]);
    let script = Script::new([call(1), call(2), Reply::output("done")]);
    let driver = driver(&script, Activities::default().with("echo", echo.activity()));
    let request = request([tools(&[("echo", json!({}))])]);
    (script, driver, request)
}

/// Results that say that their call was not made.
fn not_made(events: &[Event]) -> Vec<usize> {
    let results = results(events).into_iter().enumerate();
    results
        .filter(|(_, (_, outcome))| outcome["error"]["kind"] == NOT_MADE)
        .map(|(place, _)| place)
        .collect()
}

#[tokio::test]
async fn a_run_that_was_cancelled_elsewhere_begins_no_call_and_ends() {
    type Cancels = fn(&EventKind) -> bool;
    let was_cancelled: [(Cancels, usize); 2] = [
        (|kind| matches!(kind, EventKind::Run { .. }), 0),
        (|kind| matches!(kind, EventKind::ToolResult { .. }), 1),
    ];
    for (cancels, calls) in was_cancelled {
        let echo = Echo::default();
        let (script, driver, request) = two_calls(&echo);
        let record = CancelledRecord::new(Vec::new(), cancels);
        let started = driver.start(request, Box::new(record.clone())).await;
        let shown = rest(started.unwrap()).await;
        let recorded = record.events();
        assert_eq!(lines(&shown), lines(&recorded));
        assert_eq!(end(&recorded).0, "cancelled");
        // Of the last one only the begin is told.
        assert_eq!((starts(&recorded).len(), echo.count()), (calls + 1, calls));
        assert_eq!(not_made(&recorded), [calls]);
        assert_eq!(
            script.bodies().len(),
            calls + 1,
            "no model is asked after it"
        );
        holds(&recorded);
    }
}

#[tokio::test]
async fn a_cancelled_run_that_is_resumed_does_nothing_but_end() {
    let echo = Echo::default();
    let (script, driver, request) = two_calls(&echo);
    let whole = watched(&driver, request, |_| ()).await;
    let (made, bodies) = (echo.count(), script.bodies().len());
    let asked = place(&whole, |kind| matches!(kind, EventKind::Request { .. }));
    let begun = place(&whole, |kind| matches!(kind, EventKind::ToolStart { .. }));
    for last in [asked, begun] {
        let left = whole[..=last].to_vec();
        let replayed = replay(&left).unwrap();
        let record = CancelledRecord::new(left, |_| true);
        let shown = rest(driver.resume(replayed, Box::new(record.clone()))).await;
        assert_eq!(end(&shown).0, "cancelled");
        assert_eq!(starts(&shown).len(), 0, "{}", lines(&shown));
        holds(&record.events());
    }
    assert_eq!((echo.count(), script.bodies().len()), (made, bodies));
}

/// The call that was begun is lost, and the plan has no other one: it would be over with the step that resumes it.
#[tokio::test]
async fn a_plan_that_was_cancelled_before_it_is_resumed_ends_as_cancelled() {
    let hangs = |_: Value| std::future::pending();
    let script = Script::new([Reply::output("unused")]);
    let driver = driver(&script, Activities::default().with("echo", hangs));
    let mut asked = request([plain_tools(&["echo"])]);
    asked.plan = Some(vec![json!({"_tool": "echo", "of": 1})]);
    let mut run = driver.start(asked, Box::new(NoJournal)).await.unwrap();
    let mut events: Vec<Event> = Vec::new();
    while starts(&events).is_empty() {
        events.push(run.events.recv().await.unwrap());
    }
    run.stop().await;
    let resumed = |journal: Box<dyn Journal>| driver.resume(replay(&events).unwrap(), journal);
    let lost = rest(resumed(Box::new(NoJournal))).await;
    assert_eq!(end(&lost).0, "incomplete", "{}", lines(&lost));
    let record = CancelledRecord::new(events.clone(), |_| true);
    let shown = rest(resumed(Box::new(OpenedCancelled(record.clone())))).await;
    assert_eq!(end(&shown).0, "cancelled", "{}", lines(&shown));
    assert_eq!(results(&shown)[0].1["error"]["kind"], "unfinished");
    holds(&record.events());
}

/// Events of the same write as the begin that was refused.
#[tokio::test]
async fn the_result_of_a_call_is_recorded_though_the_next_one_is_not_made() {
    // The reply is over by then.
    let echo = Echo::taking(100);
    let script = Script::new([Reply::calls(&[
        json!({"_tool": "echo", "of": 7, "_outputPath": "†state.a"}),
        json!({"_tool": "echo", "of": "†state.a"}),
    ])]);
    let driver = driver(&script, Activities::default().with("echo", echo.activity()));
    let is_begun = |kind: &EventKind| matches!(kind, EventKind::ToolStart { .. });
    let record = CancelledRecord::new(Vec::new(), is_begun);
    let request = request([plain_tools(&["echo"])]);
    let started = driver.start(request, Box::new(record.clone())).await;
    let shown = rest(started.unwrap()).await;
    let refused = record.refused.lock().unwrap().clone();
    assert_eq!(
        (results(&refused).len(), starts(&refused).len()),
        (1, 1),
        "they came together: {}",
        lines(&refused)
    );
    let recorded = record.events();
    assert_eq!(lines(&shown), lines(&recorded));
    assert_eq!(end(&recorded).0, "cancelled");
    assert_eq!(echo.count(), 1);
    assert_eq!(results(&recorded)[0].1["output"], 7);
    assert_eq!(not_made(&recorded), [1]);
    holds(&recorded);
}

/// The right of a key that another process revoked, and that this one has not read since.
#[derive(Debug)]
struct RevokedElsewhere;

impl BeginCheck for RevokedElsewhere {
    fn may_begin(&self) -> bool {
        true
    }

    fn why_not(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(std::future::ready(Some("the key was revoked".into())))
    }
}

#[tokio::test]
async fn a_run_that_was_cancelled_with_its_key_tells_of_the_key() {
    let (_, driver, request) = two_calls(&Echo::default());
    let driver = Driver {
        begin: Some(Arc::new(RevokedElsewhere)),
        ..driver
    };
    let record = CancelledRecord::new(Vec::new(), |_| true);
    let started = driver.start(request, Box::new(record)).await;
    let shown = rest(started.unwrap()).await;
    assert_eq!(end(&shown).0, "cancelled");
    let done = json_of(shown.last().unwrap());
    assert_eq!(done["error"]["message"], "the key was revoked", "{done}");
}
