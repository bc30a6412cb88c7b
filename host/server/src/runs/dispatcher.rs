//! The runs of one server: admission, watching and cancellation.

use crate::rights::{LOOK_INTERVAL, Rights};
use crate::runs::live::{LiveEvent, LiveEvents, LiveRoom, PieceReaders, SharedReply};
use crate::runs::log::RunLog;
use crate::runs::parked_runs::ParkedRuns;
use crate::runs::readiness::KnownHealth;
use crate::runs::refused::RunRefusal;
use crate::runs::run_permit::{AdmissionHandle, RunPermit};
use crate::runs::watcher::{LaterEvents, Viewer, Watcher};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolhold_admission::{FairQueue, Lane, MemoryReservation, QueueRefusal, Seldom};
use toolhold_agent::Run;
use toolhold_agent::run::RunCancel;
use toolhold_protocol::error::RunError;
use toolhold_protocol::reply_offset::StreamPosition;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::agents::{Agent, Agents, RunClient};
use toolhold_runtime::disks::Disks;
use toolhold_runtime::startup::Startup;
use toolhold_storage::{BlobQuota, Label, Origin, Store, WriteError};
use toolhold_telemetry::{LeaveCause, ObservedRun, Observer, PlaceRefusal, RunLoad, Telemetry};
use uuid::Uuid;

/// Events that a watcher may lag behind before it reads them from the database instead.
const WATCHER_BACKLOG: usize = 128;

/// Events of a run that are forwarded before its cancellation and the end of the server are looked at again: they
/// take locks that all runs share, and pieces of replies come in bursts.
const EVENT_BATCH: usize = 16;

/// Poll interval for cancellations that other processes requested, and for rights that have ended.
pub(super) const CANCEL_POLL_INTERVAL: Duration = LOOK_INTERVAL;

/// Grace period for runs to release their journals after the time to drain; bounds shutdown when the database
/// hangs.
const RELEASE_GRACE: Duration = Duration::from_secs(10);

/// How often it is logged that runs are refused because of the queue.
const QUEUE_LOG_PERIOD: Duration = Duration::from_secs(10);

/// Limits of the server's runs.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most runs that work at the same time.
    pub places: usize,
    /// The most of them for one owner.
    pub places_of_one: usize,
    /// The most runs that wait for a place, and the most that wait for a person without a place. In both
    /// cases one owner may take at most half of what the other owners leave, rounded up.
    pub waiting: usize,
    /// Longest wait of a run for a place.
    pub patience: Duration,
    /// Most bytes of images and of results that runs are kept with.
    pub images: BlobQuota,
}

/// All runs of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    pub(super) inner: Arc<DispatcherInner>,
}

#[derive(Debug)]
pub(super) struct DispatcherInner {
    pub(super) store: Store,
    pub(super) rights: Rights,
    pub(super) agents: Arc<Agents>,
    admission: Arc<FairQueue<String>>,
    parked: Arc<ParkedRuns>,
    full_queue: Seldom,
    limits: Limits,
    active: Mutex<HashMap<Uuid, ActiveRun>>,
    /// Sessions with a turn that is about to begin here.
    turning: Mutex<HashSet<Uuid>>,
    pub(super) closing: CancellationToken,
    /// Cancelled when the drain time is over: runs that have not ended then stop.
    parking: CancellationToken,
    pub(super) tasks: TaskTracker,
    telemetry: Telemetry,
    pub(super) startup: Startup,
    pub(super) known: KnownHealth,
    /// A client asked to read the configuration again.
    reload: Notify,
}

/// A run that works in this process.
#[derive(Debug, Clone)]
struct ActiveRun {
    cancel: RunCancel,
    /// Another process drives it now.
    taken: CancellationToken,
    live: broadcast::Sender<LiveEvent>,
    readers: PieceReaders,
    reply: SharedReply,
}

/// A session with a turn that is about to begin here; dropping it releases the session.
#[derive(Debug)]
struct StartingTurn {
    inner: Arc<DispatcherInner>,
    session: Uuid,
}

