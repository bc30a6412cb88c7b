//! How fast MCP servers answer over stdio, and what it takes of the machine, side by side in one run:
//! `cargo run --release -p toolhold-cli --example mcp_load -- SERVER…`, from the repository's root. `cargo xtask bench servers`
//! runs it with all servers that a machine can have.
//!
//! Each SERVER is `TITLE: COMMAND`, and COMMAND is split at its blanks; without one, `target/release/toolhold mcp` is
//! measured. The floor is `ping`, which goes the same way and calls nothing. Then a tool, with one call at a time and with
//! more. The table has the medians of all rounds, in which the servers take turns. Processor time and context switches are
//! those of the server's process. In the end, one call at a time again, while a second tool computes without end.
#![expect(
    clippy::print_stdout,
    reason = "this is a program for a person at a terminal"
)]

mod client;
mod process;
mod table;

use anyhow::{Context as _, Result};
use clap::Parser;
use client::Client;
use process::McpProcess;
use serde_json::{Value, json};
use std::time::Duration;
use table::{Measured, Rounds};

/// Timeout of calls beside an endless one. A server that runs one call at a time answers none of them.
const PATIENCE: Duration = Duration::from_secs(10);
const TOOLHOLD: &str = "Toolhold: env TOOLHOLD_LIMITS__CALLS_PER_MINUTE=0 target/release/toolhold mcp --trust-all \
                        --modules modules --tools calculator,javascript";
/// How many times as many calls are made where more than one is under way.
const TOGETHER: usize = 4;

#[derive(Parser)]
struct Flags {
    /// Title and command line of each server.
    #[arg(default_value = TOOLHOLD, value_name = "TITLE: COMMAND", value_parser = titled)]
    servers: Vec<Titled>,
    /// A server that the table names without numbers, and why.
    #[arg(long, value_name = "TITLE: REASON", value_parser = titled)]
    left_out: Vec<Titled>,
    /// The tool to call, by the end of its name, with its arguments.
    #[arg(long, default_value = r#"evaluate={"expression":"1+1"}"#, value_parser = tool)]
    call: (String, Value),
    /// A tool that never ends; several names may be given, and the first that a server has is called.
    #[arg(long, default_values = [r#"javascript.run={"code":"for (;;) {}"}"#, "spin={}"], value_parser = tool)]
    endless: Vec<(String, Value)>,
    /// Calls that are under way at the same time: a row of the table for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    at_once: Vec<usize>,
    /// Calls one by one in a round; four times as many at once.
    #[arg(long, default_value_t = 5_000)]
    calls: usize,
    #[arg(long, default_value_t = 2)]
    rounds: usize,
}

/// A server's name in the table, and its command line or why it has none.
#[derive(Debug, Clone)]
struct Titled {
    title: String,
    text: String,
}

fn titled(text: &str) -> Result<Titled> {
    let (title, text) = text.split_once(": ").context("it is TITLE: TEXT")?;
    Ok(Titled {
        title: title.to_owned(),
        text: text.to_owned(),
    })
}

fn tool(text: &str) -> Result<(String, Value)> {
    let (name, arguments) = text.split_once('=').context("it is NAME=ARGUMENTS")?;
    Ok((name.to_owned(), serde_json::from_str(arguments)?))
}

/// A server that has begun, and the call that is measured.
struct Started {
    title: String,
    process: McpProcess,
    client: Client,
    call: Value,
    rounds: Rounds,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let mut servers = Vec::new();
    let mut left_out = flags.left_out.clone();
    for server in &flags.servers {
        match start(server, &flags) {
            Ok(started) => servers.push(started),
            // The others are worth their numbers.
            Err(error) => left_out.push(Titled {
                title: server.title.clone(),
                text: format!("{error:#}"),
            }),
        }
    }
    for _ in 0..flags.rounds {
        for server in &mut servers {
            server.measure(&flags)?;
        }
    }
    println!("{}", table::of(&servers, &left_out));
    for server in servers {
        server.beside(&flags)?;
    }
    Ok(())
}

fn start(server: &Titled, flags: &Flags) -> Result<Started> {
    let (process, mut client) = client::start(&server.text)?;
    let call = client.awaited(&flags.call)?;
    client.together("tools/call", &call, flags.calls.div_ceil(10), 1)?;
    Ok(Started {
        title: server.title.clone(),
        process,
        client,
        call,
        rounds: Rounds::default(),
    })
}

impl Started {
    /// One round: `ping`, then the tool.
    fn measure(&mut self, flags: &Flags) -> Result<()> {
        let ping = self.part("ping", &json!({}), flags.calls, 1)?;
        self.rounds.add("`ping`", ping);
        for &at_once in &flags.at_once {
            let factor = if at_once > 1 { TOGETHER } else { 1 };
            let call = self.call.clone();
            let part = self.part("tools/call", &call, factor * flags.calls, at_once)?;
            self.rounds.add(&at_once.to_string(), part);
        }
        Ok(())
    }

    fn part(
        &mut self,
        method: &str,
        params: &Value,
        times: usize,
        at_once: usize,
    ) -> Result<Measured> {
        let before = self.process.usage()?;
        let load = self.client.together(method, params, times, at_once);
        let load = load.with_context(|| self.title.clone())?;
        let used = self.process.usage()?.since(&before);
        Ok(Measured::of(&load, &used))
    }

    fn beside(mut self, flags: &Flags) -> Result<()> {
        let mut endless = None;
        for one in &flags.endless {
            endless = endless.or(self.client.offered(one)?);
        }
        let Some(endless) = endless else {
            return Ok(());
        };
        let times = self.client.beside(&endless, self.call, flags.calls)?;
        let title = self.title;
        match times {
            None => println!("{title}: no call answered in {PATIENCE:?} beside an endless one"),
            Some(load) => println!(
                "{title}: a call beside an endless one: p50 {:?}, p99 {:?}",
                load.percentile(50),
                load.percentile(99)
            ),
        }
        Ok(())
    }
}
