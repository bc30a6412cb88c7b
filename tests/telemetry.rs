//! What leaves a host about its runs: traces and metrics for a collector, metrics for Prometheus, the audit
//! log; and what does not.

use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use support::collector::{Collector, Span};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};
use support::server::Server;
use support::transcript::{answers, calls};

/// Private data in arguments.
const EMAIL: &str = "canary.person@example.org";
const SECRET: &str = "canary-secret-of-the-endpoint";

/// A model that calls two tools, one of them wrongly, and tells a secret that it should not know.
fn scenario() -> Scenario {
    Scenario::new([
        calls([
            ("calculator.evaluate", json!({"expression": "2+2"})),
            ("text.count", json!({"text": format!("{EMAIL} {SECRET}")})),
        ]),
        calls([("calculator.evaluate", json!({"expression": "1/"}))]),
        answers("It is 4."),
    ])
}

fn host(config: &str) -> Host {
    let host = Host::new();
    host.ship("calculator")
        .ship("text")
        .write("toolhold.toml", config);
    host
}

fn run(host: &Host, endpoint: &Endpoint, collector: &Collector) -> Finished {
    let url = endpoint.base_url();
    let task = format!("Write to {EMAIL}.");
    let mut command = host.command(&["run", &task, "--base-url", &url, "--model", "scripted"]);
    let command = command
        .env("TOOLHOLD_API_KEY", SECRET)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abc");
    finish(command.output().unwrap())
}

fn by_name(spans: &[Span]) -> BTreeMap<&str, Vec<&Span>> {
    let mut named: BTreeMap<&str, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        named.entry(&span.name).or_default().push(span);
    }
    named
}

#[test]
fn a_collector_gets_a_trace_and_metrics_of_a_run() {
    let (collector, endpoint) = (Collector::start(), Endpoint::start(scenario()));
    let host = host("");
    let done = run(&host, &endpoint, &collector);
    assert_eq!(done.code, Some(0), "{done:?}");
    let spans = collector.spans();
    let named = by_name(&spans);
    let counts: BTreeMap<_, _> = named.iter().map(|(name, all)| (*name, all.len())).collect();
    assert_eq!(
        counts,
        BTreeMap::from([
            ("invoke_agent default", 1),
            ("chat scripted", 3),
            ("execute_tool calculator.evaluate", 2),
            ("execute_tool text.count", 1),
        ])
    );
    let agent = named["invoke_agent default"][0];
    assert_eq!(agent.parent, "");
    for span in &spans {
        assert_eq!(span.trace, agent.trace);
        assert!(span.id == agent.id || span.parent == agent.id, "{span:?}");
        assert!(span.took <= agent.took, "{span:?}");
    }
    let has = |span: &Span, expected: Value| {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&span.attributes[name], value, "{name}: {span:?}");
        }
    };
    has(
        agent,
        json!({
            "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": "openai",
            "gen_ai.agent.name": "default", "gen_ai.request.model": "scripted",
            "toolhold.run.stop_reason": "output", "toolhold.run.steps": 3, "error.type": null,
        }),
    );
    let chat = named["chat scripted"][0];
    has(
        chat,
        json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "scripted", "gen_ai.response.finish_reasons": ["stop"],
        }),
    );
    // The events of later requests have only what differs from the first.
    for chat in &named["chat scripted"] {
        for parameter in ["gen_ai.request.max_tokens", "gen_ai.request.temperature"] {
            assert!(chat.attributes[parameter].is_number(), "{chat:?}");
        }
    }
    for counted in ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
        let of_chats = named["chat scripted"].iter();
        let sum: i64 = of_chats
            .map(|it| it.attributes[counted].as_i64().unwrap())
            .sum();
        assert!(sum > 0);
        assert_eq!(agent.attributes[counted], sum, "{counted}");
    }
    let tools = &named["execute_tool calculator.evaluate"];
    let (failed, worked): (Vec<_>, Vec<_>) = tools
        .iter()
        .partition(|span| !span.attributes["error.type"].is_null());
    assert_eq!((failed.len(), worked.len()), (1, 1), "{tools:?}");
    has(
        worked[0],
        json!({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "calculator.evaluate",
            "gen_ai.tool.type": "function",
        }),
    );
    assert!(worked[0].attributes["gen_ai.tool.call.id"].is_string());
    assert!(worked[0].attributes["toolhold.tool.fuel"].as_i64() > Some(0));
    let digest = worked[0].attributes["toolhold.tool.module.digest"].as_str();
    assert_eq!(digest.map(str::len), Some(64));

    let metrics = collector.metrics();
    for name in [
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.operation.time_per_output_chunk",
        "gen_ai.invoke_agent.duration",
        "gen_ai.execute_tool.duration",
        "toolhold.tool.calls",
        "toolhold.tool.errors",
        "toolhold.tool.fuel",
        "toolhold.tool.memory",
        "toolhold.runs",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics:?}");
    }
    assert_eq!(
        collector.services().into_iter().collect::<Vec<_>>(),
        ["toolhold"]
    );
    assert!(
        collector
            .authorizations()
            .iter()
            .all(|it| it == "Basic abc")
    );
    for canary in [EMAIL, SECRET, "2+2", "It is 4."] {
        assert!(!collector.has_heard(canary), "{canary}");
    }
}

