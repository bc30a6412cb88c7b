//! `toolhold eval`: the shipped tasks played by a model that knows every answer and by ones that know
//! none, and what is counted on the way.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host, finish, signal};
use support::sandbox::repository;

/// The modules that the shipped tasks need; all of them are in the repository as components.
const MODULES: [&str; 5] = ["calculator", "text", "files", "javascript", "sqlite"];

fn host() -> Host {
    let host = Host::new();
    for module in MODULES {
        host.ship(module);
    }
    host
}

/// The shipped tasks, as their file has them.
fn shipped() -> Vec<Value> {
    let path = repository().join("host/devkit/src/eval/tasks.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let set: Value = toml::from_str(&text).unwrap();
    set["tasks"].as_array().cloned().unwrap()
}

/// A reply of a solution, in the schema contract.
fn reply(turn: &Value) -> Reply {
    Reply::solution(match turn.get("calls") {
        Some(calls) => json!({"calls": calls, "output": null}),
        None => answer(&turn["answer"]),
    })
}

fn answer(output: &Value) -> Value {
    json!({"calls": [], "output": output})
}

/// A wrong answer that satisfies the task's output schema.
fn wrong(task: &Value) -> Value {
    task.get("wrong")
        .cloned()
        .unwrap_or_else(|| json!("Zebra."))
}

fn eval(host: &Host, endpoint: &Endpoint, extra: &[&str]) -> Finished {
    let url = endpoint.base_url();
    host.run(&[&["eval", "--base-url", &url], extra].concat())
}

/// The report of an evaluation by a model that gives these replies, one task after the other.
fn report(replies: Vec<Reply>) -> Value {
    let endpoint = Endpoint::start(Scenario::new(replies));
    let done = eval(&host(), &endpoint, &["--json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(endpoint.replies_left(), 0, "{}", done.stderr);
    serde_json::from_str(&done.stdout).unwrap()
}

fn successes(report: &Value) -> (u64, u64) {
    let total = &report["configurations"][0]["total"];
    (
        total["successes"].as_u64().unwrap(),
        total["attempts"].as_u64().unwrap(),
    )
}

/// Ids of the tasks that were solved.
fn solved(report: &Value) -> Vec<&str> {
    let attempts = report["attempts"].as_array().unwrap().iter();
    let solved = attempts.filter(|attempt| attempt["passed"] == true);
    solved
        .map(|attempt| attempt["task"].as_str().unwrap())
        .collect()
}

/// What a user asked is a task the next night, without what is private.
#[test]
fn recorded_runs_become_tasks() {
    let call =
        json!({"_tool": "calculator.evaluate", "_reasoningForCall": "r", "expression": "6*7"});
    let replies = || {
        [
            Reply::solution(json!({"calls": [call], "output": null})),
            Reply::solution(answer(&json!("42"))),
        ]
    };
    let endpoint = Endpoint::start(Scenario::new(
        replies()
            .into_iter()
            .chain(replies())
            .chain([Reply::error(400, json!({}))]),
    ));
    let host = Host::new();
    host.ship("calculator");
    let (url, task) = (endpoint.base_url(), "What is 6*7? Tell ada@example.org.");
    let nothing = host.run(&["eval", "capture", "--since", "1h"]);
    assert_eq!(nothing.code, Some(1), "{nothing:?}");
    // Asked twice, and once in vain.
    for (said, code) in [(task, 0), (task, 0), ("Fail.", 3)] {
        let done = host.run(&["run", said, "--base-url", &url]);
        assert_eq!(done.code, Some(code), "{done:?}");
    }
    let captured = host.run(&["eval", "capture", "--since", "1h"]);
    assert_eq!(captured.code, Some(0), "{captured:?}");
    let set: Value = serde_json::from_str(&captured.stdout).unwrap();
    let tasks = set["tasks"].as_array().unwrap();
    let [one] = tasks.as_slice() else {
        panic!("{set}")
    };
    assert_eq!(one["task"], "What is 6*7? Tell <email>.");
    assert_eq!(one["tools"], json!(["calculator.evaluate"]));
    let calls = json!([{"tool": "calculator.evaluate"}]);
    assert_eq!(
        one["expect"],
        json!({"answer": {"matches": "\\S"}, "calls": calls})
    );
    assert!(
        captured.stderr.contains("1 run: it has no output"),
        "{captured:?}"
    );

    host.write("captured.json", &captured.stdout);
    let lazy = Reply::solution(answer(&json!("42")));
    let again = Endpoint::start(Scenario::new(replies().into_iter().chain([lazy])));
    let done = eval(&host, &again, &["captured.json", "--times", "2", "--json"]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(successes(&report), (1, 2), "{report}");
}

#[test]
fn every_shipped_task_can_be_solved_and_its_answer_comes_from_the_tools() {
    let tasks = shipped();
    let turns = tasks
        .iter()
        .flat_map(|task| task["solution"].as_array().unwrap());
    let report = report(turns.map(reply).collect());
    let faults: Vec<_> = report["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| &a["faults"])
        .collect();
    assert_eq!(successes(&report), (40, 40), "{faults:?}");
    // What is expected is what the tools say, and not only what the solution says.
    for (task, attempt) in tasks.iter().zip(report["attempts"].as_array().unwrap()) {
        assert_eq!(task["id"], attempt["task"]);
        if let Some(number) = task.pointer("/expect/answer/number") {
            let calls = attempt["seen"]["calls"].as_array().unwrap();
            let results: Vec<_> = calls
                .iter()
                .map(|call| call["result"].as_str().unwrap())
                .collect();
            let number = number.to_string();
            let is_there = results
                .iter()
                .any(|result| result.contains(number.trim_end_matches(".0")));
            assert!(is_there, "{}: no {number} in {results:?}", task["id"]);
        }
    }
}

#[test]
fn a_model_that_knows_nothing_solves_none() {
    let replies = shipped()
        .iter()
        .map(|task| Reply::solution(answer(&wrong(task))))
        .collect();
    let report = report(replies);
    assert_eq!(successes(&report), (0, 40), "{:?}", solved(&report));
}

/// Every expectation of an answer can fail on its own: all is done right but that.
#[test]
fn the_right_calls_with_a_wrong_answer_are_not_enough() {
    let tasks = shipped();
    let mut replies = Vec::new();
    for task in &tasks {
        let calls = task["solution"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|turn| turn.get("calls").is_some());
        replies.extend(calls.map(reply));
        replies.push(Reply::solution(answer(&wrong(task))));
    }
    let report = report(replies);
    let asks_for_files_alone: Vec<_> = tasks
        .iter()
        .filter(|task| task.pointer("/expect/answer").is_none())
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert_eq!(solved(&report), asks_for_files_alone);
}

/// Every expectation of calls can fail on its own: the answer is right, and nothing was done for it.
#[test]
fn the_right_answer_without_the_calls_is_not_enough() {
    let tasks = shipped();
    let last = |task: &Value| {
        task["solution"]
            .as_array()
            .unwrap()
            .last()
            .map(reply)
            .unwrap()
    };
    let report = report(tasks.iter().map(last).collect());
    let needs_no_call: Vec<_> = tasks
        .iter()
        .filter(|task| task.pointer("/expect/calls").is_none())
        .map(|task| task["id"].as_str().unwrap())
        .collect();
    assert_eq!(solved(&report), needs_no_call);
    assert_eq!(needs_no_call.len(), 4);
}

/// Two tasks; the second needs a folder.
const TWO: &str = r#"
[[tasks]]
id = "sum"
task = "What is one and one?"
tools = ["calculator"]
expect.answer.number = 2
expect.calls = [{ tool = "calculator.evaluate" }]

[[tasks]]
id = "note"
task = "Write b into note.txt."
tools = ["files"]
may_write = ["files"]
files = { "note.txt" = "a" }
expect.files = { "note.txt" = { equals = "b" } }
"#;

/// Answers each request by what is in it, so that attempts may be made at the same time. The model that
/// is asked natively gets the sum wrong.
fn of_two() -> Scenario {
    let replied = |reply: Reply, contains: &[&str], lacks: &[&str], format: Option<&str>| {
        reply.expecting(support::endpoint::Expect {
            contains: contains.iter().map(|text| (*text).into()).collect(),
            lacks: lacks.iter().map(|text| (*text).into()).collect(),
            response_format: format.map(Into::into),
            ..Default::default()
        })
    };
    let schema = Some("json_schema");
    let call = |tool: &str, arguments: Value| {
        let mut call = json!({"_tool": tool});
        call.as_object_mut()
            .unwrap()
            .extend(arguments.as_object().unwrap().clone());
        Reply::solution(json!({"calls": [call], "output": null}))
    };
    let write = json!({"path": "note.txt", "content": "b", "mode": "overwrite"});
    let sum = json!({"expression": "1+1"});
    let replies = [
        replied(
            call("calculator.evaluate", sum.clone()),
            &["one and one"],
            &[r#"{"value":"2"}"#],
            schema,
        ),
        replied(
            Reply::solution(answer(&json!("2"))),
            &["one and one"],
            &[],
            schema,
        ),
        replied(
            call("files.write", write.clone()),
            &["note.txt"],
            &["written_bytes\":1"],
            schema,
        ),
        replied(
            Reply::solution(answer(&json!("done"))),
            &["note.txt"],
            &[],
            schema,
        ),
        replied(Reply::content("It is 3."), &["one and one"], &[], None),
        replied(
            Reply::tool_calls([("files-write", write)]),
            &["note.txt"],
            &["written_bytes\":1"],
            None,
        ),
        replied(Reply::content("done"), &["note.txt"], &[], None),
    ];
    Scenario::new(replies).in_order(ReplyOrder::FirstMatch)
}

#[test]
fn two_configurations_are_compared_task_by_task() {
    let host = host();
    host.write("two.toml", TWO);
    let endpoint = Endpoint::start(of_two());
    let arguments = [
        "two.toml",
        "--plain",
        "--times",
        "3",
        "--parallel",
        "4",
        "--seed",
        "7",
    ];
    let done = eval(&host, &endpoint, &[&arguments[..], &["--json"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    let [ours, plain] = report["configurations"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    assert_eq!(
        (&ours["name"], &plain["name"]),
        (&json!("configured"), &json!("plain"))
    );
    assert_eq!(
        (&ours["contract"], &plain["contract"]),
        (&json!("schema"), &json!("tools"))
    );
    for (setting, own, other) in [
        ("/settings/repair", json!(true), json!(false)),
        ("/settings/fallback/is_on", json!(true), json!(false)),
        ("/settings/examples", json!(2), json!(0)),
        ("/total/successes", json!(6), json!(3)),
        ("/total/attempts", json!(6), json!(6)),
        ("/total/mean_steps", json!(2.0), json!(1.5)),
    ] {
        assert_eq!(
            (ours.pointer(setting), plain.pointer(setting)),
            (Some(&own), Some(&other)),
            "{setting}"
        );
    }
    let [found] = report["comparisons"].as_array().unwrap().as_slice() else {
        panic!("{report}");
    };
    assert_eq!(
        (&found["better"], &found["worse"], &found["equal"]),
        (&json!(0), &json!(1), &json!(1))
    );
    assert_eq!(
        (&found["difference"], &found["p"]),
        (&json!(-0.5), &json!(1.0))
    );
    // Each time another seed, and the same ones for both.
    let mut seeds: Vec<_> = endpoint
        .requests()
        .iter()
        .map(|request| request["seed"].as_u64())
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds, [Some(7), Some(8), Some(9)]);

    let shown = eval(&host, &endpoint, &arguments);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for part in ["configured", "plain", "-50.0", "0/1/1", "0/3"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    for line in shown.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(
        shown.stderr.contains("calculator.evaluate was not called"),
        "{}",
        shown.stderr
    );
    let run = shown
        .stderr
        .split("toolhold show ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let run = host.run(&["show", run.unwrap()]);
    assert!(
        run.code == Some(0) && run.stdout.contains("It is 3."),
        "{run:?}"
    );
}

/// A task is done as `toolhold run` does it: what the default agent has holds, below what the command line compares.
#[test]
fn statement_042_12_the_default_agent_holds_for_evaluations() {
    let host = host();
    host.write("two.toml", TWO).write(
        "toolhold.toml",
        "[agents.default.run]\nexamples = 1\nmax_steps = 9\n",
    );
    let endpoint = Endpoint::start(of_two());
    let done = eval(
        &host,
        &endpoint,
        &["two.toml", "--json", "--vary", "run.max_steps=7"],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    let settings = &report["configurations"][0]["settings"];
    assert_eq!(
        (&settings["examples"], &settings["max_steps"]),
        (&json!(1), &json!(7)),
        "{settings}"
    );
}

#[test]
fn saved_work_is_not_repeated_until_the_settings_change() {
    let host = host();
    host.write("two.toml", TWO);
    let endpoint = Endpoint::start(of_two());
    let arguments = ["two.toml", "--save", "attempts.jsonl"];
    let asked = |extra: &[&str]| {
        let before = endpoint.requests().len();
        let done = eval(&host, &endpoint, &[&arguments[..], extra].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stdout.contains("2/2"), "{done:?}");
        endpoint.requests().len() - before
    };
    assert_eq!(asked(&[]), 4);
    assert_eq!(asked(&[]), 0);
    assert_eq!(asked(&["--max-tokens", "77"]), 4);
    // What every request has besides, what screens, and what the modules are.
    let manifest = host.path().join("modules/calculator/module.toml");
    let changes: [(&str, &dyn Fn()); 3] = [
        ("extra", &|| {
            host.write(
                "toolhold.toml",
                "[endpoints.default]\nextra = { min_p = 0.1 }\n",
            );
        }),
        ("a shield", &|| {
            host.write(
                "toolhold.toml",
                "[shields.hosts]\nkind = \"domains\"\nallow = [\"example.com\"]\n",
            );
        }),
        ("a module", &|| {
            let text = std::fs::read_to_string(&manifest).unwrap();
            let text = text.replace("timeout_ms = ", "timeout_ms = 1");
            std::fs::write(&manifest, text).unwrap();
        }),
    ];
    let whole = std::fs::read(&manifest).unwrap();
    for (what, change) in changes {
        change();
        // Of two tasks one has this module.
        let again = if what == "a module" { 2 } else { 4 };
        assert_eq!(asked(&["--trust-all"]), again, "{what}");
        assert_eq!(asked(&["--trust-all"]), 0, "{what}");
    }
    std::fs::write(&manifest, whole).unwrap();
    host.write("toolhold.toml", "");
    assert_eq!(asked(&[]), 0);
    // The line that was being written when the process was killed.
    let path = host.path().join("attempts.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.find('\n').unwrap() + 20]).unwrap();
    assert_eq!(asked(&[]), 2);
    host.write("attempts.jsonl", "nonsense\n");
    let done = eval(&host, &endpoint, &arguments);
    assert!(
        done.code == Some(1) && done.stderr.contains("line 1 is no attempt"),
        "{done:?}"
    );
}

/// Without repair, what repair would have put right goes back to the model.
#[test]
fn repairs_are_counted_and_repair_can_be_switched_off() {
    let set = r#"
        [[tasks]]
        id = "a"
        task = "Find the a in banana."
        tools = ["text"]
        expect.calls = [{ tool = "text.regex" }]
    "#;
    let call = |limit: &str, end: &str| {
        let arguments = format!(r#""text": "banana", "pattern": "a", "limit": {limit}"#);
        Reply::content(format!(
            r#"{{"calls": [{{"_tool": "text.regex", {arguments}{end}}}], "output": null}}"#
        ))
    };
    let right = || call("3", "");
    for (name, wrong, unrepaired) in [
        (
            "JSON with a trailing comma",
            call("3", ","),
            json!([0, 1, 0]),
        ),
        ("a number as text", call(r#""3""#, ""), json!([0, 0, 1])),
    ] {
        for (repair, expected) in [("true", json!([1, 0, 0])), ("false", unrepaired)] {
            let host = host();
            host.write("one.toml", set);
            let mut replies = vec![wrong.clone()];
            replies.extend((repair == "false").then(right));
            replies.push(Reply::solution(answer(&json!("There are three."))));
            let endpoint = Endpoint::start(Scenario::new(replies));
            let vary = format!("run.repair={repair}");
            let done = eval(&host, &endpoint, &["one.toml", "--json", "--vary", &vary]);
            assert_eq!(done.code, Some(0), "{done:?}");
            let report: Value = serde_json::from_str(&done.stdout).unwrap();
            assert_eq!(successes(&report), (1, 1), "{name}: {done:?}");
            let counts = &report["configurations"][0]["total"]["counts"];
            let found = json!([
                counts["repairs"],
                counts["unusable"],
                counts["failed_calls"]
            ]);
            assert_eq!(found, expected, "{name}, repair {repair}: {}", done.stderr);
        }
    }
}

#[test]
fn how_it_ends_is_told_by_the_exit_code() {
    let host = host();
    host.write("two.toml", TWO);
    let good = Endpoint::start(of_two());
    let native = ["two.toml", "--contract", "tools", "--min-success"];
    let done = eval(&host, &good, &[&native[..], &["50%"]].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = eval(&host, &good, &[&native[..], &["0.51"]].concat());
    assert!(
        done.code == Some(1) && done.stderr.contains("50.0 % is less than 51.0 %"),
        "{done:?}"
    );

    // What was made when the time was over is printed.
    let silent = Endpoint::start(Scenario::new([Reply::never()]).in_order(ReplyOrder::Repeat));
    let done = eval(&host, &silent, &["two.toml", "--time-limit", "1"]);
    assert!(
        done.code == Some(4) && done.stdout.contains("0 of 2 attempts were made"),
        "{done:?}"
    );
    assert!(
        silent.wait_until(std::time::Duration::from_secs(5), |own| own.open_streams()
            == 0)
    );

    let unreachable = host.run(&["eval", "two.toml", "--base-url", "http://127.0.0.1:1/v1"]);
    assert_eq!(unreachable.code, Some(3), "{unreachable:?}");
}

#[test]
fn an_interrupt_prints_what_there_is() {
    let host = host();
    host.write("two.toml", TWO);
    let mut scenario = of_two();
    let note = |reply: &Reply| {
        reply
            .expect
            .as_ref()
            .is_some_and(|own| own.contains == ["note.txt"])
    };
    for reply in scenario.replies.iter_mut().filter(|reply| note(reply)) {
        let expect = reply.expect.take();
        *reply = Reply::never();
        reply.expect = expect;
    }
    let endpoint = Endpoint::start(scenario);
    let url = endpoint.base_url();
    let mut command = host.command(&["eval", "two.toml", "--base-url", &url]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(
        lines
            .by_ref()
            .any(|line| line.unwrap().contains("✓ sum #1"))
    );
    assert!(
        endpoint.wait_until(std::time::Duration::from_secs(10), |own| own.open_streams()
            == 1)
    );
    signal(child.id(), "INT");
    let rest = std::thread::spawn(move || lines.count());
    let done = finish(child.wait_with_output().unwrap());
    rest.join().unwrap();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(
        done.stdout
            .contains("1 of 2 attempts were made: it was interrupted"),
        "{done:?}"
    );
    assert!(
        endpoint.wait_until(std::time::Duration::from_secs(5), |own| own.open_streams()
            == 0)
    );
}

#[test]
fn a_set_that_cannot_be_run_is_refused_before_anybody_is_asked() {
    let host = host();
    let endpoint = Endpoint::start(of_two());
    for (text, why) in [
        (
            TWO.replace("calculator\"]", "abacus\"]"),
            "task sum needs abacus",
        ),
        (
            TWO.replace("expect.answer", "expect.answers"),
            "unknown field `answers`",
        ),
        ("tasks = []".to_owned(), "set.toml: it holds no tasks"),
    ] {
        host.write("set.toml", text);
        let done = eval(&host, &endpoint, &["set.toml"]);
        assert!(
            done.code == Some(1) && done.stderr.contains(why),
            "{why}: {done:?}"
        );
    }
    host.write("toolhold.toml", "[modules]\npinning = \"always\"\n");
    host.write("set.toml", TWO);
    let done = eval(&host, &endpoint, &["set.toml"]);
    assert!(
        done.code == Some(1) && done.stderr.contains("toolhold modules approve calculator"),
        "{done:?}"
    );
    assert_eq!(endpoint.requests().len(), 0);
}
