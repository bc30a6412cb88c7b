//! Limits of the time of tests: `cargo xtask test --budget`, as `.ci/run` calls it. A test has the limit of its class, and
//! the whole run has one. Limits are several times what was seen on two quiet processors, because other work may run beside them:
//! they find a test that waits or grew, not a machine that is slow.

mod classes;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use roxmltree::Document;

use crate::{narrate, project};
use classes::{INTEGRATION, INTEGRATION_BINARY, OTHERS, TestClass};

/// The report of nextest with the time of each test, from the root of the repository (`.config/nextest.toml`).
pub const REPORT: &str = "target/nextest/default/junit.xml";

/// Seconds that a test may take that is in no class.
const LIMIT: f64 = 10.0;
/// Seconds that the run of all tests may take, and that it takes on two quiet processors. Where it takes longer than the
/// latter, the machine has other work, and each test gets more time in proportion.
const WHOLE_LIMIT: f64 = 1_800.0;
const WHOLE_QUIET: f64 = 720.0;
/// Largest factor by which limits are multiplied: a run of many tests that grew is no reason to let each of them grow.
const MOST_LOAD: f64 = 2.0;
/// Tests that are printed, the slowest first.
const SHOWN: usize = 20;

/// How long a test took.
#[derive(Debug, Clone, PartialEq)]
struct TestTime {
    name: String,
    seconds: f64,
}

/// Removes the report of an earlier run, which would be read where the next one writes none.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove_report(root: &Path) -> Result<()> {
    project::remove_if_there(&root.join(REPORT))
}

/// Tests of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    All,
    Chosen,
}

/// Prints the slowest tests of the last run.
///
/// # Errors
/// A test, or the run, took longer than it may, a class has no test though all ran, or the report cannot be read.
pub fn check(root: &Path, whole: Duration, ran: Extent) -> Result<()> {
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
    let mut faults = faults(&times, whole.as_secs_f64());
    // Some tests are Linux' alone.
    if ran == Extent::All && cfg!(target_os = "linux") {
        faults.extend(classes_without_tests(&times));
    }
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "over the budget (host/xtask/src/test_budget/classes.rs):\n  {}",
        faults.join("\n  ")
    )
}

fn faults(times: &[TestTime], whole: f64) -> Vec<String> {
    let load = (whole / WHOLE_QUIET).clamp(1.0, MOST_LOAD);
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

/// A class that no test is in hides that its tests were renamed, and have the limit of all others.
fn classes_without_tests(times: &[TestTime]) -> Vec<String> {
    let names = || times.iter().map(|test| test.name.as_str());
    let integration: Vec<&str> = names()
        .filter_map(|name| name.strip_prefix(INTEGRATION_BINARY))
        .collect();
    let others: Vec<&str> = names().collect();
    let empty = |classes: &'static [TestClass], names: Vec<&str>| {
        let is_empty = |class: &&TestClass| !names.iter().any(|name| name.starts_with(class.tests));
        let empty = classes.iter().filter(is_empty);
        empty
            .map(|class| format!("no test is in the class {:?}", class.tests))
            .collect::<Vec<_>>()
    };
    [empty(INTEGRATION, integration), empty(OTHERS, others)].concat()
}

/// Seconds that a test may take, and why.
fn limit(name: &str) -> (f64, &'static str) {
    let class = match name.strip_prefix(INTEGRATION_BINARY) {
        Some(test) => first_that_fits(INTEGRATION, test),
        None => first_that_fits(OTHERS, name),
    };
    class.map_or((LIMIT, "all others"), |class| (class.limit, class.why))
}

fn first_that_fits(classes: &'static [TestClass], name: &str) -> Option<&'static TestClass> {
    classes.iter().find(|class| name.starts_with(class.tests))
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
    fn an_earlier_report_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let report = root.path().join(REPORT);
        remove_report(root.path()).unwrap();
        fs::create_dir_all(report.parent().unwrap()).unwrap();
        fs::write(&report, "<testsuites/>").unwrap();
        remove_report(root.path()).unwrap();
        assert!(!report.exists());
    }

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
        for classes in [INTEGRATION, OTHERS] {
            for (at, class) in classes.iter().enumerate() {
                let before = classes.iter().take(at);
                let hidden = before.filter(|other| class.tests.starts_with(other.tests));
                assert_eq!(hidden.count(), 0, "{}", class.tests);
            }
        }
    }

    #[test]
    fn a_class_holds_for_its_module_alone() {
        let seconds = |name: &str| limit(name).0.round() as u64;
        let of_module = |test: &str| seconds(&format!("{INTEGRATION_BINARY}{test}"));
        assert_eq!(of_module("serve::takeover::a"), 90);
        assert_eq!(of_module("serve::keys::a"), 30);
        assert_eq!(of_module("trust::a"), 10);
        assert_eq!(seconds("toolhold-json serve::takeover::a"), 10);
    }

    #[test]
    fn a_class_without_a_test_is_named_after_a_run_of_all() {
        let of = |name: String| TestTime { name, seconds: 0.1 };
        let integration = INTEGRATION.iter().map(|class| {
            let test = class.tests;
            of(format!("{INTEGRATION_BINARY}{test}a"))
        });
        let others = OTHERS.iter().map(|class| of(format!("{}a", class.tests)));
        let mut times: Vec<TestTime> = integration.chain(others).collect();
        assert_eq!(classes_without_tests(&times), [] as [&str; 0]);
        // One of the integration tests' classes is no class of the others.
        times[0].name = "toolhold-json dev_build::a".to_owned();
        times.pop();
        let expect = [
            r#"no test is in the class "dev_build::""#,
            r#"no test is in the class "toolhold-fuzz""#,
        ];
        assert_eq!(classes_without_tests(&times), expect);
    }

    /// The report of a run of all tests shows the rest; this one needs no run.
    #[test]
    fn modules_of_classes_are_there() {
        let tests = project::root().join("tests");
        for class in INTEGRATION {
            let module = class.tests.split("::").next().unwrap();
            let is_there = fs::read_dir(&tests).unwrap().any(|entry| {
                let name = entry.unwrap().file_name();
                name.to_string_lossy().starts_with(module)
            });
            assert!(is_there, "{module}");
        }
    }

    #[test]
    fn a_loaded_machine_gives_a_bounded_share_of_time() {
        let slow = TestTime {
            name: "toolhold-json a".to_owned(),
            seconds: LIMIT * MOST_LOAD + 1.0,
        };
        for whole in [WHOLE_QUIET, WHOLE_LIMIT - 1.0] {
            assert_eq!(faults(std::slice::from_ref(&slow), whole).len(), 1);
        }
    }
}
