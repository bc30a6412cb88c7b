//! The borders at which data is hidden and revealed: to and from the model, to tools, to the user.

use super::{Effects, Machine};
use crate::context::stored::READ_RESULT;
use crate::guard::pii::{GivenPlaceholders, Vault};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use toolhold_model::chat::{ChatMessage, ChatRequest, Content};
use toolhold_policy::pii::Kind;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::{Exchange, Turn};

impl Machine {
    /// What the model is shown, with everything hidden that it must not see; the instructions likewise.
    pub(super) fn shown(&mut self, effects: &mut Effects) -> (Vec<Turn>, String) {
        let turns = self.turns();
        let instructions = self.request.instructions.clone();
        if self.vault.is_off() {
            return (turns, instructions);
        }
        let before = self.vault.counts();
        self.note_owners();
        let turns = turns.into_iter().map(|turn| self.hidden(turn)).collect();
        let instructions = self.vault.hide(&instructions);
        self.tell_hidden(&before, effects);
        (turns, instructions)
    }

    fn tell_hidden(&self, before: &BTreeMap<Kind, usize>, effects: &mut Effects) {
        let counts = self.vault.counts();
        if counts != *before {
            effects.events.push(EventKind::Hidden {
                step: self.steps,
                counts,
            });
        }
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

    /// The Request with what the contract wrote into it hidden, too: tools and their schemas, the names of
    /// instances, the form of a reply. Names of functions are left, which cannot be placeholders.
    pub(super) fn hidden_request(
        &mut self,
        mut request: ChatRequest,
        effects: &mut Effects,
    ) -> ChatRequest {
        if self.vault.is_off() {
            return request;
        }
        let before = self.vault.counts();
        let vault = &mut self.vault;
        for ChatMessage {
            content,
            tool_calls,
            ..
        } in &mut request.messages
        {
            if let Some(Content::Text(text)) = content {
                *text = vault.hide_again(text);
            }
            for call in tool_calls {
                call.arguments = vault.hide_again(&call.arguments);
            }
        }
        for tool in &mut request.tools {
            tool.description = vault.hide_again(&tool.description);
            tool.parameters = vault.hide_schema(&tool.parameters);
        }
        let format = request.response_format.as_ref();
        request.response_format = format.map(|format| vault.hide_schema(format));
        self.tell_hidden(&before, effects);
        request
    }

    /// Names that the model is shown although they hold what it must not see.
    pub(super) fn warn_of_names(&mut self) {
        if self.vault.is_off() || self.request.settings.contract != Contract::Tools {
            return;
        }
        for tool in &self.offered {
            let hidden = self.vault.hide(&tool.name);
            if hidden == tool.name {
                continue;
            }
            let message = format!(
                "the tool {hidden} has a name that the model is shown as it is, because functions cannot be called \
                 otherwise; rename it, or use another contract (--contract schema)"
            );
            // In a run that is replayed it is among the warnings.
            if !self.warnings.contains(&message) {
                self.warnings.push(message);
            }
        }
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
            self.vault.note_text(&self.request.instructions, None);
            for tool in &self.offered {
                self.vault.note_text(&tool.name, None);
                self.vault.note(&tool.schema(), None);
            }
            if let Some(schema) = &self.request.output_schema {
                self.vault.note(schema, None);
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
        call.instance = call.instance.map(|name| self.named_instance(name));
        let (vault, instance) = (&self.vault, call.instance.clone());
        let instance = instance.as_deref();
        call.tool = vault.reveal(&call.tool, None);
        call.output_path = call.output_path.map(|path| vault.reveal(&path, instance));
        call.scopes = call
            .scopes
            .map(|scopes| vault.reveal_value(&scopes, instance));
        call.arguments = vault.reveal_value(&call.arguments, instance);
        call.output = call
            .output
            .map(|output| vault.reveal_value(&output, instance));
        call.reason = call.reason.map(|reason| vault.reveal(&reason, instance));
        call
    }

    /// The instance that the model means by `name`. Whose data its name is does not matter: who may be
    /// named is said to all.
    fn named_instance(&self, name: String) -> String {
        let real = self.vault.reveal_all(&json!(name));
        let mut known = self.context.instances.iter();
        known.find(|known| real == **known).cloned().unwrap_or(name)
    }

    /// What advisors said, with the instances that they mean.
    pub(super) fn advised(&self, said: &Value) -> Value {
        let mut said = said.clone();
        if self.vault.is_off() {
            return said;
        }
        for opinion in said.as_array_mut().into_iter().flatten() {
            if let Some(Value::String(name)) = opinion.get_mut("_instance") {
                *name = self.named_instance(std::mem::take(name));
            }
        }
        said
    }

    /// The view of `value` that the tool may see.
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
    pub(super) fn masked<'a>(
        &self,
        tool: &str,
        given: impl Iterator<Item = &'a Value>,
    ) -> GivenPlaceholders {
        match self.hidden_from(tool) {
            Some(_) => self.vault.masked(given),
            None => GivenPlaceholders::default(),
        }
    }

    fn hidden_from(&self, tool: &str) -> Option<BTreeSet<Kind>> {
        let bound = self.tool(tool).filter(|_| !self.vault.is_off())?;
        let hidden = self.vault.privacy().hidden_from(bound);
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
                call.instance = call.instance.as_deref().map(|name| vault.hide(name));
                call.output_path = call.output_path.as_deref().map(|path| vault.hide(path));
                call.scopes = call.scopes.as_ref().map(|scopes| vault.hide_value(scopes));
                call.arguments = vault.hide_value(&call.arguments);
                call.output = call.output.as_ref().map(|output| vault.hide_value(output));
                let reason = call.reason.as_deref();
                call.reason = reason.map(|reason| vault.hide(reason));
                for value in call.unknown.values_mut() {
                    *value = vault.hide_value(value);
                }
                // The part read of a result was hidden before the result was cut.
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
