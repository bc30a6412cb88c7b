//! Saved plans on the command line: drawn, checked and rehearsed, and nothing of them runs.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Stdio;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};

/// Counts a text's words, and multiplies them by a price that is given.
fn report() -> Value {
    json!({"type": "plan", "mode": "lazy", "plan": [
        {"_tool": "text.reverse", "text": "†state.price.value", "_outputPath": "†state.report"},
        {"_tool": "calculator.evaluate", "expression": "†state.formula.replaced", "_outputPath": "†state.price"},
        {"_tool": "text.regex", "text": "†input.formula", "pattern": "n", "replacement": "†state.count.words || †input.words",
            "_outputPath": "†state.formula"},
        {"_tool": "text.count", "text": "†input.text", "_outputPath": "†state.count"},
        {"_tool": "text.hash", "text": "†input.text", "algorithm": "md5"},
    ]})
}

fn host(plan: &Value) -> Host {
    let host = Host::new();
    host.ship("calculator")
        .ship("text")
        .write("plan.json", plan.to_string());
    host
}

fn json_of(done: &Finished) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[test]
fn a_plan_is_drawn_in_three_ways() {
    let host = host(&report());
    for (format, parts) in [
        (
            "outline",
            [
                "5 steps in 4 layers, at most 2 at the same time",
                "layer 2\n  2 text.regex\n",
                "      /replacement ← †state.count.words || †input.words from 3, outside\n",
            ],
        ),
        (
            "mermaid",
            [
                "flowchart TD\n",
                "  s1[\"1 · calculator.evaluate\"]\n",
                "  s3 -.->|\"†state.count.words\"| s2\n",
            ],
        ),
        (
            "dot",
            [
                "digraph plan {\n",
                "  s1 [label=\"1 · calculator.evaluate\"];\n",
                "  s3 -> s2 [label=\"†state.count.words\", style=dashed];\n",
            ],
        ),
    ] {
        let done = host.run(&["plan", "show", "plan.json", "--format", format]);
        assert_eq!(done.code, Some(0), "{done:?}");
        for part in parts {
            assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
        }
    }
    assert_eq!(
        host.run(&["plan", "show", "plan.json"]).stdout,
        host.run(&["plan", "show", "plan.json", "--format", "outline"])
            .stdout
    );
}

