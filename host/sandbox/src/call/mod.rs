//! One call: a fresh store, the invocation under its limits, the verdict. **This is where a tool
//! call is executed.**
//!
//! Three clocks watch a call. Fuel counts what the guest computes; the epoch interrupts a guest that
//! spins; one outer timeout covers everything else, above all a guest asleep inside a host call,
//! where neither fuel nor epochs run. The last two stand still while a person is asked about a call that
//! the guest makes ([`Clock`]). Whatever ends the call, its future is dropped, and with it the
//! fiber, the store, the instance and the permit.

mod capture;
mod clock;
mod crash;
mod current;
mod growth;
mod http_memory;
mod json;
mod knowledge;
mod log_sink;
pub(crate) mod meter;
mod open_files;
mod other_tools;
mod profiler;
mod state;
mod verdict;

pub(crate) use capture::{CapturePipe, PrintStream};
pub(crate) use clock::Clock;
pub(crate) use current::{CurrentCall, DescribeTools};
pub(crate) use json::{ArgumentText, fit, shallow, shallow_members};
pub(crate) use knowledge::GrantedKnowledge;
pub(crate) use log_sink::GuestLogSink;
pub(crate) use open_files::OpenFile;
pub(crate) use other_tools::OtherTools;
pub(crate) use profiler::Profiler;
pub use state::CallState;

use crate::blocking::CallWork;
use crate::compile::DebugInfo;
use crate::denial_log::DenialLog;
use crate::descriptors::DescriptorShare;
use crate::egress::EndedExchange;
use crate::engine::Engine;
use crate::grant::{OpenScratch, PreparedGrant};
use crate::revocation::Revocation;
use bytes::Bytes;
use crash::Crash;
use meter::RefusedResource;
use serde_json::{Map, Value};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_admission::{Lane, QueueRefusal};
use toolhold_policy::CallError;
use toolhold_policy::limits::Limits;
use toolhold_policy::{BeginCheck, CallReport, CallUsage, Caller, Denials, Output, TakenPlaces};
use toolhold_policy::{Captured, LogLine};
use verdict::classify;
use wasmtime::{Store, UpdateDeadline};

/// The work of a fresh instance: one function of the guest, with its arguments.
pub(crate) trait GuestCall: Send {
    /// The value that the guest returned.
    type Return: Send;

    /// The call waits for its place: it gives back what it can make again.
    fn waits(&mut self) {}

    /// Instantiates the component in `store` and calls the function.
    fn perform(
        self,
        store: &mut Store<CallState>,
    ) -> impl Future<Output = wasmtime::Result<Self::Return>> + Send;
}

/// The outcome of a guest call with all that was measured.
pub(crate) struct CallOutcome<T> {
    pub result: Result<T, CallError>,
    /// The last limit that refused something without ending the guest.
    refused: Option<RefusedResource>,
    usage: CallUsage,
    stdout: Captured,
    stderr: Captured,
    logs: Vec<LogLine>,
    dropped_logs: u64,
    redactions: u64,
    /// What ended an HTTP exchange, which explains a failure of the tool.
    http: Option<EndedExchange>,
    denials: DenialLog,
}

impl<T> CallOutcome<T> {
    fn without_store(error: CallError, usage: CallUsage) -> Self {
        Self {
            result: Err(error),
            refused: None,
            usage,
            stdout: Captured::default(),
            stderr: Captured::default(),
            logs: Vec::new(),
            dropped_logs: 0,
            redactions: 0,
            http: None,
            denials: DenialLog::default(),
        }
    }

    pub fn and_then<U>(self, next: impl FnOnce(T) -> Result<U, CallError>) -> CallOutcome<U> {
        CallOutcome {
            result: self.result.and_then(next),
            refused: self.refused,
            usage: self.usage,
            stdout: self.stdout,
            stderr: self.stderr,
            logs: self.logs,
            dropped_logs: self.dropped_logs,
            redactions: self.redactions,
            http: self.http,
            denials: self.denials,
        }
    }
}

