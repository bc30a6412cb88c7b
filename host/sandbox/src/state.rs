//! The data of one call's store: what the guest was given, and the meters that watch it.

use crate::bindings::{current_call, key_value, log, other_tools, progress, secrets};
use crate::capture::CapturePipe;
use crate::current::CurrentCall;
use crate::egress::Hooks;
use crate::files::{self, OpenFiles};
use crate::grant::{Prepared, Scratch};
use crate::io_error;
use crate::key_value::Namespace;
use crate::log_sink::GuestLogSink;
use crate::meter::{Gauge, Meter};
use crate::peers::OtherTools;
use crate::quota::Quota;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use toolhold_policy::Caller;
use toolhold_policy::limits::Limits;
use toolhold_policy::{LogLevel, LogLine};
use wasmtime::Result;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// Everything a store owns besides the instance. Dropped with it; nothing survives a call.
pub struct State {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    pub outbound: Hooks,
    pub table: ResourceTable,
    pub files: OpenFiles,
    /// By guest path.
    pub quotas: HashMap<String, Arc<Quota>>,
    /// Held for its end: it takes the files with it.
    _scratch: Option<Scratch>,
    pub key_value: Option<Namespace>,
    pub peers: OtherTools,
    pub current: CurrentCall,
    pub meter: Meter,
    pub gauge: Gauge,
    pub stdout: CapturePipe,
    pub stderr: CapturePipe,
    pub logs: LogBook,
    pub deadline: Instant,
}

impl State {
    /// The state for a call that sees what it was granted and nothing else.
    pub fn new(
        limits: &Limits,
        granted: &Prepared,
        caller: Caller<'_>,
        peers: OtherTools,
        current: CurrentCall,
        ear: GuestLogSink,
        deadline: Instant,
    ) -> Result<Self> {
        let gauge = Gauge::new(limits.host_bytes);
        let stdout = CapturePipe::new(limits.capture_bytes, gauge.clone());
        let stderr = CapturePipe::new(limits.capture_bytes, gauge.clone());
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout.clone())
            .stderr(stderr.clone())
            .max_random_size(1 << 20);
        let (quotas, scratch) = granted.apply(caller, &mut wasi)?;
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        Ok(Self {
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            outbound: granted.egress.hooks(&limits.into()),
            table,
            files: OpenFiles::default(),
            quotas,
            _scratch: scratch,
            key_value: granted.namespace(caller.tenant),
            peers,
            current,
            meter: Meter::new(limits, gauge.clone()),
            gauge,
            stdout,
            stderr,
            logs: LogBook {
                room: limits.capture_bytes,
                least: granted.grant.log_level,
                ear,
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
    files::add_to_linker(&mut linker)?;
    io_error::add_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    log::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    progress::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    key_value::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    secrets::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    other_tools::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
    current_call::add_to_linker::<State, HasSelf<State>>(&mut linker, |state| state)?;
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
            hooks: &mut self.outbound,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

/// The guest's log lines, as many bytes as its limit allows.
#[derive(Debug, Default)]
pub struct LogBook {
    pub lines: Vec<LogLine>,
    pub dropped: u64,
    room: u64,
    least: LogLevel,
    pub ear: GuestLogSink,
}

impl LogBook {
    /// What a line costs besides its text, so that a flood of empty lines ends too.
    const OVERHEAD: u64 = 32;

    /// Keeps a line that there is room for, and has it heard.
    pub fn log(&mut self, line: LogLine) {
        if self.push(line)
            && let Some(kept) = self.lines.last()
        {
            self.ear.logged(kept);
        }
    }

    /// Keeps a line, and says whether there was room for it.
    pub fn push(&mut self, line: LogLine) -> bool {
        if line.level < self.least {
            return false;
        }
        let cost = line.message.len() as u64 + Self::OVERHEAD;
        if cost > self.room {
            self.dropped += 1;
            return false;
        }
        self.room -= cost;
        self.lines.push(line);
        true
    }
}
