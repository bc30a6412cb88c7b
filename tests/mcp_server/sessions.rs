//! Revisions up to 2025-11-25 over stdio.

use super::wire::ping;
use super::{MODERN, Stdio, answers, call, drop_in, host, initialize, modern, request, text};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::sandbox::repository;
use support::until;

/// Without a stop, a guest runs for longer than any test waits.
pub const ENDLESS: &str = "[limits]\nfuel = 1_000_000_000_000\ntimeout_ms = 60_000\n";

#[test]
fn a_session_begins_with_a_version_that_both_know() {
    let host = host();
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", "2025-11-25"),
        (MODERN, "2025-11-25"),
    ] {
        let mut client = Stdio::start(&host, &["--tools", "probe"]);
        let early = client.ask(request(1, "tools/list", json!({})));
        assert_eq!(early["error"]["code"], -32_600, "{early}");
        let welcome = client.ask(initialize(asked, json!({})));
        let result = &welcome["result"];
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!(result["serverInfo"]["name"], "toolhold");
        assert_eq!(
            result["capabilities"],
            json!({"tools": {"listChanged": true}, "logging": {}})
        );
        let again = client.ask(initialize(asked, json!({})));
        assert_eq!(again["error"]["code"], -32_600, "{again}");
        assert_eq!(client.ask(ping(2))["result"], json!({}));
        assert_eq!(client.close(), Some(0));
    }
}

#[test]
fn tools_are_listed_with_all_that_is_known_of_them() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    let listed = client.ask(request(1, "tools/list", json!({})));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(
        names,
        [
            "calculator-evaluate",
            "probe-answer",
            "probe-spin",
            "probe-steps",
            "probe-toil",
            "probe-walk"
        ]
    );
    let calculator = &tools[0];
    assert_eq!(calculator["title"], "Calculate");
    assert_eq!(calculator["inputSchema"]["type"], "object");
    assert_eq!(calculator["outputSchema"]["type"], "object");
    assert_eq!(calculator["annotations"]["readOnlyHint"], true);
    assert_eq!(calculator["annotations"]["openWorldHint"], false);
    // A number is no object; a session's client wants one.
    assert_eq!(tools[1]["outputSchema"]["required"], json!(["result"]));
    assert!(listed["result"].get("nextCursor").is_none());
}

#[test]
fn results_are_text_and_structure_and_failures_are_for_the_model() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    let good = client.ask(call(
        1,
        "calculator.evaluate",
        json!({"expression": "2^10"}),
    ));
    assert_eq!(
        good["result"]["structuredContent"],
        json!({"value": "1024"})
    );
    assert_eq!(text(&good), r#"{"value":"1024"}"#);
    let number = client.ask(call(2, "probe.answer", json!({})));
    assert_eq!(number["result"]["structuredContent"], json!({"result": 42}));
    for (arguments, kind, part) in [
        (json!({"expression": "1/0"}), "tool", "zero"),
        (json!({"expression": 7}), "arguments", "expression"),
        (json!({}), "arguments", "expression"),
    ] {
        let failed = client.ask(call(3, "calculator.evaluate", arguments));
        assert_eq!(failed["result"]["isError"], true, "{failed}");
        assert_eq!(
            failed["result"]["_meta"]["io.toolhold/failure"]["kind"],
            kind
        );
        assert!(text(&failed).contains(part), "{failed}");
    }
}

#[test]
fn an_invalid_message_gets_the_protocols_error_code() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    for (line, code, id) in [
        ("{", -32_700, Value::Null),
        ("[]", -32_600, Value::Null),
        (
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            -32_600,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            -32_600,
            Value::Null,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
            -32_602,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":"a","method":"resources/list"}"#,
            -32_601,
            json!("a"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"server/discover"}"#,
            -32_601,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
            -32_602,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no.such"}}"#,
            -32_602,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"probe.answer","arguments":[]}}"#,
            -32_602,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"?"}}"#,
            -32_602,
            json!(1),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}"#,
            -32_602,
            json!(1),
        ),
    ] {
        client.send_line(line.as_bytes());
        let reply = client.next();
        assert_eq!(
            (&reply["error"]["code"], &reply["id"]),
            (&json!(code), &id),
            "{line}"
        );
    }
    // Neither is answered, because neither is a request.
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/whatever"}));
    client.send(json!({"jsonrpc": "2.0", "id": 77, "result": {}}));
    client.send_line(b"");
    assert_eq!(client.ask(ping(9))["result"], json!({}));
}

