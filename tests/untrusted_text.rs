//! Text from outside in everything that a person or a program reads of the command line.

use crate::terminal::{at_terminal, rows};
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host};
use support::sandbox::component;
use toolhold_hostile::components as hostile;
use toolhold_policy::text::is_escaped;

/// A terminal's codes in 7 and 8 bits, reordering, hiding, tags, selectors, blank letters, and lines that look like the host's.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\u{7f}\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{85}\u{ad}\u{e0041}\u{fe01}\u{e0100}\u{2800}\u{3164}\u{1d173}\u{fff9}\u{200d}\r\n\npin\n  approved as it is\n";

/// A host with modules whose names and texts are hostile, as far as files can say them.
fn host() -> Host {
    let host = Host::new();
    let text = Value::from(HOSTILE);
    let manifest = format!(
        r#"
        name = "good"
        component = "good.wasm"
        version = {text}
        description = {text}
        [tools.count]
        title = {text}
        description = {text}
        [tools.{text}]
        [[grants.directories]]
        guest = {text}
        reason = {text}
        [[grants.environment]]
        name = {text}
        reason = {text}
        [[grants.tools]]
        name = {text}
        "#
    );
    // TOML has no \u without four digits, and no \/: serde_json writes neither. It wants DEL escaped.
    let manifest = manifest.replace('\u{7f}', "\\u007f");
    let folder = "b\u{1b}[2J\u{9b}1m\u{202e}\n";
    let bytes = component(hostile::COMPUTE);
    host.write("modules/good@1.0/module.toml", manifest)
        .write("modules/good@1.0/good.wasm", &bytes)
        .write(&format!("modules/{folder}.wasm"), "no component")
        .write(&format!("modules/{folder}2.wasm"), &bytes)
        .write(
            &format!("modules/{folder}3/module.toml"),
            "name = \"other\"\ncomponent = \"other.wasm\"\n",
        )
        .write(&format!("modules/{folder}3/other.wasm"), &bytes)
        .write(
            "modules/wrong/module.toml",
            format!("name = \"wrong\"\n# {HOSTILE}\nnonsense\u{1b}[2J = \"{HOSTILE}\"\n"),
        );
    host
}

fn is_clean(what: &[&str], done: &Finished) {
    for (stream, text) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
        let raw: Vec<char> = text
            .chars()
            .filter(|c| is_escaped(*c) && *c != '\n')
            .collect();
        assert!(raw.is_empty(), "{what:?} has {raw:?} on {stream}: {text:?}");
        for line in text.lines() {
            assert_ne!(line, "  approved as it is", "{what:?} on {stream}: {text}");
        }
    }
}

#[test]
fn text_from_outside_is_shown_escaped() {
    let host = host();
    for arguments in [
        &["modules", "list"][..],
        &["modules", "inspect", "good"],
        &["modules", "inspect", "other"],
        &["modules", "diff", "good"],
        &["modules", "call", "good.count"],
        &["modules", "call", "good.boom"],
        &["modules", "call", "--json", "good.count"],
        &["modules", "call", "good.count", "[\"\u{202e}\u{9b}\"]"],
        &["modules", "inspect", HOSTILE],
        &["modules", "grant", "good", "--with-env", "A=\u{9b}\u{202e}"],
        &["modules", "diff", "good", "--json"],
        &["modules", "inspect", "good", "--json"],
        &["modules", "list", "--json"],
        &["policy"],
        &["policy", "--json"],
        &["doctor"],
        &["audit", "search", ""],
        &["audit", "search", "", "--json"],
        &["modules", "revoke", "good"],
        &["modules", "approve", "good", "--yes"],
    ] {
        // Of a module that is as it was approved, the line would be the host's own.
        let done = host.run(arguments);
        let is_approved = arguments == ["modules", "inspect", "good"]
            && done.stdout.ends_with("\npin\n  approved as it is\n");
        let mut done = done;
        if is_approved {
            let end = done.stdout.len() - "pin\n  approved as it is\n".len();
            done.stdout.truncate(end);
        }
        is_clean(arguments, &done);
    }
}

#[test]
fn json_says_what_it_said() {
    let host = host();
    let done = host.run(&["modules", "inspect", "good", "--json"]);
    let module: Value = serde_json::from_str(&done.stdout).expect("it is JSON");
    assert_eq!(
        module["asks_for"]["directories"],
        json!([{"guest": HOSTILE, "access": "read", "reason": HOSTILE}])
    );
    let listed: Value =
        serde_json::from_str(&host.run(&["modules", "list", "--json"]).stdout).expect("it is JSON");
    let failed = listed["failed"].as_array().expect("a list");
    assert!(
        failed
            .iter()
            .any(|it| it["name"] == "b\u{1b}[2J\u{9b}1m\u{202e}\n3"
                && it["error"].as_str().is_some_and(|it| it.contains("rename"))),
        "{failed:?}"
    );
}

