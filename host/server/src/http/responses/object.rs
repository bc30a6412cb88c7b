//! The response object of OpenAI's API, built from the outcome of a turn.

use super::output::{Output, OutputItem};
use crate::http::client_tools::ClientTool;
use crate::http::turn::{ToolholdFields, Turn, TurnEnd};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The fields that a response repeats of its request, and the state that the next response needs. Stored with
/// the run's record.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseState {
    /// The input items.
    pub input: Vec<Value>,
    pub previous_response_id: Option<String>,
    pub instructions: Option<String>,
    /// System messages of the input, and of the inputs before.
    pub system: Option<String>,
    pub tools: Vec<ClientTool>,
    pub tool_choice: Value,
    pub parallel_tool_calls: Option<bool>,
    pub is_background: bool,
    pub text: Value,
    pub max_output_tokens: Option<u32>,
    pub max_tool_calls: Option<u32>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub metadata: BTreeMap<String, String>,
    /// The order of the output items is the streamed one.
    pub is_streamed: bool,
}

/// As OpenAI's API has it, with `toolhold` beside.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseObject {
    /// `resp_` and the run's id without hyphens.
    id: String,
    object: &'static str,
    /// Seconds since 1970.
    created_at: u64,
    status: Status,
    error: Option<ResponseFault>,
    incomplete_details: Option<Incomplete>,
    background: bool,
    instructions: Option<String>,
    max_output_tokens: Option<u32>,
    max_tool_calls: Option<u32>,
    metadata: BTreeMap<String, String>,
    /// Name of the agent.
    model: String,
    output: Vec<OutputItem>,
    parallel_tool_calls: bool,
    previous_response_id: Option<String>,
    store: bool,
    temperature: Option<f64>,
    #[schema(value_type = Object)]
    text: Value,
    #[schema(value_type = Value)]
    tool_choice: Value,
    tools: Vec<ClientTool>,
    top_p: Option<f64>,
    /// Absent while the run is not over.
    usage: Option<ResponseUsage>,
    toolhold: ToolholdFields,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseStatus)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    InProgress,
    Completed,
    /// The token limit was reached, or a shield blocked the run: `incomplete_details` and `toolhold` say
    /// which.
    Incomplete,
    Cancelled,
    /// Another limit was reached, or the model failed: `error` says which.
    Failed,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ResponseFault)]
struct ResponseFault {
    /// `server_error`, `tool_choice_unmet` where the model made no call that was demanded, or the limit that was reached: `max_steps`, `max_tool_calls`, `max_cost` or `timeout`.
    #[schema(value_type = String)]
    code: Value,
    message: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ResponseIncomplete)]
struct Incomplete {
    /// `max_output_tokens` (of a reply or of the whole run) or `content_filter`.
    reason: &'static str,
}

/// Tokens of the whole turn, as the endpoint counts them.
#[derive(Debug, Serialize, ToSchema)]
struct ResponseUsage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct InputDetails {
    /// Prompt tokens from the endpoint's cache, if it reports them.
    cached_tokens: u64,
    /// Always 0: endpoints do not report it.
    cache_write_tokens: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct OutputDetails {
    /// Always 0: endpoints include them in the others.
    reasoning_tokens: u64,
}

impl ResponseObject {
    pub fn new(model: &str, kept: &ResponseState, turn: &Turn, output: &Output) -> Self {
        let run = turn.answer.id;
        let (status, incomplete) = match turn.end() {
            TurnEnd::Open => (Status::InProgress, None),
            TurnEnd::Answered | TurnEnd::Called => (Status::Completed, None),
            TurnEnd::OutOfTokens => (Status::Incomplete, Some("max_output_tokens")),
            TurnEnd::Blocked => (Status::Incomplete, Some("content_filter")),
            TurnEnd::Cancelled => (Status::Cancelled, None),
            TurnEnd::Limited | TurnEnd::Failed => (Status::Failed, None),
        };
        let or = |value: &Value, other: Value| match value {
            Value::Null => other,
            value => value.clone(),
        };
        Self {
            id: id(run),
            object: "response",
            created_at: run.get_timestamp().map_or(0, |at| at.to_unix().0),
            status,
            error: (status == Status::Failed).then(|| ResponseFault::of(turn)),
            incomplete_details: incomplete.map(|reason| Incomplete { reason }),
            background: kept.is_background,
            instructions: kept.instructions.clone(),
            max_output_tokens: kept.max_output_tokens,
            max_tool_calls: kept.max_tool_calls,
            metadata: kept.metadata.clone(),
            model: model.to_owned(),
            output: output.items.clone(),
            parallel_tool_calls: kept.parallel_tool_calls.unwrap_or(true),
            previous_response_id: kept.previous_response_id.clone(),
            store: true,
            temperature: kept.temperature,
            text: or(&kept.text, json!({"format": {"type": "text"}})),
            tool_choice: or(&kept.tool_choice, json!("auto")),
            tools: kept.tools.clone(),
            top_p: kept.top_p,
            usage: (status != Status::InProgress).then(|| ResponseUsage::of(turn)),
            toolhold: turn.extra(),
        }
    }
}

impl ResponseFault {
    fn of(turn: &Turn) -> Self {
        Self {
            code: match turn.end() {
                TurnEnd::Limited => json!(turn.answer.reason),
                _ => turn.failure_code().unwrap_or("server_error").into(),
            },
            message: turn.failure(),
        }
    }
}

impl ResponseUsage {
    fn of(turn: &Turn) -> Self {
        let usage = turn.answer.usage;
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: turn.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputDetails {
                reasoning_tokens: 0,
            },
            total_tokens: usage.total_tokens,
        }
    }
}

pub fn id(run: Uuid) -> String {
    format!("resp_{}", run.simple())
}

/// The run's id in a response's id.
pub fn run_of(id: &str) -> Option<Uuid> {
    let id = id.strip_prefix("resp_")?;
    let run = Uuid::try_parse(id).ok()?;
    // Only the canonical form is accepted: one response has one id.
    (run.simple().to_string() == id).then_some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_one_id() {
        let run = Uuid::now_v7();
        assert_eq!(run_of(&id(run)), Some(run));
        for other in [
            run.to_string(),
            format!("resp_{run}"),
            run.simple().to_string(),
            id(run).to_uppercase(),
            format!("{} ", id(run)),
            "resp_".into(),
            String::new(),
        ] {
            assert_eq!(run_of(&other), None, "{other}");
        }
    }
}
