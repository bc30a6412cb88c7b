//! Row 14, redirects: who follows them, and that each hop is checked like a first request.

use super::{error, get, given, grant, local, request, response, text};
use serde_json::json;
use support::web::{Answers, Web};

#[tokio::test]
async fn redirects_are_the_guests_business_unless_granted() {
    let web = Web::start().await;
    let there = web.url("/redirect/302?/there");
    let seen = response(get(&given([local(&web)]).fetcher().await, &there).await);
    assert_eq!((&seen["status"], web.requests().len()), (&json!(302), 1));

    let follow = |hops: u8| {
        grant(
            json!({"origin": web.origin(), "methods": ["GET", "POST"], "redirects": hops, "private": true}),
        )
    };
    let registry = given([follow(2)]).fetcher().await;
    assert_eq!(text(&response(get(&registry, &there).await)), "hello");
    let again = web.url("/redirect/301?/redirect/302?/redirect/303?/there");
    assert!(error(&get(&registry, &again).await).contains("LoopDetected"));
    // A redirect that asks for the same request gets the same body.
    let seen = response(
        request(
            &registry,
            "POST",
            &web.url("/redirect/307?/echo"),
            json!([]),
            Some("twice"),
        )
        .await,
    );
    assert!(
        text(&seen).starts_with("POST /echo") && text(&seen).ends_with("twice"),
        "{seen}"
    );
    let seen = response(
        request(
            &registry,
            "POST",
            &web.url("/redirect/303?/echo"),
            json!([]),
            Some("once"),
        )
        .await,
    );
    assert!(
        text(&seen).starts_with("GET /echo") && !text(&seen).contains("once"),
        "{seen}"
    );
}

#[tokio::test]
async fn row_14_every_hop_of_a_redirect_is_checked_again() {
    let (web, other) = (Web::start().await, Web::start().await);
    let port = other.port();
    let follow = grant(json!({"origin": web.origin(), "redirects": 5, "private": true}));
    let name = grant(json!({"origin": format!("http://a.example.com:{port}")}));
    let answers = Answers::new(&[&["127.0.0.1"]]);
    let registry = given([follow.clone(), name])
        .resolver(answers)
        .fetcher()
        .await;
    for (to, code) in [
        (
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "HttpRequestDenied",
        ),
        ("http://0xa9fea9fe/".into(), "HttpRequestDenied"),
        (
            "http://[::ffff:169.254.169.254]/".into(),
            "HttpRequestDenied",
        ),
        (other.url("/"), "HttpRequestDenied"),
        (format!("//127.0.0.1:{port}/"), "HttpRequestDenied"),
        (format!("http://localhost:{port}/"), "HttpRequestDenied"),
        (
            format!("http://user@127.0.0.1:{}/", web.port()),
            "HttpRequestUriInvalid",
        ),
        ("file:///etc/passwd".into(), "HttpRequestDenied"),
        ("gopher://127.0.0.1/".into(), "HttpRequestDenied"),
        // Granted, and leads here by its name.
        (
            format!("http://a.example.com:{port}/"),
            "DestinationIpProhibited",
        ),
    ] {
        let chain = web.url(&format!("/redirect/302?/redirect/307?{to}"));
        let report = get(&registry, &chain).await;
        assert!(error(&report).contains(code), "{to}: {report:?}");
    }
    assert_eq!(other.accepted(), 0);

    // Where both ends are granted, a credential stays at its own.
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
