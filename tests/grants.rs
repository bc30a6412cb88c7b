//! What each grant gives and what it is like to be without, with a real module that uses every import.

use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::nested::UncheckedCalls;
use support::sandbox::{call, call_as, kind, registry, repository};
use toolhold_policy::{
    Access, Caller, Clocks, DirectoryGrant, Grant, GrantRestrictions, Invocation, Keep,
    KeyValueGrant, LimitsRequest, LogLevel, MAX_CALL_DEPTH, Output, Randomness, Restriction,
    ScratchGrant,
};
use toolhold_sandbox::{ModulePolicy, PinFolder, Pinning, Policy, Registry, Storage};

/// The probe with `grant`, and the calculator beside it.
async fn probe(state: &Path, grant: Grant) -> Registry {
    probe_within(state, grant, LimitsRequest::default()).await
}

async fn probe_within(state: &Path, grant: Grant, limits: LimitsRequest) -> Registry {
    let registry = registry(policy(state, grant, limits));
    for (name, path) in [
        ("probe", "modules/sdk/probe/probe.wasm"),
        ("calculator", "modules/calculator/calculator.wasm"),
    ] {
        let bytes = std::fs::read(repository().join(path)).expect("the component is built");
        registry.load_bytes(name, bytes).await.expect("it loads");
    }
    registry
}

/// What gives the probe `grant` and `limits`.
fn policy(state: &Path, grant: Grant, limits: LimitsRequest) -> Policy {
    let mut policy = Policy {
        storage: Storage {
            scratch: Some(state.join("scratch")),
            key_value: Some(state.join("key-value")),
        },
        ..Policy::default()
    };
    let module = ModulePolicy {
        grant,
        limits,
        ..ModulePolicy::default()
    };
    policy.modules.insert("probe".into(), module);
    policy
}

fn remembering() -> Grant {
    Grant {
        key_value: Some(KeyValueGrant::default()),
        ..Grant::default()
    }
}

async fn ok(registry: &Registry, tool: &str, arguments: Value, session: &str) -> Value {
    let caller = Caller {
        tenant: "",
        session,
    };
    let report = call_as(registry, tool, arguments, caller).await;
    match report.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool}: {other:?}, {:?}", report.stderr),
    }
}

async fn refused(registry: &Registry, tool: &str, arguments: Value) -> (&'static str, String) {
    let report = call(registry, tool, arguments).await;
    let message = report
        .result
        .as_ref()
        .expect_err("it is refused")
        .to_string();
    (kind(&report), message)
}

#[tokio::test]
async fn without_grants_everything_is_denied_and_the_module_still_runs() {
    let state = tempfile::tempdir().unwrap();
    let registry = probe(state.path(), Grant::default()).await;
    let entry = json!({"key": "a", "value": "1"});
    let (kind, message) = refused(&registry, "probe.remember", entry).await;
    assert_eq!(
        (kind, message.contains("Denied")),
        ("tool", true),
        "{message}"
    );
    let question = json!({"tool": "calculator.evaluate", "arguments": {"expression": "1"}});
    let (_, message) = refused(&registry, "probe.ask", question).await;
    assert!(message.contains("was not granted the tool"), "{message}");
    let file = json!({"path": "/scratch/x", "bytes": 1});
    refused(&registry, "probe.write", file).await;
    ok(&registry, "probe.draw", json!({}), "").await;
}

#[tokio::test]
async fn values_outlive_a_call_within_their_quota_and_tenant() {
    let state = tempfile::tempdir().unwrap();
    let grant = Grant {
        key_value: Some(KeyValueGrant {
            quota_bytes: 500,
            ..KeyValueGrant::default()
        }),
        ..Grant::default()
    };
    let registry = probe(state.path(), grant).await;
    let entry = |key: &str, bytes: usize| json!({"key": key, "value": "v".repeat(bytes)});
    ok(&registry, "probe.remember", entry("a", 10), "one").await;
    let keys = ok(&registry, "probe.remember", entry("b", 10), "two").await;
    assert_eq!(keys, json!(["a", "b"]), "sessions of a tenant share");
    let (_, message) = refused(&registry, "probe.remember", entry("c", 400)).await;
    assert!(message.contains("Quota"), "{message}");
    let other = Caller {
        tenant: "somebody else",
        session: "one",
    };
    let report = call_as(&registry, "probe.recall", json!({"key": "a"}), other).await;
    assert_eq!(report.result.unwrap(), Output::Value(Value::Null));
}

