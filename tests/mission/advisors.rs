//! Advisors that speak when they are asked.

use super::{ask, server};
use serde_json::{Value, json};
use support::server::ServerSentEvent;
use support::transcript::{answers, calls, told};

#[test]
fn statement_004_24_an_advisor_on_demand_sees_the_task_and_the_context() {
    let question = json!({"id": "critic", "question": "Is it wise?"});
    let (_host, endpoint, server) = server(
        "",
        [
            calls([("ConsultAdvisor", question)]),
            answers(json!({"opinion": "It is."})),
            answers("done"),
        ],
    );
    let mut asked = ask("Sell the old violin.");
    asked["context"] = json!([
        {"type": "advisor", "id": "critic", "role": "Looks for mistakes.", "on": null, "scopes": ["price"]},
        {"type": "data", "kind": "price", "data": {"least": 1900}},
        {"type": "data", "kind": "owner", "data": {"name": "Ludmila"}},
    ]);
    let answer = server.post("/v1/agent", &asked).good();
    assert_eq!(answer["output"], "done", "{answer}");
    let room = told(&endpoint, 1);
    for part in [
        "Looks for mistakes.",
        "Is it wise?",
        "Sell the old violin.",
        "1900",
        "Ludmila",
    ] {
        assert!(room.contains(part), "{part} is missing: {room}");
    }
}

#[test]
fn statement_004_13_votes_of_an_advisor_on_demand_join_the_council() {
    let question = json!({"id": "critic", "question": "Compute or guess?"});
    let votes =
        json!({"opinion": "Compute.", "calls": "{\"calculator.evaluate\": 80, \"guess\": 5}"});
    let guess = || calls([("guess", json!({"of": "2+2"}))]);
    let compute = || calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let (host, endpoint, server) = server(
        "",
        [
            calls([("ConsultAdvisor", question)]),
            answers(votes),
            guess(),
            compute(),
            answers("It is 4."),
        ],
    );
    let mut asked = ask("2+2?");
    asked["context"] = json!([
        {"type": "advisor", "id": "critic", "role": "Prefers certainty.", "on": null},
    ]);
    asked["tools"] = json!(["calculator.evaluate", {
        "type": "function", "name": "guess", "description": "Guesses.",
        "parameters": {"type": "object", "properties": {"of": {"type": "string"}}},
    }]);
    let answer = server.post("/v1/agent", &asked).good();
    assert_eq!(answer["output"], "It is 4.", "{answer}");
    let sums = told(&endpoint, 3).replace('\\', "");
    assert!(sums.contains("this call is held"), "{sums}");
    let run = answer["id"].as_str().unwrap();
    let events = server.get(&format!("/v1/runs/{run}/events")).events();
    let events: Vec<Value> = events.iter().map(ServerSentEvent::json).collect();
    let place = |name: &str, is_it: &dyn Fn(&Value) -> bool| {
        let at = events
            .iter()
            .position(|event| event["event"] == name && is_it(event));
        at.unwrap_or_else(|| panic!("{name} is missing: {events:?}"))
    };
    let heard = place("council", &|event| {
        event["council"]["opinions"][0]["advisor"] == "critic"
    });
    let held = place("council", &|event| event["held"] == true);
    let made = place("tool_start", &|event| {
        event["tool"] == "calculator.evaluate"
    });
    assert!(heard <= held && held < made, "{heard} {held} {made}");
    assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
}
