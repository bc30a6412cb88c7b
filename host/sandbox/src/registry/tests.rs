//! What holds while modules are loaded, and who has a name.

use super::*;
use crate::engine::EngineConfig;
use crate::policy::{ModulePolicy, PinFolder, ServerNames};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use toolhold_policy::{
    Access, Digest, DirectoryGrant, Grant, KeyValueGrant, LimitsRequest, Pin, PinStore,
};

fn parse(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A tool `NAME.which` that returns `number`, and a tool `NAME.spin` that never ends.
fn typed(number: u32) -> Vec<u8> {
    parse(&format!(
        r#"(component
  (core module $m
    (func (export "which") (result i32) (i32.const {number}))
    (func (export "spin") (loop (br 0))))
  (core instance $i (instantiate $m))
  (func (export "which") (result u32) (canon lift (core func $i "which")))
  (func (export "spin") (canon lift (core func $i "spin"))))"#
    ))
}

/// A module of the tool world whose `list-tools` never ends.
fn endless_list() -> Vec<u8> {
    parse(
        r#"(component
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "list") (result i32) (loop (br 0)) (i32.const 0))
    (func (export "call") (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 0)))
  (core instance $i (instantiate $m))
  (type $annotations (flags "read-only" "idempotent" "destructive" "open-world"))
  (type $example (record
    (field "task" string) (field "arguments" string) (field "output" string) (field "answer" string)))
  (type $tool (record
    (field "name" string) (field "title" (option string)) (field "description" string)
    (field "input-schema" string) (field "output-schema" (option string))
    (field "annotations" $annotations) (field "examples" (list $example))))
  (type $scoped (record (field "path" string) (field "value" string)))
  (type $invocation (record
    (field "id" string) (field "tool" string) (field "arguments" string) (field "context" (list $scoped))))
  (type $output (variant (case "value" string) (case "message" string)))
  (type $class (enum "correctable" "retryable" "fatal"))
  (type $error (record
    (field "class" $class) (field "message" string) (field "data" (option string))))
  (func $list (result (list $tool)) (canon lift (core func $i "list") (memory $i "memory")))
  (func $call (param "invocation" $invocation) (result (result $output (error $error)))
    (canon lift (core func $i "call") (memory $i "memory") (realloc (func $i "realloc"))))
  (instance $tools
    (export "annotations" (type $annotations)) (export "example" (type $example))
    (export "tool" (type $tool)) (export "scoped-value" (type $scoped))
    (export "invocation" (type $invocation)) (export "output" (type $output))
    (export "error-class" (type $class)) (export "tool-error" (type $error))
    (export "list-tools" (func $list)) (export "call" (func $call)))
  (export "toolhold:module/tools@0.1.0" (instance $tools)))"#,
    )
}

fn engine() -> Engine {
    let config = EngineConfig {
        concurrent_calls: 4,
        ..EngineConfig::default()
    };
    Engine::new(config).unwrap()
}

/// A modules folder with pins beside it.
struct Host {
    folder: TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("modules")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path("modules").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A folder whose manifest names its module otherwise.
    fn named(&self, folder: &str, name: &str, bytes: &[u8]) {
        self.write(
            &format!("{folder}/module.toml"),
            format!("name = {name:?}\n").as_bytes(),
        );
        self.write(&format!("{folder}/{name}.wasm"), bytes);
    }

    fn pins(&self) -> PinFolder {
        PinFolder::new(self.path("approvals"))
    }

    /// `key_value`: the module `holder` may keep values.
    fn policy(&self, key_value: bool) -> Policy {
        let grant = Grant {
            key_value: key_value.then(KeyValueGrant::default),
            ..Grant::default()
        };
        let limits = LimitsRequest {
            fuel: Some(0),
            timeout_ms: Some(60_000),
            ..LimitsRequest::default()
        };
        let holder = ModulePolicy {
            grant,
            limits,
            one_off: true,
            ..ModulePolicy::default()
        };
        Policy {
            pinning: Pinning::Required {
                pins: Arc::new(self.pins()),
                first_sight: true,
            },
            storage: crate::Storage {
                key_value: Some(self.path("values")),
                ..crate::Storage::default()
            },
            modules: HashMap::from([("holder".to_owned(), holder)]),
            ..Policy::default()
        }
    }

    /// A process that begins.
    fn registry(&self) -> Registry {
        Registry::new(engine(), None, self.policy(true))
    }

