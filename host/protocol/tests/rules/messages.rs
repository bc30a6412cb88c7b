//! Section 2: messages, and the context that they make.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::data::{Method, Write};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Role;

pub fn context(messages: &Value) -> Result<Context, String> {
    let messages = Message::parse_all(messages).map_err(|error| error.to_string())?;
    Context::new(messages).map_err(|error| error.to_string())
}

pub fn own(context: &Context, kind: &str, instance: Option<&str>) -> Value {
    context
        .data
        .own(kind, instance)
        .cloned()
        .unwrap_or_default()
}

#[test]
fn every_type_is_read_with_its_defaults_and_written_as_it_is_read() {
    let schema = json!({"type": "object"});
    for (rule, written, meant) in [
        (
            "2.1",
            json!({"role": "system", "content": "x"}),
            json!({"type": "text", "text": "x", "role": "system"}),
        ),
        (
            "2.1",
            json!({"role": "assistant", "content": "x"}),
            json!({"type": "text", "text": "x", "role": "assistant"}),
        ),
        (
            "2.1",
            json!({"type": "text", "text": "x"}),
            json!({"type": "text", "text": "x", "role": "user"}),
        ),
        (
            "2.1",
            json!({"type": "text", "content": "x", "role": null}),
            json!({"type": "text", "text": "x", "role": "user"}),
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1}),
            json!({"type": "data", "data": 1, "kind": "data"}),
        ),
        (
            "2.1",
            json!({"type": "data", "data": null, "kind": "user", "schema": schema, "description": "d", "_instance": "i"}),
            json!({"type": "data", "data": null, "kind": "user", "schema": schema, "description": "d", "_instance": "i"}),
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_call": {"_tool": "t", "_outputPath": "†state.x"}, "_date": 5, "_outputMethod": "push"}),
            json!({"type": "data", "data": 1, "kind": "state", "_call": {"_tool": "t", "_outputPath": "†state.x"}, "_date": 5, "_outputMethod": "push"}),
        ),
        (
            "2.8",
            json!({"type": "data", "data": 1, "_date": "2026-11-23T09:00:00.500+01:00"}),
            json!({"type": "data", "data": 1, "kind": "data", "_date": 1_795_420_800_500_u64}),
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "title": "Parcel", "description": "In grams."}),
            json!({"type": "data", "data": 1, "kind": "data", "description": "Parcel\nIn grams."}),
        ),
        (
            "2.10",
            json!({"type": "state", "task": {"step": 1}, "open": true, "_instance": "i"}),
            json!({"type": "state", "state": {"task": {"step": 1}, "open": true}, "_instance": "i"}),
        ),
        (
            "2.10",
            json!({"type": "input", "comment": "it is late", "title": "Complaint"}),
            json!({"type": "input", "input": {"comment": "it is late"}, "schema": true, "description": "Complaint"}),
        ),
        (
            "2.10",
            json!({"type": "input", "comment": "it is late", "schema": schema}),
            json!({"type": "input", "input": {"comment": "it is late"}, "schema": schema}),
        ),
        (
            "2.11",
            json!({"type": "system", "content": "x"}),
            json!({"type": "text", "text": "x", "role": "system"}),
        ),
        (
            "2.11",
            json!({"type": "assistant", "text": "x"}),
            json!({"type": "text", "text": "x", "role": "assistant"}),
        ),
        (
            "2.11",
            json!({"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}),
            json!({"type": "text", "text": "x\ny", "role": "assistant"}),
        ),
        (
            "2.11",
            json!({"role": "system", "content": {"type": "text", "text": "x"}}),
            json!({"type": "text", "text": "x", "role": "system"}),
        ),
        (
            "2.11",
            json!({"role": "user", "content": {"type": "data", "kind": "parcel", "data": {"weight": 3}}}),
            json!({"type": "data", "kind": "parcel", "data": {"weight": 3}}),
        ),
        (
            "2.1",
            json!({"type": "input", "input": {"a": 1}, "schema": schema, "_instance": "i"}),
            json!({"type": "input", "input": {"a": 1}, "schema": schema, "_instance": "i"}),
        ),
        (
            "2.1",
            json!({"type": "input", "schema": true}),
            json!({"type": "input", "input": null, "schema": true}),
        ),
        (
            "2.1",
            json!({"type": "state", "schema": schema}),
            json!({"type": "state", "schema": schema}),
        ),
        (
            "2.1",
            json!({"type": "state", "state": {"a": 1}, "_instance": "i"}),
            json!({"type": "state", "state": {"a": 1}, "_instance": "i"}),
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": {"t": schema}}),
            json!({"type": "tool", "tool": {"t": schema}}),
        ),
        (
            "2.1",
            json!({"type": "plan"}),
            json!({"type": "plan", "plan": [], "mode": "eager"}),
        ),
        (
            "2.1",
            json!({"type": "plan", "plan": [{"_tool": "t"}], "mode": "lazy"}),
            json!({"type": "plan", "plan": [{"_tool": "t"}], "mode": "lazy"}),
        ),
        (
            "2.1",
            json!({"type": "advisor", "id": "a", "role": "r"}),
            json!({"type": "advisor", "id": "a", "role": "r", "on": null}),
        ),
        (
            "2.1",
            json!({"type": "meta", "meta": {"version": "1.2.3"}}),
            json!({"type": "meta", "meta": {"version": "1.2.3"}}),
        ),
        (
            "2.1",
            json!({"type": "error", "data": {"call": {"_tool": "t"}, "error": "e"}}),
            json!({"type": "error", "data": {"call": {"_tool": "t"}, "error": "e"}}),
        ),
        (
            "2.1",
            json!({"type": "type", "name": "parcel", "schema": schema, "title": "Parcel"}),
            json!({"type": "type", "name": "parcel", "schema": schema, "description": "Parcel"}),
        ),
    ] {
        let messages = Message::parse_all(&json!([written])).unwrap();
        assert_eq!(json!(messages), json!([meant]), "{rule}: {written}");
        assert_eq!(Message::parse_all(&json!([meant])).unwrap(), messages);
        assert!(context(&json!([written])).is_ok(), "{rule}: {written}");
        // A journal holds messages inside of other things.
        let alone: Message = serde_json::from_value(written).unwrap();
        assert_eq!([alone], *messages);
    }
}

