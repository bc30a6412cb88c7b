//! Runs inside of runs: a saved Request, a clean room or an advisor that answers a call (PROTOCOL.md,
//! 6 and 10).
//!
//! A sub-agent sees its own context, the call's parameters as its input, and of the parent's context
//! what the call's scopes name. It has the tools that its own context defines. Its limits lie inside
//! of what is left of the parent's.

use crate::error::ErrorClass;
use crate::event::{EventKind, RunFailure, StopReason};
use crate::protocol::Saved;
use crate::protocol::context::{DataMessage, Hidden, Input, Message};
use crate::protocol::reference::Path;
use crate::run::driver::{Begin, Driver, Sink};
use crate::run::machine::Input::Start;
use crate::run::machine::Work;
use crate::run::settings::DEFAULT_INSTRUCTIONS;
use crate::run::{RunRequest, Runner, Settings};
use crate::toolbox::{ToolFailure, ToolOutput, ToolResult, ToolUsage};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Ended {
    pub reason: StopReason,
    pub output: Value,
    pub error: Option<RunFailure>,
    pub tokens: u64,
}

impl Ended {
    /// What `done` says of how a run ended.
    pub(super) fn of(event: &EventKind) -> Option<Self> {
        match event {
            EventKind::Done {
                reason,
                output,
                error,
                tokens,
                ..
            } => Some(Self {
                reason: *reason,
                output: output.clone(),
                error: error.clone(),
                tokens: *tokens,
            }),
            _ => None,
        }
    }
}

/// Answers a call by a run of its own.
pub(super) async fn run(
    driver: Driver,
    work: &Work,
    parent: &RunRequest,
    events: mpsc::Sender<(String, EventKind)>,
) -> ToolResult {
    let started = Instant::now();
    let mut result = match request(work, parent) {
        Err(failure) => ToolResult::failed(failure),
        Ok(request) => {
            let sink = Sink::Parent {
                call: work.call.id.clone(),
                events,
            };
            let ended = match driver.machine(request).await {
                Ok(machine) => {
                    driver
                        .perform(
                            machine,
                            Begin {
                                unsaid: Vec::new(),
                                input: Start,
                                elapsed: Duration::ZERO,
                            },
                            sink,
                            CancellationToken::new(),
                        )
                        .await
                }
                Err(error) => Err(error),
            };
            match ended {
                Ok(ended) => answer(ended),
                Err(error) => ToolResult::failed(ToolFailure {
                    kind: "sub_agent".into(),
                    class: ErrorClass::Fatal,
                    message: format!("the sub-agent could not be started: {error}"),
                }),
            }
        }
    };
    result.usage.duration_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    result
}

fn request(work: &Work, parent: &RunRequest) -> Result<RunRequest, ToolFailure> {
    let depth = parent.depth + 1;
    if depth > parent.settings.max_depth {
        let message = format!(
            "sub-agents may call each other {} deep (run.max_depth), and this call is deeper; do it yourself",
            parent.settings.max_depth
        );
        return Err(ToolFailure {
            kind: "depth".into(),
            class: ErrorClass::Fatal,
            message,
        });
    }
    let arguments = work.call.arguments.clone();
    let room = Saved {
        description: String::new(),
        ..Saved::default()
    };
    let saved = match &work.runner {
        Runner::Request(saved) => saved.as_ref(),
        _ => &room,
    };
    let mut context = match &work.runner {
        Runner::Request(saved) => saved
            .with_input(arguments)
            .map_err(|error| ToolFailure::correctable("arguments", error.to_string()))?,
        _ => vec![
            Message::user(format!(
                "Do what the tool {} is for: {}",
                work.call.tool, work.description
            )),
            Message::Input(Input {
                input: arguments,
                schema: Value::Bool(true),
                description: None,
                instance: None,
            }),
        ],
    };
    context.extend(
        work.call
            .context
            .iter()
            .map(|(path, value)| scoped(path, value)),
    );
    let settings = Settings {
        max_steps: saved
            .max_steps
            .unwrap_or(u32::MAX)
            .min(parent.settings.max_steps),
        token_budget: work.tokens_left,
        ..parent.settings.clone()
    };
    Ok(RunRequest {
        id: sub_run(parent.id, &work.call.id),
        instructions: saved
            .instructions
            .clone()
            .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.into()),
        context,
        output_schema: saved.schema.clone().or_else(|| work.output.clone()),
        settings,
        plan: None,
        depth,
    })
}

/// The run that answers a call of another run. The same again when that one is run again.
pub fn sub_run(parent: Uuid, call: &str) -> Uuid {
    Uuid::new_v5(&parent, call.as_bytes())
}

/// A part of the parent's context, at the place where it was.
fn scoped(path: &Path, value: &Value) -> Message {
    let call = (!path.segments.is_empty()).then(|| json!({"_outputPath": path}));
    Message::Data(DataMessage {
        data: value.clone(),
        kind: path.kind.clone(),
        schema: None,
        description: None,
        instance: None,
        hidden: Hidden {
            call,
            ..Hidden::default()
        },
    })
}

fn answer(ended: Ended) -> ToolResult {
    let outcome = match (ended.reason, ended.error) {
        (StopReason::Output, _) => Ok(ToolOutput::from(ended.output)),
        (reason, error) => Err(ToolFailure {
            kind: "sub_agent".into(),
            class: error
                .as_ref()
                .map_or(ErrorClass::Retryable, |error| error.class),
            message: format!(
                "the sub-agent ended without an output: {}",
                error.map_or_else(|| format!("{reason:?}"), |error| error.message)
            ),
        }),
    };
    ToolResult {
        outcome,
        usage: ToolUsage {
            tokens: ended.tokens,
            ..ToolUsage::default()
        },
        printed: Vec::new(),
    }
}
