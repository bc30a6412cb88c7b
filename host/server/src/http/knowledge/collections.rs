//! Collections: creating, listing, settling and deleting them.

use super::check_name;
use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::{Body, PathParam};
use crate::http::error::{ApiError, ErrorBody};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};
use std::num::NonZeroU32;
use toolhold_knowledge::CollectionPath;
use toolhold_storage::{Collection, CollectionCreation, Membership, MembershipState, Scope};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(show, settle, delete))
}

/// Maximum number of collections that a key makes, and that a search names.
pub const MAX_COLLECTIONS: u32 = 100;
/// Collections that are listed at most: the key's own, and those that are shared with it.
const MAX_LISTED: u32 = 1_000;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "handbook", "keep_days": 365}))]
struct NewCollection {
    /// Lower case letters, digits and `_`, starting with a letter.
    #[schema(max_length = 48, pattern = "^[a-z][a-z0-9_]*$")]
    name: String,
    /// Days after which a document is deleted; absent: never.
    #[schema(value_type = Option<u32>, minimum = 1)]
    keep_days: Option<NonZeroU32>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"keep_days": 30}))]
struct CollectionChange {
    /// Days after which a document is deleted; `null`: never; absent: as before.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    #[expect(clippy::option_option, reason = "null and an absent member differ")]
    keep_days: Option<Option<NonZeroU32>>,
}

/// Reads a member of the body, `null` included; serde does not call this for an absent member.
fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// A collection as the client may use it.
#[derive(Debug, Serialize, ToSchema)]
pub struct CollectionBody {
    /// `NAME`, or `OWNER/NAME` of another key.
    name: String,
    /// What this key may do: `own`, `write` or `read`.
    access: &'static str,
    /// True if another key shares it and this one has not accepted that: it is searched only by its name. Absent: no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    offered: bool,
    documents: u64,
    passages: u64,
    /// Bytes of the documents' texts.
    bytes: u64,
    /// The model of the passages' vectors; absent: they are found by words alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<String>,
    /// Days after which a document is deleted; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    keep_days: Option<NonZeroU32>,
    /// Milliseconds since 1970 (UTC).
    created_ms: u64,
}

impl CollectionBody {
    fn of(client: &Client, collection: &Collection, membership: Membership) -> Self {
        Self {
            name: CollectionPath::of(&client.name, collection),
            access: match membership.state {
                MembershipState::Owner => "own",
                MembershipState::Accepted | MembershipState::Offered => membership.access.name(),
            },
            offered: membership.state == MembershipState::Offered,
            documents: collection.documents,
            passages: collection.passages,
            bytes: collection.bytes,
            vectors: collection.vectors.as_ref().map(|it| it.model.clone()),
            keep_days: collection.keep_days,
            created_ms: collection.created_ms,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct CollectionList {
    /// The key's own first, then those that it accepted, then those that are offered to it.
    collections: Vec<CollectionBody>,
}

/// Creates an empty collection.
///
/// It belongs to the key. Its passages have vectors if the server has a model.
#[utoipa::path(
    post, path = "/v1/knowledge/collections", tag = "knowledge", security(("key" = [])),
    request_body = NewCollection,
    responses((status = 201, body = CollectionBody), (status = "4XX", body = ErrorBody)),
)]
async fn create(
    State(app): State<App>,
    client: Client,
    Body { said: new, .. }: Body<NewCollection>,
) -> Result<(StatusCode, Json<CollectionBody>), ApiError> {
    client.may(Scope::Run)?;
    check_name(&new.name)?;
    let store = app.dispatcher.store();
    let vectors = app.knowledge.configured.vectors.as_ref();
    let creation = store
        .create_collection(&client.name, &new.name, vectors, Some(MAX_COLLECTIONS))
        .await?;
    match creation {
        CollectionCreation::Created => {}
        CollectionCreation::NameTaken => {
            return Err(ApiError::conflict(format!(
                "there is a collection {:?} already",
                new.name
            )));
        }
        CollectionCreation::Full => {
            return Err(ApiError::conflict(format!(
                "this key has {MAX_COLLECTIONS} collections, and may have no more: delete one"
            )));
        }
    }
    let (mut collection, membership) = app.readable(&client, &new.name).await?;
    if new.keep_days.is_some() {
        store
            .keep_documents_for(&client.name, &collection, new.keep_days)
            .await?;
        collection.keep_days = new.keep_days;
    }
    let body = CollectionBody::of(&client, &collection, membership);
    Ok((StatusCode::CREATED, Json(body)))
}

/// Lists the collections that the key may use: its own, those of others that it accepted, and those that are offered to
/// it; at most 1000.
#[utoipa::path(
    get, path = "/v1/knowledge/collections", tag = "knowledge", security(("key" = [])),
    responses((status = 200, body = CollectionList), (status = "4XX", body = ErrorBody)),
)]
async fn list(State(app): State<App>, client: Client) -> Result<Json<CollectionList>, ApiError> {
    client.may(Scope::Run)?;
    let store = app.dispatcher.store();
    let found = store.collections(&client.name, MAX_LISTED).await?;
    let collections = found
        .iter()
        .map(|(collection, membership)| CollectionBody::of(&client, collection, *membership));
    Ok(Json(CollectionList {
        collections: collections.collect(),
    }))
}

