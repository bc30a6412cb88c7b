//! The chaos soak: random hostile components in a folder that changes all the time, called at random beside
//! benign callers. Nothing is expected of the components. What is expected of the host is in [`Verdict`]:
//! benign calls come back in time, and afterwards memory, threads, descriptors and the disk are as before.
//!
//! To read: [`run`] (the phases), `folder` (the modules folder that changes), `callers` (who calls what),
//! `guest` (components that a grammar of WASI imports writes), `watch` (what is measured).

mod callers;
mod folder;
pub mod guest;
mod watch;

pub use watch::{Sample, Verdict};

use callers::{Benign, hostile};
use folder::ChangingFolder;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use toolhold_hostile::components;
use toolhold_policy::{Access, DirectoryGrant, Grant, Keep, KeyValueGrant, Limits, ScratchGrant};
use toolhold_sandbox::{
    Compiler, Engine, EngineConfig, LoadError, ModulePolicy, Policy, Registry, Storage,
};
use watch::{Watch, resources};

/// Hostile modules that are loaded at the same time.
const SLOTS: usize = 6;
/// Tasks that call them.
const HOSTILE_CALLERS: usize = 6;
/// Tasks that call the benign module.
const BENIGN_CALLERS: usize = 2;
/// Hostile calls and loads after which the process holds what it keeps, and the most warm-ups that may take.
const WARM_CALLS: u64 = 400;
const WARM_LOADS: u64 = 30;
const MAX_WARM_UPS: usize = 20;
/// The deadline of a benign call.
const BENIGN_DEADLINE: Duration = Duration::from_secs(2);

/// What is run, and for how long.
#[derive(Debug)]
pub struct SoakPlan {
    pub duration: Duration,
    /// The same seed makes the same choices; what happens between them is up to the machine's scheduler.
    pub seed: u64,
    /// Components from elsewhere, such as wasm-smith's, that are loaded beside those of the grammar.
    pub components: Vec<Vec<u8>>,
    pub compiler: Compiler,
    /// Time between two samples.
    pub every: Duration,
    /// How long what ends by itself may take: more than the runtime keeps idle threads for file operations.
    pub settle: Duration,
}