#[test]
fn a_plan_is_read_from_stdin_and_from_a_solution() {
    let host = host(&json!({"calls": report()["plan"], "output": null}));
    let shown = host.run(&["plan", "show", "plan.json"]);
    let mut child = host
        .command(&["plan", "show", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin
        .write_all(report()["plan"].to_string().as_bytes())
        .expect("it reads");
    drop(stdin);
    let piped = finish(child.wait_with_output().expect("it ends"));
    assert_eq!((shown.code, piped.code), (Some(0), Some(0)), "{piped:?}");
    assert_eq!(shown.stdout, piped.stdout);
}

#[test]
fn a_sound_plan_passes_and_says_what_it_needs() {
    let host = host(&report());
    let done = host.run(&["plan", "check", "plan.json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "in order: 5 steps",
        "needs: †input.formula at plan[2]/text",
        "needs: †input.text at plan[3]/text",
        "needs: †input.text at plan[4]/text",
    ] {
        assert!(done.stdout.contains(part), "{part}: {done:?}");
    }
    assert!(
        !done.stdout.contains("†input.words"),
        "another way is there: {done:?}"
    );

    let given = r#"{"text": "one two", "formula": "n * 3"}"#;
    let done = host.run(&["plan", "check", "plan.json", "--input", given]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "in order: 5 steps\n")
    );
    host.write("given.json", given);
    let done = host.run(&[
        "plan",
        "check",
        "plan.json",
        "--input",
        "given.json",
        "--json",
    ]);
    assert_eq!(
        json_of(&done),
        json!({"steps": 5, "mode": "lazy", "faults": [], "warnings": [], "needs": []})
    );
}

#[test]
fn everything_that_is_wrong_is_said_with_its_place() {
    let host = host(&json!([
        {"_tool": "calculator.evaluate", "expression": 7, "precision": "†input.digits"},
        {"_tool": "calculator.guess", "expression": "1"},
        {"_tool": "nowhere.at_all"},
        {"_tool": "think", "about": "it", "_output": {"thought": "deep"}},
        {"_tool": "text.regex", "text": "†state.nowhere", "pattern": "x", "limit": "†state.many", "_outputPath": "†state.many"},
        {"_tool": "text.hash", "text": "†input.text", "algorithm": "crc32"},
        {"_tool": "text.hash", "text": "†input.text", "algorithm": "†input.algorithm"},
    ]));
    let done = host.run(&[
        "plan",
        "check",
        "plan.json",
        "--input",
        r#"{"digits": 3, "text": "a"}"#,
    ]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let faults: Vec<_> = done.stdout.lines().collect();
    for (begin, end) in [
        (
            "fault: plan[1]: there is no tool \"calculator.guess\"",
            "module calculator has calculator.evaluate",
        ),
        (
            "fault: plan[2]: there is no module for the tool \"nowhere.at_all\"",
            "see `toolhold modules list`",
        ),
        (
            "fault: plan[3]: there is no tool \"think\"; write MODULE.TOOL",
            "a saved plan runs without one",
        ),
        (
            "fault: plan[0]/expression: 7 is not of type \"string\"",
            "see `toolhold modules inspect calculator`",
        ),
        (
            "fault: plan[0]: Additional properties are not allowed ('precision' was unexpected)",
            "inspect calculator`",
        ),
        (
            "fault: plan[5]/algorithm: \"crc32\" is not one of \"sha256\"",
            "see `toolhold modules inspect text`",
        ),
        (
            "fault: the plan has a cycle, so none of its steps can be the first: text.regex → †state.many → text.regex (plan[4])",
            "another place",
        ),
        (
            "fault: plan[4]/text: nothing provides †state.nowhere",
            "read something that is there",
        ),
        (
            "fault: plan[6]/algorithm: nothing provides †input.algorithm",
            "add a step that writes it",
        ),
    ] {
        assert!(
            faults
                .iter()
                .any(|line| line.starts_with(begin) && line.ends_with(end)),
            "{begin} … {end}: {}",
            done.stdout
        );
    }
    assert_eq!(faults.len(), 9, "{}", done.stdout);

    let done = host.run(&["plan", "check", "plan.json", "--input", "{}", "--json"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let report = json_of(&done);
    let kinds: Vec<_> = report["faults"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|fault| {
            (
                fault["place"].as_str(),
                fault["kind"].as_str().expect("a kind"),
            )
        })
        .collect();
    assert!(
        kinds.contains(&(Some("plan[0]/expression"), "arguments")),
        "{kinds:?}"
    );
    assert!(kinds.contains(&(Some("plan[4]"), "order")), "{kinds:?}");
    assert!(
        kinds.contains(&(Some("plan[5]/text"), "missing_input")),
        "{kinds:?}"
    );
}

/// Steps read what steps before them write, some of them what nothing writes, and in some plans two steps wait for each
/// other.
#[test]
fn statement_042_13_random_plans_have_the_faults_that_were_put_into_them() {
    const PLACES: [&str; 3] = ["one", "two", "three"];
    let host = Host::new();
    host.ship("text");
    let step = (0..9_usize, 0..PLACES.len(), prop::bool::weighted(0.2));
    let plans = (prop::collection::vec(step, 1..9), any::<bool>());
    let mut runner = TestRunner::deterministic();
    for _ in 0..12 {
        let (steps, has_ring) = plans.new_tree(&mut runner).unwrap().current();
        let mut written: Vec<&str> = Vec::new();
        let mut plan = Vec::new();
        let mut absent = Vec::new();
        let mut add = |text: &str, place: &str| {
            let path = format!("†state.{place}");
            plan.push(json!({"_tool": "text.count", "text": text, "_outputPath": path}));
        };
        for (index, (read, write, is_absent)) in steps.into_iter().enumerate() {
            let text = if is_absent {
                absent.push(format!("plan[{index}]/text"));
                "†state.nowhere.words".to_owned()
            } else {
                let places = written.len().max(1);
                let place = written.get(read % places);
                place.map_or("a b".to_owned(), |place| format!("†state.{place}.words"))
            };
            add(&text, PLACES[write]);
            written.push(PLACES[write]);
        }
        if has_ring {
            add("†state.ring.words", "round");
            add("†state.round.words", "ring");
        }
        let plan = json!(plan);
        host.write("plan.json", plan.to_string());
        let done = host.run(&["plan", "check", "plan.json", "--json"]);
        let report = json_of(&done);
        let faults = report["faults"].as_array().unwrap();
        let of = |kind: &str| -> Vec<&Value> {
            let found = faults.iter().filter(|fault| fault["kind"] == kind);
            found.collect()
        };
        let missing: Vec<&str> = of("missing_input")
            .into_iter()
            .filter_map(|fault| fault["place"].as_str())
            .collect();
        assert_eq!(missing, absent, "{plan}: {report}");
        assert_eq!(of("order").len(), usize::from(has_ring), "{plan}: {report}");
        let all = absent.len() + usize::from(has_ring);
        assert_eq!(faults.len(), all, "{plan}: {report}");
        assert_eq!(done.code, Some(i32::from(all > 0)), "{plan}: {done:?}");
    }
}

#[test]
fn an_invalid_plan_is_reported() {
    let host = Host::new();
    host.ship("text")
        .write("no.json", "{\"plan\": 7}")
        .write("bad.json", r#"[{"_tool": "text.count", "text": "†"}, 5]"#)
        .write("text.json", "steps: none")
        .write(
            "cycle.json",
            r#"[{"_tool": "a", "x": "†s", "_outputPath": "†s"}]"#,
        );
    for (arguments, expect) in [
        (vec!["show", "no.json"], "an object whose steps are 7"),
        (vec!["check", "no.json"], "an object whose steps are 7"),
        (vec!["check", "bad.json"], "fault: plan[1] is no call"),
        (
            vec!["check", "bad.json"],
            "fault: plan[0]/text: \"†\" is no reference",
        ),
        (vec!["show", "cycle.json"], "the plan has a cycle"),
        (vec!["check", "text.json"], "text.json is not JSON"),
        (
            vec!["dry-run", "missing.json"],
            "missing.json cannot be read",
        ),
        (
            vec!["dry-run", "cycle.json", "--input", "[]"],
            "--input must be a JSON object",
        ),
        (
            vec!["dry-run", "cycle.json", "--input", "{x}"],
            "--input is not JSON",
        ),
        (
            vec!["dry-run", "cycle.json", "--input", "bad.json"],
            "must be a JSON object",
        ),
    ] {
        let done = host.run(&[&["plan"], arguments.as_slice()].concat());
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        let printed = format!("{}{}", done.stdout, done.stderr);
        assert!(printed.contains(expect), "{arguments:?}: {printed}");
    }
}

#[test]
fn a_dry_run_shows_order_and_what_tools_may_do() {
    let host = Host::new();
    host.ship("files").ship("text").write("notes/a.txt", "hello").write(
        "plan.json",
        json!([
            {"_tool": "files.read", "path": "†input.path", "_outputPath": "†state.file"},
            {"_tool": "text.count", "text": "†state.file.content", "_outputPath": "†state.count"},
            {"_tool": "files.write", "path": "out.txt", "content": "†state.file.content", "_outputPath": "†state.done"},
            {"_tool": "files.write", "path": "log.txt", "content": "†state.file.content", "_outputPath": "†state.done"},
        ])
        .to_string(),
    );
    let run = |more: &[&str]| {
        let begin = [
            "plan",
            "dry-run",
            "plan.json",
            "--dir",
            "files=notes:/data:rw",
        ];
        host.run(&[&begin, more].concat())
    };
    let done = run(&["--input", r#"{"path": "a.txt"}"#]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "4 steps in 3 layers, at most 2 at the same time",
        "files.read  only reads  plan[0]",
        "files.write  may write and destroy  plan[2], plan[3]",
        "/notes, which it sees as /data",
        "text.count  only reads  plan[1]\n    may compute on what it is given, and nothing else",
        "it could run: nothing was run",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert!(!host.path().join("notes/out.txt").exists(), "nothing runs");

    let done = run(&[]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stdout
            .contains("fault: plan[0]/path: nothing provides †input.path"),
        "{done:?}"
    );

    let done = run(&["--input", r#"{"path": "a.txt"}"#, "--json"]);
    let report = json_of(&done);
    for (pointer, expect) in [
        ("/layers", json!([[0], [1, 2], [3]])),
        ("/order", json!([0, 1, 2, 3])),
        ("/width", json!(2)),
        ("/mode", json!("eager")),
        ("/tools/1/name", json!("files.write")),
        ("/tools/1/writes", json!(true)),
        ("/tools/1/steps", json!(["plan[2]", "plan[3]"])),
        ("/tools/2/writes", json!(false)),
        ("/tools/2/may", json!([])),
        ("/warnings", json!([])),
        ("/steps/1/_tool", json!("text.count")),
    ] {
        assert_eq!(
            report.pointer(pointer),
            Some(&expect),
            "{pointer}: {report}"
        );
    }
}

#[test]
fn an_unapproved_module_is_a_fault() {
    let host = Host::new();
    host.ship("text")
        .write("plan.json", r#"[{"_tool": "text.hash", "text": "a"}]"#)
        .write("toolhold.toml", "[modules]\npinning = \"always\"\n");
    let done = host.run(&["plan", "check", "plan.json"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stdout
            .contains("fault: plan[0]: module text is disabled: ")
            && done.stdout.contains("toolhold modules approve text"),
        "{done:?}"
    );
}

#[test]
fn text_of_a_plan_cannot_drive_the_terminal() {
    let host = host(&json!([
        {"_tool": "text.\u{1b}[2J\nin order: 9 steps\u{202e}", "\u{1b}]0;x": "†state.x", "_instance": "\u{1b}[31m"},
        {"_tool": "text.hash", "text": "a", "a\nin order: 9 steps\u{1b}": 1},
    ]));
    for arguments in [
        vec!["show", "plan.json"],
        vec!["show", "plan.json", "--format", "mermaid"],
        vec!["show", "plan.json", "--format", "dot"],
        vec!["check", "plan.json"],
        vec!["dry-run", "plan.json"],
    ] {
        let done = host.run(&[&["plan"], arguments.as_slice()].concat());
        let printed = format!("{}{}", done.stdout, done.stderr);
        assert!(
            !printed.contains(['\u{1b}', '\u{202e}']) && !printed.contains("\nin order"),
            "{arguments:?}: {printed:?}"
        );
    }
}

/// A check knows what a run of the plan would: data, and what authors of tools fixed.
#[test]
fn a_context_brings_data_and_tools() {
    let host = host(&json!([
        {"_tool": "text.count", "text": "†state.said.text"},
        {"_tool": "shout", "text": "†user.name"},
        {"_tool": "text.count", "text": "†user.surname"},
        {"_tool": "shout", "text": 7},
    ]));
    let properties = json!({
        "text": {"type": "string"},
        "_module": {"const": "text#reverse"},
        "_outputPath": {"const": "†state.said"},
    });
    let shout = json!({"type": "object", "properties": properties});
    let context = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        {"type": "tool", "tool": {"shout": shout}},
    ]);
    host.write("context.json", context.to_string());
    let done = host.run(&["plan", "check", "plan.json", "--context", "context.json"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in [
        "fault: plan[2]/text: nothing provides †user.surname",
        "fault: plan[3]/text: 7 is not of type \"string\"; see the tool message that defines \"shout\"",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert_eq!(done.stdout.matches("fault:").count(), 2, "{}", done.stdout);

    let nothing = json!([{"type": "tool", "tool": {"shout": {"type": "object", "properties": {"_module": {"const": "nowhere"}}}}}]);
    host.write("context.json", nothing.to_string());
    let done = host.run(&["plan", "check", "plan.json", "--context", "context.json"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stdout.contains("fault: ") && done.stdout.contains("there is no module \"nowhere\""),
        "{done:?}"
    );
}

/// As its name says: the flag alone has the model plan, and nothing is run.
#[test]
fn a_run_with_dry_run_needs_no_plan_message_and_runs_nothing() {
    let host = Host::new();
    host.ship("text");
    let call = json!({"_tool": "text.count", "_reasoningForCall": "r", "text": "a b"});
    for (solution, stdout, said) in [
        (
            json!({"calls": [call], "output": null}),
            "text.count",
            "only reads",
        ),
        (
            json!({"calls": [], "output": "two"}),
            "two",
            "without a call",
        ),
    ] {
        let endpoint = Endpoint::start(Scenario::new([Reply::solution(solution)]));
        let url = endpoint.base_url();
        let done = host.run(&["run", "t", "--base-url", &url, "--model", "m", "--dry-run"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains(stdout), "{done:?}");
        assert!(done.stderr.contains(said), "{said}: {done:?}");
        assert!(done.stderr.contains("nothing was run"), "{done:?}");
        let journal = host.run(&["show", "last", "--json"]).stdout;
        assert!(!journal.contains("\"event\":\"tool_start\""), "{journal}");
    }
}

/// `plan` finds the plan of a run with --dry-run by its id, with the context that the plan reads.
#[test]
fn plan_run_finds_what_a_dry_run_saved_with_its_context() {
    let host = Host::new();
    host.ship("text").write(
        "context.json",
        json!([
            {"type": "plan", "plan": [], "mode": "lazy"},
            {"type": "state", "state": {"poem": "a rose is a rose"}},
        ])
        .to_string(),
    );
    let missing = host.run(&["plan", "run", "last"]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(
        missing.stderr.contains("there is no file last"),
        "{missing:?}"
    );
    let call = json!({"_tool": "text.count", "_reasoningForCall": "r", "text": "†state.poem", "_outputPath": "†state.counted"});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [call], "output": null})),
        Reply::solution(json!({"calls": [], "output": "no plan"})),
    ]));
    let url = endpoint.base_url();
    let ask = ["run", "count the words", "--base-url", &url, "--model", "m"];
    let saved = host.run(&[&ask[..], &["--dry-run", "--context", "context.json"]].concat());
    assert_eq!(saved.code, Some(0), "{saved:?}");
    // By its id: another run may be the last one by then.
    let run = saved
        .stderr
        .split("\nrun ")
        .nth(1)
        .and_then(|rest| rest.split(';').next());
    let advice = format!("toolhold plan run {} runs it", run.expect("an id"));
    assert!(saved.stderr.contains(&advice), "{saved:?}");
    let drawn = host.run(&["plan", "show", "last"]);
    assert!(drawn.stdout.contains("text.count"), "{drawn:?}");
    let checked = host.run(&["plan", "check", "last"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let done = host.run(&["plan", "run", "last"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("\"words\": 5"), "{done:?}");
    assert_eq!(endpoint.requests().len(), 1, "no model is asked");
    // The last run is now no dry run.
    let again = host.run(&["plan", "run", "last"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("made no plan"), "{again:?}");
}
