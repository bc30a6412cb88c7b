//! A step's calls, each from the model's words to being made (docs/protocol.md, 5 and 7).

use super::results::SettledResult;
use super::scopes::{
    CONVERSATION_WINDOW_DIVISOR, MAX_CONVERSATION_BYTES, advisor, consultation, conversation,
    everything, guidance, masked, scoped,
};
use super::step_calls::AtShields;
use super::wiring::Wiring;
use super::{Action, Effects, Machine, Work};
use crate::calls::CallMoment;
use crate::calls::screen::screened_arguments;
use crate::guard::shield::Screening;
use crate::run::schedule::Appends;
use crate::toolbox::ToolCall;
use serde_json::Value;
use std::mem;
use toolhold_json::repair::Repair;
use toolhold_protocol::advisor::CONSULT_ADVISOR;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::context::KNOWLEDGE;
use toolhold_protocol::decision::Pending;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference;
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::solution::Call;

/// Properties with which a call would name the call that it takes the place of (docs/protocol.md, 12). To ignore them would
/// make the call beside the other one.
const CORRECTIONS: [&str; 4] = ["_corrects", "_correction", "_replaces", "_supersedes"];

impl Machine {
    /// Takes the next call of the reply.
    pub(super) fn accept(&mut self, call: Call, effects: &mut Effects) {
        let call = self.own_call(self.privacy.meant(call, &self.context.instances));
        if self.step.taken() >= self.max_calls() {
            self.step.ignored += 1;
            return;
        }
        if self.is_lazy() {
            self.step.planned.push(call);
            return;
        }
        if self.has_council() {
            return self.await_votes(call, effects);
        }
        self.open(call, effects);
    }

    /// Begins a call, or has it wait for what it reads.
    pub(super) fn open(&mut self, call: Call, effects: &mut Effects) {
        self.open_or_refuse(call, None, effects);
    }

    /// The same, or ends it with the failure because of which it is not made.
    pub(super) fn open_or_refuse(
        &mut self,
        mut call: Call,
        refusal: Option<ToolFailure>,
        effects: &mut Effects,
    ) {
        let index = self.step.calls.len();
        call.id = format!("call_{}", self.derive("call", index));
        let ignored = call.unknown.keys();
        for name in ignored.filter(|name| !self.refuses_property(name)) {
            let message = format!(
                "{} ({}) has the reserved property {name:.40?}, which means nothing here and is ignored",
                call.id, call.tool
            );
            self.notice(message, effects);
        }
        let fence = self.derive("fence", index);
        let (wiring, refusal) = match self.wiring(&call) {
            Ok(wiring) => (wiring, refusal),
            Err(failure) => (Wiring::default(), Some(failure)),
        };
        let mut sees = wiring.scopes.clone();
        sees.extend(guidance(&self.context, self.tools.find(&call.tool), &call));
        let appends = if refusal.is_none() && wiring.target.is_none() {
            self.appends(&call)
        } else {
            Appends::Nowhere
        };
        let bound = self.tools.find(&call.tool);
        let party = bound.and_then(|bound| bound.tool.takes_turns.clone());
        self.step.calls.add(call, fence, wiring, &sees, appends);
        self.step.calls.take_turns(index, party);
        if let Some(failure) = refusal {
            self.settle(index, SettledResult::refused(failure), effects);
        }
        self.begin_unblocked(effects);
        if self.step.calls.is_blocked(index)
            && let Some(own) = self.step.calls.get(index)
        {
            effects.events.push(EventKind::ToolWaits {
                step: self.steps,
                call: own.call.clone(),
            });
        }
    }

