//! HTTP from modules in six languages (`modules/examples/fetch_*`): the same tool, granted one server of this test.

mod bounds;
mod trials;

use crate::new_module::answered;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Redirect;
use axum::routing::{any, get, post};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use std::future::ready;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::host::{Finished, Host};
use support::sandbox::{call, registry, repository};
use tokio::net::TcpListener;
use tokio::time::sleep;
use toolhold_needs::{has_program, is_built};
use toolhold_policy::{CallError, Grant, Output};
use toolhold_sandbox::{ModulePolicy, Policy, Registry};

const LANGUAGES: [&str; 6] = ["rust", "c", "go", "python", "javascript", "typescript"];

async fn sent(headers: HeaderMap, body: Bytes) -> String {
    let of = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let body = String::from_utf8_lossy(&body);
    json!({"body": body, "length": of(header::CONTENT_LENGTH)}).to_string()
}

/// Longer than any test gives a request, and shorter than the host does.
const SLOW: Duration = Duration::from_secs(8);

/// A body that breaks off, when its begin is on its way.
fn cut() -> Body {
    let end = stream::once(async {
        sleep(Duration::from_millis(50)).await;
        Err(io::Error::other("it breaks off here"))
    });
    Body::from_stream(stream::iter([Ok("begun")]).chain(end))
}

/// A body that comes a byte at a time.
fn trickle(bytes: u32, time: Duration) -> Body {
    Body::from_stream(stream::unfold(0, move |sent| async move {
        sleep(time / bytes).await;
        (sent < bytes).then_some((Ok::<_, io::Error>("x"), sent + 1))
    }))
}

/// Serves until the test's runtime ends.
async fn serve() -> String {
    let posted = Arc::new(AtomicUsize::new(0));
    let counted = posted.clone();
    let router = Router::new()
        .route("/text", get(|| async { "grün 😀" }))
        .route(
            "/busy",
            get(|| async { (StatusCode::SERVICE_UNAVAILABLE, "later") }),
        )
        .route("/sent", post(sent))
        .route("/long", get(|| async { "x".repeat(1 << 19) }))
        .route("/huge", get(|| async { "x".repeat(17 << 20) }))
        .route("/hop", get(|| async { Redirect::temporary("/text") }))
        .route("/loop", get(|| async { Redirect::temporary("/loop") }))
        .route(
            "/slow",
            any(|| async {
                sleep(SLOW).await;
                "late"
            }),
        )
        .route("/cut", any(|| async { cut() }))
        .route("/trickle", get(|| async { trickle(160, SLOW) }))
        .route(
            "/second",
            get(|| async { trickle(20, Duration::from_secs(1)) }),
        )
        .route(
            "/rest",
            get(|| async {
                let parts = stream::iter([Ok("begun")]).chain(stream::once(async {
                    sleep(SLOW).await;
                    Ok::<_, io::Error>("late")
                }));
                Body::from_stream(parts)
            }),
        )
        .route(
            "/soon",
            get(|| async {
                sleep(Duration::from_millis(100)).await;
                "soon"
            }),
        )
        .route(
            "/counted",
            get(move || ready(counted.load(Ordering::SeqCst).to_string())).post(move || {
                posted.fetch_add(1, Ordering::SeqCst);
                sleep(SLOW)
            }),
        );
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    origin
}

/// The module of this language with a grant of the origin; nothing where it is not built.
async fn module(language: &str, origin: &str) -> Option<(Registry, String)> {
    let name = format!("fetch_{language}");
    let folder = repository().join("modules/examples");
    if !is_built(&repository(), &format!("modules/examples/{name}")) {
        return None;
    }
    let http = json!({"origin": origin, "methods": ["GET", "POST"], "private": true});
    let registry = granted(&folder, &name, http, json!({})).await;
    Some((registry, format!("{name}.fetch")))
}

