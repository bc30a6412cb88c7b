//! Section 7: when a run ends, the place that one of its calls frees begins no other call of it.

use super::support::{Reply, Script, driver, request, rest, tools};
use futures_util::future::BoxFuture;
use serde_json::json;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use toolhold_agent::{Activities, Activity, Driver, Run, ToolCall};
use toolhold_policy::BeginCheck;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::result::ToolResult;

/// Time in which each call begins or is refused.
const BOUND: Duration = Duration::from_secs(30);

/// Sends whether a call may begin: when it is made, and when it is dropped. The right of the run's key ends with the first
/// call.
#[derive(Debug)]
struct Hangs {
    told: mpsc::UnboundedSender<bool>,
    right: Option<Arc<KeyRight>>,
}

/// Tells it at the moment in which a place becomes free.
struct HeldPlace {
    begin: Arc<dyn BeginCheck>,
    told: mpsc::UnboundedSender<bool>,
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        let _ = self.told.send(self.begin.may_begin());
    }
}

impl Activity for Hangs {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let begin = call.begin.clone().expect("a run's call asks the run");
        if let Some(right) = &self.right {
            right.has_ended.store(true, Ordering::Relaxed);
        }
        self.told.send(begin.may_begin()).unwrap();
        let told = self.told.clone();
        Box::pin(async move {
            let _held = HeldPlace { begin, told };
            pending().await
        })
    }
}

/// The right of a run's key.
#[derive(Debug, Default)]
struct KeyRight {
    has_ended: AtomicBool,
}

impl BeginCheck for KeyRight {
    fn may_begin(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }
}

async fn next(told: &mut mpsc::UnboundedReceiver<bool>) -> bool {
    let told = timeout(BOUND, told.recv()).await;
    told.expect("a call tells in time").expect("a call")
}

/// A run with two calls that hang, and what they tell.
async fn begun(right: Option<Arc<KeyRight>>) -> (Run, mpsc::UnboundedReceiver<bool>) {
    let (sender, told) = mpsc::unbounded_channel();
    let begin = right.clone().map(|right| right as Arc<dyn BeginCheck>);
    let hangs = Hangs {
        told: sender,
        right,
    };
    let calls = [1, 2].map(|of| json!({"_tool": "hangs", "of": of}));
    let script = Script::new([Reply::calls(&calls)]);
    let driver = Driver {
        begin,
        ..driver(&script, Activities::default().with("hangs", hangs))
    };
    let request = request([tools(&[("hangs", json!({"readOnly": true}))])]);
    let started = driver.start(request, Box::new(NoJournal)).await;
    (started.unwrap(), told)
}

#[tokio::test]
async fn no_call_begins_in_the_place_of_a_call_of_a_run_that_ended() {
    for is_cancelled in [true, false] {
        let (run, mut told) = begun(None).await;
        assert_eq!((next(&mut told).await, next(&mut told).await), (true, true));
        if is_cancelled {
            run.cancel.cancel();
            rest(run).await;
        } else {
            run.stop().await;
        }
        let freed = (next(&mut told).await, next(&mut told).await);
        assert_eq!(freed, (false, false), "cancelled: {is_cancelled}");
    }
}

#[tokio::test]
async fn a_call_of_a_run_asks_what_the_run_is_part_of() {
    let (_run, mut told) = begun(Some(Arc::default())).await;
    assert!(!next(&mut told).await);
}
