//! Rows 13 and 14: nothing leaves but what was granted, however it is spelt.

use super::{error, get, given, grant, local, request, response, text};
use serde_json::json;
use std::process::Command;
use support::sandbox::kind;
use support::web::{Answers, Web};
use toolhold_hostile::FORBIDDEN;
use toolhold_sandbox::HttpGrant;

#[tokio::test]
async fn row_13_without_a_grant_nothing_leaves() {
    let web = Web::start().await;
    let answers = Answers::new(&[&["127.0.0.1"]]);
    let registry = given([]).resolver(answers.clone()).fetcher().await;
    for url in [
        web.url("/"),
        format!("http://localhost:{}/", web.port()),
        "https://example.com/".into(),
    ] {
        let report = get(&registry, &url).await;
        assert!(
            error(&report).contains("HttpRequestDenied"),
            "{url}: {report:?}"
        );
    }
    assert_eq!((web.accepted(), answers.asked()), (0, 0));
}

#[tokio::test]
async fn row_13_beside_a_grant_nothing_leaves() {
    let (web, other) = (Web::start().await, Web::start().await);
    let only = grant(json!({"origin": web.origin(), "path_prefix": "/v1", "private": true}));
    let registry = given([only]).fetcher().await;
    let port = web.port();
    for (method, url) in [
        ("GET", other.url("/v1")),
        ("GET", format!("http://127.0.0.2:{port}/v1")),
        ("GET", format!("http://localhost:{port}/v1")),
        ("GET", format!("https://127.0.0.1:{port}/v1")),
        ("GET", format!("ftp://127.0.0.1:{port}/v1")),
        ("GET", "http://127.0.0.1/v1".into()),
        ("POST", web.url("/v1")),
        ("get", web.url("/v1")),
        ("CONNECT", web.url("/v1")),
        ("GET", web.url("/")),
        ("GET", web.url("/v10")),
        ("GET", web.url("/v1/../x")),
        ("GET", web.url("/v1/%2e%2e/x")),
        ("GET", web.url("/v1/%252e%252e/x")),
        ("GET", web.url("/v1/..;/x")),
        ("GET", web.url("/v1//x")),
        ("GET", web.url("/v1/a%2f..%2fx")),
        ("GET", format!("http://user@127.0.0.1:{port}/v1")),
        ("GET", format!("http://@127.0.0.1:{port}/v1")),
        ("GET", format!("http://127.0.0.1:{port}@example.com/v1")),
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
async fn row_14_no_spelling_of_a_forbidden_address_gets_through() {
    let web = Web::start().await;
    let port = web.port();
    // A name under the wildcard has whatever address the resolver says; the spellings have none.
    let wide = grant(json!({"origin": format!("http://*.example.com:{port}")}));
    let registry = given([wide])
        .limits(|l| l.http_requests = 1_000)
        .fetcher()
        .await;
    for host in FORBIDDEN {
        let url = format!("http://{host}:{port}/");
        let report = get(&registry, &url).await;
        assert_eq!(kind(&report), "tool", "{url}: {report:?}");
        // Nor can it be granted by mistake.
        let granted =
            serde_json::from_value::<HttpGrant>(json!({"origin": format!("http://{host}:{port}")}));
        assert!(granted.is_err(), "{host} can be granted");
    }
    assert_eq!(web.accepted(), 0);
}

#[tokio::test]
async fn row_14_no_name_leads_to_a_forbidden_address() {
    let web = Web::start().await;
    let port = web.port();
    let name = grant(json!({"origin": format!("http://*.example.com:{port}")}));
    let private = grant(json!({"origin": format!("http://nas.lan:{port}"), "private": true}));
    for addresses in [
        &["127.0.0.1"][..],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["2d00::1", "127.0.0.1"],
        &["64:ff9b::7f00:1"],
    ] {
        let answers = Answers::new(&[addresses]);
        let registry = given([name.clone(), private.clone()])
            .resolver(answers)
            .fetcher()
            .await;
        let report = get(&registry, &format!("http://a.example.com:{port}/")).await;
        assert!(
            error(&report).contains("DestinationIpProhibited"),
            "{addresses:?}: {report:?}"
        );
    }
    // A private grant reaches the network, and still not its metadata services.
    for (addresses, reached) in [
        (&["127.0.0.1"][..], true),
        (&["127.0.0.1", "169.254.169.254"], false),
    ] {
        let registry = given([private.clone()])
            .resolver(Answers::new(&[addresses]))
            .fetcher()
            .await;
        let report = get(&registry, &format!("http://nas.lan:{port}/")).await;
        assert_eq!(report.result.is_ok(), reached, "{addresses:?}: {report:?}");
    }
}

#[tokio::test]
async fn row_14_a_name_that_changes_its_answer_is_asked_once() {
    let web = Web::start().await;
    let port = web.port();
    let url = format!("http://rebind.example.com:{port}/");
    // Public first: unassigned, so that nobody is bothered. Then this machine.
    let answers = Answers::new(&[&["2d00::1"], &["127.0.0.1"]]);
    let public = grant(json!({"origin": format!("http://rebind.example.com:{port}")}));
    let registry = given([public])
        .resolver(answers.clone())
        .limits(|l| l.http_timeout_ms = 500)
        .fetcher()
        .await;
    let first = error(&get(&registry, &url).await);
    assert_eq!(answers.asked(), 1, "{first}");
    let second = error(&get(&registry, &url).await);
    assert!(second.contains("DestinationIpProhibited"), "{second}");
    assert_eq!((answers.asked(), web.accepted()), (2, 0));

    // What was judged is what is connected to: the server hears of the first answer alone.
    let answers = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let private =
        grant(json!({"origin": format!("http://rebind.example.com:{port}"), "private": true}));
    let registry = given([private]).resolver(answers.clone()).fetcher().await;
    response(get(&registry, &url).await);
    assert_eq!((answers.asked(), web.accepted()), (1, 1));
    assert_eq!(
        web.requests()[0].header("host"),
        [format!("rebind.example.com:{port}")]
    );
}

#[tokio::test]
async fn row_14_nothing_can_be_smuggled_into_a_request() {
    let web = Web::start().await;
    let registry = given([local(&web)]).fetcher().await;
    for headers in [
        json!([["x-a", "1\r\nx-smuggled: 1"]]),
        json!([["x-a", "1\nx-smuggled: 1"]]),
        json!([["x-a\r\nx-smuggled", "1"]]),
        json!([["x-a: 1\r\nx-smuggled", "1"]]),
        json!([["x-a", "\u{0}"]]),
        json!([["host", "evil.example"]]),
        json!([["Host", "127.0.0.1"], ["host", "evil.example"]]),
        json!([["transfer-encoding", "chunked"]]),
        json!([["connection", "upgrade"]]),
        json!([["upgrade", "h2c"]]),
        json!([["te", "trailers"]]),
        json!([["trailer", "x-a"]]),
        json!([["expect", "100-continue"]]),
        json!([["keep-alive", "1"]]),
        json!([["proxy-authorization", "x"]]),
        json!([["proxy-connection", "x"]]),
        json!([["content-length", "5"], ["content-length", "6"]]),
        json!([["content-length", "5"]]),
        json!([["content-length", "+0"]]),
    ] {
        let report = request(&registry, "GET", &web.url("/"), headers.clone(), None).await;
        assert_eq!(kind(&report), "tool", "{headers}: {report:?}");
    }
    for path in [
        "/a b",
        "/a\r\nx-smuggled: 1",
        "/ HTTP/1.1\r\nhost: evil.example\r\n\r\nGET /",
        "/\u{0}",
    ] {
        let report = get(&registry, &web.url(path)).await;
        assert_eq!(kind(&report), "tool", "{path:?}: {report:?}");
    }
    assert_eq!(web.accepted(), 0);
    // A body that is not as long as was said never becomes a request that is.
    for length in ["3", "30"] {
        let report = request(
            &registry,
            "POST",
            &web.url("/"),
            json!([["content-length", length]]),
            Some("a body"),
        )
        .await;
        assert_ne!(kind(&report), "ok", "{length}");
    }
    assert!(
        web.requests()
            .iter()
            .all(|seen| seen.body != "a body" && !seen.head.contains("smuggled"))
    );
}

/// Sends from a process of its own, because no test may change the environment of all others.
#[tokio::test]
async fn row_14_proxy_variables_are_ignored() {
    let (web, proxy) = (Web::start().await, Web::start().await);
    let mut child = Command::new(std::env::current_exe().expect("this test"));
    child.args([
        "--exact",
        "egress::reach::sends_with_proxy_variables_set",
        "--ignored",
        "--nocapture",
    ]);
    child.env("EGRESS_TEST_TARGET", web.origin());
    for name in [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        child.env(name, proxy.origin());
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = tokio::task::spawn_blocking(move || child.output())
        .await
        .expect("joined")
        .expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
    assert_eq!((web.requests().len(), proxy.accepted()), (1, 0));
}

#[tokio::test]
#[ignore = "run by row_14_proxy_variables_are_ignored, in an environment of its making"]
async fn sends_with_proxy_variables_set() {
    let Ok(origin) = std::env::var("EGRESS_TEST_TARGET") else {
        return;
    };
    assert!(std::env::var("HTTP_PROXY").is_ok());
    let local = grant(json!({"origin": origin, "private": true}));
    let registry = given([local]).fetcher().await;
    assert_eq!(
        text(&response(get(&registry, &format!("{origin}/")).await)),
        "hello"
    );
}
