//! Sharing: the owner of a collection offers it to other keys, to be read or written, and they accept, refuse or leave it.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam};
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use toolhold_policy::is_name;
use toolhold_storage::{Access, Collection, MembershipState, Scope};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(share, unshare))
        .routes(routes!(accept, leave))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"access": "read"}))]
struct ShareBody {
    access: ShareAccess,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ShareAccess {
    /// Search it, and read its documents.
    Read,
    /// Add and delete documents, too.
    Write,
}

impl From<ShareAccess> for Access {
    fn from(access: ShareAccess) -> Self {
        match access {
            ShareAccess::Read => Self::Read,
            ShareAccess::Write => Self::Write,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct ShareItem {
    /// Name of the key.
    key: String,
    /// `read` or `write`.
    access: &'static str,
    /// True if the key accepted the share; absent: it has not answered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    accepted: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct ShareList {
    shares: Vec<ShareItem>,
}

/// Lists the keys that a collection is shared with. Its owner alone sees them.
#[utoipa::path(
    get, path = "/v1/knowledge/collections/{collection}/shares", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path)),
    responses((status = 200, body = ShareList), (status = "4XX", body = ErrorBody)),
)]
async fn list(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
) -> Result<Json<ShareList>, ApiError> {
    client.may(Scope::Run)?;
    let collection = app.own_collection(&client, &named).await?;
    let shared = app.dispatcher.store().shared_with(&collection).await?;
    let shares = shared.into_iter().map(|it| ShareItem {
        key: it.grantee,
        access: it.access.name(),
        accepted: it.is_accepted,
    });
    Ok(Json(ShareList {
        shares: shares.collect(),
    }))
}

/// Shares a collection with another key, which names it `OWNER/NAME`. Its owner alone does.
///
/// It is an offer until that key accepts it. A collection is shared with at most 100 keys; one key has at most 10
/// unanswered offers of an owner, and 100 of all owners. Whether there is a key of this name is not told.
#[utoipa::path(
    put, path = "/v1/knowledge/collections/{collection}/shares/{key}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path), ("key" = String, Path, description = "Name of the key")),
    request_body = ShareBody,
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn share(
    State(app): State<App>,
    client: Client,
    PathParam((named, key)): PathParam<(String, String)>,
    Body { said: wanted, .. }: Body<ShareBody>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let collection = app.own_collection(&client, &named).await?;
    if !is_name(&key) {
        return Err(ApiError::invalid(
            "a key's name is lower case letters, digits and _, at most 48, starting with a letter",
        ));
    }
    if key == client.name {
        return Err(ApiError::invalid("the collection is this key's own"));
    }
    let store = app.dispatcher.store();
    store
        .share_collection(&collection, &key, wanted.access.into())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shares a collection with a key no more. Its owner alone does.
#[utoipa::path(
    delete, path = "/v1/knowledge/collections/{collection}/shares/{key}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path), ("key" = String, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn unshare(
    State(app): State<App>,
    client: Client,
    PathParam((named, key)): PathParam<(String, String)>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let collection = app.own_collection(&client, &named).await?;
    let store = app.dispatcher.store();
    let not_shared = || ApiError::not_found("share with such a key");
    if !is_name(&key) || !store.unshare_collection(&collection, &key).await? {
        return Err(not_shared());
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Accepts a collection that another key shares with this one: searches that name no collections look in it from now on.
///
/// A key accepts at most 100.
#[utoipa::path(
    put, path = "/v1/knowledge/collections/{collection}/share", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path, description = "OWNER/NAME, in which the slash is written %2F")),
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn accept(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let collection = shared(&app, &client, &named).await?;
    let store = app.dispatcher.store();
    if store.accept_share(&client.name, &collection).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(not_shared(&named))
}

/// Refuses a collection that another key shares with this one, or leaves it: this key uses it no more.
///
/// Its owner may share it again, which is an offer again.
#[utoipa::path(
    delete, path = "/v1/knowledge/collections/{collection}/share", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn leave(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let collection = shared(&app, &client, &named).await?;
    let store = app.dispatcher.store();
    if store.leave_share(&client.name, &collection).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(not_shared(&named))
}

/// The collection `named` of another key, which shares it with the client.
async fn shared(app: &App, client: &Client, named: &str) -> Result<Collection, ApiError> {
    let (collection, membership) = app.readable(client, named).await?;
    if membership.state == MembershipState::Owner {
        return Err(ApiError::invalid(
            "the collection is this key's own: DELETE of the collection deletes it",
        ));
    }
    Ok(collection)
}

/// Also where the share ended meanwhile.
fn not_shared(named: &str) -> ApiError {
    ApiError::not_found(format_args!(
        "collection {named:?}; /v1/knowledge/collections lists them"
    ))
}
