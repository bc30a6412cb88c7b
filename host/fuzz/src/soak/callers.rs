//! Who calls what in a soak.

use super::watch::Counts;
use crate::json;
use arbitrary::Unstructured;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::MissedTickBehavior;
use toolhold_policy::{CallError, Caller, Invocation, Output};
use toolhold_sandbox::Registry;

pub const TENANTS: [&str; 3] = ["", "ada", "bob"];
const SESSIONS: u32 = 4;

pub fn sessions() -> impl Iterator<Item = String> {
    (0..SESSIONS).map(|number| format!("s{number}"))
}

pub fn session(random: &mut StdRng) -> String {
    format!("s{}", random.random_range(0..SESSIONS))
}

/// Calls of the benign module, whose result is known.
#[derive(Debug, Default)]
pub struct Benign {
    calls: AtomicU64,
    refused: AtomicU64,
    slowest_micros: AtomicU64,
    faults: Mutex<Vec<String>>,
}

impl Benign {
    /// Calls until `stopped`.
    pub async fn call(self: Arc<Self>, registry: Registry, stopped: Receiver<bool>) {
        let mut turns = tokio::time::interval(Duration::from_millis(5));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let arguments = json!({});
        while !*stopped.borrow() {
            // From when the call was due: what keeps the runtime's threads from beginning it counts, too.
            let due = turns.tick().await;
            let report = registry
                .call(&Invocation::new("benign", "benign.count", &arguments))
                .await;
            let micros = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.slowest_micros.fetch_max(micros, Ordering::Relaxed);
            self.calls.fetch_add(1, Ordering::Relaxed);
            match report.result {
                Ok(Output::Value(value) | Output::Message(value)) if value == json!(2) => {}
                // All places were taken until its deadline: that is told, and counted.
                Err(CallError::Busy { .. } | CallError::Deadline { .. }) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                other => {
                    let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
                    if faults.len() < 20 {
                        faults.push(format!("a benign call gave {other:?}"));
                    }
                }
            }
        }
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest_micros.load(Ordering::Relaxed))
    }

    pub fn take_faults(&self) -> Vec<String> {
        mem::take(&mut self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Calls any tool of any hostile module until `stopped`, and drops one call in five while it runs.
pub async fn hostile(registry: Registry, seed: u64, counts: Arc<Counts>, stopped: Receiver<bool>) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut entropy = [0; 512];
    while !*stopped.borrow() {
        let tools = registry.tools();
        let hostile: Vec<_> = tools
            .iter()
            .filter(|tool| !tool.name.starts_with("benign."))
            .collect();
        let Some(tool) = hostile.choose(&mut random) else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        random.fill_bytes(&mut entropy);
        let mut u = Unstructured::new(&entropy);
        let mut arguments = json::described(&tool.input_schema, &mut u).unwrap_or_default();
        aim(&mut arguments, &mut random);
        let session = session(&mut random);
        let invocation = Invocation {
            caller: Caller {
                tenant: TENANTS[random.random_range(0..TENANTS.len())],
                session: &session,
            },
            ..Invocation::new("hostile", &tool.name, &arguments)
        };
        counts.called();
        let call = registry.call(&invocation);
        if random.random_ratio(1, 5) {
            let moment = Duration::from_micros(random.random_range(0..20_000));
            // The result of a hostile call means nothing.
            let _ = tokio::time::timeout(moment, call).await;
        } else {
            let _ = call.await;
        }
        // Calls that are refused at once would otherwise keep the thread.
        tokio::task::yield_now().await;
    }
}

/// Puts names that exist in place of random ones: a random path reaches nothing.
fn aim(arguments: &mut Value, random: &mut StdRng) {
    const FOLDERS: [&str; 4] = ["/data", "/readable", "/scratch", "/data/../outside"];
    const PATHS: [&str; 12] = [
        "a",
        "b",
        "a/b",
        "a/b/c",
        "link",
        "../outside/secret.txt",
        "file.txt",
        ".",
        "",
        "a/../../x",
        "c",
        "d",
    ];
    let Some(arguments) = arguments.as_object_mut() else {
        return;
    };
    for (name, value) in &mut *arguments {
        let pool: &[&str] = match name.as_str() {
            "dir" | "to-dir" | "to_dir" => &FOLDERS,
            "path" | "to-path" | "to_path" | "target" | "then" => &PATHS,
            "tool" => &["benign.count", "h0.run", "h1.run", "nothing"],
            "address" => &["127.0.0.1:9", "[::1]:9", "169.254.169.254:80"],
            _ => continue,
        };
        if let Some(chosen) = pool.choose(random) {
            *value = json!(chosen);
        }
    }
    // One call in ten goes deep.
    if random.random_ratio(1, 10)
        && let Some(path) = arguments.get_mut("path")
    {
        *path = json!("a/".repeat(random.random_range(1..60)) + "a");
    }
}
