//! The loop as a state machine: told what happened, it says what to do next. No I/O, no clock, no
//! randomness: the same inputs give the same events and actions (docs/protocol.md, 7).
//!
//! [`Machine`] is put together of states of their own, each with its tests beside it:
//!
//! | state | what it knows |
//! |---|---|
//! | `tools`: `ToolTable` | what runs each tool, which the model is shown, the checks of their calls |
//! | `step_calls`: `StepCalls` | where each call of a step is on its way, and which of them may go on |
//! | `running_calls`: `RunningCalls` | how many calls run, and those in the background |
//! | `conversation`: `ConversationState` | the summary of the conversation before the task |
//! | `history`: `History` | what happened, its summary, and the results that are kept outside of the window |
//! | `window_tokens`: `WindowTokens` | the window, and the tokens of what is sent |
//! | `completion_limit`: `CompletionLimit` | what a reply may take |
//! | `reply_counts`: `ReplyCounts` | how many replies could be used, and how many in a row could not |
//! | `account`: `UsageAccount` | what the run used of its budgets |
//! | `privacy`: `RunPrivacy` | what is hidden from the model, from tools and from the user |
//! | `plan_progress`: `PlanProgress` | what became of each step of the plan that is carried |
//! | `consulted`: `ConsultedVotes` | votes of advisors that answered a call |
//! | `fallbacks`: `Fallbacks` | how often each tool failed, and the fallback in progress |
//! | `material`: `Material` | what the model was shown, which it may repeat |
//!
//! They make no events. The other files do, which conduct them: `io` is what goes in and comes out; `ask` makes
//! the next Request, `window` fits it, and `conversation` sums up earlier turns for that; `reply` reads what the model says, while it says it; `calls` takes
//! each call from there to being made (`wiring` is what it says of data, `scopes` what it sees), `results` from
//! there to what the model is told; `council` holds calls until its votes let them go; `plan` runs plans, which `plan_check` checks; `retrieval` looks for passages of documents and
//! checks citations; `demand` is the call that a client demands; `context_turns` is how the context is shown; `end` is the end, and `hand_over` that of a run whose
//! other calls are its client's.

mod account;
mod appending;
mod ask;
mod calls;
mod completion_limit;
mod composed;
mod consulted;
mod context_turns;
mod conversation;
mod council;
mod decided;
mod demand;
mod end;
mod fallback;
mod fallbacks;
mod hand_over;
mod history;
mod io;
mod material;
mod message_parts;
mod plan;
mod plan_check;
mod plan_progress;
mod privacy;
#[cfg(test)]
mod random_tests;
mod reply;
mod reply_counts;
mod results;
mod resume;
mod retrieval;
mod running_calls;
mod scopes;
mod screen;
mod step_calls;
mod tools;
mod window;
#[cfg(test)]
mod window_tests;
mod window_tokens;
mod wiring;

pub use io::{Action, Effects, Input, Work};

use crate::calls::validator;
use crate::catalogue::ToolCatalogue;
use crate::contract::ReplyReader;
use crate::language::told_instructions;
use crate::run::budget_tracker::RunUsage;
use crate::run::rules::LoopRules;
use account::UsageAccount;
use completion_limit::CompletionLimit;
use conversation::ConversationState;
use fallbacks::Fallbacks;
use hand_over::OwnCalls;
use history::History;
use material::Material;
use plan_progress::PlanProgress;
use privacy::RunPrivacy;
use reply_counts::ReplyCounts;
use retrieval::RetrievalState;
use running_calls::RunningCalls;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use step_calls::StepCalls;
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor::Moment;
use toolhold_protocol::bound::BoundTools;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::context::{Context, ContextError, Message};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, PROMPTS, RunFailure, StopReason};
use toolhold_protocol::image::Image;
use toolhold_protocol::plan::Mode;
use toolhold_protocol::reply_offset::ReplyOffset;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::{CarriedReasoning, Turn};
use toolhold_schema::Validator;
use tools::ToolTable;
use uuid::Uuid;
use window_tokens::{Fitting, WindowTokens};

