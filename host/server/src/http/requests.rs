//! Saved Requests of the requests folder: what each takes, and runs of them (docs/protocol.md, 6).

use crate::http::App;
use crate::http::agent::{AgentAnswer, limit};
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, QueryParams};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::streams::RunEvent;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolhold_agent::language;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::DEFAULT_INSTRUCTIONS;
use toolhold_protocol::settings::RunRequest;
use toolhold_runtime::config::DEFAULT_AGENT;
use toolhold_storage::Scope;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(run))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
struct RequestsQuery {
    /// Name of the agent whose requests folder is listed; default: `default`.
    agent: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RequestList {
    requests: Vec<RequestBody>,
}

/// A saved Request, or a file that is not a valid one.
#[derive(Debug, Serialize, ToSchema)]
struct RequestBody {
    /// `NAME`, or `./FOLDER/NAME.json` in a subfolder.
    name: String,
    description: String,
    /// JSON Schema of the input; absent if the Request takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// The file holds a default input.
    has_input: bool,
    /// JSON Schema of the output; absent for text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output: Option<Value>,
    /// Why the Request cannot run.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl RequestBody {
    fn of(path: &str, saved: Result<SavedRequest, String>) -> Self {
        let name = match path.strip_suffix(".json") {
            Some(name) if !name.contains('/') => name.to_owned(),
            _ => format!("./{path}"),
        };
        let (saved, error) = match saved {
            Ok(saved) => (saved, None),
            Err(reason) => (SavedRequest::default(), Some(reason)),
        };
        Self {
            name,
            input: saved.input_schema().cloned(),
            has_input: saved.has_input(),
            description: saved.description,
            output: saved.schema,
            error,
        }
    }
}

/// Lists the saved Requests with their input schemas.
#[utoipa::path(
    get, path = "/v1/requests", tag = "requests", security(("key" = [])), params(RequestsQuery),
    responses((status = 200, body = RequestList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    QueryParams(whose): QueryParams<RequestsQuery>,
) -> Result<Json<RequestList>, ApiError> {
    client.may(Scope::Run)?;
    let name = whose.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let agent = app.agent_without_model(&client, name)?;
    let requests = agent.requests().await;
    let all = requests.all();
    let requests = all.map(|(path, saved)| RequestBody::of(path, saved));
    let requests = requests.collect();
    Ok(Json(RequestList { requests }))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({"input": {"name": "Ada"}}))]
struct RequestRunBody {
    /// The input; must satisfy the Request's input schema.
    #[schema(value_type = Option<Value>)]
    input: Option<Value>,
    /// The agent whose model, limits, grants, shields and decision rules apply.
    agent: Option<String>,
    /// Stream events as they happen instead of returning one answer.
    stream: bool,
}

/// Runs a saved Request.
///
/// As `POST /v1/agent`, with the same `stream` and `Idempotency-Key`. The run can call only the tools that
/// the Request itself defines.
#[utoipa::path(
    post, path = "/v1/requests/{request}", tag = "requests", security(("key" = [])),
    params(("request" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = RequestRunBody,
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
    PathParam(name): PathParam<String>,
    Body {
        said: given, raw, ..
    }: Body<RequestRunBody>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    let agent = given.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let mut prepared = app.prepared(&client, agent)?;
    let found = prepared.agent.requests().await.find(&name);
    let saved = found.ok_or_else(|| {
        ApiError::not_found(format_args!("Request {name:?}; /v1/requests lists them"))
    })?;
    let saved = saved.map_err(ApiError::invalid)?;
    put(saved, given.input, &mut prepared.request)?;
    let named = json!([name, raw]);
    let watcher = app.begin(&client, &headers, &named, prepared).await?;
    app.respond(watcher, &client, given.stream).await
}

/// As for a sub-agent: a saved Request means the same for every agent that runs it.
fn put(
    saved: SavedRequest,
    input: Option<Value>,
    request: &mut RunRequest,
) -> Result<(), ApiError> {
    request.own_tools_only = true;
    let language = input.as_ref().and_then(language::recognise_in);
    request.language = language.map(str::to_owned);
    request.context = match input {
        Some(input) => saved
            .with_input(input)
            .map_err(|error| ApiError::member("input", error.reason))?,
        None => match saved.input_schema() {
            Some(schema) if !saved.has_input() => {
                let reason = format_args!("this Request needs one that satisfies {schema}");
                return Err(ApiError::member("input", reason));
            }
            _ => saved.context,
        },
    };
    let instructions = saved.instructions;
    request.instructions = instructions.unwrap_or_else(|| DEFAULT_INSTRUCTIONS.to_owned());
    request.output_schema = saved.schema;
    let most = &mut request.settings.max_steps;
    limit(most, "max_steps", saved.max_steps)
}
