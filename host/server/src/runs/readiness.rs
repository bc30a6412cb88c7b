//! Whether this server can begin runs, in which state its parts are, and what its metrics say of it as a whole.

use crate::runs::dispatcher::{Dispatcher, DispatcherInner};
use crate::runs::part_tracker::{Moment, PartState, PartTracker, ServerPart};
use crate::runs::refused::RunRefusal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;
use toolhold_runtime::disks::{DiskRoom, Disks};
use toolhold_runtime::endpoints::answered_agents;
use toolhold_storage::{AuditLosses, Outage, StoreError};
use toolhold_telemetry::{AuditState, DatabaseState, ServerState};

/// Time between two looks at all parts.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Longest wait for the answer of the database to a look.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason why no run can be begun at present. Clients without a key read it, so it names no module, endpoint, path or
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotReady {
    #[error("{}", RunRefusal::Closing)]
    Closing,
    #[error("{0}; try again in a while")]
    Outage(Outage),
    #[error("the database cannot be used just now; the server's log says why")]
    Database,
    #[error(
        "no agent can run: none of their endpoints has answered yet; the server's log names them"
    )]
    NoAgent,
    #[error("modules are being loaded; {ready} are ready so far")]
    Loading { ready: usize },
    #[error("MCP servers are asked for their tools; {silent} have not listed them yet")]
    SilentServers { silent: usize },
    #[error(
        "no module may run: {disabled} wait for approval, and {failed} could not be loaded; toolhold modules list names \
         them, and a restored database needs the approvals of its state folder, too"
    )]
    NoModule { disabled: usize, failed: usize },
}

/// State of a part of the server.
#[derive(Debug, Clone)]
pub struct PartReport {
    pub state: PartState,
    /// When the state began.
    pub since: SystemTime,
    /// One sentence without secrets.
    pub detail: String,
}

/// States of all parts of the server.
#[derive(Debug, Clone)]
pub struct ServerHealth {
    pub serving: PartReport,
    pub database: PartReport,
    pub endpoints: PartReport,
    pub modules: PartReport,
    pub disk: PartReport,
    /// The first reason why no run can be begun; absent if the server is ready.
    pub obstacle: Option<NotReady>,
    /// Modules that may run.
    pub ready_modules: usize,
    /// Agents whose endpoint did not answer when it was asked for its model.
    pub waiting_agents: usize,
    /// Endpoints that are left alone at present.
    pub resting_endpoints: usize,
}

/// Knowledge about the server's parts that the parts themselves do not keep.
#[derive(Debug)]
pub(super) struct KnownHealth {
    tracker: PartTracker,
    disks: Disks,
    /// Result of the last query, if it failed.
    failed_query: Mutex<Option<NotReady>>,
    /// True once a module could run in this process.
    had_module: AtomicBool,
    /// True once an endpoint of an agent had answered in this process.
    had_agent: AtomicBool,
}

impl KnownHealth {
    pub(super) fn new(disks: Disks) -> Self {
        Self {
            tracker: PartTracker::default(),
            disks,
            failed_query: Mutex::default(),
            had_module: AtomicBool::new(false),
            had_agent: AtomicBool::new(false),
        }
    }

    fn failed_query(&self) -> Option<NotReady> {
        *self.lock()
    }

