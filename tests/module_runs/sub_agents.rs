//! Saved Requests and clean rooms as modules: runs inside of runs (docs/protocol.md, 6).

use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Expect, Reply, ReplyOrder, Scenario};
use support::host::{Host, finish};
use support::records::Records;
use support::transcript::{Transcript, answers, calls, told};

/// A tool that a module runs, with other properties and keywords.
fn tool(module: &str, properties: Value, keywords: Value) -> Value {
    let mut tool = json!({"type": "object", "properties": {"_module": {"const": module}}});
    let own = tool["properties"].as_object_mut().unwrap();
    own.extend(properties.as_object().unwrap().clone());
    let all = tool.as_object_mut().unwrap();
    all.extend(keywords.as_object().unwrap().clone());
    tool
}

fn tools(tools: Value) -> Value {
    json!({"type": "tool", "tool": tools})
}

/// A tool that a model answers itself: it goes on without anything having happened.
fn note() -> Value {
    tools(
        json!({"note": {"type": "object", "properties": {"text": {"type": "string"}, "_output": {"type": "string"}}}}),
    )
}

fn notes(text: &str) -> Reply {
    calls([("note", json!({"text": text, "_output": text}))])
}

fn text(content: &str) -> Value {
    json!({"role": "user", "content": content})
}

fn using(reply: Reply, tokens: u64) -> Reply {
    Reply {
        usage: Some((tokens, 0)),
        ..reply
    }
}

/// A host with this saved Request, `inner`.
fn host(inner: &Value) -> Host {
    let host = Host::new();
    host.write("modules/.keep", "")
        .write("requests/inner.json", inner.to_string());
    host
}

fn run(host: &Host, endpoint: &Endpoint, context: &Value, options: &[&str]) -> Transcript {
    host.write("context.json", context.to_string());
    let arguments = [&["run", "Do it.", "--context", "context.json"], options].concat();
    Transcript::of(host, endpoint, &arguments)
}

/// One tool, `ask`, that `inner` runs.
fn asking() -> Value {
    json!([tools(json!({"ask": tool("inner", json!({}), json!({}))}))])
}

fn message(failure: &Value) -> &str {
    failure["message"].as_str().unwrap()
}

