//! One run, and many who watch it.

use crate::endpoint::SLOWLY;
use crate::server::{ServerProcess, json as with_json};
use crate::{Load, ms};
use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::time::Instant;

/// Time between the first and the last watcher's receipt of an event.
pub async fn measure(
    client: &reqwest::Client,
    server: &ServerProcess,
    watchers: usize,
) -> Result<()> {
    let task = json!({"agent": "load", "stream": true,
        "messages": [{"role": "user", "content": format!("Tell it {SLOWLY}.")}]});
    let sent = with_json(client.post(server.url("/v1/agent")), &task)
        .send()
        .await?;
    let mut run = sent.error_for_status()?.bytes_stream();
    let mut text = String::new();
    let id = loop {
        text += &String::from_utf8_lossy(&run.next().await.context("no event")??);
        let data = text.lines().find_map(|line| line.strip_prefix("data: "));
        let event = data.and_then(|data| serde_json::from_str::<Value>(data).ok());
        if let Some(id) = event.as_ref().and_then(|event| event["run"].as_str()) {
            break id.to_owned();
        }
    };
    // A late watcher gets earlier events from the record: only events that all watchers get live are
    // compared.
    let path = server.url(&format!("/v1/runs/{id}/events"));
    let told = try_join_all((0..watchers).map(|_| watch(client, &path))).await?;
    let joined = told
        .iter()
        .map(|it| it.joined)
        .max()
        .context("no watchers")?;
    let events = told.iter().map(|it| it.at.len()).min().unwrap_or(0);
    let mut spread = Vec::new();
    for event in 0..events {
        let at = told.iter().filter_map(|it| it.at.get(event));
        let (first, last) = (
            at.clone().min().context("no watchers")?,
            at.max().context("no watchers")?,
        );
        if *first > joined {
            spread.push(*last - *first);
        }
    }
    spread.sort();
    let live = Load {
        took: spread.iter().sum(),
        times: spread,
    };
    println!(
        "{watchers} watchers of one run: {} events reach all of them live, first to last watcher p50 {}, p99 {}",
        live.times.len(),
        ms(live.percentile(50)),
        ms(live.percentile(99)),
    );
    Ok(())
}

/// When a watcher was connected, and when it received each event.
struct WatchTimes {
    joined: Instant,
    at: Vec<Instant>,
}

async fn watch(client: &reqwest::Client, path: &str) -> Result<WatchTimes> {
    let response = client.get(path).send().await?.error_for_status()?;
    let joined = Instant::now();
    let (mut stream, mut at) = (response.bytes_stream(), Vec::new());
    let mut end = false;
    while let Some(piece) = stream.next().await {
        let now = Instant::now();
        for &byte in &piece? {
            // An event ends with an empty line.
            let is_line = byte == b'\n';
            if is_line && end {
                at.push(now);
            }
            end = is_line;
        }
    }
    Ok(WatchTimes { joined, at })
}
