//! Templates: what `new-module` makes builds, and is callable from the folder without further steps.

use serde_json::{Value, json};
use std::process::Command;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;

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
    let made = host.run(&["new-module", "words", "--lang", language, "--build"]);
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

/// A wrong type ends the build and names its place: what the compiler knows, nobody has to find out
/// by calling.
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
    let built = host.run(&["build", "modules/words"]);
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("module.ts(") && built.stderr.contains("'tpo'"),
        "{built:?}"
    );
}

/// The template of a shield, at its post: what it is told not to let through goes no further.
#[test]
fn a_shield_in_rust() {
    if Command::new("cargo").arg("--version").output().is_err() {
        eprintln!("SKIPPED: cargo is not installed, so the template of a shield is not built");
        return;
    }
    let host = Host::new();
    let made = host.run(&[
        "new-module",
        "words",
        "--lang",
        "rust",
        "--shield",
        "--build",
    ]);
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
