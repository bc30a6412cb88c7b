//! An OpenTelemetry collector: takes spans and metrics over HTTP, and keeps them for the test.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use prost::Message as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Collector {
    url: String,
    kept: Arc<Mutex<CollectedSignals>>,
    _runtime: tokio::runtime::Runtime,
}

/// A span, with what a test looks at.
#[derive(Debug, Clone)]
pub struct Span {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty: none.
    pub parent: String,
    pub attributes: Value,
    pub events: Vec<String>,
    pub took: Duration,
}

#[derive(Debug, Default)]
struct CollectedSignals {
    spans: Vec<Span>,
    metrics: BTreeSet<String>,
    services: BTreeSet<String>,
    authorizations: Vec<String>,
    /// Everything that came, as it came.
    bytes: Vec<u8>,
}

impl Collector {
    /// # Panics
    /// If no port can be opened.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    /// Starts at an address that a client has already.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn start_at(address: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let kept = Arc::new(Mutex::new(CollectedSignals::default()));
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address));
        let listener = listener.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new()
            .route("/v1/traces", post(traces))
            .route("/v1/metrics", post(metrics))
            .with_state(Arc::clone(&kept));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            url,
            kept,
            _runtime: runtime,
        }
    }

    /// What a client is configured with.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn spans(&self) -> Vec<Span> {
        self.kept(|kept| kept.spans.clone())
    }

    /// Waits until `condition` holds of the spans.
    ///
    /// # Panics
    /// If it does not within a minute.
    pub fn wait_for(&self, condition: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let started = Instant::now();
        loop {
            let spans = self.spans();
            if condition(&spans) {
                return spans;
            }
            assert!(started.elapsed() < Duration::from_mins(1), "{spans:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Names of the metrics that came.
    pub fn metrics(&self) -> BTreeSet<String> {
        self.kept(|kept| kept.metrics.clone())
    }

    /// `service.name` of whatever came.
    pub fn services(&self) -> BTreeSet<String> {
        self.kept(|kept| kept.services.clone())
    }

    pub fn authorizations(&self) -> Vec<String> {
        self.kept(|kept| kept.authorizations.clone())
    }

    /// Whether this text is somewhere in what came.
    pub fn has_heard(&self, text: &str) -> bool {
        self.kept(|kept| {
            let mut windows = kept.bytes.windows(text.len());
            windows.any(|window| window == text.as_bytes())
        })
    }

    fn kept<T>(&self, look: impl FnOnce(&CollectedSignals) -> T) -> T {
        look(&self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type CollectorState = State<Arc<Mutex<CollectedSignals>>>;

async fn traces(State(kept): CollectorState, headers: HeaderMap, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body.clone()) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.heard(&headers, &body);
    for resource in request.resource_spans {
        let service = resource.resource.map(|it| object(&it.attributes));
        kept.serves(service.as_ref());
        let spans = resource.scope_spans.into_iter().flat_map(|it| it.spans);
        kept.spans.extend(spans.map(|span| {
            Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: object(&span.attributes),
                events: span.events.into_iter().map(|event| event.name).collect(),
                took: Duration::from_nanos(
                    span.end_time_unix_nano
                        .saturating_sub(span.start_time_unix_nano),
                ),
                name: span.name,
            }
        }));
    }
    StatusCode::OK
}

async fn metrics(State(kept): CollectorState, headers: HeaderMap, body: Bytes) -> StatusCode {
    let Ok(request) = ExportMetricsServiceRequest::decode(body.clone()) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.heard(&headers, &body);
    for resource in request.resource_metrics {
        let service = resource.resource.map(|it| object(&it.attributes));
        kept.serves(service.as_ref());
        let scopes = resource.scope_metrics.into_iter();
        let names = scopes.flat_map(|it| it.metrics).map(|metric| metric.name);
        kept.metrics.extend(names);
    }
    StatusCode::OK
}

impl CollectedSignals {
    fn heard(&mut self, headers: &HeaderMap, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        let authorization = headers.get("authorization");
        let authorization = authorization.and_then(|it| it.to_str().ok());
        self.authorizations.extend(authorization.map(str::to_owned));
    }

    fn serves(&mut self, resource: Option<&Value>) {
        let service = resource.and_then(|it| it["service.name"].as_str());
        self.services.extend(service.map(str::to_owned));
    }
}

fn object(attributes: &[KeyValue]) -> Value {
    let members = attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref().map_or(Value::Null, any);
        (attribute.key.clone(), value)
    });
    Value::Object(members.collect::<Map<_, _>>())
}

fn any(value: &AnyValue) -> Value {
    match &value.value {
        Some(Any::StringValue(text)) => json!(text),
        Some(Any::BoolValue(flag)) => json!(flag),
        Some(Any::IntValue(number)) => json!(number),
        Some(Any::DoubleValue(number)) => json!(number),
        Some(Any::ArrayValue(items)) => items.values.iter().map(any).collect(),
        _ => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
