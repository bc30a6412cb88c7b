//! Section 11: from its record a run comes to the same again, can be gone on with, and shows whatever
//! was changed in it.

use super::support::{
    Echo, Gate, Reply, Script, driver, end, holds, json_of, lines, place, plain_tools, request,
    rest, results, run, tools, watch, watched,
};
use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use toolhold_agent::run::replay::{ReplayError, replay};
use toolhold_agent::{Activities, Driver};
use toolhold_model::{ChatRequest, CompletionObserver, Model, ModelError};
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Bodies, FORMAT, NoJournal, OLDEST_FORMAT, Seal};
use toolhold_protocol::event::{Event, EventKind, Journal};
use toolhold_protocol::reply_offset::ReplyOffset;
use toolhold_protocol::settings::RunRequest;

/// A run with a bit of everything: calls in parallel, in the background, in order, in an instance,
/// that fail, that are latent, of a clean room; two Requests and an output.
fn everything(echo: &Echo) -> (Arc<Script>, Driver, RunRequest) {
    let context = Message::parse_all(&json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        {"type": "data", "kind": "user", "data": {"name": "Bob"}, "_instance": "bob"},
        {"type": "tool", "tool": {
            "think": {"type": "object", "properties": {"_output": {"type": "string"}}},
            "room": {"type": "object", "description": "Thinks alone.", "properties": {"of": {}, "_module": {"const": "anonymous"}}},
        }},
    ]));
    let replies = [
        Reply::calls(&[
            json!({"_tool": "echo", "of": "†user.name", "_outputPath": "†state.a"}),
            json!({"_tool": "echo", "of": "†user.name", "_instance": "bob", "_outputPath": "†state.a"}),
            json!({"_tool": "reads", "of": "†state.a", "_outputPath": "†state.b || †state.failed"}),
            json!({"_tool": "notify", "of": 1}),
            json!({"_tool": "fails", "_outputPath": "†state.c"}),
            json!({"_tool": "echo", "of": "†state.c"}),
            json!({"_tool": "think", "_output": "hm", "_outputPath": "†state.thought"}),
            json!({"_tool": "room", "of": 1}),
        ]),
        // The clean room's, whichever of the two is asked first.
        Reply::output("alone"),
        Reply::output("together"),
    ];
    let script = Script::new(replies);
    let activities = Activities::default()
        .with("echo", echo.activity())
        .with("reads", echo.activity())
        .with("notify", echo.activity())
        .with("fails", |_: Value| async {
            Err::<Value, _>(toolhold_protocol::failure::ToolFailure::correctable(
                "broken", "no",
            ))
        });
    let mut request = request(context.unwrap().into_iter().chain([tools(&[
        ("echo", json!({})),
        ("reads", json!({"readOnly": true})),
        ("notify", json!({"fireAndForget": true})),
        ("fails", json!({})),
    ])]));
    request.settings.parallel_calls = 2;
    let driver = driver(&script, activities);
    (script, driver, request)
}

