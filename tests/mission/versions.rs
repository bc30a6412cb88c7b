//! 000.97: the revision of a model is pinned; 000.43: policy is a part of the budget.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};

/// An answer as a server streams it that tells its model and its revision.
fn told(model: &str, revision: Option<&str>) -> Reply {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let mut chunk =
            json!({"object": "chat.completion.chunk", "model": model, "choices": [choice]});
        if let Some(revision) = revision {
            chunk["system_fingerprint"] = json!(revision);
        }
        format!("data: {chunk}\n\n")
    };
    let content = json!({"calls": [], "output": "It is 4."}).to_string();
    let body = [
        chunk(json!({"content": content}), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    Reply::raw(body.concat())
}

fn run(configuration: &str, reply: Reply) -> (Finished, Endpoint) {
    let endpoint = Endpoint::start(Scenario::new([reply]));
    let host = Host::new();
    host.ship("calculator").write(
        "toolhold.toml",
        format!(
            "[endpoints.default]\nbase_url = {:?}\nmodel = \"m\"\n{configuration}\n",
            endpoint.base_url()
        ),
    );
    (host.run(&["run", "What is 2+2?", "--json"]), endpoint)
}

fn events(done: &Finished) -> Vec<Value> {
    let lines = done.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn statement_000_97_another_revision_is_an_event() {
    for (pinned, model, revision, is_other) in [
        ("fp_1", "m", Some("fp_1"), false),
        ("m@fp_1", "m", Some("fp_1"), false),
        ("m-2026", "m-2026", None, false),
        ("fp_1", "m", Some("fp_2"), true),
        ("m@fp_1", "m", None, true),
    ] {
        let (done, _endpoint) = run(&format!("revision = {pinned:?}"), told(model, revision));
        assert_eq!(done.code, Some(0), "{done:?}");
        let events = events(&done);
        let told: Vec<&Value> = events
            .iter()
            .filter(|event| event["decision"] == "other_revision")
            .collect();
        assert_eq!(told.len(), usize::from(is_other), "{pinned}: {events:?}");
        if let Some(event) = told.first() {
            assert_eq!(event["pinned"], json!(pinned), "{event}");
        }
        assert_eq!(events.last().unwrap()["output"], "It is 4.");
    }
}

#[test]
fn statement_000_97_another_revision_is_an_error_where_the_operator_wants() {
    let required = "revision = \"fp_1\"\nother_revision = \"refuse\"";
    let (done, endpoint) = run(required, told("m", Some("fp_2")));
    assert_ne!(done.code, Some(0), "{done:?}");
    let events = events(&done);
    let end = events.last().unwrap();
    let error = end["error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("m@fp_2") && error.contains("fp_1"), "{end}");
    // No piece of it was acted on or shown.
    assert!(!done.stdout.contains("It is 4."), "{done:?}");
    assert_eq!(endpoint.requests().len(), 1);
    let (done, _endpoint) = run(required, told("m", Some("fp_1")));
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("It is 4."), "{done:?}");
    let (done, _endpoint) = run("other_revision = \"refuse\"", told("m", None));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("other_revision"), "{done:?}");
}

#[test]
fn statement_000_43_policy_is_a_part_of_the_budget() {
    let endpoint = Endpoint::start(Scenario::new([Reply::solution(
        json!({"calls": [], "output": "done"}),
    )]));
    let host = Host::new();
    host.ship("calculator");
    let rules = json!([{"role": "system", "content": "Never name a customer. ".repeat(20)}]);
    host.write("context.json", rules.to_string());
    let url = endpoint.base_url();
    let done = host.run(&[
        "run",
        "t",
        "--context",
        "context.json",
        "--base-url",
        &url,
        "--model",
        "m",
        "--json",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = events(&done);
    let budget = events.iter().find(|event| event["event"] == "budget");
    let parts = budget.unwrap()["parts"].as_array().unwrap();
    let tokens = |name: &str| {
        let part = parts.iter().find(|part| part[0] == name);
        part.and_then(|part| part[1].as_u64()).unwrap_or_default()
    };
    // 460 bytes of rules, estimated.
    assert!(tokens("policy") > 100, "{parts:?}");
    assert!(tokens("system") > 0, "{parts:?}");
}