    async fn load(&self, registry: &Registry) {
        let folder = self.path("modules");
        registry.load_folder(&folder, None, &|_| ()).await.unwrap();
    }
}

async fn kind(registry: &Registry, tool: &str) -> &'static str {
    let arguments = json!({});
    let report = registry.call(&Invocation::new("c", tool, &arguments)).await;
    report.result.map_or_else(|error| error.kind(), |_| "ok")
}

async fn value(registry: &Registry, tool: &str) -> serde_json::Value {
    let arguments = json!({});
    let report = registry.call(&Invocation::new("c", tool, &arguments)).await;
    report.result.unwrap().into_value()
}

/// A call of `holder.spin` that has begun.
async fn spinning(registry: &Registry) -> tokio::task::JoinHandle<&'static str> {
    let free = registry.shared.engine.free_places();
    let own = registry.clone();
    let running = tokio::spawn(async move { kind(&own, "holder.spin").await });
    while registry.shared.engine.free_places() >= free {
        sleep(Duration::from_millis(1)).await;
    }
    running
}

async fn ended(running: tokio::task::JoinHandle<&'static str>) -> &'static str {
    let ended = timeout(Duration::from_secs(5), running).await;
    ended.expect("it goes on").unwrap()
}

#[tokio::test]
async fn an_approval_does_not_undo_a_decision_of_meanwhile() {
    let host = Host::new();
    let registry = host.registry();
    host.write("calculator.wasm", &typed(1));
    host.load(&registry).await;
    host.write("calculator.wasm", &typed(2));
    host.load(&registry).await;
    let module = registry.module("calculator").unwrap();
    let shown = module.etag();
    host.pins().revoke("calculator").unwrap();
    for late in [
        registry.compare_shown(&module, &shown).await.err(),
        registry.approve(&module, &shown).await.err(),
    ] {
        assert!(
            matches!(late, Some(PinError::Decided(EarlierPinDecision::Revoked))),
            "{late:?}"
        );
    }
    assert_eq!(kind(&registry, "calculator.which").await, "not_approved");
    // Whoever has seen the revocation may approve.
    let shown = module.etag();
    assert!(
        !registry
            .compare_shown(&module, &shown)
            .await
            .unwrap()
            .may_run()
    );
    registry.approve(&module, &shown).await.unwrap();
    assert_eq!(value(&registry, "calculator.which").await, 2);
    // A second person approves the same: it runs already.
    assert!(
        registry
            .compare_shown(&module, &shown)
            .await
            .unwrap()
            .may_run()
    );
    let late = registry.approve(&module, &shown).await.unwrap_err();
    assert!(matches!(
        late,
        PinError::Decided(EarlierPinDecision::Approved)
    ));
    let other = format!("0{}", &shown[1..]);
    let late = registry.compare_shown(&module, &other).await;
    assert!(matches!(late, Err(PinError::Changed)) || shown == other);
}

/// Puts a pin in the place of the one that is recorded.
fn replace(pins: &PinFolder, pin: &Pin) {
    let before = pins.get(&pin.slot);
    pins.replace(before.as_ref(), pin).unwrap();
}

/// A component that another module may have written is not approved at first sight.
#[tokio::test]
async fn a_new_component_where_a_module_may_write_waits() {
    let host = Host::new();
    for (access, runs) in [(Access::ReadWrite, "not_approved"), (Access::Read, "ok")] {
        let mut policy = host.policy(true);
        let directory = DirectoryGrant {
            host: host.path("modules"),
            guest: "/m".into(),
            access,
            quota_bytes: None,
        };
        let writer = policy.modules.entry("writer".to_owned()).or_default();
        writer.grant.directories.push(directory);
        let registry = Registry::new(engine(), None, policy);
        host.write("dropped.wasm", &typed(7));
        host.load(&registry).await;
        assert_eq!(kind(&registry, "dropped.which").await, runs, "{access:?}");
    }
}

/// Good modules serve, and revocations hold, while modules that never list their tools are loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_never_lists_its_tools_holds_up_nothing() {
    let host = Host::new();
    let registry = host.registry();
    host.write("holder.wasm", &typed(1));
    host.load(&registry).await;
    for number in 0..9 {
        host.write(&format!("bad{number}.wasm"), &endless_list());
    }
    host.write("good.wasm", &typed(7));
    let running = spinning(&registry).await;

    let mut changes = registry.changes();
    let loading = tokio::spawn({
        let (registry, folder) = (registry.clone(), host.path("modules"));
        async move { registry.load_folder(&folder, None, &|_| ()).await }
    });
    while registry.module("good").is_none() {
        changes.changed().await.unwrap();
    }
    assert!(!loading.is_finished(), "the bad ones are still asked");
    let bad = |number: usize| registry.is_loading(&format!("bad{number}"));
    assert!((0..9).any(bad) && !registry.is_loading("holder"));
    assert_eq!(value(&registry, "good.which").await, 7);
    let before = Instant::now();
    registry.govern(host.policy(false)).await;
    assert_eq!(ended(running).await, "revoked");
    assert!(before.elapsed() < Duration::from_secs(1));
    assert!(!loading.is_finished(), "nothing waited for them");

    // Nine, four at a time, half a second each.
    timeout(Duration::from_secs(20), loading)
        .await
        .expect("each has its deadline")
        .unwrap()
        .unwrap();
    assert!(!(0..9).any(bad), "none is loaded any more");
    let failures = registry.failures();
    assert_eq!(failures.len(), 9);
    for failure in failures {
        let error = failure.error.to_string();
        assert!(error.contains("deadline of 500 ms"), "{error}");
    }
    assert_eq!(registry.modules().len(), 2);
}

