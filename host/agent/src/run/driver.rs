//! Performs what the machine asks for: the only place in the loop with I/O, time and concurrency.

use crate::context::counts::Counted;
use crate::error::{ErrorClass, RunError};
use crate::event::{Event, EventKind, Journal, RunFailure, Seal};
use crate::guard::shield::{Screened, Shields};
use crate::model::{Delta, Model, Routing, Session, SideRequest, Watch};
use crate::protocol::context::Context;
use crate::run::approval::{Approver, Decision, Nobody, Pending, Verdict};
use crate::run::bind;
use crate::run::counting::count;
use crate::run::machine::{Action, Effects, Input, Machine, Work};
use crate::run::purse::Purse;
use crate::run::replay::Replayed;
use crate::run::screening::{admit, released, screen};
use crate::run::sub_agent::{self, Ended, Left};
use crate::run::{Budgets, RunRequest, Runner, Spent};
use crate::toolbox::{Activities, ToolFailure, ToolResult, Toolbox};
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Readers that fall further behind than this hold the run up rather than memory.
const EVENT_QUEUE: usize = 256;

/// Starts runs: a model, tools, and what they are put together with.
#[derive(Debug, Clone)]
pub struct Driver {
    pub model: Arc<dyn Model>,
    pub toolbox: Arc<dyn Toolbox>,
    pub activities: Activities,
    pub approver: Arc<dyn Approver>,
    /// Models that may be asked to make a call, by the names under which [`Fallback`] lists them.
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    pub shields: Shields,
}

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    pub id: Uuid,
    /// What happens, in order; ends after `done`.
    pub events: mpsc::Receiver<Event>,
    /// Stops the run: it still says `done`. Dropping the run stops it too.
    pub cancel: CancellationToken,
    task: JoinHandle<Result<Ended, RunError>>,
}

impl Run {
    /// Waits for the end of a run whose events were read.
    ///
    /// # Errors
    /// [`RunError::Journal`] if the run was stopped because its record could not be written.
    pub async fn finished(mut self) -> Result<(), RunError> {
        match (&mut self.task).await {
            Ok(result) => result.map(drop),
            Err(error) => Err(RunError::Journal {
                source: std::io::Error::other(error),
            }),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Aborting drops the model's stream and every guest with it.
        self.task.abort();
    }
}

impl Driver {
    /// Without activities and shields, and with nobody to approve anything.
    pub fn new(model: Arc<dyn Model>, toolbox: Arc<dyn Toolbox>) -> Self {
        Self {
            model,
            toolbox,
            activities: Activities::default(),
            approver: Arc::new(Nobody),
            candidates: BTreeMap::new(),
            shields: Shields::default(),
        }
    }

    /// Starts a run. Its journal is written by the run alone.
    ///
    /// # Errors
    /// A context or schema that cannot be used, a tool that nothing can run: nothing was sent or
    /// called.
    pub async fn start(
        &self,
        request: RunRequest,
        journal: Box<dyn Journal>,
    ) -> Result<Run, RunError> {
        let id = request.id;
        let machine = self.machine(request).await?;
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let cancel = CancellationToken::new();
        let sink = Sink::Journal(Publisher {
            run: id,
            seq: 0,
            seal: Seal::default(),
            journal,
            sender,
        });
        let begin = Begin::anew(machine.request().settings.timeout);
        let budgets = Budgets::of(&machine.request().settings);
        let purse = Arc::new(Purse::new(budgets, Spent::default()));
        let task = tokio::spawn(
            self.clone()
                .perform(machine, begin, sink, purse, cancel.clone()),
        );
        Ok(Run {
            id,
            events,
            cancel,
            task,
        })
    }

