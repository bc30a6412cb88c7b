//! Sections 5 and 7.3: which call of a step runs when.

use super::support::{
    Echo, Reply, Script, driver, end, place, plain_tools, request, results, run, some_data, starts,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use toolhold_agent::{Activities, Activity, ToolCall};
use toolhold_policy::ErrorClass;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::{ToolResult, ToolUsage};

#[tokio::test]
async fn never_more_calls_run_than_may() {
    for most in [1, 3, 20] {
        let calls: Vec<Value> = (0..9).map(|n| json!({"_tool": "echo", "of": n})).collect();
        let script = Script::new([Reply::calls(&calls), Reply::output("done")]);
        let echo = Echo::taking(30);
        let activities = Activities::default().with("echo", echo.activity());
        let mut request = request([plain_tools(&["echo"])]);
        request.settings.parallel_calls = most;
        let events = run(&driver(&script, activities), request).await;
        assert_eq!((echo.most(), echo.count()), (most.min(9), 9));
        // What has started runs: `tool_start` is not said of calls that wait for room.
        let mut running = 0_usize;
        for event in &events {
            match event.kind {
                EventKind::ToolStart { .. } => running += 1,
                EventKind::ToolResult { .. } => running -= 1,
                _ => {}
            }
            assert!(running <= most);
        }
    }
}

#[tokio::test]
async fn a_call_waits_for_what_it_reads_and_the_others_do_not() {
    let script = Script::new([
        Reply::calls(&[
            json!({"_tool": "slow", "of": 1, "_outputPath": "†state.a"}),
            json!({"_tool": "quick", "of": "†state.a", "_outputPath": "†state.b"}),
            json!({"_tool": "quick", "of": "free"}),
            json!({"_tool": "quick", "of": "†state.a && †state.b"}),
        ]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("slow", Echo::taking(100).activity())
        .with("quick", Echo::default().activity());
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["slow", "quick"])]),
    )
    .await;
    let outputs: Vec<_> = results(&events)
        .into_iter()
        .map(|(_, outcome)| outcome["output"].clone())
        .collect();
    assert_eq!(outputs, [json!("free"), json!(1), json!(1), json!(1)]);
    let waits = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::ToolWaits { .. }))
        .count();
    assert_eq!(waits, 2);
}

/// A reader of a place waits for all earlier writers of it, and reads the value of the last of them.
#[tokio::test]
async fn the_last_write_wins() {
    let script = Script::new([
        Reply::calls(&[
            json!({"_tool": "slow", "of": "slow", "_outputPath": "†state.x"}),
            json!({"_tool": "quick", "of": "quick", "_outputPath": "†state.x"}),
            json!({"_tool": "quick", "of": "†state.x"}),
        ]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("slow", Echo::taking(100).activity())
        .with("quick", Echo::default().activity());
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["slow", "quick"])]),
    )
    .await;
    assert_eq!(results(&events)[2].1["output"], "quick");
}

