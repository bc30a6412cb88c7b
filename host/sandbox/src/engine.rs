//! The one wasmtime engine of the process: its configuration, its clock and its places for calls.
//!
//! wasmtime fixes two things for an engine that differ between modules here: the size of the stack,
//! and whether instructions are counted. So the engine has siblings that are like it but for these;
//! they share the places for calls, the compiler and the compiled cache.

use crate::admission::Admission;
use crate::compile::Compiler;
use crate::error::LoadError;
use crate::rate::Rate;
use crate::state::{self, State};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;
use toolhold_policy::limits::{Limits, MAX_INSTANCES, MAX_MEMORIES, MAX_TABLES};
use wasmtime::component::Linker;
use wasmtime::{
    Config, Enabled, EngineWeak, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig,
};

/// How often a running guest is asked whether it may go on. A spinning guest overshoots its deadline
/// by about this much, and holds a worker thread no longer than this.
const TICK: Duration = Duration::from_millis(1);

/// What the process as a whole allows.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Calls that may run at the same time. More wait, with their deadline running. Each place
    /// reserves address space, not memory.
    pub concurrent_calls: u32,
    /// Calls that may wait for a place. More are refused at once.
    pub waiting_calls: u32,
    /// Calls of all modules in a minute. 0: not limited.
    pub calls_per_minute: u32,
    /// The largest linear memory any module may be given, in bytes.
    pub max_memory_bytes: usize,
    /// Where components are compiled.
    pub compiler: Compiler,
}

/// What differs between sibling engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Variant {
    /// Bytes of Wasm stack: a power of two within [`STACK_BYTES`].
    pub stack_bytes: usize,
    /// Whether instructions are counted.
    pub metered: bool,
}

impl Variant {
    /// The variant that serves a module with these limits.
    pub fn of(limits: &Limits) -> Self {
        let bytes = limits
            .stack_bytes
            .clamp(STACK_BYTES.0, STACK_BYTES.1)
            .next_power_of_two();
        Self {
            stack_bytes: usize::try_from(bytes).unwrap_or(1 << 20),
            metered: limits.metered(),
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            concurrent_calls: 64,
            // Each costs a few hundred bytes; who waits behind so many will not make its deadline.
            waiting_calls: 4_096,
            calls_per_minute: 0,
            max_memory_bytes: 512 << 20,
            compiler: Compiler::InProcess,
        }
    }
}

/// Compiles components and hands out places to run them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    wasmtime: wasmtime::Engine,
    linker: Linker<State>,
    variant: Variant,
    ticker: Ticker,
    family: Arc<Family>,
}

/// What siblings share.
struct Family {
    config: EngineConfig,
    admission: Arc<Admission>,
    rate: Rate,
    /// There are few: stack sizes are powers of two. Each is kept by the modules that use it; this
    /// must not, because they hold the family.
    siblings: Mutex<HashMap<Variant, Weak<Inner>>>,
}

