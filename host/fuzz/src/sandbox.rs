//! One small engine and one async runtime for all inputs of a process: both are slow to make.

use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};
use toolhold_policy::Limits;
use toolhold_sandbox::{Engine, EngineConfig, Policy};

#[expect(
    clippy::expect_used,
    reason = "without an engine there is nothing to fuzz"
)]
pub static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(EngineConfig {
        concurrent_calls: 2,
        max_memory_bytes: 16 << 20,
        ..EngineConfig::default()
    })
    .expect("this machine can reserve the address space of two calls")
});

#[expect(
    clippy::expect_used,
    reason = "without a runtime there is nothing to fuzz"
)]
pub static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("an async runtime")
});

/// Limits that every input reaches soon.
pub fn policy() -> Policy {
    let limits = Limits {
        fuel: 1_000_000,
        timeout_ms: 1_000,
        memory_bytes: 4 << 20,
        table_elements: 2_000,
        argument_bytes: 64 << 10,
        output_bytes: 64 << 10,
        capture_bytes: 1 << 10,
        handles: 16,
        calls_per_minute: 0,
        ..Limits::default()
    };
    Policy {
        ceiling: limits.clone(),
        limits,
        ..Policy::default()
    }
}
