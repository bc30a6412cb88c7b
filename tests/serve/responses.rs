//! An agent as a model of OpenAI's Responses API.

use super::{host, scripted, serve, two_plus_two};
use reqwest::Method;
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::server::{Server, ServerSentEvent};
use support::transcript::{answers, calls, told};

const PATH: &str = "/v1/responses";

fn asked(input: impl Into<Value>) -> Value {
    json!({"model": "default", "input": input.into()})
}

fn with(mut request: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(more);
    request
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

fn said(response: &Value) -> &Value {
    &response["output"][0]["content"][0]["text"]
}

fn streamed(server: &Server, request: Value) -> Vec<Value> {
    let answered = server.post(PATH, &with(request, json!({"stream": true})));
    let mut sent = answered.events();
    assert_eq!(sent.pop().unwrap().data, "[DONE]");
    for (number, event) in sent.iter().enumerate() {
        let data = event.json();
        assert_eq!(data["type"], event.event);
        assert_eq!(data["sequence_number"], number);
    }
    sent.iter().map(ServerSentEvent::json).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    kinds
        .map(|it| it.strip_prefix("response.").unwrap_or(it))
        .collect()
}

fn weather() -> Value {
    json!([{"type": "function", "name": "weather", "description": "Today's weather", "strict": true,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}])
}

#[test]
fn an_agent_answers_in_responses() {
    let (host, endpoint) = (host(""), scripted(two_plus_two()));
    let server = serve(&host, &endpoint);
    let request = with(
        asked("What is 2+2?"),
        json!({"instructions": "Be short.", "metadata": {"who": "test"}, "temperature": 0.5, "max_output_tokens": 200, "user": "u"}),
    );
    let response = server.post(PATH, &request).good();
    assert_eq!(said(&response), "It is 4.");
    for (name, value) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("model", json!("default")),
        ("instructions", json!("Be short.")),
        ("metadata", json!({"who": "test"})),
        ("temperature", json!(0.5)),
        ("max_output_tokens", json!(200)),
        ("tools", json!([])),
        ("store", json!(true)),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("previous_response_id", Value::Null),
    ] {
        assert_eq!(response[name], value, "{name}");
    }
    let usage = &response["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    assert!(
        count("input_tokens") > 0 && count("output_tokens") > 0,
        "{usage}"
    );
    assert_eq!(
        count("input_tokens") + count("output_tokens"),
        count("total_tokens")
    );
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    let sent = &endpoint.requests()[0];
    assert_eq!(
        (&sent["temperature"], &sent["max_tokens"]),
        (&json!(0.5), &json!(200))
    );
    assert!(told(&endpoint, 0).contains("Be short."));

    let path = format!("{PATH}/{}", id(&response));
    assert_eq!(server.get(&path).good(), response);
    let run = response["toolhold"]["run"].as_str().unwrap();
    assert_eq!(id(&response), format!("resp_{}", run.replace('-', "")));
    let shown = server.get(&format!("/v1/runs/{run}")).good();
    assert_eq!(shown["answer"]["output"], "It is 4.");
    assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
}

#[test]
fn a_response_streams_as_typed_events() {
    let (host, endpoint) = (host(""), scripted(two_plus_two()));
    let server = serve(&host, &endpoint);
    let events = streamed(&server, asked("What is 2+2?"));
    let seen = kinds(&events);
    let deltas = seen
        .iter()
        .filter(|kind| **kind == "output_text.delta")
        .count();
    assert!(deltas > 1, "in pieces: {seen:?}");
    let mut order = seen.clone();
    order.dedup();
    assert_eq!(
        order,
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    );
    let created = &events[0]["response"];
    assert_eq!(
        (&created["status"], &created["output"]),
        (&json!("in_progress"), &json!([]))
    );
    assert!(created["usage"].is_null());
    let pieces: Vec<&str> = events
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(pieces.concat(), "It is 4.");
    let last = &events[events.len() - 1]["response"];
    let item = &events[events.len() - 2]["item"];
    assert_eq!(&last["output"], &json!([item]));
    assert_eq!(item["status"], "completed");
    let parts = events
        .iter()
        .filter(|event| !event["content_index"].is_null());
    for part in parts {
        assert_eq!(
            (&part["item_id"], &part["output_index"]),
            (&item["id"], &json!(0)),
            "{part}"
        );
    }
    assert_eq!(&server.get(&format!("{PATH}/{}", id(last))).good(), last);
}

