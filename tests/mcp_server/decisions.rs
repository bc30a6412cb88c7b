//! Calls that wait for a person: the client's user is asked, or they are refused.

use super::wire::events;
use super::{HttpMcpServer, Stdio, call, host, initialize, modern, text};
use serde_json::{Value, json};
use std::time::Duration;
use support::host::Host;

/// Calls of the probe wait for a person.
fn guarded(more: &str) -> Host {
    let host = host();
    host.write(
        "guarded.toml",
        format!("[decisions]\nalways = [\"probe\"]\n{more}"),
    );
    host
}

const FLAGS: [&str; 2] = ["--config", "guarded.toml"];

pub fn forms() -> Value {
    json!({"elicitation": {}})
}

#[test]
fn the_clients_user_is_asked_and_decides() {
    let host = guarded("");
    let mut client = Stdio::session(&host, &FLAGS, forms());
    let free = client.ask(call(1, "calculator.evaluate", json!({"expression": "1"})));
    assert_eq!(free["result"]["isError"], false);
    for (answer, is_error, part) in [
        (
            json!({"result": {"action": "accept", "content": {"decision": "approve"}}}),
            false,
            "42",
        ),
        (
            json!({"result": {"action": "accept", "content": {"decision": "refuse", "reason": "not now"}}}),
            true,
            "refused it: not now",
        ),
        (
            json!({"result": {"action": "decline"}}),
            true,
            "refused it: no reason given",
        ),
        (
            json!({"result": {"action": "cancel"}}),
            true,
            "did not decide",
        ),
        (
            json!({"result": {"action": "accept"}}),
            true,
            "did not decide",
        ),
        (json!({"result": 7}), true, "did not decide"),
        (
            json!({"error": {"code": -1, "message": "no"}}),
            true,
            "did not decide",
        ),
    ] {
        client.send(call(2, "probe.answer", json!({})));
        let question = client.hear("elicitation/create");
        let params = &question["params"];
        let message = params["message"].as_str().unwrap();
        assert!(
            message.contains("probe.answer") && message.contains("{}"),
            "{message}"
        );
        assert_eq!(params["requestedSchema"]["required"], json!(["decision"]));
        let mut reply = answer.clone();
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = question["id"].clone();
        client.send(reply);
        let result = client.reply(2);
        assert_eq!(result["result"]["isError"], is_error, "{answer} {result}");
        assert!(text(&result).contains(part), "{answer} {result}");
    }
}

#[test]
fn a_call_without_a_person_is_refused_with_advice_for_the_operator() {
    for (more, capabilities, part) in [
        ("", json!({}), "offers no elicitation"),
        (
            "",
            json!({"elicitation": {"url": {}}}),
            "offers no elicitation",
        ),
        ("[mcp_server]\nask = false\n", forms(), "mcp_server.ask"),
    ] {
        let host = guarded(more);
        let mut client = Stdio::session(&host, &FLAGS, capabilities);
        let refused = client.ask(call(1, "probe.answer", json!({})));
        let words = text(&refused);
        assert_eq!(refused["result"]["isError"], true);
        assert!(
            words.contains(part) && words.contains("never = [\"probe.answer\"]"),
            "{words}"
        );
    }
}

