//! The loop as a state machine: told what happened, it says what to do next. No I/O, no clock, no
//! randomness: the same inputs give the same events and actions (PROTOCOL.md, 7).
//!
//! `reply` reads what the model says, while it says it; `calls` takes each call from there to being
//! made, `results` from there to what the model is told; `turns` is what it is shown of it all.

mod budget;
mod calls;
mod carried;
mod decided;
mod fallback;
mod plan;
mod privacy;
#[cfg(test)]
mod random_tests;
mod reply;
mod results;
mod resume;
mod screen;
mod turns;
mod window;

use crate::context::counts::Counted;
use crate::contract::{Reader, View};
use crate::cost::Amount;
use crate::error::{ErrorClass, RunError};
use crate::event::{EventKind, RunFailure, Shared, StopReason};
use crate::guard::pii::{Masked, Vault};
use crate::guard::shield::{Screened, Screening};
use crate::guard::{Gate, Validator};
use crate::model::{ChatRequest, Completion, Delta, SideRequest};
use crate::protocol::advisor::{self, Moment};
use crate::protocol::compose::Composition;
use crate::protocol::context::{Context, Message};
use crate::protocol::meta;
use crate::protocol::plan::Mode;
use crate::protocol::{Call, Tool, Turn};
use crate::run::approval::{Decision, Pending};
use crate::run::purse::{Budget, Budgets, Spent};
use crate::run::schedule::Schedule;
use crate::run::settings::Wiring;
use crate::run::{Bound, RunRequest, Runner};
use crate::toolbox::{ToolCall, ToolResult};
use budget::{Composed, Fitting};
use carried::Carried;
use fallback::Fallbacks;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use window::Window;

