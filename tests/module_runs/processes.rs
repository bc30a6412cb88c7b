//! Sections 7 and 11 through the binary: the real client, real modules, processes that are killed, and
//! people who decide from another one.

use serde_json::{Value, json};
use std::fs::File;
use std::process::Child;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};
use support::records::Records;
use support::until;

fn calls(calls: &[Value]) -> Reply {
    Reply::solution(json!({"calls": calls, "output": null}))
}

fn answers(output: Value) -> Reply {
    Reply::solution(json!({"calls": [], "output": output}))
}

/// A host with the module that writes into a folder, and every call noted in its policy.
fn host(configuration: &str) -> Host {
    let host = Host::new();
    host.ship("files").ship("calculator").write("data/.keep", "").write(
        "toolhold.toml",
        format!(
            "{configuration}\n[module.files]\ndirectories = [{{ host = \"data\", guest = \"/data\", access = \"read-write\" }}]\n"
        ),
    );
    let approved = host.run(&["modules", "approve", "files", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    host
}

/// Starts a command. Its output goes to files, because a pipe would not be read while it runs.
fn begin(host: &Host, arguments: &[&str]) -> Child {
    let file = |name: &str| File::create(host.path().join(name)).expect("a file");
    host.command(arguments)
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .spawn()
        .expect("runs")
}

fn wait(host: &Host, mut child: Child) -> Finished {
    let text = |name: &str| std::fs::read_to_string(host.path().join(name)).expect("a file");
    let status = child.wait().expect("ends");
    Finished {
        code: status.code(),
        stdout: text("stdout"),
        stderr: text("stderr"),
    }
}

fn recorded(host: &Host) -> Vec<Value> {
    Records::of(host).newest()
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["event"] == kind).count()
}

/// The model writes slowly; the first call is over before it has written the last.
#[test]
fn calls_run_while_the_endpoint_still_streams() {
    let call = |n: usize| json!({"_tool": "calculator.evaluate", "_reasoningForCall": "r", "expression": format!("{n}+1")});
    let native = |n: usize| {
        (
            "calculator-evaluate",
            json!({"expression": format!("{n}+1")}),
        )
    };
    let simple = json!({"tool_name": "calculator.evaluate", "arguments": {"expression": "1+1"}});
    for (contract, reply, done) in [
        (
            "schema",
            calls(&[call(1), call(2), call(3)]),
            answers(json!("done")),
        ),
        (
            "tools",
            Reply::tool_calls([native(1), native(2), native(3)]),
            Reply::content("done"),
        ),
        (
            "simple",
            Reply::content(format!(
                "{simple}{}",
                "\nThat is my call, and nothing else.".repeat(8)
            )),
            Reply::content(r#"{"final_answer": "done"}"#),
        ),
    ] {
        let host = host("");
        let endpoint = Endpoint::start(Scenario::new([reply.delayed_ms(0, 120), done]));
        let url = endpoint.base_url();
        let arguments = [
            "run",
            "t",
            "--base-url",
            &url,
            "--json",
            "--contract",
            contract,
        ];
        let done = host.run(&arguments);
        assert_eq!(done.code, Some(0), "{contract}: {done:?}");
        let events = recorded(&host);
        let first = events.iter().position(|e| e["event"] == "tool_result");
        let last = events
            .iter()
            .position(|e| e["event"] == "reply" && e["step"] == 1);
        assert!(
            first < last && first.is_some(),
            "{contract}: {first:?} {last:?}"
        );
        let replayed = host.run(&["runs", "replay", "last"]);
        assert_eq!(replayed.code, Some(0), "{contract}: {replayed:?}");
    }
}

/// Twenty layers of ten calls that write, each reading two of the layer before; the process is killed
/// in the middle. What was over is not made again: every file has what was appended to it once.
#[test]
fn a_killed_run_is_resumed_and_makes_no_call_twice() {
    let host = host("[run]\nmax_calls = 200\nparallel_calls = 10");
    let all: Vec<Value> = (0..200)
        .map(|n| {
            let (layer, at) = (n / 10, n % 10);
            let read = |at: usize| format!("†state.l{}.c{}.path", layer - 1, at % 10);
            let content = match layer {
                0 => "begin".to_owned(),
                _ => format!("{} && {}", read(at), read(at + 1)),
            };
            json!({
                "_tool": "files.write", "_reasoningForCall": "r", "path": format!("f{n}"),
                "content": content, "mode": "append", "_outputPath": format!("†state.l{layer}.c{at}"),
            })
        })
        .collect();
    // All at once, so that every call is known before the first are over.
    let mut solution = calls(&all);
    solution.piece = Some(1_000_000);
    let endpoint = Endpoint::start(Scenario::new([solution, answers(json!("went on"))]));
    let url = endpoint.base_url();
    let mut child = begin(
        &host,
        &["run", "t", "--base-url", &url, "--model", "m", "--json"],
    );
    until("the middle", || {
        (count(&recorded(&host), "tool_result") > 60).then_some(())
    });
    child.kill().expect("SIGKILL");
    wait(&host, child);
    let before = recorded(&host);
    let over: Vec<String> = before
        .iter()
        .filter(|event| event["event"] == "tool_result")
        .map(|event| event["output"]["path"].as_str().expect("a path").to_owned())
        .collect();
    assert!(over.len() < 200, "it was killed too late");

    let done = host.run(&[
        "resume",
        "last",
        "--base-url",
        &url,
        "--model",
        "m",
        "--json",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = recorded(&host);
    assert_eq!(count(&events, "tool_result"), 200);
    let lost = events
        .iter()
        .filter(|event| event["error"]["kind"] == "interrupted")
        .count();
    assert!((1..=10).contains(&lost), "only what ran was lost: {lost}");
    for n in 0..200 {
        let path = host.path().join(format!("data/f{n}"));
        let expected = match (n / 10, n % 10) {
            (0, _) => "begin".to_owned(),
            (layer, at) => format!("f{}", (layer - 1) * 10 + (at + 1) % 10),
        };
        let text = std::fs::read_to_string(&path).ok();
        if over.iter().any(|path| *path == format!("f{n}")) {
            assert_eq!(text.as_ref(), Some(&expected), "{n} was over");
        } else {
            // Killed before, while or after it wrote; but never twice.
            let text = text.unwrap_or_default();
            assert!(expected.starts_with(&text), "{n}: {text}");
        }
    }
    let replayed = host.run(&["runs", "replay", "last"]);
    assert!(replayed.stdout.contains("identical"), "{replayed:?}");
    assert_eq!(
        endpoint.requests().len(),
        2,
        "the calls are not asked for again"
    );
}

const ASKS: &str = "[decisions]\ndefault = \"on-write\"\n";

fn write_call() -> Reply {
    calls(&[json!({
        "_tool": "files.write", "_reasoningForCall": "r", "path": "a.txt", "content": "from the model",
    })])
}

/// The id of the one call that waits.
fn waiting(host: &Host) -> String {
    let call = host.waiting_call();
    let list = host.run(&["approvals", "list"]).stdout;
    assert!(list.contains("files.write {\"path\":\"a.txt\""), "{list}");
    call
}

/// Each verdict from another process: while the run waits, and after its process was killed.
#[test]
fn decisions_come_from_another_process() {
    let edited = r#"{"path":"a.txt","content":"from a person"}"#;
    let receipt = r#"{"path":"elsewhere","written_bytes":1,"total_bytes":1}"#;
    for (verdict, file, told) in [
        (vec!["approve"], Some("from the model"), "written_bytes"),
        (vec!["edit", edited], Some("from a person"), "written_bytes"),
        (vec!["replace", receipt], None, "elsewhere"),
        (
            vec!["refuse", "not today"],
            None,
            "a person refused this call: not today",
        ),
    ] {
        for is_killed in [false, true] {
            let host = host(ASKS);
            let endpoint = Endpoint::start(Scenario::new([write_call(), answers(json!("done"))]));
            let url = endpoint.base_url();
            let mut child = begin(
                &host,
                &["run", "t", "--base-url", &url, "--model", "m", "--json"],
            );
            let id = waiting(&host);
            if is_killed {
                child.kill().expect("SIGKILL");
            }
            let decided = host.run(&[&["approvals", verdict[0], &id], &verdict[1..]].concat());
            assert_eq!(decided.code, Some(0), "{decided:?}");
            let mut done = wait(&host, child);
            if is_killed {
                done = host.run(&[
                    "resume",
                    "last",
                    "--base-url",
                    &url,
                    "--model",
                    "m",
                    "--json",
                ]);
            }
            assert_eq!(done.code, Some(0), "{verdict:?}: {done:?}");
            let written = std::fs::read_to_string(host.path().join("data/a.txt")).ok();
            assert_eq!(written.as_deref(), file, "{verdict:?}");
            let text = endpoint.requests()[1]["messages"]
                .as_array()
                .and_then(|all| all.last())
                .map(Value::to_string)
                .expect("a message");
            assert!(text.contains(told), "{verdict:?}: {text}");
            assert!(host.run(&["approvals", "list"]).stdout.is_empty());
            let again = host.run(&["approvals", "approve", &id]);
            assert_eq!(again.code, Some(1), "it is decided: {again:?}");
            assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
        }
    }
}

/// A sub-agent of a sub-agent goes on where it was: what it did is not done again, and what waited for
/// a person waits again.
#[test]
fn a_killed_sub_agent_goes_on_where_it_was() {
    let write = |path: &str| {
        calls(&[json!({
            "_tool": "write", "_reasoningForCall": "r", "path": path, "content": "once ", "mode": "append",
        })])
    };
    let ask = || calls(&[json!({"_tool": "ask", "_reasoningForCall": "r"})]);
    let by = |module: &str| json!({"type": "object", "properties": {"_module": {"const": module}}});
    let context = |tool: &str, definition: Value| json!([{"type": "tool", "tool": {tool: definition}}, {"type": "text", "text": "Go."}]);
    for is_waiting in [true, false] {
        let host = host("[decisions]\nalways = [\"files.write\"]\n");
        let files = json!({
            "type": "object", "properties": {"_module": {"const": "files#write"}, "path": {"type": "string"},
            "content": {"type": "string"}, "mode": {"type": "string"}}, "required": ["path", "content"],
        });
        host.write(
            "requests/inner.json",
            json!({"context": context("ask", by("deeper"))}).to_string(),
        )
        .write(
            "requests/deeper.json",
            json!({"context": context("write", files)}).to_string(),
        )
        .write("context.json", context("ask", by("inner")).to_string());
        let third = if is_waiting {
            write("b.txt")
        } else {
            Reply::endless()
        };
        let mut replies = vec![ask(), ask(), write("a.txt"), third];
        if !is_waiting {
            replies.push(write("b.txt"));
        }
        replies.extend([
            answers(json!("deep")),
            answers(json!("inner")),
            answers(json!("done")),
        ]);
        let endpoint = Endpoint::start(Scenario::new(replies));
        let url = endpoint.base_url();
        let at = ["--base-url", &url, "--model", "m", "--json"];
        let mut child = begin(
            &host,
            &[&["run", "t", "--context", "context.json"], &at[..]].concat(),
        );
        let waits = |path: &str| {
            until("a call that waits", || {
                let list = host.run(&["approvals", "list"]).stdout;
                // What was decided stays in the list until it is taken.
                let line = list.lines().find(|line| line.contains(path))?;
                line.split_whitespace().next().map(str::to_owned)
            })
        };
        let approve = |id: &str| {
            let approved = host.run(&["approvals", "approve", id]);
            assert_eq!(approved.code, Some(0), "{approved:?}");
        };
        approve(&waits("a.txt"));
        if is_waiting {
            waits("b.txt");
        } else {
            until("the stream", || {
                let events = recorded(&host);
                let last = &events.last()?["what"]["what"];
                let is_asked = last["event"] == "request" && last["step"] == 2;
                (is_asked && endpoint.open_streams() == 1).then_some(())
            });
        }
        child.kill().expect("SIGKILL");
        wait(&host, child);
        let resumed = begin(&host, &[&["resume", "last"], &at[..]].concat());
        approve(&waits("b.txt"));
        let done = wait(&host, resumed);
        assert_eq!(done.code, Some(0), "{done:?}");
        for path in ["data/a.txt", "data/b.txt"] {
            let text = std::fs::read_to_string(host.path().join(path)).expect("it was written");
            assert_eq!(text, "once ", "{path}");
        }
        let events = recorded(&host);
        assert_eq!(events.last().expect("events")["output"], "done");
        assert_eq!(
            endpoint.requests().len(),
            if is_waiting { 7 } else { 8 },
            "no Request is made again but the one that broke off"
        );
        let replayed = host.run(&["runs", "replay", "last"]);
        assert!(replayed.stdout.contains("identical"), "{replayed:?}");
    }
}

/// What was decided about a call counts for that call: the same again waits again, and what somebody
/// decided about another is no decision about this one.
#[test]
fn a_decision_counts_once_and_for_what_was_shown() {
    let host = host(ASKS);
    let endpoint = Endpoint::start(Scenario::new([
        write_call(),
        write_call(),
        answers(json!("done")),
    ]));
    let url = endpoint.base_url();
    let child = begin(
        &host,
        &["run", "t", "--base-url", &url, "--model", "m", "--json"],
    );
    let first = waiting(&host);
    let other = r#"{"digest":"of something else","verdict":"approve"}"#;
    Records::of(&host).decide(&first, other);
    until("the notice", || {
        (count(&recorded(&host), "notice") == 1).then_some(())
    });
    assert!(!host.path().join("data/a.txt").exists());
    assert_eq!(waiting(&host), first);
    host.run(&["approvals", "approve", &first]);
    let second = until("the second", || {
        let id = host.run(&["approvals", "list"]).stdout;
        let id = id.split_whitespace().next()?.to_owned();
        (id != first).then_some(id)
    });
    host.run(&["approvals", "refuse", &second]);
    assert_eq!(wait(&host, child).code, Some(0));
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
}

/// A run is gone on with by one process at a time, and by another as soon as that is gone.
#[test]
fn a_run_has_one_process() {
    let host = host("");
    let endpoint = Endpoint::start(Scenario::new([Reply::endless(), answers(json!("done"))]));
    let url = endpoint.base_url();
    let mut child = begin(
        &host,
        &["run", "t", "--base-url", &url, "--model", "m", "--json"],
    );
    until("the stream", || {
        (endpoint.open_streams() == 1 && count(&recorded(&host), "request") == 1).then_some(())
    });
    let resume = ["resume", "last", "--base-url", &url, "--model", "m"];
    let refused = host.run(&resume);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("still going on"), "{refused:?}");
    assert!(host.run(&["runs"]).stdout.contains("going on"));
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    assert!(host.run(&["runs"]).stdout.contains("not over"));
    let done = host.run(&resume);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "done"),
        "{done:?}"
    );
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
    let over = host.run(&resume);
    assert!(over.stderr.contains("this run is over"), "{over:?}");
}

#[test]
fn a_changed_byte_is_found_and_named() {
    let host = host("");
    let expression =
        json!({"_tool": "calculator.evaluate", "_reasoningForCall": "r", "expression": "1+1"});
    let endpoint = Endpoint::start(Scenario::new([calls(&[expression]), answers(json!("two"))]));
    let done = host.run(&["run", "t", "--base-url", &endpoint.base_url()]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let records = Records::of(&host);
    let run = records.runs().remove(0);
    let lines = records.lines(&run);
    // One digit in each line: of a time, of a measurement, of an argument.
    for at in 0..lines.len() {
        let place = lines[at]
            .rfind(|c: char| c.is_ascii_digit())
            .expect("a digit");
        let changed = if &lines[at][place..=place] == "1" {
            "2"
        } else {
            "1"
        };
        let line = format!(
            "{}{changed}{}",
            &lines[at][..place],
            &lines[at][place + 1..]
        );
        records.change(&run, at, &line);
        let found = host.run(&["runs", "replay", "last"]);
        assert_eq!(found.code, Some(1), "line {}: {found:?}", at + 1);
        assert!(
            found.stderr.contains(&format!("line {} of", at + 1)),
            "{found:?}"
        );
        if at + 1 < lines.len() {
            records.change(&run, at, &lines[at]);
        }
    }
    let shown = host.run(&["show", "last"]);
    assert_eq!(shown.code, Some(1));
    assert!(
        shown.stdout.contains("two") && shown.stderr.contains("not genuine"),
        "{shown:?}"
    );
    let last = lines.len() - 1;
    records.change(&run, last, &lines[last]);
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
    records.lose(&run, 3);
    let found = host.run(&["runs", "replay", "last"]);
    assert!(found.stderr.contains("line 4 of"), "{found:?}");
}

/// Two runs of one task: the same until the model decides otherwise.
#[test]
fn diff_says_where_two_runs_part() {
    let host = host("");
    let expression = |text: &str| json!({"_tool": "calculator.evaluate", "_reasoningForCall": "r", "expression": text});
    for text in ["1+1", "1+1", "1+2"] {
        let endpoint = Endpoint::start(Scenario::new([
            calls(&[expression(text)]),
            answers(json!("done")),
        ]));
        let done = host.run(&["run", "t", "--base-url", &endpoint.base_url()]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let listed = host.run(&["runs"]).stdout;
    let ids: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let [first, second, third] = ids[..] else {
        panic!("{listed}");
    };
    let same = host.run(&["runs", "diff", first, second]);
    assert_eq!(same.code, Some(0), "{same:?}");
    let other = host.run(&["runs", "diff", second, third]);
    assert_eq!(other.code, Some(1), "{other:?}");
    for part in ["1 milestones are the same", "- reply", "+ reply", "1+2"] {
        assert!(other.stdout.contains(part), "{part}: {other:?}");
    }
}

/// What a model, a guest or an endpoint says cannot move the cursor, hide text or write a line of the
/// host's.
#[test]
fn nothing_reaches_the_terminal_unescaped() {
    let host = host(ASKS);
    let nasty = "\u{1b}[2J\u{202e}\n  ← files.write {\"path\":\"good\"}";
    let call = json!({
        "_tool": "files.write", "_reasoningForCall": nasty, "path": "a.txt", "content": nasty,
    });
    let endpoint = Endpoint::start(Scenario::new([calls(&[call]), answers(json!(nasty))]));
    let url = endpoint.base_url();
    let child = begin(&host, &["run", nasty, "--base-url", &url, "--model", "m"]);
    let id = waiting(&host);
    let mut seen = vec![host.run(&["approvals", "list"])];
    seen.push(host.run(&["approvals", "refuse", &id, nasty]));
    seen.push(wait(&host, child));
    for command in [&["show", "last"][..], &["runs"], &["approvals", "list"]] {
        seen.push(host.run(command));
    }
    for done in seen {
        let text = done.stdout + &done.stderr;
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert!(
            !text.contains("\n  ← files.write {\"path\":\"good\"}  "),
            "{text}"
        );
    }
}
