//! Row 43: the host is killed in the midst of a call. Row 44: what errors say.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, PLACES, kind};
use crate::serving::{Answered, Answering, MODELS, Served};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::fs;
use std::future::ready;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use toolhold_policy::CallReport;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 43,
        name: "killed_after_a_side_effect",
        attack: "the host is killed when a call has written a file and goes on: from a shell, over HTTP, over MCP",
        must: "the audit log has the call, and verifies",
        company: Company::Others,
        tries: |lab| Box::pin(ready(killed_after_a_side_effect(lab))),
    },
    Attack {
        row: 44,
        name: "errors_that_name_the_cause",
        attack: "a module's own places, and the bound of random numbers, each used up",
        must: "each error names what was used up, and whose it is",
        company: Company::Others,
        tries: |lab| Box::pin(errors_that_name_the_cause(lab)),
    },
];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
/// Writes for longer than anybody waits here.
const WRITES: &str = r#"{"dir":"/data","path":"f","chunk":4096,"chunks":1000000}"#;
const TOOL: &str = "bad.fill";

fn killed_after_a_side_effect(lab: &Lab) -> Result<String, AttackFailure> {
    let endpoint = Answering::start(200, MODELS)?;
    let ways: [(&str, Way); 3] = [
        ("a shell", killed_command),
        ("HTTP", killed_server),
        ("MCP", killed_mcp_server),
    ];
    let mut broke = Vec::new();
    for (name, way) in ways {
        let folder = CommandFolder::new(lab)?;
        folder.write("modules/bad.wasm", components::ATTACKER)?;
        folder.write("data/empty", "")?;
        folder.write("host.toml", configuration(endpoint.port))?;
        way(&folder)?;
        let run = |arguments: &[&str]| folder.run(&[&CONFIG, arguments].concat(), BOUNDS);
        let verified = run(&["audit", "verify"])?;
        if verified.code != Some(0) {
            broke.push(format!(
                "{name}: the log does not verify: {}{}",
                verified.stdout, verified.stderr
            ));
        }
        if !run(&["audit", "search"])?.stdout.contains(TOOL) {
            broke.push(format!(
                "{name}: the file was written, and the audit log has no call of {TOOL}"
            ));
        }
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(format!("{} ways, each in the audit log", ways.len()))
}

/// Has the tool called in a host, and kills it when the tool has written.
type Way = fn(&CommandFolder) -> Result<(), AttackFailure>;

const CONFIG: [&str; 2] = ["--config", "host.toml"];

fn configuration(endpoint: u16) -> String {
    format!(
        "[endpoints.default]\nbase_url = \"http://127.0.0.1:{endpoint}/v1\"\nmodel = \"m\"\n\
         [modules]\npinning = \"never\"\n[serve]\nkeys = \"never\"\n[decisions]\ndefault = \"never\"\n\
         [module.bad]\ndirectories = [{{ host = \"./data\", guest = \"/data\", access = \"read-write\" }}]\n\
         [module.bad.limits]\ntimeout_ms = 60000\nhost_bytes = 1000000000000\n"
    )
}

fn killed_command(folder: &CommandFolder) -> Result<(), AttackFailure> {
    let call = [&CONFIG[..], &["modules", "call", TOOL, WRITES]].concat();
    let mut command = folder.command(&call);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn()?);
    until_written(folder)?;
    Ok(running.kill()?)
}

fn killed_server(folder: &CommandFolder) -> Result<(), AttackFailure> {
    let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let mut served = Served::start(folder, &serve)?;
    let body = format!("{{\"arguments\":{WRITES}}}");
    let path = format!("/v1/tools/{TOOL}");
    std::thread::scope(|scope| {
        let served = &served;
        scope.spawn(|| {
            // Until the server has asked the endpoint, and then until it is killed.
            while let Ok(Answered { status: 503, .. }) = served.ask("POST", &path, &[], &body) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let written = until_written(folder);
        served.kill_now();
        written
    })?;
    served.kill()?;
    // A call over HTTP is a run, which the next server goes on with.
    let mut next = Served::start(folder, &serve)?;
    let search = [&CONFIG[..], &["audit", "search"]].concat();
    let started = Instant::now();
    while !folder.run(&search, BOUNDS)?.stdout.contains(TOOL) && started.elapsed() < BOUNDS.time {
        std::thread::sleep(Duration::from_millis(100));
    }
    next.kill()
}

fn killed_mcp_server(folder: &CommandFolder) -> Result<(), AttackFailure> {
    let arguments: Value = serde_json::from_str(WRITES).unwrap_or_default();
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "hostile", "version": "1"},
        }}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": TOOL, "arguments": arguments,
        }}),
    ];
    let mut command = folder.command(&[&CONFIG[..], &["mcp"]].concat());
    command.stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn()?);
    // Taken, so that it stays open: a server whose input ends leaves.
    let input = running.0.stdin.take();
    if let Some(mut input) = input.as_ref() {
        for message in messages {
            writeln!(input, "{message}")?;
        }
    }
    until_written(folder)?;
    Ok(running.kill()?)
}

/// A process that is killed at the latest when it is dropped.
pub struct Running(pub Child);

impl Running {
    pub fn kill(&mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn until_written(folder: &CommandFolder) -> Result<(), AttackFailure> {
    let path = folder.path().join("data/f");
    let started = Instant::now();
    while fs::metadata(&path).map_or(0, |file| file.len()) == 0 {
        ensure(started.elapsed() < Duration::from_secs(30), || {
            "nothing was written: nothing is proved".into()
        })?;
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

async fn errors_that_name_the_cause(lab: &Lab) -> Result<String, AttackFailure> {
    let said = |report: &CallReport| match &report.result {
        Ok(output) => format!("{output:?}"),
        Err(error) => error.to_string(),
    };
    let timeout = Some(Duration::from_millis(300));
    let sleep = json!({"count": 1, "nanoseconds": 1_500_000_000_u64});
    // A module's own two places.
    let mut arena = lab.arena(|policy| {
        let module = policy.modules.entry("bad".into()).or_default();
        module.limits.concurrent_calls = Some(2);
    })?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    let sleepers = join_all((0..2).map(|_| arena.call("bad.wait", sleep.clone())));
    let late = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        arena.call_within("bad.arguments", json!({}), timeout).await
    };
    let (_, own) = futures_util::future::join(sleepers, late).await;
    let own_words = said(&own);
    ensure(kind(&own) == "busy", || {
        format!("a third call of two: {own_words}")
    })?;
    ensure(
        own_words.contains("module") || own_words.contains("bad"),
        || format!("a module's own places are used up, and it says: {own_words}"),
    )?;
    ensure(!own_words.starts_with(&format!("all {PLACES} ")), || {
        format!("two places are used up, and it says: {own_words}")
    })?;
    // More random numbers than a host call gives.
    let random = arena
        .call("bad.random", json!({"bytes": 1_u64 << 30}))
        .await;
    let words = said(&random);
    ensure(!["trap", "output", "ok"].contains(&kind(&random)), || {
        format!("1 GiB of random numbers: {} ({words})", kind(&random))
    })?;
    arena.unharmed().await?;
    Ok(format!("{own_words}; {words}"))
}
