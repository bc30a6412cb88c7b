//! A run that goes on after its process ended: what was begun and not finished is begun again where
//! that does no harm.

use super::{Action, Effects, Machine};
use crate::error::ErrorClass;
use crate::event::EventKind;
use crate::toolbox::ToolFailure;
use std::time::Duration;

impl Machine {
    pub(super) fn resumed(&mut self, effects: &mut Effects, elapsed: Duration) {
        effects.events.push(EventKind::Resumed { step: self.steps });
        for id in self.running() {
            self.resume_call(&id, effects);
        }
        if !self.step.is_over && !self.step.planned.is_empty() && self.step.reader.is_none() {
            // The plan waits for a person.
            return self.decide_plan(effects);
        }
        if self.step.is_over {
            return self.proceed(effects, elapsed);
        }
        if self.step.open.is_empty() {
            // What was planned so far is planned anew.
            self.step.planned.clear();
            self.step.ignored = 0;
            self.step.reader = Some(self.request.settings.contract.reader());
            return self.send(effects);
        }
        // Part of the reply was acted on. Asked again, the model would make those calls again.
        self.step.reader = None;
        self.step
            .notes
            .push("Your reply broke off after these calls. Go on from here.".into());
        self.step.is_over = true;
        self.proceed(effects, elapsed);
    }

    /// A call that only reads, or that may be made twice, is made again. Of any other nobody knows
    /// whether it took effect.
    fn resume_call(&mut self, id: &str, effects: &mut Effects) {
        let Some(call) = self.call_named(id) else {
            return;
        };
        let (call, pending) = (call.call.clone(), call.pending.clone());
        if let Some(pending) = pending {
            return self.decide(pending, effects);
        }
        let annotations = self
            .tool(&call.tool)
            .map(|bound| bound.tool.annotations)
            .unwrap_or_default();
        if annotations.read_only || annotations.idempotent {
            if let Some(work) = self.work(id) {
                effects.actions.push(Action::Call(Box::new(work)));
            }
            return;
        }
        let failure = ToolFailure {
            kind: "interrupted".into(),
            class: ErrorClass::Correctable,
            message: "the host was interrupted while this call ran; it is not known whether it took effect. \
                      Find out before you make it again"
                .into(),
        };
        self.settle_refused(id, failure, effects);
    }
}
