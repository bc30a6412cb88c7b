//! `POST /v1/agent` as its clients write it: tools as definitions, sampling, limits, and all of what happened in the
//! answer.

use super::{ask, host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::server::Server;
use support::transcript::{answers, calls};

const AGENT: &str = "/v1/agent";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

fn definition(name: &str) -> Value {
    json!({"name": name, "description": "As the client has it",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}})
}

fn flat(name: &str) -> Value {
    let mut tool = definition(name);
    tool["type"] = "function".into();
    tool
}

fn nested(name: &str) -> Value {
    json!({"type": "function", "function": definition(name)})
}

fn request(path: &str, text: &str) -> Value {
    match path {
        AGENT => ask(text),
        CHAT => json!({"model": "default", "messages": [{"role": "user", "content": text}]}),
        _ => json!({"model": "default", "input": text}),
    }
}

/// Names of the client's tools that it is to call.
fn called(answer: &Value) -> Vec<Value> {
    let of_choice = answer["choices"][0]["message"]["tool_calls"].as_array();
    let of_choice = of_choice.into_iter().flatten();
    let items = answer["output"].as_array().into_iter().flatten();
    let items = items.filter(|item| item["type"] == "function_call");
    let names = of_choice.map(|call| call["function"]["name"].clone());
    names
        .chain(items.map(|item| item["name"].clone()))
        .collect()
}

#[test]
fn tools_are_defined_in_both_forms_at_all_apis() {
    for path in [AGENT, CHAT, RESPONSES] {
        for tool in [flat("weather"), nested("weather")] {
            let host = host("");
            let endpoint = scripted([calls([("weather", json!({"city": "Bern"}))])]);
            let server = serve(&host, &endpoint);
            let mut asked = request(path, "The weather?");
            asked["tools"] = json!([tool]);
            let answer = server.post(path, &asked).good();
            assert_eq!(called(&answer), ["weather"], "{path} {tool}: {answer}");
            if path == RESPONSES {
                assert_eq!(answer["tools"][0]["name"], "weather", "{answer}");
            }
            let mut twice = flat("weather");
            twice["function"] = definition("weather");
            for (wrong, reason) in [
                (json!({"type": "web_search"}), "expected function"),
                (json!({"type": "function"}), "needs a name"),
                (twice, "defined twice"),
            ] {
                asked["tools"] = json!([wrong]);
                let refused = server.post(path, &asked);
                assert_eq!(refused.status, 400, "{refused:?}");
                assert!(refused.text.contains(reason), "{path}: {refused:?}");
            }
        }
    }
}

#[test]
fn a_registered_name_is_ours_and_any_other_the_clients() {
    for (path, ours) in [
        (AGENT, "calculator.evaluate"),
        (AGENT, "calculator-evaluate"),
        (CHAT, "calculator.evaluate"),
        (RESPONSES, "calculator.evaluate"),
    ] {
        let host = host("");
        let endpoint = scripted([calls([
            ("calculator.evaluate", json!({"expression": "2+2"})),
            ("weather", json!({"city": "Bern"})),
        ])]);
        let server = serve(&host, &endpoint);
        let mut asked = request(path, "2+2, and the weather in Bern?");
        let mut tool = flat(ours);
        tool["description"] = "Not the one that runs".into();
        asked["tools"] = json!([tool, nested("weather")]);
        let answer = server.post(path, &asked).good();
        assert_eq!(called(&answer), ["weather"], "{path}: {answer}");
        let told = endpoint.requests()[0].to_string();
        assert!(told.contains("As the client has it"), "{told}");
        assert!(!told.contains("Not the one that runs"), "{told}");
        // At this API the list is all that may be called.
        assert_eq!(told.contains("text.count"), path != AGENT, "{told}");
        if path == AGENT {
            let made = &answer["steps"][0]["calls"];
            assert_eq!(made[0]["result"], json!({"value": "4"}), "{answer}");
            assert_eq!(
                (&made[0]["status"], &made[1]["status"]),
                (&json!("done"), &json!("client"))
            );
        }
    }
}

