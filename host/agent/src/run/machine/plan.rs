//! Plans (docs/protocol.md, 8): a lazy one is checked as a whole, shown to a person where that is wanted,
//! and only then run; a saved one is run without a model; one in the context is carried along.
//!
//! In a plan a call without an instance is made for each of them, where there are any: one plan
//! serves all, each at its own pace (9).

use super::scopes::scopes;
use super::{Effects, Machine, StepState};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use toolhold_policy::ErrorClass;
use toolhold_protocol::approval::{Decision, Pending, Verdict};
use toolhold_protocol::bound::Runner;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::plan;
use toolhold_protocol::plan::{Graph, MAX_STEPS, MissingReference};
use toolhold_protocol::reference::{Path, Source};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Annotations;
use toolhold_protocol::tool::Execution;
use toolhold_protocol::turn::Answered;
use toolhold_protocol::turn::Turn;

/// The name of a plan in places where a tool's name stands.
const PLAN: &str = "plan";
/// Maximum faults reported to the model at once.
const MAX_REPORTED_FAULTS: usize = 8;

/// Where a consultation reads what its advisor should look at; no parameter is called so.
const GUIDANCE: &str = "/scopes";

/// A plan that can be run.
struct Checked {
    /// In an order in which each comes after those that it reads from.
    calls: Vec<Call>,
    /// How many of them, from the first on, can be made at the same time; and so on.
    layers: Vec<usize>,
    /// Inputs that have to be given first.
    needs: Vec<MissingReference>,
}

impl Machine {
    /// Takes the plans that the run begins with: the one that it carries, and the one that it is.
    pub(super) fn take_plans(&mut self) -> Result<(), RunError> {
        let failed = |reason| RunError::Plan { reason };
        if let Some(message) = self.context.plan.clone() {
            let calls = read(message.plan).map_err(failed)?;
            if !calls.is_empty() {
                // The model reads the fault and makes another plan.
                self.progress.fault = self.check_plan(&calls).err();
            }
            let calls = calls.into_iter().map(|call| self.placed(call));
            let calls: Vec<Call> = calls.collect();
            self.progress.plan(calls, &self.context.instances);
        }
        if let Some(plan) = self.request.plan.clone() {
            self.step.planned = self.saved_plan(plan).map_err(failed)?;
        }
        Ok(())
    }

    /// The reply is complete, and it is a plan.
    pub(super) fn planned(&mut self, reply: &str, effects: &mut Effects) {
        let checked = match self.check_plan(&self.step.planned) {
            Ok(checked) => checked,
            Err(reason) => {
                self.step.planned.clear();
                let reason = format!("the plan cannot be run: {reason}");
                return self.reject(reply, reason, effects);
            }
        };
        let output = self.request.settings.dry_run.then(|| checked.report());
        effects.events.push(EventKind::Plan {
            step: self.steps,
            calls: checked.calls.clone(),
        });
        self.step.planned = checked.calls;
        self.unusable = 0;
        self.solutions += 1;
        if let Some(output) = output {
            return self.deliver(StopReason::Planned, output, None, effects);
        }
        if self.request.settings.approval.plans {
            return self.decide_plan(effects);
        }
        self.run_plan(effects);
    }

    /// Has a person decide about the plan.
    pub(super) fn decide_plan(&self, effects: &mut Effects) {
        self.decide(self.pending_plan(), effects);
    }

    /// Runs the saved plan, which was checked, instead of asking a model.
    pub(super) fn carry_out(&mut self, effects: &mut Effects) {
        self.steps = 1;
        self.step = StepState {
            planned: std::mem::take(&mut self.step.planned),
            ..StepState::default()
        };
        effects.events.push(EventKind::Plan {
            step: self.steps,
            calls: self.step.planned.clone(),
        });
        if !self.request.settings.dry_run {
            return self.run_plan(effects);
        }
        match self.check_plan(&self.step.planned) {
            Ok(checked) => {
                let report = checked.report();
                self.deliver(StopReason::Planned, report, None, effects);
            }
            Err(reason) => self.fail(
                StopReason::Incomplete,
                ErrorClass::Correctable,
                format!("the plan cannot be run: {reason}"),
                effects,
            ),
        }
    }

