//! A call that has begun has one end, in the record and in the audit log, and an answer that says what happened: by each way
//! to call it, and for each reason that stops it.

mod of_no_run;
mod plans;
mod runs;

use serde_json::{Value, json};
use support::host::Host;
use support::records::Records;
use support::sandbox::repository;
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

/// The events of a run, from its record.
fn recorded(host: &Host, run: &str) -> Vec<Value> {
    let lines = Records::of(host).lines(run);
    let event = |line: &String| serde_json::from_str(line).expect("an event");
    lines.iter().map(event).collect()
}
