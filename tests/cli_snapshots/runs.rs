//! Runs as they are watched, listed, shown again, compared and counted.

use super::Terminal;
use serde_json::json;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::records::Records;
use support::transcript::{answers, calls};

const PRICES: &str =
    "price_per_million = { prompt = 0.5, completion = 2 }\n[run]\ncurrency = \"EUR\"\n";

/// Said in one piece, and its end and its counts later than what a call of it takes: so that they are shown in one
/// order, every time.
fn slow(reply: Reply) -> Reply {
    Reply {
        piece: Some(usize::MAX),
        between_ms: 200,
        ..reply
    }
}

fn counted(reply: Reply, prompt: u64, completion: u64) -> Reply {
    Reply {
        usage: Some((prompt, completion)),
        ..slow(reply)
    }
}

fn sum(expression: &str) -> Reply {
    let reply = calls([("calculator.evaluate", json!({"expression": expression}))]);
    counted(reply, 1_200, 20)
}

fn done(output: &str) -> Reply {
    counted(answers(output), 1_500, 10)
}

/// Two runs, the second with a call that fails, and all that can be asked about them afterwards.
#[test]
fn a_run_is_watched_and_asked_about_afterwards() {
    let endpoint = Endpoint::start(Scenario::new([
        sum("6 * 7"),
        done("It is 42."),
        sum("6 *"),
        sum("6 * 8"),
        done("It is 48.\nI had to try twice."),
    ]));
    let mut terminal = Terminal::with(&["calculator"]);
    terminal.ask(&endpoint, PRICES);
    terminal.run(&["run", "What is six times seven?"]).run(&[
        "run",
        "What is six times eight?",
        "--budget",
    ]);
    terminal.is_as("run");
    terminal.text.clear();
    terminal
        .run(&["runs"])
        .run(&["show", "last"])
        .run(&["runs", "replay", "last"])
        .run(&["runs", "diff", "last", "last"])
        .run(&["runs", "prune", "--older-than", "30d"]);
    let listed = terminal.host.run(&["runs"]).stdout;
    let first = listed.split_whitespace().next().expect("a run");
    terminal.run(&["runs", "diff", first, "last"]);
    terminal.is_as("runs");
    terminal.text.clear();
    terminal
        .run(&["stats", "last"])
        .run(&["stats", "--since", "1h"]);
    // A column is as wide as its widest time.
    terminal.text = narrowed(&terminal.text);
    terminal.is_as("stats");
}

/// The same with two blanks in the place of more, but at the beginning of a line.
fn narrowed(table: &str) -> String {
    let narrow = |line: &str| -> String {
        let indent = line.len() - line.trim_start().len();
        let words = line
            .split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        format!("{}{}\n", &line[..indent.min(2)], words.join("  "))
    };
    table.lines().map(narrow).collect()
}

#[test]
fn a_run_ends_in_other_ways() {
    let refusal = || Reply::error(503, json!({"error": {"message": "the model is loading"}}));
    let endpoint = Endpoint::start(Scenario::new([
        sum("1 + 1"),
        sum("1 + 2"),
        refusal(),
        done("Here I am."),
        Reply::error(401, json!({"error": {"message": "no such key"}})),
        Reply::content("I would rather not."),
        Reply::content("No."),
        Reply::content("No!"),
        Reply::content("No!!"),
    ]));
    let mut terminal = Terminal::with(&["calculator"]);
    terminal.ask(&endpoint, "");
    for task in [
        &["run", "count on", "--max-steps", "2"][..],
        &["run", "wait"],
        &["run", "pay"],
        &["run", "obey"],
    ] {
        terminal.run(task);
    }
    terminal.is_as("run_ends");
}

/// No terminal is there to ask at, so that the run waits for `toolhold approvals`.
#[test]
fn a_call_waits_is_listed_and_refused() {
    let write = json!({"path": "a.txt", "content": "hello"});
    let endpoint = Endpoint::start(Scenario::new([
        slow(calls([("files.write", write)])),
        slow(answers("I may not.")),
    ]));
    let mut terminal = Terminal::with(&["files"]);
    terminal.ask(&endpoint, "[decisions]\nalways = [\"files.write\"]\n");
    terminal.host.write("data/.keep", "");
    let run = ["run", "write it", "--dir", "files=data:/data:rw"];
    let watched = std::thread::scope(|threads| {
        let command = terminal.host.command(&run);
        let run = threads.spawn(|| super::shown(command));
        let call = terminal.host.waiting_call();
        terminal.places.push((call.clone(), "[call]"));
        // All of the reply is shown before it is decided.
        Records::of(&terminal.host).until_there_is("tokens");
        terminal.run(&["approvals", "list"]).run(&["runs"]).run(&[
            "approvals",
            "refuse",
            &call,
            "not on a Friday",
        ]);
        run.join().expect("it ends")
    });
    terminal
        .add("run 'write it' --dir files=data:/data:rw", &watched)
        .run(&["approvals", "list"]);
    terminal.is_as("approvals");
}

#[test]
fn a_model_plans_and_nothing_is_run() {
    let step = |text: &str| ("text.count", json!({"text": text}));
    let endpoint = Endpoint::start(Scenario::new([
        slow(calls([step("one"), step("two words")])),
        slow(answers("two")),
    ]));
    let mut terminal = Terminal::with(&["text"]);
    terminal
        .ask(&endpoint, "")
        .run(&["run", "count both", "--dry-run"])
        .run(&["run", "say it", "--dry-run"]);
    terminal.is_as("run_dry");
}

#[test]
fn a_shield_blocks_and_hides() {
    let mail = json!({"text": "write to ann@example.com"});
    let endpoint = Endpoint::start(Scenario::new([
        slow(calls([("text.count", mail)])),
        slow(answers(
            "ann@example.com has paid with 4111 1111 1111 1111.",
        )),
        slow(answers("ann@example.com has paid.")),
    ]));
    let mut terminal = Terminal::with(&["text"]);
    terminal
        .ask(
            &endpoint,
            "[shields.private]\nkind = \"pii\"\nhide = [\"email\"]\nblock = [\"card\"]\nplaces = [\"output\"]\n",
        )
        .run(&["run", "count what I wrote to ann@example.com"]);
    terminal.is_as("run_shield");
}
