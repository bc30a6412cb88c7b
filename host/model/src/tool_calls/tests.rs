//! How pieces find their calls.

use serde_json::json;

use super::placing::MAX_NAME_BYTES;
use super::*;
use toolhold_protocol::completion::Completion;

/// A function with a parameter.
fn function(name: &str) -> OfferedFunction {
    OfferedFunction::new(name, &json!({"properties": {"x": {}}}))
}

fn finished(offered: &[&str], fragments: &Value) -> (FinishedCalls, Vec<Delta>) {
    let functions = offered.iter().map(|name| function(name));
    let mut calls = ToolCalls::offering(functions.collect());
    let mut told = Vec::new();
    for fragment in fragments.as_array().unwrap() {
        calls.push(fragment, &mut |delta| told.push(delta)).unwrap();
    }
    calls.end(&mut |delta| told.push(delta));
    (calls.finish(false), told)
}

fn listed(calls: &[ChatToolCall]) -> Vec<(String, String, String)> {
    let calls = calls.iter().cloned();
    calls
        .map(|call| (call.id, call.name, call.arguments))
        .collect()
}

/// Readers of the stream put together the same calls as the whole reply has.
fn assert_told(told: &[Delta], finished: &FinishedCalls, what: &str) {
    let mut read = Completion::default();
    for delta in told {
        read.add(delta);
    }
    assert_eq!(read.tool_calls.len(), finished.calls.len(), "{what}");
    for (read, call) in read.tool_calls.iter().zip(&finished.calls) {
        assert_eq!(read.name, call.name, "{what}");
        assert!(
            read.arguments == call.arguments
                || (read.arguments.is_empty() && call.arguments == "{}"),
            "{what}: {read:?} {call:?}"
        );
    }
}

fn assemble(fragments: &Value) -> Vec<(String, String, String)> {
    let (finished, told) = finished(&[], fragments);
    assert_told(&told, &finished, &fragments.to_string());
    assert_eq!(finished.unplaced, 0, "{fragments}");
    listed(&finished.calls)
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.into(), name.into(), arguments.into())
}

