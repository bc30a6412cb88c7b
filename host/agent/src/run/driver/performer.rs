//! Performs one run: feeds the machine with what happens, and carries out its actions.

use super::call_events::CallEvent;
use super::heard::{Listener, TaskUpdate, UpdateSender, updates};
use super::nested::{RunBudget, RunDecider, RunRecorder};
use super::run_clock::RunClock;
use super::run_end::RunEnd;
use super::sink::{EndGrace, Publication};
use super::step_cost::StepCost;
use super::tools::{BoundRunner, RunTools};
use super::{CallEventSender, Driver, Sink, StartingPoint};
use crate::calls::aside::apart;
use crate::calls::privacy::revealed;
use crate::calls::screen::{screen, screen_passages, screen_result};
use crate::calls::{
    Attempts, CallPipeline, CallRules, CallableTools, CalledTool, FollowedJob, NestedCaller,
    OpenJobs, PartyPrivacy, RecordedJob,
};
use crate::retrieval::retrieve;
use crate::run::RunUsage;
use crate::run::budget_tracker::BudgetTracker;
use crate::run::cancel::RunCancel;
use crate::run::counting::count;
use crate::run::machine::{Action, Effects, Input, Machine, Work};
use crate::run::outcomes::{CandidateAttempt, FallbackAttempts};
use crate::run::replay::Replayed;
use crate::run::sub_agent::SubAgentEnd;
use crate::toolbox::{ToolCall, ToolRunner};
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use toolhold_model::side::SideObserver;
use toolhold_model::{Model, RunContext, SideModel};
use toolhold_policy::ErrorClass;
use toolhold_protocol::blob;
use toolhold_protocol::bound::{Bound, BoundTools, Runner};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, RunFailure};
use toolhold_protocol::failure::{INTERRUPTED, NOT_MADE, ToolFailure, UNFINISHED};
use toolhold_protocol::knowledge::Retrieved;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::side_request::SideRole;
use toolhold_protocol::window::{Counted, WrittenSummary};

/// Events recorded in one batch, approximately.
const EVENT_BATCH: usize = 64;
/// Time limit of dropping the calls of a run that ends, before the host stops their jobs.
const CALLS_END: Duration = Duration::from_secs(1);
/// Time limit of a model that sums up a conversation: the run can go on with the statements alone.
const SUMMARY_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) struct Performer {
    /// Shared with its calls.
    pub(super) driver: Arc<Driver>,
    /// Asked by the calls of the run before they begin.
    pub(super) end: Arc<RunEnd>,
    /// What answers this run, once it has asked.
    pub(super) session: Option<Arc<dyn Model>>,
    pub(super) class: Option<String>,
    pub(super) parent: Arc<RunRequest>,
    pub(super) deadline: Instant,
    pub(super) clock: RunClock,
    pub(super) budget: Arc<BudgetTracker>,
    /// For the calls that calls make.
    pub(super) rules: Arc<CallRules>,
    pub(super) tools: Arc<CallableTools>,
    pub(super) sink: Sink,
    /// For the waits for the sink.
    pub(super) grace: EndGrace,
    pub(super) cost: StepCost,
    /// For calls: what happens in them.
    pub(super) events: CallEventSender,
    pub(super) subs: BTreeMap<String, Replayed>,
    /// Jobs that another process had recorded, by the calls that wait for them.
    pub(super) jobs: BTreeMap<String, RecordedJob>,
    /// Jobs that the calls of the run wait for.
    pub(super) open_jobs: OpenJobs,
    /// What the calls took so far that calls of the run made, and the calls of those, by the call of the run: it is
    /// part of that call's usage.
    pub(super) nested_spent: HashMap<String, RunUsage>,
    pub(super) offered: BoundTools,
    /// Each on its own task: a guest that computes holds up neither another guest nor the model's
    /// stream. Dropping the set stops them all.
    pub(super) work: JoinSet<Input>,
    pub(super) doing: HashMap<Id, TaskKind>,
    /// Calls that go on when what they told is recorded.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
    /// Of a candidate of the fallback.
    pub(super) attempts: FallbackAttempts,
    /// Attempts that are over, and not recorded yet.
    pub(super) untold: Vec<CandidateAttempt>,
}

/// What a task does, kept for the case that it panics.
pub(super) enum TaskKind {
    Ask,
    Call(String),
    Decide(Box<Pending>),
    /// Of a call's arguments, or of the run itself.
    Screen(Option<String>),
    Retrieve,
    Count,
    SumUp,
}

