//! `/v1/responses`: an agent as a model of OpenAI's Responses API. A response is a run; `resp_…` is its id.

mod input;
mod listing;
mod object;
mod output;
mod references;
mod repeated;
mod request;
mod stream;

use crate::answer_stream::AnswerStream;
use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, QueryParams, true_or_false};
use crate::http::client_tools::{DefinedTools, withdraw};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::refusals::refuse;
use crate::http::run_status::Api;
use crate::http::streams::ResponseEvent;
use crate::http::turn::{LiveTurn, Turn, TurnEnd};
use crate::http::unsent::{Counted, FromRecord, Gathering};
use crate::runs::weight;
use crate::sessions::{answer_message, carried_messages, put_summary};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use listing::{InputItemPage, InputItems};
use object::{ResponseObject, ResponseState};
use output::Output;
use request::{PreviousResponse, ResponseRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use stream::Events;
use toolhold_json::bounded;
use toolhold_protocol::context::{Message, SummaryMessage};
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::settings::CarriedTexts;
use toolhold_protocol::turn::Role;
use toolhold_storage::{RunRow, Scope, Store};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, delete))
        .routes(routes!(cancel))
        .routes(routes!(input_items))
}

/// Creates a response.
///
/// With `stream`, events are sent as they happen (`response.created`, `response.output_text.delta`, …,
/// `response.completed`), and `[DONE]` at the end. With `background`, the response is given at once, and `GET` has what came
/// of it.
#[utoipa::path(
    post, path = "/v1/responses", tag = "responses", security(("key" = [])),
    request_body = ResponseRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "The same request under the same key is the same response"),
        ("x-stainless-retry-count" = Option<u32>, Header, description = "Above 0, the request takes up the response of an equal one whose client left"),
    ),
    responses(
        (
            status = 200, description = "The answer; with `stream`, server-sent events",
            content((ResponseObject = "application/json"), (ResponseEvent = "text/event-stream")),
        ),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn create(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    Body {
        said: mut asked,
        raw,
        ..
    }: Body<ResponseRequest>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    asked.check()?;
    // The items that an input names are put in before any of it is read.
    let mut before = match &asked.previous_response_id {
        Some(id) => app.before(&client, id).await?,
        None => PreviousResponse::default(),
    };
    let input = asked.input_mut();
    let named = references::put_in(&app, &client, input, &before.items).await?;
    before.carried.add_texts(named.carried);
    before.named_calls = named.calls;
    let _named = named.memory;
    let mut messages = asked.messages(&named.composed)?;
    let files = app.read_media(&client, "input", &mut messages).await?;
    let mut prepared = app.prepared_as_model(&client, &asked.model)?;
    prepared.after = before.run;
    prepared.request.files = files;
    let defined = DefinedTools::of(&asked.defined(), &prepared).await?;
    let _before = before.unsent.take();
    prepared.output_schema_at = asked.has_format().then_some("text.format.schema");
    let mut kept = asked.put(before, &messages, &mut prepared.request, &defined.names())?;
    defined.offer(&mut prepared, &asked.chosen()?).await?;
    let is_streamed = asked.stream == Some(true);
    kept.is_shown_early = prepared.agent.speaks();
    kept.is_streamed = is_streamed && kept.is_shown_early;
    let answer_stream = kept.is_streamed.then(AnswerStream::default);
    let is_background = kept.is_background && !is_streamed;

    let text = serde_json::to_string(&kept).map_err(|error| ApiError::internal(&error))?;
    prepared.asked = Some(text);
    // Streamed or not: a response in the background is asked for later.
    prepared.is_background = kept.is_background;

    if is_streamed {
        // The stream repeats the request, but for its input.
        kept.input.clear();
        let memory = client.room(bounded::text_bytes(&raw)).await?;
        let watcher = app.begin(&client, &headers, &raw, prepared).await?;
        let output = Output::new(watcher.run, answer_stream);
        let live = LiveTurn::new(watcher);
        return Ok(Events::new(live, output, kept, asked.model, memory).respond());
    }
    let watcher = app.begin(&client, &headers, &raw, prepared).await?;
    let run = watcher.run;
    if is_background {
        let recorded = app.recorded(&client, run, Gathering::Record).await?;
        let object = recorded.map(|recorded| recorded.object(&asked.model));
        return Ok(object.into_response());
    }
    watcher.ended().await?;
    let outcome = app.recorded(&client, run, Gathering::Outcome).await?;
    let object = outcome.try_map(|recorded| {
        let turn = &recorded.turn;
        match turn
            .fault(Api::OpenAi)
            .filter(|_| turn.end() != TurnEnd::Cancelled)
        {
            Some(fault) => Err(fault),
            None => Ok(recorded.object(&asked.model)),
        }
    })?;
    Ok(object.into_response())
}

/// Options that a client may ask for with a response.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
struct ResponseOptions {
    /// Has the events of the response sent, from the first one on; of a response in progress, with what follows.
    #[serde(deserialize_with = "true_or_false")]
    stream: bool,
    /// Refused: a text that is sent again may come in other pieces than before.
    starting_after: Option<u64>,
}

/// The refusal of a stream that begins in the middle.
const NO_STARTING_AFTER: &str = "a text that is sent again may come in other pieces, so a number of an event tells no place in \
it; leave it away, and the stream begins with its first event";

/// Returns one response in its present state, or with `stream` its events, from the first one on.
#[utoipa::path(
    get, path = "/v1/responses/{response}", tag = "responses", security(("key" = [])),
    params(("response" = String, Path), ResponseOptions),
    responses(
        (
            status = 200, description = "The response; with `stream`, server-sent events",
            content((ResponseObject = "application/json"), (ResponseEvent = "text/event-stream")),
        ),
        (status = "4XX", body = ErrorBody),
    ),
)]
async fn show(
    State(app): State<App>,
    client: Client,
    PathParam(id): PathParam<String>,
    QueryParams(beside): QueryParams<ResponseOptions>,
) -> Result<Response, ApiError> {
    let row = app.response(&client, &id).await?;
    let is_placed = beside.starting_after.is_some();
    refuse(&[(is_placed, "starting_after", NO_STARTING_AFTER)])?;
    let recorded = app.recorded(&client, row.id, Gathering::Record).await?;
    if !beside.stream {
        let object = recorded.map(|recorded| recorded.object(&row.agent));
        return Ok(object.into_response());
    }
    let (RecordedResponse { mut kept, .. }, unsent) = recorded.into_parts();
    // The stream repeats the request, but for its input, and reads the record again.
    kept.input.clear();
    drop(unsent);
    let text = serde_json::to_string(&kept).map_err(|error| ApiError::internal(&error))?;
    let memory = client.room(weight(&text)).await?;
    let answer_stream = kept.is_streamed.then(AnswerStream::default);
    let output = Output::new(row.id, answer_stream);
    let live = LiveTurn::new(app.dispatcher.watch(row.id, None, client.viewer()));
    Ok(Events::new(live, output, kept, row.agent, memory).respond())
}

