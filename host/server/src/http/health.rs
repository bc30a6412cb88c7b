//! Liveness and readiness of the server.

use crate::http::App;
use crate::http::error::ApiError;
use crate::runs::RunRefusal;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(alive))
        .routes(routes!(ready))
}

/// The process is alive.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = String)))]
async fn alive() -> &'static str {
    "ok"
}

#[derive(Debug, Serialize, ToSchema)]
struct Readiness {
    /// Runs that have a place.
    active: usize,
    /// Runs that wait for a place.
    waiting: usize,
    /// Modules that may run.
    modules: usize,
    /// Agents whose endpoint has not answered yet; `/v1/models` names them.
    waiting_agents: usize,
    /// Endpoints that are left alone at present, because they asked for a rest or their circuit breaker is open;
    /// `/v1/endpoints` names them.
    resting_endpoints: usize,
}

/// Runs can be begun: the database can be written, an agent can run, every module that the configuration names is loaded or
/// refused, and the server is not about to stop.
/// Otherwise the error says why not.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, body = Readiness), (status = 503, body = crate::http::error::ErrorBody)),
)]
async fn ready(State(app): State<App>) -> Result<Json<Readiness>, ApiError> {
    if app.dispatcher.is_closing() {
        return Err(RunRefusal::Closing.into());
    }
    let store = app.dispatcher.store();
    store.writable()?;
    store.has_keys().await?;
    let agents = app.dispatcher.agents();
    let offered = agents.all();
    let waiting_agents = offered.waiting.len();
    if offered.ready.is_empty() {
        return Err(ApiError::unavailable(
            "no agent can run: none of their endpoints has answered yet; the server's log names them",
        ));
    }
    let modules = agents.registry().modules();
    if !app.dispatcher.startup().is_over() {
        return Err(ApiError::unavailable(format!(
            "modules are being loaded; {} are ready so far",
            modules.len()
        )));
    }
    let (active, waiting) = app.dispatcher.load();
    let states = agents.endpoints();
    Ok(Json(Readiness {
        active,
        waiting,
        modules: modules.iter().filter(|it| it.pin_state().may_run()).count(),
        waiting_agents,
        resting_endpoints: states.iter().filter(|state| !state.is_asked()).count(),
    }))
}
