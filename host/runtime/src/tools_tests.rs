use super::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toolhold_agent::catalogue::ToolCatalogue;
use toolhold_policy::{Grant, KeyValueGrant, Restriction};
use toolhold_sandbox::{Engine, EngineConfig, ModulePolicy, Policy, Storage};

/// The repository's modules.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules")
}

/// The probe, which may keep values below `state`.
async fn probe(state: &Path) -> Registry {
    let grant = Grant {
        key_value: Some(KeyValueGrant::default()),
        ..Grant::default()
    };
    let decided = ModulePolicy {
        grant,
        ..ModulePolicy::default()
    };
    let policy = Policy {
        storage: Storage {
            key_value: Some(state.to_owned()),
            ..Storage::default()
        },
        modules: HashMap::from_iter([("probe".to_owned(), decided)]),
        ..Policy::default()
    };
    let registry = registry(policy);
    let bytes = std::fs::read(modules().join("sdk/probe/probe.wasm")).unwrap();
    registry.load_bytes("probe", bytes).await.unwrap();
    registry
}

fn registry(policy: Policy) -> Registry {
    let config = EngineConfig {
        concurrent_calls: 4,
        ..EngineConfig::default()
    };
    Registry::new(Engine::new(config).unwrap(), None, policy)
}

async fn value(tools: &SandboxTools, tool: &str, arguments: Value) -> Value {
    let call = ToolCall {
        schema: Some(Arc::default()),
        timeout: Duration::from_secs(10),
        ..ToolCall::new("c", tool, arguments)
    };
    tools.call(&call).await.outcome.unwrap().value
}

#[tokio::test]
async fn calls_are_made_on_behalf_of_one_tenant() {
    let state = tempfile::tempdir().unwrap();
    let registry = probe(state.path()).await;
    let of = |tenant: &str| SandboxTools::new(registry.clone()).on_behalf_of(tenant, "s");
    let entry = json!({"key": "a", "value": "1"});
    value(&of("one"), "probe.remember", entry).await;
    let key = || json!({"key": "a"});
    assert_eq!(value(&of("one"), "probe.recall", key()).await, "1");
    let other = value(&of("two"), "probe.recall", key()).await;
    assert_eq!(other, Value::Null);
}

#[tokio::test]
async fn modules_are_named_otherwise_than_by_name_only_where_somebody_said_so() {
    let closed = SandboxTools::new(registry(Policy::default()));
    for (name, expect) in [
        ("./calculator/calculator.wasm", "by its path"),
        ("oci://127.0.0.1:9/clock:1", "from a registry"),
        ("calculator", "no component is loaded"),
        (
            "idea://plans/refund",
            "put the saved Request into the requests folder",
        ),
        (
            "https://example.com/refund.json",
            "no grant lets it be fetched",
        ),
    ] {
        let reason = closed.module(name).await.unwrap_err();
        assert!(reason.contains(expect), "{name}: {reason}");
    }
    let cache = tempfile::tempdir().unwrap();
    let sources = Sources::default()
        .with_root(modules())
        .with_registries(cache.path(), |name| {
            (name == "TOOLHOLD_OCI_USERNAME").then(|| "ada".into())
        });
    let open = SandboxTools::new(registry(Policy::default()))
        .with_sources(sources)
        .allowing(["calculator"]);
    let found = open.module("./calculator/calculator.wasm").await.unwrap();
    assert!(
        matches!(found, ResolvedModule::Tool(tool) if tool.name == "calculator@0.1.0.evaluate")
    );
    for (name, expect) in [
        ("./sdk/probe/probe.wasm#draw", "not among the tools"),
        ("oci://127.0.0.1:9/clock:1", "TOOLHOLD_OCI_PASSWORD"),
    ] {
        let reason = open.module(name).await.unwrap_err();
        assert!(reason.contains(expect), "{name}: {reason}");
    }
}

