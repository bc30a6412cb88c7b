//! The cost of a direct call by the number of tools beside it: a run of a plan of one call, as `POST /v1/tools/NAME`
//! makes it, without a model, a store or a sandbox. The last line is the ratio that the number of tools makes.
//!
//! `cargo bench -p toolhold-agent --bench direct`
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints its ratio, and says so where it cannot go on"
)]

use criterion::{Criterion, criterion_group};
use futures_util::future::BoxFuture;
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use toolhold_agent::{Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_model::{ChatRequest, CompletionObserver, Model, ModelError};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::{EventKind, NoJournal, StopReason};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolResult, ToolUsage};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::{Execution, Tool};

/// Numbers of tools that are compared.
const FEW: usize = 2;
const MANY: usize = 251;
/// Runs of each kind that the ratio is made of.
const ROUNDS: usize = 300;

/// A plan asks no model.
#[derive(Debug)]
struct Unasked;

impl Model for Unasked {
    fn name(&self) -> &'static str {
        "unasked"
    }

    fn complete<'a>(
        &'a self,
        _: &'a ChatRequest,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async { Ok(Completion::default()) })
    }
}

/// A toolbox of tools of about 300 bytes each.
#[derive(Debug)]
struct Shelf(Vec<Arc<Tool>>);

impl Shelf {
    fn new(count: usize) -> Self {
        let tool = |number: usize| {
            let name = format!("module{number}.tool");
            Arc::new(Tool {
                description: "Does one thing and says what came of it.".into(),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "description": format!("what tool {number} works on")},
                        "mode": {"enum": ["a", "b", "c"]},
                        "depth": {"type": "integer", "minimum": 0},
                    },
                    "required": ["text"],
                    "additionalProperties": false,
                }),
                execution: Execution::Module(name.clone()),
                ..Tool::new(name)
            })
        };
        Self((0..count).map(tool).collect())
    }
}

impl ToolSource for Shelf {
    fn tools(&self) -> Vec<Arc<Tool>> {
        self.0.clone()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { Err(format!("there is no module {name}")) })
    }
}

impl ToolRunner for Shelf {
    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let result = ToolResult {
            outcome: Ok(json!("done").into()),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
        };
        Box::pin(async { result })
    }
}

fn driver(tools: usize) -> Driver {
    Driver::new(Arc::new(Unasked), Arc::new(Shelf::new(tools)))
}

async fn direct_call(driver: &Driver) {
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "");
    request.context.clear();
    request.plan = Some(vec![json!({"_tool": "module0.tool", "text": "some words"})]);
    let mut run = driver.start(request, Box::new(NoJournal)).await.unwrap();
    let mut results = 0;
    while let Some(event) = run.events.recv().await {
        match event.kind {
            EventKind::ToolResult { .. } => results += 1,
            EventKind::Done { reason, .. } => assert_eq!(reason, StopReason::Output),
            other => {
                black_box(other);
            }
        }
    }
    assert_eq!(results, 1);
}

fn direct(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    for count in [FEW, MANY] {
        let driver = driver(count);
        c.bench_function(&format!("direct/run of one call, {count} tools"), |b| {
            b.to_async(&runtime)
                .iter(async || direct_call(&driver).await);
        });
    }
}

/// Measures both kinds in turns, so that a slow moment of the machine meets both, and prints the ratio of the medians.
fn ratio() {
    let runtime = Runtime::new().unwrap();
    let drivers = [driver(FEW), driver(MANY)];
    let mut took: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (driver, took) in drivers.iter().zip(&mut took) {
            let begun = Instant::now();
            runtime.block_on(direct_call(driver));
            took.push(begun.elapsed());
        }
    }
    let [few, many] = took.map(|mut took| {
        took.sort_unstable();
        took[took.len() / 2]
    });
    let ratio = many.as_secs_f64() / few.as_secs_f64();
    println!("direct/{MANY} tools: {ratio:.2} times {FEW} tools ({many:.1?}, {few:.1?})");
}

criterion_group!(benches, direct);

fn main() {
    benches();
    // Cargo passes it where it does not list or test what there is.
    if std::env::args().any(|argument| argument == "--bench") {
        ratio();
    }
    Criterion::default().configure_from_args().final_summary();
}
