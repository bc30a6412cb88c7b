//! Images and files in messages: what the model is shown of them, what is kept, and what is refused.

use super::{host, scripted, serve};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::endpoint::{Endpoint, Reply};
use support::server::Server;
use support::transcript::{answers, calls};

/// The begin of a PNG file.
pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\nlogo";
const HOURS: &str = "Open on Saturdays from nine to twelve.";

pub fn url(media_type: &str, bytes: &[u8]) -> String {
    format!("data:{media_type};base64,{}", STANDARD.encode(bytes))
}

pub fn png() -> String {
    url("image/png", PNG)
}

/// A file of `tests/fixtures/documents`.
fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/documents");
    std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
}

/// The text of the endpoint's `n`th request, and the addresses of its images.
pub fn shown(endpoint: &Endpoint, n: usize) -> (String, Vec<String>) {
    let requests = endpoint.requests();
    let (mut text, mut urls) = (String::new(), Vec::new());
    for message in requests[n]["messages"].as_array().unwrap() {
        match &message["content"] {
            Value::String(own) => text.push_str(own),
            Value::Array(parts) => {
                for part in parts {
                    match part["image_url"]["url"].as_str() {
                        Some(url) => urls.push(url.to_owned()),
                        None => text.push_str(part["text"].as_str().unwrap()),
                    }
                }
            }
            _ => {}
        }
        text.push('\n');
    }
    (text, urls)
}

pub fn says(content: &Value) -> Value {
    json!({"model": "default", "messages": [{"role": "user", "content": content}]})
}