impl CallOutcome<Output> {
    /// The report, without the denials, and what is known of these: to tell them takes the module.
    pub fn into_report(self) -> (CallReport, DenialLog) {
        // A tool that gives up at a limit describes it in its own words; the host names the limit.
        let result = match (self.result, self.refused, self.http) {
            (Err(CallError::Tool { message, .. }), Some(RefusedResource::Quota), _) => {
                Err(CallError::Quota { reason: message })
            }
            (Err(CallError::Tool { .. }), Some(RefusedResource::KeptBytes { limit }), _) => {
                Err(CallError::KeptBytes { limit })
            }
            (Err(CallError::Tool { .. }), Some(RefusedResource::HostFull { ceiling }), _) => {
                Err(CallError::HostFull { ceiling })
            }
            (Err(CallError::Tool { .. }), Some(RefusedResource::Descriptors), _) => {
                Err(CallError::Descriptors)
            }
            (Err(CallError::Tool { .. }), _, Some(end)) => Err(end.into()),
            (result, ..) => result,
        };
        let report = CallReport {
            result,
            job: None,
            module: None,
            usage: self.usage,
            stdout: self.stdout,
            stderr: self.stderr,
            logs: self.logs,
            dropped_logs: self.dropped_logs,
            redactions: self.redactions,
            denials: Denials::default(),
        };
        (report, self.denials)
    }
}

/// The context of one guest call. Functions pass it in a box: several have it in turn, and each would move it.
pub(crate) struct CallContext<'a> {
    pub engine: &'a Engine,
    pub limits: &'a Limits,
    pub granted: &'a PreparedGrant,
    /// The module's number, for its lane in the queue, and its name.
    pub module: (u64, &'a str),
    /// What the module's calls may have open together.
    pub descriptors: Arc<DescriptorShare>,
    /// Whether it needs no permit for calls: it has one to list its tools.
    pub is_listing: bool,
    /// Asked when it has what it waited for, and before its guest begins. Absent: it begins in any case.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// How many calls it is nested in.
    pub depth: u8,
    /// What an extractor reads; empty for other calls.
    pub document: Bytes,
    /// Ends the call when what it may use is taken back.
    pub revocation: Arc<Revocation>,
    pub caller: Caller<'a>,
    pub other_tools: OtherTools,
    pub knowledge: GrantedKnowledge,
    pub current: CurrentCall,
    /// The properties of the call that are no arguments, which the guest may ask for.
    pub reserved: Option<&'a Map<String, Value>>,
    pub log_sink: GuestLogSink,
    /// Samples the guest while it runs. Absent: nothing does.
    pub profiler: Option<Box<Profiler>>,
    /// Tells the lines at which it crashed. Absent: its functions are told.
    pub debug: Option<&'a DebugInfo>,
    pub timeout: Duration,
}

/// Runs `call` in a fresh instance and returns within the timeout. The future is in a box: it takes kilobytes, and each
/// function between here and who awaits it would move them.
pub(crate) fn run<'a, C: GuestCall + 'a>(
    context: Box<CallContext<'a>>,
    call: C,
) -> Pin<Box<dyn Future<Output = CallOutcome<C::Return>> + Send + 'a>> {
    Box::pin(run_here(context, call))
}