/// Whatever takes how long: no call reads what a later call writes, what is pushed has the order of the reply, and of
/// two values the last one stays.
#[tokio::test]
async fn statement_042_13_calls_have_the_effect_of_their_order() {
    let state = toolhold_protocol::context::Message::parse_all(&json!([
        {"type": "state", "state": {"set": "old", "log": []}},
        {"type": "tool", "tool": {
            "slow": {"type": "object", "properties": {"of": {}}},
            "quick": {"type": "object", "properties": {"of": {}}},
        }},
    ]));
    let push = |tool: &str, of: &str| json!({"_tool": tool, "of": of, "_outputPath": "†state.log", "_outputMethod": "push"});
    let script = Script::new([
        Reply::calls(&[
            json!({"_tool": "slow", "of": "slow", "_outputPath": "†state.gate"}),
            // It is made after the slow call, and then the last of these would be over.
            json!({"_tool": "quick", "of": ["†state.set", "†state.gate"], "_outputPath": "†state.read"}),
            json!({"_tool": "slow", "of": "first", "_outputPath": "†state.set"}),
            json!({"_tool": "quick", "of": "second", "_outputPath": "†state.set"}),
            push("slow", "one"),
            push("quick", "two"),
            push("quick", "three"),
        ]),
        Reply::calls(&[json!({"_tool": "quick", "of": "†state"})]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("slow", Echo::taking(50).activity())
        .with("quick", Echo::default().activity());
    let mut request = request(state.unwrap());
    request.settings.parallel_calls = 8;
    let events = run(&driver(&script, activities), request).await;
    let results = results(&events);
    let (_, last) = results.last().unwrap();
    assert_eq!(last["output"]["read"], json!(["old", "slow"]));
    assert_eq!(last["output"]["set"], "second");
    assert_eq!(last["output"]["log"], json!(["one", "two", "three"]));
}

fn fails(_: Value) -> std::future::Ready<Result<Value, ToolFailure>> {
    std::future::ready(Err(ToolFailure {
        kind: "broken".into(),
        class: ErrorClass::Retryable,
        message: "no".into(),
    }))
}

/// The failure of each call that cannot run, by the calls of the step.
#[tokio::test]
async fn calls_that_stay_blocked_say_what_is_missing_and_why() {
    for (calls, expected) in [
        (
            vec![json!({"_tool": "echo", "of": "†state.none"})],
            vec!["†state.none"],
        ),
        (
            vec![
                json!({"_tool": "fails", "_outputPath": "†state.a"}),
                json!({"_tool": "echo", "of": "†state.a"}),
            ],
            vec!["(fails) should have written †state.a and did not"],
        ),
        (
            // The last one's writer never ran itself.
            vec![
                json!({"_tool": "fails", "_outputPath": "†state.a"}),
                json!({"_tool": "echo", "of": "†state.a", "_outputPath": "†state.b"}),
                json!({"_tool": "echo", "of": "†state.b", "_outputPath": "†state.c"}),
            ],
            vec![
                "(fails) should have written †state.a and did not",
                "(echo) should have written †state.b and did not",
            ],
        ),
        (
            // Written by a later call, which is blocked as well.
            vec![
                json!({"_tool": "echo", "of": "†state.b"}),
                json!({"_tool": "echo", "of": "†state.none", "_outputPath": "†state.b"}),
            ],
            vec![
                "†state.none",
                "(echo) should have written †state.b and did not",
            ],
        ),
        (
            vec![
                json!({"_tool": "echo", "of": "†state.y", "_outputPath": "†state.x"}),
                json!({"_tool": "echo", "of": "†state.x", "_outputPath": "†state.y"}),
                json!({"_tool": "echo", "of": "†state.x"}),
            ],
            vec![
                "in a circle",
                "→ †state.x →",
                "should have written †state.x and did not",
            ],
        ),
    ] {
        let script = Script::new([Reply::calls(&calls), Reply::output("done")]);
        let activities = Activities::default()
            .with("echo", Echo::default().activity())
            .with("fails", fails);
        let context = [some_data(), plain_tools(&["echo", "fails"])];
        let events = run(&driver(&script, activities), request(context)).await;
        assert_eq!(results(&events).len(), calls.len(), "each is answered once");
        assert!(!starts(&events).contains(&"echo".into()), "{calls:?}");
        for part in expected {
            assert!(script.told(1).contains(part), "{part}: {}", script.told(1));
        }
        assert_eq!(end(&events).1, "done");
    }
}

/// A value from before is not taken for the one that is about to be written, nor for one that failed.
#[tokio::test]
async fn an_older_value_is_not_read_in_place_of_one_that_failed() {
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "echo", "of": "old", "_outputPath": "†state.a"})]),
        Reply::calls(&[
            json!({"_tool": "fails", "_outputPath": "†state.a"}),
            json!({"_tool": "echo", "of": "†state.a"}),
        ]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("echo", Echo::default().activity())
        .with("fails", fails);
    let context = [plain_tools(&["echo", "fails"])];
    let events = run(&driver(&script, activities), request(context)).await;
    assert_eq!(results(&events)[2].1["error"]["kind"], "blocked");
    assert!(
        script
            .told(2)
            .contains("(fails) should have written †state.a")
    );
}

/// Of `†a || †b` the last is where a failure goes, also that of a call that could not run.
#[tokio::test]
async fn a_failure_with_a_place_of_its_own_can_be_read() {
    let script = Script::new([
        Reply::calls(&[
            json!({"_tool": "echo", "of": "†state.none", "_outputPath": "†state.ok || †state.failed"}),
            json!({"_tool": "echo", "of": "†state.failed"}),
        ]),
        Reply::output("done"),
    ]);
    let activities = Activities::default().with("echo", Echo::default().activity());
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["echo"])]),
    )
    .await;
    let results = results(&events);
    assert_eq!(results[1].1["output"]["error"], "blocked", "{results:?}");
}

