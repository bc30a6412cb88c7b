//! Section 7.8: calls that only read are given the result of an equal call, where the run allows it.

use super::support::{NoModules, Reply, Script, end, json_of, lines, request, run};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use toolhold_agent::calls::{KeptResults, ResultCache};
use toolhold_agent::run::decider::Decider;
use toolhold_agent::{Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_protocol::decision::{Decision, DecisionMode, Pending, Verdict};
use toolhold_protocol::event::Event;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::result_cache::CacheScope;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{Annotations, Execution, Tool};
use uuid::Uuid;

/// `shop.price` and `shop.fails` only read, `shop.buy` writes.
#[derive(Debug, Default)]
struct Shop {
    /// What its results depend on, besides a call's arguments.
    grant: Value,
    made: Mutex<BTreeMap<String, usize>>,
}

impl Shop {
    fn made(&self, tool: &str) -> usize {
        let made = self.made.lock().unwrap();
        made.get(tool).copied().unwrap_or_default()
    }
}

impl ToolSource for Shop {
    fn tools(&self) -> Vec<Arc<Tool>> {
        ["shop.price", "shop.fails", "shop.buy"]
            .map(|name| Tool {
                parameters: json!({"type": "object"}),
                execution: Execution::Module(name.into()),
                annotations: Annotations {
                    read_only: name != "shop.buy",
                    ..Annotations::default()
                },
                ..Tool::new(name)
            })
            .map(Arc::new)
            .into()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { NoModules.module(name).await })
    }

    fn result_depends_on(&self, _: &ToolCall) -> Option<Value> {
        Some(self.grant.clone())
    }
}

impl ToolRunner for Shop {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let times = {
            let mut made = self.made.lock().unwrap();
            let times = made.entry(call.tool.clone()).or_default();
            *times += 1;
            *times
        };
        let failed = ToolFailure::correctable("closed", "it is closed");
        let mut result = ToolResult::failed(failed);
        if call.tool != "shop.fails" {
            result.outcome = Ok(json!(times).into());
        }
        Box::pin(std::future::ready(result))
    }
}

/// A person who lets every call be made.
#[derive(Debug)]
struct Willing;

impl Decider for Willing {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(Decision {
            digest: pending.digest.clone(),
            verdict: Verdict::Approve,
            by: None,
        }))
    }
}

/// One step for each call, and an end.
fn script(calls: &[Value]) -> Arc<Script> {
    let steps = calls
        .iter()
        .map(|call| Reply::calls(std::slice::from_ref(call)));
    Script::new(steps.chain([Reply::output("done")]))
}

fn price(of: &str) -> Value {
    json!({"_tool": "shop.price", "of": of, "in": "EUR"})
}

fn caching(scope: CacheScope) -> RunRequest {
    let mut request = request([]);
    request.settings.result_cache.scope = scope;
    request
}

async fn calls(shop: &Arc<Shop>, request: RunRequest, calls: &[Value]) -> Vec<Value> {
    let driver = Driver::new(script(calls), shop.clone());
    told(&run(&driver, request).await)
}

/// The output of each call, and the call whose result it is.
fn told(events: &[Event]) -> Vec<Value> {
    assert_eq!(end(events).0, "output", "{}", lines(events));
    let all = events.iter().map(json_of);
    let results = all.filter(|event| event["event"] == "tool_result");
    results
        .map(|it| json!([it["output"], it["cached"]["call"]]))
        .collect()
}

#[tokio::test]
async fn an_equal_call_of_the_run_is_given_the_result() {
    let shop = Arc::<Shop>::default();
    // The order of the arguments is none of their meaning.
    let again = json!({"_tool": "shop.price", "in": "EUR", "of": "tea"});
    let asked = [price("tea"), again.clone(), price("milk")];
    let driver = Driver::new(script(&asked), shop.clone());
    let events = run(&driver, caching(CacheScope::Run)).await;
    let ids: Vec<Value> = events.iter().map(json_of).collect();
    let first = ids
        .iter()
        .find(|event| event["event"] == "tool_start")
        .unwrap();
    assert_eq!(
        told(&events),
        [json!([1, null]), json!([1, first["id"]]), json!([2, null])]
    );
    let cached = ids
        .iter()
        .find(|event| event["cached"].is_object())
        .unwrap();
    assert_eq!(cached["cached"]["run"], json!(events[0].run));
    assert_eq!(cached["usage"]["duration_us"], 0);
    assert_eq!(shop.made("shop.price"), 2);
    // The next run of the same driver begins with nothing.
    let driver = Driver {
        model: script(&[again]),
        ..driver
    };
    let events = run(&driver, caching(CacheScope::Run)).await;
    assert_eq!(told(&events), [json!([3, null])]);
}

