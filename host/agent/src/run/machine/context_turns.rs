//! The context as the model is shown it: in the turns that every Request begins with, and at its end.
//!
//! What stays the same comes first, byte for byte, so that prefix caches hit: the messages and the
//! data that the run was given, then what happened, and last what moves: the data that calls wrote, the
//! plan, the version.

use super::plan_progress::PlanProgress;
use super::privacy::RunPrivacy;
use super::reply::text_of;
use super::results::some_of;
use super::retrieval;
use crate::contract::TextSource;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use toolhold_policy::prompt::{Fence, PromptText};
use toolhold_protocol::advisor;
use toolhold_protocol::completion::{reasoning_members, signed_members};
use toolhold_protocol::context::{
    Context, Message, Speaker, SummaryMessage, ToolResultMessage, TypeMessage,
};
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::{Answered, CarriedReasoning, Role, Turn};
use toolhold_text::cut;

const WIRING: &str = "# Data\nPass a value on without copying it: write a reference such as †state.user.name as the \
whole parameter, or in it as a whole value. Keep a result: write where it goes as \"_outputPath\", such as \
†state.weather, and as \"_outputMethod\" how it joins what is there: set (if you say nothing), merge, assign, push or \
concat. A call waits for the calls before it that write what it reads.";

/// Ids of calls that the context brings with their results begin with this.
pub(super) const GIVEN: &str = "given_";

/// A kind of data, in one instance or in all.
type TurnKey = (String, Option<String>);

/// How a context is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextView<'a> {
    pub context: &'a Context,
    pub privacy: &'a RunPrivacy,
    /// Maximum characters of one value, and of the plan.
    pub max: usize,
    /// Marks where passages begin and end.
    pub fence: &'a str,
}

