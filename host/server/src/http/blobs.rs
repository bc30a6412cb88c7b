//! Bytes that the record of a run refers to: images of its request, and bytes of its results.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::body::PathParam;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::runs::secrets_of;
use crate::secret_mask::SecretMask;
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
use toolhold_storage::Store;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(bytes_of_run))
}

/// The media type of what is no image. A browser must not show what a tool says is a page.
const OTHER: &str = "application/octet-stream";

impl App {
    /// Puts the bytes back into a result of a run, as the tool returned it. Where they are gone, have a secret that the run
    /// hides, or there is no `room` for all of them, references stay.
    ///
    /// # Errors
    /// The database failed, or the record cannot be read.
    pub async fn put_bytes_back(
        &self,
        client: &Client,
        run: Uuid,
        result: &mut Value,
        room: &mut UnsentBytes,
    ) -> Result<(), ApiError> {
        let mut named = Vec::new();
        blob::add_named(result, &mut named);
        if named.is_empty() {
            return Ok(());
        }
        let store = self.dispatcher.store();
        let hidden = hidden_from(client, store, run).await?;
        let mut kept: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut needed = room.bytes();
        for digest in named {
            let Some(size) = store.blob_bytes(run, &digest).await? else {
                continue;
            };
            // As it was read, as a value and as text: each time that it is named. And decoded.
            needed = needed.saturating_add(Image::memory(size).saturating_mul(3));
            needed = needed.saturating_add(size);
            if room.grow_to(needed).is_err() {
                return Ok(());
            }
            if !kept.contains_key(&digest)
                && let Some(base64) = store.blob(run, &digest).await?
                && !has_secret(&hidden, &base64)
            {
                kept.insert(digest, base64.into());
            }
        }
        blob::restore(result, &kept);
        Ok(())
    }
}

/// The secrets of a run that the client is not shown. The operator sees what was done.
async fn hidden_from(client: &Client, store: &Store, run: Uuid) -> Result<SecretMask, ApiError> {
    if client.is_admin() {
        return Ok(SecretMask::default());
    }
    secrets_of(store, run).await
}

fn has_secret(hidden: &SecretMask, base64: &str) -> bool {
    !hidden.is_off()
        && BASE64_STANDARD
            .decode(base64)
            .is_ok_and(|bytes| hidden.is_in(&bytes))
}

/// Returns bytes that the record of a run refers to by their digest, `sha256:…`. A text with a secret that the run hides is
/// returned to keys with `admin` alone.
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
    if hidden_from(&client, store, run).await?.is_in(&bytes) {
        return Err(ApiError::forbidden(
            "these bytes have a secret that the run hides; a key with the scope \"admin\" gets them",
        ));
    }
    let media_type = Image::media_type_of(&bytes).unwrap_or(OTHER);
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, "attachment"),
    ];
    Ok((headers, bytes).into_response())
}
