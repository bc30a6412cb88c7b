//! A registry with components made from WAT, for tests of the sandbox through its public door.

use crate::nested::UncheckedCalls;
use serde_json::Value;
use std::path::PathBuf;
use toolhold_policy::{CallReport, Caller, Invocation};
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Engine, EngineConfig, LoadError, Policy, Registry};

/// An empty registry with its own small engine: places and clocks are not shared between tests. Compiled code is, also
/// with the tests of the next run: compiling is not what they test.
pub fn registry(policy: Policy) -> Registry {
    // target/PROFILE/deps/integration-… → target/PROFILE
    let test = std::env::current_exe().expect("a path");
    let profile = test.ancestors().nth(2).expect("a target folder");
    let state = profile.join("toolhold-test-state/sandbox");
    std::fs::create_dir_all(&state).expect("a folder");
    let cache = Cache::open(&state.join("compiled"), &state.join("key")).expect("a cache");
    let config = EngineConfig {
        concurrent_calls: 8,
        ..EngineConfig::default()
    };
    Registry::new(Engine::new(config).expect("an engine"), Some(cache), policy)
}

/// Loads a component given as WAT.
pub async fn load(registry: &Registry, name: &str, wat: &str) -> Result<(), LoadError> {
    registry.load_bytes(name, component(wat)).await
}

/// The bytes of a component given as WAT.
pub fn component(wat: &str) -> Vec<u8> {
    wat::parse_str(wat).expect("the fixture is valid WAT")
}

/// Calls a tool with the module's own limits.
pub async fn call(registry: &Registry, tool: &str, arguments: Value) -> CallReport {
    call_as(registry, tool, arguments, Caller::default()).await
}

/// As [`call`], on somebody's behalf.
pub async fn call_as(
    registry: &Registry,
    tool: &str,
    arguments: Value,
    caller: Caller<'_>,
) -> CallReport {
    let invocation = Invocation {
        caller,
        nested: Some(UncheckedCalls::of(registry)),
        ..Invocation::new("test", tool, &arguments)
    };
    registry.call(&invocation).await
}

/// The error kind of a call that must fail.
pub fn kind(report: &CallReport) -> &'static str {
    report
        .result
        .as_ref()
        .map_or_else(toolhold_policy::CallError::kind, |_| "ok")
}

/// The root of this repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