impl ContextView<'_> {
    /// The turns that every Request of the run begins with. `is_wired`: calls may pass data on by references;
    /// `is_lazy`: calls are a plan.
    pub fn opening(self, is_wired: bool, is_lazy: bool) -> Vec<Turn> {
        let mut turns = Vec::new();
        if is_wired {
            Turn::add(&mut turns, Role::User, WIRING);
        }
        if !self.context.instances.is_empty() {
            let mut text = PromptText::from(
                "# Instances\nEvery call names the instance that it works on as \"_instance\": ",
            );
            text.line(&some_of(&self.context.instances)).words(
                ". It sees and writes the data of this instance, and sees what belongs to none.",
            );
            if is_lazy {
                text.words(" In a plan, a call without one is made for each of them.");
            }
            Turn::add(&mut turns, Role::User, text);
        }
        let mut shown = BTreeSet::new();
        let mut types: BTreeMap<&str, &TypeMessage> = BTreeMap::new();
        let mut results = 0;
        for message in &self.context.messages {
            match message {
                // Once, and not beside the data of each instance. What holds already registers nothing.
                Message::Type(message) => {
                    if types.insert(&message.name, message) != Some(message) {
                        Turn::add(&mut turns, Role::User, self.type_block(message));
                    }
                }
                Message::Text(text) => {
                    let own = PromptText::instruction(text.text.as_str());
                    Turn::add(&mut turns, text.role, own);
                }
                Message::Image(image) => turns.push(Turn::Image(image.clone())),
                Message::Data(data) => {
                    self.show_once(&data.kind, data.instance.as_ref(), &mut shown, &mut turns);
                }
                Message::Input(input) => {
                    self.show_once("input", input.instance.as_ref(), &mut shown, &mut turns);
                }
                Message::Knowledge(message) => {
                    let block = retrieval::block(&message.passages, self.fence, self.max);
                    Turn::add(&mut turns, Role::User, block);
                }
                Message::ToolResult(result) => {
                    results += 1;
                    Turn::add_answered(
                        &mut turns,
                        self.answered(result, results),
                        reasoning_of(result),
                        result.next_step,
                    );
                }
                Message::Summary(summary) => {
                    turns.push(Turn::Conversation(self.summary_block(summary).into()));
                }
                Message::Error(error) => {
                    let mut text = PromptText::from("An earlier call failed: ");
                    text.json(&error.data.call)
                        .words(" with ")
                        .json(&error.data.error);
                    Turn::add(&mut turns, Role::User, text);
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
            Turn::add(&mut turns, Role::User, advisor::render(advisor));
        }
        turns
    }

    /// A call that was made elsewhere, as the model is shown it: whole, because nothing else has its result.
    fn answered(self, result: &ToolResultMessage, number: usize) -> Answered {
        Answered {
            call: Call {
                id: format!("{GIVEN}{number}"),
                tool: result.tool.clone(),
                arguments: match &result.arguments {
                    Value::Null => json!({}),
                    arguments => arguments.clone(),
                },
                ..Call::default()
            },
            fence: self.fence.to_owned(),
            text: text_of(&result.result),
            failed: result.failed,
        }
    }

    /// Returns the block that the model is shown in the place of the messages that a summary stands for.
    fn summary_block(self, summary: &SummaryMessage) -> PromptText {
        let mut text = PromptText::from("# Earlier in this conversation\nThis stands for ");
        text.count(summary.messages)
            .words(" messages that are not shown any more: statements of them, word for word, in their order.");
        if summary.left_out > 0 {
            text.words(" Left out are ")
                .count(summary.left_out)
                .words(" statements.");
        }
        if !summary.text.is_empty() {
            text.words("\nIn short:\n").quoted(&summary.text);
        }
        let mut results = PromptText::default();
        for line in &summary.lines {
            let from = match line.from {
                Speaker::User => "\n- user: ",
                Speaker::Assistant => "\n- assistant: ",
                Speaker::Tool => {
                    let before = if results.is_empty() { "- " } else { "\n- " };
                    results.words(before).line(&line.text);
                    continue;
                }
            };
            text.words(from).line(&line.text);
        }
        if !results.is_empty() {
            let fence = Fence {
                kind: "result",
                mark: self.fence,
                attributes: &[("of", "earlier calls and files")],
            };
            text.words("\n").fenced(&fence, results.as_str());
        }
        text
    }

    /// The texts of the messages that the opening shows, and whose they are. Of a call that failed in an earlier run
    /// only the error: the call was the model's.
    pub fn material(self) -> Vec<(TextSource, String)> {
        let mut texts = Vec::new();
        for message in &self.context.messages {
            texts.push(match message {
                Message::Type(message) => (TextSource::Host, self.type_block(message).into()),
                Message::Text(text) if text.role == Role::System => {
                    (TextSource::Host, text.text.clone())
                }
                Message::Text(text) => (TextSource::Other, text.text.clone()),
                Message::Image(image) => (TextSource::Other, image.name.clone()),
                Message::Data(data) => {
                    let block = self.block(&data.kind, data.instance.as_deref(), "");
                    (TextSource::Other, block.into())
                }
                Message::Input(input) => {
                    let block = self.block(INPUT, input.instance.as_deref(), "");
                    (TextSource::Other, block.into())
                }
                Message::Knowledge(message) => {
                    let block = retrieval::block(&message.passages, self.fence, self.max);
                    (TextSource::Other, block.into())
                }
                Message::ToolResult(result) => (TextSource::Other, text_of(&result.result)),
                Message::Summary(summary) => {
                    (TextSource::Other, self.summary_block(summary).into())
                }
                Message::Error(error) => (TextSource::Other, error.data.error.to_string()),
                Message::Advisor(advisor) => (TextSource::Host, advisor::render(advisor).into()),
                Message::Meta(_) | Message::State(_) | Message::Tool(_) | Message::Plan(_) => {
                    continue;
                }
            });
        }
        texts
    }

    /// The data as it is shown last.
    pub fn data_material(self) -> Vec<(TextSource, String)> {
        let keys = self.current().into_iter();
        keys.map(|(kind, instance)| {
            let block = self.block(&kind, instance.as_deref(), "");
            (TextSource::Other, block.into())
        })
        .collect()
    }

    /// Data as it is now, as far as the opening does not say it, the plan that is carried, and the version.
    pub fn now(self, progress: &PlanProgress) -> PromptText {
        let mut blocks: Vec<PromptText> = self
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
            blocks.extend(progress.block(plan.mode, self.max));
        }
        if let Some(meta) = &self.context.meta {
            let mut block = PromptText::from("## Meta\n");
            block
                .json(&json!(meta))
                .words("\nEvery reply moves the version forward.");
            blocks.push(block);
        }
        PromptText::joined(&blocks, "\n\n")
    }

    /// Which data is shown last: the scratchpad, and whatever calls wrote.
    fn current(self) -> Vec<TurnKey> {
        let mut keys: Vec<TurnKey> = Vec::new();
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
        for write in self.context.written() {
            add(&write.path.kind, write.instance.as_ref());
        }
        keys
    }

    /// Whether the opening shows this data.
    fn opens_with(self, kind: &str, instance: Option<&String>) -> bool {
        self.context.messages.iter().any(|message| match message {
            Message::Data(data) => data.kind == kind && data.instance.as_ref() == instance,
            Message::Input(input) => kind == "input" && input.instance.as_ref() == instance,
            _ => false,
        })
    }

    fn show_once(
        self,
        kind: &str,
        instance: Option<&String>,
        shown: &mut BTreeSet<TurnKey>,
        turns: &mut Vec<Turn>,
    ) {
        if shown.insert((kind.to_owned(), instance.cloned())) {
            let block = self.block(kind, instance.map(String::as_str), "");
            Turn::add(turns, Role::User, block);
        }
    }

    /// `## Type: ¶parcel`, its description and its schema.
    fn type_block(self, message: &TypeMessage) -> PromptText {
        let mut text = PromptText::from("## Type: ¶");
        text.line(&message.name);
        if let Some(description) = &message.description {
            // The first line is the title, where there is one.
            let description = description.as_str();
            let (title, rest) = description.split_once('\n').unwrap_or((description, ""));
            text.words("\n").quoted(title);
            if !rest.is_empty() {
                text.words("\n").quoted(rest);
            }
        }
        text.words("\nSchema: ")
            .json_text(&cut(&message.schema.to_string(), self.max))
            .take()
    }

    /// `## Data: ¶user`, its description, its value and its schema.
    fn block(self, kind: &str, instance: Option<&str>, again: &'static str) -> PromptText {
        let mut text = PromptText::from("## Data: ¶");
        text.line(kind);
        if let Some(instance) = instance {
            text.words(" (instance ").line(instance).words(")");
        }
        text.words(again);
        if kind == INPUT {
            text.words("\n").words(STRUCTURED_PROMPT);
        }
        let (schema, description) = self.context.note_of(kind, instance);
        if let Some(description) = description {
            text.words("\n").quoted(description);
        }
        text.words("\n");
        match self.context.data.own(kind, instance) {
            Some(value) => {
                let value = value.to_string();
                part(&value, self.privacy.clear(&value, self.max), &mut text);
            }
            None => {
                text.words("(nothing yet)");
            }
        }
        if let Some(schema) = schema {
            text.words("\nSchema: ")
                .json_text(&cut(&schema.to_string(), self.max));
        }
        text
    }
}

