//! Section 6, nested calls: what a module reaches when it calls other tools, and what it sees of their data.

use super::support::{
    Echo, NoModules, Reply, Script, end, holds, json_of, lines, plain_tools, rest, results, run,
    tools,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use toolhold_agent::run::decider::Decider;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_policy::ErrorClass;
use toolhold_policy::pii::Kind;
use toolhold_policy::{CallClock, ClockPause, NestedCall, OwnedCaller};
use toolhold_protocol::context::Message;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::event::{Event, EventKind, NoJournal};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{Execution, Tool};
use uuid::Uuid;

const MAIL: &str = "ann@example.com";

/// Counts its pauses.
#[derive(Debug, Default)]
struct Paused(AtomicUsize);

struct Pause(Arc<Paused>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl CallClock for Paused {
    fn remaining(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn pause(self: Arc<Self>) -> ClockPause {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::new(Pause(self))
    }
}

/// One module, `m`: its tool `m.ask` calls the tool that it is told, and returns what comes of that. Another tool has
/// the name of an activity.
#[derive(Debug, Default)]
pub(super) struct Modules {
    clock: Arc<Paused>,
    /// True if `m.ask` says that it only reads.
    ask_only_reads: bool,
    /// What the tool was given, and what it got for its call.
    seen: Mutex<Vec<Value>>,
    /// The tools that were called, each with how many calls waited for it.
    pub(super) depths: Mutex<Vec<(String, u8)>>,
}

impl Modules {
    fn named(name: &str) -> Tool {
        Tool {
            parameters: json!({"type": "object"}),
            execution: Execution::Module(name.into()),
            ..Tool::new(name)
        }
    }

    async fn ask(&self, call: &ToolCall) -> Result<Value, ToolFailure> {
        let nested = call.nested.clone().expect("calls may be nested");
        let [tool, arguments] = ["tool", "arguments"].map(|key| call.arguments[key].clone());
        let nested = nested.call(NestedCall {
            parent: call.id.clone(),
            parent_tool: call.tool.clone(),
            tool: tool.as_str().unwrap().to_owned(),
            arguments: arguments.clone(),
            caller: OwnedCaller::default(),
            restrictions: None,
            begin: None,
            depth: call.depth + 1,
            clock: self.clock.clone(),
        });
        let came = match nested.await {
            Ok(output) => Ok(output.into_value()),
            Err(error) => Err(ToolFailure::correctable("nested", error.to_string())),
        };
        let got = came
            .clone()
            .unwrap_or_else(|failure| failure.message.into());
        self.seen.lock().unwrap().extend([arguments, got]);
        came
    }
}

impl ToolSource for Modules {
    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut ask = Self::named("m.ask");
        ask.annotations.read_only = self.ask_only_reads;
        vec![ask.into(), Self::named("taken").into()]
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move {
            let input = json!(
                {"type": "input", "schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
            );
            // With the tool of the module.
            let ask = json!({"type": "tool", "tool": {"ask": {
                "type": "object", "description": "Asks.",
                "properties": {"_module": {"const": "m.ask"}, "tool": {"type": "string"}, "arguments": {"type": "object"}},
            }}});
            let saved = match name {
                "summary" => json!({"context": [input]}),
                "helper" => json!({"context": [input, ask]}),
                "m.ask" => return Ok(ResolvedModule::Tool(Box::new(Self::named(name)))),
                _ => return NoModules.module(name).await,
            };
            Ok(ResolvedModule::Request(Box::new(SavedRequest::parse(
                &saved,
            )?)))
        })
    }
}

impl ToolRunner for Modules {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let called = (call.tool.clone(), call.depth);
            self.depths.lock().unwrap().push(called);
            let outcome = match call.tool.as_str() {
                "m.ask" => self.ask(call).await,
                _ => Ok(json!("by the module")),
            };
            match outcome {
                Ok(value) => ToolResult {
                    outcome: Ok(value.into()),
                    ..ToolResult::failed(ToolFailure::correctable("", ""))
                },
                Err(failure) => ToolResult::failed(failure),
            }
        })
    }
}

