//! `toolhold run` against a scripted endpoint: the loop from task to output, and every way in which
//! an endpoint, a model or a module can spoil it.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host, finish, signal};
use support::records::Records;
use support::sandbox::component;
use support::server::is_recorded;
use toolhold_hostile::components as hostile;

/// A reply of the schema contract that makes one call.
pub(crate) fn calls(tool: &str, arguments: Value) -> Reply {
    let mut call = json!({"_tool": tool, "_reasoningForCall": "because"});
    call.as_object_mut()
        .unwrap()
        .extend(arguments.as_object().unwrap().clone());
    Reply::solution(json!({"calls": [call], "output": null}))
}

pub(crate) fn answers(output: Value) -> Reply {
    Reply::solution(json!({"calls": [], "output": output}))
}

fn host() -> Host {
    let host = Host::new();
    host.ship("calculator")
        .write("modules/bad.wasm", component(hostile::COMPUTE));
    host
}

fn run(host: &Host, endpoint: &Endpoint, extra: &[&str]) -> Finished {
    let url = endpoint.base_url();
    host.run(&[&["run", "the task", "--base-url", &url], extra].concat())
}

/// The text of all messages of the endpoint's `n`th request.
fn told(endpoint: &Endpoint, n: usize) -> String {
    endpoint.requests()[n]["messages"].to_string()
}

fn events(done: &Finished) -> Vec<Value> {
    done.stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one event a line"))
        .collect()
}

#[test]
fn a_task_is_solved_by_calling_a_component() {
    let endpoint = Endpoint::start(Scenario::new([
        calls("calculator.evaluate", json!({"expression": "2^200 % 97"})),
        answers(json!("It is 62.")),
    ]));
    let done = run(&host(), &endpoint, &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        done.stdout.trim(),
        "It is 62.",
        "only the answer is on stdout"
    );
    for part in [
        "→ calculator.evaluate {\"expression\":\"2^200 % 97\"} = {\"value\":\"62\"}",
        "because",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(
        told(&endpoint, 1).contains(r#"{\"value\":\"62\"}"#),
        "the result is in the next request"
    );
    let schema = endpoint.requests()[0]["response_format"]["json_schema"]["schema"].to_string();
    assert!(
        schema.contains("calculator.evaluate") && schema.contains("bad.spin"),
        "{schema}"
    );
}

#[test]
fn native_tool_calling_solves_it_too() {
    let endpoint = Endpoint::start(Scenario::new([
        Reply::tool_calls([
            ("calculator-evaluate", json!({"expression": "17*23"})),
            ("bad-count", json!({})),
        ]),
        Reply::content("It is 391."),
    ]));
    let done = run(&host(), &endpoint, &["--contract", "tools"]);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "It is 391."),
        "{done:?}"
    );
    let second = endpoint.requests()[1]["messages"]
        .as_array()
        .cloned()
        .unwrap();
    let results: Vec<_> = second
        .iter()
        .rev()
        .take(2)
        .map(|m| (m["role"].clone(), m["content"].clone()))
        .collect();
    assert_eq!(
        results,
        [
            (json!("tool"), json!("2")),
            (json!("tool"), json!("{\"value\":\"391\"}"))
        ]
    );
}

#[test]
fn events_come_in_order_and_the_journal_holds_the_same() {
    let endpoint = Endpoint::start(Scenario::new([
        calls("calculator.evaluate", json!({"expression": "1+1"})),
        answers(json!("2")),
    ]));
    let host = host();
    let done = run(&host, &endpoint, &["--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = events(&done);
    let kinds: Vec<_> = events
        .iter()
        .map(|e| e["event"].as_str().unwrap())
        .collect();
    let at = |kind: &str| kinds.iter().position(|found| *found == kind).unwrap();
    // The call begins while the model writes the rest of its reply; its result may come before or
    // after the end of that.
    assert!(at("tool_start") < at("reply"), "{kinds:?}");
    let of_the_model: Vec<_> = kinds
        .iter()
        .filter(|kind| !["delta", "written", "tool_start", "tool_result"].contains(kind))
        .collect();
    let step = ["budget", "request", "reply", "tokens"];
    let expected = [&["run"], &step[..], &["plan"], &step[..], &["done"]].concat();
    assert!(of_the_model.into_iter().eq(&expected), "{kinds:?}");
    let asked_again = kinds.iter().rposition(|kind| *kind == "request");
    assert!(Some(at("tool_result")) < asked_again, "{kinds:?}");
    let recorded: Vec<_> = events.iter().filter(|event| is_recorded(event)).collect();
    let numbers: Vec<_> = recorded
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..recorded.len() as u64).collect::<Vec<_>>());
    let run = events[0]["run"].as_str().unwrap();
    let record = Records::of(&host).lines(run);
    let shown = done.stdout.lines().zip(&events);
    let shown = shown.filter(|(_, event)| is_recorded(event));
    assert!(shown.map(|(line, _)| line).eq(&record));
}

