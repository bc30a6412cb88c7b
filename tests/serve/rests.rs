//! Endpoints that ask for a rest, and answers of balancers: no single answer stops a server for minutes.

use super::{ask, host, scripted, serve};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::endpoint::Reply;
use support::host::Host;
use support::server::Server;
use support::transcript::answers;
use support::until;

/// A refusal of a provider that wants to be left alone for five minutes.
fn exhausted() -> Reply {
    Reply::error(429, json!({"error": {"message": "slow down"}})).with_header("Retry-After", "300")
}

fn quick(more: &str) -> Host {
    host(&format!(
        "[endpoints.default]\nattempts = 4\nbackoff_ms = 10\n{more}"
    ))
}

/// `toolhold endpoints` about this server.
fn endpoints(host: &Host, server: &Server, arguments: &[&str]) -> String {
    let at = ["endpoints", "--server", server.address()];
    let done = host.run(&[&at, arguments].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

#[test]
fn a_rest_is_told_and_can_be_cleared() {
    let (host, endpoint) = (quick(""), scripted([exhausted(), answers("back")]));
    let server = serve(&host, &endpoint);
    assert_eq!(server.get("/readyz").good()["resting_endpoints"], 0);
    assert!(endpoints(&host, &server, &[]).contains("asked"));

    let refused = server.post("/v1/agent", &ask("first"));
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], "endpoint_rate_limit");
    assert_eq!(refused.headers["retry-after"], "300");
    assert!(refused.text.contains("slow down"), "{refused:?}");
    until("the log", || {
        let said = server.said();
        said.contains("asked for a rest").then_some(())
    });
    assert_eq!(server.get("/readyz").good()["resting_endpoints"], 1);
    let listed: Value = server.get("/v1/endpoints").good();
    let resting = &listed["data"][0];
    assert_eq!(
        (&resting["name"], &resting["asked"]),
        (&json!("default"), &json!(false))
    );
    let left = resting["rest_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&left), "{resting}");
    assert!(resting["asked_rest_ms"].as_u64().unwrap() > 200_000);
    let told = endpoints(&host, &server, &[]);
    assert!(
        told.contains("left alone") && told.contains("one request tries it"),
        "{told}"
    );
    let metrics = server.get("/metrics").text;
    let rest = metrics
        .lines()
        .find(|line| line.starts_with("toolhold_endpoint_rest"));
    assert!(
        rest.is_some_and(|line| line.contains("default")),
        "{rest:?}"
    );

    let cleared = endpoints(&host, &server, &["clear", "default"]);
    assert!(cleared.contains("asked again"), "{cleared}");
    let began = Instant::now();
    assert_eq!(
        server.post("/v1/agent", &ask("second")).good()["output"],
        "back"
    );
    assert!(began.elapsed() < Duration::from_secs(20));
    let again = endpoints(&host, &server, &["clear", "default"]);
    assert!(again.contains("was not left alone"), "{again}");
    let unknown = host.run(&["endpoints", "--server", server.address(), "clear", "other"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("no endpoint"), "{unknown:?}");
}

#[test]
fn a_long_rest_ends_with_a_request_that_probes() {
    let replies = [exhausted(), exhausted(), answers("back"), answers("again")];
    let (host, endpoint) = (quick("max_rest_ms = 200\n"), scripted(replies));
    let server = serve(&host, &endpoint);
    for text in ["first", "second"] {
        // The second waits out the rest, and is the request that probes.
        assert_eq!(server.post("/v1/agent", &ask(text)).status, 429);
    }
    assert_eq!(endpoint.requests().len(), 2);
    assert_eq!(
        server.post("/v1/agent", &ask("third")).good()["output"],
        "back"
    );
    until("the log", || {
        let said = server.said();
        said.contains("the rest of an endpoint is over")
            .then_some(())
    });
    assert_eq!(
        server.post("/v1/agent", &ask("fourth")).good()["output"],
        "again"
    );
    assert_eq!(server.get("/readyz").good()["resting_endpoints"], 0);
}

#[test]
fn a_page_of_a_balancer_is_asked_again_and_counted() {
    let replies = [Reply::html(), answers("behind it")];
    let (host, endpoint) = (quick(""), scripted(replies));
    let server = serve(&host, &endpoint);
    assert_eq!(
        server.post("/v1/agent", &ask("hello")).good()["output"],
        "behind it"
    );
    let metrics = server.get("/metrics").text;
    let counted = metrics
        .lines()
        .find(|line| line.starts_with("toolhold_replies_unusable"));
    let counted = counted.unwrap_or_default();
    assert!(counted.contains("no_completion"), "{counted}");
    assert!(counted.ends_with(" 1"), "{counted}");
}

#[test]
fn a_run_that_ends_with_an_error_of_the_endpoint_is_no_success() {
    let failure = || Reply::error(500, json!({"error": {"message": "boom"}}));
    let endpoint = scripted((0..8).map(|_| failure()));
    let host = quick("breaker_failures = 0\n");
    let server = serve(&host, &endpoint);
    let answer = server.post("/v1/agent", &ask("hello"));
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(answer.headers["x-should-retry"], "false");
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "server_error");
    assert!(error["message"].as_str().unwrap().contains("boom"));
    // A session's turn answers alike.
    let session = server.post("/v1/sessions", &json!({})).good();
    let path = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    assert_eq!(server.post(&path, &ask("hello")).status, 502);
}
