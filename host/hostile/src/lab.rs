//! The environment of attacks: engines, registries, temporary folders, and the definition of when
//! an attack *ends*.
//!
//! "Ends" (docs/security.md): the call returned its typed error in time, its place is free again, and a
//! benign call right after it works. That no thread is left is checked by [`crate::run`].

use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::process;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use toolhold_policy::{
    Access, CallError, CallReport, Caller, DirectoryGrant, Grant, Invocation, Limits, Output,
};
use toolhold_sandbox::compile::cache::Cache;
use toolhold_sandbox::{Compiler, Engine, EngineConfig, LoadError, ModulePolicy, Policy, Registry};

/// How much of each attack is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Fewer repetitions and longer timeouts: for a machine with other work.
    Quick,
    /// Exactly as docs/security.md states.
    Full,
}

impl Scale {
    /// A timeout that no attack reaches.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Self::Quick => Duration::from_mins(2),
            Self::Full => Duration::from_mins(5),
        }
    }
}

/// The conditions that all attacks share.
#[derive(Debug)]
pub struct Lab {
    scale: Scale,
    grace: Duration,
    engine: EngineConfig,
    /// Of what all attacks load: compiling it is not what they try.
    cache: Option<Cache>,
    /// The place of that cache.
    shared: Option<SharedCode>,
}

/// Place of the compiled components that all attacks of a run share, and of the key that vouches for them.
#[derive(Debug)]
pub(crate) struct SharedCode {
    pub compiled: PathBuf,
    pub key: PathBuf,
}

impl SharedCode {
    fn in_folder(folder: &Path) -> Self {
        Self {
            compiled: folder.join("compiled"),
            key: folder.join("own/key"),
        }
    }
}

impl Lab {
    /// `engine`: configuration of all engines, except their number of concurrent calls.
    pub fn new(scale: Scale, engine: EngineConfig) -> Self {
        let grace = match scale {
            Scale::Quick => Duration::from_secs(1),
            Scale::Full => LATENESS,
        };
        let shared =
            std::env::var_os(CACHE).map(|folder| SharedCode::in_folder(Path::new(&folder)));
        let cache = shared
            .as_ref()
            .and_then(|code| Cache::open(&code.compiled, &code.key).ok());
        let lab = Self {
            scale,
            grace,
            engine,
            shared: shared.filter(|_| cache.is_some()),
            cache,
        };
        lab.warm_up();
        lab
    }

    /// The cache of compiled code, for attacks on something else than the compiler.
    pub(crate) fn cache(&self) -> Option<Cache> {
        self.cache.clone()
    }

    /// Place of the cache, for hosts in processes of their own. `None`: there is none.
    pub(crate) fn shared_code(&self) -> Option<&SharedCode> {
        self.shared.as_ref()
    }