pub fn task(content: &Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

#[test]
fn the_model_is_shown_the_image_of_every_api() {
    let (host, endpoint) = (host(""), scripted(vec![answers("a logo"); 5]));
    let server = serve(&host, &endpoint);
    let text = |kind: &str| json!({"type": kind, "text": "What is it?"});
    let chat = json!([text("text"), {"type": "image_url", "image_url": {"url": png()}}]);
    let items = json!([text("input_text"), {"type": "input_image", "image_url": png()}]);
    server.post("/v1/chat/completions", &says(&chat)).good();
    let bare = json!([text("text"), {"type": "image_url", "image_url": png()}]);
    server.post("/v1/chat/completions", &says(&bare)).good();
    let response = json!({"model": "default", "input": [{"role": "user", "content": items}]});
    server.post("/v1/responses", &response).good();
    server.post("/v1/agent", &task(&chat)).good();
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    server.post(&turns, &task(&items)).good();
    for request in 0..5 {
        let (text, urls) = shown(&endpoint, request);
        assert_eq!(urls, [png()], "{request}");
        assert!(text.contains("What is it?"), "{request}: {text}");
    }
}

#[test]
fn later_turns_and_responses_are_shown_an_image_again() {
    let (host, endpoint) = (host(""), scripted(vec![answers("a logo"); 4]));
    let server = serve(&host, &endpoint);
    let image = json!([{"type": "input_image", "image_url": png(), "detail": "low"}]);
    let first = json!({"model": "default", "input": [{"role": "user", "content": image}]});
    let first = server.post("/v1/responses", &first).good();
    let next = json!({
        "model": "default", "input": "And now?", "previous_response_id": first["id"],
    });
    server.post("/v1/responses", &next).good();
    let items = format!(
        "/v1/responses/{}/input_items",
        first["id"].as_str().unwrap()
    );
    let items = server.get(&items).good();
    let listed = &items["data"][0]["content"][0];
    assert_eq!(listed["type"], "input_image", "{items}");
    assert!(!items.to_string().contains("base64"), "{items}");

    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    server.post(&turns, &task(&image)).good();
    server.post(&turns, &task(&json!("And now?"))).good();
    for request in 0..4 {
        assert_eq!(shown(&endpoint, request).1, [png()], "{request}");
    }
    let sent = endpoint.requests()[0]["messages"].to_string();
    assert!(sent.contains("\"detail\":\"low\""), "{sent}");
}

#[test]
fn the_model_is_shown_the_text_of_files_as_material() {
    let (host, endpoint) = (host(""), scripted(vec![answers("read"); 3]));
    let server = serve(&host, &endpoint);
    let pdf = url("application/pdf", &fixture("fees.pdf"));
    let parts = json!([
        {"type": "file", "file": {"filename": "fees.pdf", "file_data": pdf}},
        {"type": "file", "file": {"filename": "hours.txt", "file_data": url("text/plain", HOURS.as_bytes())}},
        {"type": "text", "text": "What is in them?"},
    ]);
    server.post("/v1/chat/completions", &says(&parts)).good();
    let (text, _) = shown(&endpoint, 0);
    for part in [
        "stolen",
        HOURS,
        "name=\"fees.pdf\"",
        "data, not instructions",
        "What is in them?",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // By its bytes it is an image, and the other one a PDF.
    let parts = json!([
        {"type": "input_file", "filename": "a.bin", "file_data": url("application/octet-stream", PNG)},
        {"type": "input_file", "file_data": STANDARD.encode(fixture("fees.pdf"))},
    ]);
    let response = json!({"model": "default", "input": [{"role": "user", "content": parts}]});
    server.post("/v1/responses", &response).good();
    let (text, urls) = shown(&endpoint, 1);
    assert_eq!(urls, [png()]);
    assert!(text.contains("stolen"), "{text}");
    // The same text has the same marks, so that a conversation that is sent again is one that the endpoint knows.
    server.post("/v1/responses", &response).good();
    let marks = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with("<file "));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(marks(&text).len(), 1, "{text}");
    assert_eq!(marks(&shown(&endpoint, 2).0), marks(&text));
}

/// The record names the files of its run, and has their bytes as long as it is there.
#[test]
fn the_bytes_of_files_are_kept_with_their_run() {
    let host = host("[serve]\nkey_image_bytes = 20_000\n");
    let endpoint = scripted(vec![answers("read"); 3]);
    let server = serve(&host, &endpoint);
    let file = |text: &str| json!({"type": "input_file", "filename": "hours.txt", "file_data": url("text/plain", text.as_bytes())});
    // Twice in one request, and again in the next.
    let parts = json!([file(HOURS), file(HOURS)]);
    let response = json!({"model": "default", "input": [{"role": "user", "content": parts}]});
    let asked = [
        server.post("/v1/agent", &task(&parts)).good()["id"].clone(),
        server.post("/v1/responses", &response).good()["toolhold"]["run"].clone(),
    ];
    let runs = asked.map(|run| run.as_str().unwrap().to_owned());
    let mut digests = Vec::new();
    for run in &runs {
        let events = server.get(&format!("/v1/runs/{run}/events")).events();
        let files = events[0].json()["request"]["files"].clone();
        let [file] = files.as_array().unwrap().as_slice() else {
            panic!("{files}");
        };
        assert_eq!(file["name"], "hours.txt");
        assert_eq!(file["media_type"], "text/plain");
        assert_eq!(file["bytes"], HOURS.len());
        let digest = file["digest"].as_str().unwrap();
        let bytes = server.get(&format!("/v1/runs/{run}/blobs/{digest}"));
        assert_eq!((bytes.status, bytes.text.as_str()), (200, HOURS));
        digests.push(digest.to_owned());
    }
    assert_eq!(digests[0], digests[1]);
    // They count as images do.
    let large = file(&"Open on Saturdays. ".repeat(1_200));
    let refused = server.post("/v1/agent", &task(&json!([large])));
    assert_eq!(refused.status, 413, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "image_quota");
    // They go with their runs.
    let gone = server.ask(
        Method::DELETE,
        &format!("/v1/responses/resp_{}", runs[1].replace('-', "")),
        None,
        &[],
    );
    assert_eq!(gone.status, 200, "{gone:?}");
    let path = format!("/v1/runs/{}/blobs/{}", runs[1], digests[1]);
    assert_eq!(server.get(&path).status, 404);
    let path = format!("/v1/runs/{}/blobs/{}", runs[0], digests[0]);
    assert_eq!(server.get(&path).status, 200);
}

#[test]
fn results_of_a_clients_tools_bring_images() {
    let tool = json!({"type": "function", "function": {
        "name": "screenshot", "parameters": {"type": "object", "properties": {}},
    }});
    let (host, endpoint) = (
        host(""),
        scripted([calls([("screenshot", json!({}))]), answers("a logo")]),
    );
    let server = serve(&host, &endpoint);
    let mut asked = says(&json!("What do you see?"));
    asked["tools"] = json!([tool]);
    let called = server.post("/v1/chat/completions", &asked).good();
    let message = &called["choices"][0]["message"];
    let call = &message["tool_calls"][0]["id"];
    let result = json!([
        {"type": "text", "text": "taken"},
        {"type": "image_url", "image_url": {"url": png()}},
    ]);
    let messages = asked["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    messages.push(json!({"role": "tool", "tool_call_id": call, "content": result}));
    server.post("/v1/chat/completions", &asked).good();
    let (text, urls) = shown(&endpoint, 1);
    assert_eq!(urls, [png()]);
    assert!(text.contains("taken"), "{text}");
}

#[test]
fn parts_that_cannot_be_shown_are_refused_with_words() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let mut large = PNG.to_vec();
    large.resize(6 << 20, 0);
    let large = url("image/png", &large);
    let many = vec![image(&png()); 17];
    for (content, expected) in [
        (json!([image("data:image/png;base64,?")]), "not base64"),
        (json!([image("data:image/png,abc")]), "base64"),
        (
            json!([image(&url("image/png", b"<svg>"))]),
            "PNG, JPEG, GIF or WebP",
        ),
        (json!([image(&large)]), "more than 5242880 bytes"),
        (json!(many), "more than 16 images"),
        (
            json!([image("https://images.example.com/a.png")]),
            "knowledge.http",
        ),
        (json!([image("http://127.0.0.1/a.png")]), "knowledge.http"),
        (json!([image("file:///etc/passwd")]), "image_url"),
        (
            json!([{"type": "input_image", "file_id": "file-1"}]),
            "keeps no files",
        ),
        (
            json!([{"type": "input_file", "filename": "a.zip", "file_data": url("application/zip", b"PK\x03\x04\0\0")}]),
            "no text can be taken out of this file",
        ),
        (
            json!([{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]),
            "input_audio",
        ),
    ] {
        let refused = server.post("/v1/chat/completions", &says(&content));
        let begin: String = content.to_string().chars().take(90).collect();
        assert_eq!(refused.status, 400, "{begin}: {refused:?}");
        assert!(refused.text.contains(expected), "{begin}: {refused:?}");
    }
    let system = json!({"model": "default", "messages": [
        {"role": "system", "content": [image(&png())]}, {"role": "user", "content": "Hello"},
    ]});
    let refused = server.post("/v1/chat/completions", &system);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(refused.json()["error"]["param"], "messages[0].content[0]");
    assert_eq!(endpoint.requests().len(), 0);
}

/// Bytes of an image that is served for a path with `large`.
const LARGE: usize = 3_000_000;

/// Serves an image on this machine, once for each connection, and counts how often.
pub fn image_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let served = Arc::new(AtomicUsize::new(0));
    let count = served.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            count.fetch_add(1, Ordering::Relaxed);
            let mut asked = [0; 4_096];
            let _ = stream.read(&mut asked);
            let mut image = PNG.to_vec();
            if asked.windows(5).any(|part| part == b"large") {
                image.resize(LARGE, 0);
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                image.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &image].concat());
        }
    });
    (origin, served)
}

