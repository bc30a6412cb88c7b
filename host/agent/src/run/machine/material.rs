//! Texts that the model was shown in the run. A call that it only repeats is none, and one that is read out of prose
//! waits for a person where some of them are text of others (docs/protocol.md, 4.10).

use super::Machine;
use crate::contract::{Provenance, TextSource, plain_text};
use std::collections::BTreeSet;
use std::sync::Arc;
use toolhold_json::rules::ReadingRules;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::context::Message;
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::{Role, Turn};

/// Why a call waits that no rule for its tool has wait.
const PROSE: &str = "the model wrote it into text, where it may repeat what a result, a file or a message says, and it \
has an effect (decisions.calls_in_prose)";

/// Texts that were shown so far. All come from inputs of the machine, so that a run that is replayed knows the same.
#[derive(Debug, Default)]
pub(super) struct Material {
    pub(super) provenance: Provenance,
    /// Messages of the context, turns of the history, and names of tools that were noted.
    messages: usize,
    turns: usize,
    tools: BTreeSet<String>,
    /// Whether some of it is text of others than the user who gave the task.
    has_others: bool,
}

impl Material {
    /// The material of a run that showed nothing yet. Calls are compared by these rules.
    pub(super) fn under(rules: ReadingRules) -> Self {
        Self {
            provenance: Provenance::under(rules),
            ..Self::default()
        }
    }
}

impl Machine {
    /// Notes what a Request shows that none before showed.
    pub(super) fn note_shown(&mut self, instructions: &str) {
        let endpoint = self.addressee().map(str::to_owned);
        self.material.provenance.asks(endpoint.as_deref());
        self.material.provenance.add(TextSource::Host, instructions);
        self.note_tools();
        let view = self.context_view();
        let mut texts = view.data_material();
        if self.material.messages != self.context.messages.len() {
            texts.extend(view.material());
            self.material.messages = self.context.messages.len();
            self.material.has_others |=
                self.request.depth > 0 || has_others(&self.context.messages);
        }
        for (source, text) in texts {
            let source = match source {
                // So far the run has nothing but its task.
                TextSource::Other if !self.material.has_others => TextSource::Task,
                source => source,
            };
            let text = self.privacy.hide(&text);
            self.material.provenance.add(source, &text);
        }
        let new = self.history.turns().iter().skip(self.material.turns);
        let new: Vec<Turn> = new.cloned().chain(self.fallbacks.aside()).collect();
        self.material.turns = self.history.turns().len();
        for turn in new {
            self.note_turn(turn);
        }
    }

    fn note_tools(&mut self) {
        let catalogue = self.tools.catalogue();
        for tool in self.tools.shown() {
            if !self.material.tools.insert(tool.name.clone()) {
                continue;
            }
            let make = || plain_text(&format!("{}\n{}", tool.description, tool.parameters));
            let text = match catalogue.forms(tool) {
                Some(forms) => forms.plain.get_or_make((), make),
                None => Arc::new(make()),
            };
            self.material.provenance.add_of_host(&text);
        }
    }

    /// Notes results and messages, and neither calls nor what of them could not be used: these are the model's own.
    fn note_turn(&mut self, turn: Turn) {
        match self.hidden(turn) {
            Turn::Exchange(exchange) => {
                for answered in exchange.calls {
                    // Definitions of tools.
                    let is_found = self.tools.finds(&answered.call.tool);
                    let source = if is_found {
                        TextSource::Host
                    } else {
                        TextSource::Other
                    };
                    self.material.has_others |= !is_found;
                    self.material.provenance.add(source, &answered.text);
                }
            }
            Turn::Text { role, text } => {
                let source = if role == Role::System {
                    TextSource::Host
                } else {
                    TextSource::Other
                };
                self.material.provenance.add(source, &text);
            }
            Turn::Image(_)
            | Turn::ResultImage(_)
            | Turn::Summary(_)
            | Turn::Conversation(_)
            | Turn::Rejected { .. } => {}
        }
    }

    /// The messages that a summary tells of were noted when they were shown.
    pub(super) fn note_summed_up(&mut self) {
        self.material.messages = self.context.messages.len();
    }

    /// Notes results as a whole, of which a summary may show more than was shown before.
    pub(super) fn note_wholes(&mut self, wholes: &[String]) {
        for text in wholes {
            self.material.provenance.add(TextSource::Other, text);
        }
    }

    /// Why a call waits although no rule for its tool says so.
    pub(super) fn doubts(&self, call: &Call, bound: &Bound) -> Option<&'static str> {
        let is_doubtful = call.is_prose
            && self.material.has_others
            && !bound.tool.annotations.read_only
            && !self.request.settings.decisions.calls_in_prose;
        is_doubtful.then_some(PROSE)
    }
}

/// Whether the messages hold text of others than the user who gives the task: data, files, passages, earlier turns.
fn has_others(messages: &[Message]) -> bool {
    let mut said = 0;
    messages.iter().any(|message| match message {
        Message::Text(text) => {
            said += usize::from(text.role != Role::System);
            text.role == Role::Assistant || said > 1
        }
        Message::State(state) => state.state.is_some(),
        Message::Image(_)
        | Message::Data(_)
        | Message::Input(_)
        | Message::Error(_)
        | Message::Knowledge(_)
        | Message::ToolResult(_)
        | Message::Summary(_) => true,
        Message::Tool(_)
        | Message::Plan(_)
        | Message::Advisor(_)
        | Message::Meta(_)
        | Message::Type(_) => false,
    })
}
