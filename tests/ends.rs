//! A call that has begun has one end, in the record and in the audit log, and an answer that says what happened: however it
//! was called, and whatever stopped it.

use crate::mcp_server::{call, wire::Stdio};
use reqwest::Method;
use serde_json::{Value, json};
use std::process::Stdio as Pipe;
use support::endpoint::{Endpoint, Scenario};
use support::host::{Host, finish, signal};
use support::records::Records;
use support::sandbox::repository;
use support::server::Server;
use support::transcript::{answers, calls};
use support::until;

/// A tool that computes until it is stopped.
const TOOL: &str = "bad.spin";

const CONFIG: &str = "[modules]\npinning = \"never\"\n[module.probe]\ntools = [\"bad\"]\n\
                      [limits]\nfuel = 1_000_000_000_000\ntimeout_ms = 300_000\n";

fn host(config: &str) -> Host {
    let spin = wat::parse_str(
        r#"(component
          (core module $m (func (export "spin") (result i32) (loop $l (br $l)) (unreachable)))
          (core instance $i (instantiate $m))
          (func (export "spin") (result u32) (canon lift (core func $i "spin"))))"#,
    );
    let probe = std::fs::read(repository().join("modules/sdk/probe/probe.wasm"));
    let host = Host::new();
    host.write("modules/bad.wasm", spin.expect("a component"))
        .write("modules/probe.wasm", probe.expect("it is built"))
        .write("toolhold.toml", format!("{CONFIG}{config}"));
    host
}

/// The call itself, and one that a module makes of it.
fn calls_of_it() -> [(&'static str, Value); 2] {
    [
        (TOOL, json!({})),
        ("probe.ask", json!({"tool": TOOL, "arguments": {}})),
    ]
}

/// Events of calls of the tool, those of calls within calls as well.
fn of_the_call(events: &[Value], name: &str) -> Vec<Value> {
    let events = events.iter().map(|event| {
        let mut event = event;
        while event["event"] == "sub" {
            event = &event["what"];
        }
        event.clone()
    });
    events
        .filter(|event| event["event"] == name && event["tool"] == TOOL)
        .collect()
}

/// The only end of the call in the record of a run.
fn end(events: &[Value]) -> Value {
    let (begins, ends) = (
        of_the_call(events, "tool_start"),
        of_the_call(events, "tool_result"),
    );
    assert_eq!((begins.len(), ends.len()), (1, 1), "{events:?}");
    ends[0].clone()
}

/// The only row of the call in the audit log, which fits together.
fn row(host: &Host) -> Value {
    let found = host.run(&["audit", "search", "--json", "--tool", TOOL]);
    let rows: Vec<Value> = found
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 1, "{found:?}");
    assert_eq!(host.run(&["audit", "verify"]).code, Some(0));
    rows[0].clone()
}

fn events(server: &Server, run: &str) -> Vec<Value> {
    let told = server.get(&format!("/v1/runs/{run}/events")).events();
    told.iter()
        .map(support::server::ServerSentEvent::json)
        .collect()
}

fn serve(host: &Host, tool: &str, arguments: &Value) -> (Endpoint, Server) {
    let endpoint = Endpoint::start(Scenario::new([
        calls([(tool, arguments.clone())]),
        answers("done"),
    ]));
    let server = Server::start(host, &["--base-url", &endpoint.base_url(), "--model", "m"]);
    (endpoint, server)
}

#[test]
fn a_run_that_is_stopped_ends_its_calls() {
    for (config, reason) in [
        ("", "cancelled"),
        ("[run]\ntimeout_ms = 4_000\n", "timeout"),
    ] {
        for (tool, arguments) in calls_of_it() {
            let host = host(config);
            let (_endpoint, server) = serve(&host, tool, &arguments);
            let task = json!({"messages": [{"role": "user", "content": "t"}], "stream": true});
            let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 2);
            let run = begun[0].json()["run"].as_str().unwrap().to_owned();
            if reason == "cancelled" {
                until_the_call_runs(&host, &run, tool);
                let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
                assert_eq!(cancelled.status, 202, "{cancelled:?}");
            }
            let events = events(&server, &run);
            let end = end(&events);
            assert_eq!(end["error"]["kind"], "unfinished", "{tool} {reason}: {end}");
            assert_eq!(events.last().unwrap()["reason"], reason);
            let answer = server.get(&format!("/v1/runs/{run}")).good()["answer"].clone();
            let told = &answer["steps"][0]["calls"][0];
            assert_eq!(
                (&told["tool"], &told["status"]),
                (&json!(tool), &json!("cancelled"))
            );
            assert!(
                told["error"].to_string().contains("not known whether"),
                "{told}"
            );
            assert_eq!(row(&host)["status"], "interrupted", "{tool} {reason}");
            assert_eq!(
                host.run(&["runs", "replay", &run]).code,
                Some(0),
                "{tool} {reason}"
            );
        }
    }
}

#[test]
fn a_direct_call_that_is_cut_says_so() {
    let host = host("[run]\ntimeout_ms = 4_000\n");
    let (_endpoint, server) = serve(&host, TOOL, &json!({}));
    let answer = server
        .post(&format!("/v1/tools/{TOOL}"), &json!({"arguments": {}}))
        .good();
    assert_eq!(answer["result"], Value::Null);
    assert!(
        answer["error"].to_string().contains("not known whether"),
        "{answer}"
    );
    end(&events(&server, answer["run"].as_str().unwrap()));
    assert_eq!(row(&host)["status"], "interrupted");
}

