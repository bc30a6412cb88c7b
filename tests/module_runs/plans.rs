//! docs/protocol.md, 8: saved plans, with the binary and shipped modules.

use serde_json::{Value, json};
use std::process::Stdio;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};

fn host() -> Host {
    let host = Host::new();
    host.ship("calculator").ship("text");
    host
}

/// Counts words, multiplies them, and hashes the result.
fn report() -> Value {
    json!({"type": "plan", "mode": "lazy", "plan": [
        {"_tool": "calculator.evaluate", "expression": "†state.formula.replaced", "_outputPath": "†state.price"},
        {"_tool": "text.regex", "text": "†input.formula", "pattern": "n", "replacement": "†input.n", "_outputPath": "†state.formula"},
        {"_tool": "text.count", "text": "†input.text", "_outputPath": "†state.count"},
    ]})
}

fn json_of(done: &Finished) -> Value {
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
}

#[test]
fn shipped_modules_run_a_saved_plan_on_two_inputs_and_the_runs_are_recorded() {
    let host = host();
    host.write("plan.json", report().to_string()).write(
        "two.json",
        r#"{"formula": "n * 2", "n": "21", "text": "one two"}"#,
    );
    for (given, words, price) in [
        (
            r#"{"formula": "n + 1", "n": "6", "text": "one two three"}"#,
            3,
            "7",
        ),
        ("@two.json", 2, "42"),
    ] {
        let done = host.run(&["plan", "run", "plan.json", "--input", given]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let output = json_of(&done);
        assert_eq!(output["state"]["count"]["words"], words, "{output}");
        assert_eq!(output["state"]["price"]["value"], price, "{output}");
        let shown = host.run(&["show", "last"]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(
            shown.stdout.contains("a saved plan of 3 steps"),
            "{shown:?}"
        );
        assert!(shown.stdout.ends_with(&done.stdout), "{shown:?}");
        let replayed = host.run(&["runs", "replay", "last"]);
        assert!(
            replayed.stdout.contains("comes to the same"),
            "{replayed:?}"
        );
    }
    let runs = host.run(&["runs"]).stdout;
    let ids: Vec<&str> = runs
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(ids.len(), 2, "{runs}");
    let differ = host.run(&["runs", "diff", ids[0], ids[1]]);
    assert_eq!(differ.code, Some(1), "{differ:?}");
    assert!(differ.stdout.contains("one two three"), "{differ:?}");
    assert_eq!(host.run(&["runs", "diff", ids[0], ids[0]]).code, Some(0));
}

#[test]
fn events_of_a_saved_plan_are_those_of_any_run() {
    let host = host();
    host.write(
        "plan.json",
        json!([{"_tool": "text.count", "text": "a b", "_outputPath": "†state.n"}]).to_string(),
    );
    let done = host.run(&["plan", "run", "plan.json", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let kinds: Vec<String> = done
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["event"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(kinds, ["run", "plan", "tool_start", "tool_result", "done"]);
}

/// A plan, the exit code of its run, and what is said on stderr.
#[test]
fn exit_codes_say_whether_a_saved_plan_was_run_and_whether_all_of_it_worked() {
    let host = host();
    let latent = json!([{"type": "tool", "tool": {"think": {"type": "object", "properties": {"_output": {"type": "integer"}}}}}]);
    let sub = json!([{"type": "tool", "tool": {"ask": {"type": "object", "properties": {"_module": {"const": "summary"}}}}}]);
    host.write("latent.json", latent.to_string())
        .write("sub.json", sub.to_string())
        .write(
            "requests/summary.json",
            r#"{"context": [{"role": "user", "content": "Sum up."}]}"#,
        );
    for (plan, context, code, said) in [
        (
            json!([{"_tool": "text.count", "text": "a"}]),
            None,
            0,
            "text.count",
        ),
        (
            json!([{"_tool": "calculator.evaluate", "expression": "1/0"}, {"_tool": "text.count", "text": "a"}]),
            None,
            5,
            "1 of the plan's calls failed: calculator.evaluate",
        ),
        (
            json!([{"_tool": "think", "_output": 5}]),
            None,
            1,
            "a model wrote its _output, and a saved plan runs without one",
        ),
        (
            json!([{"_tool": "think", "_output": 5}]),
            Some("latent.json"),
            1,
            "plan[0] calls \"think\", and a model writes its result (it is latent)",
        ),
        (
            json!([{"_tool": "ask"}]),
            Some("sub.json"),
            1,
            "plan[0] calls \"ask\", and a sub-agent answers it",
        ),
        (
            json!([{"_tool": "text.guess"}]),
            None,
            1,
            "plan[0]: there is no tool \"text.guess\"; module text has",
        ),
        (
            json!([{"_tool": "nowhere.x"}]),
            None,
            1,
            "there is no module for the tool \"nowhere.x\"",
        ),
        (
            json!([{"_tool": "text.count", "text": 7}]),
            None,
            1,
            "plan[0]/text: 7 is not of type \"string\"",
        ),
        (
            json!([{"_tool": "text.count", "text": "†input.t"}]),
            None,
            1,
            "nothing provides †input.t",
        ),
        (json!([]), None, 1, "it holds no calls"),
        (
            json!({"type": "state"}),
            None,
            1,
            "a message of type \"state\"",
        ),
    ] {
        host.write("plan.json", plan.to_string());
        let before = host.run(&["runs"]).stdout.lines().count();
        let mut arguments = vec!["plan", "run", "plan.json"];
        arguments.extend(context.iter().flat_map(|file| ["--context", file]));
        let done = host.run(&arguments);
        assert_eq!(done.code, Some(code), "{plan}: {done:?}");
        assert!(done.stderr.contains(said), "{plan}: {done:?}");
        // What was not run left no record that could be gone on with.
        let runs = host.run(&["runs"]).stdout.lines().count();
        assert_eq!(runs - before, usize::from(code != 1), "{plan}");
    }
}

#[test]
fn an_unapproved_module_runs_in_no_plan() {
    let host = host();
    host.write(
        "plan.json",
        json!([{"_tool": "text.count", "text": "a"}]).to_string(),
    )
    .write("toolhold.toml", "[modules]\npinning = \"always\"\n");
    let done = host.run(&["plan", "run", "plan.json"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("module text is disabled"), "{done:?}");
    assert_eq!(
        host.run(&["modules", "approve", "text", "--yes"]).code,
        Some(0)
    );
    assert_eq!(host.run(&["plan", "run", "plan.json"]).code, Some(0));
}

#[test]
fn tools_and_data_of_a_saved_plan_may_come_from_a_context() {
    let host = host();
    let context = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        {"type": "tool", "tool": {"shout": {"type": "object", "properties": {
            "text": {"type": "string"}, "_module": {"const": "text#reverse"}, "_outputPath": {"const": "†state.said"}}}}},
    ]);
    host.write("context.json", context.to_string())
        .write("plan.json", json!([{"_tool": "text.count", "text": "†state.said.text || †state.said.reversed || †state.said", "_outputPath": "†state.n"}, {"_tool": "shout", "text": "†user.name"}]).to_string());
    let done = host.run(&["plan", "run", "plan.json", "--context", "context.json"]);
    assert!(done.stderr.contains("adA"), "{done:?}");
}

/// The run waits for a person, its process is killed, and it is gone on with: without an endpoint.
#[test]
fn a_saved_plan_that_was_interrupted_is_resumed_without_a_model() {
    let host = host();
    host.write("toolhold.toml", "[decisions]\nalways = [\"text.count\"]\n")
        .write(
            "plan.json",
            json!([
                {"_tool": "calculator.evaluate", "expression": "1+1", "_outputPath": "†state.two"},
                {"_tool": "text.count", "text": "a b", "_outputPath": "†state.n"},
            ])
            .to_string(),
        );
    let mut child = host
        .command(&["plan", "run", "plan.json"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let call = host.waiting_call();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(host.run(&["approvals", "approve", &call]).code, Some(0));
    let done = host.run(&["resume", "last"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let output = json_of(&done);
    assert_eq!(output["state"]["two"]["value"], "2", "{output}");
    assert_eq!(output["state"]["n"]["words"], 2, "{output}");
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
}

#[test]
fn a_rehearsed_plan_is_printed_with_what_its_tools_may_do_and_can_be_run() {
    let steps = json!([
        {"_tool": "text.count", "text": "†input.text", "_outputPath": "†state.n"},
        {"_tool": "calculator.evaluate", "expression": "1+1"},
    ]);
    let endpoint = Endpoint::start(Scenario::new([Reply::solution(
        json!({"calls": steps.clone(), "output": null}),
    )]));
    let host = host();
    host.write(
        "context.json",
        r#"[{"type": "plan", "plan": [], "mode": "lazy"}]"#,
    );
    let url = endpoint.base_url();
    let done = host.run(&[
        "run",
        "Plan it.",
        "--context",
        "context.json",
        "--dry-run",
        "--base-url",
        &url,
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let planned = json_of(&done);
    assert_eq!(planned["plan"], steps);
    assert_eq!(planned["layers"], json!([[0, 1]]));
    assert_eq!(planned["needs"][0]["paths"], json!(["†input.text"]));
    for part in [
        "2 steps in 1 layer, at most 2 at the same time",
        "text.count  only reads  plan[0]",
        "may compute on what it is given, and nothing else",
        "nothing was run",
    ] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    host.write("plan.json", done.stdout);
    let done = host.run(&[
        "plan",
        "run",
        "plan.json",
        "--input",
        r#"{"text": "a b c"}"#,
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(json_of(&done)["state"]["n"]["words"], 3);
}