/// Lists the input items of a response, after those of the previous responses.
#[utoipa::path(
    get, path = "/v1/responses/{response}/input_items", tag = "responses", security(("key" = [])),
    params(("response" = String, Path), InputItemPage),
    responses((status = 200, body = InputItems), (status = "4XX", body = ErrorBody)),
)]
async fn input_items(
    State(app): State<App>,
    client: Client,
    PathParam(id): PathParam<String>,
    QueryParams(page): QueryParams<InputItemPage>,
) -> Result<Counted<InputItems>, ApiError> {
    let row = app.response(&client, &id).await?;
    let recorded = app.recorded(&client, row.id, Gathering::Record).await?;
    recorded.try_map(|recorded| page.of(recorded.shown_input()))
}

/// The member that names the response to continue.
const PREVIOUS: &str = "previous_response_id";

/// Grace period for a cancelled run to end before the reply.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Cancels a response, and returns its final state. One that was cancelled before stays as it is.
#[utoipa::path(
    post, path = "/v1/responses/{response}/cancel", tag = "responses", security(("key" = [])),
    params(("response" = String, Path)),
    responses((status = 200, body = ResponseObject), (status = "4XX", body = ErrorBody)),
)]
async fn cancel(
    State(app): State<App>,
    client: Client,
    PathParam(id): PathParam<String>,
) -> Result<Counted<ResponseObject>, ApiError> {
    client.may(Scope::Run)?;
    let row = app.response(&client, &id).await?;
    app.stop(&row).await?;
    let watcher = app.dispatcher.watch(row.id, None, client.viewer());
    if let Ok(ended) = tokio::time::timeout(CANCEL_GRACE, watcher.ended()).await {
        ended?;
    }
    let recorded = app.recorded(&client, row.id, Gathering::Record).await?;
    Ok(recorded.map(|recorded| recorded.object(&row.agent)))
}