pub(super) fn asks(tool: &str, arguments: &Value) -> Reply {
    Reply::calls(&[json!({"_tool": "m.ask", "tool": tool, "arguments": arguments})])
}

pub(super) fn driver(
    script: &Arc<Script>,
    modules: &Arc<Modules>,
    activities: Activities,
) -> Driver {
    Driver {
        activities,
        ..Driver::new(script.clone(), modules.clone())
    }
}

fn request(context: impl IntoIterator<Item = Message>) -> RunRequest {
    let summary = json!([{"type": "tool", "tool": {"sum_up": {
        "type": "object", "description": "Sums up.",
        "properties": {"_module": {"const": "summary"}, "q": {"type": "string"}},
    }}}]);
    let summary = Message::parse_all(&summary).expect("a tool");
    super::support::request(context.into_iter().chain(summary))
}

/// The events of the call of the run's call.
fn within(events: &[Event]) -> Vec<Value> {
    let subs = events.iter().filter_map(|event| match &event.kind {
        EventKind::Sub { what, .. } => Some(serde_json::to_value(what).unwrap()),
        _ => None,
    });
    subs.collect()
}

#[tokio::test]
async fn a_module_reaches_the_activities_and_the_saved_requests_that_the_run_offers() {
    let script = Script::new([
        asks("echo", &json!({"of": 7})),
        asks("summary", &json!({"q": "why"})),
        Reply::output("summed up").counted(30, 4),
        asks("taken", &json!({"of": 7})),
        asks("sum_up", &json!({"q": "why"})),
        asks("hidden", &json!({"of": 7})),
        Reply::output("done"),
    ]);
    let (echo, modules) = (Echo::default(), Arc::<Modules>::default());
    let activities = ["echo", "taken", "hidden"]
        .into_iter()
        .fold(Activities::default(), |all, name| {
            all.with(name, echo.activity())
        });
    let driver = driver(&script, &modules, activities);
    let events = run(&driver, request([plain_tools(&["echo"])])).await;
    assert_eq!(end(&events).1, json!("done"), "{}", lines(&events));
    let results: Vec<Value> = results(&events).into_iter().map(|(_, it)| it).collect();
    assert_eq!(results[0], json!({"output": 7}));
    assert_eq!(results[1], json!({"output": "summed up"}));
    // A module's tool goes before an activity of the same name.
    assert_eq!(results[2], json!({"output": "by the module"}));
    // The context chooses names freely, and offers what it offers.
    for (at, name) in [(3, "sum_up"), (4, "hidden")] {
        let message = results[at]["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("there is no tool named \"{name}\"")),
            "{message}"
        );
        assert!(
            message.contains("there are m.ask, taken, echo, summary"),
            "{message}"
        );
    }
    assert_eq!(echo.count(), 1);
    // The run of the Request is the nested call's, and its tokens are those of the run's call.
    let request = events.iter().map(json_of).find(|event| {
        event["event"] == "sub"
            && event["what"]["event"] == "sub"
            && event["what"]["what"]["event"] == "run"
    });
    let request = request.unwrap_or_else(|| panic!("{}", lines(&events)));
    let (call, nested) = (request["call"].as_str(), request["what"]["call"].as_str());
    assert_eq!(nested.map(|id| id.rsplit_once('.').unwrap().0), call);
    let took = events
        .iter()
        .map(json_of)
        .filter(|it| it["event"] == "tool_result")
        .nth(1)
        .unwrap();
    assert_eq!(took["usage"]["calls"], 1, "{took}");
    assert_eq!(took["usage"]["tokens"], 34, "{took}");
}

