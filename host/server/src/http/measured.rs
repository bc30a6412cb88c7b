//! Counts and times the server's answers, for its metrics.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use std::time::{Duration, Instant};
use toolhold_telemetry::{AnsweredRequest, Telemetry};

/// Records each request with its route and the status of its answer. What a client is free to choose, such as its path,
/// is in no metric.
pub async fn record(State(telemetry): State<Telemetry>, request: Request, next: Next) -> Response {
    let method = known(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let began = Instant::now();
    let response = next.run(request).await;
    telemetry.answered(&AnsweredRequest {
        method,
        route: route.as_ref().map(MatchedPath::as_str),
        status: response.status().as_u16(),
        took: began.elapsed(),
    });
    response
}

/// Records a client that was answered with 503 before its request came to a route, because there was no place for it. The
/// method is absent where no request was read.
pub fn refused(telemetry: &Telemetry, method: Option<&Method>, waited: Duration) {
    telemetry.answered(&AnsweredRequest {
        method: method.map_or(OTHER, known),
        route: None,
        status: StatusCode::SERVICE_UNAVAILABLE.as_u16(),
        took: waited,
    });
}

/// The conventions' name for methods that HTTP does not define.
const OTHER: &str = "_OTHER";

/// The method's name, if HTTP defines it; otherwise the conventions' name for others.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::TRACE => "TRACE",
        Method::CONNECT => "CONNECT",
        _ => OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_a_client_made_up_has_no_name() {
        assert_eq!(known(&Method::PATCH), "PATCH");
        let own = Method::from_bytes(b"BREW").unwrap();
        assert_eq!(known(&own), OTHER);
    }
}
