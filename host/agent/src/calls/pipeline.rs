//! Makes the calls that no run's machine makes: an MCP client's, a person's at the terminal, and those that
//! modules make of other modules' tools.

use crate::calls::aside::{apart, checked};
use crate::calls::decide::{self, CallDecider, DecisionEffect, NoDecision};
use crate::calls::privacy::{PartyPrivacy, hidden, revealed};
use crate::calls::record::{CallEnd, CallRecorder, CallRecording, NewCall};
use crate::calls::screen::{screen, screen_result, screened_arguments};
use crate::calls::{
    Attempts, CallBudget, CallableTool, CallableTools, FollowedJob, KeptResults, NestedCaller,
    NestedEffects, NoBudget, OpenJobs,
};
use crate::guard::shield::{Screening, Shields};
use crate::toolbox::{ToolCall, Toolbox};
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use toolhold_policy::{BeginCheck, CallClock, ClockPause, GrantRestrictions, Listener};
use toolhold_protocol::decision::{Decision, DecisionRules, Pending};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::job::JobPolicy;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool_retry::ToolRetryPolicy;

/// What the operator decided about all calls.
#[derive(Debug, Default)]
pub struct CallRules {
    pub shields: Shields,
    pub decisions: DecisionRules,
    /// The most time for one call.
    pub call_timeout: Duration,
    /// Further attempts of calls that failed for now.
    pub tool_retry: ToolRetryPolicy,
    /// How long a call may continue as a job.
    pub jobs: JobPolicy,
    /// Results that calls of a run may be given. By default there are none.
    pub results: KeptResults,
    /// Whether light faults of arguments are put right. A program or a person that calls a tool directly is told
    /// of the fault instead.
    pub repair: bool,
}

impl CallRules {
    /// The rules of calls that a person or an MCP client makes directly, with the deadline and the retries of a run's
    /// calls. Such a call is always made, and with the arguments as they are.
    pub fn direct(settings: &Settings, shields: Shields) -> Self {
        Self {
            shields,
            decisions: settings.decisions.clone(),
            call_timeout: settings.call_timeout,
            tool_retry: settings.tool_retry,
            jobs: settings.jobs,
            results: KeptResults::default(),
            repair: false,
        }
    }
}

/// Makes calls. Callers differ in who decides, in the budget, and in the recorder. Clones are cheap.
#[derive(Debug, Clone)]
pub struct CallPipeline {
    /// What runs calls, and knows the tools that modules may call.
    pub toolbox: Toolbox,
    /// Tools that modules called, prepared.
    pub tools: Arc<CallableTools>,
    pub rules: Arc<CallRules>,
    pub decider: Arc<dyn CallDecider>,
    pub budget: Arc<dyn CallBudget>,
    pub recorder: Arc<dyn CallRecorder>,
    /// Jobs that its calls wait for.
    pub jobs: OpenJobs,
    /// What the caller may see. Absent: everything, and so may all that it calls.
    pub hiding: Option<Arc<dyn PartyPrivacy>>,
    /// How many calls wait for the run whose calls these are; 0 where they are of no run.
    pub call_depth: u8,
}

/// A call as its caller asks for it.
#[derive(Debug)]
pub struct CallRequest {
    pub id: String,
    pub tool: Arc<CallableTool>,
    /// How the caller names the tool: a version may be part of it.
    pub name: String,
    pub arguments: Value,
    /// The id under which a person decides about it: its own, or nothing where the call is made again with the
    /// decision, under another id.
    pub asked_as: String,
    /// The calls that it is nested in, the outermost first.
    pub callers: Vec<CallingTool>,
    /// A deadline tighter than that of the rules.
    pub timeout: Option<Duration>,
    /// What restricts what modules may reach, besides what the toolbox knows of.
    pub restrictions: Option<Arc<GrantRestrictions>>,
    /// Asked before its tool begins.
    pub begin: Option<Arc<dyn BeginCheck>>,
    /// Told what the tool logs, and how far it is.
    pub listener: Option<Arc<dyn Listener>>,
}

/// A call that makes another one, and waits for it.
#[derive(Debug, Clone)]
pub struct CallingTool {
    pub name: String,
    pub clock: Arc<dyn CallClock>,
    /// Told of the calls that it makes.
    pub effects: NestedEffects,
}

