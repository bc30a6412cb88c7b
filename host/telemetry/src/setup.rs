//! Where telemetry goes: to a collector, if there is one, and to whoever scrapes this process.

use crate::config::TelemetryTable;
use crate::redaction::Redaction;
use crate::telemetry::conventions as names;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::{Inner, Telemetry};
use anyhow::{Context as _, Result};
use opentelemetry::InstrumentationScope;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A collector that takes longer has a problem, and must not become ours.
const TIMEOUT: Duration = Duration::from_secs(10);
const GENERAL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// What the SDK itself would not be told.
#[derive(Debug, Clone, Copy)]
struct Signal {
    variable: &'static str,
    path: &'static str,
}

const TRACES: Signal = Signal {
    variable: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    path: "v1/traces",
};
const METRICS: Signal = Signal {
    variable: "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    path: "v1/metrics",
};

impl Telemetry {
    /// As the configuration says. Metrics are kept in any case if `is_scraped`.
    ///
    /// # Errors
    /// A variable of OpenTelemetry's is wrong.
    pub fn start(table: &TelemetryTable, redaction: Redaction, is_scraped: bool) -> Result<Self> {
        let is_off = is_set("OTEL_SDK_DISABLED", |it| it.eq_ignore_ascii_case("true"));
        let sends = |signal: Signal| !is_off && signal.is_sent(table);
        if !sends(TRACES) && !sends(METRICS) && !is_scraped {
            return Ok(Self::off());
        }
        let client = Client::new()?;
        let tracers = if sends(TRACES) {
            Some(tracers(table, &client)?)
        } else {
            None
        };
        let registry = prometheus::Registry::new();
        let mut meters = SdkMeterProvider::builder().with_resource(resource(table));
        if is_scraped {
            let reader = opentelemetry_prometheus::exporter().with_registry(registry.clone());
            meters = meters.with_reader(reader.build()?);
        }
        if sends(METRICS) {
            let exporter = MetricExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_headers(headers(table));
            let exporter = match METRICS.url(table) {
                Some(url) => exporter.with_endpoint(url),
                None => exporter,
            };
            let exporter = exporter.build().context("metrics cannot be sent")?;
            meters = meters.with_periodic_exporter(exporter);
        }
        let meters = meters.build();
        let meter = meters.meter_with_scope(scope());
        Ok(Self {
            inner: Some(Arc::new(Inner {
                tracer: tracers.as_ref().map(|it| it.tracer_with_scope(scope())),
                instruments: Instruments::new(&meter),
                meter,
                tracers,
                meters,
                registry,
                content: table.capture_content.then_some(redaction),
            })),
        })
    }
}

fn tracers(table: &TelemetryTable, client: &Client) -> Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client.clone())
        .with_headers(headers(table));
    let exporter = match TRACES.url(table) {
        Some(url) => exporter.with_endpoint(url),
        None => exporter,
    };
    let exporter = exporter.build().context("traces cannot be sent")?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(table.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource(table))
        .build())
}

impl Signal {
    fn is_sent(self, table: &TelemetryTable) -> bool {
        let some = |value: &str| !value.trim().is_empty();
        !table.endpoint.is_empty() || is_set(GENERAL, some) || is_set(self.variable, some)
    }

    /// None: as the variables say.
    fn url(self, table: &TelemetryTable) -> Option<String> {
        let base = table.endpoint.trim_end_matches('/');
        (!base.is_empty()).then(|| format!("{base}/{}", self.path))
    }
}

fn is_set(variable: &str, says: impl Fn(&str) -> bool) -> bool {
    std::env::var(variable).is_ok_and(|value| says(&value))
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(names::SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(names::SCHEMA_URL)
        .build()
}

fn resource(table: &TelemetryTable) -> Resource {
    let resource = Resource::builder();
    if is_set("OTEL_SERVICE_NAME", |name| !name.is_empty()) {
        resource.build()
    } else {
        resource
            .with_service_name(table.service_name.clone())
            .build()
    }
}

/// The SDK reads the standard variable by itself.
fn headers(table: &TelemetryTable) -> HashMap<String, String> {
    let text = match table.headers_env.as_str() {
        "" | "OTEL_EXPORTER_OTLP_HEADERS" => String::new(),
        name => std::env::var(name).unwrap_or_default(),
    };
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// The SDK sends from threads of its own, which have no reactor: this sends on ours.
#[derive(Debug, Clone)]
struct Client {
    runtime: Handle,
    client: reqwest::Client,
}

impl Client {
    fn new() -> Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            runtime: Handle::current(),
            client: client.build().context("telemetry cannot be sent")?,
        })
    }
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> Sent<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = self.client.clone();
        let sent = self
            .runtime
            .spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { sent.await? })
    }
}
