//! Wrong uses: what each says on stderr, and its exit code. Nothing is said on stdout.

use super::{Terminal, quoted};
use std::fmt::Write as _;
use std::process::Command;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::finish;
use support::records::Records;
use support::sandbox::component;
use toolhold_hostile::components as hostile;

/// Runs a command that must fail, and adds what it says.
fn fails(terminal: &mut Terminal, mut command: Command) {
    let said: Vec<String> = command.get_args().map(quoted).collect();
    let done = finish(command.output().expect("it runs"));
    assert_ne!(done.code, Some(0), "{said:?}: {done:?}");
    assert_eq!(done.stdout, "", "{said:?}: {}", done.stderr);
    let code = done.code.expect("no signal");
    let shown = format!("{}[exit {code}]\n", done.stderr);
    terminal.add(&said.join(" "), &shown);
}

fn all_fail(terminal: &mut Terminal, uses: &[&[&str]]) {
    for arguments in uses {
        let command = terminal.host.command(arguments);
        fails(terminal, command);
    }
}

#[test]
fn of_the_command_line() {
    let mut terminal = Terminal::new();
    all_fail(
        &mut terminal,
        &[
            &["frobnicate"],
            &["modules", "lst"],
            &["run"],
            &["run", "t", "--max-step", "3"],
            &["run", "t", "--max-steps", "many"],
            &["run", "t", "--contract", "magic"],
            &["run", "t", "--max-cost", "much"],
            &["run", "t", "--max-cost", "1"],
            &["run", "t", "--endpoint", "big"],
            &["resume", "last", "--max-steps", "3"],
            &["stats"],
            &["stats", "--since", "yesterday"],
            &["doctor", "--json"],
            &["new-module", "Weather", "--lang", "rust"],
            &["new-module", "weather", "--lang", "cobol"],
            &["generate", "completions", "tcsh"],
            &["--dir", "files", "modules", "list"],
            &["--env", "text=X", "modules", "list"],
            &["--config", "nowhere.toml", "runs"],
            &["--modules", "nowhere", "modules", "list"],
            &["serve", "--listen", "nowhere"],
            &["plan-capacity"],
            &["plan-capacity", "--ttft-ms", "fast"],
            &["plan-capacity", "--target-qps", "0"],
        ],
    );
    terminal.is_as("error_command_line");
}

#[test]
fn of_the_configuration() {
    let mut terminal = Terminal::with(&["text"]);
    for text in [
        "[run]\nmax_step = 3",
        "[run]\nmax_steps = \"many\"",
        "[run]\nmax_steps = -1",
        "[run]\nmax_steps = 0",
        "[run]\nmax_steps = [3]",
        "[run]\nshape = \"round\"",
        "[run",
        "endpoint = \"big\"",
        "[limits]\nfuel = 1e9",
        "[module.text]\ndirectories = [{ host = \".\" }]",
        "[module.text]\ncolour = \"red\"",
        "[shields.a]\nkind = \"magic\"",
        "[mcp.s]\ntools = []",
        "[serve]\nlisten = \"nowhere\"",
        "[endpoints.default]\nbase_url = \"nonsense\"",
    ] {
        terminal.host.write("toolhold.toml", text);
        let _ = writeln!(
            terminal.text,
            "# toolhold.toml: {}",
            text.replace('\n', " ⏎ ")
        );
        all_fail(&mut terminal, &[&["run", "t"]]);
    }
    terminal.host.write("toolhold.toml", "");
    for (name, value) in [
        ("TOOLHOLD_RUN__MAX_STEP", "3"),
        ("TOOLHOLD_RUN__MAX_STEPS", "many"),
        (
            "TOOLHOLD_DATABASE_URL",
            "mysql://ann:secret@db.example.com/runs",
        ),
        (
            "TOOLHOLD_DATABASE_URL",
            "postgres://ann:secret@127.0.0.1:1/runs",
        ),
    ] {
        let _ = writeln!(terminal.text, "# {name}={value}");
        let mut command = terminal.host.command(&["runs"]);
        command.env(name, value);
        fails(&mut terminal, command);
    }
    terminal.is_as("error_configuration");
}

