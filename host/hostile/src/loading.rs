//! Row 34: modules that do not end while they are loaded, and decisions that must not wait for them.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::ground::AttackFolders;
use crate::lab::{Arena, Lab, expect_kind, ms};
use crate::liar::{Stall, stalling};
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use toolhold_policy::Grant;
use toolhold_sandbox::{LoadError, ModulePolicy, Policy};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 34,
        name: "load_beside_stalling_modules",
        attack: "eight modules whose list-tools sleeps or spins",
        must: "a good module serves in 2 s; calls and other loads go on",
        company: Company::Alone,
        tries: |lab| Box::pin(load_beside_stalling_modules(lab)),
    },
    Attack {
        row: 34,
        name: "revoked_while_modules_load",
        attack: "a grant is revoked while modules load that stall",
        must: "in effect in 250 ms",
        company: Company::Alone,
        tries: |lab| Box::pin(revoked_while_modules_load(lab)),
    },
    Attack {
        row: 34,
        name: "revoked_while_a_call_runs",
        attack: "a running call goes on with a grant that was revoked",
        must: "in effect at its next host call",
        company: Company::Alone,
        tries: |lab| Box::pin(revoked_while_a_call_runs(lab)),
    },
];

/// The deadline of calls, and by default of what lists tools: as long as an operator may have set it.
const DEADLINE_MS: u64 = 30_000;
/// In which a good module serves, whatever else is loaded.
const SERVES: Duration = Duration::from_secs(2);
/// In which a revocation is in effect, and the call that used the grant is ended.
const IN_EFFECT: Duration = Duration::from_millis(250);
/// A multiple of every bound here: what takes longer is not waited for.
const ENOUGH: Duration = Duration::from_secs(8);

/// Eight modules that stall, and a good one that comes last.
fn folder(lab: &Lab) -> Result<TempDir, AttackFailure> {
    let folder = lab.folder()?;
    for (stall, name) in [(Stall::Spins, "spins"), (Stall::Sleeps, "sleeps")] {
        let bytes = stalling(stall)?;
        for n in 0..4 {
            fs::write(folder.path().join(format!("a_{name}_{n}.wasm")), &bytes)?;
        }
    }
    let good = components::parse(components::COMPUTE)?;
    fs::write(folder.path().join("z_good.wasm"), good)?;
    Ok(folder)
}

/// Loads the folder in the background.
fn load(arena: &Arena, folder: &TempDir) -> JoinHandle<Result<(), LoadError>> {
    let (registry, path) = (arena.registry.clone(), folder.path().to_owned());
    tokio::spawn(async move { registry.load_folder(&path, None, &|_| ()).await })
}

async fn load_beside_stalling_modules(lab: &Lab) -> Result<String, AttackFailure> {
    let folder = folder(lab)?;
    let mut tries = lab.tries(SERVES, "the good module, or another load,");
    while tries.go_on()? {
        tries.took(serve_beside(lab, &folder).await?);
    }
    Ok(format!("it served after {}", ms(tries.fastest)))
}

