//! The borders at which data is hidden and revealed: to and from the model, to tools, to the user.

use super::context_turns::GIVEN;
use crate::context::stored::READ_RESULT;
use crate::guard::pii::{GivenPlaceholders, Vault};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use toolhold_model::chat::{ChatMessage, ChatRequest, Content};
use toolhold_policy::pii::Kind;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::{CarriedReasoning, Exchange, Turn};

/// In the place of the name of a tool that is hidden data, in a result from elsewhere.
const HIDDEN_TOOL: &str = "client.hidden";

/// Data of one run that is hidden from its model, from tools and from the user.
#[derive(Debug, Default)]
pub(super) struct RunPrivacy {
    vault: Vault,
    /// Writes and turns whose values the vault has seen.
    noted: (usize, usize),
}

/// All that the values of a run are in.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunData<'a> {
    pub request: &'a RunRequest,
    pub tools: &'a [Arc<Tool>],
    pub context: &'a Context,
    pub history: &'a [Turn],
}

impl RunPrivacy {
    pub fn new(privacy: Privacy) -> Self {
        Self {
            vault: Vault::new(privacy),
            noted: (0, 0),
        }
    }

    pub fn is_off(&self) -> bool {
        self.vault.is_off()
    }

    /// How many values are hidden, by kind.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        self.vault.counts()
    }

    /// As [`Vault::clear`].
    pub fn clear(&self, text: &str, max: usize) -> usize {
        self.vault.clear(text, max)
    }

    /// Whose data this is, before any of it is shown.
    pub fn note(&mut self, data: &Value, instance: Option<&str>) {
        self.vault.note(data, instance);
    }

    pub fn note_text(&mut self, text: &str, instance: Option<&str>) {
        self.vault.note_text(text, instance);
    }

    /// Whose each value is that is new: in the texts that the model is shown, the instances are no longer
    /// apart.
    pub fn note_owners(&mut self, run: RunData<'_>) {
        if self.is_off() {
            return;
        }
        let (seen_writes, seen_turns) = self.noted;
        if self.noted == (0, 0) {
            for message in &run.context.messages {
                match message {
                    Message::Text(text) => self.vault.note_text(&text.text, None),
                    Message::Image(image) => self.vault.note_text(&image.name, None),
                    Message::ToolResult(result) => {
                        self.vault.note(&result.arguments, None);
                        self.vault.note(&result.result, None);
                    }
                    Message::Summary(summary) => {
                        self.vault.note_text(&summary.text, None);
                        for line in &summary.lines {
                            self.vault.note_text(&line.text, None);
                        }
                    }
                    _ => {}
                }
            }
            self.vault.note_text(&run.request.instructions, None);
            for tool in run.tools {
                self.vault.note_text(&tool.name, None);
                self.vault.note(&tool.schema(), None);
            }
            if let Some(schema) = &run.request.output_schema {
                self.vault.note(schema, None);
            }
        }
        let log = run.context.data.log();
        for write in log.iter().skip(seen_writes) {
            self.vault.note(&write.value, write.instance.as_deref());
        }
        for turn in run.history.iter().skip(seen_turns) {
            let Turn::Exchange(exchange) = turn else {
                continue;
            };
            for answered in &exchange.calls {
                let instance = answered.call.instance.as_deref();
                self.vault.note_text(&answered.text, instance);
            }
        }
        self.noted = (log.len(), run.history.len());
    }

    /// A text as the model is shown it.
    pub fn hide(&mut self, text: &str) -> String {
        self.vault.hide(text)
    }

    pub fn hide_value(&mut self, data: &Value) -> Value {
        self.vault.hide_value(data)
    }

    /// A message of the conversation, with what is hidden in it.
    pub fn hide_said(&mut self, message: &Message) -> Message {
        let mut message = message.clone();
        if self.is_off() {
            return message;
        }
        let vault = &mut self.vault;
        match &mut message {
            Message::Text(text) => text.text = vault.hide(&text.text),
            Message::Image(image) => image.name = vault.hide(&image.name),
            Message::ToolResult(result) => {
                result.tool = vault.hide(&result.tool);
                result.arguments = vault.hide_value(&result.arguments);
                result.result = vault.hide_value(&result.result);
                result.reasoning = hidden_members(vault, std::mem::take(&mut result.reasoning));
                result.members = unchanged_members(vault, std::mem::take(&mut result.members));
            }
            Message::Summary(summary) => {
                summary.text = vault.hide(&summary.text);
                for line in &mut summary.lines {
                    line.text = vault.hide(&line.text);
                }
            }
            _ => {}
        }
        message
    }

    /// Reveals a statement as [`Vault::reveal_evident`] does.
    pub fn reveal_evident(&self, text: &str) -> String {
        self.vault.reveal_evident(text)
    }

    /// A turn as the model is shown it. `reads`: whether [`READ_RESULT`] is the loop's own.
    pub fn hide_turn(&mut self, turn: Turn, reads: bool) -> Turn {
        let vault = &mut self.vault;
        match turn {
            turn if vault.is_off() => turn,
            Turn::Text { role, text } => Turn::Text {
                role,
                text: vault.hide(&text),
            },
            Turn::Image(mut image) => {
                image.name = vault.hide(&image.name);
                Turn::Image(image)
            }
            Turn::ResultImage(mut image) => {
                image.name = vault.hide(&image.name);
                Turn::ResultImage(image)
            }
            Turn::Exchange(Exchange { calls, reasoning }) => {
                let calls = calls.into_iter().map(|mut answered| {
                    answered.call = hidden_call(vault, answered.call);
                    if answered.call.id.starts_with(GIVEN) {
                        // Whoever brought the result named its tool, which need not be one of the run's.
                        let name = &mut answered.call.tool;
                        if vault.hide(name) != *name {
                            HIDDEN_TOOL.clone_into(name);
                        }
                    }
                    // The part read of a result was hidden before the result was cut.
                    answered.text = match answered.call.tool.as_str() {
                        READ_RESULT if reads => vault.hide_again(&answered.text),
                        _ => vault.hide(&answered.text),
                    };
                    answered
                });
                Turn::Exchange(Exchange {
                    calls: calls.collect(),
                    reasoning: CarriedReasoning {
                        members: hidden_members(vault, reasoning.members),
                        calls: reasoning
                            .calls
                            .into_iter()
                            .map(|members| unchanged_members(vault, members))
                            .collect(),
                        ..reasoning
                    },
                })
            }
            Turn::Conversation(text) => Turn::Conversation(vault.hide(&text)),
            // Made of turns as they were shown.
            Turn::Summary(text) => Turn::Summary(vault.hide_again(&text)),
            // The model's own words, and what is wrong with them.
            Turn::Rejected { reply, reason } => Turn::Rejected {
                reply: vault.hide_again(&reply),
                reason: vault.hide_again(&reason),
            },
        }
    }

    /// The Request with what the contract wrote into it hidden, too: tools and their schemas, the names of
    /// instances, the form of a reply. Names of functions are left, which cannot be placeholders.
    pub fn hide_request(&mut self, mut request: ChatRequest) -> ChatRequest {
        if self.is_off() {
            return request;
        }
        let vault = &mut self.vault;
        for ChatMessage {
            content,
            reasoning,
            tool_calls,
            ..
        } in &mut request.messages
        {
            match content {
                Some(Content::Text(text)) => *text = vault.hide_again(text),
                Some(Content::Parts(parts)) => {
                    for text in parts.iter_mut().filter_map(|part| part.get_mut("text")) {
                        if let Value::String(text) = text {
                            *text = vault.hide_again(text);
                        }
                    }
                }
                None => {}
            }
            *reasoning = hidden_members(vault, std::mem::take(reasoning));
            for call in tool_calls {
                call.arguments = vault.hide_again(&call.arguments);
                call.members = unchanged_members(vault, std::mem::take(&mut call.members));
            }
        }
        for tool in &mut request.tools {
            tool.description = vault.hide_again(&tool.description);
            tool.parameters = vault.hide_schema(&tool.parameters);
        }
        let format = request.response_format.as_ref();
        request.response_format = format.map(|format| vault.hide_schema(format));
        request
    }

    /// Warnings of names that the model is shown as functions although they hold what it must not see.
    pub fn warnings_of_names(&mut self, tools: &[Arc<Tool>]) -> Vec<String> {
        if self.is_off() {
            return Vec::new();
        }
        let names = tools.iter().map(|tool| tool.name.as_str());
        names
            .filter_map(|name| {
                let hidden = self.vault.hide(name);
                (hidden != name).then(|| {
                    format!(
                        "the tool {hidden} has a name that the model is shown as it is, because functions cannot be \
                         called otherwise; rename it, or use another contract (--contract schema)"
                    )
                })
            })
            .collect()
    }

    /// A call as the model means it.
    pub fn meant(&self, mut call: Call, instances: &[String]) -> Call {
        if self.is_off() {
            return call;
        }
        call.instance = call
            .instance
            .map(|name| self.named_instance(name, instances));
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

    /// A value that the model wrote, as it means it: what all instances own is revealed.
    pub fn meant_value(&self, value: &Value) -> Value {
        self.vault.reveal_all(value)
    }

    /// The instance that the model means by `name`. Whose data its name is does not matter: who may be
    /// named is said to all.
    fn named_instance(&self, name: String, instances: &[String]) -> String {
        let real = self.vault.reveal_all(&json!(name));
        let mut known = instances.iter();
        known.find(|known| real == **known).cloned().unwrap_or(name)
    }

    /// What advisors said, with the instances that they mean.
    pub fn advised(&self, said: &Value, instances: &[String]) -> Value {
        let mut said = said.clone();
        if self.is_off() {
            return said;
        }
        for opinion in said.as_array_mut().into_iter().flatten() {
            if let Some(Value::String(name)) = opinion.get_mut("_instance") {
                *name = self.named_instance(std::mem::take(name), instances);
            }
        }
        said
    }

    /// Returns the view of `value` that the tool may see in a call for `instance`.
    pub fn for_tool(&mut self, tool: &Bound, instance: Option<&str>, value: Value) -> Value {
        match self.hidden_from(tool) {
            Some(hidden) => self
                .vault
                .mask(&value, instance, &|kind| hidden.contains(&kind)),
            None => value,
        }
    }

    /// The placeholders that the tool is given in the place of data. A tool that gets data as it is has
    /// none: what looks like one to it is text.
    pub fn masked<'a>(
        &self,
        tool: &Bound,
        given: impl Iterator<Item = &'a Value>,
    ) -> GivenPlaceholders {
        match self.hidden_from(tool) {
            Some(_) => self.vault.masked(given),
            None => GivenPlaceholders::default(),
        }
    }

    /// Nothing where nothing is hidden from the tool.
    fn hidden_from(&self, tool: &Bound) -> Option<BTreeSet<Kind>> {
        let hidden = self.vault.privacy().hidden_from(tool);
        (!hidden.is_empty()).then_some(hidden)
    }

    /// The output as it leaves the run.
    pub fn for_user(&mut self, output: &Value) -> Value {
        self.vault.conceal(output)
    }
}