    /// Goes on with a run whose process ended. `journal` appends to the events that were replayed.
    pub fn resume(&self, replayed: Replayed, journal: Box<dyn Journal>) -> Run {
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let cancel = CancellationToken::new();
        let spent = replayed.spent();
        let (seq, seal) = (replayed.next, replayed.seal.clone());
        let time_left = replayed.time_left;
        let (machine, begin) = Begin::again(replayed, time_left);
        let id = machine.request().id;
        let sink = Sink::Journal(Publisher {
            run: id,
            seq,
            seal,
            journal,
            sender,
        });
        let purse = Purse::new(Budgets::of(&machine.request().settings), spent);
        let task = tokio::spawn(self.clone().perform(
            machine,
            begin,
            sink,
            Arc::new(purse),
            cancel.clone(),
        ));
        Run {
            id,
            events,
            cancel,
            task,
        }
    }

    /// Everything that can be wrong about a request is found here.
    pub(super) async fn machine(&self, mut request: RunRequest) -> Result<Machine, RunError> {
        request.policy = self.shields.policy(&request.settings, request.depth);
        request.settings.window.counted = self.model.counter().is_some();
        let context = Context::new(request.context.clone())?;
        let offered = if request.own_tools_only {
            Vec::new()
        } else {
            self.toolbox.tools()
        };
        let (tools, warnings) =
            bind::bind(&context, offered, self.toolbox.as_ref(), &self.activities).await?;
        Machine::new(request, self.model.name().to_owned(), tools, warnings)
    }

    /// Runs a machine to its end.
    pub(super) fn perform(
        self,
        machine: Machine,
        begin: Begin,
        sink: Sink,
        purse: Arc<Purse>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Result<Ended, RunError>> {
        Box::pin(async move {
            let (events, call_events) = mpsc::channel(EVENT_QUEUE);
            let performer = Performer {
                deadline: Instant::now() + begin.time_left,
                purse,
                parent: Arc::new(machine.request().clone()),
                driver: self,
                session: None,
                class: begin.class.clone(),
                sink,
                events,
                subs: BTreeMap::new(),
                work: JoinSet::new(),
                doing: HashMap::new(),
            };
            performer.perform(machine, begin, call_events, cancel).await
        })
    }
}

/// Where a machine is taken up.
pub(super) struct Begin {
    /// Events that it came to before, and that nobody was told of.
    pub unsaid: Vec<EventKind>,
    pub input: Input,
    pub elapsed: Duration,
    pub time_left: Duration,
    /// Sub-agents that were at work.
    pub subs: BTreeMap<String, Replayed>,
    /// The class of the task, if that was decided.
    pub class: Option<String>,
}

impl Begin {
    pub fn anew(time_left: Duration) -> Self {
        Self {
            unsaid: Vec::new(),
            input: Input::Start,
            elapsed: Duration::ZERO,
            time_left,
            subs: BTreeMap::new(),
            class: None,
        }
    }

