//! Plans (docs/protocol.md, 8): a lazy one is checked as a whole, shown to a person where that is wanted,
//! and only then run; a saved one is run without a model; one in the context is carried along.

use super::context_turns::written;
use super::plan_check::{MAX_REPORTED_FAULTS, PlanCheck, objects, read};
use super::{Effects, Machine, StepState};
use serde_json::json;
use toolhold_policy::ErrorClass;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::{Annotations, Execution};
use toolhold_protocol::turn::{Answered, Turn};

/// The name of a plan in places where a tool's name stands.
const PLAN: &str = "plan";

impl Machine {
    /// Takes the plans that the run begins with: the one that it carries, and the one that it is.
    pub(super) fn take_plans(&mut self) -> Result<(), RunError> {
        let failed = |reason| RunError::Plan { reason };
        if let Some(message) = self.context.plan.clone() {
            let calls = read(message.plan).map_err(failed)?;
            if !calls.is_empty() {
                // The model reads the fault and makes another plan.
                self.progress.fault = self.plan_check().check(&calls).err();
            }
            let check = self.plan_check();
            let calls: Vec<Call> = calls.into_iter().map(|call| check.placed(call)).collect();
            self.progress.plan(calls, &self.context.instances);
        }
        if let Some(plan) = self.request.plan.clone() {
            self.step.planned = self.plan_check().saved(plan).map_err(failed)?;
        }
        Ok(())
    }

    /// The reply is complete, and it is a plan.
    pub(super) fn planned(&mut self, reply: &str, effects: &mut Effects) {
        let checked = match self.plan_check().check(&self.step.planned) {
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
        self.reply_used(effects);
        if let Some(output) = output {
            return self.deliver(StopReason::Planned, output, None, effects);
        }
        if self.request.settings.decisions.plans || self.plan_doubts().is_some() {
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
            ..StepState::under(self.rules)
        };
        effects.events.push(EventKind::Plan {
            step: self.steps,
            calls: self.step.planned.clone(),
        });
        if !self.request.settings.dry_run {
            return self.run_plan(effects);
        }
        match self.plan_check().check(&self.step.planned) {
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
        let output = written(&self.context);
        let failed: Vec<String> = self
            .history
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
        let reason = match self.usage.overdrawn() {
            Some((StopReason::MaxToolCalls, _)) => StopReason::MaxToolCalls,
            _ => StopReason::Incomplete,
        };
        self.deliver(reason, output.into(), Some(failure), effects);
    }

    fn plan_check(&self) -> PlanCheck<'_> {
        PlanCheck {
            rules: self.rules,
            tools: &self.tools,
            context: &self.context,
            is_dry_run: self.request.settings.dry_run,
            accepted: self.is_lazy().then_some(&self.progress),
        }
    }

    /// Why the plan waits although no rule says so.
    fn plan_doubts(&self) -> Option<&'static str> {
        let mut calls = self.step.planned.iter();
        calls.find_map(|call| self.doubts(call, self.tools.find(&call.tool)?))
    }

    fn run_plan(&mut self, effects: &mut Effects) {
        let mut calls = std::mem::take(&mut self.step.planned);
        for call in &mut calls {
            // The plan was decided about as a whole.
            call.is_prose = false;
        }
        if self.context.plan.is_some() {
            let check = self.plan_check();
            let placed = calls.iter().map(|call| check.placed(call.clone()));
            let placed: Vec<Call> = placed.collect();
            self.progress.replace();
            self.progress.plan(placed, &self.context.instances);
        }
        for call in self.plan_check().served(calls) {
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
        // What is held was not tried: its step stays open.
        let held = std::mem::take(&mut self.step.held);
        for one in answered.iter().filter(|one| !held.contains(&one.call.id)) {
            let bound = self.tools.find(&one.call.tool);
            let execution = bound.map(|bound| &bound.tool.execution);
            // A question is no step, and neither is an unknown tool.
            if execution.is_some_and(|execution| *execution != Execution::Consult) {
                let call = self.plan_check().placed(one.call.clone());
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
        Pending {
            why: self.plan_doubts().map(str::to_owned),
            ..Pending::new(call, plan.into(), Annotations::default())
        }
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
                match self.plan_check().edited(arguments) {
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
                        self.notice(message, effects);
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
}
