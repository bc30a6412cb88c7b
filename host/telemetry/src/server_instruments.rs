//! Metrics of a server: its runs as a whole, what it can offer, what it answers, and its process.

use crate::conventions as names;
use crate::metrics::{self, Meters, MetricSpec};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram};
use std::time::Duration;
use toolhold_files::{DiskSpace, ProcessFolder, descriptor_limit};

/// Runs of a server at a moment, and their bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunLoad {
    /// Runs that have a place, and the most that may have one.
    pub working: usize,
    pub places: usize,
    /// Runs that wait for a place, and the most that may wait.
    pub waiting: usize,
    pub queue_places: usize,
    /// Runs that wait for a person and have no place.
    pub parked: usize,
}

/// State of a server at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerState {
    /// Whether runs can be begun.
    pub is_ready: bool,
    pub database: DatabaseState,
    /// Agents whose endpoint has answered, and those that wait for it.
    pub ready_agents: u64,
    pub waiting_agents: u64,
    /// Modules that may run, that wait for a person's approval, and that could not be loaded.
    pub ready_modules: u64,
    pub disabled_modules: u64,
    pub failed_modules: u64,
    pub audit: AuditState,
}

/// State of the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DatabaseState {
    #[default]
    Works,
    /// Reads work, writes do not.
    ReadOnly,
    Unreachable,
}

/// Rows that the audit log does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditState {
    /// Rows that it never gets: what they tell of was done.
    pub lost: u64,
    /// Rows without which what they would tell of was refused.
    pub refused: u64,
    /// Writes that wait until the database works.
    pub backlog: u64,
}

/// Cause of the resumption of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeCause {
    /// The server began, and the run had been left behind.
    Start,
    /// The run's own server died or was frozen.
    Takeover,
    /// The database works again.
    Recovery,
    /// A client asked for it.
    Asked,
}

/// Cause of a run's stop before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveCause {
    /// The server stops.
    Shutdown,
    /// Another server has resumed the run.
    Takeover,
    /// Events of the run could not be written.
    Failure,
}

/// Reason why a run got no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceRefusal {
    /// Too many wait already.
    Full,
    /// No place became free in time.
    Late,
}

/// Result of a reload of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadResult {
    Applied,
    /// Files that take everything, the endpoint of agents or all grants away are not believed until a person confirms it;
    /// the rest holds.
    HeldBack,
    /// The configuration is wrong, and none of it is used.
    Refused,
}

impl ResumeCause {
    const ALL: [Self; 4] = [Self::Start, Self::Takeover, Self::Recovery, Self::Asked];

    fn label(self) -> KeyValue {
        let name = match self {
            Self::Start => "start",
            Self::Takeover => "takeover",
            Self::Recovery => "recovery",
            Self::Asked => "asked",
        };
        KeyValue::new(names::RESUME_CAUSE, name)
    }
}

impl LeaveCause {
    const ALL: [Self; 3] = [Self::Shutdown, Self::Takeover, Self::Failure];

    fn label(self) -> KeyValue {
        let name = match self {
            Self::Shutdown => "shutdown",
            Self::Takeover => "takeover",
            Self::Failure => "failure",
        };
        KeyValue::new(names::LEAVE_CAUSE, name)
    }
}

impl PlaceRefusal {
    const ALL: [Self; 2] = [Self::Full, Self::Late];

    fn label(self) -> KeyValue {
        let name = match self {
            Self::Full => "full",
            Self::Late => "late",
        };
        KeyValue::new(names::QUEUE_REFUSAL, name)
    }
}

impl ReloadResult {
    const ALL: [Self; 3] = [Self::Applied, Self::HeldBack, Self::Refused];

    fn label(self) -> KeyValue {
        let name = match self {
            Self::Applied => "applied",
            Self::HeldBack => "held_back",
            Self::Refused => "refused",
        };
        KeyValue::new(names::RELOAD_RESULT, name)
    }
}

