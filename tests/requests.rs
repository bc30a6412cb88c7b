//! `toolhold request`: saved Requests from end to end. Those of `fixtures/requests` are the protocol's
//! own examples.

use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;
use support::endpoint::{Endpoint, Expect, Reply, Scenario};
use support::host::{Finished, Host, finish};
use support::sandbox::{component, repository};
use support::transcript::{Transcript, answers, calls, told};

/// It is colder the further one is from the equator.
const METEO: &str = r#"(component
  (core module $m (func (export "forecast") (param i32) (result i32)
    (i32.sub (i32.const 40) (i32.shr_s (i32.mul (local.get 0) (local.get 0)) (i32.const 7)))))
  (core instance $i (instantiate $m))
  (func (export "forecast") (param "latitude" s32) (result s32) (canon lift (core func $i "forecast"))))"#;

/// Every Request of the fixtures, and no modules.
fn host() -> Host {
    let host = Host::new();
    let folder = repository().join("tests/fixtures/requests");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        host.write(&format!("requests/{name}"), fs::read(&path).unwrap());
    }
    host
}

fn run(
    host: &Host,
    endpoint: &Endpoint,
    request: &str,
    input: &Value,
    options: &[&str],
) -> Transcript {
    let input = input.to_string();
    let mut arguments = vec!["request", "run", request];
    if input != "null" {
        arguments.extend(["--input", &input]);
    }
    Transcript::of(host, endpoint, &[&arguments[..], options].concat())
}

/// As a person runs it: only the output is on stdout.
fn printed(host: &Host, endpoint: &Endpoint, arguments: &[&str]) -> Finished {
    let url = endpoint.base_url();
    let options = ["--base-url", &url, "--model", "scripted"];
    host.run(&[&["request", "run"], arguments, &options].concat())
}

