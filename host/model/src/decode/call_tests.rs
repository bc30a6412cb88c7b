//! Calls of whole answers: copies of them, words in their place, and members beside them.

use super::*;
use serde_json::json;

const URL: &str = "http://endpoint/v1";

/// Decodes an answer to a request that offers `echo`, which has a parameter, `list`, which has none, and `free`, which may have
/// any.
fn decode(chunks: &[Value]) -> Completion {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    let body = events.collect::<String>() + "data: [DONE]\n\n";
    let functions = vec![
        OfferedFunction::new("echo", &json!({"properties": {"text": {"type": "string"}}})),
        OfferedFunction::new("list", &json!({"type": "object", "properties": {}})),
        OfferedFunction::new(
            "free",
            &json!({"properties": {"-": {}, "text": {}}, "additionalProperties": true}),
        ),
    ];
    let mut decoder = Decoder::new(1 << 20, Some("text/event-stream")).offering(functions);
    decoder.push(body.as_bytes(), URL, &mut |_| {}).unwrap();
    decoder.finish(URL, &mut |_| {}).unwrap()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn call(index: u8, id: &str, arguments: Value) -> Value {
    json!({"index": index, "id": id, "type": "function", "function": {"name": "echo", "arguments": arguments}})
}

/// A copy of a call is none, wherever it stands and however it is written.
#[test]
fn calls_that_stand_in_two_places_are_made_once() {
    let own = json!([call(0, "a", json!("{\"text\": \"x\"}"))]);
    let bare = json!([{"name": "echo", "arguments": {"text": "x"}}]);
    let part = json!({"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "x"}});
    let old = json!({"name": "echo", "arguments": "{\"text\": \"x\"}"});
    let message = json!({"role": "assistant", "content": null, "tool_calls": own});
    for chunks in [
        vec![json!({"choices": [{"message": message}], "tool_calls": bare})],
        vec![json!({"choices": [{"message": message, "tool_calls": bare}]})],
        vec![
            json!({"choices": [{"message": {"content": [part]}, "tool_calls": bare}], "tool_calls": own}),
        ],
        vec![
            json!({"choices": [{"delta": {}, "tool_calls": own}], "tool_calls": bare}),
            delta(json!({"tool_calls": bare})),
        ],
        vec![
            delta(json!({"content": [part]})),
            delta(json!({"tool_calls": own})),
        ],
        vec![
            delta(json!({"content": [part]})),
            delta(json!({"tool_calls": [call(0, "b", json!(""))]})),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"text\""}}]})),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": ": \"x\"}"}}]})),
        ],
        vec![
            delta(json!({"function_call": old})),
            delta(json!({"tool_calls": own})),
        ],
        vec![
            delta(json!({"function_call": {"name": "echo", "arguments": "{\"text\": "}})),
            delta(json!({"function_call": {"arguments": "\"x\"}"}})),
            delta(json!({"tool_calls": bare})),
        ],
    ] {
        let completion = decode(&chunks);
        assert_eq!(completion.tool_calls.len(), 1, "{chunks:?}");
        assert_eq!(completion.unplaced, 0, "{chunks:?}");
        let arguments: Value = serde_json::from_str(&completion.tool_calls[0].arguments).unwrap();
        assert_eq!(arguments, json!({"text": "x"}), "{chunks:?}");
    }
}

#[test]
fn several_calls_and_their_copies_stay_several() {
    let two = json!([
        call(0, "a", json!("{\"text\": \"x\"}")),
        call(1, "b", json!("{\"text\": \"y\"}"))
    ]);
    let bare = json!([
        {"name": "echo", "arguments": {"text": "x"}},
        {"name": "echo", "arguments": {"text": "y"}},
    ]);
    let part = |id: &str, text: &str| json!({"type": "tool_use", "id": id, "name": "echo", "input": {"text": text}});
    for chunks in [
        vec![json!({"choices": [{"message": {"tool_calls": two}}], "tool_calls": bare})],
        vec![json!({"choices": [{"delta": {"tool_calls": two}, "tool_calls": bare}]})],
        vec![
            delta(json!({"content": [part("a", "x")], "tool_calls": [two[0]]})),
            delta(json!({"content": [part("b", "y")], "tool_calls": [two[1]]})),
        ],
        vec![
            delta(json!({"content": [part("a", "x")]})),
            delta(json!({"content": [part("b", "y")], "tool_calls": two})),
        ],
    ] {
        let completion = decode(&chunks);
        let calls = completion.tool_calls.iter();
        let arguments: Vec<Value> = calls
            .map(|call| serde_json::from_str(&call.arguments).unwrap())
            .collect();
        let expected = [json!({"text": "x"}), json!({"text": "y"})];
        assert_eq!(arguments, expected, "{chunks:?}");
        assert_eq!(completion.unplaced, 0, "{chunks:?}");
    }
}

