//! Traces and metrics of runs, by OpenTelemetry's semantic conventions for GenAI.
//!
//! Everything is derived from the stream of events, as the view at the terminal is: nothing of the loop
//! knows that it is watched. No prompt, argument or result is in it unless the operator asked for that, and
//! then without the personal data and secrets that are recognised in them.

mod conventions;
mod instruments;
mod observer;
mod setup;
mod spans;

pub use observer::{Observer, Subject};

use crate::redaction::Redaction;
use anyhow::Result;
use instruments::Instruments;
use opentelemetry::metrics::Meter;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::sync::Arc;
use std::time::Duration;

/// Where the telemetry of this process goes. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Absent: nowhere.
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    tracers: Option<SdkTracerProvider>,
    tracer: Option<SdkTracer>,
    meters: SdkMeterProvider,
    meter: Meter,
    instruments: Instruments,
    registry: prometheus::Registry,
    /// Present: content is captured, less what this takes out.
    content: Option<Redaction>,
}

impl Telemetry {
    pub fn off() -> Self {
        Self { inner: None }
    }

    /// Follows a run.
    pub fn observe(&self, subject: Subject) -> Observer {
        Observer::new(self.inner.clone(), subject)
    }

    /// A run of the server waited so long for a place.
    pub fn waited_for_place(&self, wait: Duration) {
        if let Some(inner) = &self.inner {
            inner.instruments.waited_for_place(wait);
        }
    }

    /// Runs that work and runs that wait are measured whenever somebody looks.
    pub fn watch_load(&self, load: impl Fn() -> (usize, usize) + Clone + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_load(&inner.meter, load);
        }
    }

    /// All metrics in Prometheus' text format.
    pub fn scraped(&self) -> Result<String> {
        let Some(inner) = &self.inner else {
            return Ok(String::new());
        };
        let families = inner.registry.gather();
        Ok(prometheus::TextEncoder::new().encode_to_string(&families)?)
    }

    /// Sends what was not sent yet.
    pub async fn close(&self) {
        let Some(inner) = self.inner.clone() else {
            return;
        };
        let closed = tokio::task::spawn_blocking(move || {
            let traces = inner.tracers.as_ref().map(SdkTracerProvider::shutdown);
            for result in [traces, Some(inner.meters.shutdown())]
                .into_iter()
                .flatten()
            {
                if let Err(error) = result {
                    tracing::warn!(%error, "the last telemetry was not sent");
                }
            }
        });
        let _ = closed.await;
    }
}

/// The client's trace, if its request says that there is one (`traceparent`).
pub fn remote(headers: &axum::http::HeaderMap) -> opentelemetry::Context {
    let none = opentelemetry::Context::new();
    TraceContextPropagator::new().extract_with_context(&none, &HeaderExtractor(headers))
}
