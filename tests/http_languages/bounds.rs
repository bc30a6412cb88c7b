//! What a request without a response is told as: the same class and the same words in every language
//! (docs/modules.md, "HTTP"). Retryable is only what can succeed when it is tried again.

use super::{LANGUAGES, granted, serve};
use serde_json::{Value, json};
use std::time::Duration;
use support::sandbox::{call, repository};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use toolhold_needs::is_built;
use toolhold_policy::{CallError, ErrorClass, HttpLimit};

struct Row {
    what: &'static str,
    path: &'static str,
    /// Bytes that are posted; 0: the path is got.
    posted: usize,
    grant: Value,
    limits: Value,
    ends: Ends,
}

enum Ends {
    /// The tool's own error, which begins so; `{url}` stands for the address.
    Tool(ErrorClass, &'static str),
    /// A limit of the call, which the host names itself.
    Limit(HttpLimit),
}

fn row(what: &'static str, path: &'static str, class: ErrorClass, message: &'static str) -> Row {
    Row {
        what,
        path,
        posted: 0,
        grant: json!({}),
        limits: json!({}),
        ends: Ends::Tool(class, message),
    }
}

fn limit(path: &'static str, posted: usize, limits: Value, ends: HttpLimit) -> Row {
    Row {
        what: "a limit",
        path,
        posted,
        grant: json!({"redirects": 3}),
        limits,
        ends: Ends::Limit(ends),
    }
}

fn table() -> Vec<Row> {
    use ErrorClass::{Correctable, Fatal, Retryable};
    let time = Duration::from_millis(300);
    vec![
        limit(
            "/hop",
            0,
            json!({"http_requests": 1}),
            HttpLimit::Requests(1),
        ),
        limit(
            "/sent",
            5_000,
            json!({"http_request_bytes": 1_000}),
            HttpLimit::RequestBytes(1_000),
        ),
        limit(
            "/long",
            0,
            json!({"http_response_bytes": 50_000}),
            HttpLimit::ResponseBytes(50_000),
        ),
        limit(
            "/slow",
            0,
            json!({"http_timeout_ms": 300}),
            HttpLimit::Time(time),
        ),
        limit(
            "/slow",
            1,
            json!({"http_timeout_ms": 300}),
            HttpLimit::Time(time),
        ),
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
            grant: json!({"methods": ["POST"]}),
            ..row(
                "a method that was not granted",
                "/text",
                Fatal,
                "GET {url} was not granted to this module, or redirects to what was not; an operator can: toolhold \
                 modules grant MODULE --with-http {origin} (toolhold modules call names what was refused)",
            )
        },
        row(
            "a body that breaks off",
            "/cut",
            Retryable,
            "GET {url} broke off: ",
        ),
        Row {
            posted: 1,
            ..row(
                "the same, of what may not be sent again",
                "/cut",
                Fatal,
                "POST {url} broke off: ",
            )
        },
        row(
            "a server that closes before its answer",
            HANG_UP,
            Retryable,
            "GET {url} broke off: ",
        ),
        Row {
            posted: 1,
            ..row(
                "the same, of what may not be sent again",
                HANG_UP,
                Fatal,
                "POST {url} broke off: ",
            )
        },
        row(
            "nothing that listens",
            "",
            Retryable,
            "{url} did not answer: connection-refused",
        ),
    ]
}

/// A path of a server that reads requests and answers none.
const HANG_UP: &str = "/hang-up";

/// The origin of that server.
async fn hangs_up() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Its end, and no reset: all that came was read.
            let _ = stream.read(&mut [0; 16 << 10]).await;
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_request_that_fails_is_told_alike_in_every_language() {
    let (served, hangs_up) = (serve().await, hangs_up().await);
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
        if !is_built(&repository(), &format!("modules/examples/{name}")) {
            continue;
        }
        for row in table() {
            let origin = match row.path {
                "" => &closed,
                HANG_UP => &hangs_up,
                _ => &served,
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
            let is_right = match (&row.ends, &report.result) {
                (Ends::Tool(expected, begin), Err(CallError::Tool { class, message, .. })) => {
                    let begin = begin.replace("{url}", &url).replace("{origin}", origin);
                    class == expected && message.starts_with(&begin)
                }
                (Ends::Limit(expected), Err(CallError::HttpBody { limit })) => limit == expected,
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{language}: {}: {:?}", row.what, report.result));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
