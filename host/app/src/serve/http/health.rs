//! Whether the server is there, and whether it can work.

use crate::serve::http::App;
use crate::serve::http::error::ApiError;
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

/// The process is there.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = String)))]
async fn alive() -> &'static str {
    "ok"
}

#[derive(Debug, Serialize, ToSchema)]
struct Ready {
    /// Runs that work.
    active: usize,
    /// Runs that wait for a place.
    waiting: usize,
    /// Modules that may run.
    modules: usize,
}

/// The database answers, so that runs can be begun.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, body = Ready), (status = 503, body = crate::serve::http::error::ErrorBody)),
)]
async fn ready(State(app): State<App>) -> Result<Json<Ready>, ApiError> {
    app.dispatcher.store().has_keys().await?;
    let (active, waiting) = app.dispatcher.load();
    let modules = app.dispatcher.agents().registry().modules();
    Ok(Json(Ready {
        active,
        waiting,
        modules: modules.iter().filter(|it| it.standing().may_run()).count(),
    }))
}
