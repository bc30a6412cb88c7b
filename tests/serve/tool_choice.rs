//! `tool_choice` in both of OpenAI's APIs: which tools may be called, and which have to be.

use super::{answers, calls, host, scripted, serve, two_plus_two};
use serde_json::{Value, json};
use support::endpoint::Reply;
use support::server::Server;
use support::transcript::told;

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/responses"];

fn is_chat(path: &str) -> bool {
    path == PATHS[0]
}

/// A request with tools of the client that have these names.
fn asked(path: &str, tools: &[&str], choice: Value) -> Value {
    let function = |name: &str| json!({"name": name, "parameters": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let tools: Vec<Value> = tools
        .iter()
        .map(|name| {
            if is_chat(path) {
                return json!({"type": "function", "function": function(name)});
            }
            let mut tool = function(name);
            tool["type"] = "function".into();
            tool
        })
        .collect();
    let mut request = json!({"model": "default", "tools": tools, "tool_choice": choice});
    if is_chat(path) {
        request["messages"] = json!([{"role": "user", "content": "What is 2+2?"}]);
    } else {
        request["input"] = "What is 2+2?".into();
    }
    request
}

fn named(path: &str, name: &str) -> Value {
    if is_chat(path) {
        return json!({"type": "function", "function": {"name": name}});
    }
    json!({"type": "function", "name": name})
}

fn allowed(path: &str, mode: &str, names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| named(path, name)).collect();
    if is_chat(path) {
        return json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}});
    }
    json!({"type": "allowed_tools", "mode": mode, "tools": tools})
}

