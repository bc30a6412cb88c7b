//! What `toolhold serve` takes under load: `cargo run --release -p toolhold-cli --example serve_load --
//! target/release/toolhold`, from the repository's root.
//!
//! A run is two Requests to a model, with two calls of a Wasm tool between them. The model sends its first
//! token after 20 ms, and 50 tokens in all. The model, the server and its clients share the machine. The
//! output compares the runs with the model's two replies alone, requested by the same number of clients in
//! the same way.
#![expect(
    clippy::print_stdout,
    reason = "this is a program for a person at a terminal"
)]

mod endpoint;
mod fan_out;
mod server;

use anyhow::{Context as _, Result, ensure};
use endpoint::LoadEndpoint;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use server::{ServerProcess, json as with_json};
use std::time::{Duration, Instant};

/// Runs at the same time, and runs in all.
const LEVELS: [(usize, usize); 3] = [(1, 200), (100, 2_000), (1_000, 3_000)];
/// Runs before the first measurement.
const WARM_UP: usize = 50;
const SESSIONS: usize = 10_000;
const WATCHERS: [usize; 2] = [100, 1_000];

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let binary = arguments.next().unwrap_or_else(|| "toolhold".into());
    let modules = arguments.next().unwrap_or_else(|| "modules".into());
    let endpoint = LoadEndpoint::start().await?;
    let server = ServerProcess::start(&binary, &modules, &endpoint)?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let task = async || run(&client, &server).await;
    Load::of(1, WARM_UP, task).await?;
    println!("at rest: {}", mib(server.memory()?));

    println!(
        "runs at once   runs/s   p50 (model alone)      p99 (model alone)      memory per run   CPU per run"
    );
    for (at_once, runs) in LEVELS {
        let alone = Load::of(at_once, runs, async || {
            two_answers(&client, &endpoint).await
        })
        .await?;
        let before = server.memory()?;
        let peak = server.peak_memory();
        let worked = server.processor_time()?;
        let load = Load::of(at_once, runs, task).await?;
        let worked = server.processor_time()?.saturating_sub(worked);
        let each = peak.read()?.saturating_sub(before) / at_once as u64;
        println!(
            "{at_once:>12} {:>8.0}   {:>8} ({:>8})    {:>8} ({:>8})    {:>8}   {:>8} µs",
            load.rate(),
            ms(load.percentile(50)),
            ms(alone.percentile(50)),
            ms(load.percentile(99)),
            ms(alone.percentile(99)),
            kib(each),
            worked.as_micros() / runs as u128,
        );
    }
    let runs = WARM_UP + LEVELS.iter().map(|(_, runs)| runs).sum::<usize>();
    let each = server.database_bytes()? / runs as u64;
    println!(
        "{runs} runs with two calls each: {} of disk each",
        kib(each)
    );
    sessions(&client, &server).await?;
    for watchers in WATCHERS {
        fan_out::measure(&client, &server, watchers).await?;
    }
    Ok(())
}

/// Idle sessions, each with one turn.
async fn sessions(client: &reqwest::Client, server: &ServerProcess) -> Result<()> {
    let before = server.memory()?;
    let open = async || -> Result<Value> {
        let agent = json!({"agent": "load"});
        let session = server.post(client, "/v1/sessions", &agent).await?;
        let id = session["id"].as_str().context("a session's id")?.to_owned();
        turn(client, server, &id).await?;
        Ok(Value::String(id))
    };
    let first = open().await?;
    let early = turn_of(client, server, &first).await?;
    let load = Load::of(100, SESSIONS, async || open().await.map(drop)).await?;
    let each = server.memory()?.saturating_sub(before) / SESSIONS as u64;
    let last = open().await?;
    let late = turn_of(client, server, &last).await?;
    println!(
        "{SESSIONS} sessions with a turn each: {:.0} sessions/s, {} of memory each; a turn of one more \
         takes {} (before: {})",
        load.rate(),
        kib(each),
        ms(late),
        ms(early),
    );
    Ok(())
}

async fn turn_of(
    client: &reqwest::Client,
    server: &ServerProcess,
    session: &Value,
) -> Result<Duration> {
    let id = session.as_str().context("a session's id")?;
    Ok(Load::of(1, 20, async || turn(client, server, id).await)
        .await?
        .percentile(50))
}

async fn turn(client: &reqwest::Client, server: &ServerProcess, session: &str) -> Result<()> {
    let path = format!("/v1/sessions/{session}/turns");
    finished(&server.post(client, &path, &task()).await?)
}

async fn run(client: &reqwest::Client, server: &ServerProcess) -> Result<()> {
    let mut task = task();
    task["agent"] = json!("load");
    finished(&server.post(client, "/v1/agent", &task).await?)
}

fn task() -> Value {
    json!({"messages": [{"role": "user", "content": "Add twice."}]})
}

fn finished(answer: &Value) -> Result<()> {
    let calls = answer["steps"][0]["calls"].as_array().map_or(0, Vec::len);
    ensure!(
        answer["reason"] == "output" && calls == 2,
        "a run that is not as it should be: {answer}"
    );
    Ok(())
}

/// The model's replies of a run, requested without the server.
async fn two_answers(client: &reqwest::Client, endpoint: &LoadEndpoint) -> Result<()> {
    for messages in [json!([]), json!([{"content": endpoint::RESULT}])] {
        let body = json!({"model": "m", "stream": true, "messages": messages});
        let url = format!("{}/chat/completions", endpoint.base_url());
        with_json(client.post(url), &body)
            .send()
            .await?
            .error_for_status()?
            .bytes()
            .await?;
    }
    Ok(())
}

/// The duration of each of many runs, and of all together.
struct Load {
    times: Vec<Duration>,
    took: Duration,
}

impl Load {
    async fn of(at_once: usize, times: usize, one: impl AsyncFn() -> Result<()>) -> Result<Self> {
        let started = Instant::now();
        let timed = async || {
            let started = Instant::now();
            one().await.map(|()| started.elapsed())
        };
        let times = stream::iter(0..times).map(|_| timed());
        let times: Vec<_> = times.buffer_unordered(at_once).collect().await;
        let took = started.elapsed();
        let mut times: Vec<Duration> = times.into_iter().collect::<Result<_>>()?;
        times.sort();
        Ok(Self { times, took })
    }

    fn rate(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }

    fn percentile(&self, part: usize) -> Duration {
        let at = (self.times.len() * part / 100).min(self.times.len().saturating_sub(1));
        self.times.get(at).copied().unwrap_or_default()
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