    /// What the call says besides its parameters.
    fn wiring(&self, call: &Call) -> Result<Wiring, ToolFailure> {
        let mut unknown = call.unknown.keys();
        if let Some(name) = unknown.find(|name| self.refuses_property(name)) {
            let message = format!(
                "no call says with {name} which call it corrects: make the call again without it, as it should be, and \
                 with the same _outputPath if the failed call had one"
            );
            return Err(ToolFailure::correctable("correction", message));
        }
        if self.tools.is_own(&call.tool) {
            return Ok(Wiring::default());
        }
        self.tools.checks.known(&call.tool)?;
        self.fallbacks.check(call)?;
        match self.tools.find(&call.tool) {
            Some(bound) => {
                let is_text = !self.has_references(call);
                let wiring = Wiring::of(call, &bound.tool, &self.context, is_text)?;
                self.tools.checks.place(call)?;
                Ok(wiring)
            }
            None => Ok(Wiring::default()),
        }
    }

    fn refuses_property(&self, name: &str) -> bool {
        self.rules.are_from_4() && CORRECTIONS.contains(&name)
    }

    /// True if an argument that begins with a dagger is a reference: the run has data, its Request describes references, or
    /// calls of this reply write data. A plan that was given to the run was checked with its references. Passages are data for a
    /// call that refers to them.
    fn has_references(&self, call: &Call) -> bool {
        let writes = |call: &Call| call.output_path.is_some();
        let names_passages = || reference::refers_to(&call.arguments, KNOWLEDGE);
        let has_data = if self.rules.are_from_5() {
            let mut kinds = self
                .context
                .data
                .log()
                .iter()
                .map(|write| &*write.path.kind);
            kinds.any(|kind| kind != KNOWLEDGE || names_passages())
        } else {
            !self.context.data.log().is_empty()
        };
        !self.rules.are_from_4()
            || self.is_wired()
            || self.request.plan.is_some()
            || has_data
            || writes(call)
            || self.step.calls.calls().any(writes)
    }

    /// The moment at which a call is judged, or has ended.
    pub(super) fn moment(&self) -> CallMoment {
        CallMoment {
            step: self.steps,
            may_change: self.running.may_change(),
        }
    }

    /// Whether the call passes its checks as things stand: it waits for no reference, and its arguments fit. Shields and
    /// people are asked later.
    pub(super) fn can_be_made(&self, call: &Call) -> bool {
        let (Ok(wiring), Some(bound)) = (self.wiring(call), self.tools.find(&call.tool)) else {
            return false;
        };
        let checks = &self.tools.checks;
        let repair = self.request.settings.repair;
        if bound.tool.is_latent() {
            let (open, repair) = (wiring.open(call), repair && self.rules.are_from_4());
            return call.output.is_some() && checks.fitting_latent(call, &open, repair).is_ok();
        }
        let Ok(arguments) = self.filled(call, &wiring) else {
            return false;
        };
        let fitting = checks.fitting(&call.tool, arguments, repair);
        fitting.is_ok_and(|(arguments, _)| {
            checks.not_repeated(call, &arguments, self.moment()).is_ok()
        })
    }

    /// The arguments of a call, with the values that its references stand for.
    fn filled(&self, call: &Call, wiring: &Wiring) -> Result<Value, ToolFailure> {
        if wiring.is_text {
            return Ok(call.arguments.clone());
        }
        let instance = call.instance.as_deref();
        let filled = if self.rules.are_from_4() {
            self.context.data.fill(&call.arguments, instance)
        } else {
            let arguments = reference::with_paired_daggers(call.arguments.clone());
            self.context.data.fill(&arguments, instance)
        };
        filled.map_err(|error| ToolFailure::correctable("reference", error.to_string()))
    }

    /// Begins every call that nothing holds up any more.
    pub(super) fn begin_unblocked(&mut self, effects: &mut Effects) {
        loop {
            let ready = self.step.calls.unblock(&self.context.data);
            if ready.is_empty() {
                return;
            }
            for index in ready {
                if let Err(failure) = self.begin(index, effects) {
                    self.settle(index, SettledResult::refused(failure), effects);
                }
            }
        }
    }