/// A request as the server answered it. Only what the server knows beforehand is in it: no path, and no method that a
/// client made up.
#[derive(Debug, Clone, Copy)]
pub struct AnsweredRequest<'a> {
    /// `_OTHER` for one that HTTP does not define.
    pub method: &'static str,
    /// The pattern of the path, such as `/v1/runs/{id}`; absent if there is no such path.
    pub route: Option<&'a str>,
    pub status: u16,
    /// Until the head of the response.
    pub took: Duration,
}

/// The instruments that a server records with.
#[derive(Debug)]
pub struct ServerInstruments {
    resumed: Counter<u64>,
    left: Counter<u64>,
    refused: Counter<u64>,
    reloads: Counter<u64>,
    unapplied: Gauge<u64>,
    http: Histogram<f64>,
}

impl ServerInstruments {
    pub fn new(meters: &Meters) -> Self {
        Self {
            resumed: meters.counter(&metrics::RUNS_RESUMED),
            left: meters.counter(&metrics::RUNS_LEFT),
            refused: meters.counter(&metrics::QUEUE_REFUSED),
            reloads: meters.counter(&metrics::RELOADS),
            unapplied: meters.gauge(&metrics::RELOAD_UNAPPLIED),
            http: meters.times(&metrics::HTTP),
        }
    }

    /// Begins the counters whose labels are known: of one that begins with its first event, Prometheus does not see that
    /// it grew.
    pub fn begin(&self) {
        for cause in ResumeCause::ALL {
            self.resumed.add(0, &[cause.label()]);
        }
        for cause in LeaveCause::ALL {
            self.left.add(0, &[cause.label()]);
        }
        for refusal in PlaceRefusal::ALL {
            self.refused.add(0, &[refusal.label()]);
        }
        for result in ReloadResult::ALL {
            self.reloads.add(0, &[result.label()]);
        }
        self.unapplied.record(0, &[]);
    }

    pub fn resumed(&self, cause: ResumeCause) {
        self.resumed.add(1, &[cause.label()]);
    }

    pub fn left(&self, cause: LeaveCause) {
        self.left.add(1, &[cause.label()]);
    }

    pub fn refused(&self, refusal: PlaceRefusal) {
        self.refused.add(1, &[refusal.label()]);
    }

    pub fn reloaded(&self, result: ReloadResult) {
        self.reloads.add(1, &[result.label()]);
        let is_unapplied = result != ReloadResult::Applied;
        self.unapplied.record(u64::from(is_unapplied), &[]);
    }

    pub fn answered(&self, request: &AnsweredRequest<'_>) {
        let mut attributes = vec![
            KeyValue::new(names::HTTP_METHOD, request.method),
            KeyValue::new(names::HTTP_STATUS, i64::from(request.status)),
        ];
        let route = request.route.map(str::to_owned);
        attributes.extend(route.map(|route| KeyValue::new(names::HTTP_ROUTE, route)));
        self.http.record(request.took.as_secs_f64(), &attributes);
    }
}

