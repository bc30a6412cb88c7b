//! Section 2: context messages.

use super::support::play::{Play, task, tool};
use super::support::{calls, output};
use serde_json::{Value, json};
use toolhold_agent::run::replay::replay;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::error::RunError;

#[test]
fn data_is_shown_merged_under_a_heading_with_description_and_schema() {
    let messages = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada"}, "description": "Who asks."},
        {"type": "data", "kind": "user", "data": {"age": 36}, "schema": {"type": "object", "required": ["name"]}},
        {"type": "input", "input": {"q": "why"}, "schema": {"required": ["q"]}},
        {"type": "data", "kind": "user", "data": {"name": "Bob"}, "_instance": "b"},
        {"type": "error", "data": {"call": {"_tool": "t"}, "error": "it broke"}},
        task(),
    ]);
    let done = Play::new(&messages, [output("x")]).run().unwrap();
    let told = done.told(0);
    for part in [
        "## Data: ¶user\n│ Who asks.\n{\"name\":\"Ada\",\"age\":36}\nSchema: {\"type\":\"object\",\"required\":[\"name\"]}",
        "## Data: ¶input\nThis is a prompt in the form of data: its fields say what is asked, and with what.\n{\"q\":\"why\"}\nSchema: {\"required\":[\"q\"]}",
        "## Data: ¶user (instance b)\n{\"name\":\"Bob\"}",
        "An earlier call failed: {\"_tool\":\"t\"} with \"it broke\"",
        "Do it.",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(told.matches("## Data: ¶user\n").count(), 1, "{told}");
}

/// A type that the context registers is shown once, and its messages as data of that kind.
#[test]
fn a_registered_type_is_shown_once_and_its_messages_as_data() {
    let fixture = include_str!("../../../../tests/fixtures/protocol/types.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    let mut messages = fixture["context"].clone();
    let again = messages[0].clone();
    let note = tool("note", &json!({}));
    messages.as_array_mut().unwrap().extend([again, note]);
    let call = json!([{"_tool": "note", "_output": 7, "_outputPath": "†parcel.weight"}]);
    let done = Play::new(&messages, [calls(&call), output("x")])
        .run()
        .unwrap();
    let schema = &fixture["context"][0]["schema"];
    let (first, second) = (done.told(0), done.told(1));
    let registered =
        format!("## Type: ¶parcel\n│ Parcel\n│ Weights are in kilograms.\nSchema: {schema}");
    for (told, block) in [
        (&first, registered.as_str()),
        (
            &first,
            "## Data: ¶parcel\n{\"weight\":4,\"title\":\"Books\",\"fragile\":true,\"state\":\"wet\"}",
        ),
        (&first, "## Data: ¶parcel (instance north)\n{\"weight\":2}"),
        (
            &second,
            "## Data: ¶parcel, as it is now\n{\"weight\":7,\"title\":\"Books\",\"fragile\":true,\"state\":\"wet\"}",
        ),
    ] {
        assert_eq!(told.matches(block).count(), 1, "{block} in {told}");
    }
    assert_eq!(second.matches(&schema.to_string()).count(), 1, "{second}");
}

#[test]
fn data_that_a_call_changes_is_shown_again_as_it_is_now() {
    let messages = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        tool("note", &json!({})),
        task(),
    ]);
    let call = json!([{"_tool": "note", "_output": "Bob", "_outputPath": "†user.name"}]);
    let done = Play::new(&messages, [calls(&call), output("x")])
        .run()
        .unwrap();
    let told = done.told(1);
    let before = told.find("## Data: ¶user\n{\"name\":\"Ada\"}").unwrap();
    let now = told
        .find("## Data: ¶user, as it is now\n{\"name\":\"Bob\"}")
        .unwrap();
    assert!(before < now);
}

#[test]
fn where_data_comes_from_is_hidden_from_the_model_and_kept() {
    let message = json!({
        "type": "data", "kind": "state", "data": 7, "_call": {"_tool": "secret_tool", "_outputPath": "†state.n"},
        "_date": 1_234_567, "_outputMethod": "push",
    });
    let done = Play::new(&json!([message, task()]), [output("x")])
        .run()
        .unwrap();
    let sent = done.requests[0].to_string();
    assert!(done.told(0).contains("{\"n\":[7]}"), "{sent}");
    for hidden in ["_call", "secret_tool", "_date", "1234567"] {
        assert!(!sent.contains(hidden), "{hidden} in {sent}");
    }
    assert_eq!(json!(done.context.saved())[0], message);
}

