//! `POST /v1/chat/completions`: an agent as a model, for clients that know OpenAI's API.

use crate::answer::Usage;
use crate::answer_stream::{AnswerNews, AnswerRest, AnswerStream};
use crate::http::App;
use crate::http::agent::limit_replies;
use crate::http::argument_pieces::pieces;
use crate::http::auth::Client;
use crate::http::body::{Body, null_as_default};
use crate::http::bounds;
use crate::http::choice::{Choice, FUNCTION_CALL, STOP, finish, stopped};
use crate::http::client_tools::{
    ClientTool, DefinedTools, FunctionDefinition, PlacedTool, output_schema,
};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::events;
use crate::http::messages::{ChatMessage, ClientCall, conversation, with_tool_calls};
use crate::http::refusals::{NO_LOGPROBS, is_asked, refuse};
use crate::http::sampling;
use crate::http::streams::ChatChunk;
use crate::http::tool_choice::ChosenTools;
use crate::http::turn::{LiveTurn, ToolholdFields, began_at};
use crate::http::unsent::Gathering;
use crate::stop_texts::{self, StopTexts};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::mem;
use toolhold_connections::UnsentBytes;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::settings::RunRequest;
use toolhold_storage::Scope;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(complete))
}

/// Request of OpenAI's API. `docs/server.md`, "Parameters", says of each field what it does; fields that are not listed are
/// accepted and have no effect.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
#[schema(example = json!({"model": "default", "messages": [{"role": "user", "content": "What is 2^61 - 1?"}]}))]
struct ChatRequest {
    #[schema(schema_with = bounds::model, required = true)]
    model: String,
    #[schema(schema_with = bounds::messages, required = true)]
    messages: Vec<ChatMessage>,
    #[serde(deserialize_with = "null_as_default")]
    #[schema(value_type = Option<bool>)]
    stream: bool,
    #[serde(deserialize_with = "null_as_default")]
    #[schema(value_type = Option<StreamOptions>)]
    stream_options: StreamOptions,
    /// The client's tools, and names of the agent's, which it has without being told.
    #[serde(deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Vec<ClientTool>>)]
    tools: Vec<ClientTool>,
    #[schema(schema_with = bounds::tool_choice)]
    tool_choice: Value,
    /// `false`: at most one call in a reply.
    parallel_tool_calls: Option<bool>,
    /// An older form of `tools`: the answer has one call, as `function_call`.
    #[serde(deserialize_with = "null_as_default")]
    #[schema(value_type = Option<Vec<FunctionDefinition>>)]
    functions: Vec<FunctionDefinition>,
    /// The `tool_choice` of `functions`.
    #[schema(value_type = Option<Value>)]
    function_call: Value,
    #[schema(schema_with = bounds::stop)]
    stop: Value,
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f64>,
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f64>,
    /// Only `false`.
    #[schema(value_type = Option<bool>)]
    logprobs: Value,
    /// Only 0.
    #[schema(maximum = 0)]
    top_logprobs: Option<u32>,
    /// Only empty.
    #[schema(value_type = Option<Object>)]
    logit_bias: Value,
    /// Only `["text"]`.
    modalities: Option<Vec<String>>,
    /// Only null.
    #[schema(value_type = Option<Object>)]
    audio: Value,
    /// Only null.
    #[schema(value_type = Option<Object>)]
    web_search_options: Value,
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u32>,
    #[schema(minimum = 0, maximum = 2)]
    temperature: Option<f32>,
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f64>,
    seed: Option<i64>,
    /// {"type": "json_schema", "json_schema": {"schema": …}}
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    #[schema(minimum = 1, maximum = 1)]
    n: Option<u32>,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
struct StreamOptions {
    #[serde(deserialize_with = "null_as_default")]
    #[schema(value_type = Option<bool>)]
    include_usage: bool,
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
    toolhold: ToolholdFields,
}

/// Creates a chat completion with an agent as the model.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "agents", security(("key" = [])),
    request_body = ChatRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "The same request under the same key is the same run"),
        ("x-stainless-retry-count" = Option<u32>, Header, description = "Above 0, the request takes up the run of an equal one whose client left"),
    ),
    responses(
        (
            status = 200, description = "The answer; with `stream`, server-sent events",
            content((ChatCompletion = "application/json"), (ChatChunk = "text/event-stream")),
        ),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn complete(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    Body {
        said: mut asked,
        raw,
        ..
    }: Body<ChatRequest>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    asked.check()?;
    let mut prepared = app.prepared_as_model(&client, &asked.model)?;
    let files = app.read_media(&client, "messages", &mut asked.messages);
    prepared.request.files = files.await?;
    let stops = asked.stops()?;
    let has_functions = !asked.functions.is_empty();
    let defined = DefinedTools::of(&asked.defined(), &prepared).await?;
    let has_format = asked.response_format.is_some();
    prepared.output_schema_at = has_format.then_some("response_format.json_schema.schema");
    asked.put(&mut prepared.request, &defined.names())?;
    defined.offer(&mut prepared, &asked.chosen()?).await?;
    let speaks = prepared.agent.speaks();
    let watcher = app.begin(&client, &headers, &raw, prepared).await?;
    let reply = ChunkTemplate {
        run: watcher.run.to_string(),
        model: asked.model,
        created: began_at(watcher.run),
    };
    if asked.stream {
        let live = LiveTurn::new(watcher);
        let answer_stream = speaks.then(|| AnswerStream::default().stopping(stops.anew()));
        let form = ChunkForm {
            with_usage: asked.stream_options.include_usage,
            has_functions,
            stops,
        };
        let chunks = Chunks::new(live, reply, answer_stream, form);
        return Ok(chunks.respond());
    }
    let run = watcher.run;
    watcher.ended().await?;
    let outcome = app.turn(&client, run, Gathering::Outcome).await?;
    let completion = outcome.try_map(|turn| {
        let choice = Choice::of(&turn, finish(&turn)?).stopped(&turn, &stops);
        let choice = if has_functions {
            choice.with_function_call()
        } else {
            choice
        };
        Ok::<_, ApiError>(ChatCompletion {
            id: reply.id(),
            object: "chat.completion",
            created: reply.created,
            model: reply.model,
            choices: vec![choice],
            usage: turn.answer.usage,
            toolhold: turn.extra(),
        })
    })?;
    Ok(completion.into_response())
}

impl ChatRequest {
    /// # Errors
    /// The request asks for what an agent cannot do.
    fn check(&self) -> Result<(), ApiError> {
        let modalities = self.modalities.as_deref().unwrap_or_default();
        refuse(&[
            (
                self.n.is_some_and(|n| n != 1),
                "n",
                "an agent gives one answer; send the request several times",
            ),
            (is_asked(&self.logprobs), "logprobs", NO_LOGPROBS),
            (
                self.top_logprobs.is_some_and(|most| most > 0),
                "top_logprobs",
                NO_LOGPROBS,
            ),
            (
                is_asked(&self.logit_bias),
                "logit_bias",
                "tokens are those of one model, and an agent may ask several; leave it away",
            ),
            (
                modalities.iter().any(|modality| modality != "text"),
                "modalities",
                "an agent answers in text",
            ),
            (is_asked(&self.audio), "audio", "an agent answers in text"),
            (
                !self.web_search_options.is_null(),
                "web_search_options",
                "OpenAI's web search is not here; an agent searches with a tool of its own (/v1/tools)",
            ),
        ])
    }

    /// # Errors
    /// They have another form.
    fn stops(&self) -> Result<StopTexts, ApiError> {
        let stops = StopTexts::read(&self.stop);
        stops.ok_or_else(|| ApiError::member("stop", stop_texts::FORM))
    }

    /// The client's tools, of both forms.
    fn defined(&self) -> Vec<PlacedTool> {
        let mut defined = PlacedTool::all("tools", ".function", &self.tools);
        let functions = self.functions.iter().cloned().map(ClientTool::of);
        let functions: Vec<ClientTool> = functions.collect();
        defined.extend(PlacedTool::all("functions", "", &functions));
        defined
    }

    /// # Errors
    /// The choice has none of the known forms.
    fn chosen(&self) -> Result<ChosenTools, ApiError> {
        if self.tool_choice.is_null() {
            return ChosenTools::read("function_call", &self.function_call);
        }
        ChosenTools::read("tool_choice", &self.tool_choice)
    }

    /// `tools`: the names of the client's own.
    fn put(&self, request: &mut RunRequest, tools: &BTreeSet<String>) -> Result<(), ApiError> {
        let messages = with_tool_calls(&self.messages);
        let said = conversation("messages", &[], &messages, tools)?;
        said.put_instructions(request);
        request.context = said.context;
        if let Some(format) = &self.response_format {
            let schema =
                output_schema("response_format", format, &format["json_schema"]["schema"])?;
            request.output_schema = schema.or(request.output_schema.take());
        }
        let settings = &mut request.settings;
        let temperature = self.temperature.map(f64::from);
        sampling::put_temperature(settings, temperature, sampling::OPENAI_MAX_TEMPERATURE)?;
        sampling::put_seed(settings, self.seed);
        sampling::put_top_p(settings, self.top_p)?;
        sampling::put_penalties(settings, self.frequency_penalty, self.presence_penalty)?;
        // A reply with `function_call` has one.
        if self.parallel_tool_calls == Some(false) || !self.functions.is_empty() {
            settings.max_calls = 1;
        }
        let (name, most) = match self.max_completion_tokens {
            None => ("max_tokens", self.max_tokens),
            most => ("max_completion_tokens", most),
        };
        limit_replies(settings, name, most)
    }
}

/// The fields that all chunks of one reply share.
#[derive(Debug)]
struct ChunkTemplate {
    run: String,
    model: String,
    created: u64,
}

impl ChunkTemplate {
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

/// Form of a streamed reply, as its request asks for it.
struct ChunkForm {
    with_usage: bool,
    /// True if calls have the form `function_call`.
    has_functions: bool,
    stops: StopTexts,
}

/// A streamed reply.
struct Chunks {
    live: LiveTurn,
    reply: ChunkTemplate,
    /// Absent if no text may be shown before the run is over.
    answer_stream: Option<AnswerStream>,
    form: ChunkForm,
    ready: VecDeque<Value>,
    /// True if the next text is no part of the one before, from which an empty line parts it. In Responses it is an item of
    /// its own.
    is_apart: bool,
    is_over: bool,
    /// The memory of the texts of its end.
    unsent: Option<UnsentBytes>,
}

/// The copies of the answer: in the chunks of the end, and in the values that they are made of.
const ANSWERS: u64 = 4;

impl Chunks {
    fn new(
        live: LiveTurn,
        reply: ChunkTemplate,
        answer_stream: Option<AnswerStream>,
        form: ChunkForm,
    ) -> Self {
        let first = reply.chunk(json!({"role": "assistant", "content": ""}), None);
        Self {
            live,
            reply,
            answer_stream,
            form,
            ready: VecDeque::from([first]),
            is_apart: false,
            is_over: false,
            unsent: None,
        }
    }

    fn respond(self) -> Response {
        let chunks = stream::unfold(Some(self), async |chunks| {
            let mut chunks = chunks?;
            match chunks.next().await {
                Ok(Some(chunk)) => Some((data(&chunk), Some(chunks))),
                Ok(None) => Some((sse::Event::default().data("[DONE]"), None)),
                // The error event has the form that OpenAI's SDKs read in a stream.
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
            match self.live.next().await? {
                Some(event) => self.hear(&event.kind),
                None => self.end().await?,
            }
        }
    }

    fn hear(&mut self, event: &EventKind) {
        let stream = self.answer_stream.as_mut();
        match stream.map(|stream| stream.take(event)) {
            Some(AnswerNews::Text(text)) => self.say(&text),
            Some(AnswerNews::Aside) => self.is_apart = true,
            Some(AnswerNews::Nothing) | None => {}
        }
    }

    fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let is_apart = mem::take(&mut self.is_apart);
        let text = if is_apart {
            Cow::Owned(format!("\n\n{text}"))
        } else {
            Cow::Borrowed(text)
        };
        let chunk = self.reply.chunk(json!({"content": text}), None);
        self.ready.push_back(chunk);
    }

    async fn end(&mut self) -> Result<(), ApiError> {
        self.is_over = true;
        let mut finish = match finish(&self.live.turn)? {
            "tool_calls" if self.form.has_functions => FUNCTION_CALL,
            other => other,
        };
        let mut content = self.live.turn.shown();
        let end = stopped(&self.live.turn, &content, &self.form.stops).len();
        if end < content.len() {
            content.truncate(end);
            finish = STOP;
        }
        let bytes = ANSWERS * self.live.turn.end_bytes();
        self.unsent = Some(self.live.room(bytes).await);
        let streamed = self.answer_stream.as_ref();
        let is_whole = self.live.turn.is_whole();
        let said = match streamed.map(|streamed| streamed.rest(&content, is_whole)) {
            None => content,
            Some(AnswerRest::More(rest)) => rest.to_owned(),
            Some(AnswerRest::Apart(answer)) => {
                self.is_apart = true;
                answer.to_owned()
            }
            Some(AnswerRest::Contradiction) => return Err(self.live.turn.contradiction()),
        };
        self.say(&said);
        let thoughts = self.live.turn.thoughts();
        if !thoughts.is_empty() {
            let chunk = self.reply.chunk(thoughts.into(), None);
            self.ready.push_back(chunk);
        }
        // A reply with `function_call` has one, without an index.
        let most = if self.form.has_functions {
            1
        } else {
            usize::MAX
        };
        for (index, call) in self.live.turn.calls.iter().take(most).enumerate() {
            let members = self.live.turn.call_members(call);
            for delta in call_deltas(index, call, members, self.form.has_functions) {
                let chunk = self.reply.chunk(delta, None);
                self.ready.push_back(chunk);
            }
        }
        let mut last = self.reply.chunk(json!({}), Some(finish));
        last["toolhold"] = json!(self.live.turn.extra());
        self.ready.push_back(last);
        if self.form.with_usage {
            let mut chunk = self.reply.chunk(Value::Null, None);
            chunk["choices"] = json!([]);
            chunk["usage"] = json!(self.live.turn.answer.usage);
            self.ready.push_back(chunk);
        }
        Ok(())
    }
}

/// A call in pieces: index, id and name come first, and the arguments after them.
/// Its signed members come with its name.
fn call_deltas(
    index: usize,
    call: &ClientCall,
    members: Map<String, Value>,
    has_functions: bool,
) -> Vec<Value> {
    let delta = |id: Option<&str>, function: Value, members: Map<String, Value>| {
        if has_functions {
            return json!({"function_call": function});
        }
        let mut part = json!({"index": index});
        if let Some(id) = id {
            part["id"] = id.into();
            part["type"] = "function".into();
        }
        part["function"] = function;
        for (name, member) in members {
            part[name] = member;
        }
        json!({"tool_calls": [part]})
    };
    let name = json!({"name": call.function.name, "arguments": ""});
    let mut deltas = vec![delta(Some(&call.id), name, members)];
    let arguments = pieces(&call.function.arguments).into_iter();
    let piece = |piece: &str| delta(None, json!({"arguments": piece}), Map::new());
    deltas.extend(arguments.map(piece));
    deltas
}

fn data(value: &Value) -> sse::Event {
    sse::Event::default().data(value.to_string())
}
