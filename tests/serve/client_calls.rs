//! Calls of a client's own tools, in both of OpenAI's APIs: the turn ends with them, whatever else happens.

use super::{answers, calls, host, scripted, serve};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::endpoint::{Expect, Reply};
use support::server::{Server, ServerSentEvent};

/// Much less than a call may take.
const AT_ONCE: Duration = Duration::from_secs(15);

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/responses"];

fn request(path: &str) -> Value {
    let function = json!({"name": "weather", "description": "Today's weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}});
    with_tool(path, &function)
}

fn with_tool(path: &str, function: &Value) -> Value {
    if path == PATHS[0] {
        return json!({"model": "default", "messages": [{"role": "user", "content": "The weather?"}],
            "tools": [{"type": "function", "function": function}]});
    }
    let mut tool = function.clone();
    tool["type"] = "function".into();
    json!({"model": "default", "input": "The weather?", "tools": [tool]})
}

/// What the client is to call: names and arguments. And all that was answered.
fn called(server: &Server, path: &str) -> (Vec<(String, Value)>, Value) {
    called_with(server, path, &request(path))
}

fn called_with(server: &Server, path: &str, asked: &Value) -> (Vec<(String, Value)>, Value) {
    let began = Instant::now();
    let answer = server.post(path, asked).good();
    let took = began.elapsed();
    assert!(took < AT_ONCE, "{took:?}: {answer}");
    let made = if path == PATHS[0] {
        assert_eq!(
            answer["choices"][0]["finish_reason"], "tool_calls",
            "{answer}"
        );
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
        let calls = calls.into_iter().flatten();
        calls.map(|call| call["function"].clone()).collect()
    } else {
        assert_eq!(answer["status"], "completed", "{answer}");
        let items = answer["output"].as_array().unwrap().iter();
        let calls = items.filter(|item| item["type"] == "function_call");
        calls.cloned().collect::<Vec<_>>()
    };
    let made = made.iter().map(|call| {
        let arguments = call["arguments"].as_str().unwrap();
        (
            call["name"].as_str().unwrap().to_owned(),
            serde_json::from_str(arguments).unwrap(),
        )
    });
    (made.collect(), answer)
}

/// The events of the request with `stream`, without the end mark.
fn streamed(server: &Server, path: &str, asked: &Value) -> Vec<Value> {
    let mut asked = asked.clone();
    asked["stream"] = true.into();
    let mut sent = server.post(path, &asked).events();
    assert_eq!(sent.pop().unwrap().data, "[DONE]");
    sent.iter().map(ServerSentEvent::json).collect()
}

fn weather(city: &str) -> (&'static str, Value) {
    ("weather", json!({"city": city}))
}

fn wanted(cities: &[&str]) -> Vec<(String, Value)> {
    let made = cities.iter().map(|city| weather(city));
    made.map(|(name, arguments)| (name.to_owned(), arguments))
        .collect()
}

/// The client gets the calls from before the reply broke off at once, and the model is not asked again.
#[test]
fn a_reply_that_breaks_off_after_a_clients_call_ends_the_turn() {
    for path in PATHS {
        for broken in [
            calls([weather("Bern")]).cut(),
            calls([
                ("calculator.evaluate", json!({"expression": "2+2"})),
                weather("Bern"),
            ])
            .cut(),
        ] {
            let (host, endpoint) = (host(""), scripted([broken]));
            let server = serve(&host, &endpoint);
            let (made, answer) = called(&server, path);
            assert_eq!(made, wanted(&["Bern"]), "{path}");
            assert_eq!(answer["toolhold"]["reason"], "tool_calls");
            assert_eq!(endpoint.requests().len(), 1);
            let run = answer["toolhold"]["run"].as_str().unwrap();
            assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
        }
    }
}

/// Their number is not bounded by the calls that run here at the same time, because the client makes them.
#[test]
fn a_client_may_be_asked_for_more_calls_than_run_at_the_same_time() {
    let cities = ["Bern", "Basel", "Biel", "Brig", "Buchs", "Bulle"];
    for path in PATHS {
        let host = host("[run]\nparallel_calls = 2\n");
        let endpoint = scripted([calls(cities.map(weather))]);
        let server = serve(&host, &endpoint);
        assert_eq!(called(&server, path).0, wanted(&cities), "{path}");
    }
}

/// What needs the client's result cannot be called here.
#[test]
fn a_call_that_reads_what_the_clients_writes_is_not_waited_for() {
    for path in PATHS {
        let host = host("[run]\nwiring = \"always\"\n");
        let endpoint = scripted([calls([
            (
                "weather",
                json!({"city": "Bern", "_outputPath": "†state.w"}),
            ),
            ("text.count", json!({"text": "†state.w"})),
        ])]);
        let server = serve(&host, &endpoint);
        let (made, answer) = called(&server, path);
        assert_eq!(made, wanted(&["Bern"]), "{path}");
        assert!(!answer.to_string().contains("text.count"), "{answer}");
    }
}

/// A lost connection ends no run; a request that is repeated under the same key gets its result.
#[test]
fn a_client_that_went_away_is_told_when_it_comes_back() {
    let slow = calls([weather("Bern")]).delayed_ms(1_500, 0);
    let (host, endpoint) = (host(""), scripted([slow, answers("sunny")]));
    let server = serve(&host, &endpoint);
    let mut asked = request(PATHS[1]);
    asked["stream"] = true.into();
    let begun = server.first_events(reqwest::Method::POST, PATHS[1], Some(&asked), 2);
    let id = begun[0].json()["response"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{}/{id}", PATHS[1]);
    let ended = super::until("the end", || {
        let response = server.get(&path).good();
        (response["status"] != "in_progress").then_some(response)
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    let call = &ended["output"][0];
    let result =
        json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}]);
    let goes_on = json!({"model": "default", "input": result, "previous_response_id": id});
    let last = server.post(PATHS[1], &goes_on).good();
    assert_eq!(last["output"][0]["content"][0]["text"], "sunny");
}

/// What is not the client's to call any more is not offered to it: the run was over before.
#[test]
fn calls_of_a_run_that_ended_otherwise_are_not_the_clients() {
    let host = host("[run]\ntimeout_ms = 1500\n");
    // Slow: time is up after the call and before the end.
    let slow = Reply {
        piece: Some(12),
        ..calls([weather("Bern")]).delayed_ms(0, 150)
    };
    let endpoint = scripted([slow]);
    let server = serve(&host, &endpoint);
    let response = server.post(PATHS[1], &request(PATHS[1])).good();
    assert_eq!(response["status"], "failed", "{response}");
    assert_eq!(response["error"]["code"], "timeout");
    let items = response["output"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["type"] != "function_call"),
        "{response}"
    );
}

/// SDKs write null where nothing is said, and some clients forbid tools for one request.
#[test]
fn a_chat_request_is_read_as_sdks_write_it() {
    let (host, endpoint) = (host(""), scripted([answers("one")]));
    let server = serve(&host, &endpoint);
    let mut asked = request(PATHS[0]);
    let messages = asked["messages"].as_array_mut().unwrap();
    messages.push(
        json!({"role": "assistant", "content": "Hello", "tool_calls": null, "refusal": null}),
    );
    messages.push(json!({"role": "user", "content": "The weather?", "tool_call_id": null}));
    for (name, value) in [("stream", Value::Null), ("stream_options", Value::Null)] {
        asked[name] = value;
    }
    let offered = |n: usize| {
        endpoint.requests()[n]
            .to_string()
            .contains("Today's weather")
    };
    let said = |answer: Value| answer["choices"][0]["message"]["content"].clone();
    assert_eq!(said(server.post(PATHS[0], &asked).good()), "one");
    assert!(offered(0));
    asked["tool_choice"] = "must".into();
    let refused = server.post(PATHS[0], &asked);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("tool_choice:"), "{refused:?}");
}