    pub fn again(replayed: Replayed, time_left: Duration) -> (Machine, Self) {
        let begin = Self {
            unsaid: replayed.unsaid,
            input: Input::Resumed,
            elapsed: replayed.elapsed,
            time_left,
            subs: replayed.subs,
            class: replayed.class,
        };
        (replayed.machine, begin)
    }
}

struct Performer {
    driver: Driver,
    /// What answers this run, once it has asked.
    session: Option<Arc<dyn Model>>,
    class: Option<String>,
    parent: Arc<RunRequest>,
    deadline: Instant,
    purse: Arc<Purse>,
    sink: Sink,
    /// For calls: what happens in them.
    events: mpsc::Sender<EventKind>,
    subs: BTreeMap<String, Replayed>,
    /// Each on its own task: a guest that computes holds up neither another guest nor the model's
    /// stream. Dropping the set stops them all.
    work: JoinSet<Input>,
    doing: HashMap<Id, Doing>,
}

/// What a task does, in case that it panics.
enum Doing {
    Ask,
    Call(String),
    Decide(Box<Pending>),
    Screen,
    Count,
}

impl Performer {
    async fn perform(
        mut self,
        mut machine: Machine,
        begin: Begin,
        mut call_events: mpsc::Receiver<EventKind>,
        cancel: CancellationToken,
    ) -> Result<Ended, RunError> {
        let started = Instant::now();
        let deadline = tokio::time::Instant::from_std(self.deadline);
        // Unbounded in count, bounded in bytes: the client caps the size of a reply.
        let (heard, mut hearing) = mpsc::unbounded_channel();
        let elapsed = || begin.elapsed + started.elapsed();
        self.subs = begin.subs;
        for kind in begin.unsaid {
            let ended = Ended::of(&kind, machine.spent());
            self.sink.publish(kind).await?;
            if let Some(ended) = ended {
                return Ok(ended);
            }
        }
        let mut effects = machine.handle(begin.input, elapsed());
        loop {
            if let Some(ended) = self.carry_out(effects, machine.spent(), &heard).await? {
                return Ok(ended);
            }
            let input = tokio::select! {
                biased;
                () = cancel.cancelled() => Input::Cancelled,
                () = tokio::time::sleep_until(deadline) => Input::TimedOut,
                Some(event) = call_events.recv() => match self.happened(event).await? {
                    Some(input) => input,
                    None => {
                        effects = Effects::default();
                        continue;
                    }
                },
                // Before the work: a reply is complete only after its last piece.
                Some(heard) = hearing.recv() => match self.wrote(heard).await? {
                    Some(input) => input,
                    None => {
                        effects = Effects::default();
                        continue;
                    }
                },
                Some(done) = self.work.join_next_with_id() => self.input(done),
            };
            // Before the result of a call, all that happened in it.
            while let Ok(event) = call_events.try_recv() {
                let Some(told) = self.happened(event).await? else {
                    continue;
                };
                let effects = machine.handle(told, elapsed());
                if let Some(ended) = self.carry_out(effects, machine.spent(), &heard).await? {
                    return Ok(ended);
                }
            }
            if matches!(input, Input::Replied(_) | Input::ModelFailed(_)) {
                while let Ok(heard_last) = hearing.try_recv() {
                    let Some(told) = self.wrote(heard_last).await? else {
                        continue;
                    };
                    let effects = machine.handle(told, elapsed());
                    if let Some(ended) = self.carry_out(effects, machine.spent(), &heard).await? {
                        return Ok(ended);
                    }
                }
            }
            effects = machine.handle(input, elapsed());
        }
    }

    /// What a task came to.
    fn input(&mut self, done: Result<(Id, Input), JoinError>) -> Input {
        match done {
            Ok((id, input)) => {
                self.doing.remove(&id);
                input
            }
            Err(error) => match self.doing.remove(&error.id()) {
                Some(Doing::Call(id)) => Input::Called {
                    id,
                    result: ToolResult::failed(ToolFailure {
                        kind: "crash".into(),
                        class: ErrorClass::Fatal,
                        message: "the host's code for this tool crashed; do without it".into(),
                    }),
                },
                Some(Doing::Decide(pending)) => Input::Decided {
                    id: pending.call.id,
                    decision: Decision {
                        digest: pending.digest,
                        verdict: Verdict::Refuse {
                            reason: "the host's code that asks for approval crashed".into(),
                        },
                        by: None,
                    },
                },
                Some(Doing::Screen) => Input::Screened(Screened::Blocked {
                    shield: "host".into(),
                    reason: "its code that asks the shields crashed".into(),
                }),
                Some(Doing::Count) => Input::Counted(Counted {
                    tokens: Vec::new(),
                    failure: Some("the host's code that asks for counts crashed".into()),
                }),
                Some(Doing::Ask) | None => Input::ModelFailed(RunFailure::new(
                    ErrorClass::Fatal,
                    "the host's code that asks the model crashed",
                )),
            },
        }
    }

