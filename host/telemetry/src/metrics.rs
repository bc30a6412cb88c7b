//! All metrics that a process exports, each once: its name, unit, labels and meaning.
//!
//! An instrument is made of a row of this table and of nothing else ([`Meters`]). So [`METRICS`] is what is exported, and a
//! dashboard or an alert can be compared with it.

use crate::conventions as names;
use opentelemetry::metrics::{AsyncInstrument, Counter, Gauge, Histogram, Meter};

/// Kind of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Sums that only grow.
    Counter,
    /// Values of a moment.
    Gauge,
    /// Numbers of values by size.
    Histogram,
}

/// Unit of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// Things that the metric's name says.
    Things,
    Bytes,
    Seconds,
    Tokens,
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct MetricSpec {
    /// Its name, as a collector has it.
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: MetricUnit,
    /// Description for readers.
    pub about: &'static str,
    /// Names of the attributes that tell its values apart.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets; one more bucket has all larger values. Empty for other kinds.
    pub boundaries: &'static [f64],
}

impl MetricUnit {
    fn name(self) -> &'static str {
        match self {
            Self::Things => "",
            Self::Bytes => "By",
            Self::Seconds => "s",
            Self::Tokens => "{token}",
        }
    }

    fn scraped_suffix(self) -> &'static str {
        match self {
            Self::Things | Self::Tokens => "",
            Self::Bytes => "_bytes",
            Self::Seconds => "_seconds",
        }
    }
}

impl MetricSpec {
    const fn new(
        kind: MetricKind,
        name: &'static str,
        unit: MetricUnit,
        about: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            kind,
            unit,
            about,
            labels,
            boundaries: &[],
        }
    }

    const fn counter(
        name: &'static str,
        unit: MetricUnit,
        about: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self::new(MetricKind::Counter, name, unit, about, labels)
    }

    const fn gauge(
        name: &'static str,
        unit: MetricUnit,
        about: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self::new(MetricKind::Gauge, name, unit, about, labels)
    }

    const fn histogram(
        name: &'static str,
        unit: MetricUnit,
        about: &'static str,
        labels: &'static [&'static str],
        boundaries: &'static [f64],
    ) -> Self {
        Self {
            boundaries,
            ..Self::new(MetricKind::Histogram, name, unit, about, labels)
        }
    }

    /// The metric's name as Prometheus has it.
    pub fn scraped_name(&self) -> String {
        let total = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        let name = self.name.replace('.', "_");
        format!("{name}{}{total}", self.unit.scraped_suffix())
    }

    /// The names of its series as Prometheus has them.
    pub fn series(&self) -> Vec<String> {
        let name = self.scraped_name();
        match self.kind {
            MetricKind::Counter | MetricKind::Gauge => vec![name],
            MetricKind::Histogram => ["bucket", "count", "sum"]
                .map(|part| format!("{name}_{part}"))
                .to_vec(),
        }
    }

    /// Its labels as Prometheus has them, without those that every series has.
    pub fn scraped_labels(&self) -> impl Iterator<Item = String> {
        self.labels.iter().map(|label| label.replace('.', "_"))
    }
}

/// Makes instruments, each of a row of the table.
#[derive(Debug, Clone)]
pub struct Meters(Meter);

impl Meters {
    pub fn new(meter: Meter) -> Self {
        Self(meter)
    }

