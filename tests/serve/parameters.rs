//! The parameters of OpenAI's APIs, as the table in `docs/server.md` has them: each of its cells has a row here.

use super::{answers, calls, host, scripted, serve};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::endpoint::Reply;

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// The effect of a parameter by the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ParameterEffect {
    Done,
    None,
    Refused,
}

impl ParameterEffect {
    const ALL: [(&'static str, Self); 3] = [
        ("**done**", Self::Done),
        ("**no effect**", Self::None),
        ("**refused**", Self::Refused),
    ];
}

/// The place of the effect.
#[derive(Debug)]
enum SeenAt {
    /// In the request to the model's endpoint.
    Sent(&'static str, Value),
    /// In the answer.
    Answered(&'static str, Value),
    /// In the text of a stream.
    Streamed(&'static str),
    /// In the status alone.
    Status,
}

struct ParameterRow {
    path: &'static str,
    name: &'static str,
    /// Members of the request.
    members: Value,
    effect: ParameterEffect,
    reply: Reply,
    seen: SeenAt,
}

fn row(path: &'static str, name: &'static str, members: Value, seen: SeenAt) -> ParameterRow {
    ParameterRow {
        path,
        name,
        members,
        effect: ParameterEffect::Done,
        reply: answers("It is 4. END of it"),
        seen,
    }
}

fn replied(row: ParameterRow, reply: Reply) -> ParameterRow {
    ParameterRow { reply, ..row }
}

/// A parameter that is accepted and does nothing.
fn idle(path: &'static str, name: &'static str, value: Value) -> ParameterRow {
    ParameterRow {
        effect: ParameterEffect::None,
        ..row(path, name, json!({name: value}), SeenAt::Status)
    }
}

fn refused(path: &'static str, name: &'static str, value: Value) -> ParameterRow {
    ParameterRow {
        effect: ParameterEffect::Refused,
        ..row(path, name, json!({name: value}), SeenAt::Status)
    }
}

/// A parameter that is passed on to the endpoint as it is.
fn sent(path: &'static str, name: &'static str, value: Value, place: &'static str) -> ParameterRow {
    row(
        path,
        name,
        json!({name: value}),
        SeenAt::Sent(place, value.clone()),
    )
}

fn weather(path: &str) -> Value {
    let function = json!({"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}});
    if path == CHAT {
        return json!([{"type": "function", "function": function}]);
    }
    let mut tool = function;
    tool["type"] = "function".into();
    json!([tool])
}

fn call() -> Reply {
    calls([("weather", json!({"city": "Bern"}))])
}

fn two_calls() -> Reply {
    let weather = |city: &str| ("weather", json!({"city": city}));
    calls([weather("Bern"), weather("Rome")])
}

fn chat_rows() -> Vec<ParameterRow> {
    use SeenAt::{Answered, Status, Streamed};
    let content = "/choices/0/message/content";
    let finish = "/choices/0/finish_reason";
    let tools = weather(CHAT);
    let functions = json!([tools[0]["function"]]);
    let called = Answered(
        "/choices/0/message/tool_calls/0/function/name",
        json!("weather"),
    );
    let function_called = Answered("/choices/0/message/function_call/name", json!("weather"));
    let system = json!([{"role": "system", "content": "What is 2+2?"}]);
    let mut rows = vec![
        row(
            CHAT,
            "messages",
            json!({"messages": system}),
            Answered(content, json!("It is 4. END of it")),
        ),
        replied(row(CHAT, "tools", json!({"tools": tools}), called), call()),
        replied(
            row(
                CHAT,
                "tool_choice",
                json!({"tools": tools, "tool_choice": "required"}),
                Answered(finish, json!("tool_calls")),
            ),
            call(),
        ),
        replied(
            row(
                CHAT,
                "parallel_tool_calls",
                json!({"tools": tools, "parallel_tool_calls": false}),
                Answered("/choices/0/message/tool_calls/1", Value::Null),
            ),
            two_calls(),
        ),
        replied(
            row(
                CHAT,
                "functions",
                json!({"functions": functions}),
                function_called,
            ),
            call(),
        ),
        replied(
            row(
                CHAT,
                "function_call",
                json!({"functions": functions, "function_call": {"name": "weather"}}),
                Answered(finish, json!("function_call")),
            ),
            call(),
        ),
        row(
            CHAT,
            "stop",
            json!({"stop": ["END"]}),
            Answered(content, json!("It is 4. ")),
        ),
        sent(CHAT, "max_tokens", json!(50), "/max_tokens"),
        sent(CHAT, "max_completion_tokens", json!(50), "/max_tokens"),
        sent(CHAT, "seed", json!(7), "/seed"),
        sent(CHAT, "seed", json!(-1), "/seed"),
        replied(
            row(
                CHAT,
                "response_format",
                json!({"response_format": {"type": "json_object"}}),
                Answered(content, json!("{\"n\":4}")),
            ),
            answers(json!({"n": 4})),
        ),
        row(CHAT, "n", json!({"n": 1}), Status),
        row(
            CHAT,
            "stream_options",
            json!({"stream": true, "stream_options": {"include_usage": true}}),
            Streamed("\"usage\":{"),
        ),
    ];
    rows.extend(
        [
            ("logprobs", json!(true)),
            ("top_logprobs", json!(2)),
            ("logit_bias", json!({"50256": -100})),
            ("n", json!(2)),
            ("modalities", json!(["text", "audio"])),
            ("audio", json!({"voice": "alloy", "format": "wav"})),
            ("web_search_options", json!({})),
        ]
        .map(|(name, value)| refused(CHAT, name, value)),
    );
    rows.extend(
        [
            ("modalities", json!(["text"])),
            (
                "prediction",
                json!({"type": "content", "content": "It is 4."}),
            ),
            ("reasoning_effort", json!("low")),
            ("verbosity", json!("low")),
            ("metadata", json!({"a": "b"})),
        ]
        .map(|(name, value)| idle(CHAT, name, value)),
    );
    rows
}

fn response_rows() -> Vec<ParameterRow> {
    use SeenAt::{Answered, Status};
    let text = "/output/0/content/0/text";
    let tools = weather(RESPONSES);
    let thought = json!([
        {"role": "user", "content": "2+2?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And again?"},
    ]);
    let mut rows = vec![
        row(
            RESPONSES,
            "input",
            json!({"input": thought}),
            Answered(text, json!("It is 4. END of it")),
        ),
        replied(
            row(
                RESPONSES,
                "tools",
                json!({"tools": tools}),
                Answered("/output/0/name", json!("weather")),
            ),
            call(),
        ),
        replied(
            row(
                RESPONSES,
                "tool_choice",
                json!({"tools": tools, "tool_choice": "required"}),
                Answered("/output/0/name", json!("weather")),
            ),
            call(),
        ),
        replied(
            row(
                RESPONSES,
                "parallel_tool_calls",
                json!({"tools": tools, "parallel_tool_calls": false}),
                Answered("/output/1", Value::Null),
            ),
            two_calls(),
        ),
        sent(RESPONSES, "max_output_tokens", json!(50), "/max_tokens"),
        row(
            RESPONSES,
            "max_tool_calls",
            json!({"max_tool_calls": 3}),
            Answered("/max_tool_calls", json!(3)),
        ),
        replied(
            row(
                RESPONSES,
                "text.format",
                json!({"text": {"format": {"type": "json_object"}}}),
                Answered(text, json!("{\"n\":4}")),
            ),
            answers(json!({"n": 4})),
        ),
        ParameterRow {
            effect: ParameterEffect::None,
            ..row(
                RESPONSES,
                "text.verbosity",
                json!({"text": {"verbosity": "low"}}),
                Status,
            )
        },
        row(
            RESPONSES,
            "metadata",
            json!({"metadata": {"a": "b"}}),
            Answered("/metadata/a", json!("b")),
        ),
        row(
            RESPONSES,
            "instructions",
            json!({"instructions": "Be short."}),
            Answered("/instructions", json!("Be short.")),
        ),
        row(
            RESPONSES,
            "truncation",
            json!({"truncation": "disabled"}),
            Answered("/truncation", json!("disabled")),
        ),
        row(
            RESPONSES,
            "previous_response_id",
            json!({"previous_response_id": LAST}),
            Answered("/status", json!("completed")),
        ),
    ];
    rows.extend(
        [
            ("top_logprobs", json!(2)),
            ("include", json!(["message.output_text.logprobs"])),
            ("conversation", json!("conv_1")),
            ("prompt", json!({"id": "p"})),
            ("moderation", json!({"model": "m"})),
        ]
        .map(|(name, value)| refused(RESPONSES, name, value)),
    );
    rows.extend(
        [
            ("include", json!(["reasoning.encrypted_content"])),
            ("reasoning", json!({"effort": "low", "summary": "auto"})),
            ("stream_options", json!({"include_obfuscation": false})),
        ]
        .map(|(name, value)| idle(RESPONSES, name, value)),
    );
    rows
}

/// Parameters that mean the same in both APIs.
fn common_rows(path: &'static str) -> Vec<ParameterRow> {
    let mut rows = vec![
        sent(path, "temperature", json!(0.5), "/temperature"),
        sent(path, "top_p", json!(0.5), "/top_p"),
        sent(path, "top_p", json!(0.0), "/top_p"),
        sent(path, "frequency_penalty", json!(1.0), "/frequency_penalty"),
        sent(path, "presence_penalty", json!(-1.0), "/presence_penalty"),
    ];
    rows.extend(
        [
            ("store", json!(false)),
            ("user", json!("u")),
            ("safety_identifier", json!("s")),
            ("service_tier", json!("auto")),
            ("prompt_cache_key", json!("k")),
        ]
        .map(|(name, value)| idle(path, name, value)),
    );
    rows
}

/// Stands for the id of the last response.
const LAST: &str = "LAST";

fn rows() -> Vec<ParameterRow> {
    let mut rows = chat_rows();
    rows.extend(common_rows(CHAT));
    rows.extend(response_rows());
    rows.extend(common_rows(RESPONSES));
    // The last one: its run goes on after the answer.
    rows.push(row(
        RESPONSES,
        "background",
        json!({"background": true}),
        SeenAt::Answered("/background", json!(true)),
    ));
    rows
}

fn request(row: &ParameterRow, last: &str) -> Value {
    let mut request = if row.path == CHAT {
        json!({"model": "default", "messages": [{"role": "user", "content": "2+2?"}]})
    } else {
        json!({"model": "default", "input": "2+2?"})
    };
    for (name, value) in row.members.as_object().unwrap() {
        request[name] = if value == LAST {
            last.into()
        } else {
            value.clone()
        };
    }
    request
}

/// Each row does what the table says.
#[test]
fn a_parameter_does_what_the_manual_says() {
    let rows = rows();
    let replies = rows
        .iter()
        .filter(|row| row.effect != ParameterEffect::Refused);
    let replies: Vec<Reply> = replies.map(|row| row.reply.clone()).collect();
    let (host, endpoint) = (host(""), scripted(replies));
    let server = serve(&host, &endpoint);
    let mut last = String::new();
    for row in &rows {
        let name = format!("{} {} {}", row.path, row.name, row.members);
        let before = endpoint.requests().len();
        let answered = server.post(row.path, &request(row, &last));
        if row.effect == ParameterEffect::Refused {
            assert_eq!(answered.status, 400, "{name}: {answered:?}");
            let error = answered.json()["error"].clone();
            assert_eq!(error["param"], row.name, "{name}: {error}");
            assert_eq!(error["code"], "unsupported_parameter", "{name}: {error}");
            assert_eq!(endpoint.requests().len(), before, "{name}");
            continue;
        }
        assert_eq!(answered.status, 200, "{name}: {answered:?}");
        match &row.seen {
            SeenAt::Status => {}
            SeenAt::Sent(place, value) => {
                let sent = endpoint.requests().pop().unwrap();
                assert_eq!(sent.pointer(place), Some(value), "{name}: {sent}");
            }
            SeenAt::Answered(place, value) => {
                let answer = answered.json();
                let found = answer.pointer(place).unwrap_or(&Value::Null);
                assert_eq!(found, value, "{name}: {answer}");
            }
            SeenAt::Streamed(text) => {
                assert!(answered.text.contains(text), "{name}: {answered:?}");
            }
        }
        if row.path == RESPONSES {
            answered.json()["id"]
                .as_str()
                .unwrap()
                .clone_into(&mut last);
        }
    }
    let path = format!("{RESPONSES}/{last}");
    let ended = super::until("the end", || {
        let response = server.get(&path).good();
        (response["status"] != "in_progress").then_some(response)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(endpoint.replies_left(), 0);
}

/// A row of the manual without a test fails, and so does a test without a row.
#[test]
fn every_row_of_the_manual_is_tested() {
    const MANUAL: &str = include_str!("../../docs/server.md");
    let (_, section) = MANUAL.split_once("\n### Parameters\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let section = section.split("\n### ").next().unwrap();
    let mut documented = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, names, chat, responses, _] = cells.as_slice() else {
            panic!("{line}");
        };
        for name in names.split(", ").map(|name| name.trim_matches('`')) {
            for (path, cell) in [(CHAT, chat), (RESPONSES, responses)] {
                let effects = ParameterEffect::ALL
                    .iter()
                    .filter(|(word, _)| cell.contains(word));
                documented.extend(effects.map(|(_, effect)| (name, path, *effect)));
            }
        }
    }
    let rows = rows();
    let tested: BTreeSet<_> = rows
        .iter()
        .map(|row| (row.name, row.path, row.effect))
        .collect();
    assert_eq!(documented, tested);
}