/// The module of this name in a folder of modules, with this grant of HTTP and these limits.
async fn granted(folder: &Path, name: &str, http: Value, limits: Value) -> Registry {
    let grant = Grant {
        http: vec![serde_json::from_value(http).expect("a grant")],
        ..Grant::default()
    };
    let module = ModulePolicy {
        grant,
        limits: serde_json::from_value(limits).expect("limits"),
        ..ModulePolicy::default()
    };
    let mut policy = Policy::default();
    policy.modules.insert(name.to_owned(), module);
    let registry = registry(policy);
    registry
        .load_folder(folder, Some(&[name.to_owned()]), &|_| ())
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    registry
}

#[tokio::test]
async fn every_language_sends_requests_to_what_was_granted() {
    let origin = serve().await;
    for language in LANGUAGES {
        let Some((registry, tool)) = module(language, &origin).await else {
            continue;
        };
        let value = async |arguments: Value| match call(&registry, &tool, arguments).await.result {
            Ok(Output::Value(value)) => value,
            other => panic!("{tool} gave {other:?}"),
        };
        let plain = "text/plain; charset=utf-8";
        assert_eq!(
            value(json!({"url": format!("{origin}/text")})).await,
            json!({"status": 200, "type": plain, "text": "grün 😀"}),
            "{language}"
        );
        let busy = value(json!({"url": format!("{origin}/busy?a=b#c")})).await;
        assert_eq!(
            (&busy["status"], &busy["text"]),
            (&json!(503), &json!("later")),
            "{language}"
        );
        let long = value(json!({"url": format!("{origin}/long")})).await;
        assert_eq!(
            long["text"].as_str().map(str::len),
            Some(1000),
            "{language}"
        );
        // More than the host takes at a time.
        let body = format!("é{}", "y".repeat(900));
        let posted = value(json!({"url": format!("{origin}/sent"), "body": body})).await;
        let answered: Value =
            serde_json::from_str(posted["text"].as_str().expect("a text")).expect("JSON");
        assert_eq!(
            answered,
            json!({"body": body, "length": "902"}),
            "{language}"
        );
    }
}

#[tokio::test]
async fn what_was_not_granted_is_an_error_that_says_what_would_allow_it() {
    let origin = serve().await;
    for language in LANGUAGES {
        let Some((registry, tool)) = module(language, &origin).await else {
            continue;
        };
        let elsewhere = json!({"url": "https://elsewhere.example/x"});
        let report = call(&registry, &tool, elsewhere).await;
        let Err(CallError::Tool { class, message, .. }) = &report.result else {
            panic!("{tool} gave {:?}", report.result);
        };
        assert_eq!(format!("{class:?}"), "Fatal", "{language}");
        let message = format!("{message:?}");
        assert!(
            message.contains("GET https://elsewhere.example/x was not granted")
                && message.contains("modules grant MODULE --with-http "),
            "{language}: {message}"
        );
        let report = call(&registry, &tool, json!({"url": "nowhere"})).await;
        let Err(CallError::Tool { class, .. }) = &report.result else {
            panic!("{tool} gave {:?}", report.result);
        };
        assert_eq!(format!("{class:?}"), "Correctable", "{language}");
    }
}

/// What a module may write about promises without `fetch`, `async` and the rest.
const PROMISES: &str = r#"
console.log("nobody reads what is printed during the build");
const list = { name: "t", description: "d", inputSchema: '{"type":"object"}', annotations: {}, examples: [] };
export const tools = {
  listTools: () => [list],
  async call(invocation) {
    const { how } = JSON.parse(invocation.arguments);
    console.warn("called", { how }, [1]);
    if (how === "never") await new Promise(() => {});
    if (how === "caught") return await fetch("https://elsewhere.example").catch((error) => value(`${error.name}: ${error.message}`));
    const found = [];
    for await (const item of numbers()) found.push(item);
    found.push(await Promise.all([3, Promise.resolve(4)]));
    found.push((await Promise.allSettled([Promise.reject(5), 6])).map(({ status }) => status));
    found.push(await Promise.any([Promise.reject(7), 8]), await Promise.race([new Promise(() => {}), 9]));
    try {
      await Promise.reject(new RangeError("ten"));
    } catch (error) {
      found.push(`${error}`);
    }
    const order = ["a"];
    queueMicrotask(() => order.push("c"));
    order.push("b");
    await null;
    found.push(order.join(""));
    return value(found);
  },
};
async function* numbers() {
  yield 1;
  yield await 2;
}
const value = (found) => ({ tag: "value", val: JSON.stringify(found) });
"#;

