//! Modules: lists them, approves them, and takes uploaded components.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam, share};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::upload;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_policy::PinState;
use toolhold_runtime::agents::RunClient;
use toolhold_runtime::module_report::describe;
use toolhold_sandbox::{Module, PinError};
use toolhold_storage::{Draft, Scope};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(modules))
        .routes(routes!(module, bring))
        .routes(routes!(approve))
}

/// Lists the loaded modules, and those that could not be loaded.
///
/// A key without the scope `admin` sees only modules that its agents may call, with name, version and tools.
#[utoipa::path(
    get, path = "/v1/modules", tag = "modules", security(("key" = [])),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn modules(State(app): State<App>, client: Client) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Run)?;
    let registry = app.dispatcher.agents().registry();
    if !client.is_admin() {
        let reach = PermittedTools::of(&app, &client);
        let modules = registry.modules();
        let modules: Vec<Value> = modules.iter().filter_map(|it| reach.offer(it)).collect();
        return Ok(Json(json!({"modules": modules, "failed": []})));
    }
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
        module.ok_or_else(|| no_module(name))
    }
}

fn no_module(name: &str) -> ApiError {
    ApiError::not_found(format_args!("module {name:?}"))
}

/// The tools and modules that the client may have called, for each agent that it may use. Absent: all.
#[derive(Debug)]
struct PermittedTools(Vec<Option<Vec<String>>>);

impl PermittedTools {
    fn of(app: &App, client: &Client) -> Self {
        let behalf = RunClient {
            tools: client.tools().map(<[String]>::to_vec),
            ..RunClient::default()
        };
        let offered = app.dispatcher.agents().all();
        let agents = offered.ready.iter();
        let agents = agents.filter(|(name, _)| client.may_use_agent(name));
        Self(agents.map(|(_, agent)| agent.allowed(&behalf)).collect())
    }

    fn has(&self, module: &str, tool: &str) -> bool {
        self.0.iter().any(|allowed| {
            allowed
                .as_ref()
                .is_none_or(|names| names.iter().any(|name| name == module || name == tool))
        })
    }

    /// What a caller of the module needs, without how the module runs. `None` if the client may call none of
    /// its tools.
    fn offer(&self, module: &Module) -> Option<Value> {
        if let PinState::Pending { .. } = module.pin_state() {
            return None;
        }
        let tools = module.tools.iter();
        let tools: Vec<_> = tools
            .filter(|tool| self.has(&module.name, &tool.name))
            .collect();
        let version = module.version.as_ref().map(ToString::to_string);
        (!tools.is_empty())
            .then(|| json!({"name": module.name, "version": version, "tools": tools}))
    }
}

/// Returns one module: its tools, limits, requested capabilities and grants.
///
/// A key without the scope `admin` sees its name, version and tools.
#[utoipa::path(
    get, path = "/v1/modules/{module}", tag = "modules", security(("key" = [])),
    params(("module" = String, Path, description = "NAME or NAME@VERSION")),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn module(
    State(app): State<App>,
    client: Client,
    PathParam(name): PathParam<String>,
) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Run)?;
    let module = app.module(&name)?;
    if client.is_admin() {
        return Ok(Json(describe(&module)));
    }
    let offered = PermittedTools::of(&app, &client).offer(&module);
    offered.map(Json).ok_or_else(|| no_module(&name))
}

/// Uploads a component, which becomes the module of that name.
///
/// Requires the scope `admin` and `serve.module_upload = true` in the configuration. The component is
/// compiled and asked for its tools before it is stored: one that cannot be loaded changes nothing. It brings
/// no grant. Grants that the operator gave to that name wait until a person approves them, and so does a component that
/// replaces another.
#[utoipa::path(
    post, path = "/v1/modules/{module}", tag = "modules", security(("key" = [])),
    params(
        ("module" = String, Path, description = "NAME or NAME@VERSION"),
        ("If-Match" = Option<String>, Header, description = "The digest of the component that is replaced; needed where there is one"),
    ),
    request_body(description = "The component", content((String = "application/wasm"), (String = "application/octet-stream"))),
    responses(
        (status = 200, description = "It replaced another", body = Object), (status = 201, body = Object),
        (status = "4XX", body = ErrorBody), (status = "5XX", body = ErrorBody),
    ),
)]
async fn bring(
    State(app): State<App>,
    client: Client,
    PathParam(slot): PathParam<String>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    client.may(Scope::Admin)?;
    let uploads = app.uploads.as_ref().ok_or_else(|| {
        ApiError::forbidden("modules cannot be brought here; the operator allows it with serve.module_upload = true")
    })?;
    let (parts, body) = request.into_parts();
    let share = share(&parts.extensions, &app);
    let upload = upload::read(&app, &slot, &parts.headers, body, &share).await?;
    let (module, is_new) = uploads.take(&app, &client, upload).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(describe(&module))))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ApproveBody {
    /// SHA-256 of the reviewed component, as `GET /v1/modules/{module}` returns it.
    digest: String,
    /// Digest of everything reviewed, the grant included, and of the record that it was compared with, from the same
    /// response.
    etag: String,
}

/// Allows a module to run as it is now. 409 where it is no longer what was shown, or where another decision about it
/// came first: that one holds.
#[utoipa::path(
    post, path = "/v1/modules/{module}/approve", tag = "modules", security(("key" = [])),
    params(("module" = String, Path)),
    request_body = ApproveBody,
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn approve(
    State(app): State<App>,
    client: Client,
    PathParam(name): PathParam<String>,
    Body {
        said: looked_at, ..
    }: Body<ApproveBody>,
) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Admin)?;
    let module = app.module(&name)?;
    if json!(module.digest) != json!(looked_at.digest) {
        return Err(ApiError::conflict(
            "the module is another than the one that was shown; look at it again",
        ));
    }
    let refused = |error: PinError| match error {
        PinError::Changed => ApiError::conflict(
            "what the module is given, or says of its tools, is something else than what was shown; look at it again",
        ),
        error @ PinError::Decided(_) => ApiError::conflict(error.to_string()),
        error => ApiError::internal(&error),
    };
    let registry = app.dispatcher.agents().registry();
    let pin_state = registry.compare_shown(&module, &looked_at.etag).await;
    if let PinState::Pending { .. } = pin_state.map_err(refused)? {
        let digest = module.digest.to_string();
        let draft = Draft::module_approved(&client.name, &module.slot, &digest);
        // Logged first: the audit log has every pin by a person.
        app.dispatcher.store().audit(draft).await?;
        let approved = registry.approve(&module, &looked_at.etag).await;
        approved.map_err(refused)?;
    }
    Ok(Json(describe(&module)))
}