#[test]
fn fragments_find_their_call() {
    let add = || call("a", "add", "{\"x\":1}");
    let mul = || call("b", "mul", "{}");
    let cases = [
        (
            "as specified",
            json!([
                {"index": 0, "id": "a", "type": "function", "function": {"name": "add", "arguments": ""}},
                {"index": 0, "function": {"arguments": "{\"x\""}},
                {"index": 0, "function": {"arguments": ":1}"}},
                {"index": 1, "id": "b", "function": {"name": "mul", "arguments": "{}"}}]),
            vec![add(), mul()],
        ),
        (
            "interleaved",
            json!([
                {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{"}},
                {"index": 1, "id": "b", "function": {"name": "mul", "arguments": "{"}},
                {"index": 0, "function": {"arguments": "\"x\":1}"}},
                {"index": 1, "function": {"arguments": "}"}}]),
            vec![add(), mul()],
        ),
        (
            "id and name repeated",
            json!([
                {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{\"x\""}},
                {"index": 0, "id": "a", "function": {"name": "add", "arguments": ":1}"}},
                {"index": 0, "id": "a", "function": {"name": "add", "arguments": ""}}]),
            vec![add()],
        ),
        (
            "a new id in every fragment",
            json!([
                {"index": 0, "id": "a", "function": {"name": "add", "arguments": "{\"x\""}},
                {"index": 0, "id": "z", "function": {"name": null, "arguments": ":1}"}}]),
            vec![add()],
        ),
        (
            "no index, ids",
            json!([
                {"id": "a", "function": {"name": "add", "arguments": "{\"x\""}},
                {"id": "b", "function": {"name": "mul"}},
                {"id": "a", "function": {"arguments": ":1}"}}]),
            vec![add(), mul()],
        ),
        (
            "no index, no id",
            json!([
                {"function": {"name": "add", "arguments": "{\"x\""}},
                {"function": {"arguments": ":1}"}},
                {"function": {"name": "mul", "arguments": "{}"}}]),
            vec![
                call("call_0", "add", "{\"x\":1}"),
                call("call_1", "mul", "{}"),
            ],
        ),
        (
            "whole calls, all of index 0",
            json!([
                {"index": 0, "id": "a", "function": {"name": "add", "arguments": {"x": 1}}},
                {"index": 0, "id": "b", "function": {"name": "mul", "arguments": {}}}]),
            vec![add(), mul()],
        ),
        (
            "whole calls of one name, index 0, no id",
            json!([
                {"index": 0, "function": {"name": "add", "arguments": "{\"x\":1}"}},
                {"index": 0, "function": {"name": "add", "arguments": "{\"x\":2}"}}]),
            vec![
                call("call_0", "add", "{\"x\":1}"),
                call("call_1", "add", "{\"x\":2}"),
            ],
        ),
        (
            "name after the id, in its own fragment",
            json!([
                {"index": 0, "id": "a", "function": {}},
                {"index": 0, "function": {"name": "add"}},
                {"index": 0, "function": {"arguments": "{\"x\":1}"}}]),
            vec![add()],
        ),
        (
            "indexes that start at 1 and skip",
            json!([
                {"index": 1, "id": "a", "function": {"name": "add", "arguments": "{\"x\":1}"}},
                {"index": 4_000_000_000_u64, "id": "b", "function": {"name": "mul"}}]),
            vec![add(), mul()],
        ),
        (
            "no inner object",
            json!([{"name": "add", "id": "a", "arguments": "{\"x\":1}"}]),
            vec![add()],
        ),
    ];
    for (what, fragments, expected) in cases {
        assert_eq!(assemble(&fragments), expected, "{what}");
    }
}

/// Arguments of each call are those that were meant, and nothing is lost.
#[test]
fn pieces_that_servers_put_elsewhere_find_their_call() {
    let path = |id: &str| call(id, "read", "{\"path\":\"x\"}");
    let now = |id: &str| call(id, "now", "{}");
    let cases = [
        (
            "each piece under an index of its own",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}},
                {"index": 1, "function": {"arguments": "{\"path\":"}},
                {"index": 2, "function": {"arguments": "\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "the arguments under the next index, of the second call",
            json!([
                {"index": 0, "id": "a", "function": {"name": "now", "arguments": "{}"}},
                {"index": 1, "id": "b", "function": {"name": "read"}},
                {"index": 2, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![now("a"), path("b")],
        ),
        (
            "one id for two calls, with indexes",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                {"index": 1, "id": "a", "function": {"name": "now", "arguments": "{}"}}]),
            vec![path("a"), now("call_1")],
        ),
        (
            "one id for two calls of a function, in pieces",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}},
                {"index": 1, "id": "a", "function": {"name": "read", "arguments": ""}},
                {"index": 1, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a"), path("call_1")],
        ),
        (
            "one id for two calls, without indexes",
            json!([
                {"id": "a", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                {"id": "a", "function": {"name": "now", "arguments": "{}"}}]),
            vec![path("a"), now("call_1")],
        ),
        (
            "a name in two pieces",
            json!([
                {"index": 0, "id": "a", "function": {"name": "re"}},
                {"index": 0, "function": {"name": "ad"}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "a name that grows",
            json!([
                {"index": 0, "id": "a", "function": {"name": "re", "arguments": ""}},
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "two names of calls without arguments are no name in two pieces",
            json!([
                {"index": 0, "function": {"name": "now"}},
                {"index": 0, "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}}]),
            vec![now("call_0"), path("call_1")],
        ),
        (
            "the first brace twice",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{"}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "the first brace twice, and the rest in pieces",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{"}},
                {"index": 0, "function": {"arguments": "{"}},
                {"index": 0, "function": {"arguments": "\"path\":"}},
                {"index": 0, "function": {"arguments": "\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "all of the arguments so far in each piece",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"pa"}},
                {"index": 0, "function": {"arguments": "{\"path\":\""}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "an empty object before the arguments",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{}"}},
                {"index": 0, "function": {"arguments": "{\"path\":"}},
                {"index": 0, "function": {"arguments": "\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "an empty object in two pieces before the arguments",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{"}},
                {"index": 0, "function": {"arguments": "}"}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "the whole call again at the end",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"path\":"}},
                {"index": 0, "function": {"arguments": "\"x\"}"}},
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "a text that looks like its own beginning",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "["}},
                {"index": 0, "function": {"arguments": "[1]]"}}]),
            vec![call("a", "read", "[[1]]")],
        ),
        (
            "a mark of the template behind the arguments, with the name (TGI)",
            json!([
                {"index": 0, "id": "", "function": {"name": "read", "arguments": "{\"path\":"}},
                {"index": 0, "id": "", "function": {"name": "read", "arguments": "\"x\"}"}},
                {"index": 0, "id": "", "function": {"name": "read", "arguments": "<|eot_id|>"}}]),
            vec![path("call_0")],
        ),
        (
            "the end of the arguments twice (vLLM)",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                {"index": 0, "function": {"arguments": "\"}"}},
                {"index": 1, "id": "b", "function": {"name": "now", "arguments": "{}"}},
                {"index": 1, "function": {"arguments": "}"}}]),
            vec![path("a"), now("b")],
        ),
        (
            "whole calls of index 0 with ids, of one function twice (Ollama)",
            json!([
                {"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                {"index": 0, "id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                {"index": 0, "id": "c", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}}]),
            vec![path("a"), now("b"), path("c")],
        ),
        (
            "whole calls without an index and with an empty id (Gemini)",
            json!([
                {"function": {"arguments": "{\"path\":\"x\"}", "name": "read"}, "id": "", "type": "function"},
                {"function": {"arguments": "{\"path\":\"x\"}", "name": "read"}, "id": "", "type": "function"},
                {"function": {"arguments": "{}", "name": "now"}, "id": "", "type": "function"}]),
            vec![path("call_0"), path("call_1"), now("call_2")],
        ),
        (
            "index 0 for all, and pieces without an id",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}},
                {"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}},
                {"index": 0, "id": "b", "function": {"name": "now", "arguments": ""}},
                {"index": 0, "function": {"arguments": "{}"}}]),
            vec![path("a"), now("b")],
        ),
        (
            "interleaved pieces without an index",
            json!([
                {"id": "a", "function": {"name": "read", "arguments": ""}},
                {"id": "b", "function": {"name": "read", "arguments": ""}},
                {"id": "a", "function": {"arguments": "{\"path\":"}},
                {"id": "b", "function": {"arguments": "{\"path\":\"x\"}"}},
                {"id": "a", "function": {"arguments": "\"x\"}"}}]),
            vec![path("a"), path("b")],
        ),
        (
            "members that are null or empty in later pieces (SGLang, DashScope)",
            json!([
                {"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": null}},
                {"index": 0, "id": null, "type": "function", "function": {"name": null, "arguments": "{\"path\":"}},
                {"index": 0, "id": "", "type": "function", "function": {"name": "", "arguments": "\"x\"}"}},
                {"index": 1, "id": "b", "type": "function", "function": {"name": "now", "arguments": null}}]),
            vec![path("a"), now("b")],
        ),
        (
            "an index that is a text",
            json!([
                {"index": "0", "id": "a", "function": {"name": "read", "arguments": "{\"path\":"}},
                {"index": "0", "function": {"arguments": "\"x\"}"}}]),
            vec![path("a")],
        ),
        (
            "blanks around the arguments",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": " "}},
                {"index": 0, "function": {"arguments": "\n{\"path\":\"x\"}\n"}},
                {"index": 0, "function": {"arguments": "  "}}]),
            vec![path("a")],
        ),
    ];
    for (what, fragments, expected) in cases {
        let (finished, told) = finished(&["now", "read"], &fragments);
        assert_eq!(listed(&finished.calls), expected, "{what}");
        assert_eq!(finished.unplaced, 0, "{what}");
        assert_told(&told, &finished, what);
    }
}

