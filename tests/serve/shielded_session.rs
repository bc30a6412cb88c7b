//! A session whose shields hide, reveal and block, turn after turn.

use super::{ask, calls, host, scripted, serve};
use serde_json::{Value, json};
use support::endpoint::{Endpoint, Reply};
use support::transcript::answers;

/// The policy, the turns and what each of them must come to.
fn fixture() -> Value {
    serde_json::from_str(include_str!("../fixtures/protocol/session.json")).unwrap()
}

/// What the model replies in a turn that is not blocked.
fn replies(turn: &Value) -> Vec<Reply> {
    let call = turn["call"].as_array();
    let call = call.map(|call| calls([(call[0].as_str().unwrap(), call[1].clone())]));
    let answer = turn["answer"].as_str().map(|answer| answers(json!(answer)));
    call.into_iter().chain(answer).collect()
}

/// All that the endpoint was told.
fn told(endpoint: &Endpoint) -> String {
    endpoint.requests().iter().map(Value::to_string).collect()
}

#[test]
fn a_session_keeps_what_its_shields_hide_and_goes_on_after_a_blocked_turn() {
    let fixture = fixture();
    let turns = fixture["turns"].as_array().unwrap();
    let config = toml::to_string(&json!({"shields": fixture["policy"]})).unwrap();
    let host = host(&config);
    let endpoint = scripted(turns.iter().flat_map(replies));
    let server = serve(&host, &endpoint);
    let session = server.post("/v1/sessions", &json!({})).good();
    let path = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    for turn in turns {
        let answer = server.post(&path, &ask(turn["user"].as_str().unwrap()));
        for secret in turn["unseen"].as_array().unwrap() {
            let told = told(&endpoint);
            assert!(!told.contains(secret.as_str().unwrap()), "{told}");
        }
        if let Some(shield) = turn["blocked"].as_str() {
            let answer = answer.json();
            assert_eq!(answer["reason"], "blocked", "{answer}");
            assert!(answer.to_string().contains(shield), "{answer}");
            continue;
        }
        let answer = answer.good();
        assert_eq!(answer["output"], turn["output"], "{answer}");
        let steps = answer["steps"].as_array().unwrap().iter();
        let made: Value = steps
            .flat_map(|step| step["calls"].as_array().unwrap())
            .map(|call| json!({"tool": call["tool"], "status": call["status"], "result": call["result"]}))
            .collect();
        assert_eq!(made, turn["steps"], "{answer}");
    }
}
