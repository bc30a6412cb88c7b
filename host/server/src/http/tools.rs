//! Tools: listing, and direct calls without a model.

use crate::answer::{Answer, CallStatus};
use crate::http::App;
use crate::http::agent::Prepared;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, QueryParams};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::unsent::Counted;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolhold_protocol::reference::escaped;
use toolhold_protocol::result::ToolUsage;
use toolhold_protocol::tool::{Annotations, is_reserved};
use toolhold_runtime::config::DEFAULT_AGENT;
use toolhold_storage::{CallRecord, Scope};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(call))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
struct ToolsQuery {
    /// Name of the agent whose tools are listed; default: `default`.
    agent: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ToolList {
    tools: Vec<ToolBody>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ToolBody {
    name: String,
    description: String,
    #[schema(value_type = Object)]
    parameters: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output: Option<Value>,
    #[schema(value_type = Object)]
    annotations: Annotations,
}

/// Lists the tools that the key may have an agent call.
///
/// It needs no model: the agent's endpoint may be away.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", security(("key" = [])), params(ToolsQuery),
    responses((status = 200, body = ToolList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    QueryParams(whose): QueryParams<ToolsQuery>,
) -> Result<Json<ToolList>, ApiError> {
    let name = whose.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let prepared = app.prepared_without_model(&client, name)?;
    let tools = prepared.agent.tools(&prepared.behalf).await;
    let tools = tools.iter().map(|tool| ToolBody {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        output: tool.output.clone(),
        annotations: tool.annotations,
    });
    Ok(Json(ToolList {
        tools: tools.collect(),
    }))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"arguments": {"expression": "2^61 - 1"}}))]
struct CallBody {
    #[schema(value_type = Object)]
    #[serde(default)]
    arguments: serde_json::Map<String, Value>,
    /// The agent whose tools, grants, shields and decision rules apply.
    #[serde(default)]
    agent: Option<String>,
}

/// The outcome of a direct call.
#[derive(Debug, Serialize, ToSchema)]
struct CallResult {
    /// The run that records the call.
    run: Uuid,
    #[schema(value_type = Value)]
    result: Value,
    /// The error of a failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    duration_ms: f64,
}

impl App {
    /// Prepares a direct call of a tool.
    ///
    /// # Errors
    /// The client may not make it, or there is no such tool, or its arguments are not its own.
    async fn may_call(
        &self,
        client: &Client,
        tool: &str,
        asked: &CallBody,
    ) -> Result<Prepared, ApiError> {
        client.may(Scope::Run)?;
        let name = asked.agent.as_deref().unwrap_or(DEFAULT_AGENT);
        let prepared = self.prepared_without_model(client, name)?;
        let tools = prepared.agent.tools(&prepared.behalf).await;
        let Some(known) = tools.iter().find(|known| known.name == tool) else {
            return Err(ApiError::not_found(format_args!(
                "tool {tool:?}; /v1/tools lists them"
            )));
        };
        let is_parameter = |name: &str| {
            let parameters = known.parameters["properties"].as_object();
            !is_reserved(name) && parameters.is_some_and(|own| own.contains_key(name))
        };
        let mut reserved = asked.arguments.keys();
        let reserved = reserved.find(|name| name.starts_with('_') && !is_parameter(name));
        if let Some(reserved) = reserved {
            let message = format!("arguments: {reserved:?} is reserved");
            return Err(ApiError::invalid(message));
        }
        Ok(prepared)
    }

    /// Records a call that is refused before there is a run that would record it. What a key may ask for in a minute
    /// bounds the rows.
    async fn note_refused(&self, client: &Client, tool: &str, arguments: &Value, why: &ApiError) {
        let store = self.dispatcher.store();
        let content = store.content();
        let record = CallRecord {
            id: Uuid::now_v7().to_string(),
            tool: tool.to_owned(),
            arguments: content.kept(arguments),
            policy: String::new(),
            owner: client.name.clone(),
            way: Map::from_iter([("via".to_owned(), "http".into())]),
        };
        let failure = why.failure();
        let usage = ToolUsage::default();
        let row = record.ended(content, Err(&failure), &usage, None, true);
        if let Err(error) = store.audit(row).await {
            tracing::error!(%error, tool, "a refused call is not in the audit log");
        }
    }
}

/// What the header says, if it says something.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

impl CallResult {
    /// The result of a call, from the run that made it.
    fn of(run: Uuid, answer: Answer) -> Self {
        let made = answer.steps.into_iter().flat_map(|step| step.calls).next();
        match made {
            Some(call) => Self {
                run,
                result: call.result,
                // A run that was over before the call was made has the reason.
                error: call.error.or(match call.status {
                    CallStatus::Done => None,
                    _ => answer.error.or(Some("the call was not made".into())),
                }),
                duration_ms: call.duration_ms,
            },
            None => Self {
                run,
                result: Value::Null,
                error: answer.error.or(Some("the call was not made".into())),
                duration_ms: 0.0,
            },
        }
    }
}

/// Calls one tool. Limits, shields and decision rules apply as for an agent, and the call is recorded.
///
/// It needs no model: the agent's endpoint may be away.
#[utoipa::path(
    post, path = "/v1/tools/{tool}", tag = "tools", security(("key" = [])),
    params(("tool" = String, Path, description = "MODULE.TOOL"), ("Idempotency-Key" = Option<String>, Header)),
    request_body = CallBody,
    responses(
        (status = 200, body = CallResult),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn call(
    State(app): State<App>,
    client: Client,
    headers: HeaderMap,
    PathParam(tool): PathParam<String>,
    body: Result<Body<CallBody>, ApiError>,
) -> Result<Counted<CallResult>, ApiError> {
    let asked = match &body {
        Ok(body) => app.may_call(&client, &tool, &body.said).await,
        Err(error) => Err(error.clone()),
    };
    let mut prepared = match asked {
        Ok(prepared) => prepared,
        Err(error) => {
            let arguments = match &body {
                Ok(body) => body.raw.get("arguments").cloned().unwrap_or_default(),
                // As large as it says to be: it was not read.
                Err(_) => json!({"bytes": content_length(&headers)}),
            };
            app.note_refused(&client, &tool, &arguments, &error).await;
            return Err(error);
        }
    };
    let Body {
        said: asked, raw, ..
    } = body?;
    // The run has no data to refer to: a dagger at the beginning of an argument is text.
    let arguments = asked.arguments.into_iter();
    let mut step: Map<String, Value> = arguments
        .map(|(name, value)| (name, escaped(value)))
        .collect();
    step.insert("_tool".into(), tool.into());
    prepared.request.plan = Some(vec![step.into()]);
    prepared.request.output_schema = None;
    let named = json!([prepared.request.plan, raw]);
    let watcher = app.begin(&client, &headers, &named, prepared).await?;
    let run = watcher.run;
    let (turn, mut room) = app.outcome(&client, watcher).await?.into_parts();
    let mut called = CallResult::of(run, turn.answer);
    app.put_bytes_back(&client, run, &mut called.result, &mut room)
        .await?;
    Ok(Counted::new(called, room))
}