/// A call that only reads, and one that writes by way of another: what they change, the run's other calls may see.
#[tokio::test]
async fn a_nested_call_that_may_write_begins_the_counts_of_all_calls_anew() {
    let look = || Reply::calls(&[json!({"_tool": "look", "of": 1})]);
    for (nested, made) in [("write", 3), ("look_too", 2)] {
        let script = Script::new([
            look(),
            look(),
            asks(nested, &json!({"of": 7})),
            look(),
            Reply::output("done"),
        ]);
        let (echo, modules) = (
            Echo::default(),
            Modules {
                ask_only_reads: true,
                ..Modules::default()
            },
        );
        let other = |_: Value| async { Ok(json!("by the other")) };
        let activities = Activities::default()
            .with("look", echo.activity())
            .with("look_too", other)
            .with("write", other);
        let reads = json!({"readOnly": true});
        let offered = tools(&[
            ("look", reads.clone()),
            ("look_too", reads),
            ("write", json!({})),
        ]);
        let driver = driver(&script, &Arc::new(modules), activities);
        let events = run(&driver, request([offered])).await;
        assert_eq!(echo.count(), made, "{nested}: {}", lines(&events));
        holds(&events);
    }
}

#[tokio::test]
async fn each_tool_of_a_nested_call_sees_what_it_may_see() {
    // Who gets the data, what the module gets, and what the called tool gets.
    for (reveal, module, tool) in [
        (&["m", "echo", "lookup"][..], MAIL, MAIL),
        (&["m"], MAIL, "<email_1>"),
        (&["echo", "lookup"], "<email_1>", MAIL),
        (&[], "<email_1>", "<email_1>"),
    ] {
        let script = Script::new([
            asks("echo", &json!({"of": "to <email_1>"})),
            asks("lookup", &json!({"of": "x"})),
            Reply::output("done"),
        ]);
        let (echo, modules) = (Echo::default(), Arc::<Modules>::default());
        let lookup = |_| async { Ok(json!("bob@b.org")) };
        let activities = Activities::default()
            .with("echo", echo.activity())
            .with("lookup", lookup);
        let driver = driver(&script, &modules, activities);
        let mut request = request([
            Message::user(format!("write to {MAIL}")),
            plain_tools(&["echo", "lookup"]),
        ]);
        request.settings.privacy = Privacy {
            hide: Kind::ALL.iter().copied().collect(),
            reveal: reveal.iter().map(|name| (*name).to_owned()).collect(),
            ..Privacy::default()
        };
        let events = run(&driver, request).await;
        assert_eq!(
            *echo.made.lock().unwrap(),
            [json!({"of": format!("to {tool}")})],
            "{reveal:?}"
        );
        let seen = modules.seen.lock().unwrap().clone();
        assert_eq!(seen[0], json!({"of": format!("to {module}")}), "{reveal:?}");
        assert_eq!(seen[1], json!(format!("to {module}")), "{reveal:?}");
        // What the called tool found out itself is hidden from the module likewise.
        let found = if module == MAIL {
            "bob@b.org"
        } else {
            "<email_1>"
        };
        assert_eq!(seen[3], json!(found), "{reveal:?}");
        // The run has the data, whatever the tools were given.
        let results: Vec<Value> = results(&events).into_iter().map(|(_, it)| it).collect();
        assert_eq!(
            results[0],
            json!({"output": format!("to {MAIL}")}),
            "{reveal:?}"
        );
        assert_eq!(results[1], json!({"output": "bob@b.org"}), "{reveal:?}");
    }
}

