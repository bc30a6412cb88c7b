//! A step's calls, each from the model's words to being made (docs/protocol.md, 5 and 7).

use super::results::{Ending, some_of};
use super::scopes::{consultation, scopes};
use super::{Action, Effects, Machine, Work};
use crate::calls::screen::screened_arguments;
use crate::guard::shield::Screening;
use crate::run::Budgets;
use crate::toolbox::ToolCall;
use serde_json::{Map, Value, json};
use toolhold_json::validate::cut;
use toolhold_protocol::approval::Pending;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::data::Method;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference;
use toolhold_protocol::reference::{Path, Source, Target};
use toolhold_protocol::result::ToolUsage;
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Scopes;
use toolhold_protocol::tool::Tool;

/// A call of the step that is being made.
#[derive(Debug)]
pub struct Open {
    pub call: Call,
    pub(super) fence: String,
    pub(super) wiring: Wiring,
    /// With references replaced, once they can be.
    pub(super) arguments: Value,
    /// Its arguments, while the shields are asked about them.
    pub(super) screening: Option<AtShields>,
    /// Shown to a person, who has not decided yet.
    pub pending: Option<Pending>,
    /// The client of the run makes it; it was handed over.
    pub(super) is_handed_over: bool,
    /// Text for the model and whether it is an error; absent while the call waits or runs.
    pub(super) answer: Option<(String, bool)>,
}

/// Arguments that the shields are asked about.
#[derive(Debug, Clone)]
pub(super) struct AtShields {
    arguments: Value,
    /// A person let the call be made with them.
    is_approved: bool,
}

/// What a call's reserved properties say about data.
#[derive(Debug, Default)]
pub(super) struct Wiring {
    pub(super) reads: Vec<Source>,
    pub(super) target: Option<Target>,
    pub(super) method: Method,
    scopes: Vec<Path>,
}

/// A call in the background: the run goes on without its result.
#[derive(Debug)]
pub struct Background {
    pub call: Call,
    pub work: Work,
}

impl Machine {
    /// Takes the next call of the reply.
    pub(super) fn accept(&mut self, call: Call, effects: &mut Effects) {
        let call = self.meant(call);
        if self.step.open.len() + self.step.planned.len() >= self.max_calls() {
            self.step.ignored += 1;
            return;
        }
        if self.is_lazy() {
            self.step.planned.push(call);
            return;
        }
        self.open(call, effects);
    }

