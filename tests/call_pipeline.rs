//! One tool, called in each of the ways that there are, and what holds for all of them: shields, decisions,
//! budgets, records, and that arguments and results fit their schemas.

use crate::mcp_server::{call, wire::Stdio};
use crate::terminal::at_terminal;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};
use support::sandbox::repository;
use support::server::Server;
use toolhold_hostile::liar::{self, Claim};

/// The tool that is called.
const TOOL: &str = "text.reverse";

/// A tool whose results do not fit what it says of them.
const LIAR: &str = "liar.say";

/// Everything may run; the probe may call what is called here in the other ways.
const MODULES: &str =
    "[modules]\npinning = \"never\"\n[module.probe]\ntools = [\"text\", \"liar\", \"probe\"]\n";

/// A shield around the tool itself, and around nothing that calls it.
const SHIELD: &str = "[shields.words]\nkind = \"wasm\"\nmodule = \"guard\"\nplaces = [\"tool_input\", \"tool_output\"]\n\
                      tools = [\"text\"]\nsettings = { block = [\"bomb\"], redact = [\"secret\"] }\n";

const DECISIONS: &str = "[decisions]\nalways = [\"text.reverse\"]\n";

/// How long a person takes who has something else to do.
const LATE: Duration = Duration::from_secs(3);

/// What a person says when asked.
#[derive(Debug, Clone, Copy)]
enum PersonAnswer<'a> {
    /// There is no question.
    Unasked,
    Approve,
    /// As [`Self::Approve`], after [`LATE`].
    ApproveLate,
    Refuse(&'a str),
    Edit(&'a str),
}

/// What came of a call.
#[derive(Debug)]
struct SeenOutcome {
    /// The result's JSON text, or why there is none.
    of_it: Result<String, String>,
    /// What a person was shown.
    shown: String,
}

impl SeenOutcome {
    fn text(&self) -> &str {
        match &self.of_it {
            Ok(text) | Err(text) => text,
        }
    }
}

/// A way to call a tool: a column of the table, whose rows are the tests below. Every test goes all ways, except
/// where a field says that the way has no such cell, and why.
struct CallWay {
    name: &'static str,
    /// Calls the tool, and has a person answer.
    call: fn(&Host, &str, &Value, PersonAnswer<'_>) -> SeenOutcome,
    /// The call is one of a run, which records it as events and counts it in its budget (`run.max_tool_calls`). An MCP
    /// client's call and one at the terminal are in no run: their record is the audit log, and what bounds them is
    /// the rate of the module, which holds for all ways together.
    is_in_run: bool,
    /// The person can give other arguments. The form that an MCP client shows has no place for them.
    takes_edits: bool,
    /// The person can take a while. What is typed at the terminal of these tests is typed at once.
    takes_time: bool,
    /// Light faults of arguments are put right. Programs and people who write a plan or a call themselves get the
    /// fault and its place before anything runs.
    is_repaired: bool,
}

impl CallWay {
    const fn of_run(
        name: &'static str,
        call: fn(&Host, &str, &Value, PersonAnswer<'_>) -> SeenOutcome,
    ) -> Self {
        Self {
            name,
            call,
            is_in_run: true,
            takes_edits: true,
            takes_time: true,
            is_repaired: true,
        }
    }
}

const WAYS: [CallWay; 6] = [
    CallWay::of_run("a model's reply", by_a_reply),
    CallWay {
        is_repaired: false,
        ..CallWay::of_run("a plan's step", by_a_plan)
    },
    CallWay::of_run("a module", by_a_module),
    CallWay {
        name: "an MCP client",
        call: by_an_mcp_client,
        is_in_run: false,
        takes_edits: false,
        takes_time: true,
        is_repaired: false,
    },
    CallWay {
        is_repaired: false,
        ..CallWay::of_run("POST /v1/tools", over_http)
    },
    CallWay {
        name: "modules call",
        call: at_the_terminal,
        is_in_run: false,
        takes_edits: true,
        takes_time: false,
        is_repaired: false,
    },
];

/// A host with this policy.
fn host(policy: &str) -> Host {
    let component = |path: &str| std::fs::read(repository().join(path)).expect("it is built");
    let claim = Claim {
        output_schema: Some(json!({"type": "object"}).to_string()),
        ..Claim::named("say")
    };
    let count = Claim {
        input_schema: json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        })
        .to_string(),
        ..Claim::named("count")
    };
    let liar = liar::component(&[claim, count], &liar::LiarReply::Value("7".into()));
    let host = Host::new();
    host.ship("text")
        .write(
            "modules/probe.wasm",
            component("modules/sdk/probe/probe.wasm"),
        )
        .write(
            "modules/guard.wasm",
            component("tests/components/guard/guard.wasm"),
        )
        .write("modules/liar.wasm", liar.expect("a component"))
        .write("toolhold.toml", format!("{MODULES}{policy}"));
    host
}

fn step(tool: &str, arguments: &Value) -> Value {
    let mut step = json!({"_tool": tool, "_reasoningForCall": "because"});
    let arguments = arguments.as_object().expect("an object").clone();
    step.as_object_mut().expect("an object").extend(arguments);
    step
}

fn by_a_reply(host: &Host, tool: &str, arguments: &Value, answer: PersonAnswer<'_>) -> SeenOutcome {
    let calls = [step(tool, arguments)];
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"calls": calls, "output": null})),
        Reply::solution(json!({"calls": [], "output": "done"})),
    ]));
    let url = endpoint.base_url();
    let run = ["run", "t", "--base-url", &url, "--model", "m", "--json"];
    let (done, shown) = decided(host, answer, || host.run(&run));
    SeenOutcome {
        of_it: result_of(&done, tool),
        shown,
    }
}

