//! Answers that are not whole, because the endpoint cut them or its connection broke: every API says so.

use super::{ask, host, serve};
use serde_json::{Value, json};
use std::thread;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::server::{Server, ServerSentEvent};

const TEXT: &str = "[endpoints.default]\ncontract = \"tools\"\nbackoff_ms = 10\n";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const AGENT: &str = "/v1/agent";

fn request(path: &str) -> Value {
    let mut request = ask("What is it?");
    match path {
        CHAT => request["model"] = "default".into(),
        RESPONSES => request = json!({"model": "default", "input": "What is it?"}),
        _ => {}
    }
    request
}

/// An endpoint that always answers so.
fn always(reply: Reply) -> Endpoint {
    Endpoint::start(Scenario::new([reply]).in_order(ReplyOrder::Repeat))
}

/// The last event of a stream before `[DONE]`.
fn last_event(server: &Server, path: &str) -> Value {
    let mut request = request(path);
    request["stream"] = true.into();
    let events = server.post(path, &request).events();
    let mut events = events.iter().filter(|event| event.data != "[DONE]");
    events
        .next_back()
        .map(ServerSentEvent::json)
        .unwrap_or_default()
}

#[test]
fn answer_that_is_cut_at_the_token_limit_is_told_by_every_api() {
    let cut = Reply {
        finish_reason: Some("length".into()),
        ..Reply::content("It is")
    };
    let (host, endpoint) = (host(TEXT), always(cut));
    let server = serve(&host, &endpoint);
    let is_told = |notices: &Value| notices.to_string().contains("not whole");

    let answer = server.post(CHAT, &request(CHAT)).good();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length", "{answer}");
    assert_eq!(choice["message"]["content"], "It is");
    assert!(is_told(&answer["toolhold"]["notices"]), "{answer}");
    let last = last_event(&server, CHAT);
    assert_eq!(last["choices"][0]["finish_reason"], "length", "{last}");
    assert!(is_told(&last["toolhold"]["notices"]), "{last}");

    let answer = server.post(RESPONSES, &request(RESPONSES)).good();
    let last = last_event(&server, RESPONSES);
    assert_eq!(last["type"], "response.incomplete", "{last}");
    for response in [&answer, &last["response"]] {
        assert_eq!(response["status"], "incomplete", "{response}");
        let details = json!({"reason": "max_output_tokens"});
        assert_eq!(response["incomplete_details"], details);
        let item = &response["output"][0];
        assert_eq!(item["status"], "incomplete", "{response}");
        assert_eq!(item["content"][0]["text"], "It is", "{response}");
        assert!(is_told(&response["toolhold"]["notices"]), "{response}");
    }

    let answer = server.post(AGENT, &request(AGENT)).good();
    assert_eq!(answer["output"], "It is", "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    assert!(is_told(&answer["notices"]), "{answer}");
}

#[test]
fn answer_whose_connection_breaks_is_an_error_of_every_api() {
    // Beside each other: the time is that between attempts at the endpoint.
    thread::scope(|scope| {
        for path in [CHAT, RESPONSES, AGENT] {
            scope.spawn(move || an_answer_whose_connection_breaks_is_an_error(path));
        }
    });
}

fn an_answer_whose_connection_breaks_is_an_error(path: &str) {
    // A server for each API: its circuit breaker is closed.
    let (host, endpoint) = (host(TEXT), always(Reply::content("It is").cut()));
    let server = serve(&host, &endpoint);
    let whole = server.post(path, &request(path));
    assert!(matches!(whole.status, 502 | 503), "{path}: {whole:?}");
    assert!(whole.text.contains("in the middle"), "{path}: {whole:?}");
    let last = last_event(&server, path);
    match path {
        CHAT => assert!(last["error"]["message"].is_string(), "{last}"),
        RESPONSES => {
            assert_eq!(last["type"], "response.failed", "{last}");
            assert_eq!(last["response"]["status"], "failed", "{last}");
        }
        _ => assert_eq!(last["reason"], "model", "{last}"),
    }
}
