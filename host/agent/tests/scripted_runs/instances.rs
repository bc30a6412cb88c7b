//! docs/protocol.md, 9: instances.

use super::support::told::{FinishedRun, request, run, run_with};
use super::support::{calls, output};
use proptest::prelude::*;
use serde_json::{Value, json};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::StopReason;
use toolhold_protocol::settings::RunRequest;

fn input(instance: Option<&str>, value: Value) -> Value {
    let mut message = json!({"type": "input", "input": value, "schema": {}});
    if let Some(instance) = instance {
        message["_instance"] = instance.into();
    }
    message
}

/// Global input `{lang, text}`, and two instances of which one has a text of its own.
fn two() -> Value {
    json!([
        input(None, json!({"lang": "en", "text": "for all"})),
        input(Some("a"), json!({"text": "for a"})),
        {"type": "state", "state": {"seen": 1}, "_instance": "b"},
    ])
}

fn say(instance: Option<&str>, value: impl Into<Value>) -> Value {
    let mut call = json!({"_tool": "echo.say", "value": value.into()});
    if let Some(instance) = instance {
        call["_instance"] = instance.into();
    }
    call
}

fn to(mut call: Value, place: &str) -> Value {
    call["_outputPath"] = place.into();
    call
}

/// Value and instance of every call that was made.
fn said(told: &FinishedRun) -> Vec<(Option<&str>, Value)> {
    let calls = told.calls.iter();
    calls
        .map(|call| (call.instance.as_deref(), call.arguments["value"].clone()))
        .collect()
}

#[tokio::test]
async fn a_targeted_input_overrides_a_global_one() {
    let references = ["†input.text", "†input.lang", "†input"];
    for (instance, expect) in [
        (
            Some("a"),
            json!(["for a", "en", {"lang": "en", "text": "for a"}]),
        ),
        (
            Some("b"),
            json!(["for all", "en", {"lang": "en", "text": "for all"}]),
        ),
        (
            None,
            json!(["for all", "en", {"lang": "en", "text": "for all"}]),
        ),
    ] {
        let told = run(
            request(Contract::Schema, two()),
            [
                calls(
                    references
                        .iter()
                        .map(|one| say(instance, *one))
                        .collect::<Vec<_>>(),
                ),
                output("done"),
            ],
        )
        .await;
        let values: Vec<Value> = said(&told).into_iter().map(|(_, value)| value).collect();
        assert_eq!(json!(values), expect, "{instance:?}");
    }
}

#[tokio::test]
async fn writes_stay_inside_and_what_has_no_instance_is_everybodys() {
    let told = run(
        request(Contract::Schema, two()),
        [
            calls(json!([
                to(say(Some("a"), "of a"), "†state.own"),
                to(say(None, "of all"), "†state.shared"),
                say(Some("a"), "†state.own"),
                say(Some("a"), "†state.shared"),
                say(Some("b"), "†state.shared"),
                say(Some("b"), "†state.own"),
                say(None, "†state.own"),
            ])),
            output("done"),
        ],
    )
    .await;
    let read: Vec<_> = said(&told).into_iter().skip(2).collect();
    assert_eq!(
        read,
        [
            (Some("a"), json!("of a")),
            (Some("a"), json!("of all")),
            (Some("b"), json!("of all"))
        ]
    );
    let results = told.results();
    let blocked = results
        .iter()
        .filter(|(_, outcome)| *outcome == Err("blocked".into()));
    assert_eq!(blocked.count(), 2, "{results:?}");
    let asked = told.asked(1);
    // A failed call without an instance says so, and no failure shows another instance's data.
    assert_eq!(
        asked
            .matches("Without _instance a call reads and writes only")
            .count(),
        1,
        "{asked}"
    );
    assert!(
        asked.contains("## Data: ¶state (instance a)\n{\"own\":\"of a\"}"),
        "{asked}"
    );
    assert!(
        asked.contains("## Data: ¶state\n{\"shared\":\"of all\"}"),
        "{asked}"
    );
}

