//! Notes of a resumed run about modules and servers that are other than before.

use super::{scripted, serve, streamed};
use serde_json::{Value, json};
use std::time::Duration;
use support::endpoint::Reply;
use support::host::Host;
use support::sandbox::repository;
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

/// The module of a run is exchanged while its server is down, and one of its MCP servers does not start any more. Another one
/// never started.
#[test]
fn a_resumed_run_tells_which_module_and_server_it_has_otherwise() {
    let host = Host::new();
    let script = repository().join("tests/fixtures/mcp_server.py");
    // Its command stays as it was approved.
    let starter = host.path().join("away.sh");
    let [away, stays, never] = [
        ("away", json!(["sh", starter])),
        ("stays", json!(["python3", script])),
        ("never", json!(["false"])),
    ]
    .map(|(name, command)| {
        format!("[mcp.{name}]\ncommand = {command}\ntools = [\"echo\"]\noffer = true\n")
    });
    let configuration = format!("[modules]\npinning = \"never\"\n{away}{stays}{never}");
    host.write("modules/meter.wasm", constant(1))
        .write("toolhold.toml", configuration)
        .write("away.sh", format!("exec python3 '{}'\n", script.display()));
    for name in ["away", "stays"] {
        let approved = host.run(&["mcp", "approve", name, "--yes"]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
    }
    let endpoint = scripted([
        Reply::endless(),
        calls([("meter.read", json!({}))]),
        answers("read"),
    ]);
    let mut first = serve(&host, &endpoint);
    let run = streamed(&first, "read the meter", 1);
    assert!(endpoint.wait_until(Duration::from_secs(30), |it| it.requests().len() == 1));
    first.kill();
    host.write("modules/meter.wasm", constant(2))
        .write("away.sh", "echo the-hidden-cause >&2\nsleep 1\nexit 1\n");
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
    let [module, server] = notes.as_array().map(Vec::as_slice).expect("notes") else {
        panic!("a note of the module and one of the server: {notes}");
    };
    let module = module.as_str().expect("text");
    let parts = [
        "module meter is another one than before",
        "MCP server away: its tools are left out",
    ];
    assert!(module.contains(parts[0]), "{module}");
    assert_eq!(server, parts[1]);
    let notices = shown["answer"]["notices"].as_array().expect("notices");
    for part in parts {
        let has_part = |notice: &&Value| notice.to_string().contains(part);
        assert_eq!(notices.iter().filter(has_part).count(), 1, "{notices:?}");
        assert!(second.said().contains(part), "{part}");
    }
    // The cause is for the operator alone.
    let cause = "the-hidden-cause";
    assert!(second.said().contains(cause), "{}", second.said());
    assert!(!json!([events, shown]).to_string().contains(cause));
    assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
}