#[tokio::test]
async fn scratch_files_last_as_long_as_was_granted() {
    let state = tempfile::tempdir().unwrap();
    let scratch = |keep| Grant {
        scratch: Some(ScratchGrant {
            quota_bytes: 100_000,
            keep,
            ..ScratchGrant::default()
        }),
        ..Grant::default()
    };
    let file = json!({"path": "/scratch/x", "bytes": 1000});
    let name = json!({"path": "/scratch/x"});

    let registry = probe(state.path(), scratch(Keep::Call)).await;
    ok(&registry, "probe.write", file.clone(), "s").await;
    refused(&registry, "probe.read", name.clone()).await;

    let registry = probe(state.path(), scratch(Keep::Session)).await;
    ok(&registry, "probe.write", file, "s").await;
    assert_eq!(ok(&registry, "probe.read", name.clone(), "s").await, 1000);
    for (tenant, session) in [("", "t"), ("u", "s"), ("", "")] {
        let caller = Caller { tenant, session };
        let report = call_as(&registry, "probe.read", name.clone(), caller).await;
        assert_eq!(kind(&report), "tool", "{tenant:?} {session:?}");
    }
}

#[tokio::test]
async fn a_directory_holds_no_more_than_its_quota() {
    let (state, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let grant = Grant {
        directories: vec![DirectoryGrant {
            host: data.path().to_owned(),
            guest: "/data".into(),
            access: Access::ReadWrite,
            quota_bytes: Some(100_000),
        }],
        ..Grant::default()
    };
    let registry = probe(state.path(), grant).await;
    let file = |name: &str, bytes: usize| json!({"path": format!("/data/{name}"), "bytes": bytes});
    // Writing over a file does not use it up.
    let churn = json!({"path": "/data/a", "bytes": 40_000, "times": 10});
    ok(&registry, "probe.churn", churn, "").await;
    let (kind, message) = refused(&registry, "probe.write", file("b", 80_000)).await;
    assert_eq!(kind, "quota", "{message}");
    let held: u64 = std::fs::read_dir(data.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(held <= 100_000, "{held}");
    std::fs::remove_file(data.path().join("a")).unwrap();
    std::fs::remove_file(data.path().join("b")).unwrap();
    ok(&registry, "probe.write", file("b", 80_000), "").await;
}

#[tokio::test]
async fn host_calls_move_no_more_than_their_limit() {
    let state = tempfile::tempdir().unwrap();
    let grant = Grant {
        scratch: Some(ScratchGrant::default()),
        ..Grant::default()
    };
    // On a busy machine as much takes longer than a call has by default.
    let limits = LimitsRequest {
        timeout_ms: Some(180_000),
        ..LimitsRequest::default()
    };
    let registry = probe_within(state.path(), grant, limits).await;
    let churn = json!({"path": "/scratch/a", "bytes": 8 << 20, "times": 100});
    let report = call(&registry, "probe.churn", churn).await;
    assert_eq!(kind(&report), "host_bytes", "{:?}", report.result);
    assert!(report.usage.host_bytes >= 256 << 20, "{:?}", report.usage);
}

#[tokio::test]
async fn current_call_data_counts_towards_limits() {
    let state = tempfile::tempdir().unwrap();
    let limits = LimitsRequest {
        host_bytes: Some(100_000),
        argument_bytes: Some(1_000),
        json_depth: Some(4),
        ..LimitsRequest::default()
    };
    let registry = probe_within(state.path(), Grant::default(), limits).await;
    let told = async |reserved: Value| {
        let arguments = json!({});
        let invocation = Invocation {
            reserved: reserved.as_object(),
            ..Invocation::new("test", "probe.reflect", &arguments)
        };
        registry.call(&invocation).await
    };
    let report = told(json!({"_tool": "mine", "_reasoningForCall": "r"})).await;
    let Ok(Output::Value(value)) = report.result else {
        panic!("{:?}", report.result);
    };
    assert_eq!(
        (&value["tool"], &value["reason"]),
        (&json!("mine"), &json!("r"))
    );

    let long = "x".repeat(1_000);
    let deep = json!([[[[1]]]]);
    for reserved in [json!({"_reasoningForCall": long}), json!({"_deep": deep})] {
        let report = told(reserved).await;
        assert_eq!(kind(&report), "arguments", "{:?}", report.result);
        let reason = report.result.unwrap_err().to_string();
        assert!(reason.contains("reserved properties"), "{reason}");
    }

    let again = call(&registry, "probe.reflect", json!({"times": 10_000})).await;
    assert_eq!(kind(&again), "host_bytes", "{:?}", again.result);
}

#[tokio::test]
async fn a_granted_tool_is_called_and_no_other() {
    let state = tempfile::tempdir().unwrap();
    let grant = Grant {
        tools: vec!["calculator.evaluate".into(), "probe".into()],
        ..Grant::default()
    };
    let registry = probe(state.path(), grant).await;
    let question = |tool: &str, arguments: Value| json!({"tool": tool, "arguments": arguments});
    let sum = question("calculator.evaluate", json!({"expression": "1 + 2"}));
    assert_eq!(
        ok(&registry, "probe.ask", sum.clone(), "").await,
        json!({"value": "3"})
    );
    let wrong = question("calculator.evaluate", json!({"expression": "1 +"}));
    assert_eq!(refused(&registry, "probe.ask", wrong).await.0, "tool");
    // A grant is not enough: the invocation must bring what makes nested calls.
    let report = registry
        .call(&Invocation::new("c", "probe.ask", &sum))
        .await;
    let denied = report.result.unwrap_err().to_string();
    assert!(denied.contains("calls no other tools here"), "{denied}");
    // A call that calls itself ends.
    let mut nested = sum;
    for _ in 0..6 {
        nested = question("probe.ask", nested);
    }
    let (_, message) = refused(&registry, "probe.ask", nested).await;
    assert!(message.contains("nested"), "{message}");
}

#[tokio::test]
async fn clocks_are_coarse_and_chance_can_be_repeated() {
    let state = tempfile::tempdir().unwrap();
    let plain = probe(state.path(), Grant::default()).await;
    let draw = ok(&plain, "probe.draw", json!({}), "").await;
    assert_eq!(draw["wall_us"].as_u64().unwrap() % 1_000, 0, "{draw}");
    assert_eq!(draw["step_us"].as_u64().unwrap() % 1_000, 0, "{draw}");
    let again = ok(&plain, "probe.draw", json!({}), "").await;
    assert_ne!(draw["random"], again["random"]);

    let grant = Grant {
        clocks: Clocks { precision_us: 1 },
        randomness: Randomness::Seed(7),
        log_level: LogLevel::Warn,
        ..Grant::default()
    };
    let registry = probe(state.path(), grant).await;
    let draw = ok(&registry, "probe.draw", json!({}), "").await;
    let again = ok(&registry, "probe.draw", json!({}), "").await;
    assert_eq!(draw["random"], again["random"]);
    assert!(draw["step_us"].as_u64().unwrap() < 1_000, "{draw}");
    let report = call(&registry, "probe.say", json!({})).await;
    let lines: Vec<_> = report.logs.iter().map(|line| &line.message).collect();
    assert_eq!(lines, ["warn"]);
}

/// A new decision of the operator holds for the next call, for every holder of the module.
#[tokio::test]
async fn a_grant_is_given_and_taken_while_the_module_is_loaded() {
    let state = tempfile::tempdir().unwrap();
    let limits = LimitsRequest::default();
    let registry = probe(state.path(), Grant::default()).await;
    let held = registry.module("probe").unwrap();
    let entry = json!({"key": "a", "value": "1"});
    refused(&registry, "probe.remember", entry.clone()).await;

    registry
        .govern(policy(state.path(), remembering(), limits.clone()))
        .await;
    ok(&registry, "probe.remember", entry.clone(), "").await;
    assert!(held.grant().key_value.is_some());
    assert!(
        Arc::ptr_eq(&held, &registry.module("probe").unwrap()),
        "it is not loaded again"
    );

    let tighter = LimitsRequest {
        json_depth: Some(1),
        ..limits.clone()
    };
    registry
        .govern(policy(state.path(), Grant::default(), tighter))
        .await;
    let (_, message) = refused(&registry, "probe.remember", entry.clone()).await;
    assert!(message.contains("Denied"), "{message}");
    assert_eq!(
        (held.grant().is_empty(), held.limits().json_depth),
        (true, 1)
    );

    registry
        .govern(policy(state.path(), remembering(), limits))
        .await;
    assert_eq!(
        ok(&registry, "probe.recall", json!({"key": "a"}), "").await,
        json!("1")
    );
}

/// A call that goes on keeps what it began with, until something of that is taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_when_its_grant_is_taken_back() {
    let state = tempfile::tempdir().unwrap();
    let scratch = Grant {
        scratch: Some(ScratchGrant::default()),
        ..Grant::default()
    };
    let limits = LimitsRequest {
        timeout_ms: Some(300_000),
        ..LimitsRequest::default()
    };
    let registry = probe_within(state.path(), scratch.clone(), limits).await;
    let going = {
        let registry = registry.clone();
        tokio::spawn(async move {
            let churn = json!({"path": "/scratch/a", "bytes": 10_000, "times": 8_000});
            call(&registry, "probe.churn", churn).await.result
        })
    };
    let began = || {
        let made = std::fs::read_dir(state.path().join("scratch"));
        made.is_ok_and(|mut made| made.next().is_some())
    };
    while !began() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let less = LimitsRequest::default();
    let more = Grant {
        key_value: Some(KeyValueGrant::default()),
        ..scratch
    };
    registry
        .govern(policy(state.path(), more, less.clone()))
        .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!going.is_finished(), "nothing was taken back");
    registry
        .govern(policy(state.path(), Grant::default(), less))
        .await;
    let ended = tokio::time::timeout(Duration::from_millis(250), going).await;
    let error = ended.expect("it goes on").unwrap().unwrap_err();
    assert_eq!(error.kind(), "revoked", "{error}");
    let file = json!({"path": "/scratch/x", "bytes": 1});
    refused(&registry, "probe.write", file).await;
}