#[derive(Debug, Serialize, ToSchema)]
struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// Deletes a response with the record of its run.
#[utoipa::path(
    delete, path = "/v1/responses/{response}", tag = "responses", security(("key" = [])),
    params(("response" = String, Path)),
    responses((status = 200, body = DeletedResponse), (status = "4XX", body = ErrorBody)),
)]
async fn delete(
    State(app): State<App>,
    client: Client,
    PathParam(id): PathParam<String>,
) -> Result<Json<DeletedResponse>, ApiError> {
    client.may(Scope::Run)?;
    let row = app.response(&client, &id).await?;
    if let Some((session, _)) = row.turn {
        return Err(ApiError::conflict(format!(
            "this is a turn of a session, and goes with it: DELETE /v1/sessions/{session}"
        )));
    }
    if row.ended.is_none() {
        return Err(ApiError::conflict(
            "this response is not over; cancel it first",
        ));
    }
    let store = app.dispatcher.store();
    store.delete_run(&client.name, row.id).await?;
    let registry = app.dispatcher.agents().registry();
    let session = row.id.to_string();
    let removed = registry.remove_scratch(&row.owner, &session);
    if let Err(error) = removed.await {
        tracing::warn!(run = %row.id, %error, "scratch files stay behind until they are swept");
    }
    Ok(Json(DeletedResponse {
        id,
        object: "response",
        deleted: true,
    }))
}

/// Builds a response from the run's record.
#[derive(Debug)]
struct RecordedResponse {
    context: Vec<Message>,
    carried: Option<CarriedTexts>,
    /// The last summary of its conversation, with the number of messages of the context that it stands for.
    summed_up: Option<(usize, SummaryMessage)>,
    /// True if the run carried out a saved plan.
    has_plan: bool,
    /// True if texts were taken out of the end of the run.
    is_gone: bool,
    kept: ResponseState,
    turn: Turn,
    output: Output,
}

impl RecordedResponse {
    /// The response, as one of this agent.
    fn object(&self, agent: &str) -> ResponseObject {
        ResponseObject::new(agent, &self.kept, &self.turn, &self.output)
    }

    fn input(&self) -> Vec<Value> {
        match self.kept.input.as_slice() {
            [] => input::of_context(self.turn.answer.id, &self.context),
            items => items.to_vec(),
        }
    }

    /// The input as lists show it.
    fn shown_input(&self) -> Vec<Value> {
        let shown = |item| self.turn.answer.shown_input(item);
        self.input().into_iter().map(shown).collect()
    }

    /// True if the host composed the output, which then may have texts of the record.
    fn is_output_of_host(&self) -> bool {
        match (self.turn.end(), self.turn.answer.reason) {
            (TurnEnd::Called, _) => true,
            (_, Some(reason)) => reason.is_of_host(self.has_plan),
            (_, None) => false,
        }
    }

    /// True if the input is that of the context, which has messages that the host composed.
    fn has_composed_input(&self) -> bool {
        self.carried.is_some() && self.kept.input.is_empty()
    }
}

impl FromRecord for RecordedResponse {
    async fn begin(store: &Store, run: Uuid) -> Result<(Self, u64), ApiError> {
        let kept = store.response(run).await?;
        let text = kept.as_deref().unwrap_or("{}");
        let kept = serde_json::from_str(text).map_err(|error| ApiError::internal(&error))?;
        let empty = Self {
            context: Vec::new(),
            carried: None,
            summed_up: None,
            has_plan: false,
            is_gone: false,
            turn: Turn::new(run),
            output: Output::new(run, None),
            kept,
        };
        Ok((empty, weight(text)))
    }

