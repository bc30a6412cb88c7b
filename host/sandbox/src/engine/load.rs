//! The load of an engine at a moment: calls, memory and slots of the pool, for those who watch the process.

use super::{Engine, EngineShared, pool_totals};
use std::sync::{Arc, Weak};

/// Calls, and the memory and slots that they take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Calls that have a place.
    pub running: usize,
    /// Calls that wait for one.
    pub waiting: usize,
    /// Bytes that the host keeps for calls and requests.
    pub kept_bytes: u64,
    /// The most that it may keep.
    pub kept_ceiling: u64,
    pub pool: Vec<PoolUse>,
}

/// Slots of one kind in the pool of instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// `core_instances`, `component_instances`, `memories`, `tables` or `stacks`.
    pub resource: &'static str,
    /// Taken in all engines of the family.
    pub used: u64,
    /// Slots of each engine of the family.
    pub total: u64,
}

impl Engine {
    /// The load of this engine and of its siblings.
    pub fn load(&self) -> EngineLoad {
        let family = &self.inner.family;
        let kept = &family.kept;
        EngineLoad {
            running: family.admission.held(),
            waiting: family.admission.waiting(),
            kept_bytes: kept.taken(),
            kept_ceiling: family.config.kept_bytes,
            pool: self.pool_use(),
        }
    }

    fn pool_use(&self) -> Vec<PoolUse> {
        let siblings = self.inner.family.siblings.lock();
        let siblings = siblings.values().filter_map(Weak::upgrade);
        let engines = siblings.filter(|it| !Arc::ptr_eq(it, &self.inner));
        let engines: Vec<Arc<EngineShared>> = engines.chain([self.inner.clone()]).collect();
        let metrics = engines
            .iter()
            .filter_map(|it| it.wasmtime.pooling_allocator_metrics());
        let mut used = [0_u64; 5];
        for taken in metrics {
            let taken = [
                taken.core_instances(),
                taken.component_instances(),
                taken.memories() as u64,
                taken.tables() as u64,
                taken.stacks() as u64,
            ];
            for (used, taken) in used.iter_mut().zip(taken) {
                *used += taken;
            }
        }
        let totals = pool_totals(&self.inner.family.config);
        let of = |(at, resource)| PoolUse {
            resource,
            used: used[at],
            total: u64::from(totals[at]),
        };
        POOL.into_iter().enumerate().map(of).collect()
    }
}

/// In the order of [`pool_totals`].
const POOL: [&str; 5] = [
    "core_instances",
    "component_instances",
    "memories",
    "tables",
    "stacks",
];
