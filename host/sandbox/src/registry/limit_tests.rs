//! What a guest may ask of one host call, seen from outside: each ends with an error that names its limit, and not as
//! a crash.

use super::Registry;
use crate::engine::{Engine, EngineConfig};
use crate::policy::Policy;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use toolhold_policy::{BeginCheck, CallError, HttpLimit, Invocation};

/// Asks for `count` random bytes, tells a line of `count` bytes, or puts `count` bytes into one field.
const ASKER: &str = r#"
(component
  (import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (import "wasi:random/insecure@0.2.0" (instance $insecure
    (export "get-insecure-random-bytes" (func (param "len" u64) (result (list u8))))))
  (import "toolhold:module/log@0.1.0" (instance $log
    (type $level' (enum "trace" "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $level')))
    (export "write" (func (param "level" $level) (param "message" string)))))
  (import "wasi:http/types@0.2.0" (instance $http
    (export "fields" (type $fields (sub resource)))
    (type $error' (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
    (export "header-error" (type $error (eq $error')))
    (export "[constructor]fields" (func (result (own $fields))))
    (export "[method]fields.append" (func (param "self" (borrow $fields)) (param "name" string)
      (param "value" (list u8)) (result (result (error $error)))))))
  (core module $memory
    (memory (export "memory") 600)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))
  (core instance $memory (instantiate $memory))
  (core func $bytes (canon lower (func $random "get-random-bytes") (memory $memory "memory")
    (realloc (func $memory "realloc"))))
  (core func $others (canon lower (func $insecure "get-insecure-random-bytes") (memory $memory "memory")
    (realloc (func $memory "realloc"))))
  (core func $tell (canon lower (func $log "write") (memory $memory "memory")))
  (core func $made (canon lower (func $http "[constructor]fields")))
  (core func $filled (canon lower (func $http "[method]fields.append") (memory $memory "memory")))
  (core module $main
    (import "h" "bytes" (func $bytes (param i64 i32)))
    (import "h" "others" (func $others (param i64 i32)))
    (import "h" "tell" (func $tell (param i32 i32 i32)))
    (import "h" "made" (func $made (result i32)))
    (import "h" "filled" (func $filled (param i32 i32 i32 i32 i32 i32)))
    (import "h" "memory" (memory 1))
    (func (export "random") (param $count i32)
      (call $bytes (i64.extend_i32_u (local.get $count)) (i32.const 0)))
    (func (export "insecure") (param $count i32)
      (call $others (i64.extend_i32_u (local.get $count)) (i32.const 0)))
    (func (export "tell") (param $count i32)
      (call $tell (i32.const 2) (i32.const 16) (local.get $count)))
    (func (export "field") (param $count i32)
      (memory.fill (i32.const 16) (i32.const 97) (local.get $count))
      (call $filled (call $made) (i32.const 16) (i32.const 1) (i32.const 16) (local.get $count) (i32.const 0))))
  (core instance $main (instantiate $main (with "h" (instance
    (export "bytes" (func $bytes))
    (export "others" (func $others))
    (export "tell" (func $tell))
    (export "made" (func $made))
    (export "filled" (func $filled))
    (export "memory" (memory $memory "memory"))))))
  (func (export "random") (param "count" u32) (canon lift (core func $main "random")))
  (func (export "insecure") (param "count" u32) (canon lift (core func $main "insecure")))
  (func (export "tell") (param "count" u32) (canon lift (core func $main "tell")))
  (func (export "field") (param "count" u32) (canon lift (core func $main "field"))))
"#;

async fn call(registry: &Registry, tool: &str, count: u32) -> Result<(), CallError> {
    let arguments = json!({"count": count});
    let report = registry
        .call(&Invocation::new("call-1", tool, &arguments))
        .await;
    report.result.map(drop)
}

#[tokio::test]
async fn a_limit_of_one_host_call_is_named() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let registry = Registry::new(engine, None, Policy::default());
    let component = wat::parse_str(ASKER).unwrap();
    registry.load_bytes("asker", component).await.unwrap();
    for (tool, fits, too_many, kind) in [
        ("asker.random", 1 << 20, (1 << 20) + 1, "random_bytes"),
        ("asker.insecure", 1 << 20, (1 << 20) + 1, "random_bytes"),
        ("asker.tell", 1 << 20, 32 << 20, "host_call"),
        ("asker.field", 100_000, 140_000, "http-body"),
    ] {
        let passes = call(&registry, tool, fits).await;
        assert!(passes.is_ok(), "{tool}: {passes:?}");
        let error = call(&registry, tool, too_many).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{tool}: {error}");
        let names_it = match error {
            CallError::RandomBytes { limit } => limit == 1 << 20,
            CallError::HostCall { limit } => limit == 16 << 20,
            CallError::HttpBody { limit } => limit == HttpLimit::FieldBytes(128 << 10),
            _ => false,
        };
        assert!(names_it, "{tool}");
    }
}

/// Of the module itself, or of the host: the message says whose places were taken, and which key decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_module_says_whose_places_are_taken() {
    use crate::policy::ModulePolicy;
    use std::time::Duration;
    use toolhold_policy::limits::LimitsRequest;
    let spin = r#"(component
      (core module $m (func (export "spin") (loop (br 0))))
      (core instance $i (instantiate $m))
      (func (export "spin") (canon lift (core func $i "spin"))))"#;
    for (own, places) in [
        (1, "limits.concurrent_calls"),
        (8, "modules.concurrent_calls"),
    ] {
        let limits = LimitsRequest {
            concurrent_calls: Some(own),
            fuel: Some(0),
            timeout_ms: Some(60_000),
            ..LimitsRequest::default()
        };
        let mut policy = Policy::default();
        let module = ModulePolicy {
            limits,
            ..ModulePolicy::default()
        };
        policy.modules.insert("m".into(), module);
        let engine = Engine::new(EngineConfig {
            concurrent_calls: 2,
            ..EngineConfig::default()
        });
        let engine = engine.unwrap();
        let registry = Registry::new(engine.clone(), None, policy);
        let component = wat::parse_str(spin).unwrap();
        registry.load_bytes("m", component).await.unwrap();
        let mut running = Vec::new();
        for _ in 0..own.min(2) {
            let free = engine.free_places();
            let registry = registry.clone();
            running.push(tokio::spawn(async move {
                let arguments = json!({});
                registry
                    .call(&Invocation::new("c", "m.spin", &arguments))
                    .await
            }));
            while engine.free_places() >= free {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let arguments = json!({});
        let mut invocation = Invocation::new("c", "m.spin", &arguments);
        invocation.timeout = Some(Duration::from_millis(50));
        let error = registry.call(&invocation).await.result.unwrap_err();
        assert_eq!(error.kind(), "busy", "{error}");
        assert!(error.never_began(), "{error}");
        assert!(error.to_string().contains(places), "{error}");
        for call in running {
            call.abort();
        }
    }
}

/// The right of a key, which ends.
#[derive(Debug, Default)]
struct EndingRight(AtomicBool);

impl BeginCheck for EndingRight {
    fn may_begin(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }
}

/// The place that a call gives back at its end goes to the next call, and not to one whose right ended with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_right_has_ended_does_not_begin_in_a_place_that_becomes_free() {
    use std::time::Duration;
    let component = r#"(component
      (core module $m (func (export "spin") (loop (br 0))) (func (export "ready")))
      (core instance $i (instantiate $m))
      (func (export "spin") (canon lift (core func $i "spin")))
      (func (export "ready") (canon lift (core func $i "ready"))))"#;
    let mut policy = Policy::default();
    policy.limits.fuel = 0;
    policy.limits.timeout_ms = 60_000;
    policy.limits.concurrent_calls = 1;
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let registry = Registry::new(engine.clone(), None, policy);
    let component = wat::parse_str(component).unwrap();
    registry.load_bytes("m", component).await.unwrap();
    let right = Arc::new(EndingRight::default());
    let spin = || {
        let (registry, right) = (registry.clone(), right.clone());
        tokio::spawn(async move {
            let arguments = json!({});
            let invocation = Invocation {
                begin: Some(right),
                ..Invocation::new("c", "m.spin", &arguments)
            };
            registry.call(&invocation).await
        })
    };
    let free = engine.free_places();
    let first = spin();
    while engine.free_places() == free {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = spin();
    while engine.admission().waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    right.0.store(true, Ordering::Release);
    first.abort();
    let arguments = json!({});
    let other = Invocation {
        timeout: Some(Duration::from_secs(5)),
        ..Invocation::new("d", "m.ready", &arguments)
    };
    let answered = registry.call(&other).await.result;
    assert!(answered.is_ok(), "the place was taken: {answered:?}");
    assert!(!second.is_finished(), "it waits until its caller drops it");
    second.abort();
}

