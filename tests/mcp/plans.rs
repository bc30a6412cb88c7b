//! Saved plans that call tools of MCP servers: checked and rehearsed against what was approved, and
//! run with a real server.

use super::*;
use std::process::Stdio;

/// A plan that calls one tool as it is offered, and one through a tool message.
const PLAN: &str = r#"[
    {"_tool": "s.add", "a": 40, "b": "†input.b", "_outputPath": "†state.total"},
    {"_tool": "again", "text": "it is said", "_outputPath": "†state.said"}
]"#;
const INPUT: &str = r#"{"b": 2}"#;

fn bench(flags: &[&str], table: &str) -> McpFixture {
    let bench = McpFixture::new(flags, table);
    let again = json!({
        "type": "object",
        "description": "Says it again.",
        "properties": {"_activity": {"const": "mcp:s/echo"}, "text": {"type": "string"}},
        "required": ["text"],
    });
    let context = json!([{"type": "tool", "tool": {"again": again}}]);
    bench
        .host
        .write("context.json", context.to_string())
        .write("plan.json", PLAN);
    bench
}

fn plan(bench: &McpFixture, command: &str, more: &[&str]) -> Finished {
    let begin = ["plan", command, "plan.json", "--context", "context.json"];
    bench.cli(&[&begin, more].concat())
}

