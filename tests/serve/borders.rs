//! The two borders of a run, over every API: what is blocked in its input reaches no model, and a secret that it hides
//! leaves it nowhere. A canary goes into every field.

use super::{answers, ask, calls, host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::endpoint::{Endpoint, ReplyOrder, Scenario};
use support::host::Host;

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

/// Every answer of every API about a run whose own tool took and returned a secret that the run hides.
#[test]
fn a_hidden_secret_leaves_a_run_nowhere() {
    let host = host(
        "[shields.private]\nkind = \"pii\"\nhide = [\"api_key\"]\nreveal_secrets = [\"text\", \"weather\"]\n",
    );
    let reversed: String = KEY.chars().rev().collect();
    let own = || ("text.reverse", json!({"text": "<api_key_1>"}));
    let backwards = || ("text.reverse", json!({"text": reversed}));
    let theirs = || ("weather", json!({"city": "<api_key_1>"}));
    let endpoint = scripted([
        calls([own(), backwards(), theirs()]),
        calls([own(), backwards(), theirs()]),
        calls([own(), backwards(), theirs()]),
        calls([own(), backwards()]),
        answers(json!("It is <api_key_1>.")),
    ]);
    let mut server = serve(&host, &endpoint);
    server.use_key(host.run(&["keys", "create", "ann"]).stdout.trim());
    let said = format!("My key is {KEY}.");
    let mut runs = Vec::new();
    let check = |what: &str, answer: String| {
        assert!(!answer.contains(KEY), "{what}: {answer}");
        assert!(answer.contains("<api_key"), "{what}: {answer}");
    };
    let chat = json!({"model": "default", "messages": [{"role": "user", "content": said}], "tools": [open(function(true))]});
    let answer = server.post("/v1/chat/completions", &chat);
    runs.push(answer.good()["toolhold"]["run"].clone());
    let call = &answer.good()["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], "{\"city\":\"<api_key_1>\"}");
    check("chat", answer.text);
    let items = json!({"model": "default", "input": said, "tools": [open(function(false))]});
    let answer = server.post("/v1/responses", &items);
    runs.push(answer.good()["toolhold"]["run"].clone());
    check("responses", answer.good()["output"].to_string());
    for tools in [json!([open(function(true))]), Value::Null] {
        let mut task = ask(&said);
        task["tools"] = tools;
        let answer = server.post("/v1/agent", &task).good();
        runs.push(answer["id"].clone());
        for part in ["steps", "choices"] {
            check(part, answer[part].to_string());
        }
    }
    let runs: Vec<&str> = runs.iter().map(|run| run.as_str().unwrap()).collect();
    let last = runs.last().unwrap();
    for run in &runs {
        let shown = server.get(&format!("/v1/runs/{run}")).good();
        check("run", shown["answer"]["steps"].to_string());
        let events = server.get(&format!("/v1/runs/{run}/events"));
        check("events", events.text);
        let from_the_third = server.ask(
            Method::GET,
            &format!("/v1/runs/{run}/events"),
            None,
            &[("last-event-id", "2")],
        );
        check("events", from_the_third.text);
    }
    // The operator sees what was done.
    server.use_key(
        host.run(&["keys", "create", "root", "--scopes", "admin"])
            .stdout
            .trim(),
    );
    let events = server.get(&format!("/v1/runs/{last}/events")).text;
    assert!(events.contains(KEY), "{events}");
}
