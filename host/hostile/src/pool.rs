//! Row 52: calls that take as much of wasmtime's pool as a component may, in all places but one.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, PseudoRandom, ensure_all_ended, expect_kind, invoke};
use crate::liar::{Claim, LiarReply, Stall, component_beside, stalling_beside};
use futures_util::future::{join, join_all};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use toolhold_policy::CallReport;
use toolhold_policy::limits::{MAX_INSTANCES, MAX_MEMORIES, MAX_TABLES};
use toolhold_sandbox::{LoadError, Registry};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 52,
        name: "nested_in_all_places",
        attack: "all places but one run components in components, with the most instances, memories and tables",
        must: "each ends at its deadline; other calls are answered meanwhile",
        company: Company::Others,
        tries: |lab| Box::pin(nested_in_all_places(lab)),
    },
    Attack {
        row: 52,
        name: "listed_beside_full_places",
        attack: "such modules are asked for their tools, and stall, while such calls sleep in nearly all places",
        must: "those that list tools are loaded and run; other calls are answered meanwhile",
        company: Company::Others,
        tries: |lab| Box::pin(listed_beside_full_places(lab)),
    },
    Attack {
        row: 52,
        name: "dropped_while_made",
        attack: "such calls and loads are cancelled while their instances are made, over and over",
        must: "other calls are answered meanwhile; after it all places can be used",
        company: Company::Others,
        tries: |lab| Box::pin(dropped_while_made(lab)),
    },
];

/// Places of the engine: the most without some that are kept for newcomers.
const PLACES: u32 = 15;

/// Calls of greedy modules, which leave one place.
const CALLS: usize = PLACES as usize - 1;

/// Greedy modules, by the forms of [`parts`].
const GREEDY: [&str; 3] = ["nested", "flat", "adapted"];

/// Their tools that sleep.
const SLEEPS: [&str; 3] = ["nested.sleep", "flat.sleep", "adapted.sleep"];

/// Their tools that sleep, and that compute.
const ENDLESS: [&str; 6] = [
    "nested.sleep",
    "nested.ask",
    "flat.sleep",
    "flat.ask",
    "adapted.sleep",
    "adapted.ask",
];

/// A table of the most elements that the pool allows.
const TABLE: &str = "(table 20000 funcref)";

/// The elements of all tables of a greedy component.
const ELEMENTS: u64 = 20_000 * MAX_TABLES;

// The numbers in `parts` add up to these.
const _: () = assert!(MAX_INSTANCES == 64 && MAX_TABLES == 16 && MAX_MEMORIES == 4);

/// Definitions of 63 core instances with 16 tables and `memories` memories, in three forms. The component's own instance
/// makes them the most.
fn parts(memories: usize) -> [String; 3] {
    // 16 instances with tables, five of which some have memories, and 42 without anything.
    let nested = [
        nest("tables", TABLE, [2, 4, 2]),
        nest("memories", "(memory 1)", [1, memories, 1]),
        nest("others", "", [5 - memories, 1, 1]),
        nest("nothing", "", [7, 3, 2]),
    ];
    // 16 and 2 instances, and three for each pair: the adapter between the two is one.
    let adapted = [
        flat(memories, 2),
        PAIR.to_owned(),
        "(instance (instantiate $pair))".repeat(15),
    ];
    [nested.concat(), flat(memories, 47), adapted.concat()]
}

/// Core instances of a module with these fields: `each` in a component, which is `inner` times in another one, which is
/// `outer` times in the whole.
fn nest(name: &str, fields: &str, [each, inner, outer]: [usize; 3]) -> String {
    let each = "(core instance (instantiate $m))".repeat(each);
    let inner = "(instance (instantiate $inner))".repeat(inner);
    let outer = format!("(instance (instantiate ${name}))").repeat(outer);
    format!(
        "(component ${name}
           (component $inner (core module $m {fields}) {each})
           {inner})
         {outer}"
    )
}

/// 16 core instances with tables, `memories` of them with a memory, and `empty` ones, in the component itself.
fn flat(memories: usize, empty: usize) -> String {
    let both = "(core instance (instantiate $both))".repeat(memories);
    let tables = "(core instance (instantiate $table))".repeat(16 - memories);
    let empty = "(core instance (instantiate $empty))".repeat(empty);
    format!(
        "(core module $both (memory 1) {TABLE}) {both}
         (core module $table {TABLE}) {tables}
         (core module $empty) {empty}"
    )
}

/// A component in which one component calls another. Between them wasmtime puts a core instance of its own.
const PAIR: &str = r#"(component $pair
  (component $callee
    (core module $m (func (export "f")))
    (core instance $i (instantiate $m))
    (func (export "f") (canon lift (core func $i "f"))))
  (instance $callee (instantiate $callee))
  (component $caller
    (import "f" (func $f))
    (core func $f (canon lower (func $f)))
    (core module $m (import "h" "f" (func $f)) (func (export "run") (call $f)))
    (core instance (instantiate $m (with "h" (instance (export "f" (func $f)))))))
  (instance (instantiate $caller (with "f" (func $callee "f")))))"#;