/// Names of the calls that the client is given.
fn called(path: &str, answer: &Value) -> Vec<String> {
    let (list, name) = if is_chat(path) {
        ("/choices/0/message/tool_calls", "/function/name")
    } else {
        ("/output", "/name")
    };
    let calls = answer.pointer(list).and_then(Value::as_array);
    let names = calls
        .into_iter()
        .flatten()
        .filter_map(|it| it.pointer(name));
    names.map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn said(path: &str, answer: &Value) -> String {
    let place = if is_chat(path) {
        "/choices/0/message/content"
    } else {
        "/output/0/content/0/text"
    };
    let text = answer.pointer(place).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn result() -> Reply {
    calls([("final_result", json!({"name": "x"}))])
}

/// Agents that want structured output demand a call by themselves. A model that answers in words is asked once more.
#[test]
fn a_demanded_call_is_the_clients() {
    for path in PATHS {
        for choice in [
            json!("required"),
            named(path, "final_result"),
            allowed(path, "required", &["final_result"]),
        ] {
            let host = host("");
            let endpoint = scripted([answers("It is 4."), result()]);
            let server = serve(&host, &endpoint);
            let request = asked(path, &["final_result", "other"], choice.clone());
            let answer = server.post(path, &request).good();
            assert_eq!(
                called(path, &answer),
                ["final_result"],
                "{choice}: {answer}"
            );
            assert_eq!(endpoint.requests().len(), 2);
            let told = told(&endpoint, 1);
            assert!(told.contains("it calls no tool"), "{choice}: {told}");
            let run = answer["toolhold"]["run"].as_str().unwrap();
            assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
        }
    }
}

/// The error has a code, so that a client need not read its words.
#[test]
fn a_call_that_is_never_made_is_an_error_with_a_code() {
    for path in PATHS {
        let host = host("[fallback]\nenabled = false\n");
        let endpoint = scripted([1, 2, 3].map(|_| answers("It is 4.")));
        let server = serve(&host, &endpoint);
        let refused = server.post(path, &asked(path, &["final_result"], json!("required")));
        assert_eq!(refused.status, 502, "{refused:?}");
        let error = refused.json()["error"].clone();
        assert_eq!(error["code"], "tool_choice_unmet", "{error}");
    }
}

/// The server runs it, and the answer follows.
#[test]
fn a_named_tool_of_the_agent_is_called_before_the_answer() {
    for path in PATHS {
        let (host, endpoint) = (host(""), scripted(two_plus_two()));
        let server = serve(&host, &endpoint);
        let choice = named(path, "calculator-evaluate");
        let answer = server.post(path, &asked(path, &["other"], choice)).good();
        assert_eq!(said(path, &answer), "It is 4.", "{answer}");
        let first = endpoint.requests()[0].to_string();
        assert!(first.contains("calculator.evaluate"), "{first}");
        for tool in ["text.reverse", "\"other\""] {
            assert!(!first.contains(tool), "{tool}: {first}");
        }
    }
}

#[test]
fn only_allowed_tools_are_offered() {
    for path in PATHS {
        let (host, endpoint) = (host(""), scripted([answers("It is 4.")]));
        let server = serve(&host, &endpoint);
        let choice = allowed(path, "auto", &["final_result", "calculator-evaluate"]);
        let request = asked(path, &["final_result", "other"], choice);
        let answer = server.post(path, &request).good();
        assert_eq!(said(path, &answer), "It is 4.", "{answer}");
        let sent = endpoint.requests()[0].to_string();
        for tool in ["final_result", "calculator.evaluate"] {
            assert!(sent.contains(tool), "{tool}: {sent}");
        }
        for tool in ["text.reverse", "\"other\""] {
            assert!(!sent.contains(tool), "{tool}: {sent}");
        }
    }
}

#[test]
fn a_choice_of_no_tool_is_refused_with_the_name() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    for path in PATHS {
        for choice in [
            named(path, "nothing"),
            allowed(path, "auto", &["final_result", "nothing"]),
        ] {
            let refused = server.post(path, &asked(path, &["final_result"], choice));
            assert_eq!(refused.status, 400, "{refused:?}");
            let error = refused.json()["error"].clone();
            assert_eq!(error["param"], "tool_choice", "{error}");
            assert!(error["message"].to_string().contains("nothing"), "{error}");
        }
    }
    assert!(endpoint.requests().is_empty());
}

/// The native demand, where calls are native.
#[test]
fn a_native_call_is_demanded_natively() {
    for (choice, sent) in [
        (json!("required"), json!("required")),
        (
            named(PATHS[0], "final_result"),
            json!({"type": "function", "function": {"name": "final_result"}}),
        ),
    ] {
        let host = host("[endpoints.default]\ncontract = \"tools\"\n");
        let call = Reply::tool_calls([("final_result", json!({"name": "x"}))]);
        let endpoint = scripted([call]);
        let server = serve(&host, &endpoint);
        let request = asked(PATHS[0], &["final_result", "other"], choice);
        let answer = server.post(PATHS[0], &request).good();
        assert_eq!(called(PATHS[0], &answer), ["final_result"], "{answer}");
        assert_eq!(endpoint.requests()[0]["tool_choice"], sent);
    }
}

/// Chunks of a streamed answer, without the end mark.
fn chunks(server: &Server, request: &Value) -> Vec<Value> {
    let sent = server.post(PATHS[0], request).events();
    let chunks = sent.iter().filter(|event| event.data != "[DONE]");
    chunks.map(support::server::ServerSentEvent::json).collect()
}

/// SDKs put the pieces together by their index.
#[test]
fn arguments_of_a_clients_call_come_in_pieces() {
    let arguments = json!({"name": "a name of some length, and a little more"});
    let reply = || calls([("final_result", arguments.clone())]);
    let (host, endpoint) = (host(""), scripted([answers("It is 4."), reply(), reply()]));
    let server = serve(&host, &endpoint);
    let mut request = asked(PATHS[0], &["final_result"], json!("required"));
    request["stream"] = true.into();
    let chunks = chunks(&server, &request);
    let deltas: Vec<&Value> = chunks.iter().map(|it| &it["choices"][0]["delta"]).collect();
    let parts: Vec<&Value> = deltas
        .iter()
        .map(|delta| &delta["tool_calls"][0])
        .filter(|part| !part.is_null())
        .collect();
    assert!(parts.len() > 2, "{chunks:?}");
    assert_eq!(parts[0]["function"]["name"], "final_result");
    assert_eq!(parts[0]["function"]["arguments"], "");
    assert!(parts[0]["id"].is_string() && parts[1]["id"].is_null());
    assert!(parts.iter().all(|part| part["index"] == 0));
    let pieces: String = parts
        .iter()
        .filter_map(|part| part["function"]["arguments"].as_str())
        .collect();
    assert_eq!(serde_json::from_str::<Value>(&pieces).unwrap(), arguments);
    // What the model said in the place of the call is no part of the answer.
    let text: String = deltas
        .iter()
        .filter_map(|delta| delta["content"].as_str())
        .collect();
    assert_eq!(text, "");
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");

    let mut request = asked(PATHS[1], &["final_result"], json!("required"));
    request["stream"] = true.into();
    let sent = server.post(PATHS[1], &request).events();
    let of = |kind: &str| {
        let events = sent.iter().filter(move |event| event.event == kind);
        events
            .map(support::server::ServerSentEvent::json)
            .collect::<Vec<_>>()
    };
    let deltas = of("response.function_call_arguments.delta");
    assert!(deltas.len() > 1, "{deltas:?}");
    let pieces = deltas.iter().filter_map(|it| it["delta"].as_str());
    let whole = of("response.function_call_arguments.done")[0]["arguments"].clone();
    assert_eq!(json!(pieces.collect::<String>()), whole);
}

/// Clients of the older form know one call, without an id, and send its result by its name.
#[test]
fn functions_are_called_and_answered_in_their_own_form() {
    let host = host("");
    let both = calls([
        ("weather", json!({"city": "Bern"})),
        ("weather", json!({"city": "Rome"})),
    ]);
    let endpoint = scripted([both, answers("Sunny.")]);
    let server = serve(&host, &endpoint);
    let functions = json!([{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]);
    let mut messages = vec![json!({"role": "user", "content": "The weather?"})];
    let ask = |messages: &[Value]| {
        let request = json!({"model": "default", "messages": messages, "functions": functions});
        server.post(PATHS[0], &request).good()
    };
    let first = ask(&messages);
    let choice = &first["choices"][0];
    assert_eq!(choice["finish_reason"], "function_call", "{first}");
    let message = &choice["message"];
    assert!(message.get("tool_calls").is_none(), "{first}");
    assert_eq!(message["function_call"]["name"], "weather");
    messages.push(message.clone());
    messages.push(json!({"role": "function", "name": "weather", "content": "sun in Bern"}));
    let second = ask(&messages);
    assert_eq!(said(PATHS[0], &second), "Sunny.", "{second}");
    let told = endpoint.requests()[1]["messages"].to_string();
    assert!(
        told.contains("sun in Bern") && told.contains("Bern\\"),
        "{told}"
    );
}
