//! 003.26: a document of a task is named by its address.

use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::server::Server;
use support::transcript::{answers, told};

const FEES: &str = "# Fees\n\nA replacement of a lost card costs 20 euro.\n";

/// Serves a document on this machine, once for each connection, and counts.
fn document_server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/markdown\r\ncontent-length: {}\r\n\r\n{FEES}",
                FEES.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (origin, count)
}

/// A server, with the folder that it lives in.
fn serve(configuration: &str, endpoint: &Endpoint) -> (Host, Server) {
    let host = Host::new();
    host.ship("calculator")
        .write("toolhold.toml", configuration);
    let url = endpoint.base_url();
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    (host, server)
}

fn task(document: &Value) -> Value {
    json!({
        "messages": [{"role": "user", "content": "What does a lost card cost?"}],
        "documents": [document],
    })
}

#[test]
fn statement_003_26_a_granted_address_is_fetched() {
    let (origin, fetched) = document_server();
    let endpoint = Endpoint::start(Scenario::new([answers(
        "\"A replacement of a lost card costs 20 euro\" [k1].",
    )]));
    let configuration = format!(
        "[[knowledge.http]]\norigin = {origin:?}\npath_prefix = \"/team\"\nprivate = true\n"
    );
    let (_host, server) = serve(&configuration, &endpoint);
    let address = format!("{origin}/team/fees");
    let document = json!({"content": address, "mime_type": "text/markdown"});
    let answer = server.post("/v1/agent", &task(&document)).good();
    assert_eq!(answer["citations"][0]["holds"], true, "{answer}");
    assert_eq!(answer["citations"][0]["source"], json!(address), "{answer}");
    assert!(told(&endpoint, 0).contains("costs 20 euro"));
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
    // The grant ends at its path.
    let elsewhere = json!({"content": format!("{origin}/private")});
    let refused = server.post("/v1/agent", &task(&elsewhere));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("knowledge.http"), "{refused:?}");
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
}

#[test]
fn statement_003_26_an_address_is_never_taken_for_the_text() {
    let (origin, fetched) = document_server();
    let endpoint = Endpoint::start(Scenario::new([answers("It has an address.")]));
    let (_host, server) = serve("", &endpoint);
    for address in [
        format!("{origin}/fees.md"),
        "https://docs.example.com/fees.md".to_owned(),
        "file:///etc/hostname".to_owned(),
        "data:text/plain,hello".to_owned(),
    ] {
        let refused = server.post("/v1/agent", &task(&json!({"content": address})));
        assert_eq!(refused.status, 400, "{address}: {refused:?}");
        assert!(refused.text.contains("documents[0]"), "{refused:?}");
    }
    assert_eq!(fetched.load(Ordering::SeqCst), 0);
    assert_eq!(endpoint.requests().len(), 0);
    // A text with an address in it is a text.
    let text = json!({"content": "The fees are at https://docs.example.com/fees.md today."});
    server.post("/v1/agent", &task(&text)).good();
    assert!(told(&endpoint, 0).contains("The fees are at"));
}

#[test]
fn statement_003_26_a_grant_that_does_nothing_is_refused() {
    let host = Host::new();
    host.write(
        "toolhold.toml",
        "[[knowledge.http]]\norigin = \"https://a.example\"\nredirects = 1\n",
    );
    let done = host.run(&["config"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("redirects are not followed"),
        "{done:?}"
    );
}
