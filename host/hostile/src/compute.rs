//! Rows 1, 2, 3 and 6: calls that never return.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, PLACES, ensure_all_ended, expect_kind, ms, said};
use crate::process;
use futures_util::future::join_all;
use serde_json::json;
use std::time::{Duration, Instant};
use toolhold_policy::{CallReport, Grant};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 1,
        name: "loop_by_fuel",
        attack: "infinite loop, fuel set low",
        must: "fuel",
        company: Company::Others,
        tries: |lab| Box::pin(loop_by_fuel(lab)),
    },
    Attack {
        row: 1,
        name: "loop_by_deadline",
        attack: "infinite loop, deadline set low",
        must: "deadline",
        company: Company::Others,
        tries: |lab| Box::pin(loop_by_deadline(lab)),
    },
    Attack {
        row: 1,
        name: "loops_beside_a_benign_call",
        attack: "more infinite loops than threads",
        must: "deadline; others answer meanwhile",
        company: Company::Alone,
        tries: |lab| Box::pin(loops_beside_a_benign_call(lab)),
    },
    Attack {
        row: 2,
        name: "loop_through_host_calls",
        attack: "infinite loop through clock, random, log, output",
        must: "deadline",
        company: Company::Others,
        tries: |lab| Box::pin(loop_through_host_calls(lab)),
    },
    Attack {
        row: 3,
        name: "sleep_for_an_hour",
        attack: "sleep for an hour, in every place",
        must: "deadline; no thread held",
        company: Company::Others,
        tries: |lab| Box::pin(sleep_for_an_hour(lab)),
    },
    Attack {
        row: 3,
        name: "wait_that_never_ends",
        attack: "pollable that is never ready; many pollables",
        must: "deadline",
        company: Company::Others,
        tries: |lab| Box::pin(wait_that_never_ends(lab)),
    },
    Attack {
        row: 3,
        name: "sleepers_in_every_place",
        attack: "a call while sleepers hold every place",
        must: "busy, in its own deadline",
        company: Company::Alone,
        tries: |lab| Box::pin(sleepers_in_every_place(lab)),
    },
    Attack {
        row: 6,
        name: "recursion",
        attack: "deep recursion",
        must: "stack",
        company: Company::Others,
        tries: |lab| Box::pin(recursion(lab)),
    },
    Attack {
        row: 6,
        name: "recursion_in_two_stacks",
        attack: "deep recursion, two limits side by side",
        must: "stack, each at its own",
        company: Company::Others,
        tries: |lab| Box::pin(recursion_in_two_stacks(lab)),
    },
];

async fn loop_by_fuel(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::COMPUTE, |l| l.fuel = 10_000_000)
        .await?;
    let report = arena.ends("bad.spin", json!({}), "fuel").await?;
    ensure(report.usage.fuel >= 10_000_000, || {
        format!("only {} of the fuel was used", report.usage.fuel)
    })?;
    Ok(said(&report))
}

async fn loop_by_deadline(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::COMPUTE, |l| {
            (l.fuel, l.timeout_ms) = (u64::MAX, 200);
        })
        .await?;
    let report = arena.ends("bad.spin", json!({}), "deadline").await?;
    Ok(said(&report))
}

async fn loops_beside_a_benign_call(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::COMPUTE, |l| {
            (l.fuel, l.timeout_ms) = (u64::MAX, 1_000);
        })
        .await?;
    let spinning = join_all((0..6).map(|_| arena.call("bad.spin", json!({}))));
    let beside = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let started = Instant::now();
            arena.value("benign.count", json!({})).await?;
            slowest = slowest.max(started.elapsed());
        }
        Ok::<_, AttackFailure>(slowest)
    };
    let (reports, slowest) = tokio::join!(spinning, beside);
    let slowest = slowest?;
    ensure_all_ended(&reports, "deadline")?;
    ensure(slowest < lab.grace(), || {
        format!("a benign call beside six loops took {}", ms(slowest))
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "deadline, six times; slowest of 20 benign calls {}",
        ms(slowest)
    ))
}

async fn loop_through_host_calls(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against_guest(Grant::default(), |l| {
            (l.fuel, l.timeout_ms) = (u64::MAX, 150);
        })
        .await?;
    let turns = [
        "clock",
        "wall-clock",
        "random",
        "log",
        "standard-output",
        "subscribe",
    ];
    let mut slowest = Duration::ZERO;
    for turn in turns {
        let report = arena
            .ends("bad.spin", json!({"turn": turn}), "deadline")
            .await?;
        slowest = slowest.max(report.usage.duration);
    }
    Ok(format!(
        "deadline, {} times; slowest after {}, deadline 150 ms",
        turns.len(),
        ms(slowest)
    ))
}