    /// Every call of a saved plan is answered: the output is the data that they wrote.
    pub(super) fn carried_out(&mut self, effects: &mut Effects) {
        let output = self.written();
        let failed: Vec<String> = self
            .answered()
            .filter(|answered| answered.failed)
            .map(|answered| {
                let of = answered.call.instance.as_ref();
                let of = of.map_or(String::new(), |instance| format!(" @{instance}"));
                format!("{}{of}: {}", answered.call.tool, answered.text)
            })
            .collect();
        if failed.is_empty() {
            return self.deliver(StopReason::Output, output.into(), None, effects);
        }
        let more = failed.len().saturating_sub(MAX_REPORTED_FAULTS);
        let more = match more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let shown: Vec<&str> = failed
            .iter()
            .take(MAX_REPORTED_FAULTS)
            .map(String::as_str)
            .collect();
        let failure = RunFailure::new(
            ErrorClass::Correctable,
            format!(
                "{} of the plan's calls failed: {}{more}",
                failed.len(),
                shown.join("; ")
            ),
        );
        let reason = match self.overdrawn() {
            Some((StopReason::MaxToolCalls, _)) => StopReason::MaxToolCalls,
            _ => StopReason::Incomplete,
        };
        self.deliver(reason, output.into(), Some(failure), effects);
    }

    /// The data that calls wrote, by kind; that of an instance under `@` and its name, because no kind
    /// is called like that.
    pub(super) fn written(&self) -> Map<String, Value> {
        let mut output = Map::new();
        let mut shown = HashSet::new();
        for write in self.context.data.log().iter().skip(self.given) {
            let (kind, instance) = (write.path.kind.as_str(), write.instance.as_deref());
            if !shown.insert((kind, instance)) {
                continue;
            }
            let value = self.context.data.own(kind, instance);
            let value = value.cloned().unwrap_or_default();
            let Some(instance) = instance else {
                output.insert(kind.to_owned(), value);
                continue;
            };
            let own = output.entry(format!("@{instance}"));
            if let Value::Object(own) = own.or_insert_with(|| json!({})) {
                own.insert(kind.to_owned(), value);
            }
        }
        output
    }

    /// The calls of a saved plan. Each must be one that a tool can answer.
    fn saved_plan(&self, plan: Vec<Value>) -> Result<Vec<Call>, String> {
        let calls = read(plan)?;
        if calls.is_empty() {
            return Err("it holds no calls".into());
        }
        for (index, call) in calls.iter().enumerate() {
            let who = match self.tool(&call.tool).map(|bound| &bound.runner) {
                Some(Runner::Model) => "a model writes its result (it is latent)",
                Some(Runner::Request(_) | Runner::CleanRoom) => "a sub-agent answers it",
                Some(Runner::Advisor) => "an advisor answers it",
                Some(Runner::Client) => "the client makes it itself",
                Some(Runner::Module(_) | Runner::Activity(_)) | None => continue,
            };
            return Err(format!(
                "plan[{index}] calls {:?}, and {who}; a saved plan is run without a model, so leave the step \
                 out, or give the plan to a model with toolhold run --context",
                call.tool
            ));
        }
        self.check_plan(&calls).map(|checked| checked.calls)
    }