/// What happened.
#[derive(Debug)]
pub enum Input {
    Start,
    /// A piece of the reply arrived.
    Wrote(Delta),
    Replied(Completion),
    /// There is no reply, or no more of it.
    ModelFailed(RunFailure),
    Called {
        id: String,
        result: ToolResult,
    },
    /// A person decided about a call that waits.
    Decided {
        id: String,
        decision: Decision,
    },
    /// What the shields say of the run's input or output.
    Screened(Screened),
    /// How many tokens the texts are that [`Action::Count`] named.
    Counted(Counted),
    /// A model was asked on behalf of the run, beside its own Requests.
    SideRequest(SideRequest),
    /// The process that ran this ended; nothing that was begun is under way any more.
    Resumed,
    Cancelled,
    TimedOut,
    /// Other sub-agents of the run that this one is inside of took what was left.
    OutOf(Budget),
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    Ask {
        request: Box<ChatRequest>,
        /// What the run is about, as a model is shown it: by this it may be decided who is asked.
        task: String,
        /// The candidate that is asked ([`crate::run::fallback::Candidate::name`]); nobody in
        /// particular is the run's own model.
        candidate: Option<String>,
    },
    Call(Box<Work>),
    /// Ask a person.
    Decide(Box<Pending>),
    /// Ask the shields about the run's input or output.
    Screen(Box<Screening>),
    /// Ask the endpoint how many tokens each of these texts is; as the model is shown them.
    Count(Vec<String>),
    /// Nothing more; whatever still runs is to be stopped.
    Finish,
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Work {
    pub call: ToolCall,
    pub runner: Runner,
    /// The tool's name, as it is offered.
    pub offered: String,
    /// Placeholders that it is given in the place of data, and that it may give back.
    pub masked: Masked,
    /// What the arguments must satisfy.
    pub parameters: Value,
    /// What the tool is for.
    pub description: String,
    /// What the tool's result must satisfy.
    pub output: Option<Value>,
    /// What a sub-agent may take.
    pub left: Budgets,
    /// The Requests that the run may still make.
    pub steps_left: u32,
    /// It was begun before the process ended, and counted then.
    pub again: bool,
}

/// The events to publish, in order, before the actions are begun.
#[derive(Debug, Default)]
pub struct Effects {
    pub events: Vec<EventKind>,
    pub actions: Vec<Action>,
}

/// The state of one run.
#[derive(Debug)]
pub struct Machine {
    request: RunRequest,
    model: String,
    tools: Vec<Bound>,
    /// The same, as the model is shown them.
    offered: Vec<Tool>,
    /// The same, as calls carry them.
    schemas: Vec<Arc<Value>>,
    warnings: Vec<String>,
    gate: Gate,
    output: Option<Validator>,
    context: Context,
    /// How much of the context's data was there before the run.
    given: usize,
    opening: Vec<Turn>,
    history: Vec<Turn>,
    /// The body of the last Request.
    sent: Option<Value>,
    step: Step,
    /// Calls that nobody waits for, by id.
    background: BTreeMap<String, calls::Background>,
    /// Calls that run, of this step and in the background: at most `parallel_calls`.
    running: usize,
    steps: u32,
    calls: u32,
    /// Sub-agents that are over included.
    spent: Spent,
    /// Replies in a row that could not be used.
    unusable: u32,
    /// Replies that could be used.
    solutions: u32,
    /// The context's plan, and what became of its steps.
    carried: Carried,
    fallbacks: Fallbacks,
    window: Window,
    /// Replies in a row that broke off before anything was done.
    broken: u32,
    /// The model wants to end, and is asked once more together with the advisors who wait for that.
    finishing: bool,
    /// The output, while calls that nobody waits for are still running.
    ending: Option<Value>,
    /// What the shields are asked about.
    waiting: Option<screen::Waiting>,
    /// Whether the model was told that a shield blocked its output.
    was_blocked: bool,
    /// What the model does not see.
    vault: Vault,
    /// Writes and turns whose values the vault has seen.
    noted: (usize, usize),
    finished: bool,
    /// Since the start of the run, as of the last input.
    elapsed: Duration,
}

/// One Request, its reply and the calls in it.
#[derive(Debug, Default)]
struct Step {
    reader: Option<Reader>,
    open: Vec<calls::Open>,
    schedule: Schedule,
    /// Calls that may run, and wait for others to make room.
    queue: VecDeque<usize>,
    /// Calls of a lazy plan.
    planned: Vec<Call>,
    /// Calls beyond the most that are made.
    ignored: usize,
    /// Whether anything of the reply arrived.
    has_begun: bool,
    /// Whether the reply came to its end. A plan in it may wait for a person then.
    has_reply: bool,
    /// Whether nothing more comes of the reply: what is open now is all.
    is_over: bool,
    output: Option<Value>,
    /// What the model is told besides the calls' results.
    notes: Vec<String>,
    /// The schema of what the advisors say, if some take part.
    advisors: Option<Value>,
    moment: Moment,
    /// Whether the meta that this reply needs was read and accepted.
    has_meta: bool,
    /// The Request is not sent before its texts are counted.
    fitting: Fitting,
}

impl Machine {
    /// `tools` as [`crate::run::bind`] found them.
    ///
    /// # Errors
    /// A context that cannot be used, schemas that are none.
    pub fn new(
        request: RunRequest,
        model: String,
        tools: Vec<Bound>,
        warnings: Vec<String>,
    ) -> Result<Self, RunError> {
        let mut context = Context::new(request.context.clone())?;
        context.check_input()?;
        if request.settings.dry_run {
            // Whatever the model does is a plan, and nothing of a lazy one runs before it was checked.
            let plan = context.plan.get_or_insert_default();
            plan.mode = Mode::Lazy;
        }
        let offered: Vec<Tool> = tools.iter().map(|bound| bound.tool.clone()).collect();
        let gate = Gate::new(&offered)?;
        let output = request
            .output_schema
            .as_ref()
            .map(Validator::new)
            .transpose()
            .map_err(|reason| RunError::OutputSchema { reason })?;
        let mut machine = Self {
            vault: Vault::new(request.settings.privacy.clone()),
            noted: (0, 0),
            waiting: None,
            was_blocked: false,
            given: context.data.log().len(),
            opening: Vec::new(),
            request,
            model,
            tools,
            schemas: offered.iter().map(|tool| Arc::new(tool.schema())).collect(),
            offered,
            warnings,
            gate,
            output,
            context,
            history: Vec::new(),
            sent: None,
            step: Step::default(),
            background: BTreeMap::new(),
            running: 0,
            steps: 0,
            calls: 0,
            spent: Spent::default(),
            unusable: 0,
            solutions: 0,
            carried: Carried::default(),
            fallbacks: Fallbacks::default(),
            window: Window::default(),
            broken: 0,
            finishing: false,
            ending: None,
            finished: false,
            elapsed: Duration::ZERO,
        };
        machine.opening = machine.open_turns();
        machine.open_window();
        machine.warn_of_names();
        machine.take_plans()?;
        Ok(machine)
    }

