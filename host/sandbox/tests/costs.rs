//! Cost of a call beside a bare wasmtime embedding that does the same, as `benches/calls.rs` measures it, with a bound
//! that also a build without optimisations keeps: it finds work of another kind, not some percent.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

#[path = "../benches/bare/mod.rs"]
mod bare;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use toolhold_policy::{Invocation, Limits};
use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};

/// The most that the ratio may be. It is 1.1 with optimisations and without.
const MOST: f64 = 2.5;
const ROUNDS: usize = 10;
const CALLS: usize = 20;

/// Processor time of this process, which is the test's own.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

#[test]
fn a_call_costs_little_more_than_in_bare_wasmtime() {
    let component = "../../modules/calculator/calculator.wasm";
    let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(component)).unwrap();
    let bare = bare::Bare::new(&bare::config(), &bytes);
    let policy = Policy {
        limits: Limits {
            calls_per_minute: 0,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let ours = Registry::new(engine, None, policy);
    let runtime = Runtime::new().unwrap();
    runtime
        .block_on(ours.load_bytes("calculator", bytes))
        .unwrap();
    let arguments = json!({"expression": "1+2"});
    let invocation = Invocation::new("test", "calculator.evaluate", &arguments);
    let ours = async || assert!(ours.call(&invocation).await.result.is_ok());
    let bare = async || drop(bare.call("evaluate", &arguments).await);

    let mut times = [Duration::ZERO; 2];
    runtime.block_on(async {
        // The first calls of each warm its pool.
        bare().await;
        ours().await;
        for _ in 0..ROUNDS {
            let before = computed();
            for _ in 0..CALLS {
                bare().await;
            }
            let between = computed();
            for _ in 0..CALLS {
                ours().await;
            }
            times[0] += between.saturating_sub(before);
            times[1] += computed().saturating_sub(between);
        }
    });
    let ratio = times[1].as_secs_f64() / times[0].as_secs_f64();
    assert!(
        ratio < MOST,
        "a call takes {ratio:.2} times as long as in bare wasmtime: {times:?} for the calls of each"
    );
}
