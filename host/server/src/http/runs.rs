//! Runs: listing, reading, events, cancelling, resuming and decisions about their calls.

use crate::http::App;
use crate::http::agent::AgentAnswer;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, QueryParams};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::event_redactor::EventRedactor;
use crate::http::events;
use crate::http::streams::RunEvent;
use crate::http::unsent::{Counted, Gathering};
use crate::http::waiting_page::WaitingPage;
use crate::runs::RunRefusal;
use crate::secret_mask::SecretMask;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use toolhold_connections::Connection;
use toolhold_connections::websocket::{WebSocketRefusal, WebSocketUpgrade};
use toolhold_policy::pii::{Kind, find};
use toolhold_policy::redaction;
use toolhold_protocol::decision::{Decision, Verdict};
use toolhold_protocol::event::{EventKind, StopReason};
use toolhold_protocol::reply_offset::{NoStreamPosition, StreamPosition};
use toolhold_protocol::tool::Annotations;
use toolhold_storage::{DecideOutcome, RecordError, RunRow, Scope, Store};
use toolhold_telemetry::ResumeCause;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(watch))
        .routes(routes!(socket))
        .routes(routes!(cancel))
        .routes(routes!(resume))
        .routes(routes!(waiting))
        .routes(routes!(decide))
}

/// A run, as lists show it.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunSummary {
    id: Uuid,
    agent: String,
    /// Beginning of the task.
    task: String,
    model: String,
    /// Milliseconds since 1970 (UTC).
    began_ms: u64,
    state: RunState,
    /// Why the run ended.
    #[schema(value_type = Option<String>)]
    reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    Running,
    /// One of its calls waits for a person.
    Waiting,
    /// No process drives the run.
    Parked,
    Done,
}

impl RunSummary {
    /// For [`App::summary`], which hides secrets.
    fn of(row: RunRow) -> Self {
        let state = match (&row.ended, row.is_held, row.waits) {
            (Some(_), _, _) => RunState::Done,
            (None, false, _) => RunState::Parked,
            (None, true, true) => RunState::Waiting,
            (None, true, false) => RunState::Running,
        };
        Self {
            id: row.id,
            agent: row.agent,
            task: row.task,
            model: row.model,
            began_ms: row.began_ms,
            state,
            reason: row.ended.as_ref().map(|ended| ended.reason),
            ended_ms: row.ended.as_ref().map(|ended| ended.at_ms),
            steps: row.ended.as_ref().map(|ended| ended.steps),
            calls: row.ended.as_ref().map(|ended| ended.calls),
            tokens: row.ended.as_ref().map(|ended| ended.tokens),
            session: row.turn.map(|(session, _)| session),
            turn: row.turn.map(|(_, turn)| turn),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct RunList {
    pub runs: Vec<RunSummary>,
}

/// Page of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// The most entries of a page; 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    #[serde(default = "usual_limit")]
    pub limit: u32,
    /// Only entries older than this id: the last id of the previous page.
    pub before: Option<Uuid>,
}

/// Entries of a page.
const MAX_LIMIT: u32 = 1_000;

pub fn usual_limit() -> u32 {
    100
}

pub fn check_limit(limit: u32) -> Result<(), ApiError> {
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiError::member("limit", format_args!("1 to {MAX_LIMIT}")));
    }
    Ok(())
}

impl App {
    /// The run, if the client may see it.
    pub async fn run(&self, client: &Client, run: Uuid) -> Result<RunRow, ApiError> {
        let row = self.dispatcher.store().run(run).await?;
        row.filter(|row| client.sees(&row.owner))
            .ok_or_else(|| ApiError::not_found(format_args!("run {run}")))
    }

    /// The row as the client may see it.
    pub async fn summary(&self, client: &Client, mut row: RunRow) -> RunSummary {
        let rows = std::slice::from_mut(&mut row);
        self.mask_tasks(client, rows).await;
        RunSummary::of(row)
    }

    /// Many rows as the client may see them.
    pub async fn summaries(&self, client: &Client, mut rows: Vec<RunRow>) -> Vec<RunSummary> {
        self.mask_tasks(client, &mut rows).await;
        rows.into_iter().map(RunSummary::of).collect()
    }

