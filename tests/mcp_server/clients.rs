//! Clients that others wrote, and our own, over both transports.

use super::{HttpMcpServer, MODERN, answers, host};
use serde_json::{Value, json};
use std::process::{Command, Output};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::foreign;
use support::host::{Host, binary};
use support::sandbox::repository;

const PYTHON: &str = "mcp==2.3.0";
const NODE: &str = "@modelcontextprotocol/client@2.4.0";

/// The command that starts our server, as a client takes it.
fn command(host: &Host, arguments: &[&str]) -> String {
    let command = host.command(&[&["mcp"], arguments].concat());
    let mut words = vec![
        "env".to_owned(),
        "-C".into(),
        host.path().display().to_string(),
    ];
    for (name, value) in command.get_envs() {
        let value = value.unwrap_or_default().to_string_lossy();
        words.push(format!("{}={value}", name.to_string_lossy()));
    }
    words.push(binary().display().to_string());
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    json!(words).to_string()
}

/// Runs a client of `language` against both transports and in both eras.
fn tried(language: &str, client: impl Fn(&[&str]) -> Output) {
    for (transport, mode) in [
        ("stdio", MODERN),
        ("stdio", "legacy"),
        ("http", MODERN),
        ("http", "legacy"),
    ] {
        let host = host();
        host.write("guarded.toml", "[decisions]\nalways = [\"probe.answer\"]\n");
        host.write("late.part", answers(7));
        let flags = ["--config", "guarded.toml"];
        let web = (transport == "http").then(|| HttpMcpServer::start(&host, &flags, &[]));
        let target = web
            .as_ref()
            .map_or_else(|| command(&host, &flags), HttpMcpServer::url);
        let from = host.path().join("late.part").display().to_string();
        let to = host.path().join("modules/late.wasm").display().to_string();
        let done = client(&[&target, mode, &from, &to]);
        let words = String::from_utf8_lossy(&done.stdout);
        let errors = String::from_utf8_lossy(&done.stderr);
        let case = format!("{language}, {transport}, {mode}: {words}\n{errors}");
        assert!(done.status.success(), "{case}");
        let seen: Value = serde_json::from_str(words.trim()).unwrap_or_else(|_| panic!("{case}"));
        let wrapped = |n: i64| {
            if mode == "legacy" {
                json!({"result": n})
            } else {
                json!(n)
            }
        };
        let calculator = json!({"title": "Calculate", "output": true, "read_only": true});
        assert_eq!(seen["tools"]["calculator-evaluate"], calculator, "{case}");
        assert_eq!(
            seen["calculated"],
            json!([false, {"value": "1024"}]),
            "{case}"
        );
        assert_eq!(seen["failed"][0], true, "{case}");
        assert_eq!(
            (&seen["steps"], &seen["answered"]),
            (&wrapped(3), &wrapped(42)),
            "{case}"
        );
        let noted = seen["progress"].as_array().unwrap().iter();
        let noted: Vec<_> = noted.filter_map(|note| note[0].as_f64()).collect();
        assert_eq!(noted.first(), Some(&1.0), "{case}");
        let asked = seen["asked"][0].as_str().unwrap_or_default();
        assert!(asked.contains("probe.answer"), "{case}");
        assert!(
            seen["unknown"].to_string().contains("Unknown tool"),
            "{case}"
        );
        assert_eq!(seen["dropped"], true, "{case}");
    }
}

#[test]
fn the_official_python_client_works_with_it() {
    let Some(bin) = foreign::python("mcp-client-python-2.3.0", &[PYTHON]) else {
        return;
    };
    let script = repository().join("tests/fixtures/mcp_clients/client.py");
    tried("Python", |arguments| {
        let mut client = Command::new(bin.join("python"));
        client
            .arg(&script)
            .args(arguments)
            .output()
            .expect("it runs")
    });
}

#[test]
fn the_official_node_client_works_with_it() {
    let Some(folder) = foreign::node("mcp-client-node-2.4.0", &[NODE]) else {
        return;
    };
    let script = repository().join("tests/fixtures/mcp_clients/client.mjs");
    tried("Node", |arguments| {
        let mut client = Command::new("node");
        client.arg(&script).args(arguments).current_dir(&folder);
        client.output().expect("it runs")
    });
}

#[test]
fn our_own_client_works_with_it() {
    let serving = host();
    let web = HttpMcpServer::start(&serving, &[], &[]);
    let table = |how: String| {
        format!("[mcp.t]\n{how}\ntools = [\"calculator-evaluate\", \"probe-answer\"]\n")
    };
    for how in [
        format!("command = {}", command(&serving, &[])),
        format!("url = {:?}", web.url()),
    ] {
        let host = Host::new();
        host.write("mcp.toml", table(how.clone()));
        let tool = json!({
            "type": "object",
            "properties": {"_activity": {"const": "mcp:t/calculator-evaluate"}, "expression": {"type": "string"}},
            "required": ["expression"],
        });
        let context = json!([{"type": "tool", "tool": {"sum": tool}}]);
        host.write("context.json", context.to_string());
        let call = json!({"_tool": "sum", "_reasoningForCall": "because", "expression": "6*7"});
        let endpoint = Endpoint::start(Scenario::new([
            Reply::solution(json!({"calls": [call], "output": null})),
            Reply::solution(json!({"calls": [], "output": json!("done")})),
        ]));
        let url = endpoint.base_url();
        let arguments = [
            "--config",
            "mcp.toml",
            "run",
            "t",
            "--base-url",
            &url,
            "--context",
            "context.json",
        ];
        let done = host.run(&arguments);
        assert_eq!(
            (done.code, done.stdout.trim()),
            (Some(0), "done"),
            "{how} {done:?}"
        );
        let told = endpoint.requests()[1]["messages"].to_string();
        assert!(told.contains("42"), "{told}");
    }
}