/// Missing arguments stay missing if a piece fits no call.
#[test]
fn pieces_that_fit_nowhere_are_counted() {
    let cases = [
        (
            "arguments of one of two calls",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}},
                {"index": 1, "id": "b", "function": {"name": "now", "arguments": ""}},
                {"index": 7, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![call("a", "read", ""), call("b", "now", "")],
        ),
        (
            "arguments that begin in the middle",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read"}},
                {"index": 1, "function": {"arguments": "\"x\"}"}}]),
            vec![call("a", "read", "")],
        ),
        (
            "other arguments of a whole call",
            json!([
                {"index": 0, "id": "a", "function": {"name": "read", "arguments": "{\"path\":\"x\"}"}},
                {"index": 0, "function": {"arguments": "{\"path\":\"y\"}"}}]),
            vec![call("a", "read", "{\"path\":\"x\"}")],
        ),
        (
            "arguments and no call",
            json!([{"index": 0, "function": {"arguments": "{\"path\":\"x\"}"}}]),
            vec![],
        ),
        ("nonsense", json!([{}, 7, null]), vec![]),
    ];
    for (what, fragments, expected) in cases {
        let (finished, told) = finished(&["now", "read"], &fragments);
        let named = finished.calls.iter().filter(|call| !call.name.is_empty());
        let named: Vec<ChatToolCall> = named.cloned().collect();
        assert_eq!(listed(&named), expected, "{what}");
        assert!(finished.unplaced > 0, "{what}");
        assert_told(&told, &finished, what);
    }
}

/// A name in pieces without end grows up to its bound, and what follows is another call.
#[test]
fn a_name_in_pieces_is_bounded() {
    let mut calls = ToolCalls {
        offered: vec![function(&format!("a{}", "b".repeat(2 * MAX_NAME_BYTES)))],
        ..ToolCalls::default()
    };
    for name in std::iter::once("a").chain(std::iter::repeat_n("b", 3 * MAX_NAME_BYTES)) {
        calls.push(&json!({"name": name}), &mut |_| {}).unwrap();
    }
    let calls = calls.finish(false).calls;
    let longest = calls.iter().map(|call| call.name.len()).max();
    assert_eq!((longest, calls.len()), (Some(MAX_NAME_BYTES), 2));
}