/// The state of one run.
#[derive(Debug)]
pub struct Machine {
    rules: LoopRules,
    request: RunRequest,
    /// What every Request of the run's models begins with.
    instructions: String,
    model: String,
    tools: ToolTable,
    warnings: Vec<String>,
    output: Option<Arc<Validator>>,
    context: Context,
    /// The turns that every Request begins with.
    opening: Vec<Turn>,
    /// Marks where passages begin and end in them. No document knows it.
    fence: String,
    history: History,
    conversation: ConversationState,
    /// The body of the last Request.
    sent: Option<Value>,
    /// True where the record has another body than `sent`, because another version composed it.
    records_whole_bodies: bool,
    step: StepState,
    running: RunningCalls,
    steps: u32,
    usage: UsageAccount,
    replies: ReplyCounts,
    /// The context's plan, and what became of its steps.
    progress: PlanProgress,
    fallbacks: Fallbacks,
    window: WindowTokens,
    reply_limit: CompletionLimit,
    /// The model wants to end, and is asked once more together with the advisors who wait for that.
    finishing: bool,
    council: council::CouncilState,
    /// The output, while background calls are still running.
    ending: Option<Value>,
    /// The screening in progress.
    waiting: Option<screen::PendingScreening>,
    /// Whether the model was told that a shield blocked its output.
    was_blocked: bool,
    retrieval: RetrievalState,
    material: Box<Material>,
    /// Whether the model was told that its output's citations did not hold.
    was_uncited: bool,
    privacy: RunPrivacy,
    own_calls: OwnCalls,
    /// True until the call was made that the run has to make before it answers.
    is_call_due: bool,
    finished: bool,
    /// Since the start of the run, as of the last input.
    elapsed: Duration,
}

/// One Request, its reply and the calls in it.
#[derive(Debug, Default)]
struct StepState {
    /// Reads the recorded text of the reply. Absent once something speaks against the reply.
    reader: Option<Box<ReplyReader>>,
    /// Has read what follows as well, and says when the run acts on it.
    ahead: Option<Box<ReplyReader>>,
    /// Pieces that were shown and are not recorded, since the recorded text.
    unrecorded: Vec<Delta>,
    /// How far the reply is shown.
    shown: ReplyOffset,
    /// How far it is recorded.
    recorded: ReplyOffset,
    /// The record has each piece, as older versions wrote it.
    has_deltas: bool,
    /// End of the recorded reasoning, which goes back if the reply breaks off.
    thought: String,
    /// Reasoning that goes back with the calls.
    reasoning: CarriedReasoning,
    calls: StepCalls,
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
    notes: Vec<PromptText>,
    /// Images of the calls' results, in the order in which these came.
    images: Vec<Image>,
    /// The schema of what the advisors say, if some take part.
    advisors: Option<Value>,
    /// Whether the reply is what they say and nothing else.
    is_vote: bool,
    /// Names of the tools of which the reply has to call one, as they go out.
    demanded: Vec<String>,
    /// What they said in this reply, once it is complete.
    votes: Option<council::ReplyVotes>,
    /// Whether the record has the votes already, because a call began.
    is_council_told: bool,
    /// Calls that wait for it.
    awaiting: Vec<Call>,
    /// Ids of the calls that they hold.
    held: Vec<String>,
    moment: Moment,
    /// Whether the meta that this reply needs was read and accepted.
    has_meta: bool,
    /// The Request is not sent before its texts are counted.
    fitting: Fitting,
}

impl StepState {
    fn under(rules: LoopRules) -> Self {
        Self {
            calls: StepCalls::under(rules),
            ..Self::default()
        }
    }

    /// The calls of the reply that were taken so far.
    fn taken(&self) -> usize {
        self.calls.len() + self.awaiting.len() + self.planned.len()
    }
}

impl Machine {
    /// `tools` as [`crate::run::bind`] found them.
    ///
    /// # Errors
    /// A context that cannot be used, an output schema that is none.
    pub fn new(
        request: RunRequest,
        model: String,
        tools: Arc<ToolCatalogue>,
        warnings: Vec<String>,
    ) -> Result<Self, RunError> {
        Self::under(LoopRules::default(), request, model, tools, warnings)
    }

