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
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use toolhold_admission::{WorkFailure, WorkKind};
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
/// Searches of kept bytes, which each request for bytes and each call with bytes in its result causes.
const SEARCHES: WorkKind = WorkKind::new("searches of bytes for secrets", 16);
/// Maximum bytes of a base64 text that is decoded and searched on the thread of its request. A longer one would hold up the
/// other tasks of that thread.
const BRIEF_BYTES: usize = 64 << 10;

impl App {
    /// Puts the bytes back into a result of a run, as the tool returned it. A reference stays where the bytes are gone, have a
    /// secret that the run hides, or could not be searched for one. All stay where there is no `room` for all bytes.
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
        let hidden = Arc::new(hidden_from(client, store, run).await?);
        let mut withheld = BTreeSet::new();
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
            if kept.contains_key(&digest) || withheld.contains(&digest) {
                continue;
            }
            let Some(base64) = store.blob(run, &digest).await? else {
                continue;
            };
            let base64: Arc<str> = base64.into();
            if hidden.is_off() {
                kept.insert(digest, base64);
                continue;
            }
            let decoded = DecodedBytes::of(&client.name, base64.clone(), &hidden).await;
            match decoded.map(|it| it.is_some_and(|it| it.has_secret)) {
                Ok(false) => {
                    kept.insert(digest, base64);
                }
                Ok(true) => {
                    withheld.insert(digest);
                }
                // The call was made, so the client gets its result with the reference.
                Err(failure) => {
                    tracing::warn!(%run, %failure, "bytes of a result could not be searched for secrets");
                    withheld.insert(digest);
                }
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

/// Kept bytes, decoded and searched.
struct DecodedBytes {
    bytes: Vec<u8>,
    /// True if the bytes are a text with a secret that the run hides.
    has_secret: bool,
}

impl DecodedBytes {
    /// Decodes a base64 text and searches its bytes: a long text on a blocking thread, where `key` has its share of the
    /// threads. Returns `None` if the text is not base64.
    ///
    /// # Errors
    /// No thread was free in time, or the search panicked.
    async fn of(
        key: &str,
        base64: impl AsRef<str> + Send + 'static,
        hidden: &Arc<SecretMask>,
    ) -> Result<Option<Self>, WorkFailure> {
        if base64.as_ref().len() <= BRIEF_BYTES {
            return Ok(Self::decode(base64.as_ref(), hidden));
        }
        let hidden = hidden.clone();
        let decode = move || Self::decode(base64.as_ref(), &hidden);
        SEARCHES.run(Some(key), decode).await
    }

    fn decode(base64: &str, hidden: &SecretMask) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(base64).ok()?;
        let has_secret = hidden.is_in(&bytes);
        Some(Self { bytes, has_secret })
    }
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
    let hidden = Arc::new(hidden_from(&client, store, run).await?);
    let decoded = DecodedBytes::of(&client.name, base64, &hidden).await?;
    let DecodedBytes { bytes, has_secret } = decoded.ok_or_else(missing)?;
    if has_secret {
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::pin::pin;
    use std::sync::mpsc;
    use tokio::runtime::Builder;
    use toolhold_admission::start_own;
    use toolhold_policy::pii::Kind;
    use toolhold_protocol::privacy::Privacy;

    const KEY: &str = "the key AKIAIOSFODNN7EXAMPLE";

    fn base64(text: &str) -> String {
        BASE64_STANDARD.encode(text)
    }

    /// The only blocking thread of the runtime is busy, so a search that ends meanwhile was made on the runtime's thread.
    #[test]
    fn long_bytes_are_searched_on_a_blocking_thread_and_short_ones_at_once() {
        let hidden = Arc::new(SecretMask::of(&Privacy {
            hide: [Kind::ApiKey].into(),
            ..Privacy::default()
        }));
        let long = format!("{}{KEY}", "some words ".repeat(BRIEF_BYTES / 8));
        let mut builder = Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (go_on, wait) = mpsc::channel::<()>();
            let mut busy = start_own(move || wait.recv());
            let short = DecodedBytes::of("ada", base64(KEY), &hidden).now_or_never();
            let short = short.unwrap().unwrap().unwrap();
            assert!(short.has_secret);
            assert_eq!(short.bytes, KEY.as_bytes());
            let mut search = pin!(DecodedBytes::of("ada", base64(&long), &hidden));
            let first = search.as_mut().now_or_never();
            assert!(first.is_none(), "the search held up the runtime");
            drop(go_on);
            let found = search.await.unwrap().unwrap();
            assert!(found.has_secret);
            assert_eq!(found.bytes, long.as_bytes());
            assert!(busy.done().await.unwrap().is_err());
            let open = Arc::default();
            let found = DecodedBytes::of("ada", base64(&long), &open).await;
            assert!(!found.unwrap().unwrap().has_secret);
            let none = DecodedBytes::of("ada", "no base64!", &hidden).await;
            assert!(none.unwrap().is_none());
        });
    }
}
