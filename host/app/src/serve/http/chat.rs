//! `POST /v1/chat/completions`: an agent as a model, for clients that know OpenAI's API.
//!
//! The agent's own tools are called here, and the client sees the answer. Tools that the client brings are
//! the client's to call: the turn ends with them, as it does at OpenAI's, and the next request brings
//! their results.

use crate::serve::answer::{Answer, Usage};
use crate::serve::http::App;
use crate::serve::http::agent::limit;
use crate::serve::http::auth::Client;
use crate::serve::http::body::Body;
use crate::serve::http::error::{ApiError, ErrorBody};
use crate::serve::http::events;
use crate::serve::http::messages::{ChatMessage, conversation};
use crate::serve::spoken::{Rest, Spoken};
use crate::serve::{Dispatcher, Watcher};
use crate::storage::Scope;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};
use toolhold_agent::model::Delta;
use toolhold_agent::{Event, EventKind, Message, RunRequest, StopReason};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(complete))
}

/// As OpenAI's API has it. Fields that are not listed are accepted and have no effect.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
struct ChatRequest {
    /// The agent's name.
    model: String,
    messages: Vec<ChatMessage>,
    stream: bool,
    stream_options: StreamOptions,
    /// The client's own tools.
    tools: Vec<ClientTool>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    temperature: Option<f32>,
    seed: Option<u64>,
    /// {"type": "json_schema", "json_schema": {"schema": …}}
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    n: Option<u32>,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct ClientTool {
    function: FunctionDefinition,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct FunctionDefinition {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    parameters: Value,
}

/// As OpenAI's API has it, with `toolhold` beside.
#[derive(Debug, Serialize, ToSchema)]
struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    usage: Usage,
    toolhold: Extra,
}

#[derive(Debug, Serialize, ToSchema)]
struct Choice {
    index: u32,
    message: AssistantMessage,
    /// `stop`, `length`, `tool_calls` or `content_filter`.
    finish_reason: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct AssistantMessage {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    tool_calls: Vec<Value>,
}

/// What OpenAI's API has no place for.
#[derive(Debug, Serialize, ToSchema)]
struct Extra {
    /// `/v1/runs/{run}` has the way to the answer.
    run: String,
    /// Why the run ended.
    #[schema(value_type = Option<String>)]
    reason: Option<StopReason>,
}

/// Asks an agent as one asks a model.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "agents", security(("key" = [])),
    request_body = ChatRequest,
    responses(
        (status = 200, body = ChatCompletion),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn complete(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    Body { said: asked, raw }: Body<ChatRequest>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    let mut prepared = app.prepared(&client, &asked.model, None)?;
    asked.put(&mut prepared.request)?;
    let names: BTreeSet<String> = asked
        .tools
        .iter()
        .map(|it| it.function.name.clone())
        .collect();
    prepared.behalf.elsewhere.clone_from(&names);
    let speaks = prepared.agent.speaks();
    let contract = prepared.request.settings.contract;
    let watcher = app.begin(&headers, &raw, prepared, None).await?;
    let reply = Reply {
        run: watcher.run.to_string(),
        model: asked.model,
        created: now(),
    };
    let mut turn = Turn::new(watcher, app.dispatcher.clone(), names);
    if asked.stream {
        let spoken = speaks.then(|| Spoken::new(contract));
        let stream = Chunks::new(turn, reply, spoken, asked.stream_options.include_usage);
        return Ok(stream.respond());
    }
    while turn.next().await?.is_some() {}
    let finish = turn.finish()?;
    let content = Some(turn.content()).filter(|text| !text.is_empty() || turn.calls.is_empty());
    Ok(Json(ChatCompletion {
        id: reply.id(),
        object: "chat.completion",
        created: reply.created,
        model: reply.model,
        choices: vec![Choice {
            index: 0,
            message: AssistantMessage {
                role: "assistant",
                content,
                tool_calls: std::mem::take(&mut turn.calls),
            },
            finish_reason: finish,
        }],
        usage: turn.answer.usage,
        toolhold: Extra {
            run: reply.run,
            reason: turn.answer.reason,
        },
    })
    .into_response())
}

impl ChatRequest {
    fn put(&self, request: &mut RunRequest) -> Result<(), ApiError> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::invalid("n: an agent gives one answer"));
        }
        let said = conversation(&self.messages)?;
        if let Some(instructions) = said.instructions {
            request.instructions = instructions;
        }
        request.context = said.context;
        if !self.tools.is_empty() {
            let mut tools = Map::new();
            for ClientTool { function } in &self.tools {
                tools.insert(function.name.clone(), function.schema());
            }
            let message = json!([{"type": "tool", "tool": tools}]);
            let message = Message::parse_all(&message)
                .map_err(|error| ApiError::invalid(format!("tools: {error}")))?;
            request.context.splice(0..0, message);
        }
        if let Some(schema) = self.output_schema()? {
            request.output_schema = Some(schema);
        }
        let settings = &mut request.settings;
        settings.temperature = self.temperature.or(settings.temperature);
        settings.seed = self.seed.or(settings.seed);
        let most = self.max_completion_tokens.or(self.max_tokens);
        limit(&mut settings.max_tokens, "max_tokens", most)
    }

