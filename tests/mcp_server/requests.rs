//! Saved Requests as tools: a call is a run.

use super::decisions::forms;
use super::{HttpMcpServer, Stdio, call, host, initialize, modern, request, text};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::transcript::{answers, calls};

/// Says a sum, and has the calculator reckon it.
fn saved() -> Value {
    let integer = json!({"type": "integer"});
    json!({
        "description": "Adds two numbers.",
        "context": [
            {"type": "input", "schema": {
                "type": "object", "properties": {"a": integer, "b": integer}, "required": ["a", "b"],
            }},
            {"type": "tool", "tool": {"reckon": {
                "type": "object",
                "properties": {"_module": {"const": "calculator"}, "expression": {"type": "string"}},
                "required": ["expression"],
            }}},
        ],
        "schema": {"type": "object", "properties": {"sum": {"type": "string"}}, "required": ["sum"]},
    })
}

fn offering(endpoint: &str, more: &str) -> Host {
    let host = host();
    let config = format!(
        "{more}\n[mcp_server]\nrequests = true\n[endpoints.default]\nbase_url = \"{endpoint}\"\nmodel = \"m\"\n"
    );
    host.write("toolhold.toml", config)
        .write("requests/sum.json", saved().to_string());
    host
}

fn scripted(replies: impl IntoIterator<Item = Reply>) -> Endpoint {
    Endpoint::start(Scenario::new(replies))
}

fn reckons() -> Reply {
    calls([("reckon", json!({"expression": "40+2"}))])
}

fn sums() -> Reply {
    answers(json!({"sum": "42"}))
}

fn sum(id: i64) -> Value {
    call(id, "request-sum", json!({"a": 40, "b": 2}))
}