/// A component of as many core instances, tables and memories as one may have, which spins.
fn greedy() -> Vec<u8> {
    use toolhold_policy::limits::{MAX_INSTANCES, MAX_MEMORIES, MAX_TABLES};
    let instances = (1..MAX_INSTANCES).map(|n| {
        let memory = if n <= MAX_MEMORIES { "(memory 1)" } else { "" };
        let table = if n <= MAX_TABLES {
            "(table 1 funcref)"
        } else {
            ""
        };
        format!("(core module $m{n} {memory} {table}) (core instance (instantiate $m{n}))")
    });
    let component = format!(
        r#"(component
          {instances}
          (core module $m (func (export "spin") (loop (br 0))))
          (core instance $i (instantiate $m))
          (func (export "spin") (canon lift (core func $i "spin"))))"#,
        instances = instances.collect::<String>()
    );
    wat::parse_str(component).unwrap()
}

/// Calls in all places, of modules that take all that a module may take: each runs to its own end, and no other module
/// is told that it crashed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_all_places_find_what_they_are_made_of() {
    use std::time::Duration;
    const PLACES: u32 = 24;
    let engine = Engine::new(EngineConfig {
        concurrent_calls: PLACES,
        ..EngineConfig::default()
    });
    let mut policy = Policy::default();
    policy.limits.fuel = 0;
    policy.limits.timeout_ms = 60_000;
    policy.limits.concurrent_calls = u64::from(PLACES);
    let registry = Registry::new(engine.unwrap(), None, policy);
    registry.load_bytes("greedy", greedy()).await.unwrap();
    registry
        .load_bytes("asker", wat::parse_str(ASKER).unwrap())
        .await
        .unwrap();
    let arguments = json!({});
    let calls = (0..PLACES - 1).map(|_| {
        let registry = registry.clone();
        let arguments = arguments.clone();
        tokio::spawn(async move {
            let invocation = Invocation {
                timeout: Some(Duration::from_secs(5)),
                ..Invocation::new("call-1", "greedy.spin", &arguments)
            };
            registry.call(&invocation).await.result.map(drop)
        })
    });
    let calls: Vec<_> = calls.collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = call(&registry, "asker.random", 1).await;
    assert!(other.is_ok(), "{other:?}");
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), "deadline", "{error}");
    }
}
