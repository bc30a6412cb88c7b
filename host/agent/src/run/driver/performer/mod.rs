//! Performs one run: feeds the machine with what happens, and carries out its actions.
//!
//! Here is the loop, and what is recorded before an action is begun; `tasks` begins the actions, `call` is one tool call.

mod call;
mod tasks;

use super::call_events::CallEvent;
use super::heard::{TaskUpdate, UpdateSender, updates};
use super::run_clock::RunClock;
use super::run_end::RunEnd;
use super::sink::{EndGrace, Publication};
use super::step_cost::StepCost;
use super::{CallEventSender, Driver, Sink, StartingPoint};
use crate::calls::aside::apart;
use crate::calls::{CallRules, CallableTools, OpenJobs, RecordedJob};
use crate::run::RunUsage;
use crate::run::budget_tracker::BudgetTracker;
use crate::run::cancel::RunCancel;
use crate::run::machine::{Action, Effects, Input, Machine};
use crate::run::outcomes::{CandidateAttempt, FallbackAttempts};
use crate::run::replay::Replayed;
use crate::run::sub_agent::SubAgentEnd;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tasks::TaskKind;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{Id, JoinSet};
use tokio::time::timeout;
use toolhold_model::Model;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::settings::RunRequest;

/// Events recorded in one batch, approximately.
const EVENT_BATCH: usize = 64;
/// Time limit of dropping the calls of a run that ends, before the host stops their jobs.
const CALLS_END: Duration = Duration::from_secs(1);

pub(super) struct Performer {
    /// Shared with its calls.
    pub(super) driver: Arc<Driver>,
    /// Asked by the calls of the run before they begin.
    pub(super) end: Arc<RunEnd>,
    /// Model that answers this run, once it has asked.
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
    /// True if the last step of the machine was made on a thread for long checks.
    pub(super) was_long: bool,
    /// For calls: what happens in them.
    pub(super) events: CallEventSender,
    pub(super) subs: BTreeMap<String, Replayed>,
    /// Jobs that another process had recorded, by the calls that wait for them.
    pub(super) jobs: BTreeMap<String, RecordedJob>,
    /// Jobs that the calls of the run wait for.
    pub(super) open_jobs: OpenJobs,
    /// Usage so far of the calls that calls of the run made, and of the calls of those, by the call of the run: it is
    /// part of that call's usage.
    pub(super) nested_spent: HashMap<String, RunUsage>,
    pub(super) offered: BoundTools,
    /// Each on its own task: a guest that computes holds up neither another guest nor the model's
    /// stream. Dropping the set stops them all.
    pub(super) work: JoinSet<Input>,
    pub(super) doing: HashMap<Id, TaskKind>,
    /// Calls that go on when what they told is recorded.
    pub(super) waiting: Vec<oneshot::Sender<()>>,
    /// Attempts of a candidate of the fallback.
    pub(super) attempts: FallbackAttempts,
    /// Attempts that are over, and not recorded yet.
    pub(super) untold: Vec<CandidateAttempt>,
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
        // One timer for the run: a new one for each piece of a reply would be registered and removed again.
        let mut timed_out = pin!(tokio::time::sleep_until(deadline));
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
                () = &mut timed_out => (None, Some(Input::TimedOut)),
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
                let is_due = !effects.actions.is_empty()
                    && (input.is_some() || !self.may_wait(&effects.actions));
                if is_due || effects.events.len() >= EVENT_BATCH {
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
        self.was_long = self.cost.is_long(&input);
        if !self.was_long {
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

    /// True if these actions may wait until further pieces of the reply are taken that are there already: calls in them
    /// begin with the same write of the record, which takes longer than to read them. They do not wait for a second long
    /// check.
    fn may_wait(&self, actions: &[Action]) -> bool {
        let mut actions = actions.iter();
        !self.was_long && actions.all(|action| matches!(action, Action::Call(_)))
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
            self.start(action, heard);
        }
        Ok(None)
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
