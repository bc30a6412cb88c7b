//! The limiter of a call's linear memories and tables: a growth is charged before wasmtime makes it, and given back
//! if it fails.

use super::meter::{Gauge, RefusedResource};
use crate::engine::TABLE_SLOT_ELEMENTS;
use toolhold_policy::limits::Limits;
use wasmtime::{Error, ResourceLimiter, Result};

/// Counts memory and table growth over the whole component, and refuses growth at the limit.
///
/// A refused growth is reported to the guest as a failed `memory.grow`, which a runtime such as
/// CPython turns into an ordinary exception.
#[derive(Debug)]
pub struct GrowthMeter {
    bytes: Charged,
    elements: Charged,
    instances: usize,
    tables: usize,
    memories: usize,
    gauge: Gauge,
}

/// The total size of all memories, or of all tables, under one limit.
#[derive(Debug)]
struct Charged {
    limit: u64,
    total: u64,
    /// A declared maximum below this is the component's own. One from here on is the pool's slot, or decides nothing
    /// because the limit refuses first.
    own_maximum_below: u64,
    /// The growth that was allowed last: a failure that wasmtime reports is of this one.
    last: u64,
}

/// The answer to a growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    Charged,
    /// The component declares a maximum below the wanted size. No limit of the host refused it.
    OverOwnMaximum,
    OverLimit,
}

impl Charged {
    fn new(limit: u64, slot: usize) -> Self {
        Self {
            limit,
            total: 0,
            own_maximum_below: limit.min(slot as u64),
            last: 0,
        }
    }

    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Growth {
        let maximum = maximum.map(|maximum| maximum as u64);
        let own = maximum.filter(|maximum| *maximum < self.own_maximum_below);
        if own.is_some_and(|own| desired as u64 > own) {
            return Growth::OverOwnMaximum;
        }
        let growth = desired.saturating_sub(current) as u64;
        let total = self.total.saturating_add(growth);
        if total > self.limit {
            return Growth::OverLimit;
        }
        (self.total, self.last) = (total, growth);
        Growth::Charged
    }

    /// Gives the last growth back, at most once.
    fn refund(&mut self) {
        self.total = self.total.saturating_sub(std::mem::take(&mut self.last));
    }
}

impl GrowthMeter {
    pub fn new(limits: &Limits, gauge: Gauge) -> Self {
        let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        Self {
            bytes: Charged::new(limits.memory_bytes, usize::MAX),
            elements: Charged::new(limits.table_elements, TABLE_SLOT_ELEMENTS),
            instances: count(limits.instances),
            tables: count(limits.tables),
            memories: count(limits.memories),
            gauge,
        }
    }

    /// Bytes of all linear memories. They never shrink.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes.total
    }

    fn answer(&self, growth: Growth, resource: RefusedResource) -> bool {
        if growth == Growth::OverLimit {
            self.gauge.refuse(resource);
        }
        growth == Growth::Charged
    }
}