/// When the good module served, or another load beside it, whichever took longer.
async fn serve_beside(lab: &Lab, folder: &TempDir) -> Result<Duration, AttackFailure> {
    let mut arena = lab.arena(|policy| policy.limits.timeout_ms = DEADLINE_MS)?;
    arena.benign().await?;
    let started = Instant::now();
    let loading = load(&arena, folder);
    let (mut slowest, mut served) = (Duration::ZERO, None);
    while started.elapsed() < ENOUGH && served.is_none() {
        let asked = Instant::now();
        arena.value("benign.count", json!({})).await?;
        slowest = slowest.max(asked.elapsed());
        if arena.registry.tool("z_good.count").is_some() {
            arena.value("z_good.count", json!({})).await?;
            served = Some(started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Another load does not wait for the first one's guests either.
    let other = components::parse(&components::which(1))?;
    let asked = Instant::now();
    let beside = tokio::time::timeout(ENOUGH, arena.load("other", other)).await;
    let took = asked.elapsed();
    let is_loading = !loading.is_finished();
    loading.abort();
    let Some(served) = served else {
        return Err(AttackFailure::Broke(format!(
            "the good module does not serve after {}",
            ms(ENOUGH)
        )));
    };
    ensure(is_loading, || "nothing stalls".into())?;
    ensure(slowest < lab.grace(), || {
        format!("a benign call meanwhile took {}", ms(slowest))
    })?;
    match beside {
        Ok(loaded) => loaded?,
        Err(_) => {
            return Err(AttackFailure::Broke(format!(
                "another load beside it took {}",
                ms(took)
            )));
        }
    }
    Ok(served.max(took))
}

/// A policy with a grant for `bad`, or none.
fn policy(ground: Option<&AttackFolders>) -> Policy {
    let mut policy = Policy::default();
    policy.limits.timeout_ms = DEADLINE_MS;
    let module = ModulePolicy {
        grant: Grant {
            directories: ground.map(AttackFolders::directories).unwrap_or_default(),
            ..Grant::default()
        },
        ..ModulePolicy::default()
    };
    policy.modules.insert("bad".into(), module);
    policy
}

async fn holder(lab: &Lab, ground: &AttackFolders) -> Result<Arena, AttackFailure> {
    let mut arena = lab.arena(|own| *own = policy(Some(ground)))?;
    arena.benign().await?;
    arena.load("bad", components::ATTACKER.to_vec()).await?;
    Ok(arena)
}

/// Takes the grant away.
async fn revoke(arena: &Arena) -> Result<Duration, AttackFailure> {
    let asked = Instant::now();
    let revoked = tokio::time::timeout(ENOUGH, arena.registry.govern(policy(None))).await;
    let took = asked.elapsed();
    ensure(revoked.is_ok(), || {
        format!("the revocation still took {}", ms(took))
    })?;
    Ok(took)
}

async fn revoked_while_modules_load(lab: &Lab) -> Result<String, AttackFailure> {
    let (ground, folder) = (AttackFolders::new(lab)?, folder(lab)?);
    let mut tries = lab.tries(IN_EFFECT, "the revocation");
    while tries.go_on()? {
        tries.took(revoked_beside(lab, &ground, &folder).await?);
    }
    Ok(format!("revoked after {}", ms(tries.fastest)))
}

async fn revoked_beside(
    lab: &Lab,
    ground: &AttackFolders,
    folder: &TempDir,
) -> Result<Duration, AttackFailure> {
    let arena = holder(lab, ground).await?;
    let read = json!({"dir": "/data", "path": "file.txt"});
    arena.value("bad.read", read.clone()).await?;
    let loading = load(&arena, folder);
    tokio::time::sleep(Duration::from_millis(700)).await;
    let took = revoke(&arena).await;
    let is_loading = !loading.is_finished();
    let said = arena.call("bad.read", read).await.result;
    loading.abort();
    ensure(is_loading, || "nothing stalls".into())?;
    ensure(said.is_err(), || {
        format!("the revoked grant was used: {said:?}")
    })?;
    took
}

async fn revoked_while_a_call_runs(lab: &Lab) -> Result<String, AttackFailure> {
    let mut tries = lab.tries(IN_EFFECT, "the running call");
    while tries.go_on()? {
        tries.took(revoked_in_a_call(lab).await?);
    }
    Ok(format!("ended after {}", ms(tries.fastest)))
}

/// How long after the beginning of the revocation the call ended.
async fn revoked_in_a_call(lab: &Lab) -> Result<Duration, AttackFailure> {
    const NEWS: &str = "written after the revocation";
    let ground = AttackFolders::new(lab)?;
    let arena = holder(lab, &ground).await?;
    // A read every 10 ms for some seconds.
    let watch = json!({
        "dir": "/data", "path": "file.txt", "times": 400, "nanoseconds": 10_000_000,
    });
    let running = async { (arena.call("bad.watch", watch).await, Instant::now()) };
    let revoking = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let began = Instant::now();
        revoke(&arena).await?;
        // A read that had begun before may end after it.
        tokio::time::sleep(lab.times(Duration::from_millis(250), Duration::from_millis(50))).await;
        fs::write(ground.inside("file.txt"), NEWS)?;
        Ok::<_, AttackFailure>(began)
    };
    let ((report, ended), began) = tokio::join!(running, revoking);
    let (said, began) = (format!("{report:?}"), began?);
    ensure(!said.contains(NEWS), || {
        "the call read with a grant that was revoked before".into()
    })?;
    expect_kind(&report, "revoked")?;
    arena.unharmed().await?;
    Ok(ended.saturating_duration_since(began))
}