/// For any fault of a call, the model learns what to do about it and the run goes on.
#[test]
fn a_bad_call_is_a_message_to_the_model() {
    for (tool, arguments, expect) in [
        ("no.such", json!({}), "there is no tool named"),
        ("calculator.evaluate", json!({}), "is a required property"),
        (
            "calculator.evaluate",
            json!({"expression": true}),
            "is not of type",
        ),
        ("calculator.evaluate", json!({"expression": "1/0"}), "zero"),
        ("bad.boom", json!({}), "the tool crashed"),
        ("bad.recurse", json!({}), "bytes of Wasm stack"),
        ("bad.spin", json!({}), "fuel limit of 5000000"),
    ] {
        let host = host();
        host.write("toolhold.toml", "[limits]\nfuel = 5_000_000\n");
        let endpoint = Endpoint::start(Scenario::new([
            calls(tool, arguments.clone()),
            answers(json!("went on")),
        ]));
        let done = run(&host, &endpoint, &[]);
        assert_eq!(
            (done.code, done.stdout.trim()),
            (Some(0), "went on"),
            "{tool}: {done:?}"
        );
        let told = told(&endpoint, 1);
        assert!(
            told.contains("<error ") && told.contains(expect),
            "{tool} {arguments}: {told}"
        );
        assert!(done.stderr.contains("✗"), "{tool}: {}", done.stderr);
    }
}

#[test]
fn a_model_that_answers_prose_is_corrected_and_then_given_up() {
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content("I think it is 7."),
        answers(json!("seven")),
    ]));
    let done = run(&host(), &endpoint, &[]);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "seven"),
        "{done:?}"
    );
    assert!(
        told(&endpoint, 1).contains("That reply could not be used"),
        "{}",
        told(&endpoint, 1)
    );

    let endpoint = Endpoint::start(Scenario::new(
        (0..3).map(|_| Reply::content("I think it is 7.")),
    ));
    let done = run(&host(), &endpoint, &[]);
    assert_eq!(done.code, Some(3), "{done:?}");
    for part in ["3 replies in a row", "I think it is 7.", "--contract"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
}

