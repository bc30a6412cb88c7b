//! What a call costs, beside a bare wasmtime embedding that does the same: read the ratios, which
//! were measured in one run, not the times of a shared machine.
//!
//! `cargo bench -p toolhold-sandbox`. The Python rows need `toolhold build modules/python` first.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a bench that cannot go on should say so"
)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use toolhold_policy::{Invocation, Limits, Output};
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, EngineConfig, Policy, Registry};

mod bare;
mod typed;

/// The product's, for both sides.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A module of the repository with one cheap call.
struct Case {
    module: &'static str,
    tool: &'static str,
    arguments: Value,
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            module: "calculator",
            tool: "evaluate",
            arguments: json!({"expression": "1+2"}),
        },
        Case {
            module: "text",
            tool: "reverse",
            arguments: json!({"text": "abc"}),
        },
        Case {
            module: "python",
            tool: "run",
            arguments: json!({"code": "1+2"}),
        },
    ]
}

fn component(module: &str) -> Option<Vec<u8>> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../modules/{module}/{module}.wasm"));
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        eprintln!("{module}: not built, so not measured (toolhold build modules/{module})");
    }
    bytes
}

fn cache(folder: &Path) -> Cache {
    Cache::open(&folder.join("compiled"), &folder.join("key")).unwrap()
}

fn registry(cache: Cache) -> Registry {
    Registry::new(
        Engine::new(EngineConfig::default()).unwrap(),
        Some(cache),
        policy(),
    )
}

/// Defaults, but for the number of calls in a minute: benches make more.
fn policy() -> Policy {
    Policy {
        limits: Limits {
            calls_per_minute: 0,
            ..Limits::default()
        },
        ..Policy::default()
    }
}

/// Fresh instance + call + JSON in and out, ours beside the bare one.
fn calls(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut group = c.benchmark_group("call");
    for case in cases() {
        let Some(bytes) = component(case.module) else {
            continue;
        };
        let bare = bare::Bare::new(&bare::config(), &bytes);
        let ours = registry(cache(folder.path()));
        runtime
            .block_on(ours.load_bytes(case.module, bytes))
            .expect("the module loads");
        let tool = format!("{}.{}", case.module, case.tool);
        let invocation = Invocation::new("bench", &tool, &case.arguments);
        let output = runtime.block_on(ours.call(&invocation));
        assert!(output.result.is_ok(), "{:?}", output.result);

        group.bench_function(BenchmarkId::new("bare", case.module), |b| {
            b.to_async(&runtime)
                .iter(|| bare.call(case.tool, &case.arguments));
        });
        group.bench_function(BenchmarkId::new("toolhold", case.module), |b| {
            b.to_async(&runtime).iter(|| ours.call(&invocation));
        });
    }
    group.finish();
}

/// A typed export with ten records: JSON text in and out.
fn typed_calls(c: &mut Criterion) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/components/orders/orders.wasm");
    let bytes = std::fs::read(path).unwrap();
    let runtime = Runtime::new().unwrap();
    let bare = typed::Bare::new(&bare::config(), &bytes, "demo:shop/orders@0.1.0", "price");
    let folder = tempfile::tempdir().unwrap();
    let ours = registry(cache(folder.path()));
    runtime.block_on(ours.load_bytes("orders", bytes)).unwrap();
    let line = |i| {
        json!({"sku": format!("article-{i}"), "quantity": i, "price": 123_450, "discount": 12.5,
            "packing": ["gift", "fragile"]})
    };
    let arguments = json!({
        "lines": (1..=10).map(line).collect::<Vec<_>>(),
        "customer": "member",
        "delivery": {"post": {"street": "1 Long Road", "postcode": "12345"}},
    })
    .to_string();
    let call = async || {
        let arguments = serde_json::from_str(&arguments).unwrap();
        let invocation = Invocation::new("bench", "orders.orders_price", &arguments);
        match ours.call(&invocation).await.result.unwrap() {
            Output::Value(value) | Output::Message(value) => value.to_string(),
        }
    };
    assert_eq!(
        runtime.block_on(call()),
        runtime.block_on(bare.call(&arguments))
    );

    let mut group = c.benchmark_group("typed");
    group.bench_function("bare", |b| {
        b.to_async(&runtime).iter(|| bare.call(&arguments));
    });
    group.bench_function("toolhold", |b| b.to_async(&runtime).iter(call));
    group.finish();
}

/// A module from its bytes to being callable: compiled, and from the compiled cache.
fn loading(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = c.benchmark_group("load");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500));
    for case in cases() {
        let Some(bytes) = component(case.module) else {
            continue;
        };
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let load = |cache: Option<Cache>| {
            let registry = Registry::new(engine.clone(), cache, policy());
            runtime
                .block_on(registry.load_bytes(case.module, bytes.clone()))
                .expect("the module loads");
        };
        load(Some(cache(folder.path())));
        group.bench_function(BenchmarkId::new("cached", case.module), |b| {
            b.iter(|| load(Some(cache(folder.path()))));
        });
        group.bench_function(BenchmarkId::new("compiled", case.module), |b| {
            b.iter(|| load(None));
        });
    }
    group.finish();
}

criterion_group!(benches, calls, typed_calls, loading);
criterion_main!(benches);
