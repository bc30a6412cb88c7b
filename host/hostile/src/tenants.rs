//! Rows 21 and 27: callers of one registry, who must neither see nor starve each other.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, PLACES, expect_kind, kind, ms};
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use std::time::Duration;
use toolhold_policy::{Caller, Grant, Keep, KeyValueGrant, Output, ScratchGrant};
use toolhold_sandbox::{ModulePolicy, Storage};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 21,
        name: "two_sessions",
        attack: "scratch files and values of other callers, by name",
        must: "none found; no quota shared",
        company: Company::Others,
        tries: |lab| Box::pin(two_sessions(lab)),
    },
    Attack {
        row: 27,
        name: "crowd_of_sleepers",
        attack: "64 calls that sleep, in the queue before others",
        must: "others get the next free place",
        company: Company::One,
        tries: |lab| Box::pin(crowd_of_sleepers(lab)),
    },
];

const QUOTA: u64 = 100_000;

/// Callers whose names could be mistaken for one another's.
const CALLERS: [Caller<'_>; 10] = [
    caller("ada", "1"),
    caller("ada", "2"),
    caller("bob", "1"),
    caller("", "ada1"),
    caller("ada1", ""),
    caller("ad", "a1"),
    caller("ada/1", "1"),
    caller("../ada", "1"),
    caller("ADA", "1"),
    caller("ada\0", "1"),
];

const fn caller<'a>(tenant: &'a str, session: &'a str) -> Caller<'a> {
    Caller { tenant, session }
}

