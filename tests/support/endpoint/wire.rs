//! How a reply looks on the wire: the events of a stream, or one JSON answer.

use serde_json::{Value, json};

use super::scenario::{Reply, ToolCall};

/// Characters of text in one chunk: about a token.
const PIECE: usize = 4;

/// The events of a streamed answer, each with its terminator.
pub(super) fn events(reply: &Reply, model: &str) -> Vec<Vec<u8>> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({
            "id": "chatcmpl-scripted",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    };
    let size = reply.piece.unwrap_or(PIECE);
    let mut chunks = vec![chunk(json!({"role": "assistant", "content": null}), None)];
    for piece in pieces(reply.reasoning.as_deref().unwrap_or_default(), size) {
        chunks.push(chunk(json!({"reasoning_content": piece}), None));
    }
    for piece in pieces(&reply.text().unwrap_or_default(), size) {
        chunks.push(chunk(json!({"content": piece}), None));
    }
    for (index, call) in reply.tool_calls.iter().enumerate() {
        let head = json!({"index": index, "id": id_of(call, index), "type": "function",
            "function": {"name": call.name, "arguments": ""}});
        chunks.push(chunk(json!({"tool_calls": [head]}), None));
        for piece in pieces(&call.arguments_text(), size) {
            let fragment = json!({"index": index, "function": {"arguments": piece}});
            chunks.push(chunk(json!({"tool_calls": [fragment]}), None));
        }
    }
    if !reply.cut {
        chunks.push(chunk(json!({}), Some(&finish_reason(reply))));
        let mut last = chunk(json!({}), None);
        last["choices"] = json!([]);
        last["usage"] = usage(reply);
        chunks.push(last);
    }
    let end = if reply.crlf { "\r\n\r\n" } else { "\n\n" };
    let mut events: Vec<Vec<u8>> = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}{end}").into_bytes())
        .collect();
    if !reply.cut && !reply.no_done {
        events.push(format!("data: [DONE]{end}").into_bytes());
    }
    if reply.invalid_utf8 {
        spoil(&mut events);
    }
    events
}

/// One event of a stream without end.
pub(super) fn endless_event(model: &str) -> Vec<u8> {
    let chunk = json!({"object": "chat.completion.chunk", "model": model,
        "choices": [{"index": 0, "delta": {"content": "and so on "}, "finish_reason": null}]});
    format!("data: {chunk}\n\n").into_bytes()
}

/// The answer to a request that did not ask for a stream.
pub(super) fn answer(reply: &Reply, model: &str) -> Value {
    let calls: Vec<Value> = reply
        .tool_calls
        .iter()
        .enumerate()
        .map(|(index, call)| {
            json!({"id": id_of(call, index), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text()}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": reply.text()});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    if let Some(reasoning) = &reply.reasoning {
        message["reasoning_content"] = reasoning.as_str().into();
    }
    json!({
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(reply)}],
        "usage": usage(reply),
    })
}

/// The first instance of a schema of constants, alternatives, objects, arrays and `null`: what a
/// constrained model writes where it has no choice.
pub(super) fn instance(schema: &Value) -> Value {
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if let Some(first) = schema["anyOf"].get(0) {
        return instance(first);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            properties
                .map(|(name, schema)| (name.clone(), instance(schema)))
                .collect()
        }
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(0);
            (0..count).map(|_| instance(&schema["items"])).collect()
        }
        Some("string") => "".into(),
        _ => Value::Null,
    }
}

fn id_of(call: &ToolCall, index: usize) -> String {
    call.id.clone().unwrap_or_else(|| format!("call_{index}"))
}

fn finish_reason(reply: &Reply) -> String {
    let usual = if reply.tool_calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    reply.finish_reason.clone().unwrap_or_else(|| usual.into())
}

fn usage(reply: &Reply) -> Value {
    let (prompt, completion) = reply.usage.unwrap_or((10, 5));
    json!({"prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion})
}

fn pieces(text: &str, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let pieces = characters.chunks(size.max(1));
    pieces.map(|piece| piece.iter().collect()).collect()
}

/// Puts a stray byte into the text of the first content event.
fn spoil(events: &mut [Vec<u8>]) {
    let marker = b"\"content\":\"";
    for event in events {
        if let Some(place) = event.windows(marker.len()).position(|part| part == marker) {
            event.insert(place + marker.len(), 0xff);
            return;
        }
    }
}