#[tokio::test]
async fn arguments_of_a_nested_call_are_repaired_like_those_of_any_call() {
    for repair in [true, false] {
        let script = Script::new([
            asks("echo", &json!({"of": 1, "n": "5"})),
            Reply::output("done"),
        ]);
        let (echo, modules) = (Echo::default(), Arc::<Modules>::default());
        let driver = driver(
            &script,
            &modules,
            Activities::default().with("echo", echo.activity()),
        );
        let mut request = request([plain_tools(&["echo"])]);
        request.settings.repair = repair;
        let events = run(&driver, request).await;
        let kinds: Vec<Value> = within(&events)
            .iter()
            .map(|what| what["event"].clone())
            .collect();
        if repair {
            assert_eq!(*echo.made.lock().unwrap(), [json!({"of": 1, "n": 5})]);
            assert_eq!(kinds, ["repaired", "tool_start", "tool_result"]);
        } else {
            assert_eq!(echo.count(), 0);
            // One that is refused never began: its arguments are told with its end.
            assert_eq!(kinds, ["plan", "tool_result"]);
            let told = &within(&events)[0]["calls"][0];
            assert_eq!(told["arguments"], json!({"of": 1, "n": "5"}));
            assert_eq!(told["id"], within(&events)[1]["id"]);
            let message = results(&events)[0].1["error"]["message"].to_string();
            assert!(message.contains("do not fit"), "{message}");
        }
    }
}

/// Notes whether the caller's clock stands still while it is asked.
#[derive(Debug)]
struct Watching {
    clock: Arc<Paused>,
    paused: Mutex<Vec<usize>>,
}

impl Decider for Watching {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            self.paused
                .lock()
                .unwrap()
                .push(self.clock.0.load(Ordering::SeqCst));
            Decision {
                digest: pending.digest.clone(),
                verdict: Verdict::Approve,
                by: None,
            }
        })
    }
}

#[tokio::test]
async fn the_clock_of_a_caller_stands_still_while_a_person_is_asked_and_not_while_the_tool_runs() {
    let script = Script::new([asks("echo", &json!({"of": 1})), Reply::output("done")]);
    let modules = Arc::<Modules>::default();
    let decider = Arc::new(Watching {
        clock: modules.clock.clone(),
        paused: Mutex::default(),
    });
    let (clock, running) = (modules.clock.clone(), Arc::<Mutex<Vec<usize>>>::default());
    let told = running.clone();
    let activity = move |_| {
        told.lock().unwrap().push(clock.0.load(Ordering::SeqCst));
        async { Ok(Value::Null) }
    };
    let driver = Driver {
        decider: decider.clone(),
        ..driver(
            &script,
            &modules,
            Activities::default().with("echo", activity),
        )
    };
    let mut request = request([plain_tools(&["echo"])]);
    request.settings.decisions =
        serde_json::from_value(json!({"tools": {"echo": "always"}})).unwrap();
    let events = run(&driver, request).await;
    assert_eq!(end(&events).1, json!("done"), "{}", lines(&events));
    assert_eq!(*decider.paused.lock().unwrap(), [1]);
    assert_eq!(*running.lock().unwrap(), [0]);
}

/// A tool that says that it only reads, calls what it is told, and then fails for now.
#[derive(Debug, Default)]
struct FailsAfter(Modules);

impl ToolSource for FailsAfter {
    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut tool = Modules::named("m.ask");
        tool.annotations.read_only = true;
        vec![tool.into()]
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        self.0.module(name)
    }
}

impl ToolRunner for FailsAfter {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            self.0.ask(call).await.expect("the call is made");
            ToolResult::failed(ToolFailure {
                kind: "overload".into(),
                class: ErrorClass::Retryable,
                message: "not now".into(),
            })
        })
    }
}

/// A tool that says that it only reads, calls what it is told, and then hangs the first time.
#[derive(Debug, Default)]
struct HangsOnce {
    modules: Modules,
    has_hung: AtomicBool,
    called: Notify,
}

impl ToolSource for HangsOnce {
    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut tool = Modules::named("m.ask");
        tool.annotations.read_only = true;
        vec![tool.into()]
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        self.modules.module(name)
    }
}

impl ToolRunner for HangsOnce {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let came = self.modules.ask(call).await.expect("the call is made");
            if !self.has_hung.swap(true, Ordering::SeqCst) {
                self.called.notify_one();
                std::future::pending::<()>().await;
            }
            ToolResult {
                outcome: Ok(came.into()),
                ..ToolResult::failed(ToolFailure::correctable("", ""))
            }
        })
    }
}

