//! Runs of the server: admitted in turn, watched by whoever asks, and cancelled.

use crate::runs::parked_runs::ParkedRuns;
use crate::runs::refused::Refused;
use crate::runs::run_permit::{AdmissionHandle, RunPermit};
use crate::runs::watcher::{Follow, Watcher};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolhold_admission::{FairQueue, Lane, QueueRefusal};
use toolhold_agent::Run;
use toolhold_protocol::event::Event;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::agents::{Agent, Agents, OnBehalf};
use toolhold_storage::{Label, Origin, Store};
use toolhold_telemetry::{Observer, Subject, Telemetry};
use uuid::Uuid;

/// Events that a watcher may lag behind before it reads them from the database instead.
const WATCHER_BACKLOG: usize = 256;

/// How often the database is asked for cancellations by other processes.
pub(super) const CANCEL_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Grace period for runs to release their journals after the time to drain; bounds shutdown when the database
/// hangs.
const RELEASE_GRACE: Duration = Duration::from_secs(10);

/// Limits of the server's runs.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Of all runs that work at the same time.
    pub places: usize,
    /// Of those of one owner.
    pub places_of_one: usize,
    /// Runs that may wait for a place, and as many that may wait for a person without one. In either case those
    /// of one owner may be as many as they leave free for others.
    pub waiting: usize,
    /// How long each waits.
    pub patience: Duration,
}

/// All runs of this process. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) agents: Arc<Agents>,
    admission: Arc<FairQueue<String>>,
    parked: Arc<ParkedRuns>,
    limits: Limits,
    active: Mutex<HashMap<Uuid, Active>>,
    /// Sessions of which a turn is about to begin here.
    turning: Mutex<HashSet<Uuid>>,
    pub(super) closing: CancellationToken,
    /// Told to runs that have not ended when the time to drain is over.
    parking: CancellationToken,
    pub(super) tasks: TaskTracker,
    telemetry: Telemetry,
}

/// A run that goes on in this process.
#[derive(Debug, Clone)]
struct Active {
    cancel: CancellationToken,
    /// Another process goes on with it.
    taken: CancellationToken,
    live: broadcast::Sender<Arc<Event>>,
}

/// A session of which a turn is about to begin here; until it is dropped.
#[derive(Debug)]
struct Turning {
    inner: Arc<Inner>,
    session: Uuid,
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.inner.turning().remove(&self.session);
    }
}

impl Dispatcher {
    pub fn new(store: Store, agents: Arc<Agents>, limits: Limits, telemetry: Telemetry) -> Self {
        let admission = FairQueue::new(limits.places, limits.waiting);
        let parked = ParkedRuns::new(limits.waiting);
        let this = Self {
            inner: Arc::new(Inner {
                store,
                agents,
                admission,
                parked,
                limits,
                active: Mutex::default(),
                turning: Mutex::default(),
                closing: CancellationToken::new(),
                parking: CancellationToken::new(),
                tasks: TaskTracker::new(),
                telemetry,
            }),
        };
        // Weak: metrics must not keep what they measure.
        let measured = Arc::downgrade(&this.inner);
        this.telemetry().watch_load(move || {
            let load = measured.upgrade().map(|inner| inner.load());
            load.unwrap_or_default()
        });
        this
    }

    pub fn telemetry(&self) -> &Telemetry {
        &self.inner.telemetry
    }

    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub fn agents(&self) -> &Agents {
        &self.inner.agents
    }

    /// Runs that work, and runs that wait for a place.
    pub fn load(&self) -> (usize, usize) {
        self.inner.load()
    }

    /// Whether the server is about to stop, and begins nothing more.
    pub fn is_closing(&self) -> bool {
        self.inner.closing.is_cancelled()
    }

    /// Begins a run as soon as there is a place for it: a turn of a session, or one that is `asked` for as a
    /// response, or neither. When this returns, its first event is on the disk.
    pub async fn start(
        &self,
        agent: &Agent,
        behalf: &OnBehalf,
        turn: Option<(Uuid, u32)>,
        asked: Option<String>,
        request: RunRequest,
    ) -> Result<Watcher, Refused> {
        self.inner.store.writable()?;
        let _turning = match turn {
            Some((session, number)) => {
                let turning = self.turning(session)?;
                self.is_next(session, number).await?;
                Some(turning)
            }
            None => None,
        };
        let permit = self.permit(&behalf.owner).await?;
        let observer = self.telemetry().observe(Subject {
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
        };
        let journal = self.inner.store.journal(request.id, label);
        let (driver, notes) = agent.driver(&self.inner.store, behalf).await;
        for note in notes {
            tracing::warn!(agent = agent.name, "{note}");
        }
        let driver = permit.take(driver);
        let run = match driver.start(request, Box::new(journal)).await {
            Ok(run) => run,
            Err(refused) => {
                observer.not_begun();
                return Err(refused.into());
            }
        };
        let mut watcher = self.go_on(run, permit, observer);
        if watcher.has_begun().await {
            return Ok(watcher);
        }
        if let Some((session, number)) = turn {
            // Another process may have been faster.
            self.is_next(session, number).await?;
        }
        Err(Refused::NotRecorded)
    }

    /// Has no other turn of the session begin in this process.
    fn turning(&self, session: Uuid) -> Result<Turning, Refused> {
        if !self.inner.turning().insert(session) {
            return Err(Refused::TurnTaken);
        }
        Ok(Turning {
            inner: self.inner.clone(),
            session,
        })
    }

    async fn is_next(&self, session: Uuid, number: u32) -> Result<(), Refused> {
        let store = &self.inner.store;
        match store.next_turn(session).await? {
            Some(next) if next == number => {}
            Some(_) => return Err(Refused::TurnTaken),
            None => return Err(Refused::NoSession { session }),
        }
        // Only after that: a turn that began between the two is not missed.
        if store.has_open_turn(session).await? {
            return Err(Refused::TurnTaken);
        }
        Ok(())
    }

    /// Whether there is more to do after so long: not if the server is to stop.
    pub(super) async fn waits(&self, long: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(long) => true,
            () = self.inner.closing.cancelled() => false,
        }
    }