#[tokio::test]
async fn without_being_asked_every_call_is_made() {
    let shop = Arc::<Shop>::default();
    let told = calls(&shop, request([]), &[price("tea"), price("tea")]).await;
    assert_eq!(told, [json!([1, null]), json!([2, null])]);
}

#[tokio::test]
async fn a_call_that_may_have_changed_something_takes_the_results_away() {
    let shop = Arc::<Shop>::default();
    let buy = json!({"_tool": "shop.buy"});
    let asked = [price("tea"), buy, price("tea")];
    let told = calls(&shop, caching(CacheScope::Run), &asked).await;
    assert_eq!(told, [json!([1, null]), json!([1, null]), json!([2, null])]);
}

#[tokio::test]
async fn failures_and_what_a_person_is_asked_about_are_not_kept() {
    let shop = Arc::<Shop>::default();
    let fails = json!({"_tool": "shop.fails"});
    calls(&shop, caching(CacheScope::Run), &[fails.clone(), fails]).await;
    assert_eq!(shop.made("shop.fails"), 2);
    let mut asked = caching(CacheScope::Run);
    asked.settings.decisions.default = DecisionMode::Always;
    let driver = Driver {
        decider: Arc::new(Willing),
        ..Driver::new(script(&[price("tea"), price("tea")]), shop.clone())
    };
    let told = told(&run(&driver, asked).await);
    assert_eq!(told, [json!([1, null]), json!([2, null])]);
    let mut others = caching(CacheScope::Run);
    others.settings.result_cache.tools = vec!["shop.fails".into()];
    let told = calls(&shop, others, &[price("tea"), price("tea")]).await;
    assert_eq!(told, [json!([3, null]), json!([4, null])]);
    let mut old = caching(CacheScope::Run);
    old.settings.result_cache.max_age = Duration::ZERO;
    let told = calls(&shop, old, &[price("tea"), price("tea")]).await;
    assert_eq!(told, [json!([5, null]), json!([6, null])]);
}

/// Another client, another grant, another module: nothing passes from one to the other.
#[tokio::test]
async fn another_run_of_the_same_client_is_given_the_result_and_of_another_is_not() {
    let cache = Arc::<ResultCache>::default();
    let run = async |shop: &Arc<Shop>, client: &str| {
        let driver = Driver {
            results: KeptResults::new(cache.clone(), client),
            ..Driver::new(script(&[price("tea")]), shop.clone())
        };
        let told = told(&run(&driver, caching(CacheScope::Client)).await);
        told[0][0].clone()
    };
    let shop = Arc::<Shop>::default();
    assert_eq!(run(&shop, "ann").await, 1);
    assert_eq!(run(&shop, "ann").await, 1);
    assert_eq!(run(&shop, "bob").await, 2);
    assert_eq!(run(&shop, "ann").await, 1);
    let narrowed = Arc::new(Shop {
        grant: json!("less"),
        ..Shop::default()
    });
    assert_eq!(run(&narrowed, "ann").await, 1);
    assert_eq!(narrowed.made("shop.price"), 1);
    // What one run changes, no other run of the client takes for what it was.
    let driver = Driver {
        results: KeptResults::new(cache.clone(), "ann"),
        ..Driver::new(script(&[json!({"_tool": "shop.buy"})]), shop.clone())
    };
    super::support::run(&driver, request([])).await;
    assert_eq!(run(&shop, "ann").await, 3);
    assert_eq!(run(&shop, "bob").await, 2);
}