fn names(client: &mut Stdio) -> Vec<String> {
    let listed = client.ask(request("list", "tools/list", json!({})));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

/// The events of the last run, when it is over.
fn last_run(host: &Host) -> Vec<Value> {
    let started = Instant::now();
    loop {
        let shown = host.run(&["show", "last", "--json"]);
        let events = shown
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let events: Vec<Value> = events.collect();
        if events.last().is_some_and(|event| event["event"] == "done") {
            return events;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{shown:?}");
        std::thread::sleep(Duration::from_millis(150));
    }
}

#[test]
fn a_saved_request_is_a_tool_and_a_call_is_a_run() {
    let endpoint = scripted([reckons(), sums()]);
    let host = offering(&endpoint.base_url(), "");
    let mut client = Stdio::session(&host, &[], json!({}));
    let listed = client.ask(request(1, "tools/list", json!({})));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = tools
        .iter()
        .find(|tool| tool["name"] == "request-sum")
        .unwrap();
    let saved = saved();
    assert_eq!(tool["description"], "Adds two numbers.");
    assert_eq!(tool["inputSchema"], saved["context"][0]["schema"]);
    assert_eq!(tool["outputSchema"], saved["schema"]);
    assert_eq!(tool["annotations"]["readOnlyHint"], false);
    assert!(endpoint.requests().is_empty());

    let wrong = client.ask(call(2, "request-sum", json!({"a": 1})));
    assert_eq!(
        wrong["result"]["_meta"]["io.toolhold/failure"]["kind"],
        "arguments"
    );
    let mut asked = sum(3);
    asked["params"]["_meta"] = json!({"progressToken": "t"});
    let done = client.ask(asked);
    assert_eq!(
        done["result"]["structuredContent"],
        json!({"sum": "42"}),
        "{done}"
    );
    let told: Vec<_> = client
        .heard
        .iter()
        .filter(|heard| heard["method"] == "notifications/progress")
        .map(|heard| heard["params"]["message"].as_str().unwrap_or_default())
        .collect();
    assert!(
        told.first().is_some_and(|first| first.contains("step 1")),
        "{told:?}"
    );

    let events = last_run(&host);
    let run = &events[0]["run"];
    assert_eq!(&done["result"]["_meta"]["io.toolhold/run"], run);
    assert_eq!(events.last().unwrap()["reason"], "output");
    let audited = host.run(&["audit", "search", "--json"]).stdout;
    for part in ["request-sum", "\"tool\":\"reckon\"", "\"via\":\"mcp\""] {
        assert!(audited.contains(part), "{part}: {audited}");
    }
}

/// Its limit and its shield.
#[test]
fn statement_042_12_the_default_agent_holds_for_requests() {
    let endpoint = scripted([reckons()]);
    let agent = "[agents.default]\nrun = { max_steps = 1 }\n\
        shields.mails = { kind = \"pii\", block = [\"email\"], places = [\"input\"] }\n";
    let host = offering(&endpoint.base_url(), agent);
    let letter = json!({
        "description": "Writes a letter.",
        "context": [{"role": "user", "content": "Write to ann@example.com."}],
    });
    host.write("requests/letter.json", letter.to_string());
    let mut client = Stdio::session(&host, &[], json!({}));
    for (asked, kind) in [
        (sum(1), "max_steps"),
        (call(2, "request-letter", json!({})), "blocked"),
    ] {
        let stopped = client.ask(asked);
        let failure = &stopped["result"]["_meta"]["io.toolhold/failure"];
        assert_eq!(failure["kind"], kind, "{stopped}");
    }
    assert_eq!(endpoint.requests().len(), 1);
}

/// The user of a client reads why there is no answer, and has no configuration to change.
#[test]
fn statement_000_12_a_stopped_request_asks_back_in_the_language_of_its_input() {
    let endpoint = scripted([reckons(), reckons()]);
    let host = offering(&endpoint.base_url(), "[run]\nmax_steps = 1\n");
    let mut said = saved();
    said["context"][0]["schema"] = json!({
        "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"],
    });
    host.write("requests/say.json", said.to_string());
    let mut client = Stdio::session(&host, &[], json!({}));
    for (id, task, words) in [
        (1, "Посчитай сумму заказов за март.", "Продолжить, или"),
        (2, "请把这句话翻译成英文。", "要我继续吗"),
    ] {
        let stopped = client.ask(call(id, "request-say", json!({"text": task})));
        let result = &stopped["result"];
        assert_eq!(result["isError"], true, "{stopped}");
        let kind = &result["_meta"]["io.toolhold/failure"]["kind"];
        assert_eq!(*kind, "max_steps", "{stopped}");
        let told = result["content"][0]["text"].as_str().unwrap();
        assert!(told.contains(words) && !told.contains("run."), "{told}");
    }
}

#[test]
fn without_an_endpoint_the_modules_are_served_and_a_run_says_what_is_wrong() {
    let host = offering("http://127.0.0.1:9/v1", "");
    host.write("requests/broken.json", "{")
        .write("requests/two words.json", saved().to_string());
    let mut client = Stdio::session(&host, &["--tools", "probe.answer,request-sum"], json!({}));
    assert_eq!(names(&mut client), ["probe-answer", "request-sum"]);
    let answer = client.ask(call(1, "probe.answer", json!({})));
    assert_eq!(text(&answer), "42");
    let failed = client.ask(sum(2));
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert_eq!(
        failed["result"]["_meta"]["io.toolhold/failure"]["kind"], "model",
        "{failed}"
    );

    // By default there are none, and some may be named.
    for (offer, expect) in [("false", 0), ("[\"sum\", \"absent\"]", 1)] {
        let config = format!("[mcp_server]\nrequests = {offer}\n");
        host.write("toolhold.toml", config);
        let mut client = Stdio::session(&host, &[], json!({}));
        let names = names(&mut client);
        let found = names.iter().filter(|name| name.starts_with("request-"));
        assert_eq!(found.count(), expect, "{offer}: {names:?}");
    }
}

#[test]
fn a_pending_call_of_a_run_is_put_to_the_clients_user() {
    let always = "[decisions]\nalways = [\"calculator.evaluate\"]";
    let endpoint = scripted([reckons(), sums(), reckons(), sums()]);
    let host = offering(&endpoint.base_url(), always);
    let mut client = Stdio::session(&host, &[], forms());
    for (decision, reached) in [("approve", true), ("refuse", false)] {
        client.send(sum(1));
        let question = client.hear("elicitation/create");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(
            message.contains("reckon") && message.contains("40+2"),
            "{message}"
        );
        let content = json!({"action": "accept", "content": {"decision": decision}});
        client.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": content}));
        let done = client.reply(1);
        assert_eq!(text(&done), r#"{"sum":"42"}"#, "{done}");
        let told = endpoint.requests().last().unwrap().to_string();
        assert_eq!(told.contains("the user refused it"), !reached, "{told}");
    }
}

#[test]
fn a_call_waits_for_a_decision_from_elsewhere_and_is_then_refused() {
    let always = "[decisions]\nalways = [\"calculator.evaluate\"]";
    let endpoint = scripted([reckons(), sums()]);
    let host = offering(&endpoint.base_url(), always);
    let config = std::fs::read_to_string(host.path().join("toolhold.toml")).unwrap();
    let short = config.replace(
        "requests = true",
        "requests = true\nanswer_timeout_ms = 1_000",
    );
    host.write("toolhold.toml", short);
    let mut client = Stdio::start(&host, &[]);
    let arguments = json!({"name": "request-sum", "arguments": {"a": 40, "b": 2}});
    let done = client.ask(modern(1, "tools/call", arguments, json!({})));
    assert_eq!(
        done["result"]["structuredContent"],
        json!({"sum": "42"}),
        "{done}"
    );
    let told = endpoint.requests().last().unwrap().to_string();
    assert!(told.contains("no decision within 1 s"), "{told}");
}

#[test]
fn a_cancelled_call_cancels_its_run() {
    let endpoint = scripted([Reply::never(), Reply::never()]);
    let host = offering(&endpoint.base_url(), "");
    let is_asked = |times: usize| {
        assert!(endpoint.wait_until(Duration::from_mins(1), |it| it.requests().len() == times));
    };
    let mut client = Stdio::session(&host, &[], json!({}));
    client.send(sum(1));
    is_asked(1);
    let params = json!({"requestId": 1});
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    assert_eq!(last_run(&host).last().unwrap()["reason"], "cancelled");
    // A client that ends takes its runs with it, and they say so.
    client.send(sum(2));
    is_asked(2);
    assert_eq!(client.close(), Some(0));
    assert_eq!(last_run(&host).last().unwrap()["reason"], "cancelled");
}

#[test]
fn hidden_data_is_masked_in_a_runs_result() {
    let endpoint = scripted([answers(json!({"sum": "<email_1>"}))]);
    let host = offering(
        &endpoint.base_url(),
        "[shields.private]\nkind = \"pii\"\nhide = [\"email\"]",
    );
    let mut request = saved();
    request["description"] = "Adds, says ada@example.org.".into();
    request["instructions"] = "Write to ada@example.org.".into();
    host.write("requests/sum.json", request.to_string());
    let web = HttpMcpServer::start(&host, &[], &[]);
    let welcome = web.post(&[], &initialize("2025-06-18", json!({})));
    let session = [("mcp-session-id", welcome.header("mcp-session-id").unwrap())];
    let listed = web
        .post(&session, &super::request(1, "tools/list", json!({})))
        .body;
    assert!(listed.contains("Adds, says <email>."), "{listed}");
    let done = web.post(&session, &sum(2)).body;
    assert!(done.contains("<email>") && !done.contains("ada@"), "{done}");
}

/// What is saved, changed and deleted while a client is connected is noticed.
#[test]
fn a_new_saved_request_is_announced_to_clients() {
    let host = offering("http://127.0.0.1:9/v1", "");
    let mut client = Stdio::session(&host, &[], json!({}));
    assert!(names(&mut client).contains(&"request-sum".to_owned()));
    host.write("requests/more.json", saved().to_string());
    client.hear("notifications/tools/list_changed");
    let started = Instant::now();
    while !names(&mut client).contains(&"request-more".to_owned()) {
        assert!(started.elapsed() < Duration::from_mins(1));
    }
}
