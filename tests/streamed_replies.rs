//! Replies as model servers stream them: pieces of calls that stand elsewhere, and reasoning that goes back.

use serde_json::{Value, json};
use support::endpoint::{Endpoint, Expect, Reply, Scenario};
use support::host::Host;
use support::transcript::Transcript;

const NAME: &str = "calculator-evaluate";
const SUM: &str = r#"{"expression":"6*7"}"#;

fn host() -> Host {
    let host = Host::new();
    host.ship("calculator");
    host
}

/// A stream with these pieces of calls.
fn pieces(fragments: &Value) -> Reply {
    let fragments = fragments.as_array().unwrap().iter();
    let deltas = fragments.map(|fragment| (json!({"tool_calls": [fragment]}), Value::Null));
    let last = (json!({}), json!("tool_calls"));
    let events = deltas.chain([last]).map(|(delta, finish)| {
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {chunk}\n\n")
    });
    Reply::raw(events.collect::<String>() + "data: [DONE]\n\n")
}

/// Results in the request, without those of worked examples.
fn results(endpoint: &Endpoint, n: usize) -> Vec<String> {
    let request = endpoint.requests().swap_remove(n);
    let messages = request["messages"].as_array().unwrap().iter();
    let own = messages.filter(|message| {
        let id = message["tool_call_id"].as_str();
        id.is_some_and(|id| !id.starts_with("example"))
    });
    own.map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

fn run(fragments: &Value) -> (Endpoint, Transcript) {
    let endpoint = Endpoint::start(Scenario::new([pieces(fragments), Reply::content("done")]));
    let run = Transcript::of(
        &host(),
        &endpoint,
        &[
            "run",
            "the task",
            "--no-fallback-tool",
            "--contract",
            "tools",
        ],
    );
    assert_eq!(run.output(), "done", "{fragments}");
    (endpoint, run)
}

#[test]
fn a_call_in_odd_pieces_is_made_with_its_arguments() {
    for fragments in [
        json!([
            {"index": 0, "id": "a", "function": {"name": NAME, "arguments": ""}},
            {"index": 1, "function": {"arguments": "{\"expression\":"}},
            {"index": 2, "function": {"arguments": "\"6*7\"}"}},
        ]),
        json!([
            {"index": 0, "id": "a", "function": {"name": NAME, "arguments": "{"}},
            {"index": 0, "function": {"arguments": SUM}},
        ]),
        json!([
            {"index": 0, "id": "a", "function": {"name": NAME, "arguments": "{}"}},
            {"index": 0, "function": {"arguments": SUM}},
        ]),
        json!([
            {"index": 0, "id": "a", "function": {"name": "calculator-"}},
            {"index": 0, "function": {"name": "evaluate"}},
            {"index": 0, "function": {"arguments": SUM}},
        ]),
    ] {
        let (endpoint, _) = run(&fragments);
        assert_eq!(results(&endpoint, 1), [r#"{"value":"42"}"#], "{fragments}");
    }
}

#[test]
fn two_calls_with_one_id_are_both_made() {
    let (endpoint, _) = run(&json!([
        {"index": 0, "id": "a", "function": {"name": NAME, "arguments": SUM}},
        {"index": 1, "id": "a", "function": {"name": NAME, "arguments": r#"{"expression":"6*8"}"#}},
    ]));
    let expected = [r#"{"value":"42"}"#, r#"{"value":"48"}"#];
    assert_eq!(results(&endpoint, 1), expected);
}

/// Two calls lack their arguments, and the piece does not say whose it is.
#[test]
fn no_call_is_made_without_arguments_while_a_piece_fits_nowhere() {
    let (endpoint, run) = run(&json!([
        {"index": 0, "id": "a", "function": {"name": NAME, "arguments": ""}},
        {"index": 1, "id": "b", "function": {"name": NAME, "arguments": ""}},
        {"index": 7, "function": {"arguments": SUM}},
    ]));
    assert!(
        run.events
            .iter()
            .all(|event| event["event"] != "tool_start"),
        "{run:?}"
    );
    assert_eq!(results(&endpoint, 1), Vec::<String>::new());
    let told = endpoint.requests()[1]["messages"].to_string();
    assert!(told.contains("which call it belongs to"), "{told}");
}

/// The record has the reasoning: [`Transcript::of`] runs it again, and the requests must be the same.
#[test]
fn an_endpoint_in_thinking_mode_is_given_its_reasoning_back_for_ten_steps() {
    let thinking = |n: usize| Expect {
        reasoning: (n > 0).then(|| "reasoning_content".into()),
        ..Expect::default()
    };
    let step = |n: usize| Reply {
        reasoning: Some(format!("I double {n}.")),
        expect: Some(thinking(n)),
        ..Reply::tool_calls([(NAME, json!({"expression": format!("{n}+{n}")}))])
    };
    let last = Reply::content("done").expecting(thinking(10));
    let endpoint = Endpoint::start(Scenario::new((0..10).map(step).chain([last])));
    let asked = [
        "run",
        "the task",
        "--contract",
        "tools",
        "--max-steps",
        "12",
    ];
    let run = Transcript::of(&host(), &endpoint, &asked);
    assert_eq!(run.output(), "done", "{:?}", endpoint.mismatches());
    let requests = endpoint.requests();
    let messages = requests[10]["messages"].as_array().unwrap();
    let thoughts: Vec<&str> = messages
        .iter()
        .filter_map(|message| message["reasoning_content"].as_str())
        .filter(|thought| thought.starts_with("I double"))
        .collect();
    let expected: Vec<String> = (0..10).map(|n| format!("I double {n}.")).collect();
    assert_eq!(thoughts, expected);
    let first = &requests[0]["messages"];
    assert!(!first.to_string().contains("reasoning_content"), "{first}");
}

/// The endpoint refuses worked examples in the first request.
#[test]
fn an_endpoint_that_wants_reasoning_with_worked_examples_is_given_some() {
    let thinking = || Expect {
        reasoning: Some("reasoning_content".into()),
        ..Expect::default()
    };
    let call = Reply {
        reasoning: Some("I multiply.".into()),
        ..Reply::tool_calls([(NAME, json!({"expression": "6*7"}))])
    };
    let endpoint = Endpoint::start(Scenario::new([
        Reply::content("refused").expecting(thinking()),
        call.expecting(thinking()),
        Reply::content("done").expecting(thinking()),
    ]));
    let run = Transcript::of(
        &host(),
        &endpoint,
        &["run", "the task", "--contract", "tools"],
    );
    assert_eq!(run.output(), "done", "{:?}", endpoint.mismatches());
    assert_eq!(endpoint.mismatches().len(), 1, "the first request");
    assert_eq!(results(&endpoint, 2), [r#"{"value":"42"}"#]);
}

#[test]
fn reasoning_goes_back_with_calls_that_are_written_as_text() {
    let call =
        json!({"calls": [{"_tool": "calculator.evaluate", "expression": "6*7"}], "output": null});
    let endpoint = Endpoint::start(Scenario::new([
        Reply {
            reasoning: Some("I multiply.".into()),
            ..Reply::content(call.to_string())
        },
        Reply::content(json!({"calls": [], "output": "done"}).to_string()),
    ]));
    let run = Transcript::of(
        &host(),
        &endpoint,
        &["run", "the task", "--contract", "schema"],
    );
    assert_eq!(run.output(), "done");
    let request = endpoint.requests().swap_remove(1);
    let messages = request["messages"].as_array().unwrap().iter();
    let thoughtful = messages.filter(|message| message["reasoning_content"] == "I multiply.");
    let said: Vec<&Value> = thoughtful.map(|message| &message["content"]).collect();
    assert_eq!(said.len(), 1, "{request}");
    assert!(said[0].as_str().unwrap().contains("6*7"), "{request}");
}

/// The signatures of the first calls of all messages.
fn signatures(request: &Value) -> Vec<&str> {
    let messages = request["messages"].as_array().unwrap().iter();
    let calls = messages.filter_map(|message| message["tool_calls"].get(0));
    let signed = calls.map(|call| &call["extra_content"]["google"]["thought_signature"]);
    signed.filter_map(Value::as_str).collect()
}

/// Worked examples have no signature: Gemini refuses the first request, and takes a text in the place of theirs. The record
/// has the signatures: [`Transcript::of`] runs it again, and the requests must be the same.
#[test]
fn an_endpoint_that_signs_its_calls_is_given_the_signatures_back() {
    let signed = || Expect {
        signed: true,
        ..Expect::default()
    };
    let call = |signature: &str, number: usize| {
        let google = json!({"google": {"thought_signature": signature}});
        let arguments =
            |other: usize| json!({"expression": format!("{number}*{other}")}).to_string();
        let reply = pieces(&json!([
            {"index": 0, "id": "a", "type": "function", "extra_content": google,
                "function": {"name": NAME, "arguments": arguments(7)}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": NAME, "arguments": arguments(8)}},
        ]));
        reply.expecting(signed())
    };
    let last = || Reply::content("done").expecting(signed());
    // The first request is refused, because of the examples; later ones have what it lacked.
    let endpoint = Endpoint::start(Scenario::new([
        call("AA", 6),
        call("AA", 6),
        call("BB", 9),
        last(),
    ]));
    let asked = [
        "run",
        "the task",
        "--contract",
        "tools",
        "--no-fallback-tool",
    ];
    let run = Transcript::of(&host(), &endpoint, &asked);
    assert_eq!(run.output(), "done", "{:?}", endpoint.mismatches());
    let requests = endpoint.requests();
    let own: Vec<&str> = signatures(requests.last().unwrap())
        .into_iter()
        .filter(|signature| !signature.starts_with("skip_"))
        .collect();
    assert_eq!(own, ["AA", "BB"]);
}

/// Reasoning of models of Anthropic in the form of LiteLLM.
#[test]
fn signed_blocks_of_thinking_go_back_whole() {
    let block = |text: &str, signature: Value| json!([{"type": "thinking", "thinking": text, "signature": signature}]);
    let deltas = [
        json!({"reasoning_content": "I ", "thinking_blocks": block("I ", Value::Null)}),
        json!({"reasoning_content": "multiply.", "thinking_blocks": block("multiply.", Value::Null)}),
        json!({"thinking_blocks": block("", json!("s"))}),
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": NAME, "arguments": SUM}}]}),
    ];
    let chunks = deltas.map(|delta| {
        let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
        format!("data: {chunk}\n\n")
    });
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let endpoint = Endpoint::start(Scenario::new([
        Reply::raw(chunks.concat() + end),
        Reply::content("done"),
    ]));
    let asked = [
        "run",
        "the task",
        "--contract",
        "tools",
        "--no-fallback-tool",
    ];
    let run = Transcript::of(&host(), &endpoint, &asked);
    assert_eq!(run.output(), "done");
    let request = endpoint.requests().swap_remove(1);
    let mut messages = request["messages"].as_array().unwrap().iter();
    let thoughtful = messages
        .find(|message| message["reasoning_content"] == "I multiply.")
        .unwrap();
    assert_eq!(
        thoughtful["thinking_blocks"],
        block("I multiply.", json!("s"))
    );
}
