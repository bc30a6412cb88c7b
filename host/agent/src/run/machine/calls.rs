//! A step's calls, each from the model's words to its result (PROTOCOL.md, 5 and 7).

use super::{Action, Effects, Machine, Work};
use crate::event::{EventKind, StopReason, ToolOutcome};
use crate::guard::validate::cut;
use crate::protocol::advisor::Advisor;
use crate::protocol::data::{Method, Write};
use crate::protocol::reference::{self, Path, Source, Target};
use crate::protocol::tool::{self, Scopes};
use crate::protocol::turn::Answered;
use crate::protocol::{Call, Exchange, Message, Saved, Tool, Turn};
use crate::run::Runner;
use crate::run::approval::{Decision, Pending, Verdict};
use crate::toolbox::{ToolCall, ToolFailure, ToolOutput, ToolResult, ToolUsage};
use serde_json::{Value, json};
use std::time::Duration;

/// Requests to an advisor that is consulted.
const CONSULTATION: u32 = 3;
/// Instances that a message names.
const NAMES: usize = 20;

/// A call of the step that is being made.
#[derive(Debug)]
pub struct Open {
    pub call: Call,
    fence: String,
    wiring: Wiring,
    /// With references replaced, once they can be.
    arguments: Value,
    /// Shown to a person, who has not decided yet.
    pub pending: Option<Pending>,
    /// Text for the model and whether it is an error; absent while the call waits or runs.
    answer: Option<(String, bool)>,
}

/// What a call's reserved properties say about data.
#[derive(Debug, Default)]
struct Wiring {
    reads: Vec<Source>,
    target: Option<Target>,
    method: Method,
    scopes: Vec<Path>,
}

/// A call that was made and that nobody waits for.
#[derive(Debug)]
pub struct Background {
    pub call: Call,
    pub work: Work,
}

/// How a call ended, before it is told.
struct Ending {
    outcome: Result<ToolOutput, ToolFailure>,
    usage: ToolUsage,
    printed: Vec<String>,
    /// Nobody was asked: the call was latent, or refused.
    by_host: bool,
}

