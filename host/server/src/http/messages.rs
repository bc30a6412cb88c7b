//! Converts messages from OpenAI's form into the loop's.

use crate::http::body::null_as_default;
use crate::http::error::ApiError;
use crate::http::media::is_media;
use crate::http::result_matcher::ResultMatcher;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use toolhold_agent::{contract, language};
use toolhold_json::{bounded, numbers};
use toolhold_protocol::completion::{
    CONTENT_THOUGHTS, EXTRA_CONTENT, REASONING_DETAILS, THINKING_BLOCKS, reasoning_members,
    signed_members,
};
use toolhold_protocol::context::{Message, ToolResultMessage};
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::tool::is_name;
use toolhold_protocol::turn::Role;
use utoipa::ToSchema;

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, `tool` or, for `functions`, `function`.
    #[schema(pattern = "^(system|developer|user|assistant|tool|function)$")]
    pub role: String,
    /// A text, or a list of parts: {"type": "text", "text": …}, and in messages of the roles `user` and `tool` images
    /// ({"type": "image_url", "image_url": {"url": …}}, or `input_image`) and files ({"type": "file", "file": {"filename": …,
    /// "file_data": …}}, or `input_file`).
    #[serde(default)]
    #[schema(value_type = Value)]
    pub content: Value,
    /// Images and texts of the files of `content`.
    #[serde(skip)]
    pub material: Vec<Message>,
    /// True if the host composed the text from the record of an earlier run.
    #[serde(skip)]
    pub is_composed: bool,
    /// The assistant's tool calls; their results follow as messages of the role `tool`.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Vec<ClientCall>,
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// Name of the function, of a result without `tool_call_id`: it answers the first call of this function that has no
    /// result. Without a name, the first call that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The assistant's call of one of `functions`; its result follows as a message of the role `function`.
    #[serde(default, skip_serializing)]
    #[schema(value_type = Option<Object>)]
    pub function_call: Option<ClientFunction>,
    #[serde(flatten)]
    pub thoughts: MessageThoughts,
}

impl ChatMessage {
    /// The reasoning that may go to an endpoint with the calls of this message.
    pub fn reasoning(&self) -> Map<String, Value> {
        let parts = self.content.as_array().into_iter().flatten();
        let parts: Vec<Value> = parts.filter(|part| is_thought(part)).cloned().collect();
        if parts.is_empty() || !self.thoughts.content_thoughts.is_null() {
            return self.thoughts.members();
        }
        let thoughts = MessageThoughts {
            content_thoughts: parts.into(),
            ..self.thoughts.clone()
        };
        thoughts.members()
    }

    fn is_of_functions(&self) -> bool {
        self.role == FUNCTION || self.function_call.is_some()
    }
}

/// The assistant's reasoning before its tool calls, in the members that the endpoint named. An answer has it, and a client
/// that sends it back spares the endpoint a request without it, which some refuse.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MessageThoughts {
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<String>)]
    reasoning_content: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<String>)]
    reasoning: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<String>)]
    thinking: Value,
    /// Signed parts, which go on unchanged, as do the three fields after this one: up to 256 KiB of each.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<Vec<Object>>)]
    reasoning_details: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<Vec<Object>>)]
    thinking_blocks: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<Object>)]
    extra_content: Value,
    /// Thoughts that the endpoint wrote among the parts of the content ({"type": "thinking", …}). A client may send them as
    /// parts of `content`, too.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<Vec<Object>>)]
    content_thoughts: Value,
}

impl MessageThoughts {
    pub fn of(mut members: Map<String, Value>) -> Self {
        let mut take = |name: &str| members.shift_remove(name).unwrap_or_default();
        Self {
            reasoning_content: take("reasoning_content"),
            reasoning: take("reasoning"),
            thinking: take("thinking"),
            reasoning_details: take(REASONING_DETAILS),
            thinking_blocks: take(THINKING_BLOCKS),
            extra_content: take(EXTRA_CONTENT),
            content_thoughts: take(CONTENT_THOUGHTS),
        }
    }