/// Calls that hold every place keep no module from being loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_do_not_hold_up_a_list() {
    let host = Host::new();
    let registry = host.registry();
    host.write("holder.wasm", &typed(1));
    host.load(&registry).await;
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(spinning(&registry).await);
    }
    host.write("bad.wasm", &endless_list());
    host.load(&registry).await;
    let failures = registry.failures();
    let error = failures[0].error.to_string();
    // It ran, and did not wait for a place.
    assert!(error.contains("deadline of 500 ms"), "{error}");
    running.iter().for_each(tokio::task::JoinHandle::abort);
}

/// What a load began with is not what its module gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_changes_during_a_load_holds_for_what_is_loaded() {
    let host = Host::new();
    let registry = host.registry();
    // Some 40 000 operators, which an engine that is built without optimisation compiles in seconds.
    let mut slow = String::from("(component (core module $m ");
    for _ in 0..200 {
        slow.push_str("(func (param i32) (result i32) local.get 0 ");
        for _ in 0..100 {
            slow.push_str("local.get 0 i32.mul ");
        }
        slow.push(')');
    }
    slow.push_str(
        r#"(func (export "which") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func (export "which") (result u32) (canon lift (core func $i "which"))))"#,
    );
    host.write("holder.wasm", &parse(&slow));
    let loading = tokio::spawn({
        let (registry, folder) = (registry.clone(), host.path("modules"));
        async move { registry.load_folder(&folder, None, &|_| ()).await }
    });
    sleep(Duration::from_millis(20)).await;
    registry.govern(host.policy(false)).await;
    let was_waited_for = loading.is_finished();
    loading.await.unwrap().unwrap();
    assert!(!was_waited_for, "a change of the policy waits for no load");
    let module = registry.module("holder").unwrap();
    assert!(
        module.grant().is_empty(),
        "it came under the present policy"
    );
    assert_eq!(kind(&registry, "holder.which").await, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_pin_ends_running_calls_and_one_that_is_given_again_does_not() {
    let host = Host::new();
    let registry = host.registry();
    host.write("holder.wasm", &typed(1));
    host.load(&registry).await;
    let running = spinning(&registry).await;
    let approved = host.pins().get("holder").unwrap();
    host.pins().revoke("holder").unwrap();
    registry.reconsider().await;
    assert_eq!(ended(running).await, "revoked");
    assert_eq!(kind(&registry, "holder.which").await, "not_approved");
    replace(&host.pins(), &approved);
    registry.reconsider().await;
    let running = spinning(&registry).await;
    assert_eq!(kind(&registry, "holder.which").await, "ok");
    // More is no reason to end what runs, and neither is a look at what did not change.
    registry.reconsider().await;
    let mut more = host.policy(true);
    let own = more.modules.get_mut("holder").unwrap();
    own.grant.environment.insert("A".into(), "a".into());
    registry.govern(more).await;
    sleep(Duration::from_millis(50)).await;
    assert!(!running.is_finished());
    // A policy that is still made ready takes away and gives nothing.
    let mut other = host.policy(false);
    let own = other.modules.get_mut("holder").unwrap();
    own.grant.environment.insert("B".into(), "b".into());
    assert!(registry.withdraw(&other).await);
    assert_eq!(ended(running).await, "revoked");
    assert!(registry.module("holder").unwrap().grant().is_empty());
    assert!(!registry.withdraw(&other).await, "nothing is left to take");
}

/// Another process grants and approves, and this one reads its configuration again later or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_approves_more_ends_no_call() {
    let host = Host::new();
    host.write("holder.wasm", &typed(1));
    let policy = |variables: &[&str]| {
        let mut policy = host.policy(true);
        let own = policy.modules.get_mut("holder").unwrap();
        own.one_off = false;
        for name in variables {
            own.grant.environment.insert((*name).into(), "1".into());
        }
        policy
    };
    let process = async |variables: &[&str]| {
        let registry = Registry::new(engine(), None, policy(variables));
        host.load(&registry).await;
        registry
    };
    let approve = async |registry: &Registry| {
        let module = registry.module("holder").unwrap();
        registry.approve(&module, &module.etag()).await.unwrap();
    };
    let registry = process(&["A"]).await;
    assert_eq!(kind(&registry, "holder.which").await, "not_approved");
    approve(&registry).await;
    let running = spinning(&registry).await;
    let began = registry.module("holder").unwrap().policy().revocation();

    let more = process(&["A", "B"]).await;
    assert_eq!(kind(&more, "holder.which").await, "not_approved");
    approve(&more).await;
    registry.reconsider().await;
    assert_eq!(began.check(), Ok(()));
    assert_eq!(kind(&registry, "holder.which").await, "ok");
    registry.govern(policy(&["A", "B"])).await;
    assert_eq!(began.check(), Ok(()));
    assert_eq!(kind(&registry, "holder.which").await, "ok");

    // Less than what was approved is another grant for a process that begins, and for one that is given it.
    let less = process(&["A"]).await;
    less.reconsider().await;
    assert_eq!(kind(&less, "holder.which").await, "not_approved");
    more.govern(policy(&["A"])).await;
    more.reconsider().await;
    assert_eq!(kind(&more, "holder.which").await, "not_approved");

    // Less that is approved takes the rest back, and so does something else.
    approve(&less).await;
    registry.reconsider().await;
    assert_eq!(ended(running).await, "revoked");
    assert_eq!(kind(&registry, "holder.which").await, "not_approved");
    let other = process(&["B"]).await;
    approve(&other).await;
    less.reconsider().await;
    assert_eq!(kind(&less, "holder.which").await, "not_approved");
}

