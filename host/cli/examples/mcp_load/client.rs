//! A client of JSON lines.

use crate::PATIENCE;
use crate::process::McpProcess;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time in which a server compiles its components.
const LOADING: Duration = Duration::from_mins(1);
/// Not every server says that it has a new tool, so it is asked.
const BETWEEN_LISTS: Duration = Duration::from_millis(50);

pub struct Client {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    line: String,
    /// The last line of the server's standard error.
    last_words: Arc<Mutex<String>>,
}

/// Some requests: the sorted times until each was answered, and the time of all.
pub struct Load {
    pub times: Vec<Duration>,
    pub took: Duration,
}

impl Load {
    pub fn percentile(&self, part: usize) -> Duration {
        let time = self.times.get(self.times.len() * part / 100);
        time.copied().unwrap_or_default()
    }
}

/// Starts a server, and a session with it.
pub fn start(command: &str) -> Result<(McpProcess, Client)> {
    let mut words = command.split_whitespace();
    let mut child = Command::new(words.next().context("no command")?)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let last_words = last_line(child.stderr.take().context("a pipe")?);
    let input = child.stdin.take().context("a pipe")?;
    let output = BufReader::new(child.stdout.take().context("a pipe")?);
    let server = McpProcess(child);
    let mut client = Client {
        input,
        output,
        next: 1,
        line: String::new(),
        last_words,
    };
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "load", "version": "1"}});
    client.ask("initialize", &hello)?;
    client.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
    Ok((server, client))
}

/// Reads a pipe to its end, and keeps the last line. A server whose log is not read would stop.
fn last_line(pipe: ChildStderr) -> Arc<Mutex<String>> {
    let last = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&last);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = line;
        }
    });
    last
}

impl Client {
    /// The call of the tool whose name ends so, as soon as the server has it.
    pub fn awaited(&mut self, tool: &(String, Value)) -> Result<Value> {
        let started = Instant::now();
        loop {
            if let Some(call) = self.offered(tool)? {
                return Ok(call);
            }
            ensure!(started.elapsed() < LOADING, "it has no tool {}", tool.0);
            thread::sleep(BETWEEN_LISTS);
        }
    }

    /// The call of the tool whose name ends so, if the server has one.
    pub fn offered(&mut self, (end, arguments): &(String, Value)) -> Result<Option<Value>> {
        let listed = self.ask("tools/list", &json!({}))?;
        let tools = listed["result"]["tools"].as_array();
        let mut names = tools.into_iter().flatten().map(|tool| &tool["name"]);
        let name = names.find(|name| name.as_str().is_some_and(|name| name.ends_with(end)));
        Ok(name.map(|name| json!({"name": name, "arguments": arguments})))
    }

    fn write(&mut self, message: &Value) -> Result<()> {
        let written = self.input.write_all(format!("{message}\n").as_bytes());
        written.with_context(|| self.gone())
    }

    fn gone(&self) -> String {
        let last = self.last_words.lock();
        let last = last.unwrap_or_else(PoisonError::into_inner);
        format!("the server is gone; it said last: {last}")
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        Ok(id)
    }

    /// The next reply, with its id.
    fn reply(&mut self) -> Result<(u64, Value)> {
        loop {
            self.line.clear();
            let length = self.output.read_line(&mut self.line)?;
            ensure!(length > 0, "{}", self.gone());
            let reply: Value = serde_json::from_str(&self.line).context(self.line.clone())?;
            let failed = reply.get("error").is_some() || reply["result"]["isError"] == true;
            ensure!(!failed, "{reply}");
            if let Some(id) = reply["id"].as_u64() {
                return Ok((id, reply));
            }
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        let asked = self.send(method, params)?;
        loop {
            let (id, reply) = self.reply()?;
            if id == asked {
                return Ok(reply);
            }
        }
    }

    /// Sends requests, of which `at_once` are under way at a time.
    pub fn together(
        &mut self,
        method: &str,
        params: &Value,
        times: usize,
        at_once: usize,
    ) -> Result<Load> {
        // By id: the first is that of the next request.
        let first = self.next;
        let (mut sent, mut took) = (Vec::with_capacity(times), Vec::with_capacity(times));
        let started = Instant::now();
        while took.len() < times {
            while sent.len() < times && sent.len() - took.len() < at_once.max(1) {
                sent.push(Instant::now());
                self.send(method, params)?;
            }
            let (id, _) = self.reply()?;
            let place = id
                .checked_sub(first)
                .and_then(|it| usize::try_from(it).ok());
            // An endless call beside these has an earlier id.
            if let Some(sent) = place.and_then(|place| sent.get(place)) {
                took.push(sent.elapsed());
            }
        }
        let all = started.elapsed();
        took.sort();
        Ok(Load {
            times: took,
            took: all,
        })
    }

    /// Calls while another one runs; `None` if the first of them is not answered in time.
    pub fn beside(mut self, endless: &Value, call: Value, times: usize) -> Result<Option<Load>> {
        self.send("tools/call", endless)?;
        let (answered, first) = channel();
        let rest = thread::spawn(move || {
            let _ = answered.send(self.ask("tools/call", &call).map(drop));
            self.together("tools/call", &call, times, 1)
        });
        match first.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the caller is gone"),
            Ok(answer) => answer?,
        }
        match rest.join() {
            Ok(times) => times.map(Some),
            Err(_) => bail!("the caller is gone"),
        }
    }
}