/// A module whose grant cannot be given has nothing, and is back when it can be.
#[tokio::test]
async fn impossible_grant_is_not_granted_in_part() {
    let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let component = repository().join("modules/sdk/probe/probe.wasm");
    std::fs::copy(component, folder.path().join("probe.wasm")).unwrap();
    let registry = registry(policy(
        state.path(),
        remembering(),
        LimitsRequest::default(),
    ));
    let load = || registry.load_folder(folder.path(), None, &|_| ());
    load().await.unwrap();
    let held = registry.module("probe").unwrap();
    let entry = json!({"key": "a", "value": "1"});
    ok(&registry, "probe.remember", entry.clone(), "").await;

    let mut wrong = policy(state.path(), remembering(), LimitsRequest::default());
    let absent = DirectoryGrant {
        host: state.path().join("absent"),
        guest: "/data".into(),
        access: Access::Read,
        quota_bytes: None,
    };
    wrong.modules.get_mut("probe").unwrap().grant.directories = vec![absent];
    registry.govern(wrong).await;
    load().await.unwrap();
    assert!(registry.module("probe").is_none());
    assert!(registry.failures()[0].error.to_string().contains("absent"));
    assert_eq!(
        refused(&registry, "probe.remember", entry.clone()).await.0,
        "unknown_tool"
    );
    assert!(held.grant().is_empty() && !held.pin_state().may_run());

    registry
        .govern(policy(
            state.path(),
            remembering(),
            LimitsRequest::default(),
        ))
        .await;
    load().await.unwrap();
    ok(&registry, "probe.remember", entry, "").await;
    assert!(registry.failures().is_empty());
}