/// At every place in its record a run may be killed: what is recorded is gone on with, and no call that
/// was over is made again.
#[tokio::test]
async fn a_run_that_is_killed_after_any_event_goes_on() {
    let echo = Echo::taking(5);
    let (_, driver, request) = everything(&echo);
    let whole = watched(&driver, request, |_| ()).await;
    assert_eq!(end(&whole).0, "output", "{}", lines(&whole));
    for kept in 1..whole.len() {
        let echo = Echo::default();
        let (_, driver, _) = everything(&echo);
        let mut events = whole[..kept].to_vec();
        let over = results(&events).len();
        let replayed = replay(&events).unwrap_or_else(|error| panic!("after {kept}: {error}"));
        let script = Script::new((0..6).map(|_| Reply::output("went on")));
        let driver = Driver {
            model: script,
            ..driver
        };
        events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
        holds(&events);
        assert_eq!(
            end(&events).0,
            "output",
            "after {kept}: {}",
            lines(&events[kept..])
        );
        let ids: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::ToolResult { id, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        let once: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(
            once.len(),
            ids.len(),
            "after {kept}: each call is answered once"
        );
        assert!(results(&events).len() >= over);
    }
}

/// A call that had started and takes effect is not made again; one that only reads is; one that waited
/// for room had not started.
#[tokio::test]
async fn begun_calls_are_repeated_only_if_harmless() {
    let calls = [
        json!({"_tool": "echo", "of": "writes"}),
        json!({"_tool": "reads", "of": "reads"}),
        json!({"_tool": "echo", "of": "waits for room"}),
    ];
    let context = || {
        [tools(&[
            ("echo", json!({})),
            ("reads", json!({"readOnly": true})),
        ])]
    };
    let script = Script::new([Reply::calls(&calls), Reply::output("done")]);
    let hangs = |_: Value| std::future::pending();
    let activities = Activities::default()
        .with("echo", hangs)
        .with("reads", hangs);
    let mut asked = request(context());
    asked.settings.parallel_calls = 2;
    let mut run = driver(&script, activities)
        .start(asked, Box::new(NoJournal))
        .await
        .unwrap();
    let mut events: Vec<Event> = Vec::new();
    while !events
        .iter()
        .any(|e| matches!(e.kind, EventKind::Plan { .. }))
    {
        events.push(run.events.recv().await.unwrap());
    }
    drop(run);
    let echo = Echo::default();
    let activities = Activities::default()
        .with("echo", echo.activity())
        .with("reads", echo.activity());
    let resumed = driver(&script, activities).resume(replay(&events).unwrap(), Box::new(NoJournal));
    events.extend(rest(resumed).await);
    holds(&events);
    let mut made: Vec<_> = echo
        .made
        .lock()
        .unwrap()
        .iter()
        .map(|m| m["of"].clone())
        .collect();
    made.sort_by_key(ToString::to_string);
    assert_eq!(made, [json!("reads"), json!("waits for room")]);
    assert_eq!(results(&events)[0].1["error"]["kind"], "interrupted");
    assert!(script.told(1).contains("not known whether it took effect"));
    let own = |event: &Event| {
        let end = json_of(event);
        end["error"]["kind"] == "interrupted" && end.get("by_host").is_none()
    };
    let lost = events.iter().position(own).expect("its tool was called");
    // Records of earlier versions say that the host had answered it.
    if let EventKind::ToolResult { by_host, .. } = &mut events[lost].kind {
        *by_host = true;
    }
    holds(&events);
}

/// The event of a process that resumes a run has its notes, and a replay has the same.
#[tokio::test]
async fn notes_of_a_resumed_run_are_replayed() {
    let script = Script::new([Reply::output("first"), Reply::output("second")]);
    let driver = driver(&script, Activities::default());
    let whole = watched(&driver, request([]), |_| ()).await;
    let begun = &whole[..1];
    let mut replayed = replay(begun).unwrap();
    replayed.notes = vec!["a module is another one".to_owned()];
    let mut events = begun.to_vec();
    events.extend(rest(driver.resume(replayed, Box::new(NoJournal))).await);
    holds(&events);
    let noted: Vec<Value> = events
        .iter()
        .map(json_of)
        .filter(|event| event["event"] == "resumed")
        .map(|event| event["notes"].clone())
        .collect();
    assert_eq!(noted, [json!(["a module is another one"])]);
    assert_eq!(replay(&events).unwrap().notes, Vec::<String>::new());
}

/// The host answers none of its calls, and a plan does not go on to its end.
#[tokio::test]
async fn a_left_run_that_is_cancelled_ends_as_one_at_work() {
    for plan in [false, true] {
        let call = json!({"_tool": "echo", "of": 1});
        let script = Script::new([Reply::calls(std::slice::from_ref(&call))]);
        let hangs = |_: Value| std::future::pending();
        let driver = driver(&script, Activities::default().with("echo", hangs));
        let mut asked = request([plain_tools(&["echo"])]);
        asked.plan = plan.then(|| vec![call]);
        let mut run = driver.start(asked, Box::new(NoJournal)).await.unwrap();
        let mut events: Vec<Event> = Vec::new();
        while !events
            .iter()
            .any(|e| matches!(e.kind, EventKind::ToolStart { .. }))
        {
            events.push(run.events.recv().await.unwrap());
        }
        run.stop().await;
        let replayed = replay(&events).unwrap();
        let ended = driver.cancel(replayed, Box::new(NoJournal), Some("enough".into()));
        events.extend(rest(ended).await);
        holds(&events);
        assert_eq!(end(&events).0, "cancelled", "{}", lines(&events));
        let ends = results(&events);
        assert_eq!(ends.len(), 1, "{}", lines(&events));
        assert_eq!(ends[0].1["error"]["kind"], "unfinished");
    }
}

/// A background call does not return after a restart: the run ends all the same.
#[tokio::test]
async fn a_call_in_the_background_does_not_keep_a_resumed_run_from_ending() {
    for (annotations, outcome) in [
        (json!({"fireAndForget": true}), "error"),
        (json!({"fireAndForget": true, "idempotent": true}), "output"),
    ] {
        let context = || [tools(&[("notify", annotations.clone())])];
        let script = Script::new([
            Reply::calls(&[json!({"_tool": "notify", "of": 1})]),
            Reply::output("done"),
        ]);
        let hangs = |_: Value| std::future::pending();
        let mut run = driver(&script, Activities::default().with("notify", hangs))
            .start(request(context()), Box::new(NoJournal))
            .await
            .unwrap();
        let mut events: Vec<Event> = Vec::new();
        let replies = |events: &[Event]| {
            let is_reply = |e: &&Event| matches!(e.kind, EventKind::Tokens { .. });
            events.iter().filter(is_reply).count()
        };
        while replies(&events) < 2 {
            events.push(run.events.recv().await.unwrap());
        }
        drop(run);
        let activities = Activities::default().with("notify", Echo::default().activity());
        let resumed =
            driver(&script, activities).resume(replay(&events).unwrap(), Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert!(
            results(&events)[0].1.get(outcome).is_some(),
            "{}",
            lines(&events)
        );
        assert_eq!(
            script.asked(),
            2,
            "the model is not asked again for what it has said"
        );
    }
}

/// Cancelled and timed out runs come to the same again, too.
#[tokio::test]
async fn a_run_that_was_stopped_holds() {
    for is_cancelled in [true, false] {
        let begun = Gate::default();
        let script = Script::new([Reply::calls(&[json!({"_tool": "hangs"})])]);
        let activities = Activities::default().with("hangs", |_: Value| std::future::pending());
        let mut request = request([plain_tools(&["hangs"])]);
        request.settings.timeout = Duration::from_millis(if is_cancelled { 20_000 } else { 200 });
        let run = driver(&script, activities)
            .start(request, Box::new(NoJournal))
            .await
            .unwrap();
        let cancel = run.cancel.clone();
        let events = watch(run, |event| {
            if is_cancelled && matches!(event.kind, EventKind::ToolStart { .. }) {
                cancel.cancel();
                begun.open();
            }
        })
        .await;
        holds(&events);
        assert_eq!(
            end(&events).0,
            if is_cancelled { "cancelled" } else { "timeout" }
        );
    }
}

/// The reason is an input of the run: a replay of its record ends with the same one.
#[tokio::test]
async fn a_cancelled_run_ends_with_the_reason_that_was_given() {
    let script = Script::new([Reply::calls(&[json!({"_tool": "hangs"})])]);
    let activities = Activities::default().with("hangs", |_: Value| std::future::pending());
    let run = driver(&script, activities)
        .start(request([plain_tools(&["hangs"])]), Box::new(NoJournal))
        .await
        .unwrap();
    let cancel = run.cancel.clone();
    let events = watch(run, |event| {
        if matches!(event.kind, EventKind::ToolStart { .. }) {
            cancel.cancel_because("the key \"ann\" was revoked");
        }
    })
    .await;
    holds(&events);
    let Some(EventKind::Done { reason, error, .. }) = events.last().map(|event| &event.kind) else {
        panic!("{}", lines(&events));
    };
    assert_eq!(json!(reason), "cancelled");
    let message = error.as_ref().map(|failure| failure.message.as_str());
    assert_eq!(message, Some("the key \"ann\" was revoked"));
}

/// A change of any input or result in the record is found, with its place.
#[tokio::test]
async fn a_changed_event_is_found() {
    let echo = Echo::default();
    let (_, driver, request) = everything(&echo);
    let events = watched(&driver, request, |_| ()).await;
    let with = |at: usize, change: &dyn Fn(&mut EventKind)| {
        let mut changed = events.clone();
        change(&mut changed[at].kind);
        changed
    };
    let result = place(
        &events,
        |kind| matches!(kind, EventKind::ToolResult { tool, .. } if tool == "reads"),
    );
    let changed = with(result, &|kind| {
        if let EventKind::ToolResult { outcome, .. } = kind {
            *outcome = toolhold_protocol::event::ToolOutcome::Output(json!("Eve"));
        }
    });
    let found = replay(&changed).unwrap_err();
    assert!(matches!(found, ReplayError::Divergence { .. }), "{found}");
    // A request of other words: a change, unless another version asked the model.
    let asked = place(&events, |kind| matches!(kind, EventKind::Request { .. }));
    let in_other_words = |kind: &mut EventKind| {
        if let EventKind::Request { body, .. } = kind {
            body["messages"] = json!([]);
        }
    };
    let mut changed = with(asked, &in_other_words);
    let found = replay(&changed).unwrap_err();
    assert!(matches!(found, ReplayError::Divergence { .. }), "{found}");
    if let EventKind::Run { prompts, .. } = &mut changed[0].kind {
        *prompts -= 1;
    }
    assert!(replay(&changed).unwrap().has_other_prompts);
    // The next Request is recorded whole, because the record has other words before it.
    let is_request = |event: &Event| matches!(event.kind, EventKind::Request { .. });
    let next = asked + 1 + changed[asked + 1..].iter().position(is_request).unwrap();
    let whole = |events: &[Event]| {
        let unsaid = replay(&events[..next]).unwrap().unsaid;
        let shared = unsaid.iter().find_map(|kind| match kind {
            EventKind::Request { same, .. } => Some(same.is_nothing()),
            _ => None,
        });
        shared.unwrap()
    };
    assert!(whole(&changed) && !whole(&events));
    let in_room = place(
        &events,
        |kind| matches!(kind, EventKind::Sub { what, .. } if matches!(**what, EventKind::Done { .. })),
    );
    let changed = with(in_room, &|kind| {
        if let EventKind::Sub { what, .. } = kind
            && let EventKind::Done { output, .. } = what.as_mut()
        {
            *output = json!("Eve");
        }
    });
    let found = replay(&changed).unwrap_err();
    assert!(matches!(found, ReplayError::Sub { .. }), "{found}");
    for lost in 1..events.len() {
        let mut fewer = events.clone();
        fewer.remove(lost);
        // The last can be missing: the run was killed then.
        assert_eq!(
            replay(&fewer).is_ok(),
            lost == events.len() - 1,
            "without {lost}"
        );
    }
}

/// Each event is sealed with the one before it, so that not a byte can change unseen.
#[tokio::test]
async fn a_changed_byte_breaks_a_seal() {
    let echo = Echo::default();
    let (_, driver, request) = everything(&echo);
    let events = watched(&driver, request, |_| ()).await;
    let mut before = Seal::default();
    for event in &events {
        let line = serde_json::to_string(event).unwrap();
        assert_eq!(
            Seal::of(&line, &before).as_ref(),
            Some(&event.seal),
            "{line}"
        );
        let step = line.len() / 40 + 1;
        for at in (0..line.len()).step_by(step) {
            let mut bytes = line.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(text) = String::from_utf8(bytes) else {
                continue;
            };
            let Ok(changed) = serde_json::from_str::<Event>(&text) else {
                continue;
            };
            assert_ne!(Seal::of(&text, &before), Some(changed.seal), "{text}");
        }
        before = event.seal.clone();
    }
}

/// A run of `steps` Requests. Each but the last has a call that writes to the state.
async fn long(contract: Contract, steps: usize) -> (Arc<Script>, Driver, Vec<Event>) {
    let call = |n: usize| json!({"_tool": "echo", "of": format!("the {n}th"), "_outputPath": "†state.last"});
    let replies = (1..steps)
        .map(|n| json!({"calls": [call(n)], "output": null}))
        .chain([json!({"calls": [], "output": "done"})]);
    let script = Script::new(replies.map(|solution| Reply::of(contract, &solution)));
    let driver = driver(
        &script,
        Activities::default().with("echo", Echo::default().activity()),
    );
    let context = Message::parse_all(&json!([{"type": "state", "state": {"last": "none"}}]));
    let mut request = request(context.unwrap().into_iter().chain([plain_tools(&["echo"])]));
    request.settings.contract = contract;
    request.settings.max_steps = 100;
    let events = watched(&driver, request, |_| ()).await;
    assert_eq!(end(&events).0, "output", "{}", lines(&events));
    (script, driver, events)
}

/// A Request repeats the conversation so far, its record does not.
#[tokio::test]
async fn a_record_grows_with_the_steps_and_not_with_their_square() {
    for contract in Contract::ALL {
        let mut sizes = Vec::new();
        for steps in [30, 60] {
            let (_, _, events) = long(contract, steps).await;
            sizes.push(lines(&events).len());
        }
        // Twice the steps, without what is recorded once, and numbers that take one digit more.
        assert!(
            sizes[1] * 10 < sizes[0] * 23,
            "{contract:?}: {sizes:?} bytes"
        );
    }
}

/// From its record each Request can be sent again, byte for byte, those of sub-agents too.
#[tokio::test]
async fn every_body_is_found_in_the_record_again() {
    let found = |events: &[Event]| -> Vec<String> {
        let mut bodies = Bodies::default();
        let bodies = events.iter().filter_map(|event| {
            let body = bodies.take(&event.kind).unwrap();
            body.map(ToString::to_string)
        });
        bodies.collect()
    };
    let sent = |script: &Script| -> Vec<String> {
        script.bodies().iter().map(ToString::to_string).collect()
    };
    for contract in Contract::ALL {
        let (script, _, events) = long(contract, 5).await;
        assert_eq!(found(&events), sent(&script), "{contract:?}");
    }
    let (script, driver, request) = everything(&Echo::default());
    let events = watched(&driver, request, |_| ()).await;
    assert_eq!(found(&events), sent(&script));
}

/// What a record shares is only how it is kept: made whole, its events hold what was sent.
#[tokio::test]
async fn a_record_can_be_made_whole() {
    let (script, _, events) = long(Contract::Schema, 4).await;
    let mut bodies = Bodies::default();
    let whole: Vec<Event> = events
        .iter()
        .map(|event| bodies.whole(event).unwrap())
        .collect();
    assert!(lines(&events).contains(r#""same""#) && !lines(&whole).contains(r#""same""#));
    let held = whole.iter().filter_map(|event| match &event.kind {
        EventKind::Request { body, .. } => Some(body.clone()),
        _ => None,
    });
    assert_eq!(held.collect::<Vec<_>>(), script.bodies());
    let mut bodies = Bodies::default();
    let again = whole.iter().map(|event| bodies.whole(event).unwrap());
    assert_eq!(lines(&again.collect::<Vec<_>>()), lines(&whole));
}

/// A journal that takes its time.
#[derive(Debug, Clone, Default)]
struct Slow(Arc<Mutex<Vec<Event>>>);

impl Journal for Slow {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.0.lock().unwrap().extend_from_slice(events);
            Ok(())
        })
    }
}

/// A journal that takes its time, and counts the calls that begin with each of its writes.
#[derive(Debug, Clone, Default)]
struct BegunCalls(Arc<Mutex<Vec<usize>>>);

impl Journal for BegunCalls {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let begun = events.iter().filter(|event| event.kind.begins_calls());
            self.0.lock().unwrap().push(begun.count());
            Ok(())
        })
    }
}

