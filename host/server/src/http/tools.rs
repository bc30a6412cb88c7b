//! Tools: listing, and direct calls without a model.

use crate::http::App;
use crate::http::agent::answer;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, QueryParams};
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolhold_protocol::tool::Annotations;
use toolhold_runtime::config::DEFAULT_AGENT;
use toolhold_storage::Scope;
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
struct AgentQuery {
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
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", security(("key" = [])), params(AgentQuery),
    responses((status = 200, body = ToolList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    QueryParams(whose): QueryParams<AgentQuery>,
) -> Result<Json<ToolList>, ApiError> {
    let name = whose.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let prepared = app.prepared(&client, name)?;
    let tools = prepared.agent.tools(&prepared.behalf).await;
    let tools = tools.into_iter().map(|tool| ToolBody {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters,
        output: tool.output,
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
    /// The agent whose tools, grants, shields and approvals apply.
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

/// Calls one tool. Limits, shields and approvals apply as for an agent, and the call is recorded.
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
    Body {
        said: asked, raw, ..
    }: Body<CallBody>,
) -> Result<Json<CallResult>, ApiError> {
    client.may(Scope::Run)?;
    let name = asked.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let mut prepared = app.prepared(&client, name)?;
    let tools = prepared.agent.tools(&prepared.behalf).await;
    if !tools.iter().any(|known| known.name == tool) {
        return Err(ApiError::not_found(format_args!(
            "tool {tool:?}; /v1/tools lists them"
        )));
    }
    if let Some(reserved) = asked.arguments.keys().find(|name| name.starts_with('_')) {
        let message = format!("arguments: {reserved:?} is reserved");
        return Err(ApiError::invalid(message));
    }
    let mut step = asked.arguments;
    step.insert("_tool".into(), tool.into());
    prepared.request.plan = Some(vec![step.into()]);
    prepared.request.output_schema = None;
    let named = json!([prepared.request.plan, raw]);
    let watcher = app.begin(&headers, &named, prepared).await?;
    let run = watcher.run;
    let answer = answer(watcher).await?.answer;
    let made = answer.steps.into_iter().flat_map(|step| step.calls).next();
    Ok(Json(match made {
        Some(call) => CallResult {
            run,
            result: call.result,
            error: call.error,
            duration_ms: call.duration_ms,
        },
        None => CallResult {
            run,
            result: Value::Null,
            error: answer.error.or(Some("the call was not made".into())),
            duration_ms: 0.0,
        },
    }))
}
