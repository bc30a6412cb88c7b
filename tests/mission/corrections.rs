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
