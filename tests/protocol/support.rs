//! A model that says what a test wants, piece by piece, tools that are functions, and a way to run
//! both that holds every run to its record.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use toolhold_agent::event::NoJournal;
use toolhold_agent::model::{
    ChatRequest, ChatToolCall, Completion, ContextOverflow, Delta, ErrorDetail, Model, ModelError,
    Usage, Watch,
};
use toolhold_agent::run::replay::replay;
use toolhold_agent::{
    Activities, Contract, Driver, Event, EventKind, Message, Module, Run, RunRequest, Tool,
    ToolCall, ToolFailure, ToolResult, Toolbox,
};

/// The most that anything here may take; a run that hangs fails its test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something that a test waits for.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<Notify>);

impl Gate {
    pub fn open(&self) {
        self.0.notify_one();
    }

    pub async fn wait(&self) {
        let opened = tokio::time::timeout(PATIENCE, self.0.notified()).await;
        assert!(opened.is_ok(), "nothing opened the gate");
    }
}

#[derive(Debug, Clone)]
enum Beat {
    Says(Delta),
    Waits(Gate),
    Breaks,
    /// The Request is too long, by the endpoint's count, for its window.
    Overflows(u64, u64),
    /// Until the run drops it.
    Forever,
}

/// One reply of the model.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    beats: Vec<Beat>,
    tokens: Option<(u64, u64)>,
}

impl Reply {
    /// What a contract makes of a solution, in pieces of a few characters.
    pub fn of(contract: Contract, solution: &Value) -> Self {
        let calls = solution["calls"].as_array().cloned().unwrap_or_default();
        let deltas = match contract {
            Contract::Schema => said(&solution.to_string()),
            Contract::Tools => {
                let mut deltas: Vec<Delta> = calls
                    .iter()
                    .enumerate()
                    .flat_map(|(n, call)| called(n, call))
                    .collect();
                if let Some(text) = solution["output"].as_str() {
                    deltas.extend(said(text));
                }
                deltas
            }
            Contract::Simple => match calls.first() {
                Some(call) => {
                    let (tool, arguments) = split(call);
                    said(&json!({"tool_name": tool, "arguments": arguments}).to_string())
                }
                None => said(&json!({"final_answer": solution["output"]}).to_string()),
            },
        };
        Self::saying(deltas)
    }

    /// A solution under the `schema` contract.
    pub fn solution(solution: &Value) -> Self {
        Self::of(Contract::Schema, solution)
    }

    pub fn calls(calls: &[Value]) -> Self {
        Self::solution(&json!({"calls": calls, "output": null}))
    }

    pub fn output(output: impl Into<Value>) -> Self {
        Self::solution(&json!({"calls": [], "output": output.into()}))
    }

    pub fn text(text: &str) -> Self {
        Self::saying(said(text))
    }

    /// A native call of a function with this text as its arguments.
    pub fn function(name: &str, arguments: &str) -> Self {
        Self::saying(vec![Delta::ToolCall {
            index: 0,
            id: Some("native".into()),
            name: Some(name.into()),
            arguments: arguments.into(),
        }])
    }

    fn saying(deltas: Vec<Delta>) -> Self {
        Self {
            beats: deltas.into_iter().map(Beat::Says).collect(),
            tokens: None,
        }
    }

    /// Holds the last piece back until the gate opens.
    pub fn ending_after(mut self, gate: &Gate) -> Self {
        let last = self.beats.len().saturating_sub(1);
        self.beats.insert(last, Beat::Waits(gate.clone()));
        self
    }

    /// With this as what the endpoint kept apart as reasoning, before all else.
    pub fn after_reasoning(mut self, text: &str) -> Self {
        let reasoning = Delta::Reasoning(text.to_owned());
        self.beats.insert(0, Beat::Says(reasoning));
        self
    }

    pub fn then(mut self, text: &str) -> Self {
        self.beats.extend(said(text).into_iter().map(Beat::Says));
        self
    }

    /// Breaks off in the middle, after so many of its pieces.
    pub fn breaking_after(mut self, pieces: usize) -> Self {
        self.beats.truncate(pieces);
        self.beats.push(Beat::Breaks);
        self
    }

    /// Refused: the prompt has so many tokens, and so many fit.
    pub fn overflowing(prompt: u64, window: u64) -> Self {
        Self {
            beats: vec![Beat::Overflows(prompt, window)],
            tokens: None,
        }
    }

    pub fn never_ending(mut self) -> Self {
        self.beats.push(Beat::Forever);
        self
    }

    pub fn counted(mut self, prompt: u64, completion: u64) -> Self {
        self.tokens = Some((prompt, completion));
        self
    }

