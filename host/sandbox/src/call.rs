//! One call: a fresh store, the invocation under its limits, the verdict. **This is where a tool
//! call is executed.**
//!
//! Three clocks watch a call. Fuel counts what the guest computes; the epoch interrupts a guest that
//! spins; one outer timeout covers everything else, above all a guest asleep inside a host call,
//! where neither fuel nor epochs run. Whatever ends the call, its future is dropped, and with it the
//! fiber, the store, the instance and the place.

use crate::admission::{Lane, Refusal};
use crate::bindings::shield::{ShieldPre, shields};
use crate::bindings::{ToolModulePre, types};
use crate::current::CurrentCall;
use crate::engine::Engine;
use crate::grant::Prepared;
use crate::log_sink::GuestLogSink;
use crate::meter::Refused;
use crate::peers::OtherTools;
use crate::state::State;
use crate::typed::TypedFunction;
use crate::verdict::classify;
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};
use tokio::time::timeout_at;
use toolhold_policy::HttpLimit;
use toolhold_policy::limits::Limits;
use toolhold_policy::text;
use toolhold_policy::{CallError, ErrorClass};
use toolhold_policy::{CallReport, Caller, Output, Usage};
use toolhold_policy::{Captured, LogLine};
use wasmtime::component::{InstancePre, Val};
use wasmtime::{Store, UpdateDeadline};

/// What a fresh instance is made for.
pub(crate) enum Errand<'a> {
    ListTools(&'a ToolModulePre<State>),
    World(&'a ToolModulePre<State>, types::Invocation),
    Typed(&'a InstancePre<State>, &'a TypedFunction, Vec<Val>),
    Screen(&'a ShieldPre<State>, shields::Screening),
}

/// What came of an errand that the guest finished.
pub(crate) enum Answer {
    Tools(Vec<types::Tool>),
    World(Result<types::Output, types::ToolError>),
    Typed(Option<Val>),
    Verdict(Result<shields::Verdict, String>),
}

/// The outcome of an errand with all that was measured.
pub(crate) struct Ran<T> {
    pub result: Result<T, CallError>,
    /// The last limit that refused something without ending the guest.
    refused: Option<Refused>,
    usage: Usage,
    stdout: Captured,
    stderr: Captured,
    logs: Vec<LogLine>,
    dropped_logs: u64,
    redactions: u64,
    /// The limit of HTTP that fired, which explains a failure of the tool.
    http: Option<HttpLimit>,
}

impl<T> Ran<T> {
    fn without_store(error: CallError, usage: Usage) -> Self {
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
        }
    }

    pub fn and_then<U>(self, next: impl FnOnce(T) -> Result<U, CallError>) -> Ran<U> {
        Ran {
            result: self.result.and_then(next),
            refused: self.refused,
            usage: self.usage,
            stdout: self.stdout,
            stderr: self.stderr,
            logs: self.logs,
            dropped_logs: self.dropped_logs,
            redactions: self.redactions,
            http: self.http,
        }
    }
}

impl From<Ran<Output>> for CallReport {
    fn from(ran: Ran<Output>) -> Self {
        // A tool that gives up at a limit says so in its own words; which limit it was is the host's
        // to say.
        let result = match (ran.result, ran.refused, ran.http) {
            (Err(CallError::Tool { message, .. }), Some(Refused::Quota), _) => {
                Err(CallError::Quota { reason: message })
            }
            (Err(CallError::Tool { .. }), _, Some(limit)) => Err(CallError::HttpBody { limit }),
            (result, ..) => result,
        };
        Self {
            result,
            module: None,
            usage: ran.usage,
            stdout: ran.stdout,
            stderr: ran.stderr,
            logs: ran.logs,
            dropped_logs: ran.dropped_logs,
            redactions: ran.redactions,
        }
    }
}

/// Who runs, with what.
pub(crate) struct Terms<'a> {
    pub engine: &'a Engine,
    pub limits: &'a Limits,
    pub granted: &'a Prepared,
    /// The module's number, for its places.
    pub module: u64,
    pub caller: Caller<'a>,
    pub peers: OtherTools,
    pub current: CurrentCall,
    pub ear: GuestLogSink,
    pub timeout: Duration,
}

/// Runs `errand` in a fresh instance and returns within the timeout.
pub(crate) async fn run(terms: Terms<'_>, errand: Errand<'_>) -> Ran<Answer> {
    let started = Instant::now();
    let deadline = started + terms.timeout;
    let Terms { engine, limits, .. } = terms;

    let mut hasher = DefaultHasher::new();
    terms.caller.tenant.hash(&mut hasher);
    let lane = Lane {
        module: terms.module,
        caller: hasher.finish(),
    };
    let most = usize::try_from(limits.concurrent_calls).unwrap_or(usize::MAX);
    let place = engine.admission().enter(lane, most, deadline).await;
    let queued = started.elapsed();
    let waited = || Usage {
        duration: started.elapsed(),
        queued,
        ..Usage::default()
    };
    let _place = match place {
        Ok(place) => place,
        Err(refusal) => {
            let permits = match refusal {
                Refusal::Deadline => engine.admission().places().min(most),
                Refusal::Full => engine.admission().places(),
            };
            let busy = CallError::Busy {
                permits,
                waited: queued,
            };
            return Ran::without_store(busy, waited());
        }
    };

    let timeout = terms.timeout;
    let mut store = match fresh_store(terms, deadline) {
        Ok(store) => store,
        Err(error) => return Ran::without_store(error, waited()),
    };
    let _running = engine.running();
    let outcome = timeout_at(deadline.into(), perform(&mut store, errand)).await;

    let stack = engine.which().stack_bytes;
    let result = match outcome {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(classify(&error, store.data(), limits, stack, timeout)),
        Err(_) => Err(CallError::Deadline { limit: timeout }),
    };
    let fuel = if limits.metered() {
        limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0))
    } else {
        0
    };
    let state = store.into_data();
    Ran {
        result,
        refused: state.gauge.refused(),
        usage: Usage {
            duration: started.elapsed(),
            queued,
            fuel,
            memory_bytes: state.meter.memory,
            host_bytes: state.gauge.total(),
        },
        stdout: state.stdout.captured(),
        stderr: state.stderr.captured(),
        redactions: state.outbound.redactions(),
        http: state.outbound.fired(),
        logs: state.logs.lines,
        dropped_logs: state.logs.dropped,
    }
}

