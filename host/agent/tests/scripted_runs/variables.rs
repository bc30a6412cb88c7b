//! Section 5: variables and outputs.

use super::support::play::{Play, PlayedRun, ScriptedResult, task, tool};
use super::support::{calls, output};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, StopReason};

/// `echo` and `fail` as activities, `note` as a latent tool, over data of some kinds.
fn context() -> Value {
    json!([
        {"type": "data", "kind": "user", "data": {
            "name": "Ada", "größe": 1.7, "list": [1, {"x": "deep"}], "empty": {}, "nothing": null, "dagger": "†x",
        }},
        {"type": "data", "kind": "user", "data": {"name": "Bob"}, "_instance": "b"},
        {"type": "data", "kind": "secret", "data": 1, "_instance": "c"},
        tool("echo", &json!({"v": {}, "w": {}})),
        tool("fail", &json!({"v": {}})),
        tool("pick", &json!({"to": {"type": "string"}})),
        tool("note", &json!({"_output": {}})),
        task(),
    ])
}

/// Plays these calls in one step.
fn play(list: &Value) -> PlayedRun {
    let done = Play::new(&context(), [calls(list), output("x")])
        .run()
        .unwrap();
    assert_eq!(
        done.stop(),
        (StopReason::Output, json!("x")),
        "bad input never ends a run"
    );
    done
}

fn echoed(arguments: &Value) -> ScriptedResult {
    let mut call = arguments.clone();
    call["_tool"] = json!("echo");
    play(&json!([call])).outcomes().remove(0).1
}

#[test]
fn a_reference_is_replaced_by_the_value_at_its_place() {
    for (written, meant) in [
        (json!("†user.name"), json!("Ada")),
        (json!("†user.größe"), json!(1.7)),
        (json!("†user.list[1].x"), json!("deep")),
        (json!("†user.list"), json!([1, {"x": "deep"}])),
        (json!("†user.nothing"), Value::Null),
        (json!("†user.empty"), json!({})),
        // In nested arguments.
        (
            json!({"a": [{"b": "†user.list[0]"}, "†user.name"]}),
            json!({"a": [{"b": 1}, "Ada"]}),
        ),
        // For the whole string only.
        (json!("Hello †user.name"), json!("Hello †user.name")),
        (json!({"†user.name": 1}), json!({"†user.name": 1})),
        // A literal dagger.
        (json!("††user.name"), json!("†user.name")),
        (json!("††"), json!("†")),
        // Elsewhere daggers are daggers.
        (json!("a ††b"), json!("a ††b")),
        // What a reference stands for is data, whatever it looks like.
        (json!("†user.dagger"), json!("†x")),
        // The first that exists; the last of all.
        (json!("†user.nobody || †user.name"), json!("Ada")),
        (json!("†user.name || †user.nobody"), json!("Ada")),
        (json!("†user.nothing || †user.name"), Value::Null),
        (json!("†user.list && †user.name"), json!("Ada")),
    ] {
        assert_eq!(
            echoed(&json!({"v": written})),
            Ok(json!({"v": meant})),
            "{written}"
        );
    }
}

/// Nothing can be referred to, and the model was told of no references: what it writes is text.
#[test]
fn statement_042_14_without_data_a_dagger_begins_a_text() {
    let context = json!([tool("echo", &json!({"v": {}})), task()]);
    let texts = json!(["† 1832", "†1832", "††", "†state.x", {"a": "†"}]);
    let replies = [calls(json!([{"_tool": "echo", "v": texts}])), output("x")];
    let done = Play::new(&context, replies).run().unwrap();
    assert_eq!(done.outcomes().remove(0).1, Ok(json!({"v": texts})));
}

#[test]
fn a_reference_to_nothing_says_how_far_its_path_exists() {
    for (written, says) in [
        (
            "†user.nam",
            "†user has name, größe, list, empty, nothing and dagger",
        ),
        ("†user.list[2]", "†user.list has 2 elements"),
        ("†user.list[9999].x", "†user.list has 2 elements"),
        ("†user.list.x", "†user.list has 2 elements"),
        ("†user[0]", "†user has name"),
        ("†user.name.first", "†user.name is a text"),
        ("†user.nothing.x", "†user.nothing is null"),
        ("†user.empty.x", "†user.empty is an object without fields"),
        (
            "†users.name",
            "there is no data of the kind users; there is only user",
        ),
        ("†user.a || †user.b", "†user.b does not exist"),
        ("†user.name && †user.b", "†user.b does not exist"),
        ("†state.x", "there is no data of the kind state"),
    ] {
        let failure = echoed(&json!({"v": written})).unwrap_err();
        assert_eq!(failure.kind, "blocked", "{written}: {}", failure.message);
        assert!(
            failure.message.contains(says),
            "{written}: {}",
            failure.message
        );
    }
}

