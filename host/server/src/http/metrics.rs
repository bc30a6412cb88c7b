//! Metrics of all runs, for Prometheus.

use crate::http::App;
use crate::http::auth::Scraper;
use crate::http::error::{ApiError, ErrorBody};
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use toolhold_telemetry::ScrapeError;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Returns metrics in Prometheus' text format. If the server requires keys, the key needs the scope `metrics` or `admin`.
#[utoipa::path(
    get, path = "/metrics", tag = "health", security(("key" = [])),
    responses((status = 200, content_type = "text/plain", body = String), (status = "4XX", body = ErrorBody)),
)]
async fn metrics(
    State(app): State<App>,
    _: Scraper,
) -> Result<([(HeaderName, &'static str); 1], String), ApiError> {
    let scraped = app.dispatcher.telemetry().scraped().await;
    let text = scraped.map_err(|error| match error {
        ScrapeError::Work(failure) => ApiError::from(failure),
        error @ ScrapeError::Format(_) => ApiError::internal(&error),
    })?;
    Ok(([(CONTENT_TYPE, prometheus::TEXT_FORMAT)], text))
}