#[test]
fn an_unanswered_question_is_withdrawn() {
    let host = guarded("[mcp_server]\nanswer_timeout_ms = 300\n");
    let mut client = Stdio::session(&host, &FLAGS, forms());
    let late = client.ask(call(1, "probe.answer", json!({})));
    assert!(text(&late).contains("no decision within"), "{late}");
    let question = client.hear("elicitation/create");
    let cancelled = client.hear("notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    // The answer comes too late for that call, and is none to the next.
    let yes = json!({"action": "accept", "content": {"decision": "approve"}});
    client.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": yes}));
    let next = client.ask(call(2, "probe.answer", json!({})));
    assert!(text(&next).contains("no decision within"), "{next}");
}

#[test]
fn a_cancelled_call_takes_its_question_back() {
    let host = guarded("");
    let mut client = Stdio::session(&host, &FLAGS, forms());
    client.send(call(1, "probe.answer", json!({})));
    let question = client.hear("elicitation/create");
    let params = json!({"requestId": 1});
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    let cancelled = client.hear("notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert!(client.is_silent(Duration::from_millis(300)));
}

/// Clients that share a server, each with as many questions as it may leave open, all in one batch.
#[test]
fn unanswered_questions_do_not_block_calls_without_questions() {
    const EACH: i64 = 32;
    let host = guarded("");
    let web = HttpMcpServer::start(&host, &FLAGS, &[]);
    let begun = || {
        let welcome = web.post(&[], &initialize("2025-03-26", forms()));
        welcome.header("mcp-session-id").expect("an id").to_owned()
    };
    let asking = || {
        let calls: Vec<Value> = (0..EACH)
            .map(|id| call(id, "probe.answer", json!({})))
            .collect();
        let id = begun();
        let session = [("mcp-session-id", id.as_str())];
        let batch = json!(calls).to_string();
        let mut stream = events(web.open("POST", &session, batch.as_bytes()));
        for _ in 0..EACH {
            let question = stream.next().expect("a question");
            assert_eq!(question["method"], "elicitation/create", "{question}");
        }
        stream
    };
    let _open: Vec<_> = (0..1_024 / EACH).map(|_| asking()).collect();
    let id = begun();
    let session = [("mcp-session-id", id.as_str())];
    let one_more = call(1, "probe.answer", json!({}));
    let refused = web.post(&session, &one_more).json();
    assert!(text(&refused).contains("too many calls wait"), "{refused}");
    let free = call(2, "calculator.evaluate", json!({"expression": "1"}));
    assert_eq!(web.post(&session, &free).json()["result"]["isError"], false);
}

#[test]
fn without_a_session_the_question_is_the_result_and_the_answer_comes_with_the_next_call() {
    let host = guarded("");
    let mut client = Stdio::start(&host, &FLAGS);
    let call = |id: i64, extra: Value| {
        let mut params = json!({"name": "probe.answer", "arguments": {}});
        params
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().cloned().unwrap());
        modern(id, "tools/call", params, forms())
    };
    let asked = client.ask(call(1, json!({})));
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let question = &result["inputRequests"]["approval"];
    assert_eq!(question["method"], "elicitation/create");
    assert!(
        question["params"]["message"]
            .as_str()
            .unwrap()
            .contains("probe.answer")
    );

    let yes = json!({"approval": {"action": "accept", "content": {"decision": "approve"}}});
    let answered = json!({"requestState": result["requestState"], "inputResponses": yes});
    // An answer to one call is none to another.
    let other = json!({"name": "probe.steps", "inputResponses": yes, "requestState": result["requestState"]});
    let stolen = client.ask(modern(2, "tools/call", other, forms()));
    assert_eq!(stolen["error"]["code"], -32_602, "{stolen}");
    let done = client.ask(call(3, answered.clone()));
    assert_eq!(done["result"]["structuredContent"], 42, "{done}");
    let again = client.ask(call(4, answered));
    assert_eq!(again["error"]["code"], -32_602, "{again}");
    let forged = json!({"requestState": "approved", "inputResponses": yes});
    assert_eq!(client.ask(call(5, forged))["error"]["code"], -32_602);

    let params = json!({"name": "probe.answer"});
    let incapable = client.ask(modern(6, "tools/call", params, json!({})));
    assert_eq!(incapable["error"]["code"], -32_021, "{incapable}");
    assert_eq!(
        incapable["error"]["data"]["requiredCapabilities"],
        json!({"elicitation": {"form": {}}})
    );
}

#[test]
fn shields_stand_around_these_calls_too() {
    let host = host();
    host.write(
        "shielded.toml",
        "[shields.cards]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"tool_input\"]\n",
    );
    let mut client = Stdio::session(&host, &["--config", "shielded.toml"], json!({}));
    let blocked = json!({"expression": "jane.roe@example.com"});
    let blocked = client.ask(call(1, "calculator.evaluate", blocked));
    assert!(
        text(&blocked).contains("the shield cards blocked"),
        "{blocked}"
    );
    let passed = client.ask(call(2, "calculator.evaluate", json!({"expression": "1+1"})));
    assert_eq!(passed["result"]["isError"], false);
}