#[test]
fn no_tool_at_all_is_called_if_none_may_be() {
    for path in PATHS {
        let weather = calls([("weather", json!({"city": "Rome"}))]);
        let (host, endpoint) = (host(""), scripted([weather, answers("sunny")]));
        let server = serve(&host, &endpoint);
        let mut asked = request(path);
        asked["tool_choice"] = "none".into();
        let answer = server.post(path, &asked).good();
        let sent = endpoint.requests()[0].to_string();
        for tool in ["Today's weather", "calculator.evaluate", "text.reverse"] {
            assert!(!sent.contains(tool), "{path} {tool}: {sent}");
        }
        // A call that the model makes all the same is neither made nor handed to the client.
        let answer = answer.to_string();
        assert!(answer.contains("sunny"), "{path}: {answer}");
        for handed in ["function_call", "\"tool_calls\":["] {
            assert!(!answer.contains(handed), "{path}: {answer}");
        }
    }
}

/// The request is not refused for a name or a keyword of a schema, and the call has the client's own names.
#[test]
fn clients_name_tools_and_parameters_as_they_like() {
    let parameters = json!({
        "type": "object", "required": ["_count"],
        "properties": {"_count": {"type": "integer"}, "code": {"type": "string", "pattern": "^(?!x)"}},
    });
    let function = |name: &str| json!({"name": name, "parameters": parameters});
    for path in PATHS {
        for name in ["resolve-library-id", "finish", "9-lives", "_x"] {
            let host = host("");
            let endpoint = scripted([calls([(name, json!({"count": 3}))])]);
            let server = serve(&host, &endpoint);
            let asked = with_tool(path, &function(name));
            let (made, answer) = called_with(&server, path, &asked);
            assert_eq!(made, [(name.to_owned(), json!({"_count": 3}))], "{answer}");
            let notices = answer["toolhold"]["notices"].to_string();
            assert!(notices.contains("/properties/code/pattern"), "{answer}");
        }
    }
}

