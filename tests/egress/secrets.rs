//! Row 16: a secret goes where it is bound to, and comes back in no form and by no way.

use super::{CANARY, error, get, given, grant, local, request, response, text};
use serde_json::json;
use support::sandbox::{call, kind};
use support::web::Web;
use toolhold_sandbox::{CallReport, Output, Place, Redactor};

fn authorization() -> Place {
    Place::Header {
        name: "Authorization".into(),
        format: None,
    }
}

/// That the canary is in no part of a report, in no form.
fn assert_no_canary(report: &CallReport) {
    let encoded = "c4nary%2F%2B%22key%22%26%3C42%3E%3D%3F";
    let redactor = Redactor::new([("canary", CANARY), ("canary", encoded)]).expect("a redactor");
    let value = match &report.result {
        Ok(Output::Value(value) | Output::Message(value)) => value.to_string(),
        Err(error) => format!("{error} {error:?}"),
    };
    let logs: Vec<_> = report.logs.iter().map(|line| &line.message).collect();
    for text in [
        &value,
        &report.stdout.text,
        &report.stderr.text,
        &format!("{logs:?} {report:?}"),
    ] {
        assert!(!redactor.finds(text.as_bytes()), "{text}");
        // And by eye: the part that no encoding changes.
        assert!(!text.contains("c4nary"), "{text}");
    }
}

#[tokio::test]
async fn row_16_a_secret_goes_out_and_never_comes_back() {
    let web = Web::start().await;
    let registry = given([local(&web)])
        .secret(&web, authorization())
        .fetcher()
        .await;
    let placeholder = json!([
        ["authorization", "placeholder"],
        ["accept-encoding", "gzip"],
        ["range", "bytes=0-3"]
    ]);
    let report = request(&registry, "GET", &web.url("/echo/all"), placeholder, None).await;
    let sent = &web.requests()[0];
    assert_eq!(sent.header("authorization"), [format!("Bearer {CANARY}")]);
    assert_eq!(sent.header("accept-encoding"), ["identity"]);
    assert!(sent.header("range").is_empty());
    assert!(report.redactions > 30, "{}", report.redactions);
    assert_no_canary(&report);
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

#[tokio::test]
async fn row_16_a_secret_in_the_query_comes_back_no_more_than_one_in_a_header() {
    let web = Web::start().await;
    let place = Place::Query { name: "key".into() };
    let registry = given([local(&web)]).secret(&web, place).fetcher().await;
    let report = get(&registry, &web.url("/echo/all?a=1&key=mine")).await;
    assert!(
        web.requests()[0]
            .target()
            .starts_with("/echo/all?a=1&key=c4nary%2F%2B%22key%22")
    );
    assert!(report.redactions > 10, "{}", report.redactions);
    assert_no_canary(&report);
    // The echo of the request line, escaped as it was sent.
    let report = get(&registry, &web.url("/echo")).await;
    assert_no_canary(&report);
    assert!(text(&response(report)).starts_with("GET /echo?key=[secret canary] HTTP/1.1"));
}

#[tokio::test]
async fn row_16_a_guest_that_prints_and_dies_tells_nothing() {
    let web = Web::start().await;
    let registry = given([local(&web)])
        .secret(&web, authorization())
        .fetcher()
        .await;
    let report = call(
        &registry,
        "fetch.fetch_and_panic",
        json!({"url": web.url("/echo/all")}),
    )
    .await;
    assert_eq!(kind(&report), "trap", "{report:?}");
    assert!(
        report.stdout.text.contains("[secret canary]")
            && report.stderr.text.contains("[secret canary]")
    );
    assert!(error(&report).contains("it last wrote"), "{report:?}");
    assert_no_canary(&report);
}

/// The last door, for a secret that came by another way: here the caller itself handed it in.
#[tokio::test]
async fn row_16_a_report_is_cleaned_whatever_the_way_in() {
    let web = Web::start().await;
    let registry = given([local(&web)])
        .secret(&web, authorization())
        .fetcher()
        .await;
    let report = request(&registry, "GET", &format!("{CANARY}://x"), json!([]), None).await;
    assert_no_canary(&report);
    let report = request(
        &registry,
        "GET",
        &web.url("/"),
        json!([[CANARY, CANARY]]),
        None,
    )
    .await;
    assert_no_canary(&report);
}

#[tokio::test]
async fn row_16_a_secret_stays_with_its_origin() {
    let (web, other) = (Web::start().await, Web::start().await);
    let follow = grant(json!({"origin": web.origin(), "redirects": 5, "private": true}));
    let registry = given([follow, local(&other)])
        .secret(&web, authorization())
        .fetcher()
        .await;
    response(get(&registry, &other.url("/echo")).await);
    response(
        get(
            &registry,
            &web.url(&format!("/redirect/302?{}", other.url("/echo"))),
        )
        .await,
    );
    assert_eq!(other.requests().len(), 2);
    assert!(
        other
            .requests()
            .iter()
            .all(|seen| !seen.head.contains("c4nary"))
    );

    // A server that puts it into a redirect: the guest is handed the redirect, cleaned, and may ask.
    let place = Place::Query { name: "key".into() };
    let follow = grant(json!({"origin": web.origin(), "redirects": 5, "private": true}));
    let registry = given([follow, local(&other)])
        .secret(&web, place)
        .fetcher()
        .await;
    let report = get(
        &registry,
        &web.url(&format!("/redirect/302?{}", other.url("/echo?x=1"))),
    )
    .await;
    assert_no_canary(&report);
    assert_eq!(response(report)["status"], 302);
    assert_eq!(other.requests().len(), 2);
}

#[tokio::test]
async fn row_16_a_body_that_cannot_be_searched_is_refused() {
    let web = Web::start().await;
    let registry = given([local(&web)])
        .secret(&web, authorization())
        .fetcher()
        .await;
    let report = get(&registry, &web.url("/gzip")).await;
    assert!(
        error(&report).contains("HttpResponseContentCoding"),
        "{report:?}"
    );
}
