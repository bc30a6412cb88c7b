//! The question whether a call may be made, at a terminal: what is typed, and what comes of it.

use serde_json::{Value, json};
use std::process::Command;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host, finish};
use support::sandbox::repository;
use support::until;

const QUESTION: &str = "approve?";

/// A folder whose `files` module writes to `data/` when a person lets it.
fn host() -> Host {
    let host = Host::new();
    host.ship("files")
        .write("data/.keep", "")
        .write("toolhold.toml", "[decisions]\nalways = [\"files.write\"]\n");
    host
}

fn written(host: &Host) -> Option<String> {
    std::fs::read_to_string(host.path().join("data/a.txt")).ok()
}

/// A model that writes one file and is done.
fn endpoint() -> Endpoint {
    let call = json!({
        "_tool": "files.write",
        "_reasoningForCall": "because",
        "path": "a.txt",
        "content": "as the model wants",
    });
    Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [call], "output": null})),
        Reply::solution(json!({"calls": [], "output": "done"})),
    ]))
}

/// Runs the task at a terminal and types: each text when what stands before it was shown.
fn typing(host: &Host, endpoint: &Endpoint, dialogue: &[(&str, &str)]) -> Finished {
    let url = endpoint.base_url();
    let run = ["run", "t", "--base-url", &url, "--model", "m"];
    let grant = ["--dir", "files=data:/data:rw"];
    at_terminal(&host.command(&[&run[..], &grant].concat()), dialogue)
}

