//! Traces and metrics of runs, by OpenTelemetry's semantic conventions for GenAI.
//!
//! Everything is derived from the stream of events, as the view at the terminal is: nothing of the loop
//! knows that it is watched. No prompt, argument or result is in it unless the operator asked for that, and
//! then without the personal data and secrets that are recognised in them.

mod call;
mod conventions;
mod instruments;
mod observer;
mod setup;
mod spans;

pub use call::CallSpan;
pub use observer::{Observer, Subject};

use crate::redaction::Redaction;
use crate::storage::Store;
use anyhow::Result;
use instruments::Instruments;
use opentelemetry::metrics::Meter;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use spans::Spans;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use toolhold_sandbox::cache::Lookups;
use uuid::Uuid;

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

    /// The host has these secrets now: none of them is in captured content.
    pub fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        let content = self.inner.as_ref().and_then(|inner| inner.content.as_ref());
        if let Some(redaction) = content {
            redaction.renew(secrets);
        }
    }

    /// Follows a run.
    pub fn observe(&self, subject: Subject) -> Observer {
        Observer::new(self.inner.clone(), subject)
    }

    fn spans(&self) -> Spans {
        let inner = self.inner.as_ref();
        inner.map_or_else(Spans::default, |inner| Spans {
            tracer: inner.tracer.clone(),
            content: inner.content.clone(),
        })
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

    /// So are the modules of a registry and its cache.
    pub fn watch_cache(&self, lookups: impl Fn() -> Lookups + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_cache(&inner.meter, lookups);
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

/// The trace that a text names which was written as `traceparent`.
pub fn named(traceparent: &str, tracestate: &str) -> opentelemetry::Context {
    let none = opentelemetry::Context::new();
    let said = [("traceparent", traceparent), ("tracestate", tracestate)];
    let said: HashMap<String, String> = said
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    TraceContextPropagator::new().extract_with_context(&none, &said)
}

/// The trace that a run had before its process went away. Not knowing it keeps no run from going on.
pub async fn before(store: &Store, run: Uuid) -> opentelemetry::Context {
    match store.trace(run).await {
        Ok(Some(parent)) => named(&parent, ""),
        _ => opentelemetry::Context::default(),
    }
}

/// A span in the form of `traceparent`, if there is one.
pub fn parent_of(context: &opentelemetry::Context) -> Option<String> {
    let mut said = HashMap::new();
    TraceContextPropagator::new().inject_context(context, &mut said);
    said.remove("traceparent")
}