/// The next version of a program brings other components of the same names.
#[tokio::test]
async fn shipped_module_needs_no_pin_unless_it_was_revoked() {
    let host = Host::new();
    let shipped = |name: &str| (name == "calculator").then(|| Digest::of(&typed(2)));
    let registry = host.registry();
    let policy = |key_value| Policy {
        shipped,
        ..host.policy(key_value)
    };
    for name in ["calculator.wasm", "other.wasm"] {
        host.write(name, &typed(1));
    }
    host.load(&registry).await;
    registry.govern(policy(true)).await;
    host.write("calculator.wasm", &typed(2));
    host.write("other.wasm", &typed(3));
    host.load(&registry).await;
    assert_eq!(value(&registry, "calculator.which").await, 2);
    assert_eq!(kind(&registry, "other.which").await, "not_approved");
    // A grant is for the component that it was given to.
    let mut granting = policy(true);
    let grant = Grant {
        key_value: Some(KeyValueGrant::default()),
        ..Grant::default()
    };
    let own = ModulePolicy {
        grant,
        ..ModulePolicy::default()
    };
    granting.modules.insert("calculator".to_owned(), own);
    registry.govern(granting).await;
    assert_eq!(kind(&registry, "calculator.which").await, "not_approved");
    registry.govern(policy(true)).await;
    assert_eq!(kind(&registry, "calculator.which").await, "ok");
    host.pins().revoke("calculator").unwrap();
    registry.reconsider().await;
    assert_eq!(kind(&registry, "calculator.which").await, "not_approved");
}

