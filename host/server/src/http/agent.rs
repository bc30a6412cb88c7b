//! `POST /v1/agent`: runs a task, and returns the answer with the steps that led to it.

use crate::answer::Answer;
use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::Body;
use crate::http::choice::{Choice, finish};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::event_redactor::EventRedactor;
use crate::http::events;
use crate::http::repetition::{idempotency_key, request_digest};
use crate::http::run_status::Api;
use crate::http::streams::RunEvent;
use crate::http::task::Task;
use crate::http::turn::Turn;
use crate::http::undelivered::is_sent_again;
use crate::http::unsent::{Counted, Gathering};
use crate::runs::{RunRefusal, Viewer, Watcher};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use toolhold_protocol::context::keep_newest_images;
use toolhold_protocol::error::RunError;
use toolhold_protocol::settings::{RunRequest, Settings};
use toolhold_runtime::agents::{Agent, RunClient};
use toolhold_runtime::config::DEFAULT_AGENT;
use toolhold_storage::Scope;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(run))
}

/// A request that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    pub agent: Arc<Agent>,
    pub behalf: RunClient,
    pub request: RunRequest,
    /// The run whose scratch files are copied into this one; it has the same owner.
    pub after: Option<Uuid>,
    /// The session, and the number of this turn in it.
    pub turn: Option<(Uuid, u32)>,
    /// The client's name of the output schema, where it gave one.
    pub output_schema_at: Option<&'static str>,
    /// The request of `/v1/responses` that the run answers, as JSON.
    pub asked: Option<String>,
    /// True if the run outlives its client, which asks for the outcome later.
    pub is_background: bool,
}

impl App {
    /// The agent of that name, if the client may use it.
    pub fn agent(&self, client: &Client, name: &str) -> Result<Arc<Agent>, ApiError> {
        let offered = self.dispatcher.agents().all();
        let unknown = || {
            let missing = format_args!("agent {name:?}; /v1/models lists them");
            ApiError::not_found(missing).coded("model_not_found")
        };
        if !client.may_use_agent(name) {
            return Err(unknown());
        }
        match (offered.ready.get(name), offered.waiting.get(name)) {
            (Some(agent), _) => Ok(agent.clone()),
            (None, Some(_)) => Err(ApiError::unavailable(format!(
                "the endpoint of the agent {name:?} has not answered yet; try again in a while"
            ))),
            (None, None) => Err(unknown()),
        }
    }

    /// The agent of that name for what needs no model, if the client may use it: its endpoint need not have answered.
    pub fn agent_without_model(&self, client: &Client, name: &str) -> Result<Arc<Agent>, ApiError> {
        let known = self.dispatcher.agents().without_model(name);
        match known.filter(|_| client.may_use_agent(name)) {
            Some(agent) => Ok(agent),
            // With the reason why not.
            None => self.agent(client, name),
        }
    }

    /// A run for a client of OpenAI's APIs, whose member `model` names the agent.
    pub fn prepared_as_model(&self, client: &Client, model: &str) -> Result<Prepared, ApiError> {
        if model.is_empty() {
            let reason = "name an agent, such as default; /v1/models lists them";
            return Err(ApiError::member("model", reason));
        }
        self.prepared(client, model).map_err(|error| {
            if error.is_not_found() {
                error.of("model")
            } else {
                error
            }
        })
    }

    /// A run of `agent` for `client`, before the task is added.
    pub fn prepared(&self, client: &Client, name: &str) -> Result<Prepared, ApiError> {
        let agent = self.agent(client, name)?;
        Ok(Self::prepared_with(client, agent))
    }

