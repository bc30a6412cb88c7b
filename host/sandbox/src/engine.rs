//! The one wasmtime engine of the process: its configuration, its clock and its places for calls.

use crate::error::LoadError;
use crate::state::{self, State};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::sync::Semaphore;
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
    /// Bytes of Wasm stack of a call. Modules with another limit get a sibling of this engine.
    pub stack_bytes: usize,
    /// The largest linear memory any module may be given, in bytes.
    pub max_memory_bytes: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            concurrent_calls: 64,
            stack_bytes: 512 << 10,
            max_memory_bytes: 512 << 20,
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
    places: Arc<Semaphore>,
    ticker: Ticker,
    config: EngineConfig,
    /// wasmtime fixes the stack size for an engine, so each other size has an engine of its own. By
    /// stack size; powers of two within [`STACK_BYTES`], so there are few.
    siblings: Mutex<HashMap<usize, Engine>>,
}

/// The smallest and the largest stack a call may have.
const STACK_BYTES: (u64, u64) = (64 << 10, 8 << 20);

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("config", &self.inner.config)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Builds the engine and starts its clock thread.
    ///
    /// # Errors
    /// [`LoadError::Compile`] if this machine cannot reserve the address space or lacks a feature.
    pub fn new(config: EngineConfig) -> Result<Self, LoadError> {
        let places = Arc::new(Semaphore::new(config.concurrent_calls as usize));
        Self::build(config, places)
    }

    fn build(config: EngineConfig, places: Arc<Semaphore>) -> Result<Self, LoadError> {
        let failed = |error: wasmtime::Error| LoadError::Compile {
            reason: format!("{error:#}"),
        };
        let wasmtime = wasmtime::Engine::new(&wasmtime_config(&config)).map_err(failed)?;
        let linker = state::linker(&wasmtime).map_err(failed)?;
        let ticker = Ticker::start(wasmtime.weak()).map_err(|source| LoadError::Read { source })?;
        Ok(Self {
            inner: Arc::new(Inner {
                wasmtime,
                linker,
                places,
                ticker,
                config,
                siblings: Mutex::default(),
            }),
        })
    }

    /// This engine, or the one that is like it but for the stack: at least `bytes`, rounded up to a
    /// power of two. They share the places for calls and the compiled cache.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn with_stack(&self, bytes: u64) -> Result<Self, LoadError> {
        let bytes = bytes
            .clamp(STACK_BYTES.0, STACK_BYTES.1)
            .next_power_of_two();
        let stack_bytes = usize::try_from(bytes).unwrap_or(self.inner.config.stack_bytes);
        if stack_bytes == self.inner.config.stack_bytes {
            return Ok(self.clone());
        }
        let mut siblings = self
            .inner
            .siblings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(sibling) = siblings.get(&stack_bytes) {
            return Ok(sibling.clone());
        }
        let config = EngineConfig {
            stack_bytes,
            ..self.inner.config.clone()
        };
        let sibling = Self::build(config, self.inner.places.clone())?;
        siblings.insert(stack_bytes, sibling.clone());
        Ok(sibling)
    }

    pub fn config(&self) -> &EngineConfig {
        &self.inner.config
    }

    /// Calls that could start at this moment without waiting.
    pub fn free_places(&self) -> usize {
        self.inner.places.available_permits()
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    pub(crate) fn linker(&self) -> &Linker<State> {
        &self.inner.linker
    }

    pub(crate) fn places(&self) -> &Semaphore {
        &self.inner.places
    }

    /// Keeps the clock running for as long as the guard lives.
    pub(crate) fn running(&self) -> Running<'_> {
        self.inner.ticker.enter()
    }
}

/// WASMTIME.md, section 5, measured and argued there line by line.
fn wasmtime_config(config: &EngineConfig) -> Config {
    let n = config.concurrent_calls;
    let mut pool = PoolingAllocationConfig::new();
    // CPython alone brings 14 core modules, hence the factors.
    pool.total_component_instances(n)
        .total_stacks(n)
        .total_core_instances(20 * n)
        .total_memories(2 * n)
        .total_tables(4 * n)
        .max_component_instance_size(4 << 20)
        .max_core_instances_per_component(64)
        .max_memories_per_component(4)
        .max_tables_per_component(16)
        .max_memory_size(config.max_memory_bytes)
        .table_elements(20_000)
        // Pages kept resident and cleaned by PAGEMAP_SCAN: one system call and no page fault a call.
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto)
        .max_unused_warm_slots((n / 4).max(4));

    let mut c = Config::new();
    c.wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(true)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(64 << 20)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        // The adapters between components inside a component (JavaScript's are made so) copy from one
        // memory to another; without this wasmtime panics on them. The meter sums over all memories.
        .wasm_multi_memory(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(16))
        .max_wasm_stack(config.stack_bytes)
        // The difference is what host functions may use on the guest's fiber.
        .async_stack_size(config.stack_bytes + (1536 << 10))
        .async_stack_zeroing(true)
        .cranelift_opt_level(OptLevel::Speed)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
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
