//! What reading and writing the context's data costs among 10 000 writes, by the index and by the
//! literal definition of the protocol.
//!
//! `cargo bench -p toolhold-protocol --bench data`
#![expect(
    clippy::unwrap_used,
    reason = "a bench that cannot go on should say so"
)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};
use std::hint::black_box;
use toolhold_protocol::data::{Data, Method, Write};
use toolhold_protocol::reference::{Path, Segment};

#[path = "../src/data/tests/naive.rs"]
mod naive;

const WRITES: usize = 10_000;
/// Every this many writes one goes to an instance.
const INSTANCED: usize = 10;

/// What a long run writes: results under names of their own, a growing list, a summary that is
/// merged.
fn writes() -> Vec<Write> {
    (0..WRITES)
        .map(|i| {
            let result = json!({"id": i, "text": "what a tool returned", "tags": ["a", "b"]});
            let (path, method, value) = match i % 3 {
                0 => (result_path(i), Method::Set, result),
                1 => (path("†state.found"), Method::Push, result),
                _ => (
                    path("†state.summary"),
                    Method::Merge,
                    json!({"last": i, "by": {"tool": i % 20}}),
                ),
            };
            Write {
                path,
                instance: (i % INSTANCED == 0).then(|| "one".to_owned()),
                method,
                value,
            }
        })
        .collect()
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn result_path(i: usize) -> Path {
    let mut path = path("†state.results");
    path.segments.push(Segment::Key(format!("call-{i}")));
    path
}

fn written() -> Data {
    let mut data = Data::default();
    for write in writes() {
        data.write(write).unwrap();
    }
    data
}

fn reading(c: &mut Criterion) {
    let data = written();
    let mut field = result_path(4_998);
    field.segments.push(Segment::Key("text".to_owned()));
    for (what, path, instance) in [
        ("a result's field", field.clone(), None),
        ("the same through an instance", field, Some("one")),
        (
            "an element of a pushed list",
            path("†state.found[2000].id"),
            None,
        ),
        ("a merged field", path("†state.summary.by.tool"), None),
    ] {
        let by_index: Value = data.read(&path, instance).unwrap().into_owned();
        let by_definition = naive::read(data.log(), &path, instance).unwrap();
        assert_eq!(by_index, by_definition, "{path}");
        let mut group = c.benchmark_group(format!("data/read {what} among {WRITES} writes"));
        group.bench_function("index", |b| {
            b.iter(|| black_box(data.read(black_box(&path), instance)).is_ok());
        });
        group.sample_size(10).bench_function("definition", |b| {
            b.iter(|| naive::read(black_box(data.log()), black_box(&path), instance));
        });
        group.finish();
    }
}

/// All of them: divide by their number, which the throughput does.
fn writing(c: &mut Criterion) {
    let mut group = c.benchmark_group("data/write");
    group.throughput(Throughput::Elements(WRITES as u64));
    group.sample_size(20);
    group.bench_function(format!("{WRITES} from nothing"), |b| {
        b.iter_batched(
            writes,
            |writes| {
                let mut data = Data::default();
                for write in writes {
                    data.write(write).unwrap();
                }
                data
            },
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

criterion_group!(benches, reading, writing);
criterion_main!(benches);
