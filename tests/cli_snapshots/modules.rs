//! `toolhold modules`, `mcp`, `new-module`.

use super::Terminal;
use support::sandbox::{component, repository};
use toolhold_hostile::components as hostile;

#[test]
fn modules_are_listed_and_inspected() {
    let mut terminal = Terminal::with(&["calculator", "files"]);
    terminal
        .host
        .write("modules/broken.wasm", "no component")
        .write(
            "modules/unbuilt/module.toml",
            "[build]\nlanguage = \"rust\"\n",
        );
    terminal.run(&["modules", "list"]);
    terminal.is_as("modules_list");
    let mut terminal = Terminal::with(&["calculator", "files"]);
    terminal
        .run(&["modules", "inspect", "calculator"])
        .run(&["modules", "inspect", "files"]);
    terminal.is_as("modules_inspect");
    let mut terminal = Terminal::new();
    terminal.run(&["modules", "list"]);
    std::fs::create_dir(terminal.host.path().join("modules")).expect("a folder");
    terminal.run(&["modules", "list"]);
    terminal.is_as("modules_none");
}

#[test]
fn modules_are_called() {
    let mut terminal = Terminal::with(&["calculator", "text"]);
    terminal
        .host
        .write("modules/bad.wasm", component(hostile::COMPUTE))
        .write("toolhold.toml", "[decisions]\nalways = [\"text\"]\n");
    let sum = r#"{"expression":"2^200 % 97"}"#;
    terminal
        .run(&["modules", "call", "calculator.evaluate", sum])
        .run(&["modules", "call", "calculator.evaluate", "{}"])
        .run(&[
            "modules",
            "call",
            "calculator.evaluate",
            r#"{"expression":"1+"}"#,
        ])
        .run(&["modules", "call", "text.count", r#"{"text":"one two"}"#])
        .run(&[
            "modules",
            "call",
            "--yes",
            "text.count",
            r#"{"text":"one two"}"#,
        ])
        .run(&["modules", "call", "bad.boom"]);
    terminal.is_as("modules_call");
}

/// From what is asked for to what is given and taken back, and a component that changes meanwhile.
#[test]
fn modules_are_granted_approved_and_revoked() {
    let mut terminal = Terminal::with(&["files"]);
    terminal.host.write("notes/a.txt", "one\ntwo\n");
    terminal
        .run(&["modules", "grant", "files", "--with-dir", "notes:/data:rw"])
        .run(&["modules", "call", "files.list"])
        .run(&["modules", "diff", "files"]);
    // The same component with a section of its own at the end: other bytes, and nothing else.
    let component = terminal.host.path().join("modules/files/files.wasm");
    let mut bytes = std::fs::read(&component).expect("a component");
    bytes.extend([0, 3, 1, b'x', 0]);
    std::fs::write(component, bytes).expect("written");
    terminal
        .run(&["modules", "list"])
        .run(&["modules", "diff", "files"])
        .run(&["modules", "approve", "files"])
        .run(&["modules", "approve", "files", "--yes"])
        .run(&["modules", "approve"])
        .run(&["modules", "revoke", "files"])
        .run(&["modules", "list"]);
    terminal.is_as("modules_grant");
}

#[test]
fn a_module_is_begun() {
    let mut terminal = Terminal::new();
    terminal
        .run(&["new-module", "weather", "--lang", "rust"])
        .run(&["new-module", "weather_py", "--lang", "python"]);
    terminal.is_as("new_module");
}

#[test]
fn mcp_servers_are_listed_inspected_and_approved() {
    let mut terminal = Terminal::new();
    let script = repository().join("tests/fixtures/mcp_server.py");
    let script = script.display().to_string();
    terminal.places.push((script.clone(), "[server.py]"));
    terminal.run(&["mcp", "list"]);
    terminal.host.write(
        "mcp.toml",
        format!(
            "[modules]\npinning = \"always\"\n[mcp.s]\ncommand = [\"python3\", \"{script}\"]\ntools = [\"echo\", \"add\", \"nothing\"]\n"
        ),
    );
    terminal
        .run(&["--config", "mcp.toml", "mcp", "list"])
        .run(&["--config", "mcp.toml", "mcp", "approve", "s"])
        .run(&["--config", "mcp.toml", "mcp", "approve", "s", "--yes"])
        .run(&["--config", "mcp.toml", "mcp", "list"])
        .run(&["--config", "mcp.toml", "mcp", "inspect", "s"]);
    terminal.is_as("mcp");
}