    pub fn len(&self) -> usize {
        self.beats.len()
    }
}

fn said(text: &str) -> Vec<Delta> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(5)
        .map(|piece| Delta::Content(piece.iter().collect()))
        .collect()
}

fn split(call: &Value) -> (Value, Value) {
    let mut arguments = call.clone();
    let tool = arguments
        .as_object_mut()
        .and_then(|call| call.shift_remove("_tool"));
    (tool.unwrap_or_default(), arguments)
}

fn called(index: usize, call: &Value) -> Vec<Delta> {
    let (tool, arguments) = split(call);
    let begin = Delta::ToolCall {
        index,
        id: Some(format!("native_{index}")),
        name: tool.as_str().map(str::to_owned),
        arguments: String::new(),
    };
    let pieces = said(&arguments.to_string()).into_iter().map(|piece| {
        let Delta::Content(arguments) = piece else {
            unreachable!("content is what was said");
        };
        Delta::ToolCall {
            index,
            id: None,
            name: None,
            arguments,
        }
    });
    std::iter::once(begin).chain(pieces).collect()
}

/// Says its replies one after the other, and keeps what it was asked.
#[derive(Debug, Default)]
pub struct Script {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<ChatRequest>>,
}

impl Script {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(replies.into_iter().collect()),
            requests: Mutex::default(),
        })
    }

    pub fn asked(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// What it was sent.
    pub fn bodies(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(ChatRequest::body).collect()
    }

    /// All that the `n`th request says, as JSON text.
    pub fn told(&self, n: usize) -> String {
        let requests = self.requests.lock().unwrap();
        requests[n].body()["messages"].to_string()
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
            self.requests.lock().unwrap().push(request.clone());
            let reply = self.replies.lock().unwrap().pop_front();
            let reply = reply.expect("the script has a reply left");
            let mut completion = Completion {
                usage: reply
                    .tokens
                    .map(|(prompt_tokens, completion_tokens)| Usage {
                        prompt_tokens,
                        completion_tokens,
                        ..Usage::default()
                    }),
                ..Completion::default()
            };
            for beat in reply.beats {
                match beat {
                    Beat::Waits(gate) => gate.wait().await,
                    Beat::Forever => std::future::pending().await,
                    Beat::Overflows(prompt, window) => {
                        let overflow = ContextOverflow {
                            prompt_tokens: Some(prompt),
                            window: Some(window),
                        };
                        return Err(ModelError::Status {
                            status: 400,
                            retry_after: None,
                            detail: Box::new(ErrorDetail {
                                overflow: Some(overflow),
                                ..ErrorDetail::default()
                            }),
                        });
                    }
                    Beat::Breaks => {
                        return Err(ModelError::Truncated {
                            received: Box::new(completion),
                            source: None,
                        });
                    }
                    Beat::Says(delta) => {
                        collect(&delta, &mut completion);
                        watch.delta(delta);
                        tokio::task::yield_now().await;
                    }
                }
            }
            Ok(completion)
        })
    }
}

fn collect(delta: &Delta, completion: &mut Completion) {
    match delta {
        Delta::Content(text) => completion.content.push_str(text),
        Delta::Reasoning(text) => completion.reasoning.push_str(text),
        Delta::ToolCall {
            index,
            id,
            name,
            arguments,
        } => {
            if *index == completion.tool_calls.len() {
                completion.tool_calls.push(ChatToolCall {
                    id: id.clone().unwrap_or_default(),
                    name: name.clone().unwrap_or_default(),
                    arguments: String::new(),
                });
            }
            completion.tool_calls[*index].arguments.push_str(arguments);
        }
    }
}

/// No modules: tools are activities here.
#[derive(Debug)]
pub struct NoModules;

impl Toolbox for NoModules {
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Module, String>> {
        Box::pin(async move { Err(format!("there is no module {name:?}")) })
    }

    fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async { ToolResult::failed(ToolFailure::correctable("none", "no modules")) })
    }
}

/// A tool message for activities, each with its annotations. They take anything as `of` and `and`.
pub fn tools(tools: &[(&str, Value)]) -> Message {
    let tools: serde_json::Map<String, Value> = tools
        .iter()
        .map(|(name, annotations)| {
            let schema = json!({
                "type": "object", "description": format!("Does {name}."),
                "properties": {"of": {}, "and": {}, "n": {"type": "integer"}},
                "annotations": annotations,
            });
            ((*name).to_owned(), schema)
        })
        .collect();
    Message::parse_all(&json!([{"type": "tool", "tool": tools}]))
        .expect("a tool message")
        .remove(0)
}

