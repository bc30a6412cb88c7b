//! Places, rates, engines and the compiler's process.

use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::host::binary;
use support::sandbox::{call, component, kind, load, registry};
use tokio::task::JoinHandle;
use toolhold_hostile::components;
use toolhold_policy::{CallReport, Invocation, LimitsRequest};
use toolhold_sandbox::{
    Compiler, CompilerProcess, Engine, EngineConfig, LoadError, ModulePolicy, Policy, Registry,
};

fn policy(change: impl FnOnce(&mut ModulePolicy)) -> Policy {
    let mut policy = Policy::default();
    change(policy.modules.entry("slow".into()).or_default());
    policy
}

/// A registry with an engine of eight places.
fn small(policy: Policy) -> (Engine, Registry) {
    let engine = Engine::new(EngineConfig {
        concurrent_calls: 8,
        ..EngineConfig::default()
    });
    let engine = engine.unwrap();
    (engine.clone(), Registry::new(engine, None, policy))
}

/// So many calls that sleep to their deadline, and how many of them are over.
fn crowd(
    registry: &Registry,
    calls: usize,
    timeout: Duration,
) -> (Vec<JoinHandle<CallReport>>, Arc<AtomicUsize>) {
    let over = Arc::new(AtomicUsize::new(0));
    let crowd = (0..calls).map(|_| {
        let (registry, over) = (registry.clone(), over.clone());
        tokio::spawn(async move {
            let arguments = json!({});
            let invocation = Invocation {
                timeout: Some(timeout),
                ..Invocation::new("test", "slow.sleep", &arguments)
            };
            let report = registry.call(&invocation).await;
            over.fetch_add(1, Ordering::SeqCst);
            report
        })
    });
    (crowd.collect(), over)
}

/// Waits until it is so.
async fn reached(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never was");
        tokio::task::yield_now().await;
    }
}

