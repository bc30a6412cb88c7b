//! Starts telemetry: exporters to a collector, and the registry that Prometheus scrapes.

use crate::client::ExportClient;
use crate::conventions as names;
use crate::handle::{Exporters, Telemetry};
use crate::instruments::Instruments;
use crate::metrics::Meters;
use crate::server_instruments::watch_process;
use crate::settings::Settings;
use opentelemetry::InstrumentationScope;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use std::sync::Arc;
use toolhold_policy::redaction::Redaction;

/// Telemetry cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    #[error("telemetry cannot be sent: {0}")]
    Client(#[from] reqwest::Error),
    #[error("traces cannot be sent: {0}")]
    Traces(ExporterBuildError),
    #[error("metrics cannot be sent: {0}")]
    Metrics(ExporterBuildError),
    #[error("metrics cannot be kept for Prometheus: {0}")]
    Prometheus(#[from] OTelSdkError),
}

impl Telemetry {
    /// Starts telemetry on the current tokio runtime. It is off if nothing is to be sent or scraped. `redaction` is
    /// applied to captured content.
    ///
    /// # Errors
    /// The settings or OpenTelemetry's standard variables are wrong.
    pub fn start(settings: &Settings, redaction: Redaction) -> Result<Self, TelemetryError> {
        let (sends_traces, sends_metrics) = (settings.sends_traces(), settings.sends_metrics());
        if !sends_traces && !sends_metrics && !settings.is_scraped {
            return Ok(Self::off());
        }
        let client = ExportClient::new(settings)?;
        let tracers = if sends_traces {
            Some(tracers(settings, &client)?)
        } else {
            None
        };
        let registry = prometheus::Registry::new();
        let mut provider = SdkMeterProvider::builder().with_resource(resource(settings));
        if settings.is_scraped {
            let reader = opentelemetry_prometheus::exporter().with_registry(registry.clone());
            provider = provider.with_reader(reader.build()?);
        }
        if sends_metrics {
            let exporter = MetricExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_headers(settings.headers.clone());
            let exporter = match settings.url("v1/metrics") {
                Some(url) => exporter.with_endpoint(url),
                None => exporter,
            };
            let exporter = exporter.build().map_err(TelemetryError::Metrics)?;
            provider = provider.with_periodic_exporter(exporter);
        }
        let provider = provider.build();
        let meters = Meters::new(provider.meter_with_scope(scope()));
        let instruments = Instruments::new(&meters);
        if settings.is_scraped {
            instruments.server.begin();
            watch_process(&meters);
        }
        Ok(Self {
            inner: Some(Arc::new(Exporters {
                tracer: tracers.as_ref().map(|it| it.tracer_with_scope(scope())),
                instruments,
                tracers,
                provider,
                meters,
                registry,
                content: settings.capture_content.then_some(redaction),
            })),
        })
    }
}

fn tracers(
    settings: &Settings,
    client: &ExportClient,
) -> Result<SdkTracerProvider, TelemetryError> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client.clone())
        .with_headers(settings.headers.clone());
    let exporter = match settings.url("v1/traces") {
        Some(url) => exporter.with_endpoint(url),
        None => exporter,
    };
    let exporter = exporter.build().map_err(TelemetryError::Traces)?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(resource(settings))
        .build())
}

impl Settings {
    fn sends_traces(&self) -> bool {
        let is_named = !self.endpoint.is_empty() || self.variables.has_traces_endpoint;
        is_named && !self.variables.is_disabled
    }

    fn sends_metrics(&self) -> bool {
        let is_named = !self.endpoint.is_empty() || self.variables.has_metrics_endpoint;
        is_named && !self.variables.is_disabled
    }

    /// The URL of a signal; `None`: the SDK takes it from the standard variables.
    fn url(&self, path: &str) -> Option<String> {
        let base = self.endpoint.trim_end_matches('/');
        (!base.is_empty()).then(|| format!("{base}/{path}"))
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(names::SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(names::SCHEMA_URL)
        .build()
}

fn resource(settings: &Settings) -> Resource {
    let resource = Resource::builder();
    if settings.variables.has_service_name {
        resource.build()
    } else {
        resource
            .with_service_name(settings.service_name.clone())
            .build()
    }
}
