//! The conversation that the model is shown: the current context, built anew for every Request.
//!
//! What stays the same comes first, byte for byte, so that prefix caches hit: the messages and the
//! data that the run was given, then what happened, and last what moves: the data that calls wrote, the
//! plan, the version.

use super::Machine;
use super::results::some_of;
use serde_json::json;
use std::collections::BTreeSet;
use toolhold_json::validate::cut;
use toolhold_protocol::advisor;
use toolhold_protocol::context::Message;
use toolhold_protocol::turn::Turn;
use toolhold_protocol::turn::{Answered, Role};

const WIRING: &str = "# Data\nPass a value on without copying it: write a reference such as †state.user.name as the \
whole parameter, or in it as a whole value. Keep a result: write where it goes as \"_outputPath\", such as \
†state.weather, and as \"_outputMethod\" how it joins what is there: set (if you say nothing), merge, assign, push or \
concat. A call waits for the calls before it that write what it reads.";

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
            let mut text = format!(
                "# Instances\nEvery call names the instance that it works on as \"_instance\": {}. It sees and \
                 writes the data of this instance, and sees what belongs to none.",
                some_of(&self.context.instances)
            );
            if self.is_lazy() {
                text.push_str(" In a plan, a call without one is made for each of them.");
            }
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
            Turn::add(&mut turns, Role::User, advisor::render(advisor).trim_end());
        }
        turns
    }

    /// Everything for the next Request.
    pub(super) fn turns(&self) -> Vec<Turn> {
        let mut turns = self.opening.clone();
        // A history that begins with what the assistant said keeps its own turns.
        turns.extend(self.remembered());
        let aside = self.aside();
        let now = self.now();
        if !now.is_empty() {
            Turn::add(&mut turns, Role::User, &now);
        }
        turns.extend(aside);
        turns
    }

    /// Data as it is now, as far as the opening does not say it, the plan that is carried, and the version.
    pub(super) fn now(&self) -> String {
        let mut blocks: Vec<String> = self
            .current()
            .iter()
            .map(|(kind, instance)| {
                // The opening shows it as it was, and stays as it is.
                let again = if self.opens_with(kind, instance.as_ref()) {
                    ", as it is now"
                } else {
                    ""
                };
                self.block(kind, instance.as_deref(), again)
            })
            .collect();
        if let Some(plan) = &self.context.plan {
            let max = self.request.settings.result_chars;
            blocks.extend(self.progress.block(plan.mode, max));
        }
        if let Some(meta) = &self.context.meta {
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

    /// Whether the opening shows this data.
    fn opens_with(&self, kind: &str, instance: Option<&String>) -> bool {
        self.context.messages.iter().any(|message| match message {
            Message::Data(data) => data.kind == kind && data.instance.as_ref() == instance,
            Message::Input(input) => kind == "input" && input.instance.as_ref() == instance,
            _ => false,
        })
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
                &self.block(kind, instance.map(String::as_str), ""),
            );
        }
    }

    /// `## Data: ¶user`, its description, its value and its schema.
    fn block(&self, kind: &str, instance: Option<&str>, again: &str) -> String {
        let of = instance.map_or(String::new(), |instance| format!(" (instance {instance})"));
        let mut text = format!("## Data: ¶{kind}{of}{again}");
        let (schema, description) = self.context.note_of(kind, instance);
        if let Some(description) = description {
            text.push('\n');
            text.push_str(description);
        }
        let value = self.context.data.own(kind, instance);
        let max = self.request.settings.result_chars;
        text.push('\n');
        match value {
            Some(value) => {
                let value = value.to_string();
                text.push_str(&part(&value, self.vault.clear(&value, max)));
            }
            None => text.push_str("(nothing yet)"),
        }
        if let Some(schema) = schema {
            text.push_str("\nSchema: ");
            text.push_str(&cut(&schema.to_string(), max));
        }
        text
    }
}

/// At most `max` characters of a value that is there as a whole.
fn part(value: &str, max: usize) -> String {
    let length = value.chars().count();
    if length <= max {
        return value.to_owned();
    }
    let shown: String = value.chars().take(max).collect();
    format!("{shown}\n[{max} of {length} characters shown; references reach all of it]")
}