#[test]
fn malformed_reference_is_reported_with_its_place() {
    for (arguments, place, says) in [
        (json!({"v": "†"}), "/v", "the kind of data"),
        (
            json!({"v": "† and ‡"}),
            "/v",
            "a literal dagger is written ††",
        ),
        (json!({"v": {"a": ["†user."]}}), "/v/a/0", "a name"),
        (
            json!({"v": "†user.list[x]"}),
            "/v",
            "an index from 0 to 9999",
        ),
        (
            json!({"v": "†user.list[10000]"}),
            "/v",
            "an index from 0 to 9999",
        ),
        (
            json!({"v": "†user.a || †user.b && †user.c"}),
            "/v",
            "do not mix",
        ),
        (json!({"v": "†user.name is who"}), "/v", "&&, || or the end"),
    ] {
        let failure = echoed(&arguments).unwrap_err();
        assert_eq!(failure.kind, "reference", "{arguments}");
        let begin = format!("at {place}: ");
        assert!(
            failure.message.starts_with(&begin) && failure.message.contains(says),
            "{arguments}: {}",
            failure.message
        );
    }
}

#[test]
fn results_go_where_the_call_says() {
    for (target, meant) in [
        ("†state.a", json!({"a": {"v": 1}})),
        ("†state", json!({"v": 1})),
        (
            "†state.a && †state.b.c",
            json!({"a": {"v": 1}, "b": {"c": {"v": 1}}}),
        ),
        ("†state.a || †state.b", json!({"a": {"v": 1}})),
        ("†state.l[1]", json!({"l": [null, {"v": 1}]})),
    ] {
        let done = play(&json!([{"_tool": "echo", "v": 1, "_outputPath": target}]));
        assert_eq!(done.data("†state", None), meant, "{target}");
        assert!(
            done.told(1).contains(&format!("## Data: ¶state\n{meant}")),
            "{}",
            done.told(1)
        );
        assert!(
            done.told(1).contains("written to †state"),
            "{}",
            done.told(1)
        );
    }
}

#[test]
fn the_outcome_picks_one_of_two_places() {
    let error = json!({"error": "luck", "message": "no luck"});
    for (name, target, meant) in [
        ("echo", "†state.good || †state.bad", json!({"good": {}})),
        ("fail", "†state.good || †state.bad", json!({"bad": error})),
        (
            "fail",
            "†state.a || †state.b || †state.c",
            json!({"c": error}),
        ),
        ("fail", "†state.a && †state.b", Value::Null),
        ("fail", "†state.a", Value::Null),
    ] {
        let done = play(&json!([{"_tool": name, "_outputPath": target}]));
        assert_eq!(done.data("†state", None), meant, "{name} {target}");
        assert_eq!(done.outcomes()[0].1.is_ok(), name == "echo");
    }
}

#[test]
fn a_tool_picks_its_place_by_a_message() {
    for (to, target, meant) in [
        (
            "state.bad",
            "†state.good || †state.bad",
            Ok(json!({"bad": 1})),
        ),
        ("state.b", "†state.a && †state.b", Ok(json!({"b": 1}))),
        ("state.a", "†state.a", Ok(json!({"a": 1}))),
        (
            "state.c",
            "†state.a || †state.b",
            Err("none of the places that the call allows: †state.a, †state.b"),
        ),
        ("user.name", "†state.a", Err("none of the places")),
        ("state.", "†state.a", Err("the tool chose no place")),
    ] {
        let done = play(&json!([{"_tool": "pick", "to": to, "_outputPath": target}]));
        let (_, outcome) = done.outcomes().remove(0);
        match meant {
            Ok(meant) => assert_eq!(done.data("†state", None), meant, "{to} {target}"),
            Err(says) => {
                let failure = outcome.unwrap_err();
                assert_eq!(failure.kind, "output_path");
                assert!(failure.message.contains(says), "{}", failure.message);
                assert_eq!(done.data("†user.name", None), json!("Ada"));
            }
        }
    }
}

