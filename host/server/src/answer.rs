//! The answer of a run as an API returns it, built from the run's events.

use serde::Serialize;
use serde_json::Value;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::event::{RunFailure, ToolOutcome};
use utoipa::ToSchema;
use uuid::Uuid;

/// The answer to a task, with the steps that led to it.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Answer {
    /// The run's id. `GET /v1/runs/ID` returns the whole run.
    pub id: Uuid,
    /// The output, which satisfies the output schema: a text without a schema, null if the run was stopped.
    #[schema(value_type = Value)]
    pub output: Value,
    /// Why the run ended: `output`, or what stopped it (`max_steps`, `timeout`, `cancelled`, `model`, …).
    /// Null while the run is not over.
    #[schema(value_type = Option<String>)]
    pub reason: Option<StopReason>,
    /// The error, if the run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub steps: Vec<AnswerStep>,
    pub usage: Usage,
    pub duration_ms: u64,
}

/// One Request to the model, and the calls that its reply asked for.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct AnswerStep {
    pub step: u32,
    pub calls: Vec<Call>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Call {
    pub id: String,
    pub tool: String,
    /// Arguments after references were replaced.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// Null while the call runs.
    #[schema(value_type = Value)]
    pub result: Value,
    /// The error of a failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub duration_ms: f64,
}

/// Tokens as the endpoint counts them; the cost in billionths of run.currency.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    /// Absent if the cost is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nano: Option<u64>,
}

impl Answer {
    pub fn of(run: Uuid) -> Self {
        Self {
            id: run,
            ..Self::default()
        }
    }

    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Request { step, .. } => self.steps.push(AnswerStep {
                step: *step,
                calls: Vec::new(),
            }),
            EventKind::ToolStart { call, filled, .. } => {
                let arguments = filled.as_ref().unwrap_or(&call.arguments).clone();
                // The calls of a saved plan belong to no Request.
                if self.steps.is_empty() {
                    self.steps.push(AnswerStep::default());
                }
                if let Some(step) = self.steps.last_mut() {
                    step.calls.push(Call {
                        id: call.id.clone(),
                        tool: call.tool.clone(),
                        arguments,
                        result: Value::Null,
                        error: None,
                        duration_ms: 0.0,
                    });
                }
            }
            EventKind::ToolResult {
                id, outcome, usage, ..
            } => {
                let mut calls = self.steps.iter_mut().flat_map(|step| &mut step.calls);
                if let Some(call) = calls.find(|call| call.id == *id) {
                    call.duration_ms = usage.duration_us as f64 / 1_000.0;
                    match outcome {
                        ToolOutcome::Output(value) => call.result.clone_from(value),
                        ToolOutcome::Error(failure) => call.error = Some(failure.message.clone()),
                    }
                }
            }
            EventKind::Tokens {
                prompt,
                completion,
                total,
                ..
            } => {
                self.usage.prompt_tokens += prompt.unwrap_or(0);
                self.usage.completion_tokens += completion.unwrap_or(0);
                self.usage.total_tokens = *total;
            }
            EventKind::Done {
                reason,
                output,
                error,
                tokens,
                cost_nano,
                duration_ms,
                ..
            } => {
                self.reason = Some(*reason);
                self.output.clone_from(output);
                self.error = error
                    .as_ref()
                    .map(|error: &RunFailure| error.message.clone());
                self.usage.total_tokens = *tokens;
                self.usage.cost_nano = cost_nano.map(Amount::nano);
                self.duration_ms = *duration_ms;
            }
            _ => {}
        }
    }

    /// The output as text; other values as JSON.
    pub fn text(&self) -> String {
        match &self.output {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }
}
