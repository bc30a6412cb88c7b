//! Performs what the machine asks for: the only place in the loop with I/O, time and concurrency.
//!
//! Here runs begin; `performer` is one run until its end, `run_end` that it has ended, `tools` what runs its calls, `nested` what they call, `sink`
//! where its events go.

mod call_events;
mod heard;
mod nested;
mod performer;
mod run_clock;
mod run_end;
mod sink;
mod step_cost;
mod tools;

pub(in crate::run) use call_events::CallEventSender;
pub(in crate::run) use sink::Sink;

use crate::calls::aside::{BRIEF_STEPS, apart};
use crate::calls::{
    CallRules, CallableTools, KeptBlobs, KeptResults, OpenJobs, RecordedJob, ResultsOfRun,
};
use crate::catalogue::ToolCatalogue;
use crate::guard::shield::Shields;
use crate::retrieval::Retriever;
use crate::run::bind;
use crate::run::budget_tracker::BudgetTracker;
use crate::run::cancel::RunCancel;
use crate::run::decider::{Decider, NoDecider};
use crate::run::machine::{Input, Machine};
use crate::run::open_calls::OpenCalls;
use crate::run::outcomes::{CandidateOutcomes, FallbackAttempts};
use crate::run::replay::Replayed;
use crate::run::sub_agent::SubAgentEnd;
use crate::run::{Budgets, RunUsage};
use crate::toolbox::{Activities, Toolbox};
use futures_util::future::BoxFuture;
use performer::Performer;
use run_clock::RunClock;
use run_end::RunEnd;
use serde_json::Value;
use sink::{EndGrace, Publisher};
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};
use step_cost::StepCost;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use toolhold_model::Model;
use toolhold_policy::BeginCheck;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{Event, EventKind, Journal, Seal};
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::settings::{DEFAULT_INSTRUCTIONS, RunRequest};
use toolhold_protocol::shield::{Gates, ShieldPlace};
use toolhold_schema::{briefly, loosened};
use uuid::Uuid;

/// Capacity of the event channel, in events: a reader that falls further behind slows the run
/// instead of filling memory.
const EVENT_QUEUE: usize = 256;

/// Starts runs: a model, tools, and what they are put together with.
#[derive(Debug, Clone)]
pub struct Driver {
    pub model: Arc<dyn Model>,
    pub toolbox: Toolbox,
    pub activities: Activities,
    pub decider: Arc<dyn Decider>,
    /// Models that may be asked to make a call, by the names under which
    /// [`Fallback`](toolhold_protocol::fallback::Fallback) lists them.
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    /// Sums up conversations that do not fit, where the run's settings say so; absent: the model itself.
    pub summarizer: Option<Arc<dyn Model>>,
    pub shields: Shields,
    /// Instructions and output schema of the operator. Input shields do not screen them.
    pub operator: OperatorTexts,
    /// Told what comes of asking these.
    pub outcomes: Option<Arc<dyn CandidateOutcomes>>,
    /// Finds passages of documents for runs that ask for it; absent: they are told that there is none.
    pub retriever: Option<Arc<dyn Retriever>>,
    /// Results that the run may be given, and that are kept of it, if its settings say so.
    pub results: KeptResults,
    /// Keeps the bytes in results of its calls; by default until the run ends.
    pub blobs: KeptBlobs,
    /// Asked by the calls of its runs before they begin. In any case they ask their run.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// Jobs that calls of its runs wait for. Each run has its own, which its sub-agents share.
    pub jobs: OpenJobs,
}

/// Instructions and output schema from the operator's configuration. All other texts of a request are screened.
#[derive(Debug, Clone, Default)]
pub struct OperatorTexts {
    pub instructions: Option<String>,
    pub output_schema: Option<Value>,
}

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    pub id: Uuid,
    /// What happens, in order; ends after `done`.
    pub events: mpsc::Receiver<Event>,
    /// Stops the run: it still says `done`. Dropping the run stops it too.
    pub cancel: RunCancel,
    task: JoinHandle<Result<SubAgentEnd, RunError>>,
}