fn unwritten(reason: impl Into<String>) -> WrittenSummary {
    WrittenSummary {
        text: String::new(),
        failure: Some(reason.into()),
    }
}

impl Performer {
    pub(super) async fn perform(
        mut self,
        machine: Machine,
        begin: StartingPoint,
        mut call_events: mpsc::Receiver<CallEvent>,
        cancel: RunCancel,
    ) -> Result<SubAgentEnd, RunError> {
        // It is handed from one thread to another.
        let mut machine = Box::new(machine);
        let clock = self.clock;
        let deadline = tokio::time::Instant::from_std(self.deadline);
        let (heard, mut hearing) = updates();
        let elapsed = || clock.elapsed();
        self.subs = begin.subs;
        self.jobs = begin.jobs;
        let unsaid = Effects {
            events: begin.unsaid,
            actions: Vec::new(),
        };
        if let Some(ended) = self.carry_out(unsaid, machine.spent(), &heard).await? {
            return Ok(ended);
        }
        let input = match begin.input {
            // The step that resumes a run may end it for another reason: a plan whose last call is lost is over. It does not
            // end a run whose call continues as a job, and opens the job, which the end of the run tells to stop.
            Input::Resumed { .. } if cancel.is_cancelled() && self.jobs.is_empty() => {
                let reason = self.end.reason(cancel.cancelled().await).await;
                Input::Cancelled { reason }
            }
            input => input,
        };
        let (stepped, mut effects) = self.step(machine, input, elapsed()).await;
        machine = stepped;
        // Among the first events: the run may end with them, and nothing comes after `done`.
        let begins = effects.events.iter().take_while(|event| {
            matches!(
                event,
                EventKind::Run { .. } | EventKind::Notice { step: 0, .. }
            )
        });
        let at = begins.count();
        let fetches = begin.fetches.into_iter().map(EventKind::RequestFetched);
        effects.events.splice(at..at, fetches);
        loop {
            if let Some(ended) = self.carry_out(effects, machine.spent(), &heard).await? {
                return Ok(ended);
            }
            let (mut told, input) = tokio::select! {
                biased;
                reason = cancel.cancelled() => {
                    let reason = self.end.reason(reason).await;
                    (None, Some(Input::Cancelled { reason }))
                }
                () = tokio::time::sleep_until(deadline) => (None, Some(Input::TimedOut)),
                Some(event) = call_events.recv() => (Some(self.told(event)), None),
                // Before the work: a reply is complete only after its last piece.
                Some(heard) = hearing.recv() => (Some(heard), None),
                Some(done) = self.work.join_next_with_id() => (None, Some(self.input(done))),
            };
            let is_reply = matches!(input, Some(Input::Replied(_) | Input::ModelFailed(_)));
            effects = Effects::default();
            // What was told meanwhile is recorded in one go; recording is what takes long.
            loop {
                if let Some(told) = told.take() {
                    let (stepped, next) = match told.input() {
                        Ok(input) => self.step(machine, input, elapsed()).await,
                        Err(event) => {
                            if let EventKind::Sub { call, what } = &*event {
                                machine.note_nested(call, what);
                            }
                            (machine, only(*event))
                        }
                    };
                    machine = stepped;
                    effects.add(next);
                }
                if !effects.actions.is_empty() || effects.events.len() >= EVENT_BATCH {
                    if input.is_none() {
                        break;
                    }
                    let due = mem::take(&mut effects);
                    if let Some(ended) = self.carry_out(due, machine.spent(), &heard).await? {
                        return Ok(ended);
                    }
                    if self.sink.is_holding() {
                        // What calls tell from here on is of no use, and would have to be kept.
                        call_events.close();
                    }
                }
                // Before the result of a call, all that event in it; before a reply, all of its pieces.
                told = call_events.try_recv().ok().map(|event| self.told(event));
                if told.is_none() && (input.is_none() || is_reply) {
                    told = hearing.try_recv();
                }
                if told.is_none() {
                    break;
                }
            }
            if let Some(input) = input.map(|input| self.with_nested(input)) {
                let (stepped, next) = self.step(machine, input, elapsed()).await;
                machine = stepped;
                effects.add(next);
            }
        }
    }

