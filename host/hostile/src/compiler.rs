//! Row 17, where the compiler is a process of its own: components that look legitimate, and take
//! unacceptably long to compile, and debug information that takes as long to read.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, expect_kind, ms};
use crate::process;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use toolhold_policy::Limits;
use toolhold_sandbox::{LoadError, Policy, Registry};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 17,
        name: "compile_bomb",
        attack: "23 MB of code that is sound and of no use",
        must: "stopped in time and memory; others answer",
        company: Company::One,
        tries: |lab| Box::pin(compile_bomb(lab)),
    },
    Attack {
        row: 17,
        name: "debug_information_bombs",
        attack: "debug information with 40 million lines, in circles, four million functions deep",
        must: "the crash is told in time; others answer",
        company: Company::One,
        tries: |lab| Box::pin(debug_information_bombs(lab)),
    },
];

async fn compile_bomb(lab: &Lab) -> Result<String, AttackFailure> {
    /// Maximum memory of the host itself for a component of this size: a copy for the compiler's
    /// pipe.
    const HOST: u64 = 128 << 20;
    if lab.program().is_none() {
        return Err(AttackFailure::Unable(
            "this host has no process of its own for the compiler".into(),
        ));
    }
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let bomb = components::compile_bomb(8_000);
    let (mut most, mut slowest) = (0, Duration::ZERO);
    for (what, compile_ms, compile_memory_bytes) in [
        ("time", lab.times(600, 2_000), 4 << 30),
        ("memory", 60_000, 96 << 20),
    ] {
        let limits = Limits {
            compile_ms,
            compile_memory_bytes,
            ..Limits::default()
        };
        let timeout = Duration::from_millis(compile_ms);
        let before = process::resident_bytes();
        process::forget_peak();
        let tried = stopped(limits, &arena, bomb.clone()).await?;
        ensure(
            match &tried.outcome {
                Err(LoadError::CompileTime { .. }) => what == "time",
                Err(LoadError::CompileMemory { .. }) => what == "memory",
                _ => false,
            },
            || format!("bounded in {what}, it ended with {:?}", tried.outcome),
        )?;
        // The task that stops it must itself be scheduled on a busy machine.
        let grace = lab.grace() * lab.times(5_u32, 1);
        ensure(tried.took < timeout + grace, || {
            format!(
                "it was stopped after {}, bound {}",
                ms(tried.took),
                ms(timeout)
            )
        })?;
        // The limit covers the memory that the process writes to; its own code is resident in
        // addition.
        ensure(tried.child_bytes < compile_memory_bytes + HOST, || {
            format!(
                "bounded in {what}, the compiler had {} MiB",
                tried.child_bytes >> 20
            )
        })?;
        ensure(tried.slowest < lab.grace(), || {
            format!("a benign call beside it took {}", ms(tried.slowest))
        })?;
        if let (Some(peak), Some(before)) = (process::peak_bytes(), before) {
            let more = peak.saturating_sub(before);
            ensure(more < HOST, || {
                format!("the host had {} MiB more", more >> 20)
            })?;
        }
        no_process_is_left().await?;
        most = most.max(tried.child_bytes);
        slowest = slowest.max(tried.slowest);
    }
    arena.unharmed().await?;
    Ok(format!(
        "stopped, twice, at {} MiB; slowest benign call {}",
        most >> 20,
        ms(slowest)
    ))
}

async fn debug_information_bombs(lab: &Lab) -> Result<String, AttackFailure> {
    /// Time for lines, with that to start the process and to end it.
    const TIME: Duration = Duration::from_secs(3);
    /// Maximum memory of the host itself: it gives the process the component, and makes nothing of it.
    const HOST: u64 = 32 << 20;
    if lab.program().is_none() {
        return Err(AttackFailure::Unable(
            "this host has no process of its own for the compiler".into(),
        ));
    }
    let mut slowest = Duration::ZERO;
    for (what, sections) in components::debug_bombs() {
        let mut arena = lab.arena_of_author()?;
        arena.benign().await?;
        let crashing = components::parse(components::CRASHING)?;
        let bomb = components::with_debug_information(&crashing, &sections)
            .ok_or_else(|| AttackFailure::Broke("the component has no module".into()))?;
        arena.load("bomb", bomb).await?;
        let before = process::resident_bytes();
        process::forget_peak();
        let started = Instant::now();
        let report = arena.call("bomb.boom", json!({})).await;
        let took = started.elapsed();
        expect_kind(&report, "trap")?;
        ensure(took < TIME + lab.grace() * lab.times(5_u32, 1), || {
            format!("{what}: the crash was told after {}", ms(took))
        })?;
        if let (Some(peak), Some(before)) = (process::peak_bytes(), before) {
            let more = peak.saturating_sub(before);
            ensure(more < HOST, || {
                format!("{what}: the host had {} MiB more", more >> 20)
            })?;
        }
        no_process_is_left().await?;
        arena.unharmed().await?;
        slowest = slowest.max(took);
    }
    Ok(format!("told after at most {}", ms(slowest)))
}

struct CompileAttempt {
    outcome: Result<(), LoadError>,
    took: Duration,
    /// The most memory that the compiler's process held.
    child_bytes: u64,
    /// The slowest benign call beside it.
    slowest: Duration,
}

/// Loads `bytes` within these limits, and calls a benign module of the same engine all the while.
async fn stopped(
    limits: Limits,
    arena: &Arena,
    bytes: Vec<u8>,
) -> Result<CompileAttempt, AttackFailure> {
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    let registry = Registry::new(arena.engine.clone(), None, policy);
    let done = Arc::new(AtomicBool::new(false));
    let watcher = {
        let done = done.clone();
        std::thread::spawn(move || {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(process::children_bytes());
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        })
    };
    let loading = async {
        let started = Instant::now();
        let outcome = registry.load_bytes("bomb", bytes).await;
        done.store(true, Ordering::Relaxed);
        (outcome, started.elapsed())
    };
    let beside = async {
        let mut slowest = Duration::ZERO;
        while !done.load(Ordering::Relaxed) {
            let asked = Instant::now();
            arena.value("benign.count", json!({})).await?;
            slowest = slowest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, AttackFailure>(slowest)
    };
    let ((outcome, took), slowest) = tokio::join!(loading, beside);
    let watched = watcher.join();
    Ok(CompileAttempt {
        outcome,
        took,
        child_bytes: watched.map_err(|_| AttackFailure::Broke("the watcher panicked".into()))?,
        slowest: slowest?,
    })
}

/// Waits until the compiler's process has ended.
async fn no_process_is_left() -> Result<(), AttackFailure> {
    let since = Instant::now();
    while process::children_bytes() > 0 {
        ensure(since.elapsed() < Duration::from_secs(2), || {
            "the compiler still runs after it was stopped".into()
        })?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
