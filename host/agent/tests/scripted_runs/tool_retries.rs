//! Section 7.8: calls that failed for now are made again within their step.

use super::support::{Echo, Reply, Script, driver, end, holds, lines, rest, results, run, tools};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toolhold_agent::Activities;
use toolhold_agent::run::replay::replay;
use toolhold_policy::ErrorClass;
use toolhold_protocol::event::{Event, EventKind, NoJournal};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool_retry::ToolRetry;

/// Fails for now `failures` times, then returns a price.
fn stock(
    made: &Arc<AtomicUsize>,
    failures: usize,
) -> impl Fn(Value) -> BoxFuture<'static, Result<Value, ToolFailure>> + use<> {
    let made = made.clone();
    move |_| {
        let attempt = made.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if attempt < failures {
                return Err(ToolFailure {
                    kind: "overload".into(),
                    class: ErrorClass::Retryable,
                    message: "the exchange is overloaded".into(),
                });
            }
            Ok(json!(7))
        })
    }
}

fn asked(annotations: &Value) -> RunRequest {
    let mut request = super::support::request([tools(&[("price", annotations.clone())])]);
    request.settings.tool_retry.backoff = Duration::from_millis(20);
    request
}

fn script() -> Arc<Script> {
    Script::new([
        Reply::calls(&[json!({"_tool": "price"})]),
        Reply::output("went on"),
    ])
}

fn retries(events: &[Event]) -> Vec<ToolRetry> {
    let kinds = events.iter().map(|event| &event.kind);
    kinds
        .filter_map(|kind| match kind {
            EventKind::ToolRetry { step: 1, retry } => Some(retry.clone()),
            _ => None,
        })
        .collect()
}

/// The model is not asked in between, and the record, run again, comes to the same.
#[tokio::test]
async fn a_tool_that_only_reads_is_tried_again_within_the_step() {
    let made = Arc::default();
    let script = script();
    let activities = Activities::default().with("price", stock(&made, 2));
    let events = run(
        &driver(&script, activities),
        asked(&json!({"readOnly": true})),
    )
    .await;
    assert_eq!(results(&events)[0].1["output"], 7);
    assert_eq!(made.load(Ordering::SeqCst), 3);
    let told = retries(&events);
    let told: Vec<_> = told
        .iter()
        .map(|it| (it.attempt, it.tool.as_str(), it.error.as_str()))
        .collect();
    assert_eq!(told, [(1, "price", "overload"), (2, "price", "overload")]);
    assert_eq!(end(&events).1, "went on");
    let EventKind::Done { steps, .. } = events.last().unwrap().kind else {
        panic!("no end")
    };
    assert_eq!(steps, 2);
}

#[tokio::test]
async fn a_tool_that_writes_is_not_tried_again() {
    let made = Arc::default();
    let script = script();
    let activities = Activities::default().with("price", stock(&made, 2));
    let events = run(&driver(&script, activities), asked(&json!({}))).await;
    assert_eq!(results(&events)[0].1["error"]["kind"], "overload");
    assert_eq!(made.load(Ordering::SeqCst), 1);
    assert!(retries(&events).is_empty());
}

/// Each attempt is a call in the run's budget.
#[tokio::test]
async fn attempts_count_as_calls() {
    let made = Arc::default();
    let mut request = asked(&json!({"idempotent": true}));
    request.settings.max_tool_calls = Some(2);
    let activities = Activities::default().with("price", stock(&made, 99));
    let events = run(&driver(&script(), activities), request).await;
    assert_eq!(made.load(Ordering::SeqCst), 2);
    assert_eq!(retries(&events).len(), 1);
    let told = &results(&events)[0].1["error"]["message"];
    assert_eq!(told, "the exchange is overloaded (tried 2 times)");
}

/// A run that is over, here by its time, tries nothing again.
#[tokio::test]
async fn the_end_of_the_run_ends_the_attempts() {
    let made = Arc::default();
    let mut request = asked(&json!({"readOnly": true}));
    request.settings.tool_retry.backoff = Duration::from_secs(3);
    request.settings.timeout = Duration::from_millis(300);
    let activities = Activities::default().with("price", stock(&made, 99));
    run(&driver(&script(), activities), request).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

/// An activity that is given more time than it needs is called once.
#[tokio::test]
async fn a_success_is_no_reason_to_try_again() {
    let echo = Echo::default();
    let activities = Activities::default().with("price", echo.activity());
    let events = run(
        &driver(&script(), activities),
        asked(&json!({"readOnly": true})),
    )
    .await;
    assert_eq!((echo.count(), retries(&events).len()), (1, 0));
}

/// Also where the process ended between them.
#[tokio::test]
async fn attempts_before_the_process_ended_count_as_well() {
    let made = Arc::default();
    let mut request = asked(&json!({"readOnly": true}));
    request.settings.tool_retry.backoff = Duration::from_millis(400);
    request.settings.max_tool_calls = Some(3);
    let activities = Activities::default().with("price", stock(&made, 99));
    let driver = driver(&script(), activities);
    let mut begun = driver.start(request, Box::new(NoJournal)).await.unwrap();
    let mut events: Vec<Event> = Vec::new();
    while retries(&events).is_empty() {
        events.push(begun.events.recv().await.unwrap());
    }
    drop(begun);
    assert_eq!(made.load(Ordering::SeqCst), 1);
    let resumed = driver.resume(replay(&events).unwrap(), Box::new(NoJournal));
    events.extend(rest(resumed).await);
    holds(&events);
    // The call, the attempt that was told, and one more.
    assert_eq!(retries(&events).len(), 2, "{}", lines(&events));
    assert_eq!(made.load(Ordering::SeqCst), 3);
}
