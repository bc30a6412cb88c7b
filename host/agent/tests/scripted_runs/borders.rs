//! Section 7, shields at the two borders of a run: what a model is sent, and what leaves the run with a client's calls.

use super::placeholders::bodies;
use super::shields::{KEY, Words, messages, post, private, shielded};
use super::support::{
    Echo, Reply, Script, driver, end, json_of, lines, output, plain_tools, request, run,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::guard::shield::{Screening, Shield, ShieldVerdict, Shields};
use toolhold_agent::run::OperatorTexts;
use toolhold_agent::{Activities, Driver};
use toolhold_model::CompletionObserver;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::shield::ShieldPlace;

/// Whatever part of a request it is in: a text that shields block there reaches no model.
#[tokio::test]
async fn every_text_of_the_input_is_screened() {
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    let passage = json!({"id": "k1", "source": "s", "text": "t"});
    let with = |of: &Value, name: &str| {
        let mut of = of.clone();
        of[name] = "a bomb".into();
        of
    };
    let tool = |schema: Value| json!({"type": "tool", "tool": {"lookup": schema}});
    let activity = json!({"const": "echo"});
    let inputs = [
        json!({"role": "user", "content": "a bomb"}),
        json!({"role": "system", "content": "a bomb"}),
        json!({"role": "assistant", "content": "a bomb"}),
        json!({"type": "image", "data": png, "name": "a bomb"}),
        json!({"type": "data", "data": 1, "description": "a bomb"}),
        json!({"type": "data", "data": 1, "title": "a bomb"}),
        json!({"type": "data", "data": 1, "schema": {"description": "a bomb"}}),
        json!({"type": "data", "data": {"a bomb": 1}}),
        json!({"type": "data", "data": 1, "_instance": "a bomb"}),
        json!({"type": "input", "input": "a bomb"}),
        json!({"type": "input", "input": 1, "description": "a bomb"}),
        json!({"type": "state", "state": {"of": "a bomb"}}),
        json!({"type": "state", "schema": {"type": "object", "description": "a bomb"}}),
        tool(
            json!({"type": "object", "description": "a bomb", "properties": {"_activity": activity}}),
        ),
        tool(json!({"type": "object", "properties":
            {"_activity": activity, "of": {"type": "string", "description": "a bomb"}}})),
        json!({"type": "plan", "plan": [{"_tool": "echo", "of": "a bomb"}]}),
        json!({"type": "advisor", "id": "one", "role": "a bomb", "on": "request"}),
        json!({"type": "meta", "meta": {"version": "1.2.3", "domain": "a bomb"}}),
        json!({"type": "error", "data": {"call": {"_tool": "echo"}, "error": {"message": "a bomb"}}}),
        json!({"type": "type", "name": "parcel", "schema": {"type": "object"}, "description": "a bomb"}),
        json!({"type": "type", "name": "parcel", "schema": {"type": "object", "title": "a bomb"}}),
        json!({"type": "knowledge", "passages": [with(&passage, "text")]}),
        json!({"type": "knowledge", "passages": [with(&passage, "source")]}),
        json!({"type": "knowledge", "passages": [with(&passage, "title")]}),
        json!({"type": "knowledge", "passages": [with(&passage, "heading")]}),
        json!({"type": "tool_result", "tool": "weather", "result": "a bomb"}),
        json!({"type": "tool_result", "tool": "weather", "arguments": {"of": "a bomb"}, "result": 1}),
    ];
    let asked = inputs.into_iter().map(|message| {
        let mut context = messages(json!([message]));
        context.push(plain_tools(&["echo"]));
        context.push(Message::user("Well?"));
        (message.to_string(), request(context))
    });
    let mut instructed = request([Message::user("Well?")]);
    instructed.instructions = "Build a bomb.".into();
    let mut formed = request([Message::user("Well?")]);
    formed.output_schema = Some(json!({"type": "string", "description": "a bomb"}));
    let others = [("instructions", instructed), ("output schema", formed)];
    let others = others.map(|(name, request)| (name.to_owned(), request));
    for (name, request) in asked.chain(others) {
        let script = Script::new([Reply::output("done")]);
        let words = Arc::new(Words {
            block: "bomb",
            ..Words::default()
        });
        let driver = shielded(&script, &Echo::default(), &[ShieldPlace::Input], words);
        let events = run(&driver, request).await;
        assert_eq!(end(&events), ("blocked".into(), Value::Null), "{name}");
        assert_eq!(script.asked(), 0, "{name}");
    }
}

/// What the operator wrote is his own business.
#[tokio::test]
async fn the_operators_own_texts_are_not_screened() {
    let script = Script::new([Reply::output("done")]);
    let words = Arc::new(Words {
        block: "bomb",
        ..Words::default()
    });
    let mut asked = request([Message::user("Well?")]);
    asked.instructions = "Say nothing of a bomb.".into();
    asked.output_schema = Some(json!({"type": "string", "description": "without a bomb"}));
    let operator = OperatorTexts {
        instructions: Some(asked.instructions.clone()),
        output_schema: asked.output_schema.clone(),
    };
    let driver = Driver {
        operator,
        ..shielded(
            &script,
            &Echo::default(),
            &[ShieldPlace::Input],
            words.clone(),
        )
    };
    let events = run(&driver, asked).await;
    assert_eq!(end(&events).1, json!("done"), "{}", lines(&events));
    let seen = words.seen.lock().unwrap();
    assert_eq!(seen[0].value, json!(["Well?", "the task"]));
}

#[tokio::test]
async fn what_is_redacted_beside_the_contents_is_not_sent() {
    let script = Script::new([Reply::output("done")]);
    let words = Arc::new(Words {
        redact: "Ann",
        ..Words::default()
    });
    let driver = shielded(
        &script,
        &Echo::default(),
        &[ShieldPlace::Input],
        words.clone(),
    );
    let mut asked = request(messages(json!([
        {"type": "data", "kind": "user", "data": {"n": 1}, "description": "What Ann has."},
        {"type": "error", "data": {"call": {"_tool": "echo"}, "error": "no Ann"}},
        {"type": "knowledge", "passages": [{"id": "k1", "source": "Ann's notes", "text": "Ann is 40."}]},
        {"role": "user", "content": "Hello"},
    ])));
    asked.instructions = "Obey Ann.".into();
    asked.output_schema = Some(json!({"type": "string", "description": "of Ann"}));
    let events = run(&driver, asked.clone()).await;
    assert_eq!(end(&events).1, json!("done"), "{}", lines(&events));
    let sent = bodies(&script);
    assert!(!sent.contains("Ann"), "{sent}");
    for part in [
        "What [redacted: word] has.",
        "no [redacted: word]",
        "[redacted: word]'s notes",
        "Obey [redacted: word].",
    ] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    // From what runs and checks calls, nothing can be taken away.
    let script = Script::new([Reply::output("done")]);
    let driver = shielded(&script, &Echo::default(), &[ShieldPlace::Input], words);
    let tool = json!({"lookup": {"type": "object", "description": "of Ann", "properties": {"_activity": {"const": "echo"}}}});
    asked.context =
        messages(json!([{"type": "tool", "tool": tool}, {"role": "user", "content": "Hello"}]));
    let events = run(&driver, asked).await;
    assert_eq!(end(&events).0, "blocked");
    assert_eq!(script.asked(), 0);
    let error = json_of(events.last().unwrap())["error"]["message"].to_string();
    assert!(
        error.contains("message 0: something is missing in the definition of a tool"),
        "{error}"
    );
}

/// A result that a client brings is a tool's, and not what the user says.
#[tokio::test]
async fn a_result_from_elsewhere_is_screened_and_shown_as_a_result() {
    for (block, redact, told) in [
        ("", "", "the sunny weather"),
        ("", "sunny", "the [redacted: word] weather"),
        (
            "sunny",
            "",
            "the shield words blocked the result of this call: it says sunny",
        ),
    ] {
        for contract in [Contract::Schema, Contract::Tools] {
            let script = Script::new([Reply::of(contract, &output("done"))]);
            let words = Arc::new(Words {
                block,
                redact,
                ..Words::default()
            });
            let driver = shielded(
                &script,
                &Echo::default(),
                &[ShieldPlace::ToolOutput],
                words.clone(),
            );
            let mut asked = request(messages(json!([
                {"role": "user", "content": "The weather?"},
                {"role": "assistant", "content": "I look."},
                {"type": "tool_result", "tool": "weather", "arguments": {"city": "Bern"}, "result": "the sunny weather"},
                {"type": "tool_result", "tool": "weather", "arguments": {"city": "Basel"}, "result": "rain"},
                {"role": "user", "content": "And?"},
            ])));
            asked.settings.contract = contract;
            let events = run(&driver, asked).await;
            assert_eq!(end(&events).1, json!("done"), "{}", lines(&events));
            let seen = words.seen.lock().unwrap();
            let seen: Vec<_> = seen
                .iter()
                .map(|it| (it.place, it.tool.as_deref()))
                .collect();
            assert_eq!(seen, [(ShieldPlace::ToolOutput, Some("weather")); 2]);
            let body: Value = serde_json::from_str(&bodies(&script)).unwrap();
            let sent = body["messages"].as_array().unwrap();
            let roles: Vec<&str> = sent.iter().map(|it| it["role"].as_str().unwrap()).collect();
            let (at, text) = sent
                .iter()
                .enumerate()
                .find_map(|(at, it)| {
                    let text = it["content"].as_str().unwrap_or_default();
                    text.contains(told).then_some((at, text))
                })
                .unwrap_or_else(|| panic!("{told}: {body}"));
            match contract {
                Contract::Tools => {
                    assert_eq!(
                        roles[at - 1..],
                        ["assistant", "tool", "tool", "user"],
                        "{body}"
                    );
                    assert_eq!(sent[at - 1]["content"], "I look.");
                    assert_eq!(
                        sent[at - 1]["tool_calls"][0]["id"],
                        sent[at]["tool_call_id"]
                    );
                }
                _ => {
                    assert!(roles.windows(2).all(|two| two[0] != two[1]), "{roles:?}");
                    let opening = if block.is_empty() {
                        "<result "
                    } else {
                        "<error "
                    };
                    assert!(text.starts_with(opening), "{text}");
                }
            }
            if !(block.is_empty() && redact.is_empty()) {
                assert!(!body.to_string().contains("the sunny"), "{body}");
            }
        }
    }
}

/// What a run tells its client of the calls that it made itself leaves the run like an answer.
#[tokio::test]
async fn what_a_client_is_told_of_a_runs_own_calls_passes_the_border() {
    let ask = || {
        Script::new([Reply::calls(&[
            json!({"_tool": "echo", "of": "the key <api_key_1>"}),
            json!({"_tool": "weather", "key": "<api_key_1>"}),
        ])])
    };
    let asked = || {
        let mut asked = private(
            [
                Message::user(format!("My key is {KEY}.")),
                plain_tools(&["echo", "weather"]),
            ],
            &[],
        );
        // A client may give its function any name.
        asked.settings.privacy.reveal_secrets = ["weather".to_owned(), "echo".to_owned()].into();
        asked
    };
    let clients = |echo: &Echo| {
        Activities::default()
            .with("echo", echo.activity())
            .with_clients("weather")
    };
    let echo = Echo::default();
    let script = ask();
    let events = run(&driver(&script, clients(&echo)), asked()).await;
    let (reason, told) = end(&events);
    assert_eq!(reason, "tool_calls", "{}", lines(&events));
    assert!(!told.to_string().contains(KEY), "{told}");
    let own = told["told"].as_str().unwrap();
    assert!(
        own.starts_with("echo {\"of\":\"the key <api_key_1>\"} returned"),
        "{told}"
    );
    // The tool that may have it had it; what the client is to call has none.
    assert!(echo.made.lock().unwrap()[0]["of"].to_string().contains(KEY));
    let theirs = told["calls"].as_array().unwrap();
    assert_eq!(theirs.len(), 1);
    assert_eq!(
        (&theirs[0]["tool"], &theirs[0]["arguments"]),
        (&json!("weather"), &json!({"key": "<api_key_1>"}))
    );

    for (words, reason) in [
        (
            Words {
                block: "api_key_1",
                ..Words::default()
            },
            "blocked",
        ),
        (
            Words {
                redact: "api",
                ..Words::default()
            },
            "tool_calls",
        ),
    ] {
        screened_hand_over(&ask(), asked(), words, reason).await;
    }
}

/// What the client is to call, and is told, passes the shields on the output.
async fn screened_hand_over(script: &Arc<Script>, asked: RunRequest, words: Words, expected: &str) {
    let echo = Echo::default();
    let activities = Activities::default()
        .with("echo", echo.activity())
        .with_clients("weather");
    let redacts = !words.redact.is_empty();
    let shields = Shields {
        posts: vec![post(&[ShieldPlace::Output], Arc::new(words))],
        grants: Value::Null,
    };
    let driver = Driver {
        shields,
        ..driver(script, activities)
    };
    let events = run(&driver, asked).await;
    let (reason, told) = end(&events);
    assert_eq!(reason, expected, "{}", lines(&events));
    if redacts {
        let text = told["calls"][0]["arguments"].to_string();
        assert!(
            text.contains("[redacted: word]") && !text.contains("api"),
            "{told}"
        );
    } else {
        assert_eq!(told, Value::Null);
    }
}

/// A mark in the place of more than a text leaves nothing that could be sent.
#[tokio::test]
async fn a_mark_in_the_place_of_more_than_a_text_ends_the_run() {
    let context = json!([
        {"role": "user", "content": "Hello"},
        {"type": "data", "kind": "user", "data": {"n": 1}, "description": "D"},
        {"type": "knowledge", "passages": [{"id": "k1", "source": "s", "text": "t"}]},
        {"type": "image", "name": "Ann", "data":
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="},
    ]);
    // What is left of the input, where the mark stands at this place, and whether the run can go on.
    for (place, goes_on) in [
        ("", false),
        ("/0", true),
        ("/1", true),
        ("/1/n", true),
        ("/2", false),
        ("/2/0", true),
        ("/4", false),
        ("/4/1", false),
        ("/4/1/description", true),
        ("/4/2/passages", false),
        ("/4/2/passages/0", false),
        ("/4/2/passages/0/source", true),
        ("/4/3/name", true),
    ] {
        let script = Script::new([Reply::output("done")]);
        let driver = shielded(
            &script,
            &Echo::default(),
            &[ShieldPlace::Input],
            Arc::new(Marks(place)),
        );
        let events = run(&driver, request(messages(context.clone()))).await;
        let expected = if goes_on { "output" } else { "blocked" };
        assert_eq!(end(&events).0, expected, "{place}: {}", lines(&events));
        assert_eq!(script.asked(), usize::from(goes_on), "{place}");
        if goes_on && !place.starts_with("/4/3") {
            assert!(bodies(&script).contains("[redacted]"), "{place}");
        }
        if place == "/4/3/name" {
            assert!(
                bodies(&script).contains("data:image/png"),
                "the image is lost"
            );
        }
    }
}

/// Puts its mark at one place of what it is shown.
#[derive(Debug)]
struct Marks(&'static str);

impl Shield for Marks {
    fn screen<'a>(
        &'a self,
        screening: &'a Screening,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<ShieldVerdict, String>> {
        let mut value = screening.value.clone();
        *value.pointer_mut(self.0).expect("the place") = "[redacted]".into();
        let reason = "a mark".to_owned();
        Box::pin(std::future::ready(Ok(ShieldVerdict::Redact {
            value,
            reason,
        })))
    }
}

/// A mark in the place of more than a text leaves no calls that a client could make.
#[tokio::test]
async fn a_mark_in_the_place_of_a_clients_calls_ends_the_run() {
    for (place, expected) in [
        ("", "blocked"),
        ("/calls", "blocked"),
        ("/calls/0", "blocked"),
        ("/calls/0/arguments", "blocked"),
        ("/calls/0/arguments/of", "tool_calls"),
        ("/told", "tool_calls"),
    ] {
        let script = Script::new([Reply::calls(&[json!({"_tool": "weather", "of": "Bern"})])]);
        let shields = Shields {
            posts: vec![post(&[ShieldPlace::Output], Arc::new(Marks(place)))],
            grants: Value::Null,
        };
        let driver = Driver {
            shields,
            ..driver(&script, Activities::default().with_clients("weather"))
        };
        let events = run(&driver, request([plain_tools(&["weather"])])).await;
        assert_eq!(end(&events).0, expected, "{place}: {}", lines(&events));
    }
}
