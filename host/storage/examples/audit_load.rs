//! How much a durable call costs in the storage alone: `cargo run --release -p toolhold-storage --example audit_load`.
//!
//! A call is what `toolhold mcp` writes for one: its begin, which survives a killed process, and its end with the row of
//! the audit log, which survives a crash of the machine. Printed are calls a second, CPU time and context switches of
//! this process for each call. The database is in the folder for temporary files, or in the one that is named.
#![expect(
    clippy::print_stdout,
    reason = "this is a program for a person at a terminal"
)]

use serde_json::{Map, json};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use toolhold_protocol::result::ToolUsage;
use toolhold_storage::{AuditContent, CallRecord, Durability, Location, Store};

/// Callers at the same time, and calls of each.
const LEVELS: [(usize, usize); 3] = [(1, 1_000), (16, 250), (64, 100)];
/// Calls before the first measurement.
const WARM_UP: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(
        std::env::args_os()
            .nth(1)
            .unwrap_or_else(|| std::env::temp_dir().into()),
    )?;
    let location = Location::File(folder.path().join("toolhold.db"));
    let store = Store::open(&location, Duration::from_secs(30)).await?;
    calls(&store, 0, WARM_UP).await?;
    println!("callers   calls/s   CPU µs a call   switches a call");
    for (callers, each) in LEVELS {
        let (before, began) = (Spent::now()?, Instant::now());
        let mut tasks = JoinSet::new();
        for caller in 1..=callers {
            let store = store.clone();
            tasks.spawn(async move { calls(&store, caller, each).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let (elapsed, after) = (began.elapsed(), Spent::now()?);
        let count = (callers * each) as f64;
        println!(
            "{callers:>7} {:>9.0} {:>15.1} {:>17.2}",
            count / elapsed.as_secs_f64(),
            (after.cpu_ns - before.cpu_ns) as f64 / 1_000.0 / count,
            (after.switches - before.switches) as f64 / count,
        );
    }
    Ok(())
}

/// Makes `count` calls one after the other.
async fn calls(store: &Store, caller: usize, count: usize) -> std::io::Result<()> {
    let content = AuditContent::default();
    for number in 0..count {
        let record = CallRecord {
            id: format!("{caller}-{number}-{count}"),
            tool: "calculator.evaluate".into(),
            arguments: json!({"expression": "1 + 1"}),
            policy: "p".into(),
            owner: "mcp:stdio".into(),
            way: Map::from_iter([("via".to_owned(), "mcp".into())]),
        };
        store.audit_begin(&record, Durability::OnDisk).await?;
        let (id, output) = (record.id.clone(), json!({"value": 2}));
        let row = record.ended(&content, Ok(&output), &ToolUsage::default(), None, false);
        let written = store.audit_call(&id, row, Durability::OnDisk, Box::new(()));
        written.await?;
    }
    Ok(())
}

/// Processor time and context switches of all threads of this process so far.
struct Spent {
    cpu_ns: u64,
    switches: u64,
}

impl Spent {
    fn now() -> std::io::Result<Self> {
        let mut spent = Self {
            cpu_ns: 0,
            switches: 0,
        };
        for thread in std::fs::read_dir("/proc/self/task")? {
            spent.add(&thread?.path())?;
        }
        Ok(spent)
    }

    fn add(&mut self, thread: &Path) -> std::io::Result<()> {
        let times = std::fs::read_to_string(thread.join("schedstat"))?;
        self.cpu_ns += number(times.split_whitespace().next());
        let status = std::fs::read_to_string(thread.join("status"))?;
        for line in status.lines() {
            if line.contains("voluntary_ctxt_switches") {
                self.switches += number(line.split_whitespace().last());
            }
        }
        Ok(())
    }
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