#[tokio::test]
async fn a_call_waits_for_writers_of_its_own_instance_and_of_all_and_for_no_other() {
    let told = run(
        request(Contract::Schema, two()),
        [
            calls(json!([
                say(Some("a"), "†state.late"),
                to(say(Some("b"), "b's"), "†state.late"),
                to(say(Some("a"), "a's"), "†state.late"),
                say(Some("b"), "†state.global"),
                to(say(None, "all's"), "†state.global"),
            ])),
            output("done"),
        ],
    )
    .await;
    let values: Vec<_> = said(&told);
    for expected in [(Some("a"), json!("a's")), (Some("b"), json!("all's"))] {
        assert!(values.contains(&expected), "{values:?}");
    }
    let to_a = values.iter().filter(|(instance, _)| *instance == Some("a"));
    assert!(to_a.clone().all(|(_, value)| value == "a's"), "{values:?}");
}

#[tokio::test]
async fn scopes_show_a_call_its_own_instance_over_what_is_global() {
    let scoped = |instance: Option<&str>| {
        let mut call = say(instance, 1);
        call["_scopes"] = json!(["input"]);
        call
    };
    let told = run(
        request(Contract::Schema, two()),
        [
            calls(json!([scoped(Some("a")), scoped(Some("b")), scoped(None)])),
            output("done"),
        ],
    )
    .await;
    let seen: Vec<Value> = told
        .calls
        .iter()
        .map(|call| {
            json!(
                call.context
                    .iter()
                    .map(|(_, value)| value)
                    .collect::<Vec<_>>()
            )
        })
        .collect();
    let global = json!([{"lang": "en", "text": "for all"}]);
    assert_eq!(
        seen,
        [
            json!([{"lang": "en", "text": "for a"}]),
            global.clone(),
            global
        ]
    );
}

#[tokio::test]
async fn errors_stay_inside() {
    let fail = |instance: &str| json!({"_tool": "fail.now", "_instance": instance, "_outputPath": "†state.x || †state.error"});
    let told = run(
        request(Contract::Schema, two()),
        [
            calls(json!([
                fail("a"),
                to(say(Some("b"), "fine"), "†state.x"),
                say(Some("a"), "†state.x"),
                say(Some("b"), "†state.x"),
                say(Some("a"), "†state.error.error"),
                say(Some("b"), "†state.error.error"),
            ])),
            output("done"),
        ],
    )
    .await;
    let values: Vec<_> = said(&told)
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect();
    assert_eq!(
        values,
        [
            (Some("b"), json!("fine")),
            (Some("b"), json!("fine")),
            (Some("a"), json!("broken"))
        ]
    );
    // Results are told with their instance.
    let asked = told.asked(1);
    assert!(
        asked.contains("tool=\"fail.now\" instance=\"a\""),
        "{asked}"
    );
}

#[tokio::test]
async fn a_call_for_an_instance_that_does_not_exist_is_a_structural_error_of_that_call() {
    for contract in Contract::ALL {
        let told = run(
            request(contract, two()),
            [
                calls(json!([say(Some("ghost"), 1)])),
                calls(json!([say(Some("a"), 2)])),
                output("done"),
            ],
        )
        .await;
        assert_eq!(said(&told), [(Some("a"), json!(2))], "{contract:?}");
        assert_eq!(told.results()[0].1, Err("instance".into()));
        let asked = told.asked(1);
        assert!(
            asked.contains("there is no instance \"ghost\"; there are a, b"),
            "{asked}"
        );
    }
    let told = run(
        request(Contract::Schema, json!([])),
        [
            calls(json!([say(Some("a"), 1), say(None, 2)])),
            output("done"),
        ],
    )
    .await;
    assert!(
        told.asked(1)
            .contains("there are none here; leave _instance out")
    );
    assert_eq!(said(&told), [(None, json!(2))]);
}

/// What the composed schema says of `_instance`.
#[tokio::test]
async fn calls_name_their_instance_and_a_plan_may_leave_it_out() {
    for (mode, is_required) in [("eager", true), ("lazy", false)] {
        let mut messages = two();
        messages
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "plan", "mode": mode}));
        for contract in [Contract::Schema, Contract::Tools] {
            let told = run(request(contract, messages.clone()), [output("done")]).await;
            let schema = told.schema(0).to_string();
            assert!(
                schema.contains(r#""_instance":{"enum":["a","b"]}"#),
                "{schema}"
            );
            let required = schema.contains("\"_reasoningForCall\",\"_instance\"")
                || schema.contains("\"required\":[\"_instance\"");
            assert_eq!(required, is_required, "{mode} {contract:?}: {schema}");
        }
    }
    let told = run(request(Contract::Simple, two()), [output("done")]).await;
    assert!(
        told.asked(0)
            .contains("Every call names the instance that it works on as \"_instance\": a, b.")
    );
}