    fn begin(&mut self, index: usize, effects: &mut Effects) -> Result<(), ToolFailure> {
        let Some(own) = self.step.calls.unanswered(index) else {
            return Ok(());
        };
        let call = own.call.clone();
        if self.tools.is_own(&call.tool) {
            return self.answer_own(index, call, effects);
        }
        let Some(bound) = self.tools.find(&call.tool) else {
            return Ok(());
        };
        let repair = self.request.settings.repair;
        if bound.tool.is_latent() {
            let output = call.output.clone().ok_or_else(|| {
                let message =
                    "this tool is yours to answer: write its result as \"_output\" in the call";
                ToolFailure::correctable("output", message)
            })?;
            let (open, repair) = (own.wiring.open(&call), repair && self.rules.are_from_4());
            let checks = &self.tools.checks;
            let (arguments, repairs) = checks.fitting_latent(&call, &open, repair)?;
            self.tell_repaired(&call, repairs, effects);
            self.tell_council_before(&call, effects);
            effects.events.push(EventKind::ToolStart {
                step: self.steps,
                filled: (arguments != call.arguments).then_some(arguments),
                call,
                may_be_repeated: false,
            });
            self.settle(index, SettledResult::answered(output), effects);
            return Ok(());
        }
        let arguments = self.filled(&call, &own.wiring)?;
        let arguments = self
            .privacy
            .for_tool(bound, call.instance.as_deref(), arguments);
        let (arguments, repairs) = self.tools.checks.fitting(&call.tool, arguments, repair)?;
        self.tell_repaired(&call, repairs, effects);
        let at = self.moment();
        self.tools.checks.may_begin(&call, &arguments, at)?;
        self.screen_call(index, arguments, false, effects)
    }

    fn tell_repaired(&self, call: &Call, repairs: Vec<Repair>, effects: &mut Effects) {
        if !repairs.is_empty() {
            effects.events.push(EventKind::Repaired {
                step: self.steps,
                call: Some(call.id.clone()),
                tool: Some(call.tool.clone()),
                repairs,
            });
        }
    }

    /// Asks the shields about a call that passed every check, if some screen what its tool is given.
    pub(super) fn screen_call(
        &mut self,
        index: usize,
        arguments: Value,
        is_approved: bool,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let tool = self.step.calls.get(index).map(|own| &own.call.tool);
        if !tool.is_some_and(|tool| self.request.policy.tool_inputs.contains(tool)) {
            return self.approve(index, arguments, is_approved, effects);
        }
        let at = AtShields {
            arguments,
            is_approved,
        };
        self.step.calls.screen(index, at);
        self.ask_shields(index, effects)
    }

    /// Asks the shields about a call, also again where the process ended before they answered.
    pub(super) fn ask_shields(
        &mut self,
        index: usize,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let Some(AtShields { arguments, .. }) = self.step.calls.screening(index).cloned() else {
            return Ok(());
        };
        let ToolCall {
            id,
            tool,
            arguments,
            context,
            ..
        } = self.prepared(index, Some(&arguments))?.call;
        let context = context.into_iter();
        effects.actions.push(Action::Screen(Box::new(Screening {
            call: id,
            // Who performs the run knows it.
            depth: 0,
            place: ShieldPlace::ToolInput,
            tool: Some(tool),
            value: arguments,
            context: context
                .map(|(path, value)| (path.to_string(), value))
                .collect(),
        })));
        Ok(())
    }