/// A stream has the same notices, under the same name.
#[test]
fn a_stream_ends_with_the_notices_of_an_answer() {
    let function = json!({"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "pattern": "^(?!x)"}},
    }});
    for (path, limit) in [(PATHS[0], "max_tokens"), (PATHS[1], "max_output_tokens")] {
        let host = host("[run]\nmax_tokens = 300\n");
        let endpoint = scripted([calls([weather("Bern")]), calls([weather("Bern")])]);
        let server = serve(&host, &endpoint);
        let mut asked = with_tool(path, &function);
        asked[limit] = 4_000.into();
        let whole = server.post(path, &asked).good()["toolhold"].clone();
        let notices = whole["notices"].to_string();
        for part in ["/properties/city/pattern", "at most 300 tokens"] {
            assert!(notices.contains(part), "{part}: {whole}");
        }
        asked["stream_options"] = json!({"include_usage": true});
        let sent = streamed(&server, path, &asked);
        let told = if path == PATHS[0] {
            let telling: Vec<&Value> = sent
                .iter()
                .filter(|chunk| !chunk["toolhold"].is_null())
                .collect();
            assert_eq!(telling.len(), 1, "{sent:?}");
            assert_eq!(telling[0]["choices"][0]["finish_reason"], "tool_calls");
            &telling[0]["toolhold"]
        } else {
            &sent.last().unwrap()["response"]["toolhold"]
        };
        assert_eq!(told["notices"], whole["notices"], "{path}: {sent:?}");
        assert_eq!(told["reason"], "tool_calls");
        assert!(told["run"].is_string() && told["run"] != whole["run"]);
    }
}

