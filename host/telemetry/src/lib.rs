//! Traces and metrics of runs, by OpenTelemetry's semantic conventions for GenAI.
//!
//! The crate promises that telemetry is derived from the events of a run alone: the loop does not know that it is
//! observed, and an observer that fails does not fail the run. Prompts, arguments and results are recorded only if the
//! operator asks for it ([`Settings::capture_content`]), and then redacted.
//!
//! Read `settings` and `setup` first: [`Telemetry::start`] makes the exporters. `handle` is the running telemetry,
//! `observer` follows a run event by event, and `request` what it asks models for. `call` covers calls outside of runs,
//! `spans` and `instruments` are the traces and metrics, `server_instruments` what a server measures of itself. `metrics`
//! is the table of all metrics, of which alone instruments are made, and `conventions` has the names. `context` reads and
//! writes W3C trace contexts.
//!
//! ```
//! use toolhold_telemetry::{ObservedRun, Telemetry};
//!
//! let telemetry = Telemetry::off();
//! let observer = telemetry.observe(ObservedRun::default());
//! assert_eq!(observer.trace(), None);
//! // For each event of the run that was begun: observer.take(&event);
//! assert!(observer.begun(Err::<(), _>("refused")).is_err());
//! ```
#![forbid(unsafe_code)]

mod call;
mod client;
mod clock;
mod context;
mod conventions;
mod handle;
mod instruments;
mod metrics;
mod observer;
mod request;
mod server_instruments;
mod settings;
mod setup;
mod spans;

#[cfg(test)]
mod exported_tests;

pub use call::CallSpan;
pub use context::{client_context, parent_of, parse_context};
pub use handle::{ScrapeError, Telemetry};
pub use instruments::{CacheLookups, EndpointLoad, SandboxLoad};
pub use metrics::{METRICS, MetricKind, MetricSpec, MetricUnit};
pub use observer::{ObservedRun, Observer};
pub use server_instruments::{
    AnsweredRequest, AuditState, DatabaseState, LeaveCause, PlaceRefusal, ReloadResult,
    ResumeCause, RunLoad, ServerState,
};
pub use settings::{Settings, Variables, headers};
pub use setup::TelemetryError;
