//! What other calls of a module feel while one of its calls computes without end.

use crate::measure::{self, percentile, ratio, row, times};
use serde_json::json;
use std::time::Duration;
use tokio::runtime::Runtime;
use toolhold_sandbox::Registry;

pub fn run() {
    let runtime = measure::runtime();
    let registry = measure::tools(&runtime, &measure::engine(64));
    let alone = adds(&runtime, &registry);
    row("a call while nothing else runs", &shown(&alone, &alone));
    for spinners in [1, 8] {
        let spinning: Vec<_> = (0..spinners)
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

/// From the thread of this bench: the runtime's own are what the spinners take.
fn adds(runtime: &Runtime, registry: &Registry) -> Vec<Duration> {
    times(5_000, || {
        let report = runtime.block_on(measure::call(
            registry,
            "tools.add",
            &json!({"a": 1, "b": 2}),
        ));
        assert!(report.result.is_ok(), "{:?}", report.result);
    })
}

fn shown(times: &[Duration], alone: &[Duration]) -> String {
    let (p50, p99) = (percentile(times, 50), percentile(times, 99));
    let ratio = ratio(p50, percentile(alone, 50));
    format!("p50 {p50:.1?}, {ratio:.2} times alone; p99 {p99:.1?}")
}