#[test]
fn every_fault_names_the_message_the_place_and_the_remedy() {
    for (rule, message, place, remedy) in [
        ("2.1", json!("hello"), "", "with \"role\" and \"content\""),
        (
            "2.1",
            json!({}),
            "",
            "one of text, image, data, input, state, tool, plan, advisor, meta, error",
        ),
        (
            "2.1",
            json!({"type": "date", "data": 1}),
            " at /type",
            "\"date\" is no type of message; write one of text, image",
        ),
        ("2.1", json!({"type": 7}), " at /type", "write one of text"),
        (
            "2.1",
            json!({"role": "robot", "content": "x"}),
            " at /role",
            "one of system, user, assistant",
        ),
        (
            "2.1",
            json!({"role": "user", "content": ["x"]}),
            " at /content",
            "must be a text",
        ),
        (
            "2.11",
            json!({"type": "user", "content": {"type": "user", "content": {"type": "data", "data": 1}}}),
            " at /content/content",
            "one message and holds no other",
        ),
        (
            "2.11",
            json!({"role": "user", "content": {"data": 1}}),
            " at /content/type",
            "needs a \"type\"",
        ),
        (
            "2.11",
            json!({"role": "user", "content": {"type": "data"}}),
            " at /content/data",
            "needs \"data\"",
        ),
        (
            "2.11",
            json!({"type": "system"}),
            " at /content",
            "needs \"content\"",
        ),
        (
            "2.1",
            json!({"role": "user", "content": "x", "name": "me"}),
            " at /name",
            "it has role, content",
        ),
        (
            "2.1",
            json!({"type": "text"}),
            " at /text",
            "needs \"text\", a text",
        ),
        (
            "2.1",
            json!({"type": "data"}),
            " at /data",
            "needs \"data\", a value",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "instance": "i"}),
            " at /instance",
            "it has data, kind, schema, description, title, _instance",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "kind": 7}),
            " at /kind",
            "must be a text",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "kind": "a b"}),
            " at /kind",
            "use letters, digits, _ and -",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "kind": ""}),
            " at /kind",
            "use letters",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "kind": "a.b"}),
            " at /kind",
            "use letters",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "kind": "a || †b"}),
            " at /kind",
            "use letters",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "schema": "x"}),
            " at /schema",
            "an object, true or false",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "schema": {"type": "objekt"}}),
            " at /schema",
            "no JSON Schema",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_instance": ""}),
            " at /_instance",
            "1 to 128 characters",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_instance": "a\nb"}),
            " at /_instance",
            "in one line",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_call": "t"}),
            " at /_call",
            "must be an object",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_date": "today"}),
            " at /_date",
            "milliseconds since 1970",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_outputMethod": "add"}),
            " at /_outputMethod",
            "one of set, merge, assign, push, concat",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_call": {"_outputPath": "state"}}),
            " at /_call/_outputPath",
            "write †kind.path",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "kind": "user", "_call": {"_outputPath": "†state.x"}}),
            " at /kind",
            "make them one",
        ),
        (
            "2.1",
            json!({"type": "data", "data": 1, "_call": {"_outputPath": "†data"}, "_outputMethod": "concat"}),
            "",
            "use push",
        ),
        (
            "2.3",
            json!({"type": "input", "description": "d"}),
            " at /schema",
            "the \"schema\" of the value that it waits for",
        ),
        (
            "2.3",
            json!({"type": "input", "input": "x", "schema": {"type": "integer"}}),
            " at /input",
            "not of type \"integer\"",
        ),
        (
            "2.3",
            json!({"type": "input", "input": 1, "schema": {"type": 1}}),
            " at /schema",
            "no JSON Schema",
        ),
        (
            "2.1",
            json!({"type": "state", "state": 1, "data": {}}),
            " at /data",
            "it has state, schema, description, title, _instance",
        ),
        (
            "2.1",
            json!({"type": "state", "schema": {"minimum": "x"}}),
            " at /schema",
            "no JSON Schema",
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": []}),
            " at /tool",
            "must be an object",
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": {"t": 1}}),
            " at /tool/t",
            "must be a JSON Schema object",
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": {"a b": {}}}),
            " at /tool/a b",
            "letters, digits",
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": {"t": {"properties": {"x": {"type": "number!"}}}}}),
            " at /tool/t",
            "no JSON Schema",
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": {"t": {"properties": {"_output": {"type": "x"}}}}}),
            " at /tool/t/properties/_output",
            "no JSON Schema",
        ),
        (
            "2.1",
            json!({"type": "tool", "tool": {"t": {"properties": {"_module": {"const": 1}}}}}),
            " at /tool/t/properties/_module",
            "names a module",
        ),
        (
            "2.1",
            json!({"type": "plan", "plan": {}}),
            " at /plan",
            "must be a list",
        ),
        (
            "2.1",
            json!({"type": "plan", "mode": "slow"}),
            " at /mode",
            "one of eager, lazy",
        ),
        (
            "2.1",
            json!({"type": "advisor", "id": "a b", "role": "r"}),
            "",
            "write one such as",
        ),
        (
            "2.1",
            json!({"type": "meta", "meta": "1.0.0"}),
            " at /meta",
            "must be an object",
        ),
        ("2.1", json!({"type": "meta", "meta": {}}), "", "version"),
        (
            "2.1",
            json!({"type": "error", "data": {"call": {}}}),
            " at /data/error",
            "needs \"error\"",
        ),
        (
            "2.1",
            json!({"type": "error", "data": {"call": {}, "error": "e", "why": 1}}),
            " at /data/why",
            "it has call, error",
        ),
    ] {
        let error = context(&json!([{"role": "user", "content": "Do it."}, message])).unwrap_err();
        let begin = format!("message 2 of the context{place}: ");
        assert!(error.starts_with(&begin), "{rule}: {message}: {error}");
        assert!(error.contains(remedy), "{rule}: {message}: {error}");
    }
    let error = context(&json!({"type": "data"})).unwrap_err();
    assert!(error.contains("must be a list of messages"), "{error}");
}

