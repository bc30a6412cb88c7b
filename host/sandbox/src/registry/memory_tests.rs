//! What a guest makes the host keep, seen from outside: each ends with an error that names its limit.

use super::Registry;
use crate::engine::{Engine, EngineConfig};
use crate::policy::{ModulePolicy, Policy};
use serde_json::{Value, json};
use toolhold_policy::limits::LimitsRequest;
use toolhold_policy::{CallError, Invocation, Output};

/// Fills fields of 60 kB, keeps them or drops them, `count` times.
const FIELDS: &str = r#"
(component
  (import "wasi:http/types@0.2.0" (instance $http
    (export "fields" (type $fields (sub resource)))
    (type $error' (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
    (export "header-error" (type $error (eq $error')))
    (type $made (func (result (own $fields))))
    (export "[constructor]fields" (func (type $made)))
    (type $filled (func (param "self" (borrow $fields)) (param "name" string) (param "value" (list u8))
      (result (result (error $error)))))
    (export "[method]fields.append" (func (type $filled)))
    (type $copied (func (param "self" (borrow $fields)) (result (own $fields))))
    (export "[method]fields.clone" (func (type $copied)))))
  (core module $memory (memory (export "memory") 2))
  (core instance $memory (instantiate $memory))
  (alias export $http "fields" (type $fields))
  (core func $made (canon lower (func $http "[constructor]fields")))
  (core func $filled (canon lower (func $http "[method]fields.append") (memory $memory "memory")))
  (core func $copied (canon lower (func $http "[method]fields.clone")))
  (core func $dropped (canon resource.drop $fields))
  (core module $main
    (import "host" "made" (func $made (result i32)))
    (import "host" "filled" (func $filled (param i32 i32 i32 i32 i32 i32)))
    (import "host" "copied" (func $copied (param i32) (result i32)))
    (import "host" "dropped" (func $dropped (param i32)))
    (import "host" "memory" (memory 2))
    (func $fill (result i32) (local $fields i32)
      (memory.fill (i32.const 16) (i32.const 97) (i32.const 60000))
      (local.set $fields (call $made))
      (call $filled (local.get $fields) (i32.const 16) (i32.const 1) (i32.const 16) (i32.const 60000) (i32.const 0))
      (local.get $fields))
    (func (export "keep") (param $count i32) (result i32)
      (loop $more
        (drop (call $fill))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $more (local.get $count)))
      (i32.const 0))
    (func (export "copy") (param $count i32) (result i32) (local $fields i32)
      (local.set $fields (call $fill))
      (loop $more
        (drop (call $copied (local.get $fields)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $more (local.get $count)))
      (i32.const 0))
    (func (export "drop") (param $count i32) (result i32)
      (loop $more
        (call $dropped (call $fill))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $more (local.get $count)))
      (i32.const 0)))
  (core instance $main (instantiate $main (with "host" (instance
    (export "made" (func $made))
    (export "filled" (func $filled))
    (export "copied" (func $copied))
    (export "dropped" (func $dropped))
    (export "memory" (memory $memory "memory"))))))
  (func (export "keep") (param "count" u32) (result u32) (canon lift (core func $main "keep")))
  (func (export "copy") (param "count" u32) (result u32) (canon lift (core func $main "copy")))
  (func (export "drop") (param "count" u32) (result u32) (canon lift (core func $main "drop"))))
"#;

/// Returns as many flags of one letter as its memory has bytes, all of them set.
const FLAGS: &str = r#"
(component
  (core module $m
    (memory (export "memory") 16)
    (func (export "all") (param $count i32) (result i32)
      (memory.fill (i32.const 16) (i32.const 255) (i32.const 1000000))
      (i32.store (i32.const 0) (i32.const 16))
      (i32.store (i32.const 4) (local.get $count))
      (i32.const 0)))
  (core instance $i (instantiate $m))
  (type $letters' (flags "a" "b" "c" "d" "e" "f" "g" "h" "i" "j" "k" "l" "m" "n" "o" "p" "q" "r" "s" "t" "u" "v" "w" "x" "y" "z"))
  (export $letters "letters" (type $letters'))
  (func (export "all") (param "count" u32) (result (list $letters))
    (canon lift (core func $i "all") (memory $i "memory"))))
"#;

async fn registry(name: &str, text: &str, kept_bytes: u64, ceiling: u64) -> (Registry, Engine) {
    let limits = LimitsRequest {
        kept_bytes: Some(kept_bytes),
        ..LimitsRequest::default()
    };
    let mut policy = Policy::default();
    let module = ModulePolicy {
        limits,
        ..ModulePolicy::default()
    };
    policy.modules.insert(name.to_owned(), module);
    let config = EngineConfig {
        kept_bytes: ceiling,
        ..EngineConfig::default()
    };
    let engine = Engine::new(config).unwrap();
    let registry = Registry::new(engine.clone(), None, policy);
    let component = wat::parse_str(text).unwrap();
    registry.load_bytes(name, component).await.unwrap();
    (registry, engine)
}

async fn call(registry: &Registry, tool: &str, count: u32) -> Result<Value, CallError> {
    let arguments = json!({"count": count});
    let report = registry
        .call(&Invocation::new("call-1", tool, &arguments))
        .await;
    report.result.map(Output::into_value)
}

#[tokio::test]
async fn fields_that_a_guest_holds_are_counted() {
    let (registry, engine) = registry("web", FIELDS, 1 << 20, 1 << 30).await;
    assert_eq!(call(&registry, "web.keep", 16).await.unwrap(), json!(0));
    for tool in ["web.keep", "web.copy"] {
        let error = call(&registry, tool, 18).await.unwrap_err();
        assert!(
            matches!(error, CallError::KeptBytes { limit: 1_048_576 }),
            "{error}"
        );
    }
    assert_eq!(call(&registry, "web.drop", 500).await.unwrap(), json!(0));
    assert_eq!(engine.kept().taken(), 0);
}

#[tokio::test]
async fn all_calls_together_have_a_ceiling() {
    let (registry, engine) = registry("web", FIELDS, 1 << 20, 571_428).await;
    assert_eq!(call(&registry, "web.keep", 8).await.unwrap(), json!(0));
    let error = call(&registry, "web.keep", 9).await.unwrap_err();
    assert!(
        matches!(error, CallError::HostFull { ceiling: 571_428 }),
        "{error}"
    );
    assert_eq!(error.kind(), "host_full");
    assert_eq!(engine.kept().taken(), 0);
}

#[tokio::test]
async fn a_result_that_would_unfold_in_the_host_is_refused() {
    let (registry, _) = registry("letters", FLAGS, 1 << 20, 1 << 30).await;
    let few = call(&registry, "letters.all", 100).await.unwrap();
    assert_eq!(few[99][25], json!("z"));
    // 2 MB of fuel: 16 MiB became 560 MB of names.
    let error = call(&registry, "letters.all", 250_000).await.unwrap_err();
    assert!(matches!(error, CallError::Output { .. }), "{error}");
}

/// Takes bytes and tells how many, or waits until it is ended.
const BYTES: &str = r#"
(component
  (core module $m
    (memory (export "memory") 80)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
    (func (export "count") (param $at i32) (param $length i32) (result i32) (local.get $length))
    (func (export "stay") (param i32 i32) (result i32) (loop $again (br $again)) (i32.const 0)))
  (core instance $i (instantiate $m))
  (func (export "count") (param "bytes" (list u8)) (result u32)
    (canon lift (core func $i "count") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "stay") (param "bytes" (list u8)) (result u32)
    (canon lift (core func $i "stay") (memory $i "memory") (realloc (func $i "realloc")))))
"#;

/// `length` bytes in base64.
fn bytes(length: usize) -> Value {
    json!({"bytes": "AAAA".repeat(length / 3)})
}

#[tokio::test]
async fn arguments_become_values_when_the_call_has_its_place_and_count_while_it_runs() {
    let (registry, engine) = registry("bytes", BYTES, 1 << 20, 96 << 20).await;
    let registry = std::sync::Arc::new(registry);
    let made = async |tool: &str, length: usize, timeout_ms: u64| {
        let arguments = bytes(length);
        let invocation = Invocation {
            timeout: Some(std::time::Duration::from_millis(timeout_ms)),
            ..Invocation::new("call-1", tool, &arguments)
        };
        let report = registry.call(&invocation).await;
        report.result.map(Output::into_value)
    };
    // More than the call itself may keep: its arguments are bounded by their own limit.
    assert_eq!(
        made("bytes.count", 900_000, 20_000).await.unwrap(),
        json!(900_000)
    );
    assert_eq!(engine.kept().taken(), 0);
    // All calls together keep no more than they may. Who finds no room is told so, and may try again.
    let both = [
        made("bytes.stay", 1_500_000, 2_000),
        made("bytes.stay", 1_500_000, 2_000),
    ];
    let watched = async {
        let mut most = 0;
        for _ in 0..100 {
            most = most.max(engine.kept().taken());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        most
    };
    let [first, second] = both;
    let (first, second, most) = tokio::join!(first, second, watched);
    let errors = [first.unwrap_err(), second.unwrap_err()];
    let full = |error: &&CallError| matches!(error, CallError::HostFull { .. });
    let late = |error: &&CallError| matches!(error, CallError::Deadline { .. });
    assert_eq!(errors.iter().filter(full).count(), 1, "{errors:?}");
    assert_eq!(errors.iter().filter(late).count(), 1, "{errors:?}");
    assert!((60_000_000..84 << 20).contains(&most), "{most}");
    assert_eq!(engine.kept().taken(), 0);
}

#[tokio::test]
async fn calls_that_wait_for_a_place_keep_nothing() {
    let config = EngineConfig {
        concurrent_calls: 1,
        kept_bytes: 1 << 30,
        ..EngineConfig::default()
    };
    let engine = Engine::new(config).unwrap();
    let registry = Registry::new(engine.clone(), None, Policy::default());
    let component = wat::parse_str(BYTES).unwrap();
    registry.load_bytes("bytes", component).await.unwrap();
    let arguments = bytes(300_000);
    let stay = |timeout_ms| Invocation {
        timeout: Some(std::time::Duration::from_millis(timeout_ms)),
        ..Invocation::new("call-1", "bytes.stay", &arguments)
    };
    let first = stay(60_000);
    let waiting: Vec<_> = (0..10).map(|_| stay(60_000)).collect();
    let waiting = futures_util::future::join_all(waiting.iter().map(|it| registry.call(it)));
    let before = resident();
    let watched = async {
        while engine.waiting_calls() < 10 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        (engine.kept().taken(), resident())
    };
    // The calls are left when all of them wait.
    let calls = futures_util::future::join(registry.call(&first), waiting);
    let (kept, now) = tokio::select! {
        biased;
        _ = calls => panic!("the calls ended before ten of them waited"),
        seen = watched => seen,
    };
    // Those of the one that runs: 12 MB of values.
    assert!(kept < 15_000_000, "{kept}");
    if let (Some(before), Some(now)) = (before, now) {
        let more = now.saturating_sub(before);
        assert!(more < 60 << 10, "{more} KiB more for eleven calls");
    }
}

/// KiB of memory that the process has, where the system says so.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