/// More than was approved is not given before somebody approves it.
#[tokio::test]
async fn a_wider_grant_waits_for_a_person() {
    let state = tempfile::tempdir().unwrap();
    let trust = Pinning::Required {
        pins: Arc::new(PinFolder::new(state.path().join("approvals"))),
        first_sight: true,
    };
    let ruled = |grant: Grant| Policy {
        pinning: trust.clone(),
        ..policy(state.path(), grant, LimitsRequest::default())
    };
    let registry = registry(ruled(Grant::default()));
    let bytes = std::fs::read(repository().join("modules/sdk/probe/probe.wasm")).unwrap();
    registry.load_bytes("probe", bytes).await.unwrap();
    let draw = async || kind(&call(&registry, "probe.draw", json!({})).await);
    assert_eq!(draw().await, "ok");
    let module = registry.module("probe").unwrap();
    let shown = module.etag();
    registry.govern(ruled(remembering())).await;
    assert_eq!(draw().await, "not_approved");
    let stale = registry.approve(&module, &shown).await.unwrap_err();
    assert!(stale.to_string().contains("look at it again"), "{stale}");
    assert_eq!(draw().await, "not_approved");
    registry.approve(&module, &module.etag()).await.unwrap();
    assert_eq!(draw().await, "ok");
    registry.govern(ruled(Grant::default())).await;
    assert_eq!(draw().await, "not_approved", "less is a change, too");
}

