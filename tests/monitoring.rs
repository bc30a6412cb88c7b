//! The dashboard, the alerts and the monitor of `host/cli/packaging` name metrics that a server exports, and the manual
//! says of every alert what to do.

use crate::packaging::{after, packaged};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use support::transcript::answers;
use toolhold_needs::{Need, leave_out};
use toolhold_telemetry::{METRICS, MetricSpec};

/// The series that Prometheus makes of each server that it scrapes.
const UP: &str = "up";
/// Labels of every series: Prometheus adds the first two, and a histogram has the last.
const COMMON_LABELS: [&str; 3] = ["instance", "job", "le"];

/// Labels of each series that may be named.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let mut known: BTreeMap<String, BTreeSet<String>> = METRICS
        .iter()
        .flat_map(|row| row.series().into_iter().map(move |name| (name, row)))
        .map(|(name, row)| (name, row.scraped_labels().collect()))
        .collect();
    known.insert(UP.to_owned(), BTreeSet::new());
    known
}

/// A part of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'e> {
    Word(&'e str),
    Sign(char),
}

impl Token<'_> {
    /// Whether the word before it is a function's: its arguments follow, or the labels by which it groups.
    fn follows_function(&self) -> bool {
        matches!(self, Self::Sign('(') | Self::Word("by" | "without"))
    }
}

/// The parts of an expression of Prometheus, without strings and ranges of time.
fn tokens(expression: &str) -> Vec<Token<'_>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => 2 + rest[1..].find('"').expect("a string ends"),
            '[' => 1 + rest.find(']').expect("a range ends"),
            c if is_word(c) => rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        match first {
            '"' | '[' => {}
            c if c.is_whitespace() => {}
            c if is_word(c) => tokens.push(Token::Word(token)),
            c => tokens.push(Token::Sign(c)),
        }
        rest = after;
    }
    tokens
}

/// Words before a list of labels.
const GROUPINGS: [&str; 6] = [
    "by",
    "group_left",
    "group_right",
    "ignoring",
    "on",
    "without",
];
const OPERATORS: [&str; 5] = ["and", "bool", "offset", "or", "unless"];

/// The names in an expression.
#[derive(Debug, Default, PartialEq, Eq)]
struct UsedNames<'e> {
    /// Series, each with the labels by which it is selected.
    series: Vec<(&'e str, Vec<&'e str>)>,
    /// Labels by which series are grouped.
    grouped: Vec<&'e str>,
}

impl<'e> UsedNames<'e> {
    fn of(expression: &'e str) -> Self {
        let tokens = tokens(expression);
        let mut used = Self::default();
        let mut rest = tokens.as_slice();
        while let [first, after @ ..] = rest {
            rest = after;
            let Token::Word(word) = *first else { continue };
            let next = rest.first();
            if GROUPINGS.contains(&word) {
                used.grouped.extend(words_until(&mut rest, ')'));
            } else if next == Some(&Token::Sign('{')) {
                used.series.push((word, words_until(&mut rest, '}')));
            } else if !OPERATORS.contains(&word)
                && !next.is_some_and(Token::follows_function)
                && !word.starts_with(|c: char| c.is_ascii_digit())
            {
                used.series.push((word, Vec::new()));
            }
        }
        used
    }
}

fn words_until<'e>(rest: &mut &[Token<'e>], end: char) -> Vec<&'e str> {
    let all = *rest;
    let at = all.iter().position(|token| *token == Token::Sign(end));
    let (within, after) = all.split_at(at.expect("an end"));
    *rest = after;
    within
        .iter()
        .filter_map(|token| match token {
            Token::Word(word) => Some(*word),
            Token::Sign(_) => None,
        })
        .collect()
}

#[test]
fn names_are_found_in_expressions() {
    let expression = "sum by (job, le) (rate(a_total{job=\"x, y\", b=~\"c|d{\"}[5m])) / b_bytes > 0.5 or vector(0)\n";
    let expected = UsedNames {
        series: vec![("a_total", vec!["job", "b"]), ("b_bytes", Vec::new())],
        grouped: vec!["job", "le"],
    };
    assert_eq!(UsedNames::of(expression), expected);
}