/// Why a caller receives no result of a call.
#[derive(Debug)]
pub enum NotCalled {
    /// A person is asked by way of the caller, who makes the call again. Nothing is recorded.
    HandedBack,
    /// There is no room for it now. Nothing is recorded.
    Busy(String),
    /// It could not be recorded, for this reason, so it is not made.
    NotRecorded(ToolFailure),
    /// What came of it could not be recorded.
    Lost {
        /// Whether the tool was called.
        was_made: bool,
    },
}

/// Why a call goes no further.
enum CallStop {
    Refused(ToolFailure),
    /// A person gave a result in the place of the call.
    Replaced(Value),
    NotCalled(NotCalled),
}

impl From<ToolFailure> for CallStop {
    fn from(failure: ToolFailure) -> Self {
        Self::Refused(failure)
    }
}

impl CallPipeline {
    /// Makes one call. Dropped, the call is cancelled.
    ///
    /// # Errors
    /// Nothing can be reported to the caller. A refused call is no error here: it ends like one
    /// that fails.
    pub async fn call(&self, mut request: CallRequest) -> Result<CallEnd, NotCalled> {
        self.ready()?;
        if let Some(caller) = &self.hiding {
            request.arguments = caller.reveal_value(request.arguments);
        }
        let mut recording = self
            .recorder
            .begin(NewCall {
                id: &request.id,
                tool: &request.name,
                arguments: &request.arguments,
                may_be_repeated: request.tool.bound.tool.annotations.may_be_repeated(),
                gives_bytes: request.tool.bound.runner.has_bytes(),
            })
            .await;
        let tool = request.tool.clone();
        let mut end = match self.conduct(request, &mut *recording).await {
            Ok(result) => CallEnd {
                result,
                by_host: false,
            },
            Err(CallStop::Refused(failure)) => CallEnd::refused(failure),
            Err(CallStop::Replaced(result)) => CallEnd::answered(result),
            Err(CallStop::NotCalled(reason)) => {
                recording.forget();
                return Err(reason);
            }
        };
        if let Some(hiding) = &self.hiding {
            end.result.outcome = hidden(&**hiding, end.result.outcome, &tool).await;
        }
        let was_made = !end.by_host;
        match recording.ended(&end).await {
            Ok(()) => Ok(end),
            Err(_) => Err(NotCalled::Lost { was_made }),
        }
    }

    /// A pipeline for the calls that the call `id` makes.
    pub(super) fn within(&self, id: &str) -> Self {
        Self {
            decider: self.decider.within(id),
            budget: self.budget.within(),
            recorder: self.recorder.within(id),
            jobs: self.jobs.clone(),
            hiding: self.hiding.clone(),
            call_depth: self.call_depth,
            toolbox: self.toolbox.clone(),
            tools: self.tools.clone(),
            rules: self.rules.clone(),
        }
    }

    fn ready(&self) -> Result<(), NotCalled> {
        self.recorder.ready().map_err(NotCalled::NotRecorded)
    }

