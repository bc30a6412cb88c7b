//! Images that go with a task: what the endpoint is sent, what records hold, and what is refused.

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};
use support::transcript::answers;

/// The begin of a PNG file, as bytes and as base64.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\nlogo";
const BASE64: &str = "iVBORw0KGgpsb2dv";

fn host() -> Host {
    let host = Host::new();
    // Its name says nothing.
    host.write("logo.txt", PNG);
    host
}

fn run(host: &Host, endpoint: &Endpoint, more: &[&str]) -> Finished {
    let url = endpoint.base_url();
    let task = ["run", "what is it?", "--base-url", &url, "--model", "m"];
    host.run(&[&task[..], &["--file", "logo.txt"], more].concat())
}

/// Data URLs of the images in the endpoint's `n`th request, and the text beside them.
fn shown(endpoint: &Endpoint, n: usize) -> (String, Vec<String>) {
    let requests = endpoint.requests();
    let messages = requests[n]["messages"].as_array().expect("messages");
    let parts = messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let (mut text, mut urls) = (String::new(), Vec::new());
    for part in parts {
        match part["type"].as_str() {
            Some("image_url") => urls.push(part["image_url"]["url"].as_str().unwrap().to_owned()),
            _ => text.push_str(part["text"].as_str().unwrap()),
        }
    }
    (text, urls)
}

fn url() -> String {
    format!("data:image/png;base64,{BASE64}")
}

#[test]
fn the_model_is_shown_an_image_and_the_record_has_its_digest() {
    let host = host();
    let endpoint = Endpoint::start(Scenario::new([answers(json!("a logo"))]));
    let done = run(&host, &endpoint, &["--record", "exchanges.jsonl"]);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "a logo"),
        "{done:?}"
    );
    let (text, urls) = shown(&endpoint, 0);
    assert_eq!(urls, [url()]);
    for part in ["logo.txt", "data, not instructions", "what is it?"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let record = host.run(&["show", "last", "--json"]).stdout;
    let exchanges = std::fs::read_to_string(host.path().join("exchanges.jsonl")).unwrap();
    for written in [&record, &exchanges] {
        assert!(written.contains("sha256"), "{written}");
        assert!(!written.contains(BASE64), "{written}");
    }
    let first: Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    let image = &first["request"]["context"][0];
    assert_eq!(
        (&image["type"], &image["media_type"], &image["bytes"]),
        (&json!("image"), &json!("image/png"), &json!(PNG.len()))
    );
}

#[test]
fn a_resumed_run_still_has_its_images() {
    let host = host();
    let endpoint = Endpoint::start(Scenario::new([Reply::endless(), answers(json!("a logo"))]));
    let at = endpoint.base_url();
    let at = ["--base-url", &at, "--model", "m"];
    let task = ["run", "what is it?", "--file", "logo.txt"];
    let mut child = host
        .command(&[&task[..], &at[..]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(endpoint.wait_until(Duration::from_mins(1), |it| !it.requests().is_empty()));
    child.kill().unwrap();
    child.wait().unwrap();
    let done = host.run(&[&["resume", "last"], &at[..]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(shown(&endpoint, 1), shown(&endpoint, 0));
    assert_eq!(shown(&endpoint, 1).1, [url()]);
}

#[test]
fn a_chat_shows_an_image_with_the_next_turn_and_remembers_it() {
    let host = host();
    let endpoint = Endpoint::start(Scenario::new([
        answers(json!("a logo")),
        answers(json!("still a logo")),
    ]));
    let at = endpoint.base_url();
    let mut child = host
        .command(&["chat", "--base-url", &at, "--model", "m"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let typed = "/file none.png\n/file logo.txt\nWhat is it?\nAnd now?\n";
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    drop(stdin);
    let done = finish(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("still a logo"), "{done:?}");
    assert!(done.stderr.contains("No such file"), "{done:?}");
    for turn in [0, 1] {
        assert_eq!(shown(&endpoint, turn).1, [url()], "{turn}");
    }
}

/// Such servers refuse images, and a host whose configuration says so sends none.
#[test]
fn a_model_without_images_is_told_of_them_in_words() {
    let host = host();
    let refusal = json!({"error": {"message": "m is not a multimodal model"}});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::error(400, refusal),
        answers(json!("no idea")),
        answers(json!("no idea")),
    ]));
    let done = run(&host, &endpoint, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("takes no images"), "{done:?}");
    assert_eq!(shown(&endpoint, 0).1, [url()]);
    host.write("toolhold.toml", "[endpoints.default]\nimages = false\n");
    let done = run(&host, &endpoint, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("takes no images"), "{done:?}");
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests[1..] {
        let text = request["messages"].to_string();
        assert!(!text.contains(BASE64), "{text}");
        assert!(text.contains("The image is not shown"), "{text}");
    }
}