async fn run_here<C: GuestCall>(
    context: Box<CallContext<'_>>,
    mut call: C,
) -> CallOutcome<C::Return> {
    let CallContext {
        engine,
        limits,
        debug,
        ..
    } = *context;
    let tenant: Arc<str> = match context.caller.tenant {
        // Most calls that people make have none: theirs is not allocated.
        "" => Arc::default(),
        tenant => tenant.into(),
    };
    let pauses = engine.pauses().clone();
    let clock = Arc::new(Clock::new(context.timeout, pauses, tenant.clone()));

    let (number, module) = context.module;
    let most = usize::try_from(limits.concurrent_calls).unwrap_or(usize::MAX);
    let (permit, queued) = if context.is_listing {
        (Ok(None), Duration::ZERO)
    } else {
        let lane = || Lane {
            group: number,
            member: tenant.clone(),
            // Who waits for a nested call holds a permit.
            depth: context.depth,
        };
        let queue = engine.admission();
        match queue.try_enter(lane(), most) {
            Some(permit) => (Ok(Some(permit)), Duration::ZERO),
            None => {
                call.waits();
                let permit = queue.enter(lane(), most, clock.deadline().into()).await;
                (permit.map(Some), clock.elapsed())
            }
        }
    };
    let waited = || CallUsage {
        duration: clock.elapsed(),
        queued,
        ..CallUsage::default()
    };
    let permit = match permit {
        Ok(permit) => permit,
        Err(refusal) => {
            let queue = engine.admission();
            let places = match refusal {
                QueueRefusal::Full => TakenPlaces::Queue(queue.permits()),
                QueueRefusal::GroupLimit if most < queue.permits() => TakenPlaces::Module(most),
                QueueRefusal::GroupLimit | QueueRefusal::Deadline => {
                    TakenPlaces::Host(queue.permits())
                }
            };
            let busy = CallError::Busy {
                places,
                waited: queued,
            };
            return CallOutcome::without_store(busy, waited());
        }
    };

    let timeout = context.timeout;
    let revocation = context.revocation.clone();
    let begin = context.begin.clone();
    let may_begin = || begin.as_ref().is_none_or(|begin| begin.may_begin());
    if !may_begin() {
        // The place is for the next call. This one's caller drops it.
        drop(permit);
        let cause = ended(&clock, &revocation, module, timeout).await;
        return CallOutcome::without_store(cause, waited());
    }
    let revoked = || CallError::Revoked {
        module: module.to_owned(),
    };
    if revocation.check().is_err() {
        return CallOutcome::without_store(revoked(), waited());
    }
    let scratch = if context.granted.has_scratch() {
        let work = CallWork::new(engine.work(), number, tenant, revocation.clone());
        tokio::select! {
            biased;
            scratch = context.granted.open_scratch(context.caller, &work) => scratch,
            cause = ended(&clock, &revocation, module, timeout) => {
                return CallOutcome::without_store(cause, waited());
            }
        }
    } else {
        Ok(None)
    };
    let scratch = match scratch {
        Ok(scratch) => scratch,
        Err(error) => {
            let cause = if revocation.check().is_err() {
                revoked()
            } else {
                no_scratch(&error, engine.work().permits(), clock.elapsed())
            };
            return CallOutcome::without_store(cause, waited());
        }
    };
    // The scratch directory may have been held by a call that ended with what this one is part of.
    if !may_begin() {
        drop((scratch, permit));
        let cause = ended(&clock, &revocation, module, timeout).await;
        return CallOutcome::without_store(cause, waited());
    }
    // After the queues: how long others keep the machine busy is not the guest's to know.
    let started = if queued.is_zero() && scratch.is_none() {
        clock.started()
    } else {
        Instant::now()
    };
    let reserved = context.reserved;
    let mut store = match fresh_store(context, clock.clone(), started, scratch) {
        Ok(store) => store,
        Err(error) => return CallOutcome::without_store(error, waited()),
    };
    let state = store.data_mut();
    if let Some(reserved) = reserved
        && let Err(full) = state.current.keep_reserved(reserved, &state.gauge)
    {
        return CallOutcome::without_store(full.into(), waited());
    }
    let _running = engine.running();
    let outcome = tokio::select! {
        biased;
        outcome = call.perform(&mut store) => Ok(outcome),
        // A guest that spins yields every millisecond, and one that waits in the host waits here.
        cause = ended(&clock, &revocation, module, timeout) => Err(cause),
    };

    let stack = engine.which().stack_bytes;
    let mut crashed = None;
    let mut result = match outcome {
        // Whatever the guest made of it: the first sign of the revocation may be an error of work that did not begin.
        Ok(_) if revocation.check().is_err() => Err(revoked()),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let cause = classify(&error, store.data(), limits, stack, timeout);
            crashed = debug.is_some().then_some(error);
            Err(cause)
        }
        Err(ended) => Err(ended),
    };
    let fuel = if limits.metered() {
        limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0))
    } else {
        0
    };
    let crash = match (&result, crashed) {
        (Err(CallError::Trap { .. }), Some(error)) => Some(Crash::of(&error, store.data())),
        _ => None,
    };
    // Not taken out of the store as a whole: the state is thousands of bytes, and would be moved.
    let state = store.data_mut();
    let mut denials = std::mem::take(&mut state.denials);
    if let Some(of_requests) = state.outbound.denials() {
        denials.join(of_requests);
    }
    let logs = std::mem::take(&mut state.logs.lines);
    let dropped_logs = state.logs.dropped;
    let (redactions, http) = (state.outbound.redactions(), state.outbound.fired());
    let memory_bytes = state.meter.memory_bytes();
    let gauge = state.gauge.clone();
    let profiler = state.profiler.take();
    // The instance's place is free from here on, and its scratch files are gone.
    drop(store);
    let usage = CallUsage {
        duration: clock.elapsed(),
        queued,
        fuel,
        memory_bytes,
        host_bytes: gauge.total(),
    };
    // What follows is for an author, and no time of the call.
    if let Some(profiler) = profiler {
        profiler.finish().await;
    }
    if let (Some(crash), Some(debug)) = (crash, debug)
        && let Some(lines) = debug.lines(&crash.offsets()).await
    {
        let reason = crash.reason(&lines);
        result = Err(CallError::Trap { reason });
    }
    CallOutcome {
        result,
        refused: gauge.refused(),
        usage,
        stdout: gauge.printed().captured(PrintStream::Stdout),
        stderr: gauge.printed().captured(PrintStream::Stderr),
        redactions,
        http,
        logs,
        dropped_logs,
        denials,
    }
}