/// The end of the build; `None` where JavaScript cannot be built here.
fn built(host: &Host) -> Option<Finished> {
    for program in ["node", "npm"] {
        if !has_program(program, "no JavaScript is built") {
            return None;
        }
    }
    answered("build", || host.run(&["build", "waits"]))
}

/// Built and called as an author does.
#[test]
fn promises_and_console_work_in_a_call() {
    let host = Host::new();
    host.write(
        "modules/waits/module.toml",
        "[build]\nlanguage = \"javascript\"\n",
    );
    host.write("modules/waits/module.js", PROMISES);
    let Some(built) = built(&host) else {
        return;
    };
    assert_eq!(built.code, Some(0), "{built:?}");
    let called = |how: &str| {
        host.run(&[
            "modules",
            "call",
            "waits.t",
            &json!({"how": how}).to_string(),
        ])
    };
    let all = called("all");
    let found: Value = serde_json::from_str(&all.stdout).expect("JSON");
    let settled = json!(["rejected", "fulfilled"]);
    assert_eq!(
        found,
        json!([1, 2, [3, 4], settled, 8, 9, "RangeError: ten", "abc"]),
        "{all:?}"
    );
    assert!(
        all.stderr.contains(r#"called {"how":"all"} [1]"#),
        "{all:?}"
    );
    assert!(!all.stderr.contains("nobody reads"), "{all:?}");
    let caught = called("caught");
    assert!(
        caught
            .stdout
            .contains("TypeError: GET https://elsewhere.example was not granted"),
        "{caught:?}"
    );
    let never = called("never");
    assert!(
        never
            .stderr
            .contains("waits for a promise that nothing settles"),
        "{never:?}"
    );
}

/// A world of its own has `fetch` without a word of it, and cannot import what `fetch` uses.
#[test]
fn a_world_of_its_own_has_fetch_and_no_import_of_it() {
    let host = Host::new();
    host.write(
        "modules/waits/module.toml",
        "[build]\nlanguage = \"javascript\"\nworld = \"w\"\n",
    );
    host.write(
        "modules/waits/module.js",
        "export function size(url) { return fetch(url).then((answer) => answer.text()).then((text) => text.length); }",
    );
    let world = |import: &str| {
        format!(
            "package a:b;\nworld w {{ {import} export size: func(url: string) -> result<u32, string>; }}"
        )
    };
    host.write("modules/waits/wit/w.wit", world(""));
    let Some(good) = built(&host) else {
        return;
    };
    assert_eq!(good.code, Some(0), "{good:?}");
    let called = host.run(&[
        "modules",
        "call",
        "waits.size",
        r#"{"url":"https://elsewhere.example"}"#,
    ]);
    assert!(
        called
            .stderr
            .contains("GET https://elsewhere.example was not granted"),
        "{called:?}"
    );
    let packages = repository().join("tests/components/fetch/wit/deps");
    for name in ["clocks", "http", "io"] {
        let text =
            std::fs::read_to_string(packages.join(format!("{name}.wit"))).expect("a package");
        host.write(&format!("modules/waits/wit/deps/{name}.wit"), text);
    }
    host.write(
        "modules/waits/wit/w.wit",
        world("import wasi:http/outgoing-handler@0.2.12;"),
    );
    let Some(refused) = built(&host) else {
        return;
    };
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("leave `wasi:http`"), "{refused:?}");
}