#[test]
fn captured_content_is_masked() {
    let (collector, endpoint) = (Collector::start(), Endpoint::start(scenario()));
    let host = host("[telemetry]\ncapture_content = true\nservice_name = \"bookshop\"\n");
    let done = run(&host, &endpoint, &collector);
    assert_eq!(done.code, Some(0), "{done:?}");
    let spans = collector.spans();
    let named = by_name(&spans);
    let counted = &named["execute_tool text.count"][0].attributes;
    assert_eq!(
        counted["gen_ai.tool.call.arguments"],
        r#"{"text":"<email> [secret TOOLHOLD_API_KEY]"}"#
    );
    assert!(counted["gen_ai.tool.call.result"].is_string());
    let last = &named["chat scripted"][2].attributes;
    let asked = last["gen_ai.input.messages"].as_str().unwrap();
    assert!(asked.contains("Write to <email>."), "{asked}");
    let said = last["gen_ai.output.messages"].as_str().unwrap();
    assert!(said.contains("It is 4."), "{said}");
    assert_eq!(
        collector.services().into_iter().collect::<Vec<_>>(),
        ["bookshop"]
    );
    for canary in [EMAIL, SECRET] {
        assert!(!collector.has_heard(canary), "{canary}");
    }
}

#[test]
fn a_sub_agent_is_inside_of_the_call_that_it_answers() {
    let collector = Collector::start();
    let endpoint = Endpoint::start(Scenario::new([
        calls([("helper", json!({}))]),
        answers("inner"),
        answers("outer"),
    ]));
    let host = host("");
    host.write(
        "requests/helper.json",
        json!({"description": "Helps.", "context": [{"role": "user", "content": "help"}]}).to_string(),
    )
    .write(
        "context.json",
        json!([{"type": "tool", "tool": {"helper": {
            "description": "Helps.", "type": "object", "properties": {"_module": {"const": "./helper.json"}},
        }}}])
        .to_string(),
    );
    let url = endpoint.base_url();
    let all = [
        "run",
        "t",
        "--context",
        "context.json",
        "--base-url",
        &url,
        "--model",
        "m",
    ];
    let mut command = host.command(&all);
    let command = command.env(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        format!("{}/v1/traces", collector.url()),
    );
    let done = finish(command.output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    let spans = collector.spans();
    let named = by_name(&spans);
    let (outer, call) = (
        named["invoke_agent default"][0],
        named["execute_tool helper"][0],
    );
    let inner = named["invoke_agent helper"][0];
    assert_eq!((&call.parent, &inner.parent), (&outer.id, &call.id));
    let parents: Vec<_> = named["chat m"].iter().map(|it| &it.parent).collect();
    assert_eq!(parents.iter().filter(|it| ***it == inner.id).count(), 1);
    assert_eq!(parents.iter().filter(|it| ***it == outer.id).count(), 2);
    assert!(collector.metrics().is_empty(), "only traces were asked for");
}

/// Samples of Prometheus' text format: name with labels, and value.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            (sample.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn sum(samples: &BTreeMap<String, f64>, name: &str, label: &str) -> f64 {
    let fits = |sample: &str| {
        let rest = sample.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('{')) && sample.contains(label)
    };
    let fitting = samples.iter().filter(|(sample, _)| fits(sample));
    fitting.map(|(_, value)| value).sum()
}

