//! A run over a context, with a few tools and modules; in the end its context is saved and loaded again.

use super::events::kept;
use super::{Reply, Script, rest};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::run::Driver;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Activity, ResolvedModule, ToolCall, ToolRunner, ToolSource};
use toolhold_protocol::context::Context;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::event::{NoJournal, ToolOutcome};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::request_fetch::RequestFetch;
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::{RunRequest, Settings};
use toolhold_protocol::tool::Tool;
use toolhold_protocol::tool::{Annotations, Execution};

/// What a run is made of.
pub struct Play {
    pub request: RunRequest,
    /// Solutions, which the contract gives their form; a text is said as it is.
    pub replies: Vec<Value>,
    pub offered: Vec<Tool>,
}

/// What came of it.
#[derive(Debug)]
pub struct PlayedRun {
    pub events: Vec<Event>,
    /// The bodies that the model was sent.
    pub requests: Vec<Value>,
    /// At the end of the run.
    pub context: Context,
}

/// A call's result or the reason why there is none.
pub type ScriptedResult = Result<Value, ToolFailure>;

impl Play {
    /// `context` is a list of messages.
    pub fn new(context: &Value, replies: impl IntoIterator<Item = Value>) -> Self {
        let context = Message::parse_all(context).unwrap();
        Self {
            request: RunRequest {
                context,
                ..RunRequest::new(uuid::Uuid::now_v7(), "")
            },
            replies: replies.into_iter().collect(),
            offered: Vec::new(),
        }
    }

    pub fn settings(mut self, settings: impl FnOnce(&mut Settings)) -> Self {
        settings(&mut self.request.settings);
        self
    }

    pub fn offering(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.offered.extend(tools);
        self
    }

    pub fn run(self) -> Result<PlayedRun, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(self.play())
    }

    async fn play(mut self) -> Result<PlayedRun, RunError> {
        // There is no person here, and what the model says first makes prose of a reply.
        self.request.settings.decisions.calls_in_prose = true;
        let contract = self.request.settings.contract;
        let script = Script::new(self.replies.iter().map(|solution| {
            match (contract, Reply::of(contract, solution)) {
                // A model that answers in plain text likes to say something first.
                (Contract::Simple, reply) if solution.is_object() => reply.after("Let me see: "),
                (_, reply) => reply,
            }
        }));
        let driver = Driver {
            activities: activities(),
            ..Driver::new(script.clone(), Arc::new(Shelf(self.offered)))
        };
        let run = driver.start(self.request, Box::new(NoJournal)).await?;
        let events = kept(&rest(run).await);
        let replayed = replay(&events).unwrap();
        assert!(replayed.is_done);
        let data = &replayed.machine.context().data;
        let saved = json!(replayed.machine.context().saved());
        let context = Context::new(Message::parse_all(&saved).unwrap()).unwrap();
        assert_eq!(context.data, *data, "{saved}");
        assert_eq!(script.left(), 0, "replies are left");
        Ok(PlayedRun {
            events,
            requests: script.bodies(),
            context,
        })
    }
}

impl PlayedRun {
    pub fn stop(&self) -> (StopReason, Value) {
        let last = self.events.last().map(|event| &event.kind);
        let Some(EventKind::Done { reason, output, .. }) = last else {
            panic!("{last:?}");
        };
        (*reason, output.clone())
    }

    /// The outcome of every call in the order of the model's calls.
    pub fn outcomes(&self) -> Vec<(String, ScriptedResult)> {
        let mut outcomes = Vec::new();
        for event in &self.events {
            if let EventKind::Plan { calls, .. } = &event.kind {
                outcomes.extend(
                    calls
                        .iter()
                        .map(|call| (call.tool.clone(), self.outcome(&call.id))),
                );
            }
        }
        outcomes
    }

    fn outcome(&self, call: &str) -> ScriptedResult {
        let found = self.events.iter().find_map(|event| match &event.kind {
            EventKind::ToolResult { id, outcome, .. } if id == call => Some(outcome.clone()),
            _ => None,
        });
        match found {
            Some(ToolOutcome::Output(value)) => Ok(value),
            Some(ToolOutcome::Error(failure)) => Err(failure),
            None => panic!("{call} has no result"),
        }
    }

