//! `modules/http` and `modules/search` against a server of this test.

use axum::Router;
use axum::body::Bytes;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use support::sandbox::{call, registry, repository};
use tokio::net::TcpListener;
use toolhold_hostile::liar::{self, Claim, LiarReply};
use toolhold_policy::{CallError, Grant, HttpGrant, Output, SecretGrant, SecretPlace, SecretSlot};
use toolhold_sandbox::{ModulePolicy, Policy, Registry};

const SECRET: &str = "a-key-of-the-engine";

/// Serves until the test's runtime ends.
async fn serve() -> String {
    let json = |value: Value| {
        (
            [(header::CONTENT_TYPE, "application/json")],
            value.to_string(),
        )
    };
    let page = "<html><h1>Hi</h1><script>no()</script><p>See <a href='/x'>this</a></html>";
    let router = Router::new()
        .route(
            "/json",
            get(move || async move { json(json!({"a": [1, 2]})) }),
        )
        .route(
            "/page",
            get(move || async move { ([(header::CONTENT_TYPE, "text/html")], page) }),
        )
        .route("/bytes", get(|| async { [0_u8, 1, 2].to_vec() }))
        .route("/long", get(|| async { "x".repeat(5 << 20) }))
        .route(
            "/busy",
            get(|| async { (StatusCode::SERVICE_UNAVAILABLE, "later") }),
        )
        .route("/sent", post(sent).put(sent))
        .route("/search", get(search).post(sent));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    origin
}

async fn sent(headers: HeaderMap, body: Bytes) -> String {
    let of = |name| headers.get(name).and_then(|value| value.to_str().ok());
    json!({
        "body": String::from_utf8_lossy(&body),
        "type": of(header::CONTENT_TYPE),
        "length": of(header::CONTENT_LENGTH),
    })
    .to_string()
}

/// Brave's form; RSS for who asks for `rss`.
async fn search(RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let query = query.unwrap_or_default();
    if headers.get("x-key").is_none_or(|key| key != SECRET) {
        return (StatusCode::UNAUTHORIZED, "no key").into_response();
    }
    if query.contains("rss") {
        let feed = "<rss><channel><item><title>R</title><link>https://r.example</link></item></channel></rss>";
        return feed.into_response();
    }
    let result = |n: u32| json!({"title": format!("{n} {query}"), "url": format!("https://{n}.example"), "description": format!("<b>hit</b> {SECRET}")});
    let results: Vec<_> = (1..=9).map(result).collect();
    json!({"web": {"results": results}})
        .to_string()
        .into_response()
}

async fn module(name: &str, grant: Grant) -> Registry {
    let module = ModulePolicy {
        grant,
        ..ModulePolicy::default()
    };
    let mut policy = Policy::default();
    policy.modules.insert(name.to_owned(), module);
    let registry = registry(policy);
    registry
        .load_folder(
            &repository().join("modules"),
            Some(&[name.to_owned()]),
            &|_| (),
        )
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    registry
}

fn granted(origin: &str, methods: &[&str]) -> Vec<HttpGrant> {
    let grant = json!({"origin": origin, "methods": methods, "private": true});
    vec![serde_json::from_value(grant).expect("a grant")]
}

async fn value(registry: &Registry, tool: &str, arguments: Value) -> Value {
    match call(registry, tool, arguments).await.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool} gave {other:?}"),
    }
}

/// The error's class, as its words in a report begin, and its words.
async fn error(registry: &Registry, tool: &str, arguments: Value) -> (String, String) {
    match call(registry, tool, arguments).await.result {
        Err(CallError::Tool { class, message, .. }) => (format!("{class:?}"), message),
        other => panic!("{tool} gave {other:?}"),
    }
}

