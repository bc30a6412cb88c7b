//! The log of a server: its lines about failures, and their form.

use super::{ask, host, scripted, serve};
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply};
use support::host::Host;
use support::server::Server;
use support::transcript::answers;
use support::until;

/// Settings that make a failure quick: two attempts, and a breaker that two failures open.
const QUICK: &str = "[telemetry]\nlog_format = \"json\"\n\
    [endpoints.default]\nattempts = 2\nbackoff_ms = 10\nbreaker_failures = 2\n";

/// A server with a log in JSON, and the key of a client.
fn logged(config: &str, endpoint: &Endpoint, log: &str) -> (Host, Server) {
    let host = host(config);
    let key = host.run(&["keys", "create", "ada"]).stdout;
    let arguments = ["--base-url", &endpoint.base_url(), "--model", "m"];
    let mut server = Server::start_with(&host, &arguments, &[("TOOLHOLD_LOG", log)]);
    server.use_key(key.trim());
    (host, server)
}

/// Every line so far as JSON.
fn lines(server: &Server) -> Vec<Value> {
    let said = server.said();
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    let parsed = whole.lines().map(|line| {
        let parsed: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("plain: {line}"));
        assert!(parsed["timestamp"].is_string(), "{line}");
        assert!(parsed["level"].is_string(), "{line}");
        parsed
    });
    parsed.collect()
}

/// The first line with this message, as soon as there is one.
fn line(server: &Server, message: &str) -> Value {
    until(message, || {
        let mut all = lines(server).into_iter();
        all.find(|line| {
            let said = line["message"].as_str().unwrap_or_default();
            said.contains(message)
        })
    })
}

/// The first notice of this kind that says this.
fn notice(server: &Server, kind: &str, message: &str) -> Value {
    until(kind, || {
        let mut all = lines(server).into_iter();
        all.find(|line| {
            let said = line["message"].as_str().unwrap_or_default();
            line["notice"] == kind && said.contains(message)
        })
    })
}

fn unavailable() -> Reply {
    Reply::error(503, json!({"error": {"message": "loading"}}))
}

#[test]
fn a_failing_endpoint_is_told_in_json_and_so_is_all_else_of_stderr() {
    let endpoint = scripted([unavailable(), unavailable()]);
    let (host, mut server) = logged(QUICK, &endpoint, "");
    let started = notice(&server, "serving", "http://");
    assert_eq!(started["level"], "INFO");
    let answer = server.post("/v1/agent", &ask("anybody there?"));
    let ended = line(&server, "a run ended without an answer");
    let run = ended["run"].as_str().unwrap();
    assert!(answer.text.contains(run), "{answer:?}");
    assert_eq!(
        (&ended["key"], &ended["reason"]),
        (&json!("ada"), &json!("model"))
    );
    assert!(
        ended["error"].as_str().unwrap().contains("loading"),
        "{ended}"
    );

    let failures: Vec<Value> = lines(&server)
        .into_iter()
        .filter(|line| line["message"] == "a request to an endpoint failed")
        .collect();
    assert_eq!(failures.len(), 2, "{failures:?}");
    for (failure, attempt) in failures.iter().zip(1..) {
        let told = ["endpoint", "run", "key", "kind", "status"].map(|name| &failure[name]);
        let expected = [
            json!("default"),
            json!(run),
            json!("ada"),
            json!("status"),
            json!(503),
        ];
        assert_eq!(told, expected.each_ref(), "{failure}");
        assert_eq!(failure["attempt"], attempt);
        assert_eq!(failure["level"], "INFO");
    }
    let opened = line(&server, "circuit breaker of an endpoint opened");
    assert_eq!(
        (&opened["endpoint"], &opened["run"]),
        (&json!("default"), &json!(run))
    );

    // A reload, one that names keys of which it says that they wait, and one that is refused.
    host.write(
        "toolhold.toml",
        format!("{QUICK}[serve]\nconcurrent_runs = 3\nbody_bytes = 5000\n"),
    );
    notice(&server, "reloaded", "agents and grants");
    let waits = notice(
        &server,
        "restart",
        "serve.body_bytes, serve.concurrent_runs",
    );
    assert_eq!(waits["level"], "WARN");
    host.write("toolhold.toml", format!("{QUICK}nonsense = 1\n"));
    let refused = notice(&server, "error", "nonsense");
    assert_eq!(refused["level"], "ERROR");
    assert_eq!(server.terminate(), Some(0));
    line(&server, "stopping");
    lines(&server);
}

#[test]
fn a_start_that_fails_is_told_in_json() {
    let host = host(&format!("{QUICK}nonsense = 1\n"));
    let failed = host.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let told: Vec<Value> = failed
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("plain: {line}")))
        .collect();
    let error = told.iter().find(|line| line["notice"] == "error").unwrap();
    assert!(
        error["message"].as_str().unwrap().contains("nonsense"),
        "{error}"
    );
}

#[test]
fn a_full_queue_is_told_once_and_requests_at_debug() {
    let endpoint = scripted([Reply::never()]);
    let config =
        format!("{QUICK}[serve]\nconcurrent_runs = 1\nkey_concurrent_runs = 1\nwaiting_runs = 0\n");
    let (_host, server) = logged(&config, &endpoint, "debug,hyper=off");
    let mut task = ask("wait");
    task["stream"] = true.into();
    server.first_events(reqwest::Method::POST, "/v1/agent", Some(&task), 1);
    until("the request", || {
        (endpoint.open_streams() == 1).then_some(())
    });
    for _ in 0..3 {
        assert_eq!(server.post("/v1/agent", &ask("more")).status, 429);
    }
    let full = line(&server, "runs are refused");
    assert_eq!(
        (&full["level"], &full["key"]),
        (&json!("INFO"), &json!("ada"))
    );
    let begun = line(&server, "a run begins");
    assert_eq!(
        (&begun["level"], &begun["key"]),
        (&json!("DEBUG"), &json!("ada"))
    );
    let access = until("the access log", || {
        let mut all = lines(&server).into_iter();
        all.find(|line| line["target"] == "toolhold::access" && line["status"] == 429)
    });
    let told = ["key", "method", "path"].map(|name| &access[name]);
    let expected = [json!("ada"), json!("POST"), json!("/v1/agent")];
    assert_eq!(told, expected.each_ref());
    let all = lines(&server);
    let refusals = all.iter().filter(|line| {
        let said = line["message"].as_str().unwrap_or_default();
        said.contains("runs are refused")
    });
    assert_eq!(refusals.count(), 1);
}

/// Without any setting, a server says in text that its endpoint fails.
#[test]
fn a_failing_endpoint_is_told_without_any_setting() {
    let endpoint = scripted([Reply::error(401, json!({"error": {"message": "who?"}}))]);
    let host = host("");
    let server = serve(&host, &endpoint);
    server.post("/v1/agent", &ask("hello"));
    until("the failure and the end", || {
        let said = server.said();
        let is_told = said.contains("a request to an endpoint failed")
            && said.contains("a run ended without an answer");
        is_told.then_some(())
    });
    assert!(!server.said().contains("a request was answered"));
}

#[test]
fn an_answer_leaves_no_line() {
    let endpoint = scripted([answers("fine")]);
    let host = host("");
    let server = serve(&host, &endpoint);
    server.post("/v1/agent", &ask("hello")).good();
    let said = server.said();
    assert!(!said.contains("a run ended"), "{said}");
}