/// A component under the name of one that comes with the program, and what a person approves of it.
#[tokio::test]
async fn a_foreign_component_under_a_shipped_name_asks_and_stays_when_a_person_approved_it() {
    let policy = |host: &Host, shipped: fn(&str) -> Option<Digest>| Policy {
        shipped,
        ..host.policy(true)
    };
    let start = async |host: &Host, shipped| {
        let registry = Registry::new(engine(), None, policy(host, shipped));
        host.load(&registry).await;
        registry
    };
    let first: fn(&str) -> Option<Digest> = |name| (name == "text").then(|| Digest::of(&typed(1)));
    let second: fn(&str) -> Option<Digest> = |name| (name == "text").then(|| Digest::of(&typed(2)));

    // Nothing was pinned before. A manifest may give the name, too.
    for is_named in [false, true] {
        let host = Host::new();
        if is_named {
            host.named("other", "text", &typed(9));
        } else {
            host.write("text.wasm", &typed(9));
        }
        let registry = start(&host, first).await;
        assert_eq!(
            kind(&registry, "text.which").await,
            "not_approved",
            "{is_named}"
        );
    }

    let host = Host::new();
    host.write("text.wasm", &typed(1));
    let registry = start(&host, first).await;
    assert_eq!(value(&registry, "text.which").await, 1);
    let pin = host.pins().get("text").expect("it is pinned at first use");
    assert_eq!(pin.by, PinnedBy::FirstSight);
    host.write("text.wasm", &typed(9));
    host.load(&registry).await;
    assert_eq!(kind(&registry, "text.which").await, "not_approved");
    // In another slot, under another version.
    fs::remove_file(host.path("modules/text.wasm")).unwrap();
    host.write("text@9.wasm", &typed(9));
    let registry = start(&host, first).await;
    assert_eq!(kind(&registry, "text.which").await, "not_approved");
    fs::remove_file(host.path("modules/text@9.wasm")).unwrap();

    // The next version of the program brings another component, and the pin follows it.
    host.write("text.wasm", &typed(2));
    let registry = start(&host, second).await;
    assert_eq!(value(&registry, "text.which").await, 2);
    let pin = host.pins().get("text").unwrap();
    assert_eq!(pin.digest, format!("{:?}", Digest::of(&typed(2))));
    // What an older version of the program let through at first sight is approved by no person.
    let mut foreign = pin.clone();
    foreign.digest = format!("{:?}", Digest::of(&typed(9)));
    replace(&host.pins(), &foreign);
    host.write("text.wasm", &typed(9));
    let registry = start(&host, second).await;
    assert_eq!(kind(&registry, "text.which").await, "not_approved");

    foreign.by = PinnedBy::Person;
    replace(&host.pins(), &foreign);
    let registry = start(&host, second).await;
    assert_eq!(value(&registry, "text.which").await, 9);
    // The shipped one in its place runs, and takes nothing of that back.
    host.write("text.wasm", &typed(2));
    host.load(&registry).await;
    assert_eq!(value(&registry, "text.which").await, 2);
    host.write("text.wasm", &typed(9));
    host.load(&registry).await;
    assert_eq!(value(&registry, "text.which").await, 9);
}

/// A newcomer that would be loaded first does not take the name of what was approved.
#[tokio::test]
async fn what_was_approved_keeps_its_name() {
    let host = Host::new();
    let registry = host.registry();
    host.write("calculator.wasm", &typed(1));
    host.named("tools", "clock", &typed(2));
    host.load(&registry).await;
    assert_eq!(value(&registry, "calculator.which").await, 1);

    host.named("aaa", "calculator", &typed(3));
    // Under another version it would be the newest of its name.
    host.write("clock@9.wasm", &typed(4));
    let expect = async |registry: &Registry| {
        assert_eq!(value(registry, "calculator.which").await, 1);
        assert_eq!(value(registry, "clock.which").await, 2);
        let failures = registry.failures();
        let reasons: Vec<_> = failures.iter().map(|it| it.error.to_string()).collect();
        assert_eq!(failures.len(), 2, "{reasons:?}");
        assert!(
            reasons
                .iter()
                .any(|it| it.contains("\"calculator\" is already taken by")
                    && it.contains("calculator.wasm")),
            "{reasons:?}"
        );
        assert!(
            reasons
                .iter()
                .any(|it| it.contains("\"clock\" is already taken")),
            "{reasons:?}"
        );
    };
    host.load(&registry).await;
    expect(&registry).await;
    // In a new process everything is new but the pins.
    let restarted = host.registry();
    host.load(&restarted).await;
    expect(&restarted).await;

    // What changed since it was approved still has its name, and waits.
    host.write("calculator.wasm", &typed(5));
    let restarted = host.registry();
    host.load(&restarted).await;
    assert_eq!(kind(&restarted, "calculator.which").await, "not_approved");
    assert!(
        restarted
            .module("calculator")
            .unwrap()
            .origin
            .raw()
            .ends_with("calculator.wasm")
    );

    // The name is free when it is given up; under it, the newcomer still waits for a person.
    fs::remove_file(host.path("modules/calculator.wasm")).unwrap();
    host.load(&restarted).await;
    assert!(
        restarted
            .module("calculator")
            .unwrap()
            .origin
            .raw()
            .contains("aaa")
    );
    assert_eq!(kind(&restarted, "calculator.which").await, "not_approved");
}

