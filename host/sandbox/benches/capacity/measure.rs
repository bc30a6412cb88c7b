//! Registries, calls, and numbers as the table shows them.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use toolhold_policy::{CallReport, Invocation, Limits, Output};
use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};

/// A component that spins, sleeps for an hour, or adds two numbers.
pub const TOOLS: &str = r#"(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $p (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core module $m
    (import "h" "block" (func $block (param i32)))
    (import "h" "subscribe" (func $subscribe (param i64) (result i32)))
    (memory 16)
    (func (export "spin") (loop (br 0)))
    (func (export "sleep") (call $block (call $subscribe (i64.const 3600000000000))))
    (func (export "add") (param i32 i32) (result i32)
      (i32.add (local.get 0) (local.get 1))))
  (core instance $i (instantiate $m (with "h" (instance
    (export "block" (func $block)) (export "subscribe" (func $subscribe))))))
  (func (export "spin") (canon lift (core func $i "spin")))
  (func (export "sleep") (canon lift (core func $i "sleep")))
  (func (export "add") (param "a" s32) (param "b" s32) (result s32)
    (canon lift (core func $i "add"))))"#;

/// As many worker threads as there are cores, at least two.
pub fn runtime() -> Runtime {
    builder().build().unwrap()
}

/// One that looks for events after every second step of a task. Left alone, tokio does after 61, and
/// a step of a guest that spins is a millisecond.
pub fn attentive_runtime() -> Runtime {
    builder().event_interval(2).build().unwrap()
}

fn builder() -> Builder {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(cores.max(2)).enable_all();
    builder
}

/// Default limits but for what would end or hold back a bench.
pub fn policy() -> Policy {
    Policy {
        limits: Limits {
            fuel: u64::MAX / 2,
            timeout_ms: 60_000,
            concurrent_calls: 4_096,
            calls_per_minute: 0,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

pub fn engine(concurrent_calls: u32) -> Engine {
    Engine::new(EngineConfig {
        concurrent_calls,
        ..EngineConfig::default()
    })
    .unwrap()
}

/// A registry with one module.
pub fn registry(runtime: &Runtime, engine: &Engine, name: &str, component: Vec<u8>) -> Registry {
    let registry = Registry::new(engine.clone(), None, policy());
    runtime
        .block_on(registry.load_bytes(name, component))
        .unwrap();
    registry
}

/// A registry with [`TOOLS`].
pub fn tools(runtime: &Runtime, engine: &Engine) -> Registry {
    registry(runtime, engine, "tools", wat::parse_str(TOOLS).unwrap())
}

pub async fn call(registry: &Registry, tool: &str, arguments: &Value) -> CallReport {
    registry
        .call(&Invocation::new("bench", tool, arguments))
        .await
}

/// How long `tools.add` takes for a task among others. A call that never waits would hold its thread
/// and hide that others want it too, so the task goes to the end of the queue first.
pub async fn seen_by_caller(registry: &Registry) -> Duration {
    let asked = Instant::now();
    tokio::task::yield_now().await;
    let report = call(registry, "tools.add", &json!({"a": 1, "b": 2})).await;
    assert_eq!(report.result.unwrap(), Output::Value(json!(3)));
    asked.elapsed()
}

/// The component of a module of this repository, if it is built.
pub fn component(module: &str) -> Option<Vec<u8>> {
    let path = modules().join(format!("{module}/{module}.wasm"));
    std::fs::read(path).ok()
}

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules")
}

/// How long each run takes, after some that are not counted; in order of length.
pub fn times(count: usize, mut run: impl FnMut()) -> Vec<Duration> {
    for _ in 0..count.div_ceil(10) {
        run();
    }
    let mut times: Vec<_> = (0..count)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

/// The time that `percent` of the sorted times do not exceed.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}

/// Bytes of this process in memory.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or_default() * 4_096
}

/// One row of the table.
pub fn row(name: &str, value: &str) {
    println!("  {name:<48} {value}");
}
