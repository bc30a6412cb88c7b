//! The Open Responses specification (2026-04-24): what its compliance tests ask, written anew from its text. Each is asked
//! whole and streamed.

mod shapes;

use super::{answers, calls, host, scripted, serve, until};
use reqwest::Method;
use serde_json::{Value, json};
use shapes::Shapes;
use std::thread;
use support::endpoint::Reply;
use support::server::Server;

const PATH: &str = "/v1/responses";

/// A PNG file of one point.
const IMAGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// The text `Title: Small Fixture`.
const FILE: &str = "data:text/plain;base64,VGl0bGU6IFNtYWxsIEZpeHR1cmU=";

/// One test: a request, perhaps another one after its response, and what comes of them.
struct ConformanceRow {
    name: &'static str,
    request: Value,
    /// Makes the second request from the first response.
    next: Option<fn(&Value) -> Value>,
    /// The model's replies, one a request.
    replies: Vec<Reply>,
    /// Parts of what the model is shown for the last request.
    shown: &'static [&'static str],
    last: LastItem,
}

/// The last item of the last response.
enum LastItem {
    Text(&'static str),
    Call(Value),
}

fn row(name: &'static str, request: Value, reply: Reply, last: LastItem) -> ConformanceRow {
    ConformanceRow {
        name,
        request,
        next: None,
        replies: vec![reply],
        shown: &[],
        last,
    }
}

impl ConformanceRow {
    fn shows(self, shown: &'static [&'static str]) -> Self {
        Self { shown, ..self }
    }

    /// A second request, the model's reply to it, and the last item of its response.
    fn then(mut self, next: fn(&Value) -> Value, reply: Reply, last: LastItem) -> Self {
        self.replies.push(reply);
        Self {
            next: Some(next),
            last,
            ..self
        }
    }
}

fn asked(input: impl Into<Value>) -> Value {
    json!({"model": "default", "input": input.into()})
}

fn message(role: &str, content: impl Into<Value>) -> Value {
    json!({"type": "message", "role": role, "content": content.into()})
}

fn with(mut request: Value, name: &str, value: Value) -> Value {
    request[name] = value;
    request
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "description": "As the client has it", "parameters": {
        "type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"],
    }})
}

fn weather_request() -> Value {
    let request = asked(json!([message("user", "What is the weather in Bern?")]));
    with(request, "tools", json!([tool("get_weather")]))
}

fn weather_call() -> Reply {
    calls([("get_weather", json!({"location": "Bern"}))])
}

fn called() -> LastItem {
    LastItem::Call(json!({"location": "Bern"}))
}

fn continued(response: &Value, input: impl Into<Value>) -> Value {
    with(asked(input), "previous_response_id", response["id"].clone())
}

fn with_result(response: &Value) -> Value {
    let output = response["output"].as_array().unwrap();
    let call = output.last().unwrap();
    let result = json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "9 degrees and rain"}]);
    with(
        continued(response, result),
        "tools",
        json!([tool("get_weather")]),
    )
}

/// The conversation as a client sends it that names the server's items.
fn with_reference(response: &Value) -> Value {
    let item = &response["output"][0];
    asked(json!([
        message("user", "Say the word."),
        {"type": "item_reference", "id": item["id"]},
        message("user", "Say it again."),
    ]))
}