/// Why a call that may go on got no scratch directory, after it `waited` for one of the host's `threads`.
fn no_scratch(error: &io::Error, threads: usize, waited: Duration) -> CallError {
    // The system's own error, of a device that is busy, has a number.
    if error.kind() == io::ErrorKind::ResourceBusy && error.raw_os_error().is_none() {
        return CallError::Busy {
            places: TakenPlaces::Threads(threads),
            waited,
        };
    }
    CallError::Grant {
        reason: error.to_string(),
    }
}

/// Waits until the call may go on no longer, and says why.
async fn ended(
    clock: &Clock,
    revocation: &Revocation,
    module: &str,
    timeout: Duration,
) -> CallError {
    tokio::select! {
        biased;
        () = revocation.revoked() => CallError::Revoked {
            module: module.to_owned(),
        },
        () = clock.over() => CallError::Deadline { limit: timeout },
    }
}

/// Bytes that are lifted from the guest: for a host call and for the result alike. Dynamic values count at their size
/// in host memory, up to 40 times their JSON, hence the room.
fn lifted_bytes(limits: &Limits) -> u64 {
    limits.output_bytes.saturating_mul(4).max(16 << 20)
}

/// A store for the call, whose guest's clock began at `started`, with the call's open scratch directory.
pub(crate) fn fresh_store(
    context: Box<CallContext<'_>>,
    clock: Arc<Clock>,
    started: Instant,
    scratch: Option<OpenScratch>,
) -> Result<Store<CallState>, CallError> {
    let limits = context.limits;
    let engine = context.engine;
    let state = CallState::new(context, clock, started, scratch);
    let mut store = Store::new(engine.wasmtime(), state);
    store.limiter(|state| &mut state.meter);
    if limits.metered() {
        store
            .set_fuel(limits.fuel)
            .map_err(|error| CallError::Host {
                reason: format!("{error:#}"),
            })?;
    }
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        if let Some(mut profiler) = store.data_mut().profiler.take() {
            profiler.sample(&store);
            store.data_mut().profiler = Some(profiler);
        }
        Ok(if store.data().clock.is_over() {
            UpdateDeadline::Interrupt
        } else {
            // Yield the worker thread, so that others run and the outer timeout is seen.
            UpdateDeadline::Yield(1)
        })
    });
    store.set_hostcall_fuel(usize::try_from(lifted_bytes(limits)).unwrap_or(usize::MAX));
    store.set_max_component_handles(usize::try_from(limits.handles).unwrap_or(usize::MAX));
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocking::work_queue;
    use toolhold_policy::ErrorClass;

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_thread_for_its_scratch_directory_is_told_as_busy() {
        let queue = work_queue(16);
        let work = CallWork::new(&queue, 1, "a".into(), Arc::default());
        let lane = || Lane {
            group: 1,
            member: "a".into(),
            depth: 0,
        };
        let held: Vec<_> = std::iter::from_fn(|| queue.try_enter(lane(), usize::MAX)).collect();
        let error = work.run(|_| io::Result::Ok(())).await.unwrap_err();
        drop(held);
        let waited = Duration::from_mins(1);
        let cause = no_scratch(&error, queue.permits(), waited);
        assert_eq!(
            (cause.kind(), cause.class()),
            ("busy", ErrorClass::Retryable)
        );
        assert!(cause.to_string().starts_with("none of the 16 threads"));
        for error in [
            io::Error::from_raw_os_error(libc::EBUSY),
            io::Error::from(io::ErrorKind::PermissionDenied),
        ] {
            let cause = no_scratch(&error, queue.permits(), waited);
            assert!(matches!(cause, CallError::Grant { .. }), "{cause:?}");
        }
    }
}
