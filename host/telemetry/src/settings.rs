//! What an operator decides about telemetry.

use std::collections::HashMap;

/// Where traces and metrics go, and what they hold.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base URL of an OTLP collector over HTTP, without `/v1/traces`; empty: as the standard variables say.
    pub endpoint: String,
    /// Headers of each export.
    pub headers: HashMap<String, String>,
    /// Whether the headers of the standard variables, `OTEL_EXPORTER_OTLP_HEADERS` and those of one signal, are sent
    /// too. They are for the collector that they were set with.
    pub has_standard_headers: bool,
    /// Name of the service, unless `OTEL_SERVICE_NAME` is set.
    pub service_name: String,
    /// Share of the traces that are recorded, 0 to 1. A trace that continues a client's is recorded if the client's is.
    pub sample_ratio: f64,
    /// Whether spans hold prompts, arguments and results, redacted.
    pub capture_content: bool,
    /// Whether metrics are kept for [`Telemetry::scraped`](crate::Telemetry::scraped).
    pub is_scraped: bool,
    /// What the standard variables say.
    pub variables: Variables,
}

/// The standard variables of OpenTelemetry that decide whether anything is sent. The SDK reads the values itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Variables {
    /// `OTEL_SDK_DISABLED`: nothing is sent.
    pub is_disabled: bool,
    /// A variable names an endpoint for traces.
    pub has_traces_endpoint: bool,
    /// A variable names an endpoint for metrics.
    pub has_metrics_endpoint: bool,
    /// `OTEL_SERVICE_NAME` is set.
    pub has_service_name: bool,
}

impl Variables {
    /// Reads them through `variable`, such as `|name| std::env::var(name).ok()`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let is_set = |name| variable(name).is_some_and(|value| !value.trim().is_empty());
        let has_endpoint = is_set("OTEL_EXPORTER_OTLP_ENDPOINT");
        Self {
            is_disabled: variable("OTEL_SDK_DISABLED")
                .is_some_and(|value| value.eq_ignore_ascii_case("true")),
            has_traces_endpoint: has_endpoint || is_set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            has_metrics_endpoint: has_endpoint || is_set("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
            has_service_name: variable("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty()),
        }
    }
}

/// Headers as the standard variables write them: `NAME=VALUE,NAME=VALUE`. Parts without `=` are ignored.
pub fn headers(text: &str) -> HashMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_variables_decide_what_is_sent() {
        let read = |set: &[(&str, &str)]| {
            Variables::read(|name| {
                let value = set.iter().find(|(known, _)| *known == name);
                value.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(read(&[]), Variables::default());
        let both = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h")]);
        assert!(both.has_traces_endpoint && both.has_metrics_endpoint);
        let traces = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", " "),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h"),
        ]);
        assert!(traces.has_traces_endpoint && !traces.has_metrics_endpoint);
        assert!(read(&[("OTEL_SDK_DISABLED", "True")]).is_disabled);
        assert!(!read(&[("OTEL_SDK_DISABLED", "1")]).is_disabled);
        assert!(!read(&[("OTEL_SERVICE_NAME", "")]).has_service_name);
    }

    #[test]
    fn headers_are_pairs() {
        let expected = [("a", "1"), ("b", "x=y")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        assert_eq!(headers(" a = 1,b=x=y,c"), expected.into());
    }
}