/// The context goes on, and what system messages of the input said; the instructions are the request's own.
#[test]
fn a_response_goes_on_from_another() {
    let host = host("");
    let endpoint = scripted([answers("Hello Ann"), answers("Ann"), answers("Ann!")]);
    let server = serve(&host, &endpoint);
    let input = json!([
        {"role": "system", "content": "Speak plainly."},
        {"role": "user", "content": [{"type": "input_text", "text": "I am Ann"}]},
    ]);
    let first = with(asked(input), json!({"instructions": "Greet."}));
    let first = server.post(PATH, &first).good();
    let then =
        |text: &str, before: &Value| with(asked(text), json!({"previous_response_id": id(before)}));
    let second = server.post(PATH, &then("Who am I?", &first)).good();
    assert_eq!(second["previous_response_id"], first["id"]);
    let third = server.post(PATH, &then("And now?", &second)).good();
    assert_eq!(said(&third), "Ann!");
    let prompt = told(&endpoint, 2);
    for part in [
        "Speak plainly.",
        "I am Ann",
        "Hello Ann",
        "Who am I?",
        "And now?",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    assert!(!prompt.contains("Greet."), "{prompt}");
    // A run that was begun otherwise is gone on with, too.
    let run = first["toolhold"]["run"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/runs/{run}/events")).status, 200);
}

/// The client is asked what its own tool is asked; what ours returned is not forgotten.
#[test]
fn tools_of_the_client_are_called_between_responses() {
    let host = host("");
    let both = || {
        calls([
            ("calculator.evaluate", json!({"expression": "2+2"})),
            ("weather", json!({"city": "Bern"})),
        ])
    };
    let endpoint = scripted([
        both(),
        answers("4, and sunny"),
        both(),
        answers("once more"),
    ]);
    let server = serve(&host, &endpoint);
    let request = with(
        asked("2+2, and the weather in Bern?"),
        json!({"tools": weather()}),
    );
    let response = server.post(PATH, &request).good();
    assert_eq!(response["status"], "completed");
    assert_eq!(response["tools"], weather());
    assert!(response["usage"]["total_tokens"].as_u64() > Some(0));
    let [own, call] = response["output"].as_array().unwrap().as_slice() else {
        panic!("{response}");
    };
    assert!(
        own["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("calculator.evaluate")
    );
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("weather"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Bern"}));
    assert_eq!(
        server.get(&format!("{PATH}/{}", id(&response))).good()["output"],
        response["output"]
    );

    let goes_on = json!({"previous_response_id": id(&response)});
    let refused = server.post(PATH, &with(asked("Well?"), goes_on.clone()));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused.text.contains("has no function_call_output"),
        "{refused:?}"
    );
    let result =
        json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}]);
    let last = server
        .post(PATH, &with(asked(result.clone()), goes_on))
        .good();
    assert_eq!(said(&last), "4, and sunny");
    let prompt = told(&endpoint, 1);
    for part in [
        "2+2, and the weather",
        "returned {",
        r#"{"_tool":"weather","city":"Bern"}"#,
        "sunny",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }

    // Streamed, and without what the server keeps: the client sends everything back itself.
    let events = streamed(&server, request);
    let seen = kinds(&events);
    let end = seen.len() - 5;
    assert_eq!(
        seen[end..],
        [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ]
    );
    let output = events[events.len() - 1]["response"]["output"].clone();
    let call = output[1].clone();
    assert_eq!(events[seen.len() - 3]["arguments"], call["arguments"]);
    let mut input = vec![json!({"role": "user", "content": "2+2, and the weather in Bern?"})];
    input.extend(output.as_array().unwrap().clone());
    input.push(
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}),
    );
    let last = server.post(PATH, &asked(input)).good();
    assert_eq!(said(&last), "once more");
    assert!(told(&endpoint, 3).contains("rain"));
}

