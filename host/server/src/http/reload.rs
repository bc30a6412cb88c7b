//! The configuration, read again because an operator asks for it.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::error::{ApiError, ErrorBody};
use axum::extract::State;
use axum::http::StatusCode;
use toolhold_storage::Scope;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(reload))
}

/// Reads the files of the configuration again as they are, as SIGHUP does.
///
/// Files that change are read anyway. This confirms what was held back: files that set nothing any more, or take away the
/// endpoint of agents or all grants. The server's log tells the outcome.
#[utoipa::path(
    post, path = "/v1/reload", tag = "health", security(("key" = [])),
    responses((status = 202), (status = "4XX", body = ErrorBody)),
)]
async fn reload(State(app): State<App>, client: Client) -> Result<StatusCode, ApiError> {
    client.may(Scope::Admin)?;
    app.dispatcher.ask_reload();
    Ok(StatusCode::ACCEPTED)
}