#[test]
fn a_huge_message_is_refused_and_the_next_is_read() {
    let host = host();
    host.write("small.toml", "[mcp_server]\nmessage_bytes = 2_000\n");
    let mut client = Stdio::start(&host, &["--config", "small.toml"]);
    client.ask(initialize("2025-11-25", json!({})));
    for size in [2_001, 5_000_000] {
        client.send_line(&vec![b'x'; size]);
        let reply = client.next();
        assert_eq!(reply["error"]["code"], -32_600);
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains("2000 bytes"), "{message}");
    }
    client.send_line("[".repeat(1_900).as_bytes());
    assert_eq!(client.next()["error"]["code"], -32_700);
    assert_eq!(client.ask(ping(1))["result"], json!({}));
}

#[test]
fn a_cancelled_guest_stops_and_says_nothing_more() {
    let host = host();
    // One place for calls: what follows runs only if the toiling guest is gone.
    let one = format!("[modules]\nconcurrent_calls = 1\n{ENDLESS}");
    host.write("one.toml", one);
    let mut client = Stdio::session(&host, &["--config", "one.toml"], json!({}));
    let params = json!({"name": "probe.toil", "_meta": {"progressToken": 1}});
    client.send(request("toil", "tools/call", params));
    client.hear("notifications/progress");
    let started = Instant::now();
    client.send(
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": "toil", "reason": "enough"}}),
    );
    // Cancellations of unknown requests have no effect.
    for params in [
        json!({"requestId": "other"}),
        json!({}),
        json!({"requestId": [1]}),
    ] {
        let method = "notifications/cancelled";
        client.send(json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }
    let answer = client.ask(call(2, "probe.answer", json!({})));
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert!(client.heard.is_empty() && client.is_silent(Duration::from_millis(300)));
}

#[test]
fn a_spinning_guest_ends_at_its_limit_and_delays_no_other_call() {
    let host = host();
    host.write("short.toml", "[limits]\ntimeout_ms = 1_500\n");
    let mut client = Stdio::session(&host, &["--config", "short.toml"], json!({}));
    client.send(call("spin", "probe.spin", json!({})));
    for n in 0..20 {
        let answer = client.ask(call(n, "probe.answer", json!({})));
        assert_eq!(answer["result"]["isError"], false);
    }
    let ended = match client.heard.pop() {
        Some(ended) => ended,
        None => client.reply("spin"),
    };
    assert_eq!(ended["result"]["isError"], true);
    let failure = &ended["result"]["_meta"]["io.toolhold/failure"];
    assert_eq!(failure["kind"], "deadline", "{ended}");
}

#[test]
fn an_id_is_worked_on_once_at_a_time() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    client.send(call(1, "probe.spin", json!({})));
    let second = client.ask(call(1, "probe.answer", json!({})));
    assert_eq!(second["error"]["code"], -32_600, "{second}");
}

#[test]
fn progress_and_logs_come_before_the_result() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    let steps = |id: i64, token: Value| {
        let params = json!({"name": "probe.steps", "_meta": {"progressToken": token}});
        request(id, "tools/call", params)
    };
    let done = client.ask(steps(1, json!("t")));
    assert_eq!(done["result"]["structuredContent"], json!({"result": 3}));
    let last = client.heard.last().unwrap();
    assert_eq!(last["method"], "notifications/progress");
    assert_eq!(
        last["params"],
        json!({"progressToken": "t", "progress": 3, "total": 3})
    );
    let log = client.hear("notifications/message");
    assert_eq!(
        log["params"],
        json!({"level": "warning", "logger": "probe.steps", "data": "half way"})
    );
    client.heard.clear();

    // The client sets the level, and gets progress only if it asked for it.
    client.ask(request(2, "logging/setLevel", json!({"level": "error"})));
    client.ask(call(3, "probe.steps", json!({})));
    assert!(client.heard.is_empty(), "{:?}", client.heard);
}