    /// Begins a call, or has it wait for what it reads.
    pub(super) fn open(&mut self, mut call: Call, effects: &mut Effects) {
        let index = self.step.open.len();
        call.id = format!("call_{}", self.derive("call", index));
        for name in call.unknown.keys() {
            let message = format!(
                "{} ({}) has the reserved property {name:.40?}, which means nothing here and is ignored",
                call.id, call.tool
            );
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message,
            });
        }
        let fence = self.derive("fence", index);
        let wiring = self.wiring(&call);
        let (wiring, refusal) = match wiring {
            Ok(wiring) => (wiring, None),
            Err(failure) => (Wiring::default(), Some(failure)),
        };
        let writes = wiring
            .target
            .as_ref()
            .map_or(&[][..], Target::paths)
            .to_vec();
        let name = format!("{} ({})", call.id, call.tool);
        let mut sees = wiring.scopes.clone();
        sees.extend(self.guidance(&call));
        self.step.schedule.add(
            name,
            call.instance.clone(),
            wiring.reads.clone(),
            &sees,
            writes,
        );
        self.step.open.push(Open {
            arguments: Value::Null,
            fence,
            wiring,
            screening: None,
            pending: None,
            is_handed_over: false,
            answer: None,
            call,
        });
        if let Some(failure) = refusal {
            self.settle(index, Ending::refused(failure), effects);
        }
        self.begin_unblocked(effects);
        if let Some(open) = self
            .step
            .open
            .get(index)
            .filter(|_| self.step.schedule.is_blocked(index))
        {
            let call = open.call.clone();
            effects.events.push(EventKind::ToolWaits {
                step: self.steps,
                call,
            });
        }
    }

    /// Reads what the call says besides its parameters.
    fn wiring(&self, call: &Call) -> Result<Wiring, ToolFailure> {
        if self.is_own(&call.tool) {
            return Ok(Wiring::default());
        }
        self.checks.known(&call.tool)?;
        self.check_forced(call)?;
        let Some(bound) = self.tool(&call.tool) else {
            return Ok(Wiring::default());
        };
        self.known_instance(call)?;
        let reads = if bound.tool.is_latent() {
            Vec::new()
        } else {
            let found = reference::references(&call.arguments).map_err(|(place, error)| {
                ToolFailure::correctable(
                    "reference",
                    format!("at {place}: {error}; a literal dagger is written ††"),
                )
            })?;
            found.into_iter().map(|(_, source)| source).collect()
        };
        let written = call
            .output_path
            .as_deref()
            .filter(|text| !text.is_empty())
            .map(str::parse::<Target>)
            .transpose();
        let written = written.map_err(|error| {
            ToolFailure::correctable("reference", format!("_outputPath: {error}"))
        })?;
        let method = match call
            .output_method
            .as_deref()
            .filter(|text| !text.is_empty())
        {
            None => Method::default(),
            Some(method) => serde_json::from_value(json!(method)).map_err(|_| {
                let message = format!(
                    "_outputMethod {method:.40?} is none of set, merge, assign, push, concat"
                );
                ToolFailure::correctable("reference", message)
            })?,
        };
        Ok(Wiring {
            reads,
            // What the author fixed is not the model's to choose.
            target: bound.tool.output_path.clone().or(written),
            method,
            scopes: scopes(&bound.tool, call)?,
        })
    }

    /// A call may name an instance that there is, or none: then it works on the data of all (9).
    pub(super) fn known_instance(&self, call: &Call) -> Result<(), ToolFailure> {
        let Some(instance) = &call.instance else {
            return Ok(());
        };
        let known = &self.context.instances;
        if known.contains(instance) {
            return Ok(());
        }
        let known = match known.as_slice() {
            [] => "there are none here; leave _instance out".to_owned(),
            known => format!("there are {}", some_of(known)),
        };
        let instance = cut(instance, 64);
        Err(ToolFailure::correctable(
            "instance",
            format!("there is no instance {instance:?}; {known}"),
        ))
    }

    /// Begins every call that nothing holds up any more.
    pub(super) fn begin_unblocked(&mut self, effects: &mut Effects) {
        loop {
            let ready = self.step.schedule.unblock(&self.context.data);
            if ready.is_empty() {
                return;
            }
            for index in ready {
                if let Err(failure) = self.begin(index, effects) {
                    self.settle(index, Ending::refused(failure), effects);
                }
            }
        }
    }

    fn begin(&mut self, index: usize, effects: &mut Effects) -> Result<(), ToolFailure> {
        let Some(open) = self
            .step
            .open
            .get(index)
            .filter(|open| open.answer.is_none())
        else {
            return Ok(());
        };
        let call = open.call.clone();
        if self.is_own(&call.tool) {
            return self.answer_own(index, call, effects);
        }
        let Some(bound) = self.tool(&call.tool) else {
            return Ok(());
        };
        if bound.tool.is_latent() {
            let output = call.output.clone().ok_or_else(|| {
                let message =
                    "this tool is yours to answer: write its result as \"_output\" in the call";
                ToolFailure::correctable("output", message)
            })?;
            let references = reference::references(&call.arguments).unwrap_or_default();
            let open: Vec<&str> = references.iter().map(|(at, _)| at.as_str()).collect();
            self.checks
                .check_latent(&call.tool, &call.arguments, &open)?;
            let ending = Ending {
                outcome: Ok(output.into()),
                usage: ToolUsage::default(),
                printed: Vec::new(),
                module: None,
                by_host: true,
            };
            effects.events.push(EventKind::ToolStart {
                step: self.steps,
                call,
                filled: None,
            });
            self.settle(index, ending, effects);
            return Ok(());
        }
        let arguments = self
            .context
            .data
            .fill(&call.arguments, call.instance.as_deref());
        let arguments =
            arguments.map_err(|error| ToolFailure::correctable("reference", error.to_string()))?;
        let arguments = self.for_tool(&call, &arguments);
        let repair = self.request.settings.repair;
        let (arguments, repairs) = self.checks.fitting(&call.tool, arguments, repair)?;
        if !repairs.is_empty() {
            effects.events.push(EventKind::Repaired {
                step: self.steps,
                call: Some(call.id.clone()),
                tool: Some(call.tool.clone()),
                repairs,
            });
        }
        self.checks.not_repeated(&call, &arguments)?;
        self.screen_call(index, arguments, false, effects)
    }

    /// Asks the shields about a call that passed every check, if some screen what its tool is given.
    pub(super) fn screen_call(
        &mut self,
        index: usize,
        arguments: Value,
        is_approved: bool,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let tool = self.step.open.get(index).map(|open| &open.call.tool);
        if !tool.is_some_and(|tool| self.request.policy.tool_inputs.contains(tool)) {
            return self.approve(index, arguments, is_approved, effects);
        }
        if let Some(open) = self.step.open.get_mut(index) {
            open.pending = None;
            open.screening = Some(AtShields {
                arguments,
                is_approved,
            });
        }
        self.ask_shields(index, effects)
    }

    /// Asks the shields about a call, also again where the process ended before they answered.
    pub(super) fn ask_shields(
        &mut self,
        index: usize,
        effects: &mut Effects,
    ) -> Result<(), ToolFailure> {
        let open = self.step.open.get(index);
        let Some(AtShields { arguments, .. }) = open.and_then(|open| open.screening.clone()) else {
            return Ok(());
        };
        let ToolCall {
            id,
            tool,
            arguments,
            context,
            ..
        } = self.prepared(index, &arguments)?.call;
        let context = context.into_iter();
        effects.actions.push(Action::Screen(Box::new(Screening {
            call: id,
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
        let Some(index) = self.index_of(id) else {
            return;
        };
        let open = self.step.open.get_mut(index);
        let Some((call, at)) = open.and_then(|open| {
            let at = open.screening.take()?;
            Some((open.call.clone(), at))
        }) else {
            return;
        };
        effects.events.push(EventKind::Screened {
            step: self.steps,
            place: ShieldPlace::ToolInput,
            call: Some(id.to_owned()),
            screened: screened.clone(),
        });
        let check = self.checks.of(&call.tool).map(AsRef::as_ref);
        let next = match screened_arguments(screened, at.arguments, check) {
            Ok((arguments, false)) => self.approve(index, arguments, at.is_approved, effects),
            // It is another call than the one that was checked, and than the one that was approved.
            Ok((left, true)) => match self.checks.check(&call, &left) {
                Ok(()) => self.approve(index, left, false, effects),
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        if let Err(failure) = next {
            self.settle(index, Ending::refused(failure), effects);
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
        let Some(open) = self.step.open.get(index) else {
            return Ok(());
        };
        let call = open.call.clone();
        let bound = self.tool(&call.tool);
        let waits = bound.filter(|bound| bound.waits(&self.request.settings.approval));
        let Some(annotations) = waits.map(|bound| bound.tool.annotations) else {
            return self.make(index, arguments, effects);
        };
        if is_approved {
            return self.make(index, arguments, effects);
        }
        let pending = Pending::new(call, arguments, annotations);
        if let Some(open) = self.step.open.get_mut(index) {
            open.pending = Some(pending.clone());
        }
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
        self.prepared(index, &arguments)?;
        if let Some(open) = self.step.open.get_mut(index) {
            open.arguments = arguments;
            open.pending = None;
            self.step.queue.push_back(index);
        }
        self.start_queued(effects);
        Ok(())
    }

    /// Starts calls while there is room (7.3).
    pub(super) fn start_queued(&mut self, effects: &mut Effects) {
        while self.running < self.request.settings.parallel_calls.max(1) {
            let Some(index) = self.step.queue.pop_front() else {
                return;
            };
            if let Err(failure) = self.start_call(index, effects) {
                self.settle(index, Ending::refused(failure), effects);
            }
        }
    }

    fn start_call(&mut self, index: usize, effects: &mut Effects) -> Result<(), ToolFailure> {
        let Some(open) = self.step.open.get(index) else {
            return Ok(());
        };
        let (call, arguments) = (open.call.clone(), open.arguments.clone());
        let is_background = self.tool(&call.tool).is_some_and(|bound| {
            bound.tool.annotations.fire_and_forget && open.wiring.target.is_none()
        });
        self.spent.calls = self.spent.calls.saturating_add(1);
        Budgets::of(&self.request.settings).allows(self.spent.calls)?;
        // A sub-agent's budget is what remains without this call.
        let work = self.prepared(index, &arguments)?;
        effects.events.push(EventKind::ToolStart {
            step: self.steps,
            filled: (arguments != call.arguments).then_some(arguments),
            call: call.clone(),
        });
        self.calls += 1;
        if work.bound.runner == Runner::Client {
            if let Some(open) = self.step.open.get_mut(index) {
                open.is_handed_over = true;
            }
            return Ok(());
        }
        self.running += 1;
        effects.actions.push(Action::Call(Box::new(work.clone())));
        if let Some(open) = self.step.open.get_mut(index).filter(|_| is_background) {
            open.answer = Some((
                "started in the background; its result is not reported".into(),
                false,
            ));
            self.step.schedule.done(index, &[]);
            self.background
                .insert(call.id.clone(), Background { call, work });
        }
        Ok(())
    }

    /// What is needed to make the call at `index` with `arguments`.
    fn prepared(&mut self, index: usize, arguments: &Value) -> Result<Work, ToolFailure> {
        let gone = || ToolFailure::correctable("unknown_tool", "the tool is not there any more");
        let open = self.step.open.get(index).ok_or_else(gone)?;
        let call = &open.call;
        let bound = self.tool(&call.tool).ok_or_else(gone)?;
        let instance = call.instance.as_deref();
        let mut context = self.scoped(&open.wiring.scopes, instance)?;
        let runner = match &bound.runner {
            Runner::Advisor => {
                let advisor = self.advisor(arguments)?;
                context.extend(self.looked_at(advisor, instance));
                Runner::Request(Box::new(consultation(advisor, arguments)))
            }
            runner => runner.clone(),
        };
        let bound = bound.clone();
        let call = call.clone();
        let mut reserved = reserved(&bound.tool, &call, &open.wiring);
        for value in context
            .iter_mut()
            .map(|(_, value)| value)
            .chain(reserved.values_mut())
        {
            *value = self.for_tool(&call, value);
        }
        let given = context.iter().map(|(_, value)| value).chain([arguments]);
        Ok(Work {
            masked: self.masked(&call.tool, given),
            check: self.checks.of(&call.tool).ok_or_else(gone)?.clone(),
            call: ToolCall {
                instance: call.instance.clone(),
                context,
                reserved,
                schema: Some(self.schema(&call.tool)),
                timeout: self.request.settings.call_timeout,
                ..ToolCall::new(&call.id, bound.called(), arguments.clone())
            },
            bound: Bound {
                tool: bound.tool,
                runner,
            },
            left: Budgets::of(&self.request.settings).less(&self.spent),
            steps_left: self
                .request
                .settings
                .max_steps
                .saturating_sub(self.own_steps()),
            again: false,
        })
    }

    /// Calls of this host that were begun and have no answer yet.
    pub(super) fn begun(&self) -> Vec<usize> {
        let open = self.step.open.iter().enumerate();
        open.filter(|(index, open)| {
            open.answer.is_none()
                && !open.is_handed_over
                && !self.step.schedule.is_blocked(*index)
                && !self.step.queue.contains(index)
        })
        .map(|(index, _)| index)
        .collect()
    }

    /// Whether nothing is left but calls that were handed over, and those that wait for their results.
    pub(super) fn has_handed_over(&self) -> bool {
        let open = self.step.open.iter().enumerate();
        let mut waiting = open.filter(|(_, open)| open.answer.is_none());
        self.hands_over()
            && self.background.is_empty()
            && waiting
                .all(|(index, open)| open.is_handed_over || self.step.schedule.is_blocked(index))
    }

    pub(super) fn hands_over(&self) -> bool {
        self.step.open.iter().any(|open| open.is_handed_over)
    }

    /// The work of a call that was begun, again.
    pub(super) fn work(&mut self, index: usize) -> Option<Work> {
        let arguments = self.step.open.get(index)?.arguments.clone();
        self.prepared(index, &arguments).ok()
    }

    /// Ends a call that will not be made, or not again.
    pub(super) fn refuse(&mut self, index: usize, failure: ToolFailure, effects: &mut Effects) {
        self.settle(index, Ending::refused(failure), effects);
        self.begin_unblocked(effects);
    }
}

/// A call's reserved properties, as they are in force.
fn reserved(tool: &Tool, call: &Call, wiring: &Wiring) -> Map<String, Value> {
    let mut reserved = call.reserved();
    if let Some(target) = &tool.output_path {
        reserved.insert("_outputPath".into(), json!(target));
    }
    if let Scopes::Provisioned(_) = &tool.scopes {
        reserved.insert("_scopes".into(), json!(wiring.scopes));
    }
    reserved
}