    fn take(&mut self, event: &Event) {
        if let EventKind::Run { request, .. } = &event.kind {
            let has_pieces = self.kept.is_streamed || self.kept.is_shown_early;
            let answer_stream = has_pieces.then(AnswerStream::default);
            self.context.clone_from(&request.context);
            self.carried.clone_from(&request.carried);
            self.has_plan = request.plan.is_some();
            self.kept.complete(&request.settings);
            self.output = Output::new(self.turn.answer.id, answer_stream);
        }
        if let EventKind::ConversationSummarized { count, summary, .. } = &event.kind {
            self.summed_up = Some((*count, summary.as_ref().clone()));
        }
        if let EventKind::Done { .. } = &event.kind {
            self.is_gone = event.removed.is_some();
        }
        self.turn.take(event);
        self.output.take(&event.kind);
        // Nobody hears of them again.
        self.output.told();
    }
}

impl App {
    /// The run of a response that the client may see. Other clients get the same error as for an unknown id.
    async fn response(&self, client: &Client, id: &str) -> Result<RunRow, ApiError> {
        let unknown = || ApiError::not_found(format_args!("response {id:?}"));
        let run = object::run_of(id).ok_or_else(unknown)?;
        self.visible_run(client, run).await?.ok_or_else(unknown)
    }

    /// The run, if it exists and the client may see it.
    async fn visible_run(&self, client: &Client, run: Uuid) -> Result<Option<RunRow>, ApiError> {
        let row = self.dispatcher.store().run(run).await?;
        Ok(row.filter(|row| client.sees(&row.owner)))
    }

    /// The recorded part of a response.
    async fn recorded(
        &self,
        client: &Client,
        run: Uuid,
        what: Gathering,
    ) -> Result<Counted<RecordedResponse>, ApiError> {
        let recorded = self.gather::<RecordedResponse>(client, run, what).await?;
        Ok(recorded.map(|mut recorded| {
            let end = recorded.turn.end();
            // Without a stream an answer stands alone. Of a reply that broke off there is its text and nothing else.
            let broke_off = matches!(end, TurnEnd::Cancelled | TurnEnd::Failed);
            if !recorded.kept.is_streamed && !broke_off {
                recorded.output = Output::new(run, None);
            }
            if end != TurnEnd::Open {
                recorded.output.end(&recorded.turn);
                recorded.output.told();
            }
            recorded
        }))
    }

    /// The context with which a response that continues `id` begins.
    async fn before(&self, client: &Client, id: &str) -> Result<PreviousResponse, ApiError> {
        let unknown = || {
            let fault = ApiError::not_found(format_args!("response {id:?}"));
            fault.of(PREVIOUS).coded("previous_response_not_found")
        };
        let run = object::run_of(id).ok_or_else(unknown)?;
        let row = self.visible_run(client, run).await?.ok_or_else(unknown)?;
        let mut carried = self.dispatcher.store().carried_texts(row.id).await?;
        let recorded = self.recorded(client, row.id, Gathering::Record).await?;
        let (recorded, unsent) = recorded.into_parts();
        let mut items = recorded.input();
        let said = recorded.output.items.iter().map(serde_json::to_value);
        items.extend(said.filter_map(Result::ok));
        let RecordedResponse {
            mut context,
            carried: carried_before,
            summed_up,
            has_plan,
            is_gone,
            kept,
            turn,
            ..
        } = recorded;
        carried.messages = carried_messages(carried_before, &mut context);
        put_summary(summed_up, &mut context, &mut carried);
        withdraw(&mut context);
        self.restore_images(client, row.id, &mut context).await?;
        match (turn.end(), turn.answer.reason) {
            (TurnEnd::Open, _) => {
                return Err(ApiError::conflict(
                    "previous_response_id: that response is not over; wait for it, or cancel it",
                )
                .of(PREVIOUS));
            }
            (TurnEnd::Called, _) => {
                let said = turn.content();
                if !said.is_empty() {
                    context.push(Message::text(Role::Assistant, said));
                    carried.add_last(&context);
                }
            }
            (_, Some(reason)) => {
                let output = &turn.answer.output;
                context.push(answer_message(output, reason, is_gone));
                if reason.is_of_host(has_plan) && !output.is_null() {
                    carried.add_last(&context);
                }
            }
            (_, None) => {}
        }
        Ok(PreviousResponse {
            context,
            carried,
            calls: turn.calls,
            named_calls: BTreeSet::new(),
            system: kept.system,
            items,
            language: turn.answer.language,
            // A session's turns share scratch files, which its next turn may be using.
            run: (row.turn.is_none() && row.owner == client.name).then_some(row.id),
            unsent: Some(unsent),
        })
    }
}
