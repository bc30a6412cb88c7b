//! The data of one call's store: what the guest was given, and the meters that watch it.

use super::growth::GrowthMeter;
use super::http_memory::HttpMemory;
use super::meter::{Gauge, KeptBytes};
use super::open_files::OpenFiles;
use super::{
    CallContext, Clock, CurrentCall, GrantedKnowledge, GuestLogSink, OtherTools, Profiler,
};
use crate::blocking::CallWork;
use crate::denial_log::DenialLog;
use crate::descriptors::CallDescriptors;
use crate::disk::key_value::Namespace;
use crate::egress::Hooks;
use crate::grant::{GrantedFiles, OpenScratch};
use crate::revocation::Revocation;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Instant;
use toolhold_policy::{LogLevel, LogLine};
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

/// Everything a store owns besides the instance. Dropped with it; nothing survives a call.
pub struct CallState {
    wasi: WasiCtx,
    http: WasiHttpCtx,
    /// Before the table, so that requests learn of the end of the call before their bodies end.
    pub outbound: Hooks,
    pub table: ResourceTable,
    pub files: OpenFiles,
    pub http_memory: HttpMemory,
    /// Dropped with the store, and the scratch files with it.
    pub granted: GrantedFiles,
    pub key_value: Option<Namespace>,
    /// Its work on the file system.
    pub work: CallWork,
    pub other_tools: OtherTools,
    pub knowledge: GrantedKnowledge,
    pub current: CurrentCall,
    /// What an extractor reads; empty for other calls.
    pub document: Bytes,
    pub meter: GrowthMeter,
    pub gauge: Gauge,
    /// The host's memory of the last answer that the guest was given, until it surely has it: its own code finds the
    /// place for it, and may take as long for that as the call does. Its next host call, whichever, says that it has.
    answer: Option<KeptBytes>,
    pub logs: LogBook,
    pub(crate) denials: DenialLog,
    /// Absent for all calls but those that somebody profiles.
    pub(super) profiler: Option<Box<Profiler>>,
    pub(crate) clock: Arc<Clock>,
    /// Asked by host calls that reach something, before they do.
    pub(crate) revocation: Arc<Revocation>,
}

impl CallState {
    /// The state for a call that sees what it was granted and nothing else.
    pub(super) fn new(
        context: Box<CallContext<'_>>,
        clock: Arc<Clock>,
        started: Instant,
        scratch: Option<OpenScratch>,
    ) -> Self {
        let CallContext {
            engine,
            limits,
            granted,
            caller,
            other_tools,
            knowledge,
            current,
            document,
            log_sink,
            profiler,
            descriptors,
            revocation,
            module: (number, _),
            ..
        } = *context;
        let descriptors = CallDescriptors::new(engine.descriptors(), descriptors, clock.tenant());
        let share = engine.kept().of(clock.tenant()).for_module(number);
        let gauge = Gauge::new(limits, share);
        let mut wasi = WasiCtxBuilder::new();
        // No address is granted, so a socket would only hold a descriptor.
        wasi.allow_tcp(false).allow_udp(false);
        let files = granted.apply(started, scratch, &mut wasi);
        let tenant = clock.tenant();
        let work = CallWork::new(engine.work(), number, tenant, revocation.clone());
        let mut table = ResourceTable::new();
        table.set_max_capacity(usize::try_from(limits.handles).unwrap_or(usize::MAX));
        Self {
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            outbound: granted
                .egress
                .hooks(&limits.into(), descriptors.clone(), revocation.clone()),
            table,
            files: OpenFiles::new(descriptors),
            http_memory: HttpMemory::default(),
            granted: files,
            key_value: granted.namespace(caller.tenant),
            work,
            other_tools,
            knowledge,
            current,
            document,
            meter: GrowthMeter::new(limits, gauge.clone()),
            gauge,
            answer: None,
            logs: LogBook {
                room: limits.capture_bytes,
                least: granted.grant.log_level,
                sink: log_sink,
                ..LogBook::default()
            },
            denials: DenialLog::default(),
            profiler,
            clock,
            revocation,
        }
    }
}

impl CallState {
    /// The guest gets an answer, which is counted until its next host call.
    pub fn answers(&mut self, kept: KeptBytes) {
        self.answer = Some(kept);
    }

    /// The state at the head of a host call, which every function that a guest may import asks for by this, by
    /// [`WasiView::ctx`] or by [`WasiHttpView::http`]: the guest has the last answer, as it makes no host call while it
    /// takes one.
    pub fn entered(&mut self) -> &mut Self {
        self.answer = None;
        self
    }
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.entered();
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for CallState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.entered();
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
    pub sink: GuestLogSink,
}

impl LogBook {
    /// Bytes charged per line in addition to its text, so that a flood of empty lines is bounded
    /// too.
    const LINE_OVERHEAD_BYTES: u64 = 32;

    /// Keeps a line if there is room for it, and passes it on.
    pub fn log(&mut self, line: LogLine) {
        if self.push(line)
            && let Some(kept) = self.lines.last()
        {
            self.sink.logged(kept);
        }
    }

    /// Keeps a line, and says whether there was room for it.
    pub fn push(&mut self, line: LogLine) -> bool {
        if line.level < self.least {
            return false;
        }
        let cost = line.message.len() as u64 + Self::LINE_OVERHEAD_BYTES;
        if cost > self.room {
            self.dropped += 1;
            return false;
        }
        self.room -= cost;
        self.lines.push(line);
        true
    }
}
