//! The steps of an answer that is not streamed: inference, calls, verdicts of shields, passages.

use super::{ask, server};
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use support::transcript::{answers, calls};

fn steps(answer: &Value) -> &Vec<Value> {
    answer["steps"].as_array().unwrap()
}

#[test]
fn statement_003_30_a_step_has_what_the_model_wrote_with_tokens_and_time() {
    let call = calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let last = answers("It is 4.");
    let (_host, _endpoint, server) = server("", [call, last]);
    let answer = server.post("/v1/agent", &ask("2+2?")).good();
    let steps = steps(&answer);
    assert_eq!(steps.len(), 2, "{answer}");
    let mut sums = [0, 0];
    for step in steps {
        let inference = &step["inference"];
        sums[0] += inference["prompt_tokens"].as_u64().unwrap();
        sums[1] += inference["completion_tokens"].as_u64().unwrap();
        assert!(inference["duration_ms"].is_u64(), "{answer}");
        assert_eq!(inference["finish_reason"], "stop", "{answer}");
    }
    let wrote = |n: usize| steps[n]["inference"]["content"].as_str().unwrap();
    assert!(wrote(0).contains("calculator.evaluate"), "{answer}");
    assert!(wrote(1).contains("It is 4."), "{answer}");
    assert_eq!(steps[0]["calls"][0]["status"], "done", "{answer}");
    assert_eq!(
        (
            &answer["usage"]["prompt_tokens"],
            &answer["usage"]["completion_tokens"]
        ),
        (&json!(sums[0]), &json!(sums[1])),
        "{answer}"
    );
}

#[test]
fn statement_003_30_shields_tell_their_verdicts_in_the_steps() {
    let config = "[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"input\", \"tool_input\"]\n";
    let shielded = json!({"expression": "1 + ann@example.com"});
    let refused = json!({"expression": 4, "more": true});
    let (_host, _endpoint, server) = server(
        config,
        [
            calls([
                ("calculator.evaluate", shielded.clone()),
                ("calculator.evaluate", refused.clone()),
            ]),
            answers("neither"),
        ],
    );
    let answer = server.post("/v1/agent", &ask("Add them.")).good();
    let steps = steps(&answer);
    let first = &steps[0];
    assert_eq!(first["step"], 0, "{answer}");
    let verdict = &first["shields"][0];
    assert_eq!(
        (&verdict["shield"], &verdict["place"], &verdict["verdict"]),
        (&json!("mails"), &json!("input"), &json!("pass")),
        "{answer}"
    );
    let made = steps[1]["calls"].as_array().unwrap();
    let of = |status: &str| {
        let found = made.iter().find(|call| call["status"] == status);
        found.unwrap_or_else(|| panic!("no call is {status}: {answer}"))
    };
    assert_eq!(of("shielded")["arguments"], shielded, "{answer}");
    assert_eq!(of("refused")["arguments"], refused, "{answer}");
    let verdicts = steps[1]["shields"].as_array().unwrap();
    let blocked = verdicts.iter().find(|one| one["verdict"] == "block");
    let blocked = blocked.unwrap_or_else(|| panic!("no verdict is block: {answer}"));
    assert_eq!(blocked["place"], "tool_input", "{answer}");
    assert_eq!(blocked["call"], of("shielded")["id"], "{answer}");
    assert!(blocked["reason"].is_string(), "{answer}");
}

