//! A step of the machine whose checks take long leaves the thread of its runtime to other tasks.

use super::support::{Reply, Script, driver, end, request, rest, results};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use toolhold_agent::Activities;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{Event, EventKind, Journal};
use toolhold_protocol::failure::ToolFailure;

/// Numbers in the list that is checked: far more steps than a brief check has.
const NUMBERS: u64 = 400_000;

/// Remembers how often another task of the thread had its turn when events were recorded, and whether they began a call.
#[derive(Debug, Clone, Default)]
struct Turns {
    taken: Arc<AtomicU64>,
    at_writes: Arc<Mutex<Vec<(u64, bool)>>>,
}

impl Journal for Turns {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        let taken = self.taken.load(Ordering::Relaxed);
        let begins = |event: &Event| matches!(event.kind, EventKind::ToolStart { .. });
        let write = (taken, events.iter().any(begins));
        self.at_writes.lock().unwrap().push(write);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn numbers(_: Value) -> BoxFuture<'static, Result<Value, ToolFailure>> {
    Box::pin(std::future::ready(Ok((0..NUMBERS)
        .map(Value::from)
        .collect())))
}

fn length(arguments: Value) -> BoxFuture<'static, Result<Value, ToolFailure>> {
    let length = arguments["of"].as_array().map_or(0, Vec::len);
    Box::pin(std::future::ready(Ok(json!(length))))
}

/// The runtime has one thread: while the machine checks on it, no other task has a turn.
#[tokio::test]
async fn a_long_step_leaves_its_thread_to_other_tasks() {
    let turns = Turns::default();
    let taken = turns.taken.clone();
    let other = tokio::spawn(async move {
        loop {
            taken.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let of = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
    let tools = json!([{"type": "tool", "tool": {
        "numbers": {"type": "object"},
        "length": {"type": "object", "properties": {"of": of}},
    }}]);
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "numbers", "_outputPath": "†state.list"})]),
        Reply::calls(&[json!({"_tool": "length", "of": "†state.list"})]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("numbers", numbers)
        .with("length", length);
    let driver = driver(&script, activities);
    let request = request(Message::parse_all(&tools).unwrap());
    let run = driver.start(request, Box::new(turns.clone())).await;
    let events = rest(run.unwrap()).await;
    other.abort();
    assert_eq!(end(&events).0, "output");
    assert_eq!(
        results(&events)[1].1,
        json!({"output": NUMBERS}),
        "{:?}",
        results(&events)[1]
    );
    // The step that fills the arguments of the last call, checks them and begins the call.
    let at_writes = turns.at_writes.lock().unwrap();
    let begun = at_writes.iter().rposition(|(_, begins)| *begins).unwrap();
    let turns = at_writes[begun].0 - at_writes[begun - 1].0;
    assert!(turns > 100, "{turns} turns of the other task");
}
