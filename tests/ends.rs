//! A call that has begun has one end, in the record and in the audit log, and an answer that says what happened: however it
//! was called, and whatever stopped it.

use crate::mcp_server::{call, wire::Stdio};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
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

/// Grants the module of the tool something that can be taken back.
const GRANTING: &str = "[module.bad]\nkey_value = {}\n";

fn take_back(host: &Host) {
    host.write("toolhold.toml", CONFIG);
}

/// The tool's own time is over soon.
const SHORT: &str = "[module.bad.limits]\ntimeout_ms = 1_500\n";

/// Tries something with each of [`calls_of_it`], both at the same time.
fn with_each_call(tried: impl Fn(&'static str, Value) + Sync) {
    std::thread::scope(|scope| {
        for (tool, arguments) in calls_of_it() {
            let tried = &tried;
            scope.spawn(move || tried(tool, arguments));
        }
    });
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
    for (config, is_cancelled) in [("[run]\ntimeout_ms = 4_000\n", false), ("", true)] {
        with_each_call(|tool, arguments| {
            let host = host(config);
            let (_endpoint, server) = serve(&host, tool, &json!({}));
            let (path, body) = (format!("/v1/tools/{tool}"), json!({"arguments": arguments}));
            let answer = std::thread::scope(|scope| {
                let asked = scope.spawn(|| server.post(&path, &body).good());
                if is_cancelled {
                    let run = newest_run(&host);
                    until_the_call_runs(&host, &run, tool);
                    let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
                    assert_eq!(cancelled.status, 202, "{cancelled:?}");
                }
                asked.join().expect("it answers")
            });
            assert_eq!(answer["result"], Value::Null);
            assert!(
                answer["error"].to_string().contains("not known whether"),
                "{answer}"
            );
            end(&events(&server, answer["run"].as_str().unwrap()));
            assert_eq!(row(&host)["status"], "interrupted");
        });
    }
}

/// The killed server had called the tool. Another server resumes the run, or a person ends it.
#[test]
fn a_run_whose_server_is_killed_ends_its_calls() {
    for (is_held, reason, status) in [
        (false, "output", "unknown"),
        (true, "cancelled", "cancelled"),
    ] {
        with_each_call(|tool, arguments| {
            let host = host("");
            let (endpoint, mut server) = serve(&host, tool, &arguments);
            let task = json!({"messages": [{"role": "user", "content": "t"}], "stream": true});
            let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 2);
            let run = begun[0].json()["run"].as_str().unwrap().to_owned();
            until_the_call_runs(&host, &run, tool);
            server.kill();
            let url = endpoint.base_url();
            let mut flags = vec!["--base-url", url.as_str(), "--model", "m"];
            if is_held {
                flags.push("--hold-runs");
            }
            let server = Server::start(&host, &flags);
            if is_held {
                let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
                assert_eq!(cancelled.status, 202, "{cancelled:?}");
            }
            let path = format!("/v1/runs/{run}");
            until("the end of the run", || {
                (server.get(&path).good()["state"] == "done").then_some(())
            });
            let events = events(&server, &run);
            let end = end(&events);
            let is_outer = tool == TOOL && !is_held;
            let kind = if is_outer {
                "interrupted"
            } else {
                "unfinished"
            };
            assert_eq!(end["error"]["kind"], kind, "{tool}: {end}");
            assert!(end.get("by_host").is_none(), "{end}");
            assert_eq!(events.last().unwrap()["reason"], reason, "{tool}");
            let answer = server.get(&path).good()["answer"].clone();
            let told = &answer["steps"][0]["calls"][0];
            assert_eq!(told["status"], status, "{told}");
            assert!(
                told["error"].to_string().contains("not known whether"),
                "{told}"
            );
            let row = row(&host);
            assert_eq!(
                (&row["status"], &row["by_host"]),
                (&json!("interrupted"), &json!(false)),
                "{row}"
            );
            assert!(
                row.get("duration_us").is_none(),
                "nobody measured it: {row}"
            );
            assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{tool}");
        });
    }
}

/// The host stops the call alone: the run continues, and the caller gets the reason.
#[test]
fn a_call_whose_grant_is_taken_back_ends() {
    for (tool, arguments) in calls_of_it() {
        let host = host(GRANTING);
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
    with_each_call(|tool, arguments| {
        let direct = host(GRANTING);
        let (_endpoint, server) = serve(&direct, tool, &json!({}));
        let (path, body) = (format!("/v1/tools/{tool}"), json!({"arguments": arguments}));
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| server.post(&path, &body));
            until_the_call_runs(&direct, &newest_run(&direct), tool);
            take_back(&direct);
            asked.join().expect("it answers")
        });
        assert!(answer.text.contains("taken back"), "{answer:?}");
        assert_eq!(row(&direct)["error"], "revoked");
    });
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

