//! A run in this process: a model that says what a script says, in any contract and in small pieces,
//! and tools that are functions.

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use toolhold_agent::event::{NoJournal, ToolOutcome};
use toolhold_agent::model::{
    ChatRequest, ChatToolCall, Completion, Delta, Model, ModelError, Usage, Watch,
};
use toolhold_agent::run::approval::{Approver, Decision, Pending, Verdict};
use toolhold_agent::run::replay::replay;
use toolhold_agent::{
    Activities, Activity, Contract, Driver, Event, EventKind, Message, Module, RunError,
    RunRequest, StopReason, Tool, ToolCall, ToolFailure, ToolResult, ToolUsage, Toolbox,
};
use uuid::Uuid;

/// Characters of one delta: calls begin and end inside of them.
const PIECE: usize = 7;

/// What the model says, one solution a Request, and what it was asked.
#[derive(Debug)]
pub struct Script {
    contract: Contract,
    replies: Mutex<VecDeque<Value>>,
    requests: Mutex<Vec<Value>>,
}

/// A run that is over.
#[derive(Debug)]
pub struct Told {
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
    let mut request = RunRequest::new("the task");
    let mut context = vec![tools()];
    context.extend(messages.as_array().cloned().unwrap_or_default());
    request
        .context
        .splice(0..0, Message::parse_all(&context.into()).unwrap());
    request.settings.contract = contract;
    request
}

pub fn calls(calls: Value) -> Value {
    json!({"calls": calls, "output": null})
}

pub fn output(output: impl Into<Value>) -> Value {
    json!({"calls": [], "output": output.into()})
}

/// Runs `request` with a model that gives these solutions.
pub async fn run(request: RunRequest, replies: impl IntoIterator<Item = Value>) -> Told {
    run_with(request, replies, Vec::new()).await.unwrap()
}

/// The same; `verdicts` are what a person says to what is asked, in this order.
pub async fn run_with(
    request: RunRequest,
    replies: impl IntoIterator<Item = Value>,
    verdicts: Vec<Verdict>,
) -> Result<Told, RunError> {
    let script = Arc::new(Script {
        contract: request.settings.contract,
        replies: Mutex::new(replies.into_iter().collect()),
        requests: Mutex::default(),
    });
    let made = Arc::new(Mutex::new(Vec::new()));
    let activities = TOOLS.iter().fold(Activities::default(), |all, name| {
        all.with(*name, Function(made.clone()))
    });
    let driver = Driver {
        activities,
        approver: Arc::new(Person(Mutex::new(verdicts.into()))),
        ..Driver::new(script.clone(), Arc::new(NoModules))
    };
    let mut run = driver.start(request, Box::new(NoJournal)).await?;
    let mut events = Vec::new();
    while let Some(event) = run.events.recv().await {
        events.push(event);
    }
    // As a journal keeps them.
    let kept = serde_json::to_string(&events).unwrap();
    let kept: Vec<Event> = serde_json::from_str(&kept).unwrap();
    if let Err(error) = replay(&kept) {
        panic!("the run does not come to the same events again: {error}");
    }
    let left = script.replies.lock().unwrap().len();
    assert_eq!(left, 0, "replies that nobody asked for: {events:#?}");
    Ok(Told {
        events,
        requests: script.requests.lock().unwrap().clone(),
        calls: made.lock().unwrap().clone(),
    })
}

impl Told {
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

    pub fn notices(&self) -> Vec<&str> {
        let notices = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Notice { message, .. } => Some(message.as_str()),
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

impl Model for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn Watch,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            self.requests.lock().unwrap().push(request.body());
            let next = self.replies.lock().unwrap().pop_front();
            let Some(solution) = next else {
                return Err(ModelError::Config {
                    message: "the script is at its end".into(),
                });
            };
            let reply = self.written(&solution);
            for piece in pieces(&reply.content) {
                watch.delta(Delta::Content(piece));
                // Calls may run while the model writes on.
                tokio::task::yield_now().await;
            }
            for (index, call) in reply.tool_calls.iter().enumerate() {
                let mut name = Some(call.name.clone());
                for arguments in pieces(&call.arguments) {
                    watch.delta(Delta::ToolCall {
                        index,
                        id: name.as_ref().map(|_| format!("id{index}")),
                        name: name.take(),
                        arguments,
                    });
                    tokio::task::yield_now().await;
                }
            }
            Ok(reply)
        })
    }
}

impl Script {
    /// A solution as a model writes it under the contract.
    fn written(&self, solution: &Value) -> Completion {
        let Value::Object(solution) = solution else {
            return Completion {
                content: solution.as_str().unwrap_or_default().to_owned(),
                ..Completion::default()
            };
        };
        let mut reply = Completion {
            usage: Some(Usage {
                prompt_tokens: 10,
                completion_tokens: 10,
                ..Usage::default()
            }),
            ..Completion::default()
        };
        match self.contract {
            Contract::Schema => reply.content = Value::Object(solution.clone()).to_string(),
            Contract::Tools => {
                for (member, value) in solution {
                    match (member.as_str(), value) {
                        ("calls", Value::Array(calls)) => {
                            reply.tool_calls.extend(calls.iter().map(|call| {
                                let mut call = call.as_object().unwrap().clone();
                                let tool = call.shift_remove("_tool").unwrap();
                                function(&tool.as_str().unwrap().replace('.', "-"), call)
                            }));
                        }
                        ("output", Value::String(text)) => reply.content.clone_from(text),
                        ("output", Value::Null) => {}
                        ("output", value) => {
                            reply.tool_calls.push(member_of("finish", "output", value));
                        }
                        (name, value) => reply.tool_calls.push(member_of(name, name, value)),
                    }
                }
            }
            Contract::Simple => {
                let mut object = Map::new();
                for (member, value) in solution {
                    match (member.as_str(), value) {
                        ("calls", Value::Array(calls)) => {
                            assert!(calls.len() < 2, "one call a reply");
                            for call in calls {
                                let mut call = call.as_object().unwrap().clone();
                                let tool = call.shift_remove("_tool").unwrap();
                                object.insert("tool_name".into(), tool);
                                object.insert("arguments".into(), call.into());
                            }
                        }
                        ("output", Value::Null) => {}
                        ("output", value) => {
                            object.insert("final_answer".into(), value.clone());
                        }
                        (name, value) => {
                            object.insert(name.into(), value.clone());
                        }
                    }
                }
                reply.content = Value::Object(object).to_string();
            }
        }
        reply
    }
}

fn member_of(function_name: &str, member: &str, value: &Value) -> ChatToolCall {
    let arguments = Map::from_iter([(member.to_owned(), value.clone())]);
    function(function_name, arguments)
}

fn function(name: &str, arguments: Map<String, Value>) -> ChatToolCall {
    ChatToolCall {
        id: String::new(),
        name: name.to_owned(),
        arguments: Value::Object(arguments).to_string(),
    }
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(PIECE)
        .map(|chunk| chunk.iter().collect())
        .collect()
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
        }))
    }
}

#[derive(Debug)]
struct NoModules;

impl Toolbox for NoModules {
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Module, String>> {
        Box::pin(async move { Err(format!("there is no module {name}")) })
    }

    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        unreachable!("no module is ever found")
    }
}

/// Says what the test says. To a question too many it says nothing.
#[derive(Debug)]
struct Person(Mutex<VecDeque<Verdict>>);

impl Approver for Person {
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