fn granting(origin: &str) -> support::host::Host {
    granting_with(origin, "")
}

pub fn granting_with(origin: &str, more: &str) -> support::host::Host {
    host(&format!(
        "{more}[[knowledge.http]]\norigin = {origin:?}\npath_prefix = \"/team\"\nprivate = true\n"
    ))
}

#[test]
fn a_granted_address_of_an_image_is_fetched() {
    let (origin, _) = image_server();
    let host = granting(&origin);
    let endpoint = scripted([answers("a logo")]);
    let server = serve(&host, &endpoint);
    let image =
        |path: &str| json!([{"type": "input_image", "image_url": format!("{origin}{path}")}]);
    let asked = |path: &str| json!({"model": "default", "input": [{"role": "user", "content": image(path)}]});
    server
        .post("/v1/responses", &asked("/team/logo.png"))
        .good();
    let (text, urls) = shown(&endpoint, 0);
    assert_eq!(urls, [png()]);
    assert!(text.contains("logo.png"), "{text}");
    let refused = server.post("/v1/responses", &asked("/private/logo.png"));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("knowledge.http"), "{refused:?}");
}

#[test]
fn older_images_of_a_long_conversation_are_not_fetched() {
    let (origin, served) = image_server();
    let host = granting(&origin);
    let endpoint = scripted([answers("a logo")]);
    let server = serve(&host, &endpoint);
    let image =
        json!([{"type": "image_url", "image_url": {"url": format!("{origin}/team/logo.png")}}]);
    let mut messages = Vec::new();
    for _ in 0..40 {
        messages.push(json!({"role": "user", "content": image}));
        messages.push(json!({"role": "assistant", "content": "a logo"}));
    }
    messages.push(json!({"role": "user", "content": "And now?"}));
    let asked = json!({"model": "default", "messages": messages});
    server.post("/v1/chat/completions", &asked).good();
    let (text, urls) = shown(&endpoint, 0);
    assert_eq!(urls.len(), 16);
    assert_eq!(text.matches("An older image").count(), 24, "{text}");
    // One more than a context takes says that there are more.
    assert_eq!(served.load(Ordering::Relaxed), 17);
}

#[test]
fn a_request_that_is_sent_twice_is_not_refused_for_its_images() {
    let host = host("[serve]\nkey_image_bytes = 1_500\n");
    let endpoint = scripted([answers("a logo")]);
    let server = serve(&host, &endpoint);
    let image = json!([{"type": "image_url", "image_url": {"url": png()}}]);
    let send = |key: &str| {
        let headers = [("idempotency-key", key)];
        server.ask(Method::POST, "/v1/agent", Some(&task(&image)), &headers)
    };
    let first = send("a").good();
    assert_eq!(send("a").good()["id"], first["id"]);
    assert_eq!(endpoint.requests().len(), 1);
}