#[tokio::test]
async fn what_a_server_answers_comes_in_the_form_that_fits() {
    let origin = serve().await;
    let grant = Grant {
        http: granted(&origin, &["GET"]),
        ..Grant::default()
    };
    let registry = module("http", grant).await;
    let get = async |path: &str, form: &str| {
        let arguments = json!({"url": format!("{origin}{path}"), "as": form});
        value(&registry, "http.get", arguments).await
    };
    let answer = get("/json", "auto").await;
    assert_eq!(
        (&answer["status"], &answer["content"]),
        (&json!(200), &json!({"a": [1, 2]}))
    );
    assert_eq!(answer["headers"]["content-type"], "application/json");
    assert_eq!(get("/json", "text").await["content"], r#"{"a":[1,2]}"#);
    assert!(
        get("/page", "auto").await["content"]
            .as_str()
            .unwrap()
            .contains("<h1>Hi")
    );
    assert_eq!(get("/bytes", "base64").await["content"], "AAEC");
    let busy = get("/busy", "auto").await;
    assert_eq!(
        (&busy["status"], &busy["content"]),
        (&json!(503), &json!("later"))
    );
    let long = get("/long", "auto").await;
    assert_eq!(long["truncated"], true);
    assert_eq!(long["content"].as_str().map(str::len), Some(20_000));

    for (arguments, class, part) in [
        (
            json!({"url": format!("{origin}/bytes")}),
            "Correctable",
            "\"as\": \"base64\"",
        ),
        (
            json!({"url": format!("{origin}/page"), "as": "json"}),
            "Correctable",
            "is not JSON",
        ),
        (
            json!({"url": "https://example.com/"}),
            "Fatal",
            "was not granted",
        ),
        (json!({"url": "example.com"}), "Correctable", "https://"),
        (
            json!({"url": format!("{origin}/page"), "headers": {"X-HTTP-Method-Override": "DELETE"}}),
            "Correctable",
            "use the tool `send`",
        ),
        (
            json!({"url": format!("{origin}/page"), "as": "markdown"}),
            "Fatal",
            "--with-tool markdown.from_html",
        ),
    ] {
        let (found, message) = error(&registry, "http.get", arguments.clone()).await;
        assert_eq!(found, class, "{arguments}: {message}");
        assert!(message.contains(part), "{arguments}: {message}");
    }
}

/// With a stand-in for the module `markdown`, which is too large to be built for every test.
#[tokio::test]
async fn a_page_comes_as_markdown_and_what_the_reader_refuses_is_told() {
    let origin = serve().await;
    let grant = Grant {
        http: granted(&origin, &["GET"]),
        tools: vec!["markdown.from_html".into()],
        ..Grant::default()
    };
    let page = json!({"url": format!("{origin}/page"), "as": "markdown"});
    let reader = async |reply: LiarReply| {
        let registry = module("http", grant.clone()).await;
        let component = liar::component(&[Claim::named("from_html")], &reply).expect("a component");
        registry
            .load_bytes("markdown", component)
            .await
            .expect("it loads");
        registry
    };
    let made = json!({"markdown": "# Hi\n\nSee [this](/x)\n"}).to_string();
    let registry = reader(LiarReply::Value(made)).await;
    let answer = value(&registry, "http.get", page.clone()).await;
    assert_eq!(answer["content"], "# Hi\n\nSee [this](/x)\n");
    let registry = reader(LiarReply::Error {
        message: "the page is too deep".into(),
        data: None,
    })
    .await;
    let (class, message) = error(&registry, "http.get", page).await;
    assert_eq!(class, "Correctable", "{message}");
    assert!(
        message.contains("the page is too deep") && !message.contains("--with-tool"),
        "{message}"
    );
}

#[tokio::test]
async fn what_is_sent_is_sent_whole_and_only_as_granted() {
    let origin = serve().await;
    let grant = Grant {
        http: granted(&origin, &["POST"]),
        ..Grant::default()
    };
    let registry = module("http", grant).await;
    let url = format!("{origin}/sent");
    let send = async |method: &str, body: Value| {
        let arguments = json!({"method": method, "url": url, "body": body, "as": "json"});
        call(&registry, "http.send", arguments).await.result
    };
    let Ok(Output::Value(seen)) = send("POST", json!({"n": 1})).await else {
        panic!("it was granted");
    };
    assert_eq!(
        seen["content"],
        json!({"body": r#"{"n":1}"#, "type": "application/json", "length": "7"})
    );
    let denied = send("PUT", json!("x")).await.unwrap_err().to_string();
    assert!(
        denied.contains("PUT") && denied.contains("was not granted"),
        "{denied}"
    );
}

#[tokio::test]
async fn the_configured_engine_is_searched_with_its_key() {
    let origin = serve().await;
    let slot = SecretSlot {
        name: "key".into(),
        origin: origin.parse().expect("an origin"),
        place: SecretPlace::Header {
            name: "X-Key".into(),
            format: None,
        },
    };
    let engine = async |variables: &[(&str, &str)], has_key: bool| {
        let secret = || SecretGrant::new(slot.clone(), SECRET.into()).expect("a secret");
        let variables = variables.iter();
        let grant = Grant {
            http: granted(&origin, &["GET", "POST"]),
            environment: variables
                .map(|(name, value)| ((*name).to_owned(), value.replace("ORIGIN", &origin)))
                .collect(),
            secrets: has_key.then(secret).into_iter().collect(),
            ..Grant::default()
        };
        module("search", grant).await
    };
    let url = (
        "SEARCH_URL",
        "ORIGIN/search?q={searchTerms}&n={count}&p={startPage?}",
    );
    let brave = engine(&[url], true).await;
    let found = value(&brave, "search.web", json!({"query": "a & b", "count": 2})).await;
    let results = found["results"].as_array().expect("a list");
    assert_eq!(results.len(), 2, "{found}");
    assert_eq!(results[0]["title"], "1 q=a%20%26%20b&n=2&p=1");
    assert_eq!(results[1]["url"], "https://2.example");
    // Nor does it reach the caller what the engine says back of the key. That the guest does not see it either is
    // shown by row 16 of the hostile suite.
    let snippet = results[0]["snippet"].as_str().expect("a text");
    assert!(
        snippet.starts_with("hit ") && !snippet.contains(SECRET),
        "{snippet}"
    );

    let feed = value(&brave, "search.web", json!({"query": "rss"})).await;
    assert_eq!(
        feed["results"],
        json!([{"title": "R", "url": "https://r.example", "snippet": ""}])
    );
    let (class, message) = error(
        &engine(&[url], false).await,
        "search.web",
        json!({"query": "a"}),
    )
    .await;
    assert_eq!(class, "Fatal", "{message}");
    assert!(message.contains("401: no key"), "{message}");
    let (class, message) = error(
        &engine(&[], true).await,
        "search.web",
        json!({"query": "a"}),
    )
    .await;
    assert!(
        class == "Fatal" && message.contains("SEARCH_URL"),
        "{message}"
    );
    let posted = [
        ("SEARCH_URL", "ORIGIN/search"),
        ("SEARCH_BODY", r#"{"q": "{searchTerms}"}"#),
    ];
    let (_, message) = error(
        &engine(&posted, true).await,
        "search.web",
        json!({"query": "\"q\""}),
    )
    .await;
    assert!(message.contains("members body, type, length"), "{message}");
}
