//! Clients that others wrote: OpenAI's SDKs, and a program that sends everything that an API can be sent.

use super::{host, serve, two_plus_two};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::foreign;
use support::sandbox::repository;
use support::scale;
use support::transcript::{answers, calls};

const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Scripts of clients, and the locks of what they need.
pub(super) fn scripts() -> PathBuf {
    repository().join("tests/fixtures/openai_clients")
}

fn city() -> Value {
    json!({"name": "Bern", "people": 134_000})
}

fn tried(client: impl Fn(&[&str]) -> Output) {
    let host = host("");
    let key = host.run(&["keys", "create", "sdk"]).stdout;
    let calls = calls([("weather", json!({"city": "Bern"}))]);
    let client_tool = [calls.clone(), answers("4, and sunny")];
    // `required`, and then the function's name. Each time the model calls nothing at first.
    let words = answers("It is sunny.");
    let demanded = [words.clone(), calls.clone(), words, calls];
    let described = [answers(city())];
    // The chat API, and then the same in responses.
    let replies = [
        &two_plus_two()[..],
        &two_plus_two()[..],
        &client_tool,
        &two_plus_two()[..],
        &two_plus_two()[..],
        &client_tool,
        &demanded[..],
        &described[..],
        &demanded[..],
        &described[..],
        // Images and files, in both.
        &[answers("a logo"), answers("a logo")],
    ];
    let endpoint = Endpoint::start(Scenario::new(replies.concat()));
    let server = serve(&host, &endpoint);
    let done = client(&[&format!("{}/v1", server.address()), key.trim()]);
    let words = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words}\n{errors}");
    let seen: Value = serde_json::from_str(words.trim()).unwrap();
    assert_eq!(seen["models"], json!(["default"]));
    assert_eq!(seen["whole"], "It is 4.");
    let pieces: Vec<&str> = seen["pieces"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(pieces.concat(), "It is 4.");
    assert!(pieces.len() > 1, "{pieces:?}");
    assert!(seen["tokens"].as_u64() > Some(0), "{seen}");
    assert_eq!(seen["reason"], "output");
    assert_eq!(
        seen["call"],
        json!(["tool_calls", "weather", {"city": "Bern"}])
    );
    assert_eq!(seen["after"], "4, and sunny");
    let missing = seen["missing"].as_str().unwrap_or_default();
    assert!(missing.contains("no agent \"nobody\""), "{seen}");
    let responses = &seen["responses"];
    assert_eq!(responses["whole"], json!(["completed", "It is 4.", "sdk"]));
    let pieces = responses["pieces"].as_array().unwrap();
    let pieces: Vec<&str> = pieces.iter().filter_map(Value::as_str).collect();
    assert_eq!(pieces.concat(), "It is 4.");
    assert!(pieces.len() > 1, "{pieces:?}");
    assert_eq!(responses["final"], json!(["completed", "It is 4."]));
    assert!(responses["tokens"].as_u64() > Some(0), "{seen}");
    assert_eq!(
        responses["call"],
        json!(["completed", "weather", {"city": "Bern"}])
    );
    assert_eq!(responses["again"], true, "{seen}");
    assert_eq!(responses["after"], "4, and sunny");
    // Two questions with their answers, one with a call, and the call's result.
    let message = "message";
    assert_eq!(
        responses["items"],
        json!([
            message,
            message,
            message,
            message,
            message,
            "function_call",
            "function_call_output"
        ])
    );
    assert_eq!(responses["ids"], 7);
    let missing = responses["deleted"].as_str().unwrap_or_default();
    assert!(missing.contains("no response \"resp_"), "{seen}");
    let forced = json!(["weather", {"city": "Bern"}]);
    assert_eq!(seen["forced"], json!(vec![forced; 4]));
    assert_eq!(seen["described"], json!([city(), city()]));
    assert_eq!(seen["shown"], json!(["a logo", "a logo"]));
    let requests = endpoint.requests();
    for request in &requests[requests.len() - 2..] {
        let sent = request["messages"].to_string();
        for part in [
            "data:image/png;base64,iVBORw0KGgpsb2dv",
            "Open on Saturdays.",
        ] {
            assert!(sent.contains(part), "{part}: {sent}");
        }
    }
}

#[test]
fn openais_python_sdk_works_with_it() {
    let Some(bin) = foreign::locked_python(&scripts().join("locks/openai.txt")) else {
        return;
    };
    let script = scripts().join("client.py");
    tried(|arguments| {
        let mut client = Command::new(bin.join("python"));
        client.arg(&script).args(arguments).output().unwrap()
    });
}

#[test]
fn openais_node_sdk_works_with_it() {
    let Some(folder) = foreign::locked_node(&scripts().join("locks/openai_node")) else {
        return;
    };
    let script = scripts().join("client.mjs");
    tried(|arguments| {
        let mut client = Command::new("node");
        client.arg(&script).args(arguments).current_dir(&folder);
        client.output().unwrap()
    });
}

/// Paths, headers and bodies as the description allows them, and as it does not: nothing makes the server
/// fail.
#[test]
fn no_request_makes_the_server_fail() {
    let Some(bin) = foreign::python("schemathesis-4.32.5", &[SCHEMATHESIS]) else {
        return;
    };
    let host = host("[serve]\nkey_requests_per_minute = 0\n");
    let key = host
        .run(&["keys", "create", "fuzz", "--scopes", "admin"])
        .stdout;
    let scenario = Scenario::new([Reply::solution(json!({"calls": [], "output": "x"}))]);
    let endpoint = Endpoint::start(scenario.in_order(ReplyOrder::Repeat));
    let mut server = serve(&host, &endpoint);
    let id = |made: Value| made["id"].as_str().unwrap().to_owned();
    server.use_key(&key);
    let run = id(server
        .post(
            "/v1/agent",
            &json!({"messages": [{"role": "user", "content": "t"}]}),
        )
        .good());
    let session = id(server.post("/v1/sessions", &json!({})).good());
    let asked = json!({"model": "default", "input": "t"});
    let response = id(server.post("/v1/responses", &asked).good());
    let known = format!(
        "[parameters]\n\"path.run\" = {run:?}\n\"path.session\" = {session:?}\n\"path.tool\" = \"text.count\"\n\
         \"path.module\" = \"text\"\n\"path.name\" = \"default\"\n\"path.response\" = {response:?}\n"
    );
    host.write("schemathesis.toml", known);
    // Requests at the bounds of each parameter take most of the time: `cargo xtask test --long` has them, too.
    let phases = scale("examples,fuzzing", "examples,coverage,fuzzing");
    let done = Command::new(bin.join("schemathesis"))
        .arg("run")
        .arg(format!("{}/openapi.json", server.address()))
        .args(["--header", &format!("Authorization: Bearer {}", key.trim())])
        .args(["--checks", "not_a_server_error", "--mode", "all"])
        .args(["--phases", phases])
        .args(["--max-examples", &scale(5, 15).to_string()])
        .args(["--request-timeout", "60", "--seed", "1", "--no-color"])
        // It judges its own speed, too, which is the machine's.
        .args(["--suppress-health-check", "too_slow,filter_too_much"])
        .env("HOME", host.path())
        .current_dir(host.path())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{words}\n{errors}\n{}",
        server.said()
    );
    let described = server.get("/openapi.json").good();
    let paths = described["paths"].as_object().unwrap();
    let operations: usize = paths
        .values()
        .map(|methods| methods.as_object().unwrap().len())
        .sum();
    assert!(
        words.contains(&format!("Tested: {operations}\n")),
        "every operation of {operations}: {words}"
    );
}
