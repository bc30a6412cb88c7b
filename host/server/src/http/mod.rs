//! The HTTP API. One resource a file; the OpenAPI description lists every handler, because a handler is only
//! reachable by its route in it.

mod access;
mod agent;
mod argument_pieces;
mod attached;
mod audit;
mod auth;
mod auth_throttle;
mod beside_calls;
mod blobs;
mod body;
mod bounds;
mod chat;
mod choice;
mod client_tools;
mod endpoint_failure;
mod endpoints;
mod error;
mod event_redactor;
mod events;
mod health;
mod knowledge;
mod measured;
mod media;
mod messages;
mod metrics;
mod models;
mod modules;
mod page;
#[cfg(test)]
mod page_characters;
mod party;
mod paths;
mod refusals;
mod reload;
mod repetition;
mod reply_thoughts;
mod request_id;
mod request_memory;
mod requests;
mod responses;
mod result_matcher;
mod run_status;
mod runs;
mod sampling;
mod sessions;
mod streams;
mod task;
mod tool_choice;
mod tools;
mod turn;
mod undelivered;
mod unsent;
mod upload;
mod waiting_page;

pub use auth::digest;
pub use health::waiting_router;

use crate::knowledge::ServedKnowledge;
use crate::runs::Dispatcher;
use crate::settings::{Keys, Settings};
use auth_throttle::AuthThrottle;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use axum::{Router, middleware};
use error::ApiError;
use std::sync::Arc;
use toolhold_admission::KeyedRate;
use toolhold_connections::{
    PageGuard, RefusalObserver, Settings as ConnectionSettings, UnsentAnswers,
};
use toolhold_runtime::config::Configuration;
use toolhold_telemetry::Telemetry;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use undelivered::UndeliveredAnswers;
use upload::Uploads;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;

/// State that all handlers share.
#[derive(Debug, Clone)]
pub struct App {
    pub dispatcher: Dispatcher,
    /// Requests of each key, by its name.
    pub key_rate: Arc<KeyedRate<String>>,
    pub keys: Keys,
    /// Most bytes of a body that is JSON.
    pub body_bytes: u64,
    /// The server listens on loopback only.
    pub is_local: bool,
    pub auth_throttle: Arc<AuthThrottle>,
    /// Refuses requests of other sites' pages where the server requires no keys.
    pub guard: Arc<PageGuard>,
    /// Absent if clients may not upload modules.
    pub uploads: Option<Arc<Uploads>>,
    pub knowledge: Arc<ServedKnowledge>,
    /// Answers that clients have not read.
    pub unsent: UnsentAnswers,
    /// Runs whose answers were not delivered.
    pub undelivered: UndeliveredAnswers,
}

impl App {
    pub fn new(
        dispatcher: Dispatcher,
        knowledge: Arc<ServedKnowledge>,
        config: &Configuration,
        serve: &Settings,
    ) -> Self {
        let uploads = || Arc::new(Uploads::new(config.uploads_folder()));
        let unsent = UnsentAnswers::new(serve.unsent_bytes);
        let measured = unsent.clone();
        dispatcher
            .telemetry()
            .watch_unsent(move || measured.taken());
        Self {
            dispatcher,
            knowledge,
            uploads: serve.module_upload.then(uploads),
            key_rate: Arc::new(KeyedRate::per_minute(serve.key_requests_per_minute.into())),
            keys: serve.keys,
            body_bytes: serve.body_bytes as u64,
            unsent,
            undelivered: UndeliveredAnswers::new(serve.on_disconnect, serve.disconnect_wait()),
            is_local: serve.listen.ip().is_loopback(),
            auth_throttle: Arc::new(AuthThrottle::new()),
            guard: Arc::new(PageGuard::new(true, &[], &serve.origins)),
        }
    }
}

/// Connections on which health and administration are served while all others are busy: a few probes and a person.
const RESERVED_CONNECTIONS: usize = 16;

/// Bounds of the API's connections. A client without a place gets an error like every other one, which is in the metrics,
/// too.
pub fn connection_settings(telemetry: &Telemetry, connections: usize) -> ConnectionSettings {
    let telemetry = telemetry.clone();
    let busy = ApiError::unavailable(
        "all connections of this server are busy, and nothing was done with the request; try again in a while",
    );
    ConnectionSettings {
        reserve: RESERVED_CONNECTIONS,
        is_reserved: is_administration,
        busy_body: serde_json::to_vec(&busy.body()).unwrap_or_default().into(),
        busy_headers: request_id::own,
        refused: RefusalObserver::new(move |method, waited| {
            measured::refused(&telemetry, method, waited);
        }),
        ..ConnectionSettings::new(connections)
    }
}

/// Whether a path is one of health or administration: those are served while all connections are busy.
fn is_administration(path: &str) -> bool {
    let is_below = |root: &str| {
        let rest = path.strip_prefix(root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_cancel = path.starts_with("/v1/runs/") && path.ends_with("/cancel");
    is_cancel
        || [
            "/healthz",
            "/readyz",
            "/metrics",
            "/v1/modules",
            "/v1/audit",
            "/v1/reload",
            "/v1/endpoints",
        ]
        .into_iter()
        .any(is_below)
}

/// The committed description is the served one; a test compares it with the routes.
const DESCRIPTION: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json"));

#[derive(OpenApi)]
#[openapi(info(
    title = "Toolhold",
    description = "Agents whose tools are WebAssembly components, each call in a sandbox of its own."
))]
struct Description;

