//! Messages as clients write them, in OpenAI's form, and as the loop takes them.

use crate::http::body::null_as_default;
use crate::http::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_protocol::context::Message;
use toolhold_protocol::turn::Role;
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// A text, or a list of parts of which each is a text: {"type": "text", "text": …}.
    #[serde(default)]
    #[schema(value_type = Value)]
    pub content: Value,
    /// What an assistant called; the results follow as messages of the role `tool`.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Vec<ClientCall>,
    #[serde(default)]
    pub tool_call_id: Option<String>,
}

/// A call of one of the client's own tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientCall {
    pub id: String,
    pub function: ClientFunction,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientFunction {
    pub name: String,
    #[serde(default)]
    pub arguments: String,
}

/// Messages, read.
#[derive(Debug, Default)]
pub struct Conversation {
    /// What the system and developer messages say.
    pub instructions: Option<String>,
    pub context: Vec<Message>,
}

/// Reads the messages of the request's member `place`. `before` are calls that an earlier answer asked for,
/// whose results may be among them.
///
/// # Errors
/// A role or content that is none; no message at all.
pub fn conversation(
    place: &str,
    before: &[ClientCall],
    messages: &[ChatMessage],
) -> Result<Conversation, ApiError> {
    let mut conversation = Conversation::default();
    let mut called: Vec<&ClientCall> = before.iter().collect();
    for (index, message) in messages.iter().enumerate() {
        let at = |error: String| ApiError::invalid(format!("{place}[{index}]: {error}"));
        let text = text(&message.content, &["text"]).map_err(at)?;
        match message.role.as_str() {
            "system" | "developer" => {
                let instructions = conversation.instructions.get_or_insert_default();
                if !instructions.is_empty() {
                    instructions.push_str("\n\n");
                }
                instructions.push_str(&text);
            }
            "user" => conversation.context.push(Message::user(text)),
            "assistant" => {
                called.extend(&message.tool_calls);
                if !text.is_empty() {
                    let said = Message::text(Role::Assistant, text);
                    conversation.context.push(said);
                }
            }
            "tool" => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let call = called.iter().find(|call| call.id == id);
                let call = call.ok_or_else(|| {
                    at(format!(
                        "tool_call_id {id:?} names no call of the messages before"
                    ))
                })?;
                let ClientFunction { name, arguments } = &call.function;
                let told =
                    format!("The tool {name} was called with {arguments} and returned:\n{text}");
                conversation.context.push(Message::user(told));
            }
            other => {
                let known = "system, developer, user, assistant, tool";
                return Err(at(format!("the role {other:?} is none of {known}")));
            }
        }
    }
    if conversation.context.is_empty() {
        return Err(ApiError::invalid(format!(
            "{place}: there is nothing to do; at least one message of the role user is needed"
        )));
    }
    Ok(conversation)
}

/// A content's text: what its parts of these kinds say.
///
/// # Errors
/// It has parts of other kinds, or is no content.
pub fn text(content: &Value, kinds: &[&str]) -> Result<String, String> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut texts = Vec::new();
            for part in parts {
                match (&part["type"], &part["text"]) {
                    (Value::String(kind), Value::String(text))
                        if kinds.contains(&kind.as_str()) =>
                    {
                        texts.push(text.as_str());
                    }
                    (Value::String(kind), _) => {
                        return Err(format!(
                            "content of the type {kind:?} cannot be used; only text can"
                        ));
                    }
                    _ => return Err("a part of the content has no type".into()),
                }
            }
            Ok(texts.join("\n"))
        }
        _ => Err("the content is neither a text nor a list of parts".into()),
    }
}