#[test]
fn messages_of_one_kind_and_instance_are_one_value_merged_in_order() {
    let data = |data: Value| json!({"type": "data", "kind": "user", "data": data});
    for (rule, messages, meant) in [
        (
            "2.2",
            json!([
                data(json!({"a": 1, "b": {"x": 1}})),
                data(json!({"a": 2, "b": {"y": 2}}))
            ]),
            json!({"a": 2, "b": {"x": 1, "y": 2}}),
        ),
        (
            "2.2",
            json!([data(json!([1])), data(json!([2]))]),
            json!([2]),
        ),
        (
            "2.2",
            json!([data(json!("a")), data(json!({"b": 1}))]),
            json!({"b": 1}),
        ),
        (
            "2.2",
            json!([data(json!({"b": 1})), data(Value::Null)]),
            Value::Null,
        ),
        (
            "2.2",
            json!([data(json!([1])), {"type": "data", "kind": "user", "data": 2, "_outputMethod": "push"}]),
            json!([1, 2]),
        ),
    ] {
        assert_eq!(
            own(&context(&messages).unwrap(), "user", None),
            meant,
            "{rule}: {messages}"
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
fn messages_of_all_forms_make_one_context() {
    let fixture = include_str!("../../../../tests/fixtures/protocol/messages.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    let context = context(&fixture["context"]).unwrap();
    for (path, value) in fixture["data"].as_object().unwrap() {
        let read = context.data.read(&path.parse().unwrap(), None);
        assert_eq!(read.unwrap().as_ref(), value, "{path}");
    }
    let said = context.messages.iter().filter_map(|message| match message {
        Message::Text(text) => Some((text.role, text.text.as_str())),
        _ => None,
    });
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            (Role::System, "You look after parcels."),
            (Role::User, "What now?")
        ]
    );
    let dated = context.messages.iter().find_map(|message| match message {
        Message::Data(data) => data.hidden.date,
        _ => None,
    });
    assert_eq!(dated, Some(1_795_424_400_000));
}

#[test]
fn data_may_repeat_the_names_of_its_path() {
    let written = |data: Value, path: &str| {
        let message =
            json!({"type": "data", "data": data, "_call": {"_tool": "t", "_outputPath": path}});
        let kind = path.trim_start_matches('†').split('.').next().unwrap();
        own(&context(&json!([message])).unwrap(), kind, None)
    };
    let status = json!({"user": {"status": "open"}});
    for (rule, data, path, meant) in [
        ("2.12", status.clone(), "†data.user.status", status.clone()),
        ("2.12", json!("open"), "†data.user.status", status.clone()),
        (
            "2.12",
            json!({"status": "open"}),
            "†data.user",
            json!({"user": {"status": "open"}}),
        ),
        (
            "2.12",
            json!({"user": {"status": 1, "more": 2}}),
            "†data.user.status",
            json!({"user": {"status": {"user": {"status": 1, "more": 2}}}}),
        ),
        ("2.12", status.clone(), "†data", status),
    ] {
        assert_eq!(
            written(data.clone(), path),
            meant,
            "{rule}: {data} at {path}"
        );
    }
}

#[test]
fn a_later_definition_takes_the_place_of_an_earlier_one() {
    let context = context(&json!([
        {"type": "meta", "meta": {"version": "1.0.0"}},
        {"type": "plan", "plan": [{"_tool": "a"}]},
        {"type": "advisor", "id": "a", "role": "first"},
        {"type": "tool", "tool": {"t": {"description": "first"}, "u": {}}},
        {"type": "meta", "meta": {"version": "2.0.0"}},
        {"type": "plan", "plan": [{"_tool": "b"}], "mode": "lazy"},
        {"type": "advisor", "id": "a", "role": "second"},
        {"type": "tool", "tool": {"t": {"description": "second"}}},
    ]))
    .unwrap();
    for (rule, got, meant) in [
        ("2.5", json!(context.meta), json!({"version": "2.0.0"})),
        (
            "2.5",
            json!(context.plan),
            json!({"plan": [{"_tool": "b"}], "mode": "lazy"}),
        ),
        (
            "2.5",
            json!(context.advisors),
            json!([{"id": "a", "role": "second", "on": null}]),
        ),
        (
            "2.5",
            json!(context.tools),
            json!([["t", {"description": "second"}], ["u", {}]]),
        ),
    ] {
        assert_eq!(got, meant, "{rule}");
    }
}

#[test]
fn a_context_is_ready_once_its_inputs_are_there() {
    let schema = json!({"type": "object", "required": ["q"]});
    let of = |instance: Option<&str>, input: Value| {
        let mut message = json!({"type": "input", "schema": schema, "input": input});
        if let Some(instance) = instance {
            message["_instance"] = json!(instance);
        }
        message
    };
    let (waiting, given) = (of(None, Value::Null), json!({"q": 1}));
    for (rule, messages, missing) in [
        ("2.3", json!([waiting]), Some(0)),
        ("2.3", json!([waiting, of(None, given.clone())]), None),
        ("2.3", json!([waiting, of(Some("i"), given.clone())]), None),
        (
            "2.3",
            json!([of(None, given), of(Some("i"), Value::Null)]),
            Some(1),
        ),
        (
            "2.3",
            json!([{"type": "input", "schema": {"type": ["object", "null"]}}]),
            None,
        ),
        ("2.4", json!([{"type": "state", "schema": schema}]), None),
    ] {
        let fault = context(&messages).unwrap().check_input().err();
        assert_eq!(
            fault.as_ref().map(|fault| fault.index),
            missing,
            "{rule}: {messages}"
        );
        assert!(
            fault.is_none_or(|fault| fault.place == "/input"),
            "{rule}: {messages}"
        );
    }
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
        "†user.a.b",
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
    /// Rules 2.8 and 11.2: with each value its call is kept, and all of it can be read again.
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