impl Machine {
    /// Takes the next call of the reply.
    pub(super) fn accept(&mut self, call: Call, effects: &mut Effects) {
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
        self.step.schedule.add(
            name,
            call.instance.clone(),
            wiring.reads.clone(),
            &wiring.scopes,
            writes,
        );
        self.step.open.push(Open {
            arguments: Value::Null,
            fence,
            wiring,
            pending: None,
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
        self.gate.known(&call.tool)?;
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
    fn begin_unblocked(&mut self, effects: &mut Effects) {
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
            self.gate.check_latent(&call.tool, &call.arguments, &open)?;
            let ending = Ending {
                outcome: Ok(output.into()),
                usage: ToolUsage::default(),
                printed: Vec::new(),
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
        let annotations = bound.tool.annotations;
        let waits = bound.waits(&self.request.settings.approval);
        let arguments = self
            .context
            .data
            .fill(&call.arguments, call.instance.as_deref());
        let arguments =
            arguments.map_err(|error| ToolFailure::correctable("reference", error.to_string()))?;
        let (arguments, repairs) = self.gate.put_right(&call.tool, arguments);
        if !repairs.is_empty() {
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message: format!(
                    "arguments of {} were put right: {}",
                    call.tool,
                    repairs.join("; ")
                ),
            });
        }
        self.gate.check(&call, &arguments)?;
        if waits {
            let pending = Pending::new(call, arguments, annotations);
            if let Some(open) = self.step.open.get_mut(index) {
                open.pending = Some(pending.clone());
            }
            self.decide(pending, effects);
            return Ok(());
        }
        self.make(index, arguments, effects)
    }

    /// Makes a call that passed every check, as soon as there is room for it.
    fn make(
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
        let (call, arguments) = (open.call.clone(), &open.arguments);
        let is_background = self.tool(&call.tool).is_some_and(|bound| {
            bound.tool.annotations.fire_and_forget && open.wiring.target.is_none()
        });
        let work = self.prepared(index, arguments)?;
        effects.events.push(EventKind::ToolStart {
            step: self.steps,
            filled: (*arguments != call.arguments).then(|| arguments.clone()),
            call: call.clone(),
        });
        self.calls += 1;
        self.running += 1;
        effects.actions.push(Action::Call(Box::new(work.clone())));
        if let Some(open) = self.step.open.get_mut(index).filter(|_| is_background) {
            open.answer = Some(("started; nobody waits for its result".into(), false));
            self.step.schedule.done(index, &[]);
            self.background
                .insert(call.id.clone(), Background { call, work });
        }
        Ok(())
    }

    /// What is needed to make the call at `index` with `arguments`.
    fn prepared(&self, index: usize, arguments: &Value) -> Result<Work, ToolFailure> {
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
        Ok(Work {
            call: ToolCall {
                id: call.id.clone(),
                tool: match &runner {
                    Runner::Module(own) | Runner::Activity(own) => own.clone(),
                    _ => call.tool.clone(),
                },
                arguments: arguments.clone(),
                instance: call.instance.clone(),
                context,
                timeout: self.request.settings.call_timeout,
            },
            description: bound.tool.description.clone(),
            output: bound.tool.output.clone(),
            runner,
            tokens_left: self
                .request
                .settings
                .token_budget
                .map(|budget| budget.saturating_sub(self.tokens)),
            steps_left: self.request.settings.max_steps.saturating_sub(self.steps),
        })
    }

    /// Calls that were begun and have no answer yet.
    pub(super) fn begun(&self) -> Vec<usize> {
        let open = self.step.open.iter().enumerate();
        open.filter(|(index, open)| {
            open.answer.is_none()
                && !self.step.schedule.is_blocked(*index)
                && !self.step.queue.contains(index)
        })
        .map(|(index, _)| index)
        .collect()
    }

    /// The work of a call that was begun, again.
    pub(super) fn work(&self, index: usize) -> Option<Work> {
        let arguments = &self.step.open.get(index)?.arguments;
        self.prepared(index, arguments).ok()
    }

    /// Ends a call that will not be made, or not again.
    pub(super) fn refuse(&mut self, index: usize, failure: ToolFailure, effects: &mut Effects) {
        self.settle(index, Ending::refused(failure), effects);
        self.begin_unblocked(effects);
    }

    /// The advisor that a consultation names.
    fn advisor(&self, arguments: &Value) -> Result<&Advisor, ToolFailure> {
        let id = arguments.get("id").and_then(Value::as_str);
        let mut advisors = self.context.advisors.iter();
        advisors
            .find(|advisor| Some(advisor.id.as_str()) == id)
            .ok_or_else(|| ToolFailure::correctable("arguments", "there is no such advisor"))
    }

    /// What there is of what an advisor should look at. Its scopes are guidance: one that names
    /// nothing is no fault of the call (10).
    fn looked_at(&self, advisor: &Advisor, instance: Option<&str>) -> Vec<(Path, Value)> {
        let paths = advisor.scopes.iter();
        let paths: Vec<Path> = paths
            .filter_map(|key| tool::scope(&json!(key)).ok())
            .collect();
        let scope = self.context.data.scoped(&paths, instance);
        let values = scope.values.into_iter();
        values
            .map(|(path, value)| (path, value.into_owned()))
            .collect()
    }

    /// The parts of the context that a call's scopes name, and nothing else.
    fn scoped(
        &self,
        scopes: &[Path],
        instance: Option<&str>,
    ) -> Result<Vec<(Path, Value)>, ToolFailure> {
        let scope = self.context.data.scoped(scopes, instance);
        match scope.missing {
            Some(missing) => {
                let message = format!("its scope names nothing: {missing}");
                Err(ToolFailure::correctable("scope", message))
            }
            None => Ok(scope
                .values
                .into_iter()
                .map(|(path, value)| (path, value.into_owned()))
                .collect()),
        }
    }

    pub(super) fn called(
        &mut self,
        id: &str,
        result: ToolResult,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        if let Some(Background { call, .. }) = self.background.remove(id) {
            self.ran(&result);
            let ending = Ending {
                outcome: result.outcome,
                usage: result.usage,
                printed: result.printed,
                by_host: false,
            };
            self.tell_background(call, ending, effects);
            self.start_queued(effects);
            if self.ending.is_some() {
                return self.end_if_nothing_runs(effects, elapsed);
            }
            // The one that had its place may have been the last that the step waited for.
            return self.proceed(effects, elapsed);
        }
        let Some(index) = self.index_of(id) else {
            return;
        };
        self.ran(&result);
        let ending = Ending {
            outcome: result.outcome,
            usage: result.usage,
            printed: result.printed,
            by_host: false,
        };
        self.settle(index, ending, effects);
        self.begin_unblocked(effects);
        self.start_queued(effects);
        self.proceed(effects, elapsed);
    }

    fn ran(&mut self, result: &ToolResult) {
        self.running = self.running.saturating_sub(1);
        self.tokens = self.tokens.saturating_add(result.usage.tokens);
    }

    fn tell_background(&self, call: Call, ending: Ending, effects: &mut Effects) {
        effects.events.push(EventKind::ToolResult {
            step: self.steps,
            id: call.id,
            tool: call.tool,
            outcome: ending.outcome.map(|output| output.value).into(),
            written: Vec::new(),
            usage: ending.usage,
            printed: ending.printed,
            by_host: ending.by_host,
        });
    }

    /// A call that nobody waits for, and that will not come back.
    pub(super) fn lose_background(
        &mut self,
        id: &str,
        failure: ToolFailure,
        effects: &mut Effects,
    ) {
        if let Some(Background { call, .. }) = self.background.remove(id) {
            self.tell_background(call, Ending::refused(failure), effects);
        }
    }

    /// The end, if there is an output and it only waited for calls in the background.
    pub(super) fn end_if_nothing_runs(&mut self, effects: &mut Effects, elapsed: Duration) {
        if let Some(output) = self.ending.take_if(|_| self.background.is_empty()) {
            self.finish(StopReason::Output, output, None, effects, elapsed);
        }
    }

    /// A person decided about a call.
    pub(super) fn decided(
        &mut self,
        id: &str,
        decision: Decision,
        effects: &mut Effects,
        elapsed: Duration,
    ) {
        if self.decided_plan(id, &decision, effects, elapsed) {
            return;
        }
        let Some(index) = self.index_of(id) else {
            return;
        };
        let Some(pending) = self
            .step
            .open
            .get(index)
            .and_then(|open| open.pending.clone())
        else {
            return;
        };
        effects.events.push(EventKind::Decided {
            step: self.steps,
            id: id.to_owned(),
            decision: decision.clone(),
        });
        if decision.digest != pending.digest {
            effects.events.push(EventKind::Notice {
                step: self.steps,
                message: format!(
                    "the decision about {id} was made for other arguments and does not count"
                ),
            });
            return self.decide(pending, effects);
        }
        let by_host = |outcome| Ending {
            outcome,
            usage: ToolUsage::default(),
            printed: Vec::new(),
            by_host: true,
        };
        let made = match decision.verdict {
            Verdict::Approve => self.make(index, pending.arguments, effects),
            Verdict::Edit { arguments } => match self.gate.check(&pending.call, &arguments) {
                Ok(()) => self.make(index, arguments, effects),
                Err(failure) => return self.decide_again(pending, &failure, effects),
            },
            Verdict::Replace { result } => match self.gate.output(&pending.call.tool, result) {
                Ok(result) => {
                    self.settle(index, by_host(Ok(result.into())), effects);
                    Ok(())
                }
                Err(failure) => return self.decide_again(pending, &failure, effects),
            },
            Verdict::Refuse { reason } => Err(ToolFailure::correctable(
                "refused",
                format!(
                    "a person refused this call: {reason}. Do not make it again; find another way, or end and say so"
                ),
            )),
        };
        if let Err(failure) = made {
            self.settle(index, Ending::refused(failure), effects);
        }
        self.begin_unblocked(effects);
        self.proceed(effects, elapsed);
    }

    /// Somebody decided something that cannot be done.
    fn decide_again(&self, pending: Pending, failure: &ToolFailure, effects: &mut Effects) {
        effects.events.push(EventKind::Notice {
            step: self.steps,
            message: format!(
                "what was decided about {} cannot be done: {}",
                pending.call.id, failure.message
            ),
        });
        self.decide(pending, effects);
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        self.step
            .open
            .iter()
            .position(|open| open.call.id == id && open.answer.is_none())
    }

    /// Ends a call: its result is checked, written where it belongs, and told.
    fn settle(&mut self, index: usize, ending: Ending, effects: &mut Effects) {
        let Some(open) = self.step.open.get(index) else {
            return;
        };
        let call = open.call.clone();
        let ran = !ending.by_host;
        let checked = ending.outcome.and_then(|output| {
            let value = self.gate.output(&call.tool, output.value)?;
            Ok(ToolOutput { value, ..output })
        });
        let (outcome, written) = self.write(index, checked);
        let max = self.request.settings.result_chars;
        let (result, failed) = match &outcome {
            Ok(value) => (shorten(&value.to_string(), max), false),
            Err(failure) => (shorten(&failure.message, max), true),
        };
        if let (true, Some(open)) = (ran, self.step.open.get(index)) {
            self.gate.ran(&call, &open.arguments, &result);
        }
        let is_latent = self
            .tool(&call.tool)
            .is_some_and(|bound| bound.tool.is_latent());
        let is_thought = is_latent && !failed && written.is_empty();
        let text = match (failed, written.as_slice()) {
            (false, []) if is_thought => "noted".to_owned(),
            (_, []) => result,
            // The data itself is shown with the rest of the context's data.
            (false, paths) => format!("written to {}", list(paths)),
            (true, paths) => format!("{result} (written to {})", list(paths)),
        };
        if let Some(open) = self.step.open.get_mut(index) {
            open.answer = Some((text, failed));
            open.pending = None;
        }
        self.step.schedule.done(index, &written);
        effects.events.push(EventKind::ToolResult {
            step: self.steps,
            id: call.id,
            tool: call.tool,
            outcome: outcome.into(),
            written,
            usage: ending.usage,
            printed: ending.printed,
            by_host: ending.by_host,
        });
    }

    /// Writes a result to its places. A result that cannot be written is a failure of the call, and a
    /// failure may have a place of its own.
    fn write(
        &mut self,
        index: usize,
        outcome: Result<ToolOutput, ToolFailure>,
    ) -> (Result<Value, ToolFailure>, Vec<Path>) {
        let Some(open) = self.step.open.get(index) else {
            return (outcome.map(|output| output.value), Vec::new());
        };
        let picked = match &outcome {
            Ok(output) => pick(open.wiring.target.as_ref(), output.output_path.as_deref()),
            Err(_) => Ok(None),
        };
        let outcome = match (outcome, &picked) {
            (Ok(_), Err(reason)) => Err(ToolFailure::correctable("output_path", reason.clone())),
            (outcome, _) => outcome,
        };
        let target = open.wiring.target.as_ref();
        let places: Vec<Path> = match (picked, target) {
            (Ok(Some(path)), _) => vec![path],
            (_, Some(target)) => chosen(target, outcome.is_ok()),
            (_, None) => Vec::new(),
        };
        let (call, method) = (open.call.clone(), open.wiring.method);
        let of_failure = target.map_or_else(Vec::new, |target| chosen(target, false));
        let outcome = outcome.map(|output| output.value);
        let value = outcome.as_ref().map_or_else(written_of, Value::clone);
        let Err(reason) = self.write_all(&call, method, &places, &value) else {
            return (outcome, places);
        };
        if let Err(failure) = outcome {
            // What it would have said of the failure cannot be kept; the model is told all the same.
            return (Err(failure), Vec::new());
        }
        let failure = ToolFailure::correctable(
            "write",
            format!("the result was had but cannot be written: {reason}"),
        );
        match self.write_all(&call, method, &of_failure, &written_of(&failure)) {
            Ok(()) => (Err(failure), of_failure),
            Err(_) => (Err(failure), Vec::new()),
        }
    }

    fn write_all(
        &mut self,
        call: &Call,
        method: Method,
        places: &[Path],
        value: &Value,
    ) -> Result<(), String> {
        let writes = places.iter().map(|path| Write {
            path: path.clone(),
            instance: call.instance.clone(),
            method,
            value: value.clone(),
        });
        let date = self.now_ms();
        self.context
            .write_result(writes.collect(), call, date)
            .map_err(|error| error.to_string())
    }

    /// When the reply is complete and every call of the step is answered: the next Request, or the end.
    pub(super) fn proceed(&mut self, effects: &mut Effects, elapsed: Duration) {
        if !self.step.is_over || self.finished {
            return;
        }
        while !self.step.schedule.is_running() {
            let stuck = self.step.schedule.give_up(&self.context.data);
            if stuck.is_empty() {
                break;
            }
            for (index, mut reason) in stuck {
                reason.push_str(self.hint(index));
                let failure = ToolFailure::correctable("blocked", reason);
                self.settle(index, Ending::refused(failure), effects);
            }
            // A failure may have been written to a place of its own, and somebody may read that.
            self.begin_unblocked(effects);
        }
        if self.step.open.iter().any(|open| open.answer.is_none()) {
            return;
        }
        let calls: Vec<Answered> = std::mem::take(&mut self.step.open)
            .into_iter()
            .filter_map(|open| {
                let (text, failed) = open.answer?;
                Some(Answered {
                    call: open.call,
                    fence: open.fence,
                    text,
                    failed,
                })
            })
            .collect();
        if !calls.is_empty() {
            self.finishing = false;
            self.carry(&calls);
            self.history.push(Turn::Exchange(Exchange { calls }));
        }
        let notes = std::mem::take(&mut self.step.notes);
        if !notes.is_empty() {
            self.history.push(Turn::user(notes.join("\n")));
        }
        match self.step.output.take() {
            _ if self.request.plan.is_some() => self.carried_out(effects, elapsed),
            Some(output) => self.conclude(output, effects, elapsed),
            None => self.ask(effects, elapsed),
        }
    }
}

impl Machine {
    /// What a call that found nothing to read may have forgotten.
    fn hint(&self, index: usize) -> &'static str {
        let open = self.step.open.get(index);
        let global = open.filter(|open| open.call.instance.is_none());
        let mut paths = global
            .into_iter()
            .flat_map(|open| open.wiring.reads.iter().flat_map(Source::paths));
        let is_elsewhere = paths.any(|path| {
            let mut instances = self.context.instances.iter();
            instances.any(|instance| self.context.data.contains(path, Some(instance)))
                && !self.context.data.contains(path, None)
        });
        if is_elsewhere {
            ". Without _instance a call reads and writes only what belongs to all instances; name the one whose data it reads"
        } else {
            ""
        }
    }
}

impl Ending {
    fn refused(failure: ToolFailure) -> Self {
        Self {
            outcome: Err(failure),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            by_host: true,
        }
    }
}

impl From<Result<Value, ToolFailure>> for ToolOutcome {
    fn from(outcome: Result<Value, ToolFailure>) -> Self {
        match outcome {
            Ok(value) => Self::Output(value),
            Err(failure) => Self::Error(failure),
        }
    }
}

/// The Request that asks an advisor a question (10).
fn consultation(advisor: &Advisor, arguments: &Value) -> Saved {
    let question = arguments.get("question").and_then(Value::as_str);
    Saved {
        instructions: Some(format!(
            "{}\nAnswer what you are asked, from where you stand.",
            advisor.role
        )),
        context: vec![Message::user(question.unwrap_or_default())],
        schema: Some(advisor.fields()),
        // It has no tools: more than one Request are attempts at an answer of the right form.
        max_steps: Some(CONSULTATION),
        ..Saved::default()
    }
}

/// What a call may see: as its author says, or what it asks for of what its author offers.
pub(super) fn scopes(tool: &Tool, call: &Call) -> Result<Vec<Path>, ToolFailure> {
    let failed = |message: String| ToolFailure::correctable("scope", message);
    let offered = match &tool.scopes {
        Scopes::Provisioned(paths) => return Ok(paths.clone()),
        Scopes::Requested(offered) => offered.as_slice(),
        Scopes::None => &[],
    };
    let asked = match &call.scopes {
        None => return Ok(Vec::new()),
        Some(Value::Array(asked)) => asked.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let allowed = || match offered {
        [] => "this tool sees nothing of the context; leave _scopes out".to_owned(),
        offered => format!("it may see {}", list(offered)),
    };
    let keys = asked.iter().map(|key| {
        let path = tool::scope(key)
            .map_err(|reason| failed(format!("_scopes {reason}; {}", allowed())))?;
        if offered.contains(&path) {
            return Ok(path);
        }
        Err(failed(format!(
            "_scopes asks for {path}, which {} is not offered; {}",
            call.tool,
            allowed()
        )))
    });
    keys.collect()
}

fn chosen(target: &Target, succeeded: bool) -> Vec<Path> {
    target.chosen(succeeded).into_iter().cloned().collect()
}

/// What is written of a failure.
fn written_of(failure: &ToolFailure) -> Value {
    json!({"error": failure.kind, "message": failure.message})
}

/// The place that a tool picked, if it did.
fn pick(target: Option<&Target>, picked: Option<&str>) -> Result<Option<Path>, String> {
    let Some(picked) = picked else {
        return Ok(None);
    };
    let path: Path = picked
        .parse()
        .map_err(|error| format!("the tool chose no place: {error}"))?;
    match target {
        // Only a call says where data goes; what a tool writes elsewhere nobody asked for.
        None => Ok(None),
        Some(target) if !target.paths().contains(&path) => Err(format!(
            "the tool chose {path}, which is none of the places that the call allows: {}",
            list(target.paths())
        )),
        _ => Ok(Some(path)),
    }
}

/// Names of instances, as many as a message can hold.
pub(super) fn some_of(instances: &[String]) -> String {
    let names: Vec<_> = instances.iter().take(NAMES).map(String::as_str).collect();
    let more = instances.len().saturating_sub(NAMES);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn list(paths: &[Path]) -> String {
    let texts: Vec<_> = paths.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// At most `max` characters, saying what is missing and how to get it.
pub(super) fn shorten(text: &str, max: usize) -> String {
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max).collect();
    format!(
        "{kept}\n[cut: {max} of {length} characters shown; ask the tool for a smaller part to see the rest]"
    )
}
