//! Outbound HTTP of a guest (docs/security.md, promises 8 and 9), with a component that was written for any
//! host of wasi:http: what a grant gives, how a request that goes out looks, what is counted. What an
//! attacker tries is in `host/hostile`, rows 13 to 16; its server is the one of these tests.

mod bounds;
mod reach;
mod redirects;
mod secrets;

use std::sync::Arc;

use serde_json::{Value, json};
use support::sandbox::{call, registry, repository};
use toolhold_hostile::web::{Answers, AttackServer};
use toolhold_policy::{
    CallReport, Grant, HttpGrant, Output, Reflect, SecretGrant, SecretPlace, SecretSlot,
};
use toolhold_sandbox::{ModulePolicy, Policy, Registry, Resolve};

/// Printable ASCII with what every encoding has to escape.
const CANARY: &str = "c4nary/+\"key\"&<42>=?";

/// What the fetcher is given.
struct FetcherSetup {
    grants: Vec<HttpGrant>,
    secrets: Vec<SecretGrant>,
    policy: Policy,
}

async fn start() -> AttackServer {
    AttackServer::start().await.expect("a free port")
}

fn grant(fields: Value) -> HttpGrant {
    serde_json::from_value(fields).expect("a grant")
}

/// Everything at `web`, which is on this machine.
fn local(web: &AttackServer) -> HttpGrant {
    web.granted().expect("a grant")
}

fn given(grants: impl IntoIterator<Item = HttpGrant>) -> FetcherSetup {
    FetcherSetup {
        grants: grants.into_iter().collect(),
        secrets: Vec::new(),
        policy: Policy::default(),
    }
}

impl FetcherSetup {
    fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.policy.resolver = resolver;
        self
    }

    fn limits(mut self, change: impl FnOnce(&mut toolhold_policy::Limits)) -> Self {
        change(&mut self.policy.limits);
        self
    }

    fn secret(self, web: &AttackServer, place: SecretPlace) -> Self {
        self.reflected(web, place, Reflect::Redact)
    }

    /// A secret with which a response is refused.
    fn refused_secret(self, web: &AttackServer, place: SecretPlace) -> Self {
        self.reflected(web, place, Reflect::Deny)
    }

    fn reflected(mut self, web: &AttackServer, place: SecretPlace, reflect: Reflect) -> Self {
        let slot = SecretSlot {
            name: "canary".into(),
            origin: web.origin().parse().expect("an origin"),
            place,
        };
        let secret = SecretGrant::new(slot, CANARY.into()).expect("a secret");
        self.secrets.push(secret.reflecting(reflect));
        self
    }

    async fn fetcher(mut self) -> Registry {
        let module = ModulePolicy {
            grant: Grant {
                http: self.grants,
                secrets: self.secrets,
                ..Grant::default()
            },
            ..ModulePolicy::default()
        };
        self.policy.modules.insert("fetch".into(), module);
        let registry = registry(self.policy);
        let component = repository().join("tests/components/fetch/fetch.wasm");
        let bytes = std::fs::read(component).expect("the fetcher is there");
        registry
            .load_bytes("fetch", bytes)
            .await
            .expect("the fetcher loads");
        registry
    }
}

async fn request(
    registry: &Registry,
    method: &str,
    url: &str,
    headers: Value,
    body: Option<&str>,
) -> CallReport {
    let arguments = json!({"method": method, "url": url, "headers": headers, "body": body});
    call(registry, "fetch.fetch", arguments).await
}

async fn get(registry: &Registry, url: &str) -> CallReport {
    request(registry, "GET", url, json!([]), None).await
}

/// The response of a call that must have worked.
fn response(report: CallReport) -> Value {
    match report.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{other:?}"),
    }
}

/// The text of the error of a call that must have failed.
fn error(report: &CallReport) -> String {
    report.result.as_ref().expect_err("must fail").to_string()
}

fn text(response: &Value) -> &str {
    response["text"].as_str().expect("a text")
}

#[tokio::test]
async fn granted_requests_work() {
    let web = start().await;
    let registry = given([local(&web)]).fetcher().await;
    let seen = response(
        request(
            &registry,
            "POST",
            &web.url("/echo?q=1"),
            json!([["x-mine", "yes"]]),
            Some("a body"),
        )
        .await,
    );
    assert_eq!(seen["status"], 200);
    let text = text(&seen);
    assert!(text.starts_with("POST /echo?q=1 HTTP/1.1\r\n"), "{text}");
    for expected in [
        format!("host: 127.0.0.1:{}", web.port()),
        "x-mine: yes".into(),
        "a body".into(),
    ] {
        assert!(text.contains(&expected), "{text}");
    }
    let headers = seen["headers"].as_array().expect("headers");
    assert!(
        headers.contains(&json!(["content-type", "text/plain"])),
        "{headers:?}"
    );

    assert_eq!(
        response(request(&registry, "HEAD", &web.url("/"), json!([]), None).await)["size"],
        0
    );
    // One module's calls share connections.
    for _ in 0..5 {
        response(get(&registry, &web.url("/")).await);
    }
    assert_eq!(web.accepted(), 1);
}

#[tokio::test]
async fn transport_failures_have_their_own_codes() {
    let web = start().await;
    let secure =
        grant(json!({"origin": format!("https://127.0.0.1:{}", web.port()), "private": true}));
    let gone = start().await;
    let closed = local(&gone);
    let closed_url = gone.url("/");
    drop(gone);
    let nowhere = grant(json!({"origin": "http://nowhere.example.com"}));
    let registry = given([local(&web), secure, closed, nowhere])
        .resolver(Answers::new(&[&[]]))
        .fetcher()
        .await;
    for (url, code) in [
        (format!("https://127.0.0.1:{}/", web.port()), "Tls"),
        (closed_url, "ConnectionRefused"),
        ("http://nowhere.example.com/".into(), "DnsError"),
        (web.url("/cut"), "terminated"),
    ] {
        let report = get(&registry, &url).await;
        assert!(
            error(&report).to_lowercase().contains(&code.to_lowercase()),
            "{url}: {report:?}"
        );
    }
}
