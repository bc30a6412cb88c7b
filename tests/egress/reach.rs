//! What a grant reaches, and what it does not, however it is spelt.

use super::{get, given, grant, local, request, response, start, text};
use serde_json::json;
use support::sandbox::kind;
use toolhold_hostile::web::{Answers, HERE, METADATA};

#[tokio::test]
async fn beside_a_grant_nothing_leaves() {
    let (web, other) = (start().await, start().await);
    let only = grant(json!({"origin": web.origin(), "path_prefix": "/v1", "private": true}));
    let registry = given([only]).fetcher().await;
    let port = web.port();
    for (method, url) in [
        ("GET", other.url("/v1")),
        ("GET", format!("http://127.0.0.2:{port}/v1")),
        ("GET", format!("https://127.0.0.1:{port}/v1")),
        ("GET", format!("ftp://127.0.0.1:{port}/v1")),
        ("GET", "http://127.0.0.1/v1".into()),
        ("POST", web.url("/v1")),
        ("GET", web.url("/")),
        ("GET", web.url("/v10")),
        ("GET", web.url("/v1/../x")),
        ("GET", web.url("/v1/%2e%2e/x")),
        ("GET", web.url("/v1/%252e%252e/x")),
        ("GET", web.url("/v1/..;/x")),
        ("GET", web.url("/v1//x")),
        ("GET", web.url("/v1/a%2f..%2fx")),
        ("GET", format!("http://@127.0.0.1:{port}/v1")),
    ] {
        let report = request(&registry, method, &url, json!([]), None).await;
        assert_eq!(kind(&report), "tool", "{method} {url}: {report:?}");
    }
    assert_eq!((web.accepted(), other.accepted()), (0, 0));
    assert_eq!(
        text(&response(get(&registry, &web.url("/v1/x")).await)),
        "hello"
    );
}

#[tokio::test]
async fn a_private_grant_reaches_the_network_but_no_metadata() {
    let web = start().await;
    let origin = format!("http://nas.lan:{}", web.port());
    let private = grant(json!({"origin": origin, "private": true}));
    for (addresses, reached) in [(&[HERE][..], true), (&[HERE, METADATA], false)] {
        let registry = given([private.clone()])
            .resolver(Answers::new(&[addresses]))
            .fetcher()
            .await;
        let report = get(&registry, &format!("{origin}/")).await;
        assert_eq!(report.result.is_ok(), reached, "{addresses:?}: {report:?}");
    }
}

/// The hostile suite has names that change their answer; this is what the server hears of one.
#[tokio::test]
async fn a_name_is_asked_once_and_stays_the_host() {
    let web = start().await;
    let origin = format!("http://rebind.example.com:{}", web.port());
    let answers = Answers::new(&[&[HERE], &[METADATA]]);
    let private = grant(json!({"origin": origin, "private": true}));
    let registry = given([private]).resolver(answers.clone()).fetcher().await;
    response(get(&registry, &format!("{origin}/")).await);
    assert_eq!((answers.asked(), web.accepted()), (1, 1));
    let host = origin.trim_start_matches("http://");
    assert_eq!(web.requests()[0].header("host"), [host]);
}

#[tokio::test]
async fn a_body_of_another_length_than_was_said_is_no_request() {
    let web = start().await;
    let registry = given([local(&web)]).fetcher().await;
    for length in ["3", "30"] {
        let headers = json!([["content-length", length]]);
        let report = request(&registry, "POST", &web.url("/"), headers, Some("a body")).await;
        assert_ne!(kind(&report), "ok", "{length}");
    }
    assert!(web.requests().iter().all(|seen| seen.body != "a body"));
}