#[tokio::test]
async fn equal_calls_of_instances_are_no_repetition() {
    let names: Vec<String> = (0..5).map(|n| format!("i{n}")).collect();
    let messages: Vec<Value> = names
        .iter()
        .map(|name| input(Some(name), json!({"x": 1})))
        .collect();
    let all: Vec<Value> = names
        .iter()
        .map(|name| say(Some(name), "the same"))
        .collect();
    let told = run(
        request(Contract::Schema, messages.into()),
        [calls(all), output("done")],
    )
    .await;
    assert_eq!(told.calls.len(), 5, "{:?}", told.results());
}

#[tokio::test]
async fn each_instance_gets_as_many_calls_as_a_run_without_any() {
    for (instances, made) in [(0, 2), (1, 2), (3, 6)] {
        let names: Vec<String> = (0..instances).map(|n| format!("i{n}")).collect();
        let messages = names
            .iter()
            .map(|name| input(Some(name), json!({"x": 1})))
            .collect();
        let mut request = request(Contract::Schema, messages);
        request.settings.max_calls = 2;
        let all: Vec<_> = (0..9)
            .map(|n| say(names.get(n % names.len().max(1)).map(String::as_str), n))
            .collect();
        let told = run(request, [calls(all), output("done")]).await;
        assert_eq!(told.calls.len(), made, "{instances}");
        let expect = format!("of 9 calls only the first {made} are made (run.max_calls)");
        assert!(told.notices().contains(&expect), "{:?}", told.notices());
    }
}

fn many(count: usize) -> Value {
    let each = |n: usize| input(Some(&format!("item{n}")), json!({"n": n}));
    (0..count).map(each).collect()
}

/// Each item: twice its number, and one more than that.
fn steps() -> Value {
    json!([
        {"_tool": "math.add", "a": "†state.twice", "b": 1, "_outputPath": "†state.more"},
        {"_tool": "math.add", "a": "†input.n", "b": "†input.n", "_outputPath": "†state.twice"},
    ])
}

#[tokio::test]
async fn one_plan_serves_all_instances_in_one_request() {
    let mut messages = many(200);
    messages
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "plan", "mode": "lazy"}));
    let told = run(
        request(Contract::Schema, messages),
        [calls(steps()), output("done")],
    )
    .await;
    assert_eq!((told.calls.len(), told.requests.len()), (400, 2));
    for n in [0, 7, 199] {
        let of = format!("item{n}");
        let own = told
            .calls
            .iter()
            .filter(|call| call.instance.as_ref() == Some(&of));
        let arguments: Vec<Value> = own.map(|call| call.arguments.clone()).collect();
        assert_eq!(
            arguments,
            [json!({"a": n, "b": n}), json!({"a": 2 * n, "b": 1})]
        );
    }
    let asked = told.asked(1);
    assert!(
        asked.contains("- made for all: {\"_tool\":\"math.add\""),
        "{asked:.3000}"
    );
}

#[tokio::test]
async fn a_plan_of_all_must_find_what_it_reads_in_each_instance() {
    let mut messages = many(3);
    let list = messages.as_array_mut().unwrap();
    list.push(input(Some("odd"), json!({"other": 1})));
    list.push(json!({"type": "plan", "mode": "lazy"}));
    let mixed = json!([steps()[0], steps()[1], {"_tool": "echo.say", "value": "†state.more", "_instance": "item2"}]);
    let told = run(
        request(Contract::Schema, messages),
        [calls(steps()), output("then not")],
    )
    .await;
    assert!(
        told.asked(1)
            .contains("plan[1]/a: nothing provides †input.n"),
        "{}",
        told.asked(1)
    );
    // Steps of one instance among those of all.
    let mut messages = many(3);
    messages
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "plan", "mode": "lazy"}));
    let told = run(
        request(Contract::Schema, messages),
        [calls(mixed), output("done")],
    )
    .await;
    assert_eq!(told.calls.len(), 7, "{:?}", told.asked(1));
    assert!(said(&told).contains(&(Some("item2"), json!(5))));
}

