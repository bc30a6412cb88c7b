//! What becomes of a call when a person has decided about it (PROTOCOL.md, 7).

use super::results::Ending;
use super::{Effects, Machine};
use toolhold_protocol::approval::{Decision, Pending, Verdict};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolUsage;

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
            module: None,
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
        self.proceed(effects);
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
}
