//! A failed call is corrected by another call, which names none (docs/protocol.md, 3.4 and 12).

use super::{ask, server};
use serde_json::{Value, json};
use support::transcript::{answers, calls, told};

const NAMES: [&str; 4] = ["_corrects", "_correction", "_replaces", "_supersedes"];

fn evaluates(expression: &str) -> Value {
    json!({"expression": expression})
}

#[test]
fn statement_042_15_calls_that_name_the_one_they_correct_are_refused() {
    let tool = "calculator.evaluate";
    let replies = NAMES.iter().flat_map(|name| {
        let mut correction = evaluates("2+2");
        correction[*name] = "1".into();
        [
            calls([(tool, evaluates("2 plus"))]),
            calls([(tool, correction)]),
            calls([(tool, evaluates("2+2"))]),
            answers("It is 4."),
        ]
    });
    let (_host, endpoint, server) = server("", replies);
    for (run, name) in NAMES.iter().enumerate() {
        let answer = server.post("/v1/agent", &ask("2+2?")).good();
        let steps = answer["steps"].as_array().unwrap();
        let status = |n: usize| &steps[n]["calls"][0]["status"];
        assert_eq!(*status(0), "failed", "{answer}");
        assert_eq!(*status(1), "refused", "{answer}");
        assert_eq!(*status(2), "done", "{answer}");
        // The model is told what to do instead.
        let told = told(&endpoint, run * 4 + 2);
        let instead = format!("no call says with {name} which call it corrects");
        assert!(told.contains(&instead), "{told}");
    }
}

/// Section 12 is the one list of deviations from the protocol's acts.
#[test]
fn statement_042_15_section_12_of_the_protocol_names_all_deviations() {
    let manual = include_str!("../../docs/protocol.md");
    let (_, section) = manual.split_once("\n## 12. Deviations\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    for (deviation, rule) in [
        ("A registered type may have a handler", "2.13"),
        ("calls, an output, or both", "4.8"),
        ("Every solution has `meta`", "2.6"),
        ("A message that an Activity returns", "5.5"),
        ("An `_activity` that names nothing", "3.3"),
        ("an explicit call without an output path", "5.6"),
        ("State is carried", "2.7"),
        ("A failed call is corrected", "3.4"),
        ("`idea://…`", "6.1"),
        ("`††` is a dagger", "5.1"),
        ("Every call whose references resolve", "7.3"),
    ] {
        let row = rows.iter().find(|row| row.contains(deviation));
        let row = row.unwrap_or_else(|| panic!("no row has {deviation:?}"));
        assert!(row.contains(rule), "{row}");
    }
}