    /// Prepares a run that asks no model, as [`Self::prepared`] does others.
    pub fn prepared_without_model(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<Prepared, ApiError> {
        let agent = self.agent_without_model(client, name)?;
        Ok(Self::prepared_with(client, agent))
    }

    fn prepared_with(client: &Client, agent: Arc<Agent>) -> Prepared {
        let mut request = agent.request();
        let behalf = RunClient {
            owner: client.name.clone(),
            // The run has stored values and scratch files of its own.
            session: request.id.to_string(),
            tools: client.tools().map(<[String]>::to_vec),
            grants: client.grants().map(<[_]>::to_vec),
            trace: client.trace.clone(),
            ..RunClient::default()
        };
        request.allowed = agent.allowed(&behalf);
        Prepared {
            agent,
            behalf,
            request,
            after: None,
            turn: None,
            output_schema_at: None,
            asked: None,
            is_background: false,
        }
    }

    /// Begins the run, or returns the run that an earlier request with the same key began, or an equal one whose client
    /// left and sends it again. Completes even if the client disconnects, so that no run is left half begun. While files of
    /// an earlier run are copied for it, nothing has begun: then the copy ends with the request, and there is no run.
    pub async fn begin(
        &self,
        client: &Client,
        headers: &HeaderMap,
        body: &Value,
        prepared: Prepared,
    ) -> Result<Watcher, ApiError> {
        let watcher = self
            .begin_or_take_up(client, headers, body, prepared)
            .await?;
        client.run.note(watcher.run);
        Ok(watcher)
    }

    async fn begin_or_take_up(
        &self,
        client: &Client,
        headers: &HeaderMap,
        body: &Value,
        mut prepared: Prepared,
    ) -> Result<Watcher, ApiError> {
        keep_newest_images(&mut prepared.request.context);
        let key = idempotency_key(headers)?;
        let session = prepared.turn.map(|(session, _)| session);
        let request = request_digest(&prepared.agent.name, session, body)?;
        let note = match &key {
            // The client comes back with the key, whenever it likes.
            Some(_) => None,
            None => {
                if is_sent_again(headers)
                    && let Some(run) = self.take_up(client, &request).await
                {
                    return Ok(self.dispatcher.watch(run, None, client.viewer()));
                }
                let origin = &client.origin;
                let (party, digest) = (&origin.party, origin.digest(&request));
                let (run, is_background) = (prepared.request.id, prepared.is_background);
                let (hold, note) = self.undelivered.enter(party, digest, run, is_background);
                origin.keep(hold);
                Some(note)
            }
        };
        let (app, viewer) = (self.clone(), client.viewer());
        let left = CancellationToken::new();
        let _waits = left.clone().drop_guard();
        let begun = tokio::spawn(async move {
            match key {
                None => {
                    let begun = Box::pin(app.begun(&prepared, viewer, &left)).await;
                    if let (Ok(_), Some(note)) = (&begun, &note) {
                        app.keep(note);
                    }
                    begun
                }
                Some(key) => {
                    let begun = app.begun_once(&key, &request, &prepared, viewer, &left);
                    Box::pin(begun).await
                }
            }
        });
        begun.await.map_err(|error| ApiError::internal(&error))?
    }

    /// Begins the run. `left` is cancelled when nothing waits for its begin any more.
    pub async fn begun(
        &self,
        prepared: &Prepared,
        viewer: Viewer,
        left: &CancellationToken,
    ) -> Result<Watcher, ApiError> {
        // Only here: a request that is sent twice is answered with the run that it began, however many images are kept.
        self.ensure_images_fit(prepared).await?;
        let RunClient { owner, session, .. } = &prepared.behalf;
        let registry = self.dispatcher.agents().registry();
        if let Some(after) = prepared.after {
            let after = after.to_string();
            let carried = registry.carry_scratch(owner, &after, session);
            let carried = tokio::select! {
                biased;
                carried = carried => carried,
                () = left.cancelled() => {
                    return Err(ApiError::conflict(
                        "the client left before the files of the earlier run were copied, so no run began",
                    ));
                }
            };
            carried.map_err(|error| ApiError::internal(&error))?;
        }
        let begun = self.dispatcher.start(
            &prepared.agent,
            &prepared.behalf,
            prepared.turn,
            prepared.asked.clone(),
            prepared.request.clone(),
            viewer,
        );
        let begun = Box::pin(begun).await;
        if begun.is_err() && prepared.after.is_some() {
            // Copies that remain are swept later.
            let _ = registry.remove_scratch(owner, session).await;
        }
        match begun {
            Ok(watcher) => Ok(watcher),
            // Images of requests that came at the same time may have taken the room: then this says so.
            Err(refusal @ RunRefusal::NotRecorded) => {
                self.ensure_images_fit(prepared).await?;
                Err(refusal.into())
            }
            // The client's own.
            Err(RunRefusal::Right(end)) => Err(end.into()),
            Err(RunRefusal::Request(error @ RunError::OutputSchema { .. })) => {
                let fault = ApiError::invalid(error.to_string());
                Err(match prepared.output_schema_at {
                    Some(place) => fault.of(place),
                    None => fault,
                })
            }
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// A client's limit may be lower than the operator's, not higher.
pub fn limit(most: &mut u32, name: &str, asked: Option<u32>) -> Result<(), ApiError> {
    match asked {
        Some(0) => Err(ApiError::invalid(format!("{name} must be at least 1")).of(name)),
        Some(asked) => {
            *most = asked.min(*most);
            Ok(())
        }
        None => Ok(()),
    }
}

/// The same for the tokens of a reply. A client's value is an explicit choice and not the default.
pub fn limit_replies(
    settings: &mut Settings,
    name: &str,
    asked: Option<u32>,
) -> Result<(), ApiError> {
    if asked.is_some() {
        settings.assumed_max_tokens = None;
    }
    if let Some(asked) = asked.filter(|asked| *asked > settings.max_tokens) {
        // The answer tells the client of it.
        settings.requested_max_tokens = Some(asked);
    }
    limit(&mut settings.max_tokens, name, asked)
}

/// The answer to a task, in our words and as one of OpenAI's `choices`.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentAnswer {
    #[serde(flatten)]
    answer: Answer,
    /// The answer as the chat API has it. Empty while the run is not over, and if it failed or was cancelled.
    choices: Vec<Choice>,
}

impl From<Turn> for AgentAnswer {
    fn from(turn: Turn) -> Self {
        let finished = finish(&turn).ok();
        let choice = finished.map(|reason| Choice::of(&turn, reason));
        Self {
            choices: choice.into_iter().collect(),
            answer: turn.answer,
        }
    }
}

impl App {
    /// The outcome of a run, at its end.
    pub async fn outcome(
        &self,
        client: &Client,
        watcher: Watcher,
    ) -> Result<Counted<Turn>, ApiError> {
        let run = watcher.run;
        watcher.ended().await?;
        let outcome = self.turn(client, run, Gathering::Outcome).await?;
        outcome.try_map(|turn| match turn.answer.reason {
            Some(_) => Ok(turn),
            None => Err(ApiError::unavailable(format!(
                "run {run} was parked before it had an answer; it goes on when the server is back: GET /v1/runs/{run}"
            ))),
        })
    }

    /// The response to a task: its answer, or its events as they happen.
    pub async fn respond(
        &self,
        watcher: Watcher,
        client: &Client,
        is_streamed: bool,
    ) -> Result<Response, ApiError> {
        if is_streamed {
            client.origin.has_ids();
            return Ok(events::stream(watcher, EventRedactor::of(client)));
        }
        let outcome = self.outcome(client, watcher).await?;
        let outcome = outcome.try_map(|turn| match turn.fault(Api::Own) {
            Some(fault) => Err(fault),
            None => Ok(AgentAnswer::from(turn)),
        })?;
        Ok(outcome.into_response())
    }

    /// The recorded part of a run's outcome.
    pub async fn turn(
        &self,
        client: &Client,
        run: Uuid,
        what: Gathering,
    ) -> Result<Counted<Turn>, ApiError> {
        self.gather(client, run, what).await
    }
}

/// Gives an agent a task.
///
/// With `stream`, the answer is a stream of server-sent events (`request`, `plan`, `tool_start`,
/// `tool_result`, `tokens`, `done`, …), each with an `id`: `GET /v1/runs/{run}/events` with that as
/// `Last-Event-ID` continues after a lost connection, also in the middle of a reply. A stream that ends does not end the
/// run, unless `serve.on_disconnect` is `cancel`; without `stream`, the run ends if its client does not come back.
#[utoipa::path(
    post, path = "/v1/agent", tag = "agents", security(("key" = [])),
    request_body = Task,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same request under the same key is the same run")),
    responses(
        (
            status = 200, description = "The answer; with `stream`, server-sent events",
            content((AgentAnswer = "application/json"), (RunEvent = "text/event-stream")),
        ),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn run(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    Body {
        said: mut task,
        raw,
        ..
    }: Body<Task>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    let name = task.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let mut prepared = app.prepared(&client, name)?;
    let (place, messages) = task.messages_mut();
    prepared.request.files = app.read_media(&client, place, messages).await?;
    task.put(&[], &mut prepared).await?;
    let repeated = app.repeated(&client, &headers, &prepared.agent.name, None, &raw);
    if repeated.await?.is_none() {
        let run = prepared.request.id;
        app.attach(&client, run, &task.documents, &mut prepared)
            .await?;
    }
    let watcher = app.begin(&client, &headers, &raw, prepared).await?;
    app.respond(watcher, &client, task.stream).await
}