/// In native tool calling a model may speak before it calls: that is no answer, and stays what it was.
#[test]
fn text_between_calls_is_an_item_of_its_own() {
    let host = host("[endpoints.default]\ncontract = \"tools\"\n");
    let first = Reply {
        content: Some("Let me see.".into()),
        ..Reply::tool_calls([("calculator.evaluate", json!({"expression": "2+2"}))])
    };
    let endpoint = scripted([first, Reply::content("It is 4.")]);
    let server = serve(&host, &endpoint);
    let events = streamed(&server, asked("What is 2+2?"));
    let last = &events[events.len() - 1]["response"];
    let output = last["output"].as_array().unwrap();
    let seen: Vec<_> = output
        .iter()
        .map(|item| {
            (
                item["content"][0]["text"].as_str().unwrap(),
                item["phase"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [("Let me see.", Some("commentary")), ("It is 4.", None)]
    );
    assert_eq!(&server.get(&format!("{PATH}/{}", id(last))).good(), last);
}

#[test]
fn an_answer_has_the_form_that_was_asked_for() {
    let host = host("");
    let endpoint = scripted([answers(json!({"n": 4})), answers(json!({"any": 1}))]);
    let server = serve(&host, &endpoint);
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for (mut format, text) in [
        (
            json!({"type": "json_schema", "name": "n", "strict": true, "schema": schema}),
            r#"{"n":4}"#,
        ),
        (json!({"type": "json_object"}), r#"{"any":1}"#),
    ] {
        let request = with(asked("2+2?"), json!({"text": {"format": format}}));
        let response = server.post(PATH, &request).good();
        assert_eq!(said(&response), text);
        if format["type"] == "json_schema" {
            format["description"] = Value::Null;
        }
        assert_eq!(response["text"]["format"], format);
    }
}

/// What would mean something else here is refused in words, and nothing is asked of the model.
#[test]
fn requests_beyond_what_agents_offer_are_refused() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    for (more, status, reason) in [
        (json!({"model": "gpt"}), 404, "\"gpt\""),
        (json!({"input": 7}), 400, "input: expected a text or a list"),
        (json!({"input": []}), 400, "input: there is nothing to do"),
        (json!({"input": [7]}), 400, "input[0]: invalid type"),
        (
            json!({"input": [{"role": "king", "content": "t"}]}),
            400,
            "none of system",
        ),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            404,
            "no item \"x\"",
        ),
        (
            json!({"input": [{"type": "compaction", "encrypted_content": "x"}]}),
            400,
            "input[0]: an item of the type \"compaction\"",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}),
            400,
            "expected a data: URL",
        ),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
            400,
            "names no call",
        ),
        (
            json!({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]}),
            400,
            "the call \"c\" of f has no function_call_output",
        ),
        (
            json!({"include": ["message.output_text.logprobs"]}),
            400,
            "include:",
        ),
        (json!({"top_logprobs": 2}), 400, "top_logprobs:"),
        (json!({"conversation": "conv_1"}), 400, "conversation:"),
        (json!({"prompt": {"id": "p"}}), 400, "prompt:"),
        (
            json!({"tools": [{"type": "web_search"}]}),
            400,
            "\"web_search\" is not here",
        ),
        (
            json!({"tools": [{"type": "function"}]}),
            400,
            "tools[0].name:",
        ),
        (json!({"tool_choice": "must"}), 400, "tool_choice:"),
        (
            json!({"tool_choice": {"type": "function", "name": "f"}}),
            400,
            "tool_choice:",
        ),
        (json!({"text": "json"}), 400, "text: expected an object"),
        (json!({"truncation": "always"}), 400, "truncation:"),
        (
            json!({"text": {"format": {"type": "xml"}}}),
            400,
            "text.format:",
        ),
        (json!({"max_output_tokens": 0}), 400, "at least 1"),
        (
            json!({"metadata": {"x": "y".repeat(513)}}),
            400,
            "metadata:",
        ),
        (json!({"metadata": {"x": 1}}), 400, "invalid type"),
        (
            json!({"previous_response_id": "resp_1"}),
            404,
            "no response \"resp_1\"",
        ),
        (
            json!({"previous_response_id": "resp_019aa00000007000800000000000000f"}),
            404,
            "no response",
        ),
    ] {
        let refused = server.post(PATH, &with(asked("t"), more.clone()));
        assert_eq!(refused.status, status, "{more}: {refused:?}");
        let message = refused.json()["error"]["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(message.contains(reason), "{more}: {message}");
    }
    assert!(endpoint.requests().is_empty());
    assert_eq!(server.get("/v1/runs").good(), json!({"runs": []}));
}