    /// The shields have spoken about a call.
    pub(super) fn call_screened(
        &mut self,
        id: &str,
        screened: ScreeningResult,
        effects: &mut Effects,
    ) {
        let calls = &mut self.step.calls;
        let Some(index) = calls.index_of(id) else {
            return;
        };
        let Some(at) = calls.screened(index) else {
            return;
        };
        effects.events.push(EventKind::Screened {
            step: self.steps,
            place: ShieldPlace::ToolInput,
            call: Some(id.to_owned()),
            screened: screened.clone(),
        });
        let checks = &self.tools.checks;
        let Some(call) = self.step.calls.get(index).map(|own| &own.call) else {
            return;
        };
        let check = checks.of(&call.tool).map(AsRef::as_ref);
        let next = match screened_arguments(screened, at.arguments, check) {
            Ok((arguments, false)) => self.approve(index, arguments, at.is_approved, effects),
            // It is another call than the one that was checked, and than the one that was approved.
            Ok((left, true)) => match checks.check(call, &left, self.moment()) {
                Ok(()) => self.approve(index, left, false, effects),
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        self.go_on(index, next, effects);
    }

    /// What was decided about a call is done, or it ends with the reason why not.
    pub(super) fn go_on(
        &mut self,
        index: usize,
        done: Result<(), ToolFailure>,
        effects: &mut Effects,
    ) {
        if let Err(failure) = done {
            self.settle(index, SettledResult::refused(failure), effects);
        }
        self.begin_unblocked(effects);
        self.proceed(effects);
    }

    /// Makes a call, once a person let it be made where one has to.
    fn approve(
        &mut self,
        index: usize,
        arguments: Value,
        is_approved: bool,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let Some(own) = self.step.calls.get(index) else {
            return Ok(());
        };
        let bound = self.tools.find(&own.call.tool).filter(|_| !is_approved);
        let why = bound.and_then(|bound| self.doubts(&own.call, bound));
        let waits =
            bound.filter(|bound| why.is_some() || bound.waits(&self.request.settings.decisions));
        let Some(bound) = waits else {
            return self.make(index, arguments, effects);
        };
        let pending = Pending {
            why: why.map(str::to_owned),
            ..Pending::new(own.call.clone(), arguments, bound.tool.annotations)
        };
        self.step.calls.ask_person(index, pending.clone());
        self.decide(pending, effects);
        Ok(())
    }

    /// Makes a call that passed every check, as soon as there is room for it.
    pub(super) fn make(
        &mut self,
        index: usize,
        arguments: Value,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        // What is wrong with it is said now, and not when its turn comes.
        let work = self.prepared(index, Some(&arguments))?;
        self.step.calls.queue(index, arguments);
        self.start_ready(Some((index, work)), effects);
        Ok(())
    }

    /// Starts calls while there is room (7.3). One that is started in the background, or by the client, may have been
    /// the last that others waited for; under the rules of format 3 these wait for the next input.
    pub(super) fn start_queued(&mut self, effects: &mut Effects) {
        self.start_ready(None, effects);
        if self.rules.are_from_4() {
            self.begin_unblocked(effects);
        }
    }

    /// Starts calls while there is room. The call that was just prepared need not be prepared again if it is the first
    /// to start: nothing has changed since.
    fn start_ready(&mut self, mut ready: Option<(usize, Work)>, effects: &mut Effects) {
        while self.running.has_room(self.request.settings.parallel_calls) {
            let Some(index) = self.step.calls.next_queued() else {
                return;
            };
            let work = ready.take().filter(|(of, _)| *of == index);
            let work = work.map(|(_, work)| work);
            if let Err(failure) = self.start_call(index, work, effects) {
                self.settle(index, SettledResult::refused(failure), effects);
            }
        }
    }

    fn start_call(
        &mut self,
        index: usize,
        ready: Option<Work>,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let Some(own) = self.step.calls.get(index) else {
            return Ok(());
        };
        let is_background = own.wiring.target.is_none()
            && self
                .tools
                .find(&own.call.tool)
                .is_some_and(|bound| bound.tool.annotations.fire_and_forget);
        self.usage.take_call()?;
        // A sub-agent's budget is what remains without this call.
        let work = match ready {
            Some(work) => Work {
                left: self.usage.left(),
                ..work
            },
            None => self.prepared(index, None)?,
        };
        let Some(own) = self.step.calls.get(index) else {
            return Ok(());
        };
        let call = own.call.clone();
        let filled = (own.arguments != call.arguments).then(|| own.arguments.clone());
        let detached = is_background.then(|| call.clone());
        self.tell_council_before(&call, effects);
        effects.events.push(EventKind::ToolStart {
            step: self.steps,
            filled,
            call,
            may_be_repeated: false,
        });
        self.usage.begin_call();
        if work.bound.runner == Runner::Client {
            self.step.calls.hand_over(index);
            return Ok(());
        }
        self.running.begin();
        if let Some(call) = detached {
            let told = "started in the background; its result is not reported".into();
            self.step.calls.answer(index, told, false, &[]);
            if self.rules.are_from_5() {
                self.tools.checks.may_have_changed(&call.tool, false);
            }
            self.running.detach(call, work.clone());
        } else {
            self.step.calls.run(index);
        }
        effects.actions.push(Action::Call(Box::new(work)));
        Ok(())
    }

    /// Returns what is needed to make the call at `index` with `arguments`; absent: those with which it was queued.
    fn prepared(&mut self, index: usize, arguments: Option<&Value>) -> Result<Work, ToolFailure> {
        let gone = || ToolFailure::correctable("unknown_tool", "the tool is not there any more");
        let own = self.step.calls.get(index).ok_or_else(gone)?;
        let call = &own.call;
        let arguments = arguments.unwrap_or(&own.arguments);
        let tool = self.tools.callable(&call.tool).ok_or_else(gone)?;
        let bound = &tool.bound;
        let instance = call.instance.as_deref();
        let mut context = scoped(&self.context, &own.wiring.scopes, instance)?;
        let mut told = Vec::new();
        let runner = match &bound.runner {
            Runner::Advisor => {
                let advisor = advisor(&self.context, arguments)?;
                context.extend(everything(&self.context, instance));
                let most = self.window.bytes_of_share(CONVERSATION_WINDOW_DIVISOR);
                let most = most.min(MAX_CONVERSATION_BYTES);
                let mut said = conversation(&self.context, self.history.turns(), most);
                for message in &mut said {
                    masked(message, |value| {
                        self.privacy.for_tool(bound, instance, value)
                    });
                }
                told.extend(
                    said.iter()
                        .filter_map(|said| serde_json::to_value(said).ok()),
                );
                let tools = self.tools.shown().iter();
                let tools = tools
                    .filter(|tool| tool.name != CONSULT_ADVISOR && !self.tools.is_own(&tool.name));
                Runner::Request(Box::new(consultation(advisor, arguments, said, tools)))
            }
            runner => runner.clone(),
        };
        let mut reserved = own.wiring.reserved(&bound.tool, call);
        for value in context
            .iter_mut()
            .map(|(_, value)| value)
            .chain(reserved.values_mut())
        {
            *value = self.privacy.for_tool(bound, instance, mem::take(value));
        }
        let given = context.iter().map(|(_, value)| value);
        let given = given.chain([arguments]).chain(&told);
        let settings = &self.request.settings;
        Ok(Work {
            step: self.steps,
            masked: self.privacy.masked(bound, given),
            check: tool.check.clone(),
            call: ToolCall {
                instance: call.instance.clone(),
                context,
                reserved,
                schema: Some(tool.schema().clone()),
                timeout: settings.call_timeout,
                ..ToolCall::new(&call.id, bound.called(), arguments.clone())
            },
            bound: Bound {
                tool: bound.tool.clone(),
                runner,
            },
            left: self.usage.left(),
            steps_left: settings.max_steps.saturating_sub(self.own_steps()),
            again: false,
        })
    }

    /// The work of a call that was begun, again.
    pub(super) fn work(&mut self, index: usize) -> Option<Work> {
        self.prepared(index, None).ok()
    }

    /// Ends a call that will not be made, or not again.
    pub(super) fn refuse(&mut self, index: usize, failure: ToolFailure, effects: &mut Effects) {
        self.settle(index, SettledResult::refused(failure), effects);
        self.begin_unblocked(effects);
    }
}