    /// The members that may go to an endpoint.
    pub fn members(&self) -> Map<String, Value> {
        let members = [
            ("reasoning_content", &self.reasoning_content),
            ("reasoning", &self.reasoning),
            ("thinking", &self.thinking),
            (REASONING_DETAILS, &self.reasoning_details),
            (THINKING_BLOCKS, &self.thinking_blocks),
            (EXTRA_CONTENT, &self.extra_content),
            (CONTENT_THOUGHTS, &self.content_thoughts),
        ];
        let given = members.into_iter().filter(|(_, value)| !value.is_null());
        let given = given.map(|(name, value)| (name.to_owned(), value.clone()));
        reasoning_members(&given.collect())
    }
}

/// The type of a part of the content that is a thought.
const THINKING: &str = "thinking";

fn is_thought(part: &Value) -> bool {
    part["type"] == THINKING
}

/// The role of results of `functions`.
const FUNCTION: &str = "function";

/// The messages with calls of `functions`, and their results, as calls of tools without ids.
pub fn with_tool_calls(messages: &[ChatMessage]) -> Cow<'_, [ChatMessage]> {
    if !messages.iter().any(ChatMessage::is_of_functions) {
        return Cow::Borrowed(messages);
    }
    let mut messages = messages.to_vec();
    for message in &mut messages {
        if message.role == FUNCTION {
            "tool".clone_into(&mut message.role);
        }
        if let Some(function) = message.function_call.take() {
            message.tool_calls.push(ClientCall {
                function,
                ..ClientCall::default()
            });
        }
    }
    Cow::Owned(messages)
}

/// A call of one of the client's own tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientCall {
    /// Empty in the history of a client that gives no ids.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: String,
    pub function: ClientFunction,
    /// Signed members of the call, which some endpoints want back (`extra_content`).
    #[serde(flatten, deserialize_with = "call_members")]
    pub members: Map<String, Value>,
    /// Reasoning before a call of an earlier answer. Of several calls of one reply the first has it; that of a client's own
    /// history is in its message ([`MessageThoughts`]).
    #[serde(skip)]
    pub reasoning: Map<String, Value>,
}

/// Reads the members beside those that every call has, and keeps the signed ones.
fn call_members<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    let members = Map::deserialize(deserializer)?;
    Ok(signed_members(&members))
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientFunction {
    pub name: String,
    #[serde(default)]
    pub arguments: String,
}

/// The member of a response's request that has its messages.
const INPUT: &str = "input";

/// The converted messages.
#[derive(Debug, Default)]
pub struct Conversation {
    /// Text of the system and developer messages.
    pub instructions: Option<String>,
    pub context: Vec<Message>,
    /// Places in `context` of messages that the host composed from the records of earlier runs.
    pub composed: BTreeSet<usize>,
    /// The language of the last of the user's messages in which it can be told.
    pub language: Option<&'static str>,
}

impl Conversation {
    /// Notes that the next message of the context is this one.
    fn note(&mut self, message: &ChatMessage) {
        let next = self.context.len();
        self.composed.extend(message.is_composed.then_some(next));
    }

    /// Puts the text of the system messages in the place of the agent's instructions, and the language into the
    /// request.
    pub fn put_instructions(&self, request: &mut RunRequest) {
        if let Some(instructions) = &self.instructions {
            request.instructions.clone_from(instructions);
        }
        if let Some(tag) = self.language {
            language::keep(request, tag, false);
        }
    }
}