fn by_a_plan(host: &Host, tool: &str, arguments: &Value, answer: PersonAnswer<'_>) -> SeenOutcome {
    host.write("plan.json", json!([step(tool, arguments)]).to_string());
    let run = ["plan", "run", "plan.json", "--json"];
    let (done, shown) = decided(host, answer, || host.run(&run));
    SeenOutcome {
        of_it: result_of(&done, tool),
        shown,
    }
}

fn by_a_module(
    host: &Host,
    tool: &str,
    arguments: &Value,
    answer: PersonAnswer<'_>,
) -> SeenOutcome {
    let question = json!({"tool": tool, "arguments": arguments});
    by_a_plan(host, "probe.ask", &question, answer)
}

fn by_an_mcp_client(
    host: &Host,
    tool: &str,
    arguments: &Value,
    answer: PersonAnswer<'_>,
) -> SeenOutcome {
    let mut client = Stdio::session(host, &[], json!({"elicitation": {}}));
    client.send(call(1, tool, arguments.clone()));
    let content = match answer {
        PersonAnswer::Unasked => None,
        PersonAnswer::Approve | PersonAnswer::ApproveLate => Some(json!({"decision": "approve"})),
        PersonAnswer::Refuse(reason) => Some(json!({"decision": "refuse", "reason": reason})),
        PersonAnswer::Edit(_) => unreachable!("the form has no place for other arguments"),
    };
    let shown = content.map_or_else(String::new, |content| {
        let question = client.hear("elicitation/create");
        if let PersonAnswer::ApproveLate = answer {
            thread::sleep(LATE);
        }
        let result = json!({"action": "accept", "content": content});
        client.send(json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
        question["params"]["message"].to_string()
    });
    let reply = client.reply(1);
    let text = reply["result"]["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{reply}")).to_owned();
    let is_error = reply["result"]["isError"] == true;
    SeenOutcome {
        of_it: if is_error { Err(text) } else { Ok(text) },
        shown,
    }
}

