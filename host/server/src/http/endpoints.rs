//! The endpoints of models: whether they are asked at present, and having them asked again.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::PathParam;
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::time::Duration;
use toolhold_model::route::{Circuit, EndpointState};
use toolhold_storage::Scope;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(clear))
}

/// The endpoints that agents of this server ask.
#[derive(Debug, Serialize, ToSchema)]
struct EndpointList {
    data: Vec<ServedEndpoint>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ServedEndpoint {
    /// Its name in the configuration. Endpoints of an earlier configuration are listed while runs use them.
    name: String,
    /// Whether requests are sent to it.
    asked: bool,
    /// Its circuit breaker: `closed`, `open`, or `tried` while one request tries the endpoint.
    breaker: &'static str,
    /// Milliseconds until a request tries it, if the breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker_ms: Option<u64>,
    /// Milliseconds until a request probes it, if it asked for a rest. 0: one does, or the next one will.
    #[serde(skip_serializing_if = "Option::is_none")]
    rest_ms: Option<u64>,
    /// Milliseconds until the end of the rest that it asked for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked_rest_ms: Option<u64>,
    /// Requests that wait in the queue before it.
    waiting: usize,
}

impl From<EndpointState> for ServedEndpoint {
    fn from(state: EndpointState) -> Self {
        let (breaker, open) = match state.circuit {
            Circuit::Closed => ("closed", None),
            Circuit::Open(left) => ("open", Some(left)),
            Circuit::Tried => ("tried", None),
        };
        Self {
            asked: state.is_asked(),
            breaker,
            breaker_ms: open.map(millis),
            rest_ms: state.rest.map(|rest| millis(rest.left)),
            asked_rest_ms: state.rest.map(|rest| millis(rest.asked)),
            waiting: state.waiting,
            name: state.name,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Lists the endpoints that agents ask, with rests and circuit breakers.
#[utoipa::path(
    get, path = "/v1/endpoints", tag = "health", security(("key" = [])),
    responses((status = 200, body = EndpointList), (status = "4XX", body = ErrorBody)),
)]
async fn list(State(app): State<App>, client: Client) -> Result<Json<EndpointList>, ApiError> {
    client.may(Scope::Admin)?;
    let states = app.dispatcher.agents().endpoints().into_iter();
    Ok(Json(EndpointList {
        data: states.map(ServedEndpoint::from).collect(),
    }))
}

/// The outcome of clearing an endpoint.
#[derive(Debug, Serialize, ToSchema)]
struct ClearedEndpoint {
    /// Whether there was a rest, or an open breaker.
    cleared: bool,
}

/// Ends the rest of an endpoint and closes its circuit breaker, so that it is asked at once.
#[utoipa::path(
    post, path = "/v1/endpoints/{endpoint}/clear", tag = "health", security(("key" = [])),
    params(("endpoint" = String, Path, description = "Its name in the configuration")),
    responses((status = 200, body = ClearedEndpoint), (status = "4XX", body = ErrorBody)),
)]
async fn clear(
    State(app): State<App>,
    client: Client,
    PathParam(name): PathParam<String>,
) -> Result<Json<ClearedEndpoint>, ApiError> {
    client.may(Scope::Admin)?;
    match app.dispatcher.agents().clear_endpoint(&name) {
        Some(cleared) => Ok(Json(ClearedEndpoint { cleared })),
        None => Err(ApiError::not_found(format_args!(
            "endpoint {name:?} that an agent asks; GET /v1/endpoints lists them"
        ))),
    }
}
