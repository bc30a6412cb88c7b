//! The same over HTTP.

use super::*;

/// The script over HTTP, killed when dropped.
struct Site {
    child: std::process::Child,
    bench: McpFixture,
}

impl Site {
    async fn start(flags: &[&str]) -> Self {
        let bench = McpFixture::new(&[]);
        let port = bench.folder.path().join("port");
        let child = std::process::Command::new("python3")
            .arg(SCRIPT)
            .arg("--log")
            .arg(bench.folder.path().join("log"))
            .arg("--http")
            .arg(&port)
            .args(flags)
            .spawn()
            .unwrap();
        let mut site = Self { child, bench };
        eventually(|| port.exists()).await;
        let port = std::fs::read_to_string(port).unwrap();
        site.bench.settings.launch = Launch::Url {
            url: format!("http://127.0.0.1:{port}/mcp"),
            token_env: None,
        };
        site
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_server_over_http_does_the_same() {
    let site = Site::start(&[]).await;
    let server = site.bench.server(Pinning::FirstSight);
    assert_eq!(
        call(&server, "echo", json!({"text": "a"})).await,
        Ok(json!("a"))
    );
    assert_eq!(
        call(&server, "add", json!({"a": 1, "b": 2})).await,
        Ok(json!({"sum": 3}))
    );
    assert_eq!(call(&server, "ask", json!({})).await, Ok(json!("asked")));
    site.bench
        .logged("answered {\"jsonrpc\": \"2.0\", \"id\": \"p\"")
        .await;

    let failure = call(&server, "huge", json!({"bytes": 20 << 20}))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, "output", "{failure:?}");
    let most = Duration::from_millis(300);
    let failure = call_for(&server, "hang", json!({}), most)
        .await
        .unwrap_err();
    assert_eq!(failure.kind, "deadline");
    site.bench.logged("cancelled").await;

    // It forgot us: the call fails, and the next begins anew.
    let failure = call(&server, "die", json!({})).await.unwrap_err();
    assert_eq!(
        (failure.kind.as_str(), failure.class),
        ("server", ErrorClass::Retryable)
    );
    assert_eq!(
        call(&server, "echo", json!({"text": "b"})).await,
        Ok(json!("b"))
    );
    server.close().await;
    site.bench.logged("delete session-").await;
}

/// Compression that was not asked for, content types, signs of life, ends, marks: one tolerance for all.
#[tokio::test]
async fn answers_over_http_are_read_in_every_form() {
    for form in [
        "signs",
        "events signs unfinished",
        "unfinished",
        "mislabelled",
        "events plain mark",
        "plain",
        "gzip",
        "gzip mislabelled signs events",
        "deflate",
    ] {
        let site = Site::start(&["--form", form]).await;
        let server = site.bench.server(Pinning::FirstSight);
        let echoed = call(&server, "echo", json!({"text": "a"})).await;
        assert_eq!(echoed, Ok(json!("a")), "{form}");
    }
    let site = Site::start(&["--form", "half"]).await;
    let server = site.bench.server(Pinning::FirstSight);
    let echoed = call(&server, "echo", json!({"text": "a half"})).await;
    assert_eq!(echoed, Ok(json!("\u{fffd}")));
}

#[tokio::test]
async fn answers_over_http_that_cannot_be_read_are_refused_with_words() {
    for (form, words) in [
        ("brotli", "compressed with br"),
        ("bomb", "200 times as many bytes"),
        ("page", "text/html"),
    ] {
        let site = Site::start(&["--form", form]).await;
        let server = site.bench.server(Pinning::FirstSight);
        let failure = call(&server, "echo", json!({"text": "a"})).await;
        let failure = failure.unwrap_err();
        assert_eq!(failure.kind, "protocol", "{form}: {failure:?}");
        assert!(failure.message.contains(words), "{form}: {failure:?}");
    }
}

#[tokio::test]
async fn an_error_in_the_body_of_a_refusal_is_told() {
    let site = Site::start(&[]).await;
    let server = site.bench.server(Pinning::FirstSight);
    for (status, code, kind, class, words) in [
        (400, -32_602, "arguments", ErrorClass::Correctable, ": no"),
        (400, 17, "server", ErrorClass::Correctable, "error 17: no"),
        (
            400,
            -32_601,
            "server",
            ErrorClass::Fatal,
            "error -32601: no",
        ),
        (
            400,
            -32_000,
            "protocol",
            ErrorClass::Fatal,
            "status 400 Bad Request and the error -32000: no",
        ),
        (
            503,
            -32_603,
            "server",
            ErrorClass::Retryable,
            "status 503 Service Unavailable and the error -32603: no",
        ),
        (
            403,
            -32_001,
            "host",
            ErrorClass::Fatal,
            "status 403 Forbidden and the error -32001: no; the operator",
        ),
        // The session is over, whatever the body says.
        (404, -32_601, "server", ErrorClass::Retryable, "our session"),
    ] {
        let given = json!({"code": code, "status": status});
        let failure = call(&server, "refuse", given).await.unwrap_err();
        assert_eq!(
            (failure.kind.as_str(), failure.class),
            (kind, class),
            "{status}: {failure:?}"
        );
        assert!(failure.message.contains(words), "{status}: {failure:?}");
        assert!(!failure.message.contains('\u{202e}'), "{failure:?}");
    }
    let echoed = call(&server, "echo", json!({"text": "b"})).await;
    assert_eq!(echoed, Ok(json!("b")), "it begins anew");
}

#[tokio::test]
async fn notifications_without_end_over_http_are_no_server() {
    let mut site = Site::start(&[]).await;
    // Their bytes are within the limit.
    site.bench.settings.max_result_bytes = 8 << 20;
    let server = site.bench.server(Pinning::FirstSight);
    let failure = call(&server, "flood", json!({"lines": 10_001}))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, "protocol", "{failure:?}");
    let few = call(&server, "flood", json!({"lines": 9_000})).await;
    assert_eq!(few, Ok(json!("done")));
}

