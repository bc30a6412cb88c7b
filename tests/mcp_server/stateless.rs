//! Revision 2026-07-28 over stdio.

use super::{MODERN, Stdio, answers, call, drop_in, host, modern, request, text};
use serde_json::{Value, json};
use std::time::Duration;

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

#[test]
fn every_request_stands_for_itself() {
    let host = host();
    let mut client = Stdio::start(&host, &[]);
    let params = json!({"name": "calculator.evaluate", "arguments": {"expression": "6*7"}});
    let first = client.ask(modern(1, "tools/call", params, json!({})));
    let result = &first["result"];
    assert_eq!(result["resultType"], "complete", "{first}");
    assert_eq!(result["structuredContent"], json!({"value": "42"}));
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "toolhold"
    );

    let found = client.ask(modern(2, "server/discover", json!({}), json!({})));
    let result = &found["result"];
    assert_eq!(result["supportedVersions"], json!([MODERN]));
    assert_eq!(
        result["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    assert_eq!(
        (&result["cacheScope"], &result["ttlMs"]),
        (&json!("public"), &json!(60_000))
    );

    let listed = client.ask(modern(3, "tools/list", json!({}), json!({})));
    let result = &listed["result"];
    assert_eq!(result["cacheScope"], "public");
    // A result of this era is whatever it is.
    let answer = &result["tools"][1];
    assert_eq!(
        (&answer["name"], &answer["outputSchema"]["type"]),
        (&json!("probe-answer"), &json!("integer"))
    );

    let failed = modern(
        4,
        "tools/call",
        json!({"name": "calculator.evaluate", "arguments": {}}),
        json!({}),
    );
    let failed = client.ask(failed);
    assert_eq!(failed["result"]["isError"], true);
    assert!(text(&failed).contains("expression"));
}

#[test]
fn a_missing_part_of_a_request_is_named() {
    let host = host();
    let mut client = Stdio::start(&host, &["--tools", "probe"]);
    let with = |meta: Value| request(1, "tools/list", json!({"_meta": meta}));
    for (message, code) in [
        (with(json!({VERSION_KEY: MODERN})), -32_602),
        (with(json!({VERSION_KEY: 5, CAPABILITIES_KEY: {}})), -32_602),
        (
            with(json!({VERSION_KEY: "1900-01-01", CAPABILITIES_KEY: {}})),
            -32_022,
        ),
        (
            with(json!({VERSION_KEY: "2025-11-25", CAPABILITIES_KEY: {}})),
            -32_022,
        ),
        (
            with(
                json!({VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, "io.modelcontextprotocol/logLevel": "loud"}),
            ),
            -32_602,
        ),
        (modern(1, "ping", json!({}), json!({})), -32_601),
        (
            modern(1, "logging/setLevel", json!({"level": "info"}), json!({})),
            -32_601,
        ),
        (
            modern(1, "subscriptions/listen", json!({}), json!({})),
            -32_602,
        ),
        (
            modern(1, "tools/call", json!({"name": "no.such"}), json!({})),
            -32_602,
        ),
    ] {
        let reply = client.ask(message.clone());
        assert_eq!(reply["error"]["code"], code, "{message} {reply}");
        if code == -32_022 {
            assert_eq!(reply["error"]["data"]["supported"], json!([MODERN]));
        }
    }
}

#[test]
fn logs_and_progress_are_sent_only_if_the_request_asks() {
    let host = host();
    let mut client = Stdio::start(&host, &[]);
    let steps = |id: i64, meta: Value| {
        modern(
            id,
            "tools/call",
            json!({"name": "probe.steps", "_meta": meta}),
            json!({}),
        )
    };
    client.ask(steps(1, json!({})));
    assert!(client.heard.is_empty(), "{:?}", client.heard);
    let level = "io.modelcontextprotocol/logLevel";
    client.ask(steps(2, json!({level: "warning", "progressToken": 9})));
    let log = client.hear("notifications/message");
    assert_eq!(log["params"]["data"], "half way");
    let last = client.heard.last().unwrap();
    assert_eq!(
        last["params"],
        json!({"progressToken": 9, "progress": 3, "total": 3})
    );
}

#[test]
fn a_subscription_tells_of_changes_until_it_is_cancelled() {
    let host = host();
    let mut client = Stdio::start(&host, &[]);
    let listen = |id: &str, wanted: Value| {
        modern(
            id,
            "subscriptions/listen",
            json!({"notifications": wanted}),
            json!({}),
        )
    };
    client.send(listen(
        "tools",
        json!({"toolsListChanged": true, "promptsListChanged": true}),
    ));
    let key = "io.modelcontextprotocol/subscriptionId";
    let acknowledged = client.hear("notifications/subscriptions/acknowledged");
    assert_eq!(
        acknowledged["params"],
        json!({"_meta": {key: "tools"}, "notifications": {"toolsListChanged": true}})
    );
    client.send(listen("nothing", json!({})));
    let acknowledged = client.hear("notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({}));

    drop_in(&host, "late", &answers(7));
    let changed = client.hear("notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"][key], "tools");

    let params = json!({"requestId": "tools"});
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    // A reply in between: the cancellation was read.
    client.ask(modern(1, "tools/list", json!({}), json!({})));
    std::fs::remove_file(host.path().join("modules/late.wasm")).unwrap();
    assert!(client.is_silent(Duration::from_secs(2)));
    let early = client.ask(call(2, "probe.answer", json!({})));
    assert_eq!(early["error"]["code"], -32_600, "no session began: {early}");
}