/// The same where the process ended meanwhile.
#[tokio::test]
async fn a_call_that_called_what_may_not_be_repeated_is_not_made_again_by_a_resumed_run() {
    for (annotations, times, outcome) in [
        (json!({}), 1, "error"),
        (json!({"idempotent": true}), 2, "output"),
    ] {
        let script = Script::new([asks("echo", &json!({"of": 1})), Reply::output("went on")]);
        let (echo, toolbox) = (Echo::default(), Arc::<HangsOnce>::default());
        let driver = Driver {
            activities: Activities::default().with("echo", echo.activity()),
            ..Driver::new(script, toolbox.clone())
        };
        let request = super::support::request([tools(&[("echo", annotations)])]);
        let mut run = driver.start(request, Box::new(NoJournal)).await.unwrap();
        toolbox.called.notified().await;
        let is_in_nested = |event: &Event| match &event.kind {
            EventKind::Sub { what, .. } => matches!(**what, EventKind::ToolResult { .. }),
            _ => false,
        };
        let mut events: Vec<Event> = Vec::new();
        while !events.iter().any(is_in_nested) {
            events.push(run.events.recv().await.unwrap());
        }
        drop(run);
        let resumed = driver.resume(replay(&events).unwrap(), Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(echo.count(), times, "{}", lines(&events));
        assert!(results(&events)[0].1.get(outcome).is_some());
        assert_eq!(end(&events).1, "went on");
    }
}

/// What a call did by way of another one is done, whatever its tool says of itself.
#[tokio::test]
async fn a_call_that_called_what_may_not_be_repeated_is_not_tried_again() {
    for (annotations, expect) in [(json!({}), 1), (json!({"idempotent": true}), 3)] {
        let script = Script::new([asks("echo", &json!({"of": 1})), Reply::output("went on")]);
        let echo = Echo::default();
        let driver = Driver {
            activities: Activities::default().with("echo", echo.activity()),
            ..Driver::new(script, Arc::new(FailsAfter::default()))
        };
        let mut request = super::support::request([tools(&[("echo", annotations)])]);
        request.settings.tool_retry.backoff = Duration::from_millis(20);
        let events = run(&driver, request).await;
        assert_eq!(echo.count(), expect);
        // The calls of all attempts are in the record, each with an id of its own.
        let mut ids: Vec<String> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Sub { what, .. } => match &**what {
                    EventKind::ToolStart { call, .. } => Some(call.id.clone()),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        ids.dedup();
        assert_eq!(ids.len(), expect, "{}", lines(&events));
    }
}

/// Further attempts of a call that a module makes are events of that call, and each counts once.
#[tokio::test]
async fn attempts_of_a_nested_call_count_once() {
    for (most, outcome) in [(4, "output"), (3, "error")] {
        let script = Script::new([asks("echo", &json!({"of": 1})), Reply::output("went on")]);
        let failures = Arc::new(AtomicUsize::new(2));
        let flaky = move |arguments: Value| {
            let left = failures.clone();
            async move {
                let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                });
                match fails {
                    Err(_) => Ok(arguments["of"].clone()),
                    Ok(_) => Err(ToolFailure {
                        kind: "overload".into(),
                        class: ErrorClass::Retryable,
                        message: "not now".into(),
                    }),
                }
            }
        };
        let activities = Activities::default().with("echo", flaky);
        let driver = driver(&script, &Arc::default(), activities);
        let mut request = request([tools(&[("echo", json!({"readOnly": true}))])]);
        request.settings.tool_retry.backoff = Duration::from_millis(20);
        request.settings.max_tool_calls = Some(most);
        let events = run(&driver, request).await;
        assert!(
            results(&events)[0].1.get(outcome).is_some(),
            "{}",
            lines(&events)
        );
        let retries = within(&events);
        let retries = retries.iter().filter(|what| what["event"] == "tool_retry");
        assert_eq!(retries.count(), most as usize - 2);
        // Besides the run's own call.
        let mut ended = events.iter().map(json_of);
        let took = ended.rfind(|it| it["event"] == "tool_result").unwrap();
        assert_eq!(took["usage"]["calls"], most - 1, "{took}");
    }
}