#[test]
fn statement_003_30_redactions_and_verdicts_on_results_are_in_the_steps() {
    let guard = repository().join("tests/components/guard/guard.wasm");
    let host = Host::new();
    host.ship("text")
        .write("modules/guard.wasm", std::fs::read(guard).unwrap())
        .write(
            "toolhold.toml",
            "[shields.words]\nkind = \"wasm\"\nmodule = \"guard\"\nplaces = [\"tool_input\", \"tool_output\"]\n\
             settings = { block = [\"bomb\"], redact = [\"secret\"] }\n",
        );
    let reverse = |text: &str| ("text.reverse", json!({"text": text}));
    let replies = [
        calls([reverse("a terces"), reverse("bmob"), reverse("a secret")]),
        answers("done"),
    ];
    let endpoint = Endpoint::start(Scenario::new(replies));
    let url = endpoint.base_url();
    let server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    let answer = server.post("/v1/agent", &ask("Reverse them.")).good();
    let has_calls = |step: &&Value| {
        step["calls"]
            .as_array()
            .is_some_and(|calls| !calls.is_empty())
    };
    let first = steps(&answer).iter().find(has_calls).unwrap();
    let made = first["calls"].as_array().unwrap();
    assert_eq!(made.len(), 3, "{answer}");
    let of = |text: &str| {
        let found = made.iter().find(|call| call["arguments"]["text"] == text);
        found.unwrap_or_else(|| panic!("no call of {text}: {answer}"))
    };
    let (redacted, blocked) = (of("a terces"), of("bmob"));
    let is_other = |call: &&Value| ![&redacted["id"], &blocked["id"]].contains(&&call["id"]);
    let other = made.iter().find(is_other).unwrap();
    let verdicts = first["shields"].as_array().unwrap();
    for (call, place, verdict) in [
        (redacted, "tool_output", "redact"),
        (blocked, "tool_output", "block"),
        (other, "tool_input", "redact"),
    ] {
        let is_it = |one: &&Value| one["call"] == call["id"] && one["place"] == place;
        let found = verdicts.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("no verdict of {call}: {answer}"));
        assert_eq!(found["verdict"], verdict, "{answer}");
        assert_eq!(found["shield"], "words", "{answer}");
        assert!(found["duration_ms"].is_number(), "{answer}");
    }
    assert_eq!(redacted["status"], "done", "{answer}");
    let result = redacted["result"].to_string();
    assert!(result.contains("[redacted: word] a"), "{answer}");
    assert!(!result.contains("secret"), "{answer}");
    assert_eq!(blocked["status"], "shielded", "{answer}");
    assert_eq!(blocked["result"], Value::Null, "{answer}");
    assert_eq!(other["status"], "done", "{answer}");
}

/// What the shields on the output have not let through is in no step.
#[test]
fn statement_003_30_a_text_that_shields_screen_is_not_told_before_them() {
    let config = "[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"output\"]\n";
    let leak = || answers("Write to ann@example.com.");
    let (_host, _endpoint, server) = server(config, [leak(), leak()]);
    let answer = server.post("/v1/agent", &ask("Whom?")).json();
    assert_eq!(answer["reason"], "blocked", "{answer}");
    assert!(!answer.to_string().contains("ann@example.com"), "{answer}");
    let last = steps(&answer).last().unwrap();
    assert!(last["inference"]["completion_tokens"].is_u64(), "{answer}");
    let verdicts = last["shields"].as_array().unwrap();
    assert_eq!(
        (&verdicts[0]["place"], &verdicts[0]["verdict"]),
        (&json!("output"), &json!("block")),
        "{answer}"
    );
}

#[test]
fn statement_003_30_tokens_of_guards_are_counted_apart() {
    let safe = || Reply::content("safe");
    let guard = Endpoint::start(Scenario::new([safe(), safe()]));
    let config = format!(
        "[endpoints.guard]\nbase_url = \"{}\"\nmodel = \"guard\"\n\
         [shields.llama]\nkind = \"model\"\nendpoint = \"guard\"\n",
        guard.base_url()
    );
    let (_host, _endpoint, server) = server(&config, [answers("done")]);
    let answer = server.post("/v1/agent", &ask("t")).good();
    assert_eq!(guard.requests().len(), 2);
    let usage = &answer["usage"];
    let number = |name: &str| usage[name].as_u64().unwrap();
    assert_eq!(
        number("total_tokens"),
        number("prompt_tokens") + number("completion_tokens"),
        "{answer}"
    );
    // The scripted endpoint counts 10 and 5 for each reply.
    assert_eq!(
        (number("total_tokens"), number("side_tokens")),
        (15, 30),
        "{answer}"
    );
}

/// The client is told of its own call as the shields on the output leave it, in the steps as in `choices`.
#[test]
fn statement_003_30_a_call_of_the_client_is_not_told_before_the_shields() {
    let config = "[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"output\"]\n";
    let call = |of: &str| calls([("guess", json!({"of": of}))]);
    let replies = [call("ann@example.com"), call("2+2")];
    let (_host, _endpoint, server) = server(config, replies);
    let mut asked = ask("Whom?");
    asked["tools"] = json!([{
        "type": "function", "name": "guess", "description": "Guesses.",
        "parameters": {"type": "object", "properties": {"of": {"type": "string"}}},
    }]);
    let blocked = server.post("/v1/agent", &asked).json();
    assert_eq!(blocked["reason"], "blocked", "{blocked}");
    assert!(
        !blocked.to_string().contains("ann@example.com"),
        "{blocked}"
    );
    let passed = server.post("/v1/agent", &asked).good();
    assert_eq!(passed["reason"], "tool_calls", "{passed}");
    for (answer, arguments) in [(&blocked, Value::Null), (&passed, json!({"of": "2+2"}))] {
        let call = &steps(answer).last().unwrap()["calls"][0];
        assert_eq!(
            (&call["tool"], &call["arguments"]),
            (&json!("guess"), &arguments),
            "{answer}"
        );
    }
}