/// A metric, and the function that reads its value.
type MetricReader<F> = (&'static MetricSpec, F);
type OfRuns = fn(&RunLoad) -> usize;
type OfDisk = fn(&DiskSpace) -> u64;
type OfProcess = fn() -> Option<u64>;

/// Gauges of a server's runs.
pub fn watch_load(meters: &Meters, load: impl Fn() -> RunLoad + Clone + Send + Sync + 'static) {
    let rows: [MetricReader<OfRuns>; 5] = [
        (&metrics::RUNS_WORKING, |load| load.working),
        (&metrics::RUN_LIMIT, |load| load.places),
        (&metrics::QUEUE_LENGTH, |load| load.waiting),
        (&metrics::QUEUE_LIMIT, |load| load.queue_places),
        (&metrics::RUNS_PARKED, |load| load.parked),
    ];
    for (row, value) in rows {
        let load = load.clone();
        meters.watch(row, move |observer| {
            observer.observe(value(&load()) as u64, &[]);
        });
    }
}

/// Gauges of what a server can offer, and counters of what its audit log does not have.
pub fn watch_server(
    meters: &Meters,
    state: impl Fn() -> ServerState + Clone + Send + Sync + 'static,
) {
    let now = state.clone();
    meters.watch(&metrics::READY, move |observer| {
        observer.observe(u64::from(now().is_ready), &[]);
    });
    let now = state.clone();
    meters.watch(&metrics::AGENTS, move |observer| {
        let state = now();
        observer.observe(
            state.ready_agents,
            &[KeyValue::new(names::AGENT_STATE, "ready")],
        );
        observer.observe(
            state.waiting_agents,
            &[KeyValue::new(names::AGENT_STATE, "waiting")],
        );
    });
    let now = state.clone();
    meters.watch(&metrics::MODULES, move |observer| {
        let state = now();
        for (name, count) in [
            ("ready", state.ready_modules),
            ("disabled", state.disabled_modules),
            ("failed", state.failed_modules),
        ] {
            observer.observe(count, &[KeyValue::new(names::MODULE_STATE, name)]);
        }
    });
    let now = state.clone();
    meters.watch(&metrics::DATABASE_OUTAGE, move |observer| {
        let state = now().database;
        for (name, outage) in [
            ("read_only", DatabaseState::ReadOnly),
            ("unreachable", DatabaseState::Unreachable),
        ] {
            let is_so = u64::from(state == outage);
            observer.observe(is_so, &[KeyValue::new(names::OUTAGE, name)]);
        }
    });
    let now = state.clone();
    meters.watch_count(&metrics::AUDIT_FAILURES, move |observer| {
        let audit = now().audit;
        observer.observe(audit.lost, &[KeyValue::new(names::AUDIT_FAILURE, "lost")]);
        observer.observe(
            audit.refused,
            &[KeyValue::new(names::AUDIT_FAILURE, "refused")],
        );
    });
    meters.watch(&metrics::AUDIT_BACKLOG, move |observer| {
        observer.observe(state().audit.backlog, &[]);
    });
}

/// Gauges of the disks of folders, by the folders' names.
pub fn watch_disks(
    meters: &Meters,
    disks: impl Fn() -> Vec<(&'static str, DiskSpace)> + Clone + Send + Sync + 'static,
) {
    let rows: [MetricReader<OfDisk>; 2] = [
        (&metrics::DISK_FREE, |space| space.free),
        (&metrics::DISK_SIZE, |space| space.size),
    ];
    for (row, bytes) in rows {
        let disks = disks.clone();
        meters.watch(row, move |observer| {
            for (folder, space) in disks() {
                observer.observe(bytes(&space), &[KeyValue::new(names::FOLDER, folder)]);
            }
        });
    }
}

/// Gauges of the process and its version. A value that the system does not tell is left out.
pub fn watch_process(meters: &Meters) {
    meters.watch(&metrics::BUILD, |observer| {
        let version = KeyValue::new(names::VERSION, env!("CARGO_PKG_VERSION"));
        observer.observe(1, &[version]);
    });
    meters.watch_time(&metrics::PROCESS_CPU, |observer| {
        if let Some(time) = ProcessFolder::own().processor_time() {
            observer.observe(time.as_secs_f64(), &[]);
        }
    });
    meters.watch_fractions(&metrics::PROCESS_START, |observer| {
        if let Some(start) = ProcessFolder::own().start() {
            observer.observe(start.as_secs_f64(), &[]);
        }
    });
    let rows: [MetricReader<OfProcess>; 4] = [
        (&metrics::PROCESS_MEMORY, || {
            ProcessFolder::own().resident_bytes()
        }),
        (&metrics::PROCESS_DESCRIPTORS, || {
            ProcessFolder::own().descriptors()
        }),
        (&metrics::PROCESS_DESCRIPTOR_LIMIT, descriptor_limit),
        (&metrics::PROCESS_THREADS, || ProcessFolder::own().threads()),
    ];
    for (row, value) in rows {
        meters.watch(row, move |observer| {
            if let Some(value) = value() {
                observer.observe(value, &[]);
            }
        });
    }
}