/// Refuses everything, as a host does where there is no person.
#[derive(Debug)]
struct Nobody;

impl Decider for Nobody {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        let digest = pending.digest.clone();
        let verdict = Verdict::Refuse {
            reason: "there is nobody".into(),
        };
        let by = None;
        Box::pin(std::future::ready(Decision {
            digest,
            verdict,
            by,
        }))
    }
}

/// Its tool makes calls with long arguments until it can make no more, and says how many it made.
#[derive(Debug)]
struct AsksOften {
    bytes: usize,
    most: usize,
    clock: Arc<Paused>,
}

impl ToolSource for AsksOften {
    fn tools(&self) -> Vec<Arc<Tool>> {
        vec![Modules::named("m.often").into()]
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        NoModules.module(name)
    }
}

impl ToolRunner for AsksOften {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let mut made = 0;
            while made < self.most {
                let nested = call.nested.clone().expect("calls may be nested");
                let came = nested.call(NestedCall {
                    parent: call.id.clone(),
                    parent_tool: call.tool.clone(),
                    tool: "echo".into(),
                    arguments: json!({"of": "x".repeat(self.bytes)}),
                    caller: OwnedCaller::default(),
                    restrictions: None,
                    begin: None,
                    depth: call.depth + 1,
                    clock: self.clock.clone(),
                });
                let refusal = came.await.expect_err("nobody lets it be made").to_string();
                if refusal.contains("it can make no more") {
                    break;
                }
                assert!(refusal.contains("there is nobody"), "{refusal}");
                made += 1;
            }
            ToolResult {
                outcome: Ok(json!(made).into()),
                ..ToolResult::failed(ToolFailure::correctable("", ""))
            }
        })
    }
}

/// A person decides about the whole arguments, so the record has them once, and what a call may have refused is bounded:
/// it takes nothing of the budget of calls.
#[tokio::test]
async fn what_the_record_has_of_refused_nested_calls_is_bounded() {
    for (bytes, most, expect) in [(100_000, 3, 3), (2 << 20, 1_000, 8)] {
        let script = Script::new([
            Reply::calls(&[json!({"_tool": "m.often"})]),
            Reply::output("done"),
        ]);
        let clock = Arc::default();
        let toolbox = Arc::new(AsksOften { bytes, most, clock });
        let echo = Echo::default();
        let driver = Driver {
            activities: Activities::default().with("echo", echo.activity()),
            decider: Arc::new(Nobody),
            ..Driver::new(script.clone(), toolbox)
        };
        let mut request = super::support::request([plain_tools(&["echo"])]);
        request.settings.decisions =
            serde_json::from_value(json!({"tools": {"echo": "always"}})).unwrap();
        let events = run(&driver, request).await;
        assert_eq!(results(&events)[0].1, json!({"output": expect}));
        assert_eq!(echo.count(), 0);
        let within = within(&events);
        let asked: Vec<&Value> = within
            .iter()
            .filter(|it| it["event"] == "approval")
            .collect();
        assert_eq!(asked.len(), expect);
        for question in asked {
            let pending = &question["pending"];
            let whole = pending["arguments"]["of"].as_str().unwrap();
            assert_eq!(whole.len(), bytes, "what a person decides about");
            let beside = pending["call"]["arguments"].as_str().unwrap();
            assert!(beside.len() < 17_000 && beside.ends_with(" more bytes)"));
        }
        let size = within.iter().map(|it| it.to_string().len()).sum::<usize>();
        assert!(size < expect * (bytes + 50_000), "{size}");
    }
}