    /// The stages, in their order.
    async fn conduct(
        &self,
        mut request: CallRequest,
        recording: &mut dyn CallRecording,
    ) -> Result<ToolResult, CallStop> {
        let tool = request.tool.clone();
        let arguments = std::mem::take(&mut request.arguments);
        let caller = self.hiding.as_ref();
        let seen = caller.and_then(|caller| caller.of_tool(&tool.bound));
        let waits = asks(&self.rules, &tool, &request.name);
        let (check, repair) = (tool.check.clone(), self.rules.repair);
        // Arguments that nothing changes are not copied: they may have megabytes.
        let may_change = seen.is_some() || repair || waits || self.is_screened(&tool);
        let asked = may_change.then(|| arguments.clone());
        let arguments = match &seen {
            Some(seen) => seen.hide_value(arguments),
            None => arguments,
        };
        let fits = move |arguments: &Value| check.repaired(arguments, repair);
        let repaired = checked(tool.bound.called(), &arguments, fits).await?;
        let (arguments, repairs) = repaired.unwrap_or((arguments, Vec::new()));
        if !repairs.is_empty() {
            let repaired = EventKind::Repaired {
                step: STEP,
                call: Some(request.id.clone()),
                tool: Some(request.name.clone()),
                repairs,
            };
            recording.event(repaired).await;
        }
        let (arguments, _) = self.screened(&request, arguments, recording).await?;
        let arguments = if waits {
            self.approved(&request, arguments, recording).await?
        } else {
            arguments
        };
        self.ready().map_err(CallStop::NotCalled)?;
        let _permit = self.budget.take().map_err(|none| match none {
            NoBudget::Refused(failure) => CallStop::Refused(failure),
            NoBudget::Busy(message) => CallStop::NotCalled(NotCalled::Busy(message)),
        })?;
        let is_changed = asked.is_some_and(|asked| asked != arguments);
        let others = is_changed.then_some(&arguments);
        let started = recording.started(others).await;
        started.map_err(|failure| CallStop::NotCalled(NotCalled::NotRecorded(failure)))?;
        for caller in &request.callers {
            caller.effects.note(tool.bound.tool.annotations);
        }
        let (mut call, effects) = self.tool_call(request, arguments, seen.clone());
        let results = &self.rules.results;
        let mut caching = results.begin(&call, &tool.bound, || waits, &*self.toolbox.source);
        let known = caching.known();
        let nested = effects.clone();
        let mut attempts = Attempts::new(self.rules.tool_retry, &call, &tool.bound, nested);
        let mut result = loop {
            if let Some(known) = known {
                break known;
            }
            let mut answer = self.toolbox.runner.call(&call).await;
            let mut job = FollowedJob::of(self.rules.jobs, &self.jobs, &self.toolbox.runner, &call);
            let result = loop {
                match job.judge(&call, answer).await {
                    ControlFlow::Break(result) => break result,
                    ControlFlow::Continue(news) => {
                        if let Some(news) = news {
                            recording
                                .event(EventKind::Job {
                                    step: STEP,
                                    job: news,
                                })
                                .await;
                        }
                        answer = job.ask().await;
                    }
                }
            };
            let retry = match attempts.judge(&call, result, &*self.budget) {
                ControlFlow::Break(result) => break result,
                ControlFlow::Continue(retry) => retry,
            };
            let again = EventKind::ToolRetry { step: STEP, retry };
            recording.event(again).await;
            attempts.wait(&mut call).await;
        };
        caching.keep(&result, effects.has_asked());
        let outcome = match &seen {
            Some(seen) => revealed(&**seen, result.outcome),
            None => result.outcome,
        };
        let (shields, name) = (&self.rules.shields, tool.bound.called());
        let check = Some(&tool.check);
        let (outcome, said) =
            screen_result(shields, &call.id, call.depth, name, outcome, check).await;
        for event in said {
            recording.event(event).await;
        }
        result.outcome = outcome;
        Ok(result)
    }

    /// The arguments after the shields, and whether they changed.
    async fn screened(
        &self,
        request: &CallRequest,
        arguments: Value,
        recording: &mut dyn CallRecording,
    ) -> Result<(Value, bool), ToolFailure> {
        if !self.is_screened(&request.tool) {
            return Ok((arguments, false));
        }
        let (shields, name) = (&self.rules.shields, request.tool.bound.called());
        let screening = Screening {
            call: request.id.clone(),
            depth: self.depth(request),
            place: ShieldPlace::ToolInput,
            tool: Some(name.to_owned()),
            value: arguments.clone(),
            context: Vec::new(),
        };
        let (screened, said) = screen(shields, screening).await;
        let is_redacted = matches!(screened, ScreeningResult::Redacted { .. });
        for event in said {
            recording.event(event).await;
        }
        let check = request.tool.check.clone();
        let left = move || screened_arguments(screened, arguments, Some(&*check));
        if is_redacted {
            apart(name, left).await
        } else {
            left()
        }
    }

    /// True if a shield screens the arguments of calls of the tool.
    fn is_screened(&self, tool: &CallableTool) -> bool {
        let name = Some(tool.bound.called());
        self.rules.shields.applies_to(ShieldPlace::ToolInput, name)
    }

