//! Exports: a collection as lines of JSON, which `toolhold knowledge import` reads.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::PathParam;
use crate::http::error::{ApiError, ErrorBody};
use crate::rights::RightEnd;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use thiserror::Error;
use toolhold_storage::{Access, Scope, StoreError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(export))
}

/// The most bytes of a page of lines: 200 passages, as values and as text.
const PAGE_BYTES: u64 = 12 << 20;

/// The reason why an export breaks off.
#[derive(Debug, Error)]
enum ExportError {
    #[error(transparent)]
    Right(#[from] RightEnd),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns all that a collection holds as lines of JSON: of each document what describes it, and its passages.
///
/// `toolhold knowledge import` reads them into a collection. If the database fails, or the key is revoked or expires
/// meanwhile, the connection breaks off.
#[utoipa::path(
    get, path = "/v1/knowledge/collections/{collection}/export", tag = "knowledge", security(("key" = [])),
    params(("collection" = String, Path)),
    responses(
        (status = 200, content_type = "application/jsonl", body = String),
        (status = "4XX", body = ErrorBody),
    ),
)]
async fn export(
    State(app): State<App>,
    client: Client,
    PathParam(named): PathParam<String>,
) -> Result<Response, ApiError> {
    client.may(Scope::Run)?;
    let collection = app.collection(&client, &named, Access::Read).await?;
    let knowledge = &app.knowledge.configured.knowledge;
    let reader = knowledge.export(&client.name, &collection);
    // Read as the client takes it: one page is in memory, and counts until the next is asked for.
    let state = (reader, client.viewer(), None);
    let lines = stream::try_unfold(state, async |(mut reader, viewer, sent)| {
        drop(sent);
        let mut unsent = tokio::select! {
            biased;
            end = viewer.right.ended() => return Err(ExportError::Right(end)),
            unsent = viewer.share.wait(PAGE_BYTES) => unsent,
        };
        let lines = reader.next().await?;
        Ok(lines.map(|lines| {
            let bytes = lines.len() as u64;
            // More than was reserved has all its characters escaped: it counts as far as there is room.
            let _ = unsent.grow_to(bytes);
            unsent.shrink_to(bytes);
            (lines, (reader, viewer, Some(unsent)))
        }))
    });
    let kind = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((kind, Body::from_stream(lines)).into_response())
}