/// The host stops the call alone: the run continues, and the caller gets the reason.
#[test]
fn a_call_whose_grant_is_taken_back_ends() {
    let take_back = |host: &Host| {
        host.write("toolhold.toml", CONFIG);
    };
    let granting = "[module.bad]\nkey_value = {}\n";
    for (tool, arguments) in calls_of_it() {
        let host = host(granting);
        let (_endpoint, server) = serve(&host, tool, &arguments);
        let task = json!({"messages": [{"role": "user", "content": "t"}], "stream": true});
        let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 2);
        let run = begun[0].json()["run"].as_str().unwrap().to_owned();
        until_the_call_runs(&host, &run, tool);
        take_back(&host);
        let events = events(&server, &run);
        assert_eq!(end(&events)["error"]["kind"], "revoked", "{tool}");
        let answer = server.get(&format!("/v1/runs/{run}")).good()["answer"].clone();
        assert_eq!(answer["output"], "done", "{answer}");
        let told = answer["steps"][0]["calls"][0].to_string();
        assert!(told.contains("taken back"), "{tool}: {told}");
        assert_eq!(row(&host)["error"], "revoked", "{tool}");
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{tool}");
    }
    let direct = host(granting);
    let (_endpoint, server) = serve(&direct, TOOL, &json!({}));
    let body = json!({"arguments": {}});
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.post(&format!("/v1/tools/{TOOL}"), &body));
        Records::of(&direct).until_there_is("tool_start");
        take_back(&direct);
        asked.join().expect("it answers")
    });
    assert!(answer.text.contains("taken back"), "{answer:?}");
    assert_eq!(row(&direct)["error"], "revoked");

    let over_mcp = host(granting);
    let mut client = Stdio::session(&over_mcp, &[], json!({}));
    client.send(call(7, TOOL, json!({})));
    until_it_begins(&over_mcp);
    take_back(&over_mcp);
    let answer = client.reply(7);
    assert!(answer.to_string().contains("taken back"), "{answer}");
    assert_eq!(row(&over_mcp)["error"], "revoked");
}

#[test]
fn a_plan_that_runs_out_of_time_ends_its_calls() {
    for (tool, arguments) in calls_of_it() {
        let host = host("[run]\ntimeout_ms = 4_000\n");
        let mut step = arguments;
        step["_tool"] = tool.into();
        host.write("plan.json", json!([step]).to_string());
        let done = host.run(&["plan", "run", "plan.json", "--json"]);
        let events: Vec<Value> = done
            .stdout
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        end(&events);
        assert_eq!(events.last().unwrap()["reason"], "timeout", "{done:?}");
        assert_eq!(row(&host)["status"], "interrupted");
    }
}

/// The next process that opens the database writes the row of one that was killed. A run that Ctrl-C parks is not over: its
/// call ends when it is resumed.
#[test]
fn calls_of_a_process_that_was_killed_end() {
    let host = host("");
    host.write("plan.json", json!([{"_tool": TOOL}]).to_string());
    let mut command = host.command(&["plan", "run", "plan.json", "--json"]);
    let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
    let child = child.expect("it starts");
    Records::of(&host).until_there_is("tool_start");
    signal(child.id(), "KILL");
    let done = finish(child.wait_with_output().expect("it ends"));
    assert_eq!(row(&host)["status"], "interrupted", "{done:?}");
}

#[test]
fn calls_of_no_run_end() {
    let host_of = || host("");
    for stop in ["cancel", "close", "KILL"] {
        let host = host_of();
        let mut client = Stdio::session(&host, &[], json!({}));
        client.send(call(7, TOOL, json!({})));
        until_it_begins(&host);
        match stop {
            "cancel" => {
                let params = json!({"requestId": 7, "reason": "enough"});
                client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
                until("the row", || {
                    let found = host.run(&["audit", "search", "--json", "--tool", TOOL]);
                    (!found.stdout.is_empty()).then_some(())
                });
            }
            "close" => drop(client.close()),
            signalled => {
                signal(client.child.id(), signalled);
                client.child.wait().expect("it ends");
            }
        }
        let row = row(&host);
        assert_eq!(
            (&row["status"], &row["by_host"]),
            (&json!("interrupted"), &json!(false)),
            "{stop}: {row}"
        );
    }
    for name in ["INT", "KILL"] {
        let host = host_of();
        let mut command = host.command(&["modules", "call", TOOL, "{}"]);
        let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
        let child = child.expect("it starts");
        until_it_begins(&host);
        signal(child.id(), name);
        let done = finish(child.wait_with_output().expect("it ends"));
        assert_ne!(done.code, Some(0), "{done:?}");
        assert_eq!(row(&host)["status"], "interrupted", "{name}: {done:?}");
    }
}

/// Until the record of the run has the begin of the call; `tool` is the one that the model called.
fn until_the_call_runs(host: &Host, run: &str, tool: &str) {
    until("the call", || {
        let lines = Records::of(host).lines(run);
        let is_begun = |line: &String| line.contains("\"tool_start\"") && line.contains(TOOL);
        // A module's call has an event of its own.
        let begins = lines.iter().filter(|line| is_begun(line)).count();
        let needed = if tool == TOOL { 1 } else { 2 };
        (begins >= needed).then_some(())
    });
}

/// Until the begin of a call of no run is in the database.
fn until_it_begins(host: &Host) {
    until("the begin", || {
        Records::of(host).has_open_call().then_some(())
    });
}