/// A latent tool: the model that calls it writes its output.
#[test]
fn sentiment_is_judged_without_any_code() {
    let host = host();
    let verdict = json!({"sentiment": "positive", "confidence": 0.9});
    let endpoint = Endpoint::start(Scenario::new([
        calls([(
            "sentiment",
            json!({"text": "†input.text", "_output": {"sentiment": "glad", "confidence": 2}}),
        )]),
        calls([(
            "sentiment",
            json!({"text": "†input.text", "_output": verdict}),
        )]),
        answers("positive"),
    ]));
    let done = run(
        &host,
        &endpoint,
        "sentiment",
        &json!({"text": "I love it."}),
        &[],
    );
    assert_eq!(done.output(), "positive");
    let results = done.results("sentiment");
    assert!(
        results[0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/sentiment"),
        "{}",
        results[0]
    );
    assert_eq!(
        (&results[1]["output"], &results[1]["by_host"]),
        (&verdict, &json!(true))
    );
    assert!(
        told(&endpoint, 2).contains(r#""confidence":0.9"#),
        "{}",
        told(&endpoint, 2)
    );
}

/// An explicit tool writes into the state, and another call is wired to what it wrote.
#[test]
fn weather_is_computed_and_wired_through_the_state() {
    let host = host();
    host.write("modules/meteo.wasm", component(METEO));
    let endpoint = Endpoint::start(Scenario::new([
        calls([
            ("forecast", json!({"latitude": "†input.latitude"})),
            (
                "advise",
                json!({"celsius": "†state.celsius", "_output": "A coat."}),
            ),
        ]),
        // Which of the two is written first is chance: one is a call, the other the model's to say.
        answers(json!({"celsius": 19, "advice": "A coat."})).expecting(Expect {
            contains: vec![r#""celsius":19"#.into(), r#""advice":"A coat.""#.into()],
            ..Expect::default()
        }),
    ]));
    let done = run(&host, &endpoint, "weather", &json!({"latitude": 52}), &[]);
    assert_eq!(done.output(), &json!({"celsius": 19, "advice": "A coat."}));
    assert_eq!(done.result("forecast"), &json!(19));
    assert_eq!(endpoint.mismatches(), [""; 0]);
    // The blueprint told the model where to write.
    assert!(
        told(&endpoint, 0).contains("## Data: ¶state"),
        "{}",
        told(&endpoint, 0)
    );
}

/// One Request works on several data contexts, and none sees another's.
#[test]
fn moderation_judges_each_post_of_a_batch_on_its_own() {
    let host = host();
    host.ship("text");
    let both = |instance: &str, words: Value, allowed: bool| {
        let verdict = json!({"allowed": allowed, "reason": "the rules"});
        [
            (
                "measure",
                json!({"_instance": instance, "text": "†post.text"}),
            ),
            (
                "moderate",
                json!({"_instance": instance, "words": words, "_output": verdict}),
            ),
        ]
    };
    let first = [
        both("a", json!("†size.words"), true),
        both("b", json!("†size.words"), false),
    ]
    .concat();
    let strayed = [(
        "moderate",
        json!({"_instance": "d", "words": 1, "_output": {"allowed": true, "reason": ""}}),
    )];
    let endpoint = Endpoint::start(Scenario::new([
        calls([first, strayed.to_vec()].concat()),
        calls(both("c", json!("†size.words"), true)),
        answers(json!(["a", "c"])),
    ]));
    let done = run(&host, &endpoint, "moderation", &json!(null), &[]);
    assert_eq!(done.output(), &json!(["a", "c"]));
    let mut words: Vec<_> = done
        .results("measure")
        .iter()
        .map(|result| result["output"]["words"].clone())
        .collect();
    words.sort_by_key(Value::as_u64);
    assert_eq!(words, [json!(4), json!(4), json!(6)]);
    let refused: Vec<_> = done
        .results("moderate")
        .into_iter()
        .filter(|result| result.get("error").is_some())
        .collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["error"]["kind"], "instance", "{}", refused[0]);
    let shown = told(&endpoint, 2);
    for instance in ["a", "b", "c"] {
        assert!(
            shown.contains(&format!("## Data: ¶verdict (instance {instance})")),
            "{shown}"
        );
    }
}

fn refund() -> Value {
    json!({"calls": [
        {"_tool": "receipt", "_reasoningForCall": "it names the amount", "text": "†refund.amount.value", "_outputPath": "†refund.receipt"},
        {"_tool": "amount", "_reasoningForCall": "ten percent are kept", "expression": "†input.paid", "_outputPath": "†refund.amount"},
    ], "output": null})
}

/// A lazy plan runs only as a whole, in the order of its data and not of its words.
#[test]
fn a_refund_is_planned_checked_and_then_run() {
    let host = host();
    host.ship("calculator").ship("text");
    let mut circle = refund();
    circle["calls"][1]["expression"] = json!("†refund.receipt.digest");
    let output = json!({"amount": "45", "receipt": "…"});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(circle),
        Reply::solution(refund()),
        answers(output.clone()),
    ]));
    let done = run(&host, &endpoint, "refund", &json!({"paid": "50*0.9"}), &[]);
    assert_eq!(done.output(), &output);
    assert_eq!(done.result("amount"), &json!({"value": "45"}));
    // printf 45 | sha256sum
    let digest = "811786ad1ae74adfdd20dd0372abaaebc6246e343aebd01da0bfc4c02bf0106c";
    assert_eq!(done.result("receipt")["digest"], digest);
    let order: Vec<_> = done
        .events
        .iter()
        .filter(|event| event["event"] == "tool_result")
        .map(|event| event["tool"].clone())
        .collect();
    assert_eq!(order, ["amount", "receipt"]);
    assert!(
        told(&endpoint, 1).contains("†refund.receipt"),
        "the circle is named"
    );

    let endpoint = Endpoint::start(Scenario::new([Reply::solution(refund())]));
    let done = run(
        &host,
        &endpoint,
        "refund",
        &json!({"paid": "50"}),
        &["--dry-run"],
    );
    assert_eq!(
        (&done.end()["reason"], done.finished.code),
        (&json!("planned"), Some(0))
    );
    assert!(
        done.events
            .iter()
            .all(|event| event["event"] != "tool_start"),
        "nothing ran"
    );
}

