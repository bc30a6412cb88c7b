//! The page of `toolhold serve`: what a browser is given, and what a person does with it.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::foreign;
use support::host::Host;
use support::sandbox::{component, repository};
use support::server::Server;
use support::transcript::{answers, calls, told};
use toolhold_needs::{Need, leave_out};

const PLAYWRIGHT: &str = "playwright-core@1.65.1";
const CAREFUL: &str = "[agents.careful]\ndecisions = { always = [\"calculator\"] }\n";

/// What a model could write to become markup.
const MARKUP: &str = "It is 4 <script>alert(1)</script><img src=x onerror=alert(1)><b>.";

fn host() -> Host {
    let host = Host::new();
    host.ship("calculator").write("toolhold.toml", CAREFUL);
    host
}

fn serve(host: &Host, endpoint: &Endpoint) -> Server {
    let url = endpoint.base_url();
    Server::start(host, &["--base-url", &url, "--model", "m"])
}

fn scripted(replies: impl IntoIterator<Item = Reply>) -> Endpoint {
    Endpoint::start(Scenario::new(replies))
}

/// A component whose one tool returns `number`.
fn returns(number: u32) -> Vec<u8> {
    component(&format!(
        r#"(component
          (core module $m (func (export "f") (result i32) (i32.const {number})))
          (core instance $i (instantiate $m))
          (func (export "answer") (result u32) (canon lift (core func $i "f"))))"#
    ))
}

/// A browser, and where a script finds what drives it.
fn browser() -> Option<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut places = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        // Some systems have one that only tells how to install it.
        .filter(|place| {
            Command::new(place)
                .arg("--version")
                .output()
                .is_ok_and(|it| it.status.success())
        });
    let Some(chromium) = places.next() else {
        leave_out(
            Need::Chromium,
            "there is no Chromium to click through the page with",
        );
        return None;
    };
    let folder = PLAYWRIGHT.replace('@', "-");
    let driver = foreign::node(&folder, &[PLAYWRIGHT]);
    if driver.is_none() {
        leave_out(
            Need::Chromium,
            "Playwright, which drives Chromium, could not be installed",
        );
    }
    Some((chromium, driver?))
}

/// Clicks through a case of `click.mjs`.
fn click(server: &Server, case: &str, arguments: &[&str]) -> bool {
    let Some((chromium, folder)) = browser() else {
        return false;
    };
    let done = Command::new("node")
        .arg(repository().join("tests/fixtures/page/click.mjs"))
        .arg(server.address())
        .arg(chromium)
        .arg(case)
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{case}: {errors}\n{}", server.said());
    true
}

/// Every file that another names, from the first on, comes with its type and under the policy.
#[test]
fn every_file_comes_with_its_type_and_a_policy() {
    let (host, endpoint) = (host(), scripted([]));
    // There is no key before the page asks for one.
    host.write("toolhold.toml", "[serve]\nkeys = \"always\"\n");
    let server = serve(&host, &endpoint);
    let mut seen = BTreeSet::new();
    let mut next = vec!["/".to_owned(), "/docs".to_owned()];
    while let Some(path) = next.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let file = server.get(&path);
        assert_eq!(file.status, 200, "{path}");
        let header = |name: &str| file.headers[name].to_str().unwrap().to_owned();
        let kind = match path.rsplit_once('.') {
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!(header("content-type"), kind, "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let policy = header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        let known = [("if-none-match", header("etag"))];
        let known = known
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let again = server.ask(reqwest::Method::GET, &path, None, &known);
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path}");
        for quoted in file.text.split('"') {
            if quoted.starts_with("/page/") {
                next.push(quoted.to_owned());
            } else if let Some(module) = quoted.strip_prefix("./") {
                next.push(format!("/page/{module}"));
            }
        }
    }
    assert!(seen.len() > 10, "{seen:?}");
    for path in ["/page/nothing.js", "/page/..%2Fmod.rs", "/page/"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/runs").status, 401);
}

/// Its modules know when they need a screen: the others are tried without.
#[test]
fn scripts_of_the_page_compute_correctly() {
    let folder = tempfile::tempdir().unwrap();
    let sources = repository().join("host/server/src/page");
    for entry in std::fs::read_dir(sources).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, folder.path().join(from.file_name().unwrap())).unwrap();
    }
    std::fs::write(folder.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
    let done = Command::new("node")
        .arg(repository().join("tests/fixtures/page/pure.mjs"))
        .current_dir(folder.path())
        .output();
    let Ok(done) = done else {
        leave_out(
            Need::Program,
            "there is no Node to run the page's modules with",
        );
        return;
    };
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
}

