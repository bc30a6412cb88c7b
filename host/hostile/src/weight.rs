//! Row 35: memory of the host that a call takes outside of its guest's own.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, PLACES, directory, kind};
use crate::measure::Baseline;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use toolhold_policy::{Access, Caller, Grant, Invocation, Limits, Output};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 35,
        name: "fields_in_a_loop",
        attack: "header fields of 120 KiB, hoarded by their handles",
        must: "handles, or memory; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(fields_in_a_loop(lab)),
    },
    Attack {
        row: 35,
        name: "listings_in_a_loop",
        attack: "streams over a folder with very many entries, hoarded",
        must: "handles, or memory; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(listings_in_a_loop(lab)),
    },
    Attack {
        row: 35,
        name: "results_of_many_values",
        attack: "results of millions of numbers, texts, lists; UTF-16",
        must: "output, or memory; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(results_of_many_values(lab)),
    },
    Attack {
        row: 35,
        name: "weight_of_all_places",
        attack: "all of it in every place at once",
        must: "memory bounded for all calls together, and given back",
        company: Company::Others,
        tries: |lab| Box::pin(weight_of_all_places(lab)),
    },
    Attack {
        row: 35,
        name: "arguments_in_all_places",
        attack: "bytes, and records of absent fields, as arguments of many callers while places are few",
        must: "a result, or host_full; memory bounded for all calls together, and given back",
        company: Company::Others,
        tries: |lab| Box::pin(arguments_in_all_places(lab)),
    },
    Attack {
        row: 35,
        name: "bytes_that_wait_for_a_place",
        attack: "lists of bytes as arguments of a crowd of calls, of which one at a time has a place",
        must: "those that wait take no memory beside their text; the next one has room",
        company: Company::Others,
        tries: |lab| Box::pin(bytes_that_wait_for_a_place(lab)),
    },
];

/// A guest's own memory.
const GUEST: u64 = 64 << 20;
/// What the host may keep for one call besides.
const HOST: u64 = 64 << 20;
/// What may stay for later calls: slots of the pool, and the allocator's own.
const KEPT: u64 = 64 << 20;

/// A folder with as many entries, of names as long as a system takes.
fn crowded(folder: &Path, entries: u32) -> Result<(), AttackFailure> {
    for n in 0..entries {
        fs::write(folder.join(format!("{n:0>200}")), "")?;
    }
    Ok(())
}

async fn arena(
    lab: &Lab,
    folder: &Path,
    change: impl FnOnce(&mut Limits),
) -> Result<Arena, AttackFailure> {
    let grant = Grant {
        directories: vec![directory(folder, "/data", Access::Read)],
        ..Grant::default()
    };
    lab.against_guest(grant, |limits| {
        limits.memory_bytes = GUEST;
        limits.timeout_ms = 20_000;
        limits.fuel = u64::MAX;
        change(limits);
    })
    .await
}