/// The model's own words. Parts with a signature are taken as they were, or not at all.
fn hidden_members(vault: &mut Vault, members: Map<String, Value>) -> Map<String, Value> {
    let shown = members.into_iter().filter_map(|(name, value)| match value {
        Value::String(text) => Some((name, Value::from(vault.hide_again(&text)))),
        parts => {
            let is_same = vault.hide_value_again(&parts) == parts;
            is_same.then_some((name, parts))
        }
    });
    shown.collect()
}

/// Members of a call that have nothing that is hidden.
fn unchanged_members(vault: &mut Vault, mut members: Map<String, Value>) -> Map<String, Value> {
    members.retain(|_, signed| vault.hide_value_again(signed) == *signed);
    members
}

fn hidden_call(vault: &mut Vault, mut call: Call) -> Call {
    call.instance = call.instance.map(|name| vault.hide(&name));
    call.output_path = call.output_path.map(|path| vault.hide(&path));
    call.scopes = call.scopes.map(|scopes| vault.hide_value(&scopes));
    call.arguments = vault.hide_value(&call.arguments);
    call.output = call.output.map(|output| vault.hide_value(&output));
    call.reason = call.reason.map(|reason| vault.hide(&reason));
    for value in call.unknown.values_mut() {
        *value = vault.hide_value(value);
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::bound::Runner;
    use toolhold_protocol::turn::Answered;

    const MAIL: &str = "ada@example.org";

    fn mail_hidden() -> RunPrivacy {
        RunPrivacy::new(Privacy {
            hide: BTreeSet::from([Kind::Email]),
            reveal: BTreeSet::from(["trusted".to_owned()]),
            ..Privacy::default()
        })
    }

    fn bound(name: &str) -> Bound {
        Bound {
            tool: Tool::new(name).into(),
            runner: Runner::Activity(name.into()),
        }
    }

    fn call(instance: Option<&str>, arguments: Value) -> Call {
        Call {
            tool: "mail.send".into(),
            arguments,
            instance: instance.map(str::to_owned),
            ..Call::default()
        }
    }

    fn exchange(call: Call, text: &str) -> Turn {
        Turn::Exchange(Exchange {
            calls: vec![Answered {
                call,
                fence: String::new(),
                text: text.into(),
                failed: false,
            }],
            ..Exchange::default()
        })
    }

    /// The model may have been told by others what it must not see.
    #[test]
    fn reasoning_goes_back_with_what_is_hidden_in_it() {
        let mut privacy = mail_hidden();
        let details =
            |text: &str| json!([{"type": "reasoning.text", "text": text, "signature": "s"}]);
        let shown = |privacy: &mut RunPrivacy, text: &str| {
            let members = json!({"reasoning": text, "reasoning_details": details(text)});
            let turn = Turn::Exchange(Exchange {
                reasoning: CarriedReasoning {
                    members: members.as_object().unwrap().clone(),
                    calls: vec![Map::from_iter([("extra_content".into(), details(text))])],
                    candidate: None,
                },
                ..Exchange::default()
            });
            match privacy.hide_turn(turn, true) {
                Turn::Exchange(shown) => {
                    let is_kept = shown.reasoning.members.contains_key("reasoning_details");
                    let has_member = |members: &Map<String, Value>| !members.is_empty();
                    assert_eq!(shown.reasoning.calls.iter().any(has_member), is_kept);
                    Value::Object(shown.reasoning.members)
                }
                other => panic!("{other:?}"),
            }
        };
        let open = shown(&mut privacy, "I write.");
        assert_eq!(
            open,
            json!({"reasoning": "I write.", "reasoning_details": details("I write.")})
        );
        let hidden = shown(&mut privacy, &format!("I write to {MAIL}."));
        assert_eq!(hidden.as_object().unwrap().len(), 1, "{hidden}");
        assert!(!hidden.to_string().contains(MAIL), "{hidden}");
        // The model writes of what it was shown.
        let words = "I write to <email_1>.";
        assert_eq!(hidden["reasoning"], words);
        let again = shown(&mut privacy, words);
        assert_eq!(
            again,
            json!({"reasoning": words, "reasoning_details": details(words)})
        );
        let mut message = ChatMessage::assistant_calls(None, Vec::new());
        message.reasoning.insert("reasoning".into(), MAIL.into());
        let request = privacy.hide_request(ChatRequest::new("m", vec![message]));
        assert!(!request.body().to_string().contains(MAIL));
    }

    #[test]
    fn placeholders_in_calls_mean_the_hidden_data() {
        let mut privacy = mail_hidden();
        let turn = exchange(call(None, json!({"to": MAIL})), MAIL);
        let Turn::Exchange(shown) = privacy.hide_turn(turn, true) else {
            panic!("another turn");
        };
        let shown = &shown.calls[0];
        let placeholder = shown.text.clone();
        assert_ne!(placeholder, MAIL);
        assert_eq!(shown.call.arguments, json!({"to": placeholder}));
        let meant = privacy.meant(call(None, json!({"to": placeholder})), &[]);
        assert_eq!(meant.arguments, json!({"to": MAIL}));
        assert_eq!(privacy.meant_value(&json!(placeholder)), json!(MAIL));
        assert_eq!(privacy.counts(), BTreeMap::from([(Kind::Email, 1)]));
    }

    #[test]
    fn values_are_the_property_of_the_instance_that_they_were_noted_of() {
        let mut privacy = mail_hidden();
        let of_a = exchange(call(Some("a"), json!({})), MAIL);
        let request = RunRequest::new(uuid::Uuid::nil(), "task");
        let run = RunData {
            request: &request,
            tools: &[],
            context: &Context::new(request.context.clone()).unwrap(),
            history: std::slice::from_ref(&of_a),
        };
        privacy.note_owners(run);
        let hidden = privacy.hide(MAIL);
        let sends = |instance| {
            let call = privacy.meant(call(Some(instance), json!({"to": hidden})), &[]);
            call.arguments["to"] == json!(MAIL)
        };
        assert!(sends("a") && !sends("b"));
    }

    #[test]
    fn a_tool_gets_placeholders_unless_it_is_trusted() {
        let mut privacy = mail_hidden();
        let value = json!({"to": MAIL});
        let (trusted, other) = (bound("trusted"), bound("other"));
        assert_eq!(privacy.for_tool(&trusted, None, value.clone()), value);
        let given = privacy.for_tool(&other, None, value.clone());
        assert_ne!(given, value);
        let masked = privacy.masked(&other, [&given].into_iter());
        assert_eq!(masked.reveal_value(&given), value);
        let nothing = privacy.masked(&trusted, [&given].into_iter());
        assert_eq!(nothing, GivenPlaceholders::default());
    }

    #[test]
    fn an_instance_is_found_under_the_name_that_the_model_was_shown() {
        let mut privacy = mail_hidden();
        let instances = [MAIL.to_owned()];
        let shown = privacy.hide(MAIL);
        let meant = privacy.meant(call(Some(&shown), json!({})), &instances);
        assert_eq!(meant.instance.as_deref(), Some(MAIL));
        let said = json!([{"_instance": shown}]);
        assert_eq!(privacy.advised(&said, &instances)[0]["_instance"], MAIL);
        assert_eq!(
            privacy.warnings_of_names(&[Tool::new(MAIL).into()]).len(),
            1
        );
    }

    #[test]
    fn where_nothing_is_hidden_all_is_as_it_is() {
        let mut privacy = RunPrivacy::default();
        let turn = exchange(call(None, json!({"to": MAIL})), MAIL);
        assert_eq!(privacy.hide_turn(turn.clone(), true), turn);
        assert_eq!(privacy.hide(MAIL), MAIL);
        assert!(privacy.is_off() && privacy.counts().is_empty());
        assert!(
            privacy
                .warnings_of_names(&[Tool::new(MAIL).into()])
                .is_empty()
        );
    }
}
