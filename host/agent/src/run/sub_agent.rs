//! Runs inside of runs: a saved Request, a clean room or an advisor that answers a call (docs/protocol.md,
//! 6 and 10).
//!
//! A sub-agent sees its own context, the call's parameters as its input, and of the parent's context
//! what the call's scopes name. It has the tools that its own context defines. Its limits lie inside
//! of what is left of the parent's: as many Requests as the parent may still make (at least one, or
//! the parent's last could delegate nothing), the tokens and the time that are left.

use crate::run::budget_tracker::{BudgetTracker, Budgets, RunUsage};
use crate::run::cancel::RunCancel;
use crate::run::driver::{CallEventSender, Driver, Sink, StartingPoint};
use crate::run::replay::Replayed;
use crate::toolbox::ToolCall;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_policy::ErrorClass;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::context::{DataMessage, HiddenMetadata, Input, Message, data_at};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{EventKind, RunFailure, StopReason, sub_run};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::reference::Path;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::DEFAULT_INSTRUCTIONS;
use toolhold_protocol::settings::{RunRequest, Settings};
use toolhold_protocol::shield::Policy;
use toolhold_protocol::tool::Tool;

/// How a run ended.
#[derive(Debug, Clone)]
pub struct SubAgentEnd {
    pub reason: StopReason,
    pub output: Value,
    pub error: Option<RunFailure>,
    /// What it took, its own sub-agents included.
    pub spent: RunUsage,
}

impl SubAgentEnd {
    /// What `done` says of how a run ended that took so much.
    pub(super) fn of(event: &EventKind, spent: RunUsage) -> Option<Self> {
        match event {
            EventKind::Done {
                reason,
                output,
                error,
                ..
            } => Some(Self {
                reason: *reason,
                output: output.clone(),
                error: error.clone(),
                spent,
            }),
            _ => None,
        }
    }
}

/// Answers a call by a run of its own, or by the rest of the one that had `begun` before the process
/// ended.
pub(super) async fn run(
    driver: Driver,
    delegated: Delegated<'_>,
    begun: Option<Replayed>,
    parent: &RunRequest,
    events: CallEventSender,
) -> ToolResult {
    let started = Instant::now();
    let before = begun
        .as_ref()
        .map_or(Duration::ZERO, |replayed| replayed.elapsed);
    let mut calls = delegated.within.clone();
    calls.push(delegated.call.id.clone());
    let sink = Sink::Parent {
        calls,
        call_depth: delegated.call.depth,
        events: events.clone(),
    };
    let mut result = Box::pin(perform(driver, delegated, begun, parent, sink, &events))
        .await
        .unwrap_or_else(ToolResult::failed);
    let duration = before + started.elapsed();
    result.usage.duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    result
}

async fn perform(
    driver: Driver,
    delegated: Delegated<'_>,
    begun: Option<Replayed>,
    parent: &RunRequest,
    sink: Sink,
    events: &CallEventSender,
) -> Result<ToolResult, ToolFailure> {
    let not_started = |error: RunError| ToolFailure {
        kind: "sub_agent".into(),
        class: ErrorClass::Fatal,
        message: format!("the sub-agent could not be started: {error}"),
    };
    let (machine, begin) = match begun {
        Some(Replayed {
            ended: Some(ended), ..
        }) => return Ok(answer(ended)),
        Some(replayed) => StartingPoint::again(replayed, delegated.left.time),
        None => {
            let request = request(&delegated, parent)?;
            let mut fetched = FetchesOfCall {
                call: &delegated.call.id,
                fetches: Vec::new(),
                events,
            };
            let machine = driver.machine(request, &mut fetched.fetches).await;
            fetched.tell().await;
            let machine = machine.map_err(not_started)?;
            (machine, StartingPoint::anew(delegated.left.time))
        }
    };
    driver
        .perform(
            machine,
            begin,
            sink,
            delegated.left.budget,
            RunCancel::default(),
        )
        .await
        .map(answer)
        .map_err(not_started)
}

/// What was fetched for the tools of a sub-agent. It is told in the parent's events, because a sub-agent that cannot be
/// started has none; also where the call is stopped meanwhile.
struct FetchesOfCall<'a> {
    call: &'a str,
    fetches: Vec<RequestFetch>,
    events: &'a CallEventSender,
}