    /// The run's data as it is now.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn request(&self) -> &RunRequest {
        &self.request
    }

    /// Every tool of the run, with what runs it.
    pub fn tools(&self) -> &[Bound] {
        &self.tools
    }

    /// What the run took so far, sub-agents that are over included.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Takes one input, `elapsed` after the start of the run. After [`Action::Finish`] nothing more
    /// comes of it.
    pub fn handle(&mut self, input: Input, elapsed: Duration) -> Effects {
        let mut effects = Effects::default();
        if self.finished {
            return effects;
        }
        self.elapsed = elapsed;
        match input {
            Input::Called { id, result } => self.called(&id, result, &mut effects, elapsed),
            Input::Start => self.start(&mut effects, elapsed),
            Input::Wrote(delta) => self.wrote(delta, &mut effects),
            Input::Replied(completion) => self.replied(completion, &mut effects, elapsed),
            Input::ModelFailed(failure) => self.model_failed(failure, &mut effects, elapsed),
            Input::Decided { id, decision } => self.decided(&id, decision, &mut effects, elapsed),
            Input::Screened(screened) => self.screened(screened, &mut effects, elapsed),
            Input::Counted(counted) => self.tokens_counted(counted, &mut effects),
            Input::SideRequest(request) => self.asked_beside(request, &mut effects),
            Input::Resumed => self.resumed(&mut effects, elapsed),
            Input::Cancelled => {
                self.finish(
                    StopReason::Cancelled,
                    Value::Null,
                    None,
                    &mut effects,
                    elapsed,
                );
            }
            Input::OutOf(budget) => {
                self.fail(
                    budget.reason(),
                    ErrorClass::Fatal,
                    budget.taken().into(),
                    &mut effects,
                    elapsed,
                );
            }
            Input::TimedOut => {
                let message = format!(
                    "the run did not finish within {} s",
                    self.request.settings.timeout.as_secs_f32()
                );
                self.fail(
                    StopReason::Timeout,
                    ErrorClass::Retryable,
                    message,
                    &mut effects,
                    elapsed,
                );
            }
        }
        effects
    }

    fn start(&mut self, effects: &mut Effects, elapsed: Duration) {
        effects.events.push(EventKind::Run {
            task: self.task(),
            model: self.model.clone(),
            request: Box::new(self.request.clone()),
            tools: self.tools.clone(),
            host: env!("CARGO_PKG_VERSION").into(),
        });
        for message in std::mem::take(&mut self.warnings) {
            effects.events.push(EventKind::Notice { step: 0, message });
        }
        if !self.screens_input(effects) {
            self.begin_work(effects, elapsed);
        }
    }

    fn begin_work(&mut self, effects: &mut Effects, elapsed: Duration) {
        if self.request.plan.is_some() {
            self.carry_out(effects, elapsed);
        } else {
            self.ask(effects, elapsed);
        }
    }

    pub(super) fn task(&self) -> String {
        let mut texts = self
            .request
            .context
            .iter()
            .filter_map(|message| match message {
                Message::Text(text) => Some(text.text.as_str()),
                _ => None,
            });
        match (texts.next(), &self.request.plan) {
            (Some(text), _) => text.to_owned(),
            (None, Some(plan)) => format!("a saved plan of {} steps", plan.len()),
            (None, None) => String::new(),
        }
    }

