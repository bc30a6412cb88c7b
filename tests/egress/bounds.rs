//! What a call may use of HTTP, and that nothing of it outlives the call (docs/security.md, promise 3).

use super::{error, given, local, request, response, start};
use serde_json::json;
use std::time::Duration;
use support::host::{Host, finish};
use support::sandbox::{call, kind, repository};
use toolhold_policy::Invocation;

#[tokio::test]
async fn requests_and_their_bodies_are_counted() {
    let web = start().await;
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
    let web = start().await;
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
    #[expect(clippy::disallowed_methods, reason = "a test that starts one command")]
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
    let web = start().await;
    let registry = given([local(&web)]).fetcher().await;
    for path in ["/silent", "/endless"] {
        let arguments = json!({"url": web.url(path)});
        let invocation = Invocation::new("test", "fetch.drain", &arguments);
        let dropped =
            tokio::time::timeout(Duration::from_millis(300), registry.call(&invocation)).await;
        assert!(dropped.is_err(), "{path} ended by itself");
        let closed = web.ensure_left_alone(Duration::from_millis(250)).await;
        assert!(closed.is_ok(), "{path}: {closed:?}");
    }
}
