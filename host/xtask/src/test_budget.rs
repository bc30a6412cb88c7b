//! Limits of the time of tests: `cargo xtask test --budget`, as `.ci/run` calls it. A test has the limit of its class, and
//! the whole run has one. Limits are several times what was seen on two quiet processors, because other work may run beside them:
//! they find a test that waits or grew, not a machine that is slow.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roxmltree::Document;

use crate::narrate;

/// The report of nextest with the time of each test, from the root of the repository (`.config/nextest.toml`).
pub const REPORT: &str = "target/nextest/default/junit.xml";

/// Seconds that a test may take that is in no class.
const LIMIT: f64 = 10.0;
/// Seconds that the run of all tests may take, and that it takes on two quiet processors. Where it takes longer than the
/// latter, the machine has other work, and each test gets more time in proportion.
const WHOLE_LIMIT: f64 = 1_800.0;
const WHOLE_QUIET: f64 = 720.0;
/// Tests that are printed, the slowest first.
const SHOWN: usize = 20;

/// Tests that may take longer.
struct TestClass {
    /// Beginning of the tests' names, behind the name of their binary and a space.
    tests: &'static str,
    /// Seconds.
    limit: f64,
    /// The reason of the limit.
    why: &'static str,
}

const fn class(tests: &'static str, limit: f64, why: &'static str) -> TestClass {
    TestClass { tests, limit, why }
}

/// The first that fits counts.
const CLASSES: &[TestClass] = &[
    class(
        "toolhold-tests::hostile ",
        240.0,
        "attacks reach bounds of time and memory",
    ),
    class(
        "toolhold-tests::integration dev_build::",
        360.0,
        "compiles in several languages",
    ),
    class(
        "toolhold-tests::integration new_module::",
        240.0,
        "installs toolchains and compiles templates",
    ),
    class(
        "toolhold-tests::integration module_test::",
        360.0,
        "compiles and tests every shipped module",
    ),
    class(
        "toolhold-tests::integration real_model::",
        240.0,
        "a model on the CPU",
    ),
    class(
        "toolhold-tests::integration example_modules::",
        180.0,
        "compiles interpreters to native code",
    ),
    class(
        "toolhold-tests::integration ",
        120.0,
        "starts processes, waits for their deadlines, compiles components",
    ),
    class(
        "toolhold-agent::scripted_runs quoted::",
        90.0,
        "1 400 runs, for each form, place and copy",
    ),
    class(
        "toolhold-agent::scripted_runs ",
        30.0,
        "runs that are killed after each of their events",
    ),
    class(
        "toolhold-agent run::machine::random_tests::",
        30.0,
        "random runs",
    ),
    class("toolhold-agent contract::provenance::", 30.0, "MiB of text"),
    class(
        "toolhold-connections websocket::",
        30.0,
        "waits for a client that answers no ping",
    ),
    class(
        "toolhold-knowledge::knowledge ",
        40.0,
        "thousands of documents",
    ),
    class("toolhold-sandbox disk::", 60.0, "trees of 50 000 folders"),
    class("toolhold-fuzz", 90.0, "random inputs for seconds"),
];

/// How long a test took.
#[derive(Debug, Clone, PartialEq)]
struct TestTime {
    name: String,
    seconds: f64,
}

/// Prints the slowest tests of the last run.
///
/// # Errors
/// A test, or the run, took longer than it may, or the report cannot be read.
pub fn check(root: &Path, whole: Duration) -> Result<()> {
    let report = root.join(REPORT);
    let text = fs::read_to_string(&report)
        .with_context(|| format!("could not read {}", report.display()))?;
    let mut times = times(&text).with_context(|| format!("{} is no report", report.display()))?;
    times.sort_by(|one, two| two.seconds.total_cmp(&one.seconds));
    let sum: f64 = times.iter().map(|test| test.seconds).sum();
    narrate::line(&format!(
        "{} tests took {sum:.0} s together, {} s by the clock; the slowest:",
        times.len(),
        whole.as_secs(),
    ));
    for test in times.iter().take(SHOWN) {
        narrate::line(&format!("  {:6.1} s  {}", test.seconds, test.name));
    }
    let faults = faults(&times, whole.as_secs_f64());
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "over the budget (host/xtask/src/test_budget.rs):\n  {}",
        faults.join("\n  ")
    )
}

fn faults(times: &[TestTime], whole: f64) -> Vec<String> {
    let load = (whole / WHOLE_QUIET).max(1.0);
    let slow = times.iter().filter_map(|test| {
        let (limit, why) = limit(&test.name);
        let limit = limit * load;
        (test.seconds > limit).then(|| {
            format!(
                "{} took {:.1} s, and its class ({why}) has {limit:.0} s",
                test.name, test.seconds
            )
        })
    });
    let whole = (whole > WHOLE_LIMIT)
        .then(|| format!("all tests took {whole:.0} s, and have {WHOLE_LIMIT} s"));
    slow.chain(whole).collect()
}

/// Seconds that a test may take, and why.
fn limit(name: &str) -> (f64, &'static str) {
    let class = CLASSES.iter().find(|class| name.starts_with(class.tests));
    class.map_or((LIMIT, "all others"), |class| (class.limit, class.why))
}

/// The times of a JUnit report.
fn times(report: &str) -> Result<Vec<TestTime>> {
    let document = Document::parse(report)?;
    let cases = document
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    cases
        .map(|case| {
            let read = |name| {
                let value = case.attribute(name);
                value.with_context(|| format!("a test without {name}"))
            };
            let seconds = read("time")?;
            Ok(TestTime {
                name: format!("{} {}", read("classname")?, read("name")?),
                seconds: seconds
                    .parse()
                    .with_context(|| format!("{seconds:?} is no time"))?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_over_its_limit_is_named() {
        let report = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="0" errors="0" uuid="u" timestamp="t" time="61.0">
  <testsuite name="toolhold-json" tests="2" disabled="0" errors="0" failures="0">
    <testcase name="repair::a" classname="toolhold-json" timestamp="t" time="0.020"/>
    <testcase name="repair::b" classname="toolhold-json" timestamp="t" time="11.500"></testcase>
  </testsuite>
  <testsuite name="toolhold-tests::integration" tests="1" disabled="0" errors="0" failures="0">
    <testcase name="dev_build::c" classname="toolhold-tests::integration" timestamp="t" time="50.0"/>
  </testsuite>
</testsuites>"#;
        let times = times(report).unwrap();
        assert_eq!(times.len(), 3);
        let expect = "toolhold-json repair::b took 11.5 s, and its class (all others) has 10 s";
        assert_eq!(faults(&times, 60.0), [expect]);
        assert_eq!(faults(&times, 900.0), [] as [&str; 0], "it was busy");
        assert_eq!(faults(&times[..1], 1_801.0).len(), 1);
        assert!(super::times("<a><testcase name=\"x\"/></a>").is_err());
    }

    #[test]
    fn the_first_class_that_fits_counts() {
        for (at, class) in CLASSES.iter().enumerate() {
            let before = CLASSES.iter().take(at);
            let hidden = before.filter(|other| class.tests.starts_with(other.tests));
            assert_eq!(hidden.count(), 0, "{}", class.tests);
        }
    }
}