/// A request with all that a client may say.
#[test]
fn a_whole_request_is_answered_with_all_that_happened() {
    let fixture = include_str!("../fixtures/protocol/agent_call.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    let made = fixture["calls"].as_array().unwrap().iter();
    let made = made.map(|call| (call[0].as_str().unwrap(), call[1].clone()));
    let host = host("");
    let endpoint = scripted([calls(made)]);
    let server = serve(&host, &endpoint);
    let answer = server.post(AGENT, &fixture["request"]).good();
    assert_eq!(called(&answer), ["weather"], "{answer}");
    let got = answer["steps"][0]["calls"].as_array().unwrap().iter();
    let got = got.map(
        |call| json!({"tool": call["tool"], "status": call["status"], "result": call["result"]}),
    );
    assert_eq!(got.collect::<Value>(), fixture["results"], "{answer}");
    assert_eq!(answer["language"], "en");
    let said = &fixture["request"]["input_messages"][1];
    assert_eq!(answer["input_messages"], json!([said]));
    let sent = &endpoint.requests()[0];
    assert_eq!(
        (&sent["top_p"], &sent["max_tokens"]),
        (&json!(0.9), &json!(300))
    );
    let system = sent["messages"][0].to_string();
    assert!(system.contains("You plan outings."), "{system}");
}

/// The client brings the results with its next request, or with the next turn of the session.
#[test]
fn the_agent_goes_on_with_the_results_of_the_clients_tools() {
    let host = host("");
    let called = || calls([("weather", json!({"city": "Bern"}))]);
    let endpoint = scripted([called(), answers("sunny"), called(), answers("again sunny")]);
    let server = serve(&host, &endpoint);
    let result = |answer: &Value| {
        let id = &answer["choices"][0]["message"]["tool_calls"][0]["id"];
        json!({"role": "tool", "tool_call_id": id, "content": "sun all day"})
    };
    let mut asked = ask("The weather?");
    asked["tools"] = json!([flat("weather")]);
    let first = server.post(AGENT, &asked).good();
    assert_eq!(first["reason"], "tool_calls", "{first}");
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    let messages = asked["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(result(&first));
    let second = server.post(AGENT, &asked).good();
    assert_eq!(second["output"], "sunny");
    let choice = &second["choices"][0];
    assert_eq!(choice["message"]["content"], "sunny");
    assert_eq!(choice["finish_reason"], "stop");

    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    let mut asked = ask("The weather?");
    asked["tools"] = json!([flat("weather")]);
    let once = |body: &Value, key| {
        let headers = [("idempotency-key", key)];
        server
            .ask(Method::POST, &turns, Some(body), &headers)
            .good()
    };
    let first = once(&asked, "first");
    assert_eq!(once(&asked, "first"), first);
    let without = server.post(&turns, &ask("And?"));
    assert_eq!(without.status, 400, "{without:?}");
    assert!(
        without.text.contains("no message of the role tool"),
        "{without:?}"
    );
    let results = json!({"messages": [result(&first)]});
    let second = once(&results, "second");
    assert_eq!(second["output"], "again sunny");
    assert_eq!(once(&results, "second"), second);
    assert_eq!(once(&asked, "first"), first);
    let told = endpoint.requests()[3].to_string();
    assert!(told.contains("sun all day"), "{told}");
}

/// Beside our answer there is the same as a choice, exactly as the chat API has it, however the turn ended.
#[test]
fn choices_beside_our_answer_are_those_of_the_chat_api() {
    const LEAK: &str = "Write to ann@example.com.";
    let shielded = "[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"output\"]\n";
    let call = || calls([("weather", json!({"city": "Bern"}))]);
    for (config, reply, reason, finish, content) in [
        ("", answers("Sunny."), "output", "stop", json!("Sunny.")),
        (
            shielded,
            answers(LEAK),
            "blocked",
            "content_filter",
            Value::Null,
        ),
        (
            "[run]\nmax_steps = 1\n",
            call(),
            "tool_calls",
            "tool_calls",
            Value::Null,
        ),
    ] {
        let host = host(config);
        // A blocked answer goes back to the model once.
        let asked_for = if reason == "blocked" { 4 } else { 2 };
        let endpoint = scripted((0..asked_for).map(|_| reply.clone()));
        let server = serve(&host, &endpoint);
        let [ours, theirs] = [AGENT, CHAT].map(|path| {
            let mut asked = request(path, "The weather in Bern?");
            asked["tools"] = json!([flat("weather")]);
            let mut answer = server.post(path, &asked).json();
            // Each call has an id of its own.
            if let Some(call) = answer.pointer_mut("/choices/0/message/tool_calls/0") {
                assert!(call["id"].take().is_string(), "{call}");
            }
            answer
        });
        let choices = ours["choices"].as_array().unwrap();
        assert_eq!(choices.len(), 1, "{ours}");
        assert_eq!(ours["choices"], theirs["choices"], "{reason}");
        assert_eq!(ours["reason"], reason, "{ours}");
        let choice = &choices[0];
        assert_eq!(
            (&choice["index"], &choice["finish_reason"]),
            (&json!(0), &json!(finish))
        );
        assert_eq!(choice["message"]["role"], "assistant", "{ours}");
        let said = &choice["message"]["content"];
        if reason == "blocked" {
            assert!(!ours.to_string().contains(LEAK), "{ours}");
        } else {
            assert_eq!(*said, content, "{ours}");
            assert_eq!(ours["output"], content, "{ours}");
        }
    }
}

/// Types that the `context` of a request registers, up to the record.
#[test]
fn a_request_registers_types_of_messages() {
    let fixture = include_str!("../fixtures/protocol/types.json");
    let fixture: Value = serde_json::from_str(fixture).unwrap();
    let host = host("");
    let endpoint = scripted([answers("Dry it.")]);
    let server = serve(&host, &endpoint);
    let mut asked = json!({"context": fixture["context"]});
    let answer = server.post(AGENT, &asked).good();
    assert_eq!(answer["output"], "Dry it.", "{answer}");
    let told = endpoint.requests()[0]["messages"].to_string();
    for part in [
        "## Type: ¶parcel\\n│ Parcel\\n│ Weights",
        "¶parcel (instance north)",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let run = answer["id"].as_str().unwrap();
    assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));

    for refused in fixture["refused"].as_array().unwrap() {
        let messages = asked["context"].as_array_mut().unwrap();
        messages.push(refused["message"].clone());
        let answer = server.post(AGENT, &asked);
        assert_eq!(answer.status, 400, "{answer:?}");
        let remedy = refused["remedy"].as_str().unwrap();
        let error = answer.json()["error"]["message"].to_string();
        let quoted = json!(remedy).to_string();
        assert!(
            error.contains(quoted.trim_matches('"')),
            "{remedy}: {error}"
        );
        asked["context"].as_array_mut().unwrap().pop();
    }
    assert_eq!(endpoint.requests().len(), 1, "nothing more was sent");
}

#[test]
fn sampling_reaches_the_endpoint() {
    let host = host("");
    let endpoint = scripted([answers("1"), answers("2"), answers("3")]);
    let server = serve(&host, &endpoint);
    let mut asked = ask("t");
    asked["temperature"] = 0.5.into();
    asked["top_p"] = 0.9.into();
    asked["sampling_params"] = json!({"top_k": 40, "repetition_penalty": 1.1, "max_tokens": 77});
    server.post(AGENT, &asked).good();
    let mut chat = request(CHAT, "t");
    chat["top_p"] = 0.8.into();
    server.post(CHAT, &chat).good();
    let mut response = request(RESPONSES, "t");
    response["top_p"] = 0.7.into();
    let response = server.post(RESPONSES, &response).good();
    assert_eq!(response["top_p"], json!(0.7));
    let sent = endpoint.requests();
    for (name, value) in [
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("top_k", json!(40)),
        ("repetition_penalty", json!(1.1)),
        ("max_tokens", json!(77)),
    ] {
        assert_eq!(sent[0][name], value, "{name}: {}", sent[0]);
    }
    assert_eq!(
        (&sent[1]["top_p"], &sent[2]["top_p"]),
        (&json!(0.8), &json!(0.7))
    );
    for (wrong, reason) in [
        (json!({"top_p": 2}), "top_p must be"),
        (json!({"sampling_params": {"stop": ["x"]}}), "stop"),
        (
            json!({"top_p": 0.5, "sampling_params": {"top_p": 0.5}}),
            "top_p is given twice",
        ),
    ] {
        let mut asked = ask("t");
        asked
            .as_object_mut()
            .unwrap()
            .extend(wrong.as_object().unwrap().clone());
        let refused = server.post(AGENT, &asked);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.text.contains(reason), "{refused:?}");
    }
}