/// Returns the names in an expression that no server exports.
fn unknown_names(expression: &str) -> Vec<String> {
    let known = known();
    let all: BTreeSet<&str> = known.values().flatten().map(String::as_str).collect();
    let is_common = |label: &str| COMMON_LABELS.contains(&label);
    let used = UsedNames::of(expression);
    assert!(!used.series.is_empty(), "{expression}");
    let mut unknown = Vec::new();
    for (name, labels) in used.series {
        let Some(own) = known.get(name) else {
            unknown.push(name.to_owned());
            continue;
        };
        let foreign = labels.into_iter().filter(|label| {
            let is_own = own.contains(*label);
            !is_own && !is_common(label)
        });
        unknown.extend(foreign.map(|label| format!("{name}{{{label}}}")));
    }
    let grouped = used.grouped.into_iter();
    let foreign = grouped.filter(|label| !all.contains(label) && !is_common(label));
    unknown.extend(foreign.map(str::to_owned));
    unknown
}

/// An alert of the rules.
#[derive(Debug)]
struct Alert {
    name: String,
    expression: String,
    text: String,
}

fn alerts() -> Vec<Alert> {
    let rules = packaged("alerts.yaml");
    let texts = rules.split("      - alert: ").skip(1);
    let alerts: Vec<Alert> = texts
        .map(|text| {
            let mut lines = text.lines();
            let name = lines.next().expect("a name").to_owned();
            let expression = match after(text, "expr: ") {
                "|" => lines
                    .skip_while(|line| !line.trim_start().starts_with("expr: "))
                    .skip(1)
                    .take_while(|line| line.starts_with("          "))
                    .collect::<Vec<_>>()
                    .join("\n"),
                line => line.to_owned(),
            };
            Alert {
                name,
                expression,
                text: text.to_owned(),
            }
        })
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    alerts
}

#[test]
fn alerts_name_metrics_that_are_exported() {
    for alert in alerts() {
        let unknown = unknown_names(&alert.expression);
        assert!(unknown.is_empty(), "{}: {unknown:?}", alert.name);
        // Labels of the texts are those of the expression.
        let known = known();
        let labels: BTreeSet<&str> = known.values().flatten().map(String::as_str).collect();
        for label in alert.text.split("$labels.").skip(1) {
            let end = label.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let label = &label[..end.expect("an end")];
            let is_known = labels.contains(label) || COMMON_LABELS.contains(&label);
            assert!(is_known, "{}: {label}", alert.name);
        }
    }
}

/// At three in the morning, the alert alone must be enough to begin with.
#[test]
fn the_manual_says_of_every_alert_what_to_do() {
    let manual = std::fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    let (_, section) = manual.split_once("\n### Alerts\n").expect("the section");
    let (section, _) = section.split_once("\n### ").expect("another section");
    let explained: BTreeMap<&str, &str> = section
        .split("\n#### ")
        .skip(1)
        .map(|part| part.split_once('\n').expect("a text"))
        .collect();
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(explained.keys().copied().collect::<BTreeSet<_>>(), names);
    for alert in &alerts {
        let text = explained[alert.name.as_str()];
        for part in ["**Means.** ", "**Look at** ", "**Do.** "] {
            assert!(text.contains(part), "{}: {part}", alert.name);
        }
        let runbook = format!("docs/operations.md#{}", alert.name.to_lowercase());
        assert_eq!(after(&alert.text, "runbook: "), runbook);
    }
}