    pub fn counter(&self, row: &MetricSpec) -> Counter<u64> {
        self.0
            .u64_counter(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .build()
    }

    pub fn gauge(&self, row: &MetricSpec) -> Gauge<u64> {
        self.0
            .u64_gauge(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .build()
    }

    /// A histogram of times.
    pub fn times(&self, row: &MetricSpec) -> Histogram<f64> {
        self.0
            .f64_histogram(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .with_boundaries(row.boundaries.to_vec())
            .build()
    }

    /// A histogram of numbers of bytes or tokens.
    pub fn sizes(&self, row: &MetricSpec) -> Histogram<u64> {
        self.0
            .u64_histogram(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .with_boundaries(row.boundaries.to_vec())
            .build()
    }

    /// A gauge whose values `observe` tells at each export.
    pub fn watch(
        &self,
        row: &MetricSpec,
        observe: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
    ) {
        self.0
            .u64_observable_gauge(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .with_callback(observe)
            .build();
    }

    /// A gauge of values with fractions.
    pub fn watch_fractions(
        &self,
        row: &MetricSpec,
        observe: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static,
    ) {
        self.0
            .f64_observable_gauge(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .with_callback(observe)
            .build();
    }

    /// A counter whose value `observe` tells at each export.
    pub fn watch_count(
        &self,
        row: &MetricSpec,
        observe: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static,
    ) {
        self.0
            .u64_observable_counter(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .with_callback(observe)
            .build();
    }

    /// A counter of seconds.
    pub fn watch_time(
        &self,
        row: &MetricSpec,
        observe: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static,
    ) {
        self.0
            .f64_observable_counter(row.name)
            .with_unit(row.unit.name())
            .with_description(row.about)
            .with_callback(observe)
            .build();
    }
}

macro_rules! metrics {
    ($($row:ident = $kind:ident($($of:expr),+ $(,)?);)*) => {
        $(pub const $row: MetricSpec = MetricSpec::$kind($($of),+);)*

        /// Every metric that is exported.
        pub const METRICS: &[MetricSpec] = &[$($row),*];
    };
}

metrics! {
    TOKENS = histogram(
        "gen_ai.client.token.usage",
        MetricUnit::Tokens,
        "Tokens of requests and replies, as endpoints count them",
        &[
            names::OPERATION,
            names::PROVIDER,
            names::REQUEST_MODEL,
            names::RESPONSE_MODEL,
            names::TOKEN_TYPE,
        ],
        &names::TOKEN_BOUNDARIES,
    );
    OPERATION = histogram(
        "gen_ai.client.operation.duration",
        MetricUnit::Seconds,
        "From sending a request to the end of its reply",
        &[
            names::OPERATION,
            names::PROVIDER,
            names::REQUEST_MODEL,
            names::RESPONSE_MODEL,
            names::ERROR_TYPE,
        ],
        &names::SECOND_BOUNDARIES,
    );
    FIRST_CHUNK = histogram(
        "gen_ai.client.operation.time_to_first_chunk",
        MetricUnit::Seconds,
        "From sending a request to the first piece of its reply",
        &[
            names::OPERATION,
            names::PROVIDER,
            names::REQUEST_MODEL,
            names::RESPONSE_MODEL,
        ],
        &names::FIRST_CHUNK_BOUNDARIES,
    );
    NEXT_CHUNK = histogram(
        "gen_ai.client.operation.time_per_output_chunk",
        MetricUnit::Seconds,
        "Between two pieces of a reply",
        &[names::OPERATION, names::PROVIDER, names::REQUEST_MODEL],
        &names::CHUNK_BOUNDARIES,
    );
    AGENT = histogram(
        "gen_ai.invoke_agent.duration",
        MetricUnit::Seconds,
        "Runs and sub-agents",
        &[names::AGENT_NAME, names::STOP_REASON],
        &names::SECOND_BOUNDARIES,
    );
    TOOL = histogram(
        "gen_ai.execute_tool.duration",
        MetricUnit::Seconds,
        "Calls of tools",
        &[names::TOOL_NAME, names::ERROR_TYPE],
        &names::TOOL_BOUNDARIES,
    );
    TOOL_CALLS = counter(
        "toolhold.tool.calls",
        MetricUnit::Things,
        "Calls of tools that ended",
        &[names::TOOL_NAME],
    );
    TOOL_ERRORS = counter(
        "toolhold.tool.errors",
        MetricUnit::Things,
        "Calls of tools that failed",
        &[names::TOOL_NAME, names::ERROR_TYPE],
    );
    FUEL = counter(
        "toolhold.tool.fuel",
        MetricUnit::Things,
        "Instructions of modules, roughly",
        &[names::TOOL_NAME],
    );
    MEMORY = histogram(
        "toolhold.tool.memory",
        MetricUnit::Bytes,
        "The most linear memory that a call held",
        &[names::TOOL_NAME],
        &names::BYTE_BOUNDARIES,
    );
    TOOL_RETRIES = counter(
        "toolhold.tool.retries",
        MetricUnit::Things,
        "Calls of tools that were made again",
        &[names::TOOL_NAME],
    );
    TOOL_CACHED = counter(
        "toolhold.tool.cached",
        MetricUnit::Things,
        "Calls that were given the result of an earlier one",
        &[names::TOOL_NAME],
    );
    REPAIRS = counter(
        "toolhold.repairs",
        MetricUnit::Things,
        "Faults of replies and arguments that were put right",
        &[],
    );
    UNUSABLE = counter(
        "toolhold.replies.unusable",
        MetricUnit::Things,
        "Replies that could not be used, or not to their end",
        &[names::REQUEST_MODEL, names::REPLY_FAULT],
    );
    RETRIES = counter(
        "toolhold.retries",
        MetricUnit::Things,
        "Requests that were sent again",
        &[names::ENDPOINT],
    );
    FALLBACKS = counter(
        "toolhold.fallbacks",
        MetricUnit::Things,
        "Calls and replies that another model was asked for",
        &[names::REQUEST_MODEL],
    );
    ENDPOINT_WAIT = histogram(
        "toolhold.endpoint.queue.wait",
        MetricUnit::Seconds,
        "How long requests stood in the queue before an endpoint",
        &[names::ENDPOINT],
        &names::SECOND_BOUNDARIES,
    );
    RUNS = counter(
        "toolhold.runs",
        MetricUnit::Things,
        "Runs that are over",
        &[names::AGENT_NAME, names::STOP_REASON],
    );
    RUNS_RESUMED = counter(
        "toolhold.runs.resumed",
        MetricUnit::Things,
        "Runs that this server went on with, which had stopped here or in another server",
        &[names::RESUME_CAUSE],
    );
    RUNS_LEFT = counter(
        "toolhold.runs.left",
        MetricUnit::Things,
        "Runs that stopped in this server before their end, and can be resumed",
        &[names::LEAVE_CAUSE],
    );
    RUNS_WORKING = gauge(
        "toolhold.run.active",
        MetricUnit::Things,
        "Runs that go on in this process",
        &[],
    );
    RUN_LIMIT = gauge(
        "toolhold.run.limit",
        MetricUnit::Things,
        "The most runs that go on at the same time",
        &[],
    );
    RUNS_PARKED = gauge(
        "toolhold.run.parked",
        MetricUnit::Things,
        "Runs that wait for a person and hold no place",
        &[],
    );
    QUEUE_LENGTH = gauge(
        "toolhold.run.queue.length",
        MetricUnit::Things,
        "Runs that wait for a place",
        &[],
    );
    QUEUE_LIMIT = gauge(
        "toolhold.run.queue.limit",
        MetricUnit::Things,
        "The most runs that wait for a place",
        &[],
    );
    QUEUE_WAIT = histogram(
        "toolhold.run.queue.wait",
        MetricUnit::Seconds,
        "How long runs of the server waited for a place",
        &[],
        &names::SECOND_BOUNDARIES,
    );
    QUEUE_REFUSED = counter(
        "toolhold.run.queue.refused",
        MetricUnit::Things,
        "Runs that were given no place",
        &[names::QUEUE_REFUSAL],
    );
    READY = gauge(
        "toolhold.ready",
        MetricUnit::Things,
        "1 while runs can be begun, as /readyz tells",
        &[],
    );
    AGENTS = gauge(
        "toolhold.agents",
        MetricUnit::Things,
        "Agents, by whether their endpoint has answered",
        &[names::AGENT_STATE],
    );
    MODULES = gauge(
        "toolhold.modules",
        MetricUnit::Things,
        "Modules, by whether their tools can be called",
        &[names::MODULE_STATE],
    );
    MODULE_LOOKUPS = counter(
        "toolhold.module.cache.lookups",
        MetricUnit::Things,
        "Compiled modules that were looked for in the cache",
        &[names::CACHE_RESULT],
    );
    RELOADS = counter(
        "toolhold.reloads",
        MetricUnit::Things,
        "Times that the configuration was read again",
        &[names::RELOAD_RESULT],
    );
    RELOAD_UNAPPLIED = gauge(
        "toolhold.reload.unapplied",
        MetricUnit::Things,
        "1 while the files of the configuration are not what holds: they were refused or held back",
        &[],
    );
    DATABASE_OUTAGE = gauge(
        "toolhold.database.outage",
        MetricUnit::Things,
        "1 while the database cannot be reached, or cannot be written",
        &[names::OUTAGE],
    );
    AUDIT_FAILURES = counter(
        "toolhold.audit.failures",
        MetricUnit::Things,
        "Rows that the audit log does not have, by whether what they tell of was refused for that or is lost",
        &[names::AUDIT_FAILURE],
    );
    AUDIT_BACKLOG = gauge(
        "toolhold.audit.backlog",
        MetricUnit::Things,
        "Writes with rows of the audit log that wait until the database works",
        &[],
    );
    DISK_FREE = gauge(
        "toolhold.disk.free",
        MetricUnit::Bytes,
        "Room on the disk of a folder that this process may still use",
        &[names::FOLDER],
    );
    DISK_SIZE = gauge(
        "toolhold.disk.size",
        MetricUnit::Bytes,
        "What the disk of a folder holds in all",
        &[names::FOLDER],
    );
    SANDBOX_CALLS = gauge(
        "toolhold.sandbox.calls",
        MetricUnit::Things,
        "Calls of modules that run, and that wait for a place",
        &[names::CALL_STATE],
    );
    SANDBOX_KEPT = gauge(
        "toolhold.sandbox.kept",
        MetricUnit::Bytes,
        "Memory that the host keeps for calls and requests",
        &[],
    );
    SANDBOX_KEPT_LIMIT = gauge(
        "toolhold.sandbox.kept.limit",
        MetricUnit::Bytes,
        "The most memory that it may keep for them",
        &[],
    );
    SANDBOX_POOL = gauge(
        "toolhold.sandbox.pool",
        MetricUnit::Things,
        "Slots of the pool of instances that are taken",
        &[names::POOL_RESOURCE],
    );
    SANDBOX_POOL_LIMIT = gauge(
        "toolhold.sandbox.pool.limit",
        MetricUnit::Things,
        "Slots of the pool of instances",
        &[names::POOL_RESOURCE],
    );
    ENDPOINT_REST = gauge(
        "toolhold.endpoint.rest",
        MetricUnit::Seconds,
        "Time until the end of the rest that an endpoint asked for; 0: it does not rest",
        &[names::ENDPOINT],
    );
    BREAKER_OPEN = gauge(
        "toolhold.endpoint.breaker.open",
        MetricUnit::Things,
        "Whether the circuit breaker of an endpoint is open: 1 or 0",
        &[names::ENDPOINT],
    );
    UNSENT = gauge(
        "toolhold.http.unsent",
        MetricUnit::Bytes,
        "Memory of answers that clients have not read",
        &[],
    );
    HTTP = histogram(
        "http.server.request.duration",
        MetricUnit::Seconds,
        "From the head of a request to the head of its response; a stream goes on after that",
        &[names::HTTP_METHOD, names::HTTP_ROUTE, names::HTTP_STATUS],
        &names::HTTP_BOUNDARIES,
    );
    BUILD = gauge(
        "toolhold.build.info",
        MetricUnit::Things,
        "1, with the version of this process",
        &[names::VERSION],
    );
    // Named so that Prometheus has them under the names that its own clients give them.
    PROCESS_CPU = counter(
        "process.cpu",
        MetricUnit::Seconds,
        "Time that all threads of the process have computed",
        &[],
    );
    PROCESS_MEMORY = gauge(
        "process.resident_memory",
        MetricUnit::Bytes,
        "Memory of the process that is really there",
        &[],
    );
    PROCESS_DESCRIPTORS = gauge(
        "process.open_fds",
        MetricUnit::Things,
        "Descriptors that the process has open",
        &[],
    );
    PROCESS_DESCRIPTOR_LIMIT = gauge(
        "process.max_fds",
        MetricUnit::Things,
        "The most descriptors that the process may have open",
        &[],
    );
    PROCESS_START = gauge(
        "process.start_time",
        MetricUnit::Seconds,
        "When the process began, since 1970 (UTC)",
        &[],
    );
    PROCESS_THREADS = gauge(
        "process.threads",
        MetricUnit::Things,
        "Threads of the process",
        &[],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_the_metrics_own_under_prometheus_too() {
        let names: BTreeSet<&str> = METRICS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), METRICS.len());
        let series: Vec<String> = METRICS.iter().flat_map(MetricSpec::series).collect();
        let different: BTreeSet<&String> = series.iter().collect();
        assert_eq!(different.len(), series.len(), "{series:?}");
    }

    #[test]
    fn process_metrics_have_prometheus_own_names() {
        for (row, name) in [
            (PROCESS_CPU, "process_cpu_seconds_total"),
            (PROCESS_MEMORY, "process_resident_memory_bytes"),
            (PROCESS_DESCRIPTORS, "process_open_fds"),
            (PROCESS_DESCRIPTOR_LIMIT, "process_max_fds"),
            (PROCESS_START, "process_start_time_seconds"),
            (PROCESS_THREADS, "process_threads"),
        ] {
            assert_eq!(row.scraped_name(), name);
        }
    }

    #[test]
    fn boundaries_grow_and_only_histograms_have_them() {
        for row in METRICS {
            let is_histogram = row.kind == MetricKind::Histogram;
            assert_eq!(!row.boundaries.is_empty(), is_histogram, "{}", row.name);
            let grow = row.boundaries.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(grow, "{}", row.name);
        }
    }
}
