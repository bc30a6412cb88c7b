//! What leaves records of an MCP client's calls, what is hidden from it, and grants that change meanwhile.

use super::{HttpMcpServer, Stdio, call, drop_in, host, modern, request, text};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};
use support::collector::Collector;
use support::host::Host;
use support::records::Records;
use support::sandbox::repository;
use support::server::limit_files;
use support::until;

const MAIL: &str = "ada@example.org";

/// The entries of the audit log, when there are so many calls.
fn audited(host: &Host, calls: usize) -> Vec<Value> {
    let started = Instant::now();
    loop {
        let found = host.run(&["audit", "search", "--json"]);
        let lines = found.stdout.lines();
        let entries: Vec<Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let made = entries.iter().filter(|entry| entry["action"] == "call");
        if made.count() >= calls {
            let verified = host.run(&["audit", "verify"]);
            assert_eq!(verified.code, Some(0), "{verified:?}");
            return entries;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{entries:?}");
        std::thread::sleep(Duration::from_millis(150));
    }
}

fn count(id: i64, words: &str) -> Value {
    call(id, "text.count", json!({"text": words}))
}

#[test]
fn calls_are_in_the_audit_log_before_anybody_has_their_result() {
    let host = host();
    host.ship("text");
    let mut client = Stdio::session(&host, &[], json!({}));
    client.ask(count(1, &format!("write to {MAIL}")));
    // Killed at once: every call whose result was sent is in the log.
    client.child.kill().unwrap();
    let entries = audited(&host, 1);
    let [entry] = entries.as_slice() else {
        panic!("{entries:?}");
    };
    assert_eq!(
        (
            &entry["tool"],
            &entry["status"],
            &entry["via"],
            &entry["by_host"]
        ),
        (
            &json!("text.count"),
            &json!("ok"),
            &json!("mcp"),
            &json!(false)
        )
    );
    assert_eq!(entry["arguments"], json!({"text": "write to <email>"}));
    assert_eq!(entry["client"], json!({"name": "test", "version": "1"}));
    assert!(
        entry["owner"].as_str().unwrap().starts_with("uid:"),
        "{entry}"
    );
    for digest in ["module_digest", "result_digest", "policy"] {
        assert_eq!(
            entry[digest].as_str().map(str::len),
            Some(64),
            "{digest}: {entry}"
        );
    }
    assert!(entry["duration_us"].as_u64() > Some(0), "{entry}");
}

/// What is refused before anything looks at the arguments, and before they are read.
#[test]
fn calls_that_are_refused_unread_are_in_the_audit_log() {
    let host = host();
    host.write("small.toml", "[limits]\nargument_bytes = 20_000\n");
    let large = call(1, "probe.answer", json!({"x": "x".repeat(30_000)}));
    let unknown = call(2, "probe.nothing", json!({"x": 1}));
    let mut listed = call(3, "probe.answer", json!({}));
    listed["params"]["arguments"] = json!([1]);
    let check = |entries: &[Value], owner: &str| {
        let seen: Vec<_> = entries
            .iter()
            .map(|it| (it["tool"].as_str().unwrap(), &it["by_host"], &it["error"]))
            .collect();
        let refused = (&json!(true), &json!("arguments"));
        assert_eq!(
            seen,
            [
                ("probe.answer", refused.0, refused.1),
                ("probe.nothing", refused.0, refused.1),
                ("probe.answer", refused.0, refused.1)
            ],
            "{entries:?}"
        );
        let unread = &entries[0]["arguments"];
        assert_eq!(unread["bytes"], 30_008, "{unread}");
        assert_eq!(unread["sha256"].as_str().map(str::len), Some(64));
        assert_eq!(entries[1]["arguments"], json!({"x": 1}));
        assert_eq!(entries[2]["arguments"], json!([1]));
        for entry in entries {
            assert!(entry["owner"].as_str().unwrap().starts_with(owner));
            assert_eq!(entry["via"], "mcp");
        }
    };
    let mut client = Stdio::session(&host, &["--config", "small.toml"], json!({}));
    for message in [&large, &unknown, &listed] {
        let answer = client.ask(message.clone());
        assert_eq!(answer["error"]["code"], -32_602, "{answer}");
    }
    check(&audited(&host, 3), "uid:");
    drop(client);

    let web = HttpMcpServer::start(&host, &["--config", "small.toml"], &[]);
    for message in [&large, &unknown, &listed] {
        let params = message["params"].clone();
        let answer = web.modern(&modern(1, "tools/call", params, json!({})));
        assert_eq!(answer.json()["error"]["code"], -32_602, "{answer:?}");
    }
    check(&audited(&host, 6)[3..], "mcp:http");
}

/// The tool was called, and nothing of the process could say what came of it.
#[test]
fn a_call_during_which_the_server_is_killed_is_in_the_log_as_interrupted() {
    let host = host();
    let mut client = Stdio::session(&host, &[], json!({}));
    client.ask(call(1, "probe.answer", json!({})));
    let (mut toil, token) = (call(2, "probe.toil", json!({})), json!("t"));
    toil["params"]["_meta"] = json!({"progressToken": token});
    client.send(toil);
    // Its guest says that it runs.
    let told = client.next();
    assert_eq!(told["params"]["progressToken"], token, "{told}");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    // A second look finds nothing more.
    for _ in 0..2 {
        let entries = audited(&host, 2);
        let seen: Vec<_> = entries
            .iter()
            .map(|it| (it["tool"].as_str().unwrap(), it["status"].as_str().unwrap()))
            .collect();
        assert_eq!(
            seen,
            [("probe.answer", "ok"), ("probe.toil", "interrupted")]
        );
        assert_eq!(entries[1]["via"], "mcp");
        assert!(entries[1].get("result_digest").is_none(), "{entries:?}");
    }
}

#[test]
fn results_that_do_not_wait_for_the_log_are_in_it_when_the_server_has_ended() {
    const CALLS: i64 = 20;
    let host = host();
    host.ship("text");
    host.write("toolhold.toml", "[mcp_server]\naudit = \"behind\"\n");
    let mut client = Stdio::session(&host, &[], json!({}));
    client.ask(count(0, "so that there is a log"));
    Records::of(&host).kept_busy(|| {
        for id in 1..=CALLS {
            let reply = client.ask(count(id, "a b"));
            assert_eq!(reply["result"]["structuredContent"]["words"], 2, "{reply}");
        }
    });
    assert_eq!(client.close(), Some(0));
    assert_eq!(audited(&host, 0).len(), CALLS as usize + 1);
}

/// The disk is full: nothing is called any more that would be in no log, and what was answered is in it when
/// there is room again.
#[test]
fn calls_that_cannot_be_recorded_are_not_made() {
    for mode in ["behind", "durable"] {
        let host = host();
        host.ship("text");
        let settings = format!("[mcp_server]\naudit = {mode:?}\n[storage]\npatience_ms = 300\n");
        host.write("toolhold.toml", settings);
        let mut client = Stdio::session(&host, &[], json!({}));
        let mut answered = 0;
        let mut id = 0;
        let mut asked = |client: &mut Stdio| {
            id += 1;
            let reply = client.ask(count(id, "a b"));
            answered += usize::from(reply.get("result").is_some());
            reply["error"]["message"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(asked(&mut client), "");
        let log = host.path().join(".state/toolhold.db-wal");
        until("its row", || {
            log.metadata().is_ok_and(|it| it.len() > 0).then_some(())
        });
        limit_files(&client.child, Some(log.metadata().unwrap().len()));
        let refused = until("a refusal", || {
            let message = asked(&mut client);
            message.contains("nothing was called").then_some(message)
        });
        assert!(refused.contains("audit log"), "{refused}");
        limit_files(&client.child, None);
        until("a call", || asked(&mut client).is_empty().then_some(()));
        assert_eq!(client.close(), Some(0));
        let entries = audited(&host, answered);
        assert!(entries.len() >= answered, "{mode}: {}", entries.len());
    }
}

#[test]
fn every_outcome_of_a_call_is_in_the_log() {
    let host = host();
    host.write(
        "toolhold.toml",
        "[decisions]\nalways = [\"probe.answer\"]\n",
    );
    let web = HttpMcpServer::start(&host, &[], &[]);
    let evaluate = |id: i64, expression: &str| {
        let params =
            json!({"name": "calculator.evaluate", "arguments": {"expression": expression}});
        modern(id, "tools/call", params, json!({}))
    };
    assert_eq!(web.modern(&evaluate(1, "1+1")).status, 200);
    web.modern(&evaluate(2, "1/"));
    let unfit = json!({"name": "calculator.evaluate", "arguments": {"expression": 7}});
    web.modern(&modern(3, "tools/call", unfit, json!({})));
    // A question is no call; what names no tool is a call that is refused.
    let asks = json!({"elicitation": {}});
    let params = json!({"name": "probe.answer"});
    let question = web
        .modern(&modern(4, "tools/call", params.clone(), asks.clone()))
        .json();
    let state = &question["result"]["requestState"];
    web.modern(&modern(
        5,
        "tools/call",
        json!({"name": "no.such"}),
        json!({}),
    ));
    let mut answered = params;
    answered["requestState"] = state.clone();
    answered["inputResponses"] =
        json!({"approval": {"action": "accept", "content": {"decision": "approve"}}});
    assert_eq!(
        web.modern(&modern(6, "tools/call", answered, asks)).status,
        200
    );
    // One that was cancelled ran, too.
    drop(web.toiling(7));
    let entries = audited(&host, 6);
    let seen: Vec<_> = entries
        .iter()
        .map(|it| {
            (
                it["tool"].as_str().unwrap(),
                it["status"].as_str().unwrap(),
                it["error"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("calculator.evaluate", "ok", None),
            ("calculator.evaluate", "error", Some("tool")),
            ("calculator.evaluate", "error", Some("arguments")),
            ("no.such", "error", Some("arguments")),
            ("probe.answer", "ok", None),
            ("probe.toil", "interrupted", Some("unfinished")),
        ]
    );
    assert!(
        entries.iter().all(|entry| entry["owner"] == "mcp:http"),
        "{entries:?}"
    );
    assert_eq!(entries[4]["approved_by"], "the client's user");
    assert_eq!(entries[2]["by_host"], true);
}

/// What a service manager stops, and what Ctrl-C does: the calls that it interrupts are in the log.
#[test]
fn a_stopping_server_records_interrupted_calls() {
    for signal in ["-TERM", "-INT"] {
        let host = host();
        let mut client = Stdio::session(&host, &[], json!({}));
        let params = json!({"name": "probe.toil", "_meta": {"progressToken": 1}});
        client.send(request(7, "tools/call", params));
        client.hear("notifications/progress");
        let pid = client.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("kill").success());
        assert_eq!(
            client.child.wait().expect("it ends").code(),
            Some(0),
            "{signal}"
        );
        let entries = audited(&host, 1);
        let [entry] = entries.as_slice() else {
            panic!("{signal}: {entries:?}");
        };
        assert_eq!(
            (&entry["tool"], &entry["error"]),
            (&json!("probe.toil"), &json!("unfinished"))
        );
    }
}

#[test]
fn a_server_without_a_log_serves_and_one_that_cannot_write_it_does_not() {
    let host = host();
    host.write("toolhold.toml", "[mcp_server]\naudit = \"off\"\n");
    let mut client = Stdio::start(&host, &[]);
    let answer = modern(1, "tools/call", json!({"name": "probe.answer"}), json!({}));
    assert_eq!(
        client.ask(answer.clone())["result"]["structuredContent"],
        42
    );
    assert!(!host.path().join(".state/toolhold.db").exists());

    host.write("toolhold.toml", "[mcp_server]\naudit = \"written\"\n");
    let mut client = Stdio::start(&host, &[]);
    assert_eq!(client.ask(answer)["result"]["structuredContent"], 42);
    assert_eq!(audited(&host, 1).len(), 1);

    std::fs::remove_file(host.path().join(".state/toolhold.db")).unwrap();
    std::fs::create_dir(host.path().join(".state/toolhold.db")).unwrap();
    let refused = host.run(&["mcp"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("mcp_server.audit"), "{refused:?}");
}

#[test]
fn a_person_s_direct_calls_are_in_the_log() {
    let host = host();
    let made = host.run(&[
        "modules",
        "call",
        "calculator.evaluate",
        r#"{"expression":"6*7"}"#,
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let wrong = host.run(&[
        "modules",
        "call",
        "calculator.evaluate",
        r#"{"expression":7}"#,
    ]);
    assert_eq!(wrong.code, Some(5), "{wrong:?}");
    let entries = audited(&host, 2);
    let seen: Vec<_> = entries
        .iter()
        .map(|it| {
            (
                it["via"].as_str(),
                it["status"].as_str(),
                it["error"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (Some("cli"), Some("ok"), None),
            (Some("cli"), Some("error"), Some("arguments")),
        ]
    );
}

#[test]
fn calls_are_traced_in_the_clients_trace() {
    let (host, collector) = (host(), Collector::start());
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    let web = HttpMcpServer::start(&host, &[], &environment);
    let params = json!({"name": "probe.answer", "_meta": {"traceparent": parent}});
    web.modern(&modern(1, "tools/call", params, json!({})));
    let plain = modern(2, "tools/call", json!({"name": "probe.answer"}), json!({}));
    web.modern_with(&plain, &[("traceparent", &parent)]);
    let spans = collector.wait_for(|spans| spans.len() >= 2);
    for span in &spans {
        assert_eq!(span.name, "execute_tool probe.answer");
        assert_eq!(
            (span.trace.as_str(), span.parent.as_str()),
            (trace, "b7ad6b7169203331")
        );
        let digest = span.attributes["toolhold.tool.module.digest"].as_str();
        assert_eq!(digest.map(str::len), Some(64));
    }
}

/// Hides nothing of these tests. A file without any shield would be taken for one that was cut.
const OTHER_SHIELD: &str = "[shields.private]\nkind = \"pii\"\nhide = [\"phone\"]\n";

/// What shields hide from models is hidden from a client's, and what has no other form is not given.
#[test]
fn hidden_data_is_masked_for_clients() {
    let host = host();
    host.ship("text").write(
        "toolhold.toml",
        "[shields.private]\nkind = \"pii\"\nhide = [\"email\"]\n",
    );
    let mut client = Stdio::session(&host, &[], json!({}));
    let arguments = json!({"text": MAIL, "pattern": ".+"});
    let told = client.ask(call(1, "text.regex", arguments));
    let told = told.to_string();
    assert!(told.contains("<email>") && !told.contains(MAIL), "{told}");
    let wrong = client.ask(call(2, "calculator.evaluate", json!({"expression": MAIL})));
    assert_eq!(wrong["result"]["isError"], true);
    assert!(!text(&wrong).contains(MAIL), "{wrong}");
    // Hiding ends when the policy does not ask for it any more.
    host.write("toolhold.toml", OTHER_SHIELD);
    let started = Instant::now();
    let mut id = 3;
    loop {
        let arguments = json!({"text": MAIL, "pattern": ".+"});
        let told = client.ask(call(id, "text.regex", arguments)).to_string();
        if told.contains(MAIL) {
            break;
        }
        id += 1;
        assert!(started.elapsed() < Duration::from_secs(30), "{told}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A tool's own words are words, too; so are those of a schema that a call does not fit.
#[test]
fn hidden_data_is_masked_in_tool_descriptions() {
    let shield = "[shields.private]\nkind = \"pii\"\nhide = [\"email\"]\n";
    let said = format!(
        "[tools.answer]\ntitle = \"Of {MAIL}\"\ndescription = \"Ask {MAIL}, then answer.\"\n"
    );
    let host = host();
    host.write("toolhold.toml", shield)
        .write("modules/who/who.wasm", super::answers(7))
        .write("modules/who/module.toml", said);
    let mut client = Stdio::session(&host, &[], json!({}));
    let list = |client: &mut Stdio| {
        let listed = client.ask(super::request("l", "tools/list", json!({})));
        let tools = listed["result"]["tools"].as_array().unwrap();
        let own = tools.iter().find(|tool| tool["name"] == "who-answer");
        own.expect("it is listed").clone()
    };
    let tool = list(&mut client);
    assert_eq!(tool["title"], "Of <email>");
    assert_eq!(tool["description"], "Ask <email>, then answer.");
    let unfit = client.ask(call(
        1,
        "calculator.evaluate",
        json!({"expression": {MAIL: 1}}),
    ));
    assert!(!text(&unfit).contains(MAIL), "{unfit}");
    // A client that may see the tool is notified of the changed list.
    host.write("toolhold.toml", OTHER_SHIELD);
    client.hear("notifications/tools/list_changed");
    assert_eq!(list(&mut client)["title"], json!(format!("Of {MAIL}")));
}

#[test]
fn a_grant_reaches_connected_clients() {
    let host = host();
    let sdk = repository().join("modules/sdk/probe/probe.wasm");
    drop_in(
        &host,
        "sdk",
        &std::fs::read(sdk).expect("the component is built"),
    );
    let mut client = Stdio::session(&host, &[], json!({}));
    let web = HttpMcpServer::start(&host, &[], &[]);
    let mut id = 0;
    let mut remember = |client: &mut Stdio| {
        id += 1;
        let arguments = json!({"key": "a", "value": "1"});
        let params = json!({"name": "sdk.remember", "arguments": arguments});
        let over_http = web
            .modern(&modern(id, "tools/call", params, json!({})))
            .json();
        let over_stdio = client.ask(call(id, "sdk.remember", arguments));
        [over_http, over_stdio].map(|reply| {
            let result = &reply["result"];
            result.is_object() && result["isError"] == false
        })
    };
    let mut until = |what: &str, wanted: bool, client: &mut Stdio| {
        let started = Instant::now();
        while remember(client) != [wanted; 2] {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "{what} never came"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("nothing", false, &mut client);
    let granted = host.run(&["modules", "grant", "sdk", "--key-value"]);
    assert_eq!(granted.code, Some(0), "{granted:?}");
    until("the grant", true, &mut client);
    host.write("toolhold.toml", "nonsense = 1\n");
    std::thread::sleep(Duration::from_secs(3));
    until("the old", true, &mut client);
    host.write("toolhold.toml", "");
    let revoked = host.run(&["modules", "revoke", "sdk"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    until("its end", false, &mut client);
}