/// Reads the messages in the request's member `place`. `before`: calls of an earlier answer, whose results
/// may be among the messages. `tools`: the names of the client's own.
///
/// # Errors
/// A message has an invalid role or content, or there is no message.
pub fn conversation(
    place: &str,
    before: &[ClientCall],
    messages: &[ChatMessage],
    tools: &BTreeSet<String>,
) -> Result<Conversation, ApiError> {
    let mut conversation = Conversation::default();
    let matcher = ResultMatcher::new(before, messages);
    let mut is_next = false;
    // Of the results of one step, which stand together.
    let mut images = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at = |error: String| ApiError::member(&format!("{place}[{index}]"), error);
        let text = text(&message.content).map_err(|fault| {
            let content = content_at(place, index, message);
            match fault.part {
                Some(part) => ApiError::member(&format!("{content}[{part}]"), fault.reason),
                None => ApiError::member(&content, fault.reason),
            }
        })?;
        if message.role != "tool" {
            conversation.context.append(&mut images);
        }
        match message.role.as_str() {
            "system" | "developer" => {
                let instructions = conversation.instructions.get_or_insert_default();
                if !instructions.is_empty() {
                    instructions.push_str("\n\n");
                }
                instructions.push_str(&text);
            }
            "user" => {
                conversation.context.extend_from_slice(&message.material);
                // An image may say it all.
                if !text.is_empty() || message.material.is_empty() {
                    conversation.note(message);
                    conversation.context.push(Message::user(text));
                }
            }
            "assistant" => {
                is_next |= !message.tool_calls.is_empty();
                if !text.is_empty() {
                    let said = Message::text(Role::Assistant, text);
                    conversation.note(message);
                    conversation.context.push(said);
                }
            }
            "tool" => {
                let call = matcher.answered(index).map_err(at)?;
                let tool = tool_name(&call.function.name, tools);
                let text = with_files(text, &message.material);
                let shown = |it: &&Message| matches!(it, Message::Image(_));
                images.extend(message.material.iter().filter(shown).cloned());
                let thoughts = matcher.thoughts(index);
                let is_first = std::mem::take(&mut is_next);
                let result = tool_result(tool, call, thoughts, text, is_first);
                conversation.context.push(result);
            }
            other => {
                let known = "system, developer, user, assistant, tool";
                let reason = format_args!("the role {other:?} is none of {known}");
                return Err(ApiError::member(&format!("{place}[{index}].role"), reason));
            }
        }
    }
    conversation.context.append(&mut images);
    conversation.language = language_of(messages);
    if conversation.context.is_empty()
        && let Some(text) = conversation.instructions.take().filter(|it| !it.is_empty())
    {
        // No other message says what to do, so these are the task.
        conversation.context.push(Message::user(text));
    }
    if conversation.context.is_empty() {
        return Err(ApiError::member(
            place,
            "there is nothing to do; at least one message with a text is needed",
        ));
    }
    Ok(conversation)
}

/// The text of a result with those of its files.
fn with_files(mut text: String, material: &[Message]) -> String {
    for message in material {
        if let Message::Text(file) = message {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&file.text);
        }
    }
    text
}

/// A call that the client made, with the reasoning before it and its result.
fn tool_result(
    tool: String,
    call: &ClientCall,
    reasoning: Map<String, Value>,
    result: String,
    next_step: bool,
) -> Message {
    let arguments = &call.function.arguments;
    let arguments = match bounded::from_str(arguments) {
        Ok(read @ Value::Object(_)) if numbers::check(arguments.as_bytes()).is_ok() => read,
        // As a value it would lose digits.
        Ok(Value::Object(_)) => arguments.as_str().into(),
        _ if arguments.trim().is_empty() => json!({}),
        // What the client sends back need not be what it was given.
        _ => json!({"arguments": arguments}),
    };
    Message::ToolResult(ToolResultMessage {
        tool,
        arguments,
        result: result.into(),
        id: call.id.clone(),
        next_step,
        failed: false,
        reasoning,
        members: call.members.clone(),
    })
}

/// The name of a function as one of a tool. A client may send calls that another server's model made, of functions whose
/// names no tool has here. A function that is none of the client's `tools` may stand for one of the agent's.
fn tool_name(function: &str, tools: &BTreeSet<String>) -> String {
    if tools.contains(function) {
        return function.to_owned();
    }
    let name = contract::tool(function);
    if is_name(&name) {
        return name;
    }
    // Without dots: no shield has seen it like this, and it is no address then.
    let known = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(known).take(MAX_FOREIGN_NAME).collect();
    format!("client.{name}")
}

