//! The agents, as OpenAI's API lists models.

use crate::serve::Agent;
use crate::serve::http::App;
use crate::serve::http::auth::Client;
use crate::serve::http::body::Place;
use crate::serve::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(one))
}

#[derive(Debug, Serialize, ToSchema)]
struct ModelList {
    object: &'static str,
    data: Vec<ModelEntry>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ModelEntry {
    /// The agent's name.
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    description: String,
    /// The model that it asks.
    model: String,
}

impl ModelEntry {
    fn of(agent: &Agent) -> Self {
        Self {
            id: agent.name.clone(),
            object: "model",
            created: 0,
            owned_by: "toolhold",
            description: agent.description.clone(),
            model: agent.model().to_owned(),
        }
    }
}

/// The agents that the key may use.
#[utoipa::path(
    get, path = "/v1/models", tag = "agents", security(("key" = [])),
    responses((status = 200, body = ModelList), (status = "4XX", body = ErrorBody)),
)]
async fn list(State(app): State<App>, client: Client) -> Json<ModelList> {
    let agents = app.dispatcher.agents().all();
    let agents = agents.values();
    Json(ModelList {
        object: "list",
        data: agents
            .filter(|agent| client.may_use_agent(&agent.name))
            .map(|agent| ModelEntry::of(agent))
            .collect(),
    })
}

/// One agent.
#[utoipa::path(
    get, path = "/v1/models/{name}", tag = "agents", security(("key" = [])),
    params(("name" = String, Path)),
    responses((status = 200, body = ModelEntry), (status = "4XX", body = ErrorBody)),
)]
async fn one(
    State(app): State<App>,
    client: Client,
    Place(name): Place<String>,
) -> Result<Json<ModelEntry>, ApiError> {
    Ok(Json(ModelEntry::of(app.agent(&client, &name)?.as_ref())))
}