const GREETING: &str = r#"{
  "description": "Greets somebody.",
  "instructions": "You greet.",
  "context": [
    {"type": "input", "schema": {"type": "object", "required": ["name", "times"], "additionalProperties": false, "properties": {
      "name": {"type": "string", "minLength": 1}, "times": {"type": "integer", "minimum": 1},
      "tone": {"enum": ["glad", "sober"]}, "polite": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}}}}},
    {"role": "user", "content": "Greet."}
  ],
  "schema": {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]},
  "max_steps": 2
}"#;

fn with_requests() -> Host {
    let host = host();
    host.write("requests/greeting.json", GREETING)
        .write("requests/old/broken.json", "{");
    host
}

#[test]
fn saved_requests_are_listed_and_run() {
    let host = with_requests();
    let endpoint = scripted([answers(json!({"said": "Hello, Ada!"}))]);
    let server = serve(&host, &endpoint);
    let listed = server.get("/v1/requests").good();
    let [greeting, broken] = listed["requests"].as_array().unwrap().as_slice() else {
        panic!("{listed}");
    };
    assert_eq!(greeting["name"], "greeting");
    assert_eq!(greeting["description"], "Greets somebody.");
    assert_eq!(greeting["input"]["required"], json!(["name", "times"]));
    assert_eq!(greeting["output"]["required"], json!(["said"]));
    assert_eq!(broken["name"], "./old/broken.json");
    assert!(broken["error"].as_str().unwrap().contains("not JSON"));

    let input = json!({"name": "Ada", "times": 1});
    let answer = server.post("/v1/requests/greeting", &json!({"input": input}));
    assert_eq!(answer.good()["output"], json!({"said": "Hello, Ada!"}));
    let prompt = told(&endpoint, 0);
    assert!(
        prompt.contains("You greet.") && prompt.contains("Ada"),
        "{prompt}"
    );
    assert!(
        !prompt.contains("calculator"),
        "only its own tools: {prompt}"
    );

    for (name, body, status, said) in [
        ("greeting", json!({}), 400, "needs one that satisfies"),
        (
            "greeting",
            json!({"input": {"name": "Ada"}}),
            400,
            "\"times\" is a required property",
        ),
        ("greeting", json!({"inptu": 1}), 400, "unknown field"),
        ("greeting", json!({"agent": "no"}), 404, "no agent \"no\""),
        ("nothing", json!({}), 404, "no Request \"nothing\""),
        (".%2Fold%2Fbroken.json", json!({}), 400, "not JSON"),
    ] {
        let refused = server.post(&format!("/v1/requests/{name}"), &body);
        assert_eq!(refused.status, status, "{name} {body}: {refused:?}");
        assert!(
            refused.text.contains(&said.replace('"', "\\\"")),
            "{refused:?}"
        );
    }
    assert_eq!(endpoint.requests().len(), 1);
}

