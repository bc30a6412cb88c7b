//! Where a secret is put, and what the guest is shown in its place.

use super::{CANARY, get, given, grant, local, request, response, start, text};
use serde_json::json;
use toolhold_policy::SecretPlace;

#[tokio::test]
async fn a_secret_in_a_header() {
    let web = start().await;
    let place = SecretPlace::Header {
        name: "Authorization".into(),
        format: None,
    };
    let registry = given([local(&web)]).secret(&web, place).fetcher().await;
    // What a guest puts in the same place is not sent, nor what would keep the answer from being
    // searched.
    let own = json!([
        ["authorization", "placeholder"],
        ["accept-encoding", "gzip"],
        ["range", "bytes=0-3"]
    ]);
    let report = request(&registry, "GET", &web.url("/echo"), own, None).await;
    let sent = &web.requests()[0];
    assert_eq!(sent.header("authorization"), [format!("Bearer {CANARY}")]);
    assert_eq!(sent.header("accept-encoding"), ["identity"]);
    assert!(sent.header("range").is_empty());
    assert!(report.redactions > 30, "{}", report.redactions);
    let seen = response(report);
    assert!(text(&seen).contains("Bearer [secret canary]"), "{seen}");
    assert!(
        seen["headers"].to_string().contains("[secret canary]"),
        "{seen}"
    );
    assert_eq!(
        seen["trailers"],
        json!([["x-late", "Bearer [secret canary]"]])
    );
}

/// Whether the head or the body holds it.
#[tokio::test]
async fn a_response_that_holds_a_refused_secret_is_refused() {
    let web = start().await;
    let place = || SecretPlace::Header {
        name: "Authorization".into(),
        format: None,
    };
    let redacting = given([local(&web)]).secret(&web, place()).fetcher().await;
    let report = get(&redacting, &web.url("/echo")).await;
    assert!(report.result.is_ok(), "{report:?}");
    let refusing = given([local(&web)])
        .refused_secret(&web, place())
        .fetcher()
        .await;
    let report = get(&refusing, &web.url("/echo")).await;
    let error = report.result.unwrap_err();
    assert_eq!(error.kind(), "secret_reflected", "{error}");
    assert!(!error.to_string().contains(CANARY), "{error}");
    // What does not hold it passes.
    let report = get(&refusing, &web.url("/last")).await;
    assert!(report.result.is_ok(), "{report:?}");
}

#[tokio::test]
async fn a_secret_in_the_query() {
    let web = start().await;
    let place = SecretPlace::Query { name: "key".into() };
    let registry = given([local(&web)]).secret(&web, place).fetcher().await;
    let report = get(&registry, &web.url("/echo?a=1&key=mine")).await;
    assert_eq!(
        web.requests()[0].target(),
        "/echo?a=1&key=c4nary%2F%2B%22key%22%26%3C42%3E%3D%3F"
    );
    assert!(report.redactions > 30, "{}", report.redactions);
    let seen = response(report);
    assert!(
        text(&seen).starts_with("GET /echo?a=1&key=[secret canary] HTTP/1.1"),
        "{seen}"
    );
}

/// The guest is handed the redirect, cleaned, and may ask itself.
#[tokio::test]
async fn a_redirect_with_a_secret_in_it_is_not_followed() {
    let (web, other) = (start().await, start().await);
    let place = SecretPlace::Query { name: "key".into() };
    let follow = grant(json!({"origin": web.origin(), "redirects": 5, "private": true}));
    let registry = given([follow, local(&other)])
        .secret(&web, place)
        .fetcher()
        .await;
    let lure = format!("/redirect/302?{}", other.url("/echo?x=1"));
    let seen = response(get(&registry, &web.url(&lure)).await);
    assert_eq!(seen["status"], 302);
    assert!(
        seen["headers"].to_string().contains("key=[secret canary]"),
        "{seen}"
    );
    assert_eq!(other.accepted(), 0);
}
