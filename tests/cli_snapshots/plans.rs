//! `toolhold plan`, `request` and `plan-capacity`.

use super::{Terminal, compare};
use serde_json::json;

#[test]
fn a_plan_is_drawn_checked_rehearsed_and_run() {
    let mut terminal = Terminal::with(&["calculator", "text"]);
    let plan = json!({"type": "plan", "mode": "lazy", "plan": [
        {"_tool": "text.reverse", "text": "†state.price.value", "_outputPath": "†state.report"},
        {"_tool": "calculator.evaluate", "expression": "†state.formula.replaced", "_outputPath": "†state.price"},
        {"_tool": "text.regex", "text": "†input.formula", "pattern": "n", "replacement": "†state.count.words",
            "_outputPath": "†state.formula"},
        {"_tool": "text.count", "text": "†input.text", "_outputPath": "†state.count"},
    ]});
    let wrong = json!([
        {"_tool": "text.cuont", "text": "a", "_outputPath": "†state.a"},
        {"_tool": "text.count", "txt": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "text.count", "text": "†state.c"},
        {"_tool": "nowhere.to", "x": 1},
    ]);
    terminal
        .host
        .write("plan.json", plan.to_string())
        .write("wrong.json", wrong.to_string())
        .write("given.json", r#"{"text": "one two", "formula": "n * 3"}"#);
    terminal
        .run(&["plan", "show", "plan.json"])
        .run(&["plan", "check", "plan.json"])
        .run(&["plan", "check", "wrong.json"])
        .run(&["plan", "dry-run", "plan.json", "--input", "given.json"])
        .run(&["plan", "run", "plan.json", "--input", "given.json"])
        .run(&["plan", "run", "wrong.json"]);
    terminal.is_as("plan");
}

#[test]
fn saved_requests_are_listed() {
    let mut terminal = Terminal::new();
    let request = json!({
        "description": "Greets a person.",
        "context": [{"type": "input", "input": {"name": "Ada"}, "schema": {"type": "object",
            "properties": {"name": {"type": "string"}}, "required": ["name"]}}],
        "schema": {"type": "string"},
    });
    terminal
        .host
        .write("requests/greet.json", request.to_string())
        .write("requests/wrong.json", "{");
    terminal.run(&["request", "list"]).is_as("request_list");
}

/// All of it follows from the flags, so that nothing is a placeholder.
#[test]
fn capacity_is_planned() {
    let mut terminal = Terminal::new();
    terminal.host.write(
        "toolhold.toml",
        "[run]\ncurrency = \"EUR\"\n[endpoints.default]\nprice_per_million = { prompt = 0.5, completion = 2 }\n",
    );
    let flags = "--ttft-ms 200,900 --itl-ms 20 --prompt-tokens 1200 --completion-tokens 150,400 --target-qps 3";
    let flags: Vec<&str> = flags.split(' ').collect();
    terminal.run(&[&["plan-capacity"], flags.as_slice()].concat());
    compare("output", "plan_capacity", &terminal.text, &[]);
}