fn rows() -> Vec<ConformanceRow> {
    use LastItem::Text;
    let named = json!({"type": "function", "name": "get_weather"});
    let format = json!({"format": {"type": "json_schema", "name": "place", "strict": true, "schema": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }}});
    vec![
        row(
            "text",
            asked(json!([message("user", "Greet me in three words.")])),
            answers("Hello, dear friend."),
            Text("Hello, dear friend."),
        ),
        row(
            "system",
            asked(json!([
                message("system", "Speak as a sailor does."),
                message("user", "Greet me.")
            ])),
            answers("Ahoy!"),
            Text("Ahoy!"),
        )
        .shows(&["Speak as a sailor does."]),
        row("tool call", weather_request(), weather_call(), called()),
        row(
            "round trip",
            with(weather_request(), "tool_choice", named.clone()),
            weather_call(),
            called(),
        )
        .then(with_result, answers("It rains."), Text("It rains."))
        .shows(&["9 degrees and rain"]),
        row(
            "named choice",
            with(
                with(
                    weather_request(),
                    "tools",
                    json!([tool("get_news"), tool("get_weather")]),
                ),
                "tool_choice",
                named,
            ),
            weather_call(),
            called(),
        ),
        row(
            "structured output",
            with(asked("Where is the parliament?"), "text", format),
            answers(json!({"city": "Bern"})),
            Text("{\"city\":\"Bern\"}"),
        ),
        row(
            "multi-turn",
            asked(json!([
                message("user", "My name is Alice."),
                message("assistant", "Hello, Alice."),
                message("user", "What is my name?"),
            ])),
            answers("Alice"),
            Text("Alice"),
        )
        .shows(&["My name is Alice.", "Hello, Alice."]),
        row(
            "previous response",
            asked("Remember the word papaya."),
            answers("I will."),
            Text("I will."),
        )
        .then(
            |response| continued(response, "Which word?"),
            answers("Papaya."),
            Text("Papaya."),
        )
        .shows(&["Remember the word papaya.", "I will."]),
        row(
            "item reference",
            asked("Say the word."),
            answers("Quince."),
            Text("Quince."),
        )
        .then(with_reference, answers("Quince!"), Text("Quince!"))
        .shows(&["Quince.", "Say it again."]),
        row(
            "image",
            asked(json!([message(
                "user",
                json!([
                    {"type": "input_text", "text": "What is in the picture?"},
                    {"type": "input_image", "image_url": IMAGE},
                ])
            )])),
            answers("A point."),
            Text("A point."),
        )
        .shows(&["What is in the picture?"]),
        row(
            "file",
            asked(json!([message(
                "user",
                json!([
                    {"type": "input_text", "text": "What is its title?"},
                    {"type": "input_file", "filename": "fixture.txt", "file_data": FILE},
                ])
            )])),
            answers("Small Fixture"),
            Text("Small Fixture"),
        )
        .shows(&["Title: Small Fixture"]),
    ]
}

/// The response to a request, which has the shape of the specification, and so have the events that bring it.
fn answered(server: &Server, shapes: &Shapes, request: &Value, is_streamed: bool) -> Value {
    let response = if is_streamed {
        let request = with(request.clone(), "stream", true.into());
        shapes.stream(&server.post(PATH, &request))
    } else {
        let answered = server.post(PATH, request);
        let response = answered.good();
        assert_eq!(answered.headers["content-type"], "application/json");
        response
    };
    shapes.check("response", &response);
    response
}

#[test]
fn responses_and_their_streams_fit_the_open_responses_specification() {
    let rows = rows();
    let replies = rows.iter().flat_map(|row| [&row.replies; 2]);
    let replies: Vec<Reply> = replies.flatten().cloned().collect();
    let (host, endpoint) = (host(""), scripted(replies));
    let server = serve(&host, &endpoint);
    let shapes = Shapes::read();
    for row in &rows {
        for is_streamed in [false, true] {
            let name = format!("{}, streamed: {is_streamed}", row.name);
            let mut response = answered(&server, &shapes, &row.request, is_streamed);
            if let Some(next) = row.next {
                response = answered(&server, &shapes, &next(&response), is_streamed);
            }
            assert_eq!(response["status"], "completed", "{name}: {response}");
            let last = response["output"].as_array().unwrap().last();
            let last = last.unwrap_or_else(|| panic!("{name}: {response}"));
            match &row.last {
                LastItem::Text(text) => {
                    assert_eq!(last["role"], "assistant", "{name}: {response}");
                    assert_eq!(last["content"][0]["text"], *text, "{name}: {response}");
                }
                LastItem::Call(arguments) => {
                    assert_eq!(last["name"], "get_weather", "{name}: {response}");
                    let written = last["arguments"].as_str().unwrap();
                    let written: Value = serde_json::from_str(written).unwrap();
                    assert_eq!(written, *arguments, "{name}: {response}");
                }
            }
            let shown = endpoint.requests().pop().unwrap()["messages"].to_string();
            for part in row.shown {
                assert!(shown.contains(part), "{name}: {shown}");
            }
            let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
            assert_eq!(server.get(&path).good(), response, "{name}");
            let items = server.get(&format!("{path}/input_items?limit=100"));
            shapes.check("items", &items.good());
        }
    }
    assert_eq!(endpoint.replies_left(), 0);
}

