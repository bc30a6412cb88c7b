//! The one wasmtime engine of the process: its configuration, its clock and its permits for calls.
//!
//! wasmtime fixes two things for an engine that differ between modules here: the size of the stack,
//! and whether instructions are counted. So the engine has siblings that are like it but for these;
//! they share the permits for calls, the compiler and the compiled cache.

mod config;
mod load;
mod ticker;

pub(crate) use config::Variant;
pub use config::{Compiler, CompilerProcess, EngineConfig};
pub use load::{EngineLoad, PoolUse};
pub(crate) use ticker::EPOCH_INTERVAL;
pub use ticker::TickingCall;

use crate::blocking::{WorkQueue, work_queue};
use crate::descriptors::GuestDescriptors;
use crate::error::LoadError;
use crate::hold::Holds;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use ticker::Ticker;
use tokio::sync::{Semaphore, SemaphorePermit};
use toolhold_admission::{FairQueue, FairRate, MOST_DEPTHS, MemoryCeiling};
use toolhold_policy::MAX_CALL_DEPTH;
use toolhold_policy::limits::{Limits, MAX_INSTANCES, MAX_MEMORIES, MAX_TABLES};
use wasmtime::component::Linker;
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// Compiles components and hands out permits to run them. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<EngineShared>,
}

struct EngineShared {
    wasmtime: wasmtime::Engine,
    /// The `Linker<T>` of this engine, made for its first module. Its `T` is the state of a call, which this room does
    /// not know. Before the ticker, whose thread ends when nothing else holds the engine.
    linker: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    variant: Variant,
    ticker: Ticker,
    family: Arc<Family>,
}

/// The queue for calls: a lane for each module (by its number) and each tenant that calls it.
pub(crate) type CallQueue = FairQueue<u64, Arc<str>>;

/// Permits for calls whose clock stands still ([`Clock`](crate::call::Clock)), which tenants share.
pub(crate) type Pauses = FairQueue<Arc<str>>;