#[tokio::test]
async fn a_token_is_sent_and_a_missing_one_is_told() {
    let token = std::env::var(SECRET).unwrap();
    let mut site = Site::start(&["--token", &token]).await;
    let failure = call(
        &site.bench.server(Pinning::Never),
        "echo",
        json!({"text": ""}),
    )
    .await;
    let failure = failure.unwrap_err();
    assert!(
        failure.class == ErrorClass::Fatal && failure.message.contains("401"),
        "{failure:?}"
    );
    if let Launch::Url { token_env, .. } = &mut site.bench.settings.launch {
        *token_env = Some(SECRET.into());
    }
    let server = site.bench.server(Pinning::Never);
    let echoed = call(&server, "echo", json!({"text": token})).await;
    assert_eq!(echoed, Ok(json!(format!("[secret {SECRET}]"))));
    let settings = format!("{server:?}");
    assert!(!settings.contains(&token), "no secret is shown");
}

/// A server beside this process, such as one in the same pod, comes up later than it.
#[tokio::test]
async fn a_server_that_comes_up_later_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let up = folder.path().join("up");
    let site = Site::start(&["--busy-until", up.to_str().unwrap()]).await;
    let server = site.bench.server(Pinning::Never);
    let comes_up = async {
        site.bench.logged("busy").await;
        std::fs::write(&up, "").unwrap();
    };
    let (listed, ()) = tokio::join!(server.comes_up(), comes_up);
    assert_eq!(listed, Ok(()));
    assert!(site.bench.log().contains("list"), "{}", site.bench.log());
}

#[tokio::test]
async fn a_server_that_does_not_come_up_has_failed_when_its_time_is_over() {
    let mut site = Site::start(&["--busy-until", "/nowhere/up"]).await;
    // Two attempts, with a pause between them.
    site.bench.settings.timeout = Duration::from_millis(600);
    let failure = site.bench.server(Pinning::Never).comes_up().await;
    let failure = failure.unwrap_err();
    // A machine that is busy may not get an answer in this time.
    let reasons = ["status 503", "600 ms"];
    let words = failure.to_string();
    assert!(
        reasons.iter().any(|reason| words.contains(reason)),
        "{words}"
    );
}

#[tokio::test]
async fn a_server_that_ends_at_its_start_has_failed_at_once() {
    let bench = McpFixture::new(&["--stillborn"]);
    let failure = bench.server(Pinning::Never).comes_up().await.unwrap_err();
    assert!(matches!(failure, Failure::Ended(_)), "{failure:?}");
    assert_eq!(bench.starts(), 1);
}

#[tokio::test]
async fn a_pinned_server_is_up_without_a_start() {
    let bench = McpFixture::new(&[]);
    assert_eq!(bench.server(Pinning::FirstSight).comes_up().await, Ok(()));
    assert_eq!(bench.starts(), 1);
    assert_eq!(bench.server(Pinning::FirstSight).comes_up().await, Ok(()));
    assert_eq!(bench.starts(), 1);
}

#[tokio::test]
async fn an_unreachable_server_is_retryable() {
    let bench = McpFixture::new(&[]).with(|settings| {
        settings.launch = Launch::Url {
            url: "http://127.0.0.1:9/mcp".into(),
            token_env: None,
        };
    });
    let failure = call(&bench.server(Pinning::Never), "echo", json!({}))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.kind.as_str(), failure.class),
        ("server", ErrorClass::Retryable)
    );
}
