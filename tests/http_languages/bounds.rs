//! What a request without a response is told as: the same class and the same words in every language
//! (docs/modules.md, "HTTP"). Retryable is only what can succeed when it is tried again.

use super::{LANGUAGES, granted, serve, skipped};
use serde_json::{Value, json};
use support::sandbox::{call, repository};
use tokio::net::TcpListener;
use toolhold_policy::{CallError, ErrorClass};

struct Row {
    what: &'static str,
    path: &'static str,
    /// Bytes that are posted; 0: the path is got.
    posted: usize,
    grant: Value,
    limits: Value,
    class: ErrorClass,
    /// `{url}` stands for the address.
    message: &'static str,
}

fn row(what: &'static str, path: &'static str, class: ErrorClass, message: &'static str) -> Row {
    Row {
        what,
        path,
        posted: 0,
        grant: json!({}),
        limits: json!({}),
        class,
        message,
    }
}

fn table() -> Vec<Row> {
    use ErrorClass::{Correctable, Fatal, Retryable};
    vec![
        Row {
            limits: json!({"http_requests": 1}),
            grant: json!({"redirects": 3}),
            ..row(
                "too many requests",
                "/hop",
                Fatal,
                "GET {url} was not sent: this call reached its limit of requests (`http_requests`) or of requests at once \
                 (`http_concurrent`)",
            )
        },
        Row {
            posted: 5_000,
            limits: json!({"http_request_bytes": 1_000}),
            ..row(
                "a request's body that is too large",
                "/sent",
                Fatal,
                "POST {url} was not sent: its body is more than this call may send (`http_request_bytes`), or has \
                 another length than its header says",
            )
        },
        Row {
            limits: json!({"http_response_bytes": 50_000}),
            ..row(
                "a response's body that is too large",
                "/long",
                Fatal,
                "what {url} answered is more than this call may receive (`http_response_bytes`)",
            )
        },
        Row {
            grant: json!({"redirects": 2}),
            ..row(
                "too many redirects",
                "/loop",
                Correctable,
                "{url} redirects more often than the grant allows; ask for the address that it leads to",
            )
        },
        Row {
            grant: json!({"private": false}),
            ..row(
                "a private network",
                "/text",
                Fatal,
                "{url} is on a private network, or redirects to one, which the grant does not include; an operator can: \
                 toolhold modules grant MODULE --with-http {origin} --private",
            )
        },
        Row {
            grant: json!({"methods": ["POST"]}),
            ..row(
                "a method that was not granted",
                "/text",
                Fatal,
                "GET {url} was not granted to this module, or redirects to what was not; an operator can: toolhold \
                 modules grant MODULE --with-http {origin} (toolhold modules call names what was refused)",
            )
        },
        Row {
            limits: json!({"http_timeout_ms": 300}),
            ..row(
                "the host's time for a request",
                "/slow",
                Retryable,
                "GET {url} broke off: HTTP-response-timeout",
            )
        },
        Row {
            posted: 1,
            limits: json!({"http_timeout_ms": 300}),
            ..row(
                "the same, of what may not be sent again",
                "/slow",
                Fatal,
                "POST {url} broke off: HTTP-response-timeout. The server may have carried it out: look before it is sent \
                 again",
            )
        },
        row(
            "a body that breaks off",
            "/cut",
            Retryable,
            "GET {url} broke off: ",
        ),
        row(
            "nothing that listens",
            "",
            Retryable,
            "{url} did not answer: connection-refused",
        ),
    ]
}

#[tokio::test]
async fn a_request_that_fails_is_told_alike_in_every_language() {
    let served = serve().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed = format!("http://{}", {
        let address = closed.local_addr().expect("an address");
        drop(closed);
        address
    });
    let folder = repository().join("modules/examples");
    let mut wrong = Vec::new();
    for language in LANGUAGES {
        let name = format!("fetch_{language}");
        if !folder.join(&name).join(format!("{name}.wasm")).exists() {
            skipped(&format!(
                "modules/examples/{name} is not built; `cargo xtask test` builds it"
            ));
            continue;
        }
        for row in table() {
            let origin = if row.path.is_empty() {
                &closed
            } else {
                &served
            };
            let mut grant = json!({"origin": origin, "methods": ["GET", "POST"], "private": true});
            for (key, value) in row.grant.as_object().expect("an object") {
                grant[key] = value.clone();
            }
            let registry = granted(&folder, &name, grant, row.limits).await;
            let url = format!(
                "{origin}{}",
                if row.path.is_empty() { "/" } else { row.path }
            );
            let mut arguments = json!({"url": url});
            if row.posted > 0 {
                arguments["body"] = json!("x".repeat(row.posted));
            }
            let report = call(&registry, &format!("{name}.fetch"), arguments).await;
            let expected = row
                .message
                .replace("{url}", &url)
                .replace("{origin}", origin);
            match &report.result {
                Err(CallError::Tool { class, message, .. })
                    if *class == row.class && message.starts_with(&expected) => {}
                other => wrong.push(format!("{language}: {}: {other:?}", row.what)),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