/// To a client that may not see it, a response does not exist.
#[test]
fn a_response_is_its_owners_alone() {
    let host = host("");
    let endpoint = Endpoint::start(Scenario::new([answers("secret")]).in_order(ReplyOrder::Repeat));
    let key = |name: &str| host.run(&["keys", "create", name]).stdout;
    let (ann, bob) = (key("ann"), key("bob"));
    let mut server = serve(&host, &endpoint);
    server.use_key(&ann);
    let response = server.post(PATH, &asked("t")).good();
    let one = format!("{PATH}/{}", id(&response));
    let none = format!("{PATH}/resp_{}", "0".repeat(32));
    let goes_on = |id: &str| with(asked("t"), json!({"previous_response_id": id}));
    server.use_key(&bob);
    let everything = |path: &str| {
        let id = path.rsplit('/').next().unwrap();
        [
            server.get(path),
            server.ask(Method::DELETE, path, None, &[]),
            server.post(&format!("{path}/cancel"), &json!({})),
            server.post(PATH, &goes_on(id)),
        ]
        .map(|answered| (answered.status, answered.text.replace(id, "ID")))
    };
    assert_eq!(everything(&one), everything(&none));
    assert!(everything(&one).iter().all(|(status, _)| *status == 404));
    server.use_key(&ann);
    assert_eq!(server.get(&one).status, 200);
    assert_eq!(endpoint.requests().len(), 1);
}

/// A client that lost a stream gets it again, from its start.
#[test]
fn the_events_of_a_response_are_sent_again() {
    let (host, endpoint) = (
        host(""),
        scripted([answers("It is 4."), answers("It is 5.")]),
    );
    let server = serve(&host, &endpoint);
    let text = |events: &[Value]| {
        let deltas = events
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta");
        let pieces = deltas.map(|event| event["delta"].as_str().unwrap().to_owned());
        pieces.collect::<String>()
    };
    let first = streamed(&server, asked("2+2?"));
    let whole = server.post(PATH, &asked("2+3?")).good();
    for (response, answer) in [
        (&first.last().unwrap()["response"], "It is 4."),
        (&whole, "It is 5."),
    ] {
        let path = format!("{PATH}/{}", id(response));
        let sent = server.get(&format!("{path}?stream=true")).events();
        let (end, sent) = sent.split_last().unwrap();
        assert_eq!(end.data, "[DONE]");
        let sent: Vec<Value> = sent.iter().map(ServerSentEvent::json).collect();
        for (number, event) in sent.iter().enumerate() {
            assert_eq!(event["sequence_number"], number, "{sent:?}");
        }
        assert_eq!(kinds(&sent)[..2], ["created", "in_progress"]);
        assert_eq!(text(&sent), answer, "{sent:?}");
        let last = sent.last().unwrap();
        assert_eq!(last["type"], "response.completed");
        assert_eq!(last["response"], server.get(&path).good());
        assert_eq!(last["response"]["output"], response["output"]);
        // Its text may come in other pieces.
        let from = server.get(&format!("{path}?stream=true&starting_after=3"));
        assert_eq!(from.status, 400, "{from:?}");
        assert_eq!(from.json()["error"]["code"], "unsupported_parameter");
        assert_eq!(from.json()["error"]["param"], "starting_after");
    }
    assert_eq!(endpoint.requests().len(), 2);
}

