//! Liveness and readiness of the server.

use crate::http::App;
use crate::http::error::{ApiError, ErrorDetail};
use crate::runs::{PartReport, PartState, ServerHealth};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router, routing};
use jiff::Timestamp;
use serde::Serialize;
use std::time::SystemTime;
use toolhold_telemetry::RunLoad;
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

/// Whether runs can be begun, and the state of each part of the server.
#[derive(Debug, Serialize, ToSchema)]
struct Readiness {
    /// Whether runs can be begun.
    ready: bool,
    /// Runs that have a place.
    active: usize,
    /// Runs that wait for a place.
    waiting: usize,
    /// Modules that may run.
    modules: usize,
    /// Agents whose endpoint did not answer when it was asked for its model; `/v1/models` names them.
    waiting_agents: usize,
    /// Endpoints that are left alone at present, because they asked for a rest or their circuit breaker is open;
    /// `/v1/endpoints` names them.
    resting_endpoints: usize,
    checks: ReadinessChecks,
    /// The first reason why no run can be begun. Absent if the server is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorDetail>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ReadinessChecks {
    /// The server takes new runs, and is not about to stop.
    serving: CheckedPart,
    /// The database can be read and written.
    database: CheckedPart,
    /// Agents have an endpoint that answers.
    endpoints: CheckedPart,
    /// Modules are loaded and approved, and MCP servers have listed their tools.
    modules: CheckedPart,
    /// The disk of the state folder has room.
    disk: CheckedPart,
}

#[derive(Debug, Serialize, ToSchema)]
struct CheckedPart {
    /// `ok`; `degraded`: runs can be begun all the same; `failed`: none can.
    state: &'static str,
    /// Time since which it is so, as RFC 3339 writes it (UTC).
    since: String,
    /// One sentence about it.
    detail: String,
}

impl From<PartReport> for CheckedPart {
    fn from(report: PartReport) -> Self {
        Self {
            state: report.state.name(),
            since: rfc3339(report.since),
            detail: report.detail,
        }
    }
}

impl Readiness {
    fn of(health: ServerHealth, load: RunLoad, error: Option<ErrorDetail>) -> Self {
        Self {
            ready: error.is_none(),
            active: load.working,
            waiting: load.waiting,
            modules: health.ready_modules,
            waiting_agents: health.waiting_agents,
            resting_endpoints: health.resting_endpoints,
            checks: ReadinessChecks {
                serving: health.serving.into(),
                database: health.database.into(),
                endpoints: health.endpoints.into(),
                modules: health.modules.into(),
                disk: health.disk.into(),
            },
            error,
        }
    }
}

/// The time in whole milliseconds, as RFC 3339 writes it.
fn rfc3339(time: SystemTime) -> String {
    let now = Timestamp::try_from(time).unwrap_or_default();
    let whole = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or_default();
    whole.to_string()
}

/// Runs can be begun: the database can be written, an endpoint of an agent has answered, every module that the
/// configuration names is loaded or refused and one of them may run, every MCP server that offers tools to runs has listed
/// them or failed, and the server is not about to stop.
/// Otherwise `error` says why not. `checks` has the state of each part in both cases.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, body = Readiness), (status = 503, body = Readiness)),
)]
async fn ready(State(app): State<App>) -> Response {
    let health = app.dispatcher.health();
    let load = app.dispatcher.load();
    match health.obstacle.map(ApiError::from) {
        None => Json(Readiness::of(health, load, None)).into_response(),
        Some(refusal) => {
            let error = refusal.body().error;
            refusal.respond(&Readiness::of(health, load, Some(error)))
        }
    }
}

/// The server while its database is not there yet: it is alive, and has nothing else to offer.
pub fn waiting_router(since: SystemTime) -> Router {
    let since = rfc3339(since);
    let absent = move || {
        let since = since.clone();
        async move { DatabaseAwaited::new(since).respond() }
    };
    Router::new()
        .route("/healthz", routing::get(alive))
        .fallback(absent)
}

/// The answer to everything while the database is awaited. It has the members of [`Readiness`] that are known.
#[derive(Debug, Serialize)]
struct DatabaseAwaited {
    ready: bool,
    checks: DatabaseCheck,
    error: ErrorDetail,
}

#[derive(Debug, Serialize)]
struct DatabaseCheck {
    database: CheckedPart,
}

impl DatabaseAwaited {
    const REASON: &str = "the server waits for its database";

    fn new(since: String) -> Self {
        Self {
            ready: false,
            checks: DatabaseCheck {
                database: CheckedPart {
                    state: PartState::Failed.name(),
                    since,
                    detail: Self::REASON.to_owned(),
                },
            },
            error: Self::refusal().body().error,
        }
    }

    fn refusal() -> ApiError {
        ApiError::unavailable(format!("{}; try again in a while", Self::REASON))
    }

    fn respond(&self) -> Response {
        Self::refusal().respond(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_utc_in_milliseconds() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20.123Z");
    }
}