/// `command` with a terminal for stdin, stdout and stderr; `stdout` is what the terminal showed.
pub fn at_terminal(command: &Command, dialogue: &[(&str, &str)]) -> Finished {
    let mut terminal = Command::new("python3");
    terminal
        .arg(repository().join("tests/fixtures/terminal.py"))
        .arg(json!(dialogue).to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("NO_COLOR", "1")
        .env("TERM", "xterm");
    if let Some(folder) = command.get_current_dir() {
        terminal.current_dir(folder);
    }
    finish(terminal.output().expect("Python runs"))
}

/// The text of all messages of the endpoint's second request.
fn told(endpoint: &Endpoint) -> String {
    let requests = endpoint.requests();
    let second = requests
        .get(1)
        .map(|request| request["messages"].to_string());
    second.unwrap_or_default()
}

#[test]
fn an_answer_at_the_terminal_decides() {
    for (typed, file, expect) in [
        ("y\n", Some("as the model wants"), "bytes"),
        ("YES\n", Some("as the model wants"), "bytes"),
        (
            "e {\"path\": \"a.txt\", \"content\": \"as a person wants\"}\n",
            Some("as a person wants"),
            "bytes",
        ),
        ("n not on a Friday\n", None, "not on a Friday"),
        ("n\n", None, "no reason given"),
        (
            "r {\"path\": \"elsewhere\", \"written_bytes\": 1, \"total_bytes\": 1}\n",
            None,
            "elsewhere",
        ),
    ] {
        let (host, endpoint) = (host(), endpoint());
        let done = typing(&host, &endpoint, &[(QUESTION, typed)]);
        assert_eq!(done.code, Some(0), "{typed:?}: {done:?}");
        assert!(
            done.stdout.contains(
                r#"approve? files.write {"path":"a.txt","content":"as the model wants"}"#
            ),
            "it shows what is decided about: {done:?}"
        );
        assert_eq!(written(&host).as_deref(), file, "{typed:?}: {done:?}");
        assert!(
            told(&endpoint).contains(expect),
            "{typed:?}: {}",
            told(&endpoint)
        );
        assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
        let journal = host.run(&["show", "last", "--json"]).stdout;
        assert!(journal.contains("\"by\":\"terminal\""), "{journal}");
    }
}

#[test]
fn an_unclear_answer_is_asked_for_again() {
    let (host, endpoint) = (host(), endpoint());
    let done = typing(
        &host,
        &endpoint,
        &[
            (QUESTION, "maybe\n"),
            ("\"maybe\" is no answer", "\n"),
            (QUESTION, "e {\"path\": \n"),
            ("is not JSON", "e {\"path\": 7}\n"),
            ("not of type", "n enough\n"),
        ],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(written(&host), None);
    assert!(told(&endpoint).contains("enough"), "{}", told(&endpoint));
}

/// After the end of input there are no more questions; a message says how to decide elsewhere.
#[test]
fn at_the_end_of_input_the_decision_comes_from_elsewhere() {
    let (host, endpoint) = (host(), endpoint());
    let decided = std::thread::scope(|threads| {
        let run = threads.spawn(|| {
            typing(
                &host,
                &endpoint,
                &[(QUESTION, "\u{4}"), ("toolhold approvals", "")],
            )
        });
        let call = host.waiting_call();
        let typed = host.path().join(".typed");
        until("the end of the input", || typed.exists().then_some(()));
        assert!(!run.is_finished(), "it waits on");
        let refused = host.run(&["approvals", "refuse", &call, "from elsewhere"]);
        assert_eq!(refused.code, Some(0), "{refused:?}");
        run.join().expect("it ends")
    });
    assert_eq!(decided.code, Some(0), "{decided:?}");
    assert!(
        decided.stdout.contains("nothing more can be typed here"),
        "{decided:?}"
    );
    assert_eq!(
        decided.stdout.matches(QUESTION).count(),
        1,
        "it does not ask again: {decided:?}"
    );
    assert!(told(&endpoint).contains("from elsewhere"));
    assert_eq!(written(&host), None);
}

/// The events of the last run.
fn recorded(host: &Host) -> Vec<Value> {
    let journal = host.run(&["show", "last", "--json"]).stdout;
    let event = |line: &str| serde_json::from_str(line).expect("JSON");
    journal.lines().map(event).collect()
}

#[test]
fn ctrl_c_parks_a_run_that_resume_goes_on_with() {
    let (host, endpoint) = (host(), endpoint());
    let done = typing(&host, &endpoint, &[(QUESTION, "\u{3}")]);
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.stdout.contains("toolhold resume "), "{done:?}");
    assert_eq!((written(&host), endpoint.requests().len()), (None, 1));
    let events = recorded(&host);
    assert!(events.iter().all(|event| event["event"] != "done"));
    let url = endpoint.base_url();
    let resume = ["resume", "last", "--base-url", &url, "--model", "m"];
    let grant = ["--dir", "files=data:/data:rw"];
    let resume = host.command(&[&resume[..], &grant].concat());
    let done = at_terminal(&resume, &[(QUESTION, "y\n")]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(written(&host).as_deref(), Some("as the model wants"));
    assert_eq!(
        recorded(&host).last().map(|event| &event["reason"]),
        Some(&json!("output"))
    );
}

#[test]
fn ctrl_c_twice_ends_a_run() {
    let (host, endpoint) = (host(), endpoint());
    let dialogue = [(QUESTION, "\u{3}"), ("Ctrl-C again ends it", "\u{3}")];
    let done = typing(&host, &endpoint, &dialogue);
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.stdout.contains("cancelled: "), "{done:?}");
    assert_eq!((written(&host), endpoint.requests().len()), (None, 1));
    let events = recorded(&host);
    assert_eq!(
        events.last().map(|event| &event["reason"]),
        Some(&json!("cancelled"))
    );
}

#[test]
fn always_is_bound_to_the_tool_and_a_pattern_of_its_arguments() {
    let host = host();
    let call = |path: &str| json!({"_tool": "files.write", "_reasoningForCall": "r", "path": path, "content": path});
    let solution = |path| Reply::solution(json!({"calls": [call(path)], "output": null}));
    let endpoint = Endpoint::start(Scenario::new([
        solution("a1.txt"),
        solution("a2.txt"),
        solution("b.txt"),
        Reply::solution(json!({"calls": [], "output": "done"})),
    ]));
    let done = typing(
        &host,
        &endpoint,
        &[
            (QUESTION, "a {\"path\": \"c*\"}\n"),
            ("does not fit", "a {\"path\": \"a*\", \"content\": \"*\"}\n"),
            // The second call is not asked about, the third is.
            (QUESTION, "n\n"),
        ],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    let there = |path: &str| host.path().join("data").join(path).exists();
    assert!(
        there("a1.txt") && there("a2.txt") && !there("b.txt"),
        "{done:?}"
    );
    let decided: Vec<Value> = recorded(&host)
        .into_iter()
        .filter(|event| event["event"] == "decided")
        .map(|event| json!([event["verdict"], event["by"]]))
        .collect();
    assert_eq!(
        json!(decided),
        json!([
            ["approve", "terminal, always"],
            ["approve", "terminal, always"],
            ["refuse", "terminal"],
        ]),
    );
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
}

/// The answer is text while it is written, and is not printed again; calls are a line each.
#[test]
fn a_person_reads_prose_and_the_answer_once() {
    let host = Host::new();
    host.ship("calculator");
    let scenario = || {
        let call = json!({"_tool": "calculator.evaluate", "_reasoningForCall": "because", "expression": "6 * 7"});
        Endpoint::start(Scenario::new([
            Reply::solution(json!({"calls": [call], "output": null})),
            Reply::solution(json!({"calls": [], "output": "It is\n\"42\"."})),
        ]))
    };
    let shown = |flags: &[&str]| {
        let endpoint = scenario();
        let url = endpoint.base_url();
        let run = ["run", "t", "--base-url", &url, "--model", "m"];
        let done = at_terminal(&host.command(&[&run[..], flags].concat()), &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done.stdout.replace("\r\n", "\n")
    };
    let text = shown(&[]);
    // A bar marks what a model writes.
    assert_eq!(text.matches("│ It is\n│ \"42\".\n").count(), 1, "{text}");
    assert!(
        !text.contains("\"calls\""),
        "no JSON of the contract: {text}"
    );
    let lines = text.lines().filter(|line| line.contains("calculator"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(
        lines[0].contains(r#"→ calculator.evaluate {"expression":"6 * 7"} = {"value":"42"}"#),
        "{text}"
    );
    let raw = shown(&["-v"]);
    for part in ["\"calls\":[]", "step 2", "fuel"] {
        assert!(raw.contains(part), "{part}: {raw}");
    }
}

/// Whether each line that has the text is one of the model's.
fn is_marked(shown: &str, text: &str) -> bool {
    let mut lines = shown.lines().filter(|line| line.contains(text)).peekable();
    lines.peek().is_some() && lines.all(|line| line.trim_start().starts_with('│'))
}

/// A model that writes what lines of the host look like does not write lines of the host.
#[test]
fn what_a_model_writes_looks_like_no_line_of_the_host() {
    let host = host();
    host.write("toolhold.toml", "");
    let forged = "Well.\n  → files.remove {} = {}  1.0 ms\nparked: forged";
    let reply = || Reply {
        reasoning: Some(forged.into()),
        ..Reply::content(json!({"calls": [], "output": forged}).to_string())
    };
    for flags in [&[][..], &["-v"]] {
        let endpoint = Endpoint::start(Scenario::new([reply()]));
        let url = endpoint.base_url();
        let run = ["run", "t", "--base-url", &url, "--model", "m"];
        let done = at_terminal(&host.command(&[&run[..], flags].concat()), &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let live = done.stdout.replace("\r\n", "\n");
        // With -v the answer is printed at the end, below the host's summary.
        let (live, _) = live.rsplit_once("1 step, ").expect("a summary");
        assert!(is_marked(live, "files.remove"), "{flags:?}: {live}");
        assert!(is_marked(live, "parked: forged"), "{flags:?}: {live}");
    }
}

/// A terminal continues a long line at its left edge, where lines of the host begin.
#[test]
fn each_row_of_what_a_model_writes_has_its_bar() {
    let columns = 80;
    let forged = "approve? files.read {\"path\":\"a.txt\"}";
    let long = format!("Well.\n{}{forged}", " ".repeat(238));
    let call = json!({"_tool": "files.write", "_reasoningForCall": long, "path": "a.txt", "content": long});
    for flags in [&[][..], &["-v"]] {
        let host = host();
        let endpoint = Endpoint::start(Scenario::new([
            Reply {
                reasoning: Some(long.clone()),
                between_ms: 20,
                ..Reply::content(json!({"calls": [call], "output": long}).to_string())
            },
            Reply::solution(json!({"calls": [], "output": "done"})),
        ]));
        let url = endpoint.base_url();
        let run = ["run", "t", "--base-url", &url, "--model", "m"];
        let grant = ["--dir", "files=data:/data:rw"];
        let mut command = host.command(&[&run[..], &grant, flags].concat());
        command.env("COLUMNS", columns.to_string());
        let done = at_terminal(&command, &[("approve? files.write", "y\n")]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let shown = done.stdout.replace("\r\n", "\n");
        // The terminal's echo of the answer is the only text on its row.
        let lines = shown.lines().filter(|line| *line != "y");
        let rows: Vec<String> = lines.flat_map(|line| rows(line, columns)).collect();
        let forgeries = rows.iter().filter(|row| row.contains("files.read"));
        let forgeries: Vec<&String> = forgeries.collect();
        assert!(!forgeries.is_empty(), "{flags:?}: {shown}");
        for row in forgeries {
            assert!(
                row.trim_start().starts_with('│'),
                "{flags:?}: {row:?}\n{shown}"
            );
        }
        // What the model writes on while the person is asked is shown when it was decided.
        let question = rows.iter().position(|row| row.starts_with(QUESTION));
        let decided = rows
            .iter()
            .position(|row| row.contains("approved (terminal)"));
        let (question, decided) = (question.expect("asked"), decided.expect("decided"));
        let meanwhile = rows.get(question..decided).unwrap_or_default();
        assert!(
            !meanwhile.iter().any(|row| row.contains("output")),
            "{flags:?}: {meanwhile:?}"
        );
    }
}

/// The rows that a terminal of so many columns shows of a line.
pub fn rows(line: &str, columns: usize) -> Vec<String> {
    let cells: Vec<char> = line.chars().collect();
    let row = |cells: &[char]| cells.iter().collect();
    cells.chunks(columns).map(row).collect()
}

/// While a person is asked, the model may write on, or have begun a line: the question stands alone.
#[test]
fn a_question_stands_on_a_line_of_its_own() {
    let forged = "approve? files.read {\"path\":\"a.txt\"}";
    let call =
        json!({"_tool": "files.write", "_reasoningForCall": "r", "path": "a.txt", "content": "c"});
    for flags in [&[][..], &["-v"]] {
        let host = host();
        let endpoint = Endpoint::start(Scenario::new([
            Reply {
                reasoning: Some(format!("I think\n{forged}\nand then")),
                between_ms: 20,
                ..Reply::content(json!({"calls": [call], "output": forged}).to_string())
            },
            Reply::solution(json!({"calls": [], "output": "done"})),
        ]));
        let url = endpoint.base_url();
        let run = ["run", "t", "--base-url", &url, "--model", "m"];
        let grant = ["--dir", "files=data:/data:rw"];
        let command = host.command(&[&run[..], &grant, flags].concat());
        let done = at_terminal(&command, &[("approve? files.write", "y\n")]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let shown = done.stdout.replace("\r\n", "\n");
        let asked: Vec<&str> = shown
            .lines()
            .filter(|line| line.contains("approve? files.write"))
            .collect();
        assert!(!asked.is_empty(), "{shown}");
        assert!(
            asked.iter().all(|line| line.starts_with(QUESTION)),
            "{asked:?}"
        );
        assert!(
            is_marked(&shown, "approve? files.read"),
            "{flags:?}: {shown}"
        );
    }
}

/// While a question is open, the terminal makes no signal of Ctrl-C.
#[test]
fn ctrl_c_at_a_question_of_a_chat_ends_the_turn() {
    let (host, endpoint) = (host(), endpoint());
    let url = endpoint.base_url();
    let chat = ["chat", "--base-url", &url, "--model", "m"];
    let grant = ["--dir", "files=data:/data:rw"];
    let command = host.command(&[&chat[..], &grant].concat());
    let dialogue = [
        ("› ", "write it\r"),
        (QUESTION, ""),
        (QUESTION, "\u{3}"),
        ("cancelled", "/quit\r"),
    ];
    let done = at_terminal(&command, &dialogue);
    assert!(!done.stdout.contains("done"), "{done:?}");
    assert_eq!(written(&host), None, "{done:?}");
    assert_eq!(
        recorded(&host).last().map(|event| &event["reason"]),
        Some(&json!("cancelled"))
    );
    assert_eq!(done.code, Some(130), "{done:?}");
}

/// A call that was decided elsewhere is over, and what is typed then is for the next question.
#[test]
fn a_typed_answer_is_for_the_question_on_the_screen() {
    let host = host();
    let call = |path: &str| json!({"_tool": "files.write", "_reasoningForCall": "r", "path": path, "content": path});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [call("a.txt"), call("b.txt")], "output": null})),
        Reply::solution(json!({"calls": [], "output": "done"})),
    ]));
    let done = typing(
        &host,
        &endpoint,
        &[
            (QUESTION, "n first\ny\n"),
            // The second line was typed before the second question, and is no answer to it.
            (QUESTION, "n second\n"),
        ],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    for reason in ["first", "second"] {
        assert!(told(&endpoint).contains(reason), "{}", told(&endpoint));
    }
    assert!(!host.path().join("data/b.txt").exists() && written(&host).is_none());
}