/// What is too long for the client's maximum is summed up, and told; or it is not sent.
#[test]
fn a_maximum_of_context_drops_nothing_in_silence() {
    let host = host("");
    let long = |n: u32| {
        calls([(
            "text.reverse",
            json!({"text": format!("{n}{}", "words ".repeat(400))}),
        )])
    };
    let endpoint = scripted([
        long(1),
        long(2),
        long(3),
        long(4),
        answers("done"),
        long(5),
        answers("never asked for"),
    ]);
    let server = serve(&host, &endpoint);
    let mut asked = ask("Reverse them.");
    asked["tools"] = json!(["text.reverse"]);
    asked["max_context_tokens"] = 4_000.into();
    let answer = server.post(AGENT, &asked).good();
    assert_eq!(answer["output"], "done", "{answer}");
    let notices = answer["notices"].to_string();
    assert!(notices.contains("are a summary"), "{answer}");
    let sent = endpoint.requests().len();

    asked["max_context_tokens"] = 40.into();
    let answer = server.post(AGENT, &asked).good();
    assert_eq!(answer["reason"], "token_budget", "{answer}");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("at most 40 are allowed"), "{error}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(endpoint.requests().len(), sent, "nothing was sent");
    let run = answer["id"].as_str().unwrap();
    assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));

    // Of the whole turn: the first reply takes more.
    asked["max_context_tokens"] = Value::Null;
    asked["max_turn_tokens"] = 0.into();
    assert_eq!(server.post(AGENT, &asked).status, 400);
    asked["max_turn_tokens"] = 1.into();
    let answer = server.post(AGENT, &asked).good();
    assert_eq!(answer["reason"], "token_budget", "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    assert_eq!(endpoint.requests().len(), sent + 1);
    assert!(
        answer["usage"]["total_tokens"].as_u64() > Some(1),
        "{answer}"
    );
}