/// Restrictions hold for a call and its nested calls, and the error names their owner.
#[tokio::test]
async fn a_call_may_use_less_than_its_module_was_granted() {
    let state = tempfile::tempdir().unwrap();
    let grant = Grant {
        tools: vec!["probe".into()],
        ..remembering()
    };
    let registry = probe(state.path(), grant).await;
    let within = async |tool: &str, arguments: Value, permits: &[&str]| {
        let permits = permits.iter().map(|text| text.parse().unwrap()).collect();
        let bounds = GrantRestrictions::default().with("this key", Restriction::Permits(permits));
        let invocation = Invocation {
            restrictions: Some(Arc::new(bounds)),
            nested: Some(UncheckedCalls::of(&registry)),
            ..Invocation::new("c", tool, &arguments)
        };
        let report = registry.call(&invocation).await;
        report.result.map_err(|error| error.to_string())
    };
    let entry = json!({"key": "a", "value": "1"});
    let nested = json!({"tool": "probe.remember", "arguments": entry});
    for permits in [&["key_value", "tools"][..], &["probe:*"]] {
        within("probe.remember", entry.clone(), permits)
            .await
            .unwrap();
        within("probe.ask", nested.clone(), permits).await.unwrap();
    }
    let denied = within("probe.remember", entry.clone(), &["tools"])
        .await
        .unwrap_err();
    assert!(
        denied.contains("key_value not granted to this key"),
        "{denied}"
    );
    let denied = within("probe.ask", nested.clone(), &["tools"])
        .await
        .unwrap_err();
    assert!(
        denied.contains("key_value not granted to this key"),
        "{denied}"
    );
    let denied = within("probe.ask", nested, &["other:*"]).await.unwrap_err();
    assert!(denied.contains("tools not granted to this key"), "{denied}");
    // Other callers are not restricted.
    ok(&registry, "probe.remember", entry, "").await;
}

/// Calls that hold all places, or all that their modules may have, while they wait for the calls that their modules make:
/// those have places of their own.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_hold_all_places_go_on() {
    for concurrent_calls in [None, Some(2), Some(1)] {
        for modules in [["probe", "probe"], ["probe", "other"]] {
            callers_go_on(modules, concurrent_calls).await;
        }
    }
}

/// Calls of both modules, each of which calls the other one, as deep as calls may be nested.
async fn callers_go_on(modules: [&str; 2], concurrent_calls: Option<u64>) {
    let state = tempfile::tempdir().unwrap();
    let grant = Grant {
        tools: vec!["probe".into(), "other".into()],
        ..Grant::default()
    };
    let limits = LimitsRequest {
        concurrent_calls,
        ..LimitsRequest::default()
    };
    let mut policy = policy(state.path(), grant, limits);
    let own = policy.modules["probe"].clone();
    policy.modules.insert("other".into(), own);
    let registry = registry(policy);
    let bytes = std::fs::read(repository().join("modules/sdk/probe/probe.wasm")).unwrap();
    for name in ["probe", "other"] {
        registry.load_bytes(name, bytes.clone()).await.unwrap();
    }
    let tool = |depth: usize, own: &str| format!("{}.{own}", modules[depth % 2]);
    let calls = [0, 1].map(|first| {
        let deepest = usize::from(MAX_CALL_DEPTH);
        let draw = json!({"tool": tool(first + deepest, "draw"), "arguments": {}});
        let arguments = (1..deepest).rev().fold(
            draw,
            |inner, depth| json!({"tool": tool(first + depth, "ask"), "arguments": inner}),
        );
        (tool(first, "ask"), arguments)
    });
    let nested = UncheckedCalls::of(&registry);
    // More than the places of the registry of tests, all at once.
    let calls = calls.iter().cycle().take(24).map(|(tool, arguments)| {
        let invocation = Invocation {
            nested: Some(nested.clone()),
            ..Invocation::new("c", tool, arguments)
        };
        let registry = &registry;
        async move { registry.call(&invocation).await.result }
    });
    for result in futures_util::future::join_all(calls).await {
        assert!(
            result.is_ok(),
            "{modules:?}, {concurrent_calls:?}: {result:?}"
        );
    }
}

