//! What was approved is what runs (docs/security.md, promise 4, rows 18 and 23), and versions side by side.

use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::sandbox::{call, component, kind, registry};
use toolhold_policy::{Grant, Output, PinState};
use toolhold_sandbox::{Module, ModulePolicy, PinFolder, Pinning, Policy, Registry};

/// A component whose one tool returns `number`.
fn answers(number: u32) -> Vec<u8> {
    component(&format!(
        r#"(component
          (core module $m (func (export "f") (result i32) (i32.const {number})))
          (core instance $i (instantiate $m))
          (func (export "answer") (result u32) (canon lift (core func $i "f"))))"#
    ))
}

struct PinFixture {
    root: tempfile::TempDir,
}

impl PinFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("modules")).unwrap();
        Self { root }
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        // Written atomically, so that no reader sees half of it.
        let path = self.root.path().join("modules").join(file);
        let unfinished = path.with_extension("part");
        std::fs::write(&unfinished, bytes).unwrap();
        std::fs::rename(unfinished, path).unwrap();
    }

    fn policy(&self, first_sight: bool) -> Policy {
        Policy {
            pinning: Pinning::Required {
                pins: Arc::new(PinFolder::new(self.root.path().join("approvals"))),
                first_sight,
            },
            ..Policy::default()
        }
    }

    async fn load(&self, registry: &Registry) {
        load(registry, self.root.path()).await;
    }
}

async fn load(registry: &Registry, root: &Path) {
    registry
        .load_folder(&root.join("modules"), None, &|_| ())
        .await
        .unwrap();
}

/// Approves a module as it is.
async fn approve(registry: &Registry, name: &str) {
    let module = registry.module(name).unwrap();
    registry.approve(&module, &module.etag()).await.unwrap();
}

fn reason(registry: &Registry, name: &str) -> String {
    registry.module(name).unwrap().pin_state().reason()
}

#[tokio::test]
async fn a_new_module_without_grants_is_pinned_and_a_change_disables_it() {
    let bench = PinFixture::new();
    bench.put("m.wasm", &answers(1));
    let first = registry(bench.policy(true));
    bench.load(&first).await;
    assert_eq!(first.module("m").unwrap().pin_state(), PinState::Approved);

    bench.put("m.wasm", &answers(2));
    // While it runs, and after a restart.
    bench.load(&first).await;
    let second = registry(bench.policy(true));
    bench.load(&second).await;
    for registry in [&first, &second] {
        assert!(registry.tools().is_empty());
        let report = call(registry, "m.answer", json!({})).await;
        assert_eq!(kind(&report), "not_approved");
        assert!(reason(registry, "m").contains("the component"));
    }

    // Approved in one process, it runs in the other without a restart.
    approve(&second, "m").await;
    for registry in [&first, &second] {
        let report = call(registry, "m.answer", json!({})).await;
        assert_eq!(report.result.unwrap(), Output::Value(json!(2)));
    }
}

