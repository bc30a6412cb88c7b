//! Rows 26 and 27: repeated attacks.

use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::ground::AttackFolders;
use crate::lab::{Arena, Lab, PLACES, PseudoRandom, expect_kind, ms};
use crate::{components, process};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use toolhold_policy::{Grant, LimitsRequest};
use toolhold_sandbox::ModulePolicy;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 26,
        name: "cancelled_at_random",
        attack: "cancel at 1 000 random moments",
        must: "no leak: places, threads, files, memory",
        company: Company::Others,
        tries: |lab| Box::pin(cancelled_at_random(lab)),
    },
    Attack {
        row: 27,
        name: "timeouts_in_a_row",
        attack: "1 000 calls that time out, then a benign one",
        must: "throughput within 10 % of before",
        company: Company::Alone,
        tries: |lab| Box::pin(timeouts_in_a_row(lab)),
    },
];

async fn cancelled_at_random(lab: &Lab) -> Result<String, AttackFailure> {
    // Memory that may stay resident: warm slots of the pool, which are bounded and kept on purpose.
    let kept = lab.times(64_u64, 32) << 20;
    let ground = AttackFolders::new(lab)?;
    let mut arena = lab.arena(|policy| {
        policy.limits.fuel = u64::MAX;
        policy.limits.timeout_ms = 60_000;
        let module = ModulePolicy {
            grant: Grant {
                directories: ground.directories(),
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        policy.modules.insert("guest".into(), module);
    })?;
    for (name, bytes) in [
        ("benign", components::parse(components::COMPUTE)?),
        ("clocks", components::parse(components::CLOCKS)?),
        ("left", components::parse(components::LEFTOVERS)?),
        ("guest", components::ATTACKER.to_vec()),
    ] {
        arena.load(name, bytes).await?;
    }
    let fill = json!({"dir": "/data", "path": "filled", "chunk": 65536, "chunks": 64});
    let list = json!({"dir": "/data", "path": "."});
    let calls: [(&str, Value); 9] = [
        ("benign.spin", json!({})),
        ("benign.count", json!({})),
        ("clocks.sleep", json!({})),
        ("clocks.ask", json!({})),
        ("left.leave", json!({})),
        ("guest.spin", json!({"turn": "standard-output"})),
        ("guest.fill", fill),
        ("guest.list", list),
        ("guest.say", json!({"bytes": 1 << 20})),
    ];
    let before_picture = ground.picture()?;
    let mut dice = PseudoRandom(26);
    // Every kind of call in every place once, so that what is kept on purpose is there before.
    for (tool, arguments) in &calls {
        cancelled(&arena, tool, arguments, &[Duration::from_millis(30); 8]).await;
    }
    settle(lab).await;
    let (resident, threads) = (process::resident_bytes(), process::threads());
    let rounds = lab.times(200, 1_000) / PLACES as usize;
    for round in 0..rounds {
        let (tool, arguments) = &calls[round % calls.len()];
        let moments: Vec<_> = (0..PLACES)
            .map(|_| Duration::from_micros(dice.below(3_000)))
            .collect();
        cancelled(&arena, tool, arguments, &moments).await;
        ensure(arena.engine.free_places() == PLACES as usize, || {
            format!("{tool}: a place was not given back")
        })?;
    }
    settle(lab).await;
    arena.unharmed().await?;
    before_picture.ensure_same(&ground.picture()?)?;
    let more = match (process::resident_bytes(), resident) {
        (Some(now), Some(before)) => now.saturating_sub(before),
        _ => 0,
    };
    ensure(more < kept, || {
        format!("{} MiB more are resident than before", more >> 20)
    })?;
    // Threads for file operations come and go, each after ten idle seconds; those of cancelled calls would stay.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let extra = match (process::threads(), threads) {
            (Some(now), Some(before)) => now.saturating_sub(before),
            _ => 0,
        };
        if extra <= 2 * PLACES as usize {
            break;
        }
        ensure(Instant::now() < until, || {
            format!("{extra} more threads than before")
        })?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(format!(
        "{} cancelled; all back, {:.1} MiB more resident",
        rounds * PLACES as usize,
        more as f64 / 1_048_576.0
    ))
}

/// Makes one call for every moment, all at once, and drops each at its moment.
async fn cancelled(arena: &Arena, tool: &str, arguments: &Value, moments: &[Duration]) {
    join_all(
        moments
            .iter()
            .map(|moment| tokio::time::timeout(*moment, arena.call(tool, arguments.clone()))),
    )
    .await;
}

/// File operations that had begun run to their end after a cancel: let them.
async fn settle(lab: &Lab) {
    tokio::time::sleep(lab.times(Duration::from_millis(300), Duration::from_secs(1))).await;
}

async fn timeouts_in_a_row(lab: &Lab) -> Result<String, AttackFailure> {
    let tired = hurried(lab).await?;
    let calls = lab.times(200, 1_000);
    let started = Instant::now();
    for round in 0..calls / PLACES {
        // Asleep in the host, and busy in the guest.
        let tool = if round % 2 == 0 {
            "bad.sleep"
        } else {
            "bad.ask"
        };
        let reports = join_all((0..PLACES).map(|_| tired.call(tool, json!({})))).await;
        for report in &reports {
            expect_kind(report, "deadline")?;
        }
    }
    let took = started.elapsed();
    tired.unharmed().await?;
    // "Before" is an engine that never saw a timeout, measured in turns with this one: what the
    // machine does besides then slows both.
    let fresh = hurried(lab).await?;
    let mut ratios = Vec::new();
    for _ in 0..lab.times(15, 45) {
        ratios.push(throughput(&tired).await? / throughput(&fresh).await?);
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let least = lab.times(0.7, 0.9);
    ensure(ratio >= least, || {
        format!("benign throughput is {ratio:.2} of before")
    })?;
    Ok(format!(
        "{calls} in {}; benign throughput {ratio:.2} of before",
        ms(took)
    ))
}

/// An arena where the hostile module alone has a deadline that it is sure to miss.
async fn hurried(lab: &Lab) -> Result<Arena, AttackFailure> {
    let mut arena = lab.arena(|policy| {
        // Benign calls are made as fast as they can be.
        policy.limits.calls_per_minute = 0;
        policy.modules.entry("bad".into()).or_default().limits = LimitsRequest {
            fuel: Some(u64::MAX),
            timeout_ms: Some(10),
            ..LimitsRequest::default()
        };
    })?;
    arena.benign().await?;
    arena
        .load("bad", components::parse(components::CLOCKS)?)
        .await?;
    Ok(arena)
}

/// Benign calls a second, one after the other.
async fn throughput(arena: &Arena) -> Result<f64, AttackFailure> {
    const WINDOW: Duration = Duration::from_millis(20);
    let (mut calls, started) = (0_u32, Instant::now());
    loop {
        arena.value("benign.count", json!({})).await?;
        calls += 1;
        if started.elapsed() >= WINDOW {
            return Ok(f64::from(calls) / started.elapsed().as_secs_f64());
        }
    }
}
