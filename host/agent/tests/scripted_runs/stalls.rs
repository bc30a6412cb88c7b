//! Section 11: a cancelled run ends, though its journal does not answer or nothing reads its events.

use super::support::{Reply, Script, driver, end, holds, request};
use futures_util::future::BoxFuture;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;
use toolhold_agent::Activities;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{Event, Journal};

/// Far more than a run has to end. The paused clock advances whenever all tasks wait.
const BOUND: Duration = Duration::from_mins(1);

/// A database that is gone.
#[derive(Debug)]
struct Unanswering;

impl Journal for Unanswering {
    fn append<'a>(&'a mut self, _: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::pending())
    }
}

/// Records at once.
#[derive(Debug, Clone, Default)]
struct KeepsAll(Arc<Mutex<Vec<Event>>>);

impl Journal for KeepsAll {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        self.0.lock().unwrap().extend_from_slice(events);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_ends_though_its_journal_never_answers() {
    let script = Script::new([Reply::output("done")]);
    let driver = driver(&script, Activities::default());
    let started = driver.start(request([]), Box::new(Unanswering)).await;
    let mut run = started.unwrap();
    run.cancel.cancel();
    let shown = timeout(BOUND, run.events.recv()).await.unwrap();
    assert!(shown.is_none(), "nothing is shown that is not recorded");
    let ended = timeout(BOUND, run.finished()).await.unwrap();
    assert!(
        matches!(ended, Err(RunError::JournalSilent { .. })),
        "{ended:?}"
    );
    assert!(script.bodies().is_empty(), "no model is asked");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_recorded_to_its_end_though_nothing_reads_it() {
    let long = "word ".repeat(1_000);
    let script = Script::new([Reply::output(long).never_ending()]);
    let record = KeepsAll::default();
    let driver = driver(&script, Activities::default());
    let started = driver.start(request([]), Box::new(record.clone())).await;
    let run = started.unwrap();
    // Until the run can do nothing more.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let unread = run.events.len();
    assert_eq!(
        unread,
        run.events.max_capacity(),
        "the run waits for its reader"
    );
    run.cancel.cancel();
    let ended = timeout(BOUND, run.finished()).await.unwrap();
    assert!(matches!(ended, Err(RunError::Unread { .. })), "{ended:?}");
    let events = record.0.lock().unwrap();
    assert_eq!(end(&events).0, "cancelled");
    holds(&events);
}
