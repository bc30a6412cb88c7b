//! What the loop itself costs for each call of a reply whose calls pass data on: references read,
//! order found, arguments filled in and checked, results written, the next calls begun.
//!
//! `cargo bench -p toolhold-agent --bench schedule`
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot go on should say so"
)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use toolhold_agent::catalogue::ToolCatalogue;
use toolhold_agent::run::{Action, Effects, Input, Machine};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::context::Message;
use toolhold_protocol::result::{ToolResult, ToolUsage};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::Execution;
use toolhold_protocol::tool::Tool;

const CALLS: usize = 200;

fn tool() -> Bound {
    let tool = Tool {
        parameters: json!({"type": "object", "properties": {"x": {}}, "required": ["x"]}),
        execution: Execution::Module("m.t".into()),
        ..Tool::new("m.t")
    };
    Bound {
        runner: Runner::Module(tool.name.clone()),
        tool: tool.into(),
    }
}

/// Calls in `layers`, each of which reads what its neighbour in the layer before wrote.
fn reply(layers: usize) -> Completion {
    let width = CALLS / layers;
    let call = |i: usize| {
        let (layer, place) = (i / width, i % width);
        let x = match layer.checked_sub(1) {
            None => json!("begin"),
            Some(before) => json!(format!("†state.l{before}.p{place}")),
        };
        json!({"_tool": "m.t", "x": x, "_outputPath": format!("†state.l{layer}.p{place}")})
    };
    let calls: Vec<Value> = (0..CALLS).map(call).collect();
    Completion {
        content: json!({"calls": calls, "output": null}).to_string(),
        ..Completion::default()
    }
}

fn machine() -> Machine {
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "task");
    request.settings.max_calls = CALLS;
    request
        .context
        .extend(Message::parse_all(&json!([{"type": "state", "state": {"given": 1}}])).unwrap());
    let mut machine = Machine::new(
        request,
        "m".into(),
        ToolCatalogue::new([tool()]).unwrap(),
        Vec::new(),
    )
    .unwrap();
    machine.handle(Input::Start, Duration::ZERO);
    machine
}

/// Answers every call in the order in which it was begun, until the next Request.
fn drive(machine: &mut Machine, reply: Completion) -> usize {
    let mut begun = VecDeque::new();
    let mut made = 0;
    let mut effects = machine.handle(Input::Replied(reply), Duration::ZERO);
    loop {
        take(effects, &mut begun);
        let Some(id) = begun.pop_front() else {
            return made;
        };
        made += 1;
        let result = ToolResult {
            outcome: Ok(json!({"n": made, "text": "what a tool returned"}).into()),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
        };
        effects = machine.handle(Input::Called { id, result }, Duration::ZERO);
    }
}

fn take(effects: Effects, begun: &mut VecDeque<String>) {
    for action in effects.actions {
        if let Action::Call(work) = action {
            begun.push_back(work.call.id);
        }
    }
}

fn scheduling(c: &mut Criterion) {
    let mut group = c.benchmark_group(format!("schedule/{CALLS} calls, by call"));
    group.throughput(Throughput::Elements(CALLS as u64));
    group.sample_size(20);
    for layers in [1, 20, 200] {
        let reply = reply(layers);
        assert_eq!(drive(&mut machine(), reply.clone()), CALLS);
        group.bench_function(format!("{layers} layers"), |b| {
            b.iter_batched(
                || (machine(), reply.clone()),
                |(mut machine, reply)| {
                    drive(&mut machine, reply);
                    machine
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, scheduling);
criterion_main!(benches);