    pub fn notices(&self) -> Vec<String> {
        let notices = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Notice { message, .. } => Some(message.clone()),
            EventKind::UnusableReply(reply) => Some(reply.to_string()),
            _ => None,
        });
        notices.collect()
    }

    /// What stands at a path; null if nothing does.
    pub fn data(&self, path: &str, instance: Option<&str>) -> Value {
        let path = path.parse().unwrap();
        let read = self.context.data.read(&path, instance);
        read.map_or(Value::Null, std::borrow::Cow::into_owned)
    }

    /// All text of the messages of one request.
    pub fn told(&self, request: usize) -> String {
        let messages = self.requests[request]["messages"].as_array().unwrap();
        let texts = messages
            .iter()
            .filter_map(|message| message["content"].as_str());
        texts.collect::<Vec<_>>().join("\n\n")
    }
}

/// A tool message, and the text that every context here ends with.
pub fn tool(name: &str, properties: &Value) -> Value {
    json!({"type": "tool", "tool": {name: {"type": "object", "properties": properties}}})
}

pub fn task() -> Value {
    json!({"role": "user", "content": "Do it."})
}

/// The modules: `echo` returns its arguments, `claims` says that it writes, and `ask` is a saved
/// Request.
#[derive(Debug)]
struct Shelf(Vec<Tool>);

/// The only tool of the module `echo`.
pub fn echo() -> Tool {
    Tool {
        description: "Says it again.".into(),
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}),
        output: Some(json!({"type": "object", "required": ["text"]})),
        execution: Execution::Module("echo.say".into()),
        annotations: Annotations {
            destructive: true,
            ..Annotations::default()
        },
        ..Tool::new("echo.say")
    }
}

impl ToolSource for Shelf {
    fn tools(&self) -> Vec<Arc<Tool>> {
        self.0.iter().cloned().map(Arc::new).collect()
    }

    fn take_fetch(&self, _: &str) -> Option<RequestFetch> {
        None
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        Box::pin(async move {
            match name {
                "echo" => Ok(ResolvedModule::Tool(Box::new(echo()))),
                "ask" => {
                    let saved = json!({"context": [
                        {"type": "input", "schema": {"type": "object", "properties": {"q": {"type": "string"}}}},
                    ]});
                    Ok(ResolvedModule::Request(Box::new(
                        SavedRequest::parse(&saved).unwrap(),
                    )))
                }
                other => Err(format!("there is no module {other:?}; there are echo, ask")),
            }
        })
    }
}

impl ToolRunner for Shelf {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move { result(Ok(call.arguments.clone().into())) })
    }
}

/// `echo` returns its arguments, `fail` fails, `pick` returns 1 and picks the place that it is given,
/// `seen` returns the context that it is given.
fn activities() -> Activities {
    Activities::default()
        .with("echo", |arguments| async move { Ok(arguments) })
        .with("fail", |_| async {
            Err(ToolFailure::correctable("luck", "no luck"))
        })
        .with("pick", Pick)
        .with("seen", Seen)
}

struct Pick;

impl Activity for Pick {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let output_path = call.arguments["to"].as_str().map(|to| format!("†{to}"));
        let value = json!(1);
        // A message that has a name and no place.
        let name = call.arguments["name"]
            .as_str()
            .map(|name| format!("†{name}"));
        let output = ToolOutput {
            value,
            is_named: name.is_some(),
            output_path: name.or(output_path),
            job: None,
        };
        Box::pin(async move { result(Ok(output)) })
    }
}

struct Seen;

impl Activity for Seen {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        let context = call.context.iter();
        let seen: serde_json::Map<String, Value> = context
            .map(|(path, value)| (path.to_string(), value.clone()))
            .collect();
        Box::pin(async move { result(Ok(Value::from(seen).into())) })
    }
}

fn result(outcome: Result<ToolOutput, ToolFailure>) -> ToolResult {
    ToolResult {
        outcome,
        usage: ToolUsage::default(),
        printed: Vec::new(),
        module: None,
        cached: None,
    }
}
