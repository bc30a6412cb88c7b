//! Rows 4, 5, 7 and 53: exhausting memory, tables and handles.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::AttackFolders;
use crate::lab::{Lab, kind, said};
use crate::process;
use serde_json::{Value, json};
use toolhold_policy::Grant;
use toolhold_sandbox::LoadError;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 4,
        name: "memory_in_steps",
        attack: "memory grown in steps",
        must: "memory",
        company: Company::Others,
        tries: |lab| Box::pin(memory_in_steps(lab)),
    },
    Attack {
        row: 4,
        name: "memory_at_start",
        attack: "huge initial memory; many memories",
        must: "refused when loaded",
        company: Company::Others,
        tries: |lab| Box::pin(memory_at_start(lab)),
    },
    Attack {
        row: 4,
        name: "memory_filled",
        attack: "fill of 2 GiB; fill of all there is, for ever",
        must: "trap; deadline; cap + 32 MiB resident",
        company: Company::Others,
        tries: |lab| Box::pin(memory_filled(lab)),
    },
    Attack {
        row: 5,
        name: "table_in_steps",
        attack: "table grown in steps",
        must: "table",
        company: Company::Others,
        tries: |lab| Box::pin(table_in_steps(lab)),
    },
    Attack {
        row: 5,
        name: "many_tables",
        attack: "many tables, each below the limit",
        must: "table",
        company: Company::Others,
        tries: |lab| Box::pin(many_tables(lab)),
    },
    Attack {
        row: 7,
        name: "handles_in_a_loop",
        attack: "handles opened in a loop: five kinds",
        must: "handles",
        company: Company::Others,
        tries: |lab| Box::pin(handles_in_a_loop(lab)),
    },
    Attack {
        row: 53,
        name: "growth_that_fails_in_a_loop",
        attack: "growth beyond a component's own maximum, over and over; then the rest of the limit, or a crash",
        must: "nothing of it is charged; the crash is a trap, and after a limit that refused it is memory",
        company: Company::Others,
        tries: |lab| Box::pin(growth_that_fails_in_a_loop(lab)),
    },
];

const CAP: u64 = 64 << 20;
async fn memory_in_steps(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::GROWTH, |l| l.memory_bytes = CAP)
        .await?;
    let report = arena.ends("bad.grow", json!({}), "memory").await?;
    let held = report.usage.memory_bytes;
    ensure(held <= CAP, || format!("it held {held} bytes, limit {CAP}"))?;
    Ok(said(&report))
}

async fn memory_at_start(lab: &Lab) -> Result<String, AttackFailure> {
    let mut arena = lab
        .against(components::COMPUTE, |l| l.memory_bytes = CAP)
        .await?;
    let wats = [
        components::HUGE_MEMORY.to_owned(),
        components::many_memories(),
    ];
    for (name, wat) in ["huge", "many"].into_iter().zip(&wats) {
        match arena.load(name, components::parse(wat)?).await {
            Err(LoadError::Limits { .. } | LoadError::Compile { .. } | LoadError::Link { .. }) => {}
            Err(other) => return Err(other.into()),
            Ok(()) => return Err(AttackFailure::Broke(format!("{name} was loaded"))),
        }
    }
    arena.unharmed().await?;
    Ok("refused, twice".into())
}

async fn memory_filled(lab: &Lab) -> Result<String, AttackFailure> {
    // Memory that the host may need in addition: docs/security.md, row 4.
    let besides = lab.times(64_u64, 32) << 20;
    let arena = lab
        .against(components::FILL, |l| {
            (l.memory_bytes, l.timeout_ms, l.fuel) = (CAP, 300, u64::MAX);
        })
        .await?;
    let before = process::resident_bytes();
    process::forget_peak();
    arena.ends("bad.beyond", json!({}), "trap").await?;
    for _ in 0..3 {
        let report = arena.call("bad.all", json!({})).await;
        // wasmtime's fuel charges a bulk operation by the byte.
        ensure(["deadline", "fuel"].contains(&kind(&report)), || {
            format!("it ended with {}", kind(&report))
        })?;
        let took = report.usage.duration;
        ensure(took.as_millis() < 300 + lab.grace().as_millis(), || {
            format!("it came back after {took:?}")
        })?;
    }
    arena.unharmed().await?;
    let (Some(before), Some(peak)) = (before, process::peak_bytes()) else {
        return Err(AttackFailure::Unable(
            "this system does not tell what is resident".into(),
        ));
    };
    let more = peak.saturating_sub(before);
    ensure(more < CAP + besides, || {
        format!("{} MiB more were resident, cap 64 MiB", more >> 20)
    })?;
    Ok(format!(
        "ended; {} MiB more resident, cap 64 MiB",
        more >> 20
    ))
}

