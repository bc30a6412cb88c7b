//! `toolhold modules test`: what a module says of itself, held against what it does; and the modules that ship.

use serde_json::{Value, json};
use std::fmt::Write as _;
use support::host::{Finished, Host};
use support::sandbox::repository;
use toolhold_hostile::liar::{self, Claim, ClaimedExample, LiarReply};
use toolhold_needs::is_built;

/// A tool that takes an integer `n` and claims to return one, with these examples: task, arguments, output.
fn claim(examples: &[(&str, Value, Value)]) -> Claim {
    Claim {
        input_schema: json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        })
        .to_string(),
        output_schema: Some(json!({"type": "integer"}).to_string()),
        examples: examples
            .iter()
            .map(|(task, arguments, output)| ClaimedExample {
                task: (*task).to_owned(),
                arguments: arguments.to_string(),
                output: output.to_string(),
            })
            .collect(),
        ..Claim::named("seven")
    }
}

fn host(component: Vec<u8>) -> Host {
    let host = Host::new();
    host.write("modules/m.wasm", component);
    host
}

/// What `modules test m` reports, and its exit code.
fn tested(host: &Host) -> (Value, Option<i32>) {
    let done = host.run(&["modules", "test", "m", "--json"]);
    let report = serde_json::from_str(&done.stdout);
    (
        report.unwrap_or_else(|error| panic!("{error}: {done:?}")),
        done.code,
    )
}

fn details<'a>(report: &'a Value, check: &str, outcome: &str) -> Vec<&'a str> {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks
        .filter(|it| it["check"] == check && it["outcome"] == outcome)
        .map(|it| it["detail"].as_str().expect("a detail"))
        .collect()
}

fn answering(reply: &str, examples: &[(&str, Value, Value)]) -> Vec<u8> {
    let reply = LiarReply::Value(reply.to_owned());
    liar::component(&[claim(examples)], &reply).expect("a component")
}