#[test]
fn the_third_identical_call_is_not_made() {
    let same = || calls("calculator.evaluate", json!({"expression": "1+1"}));
    let endpoint = Endpoint::start(Scenario::new([same(), same(), same(), answers(json!("2"))]));
    let done = run(&host(), &endpoint, &["--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let started = events(&done)
        .iter()
        .filter(|e| e["event"] == "tool_start")
        .count();
    assert_eq!(started, 2);
    assert!(
        told(&endpoint, 3).contains("was not made again"),
        "{}",
        told(&endpoint, 3)
    );
}

#[test]
fn an_output_schema_holds() {
    let host = host();
    host.write("schema.json", json!({"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 2}}, "required": ["n"]}).to_string());
    let endpoint = Endpoint::start(Scenario::new([
        answers(json!({"n": 3})),
        answers(json!({"n": 4})),
    ]));
    let done = run(&host, &endpoint, &["--output-schema", "schema.json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        serde_json::from_str::<Value>(&done.stdout).expect("JSON"),
        json!({"n": 4})
    );
    // No grammar knows multipleOf: it is not sent, and checked here all the same.
    assert!(
        !endpoint.requests()[0]["response_format"]
            .to_string()
            .contains("multipleOf")
    );
    assert!(
        told(&endpoint, 1).contains("not a multiple of 2"),
        "{}",
        told(&endpoint, 1)
    );
}

/// The cut answer is the output of the run, so its exit code is 0.
#[test]
fn answer_that_is_cut_at_the_token_limit_is_told_at_the_terminal() {
    let cut = |text: &str| Reply {
        finish_reason: Some("length".into()),
        ..Reply::content(text)
    };
    let endpoint = Endpoint::start(Scenario::new([cut("It is")]));
    let done = run(&host(), &endpoint, &["--contract", "tools"]);
    assert_eq!((done.code, done.stdout.trim()), (Some(0), "It is"));
    assert!(
        done.stderr.contains("the answer is not whole"),
        "{}",
        done.stderr
    );
    // Half of a JSON text is no answer.
    let scenario = Scenario::new([cut("{\"calls\": [], \"output\": \"It is")]);
    let endpoint = Endpoint::start(scenario.in_order(ReplyOrder::Repeat));
    let done = run(&host(), &endpoint, &["--contract", "schema"]);
    assert_eq!((done.code, done.stdout.trim()), (Some(3), ""), "{done:?}");
    assert!(done.stderr.contains("stopped:"), "{}", done.stderr);
}

#[test]
fn every_failure_of_the_endpoint_has_its_reason_and_exit_code() {
    for (name, reply, expect) in [
        (
            "truncated",
            answers(json!("x")).truncated_after(60),
            "in the middle",
        ),
        ("cut", answers(json!("x")).cut(), "in the middle"),
        ("html", Reply::html(), "no OpenAI-compatible endpoint"),
        (
            "401",
            Reply::error(401, json!({"error": {"message": "bad key"}})),
            "TOOLHOLD_API_KEY",
        ),
        ("500", Reply::error(500, json!({"error": "boom"})), "boom"),
        (
            "garbage",
            Reply::raw("data: {nonsense\n\n"),
            "cannot be read",
        ),
    ] {
        let scenario = Scenario::new([reply]).in_order(ReplyOrder::Repeat);
        let endpoint = Endpoint::start(scenario);
        let host = host();
        host.write("toolhold.toml", "[endpoints.default]\nbackoff_ms = 10\n");
        let done = run(&host, &endpoint, &[]);
        assert_eq!(done.code, Some(3), "{name}: {done:?}");
        assert!(
            done.stderr.contains("stopped:") && done.stderr.contains(expect),
            "{name}: {}",
            done.stderr
        );
    }
    let done = host().run(&[
        "run",
        "t",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
    ]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        done.stderr.contains("is the server running there?"),
        "{done:?}"
    );
    let done = host().run(&["run", "t", "--base-url", "nonsense", "--model", "m"]);
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("should look like http://"), "{done:?}");
}

#[test]
fn an_endpoint_that_never_answers_ends_within_the_timeout() {
    let host = host();
    host.write(
        "toolhold.toml",
        "[endpoints.default]\nfirst_token_timeout_ms = 500\n",
    );
    let endpoint = Endpoint::start(Scenario::new([Reply::never()]));
    let started = Instant::now();
    let done = run(&host, &endpoint, &["--model", "m"]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert!(done.stderr.contains("500ms"), "{}", done.stderr);

    let endpoint = Endpoint::start(Scenario::new([Reply::never()]));
    let done = run(&host, &endpoint, &["--model", "m", "--timeout", "0.3"]);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert!(done.stderr.contains("within 0.3 s"), "{}", done.stderr);
}

#[test]
fn limits_of_a_run_stop_it_with_their_name() {
    let endless = || {
        Scenario::new((0..5).map(|n| {
            calls(
                "calculator.evaluate",
                json!({"expression": format!("{n}+1")}),
            )
        }))
    };
    let endpoint = Endpoint::start(endless());
    let done = run(&host(), &endpoint, &["--max-steps", "2"]);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert!(
        done.stderr.contains("no output after 2 steps") && endpoint.requests().len() == 2,
        "{done:?}"
    );

    let endpoint = Endpoint::start(endless());
    let done = run(&host(), &endpoint, &["--token-budget", "1"]);
    assert_eq!(done.code, Some(4), "{done:?}");
    assert!(
        done.stderr.contains("run.token_budget") && endpoint.requests().len() == 1,
        "{done:?}"
    );
}

#[test]
fn an_allow_list_is_all_that_the_model_sees() {
    let endpoint = Endpoint::start(Scenario::new([
        calls("bad.count", json!({})),
        answers(json!("ok")),
    ]));
    let done = run(&host(), &endpoint, &["--tools", "calculator"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!endpoint.requests()[0].to_string().contains("bad.spin"));
    assert!(
        told(&endpoint, 1).contains("there is no tool named"),
        "what it does not see it cannot call"
    );
    let done = run(&host(), &endpoint, &["--tools", "calculater"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("--tools calculater"), "{done:?}");
}

/// docs/security.md, row 29: a call that is refused before it is made has its row in the audit log, too.
#[test]
fn calls_that_are_refused_are_audited() {
    let host = host();
    host.write(
        "context.json",
        r#"[{"type": "data", "kind": "n", "data": 1, "_instance": "a"},
            {"type": "data", "kind": "secret", "data": "2", "_instance": "b"}]"#,
    );
    let evaluate = |arguments: Value| calls("calculator.evaluate", arguments);
    let endpoint = Endpoint::start(Scenario::new([
        calls("bad.count", json!({})),
        evaluate(json!({"formula": "1+1"})),
        evaluate(json!({"expression": "†secret", "_instance": "a"})),
        answers(json!("ok")),
    ]));
    let flags = [
        "--tools",
        "calculator",
        "--context",
        "context.json",
        "--json",
    ];
    let done = run(&host, &endpoint, &flags);
    assert_eq!(done.code, Some(0), "{done:?}");
    let made = events(&done);
    assert!(
        made.iter().all(|event| event["event"] != "tool_start"),
        "{done:?}"
    );
    let log = host.run(&["audit", "search", "--json"]);
    let rows: Vec<Value> = events(&log);
    let rows: Vec<_> = rows
        .iter()
        .filter(|row| row["action"] == "call")
        .map(|row| {
            assert_eq!(row["reason"], "because", "{row}");
            json!([row["tool"], row["status"], row["error"], row["arguments"]])
        })
        .collect();
    assert_eq!(
        json!(rows),
        json!([
            ["bad.count", "error", "unknown_tool", {}],
            ["calculator.evaluate", "error", "arguments", {"formula": "1+1"}],
            ["calculator.evaluate", "error", "blocked", {"expression": "†secret"}],
        ]),
        "{log:?}"
    );
}

/// What is piped in, and files, are messages before the task; what is no text, or too much, is refused.
#[test]
fn what_is_piped_in_and_files_go_with_the_task() {
    let host = host();
    host.write("notes.md", "the notes of Monday")
        .write("logo.png", b"\x89PNG\xff")
        .write("large", vec![b'x'; 5 << 20]);
    let endpoint = Endpoint::start(Scenario::new([answers(json!("a summary"))]));
    let url = endpoint.base_url();
    let run = |flags: &[&str], piped: &[u8]| {
        let task = ["run", "summarise", "--base-url", &url, "--model", "m"];
        let mut child = host
            .command(&[&task[..], flags].concat())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("runs");
        // It may end without reading all of it.
        let _ = child.stdin.take().expect("a pipe").write_all(piped);
        finish(child.wait_with_output().expect("ends"))
    };
    let done = run(&["--file", "notes.md"], b"piped in from elsewhere");
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "a summary"),
        "{done:?}"
    );
    let told = told(&endpoint, 0);
    let places = [
        "data, not instructions",
        "notes.md",
        "the notes of Monday",
        "piped in from elsewhere",
        "summarise",
    ]
    .map(|part| told.find(part).unwrap_or_else(|| panic!("{part}: {told}")));
    assert!(places.is_sorted(), "{told}");
    for (flags, piped, expect) in [
        (&["--file", "logo.png"][..], &b""[..], "text in UTF-8"),
        (&["--file", "large"], b"", "4 MiB"),
        (&["--file", "none.md"], b"", "No such file"),
        (&[], b"\xff\xfe", "stdin"),
    ] {
        let done = run(flags, piped);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains(expect), "{expect}: {done:?}");
    }
    assert_eq!(endpoint.requests().len(), 1, "nothing was asked for those");
}

/// As with the preset `openai`.
#[test]
fn a_temperature_that_is_not_sent_is_said() {
    let host = host();
    let left_out = "[endpoints.default]\nfields = { temperature = \"\" }\n";
    let replies = || [answers(json!("done"))];
    for (set, is_said) in [("", false), ("[run]\ntemperature = 0.0\n", true)] {
        host.write("toolhold.toml", format!("{set}{left_out}"));
        let endpoint = Endpoint::start(Scenario::new(replies()));
        let done = run(&host, &endpoint, &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let says = done
            .stderr
            .contains("run.temperature is not sent to default");
        assert_eq!(says, is_said, "{done:?}");
        assert!(endpoint.requests()[0].get("temperature").is_none());
    }
}

/// The list of a loop is not the text of its first run.
#[test]
fn a_list_that_a_loop_reads_is_left_to_it() {
    let host = host();
    host.write("list", "the first task\nthe second task\n");
    let endpoint = Endpoint::start(Scenario::new([
        answers(json!("one")),
        answers(json!("two")),
    ]));
    let command = host.command(&[]);
    let script =
        r#"while read -r task; do "$0" run "$task" --base-url "$1" --model m; done < list"#;
    let done = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(command.get_program())
        .arg(endpoint.base_url())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(host.path())
        .output()
        .expect("a shell");
    let done = finish(done);
    assert_eq!(
        (done.code, &*done.stdout),
        (Some(0), "one\ntwo\n"),
        "{done:?}"
    );
    assert!(!told(&endpoint, 0).contains("the second task"), "{done:?}");
    assert!(done.stderr.contains("no part of the task"), "{done:?}");
}

/// The answer is in the record when Ctrl-C comes, and was not printed yet, because the reader of the output is slow.
#[test]
fn ctrl_c_when_a_run_has_just_ended_loses_nothing_of_it() {
    let host = host();
    let answer = "x".repeat(300_000);
    let endpoint = Endpoint::start(Scenario::new([Reply {
        piece: Some(15_000),
        ..answers(json!(answer))
    }]));
    let child = begun(&host, &endpoint);
    Records::of(&host).until_there_is("done");
    signal(child.id(), "INT");
    let done = finish(child.wait_with_output().expect("ends"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let events = events(&done);
    let last = events.last().expect("events");
    assert_eq!(
        (&last["event"], &last["output"]),
        (&json!("done"), &json!(answer))
    );
}

/// A collector of traces that does not answer does not keep the process.
#[test]
fn ctrl_c_ends_a_process_that_waits_for_others_at_its_end() {
    let host = host();
    let endpoint = Endpoint::start(Scenario::new([answers(json!("done"))]));
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let url = endpoint.base_url();
    let mut child = host
        .command(&["run", "t", "--base-url", &url, "--model", "m"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("runs");
    // It has something to send when the run is over, and the answer was printed.
    let mut answer = [0; 5];
    let mut stdout = child.stdout.take().expect("a pipe");
    std::io::Read::read_exact(&mut stdout, &mut answer).expect("the answer");
    assert_eq!(&answer, b"done\n");
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        child.try_wait().expect("a state").is_none(),
        "it waits for the collector"
    );
    let interrupted = Instant::now();
    signal(child.id(), "INT");
    let ended = child.wait().expect("ends");
    assert_eq!(ended.code(), Some(130));
    // The collector is given ten seconds.
    assert!(
        interrupted.elapsed() < Duration::from_secs(4),
        "{:?}",
        interrupted.elapsed()
    );
}

/// Starts a run whose output is piped.
fn begun(host: &Host, endpoint: &Endpoint) -> std::process::Child {
    let url = endpoint.base_url();
    host.command(&["run", "t", "--base-url", &url, "--model", "m", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("runs")
}

/// Starts a run, sends it Ctrl-C as soon as an event of this kind is printed, and returns how it ended.
fn interrupted(host: &Host, endpoint: &Endpoint, ready: &str) -> Finished {
    let mut child = begun(host, endpoint);
    let mut printed = BufReader::new(child.stdout.take().expect("a pipe"));
    let ready = format!(r#""event":"{ready}""#);
    let mut stdout = String::new();
    while !stdout
        .lines()
        .last()
        .is_some_and(|line| line.contains(&ready))
    {
        let length = printed.read_line(&mut stdout).expect("a line");
        assert_ne!(length, 0, "it ended before: {stdout}");
    }
    signal(child.id(), "INT");
    let started = Instant::now();
    printed.read_to_string(&mut stdout).expect("the rest");
    let done = Finished {
        stdout,
        ..finish(child.wait_with_output().expect("ends"))
    };
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.stderr.contains("toolhold resume "), "{done:?}");
    let ended = events(&done);
    assert!(
        ended.iter().all(|event| event["event"] != "done"),
        "it is parked: {done:?}"
    );
    done
}

#[test]
fn ctrl_c_parks_and_leaves_no_stream_open() {
    let endpoint = Endpoint::start(Scenario::new([Reply::endless()]));
    interrupted(&host(), &endpoint, "delta");
    assert!(
        endpoint.wait_until(Duration::from_secs(5), |e| e.open_streams() == 0),
        "the GPU would still be busy"
    );
}

/// A guest that is running when the run is cancelled does not outlive it.
#[test]
fn ctrl_c_stops_a_running_guest() {
    let endpoint = Endpoint::start(Scenario::new([calls("bad.spin", json!({}))]));
    let host = host();
    host.write(
        "toolhold.toml",
        "[limits]\nfuel = 1_000_000_000_000\ntimeout_ms = 60_000\n",
    );
    let done = interrupted(&host, &endpoint, "tool_start");
    let began = events(&done)
        .iter()
        .any(|event| event["event"] == "tool_start");
    assert!(began, "{done:?}");
}

#[test]
fn with_the_shape_both_the_calls_of_a_final_reply_still_run() {
    let both = json!({
        "calls": [{"_tool": "calculator.evaluate", "_reasoningForCall": "r", "expression": "1+1"}],
        "output": "done",
    });
    let endpoint = Endpoint::start(Scenario::new([Reply::solution(both)]));
    let done = run(&host(), &endpoint, &["--shape", "both", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = events(&done);
    let result = events
        .iter()
        .find(|event| event["event"] == "tool_result")
        .expect("it ran");
    assert_eq!(result["output"], json!({"value": "2"}));
    assert_eq!(events.last().unwrap()["output"], "done");
}

/// No schema, no functions: the endpoint is asked for text, and the JSON is found in it.
#[test]
fn plain_text_solves_it_where_an_endpoint_offers_nothing_better() {
    let call = json!({"tool_name": "calculator.evaluate", "arguments": {"expression": "17*23"}});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content("17*23 is 391, I think."),
        Reply::content(format!("I calculate:\n```json\n{call:#}\n```")),
        Reply::content(r#"{"final_answer": "It is 391."}"#),
    ]));
    let done = run(&host(), &endpoint, &["--contract", "simple"]);
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "It is 391."),
        "{done:?}"
    );
    for request in endpoint.requests() {
        assert!(request.get("response_format").is_none() && request.get("tools").is_none());
    }
    assert!(
        told(&endpoint, 1).contains(r#"{\"tool_name\": \"<name>\", "#),
        "a rejection shows the form: {}",
        told(&endpoint, 1)
    );
    assert!(
        told(&endpoint, 2).contains(r#"{\"value\":\"391\"}"#),
        "the result is in the next request: {}",
        told(&endpoint, 2)
    );
}

#[test]
fn native_tool_calling_gives_a_typed_output_through_finish() {
    let host = host();
    host.write(
        "schema.json",
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
            .to_string(),
    );
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content("It is four."),
        Reply::tool_calls([("finish", json!({"output": {"n": 4}}))]),
    ]));
    let done = run(
        &host,
        &endpoint,
        &["--contract", "tools", "--output-schema", "schema.json"],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(
        serde_json::from_str::<Value>(&done.stdout).expect("JSON"),
        json!({"n": 4})
    );
    assert!(
        told(&endpoint, 1).contains("by calling finish"),
        "{}",
        told(&endpoint, 1)
    );
}

/// Two calls of one reply run at the same time, and each result goes back under its own call.
#[test]
fn calls_of_one_reply_run_in_parallel() {
    let host = Host::new();
    host.write("modules/clocks.wasm", component(hostile::CLOCKS))
        .write("toolhold.toml", "[limits]\ntimeout_ms = 1_500\n");
    let sleep = json!({"_tool": "clocks.sleep", "_reasoningForCall": "r"});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": [sleep, sleep, sleep], "output": null})),
        answers(json!("ok")),
    ]));
    let done = run(&host, &endpoint, &["--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let kinds: Vec<_> = events(&done)
        .iter()
        .filter_map(|event| {
            event["event"]
                .as_str()
                .filter(|kind| kind.starts_with("tool_"))
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "tool_start",
            "tool_start",
            "tool_start",
            "tool_result",
            "tool_result",
            "tool_result"
        ]
    );
    assert_eq!(told(&endpoint, 1).matches("deadline of 1500 ms").count(), 3);
    let times: Vec<_> = events(&done)
        .iter()
        .filter(|event| {
            event["event"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("tool_"))
        })
        .map(|event| event["at_ms"].as_u64().expect("a time"))
        .collect();
    let took = times.last().expect("six events") - times[0];
    assert!(
        took < 4_000,
        "one after the other they take 4500 ms; this took {took}"
    );
}

#[test]
fn a_request_s_parts_are_shown_where_that_is_wanted() {
    let host = Host::new();
    host.ship("calculator")
        .write("toolhold.toml", "[endpoints.default]\nwindow = 8192\n");
    let endpoint = Endpoint::start(Scenario::new([Reply::solution(
        json!({"calls": [], "output": "done"}),
    )]));
    let url = endpoint.base_url();
    let arguments = ["run", "t", "--base-url", &url, "--model", "m", "--budget"];
    let done = host.run(&arguments);
    assert_eq!(done.code, Some(0), "{done:?}");
    let line = done.stderr.lines().find(|line| line.contains('≈'));
    let line = line.unwrap_or_else(|| panic!("{done:?}"));
    for part in [
        "of a window of 8.2 k",
        "1.0 k for the reply",
        "instructions ",
        "tools and form ",
        "user ",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// The allow-list is in the record and holds when the run is resumed.
#[test]
fn a_resumed_run_has_the_tools_that_it_began_with() {
    let host = Host::new();
    host.ship("calculator").ship("text");
    let endpoint = Endpoint::start(Scenario::new([
        Reply::endless(),
        Reply::solution(json!({"calls": [], "output": "done"})),
    ]));
    let url = endpoint.base_url();
    let at = ["--base-url", &url, "--model", "m", "--json"];
    let arguments = [&["run", "t", "--tools", "calculator"], &at[..]].concat();
    let mut child = host
        .command(&arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = std::time::Instant::now();
    while endpoint.requests().is_empty() {
        assert!(started.elapsed().as_secs() < 60, "it never asked");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = host.run(&[&["resume", "last"], &at[..]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        !done.stderr.contains("policy:"),
        "it is the same one: {done:?}"
    );
    let journal = host.run(&["show", "last", "--json"]).stdout;
    let first: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    assert_eq!(first["request"]["allowed"], json!(["calculator"]));
}

/// What the configuration says of the agent "default" holds for a run at the terminal, below what the command line says.
#[test]
fn statement_042_12_the_default_agent_holds_for_a_run() {
    let host = host();
    host.ship("text").write(
        "toolhold.toml",
        "[agents.default]\ninstructions = \"Answer like a pirate.\"\ntools = [\"calculator\"]\n\
         run = { max_steps = 1 }\n\
         shields.short = { kind = \"pii\", block = [\"email\"] }\n",
    );
    let again = || calls("calculator.evaluate", json!({"expression": "1+1"}));
    let endpoint = Endpoint::start(Scenario::new([again(), again()]));
    let done = run(&host, &endpoint, &["--json"]);
    assert_eq!(
        events(&done).last().unwrap()["reason"],
        "max_steps",
        "{done:?}"
    );
    assert_eq!(endpoint.requests().len(), 1);
    let text = told(&endpoint, 0);
    assert!(text.contains("Answer like a pirate."), "{text}");
    let asked = endpoint.requests()[0].to_string();
    assert!(
        asked.contains("calculator.evaluate") && !asked.contains("text.count"),
        "{asked}"
    );

    // A flag is about this run.
    let endpoint = Endpoint::start(Scenario::new([again(), answers(json!("2"))]));
    let flags = ["--max-steps", "2", "--instructions", "Answer like a judge."];
    let done = run(&host, &endpoint, &flags);
    assert_eq!(done.code, Some(0), "{done:?}");
    let text = told(&endpoint, 0);
    assert!(
        text.contains("like a judge") && !text.contains("like a pirate"),
        "{text}"
    );

    // Its shields stand before the input.
    let endpoint = Endpoint::start(Scenario::new([answers(json!("Written."))]));
    let url = endpoint.base_url();
    let done = host.run(&["run", "Write to ada@example.com", "--base-url", &url]);
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(endpoint.requests().is_empty(), "{done:?}");
}
