//! How fast MCP servers answer over stdio, side by side in one run:
//! `cargo run --release -p toolhold-cli --example mcp_load -- COMMAND…`, from the repository's root.
//!
//! Each COMMAND, split at its blanks, is a server; without one, `target/release/toolhold mcp` is. The floor is
//! `ping`, which goes the same way and calls nothing. Then a tool, one call after the other and sixteen at a
//! time, and one after the other again while a second tool computes without end.
#![expect(
    clippy::print_stdout,
    reason = "this is a program for a person at a terminal"
)]

use anyhow::{Context as _, Result};
use clap::Parser;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const IN_FLIGHT: usize = 16;
/// Timeout of calls beside an endless one. A server that runs one call at a time answers none of them.
const PATIENCE: Duration = Duration::from_secs(10);
const TOOLHOLD: &str = "env TOOLHOLD_LIMITS__CALLS_PER_MINUTE=0 target/release/toolhold mcp --trust-all \
                        --modules modules --tools calculator,javascript";

#[derive(Parser)]
struct Flags {
    /// Command lines of the servers.
    #[arg(default_value = TOOLHOLD)]
    commands: Vec<String>,
    /// The tool to call, by the end of its name, with its arguments.
    #[arg(long, default_value = r#"evaluate={"expression":"1+1"}"#, value_parser = tool)]
    call: (String, Value),
    /// A tool that never ends; several names may be given, and the first that a server has is called.
    #[arg(long, default_values = [r#"javascript.run={"code":"for (;;) {}"}"#, "spin={}"], value_parser = tool)]
    endless: Vec<(String, Value)>,
    /// Calls one by one in a round; four times as many at once.
    #[arg(long, default_value_t = 5_000)]
    calls: usize,
    #[arg(long, default_value_t = 2)]
    rounds: usize,
}

fn tool(text: &str) -> Result<(String, Value)> {
    let (name, arguments) = text.split_once('=').context("it is NAME=ARGUMENTS")?;
    Ok((name.to_owned(), serde_json::from_str(arguments)?))
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let mut servers = Vec::new();
    for command in &flags.commands {
        let (server, mut client) = start(command).with_context(|| command.clone())?;
        let call = client.offered(&flags.call)?;
        let call = call.with_context(|| format!("{command} has no tool {}", flags.call.0))?;
        client.one_by_one("tools/call", &call, flags.calls / 10)?;
        servers.push((server, client, call));
    }
    for round in 1..=flags.rounds {
        for (number, (_, client, call)) in servers.iter_mut().enumerate() {
            let at = format!("server {}, round {round}", number + 1);
            let ping = client.one_by_one("ping", &json!({}), flags.calls)?;
            println!("{at}: ping {ping}");
            let one_by_one = client.one_by_one("tools/call", call, flags.calls)?;
            println!("{at}: call {one_by_one}");
            let rate = client.together("tools/call", call, 4 * flags.calls)?;
            println!("{at}: {IN_FLIGHT} calls at a time: {rate:.0}/s");
        }
    }
    for (number, (_server, mut client, call)) in servers.into_iter().enumerate() {
        let at = format!("server {}", number + 1);
        let mut endless = None;
        for one in &flags.endless {
            endless = endless.or(client.offered(one)?);
        }
        match endless {
            None => println!("{at}: has no endless tool"),
            Some(endless) => match client.beside(&endless, call, flags.calls)? {
                None => println!("{at}: no call answered in {PATIENCE:?} beside an endless one"),
                Some(times) => println!("{at}: call beside an endless one {times}"),
            },
        }
    }
    Ok(())
}

/// Durations of some requests, sorted.
struct Times(Vec<Duration>);

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |part: usize| {
            let time = self.0.get(self.0.len() * part / 100);
            time.copied().unwrap_or_default()
        };
        write!(f, "p50 {:?}, p99 {:?}", at(50), at(99))
    }
}

/// A server's process; dropping it kills the process.
struct McpProcess(Child);

impl Drop for McpProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Client {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    line: String,
}

fn start(command: &str) -> Result<(McpProcess, Client)> {
    let mut words = command.split_whitespace();
    let mut child = Command::new(words.next().context("no command")?)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let input = child.stdin.take().context("a pipe")?;
    let output = BufReader::new(child.stdout.take().context("a pipe")?);
    let server = McpProcess(child);
    let mut client = Client {
        input,
        output,
        next: 1,
        line: String::new(),
    };
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "load", "version": "1"}});
    client.ask("initialize", &hello)?;
    client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    Ok((server, client))
}

impl Client {
    /// The arguments of the tool whose name ends so, if the server has one.
    fn offered(&mut self, (end, arguments): &(String, Value)) -> Result<Option<Value>> {
        let listed = self.ask("tools/list", &json!({}))?;
        let tools = listed["result"]["tools"].as_array();
        let mut names = tools.into_iter().flatten().map(|tool| &tool["name"]);
        let name = names.find(|name| name.as_str().is_some_and(|name| name.ends_with(end)));
        Ok(name.map(|name| json!({"name": name, "arguments": arguments})))
    }

    fn write(&mut self, message: &Value) -> Result<()> {
        Ok(self.input.write_all(format!("{message}\n").as_bytes())?)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// The next reply.
    fn reply(&mut self) -> Result<Value> {
        loop {
            self.line.clear();
            let length = self.output.read_line(&mut self.line)?;
            anyhow::ensure!(length > 0, "the server is gone");
            let reply: Value = serde_json::from_str(&self.line).context(self.line.clone())?;
            let failed = reply.get("error").is_some() || reply["result"]["isError"] == true;
            anyhow::ensure!(!failed, "{reply}");
            if reply["id"].is_u64() {
                return Ok(reply);
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        loop {
            let reply = self.reply()?;
            if reply["id"] == id {
                return Ok(reply);
            }
        }
    }

    fn one_by_one(&mut self, method: &str, params: &Value, times: usize) -> Result<Times> {
        let mut took = Vec::with_capacity(times);
        for _ in 0..times {
            let started = Instant::now();
            self.ask(method, params)?;
            took.push(started.elapsed());
        }
        took.sort();
        Ok(Times(took))
    }

    /// Requests per second.
    fn together(&mut self, method: &str, params: &Value, times: usize) -> Result<f64> {
        let started = Instant::now();
        for _ in 0..IN_FLIGHT {
            self.send(method, params)?;
        }
        for sent in IN_FLIGHT..times + IN_FLIGHT {
            self.reply()?;
            if sent < times {
                self.send(method, params)?;
            }
        }
        Ok(times as f64 / started.elapsed().as_secs_f64())
    }

    /// Calls while another one runs; `None` if the first of them is not answered in time.
    fn beside(mut self, endless: &Value, call: Value, times: usize) -> Result<Option<Times>> {
        self.send("tools/call", endless)?;
        let (answered, first) = channel();
        let rest = std::thread::spawn(move || {
            let _ = answered.send(self.ask("tools/call", &call).map(drop));
            self.one_by_one("tools/call", &call, times)
        });
        match first.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("the caller is gone"),
            Ok(answer) => answer?,
        }
        match rest.join() {
            Ok(times) => times.map(Some),
            Err(_) => anyhow::bail!("the caller is gone"),
        }
    }
}
