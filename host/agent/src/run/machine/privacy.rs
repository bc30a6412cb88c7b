//! The borders at which data is hidden and revealed: to and from the model, to tools, to the user.

use super::{Effects, Machine};
use crate::context::stored::READ_RESULT;
use crate::event::EventKind;
use crate::guard::pii::{Kind, Masked, Vault};
use crate::protocol::context::Message;
use crate::protocol::{Call, Exchange, Turn};
use serde_json::Value;
use std::collections::BTreeSet;

impl Machine {
    /// What the model is shown, with everything hidden that it must not see; the instructions likewise.
    pub(super) fn shown(&mut self, effects: &mut Effects) -> (Vec<Turn>, String) {
        let turns = self.turns();
        let instructions = self.request.instructions.clone();
        if self.vault.is_off() {
            return (turns, instructions);
        }
        let before = self.vault.counts();
        let turns = turns.into_iter().map(|turn| self.hidden(turn)).collect();
        let instructions = self.vault.hide(&instructions);
        let counts = self.vault.counts();
        if counts != before {
            effects.events.push(EventKind::Hidden {
                step: self.steps,
                counts,
            });
        }
        (turns, instructions)
    }

    /// A turn as the model is shown it.
    pub(super) fn hidden(&mut self, turn: Turn) -> Turn {
        if self.vault.is_off() {
            return turn;
        }
        self.note_owners();
        let reads = self.tool(READ_RESULT).is_none();
        hidden(&mut self.vault, turn, reads)
    }

    /// Whose each value is: in the texts that the model is shown, the instances are no longer apart.
    fn note_owners(&mut self) {
        let (seen_writes, seen_turns) = self.noted;
        if self.noted == (0, 0) {
            for message in &self.context.messages {
                if let Message::Text(text) = message {
                    self.vault.note_text(&text.text, None);
                }
            }
        }
        let log = self.context.data.log();
        for write in log.iter().skip(seen_writes) {
            self.vault.note(&write.value, write.instance.as_deref());
        }
        for turn in self.history.iter().skip(seen_turns) {
            let Turn::Exchange(exchange) = turn else {
                continue;
            };
            for answered in &exchange.calls {
                let instance = answered.call.instance.as_deref();
                self.vault.note_text(&answered.text, instance);
            }
        }
        self.noted = (log.len(), self.history.len());
    }

    /// A call as the model means it.
    pub(super) fn meant(&self, mut call: Call) -> Call {
        if self.vault.is_off() {
            return call;
        }
        let (vault, instance) = (&self.vault, call.instance.clone());
        let instance = instance.as_deref();
        call.arguments = vault.reveal_value(&call.arguments, instance);
        call.output = call
            .output
            .map(|output| vault.reveal_value(&output, instance));
        call.reason = call.reason.map(|reason| vault.reveal(&reason, instance));
        call
    }

    /// What the tool is let to see of `value`.
    pub(super) fn for_tool(&mut self, call: &Call, value: &Value) -> Value {
        let Some(hidden) = self.hidden_from(&call.tool) else {
            return value.clone();
        };
        let instance = call.instance.as_deref();
        self.vault
            .mask(value, instance, &|kind| hidden.contains(&kind))
    }

    /// The placeholders that the tool is given in the place of data. A tool that gets data as it is has
    /// none: what looks like one to it is text.
    pub(super) fn masked<'a>(&self, tool: &str, given: impl Iterator<Item = &'a Value>) -> Masked {
        match self.hidden_from(tool) {
            Some(_) => self.vault.masked(given),
            None => Masked::default(),
        }
    }

    fn hidden_from(&self, tool: &str) -> Option<BTreeSet<Kind>> {
        let bound = self.tool(tool).filter(|_| !self.vault.is_off())?;
        let privacy = self.vault.privacy();
        let kinds = privacy.hide.iter().copied();
        let hidden: BTreeSet<Kind> = kinds.filter(|kind| !privacy.lets(bound, *kind)).collect();
        (!hidden.is_empty()).then_some(hidden)
    }

    /// The output as it leaves the run. A sub-agent's stays inside of this host.
    pub(super) fn for_user(&mut self, output: Value) -> Value {
        if self.vault.is_off() || self.request.depth > 0 {
            return output;
        }
        self.vault.conceal(&output)
    }
}

/// `reads`: whether [`READ_RESULT`] is the loop's own.
fn hidden(vault: &mut Vault, turn: Turn, reads: bool) -> Turn {
    match turn {
        Turn::Text { role, text } => Turn::Text {
            role,
            text: vault.hide(&text),
        },
        Turn::Exchange(Exchange { calls }) => {
            let calls = calls.into_iter().map(|mut answered| {
                let call = &mut answered.call;
                call.arguments = vault.hide_value(&call.arguments);
                call.output = call.output.as_ref().map(|output| vault.hide_value(output));
                let reason = call.reason.as_deref();
                call.reason = reason.map(|reason| vault.hide(reason));
                for value in call.unknown.values_mut() {
                    *value = vault.hide_value(value);
                }
                // What was read of a result was hidden before it was cut.
                answered.text = match call.tool.as_str() {
                    READ_RESULT if reads => vault.hide_again(&answered.text),
                    _ => vault.hide(&answered.text),
                };
                answered
            });
            Turn::Exchange(Exchange {
                calls: calls.collect(),
            })
        }
        // Made of turns as they were shown.
        Turn::Summary(text) => Turn::Summary(vault.hide_again(&text)),
        // The model's own words, and what is wrong with them.
        Turn::Rejected { reply, reason } => Turn::Rejected {
            reply: vault.hide_again(&reply),
            reason: vault.hide_again(&reason),
        },
    }
}
