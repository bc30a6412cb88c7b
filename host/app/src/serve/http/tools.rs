//! Tools and modules: what there is to call, and direct calls without a model.

use crate::cli::modules::describe;
use crate::config::DEFAULT_AGENT;
use crate::serve::http::App;
use crate::serve::http::agent::answer;
use crate::serve::http::auth::Client;
use crate::serve::http::body::{Asked, Body, Place};
use crate::serve::http::error::{ApiError, ErrorBody};
use crate::storage::{Draft, Scope};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::protocol::Annotations;
use toolhold_sandbox::{ApproveError, Module, Standing};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(call))
        .routes(routes!(modules))
        .routes(routes!(module))
        .routes(routes!(approve))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
struct Whose {
    /// The tools of this agent; `default` if nothing is said.
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

/// The tools that the key may have an agent call.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", security(("key" = [])), params(Whose),
    responses((status = 200, body = ToolList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    Asked(whose): Asked<Whose>,
) -> Result<Json<ToolList>, ApiError> {
    let name = whose.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let prepared = app.prepared(&client, name, None)?;
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
struct CallBody {
    #[schema(value_type = Object)]
    #[serde(default)]
    arguments: serde_json::Map<String, Value>,
    /// As which agent: its tools, grants, shields and approvals hold.
    #[serde(default)]
    agent: Option<String>,
}

/// What came of a direct call.
#[derive(Debug, Serialize, ToSchema)]
struct CallResult {
    /// The record of the call is that of a run.
    run: Uuid,
    #[schema(value_type = Value)]
    result: Value,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    duration_ms: f64,
}

/// Calls one tool. Limits, shields and approvals hold as they do for an agent, and it is recorded.
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
    Place(tool): Place<String>,
    Body(body): Body<Value>,
) -> Result<Json<CallResult>, ApiError> {
    client.may(Scope::Run)?;
    let asked: CallBody = serde_json::from_value(body.clone())
        .map_err(|error| ApiError::invalid(error.to_string()))?;
    let name = asked.agent.as_deref().unwrap_or(DEFAULT_AGENT);
    let mut prepared = app.prepared(&client, name, None)?;
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
    let body = json!([prepared.request.plan, body]);
    let watcher = app.begin(&headers, &body, prepared, None).await?;
    let run = watcher.run;
    let answer = answer(watcher).await?;
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
            error: Some(
                answer
                    .error
                    .unwrap_or_else(|| "the call was not made".into()),
            ),
            duration_ms: 0.0,
        },
    }))
}

/// The modules as they are loaded, and those that could not be.
#[utoipa::path(
    get, path = "/v1/modules", tag = "modules", security(("key" = [])),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn modules(State(app): State<App>, client: Client) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Run)?;
    let registry = app.dispatcher.agents().registry();
    let failed: Vec<Value> = registry
        .failures()
        .iter()
        .map(|it| json!({"name": it.name, "error": it.error.to_string()}))
        .collect();
    let modules: Vec<Value> = registry.modules().iter().map(|it| describe(it)).collect();
    Ok(Json(json!({"modules": modules, "failed": failed})))
}

impl App {
    fn module(&self, name: &str) -> Result<Arc<Module>, ApiError> {
        let module = self.dispatcher.agents().registry().module(name);
        module.ok_or_else(|| ApiError::not_found(format_args!("module {name:?}")))
    }
}

/// One module: its tools, limits, what it asks for and what it may do.
#[utoipa::path(
    get, path = "/v1/modules/{module}", tag = "modules", security(("key" = [])),
    params(("module" = String, Path, description = "NAME or NAME@VERSION")),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn module(
    State(app): State<App>,
    client: Client,
    Place(name): Place<String>,
) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Run)?;
    Ok(Json(describe(app.module(&name)?.as_ref())))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApproveBody {
    /// SHA-256 of the component that was looked at, as `GET /v1/modules/{module}` gives it.
    digest: String,
    /// Of everything that was looked at, the grant included, as the same gives it.
    etag: String,
}

/// Allows a module to run as it is now.
#[utoipa::path(
    post, path = "/v1/modules/{module}/approve", tag = "modules", security(("key" = [])),
    params(("module" = String, Path)),
    request_body = ApproveBody,
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn approve(
    State(app): State<App>,
    client: Client,
    Place(name): Place<String>,
    Body(body): Body<ApproveBody>,
) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Admin)?;
    let module = app.module(&name)?;
    if json!(module.digest) != json!(body.digest) {
        return Err(ApiError::conflict(
            "the module is another than the one that was shown; look at it again",
        ));
    }
    let changed = || {
        ApiError::conflict(
            "what the module is given, or says of its tools, is something else than what was shown; look at it again",
        )
    };
    if module.etag() != body.etag {
        return Err(changed());
    }
    if let Standing::Pending { .. } = module.standing() {
        let registry = app.dispatcher.agents().registry();
        let digest = module.digest.to_string();
        let draft = Draft::module_approved(&client.name, &module.slot, &digest);
        // First: nothing is approved that the log does not have.
        app.dispatcher.store().audit(draft).await?;
        let approved = registry.approve(&module, &body.etag).await;
        approved.map_err(|error| match error {
            ApproveError::Changed => changed(),
            error => ApiError::internal(&error),
        })?;
    }
    Ok(Json(describe(&module)))
}
