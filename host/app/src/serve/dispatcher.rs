//! Runs of the server: admitted in turn, watched by whoever asks, cancelled, and gone on with after a crash.

use crate::cli::plan::NoModel;
use crate::serve::agents::{Agent, Agents, OnBehalf};
use crate::storage::{Label, Origin, RecordError, RunRow, Store, StoreError};
use crate::telemetry::{self, Observer, Subject, Telemetry};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolhold_agent::run::replay::{ReplayError, replay};
use toolhold_agent::{Driver, Event, EventKind, NoModules, Run, RunError, RunRequest};
use toolhold_sandbox::admission::{Admission, Lane, Place, Refusal};
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
    /// Runs that may wait for a place.
    pub waiting: usize,
    /// How long each waits.
    pub patience: Duration,
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
    #[error("there is no agent {name:?} any more, which began this run")]
    NoAgent { name: String },
    #[error("its record does not fit together: {0}")]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// All runs of this process. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    agents: Arc<Agents>,
    admission: Arc<Admission>,
    limits: Limits,
    active: Mutex<HashMap<Uuid, Active>>,
    closing: CancellationToken,
    /// Told to runs that have not ended when the time to drain is over.
    parking: CancellationToken,
    tasks: TaskTracker,
    telemetry: Telemetry,
}

/// A run that goes on in this process.
#[derive(Debug, Clone)]
struct Active {
    cancel: CancellationToken,
    live: broadcast::Sender<Arc<Event>>,
}