fn over_http(host: &Host, tool: &str, arguments: &Value, answer: PersonAnswer<'_>) -> SeenOutcome {
    let endpoint = Endpoint::start(Scenario::new([]));
    let server = Server::start(host, &["--base-url", &endpoint.base_url(), "--model", "m"]);
    let body = json!({"arguments": arguments});
    let path = format!("/v1/tools/{tool}");
    let (answered, shown) = decided(host, answer, || server.post(&path, &body));
    let made = answered.json();
    SeenOutcome {
        of_it: match (answered.status, made["error"].as_str()) {
            (200, None) => Ok(made["result"].to_string()),
            (200, Some(error)) => Err(error.to_owned()),
            // It was refused before it could be a call.
            _ => Err(answered.text),
        },
        shown,
    }
}

fn at_the_terminal(
    host: &Host,
    tool: &str,
    arguments: &Value,
    answer: PersonAnswer<'_>,
) -> SeenOutcome {
    let arguments = arguments.to_string();
    let call = ["modules", "call", "--json", tool, &arguments];
    let typed = |line: String| at_terminal(&host.command(&call), &[("approve?", &line)]);
    let done = match answer {
        PersonAnswer::Unasked => host.run(&call),
        PersonAnswer::Approve => typed("y\n".into()),
        PersonAnswer::ApproveLate => unreachable!("what is typed is typed at once"),
        PersonAnswer::Refuse(reason) => typed(format!("n {reason}\n")),
        PersonAnswer::Edit(arguments) => typed(format!("e {arguments}\n")),
    };
    // At a terminal it follows the question.
    let at = ["{\n", "{\r\n"].iter().find_map(|it| done.stdout.find(it));
    let parts = at.and_then(|at| done.stdout.split_at_checked(at));
    let (shown, json) = parts.unwrap_or_else(|| panic!("no result: {done:?}"));
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let whole = values.next().and_then(Result::ok);
    let whole = whole.unwrap_or_else(|| panic!("no JSON: {done:?}"));
    SeenOutcome {
        of_it: match whole.pointer("/error/message") {
            Some(message) => Err(message.as_str().unwrap_or_default().to_owned()),
            None => Ok(whole["result"]["value"].to_string()),
        },
        shown: shown.to_owned(),
    }
}

/// The result of the last call of `tool` in a run's events, which it printed.
fn result_of(done: &Finished, tool: &str) -> Result<String, String> {
    let lines = done.stdout.lines();
    let mut events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let result = events.rfind(|event| event["event"] == "tool_result" && event["tool"] == tool);
    let Some(result) = result else {
        // It was refused before it could be a call.
        return Err(format!("{}{}", done.stdout, done.stderr));
    };
    match result["error"]["message"].as_str() {
        Some(message) => Err(message.to_owned()),
        None => Ok(result["output"].to_string()),
    }
}

/// Does `work`, and decides as somebody at another terminal about the call that waits meanwhile. Returns what
/// was shown there, too.
fn decided<T>(host: &Host, answer: PersonAnswer<'_>, work: impl FnOnce() -> T) -> (T, String) {
    let is_over = AtomicBool::new(false);
    // Its state folder is there before two commands look for it at the same time.
    let _ = host.command(&[]);
    thread::scope(|threads| {
        let person = threads.spawn(|| decide(host, answer, &is_over));
        let over = SetWhenDropped(&is_over);
        let came = work();
        drop(over);
        (came, person.join().expect("no panic"))
    })
}

/// Stops the deciding thread even if the work panics.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn decide(host: &Host, answer: PersonAnswer<'_>, is_over: &AtomicBool) -> String {
    let (word, more) = match answer {
        PersonAnswer::Unasked => return String::new(),
        PersonAnswer::Approve | PersonAnswer::ApproveLate => ("approve", None),
        PersonAnswer::Refuse(reason) => ("refuse", Some(reason)),
        PersonAnswer::Edit(arguments) => ("edit", Some(arguments)),
    };
    while !is_over.load(Ordering::Acquire) {
        let listed = host.run(&["approvals", "list"]).stdout;
        if let Some(call) = listed.split_whitespace().next() {
            if let PersonAnswer::ApproveLate = answer {
                thread::sleep(LATE);
            }
            let mut words = vec!["approvals", word, call];
            words.extend(more);
            let said = host.run(&words);
            assert_eq!(said.code, Some(0), "{said:?}");
            return listed;
        }
        // Each look is a process, which takes the processor from what is waited for.
        thread::sleep(Duration::from_millis(100));
    }
    String::new()
}