/// The model goes on to write while the begin of the first call is recorded.
#[tokio::test(start_paused = true)]
async fn calls_that_were_written_meanwhile_begin_with_one_write() {
    let echo = Echo::default();
    let calls = [1, 2, 3].map(|of| json!({"_tool": "echo", "of": of}));
    let script = Script::new([Reply::calls(&calls), Reply::output("done")]);
    let driver = driver(&script, Activities::default().with("echo", echo.activity()));
    let record = BegunCalls::default();
    let request = request([plain_tools(&["echo"])]);
    let run = driver.start(request, Box::new(record.clone())).await;
    let events = rest(run.unwrap()).await;
    assert_eq!(end(&events).0, "output", "{}", lines(&events));
    let begun = record.0.lock().unwrap();
    let begun: Vec<_> = begun.iter().filter(|calls| **calls > 0).collect();
    assert_eq!(begun, [&1, &2]);
}

/// Says what a script says, and looks each time how many Requests are recorded.
#[derive(Debug)]
struct Witness {
    script: Arc<Script>,
    record: Slow,
    seen: Mutex<Vec<usize>>,
}

impl Model for Witness {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let recorded = self.record.0.lock().unwrap();
        let requests = recorded.iter().filter(|event| {
            let mut kind = &event.kind;
            while let EventKind::Sub { what, .. } = kind {
                kind = what;
            }
            matches!(kind, EventKind::Request { .. })
        });
        self.seen.lock().unwrap().push(requests.count());
        self.script.complete(request, watch)
    }
}