/// Plain tools without annotations.
pub fn plain_tools(names: &[&str]) -> Message {
    let named: Vec<_> = names.iter().map(|name| (*name, json!({}))).collect();
    tools(&named)
}

pub fn request(context: impl IntoIterator<Item = Message>) -> RunRequest {
    let mut request = RunRequest::new("the task");
    request.context.splice(0..0, context);
    request.settings.max_calls = 1_000;
    request
}

pub fn driver(script: &Arc<Script>, activities: Activities) -> Driver {
    Driver {
        activities,
        ..Driver::new(script.clone(), Arc::new(NoModules))
    }
}

/// Runs to the end. Its record, run again, comes to the same.
pub async fn run(driver: &Driver, request: RunRequest) -> Vec<Event> {
    watched(driver, request, |_| ()).await
}

/// As [`run`], telling of every event when it happens.
pub async fn watched(
    driver: &Driver,
    request: RunRequest,
    on_event: impl FnMut(&Event),
) -> Vec<Event> {
    let run = driver
        .start(request, Box::new(NoJournal))
        .await
        .expect("a run");
    let events = watch(run, on_event).await;
    holds(&events);
    events
}

/// The events of a run until it ends.
pub async fn rest(run: Run) -> Vec<Event> {
    watch(run, |_| ()).await
}

pub async fn watch(mut run: Run, mut on_event: impl FnMut(&Event)) -> Vec<Event> {
    let all = async {
        let mut events = Vec::new();
        while let Some(event) = run.events.recv().await {
            on_event(&event);
            events.push(event);
        }
        run.finished().await.expect("a journal");
        events
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("the run ends")
}

/// A record that is over comes to the same again.
pub fn holds(events: &[Event]) {
    let replayed = replay(events).unwrap_or_else(|error| panic!("{error}\n{}", lines(events)));
    assert!(
        replayed.is_done && replayed.unsaid.is_empty(),
        "{:?}",
        replayed.unsaid
    );
}

pub fn lines(events: &[Event]) -> String {
    let lines: Vec<_> = events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect();
    lines.join("\n")
}

/// Events as JSON, and where each is.
pub fn json_of(event: &Event) -> Value {
    serde_json::to_value(event).expect("JSON")
}

/// The place of the first event of which this is true.
pub fn place(events: &[Event], is_it: impl Fn(&EventKind) -> bool) -> usize {
    events
        .iter()
        .position(|event| is_it(&event.kind))
        .unwrap_or_else(|| panic!("no such event:\n{}", lines(events)))
}

pub fn starts(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolStart { call, .. } => Some(call.tool.clone()),
            _ => None,
        })
        .collect()
}

/// The results: tool and output, or tool and the failure's kind, class and message.
pub fn results(events: &[Event]) -> Vec<(String, Value)> {
    events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::ToolResult { tool, outcome, .. } => {
                Some((tool.clone(), serde_json::to_value(outcome).expect("JSON")))
            }
            _ => None,
        })
        .collect()
}

/// Reason and output of the end.
pub fn end(events: &[Event]) -> (String, Value) {
    let last = json_of(events.last().expect("events"));
    assert_eq!(last["event"], "done", "`done` is last: {last}");
    (
        last["reason"].as_str().unwrap_or_default().to_owned(),
        last["output"].clone(),
    )
}

/// An activity that returns its argument `of`, and counts.
#[derive(Debug, Clone, Default)]
pub struct Echo {
    pub made: Arc<Mutex<Vec<Value>>>,
    running: Arc<Mutex<(usize, usize)>>,
    pub takes: Duration,
}

impl Echo {
    pub fn taking(millis: u64) -> Self {
        Self {
            takes: Duration::from_millis(millis),
            ..Self::default()
        }
    }

    pub fn activity(
        &self,
    ) -> impl Fn(Value) -> BoxFuture<'static, Result<Value, ToolFailure>> + use<> {
        let echo = self.clone();
        move |arguments| {
            let echo = echo.clone();
            Box::pin(async move {
                {
                    let mut running = echo.running.lock().unwrap();
                    running.0 += 1;
                    running.1 = running.1.max(running.0);
                }
                tokio::time::sleep(echo.takes).await;
                echo.made.lock().unwrap().push(arguments.clone());
                echo.running.lock().unwrap().0 -= 1;
                Ok(arguments["of"].clone())
            })
        }
    }

    /// The most that ran at the same time.
    pub fn most(&self) -> usize {
        self.running.lock().unwrap().1
    }

    pub fn count(&self) -> usize {
        self.made.lock().unwrap().len()
    }
}
