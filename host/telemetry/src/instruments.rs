//! Metrics over all runs.

use crate::conventions as names;
use crate::metrics::{self, Meters};
use crate::server_instruments::ServerInstruments;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram};
use std::time::Duration;
use toolhold_protocol::completion::Usage;
use toolhold_protocol::result::ToolUsage;

/// Lookups of compiled modules in their cache, so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLookups {
    /// Found in the cache.
    pub hits: u64,
    /// Had to be compiled.
    pub misses: u64,
}

/// Calls of the sandbox at a moment, and the memory and slots that they take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxLoad {
    /// Calls that have a place, and calls that wait for one.
    pub running: u64,
    pub waiting: u64,
    /// Bytes that the host keeps for calls and requests, and the most that it may keep.
    pub kept_bytes: u64,
    pub kept_ceiling: u64,
    /// Kinds of slots in the pool of instances: name, number of taken ones, number of all.
    pub pool: Vec<(&'static str, u64, u64)>,
}

/// An endpoint at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointLoad {
    /// Its name in the configuration.
    pub name: String,
    /// Time until the end of the rest that it asked for; zero: it does not rest.
    pub rest: Duration,
    /// Whether its circuit breaker is open.
    pub is_open: bool,
}

/// The instruments that runs and calls record with.
#[derive(Debug)]
pub struct Instruments {
    tokens: Histogram<u64>,
    operation: Histogram<f64>,
    first_chunk: Histogram<f64>,
    next_chunk: Histogram<f64>,
    agent: Histogram<f64>,
    tool: Histogram<f64>,
    tool_calls: Counter<u64>,
    tool_errors: Counter<u64>,
    fuel: Counter<u64>,
    memory: Histogram<u64>,
    repairs: Counter<u64>,
    unusable: Counter<u64>,
    retries: Counter<u64>,
    tool_retries: Counter<u64>,
    tool_cached: Counter<u64>,
    fallbacks: Counter<u64>,
    runs: Counter<u64>,
    endpoint_wait: Histogram<f64>,
    queue_wait: Histogram<f64>,
    pub server: ServerInstruments,
}

impl Instruments {
    pub fn new(meters: &Meters) -> Self {
        Self {
            tokens: meters.sizes(&metrics::TOKENS),
            operation: meters.times(&metrics::OPERATION),
            first_chunk: meters.times(&metrics::FIRST_CHUNK),
            next_chunk: meters.times(&metrics::NEXT_CHUNK),
            agent: meters.times(&metrics::AGENT),
            tool: meters.times(&metrics::TOOL),
            tool_calls: meters.counter(&metrics::TOOL_CALLS),
            tool_errors: meters.counter(&metrics::TOOL_ERRORS),
            fuel: meters.counter(&metrics::FUEL),
            memory: meters.sizes(&metrics::MEMORY),
            repairs: meters.counter(&metrics::REPAIRS),
            unusable: meters.counter(&metrics::UNUSABLE),
            retries: meters.counter(&metrics::RETRIES),
            tool_retries: meters.counter(&metrics::TOOL_RETRIES),
            tool_cached: meters.counter(&metrics::TOOL_CACHED),
            fallbacks: meters.counter(&metrics::FALLBACKS),
            runs: meters.counter(&metrics::RUNS),
            endpoint_wait: meters.times(&metrics::ENDPOINT_WAIT),
            queue_wait: meters.times(&metrics::QUEUE_WAIT),
            server: ServerInstruments::new(meters),
        }
    }

    pub fn replied(
        &self,
        models: &[KeyValue],
        usage: Option<&Usage>,
        duration: Duration,
        first_chunk: Option<Duration>,
    ) {
        if let Some(usage) = usage {
            let typed = |kind: &'static str| with(models, names::TOKEN_TYPE, kind);
            self.tokens
                .record(usage.prompt_tokens, &typed(names::INPUT));
            self.tokens
                .record(usage.completion_tokens, &typed(names::OUTPUT));
        }
        self.operation.record(duration.as_secs_f64(), models);
        if let Some(first_chunk) = first_chunk {
            self.first_chunk.record(first_chunk.as_secs_f64(), models);
        }
    }

    pub fn failed(&self, models: &[KeyValue], duration: Duration, error: &'static str) {
        let attributes = with(models, names::ERROR_TYPE, error);
        self.operation.record(duration.as_secs_f64(), &attributes);
    }

    pub fn next_chunk(&self, models: &[KeyValue], after: Duration) {
        self.next_chunk.record(after.as_secs_f64(), models);
    }

    /// A call was given the result of an earlier one.
    pub fn cached(&self, tool: &str) {
        let own = [KeyValue::new(names::TOOL_NAME, tool.to_owned())];
        self.tool_cached.add(1, &own);
    }

    pub fn called(&self, tool: &str, error: Option<&str>, usage: &ToolUsage) {
        let own = [KeyValue::new(names::TOOL_NAME, tool.to_owned())];
        let attributes = match error {
            None => own.to_vec(),
            Some(error) => with(&own, names::ERROR_TYPE, error.to_owned()),
        };
        let duration = Duration::from_micros(usage.duration_us);
        self.tool.record(duration.as_secs_f64(), &attributes);
        self.tool_calls.add(1, &own);
        if error.is_some() {
            self.tool_errors.add(1, &attributes);
        }
        if usage.retries > 0 {
            self.tool_retries.add(usage.retries.into(), &own);
        }
        if usage.fuel > 0 {
            self.fuel.add(usage.fuel, &own);
        }
        if usage.memory_bytes > 0 {
            self.memory.record(usage.memory_bytes, &own);
        }
    }

