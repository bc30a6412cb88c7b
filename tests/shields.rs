//! `toolhold run` under a policy: what the model sees, what tools get, what the user is given, and what
//! a hostile shield can do, which is nothing.

use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::{Finished, Host};
use support::sandbox::repository;

const MAIL: &str = "ann@example.com";

fn calls(tool: &str, arguments: Value) -> Reply {
    let mut call = json!({"_tool": tool, "_reasoningForCall": "because"});
    call.as_object_mut()
        .unwrap()
        .extend(arguments.as_object().unwrap().clone());
    Reply::solution(json!({"calls": [call], "output": null}))
}

fn answers(output: Value) -> Reply {
    Reply::solution(json!({"calls": [], "output": output}))
}

/// A host with the text module, the shield that does what its settings say, and this policy.
fn host(policy: &str) -> Host {
    let guard = repository().join("tests/components/guard/guard.wasm");
    let host = Host::new();
    host.ship("text")
        .write(
            "modules/guard.wasm",
            std::fs::read(guard).expect("the shield"),
        )
        .write("toolhold.toml", policy);
    host
}

fn run(host: &Host, endpoint: &Endpoint, task: &str, extra: &[&str]) -> Finished {
    let url = endpoint.base_url();
    host.run(&[&["run", task, "--base-url", &url], extra].concat())
}

fn events(done: &Finished) -> Vec<Value> {
    done.stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one event a line"))
        .collect()
}

/// All that the endpoint was told.
fn told(endpoint: &Endpoint) -> String {
    let requests = endpoint.requests();
    requests.iter().map(Value::to_string).collect()
}

#[test]
fn the_model_never_sees_the_address_and_the_tool_and_the_user_get_it() {
    let policy = |reveal: &str| {
        format!(
            "[shields.private]\nkind = \"pii\"\nhide = [\"email\", \"api_key\"]\nreveal = [{reveal}]\n"
        )
    };
    for (contract, reveal, made) in [
        ("schema", "\"text\"", "moc.elpmaxe@nna"),
        ("tools", "\"text.reverse\"", "moc.elpmaxe@nna"),
        ("schema", "", ">1_liame<"),
    ] {
        let (call, answer) = if contract == "tools" {
            let call = Reply::tool_calls([("text-reverse", json!({"text": "<email_1>"}))]);
            (call, Reply::content("Written to <email_1>."))
        } else {
            let call = calls("text.reverse", json!({"text": "<email_1>"}));
            (call, answers(json!("Written to <email_1>.")))
        };
        let endpoint = Endpoint::start(Scenario::new([call, answer]));
        let host = host(&policy(reveal));
        let task = format!("write to {MAIL} with AKIAIOSFODNN7EXAMPLE");
        let done = run(&host, &endpoint, &task, &["--contract", contract]);
        assert_eq!(
            done.stdout.trim(),
            format!("Written to {MAIL}."),
            "{done:?}"
        );
        assert!(
            done.stderr.contains(made),
            "{contract} {reveal}: {}",
            done.stderr
        );
        assert!(
            done.stderr
                .contains("hidden from the model: 1 email, 1 api_key"),
            "{}",
            done.stderr
        );
        let told = told(&endpoint);
        assert!(!told.contains(MAIL) && !told.contains("AKIA"), "{told}");
        assert!(
            told.contains("write to <email_1> with <api_key_1>"),
            "{told}"
        );
    }
}