#[test]
fn a_long_value_is_shown_in_part_and_can_be_referred_to_as_a_whole() {
    let text = "x".repeat(500);
    let messages = json!([{"type": "data", "data": {"text": text}}, tool("echo", &json!({"text": {}})), task()]);
    let replies = [
        calls(json!([{"_tool": "echo", "text": "†data.text"}])),
        output("x"),
    ];
    let done = Play::new(&messages, replies)
        .settings(|settings| settings.result_chars = 100)
        .run()
        .unwrap();
    assert!(
        done.told(0)
            .contains("[100 of 511 characters shown; references reach all of it]"),
        "{}",
        done.told(0)
    );
    assert_eq!(done.outcomes()[0].1, Ok(json!({"text": text})));
}

#[test]
fn nothing_is_sent_for_an_input_that_is_missing_or_wrong() {
    let schema = json!({"type": "object", "required": ["q"]});
    let waiting = json!({"type": "input", "schema": schema});
    let given = json!({"type": "input", "schema": schema, "input": {"q": 1}, "_instance": "i"});
    let wrong = json!({"type": "input", "schema": schema, "input": {"q": 1}});
    for (messages, fits) in [
        (json!([waiting]), false),
        (json!([waiting, given]), true),
        (json!([waiting, wrong]), true),
        (
            json!([{"type": "input", "schema": {"type": ["object", "null"]}}]),
            true,
        ),
    ] {
        let replies = if fits { vec![output("x")] } else { Vec::new() };
        match Play::new(&messages, replies).run() {
            Ok(_) => assert!(fits, "{messages}"),
            Err(RunError::Context(error)) => {
                assert!(!fits, "{messages}");
                assert_eq!((error.index, error.place.as_str()), (0, "/input"));
                assert!(error.reason.contains("give a value"), "{error}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_state_without_a_value_tells_which_paths_to_write() {
    let schema = json!({"type": "object", "properties": {"score": {"type": "integer"}}});
    let messages = json!([{"type": "state", "schema": schema, "description": "Fill this."}, tool("judge", &json!({})), task()]);
    let replies = [
        calls(json!([{"_tool": "judge", "_outputPath": "†state.score", "_output": 7}])),
        output("x"),
    ];
    let done = Play::new(&messages, replies).run().unwrap();
    let blueprint = format!("## Data: ¶state\n│ Fill this.\n(nothing yet)\nSchema: {schema}");
    assert!(done.told(0).ends_with(&blueprint), "{}", done.told(0));
    assert!(done.requests[0].to_string().contains("_outputPath"));
    assert!(
        done.told(1).contains("¶state\n│ Fill this.\n{\"score\":7}"),
        "{}",
        done.told(1)
    );
}

/// The prompt grows at its end: prefix caches hit on everything but the last message, whose end is
/// data as it is now.
#[test]
fn earlier_requests_are_a_prefix_of_later_ones() {
    for contract in Contract::ALL {
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"type": "meta", "meta": {"version": "1.0.0"}},
            {"type": "data", "kind": "user", "data": {"name": "Ada"}},
            {"type": "state", "state": {"n": 0}},
            tool("echo", &json!({"text": {"type": "string"}})),
            tool("judge", &json!({"_output": {"type": "integer"}})),
            task(),
        ]);
        let solution = |version: &str, mut solution: Value| {
            solution["meta"] = json!({"version": version});
            solution
        };
        let echo = |text: &str| json!([{"_tool": "echo", "_reasoningForCall": "r", "text": text, "_outputPath": "†state.said"}]);
        let replies = [
            solution("1.1.0", calls(echo("†user.name"))),
            solution("1.2.0", calls(json!([{"_tool": "judge", "_output": 3}]))),
            solution("1.3.0", calls(echo("hello"))),
            solution("1.4.0", output("done")),
        ];
        let play = Play::new(&messages, replies).settings(|settings| settings.contract = contract);
        let done = play.run().unwrap();
        assert_eq!(done.requests.len(), 4);
        for pair in done.requests.windows(2) {
            let [before, after] = pair else {
                unreachable!()
            };
            let (before, after) = (
                before["messages"].as_array().unwrap(),
                after["messages"].as_array().unwrap(),
            );
            let (last, same) = before.split_last().unwrap();
            assert_eq!(same, &after[..same.len()], "{contract:?}");
            // Native tool calls have no text; then the whole last message was what moves.
            let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
            let (last, grown) = (text(last), text(&after[same.len()]));
            let stays = last[..last.find("## Data: ¶state").unwrap()].trim_end();
            assert!(
                grown.starts_with(stays),
                "{contract:?}: {stays} is not in {grown}"
            );
        }
        let versions: Vec<_> = (0..4)
            .map(|n| done.told(n).matches("\"version\":\"1.").count())
            .collect();
        assert_eq!(
            versions[0], versions[3],
            "{contract:?}: an old version is still told"
        );
    }
}

#[test]
fn writes_are_saved_with_their_call() {
    let messages =
        json!([{"type": "state", "state": {"n": 1}}, tool("echo", &json!({"text": {}})), task()]);
    let call = json!({
        "_tool": "echo", "_reasoningForCall": "why", "text": "hi",
        "_outputPath": "†state.a && †notes", "_outputMethod": "push",
    });
    let done = Play::new(&messages, [calls(json!([call])), output("x")])
        .run()
        .unwrap();
    let replayed = replay(&done.events).unwrap();
    let mut saved = json!(replayed.machine.context().saved());
    let saved = saved.as_array_mut().unwrap();
    assert_eq!(saved.len(), 5);
    for (message, place, kind) in [(3, "†state.a", "state"), (4, "†notes", "notes")] {
        let message = saved[message].as_object_mut().unwrap();
        assert!(
            message
                .shift_remove("_date")
                .is_some_and(|date| date.as_u64() > Some(1_700_000_000_000))
        );
        let meant = json!({
            "type": "data", "data": {"text": "hi"}, "kind": kind, "_outputMethod": "push",
            "_call": {"_tool": "echo", "_reasoningForCall": "why", "text": "hi", "_outputPath": place, "_outputMethod": "push"},
        });
        assert_eq!(Value::from(message.clone()), meant);
    }
}

/// Section 7: what went wrong with calls is among the messages, after what was written.
#[test]
fn failure_is_saved_with_the_whole_call() {
    let messages = json!([
        tool("fail", &json!({"text": {}})),
        tool("echo", &json!({"text": {"type": "string"}, "_activity": {"const": "echo"}})),
        {"type": "tool", "tool": {"notify": {
            "type": "object", "properties": {"_activity": {"const": "fail"}},
            "annotations": {"fireAndForget": true},
        }}},
        {"type": "error", "data": {"call": {"_tool": "old"}, "error": {"message": "long ago"}}},
        task(),
    ]);
    let fails = json!({
        "_tool": "fail", "_reasoningForCall": "why", "text": "hi", "_outputPath": "†state.a || †state.b",
    });
    let blocked = json!({"_tool": "echo", "text": "†state.nothing"});
    let unknown = json!({"_tool": "nobody"});
    let background = json!({"_tool": "notify"});
    let fine = json!({"_tool": "echo", "text": "fine", "_outputPath": "†state.c"});
    let list = json!([fails, blocked, unknown, background, fine]);
    let done = Play::new(&messages, [calls(&list), output("x")])
        .run()
        .unwrap();
    let replayed = replay(&done.events).unwrap();
    let saved = replayed.machine.context().saved();
    let errors: Vec<_> = saved
        .iter()
        .filter_map(|message| match message {
            Message::Error(error) => Some(&error.data),
            _ => None,
        })
        .collect();
    assert_eq!(errors.len(), 5, "{errors:?}");
    for (call, kind) in [
        (fails, "luck"),
        (blocked, "blocked"),
        (unknown, "unknown_tool"),
        (background, "luck"),
    ] {
        let found = errors.iter().find(|error| error.call == call);
        let error = &found
            .unwrap_or_else(|| panic!("{call} in {errors:?}"))
            .error;
        assert_eq!(error["kind"], kind, "{call}");
        assert_eq!(error["class"], "correctable", "{call}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{call}");
    }
    assert!(matches!(saved.last(), Some(Message::Error(_))));
    // A run that continues with the context sees it, and saves the same context.
    let mut play = Play::new(&json!([]), [output("x")]);
    play.request.context.clone_from(&saved);
    let again = play.run().unwrap();
    assert!(
        again.told(0).contains(r#""message":"no luck""#),
        "{}",
        again.told(0)
    );
    assert_eq!(again.context.saved(), saved);
}
