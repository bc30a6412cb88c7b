//! What composing the one schema costs that goes to the model, with many tools.
//!
//! `cargo bench -p toolhold-protocol --bench schema`

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;
use std::hint::black_box;
use toolhold_protocol::compose::{Composition, compose};
use toolhold_protocol::tool::{Execution, Tool};

const TOOLS: usize = 200;

/// Tools as modules have them: five parameters, one of them an object with a definition.
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
                        "count": {"type": "integer", "minimum": 0, "maximum": 100},
                        "when": {"type": "string", "format": "date-time"},
                        "where": {"$ref": "#/$defs/Place"},
                    },
                    "required": ["text"],
                    "additionalProperties": false,
                    "$defs": {"Place": {"type": "object", "properties": {
                        "city": {"type": "string"}, "lat": {"type": "number"}, "lon": {"type": "number"},
                    }, "required": ["city"]}},
                }),
                execution: Execution::Module(name.clone()),
                ..Tool::new(name)
            }
        })
        .collect()
}

fn composing(c: &mut Criterion) {
    let tools = tools();
    let instances: Vec<String> = (0..100).map(|n| format!("item{n}")).collect();
    let plain = Composition {
        reasons: true,
        max_calls: 8,
        ..Composition::default()
    };
    let wired = Composition {
        wiring: true,
        ..plain
    };
    let batch = Composition {
        instances: &instances,
        ..wired
    };
    let mut group = c.benchmark_group(format!("compose/{TOOLS} tools"));
    group.throughput(Throughput::Elements(TOOLS as u64));
    for (what, how) in [
        ("plain", plain),
        ("wired", wired),
        ("wired, 100 instances", batch),
    ] {
        group.bench_function(what, |b| {
            b.iter(|| black_box(compose(black_box(&tools), None, how)));
        });
    }
    group.finish();
}

criterion_group!(benches, composing);
criterion_main!(benches);