async fn sleep_for_an_hour(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::CLOCKS, |l| l.timeout_ms = 300)
        .await?;
    // Once before counting: the first sleep starts threads that stay and belong to no sleeper.
    arena.ends("bad.sleep", json!({}), "deadline").await?;
    let before = process::threads();
    let started = Instant::now();
    let sleeping = join_all((0..PLACES).map(|_| arena.call("bad.sleep", json!({}))));
    let count = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        process::threads()
    };
    let (reports, during) = tokio::join!(sleeping, count);
    let took = started.elapsed();
    ensure_all_ended(&reports, "deadline")?;
    ensure(took < Duration::from_millis(300) + lab.grace(), || {
        format!("they came back after {}, deadline 300 ms", ms(took))
    })?;
    ensure(during <= before, || {
        format!("{during:?} threads with eight sleepers, {before:?} without")
    })?;
    let computed = reports.iter().map(|r| r.usage.fuel).max().unwrap_or(0);
    ensure(computed < 100_000, || {
        format!("sleeping computed {computed} instructions")
    })?;
    arena.unharmed().await?;
    Ok(format!(
        "deadline, eight times, after {}; no thread held",
        ms(took)
    ))
}

async fn wait_that_never_ends(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against_guest(Grant::default(), |l| l.timeout_ms = 200)
        .await?;
    let forever = json!(u64::MAX.to_string());
    let hour = json!(3_600_000_000_000_u64);
    let mut all: Vec<CallReport> = Vec::new();
    for (tool, arguments) in [
        ("bad.wait_until_the_end", json!({})),
        ("bad.wait", json!({"count": 1, "nanoseconds": forever})),
        ("bad.wait", json!({"count": 400, "nanoseconds": hour})),
    ] {
        all.push(arena.ends(tool, arguments, "deadline").await?);
    }
    let slowest = all.iter().map(|r| r.usage.duration).max();
    Ok(format!(
        "deadline, three times; slowest after {}, deadline 200 ms",
        ms(slowest.unwrap_or_default())
    ))
}

async fn sleepers_in_every_place(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::CLOCKS, |l| l.timeout_ms = 500)
        .await?;
    let sleeping = join_all((0..PLACES).map(|_| arena.call("bad.sleep", json!({}))));
    let short = Duration::from_millis(100);
    let late = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        arena
            .call_within("benign.count", json!({}), Some(short))
            .await
    };
    let (sleepers, late) = tokio::join!(sleeping, late);
    ensure_all_ended(&sleepers, "deadline")?;
    expect_kind(&late, "busy")?;
    let waited = late.usage.queued;
    ensure(waited >= short / 2 && waited < short + lab.grace(), || {
        format!("it waited {}, its deadline is 100 ms", ms(waited))
    })?;
    arena.unharmed().await?;
    Ok(format!("busy after {}, and says so", ms(waited)))
}

async fn recursion(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let report = arena.ends("bad.recurse", json!({}), "stack").await?;
    Ok(said(&report))
}

async fn recursion_in_two_stacks(lab: &Lab) -> Result<String, AttackFailure> {
    let mut arena = lab.arena(|policy| {
        policy.limits.stack_bytes = 256 << 10;
        let deep = policy.modules.entry("deep".into()).or_default();
        deep.limits.stack_bytes = Some(3 << 20);
    })?;
    for name in ["bad", "deep", "benign"] {
        let bytes = components::parse(components::COMPUTE)?;
        arena.load(name, bytes).await?;
    }
    let shallow = arena.ends("bad.recurse", json!({}), "stack").await?;
    let deep = arena.ends("deep.recurse", json!({}), "stack").await?;
    ensure(deep.usage.fuel > 8 * shallow.usage.fuel, || {
        "the deeper stack does not hold more frames".into()
    })?;
    // 3 MiB are rounded up to the next size.
    for (report, limit) in [(&shallow, "262144 bytes"), (&deep, "4194304 bytes")] {
        let error = report.result.as_ref().err().map(ToString::to_string);
        ensure(error.as_ref().is_some_and(|e| e.contains(limit)), || {
            format!("the limit of {limit} is not named: {error:?}")
        })?;
    }
    Ok(format!(
        "stack at 256 KiB and at 4 MiB, {} times as deep",
        deep.usage.fuel / shallow.usage.fuel.max(1)
    ))
}
