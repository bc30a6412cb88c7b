//! Templates: what `new-module` makes builds, and its README can be followed as it is printed.

mod changes;
mod languages;

use serde_json::{Value, json};
use std::process::{Command, Stdio};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, binary, finish};
use toolhold_needs::{Need, has_program, leave_out};

/// What a build advises where a step failed that only fetches: nothing of the template was read yet.
const FETCHING: [&str; 3] = [
    "reaches its registry",
    "reaches its package index",
    "check the network",
];
/// Messages of cargo, rustup, pip and npm when a server does not answer or fails. They differ from those about
/// something that does not exist.
const UNREACHED: [&str; 34] = [
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
    "connection timed out",
    "connect timed out",
    "read timed out",
    "operation timed out",
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

/// Does what may need a registry, and does it once more where one did not answer. None where it did not then either.
pub fn answered(what: &str, run: impl Fn() -> Finished) -> Option<Finished> {
    let first = run();
    if !is_unreached(&first) {
        return Some(first);
    }
    let second = run();
    if !is_unreached(&second) {
        return Some(second);
    }
    leave_out(
        Need::Registry,
        format_args!("{what}: a registry does not answer: {}", second.stderr),
    );
    None
}

/// The README of `modules/words`.
fn readme(host: &Host) -> String {
    std::fs::read_to_string(host.path().join("modules/words/README.md")).expect("a README")
}

/// Runs each command of the module's README as it is printed, in the folder that holds `modules/`. None where a
/// registry does not answer.
fn followed(host: &Host) -> Option<Vec<(String, Finished)>> {
    let folder = binary();
    let folder = folder.parent().expect("a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).expect("a path");
    let readme = readme(host);
    let lines = readme.lines().filter_map(|line| line.strip_prefix("    "));
    let mut done = Vec::new();
    for line in lines.filter(|line| line.starts_with("toolhold ")) {
        let ran = answered(line, || {
            let as_printed = host.command(&[]);
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).env_clear();
            shell.current_dir(host.path()).stdin(Stdio::null());
            for (name, value) in as_printed.get_envs() {
                shell.env(name, value.expect("a value"));
            }
            finish(shell.env("PATH", &path).output().expect("a shell"))
        })?;
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        done.push((line.to_owned(), ran));
    }
    Some(done)
}

/// The template in `language`, of which the programs that it needs are there. None where one is not.
fn template(language: &str, needs: &[&str]) -> Option<Host> {
    for program in needs {
        if !has_program(program, &format!("the {language} template is not built")) {
            return None;
        }
    }
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", language]);
    assert_eq!(made.code, Some(0), "{made:?}");
    Some(host)
}

/// None where a registry does not answer.
fn readme_is_followed(host: &Host, language: &str) -> Option<()> {
    let done = followed(host)?;
    let [(build, _), (test, tested), (call, called)] = done.as_slice() else {
        panic!("three commands: {done:?}");
    };
    assert!(build.starts_with("toolhold build words"), "{build}");
    assert!(test.starts_with("toolhold modules test words"), "{test}");
    assert!(
        tested.stdout.contains("✓ example      word_frequency") && !tested.stdout.contains('✗'),
        "{}",
        tested.stdout
    );
    let output: Value = serde_json::from_str(&called.stdout).expect("JSON");
    assert_eq!(output["distinct"], 4, "{call}: {output}");
    let arguments = r#"{"text":"to be or not to be, to","top":1}"#;
    let called = host.run(&["modules", "call", "words.word_frequency", arguments]);
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
    Some(())
}

#[test]
fn the_readme_is_followed_in_rust() {
    if let Some(host) = template("rust", &["cargo"]) {
        readme_is_followed(&host, "rust");
    }
}

/// A wrong type ends the build and names its place, before any call.
#[test]
fn typescript_is_type_checked() {
    if !has_program("npm", "no TypeScript is built") {
        return;
    }
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", "ts"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let source = host.path().join("modules/words/module.ts");
    let text = std::fs::read_to_string(&source).expect("the template");
    std::fs::write(&source, text.replace("top = 10", "tpo = 10")).expect("written");
    let Some(built) = answered("build", || host.run(&["build", "words"])) else {
        return;
    };
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("module.ts(") && built.stderr.contains("'tpo'"),
        "{built:?}"
    );
}

/// Replaces each of these texts of a source of `modules/words`, and builds it. None where a registry does not answer.
fn edited(host: &Host, source: &str, edits: &[(&str, &str)]) -> Option<Finished> {
    let path = host.path().join("modules/words").join(source);
    let mut text = std::fs::read_to_string(&path).expect("the template");
    for (from, to) in edits {
        assert!(text.contains(from), "{source} has no {from:?}");
        text = text.replacen(from, to, 1);
    }
    std::fs::write(&path, text).expect("written");
    answered("build", || host.run(&["build", "words"]))
}

