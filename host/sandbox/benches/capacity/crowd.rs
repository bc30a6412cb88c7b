//! Many callers at once: calls a second, how long the slowest wait, and what a call costs that only
//! sleeps.

use crate::measure::{self, percentile, resident, row};
use serde_json::json;
use std::time::{Duration, Instant};
use toolhold_sandbox::Registry;

const TIME: Duration = Duration::from_secs(2);
const PARKED: u32 = 1_000;

pub fn run() {
    let runtime = measure::runtime();
    let registry = measure::tools(&runtime, &measure::engine(64));
    for callers in [1, 2, 64] {
        let started = Instant::now();
        let mut times = runtime.block_on(async {
            let tasks: Vec<_> = (0..callers)
                .map(|_| tokio::spawn(caller(registry.clone(), started)))
                .collect();
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.unwrap());
            }
            all
        });
        let elapsed = started.elapsed();
        times.sort_unstable();
        row(
            &format!("{callers} callers"),
            &format!(
                "{:.0} calls a second, p50 {:.1?}, p99 {:.1?}",
                times.len() as f64 / elapsed.as_secs_f64(),
                percentile(&times, 50),
                percentile(&times, 99)
            ),
        );
    }
    parked();
}

/// How long each call takes as its caller sees it: waiting for a thread is part of it.
async fn caller(registry: Registry, started: Instant) -> Vec<Duration> {
    let mut times = Vec::new();
    while started.elapsed() < TIME {
        times.push(measure::seen_by_caller(&registry).await);
    }
    times
}

/// Calls asleep in a host call. Their memories have 1 MiB each, untouched.
fn parked() {
    let runtime = measure::runtime();
    let engine = measure::engine(PARKED);
    let registry = measure::tools(&runtime, &engine);
    let before = resident();
    let tasks: Vec<_> = (0..PARKED)
        .map(|_| {
            let registry = registry.clone();
            runtime.spawn(async move { measure::call(&registry, "tools.sleep", &json!({})).await })
        })
        .collect();
    while engine.free_places() > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // All have started; give the last ones time to fall asleep.
    std::thread::sleep(Duration::from_secs(1));
    let each = resident().saturating_sub(before) / u64::from(PARKED);
    row(
        &format!("{PARKED} calls asleep"),
        &format!("{} KiB of memory each, no thread", each >> 10),
    );
    for task in tasks {
        task.abort();
    }
}
