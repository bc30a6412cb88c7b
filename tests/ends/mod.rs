//! A call that has begun has one end, in the record and in the audit log, and an answer that says what happened: by each way
//! to call it, and for each reason that stops it.

mod foreign;
mod jobs;
mod of_no_run;
mod plans;
mod runs;
mod sub_runs;

use serde_json::{Value, json};
use support::host::Host;
use support::records::Records;
use support::sandbox::repository;
use support::until;

/// A tool that computes until it is stopped.
const TOOL: &str = "bad.spin";

const CONFIG: &str = "[modules]\npinning = \"never\"\n[module.probe]\ntools = [\"bad\"]\n\
                      [limits]\nfuel = 1_000_000_000_000\ntimeout_ms = 300_000\n";

/// A tool whose calls go on until they are stopped.
#[derive(Debug, Clone, Copy)]
struct CutTool {
    name: &'static str,
    /// Makes a host that has the tool, with further configuration.
    make_host: fn(&str) -> Host,
    /// Configuration under which the tool's own time is over soon.
    short: &'static str,
    /// Words about a call that took longer.
    late: &'static str,
    /// Configuration with something that can be taken back.
    granting: &'static str,
    /// Takes that back while a call runs.
    take_back: fn(&Host),
    /// False for a tool of an MCP server: `plan run` starts only the servers that the plan itself names.
    is_nested_in_plans: bool,
}

/// A module's tool that computes.
const SPIN: CutTool = CutTool {
    name: TOOL,
    make_host: host,
    short: SHORT,
    late: "within its deadline",
    granting: GRANTING,
    take_back,
    is_nested_in_plans: true,
};

impl CutTool {
    fn host(self, config: &str) -> Host {
        (self.make_host)(config)
    }

    /// The call itself, and one that a module makes of it.
    fn calls(self) -> [(&'static str, Value); 2] {
        [
            (self.name, json!({})),
            ("probe.ask", json!({"tool": self.name, "arguments": {}})),
        ]
    }

    /// Tries something with each of [`Self::calls`], both at the same time.
    fn with_each_call(self, tried: impl Fn(&'static str, Value) + Sync) {
        at_once(self.calls(), |(tool, arguments)| tried(tool, arguments));
    }

    /// [`Self::with_each_call`], of a plan with one call.
    fn with_each_call_of_plans(self, tried: impl Fn(&'static str, Value) + Sync) {
        let count = if self.is_nested_in_plans { 2 } else { 1 };
        let calls = self.calls().into_iter().take(count);
        at_once(calls, |(tool, arguments)| tried(tool, arguments));
    }

    /// The only end of the tool in the record of a run.
    fn end(self, events: &[Value]) -> Value {
        end_of(events, self.name)
    }

    /// The only row of the tool in the audit log.
    fn row(self, host: &Host) -> Value {
        row_of(host, self.name)
    }

    /// Until the record of the run has the begin of the call; `tool` is the one that the model called.
    fn until_it_runs(self, host: &Host, run: &str, tool: &str) {
        until("the call", || {
            let lines = Records::of(host).lines(run);
            let is_begun =
                |line: &String| line.contains("\"tool_start\"") && line.contains(self.name);
            // A module's call has an event of its own.
            let begins = lines.iter().filter(|line| is_begun(line)).count();
            let needed = if tool == self.name { 1 } else { 2 };
            (begins >= needed).then_some(())
        });
    }
}

/// Tries something with each case, all at the same time.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, tried: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let tried = &tried;
            scope.spawn(move || tried(case));
        }
    });
}

fn host(config: &str) -> Host {
    host_with(spin(), &format!("{CONFIG}{config}"))
}

/// The component of [`SPIN`].
fn spin() -> Vec<u8> {
    let spin = wat::parse_str(
        r#"(component
          (core module $m (func (export "spin") (result i32) (loop $l (br $l)) (unreachable)))
          (core instance $i (instantiate $m))
          (func (export "spin") (result u32) (canon lift (core func $i "spin"))))"#,
    );
    spin.expect("a component")
}

/// A host with this component as the module `bad`, with the probe, and with this configuration.
fn host_with(bad: Vec<u8>, config: &str) -> Host {
    let probe = std::fs::read(repository().join("modules/sdk/probe/probe.wasm"));
    let host = Host::new();
    host.write("modules/bad.wasm", bad)
        .write("modules/probe.wasm", probe.expect("it is built"))
        .write("toolhold.toml", config);
    host
}

/// Events of calls of the tool, those of calls within calls as well.
fn of_the_call(events: &[Value], name: &str, tool: &str) -> Vec<Value> {
    let events = events.iter().map(|event| {
        let mut event = event;
        while event["event"] == "sub" {
            event = &event["what"];
        }
        event.clone()
    });
    events
        .filter(|event| event["event"] == name && event["tool"] == tool)
        .collect()
}

/// The only end of the tool's only call in the record of a run.
fn end_of(events: &[Value], tool: &str) -> Value {
    let (begins, ends) = (
        of_the_call(events, "tool_start", tool),
        of_the_call(events, "tool_result", tool),
    );
    assert_eq!((begins.len(), ends.len()), (1, 1), "{tool}: {events:?}");
    ends[0].clone()
}

/// The only row of the tool in the audit log, which fits together.
fn row_of(host: &Host, tool: &str) -> Value {
    let found = host.run(&["audit", "search", "--json", "--tool", tool]);
    let rows: Vec<Value> = found
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 1, "{tool}: {found:?}");
    assert_eq!(host.run(&["audit", "verify"]).code, Some(0));
    rows[0].clone()
}

/// Until the audit log has a row of the tool.
fn until_there_is_a_row_of(host: &Host, tool: &str) {
    until("the row", || {
        let found = host.run(&["audit", "search", "--json", "--tool", tool]);
        (!found.stdout.is_empty()).then_some(())
    });
}

/// Grants the module of the tool something that can be taken back.
const GRANTING: &str = "[module.bad]\nkey_value = {}\n";

fn take_back(host: &Host) {
    host.write("toolhold.toml", CONFIG);
}

/// The tool's own time is over soon.
const SHORT: &str = "[module.bad.limits]\ntimeout_ms = 1_500\n";

/// The newest run, once there is one.
fn newest_run(host: &Host) -> String {
    until("a run", || Records::of(host).runs().pop())
}

/// The events of a run, from its record.
fn recorded(host: &Host, run: &str) -> Vec<Value> {
    let lines = Records::of(host).lines(run);
    let event = |line: &String| serde_json::from_str(line).expect("an event");
    lines.iter().map(event).collect()
}

/// The events of a run that ends, from its record.
fn recorded_to_its_end(host: &Host, run: &str) -> Vec<Value> {
    until("the end of the run", || {
        let events = recorded(host, run);
        let is_over = events.last().is_some_and(|last| last["event"] == "done");
        is_over.then_some(events)
    })
}