    /// What the model wrote; what was decided on the way to it is told as it is, for it changes
    /// nothing.
    async fn wrote(&mut self, heard: Heard) -> Result<Option<Input>, RunError> {
        match heard {
            Heard::Delta(delta) => Ok(Some(Input::Wrote(delta))),
            Heard::SideRequest(request) => Ok(Some(Input::SideRequest(request))),
            Heard::Routing(routing) => {
                self.sink.publish(EventKind::Routing(routing)).await?;
                Ok(None)
            }
        }
    }

    /// What happened in a call or with a shield: told as it is, unless the machine counts it.
    async fn happened(&mut self, event: EventKind) -> Result<Option<Input>, RunError> {
        match event {
            EventKind::SideRequest(request) => Ok(Some(Input::SideRequest(request))),
            event => {
                self.sink.publish(event).await?;
                Ok(None)
            }
        }
    }

    /// Decided with the first Request, and then kept.
    fn model(&mut self, task: &str) -> Arc<dyn Model> {
        let (model, class) = (&self.driver.model, self.class.as_deref());
        let session = self.session.get_or_insert_with(|| {
            let session = Session { task, class };
            model.session(&session).unwrap_or_else(|| model.clone())
        });
        session.clone()
    }

    fn spawn(&mut self, doing: Doing, work: impl Future<Output = Input> + Send + 'static) {
        let task = self.work.spawn(work);
        self.doing.insert(task.id(), doing);
    }

    /// Publishes, then acts. Returns how the run, which took so much, ended, if it did.
    async fn carry_out(
        &mut self,
        effects: Effects,
        spent: Spent,
        heard: &mpsc::UnboundedSender<Heard>,
    ) -> Result<Option<Ended>, RunError> {
        for kind in effects.events {
            self.purse.note(&kind);
            let ended = Ended::of(&kind, spent);
            self.sink.publish(kind).await?;
            if ended.is_some() {
                return Ok(ended);
            }
        }
        for action in effects.actions {
            match action {
                Action::Ask {
                    request,
                    task,
                    candidate,
                } => {
                    if self.parent.depth > 0
                        && let Some(budget) = self.purse.overdrawn()
                    {
                        let told = std::future::ready(Input::OutOf(budget));
                        self.spawn(Doing::Ask, told);
                        continue;
                    }
                    let model = match &candidate {
                        None => Some(self.model(&task)),
                        Some(name) => self.driver.candidates.get(name).cloned(),
                    };
                    let Some(model) = model else {
                        let failure = RunFailure::new(
                            ErrorClass::Fatal,
                            "this host does not know the model any more: [fallback] models has changed since the run began",
                        );
                        let failed = std::future::ready(Input::ModelFailed(failure));
                        self.spawn(Doing::Ask, failed);
                        continue;
                    };
                    let mut heard = Listener(heard.clone());
                    self.spawn(Doing::Ask, async move {
                        match model.complete(&request, &mut heard).await {
                            Ok(completion) => Input::Replied(completion),
                            Err(error) => Input::ModelFailed(RunFailure {
                                overflow: error.context_overflow(),
                                ..RunFailure::new(error.class(), error.to_string())
                            }),
                        }
                    });
                }
                Action::Call(work) => {
                    if !work.again {
                        self.purse.note_call();
                    }
                    let doing = Doing::Call(work.call.id.clone());
                    let call = self.call(*work);
                    self.spawn(doing, call);
                }
                Action::Decide(pending) => {
                    let (approver, run) = (self.driver.approver.clone(), self.parent.id);
                    self.spawn(Doing::Decide(pending.clone()), async move {
                        let decision = approver.decide(run, &pending).await;
                        Input::Decided {
                            id: pending.call.id,
                            decision,
                        }
                    });
                }
                Action::Screen(screening) => {
                    let (shields, events) = (self.driver.shields.clone(), self.events.clone());
                    self.spawn(Doing::Screen, async move {
                        Input::Screened(screen(&shields, *screening, &events).await)
                    });
                }
                Action::Count(texts) => {
                    let counter = self.driver.model.counter();
                    self.spawn(Doing::Count, async move {
                        Input::Counted(count(counter, texts).await)
                    });
                }
                // Said by the event `done`, which was published before.
                Action::Finish => {}
            }
        }
        Ok(None)
    }