impl Dispatcher {
    pub fn new(store: Store, agents: Arc<Agents>, limits: Limits, telemetry: Telemetry) -> Self {
        let admission = Admission::new(limits.places, limits.waiting);
        let this = Self {
            inner: Arc::new(Inner {
                store,
                agents,
                admission,
                limits,
                active: Mutex::default(),
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

    /// Begins a run as soon as there is a place for it. When this returns, its first event is on the disk.
    pub async fn start(
        &self,
        agent: &Agent,
        behalf: &OnBehalf,
        turn: Option<(Uuid, u32)>,
        request: RunRequest,
    ) -> Result<Watcher, Refused> {
        let place = self.place(&behalf.owner).await?;
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
        let run = match driver.start(request, Box::new(journal)).await {
            Ok(run) => run,
            Err(refused) => {
                observer.not_begun();
                return Err(refused.into());
            }
        };
        let mut watcher = self.go_on(run, place, observer);
        if watcher.has_begun().await? {
            Ok(watcher)
        } else {
            Err(Refused::NotRecorded)
        }
    }

    /// Goes on with a run whose process is gone.
    pub async fn resume(&self, row: &RunRow) -> Result<Watcher, Refused> {
        let agent = self.inner.agents.named(&row.agent);
        let agent = agent.ok_or_else(|| Refused::NoAgent {
            name: row.agent.clone(),
        })?;
        let place = self.place(&row.owner).await?;
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
        let run = driver.resume(replayed, Box::new(journal));
        Ok(self.go_on(run, place, observer))
    }

    /// Goes on with everything that a process left behind which is gone.
    pub async fn resume_all(&self) {
        let left = match self.inner.store.left_behind().await {
            Ok(left) => left,
            Err(error) => {
                tracing::error!(%error, "runs that were left behind cannot be found");
                return;
            }
        };
        for row in left {
            let this = self.clone();
            self.inner.tasks.spawn(async move {
                loop {
                    match this.resume(&row).await {
                        Ok(_) => tracing::info!(run = %row.id, "goes on"),
                        // There are more of them than places.
                        Err(Refused::Full | Refused::Late) => {
                            tokio::time::sleep(HEED).await;
                            continue;
                        }
                        // Another process of the same database was faster.
                        Err(Refused::Record(RecordError::Held)) => {}
                        Err(error) => tracing::error!(run = %row.id, %error, "cannot go on"),
                    }
                    return;
                }
            });
        }
    }

    /// What happens in a run of this or any process, from event number `from` on, until it is over or
    /// parked.
    pub fn watch(&self, run: Uuid, from: u64) -> Watcher {
        let live = self.inner.lock().get(&run).map(|it| it.live.subscribe());
        let follow = live.map_or(Follow::Others(0), Follow::Live);
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

    /// Stops runs of this process that another one was asked to stop, for as long as it is polled.
    pub async fn heed_others(&self) {
        loop {
            tokio::time::sleep(HEED).await;
            match self.inner.store.to_cancel().await {
                Ok(runs) => {
                    for run in runs {
                        self.cancel(run);
                    }
                }
                Err(error) => tracing::warn!(%error, "nobody knows what is to be cancelled"),
            }
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

    async fn place(&self, owner: &str) -> Result<Place, Refused> {
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
        admitted
    }

    /// Passes on what happens in a run until it is over.
    fn go_on(&self, mut run: Run, place: Place, mut observer: Observer) -> Watcher {
        let (live, receiver) = broadcast::channel(BEHIND);
        let active = Active {
            cancel: run.cancel.clone(),
            live: live.clone(),
        };
        let (inner, id) = (self.inner.clone(), run.id);
        inner.lock().insert(id, active);
        let watcher = Watcher::new(inner.clone(), id, 0, Follow::Live(receiver));
        self.inner.tasks.spawn(async move {
            let _place = place;
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
                        inner.lock().remove(&id);
                        // Dropping a run stops it where it is, and lets go of its record.
                        return;
                    }
                }
            }
            if let Err(error) = run.finished().await {
                tracing::error!(run = %id, %error, "stopped, and can be resumed");
            }
            inner.lock().remove(&id);
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
    fn load(&self) -> (usize, usize) {
        (self.lock().len(), self.admission.waiting())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a run's events in their order, each once: what was written before from the database, and then as
/// they happen. One that cannot keep up reads from the database again, and so does one whose run goes on in
/// another process.
#[derive(Debug)]
pub struct Watcher {
    inner: Arc<Inner>,
    pub run: Uuid,
    next: u64,
    /// Read from the database and not handed out yet, the last first.
    read: Vec<Arc<Event>>,
    /// Whether the database may have more.
    reads: bool,
    follow: Follow,
    is_over: bool,
}

/// What comes after what is written.
#[derive(Debug)]
enum Follow {
    /// Nothing: what is recorded is all that is wanted.
    No,
    Live(broadcast::Receiver<Arc<Event>>),
    /// Whatever another process writes; or this one, once it goes on with the run. So often nobody did.
    Others(u32),
}

/// How often another process' events are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Looks after which a run that no process goes on with is taken for parked: as long as a server may take
/// that has just started.
const ABANDONED: u32 = 20;

impl Watcher {
    fn new(inner: Arc<Inner>, run: Uuid, from: u64, follow: Follow) -> Self {
        Self {
            inner,
            run,
            next: from,
            read: Vec::new(),
            reads: true,
            follow,
            is_over: false,
        }
    }

    /// Waits for the first event, and gives it back: whether there is one.
    async fn has_begun(&mut self) -> Result<bool, RecordError> {
        let Some(first) = self.next().await? else {
            return Ok(false);
        };
        self.next = first.seq;
        self.is_over = false;
        self.read.push(first);
        Ok(true)
    }

    /// The next event. None after the last: the run is over, or no process goes on with it.
    pub async fn next(&mut self) -> Result<Option<Arc<Event>>, RecordError> {
        loop {
            if self.is_over {
                return Ok(None);
            }
            if let Some(event) = self.read.pop() {
                return Ok(Some(self.hand_out(event)));
            }
            if self.reads {
                let page = self.inner.store.events(self.run, self.next).await?;
                self.reads = !page.is_empty();
                self.read = page.into_iter().rev().map(Arc::new).collect();
                continue;
            }
            match &mut self.follow {
                Follow::No => return Ok(None),
                Follow::Live(live) => match live.recv().await {
                    Ok(event) if event.seq < self.next => {}
                    Ok(event) if event.seq == self.next => return Ok(Some(self.hand_out(event))),
                    // Some went by while the database was read.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => self.reads = true,
                    Err(broadcast::error::RecvError::Closed) => {
                        // Its last events may have come while we looked elsewhere.
                        self.follow = Follow::Others(0);
                        self.reads = true;
                    }
                },
                Follow::Others(looks) => {
                    *looks = if self.inner.store.is_held(self.run).await? {
                        0
                    } else {
                        *looks + 1
                    };
                    if *looks > ABANDONED || self.inner.closing.is_cancelled() {
                        return Ok(None);
                    }
                    tokio::time::sleep(LOOK).await;
                    if let Some(active) = self.inner.lock().get(&self.run) {
                        self.follow = Follow::Live(active.live.subscribe());
                    }
                    self.reads = true;
                }
            }
        }
    }

    fn hand_out(&mut self, event: Arc<Event>) -> Arc<Event> {
        self.next = event.seq + 1;
        if let Follow::Others(looks) = &mut self.follow {
            *looks = 0;
        }
        self.is_over = matches!(event.kind, EventKind::Done { .. });
        event
    }
}
