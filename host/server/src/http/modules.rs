//! Modules: what is loaded, what may run, and components that are brought here.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::{Body, Place};
use crate::http::error::{ApiError, ErrorBody};
use crate::http::upload;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_policy::Standing;
use toolhold_runtime::agents::OnBehalf;
use toolhold_runtime::module_report::describe;
use toolhold_sandbox::{ApproveError, Module};
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

/// The modules as they are loaded, and those that could not be.
///
/// A key without the scope `admin` is told of those that it may have an agent call: their name, version and
/// tools.
#[utoipa::path(
    get, path = "/v1/modules", tag = "modules", security(("key" = [])),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)),
)]
async fn modules(State(app): State<App>, client: Client) -> Result<Json<Value>, ApiError> {
    client.may(Scope::Run)?;
    let registry = app.dispatcher.agents().registry();
    if !client.is_admin() {
        let reach = Reach::of(&app, &client);
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

/// What a client may have called: by each of the agents that it may use, these tools and modules. Absent: all.
#[derive(Debug)]
struct Reach(Vec<Option<Vec<String>>>);

impl Reach {
    fn of(app: &App, client: &Client) -> Self {
        let behalf = OnBehalf {
            tools: client.tools().map(<[String]>::to_vec),
            ..OnBehalf::default()
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

    /// What is needed to use the module, and nothing of how it is run. None, if nothing of it can be used.
    fn offer(&self, module: &Module) -> Option<Value> {
        if let Standing::Pending { .. } = module.standing() {
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

/// One module: its tools, limits, what it asks for and what it may do.
///
/// A key without the scope `admin` is told its name, version and tools.
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
    let module = app.module(&name)?;
    if client.is_admin() {
        return Ok(Json(describe(&module)));
    }
    let offered = Reach::of(&app, &client).offer(&module);
    offered.map(Json).ok_or_else(|| no_module(&name))
}

/// Brings a component, which becomes the module of that name.
///
/// Only with the scope `admin`, and only where the configuration says `serve.module_upload = true`. The
/// component is compiled and asked for its tools first: one that could not be loaded changes nothing. It
/// brings no grant; what the operator granted to that name waits for approval, as does a component that
/// takes the place of another.
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
    Place(slot): Place<String>,
    headers: HeaderMap,
    body: axum::body::Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    client.may(Scope::Admin)?;
    let uploads = app.uploads.as_ref().ok_or_else(|| {
        ApiError::forbidden("modules cannot be brought here; the operator allows it with serve.module_upload = true")
    })?;
    let upload = upload::read(&app, &slot, &headers, body).await?;
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
    let changed = || {
        ApiError::conflict(
            "what the module is given, or says of its tools, is something else than what was shown; look at it again",
        )
    };
    if module.etag() != looked_at.etag {
        return Err(changed());
    }
    if let Standing::Pending { .. } = module.standing() {
        let registry = app.dispatcher.agents().registry();
        let digest = module.digest.to_string();
        let draft = Draft::module_approved(&client.name, &module.slot, &digest);
        // First: nothing is approved that the log does not have.
        app.dispatcher.store().audit(draft).await?;
        let approved = registry.approve(&module, &looked_at.etag).await;
        approved.map_err(|error| match error {
            ApproveError::Changed => changed(),
            error => ApiError::internal(&error),
        })?;
    }
    Ok(Json(describe(&module)))
}
