//! A call beside a bare embedding's: blocks of calls in turns, so short that a shared machine's speed is the same for
//! both of a pair. The benches of `calls` measure one side for seconds.

use crate::bare::{self, Bare};
use crate::measure::{self, component, percentile, ratio, row};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CALLS_IN_BLOCK: usize = 500;
const PAIRS_IN_LAYOUT: usize = 20;
/// Engines of either side, one after the other. Where in the address space an engine's pool lies changes its calls by
/// some percent: the kernel walks the page tables of an instance's memory when the call ends.
const LAYOUTS: usize = 10;

pub fn run() {
    let cases = [
        ("calculator", "evaluate", json!({"expression": "1+2"})),
        ("text", "reverse", json!({"text": "abc"})),
    ];
    for (module, tool, arguments) in cases {
        beside_bare(module, tool, &arguments);
    }
}

fn beside_bare(module: &str, tool: &str, arguments: &Value) {
    let Some(bytes) = component(module) else {
        return row(
            module,
            &format!("not built (toolhold build modules/{module})"),
        );
    };
    let runtime = measure::runtime();
    let name = format!("{module}.{tool}");
    let (mut bares, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..LAYOUTS {
        let bare = Bare::new(&bare::config(), &bytes);
        let registry = measure::registry(&runtime, &measure::engine(64), module, bytes.clone());
        let of_bare = async || {
            bare.call(tool, arguments).await;
        };
        let of_ours = async || {
            let report = measure::call(&registry, &name, arguments).await;
            assert!(report.result.is_ok(), "{:?}", report.result);
        };
        for _ in 0..PAIRS_IN_LAYOUT {
            let bare = runtime.block_on(block(of_bare));
            let our = runtime.block_on(block(of_ours));
            bares.push(bare);
            ours.push(our);
            ratios.push(ratio(our, bare));
        }
    }
    bares.sort_unstable();
    ours.sort_unstable();
    ratios.sort_unstable_by(f64::total_cmp);
    row(
        &format!("{name}, bare and Toolhold, p50"),
        &format!(
            "{:.1?}, {:.1?}; {:.3} times, from {:.3} to {:.3} (p25, p75)",
            percentile(&bares, 50),
            percentile(&ours, 50),
            ratios[ratios.len() / 2],
            ratios[ratios.len() / 4],
            ratios[ratios.len() * 3 / 4],
        ),
    );
}

/// The time of one call, over a block of them.
async fn block(call: impl AsyncFn()) -> Duration {
    let started = Instant::now();
    for _ in 0..CALLS_IN_BLOCK {
        call().await;
    }
    started.elapsed() / u32::try_from(CALLS_IN_BLOCK).unwrap_or(u32::MAX)
}
