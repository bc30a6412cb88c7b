//! The access log: a line for each request, at `debug`.

use crate::http::party::KeyName;
use crate::http::request_id::REQUEST_ID;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use std::time::Instant;
use toolhold_connections::source;
use tracing::Level;

/// The target of these lines, by which `TOOLHOLD_LOG` turns on them alone.
const ACCESS: &str = "toolhold::access";

/// Characters of a path that are logged: longer ones are no paths of this API.
const MAX_PATH_CHARS: usize = 200;

/// Logs a request when its answer begins. What follows the path's question mark is left out: it may be a text of the
/// client's.
pub async fn log(mut request: Request, next: Next) -> Response {
    if !tracing::enabled!(target: ACCESS, Level::DEBUG) {
        return next.run(request).await;
    }
    let began = Instant::now();
    let key = request.extensions_mut();
    let key = key.get_or_insert_default::<KeyName>().clone();
    let source = source(request.extensions());
    let method = request.method().clone();
    let path: String = request.uri().path().chars().take(MAX_PATH_CHARS).collect();
    let response = next.run(request).await;
    let id = response.headers().get(REQUEST_ID);
    let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    tracing::debug!(
        target: ACCESS,
        request = id,
        key = key.get(),
        %source,
        %method,
        path,
        status = response.status().as_u16(),
        duration_ms = began.elapsed().as_secs_f64() * 1e3,
        "a request was answered"
    );
    response
}