/// Stops `plan run` while its call runs. The next process that opens the database writes the row of one that was killed. A
/// process that Ctrl-C parks writes the row itself; resuming or ending the run writes no second one.
#[test]
fn a_plan_whose_process_is_stopped_ends_its_calls() {
    for (stop, code, words, status) in [
        ("park", Some(130), "parked:", "interrupted"),
        ("end", Some(130), "cancelled:", "interrupted"),
        ("KILL", None, "", "interrupted"),
        ("revoke", Some(5), "taken back", "error"),
    ] {
        with_each_call(|tool, arguments| {
            let host = host(GRANTING);
            let mut step = arguments;
            step["_tool"] = tool.into();
            host.write("plan.json", json!([step]).to_string());
            let mut command = host.command(&["plan", "run", "plan.json", "--json"]);
            let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
            let mut child = child.expect("it starts");
            let run = newest_run(&host);
            until_the_call_runs(&host, &run, tool);
            let mut told = String::new();
            match stop {
                "revoke" => take_back(&host),
                "KILL" => signal(child.id(), stop),
                _ => signal(child.id(), "INT"),
            }
            if stop == "end" {
                let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
                while !told.contains("Ctrl-C again") {
                    assert_ne!(said.read_line(&mut told).expect("text"), 0, "{told}");
                }
                signal(child.id(), "INT");
                said.read_to_string(&mut told).expect("text");
            }
            let done = finish(child.wait_with_output().expect("it ends"));
            assert_eq!(done.code, code, "{stop} {tool}: {done:?} {told}");
            let all = [told, done.stdout, done.stderr].concat();
            assert!(all.contains(words), "{stop} {tool}: {all}");
            assert_eq!(row(&host)["status"], status, "{stop} {tool}");
            let events = || -> Vec<Value> {
                let lines = Records::of(&host).lines(&run);
                let event = |line: &String| serde_json::from_str(line).expect("an event");
                lines.iter().map(event).collect()
            };
            match stop {
                "park" => {
                    host.run(&["resume", &run]);
                    end(&events());
                    assert_eq!(row(&host)["status"], status, "one row for one begin");
                }
                "end" => {
                    assert_eq!(end(&events())["error"]["kind"], "unfinished");
                    assert_eq!(events().last().unwrap()["reason"], "cancelled");
                }
                "revoke" => assert_eq!(end(&events())["error"]["kind"], "revoked"),
                _ => return,
            }
            assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{stop}");
        });
    }
}

/// Rows of calls of no run: the stop, status and error of the row, and the words for the caller.
const STOPS: [(&str, &str, &str, &str, &str); 6] = [
    ("cancel", "", "interrupted", "", ""),
    ("close", "", "interrupted", "", ""),
    ("INT", "", "interrupted", "", ""),
    ("KILL", "", "interrupted", "", ""),
    ("time", SHORT, "error", "deadline", "within its deadline"),
    ("revoke", GRANTING, "error", "revoked", "taken back"),
];

fn assert_row(host: &Host, stop: &str, (status, error): (&str, &str)) {
    let row = row(host);
    assert_eq!(
        (&row["status"], &row["by_host"]),
        (&json!(status), &json!(false)),
        "{stop}: {row}"
    );
    // A process that ended in time has written how the call was cut.
    if status == "error" {
        assert_eq!(row["error"], error, "{stop}: {row}");
    }
}

#[test]
fn calls_of_an_mcp_client_end() {
    for (stop, config, status, error, words) in STOPS {
        if stop == "INT" {
            continue;
        }
        with_each_call(|tool, arguments| {
            let host = host(config);
            let mut client = Stdio::session(&host, &[], json!({}));
            client.send(call(7, tool, arguments));
            until_it_begins(&host, tool);
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
                "KILL" => {
                    signal(client.child.id(), stop);
                    client.child.wait().expect("it ends");
                }
                _ => {
                    if stop == "revoke" {
                        take_back(&host);
                    }
                    let answer = client.reply(7);
                    assert!(answer.to_string().contains(words), "{stop}: {answer}");
                }
            }
            assert_row(&host, stop, (status, error));
        });
    }
}

#[test]
fn calls_of_a_person_end() {
    for (stop, config, status, error, words) in STOPS {
        if matches!(stop, "cancel" | "close") {
            continue;
        }
        with_each_call(|tool, arguments| {
            let host = host(config);
            let mut command = host.command(&["modules", "call", tool, &arguments.to_string()]);
            let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
            let child = child.expect("it starts");
            until_it_begins(&host, tool);
            match stop {
                "revoke" => take_back(&host),
                "time" => {}
                _ => signal(child.id(), stop),
            }
            let done = finish(child.wait_with_output().expect("it ends"));
            assert_ne!(done.code, Some(0), "{done:?}");
            let all = [done.stdout, done.stderr].concat();
            assert!(all.contains(words), "{stop}: {all}");
            assert_row(&host, stop, (status, error));
        });
    }
}

/// A terminal has no way to confirm that files without grants are meant, so such files hold.
#[test]
fn a_call_of_a_person_ends_when_all_grants_are_taken_back() {
    let host = host(GRANTING);
    let mut command = host.command(&["modules", "call", TOOL, "{}"]);
    let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
    let child = child.expect("it starts");
    until_it_begins(&host, TOOL);
    host.write("toolhold.toml", "[modules]\npinning = \"never\"\n");
    let done = finish(child.wait_with_output().expect("it ends"));
    assert_ne!(done.code, Some(0), "{done:?}");
    let all = [done.stdout, done.stderr].concat();
    assert!(all.contains("taken back"), "{all}");
    assert_row(&host, "revoke", ("error", "revoked"));
}

/// The newest run, once there is one.
fn newest_run(host: &Host) -> String {
    until("a run", || Records::of(host).runs().pop())
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

/// Until the begin of a call of no run is written; `tool` is the one that the client called.
fn until_it_begins(host: &Host, tool: &str) {
    // A module's call has a begin of its own.
    let needed = if tool == TOOL { 1 } else { 2 };
    until("the begin", || {
        (Records::of(host).begun_calls() >= needed).then_some(())
    });
}
