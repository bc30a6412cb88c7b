//! Commands that are printed and cannot be run here are understood: `toolhold` knows their subcommands and flags, and
//! what they have cargo build exists.

use super::markdown::{Mark, blocks};
use super::{documents, read};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::host::{Host, binary};
use support::sandbox::repository;
use tempfile::TempDir;

/// Has the binary read its arguments up to a request for help, which does nothing: a flag or a subcommand that it does
/// not know is an error before.
const TOOLHOLD: &str = r#"#!/bin/sh
if said=$("$BINARY" "$@" --help 2>&1); then echo read >> "$CALLS"; else echo "toolhold $*: $said" >> "$FAULTS"; fi
"#;
/// Writes down what it was called with.
const CARGO: &str = r#"#!/bin/sh
echo "$*" >> "$CARGO_CALLS"
"#;

/// The only folder of the path, so that nothing else of a block runs: `rm`, `docker` and `curl` are not found.
fn programs() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("toolhold", TOOLHOLD), ("cargo", CARGO)] {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    folder
}

/// How often a block calls `toolhold`: the word where a command begins, comments aside.
fn calls(text: &str) -> usize {
    let code = |line: &str| line.split(" #").next().unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(code);
    let begins = |line: String| {
        let mut is_first = true;
        line.split_whitespace()
            .filter(|word| {
                let is_call = is_first && *word == "toolhold";
                // A command begins behind another one, behind `time`, and behind its variables.
                is_first = ["&&", "|", ";", "time"].contains(word)
                    || (is_first && word.contains('=') && !word.starts_with('-'));
                is_call
            })
            .count()
    };
    lines.map(begins).sum()
}

/// What is wrong with a block.
fn faults(text: &str, programs: &Path) -> Vec<String> {
    let host = Host::new();
    let at = |name: &str| host.path().join(name);
    // What a command reads must be there, or the shell does not call it.
    for (_, behind) in text.lines().filter_map(|line| line.split_once(" < ")) {
        host.write(behind.split_whitespace().next().unwrap_or_default(), "");
    }
    let status = Command::new("/bin/sh")
        .args(["-c", &text.replace("time toolhold", "toolhold")])
        .current_dir(host.path())
        .env_clear()
        .env("PATH", programs)
        .env("HOME", host.path())
        .env("BINARY", binary())
        .env("CALLS", at("calls"))
        .env("FAULTS", at("faults"))
        .env("CARGO_CALLS", at("cargo-calls"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let said = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    let mut faults: Vec<String> = said("faults").lines().map(str::to_owned).collect();
    let (read, expected) = (said("calls").lines().count(), calls(text));
    if faults.is_empty() && read != expected {
        faults.push(format!("{read} of {expected} calls were read ({status:?})"));
    }
    faults.extend(said("cargo-calls").lines().filter_map(unknown_to_cargo));
    faults
}

/// What of a call of cargo does not exist: a package, a benchmark, an example, a test binary, a command of xtask.
fn unknown_to_cargo(call: &str) -> Option<String> {
    let mut words = call.split_whitespace().take_while(|word| *word != "--");
    let mut last = "";
    let unknown = words.find(|word| {
        let is_known = match last {
            "-p" | "--package" => crates().any(|folder| is_named(&folder, word)),
            "--bench" => has_target("benches", word),
            "--example" => has_target("examples", word),
            "--test" => is_test(word),
            "xtask" => is_command_of_xtask(word),
            "--path" => repository().join(word).join("Cargo.toml").exists(),
            _ => true,
        };
        last = word;
        !is_known
    });
    unknown.map(|word| format!("cargo {call}: there is no {word}"))
}

fn crates() -> impl Iterator<Item = PathBuf> {
    let host = fs::read_dir(repository().join("host")).expect("the crates");
    let folders = host.map(|entry| entry.expect("a crate").path());
    folders.chain([repository().join("tests")])
}

fn is_named(folder: &Path, package: &str) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    manifest
        .lines()
        .any(|line| line == format!("name = \"{package}\""))
}

fn has_target(kind: &str, name: &str) -> bool {
    crates().any(|folder| {
        let place = folder.join(kind);
        place.join(format!("{name}.rs")).exists() || place.join(name).join("main.rs").exists()
    })
}

fn is_test(name: &str) -> bool {
    let manifest = fs::read_to_string(repository().join("tests/Cargo.toml")).unwrap_or_default();
    manifest.contains(&format!("name = \"{name}\""))
}

/// By the variants of its `Command`, whose names clap writes with hyphens.
fn is_command_of_xtask(name: &str) -> bool {
    let source =
        fs::read_to_string(repository().join("host/xtask/src/main.rs")).unwrap_or_default();
    let variant: String = name
        .split('-')
        .map(|part| {
            let (first, rest) = part.split_at_checked(1).unwrap_or((part, ""));
            first.to_uppercase() + rest
        })
        .collect();
    let behind = ["(", ",", " {"].map(|end| format!("\n    {variant}{end}"));
    behind.iter().any(|form| source.contains(form.as_str()))
}

#[test]
fn commands_that_are_not_run_are_understood() {
    let programs = programs();
    let mut seen = 0;
    let mut found = Vec::new();
    for document in documents() {
        for block in blocks(&read(&document)) {
            if block.mark() != Ok(Mark::NotRun) {
                continue;
            }
            seen += 1;
            let place = format!("{}:{}", document.display(), block.line);
            let faults = faults(&block.text, programs.path());
            found.extend(faults.iter().map(|fault| format!("{place}: {fault}")));
        }
    }
    assert!(seen > 30, "{seen} blocks");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_does_not_exist_is_noticed() {
    let programs = programs();
    let fault = |text: &str| faults(text, programs.path()).join("\n");
    assert!(fault("toolhold eval --tiems 3\n").contains("--tiems"));
    assert!(fault("X=1 toolhold modules aprove files # yes\n").contains("aprove"));
    assert_eq!(
        fault("toolhold eval --times 3 < list.json | rm -rf /nowhere\n"),
        ""
    );
    assert!(fault("nothing-here && toolhold doctor\n").contains("0 of 1"));
    assert!(fault("cargo bench -p toolhold-sandbox --bench absent\n").contains("absent"));
    assert!(fault("cargo xtask quickstrat\n").contains("quickstrat"));
    assert_eq!(
        fault("cargo xtask quickstart -p nothing\n").lines().count(),
        1
    );
    assert_eq!(fault("cargo nextest run -p toolhold-tests many_runs\n"), "");
}