impl Drop for StartingTurn {
    fn drop(&mut self) {
        self.inner.turning().remove(&self.session);
    }
}

impl Dispatcher {
    pub fn new(
        store: Store,
        agents: Arc<Agents>,
        limits: Limits,
        telemetry: Telemetry,
        startup: Startup,
        disks: Disks,
    ) -> Self {
        let admission = FairQueue::new(limits.places, limits.waiting);
        let parked = ParkedRuns::new(limits.waiting);
        let this = Self {
            inner: Arc::new(DispatcherInner {
                rights: Rights::new(store.clone()),
                store,
                agents,
                admission,
                parked,
                full_queue: Seldom::every(QUEUE_LOG_PERIOD),
                limits,
                active: Mutex::default(),
                turning: Mutex::default(),
                closing: CancellationToken::new(),
                parking: CancellationToken::new(),
                tasks: TaskTracker::new(),
                telemetry,
                startup,
                known: KnownHealth::new(disks),
                reload: Notify::new(),
            }),
        };
        // Weak: metrics must not keep what they measure.
        let measured = Arc::downgrade(&this.inner);
        this.telemetry().watch_load(move || {
            let load = measured.upgrade().map(|inner| inner.load());
            load.unwrap_or_default()
        });
        this.export_state();
        this
    }

    /// Has the configuration read again, as a person asks for it.
    pub fn ask_reload(&self) {
        self.inner.reload.notify_one();
    }