    /// Notes the result of a query, and logs an error that is no outage once: outages are logged where they begin.
    fn queried(&self, result: Result<(), &StoreError>) {
        let found = result.err().map(|error| match error.outage() {
            Some(outage) => NotReady::Outage(outage),
            None => NotReady::Database,
        });
        let before = std::mem::replace(&mut *self.lock(), found);
        if let (Some(NotReady::Database), Err(error)) = (found, result)
            && before != found
        {
            tracing::error!(%error, "the database failed");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<NotReady>> {
        self.failed_query
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of a part, as a look finds it.
struct FoundState {
    state: PartState,
    detail: String,
    /// When the state began, where that is known.
    began: Option<Instant>,
    obstacle: Option<NotReady>,
}

impl FoundState {
    fn ok(detail: impl Into<String>) -> Self {
        Self {
            state: PartState::Ok,
            detail: detail.into(),
            began: None,
            obstacle: None,
        }
    }

    fn degraded(detail: impl Into<String>) -> Self {
        Self {
            state: PartState::Degraded,
            ..Self::ok(detail)
        }
    }

    fn failed(obstacle: NotReady) -> Self {
        Self {
            state: PartState::Failed,
            obstacle: Some(obstacle),
            ..Self::ok(obstacle.to_string())
        }
    }
}

impl Dispatcher {
    /// States of all parts, by what is known: no query is made, so it costs nothing that anybody may ask.
    pub fn health(&self) -> ServerHealth {
        self.inner.health()
    }

    /// Looks at all parts for as long as it is polled. `tell` is called with each result.
    pub async fn watch_health(&self, tell: impl Fn(&ServerHealth)) {
        loop {
            self.ask_database().await;
            tell(&self.health());
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    async fn ask_database(&self) {
        let (store, known) = (&self.inner.store, &self.inner.known);
        // During an outage the store itself looks whether it is over.
        if store.readable().is_err() {
            known.queried(Ok(()));
            return;
        }
        match store.probe(QUERY_TIMEOUT).await {
            Ok(true) => known.queried(Ok(())),
            // Nothing new is known.
            Ok(false) => {}
            Err(error) => known.queried(Err(&error)),
        }
    }

    /// Exports what the server can offer.
    pub(super) fn export_state(&self) {
        // Weak: metrics must not keep what they measure.
        let measured = Arc::downgrade(&self.inner);
        self.telemetry().watch_server(move || {
            let state = measured.upgrade().map(|inner| inner.state());
            state.unwrap_or_default()
        });
    }
}

impl DispatcherInner {
    /// States of all parts, by what is known: no query is made.
    fn health(&self) -> ServerHealth {
        let now = Moment::now();
        let offered = self.agents.all();
        let states = self.agents.endpoints();
        let resting_endpoints = states.iter().filter(|state| !state.is_asked()).count();
        let waiting_agents = offered.waiting.len();
        let modules = self.agents.registry().modules();
        let ready_modules = modules.iter().filter(|it| it.pin_state().may_run()).count();
        let all = [
            self.serving(),
            self.database(),
            self.endpoints(waiting_agents, resting_endpoints),
            self.modules(ready_modules, modules.len() - ready_modules),
            self.disk(),
        ];
        let obstacle = all.iter().find_map(|found| found.obstacle);
        let report = |part, found: FoundState| PartReport {
            state: found.state,
            since: self.known.tracker.note(part, found.state, found.began, now),
            detail: found.detail,
        };
        let [serving, database, endpoints, modules, disk] = all;
        ServerHealth {
            serving: report(ServerPart::Serving, serving),
            database: report(ServerPart::Database, database),
            endpoints: report(ServerPart::Endpoints, endpoints),
            modules: report(ServerPart::Modules, modules),
            disk: report(ServerPart::Disk, disk),
            obstacle,
            ready_modules,
            waiting_agents,
            resting_endpoints,
        }
    }

    fn serving(&self) -> FoundState {
        if self.closing.is_cancelled() {
            FoundState::failed(NotReady::Closing)
        } else {
            FoundState::ok("the server takes new runs")
        }
    }

    fn database(&self) -> FoundState {
        let health = self.store.health();
        let known = health.outage().map(NotReady::Outage);
        match known.or_else(|| self.known.failed_query()) {
            Some(obstacle) => FoundState {
                began: health.since(),
                ..FoundState::failed(obstacle)
            },
            None => FoundState::ok("the database can be read and written"),
        }
    }

    /// A server whose endpoints never answered does not have what its operator wants. One whose configuration names another
    /// endpoint since, which has not answered yet, had it: no balancer is to take all replicas out for a reload.
    fn endpoints(&self, waiting: usize, resting: usize) -> FoundState {
        let answered = answered_agents(&self.agents);
        if answered > 0 {
            self.known.had_agent.store(true, Ordering::Relaxed);
        } else if !self.known.had_agent.load(Ordering::Relaxed) {
            return FoundState::failed(NotReady::NoAgent);
        }
        let all = self.agents.all().ready.len() + waiting;
        let can_run = format!("{answered} of {all} agents can run");
        if answered > 0 && answered == all && resting == 0 {
            FoundState::ok(can_run)
        } else {
            FoundState::degraded(format!(
                "{can_run}, and {resting} endpoints are left alone at present"
            ))
        }
    }

    /// A server that never had a module which may run does not have what its operator wants. One that lost them by a
    /// revocation or a change does: a restart or a balancer does not bring them back, and runs without them go on.
    fn modules(&self, ready: usize, disabled: usize) -> FoundState {
        let failed = self.agents.registry().failures().len();
        if ready > 0 {
            self.known.had_module.store(true, Ordering::Relaxed);
        }
        if self.startup.loads_modules() {
            return FoundState::failed(NotReady::Loading { ready });
        }
        let silent = self.startup.silent_servers();
        if silent > 0 {
            return FoundState::failed(NotReady::SilentServers { silent });
        }
        let all = ready + disabled + failed;
        if ready == all {
            FoundState::ok(format!("{ready} of {all} modules may run"))
        } else if self.known.had_module.load(Ordering::Relaxed) {
            FoundState::degraded(format!(
                "{ready} of {all} modules may run; {disabled} wait for approval, and {failed} could not be loaded"
            ))
        } else {
            FoundState::failed(NotReady::NoModule { disabled, failed })
        }
    }

    fn disk(&self) -> FoundState {
        match self.known.disks.room() {
            DiskRoom::Enough => FoundState::ok("the disk of the state folder has room"),
            DiskRoom::Short => {
                FoundState::degraded("less than a tenth of the state folder's disk is free")
            }
            DiskRoom::Unknown => {
                FoundState::degraded("the disk of the state folder does not say how much is free")
            }
        }
    }

    fn state(&self) -> ServerState {
        let (agents, registry) = (self.agents.all(), self.agents.registry());
        let modules = registry.modules();
        let health = self.health();
        let AuditLosses {
            lost,
            refused,
            backlog,
        } = self.store.audit_losses();
        ServerState {
            is_ready: health.obstacle.is_none(),
            database: match self.store.health().outage() {
                None => DatabaseState::Works,
                Some(Outage::ReadOnly) => DatabaseState::ReadOnly,
                Some(Outage::Unreachable) => DatabaseState::Unreachable,
            },
            ready_agents: agents.ready.len() as u64,
            waiting_agents: health.waiting_agents as u64,
            ready_modules: health.ready_modules as u64,
            disabled_modules: modules.len().saturating_sub(health.ready_modules) as u64,
            failed_modules: registry.failures().len() as u64,
            audit: AuditState {
                lost,
                refused,
                backlog,
            },
        }
    }
}