impl FetchesOfCall<'_> {
    async fn tell(mut self) {
        while let Some(event) = self.next() {
            self.events.tell(event).await;
        }
    }

    fn next(&mut self) -> Option<EventKind> {
        let fetch = (!self.fetches.is_empty()).then(|| self.fetches.remove(0))?;
        let call = Some(self.call.to_owned());
        Some(EventKind::RequestFetched(RequestFetch { call, ..fetch }))
    }
}

impl Drop for FetchesOfCall<'_> {
    fn drop(&mut self) {
        while let Some(event) = self.next() {
            self.events.tell_if_room(event);
        }
    }
}

/// A call that a sub-agent answers.
pub(super) struct Delegated<'a> {
    pub call: &'a ToolCall,
    /// The ids of the calls of the run that it is nested in, the outermost first.
    pub within: Vec<String>,
    pub tool: &'a Tool,
    pub runner: &'a Runner,
    pub left: SubAgentLimits,
}

/// What a parent has left for its sub-agents.
pub(super) struct SubAgentLimits {
    pub time: Duration,
    /// Requests to a model.
    pub steps: u32,
    pub budgets: Budgets,
    /// Shared by all that run at the same time.
    pub budget: Arc<BudgetTracker>,
}

fn request(delegated: &Delegated<'_>, parent: &RunRequest) -> Result<RunRequest, ToolFailure> {
    let Delegated {
        call,
        tool,
        runner,
        left,
        ..
    } = delegated;
    let depth = parent.depth + 1;
    if depth > parent.settings.max_depth {
        let message = format!(
            "sub-agents may call each other {} deep (run.max_depth), and this call of {:?} is deeper: a Request that \
             calls itself never ends. Do it yourself",
            parent.settings.max_depth, call.tool
        );
        return Err(ToolFailure {
            kind: "depth".into(),
            class: ErrorClass::Fatal,
            message,
        });
    }
    let arguments = call.arguments.clone();
    let room = SavedRequest {
        description: String::new(),
        ..SavedRequest::default()
    };
    let saved = match runner {
        Runner::Request(saved) => saved.as_ref(),
        _ => &room,
    };
    let mut context = match runner {
        Runner::Request(saved) => saved
            .with_any_input(arguments)
            .map_err(|error| ToolFailure::correctable("arguments", error.to_string()))?,
        _ => vec![
            Message::user(purpose(&call.tool, &tool.description)),
            Message::Input(Input {
                input: arguments,
                schema: Value::Bool(true),
                description: None,
                instance: None,
            }),
        ],
    };
    let_in(&call.context, &mut context);
    let settings = Settings {
        max_steps: saved.max_steps.unwrap_or(u32::MAX).min(left.steps.max(1)),
        token_budget: left.budgets.tokens,
        max_cost: left.budgets.cost,
        max_tool_calls: left.budgets.calls,
        timeout: left.time,
        // The client demands a call of the run itself.
        must_call: false,
        ..parent.settings.clone()
    };
    let within = delegated
        .within
        .iter()
        .fold(parent.id, |run, call| sub_run(run, call));
    Ok(RunRequest {
        id: sub_run(within, &call.id),
        instructions: saved
            .instructions
            .clone()
            .unwrap_or_else(|| DEFAULT_INSTRUCTIONS.into()),
        context,
        output_schema: saved.schema.clone().or_else(|| tool.output.clone()),
        settings,
        plan: None,
        // What it may know its caller passes on.
        retrieval: None,
        policy: Policy::default(),
        depth,
        agents: [parent.agents.as_slice(), std::slice::from_ref(&call.tool)].concat(),
        own_tools_only: true,
        allowed: parent.allowed.clone(),
        language: None,
        tells_language: false,
        carried: None,
        files: Vec::new(),
    })
}

/// Says what a clean room is for. A description of several lines stands behind bars.
fn purpose(tool: &str, description: &str) -> PromptText {
    let mut text = PromptText::from("Do what the tool ");
    text.line(tool).words(" is for:");
    match PromptText::single_line(description) {
        Some(line) => text.words(" ").part(&line),
        None => text.words("\n").quoted(description),
    };
    text
}

