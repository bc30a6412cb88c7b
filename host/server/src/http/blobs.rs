//! Bytes that the record of a run refers to: images of its request, and bytes of its results.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::PathParam;
use crate::http::error::{ApiError, ErrorBody};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_connections::UnsentBytes;
use toolhold_protocol::blob;
use toolhold_protocol::image::Image;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(bytes_of_run))
}

/// The media type of what is no image. A browser must not show what a tool says is a page.
const OTHER: &str = "application/octet-stream";

impl App {
    /// Puts the bytes back into a result of a run, as the tool returned it. Where they are gone, or there is no `room` for
    /// all of them, references stay.
    ///
    /// # Errors
    /// The database failed.
    pub async fn put_bytes_back(
        &self,
        run: Uuid,
        result: &mut Value,
        room: &mut UnsentBytes,
    ) -> Result<(), ApiError> {
        let mut named = Vec::new();
        blob::add_named(result, &mut named);
        let store = self.dispatcher.store();
        let mut kept: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut needed = room.bytes();
        for digest in named {
            let Some(size) = store.blob_bytes(run, &digest).await? else {
                continue;
            };
            // As it was read, as a value and as text: each time that it is named.
            needed = needed.saturating_add(Image::memory(size).saturating_mul(3));
            if room.grow_to(needed).is_err() {
                return Ok(());
            }
            if !kept.contains_key(&digest)
                && let Some(base64) = store.blob(run, &digest).await?
            {
                kept.insert(digest, base64.into());
            }
        }
        blob::put_back(result, &kept);
        Ok(())
    }
}

/// Returns bytes that the record of a run refers to by their digest, `sha256:…`.
#[utoipa::path(
    get, path = "/v1/runs/{run}/blobs/{digest}", tag = "runs", security(("key" = [])),
    params(("run" = Uuid, Path), ("digest" = String, Path)),
    responses(
        (status = 200, content_type = "application/octet-stream", body = String),
        (status = "4XX", body = ErrorBody),
    ),
)]
async fn bytes_of_run(
    State(app): State<App>,
    client: Client,
    PathParam((run, digest)): PathParam<(Uuid, String)>,
) -> Result<Response, ApiError> {
    app.run(&client, run).await?;
    let store = app.dispatcher.store();
    let missing = || ApiError::not_found(format_args!("{digest:?} among the bytes of run {run}"));
    let size = store.blob_bytes(run, &digest).await?.ok_or_else(missing)?;
    // As base64, and decoded.
    let memory = Image::memory(size).saturating_add(size);
    client.memory.keep(memory)?;
    let base64 = store.blob(run, &digest).await?.ok_or_else(missing)?;
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| missing())?;
    let media_type = Image::media_type_of(&bytes).unwrap_or(OTHER);
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    Ok((headers, bytes).into_response())
}