    /// Whether `calls` can be run as a whole: known tools, arguments that fit, an order, and nothing
    /// missing.
    fn check_plan(&self, calls: &[Call]) -> Result<Checked, String> {
        let mut steps = Vec::new();
        let mut faults = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            match self.check_step(index, call) {
                Ok(step) => steps.push(step),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.len() > MAX_REPORTED_FAULTS {
            let more = faults.len() - MAX_REPORTED_FAULTS;
            faults.truncate(MAX_REPORTED_FAULTS);
            faults.push(format!("and {more} more steps have faults"));
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let graph = self.guided(steps, calls)?;
        let is_given = self.context.data.contains(&Path::root("input"), None);
        let (needs, missing): (Vec<_>, Vec<_>) = graph
            .missing(|path, instance| self.is_there(path, instance))
            .into_iter()
            .filter(|missing| missing.place.pointer != GUIDANCE)
            .partition(|missing| {
                // A plan may be made for inputs that come later; it is not run now.
                let is_input = missing.paths.iter().any(|path| path.kind == "input");
                self.request.settings.dry_run && !is_given && is_input
            });
        if let Some(first) = missing.first() {
            return Err(first.to_string());
        }
        self.check_instances(calls)?;
        let ordered = graph.order().filter_map(|index| calls.get(index).cloned());
        Ok(Checked {
            calls: ordered.collect(),
            layers: graph.layers().iter().map(Vec::len).collect(),
            needs,
        })
    }

    /// The plan in an order in which advisors are asked after what they should look at was written. That is
    /// guidance (10): where no order allows it, or no step writes it, the plan stands without.
    fn guided(&self, steps: Vec<plan::Step>, calls: &[Call]) -> Result<Graph, String> {
        let mut guided = steps.clone();
        for (step, call) in guided.iter_mut().zip(calls) {
            let looks_at = self.guidance(call).into_iter();
            step.reads.extend(looks_at.map(|path| plan::Read {
                pointer: GUIDANCE.into(),
                source: Source::First(vec![path]),
            }));
        }
        Graph::new(guided)
            .or_else(|_| Graph::new(steps))
            .map_err(|error| error.to_string())
    }

    /// Checks a plan's step on its own.
    fn check_step(&self, index: usize, call: &Call) -> Result<plan::Step, String> {
        let at = |message: String| format!("plan[{index}]: {message}");
        self.checks
            .known(&call.tool)
            .map_err(|failure| at(failure.message))?;
        self.known_instance(call)
            .map_err(|failure| at(failure.message))?;
        let object = self.placed(call.clone()).object(true);
        let mut step = plan::Step::new(index, &object.into()).map_err(|error| error.to_string())?;
        let Some(bound) = self.tool(&call.tool) else {
            return Ok(step);
        };
        let sees = scopes(&bound.tool, call).map_err(|failure| at(failure.message))?;
        if !bound.tool.is_latent() {
            let reads = step.reads.iter();
            let open: Vec<&str> = reads.map(|read| read.pointer.as_str()).collect();
            let faults = self.checks.faults(&call.tool, &call.arguments, &open);
            if let Some(fault) = faults.first() {
                return Err(format!("plan[{index}]{}: {}", fault.pointer, fault.reason));
            }
        }
        // The parts of the context that a call sees must exist before it, like its references.
        step.reads.extend(sees.into_iter().map(|path| plan::Read {
            pointer: "/_scopes".into(),
            source: Source::First(vec![path]),
        }));
        Ok(step)
    }

    /// The order may be another where some steps are of one instance and others of all.
    fn check_instances(&self, calls: &[Call]) -> Result<(), String> {
        let all = self.served(calls.to_vec());
        if all.len() > MAX_STEPS {
            return Err(format!(
                "{} steps for {} instances are {} calls; {MAX_STEPS} are the most, so split it",
                calls.len(),
                self.context.instances.len(),
                all.len()
            ));
        }
        if calls.iter().all(|call| call.instance.is_none()) {
            return Ok(());
        }
        let steps = all.into_iter().enumerate().map(|(index, call)| {
            let object = self.placed(call).object(true);
            plan::Step::new(index, &object.into()).map_err(|error| error.to_string())
        });
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        Graph::new(steps)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Whether there is something at `path`, for each that a step serves.
    fn is_there(&self, path: &Path, instance: Option<&str>) -> bool {
        let data = &self.context.data;
        if instance.is_some() || self.context.instances.is_empty() {
            return data.contains(path, instance);
        }
        let mut instances = self.context.instances.iter();
        instances.all(|instance| data.contains(path, Some(instance)))
    }

    /// The calls, with one for each instance in the place of a call without any.
    fn served(&self, calls: Vec<Call>) -> Vec<Call> {
        let instances = &self.context.instances;
        let mut all = Vec::with_capacity(calls.len());
        for call in calls {
            if call.instance.is_some() || instances.is_empty() {
                all.push(call);
            } else {
                all.extend(instances.iter().map(|instance| Call {
                    instance: Some(instance.clone()),
                    ..call.clone()
                }));
            }
        }
        all
    }

    /// The call with the place where its result really goes: a tool's author may have fixed it.
    fn placed(&self, call: Call) -> Call {
        let fixed = self
            .tool(&call.tool)
            .and_then(|bound| bound.tool.output_path.as_ref());
        match fixed {
            Some(target) => Call {
                output_path: Some(target.to_string()),
                ..call
            },
            None => call,
        }
    }

    fn run_plan(&mut self, effects: &mut Effects) {
        let calls = std::mem::take(&mut self.step.planned);
        if self.context.plan.is_some() {
            let placed = calls.iter().map(|call| self.placed(call.clone()));
            let placed: Vec<Call> = placed.collect();
            self.progress.replace();
            self.progress.plan(placed, &self.context.instances);
        }
        for call in self.served(calls) {
            self.open(call, effects);
        }
        self.step.is_over = true;
        self.proceed(effects);
    }

    /// What became of the plan's steps in this iteration.
    pub(super) fn carry(&mut self, answered: &[Answered]) {
        if self.context.plan.is_none() {
            return;
        }
        for one in answered {
            let execution = self.tool(&one.call.tool).map(|bound| &bound.tool.execution);
            // A question is no step, and neither is an unknown tool.
            if execution.is_some_and(|execution| *execution != Execution::Consult) {
                let call = self.placed(one.call.clone());
                self.progress.settle(&call, one.failed);
            }
        }
    }

    fn pending_plan(&self) -> Pending {
        let call = Call {
            id: format!("plan_{}", self.derive(PLAN, 0)),
            tool: PLAN.into(),
            ..Call::default()
        };
        let plan = objects(&self.step.planned);
        Pending::new(call, plan.into(), Annotations::default())
    }

    /// Takes a person's decision, if it is about the plan that waits.
    pub(super) fn decided_plan(
        &mut self,
        id: &str,
        decision: &Decision,
        effects: &mut Effects,
    ) -> bool {
        if self.step.planned.is_empty() {
            return false;
        }
        let pending = self.pending_plan();
        if pending.call.id != id {
            return false;
        }
        effects.events.push(EventKind::Decided {
            step: self.steps,
            id: id.to_owned(),
            decision: decision.clone(),
        });
        if pending.digest != decision.digest {
            self.notice(
                "the decision was made for another plan and does not count",
                effects,
            );
            self.decide(pending, effects);
            return true;
        }
        match &decision.verdict {
            Verdict::Approve => self.run_plan(effects),
            Verdict::Edit { arguments } | Verdict::Replace { result: arguments } => {
                match self.changed_plan(arguments) {
                    Ok(calls) => {
                        effects.events.push(EventKind::Plan {
                            step: self.steps,
                            calls: calls.clone(),
                        });
                        self.step.planned = calls;
                        self.run_plan(effects);
                    }
                    Err(reason) => {
                        let message = format!("the changed plan cannot be run: {reason}");
                        self.notice(&message, effects);
                        self.decide(pending, effects);
                    }
                }
            }
            Verdict::Refuse { reason } => {
                self.step.planned.clear();
                let reply = json!({"calls": pending.arguments, "output": null});
                self.history.push(Turn::Rejected {
                    reply: reply.to_string(),
                    reason: format!(
                        "a person refused this plan: {reason}. Make another, or end and say so"
                    ),
                });
                self.ask(effects);
            }
        }
        true
    }

    /// The plan as a person edited it: a list of calls, or a plan message.
    fn changed_plan(&self, plan: &Value) -> Result<Vec<Call>, String> {
        let plan = plan::Plan::parse(plan).map_err(|error| error.to_string())?;
        let calls = read(plan.steps.into_iter().map(|step| step.call).collect())?;
        if calls.is_empty() {
            return Err("it holds no calls; refuse it instead".into());
        }
        self.check_plan(&calls).map(|checked| checked.calls)
    }

    fn notice(&self, message: &str, effects: &mut Effects) {
        effects.events.push(EventKind::Notice {
            step: self.steps,
            message: message.to_owned(),
        });
    }
}

impl Checked {
    /// The plan as a message that can be saved, with its order: `layers` are the calls, by their
    /// index, that can be made at the same time; `needs` the inputs that have to be given.
    fn report(&self) -> Value {
        let mut next = 0;
        let layers = self.layers.iter().map(|count| {
            let layer: Vec<usize> = (next..next + count).collect();
            next += count;
            layer
        });
        let layers: Vec<Vec<usize>> = layers.collect();
        let needs = self.needs.iter().map(|missing| {
            let paths: Vec<_> = missing.paths.iter().map(ToString::to_string).collect();
            json!({"paths": paths, "tool": missing.tool})
        });
        let needs: Vec<Value> = needs.collect();
        json!({
            "type": "plan",
            "mode": "lazy",
            "plan": objects(&self.calls),
            "layers": layers,
            "needs": needs,
        })
    }
}

/// Calls of a plan, as they were written.
fn read(plan: Vec<Value>) -> Result<Vec<Call>, String> {
    let plan = plan::Plan::parse(&plan.into()).map_err(|error| error.to_string())?;
    let calls = plan.steps.into_iter().map(|step| Call::read(step.call));
    calls.collect()
}

fn objects(calls: &[Call]) -> Vec<Value> {
    calls.iter().map(|call| call.object(true).into()).collect()
}