/// Calls are refused, or end, and the host holds no more than its share.
async fn weighed(
    arena: &Arena,
    calls: &[(&str, Value)],
    bound: u64,
) -> Result<String, AttackFailure> {
    let (mut most, mut broke, mut ends) = (0, Vec::new(), BTreeMap::new());
    for (tool, arguments) in calls {
        let baseline = Baseline::now()?;
        let report = arena.call(&format!("bad.{tool}"), arguments.clone()).await;
        let ended = kind(&report);
        let what = format!("{tool} {arguments} ({ended})");
        ensure(
            !["deadline", "host", "arguments", "unknown_tool"].contains(&ended),
            || format!("{what}: {:?}", report.result),
        )?;
        *ends.entry(ended).or_insert(0) += 1;
        drop(report);
        match baseline.ensure_peak(bound, &what) {
            Ok(more) => most = most.max(more),
            Err(fault) => broke.push(fault.to_string()),
        }
        if let Err(fault) = baseline.ensure_given_back(KEPT + GUEST, &what) {
            broke.push(fault.to_string());
        }
        arena.unharmed().await?;
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    let ends: Vec<_> = ends
        .iter()
        .map(|(end, times)| format!("{end} {times} times"))
        .collect();
    Ok(format!("{}; at most {} MiB", ends.join(", "), most >> 20))
}

async fn fields_in_a_loop(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    let fields = |count: u32| ("hoard", json!({"handle": "fields", "count": count}));
    let arena = arena(lab, folder.path(), |limits| limits.handles = 5_000).await?;
    weighed(&arena, &[fields(1_000), fields(5_000)], GUEST + HOST).await
}

async fn listings_in_a_loop(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    crowded(folder.path(), 3_000)?;
    let arena = arena(lab, folder.path(), |_| ()).await?;
    let listing = |count: u32| ("hoard", json!({"handle": "listing", "count": count}));
    weighed(&arena, &[listing(900)], GUEST + HOST).await
}

fn results() -> Vec<(&'static str, Value)> {
    vec![
        ("say_numbers", json!({"count": 1_000_000})),
        ("say_numbers", json!({"count": 30_000_000})),
        ("say_texts", json!({"count": 300_000, "bytes": 1})),
        ("say_texts", json!({"count": 3_000, "bytes": 10_000})),
        ("say_texts", json!({"count": 1_500_000, "bytes": 0})),
        ("say_lists", json!({"lists": 400, "count": 1_000})),
        ("say_lists", json!({"lists": 1_500_000, "count": 0})),
        ("say_many", json!({"count": 500_000})),
        ("say_many", json!({"count": 5_000_000})),
        ("say", json!({"bytes": 50_000_000})),
    ]
}

async fn results_of_many_values(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    let mut arena = arena(lab, folder.path(), |_| ()).await?;
    let calls = results();
    let mut ended = weighed(&arena, &calls, GUEST + HOST).await?;
    for encoding in ["utf16", "latin1+utf16"] {
        let wide = components::parse(&components::wide_text(encoding))?;
        let name = format!("wide_{}", &encoding[..5]).replace("wide_utf16", "wide");
        arena.load(&name, wide).await?;
        let baseline = Baseline::now()?;
        let mut ends = Vec::new();
        for tool in ["one", "many"] {
            let report = arena.call(&format!("{name}.{tool}"), json!({})).await;
            ends.push(kind(&report));
        }
        let what = format!("texts in {encoding}");
        let more = baseline.ensure_peak(GUEST + HOST, &what)? >> 20;
        ended = format!("{ended}; {what} {}, {more} MiB", ends.join(", "));
    }
    arena.unharmed().await?;
    Ok(ended)
}

async fn weight_of_all_places(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = lab.folder()?;
    crowded(folder.path(), 2_000)?;
    let arena = arena(lab, folder.path(), |_| ()).await?;
    let hold = |handle: &str| json!({"handle": handle, "count": 800, "nanoseconds": 500_000_000});
    let baseline = Baseline::now()?;
    for (tool, arguments) in [
        ("hold", hold("fields")),
        ("hold", hold("listing")),
        ("say_numbers", json!({"count": 10_000_000})),
        ("say_texts", json!({"count": 300_000, "bytes": 1})),
    ] {
        let tool = format!("bad.{tool}");
        let calls = (0..PLACES).map(|_| arena.call(&tool, arguments.clone()));
        for report in join_all(calls).await {
            ensure(
                !["arguments", "unknown_tool"].contains(&kind(&report)),
                || format!("{tool} {arguments}: {:?}", report.result),
            )?;
        }
    }
    // Every guest may fill its own memory, and the host keep `kept_bytes` for each.
    let bound = u64::from(PLACES) * (GUEST + Limits::default().kept_bytes);
    let most = baseline.ensure_peak(bound, "all places together")?;
    baseline.ensure_given_back(
        KEPT + u64::from(PLACES) * (GUEST / 4),
        "all places together",
    )?;
    arena.unharmed().await?;
    Ok(format!("at most {} MiB in all", most >> 20))
}

async fn arguments_in_all_places(lab: &Lab) -> Result<String, AttackFailure> {
    /// Bytes that the host may keep for all calls.
    const CEILING: u64 = 128 << 20;
    /// A guest's own memory, which has room for the arguments.
    const TAKEN: u64 = 8 << 20;
    const CROWD: usize = 4 * PLACES as usize;
    /// The values of one call take nearly half of the ceiling: half a gigabyte in all places, four times that with
    /// those that wait.
    const BYTES: usize = 1_350_000;
    const ROWS: usize = 50_000;
    let mut arena = lab.arena_keeping(PLACES, CEILING, |policy| {
        policy.limits.memory_bytes = TAKEN;
        policy.limits.timeout_ms = 20_000;
    })?;
    arena.benign().await?;
    let taking = components::parse(&components::taking(16))?;
    arena.load("bad", taking).await?;
    let tenants = (0..CROWD).map(|number| format!("t{}", number % 5));
    let tenants: Vec<String> = tenants.collect();
    let (mut ended, mut broke) = (Vec::new(), Vec::new());
    for (tool, arguments, count) in [
        (
            "bad.bytes",
            json!({"bytes": "AAAA".repeat(BYTES / 3)}),
            BYTES,
        ),
        ("bad.rows", json!({"rows": vec![json!({}); ROWS]}), ROWS),
    ] {
        // The callers share their arguments as JSON: what grows is the host's.
        let baseline = Baseline::now()?;
        let invocations: Vec<_> = tenants
            .iter()
            .map(|tenant| Invocation {
                caller: Caller {
                    tenant,
                    session: "",
                },
                ..Invocation::new("attack", tool, &arguments)
            })
            .collect();
        let reports = join_all(invocations.iter().map(|it| arena.registry.call(it))).await;
        let mut ends = BTreeMap::new();
        for report in &reports {
            let end = kind(report);
            ensure(
                ["ok", "host_full", "busy", "deadline"].contains(&end),
                || format!("{tool} ({end}): {:?}", report.result),
            )?;
            if let Ok(Output::Value(taken) | Output::Message(taken)) = &report.result {
                ensure(*taken == json!(count), || {
                    format!("{tool}: {taken} were taken, of {count}")
                })?;
            }
            *ends.entry(end).or_insert(0_usize) += 1;
        }
        drop(reports);
        // Otherwise nothing is proved: one fits, and all of them do not.
        for needed in ["ok", "host_full"] {
            ensure(ends.contains_key(needed), || {
                format!("{tool}: no call ended so ({needed}): {ends:?}")
            })?;
        }
        let left = arena.registry.kept().taken();
        ensure(left == 0, || {
            format!("{tool}: {left} bytes are still counted")
        })?;
        let guests = u64::from(PLACES) * TAKEN;
        match baseline.ensure_peak(CEILING + guests + KEPT, tool) {
            Ok(more) => ended.push(format!("{tool} {ends:?}, {} MiB", more >> 20)),
            Err(fault) => broke.push(fault.to_string()),
        }
        if let Err(fault) = baseline.ensure_given_back(KEPT + guests, tool) {
            broke.push(fault.to_string());
        }
        arena.unharmed().await?;
    }
    ensure(broke.is_empty(), || broke.join("; "))?;
    Ok(ended.join("; "))
}

async fn bytes_that_wait_for_a_place(lab: &Lab) -> Result<String, AttackFailure> {
    /// Bytes: room for all calls, so only their wait bounds them.
    const CEILING: u64 = 4 << 30;
    const CROWD: usize = 40;
    const TURNS: usize = 3;
    const BYTES: usize = 1_350_000;
    /// Values of one call, of 40 bytes for each byte, twice: one call ends while the next one begins.
    const ONE: u64 = 2 * 40 * BYTES as u64;
    /// A guest's own memory, which has room for the arguments.
    const TAKEN: u64 = 8 << 20;
    let mut arena = lab.arena_keeping(PLACES, CEILING, |policy| {
        policy.limits.memory_bytes = TAKEN;
        policy.limits.timeout_ms = 120_000;
        let module = policy.modules.entry("bad".into()).or_default();
        module.limits.concurrent_calls = Some(1);
    })?;
    arena.benign().await?;
    arena
        .load("bad", components::parse(&components::taking(1))?)
        .await?;
    let arguments = json!({"bytes": "AAAA".repeat(BYTES / 3)});
    // The first call makes what stays: slots of the pool, and threads.
    let first = arena.value("bad.bytes", arguments.clone()).await?;
    ensure(first == json!(BYTES), || {
        format!("of {BYTES} bytes {first} were taken: nothing is proved")
    })?;
    let baseline = Baseline::now()?;
    let invocation = Invocation::new("attack", "bad.bytes", &arguments);
    let mut calls: FuturesUnordered<_> = (0..CROWD)
        .map(|_| arena.registry.call(&invocation))
        .collect();
    // Some have their turn, while all others wait.
    for turn in 0..TURNS {
        let ended = calls.next().await.map(|report| kind(&report));
        ensure(ended == Some("ok"), || {
            format!("turn {turn} of {CROWD} calls in one place ended so: {ended:?}")
        })?;
    }
    let waiting = calls.len();
    drop(calls);
    let more = baseline.ensure_peak(ONE + TAKEN + KEPT, "calls that wait")?;
    let left = arena.registry.kept().taken();
    ensure(left == 0, || format!("{left} bytes are still counted"))?;
    arena.unharmed().await?;
    Ok(format!(
        "{TURNS} had their turn and {waiting} waited, {} MiB",
        more >> 20
    ))
}