#[test]
fn the_language_of_a_task_is_recorded_and_kept() {
    const GERMAN: &str = "Schreibe eine kurze Zusammenfassung der letzten Sitzung.";
    let host = host("");
    let endpoint = scripted((0..6).map(|_| answers("Ja.")));
    let server = serve(&host, &endpoint);
    let told = |request: usize| {
        let told = endpoint.requests()[request].to_string();
        told.contains("The language of the task is German")
    };
    let answer = server.post(AGENT, &ask(GERMAN)).good();
    assert_eq!((&answer["language"], told(0)), (&json!("de"), true));
    let run = answer["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/runs/{run}")).good();
    assert_eq!(shown["answer"]["language"], "de");
    let english = "Summarise the notes of the last meeting.";
    let answer = server.post(AGENT, &ask(english)).good();
    assert_eq!((&answer["language"], told(1)), (&json!("en"), false));
    let mut asked = ask(english);
    asked["language"] = "de".into();
    let answer = server.post(AGENT, &asked).good();
    assert_eq!((&answer["language"], told(2)), (&json!("de"), true));
    asked["language"] = "Deutsch bitte".into();
    let refused = server.post(AGENT, &asked);
    assert_eq!(refused.status, 400, "{refused:?}");
    let answer = server.post(CHAT, &request(CHAT, GERMAN)).good();
    assert_eq!(
        (&answer["toolhold"]["language"], told(3)),
        (&json!("de"), true)
    );

    // A turn too short to tell has the session's.
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    server.post(&turns, &ask(GERMAN)).good();
    let answer = server.post(&turns, &ask("2+2?")).good();
    assert_eq!((&answer["language"], told(5)), (&json!("de"), true));
}

fn made<'a>(answer: &'a Value, tool: &str) -> &'a Value {
    let steps = answer["steps"].as_array().unwrap().iter();
    let mut calls = steps.flat_map(|step| step["calls"].as_array().unwrap());
    let found = calls.find(|call| call["tool"] == tool);
    found.unwrap_or_else(|| panic!("{tool}: {answer}"))
}

#[test]
fn refused_and_shielded_calls_are_in_the_steps() {
    let host = host("[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\n");
    let endpoint = scripted([
        calls([
            (
                "calculator.evaluate",
                json!({"expression": 4, "more": true}),
            ),
            ("text.reverse", json!({"text": "ann@example.com"})),
        ]),
        answers("neither"),
    ]);
    let server = serve(&host, &endpoint);
    let asked = json!({"input_messages": [{"role": "user", "content": "Do both."}]});
    let answer = server.post(AGENT, &asked).good();
    let refused = made(&answer, "calculator.evaluate");
    assert_eq!(refused["status"], "refused", "{answer}");
    assert_eq!(refused["arguments"]["more"], true, "{answer}");
    assert!(refused["error"].is_string(), "{answer}");
    let shielded = made(&answer, "text.reverse");
    assert_eq!(shielded["status"], "shielded", "{answer}");
    let error = shielded["error"].as_str().unwrap();
    assert!(error.contains("mails"), "{error}");
    assert_eq!(
        answer["input_messages"],
        json!([{"role": "user", "content": "Do both."}])
    );
    let both =
        json!({"messages": asked["input_messages"], "input_messages": asked["input_messages"]});
    let refused = server.post(AGENT, &both);
    assert_eq!(refused.status, 400, "{refused:?}");
}

/// Only what is new: the turns before have their own.
#[test]
fn a_turn_tells_what_it_was_asked() {
    let host = host("");
    let endpoint = scripted([answers("Hello Ann"), answers("Ann")]);
    let server: Server = serve(&host, &endpoint);
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    server.post(&turns, &ask("I am Ann")).good();
    let answer = server.post(&turns, &ask("Who am I?")).good();
    assert_eq!(
        answer["input_messages"],
        json!([{"role": "user", "content": "Who am I?"}])
    );
}