#[tokio::test]
async fn a_saved_plan_serves_all_instances_each_at_its_own_pace() {
    let mut messages = many(2);
    // One of them is named like a kind of data.
    messages
        .as_array_mut()
        .unwrap()
        .push(input(Some("state"), json!({"n": 10})));
    let saved = |messages: Value| -> RunRequest {
        let mut request = request(Contract::Schema, messages);
        request.plan = steps().as_array().cloned();
        request
    };
    let told = run_with(saved(messages.clone()), [], Vec::new())
        .await
        .unwrap();
    let of = |n: i64| json!({"state": {"twice": 2 * n, "more": 2 * n + 1}});
    assert_eq!(
        told.done(),
        (
            StopReason::Output,
            json!({"@item0": of(0), "@item1": of(1), "@state": of(10)})
        )
    );
    // What fails in one does not hold up the others.
    messages
        .as_array_mut()
        .unwrap()
        .push(input(Some("bad"), json!({"n": "no number"})));
    let told = run_with(saved(messages), [], Vec::new()).await.unwrap();
    let (reason, output) = told.done();
    assert_eq!(
        (reason, output["@item1"].clone()),
        (StopReason::Incomplete, of(1))
    );
    assert!(
        told.failure()
            .contains("2 of the plan's calls failed: math.add @bad"),
        "{}",
        told.failure()
    );
}

/// A call of a random program: its instance (or none), what it reads and where it writes.
#[derive(Debug, Clone)]
struct Random {
    instance: Option<usize>,
    reads: usize,
    writes: usize,
    method: usize,
}

const PLACES: [&str; 4] = ["state.p", "state.q", "shared.r", "input.secret"];
const METHODS: [&str; 3] = ["set", "push", "concat"];
const INSTANCES: usize = 3;

fn random() -> impl Strategy<Value = Random> {
    (
        prop::option::weighted(0.8, 0..INSTANCES),
        0..PLACES.len(),
        0..3_usize,
        0..METHODS.len(),
    )
        .prop_map(|(instance, reads, writes, method)| Random {
            instance,
            reads,
            writes,
            method,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 5))]

    /// Every instance has a secret, everything echoes what it reads and writes it on. Whatever the
    /// program, no call is given another instance's secret, and no data of an instance holds one.
    #[test]
    fn no_value_crosses_instances(steps in prop::collection::vec(prop::collection::vec(random(), 1..10), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let name = |instance: usize| format!("i{instance}");
            let secret = |instance: usize| format!("secret-of-{instance}");
            let mut messages: Vec<Value> = (0..INSTANCES)
                .map(|n| input(Some(&name(n)), json!({"secret": secret(n)})))
                .collect();
            messages.push(input(None, json!({"secret": "global"})));
            let replies = steps.iter().map(|step| {
                calls(step.iter().map(|random| {
                    let instance = random.instance.map(name);
                    let mut call = say(instance.as_deref(), format!("†{} || †input.secret", PLACES[random.reads]));
                    call["_outputPath"] = format!("†{}", PLACES[random.writes]).into();
                    call["_outputMethod"] = METHODS[random.method].into();
                    call["_scopes"] = json!(["input"]);
                    call
                }).collect::<Vec<_>>())
            });
            let mut request = request(Contract::Schema, messages.into());
            request.settings.max_calls = 10;
            let told = run(request, replies.chain([output("done")])).await;
            for call in &told.calls {
                let given = json!([call.arguments, call.context]).to_string();
                for other in (0..INSTANCES).filter(|other| call.instance != Some(name(*other))) {
                    assert!(!given.contains(&secret(other)), "{call:?}");
                }
            }
            let asked = told.asked(told.requests.len() - 1);
            for block in asked.split("## Data: ").skip(1) {
                let block = block.split("\n\n").next().unwrap();
                for n in 0..INSTANCES {
                    let is_own = block.contains(&format!("(instance {})", name(n)));
                    assert!(is_own || !block.contains(&secret(n)), "{block}");
                }
            }
            for fence in asked.split("<error ").skip(1).chain(asked.split("<result ").skip(1)) {
                let fence = fence.split("\n</").next().unwrap();
                for n in 0..INSTANCES {
                    let is_own = fence.contains(&format!("instance=\"{}\"", name(n)));
                    assert!(is_own || !fence.contains(&secret(n)), "{fence}");
                }
            }
        });
    }
}
