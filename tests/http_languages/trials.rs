//! Requests as authors write them, with what they forget (`trial/`): responses that are not read, failures, times and
//! mistakes. A request holds one of few places of its call (`http_concurrent`) until its last handle is gone.

use super::{SLOW, granted, serve};
use crate::new_module::answered;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;
use support::host::Host;
use support::sandbox::call;
use toolhold_needs::has_program;
use toolhold_policy::{CallError, ErrorClass, Output};

enum Outcome {
    /// `{url}` stands for the server's address, here and in messages.
    Gives(Value),
    /// A class, and how the message begins.
    Fails(ErrorClass, &'static str),
    /// The host ends the call with an error of this kind.
    Ends(&'static str),
}
use ErrorClass::{Fatal, Retryable};
use Outcome::{Ends, Fails, Gives};

/// More than the buffers of a connection to this machine hold, so that it is not sent while nobody reads it.
const LARGE: &str = "timeout of a large body";
/// The module's time is longer than the host's, and the module catches what it is told. Where nothing does, the host
/// names its limit.
const HOSTS_TIME: &str = "the host's time";

/// What a call has, by the way that it goes.
fn limits(how: &str) -> Value {
    match how {
        LARGE => json!({"http_request_bytes": 16 << 20}),
        HOSTS_TIME => json!({"http_timeout_ms": 300}),
        _ => json!({"http_response_bytes": 64 << 20}),
    }
}

/// Builds the source in the place of a template's, and holds each way of it against what it should come to, in a time
/// in which no server that is waited for has answered.
async fn hold(language: &str, needs: &str, file: &str, source: &str, table: Vec<(&str, Outcome)>) {
    if !has_program(needs, &format!("the {language} trial is not built")) {
        return;
    }
    let host = Host::new();
    let made = host.run(&["new-module", "trial", "--lang", language]);
    assert_eq!(made.code, Some(0), "{made:?}");
    host.write(&format!("modules/trial/{file}"), source);
    if language == "rust" {
        let manifest = host.path().join("modules/trial/Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("a manifest");
        let has_http = text.replace(
            "vendor/toolhold-guest\" }",
            "vendor/toolhold-guest\", features = [\"http\"] }",
        );
        assert_ne!(text, has_http);
        host.write("modules/trial/Cargo.toml", has_http);
    }
    let Some(built) = answered("build", || host.run(&["build", "trial"])) else {
        return;
    };
    assert_eq!(built.code, Some(0), "{built:?}");
    let origin = serve().await;
    let grant =
        json!({"origin": origin, "methods": ["GET", "POST"], "private": true, "redirects": 3});
    let folder = host.path().join("modules");
    let mut registries = HashMap::new();
    let mut wrong = Vec::new();
    for (how, outcome) in table {
        let limits = limits(how);
        let registry = match registries.entry(limits.to_string()) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => {
                place.insert(granted(&folder, "trial", grant.clone(), limits).await)
            }
        };
        let begun = Instant::now();
        let report = call(registry, "trial.run", json!({"how": how, "url": origin})).await;
        let took = begun.elapsed();
        let is_right = match (&outcome, &report.result) {
            (Gives(expected), Ok(Output::Value(value))) => {
                let expected = expected.to_string().replace("{url}", &origin);
                *value == serde_json::from_str::<Value>(&expected).expect("JSON")
            }
            (Fails(expected, begin), Err(CallError::Tool { class, message, .. })) => {
                class == expected && message.starts_with(&begin.replace("{url}", &origin))
            }
            (Ends(kind), Err(error)) => error.kind() == *kind,
            _ => false,
        };
        if !is_right || took >= SLOW {
            wrong.push(format!("{how}: {took:?}: {:?}", report.result));
        }
    }
    assert!(wrong.is_empty(), "{language}:\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn requests_in_go_hold_nothing_and_end_in_their_time() {
    let table = vec![
        ("unread", Gives(json!(vec![200; 12]))),
        ("errors", Gives(json!([12, 200]))),
        ("together", Gives(json!(vec![200; 12]))),
        ("timeout", Gives(json!([true, true]))),
        ("timeout in the body", Gives(json!([true, true]))),
        (
            "deadline",
            Fails(
                Retryable,
                "GET {url}/slow broke off: context deadline exceeded",
            ),
        ),
        (
            "deadline of a post",
            Fails(
                Fatal,
                "POST {url}/slow broke off: context deadline exceeded. The server may",
            ),
        ),
        (
            LARGE,
            Fails(
                Fatal,
                "POST {url}/slow broke off: context deadline exceeded. The server may",
            ),
        ),
        ("cancel", Gives(json!(true))),
        ("cancel in the body", Gives(json!(true))),
    ];
    hold(
        "go",
        "python3",
        "main.go",
        include_str!("trial/main.go"),
        table,
    )
    .await;
}

#[tokio::test]
async fn requests_in_rust_hold_nothing_and_end_in_their_time() {
    let get = "GET {url}/slow broke off: it took longer than the 300 ms that the module gave it";
    let post = "POST {url}/slow broke off: it took longer than the 300 ms that the module gave it. The server may";
    let body =
        "GET {url}/trickle broke off: it took longer than the 300 ms that the module gave it";
    let table = vec![
        ("unread", Gives(json!(vec![1; 12]))),
        ("failures", Gives(json!([27, 200]))),
        ("timeout", Fails(Retryable, get)),
        ("timeout of a post", Fails(Fatal, post)),
        (LARGE, Fails(Fatal, post)),
        (HOSTS_TIME, Gives(json!([1]))),
        ("timeout in the body", Fails(Retryable, body)),
    ];
    hold(
        "rust",
        "cargo",
        "src/lib.rs",
        include_str!("trial/lib.rs"),
        table,
    )
    .await;
}

const HOST: &str = "GET {url}/slow broke off: HTTP-response-timeout";

#[tokio::test]
async fn requests_in_c_hold_nothing_and_end_in_their_time() {
    let get = "GET {url}/slow broke off: it took longer than the 300 ms that the module gave it";
    let post = "POST {url}/slow broke off: it took longer than the 300 ms that the module gave it. The server may";
    let body =
        "GET {url}/trickle broke off: it took longer than the 300 ms that the module gave it";
    let table = vec![
        ("unread", Gives(json!(12))),
        ("errors", Gives(json!([12, 200]))),
        ("timeout", Fails(Retryable, get)),
        ("timeout of a post", Fails(Fatal, post)),
        (LARGE, Fails(Fatal, post)),
        (HOSTS_TIME, Gives(json!(HOST))),
        ("timeout in the body", Fails(Retryable, body)),
    ];
    hold(
        "c",
        "python3",
        "module.c",
        include_str!("trial/module.c"),
        table,
    )
    .await;
}

#[tokio::test]
async fn requests_in_python_hold_nothing_and_fail_as_in_python() {
    let late = "GET {url}/slow broke off: it took longer than the 0.3 s that the module gave it";
    let table = vec![
        ("unread", Gives(json!(vec![1 << 19; 12]))),
        (
            "errors",
            Gives(json!([
                503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 503, 200
            ])),
        ),
        ("failures", Gives(json!([27, 200]))),
        ("timeout", Gives(json!(true))),
        (
            LARGE,
            Fails(
                Fatal,
                "POST {url}/slow broke off: it took longer than the 0.3 s that the module gave it",
            ),
        ),
        (HOSTS_TIME, Gives(json!(HOST))),
        (
            "a timeout in the body",
            Fails(
                Retryable,
                "GET {url}/rest broke off: it took longer than the 0.3 s that the module gave it",
            ),
        ),
        ("a timeout that nothing catches", Fails(Retryable, late)),
        (
            "a post that nothing catches",
            Fails(Fatal, "POST {url}/slow broke off: it took longer"),
        ),
        (
            "a status that nothing catches",
            Fails(Retryable, "GET {url}/busy answered 503 Service Unavailable"),
        ),
        (
            "a denial that nothing catches",
            Fails(
                Fatal,
                "GET https://elsewhere.example/x was not granted to this module, or redirects to what was not; an \
                 operator can: toolhold modules grant MODULE --with-http https://elsewhere.example (",
            ),
        ),
        (
            "a mistake",
            Fails(Fatal, "run raised KeyError: 'missing' (app.py, line "),
        ),
        ("read after close", Gives(json!("ValueError"))),
        ("a text as data", Gives(json!("TypeError"))),
        ("a number as data", Gives(json!("TypeError"))),
        (
            "a header beyond Latin-1",
            Gives(json!("UnicodeEncodeError")),
        ),
        (
            "a header's name beyond ASCII",
            Gives(json!("UnicodeEncodeError")),
        ),
        ("a header with a line's end", Gives(json!("ValueError"))),
    ];
    hold(
        "python",
        "python3",
        "app.py",
        include_str!("trial/app.py"),
        table,
    )
    .await;
}

#[tokio::test]
async fn requests_in_javascript_keep_to_their_bounds() {
    let found = |value: Value| Gives(json!({"found": value}));
    let thrown = |name: &str, message: &str| Gives(json!({"thrown": name, "message": message}));
    let told = |name: &str, class: &str, message: &str| {
        Gives(json!({"thrown": name, "class": class, "message": message}))
    };
    let table = vec![
        ("unread", found(json!(vec![1 << 19; 12]))),
        ("together", found(json!(vec![200; 12]))),
        ("cancelled", found(json!(vec![true; 12]))),
        (
            "read after cancel",
            thrown("TypeError", "the body was read already"),
        ),
        (
            "read twice",
            thrown("TypeError", "the body was read already"),
        ),
        ("redirect", found(json!([200, "grün 😀"]))),
        (
            "redirect by hand",
            thrown(
                "TypeError",
                "fetch follows redirects as far as the module's grant says; `redirect` cannot change it",
            ),
        ),
        ("a body with GET", thrown("TypeError", "GET has no body")),
        (
            "an object as body",
            thrown(
                "TypeError",
                "a body is a string, an ArrayBuffer or a view of one; write JSON with JSON.stringify",
            ),
        ),
        (
            "a header's name",
            thrown("TypeError", "\"a b\" is not a header's name"),
        ),
        ("headers of 200 KiB", Ends("http-body")),
        ("failures", found(json!([27, 200]))),
        ("a time of many posts", found(json!([1, "TimeoutError", 6]))),
        (
            "a time while another is read",
            found(json!(["TimeoutError", 20, true])),
        ),
        ("an answer while another is read", found(json!([200, 20]))),
        (
            "the first of two times",
            told(
                "TimeoutError",
                "retryable",
                "GET {url}/slow broke off: it took longer than the 300 ms that the module gave it",
            ),
        ),
        (
            LARGE,
            told(
                "TimeoutError",
                "fatal",
                "POST {url}/slow broke off: it took longer than the 300 ms that the module gave it. The server may have \
                 carried it out: look before it is sent again",
            ),
        ),
        (HOSTS_TIME, told("TypeError", "retryable", HOST)),
        ("a time of one of many", found(json!(["TimeoutError", 12]))),
        ("abort all", found(json!([1, "enough", 200]))),
        (
            "aborted before",
            thrown("AbortError", "the request was aborted"),
        ),
        (
            "no signal",
            thrown("TypeError", "`signal` is an AbortSignal"),
        ),
        (
            "a header's end of line",
            told(
                "TypeError",
                "correctable",
                "a header of GET {url} cannot be sent: invalid-syntax",
            ),
        ),
        (
            "too many redirects",
            told(
                "TypeError",
                "correctable",
                "{url}/loop redirects more often than the grant allows; ask for the address that it leads to",
            ),
        ),
        (
            "a body of 17 MiB",
            told(
                "TypeError",
                "fatal",
                "the body of {url}/huge has more than the 16 MiB that a module reads",
            ),
        ),
        (
            "a time",
            told(
                "TimeoutError",
                "retryable",
                "GET {url}/slow broke off: it took longer than the 300 ms that the module gave it",
            ),
        ),
        (
            "a time in the body",
            told(
                "TimeoutError",
                "retryable",
                "GET {url}/trickle broke off: it took longer than the 300 ms that the module gave it",
            ),
        ),
    ];
    hold(
        "js",
        "npm",
        "module.js",
        include_str!("trial/module.js"),
        table,
    )
    .await;
}