/// Returns the reasoning before a call that was made elsewhere. Members that no message may have are left out.
fn reasoning_of(result: &ToolResultMessage) -> CarriedReasoning {
    let members = signed_members(&result.members);
    CarriedReasoning {
        members: reasoning_members(&result.reasoning),
        calls: Some(members)
            .filter(|it| !it.is_empty())
            .into_iter()
            .collect(),
        candidate: None,
    }
}

/// The kind of data that is a prompt (docs/protocol.md, 2.3), and what the model is told of it. All other data it only
/// works on.
const INPUT: &str = "input";
const STRUCTURED_PROMPT: &str =
    "This is a prompt in the form of data: its fields say what is asked, and with what.";

/// Adds at most `max` characters of a value that is there as a whole: JSON, which is one line.
fn part(value: &str, max: usize, text: &mut PromptText) {
    let length = value.chars().count();
    if length <= max {
        text.json_text(value);
        return;
    }
    let shown: String = value.chars().take(max).collect();
    text.json_text(&shown)
        .words("\n[")
        .count(max)
        .words(" of ")
        .count(length)
        .words(" characters shown; references reach all of it]");
}

/// The data that calls wrote, by kind; that of an instance under `@` and its name, because no kind
/// is called like that.
pub(super) fn written(context: &Context) -> Map<String, Value> {
    let mut output = Map::new();
    let mut shown = HashSet::new();
    for write in context.written() {
        let (kind, instance) = (write.path.kind.as_str(), write.instance.as_deref());
        if !shown.insert((kind, instance)) {
            continue;
        }
        let value = context.data.own(kind, instance);
        let value = value.cloned().unwrap_or_default();
        let Some(instance) = instance else {
            output.insert(kind.to_owned(), value);
            continue;
        };
        let own = output.entry(format!("@{instance}"));
        if let Value::Object(own) = own.or_insert_with(|| json!({})) {
            own.insert(kind.to_owned(), value);
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::data::{Method, Write};
    use toolhold_protocol::solution::Call;

    fn context(messages: Value) -> Context {
        Context::new(Message::parse_all(&messages).unwrap()).unwrap()
    }

    fn write(context: &mut Context, path: &str, instance: Option<&str>, value: Value) {
        let write = Write {
            path: path.parse().unwrap(),
            instance: instance.map(str::to_owned),
            method: Method::Set,
            value,
        };
        let written = context.write_result(vec![write], &Call::default(), None);
        written.unwrap();
    }

    fn view<'a>(context: &'a Context, privacy: &'a RunPrivacy) -> ContextView<'a> {
        ContextView {
            context,
            privacy,
            max: 20,
            fence: "abcd1234",
        }
    }

    #[test]
    fn the_opening_stays_as_it_was_and_what_calls_wrote_comes_last() {
        let mut context = context(json!([
            {"type": "text", "role": "user", "text": "Count."},
            {"type": "data", "kind": "user", "data": {"name": "Ada"}},
            {"type": "state", "state": {"n": 0}},
        ]));
        let privacy = RunPrivacy::default();
        let opening = view(&context, &privacy).opening(true, false);
        let [Turn::Text { text, .. }] = opening.as_slice() else {
            panic!("{opening:?}");
        };
        assert!(text.starts_with(WIRING), "{text}");
        assert!(
            text.contains("Count.\n\n## Data: ¶user\n{\"name\":\"Ada\"}"),
            "{text}"
        );
        assert!(!text.contains("¶state"), "{text}");

        write(
            &mut context,
            "†user.name",
            None,
            json!("Grace Hopper, R. Adm."),
        );
        write(&mut context, "†found", None, json!(7));
        let now = view(&context, &privacy).now(&PlanProgress::default());
        assert_eq!(view(&context, &privacy).opening(true, false).len(), 1);
        let expected = "## Data: ¶state\n{\"n\":0}\n\n## Data: ¶user, as it is now\n{\"name\":\"Grace Hoppe\n\
                        [20 of 32 characters shown; references reach all of it]\n\n## Data: ¶found\n7";
        assert_eq!(now.as_str(), expected);
    }

    #[test]
    fn each_instance_has_its_own_data() {
        let mut context = context(json!([
            {"type": "data", "kind": "user", "data": 1, "_instance": "one"},
            {"type": "data", "kind": "user", "data": 2, "_instance": "two"},
        ]));
        let privacy = RunPrivacy::default();
        let opening = view(&context, &privacy).opening(false, true);
        let [Turn::Text { text, .. }] = opening.as_slice() else {
            panic!("{opening:?}");
        };
        for part in [
            "In a plan, a call without one is made for each",
            "¶user (instance one)\n1",
            "¶user (instance two)\n2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            written(&context).is_empty(),
            "what was given is not written"
        );
        write(&mut context, "†found", Some("two"), json!(7));
        write(&mut context, "†all", None, json!(8));
        let expected = json!({"@two": {"found": 7}, "all": 8});
        assert_eq!(Value::from(written(&context)), expected);
    }
}
