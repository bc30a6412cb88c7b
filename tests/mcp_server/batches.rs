//! Several messages at a time, as sessions of revisions up to 2025-03-26 may send them.

use super::wire::ping;
use super::{HttpMcpServer, MODERN, Stdio, call, host, initialize, modern, request};
use serde_json::{Value, json};
use std::time::Duration;

/// A session that speaks `version`.
fn session(host: &super::Host, version: &str) -> Stdio {
    let mut client = Stdio::start(host, &["--tools", "probe"]);
    let welcome = client.ask(initialize(version, json!({})));
    assert_eq!(welcome["result"]["protocolVersion"], version);
    client
}

fn note(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Ids and codes of errors of what a batch was answered with.
fn seen(replies: &Value) -> Vec<(Value, Value)> {
    let replies = replies.as_array().expect("an array");
    let seen = |reply: &Value| (reply["id"].clone(), reply["error"]["code"].clone());
    replies.iter().map(seen).collect()
}

#[test]
fn a_batch_is_answered_by_one_with_all_its_replies() {
    let host = host();
    for version in ["2025-03-26", "2024-11-05"] {
        let mut client = session(&host, version);
        client.send(json!([
            ping(1),
            note("notifications/initialized", json!({})),
            call(2, "probe.answer", json!({})),
            request(3, "no/such", json!({})),
        ]));
        let replies = client.next();
        assert_eq!(
            seen(&replies),
            [
                (json!(1), Value::Null),
                (json!(2), Value::Null),
                (json!(3), json!(-32_601))
            ]
        );
        assert_eq!(
            replies[1]["result"]["structuredContent"],
            json!({"result": 42})
        );
        // Of notifications alone nothing comes back.
        client.send(json!([note(
            "notifications/cancelled",
            json!({"requestId": 9})
        )]));
        assert_eq!(client.ask(ping(4))["result"], json!({}));
    }
}

#[test]
fn of_a_bad_batch_each_message_is_judged_for_itself() {
    let host = host();
    let mut client = session(&host, "2025-03-26");
    let alone = modern(5, "tools/list", json!({}), json!({}));
    let again = initialize("2025-03-26", json!({}));
    client.send(json!([7, [ping(1)], {"id": 2}, ping(3), ping(3), again, alone]));
    let replies = client.next();
    let wrong = json!(-32_600);
    assert_eq!(
        seen(&replies),
        [
            (Value::Null, wrong.clone()),
            (Value::Null, wrong.clone()),
            (json!(2), wrong.clone()),
            (json!(3), Value::Null),
            (json!(3), wrong.clone()),
            (json!("hello"), wrong.clone()),
            (json!(5), wrong.clone()),
        ]
    );
    let many: Vec<Value> = (0..101).map(ping).collect();
    for batch in [json!([]), json!(many)] {
        client.send(batch);
        let refused = client.next();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&Value::Null, &wrong)
        );
    }
    client.send(json!(many[..100]));
    assert_eq!(client.next().as_array().unwrap().len(), 100);
}

#[test]
fn a_cancelled_request_of_a_batch_has_no_reply() {
    let host = host();
    let mut client = session(&host, "2025-03-26");
    client.send(json!([call(1, "probe.spin", json!({})), ping(2)]));
    client.send(note("notifications/cancelled", json!({"requestId": 1})));
    assert_eq!(seen(&client.next()), [(json!(2), Value::Null)]);
    let spin = call(3, "probe.spin", json!({}));
    client.send(json!([
        spin,
        note("notifications/cancelled", json!({"requestId": 3}))
    ]));
    assert!(client.is_silent(Duration::from_millis(300)));
    assert_eq!(client.ask(ping(3))["result"], json!({}));
}

#[test]
fn a_batch_is_refused_in_revisions_without_batches() {
    let host = host();
    let batch = json!([ping(1), ping(2)]);
    for version in ["2025-11-25", "2025-06-18"] {
        let mut client = session(&host, version);
        client.send(batch.clone());
        let refused = client.next();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&Value::Null, &json!(-32_600))
        );
        assert_eq!(client.ask(ping(3))["result"], json!({}));
    }
    // Nor before there is a session.
    let mut client = Stdio::start(&host, &["--tools", "probe"]);
    client.send(json!([modern(1, "tools/list", json!({}), json!({}))]));
    assert_eq!(client.next()["error"]["code"], -32_600);
}

#[test]
fn batches_over_http() {
    let host = host();
    let web = HttpMcpServer::start(&host, &["--tools", "probe"], &[]);
    let begun = |version: &str| {
        let welcome = web.post(&[], &initialize(version, json!({})));
        welcome.header("mcp-session-id").unwrap().to_owned()
    };
    let id = begun("2025-03-26");
    let session = [("mcp-session-id", id.as_str())];
    let plain = [session[0], ("accept", "application/json")];

    let replies = web.post(
        &session,
        &json!([ping(1), call(2, "probe.answer", json!({}))]),
    );
    assert_eq!(replies.status, 200, "{replies:?}");
    assert_eq!(
        seen(&replies.json()),
        [(json!(1), Value::Null), (json!(2), Value::Null)]
    );

    // What a call says before comes in the stream, and the replies at its end.
    let mut steps = call(3, "probe.steps", json!({}));
    steps["params"]["_meta"] = json!({"progressToken": "t"});
    let events = web.post(&session, &json!([steps, ping(4)])).events();
    let mut told = events.iter().map(|event| &event["params"]["progressToken"]);
    assert!(told.any(|token| token == "t"), "{events:?}");
    assert_eq!(
        seen(events.last().unwrap()),
        [(json!(3), Value::Null), (json!(4), Value::Null)]
    );
    let whole = web.post(&plain, &json!([steps, ping(4)]));
    assert_eq!(whole.header("content-type"), Some("application/json"));
    assert_eq!(seen(&whole.json()).len(), 2);

    let silent = json!([note("notifications/initialized", json!({})), {"jsonrpc": "2.0", "id": 1, "result": {}}]);
    let taken = web.post(&session, &silent);
    assert_eq!((taken.status, taken.body.as_str()), (202, ""));
    let broken = web.post(&session, &json!([7, {"id": 1}]));
    assert_eq!(
        (broken.status, seen(&broken.json()).len()),
        (400, 2),
        "{broken:?}"
    );
    assert_eq!(web.post(&[], &json!([ping(1)])).status, 400);
    assert_eq!(web.post(&session, &json!([])).status, 400);
    let named = [session[0], ("mcp-protocol-version", MODERN)];
    assert_eq!(web.post(&named, &json!([ping(1)])).status, 400);
    let newer = begun("2025-06-18");
    let refused = web.post(&[("mcp-session-id", &newer)], &json!([ping(1)]));
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (400, &json!(-32_600))
    );
}