/// All members of this name, wherever they are.
fn members<'v>(value: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get(name));
            for value in object.values() {
                members(value, name, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                members(item, name, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_dashboard_names_metrics_that_are_exported() {
    let dashboard: Value = serde_json::from_str(&packaged("dashboard.json")).expect("JSON");
    assert!(
        dashboard["schemaVersion"]
            .as_u64()
            .is_some_and(|it| it > 30)
    );
    let mut expressions = Vec::new();
    members(&dashboard["panels"], "expr", &mut expressions);
    assert!(expressions.len() > 40, "{}", expressions.len());
    for expression in expressions {
        let expression = expression.as_str().expect("a text");
        let unknown = unknown_names(expression);
        assert!(unknown.is_empty(), "{expression}: {unknown:?}");
        assert!(expression.contains("job=~\"$job\""), "{expression}");
    }
    // Variables take their values from a metric: label_values(METRIC, LABEL).
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let queries: Vec<&str> = variables
        .iter()
        .filter_map(|variable| variable["definition"].as_str())
        .collect();
    assert_eq!(queries.len(), 2);
    for query in queries {
        let (metric, _) = query.rsplit_once(", ").expect("a label");
        let metric = metric.strip_prefix("label_values(").expect("its values");
        let unknown = unknown_names(metric);
        assert!(unknown.is_empty(), "{query}: {unknown:?}");
    }
    let mut ids = Vec::new();
    members(&dashboard["panels"], "id", &mut ids);
    let numbers: BTreeSet<u64> = ids.iter().filter_map(|id| id.as_u64()).collect();
    let panels = dashboard["panels"].as_array().unwrap();
    assert_eq!(numbers.len(), panels.len(), "panels have ids of their own");
}

/// A metric that is drawn nowhere and raises no alert is not looked at.
#[test]
fn every_metric_is_drawn_or_raises_an_alert() {
    let dashboard: Value = serde_json::from_str(&packaged("dashboard.json")).expect("JSON");
    let mut drawn = Vec::new();
    members(&dashboard, "expr", &mut drawn);
    let alerts = alerts();
    let expressions = drawn.iter().filter_map(|expression| expression.as_str());
    let expressions = expressions.chain(alerts.iter().map(|alert| alert.expression.as_str()));
    let used: BTreeSet<&str> = expressions
        .flat_map(|expression| UsedNames::of(expression).series)
        .map(|(name, _)| name)
        .collect();
    for row in METRICS {
        let series = row.series();
        let is_used = series.iter().any(|name| used.contains(name.as_str()));
        assert!(is_used, "{}", row.name);
    }
}

/// `None` where the program is not installed.
fn promtool(arguments: &[&str]) -> Option<Output> {
    let said = Command::new("promtool")
        .args(arguments)
        .current_dir(repository())
        .output();
    if said.is_err() {
        leave_out(
            Need::Promtool,
            "promtool is not installed, so Prometheus checks no rule",
        );
    }
    said.ok()
}

#[test]
fn prometheus_takes_the_rules_and_each_alert_fires() {
    let rules = "host/cli/packaging/alerts.yaml";
    let Some(checked) = promtool(&["check", "rules", rules]) else {
        return;
    };
    assert!(checked.status.success(), "{checked:?}");
    let cases = "tests/fixtures/alerts.yaml";
    let fired = promtool(&["test", "rules", cases]).expect("it was there");
    assert!(fired.status.success(), "{fired:?}");
    let cases = std::fs::read_to_string(repository().join(cases)).unwrap();
    for alert in alerts() {
        let fires = format!("alertname: {}\n        exp_alerts:\n", alert.name);
        assert!(cases.contains(&fires), "no case fires {}", alert.name);
    }
}

/// The monitor finds the service by its label, asks on a port that the service has, and is let through.
#[test]
fn the_monitor_reaches_the_service() {
    let monitor = packaged("servicemonitor.yaml");
    let manifest = packaged("kubernetes.yaml");
    let documents: Vec<&str> = manifest.split("\n---\n").collect();
    let kind = |name: &str| {
        let line = format!("\nkind: {name}\n");
        let found = documents.iter().find(|document| document.contains(&line));
        *found.unwrap_or_else(|| panic!("no {name}"))
    };
    let (service, policy) = (kind("Service"), kind("NetworkPolicy"));
    let label = after(&monitor, "matchLabels: ");
    let labels = format!("\n  labels: {label}\n");
    assert!(service.contains(&labels), "{service}");
    let port = after(&monitor, "- port: ");
    assert!(service.contains(&format!("{{ name: {port}, port: ")));
    let (_, scraper) = policy.split_once("namespaceSelector:").expect("a scraper");
    let (scraper, _) = scraper.split_once("egress:").expect("what may be asked");
    assert!(scraper.contains(&format!("- {{ port: {port} }}")));
    assert_eq!(after(&monitor, "path: "), "/metrics");
    // The secret of the authorization is the one that the comment makes.
    let secret = after(&monitor, "credentials: { name: ");
    let (secret, key) = secret.split_once(", key: ").expect("a key");
    assert!(monitor.contains(&format!("create secret generic {secret} ")));
    let key = key.trim_end_matches(" }");
    assert!(monitor.contains(&format!("--from-literal={key}=")));
}

/// A time-out that no bucket reaches would be counted as if it could be any time.
#[test]
fn histograms_are_longer_than_the_time_outs() {
    let reference = Host::new().run(&["generate", "config"]);
    let defaults: toml::Table = toml::from_str(&reference.stdout).expect("TOML");
    for (metric, path) in [
        ("gen_ai.invoke_agent.duration", "run.timeout_ms"),
        (
            "gen_ai.client.operation.time_to_first_chunk",
            "endpoints.default.first_token_timeout_ms",
        ),
        (
            "gen_ai.client.operation.time_per_output_chunk",
            "endpoints.default.idle_timeout_ms",
        ),
        ("gen_ai.client.operation.duration", "run.timeout_ms"),
        (
            "toolhold.endpoint.queue.wait",
            "endpoints.default.queue_timeout_ms",
        ),
        ("toolhold.run.queue.wait", "serve.queue_timeout_ms"),
        ("gen_ai.execute_tool.duration", "run.call_timeout_ms"),
        ("http.server.request.duration", "run.timeout_ms"),
    ] {
        let mut keys = path.split('.');
        let table = &defaults[keys.next().expect("a table")];
        let value = keys.fold(table, |value, key| &value[key]);
        let time_out = value.as_integer().expect("a number") as f64 / 1_000.0;
        let row = METRICS.iter().find(|row| row.name == metric);
        let longest = row.and_then(|row| row.boundaries.last());
        let is_longer = longest.is_some_and(|longest| *longest > time_out);
        assert!(is_longer, "{metric}: {longest:?} s; {path}: {time_out} s");
    }
}

/// The table has what a server really exports, and the server what it always knows.
#[test]
fn a_server_exports_what_the_table_has() {
    let endpoint = Endpoint::start(Scenario::new([answers("4")]));
    let host = Host::new();
    host.ship("calculator").write(
        "toolhold.toml",
        format!(
            "[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n",
            endpoint.base_url()
        ),
    );
    let server = Server::start(&host, &[]);
    let task = json!({"messages": [{"role": "user", "content": "2+2?"}]});
    server.post("/v1/agent", &task).good();
    let began = Instant::now();
    let text = loop {
        let text = server.get("/metrics").text;
        // The first look at the disks ends a moment after the start.
        if text.contains("\ntoolhold_disk_free_bytes{") {
            break text;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<&str> = lines
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let known: BTreeSet<String> = METRICS.iter().flat_map(MetricSpec::series).collect();
    for name in &exported {
        let is_known = known.contains(*name) || *name == "target_info";
        assert!(is_known, "{name}");
    }
    let mut always = vec![
        "toolhold_ready",
        "toolhold_build_info",
        "toolhold_runs_resumed_total",
        "toolhold_runs_left_total",
        "toolhold_reloads_total",
        "toolhold_audit_failures_total",
        "toolhold_run_queue_limit",
        "toolhold_disk_size_bytes",
        "http_server_request_duration_seconds_bucket",
        "process_max_fds",
    ];
    if cfg!(target_os = "linux") {
        always.extend([
            "process_cpu_seconds_total",
            "process_open_fds",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
            "process_threads",
        ]);
    }
    for name in always {
        assert!(exported.contains(name), "{name}\n{text}");
    }
}

/// A configuration that is refused is seen in the metrics until one holds again.
#[test]
fn a_refused_reload_is_counted() {
    let endpoint = Endpoint::start(Scenario::new([answers("4")]));
    let host = Host::new();
    let config = format!(
        "[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n",
        endpoint.base_url()
    );
    host.write("toolhold.toml", &config);
    let server = Server::start(&host, &[]);
    let value = |name: &str, label: &str| {
        let text = server.get("/metrics").text;
        let mut lines = text.lines().filter(|line| line.starts_with(name));
        let line = lines.find(|line| line.contains(label)).map(str::to_owned);
        line.and_then(|line| line.rsplit_once(' ').map(|(_, value)| value.to_owned()))
    };
    let becomes = |name: &str, label: &str, expected: &str| {
        let began = Instant::now();
        while value(name, label).as_deref() != Some(expected) {
            let waited = began.elapsed();
            assert!(
                waited < Duration::from_secs(30),
                "{name}: {}",
                server.said()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    becomes("toolhold_reload_unapplied", "", "0");
    host.write(
        "toolhold.toml",
        format!("{config}[run]\nmax_steps = \"many\"\n"),
    );
    becomes("toolhold_reload_unapplied", "", "1");
    host.write("toolhold.toml", format!("{config}[run]\nmax_steps = 3\n"));
    becomes("toolhold_reload_unapplied", "", "0");
    let applied = value("toolhold_reloads_total", "applied");
    assert_ne!(applied.as_deref(), Some("0"));
    let refused = value("toolhold_reloads_total", "refused");
    assert_ne!(refused.as_deref(), Some("0"));
}