#[test]
fn a_server_is_scraped_audited_and_goes_on_with_its_clients_traces() {
    let (collector, endpoint) = (Collector::start(), Endpoint::start(scenario()));
    let config = format!(
        "[telemetry]\nendpoint = \"{}\"\n[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\napi_key_env = \"ENDPOINT_KEY\"\n",
        collector.url(),
        endpoint.base_url()
    );
    let host = host(&config);
    let key = |name: &str, scope: &str| {
        let made = host.run(&["keys", "create", name, "--scopes", scope]);
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout
    };
    let (alice, admin) = (key("alice", "run"), key("boss", "admin"));
    let mut server = Server::start(&host, &[]);
    assert_eq!(server.get("/metrics").status, 401);
    server.use_key(&alice);
    assert_eq!(server.get("/metrics").status, 403);
    assert_eq!(server.get("/v1/audit").status, 403);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let task = json!({"messages": [{"role": "user", "content": format!("Write to {EMAIL}.")}]});
    let answered = server.ask(
        Method::POST,
        "/v1/agent",
        Some(&task),
        &[("traceparent", &parent)],
    );
    let run = answered.good()["id"].as_str().unwrap().to_owned();

    let scraper = key("scraper", "metrics");
    server.use_key(&scraper);
    for other in ["/v1/runs", "/v1/models", "/v1/tools", "/v1/audit"] {
        assert_eq!(server.get(other).status, 403, "{other}");
    }
    let scraped = server.get("/metrics");
    assert_eq!(scraped.status, 200);
    let metrics = samples(&scraped.text);
    let calculator = "gen_ai_tool_name=\"calculator.evaluate\"";
    for (name, label, expected) in [
        ("toolhold_tool_calls_total", calculator, 2.0),
        ("toolhold_tool_errors_total", calculator, 1.0),
        ("gen_ai_execute_tool_duration_seconds_count", "", 3.0),
        ("gen_ai_client_operation_duration_seconds_count", "", 3.0),
        (
            "gen_ai_client_token_usage_count",
            "gen_ai_token_type=\"input\"",
            3.0,
        ),
        (
            "toolhold_runs_total",
            "toolhold_run_stop_reason=\"output\"",
            1.0,
        ),
        ("toolhold_run_queue_wait_seconds_count", "", 1.0),
        ("toolhold_run_queue_length", "", 0.0),
        ("toolhold_run_parked", "", 0.0),
        ("toolhold_ready", "", 1.0),
        ("toolhold_agents", "toolhold_agent_state=\"ready\"", 1.0),
        ("toolhold_modules", "toolhold_module_state=\"ready\"", 2.0),
        ("toolhold_modules", "toolhold_module_state=\"failed\"", 0.0),
        ("toolhold_database_outage", "", 0.0),
        ("toolhold_audit_failures_total", "", 0.0),
        ("toolhold_reload_unapplied", "", 0.0),
        (
            "http_server_request_duration_seconds_count",
            "http_response_status_code=\"401\"",
            1.0,
        ),
        (
            "http_server_request_duration_seconds_count",
            "http_response_status_code=\"403\"",
            6.0,
        ),
        (
            "http_server_request_duration_seconds_count",
            "http_route=\"/v1/agent\"",
            1.0,
        ),
        ("toolhold_module_cache_lookups_total", "", 2.0),
        (
            "toolhold_sandbox_calls",
            "toolhold_sandbox_call_state=\"running\"",
            0.0,
        ),
        (
            "toolhold_sandbox_pool",
            "toolhold_sandbox_pool_resource=\"core_instances\"",
            0.0,
        ),
        (
            "toolhold_sandbox_pool_limit",
            "toolhold_sandbox_pool_resource=\"stacks\"",
            88.0,
        ),
    ] {
        let found = sum(&metrics, name, label);
        assert!(
            (found - expected).abs() < 0.01,
            "{name}: {found}\n{}",
            scraped.text
        );
    }
    assert!(
        scraped.text.contains("toolhold_run_active"),
        "{}",
        scraped.text
    );

    server.use_key(&admin);
    let audited = server.get(&format!("/v1/audit?run={run}")).good();
    let entries = audited["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 3, "{audited}");
    let newest = &entries[0]["entry"];
    assert_eq!(newest["owner"], "alice");
    assert_eq!(newest["tool"], "calculator.evaluate");
    assert_eq!(newest["status"], "error");
    let older = server.get("/v1/audit?tool=text.count&limit=1").good();
    let arguments = &older["entries"][0]["entry"]["arguments"];
    assert_eq!(
        arguments["text"],
        format!("<email> {SECRET}"),
        "it is not configured as a secret"
    );
    assert_eq!(server.get("/v1/audit?limit=0").status, 400);

    let spans = collector.wait_for(|spans| {
        let has = |name: &str| spans.iter().any(|span| span.name == name);
        has("invoke_agent default")
    });
    for span in &spans {
        assert_eq!(span.trace, trace, "{span:?}");
    }
    assert!(!scraped.text.contains(EMAIL) && !audited.to_string().contains(EMAIL));
    assert!(!collector.has_heard(EMAIL));
}

/// The endpoint is busy at first, then writes JSON in a fence, and a call that another model has to make.
#[test]
fn retries_repairs_and_fallbacks_are_counted() {
    let unreadable = json!({"calls": [{"_tool": "calculator.evaluate", "expression": "2 plus 2"}], "output": null});
    let own = Endpoint::start(Scenario::new([
        Reply::error(503, json!({"error": {"message": "busy"}})),
        Reply::content(format!("```json\n{unreadable}\n```")),
        answers("It is 4."),
    ]));
    let other = Endpoint::start(Scenario::new([calls([(
        "calculator.evaluate",
        json!({"expression": "2+2"}),
    )])]));
    let host = host(&format!(
        "[run]\nreasons = false\n[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\nbackoff_ms = 1\n\
         [endpoints.other]\nbase_url = \"{}\"\nmodel = \"big\"\n\
         [fallback]\ntool_errors = true\nmodels = [\"other\"]\nmax_tool_failures = 1\n",
        own.base_url(),
        other.base_url()
    ));
    let server = Server::start(&host, &[]);
    let task = json!({"messages": [{"role": "user", "content": "What is 2+2?"}]});
    let answer = server.post("/v1/agent", &task).good();
    assert_eq!(answer["output"], "It is 4.", "{answer}");
    let scraped = server.get("/metrics").text;
    let metrics = samples(&scraped);
    for (name, label) in [
        ("toolhold_retries_total", ""),
        ("toolhold_repairs_total", ""),
        ("toolhold_fallbacks_total", "\"other\""),
    ] {
        let found = sum(&metrics, name, label);
        assert!((found - 1.0).abs() < 0.01, "{name}: {found}\n{scraped}");
    }
}

/// Also the last reply of a run, which no event of its own tells.
#[test]
fn unusable_replies_are_counted_by_what_is_wrong_with_them() {
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content("I do not write JSON."),
        Reply::content(""),
        answers("It is 4."),
        Reply::content("Nor here."),
        Reply::content("Nor here either."),
        Reply::content("Never."),
        calls([("no.such_tool", json!({}))]),
        calls([("no.other_tool", json!({}))]),
        calls([("no.third_tool", json!({}))]),
    ]));
    let host = host(&format!(
        "[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n[fallback]\nenabled = false\n",
        endpoint.base_url()
    ));
    let server = Server::start(&host, &[]);
    let task = json!({"messages": [{"role": "user", "content": "What is 2+2?"}]});
    assert_eq!(server.post("/v1/agent", &task).good()["output"], "It is 4.");
    server.post("/v1/agent", &task);
    // A reply that calls nothing that exists is of no use either.
    server.post("/v1/agent", &task);
    let scraped = server.get("/metrics").text;
    let metrics = samples(&scraped);
    for (fault, times) in [
        ("unreadable", 4.0),
        ("empty", 1.0),
        ("unknown_tool", 3.0),
        ("cut_off", 0.0),
    ] {
        let found = sum(&metrics, "toolhold_replies_unusable_total", fault);
        assert!((found - times).abs() < 0.01, "{fault}: {found}\n{scraped}");
    }
}

