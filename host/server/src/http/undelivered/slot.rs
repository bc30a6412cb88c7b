//! The place where a request keeps the hold of its answer until the connection has taken the response.

use super::AnswerHold;
use crate::http::auth::digest;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::{Arc, Mutex, PoisonError};
use toolhold_connections::when_taken;
use uuid::Uuid;

/// Header of a final error: the request must not be sent again.
const SHOULD_RETRY: &str = "x-should-retry";

/// The header of OpenAI's SDKs that counts how often a request was sent before.
const RETRY_COUNT: &str = "x-stainless-retry-count";

/// The hold of a request's answer. It is among the request's extensions from the beginning and empty until the request
/// has begun a run, or has taken one up.
#[derive(Debug, Clone, Default)]
pub struct AnswerSlot(Arc<Mutex<Option<AnswerHold>>>);

/// The party and the path of a request, and the slot of its answer: what tells equal requests of a client.
#[derive(Debug, Clone)]
pub struct RequestOrigin {
    /// The key, or the address where there is no key.
    pub party: Arc<str>,
    path: Arc<str>,
    slot: AnswerSlot,
}

/// Empties a slot when the request is over or its client has left, although others may have a copy of the slot.
struct SlotRelease(AnswerSlot);

impl AnswerSlot {
    fn put(&self, hold: AnswerHold) {
        let before = self.with(|slot| slot.replace(hold));
        // Outside of the lock: a hold locks the record of answers when it is dropped.
        drop(before);
    }

    fn take(&self) -> Option<AnswerHold> {
        self.with(Option::take)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Option<AnswerHold>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for SlotRelease {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

impl RequestOrigin {
    pub fn new(party: Arc<str>, path: &str, extensions: &mut Extensions) -> Self {
        Self {
            party,
            path: path.into(),
            slot: extensions.get_or_insert_default::<AnswerSlot>().clone(),
        }
    }

    /// Digest of a request to this path, of which `request` is the digest of the rest.
    pub fn digest(&self, request: &str) -> String {
        // Neither of them has a line break.
        digest(format!("{request}\n{}", self.path).as_bytes())
    }

    /// Keeps the hold until the connection has taken the response.
    pub fn keep(&self, hold: AnswerHold) {
        self.slot.put(hold);
    }

    /// The run whose answer the request waits for.
    pub fn run(&self) -> Option<Uuid> {
        self.slot.with(|slot| slot.as_ref().map(AnswerHold::run))
    }

    /// Notes that the answer is a stream of events with ids.
    pub fn has_ids(&self) {
        self.slot.with(|slot| {
            if let Some(hold) = slot {
                hold.has_ids();
            }
        });
    }
}

/// True if a client says that it has sent the request before.
pub fn is_sent_again(headers: &HeaderMap) -> bool {
    let count = headers.get(RETRY_COUNT);
    let count = count.and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    count.is_some_and(|count| count > 0)
}

/// Middleware that notes when the connection has taken the answer of a run, or that the client left before.
pub async fn track(mut request: Request, next: Next) -> Response {
    let slot = request.extensions_mut();
    let slot = slot.get_or_insert_default::<AnswerSlot>().clone();
    let release = SlotRelease(slot);
    let response = next.run(request).await;
    let Some(hold) = release.0.take() else {
        return response;
    };
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if is_error && !response.headers().contains_key(SHOULD_RETRY) {
        // It is not the outcome of the run, and the request may be sent again.
        drop(hold);
        return response;
    }
    response.map(|body| when_taken(body, move || hold.delivered()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_request_is_sent_again_if_its_count_says_so() {
        for (count, is_again) in [
            (None, false),
            (Some("0"), false),
            (Some("1"), true),
            (Some("2"), true),
            (Some("-1"), false),
            (Some("often"), false),
            (Some(""), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(count) = count {
                headers.insert(RETRY_COUNT, HeaderValue::from_static(count));
            }
            assert_eq!(is_sent_again(&headers), is_again, "{count:?}");
        }
    }

    #[test]
    fn equal_requests_to_two_paths_have_two_digests() {
        let of = |path: &str| RequestOrigin::new("ada".into(), path, &mut Extensions::new());
        let (chat, agent) = (of("/v1/chat/completions"), of("/v1/agent"));
        assert_eq!(chat.digest("a"), of("/v1/chat/completions").digest("a"));
        assert_ne!(chat.digest("a"), agent.digest("a"));
        assert_ne!(chat.digest("a"), chat.digest("b"));
    }
}
