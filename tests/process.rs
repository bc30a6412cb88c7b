//! What a hostile call does to the host process as a whole: its memory, its threads. A binary of its
//! own, one test at a time, because any other test would be measured too.
#![expect(clippy::expect_used, reason = "a test that cannot go on should say so")]

use serde_json::json;
use std::sync::{Mutex, PoisonError};
use support::hostile;
use support::sandbox::{call, kind, load, registry};
use toolhold_sandbox::{Policy, Registry};

static ALONE: Mutex<()> = Mutex::new(());

/// Runs `test` with nothing beside it.
fn alone(test: impl Future<Output = ()>) {
    let _guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test);
}

async fn with(wat: &str, memory_bytes: u64, timeout_ms: u64) -> Registry {
    let mut policy = Policy::default();
    policy.limits.memory_bytes = memory_bytes;
    policy.limits.timeout_ms = timeout_ms;
    let registry = registry(policy);
    load(&registry, "bad", wat)
        .await
        .expect("the component loads");
    registry
}

/// THREATS.md, row 3.
#[test]
fn row_03_sleeping_calls_hold_no_thread() {
    alone(async {
        let registry = with(hostile::CLOCKS, 64 << 20, 300).await;
        call(&registry, "bad.sleep", json!({})).await;
        let before = threads();
        let sleeping = (0..8).map(|_| call(&registry, "bad.sleep", json!({})));
        let during = async {
            tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            threads()
        };
        let (reports, during) = tokio::join!(futures_util::future::join_all(sleeping), during);
        assert!(reports.iter().all(|report| kind(report) == "deadline"));
        assert!(
            during <= before,
            "{during} threads with eight sleepers, {before} without"
        );
        assert!(threads() <= before, "threads were left behind");
    });
}

/// THREATS.md, row 4: host RSS < base + cap + 32 MiB, even when the guest fills all it got.
#[test]
fn row_04_a_memory_bomb_costs_the_host_no_more_than_its_cap() {
    const CAP: u64 = 64 << 20;
    alone(async {
        let registry = with(hostile::GROWTH, CAP, 10_000).await;
        let before = resident_bytes();
        for _ in 0..5 {
            assert_eq!(
                kind(&call(&registry, "bad.fill", json!({})).await),
                "memory"
            );
        }
        let more = resident_bytes().saturating_sub(before);
        assert!(
            more < CAP + (32 << 20),
            "{} MiB more are resident",
            more >> 20
        );
    });
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