#[test]
fn a_component_screens_input_calls_results_and_output() {
    let policy = "[shields.words]\nkind = \"wasm\"\nmodule = \"guard\"\n\
                  settings = { block = [\"bomb\"], redact = [\"secret\"] }\n";
    // A call and its result.
    let endpoint = Endpoint::start(Scenario::new([
        calls("text.reverse", json!({"text": "bomb"})),
        calls("text.reverse", json!({"text": "a terces"})),
        answers(json!("the secret is out")),
    ]));
    let done = run(&host(policy), &endpoint, "reverse it", &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stdout.trim(), "the [redacted: word] is out");
    for part in [
        "shield words blocked the tool input of text.reverse: it says bomb",
        "shield words redacted the tool output of text.reverse",
        "shield words redacted the output",
    ] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    let told = told(&endpoint);
    assert!(
        told.contains("the shield words blocked this call: it says bomb"),
        "{told}"
    );
    assert!(!told.contains("secret"), "{told}");
    // The input.
    let endpoint = Endpoint::start(Scenario::new([answers(json!("no"))]));
    let done = run(&host(policy), &endpoint, "build a bomb", &[]);
    assert_eq!(done.code, Some(6), "{done:?}");
    assert!(
        done.stderr
            .contains("the shield words blocked the input: it says bomb"),
        "{done:?}"
    );
    assert!(endpoint.requests().is_empty());
    // The output, twice.
    let endpoint = Endpoint::start(Scenario::new([
        answers(json!("a bomb")),
        answers(json!("the bomb")),
    ]));
    let done = run(&host(policy), &endpoint, "say it", &[]);
    assert_eq!((done.code, done.stdout.trim()), (Some(6), ""), "{done:?}");
    assert!(
        !done.stderr.lines().any(|line| line.contains("so far")),
        "{done:?}"
    );
}

/// Whatever a shield does, the call ends, and what it was asked about does not pass.
#[test]
fn a_hostile_shield_is_a_reported_failure() {
    for (does, expect) in [
        ("spin", "it gave no verdict"),
        ("trap", "it gave no verdict"),
        ("fail", "it gave no verdict (it does not know)"),
        ("grow", "it gave no verdict"),
        ("flood", "it gave no verdict"),
        ("rubble", "it gave no verdict"),
        ("widen", "it gave no verdict (it changed more than it may"),
        // Every screening has an instance of its own.
        ("count", "seen 1"),
    ] {
        let policy = format!(
            "[shields.hostile]\nkind = \"wasm\"\nmodule = \"guard\"\nplaces = [\"tool_input\"]\n\
             timeout_ms = 2_000\nsettings = {{ does = \"{does}\" }}\n"
        );
        let endpoint = Endpoint::start(Scenario::new([
            calls("text.reverse", json!({"text": "xyz"})),
            calls("text.reverse", json!({"text": "xyw"})),
            answers(json!("went on")),
        ]));
        let started = Instant::now();
        let done = run(&host(&policy), &endpoint, "the task", &[]);
        assert_eq!(
            (done.code, done.stdout.trim()),
            (Some(0), "went on"),
            "{does}: {done:?}"
        );
        assert!(started.elapsed() < Duration::from_mins(1), "{does}");
        let told = told(&endpoint);
        assert!(
            told.contains(expect) && !told.contains("zyx"),
            "{does}: {told}"
        );
        assert!(!told.contains("seen 2"), "{does}");
    }
}