/// A client cannot give back what it was sent of a call, so it is sent nothing of a call that broke off or was refused.
#[test]
fn a_stream_has_no_piece_of_a_call_with_which_the_turn_does_not_end() {
    let place = ["/choices/0/delta/tool_calls/0/function/arguments", "/delta"];
    for (path, place) in PATHS.into_iter().zip(place) {
        let host = host("[endpoints.default]\ncontract = \"tools\"\n");
        let native = |arguments: Value| Reply::tool_calls([("weather", arguments)]);
        // Pieces of four characters: it breaks off inside of the arguments.
        let broken = native(json!({"city": "Rome".repeat(100)})).truncated_after(5_000);
        let endpoint = scripted([broken, native(json!({})), native(json!({"city": "Bern"}))]);
        let server = serve(&host, &endpoint);
        let sent = streamed(&server, path, &request(path));
        assert_eq!(endpoint.requests().len(), 3, "{sent:?}");
        let pieces = sent
            .iter()
            .filter_map(|event| event.pointer(place)?.as_str());
        let arguments: String = pieces.collect();
        assert_eq!(arguments, r#"{"city":"Bern"}"#, "{path}: {sent:?}");
    }
}

/// A client that counts its calls anew in each turn.
#[test]
fn results_of_equal_ids_are_told_with_the_call_of_their_turn() {
    let host = host("");
    let endpoint = scripted([answers("Both.")]);
    let server = serve(&host, &endpoint);
    let call = |city: &str| {
        let arguments = json!({"city": city}).to_string();
        let function = json!({"name": "weather", "arguments": arguments});
        json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}]})
    };
    let said = |text: &str| json!({"role": "user", "content": text});
    let result = |text: &str| json!({"role": "tool", "tool_call_id": "call_1", "content": text});
    let messages = [
        said("Oslo?"),
        call("Oslo"),
        said("And Rome?"),
        call("Rome"),
        result("snow in Oslo"),
        result("sun in Rome"),
        said("Well?"),
    ];
    let asked = json!({"model": "default", "messages": messages});
    server.post(PATHS[0], &asked).good();
    let told = endpoint.requests()[0]["messages"].to_string();
    let place = |text: &str| told.find(text).unwrap_or_else(|| panic!("{text}: {told}"));
    let cities = [place("Oslo\\"), place("Rome\\")];
    let results = [place("snow in Oslo"), place("sun in Rome")];
    assert!(cities[0] < cities[1] && results[0] < results[1], "{told}");
}

/// The client's result comes in another run. An endpoint in thinking mode refuses the call without its reasoning.
#[test]
fn reasoning_goes_with_a_clients_call_into_the_next_run() {
    let replies = || {
        let thinking = Expect {
            reasoning: Some("reasoning_content".into()),
            contains: vec!["sun".into()],
            ..Expect::default()
        };
        [
            Reply {
                reasoning: Some("I look.".into()),
                ..Reply::tool_calls([weather("Bern")])
            },
            Reply::content("done").expecting(thinking),
        ]
    };
    let thoughts = |request: &Value| {
        let messages = request["messages"].as_array().unwrap().iter();
        let own = messages.filter(|message| message["reasoning_content"] == "I look.");
        own.count()
    };
    for path in PATHS {
        let host = host("[endpoints.default]\ncontract = \"tools\"\n");
        let endpoint = scripted(replies());
        let server = serve(&host, &endpoint);
        let mut asked = request(path);
        let (_, answer) = called_with(&server, path, &asked);
        if path == PATHS[0] {
            let message = answer["choices"][0]["message"].clone();
            assert_eq!(message["reasoning_content"], "I look.", "{answer}");
            let result = json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun"});
            let messages = asked["messages"].as_array_mut().unwrap();
            messages.extend([message, result]);
        } else {
            let items = answer["output"].as_array().unwrap().iter();
            let mut calls = items.filter(|item| item["type"] == "function_call");
            let call = calls.next().unwrap()["call_id"].clone();
            asked["input"] =
                json!([{"type": "function_call_output", "call_id": call, "output": "sun"}]);
            asked["previous_response_id"] = answer["id"].clone();
        }
        let last = server.post(path, &asked).good();
        assert_eq!(last["toolhold"]["reason"], "output", "{last}");
        let requests = endpoint.requests();
        assert_eq!(requests.len(), 2, "{path}: {:?}", endpoint.mismatches());
        assert_eq!(thoughts(&requests[1]), 1, "{path}: {}", requests[1]);
        let run = last["toolhold"]["run"].as_str().unwrap();
        assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
    }
}