#[test]
fn a_run_is_seen_as_it_was() {
    let host = host();
    // The second reads what the first one writes.
    let plan = calls([
        (
            "calculator.evaluate",
            json!({"expression": "3*14", "_outputPath": "†sum"}),
        ),
        ("calculator.evaluate", json!({"expression": "†sum.value"})),
    ]);
    let endpoint =
        Endpoint::start(Scenario::new([plan, answers(MARKUP)]).in_order(ReplyOrder::Repeat));
    let server = serve(&host, &endpoint);
    if click(&server, "run", &[]) {
        let runs = server.get("/v1/runs").good();
        assert_eq!(
            runs["runs"].as_array().map(Vec::len),
            Some(2),
            "one a scheme"
        );
    }
}

/// What was approved on the page is what ran, with the arguments that were written there.
#[test]
fn a_call_is_decided_on_the_page() {
    let host = host();
    let asks =
        |expression: &str| calls([("calculator.evaluate", json!({"expression": expression}))]);
    let endpoint = scripted([asks("2+2"), asks("5+5"), answers("done")]);
    let server = serve(&host, &endpoint);
    if !click(&server, "approval", &[]) {
        return;
    }
    let runs = server.get("/v1/runs").good();
    let run = runs["runs"][0]["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/runs/{run}")).good();
    let call = &shown["answer"]["steps"][0]["calls"][0];
    assert_eq!(call["arguments"], json!({"expression": "3+3"}), "{shown}");
    assert!(call["result"].to_string().contains('6'), "{shown}");
    assert!(
        told(&endpoint, 2).contains("not five"),
        "the model learns why"
    );
}

/// A module that changed since it was approved is looked at, approved, and runs.
#[test]
fn a_module_is_approved_on_the_page() {
    let (host, endpoint) = (host(), scripted([]));
    host.write("modules/late.wasm", returns(1));
    assert_eq!(host.run(&["modules", "list"]).code, Some(0));
    host.write("modules/late.wasm", returns(2));
    let server = serve(&host, &endpoint);
    let standing = || server.get("/v1/modules/late").good()["standing"]["state"].clone();
    assert_eq!(standing(), "pending");
    if click(&server, "module", &[]) {
        assert_eq!(standing(), "approved");
    }
}

#[test]
fn a_key_is_asked_for_and_used() {
    let host = host();
    let endpoint = scripted([answers("yes")]);
    let made = host.run(&["keys", "create", "ann"]);
    let server = serve(&host, &endpoint);
    click(&server, "key", &[made.stdout.trim()]);
}

/// Every operation of the description, with what it takes and an example of it.
#[test]
fn the_api_is_described_on_a_page() {
    let (host, endpoint) = (host(), scripted([]));
    let server = serve(&host, &endpoint);
    click(&server, "docs", &[]);
}

#[test]
fn a_conversation_is_had_and_stopped() {
    let host = host();
    let endpoint = scripted([
        calls([("calculator.evaluate", json!({"expression": "2+2"}))]),
        answers("It is 4."),
        Reply {
            between_ms: 20,
            ..answers(Value::from("on and on and ".repeat(2_000)))
        },
    ]);
    let server = serve(&host, &endpoint);
    click(&server, "chat", &[]);
}

#[test]
fn a_form_is_made_of_a_saved_request() {
    let host = with_requests();
    let endpoint = scripted([answers(json!({"said": "Hello, Ada!"}))]);
    let server = serve(&host, &endpoint);
    if click(&server, "request", &[]) {
        let prompt = told(&endpoint, 0);
        assert!(
            prompt.contains("glad") && prompt.contains("first"),
            "{prompt}"
        );
    }
}

/// Documents are added from files and as text, found, and deleted after a question.
#[test]
fn documents_are_added_found_and_deleted_on_the_page() {
    let (host, endpoint) = (host(), scripted([]));
    host.write(
        "files/fees.md",
        "# Fees\n\n## Cards\n\nA lost card costs 20 euro.\n",
    )
    .write("files/paper.pdf", "%PDF-1.7");
    let server = serve(&host, &endpoint);
    let folder = host.path().join("files");
    click(&server, "knowledge", &[folder.to_str().unwrap()]);
}