/// Returns one collection.
#[utoipa::path(
    get, path = "/v1/knowledge/collections/{collection}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path, description = "NAME, or OWNER/NAME, in which the slash is written %2F")),
    responses((status = 200, body = CollectionBody), (status = "4XX", body = ErrorBody)),
)]
async fn show(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
) -> Result<Json<CollectionBody>, ApiError> {
    client.may(Scope::Run)?;
    let (collection, membership) = app.readable(&client, &named).await?;
    Ok(Json(CollectionBody::of(&client, &collection, membership)))
}

/// Settles after how many days a document is deleted. Its owner alone does.
#[utoipa::path(
    patch, path = "/v1/knowledge/collections/{collection}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path)),
    request_body = CollectionChange,
    responses((status = 200, body = CollectionBody), (status = "4XX", body = ErrorBody)),
)]
async fn settle(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
    Body { said: change, .. }: Body<CollectionChange>,
) -> Result<Json<CollectionBody>, ApiError> {
    client.may(Scope::Run)?;
    let (mut collection, membership) = app.own_membership(&client, &named).await?;
    let store = app.dispatcher.store();
    if let Some(keep_days) = change.keep_days {
        let is_there = store.keep_documents_for(&client.name, &collection, keep_days);
        if !is_there.await? {
            return Err(ApiError::conflict("the collection was deleted meanwhile"));
        }
        collection.keep_days = keep_days;
    }
    let body = CollectionBody::of(&client, &collection, membership);
    Ok(Json(body))
}

/// Deletes a collection with its documents. Its owner alone does.
///
/// It is found no more at once; what it held is removed from the database soon after.
#[utoipa::path(
    delete, path = "/v1/knowledge/collections/{collection}", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path)),
    responses((status = 204), (status = "4XX", body = ErrorBody)),
)]
async fn delete(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
) -> Result<StatusCode, ApiError> {
    client.may(Scope::Run)?;
    let collection = app.own_collection(&client, &named).await?;
    let store = app.dispatcher.store();
    store.delete_collection(&client.name, &collection).await?;
    app.knowledge.was_deleted();
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_without_keep_days_is_told_from_one_that_ends_them() {
        let keep_days = |body: &str| serde_json::from_str::<CollectionChange>(body);
        for (body, expected) in [
            ("{}", None),
            (r#"{"keep_days": null}"#, Some(None)),
            (r#"{"keep_days": 3}"#, Some(NonZeroU32::new(3))),
        ] {
            assert_eq!(keep_days(body).unwrap().keep_days, expected, "{body}");
        }
        assert!(keep_days(r#"{"keep_days": 0}"#).is_err());
        assert!(keep_days(r#"{"days": 3}"#).is_err());
    }
}
