//! A run of solutions over four tools that are always there, and what came of it.

use super::{Reply, Script, driver, holds, rest};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use toolhold_agent::run::decider::Decider;
use toolhold_agent::{Activities, Activity, Driver, ToolCall};
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::event::{NoJournal, ToolOutcome};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::{ToolResult, ToolUsage};
use toolhold_protocol::settings::RunRequest;
use uuid::Uuid;

/// A run that is over.
#[derive(Debug)]
pub struct FinishedRun {
    pub events: Vec<Event>,
    /// The bodies of the Requests, those of sub-agents included.
    pub requests: Vec<Value>,
    /// The calls that tools were given, in the order in which they began.
    pub calls: Vec<ToolCall>,
}

/// The tools of these tests: `math.add` (a, b), `text.up` (text), `echo.say` (value, anything) and
/// `fail.now`.
pub const TOOLS: [&str; 4] = ["math.add", "text.up", "echo.say", "fail.now"];

/// Tool messages for all [`TOOLS`], and for `think`, which is latent.
pub fn tools() -> Value {
    let tool = |properties: Value, required: &[&str]| {
        json!({"type": "object", "description": "A tool.", "properties": properties, "required": required,
            "additionalProperties": false})
    };
    json!({"type": "tool", "tool": {
        "math.add": tool(json!({"a": {"type": "integer"}, "b": {"type": "integer"}}), &["a", "b"]),
        "text.up": tool(json!({"text": {"type": "string"}}), &["text"]),
        "echo.say": tool(json!({"value": {}, "_scopes": {"type": "array", "items": {"enum": ["input", "state"]}}}), &["value"]),
        "fail.now": tool(json!({}), &[]),
        "think": {"type": "object", "description": "Thinks.", "properties": {"about": {}, "_output": {"type": "integer"}}},
    }})
}

/// A request with [`tools`], these messages, and a task.
pub fn request(contract: Contract, messages: Value) -> RunRequest {
    let mut request = RunRequest::new(Uuid::now_v7(), "the task");
    let mut context = vec![tools()];
    context.extend(messages.as_array().cloned().unwrap_or_default());
    request
        .context
        .splice(0..0, Message::parse_all(&context.into()).unwrap());
    request.settings.contract = contract;
    request
}

/// Runs `request` with a model that gives these solutions.
pub async fn run(request: RunRequest, replies: impl IntoIterator<Item = Value>) -> FinishedRun {
    run_with(request, replies, Vec::new()).await.unwrap()
}

/// The same; `verdicts` are what a person says to what is asked, in this order.
pub async fn run_with(
    request: RunRequest,
    replies: impl IntoIterator<Item = Value>,
    verdicts: Vec<Verdict>,
) -> Result<FinishedRun, RunError> {
    let contract = request.settings.contract;
    let replies = replies.into_iter();
    let script = Script::new(replies.map(|solution| {
        let calls = solution["calls"].as_array().map_or(0, Vec::len);
        assert!(
            contract != Contract::Simple || calls < 2,
            "one call a reply"
        );
        let reply = Reply::of(contract, &solution);
        if solution.is_object() {
            reply.counted(10, 10)
        } else {
            reply
        }
    }));
    let made = Arc::new(Mutex::new(Vec::new()));
    let activities = TOOLS.iter().fold(Activities::default(), |all, name| {
        all.with(*name, Function(made.clone()))
    });
    let driver = Driver {
        decider: Arc::new(Person(Mutex::new(verdicts.into()))),
        ..driver(&script, activities)
    };
    let run = Box::pin(driver.start(request, Box::new(NoJournal))).await?;
    let events = rest(run).await;
    holds(&events);
    let left = script.left();
    assert_eq!(left, 0, "unused replies: {events:#?}");
    Ok(FinishedRun {
        events,
        requests: script.bodies(),
        calls: made.lock().unwrap().clone(),
    })
}

impl FinishedRun {
    pub fn done(&self) -> (StopReason, Value) {
        let Some(EventKind::Done { reason, output, .. }) = self.events.last().map(|e| &e.kind)
        else {
            panic!("the run did not end: {:#?}", self.events);
        };
        (*reason, output.clone())
    }

    /// What ended a run that has no output.
    pub fn failure(&self) -> String {
        match self.events.last().map(|event| &event.kind) {
            Some(EventKind::Done {
                error: Some(error), ..
            }) => error.message.clone(),
            _ => String::new(),
        }
    }

    /// All text of the messages of the `n`th Request.
    pub fn asked(&self, n: usize) -> String {
        let messages = self.requests[n]["messages"].as_array().unwrap();
        let texts: Vec<String> = messages
            .iter()
            .map(|message| match &message["content"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            })
            .collect();
        texts.join("\n")
    }

    /// The schema, or the functions, of the `n`th Request.
    pub fn schema(&self, n: usize) -> &Value {
        let schema = self.requests[n].pointer("/response_format/json_schema/schema");
        schema.unwrap_or(&self.requests[n]["tools"])
    }

    /// What a call came to: tool, instance and the value, or the kind of failure.
    pub fn results(&self) -> Vec<(String, Result<Value, String>)> {
        let results = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::ToolResult { tool, outcome, .. } => Some((
                tool.clone(),
                match outcome {
                    ToolOutcome::Output(value) => Ok(value.clone()),
                    ToolOutcome::Error(failure) => Err(failure.kind.clone()),
                },
            )),
            _ => None,
        });
        results.collect()
    }

    pub fn notices(&self) -> Vec<String> {
        let notices = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Notice { message, .. } => Some(message.clone()),
            EventKind::UnusableReply(reply) => Some(reply.to_string()),
            _ => None,
        });
        notices.collect()
    }

    /// The arguments that tools were given.
    pub fn arguments(&self) -> Vec<Value> {
        self.calls
            .iter()
            .map(|call| call.arguments.clone())
            .collect()
    }

    /// The place of the first event of this kind.
    pub fn at(&self, kind: &str) -> Option<usize> {
        self.events
            .iter()
            .position(|event| serde_json::to_value(event).unwrap()["event"] == kind)
    }
}

/// What [`TOOLS`] do.
struct Function(Arc<Mutex<Vec<ToolCall>>>);

impl Activity for Function {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        self.0.lock().unwrap().push(call.clone());
        let arguments = &call.arguments;
        let outcome = match call.tool.as_str() {
            "math.add" => {
                let number = |key: &str| arguments[key].as_i64().unwrap();
                Ok(json!(number("a") + number("b")).into())
            }
            "text.up" => Ok(json!(arguments["text"].as_str().unwrap().to_uppercase()).into()),
            "echo.say" => Ok(arguments["value"].clone().into()),
            _ => Err(ToolFailure::correctable("broken", "it broke on purpose")),
        };
        Box::pin(std::future::ready(ToolResult {
            outcome,
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: None,
            cached: None,
        }))
    }
}

/// Says what the test says. To a question too many it says nothing.
#[derive(Debug)]
struct Person(Mutex<VecDeque<Verdict>>);

impl Decider for Person {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        let next = self.0.lock().unwrap().pop_front();
        Box::pin(async move {
            match next {
                Some(verdict) => Decision {
                    digest: pending.digest.clone(),
                    verdict,
                    by: None,
                },
                None => std::future::pending().await,
            }
        })
    }
}