/// Characters of the name of a function that no tool can have.
const MAX_FOREIGN_NAME: usize = 56;

/// Maximum number of messages whose language is looked at.
const MAX_TELLING_MESSAGES: usize = 100;

/// Returns the language of the last of the user's messages that tells it.
fn language_of(messages: &[ChatMessage]) -> Option<&'static str> {
    let from_user = messages
        .iter()
        .rev()
        .filter(|message| message.role == "user");
    let texts = from_user.take(MAX_TELLING_MESSAGES);
    first_told(texts.filter_map(|message| text(&message.content).ok()))
}

/// Returns the language of the last message of a context that tells it, of those with a text of the user or with input.
pub fn language_of_context(context: &[Message]) -> Option<&'static str> {
    let texts = context.iter().rev().filter_map(|message| match message {
        Message::Text(text) if text.role == Role::User => Some(text.text.clone()),
        Message::Input(input) => Some(language::texts_in(&input.input)),
        _ => None,
    });
    first_told(texts.take(MAX_TELLING_MESSAGES))
}

/// Returns the language of the first text that tells it. Users say `1` or `ok` many times, and of these texts all are read. A
/// long one takes up to half a millisecond, so at most three long ones are.
fn first_told(texts: impl Iterator<Item = String>) -> Option<&'static str> {
    const MAX_LONG: usize = 3;
    const LONG_BYTES: usize = 60;
    let mut long = 0;
    for text in texts {
        if let Some(tag) = language::recognise(&text) {
            return Some(tag);
        }
        long += usize::from(text.len() > LONG_BYTES);
        if long == MAX_LONG {
            break;
        }
    }
    None
}

/// Refuses a call without a result: the model expects a result for each call. `result` is the client's name of one.
///
/// # Errors
/// A call has no result.
pub fn has_all_results(
    place: &str,
    result: &str,
    before: &[ClientCall],
    messages: &[ChatMessage],
) -> Result<(), ApiError> {
    let results: BTreeSet<&str> = messages
        .iter()
        .filter_map(|message| message.tool_call_id.as_deref())
        .filter(|id| !id.is_empty())
        .collect();
    // A result that answers no call is refused when the conversation is read.
    let matcher = ResultMatcher::new(before, messages);
    let mut missing = matcher
        .unanswered()
        .filter(|call| !results.contains(&*call.id));
    match missing.next() {
        None => Ok(()),
        Some(call) => {
            let (id, name) = (&call.id, &call.function.name);
            let reason = format_args!("the call {id:?} of {name} has no {result}");
            Err(ApiError::member(place, reason))
        }
    }
}

/// The path of the content of a message.
pub fn content_at(place: &str, index: usize, message: &ChatMessage) -> String {
    // The items of an input have results of calls in another member than messages have.
    let member = match message.role.as_str() {
        "tool" if place == INPUT => "output",
        _ => "content",
    };
    format!("{place}[{index}].{member}")
}

/// Why a content has no text.
#[derive(Debug)]
struct ContentFault {
    /// The part of a list.
    part: Option<usize>,
    reason: String,
}

