//! The loop as a state machine: told what happened, it says what to do next. No I/O, no clock, no
//! randomness: the same inputs give the same events and actions (docs/protocol.md, 7).
//!
//! `io` is what goes in and comes out; `ask` makes the next Request, `budget` counts it, and `completion_limit` is
//! what its reply may take; `reply` reads what the model says, while it says it; `calls` takes each call from
//! there to being made, `results` from there to what the model is told; `turns` is what it is shown of it
//! all, `window` what of that it is not; `end` is the end.

mod ask;
mod budget;
mod calls;
mod completion_limit;
mod decided;
mod end;
mod fallback;
mod fallbacks;
mod io;
mod plan;
mod plan_progress;
mod privacy;
#[cfg(test)]
mod random_tests;
mod reply;
mod results;
mod resume;
mod scopes;
mod screen;
mod turns;
mod window;
#[cfg(test)]
mod window_tests;

pub use io::{Action, Effects, Input, Work};

use crate::calls::CallChecks;
use crate::contract::ReplyReader;
use crate::guard::pii::Vault;
use crate::run::budget_tracker::RunUsage;
use crate::run::schedule::Schedule;
use budget::Fitting;
use fallbacks::Fallbacks;
use plan_progress::PlanProgress;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use toolhold_json::validate::Validator;
use toolhold_policy::ErrorClass;
use toolhold_protocol::advisor::Moment;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, FORMAT, StopReason};
use toolhold_protocol::plan::Mode;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::Turn;
use uuid::Uuid;
use window::WindowState;

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
    checks: CallChecks,
    output: Option<Validator>,
    context: Context,
    /// How much of the context's data was there before the run.
    given: usize,
    opening: Vec<Turn>,
    history: Vec<Turn>,
    /// The body of the last Request.
    sent: Option<Value>,
    step: StepState,
    /// Background calls, by id.
    background: BTreeMap<String, calls::Background>,
    /// Calls that run, of this step and in the background: at most `parallel_calls`.
    running: usize,
    steps: u32,
    calls: u32,
    /// Sub-agents that are over included.
    spent: RunUsage,
    /// Replies in a row that could not be used.
    unusable: u32,
    /// Replies that could be used.
    solutions: u32,
    /// The context's plan, and what became of its steps.
    progress: PlanProgress,
    fallbacks: Fallbacks,
    window: WindowState,
    /// Replies in a row that broke off before anything was done.
    broken: u32,
    /// The model wants to end, and is asked once more together with the advisors who wait for that.
    finishing: bool,
    /// The output, while background calls are still running.
    ending: Option<Value>,
    /// The screening in progress.
    waiting: Option<screen::PendingScreening>,
    /// Whether the model was told that a shield blocked its output.
    was_blocked: bool,
    /// Data that is hidden from the model.
    vault: Vault,
    /// Writes and turns whose values the vault has seen.
    noted: (usize, usize),
    finished: bool,
    /// Since the start of the run, as of the last input.
    elapsed: Duration,
}

/// One Request, its reply and the calls in it.
#[derive(Debug, Default)]
struct StepState {
    reader: Option<ReplyReader>,
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
    /// Notes for the model besides the calls' results.
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
        let checks = CallChecks::new(&offered)?;
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
            checks,
            output,
            context,
            history: Vec::new(),
            sent: None,
            step: StepState::default(),
            background: BTreeMap::new(),
            running: 0,
            steps: 0,
            calls: 0,
            spent: RunUsage::default(),
            unusable: 0,
            solutions: 0,
            progress: PlanProgress::default(),
            fallbacks: Fallbacks::default(),
            window: WindowState::default(),
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

    /// Usage of the run so far, ended sub-agents included.
    pub fn spent(&self) -> RunUsage {
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
            Input::Called { id, result } => self.called(&id, result, &mut effects),
            Input::Start => self.start(&mut effects),
            Input::Wrote(delta) => self.wrote(delta, &mut effects),
            Input::Replied(completion) => self.replied(completion, &mut effects),
            Input::ModelFailed(failure) => self.model_failed(failure, &mut effects),
            Input::Decided { id, decision } => self.decided(&id, decision, &mut effects),
            Input::Screened {
                call: None,
                screened,
            } => self.screened(screened, &mut effects),
            Input::Screened {
                call: Some(id),
                screened,
            } => self.call_screened(&id, screened, &mut effects),
            Input::Counted(counted) => self.tokens_counted(counted, &mut effects),
            Input::SideRequest(request) => self.asked_beside(request, &mut effects),
            Input::Resumed => self.resumed(&mut effects),
            Input::Cancelled => {
                self.finish(StopReason::Cancelled, Value::Null, None, &mut effects);
            }
            Input::OutOf(budget) => {
                self.fail(
                    budget.reason(),
                    ErrorClass::Fatal,
                    budget.taken().into(),
                    &mut effects,
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
                );
            }
        }
        effects
    }

    fn start(&mut self, effects: &mut Effects) {
        effects.events.push(EventKind::Run {
            format: FORMAT,
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
            self.begin_work(effects);
        }
    }

    fn begin_work(&mut self, effects: &mut Effects) {
        if self.request.plan.is_some() {
            self.carry_out(effects);
        } else {
            self.ask(effects);
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
            (None, Some(plan)) if plan.len() == 1 => "a saved plan of 1 step".to_owned(),
            (None, Some(plan)) => format!("a saved plan of {} steps", plan.len()),
            (None, None) => String::new(),
        }
    }

    /// Milliseconds since 1970 (UTC): a run's id tells when it began. A sub-agent's does not.
    fn now_ms(&self) -> Option<u64> {
        let (seconds, nanoseconds) = self.request.id.get_timestamp()?.to_unix();
        let began = Duration::new(seconds, nanoseconds);
        Some(millis(began + self.elapsed))
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
