//! Requests that are sent twice: under an `Idempotency-Key`, or again after their client left
//! ([`undelivered`](crate::http::undelivered)).

use crate::http::App;
use crate::http::agent::Prepared;
use crate::http::auth::{Client, digest};
use crate::http::error::ApiError;
use crate::http::undelivered::is_sent_again;
use crate::runs::{Viewer, Watcher};
use axum::http::HeaderMap;
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use toolhold_storage::{KeyUse, StoreError};
use uuid::Uuid;

impl App {
    /// The run that an earlier request with the same key began, or an equal one whose client left.
    pub async fn repeated(
        &self,
        client: &Client,
        headers: &HeaderMap,
        agent: &str,
        session: Option<Uuid>,
        body: &Value,
    ) -> Result<Option<Uuid>, ApiError> {
        if let Some(key) = idempotency_key(headers)? {
            let store = self.dispatcher.store();
            return Ok(store.run_of_request(&client.name, &key).await?);
        }
        if !is_sent_again(headers) {
            return Ok(None);
        }
        let request = request_digest(agent, session, body)?;
        Ok(self.take_up(client, &request).await)
    }

    /// The run of an equal request whose client is gone, which this request waits for from now on.
    pub async fn take_up(&self, client: &Client, request: &str) -> Option<Uuid> {
        let origin = &client.origin;
        if let Some(run) = origin.run() {
            return Some(run);
        }
        let digest = origin.digest(request);
        loop {
            let hold = self.undelivered.take_up(&origin.party, &digest).await?;
            // It may wait for its place, and get none.
            if hold.has_begun().await {
                let run = hold.run();
                origin.keep(hold);
                return Some(run);
            }
        }
    }

    /// Begins the run of the first request with this key, or waits for its begin and watches it.
    pub async fn begun_once(
        &self,
        key: &str,
        digest: &str,
        prepared: &Prepared,
        viewer: Viewer,
        left: &CancellationToken,
    ) -> Result<Watcher, ApiError> {
        let store = self.dispatcher.store();
        let owner = &prepared.behalf.owner;
        let run = prepared.request.id;
        let promise = store.promise(run);
        let end = Instant::now() + self.dispatcher.queue_patience() + BEGIN_GRACE;
        loop {
            match store.first_or_repeat(owner, key, digest, run).await? {
                KeyUse::Same(known) => match self.begin_of(owner, key, known, end, left).await? {
                    FirstBegin::Begun => {
                        return Ok(self.dispatcher.watch(known, None, viewer));
                    }
                    FirstBegin::Forgotten => {}
                    FirstBegin::Late => break,
                },
                KeyUse::Unsettled => {}
                KeyUse::Other => {
                    return Err(ApiError::conflict(
                        "this Idempotency-Key was used for another request",
                    ));
                }
                KeyUse::First => {
                    let begun = Box::pin(self.begun(prepared, viewer, left)).await;
                    if begun.is_err() {
                        store.forget_unbegun(owner, key, run).await?;
                    }
                    // Released last: other requests with the key may only then see that there is no run.
                    drop(promise);
                    return begun;
                }
            }
            if Instant::now() >= end {
                break;
            }
        }
        Err(ApiError::conflict(
            "the request that came first under this Idempotency-Key waits for its place; try again in a while",
        ))
    }

    /// Waits until the run that the first request with a key is about to begin has begun, in whichever process.
    async fn begin_of(
        &self,
        owner: &str,
        key: &str,
        run: Uuid,
        end: Instant,
        left: &CancellationToken,
    ) -> Result<FirstBegin, StoreError> {
        let store = self.dispatcher.store();
        let mut pause = FIRST_BEGIN_PAUSE;
        loop {
            if store.run(run).await?.is_some() {
                return Ok(FirstBegin::Begun);
            }
            if store.forget_broken(owner, key, run).await?
                || store.run_of_request(owner, key).await? != Some(run)
            {
                return Ok(FirstBegin::Forgotten);
            }
            if Instant::now() >= end {
                return Ok(FirstBegin::Late);
            }
            tokio::select! {
                is_open = self.dispatcher.waits(pause) => if !is_open {
                    return Ok(FirstBegin::Late);
                },
                () = left.cancelled() => return Ok(FirstBegin::Late),
            }
            pause = LONGEST_BEGIN_PAUSE.min(pause * 2);
        }
    }
}

/// The begin of the run of the first request with an Idempotency-Key, as an equal request finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstBegin {
    Begun,
    /// The first request began no run, so this one may be the first.
    Forgotten,
    /// The first request waits for longer than a run may, or the server stops.
    Late,
}

/// Poll intervals of a request that waits for the begin of an equal one, which may wait in another process.
const FIRST_BEGIN_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_BEGIN_PAUSE: Duration = Duration::from_millis(500);
/// Time that a run has to begin once it has its place.
const BEGIN_GRACE: Duration = Duration::from_secs(5);

/// Digest of a request. It covers agent and session: the same body is another request for another agent or session.
pub fn request_digest(
    agent: &str,
    session: Option<Uuid>,
    body: &Value,
) -> Result<String, ApiError> {
    let request = serde_json::to_vec(&(agent, session, body));
    Ok(digest(
        &request.map_err(|error| ApiError::internal(&error))?,
    ))
}

/// Longest Idempotency-Key, in characters.
const MAX_KEY: usize = 255;

pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > MAX_KEY {
        let message = format!("Idempotency-Key: 1 to {MAX_KEY} printable characters");
        return Err(ApiError::invalid(message));
    }
    Ok(Some(key.to_owned()))
}
