//! The summary of an attempt: its calls, its answer, and their costs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::fallback::Stage;
use toolhold_protocol::routing::Routing;
use uuid::Uuid;

/// The summary of a run, from its events.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunSummary {
    pub run: Uuid,
    /// Absent while the run is not over.
    pub reason: Option<StopReason>,
    pub output: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub calls: Vec<AttemptCall>,
    pub counts: AttemptCosts,
}

/// A call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptCall {
    pub id: String,
    pub tool: String,
    /// Arguments after references were replaced; null if the call was refused.
    pub arguments: Value,
    /// Absent while it runs.
    pub succeeded: Option<bool>,
    /// Beginning of its result or error.
    #[serde(default)]
    pub result: String,
}

/// Most characters kept of a result; the journal has the whole.
const MAX_RESULT_CHARS: usize = 1_000;

/// The costs of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttemptCosts {
    pub steps: u32,
    pub calls: u32,
    pub failed_calls: u32,
    pub tokens: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub duration_ms: u64,
    /// Repaired replies and arguments.
    pub repairs: u32,
    /// Replies that the model had to correct.
    pub unusable: u32,
    /// Requests that were retried after a failure of the endpoint.
    pub retries: u32,
    /// Calls made by a fallback model.
    pub fallbacks: u32,
}

impl RunSummary {
    /// Takes the next event of the run.
    pub fn take(&mut self, event: &EventKind) {
        let counts = &mut self.counts;
        match event {
            EventKind::ToolStart { call, filled, .. } => self.calls.push(AttemptCall {
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
                let ended = AttemptCall {
                    id: id.clone(),
                    tool: tool.clone(),
                    arguments: Value::Null,
                    succeeded: Some(succeeded),
                    result: result.chars().take(MAX_RESULT_CHARS).collect(),
                };
                match self.calls.iter_mut().find(|made| made.id == *id) {
                    Some(made) => {
                        *made = AttemptCall {
                            arguments: made.arguments.take(),
                            ..ended
                        }
                    }
                    None => self.calls.push(ended),
                }
            }
            EventKind::Routing(Routing::Retry { .. }) => counts.retries += 1,
            EventKind::Fallback {
                stage: Stage::Asked { attempt: 1, .. },
                ..
            } => counts.fallbacks += 1,
            EventKind::UnusableReply(_) => counts.unusable += 1,
            EventKind::Repaired { repairs, .. } => {
                counts.repairs += u32::try_from(repairs.len()).unwrap_or(u32::MAX);
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
                ..
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Events as the journal has them.
    fn seen(events: &[Value]) -> RunSummary {
        let mut seen = RunSummary::default();
        for event in events {
            seen.take(&serde_json::from_value(event.clone()).unwrap());
        }
        seen
    }

    #[test]
    fn usage_of_attempts_is_added_up() {
        let notice = |message: &str| json!({"event": "notice", "step": 1, "message": message});
        let tokens = |prompt: u64, completion: u64| json!({"event": "tokens", "step": 1, "prompt": prompt, "completion": completion, "total": 0, "duration_ms": 1});
        let seen = seen(&[
            json!({"event": "routing", "decision": "retry", "endpoint": "e", "attempt": 1, "wait_ms": 5, "reason": "busy"}),
            json!({"event": "repaired", "step": 1, "repairs": [{"kind": "trailing_comma"}]}),
            json!({"event": "repaired", "step": 1, "tool": "text.count", "repairs": [{"kind": "number_as_text", "at": "/limit"}]}),
            json!({"event": "unusable_reply", "step": 1, "calls_made": false, "reason": "it is empty"}),
            json!({"event": "unusable_reply", "step": 1, "calls_made": true, "reason": "it ends"}),
            notice("the saved plan could not be used"),
            notice("of 9 calls only the first 8 are made (run.max_calls)"),
            json!({"event": "fallback", "step": 1, "tool": "a.b", "stage": "begun", "failures": 3, "first_error": "e"}),
            json!({"event": "fallback", "step": 1, "tool": "a.b", "stage": "asked", "candidate": "c", "attempt": 1}),
            tokens(100, 10),
            tokens(200, 20),
            json!({"event": "done", "reason": "output", "output": "7", "steps": 2, "calls": 1, "tokens": 330, "duration_ms": 900}),
        ]);
        let expected = AttemptCosts {
            steps: 2,
            calls: 1,
            failed_calls: 0,
            tokens: 330,
            prompt_tokens: 300,
            completion_tokens: 30,
            duration_ms: 900,
            repairs: 2,
            unusable: 2,
            retries: 1,
            fallbacks: 1,
        };
        assert_eq!(seen.counts, expected);
        assert_eq!(seen.answer(), "7");
    }

    #[test]
    fn calls_are_seen_with_what_references_stood_for_and_refused_ones_too() {
        let usage = json!({"duration_us": 1, "fuel": 1, "memory_bytes": 1, "tokens": 0});
        let seen = seen(&[
            json!({"event": "tool_start", "step": 1, "id": "c1", "tool": "text.count", "arguments": {"text": "†input.a"}, "filled": {"text": "abc"}}),
            json!({"event": "tool_result", "step": 1, "id": "c1", "tool": "text.count", "output": {"words": 1}, "usage": usage}),
            json!({"event": "tool_result", "step": 1, "id": "c2", "tool": "a.b", "error": {"kind": "arguments", "class": "correctable", "message": "no"}, "usage": usage, "by_host": true}),
        ]);
        let found: Vec<_> = seen
            .calls
            .iter()
            .map(|made| {
                (
                    made.tool.as_str(),
                    &made.arguments,
                    made.succeeded,
                    made.result.as_str(),
                )
            })
            .collect();
        let filled = json!({"text": "abc"});
        assert_eq!(
            found,
            [
                ("text.count", &filled, Some(true), "{\"words\":1}"),
                ("a.b", &Value::Null, Some(false), "no"),
            ]
        );
        assert_eq!(seen.counts.failed_calls, 1);
    }
}