    /// Completes when that was asked for.
    pub async fn reload_asked(&self) {
        self.inner.reload.notified().await;
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The rights that the clients and runs of this server hold.
    pub fn rights(&self) -> &Rights {
        &self.inner.rights
    }

    pub fn agents(&self) -> &Agents {
        &self.inner.agents
    }

    /// The longest wait of a run for a place.
    pub fn queue_patience(&self) -> Duration {
        self.inner.limits.patience
    }

    /// The quota of the images, and bytes of results, that runs are kept with.
    pub fn image_quota(&self) -> BlobQuota {
        self.inner.limits.images
    }

    /// How many runs work and wait.
    pub fn load(&self) -> RunLoad {
        self.inner.load()
    }

    /// Whether the server drains and begins nothing more.
    pub fn is_closing(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Begins a run as soon as a place is free. The run is a turn of a session, a response (`asked`), or
    /// neither. Its first event is durable when this returns, and with it the images, if they fit into their quota.
    pub async fn start(
        &self,
        agent: &Agent,
        behalf: &RunClient,
        turn: Option<(Uuid, u32)>,
        asked: Option<String>,
        request: RunRequest,
        viewer: Viewer,
    ) -> Result<Watcher, RunRefusal> {
        self.inner.store.writable()?;
        let _turning = match turn {
            Some((session, number)) => {
                let turning = self.turning(session)?;
                self.is_next(session, number).await?;
                Some(turning)
            }
            None => None,
        };
        self.servers_end(agent, request.id, &viewer).await?;
        // The viewer began the run, with the same right as the owner or without a key.
        let permit = tokio::select! {
            biased;
            end = viewer.right.ended() => return Err(end.into()),
            permit = self.permit(&behalf.owner) => permit?,
        };
        // The wait for the permit may have been long.
        viewer.right.look().await?;
        let observer = self.telemetry().observe(ObservedRun {
            run: request.id,
            agent: agent.name.clone(),
            conversation: turn.map(|(session, _)| session),
            parent: behalf.trace.clone(),
        });
        let label = Label {
            owner: behalf.owner.clone(),
            agent: agent.name.clone(),
            origin: Origin::Serve,
            turn,
            asked,
            trace: observer.trace(),
            images: Some(self.inner.limits.images),
        };
        let journal = self.inner.store.journal(request.id, label);
        let blobs = Some(self.inner.limits.images);
        let (driver, notes) = agent.driver(&self.inner.store, behalf, blobs).await;
        for note in notes {
            tracing::warn!(agent = agent.name, "{note}");
        }
        let driver = permit.take(driver, request.id);
        let (run, observer) = observer.begun(driver.start(request, Box::new(journal)).await)?;
        let id = run.id;
        let log = RunLog::begins(id, &behalf.owner, &agent.name, false);
        let live = LaterEvents::Live(self.go_on(run, permit, observer, log, None));
        let mut watcher = Watcher::new(self.inner.clone(), id, None, live, viewer);
        if watcher.has_begun().await {
            return Ok(watcher);
        }
        if let Some((session, number)) = turn {
            // Another process may have taken the run first.
            self.is_next(session, number).await?;
        }
        Err(RunRefusal::NotRecorded)
    }

    /// Waits at the begin of the process until each MCP server of the agent has listed its tools or has failed: otherwise the
    /// run would be without them to its end. It takes no place meanwhile, so that runs of other agents begin.
    async fn servers_end(
        &self,
        agent: &Agent,
        run: Uuid,
        viewer: &Viewer,
    ) -> Result<(), RunRefusal> {
        let startup = &self.inner.startup;
        let silent = startup.awaited_servers(&agent.name);
        if silent.is_empty() {
            return Ok(());
        }
        let refusal = RunRefusal::SilentServers {
            names: silent.into_iter().collect(),
        };
        tracing::warn!(%run, agent = agent.name, "waits: {refusal}");
        tokio::select! {
            biased;
            () = self.inner.closing.cancelled() => Err(RunRefusal::Closing),
            end = viewer.right.ended() => Err(end.into()),
            () = startup.servers_end(&agent.name) => Ok(()),
        }
    }

    /// Reserves the session, so that no other turn of it begins in this process.
    fn turning(&self, session: Uuid) -> Result<StartingTurn, RunRefusal> {
        if !self.inner.turning().insert(session) {
            return Err(RunRefusal::TurnTaken);
        }
        Ok(StartingTurn {
            inner: self.inner.clone(),
            session,
        })
    }

    async fn is_next(&self, session: Uuid, number: u32) -> Result<(), RunRefusal> {
        let store = &self.inner.store;
        match store.next_turn(session).await? {
            Some(next) if next == number => {}
            Some(_) => return Err(RunRefusal::TurnTaken),
            None => return Err(RunRefusal::NoSession { session }),
        }
        // Checked after the reservation, so that a turn that began in between is seen.
        if store.has_open_turn(session).await? {
            return Err(RunRefusal::TurnTaken);
        }
        Ok(())
    }

    /// Sleeps for this time. Returns `false` if the server drains.
    pub async fn waits(&self, long: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(long) => true,
            () = self.inner.closing.cancelled() => false,
        }
    }

    /// Watches a run of any process from behind the place `after` on, until the run is over or parked, or the viewer's right
    /// has ended.
    pub fn watch(&self, run: Uuid, after: Option<StreamPosition>, viewer: Viewer) -> Watcher {
        let live = self.inner.live(run);
        let follow = live.map_or(LaterEvents::Others(None), LaterEvents::Live);
        Watcher::new(self.inner.clone(), run, after, follow, viewer)
    }

    /// Cancels the run if it works in this process. Returns whether it does.
    pub fn cancel(&self, run: Uuid) -> bool {
        let active = self.inner.lock().get(&run).cloned();
        if let Some(active) = &active {
            active.cancel.cancel();
        }
        active.is_some()
    }

    /// Cancels the run for a reason that its readers are shown, if it works in this process. Returns whether it does.
    pub fn cancel_because(&self, run: Uuid, reason: &str) -> bool {
        let active = self.inner.lock().get(&run).cloned();
        if let Some(active) = &active {
            active.cancel.cancel_because(reason);
        }
        active.is_some()
    }

    /// True if a client follows the events of the run, which works in this process.
    pub fn is_watched(&self, run: Uuid) -> bool {
        let active = self.inner.lock();
        active
            .get(&run)
            .is_some_and(|it| it.live.receiver_count() > 0)
    }

    /// Stops runs of this process that another process cancelled or took over, or whose key is valid no more, for as long
    /// as it is polled. A cancelled run that turns out not to work here is ended.
    pub async fn poll_cancellations(&self) {
        let store = &self.inner.store;
        loop {
            tokio::select! {
                () = tokio::time::sleep(CANCEL_POLL_INTERVAL) => {}
                // A server that was frozen: it stops runs that others have before they ask a model again.
                () = store.lease_lost() => {}
            }
            if store.readable().is_err() {
                continue;
            }
            // First, so that a run whose key was revoked with `--cancel-runs` ends with that reason.
            self.inner.rights.look().await;
            match store.requested_cancellations().await {
                Ok(runs) => {
                    for run in runs {
                        if !self.cancel(run) {
                            self.end_if_left(run).await;
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cancellations by other processes cannot be looked up");
                }
            }
            let active: Vec<Uuid> = self.inner.lock().keys().copied().collect();
            match store.taken_over(&active).await {
                Ok(runs) => {
                    for run in runs {
                        self.let_go(run);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "runs that other servers took over cannot be looked up");
                }
            }
        }
    }

    /// Stops a run without an end event.
    fn let_go(&self, run: Uuid) {
        if let Some(active) = self.inner.lock().get(&run) {
            active.taken.cancel();
        }
    }

    /// Waits for runs to end for this time, then stops them; their records say how to resume.
    pub async fn close(&self, drain: Duration) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(drain, self.inner.tasks.wait())
            .await
            .is_err()
        {
            self.inner.parking.cancel();
            let parked = tokio::time::timeout(RELEASE_GRACE, self.inner.tasks.wait()).await;
            if parked.is_err() {
                let tasks = self.inner.tasks.len();
                tracing::warn!(tasks, "not all runs stopped in time; they can be resumed");
            }
        }
    }

    /// Waits for a place for a run of `owner`, for as long as the owner has a right to run.
    pub(super) async fn permit(&self, owner: &str) -> Result<RunPermit, RunRefusal> {
        let inner = &self.inner;
        let right = inner.rights.of_owner(owner);
        let lane = Lane::of(owner.to_owned());
        let deadline = Instant::now() + inner.limits.patience;
        let entered =
            inner
                .admission
                .enter(lane.clone(), inner.limits.places_of_one, deadline.into());
        let asked = Instant::now();
        let admitted = tokio::select! {
            biased;
            () = inner.closing.cancelled() => Err(RunRefusal::Closing),
            end = right.ended() => Err(end.into()),
            place = entered => place.map_err(|refusal| {
                let (counted, refused) = match refusal {
                    QueueRefusal::Full => (PlaceRefusal::Full, RunRefusal::Full),
                    QueueRefusal::Deadline | QueueRefusal::GroupLimit => {
                        (PlaceRefusal::Late, RunRefusal::Late)
                    }
                };
                inner.telemetry.refused_place(counted);
                refused
            }),
        };
        inner.telemetry.waited_for_place(asked.elapsed());
        if let Err(refusal @ (RunRefusal::Full | RunRefusal::Late)) = &admitted
            && let Some(refused) = inner.full_queue.occurs()
        {
            let (key, waiting) = (Some(owner), inner.admission.waiting());
            let key = key.filter(|key| !key.is_empty());
            tracing::info!(
                key,
                refused,
                waiting,
                places = inner.limits.places,
                "runs are refused: {refusal}"
            );
        }
        let admission = AdmissionHandle {
            admission: inner.admission.clone(),
            lane,
            most: inner.limits.places_of_one,
            parked: inner.parked.clone(),
            right,
        };
        Ok(RunPermit::new(admitted?, admission))
    }

    /// Forwards the events of a run to its watchers until the run is over. Returns them from the first on. `kept` is the
    /// memory of the images of a resumed run, which no request has.
    pub(super) fn go_on(
        &self,
        mut run: Run,
        permit: RunPermit,
        mut observer: Observer,
        log: RunLog,
        kept: Option<MemoryReservation>,
    ) -> LiveEvents {
        let (live, _) = broadcast::channel(WATCHER_BACKLOG);
        let readers = PieceReaders::default();
        let followed = LiveEvents::of(&live, &readers);
        let taken = CancellationToken::new();
        let active = ActiveRun {
            cancel: run.cancel.clone(),
            taken: taken.clone(),
            live: live.clone(),
            readers: readers.clone(),
            reply: SharedReply::default(),
        };
        let (reply, room) = (active.reply.clone(), LiveRoom::default());
        let (inner, id) = (self.inner.clone(), run.id);
        inner.lock().insert(id, active);
        self.inner.tasks.spawn(async move {
            let right = permit.right().clone();
            // Covers a run that ended at once.
            let _seat = permit;
            let _kept = kept;
            let mut has_begun = false;
            let mut events = Vec::new();
            loop {
                tokio::select! {
                    received = run.events.recv_many(&mut events, EVENT_BATCH) => {
                        if received == 0 {
                            break;
                        }
                        has_begun = true;
                        for event in events.drain(..) {
                            observer.take(&event);
                            log.take(&event);
                            reply.take(&event);
                            let is_meant = !event.kind.is_shown_only() || readers.are_any();
                            if is_meant && live.receiver_count() > 0 {
                                // Fails if the last watcher went away meanwhile.
                                drop(live.send(LiveEvent::of(event, &room)));
                            }
                        }
                    }
                    end = right.ended(), if !run.cancel.is_cancelled() => {
                        tracing::warn!(run = %id, "cancelled: {end}");
                        run.cancel.cancel_because(end.to_string());
                    }
                    () = inner.parking.cancelled() => {
                        inner.forget(id, &live);
                        log.is_parked();
                        inner.telemetry.left(LeaveCause::Shutdown);
                        // Dropping a run stops it and releases its journal.
                        return;
                    }
                    () = taken.cancelled() => {
                        inner.forget(id, &live);
                        inner.telemetry.left(LeaveCause::Takeover);
                        tracing::warn!(run = %id, "goes on in another process, which took this one for dead");
                        return;
                    }
                }
            }
            // A watcher that is behind keeps no events of a run that is over: it reads them from the database, where a run
            // that did not begin has none.
            if has_begun {
                for _ in 0..WATCHER_BACKLOG {
                    drop(live.send(LiveEvent::Recorded(0)));
                }
            }
            match run.finished().await {
                Ok(()) => {}
                // Its client is told.
                Err(error) if are_images_refused(&error) => {
                    tracing::info!(run = %id, %error, "was not begun");
                }
                Err(error) => {
                    inner.telemetry.left(LeaveCause::Failure);
                    tracing::error!(run = %id, %error, "stopped, and can be resumed");
                }
            }
            inner.forget(id, &live);
        });
        followed
    }
}

/// True if a run was not recorded because its images did not fit into their quota.
fn are_images_refused(error: &RunError) -> bool {
    let RunError::Journal { source } = error else {
        return false;
    };
    matches!(
        WriteError::cause_of(source),
        Some(WriteError::ImagesFull(_))
    )
}

impl DispatcherInner {
    /// Subscribes to the later events of a run, if it works in this process.
    pub(super) fn live(&self, run: Uuid) -> Option<LiveEvents> {
        let active = self.lock();
        active
            .get(&run)
            .map(|it| LiveEvents::of(&it.live, &it.readers))
    }

    /// The reply that the model of a run is writing, if the run works in this process.
    pub(super) fn shared_reply(&self, run: Uuid) -> Option<SharedReply> {
        self.lock().get(&run).map(|it| it.reply.clone())
    }

    fn load(&self) -> RunLoad {
        let parked = self.parked.count();
        let working = self.lock().len().saturating_sub(parked);
        RunLoad {
            working,
            places: self.limits.places,
            waiting: self.admission.waiting(),
            queue_places: self.limits.waiting,
            parked,
        }
    }

    /// Removes a run that has ended, unless it was already resumed here.
    fn forget(&self, run: Uuid, live: &broadcast::Sender<LiveEvent>) {
        let mut active = self.lock();
        if active
            .get(&run)
            .is_some_and(|it| it.live.same_channel(live))
        {
            active.remove(&run);
        }
    }

    fn turning(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.turning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, ActiveRun>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
