//! `cargo xtask test --long`: what takes too long for each change, and of which `.ci/run` has a short form. Run by hand,
//! before an issue is called resolved; have the machine do nothing else meanwhile.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::project::{self, Beside, Profile};
use crate::{interrupt, narrate, source};

/// Minutes of the soak, and seconds of each fuzz target.
const SOAK_MINUTES: &str = "10";
const FUZZ_SECONDS: &str = "60";
/// Seconds for which writers of two processes write one SQLite database.
const SQLITE_SECONDS: &str = "60";
/// Cases of each property test; proptest's own number is 256.
const CASES: &str = "5000";
/// Crates with parsers and resolvers: all of their tests are run, some of which are longer then.
const PARSERS: [&str; 6] = ["json", "policy", "protocol", "model", "knowledge", "agent"];

/// A part, in the words of the summary.
struct LongPart {
    name: &'static str,
    command: fn() -> Result<Command>,
}

/// Has tests whose short form is for each change be tried in their whole one.
const WHOLE: (&str, &str) = ("TOOLHOLD_TEST_SCALE", "whole");

const PARTS: [LongPart; 7] = [
    LongPart {
        name: "selftest of a release build, at full scale",
        command: selftest,
    },
    LongPart {
        name: "writers of SQLite in two processes, 60 s",
        command: || Ok(sqlite()),
    },
    LongPart {
        name: "faults around a server and dev builds, at full size",
        command: || Ok(faults()),
    },
    LongPart {
        name: "frameworks that speak OpenAI's APIs, and conversations of 300 turns",
        command: || Ok(ignored()),
    },
    LongPart {
        name: "property tests, 5000 cases each",
        command: properties,
    },
    LongPart {
        name: "fuzz targets, 60 s each",
        command: || Ok(xtask(&["fuzz", "--seconds", FUZZ_SECONDS])),
    },
    LongPart {
        name: "soak, 10 min",
        command: || Ok(xtask(&["soak", "--minutes", SOAK_MINUTES])),
    },
];

/// Runs all parts, also after one that fails, and prints a line for each in the end.
pub fn run() -> Result<ExitCode> {
    let mut lines = Vec::new();
    let mut is_good = true;
    for part in &PARTS {
        narrate::line(part.name);
        let begun = Instant::now();
        let ended = (part.command)().and_then(|mut command| project::run(&mut command));
        let verdict = match ended {
            Err(error) if interrupt::happened() => return Err(error),
            Err(error) => format!("FAILED ({error:#})"),
            Ok(status) if status.success() => "passed".to_owned(),
            Ok(status) => format!("FAILED ({status})"),
        };
        is_good &= verdict == "passed";
        lines.push(format!(
            "{} {}: {verdict}",
            minutes(begun.elapsed()),
            part.name
        ));
    }
    narrate::block(&lines.join("\n"));
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn selftest() -> Result<Command> {
    let toolhold = project::build_toolhold(Profile::Release, Beside::Nothing)?;
    let mut command = Command::new(toolhold);
    command.arg("selftest");
    Ok(command)
}

fn sqlite() -> Command {
    let mut command = xtask(&["test", "--", "-E", "test(/^sqlite::/)"]);
    command.env("TOOLHOLD_SQLITE_SECONDS", SQLITE_SECONDS);
    command
}

/// Tests of `tests/faults`, those of servers, which its table names, all bases of a dev build, and a deep tree.
fn faults() -> Command {
    let filter = "test(/^(dev_build|faults|serve)::|::a_deep_tree_goes_/)";
    let mut command = xtask(&["test", "--", "--profile", "long", "-E", filter]);
    command.env(WHOLE.0, WHOLE.1);
    command
}

/// Tests that each change is tried without, and that are ignored otherwise: those of frameworks install a gigabyte from the
/// registries, and long conversations by each way and in each language take minutes.
fn ignored() -> Command {
    let filter = "test(/^(mission::conversations::many_turns|serve::frameworks)::/)";
    let options = ["--profile", "long", "--run-ignored", "only"];
    let mut command = xtask(&["test", "--"]);
    command.args(options).args(["-E", filter]);
    command
}

/// All property tests of the workspace, and all tests of [`PARSERS`].
fn properties() -> Result<Command> {
    let mut names = BTreeSet::new();
    for text in source::texts_with_tests(&project::root())? {
        names.extend(property_tests(&text));
    }
    let names: Vec<_> = names.into_iter().collect();
    let filter = format!(
        "package(/^toolhold-({})$/) | test(/(^|::)({})$/)",
        PARSERS.join("|"),
        names.join("|")
    );
    // With twenty times as many cases a test may take longer than its bound in `.ci/run`.
    let mut command = xtask(&["test", "--", "--profile", "long", "-E", &filter]);
    command.env("PROPTEST_CASES", CASES).env(WHOLE.0, WHOLE.1);
    Ok(command)
}

/// Names of the tests in the `proptest!` blocks of a source.
fn property_tests(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The line with which the block ends, whose indentation is that of its beginning.
    let mut end: Option<String> = None;
    let mut is_test = false;
    for line in source.lines() {
        let text = line.trim_start();
        if let Some(last) = &end {
            if line == last {
                end = None;
            } else if text == "#[test]" {
                is_test = true;
            } else if is_test && let Some(rest) = text.strip_prefix("fn ") {
                is_test = false;
                found.push(rest.split('(').next().unwrap_or(rest).to_owned());
            }
        } else if text == "proptest! {" || text == "proptest::proptest! {" {
            let indentation = line.len() - text.len();
            end = Some(format!("{}}}", " ".repeat(indentation)));
        }
    }
    found
}

/// A command of this program, built anew where its sources changed.
fn xtask(arguments: &[&str]) -> Command {
    let mut command = project::cargo();
    command.arg("xtask").args(arguments);
    command
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:>3}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_numbers() {
        let all: String = PARTS.iter().map(|part| part.name).collect();
        for number in [SOAK_MINUTES, FUZZ_SECONDS, SQLITE_SECONDS, CASES] {
            assert!(all.contains(number), "{number}");
        }
        assert_eq!(minutes(Duration::from_secs(125)), "  2:05");
    }

    #[test]
    fn parsers_are_crates() {
        for name in PARSERS {
            assert!(project::root().join("host").join(name).is_dir(), "{name}");
        }
    }

    #[test]
    fn property_tests_are_found_by_their_blocks() {
        let source = "
mod tests {
    #[test]
    fn is_no_property() {}

    proptest! {
        #![proptest_config(ProptestConfig::default())]

        /// Holds for all.
        #[test]
        fn holds_for_all(value in any::<u8>()) {
            fn inner() {}
        }

        fn helper() {}

        #[test]
        fn holds_again(
            value in any::<u8>(),
        ) {}
    }

    #[test]
    fn is_another() {}
}
";
        assert_eq!(property_tests(source), ["holds_for_all", "holds_again"]);
    }

    #[test]
    fn every_block_of_property_tests_has_tests_that_are_found() {
        let mut blocks = 0;
        for text in source::texts_with_tests(&project::root()).unwrap() {
            let begins = |line: &&str| line.trim_start().ends_with("proptest! {");
            let begun = text.lines().filter(begins).count();
            blocks += begun;
            let found = property_tests(&text);
            assert!(found.len() >= begun, "{found:?}: {text}");
        }
        assert!(blocks > 50, "{blocks}");
    }
}
