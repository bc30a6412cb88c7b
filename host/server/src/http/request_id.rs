//! The id of a request, by which its client and the access log name it.

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// The header of every answer with the id, which OpenAI's SDKs show.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The run that a request began or took up. It is among the request's extensions from the beginning, and empty until there
/// is one.
#[derive(Debug, Clone, Default)]
pub struct RunOfRequest(Arc<OnceLock<Uuid>>);

impl RunOfRequest {
    pub fn of(extensions: &mut Extensions) -> Self {
        extensions.get_or_insert_default::<Self>().clone()
    }

    pub fn note(&self, run: Uuid) {
        // A request has one run.
        let _ = self.0.set(run);
    }
}

/// Adds the id to the answer: that of the run, or one of its own.
pub async fn tell(mut request: Request, next: Next) -> Response {
    let run = RunOfRequest::of(request.extensions_mut());
    let mut response = next.run(request).await;
    insert(response.headers_mut(), run.0.get().copied());
    response
}

/// The header with an id, for an answer to a request that came to no route.
pub fn own() -> HeaderMap {
    let mut headers = HeaderMap::new();
    insert(&mut headers, None);
    headers
}

fn insert(headers: &mut HeaderMap, run: Option<Uuid>) {
    let id = run.unwrap_or_else(Uuid::now_v7);
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        headers.insert(REQUEST_ID, id);
    }
}