    /// Removes the secrets that runs hide from their tasks. Rows of older versions have them.
    async fn mask_tasks(&self, client: &Client, rows: &mut [RunRow]) {
        if client.is_admin() {
            return;
        }
        let suspicious: Vec<&mut RunRow> = rows
            .iter_mut()
            .filter(|row| !find(&row.task, Kind::is_secret).is_empty())
            .collect();
        let runs: Vec<Uuid> = suspicious.iter().map(|row| row.id).collect();
        let read = self.dispatcher.store().privacy_of(&runs).await;
        let known = read.unwrap_or_else(|error| {
            tracing::warn!(%error, "the privacy settings of listed runs could not be read");
            BTreeMap::new()
        });
        for row in suspicious {
            row.task = match known.get(&row.id) {
                Some(privacy) => SecretMask::of(privacy).text(&row.task),
                // The settings of one run that cannot be read hide no other run.
                None => redaction::without(&row.task, Kind::is_secret).into_owned(),
            };
        }
    }

    /// Asks a run to stop, in this process or another. One that was cancelled stays so.
    pub async fn stop(&self, run: &RunRow) -> Result<(), ApiError> {
        match &run.ended {
            Some(ended) if ended.reason == StopReason::Cancelled => return Ok(()),
            Some(_) => return Err(ApiError::conflict("this run is over")),
            None => {}
        }
        let store = self.dispatcher.store();
        let is_here = self.dispatcher.cancel(run.id);
        // Before it is acknowledged, also of a run that works here: if this server dies before the end is recorded, no other
        // one goes on with the run.
        store.request_cancellation(run.id).await?;
        // A server that was frozen may still have a copy of a run that goes on elsewhere.
        if is_here && !store.was_taken(run.id).await? {
            return Ok(());
        }
        if !store.is_held(run.id).await? {
            match self.dispatcher.end(run.id).await {
                // Another process took it since the look, and sees the request; or it has ended by itself.
                Ok(()) | Err(RunRefusal::Record(RecordError::Held | RecordError::Over { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Lists the key's runs, the newest first; with the scope `admin` the runs of all keys.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", security(("key" = [])), params(Page),
    responses((status = 200, body = RunList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    QueryParams(page): QueryParams<Page>,
) -> Result<Json<RunList>, ApiError> {
    client.may(Scope::Run)?;
    check_limit(page.limit)?;
    let store = app.dispatcher.store();
    let rows = store
        .runs_before(client.owner(), page.before, page.limit)
        .await?;
    Ok(Json(RunList {
        runs: app.summaries(&client, rows).await,
    }))
}

/// A run with its steps so far.
#[derive(Debug, Serialize, ToSchema)]
struct RunDetail {
    #[serde(flatten)]
    summary: RunSummary,
    answer: AgentAnswer,
}

/// Returns one run.
#[utoipa::path(
    get, path = "/v1/runs/{run}", tag = "runs", security(("key" = [])),
    params(("run" = Uuid, Path)),
    responses((status = 200, body = RunDetail), (status = "4XX", body = ErrorBody)),
)]
async fn show(
    State(app): State<App>,
    client: Client,
    PathParam(run): PathParam<Uuid>,
) -> Result<Counted<RunDetail>, ApiError> {
    let row = app.run(&client, run).await?;
    let turn = app.turn(&client, run, Gathering::Record).await?;
    let summary = app.summary(&client, row).await;
    Ok(turn.map(|turn| RunDetail {
        summary,
        answer: turn.into(),
    }))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
struct AfterEvent {
    /// Only what comes after the event with this id; same as the header Last-Event-ID.
    after: Option<String>,
}

impl AfterEvent {
    /// # Errors
    /// It is no id of an event.
    fn position(&self) -> Result<Option<StreamPosition>, ApiError> {
        position_of("after", self.after.as_deref())
    }
}

fn position_of(name: &str, id: Option<&str>) -> Result<Option<StreamPosition>, ApiError> {
    let invalid = |_: NoStreamPosition| {
        ApiError::invalid(format!(
            "{name}: the id of an event, as its stream has it; or its number"
        ))
    };
    id.map(|id| id.parse().map_err(invalid)).transpose()
}

/// Streams the events of a run until it is over, from the first event or after `Last-Event-ID`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "runs", security(("key" = [])),
    params(("run" = Uuid, Path), AfterEvent, ("Last-Event-ID" = Option<String>, Header)),
    responses(
        (status = 200, content_type = "text/event-stream", body = RunEvent),
        (status = 204, description = "The run is over, and nothing came after that event"),
        (status = "4XX", body = ErrorBody),
    ),
)]
async fn watch(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    PathParam(run): PathParam<Uuid>,
    QueryParams(from): QueryParams<AfterEvent>,
) -> Result<Response, ApiError> {
    let row = app.run(&client, run).await?;
    let last = match headers.get("last-event-id") {
        None => from.position()?,
        // Text that is none is no id.
        Some(id) => position_of("Last-Event-ID", Some(id.to_str().unwrap_or_default()))?,
    };
    let next = last.as_ref().map_or(0, |last| last.seq.saturating_add(1));
    let store = app.dispatcher.store();
    if row.ended.is_some() && !store.has_events(run, next).await? {
        // 204 tells an EventSource not to reconnect, which it does after an end without a status.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let redactor = EventRedactor::from(&client, store, run, next).await?;
    let watcher = app.dispatcher.watch(run, last, client.viewer());
    Ok(events::stream(watcher, redactor))
}

/// Sends the same events over a WebSocket, one a message.
#[utoipa::path(
    get, path = "/v1/runs/{run}/socket", tag = "runs", security(("key" = [])),
    params(("run" = Uuid, Path), AfterEvent),
    responses((status = 101, description = "Events as JSON texts"), (status = "4XX", body = ErrorBody)),
)]
async fn socket(
    State(app): State<App>,
    client: Client,
    PathParam(run): PathParam<Uuid>,
    QueryParams(from): QueryParams<AfterEvent>,
    Extension(connection): Extension<Connection>,
    upgrade: Result<WebSocketUpgrade, WebSocketRefusal>,
) -> Result<Response, ApiError> {
    app.run(&client, run).await?;
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(refusal) => {
            let error = ApiError::refused(refusal.status(), refusal.to_string());
            return Ok((refusal.headers(), error).into_response());
        }
    };
    let last = from.position()?;
    let next = last.as_ref().map_or(0, |last| last.seq.saturating_add(1));
    let redactor = EventRedactor::from(&client, app.dispatcher.store(), run, next).await?;
    let watcher = app.dispatcher.watch(run, last, client.viewer());
    Ok(events::socket(upgrade, connection, watcher, redactor))
}

/// Cancels a run. Its last event is still `done`. One that was cancelled before stays as it is.
#[utoipa::path(
    post, path = "/v1/runs/{run}/cancel", tag = "runs", security(("key" = [])),
    params(("run" = Uuid, Path)),
    responses((status = 202), (status = "4XX", body = ErrorBody)),
)]
async fn cancel(
    State(app): State<App>,
    client: Client,
    PathParam(run): PathParam<Uuid>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    app.stop(&app.run(&client, run).await?).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Resumes a run that no process drives.
#[utoipa::path(
    post, path = "/v1/runs/{run}/resume", tag = "runs", security(("key" = [])),
    params(("run" = Uuid, Path)),
    responses((status = 202), (status = "4XX", body = ErrorBody)),
)]
async fn resume(
    State(app): State<App>,
    client: Client,
    PathParam(run): PathParam<Uuid>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let row = app.run(&client, run).await?;
    if row.ended.is_some() {
        return Err(ApiError::conflict("this run is over"));
    }
    app.dispatcher.resume(&row, ResumeCause::Asked).await?;
    Ok(StatusCode::ACCEPTED)
}

