//! What becomes of a call when a person has decided about it (docs/protocol.md, 7.7).

use super::results::Ending;
use super::{Effects, Machine};
use crate::calls::approve::{DecisionEffect, apply_decision};
use serde_json::Value;
use toolhold_protocol::approval::Decision;
use toolhold_protocol::event::EventKind;

impl Machine {
    /// A person decided about a call.
    pub(super) fn decided(&mut self, id: &str, decision: Decision, effects: &mut Effects) {
        if self.decided_plan(id, &decision, effects) {
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
        let call = &pending.call;
        let fits = |arguments: &Value| self.checks.check(call, arguments);
        let check = self.checks.of(&call.tool).map(AsRef::as_ref);
        let made = match apply_decision(pending.clone(), decision, fits, check) {
            DecisionEffect::Make(arguments) => self.make(index, arguments, effects),
            DecisionEffect::Edited(arguments) => self.screen_call(index, arguments, true, effects),
            DecisionEffect::Replaced(result) => {
                self.settle(index, Ending::answered(result), effects);
                Ok(())
            }
            DecisionEffect::Refused(failure) => Err(failure),
            DecisionEffect::Void(message) => {
                effects.events.push(EventKind::Notice {
                    step: self.steps,
                    message,
                });
                return self.decide(pending, effects);
            }
        };
        if let Err(failure) = made {
            self.settle(index, Ending::refused(failure), effects);
        }
        self.begin_unblocked(effects);
        self.proceed(effects);
    }
}