    /// The next Request, if there may be one.
    fn ask(&mut self, effects: &mut Effects, elapsed: Duration) {
        if let Some((reason, message)) = self.exhausted() {
            return self.fail(reason, ErrorClass::Correctable, message, effects, elapsed);
        }
        self.steps += 1;
        self.send(effects);
    }

    /// Which limit does not allow another Request.
    fn exhausted(&self) -> Option<(StopReason, String)> {
        let settings = &self.request.settings;
        if self.own_steps() >= settings.max_steps {
            let message = format!(
                "no output after {} steps (run.max_steps)",
                settings.max_steps
            );
            return Some((StopReason::MaxSteps, message));
        }
        self.overdrawn()
    }

    /// The Requests to the run's own model.
    fn own_steps(&self) -> u32 {
        self.steps.saturating_sub(self.fallbacks.requests)
    }

    /// Which of what a run and its sub-agents share is used up.
    fn overdrawn(&self) -> Option<(StopReason, String)> {
        let settings = &self.request.settings;
        let budgets = Budgets::of(settings);
        let (budget, message) = budgets.overdrawn(&self.spent, &settings.currency)?;
        Some((budget.reason(), message))
    }

    fn send(&mut self, effects: &mut Effects) {
        let moment = Moment {
            // A reply that could not be used was no iteration: who speaks first was not heard.
            first: self.solutions == 0,
            finishing: self.finishing,
        };
        let advisors = match self.forced() {
            Some(_) => Vec::new(),
            None => advisor::taking_part(&self.context.advisors, moment),
        };
        self.step = Step {
            moment,
            reader: Some(self.contract().reader(self.offered())),
            advisors: (!advisors.is_empty())
                .then(|| advisor::schema(&advisors, &self.context.instances)),
            ..Step::default()
        };
        self.send_fitting(effects);
    }

    /// Sends what [`Self::send`] began, once it fits and its texts are counted.
    fn send_fitting(&mut self, effects: &mut Effects) {
        let Some(request) = self.fit(effects) else {
            return;
        };
        let sent = request.body();
        let (same, body) = Shared::split(self.sent.as_ref(), &sent);
        effects.events.push(EventKind::Request {
            step: self.steps,
            same,
            body,
        });
        self.sent = Some(sent);
        effects.actions.push(Action::Ask {
            request: Box::new(request),
            task: {
                let task = self.task();
                self.vault.hide(&task)
            },
            candidate: self.addressee().map(str::to_owned),
        });
    }

    /// The next Request as it would be now.
    fn compose(&mut self, effects: &mut Effects) -> Composed {
        let (turns, instructions) = self.shown(effects);
        let meta = self.needed_meta().map(meta::schema);
        let view = View {
            instructions: &instructions,
            ..self.view(&turns, meta.as_ref())
        };
        let request = self.contract().request(&view);
        let request = self.hidden_request(request, effects);
        self.composed(request, &turns)
    }

