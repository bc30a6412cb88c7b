//! `[telemetry]`: where traces and metrics go, and how logs are written.

use crate::config::surroundings::ConfigFault;
use serde::Deserialize;
use toolhold_telemetry::{Settings, Variables};
use url::Url;

#[derive(Debug, Clone, Deserialize)]
pub struct TelemetryTable {
    /// Of an OTLP collector over HTTP, without `/v1/traces`; empty: what the standard variables say.
    pub endpoint: String,
    /// The variable with headers for it, `NAME=VALUE,NAME=VALUE`.
    pub headers_env: String,
    pub service_name: String,
    /// Of the traces that begin here; what goes on with a client's trace is sampled as that is.
    pub sample_ratio: f64,
    pub capture_content: bool,
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object a line, with its time.
    Json,
}

impl TelemetryTable {
    /// What the table and the standard variables of OpenTelemetry say. `variable` reads the environment.
    pub fn settings(&self, variable: &dyn Fn(&str) -> Option<String>) -> Settings {
        let is_standard = self.headers_env == "OTEL_EXPORTER_OTLP_HEADERS";
        let headers = match self.headers_env.as_str() {
            "" => String::new(),
            // The SDK reads the standard variables by itself.
            _ if is_standard => String::new(),
            name => variable(name).unwrap_or_default(),
        };
        Settings {
            endpoint: self.endpoint.clone(),
            headers: toolhold_telemetry::headers(&headers),
            has_standard_headers: is_standard || self.endpoint.is_empty(),
            service_name: self.service_name.clone(),
            sample_ratio: self.sample_ratio,
            capture_content: self.capture_content,
            is_scraped: false,
            variables: Variables::read(variable),
        }
    }

    /// # Errors
    /// The key and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), ConfigFault> {
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(ConfigFault::new("sample_ratio", "must be from 0 to 1"));
        }
        if self.service_name.trim().is_empty() {
            return Err(ConfigFault::new("service_name", "must not be empty"));
        }
        let is_wrong = |endpoint: &str| {
            let url = Url::parse(endpoint).ok();
            url.is_none_or(|url| {
                !matches!(url.scheme(), "http" | "https")
                    || !url.has_host()
                    || !url.username().is_empty()
                    || url.password().is_some()
            })
        };
        if !self.endpoint.is_empty() && is_wrong(&self.endpoint) {
            let reason = "is no http:// or https:// URL without user name and password, such as \
                 \"http://127.0.0.1:4318\"";
            return Err(ConfigFault::new("endpoint", reason));
        }
        Ok(())
    }
}