/// An arena with the benign module and the greedy ones, whose calls have this deadline.
async fn arena(lab: &Lab, deadline: Duration) -> Result<Arena, AttackFailure> {
    let mut arena = lab.arena_of(PLACES, |policy| {
        policy.limits.table_elements = ELEMENTS;
        policy.limits.fuel = u64::MAX;
        policy.limits.timeout_ms = 60_000;
        for name in GREEDY {
            let module = policy.modules.entry(name.into()).or_default();
            module.limits.timeout_ms = u64::try_from(deadline.as_millis()).ok();
        }
    })?;
    arena.benign().await?;
    for (name, parts) in GREEDY.into_iter().zip(parts(4)) {
        let wat = components::beside(&parts, components::CLOCKS);
        arena.load(name, components::parse(&wat)?).await?;
    }
    Ok(arena)
}

/// A call that a task of its own makes, so that several begin at the same moment.
async fn call(registry: Registry, tool: &'static str) -> CallReport {
    let arguments = json!({});
    invoke(&registry, tool, &arguments, None).await
}

/// Calls the tools, which must work, over and over for so long. How often it called them.
async fn answered(arena: &Arena, tools: &[String], time: Duration) -> Result<u32, AttackFailure> {
    let (started, mut calls) = (Instant::now(), 0);
    while started.elapsed() < time {
        for tool in tools {
            let report = arena.call(tool, json!({})).await;
            expect_kind(&report, "ok")
                .map_err(|fault| AttackFailure::Broke(format!("{tool} beside them: {fault}")))?;
            calls += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(calls)
}

fn benign() -> Vec<String> {
    vec!["benign.count".to_owned()]
}

/// Begins `count` greedy calls that sleep, and waits until each has a place.
async fn sleepers(arena: &Arena, count: usize) -> Result<JoinSet<CallReport>, AttackFailure> {
    const MOMENT: Duration = Duration::from_secs(10);
    let mut sleepers = JoinSet::new();
    for tool in SLEEPS.into_iter().cycle().take(count) {
        sleepers.spawn(call(arena.registry.clone(), tool));
    }
    let started = Instant::now();
    while arena.engine.free_places() > PLACES as usize - count {
        ensure(started.elapsed() < MOMENT, || {
            format!("{count} calls do not take {count} places")
        })?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Their instances are made after they have places.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(sleepers)
}

/// All of them still sleep. Cancels them.
async fn cancel(mut sleepers: JoinSet<CallReport>) -> Result<(), AttackFailure> {
    if let Some(ended) = sleepers.try_join_next() {
        let how = match ended {
            Ok(report) => format!("{:?}", report.result),
            Err(error) => error.to_string(),
        };
        return Err(AttackFailure::Broke(format!(
            "a call that had a place ended: {how}"
        )));
    }
    sleepers.shutdown().await;
    Ok(())
}

async fn nested_in_all_places(lab: &Lab) -> Result<String, AttackFailure> {
    const DEADLINE: Duration = Duration::from_secs(1);
    let arena = arena(lab, DEADLINE).await?;
    let (mut ended, mut beside) = (0, 0);
    for _ in 0..lab.times(2, 4) {
        let mut calls = JoinSet::new();
        for tool in ENDLESS.into_iter().cycle().take(CALLS) {
            calls.spawn(call(arena.registry.clone(), tool));
        }
        beside += answered(&arena, &benign(), DEADLINE * 3 / 4).await?;
        let reports = calls.join_all().await;
        ensure_all_ended(&reports, "deadline")?;
        ended += reports.len();
    }
    arena.unharmed().await?;
    Ok(format!(
        "deadline, {ended} times; {beside} benign calls answered meanwhile"
    ))
}

/// The load of a module that stalls ends as it must.
fn ensure_stalled(loaded: &Result<(), LoadError>) -> Result<(), AttackFailure> {
    let stalled =
        matches!(loaded, Err(LoadError::ListTools { source }) if source.kind() == "deadline");
    ensure(stalled, || {
        format!("a module that stalls when it is asked for its tools: {loaded:?}")
    })
}

/// Greedy modules that never say which tools they have.
fn stalling() -> Result<Vec<Vec<u8>>, AttackFailure> {
    // The memory of the module itself is one.
    let all = parts(3).into_iter();
    all.map(|parts| stalling_beside(&parts, Stall::Sleeps))
        .collect()
}

async fn listed_beside_full_places(lab: &Lab) -> Result<String, AttackFailure> {
    /// More than are asked at a time.
    const STALLS: usize = 6;
    /// Two turns of those.
    const TIME: Duration = Duration::from_secs(1);
    let arena = arena(lab, Duration::from_mins(1)).await?;
    let stalling = stalling()?;
    let claims = [Claim::named("say")];
    let reply = LiarReply::Value("1".into());
    // One place for benign calls, and one for calls of those that were listed.
    let sleepers = sleepers(&arena, CALLS - 1).await?;
    let mut tools = benign();
    let (mut stalled, mut beside) = (0, 0);
    for round in 0..lab.times(1, 4) {
        let registry = &arena.registry;
        let stalls = join_all((0..STALLS).map(|number| {
            let bytes = stalling[number % stalling.len()].clone();
            async move {
                let name = format!("stalls_{round}_{number}");
                registry.load_bytes(&name, bytes).await
            }
        }));
        // They wait behind some that stall.
        let loads = async {
            let mut listed = Vec::new();
            for (name, parts) in GREEDY.into_iter().zip(parts(3)) {
                let name = format!("listed_{name}_{round}");
                let bytes = component_beside(&parts, &claims, &reply)?;
                registry.load_bytes(&name, bytes).await?;
                listed.push(format!("{name}.say"));
            }
            Ok::<_, AttackFailure>(listed)
        };
        let loading = join(Box::pin(stalls), Box::pin(loads));
        let ((stalls, listed), calls) =
            join(loading, Box::pin(answered(&arena, &tools, TIME))).await;
        beside += calls?;
        stalls.iter().try_for_each(ensure_stalled)?;
        stalled += stalls.len();
        tools.extend(listed?);
        beside += answered(&arena, &tools, TIME / 10).await?;
    }
    cancel(sleepers).await?;
    arena.unharmed().await?;
    Ok(format!(
        "{stalled} stalled, {} loaded; {beside} calls answered meanwhile",
        tools.len() - 1
    ))
}

async fn dropped_while_made(lab: &Lab) -> Result<String, AttackFailure> {
    /// Modules that are asked for their tools at a time.
    const LOADS: usize = 4;
    let arena = arena(lab, Duration::from_mins(1)).await?;
    let stalling = stalling()?;
    // Once to the end, so that later loads find the compiled code and are cancelled while the module is asked.
    let registry = &arena.registry;
    let whole = join_all((0..stalling.len()).map(|number| {
        let bytes = stalling[number].clone();
        async move {
            let name = format!("stalls_{number}");
            registry.load_bytes(&name, bytes).await
        }
    }));
    whole.await.iter().try_for_each(ensure_stalled)?;
    let mut dice = PseudoRandom(52);
    let (mut dropped, rounds) = (0, lab.times(20, 250));
    for round in 0..rounds {
        let calls: Vec<_> = (0..CALLS)
            .map(|number| {
                let tool = SLEEPS[(round + number) % SLEEPS.len()];
                let call = tokio::spawn(call(arena.registry.clone(), tool));
                (call, Duration::from_micros(dice.below(8_000)))
            })
            .collect();
        let loads: Vec<_> = (0..LOADS)
            .map(|number| {
                let registry = arena.registry.clone();
                let bytes = stalling[(round + number) % stalling.len()].clone();
                let load = tokio::spawn(async move {
                    let name = format!("stalls_{number}");
                    registry.load_bytes(&name, bytes).await
                });
                (load, Duration::from_micros(dice.below(40_000)))
            })
            .collect();
        let calls = join_all(calls.into_iter().map(|(call, moment)| async move {
            tokio::time::sleep(moment).await;
            call.abort();
            call.await
        }));
        let loads = join_all(loads.into_iter().map(|(load, moment)| async move {
            tokio::time::sleep(moment).await;
            load.abort();
            load.await
        }));
        let ending = join(Box::pin(calls), Box::pin(loads));
        let ((calls, loads), benign) =
            join(ending, Box::pin(arena.call("benign.count", json!({})))).await;
        expect_kind(&benign, "ok")?;
        for call in calls {
            match call {
                Err(error) if error.is_cancelled() => dropped += 1,
                other => {
                    return Err(AttackFailure::Broke(format!(
                        "a call that sleeps ended: {other:?}"
                    )));
                }
            }
        }
        for load in loads {
            match load {
                Err(error) if error.is_cancelled() => dropped += 1,
                // On a machine with other work it may have taken that long.
                Ok(loaded) => ensure_stalled(&loaded)?,
                Err(error) => {
                    return Err(AttackFailure::Broke(format!("a load panicked: {error}")));
                }
            }
        }
    }
    // What was cancelled left nothing taken.
    let sleepers = sleepers(&arena, CALLS).await?;
    let beside = answered(&arena, &benign(), Duration::from_millis(200)).await?;
    cancel(sleepers).await?;
    arena.unharmed().await?;
    Ok(format!(
        "{dropped} cancelled; {} benign calls answered",
        beside + rounds as u32
    ))
}