fn approve(bench: &McpFixture) {
    let done = bench.cli(&["mcp", "approve", "s", "--yes"]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn a_plan_is_checked_against_what_was_approved_and_nothing_is_started() {
    let bench = bench(&[], OFFERS);
    approve(&bench);
    let starts = bench.starts();
    let done = plan(&bench, "check", &["--input", INPUT]);
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "in order: 2 steps\n"),
        "{done:?}"
    );
    // What the server said of its parameters holds beside what the tool message says.
    bench.host.write(
        "plan.json",
        json!([
            {"_tool": "s.add", "a": "forty", "b": 2},
            {"_tool": "s.huge"},
            {"_tool": "s.echo", "text": "†input.b"},
            {"_tool": "loose", "text": 7},
            {"_tool": "think"},
        ])
        .to_string(),
    );
    let loose =
        json!({"type": "object", "properties": {"_activity": {"const": "mcp:s/echo"}, "text": {}}});
    let think = json!({"type": "object", "properties": {"_output": {"type": "string"}}});
    bench.host.write(
        "context.json",
        json!([{"type": "tool", "tool": {"loose": loose, "think": think}}]).to_string(),
    );
    let done = plan(&bench, "check", &["--input", INPUT]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in [
        "fault: plan[0]/a: \"forty\" is not of type \"integer\"; see `toolhold mcp inspect s`",
        "fault: plan[1]: the MCP server s has no tool \"huge\" that may be called; there are add, echo",
        "fault: plan[3]/text: 7 is not of type \"string\"; see `toolhold mcp inspect s`",
        "fault: plan[4]: \"think\" is latent: a model writes its result; a saved plan is run without a model",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert_eq!(done.stdout.matches("fault:").count(), 4, "{}", done.stdout);
    assert_eq!(bench.starts(), starts);
    assert!(!bench.log().contains("call "), "{}", bench.log());
}

#[test]
fn a_dry_run_lists_the_tools_of_servers_among_what_it_may_do() {
    let bench = bench(&[], OFFERS);
    approve(&bench);
    let done = plan(&bench, "dry-run", &["--input", INPUT]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "again  only reads  plan[1]\n    is the tool echo of the MCP server s, as it was approved\n",
        "s.add  may write and destroy  plan[0]\n    is the tool add of the MCP server s",
        "    runs outside the sandbox, with your rights: python3 ",
        "it could run: nothing was run",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert!(!bench.log().contains("call "), "{}", bench.log());

    let done = plan(&bench, "dry-run", &["--input", INPUT, "--json"]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    for (pointer, expect) in [
        ("/tools/0/name", json!("again")),
        ("/tools/0/server", json!("s")),
        ("/tools/0/tool", json!("echo")),
        ("/tools/0/writes", json!(false)),
        ("/tools/1/server", json!("s")),
        ("/tools/1/launch/command/0", json!("python3")),
        ("/tools/1/approved_by", json!("person")),
        ("/tools/1/steps", json!(["plan[0]"])),
        ("/faults", json!([])),
    ] {
        assert_eq!(
            report.pointer(pointer),
            Some(&expect),
            "{pointer}: {report}"
        );
    }
}

/// What is wrong with a server is wrong with a plan that uses it.
#[test]
fn a_server_that_cannot_be_used_is_told_before_the_plan_runs() {
    let fault = |bench: &McpFixture, command: &str, expect: &str| {
        let done = plan(bench, command, &["--input", INPUT]);
        assert_eq!(done.code, Some(1), "{command}: {done:?}");
        let line = done.stdout.lines().find(|line| line.contains(expect));
        assert!(
            line.is_some_and(|line| line.starts_with("fault: plan[0]: ")),
            "{command}, {expect}: {done:?}"
        );
        // A run is refused too, for the same reason or at its first call.
        let run = plan(bench, "run", &["--input", INPUT]);
        assert!(matches!(run.code, Some(1 | 5)), "{run:?}");
    };
    let never = bench(&["--stillborn"], OFFERS);
    fault(&never, "check", "the MCP server s: it ended");
    fault(&never, "check", "cannot find its configuration");

    let unasked = bench(&[], &format!("{OFFERS}\n[modules]\npinning = \"always\""));
    fault(&unasked, "check", "it has not been approved yet");
    fault(&unasked, "dry-run", "toolhold mcp approve s");
    assert_eq!(unasked.starts(), 0, "nothing was started for that");

    let kept = bench(&[], "tools = [\"echo\", \"add\"]");
    approve(&kept);
    fault(&kept, "check", "offer = true");

    // A check goes by what was approved; a dry run looks whether that is still there.
    let pulled = bench(&["--rug-pull"], OFFERS);
    approve(&pulled);
    let checked = plan(&pulled, "check", &["--input", INPUT]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    fault(&pulled, "dry-run", "tool echo: description");

    // What it writes its log to is a folder now, so it dies at once.
    let broken = bench(&[], OFFERS);
    approve(&broken);
    let log = broken.host.path().join("log");
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    let checked = plan(&broken, "check", &["--input", INPUT]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    fault(&broken, "dry-run", "the MCP server s: it ended");

    let gone = bench(&[], OFFERS);
    approve(&gone);
    let revoked = gone.cli(&["mcp", "revoke", "s"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    fault(&gone, "check", "its pin was revoked");
}

#[test]
fn a_plan_runs_with_a_server_and_writes_its_results() {
    let bench = bench(&[], OFFERS);
    approve(&bench);
    let done = plan(&bench, "run", &["--input", INPUT]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let output: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        output["state"],
        json!({"total": {"sum": 42}, "said": "it is said"})
    );
    assert_eq!(bench.log().matches("call ").count(), 2, "{}", bench.log());
    assert_eq!(bench.cli(&["runs", "replay", "last"]).code, Some(0));
}

/// Calls of servers wait for a person as others do; what waited is not made after a refusal.
#[test]
fn calls_of_servers_in_a_plan_wait_for_a_person() {
    let table = format!("{OFFERS}\n[decisions]\non_write = [\"s\"]\nnever = [\"s.echo\"]");
    for (verdict, code, made) in [
        (&["approve"][..], 0, true),
        (&["refuse", "too much"], 5, false),
    ] {
        let bench = bench(&[], &table);
        approve(&bench);
        let arguments = ["plan", "run", "plan.json", "--context", "context.json"];
        let arguments = [
            &["--config", "mcp.toml"],
            &arguments[..],
            &["--input", INPUT],
        ]
        .concat();
        let child = bench
            .host
            .command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let call = bench.host.waiting_call();
        assert!(!bench.log().contains("call add"), "{}", bench.log());
        let decided = bench.cli(&[&["approvals", verdict[0], &call], &verdict[1..]].concat());
        assert_eq!(decided.code, Some(0), "{decided:?}");
        let done = finish(child.wait_with_output().unwrap());
        assert_eq!(done.code, Some(code), "{verdict:?}: {done:?}");
        let log = bench.log();
        assert_eq!(log.contains("call add"), made, "{verdict:?}: {log}");
        assert!(log.contains("call echo"), "it needs no decision: {log}");
        if !made {
            assert!(done.stderr.contains("too much"), "{done:?}");
        }
    }
}

#[test]
fn a_module_keeps_its_name_in_a_plan_too() {
    let bench = bench(&[], OFFERS);
    let table = configuration(&[], OFFERS).replace("[mcp.s]", "[mcp.calculator]");
    let step =
        json!([{"_tool": "calculator.evaluate", "expression": "6*7", "_outputPath": "†state.n"}]);
    bench.host.ship("calculator");
    bench
        .host
        .write("mcp.toml", table)
        .write("plan.json", step.to_string());
    for command in ["check", "dry-run", "run"] {
        let done = bench.cli(&["plan", command, "plan.json"]);
        assert_eq!(done.code, Some(0), "{command}: {done:?}");
    }
    assert_eq!(bench.starts(), 0);
}

/// What `toolhold run --dry-run` prints of a plan that the model made.
#[test]
fn a_rehearsed_run_knows_the_tools_of_servers() {
    let bench = bench(&[], OFFERS);
    approve(&bench);
    let context = std::fs::read_to_string(bench.host.path().join("context.json")).unwrap();
    let mut context: Vec<Value> = serde_json::from_str(&context).unwrap();
    context.push(json!({"type": "plan", "plan": [], "mode": "lazy"}));
    bench.host.write("context.json", json!(context).to_string());
    let steps: Vec<Value> = serde_json::from_str(&PLAN.replace("\"†input.b\"", "2")).unwrap();
    let endpoint = Endpoint::start(Scenario::new([Reply::solution(
        json!({"calls": steps, "output": null}),
    )]));
    let done = bench.run(&endpoint, &["--context", "context.json", "--dry-run"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "s.add  may write and destroy  plan[0]",
        "is the tool echo of the MCP server s",
    ] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    assert!(!bench.log().contains("call "), "{}", bench.log());
}