    /// The machine after its next step, and what follows from it. A cancellation is heard after the step, which ends by
    /// the steps of its checks.
    async fn step(
        &mut self,
        mut machine: Box<Machine>,
        input: Input,
        elapsed: Duration,
    ) -> (Box<Machine>, Effects) {
        if !self.cost.is_long(&input) {
            let effects = machine.handle(input, elapsed);
            return (machine, effects);
        }
        let lane = self.parent.id.to_string();
        let step = move || {
            let effects = machine.handle(input, elapsed);
            (machine, effects)
        };
        apart(&lane, step).await
    }

    fn told(&mut self, event: CallEvent) -> TaskUpdate {
        self.waiting.extend(event.recorded);
        if let EventKind::Sub { call, what } = &event.kind
            && let Some(spent) = self.nested_spent.get_mut(call)
        {
            *spent = spent.plus(RunUsage::nested(what, self.budget.counts_money()));
        }
        TaskUpdate::Event(Box::new(event.kind))
    }

    /// The machine's input from a task that has ended.
    fn input(&mut self, done: Result<(Id, Input), JoinError>) -> Input {
        match done {
            Ok((id, input)) => {
                self.doing.remove(&id);
                input
            }
            Err(error) => match self.doing.remove(&error.id()) {
                Some(TaskKind::Call(id)) => Input::Called {
                    id,
                    result: ToolResult::failed(ToolFailure {
                        kind: "crash".into(),
                        class: ErrorClass::Fatal,
                        message: "the host's code for this tool crashed; do without it".into(),
                    }),
                },
                Some(TaskKind::Decide(pending)) => Input::Decided {
                    id: pending.call.id,
                    decision: Decision {
                        digest: pending.digest,
                        verdict: Verdict::Refuse {
                            reason: "the host's code that asks for decisions crashed".into(),
                        },
                        by: None,
                    },
                },
                Some(TaskKind::Screen(call)) => Input::Screened {
                    call,
                    screened: ScreeningResult::Blocked {
                        shield: "host".into(),
                        reason: "its code that asks the shields crashed".into(),
                    },
                },
                Some(TaskKind::Retrieve) => Input::Retrieved(Retrieved {
                    notes: vec!["the host's code that looks for passages crashed".into()],
                    ..Retrieved::default()
                }),
                Some(TaskKind::Count) => Input::Counted(Counted {
                    tokens: Vec::new(),
                    failure: Some("the host's code that asks for counts crashed".into()),
                }),
                Some(TaskKind::SumUp) => {
                    Input::SummedUp(unwritten("the host's code that asks for summaries crashed"))
                }
                Some(TaskKind::Ask) | None => Input::ModelFailed(RunFailure::new(
                    ErrorClass::Fatal,
                    "the host's code that asks the model crashed",
                )),
            },
        }
    }

    /// The model of the run, chosen with the first request and then kept.
    fn model(&mut self, task: &str) -> Arc<dyn Model> {
        let (model, class) = (&self.driver.model, self.class.as_deref());
        let session = self.session.get_or_insert_with(|| {
            let session = RunContext { task, class };
            model.session(&session).unwrap_or_else(|| model.clone())
        });
        session.clone()
    }

    /// The model that sums up conversations: the one that is named for it, or the run's own.
    fn summarizer(&self) -> Arc<dyn Model> {
        let own = &self.driver.model;
        self.driver.summarizer.clone().unwrap_or_else(|| {
            Arc::new(SideModel {
                role: SideRole::Summary,
                endpoint: own.name().to_owned(),
                model: own.clone(),
                price: self.parent.settings.price,
            })
        })
    }

    fn spawn(&mut self, doing: TaskKind, work: impl Future<Output = Input> + Send + 'static) {
        let task = self.work.spawn(work);
        self.doing.insert(task.id(), doing);
    }

