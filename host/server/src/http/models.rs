//! The agents, as OpenAI's API lists models.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::Place;
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use toolhold_runtime::agents::Offered;
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
    /// The model that it asks; empty until its endpoint has said which it has.
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

    /// In the order of their names.
    fn all(offered: &Offered) -> Vec<Self> {
        let ready = offered.ready.values();
        let ready = ready.map(|it| Self::new(&it.name, &it.description, it.model()));
        let waiting = offered.waiting.iter();
        let waiting = waiting.map(|(name, it)| Self::new(name, &it.description, ""));
        let mut all: Vec<Self> = ready.chain(waiting).collect();
        all.sort_by(|one, other| one.id.cmp(&other.id));
        all
    }
}

/// The agents that the key may use.
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
    let all = ModelEntry::all(&app.dispatcher.agents().all());
    let mut seen = all.into_iter().filter(|it| client.may_use_agent(&it.id));
    seen.find(|entry| entry.id == name)
        .map(Json)
        .ok_or_else(|| ApiError::not_found(format_args!("agent {name:?}; /v1/models lists them")))
}