/// Nothing follows from what is not recorded, nor in a run within a run.
#[tokio::test]
async fn a_sub_agent_asks_only_what_is_recorded() {
    let context = Message::parse_all(&json!([{"type": "tool", "tool": {
        "room": {"type": "object", "description": "Thinks alone.", "properties": {"_module": {"const": "anonymous"}}},
    }}]));
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "room"})]),
        Reply::output("alone"),
        Reply::output("together"),
    ]);
    let record = Slow::default();
    let witness = Arc::new(Witness {
        script: script.clone(),
        record: record.clone(),
        seen: Mutex::default(),
    });
    let driver = Driver {
        model: witness.clone(),
        ..driver(&script, Activities::default())
    };
    let request = request(context.unwrap());
    let run = driver.start(request, Box::new(record)).await.unwrap();
    let events = rest(run).await;
    assert_eq!(end(&events).0, "output", "{}", lines(&events));
    assert_eq!(*witness.seen.lock().unwrap(), [1, 2, 3]);
}

/// Keeps what is recorded.
#[derive(Debug, Clone, Default)]
struct Keeps(Arc<Mutex<Vec<Event>>>);

impl Journal for Keeps {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        self.0.lock().unwrap().extend_from_slice(events);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The content of the pieces of the first reply.
fn content<'a>(pieces: impl Iterator<Item = &'a Delta>) -> String {
    let texts = pieces.map(|piece| match piece {
        Delta::Content(text) => text.as_str(),
        _ => "",
    });
    texts.collect()
}