    fn output_schema(&self) -> Result<Option<Value>, ApiError> {
        let Some(format) = &self.response_format else {
            return Ok(None);
        };
        match format["type"].as_str() {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(json!({"type": "object"}))),
            Some("json_schema") if format["json_schema"]["schema"].is_object() => {
                Ok(Some(format["json_schema"]["schema"].clone()))
            }
            _ => Err(ApiError::invalid(
                "response_format: expected text, json_object, or json_schema with json_schema.schema",
            )),
        }
    }
}

impl FunctionDefinition {
    /// As a tool message has it. Whatever the client's schema says of reserved names is not ours to obey.
    fn schema(&self) -> Value {
        let mut schema = match &self.parameters {
            Value::Object(schema) => schema.clone(),
            _ => Map::new(),
        };
        let mut properties = match schema.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        properties.retain(|name, _| !name.starts_with('_'));
        properties.insert("_activity".into(), json!({"const": self.name}));
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        if !self.description.is_empty() {
            schema.insert("description".into(), self.description.clone().into());
        }
        schema.into()
    }
}

/// One run, up to its end or to a step with calls of the client's tools.
struct Turn {
    watcher: Watcher,
    dispatcher: Dispatcher,
    /// The client's tools.
    names: BTreeSet<String>,
    answer: Answer,
    /// Of the client's tools, in the form of OpenAI's API.
    calls: Vec<Value>,
    /// Calls that are neither the client's to make nor over, once the step's reply is complete.
    open: Option<BTreeSet<String>>,
    settled: BTreeSet<String>,
    is_over: bool,
}

impl Drop for Turn {
    /// Nobody is left to make the client's calls.
    fn drop(&mut self) {
        if !self.names.is_empty() && !self.is_over {
            self.dispatcher.cancel(self.watcher.run);
        }
    }
}

impl Turn {
    fn new(watcher: Watcher, dispatcher: Dispatcher, names: BTreeSet<String>) -> Self {
        Self {
            answer: Answer::of(watcher.run),
            watcher,
            dispatcher,
            names,
            calls: Vec::new(),
            open: None,
            settled: BTreeSet::new(),
            is_over: false,
        }
    }

