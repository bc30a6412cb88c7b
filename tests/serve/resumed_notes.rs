//! A run that another process goes on with says what it has otherwise than before.

use super::{scripted, serve, streamed};
use serde_json::{Value, json};
use std::time::Duration;
use support::endpoint::Reply;
use support::host::Host;
use support::transcript::{answers, calls};
use support::until;

/// A module whose tool returns `value`.
fn constant(value: u32) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(component
          (core module $m (func (export "read") (result i32) (i32.const {value})))
          (core instance $i (instantiate $m))
          (func (export "read") (result u32) (canon lift (core func $i "read"))))"#
    ))
    .expect("a component")
}

/// The module of a run is exchanged while its server is down, and its MCP server does not start.
#[test]
fn a_resumed_run_tells_which_module_and_server_it_has_otherwise() {
    let host = Host::new();
    host.write("modules/meter.wasm", constant(1)).write(
        "toolhold.toml",
        "[modules]\npinning = \"never\"\n[mcp.away]\ncommand = [\"false\"]\ntools = [\"echo\"]\noffer = true\n",
    );
    let endpoint = scripted([
        Reply::endless(),
        calls([("meter.read", json!({}))]),
        answers("read"),
    ]);
    let mut first = serve(&host, &endpoint);
    let run = streamed(&first, "read the meter", 1);
    assert!(endpoint.wait_until(Duration::from_secs(30), |it| it.requests().len() == 1));
    first.kill();
    host.write("modules/meter.wasm", constant(2));
    let second = serve(&host, &endpoint);
    let path = format!("/v1/runs/{run}");
    let shown = until("the end", || {
        let shown = second.get(&path).good();
        (shown["state"] == "done").then_some(shown)
    });
    assert_eq!(shown["answer"]["output"], "read", "{}", second.said());
    let events: Vec<Value> = second
        .get(&format!("{path}/events"))
        .events()
        .iter()
        .map(support::server::ServerSentEvent::json)
        .collect();
    let offered = events[0]["tools"].as_array().expect("its tools");
    let digest = |tool: &Value| tool["module_digest"].as_str().map(str::len);
    assert!(offered.iter().any(|tool| digest(tool) == Some(64)));
    let resumed = events.iter().find(|event| event["event"] == "resumed");
    let notes = &resumed.expect("it goes on")["notes"];
    for part in ["module meter is another one than before", "MCP server away"] {
        let named = |notes: &Value| notes.to_string().contains(part);
        assert!(named(notes), "{part}: {notes}");
        assert!(named(&shown["answer"]["notices"]), "{part}: {shown}");
        assert!(second.said().contains(part), "{part}");
    }
    assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
}