#[test]
fn arguments_that_the_limit_took_stay_missing() {
    let fragments = [
        json!({"index": 0, "id": "a", "function": {"name": "now"}}),
        json!({"index": 1, "id": "b", "function": {"name": "read"}}),
    ];
    for (is_cut, last) in [(true, ""), (false, "{}")] {
        let mut calls = ToolCalls::default();
        for fragment in &fragments {
            calls.push(fragment, &mut |_| {}).unwrap();
        }
        let finished = calls.finish(is_cut);
        let expected = vec![call("a", "now", "{}"), call("b", "read", last)];
        assert_eq!(listed(&finished.calls), expected);
        assert_eq!(finished.unplaced, 0);
    }
}

#[test]
fn a_name_is_told_once_it_is_certain() {
    for (offered, expected) in [
        (&["add"][..], 1),
        (&["add", "add-all"][..], 0),
        (&[][..], 0),
    ] {
        let (mut told, name) = (Vec::new(), json!({"index": 0, "function": {"name": "add"}}));
        let functions = offered.iter().map(|name| function(name));
        let mut calls = ToolCalls::offering(functions.collect());
        calls.push(&name, &mut |delta| told.push(delta)).unwrap();
        assert_eq!(told.len(), expected, "{offered:?}");
        calls.end(&mut |delta| told.push(delta));
        assert_eq!(told.len(), 1, "{offered:?}");
    }
}

#[test]
fn id_and_name_are_told_once() {
    let mut calls = ToolCalls::default();
    let fragment = json!({"index": 0, "id": "a", "function": {"name": "add", "arguments": "[["}});
    let delta = |id: Option<&str>, name: Option<&str>| Delta::ToolCall {
        index: 0,
        id: id.map(Into::into),
        name: name.map(Into::into),
        arguments: "[[".into(),
    };
    let mut told = Vec::new();
    for fragment in [&fragment, &fragment, &json!({"index": 0})] {
        calls.push(fragment, &mut |delta| told.push(delta)).unwrap();
    }
    assert_eq!(told, [delta(Some("a"), Some("add")), delta(None, None)]);
}

#[test]
fn calls_are_bounded() {
    let mut calls = ToolCalls::default();
    let mut push = |fragment: Value| calls.push(&fragment, &mut |_| {});
    for index in 0..MAX_CALLS {
        push(json!({"index": index, "function": {"name": "f", "arguments": "{\"a\":1}"}})).unwrap();
    }
    // One without a name becomes no work.
    push(json!({"index": 1_000, "function": {"arguments": "{\"a\":1}"}})).unwrap();
    let result = push(json!({"index": 1_001, "function": {"name": "f"}}));
    assert!(matches!(
        result,
        Err(ModelError::TooLarge {
            limit: MAX_CALLS,
            ..
        })
    ));
    assert_eq!(calls.finish(false).unplaced, 1);
}

#[test]
fn a_call_whose_arguments_may_be_elsewhere_has_none() {
    for (pieces, arguments, unplaced) in [
        (
            json!([{"id": "a", "function": {"name": "add"}, "arguments": "{\"x\":1}"}]),
            "{\"x\":1}",
            0,
        ),
        (
            json!([{"id": "a", "function": {"name": "add", "input": "{\"x\""}}, {"function": {"input": ":1}"}}]),
            "{\"x\":1}",
            0,
        ),
        (
            json!([{"id": "a", "function": {"name": "add", "payload": {"x": 1}}}]),
            "",
            1,
        ),
        (
            json!([{"id": "a", "function": {"name": "add", "arguments": {}, "input": {"x": 1}}}]),
            "",
            1,
        ),
        (
            json!([{"id": "a", "function": {"name": "add", "arguments": "{}", "payload": {"x": 1}}}]),
            "{}",
            0,
        ),
    ] {
        let (finished, told) = finished(&["add"], &pieces);
        assert_told(&told, &finished, &pieces.to_string());
        assert_eq!(
            listed(&finished.calls),
            [call("a", "add", arguments)],
            "{pieces}"
        );
        assert_eq!(finished.unplaced, unplaced, "{pieces}");
    }
}

#[test]
fn an_index_may_be_a_text() {
    let piece = |index: &str, function: Value| json!({"index": index, "function": function});
    let pieces = json!([
        piece("0", json!({"name": "add", "arguments": ""})),
        piece("1", json!({"name": "mul", "arguments": ""})),
        piece("0", json!({"arguments": "{\"x\":1}"})),
        piece("1", json!({"arguments": "{\"x\":2}"})),
    ]);
    let expected = [
        call("call_0", "add", "{\"x\":1}"),
        call("call_1", "mul", "{\"x\":2}"),
    ];
    assert_eq!(assemble(&pieces), expected);
}