    fn view<'a>(&'a self, turns: &'a [Turn], meta: Option<&'a Value>) -> View<'a> {
        let settings = &self.request.settings;
        let forced = self.forced();
        View {
            model: self.model(),
            instructions: &self.request.instructions,
            turns,
            tools: self.offered(),
            output_schema: self.request.output_schema.as_ref(),
            settings,
            composition: Composition {
                shape: settings.shape,
                reasons: settings.reasons,
                max_calls: self.max_calls(),
                max_string: None,
                wiring: self.is_wired(),
                lazy: self.is_lazy(),
                instances: &self.context.instances,
                meta,
                advisors: self.step.advisors.as_ref(),
                forced: forced.is_some(),
            },
        }
    }

    /// The tools that the reply may call.
    fn offered(&self) -> &[Tool] {
        let forced = self.forced().and_then(|name| {
            let all = self.offered.as_slice();
            let at = all.iter().position(|tool| tool.name == name)?;
            all.get(at..=at)
        });
        forced.unwrap_or_else(|| self.toolset())
    }

    /// What the reply's `meta` moves on from, if it needs one.
    fn needed_meta(&self) -> Option<&meta::Meta> {
        self.context
            .meta
            .as_ref()
            .filter(|_| self.forced().is_none())
    }

    fn is_wired(&self) -> bool {
        match self.request.settings.wiring {
            Wiring::Always => true,
            Wiring::Never => false,
            Wiring::Auto => {
                self.context.has_data()
                    || self.context.plan.is_some()
                    || self
                        .tools
                        .iter()
                        .any(|bound| bound.tool.output_path.is_some())
            }
        }
    }

    fn is_lazy(&self) -> bool {
        let plan = self.context.plan.as_ref();
        self.forced().is_none() && plan.is_some_and(|plan| plan.mode == Mode::Lazy)
    }

    /// Each instance gets as many calls as a run without instances.
    fn max_calls(&self) -> usize {
        if self.forced().is_some() {
            return 1;
        }
        let instances = self.context.instances.len().max(1);
        self.request.settings.max_calls.saturating_mul(instances)
    }

    fn tool(&self, name: &str) -> Option<&Bound> {
        self.tools.iter().find(|bound| bound.tool.name == name)
    }

    /// A tool of the run as its calls are told of it.
    fn schema(&self, name: &str) -> Arc<Value> {
        let mut schemas = self.offered.iter().zip(&self.schemas);
        let own = schemas.find(|(tool, _)| tool.name == name);
        own.map(|(_, schema)| schema.clone()).unwrap_or_default()
    }

    /// Ends the run without a final output.
    fn fail(
        &mut self,
        reason: StopReason,
        class: ErrorClass,
        message: String,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        let failure = RunFailure::new(class, message);
        self.finish(reason, Value::Null, Some(failure), effects, elapsed);
    }

    fn finish(
        &mut self,
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        if reason == StopReason::Output && !self.background.is_empty() {
            // Nobody waits for their results, but what they do should be done.
            self.ending = Some(output);
            return;
        }
        let output = match output {
            Value::Null if self.withholds() => self.ending.take().unwrap_or_default(),
            Value::Null => {
                let so_far = self.so_far();
                self.for_user(so_far)
            }
            output => output,
        };
        self.finished = true;
        effects.events.push(EventKind::Done {
            reason,
            output,
            error,
            steps: self.steps,
            calls: self.calls,
            tokens: self.spent.tokens,
            cost_nano: self.cost(),
            duration_ms: millis(elapsed),
        });
        effects.actions.push(Action::Finish);
    }

    /// Counted when it is told: whether there may be another Request is decided before each.
    fn asked_beside(&mut self, request: SideRequest, effects: &mut Effects) {
        let counts_money = self.counts_money();
        self.spent = self.spent.plus(Spent::beside(&request, counts_money));
        effects.events.push(EventKind::SideRequest(request));
    }

    /// Whether what a reply costs has to be known.
    fn counts_money(&self) -> bool {
        let settings = &self.request.settings;
        settings.price.is_some() || settings.max_cost.is_some()
    }

    /// What the run cost, if it has prices and they tell all of it.
    fn cost(&self) -> Option<Amount> {
        let is_known = self.request.settings.price.is_some() && self.spent.unpriced == 0;
        is_known.then_some(self.spent.cost)
    }

    /// Milliseconds since 1970 (UTC): a run's id tells when it began. A sub-agent's does not.
    fn now_ms(&self) -> Option<u64> {
        let (seconds, nanoseconds) = self.request.id.get_timestamp()?.to_unix();
        let began = Duration::new(seconds, nanoseconds);
        Some(millis(began + self.elapsed))
    }

    /// What there is when a run is stopped: the output that was about to be returned, or else the data
    /// that calls wrote.
    fn so_far(&mut self) -> Value {
        self.ending.take().unwrap_or_else(|| {
            let written = self.written();
            if written.is_empty() {
                Value::Null
            } else {
                written.into()
            }
        })
    }

    /// Eight hex digits that only this run can know, and that it finds again when it is replayed.
    fn derive(&self, what: &str, index: usize) -> String {
        let name = format!("{what}.{}.{index}", self.steps);
        let id = Uuid::new_v5(&self.request.id, name.as_bytes())
            .simple()
            .to_string();
        id[..8].to_owned()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