/// Members of the request are repeated, and those that it lacks have their defaults.
#[test]
fn a_response_repeats_what_was_asked_for_in_one_form() {
    let (host, endpoint) = (host(""), scripted([answers("a"), answers("b")]));
    let server = serve(&host, &endpoint);
    let shapes = Shapes::read();
    let repeated = json!({
        "instructions": "Be short.", "temperature": 0.7, "top_p": 0.9, "presence_penalty": 0.5, "frequency_penalty": -0.5,
        "truncation": "disabled", "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "max_output_tokens": 64,
        "max_tool_calls": 3, "parallel_tool_calls": false, "metadata": {"a": "b"},
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]},
    });
    let nested = json!({"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}});
    let mut request = with(asked("t"), "tools", json!([nested]));
    for (name, value) in repeated.as_object().unwrap() {
        request[name] = value.clone();
    }
    let response = answered(&server, &shapes, &request, false);
    for (name, value) in repeated.as_object().unwrap() {
        assert_eq!(response[name], *value, "{name}");
    }
    let plain = answered(&server, &shapes, &asked("t"), false);
    for (name, value) in [
        // The agent's.
        ("temperature", json!(0.0)),
        ("top_p", json!(1.0)),
        ("presence_penalty", json!(0.0)),
        ("frequency_penalty", json!(0.0)),
        ("top_logprobs", json!(0)),
        ("truncation", json!("auto")),
        ("service_tier", json!("default")),
        ("reasoning", json!({"effort": null, "summary": null})),
        ("tool_choice", json!("auto")),
        ("text", json!({"format": {"type": "text"}})),
        ("safety_identifier", Value::Null),
        ("prompt_cache_key", Value::Null),
    ] {
        assert_eq!(plain[name], value, "{name}");
    }
}

#[test]
fn an_input_beyond_the_window_is_refused_where_nothing_of_it_may_be_summed_up() {
    let words = "This model's maximum context length is 2048 tokens. However, your messages resulted in 4000 tokens.";
    let error = json!({"type": "invalid_request_error", "code": "context_length_exceeded", "message": words});
    let refusal = || Reply::error(400, json!({"error": error}));
    let (host, endpoint) = (
        host(""),
        scripted([refusal(), refusal(), answers("I went on.")]),
    );
    let server = serve(&host, &endpoint);
    let topic =
        "Please tell me a little more about the next topic on our long list, and take your time. "
            .repeat(4);
    let mut input = Vec::new();
    for number in 0..30 {
        input.push(message("user", format!("{topic} It is number {number}.")));
        input.push(message("assistant", "There is a lot to say about it."));
    }
    input.push(message("user", "Go on."));
    let request = asked(input);
    let whole = with(request.clone(), "truncation", json!("disabled"));
    let refused = server.post(PATH, &whole);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    assert_eq!(endpoint.requests().len(), 1);
    let response = server.post(PATH, &request).good();
    assert_eq!(response["status"], "completed", "{response}");
    assert_eq!(endpoint.requests().len(), 3);
}

/// A reply that was cut, an endpoint that refuses, and a limit of the run.
#[test]
fn streams_without_an_answer_end_as_the_specification_has_it() {
    let cut = Reply {
        finish_reason: Some("length".into()),
        ..Reply::content("It is")
    };
    let broken = Reply::error(400, json!({"error": {"message": "no such model"}}));
    let endless = Reply::tool_calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let host = host("[run]\nmax_steps = 1\n[endpoints.default]\ncontract = \"tools\"\n");
    let endpoint = scripted([cut, broken, endless]);
    let server = serve(&host, &endpoint);
    let shapes = Shapes::read();
    let request = with(asked("t"), "max_output_tokens", json!(200));
    for (status, items) in [
        ("incomplete", &["incomplete"][..]),
        ("failed", &[]),
        ("failed", &["completed"]),
    ] {
        let response = answered(&server, &shapes, &request, true);
        assert_eq!(response["status"], status, "{response}");
        let output = response["output"].as_array().unwrap();
        let seen: Vec<&Value> = output.iter().map(|item| &item["status"]).collect();
        assert_eq!(seen, items, "{response}");
    }
    let unknown = server.post(PATH, &json!({"model": "nobody", "input": "t"}));
    assert_eq!(unknown.status, 404, "{unknown:?}");
    shapes.check("error_payload", &unknown.json()["error"]);
}

/// A stream that cannot go on says why, and ends with a response that failed.
#[test]
fn a_stream_that_breaks_off_ends_with_the_error_and_a_failed_response() {
    let host = host("[serve]\ndrain_ms = 300\n");
    let endpoint = scripted([Reply::never()]);
    let server = serve(&host, &endpoint);
    let request = with(asked("t"), "stream", true.into());
    let broken = thread::scope(|scope| {
        let streaming = scope.spawn(|| server.post(PATH, &request));
        until("the request", || {
            (endpoint.requests().len() == 1).then_some(())
        });
        server.signal("TERM");
        streaming.join().unwrap()
    });
    let response = Shapes::read().stream(&broken);
    assert_eq!(response["status"], "failed", "{response}");
    let events = broken.events();
    let error = events.iter().find(|event| event.event == "error");
    let error = error.unwrap().json();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("goes on when it is back"), "{error}");
    // OpenAI's own streams have them beside the type.
    assert_eq!(error["message"], error["error"]["message"]);
    assert_eq!(response["error"]["message"], error["message"]);
}