/// A council speaks before the model chooses. A decision against it is recorded, and made when the model, which was
/// told the sums, makes it again.
#[test]
fn a_deployment_is_decided_with_a_council() {
    let host = host();
    host.ship("text");
    let opinions = json!([
        {"id": "reliability", "risk": "high", "calls": "{\"deploy\": 5, \"hold\": 95}"},
        {"id": "product", "opinion": "It was promised.", "calls": "{\"deploy\": 90}"},
        {"id": "security", "opinion": "Nobody looked.", "calls": "{\"hold\": 60, \"launch\": 50}"},
    ]);
    let deploy = json!({"_tool": "deploy", "_reasoningForCall": "promised", "text": "†input.release", "_outputPath": "†deployment.id"});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::solution(json!({"advisors": opinions, "calls": [deploy], "output": null})),
        Reply::solution(json!({"calls": [deploy], "output": null}))
            .expecting(Expect::text("held and was not made")),
        answers("deployed"),
    ]));
    let done = run(
        &host,
        &endpoint,
        "deployment",
        &json!({"release": "v7", "failing_tests": 3}),
        &[],
    );
    assert_eq!(done.output(), "deployed");
    let council = done
        .events
        .iter()
        .find(|event| event["event"] == "council")
        .unwrap();
    assert_eq!(
        council["council"]["opinions"].as_array().map(Vec::len),
        Some(3),
        "{council}"
    );
    assert!(
        council.to_string().contains("launch"),
        "an unknown tool is reported: {council}"
    );
    let dissent = done
        .events
        .iter()
        .find(|event| event["event"] == "notice")
        .unwrap();
    assert!(
        dissent["message"].as_str().unwrap().contains("hold"),
        "{dissent}"
    );
    let deployed = done.results("deploy");
    let [held, made] = deployed.as_slice() else {
        panic!("{deployed:?}");
    };
    assert_eq!(held["error"]["kind"], "council", "{held}");
    let digest = made["output"]["digest"].as_str();
    assert_eq!(digest.map(str::len), Some(64), "{made}");
    let replayed = host.run(&["runs", "replay", "last"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

/// What one call fetches is handed to a saved Request, and never passes through the model's hands.
#[test]
fn a_profile_is_fetched_and_summarised_by_reference() {
    let host = host();
    host.ship("files")
        .write("people/ada.txt", "Ada Lovelace wrote the first program.\n");
    let endpoint = Endpoint::start(Scenario::new([
        calls([
            ("fetch", json!({"path": "†input.person"})),
            ("summarise", json!({"text": "†profile.text"})),
        ]),
        answers(
            "a summary that is longer than the eighty characters which its schema allows it to have, all in all",
        ),
        answers("She wrote the first program."),
        answers(json!({"summary": "She wrote the first program."})),
    ]));
    let grant = ["--dir", "files=./people", "--trust-all"];
    let done = run(
        &host,
        &endpoint,
        "profile",
        &json!({"person": "ada.txt"}),
        &grant,
    );
    assert_eq!(
        done.output(),
        &json!({"summary": "She wrote the first program."})
    );
    assert_eq!(done.result("summarise"), "She wrote the first program.");
    assert!(told(&endpoint, 1).contains("Ada Lovelace wrote the first program."));
    // Upfront: the sub-agent's input is the tool's.
    assert!(endpoint.requests()[0].to_string().contains("summarise"));
}

/// A failure is written to its declared place, waiting calls take the data that exists, and the model
/// plans anew.
#[test]
fn a_payment_that_fails_is_reported_and_made_in_another_way() {
    let host = host();
    host.ship("calculator");
    let notify = || {
        (
            "notify",
            json!({"outcome": "†payment.receipt || †payment.failure"}),
        )
    };
    let endpoint = Endpoint::start(Scenario::new([
        calls([("charge", json!({"expression": "30/0"})), notify()]),
        answers("The card was refused.").expecting(Expect::text("zero")),
        calls([("charge", json!({"expression": "30/1"})), notify()])
            .expecting(Expect::text("¶payment")),
        answers("Thirty were paid.").expecting(Expect::text(r#"{"outcome":{"value":"30"}}"#)),
        answers(json!({"paid": true, "notices": 2})),
    ]));
    let done = run(
        &host,
        &endpoint,
        "payment",
        &json!({"amount": "30", "cards": ["0", "1"]}),
        &[],
    );
    assert_eq!(endpoint.mismatches(), [""; 0]);
    assert_eq!(done.output(), &json!({"paid": true, "notices": 2}));
    let charges = done.results("charge");
    assert_eq!(charges[0]["written"], json!(["†payment.failure"]));
    assert_eq!(
        (&charges[1]["written"], &charges[1]["output"]),
        (&json!(["†payment.receipt"]), &json!({"value": "30"}))
    );
    let notices: Vec<_> = done
        .results("notify")
        .iter()
        .map(|result| result["output"].clone())
        .collect();
    assert_eq!(
        notices,
        [json!("The card was refused."), json!("Thirty were paid.")]
    );
}

/// Text is printed as text, everything else as JSON that a program reads.
#[test]
fn the_output_is_printed_as_its_schema_says() {
    let hidden = "a\u{202e}b\u{7f}";
    for (schema, output, stdout) in [
        (json!(null), json!("It is so."), "It is so.\n".to_owned()),
        (json!({"type": "string"}), json!("yes"), "yes\n".into()),
        (
            json!({"enum": ["yes", "no"]}),
            json!("yes"),
            "\"yes\"\n".into(),
        ),
        (json!({"type": "integer"}), json!(7), "7\n".into()),
        (
            json!({"type": "array"}),
            json!([hidden]),
            "[\n  \"a\\u202eb\\u007f\"\n]\n".into(),
        ),
    ] {
        let host = Host::new();
        let mut request = json!({"context": [{"role": "user", "content": "Is it so?"}]});
        if !schema.is_null() {
            request["schema"] = schema.clone();
        }
        host.write("ask.json", request.to_string());
        let endpoint = Endpoint::start(Scenario::new([answers(output.clone())]));
        let done = printed(&host, &endpoint, &["ask.json"]);
        assert_eq!(
            (done.code, &done.stdout),
            (Some(0), &stdout),
            "{schema}: {done:?}"
        );
        if !schema.is_null() && schema["type"] != "string" {
            let read: Value = serde_json::from_str(&done.stdout).unwrap();
            assert_eq!(read, output);
        }
    }
}

#[test]
fn the_input_comes_from_the_command_line_a_file_or_stdin() {
    let host = host();
    let input = json!({"text": "fine"}).to_string();
    host.write("input.json", &input);
    for given in [input.as_str(), "@input.json", "-"] {
        let endpoint = Endpoint::start(Scenario::new([answers("positive")]));
        let url = endpoint.base_url();
        let mut child = host
            .command(&[
                "request",
                "run",
                "sentiment",
                "--input",
                given,
                "--base-url",
                &url,
                "--model",
                "m",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Who does not read it may be gone.
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        drop(stdin);
        let done = finish(child.wait_with_output().unwrap());
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (Some(0), "\"positive\"\n"),
            "{given}: {done:?}"
        );
        assert!(told(&endpoint, 0).contains(r#"{"text":"fine"}"#), "{given}");
    }
}

#[test]
fn a_request_is_found_by_its_name_and_by_its_file_name() {
    let host = host();
    host.write("requests/mail/reply.json", r#"{"context": []}"#)
        .write("own.json", r#"{"context": []}"#);
    let endpoint = Endpoint::start(Scenario::new((0..9).map(|_| answers("positive"))));
    for name in [
        "sentiment",
        "sentiment.json",
        "requests/sentiment.json",
        "./sentiment.json",
    ] {
        let done = printed(&host, &endpoint, &[name, "--input", r#"{"text": "fine"}"#]);
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
    }
    for name in [
        "mail/reply",
        "mail/reply.json",
        "./mail/reply.json",
        "own",
        "own.json",
    ] {
        let done = printed(&host, &endpoint, &[name]);
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
    }
}

#[test]
fn faults_are_reported_with_their_place_before_any_request() {
    let host = host();
    host.write("broken.json", "{")
        .write("typo.json", r#"{"context": [], "scheme": {}}"#)
        .write("message.json", r#"{"context": [{"role": "user", "content": "x"}, {"type": "state", "state": {}, "schema": 7}]}"#)
        .write("schema.json", r#"{"context": [], "schema": {"type": "nothing"}}"#)
        .write("steps.json", r#"{"context": [], "max_steps": 0}"#)
        .write("nowhere.json", r#"{"context": [{"type": "tool", "tool": {"x": {"type": "object", "properties": {"_module": {"const": "nowhere"}}}}}]}"#);
    for (arguments, words) in [
        (
            &["none"][..],
            &[
                "no Request \"none\"",
                "there are deployment, moderation,",
                "nor is it a file",
            ][..],
        ),
        (
            &["broken.json"],
            &["broken.json: this is not JSON", "line 1"],
        ),
        (&["typo.json"], &["typo.json", "unknown field `scheme`"]),
        (
            &["message.json"],
            &["message.json: ", "message 2 of the context at /schema"],
        ),
        (
            &["schema.json"],
            &["schema.json: /schema: this schema cannot be used: it is no JSON Schema"],
        ),
        (&["steps.json"], &["/max_steps", "at least 1"]),
        (
            &["nowhere.json"],
            &["the tool \"x\" cannot be run", "no module \"nowhere\""],
        ),
        (&["sentiment"], &["needs --input", "minLength"]),
        (&["sentiment", "--input", "{"], &["--input is not JSON"]),
        (
            &["sentiment", "--input", "@gone.json"],
            &["--input @gone.json", "No such file"],
        ),
        (
            &["sentiment", "--input", r#"{"text": ""}"#],
            &["--input: ", "/text"],
        ),
        (
            &["sentiment", "--input", r#"{"words": 1}"#],
            &["--input: ", "\"text\" is a required property"],
        ),
    ] {
        let endpoint = Endpoint::start(Scenario::default());
        let done = printed(&host, &endpoint, arguments);
        assert_eq!(done.code, Some(1), "{arguments:?}: {done:?}");
        for word in words {
            assert!(
                done.stderr.contains(word),
                "{word} for {arguments:?}: {done:?}"
            );
        }
        assert!(
            endpoint.requests().is_empty() && done.stdout.is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn every_way_to_end_has_its_exit_code() {
    let input = json!({"text": "fine"});
    for (replies, options, code) in [
        (vec![answers("positive")], &[][..], 0),
        (vec![Reply::error(401, json!({"error": "key"}))], &[], 3),
        (vec![Reply::content("prose"); 3], &[], 3),
        (vec![Reply::never()], &["--timeout", "0.5"][..], 4),
    ] {
        let endpoint = Endpoint::start(Scenario::new(replies));
        let done = run(&host(), &endpoint, "sentiment", &input, options);
        assert_eq!(done.finished.code, Some(code), "{:?}", done.finished);
    }
}

/// A saved Request is the same wherever it is run: what lies in the modules folder is no part of it,
/// unless somebody says so.
#[test]
fn a_request_has_the_tools_of_its_own_context() {
    let host = host();
    host.ship("calculator");
    for (options, offered) in [(&[][..], false), (&["--tools", "calculator"], true)] {
        let endpoint = Endpoint::start(Scenario::new([answers("positive")]));
        let done = run(
            &host,
            &endpoint,
            "sentiment",
            &json!({"text": "fine"}),
            options,
        );
        assert_eq!(done.output(), "positive");
        let request = endpoint.requests()[0].to_string();
        assert_eq!(
            request.contains("calculator.evaluate"),
            offered,
            "{options:?}"
        );
        assert!(request.contains("\"sentiment\""));
    }
}

#[test]
fn the_requests_of_the_folder_are_listed() {
    let listed = host().run(&["request", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for part in [
        "sentiment.json  Says how a text feels",
        "--input {",
        "moderation.json  Moderates",
        "no input",
    ] {
        assert!(listed.stdout.contains(part), "{part}: {}", listed.stdout);
    }
    let host = host();
    host.write("requests/broken.json", "{");
    let listed = host.run(&["request", "list"]);
    assert_eq!(listed.code, Some(1), "{listed:?}");
    assert!(
        listed.stdout.contains("broken.json  ✗ this is not JSON"),
        "{listed:?}"
    );
}