/// Some servers write a word where there is no call.
#[test]
fn a_word_in_the_place_of_calls_refuses_no_text() {
    for chunk in [
        delta(json!({"content": "hello", "tool_calls": "null"})),
        delta(json!({"content": "hello", "tool_calls": "None"})),
        delta(json!({"content": "hello", "tool_calls": ["none"]})),
        delta(json!({"content": "hello", "function_call": "none"})),
        delta(json!({"content": "hello", "function_call": "auto"})),
        delta(json!({"content": "hello", "tool_call": "no"})),
        json!({"choices": [{"delta": {"content": "hello"}, "tool_calls": "None"}]}),
        json!({"choices": [{"delta": {"content": "hello"}}], "tool_calls": "null"}),
    ] {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        let completion = decode(&[chunk.clone(), end]);
        assert_eq!(completion.content, "hello", "{chunk}");
        assert_eq!(completion.unplaced, 0, "{chunk}");
        assert!(completion.tool_calls.is_empty(), "{chunk}");
    }
}

/// Members that repeat the request or tell of the server are no arguments, and a function without parameters has none.
#[test]
fn a_call_without_arguments_is_made_beside_members_that_are_none() {
    let beside = |name: &str, value: Value| {
        let mut chunk = json!({"choices": [{"index": 0, "delta": {}}]});
        chunk[name] = value;
        chunk
    };
    let model = json!({"arch": "q"});
    let lost = json!([{"name": "echo", "arguments": {"text": "x"}}]);
    for (function, arguments, chunk, expected) in [
        (
            "echo",
            "",
            beside("hook_results", json!({"before": [{"x": 1}]})),
            "{}",
        ),
        ("echo", "", beside("model_info", model.clone()), "{}"),
        (
            "echo",
            "{}",
            beside("parameters", json!({"temperature": 1})),
            "{}",
        ),
        (
            "echo",
            "{}",
            beside("input", json!([{"role": "user", "content": "go"}])),
            "{}",
        ),
        ("echo", "", beside("payload", lost.clone()), ""),
        ("echo", "", delta(json!({"model_info": model})), ""),
        (
            "echo",
            "{}",
            delta(json!({"parameters": {"text": ["x"]}})),
            "",
        ),
        (
            "echo",
            "",
            delta(json!({"content": "{\"plan\": \"look\"}"})),
            "{}",
        ),
        (
            "free",
            "",
            delta(json!({"content": "{\"plan\": \"look\"}"})),
            "",
        ),
        // A name of formatting characters alone.
        (
            "free",
            "",
            delta(json!({"content": "I look - and - <->: -=1."})),
            "{}",
        ),
        ("list", "", beside("payload", lost), "{}"),
        ("list", "", delta(json!({"model_info": model})), "{}"),
        (
            "list",
            "{}",
            delta(json!({"parameters": {"text": ["x"]}})),
            "{}",
        ),
        (
            "list",
            "",
            delta(json!({"content": "{\"plan\": \"look\"}"})),
            "{}",
        ),
    ] {
        let open = delta(json!({"tool_calls": [
            {"index": 0, "id": "a", "function": {"name": function, "arguments": arguments}}]}));
        let completion = decode(&[open, chunk.clone()]);
        assert_eq!(completion.tool_calls.len(), 1, "{function} {chunk}");
        let made = &completion.tool_calls[0].arguments;
        assert_eq!(made, expected, "{function} {chunk}");
        let is_barred = completion.unplaced > 0;
        assert_eq!(is_barred, expected.is_empty(), "{function} {chunk}");
    }
}

