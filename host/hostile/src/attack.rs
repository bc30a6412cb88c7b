//! Definition, execution and verdict of an attack.

use crate::fault::AttackFailure;
use crate::lab::{Lab, runtime};
use crate::process;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Deserializer, Serialize};
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

/// One thing that a hostile module tries.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// The row of docs/security.md, "The hostile suite".
    pub row: u8,
    /// Unique in the suite; a Rust identifier, because it names a test.
    pub name: &'static str,
    /// What is tried, in a few words.
    pub attack: &'static str,
    /// What must happen, in a few words.
    pub must: &'static str,
    /// What may happen on this machine meanwhile.
    pub company: Company,
    /// Runs the attack. Returns what was observed.
    pub tries: AttackFunction,
}

/// What may happen on this machine while an attack runs in a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Other attacks: this one measures its own process at most.
    Others,
    /// One other attack of this kind, where each has a processor: this one bounds times that are seconds, or spends them
    /// asleep, and computes on one processor at a time.
    One,
    /// Nothing: it compares times, to which other work would add.
    Alone,
}

/// `|lab| Box::pin(an_async_function(lab))`.
pub type AttackFunction = for<'a> fn(&'a Lab) -> BoxFuture<'a, Result<String, AttackFailure>>;

/// How an attack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttackOutcome {
    /// What must happen happened.
    Held,
    /// Something else happened.
    Broke,
    /// This machine cannot run it. Never counted as passed.
    NotRun,
}

/// The verdict on an attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttackVerdict {
    pub outcome: AttackOutcome,
    /// What happened. May hold text from a guest: escape it before showing it.
    pub observed: String,
    #[serde(
        serialize_with = "millis",
        deserialize_with = "from_millis",
        rename = "duration_ms"
    )]
    pub duration: Duration,
    /// Peak resident memory during the attack minus the memory resident before it. `None` where the system
    /// does not report it.
    pub memory_bytes: Option<u64>,
}

fn millis<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn from_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// Runs one attack in this process and judges it: it must return what it should, and leave no thread behind.
/// Blocks; measures the process as a whole, so nothing else should happen in it meanwhile. An attack that is
/// not held off may end the process: [`crate::run_apart`] is for those who go on.
pub fn run(attack: &Attack, lab: &Lab) -> AttackVerdict {
    let threads = process::threads();
    let resident = process::resident_bytes();
    process::forget_peak();
    let started = Instant::now();

    // A separate runtime: every thread that the attack starts ends with it, unless something blocks
    // the thread forever.
    let mut tried = match runtime() {
        Ok(runtime) => {
            let tried = runtime.block_on(async {
                let attempt = AssertUnwindSafe((attack.tries)(lab)).catch_unwind();
                match tokio::time::timeout(lab.patience(), attempt).await {
                    Ok(Ok(tried)) => tried,
                    Ok(Err(panic)) => Err(AttackFailure::Broke(format!(
                        "the host panicked: {}",
                        message(&*panic)
                    ))),
                    Err(_) => Err(AttackFailure::Broke(format!(
                        "it did not end within {:?}",
                        lab.patience()
                    ))),
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(500));
            tried
        }
        Err(error) => Err(error.into()),
    };
    let duration = started.elapsed();
    let memory_bytes = match (process::peak_bytes(), resident) {
        (Some(peak), Some(before)) => Some(peak.saturating_sub(before)),
        _ => None,
    };
    if let (Ok(_), Err(fault)) = (&tried, threads_are_back(threads)) {
        tried = Err(fault);
    }
    let (outcome, observed) = match tried {
        Ok(observed) => (AttackOutcome::Held, observed),
        Err(AttackFailure::Unable(reason)) => (AttackOutcome::NotRun, reason),
        Err(fault) => (AttackOutcome::Broke, fault.to_string()),
    };
    AttackVerdict {
        outcome,
        observed,
        duration,
        memory_bytes,
    }
}

/// A thread that is ending takes a moment; one that is blocked in the kernel forever does not end.
fn threads_are_back(before: Option<usize>) -> Result<(), AttackFailure> {
    const MOMENT: Duration = Duration::from_secs(2);
    let asked = Instant::now();
    loop {
        let now = process::threads();
        if now <= before {
            return Ok(());
        }
        if asked.elapsed() > MOMENT {
            return Err(AttackFailure::Broke(format!(
                "{} threads were left behind, blocked in the host",
                now.unwrap_or(0) - before.unwrap_or(0)
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
