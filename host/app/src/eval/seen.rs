//! What is kept of an attempt: its calls, its answer, and what they cost.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_agent::event::ToolOutcome;
use toolhold_agent::model::Routing;
use toolhold_agent::run::fallback::Stage;
use toolhold_agent::{EventKind, StopReason};
use uuid::Uuid;

/// A run, as its events told it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Seen {
    pub run: Uuid,
    /// Absent while it goes on.
    pub reason: Option<StopReason>,
    pub output: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub calls: Vec<Made>,
    pub counts: Counts,
}

/// A call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Made {
    pub id: String,
    pub tool: String,
    /// With references replaced; null if the call was refused before it was made.
    pub arguments: Value,
    /// Absent while it runs.
    pub succeeded: Option<bool>,
    /// Its result or error, the beginning of it.
    #[serde(default)]
    pub result: String,
}

/// Characters of a result that are kept; the journal has all.
const RESULT: usize = 1_000;

/// What an attempt took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    pub steps: u32,
    pub calls: u32,
    pub failed_calls: u32,
    pub tokens: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub duration_ms: u64,
    /// Replies and arguments whose form was put right.
    pub repairs: u32,
    /// Replies that went back to the model.
    pub unusable: u32,
    /// Requests that were sent again, because the endpoint failed.
    pub retries: u32,
    /// Calls that another model was asked to make.
    pub fallbacks: u32,
}

impl Seen {
    /// Takes the next event of the run.
    pub fn take(&mut self, event: &EventKind) {
        let counts = &mut self.counts;
        match event {
            EventKind::ToolStart { call, filled, .. } => self.calls.push(Made {
                id: call.id.clone(),
                tool: call.tool.clone(),
                arguments: filled.clone().unwrap_or_else(|| call.arguments.clone()),
                succeeded: None,
                result: String::new(),
            }),
            EventKind::ToolResult {
                id, tool, outcome, ..
            } => {
                let (succeeded, result) = match outcome {
                    ToolOutcome::Output(value) => (true, value.to_string()),
                    ToolOutcome::Error(failure) => (false, failure.message.clone()),
                };
                counts.failed_calls += u32::from(!succeeded);
                let ended = Made {
                    id: id.clone(),
                    tool: tool.clone(),
                    arguments: Value::Null,
                    succeeded: Some(succeeded),
                    result: result.chars().take(RESULT).collect(),
                };
                match self.calls.iter_mut().find(|made| made.id == *id) {
                    Some(made) => {
                        *made = Made {
                            arguments: made.arguments.take(),
                            ..ended
                        }
                    }
                    None => self.calls.push(ended),
                }
            }
            EventKind::Routing(Routing::Retry { .. }) => counts.retries += 1,
            EventKind::Fallback {
                stage: Stage::Begun { .. },
                ..
            } => counts.fallbacks += 1,
            EventKind::Notice { message, .. } => {
                let repaired = message.starts_with("the reply was mended")
                    || (message.starts_with("arguments of ") && message.contains("put right"));
                counts.repairs += u32::from(repaired);
                counts.unusable += u32::from(message.contains("could not be used"));
            }
            EventKind::Tokens {
                prompt, completion, ..
            } => {
                counts.prompt_tokens += prompt.unwrap_or(0);
                counts.completion_tokens += completion.unwrap_or(0);
            }
            EventKind::Done {
                reason,
                output,
                error,
                steps,
                calls,
                tokens,
                duration_ms,
            } => {
                self.reason = Some(*reason);
                self.output = output.clone();
                self.error = error.as_ref().map(|failure| failure.message.clone());
                counts.steps = *steps;
                counts.calls = *calls;
                counts.tokens = *tokens;
                counts.duration_ms = *duration_ms;
            }
            _ => {}
        }
    }

    /// The answer as text: a plain string as it is, anything else as JSON.
    pub fn answer(&self) -> String {
        match &self.output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}