impl Run {
    /// Waits for the end of a run whose events were read.
    ///
    /// # Errors
    /// [`RunError::Journal`] or [`RunError::JournalSilent`] if the run was stopped because its record could not be written;
    /// [`RunError::Unread`] if it ended and its last events are in its record alone.
    pub async fn finished(mut self) -> Result<(), RunError> {
        match (&mut self.task).await {
            Ok(result) => result.map(drop),
            Err(error) => Err(RunError::Journal {
                source: std::io::Error::other(error),
            }),
        }
    }

    /// Stops the run where it is, without an end event, and waits until its journal is released: it can be resumed
    /// from its record. Calls that run are dropped with their guests.
    pub async fn stop(mut self) {
        self.task.abort();
        // It was aborted, or had ended.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Aborting drops the model's stream and every guest with it.
        self.task.abort();
    }
}

impl Driver {
    /// A driver without activities, shields and decider.
    pub fn new(model: Arc<dyn Model>, toolbox: impl Into<Toolbox>) -> Self {
        Self {
            model,
            toolbox: toolbox.into(),
            activities: Activities::default(),
            decider: Arc::new(NoDecider),
            candidates: BTreeMap::new(),
            summarizer: None,
            shields: Shields::default(),
            operator: OperatorTexts::default(),
            outcomes: None,
            retriever: None,
            results: KeptResults::default(),
            blobs: KeptBlobs::default(),
            begin: None,
            jobs: OpenJobs::default(),
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
        let mut fetches = Vec::new();
        let machine = self.machine(request, &mut fetches).await?;
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let cancel = RunCancel::default();
        let sink = Sink::Journal(Publisher {
            run: id,
            seq: 0,
            seal: Seal::default(),
            open: OpenCalls::default(),
            held: Vec::new(),
            journal,
            sender: Some(sender),
        });
        let begin = StartingPoint {
            fetches,
            ..StartingPoint::anew(machine.request().settings.timeout)
        };
        let budgets = Budgets::of(&machine.request().settings);
        let budget = Arc::new(BudgetTracker::new(budgets, RunUsage::default()));
        let task = tokio::spawn(
            self.clone()
                .perform(machine, begin, sink, budget, cancel.clone()),
        );
        Ok(Run {
            id,
            events,
            cancel,
            task,
        })
    }

    /// Resumes a run whose process ended. The run ends at once if its journal says that it was cancelled. `journal` appends
    /// to the events that were replayed.
    pub fn resume(&self, mut replayed: Replayed, journal: Box<dyn Journal>) -> Run {
        let notes = mem::take(&mut replayed.notes);
        self.take_up(replayed, journal, Input::Resumed { notes })
    }

    /// Ends a run whose process ended, as cancelled for this reason. No call continues; each has the end of a call whose run is
    /// cancelled at work.
    pub fn cancel(
        &self,
        replayed: Replayed,
        journal: Box<dyn Journal>,
        reason: Option<String>,
    ) -> Run {
        let run = self.take_up(replayed, journal, Input::Cancelled { reason });
        // It waits for its journal no longer than a run that is cancelled at work.
        run.cancel.cancel();
        run
    }

    fn take_up(&self, replayed: Replayed, journal: Box<dyn Journal>, input: Input) -> Run {
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let cancel = RunCancel::default();
        if journal.was_cancelled() {
            cancel.cancel();
        }
        let spent = replayed.spent();
        let (seq, seal) = (replayed.next, replayed.seal.clone());
        let open = replayed.open.clone();
        let time_left = replayed.time_left;
        let (machine, begin) = StartingPoint::again(replayed, time_left);
        let begin = StartingPoint { input, ..begin };
        let id = machine.request().id;
        let sink = Sink::Journal(Publisher {
            run: id,
            seq,
            seal,
            open,
            held: Vec::new(),
            journal,
            sender: Some(sender),
        });
        let budget = BudgetTracker::new(Budgets::of(&machine.request().settings), spent);
        let task = tokio::spawn(self.clone().perform(
            machine,
            begin,
            sink,
            Arc::new(budget),
            cancel.clone(),
        ));
        Run {
            id,
            events,
            cancel,
            task,
        }
    }

    fn gates(&self, request: &RunRequest) -> Gates {
        // A sub-agent's input is a call's, and was screened as that.
        if request.depth > 0 {
            return Gates::default();
        }
        let operator = &self.operator;
        let results = request.context.iter().filter_map(|message| match message {
            Message::ToolResult(result) => Some(result.tool.as_str()),
            _ => None,
        });
        let screened =
            results.filter(|tool| self.shields.applies_to(ShieldPlace::ToolOutput, Some(tool)));
        Gates {
            instructions: request.instructions != DEFAULT_INSTRUCTIONS
                && operator.instructions.as_ref() != Some(&request.instructions),
            output_schema: request.output_schema.is_some()
                && operator.output_schema != request.output_schema,
            tool_results: screened.map(str::to_owned).collect(),
        }
    }

    /// Everything that can be wrong about a request is found here. What was fetched goes to `fetches`.
    pub(in crate::run) async fn machine(
        &self,
        mut request: RunRequest,
        fetches: &mut Vec<RequestFetch>,
    ) -> Result<Machine, RunError> {
        let instructions = request.all_instructions().into_owned();
        request.policy = self
            .shields
            .policy(&request.settings, Some(&instructions), request.depth);
        request.policy.gates = Some(self.gates(&request));
        request.settings.window.counted = self.model.counter().is_some();
        let lane = request.id.to_string();
        // A client's messages are checked against the types that it sends with them.
        let context = briefly(BRIEF_STEPS, || Context::new(request.context.clone()));
        let is_long = context.is_none();
        let context = match context {
            Some(context) => context?,
            None => {
                let messages = request.context.clone();
                apart(&lane, move || Context::new(messages)).await?
            }
        };
        let offered = if request.own_tools_only {
            Arc::default()
        } else {
            let tools = self.toolbox.source.tools();
            if ToolCatalogue::is_brief(&tools) {
                ToolCatalogue::shared(tools)?
            } else {
                apart(&lane, move || ToolCatalogue::shared(tools)).await?
            }
        };
        let activities = match request.depth {
            0 => self.activities.clone(),
            _ => self.activities.clone().without_clients(),
        };
        let (tools, warnings) = bind::bind(
            &context,
            &offered,
            self.toolbox.source.as_ref(),
            &activities,
            fetches,
        )
        .await?;
        let screened = tools.iter().filter(|bound| {
            let tool = Some(bound.called());
            self.shields.applies_to(ShieldPlace::ToolInput, tool)
        });
        request.policy.tool_inputs = screened.map(|bound| bound.tool.name.clone()).collect();
        let model = self.model.name().to_owned();
        // It checks the context again.
        let machine = move || {
            let tools = offered.extended(&tools)?;
            let mut warnings = warnings;
            warnings.extend(loosen_output(&mut request));
            Machine::new(request, model, tools, warnings)
        };
        if is_long {
            apart(&lane, machine).await
        } else {
            machine()
        }
    }

    /// Runs a machine to its end.
    pub(super) fn perform(
        mut self,
        machine: Machine,
        begin: StartingPoint,
        sink: Sink,
        budget: Arc<BudgetTracker>,
        cancel: RunCancel,
    ) -> BoxFuture<'static, Result<SubAgentEnd, RunError>> {
        Box::pin(async move {
            let (events, call_events) = CallEventSender::channel(EVENT_QUEUE);
            let RunRequest {
                id,
                settings,
                depth,
                ..
            } = machine.request();
            self.results = self.results.of_run(*id, &settings.result_cache);
            // After the performer, which drops the calls that still run.
            let mut tools = machine.tools().iter();
            let has_client_tools = tools.any(|bound| bound.runner == Runner::Client);
            let _kept =
                (*depth == 0).then(|| ResultsOfRun::new(self.results.clone(), has_client_tools));
            if *depth == 0 {
                self.jobs = OpenJobs::default();
                self.blobs = self.blobs.of_run(*id);
            }
            let open_jobs = self.jobs.of_run(*id);
            let rules = CallRules {
                shields: self.shields.clone(),
                decisions: settings.decisions.clone(),
                call_timeout: settings.call_timeout,
                tool_retry: settings.tool_retry,
                jobs: settings.jobs,
                results: self.results.clone(),
                repair: settings.repair,
            };
            let deadline = Instant::now() + begin.time_left;
            let grace = EndGrace {
                cancel: cancel.clone(),
                deadline: deadline.into(),
                until: None,
            };
            let end = Arc::new(RunEnd::new(cancel.clone(), self.begin.take()));
            // For the runs inside of this one: they go on for as long as it does.
            self.begin = Some(end.clone());
            let performer = Performer {
                end,
                cost: StepCost::new(&machine, &begin.input),
                was_long: false,
                rules: Arc::new(rules),
                tools: Arc::new(CallableTools::of_run(machine.catalogue().clone())),
                deadline,
                clock: RunClock::after(begin.elapsed),
                budget,
                parent: Arc::new(machine.request().clone()),
                driver: Arc::new(self),
                session: None,
                class: begin.class.clone(),
                sink,
                grace,
                events,
                subs: BTreeMap::new(),
                jobs: BTreeMap::new(),
                open_jobs,
                nested_spent: HashMap::new(),
                offered: machine.tools().clone(),
                work: JoinSet::new(),
                doing: HashMap::new(),
                waiting: Vec::new(),
                attempts: FallbackAttempts::default(),
                untold: Vec::new(),
            };
            Box::pin(performer.perform(machine, begin, call_events, cancel)).await
        })
    }
}

