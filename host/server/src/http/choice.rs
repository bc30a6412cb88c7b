//! The answer of a turn as one of OpenAI's `choices`.

use crate::http::error::ApiError;
use crate::http::messages::{ClientCall, MessageThoughts};
use crate::http::run_status::Api;
use crate::http::turn::{Turn, TurnEnd};
use crate::stop_texts::StopTexts;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct Choice {
    index: u32,
    message: AssistantMessage,
    /// `stop`, `length`, `tool_calls`, `function_call` or `content_filter`.
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
    #[serde(flatten)]
    thoughts: MessageThoughts,
    /// The call of a function, for a request with `functions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    function_call: Option<Value>,
}

impl Choice {
    pub fn of(turn: &Turn, finish_reason: &'static str) -> Self {
        let content = Some(turn.shown());
        Self {
            index: 0,
            message: AssistantMessage {
                role: "assistant",
                content: content.filter(|text| !text.is_empty() || turn.calls.is_empty()),
                tool_calls: turn
                    .calls
                    .iter()
                    .map(|call| tool_call(turn, call))
                    .collect(),
                thoughts: MessageThoughts::of(turn.thoughts()),
                function_call: None,
            },
            finish_reason,
        }
    }

    /// Cuts the answer before the first of these texts.
    pub fn stopped(mut self, turn: &Turn, stops: &StopTexts) -> Self {
        if let Some(content) = &mut self.message.content {
            let end = stopped(turn, content, stops).len();
            if end < content.len() {
                content.truncate(end);
                self.finish_reason = STOP;
            }
        }
        self
    }

    /// Gives the call the form for a client that defined `functions`, which knows one call, without an id.
    pub fn with_function_call(mut self) -> Self {
        let calls = std::mem::take(&mut self.message.tool_calls);
        if let Some(call) = calls.into_iter().next() {
            self.message.function_call = Some(call["function"].clone());
            self.finish_reason = FUNCTION_CALL;
        }
        self
    }
}

/// Why a turn ended that has its whole answer, or the answer up to one of the client's stop texts.
pub const STOP: &str = "stop";
/// Why a turn ended that called a function of `functions`.
pub const FUNCTION_CALL: &str = "function_call";

/// The part of a turn's text before the first of these texts. What the host says itself, and calls that it tells, stay
/// whole.
pub fn stopped<'a>(turn: &Turn, text: &'a str, stops: &StopTexts) -> &'a str {
    let is_models = match turn.end() {
        TurnEnd::Answered | TurnEnd::Filtered => true,
        TurnEnd::OutOfTokens => turn.content() == text,
        _ => false,
    };
    if is_models { stops.cut(text) } else { text }
}

/// Why the turn ended, in OpenAI's words.
///
/// # Errors
/// It failed, was cancelled, or has not ended.
pub fn finish(turn: &Turn) -> Result<&'static str, ApiError> {
    match turn.end() {
        TurnEnd::Called => Ok("tool_calls"),
        TurnEnd::OutOfTokens | TurnEnd::Limited => Ok("length"),
        TurnEnd::Blocked | TurnEnd::Filtered => Ok("content_filter"),
        TurnEnd::Answered | TurnEnd::Cancelled | TurnEnd::Failed | TurnEnd::Open => {
            turn.fault(Api::OpenAi).map_or(Ok(STOP), Err)
        }
    }
}

fn tool_call(turn: &Turn, call: &ClientCall) -> Value {
    let mut told = json!({"id": call.id, "type": "function", "function": call.function});
    for (name, member) in turn.call_members(call) {
        told[name] = member;
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::unsent::FromRecord as _;
    use toolhold_protocol::event::{Event, Seal};
    use uuid::Uuid;

    /// SDKs take `length` for an answer that lacks its end.
    #[test]
    fn an_answer_that_reached_a_stop_is_whole() {
        let done = json!({"event": "done", "reason": "token_budget", "output": "It is 4.END of", "steps": 1, "calls": 0,
            "tokens": 1, "duration_ms": 1});
        let mut turn = Turn::new(Uuid::nil());
        turn.take(&Event {
            run: Uuid::nil(),
            seq: 0,
            at_ms: 0,
            kind: serde_json::from_value(done).unwrap(),
            removed: None,
            seal: Seal::default(),
        });
        for (stop, reason, content) in [
            ("END", "stop", "It is 4."),
            ("FIN", "length", "It is 4.END of"),
        ] {
            let stops = StopTexts::read(&json!(stop)).unwrap();
            let choice = Choice::of(&turn, finish(&turn).unwrap()).stopped(&turn, &stops);
            assert_eq!(choice.finish_reason, reason);
            assert_eq!(choice.message.content.as_deref(), Some(content));
        }
    }
}