fn fresh_store(terms: Terms<'_>, deadline: Instant) -> Result<Store<State>, CallError> {
    let limits = terms.limits;
    let state = State::new(
        limits,
        terms.granted,
        terms.caller,
        terms.peers,
        terms.current,
        terms.ear,
        deadline,
    )
    .map_err(|error| CallError::Grant {
        reason: format!("{error:#}"),
    })?;
    let mut store = Store::new(terms.engine.wasmtime(), state);
    store.limiter(|state| &mut state.meter);
    if limits.metered() {
        store
            .set_fuel(limits.fuel)
            .map_err(|error| CallError::Host {
                reason: format!("{error:#}"),
            })?;
    }
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        Ok(if Instant::now() >= store.data().deadline {
            UpdateDeadline::Interrupt
        } else {
            // Let go of the worker thread, so that others run and the outer timeout is seen.
            UpdateDeadline::Yield(1)
        })
    });
    // Bytes lifted from the guest: for host calls and for the result alike. Dynamic values count at
    // their size in host memory, up to 40 times their JSON, hence the room.
    let lifted = limits.output_bytes.saturating_mul(4).max(16 << 20);
    store.set_hostcall_fuel(usize::try_from(lifted).unwrap_or(usize::MAX));
    store.set_max_component_handles(usize::try_from(limits.handles).unwrap_or(usize::MAX));
    Ok(store)
}

async fn perform(store: &mut Store<State>, errand: Errand<'_>) -> wasmtime::Result<Answer> {
    Ok(match errand {
        Errand::ListTools(pre) => {
            let instance = pre.instantiate_async(&mut *store).await?;
            Answer::Tools(
                instance
                    .toolhold_module_tools()
                    .call_list_tools(store)
                    .await?,
            )
        }
        Errand::World(pre, invocation) => {
            let instance = pre.instantiate_async(&mut *store).await?;
            Answer::World(
                instance
                    .toolhold_module_tools()
                    .call_call(store, &invocation)
                    .await?,
            )
        }
        Errand::Typed(pre, function, arguments) => {
            let instance = pre.instantiate_async(&mut *store).await?;
            let func = instance
                .get_func(&mut *store, function.index)
                .ok_or_else(|| wasmtime::format_err!("the export is no function"))?;
            let mut results = vec![Val::Bool(false); usize::from(function.result.is_some())];
            func.call_async(&mut *store, &arguments, &mut results)
                .await?;
            Answer::Typed(results.pop())
        }
        Errand::Screen(pre, screening) => {
            let instance = pre.instantiate_async(&mut *store).await?;
            Answer::Verdict(
                instance
                    .toolhold_module_shields()
                    .call_screen(store, &screening)
                    .await?,
            )
        }
    })
}

/// The result of a tool-world call, within its limits.
pub(crate) fn world_output(
    answer: Result<types::Output, types::ToolError>,
    limits: &Limits,
) -> Result<Output, CallError> {
    let parse = |json: String| {
        if json.len() as u64 > limits.output_bytes {
            return Err(CallError::Output {
                limit: limits.output_bytes,
            });
        }
        let value = serde_json::from_str(&json).map_err(|error| CallError::Encoding {
            reason: error.to_string(),
        })?;
        shallow(&value, limits.json_depth).map_err(|reason| CallError::Encoding { reason })?;
        Ok(value)
    };
    match answer {
        Ok(types::Output::Value(json)) => parse(json).map(Output::Value),
        Ok(types::Output::Message(json)) => parse(json).map(Output::Message),
        Err(error) => Err(CallError::Tool {
            class: match error.class {
                types::ErrorClass::Correctable => ErrorClass::Correctable,
                types::ErrorClass::Retryable => ErrorClass::Retryable,
                types::ErrorClass::Fatal => ErrorClass::Fatal,
            },
            message: text::visible(&error.message, 4_000),
            data: error.data.map(parse).transpose()?,
        }),
    }
}

/// Refuses JSON that is nested deeper than `limit`: readers after us recurse.
pub(crate) fn shallow(value: &Value, limit: u64) -> Result<(), String> {
    if fits(value, limit) {
        Ok(())
    } else {
        Err(too_deep(limit))
    }
}

/// The same for the members of an object.
pub(crate) fn shallow_members(members: &Map<String, Value>, limit: u64) -> Result<(), String> {
    if limit > 0 && members.values().all(|member| fits(member, limit - 1)) {
        Ok(())
    } else {
        Err(too_deep(limit))
    }
}

/// Goes no deeper than `levels`, whoever built the value.
fn fits(value: &Value, levels: u64) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        Value::Object(members) => {
            levels > 0 && members.values().all(|member| fits(member, levels - 1))
        }
        _ => true,
    }
}

fn too_deep(limit: u64) -> String {
    format!("the JSON is nested deeper than {limit} levels")
}

/// Counts bytes without keeping them, and fails beyond its limit: nobody has to finish writing what
/// is too long anyway.
pub(crate) struct Counter {
    pub bytes: u64,
    pub limit: u64,
}

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.limit {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