/// The template of a shield, in use: it blocks the configured text.
#[test]
fn the_readme_of_a_shield_is_followed_in_rust() {
    if !has_program("cargo", "the template of a shield is not built") {
        return;
    }
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", "rust", "--shield"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    // The configuration as the README prints it.
    let readme = readme(&host);
    let table = readme
        .lines()
        .skip_while(|line| *line != "    [shields.words]")
        .map_while(|line| line.strip_prefix("    "));
    let table: Vec<_> = table.collect();
    assert_eq!(table.len(), 4, "{readme}");
    let (settings, shield) = table.split_last().expect("lines");
    assert!(settings.starts_with("settings = "), "{settings}");
    let shield = format!("{}\n", shield.join("\n"));
    host.write("toolhold.toml", format!("{shield}{settings}\n"));
    let Some(done) = followed(&host) else {
        return;
    };
    let [_, (_, policy)] = done.as_slice() else {
        panic!("two commands: {done:?}");
    };
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

/// `new-module --build` makes and builds in one step.
#[test]
fn a_template_is_built_at_once() {
    if !has_program("python3", "the c template is not built") {
        return;
    }
    let host = Host::new();
    let build = || {
        let _ = std::fs::remove_dir_all(host.path().join("modules/words"));
        host.run(&["new-module", "words", "--lang", "c", "--build"])
    };
    let Some(made) = answered("new-module --build", build) else {
        return;
    };
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(host.path().join("modules/words/words.wasm").exists());
}

/// The component has no debug information: the build kept it for where its author works.
#[test]
fn a_crash_in_c_names_its_lines() {
    if !has_program("python3", "no module in C is built") {
        return;
    }
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", "c"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let source = host.path().join("modules/words/module.c");
    let before = "  char *copy = json_allocate(NULL, text.length + 1);";
    let written = std::fs::read_to_string(&source).expect("the template has it");
    let (head, tail) = written.split_once(before).expect("a line of it");
    let line = head.lines().count() + 1;
    let crash = "  if (text.length == 0) __builtin_trap();";
    std::fs::write(&source, format!("{head}{crash}\n{before}{tail}")).expect("it is ours");
    let Some(built) = answered("build", || host.run(&["build", "words"])) else {
        return;
    };
    assert_eq!(built.code, Some(0), "{built:?}");
    let call = ["modules", "call", "words.word_frequency", r#"{"text":""}"#];
    let crashed = host.run(&call);
    assert_eq!(crashed.code, Some(5), "{crashed:?}");
    let told = format!("at word_frequency (module.c:{line}:");
    assert!(crashed.stderr.contains(&told), "{told}: {crashed:?}");
    assert!(
        crashed.stderr.contains("(toolhold/toolhold.c:"),
        "{crashed:?}"
    );
}

/// A deadline, a package that does not exist and a message of a compiler are faults, and the test fails.
#[test]
fn only_a_registry_that_does_not_answer_leaves_a_template_out() {
    let advice = "check that npm reaches its registry (network, proxy)";
    for (code, told, is_left_out) in [
        (1, format!("npm error code ETIMEDOUT\n{advice}"), true),
        (
            1,
            format!("Could not resolve host: a.example\n{advice}"),
            true,
        ),
        (1, format!("the build timed out\n{advice}"), false),
        (1, format!("npm error code E404\n{advice}"), false),
        (101, format!("npm error code ETIMEDOUT\n{advice}"), false),
        (
            1,
            "test a_connection: connection timed out".to_owned(),
            false,
        ),
    ] {
        let done = Finished {
            code: Some(code),
            stdout: String::new(),
            stderr: told,
        };
        assert_eq!(is_unreached(&done), is_left_out, "{done:?}");
    }
}

/// A folder in the way comes first; a name that is nowhere is said as it was written.
#[test]
fn a_module_is_found_by_its_name_when_it_is_built() {
    let host = Host::new();
    let recipe = |language: &str| format!("[build]\nlanguage = {language:?}\n");
    host.write("modules/words/module.toml", recipe("cobol"));
    let built = host.run(&["build", "words"]);
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built.stderr.contains("modules/words/module.toml") && built.stderr.contains("`cobol`"),
        "{built:?}"
    );
    host.write("words/module.toml", recipe("fortran"));
    let built = host.run(&["build", "words"]);
    assert!(built.stderr.contains("`fortran`"), "{built:?}");
    let built = host.run(&["build", "wrds"]);
    assert_eq!(built.code, Some(1), "{built:?}");
    assert!(
        built
            .stderr
            .contains("neither wrds nor modules/wrds has a module.toml"),
        "{built:?}"
    );
}