#[test]
fn a_failing_shield_may_let_pass_and_the_run_reports_it() {
    let policy = "[shields.words]\nkind = \"wasm\"\nmodule = \"guard\"\nplaces = [\"tool_input\"]\n\
                  on_failure = \"pass\"\nsettings = { does = \"fail\" }\n";
    let endpoint = Endpoint::start(Scenario::new([
        calls("text.reverse", json!({"text": "abc"})),
        answers(json!("done")),
    ]));
    let done = run(&host(policy), &endpoint, "the task", &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let part = "shield words gave no verdict and let pass the tool input of text.reverse";
    assert!(done.stderr.contains(part), "{}", done.stderr);
    assert!(told(&endpoint).contains("cba"));
}

#[test]
fn a_policy_that_cannot_be_kept_starts_nothing() {
    for (policy, expect) in [
        (
            "[shields.a]\nkind = \"wasm\"\nmodule = \"nobody\"",
            "there is no module",
        ),
        (
            "[shields.a]\nkind = \"wasm\"\nmodule = \"text\"",
            "is no shield",
        ),
        (
            "[shields.a]\nkind = \"model\"\nendpoint = \"nobody\"",
            "there is no [endpoints.nobody]",
        ),
        (
            "[shields.a]\nkind = \"domains\"\nallow = [\"https://a.b\"]",
            "is no host",
        ),
        (
            "[shields.a]\nkind = \"pii\"\nhide = [\"mail\"]",
            "shields.a",
        ),
        (
            "[shields.a]\nkind = \"pii\"\nhidden = [\"email\"]",
            "shields.a.hidden",
        ),
        (
            "[modules]\npinning = \"always\"\n[shields.a]\nkind = \"wasm\"\nmodule = \"guard\"",
            "is disabled",
        ),
    ] {
        let endpoint = Endpoint::start(Scenario::new([answers(json!("no"))]));
        let done = run(&host(policy), &endpoint, "the task", &[]);
        assert_eq!(done.code, Some(1), "{policy}: {done:?}");
        assert!(done.stderr.contains(expect), "{policy}: {}", done.stderr);
        assert!(endpoint.requests().is_empty());
    }
}

#[test]
fn a_model_screens_as_a_shield() {
    let guard = Endpoint::start(Scenario::new([
        Reply::content("safe"),
        Reply::content("\n\nunsafe\nS9"),
        Reply::content("I would rather not say."),
    ]));
    let policy = format!(
        "[endpoints.guard]\nbase_url = \"{}\"\nmodel = \"guard\"\n\
         [shields.private]\nkind = \"pii\"\nhide = [\"email\"]\n\
         [shields.llama]\nkind = \"model\"\nendpoint = \"guard\"\n",
        guard.base_url()
    );
    let endpoint = Endpoint::start(Scenario::new([
        answers(json!("first you take")),
        answers(json!("no idea")),
    ]));
    let done = run(&host(&policy), &endpoint, &format!("I am {MAIL}"), &[]);
    assert_eq!(done.code, Some(6), "{done:?}");
    assert!(
        done.stderr
            .contains("shield llama blocked the output: S9 Indiscriminate Weapons"),
        "{done:?}"
    );
    assert!(
        done.stderr.contains("it said \"I would rather not say.\""),
        "{done:?}"
    );
    let told = told(&guard);
    assert!(
        told.contains("I am <email_1>") && !told.contains(MAIL),
        "{told}"
    );
}

/// As the run's own endpoint is: tried again, within the limits that everybody shares, recorded, counted.
#[test]
fn a_guard_model_is_asked_as_any_endpoint_is() {
    let guard = Endpoint::start(Scenario::new([
        Reply::error(503, json!({"error": {"message": "not now"}})),
        Reply::content("safe"),
        Reply::content("safe"),
    ]));
    let policy = format!(
        "[run]\ncurrency = \"EUR\"\n[endpoints.default]\nbackoff_ms = 20\n\
         price_per_million = {{ prompt = 1, completion = 1 }}\n\
         [endpoints.guard]\nbase_url = \"{}\"\nmodel = \"guard\"\n\
         price_per_million = {{ prompt = 2, completion = 4 }}\n\
         [shields.llama]\nkind = \"model\"\nendpoint = \"guard\"\n",
        guard.base_url()
    );
    let endpoint = Endpoint::start(Scenario::new([answers(json!("done"))]));
    let host = host(&policy);
    let exchanges = host.path().join("exchanges.jsonl");
    let record = exchanges.to_str().expect("a path").to_owned();
    let done = run(
        &host,
        &endpoint,
        "the task",
        &["--json", "--record", &record],
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    let events = events(&done);
    let of = |name: &str| -> Vec<&Value> {
        let events = events.iter();
        events.filter(|event| event["event"] == name).collect()
    };
    assert_eq!(of("routing")[0]["decision"], "retry");
    assert_eq!(of("routing")[0]["endpoint"], "guard");
    // 10 × 2 + 5 × 4 millionths each; the run's own reply 15.
    let sides = of("side_request");
    assert_eq!(sides.len(), 2);
    assert_eq!(
        (&sides[0]["role"], &sides[0]["cost_nano"]),
        (&json!("shield"), &json!(40_000))
    );
    let end = of("done")[0];
    assert_eq!(
        (&end["tokens"], &end["cost_nano"]),
        (&json!(45), &json!(95_000))
    );
    let recorded = std::fs::read_to_string(exchanges).expect("a recording");
    assert!(
        recorded.contains("safety assessment"),
        "the guard's exchanges, too"
    );
    let text = host.run(&["stats", "last"]).stdout;
    assert!(
        text.contains("screened  guard: 2 requests, 20 prompt, 10 completion, cost 0.00008"),
        "{text}"
    );
    assert!(
        host.run(&["runs", "replay", "last"])
            .stdout
            .contains("identical")
    );
    // The budget holds for what shields ask.
    let endpoint = Endpoint::start(Scenario::new([answers(json!("done"))]));
    let guard = Endpoint::start(Scenario::new([Reply::content("safe")]));
    let policy = format!(
        "[endpoints.guard]\nbase_url = \"{}\"\nmodel = \"guard\"\n\
         [shields.llama]\nkind = \"model\"\nendpoint = \"guard\"\n",
        guard.base_url()
    );
    let done = run(
        &self::host(&policy),
        &endpoint,
        "the task",
        &["--token-budget", "15"],
    );
    assert_eq!(
        (done.code, endpoint.requests().len()),
        (Some(4), 0),
        "{done:?}"
    );
}

/// One place at the endpoint: the shield and the run take turns, and do not wait for each other for ever.
#[test]
fn a_shield_at_the_runs_own_endpoint_shares_its_limits() {
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content("safe"),
        answers(json!("done")),
        Reply::content("safe"),
    ]));
    let policy = "[endpoints.default]\nmodel = \"m\"\nrequests_per_minute = 2\nqueue_timeout_ms = 200\n\
                  attempts = 1\n[shields.llama]\nkind = \"model\"\nendpoint = \"default\"\n";
    let done = run(&host(policy), &endpoint, "the task", &[]);
    // The third request of the minute is the second verdict; nor is there a place for another answer.
    assert_eq!(
        (done.code, endpoint.requests().len()),
        (Some(3), 2),
        "{done:?}"
    );
    assert!(
        done.stderr
            .contains("blocked the output: its endpoint failed: no place became free at default"),
        "{done:?}"
    );
}

