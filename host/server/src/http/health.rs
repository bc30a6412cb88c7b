//! Liveness and readiness of the server.

use crate::http::App;
use crate::http::error::ApiError;
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
    app.dispatcher.ready()?;
    // What was known may be old.
    app.dispatcher.store().has_keys().await?;
    let agents = app.dispatcher.agents();
    let waiting_agents = agents.all().waiting.len();
    let modules = agents.registry().modules();
    let load = app.dispatcher.load();
    let states = agents.endpoints();
    Ok(Json(Readiness {
        active: load.working,
        waiting: load.waiting,
        modules: modules.iter().filter(|it| it.pin_state().may_run()).count(),
        waiting_agents,
        resting_endpoints: states.iter().filter(|state| !state.is_asked()).count(),
    }))
}
