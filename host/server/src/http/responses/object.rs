//! The response object of OpenAI's API, built from the outcome of a turn.

use super::output::{Output, OutputItem};
use super::repeated;
use crate::http::client_tools::ClientTool;
use crate::http::error::ApiError;
use crate::http::run_status::Api;
use crate::http::turn::{ToolholdFields, Turn, TurnEnd, began_at};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use toolhold_protocol::settings::Settings;
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
    pub frequency_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub metadata: BTreeMap<String, String>,
    pub user: Option<String>,
    pub safety_identifier: Option<String>,
    pub prompt_cache_key: Option<String>,
    /// True if no part of the input may be summed up.
    pub is_input_whole: bool,
    /// The order of the output items is the streamed one.
    pub is_streamed: bool,
    /// Text may be shown before the run is over, so that of a reply that broke off may be shown, too.
    pub is_shown_early: bool,
}

/// Default of `temperature` and `top_p` in OpenAI's API, for a run of which neither the client nor the agent says one.
const DEFAULT_SAMPLING: f64 = 1.0;

impl ResponseState {
    /// Adds how tokens are picked, where the request did not say it, from the settings of its run.
    pub fn complete(&mut self, settings: &Settings) {
        let sampling = &settings.sampling;
        let temperature = settings.temperature.map(decimal);
        self.temperature = self.temperature.or(temperature);
        self.top_p = self.top_p.or(sampling.top_p);
        self.frequency_penalty = self.frequency_penalty.or(sampling.frequency_penalty);
        self.presence_penalty = self.presence_penalty.or(sampling.presence_penalty);
    }
}

/// The number with the digits that were written: 0.7 and not 0.699999988079071.
fn decimal(number: f32) -> f64 {
    let digits = number.to_string();
    digits.parse().unwrap_or_else(|_| f64::from(number))
}

/// A response as OpenAI's API has it, with `toolhold` beside, and with all members that the Open Responses specification
/// demands.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResponseObject {
    /// `resp_` and the run's id without hyphens.
    id: String,
    object: &'static str,
    /// Seconds since 1970.
    created_at: u64,
    /// Seconds since 1970; null unless the status is `completed`.
    completed_at: Option<u64>,
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
    /// Its members are null: the operator decides how much a model thinks.
    reasoning: ReasoningOptions,
    safety_identifier: Option<String>,
    /// `default`: all requests of a key have one queue.
    service_tier: &'static str,
    /// Always true: every run is recorded.
    store: bool,
    /// 1 where neither the request nor the agent says one.
    temperature: f64,
    frequency_penalty: f64,
    presence_penalty: f64,
    /// Always 0.
    top_logprobs: u32,
    #[schema(value_type = Object)]
    text: Value,
    #[schema(value_type = Value)]
    tool_choice: Value,
    tools: Vec<ClientTool>,
    /// 1 where neither the request nor the agent says one.
    top_p: f64,
    /// `auto`: an input that is too long is summed up; `disabled`: it is refused.
    truncation: &'static str,
    prompt_cache_key: Option<String>,
    user: Option<String>,
    /// Null while the run is not over.
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
    /// The limit that was reached: `max_steps`, `max_tool_calls`, `max_cost` or `timeout`. Otherwise the `code` of the error that
    /// a request without a stream is answered with, such as `endpoint_rate_limit`, and `server_error` where it has none.
    #[schema(value_type = String)]
    code: Value,
    message: String,
}

#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ResponseReasoning)]
struct ReasoningOptions {
    effort: Option<&'static str>,
    summary: Option<&'static str>,
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
            TurnEnd::Blocked | TurnEnd::Filtered => (Status::Incomplete, Some("content_filter")),
            TurnEnd::Cancelled => (Status::Cancelled, None),
            TurnEnd::Limited | TurnEnd::Failed => (Status::Failed, None),
        };
        let ended_at = turn.ended_at_ms.map(|at| at / 1_000);
        Self {
            id: id(run),
            object: "response",
            created_at: began_at(run),
            completed_at: ended_at.filter(|_| status == Status::Completed),
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
            reasoning: ReasoningOptions::default(),
            safety_identifier: kept.safety_identifier.clone(),
            service_tier: "default",
            store: true,
            temperature: kept.temperature.unwrap_or(DEFAULT_SAMPLING),
            frequency_penalty: kept.frequency_penalty.unwrap_or(0.0),
            presence_penalty: kept.presence_penalty.unwrap_or(0.0),
            top_logprobs: 0,
            text: repeated::text(&kept.text),
            tool_choice: repeated::tool_choice(&kept.tool_choice),
            tools: kept.tools.clone(),
            top_p: kept.top_p.unwrap_or(DEFAULT_SAMPLING),
            truncation: if kept.is_input_whole {
                "disabled"
            } else {
                "auto"
            },
            prompt_cache_key: kept.prompt_cache_key.clone(),
            user: kept.user.clone(),
            usage: (status != Status::InProgress).then(|| ResponseUsage::of(turn)),
            toolhold: turn.extra(),
        }
    }

    /// The response at the end of a stream that cannot go on. Its run may go on.
    pub fn failed(self, code: String, message: String) -> Self {
        let code = code.into();
        Self {
            status: Status::Failed,
            completed_at: None,
            incomplete_details: None,
            error: Some(ResponseFault { code, message }),
            ..self
        }
    }
}

impl ResponseFault {
    fn of(turn: &Turn) -> Self {
        Self {
            code: match turn.end() {
                TurnEnd::Limited => json!(turn.answer.reason),
                // As the error of a request without a stream has it.
                _ => {
                    let fault = turn.fault(Api::OpenAi);
                    fault
                        .as_ref()
                        .map_or("server_error", ApiError::cause)
                        .into()
                }
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

    #[test]
    fn sampling_of_the_request_comes_before_that_of_the_agent() {
        let mut settings = Settings {
            temperature: Some(0.7),
            ..Settings::default()
        };
        settings.sampling.top_p = Some(0.9);
        let mut kept = ResponseState {
            top_p: Some(0.5),
            ..ResponseState::default()
        };
        kept.complete(&settings);
        assert_eq!((kept.temperature, kept.top_p), (Some(0.7), Some(0.5)));
        assert_eq!(kept.presence_penalty, None);
    }
}
