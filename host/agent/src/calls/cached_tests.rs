use super::*;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::tool::{Annotations, Tool};

#[derive(Debug)]
struct Shelf;

impl Toolbox for Shelf {
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    fn module<'a>(
        &'a self,
        _: &'a str,
    ) -> futures_util::future::BoxFuture<'a, Result<crate::ResolvedModule, String>> {
        Box::pin(async { Err("none".into()) })
    }

    fn result_depends_on(&self, _: &ToolCall) -> Option<Value> {
        Some(Value::Null)
    }

    fn call<'a>(&'a self, _: &'a ToolCall) -> futures_util::future::BoxFuture<'a, ToolResult> {
        Box::pin(std::future::ready(result("made")))
    }
}

fn result(value: &str) -> ToolResult {
    ToolResult {
        outcome: Ok(Value::from(value).into()),
        ..ToolResult::failed(ToolFailure::correctable("", ""))
    }
}

fn bound(name: &str, read_only: bool) -> Bound {
    Bound {
        tool: Tool {
            annotations: Annotations {
                read_only,
                ..Annotations::default()
            },
            ..Tool::new(name)
        },
        runner: Runner::Module(name.to_owned()),
    }
}

fn of(cache: &Arc<ResultCache>, client: &str, scope: CacheScope) -> KeptResults {
    let policy = ResultCaching {
        scope,
        ..ResultCaching::default()
    };
    KeptResults::new(cache.clone(), client).of_run(Uuid::now_v7(), &policy)
}

fn read(results: &KeptResults, arguments: Value) -> CallCaching {
    let call = ToolCall::new("c", "m.read", arguments);
    results.begin(&call, &bound("m.read", true), &Approvals::default(), &Shelf)
}

fn write(results: &KeptResults) -> CallCaching {
    let call = ToolCall::new("w", "m.write", json!({}));
    results.begin(
        &call,
        &bound("m.write", false),
        &Approvals::default(),
        &Shelf,
    )
}

fn is_known(results: &KeptResults, arguments: Value) -> bool {
    matches!(read(results, arguments), CallCaching::Known(_))
}

#[test]
fn what_is_kept_has_a_bound_in_number_and_in_bytes() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Client);
    for n in 0..MAX_ENTRIES + 10 {
        read(&results, json!({"n": n})).keep(&result("x"));
    }
    assert_eq!(cache.state().order.len(), MAX_ENTRIES);
    // The oldest gave way.
    assert!(!is_known(&results, json!({"n": 9})) && is_known(&results, json!({"n": 10})));
    let large = "x".repeat(MAX_RESULT_BYTES - 2);
    for n in 0..40 {
        read(&results, json!({"large": n})).keep(&result(&large));
    }
    let state = cache.state();
    let kept = state.owners.values().flat_map(|owned| owned.kept.values());
    let bytes: usize = kept.map(|kept| kept.value.len()).sum();
    assert!(bytes == state.bytes && bytes <= MAX_BYTES, "{bytes}");
    drop(state);
    // One that is larger is not kept at all.
    read(&results, json!({"larger": 1})).keep(&result(&format!("{large}y")));
    assert!(!is_known(&results, json!({"larger": 1})));
}

#[test]
fn a_result_that_was_read_while_something_changed_is_not_kept() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Client);
    // Of another run of the client, which keeps nothing itself.
    let other = of(&cache, "ann", CacheScope::Off);
    let stranger = of(&cache, "bob", CacheScope::Run);
    let early = write(&other);
    let reading = read(&results, json!({}));
    reading.keep(&result("x"));
    drop(early);
    assert!(
        !is_known(&results, json!({})),
        "it began before any was kept"
    );
    let reading = read(&results, json!({}));
    let writing = write(&other);
    reading.keep(&result("x"));
    assert!(!is_known(&results, json!({})), "it ran meanwhile");
    drop(writing);
    assert!(!is_known(&results, json!({})), "it had begun");
    read(&results, json!({})).keep(&result("x"));
    drop(write(&stranger));
    assert!(is_known(&results, json!({})), "another client's changes");
    let writing = write(&other);
    assert!(!is_known(&results, json!({})), "it runs");
    drop(writing);
    assert!(!is_known(&results, json!({})), "it ran");
}

#[test]
fn nothing_is_left_of_a_run_that_is_over() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Run);
    let over = ResultsOfRun(results.clone());
    read(&results, json!({})).keep(&result("x"));
    assert!(is_known(&results, json!({})));
    let open = read(&results, json!({"other": 1}));
    drop(write(&results));
    drop(open);
    drop(over);
    let state = cache.state();
    assert!(
        state.owners.is_empty() && state.order.is_empty() && state.bytes == 0,
        "{state:?}"
    );
}