async fn table_in_steps(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(components::GROWTH, |l| l.table_elements = 10_000)
        .await?;
    Ok(said(&arena.ends("bad.table", json!({}), "table").await?))
}

async fn many_tables(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab
        .against(&components::many_tables(), |l| l.table_elements = 100_000)
        .await?;
    Ok(said(&arena.ends("bad.f", json!({}), "table").await?))
}

async fn handles_in_a_loop(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let grant = Grant {
        directories: ground.directories(),
        ..Grant::default()
    };
    let arena = lab.against_guest(grant, |l| l.handles = 200).await?;
    let mut ended = Vec::new();
    for handle in [
        "pollable",
        "output-stream",
        "descriptor",
        "file-stream",
        "socket",
    ] {
        let arguments = json!({"handle": handle, "count": 100_000});
        let report = arena.call("bad.hoard", arguments).await;
        let how = match (&report.result, kind(&report)) {
            (_, "handles") => "handles".to_owned(),
            // The host may also say no to the guest, which then goes on.
            (Ok(output), _) => {
                let opened = serde_json::to_value(output).unwrap_or(Value::Null);
                let opened = opened.pointer("/value").and_then(Value::as_u64);
                ensure(opened.is_some_and(|n| n <= 200), || {
                    format!("{handle}: {opened:?} were opened, limit 200")
                })?;
                "refused".to_owned()
            }
            (Err(error), kind) => {
                return Err(AttackFailure::Broke(format!("{handle}: {kind}: {error}")));
            }
        };
        ended.push(how);
        arena.unharmed().await?;
    }
    Ok(format!("{} at 200", ended.join(", ")))
}

/// A memory and a table with maxima of their own are grown beyond them, over and over. A second memory and a
/// second table then take nearly all of the limit, or the guest crashes.
const WASTED_GROWTH: &str = r#"(component
  (core module $wasteful
    (memory 1 3)
    (table $t 1 5 funcref)
    (func (export "waste") (local $n i32)
      (loop
        (drop (memory.grow (i32.const 1000)))
        (drop (table.grow $t (ref.null func) (i32.const 9000)))
        (drop (memory.grow (i32.const 65535)))
        (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100))))))
  (core module $m
    (import "w" "waste" (func $waste))
    (memory 1)
    (table $t 1 funcref)
    (func (export "rest")
      (call $waste)
      (if (i32.ne (memory.grow (i32.const 900)) (i32.const 1)) (then unreachable)))
    (func (export "elements")
      (call $waste)
      (if (i32.ne (table.grow $t (ref.null func) (i32.const 9000)) (i32.const 1)) (then unreachable)))
    (func (export "boom") (call $waste) unreachable)
    (func (export "refused") (drop (memory.grow (i32.const 2000))) unreachable))
  (core instance $w (instantiate $wasteful))
  (core instance $i (instantiate $m (with "w" (instance $w))))
  (func (export "rest") (canon lift (core func $i "rest")))
  (func (export "elements") (canon lift (core func $i "elements")))
  (func (export "boom") (canon lift (core func $i "boom")))
  (func (export "refused") (canon lift (core func $i "refused"))))"#;

async fn growth_that_fails_in_a_loop(lab: &Lab) -> Result<String, AttackFailure> {
    const PAGE_BYTES: u64 = 64 << 10;
    // A page of each memory, and what `rest` takes: WASTED_GROWTH.
    const HELD: u64 = 902 * PAGE_BYTES;
    let arena = lab
        .against(WASTED_GROWTH, |l| {
            (l.memory_bytes, l.table_elements) = (CAP, 10_000);
        })
        .await?;
    for tool in ["bad.rest", "bad.elements"] {
        let report = arena.call(tool, json!({})).await;
        ensure(kind(&report) == "ok", || {
            format!(
                "{tool}: after growth that failed: {}: {:?}",
                kind(&report),
                report.result
            )
        })?;
        let held = report.usage.memory_bytes;
        ensure(tool != "bad.rest" || held == HELD, || {
            format!("{tool}: {held} bytes are charged for {HELD}")
        })?;
        arena.unharmed().await?;
    }
    // No limit refused it.
    arena.ends("bad.boom", json!({}), "trap").await?;
    // The same crash is blamed where one did, or nothing is proved.
    arena.ends("bad.refused", json!({}), "memory").await?;
    Ok(format!("{HELD} bytes charged, and all of them held"))
}
