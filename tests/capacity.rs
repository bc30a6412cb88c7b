//! Places, rates, engines and the compiler's process.

use serde_json::json;
use std::time::{Duration, Instant};
use support::host::binary;
use support::sandbox::{call, component, kind, load, registry};
use toolhold_hostile::components;
use toolhold_sandbox::{
    Compiler, CompilerProcess, Engine, EngineConfig, LoadError, ModulePolicy, Policy, Registry,
};

fn policy(change: impl FnOnce(&mut ModulePolicy)) -> Policy {
    let mut policy = Policy::default();
    change(policy.modules.entry("slow".into()).or_default());
    policy
}

/// A slow module with a queue does not make another module's call wait behind the queue.
#[tokio::test(flavor = "multi_thread")]
async fn places_go_round_the_modules() {
    let registry = registry(policy(|slow| slow.limits.timeout_ms = Some(400)));
    load(&registry, "slow", components::CLOCKS).await.unwrap();
    load(&registry, "quick", components::COMPUTE).await.unwrap();
    let crowd: Vec<_> = (0..64)
        .map(|_| {
            let registry = registry.clone();
            tokio::spawn(async move { call(&registry, "slow.sleep", json!({})).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let report = call(&registry, "quick.count", json!({})).await;
    assert_eq!(kind(&report), "ok");
    // The eight that hold the places end after 400 ms; the other 56 are before it in time only.
    assert!(
        report.usage.queued < Duration::from_millis(700),
        "{:?}",
        report.usage
    );
    for call in crowd {
        call.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_holds_no_more_places_than_its_limit() {
    let registry = registry(policy(|slow| {
        slow.limits.timeout_ms = Some(600);
        slow.limits.concurrent_calls = Some(4);
    }));
    load(&registry, "slow", components::CLOCKS).await.unwrap();
    load(&registry, "quick", components::COMPUTE).await.unwrap();
    let crowd: Vec<_> = (0..12)
        .map(|_| {
            let registry = registry.clone();
            tokio::spawn(async move { call(&registry, "slow.sleep", json!({})).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let report = call(&registry, "quick.count", json!({})).await;
    assert_eq!(kind(&report), "ok");
    assert!(
        report.usage.queued < Duration::from_millis(100),
        "{:?}",
        report.usage
    );
    for call in crowd {
        let report = call.await.unwrap();
        assert!(["busy", "deadline"].contains(&kind(&report)));
    }
}

#[tokio::test]
async fn calls_in_a_minute_are_counted() {
    let registry = registry(policy(|slow| slow.limits.calls_per_minute = Some(3)));
    load(&registry, "slow", components::COMPUTE).await.unwrap();
    for _ in 0..3 {
        assert_eq!(kind(&call(&registry, "slow.count", json!({})).await), "ok");
    }
    let report = call(&registry, "slow.count", json!({})).await;
    assert_eq!(kind(&report), "rate");
    assert!(
        report
            .result
            .unwrap_err()
            .to_string()
            .contains("try again in 20 s")
    );
    let module = registry.module("slow").unwrap();
    let counters = module.counters();
    assert_eq!(
        (counters.calls, counters.errors["rate"]),
        (4, 1),
        "each limit has a metric"
    );
}

/// Without counting instructions, the clock still ends a call.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_can_run_without_fuel() {
    let registry = registry(policy(|slow| {
        slow.limits.fuel = Some(0);
        slow.limits.timeout_ms = Some(300);
    }));
    load(&registry, "slow", components::COMPUTE).await.unwrap();
    let report = call(&registry, "slow.count", json!({})).await;
    assert_eq!((kind(&report), report.usage.fuel), ("ok", 0));
    assert_eq!(
        kind(&call(&registry, "slow.spin", json!({})).await),
        "deadline"
    );
    assert_eq!(
        kind(&call(&registry, "slow.recurse", json!({})).await),
        "stack"
    );
}

fn compiling(change: impl FnOnce(&mut CompilerProcess)) -> Registry {
    let mut process = CompilerProcess {
        program: binary(),
        arguments: vec!["compile-component".into()],
        timeout: Duration::from_mins(1),
        memory_bytes: 2 << 30,
    };
    change(&mut process);
    let config = EngineConfig {
        concurrent_calls: 4,
        compiler: Compiler::Process(process),
        ..EngineConfig::default()
    };
    Registry::new(Engine::new(config).unwrap(), None, Policy::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn components_compile_in_a_process_of_their_own() {
    let registry = compiling(|_| ());
    load(&registry, "quick", components::COMPUTE).await.unwrap();
    assert_eq!(kind(&call(&registry, "quick.count", json!({})).await), "ok");
    let error = registry
        .load_bytes("bad", b"\0asm\x0d\0\x01\0rubbish".to_vec())
        .await;
    assert!(matches!(error, Err(LoadError::Compile { .. })), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_compiler_is_stopped_in_time_and_memory() {
    let large = component(&many_functions());
    let started = Instant::now();
    let hasty = compiling(|process| process.timeout = Duration::from_millis(30));
    let error = hasty.load_bytes("large", large.clone()).await;
    assert!(
        matches!(error, Err(LoadError::CompileLimit { .. })),
        "{error:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    let poor = compiling(|process| process.memory_bytes = 24 << 20);
    let error = poor.load_bytes("large", large).await;
    assert!(
        matches!(error, Err(LoadError::CompileLimit { .. })),
        "{error:?}"
    );
    let absent = compiling(|process| process.program = "/nowhere/toolhold".into());
    let error = load(&absent, "quick", components::COMPUTE)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
}

/// Seconds of work for the compiler.
fn many_functions() -> String {
    let body =
        "(local.set 0 (i32.add (local.get 0) (i32.mul (local.get 0) (i32.const 7))))".repeat(200);
    let functions = (0..2_000).fold(String::new(), |all, n| {
        all + &format!("(func $f{n} (param i32) (result i32) {body} (local.get 0))\n")
    });
    format!(
        "(component (core module $m {functions} (func (export \"f\")))
           (core instance $i (instantiate $m))
           (func (export \"f\") (canon lift (core func $i \"f\"))))"
    )
}
