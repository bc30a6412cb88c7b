//! Answers to clients whose connection gets no place, or no descriptor.

use super::{ask, host, scripted, serve, streamed, until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use support::PATIENCE;
use support::server::{Server, health_until_refused};
use support::transcript::{answers, calls};

/// Descriptors that the server may have, and what becomes of the quarter of them that its connections have: ordinary
/// places, those of the reserve, and eight connections that are answered without a place.
const DESCRIPTORS: usize = 256;
const ORDINARY: usize = 40;
const RESERVE: usize = 16;
/// Requests beyond both.
const EXCESS: usize = 8;

fn request(server: &Server, path: &str) -> TcpStream {
    let address = server.address().trim_start_matches("http://");
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    // One that is refused before it is read may be closed.
    let _ = client.write_all(head.as_bytes());
    client
}

fn answer(mut client: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn assert_refused(answer: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 503 "), "{answer}");
    for line in [
        "retry-after: 5",
        "connection: close",
        "content-type: application/json",
    ] {
        assert!(head.lines().any(|it| it == line), "{line}: {answer}");
    }
    assert!(head.contains("\r\nx-request-id: "), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"]["type"], "overloaded_error", "{answer}");
}

/// Waits until `/metrics` has answers with 503 that have no route. While connections close, it may be refused itself.
fn until_refused_in_metrics(server: &Server, method: &str) {
    until("the answers in the metrics", || {
        let metrics = server.get("/metrics").text;
        let mut lines = metrics.lines();
        let is_counted = lines.any(|line| {
            line.starts_with("http_server_request_duration_seconds_count")
                && line.contains("http_response_status_code=\"503\"")
                && line.contains(&format!("http_request_method=\"{method}\""))
                && !line.contains("http_route")
        });
        is_counted.then_some(())
    });
}

#[test]
fn requests_without_a_place_are_refused_with_503() {
    // Each test is a process of its own, and the server inherits its limit.
    let limited = Command::new("prlimit")
        .arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"))
        .args(["--pid", &std::process::id().to_string()])
        .status();
    assert!(limited.expect("prlimit").success());
    let host = host("[decisions]\nalways = [\"text\"]\n");
    let waits = calls([("text.reverse", json!({"text": "a"}))]);
    let endpoint = scripted([waits, answers("served")]);
    let mut server = serve(&host, &endpoint);
    server.connect_anew();
    let run = streamed(&server, "Reverse it.", 1);
    until("the call that waits", || {
        let calls = server.get("/v1/approvals").good();
        (!calls["calls"].as_array()?.is_empty()).then_some(())
    });
    let before = server.open_sockets();

    // Each follows a run that waits, so it has a request under way.
    let mut followers = Vec::new();
    for _ in 0..ORDINARY {
        let mut follower = request(&server, &format!("/v1/runs/{run}/events"));
        let mut status = [0; 12];
        follower.read_exact(&mut status).unwrap();
        assert_eq!(status, *b"HTTP/1.1 200");
        followers.push(follower);
    }
    let mut others: Vec<TcpStream> = (0..RESERVE + EXCESS)
        .map(|_| request(&server, "/v1/runs"))
        .collect();
    for refused in others.drain(..EXCESS) {
        assert_refused(&answer(refused));
    }
    until("what the server says of it", || {
        let said = server.said();
        said.contains("clients are answered with 503").then_some(())
    });
    assert_eq!(server.get("/healthz").status, 200);
    until_refused_in_metrics(&server, "GET");

    // When connections close, those that waited for a place get one. The others were told.
    drop(followers);
    for other in others {
        let answer = answer(other);
        if !answer.starts_with("HTTP/1.1 200 ") {
            assert_refused(&answer);
        }
    }
    let served = server.post("/v1/agent", &ask("anybody there?")).good();
    assert_eq!(served["output"], "served");
    // The run may have left one to its endpoint.
    until("all connections to be closed", || {
        (server.open_sockets() <= before + 1).then_some(())
    });
}

#[test]
fn clients_are_refused_with_503_while_no_descriptor_is_left() {
    let (host, endpoint) = (host(""), scripted([]));
    let mut server = serve(&host, &endpoint);
    server.connect_anew();
    assert_eq!(server.get("/healthz").status, 200);
    let address = server.address().trim_start_matches("http://").to_owned();
    let before = server.open_sockets();
    server.limit_descriptors(8);
    let (served, refused) = health_until_refused(&address);
    assert_refused(&refused);
    // The spare descriptor is there for the next one, too.
    for _ in 0..3 {
        assert_refused(&answer(request(&server, "/v1/runs")));
    }
    until("what the server says of it", || {
        let said = server.said();
        let is_said = said.contains("connections could not be accepted")
            && said.contains("clients are answered with 503");
        is_said.then_some(())
    });

    drop(served);
    until("room", || {
        (server.get("/healthz").status == 200).then_some(())
    });
    until_refused_in_metrics(&server, "_OTHER");
    until("all connections to be closed", || {
        (server.open_sockets() <= before).then_some(())
    });
}