#[test]
fn a_result_goes_to_all_of_its_places_or_to_none() {
    // The second place is inside of what the first write makes an object.
    let done = play(&json!([
        {"_tool": "echo", "v": 1, "_outputPath": "†state.a && †state.a[0]"},
        {"_tool": "echo", "v": 2, "_outputPath": "†user.list.x"},
        {"_tool": "echo", "v": 3, "_outputPath": "†user.list.x || †state.why"},
        {"_tool": "note", "_output": "s", "_outputPath": "†user.name", "_outputMethod": "push"},
    ]));
    let outcomes = done.outcomes();
    for (index, says) in [
        (0, "†state.a is an object"),
        (1, "†user.list is a list"),
        (2, "†user.list is a list"),
        (3, "push appends to a list"),
    ] {
        let failure = outcomes[index].1.as_ref().unwrap_err();
        assert_eq!(failure.kind, "write");
        assert!(failure.message.contains(says), "{}", failure.message);
    }
    let state = done.data("†state", None);
    assert_eq!(state["why"]["error"], "write", "{state}");
    assert_eq!(state.get("a"), None, "{state}");
    assert_eq!(done.data("†user.list", None), json!([1, {"x": "deep"}]));
}

#[test]
fn invalid_output_expression_fails_the_call() {
    for (target, says) in [
        ("state.a", "a dagger"),
        ("†", "the kind of data"),
        ("†state.a && †state.b || †state.c", "do not mix"),
        ("†b:state.a", "&&, ||"),
        ("†state.l[10000]", "an index from 0 to 9999"),
    ] {
        let done = play(&json!([{"_tool": "echo", "v": 1, "_outputPath": target}]));
        let failure = done.outcomes().remove(0).1.unwrap_err();
        assert!(
            failure.message.contains("_outputPath") && failure.message.contains(says),
            "{target}: {}",
            failure.message
        );
        assert!(
            !done
                .events
                .iter()
                .any(|event| matches!(event.kind, EventKind::ToolStart { .. })),
            "{target}"
        );
    }
}

#[test]
fn without_a_place_a_latent_result_is_a_thought_and_an_explicit_one_is_told() {
    let done = play(
        &json!([{"_tool": "note", "_output": "a thought of mine"}, {"_tool": "echo", "v": "told"}]),
    );
    assert_eq!(done.context.data.log().len(), 3, "nothing was written");
    let told = done.told(1);
    assert!(told.contains("tool=\"note\">\nnoted\n</result"), "{told}");
    assert!(
        told.contains("tool=\"echo\">\n{\"v\":\"told\"}\n</result"),
        "{told}"
    );
}

#[test]
fn a_fire_and_forget_call_does_not_delay_the_run() {
    let mut forget = tool("echo", &json!({"v": {}}));
    forget["tool"]["echo"]["annotations"] = json!({"fireAndForget": true});
    let replies = [calls(json!([{"_tool": "echo", "v": 1}])), output("x")];
    let done = Play::new(&json!([forget, task()]), replies).run().unwrap();
    assert!(
        done.told(1)
            .contains("started in the background; its result is not reported"),
        "{}",
        done.told(1)
    );
    assert_eq!(
        done.outcomes()[0].1,
        Ok(json!({"v": 1})),
        "what it does is done before the end"
    );
}

#[test]
fn data_is_wired_through_the_calls_of_one_step() {
    for contract in [Contract::Schema, Contract::Tools] {
        let list = json!([
            {"_tool": "echo", "v": "†user.name", "_outputPath": "†state.a"},
            {"_tool": "note", "_output": [1, 2], "_outputPath": "†state.n"},
            {"_tool": "echo", "v": "†state.a.v", "w": ["†state.n[1]"], "_outputPath": "†state.b"},
            {"_tool": "fail", "_outputPath": "†state.never || †state.failed"},
            {"_tool": "echo", "v": "†state.failed.message"},
            {"_tool": "echo", "v": "†state.never"},
        ]);
        let play = Play::new(&context(), [calls(&list), output("x")]);
        let done = play
            .settings(|settings| settings.contract = contract)
            .run()
            .unwrap();
        let outcomes = done.outcomes();
        assert_eq!(
            outcomes[2].1,
            Ok(json!({"v": "Ada", "w": [2]})),
            "{contract:?}"
        );
        assert_eq!(outcomes[4].1, Ok(json!({"v": "no luck"})), "{contract:?}");
        let failure = outcomes[5].1.as_ref().unwrap_err();
        assert!(
            failure.message.contains("†state.never does not exist"),
            "{}",
            failure.message
        );
        assert!(
            failure
                .message
                .contains("(fail) should have written †state.never and did not"),
            "{}",
            failure.message
        );
    }
}