/// The smallest and the largest stack a call may have.
const STACK_BYTES: (u64, u64) = (64 << 10, 8 << 20);

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("variant", &self.inner.variant)
            .field("config", &self.inner.family.config)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Builds the engine and starts its clock thread.
    ///
    /// # Errors
    /// [`LoadError::Compile`] if this machine cannot reserve the address space or lacks a feature.
    pub fn new(config: EngineConfig) -> Result<Self, LoadError> {
        let admission = Admission::new(
            config.concurrent_calls as usize,
            config.waiting_calls as usize,
        );
        let family = Arc::new(Family {
            admission,
            rate: Rate::per_minute(config.calls_per_minute.into()),
            config,
            siblings: Mutex::default(),
        });
        Self::build(Variant::of(&Limits::default()), family)
    }

    fn build(variant: Variant, family: Arc<Family>) -> Result<Self, LoadError> {
        let failed = |error: wasmtime::Error| LoadError::Compile {
            reason: format!("{error:#}"),
        };
        let mut config = code_config(variant);
        config.allocation_strategy(pool(&family.config));
        let wasmtime = wasmtime::Engine::new(&config).map_err(failed)?;
        let linker = state::linker(&wasmtime).map_err(failed)?;
        let ticker = Ticker::start(wasmtime.weak()).map_err(|source| LoadError::Read { source })?;
        Ok(Self {
            inner: Arc::new(Inner {
                wasmtime,
                linker,
                variant,
                ticker,
                family,
            }),
        })
    }

    /// This engine or its sibling of that variant.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn variant(&self, variant: Variant) -> Result<Self, LoadError> {
        if variant == self.inner.variant {
            return Ok(self.clone());
        }
        let family = &self.inner.family;
        let mut siblings = family
            .siblings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = siblings.get(&variant).and_then(Weak::upgrade) {
            return Ok(Self { inner });
        }
        let sibling = Self::build(variant, family.clone())?;
        siblings.insert(variant, Arc::downgrade(&sibling.inner));
        Ok(sibling)
    }

    pub fn config(&self) -> &EngineConfig {
        &self.inner.family.config
    }

    pub(crate) fn which(&self) -> Variant {
        self.inner.variant
    }

    /// Calls that could start at this moment without waiting.
    pub fn free_places(&self) -> usize {
        self.inner.family.admission.free()
    }

    /// Calls that wait for a place at this moment.
    pub fn waiting_calls(&self) -> usize {
        self.inner.family.admission.waiting()
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    pub(crate) fn linker(&self) -> &Linker<State> {
        &self.inner.linker
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.inner.family.admission
    }

    /// The rate of calls over all modules.
    pub(crate) fn rate(&self) -> &Rate {
        &self.inner.family.rate
    }

    /// Keeps the clock running for as long as the guard lives.
    pub(crate) fn running(&self) -> Running<'_> {
        self.inner.ticker.enter()
    }
}

/// The places for instances. WASMTIME.md, section 5, measured and argued there line by line.
fn pool(config: &EngineConfig) -> InstanceAllocationStrategy {
    let n = config.concurrent_calls;
    let most = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    // CPython alone brings 14 core modules, hence the factors.
    pool.total_component_instances(n)
        .total_stacks(n)
        .total_core_instances(20 * n)
        .total_memories(2 * n)
        .total_tables(4 * n)
        .max_component_instance_size(4 << 20)
        .max_core_instances_per_component(most(MAX_INSTANCES))
        .max_memories_per_component(most(MAX_MEMORIES))
        .max_tables_per_component(most(MAX_TABLES))
        .max_memory_size(config.max_memory_bytes)
        .table_elements(20_000)
        // Pages kept resident and cleaned by PAGEMAP_SCAN: one system call and no page fault a call.
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto)
        .max_unused_warm_slots((n / 4).max(4));
    InstanceAllocationStrategy::Pooling(pool)
}

/// Everything that compiled code depends on, and nothing else: the compiler's process uses it too.
/// WASMTIME.md, section 5.
pub(crate) fn code_config(variant: Variant) -> Config {
    let mut c = Config::new();
    c.wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(variant.metered)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(64 << 20)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        // The adapters between components inside a component (JavaScript's are made so) copy from one
        // memory to another; without this wasmtime panics on them. The meter sums over all memories.
        .wasm_multi_memory(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(16))
        .max_wasm_stack(variant.stack_bytes)
        // The difference is what host functions may use on the guest's fiber.
        .async_stack_size(variant.stack_bytes + (1536 << 10))
        .async_stack_zeroing(true)
        .cranelift_opt_level(OptLevel::Speed);
    c
}

/// Advances the engine's epoch every [`TICK`] while at least one call runs, and sleeps otherwise.
#[derive(Debug)]
struct Ticker {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

impl Ticker {
    fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let seen = running.clone();
        let handle = thread::Builder::new()
            .name("toolhold-epoch".into())
            .spawn(move || {
                loop {
                    if seen.load(Ordering::Acquire) == 0 {
                        // A missed wake-up costs at most this once: unpark before park is remembered.
                        thread::park_timeout(Duration::from_millis(500));
                    } else {
                        thread::sleep(TICK);
                    }
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })?;
        Ok(Self {
            running,
            thread: handle.thread().clone(),
        })
    }

    fn enter(&self) -> Running<'_> {
        if self.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
        Running(self)
    }
}

/// The last of an engine: its clock thread is woken to find it gone.
impl Drop for Ticker {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

/// A call in progress, for the clock.
#[derive(Debug)]
pub struct Running<'a>(&'a Ticker);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
