//! The two borders of a run, over every API: what is blocked in its input reaches no model, and a secret that it hides
//! leaves it nowhere. A canary goes into every field.

use super::{answers, ask, calls, host, scripted, serve};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use support::endpoint::{Endpoint, ReplyOrder, Scenario};
use support::host::Host;
use support::records::Records;
use support::server::Server;

/// A text that the shield blocks.
const CANARY: &str = "http://evil.test/canary";
/// One that the shield of personal data hides.
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";

fn blocking() -> Host {
    host(
        "[shields.hosts]\nkind = \"domains\"\nallow = [\"example.com\"]\nplaces = [\"input\", \"tool_output\"]\n",
    )
}

/// The JSON pointers of every text in a request.
fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                texts(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                texts(member, &format!("{at}/{name}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn function(nested: bool) -> Value {
    let function = json!({"name": "weather", "description": "Today's weather", "parameters": {
        "type": "object", "title": "W", "description": "Where", "required": ["city"],
        "properties": {"city": {"type": "string", "description": "A city", "enum": ["Bern"], "default": "Bern"}}}});
    if nested {
        return json!({"type": "function", "function": function});
    }
    let mut tool = function;
    tool["type"] = "function".into();
    tool
}

/// The function for any city.
fn open(mut function: Value) -> Value {
    for place in ["/parameters", "/function/parameters"] {
        if let Some(parameters) = function.pointer_mut(place) {
            parameters["properties"]["city"] = json!({"type": "string"});
        }
    }
    function
}

fn form() -> Value {
    json!({"type": "object", "description": "An answer", "properties": {"of": {"type": "string", "title": "Of"}}})
}

/// Requests that use what each API has.
fn requests() -> Vec<(&'static str, Value)> {
    let call = json!({"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Bern\"}"}});
    let messages = json!([
        {"role": "system", "content": "Be short."},
        {"role": "developer", "content": "In German."},
        {"role": "user", "content": [{"type": "text", "text": "The weather?"}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "user", "content": "And now?"},
    ]);
    let context = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ann"}, "title": "T", "description": "D", "_instance": "one",
            "schema": {"type": "object", "description": "S"}},
        {"type": "input", "input": {"of": "x"}, "description": "D"},
        {"type": "state", "state": {"of": "x"}, "description": "D"},
        {"type": "tool", "tool": {"lookup": {"type": "object", "description": "L", "properties": {
            "of": {"type": "string", "description": "E"}, "_output": {"type": "string", "description": "O"}}}}},
        {"type": "advisor", "id": "one", "role": "Careful", "on": "request"},
        {"type": "meta", "meta": {"version": "1.2.3", "domain": "shop"}},
        {"type": "error", "data": {"call": {"_tool": "text.count", "text": "t"}, "error": {"message": "m"}}},
        {"type": "type", "name": "parcel", "schema": {"type": "object", "description": "S"}, "description": "D"},
        {"type": "knowledge", "passages": [{"id": "k1", "source": "s", "text": "t", "title": "t", "heading": "h"}]},
        {"type": "tool_result", "tool": "weather", "arguments": {"city": "Bern"}, "result": {"of": "sunny"}},
    ]);
    let items = json!([
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": "The weather?"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\":\"Bern\"}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ]);
    vec![
        (
            "/v1/chat/completions",
            json!({"model": "default", "messages": messages, "tools": [function(true)],
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": form()}}}),
        ),
        (
            "/v1/responses",
            json!({"model": "default", "input": items, "instructions": "Be short.", "tools": [function(false)],
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": form()}}}),
        ),
        (
            "/v1/agent",
            json!({"messages": messages, "instructions": "Be short.", "tools": [function(true)],
            "output_schema": form(), "context": context,
            "documents": [{"name": "notes.md", "content": "The weather is sunny."}]}),
        ),
    ]
}

/// All that endpoints were told.
fn told(endpoint: &Endpoint) -> String {
    endpoint.requests().iter().map(Value::to_string).collect()
}

/// Of each text of each request: with the canary in its place no Request to a model has it, whether the server refuses
/// the request, blocks the input, or has no use for the field.
#[test]
fn a_blocked_text_reaches_no_model_from_any_field() {
    let host = blocking();
    let any = Scenario {
        order: ReplyOrder::Repeat,
        ..Scenario::new([answers(json!({"of": "x"}))])
    };
    let endpoint = Endpoint::start(any);
    let server = serve(&host, &endpoint);
    for (path, request) in requests() {
        let answer = server.post(path, &request);
        // Its reply lacks the member that the meta message asks for, so the run ends without an answer.
        let status = if path == "/v1/agent" { 502 } else { 200 };
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        let asked = endpoint.requests().len();
        assert!(asked > 0, "{path}: no model was asked: {answer:?}");
        let mut places = Vec::new();
        texts(&request, "", &mut places);
        assert!(places.len() > 15, "{places:?}");
        let mut blocked = 0;
        for place in places {
            let mut bad = request.clone();
            let text = bad.pointer_mut(&place).unwrap();
            // Arguments are JSON in a text.
            *text = text.as_str().unwrap().replace("Bern", CANARY).into();
            if !text.as_str().unwrap().contains(CANARY) {
                *text = CANARY.into();
            }
            let answer = server.post(path, &bad);
            let told = told(&endpoint);
            // A reason may name the host, and nothing else of it.
            assert!(!told.contains("/canary"), "{path} {place}: {answer:?}");
            blocked += usize::from(answer.text.contains("is not among the allowed hosts"));
        }
        assert!(blocked > 8, "{path}: {blocked} were blocked");
    }
}

/// Reads the paths that can be read with this key, with these ids in the place of their parameters. What they answer.
fn read_all(server: &Server, ids: &[(&str, &str)]) -> BTreeMap<String, String> {
    let described = server.get("/openapi.json").good();
    let paths = described["paths"].as_object().unwrap();
    let read = paths
        .iter()
        .filter(|(_, methods)| !methods["get"].is_null());
    let mut answers = BTreeMap::new();
    for (path, _) in read {
        let of = ids.iter().fold(path.clone(), |path, (name, id)| {
            path.replace(&format!("{{{name}}}"), id)
        });
        let text = if path.ends_with("/socket") {
            all_of_a_socket(server, &of)
        } else {
            server.get(&of).text
        };
        answers.insert(path.clone(), text);
    }
    answers
}

/// All that a WebSocket sends until it closes.
fn all_of_a_socket(server: &Server, path: &str) -> String {
    let mut socket = TcpStream::connect(server.address().trim_start_matches("http://")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let key = server.key().unwrap();
    write!(
        socket,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .unwrap();
    let mut told = Vec::new();
    socket.read_to_end(&mut told).unwrap();
    String::from_utf8_lossy(&told).into_owned()
}

/// Paths whose answers are about what was said in a run.
const TELLING: [&str; 7] = [
    "/v1/responses/{response}",
    "/v1/responses/{response}/input_items",
    "/v1/runs",
    "/v1/runs/{run}",
    "/v1/runs/{run}/events",
    "/v1/runs/{run}/socket",
    "/v1/sessions/{session}",
];

/// Every answer of every API about a run whose own tool took and returned a secret that the run hides: whole, so that no
/// field is forgotten, and of every path that can be read, so that no path is.
#[test]
fn a_hidden_secret_leaves_a_run_nowhere() {
    let host = host(
        "[shields.private]\nkind = \"pii\"\nhide = [\"api_key\"]\nreveal_secrets = [\"text\", \"weather\"]\n",
    );
    let reversed: String = KEY.chars().rev().collect();
    let own = || ("text.reverse", json!({"text": "<api_key_1>"}));
    let backwards = || ("text.reverse", json!({"text": reversed}));
    let theirs = || ("weather", json!({"city": "<api_key_1>"}));
    let with_theirs = || vec![calls([own(), backwards(), theirs()])];
    let alone = || {
        let answer = answers(json!("It is <api_key_1>."));
        vec![calls([own(), backwards()]), answer]
    };
    // Chat, responses and agent with a function of theirs, and then the agent alone and a turn: whole, and as streams.
    let once = || {
        [
            with_theirs(),
            with_theirs(),
            with_theirs(),
            alone(),
            alone(),
        ]
        .concat()
    };
    let endpoint = scripted([once(), once()].concat());
    let mut server = serve(&host, &endpoint);
    server.use_key(host.run(&["keys", "create", "ann"]).stdout.trim());
    let said = format!("My key is {KEY}.");
    let check = |what: &str, answer: &str| {
        assert!(!answer.contains(KEY), "{what}: {answer}");
        assert!(answer.contains("<api_key"), "{what}: {answer}");
    };
    let session = server.post("/v1/sessions", &json!({})).good()["id"].clone();
    let session = session.as_str().unwrap();
    let chat = json!({"model": "default", "messages": [{"role": "user", "content": said}], "tools": [open(function(true))]});
    let items = json!({"model": "default", "input": said, "tools": [open(function(false))]});
    let (mut task, turn) = (ask(&said), ask(&said));
    let alone = task.clone();
    task["tools"] = json!([open(function(true))]);
    let turns = format!("/v1/sessions/{session}/turns");
    for is_stream in [false, true] {
        for (path, body) in [
            ("/v1/chat/completions", &chat),
            ("/v1/responses", &items),
            ("/v1/agent", &task),
            ("/v1/agent", &alone),
            (turns.as_str(), &turn),
        ] {
            let mut body = body.clone();
            body["stream"] = is_stream.into();
            let answer = server.post(path, &body);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            assert!(!answer.text.contains(KEY), "{path}: {answer:?}");
            if path == "/v1/chat/completions" && is_stream {
                // Pieces of an answer, which may part in the middle of a placeholder.
                continue;
            }
            check(path, &answer.text);
            if path == "/v1/chat/completions" {
                let call = &answer.good()["choices"][0]["message"]["tool_calls"][0];
                assert_eq!(call["function"]["arguments"], "{\"city\":\"<api_key_1>\"}");
            }
        }
    }
    let runs = Records::of(&host).runs();
    assert_eq!(runs.len(), 10);
    let digest = format!("{:?}", toolhold_policy::Digest::of(said.as_bytes()));
    Records::of(&host).keep_bytes(&runs, &digest, said.len(), &STANDARD.encode(&said));
    let bytes = format!("/v1/runs/{}/blobs/{digest}", runs[0]);
    let refused = server.get(&bytes);
    assert_eq!(refused.status, 403, "{refused:?}");
    let read = |server: &Server, run: &str| {
        let response = format!("resp_{}", run.replace('-', ""));
        let ids = [
            ("run", run),
            ("session", session),
            ("response", &response),
            ("digest", &digest),
        ];
        read_all(server, &ids)
    };
    for run in &runs {
        for (path, answer) in read(&server, run) {
            if TELLING.contains(&path.as_str()) {
                check(&path, &answer);
            }
            assert!(!answer.contains(KEY), "{path}: {answer}");
        }
        let from_the_third = server.ask(
            Method::GET,
            &format!("/v1/runs/{run}/events"),
            None,
            &[("last-event-id", "2")],
        );
        check("events", &from_the_third.text);
    }
    // Older versions kept the begin of a task as it was said.
    Records::of(&host).rename_tasks(&said);
    for path in ["/v1/runs", "/v1/runs/{run}", "/v1/sessions/{session}"] {
        check(path, &read(&server, &runs[0])[path]);
    }
    // The operator sees what was done.
    server.use_key(
        host.run(&["keys", "create", "root", "--scopes", "admin"])
            .stdout
            .trim(),
    );
    let events = server.get(&format!("/v1/runs/{}/events", runs[0])).text;
    assert!(events.contains(KEY), "{events}");
    assert_eq!(server.get(&bytes).text, said);
}
