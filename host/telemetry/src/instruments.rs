//! Metrics over all runs.

use crate::conventions as names;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
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
}

impl Instruments {
    pub fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, what: &'static str, boundaries: &[f64]| {
            meter
                .f64_histogram(name)
                .with_unit("s")
                .with_description(what)
                .with_boundaries(boundaries.to_vec())
                .build()
        };
        let sizes =
            |name: &'static str, unit: &'static str, what: &'static str, boundaries: &[f64]| {
                meter
                    .u64_histogram(name)
                    .with_unit(unit)
                    .with_description(what)
                    .with_boundaries(boundaries.to_vec())
                    .build()
            };
        let counter = |name: &'static str, what: &'static str| {
            meter.u64_counter(name).with_description(what).build()
        };
        Self {
            tokens: sizes(
                "gen_ai.client.token.usage",
                "{token}",
                "Tokens of requests and replies, as endpoints count them",
                &names::TOKEN_BOUNDARIES,
            ),
            operation: seconds(
                "gen_ai.client.operation.duration",
                "From sending a request to the end of its reply",
                &names::SECOND_BOUNDARIES,
            ),
            first_chunk: seconds(
                "gen_ai.client.operation.time_to_first_chunk",
                "From sending a request to the first piece of its reply",
                &names::FIRST_CHUNK_BOUNDARIES,
            ),
            next_chunk: seconds(
                "gen_ai.client.operation.time_per_output_chunk",
                "Between two pieces of a reply",
                &names::CHUNK_BOUNDARIES,
            ),
            agent: seconds(
                "gen_ai.invoke_agent.duration",
                "Runs and sub-agents",
                &names::SECOND_BOUNDARIES,
            ),
            tool: seconds(
                "gen_ai.execute_tool.duration",
                "Calls of tools",
                &names::TOOL_BOUNDARIES,
            ),
            tool_calls: counter("toolhold.tool.calls", "Calls of tools that ended"),
            tool_errors: counter("toolhold.tool.errors", "Those of them that failed"),
            fuel: counter("toolhold.tool.fuel", "Instructions of modules, roughly"),
            memory: sizes(
                "toolhold.tool.memory",
                "By",
                "The most linear memory that a call held",
                &names::BYTE_BOUNDARIES,
            ),
            repairs: counter(
                "toolhold.repairs",
                "Faults of replies and arguments that were put right",
            ),
            unusable: counter(
                "toolhold.replies.unusable",
                "Replies that could not be used, or not to their end",
            ),
            retries: counter("toolhold.retries", "Requests that were sent again"),
            tool_retries: counter(
                "toolhold.tool.retries",
                "Calls of tools that were made again",
            ),
            tool_cached: counter(
                "toolhold.tool.cached",
                "Calls that were given the result of an earlier one",
            ),
            fallbacks: counter(
                "toolhold.fallbacks",
                "Calls and replies that another model was asked for",
            ),
            runs: counter("toolhold.runs", "Runs that are over"),
            endpoint_wait: seconds(
                "toolhold.endpoint.queue.wait",
                "How long requests stood in the queue before an endpoint",
                &names::SECOND_BOUNDARIES,
            ),
            queue_wait: seconds(
                "toolhold.run.queue.wait",
                "How long runs of the server waited for a place",
                &names::SECOND_BOUNDARIES,
            ),
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

/// Gauges of a server's runs that work, and that wait in its queue.
pub fn watch_load(
    meter: &Meter,
    load: impl Fn() -> (usize, usize) + Clone + Send + Sync + 'static,
) {
    let waiting = load.clone();
    meter
        .u64_observable_gauge("toolhold.run.active")
        .with_description("Runs that go on in this process")
        .with_callback(move |observer| observer.observe(load().0 as u64, &[]))
        .build();
    meter
        .u64_observable_gauge("toolhold.run.queue.length")
        .with_description("Runs that wait for a place")
        .with_callback(move |observer| observer.observe(waiting().1 as u64, &[]))
        .build();
}

/// Counts lookups in the cache of compiled modules.
pub fn watch_cache(meter: &Meter, lookups: impl Fn() -> CacheLookups + Send + Sync + 'static) {
    meter
        .u64_observable_counter("toolhold.module.cache.lookups")
        .with_description("Compiled modules that were looked for in the cache")
        .with_callback(move |observer| {
            let CacheLookups { hits, misses } = lookups();
            observer.observe(hits, &[KeyValue::new(names::CACHE_RESULT, "hit")]);
            observer.observe(misses, &[KeyValue::new(names::CACHE_RESULT, "miss")]);
        })
        .build();
}

/// Gauges of what calls take.
pub fn watch_sandbox(
    meter: &Meter,
    load: impl Fn() -> SandboxLoad + Clone + Send + Sync + 'static,
) {
    let gauge = |name: &'static str, description: &'static str| {
        meter
            .u64_observable_gauge(name)
            .with_description(description)
    };
    let calls = load.clone();
    gauge(
        "toolhold.sandbox.calls",
        "Calls of modules that run, and that wait for a place",
    )
    .with_callback(move |observer| {
        let load = calls();
        observer.observe(load.running, &[KeyValue::new(names::CALL_STATE, "running")]);
        observer.observe(load.waiting, &[KeyValue::new(names::CALL_STATE, "waiting")]);
    })
    .build();
    let kept = load.clone();
    gauge(
        "toolhold.sandbox.kept",
        "Memory that the host keeps for calls and requests",
    )
    .with_unit("By")
    .with_callback(move |observer| observer.observe(kept().kept_bytes, &[]))
    .build();
    let ceiling = load.clone();
    gauge(
        "toolhold.sandbox.kept.limit",
        "The most memory that it may keep for them",
    )
    .with_unit("By")
    .with_callback(move |observer| observer.observe(ceiling().kept_ceiling, &[]))
    .build();
    let used = load.clone();
    gauge(
        "toolhold.sandbox.pool",
        "Slots of the pool of instances that are taken",
    )
    .with_callback(move |observer| {
        for (resource, used, _) in used().pool {
            observer.observe(used, &[KeyValue::new(names::POOL_RESOURCE, resource)]);
        }
    })
    .build();
    gauge(
        "toolhold.sandbox.pool.limit",
        "Slots of the pool of instances",
    )
    .with_callback(move |observer| {
        for (resource, _, total) in load().pool {
            observer.observe(total, &[KeyValue::new(names::POOL_RESOURCE, resource)]);
        }
    })
    .build();
}

/// Gauges of endpoints that are left alone.
pub fn watch_endpoints(
    meter: &Meter,
    load: impl Fn() -> Vec<EndpointLoad> + Clone + Send + Sync + 'static,
) {
    let of = |endpoint: &EndpointLoad| [KeyValue::new(names::ENDPOINT, endpoint.name.clone())];
    let resting = load.clone();
    meter
        .f64_observable_gauge("toolhold.endpoint.rest")
        .with_description(
            "Time until the end of the rest that an endpoint asked for; 0: it does not rest",
        )
        .with_unit("s")
        .with_callback(move |observer| {
            for endpoint in resting() {
                observer.observe(endpoint.rest.as_secs_f64(), &of(&endpoint));
            }
        })
        .build();
    meter
        .u64_observable_gauge("toolhold.endpoint.breaker.open")
        .with_description("Whether the circuit breaker of an endpoint is open: 1 or 0")
        .with_callback(move |observer| {
            for endpoint in load() {
                observer.observe(endpoint.is_open.into(), &of(&endpoint));
            }
        })
        .build();
}

/// A gauge of answers that clients have not read.
pub fn watch_unsent(meter: &Meter, bytes: impl Fn() -> u64 + Send + Sync + 'static) {
    meter
        .u64_observable_gauge("toolhold.http.unsent")
        .with_description("Memory of answers that clients have not read")
        .with_unit("By")
        .with_callback(move |observer| observer.observe(bytes(), &[]))
        .build();
}

fn with(
    attributes: &[KeyValue],
    name: &'static str,
    value: impl Into<opentelemetry::Value>,
) -> Vec<KeyValue> {
    let own = KeyValue::new(name, value);
    attributes.iter().cloned().chain([own]).collect()
}
