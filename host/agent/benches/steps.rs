//! What the loop itself costs: a step without model time and tool time.
//!
//! `cargo bench -p toolhold-agent`
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot go on should say so"
)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use toolhold_agent::catalogue::ToolCatalogue;
use toolhold_agent::run::{Input, Machine};
use toolhold_agent::{Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_model::{ChatRequest, CompletionObserver, Model, ModelError};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolResult, ToolUsage};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::Execution;
use toolhold_protocol::tool::Tool;

const TOOLS: usize = 20;
const STEPS: u32 = 10;

fn tools() -> Vec<Tool> {
    (0..TOOLS)
        .map(|i| {
            let name = format!("module{i}.tool");
            Tool {
                description: "Does one thing and says what. ".repeat(5),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "text": {"type": "string", "description": "what to work on"},
                        "mode": {"enum": ["a", "b", "c"]},
                        "options": {"type": "object", "properties": {"depth": {"type": "integer", "minimum": 0}}},
                    },
                    "required": ["text"],
                    "additionalProperties": false,
                }),
                execution: Execution::Module(name.clone()),
                ..Tool::new(name)
            }
        })
        .collect()
}

/// Calls a tool nine times, then answers; takes no time to think.
#[derive(Debug, Default)]
struct Instant(AtomicU32);

impl Model for Instant {
    fn name(&self) -> &'static str {
        "instant"
    }

    fn complete<'a>(
        &'a self,
        _: &'a ChatRequest,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let n = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(completion(n)) })
    }
}

fn completion(n: u32) -> Completion {
    let content = if n % STEPS == STEPS - 1 {
        json!({"calls": [], "output": "done"})
    } else {
        json!({"calls": [{"_tool": format!("module{}.tool", n % 20), "_reasoningForCall": "r", "text": format!("{n}")}], "output": null})
    };
    Completion {
        content: content.to_string(),
        duration: Duration::ZERO,
        ..Completion::default()
    }
}

#[derive(Debug)]
struct Nothing;

impl ToolSource for Nothing {
    fn tools(&self) -> Vec<Arc<Tool>> {
        tools().into_iter().map(Arc::new).collect()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { Err(format!("there is no module {name}")) })
    }
}

impl ToolRunner for Nothing {
    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async { result() })
    }
}

fn bound() -> Vec<Bound> {
    let bound = |tool: Tool| Bound {
        runner: Runner::Module(tool.name.clone()),
        tool: Arc::new(tool),
    };
    tools().into_iter().map(bound).collect()
}

fn result() -> ToolResult {
    ToolResult {
        outcome: Ok(json!({"value": "x".repeat(200)}).into()),
        usage: ToolUsage::default(),
        printed: Vec::new(),
        module: None,
        cached: None,
    }
}

/// Yardstick of this machine's speed: JSON of the size of twenty tools, read and written. `cargo xtask bench`
/// divides the other two by it.
fn yardstick(c: &mut Criterion) {
    let tools = tools();
    let all: Vec<_> = tools.iter().map(|tool| &tool.parameters).collect();
    let text = serde_json::to_string(&all).unwrap();
    c.bench_function("yardstick/JSON of 20 tools", |b| {
        b.iter(|| {
            let value: Value = serde_json::from_str(black_box(&text)).unwrap();
            black_box(value.to_string())
        });
    });
}

/// One step of the machine: reply read, call validated, result taken, next Request composed.
fn machine(c: &mut Criterion) {
    c.bench_function("machine/step, 20 tools", |b| {
        b.iter_batched(
            || {
                let mut machine = Machine::new(
                    RunRequest::new(uuid::Uuid::now_v7(), "task"),
                    "m".into(),
                    ToolCatalogue::new(bound()).unwrap(),
                    Vec::new(),
                )
                .unwrap();
                machine.handle(Input::Start, Duration::ZERO);
                machine
            },
            |mut machine| {
                let effects = machine.handle(Input::Replied(completion(0)), Duration::ZERO);
                let id = effects
                    .actions
                    .iter()
                    .find_map(|action| match action {
                        toolhold_agent::run::Action::Call(work) => Some(work.call.id.clone()),
                        _ => None,
                    })
                    .unwrap();
                black_box(machine.handle(
                    Input::Called {
                        id,
                        result: result(),
                    },
                    Duration::ZERO,
                ));
                machine
            },
            BatchSize::SmallInput,
        );
    });
}

/// A whole run of ten steps through the driver, events read: divide by ten.
fn driver(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let driver = Driver::new(Arc::new(Instant::default()), Arc::new(Nothing));
    c.bench_function("driver/run of 10 steps, 20 tools", |b| {
        b.to_async(&runtime).iter(async || {
            let mut run = driver
                .start(
                    RunRequest::new(uuid::Uuid::now_v7(), "task"),
                    Box::new(NoJournal),
                )
                .await
                .unwrap();
            while let Some(event) = run.events.recv().await {
                black_box(event);
            }
        });
    });
}

criterion_group!(benches, yardstick, machine, driver);
criterion_main!(benches);
