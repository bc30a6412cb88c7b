//! What other calls of a module feel while one of its calls computes without end.

use crate::measure::{self, percentile, ratio, row};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use toolhold_sandbox::Registry;

pub fn run() {
    beside_spinners(measure::runtime(), &[1, 8]);
    row("with a runtime that looks for events often:", "");
    beside_spinners(measure::attentive_runtime(), &[1, 8]);
}

fn beside_spinners(runtime: Runtime, counts: &[usize]) {
    let registry = measure::tools(&runtime, &measure::engine(64));
    let alone = adds(&runtime, &registry);
    row("a call while nothing else runs", &shown(&alone, &alone));
    for spinners in counts {
        let spinning: Vec<_> = (0..*spinners)
            .map(|_| {
                let registry = registry.clone();
                runtime
                    .spawn(async move { measure::call(&registry, "tools.spin", &json!({})).await })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        let beside = adds(&runtime, &registry);
        row(
            &format!("while {spinners} of the same module spin"),
            &shown(&beside, &alone),
        );
        for call in &spinning {
            assert!(!call.is_finished(), "it must spin for all of the bench");
            call.abort();
        }
    }
}

/// From a task of the runtime whose threads the spinners take too.
fn adds(runtime: &Runtime, registry: &Registry) -> Vec<Duration> {
    const CALLS: usize = 5_000;
    const LONGEST: Duration = Duration::from_secs(10);
    let registry = registry.clone();
    let task = runtime.spawn(async move {
        let started = Instant::now();
        let mut times = Vec::new();
        while times.len() < CALLS && started.elapsed() < LONGEST {
            times.push(measure::seen_by_caller(&registry).await);
        }
        times.sort_unstable();
        times
    });
    runtime.block_on(task).unwrap()
}

fn shown(times: &[Duration], alone: &[Duration]) -> String {
    let (p50, p99) = (percentile(times, 50), percentile(times, 99));
    let ratio = ratio(p50, percentile(alone, 50));
    format!("p50 {p50:.1?}, {ratio:.2} times alone; p99 {p99:.1?}")
}