    /// Publishes, then acts. Returns how the run, which took so much, ended, if it did. Nothing of a cancelled run begins
    /// any more.
    async fn carry_out(
        &mut self,
        effects: Effects,
        spent: RunUsage,
        heard: &UpdateSender,
    ) -> Result<Option<SubAgentEnd>, RunError> {
        let mut ended = None;
        let mut attempts = mem::take(&mut self.untold);
        for kind in &effects.events {
            self.budget.note(kind);
            ended = ended.or_else(|| SubAgentEnd::of(kind, spent));
            if self.driver.outcomes.is_some() {
                attempts.extend(self.attempts.take(kind));
            }
        }
        if !effects.events.is_empty() {
            let stop = ended.is_some().then(|| self.stop_jobs());
            // After its end is recorded: a process that lost the run must not stop what another one waits for. Before its
            // readers go away, and maybe the process with them.
            let stopped = async move {
                if let Some(stop) = stop {
                    stop.await;
                }
            };
            let sink = &mut self.sink;
            let published = sink
                .publish(effects.events, &mut self.grace, stopped)
                .await?;
            if published == Publication::Held {
                self.untold = attempts;
                self.open_recorded(effects.actions);
                return Ok(None);
            }
        }
        // Only what is in the record counts.
        if let Some(outcomes) = &self.driver.outcomes {
            for attempt in attempts {
                outcomes.attempted(&attempt);
            }
        }
        // What waits for the last events does not go on: a call whose begin is among them is not made.
        if ended.is_some() {
            self.sink.was_read()?;
            return Ok(ended);
        }
        if self.grace.cancel.is_cancelled() {
            self.open_recorded(effects.actions);
            return Ok(None);
        }
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(());
        }
        for action in effects.actions {
            match action {
                Action::Ask {
                    mut request,
                    task,
                    candidate,
                } => {
                    if self.parent.depth > 0
                        && let Some(budget) = self.budget.overdrawn()
                    {
                        let told = std::future::ready(Input::OutOf(budget));
                        self.spawn(TaskKind::Ask, told);
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
                        self.spawn(TaskKind::Ask, failed);
                        continue;
                    };
                    let (mut heard, end) = (Listener::new(heard.clone()), self.end.clone());
                    let blobs = self.driver.blobs.clone();
                    self.spawn(TaskKind::Ask, async move {
                        // Until the reply is there.
                        let _room = blobs.fill(&mut request).await;
                        match end.until(model.complete(&request, &mut heard)).await {
                            Ok(completion) => Input::Replied(Completion {
                                between_pieces_p95: heard.between_pieces_p95(),
                                ..completion
                            }),
                            Err(error) => Input::ModelFailed(RunFailure {
                                overflow: error.context_overflow(),
                                retry_after_ms: error.available_after().map(millis),
                                status: error.meant_status(),
                                code: error.own_code().map(str::to_owned),
                                param: error.param().map(str::to_owned),
                                took_ms: Some(millis(heard.asked.elapsed())),
                                ..RunFailure::new(error.class(), error.to_string())
                            }),
                        }
                    });
                }
                Action::Call(work) => {
                    let id = work.call.id.clone();
                    let taken = if work.again {
                        Ok(())
                    } else {
                        self.budget.take_call()
                    };
                    let call = match taken {
                        Ok(()) => self.call(*work),
                        // Calls that other calls made meanwhile took what was left.
                        Err(failure) => Box::pin(std::future::ready(Input::Called {
                            id: id.clone(),
                            result: ToolResult::failed(failure),
                        })),
                    };
                    self.spawn(TaskKind::Call(id), call);
                }
                Action::Decide(pending) => {
                    let (decider, run) = (self.driver.decider.clone(), self.parent.id);
                    self.spawn(TaskKind::Decide(pending.clone()), async move {
                        let decision = decider.decide(run, &pending).await;
                        Input::Decided {
                            id: pending.call.id,
                            decision,
                        }
                    });
                }
                Action::Screen(mut screening) => {
                    screening.depth = self.sink.call_depth();
                    let (shields, events) = (self.driver.shields.clone(), self.events.clone());
                    let call = screening.call_id();
                    self.spawn(TaskKind::Screen(call.clone()), async move {
                        let (screened, said) = screen(&shields, *screening).await;
                        events.tell_all(said).await;
                        Input::Screened { call, screened }
                    });
                }
                Action::Retrieve(question) => {
                    let (retriever, shields) =
                        (self.driver.retriever.clone(), self.driver.shields.clone());
                    let events = self.events.clone();
                    self.spawn(TaskKind::Retrieve, async move {
                        let found = retrieve(retriever.as_deref(), &question).await;
                        let attached = question.retrieval.attached.as_deref();
                        let (found, said) = screen_passages(&shields, found, attached).await;
                        events.tell_all(said).await;
                        Input::Retrieved(found)
                    });
                }
                Action::Count(texts) => {
                    let counter = self.driver.model.counter();
                    self.spawn(TaskKind::Count, async move {
                        Input::Counted(count(counter, texts).await)
                    });
                }
                Action::SumUp(request) => {
                    let model = self.summarizer();
                    let (mut heard, end) = (Listener::new(heard.clone()), self.end.clone());
                    self.spawn(TaskKind::SumUp, async move {
                        let mut aside = SideObserver(&mut heard);
                        let asked = end.until(model.complete(&request, &mut aside));
                        Input::SummedUp(match timeout(SUMMARY_TIMEOUT, asked).await {
                            Ok(Ok(completion)) if completion.content.trim().is_empty() => {
                                unwritten("it wrote nothing")
                            }
                            Ok(Ok(completion)) => WrittenSummary {
                                text: completion.content,
                                failure: None,
                            },
                            Ok(Err(error)) => unwritten(error.to_string()),
                            Err(_) => unwritten(format!(
                                "it took longer than {} s",
                                SUMMARY_TIMEOUT.as_secs()
                            )),
                        })
                    });
                }
                // Said by the event `done`, which was published before.
                Action::Finish => {}
            }
        }
        Ok(None)
    }

    /// What the calls are made with that a call makes.
    fn nested(
        &self,
        call: &ToolCall,
        tools: &Arc<RunTools>,
        seen: Option<&Arc<CalledTool>>,
    ) -> NestedCaller {
        let pipeline = CallPipeline {
            toolbox: tools.clone().into(),
            tools: self.tools.clone(),
            rules: self.rules.clone(),
            decider: Arc::new(RunDecider {
                decider: self.driver.decider.clone(),
                run: self.parent.id,
                agents: self.parent.agents.clone(),
            }),
            recorder: Arc::new(RunRecorder {
                events: self.events.clone(),
                blobs: self.driver.blobs.clone(),
                budget: self.budget.clone(),
                within: Vec::new(),
            }),
            budget: Arc::new(RunBudget(self.budget.clone())),
            jobs: self.open_jobs.clone(),
            hiding: seen.map(|seen| seen.clone() as Arc<dyn PartyPrivacy>),
            call_depth: self.sink.call_depth(),
        };
        NestedCaller::new(pipeline, &call.id, &call.tool, Vec::new())
    }

    /// Tells the jobs that an ended run still waits for to stop, and those of the runs inside of it. The calls of the run end
    /// first: a question that is under way could undo what the module does when it stops its job.
    fn stop_jobs(&mut self) -> BoxFuture<'static, ()> {
        self.end.note();
        let has_inner = self.parent.depth == 0;
        let (mut calls, open_jobs) = (mem::take(&mut self.work), self.open_jobs.clone());
        Box::pin(async move {
            if open_jobs.has_any(has_inner) {
                let _ = timeout(CALLS_END, calls.shutdown()).await;
                open_jobs.cancel_run(has_inner).await;
            }
        })
    }

    /// Opens the jobs of calls that a cancelled run does not go on with, so that its end tells them to stop.
    fn open_recorded(&mut self, actions: Vec<Action>) {
        for action in actions {
            if let Action::Call(work) = action
                && self.jobs.contains_key(&work.call.id)
            {
                drop(self.call(*work));
            }
        }
    }

    fn call(&mut self, mut work: Work) -> BoxFuture<'static, Input> {
        let tools = Arc::new(RunTools {
            driver: self.driver.clone(),
            offered: self.offered.clone(),
            request: self.parent.clone(),
            deadline: self.deadline,
            budget: self.budget.clone(),
            events: self.events.clone(),
            call: work.call.id.clone(),
            left: work.left,
            steps_left: work.steps_left,
        });
        let privacy = &self.parent.settings.privacy;
        let seen = CalledTool::new(privacy, &work.bound, &work.masked).map(Arc::new);
        // Before its job is opened, which is asked about with the same call.
        work.call.depth = self.sink.call_depth();
        let nested = self.nested(&work.call, &tools, seen.as_ref());
        let effects = nested.effects();
        work.call.nested = Some(Arc::new(nested));
        work.call.begin = Some(self.end.clone());
        if let Runner::Module(_) | Runner::Activity(_) = work.bound.runner {
            let id = work.call.id.clone();
            self.nested_spent.insert(id, RunUsage::default());
        }
        let mut begun = self.subs.remove(&work.call.id);
        let runner: Arc<dyn ToolRunner> = Arc::new(BoundRunner {
            tools: tools.clone(),
            bound: work.bound.clone(),
        });
        let (job_policy, open_jobs) = (self.rules.jobs, self.open_jobs.clone());
        let mut job = FollowedJob::of(job_policy, &open_jobs, &runner, &work.call);
        // Now, and not when the call is polled: the run may end before.
        if let Some(recorded) = self.jobs.remove(&work.call.id) {
            job.resume(&work.call, recorded);
        }
        let (shields, told) = (self.driver.shields.clone(), self.events.clone());
        let (rules, budget) = (self.rules.clone(), RunBudget(self.budget.clone()));
        let blobs = self.driver.blobs.clone();
        Box::pin(async move {
            let Bound { tool, .. } = &work.bound;
            let takes_bytes = work.bound.runner.has_bytes();
            // A result that fits a schema stays as that says.
            let may_have_blobs = tool.output.is_none();
            let step = work.step;
            let waits = || work.bound.waits(&rules.decisions);
            let mut caching = rules.results.begin(&work.call, &work.bound, waits, &*tools);
            // Its result may be of another grant than the one under which it would be kept now.
            let is_resumed = job.has_job();
            let known = if is_resumed { None } else { caching.known() };
            // The job of a resumed call had the bytes when it began.
            let known = match known {
                None if takes_bytes && !is_resumed => {
                    let unknown = blobs.put_back(&mut work.call.arguments).await.err();
                    unknown.map(ToolResult::failed)
                }
                known => known,
            };
            let nested = effects.clone();
            let mut attempts = Attempts::new(rules.tool_retry, &work.call, &work.bound, nested);
            let mut result = loop {
                if let Some(known) = known {
                    break known;
                }
                let mut answer = if job.has_job() {
                    job.ask().await
                } else {
                    let runner = &work.bound.runner;
                    tools.run(&work.call, tool, runner, begun.take()).await
                };
                let result = loop {
                    match job.judge(&work.call, answer).await {
                        ControlFlow::Break(result) => break result,
                        ControlFlow::Continue(news) => {
                            if let Some(job) = news {
                                // Recorded first: a run that goes on elsewhere asks about it, and does not call again.
                                told.record(vec![EventKind::Job { step, job }]).await;
                            }
                            answer = job.ask().await;
                        }
                    }
                };
                let retry = match attempts.judge(&work.call, result, &budget) {
                    ControlFlow::Break(result) => break result,
                    ControlFlow::Continue(retry) => retry,
                };
                // Recorded first: a server that was frozen meanwhile, and whose run goes on in another one, tries no more.
                told.record(vec![EventKind::ToolRetry { step, retry }])
                    .await;
                attempts.wait(&mut work.call).await;
                if takes_bytes && let Err(failure) = blobs.put_back(&mut work.call.arguments).await
                {
                    break ToolResult::failed(failure);
                }
                job = FollowedJob::of(job_policy, &open_jobs, &runner, &work.call);
            };
            if let Err(failure) = &mut result.outcome
                && [UNFINISHED, NOT_MADE, INTERRUPTED].contains(&failure.kind.as_str())
            {
                // Only the record says so of a call.
                "tool".clone_into(&mut failure.kind);
            }
            caching.keep(&result, is_resumed || effects.has_asked());
            let outcome = match &seen {
                Some(seen) => revealed(&**seen, result.outcome),
                None => result.outcome,
            };
            // Where no shield stands, the machine checks the result, and nothing comes between.
            let ToolCall {
                id, tool, depth, ..
            } = work.call;
            let is_screened = shields.applies_to(ShieldPlace::ToolOutput, Some(&tool));
            let check = is_screened.then_some(&work.check);
            let (outcome, said) = screen_result(&shields, &id, depth, &tool, outcome, check).await;
            told.tell_all(said).await;
            result.outcome = match outcome {
                Ok(mut output) => {
                    if takes_bytes {
                        blob::refuse_names(&mut output.value);
                    }
                    if may_have_blobs {
                        output.value = blobs.kept(output.value).await;
                    }
                    Ok(output)
                }
                failed => failed,
            };
            Input::Called { id, result }
        })
    }

    /// What an input is with what the calls took that the call made which is over.
    fn with_nested(&mut self, mut input: Input) -> Input {
        if let Input::Called { id, result } = &mut input
            && let Some(spent) = self.nested_spent.remove(id)
        {
            spent.add_to(&mut result.usage);
        }
        input
    }
}

impl Drop for Performer {
    /// Before the calls are dropped with their tasks: the place of one that runs begins none that waits.
    fn drop(&mut self) {
        self.end.note();
        if self.parent.depth == 0 {
            self.open_jobs.close();
        }
    }
}

/// An event that nothing follows from.
fn only(event: EventKind) -> Effects {
    Effects {
        events: vec![event],
        actions: Vec::new(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
