//! The telemetry of a process.

use crate::instruments::{self, CacheLookups, EndpointLoad, Instruments, SandboxLoad};
use crate::spans::Spans;
use opentelemetry::metrics::Meter;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::sync::Arc;
use std::time::Duration;
use toolhold_admission::own_work;
use toolhold_policy::redaction::Redaction;

/// The telemetry of a process: exporters, and the metrics of all its runs. Clones share them.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// Absent: telemetry is off.
    pub(crate) inner: Option<Arc<Exporters>>,
}

#[derive(Debug)]
pub(crate) struct Exporters {
    /// Absent: no traces are sent.
    pub tracers: Option<SdkTracerProvider>,
    pub tracer: Option<SdkTracer>,
    pub meters: SdkMeterProvider,
    pub meter: Meter,
    pub instruments: Instruments,
    /// What Prometheus scrapes.
    pub registry: prometheus::Registry,
    /// Present: content is captured, redacted by this.
    pub content: Option<Redaction>,
}

impl Telemetry {
    /// Telemetry that records nothing.
    pub fn off() -> Self {
        Self { inner: None }
    }

    /// Replaces the secrets, as pairs of name and value, that captured content is redacted of.
    pub fn renew_secrets(&self, secrets: Vec<(String, String)>) {
        let content = self.inner.as_ref().and_then(|inner| inner.content.as_ref());
        if let Some(redaction) = content {
            redaction.renew(secrets);
        }
    }

    pub(crate) fn spans(&self) -> Spans {
        let inner = self.inner.as_ref();
        inner.map_or_else(Spans::default, |inner| Spans {
            tracer: inner.tracer.clone(),
            content: inner.content.clone(),
        })
    }

    /// Records how long a run of the server waited in its queue.
    pub fn waited_for_place(&self, wait: Duration) {
        if let Some(inner) = &self.inner {
            inner.instruments.waited_for_place(wait);
        }
    }

    /// Registers a function that returns the numbers of runs that work and that wait. It is called at each export.
    pub fn watch_load(&self, load: impl Fn() -> (usize, usize) + Clone + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_load(&inner.meter, load);
        }
    }

    /// Registers a function that returns the lookups in the cache of compiled modules so far.
    pub fn watch_cache(&self, lookups: impl Fn() -> CacheLookups + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_cache(&inner.meter, lookups);
        }
    }

    /// Registers a function that returns what the calls of the sandbox take.
    pub fn watch_sandbox(&self, load: impl Fn() -> SandboxLoad + Clone + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_sandbox(&inner.meter, load);
        }
    }

    /// Registers a function that returns the endpoints that runs ask.
    pub fn watch_endpoints(
        &self,
        load: impl Fn() -> Vec<EndpointLoad> + Clone + Send + Sync + 'static,
    ) {
        if let Some(inner) = &self.inner {
            instruments::watch_endpoints(&inner.meter, load);
        }
    }

    /// Registers a function that returns the bytes of answers that clients have not read.
    pub fn watch_unsent(&self, bytes: impl Fn() -> u64 + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_unsent(&inner.meter, bytes);
        }
    }

    /// All metrics in Prometheus' text format; empty if telemetry is off.
    ///
    /// # Errors
    /// A metric cannot be written in that format.
    pub fn scraped(&self) -> Result<String, prometheus::Error> {
        let Some(inner) = &self.inner else {
            return Ok(String::new());
        };
        let families = inner.registry.gather();
        prometheus::TextEncoder::new().encode_to_string(&families)
    }

    /// Sends what was not sent yet, and stops the exporters.
    pub async fn close(&self) {
        let Some(inner) = self.inner.clone() else {
            return;
        };
        let closed = own_work(move || {
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