#[test]
fn a_name_of_no_item_is_refused() {
    let (host, endpoint) = (host(""), scripted([answers("Quince.")]));
    let mut server = serve(&host, &endpoint);
    let key = |name: &str| host.run(&["keys", "create", name]).stdout.trim().to_owned();
    let (ann, bob) = (key("ann"), key("bob"));
    server.use_key(&ann);
    let response = server.post(PATH, &asked("Say the word.")).good();
    let item = response["output"][0]["id"].as_str().unwrap().to_owned();
    let absent = format!("{item}7");
    let whole = format!("{PATH}/{}", response["id"].as_str().unwrap());
    for (key, id, reason, is_deleted) in [
        (&ann, "rs_68af", "gives no item such an id", false),
        (&ann, &*absent, "(previous_response_id)", false),
        (&bob, &*item, "is not of this key", false),
        (&ann, &*item, "its response was deleted", true),
    ] {
        server.use_key(key);
        if is_deleted {
            server.ask(Method::DELETE, &whole, None, &[]).good();
        }
        let named = json!([{"type": "item_reference", "id": id}, message("user", "t")]);
        let refused = server.post(PATH, &asked(named));
        assert_eq!(refused.status, 404, "{refused:?}");
        let error = &refused.json()["error"];
        assert_eq!(error["param"], "input[0].id", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("no item {id:?}")), "{message}");
        assert!(message.contains(reason), "{message}");
        assert!(message.contains("send the item itself"), "{message}");
    }
}