/// The calls of `tool` in the audit log.
fn audited(host: &Host, tool: &str) -> Vec<Value> {
    let found = host.run(&["audit", "search", "--json", "--tool", tool]);
    assert_eq!(found.code, Some(0), "{found:?}");
    let lines = found.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn shields_screen_what_a_tool_is_given_and_what_it_gives() {
    let host = host(SHIELD);
    for CallWay {
        name: way,
        call: called,
        ..
    } in WAYS
    {
        for (text, is_made, part) in [
            (
                "bomb",
                false,
                "the shield words blocked this call: it says bomb",
            ),
            ("a secret", true, "]drow :detcader[ a"),
            (
                "bmob",
                false,
                "the shield words blocked the result of this call",
            ),
            ("terces", true, "[redacted: word]"),
            ("abc", true, "cba"),
        ] {
            let came = called(&host, TOOL, &json!({"text": text}), PersonAnswer::Unasked);
            assert_eq!(came.of_it.is_ok(), is_made, "{way}, {text}: {came:?}");
            assert!(came.text().contains(part), "{way}, {text}: {came:?}");
        }
    }
}

#[test]
fn a_person_decides_about_exactly_what_runs() {
    let host = host(&format!("{SHIELD}{DECISIONS}"));
    for CallWay {
        name: way,
        call: called,
        takes_edits,
        ..
    } in WAYS
    {
        let told = json!({"text": "a secret"});
        let came = called(&host, TOOL, &told, PersonAnswer::Approve);
        assert!(came.shown.contains(TOOL), "{way}: {came:?}");
        assert!(
            came.shown.contains("a [redacted: word]") && !came.shown.contains("secret"),
            "{way} shows what is left: {came:?}"
        );
        assert!(
            came.of_it.is_ok() && came.text().contains("]drow"),
            "{way}: {came:?}"
        );
        let came = called(&host, TOOL, &told, PersonAnswer::Refuse("not on a Friday"));
        assert!(came.of_it.is_err(), "{way}: {came:?}");
        assert!(came.text().contains("not on a Friday"), "{way}: {came:?}");
        if !takes_edits {
            continue;
        }
        let came = called(&host, TOOL, &told, PersonAnswer::Edit(r#"{"text":"xyz"}"#));
        assert!(
            came.of_it.is_ok() && came.text().contains("zyx"),
            "{way}: {came:?}"
        );
        // A person's arguments are screened like a model's.
        let came = called(&host, TOOL, &told, PersonAnswer::Edit(r#"{"text":"bomb"}"#));
        assert!(came.of_it.is_err(), "{way}: {came:?}");
        assert!(came.text().contains("blocked this call"), "{way}: {came:?}");
    }
}

/// A person may take longer than the module that made the call has, as for a call that no module makes.
#[test]
fn the_time_of_a_caller_stands_still_while_a_person_is_asked() {
    let timeout = "[module.probe.limits]\ntimeout_ms = 1500\n";
    let host = host(&format!("{DECISIONS}{timeout}"));
    let question = json!({"tool": TOOL, "arguments": {"text": "abc"}});
    for CallWay {
        name: way,
        call: called,
        takes_time,
        ..
    } in WAYS
    {
        // By a module: a call in a call in a call. The clocks of both callers stand still.
        if !takes_time {
            continue;
        }
        let came = called(&host, "probe.ask", &question, PersonAnswer::ApproveLate);
        assert!(
            came.of_it.is_ok() && came.text().contains("cba"),
            "{way}: {came:?}"
        );
    }
}

/// For a server's agent, a run and a module alike: there is no person to ask.
#[test]
fn without_a_person_the_operator_must_decide_beforehand() {
    let host = host(DECISIONS);
    let call = ["modules", "call", TOOL, r#"{"text":"abc"}"#];
    let refused = host.run(&call);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("--yes"), "{refused:?}");
    let made = host.run(&[&call[..], &["--yes"]].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("cba"), "{made:?}");
}

#[test]
fn arguments_and_results_fit_what_the_tool_says_of_them() {
    let host = host("");
    for CallWay {
        name: way,
        call: called,
        ..
    } in WAYS
    {
        let came = called(
            &host,
            TOOL,
            &json!({"text": {"a": 1}}),
            PersonAnswer::Unasked,
        );
        let part = "is not of type";
        assert!(came.of_it.is_err(), "{way}: {came:?}");
        assert!(came.text().contains(part), "{way}: {came:?}");
        let came = called(&host, LIAR, &json!({}), PersonAnswer::Unasked);
        let part = "does not fit its own output schema";
        assert!(came.of_it.is_err(), "{way}: {came:?}");
        assert!(came.text().contains(part), "{way}: {came:?}");
    }
}

#[test]
fn every_call_is_in_the_audit_log_once() {
    for CallWay {
        name: way,
        call: called,
        ..
    } in WAYS
    {
        let host = host(SHIELD);
        called(
            &host,
            TOOL,
            &json!({"text": "a secret"}),
            PersonAnswer::Unasked,
        );
        called(&host, TOOL, &json!({"text": "bomb"}), PersonAnswer::Unasked);
        let rows = audited(&host, TOOL);
        let [made, blocked] = rows.as_slice() else {
            panic!("{way}: {rows:?}");
        };
        assert_eq!(
            (&made["action"], &made["status"]),
            (&json!("call"), &json!("ok")),
            "{way}"
        );
        assert_eq!(blocked["error"], "shield", "{way}: {blocked}");
        for row in &rows {
            for digest in ["result_digest", "policy"] {
                let hash = row[digest].as_str().map(str::len);
                assert_eq!(hash, Some(64), "{way}, {digest}: {row}");
            }
        }
        assert!(made["module_digest"].is_string(), "{way}: {made}");
        assert_eq!(host.run(&["audit", "verify"]).code, Some(0), "{way}");
    }
}

/// A nested call is recorded under its parent, and counts.
#[test]
fn nested_call_is_recorded_under_its_parent() {
    let host = host(&format!("{SHIELD}{DECISIONS}"));
    let came = by_a_module(&host, TOOL, &json!({"text": "abc"}), PersonAnswer::Approve);
    assert!(came.text().contains("cba"), "{came:?}");
    let shown = host.run(&["show", "last", "--json"]).stdout;
    let events: Vec<Value> = shown
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let parent = events
        .iter()
        .find(|event| event["event"] == "tool_start")
        .expect("the call of the probe");
    let within: Vec<&Value> = events
        .iter()
        .filter(|event| event["event"] == "sub" && event["call"] == parent["id"])
        .map(|event| &event["what"])
        .collect();
    let kinds: Vec<&str> = within
        .iter()
        .filter_map(|what| what["event"].as_str())
        .collect();
    assert_eq!(
        kinds,
        [
            "shield",
            "approval",
            "decided",
            "tool_start",
            "shield",
            "tool_result"
        ],
        "{within:?}"
    );
    let result = events
        .iter()
        .find(|event| event["event"] == "tool_result")
        .expect("its result");
    assert_eq!(result["usage"]["calls"], 1, "{result}");
    assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
    let human = host.run(&["show", "last"]);
    let human = format!("{}{}", human.stdout, human.stderr);
    assert!(human.contains("    → text.reverse"), "{human}");
}

#[test]
fn calls_and_calls_of_calls_count_in_the_budget_of_their_run() {
    let host = host("[run]\nmax_tool_calls = 1\n");
    let question = json!({"tool": TOOL, "arguments": {"text": "abc"}});
    for CallWay {
        name: way,
        call: called,
        is_in_run,
        ..
    } in WAYS
    {
        let came = called(&host, "probe.ask", &question, PersonAnswer::Unasked);
        assert_eq!(came.of_it.is_err(), is_in_run, "{way}: {came:?}");
        let part = if is_in_run {
            "run.max_tool_calls"
        } else {
            "cba"
        };
        assert!(came.text().contains(part), "{way}: {came:?}");
    }
}

#[test]
fn light_faults_of_arguments_are_put_right_unless_the_operator_says_no() {
    for (policy, repairs) in [("", true), ("[run]\nrepair = false\n", false)] {
        let host = host(policy);
        for CallWay {
            name: way,
            call: called,
            is_repaired,
            ..
        } in WAYS
        {
            let is_made = repairs && is_repaired;
            let came = called(
                &host,
                "liar.count",
                &json!({"n": "5"}),
                PersonAnswer::Unasked,
            );
            assert_eq!(came.of_it.is_ok(), is_made, "{way}, {policy:?}: {came:?}");
            let part = if is_made { "7" } else { "is not of type" };
            assert!(came.text().contains(part), "{way}, {policy:?}: {came:?}");
        }
    }
}

/// The same stages leave the same events in the same order; where there is no run, one row has them all.
#[test]
fn every_call_leaves_its_stages_in_its_record() {
    let host = host(&format!("{SHIELD}{DECISIONS}"));
    for CallWay {
        name: way,
        call: called,
        is_in_run,
        ..
    } in WAYS
    {
        let came = called(&host, TOOL, &json!({"text": "abc"}), PersonAnswer::Approve);
        assert!(came.of_it.is_ok(), "{way}: {came:?}");
        let rows = audited(&host, TOOL);
        // Decisions have rows of their own in the log of a run.
        let made = rows.iter().rfind(|row| row["action"] == "call");
        let made = made.unwrap_or_else(|| panic!("{way}: {rows:?}"));
        if !is_in_run {
            assert!(made["approved_by"].is_string(), "{way}: {made}");
            continue;
        }
        let shown = host.run(&["show", "last", "--json"]).stdout;
        let events = shown
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_it = events.map(|event| match event["event"].as_str() {
            Some("sub") => event["what"].clone(),
            _ => event,
        });
        let stages: Vec<String> = of_it
            .filter(|event| {
                let of = [
                    &event["tool"],
                    &event["call"]["tool"],
                    &event["pending"]["call"]["tool"],
                ];
                event["event"] == "decided" || of.contains(&&json!(TOOL))
            })
            .filter_map(|event| event["event"].as_str().map(str::to_owned))
            .filter(|kind| kind != "shield")
            .collect();
        assert_eq!(
            stages,
            ["approval", "decided", "tool_start", "tool_result"],
            "{way}: {shown}"
        );
    }
}

/// However a tool is called, a minute has as many calls of it as the operator says.
#[test]
fn a_rate_holds_for_all_ways_together() {
    let host = host("[module.text.limits]\ncalls_per_minute = 1\n");
    let question = json!({"tool": TOOL, "arguments": {"text": "abc"}});
    let mut client = Stdio::session(&host, &[], json!({}));
    let first = client.ask(call(1, "probe.ask", question));
    assert_eq!(first["result"]["isError"], false, "{first}");
    let second = client.ask(call(2, TOOL, json!({"text": "abc"})));
    assert_eq!(second["result"]["isError"], true, "{second}");
    let words = second["result"]["content"][0]["text"].to_string();
    assert!(
        words.contains("calls_per_minute") || words.contains("a minute"),
        "{words}"
    );
}
