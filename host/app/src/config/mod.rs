//! `[telemetry]`.

mod telemetry;

pub use telemetry::{LogFormat, TelemetryTable};
