//! The agents, as OpenAI's API lists models.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::PathParam;
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolhold_runtime::agents::ServedAgents;
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
    /// Name of the agent.
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    description: String,
    /// The model that it uses; empty until its endpoint has answered.
    model: String,
}

impl ModelEntry {
    fn new(name: &str, description: &str, model: &str) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created: 0,
            owned_by: "toolhold",
            description: description.to_owned(),
            model: model.to_owned(),
        }
    }

    /// Sorted by name.
    fn all(offered: &ServedAgents) -> Vec<Self> {
        let ready = offered.ready.values();
        let ready = ready.map(|it| Self::new(&it.name, &it.description, it.model()));
        let waiting = offered.waiting.iter();
        let waiting = waiting.map(|(name, it)| Self::new(name, &it.description, ""));
        let mut all: Vec<Self> = ready.chain(waiting).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }
}

/// Lists the agents that the key may use.
#[utoipa::path(
    get, path = "/v1/models", tag = "agents", security(("key" = [])),
    responses((status = 200, body = ModelList), (status = "4XX", body = ErrorBody)),
)]
async fn list(State(app): State<App>, client: Client) -> Json<ModelList> {
    let mut data = ModelEntry::all(&app.dispatcher.agents().all());
    data.retain(|entry| client.may_use_agent(&entry.id));
    Json(ModelList {
        object: "list",
        data,
    })
}

/// Returns one agent.
#[utoipa::path(
    get, path = "/v1/models/{name}", tag = "agents", security(("key" = [])),
    params(("name" = String, Path)),
    responses((status = 200, body = ModelEntry), (status = "4XX", body = ErrorBody)),
)]
async fn one(
    State(app): State<App>,
    client: Client,
    PathParam(name): PathParam<String>,
) -> Result<Json<ModelEntry>, ApiError> {
    let all = ModelEntry::all(&app.dispatcher.agents().all());
    let mut seen = all.into_iter().filter(|it| client.may_use_agent(&it.id));
    seen.find(|entry| entry.id == name)
        .map(Json)
        .ok_or_else(|| {
            let missing = format_args!("agent {name:?}; /v1/models lists them");
            ApiError::not_found(missing).coded("model_not_found")
        })
}
