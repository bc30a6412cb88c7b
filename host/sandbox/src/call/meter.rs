//! The usage of a running call, and the limit that refused more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use toolhold_policy::limits::Limits;
use wasmtime::{ResourceLimiter, Result};

/// A limit that refuses something to a guest without ending it: the guest gets an error that its
/// language knows (a failed allocation, a full disk) and may cope. If it does not, this is what the
/// call died of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusedResource {
    Memory = 1,
    Table = 2,
    Quota = 3,
    HostBytes = 4,
    Descriptors = 5,
}

/// What host calls have moved for one call. Clones share the count.
#[derive(Debug, Clone)]
pub struct Gauge(Arc<GaugeInner>);

#[derive(Debug)]
struct GaugeInner {
    limit: u64,
    moved: AtomicU64,
    refused: AtomicU8,
}

/// The call moved more bytes through host calls than it may. Ends the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("host calls moved more than {limit} bytes")]
pub struct TooManyBytes {
    limit: u64,
}

impl Gauge {
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(GaugeInner {
            limit,
            moved: AtomicU64::new(0),
            refused: AtomicU8::new(0),
        }))
    }

    /// Counts bytes that a host call moves.
    ///
    /// # Errors
    /// When the call has moved too many.
    pub fn moved(&self, bytes: u64) -> Result<(), TooManyBytes> {
        let before = self.0.moved.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.0.limit {
            self.refuse(RefusedResource::HostBytes);
            return Err(TooManyBytes {
                limit: self.0.limit,
            });
        }
        Ok(())
    }

    pub fn total(&self) -> u64 {
        self.0.moved.load(Ordering::Relaxed)
    }

    /// Remembers that a limit said no; the last one counts.
    pub fn refuse(&self, what: RefusedResource) {
        self.0.refused.store(what as u8, Ordering::Relaxed);
    }

    pub fn refused(&self) -> Option<RefusedResource> {
        match self.0.refused.load(Ordering::Relaxed) {
            1 => Some(RefusedResource::Memory),
            2 => Some(RefusedResource::Table),
            3 => Some(RefusedResource::Quota),
            4 => Some(RefusedResource::HostBytes),
            5 => Some(RefusedResource::Descriptors),
            _ => None,
        }
    }
}

/// Counts memory and table growth over the whole component, and says no at the limit.
///
/// A refused growth is reported to the guest as a failed `memory.grow`, which a runtime such as
/// CPython turns into an ordinary exception.
#[derive(Debug)]
pub struct Meter {
    memory_limit: u64,
    table_limit: u64,
    instances: usize,
    tables: usize,
    memories: usize,
    pub memory: u64,
    elements: u64,
    gauge: Gauge,
}

impl Meter {
    pub fn new(limits: &Limits, gauge: Gauge) -> Self {
        let count = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        Self {
            memory_limit: limits.memory_bytes,
            table_limit: limits.table_elements,
            instances: count(limits.instances),
            tables: count(limits.tables),
            memories: count(limits.memories),
            memory: 0,
            elements: 0,
            gauge,
        }
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let total = self
            .memory
            .saturating_add((desired - current.min(desired)) as u64);
        if total > self.memory_limit {
            self.gauge.refuse(RefusedResource::Memory);
            return Ok(false);
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let total = self
            .elements
            .saturating_add((desired - current.min(desired)) as u64);
        if total > self.table_limit {
            self.gauge.refuse(RefusedResource::Table);
            return Ok(false);
        }
        self.elements = total;
        Ok(true)
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