    fn call(&mut self, mut work: Work) -> BoxFuture<'static, Input> {
        let begun = self.subs.remove(&work.call.id);
        let driver = self.driver.clone();
        let (parent, events) = (self.parent.clone(), self.events.clone());
        let (deadline, purse) = (self.deadline, self.purse.clone());
        Box::pin(async move {
            let id = work.call.id.clone();
            let admitted = admit(&driver.shields, &mut work, &events).await;
            if let Err(failure) = admitted {
                let result = ToolResult::failed(failure);
                return Input::Called { id, result };
            }
            let (shields, told) = (driver.shields.clone(), events.clone());
            let mut result = match &work.runner {
                Runner::Module(_) => driver.toolbox.call(&work.call).await,
                Runner::Activity(name) => match driver.activities.named(name) {
                    Some(activity) => activity.call(&work.call).await,
                    None => ToolResult::failed(ToolFailure::correctable(
                        "activity",
                        format!("there is no activity named {name:?} any more"),
                    )),
                },
                Runner::Request(_) | Runner::CleanRoom | Runner::Advisor | Runner::Model => {
                    let left = Left {
                        time: deadline.saturating_duration_since(Instant::now()),
                        purse,
                    };
                    Box::pin(sub_agent::run(driver, &work, begun, &parent, left, events)).await
                }
            };
            result.outcome = released(&shields, &work, result.outcome, &told).await;
            Input::Called { id, result }
        })
    }
}

enum Heard {
    Delta(Delta),
    Routing(Routing),
    SideRequest(SideRequest),
}

struct Listener(mpsc::UnboundedSender<Heard>);

impl Watch for Listener {
    fn delta(&mut self, delta: Delta) {
        let _ = self.0.send(Heard::Delta(delta));
    }

    fn routing(&mut self, routing: Routing) {
        let _ = self.0.send(Heard::Routing(routing));
    }

    fn side_request(&mut self, request: SideRequest) {
        let _ = self.0.send(Heard::SideRequest(request));
    }
}

/// Where a run's events go.
pub(super) enum Sink {
    Journal(Publisher),
    /// A sub-agent's are events of the run that called it.
    Parent {
        call: String,
        events: mpsc::Sender<EventKind>,
    },
}

impl Sink {
    async fn publish(&mut self, kind: EventKind) -> Result<(), RunError> {
        match self {
            Self::Journal(publisher) => publisher.publish(kind).await,
            Self::Parent { call, events } => {
                // A parent that is gone drops this run as well.
                let (call, what) = (call.clone(), Box::new(kind));
                let _ = events.send(EventKind::Sub { call, what }).await;
                Ok(())
            }
        }
    }
}

/// Numbers events, journals them, and only then shows them.
pub(super) struct Publisher {
    run: Uuid,
    seq: u64,
    /// Of the event before.
    seal: Seal,
    journal: Box<dyn Journal>,
    sender: mpsc::Sender<Event>,
}

impl Publisher {
    async fn publish(&mut self, kind: EventKind) -> Result<(), RunError> {
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let event = Event {
            run: self.run,
            seq: self.seq,
            at_ms: u64::try_from(at_ms).unwrap_or(u64::MAX),
            kind,
            seal: Seal::default(),
        };
        let event = event
            .sealed(&self.seal)
            .map_err(|error| RunError::Journal {
                source: error.into(),
            })?;
        self.seal = event.seal.clone();
        self.seq += 1;
        self.journal
            .append(&event)
            .await
            .map_err(|source| RunError::Journal { source })?;
        // A reader that went away does not end the run; its journal is still being written.
        let _ = self.sender.send(event).await;
        Ok(())
    }
}