#[test]
fn a_response_is_cancelled_and_deleted() {
    let (host, endpoint) = (host(""), scripted([Reply::endless()]));
    let server = serve(&host, &endpoint);
    let request = with(asked("t"), json!({"stream": true}));
    let begun = server.first_events(Method::POST, PATH, Some(&request), 2);
    let path = format!("{PATH}/{}", id(&begun[0].json()["response"]));
    assert_eq!(server.get(&path).good()["status"], "in_progress");
    let early = server.ask(Method::DELETE, &path, None, &[]);
    assert_eq!(early.status, 409, "{early:?}");
    let goes_on = with(
        asked("t"),
        json!({"previous_response_id": path.rsplit('/').next()}),
    );
    let early = server.post(PATH, &goes_on);
    assert_eq!(early.status, 409, "{early:?}");

    let cancelled = server.post(&format!("{path}/cancel"), &json!({})).good();
    assert_eq!(cancelled["status"], "cancelled");
    let again = server.post(&format!("{path}/cancel"), &json!({})).good();
    assert_eq!(again, cancelled);
    let deleted = server.ask(Method::DELETE, &path, None, &[]).good();
    assert_eq!(
        (&deleted["id"], &deleted["deleted"]),
        (&cancelled["id"], &json!(true))
    );
    assert_eq!(server.get(&path).status, 404);
    let run = cancelled["toolhold"]["run"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/runs/{run}")).status, 404);
}

/// A response in the background has it, too.
#[test]
fn text_that_broke_off_stays_in_a_cancelled_response() {
    let host = host("[endpoints.default]\ncontract = \"tools\"\n");
    let text = "A long answer, of which the first words came. ".repeat(10);
    let endpoint = scripted([Reply::content(text.as_str()).delayed_ms(0, 200)]);
    let server = serve(&host, &endpoint);
    let request = with(asked("t"), json!({"background": true}));
    let begun = server.post(PATH, &request).good();
    let run = begun["toolhold"]["run"].as_str().unwrap();
    server.first_events(Method::GET, &format!("/v1/runs/{run}/events"), None, 6);
    let path = format!("{PATH}/{}", id(&begun));
    let cancelled = server.post(&format!("{path}/cancel"), &json!({})).good();
    assert_eq!(cancelled["status"], "cancelled");
    let item = &cancelled["output"][0];
    assert_eq!(item["status"], "incomplete", "{cancelled}");
    let said = item["content"][0]["text"].as_str().unwrap();
    assert!(!said.is_empty() && text.starts_with(said), "{said:?}");
    assert_eq!(server.get(&path).good(), cancelled);
    let again = server.post(&format!("{path}/cancel"), &json!({})).good();
    assert_eq!(again, cancelled);
}

/// Tokens that are used up and shields that block make it incomplete; any other limit makes it fail, and says
/// which it was.
#[test]
fn a_response_without_an_answer_says_why() {
    let broken = || Reply::error(400, json!({"error": {"message": "no such model"}}));
    let endless = || calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let cut = || Reply {
        finish_reason: Some("length".into()),
        ..Reply::content("It is")
    };
    let card = "[shields.cards]\nkind = \"pii\"\nblock = [\"card\"]\nplaces = [\"input\"]\n";
    let incomplete = |reason: &str| json!({"reason": reason});
    for (config, input, reply, status, details, code) in [
        (
            "[run]\nmax_steps = 1\n",
            "t",
            endless(),
            "failed",
            Value::Null,
            "max_steps",
        ),
        (
            "[run]\nmax_tool_calls = 1\n",
            "t",
            endless(),
            "failed",
            Value::Null,
            "max_tool_calls",
        ),
        (
            "[run]\ntimeout_ms = 700\n",
            "t",
            Reply::endless(),
            "failed",
            Value::Null,
            "timeout",
        ),
        (
            "[run]\ntoken_budget = 1\n",
            "t",
            endless(),
            "incomplete",
            incomplete("max_output_tokens"),
            "",
        ),
        (
            "[endpoints.default]\ncontract = \"tools\"\n",
            "t",
            cut(),
            "incomplete",
            incomplete("max_output_tokens"),
            "",
        ),
        (
            "",
            "t",
            cut(),
            "incomplete",
            incomplete("max_output_tokens"),
            "",
        ),
        (
            card,
            "4111 1111 1111 1111",
            endless(),
            "incomplete",
            incomplete("content_filter"),
            "",
        ),
    ] {
        let host = host(config);
        let endpoint = Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat));
        let server = serve(&host, &endpoint);
        let response = server.post(PATH, &asked(input)).good();
        assert_eq!(response["status"], status, "{config}: {response}");
        assert_eq!(response["incomplete_details"], details, "{config}");
        if code.is_empty() {
            assert!(response["error"].is_null(), "{config}: {response}");
        } else {
            assert_eq!(response["error"]["code"], code, "{config}");
            assert_eq!(response["toolhold"]["reason"], code);
            let message = response["error"]["message"].as_str().unwrap();
            assert!(message.contains("run"), "{message}");
        }
        // What the host says at a limit is whole.
        let expected = if code.is_empty() {
            "incomplete"
        } else {
            "completed"
        };
        let mut items = response["output"].as_array().unwrap().iter();
        assert!(items.all(|item| item["status"] == expected), "{response}");
        let events = streamed(&server, asked(input));
        assert_eq!(kinds(&events).last(), Some(&status), "{config}");
    }

    let (host, endpoint) = (host(""), scripted([broken(), broken()]));
    let server = serve(&host, &endpoint);
    let failed = server.post(PATH, &asked("t"));
    // The endpoint's own word about the request.
    assert_eq!(failed.status, 400, "{failed:?}");
    assert_eq!(failed.json()["error"]["code"], "endpoint_refused_request");
    // A run was made: SDKs are not to make another.
    assert_eq!(failed.headers["x-should-retry"], "false");
    let events = streamed(&server, asked("t"));
    assert_eq!(
        kinds(&events),
        ["created", "in_progress", "error", "failed"]
    );
    assert_eq!(events[2]["code"], "endpoint_refused_request");
    assert_eq!(events[2]["error"]["type"], "invalid_request_error");
    let response = &events[3]["response"];
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "endpoint_refused_request");
    assert!(
        response["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no such model")
    );
    let kept = server.get(&format!("{PATH}/{}", id(response))).good();
    assert_eq!(&kept, response);
}

/// The same request under the same key is the same response.
#[test]
fn a_response_that_is_asked_for_twice_is_one() {
    let (host, endpoint) = (host(""), scripted([answers("once")]));
    let server = serve(&host, &endpoint);
    let key = [("idempotency-key", "one")];
    let [first, second] = [(); 2].map(|()| {
        let request = with(asked("t"), json!({"metadata": {"a": "b"}}));
        server.ask(Method::POST, PATH, Some(&request), &key).good()
    });
    assert_eq!(first, second);
    assert_eq!(endpoint.requests().len(), 1);
}