    /// What happens in a run of this or any process, from event number `from` on, until it is over or
    /// parked.
    pub fn watch(&self, run: Uuid, from: u64) -> Watcher {
        let live = self.inner.live(run);
        let follow = live.map_or(Follow::Others(None), Follow::Live);
        Watcher::new(self.inner.clone(), run, from, follow)
    }

    /// What is recorded of a run so far.
    pub fn recorded(&self, run: Uuid) -> Watcher {
        Watcher::new(self.inner.clone(), run, 0, Follow::No)
    }

    /// Whether the run goes on in this process, which is told to stop it.
    pub fn cancel(&self, run: Uuid) -> bool {
        let active = self.inner.lock().get(&run).cloned();
        if let Some(active) = &active {
            active.cancel.cancel();
        }
        active.is_some()
    }

    /// Stops runs of this process that another one was asked to stop, or goes on with, for as long as it is
    /// polled. One that is to be stopped and does not go on here after all is ended.
    pub async fn poll_cancellations(&self) {
        let store = &self.inner.store;
        loop {
            tokio::time::sleep(CANCEL_POLL_INTERVAL).await;
            if store.readable().is_err() {
                continue;
            }
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

    /// Stops a run where it is.
    fn let_go(&self, run: Uuid) {
        if let Some(active) = self.inner.lock().get(&run) {
            active.taken.cancel();
        }
    }

    /// Lets runs end for so long, then leaves them where they are: their records say how to go on.
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

    pub(super) async fn permit(&self, owner: &str) -> Result<RunPermit, Refused> {
        let inner = &self.inner;
        let lane = Lane::of(owner.to_owned());
        let deadline = Instant::now() + inner.limits.patience;
        let entered =
            inner
                .admission
                .enter(lane.clone(), inner.limits.places_of_one, deadline.into());
        let asked = Instant::now();
        let admitted = tokio::select! {
            biased;
            () = inner.closing.cancelled() => Err(Refused::Closing),
            place = entered => place.map_err(|refusal| match refusal {
                QueueRefusal::Full => Refused::Full,
                QueueRefusal::Deadline => Refused::Late,
            }),
        };
        inner.telemetry.waited_for_place(asked.elapsed());
        let admission = AdmissionHandle {
            admission: inner.admission.clone(),
            lane,
            most: inner.limits.places_of_one,
            parked: inner.parked.clone(),
        };
        Ok(RunPermit::new(admitted?, admission))
    }

    /// Passes on what happens in a run until it is over.
    pub(super) fn go_on(&self, mut run: Run, permit: RunPermit, mut observer: Observer) -> Watcher {
        let (live, receiver) = broadcast::channel(WATCHER_BACKLOG);
        let taken = CancellationToken::new();
        let active = Active {
            cancel: run.cancel.clone(),
            taken: taken.clone(),
            live: live.clone(),
        };
        let (inner, id) = (self.inner.clone(), run.id);
        inner.lock().insert(id, active);
        let watcher = Watcher::new(inner.clone(), id, 0, Follow::Live(receiver));
        self.inner.tasks.spawn(async move {
            // A run that ended at once has it until here.
            let _seat = permit;
            loop {
                tokio::select! {
                    event = run.events.recv() => match event {
                        Some(event) => {
                            observer.take(&event);
                            // Nobody may watch just now.
                            drop(live.send(Arc::new(event)));
                        }
                        None => break,
                    },
                    () = inner.parking.cancelled() => {
                        inner.forget(id, &live);
                        // Dropping a run stops it where it is, and lets go of its record.
                        return;
                    }
                    () = taken.cancelled() => {
                        inner.forget(id, &live);
                        tracing::warn!(run = %id, "goes on in another process, which took this one for dead");
                        return;
                    }
                }
            }
            if let Err(error) = run.finished().await {
                tracing::error!(run = %id, %error, "stopped, and can be resumed");
            }
            inner.forget(id, &live);
        });
        watcher
    }
}

impl Inner {
    /// What happens in a run from now on, if it goes on in this process.
    pub(super) fn live(&self, run: Uuid) -> Option<broadcast::Receiver<Arc<Event>>> {
        self.lock().get(&run).map(|it| it.live.subscribe())
    }

    fn load(&self) -> (usize, usize) {
        let working = self.lock().len().saturating_sub(self.parked.count());
        (working, self.admission.waiting())
    }

    /// A run is over here, unless it is gone on with already.
    fn forget(&self, run: Uuid, live: &broadcast::Sender<Arc<Event>>) {
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