    /// The arguments with which a person lets the call be made, which waits for one.
    async fn approved(
        &self,
        request: &CallRequest,
        mut arguments: Value,
        recording: &mut dyn CallRecording,
    ) -> Result<Value, CallStop> {
        let CallRequest { tool, name, .. } = request;
        let annotations = tool.bound.tool.annotations;
        let call = Call {
            id: request.asked_as.clone(),
            tool: name.clone(),
            arguments: arguments.clone(),
            ..Call::default()
        };
        loop {
            let mut pending = Pending::new(call.clone(), arguments, annotations);
            let callers = request.callers.iter();
            pending.callers = callers.map(|caller| caller.name.clone()).collect();
            pending.agents = self.decider.agents().to_vec();
            let question = EventKind::Approval {
                step: STEP,
                pending: pending.clone(),
            };
            recording.event(question).await;
            let decision = match self.decided(request, &pending).await {
                Ok(decision) => decision,
                Err(NoDecision::Refused(failure)) => return Err(failure.into()),
                Err(NoDecision::HandedBack) => {
                    return Err(CallStop::NotCalled(NotCalled::HandedBack));
                }
            };
            let decided = EventKind::Decided {
                step: STEP,
                id: call.id.clone(),
                decision: decision.clone(),
            };
            recording.event(decided).await;
            let shown = pending.arguments.clone();
            let check = tool.check.clone();
            let apply = move || {
                let fits = |arguments: &Value| check.arguments(arguments);
                decide::apply_decision(pending, decision, fits, Some(&*check))
            };
            arguments = match apart(tool.bound.called(), apply).await {
                DecisionEffect::Make(arguments) => return Ok(arguments),
                DecisionEffect::Edited(edited) => {
                    match self.screened(request, edited, recording).await? {
                        (arguments, false) => return Ok(arguments),
                        // The screened call differs from the approved one.
                        (left, true) => left,
                    }
                }
                DecisionEffect::Replaced(result) => return Err(CallStop::Replaced(result)),
                DecisionEffect::Refused(failure) => return Err(failure.into()),
                DecisionEffect::Void(message) => {
                    let notice = EventKind::Notice {
                        step: STEP,
                        message,
                    };
                    recording.event(notice).await;
                    shown
                }
            };
        }
    }

    /// Waits for a decision. The time of the calls that this one is nested in stands still meanwhile: what a person
    /// may take is bounded by the decider.
    async fn decided(
        &self,
        request: &CallRequest,
        pending: &Pending,
    ) -> Result<Decision, NoDecision> {
        let callers = request.callers.iter();
        let _pauses: Vec<ClockPause> = callers.map(|it| it.clock.clone().pause()).collect();
        self.decider.decide(pending).await
    }

    /// How many calls wait for this one.
    fn depth(&self, request: &CallRequest) -> u8 {
        let callers = u8::try_from(request.callers.len()).unwrap_or(u8::MAX);
        self.call_depth.saturating_add(callers)
    }

    /// What the toolbox is asked to run: a tool that may see this much; and what the calls that it makes do.
    fn tool_call(
        &self,
        request: CallRequest,
        arguments: Value,
        hiding: Option<Arc<dyn PartyPrivacy>>,
    ) -> (ToolCall, NestedEffects) {
        let most = self.rules.call_timeout;
        let timeout = request.timeout.map_or(most, |own| own.min(most));
        let (depth, is_nested) = (self.depth(&request), !request.callers.is_empty());
        let (id, name) = (&request.id, &request.name);
        let pipeline = Self {
            hiding,
            ..self.clone()
        };
        let nested = NestedCaller::new(pipeline, id, name, request.callers);
        let effects = nested.effects();
        let call = ToolCall {
            timeout,
            depth,
            is_nested,
            restrictions: request.restrictions,
            begin: request.begin,
            nested: Some(Arc::new(nested)),
            listener: request.listener,
            ..ToolCall::new(request.id, request.name, arguments)
        };
        (call, effects)
    }
}

/// Whether a person is asked about calls of `tool` under this name.
fn asks(rules: &CallRules, tool: &CallableTool, name: &str) -> bool {
    let (bound, decisions) = (&tool.bound, &rules.decisions);
    bound.waits(decisions) || decisions.apply_to(name, bound.tool.annotations)
}

/// The step number in records of calls that belong to no step of a run.
pub(crate) const STEP: u32 = 1;

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
