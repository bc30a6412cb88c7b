//! Faults around a server, as a table: each in two forms, one in which it passes and one in which it stays.
//! `docs/faults.md` is written from it.
//!
//! A form is tried here, or by a test of its own, whose file and name are given. Rows that share a server are tried in turn, and after
//! each the server must work as before. `TOOLHOLD_TEST_SCALE=whole` tries crowds and repetitions at full size;
//! `cargo xtask test --long` sets it.

mod around;
mod clients;
mod database;
mod endpoint;
mod modules;

use serde_json::{Value, json};
use std::fmt::Write as _;
use support::sandbox::repository;

/// One fault, tried with a `B`, which has a server.
struct FaultRow<B: 'static> {
    what: &'static str,
    passes: FaultForm<B>,
    stays: FaultForm<B>,
}

/// Outcome of a fault, and the test that shows it.
struct FaultForm<B: 'static> {
    outcome: &'static str,
    trial: FaultTrial<B>,
}

enum FaultTrial<B: 'static> {
    Here(fn(&mut B)),
    /// The file of a test, relative to `tests`, and its name.
    Test(&'static str, &'static str),
}

const fn here<B>(outcome: &'static str, trial: fn(&mut B)) -> FaultForm<B> {
    FaultForm {
        outcome,
        trial: FaultTrial::Here(trial),
    }
}

const fn test<B>(outcome: &'static str, file: &'static str, name: &'static str) -> FaultForm<B> {
    FaultForm {
        outcome,
        trial: FaultTrial::Test(file, name),
    }
}

/// Tries the forms of all rows that have no test of their own.
fn try_rows<B>(bench: &mut B, rows: &[FaultRow<B>]) {
    for row in rows {
        for (form, name) in [(&row.passes, "passes"), (&row.stays, "stays")] {
            if let FaultTrial::Here(trial) = form.trial {
                eprintln!("{} ({name})", row.what);
                trial(bench);
            }
        }
    }
}

fn ask(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// A row without its bench.
struct FaultLine {
    what: &'static str,
    outcomes: [&'static str; 2],
    tests: Vec<(&'static str, &'static str)>,
}

impl<B> From<&FaultRow<B>> for FaultLine {
    fn from(row: &FaultRow<B>) -> Self {
        let forms = [&row.passes, &row.stays];
        let tests = forms.iter().filter_map(|form| match form.trial {
            FaultTrial::Test(file, name) => Some((file, name)),
            FaultTrial::Here(_) => None,
        });
        Self {
            what: row.what,
            outcomes: forms.map(|form| form.outcome),
            tests: tests.collect(),
        }
    }
}

/// All rows, by what fails.
fn groups() -> Vec<(&'static str, Vec<FaultLine>)> {
    fn lines<B>(rows: &[FaultRow<B>]) -> Vec<FaultLine> {
        rows.iter().map(FaultLine::from).collect()
    }
    vec![
        ("The endpoint", lines(endpoint::ROWS)),
        ("The database and the disk", lines(database::ROWS)),
        ("Processes and machines", lines(database::PROCESSES)),
        ("Modules and configuration", lines(modules::ROWS)),
        ("Clients", lines(clients::ROWS)),
        ("What stands beside it", lines(around::ROWS)),
    ]
}

/// The tables of `docs/faults.md`.
pub(crate) fn tables() -> String {
    let mut text = String::new();
    for (heading, lines) in groups() {
        let _ = writeln!(
            text,
            "\n## {heading}\n\n| what fails | it passes | it stays |\n|---|---|---|"
        );
        for line in lines {
            let [passes, stays] = line.outcomes;
            let _ = writeln!(text, "| {} | {passes} | {stays} |", line.what);
        }
    }
    text.push('\n');
    text
}

/// Whether this file has a function of this name that is marked as a test.
fn has_test(file: &str, name: &str) -> bool {
    let source = std::fs::read_to_string(repository().join("tests").join(file));
    let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begins = format!("fn {name}(");
    lines.windows(2).any(|two| {
        let is_marked = two[0].starts_with("#[test") || two[0].starts_with("#[tokio::test");
        is_marked && two[1].trim_start_matches("async ").starts_with(&begins)
    })
}

#[test]
fn the_table_is_long_enough_and_its_tests_exist() {
    assert!(has_test("serve/faults.rs", "a_full_disk_loses_nothing"));
    assert!(!has_test("serve/faults.rs", "scripted"));
    let lines: Vec<FaultLine> = groups().into_iter().flat_map(|(_, lines)| lines).collect();
    assert!(lines.len() >= 40, "{}", lines.len());
    for line in &lines {
        for (file, name) in &line.tests {
            assert!(has_test(file, name), "{}: {file}: {name}", line.what);
        }
    }
}
