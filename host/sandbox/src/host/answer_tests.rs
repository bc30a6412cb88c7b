//! An answer counts as kept until the guest's next host call, whichever that is. Files are in `revocation_tests`.

use crate::call::{
    CallContext, Clock, CurrentCall, GrantedKnowledge, GuestLogSink, OtherTools, fresh_store,
};
use crate::descriptors::DescriptorShare;
use crate::engine::{Engine, EngineConfig};
use crate::grant::PreparedGrant;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_policy::Caller;
use toolhold_policy::limits::Limits;
use wasmtime::component::Component;

/// `ask` gets an answer that counts; each of the others makes another host call.
const COMPONENT: &str = r#"
(component
  (import "toolhold:module/current-call@0.1.0" (instance $call
    (export "tool-schema" (func (result string)))))
  (import "toolhold:module/log@0.1.0" (instance $log
    (type $level' (enum "trace" "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $level')))
    (export "write" (func (param "level" $level) (param "message" string)))))
  (import "toolhold:module/progress@0.1.0" (instance $progress
    (export "report" (func (param "done" u64) (param "total" u64) (param "note" string)))))
  (import "wasi:clocks/monotonic-clock@0.2.12" (instance $clock
    (export "now" (func (result u64)))))
  (import "wasi:random/random@0.2.12" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (core module $memory
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $memory))
  (core func $ask (canon lower (func $call "tool-schema") (memory $memory "memory")
    (realloc (func $memory "realloc"))))
  (core func $write (canon lower (func $log "write") (memory $memory "memory")))
  (core func $report (canon lower (func $progress "report") (memory $memory "memory")))
  (core func $now (canon lower (func $clock "now")))
  (core func $bytes (canon lower (func $random "get-random-bytes") (memory $memory "memory")
    (realloc (func $memory "realloc"))))
  (core module $m
    (import "h" "ask" (func $ask (param i32)))
    (import "h" "write" (func $write (param i32 i32 i32)))
    (import "h" "report" (func $report (param i64 i64 i32 i32)))
    (import "h" "now" (func $now (result i64)))
    (import "h" "bytes" (func $bytes (param i64 i32)))
    (func (export "ask") (call $ask (i32.const 256)))
    (func (export "write") (call $write (i32.const 2) (i32.const 16) (i32.const 1)))
    (func (export "report") (call $report (i64.const 1) (i64.const 2) (i32.const 16) (i32.const 1)))
    (func (export "now") (drop (call $now)))
    (func (export "bytes") (call $bytes (i64.const 8) (i32.const 256))))
  (core instance $m (instantiate $m (with "h" (instance
    (export "ask" (func $ask))
    (export "write" (func $write))
    (export "report" (func $report))
    (export "now" (func $now))
    (export "bytes" (func $bytes))))))
  (func (export "ask") (canon lift (core func $m "ask")))
  (func (export "write") (canon lift (core func $m "write")))
  (func (export "report") (canon lift (core func $m "report")))
  (func (export "now") (canon lift (core func $m "now")))
  (func (export "bytes") (canon lift (core func $m "bytes"))))
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_until_the_next_host_call() {
    let engine = Engine::new(EngineConfig::default()).unwrap();
    let component = wat::parse_str(COMPONENT).unwrap_or_else(|error| panic!("{error}"));
    let component = Component::new(engine.wasmtime(), component);
    let component = component.unwrap_or_else(|error| panic!("{error:#}"));
    let granted = PreparedGrant::default();
    let timeout = Duration::from_mins(1);
    let limits = Limits::default();
    let context = Box::new(CallContext {
        engine: &engine,
        limits: &limits,
        granted: &granted,
        descriptors: DescriptorShare::of_module(engine.descriptors()),
        module: (0, "m"),
        is_listing: false,
        begin: None,
        depth: 0,
        document: bytes::Bytes::new(),
        revocation: Arc::default(),
        caller: Caller::default(),
        other_tools: OtherTools::default(),
        knowledge: GrantedKnowledge::default(),
        current: CurrentCall::default(),
        reserved: None,
        log_sink: GuestLogSink::default(),
        profiler: None,
        debug: None,
        timeout,
    });
    let clock = Arc::new(Clock::new(timeout, engine.pauses().clone(), "".into()));
    let mut store = fresh_store(context, clock, Instant::now(), None).unwrap();
    let linker = crate::host::linker(&engine).unwrap();
    let instance = linker
        .instantiate_async(&mut store, &component)
        .await
        .unwrap();
    for next in ["write", "report", "now", "bytes"] {
        let mut taken = Vec::new();
        for export in ["ask", next] {
            let function = instance.get_typed_func::<(), ()>(&mut store, export);
            let called = function.unwrap().call_async(&mut store, ()).await;
            called.unwrap_or_else(|error| panic!("{export}: {error:#}"));
            taken.push(engine.kept().taken());
        }
        assert!(taken[0] > 0, "{taken:?}");
        assert_eq!(taken[1], 0, "after {next}");
    }
}