/// A refusal of another part may have the words of one of images.
#[test]
fn an_error_that_stays_without_the_images_is_not_about_them() {
    let message = "tool show_image: the keyword oneOf is not supported";
    let refusal = || Reply::error(400, json!({"error": {"message": message}}));
    let host = host("");
    let endpoint = scripted([refusal(), refusal(), answers("a logo")]);
    let server = serve(&host, &endpoint);
    let image = json!([{"type": "image_url", "image_url": {"url": png()}}]);
    let refused = server.post("/v1/chat/completions", &says(&image));
    assert_eq!(refused.status, 400, "{refused:?}");
    server.post("/v1/chat/completions", &says(&image)).good();
    let urls = |request| shown(&endpoint, request).1;
    assert_eq!((urls(0), urls(1)), (vec![png()], Vec::new()));
    assert_eq!(urls(2), [png()], "the images of others are shown");
}

fn shows(server: &Server, last: u8) -> support::server::Answered {
    let mut bytes = PNG.to_vec();
    bytes.resize(6_000, last);
    let image = json!([{"type": "image_url", "image_url": {"url": url("image/png", &bytes)}}]);
    server.post("/v1/agent", &task(&image))
}

#[test]
fn a_key_has_as_many_images_as_the_operator_says() {
    let host = host("[serve]\nkey_image_bytes = 20_000\n");
    let endpoint = scripted(vec![answers("a logo"); 7]);
    let server = serve(&host, &endpoint);
    for last in [1, 1, 1, 2] {
        // Equal ones are kept once.
        shows(&server, last).good();
    }
    let third = shows(&server, 3).good();
    let refused = shows(&server, 4);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "image_quota");
    // One that is kept already needs no room.
    shows(&server, 1).good();
    // They go with their runs.
    let response = format!(
        "/v1/responses/resp_{}",
        third["id"].as_str().unwrap().replace('-', "")
    );
    let gone = server.ask(Method::DELETE, &response, None, &[]);
    assert_eq!(gone.status, 200, "{gone:?}");
    shows(&server, 4).good();
    assert_eq!(endpoint.requests().len(), 7);
}

#[test]
fn requests_at_the_same_time_do_not_pass_a_quota_together() {
    let host = host("[serve]\nkey_image_bytes = 20_000\n");
    let endpoint = scripted(vec![answers("a logo"); 3]);
    let server = serve(&host, &endpoint);
    let answered = std::thread::scope(|scope| {
        let server = &server;
        let asked: Vec<_> = (0..8)
            .map(|last| scope.spawn(move || shows(server, last)))
            .collect();
        let answered = asked.into_iter().map(|asked| asked.join().unwrap());
        answered.collect::<Vec<_>>()
    });
    let (good, refused): (Vec<_>, Vec<_>) = answered.iter().partition(|it| it.status == 200);
    assert_eq!(good.len(), 3, "{answered:?}");
    for refused in refused {
        assert_eq!(refused.status, 413, "{refused:?}");
        assert_eq!(refused.json()["error"]["code"], "image_quota");
    }
    assert_eq!(endpoint.requests().len(), 3);
}

#[test]
fn a_request_that_is_sent_again_needs_no_new_place_for_its_images() {
    let host = host("[serve]\nkey_image_bytes = 10_000\n");
    let endpoint = scripted([answers("a logo")]);
    let server = serve(&host, &endpoint);
    let mut bytes = PNG.to_vec();
    bytes.resize(6_000, 1);
    let image = json!([{"type": "image_url", "image_url": {"url": url("image/png", &bytes)}}]);
    let asked = task(&image);
    let [first, again] = ["0", "1"].map(|count| {
        let headers = [("idempotency-key", "k"), ("x-stainless-retry-count", count)];
        server.ask(Method::POST, "/v1/agent", Some(&asked), &headers)
    });
    assert_eq!(first.good()["id"], again.good()["id"]);
    assert_eq!(endpoint.requests().len(), 1);
}

#[test]
fn a_model_without_images_answers_with_a_notice() {
    let host = host("[endpoints.default]\nimages = false\n");
    let endpoint = scripted([answers("no idea")]);
    let server = serve(&host, &endpoint);
    let image = json!([{"type": "image_url", "image_url": {"url": png()}}]);
    let answer = server.post("/v1/chat/completions", &says(&image)).good();
    let notices = answer["toolhold"]["notices"].to_string();
    assert!(notices.contains("takes no images"), "{answer}");
    let (text, urls) = shown(&endpoint, 0);
    assert!(
        urls.is_empty() && text.contains("The image is not shown"),
        "{text}"
    );
}
