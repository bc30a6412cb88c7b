//! Row 15, and promise 3: whatever a server does, a call stays within its bounds and leaves nothing.

use super::{error, get, given, local, request, response};
use serde_json::json;
use std::time::{Duration, Instant};
use support::host::{Host, finish};
use support::sandbox::{call, kind, repository};
use support::web::Web;
use toolhold_sandbox::Invocation;

#[tokio::test]
async fn row_15_a_response_without_end_ends_by_the_deadline() {
    let web = Web::start().await;
    for path in ["/endless", "/silent"] {
        let registry = given([local(&web)])
            .limits(|l| l.timeout_ms = 400)
            .fetcher()
            .await;
        let started = Instant::now();
        let report = call(&registry, "fetch.drain", json!({"url": web.url(path)})).await;
        assert_eq!(kind(&report), "deadline", "{path}: {report:?}");
        assert!(
            started.elapsed() < Duration::from_millis(400 + 1_000),
            "{:?}",
            started.elapsed()
        );
        assert!(
            web.is_left_alone(Duration::from_secs(1)).await,
            "{path} is still connected"
        );

        // The request's own time is told to the guest, and explains what comes of it.
        let registry = given([local(&web)])
            .limits(|l| l.http_timeout_ms = 200)
            .fetcher()
            .await;
        let report = call(&registry, "fetch.drain", json!({"url": web.url(path)})).await;
        assert_eq!(kind(&report), "http-body", "{path}: {report:?}");
        assert!(
            error(&report).contains("200 ms for one HTTP request"),
            "{report:?}"
        );
    }
}

#[tokio::test]
async fn row_15_a_gigabyte_ends_at_the_limit() {
    let web = Web::start().await;
    let registry = given([local(&web)]).fetcher().await;
    for tool in ["fetch.drain", "fetch.fetch"] {
        let arguments =
            json!({"url": web.url("/gigabyte"), "method": "GET", "headers": [], "body": null});
        let arguments = if tool == "fetch.drain" {
            json!({"url": arguments["url"]})
        } else {
            arguments
        };
        let before = web.written();
        let report = call(&registry, tool, arguments).await;
        assert_eq!(kind(&report), "http-body", "{report:?}");
        assert!(
            error(&report).contains("8388608 bytes of HTTP responses"),
            "{report:?}"
        );
        assert!(
            web.is_left_alone(Duration::from_secs(1)).await,
            "still connected"
        );
        // What the host took, and what lies in the buffers of two sockets.
        let taken = web.written() - before;
        assert!(taken < 32 << 20, "the server could write {taken} bytes");
    }
}

#[tokio::test]
async fn row_15_a_compressed_bomb_stays_compressed() {
    let web = Web::start().await;
    let registry = given([local(&web)])
        .limits(|l| l.http_response_bytes = 20_000)
        .fetcher()
        .await;
    let seen = response(get(&registry, &web.url("/gzip")).await);
    // Gzip's magic number: it is the guest's to unpack, in the guest's memory.
    assert!(
        seen["head"].as_str().expect("base64").starts_with("H4sI"),
        "{}",
        seen["head"]
    );
    assert_eq!(seen["size"], include_bytes!("../fixtures/bomb.gz").len());
}

#[tokio::test]
async fn row_15_requests_and_their_bodies_are_counted() {
    let web = Web::start().await;
    let many = |path: &str, count: u32| json!({"url": web.url(path), "count": count});
    let registry = given([local(&web)])
        .limits(|l| (l.http_requests, l.http_concurrent) = (5, 8))
        .fetcher()
        .await;
    let outcomes = response(call(&registry, "fetch.fetch_many", many("/", 7)).await).to_string();
    assert_eq!(
        outcomes.matches("ConnectionLimitReached").count(),
        2,
        "{outcomes}"
    );
    assert_eq!(web.requests().len(), 5);

    let registry = given([local(&web)])
        .limits(|l| (l.timeout_ms, l.http_concurrent) = (500, 3))
        .fetcher()
        .await;
    let before = web.requests().len();
    call(&registry, "fetch.fetch_many", many("/silent", 10)).await;
    assert_eq!(web.requests().len() - before, 3);

    let registry = given([local(&web)])
        .limits(|l| l.http_request_bytes = 10_000)
        .fetcher()
        .await;
    let report = request(
        &registry,
        "POST",
        &web.url("/echo"),
        json!([]),
        Some(&"x".repeat(20_000)),
    )
    .await;
    assert_eq!(kind(&report), "http-body", "{report:?}");
    assert!(
        error(&report).contains("10000 bytes in HTTP request bodies"),
        "{report:?}"
    );
    // The next call starts at nought.
    response(
        request(
            &registry,
            "POST",
            &web.url("/echo"),
            json!([]),
            Some(&"x".repeat(9_000)),
        )
        .await,
    );
}

/// wasi:io's to-debug-string, as wasmtime answers it, has the host's backtrace in it when the operator
/// asked for backtraces: 20 functions and paths of the host, at the price of reading all of its debug
/// information.
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_told_nothing_of_the_hosts_stack() {
    let web = Web::start().await;
    let host = Host::new();
    let component = repository().join("tests/components/fetch/fetch.wasm");
    host.write(
        "modules/fetch.wasm",
        std::fs::read(component).expect("built"),
    );
    let granted = format!(
        "[module.fetch]\nhttp = [{{ origin = \"{}\", private = true }}]\n",
        web.origin()
    );
    host.write("toolhold.toml", granted);
    let arguments = json!({"url": web.url("/cut")}).to_string();
    let mut command = host.command(&["modules", "call", "--trust-all", "fetch.drain", &arguments]);
    command.env("RUST_BACKTRACE", "full");
    let done = tokio::task::spawn_blocking(move || command.output()).await;
    let done = finish(done.expect("no panic").expect("the binary runs"));
    let told = format!("{}{}", done.stdout, done.stderr);
    assert!(told.contains("connection terminated"), "{told}");
    for of_the_host in ["backtrace", "wasmtime", "tokio", ".rs"] {
        assert!(!told.contains(of_the_host), "{of_the_host}: {told}");
    }
}

#[tokio::test]
async fn a_dropped_call_closes_its_connections() {
    let web = Web::start().await;
    let registry = given([local(&web)]).fetcher().await;
    for path in ["/silent", "/endless"] {
        let arguments = json!({"url": web.url(path)});
        let invocation = Invocation {
            id: "test",
            tool: "fetch.drain",
            arguments: &arguments,
            context: &[],
            caller: toolhold_sandbox::Caller::default(),
            timeout: None,
        };
        let dropped =
            tokio::time::timeout(Duration::from_millis(300), registry.call(&invocation)).await;
        assert!(dropped.is_err(), "{path} ended by itself");
        assert!(
            web.is_left_alone(Duration::from_millis(250)).await,
            "{path} is still connected"
        );
    }
}
