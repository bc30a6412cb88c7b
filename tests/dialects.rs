//! `toolhold doctor --probe` against endpoints of each kind, and the runs that follow it.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario, TokenForm};
use support::host::{Finished, Host};

/// A place with a module, which runs want.
fn host() -> Host {
    let host = Host::new();
    host.ship("calculator");
    host
}

/// A reply to requests with this kind of response format.
fn with_format(format: &str, reply: Reply) -> Reply {
    reply.expecting(Expect {
        response_format: Some(format.into()),
        ..Expect::default()
    })
}

/// A reply to requests that offer the probe's tools, chosen in this way.
fn with_tools(choice: Value, text: &str, reply: Reply) -> Reply {
    reply.expecting(Expect {
        tools: vec!["weather_of".into()],
        tool_choice: Some(choice),
        contains: vec![text.into()],
        ..Expect::default()
    })
}

fn calling(names: &[&str]) -> Reply {
    Reply::tool_calls(names.iter().map(|name| (*name, json!({"city": "Paris"}))))
}

fn any_tools(reply: Reply) -> Reply {
    reply.expecting(Expect {
        tools: vec!["weather_of".into()],
        ..Expect::default()
    })
}

fn scenario(replies: impl IntoIterator<Item = Reply>) -> Scenario {
    Scenario::new(replies).in_order(ReplyOrder::FirstMatch)
}

/// A server that does all that is asked.
fn good() -> Scenario {
    let time = json!({"type": "function", "function": {"name": "time_in"}});
    let mut scenario = scenario([
        with_format("json_schema", Reply::obedient()),
        with_tools(
            json!("auto"),
            "Rome",
            calling(&["weather_of", "weather_of"]),
        ),
        with_tools(json!("auto"), "Paris", calling(&["weather_of"])),
        with_tools(json!("required"), "hello", calling(&["time_in"])),
        with_tools(time, "Paris", calling(&["time_in"])),
        Reply::content("Hello!"),
    ])
    .with_route("/version", json!({"version": "0.20"}));
    scenario.tokenize = Some(TokenForm::Prompt);
    scenario.with_route(
        "/v1/models",
        json!({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 600}]}),
    )
}

fn probe(host: &Host, endpoint: &Endpoint) -> Value {
    let done = doctor(host, endpoint, &["--probe", "--json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    serde_json::from_str(&done.stdout).expect("one JSON object")
}

fn doctor(host: &Host, endpoint: &Endpoint, more: &[&str]) -> Finished {
    let url = endpoint.base_url();
    let mut arguments = vec!["doctor", "--base-url", &url, "--model", "m"];
    arguments.extend(more);
    host.run(&arguments)
}

fn verdict<'a>(found: &'a Value, what: &str) -> &'a str {
    let verdict = found["dialect"]
        .pointer(what)
        .and_then(|found| found["verdict"].as_str());
    verdict.unwrap_or_else(|| panic!("no verdict about {what}: {found}"))
}

#[test]
fn a_capable_server_is_probed_with_all_capabilities() {
    let (host, endpoint) = (host(), Endpoint::start(good()));
    let found = probe(&host, &endpoint);
    assert_eq!(found["contract"], "schema");
    for what in [
        "/schema",
        "/tools/auto",
        "/tools/required",
        "/tools/named",
        "/tools/parallel",
    ] {
        assert_eq!(verdict(&found, what), "works", "{found}");
    }
    let dialect = &found["dialect"];
    assert_eq!(
        dialect["server"],
        json!({"name": "vllm", "version": "0.20", "context_length": 600})
    );
    assert_eq!(dialect["usage"], true);
    assert_eq!(dialect["delivery"], "stream");
    assert_eq!(
        dialect["tokenizer"],
        json!({"place": "root", "form": "prompt"})
    );
    // What the canary wants is in its schema alone, and new each time.
    let canaries: Vec<Value> = endpoint
        .requests()
        .into_iter()
        .filter(|request| request["response_format"].is_object())
        .collect();
    let nonce = |canary: &Value| {
        let schema = &canary["response_format"]["json_schema"]["schema"];
        let only = schema.pointer("/properties/calls/items/anyOf/0/properties/_tool/const");
        only.and_then(Value::as_str).expect("a constant").to_owned()
    };
    assert!(
        !canaries[0]["messages"]
            .to_string()
            .contains(&nonce(&canaries[0]))
    );
    probe(&host, &endpoint);
    let again = endpoint
        .requests()
        .into_iter()
        .rfind(|r| r["response_format"].is_object());
    assert_ne!(nonce(&again.expect("a canary")), nonce(&canaries[0]));
}

