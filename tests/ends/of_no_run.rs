//! Calls that belong to no run: of an MCP client, and of a person at the terminal.

use super::{GRANTING, SHORT, SPIN, TOOL, take_back, until_there_is_a_row_of};
use crate::mcp_server::wire::{HttpMcpServer, Stdio, modern_headers};
use crate::mcp_server::{call, modern};
use serde_json::{Value, json};
use std::io::Read as _;
use std::net::TcpStream;
use std::process::Stdio as Pipe;
use support::host::{Host, finish, signal};
use support::records::Records;
use support::until;

/// Words about a call that Ctrl-C stopped.
const UNKNOWN: &str = "it is not known whether it took effect; the audit log has its end";

/// A stop, configuration for it, status and error of the row, and the words for the caller.
pub(super) type Stop = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

pub(super) const CANCEL: Stop = ("cancel", "", "interrupted", "", "");
pub(super) const CLOSE: Stop = ("close", "", "interrupted", "", "");
pub(super) const INT: Stop = ("INT", "", "interrupted", "", UNKNOWN);
pub(super) const KILL: Stop = ("KILL", "", "interrupted", "", "");
const TIME: Stop = ("time", SHORT, "error", "deadline", "within its deadline");
pub(super) const REVOKE: Stop = ("revoke", GRANTING, "error", "revoked", "taken back");

/// Waits until a call runs, by its host, the process that makes it, and the tool that is called first.
pub(super) type Wait = fn(&Host, u32, &str);

fn assert_row(host: &Host, stop: &str, (status, error): (&str, &str)) -> Value {
    let row = SPIN.row(host);
    assert_eq!(
        (&row["status"], &row["by_host"]),
        (&json!(status), &json!(false)),
        "{stop}: {row}"
    );
    // A process that ended in time has written how the call was cut.
    if status == "error" {
        assert_eq!(row["error"], error, "{stop}: {row}");
    }
    row
}

#[test]
fn calls_of_an_mcp_client_end() {
    for stop in [CANCEL, CLOSE, KILL, TIME, REVOKE] {
        SPIN.with_each_call(|tool, arguments| {
            stop_call_of_a_client(&SPIN.host(stop.1), (tool, arguments), stop, until_it_begins);
        });
    }
}

/// Stops a call of a client of the modules, which speaks over stdin and stdout.
pub(super) fn stop_call_of_a_client(
    host: &Host,
    (tool, arguments): (&str, Value),
    (stop, _, status, error, words): Stop,
    until_it_runs: Wait,
) {
    let mut client = Stdio::session(host, &[], json!({}));
    client.send(call(7, tool, arguments));
    until_it_runs(host, client.child.id(), tool);
    match stop {
        "cancel" => {
            client.send(cancellation(7));
            until_there_is_a_row_of(host, TOOL);
        }
        "close" => drop(client.close()),
        "KILL" => {
            signal(client.child.id(), stop);
            client.child.wait().expect("it ends");
        }
        _ => {
            if stop == "revoke" {
                take_back(host);
            }
            let answer = client.reply(7);
            assert!(answer.to_string().contains(words), "{stop}: {answer}");
        }
    }
    assert_row(host, stop, (status, error));
}

/// The notification by which a client cancels its request.
pub(super) fn cancellation(id: i64) -> Value {
    let params = json!({"requestId": id, "reason": "enough"});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
}

/// A client leaves without a session, or ends its session.
#[test]
fn calls_of_an_mcp_client_over_http_end() {
    for has_session in [false, true] {
        SPIN.with_each_call(|tool, arguments| {
            let host = SPIN.host("");
            let web = HttpMcpServer::start(&host, &[], &[]);
            if has_session {
                let id = web.session(json!({}));
                let session = [
                    ("mcp-session-id", id.as_str()),
                    ("mcp-protocol-version", "2025-11-25"),
                ];
                let message = call(7, tool, arguments).to_string();
                let _client = web.open("POST", &session, message.as_bytes());
                until_it_begins(&host, web.id(), tool);
                assert_eq!(web.send("DELETE", &session, b"").status, 204);
                until_there_is_a_row_of(&host, TOOL);
            } else {
                let client = open_call(&web, tool, arguments);
                until_it_begins(&host, web.id(), tool);
                drop(client);
                until_there_is_a_row_of(&host, TOOL);
            }
            assert_row(&host, "leave", ("interrupted", ""));
        });
    }
}

