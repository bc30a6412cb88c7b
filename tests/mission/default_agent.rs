//! 042.12: `[agents.default]` holds for runs at a terminal, however they begin.

use crate::chat::chat;
use crate::cli::killed_while_it_waits;
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Scenario};
use support::host::Host;
use support::transcript::{answers, calls};

/// A tool, a limit and a shield.
const AGENT: &str = "[agents.default]\ntools = [\"calculator\"]\nrun = { max_steps = 3 }\n\
     shields.mails = { kind = \"pii\", block = [\"email\"], places = [\"input\"] }\n";

/// A host with this default agent.
fn host() -> Host {
    let host = Host::new();
    host.ship("calculator")
        .ship("text")
        .write("toolhold.toml", AGENT);
    host
}

#[test]
fn statement_042_12_the_default_agent_holds_for_saved_plans() {
    let host = host();
    let sum =
        json!({"_tool": "calculator.evaluate", "expression": "1+1", "_outputPath": "†state.sum"});
    let back = json!({"_tool": "text.reverse", "text": "abc", "_outputPath": "†state.back"});
    host.write("sum.json", json!([sum]).to_string())
        .write("both.json", json!([sum, back]).to_string());
    let done = host.run(&["plan", "run", "sum.json", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let first: Value = serde_json::from_str(done.stdout.lines().next().unwrap()).unwrap();
    let request = &first["request"];
    assert_eq!(request["settings"]["max_steps"], 3, "{first}");
    assert_eq!(request["allowed"], json!(["calculator"]), "{first}");
    let reason = "plan[1]: text.reverse is none of the tools of [agents.default]";
    for command in ["check", "dry-run", "run"] {
        let done = host.run(&["plan", command, "sum.json"]);
        assert_eq!(done.code, Some(0), "{command}: {done:?}");
        let refused = host.run(&["plan", command, "both.json"]);
        assert_eq!(refused.code, Some(1), "{command}: {refused:?}");
        let told = [refused.stdout, refused.stderr].concat();
        assert!(told.contains(reason), "{command}: {told}");
    }
    // A tool of the context is bound as in a run of the plan.
    let properties = json!({"_module": {"const": "text#reverse"}, "text": {"type": "string"}});
    let back = json!({"type": "object", "properties": properties});
    let tool = json!([{"type": "tool", "tool": {"back": back}}]);
    let step = json!([{"_tool": "back", "text": "abc"}]);
    host.write("context.json", tool.to_string())
        .write("back.json", step.to_string());
    for command in ["check", "dry-run", "run"] {
        let refused = host.run(&["plan", command, "back.json", "--context", "context.json"]);
        assert_ne!(refused.code, Some(0), "{command}: {refused:?}");
        let told = [refused.stdout, refused.stderr].concat();
        assert!(
            told.contains("not among the tools of this run"),
            "{command}: {told}"
        );
    }
}

/// The run goes on under the policy that it began under: its agent's.
#[test]
fn statement_042_12_the_default_agent_holds_for_resumed_runs() {
    let host = host();
    let waiting = format!("{AGENT}[decisions]\nalways = [\"calculator.evaluate\"]\n");
    host.write("toolhold.toml", waiting);
    let call = calls([("calculator.evaluate", json!({"expression": "1+1"}))]);
    let endpoint = Endpoint::start(Scenario::new([call, answers("2")]));
    let url = endpoint.base_url();
    let at = ["--base-url", &url, "--model", "m"];
    killed_while_it_waits(&host, &[&["run", "How much is 1+1?"], &at[..]].concat());
    let done = host.run(&[&["resume", "last"], &at[..]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!done.stderr.contains("policy:"), "{done:?}");
    let last = endpoint.requests().swap_remove(1).to_string();
    assert!(!last.contains("text.reverse"), "{last}");

    // Without its shield the policy is another one, and that is said.
    let endpoint = Endpoint::start(Scenario::new([
        calls([("calculator.evaluate", json!({"expression": "1+1"}))]),
        answers("2"),
    ]));
    let url = endpoint.base_url();
    let at = ["--base-url", &url, "--model", "m"];
    killed_while_it_waits(&host, &[&["run", "How much is 1+1?"], &at[..]].concat());
    host.write(
        "toolhold.toml",
        "[agents.default]\ntools = [\"calculator\"]\n",
    );
    let done = host.run(&[&["resume", "last"], &at[..]].concat());
    assert!(done.stderr.contains("policy:"), "{done:?}");
}

#[test]
fn statement_042_12_the_default_agent_holds_for_chats_and_saved_requests() {
    let host = host();
    let request = json!({"context": [{"role": "user", "content": "Write to ann@example.com."}]});
    host.write("letter.json", request.to_string());
    let endpoint = Endpoint::start(Scenario::new([answers("Written."), answers("Written.")]));
    let url = endpoint.base_url();
    let done = host.run(&["request", "run", "letter.json", "--base-url", &url]);
    assert!(done.stderr.contains("mails"), "{done:?}");
    let done = chat(&host, &endpoint, &[], "Write to ann@example.com.\n");
    assert!(done.stderr.contains("mails"), "{done:?}");
    assert!(endpoint.requests().is_empty(), "{:?}", endpoint.requests());
}
