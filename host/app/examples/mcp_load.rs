//! How fast `toolhold mcp` answers over stdio: `cargo run --release -p toolhold --example mcp_load --
//! target/release/toolhold`, from the repository's root.
//!
//! The floor is `ping`, which goes the same way and calls nothing. Then a tool, one call after the other
//! and sixteen at a time, and one after the other again while a second tool computes without end.
#![expect(
    clippy::print_stdout,
    reason = "this is a program for a person at a terminal"
)]

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const CALLS: usize = 5_000;
const IN_FLIGHT: usize = 16;

struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    line: String,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let binary = arguments.next().unwrap_or_else(|| "toolhold".into());
    let modules = arguments.next().unwrap_or_else(|| "modules".into());
    let mut client = Client::start(&binary, &modules)?;
    let sum = || json!({"name": "calculator.evaluate", "arguments": {"expression": "1+1"}});
    client.one_by_one("tools/call", CALLS / 10, sum)?;
    let floor = client.one_by_one("ping", CALLS, || json!({}))?;
    show("ping, one by one", &floor);
    show(
        "call, one by one",
        &client.one_by_one("tools/call", CALLS, sum)?,
    );
    let rate = client.together("tools/call", 4 * CALLS, sum)?;
    println!("call, {IN_FLIGHT} at a time: {rate:.0} calls/s");
    client.send("tools/call", endless())?;
    show(
        "call beside an endless one",
        &client.one_by_one("tools/call", CALLS, sum)?,
    );
    Ok(())
}

/// A call that computes until a limit ends it.
fn endless() -> Value {
    json!({"name": "javascript.run", "arguments": {"code": "for (;;) {}"}})
}

fn show(what: &str, times: &[Duration]) {
    let at = |part: usize| {
        times
            .get(times.len() * part / 100)
            .copied()
            .unwrap_or_default()
    };
    println!("{what}: p50 {:?}, p99 {:?}", at(50), at(99));
}

impl Client {
    fn start(binary: &str, modules: &str) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["mcp", "--trust-all", "--modules", modules])
            .args(["--tools", "calculator,javascript"])
            .env("TOOLHOLD_LIMITS__CALLS_PER_MINUTE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{binary} cannot be started"))?;
        let input = child.stdin.take().context("a pipe")?;
        let output = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut client = Self {
            child,
            input,
            output,
            next: 1,
            line: String::new(),
        };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "load", "version": "1"}});
        let id = client.send("initialize", hello)?;
        client.until(id)?;
        Ok(client)
    }

    fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.input.write_all(format!("{message}\n").as_bytes())?;
        Ok(id)
    }

    /// The id of the next reply.
    fn reply(&mut self) -> Result<u64> {
        loop {
            self.line.clear();
            self.output.read_line(&mut self.line)?;
            let reply: Value = serde_json::from_str(&self.line).context(self.line.clone())?;
            anyhow::ensure!(reply.get("error").is_none(), "{reply}");
            if let Some(id) = reply["id"].as_u64() {
                return Ok(id);
            }
        }
    }

    fn until(&mut self, id: u64) -> Result<()> {
        while self.reply()? != id {}
        Ok(())
    }

    /// How long each took, sorted.
    fn one_by_one(
        &mut self,
        method: &str,
        calls: usize,
        params: impl Fn() -> Value,
    ) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let started = Instant::now();
            let id = self.send(method, params())?;
            self.until(id)?;
            times.push(started.elapsed());
        }
        times.sort();
        Ok(times)
    }

    fn together(&mut self, method: &str, calls: usize, params: impl Fn() -> Value) -> Result<f64> {
        let started = Instant::now();
        for _ in 0..IN_FLIGHT {
            self.send(method, params())?;
        }
        for sent in IN_FLIGHT..calls + IN_FLIGHT {
            self.reply()?;
            if sent < calls {
                self.send(method, params())?;
            }
        }
        Ok(calls as f64 / started.elapsed().as_secs_f64())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
