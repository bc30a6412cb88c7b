//! What servers really answer, and what becomes of it.

use proptest::prelude::*;

use super::*;
use toolhold_protocol::completion::ChatToolCall;

const URL: &str = "http://endpoint/v1";
const LIMIT: usize = 8 << 20;

fn decode_chunks(
    content_type: &str,
    chunks: &[&[u8]],
) -> (Vec<Delta>, Result<Completion, ModelError>) {
    let mut deltas = Vec::new();
    let mut emit = |delta| deltas.push(delta);
    let mut decoder = Decoder::new(LIMIT, Some(content_type));
    let pushed = chunks
        .iter()
        .try_for_each(|chunk| decoder.push(chunk, URL, &mut emit));
    let result = pushed.and_then(|()| decoder.finish(URL, &mut emit));
    (deltas, result)
}

fn decode(body: &str) -> Result<Completion, ModelError> {
    decode_chunks("text/event-stream", &[body.as_bytes()]).1
}

/// What a table row expects.
enum ExpectedDecoding {
    /// Content, reasoning, names of the called tools.
    Done(&'static str, &'static str, &'static [&'static str]),
    /// The content that was received before the cut.
    Truncated(&'static str),
    /// A word of the message.
    InStream(&'static str),
    Decode,
    NotAnEndpoint,
}

#[test]
fn malformed_and_odd_answers() {
    use ExpectedDecoding::{Decode, Done, InStream, NotAnEndpoint, Truncated};
    const HI: &str = r#"data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}"#;
    const STOP: &str = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const CALL: &str = r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"add","arguments":"{}"}}]}}]}"#;
    let lines = |lines: &[&str]| lines.join("\n\n") + "\n\n";
    let rows: Vec<(&str, String, ExpectedDecoding)> = vec![
        ("as specified", lines(&[r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#, HI, STOP, "data: [DONE]"]), Done("hi", "", &[])),
        ("role with null content first", lines(&[r#"data: {"choices":[{"delta":{"role":"assistant","content":null}}]}"#, HI, STOP]), Done("hi", "", &[])),
        ("null delta", lines(&[r#"data: {"choices":[{"delta":null}]}"#, HI, STOP]), Done("hi", "", &[])),
        ("no [DONE] after a finish reason", lines(&[HI, STOP]), Done("hi", "", &[])),
        ("[DONE] without a finish reason", lines(&[HI, "data: [DONE]"]), Done("hi", "", &[])),
        ("[DONE] with white space around", lines(&[HI, "data:  [DONE] "]), Done("hi", "", &[])),
        ("nothing but [DONE]", lines(&["data: [DONE]"]), Truncated("")),
        ("text after [DONE]", lines(&[HI, "data: [DONE]", HI, "data: nonsense"]), Done("hi", "", &[])),
        ("no last blank line", [HI, STOP].join("\n\n"), Done("hi", "", &[])),
        ("a clean end in the middle", lines(&[HI]), Truncated("hi")),
        ("cut inside an event", lines(&[HI]) + r#"data: {"choices":[{"del"#, Truncated("hi")),
        ("usage but no end", lines(&[HI, r#"data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#]), Truncated("hi")),
        ("an empty body", String::new(), Truncated("")),
        ("only keep-alives", ": ping\n\n: ping\n\n".into(), Truncated("")),
        ("keep-alives between", lines(&[": ping", HI, ": ping", STOP]), Done("hi", "", &[])),
        ("empty data", lines(&["data:", HI, "data: ", STOP]), Done("hi", "", &[])),
        ("events of other types", lines(&[r#"data: {"type":"ping"}"#, HI, STOP]), Done("hi", "", &[])),
        ("events that are signs of life", lines(&["event: ping\ndata: ping", "data: ping", "event: keepalive\ndata: {}", r#"data: {"type":"heartbeat"}"#, HI, "data: 1718900000", STOP]), Done("hi", "", &[])),
        ("an error in words", lines(&[HI, "event: error\ndata: busy"]), InStream("busy")),
        ("an error among the events, without a field", lines(&[HI, r#"{"error":{"message":"gone"}}"#]), InStream("gone")),
        ("a refusal as a part", lines(&[r#"data: {"choices":[{"delta":{"content":[{"type":"refusal","refusal":"no"}]}}]}"#, STOP]), Done("no", "", &[])),
        ("a part outside of a list", lines(&[r#"data: {"choices":[{"delta":{"content":{"type":"text","text":"hi"}}}]}"#, STOP]), Done("hi", "", &[])),
        ("JSON that is no text any more", r#"{"choices":[{"message":{"content":{"a":1}},"finish_reason":"stop"}]}"#.into(), Done(r#"{"a":1}"#, "", &[])),
        ("half a character", lines(&[r#"data: {"choices":[{"delta":{"content":"hi\ud83d"}}]}"#, STOP]), Done("hi\u{fffd}", "", &[])),
        ("the field name twice", lines(&[&format!("data: {HI}"), STOP]), Done("hi", "", &[])),
        ("an event that is no JSON", lines(&[HI, "data: {oops}", STOP]), Decode),
        ("reasoning", lines(&[r#"data: {"choices":[{"delta":{"reasoning":"hm"}}]}"#, HI, STOP]), Done("hi", "hm", &[])),
        ("reasoning_content", lines(&[r#"data: {"choices":[{"delta":{"reasoning_content":"hm","content":null}}]}"#, HI, STOP]), Done("hi", "hm", &[])),
        ("reasoning under both names", lines(&[r#"data: {"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}"#, HI, STOP]), Done("hi", "hm", &[])),
        ("content in parts", lines(&[r#"data: {"choices":[{"delta":{"content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]}}]}"#, STOP]), Done("hi", "", &[])),
        ("a second choice", lines(&[r#"data: {"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"}]}"#, HI, STOP]), Done("hi", "", &[])),
        ("a tool call", lines(&[CALL, STOP]), Done("", "", &["add"])),
        ("a tool call, finished as stop", lines(&[HI, CALL, STOP, "data: [DONE]"]), Done("hi", "", &["add"])),
        ("null tool calls", lines(&[r#"data: {"choices":[{"delta":{"content":"hi","tool_calls":null}}]}"#, STOP]), Done("hi", "", &[])),
        ("an old function call", lines(&[r#"data: {"choices":[{"delta":{"function_call":{"name":"add","arguments":"{}"}}}]}"#, STOP]), Done("", "", &["add"])),
        ("the whole message repeated at the end", lines(&[HI, r#"data: {"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("the whole message behind the reasoning", lines(&[r#"data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}"#, r#"data: {"choices":[{"message":{"content":"hi","reasoning_content":"hm"},"finish_reason":"stop"}]}"#]), Done("hi", "hm", &[])),
        ("a call in the message behind the reasoning", lines(&[r#"data: {"choices":[{"delta":{"reasoning":"hm"}}]}"#, r#"data: {"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","function":{"name":"add","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#]), Done("", "hm", &["add"])),
        ("a message beside an empty delta", lines(&[r#"data: {"choices":[{"delta":{},"message":{"content":"hi"},"finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("the message so far in every chunk", lines(&[r#"data: {"choices":[{"message":{"content":"h"}}]}"#, r#"data: {"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("pieces that are called messages", lines(&[r#"data: {"choices":[{"message":{"content":"h"}}]}"#, r#"data: {"choices":[{"message":{"content":"i"},"finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("another message behind deltas", lines(&[HI, r#"data: {"choices":[{"message":{"content":"ho"},"finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("text in the place of a delta", lines(&[r#"data: {"choices":[{"index":0,"text":"h","finish_reason":null}]}"#, r#"data: {"choices":[{"index":0,"text":"i","finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("several values in one event", [HI, HI, STOP].join("").replace("}data: ", "}") + "\n\n", Done("hihi", "", &[])),
        ("several values, each a line of one event", lines(&[&[HI, HI].join("\n"), STOP]), Done("hihi", "", &[])),
        ("no blank lines", [HI, HI, STOP, "data: [DONE]"].join("\n"), Done("hihi", "", &[])),
        ("no blank lines, and the last value cut", [HI, HI, "data: {\"choi"].join("\n"), Truncated("hihi")),
        ("a value and words", lines(&["data: {\"choices\":[]} oops", STOP]), Decode),
        ("a number beyond those of 64 bits", lines(&[r#"data: {"created":123456789012345678901234567890,"x":1e999,"choices":[{"delta":{"content":"hi"}}]}"#, STOP]), Done("hi", "", &[])),
        ("a character in two pieces", lines(&[r#"data: {"choices":[{"delta":{"content":"\ud83d"}}]}"#, r#"data: {"choices":[{"delta":{"content":"\ude00"}}]}"#, STOP]), Done("😀", "", &[])),
        ("half a character before other text", lines(&[r#"data: {"choices":[{"delta":{"content":"\ud83d"}}]}"#, HI, STOP]), Done("\u{fffd}hi", "", &[])),
        ("finish reason abort", lines(&[HI, r#"data: {"choices":[{"delta":{},"finish_reason":"abort"}]}"#]), InStream("gave the generation up")),
        ("finish reason with the last text", lines(&[r#"data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"length"}]}"#]), Done("hi", "", &[])),
        ("an error after text, then [DONE]", lines(&[HI, r#"data: {"error":{"message":"engine died","code":500}}"#, "data: [DONE]"]), InStream("engine died")),
        ("a flat error", lines(&[r#"data: {"object":"error","message":"flat","code":400}"#]), InStream("flat")),
        ("an error as text", lines(&[HI, r#"data: {"error":"overloaded","error_type":"overloaded"}"#]), InStream("overloaded")),
        ("an error event", lines(&[HI, "event: error\ndata: {\"message\":\"gone\"}"]), InStream("gone")),
        ("an error event in plain text", lines(&[HI, "event: error\ndata: gone away"]), InStream("gone away")),
        ("an error event with odd data", lines(&["event: error\ndata: {\"why\":\"x\"}"]), InStream("why")),
        ("an error without a last blank line", format!("{HI}\n\ndata: {{\"error\":\"late\"}}"), InStream("late")),
        ("error null beside choices", lines(&[r#"data: {"error":null,"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#]), Done("hi", "", &[])),
        ("one JSON answer", r#" {"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#.into(), Done("hi", "", &[])),
        ("one JSON answer with a call and no reason", r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"add","arguments":"{}"}}]}}]}"#.into(), Done("", "", &["add"])),
        ("one JSON error with 200", r#"{"error":{"message":"no such model"}}"#.into(), InStream("no such model")),
        ("one flat JSON error with 200", r#"{"detail":"nope"}"#.into(), InStream("nope")),
        ("JSON without choices", r#"{"hello":"world"}"#.into(), Decode),
        ("JSON with empty choices", r#"{"choices":[]}"#.into(), Decode),
        ("JSON cut in the middle", r#"{"choices":[{"message":{"con"#.into(), Truncated("")),
        ("JSON with a NUL behind it", "{\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n\0 \n".into(), Done("hi", "", &[])),
        ("two JSON lines", "{\"message\":\"a\"}\n{\"message\":\"b\"}".into(), Decode),
        ("JSON lines", lines(&[HI, STOP]).replace("data: ", ""), Done("hi", "", &[])),
        ("JSON lines without an end", [HI, HI].join("\n").replace("data: ", ""), Truncated("hihi")),
        ("one JSON line without an end", HI.replace("data: ", ""), Truncated("hi")),
        ("JSON lines with the mark", [HI, "[DONE]"].join("\n").replace("data: ", ""), Done("hi", "", &[])),
        ("JSON lines, the last one cut", [HI, STOP, "{\"cho"].join("\n").replace("data: ", ""), Done("hi", "", &[])),
        ("a filter's word before and between (Azure)", lines(&[r#"data: {"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}"#, r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null,"logprobs":null,"content_filter_results":{}}]}"#, HI, r#"data: {"choices":[{"index":0,"finish_reason":null,"content_filter_offsets":{"check_offset":1},"content_filter_results":{"hate":{"filtered":false}}}]}"#, STOP, r#"data: {"choices":[{"index":0,"finish_reason":null,"content_filter_results":{}}]}"#, "data: [DONE]"]), Done("hi", "", &[])),
        ("an empty finish reason in every chunk", lines(&[r#"data: {"choices":[{"delta":{"content":"h"},"finish_reason":""}]}"#, r#"data: {"choices":[{"delta":{"content":"i"},"finish_reason":""}]}"#, STOP]), Done("hi", "", &[])),
        ("an empty chunk with the counts behind the end (OpenRouter)", lines(&[": OPENROUTER PROCESSING", HI, STOP, r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"native_finish_reason":null,"logprobs":null}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#]), Done("hi", "", &[])),
        ("the counts in every chunk (vLLM, continuous_usage_stats)", lines(&[r#"data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#, STOP, "data: [DONE]"]), Done("hi", "", &[])),
        ("the end beside the last text, and the mark (TGI, TensorRT-LLM, Gemini)", lines(&[HI, r#"data: {"choices":[{"delta":{"role":"assistant","content":"!"},"finish_reason":"stop"}]}"#, "data: [DONE]"]), Done("hi!", "", &[])),
        ("the counts in a chunk of the end, thoughts that are null (DeepSeek)", lines(&[r#"data: {"choices":[{"delta":{"content":null,"reasoning_content":"hm"},"finish_reason":null}],"usage":null}"#, r#"data: {"choices":[{"delta":{"content":"hi","reasoning_content":null},"finish_reason":null}],"usage":null}"#, r#"data: {"choices":[{"delta":{"content":"","reasoning_content":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#, "data: [DONE]"]), Done("hi", "hm", &[])),
        ("a call whole in one chunk, the end in the next (Ollama)", lines(&[r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_1","index":0,"type":"function","function":{"name":"add","arguments":"{}"}},{"id":"call_2","index":0,"type":"function","function":{"name":"mul","arguments":"{}"}}]},"finish_reason":null}]}"#, r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"tool_calls"}]}"#, "data: [DONE]"]), Done("", "", &["add", "mul"])),
        ("a call that is an object and no list (TGI)", lines(&[r#"data: {"choices":[{"delta":{"role":"assistant","tool_calls":{"index":0,"id":"","type":"function","function":{"name":"add","arguments":"{}"}}},"finish_reason":"eos_token"}]}"#, "data: [DONE]"]), Done("", "", &["add"])),
        ("an error as a field (llama.cpp)", lines(&[HI, r#"error: {"code":500,"message":"slot died","type":"server_error"}"#]), InStream("slot died")),
        ("words behind the end", lines(&[HI, STOP, "event: done\ndata: that was all"]), Done("hi", "", &[])),
        ("a page", "<!doctype html><title>Welcome</title>".into(), NotAnEndpoint),
        ("a page with a byte order mark", "\u{feff}\n<html></html>".into(), NotAnEndpoint),
    ];
    for (what, body, expected) in rows {
        let result = decode(&body);
        match (&result, &expected) {
            (Ok(done), Done(content, reasoning, tools)) => {
                assert_eq!(
                    (&*done.content, &*done.reasoning),
                    (*content, *reasoning),
                    "{what}"
                );
                let names: Vec<&str> = done.tool_calls.iter().map(|c| &*c.name).collect();
                assert_eq!(names, *tools, "{what}");
            }
            (
                Err(ModelError::Truncated {
                    received,
                    source: None,
                }),
                Truncated(content),
            ) => {
                assert_eq!(received.content, *content, "{what}");
            }
            (Err(ModelError::InStream { detail, .. }), InStream(word)) => {
                assert!(detail.message.contains(word), "{what}: {detail}");
            }
            (Err(ModelError::Decode { .. }), Decode)
            | (Err(ModelError::NotAnEndpoint { .. }), NotAnEndpoint) => {}
            _ => panic!("{what}: {result:?}"),
        }
    }
}

#[test]
fn half_a_character_of_arguments_waits_for_the_other_half() {
    let piece = |arguments: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"name\":\"f\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
        )
    };
    let begin = piece(r#"{\"a\":\"\ud83d"#);
    for (rest, text) in [
        (vec![piece(r"\ude00"), piece(r#"\"}"#)], "😀"),
        (vec![piece(r#"\ude00\"}"#)], "😀"),
        (vec![piece(r#"\"}"#)], "\u{fffd}"),
    ] {
        let body = format!("{begin}{}data: [DONE]\n\n", rest.concat());
        let completion = decode(&body).unwrap();
        let expected = format!("{{\"a\":\"{text}\"}}");
        assert_eq!(completion.tool_calls[0].arguments, expected, "{body}");
    }
}

/// Some servers have an empty call in each chunk of a text. Where a call was announced and there is no answer, it is lost.
#[test]
fn an_empty_call_beside_a_text_is_no_lost_one() {
    const NONE: &str = r#""function_call":{"name":"","arguments":""}"#;
    const EMPTY: &str =
        r#""tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":""}}]"#;
    for (call, content, reason, unplaced) in [
        (NONE, "hi", "stop", 0),
        (EMPTY, "hi", "stop", 0),
        (EMPTY, "I call.", "tool_calls", 1),
        (EMPTY, "\n", "stop", 1),
    ] {
        let chunk = serde_json::json!(content);
        let body = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":{chunk},{call}}},\"finish_reason\":null}}]}}\n\n\
             data: {{\"choices\":[{{\"delta\":{{{call}}},\"finish_reason\":\"{reason}\"}}]}}\n\n"
        );
        let completion = decode(&body).unwrap();
        assert_eq!(completion.content, content);
        assert_eq!(completion.unplaced, unplaced, "{body}");
        assert!(completion.tool_calls.is_empty(), "{body}");
    }
}

/// The arguments of a call, in places where servers were seen to write them, and in places that are not read. No such
/// reply makes a call without arguments.
#[test]
fn a_call_whose_arguments_stand_elsewhere_is_not_made_empty() {
    use serde_json::json;
    const TEXT: &str = "{\"text\":\"x\"}";
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let piece = json!([{"index": 0, "function": {"arguments": TEXT}}]);
    let whole =
        json!([{"id": "a", "type": "function", "function": {"name": "echo", "arguments": TEXT}}]);
    let rows = [
        (
            "a message at the end",
            json!({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": whole}}]}),
            TEXT,
        ),
        (
            "a message beside an empty delta",
            json!({"choices": [{"index": 0, "delta": {}, "message": {"tool_calls": piece}}]}),
            TEXT,
        ),
        (
            "a piece beside the delta",
            json!({"choices": [{"index": 0, "delta": {}, "tool_calls": piece}]}),
            TEXT,
        ),
        (
            "the whole call beside the delta",
            json!({"choices": [{"index": 0, "delta": {"content": ""}, "tool_calls": whole}]}),
            TEXT,
        ),
        (
            "a piece beside the choices",
            json!({"choices": [], "tool_calls": piece}),
            TEXT,
        ),
        (
            "arguments in the delta",
            delta(json!({"arguments": TEXT})),
            TEXT,
        ),
        (
            "input in the delta",
            delta(json!({"input": {"text": "x"}})),
            TEXT,
        ),
        (
            "a piece of JSON in the delta",
            delta(json!({"type": "input_json_delta", "partial_json": TEXT})),
            TEXT,
        ),
        (
            "one call",
            delta(json!({"tool_call": {"index": 0, "arguments": TEXT}})),
            TEXT,
        ),
        (
            "chunks of calls",
            delta(json!({"tool_call_chunks": [{"index": 0, "args": TEXT}]})),
            TEXT,
        ),
        ("calls as a text", delta(json!({"tool_calls": TEXT})), TEXT),
        ("calls as texts", delta(json!({"tool_calls": [TEXT]})), TEXT),
        (
            "a function as a text",
            delta(json!({"tool_calls": [{"index": 0, "function": TEXT}]})),
            TEXT,
        ),
        (
            "a function in a list",
            delta(json!({"tool_calls": [{"index": 0, "function": [{"arguments": TEXT}]}]})),
            TEXT,
        ),
        (
            "a part of the content",
            delta(
                json!({"content": [{"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "x"}}]}),
            ),
            TEXT,
        ),
        (
            "a piece in a part of the content",
            delta(json!({"content": [{"type": "input_json_delta", "partial_json": TEXT}]})),
            TEXT,
        ),
        // Not read.
        ("the text", delta(json!({"content": TEXT})), ""),
        (
            "arguments beside the delta",
            json!({"choices": [{"index": 0, "delta": {}, "arguments": TEXT}]}),
            "",
        ),
        (
            "another choice",
            json!({"choices": [{"index": 1, "delta": {"tool_calls": piece}}]}),
            "",
        ),
        (
            "another choice beside the first one",
            json!({"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"tool_calls": piece}}]}),
            "",
        ),
        (
            "a member that is not known",
            delta(json!({"payload": {"text": "x"}})),
            "",
        ),
        // None of these is a place of arguments.
        ("nothing", delta(json!({})), "{}"),
        (
            "a word",
            delta(json!({"obfuscation": "aF3", "vendor": "v"})),
            "{}",
        ),
        (
            "what servers are known to send",
            json!({"choices": [{"index": 0, "delta": {"content": ""}, "content_filter_results": {"hate": {}}}], "x_groq": {"id": "q"}}),
            "{}",
        ),
        (
            "what came before the call",
            json!({"choices": [{"index": 0, "delta": {}}], "vendor": {"latency": 8}}),
            "{}",
        ),
    ];
    for (what, chunk, arguments) in rows {
        let before =
            json!({"vendor": {"latency": 7}, "choices": [{"delta": {"role": "assistant"}}]});
        let open = delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "echo", "arguments": ""}}]}),
        );
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
        let chunks = [before, open, chunk, end].map(|chunk| format!("data: {chunk}\n\n"));
        let (deltas, result) = decode_chunks(
            "text/event-stream",
            &chunks.each_ref().map(String::as_bytes),
        );
        let completion = result.unwrap();
        let calls = &completion.tool_calls;
        assert_eq!(calls.len(), 1, "{what}");
        assert_eq!(calls[0].arguments, arguments, "{what}");
        assert_eq!(completion.unplaced > 0, arguments.is_empty(), "{what}");
        let mut read = Completion::default();
        for delta in &deltas {
            read.add(delta);
        }
        let told = &read.tool_calls[0].arguments;
        assert!(
            told == arguments || (told.is_empty() && arguments == "{}"),
            "{what}: {told}"
        );
    }
}

/// A list of calls that came before makes none of them again, however it is written.
#[test]
fn a_call_that_is_repeated_elsewhere_is_one() {
    use serde_json::json;
    let call = |arguments: Value| json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "echo", "arguments": arguments}}]);
    let own = call(json!("{\"text\": \"x\"}"));
    let again = call(json!({"text": "x"}));
    let part = json!({"type": "tool_use", "id": "a", "name": "echo", "input": {"text": "x"}});
    for chunks in [
        vec![
            json!({"choices": [{"delta": {"tool_calls": own}, "tool_calls": own}], "tool_calls": own}),
        ],
        vec![json!({"choices": [{"delta": {"tool_calls": own}, "tool_calls": again}]})],
        vec![
            json!({"choices": [{"delta": {"tool_calls": own}}]}),
            json!({"choices": [{"delta": {}, "tool_calls": again}]}),
            json!({"choices": [{"message": {"content": null, "tool_calls": again}}]}),
        ],
        vec![json!({"choices": [{"message": {"content": [part], "tool_calls": own}}]})],
        vec![json!({"choices": [{"delta": {"content": [part], "tool_calls": own}}]})],
        vec![json!({"choices": [{"message": {"content": [part]}}]})],
    ] {
        let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
        let body = events.collect::<String>() + "data: [DONE]\n\n";
        let completion = decode(&body).unwrap();
        assert_eq!(completion.tool_calls.len(), 1, "{body}");
        assert_eq!(completion.unplaced, 0, "{body}");
        let arguments: Value = serde_json::from_str(&completion.tool_calls[0].arguments).unwrap();
        assert_eq!(arguments, json!({"text": "x"}), "{body}");
    }
}

/// A finish reason is an end where the endpoint does not write one into every chunk.
#[test]
fn a_finish_reason_counts_by_the_others() {
    // Whether it is complete if the body ends in good order, if the connection breaks, and after a short silence.
    const OPEN: [bool; 3] = [false; 3];
    const ENDED: [bool; 3] = [true, false, false];
    const CERTAIN: [bool; 3] = [true, true, false];
    const TAIL: [bool; 3] = [true; 3];
    let text = |finish: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let blank = |finish: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"\"}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let call = |index: u8, finish: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{index},\"function\":{{\"name\":\"f\",\"arguments\":\"{{}}\"}}}}]}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let (null, stop) = ("null", "\"stop\"");
    let done = "data: [DONE]\n\n".to_owned();
    for (what, chunks, expected) in [
        ("text", vec![text(null)], OPEN),
        ("text, then the end", vec![text(null), blank(stop)], TAIL),
        ("the end beside the last text", vec![text(null), text(stop)], CERTAIN),
        ("one chunk that has both", vec![text(stop)], ENDED),
        ("in every chunk", vec![text(stop), text(stop)], OPEN),
        ("in every chunk, the first without text", vec![blank(stop), text(stop)], OPEN),
        ("in every chunk, one between without text", vec![text(stop), blank(stop)], ENDED),
        ("in every chunk, the last without text", vec![text(stop), text(stop), blank(stop)], ENDED),
        ("in every chunk, then the mark", vec![text(stop), text(stop), done.clone()], TAIL),
        ("text behind the end", vec![text(null), blank(stop), text(null)], OPEN),
        ("a call behind the end", vec![call(0, stop), call(1, null)], OPEN),
        ("two calls with an end each", vec![call(0, stop), call(1, stop)], OPEN),
        ("an end and no text", vec![blank(null), blank(stop)], ENDED),
        ("the mark alone", vec![done], OPEN),
        ("the end, then the counts", vec![text(null), blank(stop), "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n".into()], TAIL),
    ] {
        let mut decoder = Decoder::new(LIMIT, Some("text/event-stream"));
        for chunk in &chunks {
            decoder.push(chunk.as_bytes(), URL, &mut |_| {}).unwrap();
        }
        let is = [decoder.is_whole(), decoder.is_certain(), decoder.is_tail()];
        assert_eq!(is, expected, "{what}");
        let ended = decoder.finish(URL, &mut |_| {});
        assert_eq!(ended.is_ok(), expected[0], "{what}: {ended:?}");
    }
}

#[test]
fn an_error_behind_text_with_a_finish_reason_in_every_chunk_is_one() {
    const TEXT: &str =
        "data: {\"choices\":[{\"delta\":{\"content\":\"not \"},\"finish_reason\":\"stop\"}]}\n\n";
    let error = "data: {\"error\":{\"message\":\"boom\"}}\n\n";
    let result = decode(&format!("{TEXT}{TEXT}{error}"));
    let Err(ModelError::InStream { received, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(received.content, "not not ");
}

#[test]
fn thoughts_among_the_parts_of_the_content_are_kept() {
    let thought = |text: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":[{{\"type\":\"thinking\",\"thinking\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}]}}}}]}}\n\n"
        )
    };
    let body = format!("{}{}data: [DONE]\n\n", thought("I "), thought("add."));
    let completion = decode(&body).unwrap();
    assert_eq!(completion.reasoning, "I add.");
    assert_eq!(
        Value::Object(completion.carried_reasoning()),
        serde_json::json!({"content_thoughts": [{"type": "thinking", "thinking": [{"type": "text", "text": "I add."}]}]})
    );
}

#[test]
fn reasoning_is_kept_with_the_names_that_it_came_with() {
    let delta = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    for (deltas, text, members) in [
        (
            vec![
                r#"{"reasoning_content":"h"}"#,
                r#"{"reasoning_content":"m"}"#,
            ],
            "hm",
            serde_json::json!({"reasoning_content": "hm"}),
        ),
        (
            vec![r#"{"reasoning":"hm","reasoning_content":"hm"}"#],
            "hm",
            serde_json::json!({"reasoning": "hm", "reasoning_content": "hm"}),
        ),
        (
            vec![
                r#"{"reasoning":"h","reasoning_details":[{"type":"reasoning.text","index":0,"text":"h"}]}"#,
                r#"{"reasoning":"m","reasoning_details":[{"type":"reasoning.text","index":0,"text":"m","signature":"s"}]}"#,
            ],
            "hm",
            serde_json::json!({"reasoning": "hm", "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"}]}),
        ),
        (
            vec![r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"hm"}]}"#],
            "hm",
            serde_json::json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]}),
        ),
        (
            vec![
                r#"{"reasoning_content":"hm","thinking_blocks":[{"type":"thinking","thinking":"hm","signature":null}]}"#,
                r#"{"reasoning_content":"","thinking_blocks":[{"type":"thinking","thinking":"","signature":"s"}],"extra_content":{"google":{"thought":true}}}"#,
                r#"{"extra_content":{"google":{"thought_signature":"AA"}}}"#,
            ],
            "hm",
            serde_json::json!({"reasoning_content": "hm",
                "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
                "extra_content": {"google": {"thought_signature": "AA"}}}),
        ),
        (
            vec![r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#],
            "hm",
            serde_json::json!({"content_thoughts": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
        ),
        (
            vec![r#"{"content":"hi","reasoning_content":"","reasoning_details":[]}"#],
            "",
            serde_json::json!({}),
        ),
    ] {
        let body: String = deltas.iter().map(|it| delta(it)).collect();
        let completion = decode(&(body + stop)).unwrap();
        assert_eq!(completion.reasoning, text, "{deltas:?}");
        assert_eq!(
            Value::Object(completion.carried_reasoning()),
            members,
            "{deltas:?}"
        );
        assert!(completion.extra.is_empty(), "{deltas:?}");
    }
}

#[test]
fn a_signature_stays_with_the_call_that_it_came_with() {
    let body = concat!(
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",",
        "\"extra_content\":{\"google\":{\"thought_signature\":\"AA\"}},",
        "\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",",
        "\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
    );
    let members = decode(body).unwrap().call_members();
    let signed = serde_json::json!({"extra_content": {"google": {"thought_signature": "AA"}}});
    assert_eq!(serde_json::json!(members), serde_json::json!([signed, {}]));
}

#[test]
fn the_bytes_decide_before_the_content_type() {
    let stream =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n";
    for content_type in [
        "text/event-stream; charset=utf-8",
        "application/json",
        "text/plain",
        "",
    ] {
        let (_, result) = decode_chunks(content_type, &[stream]);
        assert_eq!(result.unwrap().content, "hi", "{content_type}");
    }
    let (_, result) = decode_chunks("text/plain", &[b"it works!"]);
    let message = result.unwrap_err().to_string();
    assert!(
        message.contains("it works!") && message.contains("/v1"),
        "{message}"
    );
}

#[test]
fn usage_model_and_deltas_are_kept() {
    let body = concat!(
        "data: {\"model\":\"m1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        "data: {\"model\":\"m1\",\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n",
        "data: [DONE]\n\n",
    );
    let (deltas, result) = decode_chunks("text/event-stream", &[body.as_bytes()]);
    let completion = result.unwrap();
    assert_eq!(
        deltas,
        [Delta::Content("a".into()), Delta::Content("b".into())]
    );
    assert_eq!(completion.model.as_deref(), Some("m1"));
    assert_eq!(completion.finish_reason.as_deref(), Some("stop"));
    let usage = completion.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (7, 2));
}

#[test]
fn an_error_keeps_what_was_received() {
    let body = concat!(
        "data: {\"choices\":[{\"delta\":{\"content\":\"hi\",\"tool_calls\":[{\"index\":0,\"id\":\"a\",",
        "\"function\":{\"name\":\"add\",\"arguments\":\"{\"}}]}}]}\n\n",
        "data: {\"error\":{\"message\":\"boom\"}}\n\n",
    );
    let Err(ModelError::InStream { received, .. }) = decode(body) else {
        panic!("no error");
    };
    assert_eq!(received.content, "hi");
    let call = ChatToolCall {
        id: "a".into(),
        name: "add".into(),
        arguments: "{".into(),
        ..ChatToolCall::default()
    };
    assert_eq!(received.tool_calls, [call]);
}

#[test]
fn endless_answers_are_cut_at_the_limit() {
    let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\"blah\"}}]}\n\n";
    let mut decoder = Decoder::new(4096, Some("text/event-stream"));
    let result = (0..1000).try_for_each(|_| decoder.push(chunk, URL, &mut |_| {}));
    assert!(
        matches!(result, Err(ModelError::TooLarge { limit: 4096, .. })),
        "{result:?}"
    );
    assert!(decoder.into_completion().content.len() < 4096);
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_answer(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        json in any::<bool>(),
    ) {
        let stream = concat!(
            "\u{feff}: hello\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"grüße 😀\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":",
            "{\"name\":\"add\",\"arguments\":\"{\\\"x\\\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
            "data: [DONE]\n\n",
        );
        let whole = r#"{"choices":[{"message":{"content":"grüße 😀"},"finish_reason":"stop"}]}"#;
        let bytes = if json { whole.as_bytes() } else { stream.as_bytes() };
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let (deltas, result) = decode_chunks("text/event-stream", &chunks);
        let (expected_deltas, expected) = decode_chunks("text/event-stream", &[bytes]);
        prop_assert_eq!(deltas, expected_deltas);
        prop_assert_eq!(result.unwrap(), expected.unwrap());
    }
}