/// Adds the part of the parent's context that the call's scopes name. What the caller lets in holds
/// over what the file says of the same kind, but for the input: the arguments are this call's.
fn let_in(parts: &[(Path, Value)], context: &mut Vec<Message>) {
    for (path, value) in parts {
        let arguments = context
            .iter()
            .position(|message| matches!(message, Message::Input(_)));
        match arguments.filter(|_| path.kind == "input") {
            Some(arguments) => context.insert(arguments, scoped(path, value)),
            None => context.push(scoped(path, value)),
        }
    }
}

/// A part of the parent's context, at the place where it was.
fn scoped(path: &Path, value: &Value) -> Message {
    let call = (!path.segments.is_empty()).then(|| json!({"_outputPath": path}));
    Message::Data(DataMessage {
        data: data_at(path, value),
        kind: path.kind.clone(),
        schema: None,
        description: None,
        instance: None,
        hidden: HiddenMetadata {
            call,
            ..HiddenMetadata::default()
        },
    })
}

fn answer(ended: SubAgentEnd) -> ToolResult {
    let outcome = match (ended.reason, ended.error) {
        (StopReason::Output | StopReason::Planned, _) => Ok(ToolOutput::from(ended.output)),
        (reason, error) => Err(ToolFailure {
            kind: "sub_agent".into(),
            class: match (reason, &error) {
                // Neither the model nor time brings them back.
                (StopReason::TokenBudget | StopReason::MaxCost | StopReason::MaxToolCalls, _) => {
                    ErrorClass::Fatal
                }
                (_, Some(error)) => error.class,
                (_, None) => ErrorClass::Retryable,
            },
            message: format!(
                "the sub-agent ended without an output: {}",
                error.map_or_else(|| format!("{reason:?}"), |error| error.message)
            ),
        }),
    };
    ToolResult {
        outcome,
        usage: ToolUsage {
            tokens: ended.spent.tokens,
            cost_nano: ended.spent.cost,
            unpriced: ended.spent.unpriced,
            calls: ended.spent.calls,
            ..ToolUsage::default()
        },
        printed: Vec::new(),
        module: None,
        cached: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ToolCatalogue;
    use crate::run::bind::bind;
    use crate::toolbox::{Activities, ResolvedModule, ToolRunner, ToolSource};
    use futures_util::future::BoxFuture;
    use std::time::Duration;
    use toolhold_protocol::context::Context;

    /// Fetches for longer than anybody waits.
    #[derive(Debug)]
    struct Slow;

    impl ToolSource for Slow {
        fn tools(&self) -> Vec<Arc<Tool>> {
            Vec::new()
        }

        fn module<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
            Box::pin(std::future::pending())
        }

        fn take_fetch(&self, name: &str) -> Option<RequestFetch> {
            Some(RequestFetch {
                address: name.to_owned(),
                call: None,
                digest: None,
                bytes: 0,
                duration_ms: 20,
                attempts: 1,
                error: Some("given up".into()),
            })
        }
    }

    impl ToolRunner for Slow {
        fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn what_was_being_fetched_when_a_call_is_stopped_is_told() {
        let address = "https://agents.example.com/refund";
        let tools = json!([{"type": "tool", "tool": {
            "refund": {"type": "object", "properties": {"_module": {"const": address}}},
        }}]);
        let context = Context::new(Message::parse_all(&tools).unwrap()).unwrap();
        let (events, mut told) = CallEventSender::channel(1);
        let mut fetched = FetchesOfCall {
            call: "call_1",
            fetches: Vec::new(),
            events: &events,
        };
        let activities = Activities::default();
        let offered = ToolCatalogue::default();
        let bound = bind(&context, &offered, &Slow, &activities, &mut fetched.fetches);
        let bound = tokio::time::timeout(Duration::from_millis(20), bound);
        assert!(bound.await.is_err());
        drop(fetched);
        let EventKind::RequestFetched(fetch) = told.try_recv().unwrap().kind else {
            panic!("it is another event");
        };
        assert_eq!(fetch.address, address);
        assert_eq!(fetch.call.as_deref(), Some("call_1"));
        assert!(told.try_recv().is_err(), "it is told once");
    }
}