/// Also one that broke off, and one whose calls cannot be made.
#[test]
fn replies_that_break_off_or_fit_no_tool_are_counted() {
    let piece = json!({"object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": {"content": "{\"calls\": ["}, "finish_reason": null}]});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::raw(format!("data: {piece}\n\n")),
        calls([("calculator.evaluate", json!({"sum": "2+2"}))]),
        answers("It is 4."),
    ]));
    let host = host(&format!(
        "[endpoints.default]\nbase_url = \"{}\"\nmodel = \"m\"\n[fallback]\nenabled = false\n",
        endpoint.base_url()
    ));
    let server = Server::start(&host, &[]);
    let task = json!({"messages": [{"role": "user", "content": "What is 2+2?"}]});
    assert_eq!(server.post("/v1/agent", &task).good()["output"], "It is 4.");
    // A call of a plan is no model's reply.
    let arguments = json!({"arguments": {"sum": "2+2"}});
    let refused = server.post("/v1/tools/calculator.evaluate", &arguments);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(
        refused.text.contains("the plan cannot be run"),
        "{refused:?}"
    );
    let scraped = server.get("/metrics").text;
    let metrics = samples(&scraped);
    for fault in ["broken_off", "arguments"] {
        let found = sum(&metrics, "toolhold_replies_unusable_total", fault);
        assert!((found - 1.0).abs() < 0.01, "{fault}: {found}\n{scraped}");
    }
}

