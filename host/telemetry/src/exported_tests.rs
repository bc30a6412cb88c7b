//! The table of metrics is what Prometheus scrapes: every instrument records once, and the text is compared.
// What a process uses is known on Linux alone.
#![cfg(target_os = "linux")]

use crate::conventions as names;
use crate::handle::Telemetry;
use crate::instruments::{CacheLookups, EndpointLoad, Instruments, SandboxLoad};
use crate::metrics::{METRICS, MetricKind, MetricSpec};
use crate::server_instruments::{
    AnsweredRequest, LeaveCause, PlaceRefusal, ReloadResult, ResumeCause, RunLoad, ServerState,
};
use crate::settings::{Settings, Variables};
use opentelemetry::KeyValue;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use toolhold_files::DiskSpace;
use toolhold_policy::redaction::Redaction;
use toolhold_protocol::completion::Usage;
use toolhold_protocol::result::ToolUsage;

/// Telemetry that is scraped, and sends nothing.
fn scraped() -> Telemetry {
    let settings = Settings {
        endpoint: String::new(),
        headers: HashMap::new(),
        has_standard_headers: false,
        service_name: "test".to_owned(),
        sample_ratio: 1.0,
        capture_content: false,
        is_scraped: true,
        variables: Variables::default(),
    };
    Telemetry::start(&settings, Redaction::new(Vec::new())).unwrap()
}

fn models(response: Option<&'static str>) -> Vec<KeyValue> {
    let mut models = vec![
        KeyValue::new(names::OPERATION, names::CHAT),
        KeyValue::new(names::PROVIDER, names::OPENAI),
        KeyValue::new(names::REQUEST_MODEL, "m"),
    ];
    models.extend(response.map(|name| KeyValue::new(names::RESPONSE_MODEL, name)));
    models
}

fn record(instruments: &Instruments) {
    let second = Duration::from_secs(1);
    let usage = Usage::default();
    instruments.replied(&models(Some("m-1")), Some(&usage), second, Some(second));
    instruments.failed(&models(None), second, "retryable");
    instruments.next_chunk(&models(None), second);
    let used = ToolUsage {
        fuel: 1,
        memory_bytes: 1,
        retries: 1,
        ..ToolUsage::default()
    };
    instruments.called("t", Some("deadline"), &used);
    instruments.cached("t");
    instruments.agent_ended("a", "output", second, true);
    instruments.repaired(1);
    instruments.unusable("m", "empty");
    instruments.retried("default");
    instruments.fell_back("m");
    instruments.waited_for_endpoint("default", second);
    instruments.waited_for_place(second);
}

/// Telemetry in which every instrument has a value.
fn measured() -> Telemetry {
    let telemetry = scraped();
    record(&telemetry.inner.as_ref().unwrap().instruments);
    telemetry.resumed(ResumeCause::Takeover);
    telemetry.left(LeaveCause::Shutdown);
    telemetry.refused_place(PlaceRefusal::Full);
    telemetry.reloaded(ReloadResult::Refused);
    telemetry.answered(&AnsweredRequest {
        method: "GET",
        route: Some("/v1/runs/{run}"),
        status: 404,
        took: Duration::from_millis(1),
    });
    telemetry.watch_cache(|| CacheLookups { hits: 1, misses: 2 });
    telemetry.watch_sandbox(|| SandboxLoad {
        pool: vec![("stacks", 1, 2)],
        ..SandboxLoad::default()
    });
    telemetry.watch_endpoints(|| {
        vec![EndpointLoad {
            name: "default".to_owned(),
            rest: Duration::from_secs(1),
            is_open: true,
        }]
    });
    telemetry.watch_unsent(|| 1);
    telemetry.watch_load(RunLoad::default);
    telemetry.watch_server(ServerState::default);
    telemetry.watch_disks(|| vec![("state", DiskSpace { free: 1, size: 2 })]);
    telemetry
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

/// The name of a line's series, and its labels.
fn series(line: &str) -> (&str, Vec<&str>) {
    let (sample, _) = line.rsplit_once(' ').unwrap();
    let Some((name, labels)) = sample.split_once('{') else {
        return (sample, Vec::new());
    };
    let labels = labels.trim_end_matches("\"}").split("\",");
    let labels = labels.map(|label| label.split_once('=').unwrap().0);
    (name, labels.collect())
}

#[tokio::test]
async fn every_metric_of_the_table_is_scraped_and_nothing_else() {
    let text = measured().scraped().await.unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let found: BTreeMap<String, String> = types
        .filter_map(|line| line.split_once(' '))
        // What the exporter tells of the service.
        .filter(|(name, _)| *name != "target_info")
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let kind = |row: &MetricSpec| match row.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let expected = METRICS.iter();
    let expected: BTreeMap<String, String> = expected
        .map(|row| (row.scraped_name(), kind(row).to_owned()))
        .collect();
    assert_eq!(found, expected, "{text}");
    let all: BTreeSet<String> = METRICS.iter().flat_map(MetricSpec::series).collect();
    for line in lines(&text).filter(|line| !line.starts_with("target_info")) {
        assert!(all.contains(series(line).0), "{line}");
    }
}

#[tokio::test]
async fn every_metric_has_the_labels_of_the_table() {
    let text = measured().scraped().await.unwrap();
    for row in METRICS {
        let own = row.series();
        let labels: BTreeSet<String> = lines(&text)
            .map(series)
            .filter(|(name, _)| own.iter().any(|known| known == name))
            .flat_map(|(_, labels)| labels)
            .filter(|label| *label != "le" && !label.starts_with("otel_scope_"))
            .map(str::to_owned)
            .collect();
        let expected: BTreeSet<String> = row.scraped_labels().collect();
        assert_eq!(labels, expected, "{}", row.name);
    }
}

/// Prometheus does not see the growth of a counter that begins with its first event.
#[tokio::test]
async fn counters_whose_labels_are_known_begin_at_zero() {
    let text = scraped().scraped().await.unwrap();
    for (name, label) in [
        ("toolhold_runs_resumed_total", "takeover"),
        ("toolhold_runs_left_total", "failure"),
        ("toolhold_run_queue_refused_total", "full"),
        ("toolhold_reloads_total", "refused"),
        ("toolhold_reload_unapplied", ""),
    ] {
        let mut fitting = lines(&text).filter(|line| series(line).0 == name);
        let found = fitting.find(|line| line.contains(label));
        let is_zero = found.is_some_and(|line| line.ends_with(" 0"));
        assert!(is_zero, "{name}: {found:?}\n{text}");
    }
}

#[tokio::test]
async fn a_reload_that_was_refused_is_seen_until_one_is_applied() {
    let telemetry = scraped();
    let unapplied = async || {
        let text = telemetry.scraped().await.unwrap();
        let line = lines(&text).find(|line| line.starts_with("toolhold_reload_unapplied"));
        line.unwrap().ends_with(" 1")
    };
    telemetry.reloaded(ReloadResult::Refused);
    assert!(unapplied().await);
    telemetry.reloaded(ReloadResult::HeldBack);
    assert!(unapplied().await);
    telemetry.reloaded(ReloadResult::Applied);
    assert!(!unapplied().await);
}