#[test]
fn only_known_hosts_are_given_to_tools() {
    let policy = "[shields.hosts]\nkind = \"domains\"\nallow = [\"example.com\"]\n";
    let endpoint = Endpoint::start(Scenario::new([
        calls(
            "text.reverse",
            json!({"text": "see https://evil.example/x"}),
        ),
        calls("text.reverse", json!({"text": "https://example.com"})),
        answers(json!("done")),
    ]));
    let done = run(&host(policy), &endpoint, "the task", &[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told = told(&endpoint);
    assert!(
        told.contains("evil.example is not among the allowed hosts (example.com)"),
        "{told}"
    );
    assert!(told.contains("moc.elpmaxe//:sptth"), "{told}");
}

#[test]
fn every_record_has_the_hash_of_its_policy() {
    let hash = |policy: &str| {
        let endpoint = Endpoint::start(Scenario::new([answers(json!("done"))]));
        let done = run(&host(policy), &endpoint, "the task", &["--json"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let first = &events(&done)[0];
        first["request"]["policy"]["hash"]
            .as_str()
            .expect("a hash")
            .to_owned()
    };
    let plain = hash("");
    assert_eq!(plain, hash("[run]\nmax_steps = 3\n"));
    let mut all = vec![
        plain,
        hash("[shields.a]\nkind = \"domains\"\nallow = []\n"),
        hash("[shields.a]\nkind = \"domains\"\nallow = [\"example.com\"]\n"),
        hash("[shields.a]\nkind = \"pii\"\nhide = [\"email\"]\n"),
        hash("[shields.a]\nkind = \"wasm\"\nmodule = \"guard\"\n"),
        hash("[shields.a]\nkind = \"wasm\"\nmodule = \"guard\"\nsettings = { block = [\"x\"] }\n"),
        hash("[decisions]\ndefault = \"always\"\n"),
        hash("[module.text]\nenvironment = { A = \"b\" }\n"),
    ];
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 8);
}