/// A call that waits for a person.
#[derive(Debug, Serialize, ToSchema)]
struct WaitingCall {
    run: Uuid,
    call: String,
    tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    /// The arguments with which the tool would run. Secrets that the run hides are shown to keys with `admin` alone.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The tool's own hints, such as whether it is destructive or reaches the network.
    #[schema(value_type = Object)]
    annotations: Annotations,
    /// The tools whose calls it is nested in, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    callers: Vec<String>,
    /// Where a sub-agent makes the call: the tools whose calls sub-agents answer, the outermost first and its own
    /// last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<String>,
    /// Why it waits, where no rule for its tool says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Digest of the call as shown; a decision must repeat it.
    digest: String,
    /// A decision was made, and the run has not read it yet.
    is_decided: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct WaitingCalls {
    calls: Vec<WaitingCall>,
    /// The next page is what `after` with this text returns. Absent: there are no more calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists the calls that wait for a person, of all runs that the key may see, the oldest first.
#[utoipa::path(
    get, path = "/v1/approvals", tag = "approvals", security(("key" = [])), params(WaitingPage),
    responses((status = 200, body = WaitingCalls), (status = "4XX", body = ErrorBody)),
)]
async fn waiting(
    State(app): State<App>,
    client: Client,
    QueryParams(page): QueryParams<WaitingPage>,
) -> Result<Counted<WaitingCalls>, ApiError> {
    let after = page.start()?;
    let (owner, after) = (client.owner(), after.as_ref());
    let store = app.dispatcher.store();
    let memory = client
        .room(store.waiting_bytes(owner, after, page.limit).await?)
        .await?;
    let (mut calls, mut masks) = (Vec::new(), BTreeMap::new());
    let waiting = store.waiting(owner, after, page.limit).await?;
    let next = page.next(&waiting);
    for it in waiting {
        let arguments = if client.is_admin() {
            it.pending.arguments
        } else {
            let mask = match masks.entry(it.run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(secrets_of(store, it.run).await?),
            };
            mask.value(it.pending.arguments)
        };
        calls.push(WaitingCall {
            run: it.run,
            call: it.pending.call.id,
            tool: it.pending.call.tool,
            instance: it.pending.call.instance,
            arguments,
            annotations: it.pending.annotations,
            callers: it.pending.callers,
            agents: it.pending.agents,
            why: it.pending.why,
            digest: it.pending.digest,
            is_decided: it.is_decided,
        });
    }
    Ok(Counted::new(WaitingCalls { calls, next }, memory))
}