/// Arguments in the text are the model's, so a call without any is not made.
#[test]
fn a_call_is_not_made_without_the_arguments_that_stand_in_the_text() {
    const FENCED: &str = "```json\n{\"text\": \"x\"}\n```";
    for (content, arguments, expected) in [
        (FENCED, "", ""),
        (FENCED, "{}", ""),
        (FENCED, "null", ""),
        (FENCED, "\"\"", ""),
        ("I echo it.\n{\"text\": \"x\"}\n", "{}", ""),
        ("<think>hm</think>{\"text\": \"x\"}", "", ""),
        ("I echo {\"other\": 1, \"text\": \"x\"}.", "", ""),
        ("I echo {\"do\": {\"arguments\": {\"other\": 1}}}.", "", ""),
        ("{\"text\": \"x", "", ""),
        (
            "<tool_call>{\"name\": \"echo\", \"arguments\": {\"text\": \"x\"}}</tool_call>",
            "{}",
            "",
        ),
        ("echo(text=\"x\")", "", ""),
        ("<parameter=text>x</parameter>", "", ""),
        ("<arg_key>text</arg_key>", "", ""),
        ("<parameter name=\"text\">x</parameter>", "", ""),
        ("<text>x</text>", "", ""),
        ("<thinking>hm</thinking>text=x", "", ""),
        ("text: x", "", ""),
        ("- **text**: x", "", ""),
        // The text has none.
        ("I echo the text.", "", "{}"),
        ("I echo the text.", "null", "null"),
        ("I echo the text: nothing.", "", "{}"),
        ("<think>{\"text\": \"x\"}?</think>I call it.", "", "{}"),
        (
            "<thinking>{\"text\": \"x\"}?</thinking>I call it.",
            "",
            "{}",
        ),
        ("[THINK]text=x?[/THINK]", "", "{}"),
        ("<thinking>{\"text\": \"x\"}", "", "{}"),
        ("I sort by text -> desc.", "", "{}"),
        ("I look if text > 5.", "", "{}"),
        ("Settings > path > text > x.", "", "{}"),
        ("I map text => x, <b>text</b>.", "", "{}"),
        (
            "The last result was {\"status\": \"ok\"}, now I echo.",
            "",
            "{}",
        ),
        ("I echo {\"other\": 1}.", "", "{}"),
        ("{\"name\": \"echo\", \"arguments\": {}}", "", "{}"),
        ("I echo {\"other\": 1}.", "{}", "{}"),
        ("The context=1, {x}.", "", "{}"),
        (FENCED, "{\"text\": \"y\"}", "{\"text\": \"y\"}"),
    ] {
        let open = delta(json!({"content": content, "tool_calls": [
            {"index": 0, "id": "a", "function": {"name": "echo", "arguments": arguments}}]}));
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
        let completion = decode(&[open, end]);
        let made = &completion.tool_calls[0].arguments;
        assert_eq!(made, expected, "{content}");
        let is_barred = completion.unplaced > 0;
        assert_eq!(is_barred, expected.is_empty(), "{content}");
    }
}

#[test]
fn arguments_in_the_text_are_not_told_as_an_empty_object() {
    let open = delta(json!({"content": "{\"text\": \"x\"}", "tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "echo", "arguments": "{}"}}]}));
    let body = format!("data: {open}\n\ndata: [DONE]\n\n");
    let functions = vec![OfferedFunction::new(
        "echo",
        &json!({"properties": {"text": {"type": "string"}}}),
    )];
    let mut decoder = Decoder::new(1 << 20, Some("text/event-stream")).offering(functions);
    let mut told = Vec::new();
    let mut emit = |delta: Delta| told.push(delta);
    decoder.push(body.as_bytes(), URL, &mut emit).unwrap();
    decoder.finish(URL, &mut emit).unwrap();
    let arguments = told.iter().filter_map(|delta| match delta {
        Delta::ToolCall { arguments, .. } => Some(arguments.as_str()),
        _ => None,
    });
    assert_eq!(arguments.collect::<String>(), "");
}