impl ResourceLimiter for GrowthMeter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let growth = self.bytes.grow(current, desired, maximum);
        Ok(self.answer(growth, RefusedResource::Memory))
    }

    /// The system has no more memory, or the pool's slot is smaller than a limit that was raised since the start.
    fn memory_grow_failed(&mut self, error: Error) -> Result<()> {
        self.bytes.refund();
        self.gauge.refuse(RefusedResource::Memory);
        tracing::debug!(error = format!("{error:#}"), "a memory did not grow");
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let growth = self.elements.grow(current, desired, maximum);
        Ok(self.answer(growth, RefusedResource::Table))
    }

    /// The pool's slot is smaller than the limit.
    fn table_grow_failed(&mut self, error: Error) -> Result<()> {
        self.elements.refund();
        self.gauge.refuse(RefusedResource::Table);
        tracing::debug!(error = format!("{error:#}"), "a table did not grow");
        Ok(())
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_admission::MemoryCeiling;
    use wasmtime::{Instance, Module, Store};

    const PAGE_BYTES: u64 = 64 << 10;

    fn meter(limits: &Limits) -> GrowthMeter {
        let share = MemoryCeiling::new(1 << 20).of("a");
        GrowthMeter::new(limits, Gauge::new(limits, share))
    }

    /// Calls the exported function `run` of a module, and returns its meter.
    fn run(wat: &str, limits: &Limits) -> GrowthMeter {
        let mut config = wasmtime::Config::new();
        config.wasm_multi_memory(true);
        let engine = wasmtime::Engine::new(&config).unwrap();
        let module = Module::new(&engine, wat::parse_str(wat).unwrap()).unwrap();
        let mut store = Store::new(&engine, meter(limits));
        store.limiter(|meter| meter);
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance.get_typed_func::<(), ()>(&mut store, "run");
        run.unwrap().call(&mut store, ()).unwrap();
        store.into_data()
    }

    fn ten_pages() -> Limits {
        Limits {
            memory_bytes: 10 * PAGE_BYTES,
            table_elements: 100,
            ..Limits::default()
        }
    }

    #[test]
    fn growth_over_the_components_own_maximum_is_neither_charged_nor_blamed() {
        let meter = run(
            "(module (memory 1 3) (table 1 5 funcref)
              (func (export \"run\") (local i32)
                (loop
                  (drop (memory.grow (i32.const 4)))
                  (drop (table.grow (ref.null func) (i32.const 50)))
                  (drop (memory.grow (i32.const 65535)))
                  (br_if 0 (i32.lt_u (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.const 40))))
                (if (i32.ne (memory.grow (i32.const 2)) (i32.const 1)) (then unreachable))
                (if (i32.ne (table.grow (ref.null func) (i32.const 4)) (i32.const 1)) (then unreachable))))",
            &ten_pages(),
        );
        assert_eq!(meter.memory_bytes(), 3 * PAGE_BYTES);
        assert_eq!(meter.elements.total, 5);
        assert_eq!(meter.gauge.refused(), None);
    }

    #[test]
    fn growth_over_the_limit_is_blamed_and_leaves_the_rest_of_the_limit() {
        let meter = run(
            "(module (memory 1) (memory 2 200)
              (func (export \"run\")
                (if (i32.ne (memory.grow 0 (i32.const 8)) (i32.const -1)) (then unreachable))
                (if (i32.ne (memory.grow 1 (i32.const 7)) (i32.const 2)) (then unreachable))))",
            &ten_pages(),
        );
        assert_eq!(meter.memory_bytes(), 10 * PAGE_BYTES);
        assert_eq!(meter.gauge.refused(), Some(RefusedResource::Memory));
    }

    #[test]
    fn failed_growth_is_given_back_once() {
        let mut meter = meter(&ten_pages());
        let page = usize::try_from(PAGE_BYTES).unwrap();
        assert!(meter.memory_growing(0, 4 * page, None).unwrap());
        for _ in 0..40 {
            assert!(meter.memory_growing(4 * page, 10 * page, None).unwrap());
            meter.memory_grow_failed(Error::msg("no memory")).unwrap();
            // A report without a growth of its own takes nothing away.
            meter.memory_grow_failed(Error::msg("no memory")).unwrap();
            assert_eq!(meter.memory_bytes(), 4 * PAGE_BYTES);
        }
        assert!(meter.table_growing(0, 60, None).unwrap());
        assert!(meter.table_growing(60, 100, None).unwrap());
        meter.table_grow_failed(Error::msg("no slot")).unwrap();
        assert!(meter.table_growing(60, 100, Some(1_000)).unwrap());
        assert!(!meter.table_growing(100, 101, Some(1_000)).unwrap());
        assert_eq!(meter.gauge.refused(), Some(RefusedResource::Table));
    }

    /// wasmtime tells the slot as the maximum of a table that declares none.
    #[test]
    fn a_table_that_outgrows_its_slot_is_given_back_and_blamed() {
        let mut meter = meter(&Limits::default());
        let slot = TABLE_SLOT_ELEMENTS;
        assert!(meter.table_growing(0, 10, Some(slot)).unwrap());
        assert!(meter.table_growing(10, slot + 1, Some(slot)).unwrap());
        meter.table_grow_failed(Error::msg("no slot")).unwrap();
        assert_eq!(meter.elements.total, 10);
        assert_eq!(meter.gauge.refused(), Some(RefusedResource::Table));
    }
}