#[test]
fn a_sub_agent_sees_its_own_context_its_input_and_what_the_scopes_name() {
    let inner = json!({
        "description": "Greets somebody.",
        "instructions": "You greet people.",
        "context": [
            {"type": "data", "kind": "house", "data": {"style": "formal"}},
            {"type": "data", "kind": "user", "data": {"name": "nobody", "title": "Dr"}},
            {"type": "input", "schema": {"type": "object", "properties": {"time": {"type": "string"}}, "required": ["time"]}},
            text("Greet the user."),
        ],
        "schema": {"type": "object", "properties": {"greeting": {"type": "string"}}, "required": ["greeting"]},
    });
    let host = host(&inner);
    host.ship("calculator");
    let greet = tool(
        "inner",
        json!({"_scopes": {"const": ["user", "input"]}, "_outputPath": {"const": "†state.greeting"}}),
        json!({}),
    );
    let context = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada"}},
        {"type": "data", "kind": "card", "data": "4111"},
        {"type": "input", "input": {"time": "noon", "mood": "good"}, "schema": {}},
        {"type": "state", "state": {"clock": "evening"}},
        tools(json!({"greet": greet})),
    ]);
    let endpoint = Endpoint::start(Scenario::new([
        using(calls([("greet", json!({"time": "†state.clock"}))]), 100),
        using(answers(json!({"greeting": "Good evening, Ada."})), 20),
        using(answers("greeted"), 3),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    assert_eq!(run.output(), "greeted");
    assert_eq!(
        run.result("greet"),
        &json!({"greeting": "Good evening, Ada."})
    );

    let inside = told(&endpoint, 1);
    for part in [
        "You greet people.",
        "Greet the user.",
        r#"{"style":"formal"}"#,
        // The caller's word holds over the file's, and the arguments over the caller's input.
        r#"{"name":"Ada","title":"Dr"}"#,
        r#""time":"evening""#,
    ] {
        assert!(inside.contains(part), "{part}: {inside}");
    }
    for part in ["4111", "Do it.", "noon", "clock"] {
        assert!(!inside.contains(part), "{part}: {inside}");
    }
    let offered = endpoint.requests()[1]["response_format"].to_string();
    assert!(offered.contains("greeting"), "{offered}");
    assert!(
        !offered.contains("calculator") && !offered.contains("\"greet\""),
        "{offered}"
    );
    // The tool's own interface, which the message left open, is the Request's.
    let offered = endpoint.requests()[0]["response_format"].to_string();
    assert!(offered.contains("\"time\""), "{offered}");

    // Its events are the parent's, in their order, and its tokens as well.
    let kinds: Vec<_> = run
        .inner(1)
        .iter()
        .map(|event| event["event"].clone())
        .collect();
    assert_eq!(
        (&kinds[0], kinds.last()),
        (&json!("run"), Some(&json!("done"))),
        "{kinds:?}"
    );
    let end = run.events.iter().rposition(|event| event["event"] == "sub");
    let result = run
        .events
        .iter()
        .position(|event| event["event"] == "tool_result");
    assert!(
        end < result,
        "all that happened in it comes before its result"
    );
    assert_eq!(run.results("greet")[0]["usage"]["tokens"], 20);
    assert_eq!(run.end()["tokens"], 123);
}

#[test]
fn a_request_that_calls_itself_ends_with_a_reason() {
    let inner = json!({"context": [tools(json!({"again": tool("inner", json!({}), json!({}))})), text("Go on.")]});
    let host = host(&inner);
    let again = || calls([("again", json!({}))]);
    let endpoint = Endpoint::start(Scenario::new([
        calls([("ask", json!({}))]),
        again(),
        again(),
        again(),
        answers("deepest"),
        answers("deeper"),
        answers("deep"),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &asking(), &[]);
    assert_eq!(run.output(), "done");
    assert_eq!(run.result("ask"), "deep");
    let refused = told(&endpoint, 4);
    assert!(
        refused.contains("3 deep (run.max_depth)") && refused.contains("calls itself"),
        "{refused}"
    );
    assert!(
        run.inner(3)
            .iter()
            .any(|event| event["output"] == "deepest")
    );
    assert!(run.inner(4).is_empty());
}

#[test]
fn a_sub_agent_stops_at_the_tokens_that_its_parent_has_left() {
    let host = host(&json!({"context": [note(), text("Take notes.")]}));
    let endpoint = Endpoint::start(Scenario::new([
        using(calls([("ask", json!({}))]), 30),
        using(notes("a"), 40),
        // Late, so that the parent's reply is over and counted.
        using(notes("b").delayed_ms(1_000, 0), 40),
    ]));
    let run = run(&host, &endpoint, &asking(), &["--token-budget", "100"]);
    let failure = run.failure("ask");
    assert!(message(failure).contains("run.token_budget"), "{failure}");
    assert_eq!(failure["class"], "fatal");
    let end = run.end();
    assert_eq!(
        (&end["reason"], &end["tokens"]),
        (&json!("token_budget"), &json!(110))
    );
    assert_eq!((run.finished.code, endpoint.requests().len()), (Some(4), 3));
}

#[test]
fn sub_agents_at_the_same_time_share_what_is_left() {
    let host = host(&json!({"context": [note(), text("Take notes.")]}));
    let outer = using(
        calls([("ask", json!({"n": 1})), ("ask", json!({"n": 2}))]),
        10,
    );
    // Each alone could ask once more. Late, so that both have asked and the parent has counted.
    let inner = using(notes("a").delayed_ms(3_000, 0), 90).expecting(Expect::text("Take notes."));
    let endpoint = Endpoint::start(
        Scenario::new([inner, outer.expecting(Expect::text("Do it."))])
            .in_order(ReplyOrder::FirstMatch),
    );
    let context = json!([tools(
        json!({"ask": tool("inner", json!({"n": {"type": "integer"}}), json!({}))})
    )]);
    let run = run(&host, &endpoint, &context, &["--token-budget", "100"]);
    for result in run.results("ask") {
        assert!(
            message(&result["error"]).contains("run.token_budget"),
            "{result}"
        );
    }
    assert_eq!(run.results("ask").len(), 2);
    assert_eq!(
        (run.end()["tokens"].clone(), endpoint.requests().len()),
        (json!(190), 3)
    );
}

/// Money and calls are shared as tokens are: what a sub-agent took is what its parent has no more.
#[test]
fn cost_and_calls_of_sub_agents_count_in_their_parent() {
    let inner = json!({"context": [tools(json!({"deeper": tool("leaf", json!({}), json!({}))})), text("Ask.")]});
    let leaf = json!({"context": [text("Answer.")]});
    let prices = "[run]\ncurrency = \"EUR\"\n[endpoints.default]\nprice_per_million = { prompt = 1, completion = 1 }\n";
    let deeper = || using(calls([("deeper", json!({}))]), 10);
    for (options, replies, reason, setting) in [
        (
            ["--max-tool-calls", "2"],
            vec![
                using(calls([("ask", json!({}))]), 10),
                deeper(),
                using(answers("leaf"), 10),
                deeper(),
            ],
            "max_tool_calls",
            "run.max_tool_calls",
        ),
        (
            ["--max-cost", "0.00002"],
            vec![
                // A call is made while its reply still comes, before anybody knows what that costs.
                using(calls([("ask", json!({}))]), 0),
                deeper(),
                using(answers("leaf"), 10),
            ],
            "max_cost",
            "run.max_cost",
        ),
    ] {
        let host = host(&inner);
        host.write("requests/leaf.json", leaf.to_string())
            .write("toolhold.toml", prices);
        let endpoint = Endpoint::start(Scenario::new(replies));
        let run = run(&host, &endpoint, &asking(), &options);
        let failure = run.failure("ask");
        assert!(message(failure).contains(setting), "{failure}");
        assert_eq!(failure["class"], "fatal");
        assert_eq!(run.end()["reason"], reason, "{}", run.end());
        assert_eq!((run.finished.code, endpoint.replies_left()), (Some(4), 0));
    }
}

#[test]
fn a_sub_agent_makes_no_more_requests_than_its_file_and_its_parent_allow() {
    for (own, options, expect) in [
        (json!(2), &[][..], 2),
        (json!(9), &["--max-steps", "4"][..], 3),
        (json!(null), &["--max-steps", "2"][..], 1),
        // The last Request of a run may still delegate.
        (json!(null), &["--max-steps", "1"][..], 1),
    ] {
        let mut inner = json!({"context": [note(), text("Take notes.")]});
        if !own.is_null() {
            inner["max_steps"] = own.clone();
        }
        let host = host(&inner);
        let mut replies = vec![calls([("ask", json!({}))])];
        replies.extend((0..expect).map(|n| notes(&n.to_string())));
        replies.push(answers("done"));
        let endpoint = Endpoint::start(Scenario::new(replies));
        let run = run(&host, &endpoint, &asking(), options);
        let failure = run.failure("ask");
        let words = format!("no output after {expect} steps");
        assert!(
            message(failure).contains(&words),
            "{own} {options:?}: {failure}"
        );
    }
}

/// A sub-agent that waits for its model does not outlive its parent.
#[test]
fn the_parent_s_time_is_the_sub_agent_s() {
    let host = host(&json!({"context": [text("Wait.")]}));
    let endpoint = Endpoint::start(Scenario::new([
        calls([("ask", json!({}))]),
        Reply::endless().delayed_ms(0, 20),
    ]));
    let run = run(&host, &endpoint, &asking(), &["--timeout", "6"]);
    assert_eq!(
        (run.finished.code, &run.end()["reason"]),
        (Some(4), &json!("timeout"))
    );
    assert!(endpoint.wait_until(Duration::from_secs(5), |e| e.open_streams() == 0));
    let settings = &run.inner(1)[0]["request"]["settings"];
    let limit = settings["timeout"]["secs"].as_u64();
    assert!(limit.is_some_and(|limit| limit < 6), "{settings}");
}

#[test]
fn cancelling_the_parent_stops_its_sub_agents() {
    let host = host(&json!({"context": [text("Wait.")]}));
    host.write("context.json", asking().to_string());
    let endpoint = Endpoint::start(Scenario::new([
        calls([("ask", json!({}))]),
        Reply::endless(),
    ]));
    let url = endpoint.base_url();
    let child = host
        .command(&[
            "run",
            "t",
            "--context",
            "context.json",
            "--base-url",
            &url,
            "--model",
            "m",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(
        endpoint.wait_until(Duration::from_secs(20), |e| e.requests().len() == 2
            && e.open_streams() == 1)
    );
    let started = Instant::now();
    let id = Records::of(&host).runs().remove(0);
    // Meanwhile its output is read: it is more than a pipe holds.
    let output = std::thread::spawn(|| child.wait_with_output().unwrap());
    let cancelled = host.run(&["runs", "cancel", &id]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    let run = Transcript::read(&host, finish(output.join().unwrap()));
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(
        (run.finished.code, &run.end()["reason"]),
        (Some(130), &json!("cancelled"))
    );
    assert!(endpoint.wait_until(Duration::from_secs(5), |e| e.open_streams() == 0));
}

#[test]
fn a_sub_agent_s_failure_is_the_call_s_with_its_class() {
    for (reply, class, words) in [
        (
            Reply::error(401, json!({"error": {"message": "bad key"}})),
            "fatal",
            "bad key",
        ),
        (
            Reply::error(503, json!({"error": {"message": "busy"}})),
            "retryable",
            "busy",
        ),
        (
            answers("too long").truncated_after(60),
            "retryable",
            "in the middle",
        ),
    ] {
        let host = host(&json!({"context": [text("Answer.")]}));
        let endpoint = Endpoint::start(
            Scenario::new([
                reply.expecting(Expect::text("Answer.")),
                answers("went on").expecting(Expect::text("ended without an output")),
                calls([("ask", json!({}))]),
            ])
            .in_order(ReplyOrder::FirstMatch),
        );
        let run = run(&host, &endpoint, &asking(), &[]);
        assert_eq!(run.output(), "went on");
        let failure = run.failure("ask");
        assert_eq!(
            (&failure["kind"], &failure["class"]),
            (&json!("sub_agent"), &json!(class)),
            "{failure}"
        );
        assert!(message(failure).contains(words), "{failure}");
    }
}

#[test]
fn missing_inputs_of_a_sub_agents_tools_fail_the_call() {
    let host = host(
        &json!({"context": [tools(json!({"x": tool("nowhere", json!({}), json!({}))})), text("Answer.")]}),
    );
    let endpoint = Endpoint::start(Scenario::new([
        calls([("ask", json!({}))]),
        answers("went on"),
    ]));
    let run = run(&host, &endpoint, &asking(), &[]);
    assert_eq!(run.output(), "went on");
    let failure = run.failure("ask");
    assert_eq!(failure["class"], "fatal");
    assert!(
        message(failure).contains("no module \"nowhere\""),
        "{failure}"
    );
}

fn weigh() -> Value {
    json!({
        "context": [
            {"type": "input", "description": "What is weighed.", "schema": {
                "type": "object",
                "properties": {"grams": {"type": "integer", "minimum": 1}, "of": {"enum": ["flour", "salt"]}},
                "required": ["grams", "of"],
                "additionalProperties": false,
            }},
            text("Weigh it."),
        ],
        "schema": {"type": "object", "properties": {"spoons": {"type": "integer"}}, "required": ["spoons"]},
    })
}

/// By default the sub-agent's model makes do with parameters that are not the Request's.
#[test]
fn resolved_at_execution_a_mismatch_is_bridged() {
    let host = host(&weigh());
    let weight = tool("inner", json!({"pounds": {"type": "number"}}), json!({}));
    let endpoint = Endpoint::start(Scenario::new([
        calls([("weigh", json!({"pounds": 1.5}))]),
        answers(json!({"spoons": 40})),
        answers("done"),
    ]));
    let run = run(
        &host,
        &endpoint,
        &json!([tools(json!({"weigh": weight}))]),
        &[],
    );
    assert_eq!(run.output(), "done");
    assert_eq!(run.result("weigh"), &json!({"spoons": 40}));
    let inside = told(&endpoint, 1);
    for part in [
        r#"{"pounds":1.5}"#,
        "What is weighed.",
        "The caller's words for it differ",
        r#""enum":["flour","salt"]"#,
    ] {
        assert!(inside.contains(part), "{part}: {inside}");
    }
}

#[test]
fn resolved_upfront_the_request_s_schemas_are_the_tool_s() {
    let host = host(&weigh());
    let upfront = || json!({"resolve": "upfront", "required": ["_tool"]});
    let of = json!({"of": {"type": "string", "description": "The ingredient."}});
    let context = json!([tools(json!({"weigh": tool("inner", of, upfront())}))]);
    let endpoint = Endpoint::start(Scenario::new([
        calls([("weigh", json!({"grams": 0, "of": "salt"}))]),
        calls([("weigh", json!({"grams": 5, "of": "sugar"}))]),
        calls([("weigh", json!({"grams": 5, "of": "salt"}))]),
        answers(json!({"spoons": 1})),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    assert_eq!(run.output(), "done");
    let offered = endpoint.requests()[0]["response_format"].to_string();
    for part in ["\"grams\"", "flour"] {
        assert!(offered.contains(part), "{part}: {offered}");
    }
    let results = run.results("weigh");
    assert_eq!(results.len(), 3);
    for (result, words) in results.iter().zip(["/grams", "/of"]) {
        let failure = &result["error"];
        assert_eq!(failure["kind"], "arguments", "{failure}");
        assert!(message(failure).contains(words), "{failure}");
    }
    assert_eq!(results[2]["output"], json!({"spoons": 1}));
    assert!(!told(&endpoint, 3).contains("differ"));

    for (properties, keywords, words) in [
        (
            json!({"pounds": {"type": "number"}}),
            upfront(),
            "its input has no \"pounds\"; it takes grams, of",
        ),
        (
            json!({}),
            json!({"resolve": "later"}),
            "/tool/weigh/resolve: must be \"execution\" or \"upfront\"",
        ),
    ] {
        let context = json!([tools(json!({"weigh": tool("inner", properties, keywords)}))]);
        let refused = self::run(&host, &Endpoint::start(Scenario::default()), &context, &[]);
        assert_eq!(refused.finished.code, Some(1));
        assert!(
            refused.finished.stderr.contains(words),
            "{words}: {:?}",
            refused.finished
        );
    }
}

#[test]
fn a_clean_room_holds_what_the_scopes_let_in_and_nothing_else() {
    let host = host(&json!({"context": []}));
    host.ship("calculator");
    let output = json!({"type": "object", "properties": {"sum": {"type": "integer", "minimum": 10}}, "required": ["sum"]});
    let properties =
        json!({"a": {"type": "integer"}, "_scopes": {"const": ["user.age"]}, "_output": output});
    let room = tool(
        "anonymous",
        properties,
        json!({"description": "Adds the age."}),
    );
    let context = json!([
        {"type": "data", "kind": "user", "data": {"name": "Ada", "age": 36}},
        tools(json!({"add": room})),
    ]);
    let endpoint = Endpoint::start(Scenario::new([
        calls([("add", json!({"a": 1}))]),
        // There is no tool to call in there.
        calls([("calculator.evaluate", json!({"expression": "1+36"}))]),
        answers(json!({"sum": 7})),
        answers(json!({"sum": 37})),
        answers("done"),
    ]));
    let run = run(&host, &endpoint, &context, &[]);
    assert_eq!(run.output(), "done");
    assert_eq!(run.result("add"), &json!({"sum": 37}));
    let inside = told(&endpoint, 1);
    for part in ["Adds the age.", "{\"age\":36}", "{\"a\":1}"] {
        assert!(inside.contains(part), "{part}: {inside}");
    }
    for part in ["Ada", "Do it."] {
        assert!(!inside.contains(part), "{part}: {inside}");
    }
    let offered = endpoint.requests()[1]["response_format"].to_string();
    assert!(!offered.contains("calculator"), "{offered}");
    assert!(
        told(&endpoint, 2).contains("there are no tools"),
        "{}",
        told(&endpoint, 2)
    );
    assert!(
        told(&endpoint, 3).contains("less than the minimum of 10"),
        "{}",
        told(&endpoint, 3)
    );
}

/// A person's rules hold in there, too.
#[test]
fn a_call_of_a_sub_agent_waits_for_a_person() {
    let inner = json!({"context": [tools(json!({"add": tool("calculator", json!({}), json!({}))})), text("Add.")]});
    let host = host(&inner);
    host.ship("calculator")
        .write("toolhold.toml", "[decisions]\nalways = [\"calculator\"]\n")
        .write("context.json", asking().to_string());
    let endpoint = Endpoint::start(Scenario::new([
        calls([("ask", json!({}))]),
        calls([("add", json!({"expression": "1+1"}))]),
        answers("2"),
        answers("done"),
    ]));
    let url = endpoint.base_url();
    let child = host
        .command(&[
            "run",
            "t",
            "--context",
            "context.json",
            "--base-url",
            &url,
            "--model",
            "m",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let call = host.waiting_call();
    let waiting = host.run(&["approvals", "list"]).stdout;
    assert!(
        waiting.contains("add {\"expression\":\"1+1\"} (asked by the sub-agent ask)"),
        "{waiting}"
    );
    let approved = host.run(&["approvals", "approve", &call]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let run = Transcript::read(&host, finish(child.wait_with_output().unwrap()));
    assert_eq!(run.output(), "done");
    assert_eq!(run.result("ask"), "2");
}

/// Serves this document, once for each connection, and counts.
fn served(document: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4_096]);
            counted.fetch_add(1, Ordering::SeqCst);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                document.len()
            );
            let _ = stream.write_all(format!("{head}{document}").as_bytes());
        }
    });
    (origin, count)
}

/// A delegate by its address, under a grant of the operator (docs/protocol.md, 6.1).
#[test]
fn a_sub_agent_comes_from_an_address_that_the_operator_granted() {
    let inner = json!({"context": [text("Say whether it is refunded.")]});
    let (origin, fetched) = served(inner.to_string());
    let address = format!("{origin}/team/refund.json");
    let delegate =
        json!({"ask": {"type": "object", "properties": {"_delegate": {"const": address}}}});
    let context = json!([tools(delegate)]);
    let host = host(&json!({"context": []}));
    host.write("toolhold.toml", "[requests]\nplain_loopback = true\n");
    let silent = Endpoint::start(Scenario::new([]));
    let refused = {
        host.write("context.json", context.to_string());
        let url = silent.base_url();
        host.run(&[
            "run",
            "Do it.",
            "--context",
            "context.json",
            "--base-url",
            &url,
        ])
    };
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(
        refused.stderr.contains("no grant lets it be fetched")
            && refused.stderr.contains("requests.http"),
        "{refused:?}"
    );
    assert_eq!(fetched.load(Ordering::SeqCst), 0);
    assert!(silent.requests().is_empty(), "no model was asked");

    let grant = format!(
        "[requests]\nplain_loopback = true\nhttp = [{{ origin = \"{origin}\", path_prefix = \"/team\", private = true }}]\n"
    );
    host.write("toolhold.toml", &grant);
    let endpoint = Endpoint::start(Scenario::new([
        calls([("ask", json!({}))]),
        answers("refunded"),
        answers("done"),
    ]));
    let done = run(&host, &endpoint, &context, &[]);
    assert_eq!(done.output(), "done");
    assert_eq!(done.result("ask"), "refunded");
    assert!(told(&endpoint, 1).contains("Say whether it is refunded."));
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
    let is_told = |event: &&Value| event["event"] == "request_fetched";
    let told: Vec<&Value> = done.events.iter().filter(is_told).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["address"], address);
    assert_eq!(told[0]["bytes"], inner.to_string().len());
    assert_eq!(told[0]["digest"].as_str().map(str::len), Some(64));
    assert_eq!(
        (&told[0]["attempts"], &told[0]["error"]),
        (&json!(1), &Value::Null)
    );
    let audit = host.run(&["audit", "search", "", "--json"]).stdout;
    assert!(
        audit.contains("request_fetched") && audit.contains(&address),
        "{audit}"
    );
    // The record has it.
    let replayed = host.run(&["runs", "replay", "last"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
}
