//! The hostile suite (THREATS.md): one test a row, with a real hostile component. "Ends" means that
//! the call returns its typed error in time, its place is free again, and a benign call works.

use serde_json::json;
use std::time::{Duration, Instant};
use support::hostile;
use support::sandbox::{call, kind, load, registry};
use toolhold_sandbox::{Caller, Limits, LoadError, Output, Policy, Registry};

/// THREATS.md, promise 1, with room for a machine that builds something else meanwhile.
const GRACE: Duration = Duration::from_secs(1);

fn policy(change: impl FnOnce(&mut Limits)) -> Policy {
    let mut policy = Policy::default();
    policy.limits.timeout_ms = 5_000;
    change(&mut policy.limits);
    policy
}

async fn with(name: &str, wat: &str, policy: Policy) -> Registry {
    let registry = registry(policy);
    load(&registry, name, wat)
        .await
        .expect("the component loads");
    load(&registry, "benign", hostile::COMPUTE)
        .await
        .expect("the benign component loads");
    registry
}

/// What "ends" means, after the call.
async fn assert_unharmed(registry: &Registry) {
    let report = call(registry, "benign.count", json!({})).await;
    assert_eq!(
        report.result.expect("a benign call works"),
        Output::Value(json!(2))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_infinite_loop_ends_by_fuel() {
    let registry = with("bad", hostile::COMPUTE, policy(|l| l.fuel = 10_000_000)).await;
    let report = call(&registry, "bad.spin", json!({})).await;
    assert_eq!(kind(&report), "fuel");
    assert!(report.usage.fuel >= 10_000_000, "{:?}", report.usage);
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_01_infinite_loop_ends_by_deadline() {
    let registry = with(
        "bad",
        hostile::COMPUTE,
        policy(|l| (l.fuel, l.timeout_ms) = (u64::MAX, 200)),
    )
    .await;
    let started = Instant::now();
    let report = call(&registry, "bad.spin", json!({})).await;
    assert_eq!(kind(&report), "deadline");
    assert!(
        started.elapsed() < Duration::from_millis(200) + GRACE,
        "{:?}",
        started.elapsed()
    );
    assert_unharmed(&registry).await;
}

/// Spinning guests hold no worker thread: on a runtime with one, a timer and a benign call get through.
#[tokio::test(flavor = "current_thread")]
async fn row_01_spinning_guests_leave_a_benign_call_responsive() {
    let registry = with(
        "bad",
        hostile::COMPUTE,
        policy(|l| (l.fuel, l.timeout_ms) = (u64::MAX, 3_000)),
    )
    .await;
    let spinning = (0..4).map(|_| call(&registry, "bad.spin", json!({})));
    let benign = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let started = Instant::now();
        assert_unharmed(&registry).await;
        started.elapsed()
    };
    let (reports, waited) = tokio::join!(futures_util::future::join_all(spinning), benign);
    assert!(reports.iter().all(|report| kind(report) == "deadline"));
    assert!(waited < Duration::from_millis(1_500), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_02_infinite_loop_through_host_calls_ends() {
    let registry = with(
        "bad",
        hostile::CLOCKS,
        policy(|l| (l.fuel, l.timeout_ms) = (u64::MAX, 200)),
    )
    .await;
    let started = Instant::now();
    assert_eq!(
        kind(&call(&registry, "bad.ask", json!({})).await),
        "deadline"
    );
    assert!(started.elapsed() < Duration::from_millis(200) + GRACE);
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_03_sleep_for_an_hour_ends_by_deadline() {
    let registry = with("bad", hostile::CLOCKS, policy(|l| l.timeout_ms = 300)).await;
    let started = Instant::now();
    // All places of the engine, so that the benign call afterwards needs one of them back.
    let sleeping = (0..8).map(|_| call(&registry, "bad.sleep", json!({})));
    let reports = futures_util::future::join_all(sleeping).await;
    assert!(reports.iter().all(|report| kind(report) == "deadline"));
    assert!(
        started.elapsed() < Duration::from_millis(300) + GRACE,
        "{:?}",
        started.elapsed()
    );
    assert!(
        reports[0].usage.fuel < 100_000,
        "sleeping computes nothing: {:?}",
        reports[0].usage
    );
    assert_unharmed(&registry).await;
}

/// A call that cannot start before its deadline says that it never ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_host_lets_calls_wait_with_their_deadline_running() {
    let registry = with("bad", hostile::CLOCKS, policy(|l| l.timeout_ms = 400)).await;
    let sleeping = (0..8).map(|_| call(&registry, "bad.sleep", json!({})));
    let late = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let arguments = json!({});
        let invocation = toolhold_sandbox::Invocation {
            id: "late",
            tool: "benign.count",
            arguments: &arguments,
            context: &[],
            timeout: Some(Duration::from_millis(100)),
            caller: Caller::default(),
        };
        registry.call(&invocation).await
    };
    let (_, report) = tokio::join!(futures_util::future::join_all(sleeping), late);
    assert_eq!(kind(&report), "busy");
    assert!(
        report.usage.queued >= Duration::from_millis(90),
        "{:?}",
        report.usage
    );
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_growing_memory_ends_at_the_limit() {
    const CAP: u64 = 64 << 20;
    let registry = with("bad", hostile::GROWTH, policy(|l| l.memory_bytes = CAP)).await;
    let report = call(&registry, "bad.grow", json!({})).await;
    assert_eq!(kind(&report), "memory");
    assert!(report.usage.memory_bytes <= CAP, "{:?}", report.usage);

    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_huge_initial_memory_and_many_memories_are_refused() {
    let registry = registry(policy(|l| l.memory_bytes = 64 << 20));
    let error = load(&registry, "huge", hostile::HUGE_MEMORY)
        .await
        .expect_err("too large");
    assert!(error.to_string().contains("memory"), "{error}");
    let error = load(&registry, "many", &hostile::many_memories())
        .await
        .expect_err("too many");
    assert!(error.to_string().contains("memor"), "{error}");
    load(&registry, "benign", hostile::COMPUTE)
        .await
        .expect("the benign component loads");
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_table_bomb_ends_at_the_limit() {
    let registry = with(
        "bad",
        hostile::GROWTH,
        policy(|l| l.table_elements = 10_000),
    )
    .await;
    assert_eq!(
        kind(&call(&registry, "bad.table", json!({})).await),
        "table"
    );
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_05_many_tables_count_together() {
    let registry = with(
        "bad",
        &hostile::many_tables(),
        policy(|l| l.table_elements = 100_000),
    )
    .await;
    assert_eq!(kind(&call(&registry, "bad.f", json!({})).await), "table");
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_each_module_has_its_own_stack_limit() {
    let mut policy = policy(|l| l.stack_bytes = 256 << 10);
    policy
        .modules
        .entry("deep".into())
        .or_default()
        .limits
        .stack_bytes = Some(3 << 20);
    let registry = with("bad", hostile::COMPUTE, policy).await;
    load(&registry, "deep", hostile::COMPUTE)
        .await
        .expect("the component loads");
    let shallow = call(&registry, "bad.recurse", json!({})).await;
    let deep = call(&registry, "deep.recurse", json!({})).await;
    assert_eq!((kind(&shallow), kind(&deep)), ("stack", "stack"));
    let limit =
        |report: toolhold_sandbox::CallReport| report.result.expect_err("stack").to_string();
    assert!(
        deep.usage.fuel > 8 * shallow.usage.fuel,
        "the deeper stack holds more frames"
    );
    assert!(limit(shallow).contains("262144 bytes"));
    assert!(
        limit(deep).contains("4194304 bytes"),
        "rounded up to a power of two"
    );
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_06_deep_recursion_ends_at_the_stack_limit() {
    let registry = with("bad", hostile::COMPUTE, policy(|_| ())).await;
    assert_eq!(
        kind(&call(&registry, "bad.recurse", json!({})).await),
        "stack"
    );
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_07_handles_in_a_loop_end_at_the_limit() {
    let registry = with("bad", hostile::CLOCKS, policy(|l| l.handles = 100)).await;
    assert_eq!(
        kind(&call(&registry, "bad.hoard", json!({})).await),
        "handles"
    );
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_09_output_flood_is_bounded_and_counted() {
    let registry = with("bad", hostile::FLOOD, policy(|l| l.capture_bytes = 10_000)).await;
    let report = call(&registry, "bad.flood", json!({})).await;
    assert_eq!(
        report.result.expect("a chatty tool survives"),
        Output::Value(json!(16_384))
    );
    assert_eq!(report.stdout.text.len(), 10_000);
    assert_eq!(report.stdout.dropped_bytes, (64 << 20) - 10_000);
    assert!(
        report.stdout.text.starts_with('\u{1b}'),
        "the text is kept as it was; it is escaped where it is shown"
    );
    assert_unharmed(&registry).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_20_every_call_is_a_fresh_instance_after_traps_too() {
    let registry = with("bad", hostile::COMPUTE, policy(|_| ())).await;
    for _ in 0..20 {
        // 1 from the global and 1 from memory: nothing of the last call is there.
        assert_eq!(
            call(&registry, "bad.count", json!({}))
                .await
                .result
                .expect("counts"),
            Output::Value(json!(2))
        );
        assert_eq!(kind(&call(&registry, "bad.boom", json!({})).await), "trap");
    }
    assert_unharmed(&registry).await;
}

/// Dropping a call stops the guest and gives its place back (THREATS.md, promise 3).
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_gives_its_place_back() {
    let registry = with("bad", hostile::CLOCKS, policy(|l| l.timeout_ms = 60_000)).await;
    for tool in ["bad.sleep", "bad.ask"] {
        let calls = (0..8).map(|_| call(&registry, tool, json!({})));
        let all = futures_util::future::join_all(calls);
        assert!(
            tokio::time::timeout(Duration::from_millis(100), all)
                .await
                .is_err(),
            "they were to hang"
        );
        let started = Instant::now();
        assert_unharmed(&registry).await;
        assert!(started.elapsed() < Duration::from_millis(250) + GRACE);
    }
}

/// One bad module never hides the good ones, and each says what is wrong with it (rows 17 and 22).
#[tokio::test]
async fn bad_files_are_refused_with_their_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let put =
        |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("a file");
    let good = support::sandbox::component(hostile::COMPUTE);
    put("good.wasm", &good);
    put("text.wasm", b"hello");
    put("empty.wasm", b"");
    put("core.wasm", b"\0asm\x01\0\0\0");
    put("cut.wasm", &good[..good.len() - 5]);
    put("native.cwasm", b"\x7fELF\x02\x01\x01");
    put("renamed.wasm", b"\x7fELF\x02\x01\x01");
    put("large.wasm", &vec![0; 200_000]);
    put("UPPER.wasm", &good);
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("link.wasm")).expect("a link");
    std::fs::create_dir(folder.path().join("good")).expect("a folder");
    std::fs::write(folder.path().join("good/good.wasm"), &good).expect("a file");
    std::fs::create_dir(folder.path().join("typo")).expect("a folder");
    std::fs::write(folder.path().join("typo/module.toml"), "[limits]\nfule = 1").expect("a file");
    std::fs::create_dir(folder.path().join("escape")).expect("a folder");
    std::fs::write(
        folder.path().join("escape/module.toml"),
        "component = \"../good.wasm\"",
    )
    .expect("a file");

    let registry = registry(Policy {
        max_component_bytes: 100_000,
        ..Policy::default()
    });
    registry
        .load_folder(folder.path(), None, &|_| ())
        .await
        .expect("the folder is there");
    let modules: Vec<_> = registry
        .modules()
        .iter()
        .map(|module| module.name.clone())
        .collect();
    assert_eq!(modules, ["good"], "{:?}", registry.failures());
    let reason = |file: &str| {
        let failures = registry.failures();
        let failed = failures.iter().find(|f| f.origin.ends_with(file));
        failed
            .unwrap_or_else(|| panic!("{file} is missing from the failures"))
            .error
            .to_string()
    };
    for (file, expect) in [
        ("text.wasm", "does not begin with the Wasm header"),
        ("empty.wasm", "the file is empty"),
        ("core.wasm", "core module"),
        ("cut.wasm", "does not compile"),
        ("native.cwasm", "precompiled"),
        ("renamed.wasm", "precompiled"),
        ("large.wasm", "200000 bytes"),
        ("UPPER.wasm", "cannot name a module"),
        ("link.wasm", "cannot be read"),
        ("good.wasm", "already taken"),
        ("typo", "fule"),
        ("escape", "cannot be read"),
    ] {
        assert!(reason(file).contains(expect), "{file}: {}", reason(file));
    }
    assert!(
        matches!(registry.failures()[0].error, LoadError::Manifest { .. }),
        "in the folder's order"
    );
}
