//! What the model is shown: the context as it is now, built anew for every Request.
//!
//! What stays the same comes first, byte for byte, so that prefix caches hit: the messages and the
//! data that the run was given, then what happened, and last the data that calls wrote.

use super::Machine;
use super::calls::shorten;
use crate::protocol::Turn;
use crate::protocol::advisor;
use crate::protocol::context::Message;
use crate::protocol::turn::{Answered, Role};
use serde_json::json;
use std::collections::BTreeSet;

const WIRING: &str = "# Data\nPass a value on without copying it: write a reference such as †state.user.name as the \
whole parameter. Keep a result: write where it goes as \"_outputPath\", such as †state.weather. A call waits for \
the calls before it that write what it reads.";

/// A kind of data, in one instance or in all.
type Key = (String, Option<String>);

impl Machine {
    /// The turns that every Request of the run begins with.
    pub(super) fn open_turns(&self) -> Vec<Turn> {
        let mut turns = Vec::new();
        if self.is_wired() {
            Turn::add(&mut turns, Role::User, WIRING);
        }
        if !self.context.instances.is_empty() {
            let rule = if self.is_lazy() {
                "in a plan, a call without one is made for each instance."
            } else {
                "it reads what belongs to that instance and to all, and writes only there."
            };
            let text = format!(
                "# Instances\nThe data is of {} independent instances. A call names the one that it works on as \
                 \"_instance\"; {rule}",
                self.context.instances.len()
            );
            Turn::add(&mut turns, Role::User, &text);
        }
        let mut shown = BTreeSet::new();
        for message in &self.context.messages {
            match message {
                Message::Text(text) => Turn::add(&mut turns, text.role, &text.text),
                Message::Data(data) => {
                    self.show_once(&data.kind, data.instance.as_ref(), &mut shown, &mut turns);
                }
                Message::Input(input) => {
                    self.show_once("input", input.instance.as_ref(), &mut shown, &mut turns);
                }
                Message::Error(error) => {
                    let text = format!(
                        "An earlier call failed: {} with {}",
                        error.data.call, error.data.error
                    );
                    Turn::add(&mut turns, Role::User, &text);
                }
                Message::Advisor(_)
                | Message::Meta(_)
                | Message::State(_)
                | Message::Tool(_)
                | Message::Plan(_) => {}
            }
        }
        // Who speaks on demand is in the tool that asks.
        let present = self.context.advisors.iter();
        for advisor in present.filter(|advisor| advisor.on.is_some()) {
            Turn::add(&mut turns, Role::User, &advisor::render(advisor));
        }
        turns
    }

    /// Everything for the next Request.
    pub(super) fn turns(&self) -> Vec<Turn> {
        let mut turns = self.opening.clone();
        // A history that begins with what the assistant said keeps its own turns.
        turns.extend(self.history.iter().cloned());
        let now = self.now();
        if !now.is_empty() {
            Turn::add(&mut turns, Role::User, &now);
        }
        turns
    }

    /// Data as it is now, as far as the opening does not say it, and the plan that is carried.
    fn now(&self) -> String {
        let mut blocks: Vec<String> = self
            .current()
            .iter()
            .map(|(kind, instance)| self.block(kind, instance.as_deref()))
            .collect();
        if let Some(plan) = &self.context.plan {
            let max = self.request.settings.result_chars;
            blocks.extend(self.carried.block(plan.mode, max));
        }
        if let Some(meta) = &self.context.meta {
            // Not among what stays the same: it moves with every reply.
            blocks.push(format!(
                "## Meta\n{}\nEvery reply moves the version forward.",
                json!(meta)
            ));
        }
        blocks.join("\n\n")
    }

    /// Calls that are over, in their order.
    pub(super) fn answered(&self) -> impl Iterator<Item = &Answered> {
        self.history.iter().flat_map(|turn| match turn {
            Turn::Exchange(exchange) => exchange.calls.as_slice(),
            _ => &[],
        })
    }

    /// Which data is shown last: the scratchpad, and whatever calls wrote.
    fn current(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        let mut add = |kind: &str, instance: Option<&String>| {
            let key = (kind.to_owned(), instance.cloned());
            if !keys.contains(&key) {
                keys.push(key);
            }
        };
        for message in &self.context.messages {
            if let Message::State(state) = message {
                add("state", state.instance.as_ref());
            }
        }
        for write in self.context.data.log().iter().skip(self.given) {
            add(&write.path.kind, write.instance.as_ref());
        }
        keys
    }

    fn show_once(
        &self,
        kind: &str,
        instance: Option<&String>,
        shown: &mut BTreeSet<Key>,
        turns: &mut Vec<Turn>,
    ) {
        if shown.insert((kind.to_owned(), instance.cloned())) {
            Turn::add(
                turns,
                Role::User,
                &self.block(kind, instance.map(String::as_str)),
            );
        }
    }

    /// `## Data: ¶user`, its description, its value and its schema.
    fn block(&self, kind: &str, instance: Option<&str>) -> String {
        let of = instance.map_or(String::new(), |instance| format!(" (instance {instance})"));
        let mut text = format!("## Data: ¶{kind}{of}");
        let (schema, description) = self.context.note_of(kind, instance);
        if let Some(description) = description {
            text.push('\n');
            text.push_str(description);
        }
        let value = self.context.data.own(kind, instance);
        let max = self.request.settings.result_chars;
        text.push('\n');
        match value {
            Some(value) => text.push_str(&shorten(&value.to_string(), max)),
            None => text.push_str("(nothing yet)"),
        }
        if let Some(schema) = schema {
            text.push_str("\nSchema: ");
            text.push_str(&shorten(&schema.to_string(), max));
        }
        text
    }
}