/// The pieces that were recorded because the run acts on them, and the text of the first reply.
fn recorded_text(record: &[Event]) -> (String, Option<String>) {
    let written = record.iter().flat_map(|event| match &event.kind {
        EventKind::Written {
            step: 1, pieces, ..
        } => pieces.as_slice(),
        _ => &[],
    });
    let reply = record.iter().find_map(|event| match &event.kind {
        EventKind::Reply {
            step: 1,
            completion,
        } => Some(completion.content.clone()),
        _ => None,
    });
    (content(written), reply)
}

/// A piece is shown before anything of it is recorded. The record has the reply, and before a call the text up to it, on
/// which the run acts.
#[tokio::test]
async fn pieces_of_a_reply_are_shown_and_not_recorded() {
    let is_over = Gate::default();
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "echo", "of": "é🦀"})])
            .then("  ")
            .ending_after(&is_over),
        Reply::output("done"),
    ]);
    let activities = Activities::default().with("echo", Echo::default().activity());
    let record = Keeps::default();
    let run = driver(&script, activities)
        .start(request([plain_tools(&["echo"])]), Box::new(record.clone()))
        .await
        .unwrap();
    let (mut shown, mut offset) = (Vec::new(), ReplyOffset::default());
    let mut at_result = None;
    let events = watch(run, |event| match &event.kind {
        EventKind::Delta {
            step: 1,
            delta,
            from: Some(from),
        } => {
            assert_eq!(*from, offset, "pieces are in order, without gap");
            offset.pass(delta);
            shown.push(delta.clone());
            assert_eq!(recorded_text(&record.0.lock().unwrap()).1, None);
        }
        EventKind::ToolResult { .. } => {
            at_result = Some(recorded_text(&record.0.lock().unwrap()));
            is_over.open();
        }
        _ => {}
    })
    .await;
    let record = record.0.lock().unwrap().clone();
    assert_eq!(json!(record), json!(events), "what is recorded is shown");
    let mut seal = Seal::default();
    for (number, event) in (0..).zip(&record) {
        assert!(!event.kind.is_shown_only(), "{event:?}");
        assert_eq!(event.seq, number);
        let line = serde_json::to_string(event).unwrap();
        assert_eq!(Seal::of(&line, &seal).as_ref(), Some(&event.seal));
        seal = event.seal.clone();
    }
    let (written, reply) = recorded_text(&record);
    let (reply, shown) = (reply.unwrap(), content(shown.iter()));
    assert_eq!(shown, reply);
    assert!(reply.starts_with(&written) && written.len() < reply.len());
    // The endpoint's cuts between pieces of one text are not recorded.
    let cuts = record.iter().filter_map(|event| match &event.kind {
        EventKind::Written { pieces, .. } => Some(pieces.len()),
        _ => None,
    });
    assert_eq!(cuts.collect::<Vec<_>>(), [1]);
    // The piece that completes the call may hold what follows it.
    assert!(written.contains("é🦀\"}"), "{written}");
    let (at_result, no_reply) = at_result.unwrap();
    assert_eq!((at_result, no_reply), (written, None));
    holds(&record);
}