#[test]
fn a_call_reads_and_writes_its_own_instance() {
    let done = play(&json!([
        {"_tool": "echo", "v": "†user.name", "w": "†user.größe", "_instance": "b", "_outputPath": "†state.of_b"},
        {"_tool": "echo", "v": "†user.name", "_instance": "c", "_outputPath": "†user.name"},
        {"_tool": "echo", "v": "†secret", "_instance": "b"},
        {"_tool": "echo", "v": "†state.of_b", "_instance": "c"},
        {"_tool": "echo", "v": 1, "_instance": "z"},
    ]));
    let outcomes = done.outcomes();
    assert_eq!(
        outcomes[0].1,
        Ok(json!({"v": "Bob", "w": 1.7})),
        "its own over the global"
    );
    assert_eq!(outcomes[1].1, Ok(json!({"v": "Ada"})));
    for index in [2, 3] {
        assert_eq!(outcomes[index].1.as_ref().unwrap_err().kind, "blocked");
    }
    assert!(
        outcomes[4]
            .1
            .as_ref()
            .unwrap_err()
            .message
            .contains("there are b, c"),
        "{outcomes:?}"
    );
    assert_eq!(done.data("†state", None), Value::Null);
    assert_eq!(done.data("†state.of_b.v", Some("b")), json!("Bob"));
    assert_eq!(done.data("†user.name", Some("c")), json!({"v": "Ada"}));
    assert_eq!(
        (
            done.data("†user.name", None),
            done.data("†user.name", Some("b"))
        ),
        (json!("Ada"), json!("Bob"))
    );
}

#[test]
fn arguments_are_checked_with_what_their_references_stand_for() {
    let context = json!([
        {"type": "data", "data": {"n": 7, "text": "seven"}},
        tool("echo", &json!({"n": {"type": "integer"}})),
        task(),
    ]);
    for (written, fits) in [("†data.n", true), ("†data.text", false)] {
        let replies = [calls(json!([{"_tool": "echo", "n": written}])), output("x")];
        let done = Play::new(&context, replies).run().unwrap();
        let (_, outcome) = done.outcomes().remove(0);
        assert_eq!(outcome.is_ok(), fits, "{outcome:?}");
    }
}

/// What a model may write where something else is due.
fn anything() -> impl Strategy<Value = Value> {
    let text = select(vec![
        "",
        "†",
        "††",
        "†user",
        "†user.list[1]",
        "†state.a",
        "†state.a || †state.b",
        "†state.a && †user.name[3]",
        "b",
        "z",
        "push",
        "set",
        "echo",
        "_tool",
        "†user.list && †nothing",
        "†state.a[9999]",
    ]);
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((select(vec!["v", "to", "_call"]), inner), 0..3).prop_map(|fields| fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

fn call() -> impl Strategy<Value = Value> {
    let name = select(vec!["echo", "fail", "pick", "note", "none", ""]);
    let field = select(vec![
        "v",
        "w",
        "to",
        "_instance",
        "_scopes",
        "_imports",
        "_outputPath",
        "_outputMethod",
        "_output",
        "_colour",
        "_reasoningForCall",
    ]);
    (name, vec((field, anything()), 0..5)).prop_map(|(name, fields)| {
        let mut call = json!({"_tool": name});
        for (field, value) in fields {
            call[field] = value;
        }
        call
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 3 / 4))]
    #[test]
    fn bad_input_never_ends_a_run(list in vec(call(), 1..5), contract in select(Contract::ALL.to_vec())) {
        let play = Play::new(&context(), [calls(list), output("x")]);
        let done = play.settings(|settings| settings.contract = contract).run().unwrap();
        prop_assert_eq!(done.stop(), (StopReason::Output, json!("x")));
        prop_assert_eq!(done.requests.len(), 2);
    }
}
