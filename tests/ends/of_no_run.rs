//! Calls that belong to no run: of an MCP client, and of a person at the terminal.

use super::{GRANTING, SHORT, TOOL, host, row, take_back, with_each_call};
use crate::mcp_server::wire::{HttpMcpServer, Stdio, modern_headers};
use crate::mcp_server::{call, modern};
use serde_json::{Value, json};
use std::process::Stdio as Pipe;
use support::host::{Host, finish, signal};
use support::records::Records;
use support::until;

/// Words about a call that Ctrl-C stopped.
const UNKNOWN: &str = "it is not known whether it took effect; the audit log has its end";

/// Rows of calls of no run: the stop, status and error of the row, and the words for the caller.
const STOPS: [(&str, &str, &str, &str, &str); 6] = [
    ("cancel", "", "interrupted", "", ""),
    ("close", "", "interrupted", "", ""),
    ("INT", "", "interrupted", "", UNKNOWN),
    ("KILL", "", "interrupted", "", ""),
    ("time", SHORT, "error", "deadline", "within its deadline"),
    ("revoke", GRANTING, "error", "revoked", "taken back"),
];

fn assert_row(host: &Host, stop: &str, (status, error): (&str, &str)) -> Value {
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
    row
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
                    until_it_has_a_row(&host);
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

/// A client leaves without a session, or ends its session.
#[test]
fn calls_of_an_mcp_client_over_http_end() {
    for has_session in [false, true] {
        with_each_call(|tool, arguments| {
            let host = host("");
            let web = HttpMcpServer::start(&host, &[], &[]);
            if has_session {
                let id = web.session(json!({}));
                let session = [
                    ("mcp-session-id", id.as_str()),
                    ("mcp-protocol-version", "2025-11-25"),
                ];
                let message = call(7, tool, arguments).to_string();
                let _client = web.open("POST", &session, message.as_bytes());
                until_it_begins(&host, tool);
                assert_eq!(web.send("DELETE", &session, b"").status, 204);
                until_it_has_a_row(&host);
            } else {
                let params = json!({"name": tool, "arguments": arguments});
                let message = modern(7, "tools/call", params, json!({}));
                let headers = modern_headers(&message);
                let headers: Vec<_> = headers
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                let client = web.open("POST", &headers, message.to_string().as_bytes());
                until_it_begins(&host, tool);
                drop(client);
                until_it_has_a_row(&host);
            }
            assert_row(&host, "leave", ("interrupted", ""));
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
            let code = match stop {
                "INT" => Some(130),
                "KILL" => None,
                _ => Some(5),
            };
            assert_eq!(done.code, code, "{stop}: {done:?}");
            let all = [done.stdout, done.stderr].concat();
            assert!(all.contains(words), "{stop}: {all}");
            let row = assert_row(&host, stop, (status, error));
            // Only the process of the call knows how long it ran.
            assert_eq!(row.get("duration_us").is_some(), stop != "KILL", "{row}");
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

/// Until the begin of a call of no run is written; `tool` is the one that the client called.
fn until_it_begins(host: &Host, tool: &str) {
    // A module's call has a begin of its own.
    let needed = if tool == TOOL { 1 } else { 2 };
    until("the begin", || {
        (Records::of(host).begun_calls() >= needed).then_some(())
    });
}

/// Until the audit log has a row of the tool.
fn until_it_has_a_row(host: &Host) {
    until("the row", || {
        let found = host.run(&["audit", "search", "--json", "--tool", TOOL]);
        (!found.stdout.is_empty()).then_some(())
    });
}