/// A granted directory is the one that was found when the grant took effect, whatever its path means later; and
/// after a restart it is the one that was approved, or none.
#[tokio::test]
async fn a_granted_directory_stays_what_it_was() {
    let (state, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| data.path().join(name);
    for (folder, bytes) in [("sub", 10), ("outside", 20)] {
        std::fs::create_dir(at(folder)).unwrap();
        std::fs::write(at(folder).join("x"), vec![0; bytes]).unwrap();
    }
    let ruled = || {
        let directory = DirectoryGrant {
            host: at("sub"),
            guest: "/data".into(),
            access: Access::Read,
            quota_bytes: None,
        };
        let grant = Grant {
            directories: vec![directory],
            ..remembering()
        };
        let pins = PinFolder::new(state.path().join("approvals"));
        Policy {
            pinning: Pinning::Required {
                pins: Arc::new(pins),
                first_sight: true,
            },
            ..policy(state.path(), grant, LimitsRequest::default())
        }
    };
    let bytes = std::fs::read(repository().join("modules/sdk/probe/probe.wasm")).unwrap();
    let running = registry(ruled());
    running.load_bytes("probe", bytes.clone()).await.unwrap();
    let module = running.module("probe").unwrap();
    running.approve(&module, &module.etag()).await.unwrap();
    let file = json!({"path": "/data/x"});
    assert_eq!(ok(&running, "probe.read", file.clone(), "").await, 10);

    std::fs::rename(at("sub"), at("moved")).unwrap();
    std::os::unix::fs::symlink("outside", at("sub")).unwrap();
    assert_eq!(ok(&running, "probe.read", file.clone(), "").await, 10);
    // A call with less than the grant has the same directory, and so has one after the configuration was read again.
    let bounds = GrantRestrictions::default().with(
        "this key",
        Restriction::Permits(["directories".parse().unwrap()].into()),
    );
    let invocation = Invocation {
        restrictions: Some(Arc::new(bounds)),
        ..Invocation::new("c", "probe.read", &file)
    };
    let narrow = running.call(&invocation).await.result.unwrap();
    assert_eq!(narrow, Output::Value(json!(10)));
    let mut wider = ruled();
    let own = wider.modules.get_mut("probe").unwrap();
    own.grant.tools = vec!["calculator".into()];
    running.govern(wider).await;
    running.govern(ruled()).await;
    assert_eq!(ok(&running, "probe.read", file.clone(), "").await, 10);

    let restarted = registry(ruled());
    restarted.load_bytes("probe", bytes).await.unwrap();
    let (kind, message) = refused(&restarted, "probe.read", file).await;
    assert_eq!(kind, "not_approved");
    for expected in [
        "the directory /data is another one",
        "modules approve probe",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

/// A module that may write where another's directory is looked up could exchange it: neither gets its grant.
#[tokio::test]
async fn no_module_may_write_where_a_granted_directory_is_looked_up() {
    let (state, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(data.path().join("proj/sub")).unwrap();
    let directory = |path: &str, access| Grant {
        directories: vec![DirectoryGrant {
            host: data.path().join(path),
            guest: "/data".into(),
            access,
            quota_bytes: None,
        }],
        ..Grant::default()
    };
    let limits = LimitsRequest::default();
    let alone = policy(state.path(), directory("proj/sub", Access::Read), limits);
    let registry = registry(alone.clone());
    let bytes = std::fs::read(repository().join("modules/sdk/probe/probe.wasm")).unwrap();
    registry.load_bytes("probe", bytes).await.unwrap();
    let held = registry.module("probe").unwrap();
    assert!(held.pin_state().may_run());

    // The other module is not even there.
    let mut both = alone.clone();
    let writer = ModulePolicy {
        grant: directory("proj", Access::ReadWrite),
        ..ModulePolicy::default()
    };
    both.modules.insert("writer".into(), writer);
    registry.govern(both).await;
    let reason = registry.failures()[0].error.to_string();
    assert!(
        reason.contains("which the module writer may write to"),
        "{reason}"
    );
    assert!(held.grant().is_empty() && !held.pin_state().may_run());
    registry.govern(alone).await;
    assert_eq!(held.grant().directories.len(), 1);
}