/// One that took a name because it came first gives it back to what was approved under it.
#[tokio::test]
async fn a_newcomer_makes_room_for_what_was_approved() {
    let host = Host::new();
    host.write("calculator.wasm", &typed(1));
    let registry = host.registry();
    host.load(&registry).await;
    let registry = host.registry();
    fs::rename(host.path("modules/calculator.wasm"), host.path("aside")).unwrap();
    host.named("aaa", "calculator", &typed(3));
    host.load(&registry).await;
    assert_eq!(kind(&registry, "calculator.which").await, "not_approved");
    fs::rename(host.path("aside"), host.path("modules/calculator.wasm")).unwrap();
    host.load(&registry).await;
    assert_eq!(value(&registry, "calculator.which").await, 1);
    assert_eq!(registry.failures().len(), 1);
}

#[tokio::test]
async fn a_new_module_does_not_take_the_name_of_an_approved_server() {
    let host = Host::new();
    let servers = Arc::new(PinFolder::new(host.path("mcp")));
    let mut policy = host.policy(true);
    policy.servers = ServerNames {
        names: ["tickets".to_owned(), "unseen".to_owned()].into(),
        pins: Some(servers.clone()),
    };
    let by = PinnedBy::Person;
    let record = |name: &str| {
        let grant = Grant::default();
        Pin::of(name, name, Digest::of(b"offer"), &[], &grant, by)
    };
    replace(&servers, &record("tickets"));
    // A server that is configured no more has no name.
    replace(&servers, &record("former"));
    for name in ["tickets", "unseen", "former"] {
        host.write(&format!("{name}.wasm"), &typed(1));
    }
    let registry = Registry::new(engine(), None, policy);
    host.load(&registry).await;
    let failures = registry.failures();
    assert_eq!(failures.len(), 1);
    let reason = failures[0].error.to_string();
    assert!(reason.contains("\"tickets\" is already taken by the MCP server [mcp.tickets]"));
    assert_eq!(kind(&registry, "unseen.which").await, "ok");
    assert_eq!(kind(&registry, "former.which").await, "ok");
    // One that was approved before the server keeps its name.
    replace(&servers, &record("unseen"));
    host.write("other.wasm", &typed(2));
    host.load(&registry).await;
    assert_eq!(kind(&registry, "unseen.which").await, "ok");
}

/// Types that are a few bytes in the component, and many parts in the schema of each of its functions.
fn many_signatures(levels: usize, functions: usize) -> Vec<u8> {
    let mut text = String::from("(component (type $t0 (tuple u8 u8))\n");
    for level in 1..=levels {
        let below = level - 1;
        writeln!(text, "(type $t{level} (tuple $t{below} $t{below}))").unwrap();
    }
    text.push_str(
        r#"(core module $m (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0) (func (export "f") (param i32)))
(core instance $i (instantiate $m))
(func $f (param "x" $top) (canon lift (core func $i "f") (memory $i "memory") (realloc (func $i "realloc"))))
"#,
    );
    let mut text = text.replace("$top", &format!("$t{levels}"));
    for function in 0..functions {
        writeln!(text, "(export \"f{function}\" (func $f))").unwrap();
    }
    text.push(')');
    parse(&text)
}

/// The cost of reading types is bounded by parts for the component, and not for each of its functions.
#[tokio::test]
async fn types_that_unfold_are_read_up_to_a_number_of_parts() {
    let registry = Registry::new(engine(), None, Policy::default());
    let bytes = many_signatures(8, 400);
    assert!(bytes.len() < 16 << 10, "{}", bytes.len());
    // Its first functions are tools, the others are refused.
    registry.load_bytes("bomb", bytes).await.unwrap();
    let module = registry.module("bomb").unwrap();
    assert!(module.tools.len() < 100, "{}", module.tools.len());
    let (_, reason) = module.refused.last().unwrap();
    assert!(reason.raw().contains("more than 50000 parts"), "{reason}");

    let error = registry
        .load_bytes("many", many_signatures(4, 5_000))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("more than 4096 functions"),
        "{error}"
    );
}
