//! The memory of images that no body of a request has: fetched ones, and those of earlier turns and of resumed runs.

use super::media::{PNG, granting_with, image_server, says, shown, task, url};
use super::{host, scripted, serve};
use reqwest::Method;
use serde_json::{Value, json};
use support::endpoint::Reply;
use support::server::Server;
use support::transcript::answers;

/// A content with an image of 2 MB, which takes 2.7 MB as base64.
fn large_image(last: u8) -> Value {
    let mut bytes = PNG.to_vec();
    bytes.resize(2_000_000, last);
    json!([{"type": "input_image", "image_url": url("image/png", &bytes)}])
}

/// An image that comes from elsewhere counts like one in the body, before it is kept.
#[test]
fn a_fetched_image_without_memory_for_it_is_refused() {
    let (origin, _) = image_server();
    let image = |path: &str| json!([{"type": "image_url", "image_url": {"url": format!("{origin}{path}")}}]);
    // One key may have seven eighths: less than the large image, and more than it but less than the base64 besides.
    for kept_bytes in [2_000_000, 6_000_000] {
        let memory = format!("[modules]\nkept_bytes = {kept_bytes}\n");
        let host = granting_with(&origin, &memory);
        let endpoint = scripted([answers("a logo")]);
        let server = serve(&host, &endpoint);
        let ask = |path: &str| server.post("/v1/chat/completions", &says(&image(path)));
        let refused = ask("/team/large.png");
        assert!([413, 503].contains(&refused.status), "{refused:?}");
        assert!(refused.text.contains("modules.kept_bytes"), "{refused:?}");
        // What it took is free again.
        ask("/team/logo.png").good();
        assert_eq!(endpoint.requests().len(), 1);
    }
}

/// Images of earlier turns count like those in the body, before they are read.
#[test]
fn images_of_earlier_turns_count_in_the_memory_of_a_request() {
    // One key may have 7 MB. A body with an image of 2 MB takes 5.4 MB, and the image by itself 2.7 MB.
    let host = host("[modules]\nkept_bytes = 8_000_000\n");
    let endpoint = scripted(vec![answers("a logo"); 5]);
    let server = serve(&host, &endpoint);
    let later = json!("And now?");
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    server.post(&turns, &task(&large_image(1))).good();
    server.post(&turns, &task(&later)).good();
    assert_eq!(shown(&endpoint, 1).1.len(), 1);
    let refused = server.post(&turns, &task(&large_image(2)));
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.text.contains("modules.kept_bytes"), "{refused:?}");
    server.post(&turns, &task(&later)).good();

    let asked = |content: &Value, before: Option<&str>| {
        let mut asked =
            json!({"model": "default", "input": [{"role": "user", "content": content}]});
        if let Some(before) = before {
            asked["previous_response_id"] = before.into();
        }
        server.post("/v1/responses", &asked)
    };
    let first = asked(&large_image(1), None).good();
    let before = first["id"].as_str();
    let refused = asked(&large_image(2), before);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.text.contains("modules.kept_bytes"), "{refused:?}");
    asked(&later, before).good();
    assert_eq!(shown(&endpoint, 4).1.len(), 1);
}

/// No request has the images of a resumed run. They count for its owner.
#[test]
fn a_run_is_not_resumed_without_memory_for_its_images() {
    let host = host("");
    let endpoint = scripted([Reply::endless().delayed_ms(0, 50), answers("a logo")]);
    let mut first = serve(&host, &endpoint);
    let mut asked = task(&large_image(1));
    asked["stream"] = true.into();
    let begun = first.first_events(Method::POST, "/v1/agent", Some(&asked), 4);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    first.kill();

    let url = endpoint.base_url();
    let holds_runs = |config: &str| {
        host.write("toolhold.toml", config);
        Server::start(&host, &["--base-url", &url, "--model", "m", "--hold-runs"])
    };
    let resume = |server: &Server| server.post(&format!("/v1/runs/{run}/resume"), &json!({}));
    let mut small = holds_runs("[modules]\nkept_bytes = 2_000_000\n");
    let refused = resume(&small);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.text.contains("modules.kept_bytes"), "{refused:?}");
    small.terminate();

    let server = holds_runs("");
    let resumed = resume(&server);
    assert_eq!(resumed.status, 202, "{resumed:?}");
    let events = server.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(events.last().unwrap().json()["output"], "a logo");
    assert_eq!(shown(&endpoint, 1).1.len(), 1);
}
