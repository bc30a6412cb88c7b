//! Sessions: conversations in which each turn is a run with the context of the turns before.

use crate::http::App;
use crate::http::agent::AgentAnswer;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, QueryParams};
use crate::http::client_tools::withdraw;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::messages::ClientCall;
use crate::http::runs::{Page, RunSummary, check_limit};
use crate::http::streams::RunEvent;
use crate::http::task::Task;
use crate::http::unsent::Gathering;
use crate::sessions::{LeftByTurn, goes_on_from, left_by};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use toolhold_connections::UnsentBytes;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::StopReason;
use toolhold_protocol::turn::Role;
use toolhold_runtime::config::DEFAULT_AGENT;
use toolhold_storage::{Scope, Session, attached_name};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(show, delete))
        .routes(routes!(turn))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"agent": "default", "title": "Primes"}))]
struct NewSession {
    /// Name of the agent; default: `default`.
    agent: Option<String>,
    title: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct SessionBody {
    id: Uuid,
    agent: String,
    title: String,
    /// Milliseconds since 1970 (UTC).
    created_ms: u64,
    /// The page's turns in order; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns: Option<Vec<RunSummary>>,
    /// Number of all turns; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_count: Option<u32>,
}

impl From<Session> for SessionBody {
    fn from(session: Session) -> Self {
        Self {
            id: session.id,
            agent: session.agent,
            title: session.title,
            created_ms: session.created_ms,
            turns: None,
            turn_count: None,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct SessionList {
    sessions: Vec<SessionBody>,
}

/// Longest title, in characters.
const MAX_TITLE: usize = 200;

impl App {
    async fn session(&self, client: &Client, id: Uuid) -> Result<Session, ApiError> {
        let session = self.dispatcher.store().session(&client.name, id).await?;
        session.ok_or_else(|| ApiError::not_found(format_args!("session {id}")))
    }

    /// The number that the run `run` has among the turns of a session; `None` if it is none of them.
    async fn number_of_turn(&self, session: Uuid, run: Uuid) -> Result<Option<u32>, ApiError> {
        let row = self.dispatcher.store().run(run).await?;
        let turn = row.and_then(|row| row.turn);
        Ok(turn
            .filter(|(of, _)| *of == session)
            .map(|(_, number)| number))
    }
}

/// Creates a session.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions", security(("key" = [])),
    request_body = NewSession,
    responses((status = 201, body = SessionBody), (status = "4XX", body = ErrorBody)),
)]
async fn create(
    State(app): State<App>,
    client: Client,
    Body { said: asked, .. }: Body<NewSession>,
) -> Result<(StatusCode, Json<SessionBody>), ApiError> {
    client.may(Scope::Run)?;
    let agent = app.agent(&client, asked.agent.as_deref().unwrap_or(DEFAULT_AGENT))?;
    let title: String = asked.title.chars().take(MAX_TITLE).collect();
    let store = app.dispatcher.store();
    let session = store
        .create_session(&client.name, &agent.name, &title)
        .await?;
    Ok((StatusCode::CREATED, Json(session.into())))
}

/// Lists the key's sessions, the newest first.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions", security(("key" = [])), params(Page),
    responses((status = 200, body = SessionList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    QueryParams(page): QueryParams<Page>,
) -> Result<Json<SessionList>, ApiError> {
    check_limit(page.limit)?;
    let store = app.dispatcher.store();
    let sessions = store
        .sessions(&client.name, page.before, page.limit)
        .await?;
    Ok(Json(SessionList {
        sessions: sessions.into_iter().map(SessionBody::from).collect(),
    }))
}

/// Returns one session with its newest turns, in order; `before` the first of them, those before.
#[utoipa::path(
    get, path = "/v1/sessions/{session}", tag = "sessions", security(("key" = [])),
    params(("session" = Uuid, Path), Page),
    responses((status = 200, body = SessionBody), (status = "4XX", body = ErrorBody)),
)]
async fn show(
    State(app): State<App>,
    client: Client,
    PathParam(id): PathParam<Uuid>,
    QueryParams(page): QueryParams<Page>,
) -> Result<Json<SessionBody>, ApiError> {
    check_limit(page.limit)?;
    let session = app.session(&client, id).await?;
    let store = app.dispatcher.store();
    let count = store.next_turn(id).await?.unwrap_or_default();
    let end = match page.before {
        Some(run) => app.number_of_turn(id, run).await?.ok_or_else(|| {
            ApiError::invalid("before: expected the id of a turn of this session")
        })?,
        None => count,
    };
    let turns = store.turns(id, end.saturating_sub(page.limit)..end).await?;
    let mut body = SessionBody::from(session);
    body.turn_count = Some(count);
    body.turns = Some(app.summaries(&client, turns).await);
    Ok(Json(body))
}

/// Deletes a session with the records of its turns.
#[utoipa::path(
    delete, path = "/v1/sessions/{session}", tag = "sessions", security(("key" = [])),
    params(("session" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn delete(
    State(app): State<App>,
    client: Client,
    PathParam(id): PathParam<Uuid>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    app.session(&client, id).await?;
    let store = app.dispatcher.store();
    // The deleting transaction decides: a turn may begin at any time before it.
    let is_gone = store.delete_session(&client.name, id).await?;
    if !is_gone && store.session(&client.name, id).await?.is_some() {
        return Err(ApiError::conflict(
            "a turn of this session is not over; cancel it first",
        ));
    }
    // What came with its turns goes with it.
    let attached = attached_name(id);
    let found = store
        .collection(&client.name, &client.name, &attached)
        .await?;
    if let Some((collection, _)) = found {
        store.delete_collection(&client.name, &collection).await?;
        app.knowledge.was_deleted();
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Runs a turn: adds the message to the session's context, and runs the agent.
///
/// As `POST /v1/agent`, with the same `stream` and `Idempotency-Key`; the session determines the agent. A
/// session takes one turn at a time.
#[utoipa::path(
    post, path = "/v1/sessions/{session}/turns", tag = "sessions", security(("key" = [])),
    params(("session" = Uuid, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = Task,
    responses(
        (
            status = 200, description = "The answer; with `stream`, server-sent events",
            content((AgentAnswer = "application/json"), (RunEvent = "text/event-stream")),
        ),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn turn(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    PathParam(id): PathParam<Uuid>,
    Body {
        said: mut task,
        raw,
        ..
    }: Body<Task>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    let session = app.session(&client, id).await?;
    let agent = task.agent.as_ref();
    if agent.is_some_and(|agent| *agent != session.agent) {
        let message = format!("agent: this session is one of {}", session.agent);
        return Err(ApiError::invalid(message));
    }
    let store = app.dispatcher.store();
    let count = store.next_turn(id).await?.unwrap_or_default();
    let last = store.turns(id, count.saturating_sub(1)..count).await?.pop();
    let mut prepared = app.prepared(&client, &session.agent)?;
    prepared.behalf.session = id.to_string();
    let goes_on = last.filter(|last| last.ended.is_none());
    let repeated = app
        .repeated(&client, &headers, &prepared.agent.name, Some(id), &raw)
        .await?;
    if let Some(last) = &goes_on
        && repeated.is_none()
    {
        return Err(ApiError::conflict(format!(
            "the turn before is not over; watch it at /v1/runs/{}/events, or cancel it",
            last.id
        )));
    }
    // A repeated request stands where the turn does that it began.
    let place = match repeated {
        Some(run) => app.number_of_turn(id, run).await?,
        None => None,
    };
    let number = place.unwrap_or(count - u32::from(goes_on.is_some()));
    let before = match goes_on_from(store, id, number).await? {
        Some(before) => app.turn_before(&client, before.id).await?,
        None => TurnBefore::default(),
    };
    let TurnBefore {
        left: before,
        open,
        unsent: _unsent,
    } = before;
    let (place, messages) = task.messages_mut();
    prepared.request.files = app.read_media(&client, place, messages).await?;
    task.put(&open, &mut prepared).await?;
    before.put(&mut prepared.request);
    if repeated.is_none() {
        app.attach(&client, id, &task.documents, &mut prepared)
            .await?;
    }
    prepared.turn = Some((id, number));
    let watcher = app.begin(&client, &headers, &raw, prepared).await?;
    app.respond(watcher, &client, task.stream).await
}

/// The state that a turn left to the next.
#[derive(Debug, Default)]
struct TurnBefore {
    left: LeftByTurn,
    /// Calls of the client's tools that it ended with.
    open: Vec<ClientCall>,
    /// The memory of what was read of it.
    unsent: Option<UnsentBytes>,
}

impl App {
    /// What the turn left, and the calls of the client's tools that it ended with.
    async fn turn_before(&self, client: &Client, run: Uuid) -> Result<TurnBefore, ApiError> {
        let mut left = left_by(self.dispatcher.store(), run).await?;
        withdraw(&mut left.context);
        self.restore_images(client, run, &mut left.context).await?;
        if left.reason != Some(StopReason::ToolCalls) {
            return Ok(TurnBefore {
                left,
                ..TurnBefore::default()
            });
        }
        let turn = self.turn(client, run, Gathering::Record).await?;
        let (turn, unsent) = turn.into_parts();
        let said = turn.content();
        if !said.is_empty() {
            left.context.push(Message::text(Role::Assistant, said));
            left.carried.add_last(&left.context);
        }
        left.calls = turn.calls.iter().map(|call| call.id.clone()).collect();
        Ok(TurnBefore {
            left,
            open: turn.calls,
            unsent: Some(unsent),
        })
    }
}