#[test]
fn a_schema_that_is_accepted_and_ignored_is_found_out() {
    let (host, endpoint) = (
        host(),
        Endpoint::start(scenario([
            with_format(
                "json_schema",
                Reply::content(r#"{"calls":[{"_tool":"search"}],"output":null}"#),
            ),
            with_tools(json!("auto"), "Rome", calling(&["weather_of"])),
            any_tools(calling(&["weather_of"])),
            Reply::content("Hello!"),
        ])),
    );
    let found = probe(&host, &endpoint);
    assert_eq!(verdict(&found, "/schema"), "ignored");
    assert!(
        found["dialect"]["schema"]["answer"]
            .as_str()
            .is_some_and(|a| a.contains("search"))
    );
    assert_eq!(verdict(&found, "/tools/auto"), "works");
    // It called the tool that the task needs, and not the one that was named.
    assert_eq!(verdict(&found, "/tools/named"), "ignored");
    assert_eq!(verdict(&found, "/tools/parallel"), "ignored");
    assert_eq!(found["contract"], "tools");
}

#[test]
fn a_server_that_refuses_everything_gets_plain_text() {
    let refusal =
        |message: &str| Reply::error(400, json!({"error": {"message": message, "code": 400}}));
    let (host, endpoint) = (
        host(),
        Endpoint::start(scenario([
            with_format("json_schema", refusal("response_format is not supported")),
            any_tools(refusal("tools need --enable-auto-tool-choice")),
            Reply::content("Hello!"),
        ])),
    );
    let found = probe(&host, &endpoint);
    assert_eq!(verdict(&found, "/schema"), "refused");
    let reason = found["dialect"]["schema"]["reason"]
        .as_str()
        .unwrap_or_default();
    assert!(
        reason.contains("response_format is not supported"),
        "{reason}"
    );
    assert_eq!(verdict(&found, "/tools/auto"), "refused");
    assert_eq!(verdict(&found, "/tools/parallel"), "unknown");
    assert_eq!(found["contract"], "simple");
    let shown = doctor(&host, &endpoint, &["--probe"]);
    for part in [
        "is refused",
        "enable-auto-tool-choice",
        "the simple contract",
    ] {
        assert!(shown.stdout.contains(part), "{shown:?}");
    }
}

/// Some accept streams without counts only, some no streams.
#[test]
fn how_answers_are_delivered_is_found_out_and_used() {
    let options = |options: Value| Expect {
        fields: [("stream_options".to_owned(), options)].into(),
        ..Expect::default()
    };
    let refusal = |message: &str| Reply::error(422, json!({"detail": message}));
    let counted = refusal("stream_options: extra fields not permitted")
        .expecting(options(json!({"include_usage": true})));
    let streamed = refusal("stream must be false").expecting(Expect {
        stream: Some(true),
        ..Expect::default()
    });
    for (first, delivery, stream) in [
        (counted, "uncounted_stream", true),
        (streamed, "whole", false),
    ] {
        let (host, endpoint) = (
            host(),
            Endpoint::start(scenario([
                first,
                Reply::solution(json!({"calls": [], "output": "done"}))
                    .expecting(Expect::text("a task of a run")),
                with_format("json_schema", Reply::obedient()),
                Reply::content("Hello!"),
            ])),
        );
        let found = probe(&host, &endpoint);
        assert_eq!(found["dialect"]["delivery"], delivery);
        let url = endpoint.base_url();
        let run = host.run(&["run", "a task of a run", "--base-url", &url, "--model", "m"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let requests = endpoint.requests();
        let last = requests.last().expect("a request");
        assert_eq!(
            (&last["stream"], last.get("stream_options")),
            (&json!(stream), None)
        );
    }
}

#[test]
fn tools_that_are_not_streamed_are_asked_for_whole() {
    let refusal = Reply::error(
        500,
        json!({"error": {"message": "Cannot use tools with stream"}}),
    );
    let streamed = refusal.expecting(Expect {
        tools: vec!["weather_of".into()],
        stream: Some(true),
        ..Expect::default()
    });
    let (host, endpoint) = (
        host(),
        Endpoint::start(scenario([
            streamed,
            any_tools(calling(&["weather_of"])),
            Reply::content("Hello!"),
        ])),
    );
    let found = probe(&host, &endpoint);
    assert_eq!(verdict(&found, "/tools/auto"), "works");
    assert_eq!(found["dialect"]["delivery"], "whole");
    assert_eq!(found["contract"], "tools");
}

#[test]
fn runs_use_the_probed_dialect_unless_configured_otherwise() {
    let host = host();
    let endpoint = Endpoint::start(
        scenario([
            with_tools(json!("auto"), "Paris", calling(&["weather_of"])),
            with_format(
                "json_schema",
                Reply::solution(json!({"calls": [], "output": "done"})),
            )
            .expecting(Expect {
                response_format: Some("json_schema".into()),
                contains: vec!["a task of a run".into()],
                ..Expect::default()
            }),
            Reply::content("Hello!"),
        ])
        .with_route(
            "/v1/models",
            json!({"data": [{"id": "m", "max_model_len": 600}]}),
        ),
    );
    let url = endpoint.base_url();
    let run = |more: &[&str]| {
        let mut arguments = vec!["run", "a task of a run", "--base-url", &url, "--model", "m"];
        arguments.extend(more);
        let done = host.run(&arguments);
        assert_eq!(done.code, Some(0), "{done:?}");
        endpoint.requests().pop().expect("a request")
    };
    // Nothing was probed.
    let first = run(&[]);
    assert_eq!(first["response_format"]["type"], "json_schema");
    assert_eq!(first["max_tokens"], 1_024);
    let lacking = doctor(&host, &endpoint, &[]);
    assert!(
        lacking.stdout.contains("toolhold doctor --probe"),
        "{lacking:?}"
    );

    assert_eq!(probe(&host, &endpoint)["contract"], "tools");
    let second = run(&[]);
    assert_eq!(second.get("response_format"), None);
    // Half of the window.
    assert_eq!(second["max_tokens"], 300);
    let told = doctor(&host, &endpoint, &[]);
    assert!(
        told.stdout
            .contains("the tools contract works, as found on "),
        "{told:?}"
    );
    let third = run(&["--contract", "schema"]);
    assert_eq!(third["response_format"]["type"], "json_schema");
}

/// Whatever was found of another version says nothing.
#[test]
fn a_server_of_another_version_is_another_endpoint() {
    use support::endpoint::raw::{RawEndpoint, RawStep};
    // The only request that finds its version is the second of each pair.
    let answer = |body: Value| {
        let body = body.to_string();
        vec![
            RawStep::Send(
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
                .into(),
            ),
            RawStep::KeepAlive,
        ]
    };
    let host = host();
    let models = || answer(json!({"data": [{"id": "m", "max_model_len": 600}]}));
    let version = |version: &str| answer(json!({"version": version}));
    let chat = |content: &str| {
        answer(json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}))
    };
    let nothing = || answer(json!({}));
    let done = json!({"calls": [], "output": "done"}).to_string();
    let mut wires = vec![models(), version("1")];
    // Hello, schema, three ways to call a tool; then six forms of tokenizing.
    wires.extend((0..5).map(|_| chat("Hello!")));
    wires.extend((0..6).map(|_| nothing()));
    wires.extend([models(), version("2"), chat(&done)]);
    let endpoint = RawEndpoint::start(wires);
    let url = endpoint.base_url();
    let probed = host.run(&[
        "doctor",
        "--probe",
        "--json",
        "--base-url",
        &url,
        "--model",
        "m",
    ]);
    assert_eq!(probed.code, Some(0), "{probed:?}");
    assert!(
        probed.stdout.contains(r#""contract":"simple""#),
        "{probed:?}"
    );
    // A fallback would ask which other models there are.
    let run = host.run(&[
        "run",
        "a task",
        "--no-fallback-tool",
        "--base-url",
        &url,
        "--model",
        "m",
    ]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("toolhold doctor --probe"), "{run:?}");
    // The schema contract, as if nothing had been probed.
    assert!(!run.stderr.contains("simple contract"), "{run:?}");
}

#[test]
fn an_endpoint_that_cannot_be_probed_says_why() {
    let host = host();
    let endpoint = Endpoint::start(good().with_key("sk-right"));
    let refused = doctor(&host, &endpoint, &["--probe"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("TOOLHOLD_API_KEY"), "{refused:?}");
    let url = endpoint.base_url();
    drop(endpoint);
    let unreachable = host.run(&["doctor", "--probe", "--base-url", &url, "--model", "m"]);
    assert_eq!(unreachable.code, Some(3), "{unreachable:?}");
    assert!(
        unreachable.stderr.contains("cannot reach"),
        "{unreachable:?}"
    );
}

/// What the probe found counts in the runs that follow; one that fails leaves estimates.
#[test]
fn a_tokenizer_that_was_probed_counts_what_runs_send() {
    // The probe itself has two texts counted.
    for (most, legend) in [
        (None, "≈ is an estimate, the rest counted by the endpoint"),
        // Which texts were counted before it failed is chance, and so whether a part is whole.
        (Some(4), "estimate"),
        (Some(2), "all estimated"),
    ] {
        let mut scenario = good().with_route(
            "/v1/models",
            json!({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 9000}]}),
        );
        let solution = json!({"calls": [], "output": "done"});
        let answer = Reply::solution(solution).expecting(Expect::text("count my words"));
        scenario.replies.insert(0, answer);
        scenario.tokenize_most = most;
        let (host, endpoint) = (host(), Endpoint::start(scenario));
        probe(&host, &endpoint);
        let before = endpoint.others().len();
        let url = endpoint.base_url();
        let done = host.run(&[
            "run",
            "count my words",
            "--base-url",
            &url,
            "--model",
            "m",
            "--budget",
        ]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let line = done
            .stderr
            .lines()
            .find(|line| line.contains("of a window of"));
        let line = line.unwrap_or_else(|| panic!("{done:?}"));
        assert!(line.contains(legend), "{most:?}: {line}");
        let failures = done.stderr.matches("failed to count tokens").count();
        assert_eq!(failures, usize::from(most.is_some()), "{done:?}");
        if most.is_none() {
            assert!(line.contains("· user 3 ·"), "{line}");
            assert!(line.contains("chat template ≈ "), "{line}");
        }
        let asked = endpoint.others()[before..].to_vec();
        let form = asked.iter().find(|(path, _)| path == "/tokenize");
        let (_, form) = form.unwrap_or_else(|| panic!("nothing was counted: {asked:?}"));
        assert_eq!(form["add_special_tokens"], false);
        assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
    }
}

/// A pool of one model counts as its members do, and a member that fails to count is not missed.
#[test]
fn members_of_one_model_count_for_their_pool() {
    let host = host();
    let serving = |most: Option<usize>| {
        let mut scenario = good().with_route(
            "/v1/models",
            json!({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 9000}]}),
        );
        let solution = json!({"calls": [], "output": "done"});
        let answer = Reply::solution(solution).expecting(Expect::text("count my words"));
        scenario.replies.insert(0, answer);
        scenario.tokenize_most = most;
        let endpoint = Endpoint::start(scenario);
        probe(&host, &endpoint);
        endpoint
    };
    // The first counts for its probe, and never again.
    let (first, second) = (serving(Some(2)), serving(None));
    for (model, legend) in [
        ("m", "≈ is an estimate, the rest counted by the endpoint"),
        ("n", "all estimated"),
    ] {
        let configuration = format!(
            "endpoint = \"all\"\n[endpoints.a]\nbase_url = {:?}\nmodel = \"m\"\n\
             [endpoints.b]\nbase_url = {:?}\nmodel = {model:?}\n[pools.all]\nmembers = [\"a\", \"b\"]\n",
            first.base_url(),
            second.base_url()
        );
        host.write("toolhold.toml", configuration);
        let done = host.run(&["run", "count my words", "--budget"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(done.stderr.contains(legend), "{model}: {done:?}");
        assert!(!done.stderr.contains("failed to count"), "{done:?}");
        assert_eq!(host.run(&["runs", "replay", "last"]).code, Some(0));
    }
}

/// A run keeps its contract: an endpoint that was found to refuse it cannot go on with it.
#[test]
fn a_run_is_not_resumed_where_its_contract_is_refused() {
    let refusing = scenario([
        with_format(
            "json_schema",
            Reply::error(
                400,
                json!({"error": {"message": "no response_format here"}}),
            ),
        ),
        any_tools(calling(&["weather_of"])),
        Reply::content("Hello!"),
    ]);
    let (host, refusing) = (host(), Endpoint::start(refusing));
    let found = probe(&host, &refusing);
    assert_eq!(verdict(&found, "/schema"), "refused", "{found}");
    let first = Endpoint::start(Scenario::new([Reply::endless()]));
    let url = first.base_url();
    let mut child = host
        .command(&["run", "t", "--base-url", &url, "--model", "m", "--json"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = std::time::Instant::now();
    while first.requests().is_empty() {
        assert!(started.elapsed().as_secs() < 60, "it never asked");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let asked = refusing.requests().len();
    let url = refusing.base_url();
    let done = host.run(&["resume", "last", "--base-url", &url, "--model", "m"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    for part in [
        "the schema contract",
        "no response_format here",
        "begin a new run",
    ] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    // Who may answer in a pool is one of those that were probed.
    let pool = format!(
        "[endpoints.b]\nbase_url = {url:?}\nmodel = \"m\"\n[pools.all]\nmembers = [\"b\"]\n"
    );
    host.write("toolhold.toml", pool);
    let done = host.run(&["resume", "last", "--endpoint", "all"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let who = "the endpoint \"b\" refuses it: ";
    assert!(done.stderr.contains(who), "{done:?}");
    assert_eq!(refusing.requests().len(), asked, "nothing was asked");
}

#[test]
fn members_that_were_probed_as_different_contracts_are_told_of() {
    let with_task = |reply: Reply| reply.expecting(Expect::text("a task of a run"));
    let answer = || with_task(Reply::content("done"));
    let both = scenario([
        answer(),
        with_format("json_schema", Reply::obedient()),
        with_tools(json!("auto"), "Paris", calling(&["weather_of"])),
        Reply::content("Hello!"),
    ]);
    let tools = scenario([
        answer(),
        with_tools(json!("auto"), "Paris", calling(&["weather_of"])),
        Reply::content("Hello!"),
    ]);
    let listed = |scenario: Scenario| {
        Endpoint::start(scenario.with_route("/v1/models", json!({"data": [{"id": "m"}]})))
    };
    let (host, both, tools) = (host(), listed(both), listed(tools));
    assert_eq!(probe(&host, &both)["contract"], "schema");
    assert_eq!(probe(&host, &tools)["contract"], "tools");
    let configuration = |contract: &str| {
        format!(
            "endpoint = \"all\"\n[endpoints.a]\nbase_url = {:?}\nmodel = \"m\"\n{contract}\
             [endpoints.b]\nbase_url = {:?}\nmodel = \"m\"\n[pools.all]\nmembers = [\"a\", \"b\"]\n",
            both.base_url(),
            tools.base_url()
        )
    };
    host.write("toolhold.toml", configuration(""));
    let run = || host.run(&["run", "a task of a run"]);
    let done = run();
    assert_eq!(
        (done.code, done.stdout.trim()),
        (Some(0), "done"),
        "{done:?}"
    );
    let told = "a as schema, b as tools; runs ask all of them in the tools contract";
    assert!(done.stderr.contains(told), "{done:?}");
    assert!(done.stderr.contains("all (tools contract)"), "{done:?}");
    let found = host.run(&["doctor"]);
    assert!(
        found.stdout.contains("– contract: ") && found.stdout.contains(told),
        "{found:?}"
    );
    // Somebody decided.
    host.write("toolhold.toml", configuration("contract = \"tools\"\n"));
    let done = run();
    assert!(
        done.code == Some(0) && !done.stderr.contains("a as schema"),
        "{done:?}"
    );
    assert!(!host.run(&["doctor"]).stdout.contains("contract: "));
}
