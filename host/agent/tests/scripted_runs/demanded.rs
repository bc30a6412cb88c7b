//! Section 7: calls that the run's client demands before there is an answer.

use super::support::{Echo, Reply, Script, driver, end, lines, plain_tools, request, run, starts};
use serde_json::{Value, json};
use toolhold_agent::Activities;
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::settings::RunRequest;

fn asked(contract: Contract, tools: &[&str]) -> RunRequest {
    let mut request = request([plain_tools(tools)]);
    request.settings.contract = contract;
    request.settings.must_call = true;
    request
}

fn calls(contract: Contract, tool: &str) -> Reply {
    Reply::of(
        contract,
        &json!({"calls": [{"_tool": tool, "of": 1}], "output": null}),
    )
}

fn output(contract: Contract, text: &str) -> Reply {
    Reply::of(contract, &json!({"calls": [], "output": text}))
}

/// The endpoint is asked for a call and nothing else until the call was made.
fn demands(contract: Contract, body: &Value) -> bool {
    match contract {
        Contract::Tools => body["tool_choice"]["function"]["name"] == "echo",
        Contract::Schema => {
            let schema = &body["response_format"]["json_schema"]["schema"];
            let schema = toolhold_schema::Validator::new(schema).unwrap();
            let answer = json!({"calls": [], "output": "x"});
            schema.check(&answer).is_err()
        }
        Contract::Simple => body["messages"]
            .to_string()
            .contains("This reply has to call the tool echo"),
    }
}

#[tokio::test]
async fn a_call_that_is_demanded_comes_before_the_answer() {
    for contract in Contract::ALL {
        let script = Script::new([
            output(contract, "I know it."),
            calls(contract, "echo"),
            output(contract, "done"),
        ]);
        let activities = Activities::default().with("echo", Echo::default().activity());
        let events = run(&driver(&script, activities), asked(contract, &["echo"])).await;
        assert_eq!(
            end(&events),
            ("output".into(), json!("done")),
            "{}",
            lines(&events)
        );
        assert_eq!(starts(&events).len(), 1);
        let bodies = script.bodies();
        let demanded: Vec<bool> = bodies.iter().map(|body| demands(contract, body)).collect();
        assert_eq!(demanded, [true, true, false], "{contract:?}");
        let told = script.told(1);
        assert!(told.contains("it calls no tool"), "{contract:?}: {told}");
    }
}

/// The client waits for a call of its own tools; the run's calls before it are its own affair.
#[tokio::test]
async fn a_client_with_tools_is_given_a_call_of_one_of_them() {
    for contract in Contract::ALL {
        let script = Script::new([
            calls(contract, "echo"),
            output(contract, "It is 1."),
            calls(contract, "weather"),
        ]);
        let own = Activities::default().with("echo", Echo::default().activity());
        let activities = own.with_clients("weather");
        let request = asked(contract, &["weather", "echo"]);
        let events = run(&driver(&script, activities), request).await;
        assert_eq!(end(&events).0, "tool_calls", "{}", lines(&events));
        assert_eq!((starts(&events).len(), script.asked()), (2, 3));
    }
}

#[tokio::test]
async fn a_run_without_the_demanded_call_ends_with_that_reason() {
    let contract = Contract::Tools;
    let script = Script::new([1, 2, 3].map(|_| output(contract, "I know it.")));
    let activities = Activities::default().with("echo", Echo::default().activity());
    let events = run(&driver(&script, activities), asked(contract, &["echo"])).await;
    assert_eq!(end(&events).0, "unusable", "{}", lines(&events));
    let failure = events.iter().find_map(|event| match &event.kind {
        EventKind::Done { error, .. } => error.as_ref(),
        _ => None,
    });
    let failure = failure.unwrap();
    assert!(failure.lacks_call, "{failure:?}");
    assert!(failure.message.contains("has to call echo"), "{failure:?}");
}

/// An endpoint that refuses a demand is asked in words alone.
#[tokio::test]
async fn a_call_is_demanded_as_the_endpoint_takes_it() {
    let contract = Contract::Tools;
    for (forcing, choice) in [
        (Forcing::Named, "required"),
        (Forcing::Required, "required"),
        (Forcing::Auto, "auto"),
    ] {
        let script = Script::new([calls(contract, "echo"), output(contract, "done")]);
        let activities = Activities::default()
            .with("echo", Echo::default().activity())
            .with("other", Echo::default().activity());
        let mut request = asked(contract, &["echo", "other"]);
        request.settings.forcing = forcing;
        let events = run(&driver(&script, activities), request).await;
        assert_eq!(end(&events).0, "output", "{}", lines(&events));
        assert_eq!(script.bodies()[0]["tool_choice"], choice);
        assert!(script.told(0).contains("has to call one of these tools"));
        assert_eq!(script.bodies()[1]["tool_choice"], "auto");
    }
}

/// The client waits for it, so it is shown although the run has more tools than are shown.
#[tokio::test]
async fn a_client_s_tool_is_demanded_also_of_many_tools() {
    for contract in Contract::ALL {
        let script = Script::new([output(contract, "It is 1."), calls(contract, "weather")]);
        let own = Activities::default()
            .with("echo", Echo::default().activity())
            .with("other", Echo::default().activity());
        let mut request = asked(contract, &["echo", "other", "weather"]);
        request.settings.window.max_tools = 1;
        let activities = own.with_clients("weather");
        let events = run(&driver(&script, activities), request).await;
        assert_eq!(end(&events).0, "tool_calls", "{}", lines(&events));
        let told = script.told(1);
        assert!(told.contains("has to call weather"), "{contract:?}: {told}");
    }
}
