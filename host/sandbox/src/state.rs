//! The data of one call's store: what the guest was given, and the meters that watch it.

use crate::bindings::{log, progress, types};
use crate::capture::{CapturePipe, LogLevel, LogLine};
use crate::egress::DenyAll;
use crate::grant::Grant;
use crate::limits::Limits;
use crate::special;
use std::time::Instant;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime::{ResourceLimiter, Result};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// Everything a store owns besides the instance. Dropped with it; nothing survives a call.
pub struct State {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    deny: DenyAll,
    table: ResourceTable,
    pub meter: Meter,
    pub stdout: CapturePipe,
    pub stderr: CapturePipe,
    pub logs: LogBook,
    pub deadline: Instant,
}

impl State {
    /// The state for a call that sees what `grant` gives and nothing else.
    pub fn new(limits: &Limits, grant: &Grant, deadline: Instant) -> Result<Self> {
        let stdout = CapturePipe::new(limits.capture_bytes);
        let stderr = CapturePipe::new(limits.capture_bytes);
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout.clone())
            .stderr(stderr.clone())
            .max_random_size(1 << 20);
        grant.apply(&mut wasi)?;
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        Ok(Self {
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            deny: DenyAll,
            table,
            meter: Meter::new(limits),
            stdout,
            stderr,
            logs: LogBook {
                room: limits.capture_bytes,
                ..LogBook::default()
            },
            deadline,
        })
    }
}

/// Everything a component may import. What was not granted is linked too, and answers "empty" or
/// "denied": most language runtimes import all of WASI whether they use it or not.
pub fn linker(engine: &wasmtime::Engine) -> Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    special::add_to_linker(&mut linker)?;
    log::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    progress::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    Ok(linker)
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.deny,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

impl types::Host for State {}

impl log::Host for State {
    fn write(&mut self, level: log::Level, message: String) {
        let level = match level {
            log::Level::Trace => LogLevel::Trace,
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.logs.push(LogLine { level, message });
    }
}

impl progress::Host for State {
    fn report(&mut self, done: u64, total: u64, note: String) {
        let of = if total == 0 {
            String::new()
        } else {
            format!(" of {total}")
        };
        self.logs.push(LogLine {
            level: LogLevel::Info,
            message: format!("{done}{of} {note}"),
        });
    }
}

/// The guest's log lines, as many bytes as its limit allows.
#[derive(Debug, Default)]
pub struct LogBook {
    pub lines: Vec<LogLine>,
    pub dropped: u64,
    room: u64,
}

impl LogBook {
    /// What a line costs besides its text, so that a flood of empty lines ends too.
    const OVERHEAD: u64 = 32;

    fn push(&mut self, line: LogLine) {
        let cost = line.message.len() as u64 + Self::OVERHEAD;
        if cost > self.room {
            self.dropped += 1;
        } else {
            self.room -= cost;
            self.lines.push(line);
        }
    }
}

/// Counts memory and table growth over the whole component, and says no at the limit.
///
/// A refused growth is reported to the guest as a failed `memory.grow`, which a runtime such as
/// CPython turns into an ordinary exception. If the guest dies of it, `refused` tells the call why.
#[derive(Debug)]
pub struct Meter {
    memory_limit: u64,
    table_limit: u64,
    pub memory: u64,
    tables: u64,
    pub refused: Option<Refused>,
}

/// Which limit a guest ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Memory,
    Table,
}

impl Meter {
    fn new(limits: &Limits) -> Self {
        Self {
            memory_limit: limits.memory_bytes,
            table_limit: limits.table_elements,
            memory: 0,
            tables: 0,
            refused: None,
        }
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let total = self
            .memory
            .saturating_add((desired - current.min(desired)) as u64);
        if total > self.memory_limit {
            self.refused = Some(Refused::Memory);
            return Ok(false);
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> Result<bool> {
        let total = self
            .tables
            .saturating_add((desired - current.min(desired)) as u64);
        if total > self.table_limit {
            self.refused = Some(Refused::Table);
            return Ok(false);
        }
        self.tables = total;
        Ok(true)
    }

    // The pool's own per-component bounds (engine.rs) are lower; these only have to be finite.
    fn instances(&self) -> usize {
        256
    }

    fn tables(&self) -> usize {
        256
    }

    fn memories(&self) -> usize {
        64
    }
}