    /// The next event of the run; none when the turn is over.
    async fn next(&mut self) -> Result<Option<std::sync::Arc<Event>>, ApiError> {
        if self.is_over {
            return Ok(None);
        }
        let Some(event) = self.watcher.next().await? else {
            self.is_over = true;
            return Ok(None);
        };
        self.answer.take(&event);
        match &event.kind {
            EventKind::Request { .. } => {
                self.open = None;
                self.settled.clear();
            }
            EventKind::Plan { calls, .. } => {
                self.open = Some(calls.iter().map(|call| call.id.clone()).collect());
            }
            EventKind::ToolStart { call, filled, .. } if self.names.contains(&call.tool) => {
                let arguments = filled.as_ref().unwrap_or(&call.arguments);
                self.calls.push(json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": arguments.to_string()},
                }));
                self.settled.insert(call.id.clone());
            }
            EventKind::ToolResult { id, .. } => {
                self.settled.insert(id.clone());
            }
            _ => {}
        }
        let waits = self
            .open
            .as_ref()
            .is_none_or(|open| !open.is_subset(&self.settled));
        if !self.calls.is_empty() && !waits {
            // The client goes on with it, in a run of its own.
            self.dispatcher.cancel(self.watcher.run);
            self.is_over = true;
        }
        Ok(Some(event))
    }

    fn finish(&self) -> Result<&'static str, ApiError> {
        if !self.calls.is_empty() {
            return Ok("tool_calls");
        }
        let failed = || {
            let why = self.answer.error.as_deref().unwrap_or("it gave no reason");
            format!("run {}: {why}", self.answer.id)
        };
        match self.answer.reason {
            Some(StopReason::Output | StopReason::Planned | StopReason::Incomplete) => Ok("stop"),
            Some(StopReason::Blocked) => Ok("content_filter"),
            Some(
                StopReason::MaxSteps
                | StopReason::TokenBudget
                | StopReason::MaxCost
                | StopReason::MaxToolCalls
                | StopReason::Timeout,
            ) => Ok("length"),
            Some(StopReason::Model | StopReason::Unusable) => Err(ApiError::upstream(failed())),
            Some(StopReason::Cancelled) => Err(ApiError::conflict(format!(
                "run {} was cancelled",
                self.answer.id
            ))),
            None => Err(ApiError::unavailable(format!(
                "the server stops; run {} goes on when it is back: GET /v1/runs/{}",
                self.answer.id, self.answer.id
            ))),
        }
    }

    /// The answer; beside calls of the client's tools, what our own said: the client sends it back.
    fn content(&self) -> String {
        if self.calls.is_empty() {
            return self.answer.text();
        }
        let own = self.answer.steps.iter().flat_map(|step| &step.calls);
        let own = own.filter(|call| !self.names.contains(&call.tool));
        let lines = own.map(|call| match &call.error {
            None => format!("{} {} returned {}", call.tool, call.arguments, call.result),
            Some(error) => format!("{} {} failed: {error}", call.tool, call.arguments),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// What is the same in all pieces of one reply.
#[derive(Debug)]
struct Reply {
    run: String,
    model: String,
    created: u64,
}

impl Reply {
    fn id(&self) -> String {
        format!("chatcmpl-{}", self.run)
    }

    fn chunk(&self, delta: Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.id(),
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    }
}

/// A streamed reply.
struct Chunks {
    turn: Turn,
    reply: Reply,
    /// Absent where nothing may be shown before the run is over.
    spoken: Option<Spoken>,
    with_usage: bool,
    ready: VecDeque<Value>,
    is_over: bool,
}

impl Chunks {
    fn new(turn: Turn, reply: Reply, spoken: Option<Spoken>, with_usage: bool) -> Self {
        let first = reply.chunk(json!({"role": "assistant", "content": ""}), None);
        Self {
            turn,
            reply,
            spoken,
            with_usage,
            ready: VecDeque::from([first]),
            is_over: false,
        }
    }

    fn respond(self) -> Response {
        let chunks = stream::unfold(Some(self), async |chunks| {
            let mut chunks = chunks?;
            match chunks.next().await {
                Ok(Some(chunk)) => Some((data(&chunk), Some(chunks))),
                Ok(None) => Some((sse::Event::default().data("[DONE]"), None)),
                // In the form in which SDKs look for it in a stream.
                Err(error) => {
                    let body = serde_json::to_value(error.body()).unwrap_or_default();
                    Some((data(&body), None))
                }
            }
        });
        events::respond(chunks)
    }

    async fn next(&mut self) -> Result<Option<Value>, ApiError> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Some(chunk));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.turn.next().await? {
                Some(event) => self.hear(&event.kind),
                None => self.end()?,
            }
        }
    }

    fn hear(&mut self, event: &EventKind) {
        let Some(spoken) = &mut self.spoken else {
            return;
        };
        match event {
            EventKind::Request { .. } => spoken.restart(),
            EventKind::Delta {
                delta: Delta::Content(text),
                ..
            } => {
                let said = spoken.push(text);
                self.say(&said);
            }
            _ => {}
        }
    }

    fn say(&mut self, text: &str) {
        if !text.is_empty() {
            let chunk = self.reply.chunk(json!({"content": text}), None);
            self.ready.push_back(chunk);
        }
    }

    fn end(&mut self) -> Result<(), ApiError> {
        self.is_over = true;
        let finish = self.turn.finish()?;
        let content = self.turn.content();
        let said = match self.spoken.as_ref().map(|spoken| spoken.rest(&content)) {
            None => content,
            Some(Rest::More(rest)) => rest.to_owned(),
            // What was said was no beginning of the answer: that stands after it.
            Some(Rest::Instead(answer)) => format!("\n\n{answer}"),
        };
        self.say(&said);
        for (index, call) in self.turn.calls.iter().enumerate() {
            let mut call = call.clone();
            call["index"] = index.into();
            let chunk = self.reply.chunk(json!({"tool_calls": [call]}), None);
            self.ready.push_back(chunk);
        }
        let last = self.reply.chunk(json!({}), Some(finish));
        self.ready.push_back(last);
        if self.with_usage {
            let mut chunk = self.reply.chunk(Value::Null, None);
            chunk["choices"] = json!([]);
            chunk["usage"] = json!(self.turn.answer.usage);
            self.ready.push_back(chunk);
        }
        Ok(())
    }
}

fn data(value: &Value) -> sse::Event {
    sse::Event::default().data(value.to_string())
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