#[tokio::test]
async fn grants_need_a_person_and_so_does_every_change_of_them() {
    let bench = PinFixture::new();
    bench.put("m.wasm", &answers(1));
    let granted = |value: &str| {
        let mut policy = bench.policy(true);
        let module = ModulePolicy {
            grant: Grant {
                environment: [("A".to_owned(), value.to_owned())].into(),
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        policy.modules.insert("m".into(), module);
        registry(policy)
    };
    let registry = granted("1");
    bench.load(&registry).await;
    assert_eq!(reason(&registry, "m"), "it has not been approved yet");
    approve(&registry, "m").await;
    let again = granted("1");
    bench.load(&again).await;
    assert!(again.module("m").unwrap().pin_state().may_run());
    let wider = granted("2");
    bench.load(&wider).await;
    assert!(reason(&wider, "m").contains("grant: environment"));
}

#[tokio::test]
async fn a_newcomer_cannot_take_the_name_of_what_was_approved() {
    let bench = PinFixture::new();
    bench.put("m@1.0.wasm", &answers(1));
    let registry = registry(bench.policy(true));
    bench.load(&registry).await;
    bench.put("m@9.9.wasm", &answers(9));
    bench.load(&registry).await;
    let report = call(&registry, "m.answer", json!({})).await;
    assert_eq!(report.result.unwrap(), Output::Value(json!(1)));
    let report = call(&registry, "m@9.9.answer", json!({})).await;
    assert_eq!(kind(&report), "not_approved");
    approve(&registry, "m@9.9").await;
    for (tool, expected) in [("m.answer", 9), ("m@9.answer", 9), ("m@1.0.answer", 1)] {
        let report = call(&registry, tool, json!({})).await;
        assert_eq!(
            report.result.unwrap(),
            Output::Value(json!(expected)),
            "{tool}"
        );
    }
    assert_eq!(registry.tools().len(), 1, "models see the newest");
}

#[tokio::test]
async fn where_every_module_needs_a_person_nothing_runs_by_itself() {
    let bench = PinFixture::new();
    bench.put("m.wasm", &answers(1));
    let registry = registry(bench.policy(false));
    bench.load(&registry).await;
    let report = call(&registry, "m.answer", json!({})).await;
    assert_eq!(kind(&report), "not_approved");
}

/// Row 18: whatever is swapped in, and when, the bytes that run have an approved digest.
#[tokio::test(flavor = "multi_thread")]
async fn row_18_a_file_swapped_a_thousand_times_never_runs_unapproved() {
    let bench = PinFixture::new();
    bench.put("m.wasm", &answers(1));
    let registry = registry(bench.policy(true));
    bench.load(&registry).await;
    let approved = registry.module("m").unwrap().digest;

    let stop = AtomicBool::new(false);
    let mut ran = 0;
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for n in 0..1_000 {
                bench.put("m.wasm", &answers(n % 2 + 1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                while !stop.load(Ordering::Relaxed) {
                    bench.load(&registry).await;
                    let module = registry.module("m").unwrap();
                    if module.pin_state().may_run() {
                        assert_eq!(module.digest, approved);
                    }
                    if let Ok(output) = call(&registry, "m.answer", json!({})).await.result {
                        assert_eq!(output, Output::Value(json!(1)));
                        ran += 1;
                    }
                }
            });
        });
    });
    assert!(ran > 0, "the approved form ran now and then");
}

/// Overwriting a module while 32 callers use it loses no call and mixes no versions.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_exchanged_under_32_callers() {
    let bench = PinFixture::new();
    bench.put("m.wasm", &answers(0));
    let mut policy = Policy::default();
    // They call as often as they can, and the exchange may take a while.
    policy.limits.calls_per_minute = 0;
    let registry = registry(policy);
    bench.load(&registry).await;
    let newest = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..32)
        .map(|_| {
            let (registry, newest, stop) = (registry.clone(), newest.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut calls, mut seen) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let floor = newest.load(Ordering::SeqCst);
                    let report = call(&registry, "m.answer", json!({})).await;
                    let Ok(Output::Value(value)) = report.result else {
                        panic!("a call was lost: {:?}", report.result);
                    };
                    let version = usize::try_from(value.as_u64().unwrap()).unwrap();
                    assert!(version >= floor, "a new call got an old version");
                    assert!(version >= seen);
                    seen = version;
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for n in 1..=20 {
        bench.put("m.wasm", &answers(n));
        bench.load(&registry).await;
        newest.store(n as usize, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut total = 0;
    for caller in callers {
        total += caller.await.unwrap();
    }
    assert!(total > 100, "{total}");
}

#[tokio::test]
async fn broken_renamed_and_removed_modules_are_noticed() {
    let bench = PinFixture::new();
    bench.put("m.wasm", &answers(1));
    let registry = registry(Policy::default());
    bench.load(&registry).await;

    bench.put("m.wasm", b"\0asm half");
    bench.load(&registry).await;
    let report = call(&registry, "m.answer", json!({})).await;
    assert_eq!(
        report.result.unwrap(),
        Output::Value(json!(1)),
        "the old form stays"
    );
    assert_eq!(registry.failures().len(), 1);

    bench.put("m.wasm", &answers(2));
    bench.load(&registry).await;
    assert!(registry.failures().is_empty());
    let old: Arc<Module> = registry.module("m").unwrap();

    let modules = bench.root.path().join("modules");
    std::fs::rename(modules.join("m.wasm"), modules.join("n.wasm")).unwrap();
    bench.load(&registry).await;
    assert!(registry.module("m").is_none() && registry.module("n").is_some());
    assert_eq!(old.name, "m", "a holder of the old module can finish");
    std::fs::remove_file(modules.join("n.wasm")).unwrap();
    bench.load(&registry).await;
    assert!(registry.modules().is_empty());
}