#[test]
fn a_module_that_comes_changes_or_goes_changes_the_list() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    let names = |client: &mut Stdio| {
        let listed = client.ask(request(1, "tools/list", json!({})));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert!(!names(&mut client).contains(&"late-answer".to_owned()));
    drop_in(&host, "late", &answers(7));
    client.hear("notifications/tools/list_changed");
    assert!(names(&mut client).contains(&"late-answer".to_owned()));
    let answer = client.ask(call(2, "late.answer", json!({})));
    assert_eq!(answer["result"]["structuredContent"], json!({"result": 7}));

    // Another component is not what was pinned: it is not offered, and says why.
    drop_in(&host, "late", &answers(8));
    client.hear("notifications/tools/list_changed");
    let refused = client.ask(call(3, "late.answer", json!({})));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("toolhold modules approve late"),
        "{message}"
    );
    let approved = host.run(&["modules", "approve", "late", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    client.hear("notifications/tools/list_changed");
    let answer = client.ask(call(4, "late.answer", json!({})));
    assert_eq!(answer["result"]["structuredContent"], json!({"result": 8}));

    std::fs::remove_file(host.path().join("modules/late.wasm")).unwrap();
    client.hear("notifications/tools/list_changed");
    let gone = client.ask(call(5, "late.answer", json!({})));
    assert_eq!(gone["error"]["code"], -32_602, "{gone}");
}

#[test]
fn a_client_that_ends_its_input_still_reads_what_is_nearly_done() {
    let host = host();
    host.write("long.toml", ENDLESS);
    let mut client = Stdio::session(&host, &["--config", "long.toml"], json!({}));
    for n in 0..45 {
        client.send(call(n, "probe.answer", json!({})));
    }
    // The server gives those that are open a second: on a busy machine, no more than a few get done in it.
    while client.heard.len() < 45 {
        let reply = client.next();
        client.heard.push(reply);
    }
    for n in 45..50 {
        client.send(call(n, "probe.answer", json!({})));
    }
    client.send(call("spin", "probe.spin", json!({})));
    let started = Instant::now();
    assert_eq!(client.close(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(20));
    for n in 0..50 {
        let place = client.heard.iter().position(|heard| heard["id"] == n);
        if let Some(place) = place {
            client.heard.remove(place);
        } else {
            client.reply(n);
        }
    }
}

#[test]
fn both_eras_speak_over_one_pipe() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    let params = json!({"name": "probe.answer", "arguments": {}});
    let new = client.ask(modern(1, "tools/call", params, json!({})));
    assert_eq!(new["result"]["structuredContent"], 42);
    assert_eq!(new["result"]["resultType"], "complete");
    let old = client.ask(call(2, "probe.answer", json!({})));
    assert_eq!(old["result"]["structuredContent"], json!({"result": 42}));
    assert!(old["result"].get("resultType").is_none());
}

#[test]
fn only_the_tools_that_were_named_are_served() {
    let host = host();
    let mut client = Stdio::session(&host, &["--tools", "calculator,probe.answer"], json!({}));
    let listed = client.ask(request(1, "tools/list", json!({})));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 2);
    let refused = client.ask(call(2, "probe.spin", json!({})));
    assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    let done = host.run(&["mcp", "--tools", "nobody"]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.stdout.is_empty() && done.stderr.contains("nobody"),
        "{done:?}"
    );
}

/// Modules that are not offered themselves, but that offered tools call, are loaded again when they change.
#[test]
fn a_callee_that_changes_is_called_as_it_is_now() {
    let host = host();
    host.write("modules/callee.wasm", answers(7));
    host.write(
        "modules/asker.wasm",
        std::fs::read(repository().join("modules/sdk/probe/probe.wasm")).unwrap(),
    );
    let granted = "[module.asker]\ntools = [\"callee\"]\n[modules]\npinning = \"never\"\n";
    host.write("toolhold.toml", granted);
    let mut client = Stdio::session(&host, &["--tools", "asker"], json!({}));
    let mut number = 0;
    let mut answered = |client: &mut Stdio| {
        number += 1;
        let question = json!({"tool": "callee.answer", "arguments": {}});
        client.ask(call(number, "asker.ask", question))["result"].to_string()
    };
    let first = answered(&mut client);
    assert!(first.contains('7'), "{first}");
    drop_in(&host, "callee", &answers(8));
    until("the new module", || {
        let now = answered(&mut client);
        (now != first && now.contains('8')).then_some(())
    });
}