/// All routes, and their OpenAPI description.
fn routes() -> (Router<App>, utoipa::openapi::OpenApi) {
    let (router, mut api) = OpenApiRouter::with_openapi(Description::openapi())
        .merge(agent::routes())
        .merge(chat::routes())
        .merge(paths::routes())
        .merge(responses::routes())
        .merge(sessions::routes())
        .merge(runs::routes())
        .merge(blobs::routes())
        .merge(tools::routes())
        .merge(modules::routes())
        .merge(requests::routes())
        .merge(knowledge::routes())
        .merge(models::routes())
        .merge(audit::routes())
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(reload::routes())
        .merge(endpoints::routes())
        .split_for_parts();
    let schemes = &mut api.components.get_or_insert_default().security_schemes;
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    schemes.insert("key".into(), scheme.into());
    (router, api)
}

pub fn router(app: App, serve: &Settings) -> Router {
    let body_bytes = serve.body_bytes;
    let origins = serve.origins.iter().filter_map(|it| it.parse().ok());
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
        ])
        // OpenAI's SDKs send a dozen (`x-stainless-…`), and more with each version. Which pages may ask at all is what
        // the origins decide.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([
            header::RETRY_AFTER,
            HeaderName::from_static("x-should-retry"),
            request_id::REQUEST_ID,
        ]);
    let (router, _) = routes();
    let dispatcher = app.dispatcher.clone();
    let telemetry = dispatcher.telemetry().clone();
    let own = |name: HeaderName, value| {
        SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value))
    };
    let counted = middleware::from_fn_with_state(app.clone(), unsent::count);
    router
        // What follows below is part of the binary, which no client makes larger.
        .layer(counted)
        // Outside of it: an answer that is refused for want of room was delivered as an error.
        .layer(middleware::from_fn(undelivered::track))
        .merge(page::routes())
        .route(
            "/openapi.json",
            axum::routing::get(async || {
                ([(header::CONTENT_TYPE, "application/json")], DESCRIPTION)
            }),
        )
        .fallback(paths::unknown)
        .method_not_allowed_fallback(async || {
            ApiError::method("this path has other methods; /openapi.json lists them")
        })
        .with_state(app)
        .layer(middleware::from_fn_with_state(dispatcher, leaving))
        .layer(cors)
        .layer(DefaultBodyLimit::max(body_bytes))
        .layer(own(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(own(header::REFERRER_POLICY, "no-referrer"))
        .layer(own(header::CACHE_CONTROL, "no-store"))
        .layer(CatchPanicLayer::custom(
            |_: Box<dyn std::any::Any + Send>| {
                use axum::response::IntoResponse as _;
                ApiError::internal(&"a handler panicked").into_response()
            },
        ))
        .layer(middleware::from_fn(request_id::tell))
        .layer(middleware::from_fn(access::log))
        // Outermost, so that every answer of the layers below is counted, too.
        .layer(middleware::from_fn_with_state(telemetry, measured::record))
}

/// Closes a client's connection after its response while the server drains, so that its next request goes to
/// another server.
async fn leaving(State(dispatcher): State<Dispatcher>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if dispatcher.is_closing() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_and_administration_are_told_by_their_paths() {
        for path in [
            "/healthz",
            "/readyz",
            "/metrics",
            "/v1/audit",
            "/v1/modules/a/approve",
            "/v1/endpoints/default/clear",
            "/v1/runs/1/cancel",
        ] {
            assert!(is_administration(path), "{path}");
        }
        for path in [
            "/",
            "/healthzz",
            "/v1/agent",
            "/v1/runs/1",
            "/v1/modulesx",
            "/v1/tools/cancel",
        ] {
            assert!(!is_administration(path), "{path}");
        }
    }

    #[test]
    fn clients_without_a_place_get_an_error_like_every_other() {
        let settings = connection_settings(&Telemetry::off(), 1);
        let body: serde_json::Value = serde_json::from_slice(&settings.busy_body).unwrap();
        assert_eq!(body["error"]["type"], "overloaded_error");
        assert!(body["error"]["message"].is_string(), "{body}");
        let ids = [(settings.busy_headers)(), (settings.busy_headers)()];
        let [first, second] = ids.each_ref().map(|it| &it[request_id::REQUEST_ID]);
        assert_ne!(first, second);
    }

    const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    /// The committed file shows every change of the API in its diff. `TOOLHOLD_UPDATE=1` writes the file
    /// again.
    #[test]
    fn the_committed_description_is_that_of_the_api() {
        let mut now = routes().1.to_pretty_json().unwrap();
        now.push('\n');
        if std::env::var_os("TOOLHOLD_UPDATE").is_some() {
            std::fs::write(COMMITTED, &now).unwrap();
        }
        let committed = std::fs::read_to_string(COMMITTED).unwrap_or_default();
        assert!(
            now == committed,
            "openapi.json is of another version; write it with TOOLHOLD_UPDATE=1 cargo test -p toolhold-server --lib http"
        );
    }
}