    pub fn agent_ended(&self, agent: &str, reason: &str, duration: Duration, is_run: bool) {
        let attributes = [
            KeyValue::new(names::AGENT_NAME, agent.to_owned()),
            KeyValue::new(names::STOP_REASON, reason.to_owned()),
        ];
        self.agent.record(duration.as_secs_f64(), &attributes);
        if is_run {
            self.runs.add(1, &attributes);
        }
    }

    pub fn repaired(&self, faults: u64) {
        self.repairs.add(faults, &[]);
    }

    pub fn unusable(&self, model: &str, fault: &'static str) {
        let attributes = [
            KeyValue::new(names::REQUEST_MODEL, model.to_owned()),
            KeyValue::new(names::REPLY_FAULT, fault),
        ];
        self.unusable.add(1, &attributes);
    }

    pub fn retried(&self, endpoint: &str) {
        let attributes = [KeyValue::new(names::ENDPOINT, endpoint.to_owned())];
        self.retries.add(1, &attributes);
    }

    pub fn fell_back(&self, model: &str) {
        let attributes = [KeyValue::new(names::REQUEST_MODEL, model.to_owned())];
        self.fallbacks.add(1, &attributes);
    }

    pub fn waited_for_endpoint(&self, endpoint: &str, wait: Duration) {
        let attributes = [KeyValue::new(names::ENDPOINT, endpoint.to_owned())];
        self.endpoint_wait.record(wait.as_secs_f64(), &attributes);
    }

    pub fn waited_for_place(&self, wait: Duration) {
        self.queue_wait.record(wait.as_secs_f64(), &[]);
    }
}

/// Counts lookups in the cache of compiled modules.
pub fn watch_cache(meters: &Meters, lookups: impl Fn() -> CacheLookups + Send + Sync + 'static) {
    meters.watch_count(&metrics::MODULE_LOOKUPS, move |observer| {
        let CacheLookups { hits, misses } = lookups();
        observer.observe(hits, &[KeyValue::new(names::CACHE_RESULT, "hit")]);
        observer.observe(misses, &[KeyValue::new(names::CACHE_RESULT, "miss")]);
    });
}

/// Gauges of what calls take.
pub fn watch_sandbox(
    meters: &Meters,
    load: impl Fn() -> SandboxLoad + Clone + Send + Sync + 'static,
) {
    let calls = load.clone();
    meters.watch(&metrics::SANDBOX_CALLS, move |observer| {
        let load = calls();
        observer.observe(load.running, &[KeyValue::new(names::CALL_STATE, "running")]);
        observer.observe(load.waiting, &[KeyValue::new(names::CALL_STATE, "waiting")]);
    });
    let kept = load.clone();
    meters.watch(&metrics::SANDBOX_KEPT, move |observer| {
        observer.observe(kept().kept_bytes, &[]);
    });
    let ceiling = load.clone();
    meters.watch(&metrics::SANDBOX_KEPT_LIMIT, move |observer| {
        observer.observe(ceiling().kept_ceiling, &[]);
    });
    let used = load.clone();
    meters.watch(&metrics::SANDBOX_POOL, move |observer| {
        for (resource, used, _) in used().pool {
            observer.observe(used, &[KeyValue::new(names::POOL_RESOURCE, resource)]);
        }
    });
    meters.watch(&metrics::SANDBOX_POOL_LIMIT, move |observer| {
        for (resource, _, total) in load().pool {
            observer.observe(total, &[KeyValue::new(names::POOL_RESOURCE, resource)]);
        }
    });
}

/// Gauges of endpoints that are left alone.
pub fn watch_endpoints(
    meters: &Meters,
    load: impl Fn() -> Vec<EndpointLoad> + Clone + Send + Sync + 'static,
) {
    let of = |endpoint: &EndpointLoad| [KeyValue::new(names::ENDPOINT, endpoint.name.clone())];
    let resting = load.clone();
    meters.watch_fractions(&metrics::ENDPOINT_REST, move |observer| {
        for endpoint in resting() {
            observer.observe(endpoint.rest.as_secs_f64(), &of(&endpoint));
        }
    });
    meters.watch(&metrics::BREAKER_OPEN, move |observer| {
        for endpoint in load() {
            observer.observe(endpoint.is_open.into(), &of(&endpoint));
        }
    });
}

/// A gauge of answers that clients have not read.
pub fn watch_unsent(meters: &Meters, bytes: impl Fn() -> u64 + Send + Sync + 'static) {
    meters.watch(&metrics::UNSENT, move |observer| {
        observer.observe(bytes(), &[]);
    });
}

fn with(
    attributes: &[KeyValue],
    name: &'static str,
    value: impl Into<opentelemetry::Value>,
) -> Vec<KeyValue> {
    let own = KeyValue::new(name, value);
    attributes.iter().cloned().chain([own]).collect()
}