/// A call that is shown a part of the context sees what the calls before it write there.
#[tokio::test]
async fn scopes_wait_for_the_writers_before_them() {
    let context = toolhold_protocol::context::Message::parse_all(&json!([
        {"type": "state", "state": {"a": 0}},
        {"type": "tool", "tool": {
            "slow": {"type": "object", "properties": {"of": {}}},
            "sees": {"type": "object", "properties": {"_scopes": {"const": ["state.a"]}}},
        }},
    ]));
    let script = Script::new([
        Reply::calls(&[
            json!({"_tool": "slow", "of": 1, "_outputPath": "†state.a"}),
            json!({"_tool": "sees"}),
        ]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("slow", Echo::taking(50).activity())
        .with("sees", Echo::default().activity());
    let events = run(&driver(&script, activities), request(context.unwrap())).await;
    let written = place(
        &events,
        |kind| matches!(kind, EventKind::ToolResult { tool, .. } if tool == "slow"),
    );
    let seen = place(
        &events,
        |kind| matches!(kind, EventKind::ToolStart { call, .. } if call.tool == "sees"),
    );
    assert!(written < seen);
}

/// What a scope names and what a call writes need not be the same place: the one may lie in the other.
#[tokio::test]
async fn a_scope_sees_what_calls_before_it_write_above_and_below_it() {
    for (scope, writes, seen) in [
        ("state", "†state.a", json!({"†state": {"a": 1}})),
        ("state.a", "†state", json!({"†state.a": 1})),
        ("state.a.b", "†state.a", json!({"†state.a.b": 1})),
        ("state.a", "†state.a.b", json!({"†state.a": {"b": 1}})),
        ("state.a[0]", "†state.a", json!({"†state.a[0]": 1})),
        ("state", "†other.a && †state.a", json!({"†state": {"a": 1}})),
        (
            "state",
            "†state.a || †state.failed",
            json!({"†state": {"a": 1}}),
        ),
    ] {
        let value = match (scope, writes) {
            ("state.a", "†state") => json!({"a": 1}),
            ("state.a.b", _) => json!({"b": 1}),
            ("state.a[0]", _) => json!([1]),
            _ => json!(1),
        };
        for asks in [false, true] {
            let scopes = if asks {
                json!({"type": "array", "items": {"enum": [scope]}})
            } else {
                json!({"const": [scope]})
            };
            let context = toolhold_protocol::context::Message::parse_all(&json!([
                {"type": "tool", "tool": {
                    "slow": {"type": "object", "properties": {"of": {}}},
                    "sees": {"type": "object", "properties": {"_scopes": scopes}},
                }},
            ]));
            let mut sees = json!({"_tool": "sees"});
            if asks {
                sees["_scopes"] = json!([scope]);
            }
            let script = Script::new([
                Reply::calls(&[
                    json!({"_tool": "slow", "of": value, "_outputPath": writes}),
                    sees,
                ]),
                Reply::output("done"),
            ]);
            let activities = Activities::default()
                .with("slow", Echo::taking(30).activity())
                .with("sees", Sees);
            let events = run(&driver(&script, activities), request(context.unwrap())).await;
            assert_eq!(
                results(&events)[1].1["output"],
                seen,
                "{scope} {writes} {asks}"
            );
        }
    }
}

/// Gives back the context that it is shown.
#[derive(Debug)]
struct Sees;

impl Activity for Sees {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let context = call.context.iter();
        let seen: serde_json::Map<String, Value> = context
            .map(|(path, value)| (path.to_string(), value.clone()))
            .collect();
        Box::pin(std::future::ready(ToolResult {
            outcome: Ok(Value::from(seen).into()),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
        }))
    }
}

/// An advisor that is asked looks at what the calls before the question wrote (10).
#[tokio::test]
async fn an_advisor_is_asked_after_what_it_should_look_at_was_written() {
    for scope in ["state", "state.draft", "state.draft.text"] {
        let context = toolhold_protocol::context::Message::parse_all(&json!([
            {"type": "advisor", "id": "critic", "role": "Looks for mistakes.", "on": null, "scopes": [scope],
             "schema": {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}},
            {"type": "state", "state": {"draft": {"text": "the old one"}}},
            {"type": "tool", "tool": {"slow": {"type": "object", "properties": {"of": {}}}}},
        ]));
        let script = Script::new([
            Reply::calls(&[
                json!({"_tool": "slow", "of": {"text": "the new one"}, "_outputPath": "†state.draft"}),
                json!({"_tool": "ConsultAdvisor", "id": "critic", "question": "Is it good?"}),
            ]),
            Reply::text(r#"{"calls": [], "output": {"verdict": "Yes."}}"#),
            Reply::output("done"),
        ]);
        let activities = Activities::default().with("slow", Echo::taking(30).activity());
        let events = run(&driver(&script, activities), request(context.unwrap())).await;
        assert_eq!(end(&events).0, "output");
        let asked = script.told(1);
        assert!(
            asked.contains("the new one") && !asked.contains("the old one"),
            "{scope}: {asked}"
        );
    }
}

/// A latent call was answered when it was written: it waits for what its scopes name, and needs none of
/// it.
#[tokio::test]
async fn a_latent_call_needs_nothing_of_what_its_scopes_name() {
    for writer in ["slow", "fails"] {
        let context = toolhold_protocol::context::Message::parse_all(&json!([
            {"type": "tool", "tool": {
                "slow": {"type": "object", "properties": {"of": {}}},
                "fails": {"type": "object", "properties": {"of": {}}},
                "think": {"type": "object", "properties": {"_scopes": {"const": ["state", "nothing"]}}},
            }},
        ]));
        let script = Script::new([
            Reply::calls(&[
                json!({"_tool": writer, "_outputPath": "†state.a.b"}),
                json!({"_tool": "think", "_output": "hm"}),
            ]),
            Reply::output("done"),
        ]);
        let activities = Activities::default()
            .with("slow", Echo::taking(30).activity())
            .with("fails", fails);
        let events = run(&driver(&script, activities), request(context.unwrap())).await;
        assert_eq!(results(&events)[1].1["output"], "hm", "{writer}");
    }
}

/// Twenty layers of ten, each call reading two of the layer before: ten at a time, and no more time
/// than twenty of them one after the other take.
#[tokio::test]
async fn a_plan_of_two_hundred_calls_runs_layer_by_layer() {
    let plan: Vec<Value> = (0..200)
        .map(|n| {
            let (layer, at) = (n / 10, n % 10);
            let place = |layer: usize, at: usize| format!("†state.l{layer}.c{}", at % 10);
            let mut call = json!({"_tool": "echo", "of": n, "_outputPath": place(layer, at)});
            if layer > 0 {
                call["of"] = place(layer - 1, at).into();
                call["and"] = place(layer - 1, at + 1).into();
            }
            call
        })
        .collect();
    let echo = Echo::taking(20);
    let activities = Activities::default().with("echo", echo.activity());
    let mut request = request([plain_tools(&["echo"])]);
    request.plan = Some(plan);
    request.settings.parallel_calls = 10;
    let events = run(&driver(&Script::new([]), activities), request).await;
    assert_eq!((echo.count(), echo.most()), (200, 10));
    assert_eq!(end(&events).0, "output");
}

/// A result that does not fit where it should go is written nowhere, and is a failure like any other.
#[tokio::test]
async fn a_result_that_cannot_be_written_is_a_failure() {
    for (path, written) in [
        ("†state.free && †state.list.name", json!({"list": [1]})),
        (
            "†state.list.name || †state.failed",
            json!({"list": [1], "failed": {"error": "write"}}),
        ),
    ] {
        let script = Script::new([
            Reply::calls(&[json!({"_tool": "echo", "of": [1], "_outputPath": "†state.list"})]),
            Reply::calls(&[json!({"_tool": "echo", "of": 2, "_outputPath": path})]),
            Reply::calls(&[json!({"_tool": "echo", "of": "†state"})]),
            Reply::output("done"),
        ]);
        let activities = Activities::default().with("echo", Echo::default().activity());
        let events = run(
            &driver(&script, activities),
            request([plain_tools(&["echo"])]),
        )
        .await;
        let results = results(&events);
        assert_eq!(results[1].1["error"]["kind"], "write", "{path}");
        let mut state = results[2].1["output"].clone();
        if let Some(failed) = state.get_mut("failed").and_then(Value::as_object_mut) {
            failed.shift_remove("message");
        }
        assert_eq!(state, written, "{path}");
    }
}
