//! The end of a run: its usage, its reason and its output.

use super::{Action, Effects, Machine, millis};
use crate::run::RunUsage;
use serde_json::Value;
use toolhold_policy::ErrorClass;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::side_request::SideRequest;

impl Machine {
    /// Ends the run without a final output.
    pub(super) fn fail(
        &mut self,
        reason: StopReason,
        class: ErrorClass,
        message: String,
        effects: &mut Effects,
    ) {
        let failure = RunFailure::new(class, message);
        self.finish(reason, Value::Null, Some(failure), effects);
    }

    pub(super) fn finish(
        &mut self,
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
        effects: &mut Effects,
    ) {
        if reason == StopReason::Output && !self.background.is_empty() {
            // Their results are not needed, but their effects should complete.
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
            duration_ms: millis(self.elapsed),
        });
        effects.actions.push(Action::Finish);
    }

    /// Counts the request at once; the budget is checked before each Request.
    pub(super) fn asked_beside(&mut self, request: SideRequest, effects: &mut Effects) {
        let counts_money = self.counts_money();
        self.spent = self.spent.plus(RunUsage::beside(&request, counts_money));
        effects.events.push(EventKind::SideRequest(request));
    }

    /// Whether what a reply costs has to be known.
    pub(super) fn counts_money(&self) -> bool {
        let settings = &self.request.settings;
        settings.price.is_some() || settings.max_cost.is_some()
    }

    /// What the run cost, if it has prices and they tell all of it.
    pub(super) fn cost(&self) -> Option<Amount> {
        let is_known = self.request.settings.price.is_some() && self.spent.unpriced == 0;
        is_known.then_some(self.spent.cost)
    }

    /// What there is when a run is stopped: the output that was about to be returned, or else the data
    /// that calls wrote.
    pub(super) fn so_far(&mut self) -> Value {
        self.ending.take().unwrap_or_else(|| {
            let written = self.written();
            if written.is_empty() {
                Value::Null
            } else {
                written.into()
            }
        })
    }
}