#[test]
fn of_modules() {
    let mut terminal = Terminal::with(&["calculator", "files"]);
    terminal
        .host
        .write("modules/broken.wasm", "no component")
        .write("modules/bad.wasm", component(hostile::COMPUTE))
        .write(
            "modules/unbuilt/module.toml",
            "[build]\nlanguage = \"rust\"\n",
        );
    all_fail(
        &mut terminal,
        &[
            &["modules", "call"],
            &["modules", "call", "calculator", "{}"],
            &["modules", "call", "nothing.here", "{}"],
            &["modules", "call", "broken.tool", "{}"],
            &["modules", "call", "unbuilt.tool", "{}"],
            &["modules", "call", "calculator.nothing", "{}"],
            &["modules", "call", "calculator.evaluate", "{expression}"],
            &["modules", "call", "calculator.evaluate", "[]"],
            &["modules", "call", "calculator.evaluate", "{}"],
            &[
                "modules",
                "call",
                "calculator.evaluate",
                r#"{"expression":7}"#,
            ],
            &[
                "modules",
                "call",
                "calculator.evaluate",
                r#"{"expression":"1+"}"#,
            ],
            &["modules", "call", "bad.boom"],
            &["modules", "call", "bad.recurse"],
            &["modules", "call", "files.read", r#"{"path":"a.txt"}"#],
            &["modules", "inspect", "nothing"],
            &["modules", "inspect", "files", "--dir", "files=nowhere"],
            &["modules", "approve", "nothing"],
            &["modules", "diff", "nothing"],
            &["modules", "grant", "files"],
            &["modules", "grant", "nothing", "--scratch"],
            &["modules", "grant", "files", "--with-dir", "nowhere"],
            &["modules", "grant", "files", "--with-env", "X"],
            &["modules", "grant", "files", "--with-http", "example.com"],
            &["modules", "grant", "files", "--with-secret", "key"],
            &["modules", "revoke", "nothing"],
            &["modules", "pull", "nonsense"],
            &["modules", "pull", "oci://127.0.0.1:1/a/b:1"],
            &["mcp", "inspect", "nothing"],
            &["build", "nowhere"],
            &["build", "modules/calculator"],
            &["new-module", "files", "--lang", "rust"],
        ],
    );
    terminal.is_as("error_modules");
}

#[test]
fn of_runs_and_of_what_is_kept() {
    let mut terminal = Terminal::with(&["text"]);
    all_fail(
        &mut terminal,
        &[
            &["show", "last"],
            &["keys", "revoke", "ann"],
            &["keys", "create", "Ann B"],
            &["keys", "create", "ann", "--scopes", "root"],
            &["keys", "create", "ann", "--grants", "wind"],
            &["keys", "create", "ann", "--expires", "2020-01-01"],
            &["policy", "--agent", "nothing"],
            &["policy", "--key", "nothing"],
            &["approvals", "approve", "0"],
            &["approvals", "edit", "0", "{"],
        ],
    );
    terminal
        .host
        .write("plan.json", r#"[{"_tool": "text.count", "text": "a"}]"#);
    assert_eq!(
        terminal.host.run(&["plan", "run", "plan.json"]).code,
        Some(0)
    );
    assert_eq!(terminal.host.run(&["keys", "create", "ann"]).code, Some(0));
    all_fail(
        &mut terminal,
        &[
            &["show", "0f"],
            &["show", "nowhere.jsonl"],
            &["show", "plan.json"],
            &["runs", "diff", "last", "0f"],
            &["stats", "--since", "2099-01-01"],
            &["runs", "cancel", "last"],
            &["resume", "last"],
            &["runs", "prune", "--older-than", "soon"],
            &["keys", "create", "ann"],
        ],
    );
    terminal.is_as("error_runs");
}

/// A record that somebody changed, a database in use, a file that is no database, a folder that is none.
#[test]
fn of_the_state_folder() {
    let mut terminal = Terminal::with(&["text"]);
    terminal
        .host
        .write("plan.json", r#"[{"_tool": "text.count", "text": "a"}]"#);
    assert_eq!(
        terminal.host.run(&["plan", "run", "plan.json"]).code,
        Some(0)
    );
    let records = Records::of(&terminal.host);
    let run = records.runs().pop().expect("a run");
    let line = records.lines(&run)[1].replace("\"a\"", "\"b\"");
    records.change(&run, 1, &line);
    all_fail(&mut terminal, &[&["runs", "replay", "last"]]);
    let _ = writeln!(terminal.text, "# another process writes to the database");
    records.kept_busy(|| all_fail(&mut terminal, &[&["keys", "create", "ann"]]));
    terminal
        .host
        .write(".other/toolhold.db", "no database, and longer than nothing");
    for (what, state) in [
        ("the database is no database", ".other"),
        ("the state folder is below a file", "plan.json/state"),
    ] {
        let _ = writeln!(terminal.text, "# {what}");
        let mut command = terminal.host.command(&["runs"]);
        command.env("TOOLHOLD_PATHS__STATE", state);
        fails(&mut terminal, command);
    }
    terminal.is_as("error_state");
}

#[test]
fn of_plans_and_of_what_is_given_to_runs() {
    let mut terminal = Terminal::with(&["text"]);
    terminal
        .host
        .write("bad.json", "{\n")
        .write("other.json", r#"{"x":1}"#)
        .write(
            "cycle.json",
            r#"[{"_tool": "text.count", "text": "†state.a", "_outputPath": "†state.a"}]"#,
        )
        .write("plan.json", r#"[{"_tool": "text.count", "text": "a"}]"#);
    all_fail(
        &mut terminal,
        &[
            &["plan", "show", "nowhere.json"],
            &["plan", "show", "bad.json"],
            &["plan", "show", "other.json"],
            &["plan", "show", "cycle.json"],
            &["plan", "check", "plan.json", "--input", "[]"],
            &["plan", "check", "plan.json", "--input", "{x}"],
            &["plan", "check", "plan.json", "--input", "nowhere.json"],
            &["plan", "check", "plan.json", "--context", "other.json"],
            &["request", "run", "nothing"],
            &["run", "t", "--context", "nowhere.json"],
            &["run", "t", "--output-schema", "bad.json"],
            &["run", "t", "--tools", "nothing"],
            &["run", "t", "--instructions"],
            &["eval", "nowhere.toml"],
        ],
    );
    terminal.is_as("error_plans");
}

#[test]
fn of_the_endpoint() {
    let refused = Reply::error(
        401,
        serde_json::json!({"error": {"message": "no such key"}}),
    );
    let page = Reply::html;
    let endpoint = Endpoint::start(Scenario::new([refused, page(), page(), page(), page()]));
    let mut terminal = Terminal::with(&["text"]);
    terminal.ask(&endpoint, "");
    let unreachable = ["--base-url", "http://127.0.0.1:1/v1"];
    all_fail(
        &mut terminal,
        &[
            &["run", "t"],
            &["run", "t"],
            &[&["run", "t"], &unreachable[..]].concat(),
            &[&["run", "t", "--model", "m"], &unreachable[..]].concat(),
            &[&["chat"], &unreachable[..]].concat(),
            &["run", "t", "--base-url", "nonsense"],
            &[
                "run",
                "t",
                "--base-url",
                "http://127.0.0.1:1/v1",
                "--max-cost",
                "1",
            ],
        ],
    );
    terminal.is_as("error_endpoint");
}
