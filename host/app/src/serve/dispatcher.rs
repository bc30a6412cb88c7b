//! Runs of the server: admitted in turn, watched by whoever asks, cancelled, and gone on with after a crash.

use crate::cli::plan::NoModel;
use crate::serve::agents::{Agent, Agents, OnBehalf};
use crate::serve::seat::{Desk, Seat};
use crate::serve::watcher::{Follow, Watcher};
use crate::storage::{Label, Origin, RecordError, RunRow, Store, StoreError};
use crate::telemetry::{self, Observer, Subject, Telemetry};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolhold_agent::run::replay::{ReplayError, replay};
use toolhold_agent::{Driver, Event, NoModules, Run, RunError, RunRequest};
use toolhold_sandbox::admission::{Admission, Lane, Refusal};
use uuid::Uuid;

/// Events that a watcher may be behind before it reads them from the database instead.
const BEHIND: usize = 256;

/// How often a wish of another process is looked for.
const HEED: Duration = Duration::from_secs(1);

/// Limits of the server's runs.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Of all runs that work at the same time.
    pub places: usize,
    /// Of those of one owner.
    pub places_of_one: usize,
    /// Runs that may wait for a place, and as many that may wait for a person without one.
    pub waiting: usize,
    /// How long each waits.
    pub patience: Duration,
}

impl Limits {
    fn most_away(&self) -> usize {
        self.waiting.min(Semaphore::MAX_PERMITS)
    }
}

