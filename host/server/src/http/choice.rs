//! The answer of a turn as one of OpenAI's `choices`.

use crate::http::error::ApiError;
use crate::http::messages::ClientCall;
use crate::http::run_status::Api;
use crate::http::turn::{Turn, TurnEnd};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct Choice {
    index: u32,
    message: AssistantMessage,
    /// `stop`, `length`, `tool_calls` or `content_filter`.
    finish_reason: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct AssistantMessage {
    role: &'static str,
    /// The answer. Where a limit or a shield ended the run before there was one, a text in the language of the task that
    /// asks back.
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    tool_calls: Vec<Value>,
}

impl Choice {
    pub fn of(turn: &Turn, finish_reason: &'static str) -> Self {
        let content = Some(turn.shown());
        Self {
            index: 0,
            message: AssistantMessage {
                role: "assistant",
                content: content.filter(|text| !text.is_empty() || turn.calls.is_empty()),
                tool_calls: turn.calls.iter().map(tool_call).collect(),
            },
            finish_reason,
        }
    }
}

/// Why the turn ended, in OpenAI's words.
///
/// # Errors
/// It failed, was cancelled, or has not ended.
pub fn finish(turn: &Turn) -> Result<&'static str, ApiError> {
    match turn.end() {
        TurnEnd::Called => Ok("tool_calls"),
        TurnEnd::OutOfTokens | TurnEnd::Limited => Ok("length"),
        TurnEnd::Blocked => Ok("content_filter"),
        TurnEnd::Answered | TurnEnd::Cancelled | TurnEnd::Failed | TurnEnd::Open => {
            turn.fault(Api::OpenAi).map_or(Ok("stop"), Err)
        }
    }
}

pub fn tool_call(call: &ClientCall) -> Value {
    json!({"id": call.id, "type": "function", "function": call.function})
}
