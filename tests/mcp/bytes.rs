//! Results of servers' tools that are bytes: what the model is shown, what records have, and what clients get.

use super::{McpFixture, OFFERS, answers, calls, configuration, told};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::server::{Server, ServerSentEvent};

/// The base64 that the server's tool makes: of no kind is it a part of another kind's.
fn base64(mime: &str, size: usize) -> String {
    let mut bytes = Vec::new();
    if mime == "image/png" {
        bytes.extend(b"\x89PNG\r\n\x1a\n");
    }
    bytes.resize(size, mime.as_bytes()[0]);
    STANDARD.encode(bytes)
}

/// A call of the tool that returns bytes.
fn makes(mime: &str, size: usize) -> super::Reply {
    calls("s.echo", json!({"text": format!("bytes of {mime} {size}")}))
}

/// The second part of the first result among these events; the first one is a text.
fn made<'a>(events: impl IntoIterator<Item = &'a Value>) -> &'a Value {
    let mut results = events
        .into_iter()
        .filter(|event| event["event"] == "tool_result");
    let result = results.next().expect("a result");
    assert_eq!(result["output"][0], "made", "{result}");
    &result["output"][1]
}

#[test]
fn the_model_is_shown_the_image_of_a_result_and_the_record_has_its_digest() {
    let bench = McpFixture::new(&[], OFFERS);
    let endpoint = Endpoint::start(Scenario::new([
        makes("image/png", 9_000),
        makes("audio/wav", 6_000),
        answers(json!("done")),
    ]));
    let done = bench.run(&endpoint, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let (image, sound) = (base64("image/png", 9_000), base64("audio/wav", 6_000));
    for n in [1, 2] {
        let shown = told(&endpoint, n);
        let url = format!("data:image/png;base64,{image}");
        assert_eq!(shown.matches(&url).count(), 1, "{n}");
        assert!(shown.contains("is from a result of"), "{shown}");
    }
    let shown = told(&endpoint, 2);
    assert!(
        shown.contains("audio/wav") && shown.contains("6000"),
        "{shown}"
    );
    assert!(!shown.contains(&sound));

    let record = bench.cli(&["show", "last", "--json"]).stdout;
    assert!(!record.contains(&image) && !record.contains(&sound));
    let events: Vec<Value> = record
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let part = made(&events);
    assert_eq!(part["mime"], "image/png", "{part}");
    assert_eq!(part["bytes"], 9_000, "{part}");
    let name = part["base64"].as_str().unwrap();
    assert!(name.starts_with("blob:sha256:"), "{part}");
    // The run that is replayed comes to the same.
    let replayed = bench.cli(&["runs", "replay", "last"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// A model passes on bytes that it never sees.
#[test]
fn a_tool_is_called_with_the_bytes_that_a_name_stands_for() {
    let bench = McpFixture::new(&[], OFFERS);
    let image = base64("image/png", 900);
    let digest = toolhold_policy::Digest::of(&STANDARD.decode(&image).unwrap());
    let name = format!("blob:{digest:?}");
    let endpoint = Endpoint::start(Scenario::new([
        makes("image/png", 900),
        calls("s.echo", json!({"text": name})),
        answers(json!("done")),
    ]));
    let done = bench.run(&endpoint, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    // It gives its argument back as a text, and the image is shown once.
    assert_eq!(told(&endpoint, 2).matches(&image).count(), 2);
    let record = bench.cli(&["show", "last", "--json"]).stdout;
    let mut starts = record
        .lines()
        .filter(|line| line.contains("\"tool_start\""));
    assert!(starts.all(|line| !line.contains(&image)));
}

/// A server with the fixture's tools, and a key.
fn server(host: &Host, endpoint: &Endpoint, more: &str) -> Server {
    let pinning = "[modules]\npinning = \"never\"\n";
    host.write(
        "mcp.toml",
        format!("{}\n{pinning}{more}", configuration(&[], OFFERS)),
    );
    let url = endpoint.base_url();
    let flags = ["--config", "mcp.toml", "--base-url", &url, "--model", "m"];
    let ada = key(host, "ada");
    let mut server = Server::start(host, &flags);
    server.use_key(&ada);
    server
}

fn key(host: &Host, name: &str) -> String {
    let made = host.run(&["keys", "create", name]);
    assert_eq!(made.code, Some(0), "{made:?}");
    made.stdout
}

#[test]
fn a_client_has_the_digest_in_events_and_the_bytes_for_it() {
    let host = Host::new();
    let endpoint = Endpoint::start(Scenario::new([
        makes("image/png", 9_000),
        answers(json!("done")),
    ]));
    let first = key(&host, "first");
    let mut server = server(&host, &endpoint, "");
    let task = json!({"messages": [{"role": "user", "content": "the task"}]});
    let done = server.post("/v1/agent", &task).good();
    let run = done["id"].as_str().unwrap();
    let events = server.get(&format!("/v1/runs/{run}/events"));
    assert!(!events.text.contains(&base64("image/png", 9_000)));
    let events: Vec<Value> = events.events().iter().map(ServerSentEvent::json).collect();
    let part = made(&events);
    let digest = part["base64"].as_str().unwrap();
    let digest = digest.strip_prefix("blob:").unwrap();
    let bytes = server.get(&format!("/v1/runs/{run}/blobs/{digest}"));
    assert_eq!(bytes.status, 200, "{bytes:?}");
    assert_eq!(bytes.headers["content-type"], "image/png");
    assert_eq!(bytes.headers["content-length"], "9000");
    let other = format!("/v1/runs/{run}/blobs/sha256:{}", "0".repeat(64));
    assert_eq!(server.get(&other).status, 404);
    // Without a model the result is as the tool returned it.
    let arguments = json!({"arguments": {"text": "bytes of audio/wav 2000"}});
    let called = server.post("/v1/tools/s.echo", &arguments).good();
    let part = json!({"mime": "audio/wav", "base64": base64("audio/wav", 2_000)});
    assert_eq!(called["result"][1], part, "{called}");
    // Of another key the run is none.
    server.use_key(&first);
    let hidden = server.get(&format!("/v1/runs/{run}/blobs/{digest}"));
    assert_eq!(hidden.status, 404, "{hidden:?}");
}

#[test]
fn bytes_with_a_secret_that_the_run_hides_are_the_operators() {
    let host = Host::new();
    let endpoint = Endpoint::start(Scenario::new([]));
    let hiding = "[shields.private]\nkind = \"pii\"\nhide = [\"api_key\"]\n";
    let root = host.run(&["keys", "create", "root", "--scopes", "admin"]);
    let mut server = server(&host, &endpoint, hiding);
    let call = |server: &Server, mime: &str| {
        let text = format!("bytes of {mime} 2000");
        let arguments = json!({"arguments": {"text": text}});
        server.post("/v1/tools/s.echo", &arguments).good()
    };
    let called = call(&server, "text/x-key");
    let name = called["result"][1]["base64"].as_str().unwrap();
    let digest = name.strip_prefix("blob:").unwrap();
    let run = called["run"].as_str().unwrap();
    let path = format!("/v1/runs/{run}/blobs/{digest}");
    let refused = server.get(&path);
    assert_eq!(refused.status, 403, "{refused:?}");
    let other = call(&server, "text/x-other");
    let part = json!({"mime": "text/x-other", "base64": base64("text/x-other", 2_000)});
    assert_eq!(other["result"][1], part, "{other}");
    server.use_key(root.stdout.trim());
    let bytes = server.get(&path);
    assert!(bytes.text.starts_with("AKIAIOSFODNN7EXAMPLE"), "{bytes:?}");
}

#[test]
fn bytes_beyond_the_quota_are_said_to_be_missing_and_the_run_goes_on() {
    let host = Host::new();
    let endpoint = Endpoint::start(Scenario::new([
        makes("image/png", 9_000),
        makes("image/png", 9_001),
        answers(json!("done")),
    ]));
    let server = server(&host, &endpoint, "[serve]\nkey_image_bytes = 10000\n");
    let task = json!({"messages": [{"role": "user", "content": "the task"}]});
    let done = server.post("/v1/agent", &task).good();
    assert_eq!(done["reason"], "output", "{done}");
    let events = format!("/v1/runs/{}/events", done["id"].as_str().unwrap());
    let events: Vec<Value> = server
        .get(&events)
        .events()
        .iter()
        .map(ServerSentEvent::json)
        .collect();
    let (first, second) = (made(&events), made(events.iter().rev()));
    assert_eq!(first["bytes"], 9_000, "{first}");
    assert_eq!(second["bytes"], 9_001, "{second}");
    assert_eq!(second["error"], "blob_quota", "{second}");
    let shown = told(&endpoint, 2);
    assert!(shown.contains("these bytes were not kept"), "{shown}");
    assert_eq!(shown.matches("data:image/png").count(), 1, "{shown}");
}
