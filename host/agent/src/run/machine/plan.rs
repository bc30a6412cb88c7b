//! Lazy plans: checked as a whole, shown to a person where that is wanted, and only then run
//! (PROTOCOL.md, 8).

use super::{Effects, Machine};
use crate::error::ErrorClass;
use crate::event::{EventKind, RunFailure, StopReason};
use crate::protocol::plan::{Graph, Step};
use crate::protocol::{Annotations, Call, Turn};
use crate::run::approval::{Decision, Pending, Verdict};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::time::Duration;

/// What a plan is called where a tool's name would stand.
const PLAN: &str = "plan";

impl Machine {
    /// The reply is complete, and it is a plan.
    pub(super) fn planned(&mut self, reply: &str, effects: &mut Effects, elapsed: Duration) {
        let calls = match self.check_plan() {
            Ok(calls) => calls,
            Err(reason) => {
                self.step.planned.clear();
                return self.reject(
                    reply,
                    format!("the plan cannot be run: {reason}"),
                    effects,
                    elapsed,
                );
            }
        };
        effects.events.push(EventKind::Plan {
            step: self.steps,
            calls: calls.clone(),
        });
        self.step.planned = calls;
        self.unusable = 0;
        if self.request.settings.dry_run {
            let output = json!({"type": "plan", "mode": "lazy", "plan": self.plan()});
            return self.finish(StopReason::Planned, output, None, effects, elapsed);
        }
        if self.request.settings.approval.plans {
            return self.decide_plan(effects);
        }
        self.run_plan(effects, elapsed);
    }

    /// Has a person decide about the plan.
    pub(super) fn decide_plan(&self, effects: &mut Effects) {
        self.decide(self.pending_plan(self.plan()), effects);
    }

    /// Runs a saved plan instead of asking a model.
    pub(super) fn carry_out(&mut self, plan: Vec<Value>, effects: &mut Effects, elapsed: Duration) {
        self.steps = 1;
        self.step = super::Step::default();
        let calls: Result<Vec<Call>, String> = plan.into_iter().map(Call::read).collect();
        let checked = calls.and_then(|calls| {
            self.step.planned = calls;
            let checked = self.check_plan()?;
            match checked.iter().find(|call| {
                self.tool(&call.tool)
                    .is_some_and(|bound| bound.tool.is_latent())
            }) {
                Some(latent) => Err(format!(
                    "the tool {:?} is latent, so only a model can do this step",
                    latent.tool
                )),
                None => Ok(checked),
            }
        });
        match checked {
            Ok(calls) => {
                effects.events.push(EventKind::Plan {
                    step: self.steps,
                    calls: calls.clone(),
                });
                self.step.planned = calls;
                self.run_plan(effects, elapsed);
            }
            Err(reason) => {
                let message = format!("the plan cannot be run: {reason}");
                self.fail(
                    StopReason::Incomplete,
                    ErrorClass::Correctable,
                    message,
                    effects,
                    elapsed,
                );
            }
        }
    }

    /// Every call of a saved plan is answered: the output is the data that they wrote.
    pub(super) fn carried_out(&mut self, effects: &mut Effects, elapsed: Duration) {
        let output = self.written();
        let failed: Vec<String> = self
            .answered()
            .filter(|answered| answered.failed)
            .map(|answered| format!("{}: {}", answered.call.tool, answered.text))
            .collect();
        if failed.is_empty() {
            return self.finish(StopReason::Output, output.into(), None, effects, elapsed);
        }
        let failure = RunFailure {
            class: ErrorClass::Correctable,
            message: format!(
                "{} of the plan's calls failed: {}",
                failed.len(),
                failed.join("; ")
            ),
        };
        self.finish(
            StopReason::Incomplete,
            output.into(),
            Some(failure),
            effects,
            elapsed,
        );
    }

    /// The data that calls wrote, by kind; that of an instance below its name.
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
            let own = match instance {
                None => Some(&mut output),
                Some(name) => output
                    .entry(name)
                    .or_insert_with(|| json!({}))
                    .as_object_mut(),
            };
            if let Some(own) = own {
                own.insert(kind.to_owned(), value);
            }
        }
        output
    }

    /// The plan's calls in an order in which each comes after those that it reads from.
    fn check_plan(&self) -> Result<Vec<Call>, String> {
        let mut steps = Vec::new();
        for (index, call) in self.step.planned.iter().enumerate() {
            let step = Step::new(index, &Value::Object(call.object(true)))
                .map_err(|error| error.to_string())?;
            self.gate
                .known(&call.tool)
                .map_err(|failure| format!("plan[{index}]: {}", failure.message))?;
            steps.push(step);
        }
        let graph = Graph::new(steps).map_err(|error| error.to_string())?;
        let missing = graph.missing(|path, instance| self.context.data.contains(path, instance));
        if let Some(first) = missing.first() {
            return Err(first.to_string());
        }
        Ok(graph
            .order()
            .filter_map(|index| self.step.planned.get(index).cloned())
            .collect())
    }

    fn run_plan(&mut self, effects: &mut Effects, elapsed: Duration) {
        for call in std::mem::take(&mut self.step.planned) {
            self.open(call, effects);
        }
        self.step.is_over = true;
        self.proceed(effects, elapsed);
    }

    fn plan(&self) -> Vec<Value> {
        self.step
            .planned
            .iter()
            .map(|call| call.object(true).into())
            .collect()
    }

    fn pending_plan(&self, plan: Vec<Value>) -> Pending {
        let call = Call {
            id: format!("plan_{}", self.derive(PLAN, 0)),
            tool: PLAN.into(),
            ..Call::default()
        };
        Pending::new(call, plan.into(), Annotations::default())
    }

    /// Takes a person's decision, if it is about the plan that waits.
    pub(super) fn decided_plan(
        &mut self,
        id: &str,
        decision: &Decision,
        effects: &mut Effects,
        elapsed: Duration,
    ) -> bool {
        if self.step.planned.is_empty() {
            return false;
        }
        let pending = self.pending_plan(self.plan());
        if pending.call.id != id {
            return false;
        }
        effects.events.push(EventKind::Decided {
            step: self.steps,
            id: id.to_owned(),
            decision: decision.clone(),
        });
        if pending.digest != decision.digest {
            self.decide(pending, effects);
            return true;
        }
        match &decision.verdict {
            Verdict::Approve => self.run_plan(effects, elapsed),
            Verdict::Edit { arguments } | Verdict::Replace { result: arguments } => {
                let calls = arguments
                    .as_array()
                    .into_iter()
                    .flatten()
                    .cloned()
                    .map(Call::read)
                    .collect::<Result<Vec<_>, _>>();
                let before = std::mem::replace(&mut self.step.planned, calls.unwrap_or_default());
                match self.check_plan() {
                    Ok(calls) if !calls.is_empty() => {
                        self.step.planned = calls;
                        self.run_plan(effects, elapsed);
                    }
                    other => {
                        let reason = other.err().unwrap_or_else(|| "it holds no calls".into());
                        effects.events.push(EventKind::Notice {
                            step: self.steps,
                            message: format!("the changed plan cannot be run: {reason}"),
                        });
                        self.step.planned = before;
                        self.decide(pending, effects);
                    }
                }
            }
            Verdict::Refuse { reason } => {
                self.step.planned.clear();
                self.history.push(Turn::assistant(
                    json!({"calls": pending.arguments, "output": null}).to_string(),
                ));
                self.history.push(Turn::user(format!(
                    "A person refused this plan: {reason}. Make another, or end and say so."
                )));
                self.ask(effects, elapsed);
            }
        }
        true
    }
}
