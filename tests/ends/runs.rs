//! Calls of a server: of runs, and of `POST /v1/tools/NAME`.

use super::{CutTool, SPIN, newest_run, recorded_to_its_end};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::records::Records;
use support::server::Server;
use support::transcript::{answers, calls};
use support::until;

pub(super) fn events(server: &Server, run: &str) -> Vec<Value> {
    let told = server.get(&format!("/v1/runs/{run}/events")).events();
    told.iter()
        .map(support::server::ServerSentEvent::json)
        .collect()
}

fn serve(host: &Host, tool: &str, arguments: &Value) -> (Endpoint, Server) {
    serve_with(host, [calls([(tool, arguments.clone())]), answers("done")])
}

/// A server, and an endpoint with these replies.
pub(super) fn serve_with(
    host: &Host,
    replies: impl IntoIterator<Item = Reply>,
) -> (Endpoint, Server) {
    let endpoint = Endpoint::start(Scenario::new(replies));
    let server = Server::start(host, &["--base-url", &endpoint.base_url(), "--model", "m"]);
    (endpoint, server)
}

/// Begins a run, and returns its id.
fn begin(server: &Server) -> String {
    begin_task(
        server,
        json!({"messages": [{"role": "user", "content": "t"}]}),
    )
}

/// Begins the run of this task, and returns its id.
pub(super) fn begin_task(server: &Server, mut task: Value) -> String {
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 2);
    begun[0].json()["run"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_that_is_stopped_ends_its_calls() {
    stop_runs(SPIN);
}

pub(super) fn stop_runs(cut: CutTool) {
    for (config, reason) in [
        ("", "cancelled"),
        ("[run]\ntimeout_ms = 4_000\n", "timeout"),
    ] {
        cut.with_each_call(|tool, arguments| {
            let host = cut.host(config);
            let (_endpoint, server) = serve(&host, tool, &arguments);
            let run = begin(&server);
            if reason == "cancelled" {
                cut.until_it_runs(&host, &run, tool);
                let cancelled = server.post(&format!("/v1/runs/{run}/cancel"), &json!({}));
                assert_eq!(cancelled.status, 202, "{cancelled:?}");
            }
            let events = events(&server, &run);
            let end = cut.end(&events);
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
            assert_eq!(cut.row(&host)["status"], "interrupted", "{tool} {reason}");
            assert_eq!(
                host.run(&["runs", "replay", &run]).code,
                Some(0),
                "{tool} {reason}"
            );
        });
    }
}

#[test]
fn a_direct_call_that_is_cut_says_so() {
    cut_direct_calls(SPIN);
}

pub(super) fn cut_direct_calls(cut: CutTool) {
    for (config, is_cancelled) in [("[run]\ntimeout_ms = 4_000\n", false), ("", true)] {
        cut.with_each_call(|tool, arguments| {
            let host = cut.host(config);
            let (_endpoint, server) = serve(&host, tool, &json!({}));
            let (path, body) = (format!("/v1/tools/{tool}"), json!({"arguments": arguments}));
            let answer = std::thread::scope(|scope| {
                let asked = scope.spawn(|| server.post(&path, &body).good());
                if is_cancelled {
                    let run = newest_run(&host);
                    cut.until_it_runs(&host, &run, tool);
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
            cut.end(&events(&server, answer["run"].as_str().unwrap()));
            assert_eq!(cut.row(&host)["status"], "interrupted");
        });
    }
}

/// The killed server had called the tool. Another server resumes the run, or a person ends it.
#[test]
fn a_run_whose_server_is_killed_ends_its_calls() {
    kill_servers_of_runs(SPIN);
}

pub(super) fn kill_servers_of_runs(cut: CutTool) {
    for (is_held, reason, status) in [
        (false, "output", "unknown"),
        (true, "cancelled", "cancelled"),
    ] {
        cut.with_each_call(|tool, arguments| {
            let host = cut.host("");
            let (endpoint, mut server) = serve(&host, tool, &arguments);
            let run = begin(&server);
            cut.until_it_runs(&host, &run, tool);
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
            let end = cut.end(&events);
            let is_outer = tool == cut.name && !is_held;
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
            let row = cut.row(&host);
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

#[test]
fn a_call_whose_grant_is_taken_back_ends() {
    take_back_during_calls(SPIN);
}

#[test]
fn a_call_that_takes_longer_than_its_tool_may_ends() {
    outlast_the_time_of_the_tool(SPIN);
}

pub(super) fn take_back_during_calls(cut: CutTool) {
    tell_of_stopped_calls(cut, cut.granting, cut.take_back, ("revoked", "taken back"));
}

pub(super) fn outlast_the_time_of_the_tool(cut: CutTool) {
    tell_of_stopped_calls(cut, cut.short, |_| (), ("deadline", cut.late));
}

/// The host stops the call alone: a run continues, and the caller gets the reason.
fn tell_of_stopped_calls(
    cut: CutTool,
    config: &str,
    stop: fn(&Host),
    (error, words): (&str, &str),
) {
    cut.with_each_call(|tool, arguments| {
        let host = cut.host(config);
        let (_endpoint, server) = serve(&host, tool, &arguments);
        let run = begin(&server);
        cut.until_it_runs(&host, &run, tool);
        stop(&host);
        let events = events(&server, &run);
        assert_eq!(cut.end(&events)["error"]["kind"], error, "{tool}");
        let answer = server.get(&format!("/v1/runs/{run}")).good()["answer"].clone();
        assert_eq!(answer["output"], "done", "{answer}");
        let told = answer["steps"][0]["calls"][0].to_string();
        assert!(told.contains(words), "{tool}: {told}");
        assert_eq!(cut.row(&host)["error"], error, "{tool}");
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{tool}");
    });
    cut.with_each_call(|tool, arguments| {
        let host = cut.host(config);
        let (_endpoint, server) = serve(&host, tool, &json!({}));
        let (path, body) = (format!("/v1/tools/{tool}"), json!({"arguments": arguments}));
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| server.post(&path, &body));
            cut.until_it_runs(&host, &newest_run(&host), tool);
            stop(&host);
            asked.join().expect("it answers")
        });
        assert!(answer.text.contains(words), "{answer:?}");
        assert_eq!(cut.row(&host)["error"], error);
    });
}

/// Begins `POST /v1/tools/NAME`, whose answer the returned connection gets.
fn ask_directly(server: &Server, tool: &str, arguments: &Value) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut client = TcpStream::connect(address).expect("it listens");
    // A server that does not answer fails the test instead of holding it.
    let most = Some(Duration::from_mins(1));
    client.set_read_timeout(most).expect("a socket");
    let body = json!({"arguments": arguments}).to_string();
    let key = server.key();
    let key = key.map_or(String::new(), |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    write!(
        client,
        "POST /v1/tools/{tool} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n{key}\r\n{body}",
        body.len()
    )
    .expect("it reads");
    client
}

/// The client gets no answer. Another server resumes the run of the call, whose answer tells its end.
#[test]
fn a_direct_call_whose_server_is_killed_ends() {
    kill_servers_of_direct_calls(SPIN);
}

pub(super) fn kill_servers_of_direct_calls(cut: CutTool) {
    cut.with_each_call(|tool, arguments| {
        let host = cut.host("");
        let (endpoint, mut server) = serve(&host, tool, &json!({}));
        let _client = ask_directly(&server, tool, &arguments);
        let run = newest_run(&host);
        cut.until_it_runs(&host, &run, tool);
        server.kill();
        let server = Server::start(&host, &["--base-url", &endpoint.base_url(), "--model", "m"]);
        let path = format!("/v1/runs/{run}");
        let answer = until("the end of the run", || {
            let shown = server.get(&path).good();
            (shown["state"] == "done").then(|| shown["answer"].to_string())
        });
        assert!(answer.contains("not known whether"), "{answer}");
        let kind = if tool == cut.name {
            "interrupted"
        } else {
            "unfinished"
        };
        assert_eq!(
            cut.end(&events(&server, &run))["error"]["kind"],
            kind,
            "{tool}"
        );
        assert_eq!(cut.row(&host)["status"], "interrupted", "{tool}");
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{tool}");
    });
}

/// The server is killed after it wrote the request of a cancellation, and before it stopped the run: a plan, which is over
/// once its only call is lost.
#[test]
fn a_direct_call_that_was_cancelled_ends_as_that_though_its_server_is_killed() {
    SPIN.with_each_call(|tool, arguments| {
        let host = SPIN.host("");
        let (endpoint, mut server) = serve(&host, tool, &json!({}));
        let _client = ask_directly(&server, tool, &arguments);
        let run = newest_run(&host);
        SPIN.until_it_runs(&host, &run, tool);
        server.kill();
        Records::of(&host).request_cancellations();
        let server = Server::start(&host, &["--base-url", &endpoint.base_url(), "--model", "m"]);
        let path = format!("/v1/runs/{run}");
        until("the end of the run", || {
            (server.get(&path).good()["state"] == "done").then_some(())
        });
        let events = events(&server, &run);
        assert_eq!(events.last().unwrap()["reason"], "cancelled", "{tool}");
        assert_eq!(SPIN.end(&events)["error"]["kind"], "unfinished", "{tool}");
        assert_eq!(SPIN.row(&host)["status"], "interrupted", "{tool}");
        assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0), "{tool}");
    });
}

/// The key of the caller is revoked, which ends its run.
#[test]
fn a_call_whose_key_is_revoked_ends() {
    revoke_keys(SPIN);
}

pub(super) fn revoke_keys(cut: CutTool) {
    for is_direct in [false, true] {
        cut.with_each_call(|tool, arguments| {
            let host = cut.host("");
            let key = host.run(&["keys", "create", "ann"]).stdout;
            let (_endpoint, mut server) = serve(&host, tool, &arguments);
            server.use_key(key.trim());
            let client = is_direct.then(|| ask_directly(&server, tool, &arguments));
            let run = match &client {
                Some(_) => newest_run(&host),
                None => begin(&server),
            };
            cut.until_it_runs(&host, &run, tool);
            let revoked = host.run(&["keys", "revoke", "ann"]);
            assert_eq!(revoked.code, Some(0), "{revoked:?}");
            if let Some(mut client) = client {
                let mut answer = String::new();
                client.read_to_string(&mut answer).expect("an answer");
                assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
                assert!(answer.contains("was revoked"), "{answer}");
            }
            let events = recorded_to_its_end(&host, &run);
            assert_eq!(cut.end(&events)["error"]["kind"], "unfinished", "{tool}");
            let done = events.last().expect("it ended");
            assert_eq!(done["reason"], "cancelled", "{done}");
            assert!(done.to_string().contains("was revoked"), "{done}");
            assert_eq!(cut.row(&host)["status"], "interrupted", "{tool}");
        });
    }
}
