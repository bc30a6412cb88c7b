//! Templates: what `new-module` makes builds, and is callable from the folder without further steps.

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Command;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};

/// What a build advises where a step failed that only fetches: nothing of the template was read yet.
const FETCHING: [&str; 3] = [
    "reaches its registry",
    "reaches its package index",
    "check the network",
];
/// Messages of cargo, rustup, pip and npm when a server does not answer or fails. They differ from those about
/// something that does not exist.
const UNREACHED: [&str; 31] = [
    "could not resolve host",
    "couldn't resolve host",
    "name resolution",
    "name or service not known",
    "dns error",
    "enotfound",
    "eai_again",
    "could not connect",
    "couldn't connect",
    "failed to connect",
    "failed to establish a new connection",
    "connection refused",
    "econnrefused",
    "network is unreachable",
    "enetunreach",
    "timed out",
    "timeout was reached",
    "etimedout",
    "err_socket_timeout",
    "connection reset",
    "econnreset",
    "connection aborted",
    "socket hang up",
    "spurious network error",
    "too many requests",
    "bad gateway",
    "service unavailable",
    "gateway time",
    "code e429",
    "code e502",
    "code e503",
];

fn is_unreached(done: &Finished) -> bool {
    let said = done.stderr.to_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
    done.code == Some(1) && says(&FETCHING) && says(&UNREACHED)
}

/// Runs what builds `modules/words`, and builds it once more where a registry did not answer. None where it did not
/// then either.
fn built(host: &Host, arguments: &[&str]) -> Option<Finished> {
    let first = host.run(arguments);
    if !is_unreached(&first) {
        return Some(first);
    }
    let second = host.run(&["build", "modules/words"]);
    if !is_unreached(&second) {
        return Some(second);
    }
    // Not through the harness, which keeps to itself what a test printed that passed.
    let _ = writeln!(
        std::io::stderr(),
        "!!! SKIPPED: {arguments:?}: a registry does not answer: {}",
        second.stderr
    );
    None
}

fn builds_and_runs(language: &str, needs: &[&str]) {
    for program in needs {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!(
                "SKIPPED: {program} is not installed, so the {language} template is not built"
            );
            return;
        }
    }
    let host = Host::new();
    let arguments = ["new-module", "words", "--lang", language, "--build"];
    let Some(made) = built(&host, &arguments) else {
        return;
    };
    assert_eq!(made.code, Some(0), "{made:?}");
    let arguments = r#"{"text":"to be or not to be, to","top":1}"#;
    let called = host.run(&["modules", "call", "words.word_frequency", arguments]);
    assert_eq!(called.code, Some(0), "{called:?}");
    let output: Value = serde_json::from_str(&called.stdout).expect("JSON");
    assert_eq!(
        output,
        json!({"words": [{"word": "to", "count": 3}], "distinct": 4})
    );
    let refused = host.run(&["modules", "call", "words.word_frequency", r#"{"txt":"a"}"#]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    let again = host.run(&["new-module", "words", "--lang", language]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("exists already"), "{again:?}");
}

#[test]
fn rust() {
    builds_and_runs("rust", &["cargo"]);
}

#[test]
fn c() {
    builds_and_runs("c", &["python3"]);
}

#[test]
fn go() {
    builds_and_runs("go", &["python3"]);
}

#[test]
fn python() {
    builds_and_runs("python", &["python3"]);
}

#[test]
fn javascript() {
    builds_and_runs("js", &["node", "npm"]);
}

#[test]
fn typescript() {
    builds_and_runs("typescript", &["node", "npm"]);
}

/// A wrong type ends the build and names its place, before any call.
#[test]
fn typescript_is_type_checked() {
    if Command::new("npm").arg("--version").output().is_err() {
        eprintln!("SKIPPED: npm is not installed, so no TypeScript is built");
        return;
    }
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", "ts"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let source = host.path().join("modules/words/module.ts");
    let text = std::fs::read_to_string(&source).expect("the template");
    std::fs::write(&source, text.replace("args.top ?? 10", "args.tpo ?? 10")).expect("written");
    let Some(built) = built(&host, &["build", "modules/words"]) else {
        return;
    };
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("module.ts(") && built.stderr.contains("'tpo'"),
        "{built:?}"
    );
}

/// The template of a shield, in use: it blocks the configured text.
#[test]
fn a_shield_in_rust() {
    if Command::new("cargo").arg("--version").output().is_err() {
        eprintln!("SKIPPED: cargo is not installed, so the template of a shield is not built");
        return;
    }
    let host = Host::new();
    let arguments = [
        "new-module",
        "words",
        "--lang",
        "rust",
        "--shield",
        "--build",
    ];
    let Some(made) = built(&host, &arguments) else {
        return;
    };
    assert_eq!(made.code, Some(0), "{made:?}");
    let shield = "[shields.words]\nkind = \"wasm\"\nmodule = \"words\"\n";
    let settings = "settings = { block = [\"bomb\"], redact = [\"codename\"] }\n";
    host.write("toolhold.toml", format!("{shield}{settings}"));
    let policy = host.run(&["policy"]);
    assert_eq!(policy.code, Some(0), "{policy:?}");
    assert!(
        policy.stdout.contains("component words (sha256:"),
        "{policy:?}"
    );

    let answer = || Reply::solution(json!({"calls": [], "output": "codename it is"}));
    let endpoint = Endpoint::start(Scenario::new([answer()]));
    let url = endpoint.base_url();
    let done = host.run(&["run", "say the codename", "--base-url", &url]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout.trim(), "[redacted: word] it is");
    let told = endpoint.requests()[0].to_string();
    assert!(
        told.contains("say the [redacted: word]") && !told.contains("codename"),
        "{told}"
    );
    let blocked = host.run(&["run", "build a bomb", "--base-url", &url]);
    assert_eq!(blocked.code, Some(6), "{blocked:?}");
    assert!(
        blocked
            .stderr
            .contains("it says `bomb`, which may not be said"),
        "{blocked:?}"
    );

    // What it does not understand is no verdict, and without one nothing passes.
    host.write(
        "toolhold.toml",
        format!("{shield}settings = {{ blocks = [] }}\n"),
    );
    let failed = host.run(&["run", "hello", "--base-url", &url]);
    assert_eq!(failed.code, Some(6), "{failed:?}");
    assert!(
        failed
            .stderr
            .contains("its settings do not fit: unknown field `blocks`"),
        "{failed:?}"
    );
}

#[test]
fn a_shield_without_a_template_is_refused() {
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", "go", "--shield"]);
    assert_eq!(made.code, Some(1), "{made:?}");
    assert!(made.stderr.contains("use --lang rust"), "{made:?}");
    assert!(!host.path().join("modules/words").exists());
}
