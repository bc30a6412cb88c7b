use super::*;
use crate::toolbox::ToolRunner;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::tool::{Annotations, Tool};

#[derive(Debug)]
struct Shelf;

impl ToolSource for Shelf {
    fn tools(&self) -> Vec<Arc<Tool>> {
        Vec::new()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
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
}

impl ToolRunner for Shelf {
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
        tool: Arc::new(Tool {
            annotations: Annotations {
                read_only,
                ..Annotations::default()
            },
            ..Tool::new(name)
        }),
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
    results.begin(&call, &bound("m.read", true), || false, &Shelf)
}

fn write(results: &KeptResults) -> CallCaching {
    let call = ToolCall::new("w", "m.write", json!({}));
    results.begin(&call, &bound("m.write", false), || false, &Shelf)
}

fn is_known(results: &KeptResults, arguments: Value) -> bool {
    matches!(read(results, arguments), CallCaching::Known(_))
}

/// The client that fills the cache loses results of its own, and nobody else's.
#[test]
fn a_client_that_fills_the_cache_leaves_the_results_of_others() {
    let cache = Arc::<ResultCache>::default();
    let (greedy, other) = (
        of(&cache, "greedy", CacheScope::Client),
        of(&cache, "other", CacheScope::Client),
    );
    for n in 0..10 {
        read(&other, json!({"mine": n})).keep(&result("x"), false);
    }
    for n in 0..MAX_ENTRIES + 100 {
        read(&greedy, json!({"n": n})).keep(&result("x"), false);
    }
    let large = "x".repeat(MAX_RESULT_BYTES - ENTRY_BYTES - 3);
    for n in 0..40 {
        read(&greedy, json!({"large": n})).keep(&result(&large), false);
    }
    assert!((0..10).all(|n| is_known(&other, json!({"mine": n}))));
    // Who comes later gets a place, too.
    let late = of(&cache, "late", CacheScope::Client);
    read(&late, json!({})).keep(&result(&large), false);
    assert!(is_known(&late, json!({})));
    assert!((0..10).all(|n| is_known(&other, json!({"mine": n}))));
    let state = cache.state();
    let bytes: usize = state.owners.values().map(|owned| owned.bytes).sum();
    assert!(bytes == state.bytes && bytes <= MAX_BYTES, "{bytes}");
}

#[test]
fn what_is_kept_has_a_bound_in_number_and_in_bytes() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Client);
    for n in 0..MAX_ENTRIES + 10 {
        read(&results, json!({"n": n})).keep(&result("x"), false);
    }
    assert_eq!(cache.state().entries, MAX_ENTRIES);
    // The oldest gave way.
    assert!(!is_known(&results, json!({"n": 9})) && is_known(&results, json!({"n": 10})));
    let large = "x".repeat(MAX_RESULT_BYTES - ENTRY_BYTES - 3);
    for n in 0..40 {
        read(&results, json!({"large": n})).keep(&result(&large), false);
    }
    let state = cache.state();
    let kept = state.owners.values().flat_map(|owned| owned.kept.values());
    let bytes: usize = kept.map(|kept| kept.content.bytes()).sum();
    assert!(bytes == state.bytes && bytes <= MAX_BYTES, "{bytes}");
    drop(state);
    // One that is larger is not kept at all.
    read(&results, json!({"larger": 1})).keep(&result(&format!("{large}y")), false);
    assert!(!is_known(&results, json!({"larger": 1})));
    // Nor one whose place for its output is long.
    let mut placed = result("x");
    if let Ok(output) = &mut placed.outcome {
        output.output_path = Some(large[8..].to_owned());
    }
    placed.module = Some("x".into());
    read(&results, json!({"placed": 1})).keep(&placed, false);
    assert!(is_known(&results, json!({"placed": 1})));
    if let Ok(output) = &mut placed.outcome {
        output.output_path = Some("x".repeat(MAX_RESULT_BYTES));
    }
    read(&results, json!({"placed": 2})).keep(&placed, false);
    assert!(!is_known(&results, json!({"placed": 2})));
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
    reading.keep(&result("x"), false);
    drop(early);
    assert!(
        !is_known(&results, json!({})),
        "it began before any was kept"
    );
    let reading = read(&results, json!({}));
    let writing = write(&other);
    reading.keep(&result("x"), false);
    assert!(!is_known(&results, json!({})), "it ran meanwhile");
    drop(writing);
    assert!(!is_known(&results, json!({})), "it had begun");
    read(&results, json!({})).keep(&result("x"), false);
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
    let over = ResultsOfRun::new(results.clone(), false);
    read(&results, json!({})).keep(&result("x"), false);
    assert!(is_known(&results, json!({})));
    let open = read(&results, json!({"other": 1}));
    drop(over);
    // A call that ends after its run.
    open.keep(&result("x"), false);
    let state = cache.state();
    assert!(
        state.owners.is_empty() && state.entries == 0 && state.bytes == 0,
        "{state:?}"
    );
}

#[test]
fn what_one_run_of_a_client_changes_is_known_to_its_others() {
    let cache = Arc::<ResultCache>::default();
    let [one, other] = [(); 2].map(|()| of(&cache, "ann", CacheScope::Run));
    read(&one, json!({})).keep(&result("x"), false);
    assert!(is_known(&one, json!({})) && !is_known(&other, json!({})));
    drop(write(&other));
    assert!(!is_known(&one, json!({})));
}

/// The client's own tools run between its runs.
#[test]
fn a_run_with_tools_of_the_client_takes_away_what_was_kept_before_and_during_it() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Client);
    read(&results, json!({})).keep(&result("x"), false);
    drop(ResultsOfRun::new(results.clone(), false));
    let results = of(&cache, "ann", CacheScope::Client);
    assert!(is_known(&results, json!({})));
    let run = ResultsOfRun::new(results.clone(), true);
    assert!(!is_known(&results, json!({})), "before");
    read(&results, json!({})).keep(&result("x"), false);
    assert!(is_known(&results, json!({})));
    drop(run);
    let results = of(&cache, "ann", CacheScope::Client);
    assert!(!is_known(&results, json!({})), "during");
}

#[test]
fn results_of_calls_that_made_calls_are_not_kept() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Run);
    read(&results, json!({})).keep(&result("x"), true);
    assert!(!is_known(&results, json!({})));
}

#[test]
fn tools_that_a_person_is_asked_about_have_no_results() {
    let cache = Arc::<ResultCache>::default();
    let results = of(&cache, "ann", CacheScope::Run);
    let call = ToolCall::new("c", "m.read", json!({}));
    let caching = results.begin(&call, &bound("m.read", true), || true, &Shelf);
    assert!(matches!(caching, CallCaching::None));
}
