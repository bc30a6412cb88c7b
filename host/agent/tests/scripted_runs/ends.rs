//! Section 7, ends of a run: reasons to stop, bounds, cost and time.

use super::support::{
    Echo, Gate, Reply, Script, driver, end, lines, place, plain_tools, request, rest, run,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toolhold_agent::Activities;
use toolhold_agent::run::replay::replay;
use toolhold_protocol::cost::{Amount, Price};
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::settings::Settings;

/// Every reason to stop, and what there is by then: the data that calls wrote.
#[tokio::test]
async fn every_stop_says_why_and_returns_what_there_is() {
    let write = || Reply::calls(&[json!({"_tool": "echo", "of": 7, "_outputPath": "†state.x"})]);
    let wait = || Reply::calls(&[json!({"_tool": "hangs"})]);
    for (reason, replies) in [
        (StopReason::Output, vec![Reply::output("done")]),
        (StopReason::MaxSteps, vec![write(), write()]),
        (StopReason::TokenBudget, vec![write().counted(60, 50)]),
        // 20 × 1 + 10 × 3 millionths: the fifty that there are.
        (StopReason::MaxCost, vec![write().counted(20, 10)]),
        // The cost of this one is unknown.
        (StopReason::MaxCost, vec![write()]),
        (StopReason::MaxToolCalls, vec![write(), write()]),
        (StopReason::Timeout, vec![write(), wait()]),
        (
            StopReason::Cancelled,
            vec![write(), Reply::text("").never_ending()],
        ),
        (
            StopReason::Model,
            vec![write(), Reply::text("x").breaking_after(1)],
        ),
        (
            StopReason::Unusable,
            vec![write(), Reply::text("x"), Reply::text("x")],
        ),
    ] {
        let script = Script::new(replies);
        let activities = Activities::default()
            .with("echo", Echo::default().activity())
            .with("hangs", |_: Value| std::future::pending());
        let mut request = request([plain_tools(&["echo", "hangs"])]);
        request.settings.token_budget = Some(100);
        request.settings.max_unusable = 2;
        request.settings.max_steps = if reason == StopReason::MaxSteps { 2 } else { 9 };
        if reason == StopReason::MaxCost {
            request.settings.price = Some(price("1", "3"));
            request.settings.max_cost = Some("0.00005".parse().unwrap());
        }
        if reason == StopReason::MaxToolCalls {
            request.settings.max_tool_calls = Some(1);
        }
        if reason == StopReason::Timeout {
            request.settings.timeout = Duration::from_millis(700);
        }
        let driver = driver(&script, activities);
        let mut run = driver.start(request, Box::new(NoJournal)).await.unwrap();
        let mut events = Vec::new();
        if reason == StopReason::Cancelled {
            while script.asked() < 2 {
                events.push(run.events.recv().await.unwrap());
            }
            run.cancel.cancel();
        }
        events.extend(rest(run).await);
        super::support::holds(&events);
        let expected = match reason {
            StopReason::Output => json!("done"),
            _ => json!({"state": {"x": 7}}),
        };
        assert_eq!(
            end(&events),
            (json!(reason).as_str().unwrap().to_owned(), expected)
        );
    }
}

/// Prices of a million prompt and completion tokens; those from a cache cost nothing.
fn price(prompt: &str, completion: &str) -> Price {
    Price::Tokens {
        prompt: prompt.parse().unwrap(),
        cached: Amount::ZERO,
        completion: completion.parse().unwrap(),
    }
}

type Caps<'a> = &'a dyn Fn(&mut Settings);

/// The setting that stopped a run is in what it says, and what may be taken is taken to the last.
#[tokio::test]
async fn caps_name_their_setting_and_allow_what_they_say() {
    let call = || Reply::calls(&[json!({"_tool": "echo", "of": 7})]);
    let two = || {
        Reply::calls(&[
            json!({"_tool": "echo", "of": 1}),
            json!({"_tool": "echo", "of": 2}),
        ])
    };
    let money = |most: &str, settings: &mut Settings| {
        settings.price = Some(price("0.1", "0"));
        settings.currency = "EUR".into();
        settings.max_cost = Some(most.parse().unwrap());
    };
    let cases: [(&str, Vec<Reply>, Caps<'_>, &str); 6] = [
        (
            "exactly as many calls",
            vec![two(), Reply::output("done")],
            &|settings| settings.max_tool_calls = Some(2),
            "",
        ),
        (
            "one call more, of a reply",
            vec![two()],
            &|settings| settings.max_tool_calls = Some(1),
            "more than 1 tool calls were wanted (run.max_tool_calls)",
        ),
        (
            "one call more, of the next reply",
            vec![two(), call()],
            &|settings| settings.max_tool_calls = Some(2),
            "more than 2 tool calls were wanted (run.max_tool_calls)",
        ),
        (
            "money left",
            vec![call().counted(10, 9), Reply::output("done").counted(90, 9)],
            &|settings| money("0.000002", settings),
            "",
        ),
        (
            "no money left",
            vec![call().counted(10, 9), call().counted(10, 9)],
            &|settings| money("0.000002", settings),
            "0.000002 of 0.000002 EUR were spent before there was an output (run.max_cost)",
        ),
        (
            "an output is worth more than its price",
            vec![Reply::output("done").counted(1_000, 1)],
            &|settings| money("0.000002", settings),
            "",
        ),
    ];
    for (what, replies, caps, expected) in cases {
        let script = Script::new(replies);
        let activities = Activities::default().with("echo", Echo::default().activity());
        let mut request = request([plain_tools(&["echo"])]);
        caps(&mut request.settings);
        let events = run(&driver(&script, activities), request).await;
        super::support::holds(&events);
        let Some(EventKind::Done { error, .. }) = events.last().map(|event| &event.kind) else {
            panic!("{what}: {}", lines(&events));
        };
        let message = error.as_ref().map_or("", |error| error.message.as_str());
        assert_eq!(message, expected, "{what}: {}", lines(&events));
    }
}

/// What is known of the cost is said, and what is not known is not said to be nothing.
#[tokio::test]
async fn costs_are_known_or_absent() {
    let known = |reply: Reply| reply.counted(1_000_000, 0);
    for (what, price, replies, expected) in [
        ("no price", None, vec![known(Reply::output("done"))], None),
        (
            "a price",
            Some(price("0.15", "1")),
            vec![known(Reply::text("x")), known(Reply::output("done"))],
            Some("0.30"),
        ),
        (
            "one reply not counted",
            Some(price("0.15", "1")),
            vec![known(Reply::text("x")), Reply::output("done")],
            None,
        ),
        (
            "free",
            Some(price("0", "0")),
            vec![known(Reply::output("done"))],
            Some("0.00"),
        ),
    ] {
        let script = Script::new(replies);
        let mut request = request([]);
        request.settings.price = price;
        let events = run(&driver(&script, Activities::default()), request).await;
        let Some(EventKind::Done { cost_nano, .. }) = events.last().map(|event| &event.kind) else {
            panic!("{what}: {}", lines(&events));
        };
        let cost = cost_nano.map(|cost| cost.to_string());
        assert_eq!(cost.as_deref(), expected, "{what}");
    }
}

/// A night that no process worked through is not taken from the run's time, and no resume gives it the
/// whole of it again.
#[tokio::test]
async fn a_resumed_run_has_the_time_that_was_left() {
    let script = Script::new([Reply::output("done"), Reply::output("done")]);
    let mut request = request([]);
    request.settings.timeout = Duration::from_secs(100);
    let driver = driver(&script, Activities::default());
    let mut events = run(&driver, request).await;
    let shift = |events: &mut [Event], from: usize, to_ms: u64| {
        let by = to_ms - events[from].at_ms;
        for event in &mut events[from..] {
            event.at_ms += by;
        }
    };
    let began = events[0].at_ms;
    let asked = place(&events, |kind| matches!(kind, EventKind::Request { .. }));
    events.truncate(asked + 1);
    shift(&mut events, asked, began + 60_000);
    let replayed = replay(&events).unwrap();
    assert_eq!(replayed.elapsed, Duration::from_mins(1));
    assert_eq!(replayed.time_left, Duration::from_secs(40));

    let resumed = events.len();
    events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
    shift(&mut events, resumed, began + 36_000_000);
    events.pop();
    let last = events.len() - 1;
    let at = events[last].at_ms + 5_000;
    shift(&mut events, last, at);
    let left = replay(&events).unwrap().time_left;
    assert!(
        (30..=35).contains(&left.as_secs()),
        "the night is not counted, and the five seconds are: {left:?}"
    );
}

/// Setting the machine's clock neither shortens nor extends a run's time.
#[tokio::test]
async fn a_clock_that_is_set_is_no_time_of_a_run() {
    const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
    for (what, set) in [
        ("ahead", YEAR_MS.cast_signed()),
        ("back", -YEAR_MS.cast_signed()),
    ] {
        let script = Script::new([Reply::output("done")]);
        let mut request = request([]);
        request.settings.timeout = Duration::from_secs(100);
        let driver = driver(&script, Activities::default());
        let mut events = run(&driver, request).await;
        let asked = place(&events, |kind| matches!(kind, EventKind::Request { .. }));
        events.truncate(asked + 1);
        let began = events[0].at_ms;
        for event in &mut events[1..] {
            event.at_ms = began.saturating_add_signed(set);
        }
        // Ten seconds of work after that.
        events[asked].at_ms += 10_000;
        let replayed = replay(&events).unwrap();
        assert_eq!(replayed.elapsed, Duration::from_secs(10), "{what}");
        assert_eq!(replayed.time_left, Duration::from_secs(90), "{what}");
    }
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn cancelling_stops_the_calls_that_run() {
    let is_dropped = Arc::new(AtomicBool::new(false));
    let begun = Gate::default();
    let (flag, opens) = (is_dropped.clone(), begun.clone());
    let hangs = move |_: Value| {
        let (dropped, opens) = (Dropped(flag.clone()), opens.clone());
        async move {
            let _dropped = dropped;
            opens.open();
            std::future::pending::<Result<Value, ToolFailure>>().await
        }
    };
    let script = Script::new([Reply::calls(&[json!({"_tool": "hangs"})])]);
    let activities = Activities::default().with("hangs", hangs);
    let driver = driver(&script, activities);
    let run = driver
        .start(request([plain_tools(&["hangs"])]), Box::new(NoJournal))
        .await
        .unwrap();
    begun.wait().await;
    run.cancel.cancel();
    let events = rest(run).await;
    super::support::holds(&events);
    assert_eq!(end(&events).0, "cancelled");
    for _ in 0..100 {
        if is_dropped.load(Ordering::SeqCst) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the call outlives its run");
}

/// An endpoint that claims to have counted everything there is.
#[tokio::test]
async fn token_counts_cannot_overflow() {
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "echo"})]).counted(u64::MAX, u64::MAX),
        Reply::output("done").counted(u64::MAX, 1),
    ]);
    let activities = Activities::default().with("echo", Echo::default().activity());
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["echo"])]),
    )
    .await;
    assert_eq!(end(&events).1, "done");
}