/// The point at which a machine begins or resumes.
pub(super) struct StartingPoint {
    /// Events that are computed but not published yet.
    pub unsaid: Vec<EventKind>,
    /// What was fetched for the tools of a run that begins.
    pub fetches: Vec<RequestFetch>,
    pub input: Input,
    pub elapsed: Duration,
    pub time_left: Duration,
    /// Sub-agents that were at work.
    pub subs: BTreeMap<String, Replayed>,
    /// Jobs of calls that are not over.
    pub jobs: BTreeMap<String, RecordedJob>,
    /// The class of the task, if that was decided.
    pub class: Option<String>,
}

impl StartingPoint {
    pub fn anew(time_left: Duration) -> Self {
        Self {
            unsaid: Vec::new(),
            fetches: Vec::new(),
            input: Input::Start,
            elapsed: Duration::ZERO,
            time_left,
            subs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            class: None,
        }
    }

    pub fn again(replayed: Replayed, time_left: Duration) -> (Machine, Self) {
        let begin = Self {
            unsaid: replayed.unsaid,
            fetches: Vec::new(),
            input: Input::Resumed { notes: Vec::new() },
            elapsed: replayed.elapsed,
            time_left,
            subs: replayed.subs,
            jobs: replayed.jobs,
            class: replayed.class,
        };
        (replayed.machine, begin)
    }
}

/// Leaves out what cannot be checked in the output schema, as in those of tools, and tells it. A keyword that is wrong stays,
/// and the request is refused.
fn loosen_output(request: &mut RunRequest) -> Vec<String> {
    let Some(schema) = &mut request.output_schema else {
        return Vec::new();
    };
    match loosened(schema) {
        Some(loose) if loose.is_well_formed(schema) => {
            let told = loose.told("the output schema");
            *schema = loose.schema;
            told
        }
        _ => Vec::new(),
    }
}