async fn two_sessions(lab: &Lab) -> Result<String, AttackFailure> {
    let state = lab.folder()?;
    let mut arena = lab.arena(|policy| {
        policy.storage = Storage {
            scratch: Some(state.path().join("scratch")),
            key_value: Some(state.path().join("key-value")),
        };
        let module = ModulePolicy {
            grant: Grant {
                scratch: Some(ScratchGrant {
                    quota_bytes: QUOTA,
                    keep: Keep::Session,
                    ..ScratchGrant::default()
                }),
                key_value: Some(KeyValueGrant {
                    quota_bytes: QUOTA,
                    ..KeyValueGrant::default()
                }),
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        policy.modules.insert("bad".into(), module);
    })?;
    arena.benign().await?;
    arena.load("bad", components::PROBE.to_vec()).await?;
    // Each leaves something of its own size, all at once; then each looks for all that was left.
    let rounds = lab.times(3, 12);
    for _ in 0..rounds {
        all(join_all(CALLERS.iter().enumerate().map(|at| leave(&arena, at))).await)?;
        all(join_all(CALLERS.iter().enumerate().map(|at| look(&arena, at))).await)?;
    }
    // A tenant's quota is not used up by another tenant.
    let full = file("full", QUOTA * 4 / 5);
    for at in CALLERS.iter().filter(|at| !at.session.is_empty()) {
        ok(&arena, *at, "bad.write", full.clone()).await?;
        let more = arena
            .call_as(*at, "bad.write", file("more", QUOTA / 2))
            .await;
        expect_kind(&more, "quota")?;
    }
    let large = |key: &str| json!({"key": key, "value": "v".repeat(QUOTA as usize * 4 / 5)});
    for tenant in ["ada", "bob", "ADA", "ada/1"] {
        ok(&arena, caller(tenant, "1"), "bad.remember", large("l")).await?;
        let more = arena
            .call_as(caller(tenant, "2"), "bad.remember", large("m"))
            .await;
        ensure(kind(&more) == "tool", || {
            format!("{tenant} keeps more than the quota: {:?}", more.result)
        })?;
    }
    arena.unharmed().await?;
    let callers = CALLERS.len();
    Ok(format!(
        "{callers} callers, {rounds} rounds: nothing shared"
    ))
}

fn all(results: Vec<Result<(), AttackFailure>>) -> Result<(), AttackFailure> {
    results.into_iter().collect()
}

fn file(name: &str, bytes: u64) -> Value {
    json!({"path": format!("/scratch/{name}"), "bytes": bytes})
}

async fn ok(
    arena: &Arena,
    at: Caller<'_>,
    tool: &str,
    with: Value,
) -> Result<Value, AttackFailure> {
    match arena.call_as(at, tool, with).await.result? {
        Output::Value(value) | Output::Message(value) => Ok(value),
    }
}

async fn leave(arena: &Arena, (number, at): (usize, &Caller<'_>)) -> Result<(), AttackFailure> {
    let own = file(&format!("of-{number}"), 10);
    ok(arena, *at, "bad.write", own).await?;
    ok(arena, *at, "bad.write", file("common", size(number))).await?;
    let who = json!({"key": "who", "value": at.tenant});
    let kept = ok(arena, *at, "bad.remember", who).await?;
    ensure(kept == json!(["who"]), || {
        format!("{at:?} sees the keys {kept}")
    })
}

/// What each leaves under the same name.
fn size(number: usize) -> u64 {
    100 + number as u64
}

async fn look(arena: &Arena, (number, at): (usize, &Caller<'_>)) -> Result<(), AttackFailure> {
    let named = |name: &str| json!({"path": format!("/scratch/{name}")});
    for (other, its) in CALLERS.iter().enumerate() {
        let report = arena
            .call_as(*at, "bad.read", named(&format!("of-{other}")))
            .await;
        // Without a session, scratch files last for a call.
        let own = other == number && !at.session.is_empty();
        ensure(kind(&report) == if own { "ok" } else { "tool" }, || {
            format!("{at:?} and the file of {its:?}: {:?}", report.result)
        })?;
    }
    if !at.session.is_empty() {
        let read = ok(arena, *at, "bad.read", named("common")).await?;
        ensure(read == json!(size(number)), || {
            format!("{at:?} read {read} bytes of another tenant")
        })?;
    }
    let recalled = ok(arena, *at, "bad.recall", json!({"key": "who"})).await?;
    ensure(recalled == json!(at.tenant), || {
        format!("{at:?} recalls {recalled}")
    })
}

async fn crowd_of_sleepers(lab: &Lab) -> Result<String, AttackFailure> {
    // Each waits most of its time, in an engine of its own.
    let (unlimited, limited) = join(
        Box::pin(crowd(lab, None)),
        Box::pin(crowd(lab, Some(u64::from(PLACES / 2)))),
    )
    .await;
    Ok(format!(
        "{CROWD} asleep; others waited {} at most",
        ms(unlimited?.max(limited?))
    ))
}

/// Calls that sleep.
const CROWD: usize = 64;

/// Makes the calls of the crowd to a module with `limit` places, and two others. Returns the longest time that one of
/// these waited.
async fn crowd(lab: &Lab, limit: Option<u64>) -> Result<Duration, AttackFailure> {
    const SLEEP: Duration = Duration::from_millis(250);
    // A later caller gets the next free place, and does not wait for the eight rounds or more that the crowd
    // needs.
    let most = SLEEP + lab.grace();
    let mut slowest = Duration::ZERO;
    let mut arena = lab.arena(|policy| {
        let module = policy.modules.entry("bad".into()).or_default();
        module.limits.timeout_ms = Some(60_000);
        module.limits.concurrent_calls = limit;
    })?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    let sleep = json!({"count": 1, "nanoseconds": SLEEP.as_nanos() as u64});
    let crowd =
        join_all((0..CROWD).map(|_| arena.call_as(caller("ada", "1"), "bad.wait", sleep.clone())));
    let others = async {
        tokio::time::sleep(SLEEP / 4).await;
        // Another module, and another tenant of the same one.
        join(
            arena.call("benign.count", json!({})),
            arena.call_as(caller("bob", "1"), "bad.arguments", json!({})),
        )
        .await
    };
    let (sleepers, (benign, bob)) = join(crowd, others).await;
    for report in sleepers.iter().chain([&benign, &bob]) {
        expect_kind(report, "ok")?;
    }
    // They did stand in a queue, or nothing is proved.
    let last = sleepers.iter().map(|report| report.usage.queued).max();
    ensure(last > Some(SLEEP * 5), || {
        format!("the crowd's last waited only {last:?}")
    })?;
    for report in [&benign, &bob] {
        let queued = report.usage.queued;
        ensure(queued < most, || {
            format!("a call waited {} behind the crowd", ms(queued))
        })?;
        slowest = slowest.max(queued);
    }
    // Places that a module may not have are there at once. A place of a sleeper would be free soon, too: within the
    // time that a busy machine is given.
    ensure(limit.is_none() || benign.usage.queued.is_zero(), || {
        format!("a free place was given after {}", ms(benign.usage.queued))
    })?;
    arena.unharmed().await?;
    Ok(slowest)
}