/// The revision changes when the server's model or software does.
#[test]
fn a_trace_has_the_revision_that_the_endpoint_tells() {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"object": "chat.completion.chunk", "model": "m-2026", "system_fingerprint": "fp_1",
            "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let content = json!({"calls": [], "output": "It is 4."}).to_string();
    let body = [
        chunk(json!({"content": content}), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let (collector, endpoint) = (
        Collector::start(),
        Endpoint::start(Scenario::new([Reply::raw(body.concat())])),
    );
    let done = run(&host(""), &endpoint, &collector);
    assert_eq!(done.code, Some(0), "{done:?}");
    let spans = collector.spans();
    let chat = &by_name(&spans)["chat scripted"][0].attributes;
    assert_eq!(
        chat["openai.response.system_fingerprint"], "fp_1",
        "{chat:?}"
    );
}

/// A run that is gone on with after a crash is in the trace that it began in.
#[test]
fn a_resumed_run_goes_on_with_its_trace() {
    let collector = Collector::start();
    let endpoint = Endpoint::start(Scenario::new([
        calls([("calculator.evaluate", json!({"expression": "2+2"}))]),
        Reply::endless(),
        answers("It is 4."),
    ]));
    let config = format!("[telemetry]\nendpoint = \"{}\"\n", collector.url());
    let host = host(&config);
    let url = endpoint.base_url();
    let arguments = ["--base-url", &url, "--model", "m"];
    let mut server = Server::start(&host, &arguments);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let task = json!({"messages": [{"role": "user", "content": "t"}], "stream": true});
    let headers = [("traceparent", parent.as_str())];
    server.first_events_with(Method::POST, "/v1/agent", Some(&task), &headers, 1);
    assert!(endpoint.wait_until(Duration::from_secs(30), |it| it.requests().len() == 2));
    server.kill();
    let server = Server::start(&host, &arguments);
    let run = server.get("/v1/runs").good()["runs"][0]["id"].clone();
    let path = format!("/v1/runs/{}/events", run.as_str().unwrap());
    let events = server.get(&path).events();
    assert_eq!(events.last().unwrap().json()["output"], "It is 4.");
    let spans = collector.wait_for(|spans| {
        let mut all = spans.iter();
        all.any(|span| span.name == "invoke_agent default")
    });
    let root = spans
        .iter()
        .find(|span| span.name == "invoke_agent default");
    let root = root.unwrap();
    assert_eq!(root.trace, trace);
    // The span of before, which was never sent.
    assert!(
        !["", "00f067aa0ba902b7"].contains(&root.parent.as_str()),
        "{root:?}"
    );
}

#[test]
fn the_audit_log_is_searched_exported_and_verified() {
    let endpoint = Endpoint::start(scenario());
    let host = host("");
    let url = endpoint.base_url();
    let mut command = host.command(&["run", "t", "--base-url", &url, "--model", "m"]);
    let done = finish(command.env("TOOLHOLD_API_KEY", SECRET).output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(host.run(&["keys", "create", "alice"]).code, Some(0));

    let exported = host.run(&["audit", "export"]);
    let lines: Vec<Value> = exported
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let actions: Vec<_> = lines
        .iter()
        .map(|it| it["entry"]["action"].clone())
        .collect();
    assert_eq!(actions, ["call", "call", "call", "key_created"]);
    assert!(!exported.stdout.contains(EMAIL) && !exported.stdout.contains(SECRET));
    assert!(
        lines[0]["entry"]["module_digest"].is_string(),
        "{}",
        lines[0]
    );
    assert!(
        lines[0]["entry"]["policy"]
            .as_str()
            .is_some_and(|it| it.len() == 64)
    );

    let found = host.run(&["audit", "search", "ALICE"]);
    assert_eq!(found.stdout.lines().count(), 1, "{found:?}");
    assert!(found.stdout.contains("key_created"), "{found:?}");
    let found = host.run(&[
        "audit",
        "search",
        "--tool",
        "text.count",
        "--since",
        "1h",
        "--json",
    ]);
    assert_eq!(found.stdout.lines().count(), 1, "{found:?}");

    let verified = host.run(&["audit", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let head = lines[3]["hash"].as_str().unwrap();
    assert!(verified.stdout.contains(head), "{verified:?}");
    assert_eq!(
        host.run(&["audit", "verify", "--expect", head]).code,
        Some(0)
    );
    let other = host.run(&["audit", "verify", "--expect", &head.replace(|_| true, "0")]);
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stdout.contains("of no entry"), "{other:?}");
}

#[test]
fn logs_are_json_if_asked_for() {
    let host = host("[telemetry]\nlog_format = \"json\"\n");
    let mut command = host.command(&[
        "run",
        "t",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
    ]);
    let done = finish(command.env("TOOLHOLD_LOG", "debug").output().unwrap());
    let logged: Vec<Value> = done
        .stderr
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["level"].is_string())
        .collect();
    assert!(!logged.is_empty(), "{}", done.stderr);
    assert!(logged.iter().all(|line| line["timestamp"].is_string()));
}