/// More than a row of any terminal that is tried, and then a line as the host writes it.
fn forged() -> String {
    format!("{HOSTILE}{}{FORGED}", "x ".repeat(100))
}

const FORGED: &str = "decided; the run goes on";

/// A model that calls a tool with a hostile name, answers with hostile text, and fails so. The endpoint lists one with
/// a hostile name.
fn endpoint() -> Endpoint {
    let call = json!({"_tool": forged(), "_reasoningForCall": forged()});
    let scenario = Scenario::new([
        Reply::solution(json!({"calls": [call], "output": null})),
        // The answer of a run is the whole of stdout, and is no part of this.
        Reply::solution(json!({"calls": [], "output": "done"})),
        Reply::solution(json!({"calls": [call], "output": null})),
        Reply::solution(json!({"calls": [], "output": forged()})),
        Reply::error(400, json!({"error": {"message": forged()}})),
    ]);
    Endpoint::start(Scenario {
        models: vec![forged(), "m".into()],
        ..scenario.in_order(ReplyOrder::Repeat)
    })
}

/// A host whose files say what they can in hostile text.
fn host_of_files() -> Host {
    let host = Host::new();
    let text = Value::from(forged())
        .to_string()
        .replace('\u{7f}', "\\u007f");
    let task = "expect.answer.contains = [\"no such answer\"]";
    host.ship("text")
        .write(
            "toolhold.toml",
            format!(
                "[decisions]\nalways = [{text}]\n[endpoints.{text}]\nmodel = {text}\nbase_url = \"http://127.0.0.1:9/v1\"\n"
            ),
        )
        .write(
            "tasks.toml",
            format!("[[tasks]]\nid = \"a\"\ntask = {text}\ntools = [\"text\"]\n{task}\n"),
        );
    host
}

/// The commands that show text of endpoints, of models, of records and of files of tasks.
fn commands<'a>(url: &'a str, named: &'a str) -> Vec<Vec<&'a str>> {
    let endpoint = ["--base-url", url, "--model", "m"];
    vec![
        vec!["run", "t", "--base-url", url, "--model", named],
        vec!["stats", "last"],
        vec!["stats", "--since", "1d"],
        [&["eval", "tasks.toml"], &endpoint[..]].concat(),
        vec!["eval", "tasks.toml", "--base-url", url, "--model", named],
        vec!["eval", "tasks.toml", "--list"],
        vec!["stats", "--since", "1d", "--json"],
        [&["doctor"], &endpoint[..]].concat(),
        vec!["doctor", "--base-url", url, "--model", named],
        vec!["doctor", "--base-url", url, "--model", "not there"],
        vec!["policy"],
        vec!["policy", "--tools", named],
        vec!["approvals", "approve", named],
        vec!["runs"],
    ]
}

#[test]
fn text_of_endpoints_models_and_tasks_is_shown_escaped() {
    let (host, endpoint, named) = (host_of_files(), endpoint(), forged());
    let mut shown = String::new();
    for arguments in commands(&endpoint.base_url(), &named) {
        let done = host.run(&arguments);
        is_clean(&arguments, &done);
        for text in [&done.stdout, &done.stderr] {
            let is_forged = text
                .lines()
                .any(|line| line.trim_start().starts_with(FORGED));
            assert!(!is_forged, "{arguments:?}: {done:?}");
            shown.push_str(text);
        }
    }
    for said in ["\\u{202e}", "\\u{9b}31m", "│ ", FORGED] {
        assert!(shown.contains(said), "{said} is nowhere: {shown}");
    }
}

/// A terminal continues a long line at its left edge, where lines of the host begin.
#[test]
fn no_row_of_a_terminal_begins_with_text_from_outside() {
    let columns = 60;
    let (host, endpoint, named) = (host_of_files(), endpoint(), forged());
    for arguments in commands(&endpoint.base_url(), &named) {
        if arguments.contains(&"--json") {
            continue;
        }
        let mut command = host.command(&arguments);
        command.env("COLUMNS", columns.to_string());
        let shown = at_terminal(&command, &[]).stdout.replace("\r\n", "\n");
        let rows = shown.lines().flat_map(|line| rows(line, columns));
        for row in rows.filter(|row| row.contains("decided")) {
            assert!(
                row.trim_start().starts_with('│') || row.starts_with("    "),
                "{arguments:?}: {row:?}\n{shown}"
            );
        }
    }
}
