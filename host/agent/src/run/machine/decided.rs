//! What becomes of a call when a person has decided about it (docs/protocol.md, 7.7).

use super::results::SettledResult;
use super::{Effects, Machine};
use crate::calls::decide::{DecisionEffect, apply_decision};
use serde_json::Value;
use toolhold_protocol::decision::Decision;
use toolhold_protocol::event::EventKind;

impl Machine {
    /// A person decided about a call.
    pub(super) fn decided(&mut self, id: &str, decision: Decision, effects: &mut Effects) {
        if self.decided_plan(id, &decision, effects) {
            return;
        }
        let calls = &self.step.calls;
        let Some(index) = calls.index_of(id) else {
            return;
        };
        let Some(pending) = calls.pending(index).cloned() else {
            return;
        };
        effects.events.push(EventKind::Decided {
            step: self.steps,
            id: id.to_owned(),
            decision: decision.clone(),
        });
        let call = &pending.call;
        let at = self.moment();
        let fits = |arguments: &Value| self.tools.checks.check(call, arguments, at);
        let check = self.tools.checks.of(&call.tool).map(AsRef::as_ref);
        let made = match apply_decision(pending.clone(), decision, fits, check) {
            DecisionEffect::Make(arguments) => self.make(index, arguments, effects),
            DecisionEffect::Edited(arguments) => self.screen_call(index, arguments, true, effects),
            DecisionEffect::Replaced(result) => {
                self.settle(index, SettledResult::answered(result), effects);
                Ok(())
            }
            DecisionEffect::Refused(failure) => Err(failure),
            DecisionEffect::Void(message) => {
                self.notice(message, effects);
                return self.decide(pending, effects);
            }
        };
        self.go_on(index, made, effects);
    }
}
