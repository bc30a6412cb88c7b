//! Rows 20 and 21: data left from one call to the next, or from one tenant to another.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::{AttackFolders, SECRET};
use crate::lab::{Arena, Lab, directory, kind};
use futures_util::future::join_all;
use serde_json::json;
use toolhold_policy::{Access, Grant};
use toolhold_sandbox::{ModulePolicy, Policy, Registry};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 20,
        name: "trap_then_call_again",
        attack: "trap, then call again, over and over",
        must: "fresh instance every time",
        company: Company::Others,
        tries: |lab| Box::pin(trap_then_call_again(lab)),
    },
    Attack {
        row: 20,
        name: "state_left_behind",
        attack: "32 MiB, a table and a global left full",
        must: "nothing visible to the next call",
        company: Company::Others,
        tries: |lab| Box::pin(state_left_behind(lab)),
    },
    Attack {
        row: 21,
        name: "two_tenants",
        attack: "two tenants of one module, at the same time",
        must: "nothing shared: memory, files, variables, limits",
        company: Company::Others,
        tries: |lab| Box::pin(two_tenants(lab)),
    },
];

async fn trap_then_call_again(lab: &Lab) -> Result<String, AttackFailure> {
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let rounds = lab.times(50, 500);
    for _ in 0..rounds {
        // 1 from the global and 1 from memory: nothing of the last call is there.
        let counted = arena.value("bad.count", json!({})).await?;
        ensure(counted == json!(2), || {
            format!("it counted {counted} in a fresh instance")
        })?;
        arena.ends("bad.boom", json!({}), "trap").await?;
    }
    Ok(format!("{rounds} traps; fresh after each"))
}

async fn state_left_behind(lab: &Lab) -> Result<String, AttackFailure> {
    /// One round fills and looks into the memory, table and global of each place. The others find the places used.
    const ROUNDS: usize = 5;
    let arena = lab
        .against(components::LEFTOVERS, |l| l.fuel = u64::MAX)
        .await?;
    for _ in 0..ROUNDS {
        // Every place has been full, so every place that is looked into had something to hide.
        let leaving = join_all((0..8).map(|_| arena.value("bad.leave", json!({})))).await;
        for pages in leaving {
            let pages = pages?;
            ensure(pages == json!(512), || {
                format!("it held {pages} pages instead of 512")
            })?;
        }
        let seeking = join_all((0..8).map(|_| arena.value("bad.seek", json!({})))).await;
        for found in seeking {
            let found = found?;
            ensure(found == json!(0), || {
                format!("{found} words of another call were found")
            })?;
        }
    }
    arena.unharmed().await?;
    Ok(format!("{} calls found 0 of 256 MiB", ROUNDS * 8))
}

async fn two_tenants(lab: &Lab) -> Result<String, AttackFailure> {
    let ground = AttackFolders::new(lab)?;
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    // The same bytes on the same engine, with a directory, a variable and limits for each.
    let mut tenants = Vec::new();
    for (name, fuel) in [("ada", 50_000_000), ("bob", 1_000)] {
        let host = ground.root().join(name);
        std::fs::create_dir(&host)?;
        std::fs::write(host.join("own.txt"), name)?;
        let mut policy = Policy::default();
        let module = ModulePolicy {
            grant: Grant {
                directories: vec![directory(&host, "/data", Access::ReadWrite)],
                environment: [("WHO".into(), format!("{SECRET} of {name}"))].into(),
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        policy.modules.insert("bad".into(), module);
        let mut idle = ModulePolicy::default();
        idle.limits.fuel = Some(fuel);
        policy.modules.insert("idle".into(), idle);
        let registry = Registry::new(arena.engine.clone(), lab.cache(), policy);
        for (module, bytes) in [
            ("bad", components::ATTACKER.to_vec()),
            ("idle", components::parse(components::COMPUTE)?),
            ("left", components::parse(components::LEFTOVERS)?),
        ] {
            registry.load_bytes(module, bytes).await?;
        }
        tenants.push((name, tenant(&arena, registry, lab)?));
    }
    let rounds = lab.times(10, 16);
    for _ in 0..rounds {
        // Both at once, so that they meet in the engine's pools.
        join_all(tenants.iter().map(|(name, tenant)| own(name, tenant)))
            .await
            .into_iter()
            .collect::<Result<Vec<()>, _>>()?;
    }
    arena.unharmed().await?;
    Ok(format!("{rounds} rounds at the same time: nothing shared"))
}

fn tenant(arena: &Arena, registry: Registry, lab: &Lab) -> Result<Arena, AttackFailure> {
    // An arena over this registry, with the engine that all tenants share.
    let mut own = lab.arena(|_| ())?;
    own.registry = registry;
    own.engine = arena.engine.clone();
    Ok(own)
}

/// A tenant sees only its own data, and leaves none for others.
async fn own(name: &str, tenant: &Arena) -> Result<(), AttackFailure> {
    let read = json!({"dir": "/data", "path": "own.txt"});
    let found = tenant.value("bad.read", read).await?;
    ensure(found == json!(name), || format!("{name} read {found}"))?;
    let listed = tenant
        .value("bad.list", json!({"dir": "/data", "path": "."}))
        .await?;
    ensure(listed == json!(["own.txt"]), || {
        format!("{name} sees {listed}")
    })?;
    let environment = tenant.value("bad.environment", json!({})).await?;
    ensure(
        environment == json!([["WHO", format!("{SECRET} of {name}")]]),
        || format!("{name} sees {environment}"),
    )?;
    for other in ["ada", "bob"] {
        let path = format!("../{other}/own.txt");
        let report = tenant
            .call("bad.read", json!({"dir": "/data", "path": path}))
            .await;
        ensure(kind(&report) == "tool", || {
            format!("{name} read {path}: {:?}", report.result)
        })?;
    }
    let (left, sought) = tokio::join!(
        tenant.value("left.leave", json!({})),
        tenant.value("left.seek", json!({}))
    );
    left?;
    let sought = sought?;
    ensure(sought == json!(0), || {
        format!("{name} found {sought} words of another call")
    })?;
    // Bob's limit is Bob's alone: what takes Ada's whole fuel ends his at once.
    let spun = tenant.call("idle.spin", json!({})).await;
    let limit = if name == "ada" { 50_000_000 } else { 1_000 };
    ensure(
        kind(&spun) == "fuel" && spun.usage.fuel >= limit && spun.usage.fuel < limit * 2,
        || format!("{name}, limit {limit}: {:?}", spun.usage),
    )
}
