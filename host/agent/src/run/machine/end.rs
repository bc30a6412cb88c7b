//! The end of a run: its usage, its reason and its output.

use super::context_turns::written;
use super::reply::text_of;
use super::{Action, Effects, Machine, millis};
use serde_json::Value;
use toolhold_policy::ErrorClass;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason};
use toolhold_protocol::side_request::SideRequest;

impl Machine {
    /// Says something that the run's readers should know.
    pub(super) fn notice(&self, message: impl Into<String>, effects: &mut Effects) {
        effects.events.push(EventKind::Notice {
            step: self.steps,
            message: message.into(),
        });
    }

    /// Ends the run without a final output.
    pub(super) fn fail(
        &mut self,
        reason: StopReason,
        class: ErrorClass,
        message: String,
        effects: &mut Effects,
    ) {
        // What came first is the error, and not the limit that the run met because of it.
        let failure = RunFailure::new(class, self.with_original_error(message));
        self.finish(reason, Value::Null, Some(failure), effects);
    }

    pub(super) fn finish(
        &mut self,
        reason: StopReason,
        output: Value,
        error: Option<RunFailure>,
        effects: &mut Effects,
    ) {
        if reason == StopReason::Output && self.running.has_background() {
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
        if reason != StopReason::ToolCalls {
            self.report_citations(&output, effects);
        }
        // It may quote what a call was given or returned.
        let error = error.map(|failure| RunFailure {
            message: text_of(&self.for_user(Value::String(failure.message))),
            ..failure
        });
        self.finished = true;
        effects.events.push(EventKind::Done {
            reason,
            output,
            error,
            // What candidates of the fallback were asked is no step of the run.
            steps: self.own_steps(),
            calls: self.usage.calls(),
            tokens: self.usage.spent().tokens,
            cost_nano: self.usage.cost(),
            duration_ms: millis(self.elapsed),
        });
        effects.actions.push(Action::Finish);
    }

    /// The output, or the error, as it leaves the run. A sub-agent's stays inside of this host.
    pub(super) fn for_user(&mut self, output: Value) -> Value {
        match self.request.depth {
            0 => self.privacy.for_user(&output),
            _ => output,
        }
    }

    /// Counts the request at once; the budget is checked before each Request.
    pub(super) fn asked_beside(&mut self, request: SideRequest, effects: &mut Effects) {
        self.usage.asked_beside(&request);
        effects.events.push(EventKind::SideRequest(request));
    }

    /// What there is when a run is stopped: the output that was about to be returned, or else the data
    /// that calls wrote.
    pub(super) fn so_far(&mut self) -> Value {
        self.ending.take().unwrap_or_else(|| {
            let written = written(&self.context);
            if written.is_empty() {
                Value::Null
            } else {
                written.into()
            }
        })
    }
}
