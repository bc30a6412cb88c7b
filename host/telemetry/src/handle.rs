//! The telemetry of a process.

use crate::instruments::{self, CacheLookups, EndpointLoad, Instruments, SandboxLoad};
use crate::metrics::Meters;
use crate::server_instruments::{
    self, AnsweredRequest, LeaveCause, PlaceRefusal, ReloadResult, ResumeCause, RunLoad,
    ServerInstruments, ServerState,
};
use crate::spans::Spans;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use toolhold_admission::{WorkFailure, WorkKind, own_work};
use toolhold_files::DiskSpace;
use toolhold_policy::redaction::Redaction;

const SCRAPES: WorkKind = WorkKind::new("scrapes of metrics", 8);

/// The metrics cannot be shown.
#[derive(Debug, Error)]
pub enum ScrapeError {
    #[error("a metric cannot be written: {0}")]
    Format(#[from] prometheus::Error),
    #[error(transparent)]
    Work(#[from] WorkFailure),
}

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
    pub provider: SdkMeterProvider,
    pub meters: Meters,
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

    fn server(&self) -> Option<&ServerInstruments> {
        let inner = self.inner.as_ref()?;
        Some(&inner.instruments.server)
    }

    /// Counts a run that is resumed in this process.
    pub fn resumed(&self, cause: ResumeCause) {
        if let Some(server) = self.server() {
            server.resumed(cause);
        }
    }

    /// Counts a run that stopped in this process before its end.
    pub fn left(&self, cause: LeaveCause) {
        if let Some(server) = self.server() {
            server.left(cause);
        }
    }

    /// Counts a run that was given no place.
    pub fn refused_place(&self, refusal: PlaceRefusal) {
        if let Some(server) = self.server() {
            server.refused(refusal);
        }
    }

    /// Counts a configuration that was read again.
    pub fn reloaded(&self, result: ReloadResult) {
        if let Some(server) = self.server() {
            server.reloaded(result);
        }
    }

    /// Records a request that the server answered.
    pub fn answered(&self, request: &AnsweredRequest<'_>) {
        if let Some(server) = self.server() {
            server.answered(request);
        }
    }

    /// Registers a function that returns how many runs work and wait. It is called at each export.
    pub fn watch_load(&self, load: impl Fn() -> RunLoad + Clone + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            server_instruments::watch_load(&inner.meters, load);
        }
    }

    /// Registers a function that returns what the server can offer.
    pub fn watch_server(&self, state: impl Fn() -> ServerState + Clone + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            server_instruments::watch_server(&inner.meters, state);
        }
    }

    /// Registers a function that returns the disks of folders, by the folders' names. It must not wait for them.
    pub fn watch_disks(
        &self,
        disks: impl Fn() -> Vec<(&'static str, DiskSpace)> + Clone + Send + Sync + 'static,
    ) {
        if let Some(inner) = &self.inner {
            server_instruments::watch_disks(&inner.meters, disks);
        }
    }

    /// Registers a function that returns the lookups in the cache of compiled modules so far.
    pub fn watch_cache(&self, lookups: impl Fn() -> CacheLookups + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_cache(&inner.meters, lookups);
        }
    }

    /// Registers a function that returns what the calls of the sandbox take.
    pub fn watch_sandbox(&self, load: impl Fn() -> SandboxLoad + Clone + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_sandbox(&inner.meters, load);
        }
    }

    /// Registers a function that returns the endpoints that runs ask.
    pub fn watch_endpoints(
        &self,
        load: impl Fn() -> Vec<EndpointLoad> + Clone + Send + Sync + 'static,
    ) {
        if let Some(inner) = &self.inner {
            instruments::watch_endpoints(&inner.meters, load);
        }
    }

    /// Registers a function that returns the bytes of answers that clients have not read.
    pub fn watch_unsent(&self, bytes: impl Fn() -> u64 + Send + Sync + 'static) {
        if let Some(inner) = &self.inner {
            instruments::watch_unsent(&inner.meters, bytes);
        }
    }

    /// All metrics in Prometheus' text format; empty if telemetry is off.
    ///
    /// # Errors
    /// A metric cannot be written in that format, or no thread was free in time.
    pub async fn scraped(&self) -> Result<String, ScrapeError> {
        let Some(inner) = self.inner.clone() else {
            return Ok(String::new());
        };
        // It reads what the system says of this process.
        let text = SCRAPES.run(None, move || {
            let families = inner.registry.gather();
            prometheus::TextEncoder::new().encode_to_string(&families)
        });
        Ok(text.await??)
    }

    /// Sends what was not sent yet, and stops the exporters.
    pub async fn close(&self) {
        let Some(inner) = self.inner.clone() else {
            return;
        };
        let closed = own_work(move || {
            let traces = inner.tracers.as_ref().map(SdkTracerProvider::shutdown);
            for result in [traces, Some(inner.provider.shutdown())]
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
