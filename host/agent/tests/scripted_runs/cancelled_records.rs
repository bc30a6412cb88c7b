//! Section 11: a run that another process cancelled, as its journal says when a call is to begin.

use super::support::{
    Echo, Reply, Script, driver, end, holds, lines, place, request, rest, starts, tools, watched,
};
use futures_util::future::BoxFuture;
use serde_json::json;
use std::io;
use std::sync::{Arc, Mutex};
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::event::{CancelRequested, Event, EventKind, Journal};
use toolhold_protocol::settings::RunRequest;

/// A journal of a run that another process cancels as soon as it has a certain event.
#[derive(Debug, Clone)]
struct CancelledRecord {
    events: Arc<Mutex<Vec<Event>>>,
    cancels: fn(&EventKind) -> bool,
}

impl CancelledRecord {
    fn new(events: Vec<Event>, cancels: fn(&EventKind) -> bool) -> Self {
        Self {
            events: Arc::new(Mutex::new(events)),
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
            Err(io::Error::other(CancelRequested))
        } else {
            recorded.extend_from_slice(events);
            Ok(())
        };
        Box::pin(std::future::ready(appended))
    }

    fn rewind(&mut self) -> BoxFuture<'_, io::Result<Vec<Event>>> {
        Box::pin(std::future::ready(Ok(self.events())))
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
        assert_eq!((starts(&recorded).len(), echo.count()), (calls, calls));
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
    let (_, driver, request) = two_calls(&echo);
    let whole = watched(&driver, request, |_| ()).await;
    let made = echo.count();
    let asked = place(&whole, |kind| matches!(kind, EventKind::Request { .. }));
    let begun = place(&whole, |kind| matches!(kind, EventKind::ToolStart { .. }));
    for last in [asked, begun] {
        let left = whole[..=last].to_vec();
        let replayed = replay(&left).unwrap();
        let record = CancelledRecord::new(left, |_| true);
        let shown = rest(driver.resume(replayed, Box::new(record.clone()))).await;
        assert_eq!(end(&shown).0, "cancelled");
        let is_resumed = |event: &Event| matches!(event.kind, EventKind::Resumed { .. });
        assert!(!shown.iter().any(is_resumed), "{}", lines(&shown));
        holds(&record.events());
    }
    assert_eq!(echo.count(), made);
}