/// Why a soak could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    #[error("a folder cannot be prepared: {0}")]
    Folder(#[from] io::Error),
    #[error("the engine or a component that it must load: {0}")]
    Load(#[from] LoadError),
    #[error("a component of this file is not valid text: {0}")]
    Text(#[from] wat::Error),
}

/// Runs the soak. `on_sample` is told what was measured, every [`SoakPlan::every`].
///
/// # Errors
/// What keeps it from beginning. What breaks while it runs is in the verdict.
pub async fn run(plan: &SoakPlan, on_sample: impl FnMut(&Sample)) -> Result<Verdict, SoakError> {
    let place = tempfile::Builder::new()
        .prefix("toolhold-soak-")
        .tempdir()?;
    let ground = Ground::new(place.path())?;
    let engine = Engine::new(EngineConfig {
        concurrent_calls: 16,
        waiting_calls: 256,
        max_memory_bytes: 64 << 20,
        compiler: plan.compiler.clone(),
        ..EngineConfig::default()
    })?;
    let registry = Registry::new(engine.clone(), None, ground.policy([true; SLOTS]));
    let benign = wat::parse_str(components::COMPUTE)?;
    registry.load_bytes("benign", benign).await?;
    let before_outside = ground.outside()?;

    let mut random = StdRng::seed_from_u64(plan.seed);
    // What the engine and the runtime keep on purpose (slots of the pool, idle threads) is there after some
    // seconds of the same, and belongs to the start. On a busy machine a second is few calls, so they are counted.
    let warm_up = (plan.duration / 10).min(Duration::from_secs(30));
    let mut watch = Watch::new(plan.every, on_sample);
    for _ in 0..MAX_WARM_UPS {
        phase(plan, &registry, &ground, &mut random, warm_up, &mut watch).await?;
        if watch.counts().have_reached(WARM_CALLS, WARM_LOADS) {
            break;
        }
    }
    clear(&registry, &ground, plan.settle).await?;
    let start = resources();
    watch.begin();
    phase(
        plan,
        &registry,
        &ground,
        &mut random,
        plan.duration,
        &mut watch,
    )
    .await?;
    clear(&registry, &ground, plan.settle).await?;
    let end = resources();

    let mut left = ground.left()?;
    if ground.outside()? != before_outside {
        left.push("a file outside of every grant was changed".to_owned());
    }
    Ok(watch.verdict(start, end, left, BENIGN_DEADLINE))
}

/// All actors together, for `duration`.
async fn phase(
    plan: &SoakPlan,
    registry: &Registry,
    ground: &Ground,
    random: &mut StdRng,
    duration: Duration,
    watch: &mut Watch<impl FnMut(&Sample)>,
) -> Result<(), SoakError> {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut actors = JoinSet::new();
    let benign = Arc::new(Benign::default());
    for _ in 0..BENIGN_CALLERS {
        actors.spawn(benign.clone().call(registry.clone(), stopped.clone()));
    }
    for _ in 0..HOSTILE_CALLERS {
        let seed = random.random();
        actors.spawn(hostile(
            registry.clone(),
            seed,
            watch.counts(),
            stopped.clone(),
        ));
    }
    let folder = ChangingFolder::new(ground.modules(), plan.components.clone(), random.random());
    actors.spawn(change(
        folder,
        registry.clone(),
        ground.clone(),
        random.random(),
        watch.counts(),
        stopped,
    ));
    watch.during(duration, &benign).await;
    // All have ended when every receiver is told; what still runs ends within its deadline.
    let _ = stop.send(true);
    while actors.join_next().await.is_some() {}
    watch.sample(&benign);
    Ok(())
}

/// Changes the folder, loads it again, and grants and revokes meanwhile.
async fn change(
    mut folder: ChangingFolder,
    registry: Registry,
    ground: Ground,
    seed: u64,
    counts: Arc<watch::Counts>,
    stopped: Receiver<bool>,
) {
    let mut random = StdRng::seed_from_u64(seed);
    while !*stopped.borrow() {
        let changed = folder.change().await;
        if changed.is_ok() {
            let loaded = registry.load_folder(ground.modules(), None, &|_| ()).await;
            counts.loaded(loaded.is_ok());
        }
        if random.random_ratio(1, 8) {
            registry.govern(ground.policy(random.random())).await;
        }
        for tenant in callers::TENANTS {
            if random.random_ratio(1, 20) {
                let session = callers::session(&mut random);
                // A session that nothing was kept for has nothing to remove.
                let _ = registry.remove_scratch(tenant, &session).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(20..200))).await;
    }
}

/// Takes all hostile modules and everything of their sessions away, and waits for what ends by itself.
async fn clear(registry: &Registry, ground: &Ground, settle: Duration) -> Result<(), SoakError> {
    folder::empty(ground.modules())?;
    registry
        .load_folder(ground.modules(), None, &|_| ())
        .await?;
    registry.govern(ground.policy([false; SLOTS])).await;
    for tenant in callers::TENANTS {
        for session in callers::sessions() {
            registry.remove_scratch(tenant, &session).await?;
        }
    }
    tokio::time::sleep(settle).await;
    Ok(())
}

/// The folders of a soak.
///
/// ```text
/// modules/    what is loaded
/// inside/     granted to hostile modules, read-write
/// readable/   granted to them, read
/// outside/    not granted
/// state/      scratch directories and values
/// ```
#[derive(Debug, Clone)]
struct Ground {
    root: PathBuf,
    modules: PathBuf,
}

impl Ground {
    fn new(root: &Path) -> io::Result<Self> {
        for folder in ["modules", "inside", "readable", "outside", "state"] {
            std::fs::create_dir(root.join(folder))?;
        }
        std::fs::write(root.join("readable/file.txt"), "granted")?;
        std::fs::write(root.join("outside/secret.txt"), "do-not-read-this")?;
        std::os::unix::fs::symlink("../outside/secret.txt", root.join("inside/link"))?;
        Ok(Self {
            root: root.to_owned(),
            modules: root.join("modules"),
        })
    }

    fn modules(&self) -> &Path {
        &self.modules
    }

    /// `granted` says which of the hostile modules have their grants now.
    fn policy(&self, granted: [bool; SLOTS]) -> Policy {
        let limits = Limits {
            timeout_ms: 700,
            fuel: 200_000_000,
            memory_bytes: 16 << 20,
            calls_per_minute: 0,
            ..Limits::default()
        };
        let mut modules: std::collections::HashMap<_, _> = (0..SLOTS)
            .filter(|slot| granted[*slot])
            .map(|slot| {
                let policy = ModulePolicy {
                    grant: self.grant(),
                    ..ModulePolicy::default()
                };
                (folder::name(slot), policy)
            })
            .collect();
        let mut benign = ModulePolicy::default();
        benign.limits.timeout_ms = u64::try_from(BENIGN_DEADLINE.as_millis()).ok();
        modules.insert("benign".to_owned(), benign);
        Policy {
            ceiling: limits.clone(),
            limits,
            storage: Storage {
                scratch: Some(self.root.join("state/scratch")),
                key_value: Some(self.root.join("state/key-value")),
            },
            modules,
            ..Policy::default()
        }
    }

    fn grant(&self) -> Grant {
        let directory = |host: &str, guest: &str, access| DirectoryGrant {
            host: self.root.join(host),
            guest: guest.to_owned(),
            access,
            quota_bytes: Some(4 << 20),
        };
        Grant {
            directories: vec![
                directory("inside", "/data", Access::ReadWrite),
                directory("readable", "/readable", Access::Read),
            ],
            scratch: Some(ScratchGrant {
                quota_bytes: 1 << 20,
                keep: Keep::Session,
                ..ScratchGrant::default()
            }),
            key_value: Some(KeyValueGrant::default()),
            tools: std::iter::once("benign".to_owned())
                .chain((0..SLOTS).map(folder::name))
                .collect(),
            ..Grant::default()
        }
    }

    /// What hostile modules may not change.
    fn outside(&self) -> io::Result<Vec<String>> {
        let mut names: Vec<_> = std::fs::read_dir(&self.root)?
            .map(|entry| Ok(entry?.file_name().display().to_string()))
            .collect::<io::Result<_>>()?;
        names.sort();
        for file in ["readable/file.txt", "outside/secret.txt"] {
            names.push(std::fs::read_to_string(self.root.join(file))?);
        }
        Ok(names)
    }

    /// What sessions left behind although they are over.
    fn left(&self) -> io::Result<Vec<String>> {
        let scratch = self.root.join("state/scratch");
        let mut left = Vec::new();
        let mut folders = vec![scratch];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else {
                    left.push(format!("{} is left", entry.path().display()));
                }
            }
        }
        Ok(left)
    }
}
