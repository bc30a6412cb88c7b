//! Hundreds of items as instances of one Request, against a Request for each: the host's own time, with
//! a model that answers at once. What a real model takes for each Request comes on top of the second.
//!
//! `cargo bench -p toolhold-agent --bench batch`
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot go on should say so"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::runtime::Runtime;
use toolhold_agent::{Driver, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_model::{ChatRequest, CompletionObserver, Model, ModelError};
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::compose::Shape;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolResult, ToolUsage};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::Execution;
use toolhold_protocol::tool::Tool;

const ITEMS: usize = 200;

/// Makes the calls that it was given, each time.
#[derive(Debug)]
struct Planned {
    reply: String,
    asked: AtomicU32,
}

impl Planned {
    /// Calls and the output at once: one Request is enough.
    fn new(calls: &[Value]) -> Arc<Self> {
        Arc::new(Self {
            reply: json!({"calls": calls, "output": "done"}).to_string(),
            asked: AtomicU32::new(0),
        })
    }
}

impl Model for Planned {
    fn name(&self) -> &'static str {
        "planned"
    }

    fn complete<'a>(
        &'a self,
        _: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        watch.delta(Delta::Content(self.reply.clone()));
        let reply = Completion {
            content: self.reply.clone(),
            ..Completion::default()
        };
        Box::pin(async { Ok(reply) })
    }
}

#[derive(Debug)]
struct Upper;

impl ToolSource for Upper {
    fn tools(&self) -> Vec<Arc<Tool>> {
        vec![Arc::new(Tool {
            parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
            execution: Execution::Module("text.up".into()),
            ..Tool::new("text.up")
        })]
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move { Err(format!("there is no module {name}")) })
    }
}

impl ToolRunner for Upper {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let text = call.arguments["text"].as_str().unwrap_or_default();
        let result = ToolResult {
            outcome: Ok(json!(text.to_uppercase()).into()),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
        };
        Box::pin(async { result })
    }
}

fn call(item: Option<usize>) -> Value {
    let mut call = json!({"_tool": "text.up", "text": "†input.text", "_outputPath": "†state.up"});
    if let Some(item) = item {
        call["_instance"] = json!(format!("item{item}"));
    }
    call
}

fn request(items: impl Iterator<Item = (Option<usize>, usize)>) -> RunRequest {
    let messages: Value = items
        .map(|(instance, n)| {
            let mut message = json!({"type": "input", "input": {"text": format!("item {n}")}, "schema": {"type": "object"}});
            if let Some(instance) = instance {
                message["_instance"] = json!(format!("item{instance}"));
            }
            message
        })
        .collect();
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "Write the text in capitals.");
    request
        .context
        .extend(Message::parse_all(&messages).unwrap());
    request.settings.shape = Shape::Both;
    request
}

async fn run(driver: &Driver, request: RunRequest) -> usize {
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
    results
}

fn batch(c: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = c.benchmark_group(format!("batch/{ITEMS} items"));
    group.throughput(Throughput::Elements(ITEMS as u64));
    group.sample_size(10);

    let all: Vec<Value> = (0..ITEMS).map(|n| call(Some(n))).collect();
    let model = Planned::new(&all);
    let driver = Driver::new(model.clone(), Arc::new(Upper));
    let together = || request((0..ITEMS).map(|n| (Some(n), n)));
    assert_eq!(runtime.block_on(run(&driver, together())), ITEMS);
    assert_eq!(model.asked.load(Ordering::Relaxed), 1);
    group.bench_function("in one request", |b| {
        b.to_async(&runtime)
            .iter(async || assert_eq!(run(&driver, together()).await, ITEMS));
    });

    let driver = Driver::new(Planned::new(&[call(None)]), Arc::new(Upper));
    group.bench_function("a request for each", |b| {
        b.to_async(&runtime).iter(async || {
            for n in 0..ITEMS {
                assert_eq!(run(&driver, request([(None, n)].into_iter())).await, 1);
            }
        });
    });
    group.finish();
}

criterion_group!(benches, batch);
criterion_main!(benches);