/// The mask for secrets that the run hides from its model.
pub async fn secrets_of(store: &Store, run: Uuid) -> Result<SecretMask, ApiError> {
    let (first, _) = store.ends(run).await?;
    Ok(match &first.kind {
        EventKind::Run { request, .. } => SecretMask::of(&request.settings.privacy),
        _ => SecretMask::default(),
    })
}

/// A person's decision.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"digest": "…", "verdict": "refuse", "reason": "Not on a Sunday"}))]
struct DecisionBody {
    /// Digest of the call as it was shown. The decision does not apply if the arguments have changed since.
    digest: String,
    verdict: VerdictBody,
    /// With `edit`: the arguments to run with.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Value>,
    /// With `replace`: the result of the call.
    #[schema(value_type = Option<Value>)]
    result: Option<Value>,
    /// With `refuse`: the reason, which the model reads.
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum VerdictBody {
    Approve,
    Edit,
    Replace,
    Refuse,
}

impl DecisionBody {
    fn verdict(self) -> Result<Verdict, ApiError> {
        let needs = |name: &str| ApiError::invalid(format!("this verdict needs {name}"));
        Ok(match self.verdict {
            VerdictBody::Approve => Verdict::Approve,
            VerdictBody::Edit => Verdict::Edit {
                arguments: self.arguments.ok_or_else(|| needs("arguments"))?,
            },
            VerdictBody::Replace => Verdict::Replace {
                result: self.result.ok_or_else(|| needs("result"))?,
            },
            VerdictBody::Refuse => Verdict::Refuse {
                reason: self.reason.unwrap_or_else(|| "no reason given".into()),
            },
        })
    }
}

/// Decides about a call that waits.
#[utoipa::path(
    post, path = "/v1/approvals/{run}/{call}", tag = "approvals", security(("key" = [])),
    params(("run" = Uuid, Path), ("call" = String, Path)),
    request_body = DecisionBody,
    responses((status = 202), (status = "4XX", body = ErrorBody)),
)]
async fn decide(
    State(app): State<App>,
    client: Client,
    PathParam((run, call)): PathParam<(Uuid, String)>,
    Body { said: decided, .. }: Body<DecisionBody>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Approve)?;
    let by = match client.name.as_str() {
        "" => "api".to_owned(),
        name => format!("key {name}"),
    };
    let decision = Decision {
        digest: decided.digest.clone(),
        verdict: decided.verdict()?,
        by: Some(by),
    };
    let store = app.dispatcher.store();
    let mut waiting = store.waiting_as(&call, Some(run)).await?;
    waiting.retain(|it| client.sees(&it.owner));
    if waiting.is_empty() {
        let seen = store.run(run).await?.filter(|row| client.sees(&row.owner));
        let first = match seen {
            Some(_) => store.decision_taken(run, &call, &decision.digest).await?,
            None => None,
        };
        return match first {
            Some(first) => held_against(first, &decision),
            None => Err(ApiError::not_found("such call that waits")),
        };
    }
    // A sub-agent's call may have the same id as a call of the run itself.
    let shown = waiting
        .into_iter()
        .find(|it| it.pending.digest == decision.digest);
    let shown = shown.ok_or_else(|| {
        ApiError::conflict("the call is another than the one that was shown; look at it again")
    })?;
    match store.decide(shown.within, &call, &decision).await? {
        DecideOutcome::Stored => Ok(StatusCode::ACCEPTED),
        DecideOutcome::Already(first) => held_against(first, &decision),
        DecideOutcome::Gone => {
            let first = store.decision_taken(run, &call, &decision.digest).await?;
            match first {
                Some(first) => held_against(first, &decision),
                None => Err(ApiError::conflict("the call does not wait any longer")),
            }
        }
    }
}

/// Answers a decision about a call that was decided: the first one holds, and a repetition of it is accepted again.
fn held_against(first: Decision, decision: &Decision) -> Result<StatusCode, ApiError> {
    if first == *decision {
        return Ok(StatusCode::ACCEPTED);
    }
    Err(ApiError::conflict(format!(
        "nothing was changed: it was decided before about the call: {}",
        first.in_words()
    )))
}