#[test]
fn a_module_that_does_what_it_says_passes() {
    let host = host(answering(
        "7",
        &[("Seven, please.", json!({"n": 1}), json!(7.0))],
    ));
    let (report, code) = tested(&host);
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(
        (&report["passed"], &report["failed"]),
        (&json!(4), &json!(0)),
        "{report}"
    );
    let table = host.run(&["modules", "test", "m"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    for line in [
        "✓ example      seven",
        "✓ list-tools",
        "✓ limits",
        "m: 4 passed, 0 failed",
    ] {
        assert!(table.stdout.contains(line), "{line}: {}", table.stdout);
    }
}

#[test]
fn an_example_that_lies_fails_the_test() {
    let host = host(answering("7", &[("Eight.", json!({"n": 1}), json!(8))]));
    let (report, code) = tested(&host);
    assert_eq!(code, Some(1), "{report}");
    assert_eq!(
        details(&report, "example", "failed"),
        ["Eight.: it returns 7, the example says 8"]
    );
    let host = self::host(answering("\"x\"", &[("Seven.", json!({"n": 1}), json!(7))]));
    let (report, code) = tested(&host);
    assert_eq!(code, Some(1), "{report}");
    let failed = details(&report, "example", "failed");
    assert!(failed[0].contains("its own output schema"), "{failed:?}");
}

/// An example that does not fit its schemas is not shown to models; loading says so, in every command of an author.
#[test]
fn examples_that_do_not_fit_are_told_at_load() {
    let host = host(answering(
        "7",
        &[
            ("No number.", json!({"n": "1"}), json!(7)),
            ("A text.", json!({"n": 1}), json!("seven")),
            ("Good.", json!({"n": 1}), json!(7)),
        ],
    ));
    let faults = [
        "the example \"No number.\" of m.seven is left out: its arguments do not fit the tool's input schema",
        "the example \"A text.\" of m.seven is left out: its output does not fit the tool's output schema",
    ];
    let called = host.run(&["modules", "call", "m.seven", r#"{"n":1}"#]);
    assert_eq!(called.code, Some(0), "{called:?}");
    let inspected = host.run(&["modules", "inspect", "m"]);
    let (report, code) = tested(&host);
    assert_eq!(code, Some(1), "{report}");
    let told = details(&report, "description", "failed");
    assert_eq!(told.len(), 2, "{report}");
    for (fault, told) in faults.iter().zip(told) {
        assert!(told.starts_with(fault), "{told}");
        assert!(called.stderr.contains(fault), "{called:?}");
        assert!(inspected.stdout.contains(fault), "{inspected:?}");
    }
    assert_eq!(details(&report, "example", "passed"), ["Good."]);
    let listed = host.run(&["modules", "inspect", "m", "--json"]);
    assert!(!listed.stdout.contains("\"A text.\""), "{listed:?}");
}

#[test]
fn a_list_of_tools_that_changes_fails_the_test() {
    let claim = claim(&[("Seven.", json!({"n": 1}), json!(7))]);
    let reply = LiarReply::Value("7".to_owned());
    let host = host(liar::fickle(&[claim], &reply).expect("a component"));
    let (report, code) = tested(&host);
    assert_eq!(code, Some(1), "{report}");
    let failed = details(&report, "list-tools", "failed");
    assert!(
        failed.len() == 1 && failed[0].contains("m.seven is described differently"),
        "{report}"
    );
}

/// What an example writes is written into a copy, and what the operator granted is not used.
#[test]
fn a_test_touches_no_file_of_the_person_who_tests() {
    let host = Host::new();
    host.ship("files")
        .write(
            "modules/files/testdata/notes/todo.txt",
            "buy milk\ncall Ada\n",
        )
        .write("mine/keep.txt", "mine");
    let granted = host.run(&["modules", "grant", "files", "--with-dir", "mine:/data:rw"]);
    assert_eq!(granted.code, Some(0), "{granted:?}");
    let tested = host.run(&["modules", "test", "files"]);
    assert_eq!(tested.code, Some(0), "{tested:?}");
    assert!(tested.stdout.contains("✓ example      write"), "{tested:?}");
    let mine: Vec<_> = std::fs::read_dir(host.path().join("mine"))
        .expect("a folder")
        .collect();
    assert_eq!(mine.len(), 1, "{mine:?}");
    assert!(
        !host
            .path()
            .join("modules/files/testdata/notes/title.txt")
            .exists()
    );
}

/// The author of a module that nobody approved gets no file of the person who tests it: not by a link either.
#[test]
fn testdata_that_is_a_link_is_not_copied() {
    let host = Host::new();
    host.ship("files")
        .write("mine/notes/todo.txt", "buy milk\n");
    let link = host.path().join("modules/files/testdata");
    std::os::unix::fs::symlink(host.path().join("mine"), link).expect("a link");
    let done = host.run(&["modules", "test", "files"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("testdata") && done.stderr.contains("no folder"),
        "{done:?}"
    );
    assert!(!done.stdout.contains("buy milk"), "{done:?}");
}

#[test]
fn a_module_that_asks_for_many_directories_is_told_the_bound() {
    let host = Host::new();
    let mut manifest = "name = \"m\"\n".to_owned();
    for number in 0..17 {
        let _ = writeln!(manifest, "[[grants.directories]]\nguest = \"/d{number}\"");
    }
    let reply = LiarReply::Value("7".to_owned());
    let claim = claim(&[("Seven.", json!({"n": 1}), json!(7))]);
    host.write("modules/m/module.toml", manifest).write(
        "modules/m/m.wasm",
        liar::component(&[claim], &reply).expect("a component"),
    );
    let done = host.run(&["modules", "test", "m"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("17 directories") && done.stderr.contains("at most 16"),
        "{done:?}"
    );
}

/// What a tool says of itself may be for want of a grant. What the host stops it for is not.
#[test]
fn only_an_error_of_the_tool_itself_is_told_as_not_run() {
    let example = [("Seven.", json!({"n": 1}), json!(7))];
    let asking =
        "name = \"m\"\n[limits]\noutput_bytes = 4\n[[grants.environment]]\nname = \"KEY\"\n";
    let refusing = LiarReply::Error {
        message: "there is no KEY".into(),
        data: None,
    };
    let refusing = liar::component(&[claim(&example)], &refusing).expect("a component");
    let too_large = answering("7777777", &example);
    for (component, outcome, code) in [(refusing, "not-run", 0), (too_large, "failed", 1)] {
        let host = Host::new();
        host.write("modules/m/module.toml", asking)
            .write("modules/m/m.wasm", component);
        let (report, ended) = tested(&host);
        assert_eq!(ended, Some(code), "{report}");
        assert_eq!(details(&report, "example", outcome).len(), 1, "{report}");
    }
}

#[test]
fn a_module_that_cannot_be_loaded_is_not_tested() {
    let host = host(b"no component".to_vec());
    let done = host.run(&["modules", "test", "m"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("not a WebAssembly component"),
        "{done:?}"
    );
}

/// Every module that ships, and the same tools in every language.
#[test]
fn shipped_modules_pass_their_tests() {
    let mut tested = 0;
    for folder in ["modules", "modules/examples"] {
        let place = repository().join(folder);
        for entry in std::fs::read_dir(&place).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            if !entry.path().join("module.toml").exists() {
                continue;
            }
            if !is_built(&repository(), &format!("{folder}/{name}")) {
                continue;
            }
            tested += 1;
            let place = place.to_str().expect("a path");
            let done: Finished = Host::new().run(&["--modules", place, "modules", "test", &name]);
            assert_eq!(done.code, Some(0), "{name}: {}{}", done.stdout, done.stderr);
            // They show how requests are sent, to whatever server they are told: there is no example that holds.
            // Extractors have no tools, and tests of their own.
            if name.starts_with("fetch_") || name.starts_with("extract_") {
                continue;
            }
            // A test gives no HTTP.
            let mark = if ["http", "knowledge", "search"].contains(&&*name) {
                "–"
            } else {
                "✓"
            };
            let example = format!("{mark} example");
            assert!(done.stdout.contains(&example), "{name}: {}", done.stdout);
            assert!(
                !done.stdout.contains("no worked example"),
                "{name}: {}",
                done.stdout
            );
        }
    }
    assert!(tested > 0, "none is built: `cargo xtask test` builds them");
}