    /// A run that goes by the rules under which its record was begun.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(in crate::run) fn under(
        rules: LoopRules,
        request: RunRequest,
        model: String,
        tools: Arc<ToolCatalogue>,
        warnings: Vec<String>,
    ) -> Result<Self, RunError> {
        let context = context_of(&request)?;
        let tools = ToolTable::under(rules.reading(), tools);
        let output = request
            .output_schema
            .as_ref()
            .map(validator)
            .transpose()
            .map_err(|reason| RunError::OutputSchema { reason })?;
        let mut machine = Self {
            rules,
            privacy: RunPrivacy::new(request.settings.privacy.clone()),
            own_calls: OwnCalls::new(tools.bound()),
            is_call_due: request.settings.must_call,
            window: WindowTokens::new(request.settings.window.tokens, rules),
            reply_limit: CompletionLimit::new(&request.settings),
            usage: UsageAccount::new(&request.settings),
            replies: ReplyCounts::new(&request.settings),
            waiting: None,
            was_blocked: false,
            retrieval: RetrievalState::default(),
            material: Box::new(Material::under(rules.reading())),
            was_uncited: false,
            opening: Vec::new(),
            fence: String::new(),
            instructions: told_instructions(&request).into_owned(),
            request,
            model,
            tools,
            warnings,
            output,
            context,
            history: History::default(),
            conversation: ConversationState::default(),
            sent: None,
            records_whole_bodies: false,
            step: StepState::under(rules),
            running: RunningCalls::default(),
            steps: 0,
            progress: PlanProgress::default(),
            fallbacks: Fallbacks::default(),
            finishing: false,
            council: council::CouncilState::default(),
            ending: None,
            finished: false,
            elapsed: Duration::ZERO,
        };
        machine.fence = machine.derive("knowledge", 0);
        machine.opening = machine.opening_turns();
        machine.limit_tools();
        machine.warn_of_names();
        machine.take_plans()?;
        Ok(machine)
    }

    /// Names of functions that the model is shown although they hold what it must not see.
    fn warn_of_names(&mut self) {
        if self.request.settings.contract != Contract::Tools {
            return;
        }
        let warnings = self.privacy.warnings_of_names(self.tools.offered());
        for warning in warnings {
            // In a run that is replayed it is among the warnings.
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// The run's data as it is now.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn request(&self) -> &RunRequest {
        &self.request
    }

    /// Every tool of the run, with what runs it.
    pub fn tools(&self) -> &BoundTools {
        self.tools.bound()
    }

    /// Catalogue of the run's tools, for the calls that modules make.
    pub(in crate::run) fn catalogue(&self) -> &Arc<ToolCatalogue> {
        self.tools.catalogue()
    }

    /// The [price](Validator::price) of the dearest schema of its tools and its output.
    pub(in crate::run) fn schema_price(&self) -> u64 {
        let output = self.output.as_ref().map_or(0, |schema| schema.price());
        self.tools.catalogue().price().max(output)
    }

    /// Usage of the run so far, ended sub-agents included.
    pub fn spent(&self) -> RunUsage {
        self.usage.spent()
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
            Input::Written(pieces) => self.written(pieces, &mut effects),
            Input::Recorded(delta) => self.recorded(delta, &mut effects),
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
            Input::Retrieved(found) => self.retrieved(found, &mut effects),
            Input::Counted(counted) => self.tokens_counted(counted, &mut effects),
            Input::SummedUp(written) => self.summary_written(written, &mut effects),
            Input::SideRequest(request) => self.asked_beside(request, &mut effects),
            Input::Resumed { notes } => self.resumed(notes, &mut effects),
            Input::Cancelled { reason } => {
                self.keep_written(&mut effects);
                let failure = reason.map(|reason| RunFailure::new(ErrorClass::Fatal, reason));
                self.finish(StopReason::Cancelled, Value::Null, failure, &mut effects);
            }
            Input::OutOf(budget) => {
                self.keep_written(&mut effects);
                self.fail(
                    budget.reason(),
                    ErrorClass::Fatal,
                    budget.taken().into(),
                    &mut effects,
                );
            }
            Input::TimedOut => {
                self.keep_written(&mut effects);
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
        self.note_own_calls(&effects);
        self.note_demanded_call(&effects);
        effects
    }

    /// Records the Requests from here on whole, and not by their difference from the one before.
    pub fn record_whole_bodies(&mut self) {
        self.records_whole_bodies = true;
    }

    fn start(&mut self, effects: &mut Effects) {
        effects.events.push(EventKind::Run {
            format: self.rules.format(),
            prompts: PROMPTS,
            task: self.task(),
            model: self.model.clone(),
            request: Box::new(self.request.clone()),
            tools: self.tools.bound().clone(),
            host: env!("CARGO_PKG_VERSION").into(),
        });
        // Their bytes are kept with this event.
        for file in &mut self.request.files {
            file.forget();
        }
        for message in std::mem::take(&mut self.warnings) {
            effects.events.push(EventKind::Notice { step: 0, message });
        }
        if !self.screens_input(effects) {
            self.begin_work(effects);
        }
    }

    fn begin_work(&mut self, effects: &mut Effects) {
        if self.retrieves(effects) {
            return;
        }
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
        // What a summary stands for is no task any more.
        let is_summed_up = |message: &Message| matches!(message, Message::Summary(_));
        let text = if self.request.context.iter().any(is_summed_up) {
            texts.next_back()
        } else {
            texts.next()
        };
        match (text, &self.request.plan) {
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

/// The context of a run before anything happened.
fn context_of(request: &RunRequest) -> Result<Context, ContextError> {
    let mut context = Context::new(request.context.clone())?;
    context.check_input()?;
    if request.settings.dry_run {
        // Whatever the model does is a plan, and nothing of a lazy one runs before it was checked.
        let plan = context.plan.get_or_insert_default();
        plan.mode = Mode::Lazy;
    }
    Ok(context)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