#[test]
fn a_message_picks_its_place() {
    for (message, path) in [
        (
            json!({"type": "data", "data": 1, "_outputPath": "†state.a"}),
            Some("†state.a"),
        ),
        (
            json!({"data": 1, "_call": {"_outputPath": "†state.b"}}),
            Some("†state.b"),
        ),
        (
            json!({"type": "data", "kind": "report", "data": 1}),
            Some("†report"),
        ),
        (json!({"type": "data", "data": 1}), None),
    ] {
        let output = message_of(message.clone()).unwrap();
        assert_eq!(
            (output.value, output.output_path.as_deref()),
            (json!(1), path),
            "{message}"
        );
    }
    for (message, expect) in [
        (json!({"type": "state", "data": 1}), "not \"data\""),
        (json!({"type": "data"}), "no data"),
        (json!([1]), "no data"),
        (json!({"data": 1, "_outputPath": 7}), "no text"),
    ] {
        let failure = message_of(message.clone()).unwrap_err();
        assert_eq!(failure.kind, "message");
        assert!(
            failure.message.contains(expect),
            "{message}: {}",
            failure.message
        );
    }
}

#[tokio::test]
async fn toolboxes_of_all_clients_share_tools_and_their_catalogue() {
    let state = tempfile::tempdir().unwrap();
    let registry = probe(state.path()).await;
    let of = |tenant: &str| SandboxTools::new(registry.clone()).on_behalf_of(tenant, "s");
    let (ann, bob) = (of("ann").tools(), of("bob").tools());
    let names = |tools: &[Arc<Tool>]| -> Vec<String> {
        tools.iter().map(|tool| tool.name.clone()).collect()
    };
    let specs = registry.tools().into_iter().map(|spec| spec.name);
    assert_eq!(names(&ann), specs.collect::<Vec<_>>());
    let all = ToolCatalogue::shared(ann.clone()).unwrap();
    assert!(Arc::ptr_eq(&all, &ToolCatalogue::shared(bob).unwrap()));
    for tool in &ann {
        let alone = of("ann").tool(&tool.name).unwrap();
        assert!(Arc::ptr_eq(tool, &alone), "{}", tool.name);
    }
    let few = of("ann").allowing(["probe.recall"]);
    assert_eq!(names(&few.tools()), ["probe.recall"]);
    assert!(few.tool("probe.remember").is_none());
    let view = ToolCatalogue::shared(few.tools()).unwrap();
    let recall = |list: &ToolCatalogue| list.find("probe.recall").unwrap().clone();
    assert!(Arc::ptr_eq(&recall(&view), &recall(&all)));
}

/// Results are kept under all that a result depends on.
#[tokio::test]
async fn what_a_result_depends_on_tells_grants_tenants_and_sessions_apart() {
    let state = tempfile::tempdir().unwrap();
    let registry = probe(state.path()).await;
    let tools = || SandboxTools::new(registry.clone());
    let call = |tool: &str| ToolCall::new("c", tool, json!({"key": "a"}));
    let of = |tools: SandboxTools| tools.result_depends_on(&call("probe.recall"));
    let usual = of(tools().on_behalf_of("ann", "s")).unwrap();
    assert!(usual["module"].is_string(), "{usual}");
    // Nothing of a session is kept in this grant.
    assert_eq!(of(tools().on_behalf_of("ann", "t")).unwrap(), usual);
    assert_ne!(of(tools().on_behalf_of("bob", "s")).unwrap(), usual);
    let bounds = GrantRestrictions::default().with("a test", Restriction::Permits(Vec::new()));
    let narrowed = tools().on_behalf_of("ann", "s").within(bounds.clone());
    assert_ne!(of(narrowed).unwrap(), usual);
    let permits = Narrowing::new(LiveBounds::default(), Some(Vec::new()));
    let permitted = tools().on_behalf_of("ann", "s").narrowed(permits);
    assert_ne!(of(permitted).unwrap(), usual);
    let own = ToolCall {
        restrictions: Some(Arc::new(bounds)),
        ..call("probe.recall")
    };
    let own = tools().on_behalf_of("ann", "s").result_depends_on(&own);
    assert_ne!(own.unwrap(), usual);
    assert_eq!(tools().result_depends_on(&call("nothing.here")), None);
}