/// The text of a content: that of its parts that are texts. Images and files are read apart, and thoughts are no text.
///
/// # Errors
/// The content is invalid or has parts of other kinds.
fn text(content: &Value) -> Result<String, ContentFault> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut texts = Vec::new();
            for (index, part) in parts.iter().enumerate() {
                let fault = |reason: String| ContentFault {
                    part: Some(index),
                    reason,
                };
                let Value::String(kind) = &part["type"] else {
                    return Err(fault("a part of the content has no type".into()));
                };
                let text = match kind.as_str() {
                    "text" | "input_text" | "output_text" => &part["text"],
                    "refusal" => &part["refusal"],
                    kind if kind == THINKING || is_media(kind) => continue,
                    kind => {
                        return Err(fault(format!(
                            "content of the type {kind:?} cannot be used; texts, images and files can"
                        )));
                    }
                };
                let text = text.as_str();
                texts.push(
                    text.ok_or_else(|| fault(format!("a part of the type {kind:?} has no text")))?,
                );
            }
            Ok(texts.join("\n"))
        }
        _ => Err(ContentFault {
            part: None,
            reason: "the content is neither a text nor a list of parts".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_result_is_a_tools_with_the_call_that_it_answers() {
        let call = |name: &str, arguments: &str| ClientCall {
            id: "c".into(),
            function: ClientFunction {
                name: name.into(),
                arguments: arguments.into(),
            },
            ..ClientCall::default()
        };
        for (name, arguments, tool, read) in [
            ("weather", "{\"of\":1}", "weather", json!({"of": 1})),
            ("get-weather", "", "get.weather", json!({})),
            (
                "9 lives",
                "[1",
                "client.9_lives",
                json!({"arguments": "[1"}),
            ),
            ("own-weather", "{}", "own-weather", json!({})),
            (
                "weather",
                "{\"of\": 123456789012345678901234567890}",
                "weather",
                json!("{\"of\": 123456789012345678901234567890}"),
            ),
            ("finish", "{}", "finish", json!({})),
            ("天气", "{}", "client.__", json!({})),
            ("a.b/c", "7", "client.a_b_c", json!({"arguments": "7"})),
        ] {
            let own = BTreeSet::from(["own-weather".to_owned()]);
            let call = call(name, arguments);
            let named = tool_name(&call.function.name, &own);
            let message = tool_result(named, &call, Map::new(), "sun".into(), false);
            let Message::ToolResult(result) = message else {
                panic!("another message");
            };
            assert_eq!((result.tool.as_str(), result.arguments), (tool, read));
            assert!(is_name(tool), "{tool}");
        }
        assert!(is_name(&tool_name(&"é".repeat(500), &BTreeSet::new())));
    }

    #[test]
    fn thoughts_among_the_parts_of_the_content_go_with_the_calls() {
        let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": "I ask."}]});
        let mut told = Map::new();
        told.insert(CONTENT_THOUGHTS.to_owned(), json!([thought]));
        let answered = json!(MessageThoughts::of(told.clone()));
        assert_eq!(answered, Value::Object(told.clone()));
        for (content, beside) in [
            (
                json!([thought, {"type": "text", "text": "Well."}]),
                json!({}),
            ),
            (json!("Well."), answered),
        ] {
            let mut calling = json!({"role": "assistant", "content": content, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]});
            let beside = beside.as_object().unwrap().clone();
            calling.as_object_mut().unwrap().extend(beside);
            let said = json!([calling, {"role": "tool", "tool_call_id": "a", "content": "1"}]);
            let said: Vec<ChatMessage> = serde_json::from_value(said).unwrap();
            let read = conversation("messages", &[], &said, &BTreeSet::new()).unwrap();
            let [Message::Text(text), Message::ToolResult(result)] = &read.context[..] else {
                panic!("{:?}", read.context);
            };
            assert_eq!((text.text.as_str(), &result.reasoning), ("Well.", &told));
        }
    }

    /// Endpoints in thinking mode refuse calls without it.
    #[test]
    fn reasoning_of_a_clients_history_goes_with_its_calls() {
        let signed = json!({"google": {"thought_signature": "AA"}});
        let said = json!([
            {"role": "user", "content": "Oslo?"},
            {"role": "assistant", "content": null, "reasoning_content": "I ask.", "thinking_blocks": "no list",
                "tool_calls": [
                    {"id": "a", "type": "function", "extra_content": signed, "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                ]},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ]);
        let said: Vec<ChatMessage> = serde_json::from_value(said).unwrap();
        let read = conversation("messages", &[], &said, &BTreeSet::new()).unwrap();
        let results = read.context.iter().filter_map(|message| match message {
            Message::ToolResult(result) => Some(result),
            _ => None,
        });
        let carried: Vec<Value> = results
            .map(|result| json!([result.id, result.reasoning, result.members]))
            .collect();
        assert_eq!(
            carried,
            [
                json!(["b", {}, {}]),
                json!(["a", {"reasoning_content": "I ask."}, {"extra_content": signed}]),
            ]
        );
    }
}
