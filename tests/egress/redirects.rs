//! Who follows redirects, and what goes with them.

use super::{error, get, given, grant, local, request, response, start, text};
use serde_json::json;

#[tokio::test]
async fn redirects_are_the_guests_business_unless_granted() {
    let web = start().await;
    let there = web.url("/redirect/302?/there");
    let seen = response(get(&given([local(&web)]).fetcher().await, &there).await);
    assert_eq!((&seen["status"], web.requests().len()), (&json!(302), 1));

    let follow = grant(
        json!({"origin": web.origin(), "methods": ["GET", "POST"], "redirects": 2, "private": true}),
    );
    let registry = given([follow]).fetcher().await;
    assert_eq!(text(&response(get(&registry, &there).await)), "hello");
    let again = web.url("/redirect/301?/redirect/302?/redirect/303?/there");
    assert!(error(&get(&registry, &again).await).contains("LoopDetected"));
    let post = async |path, body| {
        let report = request(&registry, "POST", &web.url(path), json!([]), Some(body)).await;
        text(&response(report)).to_owned()
    };
    // A redirect that asks for the same request gets the same body.
    let echo = post("/redirect/307?/echo", "twice").await;
    assert!(
        echo.starts_with("POST /echo") && echo.ends_with("twice"),
        "{echo}"
    );
    let echo = post("/redirect/303?/echo", "once").await;
    assert!(
        echo.starts_with("GET /echo") && !echo.contains("once"),
        "{echo}"
    );
}

#[tokio::test]
async fn a_guests_own_credentials_stay_with_their_origin() {
    let (web, other) = (start().await, start().await);
    let follow = grant(json!({"origin": web.origin(), "redirects": 5, "private": true}));
    let registry = given([follow, local(&other)]).fetcher().await;
    let url = web.url(&format!("/redirect/302?{}", other.url("/echo")));
    let headers = json!([
        ["authorization", "Bearer mine"],
        ["cookie", "mine"],
        ["x-other", "kept"]
    ]);
    let seen = response(request(&registry, "GET", &url, headers, None).await);
    assert!(
        text(&seen).contains("x-other: kept") && !text(&seen).contains("mine"),
        "{seen}"
    );
}