/// Begins a call without a session, and returns the connection that gets its answer.
fn open_call(web: &HttpMcpServer, tool: &str, arguments: Value) -> TcpStream {
    let params = json!({"name": tool, "arguments": arguments});
    let message = modern(7, "tools/call", params, json!({}));
    let headers = modern_headers(&message);
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    web.open("POST", &headers, message.to_string().as_bytes())
}

/// The server is killed and started again, or stops the call alone. No key of a client can be revoked: all have the token
/// that the server was started with, and no keys.
#[test]
fn calls_over_http_end_as_their_mcp_server_does_or_when_it_stops_them() {
    for stop in [KILL, TIME, REVOKE] {
        SPIN.with_each_call(|tool, arguments| {
            let (stop, config, status, error, words) = stop;
            let host = SPIN.host(config);
            let mut web = HttpMcpServer::start(&host, &[], &[]);
            let mut client = open_call(&web, tool, arguments);
            until_it_begins(&host, web.id(), tool);
            match stop {
                "KILL" => web.kill(),
                "revoke" => take_back(&host),
                _ => {}
            }
            let mut answer = Vec::new();
            // A connection of a killed server may be reset.
            let _ = client.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains(words), "{stop}: {answer}");
            if stop == "KILL" {
                assert!(!answer.contains("\"jsonrpc\""), "{answer}");
                // The next server writes the row, and no second one is written.
                let _again = HttpMcpServer::start(&host, &[], &[]);
                assert_row(&host, stop, (status, error));
            }
            let row = assert_row(&host, stop, (status, error));
            // Only the process of the call knows how long it ran.
            assert_eq!(row.get("duration_us").is_some(), stop != "KILL", "{row}");
        });
    }
}

#[test]
fn calls_of_a_person_end() {
    for stop in [INT, KILL, TIME, REVOKE] {
        SPIN.with_each_call(|tool, arguments| {
            stop_call_of_a_person(&SPIN.host(stop.1), (tool, arguments), stop, until_it_begins);
        });
    }
}

/// Stops a call of `modules call`.
pub(super) fn stop_call_of_a_person(
    host: &Host,
    (tool, arguments): (&str, Value),
    (stop, _, status, error, words): Stop,
    until_it_runs: Wait,
) {
    let mut command = host.command(&["modules", "call", tool, &arguments.to_string()]);
    let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
    let child = child.expect("it starts");
    until_it_runs(host, child.id(), tool);
    match stop {
        "revoke" => take_back(host),
        "time" => {}
        _ => signal(child.id(), stop),
    }
    let done = finish(child.wait_with_output().expect("it ends"));
    let code = match stop {
        "INT" => Some(130),
        "KILL" => None,
        _ => Some(5),
    };
    assert_eq!(done.code, code, "{stop}: {done:?}");
    let all = [done.stdout, done.stderr].concat();
    assert!(all.contains(words), "{stop}: {all}");
    let row = assert_row(host, stop, (status, error));
    // Only the process of the call knows how long it ran.
    assert_eq!(row.get("duration_us").is_some(), stop != "KILL", "{row}");
}

/// A terminal has no way to confirm that files without grants are meant, so such files hold.
#[test]
fn a_call_of_a_person_ends_when_all_grants_are_taken_back() {
    let host = SPIN.host(GRANTING);
    let mut command = host.command(&["modules", "call", TOOL, "{}"]);
    let child = command.stdout(Pipe::piped()).stderr(Pipe::piped()).spawn();
    let child = child.expect("it starts");
    until_it_begins(&host, child.id(), TOOL);
    host.write("toolhold.toml", "[modules]\npinning = \"never\"\n");
    let done = finish(child.wait_with_output().expect("it ends"));
    assert_ne!(done.code, Some(0), "{done:?}");
    let all = [done.stdout, done.stderr].concat();
    assert!(all.contains("taken back"), "{all}");
    assert_row(&host, "revoke", ("error", "revoked"));
}

/// Until the begin of a call of no run is written; `tool` is the one that the client called.
pub(super) fn until_it_begins(host: &Host, _process: u32, tool: &str) {
    // A module's call has a begin of its own.
    let needed = if tool == TOOL { 1 } else { 2 };
    until("the begin", || {
        (Records::of(host).begun_calls() >= needed).then_some(())
    });
}