/// Why a run was not begun, or is not gone on with.
#[derive(Debug, Error)]
pub enum Refused {
    #[error("too many runs wait already; try again in a while")]
    Full,
    #[error("no place for the run became free in time; try again in a while")]
    Late,
    #[error("the server is about to stop; try again when it is back")]
    Closing,
    #[error(transparent)]
    Request(#[from] RunError),
    #[error("the run could not be recorded, and was not begun; the server's log says why")]
    NotRecorded,
    #[error("another turn of this session began meanwhile; a session takes one at a time")]
    TurnTaken,
    #[error("session {session}")]
    NoSession { session: Uuid },
    #[error("there is no agent {name:?} any more, which began this run")]
    NoAgent { name: String },
    #[error("the endpoint of the agent {name:?} has not answered yet; try again in a while")]
    AgentWaits { name: String },
    #[error("its record does not fit together: {0}")]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Refused {
    /// There are more runs than places, or it is not the run that something is wrong with.
    fn may_pass(&self) -> bool {
        match self {
            Self::Full | Self::Late | Self::AgentWaits { .. } => true,
            Self::Store(error) | Self::Record(RecordError::Store(error)) => {
                error.trouble().is_some()
            }
            _ => false,
        }
    }
}

/// All runs of this process. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) store: Store,
    agents: Arc<Agents>,
    admission: Arc<Admission>,
    /// A permit for each run that may wait for a person without a place.
    away: Arc<Semaphore>,
    limits: Limits,
    active: Mutex<HashMap<Uuid, Active>>,
    /// Sessions of which a turn is about to begin here.
    turning: Mutex<HashSet<Uuid>>,
    pub(super) closing: CancellationToken,
    /// Told to runs that have not ended when the time to drain is over.
    parking: CancellationToken,
    tasks: TaskTracker,
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
        let admission = Admission::new(limits.places, limits.waiting);
        let away = Arc::new(Semaphore::new(limits.most_away()));
        let this = Self {
            inner: Arc::new(Inner {
                store,
                agents,
                admission,
                away,
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

    /// Begins a run as soon as there is a place for it. When this returns, its first event is on the disk.
    pub async fn start(
        &self,
        agent: &Agent,
        behalf: &OnBehalf,
        turn: Option<(Uuid, u32)>,
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
        let seat = self.seat(&behalf.owner).await?;
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
            trace: observer.trace(),
        };
        let journal = self.inner.store.journal(request.id, label);
        let (driver, notes) = agent.driver(&self.inner.store, behalf).await;
        for note in notes {
            tracing::warn!(agent = agent.name, "{note}");
        }
        let driver = seat.take(driver);
        let run = match driver.start(request, Box::new(journal)).await {
            Ok(run) => run,
            Err(refused) => {
                observer.not_begun();
                return Err(refused.into());
            }
        };
        let mut watcher = self.go_on(run, seat, observer);
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
        match self.inner.store.next_turn(session).await? {
            Some(next) if next == number => Ok(()),
            Some(_) => Err(Refused::TurnTaken),
            None => Err(Refused::NoSession { session }),
        }
    }

    /// Goes on with a run whose process is gone.
    pub async fn resume(&self, row: &RunRow) -> Result<Watcher, Refused> {
        self.inner.store.writable()?;
        let agent = self.agent(&row.agent)?;
        let seat = self.seat(&row.owner).await?;
        let (mut journal, events) = self.inner.store.reopen(row.id).await?;
        let replayed = replay(&events)?;
        let behalf = OnBehalf {
            owner: row.owner.clone(),
            session: row.turn.map_or(row.id, |(session, _)| session).to_string(),
            tools: replayed.machine.request().allowed.clone(),
            // A key's do not change, and hold for its runs after it was revoked, too.
            grants: self.inner.store.grants_of(&row.owner).await?,
            ..OnBehalf::default()
        };
        let (driver, _) = agent.driver(&self.inner.store, &behalf).await;
        let request = replayed.machine.request();
        let policy = driver.shields.policy(&request.settings, request.depth);
        journal.under(&policy.hash);
        let observer = self.telemetry().observe(Subject {
            run: row.id,
            agent: agent.name.clone(),
            conversation: row.turn.map(|(session, _)| session),
            parent: telemetry::before(&self.inner.store, row.id).await,
        });
        let run = seat.take(driver).resume(replayed, Box::new(journal));
        Ok(self.go_on(run, seat, observer))
    }

    fn agent(&self, name: &str) -> Result<Arc<Agent>, Refused> {
        let offered = self.inner.agents.all();
        let name = name.to_owned();
        match offered.ready.get(&name) {
            Some(agent) => Ok(agent.clone()),
            None if offered.waiting.contains_key(&name) => Err(Refused::AgentWaits { name }),
            None => Err(Refused::NoAgent { name }),
        }
    }

    /// Goes on with everything that a process left behind which is gone.
    pub async fn resume_all(&self) {
        self.resume_each(self.inner.store.left_behind().await);
    }

    /// Goes on, whenever the database can be written again, with what stopped because it could not; for as
    /// long as it is polled.
    pub async fn outlast_the_database(&self) {
        let store = &self.inner.store;
        loop {
            store.health().breaks().await;
            store.health().recovers().await;
            self.resume_each(store.left_behind_here().await);
        }
    }

    fn resume_each(&self, left: Result<Vec<RunRow>, StoreError>) {
        let left = match left {
            Ok(left) => left,
            Err(error) => {
                tracing::error!(%error, "runs that were left behind cannot be found");
                return;
            }
        };
        for row in left {
            self.go_on_with(row);
        }
    }

    /// Goes on with a run that nobody holds, as soon as there is a place for it.
    pub(super) fn go_on_with(&self, row: RunRow) {
        let this = self.clone();
        self.inner.tasks.spawn(async move {
            loop {
                match this.resume(&row).await {
                    Ok(_) => tracing::info!(run = %row.id, "goes on"),
                    Err(refused) if refused.may_pass() => {
                        tokio::select! {
                            () = tokio::time::sleep(HEED) => continue,
                            () = this.inner.closing.cancelled() => {}
                        }
                    }
                    // Somebody was faster; or it stays where it is, for others.
                    Err(
                        Refused::Record(RecordError::Held | RecordError::Over { .. })
                        | Refused::Closing,
                    ) => {}
                    Err(error) => tracing::error!(run = %row.id, %error, "cannot go on"),
                }
                return;
            }
        });
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

    /// Ends a run that no process goes on with.
    pub async fn end(&self, run: Uuid) -> Result<(), Refused> {
        end(&self.inner.store, run).await
    }

    /// Stops runs of this process that another one was asked to stop, or goes on with, for as long as it is
    /// polled.
    pub async fn heed_others(&self) {
        let store = &self.inner.store;
        loop {
            tokio::time::sleep(HEED).await;
            if store.readable().is_err() {
                continue;
            }
            match store.to_cancel().await {
                Ok(runs) => {
                    for run in runs {
                        self.cancel(run);
                    }
                }
                Err(error) => tracing::warn!(%error, "nobody knows what is to be cancelled"),
            }
            let active: Vec<Uuid> = self.inner.lock().keys().copied().collect();
            match store.taken_over(&active).await {
                Ok(runs) => {
                    for run in runs {
                        self.let_go(run);
                    }
                }
                Err(error) => tracing::warn!(%error, "nobody knows what others have taken over"),
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
            self.inner.tasks.wait().await;
        }
    }

    async fn seat(&self, owner: &str) -> Result<Seat, Refused> {
        let inner = &self.inner;
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let lane = Lane {
            module: hasher.finish(),
            caller: 0,
        };
        let deadline = Instant::now() + inner.limits.patience;
        let entered = inner
            .admission
            .enter(lane, inner.limits.places_of_one, deadline);
        let asked = Instant::now();
        let admitted = tokio::select! {
            biased;
            () = inner.closing.cancelled() => Err(Refused::Closing),
            place = entered => place.map_err(|refusal| match refusal {
                Refusal::Full => Refused::Full,
                Refusal::Deadline => Refused::Late,
            }),
        };
        inner.telemetry.waited_for_place(asked.elapsed());
        let desk = Desk {
            admission: inner.admission.clone(),
            lane,
            most: inner.limits.places_of_one,
            away: inner.away.clone(),
        };
        Ok(Seat::new(admitted?, desk))
    }

    /// Passes on what happens in a run until it is over.
    fn go_on(&self, mut run: Run, seat: Seat, mut observer: Observer) -> Watcher {
        let (live, receiver) = broadcast::channel(BEHIND);
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
            let _seat = seat;
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

/// Ends a run that no process goes on with, as if it had been cancelled.
pub async fn end(store: &Store, run: Uuid) -> Result<(), Refused> {
    let (journal, events) = store.reopen(run).await?;
    let replayed = replay(&events)?;
    let driver = Driver::new(Arc::new(NoModel), Arc::new(NoModules));
    let mut run = driver.resume(replayed, Box::new(journal));
    run.cancel.cancel();
    while run.events.recv().await.is_some() {}
    Ok(run.finished().await?)
}

impl Inner {
    /// What happens in a run from now on, if it goes on in this process.
    pub(super) fn live(&self, run: Uuid) -> Option<broadcast::Receiver<Arc<Event>>> {
        self.lock().get(&run).map(|it| it.live.subscribe())
    }

    fn load(&self) -> (usize, usize) {
        let away = self
            .limits
            .most_away()
            .saturating_sub(self.away.available_permits());
        let working = self.lock().len().saturating_sub(away);
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