/// A slow module with a queue does not make another module's call wait behind the queue.
#[tokio::test(flavor = "multi_thread")]
async fn places_go_round_the_modules() {
    let (engine, registry) = small(policy(|slow| slow.limits.timeout_ms = Some(20_000)));
    load(&registry, "slow", components::CLOCKS).await.unwrap();
    load(&registry, "quick", components::COMPUTE).await.unwrap();
    let (_holders, _) = crowd(&registry, 8, Duration::from_secs(5));
    reached(|| engine.free_places() == 0).await;
    let (queue, over) = crowd(&registry, 56, Duration::from_secs(20));
    reached(|| engine.waiting_calls() == 56).await;
    let report = call(&registry, "quick.count", json!({})).await;
    assert_eq!(kind(&report), "ok");
    // It has its turn when a holder ends; the queue is before it in time only.
    assert_eq!(over.load(Ordering::SeqCst), 0);
    for call in queue {
        call.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_holds_no_more_places_than_its_limit() {
    let (engine, registry) = small(policy(|slow| {
        slow.limits.timeout_ms = Some(3_000);
        slow.limits.concurrent_calls = Some(4);
    }));
    load(&registry, "slow", components::CLOCKS).await.unwrap();
    load(&registry, "quick", components::COMPUTE).await.unwrap();
    let (crowd, over) = crowd(&registry, 12, Duration::from_secs(3));
    reached(|| engine.waiting_calls() == 8).await;
    assert_eq!(engine.free_places(), 4);
    let report = call(&registry, "quick.count", json!({})).await;
    assert_eq!(kind(&report), "ok");
    assert_eq!(over.load(Ordering::SeqCst), 0, "it waits for none of them");
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
    let refused = report.result.unwrap_err().to_string();
    // Twenty seconds, less what the calls themselves took.
    let is_near = |seconds: u32| refused.contains(&format!("try again in {seconds} s"));
    assert!((15..=20).any(is_near), "{refused}");
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
    // A number would read as a measurement.
    let usage = serde_json::to_value(report.usage).unwrap();
    assert!(usage.get("fuel").is_none() && usage["memory_bytes"].as_u64() > Some(0));
    let counters = registry.module("slow").unwrap().counters();
    let counters = serde_json::to_value(counters).unwrap();
    assert_eq!(
        (counters.get("fuel"), &counters["calls"]),
        (None, &json!(1))
    );
    assert_eq!(
        kind(&call(&registry, "slow.spin", json!({})).await),
        "deadline"
    );
    assert_eq!(
        kind(&call(&registry, "slow.recurse", json!({})).await),
        "stack"
    );
}

/// A registry that compiles with `program`, and what the operator decided for single modules.
fn compiling(program: PathBuf, limits: &[(&str, LimitsRequest)]) -> Registry {
    let process = CompilerProcess {
        program,
        arguments: vec!["compile-component".into()],
        serves_author: false,
    };
    let config = EngineConfig {
        concurrent_calls: 4,
        compiler: Compiler::Process(process),
        ..EngineConfig::default()
    };
    let mut policy = Policy::default();
    for (name, limits) in limits {
        policy.modules.entry((*name).into()).or_default().limits = limits.clone();
    }
    Registry::new(Engine::new(config).unwrap(), None, policy)
}

#[tokio::test(flavor = "multi_thread")]
async fn components_compile_in_a_process_of_their_own() {
    let registry = compiling(binary(), &[]);
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
    let hasty = LimitsRequest {
        compile_ms: Some(30),
        ..LimitsRequest::default()
    };
    let poor = LimitsRequest {
        compile_memory_bytes: Some(24 << 20),
        ..LimitsRequest::default()
    };
    let registry = compiling(binary(), &[("hasty", hasty), ("poor", poor)]);
    let started = Instant::now();
    let error = registry.load_bytes("hasty", large.clone()).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, LoadError::CompileTime { limit: 30 }),
        "{error:?}"
    );
    assert!(error.to_string().contains("raise compile_ms"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
    let error = registry.load_bytes("poor", large).await.unwrap_err();
    assert!(
        matches!(error, LoadError::CompileMemory { limit, .. } if limit == 24 << 20),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("raise compile_memory_bytes"), "{text}");
    // Their limits are theirs alone.
    load(&registry, "quick", components::COMPUTE).await.unwrap();
    let absent = compiling("/nowhere/toolhold".into(), &[]);
    let error = load(&absent, "quick", components::COMPUTE)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
}

/// The operator's limit has the last word, in both directions; what a `module.toml` asks for is
/// capped before the component is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_as_large_as_its_module_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = component(components::COMPUTE);
    let [small, large] = [bytes.len() as u64 - 1, 1 << 20];
    for (name, manifest) in [
        ("silent", String::new()),
        ("greedy", format!("[limits]\ncomponent_bytes = {large}")),
        ("lowered", format!("[limits]\ncomponent_bytes = {large}")),
        ("modest", format!("[limits]\ncomponent_bytes = {small}")),
        ("raised", String::new()),
    ] {
        let own = folder.path().join(name);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("module.toml"), manifest).unwrap();
        fs::write(own.join(format!("{name}.wasm")), &bytes).unwrap();
    }
    let loaded = async |most: u64, own: &[(&str, u64)]| {
        let mut policy = Policy::default();
        (
            policy.limits.component_bytes,
            policy.ceiling.component_bytes,
        ) = (most, most);
        for (name, most) in own {
            let module = policy.modules.entry((*name).into()).or_default();
            module.limits.component_bytes = Some(*most);
        }
        let registry = registry(policy);
        let path = folder.path();
        registry.load_folder(path, None, &|_| ()).await.unwrap();
        for failed in registry.failures() {
            let reason = failed.error.to_string();
            assert!(
                matches!(failed.error, LoadError::TooLarge { limit, .. } if limit == small)
                    && reason.contains("component_bytes under [limits]"),
                "{}: {reason}",
                failed.name
            );
        }
        let in_memory = registry.load_bytes("in_memory", bytes.clone()).await;
        assert_eq!(in_memory.is_ok(), most == large, "{in_memory:?}");
        let mut names: Vec<_> = registry.modules().iter().map(|m| m.name.clone()).collect();
        names.retain(|name| name != "in_memory");
        names
    };
    assert_eq!(loaded(small, &[("raised", large)]).await, ["raised"]);
    assert_eq!(
        loaded(large, &[("lowered", small)]).await,
        ["greedy", "raised", "silent"]
    );
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