    /// Longest time of what an attack measures once. By [`Scale::Quick`] it is longer than promised, for machines with other
    /// work; `Arena::ends` and `Lab::tries` hold to what is promised.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// `quick` or `full`, by the scale.
    pub fn times<T>(&self, quick: T, full: T) -> T {
        match self.scale {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// A timeout that no attack reaches.
    pub(crate) fn patience(&self) -> Duration {
        self.scale.patience()
    }

    /// Tries of something that must take less than `bound`, exactly as the document promises. On a machine with other
    /// work one of some tries must, because a fault that takes longer does so in each of them.
    pub(crate) fn tries(&self, bound: Duration, what: &'static str) -> BoundedTries {
        BoundedTries {
            bound,
            what,
            left: self.times(QUICK_TRIES, 1),
            fastest: Duration::MAX,
        }
    }

    /// The compiler's threads stay once it has been used; they must not look like leaked ones.
    fn warm_up(&self) {
        let warmed = runtime().map(|runtime| {
            runtime.block_on(async {
                let mut arena = self.arena(|_| ())?;
                arena
                    .load("benign", components::parse(components::COMPUTE)?)
                    .await?;
                Ok::<_, AttackFailure>(())
            })
        });
        // A failure here fails every attack, and each reports it.
        drop(warmed);
    }

    pub(crate) fn engine(&self) -> Result<Engine, AttackFailure> {
        self.engine_of(PLACES)
    }

    fn engine_of(&self, places: u32) -> Result<Engine, AttackFailure> {
        self.engine_keeping(places, self.engine.kept_bytes)
    }

    fn engine_keeping(&self, places: u32, kept_bytes: u64) -> Result<Engine, AttackFailure> {
        Ok(Engine::new(EngineConfig {
            concurrent_calls: places,
            kept_bytes,
            ..self.engine.clone()
        })?)
    }

    /// This host's own executable, if it compiles in a process of its own: that process is it.
    pub(crate) fn program(&self) -> Option<&Path> {
        match &self.engine.compiler {
            Compiler::Process(process) => Some(&process.program),
            Compiler::InProcess => None,
        }
    }

    pub fn folder(&self) -> Result<TempDir, AttackFailure> {
        Ok(tempfile::Builder::new()
            .prefix("toolhold-hostile-")
            .tempdir()?)
    }

    /// A folder in memory where this machine has a place for that: for trees of very many folders, because some disks take
    /// milliseconds to remove each, and for files that are flushed very often. Such a place may have 64 MiB.
    pub(crate) fn folder_in_memory(&self) -> Result<TempDir, AttackFailure> {
        match std::env::var_os(TREES) {
            Some(place) => Ok(tempfile::tempdir_in(place)?),
            None => self.folder(),
        }
    }

    /// An arena without modules. `change` sets what they get.
    pub(crate) fn arena(&self, change: impl FnOnce(&mut Policy)) -> Result<Arena, AttackFailure> {
        self.arena_of(PLACES, change)
    }

    /// An arena in which so many calls may run at the same time.
    pub(crate) fn arena_of(
        &self,
        places: u32,
        change: impl FnOnce(&mut Policy),
    ) -> Result<Arena, AttackFailure> {
        Ok(self.arena_on(self.engine_of(places)?, places, change))
    }

    /// An arena in which the host keeps at most so many bytes for all calls.
    pub(crate) fn arena_keeping(
        &self,
        places: u32,
        kept_bytes: u64,
        change: impl FnOnce(&mut Policy),
    ) -> Result<Arena, AttackFailure> {
        let engine = self.engine_keeping(places, kept_bytes)?;
        Ok(self.arena_on(engine, places, change))
    }

    fn arena_on(&self, engine: Engine, places: u32, change: impl FnOnce(&mut Policy)) -> Arena {
        let mut policy = Policy::default();
        policy.limits.timeout_ms = 5_000;
        change(&mut policy);
        Arena {
            registry: Registry::new(engine.clone(), self.cache(), policy),
            engine,
            places: places as usize,
            grace: self.grace,
            repeats: self.times(QUICK_TRIES, 1) - 1,
            usual: None,
        }
    }

    /// An arena as an author has it: crashes name lines of the source.
    pub(crate) fn arena_of_author(&self) -> Result<Arena, AttackFailure> {
        let engine = Engine::new(EngineConfig {
            concurrent_calls: PLACES,
            debug_info: Some("no toolchains".into()),
            ..self.engine.clone()
        })?;
        Ok(Arena {
            registry: Registry::new(engine.clone(), None, Policy::default()),
            engine,
            places: PLACES as usize,
            grace: self.grace,
            repeats: self.times(QUICK_TRIES, 1) - 1,
            usual: None,
        })
    }

    /// An arena with the benign module, and a hostile one, given as WAT, named `bad`.
    pub(crate) async fn against(
        &self,
        wat: &str,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Arena, AttackFailure> {
        let mut arena = self.arena(|policy| change(&mut policy.limits))?;
        arena.benign().await?;
        arena.load("bad", components::parse(wat)?).await?;
        Ok(arena)
    }

    /// An arena with the benign module, and the guest of `attacker/` under the name `bad`.
    pub(crate) async fn against_guest(
        &self,
        grant: Grant,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Arena, AttackFailure> {
        let mut arena = self.arena(|policy| {
            change(&mut policy.limits);
            let module = ModulePolicy {
                grant,
                ..ModulePolicy::default()
            };
            policy.modules.insert("bad".into(), module);
        })?;
        arena.benign().await?;
        arena.load("bad", components::ATTACKER.to_vec()).await?;
        Ok(arena)
    }
}

/// Repeats one try until it takes less than its bound, a few times at most.
pub(crate) struct BoundedTries {
    bound: Duration,
    what: &'static str,
    left: u32,
    pub fastest: Duration,
}

impl BoundedTries {
    /// Whether it has to be tried once more.
    ///
    /// # Errors
    /// It was tried often enough, and took too long each time.
    pub fn go_on(&mut self) -> Result<bool, AttackFailure> {
        if self.fastest < self.bound {
            return Ok(false);
        }
        ensure(self.left > 0, || {
            let (took, bound) = (ms(self.fastest), ms(self.bound));
            format!("{} took {took}, bound {bound}", self.what)
        })?;
        self.left -= 1;
        Ok(true)
    }

    pub fn took(&mut self, time: Duration) {
        self.fastest = self.fastest.min(time);
    }
}

/// The variable with the place for [`Lab::folder_in_memory`]. Who starts the process of an attack sets it, and
/// removes what is left there.
pub(crate) const TREES: &str = "HOSTILE_TREES";

/// The variable with a folder for compiled components that all attacks of a run share. Absent: none are kept.
pub(crate) const CACHE: &str = "HOSTILE_CACHE";

/// Where one attack runs.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        // Two, so that a guest that keeps a thread is noticed.
        .worker_threads(2)
        .thread_name(process::THREAD)
        .enable_all()
        .build()
}

/// Calls that may run at the same time in an arena. Of so few, none are kept for newcomers.
pub(crate) const PLACES: u32 = 8;

/// Longest time from the deadline of a call to its end: docs/security.md, promise 1.
const LATENESS: Duration = Duration::from_millis(250);

/// Tries of [`Scale::Quick`] of which one must take less than its bound.
const QUICK_TRIES: u32 = 4;

/// Benign calls of which the fastest is compared.
const CALLS: u32 = 5;

/// Extra time that the fastest of some benign calls may take on a machine with other work.
const NOISE: Duration = Duration::from_millis(10);

/// A registry of one attack, on an engine of its own.
pub(crate) struct Arena {
    pub registry: Registry,
    pub engine: Engine,
    places: usize,
    grace: Duration,
    /// Calls that may be made once more, each after one that ended too late.
    repeats: u32,
    /// How long a benign call takes before the attack.
    usual: Option<Duration>,
}

impl Arena {
    pub async fn load(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), LoadError> {
        self.registry.load_bytes(name, bytes).await
    }

    /// Loads the benign module, and measures its calls before the attack.
    pub async fn benign(&mut self) -> Result<(), AttackFailure> {
        self.load_benign().await?;
        self.measure_benign().await
    }

    pub async fn load_benign(&mut self) -> Result<(), AttackFailure> {
        let bytes = components::parse(components::COMPUTE)?;
        Ok(self.load("benign", bytes).await?)
    }

    /// Measures benign calls. The module must be approved, where modules need that.
    pub async fn measure_benign(&mut self) -> Result<(), AttackFailure> {
        let mut usual = Duration::MAX;
        for _ in 0..CALLS {
            usual = usual.min(self.benign_call().await?);
        }
        self.usual = Some(usual);
        Ok(())
    }

    /// How long a benign call takes, which must be right.
    async fn benign_call(&self) -> Result<Duration, AttackFailure> {
        let started = Instant::now();
        let counted = self.value("benign.count", json!({})).await?;
        let took = started.elapsed();
        ensure(counted == json!(2), || {
            format!("a benign call counted {counted} in a fresh instance")
        })?;
        Ok(took)
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> CallReport {
        self.call_within(tool, arguments, None).await
    }

    pub async fn call_within(
        &self,
        tool: &str,
        arguments: Value,
        timeout: Option<Duration>,
    ) -> CallReport {
        invoke(&self.registry, tool, &arguments, timeout).await
    }

    /// As [`Self::call`], on behalf of a caller.
    pub async fn call_as(&self, caller: Caller<'_>, tool: &str, arguments: Value) -> CallReport {
        let invocation = Invocation {
            caller,
            ..Invocation::new("attack", tool, &arguments)
        };
        self.registry.call(&invocation).await
    }

    /// Calls a tool that must work.
    pub async fn value(&self, tool: &str, arguments: Value) -> Result<Value, AttackFailure> {
        match self.call(tool, arguments).await.result? {
            Output::Value(value) | Output::Message(value) => Ok(value),
        }
    }

    /// Calls `tool`, which must end with an error of this kind, and as early as the document promises.
    pub async fn ends(
        &self,
        tool: &str,
        arguments: Value,
        kind: &str,
    ) -> Result<CallReport, AttackFailure> {
        let timeout = self
            .registry
            .tool(tool)
            .and_then(|_| self.registry.module(tool.split('.').next()?))
            .map_or(Duration::ZERO, |module| module.limits().timeout());
        let mut tries = BoundedTries {
            bound: timeout + LATENESS,
            what: "the call",
            left: self.repeats,
            fastest: Duration::MAX,
        };
        loop {
            let started = Instant::now();
            let report = self.call(tool, arguments.clone()).await;
            tries.took(started.elapsed());
            if !tries.go_on()? {
                expect_kind(&report, kind)?;
                self.unharmed().await?;
                return Ok(report);
            }
        }
    }

    /// All places are free, and a benign call works at once and as fast as before.
    pub async fn unharmed(&self) -> Result<(), AttackFailure> {
        let free = self.engine.free_places();
        ensure(free == self.places, || {
            format!("{} places were not given back", self.places - free)
        })?;
        let first = self.benign_call().await?;
        ensure(first < self.grace, || {
            format!("a benign call right after it took {}", ms(first))
        })?;
        let Some(usual) = self.usual else {
            return Ok(());
        };
        // The fastest of some, before and after: what else the machine does slows down single calls.
        let (most, mut fastest) = (usual * 2 + NOISE, first);
        for _ in 1..CALLS {
            if fastest <= most {
                break;
            }
            fastest = fastest.min(self.benign_call().await?);
        }
        ensure(fastest <= most, || {
            format!(
                "a benign call takes {} after it, and took {} before",
                ms(fastest),
                ms(usual)
            )
        })
    }
}

/// One call.
pub(crate) async fn invoke(
    registry: &Registry,
    tool: &str,
    arguments: &Value,
    timeout: Option<Duration>,
) -> CallReport {
    let invocation = Invocation {
        timeout,
        ..Invocation::new("attack", tool, arguments)
    };
    registry.call(&invocation).await
}

/// The error kind of a call, or `ok`.
pub(crate) fn kind(report: &CallReport) -> &'static str {
    report
        .result
        .as_ref()
        .map_or_else(CallError::kind, |_| "ok")
}

pub(crate) fn expect_kind(report: &CallReport, expected: &str) -> Result<(), AttackFailure> {
    ensure(kind(report) == expected, || match &report.result {
        Ok(output) => {
            let text: String = format!("{output:?}").chars().take(200).collect();
            format!("it should end with `{expected}`, and returned {text}")
        }
        Err(error) => format!(
            "it should end with `{expected}`, and ended with `{}`: {error}",
            error.kind()
        ),
    })
}

/// What is written in the table about a call that ended: its error and its time.
pub(crate) fn said(report: &CallReport) -> String {
    format!("{} after {}", kind(report), ms(report.usage.duration))
}

pub(crate) fn ms(duration: Duration) -> String {
    match duration.as_micros() {
        micros @ 0..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros @ 10_000..10_000_000 => format!("{} ms", micros / 1_000),
        micros => format!("{} s", micros / 1_000_000),
    }
}

/// A directory that the guest sees as `guest`.
pub(crate) fn directory(host: &Path, guest: &str, access: Access) -> DirectoryGrant {
    DirectoryGrant {
        host: host.to_owned(),
        guest: guest.into(),
        access,
        quota_bytes: None,
    }
}

/// Numbers without a pattern, the same in every run.
#[derive(Debug)]
pub(crate) struct PseudoRandom(pub u64);

impl PseudoRandom {
    /// Below `end`, which is not 0. Xorshift: plenty for choosing moments and offsets.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Every one of many calls ended with an error of this kind.
pub(crate) fn ensure_all_ended(reports: &[CallReport], kind: &str) -> Result<(), AttackFailure> {
    reports
        .iter()
        .try_for_each(|report| expect_kind(report, kind))
}