/// What siblings share.
struct Family {
    config: EngineConfig,
    admission: Arc<CallQueue>,
    /// Threads for the blocking work of calls.
    work: Arc<WorkQueue>,
    /// Of calls, which tenants share.
    rate: FairRate<String>,
    /// What the host keeps for running calls.
    kept: MemoryCeiling,
    /// One permit for each module that is asked for its tools.
    listing: Semaphore,
    pauses: Arc<Pauses>,
    /// What guests may have open together.
    descriptors: GuestDescriptors,
    /// Directories that calls have to themselves.
    holds: Holds,
    /// There are few, because there are few stack sizes. Each is kept by the modules that use it; this
    /// must not, because they hold the family.
    siblings: Mutex<HashMap<Variant, Weak<EngineShared>>>,
}

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
        let admission = CallQueue::with_depths(
            config.concurrent_calls as usize,
            config.waiting_calls as usize,
            MAX_CALL_DEPTH,
            nested_places(&config) as usize,
        );
        let family = Arc::new(Family {
            admission,
            work: work_queue(config.concurrent_calls as usize),
            rate: FairRate::per_minute(config.calls_per_minute.into()),
            kept: MemoryCeiling::new(config.kept_bytes),
            listing: Semaphore::new(LISTING_PLACES as usize),
            // A call that waits for a person keeps its instance, and with it its permit. The other half of the
            // permits is left to calls that need nobody.
            pauses: Pauses::new(config.concurrent_calls as usize / 2, 0),
            holds: Holds::new(config.waiting_calls as usize),
            config,
            descriptors: GuestDescriptors::of_process(),
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
        let ticker = Ticker::start(wasmtime.weak()).map_err(|source| LoadError::Read { source })?;
        Ok(Self {
            inner: Arc::new(EngineShared {
                wasmtime,
                linker: Mutex::default(),
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
        let mut siblings = family.siblings.lock();
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

    /// Calls that wait for a permit at this moment.
    pub fn waiting_calls(&self) -> usize {
        self.inner.family.admission.waiting()
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner.wasmtime
    }

    /// The linker that all modules of this engine share. `make` defines what it holds, once for the engine: a module
    /// adds nothing to it, and what is granted is decided by each call's state.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn linker<T: 'static>(
        &self,
        make: impl FnOnce(&wasmtime::Engine) -> wasmtime::Result<Linker<T>>,
    ) -> wasmtime::Result<Arc<Linker<T>>> {
        let mut kept = self.inner.linker.lock();
        let known = kept.clone().and_then(|linker| linker.downcast().ok());
        if let Some(linker) = known {
            return Ok(linker);
        }
        let linker = Arc::new(make(&self.inner.wasmtime)?);
        *kept = Some(linker.clone());
        Ok(linker)
    }

    pub(crate) fn admission(&self) -> &Arc<CallQueue> {
        &self.inner.family.admission
    }

    /// Threads for the blocking work of calls.
    pub(crate) fn work(&self) -> &Arc<WorkQueue> {
        &self.inner.family.work
    }

    /// Permits for calls whose clock stands still.
    pub(crate) fn pauses(&self) -> &Arc<Pauses> {
        &self.inner.family.pauses
    }

    /// What guests may have open together.
    pub(crate) fn descriptors(&self) -> &GuestDescriptors {
        &self.inner.family.descriptors
    }

    /// Directories that calls have to themselves.
    pub(crate) fn holds(&self) -> &Holds {
        &self.inner.family.holds
    }

    /// Waits for a place in which a module may be asked for its tools.
    pub(crate) async fn listing_permit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.inner.family.listing.acquire().await.ok()
    }

    /// The rate of calls over all modules.
    pub(crate) fn rate(&self) -> &FairRate<String> {
        &self.inner.family.rate
    }

    /// What the host keeps for running calls, all together.
    pub(crate) fn kept(&self) -> &MemoryCeiling {
        &self.inner.family.kept
    }

    /// Keeps the clock running for as long as the guard lives.
    pub(crate) fn running(&self) -> TickingCall<'_> {
        self.inner.ticker.enter()
    }
}

/// Modules that are asked for their tools at the same time. The pool has these places beside those of calls:
/// calls that hold all of theirs keep no module from being loaded, and the other way round.
const LISTING_PLACES: u32 = 4;

/// Maximum elements of one table, which is the size of its slot in the pool.
pub(crate) const TABLE_SLOT_ELEMENTS: usize = 20_000;

/// Calls of each depth that have a place although all places are held by calls that wait for them.
fn nested_places(config: &EngineConfig) -> u32 {
    (config.concurrent_calls / NESTED_PART).max(1)
}

fn most(limit: u64) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// The number of places to which one place of each depth is added.
const NESTED_PART: u32 = 16;

// Calls of two depths in the same places could wait for each other.
const _: () = assert!(MAX_CALL_DEPTH as usize <= MOST_DEPTHS);

/// Slots of the pool: core instances, component instances, memories, tables and stacks.
fn pool_totals(config: &EngineConfig) -> [u32; 5] {
    // A module that is asked has two instances.
    let nested = nested_places(config) * u32::from(MAX_CALL_DEPTH);
    let n = config.concurrent_calls + nested + 2 * LISTING_PLACES;
    [
        n.saturating_mul(most(MAX_INSTANCES)),
        n,
        n.saturating_mul(most(MAX_MEMORIES)),
        n.saturating_mul(most(MAX_TABLES)),
        n,
    ]
}

/// The pool of instances. It has for each place the most that a component may have. So a call in a place finds its
/// instances, memories and tables, and other calls cannot take them. An unused slot costs addresses and no memory.
fn pool(config: &EngineConfig) -> InstanceAllocationStrategy {
    let (instances, memories) = (most(MAX_INSTANCES), most(MAX_MEMORIES));
    let tables = most(MAX_TABLES);
    let [all_instances, n, all_memories, all_tables, stacks] = pool_totals(config);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(n)
        .total_stacks(stacks)
        .total_core_instances(all_instances)
        .total_memories(all_memories)
        .total_tables(all_tables)
        .max_component_instance_size(4 << 20)
        .max_core_instances_per_component(instances)
        .max_memories_per_component(memories)
        .max_tables_per_component(tables)
        .max_memory_size(config.max_memory_bytes)
        .table_elements(TABLE_SLOT_ELEMENTS)
        // Pages kept resident and cleaned by PAGEMAP_SCAN: one system call and no page fault a call.
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto)
        .max_unused_warm_slots((n / 4).max(4));
    InstanceAllocationStrategy::Pooling(pool)
}

/// Everything that compiled code depends on, and nothing else: the compiler's process uses it too.
pub(crate) fn code_config(variant: Variant) -> Config {
    let mut c = Config::new();
    c.wasm_component_model(true)
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(variant.metered)
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(64 << 20)
        .wasm_memory64(false)
        // The meter relies on it: wasmtime reports a failed growth of such a memory without asking for it first.
        .wasm_custom_page_sizes(false)
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
    // Tables for native unwinders. wasmtime walks frame pointers, for backtraces of traps and for profiles, and a panic in
    // a host function is caught before it reaches the guest's frames. Windows cannot do without.
    if cfg!(not(windows)) {
        c.native_unwind_info(false);
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_is_made_once_for_each_engine() {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let unmetered = Variant {
            metered: false,
            ..engine.which()
        };
        let sibling = engine.variant(unmetered).unwrap();
        let mut made = 0;
        let mut linker = |engine: &Engine| {
            let linker = engine.linker(|wasmtime| {
                made += 1;
                Ok(Linker::<()>::new(wasmtime))
            });
            linker.unwrap()
        };
        let first = linker(&engine);
        assert!(Arc::ptr_eq(&first, &linker(&engine.clone())));
        let other = linker(&sibling);
        assert!(!Arc::ptr_eq(&first, &other));
        assert!(wasmtime::Engine::same(other.engine(), sibling.wasmtime()));
        assert_eq!(made, 2);
        // What failed is tried again.
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let failed = engine.linker::<()>(|_| Err(wasmtime::Error::msg("no")));
        assert!(failed.is_err());
        engine
            .linker(|wasmtime| Ok(Linker::<()>::new(wasmtime)))
            .unwrap();
    }

    #[test]
    #[cfg(not(windows))]
    fn compiled_code_has_no_tables_for_native_unwinders() {
        let component = wat::parse_str(
            "(component (core module (func (export \"f\") (result i32) (i32.const 7))))",
        );
        let component = component.unwrap();
        let has_tables = |config: &Config| {
            let engine = wasmtime::Engine::new(config).unwrap();
            let artefact = engine.precompile_component(&component).unwrap();
            let name = b".eh_frame";
            artefact.windows(name.len()).any(|bytes| bytes == name)
        };
        let variant = Variant::of(&Limits::default());
        assert!(!has_tables(&code_config(variant)));
        assert!(has_tables(code_config(variant).native_unwind_info(true)));
    }
}
