//! Section 2: context messages.

use super::support::play::{Play, task, tool};
use super::support::{calls, output};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use toolhold_agent::run::replay::replay;
use toolhold_protocol::context::Context;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::data::{Method, Write};
use toolhold_protocol::error::RunError;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::solution::Call;

fn context(messages: &Value) -> Result<Context, String> {
    let messages = Message::parse_all(messages).map_err(|error| error.to_string())?;
    Context::new(messages).map_err(|error| error.to_string())
}

fn own(context: &Context, kind: &str, instance: Option<&str>) -> Value {
    context
        .data
        .own(kind, instance)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn every_type_is_read_with_its_defaults_and_written_as_it_is_read() {
    let schema = json!({"type": "object"});
    for (written, meant) in [
        (
            json!({"role": "system", "content": "x"}),
            json!({"type": "text", "text": "x", "role": "system"}),
        ),
        (
            json!({"role": "assistant", "content": "x"}),
            json!({"type": "text", "text": "x", "role": "assistant"}),
        ),
        (
            json!({"type": "text", "text": "x"}),
            json!({"type": "text", "text": "x", "role": "user"}),
        ),
        (
            json!({"type": "text", "content": "x", "role": null}),
            json!({"type": "text", "text": "x", "role": "user"}),
        ),
        (
            json!({"type": "data", "data": 1}),
            json!({"type": "data", "data": 1, "kind": "data"}),
        ),
        (
            json!({"type": "data", "data": null, "kind": "user", "schema": schema, "description": "d", "_instance": "i"}),
            json!({"type": "data", "data": null, "kind": "user", "schema": schema, "description": "d", "_instance": "i"}),
        ),
        (
            json!({"type": "data", "data": 1, "_call": {"_tool": "t", "_outputPath": "†state.x"}, "_date": 5, "_outputMethod": "push"}),
            json!({"type": "data", "data": 1, "kind": "state", "_call": {"_tool": "t", "_outputPath": "†state.x"}, "_date": 5, "_outputMethod": "push"}),
        ),
        (
            json!({"type": "input", "input": {"a": 1}, "schema": schema, "_instance": "i"}),
            json!({"type": "input", "input": {"a": 1}, "schema": schema, "_instance": "i"}),
        ),
        (
            json!({"type": "input", "schema": true}),
            json!({"type": "input", "input": null, "schema": true}),
        ),
        (
            json!({"type": "state", "schema": schema}),
            json!({"type": "state", "schema": schema}),
        ),
        (
            json!({"type": "state", "state": {"a": 1}, "_instance": "i"}),
            json!({"type": "state", "state": {"a": 1}, "_instance": "i"}),
        ),
        (
            json!({"type": "tool", "tool": {"t": schema}}),
            json!({"type": "tool", "tool": {"t": schema}}),
        ),
        (
            json!({"type": "plan"}),
            json!({"type": "plan", "plan": [], "mode": "eager"}),
        ),
        (
            json!({"type": "plan", "plan": [{"_tool": "t"}], "mode": "lazy"}),
            json!({"type": "plan", "plan": [{"_tool": "t"}], "mode": "lazy"}),
        ),
        (
            json!({"type": "advisor", "id": "a", "role": "r"}),
            json!({"type": "advisor", "id": "a", "role": "r", "on": null}),
        ),
        (
            json!({"type": "meta", "meta": {"version": "1.2.3"}}),
            json!({"type": "meta", "meta": {"version": "1.2.3"}}),
        ),
        (
            json!({"type": "error", "data": {"call": {"_tool": "t"}, "error": "e"}}),
            json!({"type": "error", "data": {"call": {"_tool": "t"}, "error": "e"}}),
        ),
    ] {
        let messages = Message::parse_all(&json!([written])).unwrap();
        assert_eq!(json!(messages), json!([meant]), "{written}");
        assert_eq!(Message::parse_all(&json!([meant])).unwrap(), messages);
        assert!(context(&json!([written])).is_ok(), "{written}");
        // A journal holds messages inside of other things.
        let alone: Message = serde_json::from_value(written).unwrap();
        assert_eq!([alone], *messages);
    }
}

#[test]
fn every_fault_names_the_message_the_place_and_the_remedy() {
    for (message, place, remedy) in [
        (json!("hello"), "", "with \"role\" and \"content\""),
        (
            json!({}),
            "",
            "one of text, data, input, state, tool, plan, advisor, meta, error",
        ),
        (
            json!({"type": "date", "data": 1}),
            " at /type",
            "\"date\" is no type of message; write one of text, data",
        ),
        (json!({"type": 7}), " at /type", "write one of text"),
        (
            json!({"role": "robot", "content": "x"}),
            " at /role",
            "one of system, user, assistant",
        ),
        (
            json!({"role": "user", "content": ["x"]}),
            " at /content",
            "must be a text",
        ),
        (
            json!({"role": "user", "content": "x", "name": "me"}),
            " at /name",
            "it has role, content",
        ),
        (
            json!({"type": "text"}),
            " at /text",
            "needs \"text\", a text",
        ),
        (
            json!({"type": "data"}),
            " at /data",
            "needs \"data\", a value",
        ),
        (
            json!({"type": "data", "data": 1, "instance": "i"}),
            " at /instance",
            "it has data, kind, schema, description, _instance",
        ),
        (
            json!({"type": "data", "data": 1, "kind": 7}),
            " at /kind",
            "must be a text",
        ),
        (
            json!({"type": "data", "data": 1, "kind": "a b"}),
            " at /kind",
            "use letters, digits, _ and -",
        ),
        (
            json!({"type": "data", "data": 1, "kind": ""}),
            " at /kind",
            "use letters",
        ),
        (
            json!({"type": "data", "data": 1, "kind": "a.b"}),
            " at /kind",
            "use letters",
        ),
        (
            json!({"type": "data", "data": 1, "kind": "a || †b"}),
            " at /kind",
            "use letters",
        ),
        (
            json!({"type": "data", "data": 1, "schema": "x"}),
            " at /schema",
            "an object, true or false",
        ),
        (
            json!({"type": "data", "data": 1, "schema": {"type": "objekt"}}),
            " at /schema",
            "no JSON Schema",
        ),
        (
            json!({"type": "data", "data": 1, "_instance": ""}),
            " at /_instance",
            "1 to 128 characters",
        ),
        (
            json!({"type": "data", "data": 1, "_instance": "a\nb"}),
            " at /_instance",
            "in one line",
        ),
        (
            json!({"type": "data", "data": 1, "_call": "t"}),
            " at /_call",
            "must be an object",
        ),
        (
            json!({"type": "data", "data": 1, "_date": "today"}),
            " at /_date",
            "milliseconds since 1970",
        ),
        (
            json!({"type": "data", "data": 1, "_outputMethod": "add"}),
            " at /_outputMethod",
            "one of set, merge, assign, push, concat",
        ),
        (
            json!({"type": "data", "data": 1, "_call": {"_outputPath": "state"}}),
            " at /_call/_outputPath",
            "write †kind.path",
        ),
        (
            json!({"type": "data", "data": 1, "kind": "user", "_call": {"_outputPath": "†state.x"}}),
            " at /kind",
            "make them one",
        ),
        (
            json!({"type": "data", "data": 1, "_call": {"_outputPath": "†data"}, "_outputMethod": "concat"}),
            "",
            "use push",
        ),
        (
            json!({"type": "input", "input": 1}),
            " at /schema",
            "needs \"schema\"",
        ),
        (
            json!({"type": "input", "input": "x", "schema": {"type": "integer"}}),
            " at /input",
            "not of type \"integer\"",
        ),
        (
            json!({"type": "input", "input": 1, "schema": {"type": 1}}),
            " at /schema",
            "no JSON Schema",
        ),
        (
            json!({"type": "state", "data": {}}),
            " at /data",
            "it has state, schema, description, _instance",
        ),
        (
            json!({"type": "state", "schema": {"minimum": "x"}}),
            " at /schema",
            "no JSON Schema",
        ),
        (
            json!({"type": "tool", "tool": []}),
            " at /tool",
            "must be an object",
        ),
        (
            json!({"type": "tool", "tool": {"t": 1}}),
            " at /tool/t",
            "must be a JSON Schema object",
        ),
        (
            json!({"type": "tool", "tool": {"a b": {}}}),
            " at /tool/a b",
            "letters, digits",
        ),
        (
            json!({"type": "tool", "tool": {"t": {"properties": {"x": {"type": "number!"}}}}}),
            " at /tool/t",
            "no JSON Schema",
        ),
        (
            json!({"type": "tool", "tool": {"t": {"properties": {"_output": {"type": "x"}}}}}),
            " at /tool/t/properties/_output",
            "no JSON Schema",
        ),
        (
            json!({"type": "tool", "tool": {"t": {"properties": {"_module": {"const": 1}}}}}),
            " at /tool/t/properties/_module",
            "names a module",
        ),
        (
            json!({"type": "plan", "plan": {}}),
            " at /plan",
            "must be a list",
        ),
        (
            json!({"type": "plan", "mode": "slow"}),
            " at /mode",
            "one of eager, lazy",
        ),
        (
            json!({"type": "advisor", "id": "a b", "role": "r"}),
            "",
            "write one such as",
        ),
        (
            json!({"type": "meta", "meta": "1.0.0"}),
            " at /meta",
            "must be an object",
        ),
        (json!({"type": "meta", "meta": {}}), "", "version"),
        (
            json!({"type": "error", "data": {"call": {}}}),
            " at /data/error",
            "needs \"error\"",
        ),
        (
            json!({"type": "error", "data": {"call": {}, "error": "e", "why": 1}}),
            " at /data/why",
            "it has call, error",
        ),
    ] {
        let error = context(&json!([task(), message])).unwrap_err();
        let begin = format!("message 2 of the context{place}: ");
        assert!(error.starts_with(&begin), "{message}: {error}");
        assert!(error.contains(remedy), "{message}: {error}");
    }
    let error = context(&json!({"type": "data"})).unwrap_err();
    assert!(error.contains("must be a list of messages"), "{error}");
}

#[test]
fn messages_of_one_kind_and_instance_are_one_value_merged_in_order() {
    let data = |data: Value| json!({"type": "data", "kind": "user", "data": data});
    for (messages, meant) in [
        (
            json!([
                data(json!({"a": 1, "b": {"x": 1}})),
                data(json!({"a": 2, "b": {"y": 2}}))
            ]),
            json!({"a": 2, "b": {"x": 1, "y": 2}}),
        ),
        (json!([data(json!([1])), data(json!([2]))]), json!([2])),
        (
            json!([data(json!("a")), data(json!({"b": 1}))]),
            json!({"b": 1}),
        ),
        (
            json!([data(json!({"b": 1})), data(Value::Null)]),
            Value::Null,
        ),
        (
            json!([data(json!([1])), {"type": "data", "kind": "user", "data": 2, "_outputMethod": "push"}]),
            json!([1, 2]),
        ),
    ] {
        assert_eq!(
            own(&context(&messages).unwrap(), "user", None),
            meant,
            "{messages}"
        );
    }
    let context = context(&json!([
        {"type": "state", "state": {"a": 1}},
        {"type": "data", "kind": "state", "data": {"b": 2}},
        {"type": "state", "state": {"a": 3}, "_instance": "i"},
        {"type": "input", "input": {"q": 1}, "schema": true},
        {"type": "data", "kind": "input", "data": {"r": 2}},
        {"type": "state", "state": {"c": 4}, "_instance": "i"},
    ]))
    .unwrap();
    assert_eq!(own(&context, "state", None), json!({"a": 1, "b": 2}));
    assert_eq!(own(&context, "state", Some("i")), json!({"a": 3, "c": 4}));
    assert_eq!(own(&context, "input", None), json!({"q": 1, "r": 2}));
    assert_eq!(context.instances, ["i"]);
}

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
        "## Data: ¶user\nWho asks.\n{\"name\":\"Ada\",\"age\":36}\nSchema: {\"type\":\"object\",\"required\":[\"name\"]}",
        "## Data: ¶input\n{\"q\":\"why\"}\nSchema: {\"required\":[\"q\"]}",
        "## Data: ¶user (instance b)\n{\"name\":\"Bob\"}",
        "An earlier call failed: {\"_tool\":\"t\"} with \"it broke\"",
        "Do it.",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!(told.matches("## Data: ¶user\n").count(), 1, "{told}");
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
fn a_saved_request_is_read_as_strictly() {
    for (saved, says) in [
        (json!({}), "missing field `context`"),
        (
            json!({"context": [], "scheme": {}}),
            "unknown field `scheme`",
        ),
        (
            json!({"context": [], "schema": {"type": "x"}}),
            "/schema: this is no JSON Schema",
        ),
        (
            json!({"context": [{"type": "data"}]}),
            "message 1 of the context at /data",
        ),
    ] {
        let error = SavedRequest::parse(&saved).unwrap_err();
        assert!(error.contains(says), "{saved}: {error}");
    }
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
    let blueprint = format!("## Data: ¶state\nFill this.\n(nothing yet)\nSchema: {schema}");
    assert!(done.told(0).ends_with(&blueprint), "{}", done.told(0));
    assert!(done.requests[0].to_string().contains("_outputPath"));
    assert!(
        done.told(1).contains("¶state\nFill this.\n{\"score\":7}"),
        "{}",
        done.told(1)
    );
}

#[test]
fn a_later_meta_plan_or_advisor_takes_the_place_of_an_earlier_one() {
    let context = context(&json!([
        {"type": "meta", "meta": {"version": "1.0.0"}},
        {"type": "plan", "plan": [{"_tool": "a"}]},
        {"type": "advisor", "id": "a", "role": "first"},
        {"type": "meta", "meta": {"version": "2.0.0"}},
        {"type": "plan", "plan": [{"_tool": "b"}], "mode": "lazy"},
        {"type": "advisor", "id": "a", "role": "second"},
    ]))
    .unwrap();
    assert_eq!(json!(context.meta), json!({"version": "2.0.0"}));
    assert_eq!(
        json!(context.plan),
        json!({"plan": [{"_tool": "b"}], "mode": "lazy"})
    );
    assert_eq!(context.advisors.len(), 1);
    assert_eq!(context.advisors[0].role, "second");
}

/// The prompt grows at its end: prefix caches hit on everything but the last message, whose end is
/// data as it is now.
#[test]
fn what_was_sent_stays_the_beginning_of_what_is_sent() {
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
fn what_calls_wrote_is_saved_with_the_call_that_wrote_it() {
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
fn what_went_wrong_is_saved_with_the_whole_call() {
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

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        "[a†]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            vec((select(vec!["a", "b"]), inner), 0..3).prop_map(|fields| fields
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let kind = select(vec!["data", "state", "user"]);
    let instance = select(vec![None, Some("i"), Some("j")]);
    (kind, instance, value()).prop_map(|(kind, instance, value)| {
        let mut message = match kind {
            "state" => json!({"type": "state", "state": value}),
            kind => json!({"type": "data", "kind": kind, "data": value}),
        };
        if let Some(instance) = instance {
            message["_instance"] = instance.into();
        }
        message
    })
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let path = select(vec![
        "†state",
        "†state.a",
        "†state.a.b[1]",
        "†data[0]",
        "†user.b",
        "†new.x",
        "†new",
    ]);
    let method = select(vec![
        Method::Set,
        Method::Merge,
        Method::Assign,
        Method::Push,
        Method::Concat,
    ]);
    let instance = select(vec![None, Some("i".to_owned())]);
    let write = (path, method, value()).prop_map(|(path, method, value)| (path, method, value));
    (vec(write, 1..3), instance).prop_map(|(writes, instance)| {
        let one = writes.into_iter().map(|(path, method, value)| Write {
            path: path.parse().unwrap(),
            instance: instance.clone(),
            method,
            value,
        });
        one.collect()
    })
}

proptest! {
    #[test]
    fn a_context_that_ran_is_loaded_with_the_same_data(messages in vec(message(), 0..5), writes in vec(writes(), 0..6)) {
        let mut messages = messages;
        messages.push(json!({"type": "state", "_instance": "i"}));
        let mut context = context(&messages.into()).unwrap();
        let call = Call::of("t", serde_json::Map::new());
        for writes in writes {
            let before = context.data.clone();
            if context.write_result(writes, &call, Some(1)).is_err() {
                prop_assert_eq!(&context.data, &before, "all or nothing");
            }
        }
        let saved = json!(context.saved());
        let again = Context::new(Message::parse_all(&saved).unwrap()).unwrap();
        prop_assert_eq!(&again.data, &context.data);
        prop_assert_eq!(&again.instances, &context.instances);
        prop_assert_eq!(json!(again.saved()), saved);
    }
}