/// The process ends while the model writes, before and after a call: the record has no gap, and the run goes on from it.
#[tokio::test]
async fn a_run_that_is_killed_in_the_middle_of_a_reply_goes_on() {
    for has_call in [false, true] {
        let record = Keeps::default();
        let reply = if has_call {
            Reply::calls(&[json!({"_tool": "echo", "of": 1})]).then("and so on ")
        } else {
            Reply::text("{\"calls\": [], \"output\": \"and so on ")
        };
        let script = Script::new([reply.never_ending()]);
        let echo = Echo::default();
        let activities = || Activities::default().with("echo", echo.activity());
        let mut run = driver(&script, activities())
            .start(request([plain_tools(&["echo"])]), Box::new(record.clone()))
            .await
            .unwrap();
        let (mut text, mut has_result) = (String::new(), false);
        while !text.contains("so on") || has_result != has_call {
            let event = run.events.recv().await.unwrap();
            has_result |= matches!(event.kind, EventKind::ToolResult { .. });
            if let EventKind::Delta { delta, .. } = &event.kind {
                text.push_str(&content([delta].into_iter()));
            }
        }
        run.stop().await;
        let mut events = record.0.lock().unwrap().clone();
        let (written, reply) = recorded_text(&events);
        assert_eq!((written.is_empty(), reply), (!has_call, None));
        let script = Script::new([Reply::output("went on")]);
        let again = driver(&script, activities());
        let resumed = again.resume(replay(&events).unwrap(), Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(end(&events), ("output".into(), json!("went on")));
        assert_eq!(echo.count(), usize::from(has_call));
    }
}

/// The text that was shown of a reply that broke off, or of a cancelled run, is recorded once.
#[tokio::test]
async fn the_text_of_a_reply_without_an_end_is_recorded() {
    for is_cancelled in [false, true] {
        let begun = Reply::text("{\"calls\": [], \"output\": \"é and so on ");
        let pieces = begun.pieces();
        let begun = if is_cancelled {
            begun.never_ending()
        } else {
            begun.breaking_after(pieces)
        };
        let script = Script::new([begun, Reply::output("again")]);
        let run = driver(&script, Activities::default())
            .start(request([]), Box::new(NoJournal))
            .await
            .unwrap();
        let (cancel, mut shown) = (run.cancel.clone(), String::new());
        let events = watch(run, |event| {
            if let EventKind::Delta { step: 1, delta, .. } = &event.kind
                && !shown.contains("so on ")
            {
                shown.push_str(&content([delta].into_iter()));
            }
            if is_cancelled && shown.contains("so on ") {
                cancel.cancel();
            }
        })
        .await;
        holds(&events);
        let (written, _) = recorded_text(&events);
        assert_eq!(written, shown);
        let reason = if is_cancelled { "cancelled" } else { "output" };
        assert_eq!(end(&events).0, reason);
    }
}

/// A record is replayed by the rules of its format: in format 3 two calls that push to one place begin at once, and now
/// they do so one after the other.
#[tokio::test]
async fn a_record_is_replayed_by_the_rules_of_its_format() {
    for (places, is_same) in [(["†state.a", "†state.b"], true), (["†state.a"; 2], false)] {
        let calls = places.map(|place| {
            json!({"_tool": "echo", "of": 1, "_outputPath": place, "_outputMethod": "push"})
        });
        let script = Script::new([Reply::calls(&calls), Reply::output("done")]);
        // No call ends before the reply is whole: a first one that did could not have begun beside the second.
        let is_read = Arc::new(Semaphore::new(0));
        let echo = {
            let is_read = Arc::clone(&is_read);
            move |arguments: Value| {
                let is_read = Arc::clone(&is_read);
                let called = async move {
                    drop(is_read.acquire().await.unwrap());
                    Ok(arguments["of"].clone())
                };
                called.boxed()
            }
        };
        let driver = driver(&script, Activities::default().with("echo", echo));
        let mut events = watched(&driver, request([plain_tools(&["echo"])]), |event| {
            if matches!(event.kind, EventKind::Reply { .. }) {
                is_read.add_permits(1);
            }
        })
        .await;
        let mut replayed_as = |of: u32| {
            if let EventKind::Run { format, .. } = &mut events[0].kind {
                *format = of;
            }
            replay(&events)
        };
        assert!(replayed_as(FORMAT).is_ok());
        assert_eq!(replayed_as(OLDEST_FORMAT).is_ok(), is_same, "{places:?}");
        for unknown in [OLDEST_FORMAT - 1, FORMAT + 1] {
            let found = replayed_as(unknown).unwrap_err();
            assert!(matches!(found, ReplayError::Format { .. }), "{found}");
        }
    }
}

/// In format 3 an output of a schema had to be given by its function, also where the text of a reply was that output.
#[tokio::test]
async fn a_record_keeps_what_was_an_output_in_its_format() {
    let finish = Reply::of(Contract::Tools, &json!({"calls": [], "output": 42}));
    for (first, is_same) in [(finish, true), (Reply::text("42"), false)] {
        let script = Script::new([first]);
        let mut asked = request([plain_tools(&["echo"])]);
        asked.settings.contract = Contract::Tools;
        asked.output_schema = Some(json!({"type": "integer"}));
        let activities = Activities::default().with("echo", Echo::default().activity());
        let mut events = run(&driver(&script, activities), asked).await;
        assert_eq!(end(&events), ("output".into(), json!(42)));
        let mut replayed_as = |of: u32| {
            if let EventKind::Run { format, .. } = &mut events[0].kind {
                *format = of;
            }
            replay(&events)
        };
        assert!(replayed_as(FORMAT).is_ok());
        assert_eq!(replayed_as(OLDEST_FORMAT).is_ok(), is_same);
    }
}
